"""DirectoryHistory: whether a directory that another process writes still holds what a follower was given.

A truncation removes batches from the end of a log, and others can take their offsets; retention and compaction remove
records of which a follower needs to know nothing. All of them change files under a reader. So a follower remembers the
last batch of the log, and some of the last batches that it was given, and looks for them again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from kstore._core import RECORD_BATCH_OVERHEAD, BatchHeader, read_header
from kstore.env import Identity, is_same_file
from kstore.errors import KStoreError, LogReplacedError, StorageError
from kstore.log.files.records import KEPT_BY_CLEANERS, BatchPlace, is_same_batch
from kstore.log.segment.segment import LogSegment
from kstore.log.source import Comparison, LogSource
from kstore.record.batches import RecordBatch

# How many of the last batches that were given are remembered, to find where a truncated log differs from them.
REMEMBERED_BATCHES = 1024
_MAGIC_WITH_COUNT = 2


class SeenBatch(NamedTuple):
    """A batch that a follower was given: its header, its bytes up to the end of that, and the file it was in."""

    header: BatchHeader
    place: BatchPlace

    @property
    def next_offset(self) -> int:
        return self.header.last_offset + 1


class DirectoryHistory:
    """The History of a directory.

    A batch that was given is still there if its first 61 bytes are where they were, or elsewhere in a log whose files
    were replaced; a cleaner may have removed some of its records, or all.
    Cost: of a look, that of a refresh and a read of 61 bytes, if the log only grew.
    """

    def __init__(self, source: LogSource) -> None:
        self._source = source
        self._given: deque[SeenBatch] = deque(maxlen=REMEMBERED_BATCHES)
        self._last: BatchPlace | None = None
        self._number = -1
        self._identities: dict[str, Identity] = {}

    def start(self, position: int) -> None:
        def find() -> tuple[int, BatchPlace | None, SeenBatch | None]:
            source = self._source
            return source.listing_number, source.last_batch(), self._given_before(position)

        self._number, self._last, before = self._source.answer(find)
        self._given.clear()
        if before is not None:
            self._given.append(before)

    def look(self, position: int) -> Comparison:
        source = self._source
        source.refresh(keeps_known=True)

        def find() -> tuple[int, BatchPlace | None, Comparison, dict[str, Identity]]:
            # The last batch first: while it stands, what is compared now and read later is of one history.
            last = source.last_batch()
            look = self._grown(position) or self._compared(position)
            identities = {
                segment.path: segment.listed.identity for segment in source.segments if segment.listed is not None
            }
            return source.listing_number, last, look, identities

        self._number, self._last, comparison, self._identities = source.answer(find)
        if comparison.is_truncated:
            kept = comparison.truncated_to or 0
            while self._given and self._given[-1].header.last_offset >= kept:
                self._given.pop()
        return comparison

    @property
    def is_current(self) -> bool:
        return self._source.listing_number == self._number

    def note(self, batch: RecordBatch) -> None:
        path = batch.path or ""
        head = bytes(batch)[:RECORD_BATCH_OVERHEAD]
        place = BatchPlace(path, self._identities.get(path), batch.position, head)
        self._given.append(SeenBatch(batch.header, place))

    def _given_before(self, position: int) -> SeenBatch | None:
        """Return the last batch with an offset below `position`, as if it had been given."""
        for segment in reversed(self._source.segments):
            header = _last_below(segment, position) if segment.base_offset < position else None
            if header is not None:
                size = min(header.size_in_bytes, RECORD_BATCH_OVERHEAD)
                head = segment.records.read_bytes(size, position=header.position)
                return SeenBatch(header, BatchPlace(segment.path, segment.file_identity(), header.position, head))
        return None

    def _grown(self, position: int) -> Comparison | None:
        """Return where to go on in a log that holds all that it held at the last look, else None.

        That is not above the last batch of that time: the end of a new segment without a batch may have been above it,
        and fallen again without a trace.
        """
        last = self._last
        if last is None or not self._is_in_place(last):
            return None
        header: BatchHeader = read_header(last.header, position=last.position, path=last.path)
        return Comparison(min(position, max(header.last_offset + 1, self._source.log_start_offset)))

    def _is_in_place(self, place: BatchPlace) -> bool:
        """Whether a batch is where it was."""
        segment = next((listed for listed in self._source.segments if listed.path == place.path), None)
        if segment is None or not self._source.env.is_mutable:
            return False
        try:
            segment.records.check_anchor(place)
        except (LogReplacedError, StorageError):
            return False
        return True

    def _compared(self, position: int) -> Comparison:
        start = self._source.log_start_offset
        if not self._given:
            # All that is there now is new.
            return Comparison(min(position, start))
        is_truncated = False
        for given in reversed(self._given):
            is_held = self._is_held(given, start)
            if is_held and is_truncated:
                return Comparison(position, is_truncated=True, truncated_to=given.next_offset)
            if is_held:
                break
            # What a cleaner may have removed is decided by the batch before it.
            is_truncated = is_truncated or is_held is False
        if is_truncated:
            return Comparison(position, is_truncated=True)
        # What follows the last batch was not given, and may have been replaced.
        return Comparison(min(position, max(self._given[-1].next_offset, start)))

    def _is_held(self, given: SeenBatch, log_start_offset: int) -> bool | None:
        """Whether a batch is in the log, or was removed from its start, or in part by a cleaner; None if there is no
        batch with its offsets, as after a cleaner, or after a truncation inside of a batch that took its offsets.
        """
        if given.header.last_offset < log_start_offset or self._is_in_place(given.place):
            return True
        place = self._batch_at(given.header.last_offset)
        if place is None:
            return False
        segment, header = place
        if is_same_batch(header, given.header):
            return True
        if not self._is_replaced(given.place):
            return False
        try:
            first_offset = segment.records.first_offset(header)
        except KStoreError:
            return False
        return None if first_offset > given.header.last_offset else _is_cleaned(header, given.header)

    def _batch_at(self, offset: int) -> tuple[LogSegment, BatchHeader] | None:
        """Return the first batch that ends at an offset or above it."""
        for segment in _from(self._source.segments, offset):
            header = segment.translate_offset(offset)
            if header is not None:
                return segment, header
        return None

    def _is_replaced(self, place: BatchPlace) -> bool:
        """Whether a batch's file is another one now, or gone, as after a compaction."""
        if not self._source.env.is_mutable:
            return True
        for segment in self._source.segments:
            if segment.path == place.path and segment.listed is not None and place.identity is not None:
                return not is_same_file(segment.listed.identity, place.identity)
        return True


