"""The checks of the lane beside a live broker can fail."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from kstore.errors import CorruptRecordError, KStoreError, LogNotFoundError, LogReplacedError, OffsetOutOfRangeError
from tests.interop.broker import Client, Refusal
from tests.interop.live import may_meet
from tests.interop.live_reads import VALUE_BYTES, Answers, MisplacedError, label_of, origin_of


def value(offset: int, *, history: int = 1, fate: str = "plain") -> bytes:
    return (f"{label_of(history, fate)} {offset} ".encode() * VALUE_BYTES)[:VALUE_BYTES]


def answers(*, newest: int | None = 2, has_gaps: bool = False) -> Answers:
    return Answers(random.Random(1), newest=newest, has_gaps=has_gaps)


# Answers each line with a line of that case, and "fail" with an error, as BrokerClient.java does.
ANSWERING = """
import sys
for line in sys.stdin:
    print('{"case": "error", "error": "why"}' if line == "fail\\n" else '{"case": "%s"}' % line.strip())
    print('{"case": "done"}', flush=True)
"""


def test_command_after_a_refused_one_gets_its_own_answer() -> None:
    command = [sys.executable, "-c", ANSWERING]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        client = Client(process)
        with pytest.raises(Refusal, match="fail: why"):
            client.ask("fail")
        assert client.ask("one") == [{"case": "one"}]
        assert process.stdin is not None
        process.stdin.close()


def test_value_tells_its_history_and_fate() -> None:
    assert origin_of(7, value(7, history=3, fate="abort")) == (3, "abort")


@pytest.mark.parametrize(
    "torn",
    [
        b"",
        bytes(VALUE_BYTES),
        value(7)[:-1] + b"\0",
        value(7)[:100] + bytes(100),
        value(7)[:100] + value(8)[100:],
    ],
    ids=["empty", "zeros", "last byte", "half zeros", "halves of two"],
)
def test_value_that_nobody_sent_there_is_found(torn: bytes) -> None:
    with pytest.raises(AssertionError, match="no producer sent"):
        origin_of(7, torn)


def test_value_of_another_offset_is_found() -> None:
    with pytest.raises(MisplacedError, match="offset 7: the record of offset 8 of history 1") as caught:
        origin_of(7, value(8))
    assert caught.value.history == 1


def test_answers_of_one_log_are_of_one_history() -> None:
    seen = answers()
    seen.take([(0, value(0)), (1, value(1))])
    with pytest.raises(AssertionError, match="is of history 2, those before of 1"):
        seen.take([(2, value(2, history=2))])


def test_log_gives_nothing_of_a_history_that_began_after_it_was_opened() -> None:
    with pytest.raises(AssertionError, match="is of history 2, the Log of 1"):
        answers(newest=1).take([(0, value(0, history=2))])


def test_record_that_is_missing_or_comes_twice_is_found() -> None:
    answers().take([(0, value(0)), (2, value(2))])
    answers(has_gaps=True).take([(0, value(0)), (9, value(9))])
    with pytest.raises(AssertionError, match="no record from offset 1 to 2"):
        answers().take([(0, value(0)), (3, value(3))])
    with pytest.raises(AssertionError, match="offset 0 after 0"):
        answers().take([(0, value(0)), (0, value(0))])


def test_aborted_record_is_not_among_the_committed_ones() -> None:
    answers().take([(0, value(0, fate="abort"))])
    with pytest.raises(AssertionError, match="was aborted"):
        answers().take([(0, value(0, fate="abort"))], is_committed=True)


@pytest.mark.parametrize(
    ("error", "topic", "use", "is_expected"),
    [
        (LogReplacedError(""), "recreated", "read", True),
        (LogNotFoundError(""), "recreated", "read_path", True),
        (LogNotFoundError(""), "recreated", "read", False),
        (OffsetOutOfRangeError(""), "recreated", "fetch", False),
        (OffsetOutOfRangeError(""), "deleted", "fetch", True),
        (LogReplacedError(""), "deleted", "verify_all", False),
        (CorruptRecordError(""), "recreated", "read", False),
        (CorruptRecordError(""), "deleted", "read", False),
        (KStoreError(""), "deleted", "read", False),
        (ValueError(""), "recreated", "read", False),
    ],
)
def test_only_errors_that_say_what_the_broker_did_are_expected(
    error: Exception, topic: str, use: str, is_expected: bool
) -> None:
    assert may_meet(error, topic, use) is is_expected
