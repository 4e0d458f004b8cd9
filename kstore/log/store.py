"""Store and WritableStore: the topics of a log.dirs root and what they share: lock, checkpoints, clean shutdown marker.

Kafka does not keep topic configurations in the root, so callers pass them. __cluster_metadata, the log of a KRaft
quorum, can be read and is otherwise left to the broker. recover_partitions recovers the partitions of a root.
"""

from __future__ import annotations

import logging
import threading
import uuid
import warnings
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Generic, Literal, NamedTuple, TypeVar, overload

from kstore.config import LogConfig
from kstore.errors import CorruptLogError, KStoreError, LogClosedError, LogNotFoundError, checked_index, checked_int
from kstore.log.env import DEFAULT_ENV, ENOENT, Closing, Env, StrPath, join_path, locate, split_path
from kstore.log.files.checkpoints import PartitionMarks, forget_partitions, read_checkpoint, save_marks
from kstore.log.files.durable_point import remove_durable_point
from kstore.log.files.lock import PartitionLock, disown_in_child
from kstore.log.files.names import (
    CLUSTER_METADATA_TOPIC,
    LOG_START_OFFSET_CHECKPOINT,
    MAX_PARTITION,
    RECOVERY_POINT_CHECKPOINT,
    PartitionDirectory,
    is_topic_name,
    partitions_of_root,
)
from kstore.log.files.root_files import (
    CleanShutdown,
    MetaProperties,
    id_text,
    parse_id,
    random_id,
    read_clean_shutdown,
    read_meta_properties,
    read_partition_metadata,
    remove_clean_shutdown,
    write_clean_shutdown,
    write_meta_properties,
    write_partition_metadata,
)
from kstore.log.log import Log
from kstore.log.recovery.context import LoadedLog, RecoveryMode, RecoveryReport, check_recovery
from kstore.log.recovery.load import load_log
from kstore.log.source import DirectorySource
from kstore.log.write.writable_log import WritableLog
from kstore.types import TopicPartition


class RecoveredPartition(NamedTuple):
    """The outcome for one partition: its report, or the error with which strict recovery refused it, unchanged."""

    directory: PartitionDirectory
    report: RecoveryReport | None
    refusal: CorruptLogError | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return self.directory.topic_partition


