"""`kstore dump`: every batch or index entry of a file, damaged ones included."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from kstore import _core
from kstore.cli import EXIT_DAMAGE, EXIT_FINE, decoders
from kstore.cli.arguments import WrongUseError
from kstore.cli.cat import by_timestamp_type
from kstore.cli.dump_side_file import SIDE_FILE_KINDS, dump_side_file
from kstore.cli.output import Part
from kstore.cli.render import (
    JSON_TEXT,
    TIMESTAMP_TYPE_LABELS,
    codec_name,
    json_batch,
    json_of_plain,
    json_records,
    parts_of,
    record_parts,
    time_text,
)
from kstore.cli.segment_file import Entry, SegmentFile
from kstore.config import LogConfig
from kstore.errors import KStoreError
from kstore.log.env import DEFAULT_ENV, FileKind, absolute_path, join_path, split_path
from kstore.log.files.names import (
    CLEANED_STATE,
    DELETED_STATE,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    SEGMENT_INDEX_SUFFIXES,
    SEGMENT_SUFFIXES,
    SWAP_STATE,
    TIME_INDEX_SUFFIX,
    is_metadata_snapshot_name,
    parse_segment_name,
)
from kstore.log.segment.indexes import MAX_INDEX_BYTES, OffsetIndex, TimeIndex
from kstore.record import RecordBatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kstore._core import BatchHeader, Record
    from kstore.cli.arguments import Selection
    from kstore.cli.decoders import Decoder
    from kstore.cli.output import Output

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


class DumpFile(NamedTuple):
    """A file to dump. label: its name in the output if several are shown; suffix: its kind, or its whole name."""

    path: str
    label: str
    suffix: str
    base_offset: int | None


class Content(NamedTuple):
    """First offset and record count of a batch. For a V0 or V1 wrapper they need decoding; None if that fails."""

    base_offset: int | None
    record_count: int | None


@dataclass(frozen=True, kw_only=True)
class Style:
    """How to show a file. prefix: the first fields of each JSON object; decoder: of records of an internal topic."""

    is_json: bool
    with_records: bool
    decoder: Decoder | None = None
    prefix: str = ""


def run(selection: Selection, out: Output, *, is_json: bool, with_records: bool, decoder: Decoder | None = None) -> int:
    """Show the file, or all files of the directory, and return the exit status.

    Raises: WrongUseError, LogNotFoundError; for a single file also its KStoreError.
    """
    path = absolute_path(selection.directory)
    style = Style(is_json=is_json, with_records=with_records or decoder is not None, decoder=decoder)
    found = DEFAULT_ENV.stat(path)
    if found is None:
        raise WrongUseError(f"{path} does not exist")
    if found.kind is not FileKind.DIRECTORY:
        if selection.topics or selection.partitions:
            raise WrongUseError(f"--topic and --partition need a directory, but {path} is a file")
        return dump_file(named_file(path), out, style)
    status = EXIT_FINE
    for file in files_of(selection, path):
        prefix = f'"file":{JSON_TEXT(file.label)},' if is_json else ""
        if not is_json:
            out.styled([Part(file.label, "bold")])
        try:
            done = dump_file(file, out, replace(style, prefix=prefix))
        except KStoreError as error:
            done = out.failure(error)
        status = max(status, done)
    return status


def named_file(path: str) -> DumpFile:
    """Return the kind of a file by its name. A state that a broker appended to the name (.deleted, ...) is ignored.

    Raises: WrongUseError if no kind of file that can be dumped has such a name.
    """
    name = split_path(path)[1]
    plain = name
    for state in STATE_SUFFIXES:
        plain = plain.removesuffix(state)
    if plain.endswith(SNAPSHOT_SUFFIX):
        return DumpFile(path, name, LOG_SUFFIX, None)
    if name in SIDE_FILE_KINDS:
        return DumpFile(path, name, name, None)
    parsed = parse_segment_name(plain)
    suffix = next((suffix for suffix in SUFFIXES if plain.endswith(suffix)), None)
    if suffix is None:
        raise WrongUseError(f"{path} is not named like any file that Kafka writes")
    if suffix in SEGMENT_INDEX_SUFFIXES and parsed is None:
        raise WrongUseError(f"{path} must be named by its base offset in 20 digits: its entries are relative to it")
    return DumpFile(path, name, suffix, parsed.base_offset if parsed is not None else None)


def files_of(selection: Selection, path: str) -> Iterator[DumpFile]:
    """Yield the files of a directory in name order, then, if it is a root, those of its selected partitions.

    The root's own files are left out if topics or partitions are selected.
    """
    is_whole = not selection.topics and not selection.partitions
    own = list(known_files(path, label_prefix="")) if is_whole else []
    if any(file.base_offset is not None for file in own):
        yield from own
        return
    partitions = selection.find()
    yield from own
    for partition in partitions:
        if partition.path != path:
            yield from known_files(partition.path, label_prefix=f"{partition.topic_partition}/")
        elif not is_whole:
            yield from known_files(partition.path, label_prefix="")


def known_files(directory: str, *, label_prefix: str) -> Iterator[DumpFile]:
    """Yield the files of a partition directory or a root that are named exactly as Kafka names them, in name order."""
    for name in DEFAULT_ENV.listdir(directory):
        path, label = join_path(directory, name), label_prefix + name
        parsed = parse_segment_name(name)
        if parsed is not None:
            yield DumpFile(path, label, parsed.suffix, parsed.base_offset)
        elif is_metadata_snapshot_name(name):
            yield DumpFile(path, label, LOG_SUFFIX, None)
        elif name in SIDE_FILE_KINDS:
            yield DumpFile(path, label, name, None)


def dump_file(file: DumpFile, out: Output, style: Style) -> int:
    """Show one file and return the exit status."""
    if file.suffix == LOG_SUFFIX:
        return dump_log(file.path, out, style)
    if file.suffix in ENTRY_SIZES:
        return dump_index(file, out, style)
    return dump_side_file(
        file.path, file.suffix, out, base_offset=file.base_offset, is_json=style.is_json, prefix=style.prefix
    )


def dump_log(path: str, out: Output, style: Style) -> int:
    """Show the batches of a .log, damaged ones included, and return the exit status."""
    config = LogConfig()
    status = EXIT_FINE
    opened = DEFAULT_ENV.open_read(path)
    try:
        segment = SegmentFile(opened, chunk_bytes=config.read_chunk_bytes, max_batch_bytes=config.max_batch_bytes)
        if not style.is_json:
            out.styled([Part(BATCH_HEADING, "bold")])
        for entry in segment:
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
    out.notice(f"damage at {place}: {tail.reason}; the {tail.size_in_bytes} bytes from there on are not shown")
    return EXIT_DAMAGE


def show_batch(entry: Entry, header: BatchHeader, out: Output, style: Style, *, path: str) -> int:
    """Show one batch, with its records if style says so, and return the exit status."""
    status = EXIT_FINE
    parts: Iterable[list[Record]] | None = None
    content = Content(header.base_offset, header.record_count) if header.has_base_offset else Content(None, None)
    if style.is_json and style.with_records and style.decoder is None and entry.error is None:
        plain = json_of_plain(RecordBatch(entry.data, position=entry.position, path=path))
        if plain is not None:
            out.line(f'{json_text(entry, header, content, style)},"records":[{plain}]}}')
            return status
    if entry.error is None and (style.with_records or not header.has_base_offset):
        try:
            parts, found = checked_parts(RecordBatch(entry.data, position=entry.position, path=path))
            if not header.has_base_offset:
                content = found
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
    more = None if style.decoder is None else partial(decoders.json_fields, style.decoder)
    opening = f'{text},"records":['
    for records in parts:
        for timestamp_type, same in by_timestamp_type(records, header):
            shown = json_records(same, timestamp_type=timestamp_type, is_control=header.is_control, more=more)
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
    content = DEFAULT_ENV.read_file(file.path, max_bytes=MAX_INDEX_BYTES)
    rows: Iterator[tuple[int, int]]
    if file.suffix == OFFSET_INDEX_SUFFIX:
        names = ("offset", "position")
        rows = OffsetIndex(content, base_offset=file.base_offset or 0, path=file.path).entries()
    else:
        names = ("timestamp", "offset")
        rows = TimeIndex(content, base_offset=file.base_offset or 0, path=file.path).entries()
    if not style.is_json:
        out.styled([Part(f"{'slot':>10}  {names[0]:>24}  {names[1]:>20}", "bold")])
    for slot, (first, second) in enumerate(rows):
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
