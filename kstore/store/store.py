"""Store and WritableStore: the topics of a log.dirs root and what they share: lock, checkpoints, clean shutdown marker.

Kafka does not keep topic configurations in the root: callers pass them, and what they change of them while a store is
open is kept in a file of kstore's own (settings/file.py). __cluster_metadata, the log of a KRaft
quorum, can be read and is otherwise left to the broker.
"""

from __future__ import annotations

import logging
import threading
import uuid
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Literal, overload

from kstore.config import LogConfig, config_or_default
from kstore.coordinator.store import Dependent
from kstore.env import Arrivals, Env, LiveArrivals, StrPath, locate, split_path, writers_limit
from kstore.errors import (
    CorruptCheckpointError,
    KStoreError,
    checked_int,
)
from kstore.log.files.lock import PartitionLock, disown_in_child
from kstore.log.files.names import (
    PartitionDirectory,
    partitions_of_root,
)
from kstore.log.files.root_files import (
    MetaProperties,
    id_text,
    parse_id,
    random_id,
    read_meta_properties,
    write_meta_properties,
)
from kstore.log.recovery.modes import RecoveryMode, check_recovery
from kstore.store.logs import WriterLogs
from kstore.store.opening import check_no_tier, tiered_env
from kstore.store.root import OpenLogs, RootLogs
from kstore.store.settings.known import note_creation
from kstore.store.settings.topics import TopicSettings
from kstore.store.topics import StoreTopics, check_topic_name
from kstore.store.upkeep.dependents import Dependents
from kstore.store.upkeep.maintenance import Maintenance, MaintenanceIntervals, MaintenanceReport
from kstore.store.upkeep.metrics import Metric, StoreMetrics
from kstore.store.upkeep.removal import removed
from kstore.store.upkeep.root_listing import RootListing
from kstore.types import MAX_PARTITION, Time, TopicPartition, time_ms
from kstore.waiting import checked_timeout
from kstore.wire.protocol import ZERO_UUID

if TYPE_CHECKING:
    from kstore.log.log import Log
    from kstore.log.write.writable_log import WritableLog

_DEFAULT_NODE_ID = 1
_MOST_THREADS = 256
_THREADS = "kstore-recovery"

_logger = logging.getLogger("kstore.log")


@overload
def open_store(
    root: StrPath,
    mode: Literal["r"] = "r",
    config: LogConfig | None = None,
    *,
    topic_configs: Mapping[str, LogConfig] | None = None,
    tier: StrPath | None = None,
    tier_keys: Mapping[str, StrPath] | None = None,
    tier_epoch: int | None = None,
    env: Env | None = None,
) -> Store: ...


@overload
def open_store(
    root: StrPath,
    mode: Literal["a"],
    config: LogConfig | None = None,
    *,
    topic_configs: Mapping[str, LogConfig] | None = None,
    recovery: RecoveryMode = "strict",
    trusts_recovery_point: bool = False,
    max_open_files: int | None = None,
    recovery_threads: int = 1,
    cluster_id: str | None = None,
    node_id: int | None = None,
    timeout: float | None = 0.0,
    env: Env | None = None,
) -> WritableStore: ...


