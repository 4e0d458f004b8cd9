"""ChunkStreams: compressed chunks that are too large to be decoded as a whole, decompressed block by block."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from kstore.compression import FrameReader
from kstore.config import MIB
from kstore.errors import DecompressionError
from kstore.tier.chunks import Chunk

BLOCK_BYTES = 4 * MIB
# Two readers of one segment, each in order, do not make each other begin again.
_MOST_STREAMS = 2
# Threads that read a segment together ask for blocks nearly in order, and for one at the same time.
_MOST_RECENT = 4


class ChunkStreams:
    """The blocks of large chunks of one segment: BLOCK_BYTES each but the last one of a chunk.

    A block is given before the end of its frame was seen: that its bytes are right is for the CRCs of batches.
    Args: opened: returns what reads the stored bytes of a chunk, from its start on.
    Raises: ValueError, DecompressionError for damage at or before a block; as what `opened` returns.
    Memory: two streams, each with the window of its frame, 2 MiB at the plugin's level and at most 128 MiB; the last
        four blocks.
    Threads: thread-safe; one at a time reads.
    Cost: a block after the last one takes its own stored bytes, one before it all from the start of the chunk.
    """

    def __init__(self, opened: Callable[[Chunk], Callable[[int], bytes]]) -> None:
        self._opened = opened
        self._lock = threading.Lock()
        self._streams: list[_Stream] = []
        self._recent: dict[tuple[int, int], bytes] = {}
        # The first block of a chunk that cannot be had, and why.
        self._damage: dict[int, tuple[int, str]] = {}

    def block(self, chunk: Chunk, number: int) -> bytes:
        """Return a block of a chunk."""
        with self._lock:
            recent = self._recent.get((chunk.number, number))
            if recent is not None:
                return recent
            first, reason = self._damage.get(chunk.number, (None, ""))
            if first is not None and number >= first:
                raise ValueError(reason)
            stream = self._stream(chunk, number)
            try:
                content = b""
                while stream.number <= number:
                    content = stream.read()
                    self._keep((chunk.number, stream.number - 1), content)
            except (ValueError, DecompressionError) as error:
                self._streams.remove(stream)
                self._damage[chunk.number] = stream.number, str(error)
                raise
            return content

    def close(self) -> None:
        """Drop the streams."""
        self._streams, self._recent = [], {}

    def _keep(self, place: tuple[int, int], content: bytes) -> None:
        self._recent[place] = content
        if len(self._recent) > _MOST_RECENT:
            del self._recent[next(iter(self._recent))]

    def _stream(self, chunk: Chunk, number: int) -> _Stream:
        """Return the stream that is nearest before a block, or another one from the start of the chunk on."""
        fitting = [one for one in self._streams if one.chunk.number == chunk.number and one.number <= number]
        stream = max(fitting, key=lambda one: one.number, default=None)
        if stream is None:
            stream = _Stream(chunk, self._opened(chunk))
        others = [one for one in self._streams if one is not stream]
        self._streams = [*others[1 - _MOST_STREAMS :], stream]
        return stream


def blocks_of(chunk: Chunk, *, position: int, end_position: int) -> Iterator[tuple[int, int, int]]:
    """Yield the number, the position in the segment and the size of each block of a chunk with bytes of
    [position, end_position).
    """
    chunk_end = chunk.position + chunk.plain_bytes
    first = max(position - chunk.position, 0) // BLOCK_BYTES
    for start in range(chunk.position + first * BLOCK_BYTES, min(end_position, chunk_end), BLOCK_BYTES):
        yield (start - chunk.position) // BLOCK_BYTES, start, min(BLOCK_BYTES, chunk_end - start)


def split_after(chunk: Chunk) -> int:
    """Return where to look for a split near a chunk that is read in blocks: in the first block of the next one, since a
    second reader of the chunk would begin at its start again.
    """
    return chunk.position + chunk.plain_bytes + BLOCK_BYTES // 2


class _Stream:
    """One pass over the frame of a chunk. number: of the block that comes next."""

    def __init__(self, chunk: Chunk, read_stored: Callable[[int], bytes]) -> None:
        self.chunk = chunk
        self.number = 0
        self._content = FrameReader(read_stored)

    def read(self) -> bytes:
        """Return the next block.

        Raises: ValueError if the frame ends within it, or does not end with the chunk's last one; DecompressionError.
        """
        plain_bytes, start = self.chunk.plain_bytes, self.number * BLOCK_BYTES
        size = min(BLOCK_BYTES, plain_bytes - start)
        content = self._content.read(size)
        if len(content) < size:
            raise ValueError(f"expected {plain_bytes} plain bytes, found {start + len(content)}")
        if start + size == plain_bytes and self._content.read(1):
            raise ValueError(f"expected {plain_bytes} plain bytes, found more")
        self.number += 1
        return content
