"""Arrow: kstore.scan, which decodes logs into Arrow record batches without a copy, and packing of Arrow data.

Column names and types are those of Spark's Kafka source, plus columns for the fields of batch headers; see schema().
Importing this module requires pyarrow.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

try:
    import pyarrow as pa
except ModuleNotFoundError as error:
    if error.name != "pyarrow":
        raise
    raise ModuleNotFoundError(
        "this part of kstore needs the package pyarrow: pip install 'kstore[arrow]'", name=error.name
    ) from error

from kstore import frames
from kstore._core import BATCH_ROW_FIELDS, CONTROL_BIT, TRANSACTIONAL_BIT, Columns, ExportedBatch
from kstore.compression import CompressionType
from kstore.config import MAX_INT32, MAX_INT64, LogConfig
from kstore.errors import LogReplacedError, checked_int
from kstore.log.damage import OnError, OnSkip, SkippedRange
from kstore.log.env import DEFAULT_ENV, Env, StrPath, is_same_file
from kstore.log.files.names import PartitionDirectory, find_partitions
from kstore.log.log import DEFAULT_PLAN_BYTES, Isolation, Log
from kstore.log.opening import open_log
from kstore.log.plan import ScanRange
from kstore.log.scan import ColumnSelection, Mode, Rows, check_junction, read_ahead, scan_around_damage, scan_columns
from kstore.log.segment.records import LastBatch
from kstore.log.skipping import SkipReport, goes_on
from kstore.record.batches import MemoryRecords
from kstore.record.packing import BinaryColumn, HeadersColumn, Int64Column, RecordColumns, pack_columns
from kstore.types import INTERNAL_TOPICS, MAX_OFFSET, TopicPartition

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl

Binary = Literal["copy", "view"]
# A bound of offsets: one for all partitions, or one for each.
Offsets: TypeAlias = int | Mapping[TopicPartition, int]
Time: TypeAlias = int | datetime
_Batches: TypeAlias = Generator[pa.RecordBatch, None, None]

# Two sets of columns exist at a time, one being filled and one being read. Both together should fit the L2 cache.
DEFAULT_BATCH_BYTES = 1024 * 1024
# Size of a range that one thread decodes ahead of the reader. Decompressed to a few times its size, it should still fit
# the memory allowed per thread.
THREAD_RANGE_BYTES = 8 * 1024 * 1024
_THREAD_BYTES_AHEAD = 16 * 1024 * 1024
# Memory of the Python objects of a table. It bounds the number of tables decoded ahead.
_LEAST_TABLE_BYTES = 4096
_SHOWN_PARTITIONS = 5
_DEFAULTS = LogConfig()

_logger = logging.getLogger(__name__)

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_HEADERS = pa.list_(pa.field("element", _HEADER))
_TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": _HEADERS,
    "magic": pa.int8(),
    "codec": pa.string(),
    "leaderEpoch": pa.int32(),
    "producerId": pa.int64(),
    "producerEpoch": pa.int16(),
    "sequence": pa.int32(),
    "isTransactional": pa.bool_(),
    "isControl": pa.bool_(),
    "position": pa.int64(),
}
_LARGEST_BATCH_BYTES = 1 << 30
DEFAULT_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")

_FIELD = {name: number for number, name in enumerate(BATCH_ROW_FIELDS)}
_PER_BATCH: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "timestampType": ("timestamp_type", lambda timestamp_type: timestamp_type),
    "magic": ("magic", lambda magic: magic),
    "leaderEpoch": ("leader_epoch", lambda epoch: epoch),
    "producerId": ("producer_id", lambda producer_id: producer_id),
    "producerEpoch": ("producer_epoch", lambda epoch: epoch),
    "isTransactional": ("attributes", lambda attributes: attributes & TRANSACTIONAL_BIT != 0),
    "isControl": ("attributes", lambda attributes: attributes & CONTROL_BIT != 0),
    "position": ("position", lambda position: position),
}
_CODEC_LABELS = pa.array([codec.label for codec in CompressionType])


def schema(columns: Sequence[str] | None = None, *, binary: Binary = "copy", strings: Iterable[str] = ()) -> pa.Schema:
    """Return the Arrow schema of these columns, in this order. All fields are nullable.

    Args: columns: None = key, value, topic, partition, offset, timestamp, timestampType, headers; also available are
        magic, codec, leaderEpoch, producerId, producerEpoch, sequence, isTransactional, isControl, and position (byte
        position of the batch in its file). strings: those of key and value that are string columns, with U+FFFD for
        bytes that are not UTF-8. binary: for the other key and value columns, "copy" = binary, "view" = binary_view
        over the bytes read from the file.
    Raises: ValueError for an unknown or repeated column, no column, or an invalid `binary` or `strings`.
    """
    names = list(DEFAULT_COLUMNS if columns is None else columns)
    unknown = [name for name in names if name not in _TYPES]
    if unknown or not names or len(set(names)) != len(names):
        raise ValueError(f"columns must be some of {', '.join(_TYPES)}, each once; got {names}")
    if binary not in ("copy", "view"):
        raise ValueError(f'binary must be "copy" or "view", got {binary!r}')
    as_text = {strings} if isinstance(strings, str) else set(strings)
    if not as_text <= {"key", "value"}:
        raise ValueError(f"strings must be some of key and value, got {sorted(as_text)}")
    types = dict(_TYPES)
    for name in ("key", "value"):
        types[name] = pa.string() if name in as_text else pa.binary_view() if binary == "view" else pa.binary()
    return pa.schema([pa.field(name, types[name]) for name in names])


def record_batches(
    ranges: Iterable[ScanRange],
    *,
    columns: Sequence[str] | None = None,
    binary: Binary = "copy",
    batch_bytes: int = DEFAULT_BATCH_BYTES,
    threads: int = 1,
    config: LogConfig = _DEFAULTS,
    strings: Iterable[str] = (),
    verify_crc: bool = True,
    env: Env = DEFAULT_ENV,
    on_error: OnError = "raise",
    on_skip: OnSkip | None = None,
) -> Iterator[pa.RecordBatch]:
    """Decode ranges into record batches of about batch_bytes, in the order of the ranges and their offsets.

    A record without a timestamp (-1 ms; all of magic 0) has null. So has one whose timestamp does not fit int64
    microseconds; the first such one of a pass is logged as a warning.
    Args: columns, binary, strings: see schema(); threads: number of decoding threads, including the caller's; on_error:
        "skip" leaves out damaged batches, and everything from bad framing to the next batch whose place in the log is
        proven; on_skip: called in the thread that iterates with each kstore.SkippedRange, before the rows after it;
        None: a warning is logged. A batch whose columns cannot be decoded gives no row. Nothing is written. Ranges for
        "skip" are planned with it.
    Raises: ValueError for an invalid argument; while iterating CorruptRecordError, InvalidRecordError,
        DecompressionError, Unsupported...Error, StorageError; LogReplacedError if a file was replaced after planning;
        MemoryLimitError, if headers are requested, for a record with more headers than config.max_decompressed_bytes
        allows. With on_error="skip" no CorruptionError.
    Lifetime: batches own their buffers ("view" columns keep the chunks they point into). Keeping one column of a batch
        keeps the buffers of all its columns, so request only the columns you need.
    Cost: one pass; columns that are not requested cost nothing. Memory for two batches, or with several threads for
        16 MiB and two batches per thread. on_error="skip" reads each file twice, and holds the columns of a batch of
        the log until it is decoded.
    """
    _check_sizes(batch_bytes=batch_bytes, threads=threads)
    plan = Projection(schema(columns, binary=binary, strings=strings), verify_crc=verify_crc)

    if goes_on(on_error):
        scan = partial(scan_around_damage, selection=plan.selection, batch_bytes=batch_bytes, config=config, env=env)
        return _around_damage(ranges, plan, scan, SkipReport(on_skip), threads=threads, env=env)
    if threads > 1:
        return _in_threads(ranges, plan, batch_bytes=batch_bytes, threads=threads, config=config, env=env)
    last = LastBatch()
    return (
        assembler.record_batch(columns)
        for scan_range in ranges
        for assembler in (Assembler(plan, topic=scan_range.topic, partition=scan_range.partition),)
        for columns in scan_columns(
            scan_range, plan.selection, batch_bytes=batch_bytes, config=config, env=env, last=last
        )
    )


def _check_sizes(*, batch_bytes: int, threads: int) -> None:
    checked_int("threads", threads, least=1, greatest=MAX_INT32)
    checked_int("batch_bytes", batch_bytes, least=1, greatest=_LARGEST_BATCH_BYTES)


class Scan:
    """A scan that any Arrow library can read: it implements __arrow_c_stream__ and iterates over record batches.

    Each iteration, each __arrow_c_stream__ and each method that returns rows reads the files again. Thread-safe.
    Args: since_ms, until_ms: leave out records with other timestamps than since_ms <= timestamp < until_ms; isolation:
        that the ranges were planned with, so that queries can plan less; None for ranges that are read as they are;
        options: those of record_batches.
    Attributes: ranges: the planned ScanRanges; schema: the pyarrow.Schema.
    """

    def __init__(
        self,
        ranges: Sequence[ScanRange],
        *,
        since_ms: int | None = None,
        until_ms: int | None = None,
        isolation: Isolation | None = None,
        **options: Any,
    ) -> None:
        self.ranges = list(ranges)
        self._isolation = isolation
        self._bounds_ms = since_ms, until_ms
        self._options = options
        self._times = None if since_ms is until_ms is None else _Times(since_ms, until_ms)
        _check_sizes(batch_bytes=options.get("batch_bytes", DEFAULT_BATCH_BYTES), threads=options.get("threads", 1))
        goes_on(options.get("on_error", "raise"))
        SkipReport(options.get("on_skip"))
        self.schema: pa.Schema = schema(
            options.get("columns"), binary=options.get("binary", "copy"), strings=options.get("strings", ())
        )

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        times, names = self._times, self.schema.names
        if times is None:
            return record_batches(self.ranges, **self._options)
        decoded = names if "timestamp" in names else [*names, "timestamp"]
        batches = record_batches(self.ranges, **{**self._options, "columns": decoded})
        return (part.select(names) for batch in batches for part in times.rows_in(batch))

    def __repr__(self) -> str:
        partitions = list(dict.fromkeys(str(one.topic_partition) for one in self.ranges))
        more = f", ... {len(partitions)} in all" if len(partitions) > _SHOWN_PARTITIONS else ""
        return (
            f"Scan(partitions=[{', '.join(partitions[:_SHOWN_PARTITIONS])}{more}], ranges={len(self.ranges)}, "
            f"size_in_bytes={sum(one.size_in_bytes for one in self.ranges)}, columns=[{', '.join(self.schema.names)}])"
        )

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a pyarrow.RecordBatchReader that reads the files once."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def to_table(self) -> pa.Table:
        """Read everything into one pyarrow.Table in memory."""
        return self.to_reader().read_all()

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """Read everything into a pandas.DataFrame: key and value are objects of bytes, timestamps datetime64 in UTC.

        Args: options: those of pyarrow.Table.to_pandas, such as types_mapper=pandas.ArrowDtype to keep Arrow's types.
        Raises: ModuleNotFoundError without pandas.
        """
        return self.to_table().to_pandas(**options)

    def to_polars(self) -> pl.DataFrame:
        """Read everything into a polars.DataFrame.

        Raises: ModuleNotFoundError without polars.
        """
        import polars

        return polars.DataFrame(self)

    def to_polars_lazy(self) -> pl.LazyFrame:
        """Return a polars.LazyFrame that reads when it is collected, and only what the query asks for.

        Columns are pushed down, and so are conditions joined by `&` that compare offset, timestamp (from below), topic
        or partition with constants.
        Raises: ModuleNotFoundError without polars; while it is collected, polars.exceptions.ComputeError with the
            message of the error of kstore.
        Cost: for bounds of offsets or time, planning the partitions again when it is collected.
        """
        return frames.lazy_frame(self)

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection, name: str) -> duckdb.DuckDBPyRelation:
        """Register the scan as a view of a DuckDB connection and return it as a relation; each query reads the files.

        Columns are pushed down, and so are conditions joined by AND that compare "offset", timestamp (from below),
        topic or partition with constants. OFFSET is a keyword of SQL, so that this column needs quotes.
        Lifetime: until the connection is closed or the view is unregistered.
        Cost: as for to_polars_lazy.
        """
        connection.register(name, frames.dataset(self))
        return connection.view(name)

    def narrowed(self, columns: Sequence[str], bounds: frames.Bounds, *, copies: bool = False) -> Scan:
        """Return a scan of the same snapshot with these columns of it that leaves out rows outside of `bounds` where
        it can do so without reading them.

        Args: copies: whether key and value are copied even if this scan has views.
        Raises: LogReplacedError if a file was replaced since the scan was planned; the errors of scan.
        """
        names = [name for name in self.schema.names if name in columns] or self.schema.names[:1]
        options = {**self._options, "columns": names}
        options["strings"] = tuple(name for name in options.get("strings", ()) if name in names)
        if copies:
            options["binary"] = "copy"
        since_ms, until_ms = self._bounds_ms
        ranges = self._ranges_within(bounds)
        return Scan(ranges, since_ms=since_ms, until_ms=until_ms, isolation=self._isolation, **options)

    def _ranges_within(self, bounds: frames.Bounds) -> list[ScanRange]:
        start, end = bounds.start_offset or 0, MAX_OFFSET if bounds.end_offset is None else bounds.end_offset
        ranges = [
            one
            for one in self.ranges
            if bounds.may_have(one.topic, one.partition) and one.start_offset < end and one.end_offset > start
        ]
        since_ms = self._bounds_ms[0] if bounds.since_ms is None else bounds.since_ms
        if self._isolation is None or (start, end, bounds.since_ms) == (0, MAX_OFFSET, None):
            return ranges
        found: list[ScanRange] = []
        for path, group in groupby(ranges, key=lambda one: one.path):
            found += self._planned_again(path, list(group), (start, end), since_ms=since_ms)
        return found

    def _planned_again(
        self, path: str, planned: Sequence[ScanRange], offsets: tuple[int, int], *, since_ms: int | None
    ) -> list[ScanRange]:
        """Return ranges for the records of planned ones with [start, end) offsets, by the indexes of the log.

        Ranges up to an end that is found by reading are kept or left out whole.
        """
        start, end = max(planned[0].start_offset, offsets[0]), min(planned[-1].end_offset, offsets[1])
        options, isolation = self._options, self._isolation or "read_uncommitted"
        on_error = options.get("on_error", "raise")
        with open_log(path, config=options.get("config", _DEFAULTS)) as log:
            if planned[-1].end_offset == MAX_OFFSET:
                start, _ = log.held_offsets(start, since_ms=since_ms, isolation=isolation, on_error=on_error)
                return [one for one in planned if one.end_offset > start]
            size = THREAD_RANGE_BYTES if options.get("threads", 1) > 1 else None
            limits = {"since_ms": since_ms, "isolation": isolation, "on_error": on_error}
            found = list(_bounded_ranges(log, (start, end), size=size, **limits))
        listed = {file: identity for one in planned for file, identity in one.identities}
        for file, identity in (place for one in found for place in one.identities):
            if file in listed and not is_same_file(identity, listed[file]):
                raise LogReplacedError(f"{file} was replaced since the scan was planned: scan again", path=file)
        return found

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)


class _Times:
    """The timestamps t with since_ms <= t < until_ms, None for no bound; no timestamp counts as -1 ms, as in a log."""

    def __init__(self, since_ms: int | None, until_ms: int | None) -> None:
        if since_ms is not None and until_ms is not None and since_ms > until_ms:
            raise ValueError(f"since must not be after until, got {since_ms} and {until_ms} ms")
        # MAX_INT64 is not a whole number of milliseconds, so that no record has this timestamp.
        self._least_us = -MAX_INT64 if since_ms is None else min(max(since_ms * 1000, -MAX_INT64), MAX_INT64)
        self._end_us = MAX_INT64 if until_ms is None else min(max(until_ms * 1000, -MAX_INT64), MAX_INT64)

    def rows_in(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a batch with these timestamps, in order, without a copy; it has a column `timestamp`."""
        stamps = batch.column("timestamp").cast(pa.int64()).fill_null(-1000).to_numpy(zero_copy_only=False)
        is_in = (stamps >= self._least_us) & (stamps < self._end_us)
        if is_in.all():
            yield batch
            return
        # Slices, since a view column has no filter in pyarrow.
        bounds = np.flatnonzero(np.diff(is_in, prepend=False, append=False))
        for start, end in zip(bounds[::2].tolist(), bounds[1::2].tolist(), strict=True):
            yield batch.slice(start, end - start)


