"""What has to fit a version before its tag is set. The version itself is in kstore/__init__.py only."""

from __future__ import annotations

import re
from pathlib import Path

# What the pages say as long as there is no release.
NOT_RELEASED = "not on a package index yet"
PAGES = ("README.md", "docs/index.md")


def version_of(tree: Path) -> str:
    """Return the version of a source tree."""
    (found,) = re.findall(r'^__version__ = "([^"]+)"$', (tree / "kstore" / "__init__.py").read_text(), re.MULTILINE)
    return str(found)


def left_to_do(tree: Path, tag: str | None) -> list[str]:
    """Return what in the tree keeps its version from being released, one line each.

    tag: that of the commit, None if none is set yet, which then is not compared.
    """
    version = version_of(tree)
    wrong = []
    if tag is not None and tag != f"v{version}":
        wrong.append(f"kstore/__init__.py: expected the version of the tag {tag}, found {version}")
    heading = re.search(r"^## .*$", (tree / "CHANGELOG.md").read_text(), re.MULTILINE)
    if heading is None or not re.fullmatch(rf"## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", heading[0]):
        found = "none" if heading is None else heading[0]
        wrong.append(f"CHANGELOG.md: expected '## {version} (YYYY-MM-DD)' as the first heading, found '{found}'")
    wrong += [f"{page}: says '{NOT_RELEASED}'" for page in PAGES if NOT_RELEASED in (tree / page).read_text()]
    return wrong
