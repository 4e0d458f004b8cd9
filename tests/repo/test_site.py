"""Goal: the site has every page, and every public name with a line on each, no internals, no link that leads nowhere,
and asks no other host.
Method: make it, and read its pages; the checks on pages and classes that have faults."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kstore.cli.shell.words import words
from tests.repo.site.building import with_cells_as_on_github
from tests.repo.site.links import broken_links, requested_hosts
from tests.repo.site.pages import ROOT, place_of, with_links_of_the_site
from tests.repo.site.reference import in_parts, members_without_a_line
from tests.repo.site.searching import ranked

pytestmark = pytest.mark.build


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make docs` writes. It ends with an error for a warning, a name without a line or a link to nowhere."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "tests.repo.site", str(target)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def anchors(*pages: Path) -> set[str]:
    return {anchor for page in pages for anchor in re.findall(r'id="([^"]+)"', page.read_text())}


def test_reference_has_the_public_names_and_members_and_no_internals(site: Path) -> None:
    listed = (ROOT / "tests" / "repo" / "public_names.txt").read_text()
    names = set(re.findall(r"^(?:class )?([\w.]+)", listed, re.MULTILINE))
    rooms = {"aio", "serve", "testing"}
    reference = site / "reference"
    missing = {name for name in names if name.partition(".")[0] not in rooms}
    missing -= anchors(*reference.glob("kstore.*html"))
    for room in rooms:
        of_room = {name.removeprefix(f"{room}.") for name in names if name.startswith(f"{room}.")}
        missing |= of_room - anchors(reference / f"kstore.{room}.html")
    assert missing == set()
    internal = [name for name in anchors(*reference.glob("*.html")) if re.search(r"\._(?!_init__$)", name)]
    assert internal == []


def test_reference_has_each_command_and_option_of_the_words(site: Path) -> None:
    page = site / "reference" / "command.html"
    assert set(words().commands) <= anchors(page)
    text = page.read_text()
    options = {name for command in words().commands.values() for option in command.options for name in option.names}
    assert {name for name in options if f"<code>{name}</code>" not in text} == set()


def test_site_has_each_page_of_docs_and_what_it_says_is_in_the_search(site: Path) -> None:
    pages = list((ROOT / "docs").rglob("*.md"))
    missing = [path for path in pages if not (site / str(place_of(path))).with_suffix(".html").exists()]
    assert missing == []
    found = {item["location"] for item in json.loads((site / "search.json").read_text())["items"]}
    assert {"index.html", "format.html", "reference/kstore.Log.html#Log.read"} <= found


def test_of_equal_results_of_a_search_pages_for_users_come_before_the_reference_and_that_before_the_inside() -> None:
    titles = {
        "changelog.html#log": "Log",
        "internals/log.html": "Log",
        "reference/kstore.Log.html": "Log",
        "reference/command.html": "Log",
        "log.html": "Log",
    }
    items = [{"location": location, "title": title} for location, title in titles.items()]
    assert [item["location"] for item in ranked(items)] == [
        "reference/command.html",
        "log.html",
        "reference/kstore.Log.html",
        "changelog.html#log",
        "internals/log.html",
    ]


def test_search_knows_a_member_by_its_own_name_before_that_of_its_class(site: Path) -> None:
    index = json.loads((site / "search.json").read_text())
    titles = {item["location"]: item["title"] for item in index["items"]}
    assert titles["reference/kstore.Log.html#Log.read"] == "<code>read</code> (<code>Log</code>)"
    assert titles["reference/kstore.html#recover"] == "<code>recover</code>"
    assert json.loads((site / "search.js").read_text().removeprefix("var __index = ")) == index


def test_links_of_a_page_lead_to_the_site_where_it_has_what_they_name_and_else_to_the_project() -> None:
    text = (
        "[a](../README.md) [b](format.md#x) ![c](pictures/speed.svg) [d](../bench/README.md) [e](../examples/programs)"
    )
    assert with_links_of_the_site(text, ROOT / "docs" / "tutorials.md").split() == [
        "[a](index.md)",
        "[b](format.md#x)",
        "![c](pictures/speed.svg)",
        "[d](figures.md)",
        "[e](https://github.com/kstore-project/kstore/tree/main/examples/programs)",
    ]
    page = ROOT / "docs" / "tutorials" / "queue.md"
    assert with_links_of_the_site("[a](README.md) [b](../store.md)", page) == "[a](index.md) [b](../store.md)"
    code = "```text\n[a](../README.md)\n```"
    assert with_links_of_the_site(code, page) == code


def test_link_with_the_name_of_a_file_has_the_title_of_its_page_in_the_site() -> None:
    text = "[urls.md](urls.md#x) [docs/durability.md](durability.md) [README.md](../README.md) [a](urls.md)"
    assert with_links_of_the_site(text, ROOT / "docs" / "scan.md") == (
        "[Logs in object stores and HDFS](urls.md#x) [durability and recovery](durability.md) [kstore](index.md) "
        "[a](urls.md)"
    )
    assert with_links_of_the_site("[a.md](https://b.c/a.md)", ROOT / "docs" / "scan.md") == "[a.md](https://b.c/a.md)"


def test_cell_of_a_table_shows_a_bar_as_a_bar_and_an_empty_heading_is_a_cell() -> None:
    page = '<table><th class="c"></th><td><code>FILE\\|DIR</code></td></table><pre><code>grep "a\\|b"</code></pre>'
    assert with_cells_as_on_github(page) == (
        '<table><td class="c"></td><td><code>FILE|DIR</code></td></table><pre><code>grep "a\\|b"</code></pre>'
    )


def test_part_of_a_page_from_another_host_is_reported_and_a_link_to_it_is_not(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<link rel="canonical" href="https://b.c/"><link rel="stylesheet" href="https://b.c/s.css"><img src="own.png">'
        '<script src="//b.c/s.js"></script><a href="https://b.c/">'
    )
    (tmp_path / "a.css").write_text(
        "@import 'https://b.c/t.css'; p { background: url(own.png) url(https://b.c/p.png) }"
    )
    assert requested_hosts(tmp_path) == [
        "a.html: //b.c/s.js",
        "a.html: https://b.c/s.css",
        "a.css: https://b.c/t.css",
        "a.css: https://b.c/p.png",
    ]


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


def test_names_in_a_docstring_become_links_where_there_is_one() -> None:
    assert in_parts("See Log, a_b and `Log`.", {"Log": "[x](y)"}.get) == "See [x](y), a\\_b and [x](y)."