def scan(
    source: StrPath | Iterable[StrPath | ScanRange],
    *,
    columns: Sequence[str] | None = None,
    topics: Iterable[str] | None = None,
    partitions: Iterable[int] | int | None = None,
    start_offset: Offsets | None = None,
    end_offset: Offsets | None = None,
    since: Time | None = None,
    until: Time | None = None,
    isolation: Isolation = "read_uncommitted",
    binary: Binary = "copy",
    strings: Iterable[str] = (),
    batch_bytes: int = DEFAULT_BATCH_BYTES,
    threads: int = 1,
    config: LogConfig = _DEFAULTS,
    on_error: OnError = "raise",
    on_skip: OnSkip | None = None,
) -> Scan:
    """Scan partition directories, log.dirs roots, a list of these, or planned ranges, as an Arrow stream.

    Polars, DuckDB and pyarrow read the result directly, polars.DataFrame(kstore.scan(path)) for example. Use
    scan.to_pandas() for pandas: pandas.DataFrame(scan) would make one column of batches. See Scan for queries that read
    only what they need.
    Each partition is a snapshot of its files at this call: records that are appended later need another scan.
    Args: topics: a topic name or names; None = all but internal topics, which are included only if source is a
        single partition. partitions: a partition number or numbers; None = all. start_offset, end_offset: only records
        with start_offset <= offset < end_offset, for all partitions or by TopicPartition (those not named have no
        bound); what the log does not hold of it is left out. since, until: only records with since <= timestamp <
        until, compared record by record, in ms since the epoch or as a datetime, which is UTC without a zone; a null
        timestamp counts as -1 ms. isolation: "read_committed" leaves out aborted transactions and ends at the last
        stable offset. columns, binary, strings, batch_bytes, threads, on_error, on_skip: see record_batches; each
        iteration tells on_skip what it leaves out.
        Planned ranges are read as they are, except for since and until.
    Raises: ValueError for an invalid argument, for a topic or partition that is not found, or for offsets, partitions
        or isolation with planned ranges; LogNotFoundError, StorageError; CorruptRecordError, UnsupportedMagicError for
        damage that a bound has to be looked up in; while reading, the errors of record_batches.
    Cost: with since a lookup by time in each partition, with "read_committed" a header walk over each.
    """
    times = {"since_ms": _time_ms("since", since), "until_ms": _time_ms("until", until)}
    options: dict[str, Any] = {
        "columns": columns,
        "binary": binary,
        "strings": (strings,) if isinstance(strings, str) else tuple(strings),
        "batch_bytes": batch_bytes,
        "threads": threads,
        "config": LogConfig.or_default(config),
        "on_error": on_error,
        "on_skip": on_skip,
    }
    wanted = _Part(
        topics=None if topics is None else frozenset([topics] if isinstance(topics, str) else topics),
        partitions=_numbers_of(partitions),
        start=_offset_bound("start_offset", start_offset),
        end=_offset_bound("end_offset", end_offset),
        since_ms=times["since_ms"],
        isolation=isolation,
    )
    items = list(source) if isinstance(source, Iterable) and not isinstance(source, (str, bytes)) else [source]
    ranges = [item for item in items if isinstance(item, ScanRange)]
    paths = [item for item in items if not isinstance(item, ScanRange)]
    if ranges and (wanted.is_bounded or wanted.partitions is not None):
        raise ValueError("planned ranges have their offsets and isolation: expected paths with these arguments")
    found = Scan(ranges, **times, isolation=None if ranges else isolation, **options)
    if paths:
        found.ranges += _ranges_of(paths, wanted, threads=threads, config=config, on_error=on_error)
    return found


