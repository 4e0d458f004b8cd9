"""`kstore import`: append the records of a file to the logs of a root, or to one log.

Reads lines of text (rows.py), Parquet and Arrow files. Another root is restored (kstore.cli.restoring).
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from kstore.adoption.changes import keep_topics_in_metadata
from kstore.cli import EXIT_FINE
from kstore.cli.arguments import WrongUseError
from kstore.cli.importing.rows import AS_IT_IS, STANDARD_INPUT, Row, TextOptions, read_rows
from kstore.cli.output import Column, Progress
from kstore.cli.render import JSON_TEXT
from kstore.config import MAX_INT32
from kstore.env import DEFAULT_ENV, FileKind, is_local, open_foreign, size_of_open
from kstore.errors import KStoreError, LogNotFoundError
from kstore.log.files.names import find_partition
from kstore.record.builder import MemoryRecordsBuilder
from kstore.store.opening import open_log
from kstore.store.store import open_store
from kstore.types import MAX_OFFSET, MAX_PARTITION, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow

    from kstore.cli.output import Output
    from kstore.log.write.writable_log import WritableLog
    from kstore.record.batches import MemoryRecords
    from kstore.store.store import WritableStore

Item = TypeVar("Item")
Target: TypeAlias = "Callable[[str | None, int | None], WritableLog]"

ARROW_SUFFIXES = {".parquet": "parquet", ".arrow": "arrow", ".arrows": "arrow", ".feather": "arrow"}
ROW_SUFFIXES = {".csv": "csv", ".tsv": "csv", ".txt": "lines"}
_ARROW_FILE_START = b"ARROW1"
_PACKED_COLUMNS = ("key", "value", "timestamp", "headers")
_NAMED_COLUMNS = (*_PACKED_COLUMNS, "offset", "topic", "partition", "isControl")
MOST_NEW_PARTITIONS = 10_000  # the most that Kafka's controller creates per request

COLUMNS = (
    Column("topic"),
    Column("partition", is_number=True),
    Column("records", is_number=True),
    Column("log end", is_number=True),
)


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """What to import and where. topic and partition, if not None, override those of the records."""

    path: str
    directory: str
    topic: str | None
    partition: int | None
    compression: str
    batch_bytes: int
    keeps_offsets: bool
    format: str | None = None
    text: TextOptions = AS_IT_IS
    from_line: int = 1

    @property
    def is_of_lines(self) -> bool:
        """Whether the file has a record on each line."""
        return self.chosen_format not in ("parquet", "arrow")

    @property
    def chosen_format(self) -> str:
        """The format: as given, or by the name of the file; JSON lines of others."""
        suffix = "." + self.path.rpartition(".")[2].lower()
        return self.format or ARROW_SUFFIXES.get(suffix) or ROW_SUFFIXES.get(suffix) or "json"

    def check(self) -> None:
        """Raise WrongUseError for options that the format does not have."""
        is_text, chosen = self.chosen_format in ("csv", "lines"), self.chosen_format
        if self.text != AS_IT_IS and not is_text:
            raise WrongUseError(f"columns and separators are for csv and lines, and the format is {chosen}")
        if self.text.delimiter is not None and (len(self.text.delimiter) != 1 or self.text.delimiter in '"\r\n'):
            raise WrongUseError(
                f"--delimiter must be one character, and no quote or line end, got {self.text.delimiter!r}"
            )
        if self.text.key_separator == "":
            raise WrongUseError("--key-separator must have at least one character")
        if not self.is_of_lines and self.from_line != 1:
            raise WrongUseError(f"--from-line is for lines of text, and the format is {chosen}")
        if is_text and self.keeps_offsets and not (chosen == "csv" and self.text.offset_column):
            raise WrongUseError(f"--keep-offsets needs offsets, and records of {chosen} have none (--offset-column)")


def run(wanted: ImportOptions, out: Output, *, is_json: bool) -> int:
    """Append all records, print the record count and log end of each partition, and return the exit status."""
    if wanted.path != STANDARD_INPUT and (not is_local(wanted.path) or DEFAULT_ENV.is_directory(wanted.path)):
        return _restored(wanted, out, is_json=is_json)
    wanted.check()
    progress = Progress()
    importer: _Importer | None = None
    try:
        with out.progress(progress, total_bytes=lambda: input_size_in_bytes(wanted.path)), ExitStack() as stack:
            if not wanted.is_of_lines:
                batches = _with_first_read(arrow_batches(wanted.path, wanted.chosen_format, progress))
                importer = _Importer(wanted, _open_target(wanted, stack))
                for batch in batches:
                    importer.add_batch(batch)
            else:
                rows = _with_first_read(
                    read_rows(
                        wanted.path, wanted.chosen_format, wanted.text, progress=progress, from_line=wanted.from_line
                    )
                )
                importer = _Importer(wanted, _open_target(wanted, stack))
                importer.add_rows(rows)
            importer.finish()
    except (KStoreError, WrongUseError):
        if importer is not None and wanted.is_of_lines:
            _tell_progress(importer, out)
        raise
    _show(importer, out, is_json=is_json)
    return EXIT_FINE


def _restored(wanted: ImportOptions, out: Output, *, is_json: bool) -> int:
    """Import a root or a partition as it is.  Raises: WrongUseError for options of files."""
    from kstore.cli import restoring

    given = wanted.partition, wanted.format, wanted.from_line, wanted.keeps_offsets, wanted.text
    if given != (None, None, 1, False, AS_IT_IS):
        raise WrongUseError(
            f"{wanted.path} is a directory, whose batches are imported as they are: only --topic is known"
        )
    typed = restoring.TypedOptions(wanted.path, wanted.directory, topic_as=wanted.topic)
    return restoring.run(typed, out, is_dry_run=False, is_json=is_json)


def _tell_progress(importer: _Importer, out: Output) -> None:
    """Say what is in the logs, and from which line on the import can go on."""
    for (topic, partition), (records, log_end_offset) in sorted(importer.counts.items()):
        out.notice(f"{records} records were appended to {topic}-{partition}, which ends at {log_end_offset}")
    for place, line in sorted(importer.missing.items()):
        out.notice(f"records for {place} from line {line} on were not appended")
    if not importer.missing or len(importer.missing.keys() | {str(place) for place in importer.counts}) == 1:
        line = min(importer.missing.values(), default=importer.lines_done + 1)
        out.notice(f"all lines before line {line} are imported: to go on there, --from-line {line}")


def _show(importer: _Importer, out: Output, *, is_json: bool) -> None:
    counts = sorted(importer.counts.items())
    for topic_partition, (records, log_end_offset) in counts if is_json else ():
        topic, partition = topic_partition
        fields = {"topic": topic, "partition": partition, "records": records, "log_end_offset": log_end_offset}
        out.line(JSON_TEXT(fields))
    if counts and not is_json:
        out.table(COLUMNS, [[topic, *map(str, (number, *count))] for (topic, number), count in counts])


def _with_first_read(items: Iterator[Item]) -> Iterator[Item]:
    """Read the first item now, before the target is opened, so that an unreadable file does not create a root."""
    return chain(list(islice(items, 1)), items)


def _open_target(wanted: ImportOptions, stack: ExitStack) -> Target:
    """Open the root, or the single partition, which then takes all records."""
    try:
        find_partition(wanted.directory)
    except LogNotFoundError:
        store = stack.enter_context(open_store(wanted.directory, "a"))
        keep_topics_in_metadata(store)
        return lambda topic, partition: _made_log(store, topic, partition)
    log = stack.enter_context(open_log(wanted.directory, "a"))
    return lambda _topic, _partition: log


def _made_log(store: WritableStore, topic: str | None, partition: int | None) -> WritableLog:
    """Return a log of the root, after creating its topic and partitions if they do not exist.

    Raises: WrongUseError if the records have no topic, or the topic or partition can't be created.
    """
    if topic is None:
        raise WrongUseError("the records have no topic: set one with --topic")
    wanted = TopicPartition(topic, partition or 0)
    if wanted not in store.partitions:
        try:
            has = sum(1 for name, _ in store.partitions if name == topic)
            if wanted.partition - has >= MOST_NEW_PARTITIONS:
                raise WrongUseError(
                    f"partition {wanted.partition} of topic {topic!r}, which has {has} partitions: "
                    f"one record can create at most {MOST_NEW_PARTITIONS} partitions"
                )
            if has:
                store.create_partitions(topic, wanted.partition + 1)
            else:
                store.create_topic(topic, wanted.partition + 1)
        except ValueError as error:
            raise WrongUseError(str(error)) from error
    return store.log(*wanted)


class _Importer:
    """Packs records into batches, one pending batch per log, assigns their offsets and appends them.

    Attributes: counts: (records appended, log end offset) of each partition; lines_done: the last line of which the
    record was taken; missing: after an error, the first line of each partition whose records were not appended.
    """

    def __init__(self, wanted: ImportOptions, target: Target) -> None:
        self.counts: dict[TopicPartition, tuple[int, int]] = {}
        self.lines_done = wanted.from_line - 1
        self.missing: dict[str, int] = {}
        self._first_lines: dict[WritableLog, int] = {}
        self._wanted = wanted
        self._target = target
        self._pending: dict[WritableLog, tuple[MemoryRecordsBuilder, int]] = {}

    def add_rows(self, rows: Iterator[Row]) -> None:
        """Add the records of lines; if one cannot be added, append all before it that can be.

        Raises: as add_row, and as the lines.
        """
        try:
            for row in rows:
                self.add_row(row)
            self.finish()
        except (KStoreError, WrongUseError):
            for log in list(self._pending):
                with suppress(KStoreError):
                    self._flush(log)
            self.missing = {str(log.topic_partition): line for log, line in self._first_lines.items()}
            raise

    def add_row(self, row: Row) -> None:
        """Add one record of a JSON line.

        Raises: WrongUseError for values that a batch can't hold, and the errors of append_as_follower.
        """
        log = self._log_of(row.topic, row.partition)
        pending = self._pending.get(log)
        if pending is not None and self._wanted.keeps_offsets and row.offset - pending[0].base_offset > MAX_INT32:
            self._flush(log)
        try:
            builder, size_in_bytes = self._pending.get(log) or (self._builder(log, row.offset), 0)
            builder.append(
                offset=row.offset if self._wanted.keeps_offsets else builder.next_offset,
                timestamp_ms=row.timestamp_ms,
                key=row.key,
                value=row.value,
                headers=row.headers,
            )
        except ValueError as error:
            raise WrongUseError(f"{row.place}: {error}") from error
        self._first_lines.setdefault(log, row.number)
        size_in_bytes += len(row.key or b"") + len(row.value or b"")
        self._pending[log] = builder, size_in_bytes
        self.lines_done = row.number
        if size_in_bytes >= self._wanted.batch_bytes:
            self._flush(log)

    def add_batch(self, batch: pyarrow.RecordBatch) -> None:
        """Append the records of an Arrow record batch.

        Raises: WrongUseError for columns or values that a batch can't hold, and the errors of append_as_follower.
        """
        for topic, partition, part in split_by_partition(
            batch, topic=self._wanted.topic, partition=self._wanted.partition, place=self._wanted.path
        ):
            log = self._log_of(topic, partition)
            try:
                for rows in packed_columns(part, with_offset=self._wanted.keeps_offsets):
                    self._pack(log, rows)
            except ValueError as error:
                raise WrongUseError(f"{self._wanted.path}: {error}") from error
            self._count(log, part.num_rows)

    def _pack(self, log: WritableLog, rows: pyarrow.RecordBatch) -> None:
        from kstore.arrow import pack_record_batch

        for run in pack_record_batch(
            rows,
            base_offset=log.log_end_offset,
            batch_bytes=self._wanted.batch_bytes,
            compression=self._wanted.compression,
            partition_leader_epoch=_epoch(log),
        ):
            self._append(log, run, count=0)

    def finish(self) -> None:
        """Append all pending batches."""
        for log in list(self._pending):
            self._flush(log)

    def _log_of(self, topic: str | None, partition: int | None) -> WritableLog:
        name = self._wanted.topic if self._wanted.topic is not None else topic
        number = self._wanted.partition if self._wanted.partition is not None else partition
        return self._target(name, number)

    def _builder(self, log: WritableLog, offset: int) -> MemoryRecordsBuilder:
        return MemoryRecordsBuilder(
            base_offset=offset if self._wanted.keeps_offsets else log.log_end_offset,
            compression=self._wanted.compression,
            partition_leader_epoch=_epoch(log),
        )

    def _flush(self, log: WritableLog) -> None:
        builder, _ = self._pending.pop(log)
        try:
            self._append(log, builder.build(), count=builder.record_count)
        except KStoreError:
            # Of what comes after the records, such as an index: they are in the log.
            if log.log_end_offset >= builder.next_offset:
                self._count(log, builder.record_count)
                self._first_lines.pop(log, None)
            raise
        self._first_lines.pop(log, None)

    def _append(self, log: WritableLog, records: MemoryRecords, *, count: int) -> None:
        log.append_as_follower(records)
        self._count(log, count)

    def _count(self, log: WritableLog, count: int) -> None:
        records, _ = self.counts.get(log.topic_partition, (0, 0))
        self.counts[log.topic_partition] = records + count, log.log_end_offset


def _epoch(log: WritableLog) -> int:
    return max(log.leader_epochs.latest_epoch, 0)


def input_size_in_bytes(path: str) -> int | None:
    """Return the size of the file, or of standard input; None if it is not a regular file."""
    if path == STANDARD_INPUT:
        return None if sys.stdin is None else size_of_open(sys.stdin.buffer)
    status = DEFAULT_ENV.stat(path)
    return status.size_in_bytes if status is not None and status.kind is FileKind.FILE else None


def arrow_batches(path: str, kind: str, progress: Progress) -> Iterator[pyarrow.RecordBatch]:
    """Yield the record batches of a Parquet file, or of an Arrow IPC file or stream.

    Raises: WrongUseError if the file is none of these or pyarrow is not installed; StorageError if it can't be opened.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise WrongUseError(
            f"reading {path} needs pyarrow, which is not installed: pip install 'kstore[arrow]'"
        ) from error
    with open_foreign(path) as file:
        size = size_of_open(file) or 0
        try:
            if kind == "parquet":
                parquet = pq.ParquetFile(file)
                for batch in parquet.iter_batches():
                    yield batch
                    progress.done_bytes += size * batch.num_rows // parquet.metadata.num_rows
            elif file.read(len(_ARROW_FILE_START)) == _ARROW_FILE_START:
                reader = pa.ipc.open_file(file)
                for number in range(reader.num_record_batches):
                    yield reader.get_batch(number)
                    progress.done_bytes = size * (number + 1) // reader.num_record_batches
            else:
                file.seek(0)
                for batch in pa.ipc.open_stream(file):
                    yield batch
                    progress.done_bytes = file.tell()
        except (pa.ArrowException, OSError) as error:
            raise WrongUseError(f"cannot read {path}: {error}") from error


