"""The slow codec: magic 2 batches, index files and checkpoints with struct and a CRC alone, after docs/format.md.

It is the oracle of the compiled core and therefore never imports kstore. A rule of the format that the
bytes break is a Refusal, which names the kstore error class and the position of the batch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import crc32c as crc32c_package

from tests.reference import codecs as codecs

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = 61
HEADER_BYTES_UP_TO_MAGIC = 17
LOG_OVERHEAD = 12
CRC_AT = 17
ATTRIBUTES_AT = 21
MIN_RECORD_BYTES = 7
MAX_BATCH_BYTES = 100 << 20
MAX_DECOMPRESSED_BYTES = 64 << 20
MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1
CREATE_TIME, LOG_APPEND_TIME = 0, 1
TIMESTAMP_TYPE_BIT, TRANSACTIONAL_BIT, CONTROL_BIT, DELETE_HORIZON_BIT = 0x08, 0x10, 0x20, 0x40
OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")


class Refusal(Exception):
    """A rule is broken: error is the name of the kstore class, position the place of the batch."""

    def __init__(
        self, error: str, reason: str, *, position: int, expected: int | None = None, found: int | None = None
    ) -> None:
        super().__init__(f"{error} at position {position}: {reason}")
        self.error = error
        self.reason = reason
        self.position = position
        self.expected = expected
        self.found = found


class Record(NamedTuple):
    """One record with absolute offset and timestamp; header keys are raw bytes."""

    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    sequence: int = -1
    is_control: bool = False


# CRC-32C


def crc32c(data: bytes, value: int = 0) -> int:
    """CRC-32C (Castagnoli, reflected); value is the CRC of the bytes before.

    That of the package crc32c: crc32c_by_table takes microseconds for each byte, and every batch of a test has a CRC.
    """
    return crc32c_package.crc32c(data, value)


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


_CRC_TABLE = _crc_table()


def crc32c_by_table(data: bytes, value: int = 0) -> int:
    """The same, a byte at a time."""
    value ^= 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ _CRC_TABLE[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


# Varints


def zigzag(value: int) -> int:
    return value << 1 if value >= 0 else -value * 2 - 1


def unzigzag(value: int) -> int:
    return value >> 1 if value & 1 == 0 else -(value >> 1) - 1


def encode_varint(value: int, *, size: int = 0) -> bytes:
    """Zigzag base-128, least significant group first; size > the shortest form pads it."""
    rest = zigzag(value)
    out = bytearray()
    while rest >= 0x80 or len(out) + 1 < size:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


class Cursor:
    """Reads fields of data[at:end]; a field that does not fit refuses the batch at batch_position."""

    def __init__(self, data: bytes, *, at: int, end: int, batch_position: int) -> None:
        self.data = data
        self.at = at
        self.end = end
        self.batch_position = batch_position

    def refuse(self, reason: str, *, found: int | None = None) -> Refusal:
        return Refusal("InvalidRecordError", reason, position=self.batch_position, found=found)

    def left(self) -> int:
        return self.end - self.at

    def take(self, size: int) -> bytes:
        if size > self.left():
            raise self.refuse("field runs past the end")
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self, bits: int = 32) -> int:
        """Bits above `bits` are dropped; more than 5 (10) bytes are refused."""
        value = 0
        for i in range(5 if bits == 32 else 10):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << 7 * i
            if byte < 0x80:
                return unzigzag(value & (1 << bits) - 1)
        raise self.refuse("varint too long")

    def sized(self, what: str, *, nullable: bool) -> bytes | None:
        size = self.varint()
        if size == -1 and nullable:
            return None
        if not 0 <= size <= self.left():
            raise self.refuse(f"{what} size does not fit", found=size)
        return self.take(size)


# Batch header


@dataclass(frozen=True, kw_only=True)
class Header:
    """The 61 bytes in file order."""

    base_offset: int = 0
    batch_length: int = 0
    partition_leader_epoch: int = 0
    magic: int = 2
    crc: int = 0
    attributes: int = 0
    last_offset_delta: int = 0
    base_timestamp_ms: int = -1
    max_timestamp_ms: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    record_count: int = 0

    def pack(self) -> bytes:
        return HEADER.pack(*self.__dict__.values())

    @classmethod
    def unpack(cls, data: bytes | bytearray, at: int = 0) -> Header:
        return cls(**dict(zip(cls.__dataclass_fields__, HEADER.unpack_from(data, at), strict=True)))

    @property
    def size(self) -> int:
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        return self.attributes & 7

    @property
    def timestamp_type(self) -> int:
        return self.attributes >> 3 & 1

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)


class Batch(NamedTuple):
    position: int
    header: Header
    records: list[Record]


# Reading a batch


def read_header(
    data: bytes, at: int = 0, *, position: int | None = None, max_batch_bytes: int = MAX_BATCH_BYTES
) -> Header:
    """Check framing only: magic, then size, then that the batch lies whole in data."""
    position = at if position is None else position
    left = len(data) - at
    if left < HEADER_BYTES_UP_TO_MAGIC:
        raise Refusal("CorruptRecordError", "header cut off", position=position, expected=HEADER_BYTES, found=left)
    header = Header.unpack(data[at : at + HEADER_BYTES].ljust(HEADER_BYTES, b"\0"))
    if header.magic != 2:
        raise Refusal("UnsupportedMagicError", "magic", position=position, expected=2, found=header.magic)
    if header.size < HEADER_BYTES:
        raise Refusal(
            "CorruptRecordError", "batch too small", position=position, expected=HEADER_BYTES, found=header.size
        )
    if header.size > max_batch_bytes:
        raise Refusal(
            "CorruptRecordError", "batch too large", position=position, expected=max_batch_bytes, found=header.size
        )
    if header.size > left:
        raise Refusal(
            "CorruptRecordError", "batch runs past the end", position=position, expected=header.size, found=left
        )
    return header


def check_crc(data: bytes, at: int, header: Header, *, position: int | None = None) -> None:
    computed = crc32c(data[at + ATTRIBUTES_AT : at + header.size])
    if computed != header.crc:
        place = at if position is None else position
        raise Refusal("CorruptRecordError", "CRC mismatch", position=place, expected=header.crc, found=computed)


def check_offsets(header: Header, *, position: int) -> None:
    """The base offset is outside the CRC, so a bad one is corruption."""
    if header.base_offset < 0:
        raise Refusal("CorruptRecordError", "negative base offset", position=position, found=header.base_offset)
    if header.last_offset_delta < 0:
        raise Refusal("InvalidRecordError", "last offset delta", position=position, found=header.last_offset_delta)
    if header.last_offset >= MAX_INT64:
        raise Refusal("CorruptRecordError", "no offset is left", position=position, found=header.base_offset)


def check_counts(header: Header, *, position: int) -> None:
    if header.codec > codecs.ZSTD:
        raise Refusal("UnsupportedCompressionTypeError", "codec", position=position, found=header.codec)
    if not 0 <= header.record_count <= header.last_offset_delta + 1:
        raise Refusal("InvalidRecordError", "record count", position=position, found=header.record_count)
    if header.codec == codecs.NONE:
        check_content_size(header, header.size - HEADER_BYTES, position=position)


def check_content_size(header: Header, content_bytes: int, *, position: int) -> None:
    if header.record_count > content_bytes // MIN_RECORD_BYTES:
        raise Refusal("InvalidRecordError", "too many records", position=position, found=header.record_count)
    if header.record_count == 0 and content_bytes:
        raise Refusal("InvalidRecordError", "bytes without a record", position=position, found=content_bytes)


def read_batch(
    data: bytes,
    at: int = 0,
    *,
    position: int | None = None,
    verify_crc: bool = True,
    max_batch_bytes: int = MAX_BATCH_BYTES,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> Batch:
    """Read the batch that starts at `at` by every rule of docs/format.md; position is for the messages."""
    position = at if position is None else position
    header = read_header(data, at, position=position, max_batch_bytes=max_batch_bytes)
    end = at + header.size
    if verify_crc:
        check_crc(data, at, header, position=position)
    check_offsets(header, position=position)
    check_counts(header, position=position)
    payload = data[at + HEADER_BYTES : end]
    if header.record_count == 0 and not payload:
        return Batch(position, header, [])
    try:
        payload = codecs.decompress(header.codec, payload, limit=max_decompressed_bytes)
    except codecs.UndecodableError as error:
        raise Refusal("DecompressionError", str(error), position=position) from error
    return Batch(position, header, _read_records(header, payload, position))


def _read_records(header: Header, payload: bytes, position: int) -> list[Record]:
    cursor = Cursor(payload, at=0, end=len(payload), batch_position=position)
    check_content_size(header, len(payload), position=position)
    records = []
    least_delta = 0
    for _ in range(header.record_count):
        size = cursor.varint()
        if not 0 < size <= cursor.left():
            raise cursor.refuse("record size does not fit", found=size)
        body = Cursor(payload, at=cursor.at, end=cursor.at + size, batch_position=position)
        record, delta = _read_record(header, body)
        if not least_delta <= delta <= header.last_offset_delta:
            raise cursor.refuse("offset delta out of order", found=delta)
        if body.left():
            raise cursor.refuse("bytes left in the record", found=body.left())
        least_delta = delta + 1
        cursor.at = body.end
        records.append(record)
    if cursor.left():
        raise cursor.refuse("bytes left after the last record", found=cursor.left())
    return records


def _read_record(header: Header, body: Cursor) -> tuple[Record, int]:
    body.take(1)
    timestamp_delta = body.varint(64)
    offset_delta = body.varint()
    key = body.sized("key", nullable=True)
    value = body.sized("value", nullable=True)
    header_count = body.varint()
    if not 0 <= header_count <= body.left():
        raise body.refuse("header count does not fit", found=header_count)
    headers = []
    for _ in range(header_count):
        header_key = body.sized("header key", nullable=False)
        headers.append((header_key or b"", body.sized("header value", nullable=True)))
    if header.timestamp_type == LOG_APPEND_TIME:
        timestamp_ms = header.max_timestamp_ms
    else:
        timestamp_ms = wrap64(header.base_timestamp_ms + timestamp_delta)
    sequence = header.base_sequence
    if sequence >= 0:
        sequence = (sequence + offset_delta) % (MAX_INT32 + 1)
    record = Record(
        offset=header.base_offset + offset_delta,
        timestamp_ms=timestamp_ms,
        timestamp_type=header.timestamp_type,
        key=key,
        value=value,
        headers=tuple(headers),
        sequence=max(sequence, -1),
        is_control=header.is_control,
    )
    return record, offset_delta


def wrap64(value: int) -> int:
    """int64 arithmetic wraps, as in Java."""
    return (value + 2**63) % 2**64 - 2**63


def read_batches(data: bytes, *, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES) -> Iterator[Batch]:
    """Read the whole of data, strictly: a cut last batch is refused."""
    at = 0
    while at < len(data):
        batch = read_batch(data, at, max_decompressed_bytes=max_decompressed_bytes)
        yield batch
        at += batch.header.size


def read_records(data: bytes) -> list[Record]:
    return [record for batch in read_batches(data) for record in batch.records]


# Writing a batch


def encode_record(record: Record, header: Header, *, attributes: int = 0) -> bytes:
    body = bytearray([attributes])
    body += encode_varint(wrap64(record.timestamp_ms - header.base_timestamp_ms))
    body += encode_varint(record.offset - header.base_offset)
    body += _encode_sized(record.key) + _encode_sized(record.value)
    body += encode_varint(len(record.headers))
    for key, value in record.headers:
        body += _encode_sized(key) + _encode_sized(value)
    return encode_varint(len(body)) + bytes(body)


def _encode_sized(data: bytes | None) -> bytes:
    return encode_varint(-1) if data is None else encode_varint(len(data)) + data


def seal(header: Header, payload: bytes) -> bytes:
    """Header and payload with the right size and CRC."""
    header = replace(header, batch_length=HEADER_BYTES - LOG_OVERHEAD + len(payload))
    signed = header.pack()[ATTRIBUTES_AT:] + payload
    return replace(header, crc=crc32c(signed)).pack()[:ATTRIBUTES_AT] + signed


def write_batch(
    records: Sequence[Record],
    *,
    codec: int = codecs.NONE,
    base_offset: int | None = None,
    last_offset: int | None = None,
    partition_leader_epoch: int = 0,
    log_append_time_ms: int | None = None,
    delete_horizon_ms: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    record_attributes: int = 0,
) -> bytes:
    """Build one batch of at least one record. base_offset and last_offset default to those of the records.

    log_append_time_ms: the batch is LogAppendTime and reads back with this timestamp; the deltas stay.
    delete_horizon_ms: stored in the base timestamp's place, as the cleaner does.
    """
    attributes = codec
    attributes |= TIMESTAMP_TYPE_BIT if log_append_time_ms is not None else 0
    attributes |= TRANSACTIONAL_BIT if is_transactional else 0
    attributes |= CONTROL_BIT if is_control else 0
    attributes |= DELETE_HORIZON_BIT if delete_horizon_ms is not None else 0
    base_offset = records[0].offset if base_offset is None else base_offset
    last_offset = records[-1].offset if last_offset is None else last_offset
    largest_ms = max(record.timestamp_ms for record in records)
    header = Header(
        base_offset=base_offset,
        partition_leader_epoch=partition_leader_epoch,
        attributes=attributes,
        last_offset_delta=last_offset - base_offset,
        base_timestamp_ms=records[0].timestamp_ms if delete_horizon_ms is None else delete_horizon_ms,
        max_timestamp_ms=largest_ms if log_append_time_ms is None else log_append_time_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    data = b"".join(encode_record(record, header, attributes=record_attributes) for record in records)
    return seal(header, codecs.compress(codec, data))


def write_empty_batch(base_offset: int, *, last_offset: int, max_timestamp_ms: int, attributes: int = 0) -> bytes:
    """What the cleaner leaves of a batch whose records are all gone: a header alone."""
    return seal(
        Header(
            base_offset=base_offset,
            last_offset_delta=last_offset - base_offset,
            max_timestamp_ms=max_timestamp_ms,
            attributes=attributes,
        ),
        b"",
    )


CONTROL_ABORT, CONTROL_COMMIT = 0, 1


def write_end_transaction_marker(
    offset: int, *, timestamp_ms: int, producer_id: int, producer_epoch: int, commit: bool, coordinator_epoch: int = 0
) -> bytes:
    marker = Record(
        offset,
        timestamp_ms,
        CREATE_TIME,
        struct.pack(">hh", 0, CONTROL_COMMIT if commit else CONTROL_ABORT),
        struct.pack(">hi", 0, coordinator_epoch),
    )
    return write_batch(
        [marker], producer_id=producer_id, producer_epoch=producer_epoch, is_transactional=True, is_control=True
    )


# Index files


def write_offset_index(entries: Sequence[tuple[int, int]], *, slots: int | None = None) -> bytes:
    """entries: (relative offset, position); slots: preallocated size, the rest is zeros."""
    return _padded(b"".join(OFFSET_ENTRY.pack(*entry) for entry in entries), slots, OFFSET_ENTRY.size)


def write_time_index(entries: Sequence[tuple[int, int]], *, slots: int | None = None) -> bytes:
    """entries: (timestamp ms, relative offset); slots: preallocated size, the rest is zeros."""
    return _padded(b"".join(TIME_ENTRY.pack(*entry) for entry in entries), slots, TIME_ENTRY.size)


def _padded(data: bytes, slots: int | None, entry_bytes: int) -> bytes:
    return data if slots is None else data.ljust(slots * entry_bytes, b"\0")


def read_offset_index(data: bytes) -> list[tuple[int, int]]:
    return [(offset, position) for offset, position in _entries(data, OFFSET_ENTRY)]


def read_time_index(data: bytes) -> list[tuple[int, int]]:
    return [(timestamp_ms, offset) for timestamp_ms, offset in _entries(data, TIME_ENTRY)]


def _entries(data: bytes, entry: struct.Struct) -> list[tuple[int, ...]]:
    """Whole entries before the trailing run of all-zero ones."""
    entries = list(entry.iter_unpack(data[: len(data) - len(data) % entry.size]))
    while entries and not any(entries[-1]):
        entries.pop()
    return entries


def floor_slot(entries: Sequence[tuple[int, int]], target: int) -> int:
    """Slot of the last entry whose first field is <= target, -1 if none; entries ascend."""
    return max((slot for slot, entry in enumerate(entries) if entry[0] <= target), default=-1)


# Checkpoint files


def read_checkpoint(text: str, *, fields: int) -> list[tuple[str, ...]]:
    """Lines of a version 0 checkpoint: version, count, then `fields` words a line; ValueError if malformed."""
    lines = text.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    if len(lines) < 2:
        if lines and lines[0] != "0":
            raise ValueError(f"version {lines[0]!r}")
        return []
    if lines[0] != "0":
        raise ValueError(f"version {lines[0]!r}")
    entries = [tuple(line.split()) for line in lines[2:]]
    if int(lines[1]) != len(entries):
        raise ValueError(f"{lines[1]} entries declared, {len(entries)} found")
    for entry in entries:
        if len(entry) != fields:
            raise ValueError(f"{fields} fields wanted: {entry}")
    return entries


def write_checkpoint(entries: Sequence[tuple[object, ...]]) -> str:
    lines = ["0", str(len(entries)), *(" ".join(map(str, entry)) for entry in entries)]
    return "\n".join(lines) + "\n"
