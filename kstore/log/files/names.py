"""File and directory names of Kafka's on-disk layout, and find_partitions, which finds partition directories.

What a directory is follows from its content first, since roots are often named like partitions (kafka-logs-1): .log
files make it a partition, subdirectories named <topic>-<number> a root.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from kstore.env import DEFAULT_ENV, Env, Location, StrPath, join_path, locate, path_list, split_path
from kstore.errors import LogLockedError, LogNotFoundError, StorageError
from kstore.types import MAX_OFFSET, TopicPartition, parse_partition_directory_name

if TYPE_CHECKING:
    from uuid import UUID

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
PRODUCER_SNAPSHOT_SUFFIX = ".snapshot"
SEGMENT_INDEX_SUFFIXES = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
# In the order of removal: index files left without a .log are removed when the log is loaded.
SEGMENT_SUFFIXES = (LOG_SUFFIX, *SEGMENT_INDEX_SUFFIXES)

# States of a segment file, appended to its suffix: to be removed; being written by a cleaner; complete and about to
# replace a segment.
DELETED_STATE = ".deleted"
CLEANED_STATE = ".cleaned"
SWAP_STATE = ".swap"
# How many files of one name can wait for their removal, each under a name with one more DELETED_STATE.
MOST_DELETED_FILES = 8

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
BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
# kstore's own file next to the segments; brokers ignore names that they do not know.
DURABLE_POINT = "kstore-durable-point"
# kstore's own file in a root: the settings of topics, and the topics whose deletion has begun.
TOPIC_SETTINGS = "kstore-topic-settings"
# Where recovery keeps what it removes from a partition; brokers ignore directories.
QUARANTINE_DIRECTORY = "kstore-quarantine"
# Where kstore.staging keeps batches until they are committed. It is in a partition directory, since a broker refuses a
# root with a directory that is no partition's.
STAGING_DIRECTORY = "kstore-staging"

# The log of a KRaft quorum, which LogManager does not load.
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
# What a broker with tiered storage has: partitions of this topic, and where it keeps indexes of remote segments.
REMOTE_LOG_METADATA_TOPIC = "__remote_log_metadata"
REMOTE_INDEX_CACHE = "remote-log-index-cache"


_SEGMENT_NAME = re.compile(r"([0-9]{20})(\.(?:log|index|timeindex|txnindex|snapshot))")
_METADATA_SNAPSHOT_NAME = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
_RETIRED_DIRECTORY = re.compile(r"(.+)-([0-9]+)\.[0-9a-f]{32}-(delete|stray|future)")


class SegmentName(NamedTuple):
    """The two parts of a segment file's name; for a .snapshot the offset is that of the next record."""

    base_offset: int
    suffix: str


def deleted_paths(path: str) -> list[str]:
    """Return the names that a segment file may have until it is removed, in the order in which they are taken."""
    return [path + DELETED_STATE * count for count in range(1, MOST_DELETED_FILES + 1)]


# The logs of a root have many names in common, and loading one looks at each of its names several times.
@lru_cache(maxsize=1024)
def parse_segment_name(name: str) -> SegmentName | None:
    """Split a segment file's name; None if it is not one, or the number does not fit int64."""
    match = _SEGMENT_NAME.fullmatch(name)
    if match is None or int(match[1]) > MAX_OFFSET:
        return None
    return SegmentName(int(match[1]), match[2])


def producer_snapshot_offsets(names: Iterable[str]) -> list[int]:
    """Return the offsets of the producer snapshots among the names of a directory, sorted."""
    segment_names = (parse_segment_name(name) for name in names if name.endswith(PRODUCER_SNAPSHOT_SUFFIX))
    return sorted(name.base_offset for name in segment_names if name is not None)


def is_metadata_snapshot_name(name: str) -> bool:
    """Whether a file name is that of a KRaft snapshot: offset, epoch, ".checkpoint"."""
    return _METADATA_SNAPSHOT_NAME.fullmatch(name) is not None


def metadata_snapshot_offset(name: str) -> int | None:
    """Return the offset up to which a KRaft snapshot goes, by its name; None if it is not one."""
    match = _METADATA_SNAPSHOT_NAME.fullmatch(name)
    return int(match[1]) if match is not None and int(match[1]) <= MAX_OFFSET else None


def metadata_snapshot_epoch(name: str) -> int | None:
    """Return the leader epoch of the last record in a KRaft snapshot, by its name; None if it is not one."""
    match = _METADATA_SNAPSHOT_NAME.fullmatch(name)
    return None if match is None else int(match[2])


