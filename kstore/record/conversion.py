"""Conversion of records from one magic to another, batch by batch, so that at most one batch is in memory.

Down-conversion drops what the older format cannot store; up-conversion fills new fields with -1 or none. Batches that
need no conversion keep their bytes.
"""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from kstore._core import (
    CODEC_BITS,
    MAGIC_POSITION,
    MESSAGE_ATTRIBUTES_POSITION,
    MESSAGE_TIMESTAMP_POSITION,
    TIMESTAMP_TYPE_BIT,
    Record,
)
from kstore.compression import CompressionType
from kstore.config import KIB, MAX_INT32, MAX_INT64
from kstore.errors import InvalidRecordError, UnsupportedCompressionTypeError
from kstore.record.batches import LEAST_MESSAGE_SIZES, MemoryRecords, RecordBatch
from kstore.record.builder import MemoryRecordsBuilder
from kstore.types import NO_TIMESTAMP, TimestampType

if TYPE_CHECKING:
    from typing_extensions import Buffer

CONVERSION_CHUNK_BYTES = 128 * KIB

_NONE = CompressionType.NONE
# An id that Kafka does not define is not here: reading the records refuses it.
_LEAST_MAGICS = {int(codec): codec.least_magic for codec in CompressionType}
_CREATE_TIME = TimestampType.CREATE_TIME
_LOG_APPEND_TIME = TimestampType.LOG_APPEND_TIME
# A message set entry: offset and size, then the message: CRC-32, magic, attributes, and in V1 the timestamp.
_ENTRY_HEADER = struct.Struct(">qi")
_CRC = struct.Struct(">I")
_V1_PROLOGUE = struct.Struct(">bbq")


# The number of records, and the records after the conversion.
_Converted = tuple[int, MemoryRecords]


@dataclass
class ConversionStats:
    """Totals of a conversion (Kafka: RecordConversionStats): records converted, bytes built, nanoseconds spent."""

    record_count: int = 0
    size_in_bytes: int = 0
    duration_ns: int = 0


def convert(
    batches: MemoryRecords | Iterable[RecordBatch],
    *,
    magic: int,
    first_offset: int = 0,
    log_append_time_ms: int | None = None,
    chunk_bytes: int = CONVERSION_CHUNK_BYTES,
    stats: ConversionStats | None = None,
) -> Iterator[MemoryRecords]:
    """Yield all batches in one magic: newer ones converted as by down_convert, older ones as by up_convert."""
    _check_magic(magic)

    def convert_one(batch: RecordBatch) -> _Converted:
        if batch.magic > magic:
            return _down_converted(batch, magic=magic, first_offset=first_offset)
        return _up_converted(batch, magic=magic, log_append_time_ms=log_append_time_ms)

    return _in_chunks(batches, lambda batch: batch.magic != magic, convert_one, chunk_bytes=chunk_bytes, stats=stats)


def down_convert(
    batches: MemoryRecords | Iterable[RecordBatch],
    *,
    magic: int,
    first_offset: int = 0,
    chunk_bytes: int = CONVERSION_CHUNK_BYTES,
    stats: ConversionStats | None = None,
) -> Iterator[MemoryRecords]:
    """Yield batches for a reader of an older format: batches of a newer magic converted, the others unchanged.

    For magic 0 and 1, control batches and record headers are left out, and so are the records below first_offset of an
    uncompressed V2 batch (KAFKA-5360: plain messages are not in a batch in which a reader could skip them). Offsets,
    codec and timestamp type stay; magic 0 has no timestamps.
    Args: chunk_bytes: the least size of a chunk, except for the last one; stats: updated during iteration.
    Returns: an iterator over chunks, without empty ones.
    Raises: UnsupportedCompressionTypeError for a magic below the codec's least_magic, and errors of reading the
        records, during iteration; TypeError for anything but batches; ValueError for another magic.
    Cost: memory for one chunk and one batch.  Source: Kafka RecordsUtil.downConvert, LazyDownConversionRecords.
    """
    _check_magic(magic)
    return _in_chunks(
        batches,
        lambda batch: batch.magic > magic,
        lambda batch: _down_converted(batch, magic=magic, first_offset=first_offset),
        chunk_bytes=chunk_bytes,
        stats=stats,
    )


