"""The offset and time index of a segment: OffsetIndex and TimeIndex for reading, IndexCache, and the files of a writer.

OffsetIndexFile and TimeIndexFile keep the entries in memory and write them to the file by pages. The file is allocated
in steps and is neither sparse nor mapped, so that a full disk raises an error that names the file instead of a signal.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from kstore._core import (
    OFFSET_INDEX_ENTRY_SIZE,
    TIME_INDEX_ENTRY_SIZE,
    IndexEntries,
    OffsetIndexEntries,
    OffsetIndexSearch,
    TimeIndexEntries,
    TimeIndexSearch,
    first_disordered_slot,
    index_entry_count,
    offset_index_entry,
    time_index_entry,
)
from kstore._lazy import lazy_logger
from kstore.env import DEFAULT_ENV, ENOENT, Env, StrPath, WriteFile
from kstore.env.cache import SharedCache
from kstore.errors import CorruptIndexError, LogClosedError, StorageError
from kstore.log.damage import corruption
from kstore.log.files.checkpoints import replace_file
from kstore.types import OffsetPosition, TimestampOffset

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self

MAX_INDEX_BYTES = 256 * 1024 * 1024
# For offset indexes, and the same again for time indexes.
INDEX_CACHE_BYTES = 32 * 1024 * 1024
_ENTRY_WEIGHT = 512

_Index = TypeVar("_Index", "OffsetIndex", "TimeIndex")
_logger = lazy_logger("kstore.log")


class OffsetIndex:
    """The entries of one .index file, with absolute offsets.

    Up to Kafka 1.1 an entry holds the first offset of an append, later the last; the position is always where the
    append starts. Entries are in order on disk, but nothing here relies on it.
    Args: is_whole: all of content is entries, without preallocated space; earlier: an index of the first of these
        entries.
    Attributes: search (the compiled search, which remembers which entries the log has proven), slot_of_offset and
        slot_of_position (its methods: return the slot of the greatest entry whose offset or position is not above the
        given one, -1 if there is none).
    Threads: thread-safe.  Source: Kafka OffsetIndex.
    """

    def __init__(
        self,
        content: bytes | bytearray | memoryview,
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
        self.slot_of_position = self.search.slot_of_position

    @property
    def size_in_bytes(self) -> int:
        """The size of the entries in bytes, without preallocated space."""
        return len(self._entries)

    def entry(self, slot: int) -> OffsetPosition:
        """Return the entry in a slot; raises IndexError outside [0, entry_count)."""
        relative_offset, position = offset_index_entry(self._entries, slot)
        return OffsetPosition(self.base_offset + relative_offset, position)

    def entries(self) -> Iterator[OffsetPosition]:
        """Yield every entry in slot order."""
        return (self.entry(slot) for slot in range(self.entry_count))

    def slots_of_offsets(self, target_offsets: Buffer) -> memoryview:
        """Return the slot of each of many offsets, as slot_of_offset does.

        Args: target_offsets: a contiguous buffer of int64, such as a NumPy array.
        Returns: a view of int64 ("q").  Cost: O(log entries) each; searches are interleaved and run without the GIL.
        """
        return memoryview(self.search.slots_of_offsets(target_offsets)).cast("q")

    def lookup(self, target_offset: int) -> OffsetPosition:
        """Return the greatest entry whose offset is <= target_offset, (base_offset, 0) if there is none.

        Source: Kafka OffsetIndex.lookup.
        """
        slot = self.slot_of_offset(target_offset)
        return OffsetPosition(self.base_offset, 0) if slot < 0 else self.entry(slot)


class TimeIndex:
    """The entries of one .timeindex file, with absolute offsets: the largest timestamp up to an offset.

    Args: is_whole: all of content is entries, without preallocated space; earlier: an index of the first of these
        entries.
    Attributes: search (the compiled search, which remembers which entries the log has confirmed), rising_count (how
        many of the first entries are known to increase).
    Threads: thread-safe.  Source: Kafka TimeIndex.
    """

    def __init__(
        self,
        content: bytes | bytearray | memoryview,
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
        """The size of the entries in bytes, without preallocated space."""
        return len(self._entries)

    def entry(self, slot: int) -> TimestampOffset:
        """Return the entry in a slot; raises IndexError outside [0, entry_count)."""
        timestamp_ms, relative_offset = time_index_entry(self._entries, slot)
        return TimestampOffset(timestamp_ms, self.base_offset + relative_offset)

    def entries(self) -> Iterator[TimestampOffset]:
        """Yield every entry in slot order."""
        return (self.entry(slot) for slot in range(self.entry_count))

    def is_increasing(self) -> bool:
        """Whether timestamps and offsets both increase strictly and no offset is below the segment's base offset.

        Cost: O(entries) once, without those that an earlier index has checked.
        """
        if self._is_increasing is None:
            start = max(self.rising_count - 1, 0) * TIME_INDEX_ENTRY_SIZE
            self._is_increasing = first_disordered_slot(self._entries[start:], TIME_INDEX_ENTRY_SIZE) < 0
            if self._is_increasing:
                self.rising_count = self.entry_count
        return self._is_increasing

    def slot_of_offset(self, target_offset: int) -> int:
        """Return the slot of the greatest entry with offset <= target_offset, -1 if there is none.

        Cost: O(log entries).
        """
        slots = range(self.entry_count)
        return bisect_right(slots, target_offset, key=lambda slot: self.entry(slot).offset) - 1

    def slot_of_timestamp(self, target_timestamp_ms: int) -> int:
        """Return the slot of the greatest entry with timestamp <= target_timestamp_ms, -1 if there is none.

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
    """The indexes of one log in a least-recently-used cache of INDEX_CACHE_BYTES that all logs of the process share.

    A missing index is None. So is one that cannot be read or is larger than MAX_INDEX_BYTES, which is logged: a lookup
    without an index is slower but returns the same.
    Args: is_mapped: files of at least a page are mapped in place of being read; nobody else may shorten them then, and
        this process removes entries of a mapped file by replacing it (see _EntriesFile.truncate).
    Threads: thread-safe.
    """

    def __init__(self, env: Env, *, is_mapped: bool = False) -> None:
        self._env = env
        self._is_mapped = is_mapped
        self._was_asked = False

    def offset_index(self, path: str, *, base_offset: int) -> OffsetIndex | None:
        """Return the offset index at a path, reading it if it is not cached."""
        self._was_asked = True
        with _OFFSET_INDEXES.lend(self, path, lambda: self._read(path, OffsetIndex, base_offset)) as index:
            return index

    def time_index(self, path: str, *, base_offset: int) -> TimeIndex | None:
        """Return the time index at a path, reading it if it is not cached."""
        self._was_asked = True
        with _TIME_INDEXES.lend(self, path, lambda: self._read(path, TimeIndex, base_offset)) as index:
            return index

    def forget(self, path: str) -> None:
        """Drop one index from the cache, so that it is read again."""
        _OFFSET_INDEXES.release_one(self, path)
        _TIME_INDEXES.release_one(self, path)

    def close(self) -> None:
        """Drop the indexes of this log from the cache."""
        if self._was_asked:
            _OFFSET_INDEXES.release(self)
            _TIME_INDEXES.release(self)

    def _read(self, path: str, kind: type[_Index], base_offset: int) -> _Index | None:
        try:
            mapped = self._map(path) if self._is_mapped else None
            content = self._env.read_untrusted(path, max_bytes=MAX_INDEX_BYTES) if mapped is None else mapped
        except StorageError as error:
            if error.errno != ENOENT:
                _logger.warning("continuing without an index: %s", error)
            return None
        return kind(content, base_offset=base_offset, path=path)

    def _map(self, path: str) -> memoryview | None:
        """Map a file; None for one that is read instead: it is small, too large, or ends in zeros, which may be
        preallocated space that its writer still removes.
        """
        with self._env.open_read(path) as file:
            size = file.size()
            if not PAGE_BYTES <= size <= MAX_INDEX_BYTES:
                return None
            is_padded = not any(file.pread(OFFSET_INDEX_ENTRY_SIZE, position=size - OFFSET_INDEX_ENTRY_SIZE))
            return None if is_padded else memoryview(file.map(size))


