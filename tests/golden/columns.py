"""Arrow batches of kstore as plain lists, one per column, and the lists that the manifests ask for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from tests.golden.manifests import CanonicalRecord, ExpectedBatch, ExpectedRecord, digest_if_long, manifest
from tests.golden.oracle import log_start_offset
from tests.golden.sets import GoldenPartition

RECORD_COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
BATCH_COLUMNS = [
    "magic",
    "codec",
    "leaderEpoch",
    "producerId",
    "producerEpoch",
    "sequence",
    "isTransactional",
    "isControl",
    "position",
]
TIMESTAMP_TYPE_IDS = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}

Columns = dict[str, list[Any]]


def read_columns(batches: Iterable[pa.RecordBatch], names: list[str]) -> Columns:
    """Concatenate the batches; timestamps become integers (microseconds), long keys and values digests."""
    columns: Columns = {name: [] for name in names}
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema.names == names
        for name in names:
            column = batch.column(name)
            values = column.cast(pa.int64()).to_pylist() if name == "timestamp" else column.to_pylist()
            if name in ("key", "value"):
                values = [digest_if_long(data) for data in values]
            columns[name].extend(values)
    return columns


def data_records(
    partition: GoldenPartition, *, start_offset: int | None = None, end_offset: int | None = None
) -> Iterator[tuple[ExpectedBatch, ExpectedRecord]]:
    """Yield the listed records of [start_offset, end_offset) with their batches, control records left out."""
    start = log_start_offset(partition) if start_offset is None else start_offset
    for batch in manifest(partition).batches():
        for record in batch.records or ():
            is_inside = start <= record.offset and (end_offset is None or record.offset < end_offset)
            if is_inside and record.control_type is None:
                yield batch, record


def expected_columns(
    partition: GoldenPartition, names: list[str], *, start_offset: int | None = None, end_offset: int | None = None
) -> Columns:
    columns: Columns = {name: [] for name in names}
    for batch, record in data_records(partition, start_offset=start_offset, end_offset=end_offset):
        row = _row(partition, batch, record)
        for name in names:
            columns[name].append(row[name])
    return columns


def _row(partition: GoldenPartition, batch: ExpectedBatch, record: ExpectedRecord) -> dict[str, Any]:
    headers = [{"key": key.decode("utf-8", "replace"), "value": value} for key, value in record.headers]
    return {
        "key": record.key,
        "value": record.value,
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": record.offset,
        "timestamp": None if record.timestamp_ms == -1 else 1000 * record.timestamp_ms,
        "timestampType": TIMESTAMP_TYPE_IDS[batch.timestamp_type],
        "headers": headers or None,
        "magic": batch.magic,
        "codec": batch.codec,
        "leaderEpoch": batch.partition_leader_epoch,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "sequence": record.sequence,
        "isTransactional": batch.is_transactional,
        "isControl": batch.is_control,
        "position": batch.position,
    }


def canonical_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[CanonicalRecord]:
    """Yield the rows of batches with offset, timestamp, key, value and headers in the canonical form's order."""
    for batch in batches:
        timestamps = batch.column("timestamp").cast(pa.int64()).to_pylist()
        columns = [batch.column(name).to_pylist() for name in ("offset", "key", "value", "headers")]
        for timestamp_us, offset, key, value, headers in zip(timestamps, *columns, strict=True):
            pairs = [(header["key"].encode(), header["value"]) for header in headers or ()]
            yield offset, -1 if timestamp_us is None else timestamp_us // 1000, key, value, pairs
