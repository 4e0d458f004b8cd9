"""Goal: the ranges that plan() cuts cover every record once, whatever their size and whatever the indexes say.
Method: read the ranges of each plan one by one and compare the union with the manifest's records and batches."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kstore import open_log
from kstore.arrow import record_batches
from kstore.config import LogConfig
from kstore.log.plan import ScanRange
from tests.golden.columns import data_records
from tests.golden.damage import DAMAGES, copy_partition
from tests.golden.manifests import manifest
from tests.golden.oracle import log_start_offset
from tests.golden.places import difference
from tests.golden.sets import EPOCHS_SET, MIXED_SET, OLD_FORMAT_SETS, REALDATA_SET, GoldenPartition, golden_partitions
from tests.making.collecting import over

MIB = 1024 * 1024
PLANNED_PARTITIONS = golden_partitions(
    "main-1.1.1", "main-4.4.0", EPOCHS_SET, *OLD_FORMAT_SETS, MIXED_SET, trees=("data", "broker2-leading")
)
DAMAGED_PARTITIONS = [
    GoldenPartition("main-4.4.0", "data", name)
    for name in ("basic-none-0", "basic-zstd-0", "idx-every-0", "compact-keep-0", "txn-0", "ret-del-0")
]
SIZES = [
    pytest.param(1, id="one-byte"),
    pytest.param(700, id="700-bytes"),
    pytest.param(5_000, id="5000-bytes"),
    pytest.param(40_000, id="more-than-a-segment"),
    pytest.param(128 * MIB, id="128-mib"),
]


def offsets_in(ranges: Sequence[ScanRange]) -> list[int]:
    """Read each range on its own and return the offsets in the order of the ranges."""
    offsets: list[int] = []
    for scan_range in ranges:
        for batch in record_batches([scan_range], columns=["offset"], config=LogConfig()):
            offsets.extend(batch.column("offset").to_pylist())
    return offsets


def data_offsets(partition: GoldenPartition, *, start_offset: int, end_offset: int) -> list[int]:
    return [record.offset for _, record in data_records(partition, start_offset=start_offset, end_offset=end_offset)]


@pytest.mark.parametrize("max_bytes", SIZES)
@over("partition", PLANNED_PARTITIONS)
def test_ranges_read_separately_give_every_record_once(partition: GoldenPartition, max_bytes: int) -> None:
    start, end = log_start_offset(partition), manifest(partition).end_offset
    third = (end - start) // 3
    bounds = {(start, end), (start + third, end - third), (start, min(start + 1, end)), (max(start, end - 1), end)}
    with open_log(partition.directory) as log:
        assert_offsets(partition, log.plan(max_bytes=max_bytes), start_offset=start, end_offset=end)
        for first, last in sorted(bounds):
            ranges = log.plan(max_bytes=max_bytes, start_offset=first, end_offset=last)
            assert_offsets(partition, ranges, start_offset=first, end_offset=last)


def assert_offsets(
    partition: GoldenPartition, ranges: Sequence[ScanRange], *, start_offset: int, end_offset: int
) -> None:
    found = offsets_in(ranges)
    expected = data_offsets(partition, start_offset=start_offset, end_offset=end_offset)
    assert found == expected, (start_offset, end_offset, difference(partition, found, expected))


@pytest.mark.parametrize("max_bytes", SIZES)
@over("partition", PLANNED_PARTITIONS)
def test_ranges_begin_and_end_at_batches_and_do_not_overlap(partition: GoldenPartition, max_bytes: int) -> None:
    start = log_start_offset(partition)
    listed = {
        str(partition.directory / log.name): [
            (batch.position, batch.position + batch.size_in_bytes)
            for batch in log.batches
            if batch.last_offset >= start
        ]
        for log in manifest(partition).logs
    }
    with open_log(partition.directory) as log:
        ranges = log.plan(max_bytes=max_bytes)
    covered: dict[str, list[tuple[int, int]]] = {path: [] for path in listed}
    for scan_range in ranges:
        assert (scan_range.topic, scan_range.partition) == (partition.topic, partition.partition)
        assert scan_range.size_in_bytes == sum(file.end_position - file.start_position for file in scan_range.files)
        for file in scan_range.files:
            covered[file.path].append((file.start_position, file.end_position))
    for path, batches in listed.items():
        starts = [first for first, _ in batches]
        ends = [last for _, last in batches]
        assert {first for first, _ in covered[path]} <= set(starts), path
        assert {last for _, last in covered[path]} <= set(ends), path
        cuts = [place for piece in covered[path] for place in piece]
        assert cuts[1:-1:2] == cuts[2::2], path
        assert (cuts[:1], cuts[-1:]) == (starts[:1], ends[-1:]), path


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@over("partition", DAMAGED_PARTITIONS)
def test_ranges_cover_every_record_once_with_damaged_indexes(
    partition: GoldenPartition, damage: Callable[[Path], None], tmp_path: Path
) -> None:
    directory = copy_partition(partition, tmp_path / "root")
    damage(directory)
    start, end = log_start_offset(partition), manifest(partition).end_offset
    with open_log(directory) as log:
        for max_bytes in (1, 700, 5_000):
            assert_offsets(partition, log.plan(max_bytes=max_bytes), start_offset=start, end_offset=end)


@pytest.mark.parametrize("max_bytes", [10_000, 300_000, 128 * MIB], ids=["10-kb", "300-kb", "128-mib"])
@over("partition", golden_partitions(REALDATA_SET))
def test_realdata_ranges_give_every_offset_once(partition: GoldenPartition, max_bytes: int) -> None:
    with open_log(partition.directory) as log:
        ranges = log.plan(max_bytes=max_bytes)
        found, expected = offsets_in(ranges), list(range(log.log_end_offset))
        assert found == expected, difference(partition, found, expected)
    assert (len(ranges) > 1) == (max_bytes < MIB)


def test_ranges_survive_pickling_and_are_read_without_the_log() -> None:
    partition = GoldenPartition(REALDATA_SET, "data", "flights-none-0")
    with open_log(partition.directory) as log:
        ranges = log.plan(max_bytes=300_000)
        end = log.log_end_offset
    copies = pickle.loads(pickle.dumps(ranges))
    assert copies == ranges
    assert offsets_in(copies) == list(range(end))
