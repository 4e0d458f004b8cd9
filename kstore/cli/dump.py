"""`kstore dump`: every batch or index entry of a file, damaged ones included, and every other file that Kafka keeps.

Three parts follow each other: the command, the batches of a .log, and the side files: transaction indexes, producer
snapshots, checkpoints and the files of a root.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, cast

from kstore import _core
from kstore.cli import EXIT_DAMAGE, EXIT_FINE, decoders
from kstore.cli.arguments import WrongUseError
from kstore.cli.handed import begins_with_batch
from kstore.cli.output import Part, Progress, printable
from kstore.cli.printing.cat import by_timestamp_type
from kstore.cli.render import (
    JSON_STEPS,
    JSON_TEXT,
    TIMESTAMP_TYPE_LABELS,
    json_batch,
    json_records,
    parts_of,
    record_parts,
    text_of_batch,
    time_text,
)
from kstore.compression import codec_name
from kstore.config import LogConfig
from kstore.env import Env, FileKind, Location, join_path, locate, split_path
from kstore.errors import KStoreError, json_fault
from kstore.log.files.checkpoints import (
    MAX_CHECKPOINT_BYTES,
    malformed,
    read_leader_epoch_checkpoint,
    read_offset_checkpoint,
    read_text,
)
from kstore.log.files.indexes import MAX_INDEX_BYTES, OffsetIndex, TimeIndex
from kstore.log.files.names import (
    CLEAN_SHUTDOWN_FILE,
    CLEANED_STATE,
    CLEANER_CHECKPOINT,
    DELETED_STATE,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    META_PROPERTIES,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT_SUFFIX,
    QUORUM_STATE,
    RECOVERY_POINT_CHECKPOINT,
    SEGMENT_INDEX_SUFFIXES,
    SEGMENT_SUFFIXES,
    SWAP_STATE,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    is_metadata_snapshot_name,
    parse_segment_name,
)
from kstore.log.files.records import is_zeros
from kstore.log.files.root_files import id_text, parse_properties, read_partition_metadata
from kstore.log.files.snapshots import read_snapshot
from kstore.log.files.transaction_index import ABORTED_TXN, TRANSACTION_INDEX_ENTRY_SIZE, decode_aborted_txns
from kstore.log.state.producer_append import ProducerStateEntry
from kstore.record.batches import LEAST_MESSAGE_SIZES, SIZE_UP_TO_MAGIC, RecordBatch
from kstore.types import MAGIC_V2, MAX_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kstore._core import BatchHeader, Record
    from kstore.cli.arguments import PartitionSelection
    from kstore.cli.decoders import Decoder
    from kstore.cli.output import Output
    from kstore.env import ReadFile
    from kstore.log.files.names import PartitionDirectory

SNAPSHOT_SUFFIX = ".checkpoint"
STATE_SUFFIXES = (DELETED_STATE, SWAP_STATE, CLEANED_STATE)
ENTRY_SIZES = {
    OFFSET_INDEX_SUFFIX: _core.OFFSET_INDEX_ENTRY_SIZE,
    TIME_INDEX_SUFFIX: _core.TIME_INDEX_ENTRY_SIZE,
}
SUFFIXES = (*SEGMENT_SUFFIXES, PRODUCER_SNAPSHOT_SUFFIX)
BATCH_HEADING = (
    "  position      size  offsets                 count  codec   time type      max timestamp             "
    "producer  epoch  sequence  leader  crc         state"
)
# Escapes everything but ASCII: names and values may be any text, even lone surrogates.
ASCII_JSON = json.JSONEncoder(separators=(",", ":")).encode
ABORTED_TXN_FIELDS = ("version", "producerId", "firstOffset", "lastOffset", "lastStableOffset")
PRODUCER_FIELDS = (
    "producerId",
    "producerEpoch",
    "coordinatorEpoch",
    "currentTxnFirstOffset",
    "firstSequence",
    "lastSequence",
    "lastOffset",
    "offsetDelta",
    "timestamp",
)


JSON_LINES = _core.RecordLines([b"{", *JSON_STEPS, b"},"])


class DumpFile(NamedTuple):
    """A file to dump. label: its name in the output if several are shown; suffix: its kind, or its whole name."""

    path: str
    label: str
    suffix: str
    base_offset: int | None
    env: Env


class Content(NamedTuple):
    """First offset and record count of a batch. For a V0 or V1 wrapper they need decoding; None if that fails."""

    base_offset: int | None
    record_count: int | None


@dataclass(frozen=True, kw_only=True)
class DumpRange:
    """Which batches and entries of each file to show: with an offset of [start_offset, end_offset), up to a limit.

    max_bytes: only those in so many first bytes of a .log; indexes_only: no other files.
    """

    start_offset: int = 0
    end_offset: int = MAX_OFFSET
    limit: int | None = None
    max_bytes: int | None = None
    indexes_only: bool = False

    def __post_init__(self) -> None:
        if self.start_offset > self.end_offset:
            raise WrongUseError(f"--from {self.start_offset} is greater than --to {self.end_offset}")

    def has_file(self, suffix: str) -> bool:
        """Whether a file of several is shown: of a range of offsets, only those that have an offset in each entry."""
        if self.indexes_only:
            return suffix in SEGMENT_INDEX_SUFFIXES
        return self.has_all_offsets or suffix in SEGMENT_SUFFIXES

    @property
    def has_all_offsets(self) -> bool:
        """Whether no offset is left out."""
        return self.start_offset == 0 and self.end_offset == MAX_OFFSET

    def has(self, *, first_offset: int, last_offset: int) -> bool:
        """Whether an offset of [first_offset, last_offset] is in the range."""
        return last_offset >= self.start_offset and first_offset < self.end_offset


@dataclass(frozen=True, kw_only=True)
class Style:
    """How to show a file. prefix: the first fields of each JSON object; decoder: of records of an internal topic."""

    is_json: bool
    with_records: bool
    decoder: Decoder | None = None
    prefix: str = ""
    wanted: DumpRange = DumpRange()


def run(selection: PartitionSelection, out: Output, style: Style) -> int:
    """Show the files, and all files of the directories, and return the exit status.

    Raises: WrongUseError, LogNotFoundError; for a single file also its KStoreError.
    """
    if len(selection.directories) == 1:
        return run_one(selection, out, style)
    status, progress = EXIT_FINE, Progress()

    def on_error(error: KStoreError, partition: PartitionDirectory) -> None:
        nonlocal status
        status = max(status, out.partition_failure(error, partition))

    files: list[DumpFile] = []
    for directory in selection.directories:
        location = locate(directory)
        if is_directory(location):
            found = files_of(selection.narrowed_to([directory]), location, on_error)
            files += (file._replace(label=f"{directory.rstrip('/')}/{file.label}") for file in found)
        else:
            files.append(named_file(location)._replace(label=directory))
    with out.progress(progress, total_bytes=partial(sizes_of, files), only_to_file=True):
        return max(status, dump_files(files, out, style, progress))


def is_directory(location: Location) -> bool:
    """Whether a path is that of a directory.  Raises: WrongUseError if there is nothing."""
    target = location.env.stat(location.path)
    if target is None:
        raise WrongUseError(f"{location.path} does not exist")
    return target.kind is FileKind.DIRECTORY


def run_one(selection: PartitionSelection, out: Output, style: Style) -> int:
    """Show the file, or all files of the directory, and return the exit status; raises as run."""
    location = locate(selection.directory)
    path = location.path
    if not is_directory(location):
        if selection.topics or selection.partitions:
            raise WrongUseError(f"--topic and --partition need a directory, but {path} is a file")
        file, progress = named_file(location), Progress()
        if style.wanted.indexes_only and file.suffix not in SEGMENT_INDEX_SUFFIXES:
            raise WrongUseError(f"--index-only shows no entries of {path}, which is no index")
        with out.progress(progress, total_bytes=partial(sizes_of, [file]), only_to_file=True):
            return dump_file(file, out, style, progress)
    status, progress = EXIT_FINE, Progress()

    def on_error(error: KStoreError, partition: PartitionDirectory) -> None:
        nonlocal status
        status = max(status, out.partition_failure(error, partition))

    files = list(files_of(selection, location, on_error))
    with out.progress(progress, total_bytes=partial(sizes_of, files), only_to_file=True):
        return max(status, dump_files(files, out, style, progress))


def sizes_of(files: Iterable[DumpFile]) -> int:
    """Return the size of all files together in bytes. A file whose size can't be read counts as 0."""
    total = 0
    for file in files:
        with suppress(KStoreError):
            status = file.env.stat(file.path)
            total += 0 if status is None else status.size_in_bytes
    return total


