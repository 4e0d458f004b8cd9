"""Batch headers of kstore and of the manifests in one comparable form."""

from __future__ import annotations

from typing import Any

from golden_manifests import ExpectedBatch

from kstore.types import TimestampType

CODEC_IDS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def header_of(batch: Any) -> dict[str, Any]:
    """Take from a BatchHeader or RecordBatch what a manifest lists of a batch."""
    return {
        "position": batch.position,
        "size_in_bytes": batch.size_in_bytes,
        "magic": batch.magic,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "crc": batch.crc,
        "codec": int(batch.codec),
        "timestamp_type": TimestampType(batch.timestamp_type).label,
        "base_timestamp_ms": batch.base_timestamp_ms,
        "max_timestamp_ms": batch.max_timestamp_ms,
        "record_count": batch.record_count,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "is_transactional": batch.is_transactional,
        "is_control": batch.is_control,
        "partition_leader_epoch": batch.partition_leader_epoch,
        "attributes": batch.attributes,
        "delete_horizon_ms": batch.base_timestamp_ms if batch.has_delete_horizon else None,
    }


def expected_header(batch: ExpectedBatch) -> dict[str, Any]:
    return {
        "position": batch.position,
        "size_in_bytes": batch.size_in_bytes,
        "magic": batch.magic,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "crc": batch.crc,
        "codec": CODEC_IDS[batch.codec],
        "timestamp_type": batch.timestamp_type,
        "base_timestamp_ms": batch.base_timestamp_ms,
        "max_timestamp_ms": batch.max_timestamp_ms,
        "record_count": batch.record_count,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "is_transactional": batch.is_transactional,
        "is_control": batch.is_control,
        "partition_leader_epoch": batch.partition_leader_epoch,
        "attributes": batch.attributes,
        "delete_horizon_ms": batch.delete_horizon_ms,
    }
