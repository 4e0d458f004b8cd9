"""The slow codec of magic 0 and 1: messages and the sets of them inside wrappers, after docs/format.md; no kstore here.

A broken rule is a reference.Refusal at the position of the outer message.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from tests.reference import codec as reference
from tests.reference import codecs as codecs
from tests.reference.codec import LOG_APPEND_TIME, LOG_OVERHEAD, MAX_INT64, Record, Refusal, crc32c

NO_TIMESTAMP_TYPE = -1
OVERHEADS = {0: 26, 1: 34}
LEAST_ENTRY_BYTES = 26
MAGIC_AT, ATTRIBUTES_AT = 16, 17
CODEC_MASK, TIMESTAMP_TYPE_MASK = 0x07, 0x08
ENTRY = struct.Struct(">qiIbb")
LZ4_CONTENT_SIZE_FLAG = 0x08


class Message(NamedTuple):
    """An entry of a message set by its fields; the offset is the stored one, the size that of the entry."""

    offset: int
    size: int
    magic: int
    codec: int
    timestamp_type: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


class Entry(NamedTuple):
    """What read_any found: a message, a wrapper or a record batch."""

    position: int
    size: int
    magic: int
    last_offset: int
    records: list[Record]


def frame(data: bytes, at: int, *, position: int, max_batch_bytes: int = reference.MAX_BATCH_BYTES) -> int:
    """The size of the entry at `at`, which lies whole in data."""
    left = len(data) - at
    if left < reference.HEADER_BYTES_UP_TO_MAGIC:
        raise Refusal("CorruptRecordError", "header cut off", position=position, found=left)
    size = LOG_OVERHEAD + int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
    magic = int.from_bytes(data[at + MAGIC_AT : at + MAGIC_AT + 1], "big", signed=True)
    if magic not in OVERHEADS:
        raise Refusal("UnsupportedMagicError", "magic", position=position, found=magic)
    if not OVERHEADS[magic] <= size <= max_batch_bytes:
        raise Refusal("CorruptRecordError", "entry size", position=position, found=size)
    if size > left:
        raise Refusal("CorruptRecordError", "entry runs past the end", position=position, found=left)
    return size


def check_crc(entry: bytes, *, position: int) -> None:
    """CRC-32 from the magic on; a batch of magic 2 whose magic was damaged is told by its own CRC."""
    if zlib.crc32(entry[MAGIC_AT:]) == int.from_bytes(entry[12:16], "big"):
        return
    if len(entry) >= reference.HEADER_BYTES and crc32c(entry[21:]) == int.from_bytes(entry[17:21], "big"):
        raise Refusal("UnsupportedMagicError", "CRC of magic 2", position=position, found=entry[MAGIC_AT])
    raise Refusal("CorruptRecordError", "CRC mismatch", position=position)


def parse(entry: bytes, *, position: int) -> Message:
    """The fields of a whole entry; they fill it."""
    offset, _, _, magic, attributes = ENTRY.unpack_from(entry)
    at = ENTRY.size
    timestamp_ms, timestamp_type = -1, NO_TIMESTAMP_TYPE
    if magic:
        timestamp_ms = int.from_bytes(entry[at : at + 8], "big", signed=True)
        timestamp_type = int(attributes & TIMESTAMP_TYPE_MASK > 0)
        at += 8
    fields: list[bytes | None] = []
    for bytes_behind in (4, 0):
        size = int.from_bytes(entry[at : at + 4], "big", signed=True)
        at += 4
        if not -1 <= size <= len(entry) - at - bytes_behind:
            raise Refusal("InvalidRecordError", "key or value size", position=position, found=size)
        fields.append(None if size < 0 else entry[at : at + size])
        at += max(size, 0)
    if at != len(entry):
        raise Refusal("InvalidRecordError", "bytes left in the message", position=position, found=len(entry) - at)
    codec = attributes & CODEC_MASK
    return Message(offset, len(entry), magic, codec, timestamp_type, timestamp_ms, fields[0], fields[1])


def read_message(
    data: bytes,
    at: int = 0,
    *,
    position: int | None = None,
    max_batch_bytes: int = reference.MAX_BATCH_BYTES,
    max_decompressed_bytes: int = reference.MAX_DECOMPRESSED_BYTES,
) -> Entry:
    """Read the plain message or the wrapper at `at`."""
    position = at if position is None else position
    size = frame(data, at, position=position, max_batch_bytes=max_batch_bytes)
    entry = data[at : at + size]
    records = list(records_of(entry, position=position, limit=max_decompressed_bytes))
    offset, _, _, magic, _ = ENTRY.unpack_from(entry)
    return Entry(position, size, magic, offset, records)


def records_of(entry: bytes, *, position: int, limit: int, least_offset: int | None = None) -> Iterator[Record]:
    """Read the records of a whole entry one by one; least_offset: what the entries before it leave, if any were."""
    check_crc(entry, position=position)
    check_offset(entry, position=position, least_offset=least_offset or 0)
    codec = entry[ATTRIBUTES_AT] & CODEC_MASK
    if codec > codecs.ZSTD:
        raise Refusal("UnsupportedCompressionTypeError", "codec", position=position, found=codec)
    if codec == codecs.ZSTD:
        raise Refusal("InvalidRecordError", "zstd in magic 0 or 1", position=position)
    outer = parse(entry, position=position)
    if codec == codecs.NONE:
        yield as_record(outer, offset=outer.offset, outer=outer)
    else:
        yield from read_wrapper(outer, position=position, limit=limit, least_offset=least_offset)


def check_offset(entry: bytes, *, position: int, least_offset: int) -> None:
    """The offset is outside the CRC, so a bad one is corruption."""
    offset = int.from_bytes(entry[:8], "big", signed=True)
    if not least_offset <= offset < MAX_INT64:
        raise Refusal("CorruptRecordError", "offset", position=position, found=offset)


def read_wrapper(outer: Message, *, position: int, limit: int, least_offset: int | None) -> Iterator[Record]:
    if outer.value is None:
        raise Refusal("InvalidRecordError", "null wrapper", position=position)
    payload = mended(outer.value) if (outer.magic, outer.codec) == (0, codecs.LZ4) else outer.value
    try:
        content = codecs.decompress(outer.codec, payload, limit=limit)
    except codecs.UndecodableError as error:
        raise Refusal("DecompressionError", str(error), position=position) from error
    entries = list(inner_entries(content, position=position, limit=limit))
    if not entries:
        raise Refusal("InvalidRecordError", "empty wrapper", position=position)
    last_stored = int.from_bytes(entries[-1][:8], "big", signed=True)
    base = 0
    if outer.magic and outer.offset:
        if outer.offset < last_stored:
            raise Refusal("InvalidRecordError", "wrapper offset", position=position, found=outer.offset)
        base = reference.wrap64(outer.offset - last_stored)
    return checked_records(entries, outer=outer, base=base, position=position, least_offset=least_offset)


def inner_entries(content: bytes, *, position: int, limit: int) -> Iterator[bytes]:
    """Whole entries; an incomplete last one is left out, as Kafka does, if a payload could hold it."""
    at = 0
    while len(content) - at >= LOG_OVERHEAD:
        size = LOG_OVERHEAD + int.from_bytes(content[at + 8 : at + 12], "big", signed=True)
        if size < LEAST_ENTRY_BYTES:
            raise Refusal("CorruptRecordError", "inner size", position=position, found=size)
        if size > len(content) - at:
            if size > limit:
                raise Refusal("CorruptRecordError", "inner size", position=position, found=size)
            return
        entry = content[at : at + size]
        magic = int.from_bytes(entry[MAGIC_AT : MAGIC_AT + 1], "big", signed=True)
        if magic not in OVERHEADS:
            raise Refusal("InvalidRecordError", "inner magic", position=position, found=magic)
        if size < OVERHEADS[magic]:
            raise Refusal("CorruptRecordError", "inner size", position=position, found=size)
        if entry[ATTRIBUTES_AT] & CODEC_MASK:
            raise Refusal("InvalidRecordError", "nested wrapper", position=position)
        yield entry
        at += size


def checked_records(
    entries: list[bytes], *, outer: Message, base: int, position: int, least_offset: int | None
) -> Iterator[Record]:
    """The records of a wrapper; their offsets rise and end at or below the wrapper's."""
    most = outer.offset if outer.offset else MAX_INT64 - 1
    least = least_offset or 0
    for number, entry in enumerate(entries):
        check_crc(entry, position=position)
        inner = parse(entry, position=position)
        offset = reference.wrap64(base + inner.offset)
        if number == 0 and offset < least:
            raise Refusal("CorruptRecordError", "offsets go back", position=position, found=offset)
        if not least <= offset <= most:
            raise Refusal("InvalidRecordError", "inner offset", position=position, found=offset)
        least = offset + 1
        yield as_record(inner, offset=offset, outer=outer)


