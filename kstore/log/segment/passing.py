"""Look: finds the batches of a part of a segment that a search does not pass over.

What is passed over is sound. Whatever is not ends the part, so that a reader who goes on there in order, without the
search, meets what any reader meets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kstore._core import RECORD_BATCH_OVERHEAD, BatchHeader, read_header
from kstore.config import MIB, LogConfig
from kstore.errors import KStoreError
from kstore.log.files.records import BatchPlace, ChunkReader, SegmentRecords
from kstore.log.segment.segment import LogSegment

if TYPE_CHECKING:
    from kstore.record.search import Passing

# After how many bytes it is reported that they were passed over.
_REPORTED_BYTES = 4 * MIB


class Piece(NamedTuple):
    """The batches of [position, end_position) of a segment; both are batch boundaries if the file is sound.

    rest_position: where a reader ends who goes on after the piece.
    """

    segment: LogSegment
    position: int
    end_position: int
    rest_position: int


class Found(NamedTuple):
    """What follows `passed_bytes` of a piece that were passed over.

    header, data: of a batch that may hold a match; rest: (position, the last offset before it) of what is not sound.
    None at the end of the piece.
    """

    piece: Piece
    passed_bytes: int
    header: BatchHeader | None = None
    data: bytes = b""
    rest: tuple[int, int] | None = None

    @property
    def size_in_bytes(self) -> int:
        """The bytes of the batch."""
        return len(self.data)


class Look:
    """Looks through pieces.

    Args: anchor: as in SegmentRecords.read_batches; first_bytes: of the first read of a piece; each is twice as large
        as the one before, up to config.read_chunk_bytes.
    Threads: any, each of them through a piece of its own.
    """

    def __init__(self, passing: Passing, *, anchor: BatchPlace | None, first_bytes: int, config: LogConfig) -> None:
        self._pass_over = passing.matcher.pass_over
        self._anchor = anchor
        self._first_bytes = first_bytes
        self._config = config
        self._idle_buffers: deque[bytearray] = deque()

    def through(self, piece: Piece) -> Generator[Found, None, None]:
        """Yield what is found in a piece, up to what is not sound.

        Cost: a pass over it; a buffer of a chunk, or of the largest batch.
        """
        segment, position, end_position, _ = piece
        least_offset, passed_bytes = segment.base_offset, 0
        limits = {"max_batch_bytes": self._config.max_batch_bytes, "end_position": end_position}
        buffer = _Buffer(self._idle_buffers)
        reader = ChunkReader(
            partial(self._read, segment.records, buffer),
            end_position=end_position,
            first_bytes=self._first_bytes,
            most_bytes=self._config.read_chunk_bytes,
        )
        try:
            while position < end_position:
                at = reader.find(position, size=RECORD_BATCH_OVERHEAD)
                size_in_bytes, last_offset = self._pass_over(
                    reader.chunk,
                    at,
                    position=position,
                    least_offset=least_offset,
                    next_base_offset=segment.next_base_offset,
                    **limits,
                )
                if size_in_bytes:
                    passed_bytes += size_in_bytes
                else:
                    header: BatchHeader = read_header(reader.chunk, at, position=position, path=segment.path, **limits)
                    header.check_place(least_offset=least_offset, next_base_offset=segment.next_base_offset)
                    size_in_bytes, last_offset = header.size_in_bytes, header.last_offset
                    yield Found(piece, passed_bytes, header, reader.bytes_at(position, size=size_in_bytes))
                    passed_bytes = 0
                position, least_offset = position + size_in_bytes, last_offset + 1
                if passed_bytes >= _REPORTED_BYTES:
                    yield Found(piece, passed_bytes)
                    passed_bytes = 0
        except KStoreError:
            yield Found(piece, passed_bytes, rest=(position, least_offset - 1))
        else:
            yield Found(piece, passed_bytes)
        buffer.give_back()

    def _read(self, records: SegmentRecords, buffer: _Buffer, size: int, *, position: int) -> memoryview:
        part = buffer.part(size)
        records.fill_before(self._anchor, part, position=position)
        return part


class _Buffer:
    """A buffer that is used again.  Args: idle: the buffers that nobody uses."""

    def __init__(self, idle: deque[bytearray]) -> None:
        self._idle = idle
        self._data = bytearray()
        with suppress(IndexError):
            self._data = idle.pop()

    def part(self, size: int) -> memoryview:
        """Return `size` bytes, in place of what was returned before."""
        if len(self._data) < size:
            self._data = bytearray(size)
        return memoryview(self._data)[:size]

    def give_back(self) -> None:
        """Leave the buffer to others."""
        self._idle.append(self._data)