def up_convert(
    batches: MemoryRecords | Iterable[RecordBatch],
    *,
    magic: int,
    log_append_time_ms: int | None = None,
    chunk_bytes: int = CONVERSION_CHUNK_BYTES,
    stats: ConversionStats | None = None,
) -> Iterator[MemoryRecords]:
    """Yield batches of an older magic converted, the others unchanged; see down_convert.

    Offsets and codec stay, and so do the timestamps of magic 1. Records of magic 0 get -1, or log_append_time_ms as
    LogAppendTime. Each message becomes one batch, and so does each wrapper.
    """
    _check_magic(magic)
    return _in_chunks(
        batches,
        lambda batch: batch.magic < magic,
        lambda batch: _up_converted(batch, magic=magic, log_append_time_ms=log_append_time_ms),
        chunk_bytes=chunk_bytes,
        stats=stats,
    )


def convert_message(entry: Buffer, *, magic: int, log_append_time_ms: int | None = None) -> bytes:
    """Return a plain message set entry of magic 0 or 1 in the other of these magics; a copy if it has the given one.

    V0 to V1 inserts the timestamp -1, or log_append_time_ms as LogAppendTime; V1 to V0 removes timestamp and type.
    The CRC of the entry is not checked; the result has a right one.
    Raises: ValueError for another magic, a size field that does not match, a wrapper (whose content would stay), or a
        timestamp that no message can have.
    Source: Kafka Message.toFormatVersion.
    """
    data = bytes(entry)
    own_magic = data[MAGIC_POSITION] if len(data) > MAGIC_POSITION else -1
    if magic not in (0, 1) or own_magic not in (0, 1):
        raise ValueError(f"magic of a message: expected 0 or 1, found {own_magic}, to be converted to {magic}")
    offset, size = _ENTRY_HEADER.unpack_from(data)
    if len(data) < LEAST_MESSAGE_SIZES[own_magic] or size != len(data) - _ENTRY_HEADER.size:
        raise ValueError(f"size of an entry: expected {len(data) - _ENTRY_HEADER.size}, found {size}")
    if data[MESSAGE_ATTRIBUTES_POSITION] & CODEC_BITS:
        raise ValueError("a wrapper can't be converted without its messages")
    if own_magic == magic:
        return data
    if magic == 0:
        body = bytes(2) + data[MESSAGE_TIMESTAMP_POSITION + 8 :]
    else:
        attributes = 0 if log_append_time_ms is None else TIMESTAMP_TYPE_BIT
        timestamp_ms = NO_TIMESTAMP if log_append_time_ms is None else log_append_time_ms
        if not NO_TIMESTAMP <= timestamp_ms <= MAX_INT64:
            raise ValueError(f"log_append_time_ms: expected {NO_TIMESTAMP} to {MAX_INT64}, found {timestamp_ms}")
        body = _V1_PROLOGUE.pack(1, attributes, timestamp_ms) + data[MESSAGE_TIMESTAMP_POSITION:]
    return _ENTRY_HEADER.pack(offset, _CRC.size + len(body)) + _CRC.pack(zlib.crc32(body)) + body


def _in_chunks(
    batches: MemoryRecords | Iterable[RecordBatch],
    needs_conversion: Callable[[RecordBatch], bool],
    convert_one: Callable[[RecordBatch], _Converted],
    *,
    chunk_bytes: int,
    stats: ConversionStats | None,
) -> Iterator[MemoryRecords]:
    chunk = bytearray()
    for batch in batches.batches() if isinstance(batches, MemoryRecords) else batches:
        if not isinstance(batch, RecordBatch):
            raise TypeError(f"expected MemoryRecords or their batches, found {type(batch).__name__}")
        if needs_conversion(batch):
            chunk += _counted(batch, convert_one, stats)
        else:
            chunk += bytes(batch)
        if len(chunk) >= chunk_bytes:
            yield MemoryRecords(chunk)
            chunk = bytearray()
    if chunk:
        yield MemoryRecords(chunk)


def _counted(
    batch: RecordBatch, convert_one: Callable[[RecordBatch], _Converted], stats: ConversionStats | None
) -> memoryview:
    started_ns = time.perf_counter_ns()
    record_count, converted = convert_one(batch)
    if stats is not None:
        stats.duration_ns += time.perf_counter_ns() - started_ns
        stats.size_in_bytes += converted.size_in_bytes
        stats.record_count += record_count
    return converted.buffer