@dataclass(frozen=True, kw_only=True)
class _Part:
    """What to scan of the partitions of a root; None for no bound."""

    topics: frozenset[str] | None
    partitions: frozenset[int] | None
    start: Offsets | None
    end: Offsets | None
    since_ms: int | None
    isolation: Isolation

    def __post_init__(self) -> None:
        if self.isolation not in ("read_uncommitted", "read_committed"):
            raise ValueError(f'isolation must be "read_uncommitted" or "read_committed", got {self.isolation!r}')
        if isinstance(self.start, int) and isinstance(self.end, int) and self.start > self.end:
            raise ValueError(f"end_offset must not be below start_offset {self.start}, got {self.end}")

    @property
    def is_bounded(self) -> bool:
        return not (self.start is self.end is None and self.isolation == "read_uncommitted")

    def select(self, directories: Sequence[PartitionDirectory]) -> list[PartitionDirectory]:
        """Return the partitions to scan.

        Raises: ValueError if one that is named is not among them.
        """
        topics, numbers = self.topics, self.partitions
        if topics is not None and (missing := topics - {found.topic_partition.topic for found in directories}):
            raise ValueError(f"topics not found: {', '.join(sorted(missing))}")
        selected = [
            found
            for found in directories
            for topic, number in (found.topic_partition,)
            if (topic in topics if topics is not None else topic not in INTERNAL_TOPICS or len(directories) == 1)
            and (numbers is None or number in numbers)
        ]
        found_here = {found.topic_partition for found in selected}
        if numbers is not None and (gone := numbers - {number for _, number in found_here}):
            raise ValueError(f"partitions not found: {', '.join(map(str, sorted(gone)))}")
        for name, bound in (("start_offset", self.start), ("end_offset", self.end)):
            if isinstance(bound, Mapping) and (others := set(bound) - found_here):
                raise ValueError(f"{name} names partitions that are not scanned: {', '.join(sorted(map(str, others)))}")
        return selected