def split_by_partition(
    batch: pyarrow.RecordBatch, *, topic: str | None, partition: int | None, place: str
) -> Iterator[tuple[str | None, int | None, pyarrow.RecordBatch]]:
    """Yield topic, partition and rows for each partition in a batch, without control records. Rows keep their order.

    Args: topic, partition: if not None, used in place of the columns; place: starts every error message.
    Raises: WrongUseError for a topic, partition or isControl column of a wrong type or with an impossible value.
    """
    import pyarrow.compute as pc

    _check_columns(batch.schema, place)
    if "isControl" in batch.schema.names:
        batch = batch.filter(pc.invert(pc.fill_null(batch.column("isControl"), False)))
    for name, rows in _groups(batch, "topic", given=topic, place=place):
        for number, part in _groups(rows, "partition", given=partition, place=place):
            if number is not None and not 0 <= number <= MAX_PARTITION:
                raise WrongUseError(f"{place}: partition must be from 0 to {MAX_PARTITION}, found {number}")
            yield name, number, part


def _check_columns(schema: pyarrow.Schema, place: str) -> None:
    import pyarrow.types as kinds

    for name in _NAMED_COLUMNS:
        if schema.names.count(name) > 1:
            raise WrongUseError(f"{place}: column {name} appears {schema.names.count(name)} times")
    expected = {
        "topic": ("strings", _is_text),
        "partition": ("integers", kinds.is_integer),
        "isControl": ("booleans", kinds.is_boolean),
    }
    for name, (what, is_right) in expected.items():
        if name in schema.names and not is_right(schema.field(name).type):
            raise WrongUseError(f"{place}: column {name} must hold {what}, found {schema.field(name).type}")


