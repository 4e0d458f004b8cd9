"""scan_columns: decodes the records of a planned range into columns, and raises an error for damage.

A range is read from the files that were planned, or an error says that they changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial

from kstore._core import BATCH_ROW_FIELDS, RECORD_BATCH_OVERHEAD, ColumnDecoder, Columns, DirectReads, read_header
from kstore.config import LogConfig
from kstore.env import (
    UNKNOWN_FILE,
    Closing,
    Env,
    FileIdentity,
    Identity,
    ReadFile,
    check_in_place,
    open_listed,
    positioned,
)
from kstore.errors import CorruptionError, KStoreError, LogReplacedError, UnsupportedError
from kstore.log.damaged.sound import FileRange, fault_at_end, read_offset_index
from kstore.log.files.columns import ColumnSelection, DecoderChunks, column_decoder
from kstore.log.files.names import deleted_paths
from kstore.log.files.records import BatchPlace, LastBatch, check_batch, entry_size
from kstore.log.plan import ScanRange
from kstore.log.segment.replaced import ListedFile, change_that_caused

_ROW_COUNT_FIELD, _POSITION_FIELD = (BATCH_ROW_FIELDS.index(name) for name in ("row_count", "position"))


def scan_columns(
    scan_range: ScanRange,
    selection: ColumnSelection,
    *,
    batch_bytes: int,
    config: LogConfig,
    files: ScanFiles | None = None,
    last: LastBatch | None = None,
) -> Iterator[Columns]:
    """Decode the records of one range, without control records, into Columns of about batch_bytes.

    An error for damage is raised after the rows of the batches before it.
    Args: files: opens the files; None for files of the range alone; last: the last batch read before the range, which
        must be of the same history; updated while the range is read.
    Raises: CorruptRecordError, InvalidRecordError, DecompressionError, Unsupported...Error, StorageError;
        LogReplacedError if a file is no longer the one that was planned.
    Cost: one pass; preads of config.read_chunk_bytes into a reused buffer; memory of one chunk, one Columns and one
        decompressed batch.
    """
    decoder = range_decoder(scan_range, selection, batch_bytes=batch_bytes, config=config)
    planned = PlannedFiles(scan_range, selection, config=config, files=files, last=last)
    for part in scan_range.files:
        fault: KStoreError | None = None
        part.start(decoder)
        try:
            with closing(planned.open(part)) as file:
                if part.start_position == part.end_position:
                    # For the reader of the range that begins there: see started_ranges.
                    file.content.part_at(part.start_position)
                yield from file.full_tables(decoder, end_position=part.end_position)
                if decoder.position < part.end_position:
                    _check_end(file.content, part, planned.env, position=decoder.position, config=config)
        except (CorruptionError, UnsupportedError) as error:
            planned.check_unchanged(part, error)
            fault = error
        if fault is not None:
            yield from rows_before_fault(decoder)
            raise fault
    if decoder.row_count:
        yield decoder.take()


def range_decoder(
    scan_range: ScanRange,
    selection: ColumnSelection,
    *,
    batch_bytes: int,
    config: LogConfig,
    allows_low_last_offset: bool = False,
) -> ColumnDecoder:
    """Return a decoder of the records of a range."""
    return column_decoder(
        selection,
        batch_bytes=batch_bytes,
        config=config,
        start_offset=scan_range.start_offset,
        end_offset=scan_range.end_offset,
        allows_low_last_offset=allows_low_last_offset,
        aborted=scan_range.aborted,
    )


def rows_before_fault(decoder: ColumnDecoder) -> Iterator[Columns]:
    """Yield what a decoder holds of the batches before the one that it could not decode."""
    if decoder.row_count:
        columns = decoder.take()
        end = columns.row_count - rows_of_batch(columns, decoder.position)
        if end:
            yield columns.slice(0, end=end)


def rows_of_batch(columns: Columns, position: int) -> int:
    """Return how many of the last rows are of the batch at a position."""
    fields = memoryview(columns.batches).cast("B").cast("q")
    count = 0
    for at in range(len(fields) - len(BATCH_ROW_FIELDS), -1, -len(BATCH_ROW_FIELDS)):
        if fields[at + _POSITION_FIELD] != position:
            break
        count += fields[at + _ROW_COUNT_FIELD]
    return count


def position_of_last_row(columns: Columns) -> int:
    """Return the position of the batch that the last row of a table is of."""
    return memoryview(columns.batches).cast("B").cast("q")[_POSITION_FIELD - len(BATCH_ROW_FIELDS)]


def _check_end(content: ReadFile, part: FileRange, env: Env, *, position: int, config: LogConfig) -> None:
    """Raise the error for what a decoder took for the end of a log, if it is none: that of a reader which knows the
    end where the header is wrong.
    """
    find_index = partial(read_offset_index, part.path, base_offset=part.base_offset, env=env)
    fault = fault_at_end(content, part._replace(start_position=position), find_index=find_index, config=config)
    if fault is None:
        return
    header = content.pread(RECORD_BATCH_OVERHEAD, position=position)
    if any(header):
        limits = {"max_batch_bytes": config.max_batch_bytes, "end_position": part.end_position}
        read_header(header, position=position, path=part.path, **limits)
    raise fault


class ScanFiles(Closing):
    """The open files of a scan, each of them read by one range at a time.

    What is given back is kept for the ranges that follow, unless an open file keeps what it reads ahead, or nothing
    tells whether a name still means it.
    Args: most_idle: how many are kept.
    Threads: any, none of which waits for another: at interpreter exit one may stop anywhere.
    """

    def __init__(self, env: Env, *, most_idle: int) -> None:
        self.env = env
        self._most_idle = 0 if env.is_high_latency else most_idle
        self._idle: deque[tuple[Identity, ReadFile]] = deque()

    def take(self, path: str, identity: Identity | None, *, is_live: bool = False) -> ReadFile:
        """Return a planned file, for use until give_back.

        Args: is_live: or what this process has renamed it to, when it replaced it.
        Raises: StorageError; LogReplacedError if another file has its name, and the planned one is not open.
        """
        if identity is None:
            return self.env.open_read(path)
        for _ in range(len(self._idle)):
            try:
                listed, file = self._idle.popleft()
            except IndexError:
                break
            if listed == identity and file.path == path:
                return file
            self._idle.append((listed, file))
        try:
            return open_listed(path, identity, self.env)
        except LogReplacedError:
            renamed = _renamed(path, identity, self.env) if is_live else None
            if renamed is None:
                raise
            return renamed

    def give_back(self, file: ReadFile, identity: Identity | None) -> None:
        """Return a file from take; exactly once."""
        if identity is None or not self._most_idle:
            file.close()
            return
        self._idle.append((identity, file))
        self.close(all_but=self._most_idle)

    def close(self, *, all_but: int = 0) -> None:
        """Close the files that are not in use, except the newest."""
        while len(self._idle) > all_but:
            with suppress(IndexError):
                self._idle.popleft()[1].close()


def _renamed(path: str, identity: Identity, env: Env) -> ReadFile | None:
    """Return the file that was at a path, by the names that this process gives what it replaces; None without it."""
    for deleted in deleted_paths(path):
        with suppress(LogReplacedError):
            return open_listed(deleted, identity, env)
    return None


class PlannedFiles:
    """The files of a range, opened one after the other, and what shows that they are still those of the plan.

    Args: files, last: as of scan_columns.
    """

    def __init__(
        self,
        scan_range: ScanRange,
        selection: ColumnSelection,
        *,
        config: LogConfig,
        files: ScanFiles | None,
        last: LastBatch | None,
    ) -> None:
        self._files = ScanFiles(scan_range.env, most_idle=0) if files is None else files
        self.env = self._files.env
        self._config = config
        self._keeps_chunks = "view" in (selection.key, selection.value)
        self._identities = dict(scan_range.identities)
        self._is_live = scan_range.is_live
        self._last = LastBatch() if last is None else last
        self._anchor = None if scan_range.last_batch is None else Anchor(scan_range.last_batch, self._files)

    def open(self, part: FileRange) -> PlannedFile:
        """Open the file of a part of the range.

        Raises: StorageError; LogReplacedError if another file has its name.
        """
        identity = self._identities.get(part.path)
        self._last.start(part.path, identity)
        content = self._files.take(part.path, identity, is_live=self._is_live)
        content.will_read(position=part.start_position, end_position=part.end_position)
        chunk_bytes = self._config.read_chunk_bytes
        chunks = DecoderChunks(content, chunk_bytes=chunk_bytes, keeps_chunks=self._keeps_chunks)
        give_back = partial(self._files.give_back, content, identity)
        return PlannedFile(content, chunks, DirectReads(chunk_bytes=chunk_bytes), self._last, self._anchor, give_back)

    def check_unchanged(self, part: FileRange, error: KStoreError) -> None:
        """Raise LogReplacedError if a change of a file caused an error.  Cost: see change_that_caused."""
        identity = self._identities.get(part.path)
        listed = (
            None
            if identity is None
            else ListedFile(part.path, part.base_offset, part.next_base_offset, part.end_position, identity)
        )
        change = change_that_caused(error, listed, config=self._config, env=self.env)
        if change is not None:
            raise change from error


class PlannedFile:
    """An open file of a range. Each chunk is checked to be of the history that was planned and read before.

    Args: give_back: what closing it calls.
    Attributes: content: the open file.
    """

    def __init__(
        self,
        content: ReadFile,
        chunks: DecoderChunks,
        reads: DirectReads,
        last: LastBatch,
        anchor: Anchor | None,
        give_back: Callable[[], None],
    ) -> None:
        self.content = content
        self._give_back = give_back
        self._chunks = chunks
        self._reads = reads
        self._last = last
        self._anchor = anchor

    def full_tables(self, decoder: ColumnDecoder, *, end_position: int) -> Iterator[Columns]:
        """Run a decoder that was started up to end_position, and yield the columns each time they are full.

        Raises: as ColumnDecoder.run; LogReplacedError if the file ends early or was rewritten.
        """
        self._read_directly()
        read_chunk = partial(self._checked_chunk, end_position=end_position)
        tables = decoder.full_tables(read_chunk, self._reads)
        for columns in tables:
            # So that a range that is read ahead can be checked against the one before it.
            if not self._last.place.header:
                self._note_last(decoder)
            yield columns
            if self._last.place.header:
                break
        yield from tables
        self._note_last(decoder)
        if self._anchor is not None and not self._reads.is_anchor_in_place():
            self._anchor.check_in_place(self.content)

    def close(self) -> None:
        try:
            if self._anchor is not None:
                self._anchor.close()
        finally:
            self._give_back()

    def _checked_chunk(self, decoder: ColumnDecoder, *, end_position: int) -> memoryview:
        """Read what a decoder needs.

        Raises: LogReplacedError if the file ends early, or the batch that the decoder passed last is no longer in it:
            what follows may be of another history then.
        """
        if decoder.last_position >= 0:
            self._note_last(decoder)
        position = decoder.position
        chunk = self._chunks.read(decoder, end_position=end_position)
        if self._anchor is not None:
            self._anchor.check(self.content)
        if self._last.place.header:
            check_batch(self._last.place, self.content)
        elif len(chunk) >= RECORD_BATCH_OVERHEAD:
            # The first batch of the first chunk, as DirectReads notes it.
            self._last.note(position, bytes(chunk[: min(entry_size(chunk[:12]), RECORD_BATCH_OVERHEAD)]))
        return chunk

    def _read_directly(self) -> None:
        """Let the core read the chunks, if it can check what is checked here."""
        file, place = positioned(self.content), self._last.place
        if file is not None and (self._anchor is None or self._anchor.hold(self._reads, file)):
            self._reads.begin(file, (place.position, place.header) if place.header else None)

    def _note_last(self, decoder: ColumnDecoder) -> None:
        """Note the batch that a decoder passed last."""
        decoder.note_last(self._reads)
        if self._reads.last is not None:
            self._last.note(*self._reads.last)


class Anchor(Closing):
    """The batch that must be in its file while a range is read; opens the file at the first check."""

    def __init__(self, place: BatchPlace, files: ScanFiles) -> None:
        self._place = place
        self._files = files
        self._opened: ReadFile | None = None

    def check(self, reading: ReadFile) -> None:
        """Raise LogReplacedError if the batch is gone from its file, as far as that bears on what was read last.

        Cost: a pread of 61 bytes, and a stat if it is in another file than the one that is being read.
        """
        if self._is_in(reading):
            check_batch(self._place, reading)
        else:
            self.check_in_place(reading)

    def hold(self, reads: DirectReads, reading: ReadFile) -> bool:
        """Let direct reads of a file make this check after each, and return whether they can."""
        place, file = self._place, None
        if not self._is_in(reading):
            file = positioned(self._file())
            if file is None or place.identity == UNKNOWN_FILE:
                return False
        known = place.identity if isinstance(place.identity, FileIdentity) and place.identity != UNKNOWN_FILE else None
        path = None if known is None else place.path
        reads.hold_to(place.position, place.header, file=file, path=path, identity=known)
        return True

    def check_in_place(self, reading: ReadFile) -> None:
        """Raise LogReplacedError if the batch, or its file, is gone after a file was read.

        A file that is read may go together with later ones, which the listing did not find any more.
        Cost: a stat and a pread of 61 bytes.
        """
        place = self._place
        if place.identity is not None:
            check_in_place(place.path, place.identity, self._files.env)
        check_batch(place, reading if self._is_in(reading) else self._file())

    def _is_in(self, reading: ReadFile) -> bool:
        place = self._place
        return place.identity is not None and place.path == reading.path and reading.is_listed(place.identity)

    def _file(self) -> ReadFile:
        """Return the file that the batch is in."""
        if self._opened is None:
            self._opened = self._files.take(self._place.path, self._place.identity)
        return self._opened

    def close(self) -> None:
        file, self._opened = self._opened, None
        if file is not None:
            self._files.give_back(file, self._place.identity)


def check_junction(before: LastBatch, after: LastBatch, files: ScanFiles) -> None:
    """Check that what was read up to two batches is of one history, even if it was not read in order.

    Raises: LogReplacedError if it is not, or that can no longer be determined.
    Cost: a pread of 61 bytes for one or both; a stat if they are in two files.
    """
    earlier, later = before.place, after.place
    if later.identity is None:
        return
    is_one_file = earlier.path == later.path and earlier.identity == later.identity
    if not is_one_file:
        # A truncation below a segment removes its file: if it is in place, what was read of earlier segments is
        # unchanged.
        check_in_place(later.path, later.identity, files.env)
    file = files.take(later.path, later.identity)
    try:
        check_batch(later, file)
        if is_one_file:
            check_batch(earlier, file)
    finally:
        files.give_back(file, later.identity)