def open_store(
    root: StrPath,
    mode: Literal["r", "a"] = "r",
    config: LogConfig | None = None,
    *,
    topic_configs: Mapping[str, LogConfig] | None = None,
    recovery: RecoveryMode = "strict",
    trusts_recovery_point: bool = False,
    max_open_files: int | None = None,
    recovery_threads: int = 1,
    cluster_id: str | None = None,
    node_id: int | None = None,
    timeout: float | None = 0.0,
    tier: StrPath | None = None,
    tier_keys: Mapping[str, StrPath] | None = None,
    tier_epoch: int | None = None,
    env: Env | None = None,
) -> Store | WritableStore:
    """Open a log.dirs root, for reading as it is now ("r"; look_again() sees more) or as its only writer ("a").

    Mode "a" creates the root if its parent exists, and recovers every log if the root was not closed cleanly. A log
    that strict recovery refuses, or whose directory can't be read, does not prevent writing to the others.
    Args: config: of every topic that is not in topic_configs; None for the default of the root (docs/store.md), by
        which retention deletes nothing of a root that kstore created. In mode "a", what the root says of a topic's
        settings holds too, except for a topic in topic_configs. recovery, trusts_recovery_point: as in open_log;
        max_open_files: how many logs may keep a file open that they append to, None for half of RLIMIT_NOFILE;
        recovery_threads: how many logs are recovered, or created, at once, 1 to 256 (Kafka:
        num.recovery.threads.per.data.dir; they mostly wait for syncs; of 4 and more new partitions at least 8 are
        created at once); cluster_id, node_id: for a root without meta.properties, default random and 1; for one with it
        they must match; timeout: how long to wait for the lock of the root while another store or process has it, in
        seconds, None without limit. tier, tier_keys, tier_epoch: as of open_log; `root` again reads a tier alone.
    Raises: LogNotFoundError if there is no directory; LogLockedError, with the process that holds the lock;
        StorageError; CorruptCheckpointError for a malformed meta.properties; ValueError, TypeError for an unknown mode,
        an impossible timeout, a root of another cluster or node.
    """
    if mode not in ("r", "a"):
        raise ValueError(f'mode must be "r" or "a", got {mode!r}')
    check_recovery(recovery, trusts_recovery_point=trusts_recovery_point)
    settings, by_topic = config_or_default(config), topic_configs or {}
    if mode == "r":
        env, path = locate(root, tiered_env([root], tier, keys=tier_keys, epoch=tier_epoch, config=settings, env=env))
        return Store(path, settings, by_topic, env=env)
    env, path = locate(root, check_no_tier(tier, env))
    threads = checked_int("recovery_threads", recovery_threads, least=1, greatest=_MOST_THREADS)
    timeout_s = checked_timeout(timeout)
    if max_open_files is not None:
        max_open_files = checked_int("max_open_files", max_open_files, least=1)
    env.check_writable(path)
    if env.make_directory(path):
        env.sync_directory(split_path(path)[0])
    lock = PartitionLock.acquire(path, None, env, timeout_s=timeout_s)
    try:
        note_creation(path, env)
        owner = _claim(path, cluster_id=cluster_id, node_id=node_id, env=env)
        return WritableStore(
            path,
            None if config is None else settings,
            by_topic,
            lock=lock,
            owner=owner,
            recovery=recovery,
            trusts_recovery_point=trusts_recovery_point,
            max_open_files=max_open_files,
            recovery_threads=threads,
            env=env,
        )
    except BaseException:
        lock.release()
        raise


class _ReadLogs(OpenLogs["Log"]):
    """The partitions of a root that is read, and their logs."""

    def __init__(self, root: str, config: LogConfig, topic_configs: Mapping[str, LogConfig], *, env: Env) -> None:
        super().__init__(root, env)
        self._config = config
        self._topic_configs = dict(topic_configs)

    def open(self, directory: PartitionDirectory) -> Log:
        from kstore.log.directory_source import DirectorySource
        from kstore.log.log import Log

        config = self._topic_configs.get(directory.topic_partition.topic, self._config)
        return Log(DirectorySource(directory, config=config))


