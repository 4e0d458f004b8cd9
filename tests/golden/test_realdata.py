"""Goal: 146,000 records of real data come out byte for byte, as Records and as columns, on one thread and on two.
Method: canonical hash of each batch's records against the manifest of the realdata set."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest

import kstore
from kstore import open_log
from kstore.arrow import Binary
from tests.golden.columns import canonical_rows
from tests.golden.manifests import CanonicalRecord, canonical_sha256, manifest
from tests.golden.places import place_of
from tests.golden.records import canonical
from tests.golden.sets import REALDATA_SET, GoldenPartition, golden_partitions
from tests.making.collecting import over

REALDATA_PARTITIONS = golden_partitions(REALDATA_SET)
CANONICAL_COLUMNS = ["offset", "timestamp", "key", "value", "headers"]


def check_batch_hashes(partition: GoldenPartition, records: Iterator[CanonicalRecord]) -> None:
    for batch in manifest(partition).batches():
        found = list(islice(records, batch.record_count))
        place = place_of(partition, batch.base_offset)
        assert [record[0] for record in found] == list(range(batch.base_offset, batch.last_offset + 1)), place
        assert canonical_sha256(found) == batch.records_sha256, place
    assert next(records, None) is None


@pytest.mark.parametrize("binary", ["copy", "view"])
@over("partition", REALDATA_PARTITIONS)
def test_columns_of_each_batch_have_the_listed_hash(partition: GoldenPartition, binary: Binary) -> None:
    with open_log(partition.directory) as log:
        batches = log.to_arrow_batches(columns=CANONICAL_COLUMNS, binary=binary)
        check_batch_hashes(partition, canonical_rows(batches))


@pytest.mark.parametrize("batch_bytes", [20_000, 300_000], ids=["20-kb-batches", "300-kb-batches"])
@over("partition", REALDATA_PARTITIONS[::3])
def test_two_threads_over_many_ranges_keep_the_order(partition: GoldenPartition, batch_bytes: int) -> None:
    with open_log(partition.directory) as log:
        ranges = log.plan(max_bytes=300_000)
    assert len(ranges) > 2
    scan = kstore.scan(ranges, columns=CANONICAL_COLUMNS, threads=2, batch_bytes=batch_bytes)
    check_batch_hashes(partition, canonical_rows(scan))


@over("partition", REALDATA_PARTITIONS)
def test_records_of_each_batch_have_the_listed_hash(partition: GoldenPartition) -> None:
    with open_log(partition.directory) as log:
        check_batch_hashes(partition, (canonical(record) for record in log.read()))


def test_the_set_holds_146_000_records() -> None:
    batches = (batch for partition in REALDATA_PARTITIONS for batch in manifest(partition).batches())
    assert sum(batch.record_count for batch in batches) == 146_000
