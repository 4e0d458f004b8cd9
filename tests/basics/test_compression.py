"""Goal: payloads are compressed in Kafka's framings, at Kafka's levels.

Method: read the framing bytes as docs/format.md names them, and the content back by the reference and by kstore.
"""

from __future__ import annotations

import random
import sys
import zlib
from typing import get_args

import lz4.block
import pytest
import zstandard

from kstore import _core, compression
from kstore.compression import CompressionType, compress, decompress, level_of
from kstore.config import CodecName
from kstore.errors import DecompressionError, InvalidRecordError, UnsupportedCompressionTypeError
from kstore.record import MemoryRecords, MemoryRecordsBuilder
from tests.making.messages import packed_entry
from tests.reference import codecs as codecs

BLOCK_BYTES = 65536
NOISE = random.Random(0).randbytes(100_000)
TEXT = b"".join(b"%d %d " % (n, n * n) for n in range(3000))
CONTENTS = {
    "empty": b"",
    "one byte": b"a",
    "snappy block": b"ab" * 16384,
    "one more than a snappy block": b"ab" * 16384 + b"c",
    "lz4 block": b"abcd" * 16384,
    "one more than an lz4 block": b"abcd" * 16384 + b"e",
    "many blocks": b"0123456789" * 50_000,
    "incompressible": NOISE,
}


def test_names_in_configs_and_ids_in_the_core_are_those_of_the_table() -> None:
    assert get_args(CodecName) == tuple(codec.label for codec in CompressionType)
    assert max(CompressionType) <= _core.CODEC_BITS
    with pytest.raises(ValueError, match=f"must be {CompressionType.SNAPPY:d} or {CompressionType.LZ4:d}, got 0"):
        _core.decompress_blocks(b"", codec_id=0, limit=0, magic=2)
    with pytest.raises(ValueError, match=f"compression must be from 0 to {max(CompressionType):d} "):
        _core.MemoryRecordsBuilderCore(compression=max(CompressionType) + 1)


content_parameter = pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)


@content_parameter
@pytest.mark.parametrize("codec", CompressionType, ids=lambda codec: codec.label)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview], ids=lambda kind: kind.__name__)
def test_content_comes_back(codec: CompressionType, content: bytes, kind: type) -> None:
    payload = bytes(compress(codec, kind(content)))
    assert codecs.decompress(codec, payload, limit=1 << 20) == content
    assert bytes(decompress(codec, payload, 1 << 20)) == content


@pytest.mark.parametrize("codec", CompressionType, ids=lambda codec: codec.label)
def test_least_magic_of_a_codec_is_the_first_that_can_be_built_and_read(codec: CompressionType) -> None:
    for magic in range(codec.least_magic):
        with pytest.raises(ValueError, match=f"a batch of magic {magic} can't have {codec.label}"):
            MemoryRecordsBuilder(magic=magic, compression=codec)
        with pytest.raises(InvalidRecordError, match=r"not allowed in magic 0 and 1 .*: expected 0 to 3, found 4"):
            values(MemoryRecords(packed_entry(b"v", None, offset=0, magic=magic, attributes=codec)))
    for magic in range(codec.least_magic, 3):
        records = MemoryRecordsBuilder(magic=magic, compression=codec).append(timestamp_ms=1, value=b"v").build()
        assert values(records) == [b"v"]


def values(records: MemoryRecords) -> list[bytes | None]:
    return [record.value for batch in records.batches() for record in batch.records()]


@content_parameter
@pytest.mark.parametrize("codec", CompressionType, ids=lambda codec: codec.label)
def test_content_may_be_as_large_as_the_limit_and_not_a_byte_larger(codec: CompressionType, content: bytes) -> None:
    payload = bytes(compress(codec, content))
    assert bytes(decompress(codec, payload, len(content))) == content
    if content:
        with pytest.raises(DecompressionError):
            decompress(codec, payload, len(content) - 1)


def test_zstd_level_is_that_of_each_call() -> None:
    sizes = [len(compress(CompressionType.ZSTD, TEXT, level)) for level in (22, -50, 22)]
    assert sizes[0] == sizes[2] < sizes[1]


LEVELS = [
    *[(CompressionType.GZIP, level) for level in (-1, 1, 6, 9)],
    *[(CompressionType.LZ4, level) for level in (1, 2, 3, 9, 10, 12, 17)],
    *[(CompressionType.ZSTD, level) for level in (-131072, -5, 0, 1, 3, 22)],
]


@pytest.mark.parametrize(("codec", "level"), LEVELS, ids=[f"{codec.label} {level}" for codec, level in LEVELS])
def test_every_level_of_kafka_compresses(codec: CompressionType, level: int) -> None:
    content = CONTENTS["many blocks"]
    payload = bytes(compress(codec, content, level))
    assert codecs.decompress(codec, payload, limit=1 << 20) == content
    assert bytes(decompress(codec, payload, 1 << 20)) == content