def dump_files(files: Iterable[DumpFile], out: Output, style: Style, progress: Progress) -> int:
    """Show several files, each under its name, and return the exit status."""
    status = EXIT_FINE
    for file in files:
        if not style.wanted.has_file(file.suffix):
            continue
        prefix = f'"file":{JSON_TEXT(file.label)},' if style.is_json else ""
        if not style.is_json:
            out.styled([Part(file.label, "bold")])
        try:
            done = dump_file(file, out, replace(style, prefix=prefix), progress)
        except KStoreError as error:
            done = out.failure(error)
        status = max(status, done)
    return status


def named_file(location: Location) -> DumpFile:
    """Return the kind of a file by its name. A state that a broker appended to the name (.deleted, ...) is ignored.

    Raises: WrongUseError if no kind of file that can be dumped has such a name.
    """
    env, path = location
    name = split_path(path)[1]
    plain = name
    for state in STATE_SUFFIXES:
        plain = plain.removesuffix(state)
    if plain.endswith(SNAPSHOT_SUFFIX):
        return DumpFile(path, name, LOG_SUFFIX, None, env)
    if name in SIDE_FILE_KINDS:
        return DumpFile(path, name, name, None, env)
    parsed = parse_segment_name(plain)
    suffix = next((suffix for suffix in SUFFIXES if plain.endswith(suffix)), None)
    if suffix is None:
        with env.open_read(path) as file:
            start = file.pread(SIZE_UP_TO_MAGIC, position=0)
        if not start or not begins_with_batch(path, start):
            raise WrongUseError(f"{path} is not named like any file that Kafka writes, and does not begin with a batch")
        suffix = LOG_SUFFIX
    if suffix in SEGMENT_INDEX_SUFFIXES and parsed is None:
        raise WrongUseError(
            f"{path} must be named after its base offset in 20 digits: its entries are relative to that offset"
        )
    return DumpFile(path, name, suffix, parsed.base_offset if parsed is not None else None, env)


