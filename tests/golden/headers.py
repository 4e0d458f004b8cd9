"""Batch headers of kstore and of the manifests in one comparable form."""

from __future__ import annotations

from typing import Any

from kstore.record import BatchHeader, RecordBatch
from kstore.types import TimestampType
from tests.golden.manifests import ExpectedBatch

MAGIC_V2 = 2
LOG_APPEND_TIME_BIT = 0x08
CODEC_IDS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
SAME_NAME_FIELDS = (
    "position",
    "size_in_bytes",
    "magic",
    "base_offset",
    "last_offset",
    "crc",
    "base_timestamp_ms",
    "max_timestamp_ms",
    "record_count",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "is_transactional",
    "is_control",
    "partition_leader_epoch",
)

HeaderFields = dict[str, Any]


def _fields(batch: ExpectedBatch | BatchHeader | RecordBatch, **others: object) -> HeaderFields:
    return {name: getattr(batch, name) for name in SAME_NAME_FIELDS} | others


def expected_batch(batch: ExpectedBatch) -> HeaderFields:
    """What a RecordBatch shows; of magic 0 and 1 the manifests leave out what these fields say here."""
    fields = _fields(
        batch,
        codec_id=CODEC_IDS[batch.codec],
        timestamp_type=batch.timestamp_type,
        attributes=batch.attributes,
        delete_horizon_ms=batch.delete_horizon_ms,
    )
    if batch.magic == MAGIC_V2:
        return fields
    fields["attributes"] = CODEC_IDS[batch.codec] | LOG_APPEND_TIME_BIT * (batch.timestamp_type == "LogAppendTime")
    fields["base_timestamp_ms"] = batch.max_timestamp_ms
    if is_wrapper(batch):
        fields["record_count"] = None
    return fields


def expected_header(batch: ExpectedBatch) -> HeaderFields:
    """What the header alone shows: of a wrapper the offset of its last record."""
    return expected_batch(batch) | {"base_offset": batch.last_offset if is_wrapper(batch) else batch.base_offset}


def is_wrapper(batch: ExpectedBatch) -> bool:
    """Tell whether it is a compressed message of magic 0 or 1."""
    return batch.magic < MAGIC_V2 and batch.codec != "none"


def header_of(header: BatchHeader) -> HeaderFields:
    return _fields(
        header,
        codec_id=header.codec,
        timestamp_type=TimestampType(header.timestamp_type).label,
        attributes=header.attributes,
        delete_horizon_ms=header.base_timestamp_ms if header.has_delete_horizon else None,
    )


def batch_fields(batch: RecordBatch) -> HeaderFields:
    """Take the same fields through the properties of a RecordBatch."""
    return _fields(
        batch,
        codec_id=CODEC_IDS[batch.compression.label],
        timestamp_type=batch.timestamp_type.label,
        attributes=batch.header.attributes,
        delete_horizon_ms=batch.delete_horizon_ms,
    )
