"""Goal: Records are appended without an offset or timestamp of the caller's; an append of something else says so.
Method: appends to a log whose Env has a clock of its own, read back; the messages of refused ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import MemoryRecordsBuilder, Record, WritableLog
from kstore._core import with_content
from kstore.config import LogConfig
from kstore.env import LocalEnv
from kstore.errors import InvalidTimestampError
from kstore.log.write.rules import LeaderRules
from kstore.types import NO_OFFSET, NO_TIMESTAMP

NOW_MS = 1_700_000_000_000


class ClockEnv(LocalEnv):
    def wall_clock_ms(self) -> int:
        return NOW_MS


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WritableLog]:
    with kstore.open_log(tmp_path / "t-0", "a", env=ClockEnv()) as log:
        yield log


def stored(log: WritableLog) -> list[tuple[int, int, Any, Any]]:
    return [(record.offset, record.timestamp_ms, record.key, record.value) for record in log.read()]


def test_records_without_an_offset_get_the_next_ones_and_the_current_time(log: WritableLog) -> None:
    log.append([Record(key=b"k", value=b"a"), Record(value=b"b")])
    log.append(iter([Record(value=b"c")]))
    assert stored(log) == [(0, NOW_MS, b"k", b"a"), (1, NOW_MS, None, b"b"), (2, NOW_MS, None, b"c")]


def test_one_record_needs_no_list(log: WritableLog) -> None:
    assert log.append(Record(value=b"a")).base_offset == 0
    assert stored(log) == [(0, NOW_MS, None, b"a")]


def test_record_of_the_current_time_keeps_its_headers(log: WritableLog) -> None:
    headers = (("h", b"1"), ("h", None))
    log.append(Record(value=b"a", headers=headers))
    assert [record.headers for record in log.read()] == [headers]


def test_timestamp_of_a_record_stays(log: WritableLog) -> None:
    log.append([Record(timestamp_ms=7, value=b"a"), Record(timestamp_ms=0, value=b"b")])
    assert [timestamp_ms for _, timestamp_ms, _, _ in stored(log)] == [7, 0]


def test_record_that_was_read_without_a_timestamp_is_copied_without_one(log: WritableLog) -> None:
    log.append([Record(offset=5, timestamp_ms=NO_TIMESTAMP, value=b"a")])
    assert stored(log) == [(0, NO_TIMESTAMP, None, b"a")]


def test_current_time_is_that_of_the_rules_and_not_of_the_record() -> None:
    packed = LeaderRules(LogConfig()).pack([Record(value=b"a")], now_ms=NOW_MS)
    assert [record.timestamp_ms for record in packed] == [NOW_MS]


def test_builder_gives_a_record_without_an_offset_the_next_one_and_no_timestamp() -> None:
    record = Record(value=b"a")
    assert (record.offset, record.timestamp_ms) == (NO_OFFSET, NO_TIMESTAMP)
    built = MemoryRecordsBuilder(base_offset=4).append(record).append(record, offset=9).append(record).build()
    assert [(one.offset, one.timestamp_ms) for one in built] == [(4, -1), (9, -1), (10, -1)]


def test_builder_still_refuses_an_offset_that_does_not_rise() -> None:
    builder = MemoryRecordsBuilder(base_offset=4)
    for offset in (-2, 3):
        with pytest.raises(ValueError, match=f"expected at least 4, got {offset}"):
            builder.append(Record(offset=offset, value=b"a"))


@pytest.mark.parametrize("name", ["key", "value"])
def test_text_for_a_key_or_value_says_which_and_to_encode_it(log: WritableLog, name: str) -> None:
    message = f"^{name} must be bytes or None, got str: encode it first"
    with pytest.raises(TypeError, match=f"^{name} must be bytes or None, got str 'text': encode it first"):
        log.append(with_content(Record(), **{"key": None, "value": None, name: "text"}))
    builder = MemoryRecordsBuilder()
    for call in (builder.append, builder.record_size, builder.has_room_for):
        with pytest.raises(TypeError, match=message):
            call(timestamp_ms=0, **{name: "text"})
    assert log.log_end_offset == builder.record_count == 0


def test_text_for_a_header_says_to_encode_it(log: WritableLog) -> None:
    with pytest.raises(TypeError, match="a header value must be bytes or None, got str: encode it first"):
        log.append(Record(headers=[("h", "text")]))  # type: ignore[list-item]


def test_number_for_a_value_is_refused_without_advice(log: WritableLog) -> None:
    decoded = with_content(Record(value=b"5"), None, 5)
    with pytest.raises(TypeError, match=r"^value must be bytes or None, got int 5$"):
        log.append(decoded)


@pytest.mark.parametrize("wrong", [b"v", {"value": b"v"}, (b"k", b"v"), None], ids=repr)
def test_what_is_no_record_is_refused_with_its_number(log: WritableLog, wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"record 1 of an append must be a kstore.Record, got {type(wrong).__name__}"):
        log.append([Record(value=b"a"), wrong])
    assert log.log_end_offset == 0


def test_record_far_ahead_of_the_clock_is_taken_unless_the_settings_say_how_far(tmp_path: Path) -> None:
    ahead = NOW_MS + 115 * 24 * 60 * 60 * 1000
    for limits, refused in ((LogConfig(), ()), (LogConfig(message_timestamp_after_max_ms=3_600_000), (ahead,))):
        with kstore.open_log(tmp_path / f"{len(refused)}-0", "a", limits, env=ClockEnv()) as log:
            for timestamp_ms in (NOW_MS + 3_600_000, ahead):
                if timestamp_ms not in refused:
                    log.append(Record(timestamp_ms=timestamp_ms, value=b"a"))
                    continue
                with pytest.raises(InvalidTimestampError) as caught:
                    log.append(Record(timestamp_ms=timestamp_ms, value=b"a"))
                assert caught.value.kafka_code == 32
            assert log.log_end_offset == 2 - len(refused)