def files_of(
    selection: PartitionSelection, location: Location, on_error: Callable[[KStoreError, PartitionDirectory], None]
) -> Iterator[DumpFile]:
    """Yield the files of a directory in name order, then, if it is a root, those of its selected partitions.

    The root's own files are left out if topics or partitions are selected.
    Args: on_error: is given the error of a partition that can't be listed, and the partition.
    """
    path = location.path
    is_whole = not selection.topics and not selection.partitions
    own = list(known_files(location, label_prefix="")) if is_whole else []
    if any(file.base_offset is not None for file in own):
        yield from own
        return
    partitions = selection.find()
    yield from own
    for partition in partitions:
        if partition.path == path and is_whole:
            continue
        label_prefix = "" if partition.path == path else f"{partition.topic_partition}/"
        try:
            yield from known_files(Location(partition.env, partition.path), label_prefix=label_prefix)
        except KStoreError as error:
            on_error(error, partition)


def known_files(location: Location, *, label_prefix: str) -> Iterator[DumpFile]:
    """Yield the files of a partition directory or a root that are named exactly as Kafka names them, in name order."""
    env, directory = location
    for name in env.listdir(directory):
        path, label = join_path(directory, name), label_prefix + name
        parsed = parse_segment_name(name)
        if parsed is not None:
            yield DumpFile(path, label, parsed.suffix, parsed.base_offset, env)
        elif is_metadata_snapshot_name(name):
            yield DumpFile(path, label, LOG_SUFFIX, None, env)
        elif name in SIDE_FILE_KINDS:
            yield DumpFile(path, label, name, None, env)


