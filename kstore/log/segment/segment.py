"""LogSegment: one .log file with its indexes, as it was when the log was opened.

Every answer is correct without the indexes: an index entry is used only after the batch that it points to was found
whole, with a valid CRC, at an offset that fits the entry. Otherwise headers are walked from the segment's start.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from kstore._core import (
    RECORD_BATCH_OVERHEAD,
    BatchHeader,
    HeaderScan,
    OffsetIndexEntries,
    Record,
    RecoveryWalk,
    SegmentLookup,
    TimeIndexEntries,
    check_crc,
    iterate_records,
    read_header,
    search_timestamp_in_batch,
)
from kstore._core import search_timestamp as search_timestamp_in
from kstore.compression import decompress
from kstore.config import LogConfig
from kstore.env import Identity, OpenFiles
from kstore.errors import CorruptionError, CorruptRecordError, KStoreError, UnsupportedError
from kstore.log.damaged.sound import FileRange, SoundParts, fault_at_end, is_sound, sound_parts
from kstore.log.files.indexes import MAX_INDEX_BYTES, IndexCache, OffsetIndex, TimeIndex
from kstore.log.files.names import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_path
from kstore.log.files.records import (
    HEADER_CHUNK_BYTES,
    BatchPlace,
    SegmentRecords,
    changed_batch,
    entry_size,
    is_batch,
    is_preallocated,
)
from kstore.log.segment.replaced import ListedFile
from kstore.record.batches import SIZE_UP_TO_MAGIC
from kstore.types import MAX_OFFSET, NO_TIMESTAMP, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from kstore.log.files.transaction_index import StatedAborted

# How many entries one lookup tries, from the best one downwards, before it gives up on an index.
ENTRIES_TRIED = 3
MIN_TIMESTAMP_MS = -(2**63)
# A whole batch can end in one zero byte, the header count of its last record.
_LEAST_ZEROS = 2
# Of a store that answers slowly: segments up to this size are walked over without their index, with one read.
_SMALL_BYTES = 256 * 1024
# What the size of a preallocated file is a multiple of: segment.bytes, which people choose so.
_ROUND_SIZES = (1000, 1024)
# After this many searches by time that walk the first part of a segment, all of its entries are proven at once.
SEARCHES_BEFORE_PROOF = 2


class SegmentTail(NamedTuple):
    """How the last segment ends: status "end", "torn", "zeros" or "corrupt" as in HeaderScan, but zeros that other
    bytes follow, and an incomplete batch that sound batches follow, are "corrupt" in the last segment.

    valid_end_position is the end of the last whole batch before that, last_offset the last offset of that batch (-1 if
    there is none); error says what is wrong if status is "corrupt". last_position: where that batch starts, -1 if no
    walk came to it; last_header: its first bytes, empty if they were not read together with the others.
    """

    status: str
    valid_end_position: int
    last_offset: int
    error: KStoreError | None = None
    last_position: int = -1
    last_header: bytes = b""


class LogContext(NamedTuple):
    """What the segments of one log share."""

    topic_partition: TopicPartition
    directory: str
    config: LogConfig
    files: OpenFiles
    indexes: IndexCache
    # Returns the offset below which a cleaner may have removed records.
    cleaned_below: Callable[[], int]
    # Whether this process writes the log.
    is_live: bool = False

    def close(self) -> None:
        """Close the files that readers have open; a second call does nothing."""
        self.files.close()
        self.indexes.close()


class FileUse:
    """Lives as long as a reader can need the files of one segment, which all its LogSegments refer to."""

    __slots__ = ("__weakref__",)


class LogSegment:
    """One segment of a log, as a snapshot: bytes that a broker appends later are not seen.

    Attributes: path (of the .log), base_offset, next_base_offset (of the next segment; None for the last),
        size_in_bytes, records (the SegmentRecords), listed (the file that was found; None if this process writes the
        log, so that no other file can replace it), file_use, index_fallbacks (how many lookups so far met an index
        entry that contradicts the log), stated_aborted (what the transaction index states, None until it is read).
    Threads: thread-safe.  Source: Kafka LogSegment.
    """

    def __init__(
        self,
        context: LogContext,
        *,
        base_offset: int,
        next_base_offset: int | None,
        size_in_bytes: int,
        listed: ListedFile | None = None,
        identity: Identity | None = None,
        file_use: FileUse | None = None,
    ) -> None:
        self._context = context
        self.file_use = FileUse() if file_use is None else file_use
        self.base_offset = base_offset
        self.next_base_offset = next_base_offset
        self.size_in_bytes = size_in_bytes
        self.path = segment_path(context.directory, base_offset, suffix=LOG_SUFFIX) if listed is None else listed.path
        self.listed = listed
        self.records = SegmentRecords(
            context.files,
            path=self.path,
            base_offset=base_offset,
            next_base_offset=next_base_offset,
            size_in_bytes=size_in_bytes,
            config=context.config,
            identity=identity if listed is None else listed.identity,
            is_live=context.is_live,
        )
        self.index_fallbacks = 0
        self.stated_aborted: StatedAborted | None = None
        self._lock = threading.Lock()
        self._tail: SegmentTail | None = None
        self._reached: BatchHeader | None = None
        self._walked_to: BatchHeader | None = None
        self._scan_end_position: int | None = None
        self._largest_timestamp_ms: int | None = None
        self._walked_timestamp_ms: int | None = None
        self._prefix_searches = 0
        self._is_end_checked = False
        self._lookup: SegmentLookup | None = None

    def __repr__(self) -> str:
        return f"LogSegment(path={self.path!r}, base_offset={self.base_offset}, size_in_bytes={self.size_in_bytes})"

    @property
    def is_last(self) -> bool:
        """Whether this is the last segment, the one that a broker appends to."""
        return self.next_base_offset is None

    @property
    def url(self) -> str | None:
        """The URL from which another process makes the Env of the files, with its options; None for local ones."""
        return self._context.files.url

    def file_identity(self) -> Identity:
        """Return what distinguishes the .log from other files with its name."""
        if self.records.identity is not None:
            return self.records.identity
        with self.records.lend() as file:
            return file.identity()

    def forget_lookup(self) -> None:
        """Drop what lookups have prepared; it refers back to the segment, which would then outlive its readers."""
        self._lookup = None

    def note_file(self, identity: Identity) -> None:
        """Hold readers of the segment to its present file, before the writer replaces it."""
        self.records.identity = identity

    @property
    def directory(self) -> str:
        """The partition's directory."""
        return self._context.directory

    def first_timestamp_ms(self) -> int:
        """Return the largest timestamp in the header of the first batch, -1 if there is none.

        Raises: CorruptRecordError, UnsupportedMagicError for a damaged header.  Cost: a short read.
        """
        size = min(self.size_in_bytes, RECORD_BATCH_OVERHEAD)
        if size == 0 or (self.is_last and self.valid_end_position == 0):
            return NO_TIMESTAMP
        header: BatchHeader = read_header(
            self.records.read_bytes(size, position=0),
            position=0,
            path=self.path,
            max_batch_bytes=self._context.config.max_batch_bytes,
        )
        return header.max_timestamp_ms

    def largest_timestamp_ms(self) -> int:
        """Return the largest timestamp in the batch headers, -1 if there is none; no index is asked.

        Raises: CorruptRecordError and other errors for damage in the headers.
        Cost: a header walk; once, if the segment is not the last one.
        """
        if self._walked_timestamp_ms is None or self.is_last:
            scan = self._walk_from(None)
            self.records.stopped_at(scan)
            self._walked_timestamp_ms = scan.max_timestamp_ms
        return self._walked_timestamp_ms

    def continue_from(self, reached: BatchHeader) -> None:
        """Let walks start at a batch of this file that an earlier walk reached, where no later index entry leads."""
        self._reached = reached

    def forget_files(self) -> None:
        """Drop the open files and indexes, since other files may have the same names now."""
        self._context.files.forget(self.path)
        for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            self._context.indexes.forget(self._index_path(suffix))

    @property
    def offset_index(self) -> OffsetIndex | None:
        """The offset index, None if it is missing or cannot be read."""
        return self._context.indexes.offset_index(self._index_path(OFFSET_INDEX_SUFFIX), base_offset=self.base_offset)

    @property
    def time_index(self) -> TimeIndex | None:
        """The time index, None if it is missing or cannot be read."""
        return self._context.indexes.time_index(self._index_path(TIME_INDEX_SUFFIX), base_offset=self.base_offset)

    def _index_path(self, suffix: str) -> str:
        return self.path.removesuffix(LOG_SUFFIX) + suffix

    @property
    def tail(self) -> SegmentTail:
        """How the segment ends. Only the last segment may end in damage: in the others every byte must be valid, except
        preallocated space at the end, for which the status is "zeros".

        Cost: once, a header walk from the last valid index entry; in a segment other than the last, only if it ends in
            zeros.
        """
        if self.next_base_offset is not None:
            return self._older_tail()
        if self._tail is None:
            self._tail = self._find_tail()
        return self._tail

    @property
    def valid_end_position(self) -> int:
        """In the last segment, the end of the last whole batch; else the end of the file without preallocated space."""
        return self.tail.valid_end_position

    @property
    def scan_end_position(self) -> int:
        """Where a reader stops: before a torn or zero tail, but after damage, so that reading reports it."""
        if self._scan_end_position is None:
            tail = self.tail
            self._scan_end_position = self.size_in_bytes if tail.status == "corrupt" else tail.valid_end_position
        return self._scan_end_position

    def has_known_end(self) -> bool:
        """Return whether the end of the segment is known without a walk over all of it; find it if an index helps."""
        if self._tail is not None or not self.is_last:
            return True
        tail = self._indexed_tail()
        if tail is None:
            start = self._last_indexed_batch()
            if start is None and not self._ends_in_zeros():
                return False
            tail = self._tail_from(start)
        self._tail = tail
        return True

    def last_batch(self) -> BatchPlace | None:
        """Return the place of the last batch, None if there is none.

        Raises: LogReplacedError if the file was written again in the meantime.
        Cost: a header walk from the last valid index entry, and a read.
        """
        end_position = self.scan_end_position
        if end_position == 0:
            return None
        tail = self.tail
        if tail.last_header:
            return BatchPlace(self.path, self.file_identity(), tail.last_position, tail.last_header)
        if self.is_last and tail.last_position >= 0:
            return self._place_of(
                tail.last_position, last_offset=tail.last_offset, end_position=tail.valid_end_position
            )
        start = self._floor_batch(MAX_OFFSET, end_position=end_position)
        walk = self._walk_from(start)
        if walk.last_offset < 0:
            if start is not None:
                raise changed_batch(self.path, start.position)
            return None
        end_position = tail.valid_end_position if self.is_last else walk.position
        return self._place_of(walk.last_position, last_offset=walk.last_offset, end_position=end_position)

    def check_last_batch(self) -> bool:
        """Check the CRC of the last batch, and return whether there is one.

        Raises: CorruptRecordError, UnsupportedMagicError; as last_batch.
        Cost: once, that of last_batch and a read of the batch.
        """
        if not self._is_end_checked:
            place = self.last_batch()
            if place is None:
                return False
            data = self.records.read_bytes(entry_size(place.header), position=place.position)
            check_crc(data, position=place.position, path=self.path)
            self._is_end_checked = True
        return True

    def _place_of(self, position: int, *, last_offset: int, end_position: int) -> BatchPlace:
        """Return the place of the last batch, to which a walk has led.

        Its bytes are read once more: they must be of the batch that was found, and that one must be the last one still.
        """
        size = min(end_position - position, RECORD_BATCH_OVERHEAD)
        header = self.records.read_bytes(size, position=position)
        if not is_batch(header, position=position, last_offset=last_offset, end_position=end_position):
            raise changed_batch(self.path, position)
        return BatchPlace(self.path, self.file_identity(), position, header)

    def sound_parts(self, part: FileRange) -> SoundParts:
        """Return the sound batches of a part of the .log; see sound_parts.

        Raises: StorageError, LogReplacedError.  Cost: one read, and more for a part with a fault.
        """
        with self.records.lend() as file:
            return sound_parts(file, part, find_index=lambda: self.offset_index, config=self._context.config)

    def file_range(self, *, position: int, end_position: int, following_offset: int | None = None) -> FileRange:
        """Return a part of the .log, for readers that go on after damage."""
        finds_end = self.is_last and following_offset is None
        place = (self.path, self.base_offset, position, end_position)
        return FileRange(*place, self.next_base_offset, finds_end, following_offset)

    def last_offset_between(self, position: int, *, end_position: int) -> int:
        """Return the last offset of the batches that end in [position, end_position), -1 without any.

        Args: position: that of a batch.
        Raises: CorruptRecordError, UnsupportedMagicError for damage in the walked range.
        Cost: a header walk from the last index entry in the range; from `position` without one that holds.
        """
        start, last_offset = position, -1
        index = self.offset_index if end_position - position > HEADER_CHUNK_BYTES else None
        if index is not None:
            slot = index.slot_of_position(end_position - 1)
            batch = None
            if slot >= 0 and index.entry(slot).position > position:
                batch = self.verified_batch(index, slot, end_position=self.scan_end_position)
            if batch is not None and batch.position + batch.size_in_bytes <= end_position:
                start, last_offset = batch.position, batch.last_offset
        return max(last_offset, self.records.walk(position=start, end_position=end_position).last_offset)

    def floor_position(self, offset: int, *, end_position: int) -> int:
        """Return the start of a batch at or before all batches with records at or above an offset, by a proven index
        entry; 0 if there is none.
        """
        index = self.offset_index
        if index is None or end_position == 0:
            return 0
        slot = min(index.slot_of_offset(offset), index.slot_of_position(end_position - 1))
        for candidate in range(slot, max(slot - ENTRIES_TRIED, -1), -1):
            batch = self.proven_batch(index, candidate, end_position=end_position)
            if batch is not None:
                return batch.position
        return 0

    def ceiling_batch(self, offset: int, *, end_position: int) -> BatchHeader | None:
        """Return a batch after all batches with records below an offset, by a proven index entry; None if there is
        none.
        """
        index = self.offset_index
        if index is None:
            return None
        first = index.slot_of_offset(offset) + 1
        for slot in range(max(first, 0), min(first + ENTRIES_TRIED, index.entry_count)):
            batch = self.proven_batch(index, slot, end_position=end_position)
            if batch is not None and self.records.first_offset(batch) >= offset:
                return batch
        return None

    def proven_batch(self, index: OffsetIndex, slot: int, *, end_position: int) -> BatchHeader | None:
        """Return the batch of an entry as verified_batch does, None also unless a header walk from the entry before it
        leads there with rising offsets, and sound batches lead from there to the next entry, or to end_position.

        Then salvage counts it as proven too, whatever is damaged elsewhere.
        """
        batch = self.verified_batch(index, slot, end_position=end_position)
        start = index.entry(slot - 1).position if slot > 0 else 0
        if batch is None or not 0 <= start <= batch.position:
            return None
        before = self.records.walk(position=start, end_position=batch.position)
        if before.status != "end" or before.last_offset >= self.records.first_offset(batch):
            return None
        end = index.entry(slot + 1).position if slot + 1 < index.entry_count else end_position
        if not batch.position < end <= end_position:
            return None
        with self.records.lend() as file:
            part = self.file_range(position=batch.position, end_position=end)
            return batch if is_sound(file, part, self._context.config) else None

    def batch_before(self, position: int) -> BatchHeader | None:
        """Return the batch that the last index entry at or before a position points to, if one read shows that headers
        lead there from the entry before it, which is proven; else None.

        Cost: O(log entries) and a read of an index interval, if it was not proven before.
        """
        if self.is_last and self._tail is None:
            # To find its end may take as long as to walk here.
            return None
        index = self.offset_index
        slot = -1 if index is None else index.slot_of_position(position)
        if index is None or slot < 1:
            return None
        batch = (self._lookup or self._made_lookup()).batch_of_offset(index.entry(slot - 1).offset + 1)
        return batch if batch is not None and batch.position == index.entry(slot).position else None

    def translate_offset(self, offset: int) -> BatchHeader | None:
        """Return the first batch whose last offset is >= offset, None if the segment ends before it.

        Raises: CorruptRecordError, UnsupportedMagicError for damage in the walked range.
        Cost: O(log entries) and a header walk over one index interval; without an index, over the whole segment.
        Source: Kafka LogSegment.translateOffset.
        """
        lookup = self._lookup or self._made_lookup()
        batch = lookup.batch_of_offset(offset)
        if batch is not None:
            return batch
        start = self._walked_before(offset)
        if start is not None and start.size_in_bytes >= HEADER_CHUNK_BYTES:
            batch = lookup.batch_after(start, offset)
        if batch is None:
            start = start or self._floor_batch(offset, end_position=self.scan_end_position)
            batch = self.records.stopped_at(self._walk_from(start, stop_offset=offset))
        self._walked_to = batch
        return batch

    def _walked_before(self, offset: int) -> BatchHeader | None:
        """Return the batch that the last walk for an offset found, if at most one index entry lies between both.

        A reader of large batches goes on so without the proof of an entry, which reads the batch it points to.
        """
        batch = self._walked_to
        if batch is None or batch.base_offset > offset:
            return None
        # An entry has the last offset of its batch.
        index = None if offset <= batch.last_offset else self._index_of_large()
        if index is not None and index.slot_of_offset(offset) - index.slot_of_offset(batch.last_offset) > 1:
            return None
        return batch

    def record_of_offset(
        self,
        offset: int,
        unproven: Record,
        check: Callable[[], object] | None = None,
        is_left_out: Callable[[BatchHeader], bool] | None = None,
    ) -> Record | None:
        """Return the record at an offset, from the batch that translate_offset returns; None if that has none, is a
        control batch or left out.

        Args: unproven: what is returned where an index entry and at most two reads do not prove the batch, and for
            magic 0 and 1; check: called after the read, and before its bytes are used.
        Raises: StorageError, LogReplacedError, LogClosedError; what is wrong with a record up to this one.
        Cost: O(log entries), a read of the batch, its CRC and a check of the records before.
        """
        return (self._lookup or self._made_lookup()).record_of_offset(offset, unproven, check, is_left_out)

    def search_timestamp(self, timestamp_ms: int, *, start_offset: int) -> OffsetAndTimestamp | None:
        """Return the first record with timestamp >= timestamp_ms and offset >= start_offset, or None.

        Records of control batches count, as on a broker.
        Raises: CorruptRecordError and other errors for damage in the walked range.
        Cost: a header walk from the time index's entry, and decoding the batches that may hold the answer.
        Source: Kafka LogSegment.findOffsetByTimestamp.
        """
        if self._largest_timestamp_ms is not None and self._largest_timestamp_ms < timestamp_ms:
            return None
        lookup = self._lookup or self._made_lookup()
        answer = lookup.record_of_timestamp(timestamp_ms, start_offset=start_offset)
        if answer is not None:
            return answer
        record = self._record_by_index(lookup, timestamp_ms, start_offset=start_offset)
        if record is not None:
            return record
        start = self._batch_before_timestamp(timestamp_ms)
        sees_all = True
        if start_offset > self.base_offset:
            floor = self._floor_batch(start_offset, end_position=self.scan_end_position)
            if floor is not None and (start is None or floor.position > start.position):
                start, sees_all = floor, False
        largest = -1
        scan = self._walk_from(start, stop_timestamp_ms=timestamp_ms)
        while (candidate := self.records.stopped_at(scan)) is not None:
            if candidate.last_offset >= start_offset:
                answer = self._search_batch(candidate, timestamp_ms=timestamp_ms, start_offset=start_offset)
                if answer is not None:
                    return answer
            largest = max(largest, scan.max_timestamp_ms, candidate.max_timestamp_ms)
            scan = self.records.walk(
                position=candidate.position + candidate.size_in_bytes,
                end_position=self.scan_end_position,
                previous_last_offset=candidate.last_offset,
                stop_timestamp_ms=timestamp_ms,
            )
        if sees_all:
            self._largest_timestamp_ms = max(largest, scan.max_timestamp_ms)
        return None

    def verified_batch(self, index: OffsetIndex, slot: int, *, end_position: int) -> BatchHeader | None:
        """Return the batch that an entry of the segment's offset index points to, None if the entry does not hold.

        It holds if there is a batch at its position, whole before end_position, inside the segment, with a valid CRC
        and a first offset not above the entry's offset, and if a header walk connects it with a neighbouring entry or
        an end of the file. The latter rules out a batch that is stored in the value of a record.
        """
        entry = index.entry(slot)
        if not 0 <= entry.position < end_position:
            return None
        batch = self.records.find_batch_at(entry.position, end_position=end_position)
        if batch is None or not self._starts_by(entry.offset, *batch):
            return None
        return batch[0] if self._is_joined(index, slot, batch[0], end_position=end_position) else None

    def _starts_by(self, offset: int, batch: BatchHeader, data: bytes) -> bool:
        try:
            return self.records.first_offset(batch, data) <= offset
        except (CorruptionError, UnsupportedError):
            return False

    def _is_joined(self, index: OffsetIndex, slot: int, batch: BatchHeader, *, end_position: int) -> bool:
        start = index.entry(slot - 1).position if slot > 0 else 0
        if 0 <= start <= batch.position:
            before = self.records.walk(position=start, end_position=batch.position)
            if before.status == "end" and before.last_offset < batch.base_offset:
                return True
        end = index.entry(slot + 1).position if slot + 1 < index.entry_count else end_position
        if not batch.position < end <= end_position:
            return False
        return self.records.walk(position=batch.position, end_position=end).status == "end"

    def _made_lookup(self) -> SegmentLookup:
        # No strong reference back: a segment that no reader holds lets go of its files at once.
        this: LogSegment = weakref.proxy(self)
        self._lookup = lookup = SegmentLookup(
            lambda: None if (index := this._index_of_large()) is None else index.search,
            lambda: None if (index := this.time_index) is None else index.search,
            self.records.pread,
            end_position=self.scan_end_position,
            next_base_offset=self.next_base_offset,
            max_batch_bytes=self._context.config.max_batch_bytes,
            decompress=decompress,
            max_decompressed_bytes=self._context.config.max_decompressed_bytes,
            path=self.path,
            topic_partition=self._context.topic_partition,
        )
        return lookup

    def _record_by_index(
        self, lookup: SegmentLookup, timestamp_ms: int, *, start_offset: int
    ) -> OffsetAndTimestamp | None:
        """Return the answer of search_timestamp from an entry that was confirmed before, None if that gives no
        answer.
        """
        place = lookup.batch_of_timestamp(timestamp_ms, start_offset=start_offset)
        if place is None:
            return None
        slot, batch, data = place
        answer = self._search_batch(batch, data, timestamp_ms=timestamp_ms, start_offset=start_offset)
        if batch.magic == 2 and batch.codec == 0:
            lookup.note_checked(slot, data)
        return answer

    def _older_tail(self) -> SegmentTail:
        if self._tail is None:
            tail = self._find_tail() if self._may_be_preallocated() and self._ends_in_zeros() else None
            is_preallocated = tail is not None and tail.status == "zeros" and self._is_preallocated(tail)
            whole = SegmentTail("end", self.size_in_bytes, -1)
            self._tail = tail if tail is not None and is_preallocated else whole
        return self._tail

    @property
    def is_costly_to_split(self) -> bool:
        """Whether it takes requests to a store to find a place between two batches."""
        return self._context.files.is_high_latency

    def _may_be_preallocated(self) -> bool:
        """Whether it is worth a read to find zeros at the end: where that is slow, only of a file of a round size."""
        return not self._context.files.is_high_latency or any(self.size_in_bytes % size == 0 for size in _ROUND_SIZES)

    def _index_of_large(self) -> OffsetIndex | None:
        """Return the offset index, None also where to read it takes longer than to walk over the segment."""
        is_small = self._context.files.is_high_latency and self.size_in_bytes <= _SMALL_BYTES
        return None if is_small else self.offset_index

    def _ends_in_zeros(self) -> bool:
        size = min(SIZE_UP_TO_MAGIC, self.size_in_bytes)
        try:
            return size > 0 and not any(self.records.read_bytes(size, position=self.size_in_bytes - size))
        except CorruptRecordError:
            # Bytes that cannot be had are no zeros.
            return False

    def _is_preallocated(self, tail: SegmentTail) -> bool:
        with self.records.lend() as file:
            return is_preallocated(
                file.around_damage(),
                position=tail.valid_end_position,
                end_position=self.size_in_bytes,
                next_offset=max(tail.last_offset + 1, self.base_offset),
                next_base_offset=self.next_base_offset,
                cleaned_below=self._context.cleaned_below,
            )

    def _find_tail(self) -> SegmentTail:
        if (
            self.size_in_bytes <= HEADER_CHUNK_BYTES
            and self._reached is None
            and not self._context.files.is_high_latency
        ):
            # One read shows as much as an index, which is needed only to get past damage.
            scan = self._walk_from(None, end_position=self.size_in_bytes)
            if scan.status == "end":
                return SegmentTail("end", scan.position, scan.last_offset, None, scan.last_position)
        return self._indexed_tail() or self._tail_from(self._last_indexed_batch())

    def _indexed_tail(self) -> SegmentTail | None:
        """Return the end of a last segment of whole batches, if the last index entry and one read prove it; None for a
        segment that one read shows whole.
        """
        is_large = self.size_in_bytes > HEADER_CHUNK_BYTES
        index = self._index_of_large() if is_large and self.is_last and self._reached is None else None
        if index is None:
            return None
        end_position, max_batch_bytes = self.size_in_bytes, self._context.config.max_batch_bytes
        with self.records.lend() as file, suppress(CorruptRecordError):
            # Bytes that cannot be had prove nothing.
            last = index.search.last_batch_before(
                file.pread, end_position=end_position, max_batch_bytes=max_batch_bytes
            )
            return None if last is None else SegmentTail("end", end_position, last[1], None, last[0], last[2])
        return None

    def _tail_from(self, start: BatchHeader | None) -> SegmentTail:
        scan = self._walk_from(start, end_position=self.size_in_bytes)
        if start is not None and scan.last_offset < 0:
            raise changed_batch(self.path, start.position)
        error = scan.error if scan.status == "corrupt" else None
        tail = SegmentTail(scan.status, scan.position, scan.last_offset, error, scan.last_position)
        if not self.is_last or scan.status not in ("zeros", "torn"):
            return tail
        rest = self.file_range(position=tail.valid_end_position, end_position=self.size_in_bytes)
        with self.records.lend() as file:
            fault = fault_at_end(file, rest, find_index=lambda: self.offset_index, config=self._context.config)
        if fault is not None:
            return tail._replace(status="corrupt", error=fault)
        return self._whole_tail(tail, start) if scan.batch_count and scan.status == "zeros" else tail

    def _whole_tail(self, tail: SegmentTail, start: BatchHeader | None) -> SegmentTail:
        """Exclude a half-written last batch: in preallocated space its header is valid, and zeros follow."""
        position, end = tail.last_position, tail.valid_end_position
        if any(self.records.read_around_damage(_LEAST_ZEROS, position=end - _LEAST_ZEROS)):
            return tail
        if self.records.find_batch_at(position, end_position=end) is not None:
            return tail
        before = self._walk_from(start, end_position=position)
        return SegmentTail("torn", position, before.last_offset, last_position=before.last_position)

    def _last_indexed_batch(self) -> BatchHeader | None:
        return self._floor_batch(MAX_OFFSET, end_position=self.size_in_bytes)

    def _floor_batch(self, offset: int, *, end_position: int) -> BatchHeader | None:
        """Return a batch with base offset <= offset that a verified index entry points to, or the one that an earlier
        walk reached; None if there is neither.
        """
        indexed = self._indexed_batch(offset, end_position=end_position)
        reached = self._reached
        if reached is None or reached.base_offset > offset or reached.position >= end_position:
            return indexed
        return reached if indexed is None or indexed.position < reached.position else indexed

    def _indexed_batch(self, offset: int, *, end_position: int) -> BatchHeader | None:
        index = self._index_of_large()
        if index is None or end_position == 0:
            return None
        slot = min(index.slot_of_offset(offset), index.slot_of_position(end_position - 1))
        is_contradicted = False
        batch = None
        for candidate in range(slot, max(slot - ENTRIES_TRIED, -1), -1):
            batch = self.verified_batch(index, candidate, end_position=end_position)
            if batch is not None and (batch.base_offset <= offset or index.entry(candidate).offset <= offset):
                break
            batch, is_contradicted = None, True
        if is_contradicted:
            self._count_fallback()
        return batch

    def _batch_before_timestamp(self, timestamp_ms: int) -> BatchHeader | None:
        """Return a batch, by the time index, such that no timestamp up to its end is >= timestamp_ms, or None.

        None also if few bytes precede it: walking them is cheap and trusts no index entry.
        """
        proof_bytes = self._context.config.time_index_proof_bytes
        if self.size_in_bytes <= proof_bytes or timestamp_ms <= MIN_TIMESTAMP_MS:
            return None
        index = self.time_index
        if index is None or index.entry_count == 0:
            return None
        slot = index.slot_of_timestamp(timestamp_ms - 1)
        if not index.is_increasing():
            self._count_fallback()
            return None
        if slot < 0:
            return None
        entry = index.entry(slot)
        batch = self.translate_offset(entry.offset)
        if batch is None or not self._confirms(batch, offset=entry.offset, timestamp_ms=entry.timestamp_ms):
            self._count_fallback()
            return None
        if batch.position > proof_bytes:
            index.search.confirm(slot)
            return batch
        self._prefix_searches += 1
        if self._prefix_searches == SEARCHES_BEFORE_PROOF:
            self._confirm_prefix(index, end_position=proof_bytes)
        return None

    def _confirm_prefix(self, index: TimeIndex, *, end_position: int) -> None:
        """Compare the time index entries of a segment's first part with its batches, once, and confirm those that
        match.
        """
        entries = TimeIndexEntries(b"", base_offset=self.base_offset, max_bytes=MAX_INDEX_BYTES)
        walk = RecoveryWalk(
            end_position=self.scan_end_position,
            base_offset=self.base_offset,
            max_batch_bytes=self._context.config.max_batch_bytes,
            path=self.path,
            index_interval_bytes=0,
            offset_entries=OffsetIndexEntries(b"", base_offset=self.base_offset, max_bytes=MAX_INDEX_BYTES),
            time_entries=entries,
        )
        while walk.status == "more" and walk.position < end_position:
            position = walk.next_position
            size = min(HEADER_CHUNK_BYTES, self.scan_end_position - position)
            walk.feed(self.records.read_bytes(size, position=position), position)
            walk.take_headers()
        steps = TimeIndex(entries.content, base_offset=self.base_offset, path=self.path, is_whole=True)
        running = set(steps.entries())
        for slot, entry in enumerate(index.entries()):
            if entry.offset > walk.last_offset:
                break
            if entry in running:
                index.search.confirm(slot)

    def _confirms(self, batch: BatchHeader, *, offset: int, timestamp_ms: int) -> bool:
        if (batch.has_base_offset and batch.base_offset > offset) or batch.max_timestamp_ms != timestamp_ms:
            return False
        return self.records.find_batch_at(batch.position, end_position=self.scan_end_position) is not None

    def _search_batch(
        self, batch: BatchHeader, data: bytes = b"", *, timestamp_ms: int, start_offset: int
    ) -> OffsetAndTimestamp | None:
        """Search the records of a batch. Args: data: its bytes as far as they were read."""
        if len(data) < batch.size_in_bytes:
            data = self.records.read_bytes(batch.size_in_bytes, position=batch.position)
        if batch.magic == 2 and batch.codec == 0:
            plain = search_timestamp_in_batch(
                data, position=batch.position, path=self.path, timestamp_ms=timestamp_ms, start_offset=start_offset
            )
            return None if plain is None else OffsetAndTimestamp(*plain)
        check_crc(data, position=batch.position, path=self.path)
        records = iterate_records(
            data,
            position=batch.position,
            path=self.path,
            topic_partition=self._context.topic_partition,
            decompress=decompress,
            max_decompressed_bytes=self._context.config.max_decompressed_bytes,
        )
        if batch.magic == 2:
            found = search_timestamp_in(records, timestamp_ms=timestamp_ms, start_offset=start_offset)
            return None if found is None else OffsetAndTimestamp(*found)
        for record in records:
            if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
                return OffsetAndTimestamp(record.offset, record.timestamp_ms)
        return None

    def _walk_from(
        self,
        start: BatchHeader | None,
        *,
        end_position: int | None = None,
        stop_offset: int | None = None,
        stop_timestamp_ms: int | None = None,
    ) -> HeaderScan:
        # Of a batch that is larger than a read, only the header is of use.
        is_large = start is not None and start.size_in_bytes >= HEADER_CHUNK_BYTES
        return self.records.walk(
            position=0 if start is None else start.position,
            end_position=self.scan_end_position if end_position is None else end_position,
            stop_offset=stop_offset,
            stop_timestamp_ms=stop_timestamp_ms,
            first_bytes=RECORD_BATCH_OVERHEAD if is_large else HEADER_CHUNK_BYTES,
        )

    def _count_fallback(self) -> None:
        with self._lock:
            self.index_fallbacks += 1
