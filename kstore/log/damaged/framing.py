"""find_whole_batches: decides which bytes of a damaged .log are its batches, and which only look like one.

A producer may store a batch with a valid CRC inside a value, so bytes found by a search prove nothing. A batch counts
only if its start is proven; docs/durability.md has the rules and the reasons for them.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise

from kstore._core import (
    LOG_OVERHEAD,
    MAGIC_POSITION,
    RECORD_BATCH_OVERHEAD,
    check_crc,
    find_batch_header,
    find_last_record,
    find_record_around,
    read_header,
    set_last_offset,
    sizes_by_crc,
)
from kstore.compression import PAYLOAD_MAGIC_BYTES, is_compressed
from kstore.config import MAX_INT32, LogConfig
from kstore.env import ReadFile
from kstore.errors import CorruptionError, CorruptRecordError, UnsupportedError
from kstore.log.damage import Damage
from kstore.log.damaged.order import Row, WholeBatch, dense_rows, rows_in_order, rows_of
from kstore.log.files.indexes import OffsetIndex
from kstore.log.files.records import ChunkReader, entry_size, holds_only_zeros, is_zeros, read_exactly
from kstore.record.batches import LEAST_MESSAGE_SIZES, SIZE_UP_TO_MAGIC, RecordBatch
from kstore.types import MAGIC_V2, NO_PARTITION_LEADER_EPOCH

# Limit on the bytes whose CRC the searches of one segment compute, in multiples of its size.
SEARCH_EFFORT = 8
# Limit on the bytes that are searched for records around rows of batches, above SEARCH_EFFORT times the segment's size.
RECORD_SEARCH_BYTES = 2**30
# A write that is not finished has made a file longer by whole pages.
PAGE_BYTES = 4096
# A whole batch can end in one zero byte, the header count of its last record.
LEAST_ZEROS = 2
# How many consecutive index entries must agree on how far the bytes of a file have moved.
ENTRIES_THAT_AGREE = 3

# How far from a batch a record that holds it may begin or end: the default max.message.bytes of a topic.
MOST_RECORD_BYTES = 1048588

# How much a codec may write after the last record: an end mark and a checksum.
MOST_TRAILER_BYTES = 16
# Larger than any relative offset inside a wrapper message.
_ANY_OFFSET = 2**40
_OFFSET = struct.Struct(">q")
_SIZE = struct.Struct(">i")
_SIZE_AT = LOG_OVERHEAD - _SIZE.size
_UNSIGNED = 2**32 - 1
_LEAST_ENTRY_BYTES = LEAST_MESSAGE_SIZES[0]


def find_whole_batches(
    file: ReadFile,
    *,
    base_offset: int,
    next_base_offset: int | None,
    index: OffsetIndex | None,
    config: LogConfig,
    start_position: int = 0,
    end_position: int | None = None,
) -> tuple[list[WholeBatch], list[Damage]]:
    """Return the proven whole batches of a .log, in order, and the damaged ranges between them.

    Args: next_base_offset: of the next segment, None for the last one; index: the offset index, None if there is none;
        start_position, end_position: the part to look at; a batch is known to start, or would start, at each of them.
    Raises: StorageError.  Cost: reads the part once, and twice around damage; without an index up to SEARCH_EFFORT
        times.
    """
    framing = _Framing(
        file,
        base_offset=base_offset,
        next_base_offset=next_base_offset,
        index=index,
        config=config,
        start_position=start_position,
        end_position=file.size() if end_position is None else end_position,
    )
    framing.run(start_position)
    return framing.batches, framing.damage


class _Framing:
    """One pass over a part of a .log."""

    def __init__(
        self,
        file: ReadFile,
        *,
        base_offset: int,
        next_base_offset: int | None,
        index: OffsetIndex | None,
        config: LogConfig,
        start_position: int,
        end_position: int,
    ) -> None:
        self._file = file
        self._end_position = end_position
        self._base_offset = base_offset
        self._end_offset = next_base_offset
        self._most_offset = base_offset + MAX_INT32 if next_base_offset is None else next_base_offset - 1
        self._config = config
        self._read: Callable[..., bytes] = partial(read_exactly, file)
        reader = ChunkReader(self._read, end_position=self._end_position, first_bytes=config.read_chunk_bytes)
        self._bytes_at = reader.bytes_at
        self._effort_bytes = SEARCH_EFFORT * (end_position - start_position)
        self._record_search_bytes = self._effort_bytes + RECORD_SEARCH_BYTES
        self._expected_offset = base_offset
        self._entries = sorted(
            (position, offset)
            for offset, position in ([] if index is None else index.entries())
            if start_position <= position < end_position
        )
        self._proofs: dict[int, bool] = {}
        self._resized: dict[int, WholeBatch | None] = {}
        self._ahead = _Ahead()
        # The rows up to a proven position, or the end, that are in order; they stay the same as the pass goes on.
        self._ordered: list[Row] = []
        self._ordered_limit = -1
        self._found: list[WholeBatch] = []
        # Whether offsets are missing where no bytes are, as a cleaner leaves it.
        self._has_gaps = False
        self.batches: list[WholeBatch] = []
        self.damage: list[Damage] = []

    def run(self, position: int) -> None:
        while position < self._end_position:
            batch = self._whole_at(position) or self._resized_at(position)
            if batch is None:
                position = self._pass_damage(position)
            else:
                self._take(batch)
                position = batch.end_position

    def _take(self, batch: WholeBatch) -> None:
        previous = self.batches[-1] if self.batches else None
        follows = previous is not None and batch.first_offset == previous.last_offset + 1
        self._has_gaps |= previous is not None and previous.end_position == batch.position and not follows
        if follows or self._expected_offset <= batch.first_offset <= batch.last_offset <= self._most_offset:
            self._expected_offset = batch.last_offset + 1
        self.batches.append(batch)

    # What is proven

    def _pass_damage(self, start: int) -> int:
        """Report the damage at `start`, and return where the next batch is proven to start, or the end of the file."""
        fault = fault_at(self._bytes_at, start, end_position=self._end_position, config=self._config)
        reason = "no whole batch" if fault is None else reason_of(fault)
        if holds_only_zeros(self._file, position=start, end_position=self._end_position):
            self._note(start, end_position=self._end_position, reason="zero bytes after the last batch")
            return self._end_position
        proven = self._next_indexed(start)
        limit = self._end_position if proven is None else proven
        end = self._end_by_size(start, limit=limit)
        if end is None and proven is None:
            end = self._next_shifted(start)
        if end is None:
            end = self._next_in_order(start, limit=limit)
        position = self._note_search(start, end, limit=limit, reason=reason)
        if end is None or end == proven:
            # The index, or the distance to the damage, proves that this batch is part of the log whatever precedes it.
            self._expected_offset = self._base_offset
        return position

    def _next_indexed(self, start: int) -> int | None:
        """Return the first position after `start` at which an index entry and a batch agree, or None."""
        first = bisect_right(self._entries, (start, MAX_INT32 + self._base_offset))
        for slot in range(first, len(self._entries)):
            position, offset = self._entries[slot]
            if self._agrees(slot) and self._leaves_room(position, offset=offset):
                # Without this the bytes of the file may have moved, and the match may be a coincidence.
                is_last = slot + 1 == len(self._entries)
                if self._leads_to(self._end_position if is_last else self._entries[slot + 1][0], position=position):
                    return position
        return None

    def _leads_to(self, target: int, *, position: int) -> bool:
        """True if whole batches with rising offsets follow one another from `position` to exactly `target`.

        Zeros count as the end of the file.
        """
        last_offset = -1
        while position < target:
            batch = self._whole_at(position)
            if batch is None:
                return target == self._end_position and holds_only_zeros(
                    self._file, position=position, end_position=target
                )
            if batch.first_offset <= last_offset:
                return False
            position, last_offset = batch.end_position, batch.last_offset
        return position == target

    def _agrees(self, slot: int) -> bool:
        """True if an index entry and the batch at its position agree."""
        if slot not in self._proofs:
            position, offset = self._entries[slot]
            limit = self._entries[slot + 1][0] if slot + 1 < len(self._entries) else self._end_position
            self._proofs[slot] = self._is_append_of(position, offset=offset, limit=limit)
        return self._proofs[slot]

    def _leaves_room(self, position: int, *, offset: int) -> bool:
        """True if offsets are left for the damaged bytes before the batch of an index entry.

        If the expected offset is above that of the entry, the expected offset is what is wrong.
        """
        batch = self._whole_at(position)
        return batch is None or offset < self._expected_offset or self._expected_offset < batch.first_offset

    def _is_append_of(self, position: int, *, offset: int, limit: int) -> bool:
        """True if an append starts at `position` whose first or last offset is `offset`, that of an index entry."""
        batch = self._whole_at(position)
        if batch is None or offset in (batch.first_offset, batch.last_offset):
            return batch is not None
        while batch.last_offset < offset and batch.end_position < limit:
            following = self._whole_at(batch.end_position)
            if following is None or following.first_offset <= batch.last_offset:
                return False
            batch = following
        return batch.last_offset == offset

    def _next_shifted(self, start: int) -> int | None:
        """Return the position of the first batch that index entries prove in a file that lost or gained bytes.

        Returns: None if no ENTRIES_THAT_AGREE entries in a row agree.
        """
        self._look_ahead(start + 1, end_position=self._end_position)
        positions = {batch.last_offset: batch.position for batch in self._ahead.batches if batch.position > start}
        streak: list[int] = []
        distance = 0
        for position, offset in self._entries:
            actual = positions.get(offset)
            if actual is None:
                continue
            if streak and actual - position == distance and self._leads_to(actual, position=streak[-1]):
                streak.append(actual)
            else:
                streak, distance = [actual], actual - position
            if len(streak) == ENTRIES_THAT_AGREE:
                return streak[0]
        return None

    def _next_in_order(self, start: int, *, limit: int) -> int | None:
        """Return the first position after `start` of a row of whole batches that lies in the order of the log, and in
        no damaged batch; None if there is none.
        """
        if self._ordered_limit != limit:
            self._ordered_limit, self._ordered = limit, self._rows_in_order(start, limit=limit)
        least_offset = self._expected_offset + 1
        rows = (row for row in self._ordered if row.position > start and row.first_offset >= least_offset)
        following = next(rows, None)
        return None if following is None else following.position

    def _rows_in_order(self, start: int, *, limit: int) -> list[Row]:
        before, after = self.batches[-1] if self.batches else None, self._whole_at(limit)
        self._found = list(self._search(start + 1, end_position=limit))
        in_order = (batch for batch in self._found if not (_is_older(batch, before) or _is_older(after, batch)))
        outside = self._outside_of_sizes(rows_of(in_order), start=start, limit=limit)
        rows = self._outside_of_records(outside, start=start, limit=limit)
        end_offset = self._most_offset + 1 if after is None else after.first_offset
        last = rows[-1] if rows else None
        dense = dense_rows(rows, start=start, end_position=limit)
        if last is not None and self._is_end_of_log(last, limit=limit):
            limit = last.end_position
        if last is None or not self._leads_on(last, start=start, limit=limit, end_offset=end_offset):
            return rows_in_order(dense, least_offset=self._expected_offset, end_offset=end_offset)
        earlier = [row for row in dense if row is not last]
        return [*rows_in_order(earlier, least_offset=self._expected_offset, end_offset=last.first_offset - 1), last]

    def _is_end_of_log(self, row: Row, *, limit: int) -> bool:
        """True if nothing follows a row in the last segment but zeros, or an append that was cut short."""
        position = row.end_position
        if self._end_offset is not None or limit != self._end_position or position == limit:
            return False
        following = row.last_offset + 1
        if limit - position < SIZE_UP_TO_MAGIC:
            # A record in which the row is the last field goes on with other bytes than the offset of the next batch.
            return self._bytes_at(position, size=_OFFSET.size) == _OFFSET.pack(following)
        end = self._end_by_header(position, least_offset=following, limit=limit, may_be_unfinished=True)
        # A whole batch can end in one zero byte; a batch that is half written ends in more.
        space = position if end == position else end - LEAST_ZEROS
        return end == limit or holds_only_zeros(self._file, position=space, end_position=limit)

    def _leads_on(self, row: Row, *, start: int, limit: int, end_offset: int) -> bool:
        """True if a row that is in no record, as far as is seen, ends where the next batch is proven, or the file ends,
        with offsets between those before and after it.

        A value is the last field of a message of magic 0 or 1, so that batches in it may end there too: of these, a row
        counts only if it leaves one offset, that of one message, between known ones.
        """
        if row.end_position != limit or row.last_offset >= end_offset or not (self._has_gaps or row.is_contiguous):
            return False
        is_bounded = self._end_offset is not None or limit < self._end_position
        is_after_one = is_bounded and row.first_offset == self._expected_offset + 1
        if self._may_follow_message(row.batches[0]) and not is_after_one:
            return False
        is_next = limit < self._end_position and row.is_contiguous and row.last_offset + 1 == end_offset
        return row.first_offset > self._last_offset_by_header(start) and (
            is_next or self._starts_after_batch(row, start)
        )

    def _last_offset_by_header(self, position: int) -> int:
        """Return the last offset of a damaged batch by its header; the expected one if that contradicts itself."""
        try:
            header = read_header(self._bytes_at(position, size=RECORD_BATCH_OVERHEAD), position=position)
        except (CorruptionError, UnsupportedError):
            return self._expected_offset
        count = header.last_offset - header.base_offset + 1
        is_in_order = header.base_offset == self._expected_offset and header.record_count in (count, None)
        return header.last_offset if is_in_order else self._expected_offset

    def _starts_after_batch(self, row: Row, start: int) -> bool:
        """True if what precedes a row is no value, but the end of a batch: a record, zeros, or what a codec wrote."""
        low = max(start, row.position - MOST_RECORD_BYTES)
        data = self._read(row.position - low, position=low)
        # A record of a batch that is not in order says nothing.
        before = row.position
        for batch in reversed(self._found):
            before = batch.position if batch.end_position == before else before
        if is_zeros(data) or self._is_compressed_up_to(row.position, start=start):
            return True
        delta = find_last_record(data, max(before - low, 0))
        return delta is not None and row.first_offset - 1 - delta >= self._expected_offset

    def _is_compressed_up_to(self, end_position: int, *, start: int) -> bool:
        """True if the damaged batch at `start` is compressed, and its header does not say that it ends before."""
        payload = self._bytes_at(start + RECORD_BATCH_OVERHEAD, size=PAYLOAD_MAGIC_BYTES)
        end = self._end_by_header(
            start, least_offset=self._expected_offset, limit=self._end_position, may_be_unfinished=False
        )
        return is_compressed(payload) and not start < end < end_position

    def _outside_of_sizes(self, rows: Iterable[Row], *, start: int, limit: int) -> list[Row]:
        """Return the rows that are in no damaged batch by the size in its header.

        The size of a header that may be in its place is believed if no whole batch lies across the end that it gives.
        """
        left, outside = list(rows), []
        # A write that is not finished ends where a page does; at another end of whole batches, a size is damaged.
        may_be_unfinished = limit % PAGE_BYTES == 0 or not left or left[-1].end_position != limit
        end = self._end_by_header(
            start, least_offset=self._expected_offset, limit=limit, may_be_unfinished=may_be_unfinished
        )
        for slot, row in enumerate(left):
            if row.position >= end or self._is_crossed(end, left, slot):
                outside.append(row)
                least_offset = row.last_offset + 1
                end = self._end_by_header(
                    row.end_position, least_offset=least_offset, limit=limit, may_be_unfinished=may_be_unfinished
                )
        return outside

    def _is_crossed(self, position: int, rows: list[Row], slot: int) -> bool:
        """True if a batch of a row from a slot on begins before a position and ends after it."""
        row = rows[bisect_left(rows, position, lo=slot, key=lambda one: one.position) - 1]
        batch = row.batches[bisect_left(row.batches, position, key=lambda one: one.position) - 1]
        return batch.position < position < batch.end_position

    def _end_by_header(self, position: int, *, least_offset: int, limit: int, may_be_unfinished: bool) -> int:
        """Return where the damaged batch at a position ends by its header; the position if that cannot be right.

        One flipped bit of a size that leads to the limit is as good as that size, and so is the size of an append that
        was cut short by the end of the log.
        """
        head = self._bytes_at(position, size=SIZE_UP_TO_MAGIC)
        if len(head) < SIZE_UP_TO_MAGIC or head[MAGIC_POSITION] > MAGIC_V2:
            return position
        size, offset = entry_size(head), _OFFSET.unpack_from(head)[0]
        if _differ_by_one_bit(size, other=limit - position):
            return limit
        is_possible = _LEAST_ENTRY_BYTES <= size <= self._config.max_batch_bytes
        if not is_possible or not least_offset <= offset <= self._most_offset:
            return position
        if position + size <= limit:
            return position + size
        is_cut_short = self._end_offset is None and limit == self._end_position and may_be_unfinished
        return limit if is_cut_short else position

    def _outside_of_records(self, rows: list[Row], *, start: int, limit: int) -> list[Row]:
        """Return the rows, or what is left of them, that no record of damaged bytes seems to hold."""
        outside: list[Row] = []
        # Falling positions at which a damaged batch may end.
        ends = [limit]
        for row in reversed(rows):
            ends.append(row.end_position)
            batches = row.batches
            while batches and (end := self._end_of_record_around(row, batches, ends, start=start, limit=limit)) >= 0:
                batches = tuple(batch for batch in batches if batch.position >= end)
            if batches:
                outside.append(Row(batches))
            ends.append(row.position)
        return outside[::-1]

    def _end_of_record_around(
        self, row: Row, batches: tuple[WholeBatch, ...], ends: list[int], *, start: int, limit: int
    ) -> int:
        """Return the end of a record that seems to hold the first of these batches of a row, -1 if there is none.

        The limit if it is not known.
        """
        low = max(start, batches[0].position - MOST_RECORD_BYTES)
        high = min(limit, batches[0].end_position + MOST_RECORD_BYTES)
        places = [batch.end_position for batch in batches if batch.end_position <= high]
        for end in reversed(ends):
            if end - MOST_TRAILER_BYTES > high:
                break
            # Records that a codec has stored as they are end before what it writes after them.
            places += range(max(end - MOST_TRAILER_BYTES, row.end_position + 1), min(end, high) + 1)
        self._record_search_bytes -= high - low
        if self._record_search_bytes <= 0:
            return limit
        data = self._read(high - low, position=low)
        end = find_record_around(
            data,
            start=batches[0].position - low,
            end=batches[0].end_position - low,
            ends=[*(place - low for place in places), *self._headers_in(data, at=row.end_position - low)],
            messages=self._may_follow_message(batches[0]),
        )
        return end + low if end >= 0 else -1

    def _may_follow_message(self, batch: WholeBatch) -> bool:
        """True if the damaged bytes before a batch may be of magic 0 or 1: magics rise in a log."""
        before = self.batches[-1] if self.batches else batch
        return min(before.magic, batch.magic) < MAGIC_V2

    def _headers_in(self, data: bytes, *, at: int) -> Iterator[int]:
        """Yield where in these bytes a header may be, of a whole batch or of a damaged one."""
        while at <= len(data) - _LEAST_ENTRY_BYTES:
            at = find_batch_header(
                data,
                at,
                least_offset=self._base_offset,
                most_offset=self._most_offset,
                max_batch_bytes=self._config.max_batch_bytes,
            )
            if at < 0:
                return
            yield at
            at += 1

    def _end_by_size(self, start: int, *, limit: int) -> int | None:
        """Return the end of the damaged batch at `start` and of damaged ones directly after it, if their sizes are
        credible, else None.

        They are if the CRC proves no other size, a whole batch follows whose offsets leave room for the damaged ones,
        and nothing after that contradicts it.
        """
        position, least_offset = start, self._expected_offset
        starts = [start]
        while not self._is_exhausted:
            least_offset += 1
            size = self._size_at(position)
            end = position + size
            if size == 0 or end > limit:
                return None
            if end == limit:
                return limit
            batch = self._whole_at(end) or self._resized_at(end)
            if batch is not None:
                is_next = least_offset <= batch.first_offset and not (
                    self._is_contradicted(batch, start=start, position=position, limit=limit)
                    or self._may_be_inside(batch, starts, limit=limit)
                )
                return end if is_next else None
            position = end
            starts.append(position)
        return None

    def _may_be_inside(self, batch: WholeBatch, starts: list[int], *, limit: int) -> bool:
        """True if one flipped bit in the size of a damaged batch before `batch` would explain a later whole batch whose
        offsets are not above those of `batch`: then `batch` may be part of a value.

        Args: starts: of the damaged batches that lead to `batch`; _look_ahead has searched up to `limit`.
        """
        for start, end in pairwise([*starts, batch.position]):
            field = end - start - LOG_OVERHEAD
            for bit in range(_SIZE.size * 8):
                target = start + (field ^ 1 << bit) + LOG_OVERHEAD
                other = self._ahead.at(target) if batch.end_position <= target < limit else None
                if other is not None and other.first_offset <= batch.last_offset:
                    return True
        return False

    def _is_contradicted(self, batch: WholeBatch, *, start: int, position: int, limit: int) -> bool:
        """True if there is evidence against `batch`, which follows the damaged batch at `position` by that one's size.

        Evidence is: a damaged header whose offsets do not match (one of its fields may be damaged too); a whole batch,
            searched for from `start` on, that overlaps the start of `batch` or fits into the gap of offsets before it;
            a later batch that leaves no offset for the bytes between it and the unbroken row from `batch` on; a batch
            directly after `batch` with offsets of the next segment. Also true if the damaged size is one bit away
            from reaching `limit`: the damaged batch may be the last one and there could be no evidence against `batch`.
        """
        self._look_ahead(start + 1, end_position=limit)
        following, first_after = self._whole_at(batch.end_position), self._whole_at(limit)
        if (
            self._is_exhausted
            or (following is not None and following.last_offset > self._most_offset)
            or (first_after is not None and first_after.first_offset <= batch.last_offset)
            or _differ_by_one_bit(batch.position - position, other=limit - position)
        ):
            return True
        try:
            header = read_header(self._bytes_at(position, size=RECORD_BATCH_OVERHEAD), position=position)
        except (CorruptionError, UnsupportedError):
            end_offset = self._expected_offset
        else:
            count, span = header.record_count or 1, header.last_offset - header.base_offset + 1
            ends = [header.last_offset + 1, header.base_offset + count]
            if position == start:
                ends += [self._expected_offset + count, self._expected_offset + span]
            if batch.first_offset <= header.last_offset and batch.first_offset not in ends:
                return True
            end_offset = batch.first_offset if batch.first_offset in ends else self._expected_offset
        for other in self._ahead.between(start, end_position=batch.position):
            if other.end_position > batch.position or end_offset <= other.first_offset < batch.first_offset:
                return True
        row_end = self._end_of_row(batch)
        least = self._ahead.least_offset(row_end.end_position, end_position=limit, least=self._base_offset)
        # After the row come damaged bytes, or a batch above the next offset: the damaged bytes need offsets too.
        return least is not None and least <= row_end.last_offset + 1

    def _end_of_row(self, batch: WholeBatch) -> WholeBatch:
        """Return the last of the whole batches that follow one another without a gap in bytes or offsets."""
        following: WholeBatch | None = batch
        while following is not None:
            batch = following
            following = self._whole_at(batch.end_position)
            if following is not None and following.first_offset != batch.last_offset + 1:
                break
        return batch

    @property
    def _is_exhausted(self) -> bool:
        return self._effort_bytes <= 0

    # What is found

    def _whole_at(self, position: int) -> WholeBatch | None:
        size = self._size_at(position)
        return self._batch_of(self._bytes_at(position, size=size), position) if size else None

    def _size_at(self, position: int) -> int:
        """Return the size in bytes that a batch at a position declares, or 0 if it is impossible."""
        head = self._bytes_at(position, size=SIZE_UP_TO_MAGIC)
        if len(head) < SIZE_UP_TO_MAGIC:
            return 0
        size = entry_size(head)
        return (
            size
            if _LEAST_ENTRY_BYTES <= size <= min(self._config.max_batch_bytes, self._end_position - position)
            else 0
        )

    def _batch_of(self, content: bytes, position: int) -> WholeBatch | None:
        """Return the batch in these bytes, possibly with a corrected magic byte, or None."""
        data = bytearray(content)
        for magic in (None,) if data[MAGIC_POSITION] == 2 else (None, data[MAGIC_POSITION]):
            if magic is not None:
                data[MAGIC_POSITION] = 2
            try:
                header = read_header(data, position=position, max_batch_bytes=self._config.max_batch_bytes)
                check_crc(data, position=position)
                span = header.last_offset - header.base_offset
                if not header.has_base_offset:
                    span = _span_of_wrapper(bytearray(data), self._config)
            except (CorruptionError, UnsupportedError):
                continue
            if span < 0:
                continue
            epoch = NO_PARTITION_LEADER_EPOCH if header.magic < MAGIC_V2 else header.partition_leader_epoch
            return WholeBatch(position, len(data), header.last_offset, span, header.magic, epoch, magic)
        return None

    def _resized_at(self, position: int) -> WholeBatch | None:
        """Return the batch at a position whose size field is wrong, if its CRC determines the right size, else None."""
        if position not in self._resized:
            self._resized[position] = self._resize(position)
        return self._resized[position]

    def _resize(self, position: int) -> WholeBatch | None:
        head = self._bytes_at(position, size=RECORD_BATCH_OVERHEAD)
        if len(head) < _LEAST_ENTRY_BYTES or self._is_exhausted:
            return None
        proven = self._next_indexed(position)
        limit = self._end_position if proven is None else proven
        most = min(limit - position, self._config.max_batch_bytes)
        data = self._read(most, position=position)
        self._effort_bytes -= len(data)
        sizes = sizes_by_crc(data)
        # More than one match means that somebody crafted a CRC for one of them.
        if len(sizes) != 1:
            return None
        stored, end = entry_size(head), position + sizes[0]
        if not _differ_by_one_bit(stored, other=sizes[0]) and end != limit and not self._may_start_at(end):
            return None
        content = bytearray(data[: sizes[0]])
        _SIZE.pack_into(content, _SIZE_AT, sizes[0] - LOG_OVERHEAD)
        batch = self._batch_of(bytes(content), position)
        return None if batch is None else batch._replace(stored_size=stored)

    def _may_start_at(self, position: int) -> bool:
        """True if the bytes at a position are a batch header or zeros."""
        head = self._bytes_at(position, size=RECORD_BATCH_OVERHEAD)
        if not any(head):
            return True
        try:
            read_header(head, position=position, max_batch_bytes=self._config.max_batch_bytes)
        except (CorruptionError, UnsupportedError):
            return False
        return True

    def _search(self, position: int, *, end_position: int) -> Iterator[WholeBatch]:
        """Yield the batches with a valid CRC in a range, wherever they start; none overlaps the one before."""
        while position < end_position:
            batch = self._whole_at(position)
            if batch is None or batch.end_position > end_position:
                following = self._next_found(position + 1, end_position=end_position)
                if following is None:
                    return
                batch = following
            yield batch
            position = batch.end_position

    def _next_found(self, position: int, *, end_position: int) -> WholeBatch | None:
        """Return the next batch with a valid CRC that starts at or after `position`, or None; see SEARCH_EFFORT."""
        at = 0
        while end_position - position >= _LEAST_ENTRY_BYTES:
            chunk = self._bytes_at(position, size=min(self._config.read_chunk_bytes, end_position - position))
            at = find_batch_header(
                chunk,
                at,
                least_offset=self._base_offset,
                most_offset=self._most_offset,
                max_batch_bytes=min(self._config.max_batch_bytes, end_position - position),
            )
            if at < 0 and position + len(chunk) >= end_position:
                return None
            if at < 0:
                position, at = position + len(chunk) - RECORD_BATCH_OVERHEAD + 1, 0
                continue
            size = self._size_at(position + at)
            if size and position + at + size <= end_position:
                if self._is_exhausted:
                    return None
                self._effort_bytes -= size
                batch = self._whole_at(position + at)
                if batch is not None:
                    return batch
            at += 1
        return None

    def _look_ahead(self, position: int, *, end_position: int) -> None:
        """Search a range for batches, proven or not, and keep them in self._ahead."""
        if not self._ahead.covers(position):
            self._ahead = _Ahead(position)
        if self._ahead.end_position < end_position:
            for batch in self._search(self._ahead.end_position, end_position=end_position):
                self._ahead.add(batch)
            self._ahead.end_position = end_position

    # What is reported

    def _note_search(self, start: int, end: int | None, *, limit: int, reason: str) -> int:
        """Report a damaged range, and the unproven whole batches in it; return its end.

        If `end` is None, it is `limit`, or the first batch in an unbroken row that is at least max_batch_bytes away
        from the start of the row, so that no other batch can contain it.
        """
        position = row_start = row_end = start
        row: list[WholeBatch] = []
        for batch in self._search(start + 1, end_position=limit if end is None else end):
            if batch.position != row_end:
                position, row = self._note_row(position, row, reason), []
                row_start = batch.position
            if end is None and batch.position - row_start >= self._config.max_batch_bytes:
                end = batch.position
                break
            row.append(batch)
            row_end = batch.end_position
        end = limit if end is None else end
        position = self._note_row(position, row, reason)
        self._note(position, end_position=end, reason=reason)
        return end

    def _note_row(self, position: int, row: list[WholeBatch], reason: str) -> int:
        """Report a row of adjacent batches and the damage before them; return their end."""
        if not row:
            return position
        self._note(position, end_position=row[0].position, reason=reason)
        offsets = f"offsets {row[0].first_offset} to {row[-1].last_offset}"
        count = "a whole batch" if len(row) == 1 else f"{len(row)} whole batches"
        doubt = f"doubtful: {count}, {offsets}, without proof that the log held them"
        self._note(row[0].position, end_position=row[-1].end_position, reason=doubt)
        return row[-1].end_position

    def _note(self, position: int, *, end_position: int, reason: str) -> None:
        if position < end_position:
            self.damage.append(Damage(self._file.path, position, end_position - position, reason))


def fault_at(
    bytes_at: Callable[..., bytes], position: int, *, end_position: int, config: LogConfig
) -> CorruptionError | UnsupportedError | None:
    """Return the error for what a position of a .log has in place of a batch, None if it has one with a right CRC.

    Args: bytes_at: as that of a ChunkReader.
    """
    head = bytes_at(position, size=RECORD_BATCH_OVERHEAD)
    try:
        header = read_header(head, position=position, max_batch_bytes=config.max_batch_bytes, end_position=end_position)
        check_crc(bytes_at(position, size=header.size_in_bytes), position=position)
        header.check_place(least_offset=0)
    except (CorruptionError, UnsupportedError) as error:
        return error
    return None


def reason_of(fault: CorruptionError | UnsupportedError) -> str:
    """Return the phrase of an error that goes into a report."""
    return fault.reason if isinstance(fault, CorruptionError) else str(fault)


class _Ahead:
    """Batches found by a search from a position on.

    Attributes: end_position (how far the search went), batches.
    """

    def __init__(self, start: int = 0) -> None:
        self.batches: list[WholeBatch] = []
        self.end_position = start
        self._start = start
        self._positions: list[int] = []
        self._least: list[int] = []

    def covers(self, position: int) -> bool:
        return self._start <= position <= self.end_position

    def between(self, position: int, *, end_position: int) -> list[WholeBatch]:
        """Return the batches that start in a range."""
        return self.batches[bisect_left(self._positions, position) : bisect_left(self._positions, end_position)]

    def at(self, position: int) -> WholeBatch | None:
        """Return the batch that starts at a position, None if there is none."""
        slot = bisect_left(self._positions, position)
        return self.batches[slot] if slot < len(self.batches) and self._positions[slot] == position else None

    def add(self, batch: WholeBatch) -> None:
        self.batches.append(batch)
        self._positions.append(batch.position)
        self._least = []

    def least_offset(self, position: int, *, end_position: int, least: int) -> int | None:
        """Return the smallest first offset of the batches that start in a range, None if there are none.

        Offsets below `least`, and those that the neighbouring batches show to be wrong, count as very large.
        """
        first, last = bisect_left(self._positions, position), bisect_left(self._positions, end_position)
        if last < len(self._positions):
            return min((self._offset(slot, least=least) for slot in range(first, last)), default=None)
        if not self._least:
            for slot in reversed(range(len(self.batches))):
                offset = self._offset(slot, least=least)
                self._least.append(min(offset, self._least[-1]) if self._least else offset)
            self._least.reverse()
        return self._least[first] if first < len(self._least) else None

    def _offset(self, slot: int, *, least: int) -> int:
        batch = self.batches[slot]
        before = self.batches[slot - 1] if slot else None
        after = self.batches[slot + 1] if slot + 1 < len(self.batches) else None
        is_bad_start = (
            before is not None
            and before.end_position == batch.position
            and batch.first_offset <= before.last_offset
            and not (
                after is not None
                and batch.end_position == after.position
                and after.first_offset == batch.last_offset + 1
            )
        )
        return _ANY_OFFSET**2 if is_bad_start or batch.first_offset < least else batch.first_offset


def _is_older(batch: WholeBatch | None, other: WholeBatch | None) -> bool:
    """True if a batch has a lower magic or leader epoch than another, after which it cannot be in a log."""
    return batch is not None and other is not None and (batch.magic, batch.epoch) < (other.magic, other.epoch)


def _differ_by_one_bit(size: int, *, other: int) -> bool:
    """True if the size fields of two sizes differ in exactly one bit."""
    return (((size - LOG_OVERHEAD) ^ (other - LOG_OVERHEAD)) & _UNSIGNED).bit_count() == 1


def _span_of_wrapper(data: bytearray, config: LogConfig) -> int:
    """Return the last offset minus the first of the records in a V0 or V1 wrapper, whatever the wrapper's own offset.

    Raises: CorruptionError, UnsupportedError.
    """
    set_last_offset(data, last_offset=_ANY_OFFSET)
    offsets = [record.offset for record in RecordBatch(memoryview(data), config=config)]
    if not offsets:
        raise CorruptRecordError("a wrapper without records")
    return offsets[-1] - offsets[0]
