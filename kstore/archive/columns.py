"""Export into columns: the records of a part, in one file for each topic and date, as Parquet or Arrow.

Directories have Hive's form, topic=<topic>/date=<YYYY-MM-DD>; the date is that of the record's timestamp in UTC.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

from kstore.archive.files import RowFacts, RowFile, crc_of, facts_of_rows, read_rows
from kstore.archive.manifest import ExportedFile
from kstore.archive.options import ExportOptions
from kstore.archive.parts import PartResult, StagedFile, Work, described
from kstore.archive.target import Place
from kstore.config import MIB, LogConfig
from kstore.env import Env, join_path
from kstore.errors import CorruptManifestError
from kstore.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

    from kstore.archive.typed.topics import TypedTopic

# Hive's name for a partition by a null.
NO_DATE = "__HIVE_DEFAULT_PARTITION__"
# A part has at most this many open files; to open one more, the least recently used is finished, and a later record of
# its date starts another file.
MOST_OPEN_FILES = 8
_BATCH_BYTES = 1 * MIB
# Bounds on memory: a row group of this size ends even with fewer rows; and on the pending row groups of all files.
_ROW_GROUP_BYTES = 64 * MIB
_PENDING_BYTES = 96 * MIB
_DAY_US = 24 * 60 * 60 * 1_000_000
# Of a topic (up to 249 characters in Kafka) in the name of a file, which may have 255 bytes.
_MOST_TOPIC_CHARACTERS = 180
_ESCAPED = frozenset("\"#%'*/:=?\\\x7f{[]^")


def export_columns(
    work: Work,
    options: ExportOptions,
    place: Place,
    *,
    config: LogConfig,
    env: Env | None,
    typed: TypedTopic | None = None,
    threads: int = 1,
    on_offset: Callable[[int], None] = lambda _: None,
) -> PartResult:
    """Write the records of a part, or those of files that are joined, to new files in the staging directory.

    Args: env: of the source, None for that of each range; typed: the columns of keys and values with a format; threads:
        that decode; on_offset: called with the last offset of each batch.
    Raises: as kstore.scan while reading; StorageError.
    Cost: memory for two decoded batches for each thread, and one row group for each open file, at most 96 MiB in all.
    """
    damage: list[dict[str, Any]] = []
    if work.files:
        dated = ([rows] for rows in _rows_of_files(work, options, place, typed))
    else:
        batches = _rows_of_ranges(work, options, damage, typed, config=config, env=env, threads=threads)
        dated = (list(rows_by_day(batch)) for batch in batches)
    columns = list(options.columns) if typed is None else typed.schema.names
    with _DatedFiles(work, options, place, columns) as files:
        for rows in dated:
            on_offset(files.add(rows))
        finished = files.finish()
    return PartResult(work.part.number, tuple(finished), work.missing, tuple(damage))


def _rows_of_ranges(
    work: Work,
    options: ExportOptions,
    damage: list[dict[str, Any]],
    typed: TypedTopic | None,
    *,
    config: LogConfig,
    env: Env | None,
    threads: int,
) -> Iterator[pyarrow.RecordBatch]:
    from kstore.arrow import Scan

    scan = Scan(
        work.ranges,
        since_ms=options.since_ms,
        until_ms=options.until_ms,
        columns=decoded_columns(options.columns),
        strings=options.strings if typed is None else typed.strings,
        typed=None if typed is None else typed.rows,
        batch_bytes=_BATCH_BYTES,
        threads=threads,
        config=config,
        env=env,
        on_error=options.on_error,
        on_skip=lambda skipped: damage.append(described(skipped)),
    )
    return iter(scan)


def _rows_of_files(work: Work, options: ExportOptions, place: Place, typed: TypedTopic | None) -> Iterator[_Rows]:
    """Yield the rows of files to join, with dates and bounds from the manifest, since they need not be columns."""
    for file in work.files:
        path = join_path(place.target, file.path)
        check_content(path, file, place.env)
        times = tuple(0 if time is None else time * 1000 for time in (file.min_timestamp_ms, file.max_timestamp_ms))
        day = None if file.min_timestamp_ms is None else times[0] // _DAY_US
        for batch in read_rows(path, options, place.env):
            rows = batch if typed is None else typed.conformed(batch)
            yield _Rows(day, rows, file.first_offset, file.last_offset, *times)


def check_content(path: str, file: ExportedFile, env: Env) -> None:
    """Raise CorruptManifestError unless a file has the size and the CRC that the manifest says.  Cost: reads it."""
    found = crc_of(path, env)
    if found != (file.size_in_bytes, file.crc32c):
        raise changed_file(path, file, found)


def changed_file(path: str, file: ExportedFile, found: tuple[int, int]) -> CorruptManifestError:
    """Return the error for a file of the target that is not as the manifest says."""
    size, crc = found
    reason = f"expected {file.size_in_bytes} bytes with CRC-32C {file.crc32c:#010x}, found {size} with {crc:#010x}"
    return CorruptManifestError(f"{path} differs from the manifest: {reason}", path=path, reason=reason)


def check_row_file(path: str, file: ExportedFile, options: ExportOptions, env: Env) -> None:
    """Raise CorruptManifestError unless a file has the rows and the offsets that the manifest says.

    Cost: reads its footer, of an Arrow file the offsets too.
    """
    import pyarrow as pa

    expected = RowFacts(file.record_count, file.first_offset, file.last_offset)
    facts: object
    try:
        facts = facts_of_rows(path, options, env)
        if facts.first_offset is None:
            expected = RowFacts(file.record_count, None, None)
    except pa.ArrowException as error:
        facts = error
    if facts != expected:
        reason = f"expected {expected}, as the manifest says, found {facts}"
        raise CorruptManifestError(
            f"{path} differs from the manifest: {reason}", path=path, reason=reason, expected=expected, found=facts
        )


def decoded_columns(columns: Sequence[str]) -> list[str]:
    """Return the columns to decode: those given, and those that the names of files and directories need."""
    return [*columns, *(name for name in ("offset", "timestamp") if name not in columns)]


def directory_of(topic: str, date: str | None) -> str:
    """Return the directory of the records of a topic and date, None for those without a timestamp."""
    return f"topic={escaped(topic)}/date={NO_DATE if date is None else escaped(date)}"


def escaped(value: str) -> str:
    """Return a value as Hive escapes it in the name of a directory."""
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED or char < " " else char for char in value)


def _file_prefix(topic_partition: TopicPartition) -> str:
    """Return the beginning of the names of a partition's files. The directory has the whole name of the topic."""
    topic = escaped(topic_partition.topic)[:_MOST_TOPIC_CHARACTERS]
    hidden = "part-" if topic.startswith(("_", ".")) else ""
    return f"{hidden}{topic}-{topic_partition.partition}"


