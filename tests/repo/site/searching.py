"""The index of the search, so that a word finds the page about it before what only has it in its name.

The theme ranks a result by where the words are: title, path, text. Of equal ones the first of the index comes first.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

# A member in the reference, as <code>Log.read</code>.
_MEMBER = re.compile(r"<code>(\w+)\.(\w+)</code>")
# What comes after the pages for users: the reference, then what only the project needs.
_REFERENCE = ("reference/kstore", "reference/index")
_INSIDE = ("internals/", "decisions/", "design", "contributing", "security", "changelog")


def ranked(items: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return the items of an index in their order of rank; of a member, the name is before that of its class."""

    def place(item: dict[str, object]) -> int:
        location = str(item["location"])
        return 2 if location.startswith(_INSIDE) else 1 if location.startswith(_REFERENCE) else 0

    def named(title: object) -> str:
        return _MEMBER.sub(r"<code>\2</code> (<code>\1</code>)", str(title))

    return [{**item, "title": named(item["title"])} for item in sorted(items, key=place)]


def rank(site: Path) -> None:
    """Rewrite the index of a site, for servers and for files."""
    index = json.loads((site / "search.json").read_text())
    text = json.dumps({**index, "items": ranked(index["items"])}, ensure_ascii=False, separators=(",", ":"))
    (site / "search.json").write_text(text)
    (site / "search.js").write_text(f"var __index = {text}")
