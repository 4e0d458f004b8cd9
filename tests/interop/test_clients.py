"""Goal: the lanes of clients cannot miss a difference, nor an entry of a list that is no longer needed.

Method: answers and verdicts that are right but for one go through the comparisons; no client is run.
"""

from __future__ import annotations

import pytest

from tests.interop.clients import kinds, lane, librdkafka
from tests.interop.clients.librdkafka import Listed

KIND = kinds.KINDS[0]
ANSWERS = {"create": None, "read": [[0, "key"]], "refused": ["error", 36]}
LISTED = """
struct test tests[] = {
    _TEST(0001_plain, 0),
    _TEST(0002_mock, TEST_F_LOCAL),
    _TEST(0003_network, TEST_F_SOCKEM, TEST_BRKVER(0, 9, 0, 0)),
    _TEST(0004_other, 0, TEST_BRKVER(0, 9, 0, 0), .scenario = "noautocreate"),
#if WITH_SOCKEM
    _TEST(0005_of_windows, TEST_F_KNOWN_ISSUE_WIN32),
#endif
    _TEST(0006_issue, TEST_F_KNOWN_ISSUE, TEST_BRKVER(0, 9, 0, 0), .extra = "why"),
    _TEST(0097_ssl_verify, 0),
    _TEST(0170_share, 0, TEST_BRKVER(4, 2, 0, 0)),
    _TEST(0103_transactions, 0, .scenario = "default,ak23"),
    {NULL}};
"""


def test_equal_answers_have_no_problem() -> None:
    assert list(lane.differing(KIND, dict(ANSWERS), ANSWERS)) == []


@pytest.mark.parametrize("name", ANSWERS)
def test_each_answer_counts(name: str) -> None:
    assert len(list(lane.differing(KIND, {**ANSWERS, name: "other"}, ANSWERS))) == 1


def test_a_step_that_only_one_side_took_is_a_problem() -> None:
    assert len(list(lane.differing(KIND, {**ANSWERS, "more": 1}, ANSWERS))) == 1
    assert len(list(lane.differing(KIND, ANSWERS, {**ANSWERS, "more": 1}))) == 1


def test_a_known_difference_is_none_until_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kinds.DIFFERENCES, (KIND.name, "read"), "why")
    assert list(lane.differing(KIND, {**ANSWERS, "read": []}, ANSWERS)) == []
    (problem,) = lane.differing(KIND, dict(ANSWERS), ANSWERS)
    assert "is in the list of differences" in problem


def test_tests_that_concern_one_broker_are_taken_from_the_runners_list(tmp_path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test.c").write_text(LISTED)
    assert librdkafka.tests_of(tmp_path) == [
        Listed("0001_plain", "default"),
        Listed("0003_network", "default"),
        Listed("0004_other", "noautocreate"),
        Listed("0005_of_windows", "default"),
        Listed("0103_transactions", "default"),
    ]


def test_a_test_that_fails_ends_not_or_needs_its_entry_no_more_is_a_problem() -> None:
    tests = [Listed(f"{number:04}_test", "default") for number in range(100)]
    states = {test.name: "PASSED" for test in tests}
    assert list(librdkafka.unlike_the_lists(tests, states)) == []
    (problem,) = librdkafka.unlike_the_lists(tests, {**states, tests[0].name: "FAILED"})
    assert "FAILED" in problem
    del states[tests[1].name]
    (problem,) = librdkafka.unlike_the_lists(tests, states)
    assert "did not end" in problem
    listed = Listed(next(iter(librdkafka.MAY_SKIP)), "default")
    assert list(librdkafka.unlike_the_lists([listed], {listed.name: "SKIPPED"})) == []
    assert len(list(librdkafka.unlike_the_lists([listed], {listed.name: "PASSED"}))) == 1


def test_too_many_tests_that_fail_are_told_once_more() -> None:
    tests = [Listed(f"{number:04}_test", "default") for number in range(64)]
    states = {test.name: "FAILED" if number < 3 else "PASSED" for number, test in enumerate(tests)}
    assert list(librdkafka.unlike_the_lists(tests, states))[-1] == "only 61 of 64 tests passed"
