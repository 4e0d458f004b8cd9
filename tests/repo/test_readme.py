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
# A file of source in backticks, by its path or the end of it.
SOURCE = re.compile(r"`((?:[\w.-]+/)*[\w.-]+\.(?:py|pyi|pyx|pxi|h|c|diff|toml|yml|txt))`")
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


def test_readme_says_what_maintenance_deletes_and_where_the_table_of_durability_is() -> None:
    assert "`store.run_maintenance()` removes" in README
    assert "nothing is deleted because of its age or size unless you ask for it" in " ".join(README.split())
    assert "](docs/durability.md#1-three-levels-of-durability)" in README


SKIPPING = (
    """`on_error="skip"` in Python, `mode=PERMISSIVE` in Spark and `--skip-damaged` of the command are one thing:"""
)


@pytest.mark.parametrize("page", ["docs/durability.md", "docs/scan.md", "docs/spark.md", "docs/cli.md"])
def test_page_says_that_the_names_of_reading_around_damage_are_one_thing(page: str) -> None:
    assert SKIPPING in " ".join((ROOT / page).read_text().split())


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


def named_sources() -> set[str]:
    """Return the ends of the paths of all files of the tree, at each folder: a/b.py and b.py."""
    trees = ("kstore", "pyspark_kstore", "tests", "bench", "examples", ".github")
    paths = [path.relative_to(ROOT) for tree in trees for path in (ROOT / tree).rglob("*.*")]
    paths += [path.relative_to(ROOT) for path in ROOT.glob("*.*")]
    return {"/".join(path.parts[start:]) for path in paths for start in range(len(path.parts))}


def test_source_files_that_a_page_names_exist() -> None:
    known = named_sources()
    wrong = []
    for page in LINKED:
        names = SOURCE.findall(page.read_text())
        wrong += [f"{page.relative_to(ROOT)}: {name}" for name in names if name not in known]
    assert wrong == []


@pytest.mark.parametrize(("page", "most_lines"), [("README.md", 220), ("docs/design.md", 300)])
def test_page_stays_short(page: str, most_lines: int) -> None:
    assert len((ROOT / page).read_text().splitlines()) <= most_lines


AREAS = (
    "Formats, Keys and values, Reading a log, Writing a log, Recovery, Stores, Producer, Consumer, Server, Exports, "
    "Spark, Command, Errors"
)


def test_first_version_of_the_changelog_is_one_list_by_area_of_what_there_is() -> None:
    version = (ROOT / "CHANGELOG.md").read_text().partition("\n## 0.1.0")[2].partition("\n## ")[0]
    introduction, *areas = version.split("\n### ")
    assert ", ".join(area.partition("\n")[0] for area in areas) == AREAS
    assert "\n- " not in introduction
    assert re.findall(r"^\*\*(.*?)\.\*\*", introduction, re.MULTILINE) == ["For you", "What breaks", "What it needs"]
    assert re.findall(r"no longer|any more|used to|\bfix(?:ed|es)\b", version) == []


def test_page_of_internals_begins_with_its_question_and_the_files_to_open() -> None:
    wrong = []
    for page in sorted((ROOT / "docs" / "internals").glob("*.md")):
        title, question, files = page.read_text().split("\n\n")[:3]
        if not (title.startswith("# ") and "?" in question and files.startswith("Open first: ")):
            wrong.append(page.name)
    assert wrong == []


# Methods of Kafka's classes that pages name.
METHODS_OF_KAFKA = {"LogSegment.recover"}


def test_public_names_that_a_page_names_exist() -> None:
    listed = (ROOT / "tests" / "repo" / "public_names.txt").read_text()
    classes = {name for name in re.findall(r"^class (\w+)", listed, re.M) if not name.endswith("Error")}
    known = {*re.findall(r"^(?:class )?([\w.]+)", listed, re.M), *METHODS_OF_KAFKA}
    wrong = []
    for page in LINKED:
        for code in re.findall(r"`([^`\n]+)`", page.read_text()):
            names = re.findall(r"(?<![\w./])kstore\.([A-Z]\w+)", code)
            members = re.findall(r"(?<![\w.])(([A-Z]\w+)\.[a-z_]+)\b", code)
            names += [member for member, kind in members if kind in classes]
            wrong += [f"{page.relative_to(ROOT)}: {name}" for name in names if name not in known]
    assert wrong == []


def test_class_of_kafka_is_where_the_page_says() -> None:
    rows = re.findall(r"^\|([^|]+)\|[^|]+\|([^|]+)\|([^|]+)\|$", (ROOT / "docs" / "kafka-classes.md").read_text(), re.M)
    assert len(rows) > 20
    wrong = []
    for kafka, names, files in rows[2:]:
        text = "\n".join((ROOT / path).read_text() for path in re.findall(r"`([^`]+)`", files))
        for name in re.findall(r"`(?:[\w.]+\.)?(\w+)`", names):
            if not re.search(rf"^\s*(?:async )?(?:class|def) {name}\b", text, re.MULTILINE):
                wrong.append(f"{kafka.strip()}: {name}")
    assert wrong == []


def test_design_links_each_page_of_internals() -> None:
    design = (ROOT / "docs" / "design.md").read_text()
    pages = [page.name for page in (ROOT / "docs" / "internals").glob("*.md")]
    assert pages
    assert [page for page in pages if f"(internals/{page})" not in design] == []


def test_make_targets_that_a_page_names_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    wrong = []
    for page in LINKED:
        named = re.findall(r"(?:^    |`)make ([a-z-]+)", page.read_text(), re.MULTILINE)
        wrong += [f"{page.relative_to(ROOT)}: make {name}" for name in named if name not in targets]
    assert wrong == []


def test_picture_is_what_the_command_shows() -> None:
    """Where this fails, run `python examples/make_terminal_picture.py`."""
    assert make_terminal_picture.PICTURE.read_text() == make_terminal_picture.drawn()


def test_recording_is_what_the_command_shows_and_ends_in_time() -> None:
    """Where this fails, run `python examples/make_terminal_picture.py`."""
    recording = make_terminal_picture.RECORDING.read_text()
    assert recording == make_terminal_picture.recorded()
    begins = [float(found) for found in re.findall(r"@keyframes row\d+\{0%,([\d.]+)%", recording)]
    assert begins == sorted(begins)
    assert begins[-1] < 100
