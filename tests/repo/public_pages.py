"""The public names of kstore that no page for users says anything of: `python -m tests.repo.public_pages` prints them.

`test_public_pages.py` holds that there are none. The pages are README.md and docs/*.md. A class, function or constant
has a page if one names it in code, a member if such a page of its class does.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.repo.public_names import public_names

ROOT = Path(__file__).parents[2]
# For those who work on kstore, not with it.
_OTHERS = {"design.md"}
_CODE = re.compile(r"^ *```[^`]*```|`[^`]+`|^ {4}[^\n]*$", re.MULTILINE)


def words_by_page() -> dict[str, set[str]]:
    """Return the words in the code of each page for users."""
    pages = [ROOT / "README.md", *(page for page in (ROOT / "docs").glob("*.md") if page.name not in _OTHERS)]
    return {
        page.name: {word for code in _CODE.findall(page.read_text()) for word in re.findall(r"\w+", code)}
        for page in pages
    }


def names_without_page() -> Iterator[str]:
    """Yield each public name, and Class.member of each member that its class defines first, that has no page."""
    pages = words_by_page().values()
    bases: dict[str, list[str]] = {}
    members: dict[str, set[str]] = {}
    for line in public_names():
        match = re.fullmatch(r"class ((?:(?:aio|serve|testing)\.)?\w+)\((.*)\)", line)
        if match is not None:
            bases[match[1]] = match[2].split(", ")
            continue
        name, member = re.match(r"((?:(?:aio|serve|testing)\.)?\w+)\.?(\w*)", line).groups()
        members.setdefault(name, set())
        if member:
            members[name].add(member)
    for name, own in members.items():
        of_class = [words for words in pages if words.issuperset(name.split("."))]
        if not of_class:
            yield name
        inherited = {member for base in bases.get(name, ()) for member in members.get(base, ())}
        for member in sorted(own - inherited):
            if not any(member in words for words in of_class):
                yield f"{name}.{member}"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in names_without_page())
