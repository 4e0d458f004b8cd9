"""Goal: a log takes appends as a broker's does: offsets, order of checks, rolls, index files, marks, clean closing.
Method: batches of the reference codec appended; files compared with those that the reference lays out for a broker."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.config import LogConfig
from kstore.env import LocalEnv
from kstore.errors import (
    CorruptRecordError,
    InvalidRecordError,
    KStoreError,
    LogClosedError,
    LogLockedError,
    LogNotFoundError,
    OffsetsOutOfOrderError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
    RecordValidationError,
    StorageError,
    UnexpectedAppendOffsetError,
)
from kstore.log.write.writable_log import WritableLog
from kstore.record import MemoryRecords, MemoryRecordsBuilder, Record, RecordBatch
from kstore.record.builder import with_records
from kstore.record.validation import AppendOrigin
from kstore.store.opening import open_log
from kstore.store.store import open_store
from kstore.types import OffsetAndTimestamp, TimestampType
from tests.making.batches import (
    FIRST_TIMESTAMP_MS,
    Layout,
    batch,
    batches,
    flip_bit,
    index_entries,
    patch_header,
    record,
    write_partition,
)
from tests.making.messages import packed_entry
from tests.making.record_files import failing
from tests.reference.codec import write_batch, write_offset_index, write_time_index

Opener = Callable[..., WritableLog]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "t-0"


def sent(count: int, *, value_bytes: int = 0, **options: Any) -> MemoryRecords:
    """A batch as a producer sends it: offsets from 0."""
    return MemoryRecords(batch(0, count, value_bytes=value_bytes, **options))


def fetched(data: Sequence[bytes]) -> MemoryRecords:
    return MemoryRecords(b"".join(data))


def offsets(log: WritableLog, start_offset: int | None = None) -> list[int]:
    return [record.offset for record in log.read(start_offset)]


# Appends of a leader


def test_directory_is_made_when_its_parent_exists(directory: Path) -> None:
    with open_log(directory, "a") as log:
        assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (0, 0, 1)
    assert (directory / "00000000000000000000.log").read_bytes() == b""


def test_directory_without_a_parent_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogNotFoundError, match=f"no such directory: {tmp_path / 'missing'}"):
        open_log(tmp_path / "missing" / "t-0", "a")


def test_file_in_place_of_the_directory_is_refused(directory: Path) -> None:
    directory.touch()
    with pytest.raises(LogNotFoundError, match="not a directory"):
        open_log(directory, "a")
    assert list(directory.parent.iterdir()) == [directory]


def test_name_that_tells_no_partition_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogNotFoundError):
        open_log(tmp_path / "nopartition", "a")


def test_leader_gives_offsets_and_epoch_to_batches(directory: Path) -> None:
    with open_log(directory, "a") as log:
        first = log.append(sent(3))
        second = log.append(sent(2), partition_leader_epoch=7)
        assert (first.base_offset, first.last_offset, second.base_offset, second.last_offset) == (0, 2, 3, 4)
        assert [(one.base_offset, one.partition_leader_epoch) for one in log.batches()] == [(0, 0), (3, 7)]
        assert (log.log_end_offset, log.high_watermark, log.last_stable_offset) == (5, 5, 5)
        assert [tuple(entry) for entry in log.leader_epochs.entries] == [(0, 0), (7, 3)]


def test_appended_records_come_back_equal(directory: Path) -> None:
    with open_log(directory, "a") as log:
        for _ in range(3):
            log.append(sent(4, value_bytes=50))
        expected = [
            (record.timestamp_ms, record.key, record.value, record.headers)
            for _ in range(3)
            for record in MemoryRecords(batch(0, 4, value_bytes=50))
        ]
        found = list(log.read())
        assert [(one.timestamp_ms, one.key, one.value, one.headers) for one in found] == expected
        assert [one.offset for one in found] == list(range(12))


def test_records_given_stay_as_they_are(directory: Path) -> None:
    data = bytearray(batch(0, 3))
    before = bytes(data)
    with open_log(directory, "a") as log:
        log.append(sent(2))
        log.append(MemoryRecords(data))
    assert bytes(data) == before


def test_record_objects_become_one_batch_in_the_codec_of_the_log(directory: Path) -> None:
    records = [Record(offset=0, timestamp_ms=5 + n, key=b"k", value=b"v%d" % n) for n in range(3)]
    with open_log(directory, "a", LogConfig(compression_type="gzip")) as log:
        info = log.append(records)
        assert (info.base_offset, info.last_offset, info.max_timestamp_ms) == (0, 2, 7)
        assert [one.compression.name for one in log.batches()] == ["GZIP"]
        assert [one.value for one in log.read()] == [b"v0", b"v1", b"v2"]


def test_no_record_at_all_is_refused(directory: Path) -> None:
    with open_log(directory, "a") as log, pytest.raises(ValueError, match="at least one record"):
        log.append([])


def test_batch_of_another_log_is_appended_under_new_offsets(directory: Path) -> None:
    with open_log(directory, "a") as log:
        log.append(RecordBatch(batch(100, 3)))
        assert offsets(log) == [0, 1, 2]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_appended(directory: Path, codec: str) -> None:
    records = [Record(offset=0, timestamp_ms=n, key=None, value=b"x" * 100) for n in range(5)]
    with open_log(directory, "a") as log:
        log.append(with_records(records, compression=codec))
        info = log.append(with_records(records, compression=codec))
        assert (info.base_offset, info.last_offset, info.max_timestamp_ms) == (5, 9, 4)
        assert [one.value for one in log.read()] == [b"x" * 100] * 10


@pytest.mark.parametrize("magic", [0, 1])
def test_log_of_messages_takes_messages(directory: Path, magic: int) -> None:
    records = [Record(offset=0, timestamp_ms=n, key=None, value=b"x") for n in range(4)]
    with open_log(directory, "a", LogConfig(message_format_magic=magic)) as log:
        log.append(with_records(records, magic=magic))
        log.append(with_records(records, magic=magic, compression="gzip"))
        assert offsets(log) == list(range(8))
        assert log.leader_epochs.entries == ()


def test_log_append_time_is_given_to_all_records(directory: Path) -> None:
    with open_log(directory, "a", LogConfig(message_timestamp_type="LogAppendTime")) as log:
        info = log.append(sent(3))
        assert info.log_append_time_ms == info.max_timestamp_ms > FIRST_TIMESTAMP_MS
        found = list(log.read())
        assert {one.timestamp_ms for one in found} == {info.log_append_time_ms}
        assert {one.timestamp_type for one in found} == {TimestampType.LOG_APPEND_TIME}


def test_largest_timestamp_that_the_header_hides_is_found_and_written(directory: Path) -> None:
    with open_log(directory, "a") as log:
        info = log.append(MemoryRecords(patch_header(batch(0, 3), max_timestamp_ms=5)))
        assert info.max_timestamp_ms == FIRST_TIMESTAMP_MS + 2
        (found,) = log.batches()
        found.verify()
        assert found.max_timestamp_ms == FIRST_TIMESTAMP_MS + 2


REFUSED = {
    "wrong CRC": (CorruptRecordError, lambda: MemoryRecords(_flipped(batch(0, 3)))),
    "offsets not from 0": (InvalidRecordError, lambda: MemoryRecords(batch(5, 3))),
    "two V2 batches": (InvalidRecordError, lambda: fetched(batches(0, 2))),
    "larger than max_message_bytes": (RecordTooLargeError, lambda: sent(1, value_bytes=3000)),
    "without a key in a compacted topic": (RecordValidationError, lambda: _keyless()),
}


def _flipped(data: bytes) -> bytes:
    changed = bytearray(data)
    flip_bit(changed, 70, bit=3)
    return bytes(changed)


def _keyless() -> MemoryRecords:
    return MemoryRecordsBuilder().append(timestamp_ms=1, key=None, value=b"v").build()


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_refused_append_changes_nothing(
    directory: Path, case: tuple[type[KStoreError], Callable[[], MemoryRecords]]
) -> None:
    kind, make = case
    with open_log(directory, "a", LogConfig(max_message_bytes=2000, cleanup_policy="compact")) as log:
        log.append(sent(2))
        with pytest.raises(kind):
            log.append(make(), partition_leader_epoch=9)
        assert (log.log_end_offset, offsets(log)) == (2, [0, 1])
        assert [tuple(entry) for entry in log.leader_epochs.entries] == [(0, 0)]
        log.append(sent(1))
        assert offsets(log) == [0, 1, 2]


def test_append_larger_than_a_segment_is_refused(directory: Path) -> None:
    with open_log(directory, "a", LogConfig(segment_bytes=500)) as log:
        with pytest.raises(RecordBatchTooLargeError):
            log.append(sent(1, value_bytes=600))
        assert len(log.segments) == 1


def test_append_of_exactly_a_segment_is_taken(directory: Path) -> None:
    one = sent(1, value_bytes=600)
    with open_log(directory, "a", LogConfig(segment_bytes=one.size_in_bytes)) as log:
        for _ in range(2):
            log.append(one)
        assert [segment.size_in_bytes for segment in log.segments] == [one.size_in_bytes] * 2


def test_batch_that_is_too_large_only_in_the_codec_of_the_topic_is_refused(directory: Path) -> None:
    record = Record(offset=0, timestamp_ms=FIRST_TIMESTAMP_MS, key=None, value=bytes(5000))
    small = with_records([record], compression="gzip")
    assert small.size_in_bytes < 2000
    with open_log(directory, "a", LogConfig(max_message_bytes=2000, compression_type="uncompressed")) as log:
        with pytest.raises(RecordTooLargeError, match="expected at most 2000 bytes"):
            log.append(small)
        assert log.log_end_offset == 0


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_that_a_follower_fetches_forget_the_leader_epochs(directory: Path, magic: int) -> None:
    message = packed_entry(b"v", b"k", offset=5, magic=magic)
    with open_log(directory, "a") as log:
        log.append_as_follower(fetched(batches(0, 5, partition_leader_epoch=4)))
        assert [tuple(entry) for entry in log.leader_epochs.entries] == [(4, 0)]
        log.append_as_follower(MemoryRecords(message))
        assert log.leader_epochs.entries == ()
        assert offsets(log) == list(range(6))


def test_unknown_ack_is_refused_before_anything_is_written(directory: Path) -> None:
    with open_log(directory, "a") as log:
        with pytest.raises(ValueError, match="ack must be one of"):
            log.append(sent(1), ack="durable")  # type: ignore[arg-type]
        assert log.log_end_offset == 0


def test_unknown_origin_is_refused_before_anything_is_written(directory: Path) -> None:
    with open_log(directory, "a") as log:
        with pytest.raises(ValueError, match="not a valid AppendOrigin"):
            log.append(sent(1), origin="broker")
        assert log.log_end_offset == 0


# Appends of a follower


def test_follower_keeps_offsets_and_epochs_with_their_gaps(directory: Path) -> None:
    data = [
        batch(5, 3, partition_leader_epoch=1),
        batch(20, 2, partition_leader_epoch=1),
        batch(30, 1, partition_leader_epoch=4),
    ]
    with open_log(directory, "a") as log:
        info = log.append_as_follower(fetched(data))
        assert (info.base_offset, info.last_offset, info.size_in_bytes) == (5, 30, sum(map(len, data)))
        assert offsets(log, 0) == [5, 6, 7, 20, 21, 30]
        assert [tuple(entry) for entry in log.leader_epochs.entries] == [(1, 5), (4, 30)]
    assert (directory / "00000000000000000000.log").read_bytes() == b"".join(data)


@pytest.mark.parametrize("rolls", [False, True])
def test_log_that_a_truncation_ended_after_its_last_batch_is_searched_by_time(directory: Path, rolls: bool) -> None:
    first, second = batch(0, 3), batch(10, 2)
    with open_log(directory, "a") as log:
        log.append_as_follower(fetched([first, second]))
        log.truncate_to(8)
        if rolls:
            log.roll()
        latest = max(record.timestamp_ms for record in log.read())
        assert log.log_end_offset == 8
        assert log.offset_for_timestamp(latest + 1) is None
        assert log.offset_for_timestamp(kstore.MAX_TIMESTAMP) == (2, latest)
        log.append_as_follower(fetched([second]))
        found = log.offset_for_timestamp(latest + 1)
        assert found is not None
        assert found.offset == 10


def test_roll_begins_a_segment_at_the_log_end_that_a_truncation_left_above_an_empty_one(directory: Path) -> None:
    with open_log(directory, "a") as log:
        log.append_as_follower(fetched([batch(0, 3)]))
        assert [log.roll(), log.roll()] == [3, 3]
        log.append_as_follower(fetched([batch(10, 2)]))
        log.truncate_to(8)
        assert [log.roll(), log.roll()] == [8, 8]
    with open_log(directory, "a") as log:
        assert log.log_end_offset == 8


def test_incomplete_last_batch_of_a_fetch_is_left_out(directory: Path) -> None:
    data = batches(0, 3)
    with open_log(directory, "a") as log:
        log.append_as_follower(MemoryRecords(b"".join(data)[:-1]))
        assert offsets(log) == [0, 1]
        assert log.append_as_follower(MemoryRecords(data[2][:20])).size_in_bytes == 0
        assert log.append_as_follower(MemoryRecords(b"")).base_offset == -1


@pytest.mark.parametrize(
    ("data", "kind", "reason"),
    [
        pytest.param(batches(9, 1), UnexpectedAppendOffsetError, "expected more than 9, found 9", id="below the end"),
        pytest.param(
            [batch(20), batch(20)],
            OffsetsOutOfOrderError,
            "expected more than 20, found 20",
            id="one offset twice",
        ),
        pytest.param(
            [batch(20, 3), batch(22)],
            OffsetsOutOfOrderError,
            "expected more than 22, found 22",
            id="overlap",
        ),
        pytest.param([batch(20), _flipped(batch(30))], CorruptRecordError, "CRC", id="wrong CRC in the second"),
    ],
)
def test_fetch_that_does_not_fit_changes_nothing(
    directory: Path, data: list[bytes], kind: type[KStoreError], reason: str
) -> None:
    with open_log(directory, "a") as log:
        log.append_as_follower(fetched(batches(0, 10)))
        with pytest.raises(kind, match=reason):
            log.append_as_follower(fetched(data))
        assert (log.log_end_offset, offsets(log)) == (10, list(range(10)))


# Files


@pytest.mark.parametrize("value_bytes", [0, 700, 5000], ids=["many a page", "some a page", "larger than the interval"])
@pytest.mark.parametrize("at_once", [1, 4], ids=["one by one", "four at once"])
def test_files_are_those_of_a_broker(directory: Path, value_bytes: int, at_once: int) -> None:
    data = batches(0, 40, records_per_batch=2, value_bytes=value_bytes, partition_leader_epoch=0)
    with open_log(directory, "a") as log:
        for at in range(0, len(data), at_once):
            log.append_as_follower(fetched(data[at : at + at_once]))
    expected_offsets, expected_timestamps = index_entries(data, base_offset=0, layout=Layout())
    log_path = directory / "00000000000000000000.log"
    assert log_path.read_bytes() == b"".join(data)
    assert log_path.with_suffix(".index").read_bytes() == write_offset_index(expected_offsets)
    assert log_path.with_suffix(".timeindex").read_bytes() == write_time_index(expected_timestamps)
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"


def test_segments_roll_where_the_next_append_would_not_fit(directory: Path) -> None:
    data = batches(0, 10, partition_leader_epoch=0)
    with open_log(directory, "a", LogConfig(segment_bytes=3 * max(map(len, data)))) as log:
        for one in data:
            log.append_as_follower(MemoryRecords(one))
        assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 9]
        sizes = [sum(map(len, data[first : first + 3])) for first in (0, 3, 6, 9)]
        assert [segment.size_in_bytes for segment in log.segments] == sizes
        assert offsets(log) == list(range(10))
    assert sorted(path.name for path in directory.glob("*.snapshot")) == [
        f"{offset:020d}.snapshot" for offset in (3, 6, 9, 10)
    ]


def test_segment_rolls_by_the_time_of_its_records(directory: Path) -> None:
    with open_log(directory, "a", LogConfig(segment_ms=1000)) as log:
        for timestamp_ms in (5000, 6000, 6001, 7001, 7002):
            log.append(with_records([Record(offset=0, timestamp_ms=timestamp_ms, key=None, value=b"v")]))
        assert [segment.base_offset for segment in log.segments] == [0, 2, 4]


@pytest.mark.parametrize("first_timestamps", [(5000, 5900), (5900, 5000)], ids=["rising", "falling"])
@pytest.mark.parametrize("how", ["one append", "two appends", "opened again"])
def test_age_of_a_segment_counts_from_its_first_batch(
    directory: Path, how: str, first_timestamps: tuple[int, int]
) -> None:
    first, second, last = (
        write_batch([record(offset, b"v", timestamp_ms=timestamp_ms)])
        for offset, timestamp_ms in enumerate((*first_timestamps, first_timestamps[0] + 1001))
    )
    config = LogConfig(segment_ms=1000)
    log = open_log(directory, "a", config)
    for data in [first, second] if how == "two appends" else [first + second]:
        log.append_as_follower(MemoryRecords(data))
    if how == "opened again":
        log.close()
        log = open_log(directory, "a", config)
    with log:
        log.append_as_follower(MemoryRecords(last))
        assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_segment_rolls_when_an_index_is_full(directory: Path) -> None:
    config = LogConfig(segment_index_bytes=24, index_interval_bytes=0)
    with open_log(directory, "a", config) as log:
        for number in range(10):
            log.append(with_records([Record(offset=0, timestamp_ms=number, key=None, value=b"v")]))
        assert all(segment.time_index is not None for segment in log.segments)
        assert len(log.segments) > 1
        assert offsets(log) == list(range(10))


def test_segment_rolls_where_an_offset_is_too_far_from_its_base(directory: Path) -> None:
    with open_log(directory, "a") as log:
        log.append_as_follower(MemoryRecords(batch(0)))
        log.append_as_follower(MemoryRecords(batch(2**31)))
        log.append_as_follower(MemoryRecords(batch(2**31 + 5)))
        assert [segment.base_offset for segment in log.segments] == [0, 2**31]
        assert offsets(log) == [0, 2**31, 2**31 + 5]


def test_roll_by_call_needs_records(directory: Path) -> None:
    with open_log(directory, "a") as log:
        assert log.roll() == 0
        log.append(sent(4))
        assert (log.roll(), log.roll()) == (4, 4)
        assert [segment.base_offset for segment in log.segments] == [0, 4]
        log.append(sent(1))
        assert offsets(log) == list(range(5))


def test_preallocated_space_is_given_back(directory: Path) -> None:
    with open_log(directory, "a", LogConfig(preallocate=True, segment_bytes=100_000)) as log:
        log.append(sent(1))
        log.roll()
        path = directory / "00000000000000000001.log"
        log.append(sent(1))
        assert path.stat().st_size == 100_000
        assert offsets(log) == [0, 1]
        log.roll()
        assert path.stat().st_size == log.segments[1].size_in_bytes
    assert (directory / "00000000000000000002.log").stat().st_size == 0


# Marks, closing, opening


def test_log_goes_on_where_it_was_closed(directory: Path) -> None:
    with open_log(directory, "a") as log:
        log.append(sent(5))
    with open_log(directory, "a") as log:
        assert (log.log_end_offset, log.high_watermark, offsets(log)) == (5, 5, list(range(5)))
        assert log.append(sent(2)).base_offset == 5
    with open_log(directory) as log:
        assert [one.offset for one in log.read()] == list(range(7))


def test_close_leaves_marker_and_checkpoints(directory: Path) -> None:
    with open_log(directory, "a") as log:
        log.append(sent(5))
        assert not (directory.parent / ".kafka_cleanshutdown").exists()
    for name, offset in (("recovery-point", 5), ("log-start", 0)):
        assert (directory.parent / f"{name}-offset-checkpoint").read_text() == f"0\n1\nt 0 {offset}\n"
    assert (directory.parent / "replication-offset-checkpoint").read_text() == "0\n1\nt 0 5\n"
    assert (directory.parent / ".kafka_cleanshutdown").exists()
    assert not (directory / "kstore-durable-point").exists()


def test_marker_waits_for_the_last_log_of_the_root(tmp_path: Path) -> None:
    marker = tmp_path / ".kafka_cleanshutdown"
    first, second = open_log(tmp_path / "t-0", "a"), open_log(tmp_path / "t-1", "a")
    first.close()
    assert not marker.exists()
    second.close()
    assert marker.exists()


def test_root_of_a_log_that_failed_gets_no_marker_though_it_had_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / ".kafka_cleanshutdown"
    for name in ("t-0", "t-1"):
        open_log(tmp_path / name, "a").close()
    assert marker.exists()
    failed, whole = open_log(tmp_path / "t-0", "a"), open_log(tmp_path / "t-1", "a")
    failed.append(sent(1))
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", failing(errno.EIO))
        with pytest.raises(StorageError):
            failed.flush()
    failed.close()
    with (tmp_path / "t-0" / f"{0:020d}.log").open("ab") as file:
        file.write(b"7" * 7)
    with open_log(tmp_path / "t-0", "a") as again:
        assert again.recovery_report.truncated_bytes == 7
    whole.close()
    assert not marker.exists()


def test_root_with_a_log_that_nobody_closed_gets_no_marker(tmp_path: Path) -> None:
    (tmp_path / "other-0").mkdir()
    open_log(tmp_path / "t-0", "a").close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_partition_has_one_writer(directory: Path) -> None:
    with open_log(directory, "a") as log:
        with pytest.raises(LogLockedError):
            open_log(directory, "a")
        log.append(sent(1))
    open_log(directory, "a").close()


def test_closed_log_takes_and_gives_nothing(directory: Path) -> None:
    log = open_log(directory, "a")
    log.append(sent(1))
    log.close()
    log.close()
    calls: list[Callable[[], object]] = [
        lambda: log.append(sent(1)),
        lambda: log.append_as_follower(sent(1)),
        lambda: log.read(),
        log.flush,
        log.roll,
        lambda: log.truncate_to(0),
        lambda: log.delete_records(1),
    ]
    for call in calls:
        with pytest.raises(LogClosedError):
            call()


def test_managed_high_watermark_stays_where_it_is_put(directory: Path) -> None:
    with open_log(directory, "a") as log:
        log.append(sent(5))
        assert log.update_high_watermark(3) == 3
        log.append(sent(5))
        assert (log.high_watermark, log.last_stable_offset, log.log_end_offset) == (3, 3, 10)
        assert (log.update_high_watermark(99), log.update_high_watermark(-5)) == (10, 0)


class TimeEnv(LocalEnv):
    """A monotonic clock that the test sets."""

    now_ms = 1000

    def monotonic_ms(self) -> int:
        return self.now_ms


def test_flush_is_due_flush_ms_after_the_last_one(directory: Path) -> None:
    env = TimeEnv()
    with open_log(directory, "a", LogConfig(flush_ms=50), env=env) as log:
        log.append(sent(1))
        env.now_ms += 49
        assert (log.flush_if_due(), log.flushed_offset) == (False, 0)
        env.now_ms += 1
        assert (log.flush_if_due(), log.flushed_offset) == (True, 1)
        assert not log.flush_if_due()


def test_flush_makes_the_end_durable(directory: Path) -> None:
    with open_log(directory, "a") as log:
        log.append(sent(3))
        assert log.flush() == 3
        assert log.append(sent(2), ack="flushed").last_offset == 4
        assert log.flushed_offset == 5


def test_flush_by_count(directory: Path) -> None:
    with open_log(directory, "a", LogConfig(flush_messages=4)) as log:
        log.append(sent(3))
        assert log.flushed_offset == 0
        log.append(sent(1))
        assert log.flushed_offset == 4


def test_timestamps_are_found_in_every_segment(directory: Path) -> None:
    with open_log(directory, "a", LogConfig(segment_bytes=2000)) as log:
        for _ in range(30):
            log.append(
                with_records([Record(offset=0, timestamp_ms=1000 + log.log_end_offset, key=None, value=b"x" * 80)])
            )
        for offset in range(30):
            assert log.offset_for_timestamp(1000 + offset) == (offset, 1000 + offset)
        assert log.offset_for_timestamp(1030) is None


@pytest.mark.parametrize("mode", ["r", "a"])
@pytest.mark.parametrize("recovery", ["Strict", "", None], ids=["capital", "empty", "none"])
def test_unknown_recovery_is_refused_before_the_log_is_touched(tmp_path: Path, mode: str, recovery: str | None) -> None:
    directory = write_partition(tmp_path, [[batch(0), batch(1)]], topic="t")
    path = directory / "00000000000000000000.log"
    path.write_bytes(path.read_bytes()[:-1])
    before = path.read_bytes()
    with pytest.raises(ValueError, match="recovery must be one of strict, point_in_time, salvage"):
        open_log(directory, mode, recovery=recovery)
    with pytest.raises(ValueError, match="recovery must be"):
        open_store(tmp_path, mode, recovery=recovery)
    assert path.read_bytes() == before
    assert sorted(one.name for one in tmp_path.iterdir()) == [directory.name]


@pytest.mark.parametrize("opened", [open_log, open_store], ids=["log", "store"])
def test_settings_of_another_type_are_refused(tmp_path: Path, opened: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match="config must be a LogConfig"):
        opened(tmp_path / "t-0", "a", {"segment_bytes": 100})
    assert not list(tmp_path.iterdir())


def test_what_are_no_memory_records_is_refused_with_nothing_written(directory: Path) -> None:
    with open_log(directory, "a") as log:
        for call in (log.append_as_follower, lambda one: log.append_batches([MemoryRecords(batch(0)), one])):
            with pytest.raises(TypeError, match="expected MemoryRecords, got bytes"):
                call(batch(0))
        assert (log.log_end_offset, log.has_failed) == (0, False)


@pytest.mark.parametrize("origin", [AppendOrigin.CLIENT, AppendOrigin.COORDINATOR])
@pytest.mark.parametrize("epoch", [4, 0])
def test_leader_epoch_below_the_last_one_is_refused(directory: Path, epoch: int, origin: AppendOrigin) -> None:
    with open_log(directory, "a") as log:
        log.append(sent(2), partition_leader_epoch=5)
        with pytest.raises(ValueError, match=rf"{directory}: expected at least 5, .*, got {epoch}$"):
            log.append(sent(2), partition_leader_epoch=epoch, origin=origin)
        assert log.log_end_offset == 2
        for later in (5, None, -1, 6):
            log.append(sent(1), partition_leader_epoch=later)
        assert [one.partition_leader_epoch for one in log.batches()] == [5, 5, 5, -1, 6]
    assert not kstore.verify(directory).damage


@pytest.mark.parametrize("epoch", [-2, 2**31], ids=["below-minus-one", "above-int32"])
def test_leader_epoch_that_no_batch_can_hold_is_refused(directory: Path, epoch: int) -> None:
    with open_log(directory, "a") as log, pytest.raises(ValueError, match="partition_leader_epoch must be"):
        log.append([Record(offset=0, timestamp_ms=1, value=b"v")], partition_leader_epoch=epoch)


def test_times_at_the_ends_of_64_bits_are_before_and_behind_all_records(directory: Path) -> None:
    with open_log(directory, "a") as log:
        log.append([Record(offset=0, timestamp_ms=1, value=b"v")])
        assert log.offset_for_timestamp(2**63 - 1) is None
        assert log.offset_for_timestamp(-(2**63)) == OffsetAndTimestamp(0, 1)


def test_decoder_that_can_not_be_called_is_refused_at_once(directory: Path) -> None:
    with open_log(directory, "a") as log, pytest.raises(TypeError, match="a deserializer must be a name or a callable"):
        log.read(value_deserializer=5)


def test_special_times_are_those_of_list_offsets(directory: Path) -> None:
    with open_log(directory, "a") as log:
        assert log.offset_for_timestamp(kstore.MAX_TIMESTAMP) is None
        for timestamp_ms in (9, 5, 7, 8, 7, 8):
            log.append(with_records([Record(offset=0, timestamp_ms=timestamp_ms, value=b"v")] * 2))
            if timestamp_ms == 7:
                log.roll()
        log.delete_records(3)
        for found in (log, open_log(directory)):
            assert found.offset_for_timestamp(kstore.EARLIEST) == OffsetAndTimestamp(3, -1)
            assert found.offset_for_timestamp(kstore.EARLIEST_LOCAL) == OffsetAndTimestamp(3, -1)
            assert found.offset_for_timestamp(kstore.LATEST) == OffsetAndTimestamp(12, -1)
            assert found.offset_for_timestamp(kstore.MAX_TIMESTAMP) == OffsetAndTimestamp(6, 8)
            assert found.offset_for_timestamp(kstore.LATEST_TIERED) is None
            assert found.offset_for_timestamp(-6) == OffsetAndTimestamp(3, 5)


def test_fetch_ends_at_the_high_watermark_if_asked_to(directory: Path) -> None:
    with open_log(directory, "a") as log:
        for _ in range(4):
            log.append(sent(2))
        log.update_high_watermark(4)
        answer = log.fetch(2, 10_000, isolation="high_watermark")
        assert [batch.base_offset for batch in MemoryRecords(answer.records).batches()] == [2]
        assert (answer.last_stable_offset, answer.aborted) == (4, ())
        assert log.fetch(4, 10_000, isolation="high_watermark").records == b""
        assert log.fetch(6, 10_000, isolation="high_watermark").records == b""
        assert len(log.fetch(4, 10_000).records) > 0
