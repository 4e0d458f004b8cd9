"""Verbatim export: the batches of a part, byte for byte, as a segment with its indexes.

One pass copies and checks: RecoveryWalk, fed from the source, checks frames, order of offsets and CRCs and makes the
index entries that a broker's recovery would make, while each chunk is written to the copy.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

from kstore._core import (
    RECORD_BATCH_OVERHEAD,
    BatchHeader,
    OffsetIndexEntries,
    RecoveryWalk,
    TimeIndexEntries,
    crc32c,
    read_header,
)
from kstore.archive.columns import changed_file
from kstore.archive.files import OutputFile
from kstore.archive.manifest import ExportedFile, OpenTransaction
from kstore.archive.options import ExportOptions
from kstore.archive.parts import Part, PartResult, StagedFile, Work, described
from kstore.archive.target import Place
from kstore.config import MIB, LogConfig
from kstore.env import Env, Identity, ReadFile, join_path, open_listed
from kstore.errors import (
    CorruptionError,
    CorruptRecordError,
    KStoreError,
    LogReplacedError,
    OffsetOutOfRangeError,
    UnsupportedError,
)
from kstore.log.cleaning.cleaner import without_records_below
from kstore.log.damaged.sound import FileRange
from kstore.log.files.names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    base_offset_file_name,
)
from kstore.log.files.records import check_batch, first_offset_in
from kstore.log.log import Log
from kstore.log.plan import ScanRange
from kstore.log.recovery.walk import walk_headers
from kstore.log.segment.replaced import ListedFile, change_that_caused
from kstore.record.batches import RecordBatch
from kstore.store.opening import open_log
from kstore.types import MAGIC_V2, NO_PRODUCER_ID

_WRITE_BACK_BYTES = 8 * MIB


class Piece(NamedTuple):
    """The bytes [position, end_position) of a file. identity: of the file, None for any; base_offset, next_base_offset:
    of the segment; content: the bytes to copy in their place, None to copy those of the file.
    """

    path: str
    identity: Identity | None
    position: int
    end_position: int
    base_offset: int = 0
    next_base_offset: int | None = None
    content: bytes | None = None

    @property
    def size_in_bytes(self) -> int:
        """The size of what is copied."""
        return self.end_position - self.position if self.content is None else len(self.content)

    def opened(self, env: Env) -> ReadFile:
        """Open the file.  Raises: LogReplacedError if it is not the planned one; StorageError."""
        return env.open_read(self.path) if self.identity is None else open_listed(self.path, self.identity, env)

    def change_that_caused(self, error: KStoreError, *, config: LogConfig, env: Env) -> LogReplacedError | None:
        """Return the change of the file since the plan that caused an error, None if the error means what it says."""
        listed = None
        if self.identity is not None:
            segment = (self.base_offset, self.next_base_offset, self.end_position)
            listed = ListedFile(self.path, *segment, self.identity)
        return change_that_caused(error, listed, config=config, env=env)


def export_batches(
    work: Work,
    options: ExportOptions,
    place: Place,
    *,
    config: LogConfig,
    env: Env | None,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> PartResult:
    """Copy the batches of a part, or segments that are joined, to a new segment in the staging directory.

    Args: env: of the source, None for that of the ranges; on_bytes: called with the size of each chunk.
    Raises: CorruptRecordError, UnsupportedMagicError for damage; LogReplacedError if a file changed since it was looked
        up; CorruptManifestError for a file of the target that changed; StorageError.
    Cost: one pass; memory for one chunk of 1 MiB, and the entries of the indexes.
    """
    part = work.part
    damage: list[dict[str, Any]] = []
    read_env = place.env if work.files else env or (work.ranges[0].env if work.ranges else place.env)
    pieces = _pieces_of(work, options, place, damage, config=config, env=read_env)
    base_offset = part.base_offset if part.base_offset >= 0 else _base_offset(part, pieces, config, read_env)
    with _Copy(pieces, base_offset, place, config=config, env=read_env) as copy:
        copied = copy.run(on_bytes, markers=part.markers)
        for scan in work.ranges:
            check_anchor(scan, read_env)
    for file, crc in zip(work.files, copy.piece_crcs, strict=False):
        if crc != file.crc32c:
            raise changed_file(join_path(place.target, file.path), file, (file.size_in_bytes, crc))
    name = join_path(str(part.topic_partition), base_offset_file_name(base_offset, suffix=""))
    next_offset = max(copied.next_offset, base_offset)
    entry = ExportedFile(
        name + LOG_SUFFIX,
        *part.topic_partition,
        base_offset,
        next_offset - 1,
        copied.record_count,
        copied.size_in_bytes,
        copied.crc32c,
        None,
        None if copied.max_timestamp_ms < 0 else copied.max_timestamp_ms,
        None if part.source_base_offset < 0 else part.source_base_offset,
    )
    staged = StagedFile(
        entry,
        copy.name + LOG_SUFFIX,
        tuple((name + suffix, copy.name + suffix) for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)),
    )
    return PartResult(
        part.number,
        (staged,),
        work.missing,
        tuple(damage),
        next_offset,
        tuple(copied.epochs),
        copied.has_producers,
        copied.has_transactions,
        copied.lost_markers,
    )


def check_anchor(scan: ScanRange, env: Env) -> None:
    """Raise LogReplacedError unless the last batch that the plan saw is still in its file: if it is, everything read
    since the plan is of one history of the log.
    """
    last = scan.last_batch
    if last is None:
        return
    with env.open_read(last.path) if last.identity is None else open_listed(last.path, last.identity, env) as file:
        check_batch(last, file)


def _base_offset(part: Part, pieces: list[Piece], config: LogConfig, env: Env) -> int:
    """Return the first offset of the first batch, or where the part starts if that is in a gap before it."""
    if not pieces:
        return part.start_offset
    header, data = _first_batch(pieces[0], config, env)
    return min(_first_offset(header, data, path=pieces[0].path, config=config), part.start_offset)


def _first_offset(header: BatchHeader, data: bytes, *, path: str, config: LogConfig) -> int:
    return header.base_offset if header.has_base_offset else first_offset_in(data, header, path=path, config=config)


def _first_batch(piece: Piece, config: LogConfig, env: Env) -> tuple[BatchHeader, bytes]:
    """Return the header and the bytes of the first batch of a piece.

    Raises: CorruptRecordError, UnsupportedMagicError; LogReplacedError if the file changed; StorageError.
    """
    if piece.content is not None:
        return read_header(piece.content, position=0, path=piece.path), piece.content
    try:
        with piece.opened(env) as file:
            size = min(RECORD_BATCH_OVERHEAD, piece.end_position - piece.position)
            head = file.pread(size, position=piece.position)
            header: BatchHeader = read_header(
                head, position=piece.position, max_batch_bytes=config.max_batch_bytes, path=piece.path
            )
            return header, file.pread(header.size_in_bytes, position=piece.position)
    except (CorruptionError, UnsupportedError) as error:
        change = piece.change_that_caused(error, config=config, env=env)
        raise error if change is None else change from error


def _without_records_below(offset: int, pieces: list[Piece], *, config: LogConfig, env: Env) -> list[Piece]:
    """Return the pieces without the records below an offset, which the source has deleted: the first batch is replaced
    by what a cleaner would leave of it.
    """
    piece = pieces[0]
    header, data = _first_batch(piece, config, env) if offset > 0 else (None, b"")
    if header is None or offset > header.last_offset:
        return pieces
    first = _first_offset(header, data, path=piece.path, config=config)
    if first >= offset:
        return pieces
    content = without_records_below(offset, data, header, path=piece.path, config=config, now_ms=env.wall_clock_ms())
    rest = piece._replace(position=piece.position + header.size_in_bytes)
    return [piece._replace(content=content), *([rest] if rest.size_in_bytes else []), *pieces[1:]]


def _piece_of(scan: ScanRange, file: FileRange, *, position: int, end_position: int) -> Piece:
    identity = dict(scan.identities).get(file.path)
    return Piece(file.path, identity, position, end_position, file.base_offset, file.next_base_offset)


def _pieces_of(
    work: Work, options: ExportOptions, place: Place, damage: list[dict[str, Any]], *, config: LogConfig, env: Env
) -> list[Piece]:
    """Return the pieces that a part copies; append to `damage` what it leaves out."""
    if work.files:
        return [Piece(join_path(place.target, file.path), None, 0, file.size_in_bytes) for file in work.files]
    if options.on_error == "skip" and work.ranges:
        pieces = _sound_pieces(work, damage, config=config, env=env)
    else:
        pieces = [
            _piece_of(scan, file, position=file.start_position, end_position=file.end_position)
            for scan in work.ranges
            for file in scan.files
        ]
    return _without_records_below(work.cut_offset, pieces, config=config, env=env) if pieces else pieces


def _sound_pieces(work: Work, damage: list[dict[str, Any]], *, config: LogConfig, env: Env) -> list[Piece]:
    """Return the runs of sound batches with offsets of a part.  Cost: decodes the records of each batch."""
    part = work.part
    pieces: list[Piece] = []
    planned = {file.path: (scan, file) for scan in work.ranges for file in scan.files}
    with open_log(work.directory, config=config, env=env) as log:
        for batch in _batches_of(log, part, damage, first_path=next(iter(planned), work.directory)):
            end = batch.position + batch.size_in_bytes
            path = str(batch.path)
            if path not in planned:
                raise LogReplacedError(f"{path} was made since the log was looked up: export again", path=path)
            if pieces and pieces[-1].path == path and pieces[-1].end_position == batch.position:
                pieces[-1] = pieces[-1]._replace(end_position=end)
            else:
                pieces.append(_piece_of(*planned[path], position=batch.position, end_position=end))
    return pieces


def _batches_of(log: Log, part: Part, damage: list[dict[str, Any]], *, first_path: str) -> Iterator[RecordBatch]:
    """Yield the sound batches of a part.

    Raises: LogReplacedError that names `first_path` if the log has lost offsets of the part, which it had when the part
        was looked up.
    """
    try:
        yield from log.batches(
            part.start_offset,
            part.end_offset,
            on_error="skip",
            on_skip=lambda skipped: damage.append(described(skipped)),
        )
    except OffsetOutOfRangeError as error:
        raise LogReplacedError(f"{error}: files were removed since the log was looked up", path=first_path) from error


class _Copied(NamedTuple):
    next_offset: int
    record_count: int
    size_in_bytes: int
    crc32c: int
    max_timestamp_ms: int
    epochs: list[tuple[int, int]]
    has_producers: bool
    has_transactions: bool
    lost_markers: tuple[OpenTransaction, ...]


class _Copy:
    """Copies pieces one after the other into a new segment; a context manager that closes all files.

    Attributes: name (of the staged files, without suffix), path (of the first piece, for messages), piece_crcs (the
    CRC-32C of each piece).
    """

    def __init__(self, pieces: list[Piece], base_offset: int, place: Place, *, config: LogConfig, env: Env) -> None:
        self.name = uuid.uuid4().hex
        self.path = pieces[0].path if pieces else ""
        self.piece_crcs: list[int] = []
        self._pieces = pieces
        self._base_offset = base_offset
        self._stem = join_path(place.staging, self.name)
        self._config = config
        self._env = env
        self._target_env = place.env
        self._stack = ExitStack()
        self._file: ReadFile | None = None
        self._at = 0
        self._piece_start = 0
        self._written = 0
        self._crc = 0
        self._crc_of_piece = 0

    def __enter__(self) -> _Copy:
        self._output = self._stack.enter_context(self._target_env.open_write(self._stem + LOG_SUFFIX))
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()
        self._stack.close()

    def run(self, on_bytes: Callable[[int], None], *, markers: tuple[OpenTransaction, ...] = ()) -> _Copied:
        """Copy everything, write the indexes, and wait until all of it is durable.

        Args: markers: that the copied batches must have.
        Raises: CorruptRecordError, UnsupportedMagicError, LogReplacedError, StorageError.
        """
        size = self._config.segment_index_bytes
        offset_entries = OffsetIndexEntries(b"", base_offset=self._base_offset, max_bytes=size)
        time_entries = TimeIndexEntries(b"", base_offset=self._base_offset, max_bytes=size)
        end = sum(piece.size_in_bytes for piece in self._pieces)
        walk = RecoveryWalk(
            end_position=end,
            base_offset=self._base_offset,
            max_batch_bytes=self._config.max_batch_bytes,
            path=self.path,
            index_interval_bytes=self._config.index_interval_bytes,
            offset_entries=offset_entries,
            time_entries=time_entries,
        )
        notes = _HeaderFacts(markers)
        started = 0
        for headers in walk_headers(self, walk, on_read=on_bytes):
            notes.take(headers)
            if self._written - started >= _WRITE_BACK_BYTES:
                self._output.start_write_back(self._written - started, position=started)
                started = self._written
        if walk.status != "end":
            raise self._error(walk)
        if walk.max_timestamp_ms > time_entries.last_entry[0]:
            time_entries.maybe_append(
                timestamp_ms=walk.max_timestamp_ms, offset=walk.offset_of_max_timestamp, skip_full_check=True
            )
        self._end_piece()
        self._output.sync()
        for suffix, entries in ((OFFSET_INDEX_SUFFIX, offset_entries), (TIME_INDEX_SUFFIX, time_entries)):
            with OutputFile(self._stem + suffix, self._target_env) as file:
                file.write(entries.content)
                file.sync()
        next_offset = self._base_offset if walk.batch_count == 0 else walk.last_offset + 1
        return _Copied(
            next_offset,
            walk.record_count,
            end,
            self._crc,
            walk.max_timestamp_ms,
            notes.epochs,
            notes.has_producers,
            notes.has_transactions,
            tuple(notes.markers_left.values()),
        )

    def pread_into(self, buffer: memoryview, *, position: int) -> int:
        """Read from the pieces as from one file, and write what was not read before to the copy."""
        done = 0
        while done < len(buffer) and self._at < len(self._pieces):
            piece = self._pieces[self._at]
            place = position + done - self._piece_start
            if place >= piece.size_in_bytes:
                if self._written < self._piece_start + piece.size_in_bytes:
                    break
                self._next_piece()
                continue
            if place < 0:
                # A header across two pieces cannot be: each one ends with a whole batch.
                raise self._changed(piece.path)
            wanted = buffer[done : done + piece.size_in_bytes - place]
            if piece.content is not None:
                wanted[:] = piece.content[place : place + len(wanted)]
            elif self._opened(piece).pread_into(wanted, position=piece.position + place) < len(wanted):
                raise self._changed(piece.path)
            done += len(wanted)
            self._keep(wanted, position=self._piece_start + place)
        return done

    def _keep(self, data: memoryview, *, position: int) -> None:
        new = data[self._written - position :]
        self._output.pwrite(new, position=self._written)
        self._crc = crc32c(new, self._crc)
        self._crc_of_piece = crc32c(new, self._crc_of_piece) if len(self._pieces) > 1 else self._crc
        self._written += len(new)

    def _opened(self, piece: Piece) -> ReadFile:
        if self._file is None:
            self.path = piece.path
            self._file = piece.opened(self._env)
        return self._file

    def _next_piece(self) -> None:
        piece = self._pieces[self._at]
        self._end_piece()
        self._piece_start += piece.size_in_bytes
        self._at += 1
        if self._file is not None:
            self._file.close()
            self._file = None

    def _end_piece(self) -> None:
        self.piece_crcs.append(self._crc_of_piece)
        self._crc_of_piece = 0

    def _error(self, walk: RecoveryWalk) -> KStoreError:
        """Return the error for the batch at which a walk stopped, by its place in the source."""
        piece = self._pieces[min(self._at, len(self._pieces) - 1)]
        position = walk.position - self._piece_start + piece.position
        reason = str(getattr(walk.error, "reason", walk.error)) if walk.error is not None else walk.status
        message = f"cannot copy the batch at position {position} of {piece.path}: {reason}"
        error = CorruptRecordError(message, path=piece.path, position=position, reason=reason)
        return piece.change_that_caused(error, config=self._config, env=self._env) or error

    def _changed(self, path: str) -> LogReplacedError:
        return LogReplacedError(f"{path} was truncated or replaced while it was copied: export again", path=path)


class _HeaderFacts:
    """The leader epochs, producers and markers of the copied batches, collected from their headers."""

    def __init__(self, markers: tuple[OpenTransaction, ...] = ()) -> None:
        self.markers_left = {(marker.producer_id, marker.marker_offset): marker for marker in markers}
        self.epochs: list[tuple[int, int]] = []
        self.has_producers = False
        self.has_transactions = False

    def take(self, headers: list[BatchHeader]) -> None:
        for header in headers:
            if header.producer_id > NO_PRODUCER_ID:
                self.has_producers = True
                self.has_transactions = self.has_transactions or header.is_control or header.is_transactional
                if header.is_control:
                    self.markers_left.pop((header.producer_id, header.base_offset), None)
            epoch = header.partition_leader_epoch
            if header.magic >= MAGIC_V2 and (not self.epochs or self.epochs[-1][0] != epoch):
                self.epochs.append((epoch, header.base_offset))
