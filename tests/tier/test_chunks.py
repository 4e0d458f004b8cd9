"""Goal: a position of a segment leads to the chunks with it, and sizes of chunks that cannot be are refused.
Method: indexes of a few chunks against sums by hand; encoded sizes cut, grown and with counts and widths that lie."""

from __future__ import annotations

import struct

import pytest

from kstore.tier.chunks import Chunk, ChunkIndex, decode_sizes, encode_sizes, plain_chunks


def test_chunks_follow_each_other_and_the_last_has_the_rest() -> None:
    chunks = ChunkIndex(chunk_bytes=10, file_bytes=25, stored=[7, 30, 2])
    assert [chunks.chunk(number) for number in range(len(chunks))] == [
        Chunk(0, 0, 10, 0, 7),
        Chunk(1, 10, 10, 7, 30),
        Chunk(2, 20, 5, 37, 2),
    ]
    assert chunks.stored_bytes == 39


@pytest.mark.parametrize(
    ("position", "end_position", "numbers"),
    [(0, 1, [0]), (0, 10, [0]), (9, 11, [0, 1]), (10, 20, [1]), (0, 25, [0, 1, 2]), (24, 25, [2])],
)
def test_a_range_needs_the_chunks_that_it_touches(position: int, end_position: int, numbers: list[int]) -> None:
    chunks = ChunkIndex(chunk_bytes=10, file_bytes=25, stored=[7, 30, 2])
    assert list(chunks.numbers(position=position, end_position=end_position)) == numbers


def test_a_segment_without_bytes_has_no_chunk() -> None:
    chunks = ChunkIndex(chunk_bytes=10, file_bytes=0, stored=[])
    assert (len(chunks), chunks.stored_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("chunk_bytes", "file_bytes", "stored"),
    [
        pytest.param(10, 25, [7, 30], id="a chunk too few"),
        pytest.param(10, 20, [7, 30, 2], id="a chunk too many"),
        pytest.param(0, 25, [], id="chunks of no bytes"),
        pytest.param(10, -1, [], id="a negative segment"),
        pytest.param(10, 25, [7, -30, 2], id="a negative chunk"),
        pytest.param(2**31, 25, [25], id="a chunk above an int32"),
        pytest.param(10, 25, [7, 2**31, 2], id="a stored chunk above an int32"),
    ],
)
def test_an_index_that_cannot_be_is_refused(chunk_bytes: int, file_bytes: int, stored: list[int]) -> None:
    with pytest.raises(ValueError, match="expected"):
        ChunkIndex(chunk_bytes=chunk_bytes, file_bytes=file_bytes, stored=stored)


def test_a_segment_that_is_stored_as_it_is_has_chunks_of_its_own_bytes() -> None:
    chunks = plain_chunks(3 * 2**20 + 5)
    assert (len(chunks), chunks.chunk_bytes) == (4, 2**20)
    assert chunks.chunk(3) == Chunk(3, 3 * 2**20, 5, 3 * 2**20, 5)
    assert chunks.stored_bytes == chunks.file_bytes


@pytest.mark.parametrize(
    "sizes", [[], [0], [5], [5, 5], [300, 301, 70_000, 1], [1, 2**31 - 1, 7], [2**31 - 1, 2**31 - 1]], ids=str
)
def test_sizes_are_read_as_they_were_written(sizes: list[int]) -> None:
    assert list(decode_sizes(encode_sizes(sizes), most=len(sizes))) == sizes


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"", "4 bytes at position 0", id="nothing"),
        pytest.param(struct.pack(">i", 1), "8 bytes", id="one size missing"),
        pytest.param(struct.pack(">i", 2**31 - 1), "at most 9 chunks", id="a count above all"),
        pytest.param(struct.pack(">i", -1), "bytes of chunk sizes", id="a negative count"),
        pytest.param(struct.pack(">iib", 3, 1, 0), "width of 1 to 4", id="no width"),
        pytest.param(struct.pack(">iib", 3, 1, 5), "width of 1 to 4", id="too wide"),
        pytest.param(encode_sizes([5, 6, 7])[:-1], "expected 15 bytes", id="cut"),
        pytest.param(encode_sizes([5, 6, 7]) + b"x", "expected 15 bytes", id="grown"),
    ],
)
def test_sizes_that_lie_about_their_count_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        decode_sizes(data, most=9)
