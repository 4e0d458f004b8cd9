"""Maintenance: what Kafka's LogManager and LogCleaner do in the background, by hand or in a thread of its own.

Each task takes one log after the other. An error in one is logged and reported, and does not stop the others.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kstore.config import check_rate
from kstore.env import Env
from kstore.errors import (
    CorruptCheckpointError,
    CorruptionError,
    KeylessRecordsError,
    KStoreError,
    LogClosedError,
    UnsupportedError,
)
from kstore.log.files.lock import disown_in_child
from kstore.types import TopicPartition
from kstore.waiting import Latch

if TYPE_CHECKING:
    from kstore.log.cleaning.cleanable import CleanableLog
    from kstore.log.cleaning.retention import DueSegment
    from kstore.log.write.compaction import CompactionReport
    from kstore.log.write.writable_log import WritableLog

_logger = logging.getLogger("kstore.log")


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceReport:
    """What a pass of maintenance did.

    flushed: the logs that flush_ms made due. deleted_segments, compactions: by partition, of those where there was
    something to do. expired_producers: how many were forgotten. removed_directories: paths of deleted partitions.
    failures: the first error of each partition, a KStoreError or, as for want of memory, another one.
    checkpoint_failure: why the checkpoints of the root were not written.
    is_stopped: the store was closed, or the caller stopped it.
    """

    flushed: tuple[TopicPartition, ...] = ()
    deleted_segments: Mapping[TopicPartition, list[DueSegment]] = field(default_factory=dict)
    compactions: Mapping[TopicPartition, CompactionReport] = field(default_factory=dict)
    expired_producers: int = 0
    removed_directories: tuple[str, ...] = ()
    failures: Mapping[TopicPartition, Exception] = field(default_factory=dict)
    checkpoint_failure: KStoreError | None = None
    is_stopped: bool = False


class MaintenanceIntervals(NamedTuple):
    """How often a background thread does each task, in milliseconds; the defaults are Kafka's where it has the setting.

    flush_ms: looks for logs that flush_ms makes due (log.flush.scheduler.interval.ms, which is endless in Kafka);
    remove_ms: removes deleted directories; checkpoint_ms: log.flush.offset.checkpoint.interval.ms; retain_ms:
    log.retention.check.interval.ms; compact_ms: log.cleaner.backoff.ms; expire_ms:
    producer.id.expiration.check.interval.ms.
    """

    flush_ms: int = 1_000
    remove_ms: int = 30_000
    expire_ms: int = 600_000
    retain_ms: int = 300_000
    compact_ms: int = 15_000
    checkpoint_ms: int = 60_000


# In the order of a pass; each is also the name of its method and, with "_ms", of its interval.
TASKS = ("flush", "remove", "expire", "retain", "compact", "checkpoint")


class MaintainedStore(Protocol):
    """What maintenance needs of a WritableStore."""

    @property
    def partitions(self) -> tuple[TopicPartition, ...]: ...

    @property
    def is_closed(self) -> bool: ...

    def open_logs(self) -> list[WritableLog]: ...

    def log(self, topic: str, partition: int = 0) -> WritableLog: ...

    def checkpoint(self) -> None: ...

    def remove_deleted(self) -> list[str]: ...

    def settings_damage(self, topic: str) -> CorruptCheckpointError | None: ...


class CleaningStats(NamedTuple):
    """Of the last look for logs to compact: the largest dirty part in percent; how long the longest compaction took."""

    max_dirty_percent: int = 0
    max_clean_time_ms: int = 0
    last_run_ms: int = 0


class Maintenance:
    """The passes over one store, and the thread that runs them.

    Attributes: uncleanable (the error that ended the compaction of a partition, which is not tried again until its
        settings change or the store is opened again: Kafka's uncleanable partitions), stats.
    Threads: one pass at a time; others wait.
    """

    def __init__(self, store: MaintainedStore, env: Env) -> None:
        self._store = weakref.ref(store)
        self._env = env
        # Reentrant, so that a signal handler of the thread that has it never waits for itself.
        self._running = threading.RLock()
        self._runner: int | None = None
        # Of each pass that runs or waits, and of the thread; one that is set stays so.
        self._stopping: set[Latch] = set()
        self._is_ended = False
        self._after_pass: Callable[[], object] | None = None
        self._background: _Background | None = None
        self.uncleanable: dict[TopicPartition, KStoreError] = {}
        self.stats = CleaningStats(last_run_ms=env.monotonic_ms())
        disown_in_child(self)

    def run(
        self,
        *,
        now_ms: int | None,
        tasks: Iterable[str] = TASKS,
        max_bytes_per_second: float | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> MaintenanceReport:
        """Do the tasks, and return what was done; nothing from within a pass of the same thread.

        Raises: ValueError, TypeError for a rate that is not above 0.
        """
        check_rate(max_bytes_per_second)
        store = self._store()
        if store is None or self._is_in_pass():
            return MaintenanceReport(is_stopped=True)
        stopping = Latch()
        self._stopping.add(stopping)
        try:
            with self._running:
                self._runner = threading.get_ident()
                current = _Pass(
                    store,
                    self,
                    env=self._env,
                    now_ms=now_ms,
                    max_bytes_per_second=max_bytes_per_second,
                    is_stopped=lambda: self._is_ended or stopping.is_open,
                    should_stop=should_stop,
                )
                try:
                    return current.run(tasks)
                finally:
                    self._runner = None
        finally:
            self._stopping.discard(stopping)
            after, self._after_pass = self._after_pass, None
            if after is not None:
                after()

    @property
    def is_started(self) -> bool:
        """Whether a thread of this process runs the tasks."""
        return self._background is not None and not self._background.ended.is_open

    def start(self, intervals: MaintenanceIntervals, *, max_bytes_per_second: float | None) -> None:
        """Start the thread.

        Raises: ValueError if it runs, for an interval below 1, or a rate that is not above 0; TypeError.
        """
        check_rate(max_bytes_per_second)
        if min(intervals) < 1:
            raise ValueError(f"intervals must be at least 1 ms, got {intervals}")
        if self.is_started:
            raise ValueError("maintenance runs in the background already")
        background = _Background(weakref.ref(self), intervals, max_bytes_per_second, self._env)
        self._stopping = {latch for latch in self._stopping if not latch.is_open} | {background.stopping}
        thread = threading.Thread(target=background.run, name="kstore-upkeep", daemon=True)
        self._background = background
        try:
            thread.start()
        except BaseException:
            # It ends at once, if it began at all.
            self._background = None
            background.stopping.open()
            raise

    def stop(self) -> None:
        """Stop the passes that run or wait, and the thread; return when they have ended.

        From within a pass, as by a signal handler, it does not wait for that pass.
        """
        for stopping in list(self._stopping):
            stopping.open()
        background = self._background
        if background is not None and background.runner != threading.get_ident():
            background.ended.wait()
        if not self._is_in_pass():
            with self._running:
                pass

    def end(self, then: Callable[[], object]) -> bool:
        """Stop for good, and return whether all has ended; within a pass it has not: `then` is called after it."""
        self._is_ended = True
        if self._is_in_pass():
            self._after_pass = then
            return False
        self.stop()
        return True

    def _disown(self) -> None:
        self._running = threading.RLock()
        self._runner = None
        self._stopping = set()
        self._background = None

    def _is_in_pass(self) -> bool:
        return self._runner == threading.get_ident()


class _Pass:
    """One pass over a store."""

    def __init__(
        self,
        store: MaintainedStore,
        owner: Maintenance,
        *,
        env: Env,
        now_ms: int | None,
        max_bytes_per_second: float | None,
        is_stopped: Callable[[], bool],
        should_stop: Callable[[], bool] | None,
    ) -> None:
        self._store = store
        self._owner = owner
        self._env = env
        self._now_ms = now_ms
        self._rate = max_bytes_per_second
        self._is_stopped = is_stopped
        self._callers_should_stop = should_stop
        self._callers_error: Exception | None = None
        self._flushed: list[TopicPartition] = []
        self._deleted: dict[TopicPartition, list[DueSegment]] = {}
        self._compactions: dict[TopicPartition, CompactionReport] = {}
        self._failures: dict[TopicPartition, Exception] = {}
        self._checkpoint_failure: KStoreError | None = None
        self._expired = 0
        self._removed: list[str] = []

    def run(self, tasks: Iterable[str]) -> MaintenanceReport:
        is_stopped = False
        for name in tasks:
            getattr(self, f"_{name}")()
            is_stopped = is_stopped or self._is_over()
        return MaintenanceReport(
            flushed=tuple(self._flushed),
            deleted_segments=self._deleted,
            compactions=self._compactions,
            expired_producers=self._expired,
            removed_directories=tuple(self._removed),
            failures=self._failures,
            checkpoint_failure=self._checkpoint_failure,
            is_stopped=is_stopped,
        )

    def _is_over(self) -> bool:
        return self._should_stop() or self._store.is_closed

    def _should_stop(self) -> bool:
        if self._is_stopped():
            return True
        try:
            return self._callers_should_stop is not None and self._callers_should_stop()
        except Exception as error:
            self._callers_error = error
            raise

    def _each_open(self) -> Iterator[WritableLog]:
        for log in self._store.open_logs():
            if self._is_over():
                return
            yield log

    @contextmanager
    def _reporting(self, task: str, topic_partition: TopicPartition) -> Iterator[None]:
        """Note an error of one partition, unless that, or the store, was closed or deleted; or it is the caller's."""
        try:
            yield
        except Exception as error:
            if error is self._callers_error:
                raise
            if self._is_over() or topic_partition not in self._store.partitions:
                return
            if isinstance(error, LogClosedError):
                return
            is_expected = isinstance(error, KStoreError)
            shown = error if is_expected else repr(error)
            _logger.error("%s of %s failed: %s", task, topic_partition, shown, exc_info=not is_expected)
            self._failures.setdefault(topic_partition, error)

    # The tasks

    def _flush(self) -> None:
        for log in self._each_open():
            with self._reporting("a flush", log.topic_partition):
                if log.flush_if_due():
                    self._flushed.append(log.topic_partition)

    def _remove(self) -> None:
        if not self._is_over():
            self._removed += self._store.remove_deleted()

    def _expire(self) -> None:
        for log in self._each_open():
            with self._reporting("the expiration of producers", log.topic_partition):
                self._expired += log.remove_expired_producers()

    def _retain(self) -> None:
        for topic_partition in self._store.partitions:
            if self._is_over():
                return
            with self._reporting("retention", topic_partition):
                self._check_settings(topic_partition)
                due = self._store.log(*topic_partition).delete_old_segments(self._now_ms)
                if due:
                    self._deleted[topic_partition] = due

    def _compact(self) -> None:
        candidates = self._candidates()
        # The dirtiest first, as Kafka's cleaner picks them.
        candidates.sort(key=lambda candidate: candidate[1].dirty_ratio, reverse=True)
        longest_ms = 0
        for log, _ in candidates:
            if self._is_over():
                break
            started_ms = self._env.monotonic_ms()
            with self._reporting("compaction", log.topic_partition), self._marking(log.topic_partition):
                report = log.compact(
                    now_ms=self._now_ms, max_bytes_per_second=self._rate, should_stop=self._should_stop
                )
                self._compactions[log.topic_partition] = report
            longest_ms = max(longest_ms, self._env.monotonic_ms() - started_ms)
        self._owner.stats = self._owner.stats._replace(
            max_clean_time_ms=longest_ms, last_run_ms=self._env.monotonic_ms()
        )

    def _candidates(self) -> list[tuple[WritableLog, CleanableLog]]:
        """Return the logs that are due for compaction, with what is dirty of them."""
        candidates = []
        largest = 0.0
        for topic_partition in self._store.partitions:
            if self._is_over():
                break
            if topic_partition in self._owner.uncleanable:
                continue
            with self._reporting("a look for dirty records", topic_partition), self._marking(topic_partition):
                log = self._store.log(*topic_partition)
                if not log.config.is_compacted:
                    continue
                self._check_settings(topic_partition)
                cleanable = log.cleanable(self._now_ms)
                largest = max(largest, cleanable.dirty_ratio)
                if cleanable.is_due(log.config):
                    candidates.append((log, cleanable))
        self._owner.stats = self._owner.stats._replace(max_dirty_percent=int(100 * largest))
        return candidates

    @contextmanager
    def _marking(self, topic_partition: TopicPartition) -> Iterator[None]:
        """Mark a partition as uncleanable for an error that the next try would meet again."""
        try:
            yield
        except (CorruptionError, KeylessRecordsError, UnsupportedError) as error:
            if not isinstance(error, CorruptCheckpointError):
                _logger.warning("marking %s as uncleanable", topic_partition)
                self._owner.uncleanable[topic_partition] = error
            raise

    def _check_settings(self, topic_partition: TopicPartition) -> None:
        damage = self._store.settings_damage(topic_partition.topic)
        if damage is not None:
            raise damage

    def _checkpoint(self) -> None:
        if self._is_over():
            return
        try:
            self._store.checkpoint()
        except LogClosedError:
            return
        except KStoreError as error:
            _logger.error("the checkpoints were not written: %s", error)
            self._checkpoint_failure = error


class _Background:
    """The thread that runs the tasks of a Maintenance, until it is stopped or the Maintenance is gone.

    Attributes: stopping (opened to stop it), ended, runner (the id of the thread, None before it begins).
    """

    def __init__(
        self,
        of: weakref.ref[Maintenance],
        intervals: MaintenanceIntervals,
        max_bytes_per_second: float | None,
        env: Env,
    ) -> None:
        self._of = of
        self._every = {task: getattr(intervals, f"{task}_ms") for task in TASKS}
        self._rate = max_bytes_per_second
        self._env = env
        self.stopping = Latch()
        self.ended = Latch()
        self.runner: int | None = None

    def run(self) -> None:
        self.runner = threading.get_ident()
        try:
            self._run()
        finally:
            self.ended.open()

    def _run(self) -> None:
        env = self._env
        start_ms = env.monotonic_ms()
        next_ms = {task: start_ms + self._every[task] for task in TASKS}
        while not self.stopping.wait(max(min(next_ms.values()) - env.monotonic_ms(), 0) / 1000):
            now_ms = env.monotonic_ms()
            due: Sequence[str] = [task for task in TASKS if next_ms[task] <= now_ms]
            maintenance = self._of()
            if maintenance is None:
                return
            try:
                maintenance.run(
                    now_ms=None,
                    tasks=due,
                    max_bytes_per_second=self._rate,
                    should_stop=lambda: self.stopping.is_open,
                )
            except Exception:
                # As Kafka's scheduler: one fault, of whatever kind, must not end all maintenance unnoticed.
                _logger.exception("a pass of maintenance ended early; the next one tries again")
            del maintenance
            next_ms |= {task: env.monotonic_ms() + self._every[task] for task in due}