def base_offset_file_name(base_offset: int, *, suffix: str) -> str:
    """Return the name of a segment's file: base_offset in 20 digits, then the suffix.

    Raises: ValueError for a base_offset that is not in [0, MAX_OFFSET].
    Source: Kafka LogFileUtils.filenamePrefixFromOffset.
    """
    if not 0 <= base_offset <= MAX_OFFSET:
        raise ValueError(f"base_offset must be from 0 to {MAX_OFFSET}, got {base_offset}")
    return f"{base_offset:020d}{suffix}"


def segment_path(directory: str, base_offset: int, *, suffix: str) -> str:
    """Return the path of a segment's file in its partition's directory; raises as base_offset_file_name."""
    return join_path(directory, base_offset_file_name(base_offset, suffix=suffix))


def metadata_snapshot_name(offset: int, *, epoch: int) -> str:
    """Return the name of a KRaft snapshot of the records below an offset, the last of which has a leader epoch.

    Source: Kafka Snapshots.filenameFromSnapshotId.
    """
    return f"{offset:020d}-{epoch:010d}.checkpoint"


def retired_state(name: str) -> str | None:
    """Return "delete", "stray" or "future" if a broker renamed a partition directory to that state, else None."""
    match = _RETIRED_DIRECTORY.fullmatch(name)
    return match[3] if match is not None else None


class RetiredPartition(NamedTuple):
    """What the name of a directory says that a broker renamed; a long topic's name has lost its end there."""

    topic_partition: TopicPartition
    state: str


def retired_partition(name: str) -> RetiredPartition | None:
    """Return the partition and the state in the name of a directory that a broker renamed, None for another name."""
    match = _RETIRED_DIRECTORY.fullmatch(name)
    return None if match is None else RetiredPartition(TopicPartition(match[1], int(match[2])), match[3])


def has_future_logs(root: str, env: Env) -> bool:
    """Whether a broker was moving a partition into this root: its copy there is recovered by a broker only."""
    return any(retired_state(name) == "future" for name in env.listdir(root))


_MOST_NAME_BYTES = 255


def deleted_directory_name(topic_partition: TopicPartition, unique: UUID) -> str:
    """Return the name that a partition's directory gets when it is deleted.

    Source: Kafka UnifiedLog.logDeleteDirName.
    """
    return _retired_name(topic_partition, unique, "delete")


def future_directory_name(topic_partition: TopicPartition, unique: UUID) -> str:
    """Return the name that a copy of a partition has in another log directory until it takes its place.

    Source: Kafka UnifiedLog.logFutureDirName.
    """
    return _retired_name(topic_partition, unique, "future")


def is_future_of(name: str, topic_partition: TopicPartition) -> bool:
    """Whether a directory has the name of an unfinished copy of a partition."""
    if retired_state(name) != "future":
        return False
    import uuid

    unique = name.removesuffix("-future").rpartition(".")[2]
    return name == future_directory_name(topic_partition, uuid.UUID(unique))


def _retired_name(topic_partition: TopicPartition, unique: UUID, state: str) -> str:
    suffix = f"-{topic_partition.partition}.{unique.hex}-{state}"
    return topic_partition.topic[: _MOST_NAME_BYTES - len(suffix)] + suffix


_SHOWN_NAMES = 3


class PartitionDirectory(NamedTuple):
    """A partition's directory, as an absolute path or a URL without options, the root that holds it and its
    checkpoints, and the Env that found it.
    """

    topic_partition: TopicPartition
    path: str
    root: str
    env: Env = DEFAULT_ENV

    def is_place_of(self, error: StorageError) -> bool:
        """Whether a call failed on this directory, or on a file in it, so that other partitions may be sound."""
        if isinstance(error, LogLockedError) or error.path is None:
            return False
        return error.path == self.path or error.path.startswith(join_path(self.path, ""))

    def can_be_listed(self) -> bool:
        """Look whether the directory can be listed now."""
        try:
            self.env.listdir(self.path)
        except StorageError:
            return False
        return True

    def was_deleted(self) -> bool:
        """Look whether the directory is gone, as after the deletion of its topic; False if that is unknown."""
        self.env.invalidate_listing(self.path)
        try:
            return self.env.stat(self.path) is None
        except StorageError:
            return False


class _Content(NamedTuple):
    """Whether a directory holds segments, and what is named like a partition in it."""

    has_logs: bool
    partitions: list[PartitionDirectory]


def find_partitions(
    paths: StrPath | Iterable[StrPath],
    env: Env | None = None,
    *,
    is_wanted: Callable[[TopicPartition], bool] | None = None,
) -> list[PartitionDirectory]:
    """Find the partitions at one or several paths or URLs, each a partition directory or a log.dirs root.

    In a root, directories that a broker renamed for deletion or moves (-delete, -stray, -future) are skipped, and so
    are those that are removed while the root is listed. One that can't be looked into is returned; its log can't be
    opened either, and that says why.
    Args: is_wanted: whether a directory of a root is looked into, None for each; the others are returned by their
        names alone, unless none is wanted.
    Returns: sorted by topic, then partition number; a directory reached twice appears once.
    Raises: LogNotFoundError if a path is missing, not a directory, or neither a partition nor a root; StorageError if
        two directories hold the same topic-partition; ValueError for no path.
    """
    directories = path_list(paths)
    if not directories:
        raise ValueError("paths must name at least one directory, got none")
    return _each_once(partition for path in directories for partition in _partitions_at(locate(path, env), is_wanted))