class Store(RootLogs["Log"]):
    """A log.dirs root, read without a lock as it was at the last look_again(), and each log as at its last refresh().

    follow(), table() and a Consumer see by themselves what comes later.
    Attributes: root, meta_properties.
    Threads: thread-safe.
    """

    def __init__(self, root: str, config: LogConfig, topic_configs: Mapping[str, LogConfig], *, env: Env) -> None:
        super().__init__(_ReadLogs(root, config, topic_configs, env=env), config, env=env)
        self._listing = RootListing(root, env)

    def look_again(self) -> None:
        """Take up the partitions that were added and deleted. A partition that was re-created gets a new incarnation,
        if the old one was asked for, and its log is opened again.

        Cost: a stat if nothing in the root has changed for a while; else a listing, and a stat for each of those.
        """
        with self._mutex:
            self._check_open()
            directories = self._listing.changed(self._logs.directories)
            if directories is not None:
                self._logs.replace(directories)

    def incarnation(self, topic: str, partition: int) -> PartitionDirectory | None:
        """Return the partition's identity token, None if it does not exist; a re-created partition gets a new one."""
        with self._mutex:
            directory = super().incarnation(topic, partition)
            if directory is not None:
                self._listing.note(directory)
            return directory

    def _made_arrivals(self) -> Arrivals:
        return self._env.watch()

    def _partitions_now(self) -> dict[TopicPartition, PartitionDirectory]:
        self._check_open()
        self._env.invalidate_listing(self.root)
        return {directory.topic_partition: directory for directory in partitions_of_root(self.root, self._env)}

    def _followed_log(self, directory: PartitionDirectory) -> Log:
        return self._logs.open(directory)

    def _look_at_root(self) -> None:
        self.look_again()

    def _root_state(self) -> object:
        self._check_open()
        return None if self._env.is_high_latency else self._env.stat(self.root)


