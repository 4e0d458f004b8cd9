"""The right to write a log: WriteGate holds its locks and failure state, WriterFiles the partition lock, the durable
point and the root's checkpoints.

A log that is opened on its own maintains the root's clean shutdown marker and checkpoints, as a broker would; in a
Store, the Store does.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from kstore._lazy import lazy_logger
from kstore.config import LogConfig
from kstore.env import Env, split_path
from kstore.errors import LogClosedError, LogFailedError, StorageError
from kstore.log.files.checkpoints import PartitionMarks, lower_offset, read_checkpoint, save_offset
from kstore.log.files.durable_point import DurablePointFile, remove_durable_point
from kstore.log.files.lock import PartitionLock, disown_in_child
from kstore.log.files.names import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    PartitionDirectory,
)
from kstore.log.files.root_files import CleanShutdown, read_clean_shutdown, remove_clean_shutdown, write_clean_shutdown
from kstore.log.recovery.context import LoadedLog
from kstore.log.recovery.load import load_log
from kstore.log.recovery.modes import RecoveryMode
from kstore.log.segment.file_records import FileRecords
from kstore.log.write.local_log import LocalLog
from kstore.types import TopicPartition, parse_partition_directory_name

_logger = lazy_logger("kstore.log")


class WriteGate:
    """The two locks of a log, and whether it may still be changed.

    It may not after the log is closed, after a failed call that may have left bytes in the files, and in a child
    process made by fork().
    Attributes: flush_lock (excludes changes while files are synced; taken first), append_lock (guards the log's state),
        is_open (whether check would pass), is_closed, failure (the first one, or None), path (the partition directory).
    """

    def __init__(self, topic_partition: TopicPartition, path: str, *, files: WriterFiles) -> None:
        self.flush_lock = threading.Lock()
        self.append_lock = threading.Lock()
        self.is_open = True
        self.failure: BaseException | None = None
        self._name = f"{topic_partition} in {path}"
        self.path = path
        self.is_closed = False
        self._files = files
        disown_in_child(self)

    def check(self) -> None:
        """Raise LogClosedError, LogLockedError after a fork, or LogFailedError if the log accepts no changes."""
        if self.is_closed:
            raise LogClosedError(f"the log of {self._name} was closed", path=self.path)
        self._files.check_owner()
        if self.failure is not None:
            raise LogFailedError(
                f"the log of {self._name} accepts no more writes until it is opened again, since a call failed: "
                f"{str(self.failure) or type(self.failure).__name__}",
                path=self.path,
                errno=getattr(self.failure, "errno", None),
            ) from self.failure

    def check_lock_and_file(self, records: FileRecords) -> None:
        """Check that the lock still excludes other writers and that the active segment's file is still at its path.

        Called before operations that could damage another writer's files (a roll, a truncation, closing), and by each
        flush, so that nothing counts as durable in a file that no reader will find. An append does not check.
        Raises: LogLockedError, StorageError; after that, the log may not be changed any more.  Cost: two stat calls.
        """
        try:
            self._files.check_held()
            records.check_in_place()
        except StorageError as error:
            self.fail(error)
            raise

    def fail(self, error: BaseException) -> None:
        """Allow no more changes, since the files may hold records whose append was reported as failed.

        Marks the error as final. Later calls name the first error.
        """
        self.is_open = False
        is_first = self.failure is None
        if is_first:
            self.failure = error
        if isinstance(error, StorageError):
            error.is_final = True
        if is_first:
            _logger.error("%s accepts no more writes until it is opened again: %r", self.path, error)

    def fail_unless_undone(self, error: BaseException, local: LocalLog) -> None:
        """Fail after an error or an interrupt of an append or a roll that may have left something in the files."""
        is_undone = False
        try:
            is_undone = local.is_undone(error)
        finally:
            if not is_undone:
                self.fail(error)

    @contextmanager
    def failing_unless_undone(self, local: LocalLog) -> Iterator[None]:
        """Let an error of the body pass through fail_unless_undone."""
        try:
            yield
        except BaseException as error:
            self.fail_unless_undone(error, local)
            raise

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Fail with any error or interrupt of the body, which may leave a change of the files half done."""
        try:
            yield
        except BaseException as error:
            self.fail(error)
            raise

    def close(self) -> None:
        """Allow no more changes, since the log is about to be closed."""
        self.is_open = False
        self.is_closed = True

    def _disown(self) -> None:
        self.is_open = False
        self.append_lock, self.flush_lock = threading.Lock(), threading.Lock()


class _Root:
    """A root while this process writes some of its partitions one by one, and whether each was closed cleanly."""

    def __init__(self, marker: CleanShutdown | None) -> None:
        self.marker = marker
        self.open_names: set[str] = set()
        self.closed_names: set[str] = set()
        self.is_harmed = False

    def is_clean(self, names: Iterable[str]) -> bool:
        """Whether all the named partitions were closed cleanly: before this process (by the marker), or since."""
        return not self.is_harmed and (self.marker is not None or self.closed_names.issuperset(names))


class _Roots:
    """The open roots, by path. A change of a root's marker or checkpoints requires the lock."""

    def __init__(self) -> None:
        self._disown()

    def _disown(self) -> None:
        self.by_path: dict[str, _Root] = {}
        self.lock = threading.RLock()


_roots = _Roots()
disown_in_child(_roots)


class WriterFiles:
    """The lock of one partition, and the files that its writer maintains in the directory and the root.

    Args: keeps_checkpoints: whether closing writes the root's checkpoints; False in a Store.
    """

    def __init__(
        self, directory: PartitionDirectory, *, lock: PartitionLock, keeps_checkpoints: bool, env: Env
    ) -> None:
        self._directory = directory
        self._lock = lock
        self._env = env
        self._keeps_checkpoints = keeps_checkpoints
        self._name = split_path(directory.path)[1]
        self._durable_point: DurablePointFile | None = None

    @classmethod
    def acquire(
        cls,
        directory: PartitionDirectory,
        *,
        lock: PartitionLock | None,
        timeout_s: float | None = 0.0,
        env: Env,
    ) -> WriterFiles:
        """Lock the partition unless a lock is given.

        Args: timeout_s: as for PartitionLock.acquire.
        Raises: LogLockedError, StorageError.
        """
        held = lock
        if held is None:
            held = PartitionLock.acquire(directory.root, split_path(directory.path)[1], env, timeout_s=timeout_s)
        try:
            return cls(directory, lock=held, keeps_checkpoints=lock is None, env=env)
        except BaseException:
            held.release()
            raise

    def load(
        self, *, config: LogConfig, mode: RecoveryMode, trusts_recovery_point: bool, is_clean: bool | None
    ) -> LoadedLog:
        """Load the log, with recovery unless it is known to have been closed cleanly.

        Args: is_clean: None to decide by the clean shutdown marker.
        Raises: CorruptLogError and its subclasses, StorageError.
        """
        was_closed = self._remove_marker() if is_clean is None else is_clean
        durable_point = DurablePointFile(self._directory.path, self._env)
        loaded = load_log(
            self._directory,
            config=config,
            env=self._env,
            mode=mode,
            recovery_point=self._checkpointed(RECOVERY_POINT_CHECKPOINT),
            log_start_offset=self._checkpointed(LOG_START_OFFSET_CHECKPOINT),
            is_clean=was_closed,
            trusts_recovery_point=trusts_recovery_point,
            durable_point=durable_point,
        )
        self._durable_point = durable_point
        return loaded

    @property
    def durable_point(self) -> DurablePointFile:
        """The durable point file. Raises LogClosedError until the log is loaded."""
        if self._durable_point is None:
            raise LogClosedError(f"{self._directory.path} was not loaded", path=self._directory.path)
        return self._durable_point

    def check_owner(self) -> None:
        """Raise LogLockedError in a child process made by fork(), LogClosedError after close()."""
        self._lock.check_owner()

    def check_held(self) -> None:
        """Raise as check_owner does, or LogLockedError if the lock no longer excludes other writers."""
        self._lock.check_held()

    @property
    def is_owner(self) -> bool:
        """Whether this process holds the lock, and is not a child made by fork()."""
        return self._lock.is_owner

    def save_log_start_offset(self, offset: int) -> None:
        """Durably write the log start offset to the root's checkpoint.

        Raises: StorageError.
        """
        self._save(LOG_START_OFFSET_CHECKPOINT, offset)

    def lower_recovery_point(self, offset: int) -> None:
        """Durably lower the recovery point in the root's checkpoint to at most `offset`, before the log is truncated to
        it.

        Raises: StorageError.
        """
        self._lower(RECOVERY_POINT_CHECKPOINT, offset)

    def cleaned_offset(self) -> int | None:
        """Return the offset below which the log is clean, by the cleaner's checkpoint; None if it has no entry."""
        return self._checkpointed(CLEANER_CHECKPOINT)

    def save_cleaned_offset(self, offset: int) -> None:
        """Durably write the offset below which the log is clean to the cleaner's checkpoint.

        Raises: StorageError.
        """
        self._save(CLEANER_CHECKPOINT, offset)

    def lower_cleaned_offset(self, offset: int) -> None:
        """Durably lower the cleaner's checkpoint to at most `offset`: what is appended from there on is dirty.

        Raises: StorageError.
        """
        self._lower(CLEANER_CHECKPOINT, offset)

    def settle_cleaned_offset(self, *, log_start_offset: int, log_end_offset: int) -> None:
        """Durably reset a cleaner's checkpoint above the log end to the log start: what will be appended below it is
        dirty.

        Raises: StorageError.  Source: Kafka LogCleanerManager.cleanableOffsets.
        """
        cleaned = self.cleaned_offset()
        if cleaned is not None and cleaned > log_end_offset:
            _logger.warning(
                "resetting the cleaner's checkpoint of %s from %d to the log start %d, since the log ends at %d",
                self._directory.path,
                cleaned,
                log_start_offset,
                log_end_offset,
            )
            self.save_cleaned_offset(log_start_offset)

    def close(self, marks: PartitionMarks | None) -> None:
        """Write the files of a clean shutdown, unless `marks` is None, and release the lock.

        The durable point is removed after the checkpoints that replace it are written: by this call or, in a Store,
        when the Store is closed.
        Raises: StorageError, with the lock released.
        """
        try:
            if marks is not None and self._keeps_checkpoints:
                self._save(RECOVERY_POINT_CHECKPOINT, marks.recovery_point)
                self._save(LOG_START_OFFSET_CHECKPOINT, marks.log_start_offset)
                self._save(HIGH_WATERMARK_CHECKPOINT, marks.high_watermark)
                self.durable_point.close()
                remove_durable_point(self._directory.path, self._env)
                self._restore_marker()
        finally:
            self.release()

    def release(self) -> None:
        """Close the files and release the lock, without writing anything. A finalizer may call this."""
        try:
            with _roots.lock:
                root = _roots.by_path.get(self._directory.root)
                if root is not None and self._name in root.open_names:
                    root.is_harmed = True
                    self._leave(root)
            if self._durable_point is not None and self.is_owner:
                self._durable_point.close_soon()
        finally:
            self._lock.release()

    def _remove_marker(self) -> bool:
        """Remove the root's clean shutdown marker if it exists, and return whether this log was closed cleanly."""
        with _roots.lock:
            root = _roots.by_path.get(self._directory.root)
            if root is None:
                marker = read_clean_shutdown(self._directory.root, self._env)
                if marker is not None:
                    remove_clean_shutdown(self._directory.root, self._env)
                root = _roots.by_path[self._directory.root] = _Root(marker)
            root.open_names.add(self._name)
            return root.is_clean([self._name])

    def _restore_marker(self) -> None:
        """Write the marker if this was the last open log of the root and all of its partitions were closed cleanly."""
        with _roots.lock:
            root = _roots.by_path.get(self._directory.root)
            if root is None or self._name not in root.open_names:
                return
            root.closed_names.add(self._name)
            self._leave(root)
            if not root.open_names and root.is_clean(self._partition_names()):
                write_clean_shutdown(self._directory.root, root.marker or CleanShutdown(), self._env)

    def _leave(self, root: _Root) -> None:
        root.open_names.discard(self._name)
        if not root.open_names:
            del _roots.by_path[self._directory.root]

    def _partition_names(self) -> list[str]:
        names = self._env.listdir(self._directory.root)
        return [name for name in names if parse_partition_directory_name(name) is not None]

    def _checkpointed(self, name: str) -> int | None:
        return read_checkpoint(self._directory.root, name, self._env).get(self._directory.topic_partition)

    def _save(self, name: str, offset: int) -> None:
        save_offset(self._directory.root, name, self._directory.topic_partition, offset, self._env)

    def _lower(self, name: str, offset: int) -> None:
        lower_offset(self._directory.root, name, self._directory.topic_partition, offset, self._env)
