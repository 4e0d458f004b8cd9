"""scan_around_damage: decodes the records of a planned range into columns, and leaves out what is damaged."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial

from kstore._core import RECORD_BATCH_OVERHEAD, BatchHeader, ColumnDecoder, Columns, read_header
from kstore.config import LogConfig
from kstore.errors import CorruptionError, CorruptRecordError, UnsupportedError
from kstore.log.damage import SkippedRange
from kstore.log.damaged.sound import DamagedPart, FileRange, SoundRun, read_offset_index, skipped_batch, sound_parts
from kstore.log.files.columns import ColumnSelection
from kstore.log.files.records import LastBatch, holds_only_zeros
from kstore.log.plan import ScanRange
from kstore.log.scan import (
    PlannedFile,
    PlannedFiles,
    ScanFiles,
    position_of_last_row,
    range_decoder,
    rows_before_fault,
    rows_of_batch,
)

# How many bytes of columns are held back until the batches after them are read: a wrong base offset, which no CRC
# covers, shows up only at a later batch.
HELD_BYTES = 1024 * 1024


def scan_around_damage(
    scan_range: ScanRange,
    selection: ColumnSelection,
    *,
    batch_bytes: int,
    config: LogConfig,
    files: ScanFiles | None = None,
    last: LastBatch | None = None,
) -> Iterator[Columns | SkippedRange]:
    """Decode the records of one range as scan_columns does, and leave out what is damaged; see damaged/sound.py.

    Yields what is left out between the rows before and after it. A batch whose records cannot be decoded into these
    columns gives no row. A file is decoded as by scan_columns until a fault shows up; only then sound_parts tells what
    is read of it.
    Raises: UnsupportedCompressionTypeError, MemoryLimitError, StorageError; LogReplacedError if a file is no longer the
        one that was planned; CorruptRecordError if more than HELD_BYTES of rows have offsets that contradict the
        batches after them.
    Cost: as scan_columns, and for a file with a fault one more pass that checks frames and CRCs. Memory for
        HELD_BYTES more columns, and for those of a batch until the whole batch is decoded.
    """
    yield from scan_range.skipped
    new_decoder = partial(
        range_decoder, scan_range, selection, batch_bytes=batch_bytes, config=config, allows_low_last_offset=True
    )
    planned = PlannedFiles(scan_range, selection, config=config, files=files, last=last)
    for part in scan_range.files:
        with closing(planned.open(part)) as file:
            yield from _SoundScan(scan_range, part, planned, file, new_decoder, config).items()


class _Yielded:
    """Which rows of a file were yielded: `rows` rows of the batch at `position`, and all before it.

    position is -1 before the first row.
    """

    def __init__(self) -> None:
        self.position = -1
        self.rows = 0

    def note(self, columns: Columns) -> None:
        """Count all rows of a table."""
        position = position_of_last_row(columns)
        rows = rows_of_batch(columns, position)
        self.rows = rows + (self.rows if position == self.position else 0)
        self.position = position


class _SoundScan:
    """A pass over the part of a range that is in one file, which leaves out damage."""

    def __init__(
        self,
        scan_range: ScanRange,
        part: FileRange,
        files: PlannedFiles,
        file: PlannedFile,
        new_decoder: Callable[[], ColumnDecoder],
        config: LogConfig,
    ) -> None:
        self._range = scan_range
        self._part = part
        self._files = files
        self._file = file
        self._new_decoder = new_decoder
        self._config = config
        self._yielded = _Yielded()

    def items(self) -> Iterator[Columns | SkippedRange]:
        """Yield the rows, and what is left out between them."""
        if (yield from self._decode_optimistically()):
            return
        for sound_or_damaged in self._sound_parts():
            if isinstance(sound_or_damaged, DamagedPart):
                end_offset = self._range.read_end_offset
                yield from self._clipped(
                    sound_or_damaged.skipped(self._part, self._range.topic_partition, end_offset=end_offset)
                )
            else:
                is_continued = sound_or_damaged.position == self._yielded.position
                items = self._decode_run(sound_or_damaged)
                yield from _without_first(items, self._yielded.rows if is_continued else 0)

    def _decode_optimistically(self) -> Generator[Columns, None, bool]:
        """Decode the part as if it had no fault, and return whether that is so.

        If it has one, rows of the batches before it may have been yielded, which _yielded counts. Held back are rows
        that a fault soon after them may put in doubt, and those of a batch that is not decoded to its end.
        """
        part, decoder = self._part, self._new_decoder()
        part.start(decoder)
        held: deque[Columns] = deque()
        held_bytes = 0
        try:
            for table in self._file.full_tables(decoder, end_position=part.end_position):
                held.append(table)
                held_bytes += table.size_in_bytes
                while held and held_bytes - held[0].size_in_bytes >= HELD_BYTES:
                    if rows_of_batch(held[0], decoder.position):
                        break
                    held_bytes -= held[0].size_in_bytes
                    self._yielded.note(held[0])
                    yield held.popleft()
        except CorruptionError as error:
            self._files.check_unchanged(part, error)
            return False
        except UnsupportedError:
            yield from held
            yield from rows_before_fault(decoder)
            raise
        end = decoder.position
        if end < part.end_position and not holds_only_zeros(
            self._file.content, position=end, end_position=part.end_position
        ):
            return False
        yield from held
        if decoder.row_count:
            yield decoder.take()
        return True

    def _sound_parts(self) -> list[SoundRun | DamagedPart]:
        """Return the sound batches of the part and the damage between them, from the last batch on that rows were
        yielded of.

        Raises: CorruptRecordError if that batch, or one before it, is not sound.
        """
        part = self._part
        find_index = partial(read_offset_index, part.path, base_offset=part.base_offset, env=self._files.env)
        parts, fault = sound_parts(self._file.content, part, find_index=find_index, config=self._config)
        if fault is not None:
            self._files.check_unchanged(part, fault)
        position = self._yielded.position
        if position < 0:
            return parts
        first = parts[0] if parts else None
        if isinstance(first, SoundRun) and first.position <= position < first.end_position:
            return [first._replace(position=position), *parts[1:]]
        reason = "rows were returned before later batches contradicted their offsets"
        where = f"batch at position {position} of {part.path}"
        raise CorruptRecordError(f"{where}: {reason}", path=part.path, position=position, reason=reason) from fault

    def _decode_run(self, run: SoundRun) -> Iterator[Columns | SkippedRange]:
        """Decode a run of batches with right CRCs, and leave out those whose records cannot be decoded."""
        position, least_offset, end = run.position, run.least_offset, run.end_position
        while position < end:
            decoder = self._new_decoder()
            self._part._replace(start_position=position, end_position=end, finds_end=False).start(decoder)
            fault = yield from self._decode_to_fault(decoder, end_position=end)
            if fault is None:
                return
            if decoder.last_position >= 0:
                least_offset = self._header_at(decoder.last_position, end_position=end).last_offset + 1
            header = self._header_at(decoder.position, end_position=end)
            skipped = skipped_batch(
                header, self._range.topic_partition, self._part.path, least_offset=least_offset, reason=fault.reason
            )
            yield from self._clipped(skipped)
            position, least_offset = header.position + header.size_in_bytes, header.last_offset + 1

    def _decode_to_fault(
        self, decoder: ColumnDecoder, *, end_position: int
    ) -> Generator[Columns, None, CorruptionError | None]:
        """Yield the rows before the first batch that cannot be decoded, and return its error, None if there is none."""
        # Tables that end in a batch that is not decoded to its end.
        held: list[Columns] = []
        fault: CorruptionError | None = None
        try:
            for table in self._file.full_tables(decoder, end_position=end_position):
                if rows_of_batch(table, decoder.position) < table.row_count:
                    yield from held
                    held.clear()
                held.append(table)
        except CorruptionError as error:
            self._files.check_unchanged(self._part, error)
            fault = error
        if decoder.row_count:
            held.append(decoder.take())
        for table in held:
            row_count = table.row_count - (0 if fault is None else rows_of_batch(table, decoder.position))
            if row_count:
                yield table.slice(0, end=row_count)
        return fault

    def _clipped(self, skipped: SkippedRange) -> Iterator[SkippedRange]:
        clipped = self._range.clipped(skipped)
        if clipped is not None:
            yield clipped

    def _header_at(self, position: int, *, end_position: int) -> BatchHeader:
        content = self._file.content
        head = content.pread(min(RECORD_BATCH_OVERHEAD, end_position - position), position=position)
        header: BatchHeader = read_header(head, position=position, path=content.path)
        return header


def _without_first(items: Iterator[Columns | SkippedRange], row_count: int) -> Iterator[Columns | SkippedRange]:
    """Yield rows, without the first row_count of them, and what is left out between them."""
    for item in items:
        if isinstance(item, SkippedRange) or not row_count:
            yield item
            continue
        start = min(item.start + row_count, item.end)
        row_count -= start - item.start
        if start < item.end:
            yield item.slice(start, end=item.end)
