"""Goal: README.md leads a newcomer in order, its links and those of docs work, and its picture is that of the command.
Method: read the pages, look up every link in the tree, draw the picture again; test_snippets runs what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from examples import make_terminal_picture
from tests.repo.snippets import PAGES, ROOT

README = (ROOT / "README.md").read_text()
LINKED = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md", ROOT / "bench" / "README.md"]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FIRST_PAGE_LINES = 60


def test_readme_comes_in_the_order_a_newcomer_asks() -> None:
    order = [
        "# kstore\n",
        "![The kstore command on a terminal]",
        "pip install",
        "    $ kstore ls examples/flights\n    topic",
        "### A disk into Polars, DuckDB, pandas or Parquet",
        "### A damaged partition",
        "### A log inside your program",
        "### Spark",
        "## When not to use it",
        "## How fast",
        "docs/pictures/speed.svg",
        "## More",
    ]
    places = [README.find(part) for part in order]
    assert -1 not in places
    assert places == sorted(places)
    sentence = README.split("\n\n")[1]
    assert sentence.count(".") == 1
    assert "\n" not in sentence


@pytest.mark.parametrize("command", ["make demo", "make test"])
def test_first_page_has_the_two_commands(command: str) -> None:
    assert f"\n    {command} " in "\n".join(README.splitlines()[:FIRST_PAGE_LINES])


def anchors(path: Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere() -> None:
    wrong = []
    for page in LINKED:
        for target in LINK.findall(page.read_text()):
            place, _, anchor = target.partition("#")
            if place.startswith("https://"):
                continue
            path = page.parent / place if place else page
            if not path.exists() or (anchor and anchor not in anchors(path)):
                wrong.append(f"{page.relative_to(ROOT)}: {target}")
    assert wrong == []


def test_picture_is_what_the_command_shows() -> None:
    """Where this fails, run `python examples/make_terminal_picture.py`."""
    assert make_terminal_picture.PICTURE.read_text() == make_terminal_picture.drawn()
