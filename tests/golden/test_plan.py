"""Goal: the ranges that plan() cuts cover every record once, whatever their size and whatever the indexes say.
Method: read the ranges of each plan one by one and compare the union with the manifest's records and batches."""

from __future__ import annotations

import pytest
from kstore.arrow import record_batches

from kstore import open_log
from kstore.config import LogConfig
from kstore.log import ScanRange
from tests.golden.manifests import manifest
from tests.golden.oracle import log_start_offset
from tests.golden.sets import GoldenPartition, golden_partitions

MIB = 1024 * 1024
PLANNED_PARTITIONS = golden_partitions("main-1.1.1", "main-4.4.0", "epochs-4.4.0")
SIZES = [
    pytest.param(1, id="one-byte"),
    pytest.param(700, id="700-bytes"),
    pytest.param(5_000, id="5000-bytes"),
    pytest.param(40_000, id="more-than-a-segment"),
    pytest.param(128 * MIB, id="128-mib"),
]


def offsets_in(ranges: list[ScanRange]) -> list[int]:
    """Read each range on its own and return the offsets in the order of the ranges."""
    offsets: list[int] = []
    for scan_range in ranges:
        for batch in record_batches([scan_range], columns=["offset"], config=LogConfig()):
            offsets.extend(batch.column("offset").to_pylist())
    return offsets


def data_offsets(partition: GoldenPartition, *, start_offset: int, end_offset: int) -> list[int]:
    return [
        record.offset
        for record in manifest(partition).records()
        if start_offset <= record.offset < end_offset and record.control_type is None
    ]


@pytest.mark.parametrize("max_bytes", SIZES)
@pytest.mark.parametrize("partition", PLANNED_PARTITIONS, ids=str)
def test_ranges_read_separately_give_every_record_once(partition: GoldenPartition, max_bytes: int) -> None:
    start, end = log_start_offset(partition), manifest(partition).end_offset
    third = (end - start) // 3
    with open_log(partition.directory) as log:
        assert offsets_in(log.plan(max_bytes=max_bytes)) == data_offsets(partition, start_offset=start, end_offset=end)
        for first, last in [(start + third, end - third), (start, start + 1), (end - 1, end), (end, end)]:
            if start <= first <= last:
                ranges = log.plan(max_bytes=max_bytes, start_offset=first, end_offset=last)
                expected = data_offsets(partition, start_offset=first, end_offset=last)
                assert offsets_in(ranges) == expected, (first, last)
