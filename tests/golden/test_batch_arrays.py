"""Goal: segments of brokers as values of an Arrow array hold the records that Kafka's classes read in them.
Method: every partition of the newest main set, a value per segment, against its manifest field by field."""

from __future__ import annotations

import pyarrow as pa

from kstore.spark.udfs import batch_arrays
from tests.golden.manifests import digest_if_long, manifest
from tests.golden.places import difference
from tests.golden.sets import MAIN_SETS, golden_partitions
from tests.making.collecting import over

FIELDS = ("key", "value", "offset", "timestamp", "sequence", "headers")


def as_row(record):
    headers = [{"key": key.decode("utf-8", "replace"), "value": value} for key, value in record.headers] or None
    return (record.key, record.value, record.offset, record.timestamp_ms, record.sequence, headers)


def from_offset(row):
    """The row after its offset."""
    return (row[FIELDS.index("offset")], *row)


@over("partition", golden_partitions(MAIN_SETS[-1]))
def test_segment_as_a_value_holds_the_records_of_the_manifest(partition):
    logs = manifest(partition).logs
    values = [(partition.directory / log.name).read_bytes()[: log.valid_bytes] for log in logs]
    lists = batch_arrays.unpack(pa.array(values, pa.binary()), FIELDS, is_permissive=False)
    for log, rows in zip(logs, lists, strict=True):
        columns = {name: rows.values.field(name) for name in FIELDS}
        columns["timestamp"] = pa.array(columns["timestamp"].cast(pa.int64()).to_numpy() // 1000)
        listed = {name: column.to_pylist() for name, column in columns.items()}
        for name in ("key", "value"):
            listed[name] = list(map(digest_if_long, listed[name]))
        records = [record for batch in log.batches for record in batch.records if record.control_type is None]
        found, expected = list(zip(*listed.values(), strict=True)), list(map(as_row, records))
        assert found == expected, difference(partition, map(from_offset, found), map(from_offset, expected))


def test_info_of_a_segment_is_that_of_its_first_batch():
    checked = 0
    for partition in golden_partitions(MAIN_SETS[-1]):
        for log in (log for log in manifest(partition).logs if log.batches):
            value = (partition.directory / log.name).read_bytes()[: log.valid_bytes]
            (info,) = batch_arrays.info(pa.array([value]), is_permissive=False).to_pylist()
            first = log.batches[0]
            assert info["batches"] == len(log.batches)
            assert (info["baseOffset"], info["lastOffset"], info["crc"], info["count"], info["codec"]) == (
                first.base_offset,
                first.last_offset,
                first.crc,
                first.record_count,
                first.codec,
            )
            checked += 1
    assert checked