def _without_padding(content: bytes | bytearray | memoryview, entry_size: int) -> bytes | bytearray | memoryview:
    return content[: index_entry_count(content, entry_size) * entry_size]


def _weight(index: OffsetIndex | TimeIndex | None) -> int:
    return _ENTRY_WEIGHT + (0 if index is None else index.size_in_bytes)


def _let_go(_index: OffsetIndex | TimeIndex | None) -> None:
    """Does nothing: dropping the last reference frees the memory."""


_OFFSET_INDEXES: SharedCache[OffsetIndex | None] = SharedCache(limit=INDEX_CACHE_BYTES, weigh=_weight, drop=_let_go)
_TIME_INDEXES: SharedCache[TimeIndex | None] = SharedCache(limit=INDEX_CACHE_BYTES, weigh=_weight, drop=_let_go)


_Viewed = TypeVar("_Viewed", OffsetIndex, TimeIndex)

PAGE_BYTES = 4096
# How much of a file is allocated at a time: whole pages, and whole entries of both kinds.
ALLOCATION_BYTES = 12 * PAGE_BYTES


class _EntriesFile:
    """The file that stores the in-memory entries of an index. The entries are authoritative; the file follows them.

    It is open only while it is written, so that a log keeps no descriptor for it. A failed write may be retried, and so
    may a sync: what it lost is written again before the next one.
    Args: size_in_bytes: of the entries in the file; readers of an earlier life of the log may have them mapped.
    """

    def __init__(self, file: WriteFile, *, size_in_bytes: int, env: Env) -> None:
        self.path = file.path
        self._mapped_bytes = size_in_bytes
        self._env = env
        self._inode = _inode_of(file.path, env)
        self._open_file: WriteFile | None = file
        self._allocated_bytes = file.size()
        self._written_bytes = size_in_bytes
        self._is_dirty = True
        self._is_closed = False

    @property
    def _file(self) -> WriteFile:
        if self._is_closed:
            raise LogClosedError(f"{self.path} was closed before the call", path=self.path)
        if self._open_file is None:
            if _inode_of(self.path, self._env) != self._inode:
                raise StorageError(
                    f"{self.path} was removed or replaced while a writer had it open", path=self.path, errno=ENOENT
                )
            self._open_file = self._env.open_write(self.path)
        return self._open_file

    def write(self, entries: IndexEntries, *, end: int) -> None:
        """Write the entries up to byte `end` that are not in the file yet."""
        if end <= self._written_bytes:
            return
        if end > self._allocated_bytes:
            most = entries.max_entries * entries.entry_size
            wanted = min(-(-end // ALLOCATION_BYTES) * ALLOCATION_BYTES, most)
            self._file.allocate(wanted)
            self._allocated_bytes = wanted
        self._is_dirty = True
        self._file.pwrite(entries.content[self._written_bytes : end], position=self._written_bytes)
        self._written_bytes = end

    def truncate(self, entries: IndexEntries, size: int) -> None:
        """Truncate the file to the first `size` bytes of the entries.

        A file that has lost entries that readers may have mapped is replaced: they keep the old one.
        """
        if size < self._mapped_bytes:
            self.close()
            replace_file(self.path, bytes(entries.content[:size]), self._env)
            self._inode = _inode_of(self.path, self._env)
            self._mapped_bytes, self._allocated_bytes, self._is_dirty = 0, size, False
        elif size < self._allocated_bytes:
            self._is_dirty = True
            self._file.truncate(size)
            self._allocated_bytes = size
        self._written_bytes = min(self._written_bytes, size)

    def sync(self) -> None:
        """Wait until the file survives a power cut."""
        if not self._is_dirty:
            return
        try:
            self._file.sync()
        except StorageError:
            self._written_bytes = 0
            raise
        self._is_dirty = False

    def close(self) -> None:
        """Close the file; the next write reopens it."""
        file, self._open_file = self._open_file, None
        if file is not None:
            file.close()

    def close_for_good(self) -> None:
        """Close the file permanently."""
        self._is_closed = True
        self.close()


def _inode_of(path: str, env: Env) -> tuple[int, int] | None:
    status = env.stat(path, follow_symlinks=False)
    return None if status is None else status.identity[:2]


class _IndexFile:
    """What both kinds of index files share."""

    _entries_type: ClassVar[type[OffsetIndexEntries | TimeIndexEntries]]
    _entry_size: ClassVar[int]

    def __init__(self, file: _EntriesFile, entries: IndexEntries) -> None:
        self._file = file
        file.close()
        self.entries = entries
        self._is_closed = False
        # The last view, and the number of removals of entries when it was made.
        self._viewed: tuple[int, Any] | None = None

    @classmethod
    def open(cls, path: StrPath, *, base_offset: int, max_bytes: int, env: Env = DEFAULT_ENV) -> Self:
        """Open a file, creating it if it does not exist; zeros at its end are preallocated space.

        Args: max_bytes: segment.index.bytes.
        Raises: StorageError; CorruptIndexError if the entries are incomplete or not in order.
        """
        file, content = _open(path, env=env, entry_size=cls._entry_size)
        return cls(file, cls._entries_type(content, base_offset=base_offset, max_bytes=max_bytes))

    @classmethod
    def create(cls, path: StrPath, *, base_offset: int, max_bytes: int, env: Env = DEFAULT_ENV) -> Self:
        """Open a file as an empty index; existing content is dropped.  Raises: StorageError."""
        file = _create(path, env=env)
        return cls(file, cls._entries_type(b"", base_offset=base_offset, max_bytes=max_bytes))

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def base_offset(self) -> int:
        return self.entries.base_offset

    @property
    def entry_count(self) -> int:
        return self.entries.entry_count

    @property
    def max_entries(self) -> int:
        """The number of entries that fit max_bytes; at least as many as there are."""
        return self.entries.max_entries

    @property
    def size_in_bytes(self) -> int:
        """The size of the entries in bytes, without preallocated space."""
        return self.entries.entry_count * self.entries.entry_size

    def write_full_pages(self) -> None:
        """Write the full pages that are not in the file yet.

        Raises: StorageError; the index is unchanged, and the next call retries.
        """
        size = self.size_in_bytes
        with closing(self._file) as file:
            file.write(self.entries, end=size - size % PAGE_BYTES)

    def trim(self) -> None:
        """Write all entries and truncate the file after them, as for a sealed segment."""
        with closing(self._file) as file:
            file.write(self.entries, end=self.size_in_bytes)
            file.truncate(self.entries, self.size_in_bytes)

    def flush(self) -> None:
        """Write all entries and wait until they survive a power cut; no system call if nothing changed.

        The name of a new file becomes durable when the directory is synced, as the flush of the .log does.
        Raises: StorageError; the index stays usable, and the next flush retries.
        """
        with closing(self._file) as file:
            file.write(self.entries, end=self.size_in_bytes)
            file.sync()

    def close(self) -> None:
        """Trim, flush and close; a second call does nothing.

        Raises: StorageError; the file is closed in any case.
        """
        if self._is_closed:
            return
        try:
            self.trim()
            self._file.sync()
        finally:
            self.close_handlers()

    def close_handlers(self) -> None:
        """Close the file without writing: entries that were not written are lost."""
        self._is_closed = True
        self._file.close_for_good()

    def _view_of(self, kind: type[_Viewed]) -> _Viewed:
        """Return the last view if it has all entries, else a new one that inherits what that one has found out."""
        truncation_count, content, viewed = self.entries.truncation_count, self.entries.content, self._viewed
        earlier: _Viewed | None = viewed[1] if viewed is not None and viewed[0] == truncation_count else None
        if earlier is not None and earlier.size_in_bytes >= len(content):
            return earlier
        view = kind(content, base_offset=self.base_offset, path=self.path, is_whole=True, earlier=earlier)
        self._viewed = truncation_count, view
        return view

    def _keep(self, entry_count: int) -> None:
        with closing(self._file) as file:
            file.truncate(self.entries, entry_count * self.entries.entry_size)
        self.entries.keep(entry_count)


class OffsetIndexFile(_IndexFile):
    """The .index file of a segment that is being written; created by open.

    Attributes: entries (compiled appends add to it directly; write_full_pages is called from time to time).
    Threads: one writer; view and the properties from any thread.  Source: Kafka OffsetIndex.
    """

    entries: OffsetIndexEntries
    _entries_type = OffsetIndexEntries
    _entry_size = OFFSET_INDEX_ENTRY_SIZE

    @property
    def last_offset(self) -> int:
        """The offset of the last entry, base_offset if there is none."""
        return self.entries.last_offset

    @property
    def is_full(self) -> bool:
        return self.entries.entry_count >= self.entries.max_entries

    def append(self, *, offset: int, position: int) -> None:
        """Add an entry: the last offset of a batch, and the position where the batch starts.

        Raises: ValueError if the index is full, or the offset is not above the last one or more than 2147483647 above
            base_offset; StorageError if a page cannot be written. The index is unchanged then.
        """
        self.write_full_pages()
        self.entries.append(offset=offset, position=position)

    def truncate_to(self, offset: int, *, log_size_in_bytes: int | None = None) -> None:
        """Remove the entries from an offset on, and those with a position after the end of the log.

        Raises: StorageError, with the entries kept.
        """
        index = self.view()
        slot = index.slot_of_offset(offset - 1)
        if log_size_in_bytes is not None:
            slot = min(slot, index.slot_of_position(log_size_in_bytes - 1))
        self._keep(slot + 1)

    def view(self) -> OffsetIndex:
        """Return the current entries, for reading by any thread; later entries do not change the result."""
        return self._view_of(OffsetIndex)


class TimeIndexFile(_IndexFile):
    """The .timeindex file of a segment that is being written; created by open.

    Attributes: entries, as in OffsetIndexFile.
    Threads: one writer; view and the properties from any thread.  Source: Kafka TimeIndex.
    """

    entries: TimeIndexEntries
    _entries_type = TimeIndexEntries
    _entry_size = TIME_INDEX_ENTRY_SIZE

    @property
    def last_entry(self) -> TimestampOffset:
        """The last entry, (-1, base_offset) if there is none."""
        return TimestampOffset(*self.entries.last_entry)

    @property
    def is_full(self) -> bool:
        """Whether there is room for the closing entry only."""
        return self.entries.entry_count >= self.entries.max_entries - 1

    def maybe_append(self, *, timestamp_ms: int, offset: int, skip_full_check: bool = False) -> bool:
        """Add the largest timestamp so far and the last offset of its batch, unless the last entry has that timestamp.

        Args: skip_full_check: for the closing entry, which has a slot of its own.
        Returns: whether an entry was added.
        Raises: ValueError if the index is full, or timestamp or offset are below those of the last entry or out of
            range; StorageError if a page cannot be written. The index is unchanged then.
        """
        self.write_full_pages()
        return self.entries.maybe_append(timestamp_ms=timestamp_ms, offset=offset, skip_full_check=skip_full_check)

    def truncate_to(self, offset: int) -> None:
        """Remove the entries from an offset on.

        Raises: StorageError, with the entries kept.
        """
        self._keep(self.view().slot_of_offset(offset - 1) + 1)

    def view(self) -> TimeIndex:
        """Return the current entries, for reading by any thread; later entries do not change the result."""
        return self._view_of(TimeIndex)


def _open(path: StrPath, *, env: Env, entry_size: int) -> tuple[_EntriesFile, bytes]:
    """Return the file and its entries, without preallocated zeros."""
    file = env.open_write(env.absolute_path(path))
    try:
        content = file.pread(min(file.size(), MAX_INDEX_BYTES + 1), position=0)
        size = _checked_size(content, path=file.path, entry_size=entry_size)
        return _EntriesFile(file, size_in_bytes=size, env=env), content[:size]
    except BaseException:
        file.close()
        if file.is_new:
            env.unlink(file.path)
        raise


def _create(path: StrPath, *, env: Env) -> _EntriesFile:
    path = env.absolute_path(path)
    # Never shortened in place: readers may have it mapped.
    env.unlink(path)
    file = env.open_write(path)
    try:
        return _EntriesFile(file, size_in_bytes=0, env=env)
    except BaseException:
        file.close()
        raise


def _checked_size(content: bytes, *, path: str, entry_size: int) -> int:
    """Return the size of the entries of an index file in bytes, after checks that need no log."""
    if len(content) > MAX_INDEX_BYTES:
        raise corruption(
            CorruptIndexError,
            "index too large",
            path=path,
            expected=f"at most {MAX_INDEX_BYTES}",
            found="more",
            position=0,
        )
    if len(content) % entry_size:
        whole = len(content) // entry_size * entry_size
        expected = f"a multiple of {entry_size}"
        raise corruption(
            CorruptIndexError, "size of an index", path=path, expected=expected, found=len(content), position=whole
        )
    count = index_entry_count(content, entry_size)
    # A single entry of zeros in a time index is not padding: it is a record of the year 1970 at the base offset.
    if count == 0 and len(content) == TIME_INDEX_ENTRY_SIZE:
        count = 1
    size = count * entry_size
    slot = first_disordered_slot(memoryview(content)[:size], entry_size)
    if slot >= 0:
        position = slot * entry_size
        found = content[position : position + entry_size].hex()
        raise corruption(
            CorruptIndexError,
            "index entry out of order",
            path=path,
            position=position,
            expected="increasing entries",
            found=found,
        )
    return size
