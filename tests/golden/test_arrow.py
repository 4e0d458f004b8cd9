"""Goal: the columnar decoder gives the records that Kafka's classes listed, in every column, copied or as views.
Method: to_arrow_batches and scan over each partition against the manifest, column by column and by canonical hash."""

from __future__ import annotations

import pyarrow as pa
import pytest

import kstore
from kstore import open_log
from kstore.arrow import Binary
from tests.golden.columns import BATCH_COLUMNS, RECORD_COLUMNS, canonical_rows, expected_columns, read_columns
from tests.golden.manifests import CanonicalRecord, canonical_sha256, manifest
from tests.golden.oracle import log_start_offset
from tests.golden.places import column_difference, difference
from tests.golden.probes import INTERNAL_TOPICS
from tests.golden.records import canonical
from tests.golden.sets import (
    EPOCHS_SET,
    MAIN_SETS,
    MIXED_SET,
    OLD_FORMAT_SETS,
    SIGKILL_SET,
    GoldenPartition,
    golden_partitions,
)
from tests.making.collecting import over

LISTED_PARTITIONS = golden_partitions(
    *MAIN_SETS, EPOCHS_SET, SIGKILL_SET, *OLD_FORMAT_SETS, MIXED_SET, trees=("data", "broker1", "before")
)
EVERY_COLUMN = [*RECORD_COLUMNS, *BATCH_COLUMNS]
CANONICAL_COLUMNS = ["offset", "timestamp", "key", "value", "headers"]


@pytest.mark.parametrize("binary", ["copy", "view"])
@over("partition", LISTED_PARTITIONS)
def test_every_column_holds_what_the_manifest_lists(partition: GoldenPartition, binary: Binary) -> None:
    with open_log(partition.directory) as log:
        columns = read_columns(log.to_arrow_batches(columns=EVERY_COLUMN, binary=binary), EVERY_COLUMN)
    expected = expected_columns(partition, EVERY_COLUMN)
    assert columns == expected, column_difference(partition, columns, expected)


def as_row(record: CanonicalRecord) -> CanonicalRecord:
    """The headers as a list, as columns give them."""
    return *record[:-1], list(record[-1])


@pytest.mark.parametrize("binary", ["copy", "view"])
@over("partition", LISTED_PARTITIONS)
def test_columns_hash_as_the_records_that_log_read_gives(partition: GoldenPartition, binary: Binary) -> None:
    """Covers the long values, which the manifest lists by digest only."""
    with open_log(partition.directory) as log:
        rows = list(canonical_rows(log.to_arrow_batches(columns=CANONICAL_COLUMNS, binary=binary)))
        records = [canonical(record) for record in log.read()]
    assert canonical_sha256(rows) == canonical_sha256(records), difference(partition, rows, map(as_row, records))


def newest(*names: str) -> list[GoldenPartition]:
    return [GoldenPartition("main-4.4.0", "data", name) for name in names]


ONE_BY_ONE = newest("basic-snappy-0", "lat-gzip-0", "txn-0", "compact-txndrop-0", "ret-del-0")


@pytest.mark.parametrize("name", EVERY_COLUMN)
@over("partition", ONE_BY_ONE)
def test_one_column_alone_is_the_same_column(partition: GoldenPartition, name: str) -> None:
    with open_log(partition.directory) as log:
        column = read_columns(log.to_arrow_batches(columns=[name]), [name])
    expected = expected_columns(partition, [name])
    assert column == expected, column_difference(partition, column, expected_columns(partition, [name, "offset"]))


@pytest.mark.parametrize("binary", ["copy", "view"])
@over("partition", golden_partitions("main-2.8.2", *OLD_FORMAT_SETS, MIXED_SET))
def test_columns_start_and_end_at_the_asked_offsets(partition: GoldenPartition, binary: Binary) -> None:
    """The thirds of a log lie mostly inside batches."""
    start, end = log_start_offset(partition), manifest(partition).end_offset
    first, last = start + (end - start) // 3, end - (end - start) // 3
    with open_log(partition.directory) as log:
        batches = log.to_arrow_batches(first, last, columns=RECORD_COLUMNS, binary=binary)
        columns = read_columns(batches, RECORD_COLUMNS)
    expected = expected_columns(partition, RECORD_COLUMNS, start_offset=first, end_offset=last)
    assert columns == expected, column_difference(partition, columns, expected)


@over("partition", newest("basic-none-0", "basic-zstd-0", "basic-to-gzip-0", "idem-0", "lat-lz4-0", "txn-0"))
def test_string_columns_show_a_replacement_character_where_bytes_are_not_utf_8(partition: GoldenPartition) -> None:
    names = ["key", "value"]
    with open_log(partition.directory) as log:
        texts = kstore.scan(log.plan(), columns=names, strings=names).to_table()
        found = {name: texts.column(name).to_pylist() for name in names}
        records = list(log.read())
    expected = {
        "key": [None if record.key is None else record.key.decode("utf-8", "replace") for record in records],
        "value": [None if record.value is None else record.value.decode("utf-8", "replace") for record in records],
    }
    offsets = {"offset": [record.offset for record in records]}
    assert found == expected, column_difference(partition, found | offsets, expected | offsets)


@pytest.mark.parametrize("set_name", [*MAIN_SETS, *OLD_FORMAT_SETS, MIXED_SET])
def test_scan_of_a_root_gives_every_partition_but_internal_ones(set_name: str) -> None:
    partitions = [found for found in golden_partitions(set_name) if found.topic not in INTERNAL_TOPICS]
    table = pa.table(kstore.scan(partitions[0].root, columns=["topic", "partition", "offset"]))
    found: dict[str, list[int]] = {}
    for row in table.to_pylist():
        found.setdefault(f"{row['topic']}-{row['partition']}", []).append(row["offset"])
    expected = {partition.name: expected_columns(partition, ["offset"])["offset"] for partition in partitions}
    assert found == {name: offsets for name, offsets in expected.items() if offsets}
