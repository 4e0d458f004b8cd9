"""Scanning: scan_columns and scan_around_damage decode the records of one range into columns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

from kstore._core import (
    BATCH_ROW_FIELDS,
    RECORD_BATCH_OVERHEAD,
    BatchHeader,
    ColumnBuffer,
    ColumnDecoder,
    Columns,
    read_header,
)
from kstore.compression import decompress
from kstore.config import LogConfig
from kstore.env import Closing, Env, Identity, ReadFile, check_in_place, open_listed
from kstore.errors import CorruptionError, CorruptRecordError, KStoreError, LogReplacedError, UnsupportedError
from kstore.log.damage import SkippedRange
from kstore.log.damaged.sound import (
    DamagedPart,
    FileRange,
    SoundRun,
    fault_at_end,
    read_offset_index,
    skipped_batch,
    sound_parts,
)
from kstore.log.files.indexes import OffsetIndex
from kstore.log.files.names import deleted_paths
from kstore.log.files.records import (
    BatchPlace,
    LastBatch,
    check_batch,
    entry_size,
    holds_only_zeros,
    truncated_since_listed,
)
from kstore.log.plan import ScanRange
from kstore.log.segment.replaced import ListedFile, change_that_caused
from kstore.types import MAX_OFFSET

_ROW_COUNT_FIELD, _POSITION_FIELD = (BATCH_ROW_FIELDS.index(name) for name in ("row_count", "position"))

# How many bytes of columns a reader that goes on after damage holds back: a wrong base offset, which no CRC covers,
# shows up only at a batch after it.
HELD_BYTES = 1024 * 1024

Mode: TypeAlias = Literal["copy", "view", "string"]


@dataclass(frozen=True, kw_only=True)
class ColumnSelection:
    """Which columns to decode, and how: key and value are None, "copy", "view" or "string"."""

    key: Mode | None = None
    value: Mode | None = None
    offset: bool = False
    timestamp: bool = False
    headers: bool = False
    verify_crc: bool = True


def scan_columns(
    scan_range: ScanRange,
    selection: ColumnSelection,
    *,
    batch_bytes: int,
    config: LogConfig,
    env: Env | None = None,
    last: LastBatch | None = None,
) -> Iterator[Rows]:
    """Decode the records of one range, without control records, into Columns of about batch_bytes.

    An error for damage is raised after the rows of the batches before it.
    Args: env: reads the files; None for that of the range; last: the last batch read before the range, which must be
        of the same history; updated while the range is read.
    Raises: CorruptRecordError, InvalidRecordError, DecompressionError, Unsupported...Error, StorageError;
        LogReplacedError if a file is no longer the one that was planned.
    Cost: one pass; preads of config.read_chunk_bytes into a reused buffer; memory of one chunk, one Columns and one
        decompressed batch.
    """
    env = scan_range.env if env is None else env
    decoder = _decoder_of(scan_range, selection, batch_bytes=batch_bytes, config=config)
    keeps_chunks = "view" in (selection.key, selection.value)
    identities = dict(scan_range.identities)
    last = LastBatch() if last is None else last
    standing = _Standing(scan_range.last_batch, env)
    for piece in scan_range.files:
        identity = identities.get(piece.path)
        fault: KStoreError | None = None
        last.start(piece.path, identity)
        _start(decoder, piece)
        try:
            with closing(_opened(piece.path, identity, env, is_live=scan_range.is_live)) as file, standing:
                file.will_read(position=piece.start_position, end_position=piece.end_position)
                reader = _ChunkReader(file, last, standing, end_position=piece.end_position, config=config)
                while (status := decoder.run()) != "done":
                    if status == "full":
                        yield _all_rows(decoder.take())
                    else:
                        decoder.feed(reader.read(decoder, fresh=keeps_chunks), decoder.position)
                reader.finish(decoder)
                if decoder.position < piece.end_position:
                    _check_end(file, piece, env, position=decoder.position, config=config)
        except (CorruptionError, UnsupportedError) as error:
            listed = None if identity is None else _listed(piece, identity)
            change = change_that_caused(error, listed, config=config, env=env)
            if change is not None:
                raise change from error
            fault = error
        if fault is not None:
            yield from _rows_before_fault(decoder)
            raise fault
    if decoder.row_count:
        yield _all_rows(decoder.take())


def _decoder_of(
    scan_range: ScanRange,
    selection: ColumnSelection,
    *,
    batch_bytes: int,
    config: LogConfig,
    allows_low_last_offset: bool = False,
) -> ColumnDecoder:
    return column_decoder(
        selection,
        batch_bytes=batch_bytes,
        config=config,
        start_offset=scan_range.start_offset,
        end_offset=scan_range.end_offset,
        allows_low_last_offset=allows_low_last_offset,
        aborted=scan_range.aborted,
    )


def column_decoder(
    selection: ColumnSelection,
    *,
    batch_bytes: int,
    config: LogConfig,
    start_offset: int,
    end_offset: int = MAX_OFFSET,
    allows_low_last_offset: bool = False,
    aborted: Sequence[tuple[int, int, int]] = (),
) -> ColumnDecoder:
    """Return a decoder of these columns."""
    return ColumnDecoder(
        key=selection.key,
        value=selection.value,
        offset=selection.offset,
        timestamp=selection.timestamp,
        headers=selection.headers,
        verify_crc=selection.verify_crc,
        batch_bytes=batch_bytes,
        max_batch_bytes=config.max_batch_bytes,
        max_decompressed_bytes=config.max_decompressed_bytes,
        decompress=decompress,
        start_offset=start_offset,
        end_offset=end_offset,
        allows_low_last_offset=allows_low_last_offset,
        aborted=aborted,
    )


class Rows(NamedTuple):
    """The rows [start, end) of decoded columns."""

    columns: Columns
    start: int
    end: int


def _all_rows(columns: Columns) -> Rows:
    return Rows(columns, 0, columns.row_count)


def _rows_before_fault(decoder: ColumnDecoder) -> Iterator[Rows]:
    """Yield what a decoder holds of the batches before the one that it could not decode."""
    if decoder.row_count:
        columns = decoder.take()
        end = columns.row_count - _rows_of_batch(columns, decoder.position)
        if end:
            yield Rows(columns, 0, end)


def _check_end(file: ReadFile, piece: FileRange, env: Env, *, position: int, config: LogConfig) -> None:
    """Raise the error for what a decoder took for the end of a log, if it is none."""
    fault = fault_at_end(
        file, piece._replace(start_position=position), find_index=partial(_find_index, piece, env), config=config
    )
    if fault is not None:
        raise fault


def _find_index(piece: FileRange, env: Env) -> OffsetIndex | None:
    return read_offset_index(piece.path, base_offset=piece.base_offset, env=env)


def _start(decoder: ColumnDecoder, piece: FileRange) -> None:
    decoder.start_file(
        position=piece.start_position,
        end_position=piece.end_position,
        base_offset=piece.base_offset,
        next_base_offset=piece.next_base_offset,
        path=piece.path,
        finds_end=piece.finds_end,
    )


class _Given:
    """How far the rows of a file were handed to the reader: `rows` rows of the batch at `position`, and all before it.

    position is -1 before the first row.
    """

    def __init__(self) -> None:
        self.position = -1
        self.rows = 0

    def note(self, columns: Columns) -> None:
        """Count a whole table as handed over."""
        position = memoryview(columns.batches).cast("B").cast("q")[_POSITION_FIELD - len(BATCH_ROW_FIELDS)]
        rows = _rows_of_batch(columns, position)
        self.rows = rows + (self.rows if position == self.position else 0)
        self.position = position


def scan_around_damage(
    scan_range: ScanRange,
    selection: ColumnSelection,
    *,
    batch_bytes: int,
    config: LogConfig,
    env: Env | None = None,
    last: LastBatch | None = None,
) -> Iterator[Rows | SkippedRange]:
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
    env = scan_range.env if env is None else env
    yield from scan_range.skipped
    new_decoder = partial(
        _decoder_of, scan_range, selection, batch_bytes=batch_bytes, config=config, allows_low_last_offset=True
    )
    scan = _SoundScan(scan_range, new_decoder, config, env)
    keeps_chunks = "view" in (selection.key, selection.value)
    for piece in scan_range.files:
        yield from scan.file(piece, LastBatch() if last is None else last, keeps_chunks=keeps_chunks)


class _SoundScan:
    """A pass over one range that leaves out damage."""

    def __init__(
        self, scan_range: ScanRange, new_decoder: Callable[[], ColumnDecoder], config: LogConfig, env: Env
    ) -> None:
        self._range = scan_range
        self._new_decoder = new_decoder
        self._config = config
        self._env = env
        self._identities = dict(scan_range.identities)
        self._is_live = scan_range.is_live
        self._standing = _Standing(scan_range.last_batch, env)

    def file(self, piece: FileRange, last: LastBatch, *, keeps_chunks: bool) -> Iterator[Rows | SkippedRange]:
        identity = self._identities.get(piece.path)
        last.start(piece.path, identity)
        opened = _opened(piece.path, identity, self._env, is_live=self._is_live)
        with closing(opened) as file, self._standing:
            file.will_read(position=piece.start_position, end_position=piece.end_position)
            given = _Given()
            if (yield from self._as_it_is(piece, file, last, given, keeps_chunks=keeps_chunks)):
                return
            for part in self._parts(piece, file, given):
                if isinstance(part, DamagedPart):
                    end_offset = self._range.read_end_offset
                    yield from self._clipped(part.skipped(piece, self._range.topic_partition, end_offset=end_offset))
                else:
                    reader = _ChunkReader(
                        file, last, self._standing, end_position=part.end_position, config=self._config
                    )
                    rows = self._run(piece, part, file, reader, keeps_chunks=keeps_chunks)
                    yield from _without_first(rows, given.rows if part.position == given.position else 0)

    def _as_it_is(
        self, piece: FileRange, file: ReadFile, last: LastBatch, given: _Given, *, keeps_chunks: bool
    ) -> Generator[Rows, None, bool]:
        """Decode a part of a file and return whether it has no fault; if it has one, the rows of the batches before it
        may be yielded or not, as `given` tells.

        Held back are rows that a fault soon after them may put in doubt, and those of a batch that is not decoded to
        its end.
        """
        decoder = self._new_decoder()
        _start(decoder, piece)
        reader = _ChunkReader(file, last, self._standing, end_position=piece.end_position, config=self._config)
        held: deque[Columns] = deque()
        held_bytes = 0
        try:
            while (status := decoder.run()) != "done":
                if status == "more":
                    decoder.feed(reader.read(decoder, fresh=keeps_chunks), decoder.position)
                    continue
                held.append(decoder.take())
                held_bytes += held[-1].size_in_bytes
                while held and held_bytes - held[0].size_in_bytes >= HELD_BYTES:
                    if _rows_of_batch(held[0], decoder.position):
                        break
                    held_bytes -= held[0].size_in_bytes
                    given.note(held[0])
                    yield _all_rows(held.popleft())
            reader.finish(decoder)
        except CorruptionError as error:
            self._check_unchanged(error, piece)
            return False
        except UnsupportedError:
            yield from map(_all_rows, held)
            yield from _rows_before_fault(decoder)
            raise
        end = decoder.position
        if end < piece.end_position and not holds_only_zeros(file, position=end, end_position=piece.end_position):
            return False
        yield from map(_all_rows, held)
        if decoder.row_count:
            yield _all_rows(decoder.take())
        return True

    def _parts(self, piece: FileRange, file: ReadFile, given: _Given) -> list[SoundRun | DamagedPart]:
        """Return the sound batches of a file and the damage between them, from the batch on that `given` tells.

        Raises: CorruptRecordError if that batch, or one before it, is not sound.
        """
        parts, fault = sound_parts(
            file,
            piece,
            find_index=partial(_find_index, piece, self._env),
            config=self._config,
        )
        if fault is not None:
            self._check_unchanged(fault, piece)
        at = given.position
        if at < 0:
            return parts
        first = parts[0] if parts else None
        if isinstance(first, SoundRun) and first.position <= at < first.end_position:
            return [first._replace(position=at), *parts[1:]]
        reason = "rows were returned before later batches contradicted their offsets"
        where = f"batch at position {at} of {piece.path}"
        raise CorruptRecordError(f"{where}: {reason}", path=piece.path, position=at, reason=reason) from fault

    def _run(
        self, piece: FileRange, run: SoundRun, file: ReadFile, reader: _ChunkReader, *, keeps_chunks: bool
    ) -> Iterator[Rows | SkippedRange]:
        """Decode a run of batches with right CRCs, and leave out those whose records cannot be decoded."""
        position, least_offset = run.position, run.least_offset
        while position < run.end_position:
            decoder = self._new_decoder()
            decoder.start_file(
                position=position,
                end_position=run.end_position,
                base_offset=piece.base_offset,
                next_base_offset=piece.next_base_offset,
                path=piece.path,
            )
            # Tables that end in a batch that is not decoded to its end.
            held: list[Columns] = []
            fault: CorruptionError | None = None
            try:
                while (status := decoder.run()) != "done":
                    if status == "more":
                        decoder.feed(reader.read(decoder, fresh=keeps_chunks), decoder.position)
                        continue
                    table = decoder.take()
                    if _rows_of_batch(table, decoder.position) < table.row_count:
                        yield from map(_all_rows, held)
                        held.clear()
                    held.append(table)
                reader.finish(decoder)
            except CorruptionError as error:
                self._check_unchanged(error, piece)
                fault = error
            position = run.end_position if fault is None else decoder.position
            if decoder.row_count:
                held.append(decoder.take())
            for table in held:
                row_count = table.row_count - (0 if fault is None else _rows_of_batch(table, position))
                if row_count:
                    yield Rows(table, 0, row_count)
            if fault is not None:
                if decoder.last_position >= 0:
                    least_offset = (
                        self._header_at(decoder.last_position, file, end_position=run.end_position).last_offset + 1
                    )
                header = self._header_at(position, file, end_position=run.end_position)
                skipped = skipped_batch(
                    header, self._range.topic_partition, piece.path, least_offset=least_offset, reason=fault.reason
                )
                yield from self._clipped(skipped)
                position, least_offset = position + header.size_in_bytes, header.last_offset + 1

    def _clipped(self, skipped: SkippedRange) -> Iterator[SkippedRange]:
        clipped = self._range.clipped(skipped)
        if clipped is not None:
            yield clipped

    def _header_at(self, position: int, file: ReadFile, *, end_position: int) -> BatchHeader:
        head = file.pread(min(RECORD_BATCH_OVERHEAD, end_position - position), position=position)
        header: BatchHeader = read_header(head, position=position, path=file.path)
        return header

    def _check_unchanged(self, error: CorruptionError, piece: FileRange) -> None:
        """Raise LogReplacedError if a change of the file caused an error."""
        identity = self._identities.get(piece.path)
        listed = None if identity is None else _listed(piece, identity)
        change = change_that_caused(error, listed, config=self._config, env=self._env)
        if change is not None:
            raise change from error


def _without_first(found: Iterator[Rows | SkippedRange], row_count: int) -> Iterator[Rows | SkippedRange]:
    """Yield rows, without the first row_count of them, and what is left out between them."""
    for one in found:
        if isinstance(one, SkippedRange) or not row_count:
            yield one
            continue
        start = min(one.start + row_count, one.end)
        row_count -= start - one.start
        if start < one.end:
            yield one._replace(start=start)


def _rows_of_batch(columns: Columns, position: int) -> int:
    """Return how many of the last rows are of the batch at a position."""
    fields = memoryview(columns.batches).cast("B").cast("q")
    count = 0
    for at in range(len(fields) - len(BATCH_ROW_FIELDS), -1, -len(BATCH_ROW_FIELDS)):
        if fields[at + _POSITION_FIELD] != position:
            break
        count += fields[at + _ROW_COUNT_FIELD]
    return count


def _opened(path: str, identity: Identity | None, env: Env, *, is_live: bool = False) -> ReadFile:
    """Open a planned file. Args: is_live: or what this process has renamed it to, when it replaced it."""
    if identity is None:
        return env.open_read(path)
    try:
        return open_listed(path, identity, env)
    except LogReplacedError:
        if not is_live:
            raise
        for deleted in deleted_paths(path):
            try:
                return open_listed(deleted, identity, env)
            except LogReplacedError:
                continue
        raise


def _listed(piece: FileRange, identity: Identity) -> ListedFile:
    return ListedFile(piece.path, piece.base_offset, piece.next_base_offset, piece.end_position, identity)


class _Standing(Closing):
    """The batch that must be in its file while a range is read, None for none; opens the file at the first check."""

    def __init__(self, place: BatchPlace | None, env: Env) -> None:
        self._place = place
        self._env = env
        self._file: ReadFile | None = None

    def check(self, reading: ReadFile) -> None:
        """Raise LogReplacedError if the batch is gone from its file, as far as that bears on what was read last.

        Cost: a pread of 61 bytes, and a stat if it is in another file than the one that is being read.
        """
        place = self._place
        if place is None:
            return
        if place.identity is not None and place.path == reading.path and reading.is_listed(place.identity):
            check_batch(place, reading)
        else:
            self.check_in_place()

    def check_in_place(self) -> None:
        """Raise LogReplacedError if the batch, or its file, is gone.

        A file that is read may go together with later ones, which the listing did not find any more.
        Cost: a stat and a pread of 61 bytes.
        """
        place = self._place
        if place is None:
            return
        if self._file is None:
            self._file = _opened(place.path, place.identity, self._env)
        elif place.identity is not None:
            check_in_place(place.path, place.identity, self._env)
        check_batch(place, self._file)

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


class _ChunkReader:
    """Reads chunks of one file into a reused buffer, or into a fresh one while Arrow views reference the last."""

    def __init__(
        self, file: ReadFile, last: LastBatch, standing: _Standing, *, end_position: int, config: LogConfig
    ) -> None:
        self._file = file
        self._last = last
        self._standing = standing
        self._end_position = end_position
        self._config = config
        self._buffer: ColumnBuffer | None = None
        self._position = 0

    def read(self, decoder: ColumnDecoder, *, fresh: bool) -> memoryview:
        """Read what a decoder needs.

        Raises: LogReplacedError if the file ends early, or the batch that the decoder passed last is no longer in it:
            what follows may be of another history then.
        """
        self.note_last(decoder)
        position, needed = decoder.position, decoder.needed
        size = min(max(self._config.read_chunk_bytes, needed), self._end_position - position)
        if fresh or self._buffer is None or len(self._buffer) < size:
            self._buffer = ColumnBuffer(size)
        view = memoryview(self._buffer)[:size]
        got = self._file.pread_into(view, position=position)
        if got < min(needed, size):
            raise truncated_since_listed(self._file.path, position, expected=needed, found=got)
        self._last.check(self._file)
        self._standing.check(self._file)
        if not self._last.place.header and got >= RECORD_BATCH_OVERHEAD:
            # The first batch of the first chunk, so that a range that is read ahead can be checked against the one
            # before it.
            self._last.note(position, bytes(view[: min(entry_size(view[:12]), RECORD_BATCH_OVERHEAD)]))
        self._position = position
        return view[:got]

    def finish(self, decoder: ColumnDecoder) -> None:
        """Note the last batch of a decoder that is done.

        Raises: LogReplacedError if what was planned is no longer in place.
        """
        self.note_last(decoder)
        self._standing.check_in_place()

    def note_last(self, decoder: ColumnDecoder) -> None:
        """Store the batch that a decoder passed last, if the current chunk contains it."""
        at = decoder.last_position - self._position
        if self._buffer is not None and decoder.last_position >= 0 and at >= 0:
            header_end = min(at + RECORD_BATCH_OVERHEAD, decoder.position - self._position)
            self._last.note(decoder.last_position, bytes(memoryview(self._buffer)[at:header_end]))


def check_junction(before: LastBatch, after: LastBatch, env: Env) -> None:
    """Check that what was read up to two batches is of one history, even if it was not read in order.

    Raises: LogReplacedError if it is not, or that can no longer be determined.
    Cost: opens the file of the later batch.
    """
    earlier, later = before.place, after.place
    if later.identity is None:
        return
    # A truncation below a segment removes its file: if it is in place, what was read of earlier segments is unchanged.
    with closing(open_listed(later.path, later.identity, env)) as file:
        check_batch(later, file)
        if earlier.path == later.path:
            check_batch(earlier, file)
