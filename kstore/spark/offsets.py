"""Resolution of the starting and ending options into offset ranges, once per read, on the driver."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol

from kstore.errors import OffsetOutOfRangeError
from kstore.log.damage import OnError
from kstore.log.reads import Isolation, LogEnd
from kstore.spark.options import EARLIEST, LATEST, Bound, ReadOptions, names
from kstore.types import OffsetAndTimestamp, TopicPartition


class OffsetRange(NamedTuple):
    """Records of one partition with start_offset <= offset < end_offset."""

    topic_partition: TopicPartition
    start_offset: int
    end_offset: int

    @property
    def size(self) -> int:
        """The number of offsets. There may be fewer records."""
        return self.end_offset - self.start_offset


class LogOffsets(Protocol):
    """The part of a Log that the resolution of offsets needs."""

    @property
    def log_start_offset(self) -> int: ...

    def _readable_end(self, *, isolation: Isolation, on_error: OnError) -> LogEnd: ...

    def offset_for_timestamp(self, timestamp_ms: int, *, on_error: OnError) -> OffsetAndTimestamp | None: ...


def check_partitions_listed(options: ReadOptions, topic_partitions: Collection[TopicPartition]) -> None:
    """Check that options with a value per partition name exactly these partitions.

    Raises: ValueError that names the option and both sets of partitions.
    """
    for bound in (options.starting, options.ending):
        if bound.by_partition is not None and bound.by_partition.keys() != set(topic_partitions):
            raise ValueError(
                f"Partitions specified in {bound.option} don't match what are assigned; "
                f"specified: {names(bound.by_partition)}; assigned: {names(topic_partitions)}"
                + ("" if bound.is_timestamp else "; use -1 for latest, -2 for earliest")
            )


def latest_offset(log: LogOffsets, options: ReadOptions) -> int:
    """Return the offset that "latest" means: the last stable offset for read_committed, else the log end offset.

    In mode PERMISSIVE it is one more if the log ends in damage, of which nothing shows how many records it held.
    Raises: CorruptRecordError and other errors for damage in the walked range, with mode FAILFAST.
    Cost: read_committed walks the headers of the log, or with PERMISSIVE reads it.
    """
    end = log._readable_end(isolation=options.isolation_level, on_error=options.on_error)
    return end.offset + (end.read_end_offset > end.offset)


def resolve_offset_range(topic_partition: TopicPartition, log: LogOffsets, options: ReadOptions) -> OffsetRange:
    """Return the offsets of one partition to read. The range can be empty.

    Raises: ValueError if no record has the starting timestamp or a later one; OffsetOutOfRangeError if the range ends
        before it starts, or, with failOnDataLoss, if it includes offsets that the log does not hold.
    """
    latest = latest_offset(log, options)
    start_offset = resolve_start(topic_partition, log, options, latest=latest)
    end_offset = _resolve_end(topic_partition, log, options, latest=latest)
    if start_offset > end_offset and start_offset != log.log_start_offset:
        raise OffsetOutOfRangeError(
            f"The resolved start offset {start_offset} is greater than the resolved end offset {end_offset} "
            f"for topic {topic_partition.topic} partition {topic_partition.partition}",
            offset=start_offset,
            log_start_offset=log.log_start_offset,
            log_end_offset=latest,
        )
    asked = OffsetRange(topic_partition, start_offset=start_offset, end_offset=end_offset)
    return held_range(asked, log, options, latest=latest)


def held_range(asked: OffsetRange, log: LogOffsets, options: ReadOptions, *, latest: int) -> OffsetRange:
    """Return the part of a range that the log holds below `latest`.

    Raises: OffsetOutOfRangeError, with failOnDataLoss, unless it is the whole range.
    """
    start_held, end_held = (min(max(offset, log.log_start_offset), latest) for offset in asked[1:])
    held = asked._replace(start_offset=start_held, end_offset=end_held)
    if asked.size and held != asked and options.fail_on_data_loss:
        raise data_loss(
            asked,
            found=f"the log holds [{log.log_start_offset}, {latest})",
            offset=asked.start_offset if asked.start_offset < log.log_start_offset else asked.end_offset,
            log_start_offset=log.log_start_offset,
            log_end_offset=latest,
        )
    return held


def data_loss(
    asked: OffsetRange,
    *,
    found: str,
    offset: int,
    log_start_offset: int | None = None,
    log_end_offset: int | None = None,
) -> OffsetOutOfRangeError:
    """Return the error of a read with failOnDataLoss whose offsets the log does not hold any more."""
    topic_partition, start_offset, end_offset = asked
    return OffsetOutOfRangeError(
        "Some data may have been lost because they are not available any more: "
        f"offsets [{start_offset}, {end_offset}) of {topic_partition} were requested, {found}; "
        "to read the records that are left, set the option failOnDataLoss to false",
        offset=offset,
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
    )


def resolve_start(topic_partition: TopicPartition, log: LogOffsets, options: ReadOptions, *, latest: int) -> int:
    """Return the offset that the starting options mean for a partition; the log may not hold it.

    Raises: ValueError if no record has the starting timestamp or a later one.
    """
    value = _value_for(options.starting, topic_partition)
    if not options.starting.is_timestamp:
        if value == LATEST:
            return latest
        return log.log_start_offset if value == EARLIEST else value
    offset = _offset_at_time(log, timestamp_ms=value, latest=latest, on_error=options.on_error)
    if offset is None and not options.latest_if_no_timestamp:
        raise ValueError(
            f"No offset matched from request of topic-partition {topic_partition} and timestamp {value} "
            f"({options.starting.option}): no record has this timestamp or a later one; "
            "set startingOffsetsByTimestampStrategy to latest to read nothing from such a partition"
        )
    return latest if offset is None else offset


def _resolve_end(topic_partition: TopicPartition, log: LogOffsets, options: ReadOptions, *, latest: int) -> int:
    value = _value_for(options.ending, topic_partition)
    if not options.ending.is_timestamp:
        return latest if value == LATEST else value
    offset = _offset_at_time(log, timestamp_ms=value, latest=latest, on_error=options.on_error)
    return latest if offset is None else offset


def _value_for(bound: Bound, topic_partition: TopicPartition) -> int:
    if bound.everywhere is not None:
        return bound.everywhere
    return (bound.by_partition or {})[topic_partition]


def _offset_at_time(log: LogOffsets, *, timestamp_ms: int, latest: int, on_error: OnError) -> int | None:
    """Return the first offset below `latest` whose timestamp is >= timestamp_ms, or None.

    -1 and -2 mean latest and earliest, as in ListOffsets; other negative timestamps have no offset.
    """
    if timestamp_ms == LATEST:
        return latest
    if timestamp_ms == EARLIEST:
        return log.log_start_offset
    place = log.offset_for_timestamp(timestamp_ms, on_error=on_error) if timestamp_ms >= 0 else None
    return None if place is None or place.offset >= latest else place.offset
