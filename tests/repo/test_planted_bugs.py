"""Goal: the lists of planted bugs fit the sources, so that `make planted` plants what they say.
Method: each bug is placed in memory; entries that are wrong are refused; nothing is built or run."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.making.collecting import over
from tests.planted.__main__ import verdict_of
from tests.planted.bugs import PlantedBug, Sources, bugs_of, parsed, rooms

pytestmark = pytest.mark.build

ROOT = Path(__file__).resolve().parents[2]
BUGS = [bug for room in rooms() for bug in bugs_of(room)]
ENTRY = """
# two comes after one
tests: tests/repo/test_planted_bugs.py
 def count():
-    return [one, two]
+    return [two, one]
"""


def test_every_room_has_planted_bugs() -> None:
    assert {"arrow", "cli", "core", "log", "producer", "record", "spark", "values"} <= set(rooms())
    assert len(BUGS) >= 60


def test_bugs_of_a_room_have_names_of_their_own() -> None:
    names = [(bug.room, bug.name) for bug in BUGS]
    assert len(set(names)) == len(names)


@pytest.fixture(scope="module")
def sources() -> Sources:
    return Sources(ROOT)


@over("bug", BUGS, by=lambda bug: bug.room, label=lambda bug: bug.name)
def test_planted_bug_has_one_place_and_tests_that_are_there(bug: PlantedBug, sources: Sources) -> None:
    planting = bug.place_in(sources)
    assert planting.text != (ROOT / planting.path).read_text()
    if not planting.is_compiled:
        ast.parse(planting.text)
    for test in bug.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).is_file(), test
        assert not name or f"def {name.split('[')[0]}(" in (ROOT / path).read_text(), test


def tree_with(tmp_path: Path, **files: str) -> Path:
    for name in ("kstore", "pyspark_kstore"):
        (tmp_path / name).mkdir()
    for name, text in files.items():
        (tmp_path / "kstore" / f"{name}.py").write_text(text)
    return tmp_path


def test_bug_is_planted_wherever_its_lines_are_and_however_far_in(tmp_path: Path) -> None:
    tree = tree_with(tmp_path, other="one = 1\n", moved="class Moved:\n    def count():\n        return [one, two]\n")
    planting = parsed("room", ENTRY)[0].place_in(Sources(tree))
    assert (planting.path, planting.line_number) == (Path("kstore/moved.py"), 2)
    assert planting.text == "class Moved:\n    def count():\n        return [two, one]\n"


@pytest.mark.parametrize("count", [0, 2])
def test_lines_that_do_not_occur_once_are_refused(tmp_path: Path, count: int) -> None:
    tree = tree_with(tmp_path, a="def count():\n    return [one, two]\n" * count)
    with pytest.raises(LookupError, match="expected its lines exactly once"):
        parsed("room", ENTRY)[0].place_in(Sources(tree))


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(ENTRY.replace("tests:", "test"), id="no-tests"),
        pytest.param(ENTRY.replace("\n-", "\n "), id="nothing-goes"),
        pytest.param(ENTRY.replace("\n-", "\n*"), id="other-mark"),
    ],
)
def test_entry_that_is_not_whole_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="room: two comes after one: expected"):
        parsed("room", entry)


VERDICTS = [
    pytest.param(1, "FAILED tests/a.py::test_b[c] - assert", ("caught", "tests/a.py::test_b[c]"), id="failed-test"),
    pytest.param(0, "2 passed", ("survived", ""), id="passed"),
    pytest.param(None, "", ("caught", "its tests never ended"), id="hung"),
    pytest.param(-11, "", ("caught", "the interpreter died of signal 11"), id="crashed"),
]


@pytest.mark.parametrize(("status", "output", "expected"), VERDICTS)
def test_verdict_is_what_the_tests_say(status: int | None, output: str, expected: tuple[str, str]) -> None:
    assert verdict_of(status, output) == expected


@pytest.mark.parametrize(
    ("status", "output"), [(4, "no such file"), (5, "no tests ran"), (2, "ERROR tests/a.py - SyntaxError"), (1, "")]
)
def test_tests_that_did_not_run_catch_nothing(status: int, output: str) -> None:
    assert verdict_of(status, output)[0] == "unusable"
