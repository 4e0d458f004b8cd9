"""Names of files and directories in a log.dirs root, by strict rules; no file is touched.

Layer 5. A segment file is 20 digits and a known suffix, a partition directory <topic>-<number>. All other names
(.deleted, .cleaned, .swap, .tmp, checkpoints, <topic>-<number>.<uuid>-delete and the like) parse to None.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from kstore.config import MAX_INT32
from kstore.log.env import join_path
from kstore.types import MAX_OFFSET, TopicPartition

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
PRODUCER_SNAPSHOT_SUFFIX = ".snapshot"
SEGMENT_INDEX_SUFFIXES = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
# In the order of removal: what is left of a segment without a .log is removed when the log is loaded.
SEGMENT_SUFFIXES = (LOG_SUFFIX, *SEGMENT_INDEX_SUFFIXES)

# States of a segment file, behind its suffix: to be removed, being built by a cleaner, built and to take its place.
DELETED_STATE = ".deleted"
CLEANED_STATE = ".cleaned"
SWAP_STATE = ".swap"

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
ROOT_CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    CLEANER_CHECKPOINT,
)
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"

LOCK_FILE = ".lock"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"
QUORUM_STATE = "quorum-state"
# kstore's own file beside the segments; brokers pass over names that they do not know.
DURABLE_POINT = "kstore-durable-point"
# Where recovery keeps what it takes out of a partition; brokers pass over directories.
QUARANTINE_DIRECTORY = "kstore-quarantine"

# The log of a KRaft quorum, which LogManager leaves alone.
CLUSTER_METADATA_TOPIC = "__cluster_metadata"

MAX_PARTITION = MAX_INT32

_SEGMENT_NAME = re.compile(r"([0-9]{20})(\.(?:log|index|timeindex|txnindex|snapshot))")
_METADATA_SNAPSHOT_NAME = re.compile(r"[0-9]{20}-[0-9]{10}\.checkpoint")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")
_RETIRED_DIRECTORY = re.compile(r".+-[0-9]+\.[0-9a-f]{32}-(delete|stray|future)")


class SegmentName(NamedTuple):
    """The two parts of a segment file's name; for a .snapshot the offset is the next one to be written."""

    base_offset: int
    suffix: str


def parse_segment_name(name: str) -> SegmentName | None:
    """Split a segment file's name; None if it is none or the number is no int64."""
    match = _SEGMENT_NAME.fullmatch(name)
    if match is None or int(match[1]) > MAX_OFFSET:
        return None
    return SegmentName(int(match[1]), match[2])


def producer_snapshot_offsets(names: Iterable[str]) -> list[int]:
    """Return the offsets of the producer snapshots among the names of a directory, sorted."""
    found = (parse_segment_name(name) for name in names if name.endswith(PRODUCER_SNAPSHOT_SUFFIX))
    return sorted(name.base_offset for name in found if name is not None)


def is_metadata_snapshot_name(name: str) -> bool:
    """Tell whether a file is a snapshot of a KRaft log: offset, epoch, ".checkpoint"."""
    return _METADATA_SNAPSHOT_NAME.fullmatch(name) is not None


def base_offset_file_name(base_offset: int, *, suffix: str) -> str:
    """Return the 20-digit file name of a segment's file.

    Source: Kafka LogFileUtils.filenamePrefixFromOffset.
    """
    if not 0 <= base_offset <= MAX_OFFSET:
        raise ValueError(f"base_offset must be from 0 to {MAX_OFFSET}, got {base_offset}")
    return f"{base_offset:020d}{suffix}"


def segment_path(directory: str, base_offset: int, *, suffix: str) -> str:
    """Return the path of a segment's file in its partition's directory; raises as base_offset_file_name."""
    return join_path(directory, base_offset_file_name(base_offset, suffix=suffix))


def is_topic_name(name: str) -> bool:
    """Tell whether Kafka allows the topic name.

    Source: Kafka Topic.validate.
    """
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def parse_partition_directory_name(name: str) -> TopicPartition | None:
    """Split a partition directory's name at its last '-'; None if it is none.

    Source: Kafka UnifiedLog.parseTopicPartitionName.
    """
    topic, _, number = name.rpartition("-")
    if not is_topic_name(topic) or _PARTITION.fullmatch(number) is None or int(number) > MAX_PARTITION:
        return None
    return TopicPartition(topic, int(number))


def retired_state(name: str) -> str | None:
    """Return "delete", "stray" or "future" for a partition directory that a broker renamed so, else None."""
    match = _RETIRED_DIRECTORY.fullmatch(name)
    return match[1] if match is not None else None
