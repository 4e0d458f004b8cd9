"""NewestOffsets: the newest offset of each key of a log, followed as the log changes; MapMemory bounds its memory.

The keys are mapped by the compiled pass of a compaction, from the log's start on, in the rounds of a LogTail: so
truncations, retention and compactions by other processes are noticed as a follower notices them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import NamedTuple

from kstore._core import CompactionPass, OffsetMap
from kstore.compression import decompress
from kstore.errors import CorruptionError, InvalidRecordError, OffsetOutOfRangeError, UnsupportedError
from kstore.log.files.records import BatchPlace, entry_size
from kstore.log.following.tail import LogTail, ReadRound
from kstore.log.plan import Extent, extents
from kstore.log.reads import Isolation, Reads
from kstore.log.segment.listing import changes_too_often
from kstore.log.segment.segment import LogSegment
from kstore.log.source import LogSource
from kstore.log.state.transactions import AbortedTransaction
from kstore.record.batches import RecordBatch

# Of the first map of a partition, with its spare slots.
LEAST_MAP_BYTES = 64 * 1024
_FIRST_SLOT_BYTES = 40 * 1024
# How much of a map is used before it grows, and of one that can't.
_LOAD, _FULL_LOAD = 0.75, 0.9
# A map that could grow only by a smaller part than this of itself stays as it is.
_LEAST_GROWTH = 8
_MOST_STARTS = 100


class _MapFullError(Exception):
    """The keys do not fit the memory."""


class _MapLostError(Exception):
    """The map may have keys of batches that were truncated while they were mapped."""


class MapMemory:
    """The memory of several maps, at most max_bytes in all.

    Attributes: max_bytes, used_bytes.
    Threads: not thread-safe.
    """

    def __init__(self, max_bytes: int, *, secret: bytes) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self._secret = secret

    def made(self) -> OffsetMap | None:
        """Return a small map, None if there is no memory for one."""
        if self.used_bytes + LEAST_MAP_BYTES > self.max_bytes:
            return None
        made = OffsetMap(memory_bytes=_FIRST_SLOT_BYTES, load_factor=_LOAD, secret=self._secret)
        self.used_bytes += made.size_in_bytes
        return made

    def release(self, offset_map: OffsetMap) -> None:
        """Count the memory of a map as free; the caller drops it."""
        self.used_bytes -= offset_map.size_in_bytes

    def has_grown(self, offset_map: OffsetMap) -> bool:
        """Double a full map, as far as there is memory; return whether it has room now."""
        size, before = offset_map.memory_bytes, offset_map.size_in_bytes
        more = min(size, self.max_bytes - self.used_bytes)
        if more * _LEAST_GROWTH >= size:
            offset_map.grow(memory_bytes=size + more, load_factor=_LOAD)
        elif offset_map.entry_count < offset_map.most_entries:
            # A run of entries reached the end of the map.
            return False
        else:
            offset_map.grow(memory_bytes=size, load_factor=_FULL_LOAD)
        self.used_bytes += offset_map.size_in_bytes - before
        return offset_map.entry_count < offset_map.most_entries


class _Round(NamedTuple):
    """What is mapped of a log: [start, end) of these parts. anchor: as in SegmentRecords.read_batches."""

    start: int
    end: int
    parts: list[Extent]
    aborted: tuple[AbortedTransaction, ...]
    anchor: BatchPlace | None


class NewestOffsets:
    """The newest offset of each key of one log; a key whose newest value is null has none.

    Records without a key are left out. follow() brings the map up to date.
    Args: open_tail: opens the log at its start for a reader of its own.
    Attributes: source, map, keyless_count (records without a key so far), position (the offset up to which the log is
        mapped), version (another number after each change of the map), is_full (the keys do not fit the memory:
        follow() does nothing any more until restart()).
    Raises: from the constructor and follow() as LogTail, but for truncations and records that retention removed, after
        which the log is mapped from its start again.
    Threads: not thread-safe.
    """

    def __init__(
        self,
        open_tail: Callable[[ReadRound], LogTail],
        memory: MapMemory,
        *,
        isolation: Isolation,
    ) -> None:
        self._open_tail = open_tail
        self._memory = memory
        self._isolation: Isolation = isolation
        self._tail: LogTail | None = None
        # Met in a batch of which the map may have the records before it.
        self._damage: InvalidRecordError | None = None
        self.map: OffsetMap | None = None
        self.version = 0
        self.restart()

    @property
    def source(self) -> LogSource:
        return self._opened.source

    @property
    def position(self) -> int:
        return self._opened.position

    @property
    def key_count(self) -> int:
        """The number of keys that have a value."""
        return 0 if self.map is None else self.map.entry_count

    def offset_of(self, key: bytes) -> int:
        """Return the newest offset of a key, -1 for none."""
        return -1 if self.map is None else self.map.get(key)

    def restart(self) -> None:
        """Map the log from its start at the next follow()."""
        self.close()
        self.keyless_count = 0
        self._new_keyless = 0
        # Whether something was mapped that the tail has not passed.
        self._is_mapping = False
        self.map = self._memory.made()
        self.is_full = self.map is None
        self.version += 1
        self._tail = self._open_tail(self._mapped)
        self._start_offset = self.source.log_start_offset
        self._files = _files_of(self.source)
        self._mapped_end = self.position

    def close(self) -> None:
        """Close the log unless it was open before, and free the map; a second call does nothing."""
        tail, self._tail = self._tail, None
        if tail is not None:
            tail.close()
        offset_map, self.map = self.map, None
        if offset_map is not None:
            self._memory.release(offset_map)

    def follow(self) -> bool:
        """Map what is new in the log; return whether the map may have changed."""
        before = self.version
        for starts_left in range(_MOST_STARTS, -1, -1):
            if self.is_full:
                break
            try:
                self._catch_up()
                break
            except _MapFullError:
                self.is_full = True
            except (_MapLostError, OffsetOutOfRangeError) as error:
                damage, self._damage = self._damage, None
                self.restart()
                if damage is not None:
                    raise damage from None
                if not starts_left:
                    raise changes_too_often(self.source.context.directory) from error
        return self.version != before

    @property
    def _opened(self) -> LogTail:
        if self._tail is None:
            raise ValueError("the map of the log was closed")
        return self._tail

    def _catch_up(self) -> None:
        while self._opened.next_part() is not None:
            self._is_mapping = False
            self.keyless_count += self._new_keyless
            self._new_keyless = 0
            self.version += 1
        start = self.source.log_start_offset
        if start > self._start_offset and self.map is not None:
            self.map.remove_below(start)
            self.version += 1
        self._start_offset = start
        self._check_not_cleaned()

    def _check_not_cleaned(self) -> None:
        """Raise _MapLostError if a compaction may have removed what the map would have to know.

        That is a tombstone that was not mapped yet, and the records before it: then a segment was replaced, and not all
        that can have been cleaned, the segments before the active one, was mapped before. Of uncommitted records, it is
        also an aborted one that was the newest of its key.
        """
        before, self._files = self._files, _files_of(self.source)
        mapped_end, self._mapped_end = self._mapped_end, self.position
        first, active = min(self._files, default=0), max(self._files, default=0)
        # A truncation can make a cleaned segment the active one.
        is_known = active in before and before[active] == self._files.get(active)
        if self._isolation == "read_committed" and is_known and mapped_end >= active:
            return
        if any(at >= first and self._files.get(at) != file for at, file in before.items()):
            raise _MapLostError

    def _mapped(self, reads: Reads, bounds: tuple[int, int]) -> Iterator[RecordBatch]:
        """Map the keys of [start, end), and yield the last batch of each part that was mapped."""
        watch = reads.source.watch()
        return watch(lambda: self._map(self._round(reads, bounds)), bounds[0], attrgetter("last_offset"))

    def _round(self, reads: Reads, given: tuple[int, int]) -> _Round:
        source = reads.source
        start, end = given

        def find() -> _Round:
            bounds = {"start_offset": start, "end_offset": end}
            settled = reads.settled(self._isolation)
            last = source.last_batch() if settled is None else settled.last_batch
            aborted = () if settled is None else settled.transactions.aborted_between(**bounds)
            parts = extents(source.segments, **bounds, log_end_offset=source.log_end_offset)
            return _Round(start, end, list(parts), aborted, last)

        return source.answer(find)

    def _map(self, given: _Round) -> Iterator[RecordBatch]:
        if self._is_mapping or self.map is None:
            raise _MapLostError
        config = self.source.context.config
        mapping = CompactionPass(
            self.map,
            aborted=given.aborted,
            decompress=decompress,
            start_offset=given.start,
            end_offset=given.end,
            removes_tombstones=True,
            max_batch_bytes=config.max_batch_bytes,
            max_decompressed_bytes=config.max_decompressed_bytes,
        )
        for segment, position, end_position, *_ in given.parts:
            mapping.start_segment(
                base_offset=segment.base_offset,
                next_base_offset=segment.next_base_offset,
                position=position,
                end_position=end_position,
                path=segment.path,
            )
            yield from self._map_segment(mapping, segment, (position, end_position), given.anchor)
            if mapping.is_past_end:
                # The tail then knows that the rest of the log is not all there is of this batch.
                yield from self._batch_at(mapping.position, segment, end_position)
                return

    def _map_segment(
        self, mapping: CompactionPass, segment: LogSegment, extent: tuple[int, int], anchor: BatchPlace | None
    ) -> Iterator[RecordBatch]:
        position, end_position = extent
        most = wanted = self.source.context.config.read_chunk_bytes
        while position < end_position and not mapping.is_past_end:
            chunk = segment.records.read_before(anchor, min(wanted, end_position - position), position=position)
            self._is_mapping = True
            keyless_before, _ = mapping.keyless
            fault = None
            try:
                self._map_chunk(mapping, chunk, position)
            except (CorruptionError, UnsupportedError) as error:
                fault = error
            reached = mapping.position
            if reached > position:
                self._new_keyless = mapping.keyless[0] - keyless_before
                at = mapping.last_position
                yield self._batch(chunk[at - position : reached - position], at, segment)
            if fault is not None:
                self._damage = fault if isinstance(fault, InvalidRecordError) else None
                self._is_mapping = self._damage is not None
                raise fault
            self._is_mapping = False
            # If nothing was mapped, the header of the first batch is sound.
            wanted = most if reached > position or mapping.is_past_end else entry_size(chunk)
            position = reached

    def _map_chunk(self, mapping: CompactionPass, chunk: bytes, position: int) -> None:
        mapping.map_keys(chunk, position)
        while mapping.is_full and self.map is not None:
            if not self._memory.has_grown(self.map):
                raise _MapFullError
            mapping.map_keys(chunk, position)

    def _batch_at(self, position: int, segment: LogSegment, end_position: int) -> Iterator[RecordBatch]:
        header = segment.records.walk(position=position, end_position=end_position, stop_offset=0).found
        if header is not None:
            data = segment.records.read_bytes(header.size_in_bytes, position=position)
            yield self._batch(data, position, segment)

    def _batch(self, data: bytes, position: int, segment: LogSegment) -> RecordBatch:
        context = self.source.context
        return RecordBatch(
            data,
            position=position,
            path=segment.path,
            topic_partition=context.topic_partition,
            config=context.config,
        )


def _files_of(source: LogSource) -> dict[int, object]:
    """Return what distinguishes the file of each segment from others with its name, by base offset."""
    return {
        segment.base_offset: segment.file_use if segment.listed is None else segment.listed.identity
        for segment in source.segments
    }