def name_partitions(
    paths: Iterable[StrPath],
    env: Env | None = None,
    *,
    among: Collection[TopicPartition] | None = None,
    lists_partitions: bool = True,
) -> list[PartitionDirectory]:
    """Return what find_partitions may find at these paths, by names alone; no directory of a partition is looked into.

    If one of them turns out to be no partition when it is opened (open_found), find_partitions tells what it is.
    Args: among: the partitions of interest, at least one. A root is then not listed, unless its own name is that of a
        partition; others that are there may be returned too. lists_partitions: False if the partitions are looked into
        elsewhere, so that the listing of a store need not go into them.
    Raises: LogNotFoundError, StorageError as find_partitions, for what the names tell.
    Cost: one listing for each path, or with `among` a stat for each partition.
    """
    located = (locate(path, env) for path in paths)
    return _each_once(
        partition
        for found_in, path in located
        for partition in _named_at(path, among, found_in if lists_partitions else found_in.without_recursive_listing())
    )


def _each_once(partitions: Iterable[PartitionDirectory]) -> list[PartitionDirectory]:
    directories: dict[TopicPartition, PartitionDirectory] = {}
    for partition in partitions:
        other = directories.setdefault(partition.topic_partition, partition)
        if other.path != partition.path:
            raise StorageError(
                f"partition {partition.topic_partition} found twice: {other.path} and {partition.path}",
                path=partition.path,
            )
    return [directories[topic_partition] for topic_partition in sorted(directories)]


def _named_at(path: str, among: Collection[TopicPartition] | None, env: Env) -> list[PartitionDirectory]:
    if among is not None and parse_partition_directory_name(split_path(path)[1]) is None:
        return [
            PartitionDirectory(topic_partition, inner, path, env)
            for topic_partition in among
            if parse_partition_directory_name(str(topic_partition)) == topic_partition
            for inner in (join_path(path, str(topic_partition)),)
            if env.is_directory(inner)
        ]
    content = _content(path, _names_in(path, env), env)
    partition = _as_partition(path, content, env)
    return content.partitions if partition is None else [partition]


def partitions_of_root(root: str, env: Env = DEFAULT_ENV) -> list[PartitionDirectory]:
    """Return the partition directories in a root, sorted; an empty list for a new root.

    Raises: LogNotFoundError if the directory does not exist, holds segments itself, or holds only other roots.
    """
    content = _look_into(root, env)
    if content.has_logs:
        raise LogNotFoundError(f"{root} holds segments, expected a log.dirs root", path=root, errno=errno.EINVAL)
    partitions, inner_roots = _split_off_roots(content.partitions, env)
    if inner_roots and not partitions:
        raise LogNotFoundError(
            f"{root} is not a log.dirs root but contains some: pass one of them ({_shown(inner_roots)})",
            path=root,
            errno=errno.EINVAL,
        )
    return sorted(partitions)


def find_partition(path: StrPath, env: Env | None = None) -> PartitionDirectory:
    """Return the partition whose directory is `path`.

    Raises: LogNotFoundError, also for a log.dirs root.
    """
    env, absolute = locate(path, env)
    content = _look_into(absolute, env)
    partition = _as_partition(absolute, content, env)
    if partition is None:
        names = _shown([directory.path for directory in content.partitions])
        raise LogNotFoundError(
            f"{absolute} is a log.dirs root, expected a partition directory: open one of those in it ({names})",
            path=absolute,
            errno=errno.EINVAL,
        )
    return partition


def partition_named(path: StrPath, env: Env | None = None) -> PartitionDirectory | None:
    """Return the partition that a directory at `path` is, if there is one that holds segments or nothing; None if its
    name is not that of a partition.  Cost: no file or directory is looked at.
    """
    env, absolute = locate(path, env)
    root, name = split_path(absolute)
    topic_partition = parse_partition_directory_name(name)
    return None if topic_partition is None else PartitionDirectory(topic_partition, absolute, root, env)


