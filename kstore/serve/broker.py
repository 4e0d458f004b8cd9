"""Broker: what the answers to all requests depend on: a store, its cluster, and where clients reach it."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from kstore.config import LogConfig
from kstore.env import join_path
from kstore.errors import CorruptCheckpointError, CorruptionError, LogNotFoundError, UnknownTopicOrPartitionError
from kstore.log.files.names import LEADER_EPOCH_CHECKPOINT, PartitionDirectory
from kstore.log.state.leader_epochs import EpochEndOffset, LeaderEpochCache
from kstore.serve.config import ServerConfig
from kstore.serve.faults import Faults
from kstore.serve.metrics import ServerMetrics
from kstore.serve.news import News
from kstore.serve.refusals import RefusedError
from kstore.store.settings.kafka_names import TOPIC_SETTINGS_BY_NAME
from kstore.store.settings.known import KnownSettings
from kstore.store.settings.owner import owning_cluster
from kstore.store.store import Store, WritableStore
from kstore.types import TopicPartition
from kstore.wire.codes import ErrorCode
from kstore.wire.protocol import ZERO_UUID

if TYPE_CHECKING:
    from kstore.log.log import Log
    from kstore.serve.coordination.groups import Groups
    from kstore.serve.coordination.transactions import Transactions

ServedStore: TypeAlias = Store | WritableStore
_DEFAULT_NODE_ID = 1
_logger = logging.getLogger("kstore.serve")


class Broker:
    """The one node of a cluster, which leads all partitions of a store.

    Attributes: store, config, news, node_id, cluster_id; writer: the store if it is open for writing, else None;
        may_change_topics: not in a root of a cluster, where a broker would
        not know them and set them aside; faults: those that a test wants; metrics.
    Threads: the loop's, and threads that work for it once the loop has asked for groups and transactions.
    """

    def __init__(self, store: ServedStore, config: ServerConfig, news: News, faults: Faults) -> None:
        self.store = store
        self.news = news
        self.faults = faults
        self.metrics = ServerMetrics()
        self.config = config
        self.writer = store if isinstance(store, WritableStore) else None
        properties = store.meta_properties
        node_id = None if properties is None else properties.node_id
        self.node_id = _DEFAULT_NODE_ID if node_id is None else node_id
        self.cluster_id = None if properties is None else properties.cluster_id
        self._env = store._env
        is_own = owning_cluster(store.root, self._env) is None
        self.may_change_topics = self.writer is not None and (is_own or config.changes_topics_of_clusters)
        if self.writer is not None and not is_own:
            from kstore.adoption.changes import keep_topics_in_metadata

            # Topics of coordinators come without being asked for.
            keep_topics_in_metadata(self.writer)
        self._told_damage: dict[TopicPartition, str] = {}
        # Of each topic, its first partition's directory and its id.
        self._ids: dict[str, tuple[PartitionDirectory | None, UUID]] = {}
        self._names: dict[UUID | None, str] = {}
        # Of a root that is only read: of each partition, its directory and the epoch that clients were told.
        self._epochs: dict[TopicPartition, tuple[PartitionDirectory | None, int]] = {}

    @cached_property
    def groups(self) -> Groups:
        """The groups of the store."""
        from kstore.serve.coordination.groups import Groups

        config = self.config
        return Groups(self.store, config.groups, consumer_settings=config.consumer_groups, topic_id=self.topic_id)

    @cached_property
    def transactions(self) -> Transactions | None:
        """The transactions of the store, None if it is only read."""
        from kstore.serve.coordination.transactions import Transactions

        if self.writer is None:
            return None
        return Transactions(
            self.writer,
            ack=self.config.ack_of_all,
            expiration_ms=self.config.transactional_id_expiration_ms,
            max_timeout_ms=self.config.max_transaction_timeout_ms,
        )

    def topics(self) -> dict[str, list[int]]:
        """Return the numbers of the partitions of each topic."""
        numbers: dict[str, list[int]] = defaultdict(list)
        for topic, number in self.store.partitions:
            numbers[topic].append(number)
        return dict(numbers)

    def topic_id(self, topic: str) -> UUID:
        """Return the id of a topic, that of zeros if it has none.  Raises: LogNotFoundError if it is not there."""
        first = next((number for name, number in self.store.partitions if name == topic), 0)
        incarnation = self.store.incarnation(topic, first)
        known = self._ids.get(topic)
        # A topic of the same name that was created later has another id.
        if known is None or known[0] is not incarnation:
            # Without an id that can be read it is a topic of the time before ids: clients ask for it by its name.
            topic_id = None
            with suppress(CorruptCheckpointError):
                topic_id = self.store.topic_id(topic)
            known = self._ids[topic] = incarnation, topic_id or ZERO_UUID
        return known[1]

    def topic_named(self, topic_id: UUID) -> str | None:
        """Return the topic that has an id.  Cost: O(partitions), where the id is not that of a topic."""
        if topic_id == ZERO_UUID:
            return None
        name = self._names.get(topic_id)
        if name is None or self.known_topic_id(name) != topic_id:
            self._names = {self.known_topic_id(topic): topic for topic in self.store.topics}
            name = self._names.get(topic_id)
        return name

    def known_topic_id(self, topic: str) -> UUID | None:
        """Return the id of a topic, None of one that is not there: threads delete topics meanwhile."""
        try:
            return self.topic_id(topic)
        except LogNotFoundError:
            return None

    def log(self, topic: str, partition: int) -> Log:
        """Return the log of a partition.  Raises: UnknownTopicOrPartitionError; the errors of open_log."""
        try:
            return self.store.log(topic, partition)
        except LogNotFoundError:
            name = TopicPartition(topic, partition)
            if name in self.store:
                raise
            raise UnknownTopicOrPartitionError(f"there is no partition {name}") from None

    def topic_config(self, topic: str) -> LogConfig:
        """Return the configuration of a topic.

        Raises: LogNotFoundError if it is not there; TopicSettingsError, CorruptCheckpointError, StorageError.
        Cost: reads files of the root where it is only read.
        """
        if self.writer is not None:
            return self.writer.topic_config(topic)
        return replace(self.default_config(), **self._known_settings().of(topic).settings)

    def default_config(self) -> LogConfig:
        """Return the configuration of topics of which nothing is said.  Raises, Cost: as topic_config."""
        if self.writer is not None:
            return self.writer.config
        return replace(self.store.config, **self._known_settings().defaults)

    def overridden_config(self, topic: str) -> Mapping[str, object]:
        """Return the settings that a topic was given itself, by the names of LogConfig.

        Raises, Cost: as topic_config.
        """
        if self.writer is not None:
            return self.writer.overridden_topic_config(topic)
        return self._known_settings().file.given_to(topic)

    def texts_of_cluster(self, topic: str) -> Mapping[str, str]:
        """Return the settings that a cluster gave a topic, by Kafka's names, but for those that kstore changed.

        Raises, Cost: as topic_config, where a cluster has the root.
        """
        if self.may_change_topics:
            return {}
        known = self._known_settings()
        changed = known.file.changed.get(topic, {})
        return {
            name: text
            for name, text in known.texts_of_cluster(topic).items()
            if TOPIC_SETTINGS_BY_NAME.get(name) not in changed
        }

    def _known_settings(self) -> KnownSettings:
        return KnownSettings(self.store.root, self._env)

    def disk_space(self) -> tuple[int, int] | None:
        """Return the bytes of the disk: in all, and those that may be written; None if not known.

        Raises: StorageError.
        """
        return self._env.disk_space(self.store.root)

    def written_store(self) -> WritableStore:
        """Return the store, to write to it.  Raises: RefusedError where it is only read."""
        if self.writer is None:
            raise RefusedError(ErrorCode.POLICY_VIOLATION, "this server only reads")
        return self.writer

    def changed_store(self) -> WritableStore:
        """Return the store, to change its topics.  Raises: RefusedError where they may not be."""
        writer = self.written_store()
        if not self.may_change_topics:
            raise RefusedError(
                ErrorCode.POLICY_VIOLATION, "topics of this root are not changed: it belongs to a KRaft cluster"
            )
        return writer

    def note_damage(self, partition: TopicPartition, error: CorruptionError) -> None:
        """Log damage that ends the fetches of a partition, once for all clients that come to it."""
        text = str(error)
        if self._told_damage.get(partition) != text:
            self._told_damage[partition] = text
            _logger.warning("%s cannot be fetched on: %s", partition, text)

    def leader_epoch(self, topic: str, partition: int) -> int:
        """Return the epoch of a partition's leader: that of its log, 0 before the first record.

        Raises: the errors of log.  Cost: of a root that is only read, as leader_epochs at the first call alone.
        """
        if self.writer is None:
            directory, epoch = self._epochs.get(TopicPartition(topic, partition), (None, 0))
            if directory is not None and directory is self.store.incarnation(topic, partition):
                return epoch
        return max(self.leader_epochs(topic, partition).latest_epoch, 0)

    def end_of_epoch(self, topic: str, partition: int, *, epoch: int) -> EpochEndOffset:
        """Return where an epoch of leaders ends: that of the leader at the log end, also before its first record.

        Raises: the errors of log; CorruptCheckpointError.
        Source: Kafka Partition.makeLeader, whose leader has an epoch from its start on.
        """
        log_end_offset = self.log(topic, partition).log_end_offset
        if epoch == self.leader_epoch(topic, partition):
            return EpochEndOffset(epoch, log_end_offset)
        return self.leader_epochs(topic, partition).end_offset_for(epoch, log_end_offset=log_end_offset)

    def leader_epochs(self, topic: str, partition: int) -> LeaderEpochCache:
        """Return the leader epochs of a partition, as they are now.

        Raises: the errors of log; CorruptCheckpointError.  Cost: reads a file where the root is only read.
        """
        self.log(topic, partition)
        if self.writer is not None:
            return self.writer.log(topic, partition).leader_epochs
        directory = self.store.incarnation(topic, partition)
        path = None if directory is None else join_path(directory.path, LEADER_EPOCH_CHECKPOINT)
        epochs = LeaderEpochCache(path, self._env)
        self._epochs[TopicPartition(topic, partition)] = directory, max(epochs.latest_epoch, 0)
        return epochs
