"""RootLogs: the partitions of a root and its open logs, as Store and WritableStore show them; OpenLogs holds them."""

from __future__ import annotations

import threading
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from kstore._core import Record
from kstore._deprecated import with_old_names
from kstore._html import table_html
from kstore.config import MIB, LogConfig
from kstore.coordinator.store import ClusterFacts
from kstore.env import ENOENT, Arrivals, Closing, Env, Listeners, join_path
from kstore.errors import KStoreError, LogClosedError, LogNotFoundError, checked_index
from kstore.log.files.names import PartitionDirectory, partitions_of_root
from kstore.log.files.root_files import MetaProperties, read_meta_properties, read_partition_metadata
from kstore.store.settings.cluster import read_cluster_facts
from kstore.types import TopicPartition
from kstore.waiting import checked_timeout

if TYPE_CHECKING:
    from kstore.log.following.follower import Follower
    from kstore.log.following.partitions import FromOffset
    from kstore.log.following.tail import AutoOffsetReset, EndOffsets, LogTail
    from kstore.log.log import Log
    from kstore.log.reads import Isolation
    from kstore.serializers import Deserializer, Serializer
    from kstore.store.table import Table

_DEFAULT_TABLE_BYTES = 256 * MIB
_SomeLog = TypeVar("_SomeLog", bound="Log")


