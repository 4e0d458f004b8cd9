"""Finds partition directories: in a log.dirs root, by their own path, or in a list of both.

Layer 5. What a directory is follows from its content first, since roots are often named like partitions
(kafka-logs-1): .log files make a partition, sub-directories named <topic>-<number> a root.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import NamedTuple

from kstore.errors import LogNotFoundError, StorageError
from kstore.log.env import DEFAULT_ENV, Env, FileKind, StrPath, absolute_path, join_path, path_list, split_path
from kstore.log.filenames import LOG_SUFFIX, parse_partition_directory_name, parse_segment_name, retired_state
from kstore.types import TopicPartition

_SHOWN_NAMES = 3


class PartitionDirectory(NamedTuple):
    """A partition's directory, absolute, and the root that holds it and its checkpoints."""

    topic_partition: TopicPartition
    path: str
    root: str


class _Content(NamedTuple):
    has_logs: bool
    partitions: list[PartitionDirectory]


def find_partitions(paths: StrPath | Iterable[StrPath], env: Env = DEFAULT_ENV) -> list[PartitionDirectory]:
    """Find the partitions at one or several paths, each a partition directory or a log.dirs root.

    Directories that a broker renamed for deletion or moves (-delete, -stray, -future) are passed over in a root.
    Returns: sorted by topic, then partition number; the same directory reached twice counts once.
    Raises: LogNotFoundError if a path is missing, no directory, or neither partition nor root;
        StorageError if two directories hold the same topic-partition.
    """
    directories = path_list(paths)
    if not directories:
        raise ValueError("paths must name at least one directory, got none")
    found: dict[TopicPartition, PartitionDirectory] = {}
    for path in directories:
        for partition in _partitions_at(absolute_path(path), env):
            other = found.setdefault(partition.topic_partition, partition)
            if other.path != partition.path:
                raise StorageError(
                    f"partition {partition.topic_partition} found twice: {other.path} and {partition.path}",
                    path=partition.path,
                )
    return [found[topic_partition] for topic_partition in sorted(found)]


def partitions_of_root(root: str, env: Env = DEFAULT_ENV) -> list[PartitionDirectory]:
    """Return the partition directories in a root, sorted; none in one that is new.

    Raises: LogNotFoundError if there is no such directory, or it is itself a partition's.
    """
    content = _look_into(root, env)
    if content.has_logs:
        raise LogNotFoundError(f"{root} holds segments, expected a log.dirs root", path=root, errno=errno.EINVAL)
    partitions = [directory for directory in content.partitions if not _is_root(directory.path, env)]
    if content.partitions and not partitions:
        names = _shown([directory.path for directory in content.partitions])
        raise LogNotFoundError(
            f"{root} is no log.dirs root but holds some: name one of them ({names})", path=root, errno=errno.EINVAL
        )
    return sorted(partitions)


def find_partition(path: StrPath, env: Env = DEFAULT_ENV) -> PartitionDirectory:
    """Return the one partition whose directory the path is.

    Raises: LogNotFoundError, also for a log.dirs root.
    """
    absolute = absolute_path(path)
    content = _look_into(absolute, env)
    partition = _as_partition(absolute, content)
    if partition is None:
        names = _shown([directory.path for directory in content.partitions])
        raise LogNotFoundError(
            f"{absolute} is a log.dirs root, expected a partition directory: open one of those in it ({names})",
            path=absolute,
            errno=errno.EINVAL,
        )
    return partition


def _partitions_at(path: str, env: Env) -> list[PartitionDirectory]:
    content = _look_into(path, env)
    partition = _as_partition(path, content)
    if partition is not None:
        return [partition]
    inner_roots = [directory.path for directory in content.partitions if _is_root(directory.path, env)]
    partitions = [directory for directory in content.partitions if directory.path not in inner_roots]
    if not partitions:
        raise LogNotFoundError(
            f"{path} is no log.dirs root but holds some: name them instead ({_shown(inner_roots)})",
            path=path,
            errno=errno.EINVAL,
        )
    return partitions


def _is_root(path: str, env: Env) -> bool:
    """Tell whether a directory named like a partition is a root."""
    content = _look_into(path, env)
    return bool(content.partitions) and not content.has_logs


def _look_into(path: str, env: Env) -> _Content:
    status = env.stat(path)
    if status is None:
        raise LogNotFoundError(f"no such directory: {path}", path=path, errno=errno.ENOENT)
    if status.kind is not FileKind.DIRECTORY:
        raise LogNotFoundError(
            f"not a directory: {path}; expected a partition directory or a log.dirs root",
            path=path,
            errno=errno.ENOTDIR,
        )
    has_logs = False
    partitions = []
    for name in env.listdir(path):
        segment_name = parse_segment_name(name)
        if segment_name is not None:
            has_logs = has_logs or segment_name.suffix == LOG_SUFFIX
            continue
        topic_partition = parse_partition_directory_name(name)
        if topic_partition is not None:
            inner = join_path(path, name)
            inner_status = env.stat(inner)
            if inner_status is not None and inner_status.kind is FileKind.DIRECTORY:
                partitions.append(PartitionDirectory(topic_partition, inner, path))
    return _Content(has_logs, partitions)


def _as_partition(path: str, content: _Content) -> PartitionDirectory | None:
    """Return the partition that the directory is, None if it is a root."""
    root, name = split_path(path)
    topic_partition = parse_partition_directory_name(name)
    if topic_partition is not None and (content.has_logs or not content.partitions):
        return PartitionDirectory(topic_partition, path, root)
    if content.has_logs:
        state = retired_state(name)
        why = "expected a directory named <topic>-<partition>"
        if state is not None:
            why = f"a broker marked it -{state}; rename it to <topic>-<partition> to read it"
        raise LogNotFoundError(
            f"{path} holds segments but its name tells no topic and partition: {why}", path=path, errno=errno.EINVAL
        )
    if not content.partitions:
        raise LogNotFoundError(
            f"{path} is neither a partition directory nor a log.dirs root: "
            f"expected .log segments or directories named <topic>-<partition>, found none",
            path=path,
            errno=errno.EINVAL,
        )
    return None


def _shown(paths: list[str]) -> str:
    names = ", ".join(split_path(path)[1] for path in paths[:_SHOWN_NAMES])
    return names if len(paths) <= _SHOWN_NAMES else f"{names}, ... {len(paths)} in all"
