"""Goal: a test over many cases tries each of them, and its report names every one that failed.
Method: small tests made by `over`, called as pytest calls them."""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import pytest

from tests.conftest import pytest_pycollect_makeitem
from tests.making.collecting import MOST_SHOWN, over

CASES = ["set/one", "set/two", "other/three"]


def groups_of(test):
    (mark,) = [mark for mark in test.pytestmark if mark.args[0] == "group"]
    return mark.args[1]


def test_each_case_of_a_group_is_tried_whatever_others_do():
    tried = []

    @over("case", CASES)
    def check(case):
        tried.append(case)
        assert case == "set/two", "position 7"

    with pytest.raises(pytest.fail.Exception) as caught:
        check(group="set")
    assert tried == ["set/one", "set/two"]
    first, *rest = str(caught.value).splitlines()
    assert first == "1 of 2 failed: set/one"
    assert any("test_collecting.py" in line and 'assert case == "set/two"' in line for line in rest)
    assert any("position 7" in line for line in rest)


def test_every_failure_is_named_up_to_a_limit():
    @over("case", list(range(MOST_SHOWN + 5)), by=lambda number: "all" if number >= 0 else "none")
    def check(case):
        raise ValueError(f"found {case}")

    with pytest.raises(pytest.fail.Exception) as caught:
        check(group="all")
    text = str(caught.value)
    assert text.startswith(f"{MOST_SHOWN + 5} of {MOST_SHOWN + 5} failed: 0, 1, ")
    assert text.count("    found ") == MOST_SHOWN
    assert text.endswith("... and 5 more")


@pytest.mark.parametrize("outcome", [pytest.fail, pytest.skip])
def test_an_outcome_of_pytest_inside_of_a_case_is_a_failure(outcome):
    @over("case", CASES)
    def check(case):
        outcome("so it ends")

    with pytest.raises(pytest.fail.Exception, match="2 of 2 failed") as caught:
        check(group="set")
    assert "so it ends" in str(caught.value)


def test_interrupt_ends_the_group():
    @over("case", CASES)
    def check(case):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check(group="set")


def test_case_of_several_parts_gets_the_fixtures_of_the_test_and_a_directory_of_its_own(tmp_path):
    seen = []

    @over("name, number", [("one", 1), ("two", 2)], by=lambda case: "both" if case else "")
    def check(name, tmp_path, number, other):
        assert not list(tmp_path.iterdir())
        (tmp_path / "file").touch()
        seen.append((name, number, other))

    assert list(inspect.signature(check).parameters) == ["group", "tmp_path", "other"]
    check(group="both", tmp_path=tmp_path, other=3)
    assert seen == [("one", 1, 3), ("two", 2, 3)]


def test_groups_are_the_tests_and_those_of_the_long_lane_are_marked():
    @over("case", CASES, long=["other"])
    def check(case):
        pass

    plain, marked = groups_of(check)
    assert plain == "set"
    assert (marked.values, [mark.name for mark in marked.marks]) == (("other",), ["long"])


@pytest.mark.long
def of_the_long_lane() -> None:
    pass


@pytest.mark.parametrize(
    ("expression", "is_made"),
    [("not long", False), ("not spark and not long", False), ("long", True), ("long or not long", True), ("", True)],
)
def test_tests_of_the_long_lane_are_made_only_where_they_are_not_left_out(expression, is_made):
    collector = SimpleNamespace(config=SimpleNamespace(option=SimpleNamespace(markexpr=expression)))
    assert (pytest_pycollect_makeitem(collector, of_the_long_lane) is None) is is_made
    assert pytest_pycollect_makeitem(collector, groups_of) is None
