"""WriterLogs: the logs of a root that is written: how each is opened, recovered, checkpointed and closed.

The clean shutdown marker is removed before the first log is opened, and restored only if all of them were closed.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, TypeVar

from kstore.env import Env
from kstore.errors import CorruptCheckpointError, CorruptLogError, KStoreError, StorageError, TopicSettingsError
from kstore.log.files.checkpoints import PartitionMarks, checkpoints_of, replace_malformed_checkpoints, save_marks
from kstore.log.files.durable_point import remove_durable_point
from kstore.log.files.lock import PartitionLock
from kstore.log.files.names import CLUSTER_METADATA_TOPIC, PartitionDirectory, has_future_logs
from kstore.log.files.root_files import (
    CleanShutdown,
    read_clean_shutdown,
    remove_clean_shutdown,
    write_clean_shutdown,
    write_partition_metadata,
)
from kstore.log.recovery.modes import RecoveryMode
from kstore.log.write.open_writers import OpenWriters
from kstore.store.root import OpenLogs
from kstore.store.settings.topics import TopicSettings
from kstore.store.upkeep.metrics import StoreMetrics
from kstore.store.upkeep.topic_ids import TopicIds
from kstore.types import TopicPartition
from kstore.waiting import results_in_threads, try_in_threads

if TYPE_CHECKING:
    from kstore.log.recovery.context import RecoveryReport
    from kstore.log.write.writable_log import WritableLog

_Item = TypeVar("_Item")
_THREADS = "kstore-recovery"
# A new partition waits for six syncs, a log that is closed for five, and a disk makes those of several at once in about
# the time of one.
_WRITING_THREADS = 8
_FEW_PARTITIONS = 4

_logger = logging.getLogger("kstore.log")


class WriterLogs(OpenLogs["WritableLog"]):
    """The partitions of a root with its only writer, except those of __cluster_metadata, and their logs.

    Args: recovery, trusts_recovery_point: of the logs that were not closed; threads: how many logs are recovered, or
        filled, at once; max_open_files: how many may keep the file open that they append to.
    Attributes: besides those of OpenLogs, recovery_reports and refused, see WritableStore.
    Threads: requires the mutex of the store.  Source: Kafka LogManager.
    """

    def __init__(
        self,
        root: str,
        *,
        lock: PartitionLock,
        settings: TopicSettings,
        metrics: StoreMetrics,
        recovery: RecoveryMode,
        trusts_recovery_point: bool,
        threads: int,
        max_open_files: int,
        env: Env,
    ) -> None:
        super().__init__(root, env)
        self.replace({name: path for name, path in self.directories.items() if name.topic != CLUSTER_METADATA_TOPIC})
        self.recovery_reports: dict[TopicPartition, RecoveryReport] = {}
        self.refused: dict[TopicPartition, CorruptLogError] = {}
        self.writers = OpenWriters(max_open_files)
        self._lock = lock
        self._settings = settings
        self._metrics = metrics
        self._recovery = recovery
        self._trusts_recovery_point = trusts_recovery_point
        self._threads = threads
        self._topic_ids = TopicIds(root, env, tuple(self.directories.values()))
        self._clean_shutdown = CleanShutdown()
        # What was not closed cleanly, and not recovered since.
        self._unclean: set[TopicPartition] = set()
        self._has_unrecovered_copies = False
        # Partitions of topics whose deletion has begun and not ended: a crash may still bring them back.
        self._leaving: set[TopicPartition] = set()

    def begin(self) -> None:
        """Take the root over: remove the clean shutdown marker, and without one recover and close each log."""
        marker = read_clean_shutdown(self.root, self._env)
        if marker is not None:
            self._clean_shutdown = marker
        else:
            self._unclean = set(self.directories)
            # Only a broker recovers these, and the marker would say that they need not be.
            self._has_unrecovered_copies = has_future_logs(self.root, self._env)
        remove_clean_shutdown(self.root, self._env)
        if marker is None:
            replace_malformed_checkpoints(self.root, self._env)
        unclean = sorted(self._unclean)
        with checkpoints_of(self._env).held(self.root):
            logs = results_in_threads(self._recovered, unclean, threads=self._threads, name=_THREADS)
            for topic_partition, log in zip(unclean, logs, strict=True):
                if isinstance(log, CorruptLogError):
                    self.refused[topic_partition] = log
                elif log is not None:
                    self.recovery_reports[topic_partition] = log.recovery_report
                    self.logs[topic_partition] = log

    def open(self, directory: PartitionDirectory) -> WritableLog:
        from kstore.log.write.writable_log import WritableLog

        topic_partition = directory.topic_partition
        self._lock.check_held()
        earlier = self.logs.get(topic_partition)
        if earlier is not None:
            # Does something only if a call was interrupted.
            earlier.close()
            self._let_go(topic_partition, earlier)
        if topic_partition in self._unclean:
            self._topic_ids.settle(directory)
        log = WritableLog.open(
            directory,
            config=self._settings.of(topic_partition.topic),
            recovery=self._recovery,
            trusts_recovery_point=self._trusts_recovery_point,
            lock=self._lock.share(str(topic_partition)),
            is_clean=topic_partition not in self._unclean,
            env=self._env,
            writers=self.writers,
        )
        self._unclean.discard(topic_partition)
        return log

    def fill(self, made: Sequence[PartitionDirectory], topic_id: uuid.UUID | None) -> None:
        """Fill new directories of a topic, and close their logs."""

        def filled(directory: PartitionDirectory) -> WritableLog:
            if topic_id is not None:
                write_partition_metadata(directory.path, topic_id, self._env)
            log = self.open(directory)
            log.close()
            return log

        logs = results_in_threads(filled, made, threads=self._threads_for(made), name=_THREADS)
        for directory, log in zip(made, logs, strict=True):
            self.logs[directory.topic_partition] = log

    def withdraw(self, topic: str) -> None:
        """Close the logs of a topic that is about to be deleted, and remove its partitions from the list."""
        for topic_partition in [partition for partition in self.directories if partition.topic == topic]:
            self._leaving.add(topic_partition)
            del self.directories[topic_partition]
            self.refused.pop(topic_partition, None)
            log = self.logs.pop(topic_partition, None)
            if log is None:
                continue
            try:
                log.close()
            except KStoreError as error:
                _logger.warning("closing %s before its deletion: %s", topic_partition, error)
            self._let_go(topic_partition, log)
        self.publish()

    def forget(self, topic: str) -> None:
        """Forget a topic whose directories are durably gone."""
        self._leaving = {partition for partition in self._leaving if partition.topic != topic}
        self._unclean = {partition for partition in self._unclean if partition.topic != topic}

    def checkpoint(self) -> None:
        """Write the recovery point, log start offset and high watermark of each log.

        Raises: StorageError.
        """

        def take_marks() -> dict[TopicPartition, PartitionMarks]:
            return {topic_partition: log.marks() for topic_partition, log in self.logs.items()}

        save_marks(self.root, take_marks, self._env, kept={*self.directories, *self._leaving})

    def close(self) -> None:
        """Close every log, write the checkpoints and, if every log of the root is whole, the clean shutdown marker.

        Raises: StorageError, with all logs closed: the first error of a log, or one of the root's files.
        """
        try:
            self.close_each()
        except KStoreError:
            # An error raised here has the one above as its context.
            self._save_closed()
            raise
        self._save_closed()
        if not self._unclean and not self._has_unrecovered_copies:
            write_clean_shutdown(self.root, self._clean_shutdown, self._env)

    def close_each(self) -> None:
        """Close all logs, several at a time, since each waits for the disk.  Raises: as OpenLogs.close_each."""
        self._try_each(methodcaller("close"), list(self.logs.values()))

    def _try_each(self, function: Callable[[_Item], object], items: Sequence[_Item]) -> None:
        """Call a function with each item, several at a time; raise the first error after all calls."""
        threads = self._threads_for(items)
        try_in_threads(function, items, threads=threads, name=_THREADS, catching=KStoreError)

    def _threads_for(self, logs: Sequence[object]) -> int:
        """Return how many threads make or close logs, which is less work than recovering them."""
        return self._threads if len(logs) < _FEW_PARTITIONS else max(self._threads, _WRITING_THREADS)

    def _save_closed(self) -> None:
        """Write the checkpoints, and then remove the durable points, which they replace."""
        self._unclean |= {topic_partition for topic_partition, log in self.logs.items() if log.has_failed}
        self._lock.check_held()
        self.checkpoint()
        paths = [log.path for log in self.logs.values() if not log.has_failed]
        self._try_each(partial(remove_durable_point, env=self._env), paths)

    def _let_go(self, topic_partition: TopicPartition, log: WritableLog) -> None:
        """Take from a closed log what has to outlive it."""
        if log.has_failed:
            self._unclean.add(topic_partition)
        self._metrics.keep(log)

    def _recovered(self, topic_partition: TopicPartition) -> WritableLog | CorruptLogError | None:
        directory = self.directories[topic_partition]
        try:
            log = self.open(directory)
        except (CorruptCheckpointError, TopicSettingsError, StorageError) as error:
            if isinstance(error, StorageError) and directory.can_be_listed():
                raise
            # The log is recovered when it is opened with other settings, with an id, or when it can be read.
            _logger.error("%s was not recovered: %s", topic_partition, error)
            return None
        except CorruptLogError as error:
            _logger.error("%s was not recovered: %s", topic_partition, error)
            return error
        log.close()
        _logger.info("recovered %s: its log ends at offset %d", topic_partition, log.recovery_report.log_end_offset)
        return log
