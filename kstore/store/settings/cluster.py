"""read_cluster_topics: the topics of a KRaft cluster and the settings they were given, by `__cluster_metadata`.

The defaults of a broker are in its server.properties, not in the root: what a topic does not set itself is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kstore.config import LogConfig
from kstore.coordinator.store import ClusterFacts
from kstore.env import Env, join_path
from kstore.errors import CorruptCheckpointError
from kstore.log.files.checkpoints import malformed
from kstore.log.files.names import CLUSTER_METADATA_TOPIC, PartitionDirectory
from kstore.store.settings.file import read_settings
from kstore.types import TopicPartition

_METADATA = TopicPartition(CLUSTER_METADATA_TOPIC, 0)
# Settings that say what may be removed from a topic, and how Kafka writes their values.
_NUMBERS = (
    "retention.ms",
    "retention.bytes",
    "delete.retention.ms",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
    "file.delete.delay.ms",
)
# TopicRecord, ConfigRecord, RemoveTopicRecord, and the begin, end and abort of a transaction.
_TYPES = frozenset({2, 4, 9, 23, 24, 25})
_RATIO = "min.cleanable.dirty.ratio"
_POLICY = "cleanup.policy"


@dataclass(frozen=True)
class ClusterTopic:
    """A topic of a cluster: its id, and of the settings it was given those that say what is removed, by the names of
    LogConfig.

    texts: all settings it was given, by Kafka's names; problem: why they cannot be used, None if they can.
    """

    topic_id: UUID
    settings: Mapping[str, Any]
    texts: Mapping[str, str]
    problem: str | None = None


def read_cluster_topics(root: str, env: Env) -> dict[str, ClusterTopic] | None:
    """Return the topics of the cluster by name, None if the root does not hold its metadata.

    Raises: CorruptCheckpointError if the metadata is damaged, or not all of it is there; StorageError.
    Cost: reads the latest snapshot, and the log from there on.
    """
    directory = PartitionDirectory(_METADATA, join_path(root, str(_METADATA)), root, env)
    if env.stat(directory.path) is None:
        return None
    from kstore.store.metadata.image import TOPIC_RESOURCE
    from kstore.store.metadata.replay import read_metadata

    image = read_metadata(directory).image
    needed = [unknown for unknown in image.unknown if unknown.type_id is None or unknown.type_id in _TYPES]
    if needed:
        raise malformed(directory.path, f"the record at offset {needed[0].offset}: {needed[0].reason}")
    return {
        topic.name: _topic_of(topic.topic_id, image.configs.get((TOPIC_RESOURCE, topic.name), {}))
        for topic in image.topics.values()
    }


def read_cluster_facts(root: str, env: Env) -> ClusterFacts:
    """Return what a root says of its cluster; of one whose metadata is damaged nothing is known.

    Raises: StorageError.
    Cost: as read_cluster_topics.
    """
    directory = PartitionDirectory(_METADATA, join_path(root, str(_METADATA)), root, env)
    try:
        if env.stat(directory.path) is None:
            return ClusterFacts(is_own=read_settings(root, env).defaults is not None)
        from kstore.store.metadata.replay import read_metadata

        image = read_metadata(directory).image
    except CorruptCheckpointError:
        return ClusterFacts()
    counts = {topic.name: max(topic.partitions, default=-1) + 1 for topic in image.topics.values()}
    return ClusterFacts(counts, image.features)


def _topic_of(topic_id: UUID, texts: Mapping[str, str]) -> ClusterTopic:
    try:
        settings = _settings_of(texts)
        LogConfig(**settings)
    except (TypeError, ValueError) as error:
        problem = f"its settings in {CLUSTER_METADATA_TOPIC} are not understood: {error}"
        return ClusterTopic(topic_id, {}, texts, problem)
    return ClusterTopic(topic_id, settings, texts)


def _settings_of(texts: Mapping[str, str]) -> dict[str, Any]:
    settings: dict[str, Any] = {_named(name): _number(name, texts[name], int) for name in _NUMBERS if name in texts}
    if _RATIO in texts:
        settings[_named(_RATIO)] = _number(_RATIO, texts[_RATIO], float)
    if _POLICY in texts:
        policies = dict.fromkeys(policy.strip() for policy in texts[_POLICY].split(",") if policy.strip())
        # Kafka 4.1 and newer allow none: nothing is compacted, or deleted because of its age or size.
        if not policies:
            settings |= {"retention_ms": -1, "retention_bytes": -1}
        settings[_named(_POLICY)] = ",".join(policies) or "delete"
    return settings


def _number(name: str, text: str, kind: type[int] | type[float]) -> int | float:
    """Return the number of a setting, as Kafka's ConfigDef reads it.  Raises: ValueError."""
    try:
        # Python takes digits in groups, and Java does not.
        return kind(text.replace("_", "x"))
    except ValueError:
        wanted = "a whole number" if kind is int else "a number"
        raise ValueError(f"{name} must be {wanted}, got {text!r}") from None


def _named(name: str) -> str:
    return name.replace(".", "_")
