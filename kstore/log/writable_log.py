"""WritableLog: one partition directory with its only writer; readers in its threads need no lock.

Layer 5. What readers may see is one tuple, replaced in one step behind each append. Two locks order the changes: the
append lock for what the log is, and before it the flush lock for what must not happen while files are synced.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from operator import attrgetter

from kstore._core import AppendSurvey, LogAppender
from kstore.config import MAX_INT64, LogConfig
from kstore.errors import KStoreError, StorageError
from kstore.log.appending import (
    Ack,
    LeaderRules,
    LogAppendInfo,
    check_ack,
    check_fetched,
    check_fits_segment,
    check_offsets_fit_segment,
    follow_epochs,
    next_base_offset,
)
from kstore.log.directory import PartitionDirectory
from kstore.log.durable_point import DurablePoint, DurablePointFile
from kstore.log.env import DEFAULT_ENV, Env
from kstore.log.failing_log import FailingLog
from kstore.log.group_commit import GroupCommit
from kstore.log.lock import PartitionLock, disown_in_child
from kstore.log.log_segments import LogSegments
from kstore.log.producer_append import BatchMetadata, producer_batches_in
from kstore.log.producer_state import PreparedAppend, VerificationGuard
from kstore.log.recovery_report import LoadedLog, RecoveryMode, RecoveryReport
from kstore.log.root_checkpoints import PartitionMarks
from kstore.log.segment import LogSegment
from kstore.log.transaction_index import AbortedTxn
from kstore.log.truncation import remainder_below, replay_producers
from kstore.log.writer_files import WriterFiles
from kstore.record import MemoryRecords, Record, RecordBatch
from kstore.record.validation import AppendOrigin
from kstore.types import NO_TIMESTAMP

_CLIENT = AppendOrigin.CLIENT


class WritableLog(FailingLog):
    """The log in one partition directory with the right to write it; a context manager that closes it.

    What append returned from survives the end of the process, with ack "flushed" also a power cut. After a write or a
    sync that failed it takes no more until it is opened anew (LogFailedError), but for a write that found no space,
    which leaves nothing behind; readers go on. An iterator gives what the log held when it was asked for; if the log is
    cut under it, it goes on or raises OffsetOutOfRangeError.
    Attributes: leader_epochs, producer_state (for its answers; the log changes it), recovery_report (of the opening).
    Raises: from every method that writes: LogClosedError, LogFailedError, StorageError; LogLockedError after a fork.
    Threads: any number read and append; append with ack "flushed" and flush share their syncs.
    Source: Kafka UnifiedLog, LocalLog.
    """

    def __init__(
        self, directory: PartitionDirectory, *, config: LogConfig, loaded: LoadedLog, files: WriterFiles, env: Env
    ) -> None:
        self._loaded = loaded
        self._env = env
        super().__init__(directory, config=config, env=env)
        self.leader_epochs = loaded.leader_epochs
        self.producer_state = loaded.producer_state
        self.recovery_report: RecoveryReport = loaded.report
        self._writer_files = files
        self._durable_point: DurablePointFile = files.durable_point
        self._rules = LeaderRules(config)
        self._append_lock = threading.Lock()
        self._flush_lock = threading.Lock()
        self._flushes_by_itself = (config.flush_messages, config.flush_ms) != (MAX_INT64, MAX_INT64)
        self._needs_no_flush = not self._flushes_by_itself
        self._group = GroupCommit(self._sync)
        self._flushed_offset = loaded.recovery_point
        self._flushed_ms = env.monotonic_ms()
        self._rolled_offset: int | None = None
        # To which offset the log was cut last, and where its last batch ended then.
        self._cut = (-1, -1)
        producers, verifications = self.producer_state.tables()
        self._appender = LogAppender(
            LogAppendInfo,
            assigner=self._rules.assigner,
            max_batch_bytes=config.max_batch_bytes,
            log_start_offset=loaded.log_start_offset,
            leader_epoch=self.leader_epochs.latest_epoch,
            producers=producers,
            verifications=verifications,
        )
        self._publish(loaded.log_end_offset)
        self.producer_state.on_high_watermark(self.high_watermark)
        self._is_clean = False
        self._is_writable = True
        disown_in_child(self)

    @classmethod
    def open(
        cls,
        directory: PartitionDirectory,
        *,
        config: LogConfig,
        recovery: RecoveryMode = "strict",
        trusts_recovery_point: bool = False,
        lock: PartitionLock | None = None,
        is_clean: bool | None = None,
        env: Env = DEFAULT_ENV,
    ) -> WritableLog:
        """Lock, load and if need be recover the log; see kstore.open_log.

        Args: lock: of this partition, released by close(), for who keeps the root's checkpoints and marker; is_clean:
            then, whether the log was closed. None to take the lock, and to keep them.
        """
        files = WriterFiles.acquire(directory, lock=lock, env=env)
        try:
            loaded = files.load(
                config=config, mode=recovery, trusts_recovery_point=trusts_recovery_point, is_clean=is_clean
            )
            return cls(directory, config=config, loaded=loaded, files=files, env=env)
        except BaseException:
            files.release()
            raise

    # Appends

    def append(
        self,
        records: MemoryRecords | RecordBatch | Iterable[Record],
        *,
        ack: Ack = "written",
        partition_leader_epoch: int | None = None,
        origin: AppendOrigin = _CLIENT,
        guard: VerificationGuard | None = None,
    ) -> LogAppendInfo:
        """Append as the partition's leader: check the records and give them the next offsets.

        Args: records: MemoryRecords as a producer sends them (offsets from 0; one batch if it is V2 or compressed); a
            batch, of whatever offsets; or Record objects, which become one batch in the topic's codec. What is given
            stays as it is.
            ack: what has happened when this returns: "written" (or "buffered", a word for producers) survives the end
            of the process, "flushed" a power cut.
            partition_leader_epoch: None for the epoch of the last append, 0 in a new log.
            guard: of a transaction that was verified; see ProducerStateManager.start_verification.
        Raises: before anything is written: CorruptRecordError, InvalidRecordError, UnsupportedError;
            RecordValidationError and its kin, RecordTooLargeError, RecordBatchTooLargeError, ProducerStateError.
        Cost: one write; for one V2 batch that needs no more than new header fields, of a producer that goes on where it
            was, one compiled call; else an object per batch.
        Source: Kafka UnifiedLog.appendAsLeader.
        """
        if ack != "written":
            check_ack(ack)
        sent = records if isinstance(records, MemoryRecords) else self._rules.pack(records)
        with self._append_lock:
            if not self._is_writable:
                self._check_writable()
            now_ms = self._env.wall_clock_ms()
            done: LogAppendInfo | AppendSurvey | None = None
            if origin is _CLIENT:
                try:
                    done = self._appender.append_sent(sent.buffer, leader_epoch=partition_leader_epoch, now_ms=now_ms)
                except BaseException as error:
                    self._fail_unless_undone(error)
                    raise
            if done is None or isinstance(done, AppendSurvey):
                done = self._append_sent(
                    sent, done, leader_epoch=partition_leader_epoch, origin=origin, now_ms=now_ms, guard=guard
                )
        return done if self._needs_no_flush and ack == "written" else self._flushed_behind(done, ack)

    def append_batches(
        self, batches: Sequence[MemoryRecords], *, ack: Ack = "written"
    ) -> list[LogAppendInfo | KStoreError]:
        """Append what producers sent, each as append does, by as few writes and locks as can be.

        Returns: of each in order what was done, or why it was refused. Behind one that could not be written
            (StorageError) none is tried: that error is theirs too.
        Raises: LogClosedError, LogFailedError before anything is written. With ack "flushed" the error of a flush is
            that of all that were appended.
        """
        check_ack(ack)
        with self._append_lock:
            if not self._is_writable:
                self._check_writable()
            now_ms = self._env.wall_clock_ms()
            sent = list(batches)
            done: list[LogAppendInfo | KStoreError] = []
            while len(done) < len(batches):
                try:
                    together = self._append_together(sent, start=len(done), now_ms=now_ms)
                    done += together
                    if not together:
                        done.append(self._append_sent(batches[len(done)], None, now_ms=now_ms))
                except StorageError as error:
                    done += [error] * (len(batches) - len(done))
                except KStoreError as error:
                    done.append(error)
        return self._all_flushed_behind(done, ack)

    def _append_together(self, batches: list[MemoryRecords], *, start: int, now_ms: int) -> list[LogAppendInfo]:
        """Append, under the append lock, those of the batches from one on that are common appends."""
        with self._failing_unless_undone():
            return self._appender.append_all_sent(batches, start=start, now_ms=now_ms)

    def _all_flushed_behind(
        self, done: list[LogAppendInfo | KStoreError], ack: Ack
    ) -> list[LogAppendInfo | KStoreError]:
        """Flush what several appends have to wait for, without the append lock."""
        appended = [info for info in done if not isinstance(info, KStoreError)]
        if not appended or (self._needs_no_flush and ack == "written"):
            return done
        try:
            self._flushed_behind(max(appended, key=attrgetter("last_offset")), ack)
        except KStoreError as error:
            return [one if isinstance(one, KStoreError) else error for one in done]
        return done

    def append_as_follower(self, records: MemoryRecords, *, ack: Ack = "written") -> LogAppendInfo:
        """Append batches with the offsets that their leader gave; gaps are allowed, an incomplete last batch falls off.

        Raises: CorruptRecordError, InvalidRecordError, UnsupportedMagicError; OffsetsOutOfOrderError;
            UnexpectedAppendOffsetError below the log's end; RecordBatchTooLargeError; nothing is written then.
        Cost: one write and one compiled call.  Source: Kafka UnifiedLog.appendAsFollower.
        """
        if ack != "written":
            check_ack(ack)
        with self._append_lock:
            if not self._is_writable:
                self._check_writable()
            try:
                done: LogAppendInfo | AppendSurvey = self._appender.append_replicated(records.buffer)
            except BaseException as error:
                self._fail_unless_undone(error)
                raise
            if isinstance(done, AppendSurvey):
                done = self._append_fetched(done)
        return done if self._needs_no_flush and ack == "written" else self._flushed_behind(done, ack)

    def _append_sent(
        self,
        sent: MemoryRecords,
        survey: AppendSurvey | None,
        *,
        now_ms: int,
        leader_epoch: int | None = None,
        origin: AppendOrigin = _CLIENT,
        guard: VerificationGuard | None = None,
    ) -> LogAppendInfo:
        """Append as leader, under the append lock, what asks for more than the common append."""
        append_time_ms = now_ms if self._rules.is_append_time else NO_TIMESTAMP
        if survey is None:
            survey = self._rules.survey(
                sent,
                base_offset=self._end,
                partition_leader_epoch=max(self._appender.leader_epoch, 0) if leader_epoch is None else leader_epoch,
                now_ms=now_ms,
                origin=origin,
            )
            with self._failing_unless_undone():
                done: LogAppendInfo | AppendSurvey = self._appender.append(survey, log_append_time_ms=append_time_ms)
            if isinstance(done, LogAppendInfo):
                return done
        return self._append(survey, origin=origin, now_ms=now_ms, append_time_ms=append_time_ms, guard=guard)

    def _append_fetched(self, survey: AppendSurvey) -> LogAppendInfo:
        """Append as follower, under the append lock, what asks for more than the common append."""
        check_fetched(survey, log_end_offset=self._end)
        if survey.batch_count == 0:
            return LogAppendInfo(-1, -1, NO_TIMESTAMP, NO_TIMESTAMP, self._start, 0)
        origin, now_ms = AppendOrigin.REPLICATION, self._env.wall_clock_ms()
        return self._append(survey, origin=origin, now_ms=now_ms, append_time_ms=NO_TIMESTAMP, guard=None)

    def _append(
        self,
        survey: AppendSurvey,
        *,
        origin: AppendOrigin,
        now_ms: int,
        append_time_ms: int,
        guard: VerificationGuard | None,
    ) -> LogAppendInfo:
        """Append what was surveyed, with all that has to be known of it, under the append lock."""
        check_fits_segment(survey, self.config)
        rolls = self._parts.active.should_roll(survey, now_ms=now_ms)
        base_offset = next_base_offset(survey, log_end_offset=self._end) if rolls else self._parts.active.base_offset
        check_offsets_fit_segment(survey, base_offset=base_offset)
        prepared = None
        if survey.has_producers:
            batches = producer_batches_in(survey.records, config=self.config)
            prepared = self.producer_state.analyze(batches, origin=origin, verification_guard=guard)
            if prepared.duplicate is not None:
                return self._info_of_duplicate(prepared.duplicate)
        with self._restoring_epochs():
            if survey.leader_epoch != self._appender.leader_epoch or survey.has_messages or not survey.is_one_epoch:
                follow_epochs(self.leader_epochs, survey, config=self.config)
                self._appender.leader_epoch = self.leader_epochs.latest_epoch
            if rolls:
                self._roll(base_offset)
            self._write(survey, prepared)
        if prepared is not None and self._managed_watermark is None:
            self.producer_state.on_high_watermark(self._end)
        done: LogAppendInfo = self._appender.info_of(survey, log_append_time_ms=append_time_ms)
        return done

    def _write(self, survey: AppendSurvey, prepared: PreparedAppend | None) -> None:
        """Write batches, take over what they do to producers and transactions, and then let readers see them."""
        with self._failing_unless_undone():
            self._parts.active.append(survey)
            if prepared is not None:
                for one in self.producer_state.commit(prepared):
                    if one.is_aborted:
                        aborted = AbortedTxn(one.producer_id, one.first_offset, one.last_offset, one.last_stable_offset)
                        self._parts.active.transaction_index.append(aborted)
            self._publish(survey.last_offset + 1)

    def _info_of_duplicate(self, found: BatchMetadata) -> LogAppendInfo:
        append_time_ms = found.timestamp_ms if self._rules.is_append_time else NO_TIMESTAMP
        offsets = found.first_offset, found.last_offset
        return LogAppendInfo(*offsets, found.timestamp_ms, append_time_ms, self._start, 0, is_duplicate=True)

    def remove_expired_producers(self) -> int:
        """Forget producers silent for producer_id_expiration_ms, as a broker does every 10 minutes; return how many."""
        with self._append_lock:
            self._check_writable()
            return self.producer_state.remove_expired_producers(self._env.wall_clock_ms())

    # Flush and roll

    def marks(self) -> PartitionMarks:
        """Return what the checkpoints of the root should say of this log."""
        return PartitionMarks(min(self._flushed_offset, self._written_end), self._start, self.high_watermark, self._end)

    @property
    def flushed_offset(self) -> int:
        """The offset up to which the log survives a power cut, as far as is known (the recovery point)."""
        return self._flushed_offset

    def flush(self) -> int:
        """Wait until all that was appended survives a power cut, and return the offset up to which it does."""
        self._check_writable()
        return self._group.wait_until(self._end)

    def roll(self) -> int:
        """Begin a new segment, if the last one has records, and return its base offset; the old one is flushed."""
        with self._append_lock:
            self._check_writable()
            if self._parts.active.size_in_bytes:
                self._roll(self._end)
            base_offset = self._parts.active.base_offset
        rolled_offset = self._take_rolled_offset()
        if rolled_offset is not None:
            self._group.wait_until(rolled_offset)
        return base_offset

    def flush_if_due(self) -> bool:
        """Flush if flush_ms has passed since the last flush and there is something to flush; return whether it did."""
        if self._end <= self._flushed_offset:
            return False
        if self._env.monotonic_ms() - self._flushed_ms < self.config.flush_ms:
            return False
        self.flush()
        return True

    def _flushed_behind(self, info: LogAppendInfo, ack: Ack) -> LogAppendInfo:
        """Flush what an append has to wait for, without the append lock; return its info."""
        rolled_offset = None if self._rolled_offset is None else self._take_rolled_offset()
        if ack == "flushed" or info.last_offset + 1 - self._flushed_offset >= self.config.flush_messages:
            self._group.wait_until(info.last_offset + 1)
        elif rolled_offset is not None:
            self._group.wait_until(rolled_offset)
        self.flush_if_due()
        return info

    def _take_rolled_offset(self) -> int | None:
        """Return where the log was rolled, if nobody has seen to its flush since."""
        with self._append_lock:
            rolled_offset, self._rolled_offset = self._rolled_offset, None
            self._needs_no_flush = not self._flushes_by_itself
        return rolled_offset

    def _sync(self) -> int:
        with self._flush_lock:
            with self._append_lock:
                self._check_writable()
                end, active, older = self._end, self._parts.active, self._parts.unflushed
                size, durable_end = active.size_in_bytes, self._written_end
                if not older:
                    active.appender.expect_flush()
            try:
                for segment in older:
                    segment.close()
                active.flush()
            except StorageError as error:
                self._fail(error)
                raise
            if older:
                with self._append_lock:
                    self._parts.drop_flushed(older)
            self._flushed_offset, self._flushed_ms = end, self._env.monotonic_ms()
            self._durable_point.advance(DurablePoint(durable_end, active.base_offset, size))
        return end

    def _roll(self, base_offset: int) -> None:
        """Put a new segment behind the active one, whose indexes are flushed later."""
        # Its records are flushed now: no power cut may leave the new segment's without the end of these.
        written_end = self._written_end
        with self._failing_unless_undone():
            self._parts.active.records.flush()
            self._parts.roll(base_offset)
            self._cut = (-1, -1)
            self._rolled_offset = self._end
            self._needs_no_flush = False
            self._publish(self._end)
            # Where offsets are missing before the segment, a snapshot among them would tell of a segment that is lost.
            self.producer_state.delete_snapshots_between(written_end, end_offset=base_offset)
            self.producer_state.update_map_end_offset(base_offset)
            self.producer_state.take_snapshot()

    # Truncation and marks

    def update_high_watermark(self, offset: int) -> int:
        """Take over the high watermark from now on and return what it is, within the log's bounds.

        Source: Kafka UnifiedLog.updateHighWatermark.
        """
        with self._append_lock:
            self._check_writable()
            mark = self._managed_watermark = max(min(offset, self._end), self._start)
            self.producer_state.on_high_watermark(mark)
            return mark

    def truncate_to(self, offset: int) -> bool:
        """Remove every batch that holds an offset from `offset` on, durably, and return whether there was any.

        The next append gets `offset`, also where the batch that held it began below.
        Raises: ValueError for a negative offset.  Source: Kafka UnifiedLog.truncateTo.
        """
        if offset < 0:
            raise ValueError(f"offset must not be negative, got {offset}")
        with self._flush_lock, self._append_lock:
            self._check_writable()
            if offset >= self._end:
                self.leader_epochs.truncate_from_end(offset)
                self._appender.leader_epoch = self.leader_epochs.latest_epoch
                return False
            with self._cutting(offset):
                if offset < self._parts.first_base_offset:
                    self._restart_at(offset)
                else:
                    self._cut_to(offset)
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records, durably; the log starts and ends at `offset`.

        Raises: ValueError for a negative offset.  Source: Kafka UnifiedLog.truncateFullyAndStartAt.
        """
        if offset < 0:
            raise ValueError(f"offset must not be negative, got {offset}")
        with self._flush_lock, self._append_lock:
            self._check_writable()
            with self._cutting(0):
                self._restart_at(offset)

    def delete_records(self, before_offset: int) -> int:
        """Make `before_offset` the start of the log, durably, and return it; segments wholly below it are removed.

        A start that the log has passed already stays.
        Raises: OffsetOutOfRangeError above the high watermark.  Source: Kafka UnifiedLog.maybeIncrementLogStartOffset.
        """
        with self._flush_lock, self._append_lock:
            self._check_writable()
            if before_offset > self.high_watermark:
                bound = f"expected at most its high watermark {self.high_watermark}, found {before_offset}"
                raise self._out_of_range(before_offset, f"start of {self.topic_partition}: {bound}")
            if before_offset > self._start:
                self._writer_files.save_log_start_offset(before_offset)
                self._appender.log_start_offset = before_offset
            self._follow_start()
            return self._start

    def _follow_start(self) -> None:
        """Let go of what lies below the start of the log; also of what an earlier call could not."""
        self.leader_epochs.truncate_from_start(self._start)
        self.producer_state.on_log_start_offset_incremented(self._start)
        if self._parts.ends_below(self._start):
            with self._cutting(MAX_INT64):
                removed = self._parts.seal_below(self._start)
                self._publish(self._end)
                self._parts.remove(removed)
                self.producer_state.delete_snapshots_before(self._parts.first_base_offset)

    def close(self) -> None:
        """Flush, write snapshot, indexes and checkpoints as a clean shutdown leaves them, close, release the lock.

        A second call does nothing; after a failure the files are only closed.
        Raises: StorageError, with all closed and the next opening a recovery.
        """
        with self._flush_lock, self._append_lock:
            if self._is_closed:
                return
            self._is_writable = False
            with ExitStack() as files:
                files.callback(lambda: self._writer_files.close(self.marks() if self._is_clean else None))
                files.callback(self._parts.close_handlers)
                files.callback(super().close)
                try:
                    if self._failure is None and self._writer_files.is_owner:
                        self._close_segments()
                        self._is_clean = True
                except KStoreError as error:
                    self._fail(error)
                    raise

    def _close_segments(self) -> None:
        self.producer_state.update_map_end_offset(self._end)
        self.producer_state.take_snapshot()
        for segment in (*self._parts.unflushed, self._parts.active):
            segment.close()
        self._flushed_offset = self._end

    def _cut_to(self, offset: int) -> None:
        """Remove what lies at or behind an offset of the first segment or a later one."""
        self.producer_state.update_map_end_offset(self._end)
        last = [segment for segment in self.segments if segment.base_offset <= offset][-1]
        first_removed = last.translate_offset(offset)
        position = last.valid_end_position if first_removed is None else first_removed.position
        rest = remainder_below(last, position=position)
        self._flushed_offset = min(self._flushed_offset, rest.next_offset)
        self._writer_files.lower_recovery_point(rest.next_offset)
        self._durable_point.lower(DurablePoint(rest.next_offset, last.base_offset, position))
        self._parts.cut(last, offset=offset, position=position, timestamp=rest.timestamp)
        self._cut = offset, rest.next_offset
        if offset < self._start:
            self._appender.log_start_offset = offset
            self._writer_files.save_log_start_offset(offset)
        self.leader_epochs.truncate_from_end(offset)
        self._follow_cut(offset)
        replay_producers(
            self.producer_state, self.segments, log_start_offset=self._start, log_end_offset=offset, env=self._env
        )
        self.producer_state.on_high_watermark(self.high_watermark)

    def _restart_at(self, offset: int) -> None:
        """Remove all segments and begin one at an offset."""
        self._flushed_offset = 0
        self._writer_files.lower_recovery_point(0)
        self._durable_point.lower(DurablePoint(0, 0, 0))
        self._parts.restart(offset)
        self._cut = (-1, -1)
        self._appender.log_start_offset = offset
        self.leader_epochs.clear()
        self.producer_state.truncate_fully_and_start_at(offset)
        self._writer_files.save_log_start_offset(offset)
        self._follow_cut(offset)
        self._flushed_offset = offset

    def _follow_cut(self, offset: int) -> None:
        """Publish where the log ends now, with the marks below it."""
        if self._managed_watermark is not None:
            self._managed_watermark = min(self._managed_watermark, offset)
        self._publish(offset)
        self._flushed_offset = min(self._flushed_offset, self._end)
        self._group.lower(self._end)
        self._settled_state = None
        self._appender.leader_epoch = self.leader_epochs.latest_epoch

    # Inside

    @property
    def _end(self) -> int:
        return self._appender.log_end_offset

    @property
    def _written_end(self) -> int:
        """The offset behind the last batch: the log's end, unless a cut inside a batch was the last change."""
        end, written_end = self._cut
        return written_end if end == self._end else self._end

    @property
    def _start(self) -> int:
        return self._appender.log_start_offset

    def _publish(self, log_end_offset: int) -> None:
        """Let readers see the segments as they are now."""
        parts = self._parts
        self._appender.publish(parts.sealed, parts.active, parts.active.appender, log_end_offset=log_end_offset)

    def disown(self) -> None:
        self._is_writable = False
        self._append_lock, self._flush_lock = threading.Lock(), threading.Lock()

    def _find_segments(self, env: Env) -> tuple[LogSegment, ...]:
        """Open the last segment that was loaded for appends; the others only when they are read."""
        self._parts = LogSegments(self._context, self._loaded.segments, env=env)
        return ()
