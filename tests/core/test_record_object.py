"""Goal: a Record says where and when it is from, refuses what no log can hold, and is copied with changes.
Method: records made by hand and read from a log; datetimes on both sides of a millisecond."""

from __future__ import annotations

import copy
import pickle
import sys
from datetime import datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any

import pytest

from kstore import Record, TopicPartition, open_log
from kstore.types import datetime_of, time_ms

UTC = timezone.utc
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EAST = timezone(timedelta(hours=2, minutes=30))


def test_record_that_was_read_says_its_topic_partition_and_time(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-3", "a") as log:
        log.append(Record(timestamp_ms=1_714_564_800_123, value=b"v"))
        (record,) = log
    assert (record.topic, record.partition) == ("t", 3)
    assert record.timestamp == datetime(2024, 5, 1, 12, 0, 0, 123_000, tzinfo=UTC)
    assert record.timestamp.tzinfo is UTC


def test_record_that_was_made_has_no_place_and_no_time() -> None:
    record = Record(value=b"v")
    assert (record.topic, record.partition, record.timestamp) == (None, None, None)
    assert Record(timestamp_ms=0).timestamp == EPOCH
    assert Record(topic_partition=TopicPartition("t", 0)).partition == 0


@pytest.mark.parametrize("timestamp_ms", [2**63 - 1, -(2**63), 253_402_300_800_000])
def test_time_that_no_datetime_can_hold_is_none(timestamp_ms: int) -> None:
    assert Record(timestamp_ms=timestamp_ms).timestamp is None
    assert datetime_of(253_402_300_799_999) == datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)


def test_datetime_of_a_record_is_rounded_down_and_that_of_a_bound_up() -> None:
    time = EPOCH + timedelta(milliseconds=5, microseconds=1)
    for given in (time, time.astimezone(EAST)):
        assert Record(timestamp_ms=given).timestamp_ms == 5
        assert time_ms("since", given) == 6
    assert time_ms("since", time.replace(microsecond=5000)) == 5
    before = EPOCH - timedelta(microseconds=1)
    assert (Record(timestamp_ms=before).timestamp_ms, time_ms("since", before)) == (-1, 0)


class _NoOffset(tzinfo):
    """A time zone that knows no offset, as tzinfo allows: such a datetime is naive."""

    def utcoffset(self, when: datetime | None, /) -> None:  # noqa: ARG002
        return None


@pytest.mark.parametrize("naive", [datetime(2024, 5, 1), datetime(2024, 5, 1, tzinfo=_NoOffset())])
def test_datetime_without_a_zone_is_refused(naive: datetime) -> None:
    for call in (lambda: Record(timestamp_ms=naive), lambda: time_ms("timestamp_ms", naive)):
        with pytest.raises(
            ValueError, match="timestamp_ms must have a time zone, got the datetime 2024-05-01T00:00:00"
        ):
            call()


@pytest.mark.parametrize("wrong", ["5", 5.5, True])
def test_time_of_another_type_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="timestamp_ms must be an int"):
        Record(timestamp_ms=wrong)


@pytest.mark.parametrize("name", ["key", "value"])
def test_key_and_value_that_no_log_can_hold_are_refused_where_the_record_is_made(name: str) -> None:
    made: Any = Record
    with pytest.raises(TypeError, match=f"^{name} must be bytes or None, got str 'x': encode it first, or send it"):
        made(**{name: "x"})
    with pytest.raises(TypeError, match=f"^{name} must be bytes or None, got int 5$"):
        made(**{name: 5})
    with pytest.raises(TypeError, match=rf"^{name} must be bytes or None, got list \[0, 1.{{35}}\.\.\.$"):
        made(**{name: list(range(99))})
    for buffer in (b"", bytearray(b"x"), memoryview(b"x"), None):
        assert getattr(made(**{name: buffer}), name) == buffer


def test_decoded_record_is_copied_pickled_and_compared(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0", "a") as log:
        log.append(Record(timestamp_ms=7, key=b"k", value=b"v", headers=[("h", None)]))
        (record,) = log.read(key_deserializer="string", value_deserializer="string")
    assert (record.key, record.value, record.timestamp_ms, record.topic) == ("k", "v", 7, "t")
    for other in (copy.copy(record), copy.deepcopy(record), pickle.loads(pickle.dumps(record))):
        assert other == record
        assert hash(other) == hash(record)
        assert other.headers == (("h", None),)


def test_changed_copy_has_what_is_given_and_the_rest_of_the_record(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0", "a") as log:
        log.append(Record(timestamp_ms=7, key=b"k", value=b"v", headers=[("h", b"1")]))
        (record,) = log.read(key_deserializer="string", value_deserializer="string")
    changed = record.__replace__(offset=9, value=b"w", timestamp_ms=EPOCH)
    assert (changed.offset, changed.key, changed.value, changed.timestamp_ms) == (9, "k", b"w", 0)
    assert (changed.headers, changed.topic_partition) == (record.headers, record.topic_partition)
    assert changed.__replace__(value=None).value is None
    assert record.__replace__() == record
    with pytest.raises(TypeError, match="a Record has no field 'topic'; it has offset, timestamp_ms"):
        record.__replace__(topic="t")
    with pytest.raises(TypeError, match="value must be bytes or None, got str"):
        record.__replace__(value="w")
    if sys.version_info >= (3, 13):
        assert copy.replace(record, offset=9).offset == 9


def test_record_may_be_written_with_its_types() -> None:
    assert Record[str, int].__origin__ is Record  # type: ignore[attr-defined]
