"""Which partition directories a read covers. Layer: spark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kstore.errors import LogNotFoundError
from kstore.log.directory import PartitionDirectory
from kstore.spark.options import Assign, EveryTopic, Subscribe, SubscribePattern, TopicSelection
from kstore.types import TopicPartition

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"})


def select_partitions(
    directories: Iterable[PartitionDirectory], topics: TopicSelection, paths: Sequence[str]
) -> list[PartitionDirectory]:
    """Choose the directories to read, by topic and partition.

    A directory that is itself one of the paths is never taken for an internal topic.

    Raises: LogNotFoundError for a topic or partition that is asked for and not there; ValueError for
        a partition that is there twice.
    """
    found: dict[TopicPartition, PartitionDirectory] = {}
    for directory in directories:
        if _is_selected(directory, topics, paths):
            other = found.setdefault(directory.topic_partition, directory)
            if other.path != directory.path:
                raise ValueError(
                    f"partition {directory.topic_partition} is there twice, in {other.path} and in {directory.path}: "
                    "give only one of them as path"
                )
    _check_all_found(found, topics, paths)
    return [found[topic_partition] for topic_partition in sorted(found)]


def _is_selected(directory: PartitionDirectory, topics: TopicSelection, paths: Sequence[str]) -> bool:
    topic = directory.topic_partition.topic
    match topics:
        case Subscribe():
            return topic in topics.topics
        case Assign():
            return directory.topic_partition in topics.partitions
        case SubscribePattern():
            return topic not in INTERNAL_TOPICS and re.search(topics.pattern, topic) is not None
        case EveryTopic():
            return topic not in INTERNAL_TOPICS or str(directory.path) in paths


def _check_all_found(found: Iterable[TopicPartition], topics: TopicSelection, paths: Sequence[str]) -> None:
    partitions = set(found)
    missing: list[str] = []
    if isinstance(topics, Subscribe):
        there = {topic_partition.topic for topic_partition in partitions}
        missing = [f"topic {topic}" for topic in topics.topics if topic not in there]
    elif isinstance(topics, Assign):
        missing = [f"partition {assigned}" for assigned in topics.partitions if assigned not in partitions]
    if missing:
        raise LogNotFoundError(f"not found: {', '.join(missing)}; looked in {', '.join(paths)}", path=paths[0])
