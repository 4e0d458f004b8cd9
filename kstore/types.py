"""Small value types and Kafka's constants for "none", used by all other modules."""

from __future__ import annotations

import re
from enum import IntEnum
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, overload

from kstore.errors import LEAST_INT64, checked_int

if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from uuid import UUID

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_OFFSET = -1
NO_PARTITION_LEADER_EPOCH = -1
MAX_OFFSET = 2**63 - 1
MAX_PARTITION = 2**31 - 1
# The format of a batch, in its magic byte. From 2 on a batch has a header of its own; 0 and 1 are messages.
MAGIC_V0, MAGIC_V1, MAGIC_V2 = range(3)
# Special timestamps for Log.offset_for_timestamp, as in Kafka's ListOffsetsRequest.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")

# A time: milliseconds since 1970 (UTC), or a datetime with a time zone.
Time: TypeAlias = "int | datetime"

# What has happened to records when their append is done; see WritableLog.append. With "buffered" a producer does not
# wait for that; see ProducerConfig.acks.
Ack: TypeAlias = Literal["written", "flushed"]
SinkAck: TypeAlias = Literal["buffered", "written", "flushed"]

GROUP_OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
# Where kstore.staging stores the versions that it committed, in the same transaction as the records.
SINK_TOPIC: Final = "__kstore_sink"
# Topics that brokers, or kstore, use internally. A scan of a whole root skips them unless they are named.
INTERNAL_TOPICS = frozenset(
    {GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, "__share_group_state", "__cluster_metadata", SINK_TOPIC}
)


class TimestampType(IntEnum):
    """The source of a record's timestamp (Kafka: TimestampType). `label` is Kafka's spelling.

    CREATE_TIME: the producer's; LOG_APPEND_TIME: that of the append; NO_TIMESTAMP_TYPE: magic 0 has none.
    """

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

    @property
    def label(self) -> str:
        return _TIMESTAMP_TYPE_LABELS[self]


_TIMESTAMP_TYPE_LABELS = {
    TimestampType.NO_TIMESTAMP_TYPE: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


class ControlRecordType(IntEnum):
    """Types of control records (Kafka: ControlRecordType)."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class TopicPartition(NamedTuple):
    """A topic and a partition number (Kafka: TopicPartition); str() gives the name of its directory."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


# A checkpoint names each topic once for each of its partitions.
@lru_cache(maxsize=1024)
def is_topic_name(name: str) -> bool:
    """Whether Kafka allows the topic name.

    Source: Kafka Topic.validate.
    """
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


# The directories of a root have names in common, of which none is a partition's.
@lru_cache(maxsize=1024)
def parse_partition_directory_name(name: str) -> TopicPartition | None:
    """Split a partition directory's name at its last '-'; None if it is not one.

    Source: Kafka UnifiedLog.parseTopicPartitionName.
    """
    topic, _, number = name.rpartition("-")
    if not is_topic_name(topic) or _PARTITION.fullmatch(number) is None or int(number) > MAX_PARTITION:
        return None
    return TopicPartition(topic, int(number))


class OffsetAndTimestamp(NamedTuple):
    """The result of a lookup by timestamp: offset and timestamp_ms of the first record that qualifies."""

    offset: int
    timestamp_ms: int


class OffsetAndMetadata(NamedTuple):
    """A group's committed offset in a partition: the next one that it reads (Kafka: OffsetAndMetadata).

    metadata: a text of the application. leader_epoch: that of the last record that was read. The rest is set when the
    offset is committed, and not taken from a caller: commit_timestamp_ms; expire_timestamp_ms (None: after
    offsets.retention.minutes without a member); topic_id. None for what is not stored.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None
    commit_timestamp_ms: int | None = None
    expire_timestamp_ms: int | None = None
    topic_id: UUID | None = None


class OffsetPosition(NamedTuple):
    """An offset, and the position in bytes in the segment's .log where its batch starts."""

    offset: int
    position: int


class TimestampOffset(NamedTuple):
    """A time index entry: the largest timestamp (ms) of the records up to an offset."""

    timestamp_ms: int
    offset: int


@overload
def time_ms(name: str, time: None, *, rounds_up: bool = True, least: int = LEAST_INT64) -> None: ...


@overload
def time_ms(name: str, time: Time, *, rounds_up: bool = True, least: int = LEAST_INT64) -> int: ...


def time_ms(name: str, time: Time | None, *, rounds_up: bool = True, least: int = LEAST_INT64) -> int | None:
    """Return a time in milliseconds since 1970 (UTC).

    Args: name: of the argument; rounds_up: the microseconds of a datetime, so that the timestamps of records are
        compared as if with the time itself; False to round down, as a record's timestamp is.
    Raises: ValueError for a datetime without a time zone, which is another time in each zone, and for a number below
        `least` or of more than 64 bits; TypeError for anything else.
    """
    from datetime import datetime

    if time is None:
        return None
    if not isinstance(time, datetime):
        return checked_int(name, time, least=least)
    if time.utcoffset() is None:
        raise ValueError(
            f"{name} must have a time zone, got the datetime {time.isoformat()} without one: "
            "for UTC, .replace(tzinfo=datetime.timezone.utc)"
        )
    epoch, millisecond = _epoch_and_millisecond()
    number = -((epoch - time) // millisecond) if rounds_up else (time - epoch) // millisecond
    return checked_int(name, number, least=least)


def datetime_of(timestamp_ms: int) -> datetime | None:
    """Return a timestamp as a datetime in UTC, None if none can hold it (the years 1 to 9999)."""
    epoch, millisecond = _epoch_and_millisecond()
    try:
        return epoch + timestamp_ms * millisecond
    except OverflowError:
        return None


@cache
def _epoch_and_millisecond() -> tuple[datetime, timedelta]:
    from datetime import datetime, timedelta, timezone

    return datetime(1970, 1, 1, tzinfo=timezone.utc), timedelta(milliseconds=1)
