"""recover_partitions: the recovery of partitions of a root, whether or not it was shut down cleanly."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from kstore.config import LogConfig, config_or_default
from kstore.env import DEFAULT_ENV, Env
from kstore.errors import CorruptCheckpointError, CorruptionError, CorruptLogError, StorageError
from kstore.log.files.checkpoints import (
    PartitionMarks,
    lower_offset,
    read_checkpoint,
    replace_malformed_checkpoints,
    save_marks,
)
from kstore.log.files.lock import PartitionLock
from kstore.log.files.names import (
    CLUSTER_METADATA_TOPIC,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    PartitionDirectory,
    has_future_logs,
    partitions_of_root,
)
from kstore.log.files.root_files import (
    CleanShutdown,
    read_clean_shutdown,
    read_meta_properties,
    remove_clean_shutdown,
    write_clean_shutdown,
)
from kstore.log.recovery.context import LoadedLog, RecoveryReport
from kstore.log.recovery.load import load_log
from kstore.log.recovery.modes import RecoveryMode, check_recovery
from kstore.log.write.writable_log import WritableLog
from kstore.store.upkeep.topic_ids import TopicIds
from kstore.types import TopicPartition

_logger = logging.getLogger("kstore.log")


class RecoveredPartition(NamedTuple):
    """The outcome for one partition: its report, or the error with which strict recovery refused it, unchanged; or a
    CorruptCheckpointError if its partition.metadata is malformed and the topic's id unknown; or the StorageError of a
    call that failed on its files.

    directory: of the partition; report: None with a refusal; refusal: the error, None with a report.
    """

    directory: PartitionDirectory
    report: RecoveryReport | None
    refusal: CorruptionError | StorageError | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that was recovered, or refused."""
        return self.directory.topic_partition


def recoverable(directories: Iterable[PartitionDirectory]) -> list[PartitionDirectory]:
    """Return the partitions without __cluster_metadata, which only a broker recovers."""
    return [directory for directory in directories if directory.topic_partition.topic != CLUSTER_METADATA_TOPIC]


def passes_of(mode: RecoveryMode) -> int:
    """Return how often a recovery may read each byte."""
    return 2 if mode == "salvage" else 1


def recover_partitions(
    directories: Sequence[PartitionDirectory],
    mode: RecoveryMode,
    *,
    config: LogConfig | None = None,
    dry_run: bool = False,
    keeps_copies: bool = True,
    trusts_recovery_point: bool = False,
    on_read: Callable[[int], None] | None = None,
    env: Env | None = None,
) -> Iterator[RecoveredPartition]:
    """Recover partitions of one root, whether or not it was shut down cleanly, and yield the outcome of each.

    At the end, malformed checkpoints of the root are replaced, and the root is marked as closed cleanly if these are
    all of its partitions, none was refused, and no broker was moving one. One that was deleted since is left out, with
    a warning.
    Args: keeps_copies, trusts_recovery_point, on_read, dry_run: as in load_log; a dry run takes no lock.
    Raises: LogLockedError; StorageError of the root's own files; CorruptCheckpointError for a malformed
        meta.properties, with which no broker starts, before anything is changed; ValueError for partitions of two
        roots, and as load_log.
    """
    check_recovery(mode, trusts_recovery_point=trusts_recovery_point)
    roots = {directory.root for directory in directories}
    if len(roots) > 1:
        raise ValueError(f"expected partitions of one root, got those of {', '.join(sorted(roots))}")
    settings = config_or_default(config)
    env = next((directory.env for directory in directories), DEFAULT_ENV) if env is None else env
    if not dry_run:
        for root in roots:
            env.check_writable(root)
    for root in roots:
        load = partial(
            load_log,
            config=settings,
            env=env,
            mode=mode,
            keeps_copies=keeps_copies,
            trusts_recovery_point=trusts_recovery_point,
            on_read=on_read,
        )
        recovery = _Recovery(root, load, config=settings, env=env)
        yield from recovery.look(directories) if dry_run else recovery.run(directories)


