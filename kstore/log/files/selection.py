"""The part of a root that a scan or an export covers: topics, partitions, bounds of offsets and of time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kstore.env import Env, StrPath
from kstore.errors import checked_int
from kstore.log.files.names import PartitionDirectory, find_partitions
from kstore.types import INTERNAL_TOPICS, TopicPartition

# A bound of offsets: one for all partitions, or one for each.
Offsets: TypeAlias = int | Mapping[TopicPartition, int]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Topics, partitions and bounds of offsets; None for all, or for no bound."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    start: Offsets | None = None
    end: Offsets | None = None

    def __post_init__(self) -> None:
        if isinstance(self.start, int) and isinstance(self.end, int) and self.start > self.end:
            raise ValueError(f"end_offset must not be below start_offset {self.start}, got {self.end}")

    @classmethod
    def of(
        cls,
        *,
        topics: Iterable[str] | None,
        partitions: Iterable[int] | int | None,
        start_offset: Offsets | None,
        end_offset: Offsets | None,
    ) -> Selection:
        """Return the selection of these arguments of a scan.

        Raises: ValueError, TypeError.
        """
        return cls(
            topics=None if topics is None else frozenset([topics] if isinstance(topics, str) else topics),
            partitions=_numbers_of(partitions),
            start=_offset_bound("start_offset", start_offset),
            end=_offset_bound("end_offset", end_offset),
        )

    def find(self, paths: StrPath | Iterable[StrPath], env: Env | None = None) -> list[PartitionDirectory]:
        """Return the partitions to read of those at one or several paths; no other directory is looked into.

        Raises: as find_partitions and select.
        """

        def is_wanted(topic_partition: TopicPartition) -> bool:
            topic, number = topic_partition
            return (self.topics is None or topic in self.topics) and (
                self.partitions is None or number in self.partitions
            )

        return self.select(find_partitions(paths, env, is_wanted=is_wanted))

    def select(self, directories: Sequence[PartitionDirectory]) -> list[PartitionDirectory]:
        """Return the partitions to read. Internal topics are left out unless they are named, or there is only one
        partition.

        Raises: ValueError if one that is named is not among them.
        """
        topics, numbers = self.topics, self.partitions
        if topics is not None and (missing := topics - {directory.topic_partition.topic for directory in directories}):
            raise ValueError(f"topics not found: {', '.join(sorted(missing))}")
        selected = [
            directory
            for directory in directories
            for topic, number in (directory.topic_partition,)
            if (topic in topics if topics is not None else topic not in INTERNAL_TOPICS or len(directories) == 1)
            and (numbers is None or number in numbers)
        ]
        found_here = {directory.topic_partition for directory in selected}
        if numbers is not None and (gone := numbers - {number for _, number in found_here}):
            raise ValueError(f"partitions not found: {', '.join(map(str, sorted(gone)))}")
        for name, bound in (("start_offset", self.start), ("end_offset", self.end)):
            if isinstance(bound, Mapping) and (others := set(bound) - found_here):
                raise ValueError(f"{name} names partitions that are not scanned: {', '.join(sorted(map(str, others)))}")
        return selected

    def bounds_of(self, topic_partition: TopicPartition) -> tuple[int | None, int | None]:
        """Return the bounds of one partition, None for no bound."""
        return _bound_of(self.start, topic_partition), _bound_of(self.end, topic_partition)


def _offset_bound(name: str, bound: Offsets | None) -> Offsets | None:
    if isinstance(bound, Mapping):
        return {TopicPartition(*place): checked_int(f"{name} of {place}", bound[place], least=0) for place in bound}
    return None if bound is None else checked_int(name, bound, least=0)


def _bound_of(bound: Offsets | None, topic_partition: TopicPartition) -> int | None:
    return bound.get(topic_partition) if isinstance(bound, Mapping) else bound


def _numbers_of(partitions: Iterable[int] | int | None) -> frozenset[int] | None:
    if partitions is None:
        return None
    numbers = partitions if isinstance(partitions, Iterable) else (partitions,)
    return frozenset(checked_int("partitions", number, least=0) for number in numbers)