def _last_below(segment: LogSegment, position: int) -> BatchHeader | None:
    """Return the last batch of a segment with an offset below `position`."""
    end, records = segment.valid_end_position, segment.records
    for start in (segment.floor_position(position - 1, end_position=end), 0):
        walk = records.walk(position=start, end_position=end, stop_offset=position - 1)
        if walk.found is not None and records.first_offset(walk.found) < position:
            return walk.found
        if walk.last_offset >= 0:
            return records.walk(position=start, end_position=end, stop_offset=walk.last_offset).found
    return None


def _from(segments: Sequence[LogSegment], offset: int) -> Sequence[LogSegment]:
    """Return the segments that may hold an offset or a later one."""
    at = next((slot for slot, segment in enumerate(segments) if segment.base_offset > offset), len(segments))
    return segments[max(at - 1, 0) :]


def _is_cleaned(left: BatchHeader, given: BatchHeader) -> bool:
    """Whether a batch can be what a cleaner left of another one: with fewer records, or with a delete horizon."""
    if left.last_offset != given.last_offset or left.magic != given.magic:
        return False
    if left.magic < _MAGIC_WITH_COUNT:
        return True
    if any(getattr(left, name) != getattr(given, name) for name in KEPT_BY_CLEANERS):
        return False
    has_horizon = left.has_delete_horizon and not given.has_delete_horizon
    return has_horizon or (left.record_count or 0) < (given.record_count or 0)
