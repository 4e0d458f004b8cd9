"""StoreTopics: the topics of a root that is written: which there are, how they come and go, and their settings.

A deletion is noted in the root before the first directory goes, so that the next opening ends it after a crash.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping

from kstore.config import LogConfig
from kstore.coordinator.store import CoordinatorStore
from kstore.env import Env, Listeners, join_path
from kstore.errors import CorruptCheckpointError, InvalidTopicError, KStoreError, TopicExistsError, checked_int
from kstore.log.files.checkpoints import forget_partitions
from kstore.log.files.names import CLUSTER_METADATA_TOPIC, PartitionDirectory
from kstore.store.logs import WriterLogs
from kstore.store.root import no_such_topic
from kstore.store.settings.topics import TopicSettings
from kstore.store.upkeep.maintenance import Maintenance
from kstore.store.upkeep.removal import DeletedDirectories, directories_of_topic
from kstore.types import MAX_PARTITION, TopicPartition, is_topic_name

_logger = logging.getLogger("kstore.log")


class StoreTopics:
    """Creates and deletes the topics of one root, and changes their settings; made by WritableStore, whose methods say
    what each of these does.

    Attributes: deleted, the directories that wait for their removal.
    Threads: requires the mutex of the store.
    Source: Kafka LogManager.asyncDelete, TopicDeletionManager, ConfigurationControlManager.
    """

    def __init__(
        self,
        logs: WriterLogs,
        *,
        settings: TopicSettings,
        maintenance: Maintenance,
        listeners: Listeners,
        env: Env,
    ) -> None:
        self._root = logs.root
        self._logs = logs
        self._settings = settings
        self._maintenance = maintenance
        self._listeners = listeners
        self._env = env
        self.deleted = DeletedDirectories(self._root, delay_ms=settings.default.file_delete_delay_ms, env=env)

    def create(
        self,
        name: str,
        partitions: int,
        topic_id: uuid.UUID,
        *,
        config: LogConfig | Mapping[str, object] | None,
        store: CoordinatorStore,
    ) -> None:
        """Create a topic, after the end of a deletion of one with its name.

        Args: store: that of these topics, in which a deletion forgets committed offsets.
        """
        self.check_creation(name, config)
        if name in self._settings.deleting:
            self._finish_deletion(name, store)
        self._settings.begin_creation(name, config)
        try:
            self._add_partitions(name, range(partitions), topic_id)
        except BaseException:
            if name not in self._logs.topics:
                self._settings.withdraw_creation(name)
            raise

    def check_creation(self, name: str, config: LogConfig | Mapping[str, object] | None) -> None:
        """Check that there is no topic of this name, or of one that collides, and that its settings are possible."""
        if name in self._logs.topics:
            raise TopicExistsError(f"topic {name!r} already exists in {self._root}", path=self._root)
        check_no_collision(name, self._logs.topics, self._root)
        self._settings.of_new(name, config)

    def grow(self, topic: str, partitions: int, topic_id: uuid.UUID | None) -> None:
        """Add partitions to a topic until it has `partitions` of them."""
        known = self._logs.directories
        count = 1 + max(number for name, number in self._logs.partitions if name == topic)
        partitions = checked_int(f"partitions of {topic!r}", partitions, least=count, greatest=MAX_PARTITION)
        missing = [number for number in range(partitions) if TopicPartition(topic, number) not in known]
        self._add_partitions(topic, missing, topic_id)

    def delete(self, name: str, store: CoordinatorStore) -> None:
        """Delete a topic, or end a deletion that has begun.  Args: store: as for create."""
        if name not in self._logs.topics and name not in self._settings.deleting:
            raise no_such_topic(self._root, name)
        try:
            self._settings.begin_deletion(name)
        finally:
            if name in self._settings.deleting:
                self._withdraw(name)
        self._finish_deletion(name, store)

    def resume_deletions(self) -> None:
        """Take away the partitions of the topics whose deletion an earlier opening began; none of them is recovered."""
        for topic in self._settings.deleting:
            self._withdraw(topic)
            self._take_directories(topic)

    def finish_deletions(self, store: CoordinatorStore) -> None:
        """Carry out the deletions that an earlier opening began; one that fails is left for a later call."""
        for topic in self._settings.deleting:
            try:
                self._finish_deletion(topic, store)
            except KStoreError as error:
                _logger.error("topic %s is deleted, and offsets of groups in it may be left: %s", topic, error)

    def config(self, topic: str) -> LogConfig:
        """Return the configuration of a topic."""
        self._check_exists(topic)
        return self._settings.of(topic)

    def overridden_config(self, topic: str) -> dict[str, object]:
        """Return the settings that a topic was given itself, by the names of LogConfig."""
        self._check_exists(topic)
        return self._settings.changed_of(topic)

    def change_config(
        self, topic: str, changes: Mapping[str, object], reset: Iterable[str], *, validate_only: bool
    ) -> LogConfig:
        """Change settings of a topic and of its open logs, and return its configuration."""
        self._check_exists(topic)
        config = self._settings.change(topic, changes, reset, validate_only=validate_only)
        if not validate_only:
            self._update_logs(topic, config)
        return config

    def reread_config(self, topic: str) -> LogConfig:
        """Look again at what the metadata of a cluster says of a topic, have its open logs follow, and return its
        configuration.
        """
        self._settings.forget_cluster()
        config = self._settings.of(topic)
        self._update_logs(topic, config)
        return config

    def settings_damage(self, topic: str) -> CorruptCheckpointError | None:
        """Return why the settings of a topic are unknown, None if they are known."""
        return None if self._settings.is_known(topic) else self._settings.damage

    def _update_logs(self, topic: str, config: LogConfig) -> None:
        for topic_partition, log in self._logs.logs.items():
            if topic_partition.topic == topic and not log.is_closed and not log.has_failed:
                log.update_config(config)
                self._maintenance.uncleanable.pop(topic_partition, None)

    def _check_exists(self, topic: str) -> None:
        if topic not in self._logs.topics:
            raise no_such_topic(self._root, topic)

    def _add_partitions(self, topic: str, numbers: Iterable[int], topic_id: uuid.UUID | None) -> None:
        """Create partitions, each with an empty segment, and add them to the list."""
        logs, root = self._logs, self._root
        added = [TopicPartition(topic, number) for number in numbers]
        forget_partitions(root, frozenset(added), self._env)
        made = []
        try:
            for topic_partition in added:
                path = join_path(root, str(topic_partition))
                self._env.make_directory(path)
                made.append(PartitionDirectory(topic_partition, path, root, self._env))
                logs.directories[topic_partition] = made[-1]
            self._env.sync_directory(root)
            logs.fill(made, topic_id)
        finally:
            logs.publish()
            self._listeners.report(root)

    def _withdraw(self, topic: str) -> None:
        """Close the logs of a topic whose deletion has begun, and remove it from the list."""
        self._logs.withdraw(topic)
        for topic_partition in list(self._maintenance.uncleanable):
            if topic_partition.topic == topic:
                self._maintenance.uncleanable.pop(topic_partition, None)

    def _finish_deletion(self, topic: str, store: CoordinatorStore) -> None:
        """Carry out what begin_deletion noted, after _withdraw."""
        from kstore.coordinator.group.offsets import forget_offsets

        self._take_directories(topic)
        forget_offsets(store, topic, clock=self._env)
        self._settings.end_deletion(topic)
        self._logs.forget(topic)

    def _take_directories(self, topic: str) -> None:
        directories = directories_of_topic(self._root, topic, self._env)
        self.deleted.take(directories)
        forget_partitions(self._root, frozenset(directory.topic_partition for directory in directories), self._env)


def check_no_collision(name: str, topics: Iterable[str], root: str) -> None:
    """Raise InvalidTopicError if a topic differs from another only by `.` and `_`, which are one in names of metrics.

    Source: Kafka Topic.hasCollision.
    """
    for other in topics:
        if other != name and other.replace(".", "_") == name.replace(".", "_"):
            raise InvalidTopicError(
                f"topic {name!r} collides with {other!r} in {root}: Kafka allows no topics that differ only by . and _",
                path=root,
            )


def check_topic_name(name: str, root: str) -> None:
    """Raise InvalidTopicError for a name that Kafka does not allow, or that only a KRaft broker uses."""
    if not is_topic_name(name) or name == CLUSTER_METADATA_TOPIC:
        raise InvalidTopicError(
            f"a topic name has 1 to 249 of a-z A-Z 0-9 . _ - and is not KRaft's own, got {name!r}", path=root
        )
