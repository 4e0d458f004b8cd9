"""LogCutting: a log that is cut at its end, begun anew, or let go of at its start.

Layer 5. Readers are told before the first file changes and behind the last change; what counts as durable is lowered,
durably, before anything below it goes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kstore.config import MAX_INT64
from kstore.log.cuts import Cuts
from kstore.log.durability import Durability
from kstore.log.durable_point import DurablePoint
from kstore.log.env import Env
from kstore.log.leader_epochs import LeaderEpochCache
from kstore.log.local_log import LocalLog
from kstore.log.producer_append import producer_batch
from kstore.log.producer_state import ProducerStateManager
from kstore.log.write_gate import WriteGate
from kstore.log.writer_files import WriterFiles
from kstore.record import RecordBatch
from kstore.types import NO_PRODUCER_ID, NO_TIMESTAMP, TimestampOffset


@dataclass(frozen=True, kw_only=True)
class LogCutting:
    """The removal of records from one log; it keeps no state of its own, and a step that fails shuts the gate.

    Threads: both locks guard every method.
    """

    local: LocalLog
    cuts: Cuts
    epochs: LeaderEpochCache
    producers: ProducerStateManager
    durability: Durability
    gate: WriteGate
    files: WriterFiles
    env: Env

    def truncate_to(self, offset: int) -> bool:
        """Remove every batch that holds an offset from `offset` on, and return whether there was any."""
        if offset >= self.local.log_end_offset:
            self.epochs.truncate_from_end(offset)
            self.local.follow(self.epochs)
            return False
        self.gate.check_place(self.local.active.records)
        with self._cutting(offset):
            if offset < self.local.first_base_offset:
                self._restart_at(offset)
            else:
                self._cut_to(offset)
        return True

    def restart_at(self, offset: int) -> None:
        """Remove all records; the log starts and ends at `offset`."""
        self.gate.check_place(self.local.active.records)
        with self._cutting(0):
            self._restart_at(offset)

    def start_at(self, offset: int) -> int:
        """Let the log start at an offset, unless it starts behind it; return where it starts.

        Let go of what lies below; also of what an earlier call could not.
        """
        local = self.local
        self.gate.check_place(local.active.records)
        if offset > local.log_start_offset:
            self.files.save_log_start_offset(offset)
            local.move_start(offset)
        start = local.log_start_offset
        self.epochs.truncate_from_start(start)
        self.producers.on_log_start_offset_incremented(start)
        if local.ends_below(start):
            with self._cutting(MAX_INT64):
                self.producers.delete_snapshots_at(local.remove_below(start))
        return start

    def _cut_to(self, offset: int) -> None:
        """Remove what lies at or behind an offset of the first segment or a later one."""
        local = self.local
        self.producers.update_map_end_offset(local.log_end_offset)
        last = [segment for segment in local.segments if segment.base_offset <= offset][-1]
        first_removed = last.translate_offset(offset)
        position = last.valid_end_position if first_removed is None else first_removed.position
        rest = last.records.walk(position=0, end_position=position)
        written_end = rest.last_offset + 1 if rest.last_offset >= 0 else last.base_offset
        timestamp = TimestampOffset(NO_TIMESTAMP, -1)
        if rest.max_timestamp_ms > NO_TIMESTAMP:
            timestamp = TimestampOffset(rest.max_timestamp_ms, rest.offset_of_max_timestamp)
        self.durability.lower(DurablePoint(written_end, last.base_offset, position))
        local.cut(last, offset=offset, position=position, timestamp=timestamp, written_end_offset=written_end)
        if offset < local.log_start_offset:
            local.move_start(offset)
            self.files.save_log_start_offset(offset)
        self.epochs.truncate_from_end(offset)
        local.follow(self.epochs)
        local.publish(offset)
        self.durability.follow_cut()
        self._reload_producers(offset)
        self.producers.on_high_watermark(local.high_watermark)

    def _restart_at(self, offset: int) -> None:
        """Remove all segments and begin one at an offset."""
        self.durability.lower(DurablePoint(0, 0, 0))
        self.local.restart(offset)
        self.epochs.clear()
        self.local.follow(self.epochs)
        self.producers.truncate_fully_and_start_at(offset)
        self._reload_producers(offset)
        self.files.save_log_start_offset(offset)
        self.local.publish(offset)
        self.durability.follow_restart()

    def _reload_producers(self, end_offset: int) -> None:
        """Set the producers back to the end of the log: the newest snapshot below it, and the log after that.

        As in Kafka, snapshots are taken on the way, at the last two segments, and at the end.
        Source: Kafka UnifiedLog.rebuildProducerState.
        """
        local, producers = self.local, self.producers
        producers.truncate_and_reload(
            log_start_offset=local.log_start_offset, log_end_offset=end_offset, now_ms=self.env.wall_clock_ms()
        )
        start, segments = producers.map_end_offset, local.segments
        for number, segment in enumerate(segments) if start < end_offset else ():
            if segment.next_base_offset is not None and segment.next_base_offset <= start:
                continue
            if segment.base_offset >= end_offset:
                break
            producers.update_map_end_offset(max(segment.base_offset, producers.map_end_offset))
            if number >= len(segments) - 2:
                producers.take_snapshot()
            first = segment.translate_offset(start)
            if first is None:
                continue
            batches = segment.records.read_batches(position=first.position, end_position=segment.scan_end_position)
            producers.replay_together(
                producer_batch(RecordBatch(data, position=header.position, path=segment.path))
                for header, data in batches
                if header.producer_id > NO_PRODUCER_ID
            )
        producers.update_map_end_offset(end_offset)
        producers.take_snapshot()

    @contextmanager
    def _cutting(self, offset: int) -> Iterator[None]:
        """Tell readers that what lies at an offset and behind it goes, and take no more if that fails on the way."""
        with self.cuts.under_way(offset):
            try:
                yield
            except BaseException as error:
                self.gate.fail(error)
                raise
