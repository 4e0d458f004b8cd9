"""OffsetIndexCheck, TimeIndexCheck: hold each index entry against the batches of a walk over the .log.

Layer 5. Both take the steps of a SegmentCheck in order and keep no list of batches. Entries that are wrong one after
the other make one Damage.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kstore._core import OFFSET_INDEX_ENTRY_SIZE, TIME_INDEX_ENTRY_SIZE, BatchHeader
from kstore.log.damage import Damage
from kstore.log.index import OffsetIndex, TimeIndex
from kstore.log.verify_segment import Step
from kstore.types import OffsetPosition, TimestampOffset


class IndexFile(NamedTuple):
    """One index file and what is known of its segment.

    content: the whole file; log_size_in_bytes: of the .log; is_last: the segment is the last one, so that zero
    entries at the end are preallocated space; has_grown: the .log is larger by now, so the index may be ahead of it.
    """

    path: str
    content: bytes
    base_offset: int
    log_size_in_bytes: int
    is_last: bool
    has_grown: bool


class _Run:
    """Joins the damages of neighbouring entries of one index file."""

    def __init__(self, path: str, entry_size: int) -> None:
        self._path = path
        self._entry_size = entry_size
        self._first_slot = 0
        self._count = 0
        self._reason = ""

    def add(self, slot: int, reason: str) -> Iterator[Damage]:
        """Note a damaged entry; give the run before it if this one does not continue it."""
        if self._count and slot == self._first_slot + self._count:
            self._count += 1
            return
        yield from self.end()
        self._first_slot, self._count, self._reason = slot, 1, reason

    def end(self) -> Iterator[Damage]:
        """Give the run so far, if any, and start anew."""
        if self._count:
            more = "" if self._count == 1 else f" (and {self._count - 1} more)"
            position, size = self._first_slot * self._entry_size, self._count * self._entry_size
            yield Damage(self._path, position, size, self._reason + more)
        self._count = 0


class OffsetIndexCheck:
    """Checks one .index file: whole entries in order, each at the start of a batch that its offset belongs to.

    An entry's offset may be the first (Kafka up to 1.1) or the last (later) of the append that starts there: it must
    lie from that batch's base offset to the last offset before the next entry's position.
    """

    def __init__(self, file: IndexFile) -> None:
        self._file = file
        self._index = OffsetIndex(file.content, base_offset=file.base_offset, path=file.path)
        self._run = _Run(file.path, OFFSET_INDEX_ENTRY_SIZE)
        self._slot = 0
        self._last_position = -1
        self._last_good_offset = file.base_offset - 1
        self._waiting: tuple[int, OffsetPosition] | None = None
        self._last_offset = file.base_offset - 1

    def step(self, step: Step) -> Iterator[Damage]:
        """Take the next step of the walk."""
        while self._slot < self._index.entry_count:
            entry = self._index.entry(self._slot)
            if entry.position >= self._file.log_size_in_bytes:
                if not self._file.has_grown:
                    yield from self._run.add(self._slot, f"position {entry.position} is behind the end of the log")
            elif entry.position <= self._last_position:
                yield from self._run.add(self._slot, f"entry out of order: position {entry.position}")
            elif entry.position >= step.end_position:
                break
            else:
                yield from self._settle_waiting()
                self._last_position = entry.position
                yield from self._hold_against(step, entry)
            self._slot += 1
        if step.header is not None:
            self._last_offset = step.header.last_offset

    def finish(self) -> Iterator[Damage]:
        """Report what only the end of the walk tells, and what is wrong with the file as such."""
        yield from self._settle_waiting()
        if self._slot < self._index.entry_count and not self._file.has_grown:
            for slot in range(self._slot, self._index.entry_count):
                yield from self._run.add(slot, "the log is empty")
        yield from self._run.end()
        yield from _file_damages(self._file, OFFSET_INDEX_ENTRY_SIZE, entry_count=self._index.entry_count)

    def _hold_against(self, step: Step, entry: OffsetPosition) -> Iterator[Damage]:
        if entry.offset <= self._last_good_offset:
            yield from self._run.add(self._slot, f"entry out of order: offset {entry.offset}")
        elif step.header is None:
            self._last_good_offset = entry.offset
        elif entry.position != step.start_position:
            yield from self._run.add(self._slot, f"position {entry.position} is not the start of a batch")
        elif entry.offset < (least := self._least_offset_of(step.header)):
            reason = f"offset {entry.offset} is below {least}, the base offset at {entry.position}"
            yield from self._run.add(self._slot, reason)
        else:
            self._waiting = self._slot, entry

    def _least_offset_of(self, header: BatchHeader) -> int:
        """Return the base offset; of a V0 or V1 wrapper, whose header has none, that behind the batch before."""
        return header.base_offset if header.has_base_offset else self._last_offset + 1

    def _settle_waiting(self) -> Iterator[Damage]:
        if self._waiting is not None:
            slot, entry = self._waiting
            self._waiting = None
            if entry.offset > self._last_offset:
                reason = f"offset {entry.offset} is above {self._last_offset}, the last one before the next entry"
                yield from self._run.add(slot, reason)
            else:
                self._last_good_offset = entry.offset


class TimeIndexCheck:
    """Checks one .timeindex file: whole entries in order, each the largest timestamp up to its offset.

    Messages of V0 have none: a broker that made them of later ones noted what it left out, so that an entry behind them
    may be larger than what the log tells.
    """

    def __init__(self, file: IndexFile) -> None:
        self._file = file
        self._index = TimeIndex(file.content, base_offset=file.base_offset, path=file.path)
        # A lone entry of zeros is no padding: a record of the year 1970 at the segment's base offset.
        self._entry_count = 1 if len(file.content) == TIME_INDEX_ENTRY_SIZE else self._index.entry_count
        self._run = _Run(file.path, TIME_INDEX_ENTRY_SIZE)
        self._slot = 0
        self._last_in_order: TimestampOffset | None = None
        self._largest_timestamp_ms = -1
        self._is_certain = True
        self._has_untimed = False
        self._last_offset = file.base_offset - 1

    def step(self, step: Step) -> Iterator[Damage]:
        """Take the next step of the walk; behind damage the largest timestamp is no longer certain."""
        if step.header is None or step.damage is not None:
            self._is_certain = False
        if step.header is None:
            return
        self._last_offset = step.header.last_offset
        self._largest_timestamp_ms = max(self._largest_timestamp_ms, step.header.max_timestamp_ms)
        self._has_untimed |= step.header.magic == 0
        while self._slot < self._entry_count:
            entry = self._entry(self._slot)
            if not self._is_in_order(entry):
                reason = f"entry out of order: timestamp {entry.timestamp_ms}, offset {entry.offset}"
                yield from self._run.add(self._slot, reason)
            elif entry.offset > self._last_offset:
                return
            elif self._is_certain and not self._may_be_largest(entry):
                reason = (
                    f"timestamp {entry.timestamp_ms} is not {self._largest_timestamp_ms}, the largest up to "
                    f"offset {entry.offset}"
                )
                yield from self._run.add(self._slot, reason)
            else:
                self._last_in_order = entry
            self._slot += 1

    def finish(self) -> Iterator[Damage]:
        """Report what only the end of the walk tells, and what is wrong with the file as such."""
        if not self._file.has_grown:
            for slot in range(self._slot, self._entry_count):
                reason = f"offset {self._entry(slot).offset} is behind {self._last_offset}, the last one of the segment"
                yield from self._run.add(slot, reason)
        yield from self._run.end()
        yield from _file_damages(self._file, TIME_INDEX_ENTRY_SIZE, entry_count=self._entry_count)

    def _entry(self, slot: int) -> TimestampOffset:
        return self._index.entry(slot) if slot < self._index.entry_count else TimestampOffset(0, self._file.base_offset)

    def _may_be_largest(self, entry: TimestampOffset) -> bool:
        largest = self._largest_timestamp_ms
        return entry.timestamp_ms == largest or (self._has_untimed and entry.timestamp_ms > largest)

    def _is_in_order(self, entry: TimestampOffset) -> bool:
        if self._last_in_order is None:
            return entry.offset >= self._file.base_offset
        return entry.timestamp_ms > self._last_in_order.timestamp_ms and entry.offset >= self._last_in_order.offset


def _file_damages(file: IndexFile, entry_size: int, *, entry_count: int) -> Iterator[Damage]:
    """Yield what is wrong with the file whatever the log says: zeros at its end, its length."""
    size = len(file.content)
    whole_entries_size = size // entry_size * entry_size
    entries_size = entry_count * entry_size
    if entries_size < whole_entries_size and not file.is_last:
        yield Damage(file.path, entries_size, whole_entries_size - entries_size, "zero entries at the end")
    if whole_entries_size < size:
        reason = f"file size is no multiple of an entry: expected a multiple of {entry_size}, found {size}"
        yield Damage(file.path, whole_entries_size, size - whole_entries_size, reason)
