"""record_batches: decodes ranges of logs, in one or several threads, around damage if that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from kstore._core import ColumnDecoder, Columns
from kstore.arrow.assembler import Assembler, Projection
from kstore.arrow.columns import Binary, schema
from kstore.config import MAX_INT32, LogConfig, config_or_default
from kstore.env import DEFAULT_ENV, Env
from kstore.errors import checked_int
from kstore.log.damage import OnError, OnSkip, SkippedRange, SkipReport, skips_damage
from kstore.log.files.columns import column_decoder
from kstore.log.files.records import LastBatch
from kstore.log.plan import ScanRange
from kstore.log.read_ahead import read_ahead
from kstore.log.scan import ScanFiles, check_junction, scan_columns
from kstore.log.sound_scan import scan_around_damage
from kstore.record.batches import RecordBatch

_Batches: TypeAlias = Generator[pa.RecordBatch, None, None]

# Two sets of columns exist at a time, one being filled and one being read. Both together should fit the L2 cache.
DEFAULT_BATCH_BYTES = 1024 * 1024
_LARGEST_BATCH_BYTES = 1 << 30
_THREAD_BYTES_AHEAD = 16 * 1024 * 1024
# Memory of the Python objects of a table. It bounds the number of tables decoded ahead.
_LEAST_TABLE_BYTES = 4096


@dataclass(frozen=True, kw_only=True)
class ScanOptions:
    """The options of record_batches.

    Raises: ValueError or TypeError for an invalid one; schema() checks the columns.
    """

    columns: Sequence[str] | None = None
    binary: Binary = "copy"
    strings: tuple[str, ...] = ()
    batch_bytes: int = DEFAULT_BATCH_BYTES
    threads: int = 1
    config: LogConfig
    verify_crc: bool = True
    env: Env | None = None
    on_error: OnError = "raise"
    on_skip: OnSkip | None = None

    def __post_init__(self) -> None:
        _check_sizes(batch_bytes=self.batch_bytes, threads=self.threads)
        skips_damage(self.on_error)
        SkipReport(self.on_skip)

    def schema(self) -> pa.Schema:
        """Return the schema of the record batches.

        Raises: ValueError; see kstore.arrow.schema.
        """
        return schema(self.columns, binary=self.binary, strings=self.strings)


def strings_of(strings: Iterable[str]) -> tuple[str, ...]:
    """Return the names of string columns, of which one may be given as it is."""
    return (strings,) if isinstance(strings, str) else tuple(strings)


def record_batches(
    ranges: Iterable[ScanRange],
    *,
    columns: Sequence[str] | None = None,
    binary: Binary = "copy",
    batch_bytes: int = DEFAULT_BATCH_BYTES,
    threads: int = 1,
    config: LogConfig | None = None,
    strings: Iterable[str] = (),
    verify_crc: bool = True,
    env: Env | None = None,
    on_error: OnError = "raise",
    on_skip: OnSkip | None = None,
) -> Iterator[pa.RecordBatch]:
    """Decode ranges into record batches of about batch_bytes, in the order of the ranges and their offsets.

    A record without a timestamp (-1 ms; all of magic 0) has null. So has one whose timestamp does not fit int64
    microseconds; the first such one of a pass is logged as a warning.
    Args: columns, binary, strings: see schema(); threads: number of decoding threads, including the caller's, which
        also iterate `ranges`, one at a time; on_error: "skip" leaves out damaged batches, and everything from bad
        framing to the next batch whose place in the log is proven; on_skip: called in the thread that iterates with
        each kstore.SkippedRange, before the rows after it; None: a warning is logged. A batch whose columns cannot be
        decoded gives no row. Nothing is written. Ranges for "skip" are planned with it.
    Raises: ValueError for an invalid argument; while iterating CorruptRecordError, InvalidRecordError,
        DecompressionError, Unsupported...Error, StorageError; LogReplacedError if a file was replaced after planning;
        MemoryLimitError, if headers are requested, for a record with more headers than config.max_decompressed_bytes
        allows. With on_error="skip" no CorruptionError, except for more than a MiB of rows whose offsets contradict the
        batches after them.
    Lifetime: batches own their buffers ("view" columns keep the chunks they point into). Keeping one column of a batch
        keeps the buffers of all its columns, so request only the columns you need.
    Cost: one pass; columns that are not requested cost nothing. Memory for two batches, or with several threads for
        16 MiB and two batches per thread. on_error="skip" reads a file with a fault twice, and holds a batch or a MiB
        more, and the columns of a batch of the log until it is decoded.
    """
    options = ScanOptions(
        columns=columns,
        binary=binary,
        strings=strings_of(strings),
        batch_bytes=batch_bytes,
        threads=threads,
        config=config_or_default(config),
        verify_crc=verify_crc,
        env=env,
        on_error=on_error,
        on_skip=on_skip,
    )
    return decode_ranges(ranges, options, options.schema())


def decode_ranges(
    ranges: Iterable[ScanRange], options: ScanOptions, arrow_schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Decode ranges as record_batches does. Args: arrow_schema: that of the options."""
    projection = Projection(arrow_schema, verify_crc=options.verify_crc)
    scan = partial(
        scan_around_damage if skips_damage(options.on_error) else scan_columns,
        selection=projection.selection,
        batch_bytes=options.batch_bytes,
        config=options.config,
    )
    return _decode(ranges, projection, scan, SkipReport(options.on_skip), threads=options.threads, env=options.env)


