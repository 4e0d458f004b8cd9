"""Goal: input made to hurt is refused in bounded memory, never with a crash or a hang.

Method: a table of hostile batches, CRC always right unless the row is about it; each is read as records and as
columns under a limit, with the error class written out and Python's allocations traced.
"""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import crc32c
import pytest
import zstandard

from kstore import _core
from kstore.compression import decompress
from kstore.errors import DecompressionError
from tests.making import batches as builders
from tests.making.collecting import over
from tests.making.writing import builder_of
from tests.reference import codec as reference
from tests.reference import codecs as codecs
from tests.reference.codec import Header, encode_varint
from tests.reference.verdicts import (
    Refused,
    column_verdict,
    core_batch_verdict,
    expected_column_verdict,
    reference_batch_verdict,
)

LIMIT = 2 << 20
ALLOWED_BYTES = 16 << 20
BOMB_BYTES = 64 << 20
MAX_INT32 = 2**31 - 1
# Each row must be decided at once; this only ends a hang.
pytestmark = pytest.mark.timeout(120)


def seal(payload: bytes, **fields: int) -> bytes:
    """A batch of one record around payload, with some header fields replaced; fast enough for large payloads."""
    header = Header(**{"record_count": 1, "batch_length": 49 + len(payload)} | fields)
    signed = header.pack()[reference.ATTRIBUTES_AT :] + payload
    unsigned = header.pack()[: reference.CRC_AT]
    return unsigned + crc32c.crc32c(signed).to_bytes(4, "big") + signed


def sized(body: bytes) -> bytes:
    return encode_varint(len(body)) + body


PLAIN = sized(b"\0\0\0\x02k\x02v\0")
GOOD = seal(PLAIN)


def compressed(codec: int, payload: bytes) -> bytes:
    return seal(payload, attributes=codec)


