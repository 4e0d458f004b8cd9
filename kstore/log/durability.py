"""Durability: how much of a log survives a power cut, and the syncs that make it more.

Layer 5. Syncs run outside the append lock; threads that wait for one share it (GroupCommit).
"""

from __future__ import annotations

from kstore.config import MAX_INT64, LogConfig
from kstore.errors import StorageError
from kstore.log.appending import Ack
from kstore.log.durable_point import DurablePoint
from kstore.log.env import Env
from kstore.log.group_commit import GroupCommit
from kstore.log.local_log import LocalLog
from kstore.log.write_gate import WriteGate
from kstore.log.writer_files import WriterFiles


class Durability:
    """The recovery point of one log, and who waits for it.

    Attributes: flushed_offset (the recovery point: all below it survives a power cut), needs_no_flush (whether an
    append with ack "written" has nothing to wait for).
    Threads: safe; what says so asks for the append lock, or for both.
    """

    def __init__(
        self,
        local: LocalLog,
        *,
        gate: WriteGate,
        files: WriterFiles,
        flushed_offset: int,
        config: LogConfig,
        env: Env,
    ) -> None:
        self._local = local
        self._gate = gate
        self._files = files
        self._config = config
        self._env = env
        self._durable_point = files.durable_point
        self._group = GroupCommit(self._sync)
        self.flushed_offset = flushed_offset
        self._flushed_ms = env.monotonic_ms()
        self._rolled_offset: int | None = None
        self._flushes_by_itself = (config.flush_messages, config.flush_ms) != (MAX_INT64, MAX_INT64)
        self.needs_no_flush = not self._flushes_by_itself

    def flush(self) -> int:
        """Wait until all that was appended is durable, and return the offset up to which it is."""
        gate, end = self._gate, self._local.log_end_offset
        gate.check()
        if self.flushed_offset >= end:
            # No sync will look.
            with gate.flush_lock:
                gate.check()
                gate.check_place(self._local.active.records)
        return self._group.wait_until(end)

    def flush_if_due(self) -> bool:
        """Flush if flush_ms has passed since the last flush and there is something to flush; return whether it did."""
        if self._local.log_end_offset <= self.flushed_offset:
            return False
        if self._env.monotonic_ms() - self._flushed_ms < self._config.flush_ms:
            return False
        self.flush()
        return True

    def flush_behind(self, last_offset: int, ack: Ack) -> None:
        """Flush what an append up to last_offset has to wait for."""
        rolled_offset = None if self._rolled_offset is None else self._take_rolled_offset()
        if ack == "flushed" or last_offset + 1 - self.flushed_offset >= self._config.flush_messages:
            self._group.wait_until(last_offset + 1)
        elif rolled_offset is not None:
            self._flush_rolled_to(rolled_offset)
        self.flush_if_due()

    def flush_rolled(self) -> None:
        """Flush the segment that was rolled last, unless that was seen to."""
        rolled_offset = self._take_rolled_offset()
        if rolled_offset is not None:
            self._flush_rolled_to(rolled_offset)

    def _flush_rolled_to(self, offset: int) -> None:
        self._group.wait_until(offset)
        if self._local.unflushed:
            # All its records were durable already: no flush has closed its files.
            self._sync()

    def note_roll(self) -> None:
        """Under the append lock, leave it to the next flush_behind or flush_rolled to flush what lies there now."""
        self._rolled_offset = self._local.log_end_offset
        self.needs_no_flush = False

    def lower(self, point: DurablePoint) -> None:
        """Under both locks, take back all above a point, durably, before the log is cut to it.

        Raises: StorageError; the log must not be cut then.
        """
        self.flushed_offset = min(self.flushed_offset, point.offset)
        self._files.lower_recovery_point(point.offset)
        self._durable_point.lower(point)

    def follow_cut(self) -> None:
        """Under both locks, let no flush of before answer for offsets behind the log's end, which are used again."""
        self._group.lower(self._local.log_end_offset)

    def follow_restart(self) -> None:
        """Under both locks, follow a log that begins anew with a segment that is durable."""
        self.follow_cut()
        self.flushed_offset = self._local.log_end_offset

    def close(self) -> None:
        """Under both locks, close the segments that take appends or were not flushed, with all that is in them durable.

        Raises: StorageError.
        """
        for segment in (*self._local.unflushed, self._local.active):
            segment.close()
        self.flushed_offset = self._local.log_end_offset

    def _take_rolled_offset(self) -> int | None:
        """Return where the log was rolled, if nobody has seen to its flush since."""
        with self._gate.append_lock:
            rolled_offset, self._rolled_offset = self._rolled_offset, None
            self.needs_no_flush = not self._flushes_by_itself
        return rolled_offset

    def _sync(self) -> int:
        local, gate = self._local, self._gate
        with gate.flush_lock:
            with gate.append_lock:
                gate.check()
                end, active, older = local.log_end_offset, local.active, local.unflushed
                point = DurablePoint(local.written_end_offset, active.base_offset, active.size_in_bytes)
                if not older:
                    active.appender.expect_flush()
            gate.check_place(active.records)
            try:
                for segment in older:
                    segment.close()
                active.flush()
            except StorageError as error:
                gate.fail(error)
                raise
            if older:
                with gate.append_lock:
                    local.drop_flushed(older)
            self.flushed_offset, self._flushed_ms = end, self._env.monotonic_ms()
            self._durable_point.advance(point)
        return end
