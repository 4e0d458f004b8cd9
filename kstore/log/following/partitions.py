"""The partitions that a follower reads: one log, or those of a root, with what is added to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from errno import ENOENT, ENOTDIR
from typing import TypeAlias

from kstore._lazy import lazy_logger
from kstore.env import Arrivals
from kstore.errors import LogClosedError, LogReplacedError, StorageError
from kstore.log.files.names import PartitionDirectory
from kstore.log.following.tail import LogTail, PendingBatch
from kstore.types import TopicPartition

FromOffset: TypeAlias = int | Mapping[TopicPartition, int] | None

_DELETED = "%s was deleted, and perhaps created again: what was there is followed no longer, its position was %d"

_logger = lazy_logger("kstore.log")


class OneLog:
    """The batches of one log."""

    def __init__(self, tail: LogTail) -> None:
        self._tail = tail

    @property
    def positions(self) -> dict[TopicPartition, int]:
        return {self._tail.topic_partition: self._tail.position}

    def next_part(self) -> PendingBatch | None:
        return self._tail.next_part()

    def go_back(self, part: PendingBatch) -> None:
        self._tail.go_back(part)

    def look_at(self, directories: frozenset[str]) -> None:
        """Does nothing: next_part always looks."""

    def look_everywhere(self) -> None:
        """Does nothing, see look_at."""

    def close(self) -> None:
        self._tail.close()


class ManyLogs:
    """The batches of the partitions of a root, a batch of each in turn.

    A partition that is deleted is left out; one that is added, or created again, is followed from its start.
    Args: other_roots: more roots that hold some of them; find: returns the partitions that are followed, as they are
        now; of a store that this process writes, the same objects until they are deleted; open_tail: opens a log at an
        offset, None for its start; from_offset: of the partitions that there are at first, for all of them or by
        partition; sees_root: whether a change of the root, as of its checkpoints, may be news for every partition.
    Raises: as LogTail; from next_part LogClosedError after the store was closed.
    Threads: not thread-safe.
    """

    def __init__(
        self,
        root: str,
        *,
        find: Callable[[], dict[TopicPartition, PartitionDirectory]],
        open_tail: Callable[[PartitionDirectory, int | None], LogTail],
        arrivals: Arrivals,
        from_offset: FromOffset,
        sees_root: bool,
        other_roots: Iterable[str] = (),
    ) -> None:
        self._roots = frozenset((root, *other_roots))
        self._find = find
        self._open_tail = open_tail
        self._arrivals = arrivals
        self._sees_root = sees_root
        self._tails: dict[TopicPartition, LogTail] = {}
        self._directories: dict[TopicPartition, PartitionDirectory] = {}
        self._partition_of: dict[str, TopicPartition] = {}
        # In which batches may be found, in the order in which they are asked.
        self._ready: dict[TopicPartition, None] = {}
        for each in sorted(self._roots):
            arrivals.add(each)
        self._is_stale = False
        # Where partitions are followed on that could not be opened again.
        self._left_at: dict[TopicPartition, int] = {}
        self._follow_new(from_offset)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        return {partition: tail.position for partition, tail in self._tails.items()}

    def look_at(self, directories: frozenset[str]) -> None:
        if not self._roots.isdisjoint(directories):
            self._is_stale = True
            if self._sees_root:
                self._ready |= dict.fromkeys(self._tails)
        for directory in directories:
            partition = self._partition_of.get(directory)
            if partition is not None:
                self._ready[partition] = None

    def look_everywhere(self) -> None:
        self._is_stale = True
        self._ready |= dict.fromkeys(self._tails)

    def next_part(self) -> PendingBatch | None:
        if self._is_stale:
            self._follow_new(None)
        while self._ready:
            partition = next(iter(self._ready))
            try:
                del self._ready[partition]
                tail = self._tails.get(partition)
                part = None if tail is None else self._next_of(partition, tail)
            except BaseException:
                # Asked again after the others.
                self._ready[partition] = None
                raise
            if part is not None:
                # After the others that have something.
                self._ready[partition] = None
                return part
        return None

    def go_back(self, part: PendingBatch) -> None:
        partition = part.batch.topic_partition
        if partition in self._tails:
            self._tails[partition].go_back(part)
            self._ready[partition] = None

    def close(self) -> None:
        for tail in self._tails.values():
            tail.close()

    def _next_of(self, partition: TopicPartition, tail: LogTail) -> PendingBatch | None:
        try:
            return tail.next_part()
        except LogReplacedError as error:
            if not _is_gone(error, tail.path):
                # The log changes too often.
                raise
            _logger.warning("%s is followed no longer: %s", partition, error)
            self._drop(partition)
        except LogClosedError:
            # Raises if the store was closed.
            directory = self._find().get(partition)
            if directory is self._directories[partition]:
                self._left_at[partition] = tail.position
            else:
                _logger.warning(_DELETED, partition, tail.position)
            self._drop(partition)
        self._follow_new(None)
        return None

    def _follow_new(self, from_offset: FromOffset) -> None:
        """Drop the partitions that are gone, and open those that are new."""
        self._is_stale = False
        try:
            there = self._find()
            for partition in [*self._tails]:
                if partition not in there:
                    _logger.warning(_DELETED, partition, self._tails[partition].position)
                    self._drop(partition)
            self._left_at = {partition: at for partition, at in self._left_at.items() if partition in there}
            for partition, directory in there.items():
                if partition not in self._tails:
                    offset = from_offset.get(partition) if isinstance(from_offset, Mapping) else from_offset
                    self._open(directory, self._left_at.get(partition, offset))
        except BaseException:
            self._is_stale = True
            raise

    def _open(self, directory: PartitionDirectory, offset: int | None) -> None:
        partition = directory.topic_partition
        try:
            tail = self._open_tail(directory, offset)
        except (StorageError, LogReplacedError) as error:
            if isinstance(error, StorageError) and error.errno not in (ENOENT, ENOTDIR):
                raise
            if isinstance(error, StorageError) or _is_gone(error, directory.path):
                self._left_at.pop(partition, None)
            # It is being deleted, or created: the root tells when that is done.
            _logger.info("%s is not followed now: %s", partition, error)
            self._arrivals.remove(directory.path)
            self._is_stale = True
            return
        self._directories[partition] = directory
        self._partition_of[directory.path] = partition
        self._ready[partition] = None
        # Last: one that an interrupt leaves without is opened again.
        self._tails[partition] = tail
        self._left_at.pop(partition, None)

    def _drop(self, partition: TopicPartition) -> None:
        tail = self._tails.pop(partition)
        del self._directories[partition]
        self._arrivals.remove(tail.path)
        self._partition_of.pop(tail.path, None)
        self._ready.pop(partition, None)
        tail.close()


def _is_gone(error: LogReplacedError, directory: str) -> bool:
    """Whether the directory of a log was removed or replaced, and not only changed too often."""
    return error.path == directory and error.found is not None