class _Recovery:
    def __init__(self, root: str, load: Callable[..., LoadedLog], *, config: LogConfig, env: Env) -> None:
        self._root = root
        self._load_log = load
        self._config = config
        self._env = env
        self._topic_ids = TopicIds(root, env)
        self._points: Mapping[TopicPartition, int] = {}
        self._starts: Mapping[TopicPartition, int] = {}
        self._was_closed = False
        self._marks: dict[TopicPartition, PartitionMarks] = {}

    def look(self, directories: Sequence[PartitionDirectory]) -> Iterator[RecoveredPartition]:
        read_meta_properties(self._root, self._env)
        self._read_checkpoints()
        self._was_closed = read_clean_shutdown(self._root, self._env) is not None
        for directory in directories:
            recovered = self._load(directory, dry_run=True)
            if recovered is not None:
                yield recovered

    def run(self, directories: Sequence[PartitionDirectory]) -> Iterator[RecoveredPartition]:
        lock = PartitionLock.acquire(self._root, None, self._env)
        try:
            read_meta_properties(self._root, self._env)
            self._read_checkpoints()
            marker = read_clean_shutdown(self._root, self._env)
            self._was_closed = marker is not None
            remove_clean_shutdown(self._root, self._env)
            for directory in directories:
                recovered = self._load(directory, dry_run=False, lock=lock)
                if recovered is not None:
                    yield recovered
            self._finish(marker or CleanShutdown())
        finally:
            lock.release()

    def _read_checkpoints(self) -> None:
        self._points = read_checkpoint(self._root, RECOVERY_POINT_CHECKPOINT, self._env)
        self._starts = read_checkpoint(self._root, LOG_START_OFFSET_CHECKPOINT, self._env)

    def _load(
        self, directory: PartitionDirectory, *, dry_run: bool, lock: PartitionLock | None = None
    ) -> RecoveredPartition | None:
        """Recover one partition; None if it was deleted."""
        topic_partition = directory.topic_partition
        try:
            is_id_written = self._topic_ids.settle(directory, dry_run=dry_run)
            loaded = self._load_log(
                directory,
                recovery_point=self._points.get(topic_partition),
                log_start_offset=self._starts.get(topic_partition),
                was_closed=self._was_closed,
                dry_run=dry_run,
            )
            if lock is not None:
                self._settle(directory, lock, log_end_offset=loaded.log_end_offset)
        except (CorruptLogError, CorruptCheckpointError) as error:
            return RecoveredPartition(directory, None, error)
        except StorageError as error:
            if not directory.is_place_of(error):
                raise
            if directory.was_deleted():
                _logger.warning("%s was deleted before it was recovered", directory.path)
                return None
            return RecoveredPartition(directory, None, error)
        report = loaded.report
        if is_id_written:
            report = report._replace(rebuilt=(*report.rebuilt, PARTITION_METADATA))
        return RecoveredPartition(directory, report)

    def _settle(self, directory: PartitionDirectory, lock: PartitionLock, *, log_end_offset: int) -> None:
        """Flush a recovered log and leave its files as a clean close does."""
        name = str(directory.topic_partition)
        # Of a log that was closed, a checkpoint above the log end would prove a loss.
        for checkpoint in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
            lower_offset(self._root, checkpoint, directory.topic_partition, log_end_offset, self._env)
        log = WritableLog.open(directory, config=self._config, lock=lock.share(name), is_clean=True, env=self._env)
        log.close()
        self._marks[directory.topic_partition] = log.marks()

    def _finish(self, marker: CleanShutdown) -> None:
        there = {directory.topic_partition for directory in partitions_of_root(self._root, self._env)}
        replace_malformed_checkpoints(self._root, self._env)
        save_marks(self._root, lambda: self._marks, self._env, kept=there)
        # KRaft's own log is loaded by the broker, and the marker does not cover it. It covers a -future directory.
        if has_future_logs(self._root, self._env):
            return
        if self._marks.keys() >= {partition for partition in there if partition.topic != CLUSTER_METADATA_TOPIC}:
            write_clean_shutdown(self._root, marker, self._env)
