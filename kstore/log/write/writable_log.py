"""WritableLog: one partition directory and its only writer, with appends, truncation and closing.

It takes the locks and decides the order of the steps. The parts that it holds own the state: LocalLog (segments,
bounds), LiveSource (what readers see), Durability (flushes, rolls, the recovery point), WriteGate (the two locks,
failures), WriterFiles (the partition lock, the root's checkpoints), LogRetention (holds, deletion from the start) and
LogCompaction. Reading is inherited from Log and needs no lock.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kstore._core import AppendSurvey, LeaderLog, Record
from kstore.config import MAX_INT32, LogConfig
from kstore.env import DEFAULT_ENV, Env, OpenFiles
from kstore.errors import KStoreError, StorageError, UnexpectedAppendOffsetError, checked_int
from kstore.log.cleaning.cleanable import CleanableLog
from kstore.log.cleaning.retention import DueSegment
from kstore.log.files.checkpoints import EpochEntry, PartitionMarks
from kstore.log.files.durable_point import DurablePoint
from kstore.log.files.indexes import IndexCache
from kstore.log.files.lock import PartitionLock
from kstore.log.files.names import PartitionDirectory
from kstore.log.files.snapshots import ProducerSnapshotEntry
from kstore.log.files.transaction_index import AbortedTxn
from kstore.log.following.key_offsets import KeyOffsets, one_key
from kstore.log.log import Log
from kstore.log.recovery.context import LoadedLog, RecoveryContext, RecoveryReport
from kstore.log.recovery.modes import RecoveryMode
from kstore.log.segment.segment import LogContext
from kstore.log.state.producer_append import BatchMetadata, producer_batches_in, producer_batches_of
from kstore.log.state.producer_state import PreparedAppend, SegmentReplay, VerificationGuard
from kstore.log.write.compaction import CompactionReport, LogCompaction, Throttle
from kstore.log.write.durability import Durability
from kstore.log.write.live_source import CleanedBelow, LiveSource
from kstore.log.write.local_log import LocalLog
from kstore.log.write.open_writers import OpenWriters
from kstore.log.write.ownership import WriteGate, WriterFiles
from kstore.log.write.retention import LogRetention, RetentionHold
from kstore.log.write.rules import (
    LeaderRules,
    LogAppendInfo,
    check_ack,
    check_fits_segment,
    check_memory_records,
    check_offsets_fit_segment,
    follow_epochs,
    joined,
    next_base_offset,
)
from kstore.record.batches import MemoryRecords, RecordBatch
from kstore.record.validation import AppendOrigin, check_replicated_offsets
from kstore.types import NO_TIMESTAMP, Ack, Time, time_ms

_CLIENT = AppendOrigin.CLIENT
_SYSTEM_WALL_CLOCK_MS = Env.wall_clock_ms
_NONE: Sequence[MemoryRecords] = ()


class LogCounts(NamedTuple):
    """What happened to a log since it was opened: appended offsets and bytes, flushes and how long they took."""

    offsets_in: int
    bytes_in: int
    flushes: int
    flush_total_ms: int
    flush_max_ms: int


class WritableLog(LeaderLog, Log):
    """The log in one partition directory, with the right to write it; a context manager that closes it.

    An append that returned survives the end of the process; with ack "flushed", also a power cut. After a failed write
    or sync the log accepts no changes until it is reopened (LogFailedError), except if the error is_retriable: the call
    found no space and left nothing in the files. Reading stays possible. An iterator returns what the log held when it
    was created; if a truncation removes records under it, it continues or raises OffsetOutOfRangeError.
    A log that is garbage-collected without close() releases its lock at once, with a ResourceWarning, and is recovered
    when it is next opened.
    Attributes: leader_epochs, producer_state (read-only for callers; the log changes it), recovery_report (of the
        opening).
    Raises: every method that writes: LogClosedError, LogFailedError, StorageError; LogLockedError after a fork.
    Threads: any number may read and append; appends with ack "flushed" and flush share their syncs.
    Source: Kafka UnifiedLog, LocalLog.
    """

    def __init__(
        self,
        directory: PartitionDirectory,
        *,
        config: LogConfig,
        loaded: LoadedLog,
        files: WriterFiles,
        env: Env,
        writers: OpenWriters | None = None,
    ) -> None:
        self._cleaned_below = CleanedBelow(RecoveryContext(directory, config, env, 0))
        self._context = context = LogContext(
            directory.topic_partition,
            directory.path,
            config,
            OpenFiles(env),
            IndexCache(env, is_mapped=config.index_access == "map"),
            self._cleaned_below,
            is_live=True,
        )
        self._rules = rules = LeaderRules(config)
        self._local = local = LocalLog(context, loaded, rules=rules, env=env)
        self._live = LiveSource(local, context=context, env=env)
        # Nothing that the log holds refers back to it, so that dropping its last reference releases it at once.
        super().__init__(self._live)
        self._system_wall_clock_ms = _SYSTEM_WALL_CLOCK_MS
        self.leader_epochs, self.producer_state = loaded.leader_epochs, loaded.producer_state
        self.recovery_report: RecoveryReport = loaded.report
        self._key_offsets = KeyOffsets(self._live)
        self._writer_files = files
        self._listeners = self._live.listeners
        self._gate = gate = WriteGate(self.topic_partition, self.path, files=files)
        self._durability = Durability(
            local,
            gate=gate,
            files=files,
            flushed_offset=loaded.recovery_point,
            producers=loaded.producer_state,
            tell=self._live.tell,
            config=config,
            env=env,
        )
        self._compaction = LogCompaction(
            local,
            live=self._live,
            gate=gate,
            files=files,
            producers=loaded.producer_state,
            flush=self._durability.flush,
            config=config,
            env=env,
        )
        self._retention = LogRetention(
            local,
            live=self._live,
            gate=gate,
            files=files,
            durability=self._durability,
            epochs=loaded.leader_epochs,
            producers=loaded.producer_state,
            config=config,
            env=env,
        )
        if writers is not None:
            writers.watch(local, gate)
        self._is_released = False
        self._dropping = weakref.finalize(self, _drop, self.path, local, files)
        # At process exit the OS releases everything, and other threads may still append.
        self._dropping.atexit = False

    @classmethod
    def open(
        cls,
        directory: PartitionDirectory,
        *,
        config: LogConfig,
        recovery: RecoveryMode = "strict",
        trusts_recovery_point: bool = False,
        lock: PartitionLock | None = None,
        timeout_s: float | None = 0.0,
        is_clean: bool | None = None,
        env: Env = DEFAULT_ENV,
        writers: OpenWriters | None = None,
    ) -> WritableLog:
        """Lock, load and, if necessary, recover the log; see kstore.open_log.

        Args: lock: the partition's lock, released by close(), from a caller that maintains the root's checkpoints and
            marker itself; None to take the lock and maintain them here. timeout_s: how long to wait for it, None
            without limit. is_clean: with a lock, whether the log was closed cleanly; None to decide by the marker.
            writers: limits how many logs have a file open.
        """
        files = WriterFiles.acquire(directory, lock=lock, timeout_s=timeout_s, env=env)
        try:
            loaded = files.load(
                config=config, mode=recovery, trusts_recovery_point=trusts_recovery_point, is_clean=is_clean
            )
            files.settle_cleaned_offset(log_start_offset=loaded.log_start_offset, log_end_offset=loaded.log_end_offset)
            return cls(directory, config=config, loaded=loaded, files=files, env=env, writers=writers)
        except BaseException:
            files.release()
            raise

    def update_config(self, config: LogConfig) -> None:
        """Change the settings of the open log; appends and deletions that begin later follow them.

        Those of reading (max_batch_bytes and so on), index_access and the size of the indexes change when the log is
        next opened, preallocate with the next segment.
        Raises: TypeError.
        Source: Kafka UnifiedLog.updateConfig.
        """
        if not isinstance(config, LogConfig):
            raise TypeError(f"config must be a LogConfig, got {config!r}")
        with self._gate.flush_lock, self._gate.append_lock:
            self._gate.check()
            self.config = config
            self._context = self._context._replace(config=config)
            self._cleaned_below.note(config)
            self._rules = LeaderRules(config)
            self._local.change_config(self._context, self._rules)
            self._durability.change_config(config)
            self._compaction.change_config(config)
            self._retention.change_config(config)
            self._key_offsets.max_bytes = config.cleaner_dedupe_buffer_bytes
            self.producer_state.change_config(config)

    @property
    def counts(self) -> LogCounts:
        """What happened since the log was opened."""
        with self._gate.append_lock:
            offsets, size_in_bytes = self._local.appended
            flushes = self._durability.flushes
            return LogCounts(offsets, size_in_bytes, flushes.count, flushes.total_ms, flushes.max_ms)

    def _shown(self) -> dict[str, object]:
        bounds = {"log_start_offset": self.log_start_offset, "log_end_offset": self.log_end_offset}
        return super()._shown() | bounds

    # Bounds

    @property
    def high_watermark(self) -> int:
        """The high watermark: the log end offset until update_high_watermark is first called."""
        return self._local.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Where the first transaction starts that is undecided or whose marker is not below the high watermark.

        The high watermark if there is none below it; the log start offset if that is higher.
        Source: Kafka UnifiedLog.lastStableOffset, ProducerStateManager.firstUnstableOffset.
        """
        return self._local.last_stable_offset

    # Appends; append() itself is compiled.

    if TYPE_CHECKING:

        def append(
            self,
            records: MemoryRecords | RecordBatch | Record | Iterable[Record],
            *,
            ack: Ack = "written",
            partition_leader_epoch: int | None = None,
            origin: AppendOrigin | None = None,
            guard: VerificationGuard | None = None,
            expected_end_offset: int | None = None,
            expected_key_offset: int | None = None,
            atomic: bool = False,
        ) -> LogAppendInfo: ...

    def _append_otherwise(
        self,
        records: MemoryRecords | RecordBatch | Record | Iterable[Record],
        ack: Ack,
        partition_leader_epoch: int | None,
        given_origin: AppendOrigin | None,
        guard: VerificationGuard | None,
        expected_end_offset: int | None,
        expected_key_offset: int | None,
        *,
        atomic: bool,
    ) -> LogAppendInfo:
        """Append with any argument but records, or records that are packed first; see append."""
        origin = _CLIENT if given_origin is None else given_origin
        if ack != "written" or origin is not _CLIENT:
            check_ack(ack)
            origin = AppendOrigin(origin)
        if expected_key_offset is not None:
            records, key = self._expecting(records)
        sent, rest = (records, _NONE) if isinstance(records, MemoryRecords) else self._packed(records, atomic=atomic)
        gate = self._gate
        if ack == "flushed" and not rest and origin is _CLIENT:
            wanted = (guard, partition_leader_epoch, expected_end_offset, expected_key_offset)
            if wanted == (None,) * 4 and (together := self._durability.append_with_others(sent)) is not None:
                return together
        with gate.append_lock:
            if not gate.is_open:
                gate.check()
            if expected_end_offset is not None:
                self._check_end(expected_end_offset)
            if expected_key_offset is not None:
                self._key_offsets.check(key, expected_key_offset)
            epoch = None if partition_leader_epoch is None else self._checked_epoch(partition_leader_epoch)
            now_ms = self._env.wall_clock_ms()
            done: LogAppendInfo | AppendSurvey | None = None
            if origin is _CLIENT:
                try:
                    done = self._local.appender.append_as_leader(sent.buffer, leader_epoch=epoch, now_ms=now_ms)
                except BaseException as error:
                    gate.fail_unless_undone(error, self._local)
                    raise
            if not isinstance(done, LogAppendInfo):
                done = self._append_as_leader(sent, done, leader_epoch=epoch, origin=origin, now_ms=now_ms, guard=guard)
            if rest:
                done = self._append_rest(done, rest, epoch, origin, guard)
        if self._listeners.any:
            self._live.tell()
        if ack == "flushed" or not self._durability.needs_no_flush:
            self._durability.flush_for_ack(done.last_offset, ack)
        return done

    def append_batches(
        self, batches: Sequence[MemoryRecords], *, ack: Ack = "written"
    ) -> list[LogAppendInfo | KStoreError]:
        """Append what producers sent, each as append does, with as few writes and lock acquisitions as possible.

        Returns: for each element in order the result, or the error that refused it. After one that could not be written
            (StorageError) no more are tried; they get the same error. The error of a flush, with any ack (see append),
            becomes the result of every append that was written.
        Raises: LogClosedError, LogFailedError before anything is written.
        """
        check_ack(ack)
        for batch in batches:
            check_memory_records(batch)
        gate = self._gate
        with gate.append_lock:
            if not gate.is_open:
                gate.check()
            done = self._append_each(batches, now_ms=self._env.wall_clock_ms())
        self._live.tell()
        if ack != "flushed" and self._durability.needs_no_flush:
            return done
        appended = [info for info in done if not isinstance(info, KStoreError)]
        if not appended:
            return done
        try:
            self._durability.flush_for_ack(max(info.last_offset for info in appended), ack)
        except KStoreError as error:
            return [result if isinstance(result, KStoreError) else error for result in done]
        return done

    def append_alone(self, batch: MemoryRecords, *, ack: Ack = "written") -> LogAppendInfo | None:
        """Append what a producer sent as append_batches does, if that is one write and nothing else.

        Returns: None, with nothing done, if it takes more: another segment, a check of its records or its producer.
        Raises: LogClosedError, LogFailedError, StorageError as append.
        Cost: one compiled call, and with ack "flushed" a shared fdatasync.
        """
        gate = self._gate
        with gate.append_lock:
            if not gate.is_open:
                gate.check()
            done: list[LogAppendInfo] = []
            self._append_run([batch], done, now_ms=self._env.wall_clock_ms())
        if not done:
            return None
        (info,) = done
        if self._listeners.any:
            self._live.tell()
        if ack == "flushed" or not self._durability.needs_no_flush:
            self._durability.flush_for_ack(info.last_offset, ack)
        return info

    def append_as_follower(self, records: MemoryRecords, *, ack: Ack = "written") -> LogAppendInfo:
        """Append batches with the offsets that their leader assigned. Gaps are allowed; an incomplete last batch is
        dropped.

        Raises: CorruptRecordError, InvalidRecordError, UnsupportedMagicError; OffsetsOutOfOrderError;
            UnexpectedAppendOffsetError below the log end offset; RecordBatchTooLargeError. Nothing is written then.
            StorageError as append.
        Cost: one write and one compiled call.  Source: Kafka UnifiedLog.appendAsFollower.
        """
        if ack != "written":
            check_ack(ack)
        check_memory_records(records)
        gate = self._gate
        with gate.append_lock:
            if not gate.is_open:
                gate.check()
            try:
                done: LogAppendInfo | AppendSurvey = self._local.appender.append_as_follower(records.buffer)
            except BaseException as error:
                gate.fail_unless_undone(error, self._local)
                raise
            if not isinstance(done, LogAppendInfo):
                done = self._append_fetched(done)
        self._live.tell()
        if ack == "flushed" or not self._durability.needs_no_flush:
            self._durability.flush_for_ack(done.last_offset, ack)
        return done

    def producers(self) -> list[ProducerSnapshotEntry]:
        """Return the producers that the log knows of, by id: also those that are idle, until they are removed."""
        with self._gate.append_lock:
            return sorted(self.producer_state.snapshot_entries())

    def remove_expired_producers(self) -> int:
        """Forget producers idle for producer_id_expiration_ms, as a broker does every 10 minutes; return how many."""
        with self._gate.append_lock:
            self._gate.check()
            return self.producer_state.remove_expired_producers(self._env.wall_clock_ms())

    # Steps of an append

    def _packed(
        self, records: RecordBatch | Record | Iterable[Record], *, atomic: bool
    ) -> tuple[MemoryRecords, Sequence[MemoryRecords]]:
        """Return the first batch, and those that are left if one would be too large."""
        first, *rest = self._rules.packed(records, now_ms=self._env.wall_clock_ms(), atomic=atomic)
        return first, rest

    def _append_rest(
        self,
        done: LogAppendInfo,
        rest: Sequence[MemoryRecords],
        leader_epoch: int | None,
        origin: AppendOrigin,
        guard: VerificationGuard | None,
    ) -> LogAppendInfo:
        """Append the batches after the first one of a divided append, and return the result of all."""
        for batch in rest:
            now_ms = self._env.wall_clock_ms()
            later = self._append_as_leader(
                batch, None, leader_epoch=leader_epoch, origin=origin, now_ms=now_ms, guard=guard
            )
            done = joined(done, later)
        return done

    def _expecting(self, records: object) -> tuple[list[Record], bytes]:
        """Return Records and their key, after a look at what is new, so that little is left to do in the lock."""
        listed, key = one_key(records)
        self._gate.check()
        self._key_offsets.follow()
        return listed, key

    def _check_end(self, expected: int) -> None:
        expected = checked_int("expected_end_offset", expected, least=0)
        if self.log_end_offset != expected:
            raise UnexpectedAppendOffsetError(
                f"log end offset before an append to {self.path}: expected {expected}, found {self.log_end_offset}",
                path=self.path,
                expected=expected,
                found=self.log_end_offset,
            )

    def _checked_epoch(self, partition_leader_epoch: int) -> int:
        epoch = checked_int("partition_leader_epoch", partition_leader_epoch, least=-1, greatest=MAX_INT32)
        latest = self.leader_epochs.latest_epoch
        if 0 <= epoch < latest:
            raise ValueError(
                f"partition_leader_epoch of an append to {self.path}: expected at least {latest}, the log's last one, "
                f"got {epoch}"
            )
        return epoch

    def _append_each(self, batches: Sequence[MemoryRecords], *, now_ms: int) -> list[LogAppendInfo | KStoreError]:
        """Append each batch as leader, runs of common appends in one compiled call. Requires the append lock."""
        sent = list(batches)
        done: list[LogAppendInfo | KStoreError] = []
        while len(done) < len(sent):
            try:
                if not self._append_run(sent, done, now_ms=now_ms):
                    done.append(self._append_as_leader(sent[len(done)], None, now_ms=now_ms))
            except StorageError as error:
                done += [error] * (len(sent) - len(done))
            except KStoreError as error:
                done.append(error)
        return done

    def _append_as_leader(
        self,
        sent: MemoryRecords,
        survey: AppendSurvey | None,
        *,
        now_ms: int,
        leader_epoch: int | None = None,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: VerificationGuard | None = None,
    ) -> LogAppendInfo:
        """Append as leader what takes more than one compiled call. Requires the append lock.

        Args: survey: None if the records have no offsets yet.
        """
        append_time_ms = now_ms if self._rules.is_append_time else NO_TIMESTAMP
        if survey is None:
            appender = self._local.appender
            survey = self._rules.survey(
                sent,
                base_offset=self._local.log_end_offset,
                partition_leader_epoch=max(appender.leader_epoch, 0) if leader_epoch is None else leader_epoch,
                now_ms=now_ms,
                origin=origin,
            )
            with self._gate.failing_unless_undone(self._local):
                done: LogAppendInfo | AppendSurvey = appender.append(survey, log_append_time_ms=append_time_ms)
            if isinstance(done, LogAppendInfo):
                return done
        return self._append_surveyed(survey, origin=origin, now_ms=now_ms, append_time_ms=append_time_ms, guard=guard)

    def _append_fetched(self, survey: AppendSurvey) -> LogAppendInfo:
        """Append as follower what takes more than one compiled call. Requires the append lock."""
        fetched = MemoryRecords(survey.records, config=self.config)
        check_replicated_offsets(fetched, survey, log_end_offset=self._local.log_end_offset)
        if survey.batch_count == 0:
            return LogAppendInfo(-1, -1, NO_TIMESTAMP, NO_TIMESTAMP, self._local.log_start_offset, 0)
        origin, now_ms = AppendOrigin.REPLICATION, self._env.wall_clock_ms()
        return self._append_surveyed(survey, origin=origin, now_ms=now_ms, append_time_ms=NO_TIMESTAMP, guard=None)

    def _append_run(self, sent: list[MemoryRecords], done: list[Any], *, now_ms: int) -> int:
        """Append the run of common appends that begins after those in `done`; return how many there were."""
        try:
            return self._local.appender.append_all_as_leader(sent, done, now_ms=now_ms)
        except BaseException as error:
            self._gate.fail_unless_undone(error, self._local)
            raise

    def _append_surveyed(
        self,
        survey: AppendSurvey,
        *,
        origin: AppendOrigin,
        now_ms: int,
        append_time_ms: int,
        guard: VerificationGuard | None,
    ) -> LogAppendInfo:
        """Append surveyed batches, and update leader epochs, producers and transactions."""
        local = self._local
        check_fits_segment(survey, self.config)
        rolls = local.active.should_roll(survey, now_ms=now_ms)
        base_offset = local.active.base_offset
        if rolls:
            base_offset = next_base_offset(survey, log_end_offset=local.log_end_offset)
        check_offsets_fit_segment(survey, base_offset=base_offset)
        prepared = None
        if survey.has_producers:
            batches = producer_batches_in(survey.records, config=self.config)
            prepared = self.producer_state.analyze(batches, origin=origin, verification_guard=guard)
            if prepared.duplicate is not None:
                return self._info_of_duplicate(prepared.duplicate)
        with self._restoring_epochs():
            if survey.leader_epoch != local.appender.leader_epoch or survey.has_messages or not survey.is_one_epoch:
                follow_epochs(self.leader_epochs, survey, config=self.config)
            if rolls:
                self._durability.roll_at(base_offset)
            self._write(survey, prepared)
        done: LogAppendInfo = local.appender.info_of(survey, log_append_time_ms=append_time_ms)
        return done

    def _write(self, survey: AppendSurvey, prepared: PreparedAppend | None) -> None:
        """Write batches, apply them to producers and transactions, and then publish them to readers."""
        local = self._local
        with self._gate.failing_unless_undone(self._local):
            local.active.append(survey)
            if prepared is not None:
                for done in self.producer_state.commit(prepared):
                    if done.is_aborted:
                        entry = AbortedTxn(
                            done.producer_id, done.first_offset, done.last_offset, done.last_stable_offset
                        )
                        local.active.transaction_index.append(entry)
            local.publish(survey.last_offset + 1)

    def _info_of_duplicate(self, first: BatchMetadata) -> LogAppendInfo:
        append_time_ms = first.timestamp_ms if self._rules.is_append_time else NO_TIMESTAMP
        offsets = first.first_offset, first.last_offset
        start = self._local.log_start_offset
        return LogAppendInfo(*offsets, first.timestamp_ms, append_time_ms, start, 0, is_duplicate=True)

    @contextmanager
    def _restoring_epochs(self) -> Iterator[None]:
        """Restore the leader epochs if an append fails and leaves nothing else in the files."""
        before, end = self.leader_epochs.entries, self._local.log_end_offset
        try:
            yield
        except BaseException as error:
            if self._gate.failure is None and self._local.log_end_offset == end:
                self._restore_epochs(before, error)
            raise

    def _restore_epochs(self, entries: tuple[EpochEntry, ...], append_error: BaseException) -> None:
        try:
            self.leader_epochs.restore(entries)
        except StorageError as error:
            self._gate.fail(error)
            self._gate.fail(append_error)
        self._local.publish(self._local.log_end_offset)

    # Flush and roll

    def marks(self) -> PartitionMarks:
        """Return the offsets that the root's checkpoints should hold for this log."""
        recovery_point = self._durability.recovery_point
        return PartitionMarks(recovery_point, self.log_start_offset, self.high_watermark, self.log_end_offset)

    @property
    def has_failed(self) -> bool:
        """Whether a failure made the log refuse changes, or kept it from being closed cleanly."""
        return self._gate.failure is not None

    @property
    def flushed_offset(self) -> int:
        """Every record below this offset is known to survive a power cut."""
        return self._durability.flushed_offset

    def flush(self) -> int:
        """Wait until everything appended survives a power cut; return the offset up to which it does (exclusive)."""
        return self._durability.flush()

    def flush_if_due(self) -> bool:
        """Flush if flush_ms milliseconds have passed since the last flush and there is something to flush; return
        whether it did.
        """
        return self._durability.flush_if_due()

    def roll(self) -> int:
        """Start a new segment, unless an empty one begins at the log end; flush the old one. Return its base offset."""
        return self._durability.roll()

    # High watermark and truncation

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark, clamped to the log's bounds, and return it; it no longer follows the log end offset.

        Source: Kafka UnifiedLog.updateHighWatermark.
        """
        offset = checked_int("offset", offset)
        with self._gate.append_lock:
            self._gate.check()
            mark = self._local.update_high_watermark(offset)
        self._live.tell()
        return mark

    def truncate_to(self, offset: int) -> bool:
        """Durably remove every batch that holds an offset >= `offset`, and return whether there was any.

        The next append gets `offset`, even if the batch that held it started below.
        Raises: ValueError for an offset below 0 or above 2^63 - 1.  Source: Kafka UnifiedLog.truncateTo.
        """
        offset = checked_int("offset", offset, least=0)
        with self._gate.flush_lock, self._gate.append_lock:
            self._gate.check()
            if offset >= self.log_end_offset:
                self.leader_epochs.truncate_from_end(offset)
                self._local.publish(self.log_end_offset)
                return False
            self._gate.check_lock_and_file(self._local.active.records)
            with self._live.truncating(offset), self._gate.failing():
                if offset < self._local.first_base_offset:
                    self._restart_at(offset, log_start_offset=offset)
                else:
                    self._truncate_from(offset)
            return True

    def truncate_fully_and_start_at(self, offset: int, *, log_start_offset: int | None = None) -> None:
        """Durably remove all records, leader epochs and producers; log end and high watermark become `offset`.

        Args: log_start_offset: None for `offset`. A lower one means that tiered storage has the records in between.
        Raises: ValueError as truncate_to, and for a log_start_offset above `offset`.
        Source: Kafka UnifiedLog.truncateFullyAndStartAt.
        """
        offset = checked_int("offset", offset, least=0)
        start = offset
        if log_start_offset is not None:
            start = checked_int("log_start_offset", log_start_offset, least=0, greatest=offset)
        with self._gate.flush_lock, self._gate.append_lock:
            self._gate.check()
            self._gate.check_lock_and_file(self._local.active.records)
            with self._live.truncating(0), self._gate.failing():
                self._restart_at(offset, log_start_offset=start)

    def delete_records(self, before_offset: int) -> int:
        """Durably raise the log start offset to `before_offset` and return it; segments entirely below it are removed.

        A log start offset that is higher already is kept.
        Raises: OffsetOutOfRangeError above the high watermark; ValueError as truncate_to.
        Source: Kafka UnifiedLog.maybeIncrementLogStartOffset.
        """
        return self._retention.delete_records(before_offset)

    # Retention and compaction

    def delete_old_segments(self, now_ms: Time | None = None) -> list[DueSegment]:
        """Remove the segments that retention_ms, retention_bytes or the log start offset no longer keep, oldest first,
        and return them.

        Never above the last stable offset (so not above the high watermark, or an open transaction's start), nor what a
        hold keeps. If all segments go, the log is rolled first. Files are renamed to .deleted, and unlinked
        file_delete_delay_ms later by a call of this method or of compact, by close, or by the next opening.
        Args: now_ms: the time; None for the clock, and then one that has jumped ahead since the log was opened makes
            nothing older.
        Returns: nothing if the log is truncated during the call, which then deletes nothing.
        Raises: StorageError.
        Cost: a read or two if nothing is due; of each segment that goes by time, all of it.
        Source: Kafka UnifiedLog.deleteOldSegments.
        """
        return self._retention.delete_old_segments(time_ms("now_ms", now_ms))

    def plan_retention(self, now_ms: Time | None = None) -> list[DueSegment]:
        """Return what delete_old_segments would remove now."""
        return self._retention.plan(time_ms("now_ms", now_ms))

    def hold_from(self, offset: int) -> RetentionHold:
        """Keep retention from removing the record at `offset` or a later one until the hold is released, for a follower
        that asks to be waited for. delete_records and truncations do not wait.

        Raises: ValueError for a negative offset.
        """
        return self._retention.hold_from(offset)

    def compact(
        self,
        *,
        now_ms: Time | None = None,
        is_forced: bool = False,
        drops_keyless: bool = False,
        max_bytes_per_second: float | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> CompactionReport:
        """Remove the records that have a newer one with the same key, as Kafka's cleaner does, if that is due.

        It is due if the dirty part of the log is more than min_cleanable_dirty_ratio of it, or max_compaction_lag_ms
        has passed. The active segment, records from the last stable offset on and those younger than
        min_compaction_lag_ms are not cleaned. The cleaner's checkpoint in the root says up to where the log is clean.
        Readers of this process continue; a Log of another process gets LogReplacedError.
        Args: now_ms: the time, None for the clock; is_forced: also below the dirty ratio; drops_keyless: remove records
            without a key too, as Kafka does; max_bytes_per_second: read and written; should_stop: asked before each
            read and write: True ends the call, and the next one does the rest.
        Raises: KeylessRecordsError for records without a key, before anything is removed; CorruptRecordError,
            InvalidRecordError, UnsupportedMagicError, DecompressionError for damage: the segments before it are
            cleaned, the others unchanged. StorageError.
        Threads: one at a time; appends and reads go on.
        Cost: reads the dirty part, and reads and writes all up to its end; cleaner_dedupe_buffer_bytes of memory, and
            a round more for each time that the map is full. The log needs space for its largest group of segments
            twice.
        Source: Kafka LogCleaner, Cleaner.
        """
        at_ms = self._env.wall_clock_ms() if now_ms is None else time_ms("now_ms", now_ms)
        throttle = Throttle(max_bytes_per_second=max_bytes_per_second, should_stop=should_stop, env=self._env)
        return self._compaction.run(now_ms=at_ms, is_forced=is_forced, throttle=throttle, drops_keyless=drops_keyless)

    def cleanable(self, now_ms: Time | None = None) -> CleanableLog:
        """Return how much of the log is dirty and may be cleaned."""
        return self._compaction.cleanable(
            now_ms=self._env.wall_clock_ms() if now_ms is None else time_ms("now_ms", now_ms)
        )

    # Steps of a truncation

    def _truncate_from(self, offset: int) -> None:
        """Remove every batch that holds an offset >= `offset`, where `offset` is not below the first segment."""
        local = self._local
        self.producer_state.update_map_end_offset(local.log_end_offset)
        rest, start = local.rest_below(offset), min(offset, local.log_start_offset)
        # Such a rest is not served, and strict recovery refuses a log start above its end: a new segment replaces it.
        is_served = rest.position == 0 or rest.end_offset >= local.log_start_offset
        if is_served:
            self._durability.lower(DurablePoint(rest.end_offset, rest.segment.base_offset, rest.position))
            self._writer_files.lower_cleaned_offset(rest.segment.base_offset)
            local.truncate(rest, offset=offset)
        else:
            self._durability.lower(DurablePoint(0, 0, 0))
            self._writer_files.lower_cleaned_offset(start)
            local.replace_all(start, end_offset=offset)
        if start < local.log_start_offset:
            local.move_start(start)
            self._writer_files.save_log_start_offset(start)
        self.leader_epochs.truncate_from_end(offset)
        local.publish(offset)
        self._durability.follow_truncation()
        self._rebuild_producers(offset)
        self.producer_state.on_high_watermark(local.high_watermark)
        if not is_served and start < offset:
            self._durability.roll_at(offset)

    def _restart_at(self, offset: int, *, log_start_offset: int) -> None:
        """Remove all segments and create an empty one at `offset`."""
        self._durability.lower(DurablePoint(0, 0, 0))
        self._writer_files.lower_cleaned_offset(offset)
        self._local.restart(offset, log_start_offset=log_start_offset)
        self.leader_epochs.clear()
        self.producer_state.truncate_fully_and_start_at(offset)
        self._rebuild_producers(offset)
        self._writer_files.save_log_start_offset(log_start_offset)
        self._local.publish(offset)
        self._durability.follow_restart()

    def _rebuild_producers(self, end_offset: int) -> None:
        """Rebuild the producer state at the new log end; as in Kafka, with snapshots at the last two segments."""
        segments = self._local.segments
        self.producer_state.rebuild(
            (
                SegmentReplay(
                    segment.base_offset, segment.next_base_offset or end_offset, partial(producer_batches_of, segment)
                )
                for segment in segments
            ),
            log_start_offset=self._local.log_start_offset,
            log_end_offset=end_offset,
            snapshot_offsets={segment.base_offset for segment in segments[-2:]},
            now_ms=self._env.wall_clock_ms(),
        )

    def close(self) -> None:
        """Flush, write snapshot, indexes and checkpoints as a clean shutdown does, close the files, and release the
        lock.

        A second call does nothing; after a failure the files are only closed. After an interrupt too: the next opening
        recovers the log then, and a second call closes what the first one left.
        Raises: StorageError; everything is closed then, and the next opening recovers the log.
        """
        gate, marks = self._gate, None
        with gate.flush_lock, gate.append_lock:
            if self._is_released:
                return
            # An earlier call that was interrupted either did this part or failed.
            is_first = not gate.is_closed
            try:
                gate.close()
                if is_first and gate.failure is None and self._writer_files.is_owner:
                    gate.check_lock_and_file(self._local.active.records)
                    # First: it closes files, so that the rest finds descriptors even if the process has run out of
                    #     them.
                    self._durability.close()
                    self._local.deleted.remove_all()
                    self.producer_state.take_last_snapshot(max(self._local.written_end_offset, self.log_start_offset))
                    marks = self.marks()
            except BaseException as error:
                gate.fail(error)
                raise
            finally:
                self._release(marks)

    def _release(self, marks: PartitionMarks | None) -> None:
        """Close the files and release the lock; an interrupted call may be made again. Requires both locks."""
        try:
            try:
                super().close()
                self._key_offsets.close()
            finally:
                try:
                    self._local.close_handlers()
                finally:
                    self._writer_files.close(marks)
        except KStoreError:
            self._note_released()
            raise
        self._note_released()

    def _note_released(self) -> None:
        self._is_released = True
        self._dropping.detach()


def _drop(path: str, local: LocalLog, files: WriterFiles) -> None:
    """Close the files of a log that was garbage-collected without close(), and release its lock.

    The log is recovered when it is next opened.
    """
    try:
        if files.is_owner:
            warnings.warn(f"unclosed log {path}", ResourceWarning, stacklevel=2)
    finally:
        try:
            local.close_handlers()
        finally:
            files.release()