class _Rows(NamedTuple):
    """Rows of one date. day: since the epoch, None without timestamps; the bounds are in microseconds."""

    day: int | None
    batch: pyarrow.RecordBatch
    first_offset: int
    last_offset: int
    min_us: int
    max_us: int


class _DatedFiles:
    """The open files of a part, by date; a context manager that closes those that are not finished."""

    def __init__(self, work: Work, options: ExportOptions, place: Place, columns: list[str]) -> None:
        self._work = work
        self._columns = columns
        self._options = options
        self._place = place
        self._stack = ExitStack()
        self._open: dict[int | None, _DatedFile] = {}
        self._finished: list[StagedFile] = []

    def __enter__(self) -> _DatedFiles:
        return self

    def __exit__(self, *error: object) -> None:
        for file in self._open.values():
            file.close()

    def add(self, dated: Sequence[_Rows]) -> int:
        """Add rows, of each date at most once, and return the last offset."""
        last = -1
        for rows in dated:
            last = max(last, rows.last_offset)
            file = self._open.pop(rows.day, None)
            if file is None:
                if len(self._open) >= MOST_OPEN_FILES:
                    self._finish(next(iter(self._open)))
                place = self._work.part.topic_partition
                file = _DatedFile(place, rows.day, self._options, self._place, self._columns)
            # At the end of the dict is the file that was used last.
            self._open[rows.day] = file
            file.add(rows)
            # Files that are joined become one, whose bounds are known.
            if file.size_in_bytes >= self._options.file_bytes and not self._work.files:
                self._finish(rows.day)
        while sum(file.pending_bytes for file in self._open.values()) > _PENDING_BYTES:
            max(self._open.values(), key=lambda file: file.pending_bytes).flush()
        return last

    def finish(self) -> list[StagedFile]:
        """Finish all files and return them."""
        for day in list(self._open):
            self._finish(day)
        return self._finished

    def _finish(self, day: int | None) -> None:
        self._finished.append(self._open[day].finish())
        del self._open[day]