def dump_file(file: DumpFile, out: Output, style: Style, progress: Progress) -> int:
    """Show one file and return the exit status. Only batches move the progress: all other files are small."""
    progress.label = file.label
    if file.suffix == LOG_SUFFIX:
        return dump_log(Location(file.env, file.path), out, style, progress)
    if file.suffix in ENTRY_SIZES:
        return dump_index(file, out, style)
    return dump_side_file(file, out, style)


def dump_log(location: Location, out: Output, style: Style, progress: Progress) -> int:
    """Show the batches of a .log, damaged ones included, and return the exit status."""
    env, path = location
    config = LogConfig()
    status = EXIT_FINE
    opened = env.open_read(path)
    try:
        segment = SegmentFile(opened, chunk_bytes=config.read_chunk_bytes, max_batch_bytes=config.max_batch_bytes)
        if not style.is_json:
            out.styled([Part(BATCH_HEADING, "bold")])
        shown_count = 0
        for entry in segment:
            if is_past(entry, style.wanted) or shown_count == style.wanted.limit:
                break
            progress.done_bytes += entry.size_in_bytes
            if not is_wanted(entry, style.wanted, path):
                continue
            shown_count += 1
            if entry.error is not None:
                status = max(status, out.failure(entry.error))
            if entry.header is not None:
                status = max(status, show_batch(entry, entry.header, out, style, path=path))
    finally:
        opened.close()
    tail = segment.tail
    if tail is None:
        return status
    place = f"position {tail.position} of {path}"
    if tail.is_zeros:
        out.notice(f"{tail.size_in_bytes} bytes of preallocated space at {place}")
        return status
    out.notice(f"damage at {place}: {tail.reason}; the remaining {tail.size_in_bytes} bytes are not shown")
    return EXIT_DAMAGE


def is_past(entry: Entry, wanted: DumpRange) -> bool:
    """Whether an entry ends after the bytes that are shown."""
    return wanted.max_bytes is not None and entry.position + entry.size_in_bytes > wanted.max_bytes


def is_wanted(entry: Entry, wanted: DumpRange, path: str) -> bool:
    """Whether an entry may have offsets of the range; one without a header may."""
    header = entry.header
    if header is None or wanted.has_all_offsets:
        return True
    base_offset = header.base_offset
    if not header.has_base_offset:
        try:
            base_offset = RecordBatch(entry.data, position=entry.position, path=path).base_offset
        except KStoreError:
            base_offset = 0
    return wanted.has(first_offset=base_offset, last_offset=header.last_offset)


def show_batch(entry: Entry, header: BatchHeader, out: Output, style: Style, *, path: str) -> int:
    """Show one batch, with its records if style says so, and return the exit status."""
    status = EXIT_FINE
    parts: Iterable[list[Record]] | None = None
    content = Content(header.base_offset, header.record_count) if header.has_base_offset else Content(None, None)
    if style.is_json and style.with_records and style.decoder is None and entry.error is None:
        plain = text_of_batch(RecordBatch(entry.data, position=entry.position, path=path), JSON_LINES)
        if plain is not None:
            out.piece(f'{json_text(entry, header, content, style)},"records":[')
            out.data(plain.data.removesuffix(b","))
            out.line("]}")
            return status
    if entry.error is None and (style.with_records or not header.has_base_offset):
        try:
            parts, checked = checked_parts(RecordBatch(entry.data, position=entry.position, path=path))
            if not header.has_base_offset:
                content = checked
        except KStoreError as error:
            status = out.failure(error)
    if style.is_json:
        show_json(entry, header, content, parts, out, style)
        return status
    out.styled(batch_parts(entry, header, content))
    decoder = None if header.is_control else style.decoder
    for record in chain.from_iterable(parts or ()) if style.with_records else ():
        shown = (None, None) if decoder is None else decoders.texts(decoder, record)
        out.styled(record_parts(record, prefix="  | ", is_control=header.is_control, texts=shown))
    return status


def checked_parts(batch: RecordBatch) -> tuple[Iterable[list[Record]], Content]:
    """Decode all records of a batch; return them in parts, with the batch's first offset and record count.

    A batch of one part is decoded once. A larger one is decoded again when its parts are shown, to bound memory.
    Raises: as RecordBatch.records().
    """
    first: list[Record] = []
    count = 0
    for part in parts_of(iter(batch)):
        first = first or part
        count += len(part)
    content = Content(first[0].offset if first else None, count)
    return (first,) if len(first) == count else parts_of(iter(batch)), content


