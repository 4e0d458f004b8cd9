"""KnownSettings: what is known of the settings of a root's topics, and from which source.

The one rule for whatever removes bytes because of a topic's settings, and for whatever asks whether a topic is
compacted. In this order: kstore-topic-settings of the root; `__cluster_metadata`, if the root holds it; what brokers
and kstore need of their own topics. A setting that none of them says is not known: it is a default of the broker, or of
the program that opened the store, and is not in the root.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kstore.config import DAY_MS
from kstore.env import Env, join_path
from kstore.errors import CorruptCheckpointError
from kstore.log.files.names import (
    BOOTSTRAP_CHECKPOINT,
    CLUSTER_METADATA_TOPIC,
    TOPIC_SETTINGS,
    partitions_of_root,
)
from kstore.log.files.root_files import read_meta_properties, read_partition_metadata
from kstore.store.settings.cluster import ClusterTopic, read_cluster_topics
from kstore.store.settings.file import SettingsFile, read_settings, write_settings
from kstore.types import GROUP_OFFSETS_TOPIC, SINK_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition

# What a broker does with the records of topics that do not say it, and what kstore does with those of its own roots.
BROKERS_DEFAULTS: Mapping[str, Any] = {"retention_ms": 7 * DAY_MS}
OWN_DEFAULTS: Mapping[str, Any] = {"retention_ms": -1}
_FOREVER = {"cleanup_policy": "delete", "retention_ms": -1, "retention_bytes": -1}
# What brokers set for their own topics, and kstore needs for its: by the default of a store, retention would remove
# offsets that groups resume from, and what a sink has written already.
_OF_INTERNAL_TOPICS: Mapping[str, Mapping[str, Any]] = {
    GROUP_OFFSETS_TOPIC: {"cleanup_policy": "compact"},
    TRANSACTION_STATE_TOPIC: {"cleanup_policy": "compact"},
    "__share_group_state": _FOREVER,
    "__remote_log_metadata": _FOREVER,
    SINK_TOPIC: _FOREVER,
}


class TopicKnowledge(NamedTuple):
    """What is known of one topic's settings.

    settings: by the names of LogConfig. sources: where each of them is said, in words. doubt: why no more is known.
    """

    settings: Mapping[str, Any]
    sources: Mapping[str, str]
    doubt: str

    @property
    def is_compacted(self) -> bool | None:
        """Whether the topic is compacted; None if that is not known."""
        policy = self.settings.get("cleanup_policy")
        return "compact" in policy if isinstance(policy, str) else None

    @property
    def is_deleted_from(self) -> bool | None:
        """Whether old segments of the topic are deleted because of their age or size; None if that is not known."""
        policy = self.settings.get("cleanup_policy")
        return "delete" in policy if isinstance(policy, str) else None

    @property
    def policy(self) -> str:
        """The cleanup policy and who says so, or why it is not known, in words."""
        if "cleanup_policy" not in self.settings:
            return f"its cleanup policy is not known: {self.doubt}"
        return f"its cleanup policy is {self.settings['cleanup_policy']} by {self.sources['cleanup_policy']}"


class KnownSettings:
    """The settings of the topics of one root, as far as the root says them.

    Attributes: file (the root's own settings, empty if they are damaged); file_damage (the error of that file).
    Threads: not safe.  Cost: `__cluster_metadata` is read when it is first needed, and after forget_cluster.
    """

    def __init__(self, root: str, env: Env) -> None:
        self._root = root
        self._env = env
        self._cluster: dict[str, ClusterTopic] | None = None
        self._has_read_cluster = False
        self._cluster_damage: CorruptCheckpointError | None = None
        self._directories: dict[str, str] = {}
        self.file = SettingsFile({})
        self.file_damage: CorruptCheckpointError | None = None
        try:
            self.file = read_settings(root, env)
        except CorruptCheckpointError as error:
            self.file_damage = error

    def forget_cluster(self) -> None:
        """Read `__cluster_metadata` again when it is needed next."""
        self._cluster, self._cluster_damage, self._has_read_cluster = None, None, False

    @property
    def damage(self) -> CorruptCheckpointError | None:
        """The error of the file, or of the cluster's metadata, that cannot be read."""
        self._read_cluster()
        return self.file_damage or self._cluster_damage

    @property
    def defaults(self) -> Mapping[str, Any]:
        """The settings of topics that say nothing, in a store that is opened without a config.

        Those that the root was created with; Kafka's in a broker's root. Of another root, as one of an earlier kstore,
        it is not known whose rule holds, and nothing of it is deleted unasked.
        Raises: CorruptCheckpointError for a malformed meta.properties; StorageError.
        """
        if self.file.defaults is not None:
            return self.file.defaults
        return BROKERS_DEFAULTS if self._is_of_broker() else OWN_DEFAULTS

    def of(self, topic: str) -> TopicKnowledge:
        """Return what is known of a topic.

        Nothing is known as long as the root's own file is damaged: it might say otherwise.
        Raises: StorageError.
        """
        if self.file_damage is not None:
            return TopicKnowledge({}, {}, str(self.file_damage))
        base, sources, doubt = self.below_file(topic)
        own = self.file.changed.get(topic, {})
        said = dict.fromkeys(own, f"{TOPIC_SETTINGS} of its root")
        return TopicKnowledge({**base, **own}, {**sources, **said}, doubt)

    def below_file(self, topic: str) -> TopicKnowledge:
        """Return what is known without the root's own file.  Raises: StorageError."""
        internal = _OF_INTERNAL_TOPICS.get(topic, {})
        sources = dict.fromkeys(internal, "the rule for internal topics")
        cluster, doubt = self._of_cluster(topic)
        said = dict.fromkeys(cluster, CLUSTER_METADATA_TOPIC)
        return TopicKnowledge({**internal, **cluster}, {**sources, **said}, doubt)

    def texts_of_cluster(self, topic: str) -> Mapping[str, str]:
        """Return all settings that `__cluster_metadata` has of a topic, by Kafka's names; none if it is not known to be
        about this topic.
        """
        self._read_cluster()
        known = None if self._cluster is None else self._cluster.get(topic)
        return {} if known is None or self._difference_of_ids(topic, known) is not None else known.texts

    def _of_cluster(self, topic: str) -> tuple[Mapping[str, Any], str]:
        """Return the topic's settings in the cluster's metadata, and why there are no more."""
        self._read_cluster()
        if self._cluster_damage is not None:
            return {}, str(self._cluster_damage)
        if self._cluster is None:
            return {}, "the root does not say it, and defaults of brokers and programs are not in it"
        known = self._cluster.get(topic)
        if known is None:
            return {}, f"{CLUSTER_METADATA_TOPIC} does not name the topic"
        problem = known.problem or self._difference_of_ids(topic, known)
        if problem is not None:
            return {}, problem
        return known.settings, f"{CLUSTER_METADATA_TOPIC} does not say it, and the broker's default is not in the root"

    def _difference_of_ids(self, topic: str, known: ClusterTopic) -> str | None:
        """Return why the topic of the root may be another one than the cluster's of that name, None if it is not."""
        if topic not in self._directories:
            partitions = partitions_of_root(self._root, self._env)
            self._directories = {partition.topic_partition.topic: partition.path for partition in partitions}
        directory = self._directories.get(topic)
        try:
            topic_id = None if directory is None else read_partition_metadata(directory, self._env)
        except CorruptCheckpointError as error:
            return f"it is not known whether {CLUSTER_METADATA_TOPIC} is about this topic: {error}"
        if topic_id is None or topic_id == known.topic_id:
            return None
        return f"{CLUSTER_METADATA_TOPIC} is about another topic of this name, with the id {known.topic_id}"

    def _read_cluster(self) -> None:
        if self._has_read_cluster:
            return
        try:
            self._cluster = read_cluster_topics(self._root, self._env)
        except CorruptCheckpointError as error:
            self._cluster_damage = error
        self._has_read_cluster = True

    def _is_of_broker(self) -> bool:
        """Whether a broker has written the root, by what kstore does not write."""
        meta = read_meta_properties(self._root, self._env)
        names = str(TopicPartition(CLUSTER_METADATA_TOPIC, 0)), BOOTSTRAP_CHECKPOINT
        is_there = any(self._env.stat(join_path(self._root, name)) is not None for name in names)
        return is_there or (meta is not None and meta.version == 0)


def note_creation(root: str, env: Env) -> None:
    """Durably note in a root that nobody has used what holds for its topics; called before meta.properties is written.

    Raises: CorruptCheckpointError for a malformed meta.properties; LogNotFoundError for a directory that is no root;
        StorageError.
    """
    is_new = read_meta_properties(root, env) is None and not partitions_of_root(root, env)
    if is_new and env.stat(join_path(root, TOPIC_SETTINGS)) is None:
        write_settings(root, SettingsFile({}, defaults=OWN_DEFAULTS), env)