def _partitions_at(
    location: Location, is_wanted: Callable[[TopicPartition], bool] | None = None
) -> list[PartitionDirectory]:
    env, path = location
    content = _content(path, _names_in(path, env), env)
    wanted: list[PartitionDirectory] = []
    others: list[PartitionDirectory] = []
    for directory in content.partitions:
        (wanted if is_wanted is None or is_wanted(directory.topic_partition) else others).append(directory)
    if not wanted:
        wanted, others = others, []
    wanted = _directories(wanted, env)
    partition = _as_partition(path, content._replace(partitions=[*wanted, *others]), env)
    if partition is not None:
        return [partition]
    partitions, inner_roots = _split_off_roots(wanted, env)
    partitions += others
    if not partitions and not inner_roots:
        raise _no_log_at(path)
    if not partitions:
        raise LogNotFoundError(
            f"{path} is not a log.dirs root but contains some: pass them instead ({_shown(inner_roots)})",
            path=path,
            errno=errno.EINVAL,
        )
    return partitions


def _split_off_roots(directories: list[PartitionDirectory], env: Env) -> tuple[list[PartitionDirectory], list[str]]:
    """Of directories named like partitions, return the partitions, and the paths of those that are roots.

    One that was removed since it was listed, as when a topic is deleted, is left out. One that can't be looked into
    counts as a partition, since others may be sound.
    """
    partitions, roots = [], []
    for directory in directories:
        if env.has_views and env.is_known_partition(directory.path):
            partitions.append(directory)
            continue
        try:
            content = _look_into(directory.path, env)
        except StorageError as error:
            if error.errno != errno.ENOENT:
                partitions.append(directory)
            continue
        if content.partitions and not content.has_logs:
            roots.append(directory.path)
        else:
            partitions.append(directory)
    return partitions, roots


def _look_into(path: str, env: Env) -> _Content:
    content = _content(path, _names_in(path, env), env)
    return content._replace(partitions=_directories(content.partitions, env))


def _directories(named: Iterable[PartitionDirectory], env: Env) -> list[PartitionDirectory]:
    """Return those that are directories, and those that can't be looked at."""

    def is_directory(path: str) -> bool:
        try:
            return env.is_directory(path)
        except StorageError:
            return True

    return [directory for directory in named if is_directory(directory.path)]


def _names_in(path: str, env: Env) -> list[str]:
    try:
        return env.listdir(path)
    except StorageError as error:
        if error.errno == errno.ENOENT:
            raise _no_directory(path) from error
        if error.errno != errno.ENOTDIR:
            raise
        raise LogNotFoundError(
            f"not a directory: {path}; expected a partition directory or a log.dirs root",
            path=path,
            errno=errno.ENOTDIR,
        ) from error


def _content(path: str, names: Iterable[str], env: Env) -> _Content:
    """Return what the names in a directory tell of it."""
    has_logs = False
    partitions = []
    for name in names:
        segment_name = parse_segment_name(name)
        if segment_name is not None:
            has_logs = has_logs or segment_name.suffix == LOG_SUFFIX
            continue
        topic_partition = parse_partition_directory_name(name)
        if topic_partition is not None:
            partitions.append(PartitionDirectory(topic_partition, join_path(path, name), path, env))
    return _Content(has_logs, partitions)


def has_tiered_storage(root: str, env: Env) -> bool:
    """Whether a broker with tiered storage has written a root: it keeps a cache of remote indexes there, and partitions
    of the metadata topic.

    Raises: StorageError.  Cost: the names in the root.
    """
    names = env.listdir(root)
    return any(name == REMOTE_INDEX_CACHE or name.startswith(f"{REMOTE_LOG_METADATA_TOPIC}-") for name in names)


def _no_directory(path: str) -> LogNotFoundError:
    return LogNotFoundError(f"no such directory: {path}", path=path, errno=errno.ENOENT)


def _as_partition(path: str, content: _Content, env: Env) -> PartitionDirectory | None:
    """Return the partition that the directory is, or None if it is a root.

    Raises: LogNotFoundError if it is neither.
    """
    root, name = split_path(path)
    topic_partition = parse_partition_directory_name(name)
    if topic_partition is not None and (content.has_logs or not content.partitions):
        return PartitionDirectory(topic_partition, path, root, env)
    if content.has_logs:
        state = retired_state(name)
        why = "expected a directory named <topic>-<partition>"
        if state is not None:
            why = f"a broker marked it -{state}; rename it to <topic>-<partition> to read it"
        raise LogNotFoundError(
            f"{path} holds segments but its name is not that of a partition: {why}", path=path, errno=errno.EINVAL
        )
    if not content.partitions:
        raise _no_log_at(path)
    return None


def _no_log_at(path: str) -> LogNotFoundError:
    return LogNotFoundError(
        f"{path} is neither a partition directory nor a log.dirs root: "
        f"expected .log segments or directories named <topic>-<partition>, found none",
        path=path,
        errno=errno.EINVAL,
    )


def _shown(paths: list[str]) -> str:
    names = ", ".join(split_path(path)[1] for path in paths[:_SHOWN_NAMES])
    return names if len(paths) <= _SHOWN_NAMES else f"{names}, ... {len(paths)} in all"