def _is_text(kind: pyarrow.DataType) -> bool:
    import pyarrow.types as kinds

    values = kind.value_type if kinds.is_dictionary(kind) else kind
    return any((kinds.is_string(values), kinds.is_large_string(values), kinds.is_string_view(values)))


def _groups(
    batch: pyarrow.RecordBatch, column: str, *, given: Any, place: str
) -> Iterator[tuple[Any, pyarrow.RecordBatch]]:
    import pyarrow
    import pyarrow.compute as pc

    if given is not None or column not in batch.schema.names:
        yield given, batch
        return
    values = batch.column(column)
    for value in pc.unique(values).to_pylist():
        if value is None:
            raise WrongUseError(f"{place}: a row has no {column}")
        yield value, batch.filter(pc.equal(values, pyarrow.scalar(value, values.type)))


def packed_columns(batch: pyarrow.RecordBatch, *, with_offset: bool) -> Iterator[pyarrow.RecordBatch]:
    """Yield the columns that make up a record, in pieces: the increasing offsets of one piece fit one segment."""
    import pyarrow.types as kinds

    wanted = (*_PACKED_COLUMNS, "offset") if with_offset else _PACKED_COLUMNS
    rows = batch.select([name for name in wanted if name in batch.schema.names])
    offsets = rows.column("offset") if "offset" in rows.schema.names else None
    if offsets is None or offsets.null_count or not kinds.is_integer(offsets.type):
        yield rows
        return
    numbers = offsets.to_numpy(zero_copy_only=False)
    first = 0
    while first < len(numbers):
        most = min(int(numbers[first]) + MAX_INT32, MAX_OFFSET)
        size = int(numbers[first:].searchsorted(most, side="right"))
        yield rows.slice(first, size)
        first += size
