"""SegmentCheck: walks every byte of one .log, reports what is damaged, and continues after each damage.

A damaged batch whose size leads to another batch is skipped. After bad framing the next batch is searched for byte by
byte, and counts only with a valid CRC. OffsetIndexCheck and TimeIndexCheck compare the indexes with that walk.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from kstore._core import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    OFFSET_INDEX_ENTRY_SIZE,
    RECORD_BATCH_OVERHEAD,
    TIME_INDEX_ENTRY_SIZE,
    BatchHeader,
    check_crc,
    crc32c,
    find_batch_header,
    iterate_records,
    read_header,
    survey_records,
)
from kstore.compression import decompress
from kstore.config import MAX_INT32, LogConfig
from kstore.errors import CorruptionError, CorruptRecordError, UnsupportedCompressionTypeError, UnsupportedMagicError
from kstore.log.damage import Damage
from kstore.log.segment.framing import SEARCH_EFFORT
from kstore.log.segment.indexes import OffsetIndex, TimeIndex
from kstore.log.segment.records import ChunkReader, SegmentRecords, entry_size, is_zeros
from kstore.record.batches import LEAST_MESSAGE_SIZES, SIZE_UP_TO_MAGIC
from kstore.types import OffsetPosition, TimestampOffset, TopicPartition

_CRC = struct.Struct(">I")
# No entry of any magic is smaller.
_LEAST_ENTRY_BYTES = LEAST_MESSAGE_SIZES[0]


class Step(NamedTuple):
    """One batch, or a range without a batch (header is None), and the damage of it or of the batch before it."""

    start_position: int
    end_position: int
    header: BatchHeader | None
    damage: Damage | None


class _Content(NamedTuple):
    record_count: int
    damage: Damage | None


class SegmentCheck:
    """Checks the batches of one .log: framing, CRC, order of offsets and, if deep, every record.

    batch_count and record_count grow while steps() runs; damaged batches are not counted, nor, unless deep, the records
    inside V0 and V1 wrappers.
    Threads: not thread-safe.  Cost: one pass; memory of one batch or read chunk, and one decompressed batch.
    """

    def __init__(
        self, records: SegmentRecords, *, topic_partition: TopicPartition, config: LogConfig, is_deep: bool
    ) -> None:
        self._records = records
        self._topic_partition = topic_partition
        self._config = config
        self._is_deep = is_deep
        self._size = records.size_in_bytes
        reader = ChunkReader(
            records.read_bytes, end_position=records.size_in_bytes, first_bytes=config.read_chunk_bytes
        )
        self._bytes_at = reader.bytes_at
        self._effort_bytes = SEARCH_EFFORT * self._size
        self._previous: BatchHeader | None = None
        self._previous_record_count: int | None = None
        self._least_offset = records.base_offset
        self._least_offset_before_previous = records.base_offset
        self.batch_count = 0
        self.record_count = 0

    def steps(self, position: int = 0, *, least_offset: int | None = None) -> Iterator[Step]:
        """Walk the file once, from a position to its end, covering every byte.

        Args: least_offset: the lowest offset allowed for the first batch; by default the segment's base offset.
        Raises: StorageError; LogReplacedError if the file was replaced or truncated since it was listed.
        """
        if least_offset is not None:
            self._least_offset = self._least_offset_before_previous = least_offset
        while position < self._size:
            step = self._step(position)
            yield step
            position = step.end_position

    def _step(self, position: int) -> Step:
        head = self._bytes_at(position, size=RECORD_BATCH_OVERHEAD)
        if not any(head[:SIZE_UP_TO_MAGIC]):
            return self._zeros(position)
        try:
            header: BatchHeader = read_header(
                head,
                position=position,
                path=self._records.path,
                max_batch_bytes=self._config.max_batch_bytes,
                end_position=self._size,
            )
        except UnsupportedMagicError as error:
            return self._other_magic(position, head, error)
        except CorruptRecordError as error:
            return self._gap(position, error.reason)
        return self._batch(header, self._bytes_at(position, size=header.size_in_bytes))

    def _batch(self, header: BatchHeader, data: bytes) -> Step:
        position, end_position = header.position, header.position + header.size_in_bytes
        try:
            check_crc(data, position=position, path=self._records.path)
        except CorruptRecordError as error:
            if not self._is_boundary(end_position):
                return self._gap(position, error.reason)
            return Step(position, end_position, header, self._batch_damage(header, error.reason))
        except UnsupportedMagicError as error:
            reason = f"wrong magic: expected 2 by its CRC, found {error.magic}"
            return Step(position, end_position, None, self._batch_damage(header, reason))
        least = self._least_offset
        if header.base_offset < least:
            least = self._least_offset_before_previous
        damage = self._check_offsets(header)
        content = None
        if damage is None or damage.position != position:
            content = self._check_content(header, data, least_offset=least)
            damage = content.damage or damage
        if content is not None and content.damage is None:
            self.batch_count += 1
            self.record_count += content.record_count
            self._previous_record_count = content.record_count
        return Step(position, end_position, header, damage)

    def _check_offsets(self, header: BatchHeader) -> Damage | None:
        least, least_before, previous = self._least_offset, self._least_offset_before_previous, self._previous
        # One batch may have offsets that are too high: the next one then has lower ones that fit the batch before.
        is_before_previous = previous is not None and least_before <= header.base_offset < least
        try:
            header.check_place(
                least_offset=least_before if is_before_previous else least,
                next_base_offset=self._records.next_base_offset,
                path=self._records.path,
            )
        except CorruptionError as error:
            return self._batch_damage(header, error.reason)
        counted = self._previous_record_count
        self._previous, self._least_offset, self._previous_record_count = header, header.last_offset + 1, None
        if previous is not None and is_before_previous:
            if counted is None:
                return None
            self.batch_count -= 1
            self.record_count -= counted
            reason = f"offsets jump ahead: found {previous.base_offset}, in the next batch {header.base_offset}"
            return self._batch_damage(previous, reason)
        self._least_offset_before_previous = least
        return None

    def _check_content(self, header: BatchHeader, data: bytes, *, least_offset: int) -> _Content:
        if not self._is_deep:
            return _Content(header.record_count or 0, None)
        try:
            records = iterate_records(
                data,
                position=header.position,
                path=self._records.path,
                topic_partition=self._topic_partition,
                decompress=decompress,
                max_decompressed_bytes=self._config.max_decompressed_bytes,
                least_offset=least_offset,
            )
            record_count = sum(1 for _ in records) if header.magic < 2 else survey_records(records)[0]
        except CorruptionError as error:
            return _Content(0, self._batch_damage(header, error.reason))
        except UnsupportedCompressionTypeError as error:
            return _Content(0, self._batch_damage(header, f"unsupported compression type {error.codec_id}"))
        if records.incomplete_bytes:
            reason = f"incomplete message after the last one in a compressed message: {records.incomplete_bytes} bytes"
            return _Content(record_count, self._batch_damage(header, reason))
        return _Content(record_count, None)

    def _zeros(self, position: int) -> Step:
        """Handle zero bytes: in the last segment, and with nothing after them, they are preallocated space."""
        at = position
        while at < self._size:
            chunk = self._bytes_at(at, size=self._config.read_chunk_bytes)
            if not is_zeros(chunk):
                return self._gap(position, "zero bytes in place of a batch")
            at += len(chunk)
        if self._records.next_base_offset is None:
            return Step(position, self._size, None, None)
        size = self._size - position
        return Step(
            position,
            self._size,
            None,
            self._damage(position, size_in_bytes=size, reason="zero bytes after the last batch"),
        )

    def _other_magic(self, position: int, head: bytes, error: UnsupportedMagicError) -> Step:
        """Distinguish a V2 batch with only a wrong magic byte from bad framing."""
        reason = f"unsupported magic: expected 0 to 2, found {error.magic}"
        size = entry_size(head) if len(head) >= SIZE_UP_TO_MAGIC else 0
        if not SIZE_UP_TO_MAGIC <= size <= min(self._size - position, self._config.max_batch_bytes):
            return self._gap(position, reason)
        data = self._bytes_at(position, size=size)
        if (
            size >= RECORD_BATCH_OVERHEAD
            and crc32c(data[ATTRIBUTES_POSITION:]) == _CRC.unpack_from(data, CRC_POSITION)[0]
        ):
            return Step(position, position + size, None, self._damage(position, size_in_bytes=size, reason=reason))
        return self._gap(position, reason)

    def _gap(self, position: int, reason: str) -> Step:
        end_position = self._next_batch_position(position + 1)
        return Step(
            position, end_position, None, self._damage(position, size_in_bytes=end_position - position, reason=reason)
        )

    def _is_boundary(self, position: int) -> bool:
        if position == self._size:
            return True
        head = self._bytes_at(position, size=RECORD_BATCH_OVERHEAD)
        if not any(head):
            return True
        try:
            read_header(head, position=position, max_batch_bytes=self._config.max_batch_bytes)
        except (CorruptRecordError, UnsupportedMagicError):
            return False
        return True

    def _next_batch_position(self, position: int) -> int:
        """Return the first position >= `position` where a whole batch with a valid CRC starts, or the end of the file.

        Gives up when the bytes whose CRC was computed in this segment reach SEARCH_EFFORT times its size.
        """
        following = self._records.next_base_offset
        most_offset = self._records.base_offset + MAX_INT32 if following is None else following - 1
        at = 0
        while self._size - position >= _LEAST_ENTRY_BYTES:
            chunk = self._bytes_at(position, size=self._config.read_chunk_bytes)
            at = find_batch_header(
                chunk,
                at,
                least_offset=self._records.base_offset,
                most_offset=most_offset,
                max_batch_bytes=min(self._config.max_batch_bytes, self._size - position),
            )
            if at < 0 and position + len(chunk) == self._size:
                return self._size
            if at < 0:
                position += len(chunk) - RECORD_BATCH_OVERHEAD + 1
                at = 0
            elif self._has_right_crc(position + at):
                return position + at
            elif self._effort_bytes <= 0:
                return self._size
            else:
                at += 1
        return self._size

    def _has_right_crc(self, position: int) -> bool:
        size = entry_size(self._bytes_at(position, size=_LEAST_ENTRY_BYTES))
        if size > self._size - position:
            return False
        self._effort_bytes -= size
        try:
            check_crc(self._records.read_bytes(size, position=position), position=position)
        except (CorruptRecordError, UnsupportedMagicError):
            return False
        return True

    def _batch_damage(self, header: BatchHeader, reason: str) -> Damage:
        return self._damage(header.position, size_in_bytes=header.size_in_bytes, reason=reason)

    def _damage(self, position: int, *, size_in_bytes: int, reason: str) -> Damage:
        return Damage(self._records.path, position, size_in_bytes, reason)


class IndexFile(NamedTuple):
    """One index file and what is known of its segment.

    content: the whole file; log_size_in_bytes: of the .log; is_last: whether it belongs to the last segment, where zero
    entries at the end are preallocated space; has_grown: whether the .log has grown since it was listed, so that the
    index may be ahead of it.
    """

    path: str
    content: bytes
    base_offset: int
    log_size_in_bytes: int
    is_last: bool
    has_grown: bool


class _Run:
    """Merges the damage of adjacent entries of one index file."""

    def __init__(self, path: str, entry_size: int) -> None:
        self._path = path
        self._entry_size = entry_size
        self._first_slot = 0
        self._count = 0
        self._reason = ""

    def add(self, slot: int, reason: str) -> Iterator[Damage]:
        """Add a damaged entry; yield the run before it if this entry does not continue it."""
        if self._count and slot == self._first_slot + self._count:
            self._count += 1
            return
        yield from self.end()
        self._first_slot, self._count, self._reason = slot, 1, reason

    def end(self) -> Iterator[Damage]:
        """Yield the current run, if any, and reset."""
        if self._count:
            more = "" if self._count == 1 else f" (and {self._count - 1} more)"
            position, size = self._first_slot * self._entry_size, self._count * self._entry_size
            yield Damage(self._path, position, size, self._reason + more)
        self._count = 0


class OffsetIndexCheck:
    """Checks one .index file: whole entries in order, each at the start of a batch that its offset belongs to.

    An entry's offset may be the first (up to Kafka 1.1) or the last (later versions) of the append that starts there:
    it must be between that batch's base offset and the last offset before the next entry's position.
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
        """Process the next step of the walk."""
        while self._slot < self._index.entry_count:
            entry = self._index.entry(self._slot)
            if entry.position >= self._file.log_size_in_bytes:
                if not self._file.has_grown:
                    yield from self._run.add(self._slot, f"position {entry.position} is past the end of the log")
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
        """Report what only the end of the walk shows, and damage of the file itself."""
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
        """Return the base offset; for a V0 or V1 wrapper, whose header has none, the offset after the previous
        batch.
        """
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
    """Checks one .timeindex file: whole entries in order, each with the largest timestamp up to its offset.

    V0 messages have no timestamps. A broker that converted later messages to V0 indexed the original timestamps, so an
    entry after such messages may be larger than any timestamp in the log.
    """

    def __init__(self, file: IndexFile) -> None:
        self._file = file
        self._index = TimeIndex(file.content, base_offset=file.base_offset, path=file.path)
        # A single entry of zeros is not padding: it is a record of the year 1970 at the segment's base offset.
        self._entry_count = 1 if len(file.content) == TIME_INDEX_ENTRY_SIZE else self._index.entry_count
        self._run = _Run(file.path, TIME_INDEX_ENTRY_SIZE)
        self._slot = 0
        self._last_in_order: TimestampOffset | None = None
        self._largest_timestamp_ms = -1
        self._is_certain = True
        self._has_untimed = False
        self._last_offset = file.base_offset - 1

    def step(self, step: Step) -> Iterator[Damage]:
        """Process the next step of the walk; after damage the largest timestamp is no longer certain."""
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
        """Report what only the end of the walk shows, and damage of the file itself."""
        if not self._file.has_grown:
            for slot in range(self._slot, self._entry_count):
                reason = f"offset {self._entry(slot).offset} is above {self._last_offset}, the last one of the segment"
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
    """Yield the damage of the file that does not depend on the log: zeros at its end, its length."""
    size = len(file.content)
    whole_entries_size = size // entry_size * entry_size
    entries_size = entry_count * entry_size
    if entries_size < whole_entries_size and not file.is_last:
        yield Damage(file.path, entries_size, whole_entries_size - entries_size, "zero entries at the end")
    if whole_entries_size < size:
        reason = f"file size is not a multiple of the entry size: expected a multiple of {entry_size}, found {size}"
        yield Damage(file.path, whole_entries_size, size - whole_entries_size, reason)