def recoverable(directories: Iterable[PartitionDirectory]) -> list[PartitionDirectory]:
    """Return the partitions without __cluster_metadata, which only a broker recovers."""
    return [one for one in directories if one.topic_partition.topic != CLUSTER_METADATA_TOPIC]


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

    At the end, the root is marked as closed cleanly if these are all of its partitions and none was refused.
    Args: keeps_copies, trusts_recovery_point, on_read, dry_run: as in load_log; a dry run takes no lock.
    Raises: LogLockedError, StorageError; ValueError for partitions of two roots, and as load_log.
    """
    check_recovery(mode, trusts_recovery_point=trusts_recovery_point)
    roots = {directory.root for directory in directories}
    if len(roots) > 1:
        raise ValueError(f"expected partitions of one root, got those of {', '.join(sorted(roots))}")
    settings = LogConfig() if config is None else config
    env = next((one.env for one in directories), DEFAULT_ENV) if env is None else env
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
        self._points: dict[TopicPartition, int] = {}
        self._starts: dict[TopicPartition, int] = {}
        self._marks: dict[TopicPartition, PartitionMarks] = {}

    def look(self, directories: Sequence[PartitionDirectory]) -> Iterator[RecoveredPartition]:
        self._read_checkpoints()
        for directory in directories:
            yield self._load(directory, dry_run=True)

    def run(self, directories: Sequence[PartitionDirectory]) -> Iterator[RecoveredPartition]:
        lock = PartitionLock.acquire(self._root, None, self._env)
        try:
            self._read_checkpoints()
            marker = read_clean_shutdown(self._root, self._env) or CleanShutdown()
            remove_clean_shutdown(self._root, self._env)
            for directory in directories:
                recovered = self._load(directory, dry_run=False)
                if recovered.report is not None:
                    self._settle(directory, lock)
                yield recovered
            self._finish(marker)
        finally:
            lock.release()

    def _read_checkpoints(self) -> None:
        self._points = read_checkpoint(self._root, RECOVERY_POINT_CHECKPOINT, self._env)
        self._starts = read_checkpoint(self._root, LOG_START_OFFSET_CHECKPOINT, self._env)

    def _load(self, directory: PartitionDirectory, *, dry_run: bool) -> RecoveredPartition:
        topic_partition = directory.topic_partition
        try:
            loaded = self._load_log(
                directory,
                recovery_point=self._points.get(topic_partition),
                log_start_offset=self._starts.get(topic_partition),
                dry_run=dry_run,
            )
        except CorruptLogError as error:
            return RecoveredPartition(directory, None, error)
        return RecoveredPartition(directory, loaded.report)

    def _settle(self, directory: PartitionDirectory, lock: PartitionLock) -> None:
        """Flush a recovered log and leave its files as a clean close does."""
        name = str(directory.topic_partition)
        log = WritableLog.open(directory, config=self._config, lock=lock.share(name), is_clean=True, env=self._env)
        log.close()
        self._marks[directory.topic_partition] = log.marks()

    def _finish(self, marker: CleanShutdown) -> None:
        there = {one.topic_partition for one in partitions_of_root(self._root, self._env)}
        save_marks(self._root, lambda: self._marks, self._env, kept=there)
        # KRaft's own log is loaded by the broker, and the marker does not cover it.
        if self._marks.keys() >= {one for one in there if one.topic != CLUSTER_METADATA_TOPIC}:
            write_clean_shutdown(self._root, marker, self._env)


_DEFAULT_NODE_ID = 1

_logger = logging.getLogger("kstore.log")
_SomeLog = TypeVar("_SomeLog", bound=Log)


@overload
def open_store(
    root: StrPath,
    mode: Literal["r"] = "r",
    config: LogConfig | None = None,
    *,
    topic_configs: Mapping[str, LogConfig] | None = None,
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
    cluster_id: str | None = None,
    node_id: int | None = None,
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
    cluster_id: str | None = None,
    node_id: int | None = None,
    env: Env | None = None,
) -> Store | WritableStore:
    """Open a log.dirs root, for reading ("r") or as its only writer ("a").

    Mode "a" creates the root if its parent exists, and recovers every log if the root was not closed cleanly. A log
    that strict recovery refuses does not prevent writing to the others.
    Args: config: of every topic that is not in topic_configs; recovery, trusts_recovery_point: as in open_log;
        cluster_id, node_id: for a root without meta.properties, default random and 1; for one with it they must match.
    Raises: LogNotFoundError if the directory does not exist; LogLockedError; StorageError; CorruptCheckpointError for a
        malformed meta.properties; ValueError for an unknown mode, or a root of another cluster or node.
    """
    if mode not in ("r", "a"):
        raise ValueError(f'mode must be "r" or "a", got {mode!r}')
    check_recovery(recovery, trusts_recovery_point=trusts_recovery_point)
    env, path = locate(root, env)
    settings = _TopicConfigs(LogConfig.or_default(config), topic_configs or {})
    if mode == "r":
        return Store(path, settings, env=env)
    env.check_writable(path)
    if env.make_directory(path):
        env.sync_directory(split_path(path)[0])
    lock = PartitionLock.acquire(path, None, env)
    try:
        owner = _claim(path, cluster_id=cluster_id, node_id=node_id, env=env)
        return WritableStore(
            path,
            settings,
            lock=lock,
            owner=owner,
            recovery=recovery,
            trusts_recovery_point=trusts_recovery_point,
            env=env,
        )
    except BaseException:
        lock.release()
        raise


class _TopicConfigs:
    """The configuration of each topic."""

    def __init__(self, default: LogConfig, by_topic: Mapping[str, LogConfig]) -> None:
        self._default = default
        self._by_topic = dict(by_topic)

    def of(self, topic: str) -> LogConfig:
        return self._by_topic.get(topic, self._default)

    def set(self, topic: str, config: LogConfig) -> None:
        self._by_topic[topic] = config


class _Logs(Closing, Generic[_SomeLog]):
    """The partitions of a root and its open logs; a context manager that closes them.

    Attributes: root, meta_properties (None if the root has none).
    Threads: thread-safe.
    """

    def __init__(self, root: str, configs: _TopicConfigs, *, env: Env) -> None:
        self.root = root
        self.meta_properties: MetaProperties | None = read_meta_properties(root, env)
        self._configs = configs
        self._env = env
        self._mutex = threading.RLock()
        self._is_closed = False
        self._directories = {directory.topic_partition: directory for directory in partitions_of_root(root, env)}
        self._partitions = tuple(sorted(self._directories))
        self._logs: dict[TopicPartition, _SomeLog] = {}

    def __repr__(self) -> str:
        closed = ", is_closed=True" if self._is_closed else ""
        return (
            f"{type(self).__name__}(root={self.root!r}, topics={len(self.topics)}, "
            f"partitions={len(self.partitions)}{closed})"
        )

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of the topics, sorted."""
        return tuple(sorted({topic for topic, _ in self.partitions}))

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions, by topic and number."""
        return self._partitions

    def topic_id(self, topic: str) -> uuid.UUID | None:
        """Return the topic's id from partition.metadata, None if no partition of it has one (before Kafka 2.8).

        Raises: LogNotFoundError if the topic does not exist; CorruptCheckpointError, StorageError.
        """
        numbers = [partition for name, partition in self.partitions if name == topic]
        if not numbers:
            raise _no_such_log(join_path(self.root, topic), f"no topic {topic!r} in {self.root}")
        for number in numbers:
            found = read_partition_metadata(self._directory(TopicPartition(topic, number)).path, self._env)
            if found is not None:
                return found
        return None

    def log(self, topic: str, partition: int = 0) -> _SomeLog:
        """Return the open log of a partition, the same one for every caller until it is closed.

        Raises: LogNotFoundError if the partition does not exist; as open_log.
        """
        with self._mutex:
            self._check_open()
            topic_partition = TopicPartition(topic, checked_index("partition", partition))
            directory = self._directory(topic_partition)
            log = self._logs.get(topic_partition)
            if log is None or log.is_closed:
                log = self._logs[topic_partition] = self._open(directory)
            return log

    def close(self) -> None:
        """Close every log; a second call does nothing."""
        with self._mutex:
            if not self._is_closed:
                self._is_closed = True
                for log in self._logs.values():
                    log.close()

    @abstractmethod
    def _open(self, directory: PartitionDirectory) -> _SomeLog:
        """Open the log of a partition. Requires the mutex."""

    def _directory(self, topic_partition: TopicPartition) -> PartitionDirectory:
        with self._mutex:
            directory = self._directories.get(topic_partition)
        if directory is None:
            path = join_path(self.root, str(topic_partition))
            raise _no_such_log(path, f"no partition {topic_partition} in {self.root}")
        return directory

    def _check_open(self) -> None:
        if self._is_closed:
            raise LogClosedError(f"the store of {self.root} was closed", path=self.root)


class Store(_Logs[Log]):
    """A log.dirs root opened for reading. Takes no lock and writes nothing; each Log is a snapshot of the time of the
    first log() call for it.

    Attributes: root, meta_properties.
    Threads: thread-safe.
    """

    def _open(self, directory: PartitionDirectory) -> Log:
        config = self._configs.of(directory.topic_partition.topic)
        return Log(DirectorySource(directory, config=config))


class WritableStore(_Logs[WritableLog]):
    """A log.dirs root with its only writer. A log is opened when it is first requested.

    Attributes: root, meta_properties, recovery_reports (of the logs that were recovered when the root was opened),
        refused (the error with which strict recovery refused a log; log() raises it).
    Threads: thread-safe.  Source: Kafka LogManager.
    """

    meta_properties: MetaProperties

    def __init__(
        self,
        root: str,
        configs: _TopicConfigs,
        *,
        lock: PartitionLock,
        owner: MetaProperties,
        recovery: RecoveryMode,
        trusts_recovery_point: bool,
        env: Env,
    ) -> None:
        super().__init__(root, configs, env=env)
        self.meta_properties = owner
        self.recovery_reports: dict[TopicPartition, RecoveryReport] = {}
        self.refused: dict[TopicPartition, CorruptLogError] = {}
        self._directories = {
            topic_partition: directory
            for topic_partition, directory in self._directories.items()
            if topic_partition.topic != CLUSTER_METADATA_TOPIC
        }
        self._partitions = tuple(sorted(self._directories))
        self._lock = lock
        self._recovery = recovery
        self._trusts_recovery_point = trusts_recovery_point
        disown_in_child(self)
        found = read_clean_shutdown(root, env)
        self._clean_shutdown = found or CleanShutdown()
        self._unclean = set() if found is not None else set(self._directories)
        remove_clean_shutdown(root, env)
        self._recover()
        self._dropping = weakref.finalize(self, _drop, root, lock)
        self._dropping.atexit = False

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        config: LogConfig | None = None,
        topic_id: uuid.UUID | str | None = None,
    ) -> uuid.UUID:
        """Create the directories of a topic, each with an empty segment, and return the topic's id.

        Args: topic_id: its id in a cluster, random by default; config: kept as long as the store
            is open.
        Raises: ValueError for a name that Kafka does not allow, a topic that exists, or an invalid id; StorageError,
            with the partitions created up to then.
        """
        if not is_topic_name(name) or name == CLUSTER_METADATA_TOPIC:
            raise ValueError(f"a topic name has 1 to 249 of a-z A-Z 0-9 . _ - and is not KRaft's own, got {name!r}")
        partitions = checked_int("partitions", partitions, least=1, greatest=MAX_PARTITION)
        made_id = _as_id(topic_id)
        with self._mutex:
            self._check_writable()
            if name in self.topics:
                raise ValueError(f"topic {name!r} already exists in {self.root}")
            if config is not None:
                self._configs.set(name, config)
            self._create_partitions(name, range(partitions), made_id)
        return made_id

    def create_partitions(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic, with its id, until it has `partitions` of them.

        Raises: ValueError if it has more already; LogNotFoundError if the topic does not exist; StorageError.
        """
        with self._mutex:
            self._check_writable()
            topic_id = self.topic_id(topic)
            count = 1 + max(number for name, number in self.partitions if name == topic)
            partitions = checked_int(f"partitions of {topic!r}", partitions, least=count, greatest=MAX_PARTITION)
            missing = [one for one in range(partitions) if TopicPartition(topic, one) not in self._directories]
            self._create_partitions(topic, missing, topic_id)

    def checkpoint(self) -> None:
        """Write the recovery point, log start offset and high watermark of each log, as a broker does every minute.

        A recovery that trusts the recovery point reads no segment below it.
        Raises: StorageError, LogLockedError after a fork.
        """
        with self._mutex:
            self._check_writable()
            self._write_checkpoints()

    def close(self) -> None:
        """Close every log and leave the root as a clean shutdown does; a second call does nothing.

        The clean shutdown marker, which makes a recovery unnecessary, is written only if every log of the root is whole
        and was closed.
        Raises: StorageError, with everything closed and unlocked, and no marker written.
        """
        with self._mutex:
            if self._is_closed:
                return
            self._is_closed = True
            self._dropping.detach()
            try:
                self._lock.check_owner()
                self._close_logs()
            finally:
                self._lock.release()

    def disown(self) -> None:
        self._mutex = threading.RLock()

    def _close_logs(self) -> None:
        try:
            self._close_each_log()
        except KStoreError:
            # An error raised here has the one above as its context.
            self._save_closed_logs()
            raise
        self._save_closed_logs()
        if not self._unclean:
            write_clean_shutdown(self.root, self._clean_shutdown, self._env)

    def _close_each_log(self) -> None:
        """Close all logs, even if some of them fail.

        Raises: the first error; each log has logged its own.
        """
        first: KStoreError | None = None
        for topic_partition, log in self._logs.items():
            try:
                log.close()
            except KStoreError as error:
                first = first or error
            if log.has_failed:
                self._unclean.add(topic_partition)
        if first is not None:
            raise first

    def _save_closed_logs(self) -> None:
        """Write the checkpoints, and then remove the durable points, which they replace."""
        self._lock.check_held()
        self._write_checkpoints()
        for log in self._logs.values():
            if not log.has_failed:
                remove_durable_point(log.path, self._env)

    def _recover(self) -> None:
        """Recover and close each log of a root that was not closed cleanly."""
        for topic_partition in sorted(self._unclean):
            try:
                log = self._open(self._directories[topic_partition])
            except CorruptLogError as error:
                _logger.error("%s was not recovered: %s", topic_partition, error)
                self.refused[topic_partition] = error
                continue
            self.recovery_reports[topic_partition] = log.recovery_report
            log.close()
            self._logs[topic_partition] = log

    def _open(self, directory: PartitionDirectory) -> WritableLog:
        topic_partition = directory.topic_partition
        self._check_writable()
        earlier = self._logs.get(topic_partition)
        if earlier is not None and earlier.has_failed:
            self._unclean.add(topic_partition)
        log = WritableLog.open(
            directory,
            config=self._configs.of(topic_partition.topic),
            recovery=self._recovery,
            trusts_recovery_point=self._trusts_recovery_point,
            lock=self._lock.share(str(topic_partition)),
            is_clean=topic_partition not in self._unclean,
            env=self._env,
        )
        self._unclean.discard(topic_partition)
        return log

    def _create_partitions(self, topic: str, numbers: Iterable[int], topic_id: uuid.UUID | None) -> None:
        made = [TopicPartition(topic, number) for number in numbers]
        forget_partitions(self.root, frozenset(made), self._env)
        try:
            for topic_partition in made:
                self._create_partition(topic_partition, topic_id)
        finally:
            self._partitions = tuple(sorted(self._directories))

    def _create_partition(self, topic_partition: TopicPartition, topic_id: uuid.UUID | None) -> None:
        path = join_path(self.root, str(topic_partition))
        self._env.make_directory(path)
        if topic_id is not None:
            write_partition_metadata(path, topic_id, self._env)
        self._env.sync_directory(self.root)
        self._directories[topic_partition] = PartitionDirectory(topic_partition, path, self.root, self._env)
        self.log(*topic_partition).close()

    def _write_checkpoints(self) -> None:
        def take_marks() -> dict[TopicPartition, PartitionMarks]:
            return {topic_partition: log.marks() for topic_partition, log in self._logs.items()}

        save_marks(self.root, take_marks, self._env, kept=self._directories)

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
    found = read_meta_properties(root, env)
    if found is None:
        made = MetaProperties(
            version=1,
            cluster_id=id_text(random_id()) if cluster_id is None else cluster_id,
            node_id=_DEFAULT_NODE_ID if node_id is None else node_id,
            directory_id=random_id(),
        )
        write_meta_properties(root, made, env)
        return made
    for name, wanted, there in (("cluster_id", cluster_id, found.cluster_id), ("node_id", node_id, found.node_id)):
        if wanted is not None and wanted != there:
            raise ValueError(f"{root} belongs to another cluster or node: expected {name} {wanted!r}, found {there!r}")
    return found


def _as_id(topic_id: uuid.UUID | str | None) -> uuid.UUID:
    if topic_id is None:
        return random_id()
    return parse_id(topic_id) if isinstance(topic_id, str) else topic_id


def _no_such_log(path: str, message: str) -> LogNotFoundError:
    return LogNotFoundError(message, path=path, errno=ENOENT)
