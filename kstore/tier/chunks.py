"""ChunkIndex: where the chunks of a segment's `.log` are in its object, and the codec of their sizes.

Bytes: docs/tiers.md.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from kstore.config import MAX_INT32

_COUNT_BYTES = 4
_SIZE_BYTES = 4
_WIDTH_BYTES = 1
_WIDEST = 4
_PLAIN_BYTES = 1 << 20


class Chunk(NamedTuple):
    """One chunk: `plain_bytes` of the segment from `position` on, stored in `stored_bytes` from `stored_position` on of
    the object.
    """

    number: int
    position: int
    plain_bytes: int
    stored_position: int
    stored_bytes: int


class ChunkIndex:
    """The chunks of a segment, each of `chunk_bytes` plain bytes but the last one.

    Args: file_bytes: the size of the segment; stored: the sizes of the chunks in the object, one for each.
    Raises: ValueError if the number of sizes is not that of the chunks, or a size is negative or above an int32.
    Memory: 8 bytes for each chunk.  Threads: immutable.
    """

    def __init__(self, *, chunk_bytes: int, file_bytes: int, stored: Sequence[int]) -> None:
        if not 0 < chunk_bytes <= MAX_INT32:
            raise ValueError(f"originalChunkSize: expected 1 to {MAX_INT32}, found {chunk_bytes}")
        if not 0 <= file_bytes <= MAX_INT32:
            raise ValueError(f"originalFileSize: expected 0 to {MAX_INT32}, found {file_bytes}")
        count = chunk_count(file_bytes, chunk_bytes=chunk_bytes)
        if len(stored) != count:
            raise ValueError(f"expected {count} chunks of {chunk_bytes} bytes in {file_bytes}, found {len(stored)}")
        if any(not 0 <= size <= MAX_INT32 for size in stored):
            raise ValueError(f"expected stored sizes from 0 to {MAX_INT32}, found {min(stored)} to {max(stored)}")
        self.chunk_bytes = chunk_bytes
        self.file_bytes = file_bytes
        self._starts = array("q", accumulate(stored, initial=0))

    def __len__(self) -> int:
        return len(self._starts) - 1

    @property
    def stored_bytes(self) -> int:
        """The size of the object: its chunks follow each other without gaps."""
        return self._starts[-1]

    def chunk(self, number: int) -> Chunk:
        """Return a chunk by its number, counted from 0."""
        position = number * self.chunk_bytes
        start = self._starts[number]
        plain = min(self.chunk_bytes, self.file_bytes - position)
        return Chunk(number, position, plain, start, self._starts[number + 1] - start)

    def numbers(self, *, position: int, end_position: int) -> range:
        """Return the numbers of the chunks with [position, end_position), which has bytes of the segment."""
        return range(position // self.chunk_bytes, (end_position - 1) // self.chunk_bytes + 1)

    def stored_position(self, position: int) -> int:
        """Return where the chunk with a position of the segment starts in the object; its size for one at the end."""
        return self._starts[min(position // self.chunk_bytes, len(self))]

    def chunk_at(self, stored_position: int) -> Chunk:
        """Return the chunk with a position of the object."""
        return self.chunk(min(bisect_right(self._starts, stored_position), len(self)) - 1)


def chunk_count(file_bytes: int, *, chunk_bytes: int) -> int:
    """Return how many chunks a segment has."""
    return (file_bytes + chunk_bytes - 1) // chunk_bytes


def plain_chunks(file_bytes: int) -> ChunkIndex:
    """Return an index of chunks for a segment that is stored as it is."""
    sizes = [min(_PLAIN_BYTES, file_bytes - start) for start in range(0, file_bytes, _PLAIN_BYTES)]
    return ChunkIndex(chunk_bytes=_PLAIN_BYTES, file_bytes=file_bytes, stored=sizes)


def encode_sizes(sizes: Sequence[int]) -> bytes:
    """Return the sizes of chunks as a manifest has them, before compression.

    Source: Aiven's ChunkSizesBinaryCodec.
    """
    count = len(sizes).to_bytes(_COUNT_BYTES, "big")
    if len(sizes) < 2:
        return count + b"".join(size.to_bytes(_SIZE_BYTES, "big") for size in sizes)
    *most, last = sizes
    base = min(most)
    width = max(1, (max(most) - base).bit_length() + 7 >> 3)
    above = b"".join((size - base).to_bytes(width, "big") for size in most)
    return count + base.to_bytes(_SIZE_BYTES, "big") + bytes((width,)) + above + last.to_bytes(_SIZE_BYTES, "big")


def decode_sizes(data: bytes, *, most: int) -> array[int]:
    """Return the sizes of chunks in the bytes of encode_sizes.

    Args: most: how many there may be; a larger count is refused before anything is made of it.
    Raises: ValueError.
    """
    count = _int(data, 0, size=_COUNT_BYTES)
    if count > most:
        raise ValueError(f"expected at most {most} chunks, found a count of {count}")
    if count < 2:
        _check_end(data, _COUNT_BYTES + count * _SIZE_BYTES)
        return array("q", [_int(data, _COUNT_BYTES, size=_SIZE_BYTES)] if count else [])
    base = _int(data, _COUNT_BYTES, size=_SIZE_BYTES)
    at = _COUNT_BYTES + _SIZE_BYTES
    width = _int(data, at, size=_WIDTH_BYTES)
    if not 1 <= width <= _WIDEST:
        raise ValueError(f"expected a width of 1 to {_WIDEST} bytes, found {width}")
    at += _WIDTH_BYTES
    end = at + (count - 1) * width
    _check_end(data, end + _SIZE_BYTES)
    sizes = array("q", (base + int.from_bytes(data[start : start + width], "big") for start in range(at, end, width)))
    sizes.append(_int(data, end, size=_SIZE_BYTES))
    return sizes


def _int(data: bytes, at: int, *, size: int) -> int:
    if len(data) - at < size:
        raise ValueError(f"expected {size} bytes at position {at}, found {len(data) - at}")
    value = int.from_bytes(data[at : at + size], "big")
    return value - 2**32 if size == _SIZE_BYTES and value > MAX_INT32 else value


def _check_end(data: bytes, end: int) -> None:
    if len(data) != end:
        raise ValueError(f"expected {end} bytes of chunk sizes, found {len(data)}")