BAD_LEVELS = [
    *[(CompressionType.NONE, level) for level in (0, 1)],
    *[(CompressionType.GZIP, level) for level in (-2, 0, 10)],
    *[(CompressionType.SNAPPY, level) for level in (0, 1)],
    *[(CompressionType.LZ4, level) for level in (-1, 0, 18)],
    *[(CompressionType.ZSTD, level) for level in (-131073, 23)],
]


@pytest.mark.parametrize(("codec", "level"), BAD_LEVELS, ids=[f"{codec.label} {level}" for codec, level in BAD_LEVELS])
def test_level_out_of_range_is_refused(codec: CompressionType, level: int) -> None:
    with pytest.raises(ValueError, match="level"):
        level_of(codec, level)
    with pytest.raises(ValueError, match="level"):
        compress(codec, b"x", level)


@pytest.mark.parametrize("codec_id", [-1, 5, 7])
def test_unknown_codec_is_refused(codec_id: int) -> None:
    with pytest.raises(UnsupportedCompressionTypeError, match=f"found {codec_id}"):
        compress(codec_id, b"x")


@pytest.mark.parametrize("name", ["uncompressed", "LZ4", "", "producer"])
def test_name_that_kafka_has_not_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="unknown compression type"):
        CompressionType.for_name(name)


@pytest.mark.parametrize("codec", CompressionType, ids=lambda codec: codec.label)
def test_name_gives_the_codec(codec: CompressionType) -> None:
    assert CompressionType.for_name(codec.label) is codec


@pytest.mark.parametrize("level", [-1, 1, 9])
def test_gzip_header_is_that_of_java_at_every_level(level: int) -> None:
    content = CONTENTS["many blocks"]
    payload = bytes(compress(CompressionType.GZIP, content, level))
    assert payload[:10] == bytes.fromhex("1f8b080000000000 00ff")
    assert payload[-8:] == zlib.crc32(content).to_bytes(4, "little") + len(content).to_bytes(4, "little")


@content_parameter
def test_snappy_blocks_hold_32_kib_each(content: bytes) -> None:
    payload = bytes(compress(CompressionType.SNAPPY, content))
    assert payload[:16] == bytes.fromhex("82534e4150505900 00000001 00000001")
    sizes, at = [], 16
    while at < len(payload):
        size = int.from_bytes(payload[at : at + 4], "big")
        sizes.append(len(codecs.snappy_decompress_raw(payload[at + 4 : at + 4 + size], 1 << 20)))
        at += 4 + size
    whole, rest = divmod(len(content), 32768)
    assert sizes == [32768] * whole + [rest] * (rest > 0)


@content_parameter
@pytest.mark.parametrize("level", [9, 12], ids=["fast", "high"])
def test_lz4_frame_has_kafkas_descriptor_and_stores_what_does_not_shrink(content: bytes, level: int) -> None:
    payload = bytes(compress(CompressionType.LZ4, content, level))
    assert payload[:7] == bytes.fromhex("04224d18 60 40 82")
    at = 7
    for start in range(0, len(content), BLOCK_BYTES):
        raw_size = len(content[start : start + BLOCK_BYTES])
        field = int.from_bytes(payload[at : at + 4], "little")
        is_stored, size = bool(field >> 31), field & 0x7FFFFFFF
        assert size == raw_size if is_stored else size < raw_size
        at += 4 + size
    assert payload[at:] == bytes(4)


def test_lz4_stores_noise_and_not_text() -> None:
    def first_is_stored(content: bytes) -> bool:
        return bytes(compress(CompressionType.LZ4, content))[10] & 0x80 != 0

    assert first_is_stored(NOISE)
    assert first_is_stored(b"a")
    assert not first_is_stored(b"a" * 1000)


def test_lz4_default_level_is_the_fast_compressor_and_others_the_high_one() -> None:
    blocks = {level: bytes(compress(CompressionType.LZ4, TEXT, level))[11:-4] for level in (None, 8, 9)}
    assert len(TEXT) < BLOCK_BYTES
    assert blocks[None] == blocks[9] == lz4.block.compress(TEXT, store_size=False)
    assert len(blocks[8]) < len(blocks[9])


@content_parameter
def test_zstd_frame_declares_neither_content_size_nor_checksum(content: bytes) -> None:
    payload = bytes(compress(CompressionType.ZSTD, content))
    assert payload[:5] == bytes.fromhex("28b52ffd 00")


