"""Goal: whatever is done to a log, it holds what a list would hold, and nothing that was acknowledged is ever lost.
Method: Hypothesis drives a log and a list side by side: appends, flushes, rolls, cuts, reopenings, kills, faults."""

from __future__ import annotations

import errno
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kstore.config import LogConfig
from kstore.env import LocalEnv, WriteFile
from kstore.errors import LogFailedError, OffsetOutOfRangeError, StorageError
from kstore.log.write.writable_log import WritableLog
from kstore.record import MemoryRecords, Record
from kstore.record.builder import with_records
from kstore.store.opening import open_log
from tests.fakes.short_writes import ShortWrites
from tests.making.strategies import examples

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SMALL = LogConfig(segment_bytes=900, index_interval_bytes=100, segment_index_bytes=240)


class Row(NamedTuple):
    """A record as the model keeps it; first_offset and last_offset are those of its batch."""

    offset: int
    timestamp_ms: int
    value: bytes
    last_offset: int


class FaultyFile(ShortWrites):
    """A file whose writes and syncs fail when its env says so."""

    env: FaultyEnv

    def pwrite(self, data: bytes | bytearray | memoryview, *, position: int) -> None:
        if self.env.fails():
            half = memoryview(data)[: len(data) // 2]
            super().pwrite(half, position=position)
            raise StorageError("armed", path=self.path, errno=self.env.errno)
        super().pwrite(data, position=position)

    def truncate(self, size: int) -> None:
        if self.env.fails():
            raise StorageError("armed", path=self.path, errno=self.env.errno)
        super().truncate(size)

    def sync(self) -> None:
        if self.env.fails():
            raise StorageError("armed", path=self.path, errno=errno.EIO)


class FaultyEnv(LocalEnv):
    """An env whose calls of files that are written fail `failures` times, after `calls_before` went well.

    Nothing is really synced: here no power is cut.
    """

    calls_before = 0
    failures = 0
    errno = errno.EIO

    def fails(self) -> bool:
        if self.failures == 0:
            return False
        if self.calls_before:
            self.calls_before -= 1
            return False
        self.failures -= 1
        return True

    def sync_directory(self, path: str) -> None:
        pass

    def open_write(self, path: str) -> WriteFile:
        file = super().open_write(path)
        faulty = FaultyFile(file._fd, path=path, is_new=file.is_new)
        file._fd = -1
        faulty.env = self
        return faulty


class LogMachine(RuleBasedStateMachine):
    """The log, and the list that it has to equal."""

    @initialize()
    def open(self) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.env = FaultyEnv()
        self.rows: list[Row] = []
        self.start = self.end = self.flushed = 0
        self.counter = 0
        self.log = self.opened()

    def opened(self) -> WritableLog:
        return open_log(self.root / "t-0", "a", SMALL, env=self.env)

    def batch(self, count: int, *, timestamp_ms: int) -> list[Record]:
        self.counter += 1
        return [
            Record(offset=0, timestamp_ms=timestamp_ms + n, key=b"k", value=b"%d-%d" % (self.counter, n) * 5)
            for n in range(count)
        ]

    def note(self, records: list[Record], first_offset: int) -> None:
        last = first_offset + len(records) - 1
        self.rows += [Row(first_offset + n, one.timestamp_ms, one.value, last) for n, one in enumerate(records)]
        self.end = last + 1

    @rule(
        count=st.integers(1, 6),
        codec=st.sampled_from(CODECS),
        timestamp_ms=st.integers(0, 1000),
        is_flushed=st.booleans(),
    )
    def append(self, count: int, codec: str, timestamp_ms: int, is_flushed: bool) -> None:
        records = self.batch(count, timestamp_ms=timestamp_ms)
        info = self.log.append(with_records(records, compression=codec), ack="flushed" if is_flushed else "written")
        assert (info.base_offset, info.last_offset) == (self.end, self.end + count - 1)
        self.note(records, info.base_offset)
        if is_flushed:
            self.flushed = self.end

    @rule(count=st.integers(1, 3), gap=st.integers(0, 50), batch_count=st.integers(1, 3))
    def append_fetched(self, count: int, gap: int, batch_count: int) -> None:
        data, at = b"", self.end + gap
        for _ in range(batch_count):
            records = self.batch(count, timestamp_ms=5)
            data += bytes(with_records(records, base_offset=at, partition_leader_epoch=0))
            self.note(records, at)
            at = self.end
        self.log.append_as_follower(MemoryRecords(data))

    @rule()
    def flush(self) -> None:
        assert self.log.flush() == self.end
        self.flushed = self.end

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.end + 1))
        assert self.log.truncate_to(offset) == (offset < self.end)
        if offset < self.end:
            self.rows = [row for row in self.rows if row.last_offset < offset]
            self.end = offset
            self.start = min(self.start, offset)
            self.flushed = min(self.flushed, offset)

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.end))
        self.log.delete_records(offset)
        self.start = max(self.start, offset)

    @rule(offset=st.integers(0, 200))
    def restart(self, offset: int) -> None:
        self.log.truncate_fully_and_start_at(offset)
        self.rows, self.start, self.end = [], offset, offset

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.log = self.opened()
        self.settle_end()

    @rule()
    def kill(self) -> None:
        abandon(self.log)
        self.log = self.opened()
        self.settle_end()

    @rule(
        calls_before=st.integers(0, 6),
        failures=st.sampled_from([1, 1000]),
        code=st.sampled_from([errno.EIO, errno.ENOSPC]),
        action=st.sampled_from(["append", "flush", "roll", "truncate"]),
    )
    def fault(self, calls_before: int, failures: int, code: int, action: str) -> None:
        records = self.batch(2, timestamp_ms=7)
        self.env.calls_before, self.env.failures, self.env.errno = calls_before, failures, code
        is_done = True
        try:
            if action == "append":
                self.log.append(with_records(records), ack="flushed")
            elif action == "flush":
                self.log.flush()
            elif action == "roll":
                self.log.roll()
            else:
                self.log.truncate_to(max(self.end - 1, 0))
        except StorageError:
            is_done = False
        self.env.failures = 0
        if is_done and action == "append":
            self.note(records, self.end)
        if action == "truncate":
            self.recover_after_cut(is_done=is_done)
        elif not is_done:
            self.recover(records if action == "append" else [])

    def recover_after_cut(self, *, is_done: bool) -> None:
        """Reopen a log whose cut failed, or may have: the batch at its end is there or not."""
        offset = max(self.end - 1, 0)
        shorter = [row for row in self.rows if row.last_offset < offset]
        if not is_done:
            abandon(self.log)
            self.log = self.opened()
        self.start = self.log.log_start_offset
        left = [row.value for row in shorter if row.offset >= self.start]
        if self.values() == left:
            self.rows = shorter
        assert self.values() in (left, self.expected())
        self.end = self.log.log_end_offset

    def recover(self, records: list[Record]) -> None:
        """Go on after an error: what was acknowledged is there, and what was not wholly or not at all."""
        if self.log.has_failed:
            with pytest.raises(LogFailedError):
                self.log.append(with_records(self.batch(1, timestamp_ms=1)))
            assert self.values() in (self.expected(), self.expected() + [one.value for one in records])
            abandon(self.log)
            self.log = self.opened()
        if records and self.values() == self.expected() + [one.value for one in records]:
            self.note(records, self.log.log_end_offset - len(records))
        self.settle_end()

    def settle_end(self) -> None:
        """A log that was cut inside a batch and opened anew ends behind its last batch."""
        last = self.rows[-1].offset + 1 if self.rows else self.start
        assert self.log.log_end_offset in (self.end, max(last, self.start))
        self.end = self.log.log_end_offset

    def expected(self) -> list[bytes]:
        return [row.value for row in self.rows if row.offset >= self.start]

    def values(self) -> list[bytes]:
        return [record.value for record in self.log.read()]

    @invariant()
    def holds_the_same(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        found = [(one.offset, one.timestamp_ms, one.value) for one in log.read()]
        kept = [row for row in self.rows if row.offset >= self.start]
        assert found == [row[:3] for row in kept]
        for row in kept[:: max(len(kept) // 3, 1)]:
            assert next(log.read(row.offset)).value == row.value
            at_time = log.offset_for_timestamp(row.timestamp_ms)
            assert at_time is not None
            assert at_time.offset == next(one.offset for one in kept if one.timestamp_ms >= row.timestamp_ms)
        with pytest.raises(OffsetOutOfRangeError):
            log.read(self.end + 1)

    def teardown(self) -> None:
        if hasattr(self, "root"):
            self.env.failures = 0
            self.log.close()
            shutil.rmtree(self.root)


def abandon(log: WritableLog) -> None:
    """Leave a log as a process that is killed leaves it: all that was written is in the files, nothing is finished."""
    log._local.close_handlers()
    log._writer_files.release()
    super(WritableLog, log).close()


TestLogModel = LogMachine.TestCase
TestLogModel.settings = examples(40, stateful_step_count=20)
