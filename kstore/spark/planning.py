"""Planning of a read on the driver: from the options to the partitions, offsets, files and tasks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from pyspark.sql.datasource import InputPartition

from kstore.config import MAX_INT64
from kstore.errors import LogNotFoundError
from kstore.log import Log, ScanRange, find_partitions
from kstore.log.files.names import PartitionDirectory
from kstore.log.log import Isolation
from kstore.spark.offsets import OffsetRange, check_partitions_listed, held_range, resolve_offset_range
from kstore.spark.options import Assign, EveryTopic, ReadOptions, Subscribe, SubscribePattern, TopicSelection
from kstore.spark.pushdown import Constraint
from kstore.spark.retention import look_at
from kstore.spark.splitting import split_ranges
from kstore.types import INTERNAL_TOPICS, TopicPartition

PACK_ABOVE = 64


@dataclass(frozen=True)
class ScanPartition(InputPartition):
    """One task: ranges to read in sequence."""

    ranges: tuple[ScanRange, ...]


def plan_partitions(options: ReadOptions, constraint: Constraint, *, max_partition_bytes: int) -> list[ScanPartition]:
    """Return the tasks of a read, with the options resolved against the current state of the directories.

    As in Spark's Kafka source there is one task per topic-partition, split if max_partition_bytes, minPartitions or
    maxRecordsPerPartition require it. If there are more than PACK_ABOVE tasks, adjacent small ones are merged, unless
    minPartitions or maxRecordsPerPartition is set.

    Raises: ValueError, LogNotFoundError, OffsetOutOfRangeError, StorageError.
    Cost: opens each log twice, one at a time, so that the number of open files does not grow with the partitions.
    """
    directories = select_partitions(find_partitions(options.paths), options.topics, options.paths)
    paths = {directory.topic_partition: directory.path for directory in directories}
    check_partitions_listed(options, paths)
    ranges = [_resolve(topic_partition, path, options, constraint) for topic_partition, path in paths.items()]
    pieces = split_ranges(
        ranges,
        min_partitions=options.min_partitions,
        max_records_per_partition=options.max_records_per_partition,
    )
    scans = _scan_ranges(pieces, paths, options, max_partition_bytes)
    if options.min_partitions is None and options.max_records_per_partition is None:
        return _pack(scans, max_partition_bytes)
    return [ScanPartition((scan,)) for scan in scans]


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
        raise LogNotFoundError(f"not found: {', '.join(missing)}; searched {', '.join(paths)}", path=paths[0])


def _resolve(topic_partition: TopicPartition, path: str, options: ReadOptions, constraint: Constraint) -> OffsetRange:
    def resolve(log: Log) -> OffsetRange:
        return _narrow(resolve_offset_range(topic_partition, log, options), log, constraint)

    return look_at(path, resolve)


def _narrow(asked: OffsetRange, log: Log, constraint: Constraint) -> OffsetRange:
    """Remove offsets at both ends that the pushed filters rule out."""
    if not constraint.admits(asked.topic_partition):
        return asked._replace(end_offset=asked.start_offset)
    start_offset = max(asked.start_offset, constraint.offset.least)
    end_offset = min(asked.end_offset, constraint.offset.most + 1)
    least_timestamp_ms = -(-constraint.timestamp_us.least // 1000)
    if least_timestamp_ms > 0 and start_offset < end_offset:
        first = log.offset_for_timestamp(least_timestamp_ms)
        start_offset = end_offset if first is None else max(start_offset, first.offset)
    return asked._replace(start_offset=start_offset, end_offset=max(start_offset, end_offset))


def _scan_ranges(
    pieces: Iterable[OffsetRange],
    paths: Mapping[TopicPartition, str],
    options: ReadOptions,
    max_partition_bytes: int,
) -> list[ScanRange]:
    """Return the byte ranges of the pieces, in order.

    Requires: the pieces of a partition are adjacent, so that its log is opened once.
    """

    def split(log: Log) -> list[ScanRange]:
        held = (held_range(piece, log, options, latest=log.log_end_offset) for piece in asked)
        return [
            scan for piece in held for scan in _split_evenly(log, piece, options.isolation_level, max_partition_bytes)
        ]

    scans: list[ScanRange] = []
    for topic_partition, group in groupby(pieces, key=attrgetter("topic_partition")):
        asked = list(group)
        scans += look_at(paths[topic_partition], split)
    return scans


def _split_evenly(
    log: Log, piece: OffsetRange, isolation_level: Isolation, max_partition_bytes: int
) -> list[ScanRange]:
    """Split a piece into as few ranges as possible, of about equal size: 130 MiB into 65 and 65, not 128 and 2.

    The slack of 1/64 allows for ranges that end up to one batch below their target size.
    """

    def plan(max_bytes: int) -> list[ScanRange]:
        return log.plan(
            max_bytes,
            start_offset=piece.start_offset,
            end_offset=piece.end_offset,
            isolation=isolation_level,
        )

    whole = plan(MAX_INT64)
    size = sum(scan.size_in_bytes for scan in whole)
    if size <= max_partition_bytes:
        return whole
    size += size // 64
    count = -(-size // max_partition_bytes)
    return plan(max(size // count, 1))


def _pack(scans: list[ScanRange], max_partition_bytes: int) -> list[ScanPartition]:
    """Merge adjacent small ranges into tasks if there are many: a task costs Spark about as much as reading 10 MB."""
    share_bytes = -(-sum(scan.size_in_bytes for scan in scans) // PACK_ABOVE)
    tasks: list[list[ScanRange]] = []
    task_bytes = 0
    for scan in scans:
        is_room = task_bytes < share_bytes and task_bytes + scan.size_in_bytes <= max_partition_bytes
        if tasks and is_room and len(scans) > PACK_ABOVE:
            tasks[-1].append(scan)
            task_bytes += scan.size_in_bytes
        else:
            tasks.append([scan])
            task_bytes = scan.size_in_bytes
    return [ScanPartition(tuple(task)) for task in tasks]