@contextmanager
def bounded_memory(allowed_bytes: int) -> Iterator[None]:
    """Fail if Python objects made inside take more than that at any moment."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before <= allowed_bytes


FRAMES = {
    "T1 size -1": (builders.patch_header(GOOD, batch_length=-1, repair_crc=False), "CorruptRecordError"),
    "T2 size 0": (builders.patch_header(GOOD, batch_length=0, repair_crc=False), "CorruptRecordError"),
    "T3 size 48": (builders.patch_header(GOOD, batch_length=48, repair_crc=False), "CorruptRecordError"),
    "T4 size 2^31-1": (builders.patch_header(GOOD, batch_length=MAX_INT32, repair_crc=False), "CorruptRecordError"),
    "T5 size past the end": (GOOD[:-1], "CorruptRecordError"),
    "T6 magic -1": (builders.patch_header(GOOD, magic=-1), "UnsupportedMagicError"),
    "T6 magic 3": (builders.patch_header(GOOD, magic=3), "UnsupportedMagicError"),
    "T6 magic 127": (builders.patch_header(GOOD, magic=127), "UnsupportedMagicError"),
    "T6 magic 0 with a body of magic 2": (builders.patch_header(GOOD, magic=0), "UnsupportedMagicError"),
    "T6 magic 1 with a body of magic 2": (builders.patch_header(GOOD, magic=1), "UnsupportedMagicError"),
    "T7 count 2^31-1": (seal(PLAIN, record_count=MAX_INT32, last_offset_delta=MAX_INT32), "InvalidRecordError"),
    "T7 count -1": (seal(PLAIN, record_count=-1), "InvalidRecordError"),
    "T7 count 0 with bytes": (seal(PLAIN, record_count=0), "InvalidRecordError"),
    "T7 count n+1": (seal(PLAIN, record_count=2, last_offset_delta=1), "InvalidRecordError"),
    "T7 count n-1": (seal(PLAIN + PLAIN, last_offset_delta=1), "InvalidRecordError"),
    "T8 last offset delta -1": (seal(PLAIN, last_offset_delta=-1), "InvalidRecordError"),
    "T8 last offset delta below count-1": (seal(PLAIN + PLAIN, record_count=2), "InvalidRecordError"),
    "T8 base offset 2^63-1": (seal(PLAIN, base_offset=2**63 - 1), "CorruptRecordError"),
    "T8 last offset 2^63": (seal(PLAIN, base_offset=2**63 - 9, last_offset_delta=MAX_INT32), "CorruptRecordError"),
    "T9 base offset with its sign flipped": (seal(PLAIN, base_offset=-(2**63)), "CorruptRecordError"),
    "T10 wrong CRC": (builders.patch_header(GOOD, crc=1, repair_crc=False), "CorruptRecordError"),
    "T10 codec 5": (seal(PLAIN, attributes=5), "UnsupportedCompressionTypeError"),
    "T10 codec 6": (seal(PLAIN, attributes=6), "UnsupportedCompressionTypeError"),
    "T10 codec 7": (seal(PLAIN, attributes=7), "UnsupportedCompressionTypeError"),
    "T11 record length -1": (seal(b"\x01" + PLAIN[1:]), "InvalidRecordError"),
    "T11 record length 0": (seal(b"\x00" + PLAIN[1:]), "InvalidRecordError"),
    "T11 record length past the end": (seal(encode_varint(len(PLAIN)) + PLAIN[1:]), "InvalidRecordError"),
    "T11 record length 2^31-1": (seal(encode_varint(MAX_INT32) + PLAIN[1:]), "InvalidRecordError"),
    "T11 varint of six bytes": (seal(b"\x90\x80\x80\x80\x80\x00" + PLAIN[1:]), "InvalidRecordError"),
    "T11 varlong of eleven bytes": (seal(sized(b"\0" + b"\x80" * 10 + PLAIN[2:])), "InvalidRecordError"),
    "T12 key length -2": (seal(sized(b"\0\0\0\x03\x02v\0")), "InvalidRecordError"),
    "T12 key length 2^31-1": (seal(sized(b"\0\0\0" + encode_varint(MAX_INT32) + b"k\x02v\0")), "InvalidRecordError"),
    "T12 value length -2": (seal(sized(b"\0\0\0\x01\x03v\0")), "InvalidRecordError"),
    "T12 value length 2^31-1": (seal(sized(b"\0\0\0\x01" + encode_varint(MAX_INT32) + b"v\0")), "InvalidRecordError"),
    "T12 value one past the record": (seal(sized(b"\0\0\0\x01\x04v")), "InvalidRecordError"),
    "T12 header count 2^31-1": (seal(sized(b"\0\0\0\x01\x01" + encode_varint(MAX_INT32))), "InvalidRecordError"),
    "T12 header count -1": (seal(sized(b"\0\0\0\x01\x01\x01")), "InvalidRecordError"),
    "T12 header value length -2": (seal(sized(b"\0\0\0\x01\x01\x02\x02h\x03")), "InvalidRecordError"),
    "T12 header value one past the record": (seal(sized(b"\0\0\0\x01\x01\x02\x02h\x02")), "InvalidRecordError"),
    "T12 header key one past the record": (seal(sized(b"\0\0\0\x01\x01\x02\x04h")), "InvalidRecordError"),
    "T12 header key length -1": (seal(sized(b"\0\0\0\x01\x01\x02\x01\x01")), "InvalidRecordError"),
    "T13 record longer than its fields": (seal(sized(b"\0\0\0\x01\x01\0\0")), "InvalidRecordError"),
    "T13 record shorter than its fields": (seal(sized(b"\0\0\0\x01\x01") + b"\0\0"), "InvalidRecordError"),
    "T13 bytes after the last record": (seal(PLAIN + b"\0"), "InvalidRecordError"),
}


def both_verdicts(data: bytes) -> Refused:
    """The refusal that records and columns agree on, found in bounded memory."""
    with bounded_memory(LIMIT + ALLOWED_BYTES):
        records = core_batch_verdict(data, limit=LIMIT)
        columns = column_verdict(data, limit=LIMIT)
    assert isinstance(records, Refused)
    assert columns == records
    return records


@pytest.mark.parametrize(("data", "error"), FRAMES.values(), ids=list(FRAMES))
def test_hostile_frame_header_or_record_is_refused(data: bytes, error: str) -> None:
    assert both_verdicts(data) == Refused(error, 0)
    assert reference_batch_verdict(data) == Refused(error, 0)


def zstd_frame(*, descriptor: int, window: bytes = b"", size: bytes = b"", blocks: bytes) -> bytes:
    return codecs.ZSTD_MAGIC + bytes([descriptor]) + window + size + blocks


def lz4_frame(*, flags: int = 0x60, descriptor: int = 0x40, size: bytes = b"", blocks: bytes) -> bytes:
    head = bytes([flags, descriptor]) + size
    return codecs.LZ4_MAGIC + head + bytes([codecs.xxh32(head) >> 8 & 0xFF]) + blocks


def lz4_raw_block(data: bytes) -> bytes:
    return struct.pack("<I", len(data) | 1 << 31) + data


def xerial(*chunks: bytes, version: int = 1) -> bytes:
    return codecs.XERIAL_MAGIC + struct.pack(">ii", version, 1) + b"".join(chunks)


def gzip_member(data: bytes, *, flags: int = 0, extra: bytes = b"") -> bytes:
    deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
    body = deflate.compress(data) + deflate.flush()
    head = b"\x1f\x8b\x08" + bytes([flags]) + bytes(4) + b"\x00\xff" + extra
    return head + body + struct.pack("<II", zlib.crc32(data), len(data))


END_MARK = bytes(4)
EMPTY_LZ4_BLOCK = struct.pack("<I", 1) + b"\0"
RAW_ZSTD_BLOCK = (len(PLAIN) << 3 | 1).to_bytes(3, "little") + PLAIN
NO_ZSTD_BLOCK = b"\1\0\0"
EMPTY_ZSTD = zstd_frame(descriptor=0x20, size=b"\0", blocks=NO_ZSTD_BLOCK)
SKIPPABLE = b"\x50\x2a\x4d\x18" + bytes(4)
SKIPPABLE_TEXT = b"\x5f\x2a\x4d\x18" + struct.pack("<I", 5) + b"hello"
LEGACY_HEADER_CHECKSUM = b"\x1a"
GOOD_LZ4 = lz4_frame(blocks=lz4_raw_block(PLAIN) + END_MARK)
CHECKED_LZ4 = lz4_frame(flags=0x64, blocks=lz4_raw_block(PLAIN) + END_MARK) + struct.pack("<I", codecs.xxh32(PLAIN))
GOOD_GZIP = gzip_member(PLAIN)
RAW_SNAPPY = codecs.snappy_compress_raw(PLAIN)
SNAPPY_CHUNK = struct.pack(">i", len(RAW_SNAPPY)) + RAW_SNAPPY

PAYLOADS: dict[str, tuple[int, Callable[[], bytes]]] = {
    "T15 gzip bomb": (codecs.GZIP, lambda: codecs.gzip_compress(bytes(BOMB_BYTES))),
    "T16 lz4 bomb": (codecs.LZ4, lambda: codecs.lz4_compress(bytes(BOMB_BYTES))),
    "T17 snappy bomb in blocks": (codecs.SNAPPY, lambda: codecs.snappy_compress(bytes(BOMB_BYTES))),
    "T17 snappy bomb in one block": (codecs.SNAPPY, lambda: codecs.snappy_compress_raw(bytes(BOMB_BYTES))),
    "T18 zstd bomb": (codecs.ZSTD, lambda: codecs.zstd_compress(bytes(BOMB_BYTES))),
    "T18 zstd bomb that tells its size": (
        codecs.ZSTD,
        lambda: zstandard.ZstdCompressor(write_content_size=True).compress(bytes(BOMB_BYTES)),
    ),
    "T19 zstd content size 2^40": (
        codecs.ZSTD,
        lambda: zstd_frame(descriptor=0xE0, size=struct.pack("<Q", 2**40), blocks=RAW_ZSTD_BLOCK),
    ),
    "T19 zstd content size too small": (
        codecs.ZSTD,
        lambda: zstd_frame(descriptor=0x20, size=b"\x05", blocks=RAW_ZSTD_BLOCK),
    ),
    "T19 zstd content size 0 with content": (
        codecs.ZSTD,
        lambda: zstd_frame(descriptor=0x20, size=b"\x00", blocks=RAW_ZSTD_BLOCK),
    ),
    "T19 zstd window of 2^31 and more": (
        codecs.ZSTD,
        lambda: zstd_frame(descriptor=0, window=bytes([21 << 3]), blocks=RAW_ZSTD_BLOCK),
    ),
    "T19 zstd largest window": (codecs.ZSTD, lambda: zstd_frame(descriptor=0, window=b"\xff", blocks=RAW_ZSTD_BLOCK)),
    "T19 zstd dictionary": (
        codecs.ZSTD,
        lambda: zstd_frame(descriptor=0x21, window=b"\x09", size=bytes([len(PLAIN)]), blocks=RAW_ZSTD_BLOCK),
    ),
    "T19 zstd reserved bit": (
        codecs.ZSTD,
        lambda: zstd_frame(descriptor=0x28, size=bytes([len(PLAIN)]), blocks=RAW_ZSTD_BLOCK),
    ),
    "T19 zstd reserved block type": (codecs.ZSTD, lambda: zstd_frame(descriptor=0, window=b"\0", blocks=b"\x07\0\0")),
    "T19 zstd without its last block": (
        codecs.ZSTD,
        lambda: zstd_frame(descriptor=0, window=b"\0", blocks=bytes([RAW_ZSTD_BLOCK[0] & 0xFE]) + RAW_ZSTD_BLOCK[1:]),
    ),
    "T19 zstd wrong checksum": (
        codecs.ZSTD,
        lambda: zstandard.ZstdCompressor(write_checksum=True).compress(PLAIN)[:-1] + b"\0",
    ),
    "T19 zstd wrong checksum of no content": (
        codecs.ZSTD,
        lambda: zstandard.ZstdCompressor(write_checksum=True).compress(b"")[:-1] + b"\0",
    ),
    "T19 zstd no bytes": (codecs.ZSTD, lambda: b""),
    "T19 zstd garbage after the frame": (codecs.ZSTD, lambda: codecs.zstd_compress(PLAIN) + b"garbage!"),
    "T19 zstd zeros after the frame": (codecs.ZSTD, lambda: codecs.zstd_compress(PLAIN) + bytes(9)),
    "T19 zstd skippable frame cut off": (codecs.ZSTD, lambda: codecs.zstd_compress(PLAIN) + SKIPPABLE_TEXT[:-1]),
    "T19 zstd header of a skippable frame cut off": (codecs.ZSTD, lambda: codecs.zstd_compress(PLAIN) + SKIPPABLE[:7]),
    "T19 zstd second frame cut off": (codecs.ZSTD, lambda: codecs.zstd_compress(PLAIN) + EMPTY_ZSTD[:-1]),
    "T19 zstd second frame cut off in its checksum": (
        codecs.ZSTD,
        lambda: codecs.zstd_compress(PLAIN) + zstandard.ZstdCompressor(write_checksum=True).compress(b"")[:-1],
    ),
    "T19 zstd wrong checksum of a second frame of no content": (
        codecs.ZSTD,
        lambda: codecs.zstd_compress(PLAIN) + zstandard.ZstdCompressor(write_checksum=True).compress(b"")[:-1] + b"\0",
    ),
    "T19 zstd second frame of no content with a window of 2^31": (
        codecs.ZSTD,
        lambda: codecs.zstd_compress(PLAIN) + zstd_frame(descriptor=0, window=bytes([21 << 3]), blocks=NO_ZSTD_BLOCK),
    ),
    "T19 zstd second frame that declares content and has none": (
        codecs.ZSTD,
        lambda: codecs.zstd_compress(PLAIN) + zstd_frame(descriptor=0x20, size=b"\x05", blocks=NO_ZSTD_BLOCK),
    ),
    "T19 zstd frames beyond the limit together": (codecs.ZSTD, lambda: codecs.zstd_compress(bytes(LIMIT // 2)) * 3),
    "T20 lz4 block above the maximum": (
        codecs.LZ4,
        lambda: lz4_frame(blocks=lz4_raw_block(bytes((64 << 10) + 1)) + END_MARK),
    ),
    "T20 lz4 block length 2^31-1": (codecs.LZ4, lambda: lz4_frame(blocks=b"\xff\xff\xff\x7f" + END_MARK)),
    "T20 lz4 wrong header checksum": (codecs.LZ4, lambda: GOOD_LZ4[:6] + b"\x83" + GOOD_LZ4[7:]),
    "T20 lz4 header checksum of magic 0": (
        codecs.LZ4,
        lambda: GOOD_LZ4[:6] + LEGACY_HEADER_CHECKSUM + GOOD_LZ4[7:],
    ),
    "T20 lz4 content size too small": (
        codecs.LZ4,
        lambda: lz4_frame(flags=0x68, size=struct.pack("<Q", 1), blocks=lz4_raw_block(PLAIN) + END_MARK),
    ),
    "T20 lz4 content size 2^63": (
        codecs.LZ4,
        lambda: lz4_frame(flags=0x68, size=struct.pack("<Q", 2**63), blocks=lz4_raw_block(PLAIN) + END_MARK),
    ),
    "T20 lz4 dependent blocks": (codecs.LZ4, lambda: lz4_frame(flags=0x40, blocks=lz4_raw_block(PLAIN) + END_MARK)),
    "T20 lz4 dictionary": (
        codecs.LZ4,
        lambda: lz4_frame(flags=0x61, size=bytes(4), blocks=lz4_raw_block(PLAIN) + END_MARK),
    ),
    "T20 lz4 version 2": (codecs.LZ4, lambda: lz4_frame(flags=0xA0, blocks=lz4_raw_block(PLAIN) + END_MARK)),
    "T20 lz4 reserved flag": (codecs.LZ4, lambda: lz4_frame(flags=0x62, blocks=lz4_raw_block(PLAIN) + END_MARK)),
    "T20 lz4 reserved descriptor bits": (
        codecs.LZ4,
        lambda: lz4_frame(descriptor=0x41, blocks=lz4_raw_block(PLAIN) + END_MARK),
    ),
    "T20 lz4 block maximum below 64 KiB": (
        codecs.LZ4,
        lambda: lz4_frame(descriptor=0x30, blocks=lz4_raw_block(PLAIN) + END_MARK),
    ),
    "T20 lz4 wrong block checksum": (
        codecs.LZ4,
        lambda: lz4_frame(flags=0x70, blocks=lz4_raw_block(PLAIN) + bytes(4) + END_MARK),
    ),
    "T20 lz4 wrong content checksum": (
        codecs.LZ4,
        lambda: lz4_frame(flags=0x64, blocks=lz4_raw_block(PLAIN) + END_MARK + bytes(4)),
    ),
    "T20 lz4 without its end mark": (codecs.LZ4, lambda: lz4_frame(blocks=lz4_raw_block(PLAIN))),
    "T20 lz4 stored block of no bytes, which Kafka takes for the end mark": (
        codecs.LZ4,
        lambda: lz4_frame(blocks=lz4_raw_block(PLAIN) + lz4_raw_block(b"") + END_MARK),
    ),
    "T20 lz4 content checksum cut off": (codecs.LZ4, lambda: CHECKED_LZ4[:-1]),
    "T20 lz4 wrong content checksum before other bytes": (codecs.LZ4, lambda: CHECKED_LZ4[:-4] + bytes(8)),
    "T20 lz4 skippable frame": (codecs.LZ4, lambda: SKIPPABLE + GOOD_LZ4),
    "T20 lz4 legacy frame": (codecs.LZ4, lambda: b"\x02\x21\x4c\x18" + GOOD_LZ4[4:]),
    "T20 lz4 copy from before the block": (
        codecs.LZ4,
        lambda: lz4_frame(blocks=struct.pack("<I", 4) + b"\x0f\xff\xff\xff" + END_MARK),
    ),
    "T20 lz4 no bytes": (codecs.LZ4, lambda: b""),
    "T21 snappy block length 2^31-1": (codecs.SNAPPY, lambda: xerial(b"\x7f\xff\xff\xff" + RAW_SNAPPY)),
    "T21 snappy block length -1": (codecs.SNAPPY, lambda: xerial(b"\xff\xff\xff\xff" + RAW_SNAPPY)),
    "T21 snappy a million empty blocks": (codecs.SNAPPY, lambda: xerial(bytes(4) * 1_000_000)),
    "T21 snappy declares 2^32-1 in six bytes": (codecs.SNAPPY, lambda: b"\xff\xff\xff\xff\x0f\x00"),
    "T21 snappy declares more than its bytes can hold": (codecs.SNAPPY, lambda: b"\x80\x80\x40" + b"\0" * 20),
    "T21 snappy length of six bytes": (codecs.SNAPPY, lambda: b"\x80" * 5 + b"\x00"),
    "T21 snappy version 0 in a later header": (
        codecs.SNAPPY,
        lambda: xerial(SNAPPY_CHUNK) + xerial(SNAPPY_CHUNK, version=0),
    ),
    "T21 snappy block of no bytes": (codecs.SNAPPY, lambda: xerial(SNAPPY_CHUNK + bytes(4))),
    "T21 snappy later header cut off": (codecs.SNAPPY, lambda: xerial(SNAPPY_CHUNK) + codecs.XERIAL_MAGIC),
    "T21 snappy block cut off": (codecs.SNAPPY, lambda: xerial(struct.pack(">i", 99) + RAW_SNAPPY)),
    "T21 snappy copy from before the start": (codecs.SNAPPY, lambda: b"\x08\x01\x05"),
    "T21 snappy copy of distance 0": (codecs.SNAPPY, lambda: b"\x09\x00a\x11\x00"),
    "T21 snappy more content than declared": (codecs.SNAPPY, lambda: bytes([RAW_SNAPPY[0] - 1]) + RAW_SNAPPY[1:]),
    "T21 snappy no bytes": (codecs.SNAPPY, lambda: b""),
    "T22 gzip reserved flags": (codecs.GZIP, lambda: gzip_member(PLAIN, flags=0xE0)),
    "T22 gzip name without an end": (codecs.GZIP, lambda: GOOD_GZIP[:3] + b"\x08" + GOOD_GZIP[4:10] + b"n" * 1_000_000),
    "T22 gzip extra field cut off": (codecs.GZIP, lambda: GOOD_GZIP[:3] + b"\x04" + GOOD_GZIP[4:10] + b"\xff\xff" * 99),
    "T22 gzip wrong content CRC": (codecs.GZIP, lambda: GOOD_GZIP[:-8] + bytes(4) + GOOD_GZIP[-4:]),
    "T22 gzip wrong content size": (codecs.GZIP, lambda: GOOD_GZIP[:-4] + bytes(4)),
    "T22 gzip cut off": (codecs.GZIP, lambda: GOOD_GZIP[:-1]),
    "T22 gzip members beyond the limit": (codecs.GZIP, lambda: gzip_member(bytes(LIMIT // 2)) * 3),
    "T22 a hundred thousand empty gzip members": (codecs.GZIP, lambda: gzip_member(b"") * 100_000 + GOOD_GZIP),
    "T22 1,001 empty gzip members": (codecs.GZIP, lambda: gzip_member(b"") * 1001 + GOOD_GZIP),
    "T22 zlib stream in place of gzip": (codecs.GZIP, lambda: zlib.compress(PLAIN, level=0)),
    "T22 gzip reserved flag in the second member": (
        codecs.GZIP,
        lambda: gzip_member(b"") + GOOD_GZIP[:3] + b"\x80" + GOOD_GZIP[4:],
    ),
    "T22 gzip wrong header checksum": (
        codecs.GZIP,
        lambda: GOOD_GZIP[:3] + b"\x02" + GOOD_GZIP[4:10] + b"\0\0" + GOOD_GZIP[10:],
    ),
    "T22 gzip no bytes": (codecs.GZIP, lambda: b""),
}


@pytest.mark.parametrize(("codec", "payload"), PAYLOADS.values(), ids=list(PAYLOADS))
def test_hostile_payload_is_refused_in_bounded_memory(codec: int, payload: Callable[[], bytes]) -> None:
    data = compressed(codec, payload())
    assert both_verdicts(data) == Refused("DecompressionError", 0)


def chunks_of(*parts: bytes) -> bytes:
    raw = [codecs.snappy_compress_raw(part) for part in parts]
    return b"".join(struct.pack(">i", len(block)) + block for block in raw)


# What Kafka's classes read (4.1.1 with zstd-jni 1.5.6, snappy-java 1.1.10, Java 17).
UNUSUAL = {
    "zstd two frames": (codecs.ZSTD, codecs.zstd_compress(PLAIN[:4]) + codecs.zstd_compress(PLAIN[4:])),
    "zstd skippable frame before": (codecs.ZSTD, SKIPPABLE_TEXT + codecs.zstd_compress(PLAIN)),
    "zstd skippable frame after": (codecs.ZSTD, codecs.zstd_compress(PLAIN) + SKIPPABLE_TEXT),
    "zstd skippable frame between": (
        codecs.ZSTD,
        codecs.zstd_compress(PLAIN[:4]) + SKIPPABLE_TEXT + codecs.zstd_compress(PLAIN[4:]),
    ),
    "zstd a thousand skippable frames": (codecs.ZSTD, SKIPPABLE * 1000 + codecs.zstd_compress(PLAIN)),
    "zstd empty frame before": (codecs.ZSTD, EMPTY_ZSTD + codecs.zstd_compress(PLAIN)),
    "zstd empty frame after": (codecs.ZSTD, codecs.zstd_compress(PLAIN) + EMPTY_ZSTD),
    "zstd empty frame with a checksum after": (
        codecs.ZSTD,
        codecs.zstd_compress(PLAIN) + zstandard.ZstdCompressor(write_checksum=True).compress(b""),
    ),
    "gzip two members": (codecs.GZIP, gzip_member(PLAIN[:4]) + gzip_member(PLAIN[4:])),
    "gzip garbage after the member": (codecs.GZIP, GOOD_GZIP + b"gar\0age" + bytes(20)),
    "gzip zeros after the member": (codecs.GZIP, GOOD_GZIP + bytes(100)),
    "gzip less than a member after the member": (codecs.GZIP, GOOD_GZIP + GOOD_GZIP[:18]),
    "gzip garbage after two members": (codecs.GZIP, gzip_member(PLAIN[:4]) + gzip_member(PLAIN[4:]) + b"garbage"),
    "lz4 byte after the frame": (codecs.LZ4, GOOD_LZ4 + b"\0"),
    "lz4 garbage after the frame": (codecs.LZ4, GOOD_LZ4 + b"garbage, longer than a checksum"),
    "lz4 garbage after the content checksum": (codecs.LZ4, CHECKED_LZ4 + b"garbage"),
    "lz4 second frame": (codecs.LZ4, GOOD_LZ4 * 2),
    "lz4 empty frame after": (codecs.LZ4, GOOD_LZ4 + lz4_frame(blocks=END_MARK)),
    "snappy version 0": (codecs.SNAPPY, xerial(SNAPPY_CHUNK, version=0)),
    "snappy two bytes after the last block": (codecs.SNAPPY, xerial(SNAPPY_CHUNK + b"\1\2")),
    "snappy three bytes after two blocks": (codecs.SNAPPY, xerial(chunks_of(PLAIN[:4], PLAIN[4:]) + b"\1\2\3")),
}


@pytest.mark.parametrize(("codec", "payload"), UNUSUAL.values(), ids=list(UNUSUAL))
def test_payload_that_kafka_reads_is_read(codec: int, payload: bytes) -> None:
    data = compressed(codec, payload)
    expected = core_batch_verdict(GOOD)
    assert core_batch_verdict(data) == expected == reference_batch_verdict(data)
    assert column_verdict(data) == column_verdict(GOOD)


@pytest.mark.parametrize(("codec", "payload"), UNUSUAL.values(), ids=list(UNUSUAL))
def test_payload_that_kafka_reads_stays_within_the_limit(codec: int, payload: bytes) -> None:
    assert bytes(decompress(codec, payload, len(PLAIN))) == PLAIN
    with pytest.raises(DecompressionError, match="more than max_decompressed_bytes"):
        decompress(codec, payload, len(PLAIN) - 1)


GOOD_PAYLOADS = {codec: codecs.compress(codec, PLAIN) for codec in range(1, 5)}


def test_good_payload_is_read_after_each_hostile_one() -> None:
    for name, (codec, payload) in PAYLOADS.items():
        assert isinstance(core_batch_verdict(compressed(codec, payload()), limit=LIMIT), Refused), name
        assert isinstance(core_batch_verdict(compressed(codec, GOOD_PAYLOADS[codec])), list), name


def test_good_lz4_frame_is_read_after_one_with_a_content_size_hit_the_limit() -> None:
    frame = lz4_frame(flags=0x68, size=struct.pack("<Q", len(PLAIN)), blocks=lz4_raw_block(PLAIN) + END_MARK)
    assert core_batch_verdict(compressed(codecs.LZ4, frame), limit=1) == Refused("DecompressionError", 0)
    assert isinstance(core_batch_verdict(compressed(codecs.LZ4, GOOD_LZ4)), list)


def test_many_snappy_blocks_without_content_are_no_memory() -> None:
    data = compressed(codecs.SNAPPY, xerial(b"\0\0\0\x01\0" * 5_000))
    assert both_verdicts(data) == Refused("InvalidRecordError", 0)


SMALL = {name: row for name, row in PAYLOADS.items() if "bomb" not in name and "million" not in name}


@over("name", list(SMALL), by=lambda _: "payloads")
def test_reference_refuses_the_same_payloads(name: str) -> None:
    codec, payload = SMALL[name]
    with pytest.raises(codecs.UndecodableError):
        codecs.decompress(codec, payload(), limit=LIMIT)


LAWFUL: dict[str, tuple[int, bytes]] = {
    "T10 control batch that is compressed": (codecs.GZIP | reference.CONTROL_BIT, GOOD_GZIP),
    "T10 reserved attribute bits": (-128, PLAIN),
    "T11 record length padded to five bytes": (0, encode_varint(len(PLAIN) - 1, size=5) + PLAIN[1:]),
    "T19 zstd stored block": (codecs.ZSTD, zstd_frame(descriptor=0, window=b"\0", blocks=RAW_ZSTD_BLOCK)),
    "T19 zstd window of 128 MiB": (
        codecs.ZSTD,
        zstd_frame(descriptor=0, window=bytes([17 << 3]), blocks=RAW_ZSTD_BLOCK),
    ),
    "T19 zstd checksum": (codecs.ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress(PLAIN)),
    "T20 lz4 stored block": (codecs.LZ4, GOOD_LZ4),
    "T20 lz4 true content size": (
        codecs.LZ4,
        lz4_frame(flags=0x68, size=struct.pack("<Q", len(PLAIN)), blocks=lz4_raw_block(PLAIN) + END_MARK),
    ),
    "T20 lz4 checksums": (
        codecs.LZ4,
        lz4_frame(
            flags=0x74,
            blocks=lz4_raw_block(PLAIN)
            + struct.pack("<I", codecs.xxh32(PLAIN))
            + END_MARK
            + struct.pack("<I", codecs.xxh32(PLAIN)),
        ),
    ),
    "T20 lz4 blocks of up to 4 MiB": (codecs.LZ4, lz4_frame(descriptor=0x70, blocks=lz4_raw_block(PLAIN) + END_MARK)),
    "T20 lz4 a hundred thousand empty blocks": (
        codecs.LZ4,
        lz4_frame(blocks=EMPTY_LZ4_BLOCK * 100_000 + lz4_raw_block(PLAIN) + END_MARK),
    ),
    "T21 raw snappy": (codecs.SNAPPY, RAW_SNAPPY),
    "T21 snappy blocks of one byte": (
        codecs.SNAPPY,
        xerial(*(struct.pack(">i", 3) + b"\x01\x00" + PLAIN[n : n + 1] for n in range(len(PLAIN)))),
    ),
    "T21 two snappy streams": (
        codecs.SNAPPY,
        codecs.snappy_compress(PLAIN[:5]) + codecs.snappy_compress(PLAIN[5:]),
    ),
    "T21 snappy version in little-endian, as Redpanda once wrote it": (
        codecs.SNAPPY,
        xerial(struct.pack(">i", len(RAW_SNAPPY)) + RAW_SNAPPY, version=0x01000000),
    ),
    "T22 two gzip members": (codecs.GZIP, gzip_member(PLAIN[:5]) + gzip_member(PLAIN[5:])),
    "T22 gzip with a name": (codecs.GZIP, gzip_member(PLAIN, flags=8, extra=b"name" * 50_000 + b"\0")),
    "T22 gzip with 64 KiB of extra field": (
        codecs.GZIP,
        gzip_member(PLAIN, flags=4, extra=b"\xff\xff" + bytes(65535)),
    ),
    "T22 a thousand empty gzip members": (codecs.GZIP, gzip_member(b"") * 1000 + GOOD_GZIP),
    "T22 a thousand empty gzip members twice": (
        codecs.GZIP,
        gzip_member(b"") * 1000 + gzip_member(PLAIN[:5]) + gzip_member(b"") * 1000 + gzip_member(PLAIN[5:]),
    ),
}


@pytest.mark.parametrize(("attributes", "payload"), LAWFUL.values(), ids=list(LAWFUL))
def test_odd_but_lawful_payload_is_read_in_bounded_memory(attributes: int, payload: bytes) -> None:
    data = seal(payload, attributes=attributes)
    with bounded_memory(ALLOWED_BYTES + 2 * len(payload)):
        verdict = core_batch_verdict(data, limit=LIMIT)
        columns = column_verdict(data, limit=LIMIT)
    assert not isinstance(verdict, Refused)
    assert [(record.key, record.value) for record in verdict] == [(b"k", b"v")]
    assert len(columns) == (0 if attributes & reference.CONTROL_BIT > 0 and attributes > 0 else 1)


OFFSETS = {
    "T9 repeated": ([0, 0], "CorruptRecordError"),
    "T9 backwards": ([5, 3], "CorruptRecordError"),
    "T9 into the batch before": ([5, 6], "CorruptRecordError"),
    "T9 gap, as compaction leaves it": ([5, 99], None),
}


@pytest.mark.parametrize(("offsets", "error"), OFFSETS.values(), ids=list(OFFSETS))
def test_offsets_of_batches_must_rise_and_may_leave_gaps(offsets: list[int], error: str | None) -> None:
    log = [builders.batch(offset, 2) for offset in offsets]
    data = b"".join(log)
    scan = _core.HeaderScan(position=0, end_position=len(data))
    scan.feed(data, 0)
    verdict = column_verdict(data)
    if error is None:
        assert scan.status == "end"
        assert isinstance(verdict, list)
        assert [row.offset for row in verdict] == [5, 6, 99, 100]
    else:
        assert (scan.status, scan.position) == ("corrupt", len(log[0]))
        assert verdict == Refused(error, len(log[0]))


@pytest.mark.parametrize("delta", [2**63 - 1, -(2**63)])
def test_timestamp_that_wraps_is_a_record_and_null_as_microseconds(delta: int) -> None:
    payload = sized(b"\0" + encode_varint(delta) + b"\0\x01\x01\0")
    data = seal(payload, base_timestamp_ms=5)
    wrapped = reference.wrap64(5 + delta)
    records = core_batch_verdict(data)
    assert isinstance(records, list)
    assert [record.timestamp_ms for record in records] == [wrapped]
    rows = column_verdict(data)
    assert isinstance(rows, list)
    assert [row.timestamp_us for row in rows] == [None]


@pytest.mark.parametrize("largest_ms", [-1, 0, -(2**63), 2**63 - 1], ids=["-1", "0", "-2^63", "2^63-1"])
def test_largest_timestamp_that_lies_changes_no_create_time_record(largest_ms: int) -> None:
    records = builders.records(0, 3)
    data = builders.patch_header(reference.write_batch(records), max_timestamp_ms=largest_ms)
    assert core_batch_verdict(data) == records
    rows = column_verdict(data)
    assert isinstance(rows, list)
    assert [row.timestamp_us for row in rows] == [record.timestamp_ms * 1000 for record in records]
    scan = _core.HeaderScan(position=0, end_position=len(data))
    scan.feed(data, 0)
    assert (scan.status, scan.max_timestamp_ms) == ("end", max(largest_ms, -1))


TEXTS = {
    "T34 empty": b"",
    "T34 NUL": b"a\0b",
    "T34 edges of one to four bytes": "\u007f\u0080\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff".encode(),
    "T34 combining marks and a byte order mark": "\ufeffe\u0301\u202e".encode(),
    "T34 noncharacters": "\ufdd0\ufffe\uffff".encode(),
    "T34 overlong slash": b"\xc0\xaf",
    "T34 surrogate": b"\xed\xa0\x80",
    "T34 above U+10FFFF": b"\xf4\x90\x80\x80",
    "T34 cut off": b"\xe2\x82",
    "T34 lone continuation": b"\x80",
    "T34 64 KiB": b"\xf0\x9f\x98\x80" * (16 << 10),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))
def test_any_bytes_as_header_key_key_or_value_round_trip(text: bytes) -> None:
    headers = [(text, text), (text, None), (b"", b""), (text + b"x", text)]
    pairs = ((text, text), (text, None), (None, text), (b"", None), (None, b""))
    records = [builders.record(n, value, key, headers=headers) for n, (key, value) in enumerate(pairs)]
    data = bytes(builder_of(records, partition_leader_epoch=0).build())
    assert data == reference.write_batch(records)
    assert core_batch_verdict(data) == records
    assert column_verdict(data) == expected_column_verdict(data)
