"""Which objects of a tier are segments: the names of its layouts, and what one listing finds.

A tier is looked through at any depth, so that a prefix, or several, make no difference.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from kstore.env import ENOENT, Env, join_path, split_path
from kstore.errors import LogNotFoundError, StorageError
from kstore.log.files.names import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from kstore.log.files.root_files import id_text, parse_id
from kstore.tier.keys import KeyRing
from kstore.tier.objects import INDEXES_SUFFIX, MANIFEST_SUFFIX, SegmentPlace
from kstore.types import MAX_OFFSET, TopicPartition, parse_partition_directory_name

# The digits are those of the locale of the broker's JVM.
_OBJECT = re.compile(r"(\d{20})-([A-Za-z0-9_-]{22})(\.[a-z_.-]+)")
_TOPIC_DIRECTORY = re.compile(r"(.+)-([A-Za-z0-9_-]{22})")
_NUMBER = re.compile(r"\d{1,10}")
_ICEBERG_MANIFEST = re.compile(r"([A-Za-z0-9_-]{22})\.puffin")
_MOST_LEVELS = 32
_LOCAL_EPOCHS_SUFFIX = ".leader_epoch_checkpoint"
_AIVEN_EPOCHS_SUFFIX = ".leader-epoch-checkpoint"


class Layout(Enum):
    """How a RemoteStorageManager names the objects of a segment."""

    AIVEN = "aiven"
    LOCAL = "local"


# The suffix of the object of each side file where it has one of its own; Aiven's: before October 2023.
_OBJECT_SUFFIXES = {
    layout: {
        OFFSET_INDEX_SUFFIX: OFFSET_INDEX_SUFFIX,
        TIME_INDEX_SUFFIX: TIME_INDEX_SUFFIX,
        TRANSACTION_INDEX_SUFFIX: TRANSACTION_INDEX_SUFFIX,
        PRODUCER_SNAPSHOT_SUFFIX: PRODUCER_SNAPSHOT_SUFFIX,
        LEADER_EPOCH_CHECKPOINT: epochs,
    }
    for layout, epochs in ((Layout.AIVEN, _AIVEN_EPOCHS_SUFFIX), (Layout.LOCAL, _LOCAL_EPOCHS_SUFFIX))
}
# Without these an upload has not finished: each is written last.
_LAST_WRITTEN = {Layout.AIVEN: MANIFEST_SUFFIX, Layout.LOCAL: PRODUCER_SNAPSHOT_SUFFIX}


class TieredPartition(NamedTuple):
    """A partition in a tier: by the id of its topic, since a name may have belonged to several."""

    topic_id: uuid.UUID
    partition: int


class StoredSegment(NamedTuple):
    """The objects of one segment. stem: their path without a suffix; suffixes: those that are there."""

    layout: Layout
    start_offset: int
    segment_id: str
    stem: str
    suffixes: frozenset[str]

    @property
    def is_finished(self) -> bool:
        """Whether all objects were written, as far as names tell."""
        return {LOG_SUFFIX, _LAST_WRITTEN[self.layout]} <= self.suffixes

    def place(self, keys: KeyRing) -> SegmentPlace:
        """Return where the segment's bytes are."""
        return SegmentPlace(self.stem, self.segment_id, self.layout is Layout.AIVEN, keys)

    def object_suffix(self, suffix: str) -> str:
        """Return the suffix of the object of a side file, if it has one of its own."""
        return _OBJECT_SUFFIXES[self.layout][suffix]

    def has_side_file(self, suffix: str) -> bool:
        """Whether there is, or may be, a side file, as far as names tell."""
        return INDEXES_SUFFIX in self.suffixes or self.object_suffix(suffix) in self.suffixes


