"""The slow codec of magic 0 and 1: messages, wrappers and logs of mixed magics, after docs/format.md.

It is an oracle of the compiled core and never imports kstore; what it refuses is a reference.Refusal.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from tests import reference
from tests import reference_codecs as codecs
from tests.messages import packed_entry
from tests.reference import CREATE_TIME, LOG_APPEND_TIME, MAX_INT64, Record, Refusal

ENTRY_HEAD = struct.Struct(">qi")
NO_TIMESTAMP_TYPE = -1
LEAST_ENTRY_BYTES = {0: 26, 1: 34}
TIMESTAMP_TYPE_BIT = 0x08


class Message(NamedTuple):
    """An entry by its fields; timestamp_ms is -1 in V0, attributes as stored."""

    offset: int
    size: int
    magic: int
    attributes: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> int:
        return self.attributes & 7

    @property
    def timestamp_type(self) -> int:
        if self.magic == 0:
            return NO_TIMESTAMP_TYPE
        return LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else CREATE_TIME


def write_wrapper(
    messages: Sequence[bytes], *, magic: int, codec: int, offset: int, timestamp_ms: int = -1, appended: bool = False
) -> bytes:
    """A compressed message around whole entries (their offsets as they are to be stored), with its offset."""
    payload = codecs.compress(codec, b"".join(messages))
    if magic == 0 and codec == codecs.LZ4:
        payload = payload[:6] + bytes([codecs.xxh32(payload[:6]) >> 8 & 0xFF]) + payload[7:]
    attributes = codec | (TIMESTAMP_TYPE_BIT if appended else 0)
    return packed_entry(payload, None, offset=offset, magic=magic, attributes=attributes, timestamp_ms=timestamp_ms)


def parse_message(data: bytes, at: int, *, position: int, what: str = "CorruptRecordError") -> Message:
    """Read the fields of one entry that lies whole in data; its CRC is checked first."""
    offset, length = ENTRY_HEAD.unpack_from(data, at)
    entry = data[at : at + 12 + length]
    stored = int.from_bytes(entry[12:16], "big")
    if zlib.crc32(entry[16:]) != stored:
        body_of_v2 = len(entry) >= 61 and reference.crc32c(entry[21:]) == int.from_bytes(entry[17:21], "big")
        raise Refusal("UnsupportedMagicError" if body_of_v2 else what, "CRC mismatch", position=position)
    magic, attributes = entry[16], entry[17]
    timestamp_ms = struct.unpack_from(">q", entry, 18)[0] if magic else -1
    cursor = reference.Cursor(entry, at=26 if magic else 18, end=len(entry), batch_position=position)
    key = _sized(cursor, "key")
    value = _sized(cursor, "value")
    if cursor.left():
        raise cursor.refuse("bytes left in the message", found=cursor.left())
    return Message(offset, len(entry), magic, attributes, timestamp_ms, key, value)


def _sized(cursor: reference.Cursor, what: str) -> bytes | None:
    size: int = struct.unpack(">i", cursor.take(4))[0]
    if size == -1:
        return None
    if size < -1:
        raise cursor.refuse(f"{what} size does not fit", found=size)
    return cursor.take(size)


def check_frame(data: bytes, at: int, *, position: int) -> int:
    """Check magic and size of the entry of magic 0 or 1 at `at` and return its size."""
    left = len(data) - at
    if left < reference.HEADER_BYTES_UP_TO_MAGIC:
        raise Refusal("CorruptRecordError", "header cut off", position=position, found=left)
    size: int = ENTRY_HEAD.unpack_from(data, at)[1] + 12
    magic = data[at + 16]
    if size < LEAST_ENTRY_BYTES[magic]:
        raise Refusal("CorruptRecordError", "message too small", position=position, found=size)
    if size > reference.MAX_BATCH_BYTES or size > left:
        raise Refusal("CorruptRecordError", "message too large", position=position, found=size)
    return size


def read_entry(data: bytes, at: int = 0, *, position: int | None = None, least_offset: int = 0) -> list[Record]:
    """The records of the plain message or wrapper at `at`, by every rule of docs/format.md."""
    position = at if position is None else position
    check_frame(data, at, position=position)
    offset = ENTRY_HEAD.unpack_from(data, at)[0]
    outer = parse_message(data, at, position=position)
    if not 0 <= offset < MAX_INT64:
        raise Refusal("CorruptRecordError", "offset", position=position, found=offset)
    if outer.codec > codecs.ZSTD:
        raise Refusal("UnsupportedCompressionTypeError", "codec", position=position, found=outer.codec)
    if outer.codec == codecs.ZSTD:
        raise Refusal("InvalidRecordError", "zstd", position=position)
    if outer.codec == codecs.NONE:
        return [_record(outer, outer, offset)]
    if outer.value is None:
        raise Refusal("InvalidRecordError", "wrapper without a value", position=position)
    inner, _ = read_wrapped(outer, position=position)
    return _placed(outer, inner, position=position, least_offset=least_offset)


def read_wrapped(outer: Message, *, position: int) -> tuple[list[Message], int]:
    """The whole messages inside a wrapper, and how many bytes of an incomplete one follow."""
    payload = outer.value or b""
    if outer.magic == 0 and outer.codec == codecs.LZ4 and len(payload) > 6:
        payload = payload[:6] + bytes([codecs.xxh32(payload[4:6]) >> 8 & 0xFF]) + payload[7:]
    try:
        content = codecs.decompress(outer.codec, payload, limit=reference.MAX_DECOMPRESSED_BYTES)
    except codecs.UndecodableError as error:
        raise Refusal("DecompressionError", str(error), position=position) from error
    starts = []
    at = 0
    while len(content) - at >= 12:
        size = ENTRY_HEAD.unpack_from(content, at)[1] + 12
        if size < LEAST_ENTRY_BYTES[0]:
            raise Refusal("CorruptRecordError", "inner message too small", position=position, found=size)
        if size > len(content) - at:
            break
        magic, attributes = content[at + 16], content[at + 17]
        if magic > 1:
            raise Refusal("InvalidRecordError", "inner magic", position=position, found=magic)
        if size < LEAST_ENTRY_BYTES[magic]:
            raise Refusal("CorruptRecordError", "inner message too small", position=position, found=size)
        if attributes & 7:
            raise Refusal("InvalidRecordError", "wrapper inside a wrapper", position=position)
        starts.append(at)
        at += size
    if not starts:
        raise Refusal("InvalidRecordError", "empty wrapper", position=position)
    return [parse_message(content, start, position=position) for start in starts], len(content) - at


def _placed(outer: Message, inner: list[Message], *, position: int, least_offset: int) -> list[Record]:
    base = 0
    if outer.magic and outer.offset:
        if outer.offset < inner[-1].offset:
            raise Refusal("InvalidRecordError", "wrapper offset", position=position, found=outer.offset)
        base = outer.offset - inner[-1].offset
    most = outer.offset or MAX_INT64 - 1
    out = []
    for message in inner:
        offset = reference.wrap64(base + message.offset)
        if not out and offset < least_offset:
            raise Refusal("CorruptRecordError", "offsets go back", position=position, found=offset)
        if not least_offset <= offset <= most:
            raise Refusal("InvalidRecordError", "inner offset", position=position, found=offset)
        least_offset = offset + 1
        out.append(_record(outer, message, offset))
    return out


def _record(outer: Message, message: Message, offset: int) -> Record:
    timestamp_type = outer.timestamp_type if message.magic else NO_TIMESTAMP_TYPE
    timestamp_ms = outer.timestamp_ms if timestamp_type == LOG_APPEND_TIME else message.timestamp_ms
    return Record(offset, timestamp_ms, timestamp_type, message.key, message.value)


def read_log(data: bytes) -> list[tuple[int, list[Record]]]:
    """Position and records of each batch, message and wrapper of a whole log of any magics."""
    out = []
    at = 0
    while at < len(data):
        if len(data) - at > 16 and data[at + 16] < 2:
            out.append((at, read_entry(data, at)))
            at += ENTRY_HEAD.unpack_from(data, at)[1] + 12
        else:
            batch = reference.read_batch(data, at)
            out.append((at, batch.records))
            at += batch.header.size
    return out
