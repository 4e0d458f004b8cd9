"""Planning of a read on the driver: from the options to the partitions, offsets, files and tasks.

selected_partitions finds the partitions, use_logs calls a function with each log, and tasks_between turns offset ranges
into tasks. plan_partitions is all of it for a batch read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import TypeVar

from pyspark.sql.datasource import InputPartition

from kstore.config import MAX_INT64, MIB
from kstore.env import is_local, locate
from kstore.errors import LogNotFoundError, OffsetOutOfRangeError, StorageError
from kstore.log.damage import OnError
from kstore.log.files.names import PartitionDirectory, find_partitions, name_partitions
from kstore.log.log import Log
from kstore.log.plan import RangeSizes, ScanRange
from kstore.spark.offsets import (
    OffsetRange,
    check_partitions_listed,
    held_range,
    latest_offset,
    resolve_offset_range,
)
from kstore.spark.options import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    Assign,
    EveryTopic,
    ReadOptions,
    Subscribe,
    SubscribePattern,
    TopicSelection,
)
from kstore.spark.pushdown import Constraint
from kstore.spark.retention import LogPool
from kstore.spark.splitting import split_ranges
from kstore.store.opening import look_into
from kstore.types import INTERNAL_TOPICS, TopicPartition
from kstore.waiting import results_in_threads

PACK_ABOVE = 64
# Walks over whole logs, for read_committed: mostly in the compiled core, which releases the GIL, or waiting for a disk.
_WALKING_THREADS = 8
# Below this size a walk takes less time than threads would lose to each other in the interpreter.
_WALK_BYTES = 16 * MIB
# Attempts to plan a log whose start moves in the meantime.
_MOST_PLANS = 10

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class ScanPartition(InputPartition):
    """One task: ranges to read in sequence. values: the plan for keys and values that have a format."""

    ranges: tuple[ScanRange, ...]
    values: bytes = b""


def plan_partitions(options: ReadOptions, constraint: Constraint, *, max_partition_bytes: int) -> list[ScanPartition]:
    """Return the tasks of a read, with the options resolved against the current state of the directories.

    As in Spark's Kafka source there is one task per topic-partition, split if max_partition_bytes, minPartitions or
    maxRecordsPerPartition require it. If there are more than PACK_ABOVE tasks, adjacent small ones are merged, unless
    minPartitions or maxRecordsPerPartition is set.

    Raises: ValueError, LogNotFoundError, OffsetOutOfRangeError, StorageError.
    Cost: lists and opens each selected log once, with minPartitions those after the first 1000 twice. With
        read_committed walks each log, up to 8 large ones at a time. Open files do not grow with the partitions.
    """
    return selected_partitions(
        options,
        lambda directories: plan_directories(directories, options, constraint, max_partition_bytes=max_partition_bytes),
    )


def plan_directories(
    directories: Sequence[PartitionDirectory],
    options: ReadOptions,
    constraint: Constraint,
    *,
    max_partition_bytes: int,
) -> list[ScanPartition]:
    """Return the tasks that read these partitions; as plan_partitions, which also selects them."""

    def resolve(log: Log) -> OffsetRange:
        asked = resolve_offset_range(log.topic_partition, log, options)
        return _narrow(asked, log, constraint, on_error=options.on_error)

    leaves_end = _leaves_end(options, constraint)

    def resolve_and_plan(log: Log) -> list[ScanRange]:
        # The end of a local file is cheap to find, and lets a task report what a file has lost that got shorter.
        if leaves_end and not is_local(log.path) and log._scan_finds_end():
            return list(log._scan_ranges(RangeSizes(max_partition_bytes)))
        most_records = options.max_records_per_partition
        pieces = split_ranges([resolve(log)], min_partitions=None, max_records_per_partition=most_records)
        return _scan_ranges(log, pieces, options, max_partition_bytes)

    def plan_listed() -> dict[str, list[ScanRange]]:
        """Return the plans, by path, of the logs for which the listing suffices. One thread, as it sends no request."""
        planned = {}
        for directory in directories:
            if not is_local(directory.path):
                ranges = pool.use_log(directory, lambda log: _plan_by_listing(log, max_partition_bytes))
                if ranges is not None:
                    planned[directory.path] = ranges
        return planned

    with LogPool(keeps_logs=options.min_partitions is not None) as pool:
        if options.min_partitions is None:
            planned = plan_listed() if leaves_end else {}
            others = [directory for directory in directories if directory.path not in planned]
            plans = use_logs(others, resolve_and_plan, options, pool=pool)
            planned |= zip((directory.path for directory in others), plans, strict=True)
            return _tasks([planned[directory.path] for directory in directories], options, max_partition_bytes)
        ranges = use_logs(directories, resolve, options, pool=pool)
        return tasks_between(ranges, directories, options, max_partition_bytes=max_partition_bytes, pool=pool)


def selected_partitions(options: ReadOptions, use: Callable[[list[PartitionDirectory]], _Result]) -> _Result:
    """Return use(directories) for the partitions that the options select, sorted by topic and partition.

    They are selected by name, so that other directories cost nothing. If a selected one is no partition, or is gone,
    `use` is called again with those that find_partitions returns.
    Raises: LogNotFoundError if a topic of Subscribe or a partition of Assign does not exist, or a path holds no
        partition; ValueError if options with a value per partition name others; what `use` raises.
    Cost: one listing for each path, or for Assign one stat for each partition.
    """
    assigned = options.topics.partitions if isinstance(options.topics, Assign) else ()
    named, env = None, options.env
    with suppress(StorageError, ValueError):
        named = _checked(name_partitions(options.paths, env, among=assigned or None), options)
    if named is not None:
        with suppress(LogNotFoundError):
            return use(named)
    return use(_checked(find_partitions(options.paths, env), options))


def use_logs(
    directories: Sequence[PartitionDirectory], use: Callable[[Log], _Result], options: ReadOptions, *, pool: LogPool
) -> list[_Result]:
    """Return use(log) for the log of each partition, in order.

    With read_committed, which walks whole logs, several large logs are walked at a time.
    Raises: as LogPool.use_log.
    """
    if options.isolation_level != READ_COMMITTED:
        return list(look_into(directories, lambda directory: pool.use_log(directory, use)))
    results_of: dict[TopicPartition, _Result] = {}
    large = []
    for directory in directories:
        if pool.size_in_bytes(directory) < _WALK_BYTES:
            results_of[directory.topic_partition] = pool.use_log(directory, use)
        else:
            large.append(directory)
    results = results_in_threads(
        lambda directory: pool.use_log(directory, use), large, threads=_WALKING_THREADS, name="kstore-plan"
    )
    results_of |= zip((directory.topic_partition for directory in large), results, strict=True)
    return [results_of[directory.topic_partition] for directory in directories]


def tasks_between(
    ranges: Iterable[OffsetRange],
    directories: Iterable[PartitionDirectory],
    options: ReadOptions,
    *,
    max_partition_bytes: int,
    pool: LogPool,
) -> list[ScanPartition]:
    """Return the tasks that read ranges of offsets, at most one of each partition.

    Args: directories: those of the partitions, and perhaps others.
    Raises: OffsetOutOfRangeError, with failOnDataLoss, if a log does not hold all of its range; LogNotFoundError if one
        is gone; StorageError.
    """
    pieces = split_ranges(
        ranges,
        min_partitions=options.min_partitions,
        max_records_per_partition=options.max_records_per_partition,
    )
    by_partition = {tp: list(group) for tp, group in groupby(pieces, key=attrgetter("topic_partition"))}
    paths = {directory.topic_partition: directory for directory in directories}

    def plan(log: Log) -> list[ScanRange]:
        return _scan_ranges(log, by_partition[log.topic_partition], options, max_partition_bytes)

    planned = use_logs([paths[topic_partition] for topic_partition in by_partition], plan, options, pool=pool)
    return _tasks(planned, options, max_partition_bytes)


def _checked(directories: Iterable[PartitionDirectory], options: ReadOptions) -> list[PartitionDirectory]:
    selected = select_partitions(directories, options.topics, [locate(path).path for path in options.paths])
    check_partitions_listed(options, {directory.topic_partition for directory in selected})
    return selected


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


def _narrow(asked: OffsetRange, log: Log, constraint: Constraint, *, on_error: OnError) -> OffsetRange:
    """Remove offsets at both ends that the pushed filters rule out."""
    if not constraint.admits(asked.topic_partition):
        return asked._replace(end_offset=asked.start_offset)
    start_offset = max(asked.start_offset, constraint.offset.least)
    end_offset = min(asked.end_offset, constraint.offset.most + 1)
    least_timestamp_ms = -(-constraint.timestamp_us.least // 1000)
    if least_timestamp_ms > 0 and start_offset < end_offset:
        first = log.offset_for_timestamp(least_timestamp_ms, on_error=on_error)
        start_offset = end_offset if first is None else max(start_offset, first.offset)
    return asked._replace(start_offset=start_offset, end_offset=max(start_offset, end_offset))


def _leaves_end(options: ReadOptions, constraint: Constraint) -> bool:
    """Whether a read is of whole logs, so that the tasks can find their ends."""
    return (
        options.starting.everywhere == EARLIEST
        and options.ending.everywhere == LATEST
        and not (options.starting.is_timestamp or options.ending.is_timestamp)
        and options.isolation_level != READ_COMMITTED
        and options.on_error == "raise"
        and options.max_records_per_partition is None
        and constraint == Constraint()
    )


def _plan_by_listing(log: Log, max_partition_bytes: int) -> list[ScanRange] | None:
    """Return the ranges of a whole log, None if they take more than its listing."""
    is_listed = log._scan_finds_end()
    if not is_listed or any(segment.size_in_bytes > max_partition_bytes for segment in log.segments):
        return None
    return list(log._scan_ranges(RangeSizes(max_partition_bytes)))


def _scan_ranges(
    log: Log, pieces: Sequence[OffsetRange], options: ReadOptions, max_partition_bytes: int
) -> list[ScanRange]:
    """Return the byte ranges of the pieces of one partition, in order.

    Raises: OffsetOutOfRangeError, with failOnDataLoss, if the log does not hold them any more.
    """
    plans_left = _MOST_PLANS
    while pieces:
        plans_left -= 1
        latest = latest_offset(log, options)
        held = [held_range(piece, log, options, latest=latest) for piece in pieces]
        try:
            return [scan for piece in held for scan in _split_evenly(log, piece, held, options, max_partition_bytes)]
        except OffsetOutOfRangeError:
            # The log start has moved since it was compared.
            if not plans_left:
                raise
    return []


def _split_evenly(
    log: Log, piece: OffsetRange, pieces: Sequence[OffsetRange], options: ReadOptions, max_partition_bytes: int
) -> list[ScanRange]:
    """Split a piece into as few ranges as possible, of about equal size: 130 MiB into 65 and 65, not 128 and 2.

    The slack of 1/64 allows for ranges that end up to one batch below their target size.
    """
    on_error, isolation = options.on_error, options.isolation_level
    end = log._readable_end(isolation=isolation, on_error=on_error).offset

    def end_or_none(offset: int) -> int | None:
        """Return None for the end after trailing damage, which latest_offset gives as an offset that no batch has."""
        return None if offset > end else offset

    part_of = (pieces[0].start_offset, end_or_none(pieces[-1].end_offset)) if len(pieces) > 1 else None

    def plan(max_bytes: int) -> list[ScanRange]:
        return log.plan(
            start_offset=piece.start_offset,
            end_offset=end_or_none(piece.end_offset),
            max_bytes=max_bytes,
            isolation=isolation,
            on_error=on_error,
            part_of=part_of,
        )

    return _evenly(plan, max_partition_bytes)


def _evenly(plan: Callable[[int], list[ScanRange]], max_partition_bytes: int) -> list[ScanRange]:
    whole = plan(MAX_INT64)
    size = sum(scan.size_in_bytes for scan in whole)
    if size <= max_partition_bytes:
        return whole
    size += size // 64
    count = -(-size // max_partition_bytes)
    return plan(max(size // count, 1))


def _tasks(planned: Iterable[list[ScanRange]], options: ReadOptions, max_partition_bytes: int) -> list[ScanPartition]:
    scans = [scan for ranges in planned for scan in ranges]
    if options.min_partitions is None and options.max_records_per_partition is None:
        return _pack(scans, max_partition_bytes)
    return [ScanPartition((scan,)) for scan in scans]


def _pack(scans: list[ScanRange], max_partition_bytes: int) -> list[ScanPartition]:
    """Merge adjacent small ranges into tasks if there are many: a task costs Spark about as much as reading 10 MB."""
    runs = packed([scan.size_in_bytes for scan in scans], max_partition_bytes, least_count=PACK_ABOVE)
    return [ScanPartition(tuple(scans[run.start : run.stop])) for run in runs]


def packed(sizes: Sequence[int], most_bytes: int, *, least_count: int) -> list[range]:
    """Group adjacent sizes (bytes) into runs of at most most_bytes each; a larger size is a run of its own.

    Up to least_count sizes are not grouped, and more of them give about least_count runs at least.
    """
    share_bytes = -(-sum(sizes) // least_count)
    runs: list[range] = []
    run_bytes = 0
    for at, size in enumerate(sizes):
        is_room = run_bytes < share_bytes and run_bytes + size <= most_bytes
        if runs and is_room and len(sizes) > least_count:
            runs[-1] = range(runs[-1].start, at + 1)
            run_bytes += size
        else:
            runs.append(range(at, at + 1))
            run_bytes = size
    return runs