class _DatedFile:
    """One file under construction.

    Attributes: pending_bytes (of rows that are not in a row group yet).
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        day: int | None,
        options: ExportOptions,
        place: Place,
        columns: list[str],
    ) -> None:
        self._columns = columns
        self._topic_partition = topic_partition
        self._directory = directory_of(topic_partition.topic, None if day is None else date_of(day))
        self._options = options
        self._env = place.env
        self._name_end = place.name_end
        self._name = f"{uuid.uuid4().hex}.{options.format}"
        self._path = join_path(place.staging, self._name)
        self._file: RowFile | None = None
        self._pending: list[pyarrow.RecordBatch] = []
        self._pending_rows = 0
        self.pending_bytes = 0
        self._row_count = 0
        self._offsets = -1, -1
        self._times_us: tuple[int, int] | None = None

    @property
    def size_in_bytes(self) -> int:
        """The size of the row groups so far."""
        return 0 if self._file is None else self._file.size_in_bytes

    def add(self, rows: _Rows) -> None:
        """Add rows after the others, and write the row groups that are full."""
        self._offsets = rows.first_offset if self._row_count == 0 else self._offsets[0], rows.last_offset
        if rows.day is not None:
            known = self._times_us or (rows.min_us, rows.max_us)
            self._times_us = min(known[0], rows.min_us), max(known[1], rows.max_us)
        self._row_count += rows.batch.num_rows
        batch = rows.batch.select(self._columns)
        while self._pending_rows + batch.num_rows >= self._options.row_group_rows:
            fitting = self._options.row_group_rows - self._pending_rows
            self._keep(batch.slice(0, fitting))
            self.flush()
            batch = batch.slice(fitting)
        if batch.num_rows:
            self._keep(batch)
        if self.pending_bytes >= _ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the pending rows as a row group."""
        pending, self._pending, self._pending_rows, self.pending_bytes = self._pending, [], 0, 0
        if not pending:
            return
        if self._file is None:
            self._file = RowFile(self._path, pending[0].schema, self._options, self._env)
        self._file.write(pending)

    def finish(self) -> StagedFile:
        """Write what is pending and the end of the file."""
        self.flush()
        file = self._file
        if file is None:
            raise ValueError("a file without rows")
        with file:
            size, crc = file.finish()
        first, last = self._offsets
        name = f"{_file_prefix(self._topic_partition)}-{first:020d}-{last:020d}{self._name_end}.{self._options.format}"
        times = None if self._times_us is None else tuple(value // 1000 for value in self._times_us)
        entry = ExportedFile(
            f"{self._directory}/{name}",
            *self._topic_partition,
            first,
            last,
            self._row_count,
            size,
            crc,
            *(times or (None, None)),
        )
        return StagedFile(entry, self._name)

    def close(self) -> None:
        """Close a file that is not finished."""
        if self._file is not None:
            self._file.close()

    def _keep(self, batch: pyarrow.RecordBatch) -> None:
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        self.pending_bytes += batch.nbytes


def date_of(day: int) -> str:
    """Return the date of a day since the epoch, in ISO 8601."""
    import numpy as np

    return str(np.datetime64(day, "D"))


def rows_by_day(batch: pyarrow.RecordBatch) -> Iterator[_Rows]:
    """Yield the rows of each date in a batch, which has offset and timestamp; within a date in order."""
    import numpy as np
    import pyarrow as pa

    if not batch.num_rows:
        return
    offsets = batch.column("offset").to_numpy()
    stamps = batch.column("timestamp").cast(pa.int64())
    is_null = stamps.is_null().to_numpy(zero_copy_only=False) if stamps.null_count else None
    times = stamps.fill_null(0).to_numpy() if is_null is not None else stamps.to_numpy()
    least, most = int(times.min()), int(times.max())
    if is_null is None and least // _DAY_US == most // _DAY_US:
        yield _Rows(least // _DAY_US, batch, int(offsets[0]), int(offsets[-1]), least, most)
        return
    days = times // _DAY_US
    if is_null is not None:
        no_day = days.min() - 1
        days[is_null] = no_day
    starts = np.flatnonzero(np.diff(days, prepend=days[0] - 1))
    for day in np.unique(days[starts]):
        chosen = np.flatnonzero(days == day)
        first, last = int(chosen[0]), int(chosen[-1])
        is_run = last - first + 1 == len(chosen)
        rows = batch.slice(first, len(chosen)) if is_run else batch.take(pa.array(chosen))
        has_day = is_null is None or day != no_day
        bounds = (int(times[chosen].min()), int(times[chosen].max())) if has_day else (0, 0)
        yield _Rows(int(day) if has_day else None, rows, int(offsets[first]), int(offsets[last]), *bounds)
