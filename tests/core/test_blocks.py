"""Goal: raw blocks of lz4 and snappy are opened to the byte, and a block that breaks a rule is refused, not followed.

Method: blocks written element by element, each at every distance from the ends, between bytes that must not be read.
"""

from __future__ import annotations

import struct
import threading

import cramjam
import lz4.block
import pytest

from kstore import _core
from kstore.compression import CompressionType
from kstore.errors import DecompressionError
from tests.making.blocks import Copy, content_of, lz4_block_of, snappy_block_of
from tests.making.collecting import over
from tests.reference import codecs as codecs

LIMIT = 1 << 22
LARGEST = 64 << 10
NOISE = bytes((n * n * 7 + n // 3) % 251 for n in range(70_000))
TAIL = b"vwxyz"


def opened(codec: CompressionType, payload: bytes | bytearray, *, limit: int = LIMIT) -> bytes:
    return bytes(_core.decompress_blocks(payload, codec_id=codec, limit=limit, magic=2))


def lz4_frame(*blocks: bytes) -> bytes:
    head = codecs.LZ4_MAGIC + b"\x60\x40\x82"
    return head + b"".join(struct.pack("<I", len(block)) + block for block in blocks) + bytes(4)


def open_lz4(block: bytes) -> bytes:
    return opened(CompressionType.LZ4, lz4_frame(block))


def open_snappy(block: bytes) -> bytes:
    return opened(CompressionType.SNAPPY, block)


SIZES = [1, 4, 5, 14, 15, 16, 18, 19, 31, 32, 33, 60, 61, 64, 65, 255, 256, 269, 270, 271, 4000]
BEFORE = [1, 3, 63, 64, 65, 300]


@over("literals", SIZES, by=lambda _: "literals")
@pytest.mark.parametrize("before", BEFORE, ids=lambda size: f"after {size}")
def test_lz4_copies_of_any_size_and_offset_behind_literals_of_any_size(literals: int, before: int) -> None:
    for size in SIZES[1:]:
        for offset in (1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 33, size - 1, size, size + 1, literals + before):
            if not 0 < offset <= literals + before:
                continue
            for tail in (b"", NOISE[:200]):
                elements = [NOISE[:before], NOISE[500 : 500 + literals], Copy(offset, size), TAIL, tail]
                assert open_lz4(lz4_block_of(elements)) == content_of(elements)


@over("literals", [*SIZES, 65_536, 65_537], by=lambda _: "literals")
@pytest.mark.parametrize("before", BEFORE, ids=lambda size: f"after {size}")
def test_snappy_copies_of_any_kind_behind_literals_of_any_size(literals: int, before: int) -> None:
    for size in (1, 4, 7, 8, 11, 12, 31, 32, 33, 63, 64):
        for offset in (1, 2, 8, 31, 32, 33, size, size + 1, 2047, 2048, 65_535, 65_536, literals + before):
            for width, most in ((1, 2047), (2, 65_535), (4, 1 << 30)):
                if not 0 < offset <= min(literals + before, most) or (width == 1 and not 4 <= size <= 11):
                    continue
                for tail in ([], [NOISE[:50]] * 4):
                    elements = [NOISE[:before], NOISE[500 : 500 + literals], Copy(offset, size, width), *tail]
                    content = content_of(elements)
                    assert open_snappy(snappy_block_of(elements, size=len(content))) == content


START = NOISE[:100]
REFUSED_LZ4 = {
    "no bytes behind the token": b"\xf0",
    "literals cut off": lz4_block_of([START])[:-1],
    "length cut off": b"\xf0" + b"\xff" * 40,
    "literal length beyond the block": b"\xf0" + b"\xff" * 40 + b"\0" + START,
    "offset 0": lz4_block_of([START, Copy(0, 10), START]),
    "offset 0 behind few bytes": lz4_block_of([b"abc", Copy(0, 10), TAIL]),
    "offset before the content": lz4_block_of([START, Copy(101, 10), START]),
    "offset before the content, nothing there": lz4_block_of([Copy(1, 10), START]),
    "largest offset": lz4_block_of([START, Copy(65_535, 10), START]),
    "copy without an offset": lz4_block_of([START, Copy(1, 10)])[:-2],
    "copy at the end": lz4_block_of([START, Copy(1, 10)])[:-1],
    "copy and an empty sequence": lz4_block_of([START, Copy(1, 10)]),
    "four last literals": lz4_block_of([START, Copy(1, 10), b"wxyz"]),
    "copy length cut off": lz4_block_of([START, Copy(1, 10_000)])[:-1],
    "copy of many lengths and four last literals": lz4_block_of([START, Copy(1, 19 + 255 * 6), b"wxyz"]),
    "content of one byte more than a block may have": lz4_block_of([START, Copy(1, LARGEST + 1 - 105), TAIL]),
    "copy that ends in the last five bytes of the largest": lz4_block_of([START, Copy(1, LARGEST - 104), b"wxyzz"]),
    "copy that starts in the last twelve bytes": lz4_block_of([START, Copy(50, LARGEST - 111), Copy(1, 4), TAIL]),
    "size of 16 MiB": lz4_block_of([START, Copy(1, 16 << 20), TAIL]),
}


@pytest.mark.parametrize("block", REFUSED_LZ4.values(), ids=REFUSED_LZ4)
def test_lz4_block_that_breaks_a_rule_is_refused(block: bytes) -> None:
    with pytest.raises(DecompressionError, match=r"lz4 (block|frame): "):
        open_lz4(block)
    with pytest.raises(codecs.UndecodableError):
        codecs.decompress(CompressionType.LZ4, lz4_frame(block), limit=LIMIT)


JUST_RIGHT_LZ4 = {
    "five last literals": [START, Copy(1, 10), TAIL],
    "largest content": [START, Copy(1, LARGEST - 105), TAIL],
    "copy that starts twelve bytes before the largest end": [START, Copy(50, LARGEST - 112), Copy(1, 7), TAIL],
    "literals alone": [NOISE[:1000]],
    "most of a block in literals": [NOISE[: LARGEST - 300]],
}


@pytest.mark.parametrize("elements", JUST_RIGHT_LZ4.values(), ids=JUST_RIGHT_LZ4)
def test_lz4_block_that_just_keeps_the_rules_is_read(elements: list[bytes | Copy]) -> None:
    block = lz4_block_of(elements)
    assert open_lz4(block) == content_of(elements) == lz4.block.decompress(block, uncompressed_size=LARGEST)


REFUSED_SNAPPY = {
    "literal cut off": snappy_block_of([START], size=100)[:-1],
    "literal length cut off": b"\x64\xf4\xff",
    "literal of 2^32 bytes": b"\x64\xfc\xff\xff\xff\xff" + START,
    "literal above the declared size": snappy_block_of([START], size=99),
    "content below the declared size": snappy_block_of([START], size=101),
    "copy above the declared size": snappy_block_of([START, Copy(50, 64)], size=163),
    "copy below the declared size": snappy_block_of([START, Copy(50, 64)], size=165),
    "offset 0, one byte": snappy_block_of([START, Copy(0, 8, 1), START], size=208),
    "offset 0, two bytes": snappy_block_of([START, Copy(0, 8, 2), START], size=208),
    "offset 0, four bytes": snappy_block_of([START, Copy(0, 8, 4), START], size=208),
    "offset before the content": snappy_block_of([START, Copy(101, 8, 2), START], size=208),
    "offset of 2^32-1": snappy_block_of([START, Copy(2**32 - 1, 8, 4), START], size=208),
    "offset before the content, nothing there": snappy_block_of([Copy(1, 8), START], size=108),
    "offset cut off, one byte": snappy_block_of([START, Copy(9, 8, 1)], size=108)[:-1],
    "offset cut off, two bytes": snappy_block_of([START, Copy(9, 8, 2)], size=108)[:-1],
    "offset cut off, four bytes": snappy_block_of([START, Copy(9, 8, 4)], size=108)[:-1],
    "nothing behind the size": b"\x64",
}


@pytest.mark.parametrize("block", REFUSED_SNAPPY.values(), ids=REFUSED_SNAPPY)
@pytest.mark.parametrize("is_framed", [False, True], ids=["raw", "xerial"])
def test_snappy_block_that_breaks_a_rule_is_refused(block: bytes, is_framed: bool) -> None:
    payload = codecs.XERIAL_HEADER + struct.pack(">i", len(block)) + block if is_framed else block
    with pytest.raises(DecompressionError, match=r"snappy block: "):
        open_snappy(payload)
    with pytest.raises(cramjam.DecompressionError):
        cramjam.snappy.decompress_raw(block)


def test_memory_of_a_refused_block_is_bounded_by_its_header() -> None:
    """Room for a block of lz4 is 255 times its bytes at most, and what stands in it is no size to allocate."""
    frame = lz4_frame(*[b"\xf0" + b"\xff" * 40] * 3)
    with pytest.raises(DecompressionError, match="truncated"):
        opened(CompressionType.LZ4, frame, limit=1 << 40)


@pytest.mark.parametrize("codec_id", [-1, 0, 1, 4, 5])
def test_only_snappy_and_lz4_are_opened_by_the_core(codec_id: int) -> None:
    with pytest.raises(ValueError, match="codec_id must be 2 or 3"):
        _core.decompress_blocks(b"", codec_id=codec_id, limit=LIMIT, magic=2)


def changing(payload: bytearray, at: int, other: bytes, codec: CompressionType) -> set[str]:
    """What opening gives, again and again, while a thread writes other bytes at a place and the right ones back."""
    right, is_done, changes = bytes(payload[at : at + len(other)]), threading.Event(), 0

    def change() -> None:
        nonlocal changes
        while not is_done.is_set():
            payload[at : at + len(other)] = other
            payload[at : at + len(other)] = right
            changes += 1

    thread = threading.Thread(target=change)
    thread.start()
    outcomes = set()
    try:
        while changes < 50 or len(outcomes) == 0:
            try:
                outcomes.add(f"{len(opened(codec, payload))} bytes")
            except DecompressionError:
                outcomes.add("refused")
    finally:
        is_done.set()
        thread.join()
    return outcomes


@pytest.mark.parametrize("is_stored", [False, True], ids=["compressed", "stored"])
def test_lz4_frame_that_another_thread_changes_is_read_or_refused(is_stored: bool) -> None:
    """A thousand stored blocks of a byte each become one block of five thousand, and back."""
    first = lz4_block_of([START, Copy(50, 30_000), TAIL])
    stored = struct.pack("<I", 1 | 1 << 31) + b"x"
    frame = bytearray(lz4_frame(first)[:-4] + stored * 30_000 + bytes(4))
    larger = struct.pack("<I", 14_000 | is_stored << 31)
    assert changing(frame, 11 + len(first), larger, CompressionType.LZ4) <= {"refused", "60105 bytes"}


def test_snappy_stream_that_another_thread_changes_is_read_or_refused() -> None:
    small = snappy_block_of([NOISE[:1000], Copy(1000, 64)], size=1064)
    large = snappy_block_of([NOISE[:5], *[Copy(5, 64)] * 60], size=5 + 60 * 64)
    part = struct.pack(">i", len(small)) + small
    stream = bytearray(codecs.XERIAL_HEADER + part * 100)
    other = struct.pack(">i", len(large)) + large
    at = len(codecs.XERIAL_HEADER) + len(part)
    assert changing(stream, at, other, CompressionType.SNAPPY) <= {"refused", f"{1064 * 100} bytes"}