def json_text(entry: Entry, header: BatchHeader, content: Content, style: Style) -> str:
    """Return the JSON object of a batch up to, and without, its records and closing brace."""
    return json_batch(
        header,
        magic=entry.magic,
        is_valid=entry.is_valid,
        base_offset=content.base_offset,
        record_count=content.record_count,
        prefix=style.prefix,
    )


def show_json(
    entry: Entry,
    header: BatchHeader,
    content: Content,
    parts: Iterable[list[Record]] | None,
    out: Output,
    style: Style,
) -> None:
    """Write the JSON object of a batch as one line. `records` is null if they can't be decoded."""
    text = json_text(entry, header, content, style)
    if not style.with_records:
        out.line(text + "}")
        return
    if parts is None:
        out.line(text + ',"records":null}')
        return
    opening = f'{text},"records":['
    for records in parts:
        for timestamp_type, same in by_timestamp_type(records, header):
            more = None if style.decoder is None else partial(decoders.json_fields, style.decoder, same)
            shown = json_records(same, header, timestamp_type=timestamp_type, more=more)
            out.piece(opening + ",".join(shown))
            opening = ","
    out.line("]}" if opening == "," else opening + "]}")


def batch_parts(entry: Entry, header: BatchHeader, content: Content) -> list[Part]:
    """Return the line of a batch, with the columns of BATCH_HEADING."""
    offsets = f"{'?' if content.base_offset is None else content.base_offset}-{header.last_offset}"
    count = "?" if content.record_count is None else str(content.record_count)
    producer = "-" if header.producer_id == -1 else str(header.producer_id)
    epoch = "-" if header.producer_epoch == -1 else str(header.producer_epoch)
    sequence = "-" if header.base_sequence == -1 else str(header.base_sequence)
    flags = [
        name
        for name, is_set in (
            ("transactional", header.is_transactional),
            ("control", header.is_control),
            ("delete-horizon", header.has_delete_horizon),
            (f"magic {entry.magic}", entry.magic != 2),
        )
        if is_set
    ]
    return [
        Part(f"{header.position:10}{header.size_in_bytes:10}  "),
        Part(f"{offsets:22}{count:>7}  ", "cyan"),
        Part(f"{codec_name(header.codec):8}{TIMESTAMP_TYPE_LABELS[header.timestamp_type]:15}"),
        Part(f"{time_text(header.max_timestamp_ms):24}", "dim"),
        Part(f"{producer:>10}{epoch:>7}{sequence:>10}{header.partition_leader_epoch:8}  0x{header.crc:08x}  "),
        Part("ok" if entry.is_valid else "CRC WRONG", "green" if entry.is_valid else "bold red"),
        Part("".join(f" {flag}" for flag in flags), "magenta"),
    ]


