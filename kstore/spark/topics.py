"""Selection of the partition directories that a read covers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kstore.errors import LogNotFoundError
from kstore.log.files.names import PartitionDirectory
from kstore.spark.options import Assign, EveryTopic, Subscribe, SubscribePattern, TopicSelection
from kstore.types import INTERNAL_TOPICS, TopicPartition


def select_partitions(
    directories: Iterable[PartitionDirectory], topics: TopicSelection, paths: Sequence[str]
) -> list[PartitionDirectory]:
    """Return the directories to read.

    Args: paths: the absolute paths of the read. EveryTopic includes a partition of an internal topic only if its
        directory is one of them.
    Raises: LogNotFoundError if a topic of Subscribe or a partition of Assign does not exist.
    """
    selected = [directory for directory in directories if _is_selected(directory, topics, paths)]
    _check_all_found({directory.topic_partition for directory in selected}, topics, paths)
    return selected


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
            return topic not in INTERNAL_TOPICS or directory.path in paths


def _check_all_found(partitions: set[TopicPartition], topics: TopicSelection, paths: Sequence[str]) -> None:
    missing: list[str] = []
    if isinstance(topics, Subscribe):
        there = {topic for topic, _ in partitions}
        missing = [f"topic {topic}" for topic in topics.topics if topic not in there]
    elif isinstance(topics, Assign):
        missing = [f"partition {assigned}" for assigned in topics.partitions if assigned not in partitions]
    if missing:
        raise LogNotFoundError(f"not found: {', '.join(missing)}; looked in {', '.join(paths)}", path=paths[0])
