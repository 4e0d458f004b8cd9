"""Slow, strict reading and plain writing of the four compression streams, after docs/format.md.

Framing is parsed here byte by byte; only raw LZ4 blocks, deflate and zstd frames go to a package, so
that the framing rules of kstore.compression have an oracle. Never imports kstore.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import cramjam
import lz4.block
import lz4.frame
import zstandard

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
MOST_EMPTY_GZIP_MEMBERS = 1000
GZIP_MAGIC = b"\x1f\x8b\x08"
LEAST_GZIP_MEMBER_BYTES = 19
XERIAL_BLOCK_BYTES = 32 * 1024
LZ4_MAGIC = b"\x04\x22\x4d\x18"
LZ4_BLOCK_BYTES = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZSTD_SKIPPABLE_MAGIC = 0x184D2A50
MAX_ZSTD_WINDOW_BYTES = 1 << 27


class UndecodableError(Exception):
    """The payload is not exactly a stream of its codec, or its content exceeds the limit."""


def compress(codec: int, data: bytes) -> bytes:
    """Compress as Kafka's producer frames it."""
    return _COMPRESSORS[codec](data)


def decompress(codec: int, payload: bytes, *, limit: int) -> bytes:
    """Decompress a whole payload of at most limit bytes of content; raises UndecodableError."""
    return payload if codec == NONE else _DECOMPRESSORS[codec](payload, limit)


# gzip


def gzip_compress(data: bytes) -> bytes:
    compressor = zlib.compressobj(6, zlib.DEFLATED, 31)
    return compressor.compress(data) + compressor.flush()


def gzip_decompress(payload: bytes, limit: int) -> bytes:
    out = bytearray()
    empty_members = 0
    while True:
        decompressor, size_before = zlib.decompressobj(31), len(out)
        try:
            out += decompressor.decompress(payload, limit - len(out) + 1)
        except zlib.error as error:
            raise UndecodableError(str(error)) from error
        if len(out) > limit:
            raise UndecodableError(f"more than {limit} bytes of content")
        if not decompressor.eof:
            raise UndecodableError("gzip member cut off")
        empty_members = empty_members + 1 if len(out) == size_before else 0
        if empty_members > MOST_EMPTY_GZIP_MEMBERS:
            raise UndecodableError("too many empty gzip members")
        payload = decompressor.unused_data
        if len(payload) < LEAST_GZIP_MEMBER_BYTES or not payload.startswith(GZIP_MAGIC):
            return bytes(out)


# snappy


def snappy_compress(data: bytes, block_bytes: int = XERIAL_BLOCK_BYTES) -> bytes:
    chunks = [XERIAL_HEADER]
    for start in range(0, len(data), block_bytes):
        block = snappy_compress_raw(data[start : start + block_bytes])
        chunks += [struct.pack(">i", len(block)), block]
    return b"".join(chunks)


