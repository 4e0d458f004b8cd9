"""Goal: kstore and the codec packages read each other's streams, and damage is an error or shows in no byte.

Method: Hypothesis draws content, levels, block sizes, checksums, joins, cuts and flips; the codec packages are the
oracle of sound streams, the reference codec that of damaged ones.
"""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from collections.abc import Callable
from typing import Any

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from isal import igzip

from kstore.compression import CompressionType, compress, decompress
from kstore.errors import DecompressionError
from tests.making.blocks import Copy, content_of, lz4_block_of, snappy_block_of
from tests.reference import codecs as codecs

LIMIT = 1 << 20
LZ4_BLOCK_BYTES = 64 << 10
CODECS = (CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD)
LEVELS = {
    CompressionType.GZIP: st.none() | st.integers(1, 9),
    CompressionType.SNAPPY: st.none(),
    CompressionType.LZ4: st.none() | st.integers(1, 17),
    CompressionType.ZSTD: st.none() | st.integers(-7, 12),
}
by_codec = pytest.mark.parametrize("codec", CODECS, ids=[codec.label for codec in CODECS])

# Noise and repetition, below and above the blocks of 32 and 64 KiB.
contents = st.builds(
    lambda parts, times: b"".join(parts) * times,
    st.lists(st.binary(max_size=200) | st.sampled_from([bytes(3000), b"ab" * 700]), max_size=6),
    st.sampled_from([1, 1, 1, 3, 40]),
)


def read(codec: int, payload: bytes, *, limit: int = LIMIT) -> bytes:
    return bytes(decompress(codec, payload, limit))


def xerial_content(payload: bytes) -> bytes:
    """The blocks of one xerial stream, each by the package; up to three bytes after the last one are none."""
    out, at = b"", len(codecs.XERIAL_HEADER)
    assert payload[:at] == codecs.XERIAL_HEADER
    while at < len(payload) - 3:
        size = int.from_bytes(payload[at : at + 4], "big")
        out += bytes(cramjam.snappy.decompress_raw(payload[at + 4 : at + 4 + size]))
        at += 4 + size
    return out


PACKAGES: dict[CompressionType, tuple[Callable[[bytes], bytes], ...]] = {
    CompressionType.GZIP: (gzip.decompress, igzip.decompress, lambda payload: bytes(cramjam.gzip.decompress(payload))),
    CompressionType.SNAPPY: (xerial_content,),
    CompressionType.LZ4: (lz4.frame.decompress, lambda payload: bytes(cramjam.lz4.decompress(payload))),
    CompressionType.ZSTD: (
        lambda payload: zstandard.ZstdDecompressor().decompressobj().decompress(payload),
        lambda payload: bytes(cramjam.zstd.decompress(payload)),
    ),
}


@by_codec
@given(content=contents, data=st.data())
def test_packages_read_what_kstore_compresses(codec: CompressionType, content: bytes, data: st.DataObject) -> None:
    payload = bytes(compress(codec, content, data.draw(LEVELS[codec], "level")))
    for package in PACKAGES[codec]:
        assert package(payload) == content
    assert read(codec, payload) == content


def gzip_of(draw: st.DrawFn, content: bytes) -> bytes:
    kind = draw(st.sampled_from(["zlib", "isal", "named", "flushed"]))
    if kind == "isal":
        return igzip.compress(content, draw(st.integers(0, 3)))
    if kind == "named":
        stream = io.BytesIO()
        with gzip.GzipFile(draw(st.text("abc", max_size=5)), "wb", fileobj=stream, mtime=draw(st.integers(0, 9))) as f:
            f.write(content)
        return stream.getvalue()
    deflater = zlib.compressobj(draw(st.integers(0, 9)), zlib.DEFLATED, 31, draw(st.integers(1, 9)))
    cut = draw(st.integers(0, len(content))) if kind == "flushed" else 0
    return (
        deflater.compress(content[:cut])
        + deflater.flush(zlib.Z_FULL_FLUSH)
        + deflater.compress(content[cut:])
        + (deflater.flush())
    )


