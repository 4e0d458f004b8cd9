"""Goal: every offset index and time index entry is read as Kafka's classes read it, and lookups give Kafka's slot.
Method: OffsetIndex and TimeIndex over each index file against the manifest's entries and a linear search."""

from __future__ import annotations

from collections.abc import Callable

from kstore.log.files.indexes import OffsetIndex, TimeIndex
from tests.golden.manifests import ExpectedIndex, manifest
from tests.golden.sets import ALL_SETS, MIXED_SET, V2_SETS, GoldenPartition, golden_partitions
from tests.making.collecting import over

INDEXED_PARTITIONS = golden_partitions(*ALL_SETS)
TIME_INDEXED_PARTITIONS = golden_partitions(*V2_SETS, MIXED_SET)


def base_offset_of(index: ExpectedIndex) -> int:
    return int(index.name.partition(".")[0])


def open_index(
    partition: GoldenPartition, expected: ExpectedIndex, kind: type[OffsetIndex] | type[TimeIndex]
) -> OffsetIndex | TimeIndex:
    path = partition.directory / expected.name
    return kind(path.read_bytes(), base_offset=base_offset_of(expected), path=str(path))


@over("partition", INDEXED_PARTITIONS)
def test_offset_index_entries_are_the_listed_ones(partition: GoldenPartition) -> None:
    for expected in manifest(partition).offset_indexes:
        index = open_index(partition, expected, OffsetIndex)
        assert tuple(index.entries()) == expected.entries, expected.name
        counts = (index.entry_count, index.size_in_bytes)
        assert counts == (len(expected.entries), 8 * len(expected.entries)), expected.name


@over("partition", TIME_INDEXED_PARTITIONS)
def test_time_index_entries_are_the_listed_ones(partition: GoldenPartition) -> None:
    for expected in manifest(partition).time_indexes:
        index = open_index(partition, expected, TimeIndex)
        assert tuple(index.entries()) == expected.entries, expected.name
        counts = (index.entry_count, index.size_in_bytes)
        assert counts == (len(expected.entries), 12 * len(expected.entries)), expected.name


@over("partition", INDEXED_PARTITIONS)
def test_offset_lookup_gives_the_greatest_entry_at_or_below(partition: GoldenPartition) -> None:
    for expected in manifest(partition).offset_indexes:
        index = open_index(partition, expected, OffsetIndex)
        check_lookups(index.lookup, expected, none=(base_offset_of(expected), 0))


@over("partition", TIME_INDEXED_PARTITIONS)
def test_time_lookup_gives_the_greatest_entry_at_or_below(partition: GoldenPartition) -> None:
    for expected in manifest(partition).time_indexes:
        index = open_index(partition, expected, TimeIndex)
        check_lookups(index.lookup, expected, none=(-1, base_offset_of(expected)))


def check_lookups(lookup: Callable[[int], tuple[int, int]], expected: ExpectedIndex, *, none: tuple[int, int]) -> None:
    """Look up each key, its neighbours and the far ends; keys of broker-written indexes increase strictly."""
    keys = {key for key, _ in expected.entries}
    targets = {near for key in keys for near in (key - 1, key, key + 1)} | {base_offset_of(expected), 2**62}
    for target in sorted(targets):
        at_or_below = [entry for entry in expected.entries if entry[0] <= target]
        assert lookup(target) == (at_or_below[-1] if at_or_below else none), (expected.name, target)
