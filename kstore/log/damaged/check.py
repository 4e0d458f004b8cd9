"""SegmentCheck: walks every byte of one .log, and reports what is damaged by the rules of readers and of salvage.

OffsetIndexCheck and TimeIndexCheck compare the indexes with that walk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from kstore._core import (
    OFFSET_INDEX_ENTRY_SIZE,
    RECORD_BATCH_OVERHEAD,
    TIME_INDEX_ENTRY_SIZE,
    BatchHeader,
    iterate_records,
    read_header,
    sound_headers,
    survey_records,
)
from kstore.compression import decompress
from kstore.config import LogConfig
from kstore.errors import CorruptionError, CorruptRecordError, UnsupportedCompressionTypeError, UnsupportedMagicError
from kstore.log.damage import Damage
from kstore.log.damaged.framing import fault_at, reason_of
from kstore.log.damaged.sound import FileRange, find_sound_batches
from kstore.log.files.indexes import OffsetIndex, TimeIndex
from kstore.log.files.records import ChunkReader, SegmentRecords, holds_only_zeros, is_zeros
from kstore.types import OffsetPosition, TimestampOffset, TopicPartition


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
        self,
        records: SegmentRecords,
        *,
        find_index: Callable[[], OffsetIndex | None],
        topic_partition: TopicPartition,
        config: LogConfig,
        is_deep: bool,
    ) -> None:
        self._records = records
        self._find_index = find_index
        self._topic_partition = topic_partition
        self._config = config
        self._is_deep = is_deep
        self._size = records.size_in_bytes
        self._reader = ChunkReader(
            records.read_around_damage,
            end_position=records.size_in_bytes,
            first_bytes=config.read_chunk_bytes,
            announce=records.announce,
        )
        self._bytes_at = self._reader.bytes_at
        self._least_offset = records.base_offset
        self.batch_count = 0
        self.record_count = 0

    def steps(self, position: int = 0, *, least_offset: int | None = None) -> Iterator[Step]:
        """Walk the file once, from a position to its end, covering every byte.

        A batch that the batches after it show to be damaged is reported with the first of these, and is not counted any
        more.
        Args: least_offset: the lowest offset allowed for the first batch; by default the segment's base offset.
        Raises: StorageError; LogReplacedError if the file was replaced or truncated since it was listed.
        """
        if least_offset is not None:
            self._least_offset = least_offset
        start, base_offset = position, self._least_offset
        for step in self._sound_run(position, end_position=self._size):
            yield step
            position = step.end_position
        if position < self._size:
            path, next_base_offset = self._records.path, self._records.next_base_offset
            part = FileRange(path, base_offset, start, self._size, next_base_offset)
            yield from self._steps_around_damage(part, position)

    def _sound_run(self, position: int, *, end_position: int) -> Iterator[Step]:
        """Walk adjacent batches up to the first that is damaged, or does not follow the one before it."""
        while position < end_position:
            headers = self._sound_headers(position)
            if not headers:
                return
            for header in headers:
                if position >= end_position:
                    return
                content = self._check_content(header, least_offset=self._least_offset)
                if content.damage is None:
                    self.batch_count += 1
                    self.record_count += content.record_count
                self._least_offset = header.last_offset + 1
                end = position + header.size_in_bytes
                yield Step(position, end, header, content.damage)
                position = end

    def _sound_headers(self, position: int) -> list[BatchHeader]:
        """Return the headers of the sound batches at a position, as far as they are read; none if the first is not
        sound.
        """
        headers = self._sound_headers_read(position, size=RECORD_BATCH_OVERHEAD)
        if not headers and (header := self._header_at(position)) is not None:
            headers = self._sound_headers_read(position, size=header.size_in_bytes)
        return headers

    def _sound_headers_read(self, position: int, *, size: int) -> list[BatchHeader]:
        """Return these headers after at least `size` bytes were read."""
        at = self._reader.find(position, size=size)
        return sound_headers(
            self._reader.chunk,
            at,
            position=position,
            least_offset=self._least_offset,
            next_base_offset=self._records.next_base_offset,
            max_batch_bytes=self._config.max_batch_bytes,
        )

    def _steps_around_damage(self, part: FileRange, position: int) -> Iterator[Step]:
        """Continue the walk over a part of the file at its first fault."""
        with self._records.lend() as file:
            parts = find_sound_batches(file, part, index=self._find_index(), config=self._config)
        ranges = [(damaged, False) for damaged in parts.damage]
        ranges += [
            (self._damage(batch.position, size_in_bytes=batch.size_in_bytes, reason=""), True)
            for batch, _ in parts.unsound
        ]
        ranges.sort(key=lambda entry: entry[0].position)
        later = [entry for entry in ranges if entry[0].position >= position]
        taken_back = ranges[: len(ranges) - len(later)]
        if taken_back:
            # Only what is sound of the part so far counts.
            self.batch_count = self.record_count = 0
            self._least_offset = part.base_offset
            before = part.start_position
            for damage, _ in [*taken_back, (self._damage(position, size_in_bytes=0, reason=""), False)]:
                for _step in self._sound_steps(before, end_position=damage.position):
                    pass
                before = damage.position + damage.size_in_bytes
            for damage, _ in taken_back:
                yield Step(position, position, None, damage._replace(reason=_jump_of(self._header_at(damage.position))))
        for damage, is_batch in later:
            yield from self._sound_steps(position, end_position=damage.position)
            position = damage.position + damage.size_in_bytes
            if is_batch:
                reason = self._reason_beside_crc(damage.position)
                yield self._damaged_step(
                    damage.position, end_position=position, header=self._header_at(damage.position), reason=reason
                )
            else:
                yield from self._damaged_steps(damage)
        yield from self._sound_steps(position, end_position=self._size)

    def _sound_steps(self, position: int, *, end_position: int) -> Iterator[Step]:
        """Walk adjacent sound batches."""
        for step in self._sound_run(position, end_position=end_position):
            yield step
            position = step.end_position
        if position < end_position:
            # It was sound a moment ago: the file has changed.
            yield self._damaged_step(
                position, end_position=end_position, header=None, reason="changed while it was read"
            )

    def divided(self, damage: Damage) -> list[Damage]:
        """Return a damaged range as batches, as far as their sizes show them, without space at the end of the log."""
        return [step.damage for step in self._damaged_steps(damage) if step.damage is not None]

    def _damaged_steps(self, damage: Damage) -> Iterator[Step]:
        """Divide a damaged range into batches, as far as their sizes show them."""
        position, end_position = damage.position, damage.position + damage.size_in_bytes
        may_be_space = end_position == self._size and self._records.next_base_offset is None
        while position < end_position:
            if may_be_space and self._is_zeros_from(position):
                yield Step(position, end_position, None, None)
                return
            fault = fault_at(self._bytes_at, position, end_position=self._size, config=self._config)
            header = None if fault is None else self._header_at(position)
            following = end_position if header is None else position + header.size_in_bytes
            if following > end_position or (following < end_position and not self._may_start_at(following)):
                header, following = None, end_position
            reason = damage.reason if position == damage.position or fault is None else reason_of(fault)
            yield self._damaged_step(position, end_position=following, header=header, reason=reason)
            position = following

    def _damaged_step(self, position: int, *, end_position: int, header: BatchHeader | None, reason: str) -> Step:
        damage = self._damage(position, size_in_bytes=end_position - position, reason=reason)
        return Step(position, end_position, header, damage)

    def _may_start_at(self, position: int) -> bool:
        return self._header_at(position) is not None or is_zeros(self._bytes_at(position, size=RECORD_BATCH_OVERHEAD))

    def _reason_beside_crc(self, position: int) -> str:
        """Return what is wrong with a batch whose records have a right CRC."""
        fault = fault_at(self._bytes_at, position, end_position=self._size, config=self._config)
        header = self._header_at(position)
        if fault is not None or header is None:
            return "no whole batch" if fault is None else reason_of(fault)
        try:
            header.check_place(least_offset=self._least_offset, next_base_offset=self._records.next_base_offset)
        except CorruptionError as error:
            return error.reason
        return _jump_of(header)

    def _header_at(self, position: int) -> BatchHeader | None:
        """Return the header at a position, None if it cannot be right."""
        try:
            return read_header(
                self._bytes_at(position, size=RECORD_BATCH_OVERHEAD),
                position=position,
                max_batch_bytes=self._config.max_batch_bytes,
                end_position=self._size,
            )
        except (CorruptRecordError, UnsupportedMagicError):
            return None

    def _check_content(self, header: BatchHeader, *, least_offset: int) -> _Content:
        if not self._is_deep:
            return _Content(header.record_count or 0, None)
        try:
            records = iterate_records(
                self._bytes_at(header.position, size=header.size_in_bytes),
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

    def _is_zeros_from(self, position: int) -> bool:
        with self._records.lend() as file:
            return holds_only_zeros(file.around_damage(), position=position, end_position=self._size)

    def _batch_damage(self, header: BatchHeader, reason: str) -> Damage:
        return self._damage(header.position, size_in_bytes=header.size_in_bytes, reason=reason)

    def _damage(self, position: int, *, size_in_bytes: int, reason: str) -> Damage:
        with self._records.lend() as file:
            reason = file.why_missing(position, end_position=position + size_in_bytes) or reason
        return Damage(self._records.path, position, size_in_bytes, reason)


def _jump_of(header: BatchHeader | None) -> str:
    found = "" if header is None else f": found {header.base_offset}, which later batches contradict"
    return f"offsets jump ahead{found}"


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
        self._entry = self._index.entry(0) if self._index.entry_count else None
        self._last_position = -1
        self._last_good_offset = file.base_offset - 1
        self._waiting: tuple[int, OffsetPosition] | None = None
        self._last_offset = file.base_offset - 1

    def step(self, step: Step) -> Iterator[Damage]:
        """Process the next step of the walk."""
        while (entry := self._entry) is not None:
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
            self._entry = self._index.entry(self._slot) if self._slot < self._index.entry_count else None
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
        self._next = self._entry(0) if self._entry_count else None
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
        while (entry := self._next) is not None:
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
            self._next = self._entry(self._slot) if self._slot < self._entry_count else None

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