def _ranges_of(
    paths: Sequence[StrPath], wanted: _Part, *, threads: int, config: LogConfig, on_error: OnError
) -> Iterator[ScanRange]:
    size = THREAD_RANGE_BYTES if threads > 1 else None
    for directory in wanted.select(find_partitions(paths)):
        with open_log(directory.path, config=config) as log:
            if not wanted.is_bounded and wanted.since_ms is None:
                yield from log.scan_ranges(size, on_error=on_error)
                continue
            start, end = (_bound_of(bound, log.topic_partition) for bound in (wanted.start, wanted.end))
            yield from _bounded_ranges(
                log, (start, end), since_ms=wanted.since_ms, isolation=wanted.isolation, size=size, on_error=on_error
            )


def _bounded_ranges(
    log: Log,
    offsets: tuple[int | None, int | None],
    *,
    since_ms: int | None,
    isolation: Isolation,
    size: int | None,
    on_error: OnError,
) -> Iterator[ScanRange]:
    start, end = log.held_offsets(*offsets, since_ms=since_ms, isolation=isolation, on_error=on_error)
    if start < end:
        yield from log.plan(size or DEFAULT_PLAN_BYTES, start, end, isolation=isolation, on_error=on_error)


def _offset_bound(name: str, bound: Offsets | None) -> Offsets | None:
    if isinstance(bound, Mapping):
        return {TopicPartition(*place): checked_int(f"{name} of {place}", bound[place], least=0) for place in bound}
    return None if bound is None else checked_int(name, bound, least=0)


