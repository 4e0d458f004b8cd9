"""The offset index and the time index of a segment: read-only views of a file that was read whole.

Layer 5. The files are never mapped, since a broker trims them under its readers. An index is a hint: lookups give
the entry that Kafka's would give, and the caller verifies it against the log. Trailing all-zero entries, which
preallocation leaves, do not count. Bytes: docs/format.md.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

from kstore._core import (
    OFFSET_INDEX_ENTRY_SIZE,
    TIME_INDEX_ENTRY_SIZE,
    OffsetIndexSearch,
    TimeIndexSearch,
    first_disordered_slot,
    index_entry_count,
    offset_index_entry,
    time_index_entry,
)
from kstore.errors import StorageError
from kstore.log.cache import SharedCache
from kstore.log.env import ENOENT, Env
from kstore.types import OffsetPosition, TimestampOffset

if TYPE_CHECKING:
    from typing_extensions import Buffer

MAX_INDEX_BYTES = 256 * 1024 * 1024
# Of offset indexes, and as much again of time indexes.
INDEX_CACHE_BYTES = 32 * 1024 * 1024
_ENTRY_WEIGHT = 512

_Index = TypeVar("_Index", "OffsetIndex", "TimeIndex")
_logger = logging.getLogger("kstore.log")


class OffsetIndex:
    """The entries of one .index file, offsets absolute.

    Up to Kafka 1.1 an entry holds the first offset of an append, later the last; the position is always where
    the append starts. In order on disk, but nothing here relies on it.
    Args: is_whole: all of content is entries, none of it preallocated space; earlier: an index of the first of them.
    Attributes: search, the compiled search, which remembers what the log has proven of the entries; slot_of_offset, its
    method, which returns the slot of the greatest entry with offset <= the one given, -1 if there is none.
    Threads: safe.  Source: Kafka OffsetIndex.
    """

    def __init__(
        self,
        content: bytes | memoryview,
        *,
        base_offset: int,
        path: str,
        is_whole: bool = False,
        earlier: OffsetIndex | None = None,
    ) -> None:
        self.base_offset = base_offset
        self.path = path
        self._entries = content if is_whole else _without_padding(content, OFFSET_INDEX_ENTRY_SIZE)
        self.entry_count = len(self._entries) // OFFSET_INDEX_ENTRY_SIZE
        self.search: OffsetIndexSearch = OffsetIndexSearch(
            self._entries, base_offset=base_offset, earlier=None if earlier is None else earlier.search
        )
        self.slot_of_offset = self.search.slot_of_offset

    @property
    def size_in_bytes(self) -> int:
        """Return the bytes that the entries take, without preallocated space."""
        return len(self._entries)

    def entry(self, slot: int) -> OffsetPosition:
        """Return the entry of a slot; IndexError outside 0 to entry_count - 1."""
        relative_offset, position = offset_index_entry(self._entries, slot)
        return OffsetPosition(self.base_offset + relative_offset, position)

    def entries(self) -> Iterator[OffsetPosition]:
        """Yield every entry in slot order."""
        return (self.entry(slot) for slot in range(self.entry_count))

    def slots_of_offsets(self, target_offsets: Buffer) -> memoryview:
        """Return the slot of each of many offsets, as slot_of_offset.

        Args: target_offsets: a contiguous buffer of int64, such as a NumPy array.
        Returns: a view of int64 ("q").  Cost: O(log entries) each; several are looked for at a time, without the GIL.
        """
        return memoryview(self.search.slots_of_offsets(target_offsets)).cast("q")

    def slot_of_position(self, target_position: int) -> int:
        """Return the slot of the greatest entry with position <= target_position, -1 if none.

        Cost: O(log entries).
        """
        slots = range(self.entry_count)
        return bisect_right(slots, target_position, key=lambda slot: self.entry(slot).position) - 1

    def lookup(self, target_offset: int) -> OffsetPosition:
        """Return the greatest entry whose offset is <= target_offset, (base_offset, 0) if there is none.

        Source: Kafka OffsetIndex.lookup.
        """
        slot = self.slot_of_offset(target_offset)
        return OffsetPosition(self.base_offset, 0) if slot < 0 else self.entry(slot)


class TimeIndex:
    """The entries of one .timeindex file, offsets absolute: the largest timestamp up to an offset.

    Args: is_whole: all of content is entries, none of it preallocated space; earlier: an index of the first of them.
    Attributes: search, the compiled search, which remembers what the log has confirmed of the entries; rising_count,
        how many of the first ones are known to increase.
    Threads: safe.  Source: Kafka TimeIndex.
    """

    def __init__(
        self,
        content: bytes | memoryview,
        *,
        base_offset: int,
        path: str,
        is_whole: bool = False,
        earlier: TimeIndex | None = None,
    ) -> None:
        self.base_offset = base_offset
        self.path = path
        self._entries = content if is_whole else _without_padding(content, TIME_INDEX_ENTRY_SIZE)
        self.entry_count = len(self._entries) // TIME_INDEX_ENTRY_SIZE
        self.search: TimeIndexSearch = TimeIndexSearch(
            self._entries, base_offset=base_offset, earlier=None if earlier is None else earlier.search
        )
        self._is_increasing: bool | None = None
        self.rising_count: int = 0 if earlier is None else earlier.rising_count

    @property
    def size_in_bytes(self) -> int:
        """Return the bytes that the entries take, without preallocated space."""
        return len(self._entries)

    def entry(self, slot: int) -> TimestampOffset:
        """Return the entry of a slot; IndexError outside 0 to entry_count - 1."""
        timestamp_ms, relative_offset = time_index_entry(self._entries, slot)
        return TimestampOffset(timestamp_ms, self.base_offset + relative_offset)

    def entries(self) -> Iterator[TimestampOffset]:
        """Yield every entry in slot order."""
        return (self.entry(slot) for slot in range(self.entry_count))

    def is_increasing(self) -> bool:
        """Tell whether timestamps and offsets both increase strictly and no offset is below the segment's base.

        Cost: O(entries) once, of those that an earlier index had not.
        """
        if self._is_increasing is None:
            start = max(self.rising_count - 1, 0) * TIME_INDEX_ENTRY_SIZE
            self._is_increasing = first_disordered_slot(self._entries[start:], TIME_INDEX_ENTRY_SIZE) < 0
            if self._is_increasing:
                self.rising_count = self.entry_count
        return self._is_increasing

    def slot_of_offset(self, target_offset: int) -> int:
        """Return the slot of the greatest entry with offset <= target_offset, -1 if none.

        Cost: O(log entries).
        """
        slots = range(self.entry_count)
        return bisect_right(slots, target_offset, key=lambda slot: self.entry(slot).offset) - 1

    def slot_of_timestamp(self, target_timestamp_ms: int) -> int:
        """Return the slot of the greatest entry with timestamp <= target_timestamp_ms, -1 if none.

        Cost: O(log entries).
        """
        return self.search.slot_of_timestamp(target_timestamp_ms)

    def lookup(self, target_timestamp_ms: int) -> TimestampOffset:
        """Return the greatest entry with timestamp <= target_timestamp_ms, (-1, base_offset) if there is none.

        Source: Kafka TimeIndex.lookup.
        """
        slot = self.slot_of_timestamp(target_timestamp_ms)
        return TimestampOffset(-1, self.base_offset) if slot < 0 else self.entry(slot)


class IndexCache:
    """The indexes of one log that were read last, kept within INDEX_CACHE_BYTES among those of the process.

    A missing index is None, and so, with a warning, is one that can't be read or is larger than MAX_INDEX_BYTES:
    an index costs time when it is wrong, never an answer.
    Threads: safe.
    """

    def __init__(self, env: Env) -> None:
        self._env = env

    def offset_index(self, path: str, *, base_offset: int) -> OffsetIndex | None:
        """Return the offset index at a path, reading it if it is not kept."""
        loan = _OFFSET_INDEXES.lend(self, path, lambda: self._read(path, OffsetIndex, base_offset))
        _OFFSET_INDEXES.give_back(loan)
        return loan.value

    def time_index(self, path: str, *, base_offset: int) -> TimeIndex | None:
        """Return the time index at a path, reading it if it is not kept."""
        loan = _TIME_INDEXES.lend(self, path, lambda: self._read(path, TimeIndex, base_offset))
        _TIME_INDEXES.give_back(loan)
        return loan.value

    def forget(self, path: str) -> None:
        """Let go of one index, so that it is read anew."""
        _OFFSET_INDEXES.release_one(self, path)
        _TIME_INDEXES.release_one(self, path)

    def close(self) -> None:
        """Let go of the indexes of this log."""
        _OFFSET_INDEXES.release(self)
        _TIME_INDEXES.release(self)

    def _read(self, path: str, kind: type[_Index], base_offset: int) -> _Index | None:
        try:
            content = self._env.read_file(path, max_bytes=MAX_INDEX_BYTES)
        except StorageError as error:
            if error.errno != ENOENT:
                _logger.warning("going on without an index: %s", error)
            return None
        return kind(content, base_offset=base_offset, path=path)


def _without_padding(content: bytes | memoryview, entry_size: int) -> bytes | memoryview:
    return content[: index_entry_count(content, entry_size) * entry_size]


def _weight(index: OffsetIndex | TimeIndex | None) -> int:
    return _ENTRY_WEIGHT + (0 if index is None else index.size_in_bytes)


def _let_go(_index: OffsetIndex | TimeIndex | None) -> None:
    """Memory needs no call to be freed."""


_OFFSET_INDEXES: SharedCache[OffsetIndex | None] = SharedCache(limit=INDEX_CACHE_BYTES, weigh=_weight, drop=_let_go)
_TIME_INDEXES: SharedCache[TimeIndex | None] = SharedCache(limit=INDEX_CACHE_BYTES, weigh=_weight, drop=_let_go)
