"""Batches patched where they stand, header by header, without a look at their records. Format: docs/format.md.

set_last_offset, set_partition_leader_epoch and assign_offsets touch what no CRC covers; set_max_timestamp writes the
CRC anew. Records never change: a LogAppendTime batch keeps the timestamp deltas that its producer gave.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

from kstore._core import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    MAGIC_POSITION,
    MAX_TIMESTAMP_POSITION,
    MESSAGE_ATTRIBUTES_POSITION,
    MESSAGE_CRC_POSITION,
    MESSAGE_TIMESTAMP_POSITION,
    TIMESTAMP_TYPE_BIT,
    assign_offsets,
    batch_size_at,
    crc32c,
    patch_batch_header,
    set_last_offset,
    set_partition_leader_epoch,
)
from kstore.types import MAX_OFFSET, NO_TIMESTAMP, TimestampType

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "assign_offsets",
    "patch_batch_header",
    "set_last_offset",
    "set_max_timestamp",
    "set_partition_leader_epoch",
]

_INT16 = struct.Struct(">h")
_UINT32 = struct.Struct(">I")
_INT64 = struct.Struct(">q")
_KNOWN_MESSAGE_BITS = 0x0F
_KNOWN_BATCH_BITS = 0x7F


def set_max_timestamp(
    buffer: Buffer, at: int = 0, *, max_timestamp_ms: int, timestamp_type: TimestampType = TimestampType.CREATE_TIME
) -> bool:
    """Set timestamp type and largest timestamp of the V1 or V2 batch at buffer[at], in place, with its CRC.

    With LOG_APPEND_TIME this is the timestamp of all its records. Attribute bits that Kafka does not define are
    dropped, as there. Returns whether anything was written: a batch that has both already stays as it is.
    Raises: CorruptRecordError, UnsupportedMagicError; ValueError for magic 0, which has no timestamp, a timestamp below
        -1, or another type; TypeError for a buffer that is read-only.
    Threads: the GIL is released.  Cost: O(bytes of the batch) for the CRC.
    Source: Kafka MutableRecordBatch.setMaxTimestamp.
    """
    if timestamp_type not in (TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME):
        raise ValueError(f"timestamp_type must be CREATE_TIME or LOG_APPEND_TIME, got {timestamp_type!r}")
    if not NO_TIMESTAMP <= max_timestamp_ms <= MAX_OFFSET:
        raise ValueError(f"max_timestamp_ms must be from {NO_TIMESTAMP} to {MAX_OFFSET}, got {max_timestamp_ms}")
    size = batch_size_at(buffer, at)
    batch = memoryview(buffer).cast("B")[at : at + size]
    if batch.readonly:
        raise TypeError(f"expected a writable buffer, found a read-only {type(buffer).__name__}")
    magic = batch[MAGIC_POSITION]
    if magic == 0:
        raise ValueError(f"the message at position {at} has magic 0, and so no timestamp")
    if magic == 1:
        return _set_message_timestamp(batch, max_timestamp_ms, timestamp_type)
    return _set_batch_timestamp(batch, max_timestamp_ms, timestamp_type)


def _set_message_timestamp(message: memoryview, timestamp_ms: int, timestamp_type: TimestampType) -> bool:
    attributes = message[MESSAGE_ATTRIBUTES_POSITION]
    if (_timestamp_type(attributes), _INT64.unpack_from(message, MESSAGE_TIMESTAMP_POSITION)[0]) == (
        timestamp_type,
        timestamp_ms,
    ):
        return False
    message[MESSAGE_ATTRIBUTES_POSITION] = _with_type(attributes & _KNOWN_MESSAGE_BITS, timestamp_type)
    _INT64.pack_into(message, MESSAGE_TIMESTAMP_POSITION, timestamp_ms)
    _UINT32.pack_into(message, MESSAGE_CRC_POSITION, zlib.crc32(message[MAGIC_POSITION:]))
    return True


def _set_batch_timestamp(batch: memoryview, timestamp_ms: int, timestamp_type: TimestampType) -> bool:
    attributes = _INT16.unpack_from(batch, ATTRIBUTES_POSITION)[0]
    if (_timestamp_type(attributes), _INT64.unpack_from(batch, MAX_TIMESTAMP_POSITION)[0]) == (
        timestamp_type,
        timestamp_ms,
    ):
        return False
    _INT16.pack_into(batch, ATTRIBUTES_POSITION, _with_type(attributes & _KNOWN_BATCH_BITS, timestamp_type))
    _INT64.pack_into(batch, MAX_TIMESTAMP_POSITION, timestamp_ms)
    _UINT32.pack_into(batch, CRC_POSITION, crc32c(batch[ATTRIBUTES_POSITION:]))
    return True


def _timestamp_type(attributes: int) -> TimestampType:
    return TimestampType.LOG_APPEND_TIME if attributes & TIMESTAMP_TYPE_BIT else TimestampType.CREATE_TIME


def _with_type(attributes: int, timestamp_type: TimestampType) -> int:
    cleared = attributes & ~TIMESTAMP_TYPE_BIT
    return cleared | TIMESTAMP_TYPE_BIT if timestamp_type == TimestampType.LOG_APPEND_TIME else cleared
