"""Goal: the columnar decoder gives the records that Kafka's classes listed, in every column, copied or as views.
Method: to_arrow_batches and scan over each partition against the manifest, column by column and by canonical hash."""

from __future__ import annotations

import pyarrow as pa
import pytest

import kstore
from kstore import open_log
from kstore.arrow import Binary
from tests.golden.columns import BATCH_COLUMNS, RECORD_COLUMNS, canonical_rows, expected_columns, read_columns
from tests.golden.manifests import canonical_sha256
from tests.golden.probes import INTERNAL_TOPICS
from tests.golden.records import canonical
from tests.golden.sets import EPOCHS_SET, MAIN_SETS, SIGKILL_SET, GoldenPartition, golden_partitions

LISTED_PARTITIONS = golden_partitions(*MAIN_SETS, EPOCHS_SET, SIGKILL_SET, trees=("data", "broker1", "before"))
EVERY_COLUMN = [*RECORD_COLUMNS, *BATCH_COLUMNS]
CANONICAL_COLUMNS = ["offset", "timestamp", "key", "value", "headers"]


@pytest.mark.parametrize("binary", ["copy", "view"])
@pytest.mark.parametrize("partition", LISTED_PARTITIONS, ids=str)
def test_every_column_holds_what_the_manifest_lists(partition: GoldenPartition, binary: Binary) -> None:
    with open_log(partition.directory) as log:
        columns = read_columns(log.to_arrow_batches(columns=EVERY_COLUMN, binary=binary), EVERY_COLUMN)
    assert columns == expected_columns(partition, EVERY_COLUMN)


@pytest.mark.parametrize("binary", ["copy", "view"])
@pytest.mark.parametrize("partition", LISTED_PARTITIONS, ids=str)
def test_columns_hash_as_the_records_that_log_read_gives(partition: GoldenPartition, binary: Binary) -> None:
    """Covers the long values, which the manifest lists by digest only."""
    with open_log(partition.directory) as log:
        batches = log.to_arrow_batches(columns=CANONICAL_COLUMNS, binary=binary)
        from_columns = canonical_sha256(canonical_rows(batches))
        assert from_columns == canonical_sha256(canonical(record) for record in log.read())


@pytest.mark.parametrize("name", EVERY_COLUMN)
@pytest.mark.parametrize("topic", ["basic-snappy-0", "lat-gzip-0", "txn-0", "compact-txndrop-0", "ret-del-0"])
def test_one_column_alone_is_the_same_column(topic: str, name: str) -> None:
    partition = GoldenPartition("main-4.4.0", "data", topic)
    with open_log(partition.directory) as log:
        assert read_columns(log.to_arrow_batches(columns=[name]), [name]) == expected_columns(partition, [name])


@pytest.mark.parametrize("set_name", MAIN_SETS)
def test_scan_of_a_root_gives_every_partition_but_internal_ones(set_name: str) -> None:
    partitions = [found for found in golden_partitions(set_name) if found.topic not in INTERNAL_TOPICS]
    table = pa.table(kstore.scan(partitions[0].root, columns=["topic", "partition", "offset"]))
    found: dict[str, list[int]] = {}
    for row in table.to_pylist():
        found.setdefault(f"{row['topic']}-{row['partition']}", []).append(row["offset"])
    expected = {partition.name: expected_columns(partition, ["offset"])["offset"] for partition in partitions}
    assert found == {name: offsets for name, offsets in expected.items() if offsets}