class DecodedPart(Protocol):
    """A batch in memory, and the first offset of it that counts."""

    @property
    def batch(self) -> RecordBatch: ...

    @property
    def start_offset(self) -> int: ...


class PartDecoder:
    """Decodes batches in memory, of any partitions, into record batches of about batch_bytes.

    Args: as of record_batches.
    Raises: as record_batches.  Threads: not thread-safe.
    """

    def __init__(
        self, *, columns: Sequence[str] | None = None, binary: Binary = "copy", batch_bytes: int, config: LogConfig
    ) -> None:
        _check_sizes(batch_bytes=batch_bytes, threads=1)
        self._projection = Projection(schema(columns, binary=binary), verify_crc=True)
        self._batch_bytes = batch_bytes
        self._config = config

    def record_batches(self, parts: Iterable[DecodedPart]) -> list[pa.RecordBatch]:
        """Return the records of the parts, in their order; each record batch is of one partition."""
        batches: list[pa.RecordBatch] = []
        for partition, group in groupby(parts, key=lambda part: part.batch.topic_partition):
            topic, number = (None, None) if partition is None else partition
            assembler = Assembler(self._projection, topic=topic, partition=number)
            batches += self._decoded(list(group), assembler)
        return batches

    def _decoded(self, parts: Sequence[DecodedPart], assembler: Assembler) -> Iterator[pa.RecordBatch]:
        decoder, start_offset = self._decoder(parts[0].start_offset), parts[0].start_offset
        for part in parts:
            if part.start_offset < start_offset:
                # The log was truncated, and goes on from there.
                if decoder.row_count:
                    yield assembler.record_batch(decoder.take())
                decoder = self._decoder(part.start_offset)
            start_offset = part.start_offset
            position, data = part.batch.position, bytes(part.batch)
            decoder.start_file(position=position, end_position=position + len(data), path=part.batch.path)
            decoder.feed(data, position)
            yield from map(assembler.record_batch, decoder.full_tables())
        if decoder.row_count:
            yield assembler.record_batch(decoder.take())

    def _decoder(self, start_offset: int) -> ColumnDecoder:
        return column_decoder(
            self._projection.selection,
            batch_bytes=self._batch_bytes,
            config=self._config,
            start_offset=start_offset,
        )


def _check_sizes(*, batch_bytes: int, threads: int) -> None:
    """Raise ValueError or TypeError for a size of batches or a number of threads that record_batches does not take."""
    checked_int("threads", threads, least=1, greatest=MAX_INT32)
    checked_int("batch_bytes", batch_bytes, least=1, greatest=_LARGEST_BATCH_BYTES)


class _Reading(NamedTuple):
    """Of which partition a range is, and what it is read with."""

    partition: tuple[str, int]
    last: LastBatch
    files: ScanFiles


_Part: TypeAlias = tuple[_Reading, Columns | SkippedRange]


def _decode(
    ranges: Iterable[ScanRange],
    projection: Projection,
    scan: Callable[..., Iterator[Columns | SkippedRange]],
    report: SkipReport,
    *,
    threads: int,
    env: Env | None,
) -> _Batches:
    """Decode in one or several threads. The calling thread makes the record batches, since pyarrow releases the GIL to
    do so, and reports what is left out.
    """
    alone = LastBatch() if threads == 1 else None
    kept = ScanFiles(DEFAULT_ENV if env is None else env, most_idle=threads + 1)

    def decode(scan_range: ScanRange) -> Generator[_Part, None, None]:
        last = LastBatch() if alone is None else alone
        env_of_range = scan_range.env if env is None else env
        files = kept if env_of_range is kept.env else ScanFiles(env_of_range, most_idle=0)
        reading = _Reading((scan_range.topic, scan_range.partition), last, files)
        for item in scan(scan_range, last=last, files=files):
            yield reading, item

    if threads == 1:
        parts = (part for scan_range in ranges for part in decode(scan_range))
    else:
        most_bytes_ahead = threads * _THREAD_BYTES_AHEAD
        parts = read_ahead(ranges, decode, threads=threads, size_of=_size_of_part, most_bytes_ahead=most_bytes_ahead)
    before: LastBatch | None = None
    assembler: Assembler | None = None
    assembled: tuple[str, int] | None = None
    with closing(kept), closing(parts):
        for (partition, last, files), item in parts:
            if isinstance(item, SkippedRange):
                report(item)
                continue
            if before is not None and before is not last:
                check_junction(before, last, files)
            before = last
            if assembler is None or partition != assembled:
                assembler, assembled = Assembler(projection, topic=partition[0], partition=partition[1]), partition
            yield assembler.record_batch(item)


def _size_of_part(part: _Part) -> int:
    return _LEAST_TABLE_BYTES + (part[1].size_in_bytes if isinstance(part[1], Columns) else 0)
