"""Where each page of the project stands in the site, and its links there.

The pages are those of docs/ as they are, and a few files from elsewhere. A link to what the site has not goes to the
project.
"""

from __future__ import annotations

import os
import re
import shutil
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PROJECT = "https://github.com/kstore-project/kstore"
_LINK = re.compile(r"(\[[^\]]*\]\()(?!https?://|#)([^)\s]+)\)")
# The text of a link that is the name of its file.
_FILE_NAME = re.compile(r"\[(?:[\w-]+/)*[\w-]+\.md\]\(")
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
# The first page has its width to itself.
_WIDE = "---\nhide: [navigation, toc]\n---\n\n"
# Files from outside of docs/, and how they are called in the site. A link to README.md leads to the first page.
ELSEWHERE = {
    "README.md": "index.md",
    "bench/README.md": "figures.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}


def place_of(path: Path) -> str | None:
    """Return where a file of the project stands in the site, or None if it does not."""
    inside = path.relative_to(ROOT).as_posix()
    if inside in ELSEWHERE:
        return ELSEWHERE[inside]
    if path.is_dir() or not path.is_relative_to(DOCS):
        return None
    return re.sub(r"(^|/)README\.md$", r"\1index.md", path.relative_to(DOCS).as_posix())


@cache
def title_of(path: Path) -> str:
    """Return what a page is called in a sentence."""
    return path.read_text().partition("\n")[0].removeprefix("# ").removeprefix("kstore: ")


def with_links_of_the_site(text: str, path: Path) -> str:
    """Return a page with each of its links, outside of blocks of code, as it has to be in the site.

    A link whose text is the name of a file of the site has the title of that page.
    """
    own = Path(place_of(path) or "").parent

    def moved(link: re.Match[str]) -> str:
        address = urlsplit(link[2])
        target = (path.parent / address.path).resolve()
        if not target.is_relative_to(ROOT) or not target.exists():
            return link[0]
        place = place_of(target)
        if place is None:
            kind = "tree" if target.is_dir() else "blob"
            return f"{link[1]}{PROJECT}/{kind}/main/{target.relative_to(ROOT).as_posix()})"
        anchor = f"#{address.fragment}" if address.fragment else ""
        text = (
            f"[{title_of(DOCS / 'index.md' if target == ROOT / 'README.md' else target)}]("
            if _FILE_NAME.fullmatch(link[1])
            else link[1]
        )
        return f"{text}{os.path.relpath(place, own)}{anchor})"

    parts = _FENCE.split(text)
    parts[::2] = [_LINK.sub(moved, part) for part in parts[::2]]
    return "".join(parts)


def write_pages(target: Path) -> None:
    """Write the pages of the project to a directory, with the pictures and the man page."""
    pages = [*DOCS.rglob("*.md"), *(ROOT / name for name in ELSEWHERE if name != "README.md")]
    for path in pages:
        place = target / str(place_of(path))
        place.parent.mkdir(parents=True, exist_ok=True)
        text = with_links_of_the_site(path.read_text(), path)
        place.write_text(f"{_WIDE}{text}" if path == DOCS / "index.md" else text)
    shutil.copytree(DOCS / "pictures", target / "pictures")
    shutil.copy(DOCS / "kstore.1", target)