def _bound_of(bound: Offsets | None, topic_partition: TopicPartition) -> int | None:
    return bound.get(topic_partition) if isinstance(bound, Mapping) else bound


def _numbers_of(partitions: Iterable[int] | int | None) -> frozenset[int] | None:
    if partitions is None:
        return None
    numbers = partitions if isinstance(partitions, Iterable) else (partitions,)
    return frozenset(checked_int("partitions", number, least=0) for number in numbers)


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def _time_ms(name: str, time: Time | None) -> int | None:
    """Return ms since the epoch, rounded up."""
    if isinstance(time, datetime):
        moment = time if time.tzinfo is not None else time.replace(tzinfo=timezone.utc)
        return -((_EPOCH - moment) // timedelta(milliseconds=1))
    return None if time is None else checked_int(name, time)


class Projection:
    """The columns that the decoder must produce for a schema, and whether the scan logged its warning. Thread-safe."""

    def __init__(self, arrow_schema: pa.Schema, *, verify_crc: bool) -> None:
        names = set(arrow_schema.names)
        self._has_warned = False
        self.schema = arrow_schema
        decoded = {"key", "value", "timestamp", "headers"} & names
        self.selection = ColumnSelection(
            key=_mode(arrow_schema, "key"),
            value=_mode(arrow_schema, "value"),
            offset=bool({"offset", "sequence"} & names) or not decoded,
            timestamp="timestamp" in names,
            headers="headers" in names,
            verify_crc=verify_crc,
        )

    def warn_of_null(self, *, offset: int, timestamp_ms: int, partition: Mapping[str, object]) -> None:
        """Log a warning about the first timestamp of the scan that is null because it does not fit microseconds."""
        if self._has_warned:
            return
        self._has_warned = True
        where = "a batch in memory" if partition["topic"] is None else "{topic}-{partition}".format(**partition)
        _logger.warning(
            "timestamp %d ms of the record at offset %d of %s does not fit a column of microseconds: it is read "
            "as null, and so are later ones, without a warning",
            timestamp_ms,
            offset,
            where,
        )


def _mode(arrow_schema: pa.Schema, name: str) -> Mode | None:
    if name not in arrow_schema.names:
        return None
    kind = arrow_schema.field(name).type
    return "string" if pa.types.is_string(kind) else "view" if pa.types.is_binary_view(kind) else "copy"


# An array in the form that ExportedBatch takes: (length, null_count, buffers, children).
_Exported: TypeAlias = tuple[int, int, Sequence[Any], Sequence[Any]]


class Assembler:
    """Makes record batches from the Columns of one partition, without a copy. Not thread-safe.

    Constant columns are built once and shared by the batches.
    """

    def __init__(self, projection: Projection, *, topic: str | None = None, partition: int | None = None) -> None:
        self._projection = projection
        self._schema = projection.schema
        self._names: list[str] = projection.schema.names
        self._views = [name for name in ("key", "value") if getattr(projection.selection, name) == "view"]
        self._constants = {"topic": topic, "partition": partition}
        self._repeated: dict[str, tuple[object, _Exported]] = {}

    def record_batch(self, columns: Columns) -> pa.RecordBatch:
        if columns.lost_timestamp is not None:
            offset, timestamp_ms = columns.lost_timestamp
            self._projection.warn_of_null(offset=offset, timestamp_ms=timestamp_ms, partition=self._constants)
        arrays = [self._array(name, columns) for name in self._names]
        exported = ExportedBatch(arrays, row_count=columns.row_count)
        return pa.RecordBatch._import_from_c(exported.address, self._schema)

    def _array(self, name: str, columns: Any) -> _Exported:
        rows = columns.row_count
        if name == "offset":
            return rows, 0, (None, columns.offset), ()
        if name == "timestamp":
            return rows, columns.timestamp_null_count, (columns.timestamp_validity, columns.timestamp), ()
        if name == "key" or name == "value":
            return _variable(rows, getattr(columns, name), is_view=name in self._views)
        if name == "headers":
            return _headers(rows, columns.headers)
        if name in self._constants:
            return self._constant(name, self._constants[name], rows)
        return self._per_batch(name, columns)

    def _per_batch(self, name: str, columns: Any) -> _Exported:
        table = np.frombuffer(memoryview(columns.batches), np.int64).reshape(-1, len(BATCH_ROW_FIELDS))
        if name == "sequence":
            return _exported(pa.array(_sequences(columns, table), _TYPES[name]))
        if name == "codec":
            return _exported(_CODEC_LABELS.take(pa.array(_spread(table, table[:, _FIELD["attributes"]] & 0x07))))
        source, of = _PER_BATCH[name]
        per_batch = of(table[:, _FIELD[source]])
        if len(per_batch) and (per_batch == per_batch[0]).all():
            return self._constant(name, per_batch[0].item(), columns.row_count)
        return _exported(pa.array(_spread(table, per_batch), _TYPES[name]))

    def _constant(self, name: str, value: object, rows: int) -> _Exported:
        kept_value, kept = self._repeated.get(name, (None, None))
        if kept is None or kept_value != value or kept[0] < rows:
            kept = _exported(pa.repeat(pa.scalar(value, _TYPES[name]), rows))
            self._repeated[name] = value, kept
        _, null_count, buffers, children = kept
        return rows, rows if null_count else 0, buffers, children


def _spread(table: Any, per_batch: Any) -> Any:
    return np.repeat(per_batch, table[:, _FIELD["row_count"]])


def _sequences(columns: Any, table: Any) -> Any:
    """Return the sequence of each row: base sequence plus offset delta modulo 2^31, or -1 without a base sequence."""
    base = _spread(table, table[:, _FIELD["base_sequence"]])
    delta = np.frombuffer(columns.offset, np.int64) - _spread(table, table[:, _FIELD["base_offset"]])
    return np.where(base < 0, -1, (base + delta) & 0x7FFFFFFF)


def _exported(array: pa.Array) -> _Exported:
    """Return an array without children in exported form; it shares the buffers."""
    return len(array), array.null_count, array.buffers(), ()


def _variable(rows: int, parts: tuple[int, Any, Any, list[Any]], *, is_view: bool = False) -> _Exported:
    null_count, validity, index, data = parts
    sizes = [array("q", map(len, data))] if is_view else []
    return rows, null_count, (validity, index, *data, *sizes), ()


def _headers(rows: int, parts: tuple[Any, ...]) -> _Exported:
    null_count, validity, list_offsets, header_count, keys, values = parts
    children = (_variable(header_count, keys), _variable(header_count, values))
    structs = (header_count, 0, (None,), children)
    return rows, null_count, (validity, list_offsets), (structs,)


class _Decoded(NamedTuple):
    """Decoded columns and the Assembler that makes a record batch of them."""

    assembler: Assembler
    columns: Columns
    last: LastBatch


def _in_threads(
    ranges: Iterable[ScanRange],
    projection: Projection,
    *,
    batch_bytes: int,
    threads: int,
    config: LogConfig,
    env: Env,
) -> _Batches:
    """Decode in several threads. The calling thread makes the record batches: pyarrow releases the GIL to do so."""

    def decode(scan_range: ScanRange) -> Generator[_Decoded, None, None]:
        assembler = Assembler(projection, topic=scan_range.topic, partition=scan_range.partition)
        last = LastBatch()
        selection = projection.selection
        for columns in scan_columns(scan_range, selection, batch_bytes=batch_bytes, config=config, env=env, last=last):
            yield _Decoded(assembler, columns, last)

    before: LastBatch | None = None
    most_bytes_ahead = threads * _THREAD_BYTES_AHEAD
    for decoded in read_ahead(ranges, decode, threads=threads, size_of=_size_of, most_bytes_ahead=most_bytes_ahead):
        if before is not decoded.last:
            if before is not None:
                check_junction(before, decoded.last, env)
            before = decoded.last
        yield decoded.assembler.record_batch(decoded.columns)


class _Parted(NamedTuple):
    """Rows, or what was left out, and the Assembler that makes a record batch of rows."""

    assembler: Assembler
    item: Rows | SkippedRange
    last: LastBatch


def _around_damage(
    ranges: Iterable[ScanRange],
    projection: Projection,
    scan: Callable[..., Iterator[Rows | SkippedRange]],
    report: SkipReport,
    *,
    threads: int,
    env: Env,
) -> _Batches:
    """Decode in one or several threads, and report in this one what is left out."""
    alone = LastBatch() if threads == 1 else None

    def decode(scan_range: ScanRange) -> Generator[_Parted, None, None]:
        assembler = Assembler(projection, topic=scan_range.topic, partition=scan_range.partition)
        last = LastBatch() if alone is None else alone
        for item in scan(scan_range, last=last):
            yield _Parted(assembler, item, last)

    if threads == 1:
        found = (parted for scan_range in ranges for parted in decode(scan_range))
    else:
        most_bytes_ahead = threads * _THREAD_BYTES_AHEAD
        found = read_ahead(ranges, decode, threads=threads, size_of=_size_of_part, most_bytes_ahead=most_bytes_ahead)
    before: LastBatch | None = None
    with closing(found):
        for assembler, item, last in found:
            if isinstance(item, SkippedRange):
                report(item)
                continue
            if before is not None and before is not last:
                check_junction(before, last, env)
            before = last
            yield assembler.record_batch(item.columns).slice(0, item.row_count)


def _size_of_part(parted: _Parted) -> int:
    return _LEAST_TABLE_BYTES + (parted.item.columns.size_in_bytes if isinstance(parted.item, Rows) else 0)


def _size_of(decoded: _Decoded) -> int:
    return decoded.columns.size_in_bytes + _LEAST_TABLE_BYTES


def pack_record_batch(batch: pa.RecordBatch, **options: Any) -> Iterator[MemoryRecords]:
    """Pack an Arrow record batch into Kafka record batches, without a Python object per record.

    Args: batch: columns as for record_columns; options: those of kstore.record.pack_columns.
    Returns: an iterator of MemoryRecords with one or more record batches each.
    Raises: as record_columns and pack_columns.
    Cost: one pass over Arrow's buffers; key, value and header columns that are not (large) binary or string are first
        copied into such a layout.
    """
    return pack_columns(record_columns(batch), **options)


def to_record_batches(data: Any) -> Iterable[pa.RecordBatch]:
    """Return the record batches of a record batch, table, reader or any other object with __arrow_c_stream__.

    Raises: TypeError for anything else.
    """
    if isinstance(data, pa.RecordBatch):
        return (data,)
    if isinstance(data, pa.Table):
        batches: list[pa.RecordBatch] = data.to_batches()
        return batches
    if hasattr(data, "__arrow_c_stream__"):
        reader: Iterable[pa.RecordBatch] = pa.RecordBatchReader.from_stream(data)
        return reader
    raise TypeError(f"expected Arrow data, got {type(data).__name__}")


def record_columns(batch: pa.RecordBatch, *, timestamp_ms: int | None = None) -> RecordColumns:
    """Return the columns of an Arrow record batch in the form that pack_columns takes.

    timestamp (a timestamp of any unit, or int64 ms) is required unless timestamp_ms is given for all rows. key and
    value (binary or string of any layout), headers (list of struct of key and value) and offset (any integer type) are
    optional. Other columns are refused.
    Raises: ValueError for missing, unknown or repeated columns, wrong types, or a null header; TypeError if batch is
        not a pyarrow.RecordBatch.
    Lifetime: the result references the buffers of the batch.
    """
    if not isinstance(batch, pa.RecordBatch):
        raise TypeError(f"expected a pyarrow.RecordBatch, got {type(batch).__name__}")
    names = list(batch.schema.names)
    has_timestamp = "timestamp" in names
    if len(set(names)) != len(names) or not set(names) <= _PACKED or not (has_timestamp or timestamp_ms is not None):
        raise ValueError(f"expected timestamp and some of {', '.join(sorted(_PACKED))}, each once; got {names}")
    arrays = dict(zip(names, batch.columns, strict=True))
    timestamp: Int64Column | int = 0 if timestamp_ms is None else timestamp_ms
    units_per_ms = 1
    if has_timestamp:
        numbers, units_per_ms = _timestamps(arrays["timestamp"])
        timestamp = _numbers(numbers)
    return RecordColumns(
        row_count=batch.num_rows,
        timestamp=timestamp,
        key=_binary(arrays["key"]) if "key" in arrays else None,
        value=_binary(arrays["value"]) if "value" in arrays else None,
        headers=_header_lists(arrays["headers"]) if "headers" in arrays else None,
        offset=_offsets(arrays["offset"]) if "offset" in arrays else None,
        units_per_ms=units_per_ms,
    )


_PACKED = {"timestamp", "key", "value", "headers", "offset"}
_UNITS_PER_MS = {"ms": 1, "us": 1000, "ns": 1_000_000}


def _timestamps(array: pa.Array) -> tuple[pa.Array, int]:
    """Return the timestamps as an int64 or timestamp array, and the number of their units per millisecond."""
    if pa.types.is_int64(array.type):
        return array, 1
    if not pa.types.is_timestamp(array.type):
        raise ValueError(f"timestamp must be a timestamp or int64 column, got {array.type}")
    if array.type.unit == "s":
        array = array.cast(pa.timestamp("ms", array.type.tz))
    return array, _UNITS_PER_MS[array.type.unit]


def _offsets(array: pa.Array) -> Int64Column:
    if not pa.types.is_integer(array.type):
        raise ValueError(f"offset must be a column of integers, got {array.type}")
    return _numbers(array.cast(pa.int64()))


def _numbers(array: pa.Array) -> Int64Column:
    validity, data = array.buffers()
    return Int64Column(b"" if data is None else data, validity, array.offset)


def _binary(array: pa.Array) -> BinaryColumn:
    kind = array.type
    is_large = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
    if not _is_taken_as_it_is(kind):
        try:
            array, is_large = array.cast(pa.large_binary()), True
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            raise ValueError(f"expected a binary or string column, got {kind}") from error
    validity, offsets, data = array.buffers()
    return BinaryColumn(
        offsets=b"" if offsets is None else offsets,
        data=b"" if data is None else data,
        validity=validity,
        start=array.offset,
        offset_bytes=8 if is_large else 4,
    )


def _is_taken_as_it_is(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_large_string(kind)
    )


def _header_lists(array: pa.Array) -> HeadersColumn:
    kind = array.type
    is_large = pa.types.is_large_list(kind)
    if not (is_large or pa.types.is_list(kind)) or not pa.types.is_struct(kind.value_type):
        raise ValueError(f"headers must be a list of structs of key and value, got {kind}")
    names = [kind.value_type.field(number).name for number in range(kind.value_type.num_fields)]
    if names != ["key", "value"]:
        raise ValueError(f"headers must be a list of structs of key and value, got {kind}")
    if not all(_is_taken_as_it_is(kind.value_type.field(number).type) for number in range(2)):
        # The cast below copies all headers of the parent array. Concatenating first copies those of this slice only.
        array = pa.concat_arrays([array])
    structs = array.values
    if structs.null_count and array.flatten().null_count:
        raise ValueError("a header is null: expected a struct with a key")
    validity, offsets = array.buffers()[:2]
    return HeadersColumn(
        offsets=b"" if offsets is None else offsets,
        keys=_binary(structs.field(0)),
        values=_binary(structs.field(1)),
        validity=validity,
        start=array.offset,
        offset_bytes=8 if is_large else 4,
    )