def snappy_compress_raw(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def snappy_decompress(payload: bytes, limit: int) -> bytes:
    if len(payload) < len(XERIAL_HEADER) or not payload.startswith(XERIAL_MAGIC):
        return snappy_decompress_raw(payload, limit)
    at, out = 0, bytearray()
    while at < len(payload):
        if payload.startswith(XERIAL_MAGIC, at):
            (version,) = struct.unpack(">i", _snappy_take(payload, at + 8, 8)[:4])
            if at and version < 1:
                raise UndecodableError(f"xerial version {version}")
            at += len(XERIAL_HEADER)
            continue
        if len(payload) - at < 4:
            break
        (size,) = struct.unpack(">i", _snappy_take(payload, at, 4))
        at += 4
        if size < 0:
            raise UndecodableError(f"xerial chunk of {size} bytes")
        out += snappy_decompress_raw(_snappy_take(payload, at, size), limit - len(out))
        at += size
    return bytes(out)


def snappy_decompress_raw(block: bytes, limit: int) -> bytes:
    expected, at = _snappy_length(block)
    if expected > limit:
        raise UndecodableError(f"{expected} bytes of content declared, the limit is {limit}")
    out = bytearray()
    while at < len(block):
        tag = block[at]
        at += 1
        if tag & 3 == 0:
            size = (tag >> 2) + 1
            if size > 60:
                width = size - 60
                size = int.from_bytes(_snappy_take(block, at, width), "little") + 1
                at += width
            out += _snappy_take(block, at, size)
            at += size
        else:
            width = (0, 1, 2, 4)[tag & 3]
            distance = int.from_bytes(_snappy_take(block, at, width), "little")
            at += width
            size = (tag >> 2) + 1
            if width == 1:
                distance |= (tag >> 5) << 8
                size = (tag >> 2 & 7) + 4
            if not 0 < distance <= len(out):
                raise UndecodableError(f"snappy copy from {distance} bytes back")
            pattern = out[-distance:][:size]
            out += (pattern * (size // len(pattern) + 1))[:size]
        if len(out) > expected:
            raise UndecodableError("snappy block longer than declared")
    if len(out) != expected:
        raise UndecodableError("snappy block shorter than declared")
    return bytes(out)


def _snappy_take(block: bytes, at: int, size: int) -> bytes:
    if size > len(block) - at:
        raise UndecodableError("snappy block cut off")
    return block[at : at + size]


def _snappy_length(block: bytes) -> tuple[int, int]:
    value = 0
    for i in range(5):
        if i >= len(block):
            break
        value |= (block[i] & 0x7F) << 7 * i
        if block[i] < 0x80:
            if value >= 1 << 32:
                break
            return value, i + 1
    raise UndecodableError("snappy length cut off or too long")


# lz4


def lz4_compress(data: bytes) -> bytes:
    return bytes(lz4.frame.compress(data, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False))


def lz4_decompress(payload: bytes, limit: int) -> bytes:
    at, block_bytes, flags, stated_size = _lz4_frame_header(payload)
    out = bytearray()
    while True:
        (word,) = struct.unpack("<I", _lz4_take(payload, at, 4))
        at += 4
        if word == 0:
            break
        size = word & 0x7FFFFFFF
        if not 0 < size <= block_bytes:
            raise UndecodableError(f"lz4 block of {size} bytes")
        block = _lz4_take(payload, at, size)
        at += size
        if flags & 0x10:
            if struct.unpack("<I", _lz4_take(payload, at, 4))[0] != xxh32(block):
                raise UndecodableError("lz4 block checksum")
            at += 4
        out += block if word >> 31 else _lz4_block(block, block_bytes)
        if len(out) > limit:
            raise UndecodableError(f"more than {limit} bytes of content")
    if stated_size and stated_size != len(out):
        raise UndecodableError("lz4 content size")
    if flags & 0x04 and struct.unpack("<I", _lz4_take(payload, at, 4))[0] != xxh32(bytes(out)):
        raise UndecodableError("lz4 content checksum")
    return bytes(out)


def _lz4_frame_header(payload: bytes) -> tuple[int, int, int, int]:
    if _lz4_take(payload, 0, 4) != LZ4_MAGIC:
        raise UndecodableError("lz4 magic")
    flags, block_descriptor = _lz4_take(payload, 4, 2)
    if flags & 0xE3 != 0x60:
        raise UndecodableError(f"lz4 flags 0x{flags:02x}: version 1, independent blocks and no dictionary wanted")
    if block_descriptor & 0x8F or block_descriptor >> 4 not in LZ4_BLOCK_BYTES:
        raise UndecodableError(f"lz4 block descriptor 0x{block_descriptor:02x}")
    stated_size = 0
    at = 6
    if flags & 0x08:
        (stated_size,) = struct.unpack("<Q", _lz4_take(payload, at, 8))
        at += 8
    if _lz4_take(payload, at, 1)[0] != xxh32(payload[4:at]) >> 8 & 0xFF:
        raise UndecodableError("lz4 header checksum")
    return at + 1, LZ4_BLOCK_BYTES[block_descriptor >> 4], flags, stated_size


def _lz4_block(block: bytes, block_bytes: int) -> bytes:
    if _breaks_lz4_rules(block):
        raise UndecodableError("lz4 copy from offset 0, or fewer than five literals behind a copy")
    try:
        return bytes(lz4.block.decompress(block, uncompressed_size=block_bytes))
    except lz4.block.LZ4BlockError as error:
        raise UndecodableError(str(error)) from error


def _breaks_lz4_rules(block: bytes) -> bool:
    """Whether the block breaks one of the rules on which versions of the package differ."""
    at = 0
    while at < len(block):
        token = block[at]
        literals, at = _lz4_length(token >> 4, block, at + 1)
        at += literals
        if at >= len(block):
            break
        offset = block[at : at + 2]
        _, at = _lz4_length(token & 15, block, at + 2)
        if offset == bytes(2) or len(block) - at < 6:
            return True
    return False


def _lz4_length(length: int, block: bytes, at: int) -> tuple[int, int]:
    more = 255 if length == 15 else 0
    while more == 255 and at < len(block):
        more = block[at]
        length += more
        at += 1
    return length, at


def _lz4_take(payload: bytes, at: int, size: int) -> bytes:
    if size > len(payload) - at:
        raise UndecodableError("lz4 frame cut off")
    return payload[at : at + size]


_P1, _P2, _P3, _P4, _P5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393


def _rotate(value: int, by: int) -> int:
    value &= 0xFFFFFFFF
    return (value << by | value >> 32 - by) & 0xFFFFFFFF


def xxh32(data: bytes, seed: int = 0) -> int:
    """xxHash32, whose second byte is the checksum of an LZ4 frame header."""
    at = 0
    if len(data) >= 16:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        while len(data) - at >= 16:
            words = struct.unpack_from("<4I", data, at)
            lanes = [_rotate(lane + word * _P2, 13) * _P1 for lane, word in zip(lanes, words, strict=True)]
            at += 16
        value = sum(_rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        value = seed + _P5
    value += len(data)
    while len(data) - at >= 4:
        value = _rotate(value + struct.unpack_from("<I", data, at)[0] * _P3, 17) * _P4
        at += 4
    for byte in data[at:]:
        value = _rotate(value + byte * _P5, 11) * _P1
    value &= 0xFFFFFFFF
    value = (value ^ value >> 15) * _P2 & 0xFFFFFFFF
    value = (value ^ value >> 13) * _P3 & 0xFFFFFFFF
    return value ^ value >> 16


# zstd


def zstd_compress(data: bytes) -> bytes:
    compressor = zstandard.ZstdCompressor(level=3, write_content_size=False).compressobj()
    return compressor.compress(data) + compressor.flush()


def zstd_decompress(payload: bytes, limit: int) -> bytes:
    if not payload:
        raise UndecodableError("no zstd frame")
    out = bytearray()
    while payload:
        magic, size = struct.unpack("<II", payload[:8].ljust(8, b"\0"))
        if magic & ~15 == ZSTD_SKIPPABLE_MAGIC:
            if len(payload) < 8 + size:
                raise UndecodableError("skippable zstd frame cut off")
            payload = payload[8 + size :]
        else:
            content, payload = _zstd_decompress_frame(payload, limit - len(out))
            out += content
    return bytes(out)


def _zstd_decompress_frame(payload: bytes, limit: int) -> tuple[bytes, bytes]:
    """The content of the first frame, and the bytes after it."""
    if not payload.startswith(ZSTD_MAGIC):
        raise UndecodableError("zstd magic")
    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW_BYTES)
    try:
        stated_size = zstandard.get_frame_parameters(payload).content_size
        if stated_size != zstandard.CONTENTSIZE_UNKNOWN and stated_size > limit:
            raise UndecodableError(f"{stated_size} bytes of content declared, the limit is {limit}")
        if len(decompressor.stream_reader(payload).read(limit + 1)) > limit:
            raise UndecodableError(f"more than {limit} bytes of content")
        frame = decompressor.decompressobj()
        data = frame.decompress(payload)
    except zstandard.ZstdError as error:
        raise UndecodableError(str(error)) from error
    if not frame.eof:
        raise UndecodableError("zstd frame cut off")
    return data, frame.unused_data


_COMPRESSORS: tuple[Callable[[bytes], bytes], ...] = (
    bytes,
    gzip_compress,
    snappy_compress,
    lz4_compress,
    zstd_compress,
)
_DECOMPRESSORS: dict[int, Callable[[bytes, int], bytes]] = {
    GZIP: gzip_decompress,
    SNAPPY: snappy_decompress,
    LZ4: lz4_decompress,
    ZSTD: zstd_decompress,
}
