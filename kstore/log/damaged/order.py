"""Which batches of a damaged .log keep their offsets, and which rows of batches lie in the order of their log."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from kstore._core import LOG_OVERHEAD, MAGIC_POSITION, set_last_offset
from kstore.types import MAGIC_V2, NO_PARTITION_LEADER_EPOCH

# The length, attributes, two deltas, null for key and value, and no headers.
LEAST_RECORD_BYTES = 7
_SIZE = struct.Struct(">i")
_SIZE_AT = LOG_OVERHEAD - _SIZE.size


class WholeBatch(NamedTuple):
    """A batch with a valid CRC. span: its last offset minus its first; epoch: its partition leader epoch, -1 if none.

    stored_magic: the magic byte in the file if it is wrong and must be 2, else None; stored_size: the size in the file
    if it is wrong, else None.
    """

    position: int
    size_in_bytes: int
    last_offset: int
    span: int
    magic: int = MAGIC_V2
    epoch: int = NO_PARTITION_LEADER_EPOCH
    stored_magic: int | None = None
    stored_size: int | None = None

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.span

    @property
    def end_position(self) -> int:
        return self.position + self.size_in_bytes

    @property
    def is_mended(self) -> bool:
        """Whether a field that no CRC covers is wrong in the file."""
        return self.stored_magic is not None or self.stored_size is not None

    def mended(self, content: bytes, *, last_offset: int) -> bytes:
        """Return the bytes of this batch with the right magic byte, size and offset."""
        data = bytearray(content)
        if self.stored_magic is not None:
            data[MAGIC_POSITION] = 2
        _SIZE.pack_into(data, _SIZE_AT, self.size_in_bytes - LOG_OVERHEAD)
        set_last_offset(data, last_offset=last_offset)
        return bytes(data)


def slots_in_order(batches: list[WholeBatch], offsets: range) -> set[int]:
    """Return the slots of the batches that keep their offsets: the largest set of which the offsets rise and lie in
    `offsets`, except where a neighbour fits a gap exactly.
    """
    return _with_gaps_filled(batches, longest_in_order(batches, offsets), offsets)


def longest_in_order(batches: list[WholeBatch], offsets: range) -> set[int]:
    """Return the slots of the longest subsequence of batches whose offsets rise and lie in `offsets`; ties go to the
    lowest offsets.
    """
    # For each length of a subsequence: the slot where the one with the lowest last offset ends, and that offset.
    slots: list[int] = []
    last_offsets: list[int] = []
    before: dict[int, int | None] = {}
    for slot, batch in enumerate(batches):
        if batch.first_offset < offsets.start or batch.last_offset >= offsets.stop:
            continue
        count = bisect_left(last_offsets, batch.first_offset)
        if count == len(slots):
            slots.append(slot)
            last_offsets.append(batch.last_offset)
        elif batch.last_offset < last_offsets[count]:
            slots[count], last_offsets[count] = slot, batch.last_offset
        else:
            continue
        before[slot] = slots[count - 1] if count else None
    kept: set[int] = set()
    at = slots[-1] if slots else None
    while at is not None:
        kept.add(at)
        at = before[at]
    return kept


def _with_gaps_filled(batches: list[WholeBatch], kept: set[int], offsets: range) -> set[int]:
    """Where a kept batch leaves a gap of offsets before it and fits exactly into the gap before its successor, keep the
    successor instead.

    The offset of the first batch is wrong then, whichever of the two keeps more batches in order.
    """
    kept = set(kept)
    limits = first_offsets_from(batches, kept, end_offset=offsets.stop)
    end = offsets.start
    for slot, batch in enumerate(batches[:-1]):
        if slot not in kept:
            continue
        following = batches[slot + 1]
        fits = end != batch.first_offset and end + batch.span + 1 == following.first_offset
        if fits and slot + 1 not in kept and following.last_offset < limits[slot + 2]:
            kept ^= {slot, slot + 1}
        else:
            end = batch.last_offset + 1
    return kept


def first_offsets_from(batches: list[WholeBatch], kept: set[int], *, end_offset: int) -> list[int]:
    """Return for each slot, and for the end, the first offset of the first kept batch at or after it."""
    limits = [end_offset] * (len(batches) + 1)
    for slot in reversed(range(len(batches))):
        limits[slot] = batches[slot].first_offset if slot in kept else limits[slot + 1]
    return limits


class Row(NamedTuple):
    """Adjacent whole batches whose offsets rise."""

    batches: tuple[WholeBatch, ...]

    @property
    def position(self) -> int:
        return self.batches[0].position

    @property
    def end_position(self) -> int:
        return self.batches[-1].end_position

    @property
    def first_offset(self) -> int:
        return self.batches[0].first_offset

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset

    @property
    def is_contiguous(self) -> bool:
        """Whether no offset is missing between two batches."""
        return all(batch.last_offset + 1 == following.first_offset for batch, following in pairwise(self.batches))


def rows_of(batches: Iterable[WholeBatch]) -> Iterator[Row]:
    """Join batches, in the order of their positions, to rows that are as long as they can be."""
    row: list[WholeBatch] = []
    for batch in batches:
        if row and (batch.position != row[-1].end_position or batch.first_offset <= row[-1].last_offset):
            yield Row(tuple(row))
            row = []
        row.append(batch)
    if row:
        yield Row(tuple(row))


def dense_rows(rows: Sequence[Row], *, start: int, end_position: int) -> list[Row]:
    """Return the rows that have more batches than the damaged bytes around them can have records.

    Such a row is in no value: the batch around it would have an offset, and a record, for each offset of the row.
    Args: start, end_position: of the damaged bytes that the rows are in. A batch may reach over any number of them.
    """
    ends = [start, *(row.end_position for row in rows)]
    gaps = [row.position - end for row, end in zip(rows, ends, strict=False)]
    # What the batch may have more than the rows, if it begins before a row, and if it ends after it.
    before, more = [], 0
    for row, gap in zip(rows, gaps, strict=True):
        more = gap - LEAST_RECORD_BYTES * len(row.batches) + max(more, 0)
        before.append(more)
    dense: list[Row] = []
    after, position, following = 0, end_position, 0
    for row, more in zip(reversed(rows), reversed(before), strict=True):
        after = position - row.end_position + max(after - following, 0)
        if more + after < 0:
            dense.append(row)
        position, following = row.position, LEAST_RECORD_BYTES * len(row.batches)
    return dense[::-1]


def rows_in_order(rows: Sequence[Row], *, least_offset: int, end_offset: int) -> list[Row]:
    """Return the rows with the most batches whose offsets rise from row to row and lie in [least_offset, end_offset).

    Before each row, one offset more has to be left for the damaged bytes there.
    """
    # For each last offset, rising, the most batches of which the last one has it or a lower one, and the row they end
    # with; more batches for each higher offset.
    last_offsets, counts, ends = [least_offset - 1], [0], [-1]
    before = [-1] * len(rows)
    for slot, row in enumerate(rows):
        at = bisect_right(last_offsets, row.first_offset - 2) - 1
        if at < 0 or row.last_offset >= end_offset:
            continue
        before[slot] = ends[at]
        count = counts[at] + len(row.batches)
        at = bisect_left(last_offsets, row.last_offset)
        if (counts[at] if at < len(counts) and last_offsets[at] == row.last_offset else counts[at - 1]) >= count:
            continue
        stop = at
        while stop < len(counts) and counts[stop] <= count:
            stop += 1
        last_offsets[at:stop], counts[at:stop], ends[at:stop] = [row.last_offset], [count], [slot]
    chosen: list[Row] = []
    slot = ends[-1]
    while slot >= 0:
        chosen.append(rows[slot])
        slot = before[slot]
    return chosen[::-1]
