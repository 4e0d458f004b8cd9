"""Batch headers of kstore and of the manifests in one comparable form."""

from __future__ import annotations

from typing import Any

from kstore.record import BatchHeader, RecordBatch
from kstore.types import TimestampType
from tests.golden.manifests import ExpectedBatch

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


def expected_header(batch: ExpectedBatch) -> HeaderFields:
    return _fields(
        batch,
        codec_id=CODEC_IDS[batch.codec],
        timestamp_type=batch.timestamp_type,
        attributes=batch.attributes,
        delete_horizon_ms=batch.delete_horizon_ms,
    )


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