def as_record(message: Message, *, offset: int, outer: Message) -> Record:
    """The timestamp type is the outer message's, and so is a LogAppendTime; what is V0 has neither."""
    timestamp_type = outer.timestamp_type if message.magic else NO_TIMESTAMP_TYPE
    stamp = outer.timestamp_ms if timestamp_type == LOG_APPEND_TIME else message.timestamp_ms
    return Record(offset, stamp, timestamp_type, message.key, message.value)


def mended(payload: bytes) -> bytes:
    """An lz4 frame of V0 with a right header checksum: Kafka wrote a wrong one there (KAFKA-3160) and reads any."""
    if len(payload) < 7 or payload[:4] != codecs.LZ4_MAGIC:
        return payload
    end = 4 + (10 if payload[4] & LZ4_CONTENT_SIZE_FLAG else 2)
    if end >= len(payload):
        return payload
    return payload[:end] + bytes([codecs.xxh32(payload[4:end]) >> 8 & 0xFF]) + payload[end + 1 :]


def read_any(
    data: bytes,
    at: int = 0,
    *,
    position: int | None = None,
    max_batch_bytes: int = reference.MAX_BATCH_BYTES,
    max_decompressed_bytes: int = reference.MAX_DECOMPRESSED_BYTES,
) -> Entry:
    """Read the message, wrapper or record batch at `at`, whatever its magic."""
    position = at if position is None else position
    limits = {"max_batch_bytes": max_batch_bytes, "max_decompressed_bytes": max_decompressed_bytes}
    if data[at + MAGIC_AT : at + MAGIC_AT + 1] in (b"\0", b"\1"):
        return read_message(data, at, position=position, **limits)
    batch = reference.read_batch(data, at, position=position, **limits)
    return Entry(position, batch.header.size, 2, batch.header.last_offset, batch.records)


def read_all(data: bytes) -> list[Record]:
    """The records of a run of entries of any magic."""
    out: list[Record] = []
    at = 0
    while at < len(data):
        entry = read_any(data, at)
        out += entry.records
        at += entry.size
    return out