class TierListing:
    """The segments of a tier, by partition.

    Attributes: topics (the name of each topic id, as in the names of directories); iceberg_ids (the ids of segments
        that were written as Iceberg tables, as far as their manifests are in the tier).
    Threads: immutable.
    """

    def __init__(
        self,
        segments: Mapping[TieredPartition, list[StoredSegment]],
        topics: Mapping[uuid.UUID, str],
        iceberg_ids: frozenset[str],
        *,
        other_names: tuple[str, ...],
    ) -> None:
        self._segments = segments
        self.topics = topics
        self.iceberg_ids = iceberg_ids
        self.other_names = other_names

    def __bool__(self) -> bool:
        return bool(self._segments)

    @property
    def partitions(self) -> list[TieredPartition]:
        """The partitions with objects, in no order."""
        return list(self._segments)

    def of(self, partition: TieredPartition) -> list[StoredSegment]:
        """Return the segments of a partition, finished or not, by start offset."""
        return self._segments.get(partition, [])

    def directories_of(self, partition: TieredPartition) -> set[str]:
        """Return where the objects of a partition are."""
        return {split_path(found.stem)[0] for found in self.of(partition)}

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of the partitions, as those of directories."""
        return frozenset(map(str, self.by_name))

    def relisted(self, partition: TieredPartition, topic: str, env: Env) -> TierListing:
        """Return this listing with the objects that one partition has now, below the prefixes that are known.

        Cost: a request for each prefix.
        """
        segments = {other: found for other, found in self._segments.items() if other != partition}
        topics = dict(self.topics)
        named = topics.get(partition.topic_id, topic)
        for layout, above in sorted(self._prefixes(), key=str):
            directory = join_path(above, _directory_name(layout, named, partition))
            env.invalidate_listing(directory)
            if env.is_directory(directory):
                listing = list_tier(env, directory)
                segments.setdefault(partition, []).extend(listing.of(partition))
                topics.update(listing.topics)
        if partition in segments:
            segments[partition].sort(key=_start)
        return TierListing(segments, topics, self.iceberg_ids, other_names=self.other_names)

    def _prefixes(self) -> set[tuple[Layout, str]]:
        """Return where the directories of topics are."""
        return {
            (found.layout, parent)
            for segments in self._segments.values()
            for found in segments
            for parent in (_above(found.layout, split_path(found.stem)[0]),)
        }

    @cached_property
    def by_name(self) -> Mapping[TopicPartition, list[TieredPartition]]:
        """The partitions by name; several if a topic was created again."""
        names: dict[TopicPartition, list[TieredPartition]] = {}
        for partition in self._segments:
            name = TopicPartition(self.topics[partition.topic_id], partition.partition)
            names.setdefault(name, []).append(partition)
        return names


def list_directories(env: Env, directories: Iterable[str], iceberg_ids: frozenset[str]) -> TierListing:
    """Return the segments in directories that were found before; of one that is gone none.

    Args: iceberg_ids: as of TierListing, which other directories have.
    Raises: StorageError.  Cost: one listing for each.
    """
    segments: dict[TieredPartition, list[StoredSegment]] = {}
    topics: dict[uuid.UUID, str] = {}
    for directory in directories:
        if env.is_directory(directory):
            listing = list_tier(env, directory)
            topics.update(listing.topics)
            for partition in listing.partitions:
                segments.setdefault(partition, []).extend(listing.of(partition))
    for found in segments.values():
        found.sort(key=_start)
    return TierListing(segments, topics, iceberg_ids, other_names=())


def list_tier(env: Env, path: str) -> TierListing:
    """Return the segments below a path of a tier.

    Raises: LogNotFoundError if nothing is there; StorageError.
    Cost: one recursive listing of a store, or one listing for each local directory.
    """
    segments: dict[TieredPartition, list[StoredSegment]] = {}
    topics: dict[uuid.UUID, str] = {}
    iceberg_ids, others = set(), []
    try:
        for directory, objects, names in _directories(env, path, levels=_MOST_LEVELS):
            place = _partition_of(directory) if objects else None
            if place is not None:
                layout, topic, partition = place
                topics[partition.topic_id] = topic
                segments.setdefault(partition, []).extend(_stored(layout, directory, objects))
            else:
                names += [match[0] for match in objects]
            for name in names:
                iceberg = _ICEBERG_MANIFEST.fullmatch(name)
                if iceberg is None:
                    others.append(join_path(directory, name))
                else:
                    iceberg_ids.add(iceberg[1])
    except StorageError as error:
        if error.errno != ENOENT:
            raise
        raise LogNotFoundError(f"there is no tier at {path}: nothing is there", path=path, errno=ENOENT) from error
    for found in segments.values():
        found.sort(key=_start)
    return TierListing(segments, topics, frozenset(iceberg_ids), other_names=tuple(others))


def _directories(env: Env, path: str, *, levels: int) -> Iterator[tuple[str, list[re.Match[str]], list[str]]]:
    """Yield a directory and all below it, each with its names of objects of segments, and with what else is in it."""
    objects: list[re.Match[str]] = []
    others, inner = [], []
    for name in env.listdir(path):
        match = _OBJECT.fullmatch(name)
        if match is not None and int(match[1]) < MAX_OFFSET:
            objects.append(match)
        elif match is None and env.is_directory(below := join_path(path, name)):
            inner.append(below)
        else:
            others.append(name)
    yield path, objects, others
    for below in inner if levels else ():
        yield from _directories(env, below, levels=levels - 1)


def _stored(layout: Layout, directory: str, objects: Iterable[re.Match[str]]) -> Iterator[StoredSegment]:
    """Yield the segments that the names of objects in one directory are of."""
    suffixes: dict[tuple[str, str], set[str]] = {}
    for match in objects:
        suffixes.setdefault((match[1], match[2]), set()).add(match[3])
    for (start, segment_id), found in suffixes.items():
        stem = join_path(directory, f"{start}-{segment_id}")
        yield StoredSegment(layout, int(start), segment_id, stem, frozenset(found))


def _partition_of(directory: str) -> tuple[Layout, str, TieredPartition] | None:
    """Return the partition whose segments a directory has by its name, None if it names none."""
    above, name = split_path(directory)
    if _NUMBER.fullmatch(name) is not None:
        topic = _topic_of(split_path(above)[1])
        return None if topic is None else (Layout.AIVEN, topic[0], TieredPartition(topic[1], int(name)))
    named = _topic_of(name)
    if named is None:
        return None
    partition = parse_partition_directory_name(named[0])
    return (
        None if partition is None else (Layout.LOCAL, partition.topic, TieredPartition(named[1], partition.partition))
    )


def _directory_name(layout: Layout, topic: str, partition: TieredPartition) -> str:
    """Return the path of a partition's objects below a prefix."""
    topic_id, number = id_text(partition.topic_id), partition.partition
    return f"{topic}-{topic_id}/{number}" if layout is Layout.AIVEN else f"{topic}-{number}-{topic_id}"


def _above(layout: Layout, directory: str) -> str:
    """Return the prefix of a partition's objects."""
    parent = split_path(directory)[0]
    return split_path(parent)[0] if layout is Layout.AIVEN else parent


def _start(segment: StoredSegment) -> int:
    return segment.start_offset


def _topic_of(name: str) -> tuple[str, uuid.UUID] | None:
    match = _TOPIC_DIRECTORY.fullmatch(name)
    if match is None:
        return None
    try:
        return match[1], parse_id(match[2])
    except ValueError:
        return None