class WritableStore(RootLogs["WritableLog"]):
    """A log.dirs root with its only writer. A log is opened when it is first requested.

    Any number of logs can be open: those beyond max_open_files that take no appends give their descriptor up until they
    are used again.
    Attributes: root, meta_properties, recovery_reports (of the logs that were recovered when the root was opened),
        refused (the error with which strict recovery refused a log; log() raises it), on_topic_change (called with the
        name of a topic that was created, changed or deleted, and the settings that were changed, by the names of
        LogConfig, None for those that were taken back; before the call that did it returns; None for nothing).
    Threads: thread-safe.  Source: Kafka LogManager.
    """

    meta_properties: MetaProperties
    on_topic_change: Callable[[str, Mapping[str, object]], None] | None = None
    _logs: WriterLogs

    def __init__(
        self,
        root: str,
        config: LogConfig | None,
        topic_configs: Mapping[str, LogConfig],
        *,
        lock: PartitionLock,
        owner: MetaProperties,
        recovery: RecoveryMode,
        trusts_recovery_point: bool,
        max_open_files: int | None,
        recovery_threads: int,
        env: Env,
    ) -> None:
        settings = TopicSettings(config, topic_configs, root=root, env=env)
        self._metrics = StoreMetrics(env)
        logs = WriterLogs(
            root,
            lock=lock,
            settings=settings,
            metrics=self._metrics,
            recovery=recovery,
            trusts_recovery_point=trusts_recovery_point,
            threads=recovery_threads,
            max_open_files=writers_limit() if max_open_files is None else max_open_files,
            env=env,
        )
        super().__init__(logs, settings.default, env=env)
        self.meta_properties = owner
        self.recovery_reports = logs.recovery_reports
        self.refused = logs.refused
        self._lock = lock
        self._is_closing = False
        self._dependents = Dependents(root)
        self._maintenance = Maintenance(self, env)
        self._topics = StoreTopics(
            logs, settings=settings, maintenance=self._maintenance, listeners=self._listeners, env=env
        )
        disown_in_child(self)
        self._topics.resume_deletions()
        logs.begin()
        self._topics.finish_deletions(self)
        self._dropping = weakref.finalize(self, _drop, root, lock)
        self._dropping.atexit = False

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        config: LogConfig | Mapping[str, object] | None = None,
        topic_id: uuid.UUID | str | None = None,
        exist_ok: bool = False,
        validate_only: bool = False,
    ) -> uuid.UUID:
        """Create the directories of a topic, each with an empty segment, and return the topic's id.

        Args: topic_id: its id in a cluster, random by default; config: what differs in it from the config of the store
            is kept in the root, and holds for later openings too; of a mapping by the names of LogConfig all is kept;
            exist_ok: leave a topic that exists as it is, and return its id (ZERO_UUID without one); validate_only:
            create nothing, just raise what a creation would raise before it writes.
        Raises: InvalidTopicError for a name that Kafka does not allow, alone or beside that of another topic;
            TopicExistsError; ValueError, TypeError for an invalid id or settings; StorageError, with the partitions
            created up to then, and without the settings if there is none; CorruptCheckpointError, see
            change_topic_config.
        """
        check_topic_name(name, self.root)
        partitions = checked_int("partitions", partitions, least=1, greatest=MAX_PARTITION)
        made_id = _as_id(topic_id)
        with self._mutex:
            self._check_writable()
            if exist_ok and name in self.topics:
                return self.topic_id(name) or ZERO_UUID
            if validate_only:
                self._topics.check_creation(name, config)
            else:
                self._topics.create(name, partitions, made_id, config=config, store=self)
                self.tell_topic_change(name)
        return made_id

    def create_partitions(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic, with its id, until it has `partitions` of them.

        Raises: ValueError if it has more already; LogNotFoundError if the topic does not exist; StorageError.
        """
        with self._mutex:
            self._check_writable()
            self._topics.grow(topic, partitions, self.topic_id(topic))
            self.tell_topic_change(topic)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records, settings and the offsets that groups committed for it. Its logs are closed,
        and so are the iterators over them.

        Its directories are renamed to Kafka's <topic>-<partition>.<id>-delete. They are removed file_delete_delay_ms
        (of the store's config) later by maintenance, by close, or after the next opening. When this returns, the
        deletion survives a power cut. Once it has begun, a later call, or the next opening, completes it.
        Raises: LogNotFoundError if the topic does not exist; StorageError; CorruptCheckpointError, see
            change_topic_config.
        Cost: reads all of `__consumer_offsets`, if the root has it.
        Source: Kafka LogManager.asyncDelete, GroupCoordinatorService.onPartitionsDeleted.
        """
        with self._mutex:
            self._check_writable()
            self._topics.delete(name, self)
            self.tell_topic_change(name)

    def topic_config(self, topic: str) -> LogConfig:
        """Return the configuration of a topic.  Raises: LogNotFoundError if the topic does not exist."""
        with self._mutex:
            self._check_open()
            return self._topics.config(topic)

    def overridden_topic_config(self, topic: str) -> dict[str, object]:
        """Return the settings that a topic was given itself, also those of the store, by the names of LogConfig.

        Raises: LogNotFoundError if the topic does not exist.
        Source: Kafka LogConfig.overriddenConfigs.
        """
        with self._mutex:
            self._check_open()
            return self._topics.overridden_config(topic)

    def change_topic_config(
        self, topic: str, changes: Mapping[str, object], *, reset: Iterable[str] = (), validate_only: bool = False
    ) -> LogConfig:
        """Change settings of a topic, take those named in `reset` back to the store's config, and return the new
        configuration.

        The root keeps the changes in kstore-topic-settings, which brokers ignore, also where they are the store's
        config. Logs that are open follow at once, see WritableLog.update_config.
        Args: changes: values by the names of LogConfig; validate_only: change nothing, return what would be.
        Raises: ValueError, TypeError for an unknown name or an impossible value, LogNotFoundError if the topic does not
            exist, with nothing changed; StorageError; CorruptCheckpointError if kstore-topic-settings is damaged:
            restore or remove it.
        """
        with self._mutex:
            self._check_writable()
            dropped = tuple(reset)
            config = self._topics.change_config(topic, changes, dropped, validate_only=validate_only)
            if validate_only or self.on_topic_change is None:
                return config
            changed = {name: getattr(config, name) for name in changes}
            self.tell_topic_change(topic, {**changed, **dict.fromkeys(dropped)})
            # The metadata of a cluster may say something else now.
            return self._topics.reread_config(topic)

    def tell_topic_change(self, topic: str, settings: Mapping[str, object] | None = None) -> None:
        """Call on_topic_change, if there is any, for what changes otherwise than by a method of the store: the leader
        epochs of a log that is filled.
        """
        with self._mutex:
            if self.on_topic_change is not None:
                self.on_topic_change(topic, settings or {})

    def settings_damage(self, topic: str) -> CorruptCheckpointError | None:
        """Return why the settings of a topic are unknown, None if they are known."""
        return self._topics.settings_damage(topic)

    def run_maintenance(
        self,
        now_ms: Time | None = None,
        *,
        max_bytes_per_second: float | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> MaintenanceReport:
        """Do now what a broker does in the background, and return what was done.

        In this order: flush the logs that flush_ms makes due; remove deleted directories that are due; forget expired
        producers; delete old segments of every log; compact the logs that are due, the dirtiest first; write the
        checkpoints. An error in one log is logged and reported, and does not stop the others; one that compaction would
        meet again makes the partition uncleanable until its settings change or the store is opened again. Retention and
        compaction open all logs.
        Args: now_ms: the time for retention and compaction, None for the clock; max_bytes_per_second, should_stop:
            as in WritableLog.compact; should_stop is also asked before each log.
        Raises: LogClosedError; LogLockedError after a fork.
        Threads: one pass at a time, another call waits; appends and reads go on.
        Source: Kafka LogManager.startup, LogCleaner.
        """
        self._check_writable()
        return self._maintenance.run(
            now_ms=time_ms("now_ms", now_ms), max_bytes_per_second=max_bytes_per_second, should_stop=should_stop
        )

    def start_maintenance(
        self, intervals: MaintenanceIntervals | None = None, *, max_bytes_per_second: float | None = None
    ) -> None:
        """Run the tasks of run_maintenance in a thread, each at its interval, until stop_maintenance or close.

        Raises: ValueError if they run already; LogClosedError, LogLockedError.
        """
        with self._mutex:
            self._check_writable()
            chosen = MaintenanceIntervals() if intervals is None else intervals
            self._maintenance.start(chosen, max_bytes_per_second=max_bytes_per_second)

    def stop_maintenance(self) -> None:
        """End the thread, and wait for a pass that is running, which stops where it is."""
        self._maintenance.stop()

    def metrics(self) -> dict[str, Metric]:
        """Return figures of the store by the names of Kafka's metrics; LogStartOffset, LogEndOffset, Size (bytes) and
        NumLogSegments by partition, for the logs that are open.

        Counts and rates are of the time since the store was opened; docs/store.md lists them.
        Cost: no system call; a look at each open log and its segments.
        """
        with self._mutex:
            self._check_open()
            return self._metrics.taken(
                self.partitions,
                list(self._logs.logs.values()),
                self._maintenance,
                deleted_directories=len(self._topics.deleted),
                refused=len(self.refused),
            )

    @property
    def is_closed(self) -> bool:
        """Whether close() ended the store."""
        return self._is_closed

    def open_logs(self) -> list[WritableLog]:
        """Return the logs that are open."""
        with self._mutex:
            return [log for log in self._logs.logs.values() if not log.is_closed]

    def remove_deleted(self) -> list[str]:
        """Remove the directories of deleted partitions that are due, and return their paths."""
        with self._mutex:
            self._check_writable()
            due = self._topics.deleted.taken()
        gone, left = removed(due, self._env)
        with self._mutex:
            self._topics.deleted.keep(left)
        return gone

    def add_dependent(self, dependent: Dependent) -> None:
        """Have an object that holds records for this store in memory end its work before the store is closed.

        Producers do that by themselves. The store does not keep it alive.
        Raises: LogClosedError.
        """
        self._dependents.add(dependent)

    def checkpoint(self) -> None:
        """Write the recovery point, log start offset and high watermark of each log, as a broker does every minute.

        A recovery that trusts the recovery point reads no segment below it.
        Raises: StorageError, LogLockedError after a fork.
        """
        with self._mutex:
            self._check_writable()
            self._logs.checkpoint()

    def close(self) -> None:
        """Close every log and leave the root as a clean shutdown does; a second call does nothing.

        First the producers that write to the store are closed, each within its delivery_timeout_ms.
        The clean shutdown marker, which makes a recovery unnecessary, is written only if every log of the root is whole
        and was closed.
        Within a pass of maintenance, as by a signal handler, the store is closed when that ends. After an interrupt
        (Ctrl-C) a second call does the rest; until then the store allows nothing else.
        Raises: StorageError, with everything closed and unlocked, and no marker written; else UnsentRecordsError, with
            everything closed, if records of producers could not be written; RuntimeError, with nothing done, in a
            signal handler that interrupted a call of a producer.
        """
        if not self._maintenance.end(self.close):
            return
        # Without the mutex: the threads of the producers need it.
        unsent = self._dependents.end()
        with self._mutex:
            # The second: a signal handler or a finalizer closes the store while its thread does.
            if self._is_closed or self._is_closing:
                return
            self._is_ended = self._is_closing = True
            try:
                self._close_all()
            finally:
                self._is_closing = False
        if unsent is not None:
            raise unsent

    def _close_all(self) -> None:
        """Do what close() does; an interrupted call may be made again. Requires the mutex."""
        try:
            if not self._lock.is_released:
                self._lock.check_owner()
                removed(self._topics.deleted.taken(is_due=False), self._env)
                self._logs.close()
                self._lock.release()
        except KStoreError:
            self._lock.release()
            self._note_closed()
            raise
        self._note_closed()

    def _note_closed(self) -> None:
        self._is_closed = True
        self._dropping.detach()
        self._listeners.report(self.root)

    def _disown(self) -> None:
        self._mutex = threading.RLock()
        # The threads of the producers stay in the parent.
        self._dependents = Dependents(self.root)

    def _made_arrivals(self) -> Arrivals:
        return LiveArrivals()

    def _partitions_now(self) -> dict[TopicPartition, PartitionDirectory]:
        with self._mutex:
            self._check_open()
            return dict(self._logs.directories)

    def _followed_log(self, directory: PartitionDirectory) -> Log:
        return self.log(*directory.topic_partition)

    def _look_at_root(self) -> None:
        self._check_open()

    def _root_state(self) -> object:
        self._check_open()
        return self._logs.version

    def _check_writable(self) -> None:
        self._check_open()
        self._lock.check_held()


def _drop(root: str, lock: PartitionLock) -> None:
    """Release the lock of a store that was garbage-collected without close(); its logs have finalizers of their own."""
    try:
        if lock.is_owner:
            warnings.warn(f"unclosed store {root}", ResourceWarning, stacklevel=2)
    finally:
        lock.release()


def _claim(root: str, *, cluster_id: str | None, node_id: int | None, env: Env) -> MetaProperties:
    """Return the root's meta.properties, and create the file if it does not exist.

    Raises: ValueError if the root belongs to another cluster or node.
    """
    known = read_meta_properties(root, env)
    if known is None:
        made = MetaProperties(
            version=1,
            cluster_id=id_text(random_id()) if cluster_id is None else cluster_id,
            node_id=_DEFAULT_NODE_ID if node_id is None else node_id,
            directory_id=random_id(),
        )
        write_meta_properties(root, made, env)
        return made
    for name, wanted, there in (("cluster_id", cluster_id, known.cluster_id), ("node_id", node_id, known.node_id)):
        if wanted is not None and wanted != there:
            raise ValueError(f"{root} belongs to another cluster or node: expected {name} {wanted!r}, found {there!r}")
    return known


def _as_id(topic_id: uuid.UUID | str | None) -> uuid.UUID:
    if topic_id is None:
        return random_id()
    return parse_id(topic_id) if isinstance(topic_id, str) else topic_id