def snappy_of(draw: st.DrawFn, content: bytes) -> bytes:
    block_bytes = draw(st.sampled_from([None, 1, 7, 1000, 32768, 65536, 1 << 20]))
    if block_bytes is None:
        return bytes(cramjam.snappy.compress_raw(content))
    # A block of one byte each takes long.
    block_bytes = max(block_bytes, len(content) // 500)
    return codecs.snappy_compress(content, block_bytes)


def lz4_of(draw: st.DrawFn, content: bytes) -> bytes:
    return lz4.frame.compress(
        content,
        compression_level=draw(st.sampled_from([-3, 0, 3, 12])),
        block_size=draw(st.sampled_from([0, 4, 5, 6, 7])),
        block_linked=False,
        content_checksum=draw(st.booleans()),
        block_checksum=draw(st.booleans()),
        store_size=draw(st.booleans()),
    )


def zstd_of(draw: st.DrawFn, content: bytes) -> bytes:
    compressor = zstandard.ZstdCompressor(
        level=draw(st.sampled_from([-5, 1, 3, 19])),
        write_checksum=draw(st.booleans()),
        write_content_size=draw(st.booleans()),
    )
    if draw(st.booleans()):
        return compressor.compress(content)
    stream = compressor.compressobj(size=len(content)) if draw(st.booleans()) else compressor.compressobj()
    cut = draw(st.integers(0, len(content)))
    return (
        stream.compress(content[:cut])
        + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        + stream.compress(content[cut:])
        + stream.flush()
    )


WRITERS: dict[CompressionType, Callable[[st.DrawFn, bytes], bytes]] = {
    CompressionType.GZIP: gzip_of,
    CompressionType.SNAPPY: snappy_of,
    CompressionType.LZ4: lz4_of,
    CompressionType.ZSTD: zstd_of,
}


@st.composite
def streams(draw: st.DrawFn, codec: CompressionType) -> tuple[bytes, bytes]:
    """Content, and what a package makes of it in any of its ways."""
    content = draw(contents)
    return content, WRITERS[codec](draw, content)


@by_codec
@given(data=st.data())
def test_kstore_reads_what_packages_compress_within_the_limit_and_no_further(
    codec: CompressionType, data: st.DataObject
) -> None:
    content, payload = data.draw(streams(codec))
    assert read(codec, payload, limit=len(content)) == content
    assert read(codec, payload) == content
    if content:
        with pytest.raises(DecompressionError, match="more than max_decompressed_bytes"):
            read(codec, payload, limit=len(content) - 1)


@by_codec
@given(data=st.data())
def test_joined_streams_are_one_in_gzip_zstd_and_xerial_framing_and_only_the_first_is_read_in_lz4(
    codec: CompressionType, data: st.DataObject
) -> None:
    found = data.draw(st.lists(streams(codec), min_size=2, max_size=4))
    payload = b"".join(stream for _, stream in found)
    is_raw = any(not stream.startswith(codecs.XERIAL_MAGIC) for _, stream in found)
    if codec in (CompressionType.GZIP, CompressionType.ZSTD) or (codec == CompressionType.SNAPPY and not is_raw):
        whole = b"".join(content for content, _ in found)
        assert read(codec, payload, limit=len(whole)) == whole
    elif codec != CompressionType.SNAPPY:
        assert read(codec, payload) == found[0][0]


@given(content=contents, size=st.integers(LZ4_BLOCK_BYTES + 1, 3 * LZ4_BLOCK_BYTES))
def test_lz4_blocks_that_lean_on_each_other_are_refused_as_kafka_does(content: bytes, size: int) -> None:
    content = (content + b"x") * (size // (len(content) + 1) + 1)
    frame = lz4.frame.compress(content, block_linked=True, block_size=4, store_size=False)
    with pytest.raises(DecompressionError, match="unsupported descriptor"):
        read(CompressionType.LZ4, frame)


def verdict(decode: Callable[[], Any]) -> bytes | None:
    """The content, None for the typed error."""
    try:
        return bytes(decode())
    except (DecompressionError, codecs.UndecodableError):
        return None


@by_codec
@given(data=st.data())
def test_stream_that_is_cut_off_is_refused_but_between_blocks_of_snappy(
    codec: CompressionType, data: st.DataObject
) -> None:
    content, payload = data.draw(streams(codec))
    cut = payload[: data.draw(st.integers(0, len(payload) - 1), "size")]
    found = verdict(lambda: read(codec, cut))
    if codec == CompressionType.SNAPPY and found is not None:
        assert cut.startswith(codecs.XERIAL_MAGIC)
        assert content.startswith(found)
        assert found == xerial_content(cut)
    else:
        assert found is None


@by_codec
@given(data=st.data())
def test_flipped_bit_is_refused_or_read_as_the_reference_reads_it(codec: CompressionType, data: st.DataObject) -> None:
    """isal inflates some codes that zlib, the reference, refuses; the content's CRC is right all the same."""
    content, payload = data.draw(streams(codec))
    at = data.draw(st.integers(0, 8 * len(payload) - 1), "bit")
    damaged = bytearray(payload)
    damaged[at >> 3] ^= 1 << (at & 7)
    found = verdict(lambda: read(codec, bytes(damaged)))
    if codec != CompressionType.GZIP or found != content:
        assert found == verdict(lambda: codecs.decompress(codec, bytes(damaged), limit=LIMIT))


CHECKED: dict[CompressionType, Callable[[bytes], bytes]] = {
    CompressionType.GZIP: gzip.compress,
    CompressionType.LZ4: lambda content: lz4.frame.compress(content, block_linked=False, content_checksum=True),
    CompressionType.ZSTD: lambda content: zstandard.ZstdCompressor(write_checksum=True).compress(content),
}


@pytest.mark.parametrize("codec", CHECKED, ids=[codec.label for codec in CHECKED])
@given(content=contents, data=st.data())
def test_flipped_bit_of_a_stream_with_a_checksum_shows_in_no_byte_of_content(
    codec: CompressionType, content: bytes, data: st.DataObject
) -> None:
    payload = CHECKED[codec](content)
    at = data.draw(st.integers(0, 8 * len(payload) - 1), "bit")
    damaged = bytearray(payload)
    damaged[at >> 3] ^= 1 << (at & 7)
    assert verdict(lambda: read(codec, bytes(damaged))) in (None, content)


@given(parts=st.lists(st.binary(min_size=1, max_size=300), max_size=5), size=st.integers(-(2**31), 2**31 - 1))
def test_xerial_block_with_a_wrong_size_is_refused(parts: list[bytes], size: int) -> None:
    blocks = [bytes(cramjam.snappy.compress_raw(part)) for part in parts]
    sound = codecs.XERIAL_HEADER + b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    assert read(CompressionType.SNAPPY, sound) == b"".join(parts)
    last = bytes(cramjam.snappy.compress_raw(b"last"))
    found = verdict(lambda: read(CompressionType.SNAPPY, sound + struct.pack(">i", size) + last))
    assert found == (b"".join(parts) + b"last" if size == len(last) else None)


def elements_of(copies: st.SearchStrategy[Copy]) -> st.SearchStrategy[list[bytes | Copy]]:
    """Literals and copies, most of which lead to content; each literal is of one byte's runs or of noise."""
    literals = st.binary(min_size=1, max_size=90) | st.builds(
        lambda byte, size: byte * size, st.sampled_from([b"a", b"bc"]), st.integers(1, 150)
    )
    return st.lists(literals | copies | copies, max_size=25).map(lambda elements: [b"0123456789" * 7, *elements])


lz4_elements = elements_of(st.builds(Copy, st.integers(0, 90), st.integers(4, 400)))
snappy_elements = elements_of(
    st.builds(Copy, st.integers(0, 90), st.integers(1, 64), st.sampled_from([2, 4]))
    | st.builds(Copy, st.integers(0, 300), st.integers(4, 11), st.just(1))
)


@given(lz4_elements, st.binary(min_size=0, max_size=150), st.none() | st.tuples(st.integers(0), st.integers(0, 255)))
def test_lz4_block_of_any_elements_is_read_as_the_package_reads_it(
    elements: list[bytes | Copy], tail: bytes, change: tuple[int, int] | None
) -> None:
    block = bytearray(lz4_block_of([*elements, tail]))
    if change is not None:
        block[change[0] % len(block)] = change[1]
    frame = codecs.LZ4_MAGIC + b"\x60\x40\x82" + struct.pack("<I", len(block)) + block + bytes(4)
    found = verdict(lambda: read(CompressionType.LZ4, frame))
    assert found == verdict(lambda: codecs.decompress(CompressionType.LZ4, frame, limit=LIMIT))
    if change is None and len(tail) >= 5 and all(not isinstance(e, Copy) or e.offset > 0 for e in elements):
        assert found is None or found == content_of([*elements, tail])


@given(snappy_elements, st.integers(-1, 1), st.none() | st.tuples(st.integers(0), st.integers(0, 255)))
def test_snappy_block_of_any_elements_is_read_as_the_reference_reads_it(
    elements: list[bytes | Copy], wrong_by: int, change: tuple[int, int] | None
) -> None:
    size = sum(element.size if isinstance(element, Copy) else len(element) for element in elements)
    block = bytearray(snappy_block_of(elements, size=size + wrong_by))
    if change is not None:
        block[change[0] % len(block)] = change[1]
    payload = bytes(block)
    found = verdict(lambda: read(CompressionType.SNAPPY, payload))
    assert found == verdict(lambda: codecs.decompress(CompressionType.SNAPPY, payload, limit=LIMIT))
