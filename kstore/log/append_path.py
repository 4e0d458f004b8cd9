"""AppendPath: an append that asks for more than one compiled call, from what a client sent to what readers see.

Layer 5. Checks and offsets (LeaderRules), the segment, producers, leader epochs, the write, the publication: nothing is
written before all have agreed, and a refusal leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from kstore._core import AppendSurvey
from kstore.config import LogConfig
from kstore.errors import KStoreError, StorageError
from kstore.log.appending import (
    LeaderRules,
    LogAppendInfo,
    check_fetched,
    check_fits_segment,
    check_offsets_fit_segment,
    follow_epochs,
    next_base_offset,
)
from kstore.log.checkpoints import EpochEntry
from kstore.log.durability import Durability
from kstore.log.env import Env
from kstore.log.leader_epochs import LeaderEpochCache
from kstore.log.local_log import LocalLog
from kstore.log.producer_append import BatchMetadata, producer_batches_in
from kstore.log.producer_state import PreparedAppend, ProducerStateManager, VerificationGuard
from kstore.log.transaction_index import AbortedTxn
from kstore.log.write_gate import WriteGate
from kstore.record import AppendOrigin, MemoryRecords
from kstore.types import NO_TIMESTAMP


@dataclass(frozen=True, kw_only=True)
class AppendPath:
    """The way of an append into one log; it keeps no state of its own.

    Threads: the append lock guards every method.
    """

    local: LocalLog
    rules: LeaderRules
    epochs: LeaderEpochCache
    producers: ProducerStateManager
    durability: Durability
    gate: WriteGate
    config: LogConfig
    env: Env

    def append_all_sent(self, batches: Sequence[MemoryRecords], *, now_ms: int) -> list[LogAppendInfo | KStoreError]:
        """Append as leader each batch, those together that are common appends; see WritableLog.append_batches."""
        sent = list(batches)
        done: list[LogAppendInfo | KStoreError] = []
        while len(done) < len(sent):
            try:
                together = self._append_together(sent, start=len(done), now_ms=now_ms)
                done += together
                if not together:
                    done.append(self.append_sent(sent[len(done)], None, now_ms=now_ms))
            except StorageError as error:
                done += [error] * (len(sent) - len(done))
            except KStoreError as error:
                done.append(error)
        return done

    def append_sent(
        self,
        sent: MemoryRecords,
        survey: AppendSurvey | None,
        *,
        now_ms: int,
        leader_epoch: int | None = None,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: VerificationGuard | None = None,
    ) -> LogAppendInfo:
        """Append as leader; survey: None if the records have no offsets yet."""
        append_time_ms = now_ms if self.rules.is_append_time else NO_TIMESTAMP
        if survey is None:
            appender = self.local.appender
            survey = self.rules.survey(
                sent,
                base_offset=self.local.log_end_offset,
                partition_leader_epoch=max(appender.leader_epoch, 0) if leader_epoch is None else leader_epoch,
                now_ms=now_ms,
                origin=origin,
            )
            with self._failing_unless_undone():
                done: LogAppendInfo | AppendSurvey = appender.append(survey, log_append_time_ms=append_time_ms)
            if isinstance(done, LogAppendInfo):
                return done
        return self._append(survey, origin=origin, now_ms=now_ms, append_time_ms=append_time_ms, guard=guard)

    def append_fetched(self, survey: AppendSurvey) -> LogAppendInfo:
        """Append as follower."""
        check_fetched(survey, log_end_offset=self.local.log_end_offset)
        if survey.batch_count == 0:
            return LogAppendInfo(-1, -1, NO_TIMESTAMP, NO_TIMESTAMP, self.local.log_start_offset, 0)
        origin, now_ms = AppendOrigin.REPLICATION, self.env.wall_clock_ms()
        return self._append(survey, origin=origin, now_ms=now_ms, append_time_ms=NO_TIMESTAMP, guard=None)

    def roll(self, base_offset: int) -> None:
        """Put a new segment after the active one, whose records are durable then; its indexes are flushed later.

        Otherwise a power cut could leave records of the new segment without the last ones of the old.
        """
        local, producers = self.local, self.producers
        written_end = local.written_end_offset
        self.gate.check_place(local.active.records)
        with self._failing_unless_undone():
            local.roll(base_offset)
            self.durability.note_roll()
            local.publish(local.log_end_offset)
            # Where offsets are missing before the segment, a snapshot among them would tell of a segment that is lost.
            producers.delete_snapshots_between(written_end, end_offset=base_offset)
            producers.update_map_end_offset(base_offset)
            producers.take_snapshot()

    def fail_unless_undone(self, error: BaseException) -> None:
        """Shut the gate after an error that may leave something behind: any of the disk's but a lack of space, or an
        interrupt between a write and its publication."""
        is_undone = self.local.is_published
        if isinstance(error, StorageError):
            is_undone = is_undone and error.is_out_of_space and not self.local.active.records.has_failed
        if not is_undone:
            self.gate.fail(error)

    def _append_together(self, sent: list[MemoryRecords], *, start: int, now_ms: int) -> list[LogAppendInfo]:
        """Append those of the batches from one on that are common appends."""
        try:
            return self.local.appender.append_all_sent(sent, start=start, now_ms=now_ms)
        except BaseException as error:
            self.fail_unless_undone(error)
            raise

    def _append(
        self,
        survey: AppendSurvey,
        *,
        origin: AppendOrigin,
        now_ms: int,
        append_time_ms: int,
        guard: VerificationGuard | None,
    ) -> LogAppendInfo:
        """Append what was surveyed, with all that has to be known of it."""
        local = self.local
        check_fits_segment(survey, self.config)
        rolls = local.active.should_roll(survey, now_ms=now_ms)
        base_offset = local.active.base_offset
        if rolls:
            base_offset = next_base_offset(survey, log_end_offset=local.log_end_offset)
        check_offsets_fit_segment(survey, base_offset=base_offset)
        prepared = None
        if survey.has_producers:
            batches = producer_batches_in(survey.records, config=self.config)
            prepared = self.producers.analyze(batches, origin=origin, verification_guard=guard)
            if prepared.duplicate is not None:
                return self._info_of_duplicate(prepared.duplicate)
        with self._restoring_epochs():
            if survey.leader_epoch != local.appender.leader_epoch or survey.has_messages or not survey.is_one_epoch:
                follow_epochs(self.epochs, survey, config=self.config)
                local.follow(self.epochs)
            if rolls:
                self.roll(base_offset)
            self._write(survey, prepared)
        if prepared is not None:
            self.producers.on_high_watermark(local.high_watermark)
        done: LogAppendInfo = local.appender.info_of(survey, log_append_time_ms=append_time_ms)
        return done

    def _write(self, survey: AppendSurvey, prepared: PreparedAppend | None) -> None:
        """Write batches, take over what they do to producers and transactions, and then let readers see them."""
        local = self.local
        with self._failing_unless_undone():
            local.active.append(survey)
            if prepared is not None:
                for one in self.producers.commit(prepared):
                    if one.is_aborted:
                        aborted = AbortedTxn(one.producer_id, one.first_offset, one.last_offset, one.last_stable_offset)
                        local.active.transaction_index.append(aborted)
            local.publish(survey.last_offset + 1)

    def _info_of_duplicate(self, found: BatchMetadata) -> LogAppendInfo:
        append_time_ms = found.timestamp_ms if self.rules.is_append_time else NO_TIMESTAMP
        offsets = found.first_offset, found.last_offset
        start = self.local.log_start_offset
        return LogAppendInfo(*offsets, found.timestamp_ms, append_time_ms, start, 0, is_duplicate=True)

    @contextmanager
    def _failing_unless_undone(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.fail_unless_undone(error)
            raise

    @contextmanager
    def _restoring_epochs(self) -> Iterator[None]:
        """Take the leader epochs of an append back if it leaves nothing else behind."""
        before, end = self.epochs.entries, self.local.log_end_offset
        try:
            yield
        except BaseException:
            if self.gate.failure is None and self.local.log_end_offset == end:
                self._restore_epochs(before)
            raise

    def _restore_epochs(self, entries: tuple[EpochEntry, ...]) -> None:
        try:
            self.epochs.restore(entries)
        except StorageError as error:
            self.gate.fail(error)
        self.local.follow(self.epochs)
