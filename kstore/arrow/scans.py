"""kstore.scan: partitions, and parts of them, as a Scan that any Arrow library can read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from kstore._html import table_html
from kstore._progress import Progress, ProgressBar
from kstore.arrow import frames
from kstore.arrow.columns import DEFAULT_COLUMNS, Binary
from kstore.arrow.decoding import DEFAULT_BATCH_BYTES, ScanOptions, decode_ranges, strings_of
from kstore.config import MAX_INT64, LogConfig, config_or_default
from kstore.env import Env, StrPath, is_same_file, split_path
from kstore.errors import LogReplacedError
from kstore.log.damage import OnError, OnSkip
from kstore.log.files.names import PartitionDirectory
from kstore.log.files.selection import Offsets, Selection
from kstore.log.log import Log
from kstore.log.plan import DEFAULT_PLAN_BYTES, RangeSizes, ScanRange
from kstore.log.reads import Isolation
from kstore.store.opening import look_into, open_found, open_log, tiered_env
from kstore.types import MAX_OFFSET, Time, TopicPartition, time_ms

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl

    from kstore.values.decoded import Origin
    from kstore.values.formats import ValueFormat
    from kstore.values.providers import SchemaSource
    from kstore.values.registry import SchemaRegistry
    from kstore.values.typed import TypedRows, ValueMode

_SHOWN_PARTITIONS = 5


class Scan:
    """A scan that any Arrow library can read: it implements __arrow_c_stream__ and iterates over record batches.

    Each iteration, each __arrow_c_stream__ and each method that returns rows reads the files again. Thread-safe.
    Args: since_ms, until_ms: leave out records with other timestamps than since_ms <= timestamp < until_ms; isolation:
        that the ranges were planned with, so that queries can plan less; None for ranges that are read as they are;
        the others: as of record_batches.
    Attributes: ranges: the planned ScanRanges; schema: the pyarrow.Schema.
    """

    def __init__(
        self,
        ranges: Sequence[ScanRange],
        *,
        since_ms: int | None = None,
        until_ms: int | None = None,
        isolation: Isolation | None = None,
        columns: Sequence[str] | None = None,
        binary: Binary = "copy",
        strings: Iterable[str] = (),
        batch_bytes: int = DEFAULT_BATCH_BYTES,
        threads: int = 1,
        config: LogConfig | None = None,
        verify_crc: bool = True,
        env: Env | None = None,
        on_error: OnError = "raise",
        on_skip: OnSkip | None = None,
        typed: TypedRows | None = None,
    ) -> None:
        self.ranges = list(ranges)
        self._isolation = isolation
        self._bounds_ms = since_ms, until_ms
        self._times = None if since_ms is until_ms is None else _Times(since_ms, until_ms)
        self._typed = typed
        self._options = ScanOptions(
            columns=columns if typed is None else typed.base_columns,
            binary="view" if typed is not None and typed.reads_views else binary,
            strings=strings_of(strings),
            batch_bytes=batch_bytes,
            threads=threads,
            config=config_or_default(config),
            verify_crc=verify_crc,
            env=env,
            on_error=on_error,
            on_skip=on_skip,
        )
        self._base = self._options.schema()
        self.schema: pa.Schema = self._base if typed is None else typed.schema(self._base)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self._batches(self.ranges)

    def _batches(self, ranges: Iterable[ScanRange]) -> Iterator[pa.RecordBatch]:
        if self._typed is None and self._times is None:
            return decode_ranges(ranges, self._options, self.schema)
        batches = self._timely_batches(ranges)
        if self._typed is None:
            return batches
        return self._typed.batches(batches, most_bytes=self._options.config.max_decompressed_bytes)

    def _timely_batches(self, ranges: Iterable[ScanRange]) -> Iterator[pa.RecordBatch]:
        """Yield the rows within the bounds of time; keys and values are bytes or text."""
        times, names = self._times, self._base.names
        if times is None:
            return decode_ranges(ranges, self._options, self._base)
        options = replace(self._options, columns=names if "timestamp" in names else [*names, "timestamp"])
        batches = decode_ranges(ranges, options, options.schema())
        return (part.select(names) for batch in batches for part in times.rows_in(batch))

    def __repr__(self) -> str:
        partitions = list(dict.fromkeys(str(scan_range.topic_partition) for scan_range in self.ranges))
        more = f", ... {len(partitions)} in all" if len(partitions) > _SHOWN_PARTITIONS else ""
        return (
            f"Scan(partitions=[{', '.join(partitions[:_SHOWN_PARTITIONS])}{more}], ranges={len(self.ranges)}, "
            f"size_in_bytes={sum(scan_range.size_in_bytes for scan_range in self.ranges)}, "
            f"columns=[{', '.join(self.schema.names)}])"
        )

    def _repr_html_(self) -> str:
        """Return what is scanned, by partition, and the columns as tables, for notebooks; nothing is read."""
        by_partition: dict[TopicPartition, list[ScanRange]] = {}
        for scan_range in self.ranges:
            by_partition.setdefault(scan_range.topic_partition, []).append(scan_range)
        rows = [
            (
                *partition,
                min(scan_range.start_offset for scan_range in ranges),
                "log end" if (end := max(one.end_offset for one in ranges)) == MAX_OFFSET else end,
                sum(scan_range.size_in_bytes for scan_range in ranges),
            )
            for partition, ranges in by_partition.items()
        ]
        names = ("topic", "partition", "start_offset", "end_offset", "size_in_bytes")
        size = sum(scan_range.size_in_bytes for scan_range in self.ranges)
        title = f"Scan of {len(rows)} partitions: {len(self.ranges)} ranges, {size:,} bytes"
        columns = [(field.name, str(field.type)) for field in self.schema]
        return table_html(title, names, rows, count=len(rows)) + table_html(
            "Columns", ("column", "type"), columns, count=len(columns)
        )

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a pyarrow.RecordBatchReader that reads the files once."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def to_table(self, *, progress: Progress = False) -> pa.Table:
        """Read everything into one pyarrow.Table in memory.

        Args: progress: as of kstore.verify, told once a range.
        """
        if progress is False:
            return self.to_reader().read_all()
        with ProgressBar(progress, "scan") as bar:
            batches = self._batches(self._counted(bar))
            return pa.RecordBatchReader.from_batches(self.schema, batches).read_all()

    def _counted(self, bar: ProgressBar) -> Iterator[ScanRange]:
        bar.begin(sum(scan_range.size_in_bytes for scan_range in self.ranges))
        for scan_range in self.ranges:
            yield scan_range
            bar.add(scan_range.size_in_bytes)

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

    def _narrowed(self, columns: Sequence[str], bounds: frames.Bounds, *, copies: bool = False) -> Scan:
        """Return a scan of the same snapshot with these columns of it that leaves out rows outside of `bounds` where
        it can do so without reading them.

        Args: copies: whether key and value are copied even if this scan has views.
        Raises: LogReplacedError if a file was replaced since the scan was planned; the errors of scan.
        """
        names = [name for name in self.schema.names if name in columns] or self.schema.names[:1]
        typed = None if self._typed is None else self._typed.narrowed(names)
        base = names if typed is None else typed.base_columns
        options = replace(
            self._options,
            columns=base,
            strings=tuple(name for name in self._options.strings if name in base),
            binary="copy" if copies else self._options.binary,
        )
        since_ms, until_ms = self._bounds_ms
        ranges = self._ranges_within(bounds)
        return Scan(
            ranges, since_ms=since_ms, until_ms=until_ms, isolation=self._isolation, typed=typed, **vars(options)
        )

    def _ranges_within(self, bounds: frames.Bounds) -> list[ScanRange]:
        start, end = bounds.start_offset or 0, MAX_OFFSET if bounds.end_offset is None else bounds.end_offset
        ranges = [
            scan_range
            for scan_range in self.ranges
            if bounds.may_have(scan_range.topic, scan_range.partition)
            and scan_range.start_offset < end
            and scan_range.end_offset > start
        ]
        since_ms = self._bounds_ms[0] if bounds.since_ms is None else bounds.since_ms
        if self._isolation is None or (start, end, bounds.since_ms) == (0, MAX_OFFSET, None):
            return ranges
        narrowed: list[ScanRange] = []
        for path, group in groupby(ranges, key=lambda scan_range: scan_range.path):
            narrowed += self._planned_again(path, list(group), (start, end), since_ms=since_ms)
        return narrowed

    def _planned_again(
        self, path: str, planned: Sequence[ScanRange], offsets: tuple[int, int], *, since_ms: int | None
    ) -> list[ScanRange]:
        """Return ranges for the records of planned ones with [start, end) offsets, by the indexes of the log.

        Ranges up to an end that is found by reading are kept or left out whole.
        """
        start, end = max(planned[0].start_offset, offsets[0]), min(planned[-1].end_offset, offsets[1])
        isolation: Isolation = self._isolation or "read_uncommitted"
        on_error = self._options.on_error
        env = planned[0].env if self._options.env is None else self._options.env
        with open_log(path, config=self._options.config, env=env) as log:
            if planned[-1].end_offset == MAX_OFFSET:
                start, _ = log._held_offsets(start, since_ms=since_ms, isolation=isolation, on_error=on_error)
                return [scan_range for scan_range in planned if scan_range.end_offset > start]
            sizes = log._range_sizes(self._options.threads)
            bounded = _bounded_ranges(
                log, (start, end), since_ms=since_ms, isolation=isolation, sizes=sizes, on_error=on_error
            )
            ranges = list(bounded)
        listed = {file: identity for scan_range in planned for file, identity in scan_range.identities}
        for file, identity in (place for scan_range in ranges for place in scan_range.identities):
            if file in listed and not is_same_file(identity, listed[file]):
                raise LogReplacedError(f"{file} was replaced since the scan was planned: scan again", path=file)
        return ranges

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
    config: LogConfig | None = None,
    on_error: OnError = "raise",
    on_skip: OnSkip | None = None,
    value: ValueFormat | str | None = None,
    key: ValueFormat | str | None = None,
    schema: SchemaSource | None = None,
    schemas: StrPath | SchemaRegistry | None = None,
    mode: ValueMode = "PERMISSIVE",
    flatten: bool = False,
    tier: StrPath | None = None,
    tier_keys: Mapping[str, StrPath] | None = None,
    tier_epoch: int | None = None,
) -> Scan:
    """Scan partition directories, log.dirs roots, a list of these, or planned ranges, as an Arrow stream.

    Polars, DuckDB and pyarrow read the result directly; see Scan for pandas and for queries that read only a part.
    Each partition is a snapshot of its files at this call: records that are appended later need another scan.
    Args: topics: a topic name or names; None = all but internal topics, unless source is a single partition.
        partitions: a number or numbers; None = all. start_offset, end_offset: only records with start_offset <= offset
        < end_offset, for all partitions or by TopicPartition (those not named have no bound); what the log does not
        hold is left out. since, until: only records with since <= timestamp < until, in ms since the epoch or as a
        datetime with a time zone; a null timestamp counts as -1 ms. isolation: "read_committed" leaves out aborted
        transactions and ends at the last stable offset. columns, binary, strings, batch_bytes, threads, on_error,
        on_skip: see record_batches; each iteration tells on_skip. value, key: a ValueFormat or the name of one, for
        columns of it (docs/values.md); None = bytes. schema, schemas: as of ValueFormat, for formats given by name.
        mode: "FAILFAST" raises an error for what cannot be decoded, "PERMISSIVE" gives null, "DROPMALFORMED" leaves the
        row out. flatten: make columns of the fields of a record. tier, tier_keys, tier_epoch: as of open_log.
    Raises: ValueError for an invalid argument, for a topic or partition that is not found, or for offsets, partitions
        or isolation with planned ranges; LogNotFoundError, StorageError; CorruptRecordError, UnsupportedMagicError for
        damage that a bound has to be looked up in; while reading, the errors of record_batches.
    Cost: with since a lookup by time in each partition, with "read_committed" a header walk over each.
    """
    since_ms, until_ms = time_ms("since", since), time_ms("until", until)
    part = Selection.of(topics=topics, partitions=partitions, start_offset=start_offset, end_offset=end_offset)
    wanted = _Part(selection=part, since_ms=since_ms, isolation=isolation, tier=_Tier(tier, tier_keys, tier_epoch))
    formats, strings = _formats_of(strings, value=value, key=key, schema=schema, schemas=schemas)
    planned = _planned(source, wanted, threads=threads, config=config, on_error=on_error)
    return Scan(
        planned.ranges,
        since_ms=since_ms,
        until_ms=until_ms,
        isolation=isolation if planned.from_paths else None,
        columns=columns,
        binary=binary,
        strings=strings,
        batch_bytes=batch_bytes,
        threads=threads,
        config=config,
        env=planned.env,
        on_error=on_error,
        on_skip=on_skip,
        typed=planned.typed(formats, columns, mode=mode, flatten=flatten) if formats else None,
    )


def _formats_of(
    strings: Iterable[str],
    *,
    value: ValueFormat | str | None,
    key: ValueFormat | str | None,
    schema: SchemaSource | None,
    schemas: StrPath | SchemaRegistry | None,
) -> tuple[Mapping[Origin, ValueFormat], Iterable[str]]:
    """Return the formats of values and keys, and the columns that are read as text with them."""
    if value is key is schema is schemas is None:
        return {}, strings
    from kstore.values.formats import formats_of, text_columns

    formats = formats_of(value=value, key=key, schema=schema, schemas=schemas)
    return formats, text_columns(formats, strings) if formats else strings


class _Planned(NamedTuple):
    """What a scan reads: ranges, and the partitions that were found for them; none if ranges were given.

    env: of the tier, None without one.
    """

    ranges: list[ScanRange]
    directories: list[PartitionDirectory]
    from_paths: bool
    on_error: OnError
    env: Env | None

    def typed(
        self,
        formats: Mapping[Origin, ValueFormat],
        names: Sequence[str] | None,
        *,
        mode: ValueMode,
        flatten: bool,
    ) -> TypedRows:
        """Return what makes columns of keys and values.  Args, Raises: as of typed_rows."""
        from kstore.values.formats import Partitions
        from kstore.values.typed import typed_rows

        directories = self.directories or [_directory_of(scan_range) for scan_range in self.ranges]
        partitions = Partitions.of(directories, on_error=self.on_error)
        return typed_rows(formats, partitions, names=names, default=DEFAULT_COLUMNS, mode=mode, flatten=flatten)


def _directory_of(scan_range: ScanRange) -> PartitionDirectory:
    topic_partition = TopicPartition(scan_range.topic, scan_range.partition)
    return PartitionDirectory(topic_partition, scan_range.path, split_path(scan_range.path)[0], scan_range.env)


def _planned(
    source: StrPath | Iterable[StrPath | ScanRange],
    wanted: _Part,
    *,
    threads: int,
    config: LogConfig | None,
    on_error: OnError,
) -> _Planned:
    """Plan what is wanted of the paths of a source; ranges in it are kept as they are."""
    items = list(source) if isinstance(source, Iterable) and not isinstance(source, (str, bytes)) else [source]
    ranges = [item for item in items if isinstance(item, ScanRange)]
    paths = [item for item in items if not isinstance(item, ScanRange)]
    if ranges and (wanted.is_bounded or wanted.selection.partitions is not None):
        raise ValueError("planned ranges have their offsets and isolation: expected paths with these arguments")
    place, keys, epoch = wanted.tier
    if ranges and place is not None:
        raise ValueError("planned ranges say themselves what is in the tier: expected paths with tier")
    env = None
    if place is not None or keys or epoch is not None:
        env = tiered_env(paths, place, keys=keys, epoch=epoch, config=config)
    directories = wanted.selection.find(paths, env) if paths else []
    planned = _ranges_of(directories, wanted, threads=threads, config=config, on_error=on_error)
    return _Planned([*ranges, *planned], directories, not ranges, on_error, env)


class _Tier(NamedTuple):
    """Where the older segments are, and how they are read; as of open_log."""

    place: StrPath | None
    keys: Mapping[str, StrPath] | None
    epoch: int | None


@dataclass(frozen=True, kw_only=True)
class _Part:
    """What to scan of the partitions of a root and its tier."""

    selection: Selection
    since_ms: int | None
    isolation: Isolation
    tier: _Tier

    def __post_init__(self) -> None:
        if self.isolation not in ("read_uncommitted", "read_committed"):
            raise ValueError(f'isolation must be "read_uncommitted" or "read_committed", got {self.isolation!r}')

    @property
    def is_bounded(self) -> bool:
        return not (self.selection.start is self.selection.end is None and self.isolation == "read_uncommitted")


def _ranges_of(
    directories: Sequence[PartitionDirectory],
    wanted: _Part,
    *,
    threads: int,
    config: LogConfig | None,
    on_error: OnError,
) -> Iterator[ScanRange]:
    def ranges_of(directory: PartitionDirectory) -> list[ScanRange]:
        with open_found(directory, config) as log:
            sizes = log._range_sizes(threads)
            if not wanted.is_bounded and wanted.since_ms is None:
                if sizes is not None and directory != directories[-1]:
                    sizes = RangeSizes(sizes.max_bytes)
                return list(log._scan_ranges(sizes, on_error=on_error))
            return list(
                _bounded_ranges(
                    log,
                    wanted.selection.bounds_of(log.topic_partition),
                    since_ms=wanted.since_ms,
                    isolation=wanted.isolation,
                    sizes=sizes,
                    on_error=on_error,
                )
            )

    return chain.from_iterable(look_into(directories, ranges_of))


def _bounded_ranges(
    log: Log,
    offsets: tuple[int | None, int | None],
    *,
    since_ms: int | None,
    isolation: Isolation,
    sizes: RangeSizes | None,
    on_error: OnError,
) -> Iterator[ScanRange]:
    start, end = log._held_offsets(*offsets, since_ms=since_ms, isolation=isolation, on_error=on_error)
    if start < end:
        yield from log.plan(
            start_offset=start,
            end_offset=end,
            max_bytes=DEFAULT_PLAN_BYTES if sizes is None else sizes.max_bytes,
            isolation=isolation,
            on_error=on_error,
        )
