"""The cluster as a producer sees it: nodes, partitions and their leaders."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kstore.types import TopicPartition


class Node(NamedTuple):
    """A broker, or a stand-in for one (Kafka: Node)."""

    id: int
    host: str = ""
    port: int = -1
    rack: str | None = None


class PartitionInfo(NamedTuple):
    """A partition and its leader; None if it has no leader (Kafka: PartitionInfo)."""

    topic: str
    partition: int
    leader: Node | None
    leader_epoch: int | None = None


class Cluster:
    """An immutable snapshot of partitions and their leaders.

    Attributes: nodes, topics (both sorted).
    Raises: ValueError if a partition is listed twice.
    Threads: safe.  Cost: every method is a lookup.  Source: Kafka Cluster, MetadataSnapshot.
    """

    def __init__(self, partitions: Iterable[PartitionInfo] = (), *, nodes: Iterable[Node] = ()) -> None:
        self._by_topic_partition: dict[TopicPartition, PartitionInfo] = {}
        for info in sorted(partitions, key=lambda info: (info.topic, info.partition)):
            topic_partition = TopicPartition(info.topic, info.partition)
            if topic_partition in self._by_topic_partition:
                raise ValueError(f"partition {topic_partition} is listed twice")
            self._by_topic_partition[topic_partition] = info
        by_topic: dict[str, list[PartitionInfo]] = {}
        known = {node.id: node for node in nodes}
        for info in self._by_topic_partition.values():
            by_topic.setdefault(info.topic, []).append(info)
            if info.leader is not None:
                known[info.leader.id] = info.leader
        self.nodes: tuple[Node, ...] = tuple(known[node_id] for node_id in sorted(known))
        self.topics: tuple[str, ...] = tuple(by_topic)
        self._by_topic = {topic: tuple(infos) for topic, infos in by_topic.items()}
        self._available = {
            topic: tuple(info for info in infos if info.leader is not None) for topic, infos in self._by_topic.items()
        }

    def __repr__(self) -> str:
        return (
            f"Cluster(nodes={len(self.nodes)}, topics={len(self.topics)}, partitions={len(self._by_topic_partition)})"
        )

    def partitions_for_topic(self, topic: str) -> tuple[PartitionInfo, ...]:
        """Return the partitions of a topic by number; empty if the topic is unknown."""
        return self._by_topic.get(topic, ())

    def available_partitions_for_topic(self, topic: str) -> tuple[PartitionInfo, ...]:
        """Return the partitions of a topic that have a leader, by number."""
        return self._available.get(topic, ())

    def has_partition(self, topic: str, partition: int) -> bool:
        """Return whether a topic has a partition of that number, with or without a leader."""
        return TopicPartition(topic, partition) in self._by_topic_partition

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions of a topic, 0 if it is unknown."""
        return len(self._by_topic.get(topic, ()))

    def leader_for(self, topic_partition: TopicPartition) -> Node | None:
        """Return the leader of a partition, None if it has none or is unknown."""
        info = self._by_topic_partition.get(topic_partition)
        return None if info is None else info.leader

    def leader_epoch_for(self, topic_partition: TopicPartition) -> int | None:
        """Return the epoch of a partition's leader, None if it is unknown."""
        info = self._by_topic_partition.get(topic_partition)
        return None if info is None else info.leader_epoch