def _down_converted(batch: RecordBatch, *, magic: int, first_offset: int) -> _Converted:
    batch.verify()
    if magic < 2 and batch.is_control:
        return 0, MemoryRecords(b"")
    if magic < _LEAST_MAGICS.get(batch.header.codec, 0):
        name = batch.compression.label
        where = "memory" if batch.path is None else batch.path
        error = UnsupportedCompressionTypeError(
            f"{name} batch at position {batch.position} of {where} can't be converted to magic {magic}",
            path=batch.path,
            position=batch.position,
        )
        error.codec_id = batch.header.codec
        raise error
    least_offset = first_offset if batch.magic >= 2 and batch.header.codec == _NONE else 0
    decoded = batch.records(headers=magic >= 2)
    records = (record for record in decoded if record.offset >= least_offset)
    return _rebuilt(
        batch,
        records,
        magic=magic,
        timestamp_type=batch.timestamp_type,
        log_append_time_ms=_append_time_of(batch, magic=magic),
    )


def _up_converted(batch: RecordBatch, *, magic: int, log_append_time_ms: int | None) -> _Converted:
    batch.verify()
    timestamp_type = batch.timestamp_type if batch.magic else _CREATE_TIME
    append_time_ms = _append_time_of(batch, magic=magic)
    if batch.magic == 0 and log_append_time_ms is not None:
        timestamp_type, append_time_ms = _LOG_APPEND_TIME, log_append_time_ms
    return _rebuilt(batch, batch, magic=magic, timestamp_type=timestamp_type, log_append_time_ms=append_time_ms)


def _append_time_of(batch: RecordBatch, *, magic: int) -> int:
    """Return the timestamp of all records of a LogAppendTime batch; -1 for any other batch, or for magic 0."""
    if magic == 0 or batch.timestamp_type != _LOG_APPEND_TIME:
        return NO_TIMESTAMP
    _check_timestamp(batch, batch.max_timestamp_ms)
    return batch.max_timestamp_ms


def _rebuilt(
    batch: RecordBatch,
    records: Iterable[Record],
    *,
    magic: int,
    timestamp_type: TimestampType,
    log_append_time_ms: int,
) -> _Converted:
    """Build records, with their offsets, as one V2 batch or V0 or V1 messages (with a codec, as one wrapper).

    Rejects values that no client can send and that the other format cannot store; V0 and V1 get no headers.
    """
    rest = iter(records)
    first = next(rest, None)
    if first is None:
        return 0, MemoryRecords(b"")
    builder = MemoryRecordsBuilder(
        magic=magic,
        compression=batch.compression,
        timestamp_type=timestamp_type,
        log_append_time_ms=log_append_time_ms,
        base_offset=first.offset,
    )
    for record in chain((first,), rest):
        span = record.offset - first.offset
        if span > MAX_INT32:
            raise _unfit(batch, "offset span", expected=f"at most {MAX_INT32}", found=span)
        if magic:
            _check_timestamp(batch, record.timestamp_ms)
        if magic == 2:
            builder.append(record)
        else:
            timestamp_ms = record.timestamp_ms if magic else NO_TIMESTAMP
            builder.append(timestamp_ms=timestamp_ms, key=record.key, value=record.value, offset=record.offset)
    return builder.record_count, builder.build()


def _check_timestamp(batch: RecordBatch, timestamp_ms: int) -> None:
    if timestamp_ms < NO_TIMESTAMP:
        raise _unfit(batch, "timestamp", expected=f"at least {NO_TIMESTAMP}", found=timestamp_ms)


def _unfit(batch: RecordBatch, what: str, *, expected: object, found: object) -> InvalidRecordError:
    where = "memory" if batch.path is None else batch.path
    reason = f"{what}: expected {expected}, found {found}"
    return InvalidRecordError(
        f"{reason} in batch at position {batch.position} of {where}, which is to be converted",
        path=batch.path,
        position=batch.position,
        reason=reason,
        expected=expected,
        found=found,
    )


def _check_magic(magic: int) -> None:
    if magic not in (0, 1, 2):
        raise ValueError(f"magic must be 0, 1 or 2, got {magic}")
