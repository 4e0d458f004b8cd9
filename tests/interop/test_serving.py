"""Goal: the lanes of servers see each answer of kstore that is not a broker's.  Method: answers made by hand."""

from tests.interop.serving import Difference, compared

KNOWN = {"quotas": Difference("none", "UNSUPPORTED_VERSION", "kstore has no quotas")}


def test_equal_answers_and_known_differences_are_no_problem():
    broker, kstore = {"topic": 1, "quotas": "none"}, {"topic": 1, "quotas": "UNSUPPORTED_VERSION"}
    assert list(compared(broker, kstore, KNOWN)) == []


def test_another_answer_is_a_problem():
    assert list(compared({"topic": 1}, {"topic": 2})) == ["topic: broker 1, kstore 2"]


def test_a_question_that_one_server_was_not_asked_is_a_problem():
    assert list(compared({"a": 1}, {"b": 1})) == [
        "a: broker 1, kstore '(not asked)'",
        "b: broker '(not asked)', kstore 1",
    ]


def test_a_known_difference_that_is_another_one_is_a_problem():
    (problem,) = compared({"quotas": "none"}, {"quotas": "none"}, KNOWN)
    assert problem == "quotas, a known difference: broker 'none', kstore 'none'"


def test_a_known_difference_that_nobody_asked_for_is_a_problem():
    assert list(compared({}, {}, KNOWN)) == ["quotas: known, and never asked"]