def dump_index(file: DumpFile, out: Output, style: Style) -> int:
    """Show the entries of an .index or .timeindex without its trailing zero slots, and return the exit status."""
    entry_size = ENTRY_SIZES[file.suffix]
    content = file.env.read_file(file.path, max_bytes=MAX_INDEX_BYTES)
    rows: Iterator[tuple[int, int]]
    if file.suffix == OFFSET_INDEX_SUFFIX:
        names = ("offset", "position")
        rows = OffsetIndex(content, base_offset=file.base_offset or 0, path=file.path).entries()
    else:
        names = ("timestamp", "offset")
        rows = TimeIndex(content, base_offset=file.base_offset or 0, path=file.path).entries()
    if not style.is_json:
        out.styled([Part(f"{'slot':>10}  {names[0]:>24}  {names[1]:>20}", "bold")])
    shown_count = 0
    for slot, (first, second) in enumerate(rows):
        offset = first if names[0] == "offset" else second
        if not style.wanted.has(first_offset=offset, last_offset=offset) or shown_count == style.wanted.limit:
            continue
        shown_count += 1
        if style.is_json:
            out.line(f'{{{style.prefix}"slot":{slot},"{names[0]}":{first},"{names[1]}":{second}}}')
        else:
            shown = time_text(first) if names[0] == "timestamp" else str(first)
            out.line(f"{slot:10}  {shown:>24}  {second:>20}")
    surplus = len(content) % entry_size
    if surplus:
        place = f"position {len(content) - surplus} of {file.path}"
        out.notice(f"damage at {place}: the last {surplus} bytes are not a whole entry of {entry_size} bytes")
        return EXIT_DAMAGE
    return EXIT_FINE


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One batch of the file, damaged or not.

    header: None if the entry is too small for one; error: what is wrong with the batch, or None;
    is_valid: whether the CRC is correct.
    """

    position: int
    size_in_bytes: int
    magic: int
    header: BatchHeader | None
    data: memoryview
    error: KStoreError | None
    is_valid: bool


@dataclass(frozen=True, kw_only=True)
class TrailingBytes:
    """Bytes at the end of a file that are not a batch. is_zeros: preallocated by a broker, not damage."""

    position: int
    size_in_bytes: int
    reason: str
    is_zeros: bool = False


class SegmentFile:
    """Iterates over the batches of one .log in file order: position, bytes and error of each.

    Unlike a Log, which stops at the first damage, it continues after a damaged batch if its size field is plausible.
    tail is set when the iteration ends, to None if the last batch ends at the end of the file.
    Memory: one chunk and one batch.
    """

    def __init__(self, file: ReadFile, *, chunk_bytes: int, max_batch_bytes: int) -> None:
        self.tail: TrailingBytes | None = None
        self._file = file
        self._size = file.size()
        self._chunk_bytes = chunk_bytes
        self._max_batch_bytes = max_batch_bytes
        self._window = b""
        self._window_position = 0

    def __iter__(self) -> Iterator[Entry]:
        position = 0
        while position < self._size:
            start = bytes(self._read(min(SIZE_UP_TO_MAGIC, self._size - position), position=position))
            if not start:
                return
            self.tail = self._tail_at(position, start)
            if self.tail is not None:
                return
            entry = self._entry(position, size_in_bytes=declared_size(start), magic=magic_of(start))
            yield entry
            position += entry.size_in_bytes

    def _tail_at(self, position: int, start: bytes) -> TrailingBytes | None:
        left = self._size - position
        if not any(start):
            is_zeros = self._is_zero_from(position)
            reason = "zeros to the end of the file" if is_zeros else "zeros in place of a batch"
            return TrailingBytes(position=position, size_in_bytes=left, reason=reason, is_zeros=is_zeros)
        if len(start) < SIZE_UP_TO_MAGIC:
            reason = f"truncated batch header: expected at least {SIZE_UP_TO_MAGIC} bytes, found {left}"
            return TrailingBytes(position=position, size_in_bytes=left, reason=reason)
        size = declared_size(start)
        if size < (least := LEAST_MESSAGE_SIZES[0]):
            expected, found = least - _core.LOG_OVERHEAD, size - _core.LOG_OVERHEAD
            reason = f"size field too small: expected at least {expected}, found {found}"
            return TrailingBytes(position=position, size_in_bytes=left, reason=reason)
        if size > left:
            reason = f"truncated batch: expected {size} bytes, found {left}"
            return TrailingBytes(position=position, size_in_bytes=left, reason=reason)
        if size > self._max_batch_bytes:
            reason = f"batch larger than the limit: expected at most {self._max_batch_bytes} bytes, found {size}"
            return TrailingBytes(position=position, size_in_bytes=left, reason=reason)
        return None

    def _entry(self, position: int, *, size_in_bytes: int, magic: int) -> Entry:
        data = self._read(size_in_bytes, position=position)
        header: BatchHeader | None = None
        error: KStoreError | None = None
        is_valid = False
        path = self._file.path
        try:
            header = _core.read_header(data, position=position, path=path)
            _core.check_crc(data, position=position, path=path)
            is_valid = True
        except KStoreError as problem:
            error = problem
        if header is None and len(data) == size_in_bytes >= _core.RECORD_BATCH_OVERHEAD:
            header = read_header_of_any_magic(data, position=position, path=path)
            is_valid = _core.crc32c(data[_core.ATTRIBUTES_POSITION :]) == header.crc
        return Entry(
            position=position,
            size_in_bytes=size_in_bytes,
            magic=magic,
            header=header,
            data=data,
            error=error,
            is_valid=is_valid,
        )

    def _read(self, size: int, *, position: int) -> memoryview:
        at = position - self._window_position
        if not 0 <= at <= len(self._window) - size:
            wanted = min(max(size, self._chunk_bytes), self._size - position)
            self._window = self._file.pread(wanted, position=position)
            self._window_position = position
            if len(self._window) < wanted:
                self._size = position + len(self._window)
            at = 0
        return memoryview(self._window)[at : at + size]

    def _is_zero_from(self, position: int) -> bool:
        while position < self._size:
            chunk = self._file.pread(self._chunk_bytes, position=position)
            if not chunk or not is_zeros(chunk):
                return not chunk
            position += len(chunk)
        return True


def declared_size(start: bytes) -> int:
    """Return the size of an entry in bytes by its size field, including the 12 bytes up to the end of that field."""
    return int.from_bytes(start[8:12], "big", signed=True) + _core.LOG_OVERHEAD


def magic_of(start: bytes) -> int:
    """Return the magic byte of an entry, signed."""
    return int.from_bytes(start[_core.MAGIC_POSITION : _core.MAGIC_POSITION + 1], "big", signed=True)


def read_header_of_any_magic(data: memoryview, *, position: int, path: str) -> BatchHeader:
    """Read a header whose magic is not 0, 1 or 2 as Kafka does: as if it were 2."""
    start = bytearray(data[: _core.RECORD_BATCH_OVERHEAD])
    start[_core.MAGIC_POSITION] = MAGIC_V2
    return _core.read_header(start, position=position, path=path)


class Table(NamedTuple):
    """The content of a file: field names, and the values of each row. error: what is wrong, reported after the rows."""

    fields: tuple[str, ...]
    rows: list[tuple[object, ...]]
    error: KStoreError | None = None


def dump_side_file(file: DumpFile, out: Output, style: Style) -> int:
    """Show a file of one of SIDE_FILE_KINDS and return the exit status.

    Raises: KStoreError if the file can't be read at all.
    """
    fields, rows, error = SIDE_FILE_KINDS[file.suffix](file.path, file.base_offset or 0, file.env)
    if file.suffix == TRANSACTION_INDEX_SUFFIX:
        first, last = fields.index("firstOffset"), fields.index("lastOffset")
        rows = [
            row
            for row in rows
            if style.wanted.has(first_offset=cast(int, row[first]), last_offset=cast(int, row[last]))
        ]
    rows, prefix = rows[: style.wanted.limit], style.prefix
    if style.is_json:
        for row in rows:
            shown = ASCII_JSON(dict(zip(fields, row, strict=True)))
            out.line(f"{{{prefix}{shown[1:]}" if len(shown) > len("{}") else f"{{{prefix.rstrip(',')}}}")
    else:
        show_text(fields, rows, out)
    return EXIT_FINE if error is None else out.failure(error)


def show_text(fields: tuple[str, ...], rows: list[tuple[object, ...]], out: Output) -> None:
    """Write a table with a heading; each column is as wide as its widest cell."""
    cells = [
        [
            time_text(value) if name == "timestamp" and isinstance(value, int) else text_of(value)
            for name, value in pairs
        ]
        for pairs in (zip(fields, row, strict=True) for row in rows)
    ]
    widths = [max(map(len, column)) for column in zip(fields, *cells, strict=True)]
    out.styled(
        [Part("  ".join(printable(name).rjust(width) for name, width in zip(fields, widths, strict=True)), "bold")]
    )
    for row in cells:
        out.line("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def text_of(value: object) -> str:
    """Return a value of a row as text."""
    return printable(value) if isinstance(value, str) else ASCII_JSON(value)


def transaction_index_table(path: str, base_offset: int, env: Env) -> Table:
    """Return all whole entries as they are stored, and the first error that validation finds."""
    content = env.read_file(path, max_bytes=MAX_INDEX_BYTES)
    whole = len(content) - len(content) % TRANSACTION_INDEX_ENTRY_SIZE
    entries = enumerate(ABORTED_TXN.iter_unpack(memoryview(content)[:whole]))
    rows: list[tuple[object, ...]] = [(slot, *entry) for slot, entry in entries]
    error = None
    try:
        decode_aborted_txns(content, base_offset=base_offset, path=path)
    except KStoreError as caught:
        error = caught
    return Table(("slot", *ABORTED_TXN_FIELDS), rows, error)


def snapshot_table(path: str, _: int, env: Env) -> Table:
    """Return the producers in file order."""
    rows: list[tuple[object, ...]] = []
    for slot, entry in enumerate(read_snapshot(path, env)):
        batches = ProducerStateEntry.of_snapshot(entry).batches
        first_sequence = batches[-1].first_sequence if batches else -1
        rows.append(
            (
                slot,
                entry.producer_id,
                entry.producer_epoch,
                entry.coordinator_epoch,
                entry.current_txn_first_offset,
                first_sequence,
                entry.last_sequence,
                entry.last_offset,
                entry.offset_delta,
                entry.timestamp_ms,
            )
        )
    return Table(("slot", *PRODUCER_FIELDS), rows)


def leader_epoch_table(path: str, _: int, env: Env) -> Table:
    """Return the entries of a leader-epoch-checkpoint."""
    return Table(("epoch", "startOffset"), [tuple(entry) for entry in read_leader_epoch_checkpoint(path, env) or ()])


def offset_checkpoint_table(path: str, _: int, env: Env) -> Table:
    """Return the entries of a root's checkpoint."""
    entries = (read_offset_checkpoint(path, env) or {}).items()
    return Table(("topic", "partition", "offset"), [(*partition, offset) for partition, offset in entries])


