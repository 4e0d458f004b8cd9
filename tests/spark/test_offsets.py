"""Goal: starting and ending options give the right offset range of each partition, or a clear error.
Method: resolution against logs that are a start, an end and a list of timestamps; no Spark, no file."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from kstore.errors import OffsetOutOfRangeError
from kstore.log.damage import OnError
from kstore.log.reads import Isolation, LogEnd
from kstore.spark.offsets import check_partitions_listed, resolve_offset_range
from kstore.spark.options import parse_read_options
from kstore.types import OffsetAndTimestamp, TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


@dataclass
class TimedLog:
    """A log whose record at offset log_start_offset + n has the n-th timestamp."""

    log_start_offset: int = 0
    timestamps_ms: list[int] = field(default_factory=list)
    last_stable_offset: int = 0

    @property
    def log_end_offset(self) -> int:
        return self.log_start_offset + len(self.timestamps_ms)

    def offset_for_timestamp(self, timestamp_ms: int, *, on_error: OnError) -> OffsetAndTimestamp | None:
        assert on_error == "raise"
        for number, found_ms in enumerate(self.timestamps_ms):
            if found_ms >= timestamp_ms:
                return OffsetAndTimestamp(self.log_start_offset + number, found_ms)
        return None

    def _readable_end(self, *, isolation: Isolation, on_error: OnError) -> LogEnd:
        assert on_error == "raise"
        end = self.last_stable_offset if isolation == "read_committed" else self.log_end_offset
        return LogEnd(end, end)


def seconds(start: int, end: int) -> list[int]:
    return [second * 1000 for second in range(start, end)]


def resolve(logs: dict[TopicPartition, TimedLog], **options: str) -> list[tuple[int, int]]:
    parsed = parse_read_options({"path": "/data", **{name.replace("__", "."): text for name, text in options.items()}})
    check_partitions_listed(parsed, logs)
    ranges = [resolve_offset_range(topic_partition, logs[topic_partition], parsed) for topic_partition in sorted(logs)]
    assert [item.topic_partition for item in ranges] == sorted(logs)
    return [(item.start_offset, item.end_offset) for item in ranges]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, (40, 100), id="default"),
        pytest.param({"startingOffsets": '{"a":{"0":-2}}'}, (40, 100), id="earliest"),
        pytest.param({"startingOffsets": '{"a":{"0":40}}'}, (40, 100), id="log-start"),
        pytest.param({"startingOffsets": '{"a":{"0":99}}'}, (99, 100), id="last-offset"),
        pytest.param({"startingOffsets": '{"a":{"0":100}}'}, (100, 100), id="log-end"),
        pytest.param({"endingOffsets": '{"a":{"0":-1}}'}, (40, 100), id="latest"),
        pytest.param({"endingOffsets": '{"a":{"0":41}}'}, (40, 41), id="end-is-exclusive"),
        pytest.param({"endingOffsets": '{"a":{"0":40}}'}, (40, 40), id="ends-at-log-start"),
        pytest.param({"startingTimestamp": "0"}, (40, 100), id="time-before-all"),
        pytest.param({"startingTimestamp": "5000"}, (45, 100), id="time-of-a-record"),
        pytest.param({"startingTimestamp": "5001"}, (46, 100), id="time-between-records"),
        pytest.param({"startingTimestamp": "59000"}, (99, 100), id="time-of-the-last-record"),
        pytest.param({"startingTimestamp": "-1"}, (100, 100), id="time-minus-1-is-latest"),
        pytest.param({"startingTimestamp": "-2"}, (40, 100), id="time-minus-2-is-earliest"),
        pytest.param({"startingOffsetsByTimestamp": '{"a":{"0":5000}}'}, (45, 100), id="time-by-partition"),
        pytest.param({"endingTimestamp": "5000"}, (40, 45), id="end-time-is-exclusive"),
        pytest.param({"endingTimestamp": "59001"}, (40, 100), id="end-time-after-all"),
        pytest.param({"endingTimestamp": "-5"}, (40, 100), id="end-time-never"),
        pytest.param({"endingOffsetsByTimestamp": '{"a":{"0":5001}}'}, (40, 46), id="end-time-by-partition"),
        pytest.param({"startingTimestamp": "5000", "endingTimestamp": "5000"}, (45, 45), id="empty-time-window"),
        pytest.param(
            {"startingTimestamp": "60000", "startingOffsetsByTimestampStrategy": "Latest"}, (100, 100), id="strategy"
        ),
    ],
)
def test_options_resolve_to_a_range(options: dict[str, str], expected: tuple[int, int]) -> None:
    assert resolve({A0: TimedLog(40, seconds(0, 60))}, **options) == [expected]


def test_first_late_enough_offset_counts_when_times_go_back() -> None:
    logs = {A0: TimedLog(0, [5000, 1000, 9000, 2000, 9000])}
    assert resolve(logs, startingTimestamp="2000") == [(0, 5)]
    assert resolve(logs, startingTimestamp="6000") == [(2, 5)]
    assert resolve(logs, endingTimestamp="2000") == [(0, 0)]


def test_empty_log_gives_an_empty_range() -> None:
    assert resolve({A0: TimedLog(7)}) == [(7, 7)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(
            {"startingTimestamp": "60000"},
            "No offset matched from request of topic-partition a-0 and timestamp 60000",
            id="time-after-all",
        ),
        pytest.param({"startingTimestamp": "-5"}, "No offset matched .* a-0 and timestamp -5", id="negative-time"),
        pytest.param(
            {"startingOffsets": "{}"},
            "Partitions specified in startingOffsets don't match what are assigned; "
            "specified: none; assigned: a-0; use -1 for latest",
            id="no-partition",
        ),
        pytest.param(
            {"endingOffsets": '{"a":{"0":41,"1":5}}'}, "endingOffsets don't match .* specified: a-0, a-1", id="one-more"
        ),
        pytest.param({"startingOffsets": '{"b":{"0":1}}'}, "specified: b-0; assigned: a-0", id="other-topic"),
        pytest.param(
            {"endingOffsetsByTimestamp": '{"a":{"1":1}}'}, "endingOffsetsByTimestamp don't match", id="time-elsewhere"
        ),
    ],
)
def test_options_that_do_not_fit_the_partitions_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve({A0: TimedLog(40, seconds(0, 60))}, **options)


@pytest.mark.parametrize("loss", ["true", "false"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(
            {"startingOffsets": '{"a":{"0":1000}}'},
            "start offset 1000 .* end offset 100 for topic a partition 0",
            id="end",
        ),
        pytest.param(
            {"startingTimestamp": "9000", "endingTimestamp": "5000"}, "start offset 49 .* end offset 45", id="time"
        ),
    ],
)
def test_range_that_ends_before_it_starts_is_refused(options: dict[str, str], message: str, loss: str) -> None:
    with pytest.raises(OffsetOutOfRangeError, match=message):
        resolve({A0: TimedLog(40, seconds(0, 60))}, failOnDataLoss=loss, **options)


@pytest.mark.parametrize(
    ("options", "held"),
    [
        pytest.param({"startingOffsets": '{"a":{"0":39}}'}, (40, 100), id="one-below-log-start"),
        pytest.param({"endingOffsets": '{"a":{"0":101}}'}, (40, 100), id="one-beyond-log-end"),
        pytest.param({"startingOffsets": '{"a":{"0":0}}', "endingOffsets": '{"a":{"0":40}}'}, (40, 40), id="trimmed"),
        pytest.param(
            {"startingOffsets": '{"a":{"0":10}}', "endingOffsets": '{"a":{"0":20}}'}, (40, 40), id="before-it"
        ),
        pytest.param(
            {"startingOffsets": '{"a":{"0":200}}', "endingOffsets": '{"a":{"0":300}}'}, (100, 100), id="after"
        ),
        pytest.param({"endingOffsets": '{"a":{"0":20}}'}, (40, 40), id="earliest-to-before-log-start"),
    ],
)
def test_lost_offsets_fail_or_are_clipped(options: dict[str, str], held: tuple[int, int]) -> None:
    log = TimedLog(40, seconds(0, 60))
    assert resolve({A0: log}, failOnDataLoss="false", **options) == [held]
    with pytest.raises(
        OffsetOutOfRangeError, match=r"Some data may have been lost .* a-0 .*holds \[40, 100\)"
    ) as caught:
        resolve({A0: log}, **options)
    assert (caught.value.log_start_offset, caught.value.log_end_offset) == (40, 100)


def test_empty_range_outside_the_log_loses_nothing() -> None:
    options = {"startingOffsets": '{"a":{"0":10}}', "endingOffsets": '{"a":{"0":10}}'}
    assert resolve({A0: TimedLog(40, seconds(0, 60))}, **options) == [(40, 40)]


def test_each_partition_gets_its_own_value() -> None:
    logs = {A1: TimedLog(0, seconds(0, 100)), A0: TimedLog(0, seconds(0, 100))}
    options = {"startingOffsets": '{"a":{"1":20,"0":10}}', "endingTimestamp": "50000"}
    assert resolve(logs, **options) == [(10, 50), (20, 50)]


def test_latest_is_the_last_stable_offset_when_reading_committed() -> None:
    log = TimedLog(0, seconds(0, 100), last_stable_offset=60)
    assert resolve({A0: log}, kafka__isolation__level="read_committed") == [(0, 60)]
    assert resolve({A0: log}) == [(0, 100)]


@pytest.mark.parametrize("time", ["60000", "61000"], ids=["first-undecided", "later"])
def test_time_of_an_undecided_record_has_no_offset_when_reading_committed(time: str) -> None:
    log = TimedLog(0, seconds(0, 100), last_stable_offset=60)
    committed = {"kafka__isolation__level": "read_committed", "startingTimestamp": time}
    with pytest.raises(ValueError, match=f"No offset matched .* a-0 and timestamp {time}"):
        resolve({A0: log}, **committed)
    assert resolve({A0: log}, startingOffsetsByTimestampStrategy="latest", **committed) == [(60, 60)]
