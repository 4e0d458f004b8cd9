"""Columns of the batches of a .log: which to decode, a decoder of them, and the one loop that feeds a decoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from kstore._core import ColumnBuffer, ColumnDecoder
from kstore.compression import decompress
from kstore.config import LogConfig
from kstore.env import ReadFile
from kstore.log.files.records import truncated_since_listed
from kstore.types import MAX_OFFSET

Mode: TypeAlias = Literal["copy", "view", "string"]


class ColumnSelection(NamedTuple):
    """Which columns to decode, and how: key and value are None, "copy", "view" or "string"."""

    key: Mode | None = None
    value: Mode | None = None
    offset: bool = False
    timestamp: bool = False
    headers: bool = False
    verify_crc: bool = True


def column_decoder(
    selection: ColumnSelection,
    *,
    batch_bytes: int,
    config: LogConfig,
    start_offset: int,
    end_offset: int = MAX_OFFSET,
    allows_low_last_offset: bool = False,
    aborted: Sequence[tuple[int, int, int]] = (),
) -> ColumnDecoder:
    """Return a decoder of these columns."""
    return ColumnDecoder(
        key=selection.key,
        value=selection.value,
        offset=selection.offset,
        timestamp=selection.timestamp,
        headers=selection.headers,
        verify_crc=selection.verify_crc,
        batch_bytes=batch_bytes,
        max_batch_bytes=config.max_batch_bytes,
        max_decompressed_bytes=config.max_decompressed_bytes,
        decompress=decompress,
        start_offset=start_offset,
        end_offset=end_offset,
        allows_low_last_offset=allows_low_last_offset,
        aborted=aborted,
    )


class DecoderChunks:
    """Reads the chunks of one file that a decoder needs, into a buffer that it reuses.

    Args: chunk_bytes: the size of one read, unless a batch is larger; keeps_chunks: a buffer for each chunk, since
        Arrow views reference it.
    """

    def __init__(self, file: ReadFile, *, chunk_bytes: int, keeps_chunks: bool = False) -> None:
        self._file = file
        self._chunk_bytes = chunk_bytes
        self._keeps_chunks = keeps_chunks
        self._buffer: ColumnBuffer | None = None

    def read(self, decoder: ColumnDecoder, *, end_position: int) -> memoryview:
        """Read what a decoder needs, at its position and up to end_position.

        Raises: LogReplacedError if the file ends early.
        """
        position, needed = decoder.position, decoder.needed
        left = end_position - position
        part = None if self._keeps_chunks else self._file.part_at(position)
        if part is not None and len(part) >= min(needed, left):
            return part[:left]
        # Of a file of parts what begins in one and ends in another.
        size = min(max(self._chunk_bytes, needed) if part is None else needed, left)
        if self._keeps_chunks or self._buffer is None or len(self._buffer) < size:
            self._buffer = ColumnBuffer(size)
        view = memoryview(self._buffer)[:size]
        got = self._file.pread_into(view, position=position)
        if got < min(needed, size):
            raise truncated_since_listed(self._file.path, position, expected=needed, found=got)
        return view[:got]