@content_parameter
def test_lz4_header_checksum_is_not_looked_at_in_v0_and_must_be_right_later(content: bytes) -> None:
    payload = bytearray(compress(CompressionType.LZ4, content))
    payload[6] = 0x1A
    assert bytes(decompress(CompressionType.LZ4, payload, 1 << 20, magic=0)) == content
    for magic in (1, 2):
        with pytest.raises(DecompressionError, match="header checksum"):
            decompress(CompressionType.LZ4, payload, 1 << 20, magic=magic)


@content_parameter
def test_gzip_is_read_without_isal(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    payload = bytes(compress(CompressionType.GZIP, content))
    monkeypatch.setitem(sys.modules, "isal.igzip_lib", None)
    monkeypatch.setattr(compression, "_packages", type(compression._packages)())
    assert bytes(decompress(CompressionType.GZIP, payload * 2, 2 << 20)) == content * 2
    assert compression._packages.inflater == (zlib.decompressobj, zlib.error)
    with pytest.raises(DecompressionError):
        decompress(CompressionType.GZIP, payload[:-1], 2 << 20)


def test_lz4_block_that_begins_like_a_size_is_read_from_its_first_byte() -> None:
    block = bytes.fromhex("52 00000010 00 0100 f00c") + b"." * 27
    frame = bytes.fromhex("04224d18 60 40 82") + len(block).to_bytes(4, "little") + block + bytes(4)
    content = bytes.fromhex("00000010 00 000000000000") + b"." * 27
    assert bytes(decompress(CompressionType.LZ4, frame, 1 << 20)) == content


@pytest.mark.parametrize("block_bytes", [1, 1024, 32768], ids=lambda size: f"{size} bytes")
@pytest.mark.parametrize("codec", [CompressionType.LZ4, CompressionType.SNAPPY], ids=lambda codec: codec.label)
def test_frame_of_blocks_of_any_size_is_read(codec: CompressionType, block_bytes: int) -> None:
    pieces = [TEXT[at : at + block_bytes] for at in range(0, len(TEXT), block_bytes)]
    if codec is CompressionType.SNAPPY:
        payload = codecs.snappy_compress(TEXT, block_bytes=block_bytes)
    else:
        blocks = [lz4.block.compress(piece, store_size=False) for piece in pieces]
        framed = b"".join(len(block).to_bytes(4, "little") + block for block in blocks)
        payload = bytes.fromhex("04224d18604082") + framed + bytes(4)
    assert codecs.decompress(codec, payload, limit=len(TEXT)) == TEXT
    assert bytes(decompress(codec, payload, len(TEXT))) == TEXT
    with pytest.raises(DecompressionError, match="more than max_decompressed_bytes"):
        decompress(codec, payload, len(TEXT) - 1)


def test_content_stays_when_its_memory_could_be_used_again() -> None:
    payloads = {codec: bytes(compress(codec, TEXT)) for codec in CompressionType}
    kept = [decompress(codec, payload, 1 << 20) for codec, payload in payloads.items() for _ in range(50)]
    assert all(bytes(content) == TEXT for content in kept)


def _into(frame: bytes, size: int) -> bytes | str:
    """What a buffer of this size has of a frame, or the kind of the error."""
    buffer = memoryview(bytearray(b"\xaa" * size))
    try:
        return bytes(buffer[: compression.decompress_frame_into(frame, buffer)])
    except DecompressionError as error:
        return type(error).__name__


def _whole(frame: bytes, limit: int) -> bytes | str:
    try:
        return compression.decompress_frame(frame, limit)
    except DecompressionError as error:
        return type(error).__name__


@pytest.mark.parametrize("checksum", [False, True])
def test_frame_in_a_buffer_has_the_content_or_the_error_that_it_has_alone(checksum: bool) -> None:
    content = b"".join(b"%d," % number for number in range(300))
    frame = zstandard.ZstdCompressor(write_checksum=checksum).compress(content)
    assert _into(frame, len(content)) == content
    damaged = [frame[:end] for end in range(len(frame))]
    damaged += [
        frame[:at] + bytes([frame[at] ^ 1 << bit]) + frame[at + 1 :] for at in range(len(frame)) for bit in range(8)
    ]
    for one in damaged:
        assert _into(one, len(content)) == _whole(one, len(content))
    assert len({_into(one, len(content)) for one in damaged}) > 1


@pytest.mark.parametrize("declares", [False, True])
def test_frames_of_other_sizes_than_the_buffer_are_read_as_far_as_it_has_room(declares: bool) -> None:
    compressor = zstandard.ZstdCompressor(write_content_size=declares)
    frame = compressor.compress(b"k" * 1000)
    for sent, content in ((frame, b"k" * 1000), (frame + frame, b"k" * 2000)):
        for room in (len(content), len(content) + 1):
            assert _into(sent, room) == content
        assert _into(sent, len(content) - 1) == "DecompressionError"
