"""Segments that were handed over: files and directories of any name, as partitions that can be read.

Where no name tells the topic, it is the name of the file or directory, and the partition is -1.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from kstore._core import LOG_OVERHEAD
from kstore.cli.arguments import WrongUseError
from kstore.cli.output import printable
from kstore.env import Env, FileKind, join_path, locate, split_path
from kstore.errors import KStoreError, StorageError
from kstore.log.files.names import (
    LOG_SUFFIX,
    SEGMENT_INDEX_SUFFIXES,
    PartitionDirectory,
    base_offset_file_name,
    has_tiered_storage,
    parse_segment_name,
    retired_partition,
)
from kstore.record.batches import SIZE_UP_TO_MAGIC, RecordBatch
from kstore.types import MAGIC_V2, MAX_OFFSET, TopicPartition, parse_partition_directory_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kstore.cli.arguments import PartitionSelection
    from kstore.cli.output import Output
    from kstore.env import FileStatus, Location, ReadFile, StrPath

UNKNOWN_PARTITION = -1
_MOST_BATCH_BYTES = 1 << 30


class HandedEnv(Env):
    """Another Env, of which only one directory is seen, or in its place some files under names of segments.

    Args: files: the paths by the names that the directory has, None for the directory as it is.
    Attributes: whole: the other Env.
    Threads: thread-safe.
    """

    def __init__(self, env: Env, directory: str, files: dict[str, str] | None) -> None:
        self.whole = env
        self._directory = directory
        self._files = files
        self.parallel_requests = env.parallel_requests
        self.is_mutable = env.is_mutable
        self.is_high_latency = env.is_high_latency
        self.poll_interval = env.poll_interval

    def absolute_path(self, path: StrPath) -> str:
        return self.whole.absolute_path(path)

    def open_read(self, path: str) -> ReadFile:
        return self.whole.open_read(self._real(path))

    def listdir(self, path: str) -> list[str]:
        if path == self._directory and self._files is not None:
            return sorted(self._files)
        return self.whole.listdir(self._real(path))

    def stat(self, path: str, *, follow_symlinks: bool = True) -> FileStatus | None:
        if path == self._directory:
            # Of a file, the directory that holds it stands for the one that only this Env has.
            status = self.whole.stat(path)
            is_file = status is not None and status.kind is not FileKind.DIRECTORY
            return self.whole.stat(split_path(path)[0]) if is_file else status
        try:
            return self.whole.stat(self._real(path), follow_symlinks=follow_symlinks)
        except StorageError as error:
            if error.errno == errno.ENOENT:
                return None
            raise

    def process_id(self) -> int:
        return self.whole.process_id()

    def _real(self, path: str) -> str:
        """Return the path of a file that is seen.  Raises: StorageError for others."""
        directory, name = split_path(path)
        if self._files is None and (path == self._directory or path.startswith(join_path(self._directory, ""))):
            return path
        if self._files is not None and directory == self._directory and name in self._files:
            return self._files[name]
        raise StorageError(f"{path} was not handed over", path=path, errno=errno.ENOENT)


def partitions_of(selection: PartitionSelection, out: Output) -> list[PartitionDirectory]:
    """Return what is at the DIRs of a selection: partitions, roots, files, directories of any name with segments.

    Files of one directory that are named as segments are one log. With a tier only partitions and roots.
    Raises: WrongUseError; as PartitionSelection.find.
    """
    if selection.tier is not None:
        return selection.find()
    handed: list[PartitionDirectory] = []
    files: dict[str, list[Location]] = {}
    others: list[str] = []
    for directory in selection.directories:
        env, path = location = locate(directory)
        status = env.stat(path)
        if status is not None and status.kind is FileKind.FILE:
            parent, name = split_path(path)
            is_named = parse_segment_name(name) is not None
            files.setdefault(parent if is_named else path, []).append(location)
        elif status is not None and status.kind is FileKind.DIRECTORY and _is_handed_over(location):
            handed.append(_directory_of(location))
        else:
            others.append(directory)
    handed += [_files_of(place, locations, out) for place, locations in files.items()]
    left = [one for one in handed if selection.selects(one.topic_partition)]
    if others:
        left += selection.narrowed_to(others).find()
    elif not left:
        raise WrongUseError("--topic and --partition leave out all files and directories that are named")
    return left


def note_tiered(
    partition: PartitionDirectory, out: Output, tiered_roots: dict[str, bool], *, start_offset: int = 0
) -> None:
    """Say where the offsets from start_offset on are that a log has in tiered storage alone, if any.

    Args: tiered_roots: whether the roots that were looked at have tiered storage; that of the partition is added.
    """
    if is_handed_over(partition):
        return
    if partition.root not in tiered_roots:
        tiered_roots[partition.root] = has_tiered_storage(partition.root, partition.env)
    if not tiered_roots[partition.root]:
        return
    from kstore.tier.opening import moved_to_tier

    moved = moved_to_tier(partition)
    if moved is not None and start_offset <= moved[1]:
        out.notice(
            f"offsets {moved[0]} to {moved[1]} of {partition.topic_partition} are in tiered storage, not in this "
            "directory: --tier DIR|URL says where it is"
        )


def place_text(topic_partition: TopicPartition) -> str:
    """Return the name of a partition, or of the file or directory whose partition is not known."""
    topic, partition = topic_partition
    return printable(topic) if partition == UNKNOWN_PARTITION else str(topic_partition)


def is_handed_over(partition: PartitionDirectory) -> bool:
    """Whether a partition is made of what was handed over, so that nothing beside it belongs to it."""
    return isinstance(partition.env, HandedEnv)


def env_of_root(partition: PartitionDirectory) -> Env:
    """Return the Env that sees the root of a partition, if only a part of the root was handed over too."""
    return partition.env.whole if isinstance(partition.env, HandedEnv) else partition.env


def _is_handed_over(location: Location) -> bool:
    """Whether a directory holds segments and is not named as a partition."""
    env, path = location
    if parse_partition_directory_name(split_path(path)[1]) is not None:
        return False
    try:
        names = env.listdir(path)
    except KStoreError:
        return False
    return any(name.endswith(LOG_SUFFIX) and parse_segment_name(name) is not None for name in names)


def _directory_of(location: Location) -> PartitionDirectory:
    env, path = location
    return PartitionDirectory(_partition_named(path), path, split_path(path)[0], HandedEnv(env, path, None))


def _partition_named(path: str) -> TopicPartition:
    """Return the partition that the name of a directory tells, else its name and UNKNOWN_PARTITION."""
    name = split_path(path)[1]
    retired = retired_partition(name)
    known = parse_partition_directory_name(name) if retired is None else retired.topic_partition
    return TopicPartition(name, UNKNOWN_PARTITION) if known is None else known


def _files_of(place: str, locations: Iterable[Location], out: Output) -> PartitionDirectory:
    """Return the log of files that are named as segments in the directory `place`, or of the file `place`."""
    files: dict[str, str] = {}
    for location in locations:
        env, path = location
        name = split_path(path)[1]
        if parse_segment_name(name) is None:
            name = base_offset_file_name(_base_offset(location), suffix=LOG_SUFFIX)
            out.shown_paths[join_path(place, name)] = path
        elif not name.endswith(LOG_SUFFIX):
            raise WrongUseError(f"{path} has no records; to show its entries: kstore dump {path}")
        files[name] = path
    topic_partition = _partition_named(split_path(path)[0])
    if topic_partition.partition == UNKNOWN_PARTITION:
        topic_partition = TopicPartition(split_path(path)[1], UNKNOWN_PARTITION)
    return PartitionDirectory(topic_partition, place, split_path(place)[0], HandedEnv(env, place, files))


def _base_offset(location: Location) -> int:
    """Return the first offset of a file of batches.

    Raises: WrongUseError if it does not begin with a batch; StorageError.
    """
    env, path = location
    with env.open_read(path) as file:
        start = file.pread(SIZE_UP_TO_MAGIC, position=0)
        if not begins_with_batch(path, start):
            raise WrongUseError(f"{path} does not begin with a batch; expected the bytes of a .log")
        size = int.from_bytes(start[8:12], "big", signed=True) + LOG_OVERHEAD
        base_offset = max(int.from_bytes(start[:8], "big", signed=True), 0)
        if start[16:] < bytes([MAGIC_V2]) and LOG_OVERHEAD < size <= _MOST_BATCH_BYTES:
            # The offset of a wrapper is that of its last message.
            try:
                base_offset = RecordBatch(file.pread(size, position=0), position=0, path=path).base_offset
            except KStoreError:
                return base_offset
        return base_offset


def begins_with_batch(path: str, start: bytes) -> bool:
    """Whether a file may be a .log, by its name and its first SIZE_UP_TO_MAGIC bytes, or fewer of a smaller file."""
    if not start or path.endswith(LOG_SUFFIX):
        return True
    if path.endswith(SEGMENT_INDEX_SUFFIXES):
        return False
    size = int.from_bytes(start[8:12], "big", signed=True)
    offset = int.from_bytes(start[:8], "big", signed=True)
    return len(start) == SIZE_UP_TO_MAGIC and start[-1] <= MAGIC_V2 and size > 0 and 0 <= offset <= MAX_OFFSET
