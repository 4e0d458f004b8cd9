"""Goal: what is cut off a log is gone for good, and everything that counts by offsets follows the cut.
Method: small segments, cut at every kind of place; what readers, indexes, epochs, producers and a reopened log say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kstore.config import LogConfig
from kstore.errors import OffsetOutOfRangeError, OutOfOrderSequenceError, StorageError
from kstore.log.files.checkpoints import read_offset_checkpoint
from kstore.log.files.durable_point import DurablePoint, DurablePointFile
from kstore.log.files.records import SegmentRecords
from kstore.log.segment.segment import LogSegment
from kstore.log.write.live_source import Truncations
from kstore.log.write.writable_log import WritableLog
from kstore.record import MemoryRecords, Record
from kstore.store.opening import open_log
from kstore.types import OffsetAndTimestamp, TopicPartition
from tests.fakes.faults import FaultyEnv
from tests.making.batches import FIRST_TIMESTAMP_MS, batch, batches, record
from tests.reference.codec import read_time_index, write_batch

RECORDS_PER_BATCH = 3
# Ten batches of three records, four batches a segment: segments at 0, 12 and 24.
DATA = batches(0, 10, records_per_batch=RECORDS_PER_BATCH, value_bytes=40)
# Producers expire by the timestamps of their records, and those of the reference are years old.
REMEMBERS = LogConfig(producer_id_expiration_ms=2**63 - 1)
SMALL = LogConfig(segment_bytes=4 * max(map(len, DATA)) + 10, index_interval_bytes=0)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "t-0"


@pytest.fixture
def log(directory: Path) -> WritableLog:
    opened = open_log(directory, "a", SMALL)
    for data in DATA:
        opened.append_as_follower(MemoryRecords(data))
    assert [segment.base_offset for segment in opened.segments] == [0, 12, 24]
    return opened


def offsets(log: WritableLog) -> list[int]:
    return [record.offset for record in log.read()]


def require_offsets_below(offset: int, records: Iterator[Record]) -> None:
    """The batch that a reader holds in its hands it may give to the end."""
    assert all(record.offset < offset for record in records)


def whole_batches_below(offset: int) -> list[int]:
    return [one for one in range(30) if one // RECORDS_PER_BATCH * RECORDS_PER_BATCH + RECORDS_PER_BATCH <= offset]


@pytest.mark.parametrize("offset", [0, 1, 3, 11, 12, 13, 23, 24, 27, 29])
def test_cut_removes_every_batch_from_the_offset_on(log: WritableLog, directory: Path, offset: int) -> None:
    assert log.truncate_to(offset)
    assert (log.log_end_offset, offsets(log)) == (offset, whole_batches_below(offset))
    assert log.high_watermark == offset
    log.append(MemoryRecords(batch(0, 2)))
    assert offsets(log) == [*whole_batches_below(offset), offset, offset + 1]
    log.close()
    with open_log(directory, "a", SMALL) as reopened:
        assert offsets(reopened) == [*whole_batches_below(offset), offset, offset + 1]
        assert reopened.log_end_offset == offset + 2


def test_truncation_in_a_segment_that_was_only_listed_keeps_its_largest_timestamp(
    log: WritableLog, directory: Path
) -> None:
    """A broker forgets it, and lookups by time then stop at this segment."""
    log.close()
    with open_log(directory, "a", replace(SMALL, index_interval_bytes=4096)) as reopened:
        assert reopened.truncate_to(18)
        reopened.roll()
        reopened.append(MemoryRecords(batch(0, 1)))
        assert read_time_index((directory / f"{12:020d}.timeindex").read_bytes()) == [(FIRST_TIMESTAMP_MS + 17, 5)]
        assert reopened.offset_for_timestamp(FIRST_TIMESTAMP_MS + 16) == OffsetAndTimestamp(16, FIRST_TIMESTAMP_MS + 16)


@pytest.mark.parametrize("offset", [30, 31, 10**12])
def test_cut_at_or_behind_the_end_removes_nothing(log: WritableLog, offset: int) -> None:
    assert not log.truncate_to(offset)
    assert (log.log_end_offset, offsets(log)) == (30, list(range(30)))


def test_cut_below_the_first_segment_empties_the_log(log: WritableLog) -> None:
    log.delete_records(13)
    assert log.truncate_to(5)
    assert (log.log_start_offset, log.log_end_offset, offsets(log)) == (5, 5, [])


class UnlinkingEnv(FaultyEnv):
    """Notes the names of what is removed."""

    def __init__(self) -> None:
        super().__init__()
        self.removed: list[str] = []

    def check(self, call: str, path: str) -> bool:
        if call == "unlink":
            self.removed.append(path.rpartition("/")[2])
        return super().check(call, path)


def test_truncation_removes_the_last_segment_first(directory: Path) -> None:
    """Wherever a crash stops it, the segments that are left follow each other."""
    env = UnlinkingEnv()
    with open_log(directory, "a", env=env) as log:
        for _ in range(4):
            log.append(MemoryRecords(batch(0, 2)))
            log.roll()
        env.removed.clear()
        log.truncate_to(1)
        assert [name for name in env.removed if name.endswith(".log")] == [f"{n:020d}.log" for n in (8, 6, 4, 2)]


@pytest.mark.parametrize("offset", [0, 7, 30, 1000])
def test_log_starts_anew_at_any_offset(log: WritableLog, directory: Path, offset: int) -> None:
    log.truncate_fully_and_start_at(offset)
    assert (log.log_start_offset, log.log_end_offset, offsets(log)) == (offset, offset, [])
    log.append(MemoryRecords(batch(0, 2)))
    assert offsets(log) == [offset, offset + 1]
    log.close()
    assert sorted(path.name for path in directory.glob("*.log")) == [f"{offset:020d}.log"]
    with open_log(directory, "a", SMALL) as reopened:
        assert (reopened.log_start_offset, offsets(reopened)) == (offset, [offset, offset + 1])


@pytest.mark.parametrize(("offset", "start"), [(20, 20), (20, 12), (20, 0), (0, 0), (1000, 7)])
@pytest.mark.parametrize("mark", [None, 5, 30], ids=["unmanaged", "mark-below", "mark-above"])
def test_log_emptied_at_an_offset_starts_at_the_log_start_that_was_asked_for(
    log: WritableLog, directory: Path, offset: int, start: int, mark: int | None
) -> None:
    if mark is not None:
        log.update_high_watermark(mark)
    log.truncate_fully_and_start_at(offset, log_start_offset=start)
    # Kafka lets the high watermark follow to the new end, also from below.
    assert (log.log_start_offset, log.high_watermark, log.last_stable_offset, log.log_end_offset) == (
        start,
        offset,
        offset,
        offset,
    )
    assert log.leader_epochs.entries == ()
    starts = read_offset_checkpoint(directory.parent / "log-start-offset-checkpoint")
    assert starts[TopicPartition("t", 0)] == start
    # As a broker does, since the start is below: it would load the producers from here.
    assert log.producer_state.snapshot_offsets == ((offset,) if start < offset else ())
    log.append(MemoryRecords(batch(0, 2)))
    assert log.high_watermark == (offset + 2 if mark is None else offset)
    assert offsets(log) == [offset, offset + 1]


def test_what_tiered_storage_has_is_out_of_range_of_a_fetch(log: WritableLog) -> None:
    log.truncate_fully_and_start_at(20, log_start_offset=12)
    log.append(MemoryRecords(batch(0, 2)))
    for isolation in ("read_uncommitted", "high_watermark", "read_committed"):
        for offset in (12, 19):
            with pytest.raises(OffsetOutOfRangeError, match="below the first segment"):
                log.fetch(offset, 1000, isolation=isolation)  # type: ignore[arg-type]
        assert log.fetch(20, 1000, isolation=isolation).base_offset == 20  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("start", "kind"),
    [(21, ValueError), (-1, ValueError), (1.0, TypeError)],
    ids=["above-the-end", "negative", "float"],
)
def test_log_start_that_can_not_be_is_refused_before_anything_goes(
    log: WritableLog, start: int, kind: type[Exception]
) -> None:
    with pytest.raises(kind, match="log_start_offset"):
        log.truncate_fully_and_start_at(20, log_start_offset=start)
    assert offsets(log) == list(range(30))


def test_log_truncated_below_its_first_segment_starts_and_ends_there(log: WritableLog) -> None:
    log.truncate_fully_and_start_at(20, log_start_offset=5)
    assert log.truncate_to(9)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (9, 9, 9)


def test_cut_reaches_the_indexes(log: WritableLog, directory: Path) -> None:
    log.truncate_to(20)
    active = log.segments[-1]
    assert active.offset_index is not None
    assert active.time_index is not None
    assert all(entry.offset < 20 and entry.position < active.size_in_bytes for entry in active.offset_index.entries())
    assert all(entry.offset < 20 for entry in active.time_index.entries())
    for offset in range(18):
        assert next(log.read(offset)).offset == offset
    log.close()
    assert (directory / "00000000000000000012.index").stat().st_size % 8 == 0


def test_cut_reaches_the_leader_epochs(directory: Path) -> None:
    with open_log(directory, "a") as log:
        for epoch in range(4):
            log.append(MemoryRecords(batch(0, 5)), partition_leader_epoch=epoch)
        log.truncate_to(10)
        assert [tuple(entry) for entry in log.leader_epochs.entries] == [(0, 0), (1, 5)]
        log.append(MemoryRecords(batch(0, 1)))
        assert [one.partition_leader_epoch for one in log.batches(10)] == [1]


def test_cut_takes_back_what_a_producer_sent(directory: Path) -> None:
    def of_producer(sequence: int) -> MemoryRecords:
        return MemoryRecords(batch(0, 2, producer_id=9, producer_epoch=0, base_sequence=sequence))

    with open_log(directory, "a") as log:
        for sequence in (0, 2, 4):
            log.append(of_producer(sequence))
        log.truncate_to(4)
        with pytest.raises(OutOfOrderSequenceError):
            log.append(of_producer(6))
        assert log.append(of_producer(4)).base_offset == 4
        assert log.append(of_producer(4)).is_duplicate


@pytest.mark.parametrize("is_rolled", [False, True], ids=["opened there", "rolled there"])
def test_cut_to_where_producers_were_noted_takes_back_what_they_sent_since(directory: Path, is_rolled: bool) -> None:
    def of_producer(sequence: int) -> MemoryRecords:
        return MemoryRecords(batch(0, 2, producer_id=9, producer_epoch=0, base_sequence=sequence))

    with open_log(directory, "a", REMEMBERS) as log:
        log.append(of_producer(0))
        if is_rolled:
            log.roll()
    with open_log(directory, "a", REMEMBERS) as log:
        log.append(of_producer(2))
        log.truncate_to(2)
        again = log.append(of_producer(2))
        assert (again.is_duplicate, again.base_offset) == (False, 2)
        assert offsets(log) == [0, 1, 2, 3]


def test_log_cut_inside_a_batch_is_rolled_and_flushed(directory: Path) -> None:
    with open_log(directory, "a") as log:
        for data in DATA[:2]:
            log.append_as_follower(MemoryRecords(data))
        log.truncate_to(4)
        assert (log.roll(), log.flush()) == (4, 4)
        log.append(MemoryRecords(batch(0, 1)), ack="flushed")
        assert offsets(log) == [0, 1, 2, 4]
    with open_log(directory, "a") as log:
        assert log.recovery_report.is_unharmed
        assert offsets(log) == [0, 1, 2, 4]


def test_log_started_anew_where_it_was_cut_inside_a_batch_is_flushed(directory: Path) -> None:
    with open_log(directory, "a") as log:
        for data in DATA[:2]:
            log.append_as_follower(MemoryRecords(data))
        log.truncate_to(4)
        log.truncate_fully_and_start_at(4)
        assert log.flush() == 4
        assert log.marks().recovery_point == 4


def test_leader_epoch_that_a_cut_behind_the_last_record_takes_back_is_noted_by_the_next_append(
    directory: Path,
) -> None:
    with open_log(directory, "a") as log:
        log.append(MemoryRecords(batch(0, 1)))
        log.delete_records(1)
        assert not log.truncate_to(1)
        assert log.leader_epochs.entries == ()
        log.append(MemoryRecords(batch(0, 1)))
        assert log.leader_epochs.entries == ((0, 1),)


def test_high_watermark_is_never_seen_above_the_end_of_a_log_that_is_cut(
    log: WritableLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, seen = log._local.publish, []

    def publish_and_look(log_end_offset: int) -> None:
        publish(log_end_offset)
        seen.append((log.high_watermark, log.log_end_offset))

    log.update_high_watermark(28)
    monkeypatch.setattr(log._local, "publish", publish_and_look)
    log.truncate_to(12)
    assert seen
    assert all(high_watermark <= end for high_watermark, end in seen)


def test_high_watermark_is_never_seen_below_the_start_of_a_log_that_is_restarted(
    log: WritableLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    move_start, seen = log._local.move_start, []

    def move_start_and_look(offset: int) -> None:
        move_start(offset)
        seen.append((log.log_start_offset, log.high_watermark))

    monkeypatch.setattr(log._local, "move_start", move_start_and_look)
    log.truncate_fully_and_start_at(100)
    assert seen == [(100, 100)]


@pytest.mark.parametrize("before", [1, 12, 13, 24, 29, 30])
def test_deleted_records_are_out_of_range(log: WritableLog, directory: Path, before: int) -> None:
    assert log.delete_records(before) == before
    assert log.log_start_offset == before
    assert offsets(log) == list(range(before, 30))
    with pytest.raises(OffsetOutOfRangeError):
        log.read(before - 1)
    assert [segment.base_offset for segment in log.segments] == [base for base in (0, 12, 24) if base + 12 > before]
    assert not log.truncate_to(30)
    log.close()
    with open_log(directory, "a", SMALL) as reopened:
        assert (reopened.log_start_offset, offsets(reopened)) == (before, list(range(before, 30)))


def test_start_of_the_log_never_goes_back(log: WritableLog) -> None:
    log.delete_records(20)
    assert log.delete_records(10) == 20


def test_segments_that_were_rolled_are_flushed_by_the_append_that_rolled(log: WritableLog) -> None:
    assert log.flushed_offset >= 24


def test_segment_that_was_cut_is_as_old_as_its_first_batch(directory: Path) -> None:
    with open_log(directory, "a", LogConfig(segment_ms=1000)) as log:
        for timestamp_ms in (5000, 5500):
            log.append(MemoryRecords(write_batch([record(0, b"v", timestamp_ms=timestamp_ms)])))
        log.truncate_to(1)
        for timestamp_ms in (5900, 6001):
            log.append(MemoryRecords(write_batch([record(0, b"v", timestamp_ms=timestamp_ms)])))
        assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_start_that_could_not_be_noted_is_not_the_logs(log: WritableLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise StorageError("full")

    with monkeypatch.context() as patched:
        patched.setattr("kstore.log.write.ownership.save_offset", refuse)
        with pytest.raises(StorageError, match="full"):
            log.delete_records(13)
    assert (log.log_start_offset, offsets(log)) == (0, list(range(30)))


def test_start_that_a_cut_moves_back_is_noted_at_once(log: WritableLog, directory: Path) -> None:
    log.delete_records(8)
    log.truncate_to(5)
    noted = read_offset_checkpoint(str(directory.parent / "log-start-offset-checkpoint"))
    assert noted == {TopicPartition("t", 0): 5}


def test_flush_of_before_a_cut_answers_for_nothing_behind_it(log: WritableLog) -> None:
    assert log.flush() == 30
    log.truncate_to(9)
    log.append(MemoryRecords(batch(0, 2)))
    assert log.flushed_offset == 9
    assert log.flush() == log.flushed_offset == 11


def test_log_started_anew_has_no_durable_point_of_before(log: WritableLog, directory: Path) -> None:
    log.flush()
    assert DurablePointFile(str(directory)).read() is not None
    log.truncate_fully_and_start_at(1000)
    assert DurablePointFile(str(directory)).read() == DurablePoint(0, 0, 0)


def test_records_above_the_high_watermark_are_not_deleted(log: WritableLog) -> None:
    log.update_high_watermark(10)
    with pytest.raises(OffsetOutOfRangeError):
        log.delete_records(11)
    assert log.log_start_offset == 0


def test_removed_segments_leave_no_file(log: WritableLog, directory: Path) -> None:
    log.delete_records(25)
    log.truncate_to(26)
    names = {path.name.split(".")[0] for path in directory.iterdir() if path.suffix in (".log", ".index", ".timeindex")}
    assert names == {f"{24:020d}"}


def test_reader_of_what_is_cut_goes_on_or_is_told(log: WritableLog) -> None:
    readers = [log.read(start) for start in (0, 12, 24)]
    first = [next(reader).offset for reader in readers]
    log.truncate_to(15)
    for _ in range(6):
        log.append(MemoryRecords(batch(0, 3, value_bytes=40)))
    assert first == [0, 12, 24]
    for start, reader in zip(first, readers, strict=True):
        with pytest.raises(OffsetOutOfRangeError):
            require_offsets_below(max(15, start + RECORDS_PER_BATCH), reader)


def test_fetch_over_a_cut_gives_batches_of_what_took_the_place(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_log(directory, "a") as log:
        for data in DATA[:4]:
            log.append_as_follower(MemoryRecords(data))
        read_bytes = SegmentRecords.read_bytes

        def cut_and_read(records: SegmentRecords, size: int, *, position: int) -> bytes:
            monkeypatch.undo()
            log.truncate_to(0)
            log.append(MemoryRecords(batch(0, 12, value_bytes=90)))
            return read_bytes(records, size, position=position)

        monkeypatch.setattr(SegmentRecords, "read_bytes", cut_and_read)
        found = log.fetch(6, 10_000)
        assert [record.offset for record in MemoryRecords(found.records)] == list(range(12))
        assert found.base_offset == 0


def test_lookup_by_time_over_a_cut_gives_a_record_of_what_took_the_place(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_log(directory, "a") as log:
        for data in DATA[:4]:
            log.append_as_follower(MemoryRecords(data))
        search, wanted = LogSegment.search_timestamp, FIRST_TIMESTAMP_MS + 5

        def search_and_cut(segment: LogSegment, timestamp_ms: int, *, start_offset: int) -> OffsetAndTimestamp | None:
            monkeypatch.undo()
            found = search(segment, timestamp_ms, start_offset=start_offset)
            log.truncate_to(2)
            log.append(MemoryRecords(write_batch([record(0, timestamp_ms=wanted + 1)])))
            return found

        monkeypatch.setattr(LogSegment, "search_timestamp", search_and_cut)
        assert log.offset_for_timestamp(wanted) == (2, wanted + 1)


@pytest.mark.parametrize(
    "read",
    [
        lambda log: log.read(),
        lambda log: log.read(isolation="read_committed"),
        lambda log: (one for batch in log.batches() for one in batch),
    ],
    ids=["records", "committed records", "batches"],
)
def test_reader_asked_for_before_a_cut_gives_nothing_that_came_behind_it(
    directory: Path, read: Callable[[WritableLog], Iterator[Record]]
) -> None:
    with open_log(directory, "a") as log:
        for data in DATA[:3]:
            log.append_as_follower(MemoryRecords(data))
        reader = read(log)
        log.truncate_to(3)
        begun = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
        log.append(MemoryRecords(batch(0, 3, **begun)))
        with pytest.raises(OffsetOutOfRangeError):
            require_offsets_below(3, reader)


def test_reader_of_deleted_segments_goes_on_or_is_told(log: WritableLog) -> None:
    reader = log.read()
    assert next(reader).offset == 0
    log.delete_records(30)
    seen = [0]
    with suppress(OffsetOutOfRangeError):
        seen.extend(record.offset for record in reader)
    assert seen == list(range(len(seen)))


def test_readers_ignore_truncations_before_they_started() -> None:
    truncations = Truncations()
    for offset in (40, 10, 30, 20, 30):
        truncations.note(offset)
    assert [truncations.lowest_since(known) for known in range(6)] == [10, 10, 20, 20, 30, None]


def test_records_deleted_again_and_again_take_no_memory(directory: Path) -> None:
    with open_log(directory, "a") as log:
        for offset in range(50):
            log.append(MemoryRecords(batch(0, 1)))
            log.delete_records(offset)
        assert len(log._live.truncations.lowest) <= 1


@pytest.mark.parametrize("offset", [0, 7, 12, 13, 29])
@pytest.mark.parametrize("is_flushed", [False, True], ids=["cut alone", "flushed after the cut"])
def test_cut_log_that_nobody_closes_is_opened_without_complaint(
    log: WritableLog, directory: Path, offset: int, is_flushed: bool
) -> None:
    log.close()
    cut = open_log(directory, "a", SMALL)
    cut.truncate_to(offset)
    if is_flushed:
        cut.flush()
    abandon(cut)
    with open_log(directory, "a", SMALL) as reopened:
        assert offsets(reopened) == whole_batches_below(offset)


def abandon(log: WritableLog) -> None:
    """Leave a log as a process leaves it that is killed."""
    log._local.close_handlers()
    log._writer_files.release()
    super(WritableLog, log).close()


@pytest.mark.parametrize(
    ("offset", "kind"),
    [
        pytest.param(-1, ValueError, id="negative"),
        pytest.param(2**63, ValueError, id="above-int64"),
        pytest.param(6.0, TypeError, id="float"),
        pytest.param("6", TypeError, id="text"),
        pytest.param(None, TypeError, id="none"),
    ],
)
@pytest.mark.parametrize("method", ["truncate_to", "truncate_fully_and_start_at", "delete_records"])
def test_what_is_no_offset_is_refused_before_anything_goes(
    log: WritableLog, directory: Path, method: str, offset: int, kind: type[Exception]
) -> None:
    held = offsets(log)
    with pytest.raises(kind):
        getattr(log, method)(offset)
    assert not log.has_failed
    log.close()
    with open_log(directory) as reopened:
        assert [one.offset for one in reopened.read()] == held


def test_numbers_of_other_types_reach_no_checkpoint(log: WritableLog, directory: Path) -> None:
    for wrong in (9.5, True):
        with pytest.raises(TypeError):
            log.update_high_watermark(wrong)
    log.update_high_watermark(np.int64(9))
    log.delete_records(np.int64(6))
    log.truncate_to(np.int32(12))
    log.close()
    with open_log(directory, "a", SMALL) as reopened:
        assert (reopened.log_start_offset, reopened.log_end_offset) == (6, 12)
        assert "t 0 9" in (directory.parent / "replication-offset-checkpoint").read_text().splitlines()
