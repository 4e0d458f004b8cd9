"""The batches of a .log file: position, bytes and error of each, and the reason why the iteration ended.

Unlike a Log, which stops at the first damage, this continues after a damaged batch if its size field is plausible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kstore import _core
from kstore.errors import KStoreError
from kstore.log.segment.records import is_zeros
from kstore.record.batches import LEAST_MESSAGE_SIZES, SIZE_UP_TO_MAGIC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kstore._core import BatchHeader
    from kstore.log.env import ReadFile

MAGIC_V2 = 2


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One batch of the file, damaged or not.

    header: None if the entry is too small for one; error: what is wrong with the batch, or None;
    is_valid: whether the CRC is correct.
    """

    position: int
    size_in_bytes: int
    magic: int
    header: BatchHeader | None
    data: memoryview
    error: KStoreError | None
    is_valid: bool


@dataclass(frozen=True, kw_only=True)
class Tail:
    """Bytes at the end of a file that are not a batch. is_zeros: preallocated by a broker, not damage."""

    position: int
    size_in_bytes: int
    reason: str
    is_zeros: bool = False


class SegmentFile:
    """Iterates over the batches of one .log in file order.

    tail is set when the iteration ends, to None if the last batch ends at the end of the file.
    Memory: one chunk and one batch.
    """

    def __init__(self, file: ReadFile, *, chunk_bytes: int, max_batch_bytes: int) -> None:
        self.tail: Tail | None = None
        self._file = file
        self._size = file.size()
        self._chunk_bytes = chunk_bytes
        self._max_batch_bytes = max_batch_bytes
        self._window = b""
        self._window_position = 0

    def __iter__(self) -> Iterator[Entry]:
        position = 0
        while position < self._size:
            start = bytes(self._read(min(SIZE_UP_TO_MAGIC, self._size - position), position=position))
            if not start:
                return
            self.tail = self._tail_at(position, start)
            if self.tail is not None:
                return
            entry = self._entry(position, size_in_bytes=declared_size(start), magic=magic_of(start))
            yield entry
            position += entry.size_in_bytes

    def _tail_at(self, position: int, start: bytes) -> Tail | None:
        left = self._size - position
        if not any(start):
            is_zeros = self._is_zero_from(position)
            reason = "zeros to the end of the file" if is_zeros else "zeros in place of a batch"
            return Tail(position=position, size_in_bytes=left, reason=reason, is_zeros=is_zeros)
        if len(start) < SIZE_UP_TO_MAGIC:
            reason = f"truncated batch header: expected at least {SIZE_UP_TO_MAGIC} bytes, found {left}"
            return Tail(position=position, size_in_bytes=left, reason=reason)
        size = declared_size(start)
        if size < (least := LEAST_MESSAGE_SIZES[0]):
            expected, found = least - _core.LOG_OVERHEAD, size - _core.LOG_OVERHEAD
            reason = f"size field too small: expected at least {expected}, found {found}"
            return Tail(position=position, size_in_bytes=left, reason=reason)
        if size > left:
            reason = f"truncated batch: expected {size} bytes, found {left}"
            return Tail(position=position, size_in_bytes=left, reason=reason)
        if size > self._max_batch_bytes:
            reason = f"batch larger than the limit: expected at most {self._max_batch_bytes} bytes, found {size}"
            return Tail(position=position, size_in_bytes=left, reason=reason)
        return None

    def _entry(self, position: int, *, size_in_bytes: int, magic: int) -> Entry:
        data = self._read(size_in_bytes, position=position)
        header: BatchHeader | None = None
        error: KStoreError | None = None
        is_valid = False
        path = self._file.path
        try:
            header = _core.read_header(data, position=position, path=path)
            _core.check_crc(data, position=position, path=path)
            is_valid = True
        except KStoreError as problem:
            error = problem
        if header is None and len(data) == size_in_bytes >= _core.RECORD_BATCH_OVERHEAD:
            header = read_header_of_any_magic(data, position=position, path=path)
            is_valid = _core.crc32c(data[_core.ATTRIBUTES_POSITION :]) == header.crc
        return Entry(
            position=position,
            size_in_bytes=size_in_bytes,
            magic=magic,
            header=header,
            data=data,
            error=error,
            is_valid=is_valid,
        )

    def _read(self, size: int, *, position: int) -> memoryview:
        at = position - self._window_position
        if not 0 <= at <= len(self._window) - size:
            wanted = min(max(size, self._chunk_bytes), self._size - position)
            self._window = self._file.pread(wanted, position=position)
            self._window_position = position
            if len(self._window) < wanted:
                self._size = position + len(self._window)
            at = 0
        return memoryview(self._window)[at : at + size]

    def _is_zero_from(self, position: int) -> bool:
        while position < self._size:
            chunk = self._file.pread(self._chunk_bytes, position=position)
            if not chunk or not is_zeros(chunk):
                return not chunk
            position += len(chunk)
        return True


def declared_size(start: bytes) -> int:
    """Return the size of an entry in bytes by its size field, including the 12 bytes up to the end of that field."""
    return int.from_bytes(start[8:12], "big", signed=True) + _core.LOG_OVERHEAD


def magic_of(start: bytes) -> int:
    """Return the magic byte of an entry, signed."""
    return int.from_bytes(start[_core.MAGIC_POSITION : _core.MAGIC_POSITION + 1], "big", signed=True)


def read_header_of_any_magic(data: memoryview, *, position: int, path: str) -> BatchHeader:
    """Read a header whose magic is not 0, 1 or 2 as Kafka does: as if it were 2."""
    start = bytearray(data[: _core.RECORD_BATCH_OVERHEAD])
    start[_core.MAGIC_POSITION] = MAGIC_V2
    return _core.read_header(start, position=position, path=path)
