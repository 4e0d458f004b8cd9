"""V0 and V1 messages written by their fields, and wrapper values undone: an oracle that never imports kstore."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from tests.reference import codecs as codecs
from tests.reference.codec import TIMESTAMP_TYPE_BIT


def packed(value: bytes | None, key: bytes | None, *, magic: int, timestamp_ms: int = -1, attributes: int = 0) -> bytes:
    """A message by its fields, the CRC in front."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp_ms) if magic else b"")
    for field in (key, value):
        body += struct.pack(">i", -1 if field is None else len(field)) + (field or b"")
    return struct.pack(">I", zlib.crc32(body)) + body


def packed_entry(value: bytes | None, key: bytes | None, *, offset: int, **fields: int) -> bytes:
    """An entry of a message set: offset, size, message."""
    message = packed(value, key, **fields)
    return struct.pack(">qi", offset, len(message)) + message


def write_wrapper(
    messages: Sequence[bytes], *, magic: int, codec: int, offset: int, timestamp_ms: int = -1, appended: bool = False
) -> bytes:
    """A compressed message around whole entries (their offsets as they are to be stored), with its offset."""
    payload = codecs.compress(codec, b"".join(messages))
    if magic == 0 and codec == codecs.LZ4:
        payload = payload[:6] + bytes([codecs.xxh32(payload[:6]) >> 8 & 0xFF]) + payload[7:]
    attributes = codec | (TIMESTAMP_TYPE_BIT if appended else 0)
    return packed_entry(payload, None, offset=offset, magic=magic, attributes=attributes, timestamp_ms=timestamp_ms)


def decompressed(payload: bytes, *, magic: int, codec: int) -> bytes:
    """What the reference codec finds; the header checksum of V0's lz4 is put right first."""
    if magic == 0 and codec == codecs.LZ4:
        assert payload[6] == codecs.xxh32(payload[:6]) >> 8 & 0xFF
        payload = payload[:6] + bytes([codecs.xxh32(payload[4:6]) >> 8 & 0xFF]) + payload[7:]
    return codecs.decompress(codec, payload, limit=1 << 24)