def partition_metadata_table(path: str, _: int, env: Env) -> Table:
    """Return the topic id of a partition.metadata, no rows if the file is missing."""
    topic_id = read_partition_metadata(split_path(path)[0], env)
    return Table(("topicId",), [] if topic_id is None else [(id_text(topic_id),)])


def properties_table(path: str, _: int, env: Env) -> Table:
    """Return a properties file as one row, with its property names as the fields."""
    properties = parse_properties(text_in(path, env))
    return Table(tuple(properties), [tuple(properties.values())])


def json_table(path: str, _: int, env: Env) -> Table:
    """Return a file that holds one JSON object as one row; an empty file has no fields.

    Raises: CorruptCheckpointError, StorageError.
    """
    text = text_in(path, env)
    try:
        content = json.loads(text, parse_constant=refuse_constant) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise malformed(path, f"not JSON: {json_fault(error)}") from error
    if not isinstance(content, dict):
        raise malformed(path, f"expected a JSON object, found {type(content).__name__}")
    return Table(tuple(content), [tuple(content.values())])


def refuse_constant(name: str) -> None:
    """Refuse NaN and Infinity, which Python accepts but JSON does not have."""
    raise ValueError(f"found {name}")


def text_in(path: str, env: Env) -> str:
    """Return the content of a small file as text, or "" if it does not exist any more.

    Raises: CorruptCheckpointError, StorageError.
    """
    return read_text(path, env, max_bytes=MAX_CHECKPOINT_BYTES) or ""


# Keyed by suffix or by whole file name.
SIDE_FILE_KINDS: dict[str, Callable[[str, int, Env], Table]] = {
    TRANSACTION_INDEX_SUFFIX: transaction_index_table,
    PRODUCER_SNAPSHOT_SUFFIX: snapshot_table,
    LEADER_EPOCH_CHECKPOINT: leader_epoch_table,
    PARTITION_METADATA: partition_metadata_table,
    QUORUM_STATE: json_table,
    RECOVERY_POINT_CHECKPOINT: offset_checkpoint_table,
    LOG_START_OFFSET_CHECKPOINT: offset_checkpoint_table,
    HIGH_WATERMARK_CHECKPOINT: offset_checkpoint_table,
    CLEANER_CHECKPOINT: offset_checkpoint_table,
    META_PROPERTIES: properties_table,
    CLEAN_SHUTDOWN_FILE: json_table,
}
