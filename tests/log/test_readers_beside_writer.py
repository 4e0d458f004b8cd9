"""Goal: readers in threads and in other processes see whole batches in order, whatever the writer does meanwhile.
Method: values that tell their offset, read without a pause while a log is appended to, rolled and cut."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kstore._core import BatchHeader
from kstore.config import LogConfig
from kstore.errors import (
    CorruptionError,
    CorruptRecordError,
    KStoreError,
    OffsetOutOfRangeError,
    StorageError,
    UnsupportedMagicError,
)
from kstore.log.files.indexes import OffsetIndex
from kstore.log.segment.segment import LogSegment
from kstore.log.write.writable_log import WritableLog
from kstore.record import Record
from kstore.store.opening import open_log

SMALL = LogConfig(segment_bytes=4000, index_interval_bytes=200)
APPENDS = 400

READER = """
import sys
from kstore.errors import KStoreError
from kstore.store.opening import open_log

checked = 0
for _ in range(60):
    try:
        with open_log(sys.argv[1]) as log:
            previous = -1
            for record in log.read():
                assert record.value == b"%d" % record.offset * 3, record
                assert record.offset > previous
                previous = record.offset
                checked += 1
    except KStoreError:
        pass
print(checked)
"""


def append(log: WritableLog) -> None:
    """Append three records whose values tell their offsets."""
    first = log.log_end_offset
    log.append([Record(offset=0, timestamp_ms=n, key=b"k", value=b"%d" % n * 3) for n in range(first, first + 3)])


def grow(log: WritableLog) -> None:
    for _ in range(APPENDS):
        append(log)


def grow_and_cut(log: WritableLog) -> None:
    for number in range(APPENDS // 2):
        append(log)
        if number % 17 == 16:
            log.truncate_to(max(log.log_end_offset - 20, log.log_start_offset))


def grow_and_delete(log: WritableLog) -> None:
    for number in range(APPENDS // 2):
        append(log)
        if number % 17 == 16:
            log.delete_records(log.log_end_offset - 10)


class Reader(threading.Thread):
    """Reads a log from a start of its own until it is told to stop; keeps the first error that it should not meet."""

    def __init__(self, log: WritableLog, read: Callable[[WritableLog], int]) -> None:
        super().__init__()
        self.log = log
        self.read = read
        self.stops = threading.Event()
        self.rounds = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        while not self.stops.is_set() and self.error is None:
            try:
                self.read(self.log)
                self.rounds += 1
            except OffsetOutOfRangeError:
                self.rounds += 1
            except (AssertionError, KStoreError, OSError, ValueError, IndexError) as error:
                self.error = error


def read_all(log: WritableLog) -> int:
    previous = -1
    for record in log.read():
        assert record.value == b"%d" % record.offset * 3
        assert record.offset > previous
        previous = record.offset
    return previous


def fetch_the_end(log: WritableLog) -> int:
    end = log.log_end_offset
    if end == log.log_start_offset:
        return 0
    found = log.fetch(end - 1, 1)
    # A cut inside a batch of three leaves up to two offsets without a record; the next batch starts behind them.
    assert found.base_offset is None or found.base_offset <= end + 1
    return found.log_end_offset


def look_up_a_time(log: WritableLog) -> int:
    wanted = (log.log_start_offset + log.log_end_offset) // 2
    found = log.offset_for_timestamp(wanted)
    assert found is None or found.timestamp_ms >= wanted
    return 0


@pytest.mark.parametrize("write", [grow, grow_and_cut, grow_and_delete], ids=lambda write: write.__name__)
def test_threads_read_whole_batches_in_order(tmp_path: Path, write: Callable[[WritableLog], None]) -> None:
    with open_log(tmp_path / "t-0", "a", SMALL) as log:
        readers = [Reader(log, read) for read in (read_all, fetch_the_end, look_up_a_time)]
        for reader in readers:
            reader.start()
        write(log)
        for reader in readers:
            reader.stops.set()
            reader.join()
        assert [reader.error for reader in readers] == [None, None, None]
        assert all(reader.rounds for reader in readers)


def test_other_processes_read_whole_batches_in_order(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0", "a", SMALL) as log:
        append(log)
        reader = subprocess.Popen(
            [sys.executable, "-c", READER, str(tmp_path / "t-0")], stdout=subprocess.PIPE, text=True
        )
        grow_and_cut(log)
        output, _ = reader.communicate()
    assert reader.returncode == 0
    assert int(output) > 0


@pytest.mark.parametrize(
    "kind", [CorruptRecordError, UnsupportedMagicError, StorageError], ids=lambda one: one.__name__
)
def test_other_bytes_that_a_cut_left_to_readers_are_no_error_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[KStoreError]
) -> None:
    with open_log(tmp_path / "t-0", "a", SMALL) as log:
        for _ in range(3):
            append(log)

        def cut_and_meet_other_bytes(segment: LogSegment, offset: int) -> BatchHeader | None:
            monkeypatch.undo()
            log.truncate_to(6)
            raise kind("no batch lies here", path=segment.path)

        def arm() -> None:
            monkeypatch.setattr(LogSegment, "translate_offset", cut_and_meet_other_bytes)

        arm()
        assert log.fetch(3, 1).base_offset == 3
        append(log)
        arm()
        assert sum(len(one.files) for one in log.plan(start_offset=3)) == 1
        append(log)
        reader = log.read(3)
        arm()
        with pytest.raises(OffsetOutOfRangeError, match="was truncated"):
            next(reader)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("grows_again", [False, True])
def test_arrow_batches_never_join_what_was_cut_to_what_came_later(
    tmp_path: Path, threads: int, grows_again: bool
) -> None:
    with open_log(tmp_path / "t-0", "a", SMALL) as log:
        grow(log)
        end = log.log_end_offset
        found = log.to_arrow_batches(columns=["offset"], batch_bytes=1, threads=threads)
        read = next(found)["offset"].to_pylist()
        log.truncate_to(end - 3)
        if grows_again:
            grow(log)
        with pytest.raises(OffsetOutOfRangeError, match="was truncated"):
            read += [offset for batch in found for offset in batch["offset"].to_pylist()]
        assert read == [*range(len(read))]
        assert len(read) <= end - 3


def test_arrow_batches_below_a_cut_are_read_to_their_end(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0", "a", SMALL) as log:
        grow(log)
        end = log.log_end_offset
        found = log.to_arrow_batches(0, end - 3, columns=["offset"], batch_bytes=1)
        read = next(found)["offset"].to_pylist()
        log.truncate_to(end - 3)
        assert read + [offset for batch in found for offset in batch["offset"].to_pylist()] == [*range(end - 3)]


def test_lookup_keeps_to_one_view_of_an_index_that_is_cut_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_log(tmp_path / "t-0", "a", LogConfig(index_interval_bytes=64)) as log:
        grow(log)
    with open_log(tmp_path / "t-0") as log:
        (segment,) = log.segments
        whole = segment.offset_index
        assert whole is not None
        assert whole.entry_count > 1
        views = iter([whole])
        cut = OffsetIndex(b"", base_offset=0, path=whole.path)
        monkeypatch.setattr(LogSegment, "offset_index", property(lambda _: next(views, cut)))
        assert segment.tail.last_offset == 3 * APPENDS - 1


def test_many_threads_append_without_a_gap(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0", "a", SMALL) as log:
        infos: list[tuple[int, int]] = []

        def run() -> None:
            for _ in range(40):
                info = log.append([Record(offset=0, timestamp_ms=1, key=None, value=b"v")] * 2, ack="flushed")
                infos.append((info.base_offset, info.last_offset))

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(infos) == [(base, base + 1) for base in range(0, 320, 2)]
        assert log.flushed_offset == log.log_end_offset == 320


def test_failed_log_can_still_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_log(tmp_path / "t-0", "a", SMALL) as log:
        append(log)

        def fail() -> None:
            raise StorageError("armed", path="x", errno=5)

        monkeypatch.setattr(log._local.active.records, "flush", fail)
        with pytest.raises(StorageError, match="armed"):
            log.flush()
        with pytest.raises(StorageError, match="accepts no more writes"):
            append(log)
        assert [record.offset for record in log.read()] == [0, 1, 2]
        assert not isinstance(log.fetch(0, 1000), CorruptionError)
