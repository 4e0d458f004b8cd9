"""Goal: the API reference has every public name with a line on each, no internals, and no link that leads nowhere.
Method: make it, and read its pages; the check of links and the one of lines on pages and classes that have faults."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repo.api_reference import broken_links, in_parts, members_without_a_line
from tests.repo.snippets import ROOT

pytestmark = pytest.mark.build


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make docs` writes. It ends with an error if a name has no line, or if a link leads nowhere."""
    target = tmp_path_factory.mktemp("reference")
    command = [sys.executable, "-m", "tests.repo.api_reference", str(target)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def anchors(page: Path) -> set[str]:
    return set(re.findall(r'id="([^"]+)"', page.read_text()))


def test_reference_has_the_public_names_and_members_and_no_internals(site: Path) -> None:
    listed = (ROOT / "tests" / "repo" / "public_names.txt").read_text()
    names = set(re.findall(r"^(?:class )?([\w.]+)", listed, re.MULTILINE))
    rooms = {"aio", "serve", "testing"}
    missing = {name for name in names if name.partition(".")[0] not in rooms} - anchors(site / "kstore.html")
    for room in rooms:
        of_room = {name.removeprefix(f"{room}.") for name in names if name.startswith(f"{room}.")}
        missing |= of_room - anchors(site / "kstore" / f"{room}.html")
    assert missing == set()
    pages = [site / "kstore.html", *(site / "kstore").glob("*.html")]
    assert {path.stem for path in pages} == {"kstore", "serializers", "spark", *rooms}
    internal = [name for page in pages for name in anchors(page) if re.search(r"(^|\.)_(?!_init__$)", name)]
    assert internal == []


def test_home_is_the_first_screen_of_readme(site: Path) -> None:
    home = (site / "index.html").read_text()
    assert "Read, verify, repair, write and serve the files of an Apache Kafka broker" in home
    assert "Look at a directory" not in home
    assert 'href="kstore/aio.html"' in home


def test_link_that_leads_nowhere_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<p id="here"><a href="#here"><a href="b.html#there"><a href="c.html">')
    project = "https://github.com/kstore-project/kstore/blob/main"
    (tmp_path / "b.html").write_text(
        f'<a href="a.html#gone"><a href="{project}/README.md"><a href="{project}/gone.md">'
    )
    assert broken_links(tmp_path) == [
        "a.html: b.html#there",
        "a.html: c.html",
        "b.html: a.html#gone",
        f"b.html: {project}/gone.md",
    ]


def test_member_that_nothing_says_anything_of_is_reported() -> None:
    class Base:
        """Attributes: told."""

    class Kind(Base):
        told: int
        silent: int = 5

        def told_by_itself(self) -> None:
            """Do nothing."""

        def says_nothing(self) -> None: ...

        @property
        def neither(self) -> int:
            return 5

    Base.__module__ = Kind.__module__ = "kstore.made_up"
    assert list(members_without_a_line(Kind)) == ["neither", "says_nothing", "silent"]


def test_parts_of_a_docstring_are_paragraphs_and_its_arguments_a_list() -> None:
    text = "Do it for *args.\n\nArgs:\n    one, two: some `a * b`.\n    three: more.\nRaises: it.  Cost: much."
    assert in_parts(text) == (
        "Do it for \\*args.\n\n\n\n**Args:** \n- one, two: some `a * b`.\n\n- three: more.\n\n\n**Raises:** it."
        "\n\n**Cost:** much."
    )