class OpenLogs(ABC, Generic[_SomeLog]):
    """The partitions of a root, and the logs of those that were opened.

    Attributes: directories; partitions (by topic and number, replaced as a whole by publish); version (another number
        after each publish); logs, the closed ones included.
    Threads: requires the mutex of the store; partitions may be read without it.
    """

    def __init__(self, root: str, env: Env) -> None:
        self.root = root
        self._env = env
        self.version = 0
        self.logs: dict[TopicPartition, _SomeLog] = {}
        self.directories = {directory.topic_partition: directory for directory in partitions_of_root(root, env)}
        self.publish()

    @abstractmethod
    def open(self, directory: PartitionDirectory) -> _SomeLog:
        """Open the log of a partition.  Raises: as open_log."""

    def replace(self, directories: dict[TopicPartition, PartitionDirectory]) -> None:
        """Take over the partitions that there are now; the logs of those stay whose directory is the same object."""
        self.logs = {name: log for name, log in self.logs.items() if directories.get(name) is self.directories[name]}
        self.directories = directories
        self.publish()

    def publish(self) -> None:
        """List in `partitions` those that have a directory now."""
        self.partitions = tuple(sorted(self.directories))
        self.version += 1

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of the topics, sorted."""
        return tuple(sorted({topic for topic, _ in self.partitions}))

    def close_each(self) -> None:
        """Close all logs, even if some of them fail.  Raises: the first error; each log has logged its own."""
        first: KStoreError | None = None
        for log in list(self.logs.values()):
            try:
                log.close()
            except KStoreError as error:
                first = first or error
        if first is not None:
            raise first


class RootLogs(Closing, Generic[_SomeLog]):
    """The partitions of a root and its open logs; a context manager that closes them.

    Attributes: root, meta_properties (None if the root has none).
    Threads: thread-safe.
    """

    def __init__(self, logs: OpenLogs[_SomeLog], config: LogConfig, *, env: Env) -> None:
        self.root = logs.root
        self._config = config
        self.meta_properties: MetaProperties | None = read_meta_properties(self.root, env)
        self._env = env
        self._mutex = threading.RLock()
        # After an interrupt of close() only the first is set: the store can only be closed then.
        self._is_ended = self._is_closed = False
        self._logs = logs
        self._listeners = Listeners()

    def __repr__(self) -> str:
        closed = ", is_closed=True" if self._is_closed else ""
        return (
            f"{type(self).__name__}(root={self.root!r}, topics={len(self.topics)}, "
            f"partitions={len(self.partitions)}{closed})"
        )

    def _repr_html_(self) -> str:
        """Return the topics as a table, for notebooks; no log is opened."""
        counts = sorted(Counter(topic for topic, _ in self.partitions).items())
        closed = ", closed" if self._is_closed else ""
        title = f"{type(self).__name__} of {self.root}: {len(counts)} topics, {len(self.partitions)} partitions{closed}"
        return table_html(title, ("topic", "partitions"), counts, count=len(counts))

    @property
    def config(self) -> LogConfig:
        """The configuration of topics of which nothing else is said."""
        return self._config

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of the topics, sorted."""
        return self._logs.topics

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions, by topic and number."""
        return self._logs.partitions

    def __iter__(self) -> Iterator[str]:
        """Iterate the names of the topics, sorted."""
        return iter(self.topics)

    def __contains__(self, name: object) -> bool:
        """Whether there is a topic of this name, or such a (topic, partition)."""
        if isinstance(name, str):
            return name in self.topics
        return isinstance(name, tuple) and name in self._logs.directories

    def __getitem__(self, name: str | tuple[str, int]) -> _SomeLog:
        """Return the log of a topic that has one partition, or of a (topic, partition), as log().

        Raises: LogNotFoundError; ValueError for a topic of several partitions, which is not one log.
        """
        if not isinstance(name, str):
            return self.log(*name)
        numbers = [partition for topic, partition in self.partitions if topic == name]
        if len(numbers) > 1:
            raise ValueError(
                f"topic {name!r} has {len(numbers)} partitions: name one of them, as store[{name!r}, {numbers[0]}]"
            )
        return self.log(name, *numbers)

    def topic_id(self, topic: str) -> uuid.UUID | None:
        """Return the topic's id from partition.metadata, None if no partition of it has one (before Kafka 2.8).

        Raises: LogNotFoundError if the topic does not exist; CorruptCheckpointError, StorageError.
        """
        numbers = [partition for name, partition in self.partitions if name == topic]
        if not numbers:
            raise no_such_topic(self.root, topic)
        for number in numbers:
            topic_id = read_partition_metadata(self._directory(TopicPartition(topic, number)).path, self._env)
            if topic_id is not None:
                return topic_id
        return None

    def log(self, topic: str, partition: int = 0) -> _SomeLog:
        """Return the open log of a partition, the same one for every caller until it is closed.

        Raises: LogNotFoundError if the partition does not exist, or another process deleted it; as open_log.
        """
        with self._mutex:
            self._check_open()
            topic_partition = TopicPartition(topic, checked_index("partition", partition))
            log = self._logs.logs.get(topic_partition)
            if log is None or log.is_closed:
                log = self._logs.logs[topic_partition] = self._logs.open(self._directory(topic_partition))
            return log

    def cluster_facts(self) -> ClusterFacts:
        """Return what the root says of the cluster that it belongs to, as it is now.

        Raises: StorageError.
        Cost: reads the latest snapshot of `__cluster_metadata`, and its log from there on, if the root holds it.
        """
        return read_cluster_facts(self.root, self._env)

    def incarnation(self, topic: str, partition: int) -> PartitionDirectory | None:
        """Return the partition's identity token, None if it does not exist; a re-created partition gets a new one."""
        with self._mutex:
            return self._logs.directories.get(TopicPartition(topic, partition))

    def close(self) -> None:
        """Close every log; a second call does nothing."""
        with self._mutex:
            if not self._is_closed:
                self._is_ended = True
                self._logs.close_each()
                self._is_closed = True
                self._listeners.report(self.root)

    @with_old_names
    def follow(
        self,
        topics: Iterable[str] | None = None,
        *,
        partitions: Iterable[TopicPartition] | None = None,
        from_offset: FromOffset = None,
        timeout: float | None = None,
        isolation: Isolation = "read_uncommitted",
        end_offsets: EndOffsets = "written",
        auto_offset_reset: AutoOffsetReset = "none",
        key_deserializer: Deserializer | str | None = None,
        value_deserializer: Deserializer | str | None = None,
    ) -> Follower[Record]:
        """Iterate the records of all partitions as they come, a batch of each in turn; record.topic_partition says of
        which one. Partitions that are added are followed from their start, and those that are deleted are left out.

        Args: topics, partitions: what is followed, None for all; it need not exist yet. from_offset: as in Log.follow,
            for all partitions that there are now or by partition; from their start without one. The others as in
            Log.follow.
        Raises: as Log.follow; from the iteration LogClosedError after close().
        Cost: all that is followed is opened. Nothing while nothing comes, if the system can watch so many directories;
            those beyond that are looked at from time to time.
        """
        from kstore.log.following.follower import Feed, Follower, records_of
        from kstore.log.following.partitions import ManyLogs
        from kstore.log.following.tail import FollowOptions
        from kstore.record.decoding import deserializer_of

        options = FollowOptions(isolation, end_offsets, auto_offset_reset)
        options.check()
        timeout_s = checked_timeout(timeout)
        convert = records_of(deserializer_of(key_deserializer), deserializer_of(value_deserializer))
        chosen = None if topics is None else frozenset([topics] if isinstance(topics, str) else topics)
        named = None if partitions is None else frozenset(partitions)
        arrivals = self._new_arrivals()

        def find() -> dict[TopicPartition, PartitionDirectory]:
            return {
                partition: directory
                for partition, directory in self._partitions_now().items()
                if (chosen is None or partition.topic in chosen) and (named is None or partition in named)
            }

        def open_tail(directory: PartitionDirectory, offset: int | None) -> LogTail:
            return self._followed_log(directory)._tail(offset, options=options, arrivals=arrivals)[0]

        parts = ManyLogs(
            self.root,
            find=find,
            open_tail=open_tail,
            arrivals=arrivals,
            from_offset=from_offset,
            sees_root=end_offsets != "written",
        )
        feed = Feed(parts, arrivals, timeout_s=timeout_s, clock=self._env)
        return Follower(feed, convert, config=self._config)

    def table(
        self,
        topic: str,
        *,
        key_deserializer: Deserializer | str | None = None,
        value_deserializer: Deserializer | str | None = None,
        key_serializer: Serializer | str | None = None,
        isolation_level: Isolation = "read_committed",
        max_bytes: int = _DEFAULT_TABLE_BYTES,
    ) -> Table:
        """Return the newest value of each key of a topic as a read-only mapping, which follows the topic; see
        kstore.Table. The topic need not be compacted.

        Args: the deserializers: as in Log.read, for what the mapping returns; key_serializer: makes bytes of the keys
            that are looked up; None for that of a key_deserializer that is given by name, or else for bytes;
            isolation_level: "read_committed" leaves out aborted transactions, and those that are not decided yet;
            max_bytes: of memory for all partitions, at least 65,536: 32 to 64 bytes a key.
        Raises: LogNotFoundError if there is no such topic; MemoryLimitError if its keys do not fit; ValueError,
            TypeError for other arguments; as Log.read.
        Cost: a compiled pass over the topic; no object for a record.
        """
        from kstore.store.table import Table, TopicLogs

        def find() -> dict[TopicPartition, PartitionDirectory]:
            self._look_at_root()
            tokens = {name: self.incarnation(*name) for name in self.partitions if name.topic == topic}
            return {name: directory for name, directory in tokens.items() if directory is not None}

        logs = TopicLogs(self.root, topic, find, self._followed_log, self._root_state, self._env)
        return Table(
            logs,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            key_serializer=key_serializer,
            isolation_level=isolation_level,
            max_bytes=max_bytes,
        )

    def _new_arrivals(self) -> Arrivals:
        """Return what wakes a reader of several logs when partitions are added or deleted, and when Log._notify has
        something to tell it. The caller closes it.
        """
        arrivals = self._made_arrivals()
        arrivals.add(self.root)
        self._listeners.add(arrivals)
        return arrivals

    @abstractmethod
    def _made_arrivals(self) -> Arrivals:
        """Return what a follower of the store waits for."""

    @abstractmethod
    def _partitions_now(self) -> dict[TopicPartition, PartitionDirectory]:
        """Return the partitions that there are now.  Raises: LogClosedError."""

    @abstractmethod
    def _followed_log(self, directory: PartitionDirectory) -> Log:
        """Return a log to follow."""

    @abstractmethod
    def _look_at_root(self) -> None:
        """Take up the partitions that another process added or deleted.  Raises: LogClosedError."""

    @abstractmethod
    def _root_state(self) -> object:
        """Return what is not equal to an earlier state if there may be other partitions, or other checkpoints.

        Raises: LogClosedError.  Cost: a stat; none for the writer of the root, nor where each look is a request.
        """

    def _directory(self, topic_partition: TopicPartition) -> PartitionDirectory:
        with self._mutex:
            directory = self._logs.directories.get(topic_partition)
        if directory is None:
            raise LogNotFoundError(
                f"no partition {topic_partition} in {self.root}",
                path=join_path(self.root, str(topic_partition)),
                errno=ENOENT,
            )
        return directory

    def _check_open(self) -> None:
        if self._is_ended:
            raise LogClosedError(f"the store of {self.root} was closed", path=self.root)


def no_such_topic(root: str, topic: str) -> LogNotFoundError:
    """Return the error of a topic that does not exist."""
    return LogNotFoundError(f"no topic {topic!r} in {root}", path=join_path(root, topic), errno=ENOENT)
