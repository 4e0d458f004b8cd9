"""Reads: how a log answers reads that raise an error at damage: bounds, batches, records, lookups, ranges to scan.

The reads that leave damage out are ReadsAroundDamage, in skipping.py. A Log chooses between them once a call.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, TypeVar

from kstore._core import Record, RecordIterator, iterate_records
from kstore.compression import decompress
from kstore.errors import CorruptionError, KStoreError, OffsetOutOfRangeError, checked_index, checked_int
from kstore.log.damage import SkippedRange
from kstore.log.files.records import BatchPlace
from kstore.log.plan import (
    DEFAULT_PLAN_BYTES,
    Extent,
    RangeSizes,
    RawBatch,
    ScanRange,
    batches_of,
    extents,
    plan_ranges,
    started_ranges,
    unpassed_batches,
)
from kstore.log.segment.segment import LogSegment
from kstore.log.segment.time_search import first_from_time, first_with_largest_timestamp
from kstore.log.source import LogSource, SettledLog, SourcePart, closed_error, out_of_range
from kstore.record.batches import RecordBatch
from kstore.types import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_OFFSET,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    OffsetAndTimestamp,
)

if TYPE_CHECKING:
    from kstore.record.search import Passing

Item = TypeVar("Item")

_base_offset = attrgetter("base_offset")
# In place of a record that takes more to find than the index and one batch.
_UNPROVEN = Record(value=None)

Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]


class LogEnd(NamedTuple):
    """Where the records end that a read gets.

    read_end_offset: the same, or MAX_OFFSET for a read around damage if damage follows, of which nothing shows how many
    records it held.
    """

    offset: int
    read_end_offset: int


class Reads:
    """The reads of a log that raise an error where they meet damage.

    Args: keeps: what the iterators keep alive: a writer whose log is dropped while it is read keeps its lock.
    Raises: LogClosedError from every method after the log was closed; OffsetOutOfRangeError for offsets outside of its
        bounds, unless the method says otherwise; CorruptRecordError, UnsupportedMagicError when damage is met.
    Threads: thread-safe; each iterator belongs to one thread.
    """

    skips_damage = False

    def __init__(self, source: LogSource, *, keeps: object = None) -> None:
        self.source = source
        self._keeps = keeps

    # Bounds

    def end(self, isolation: Isolation) -> LogEnd:
        """Return where the records end.  Cost: as log_end_offset, or for committed records a header walk, once."""
        settled = self.settled(isolation)
        end = self.source.log_end_offset if settled is None else settled.transactions.last_stable_offset
        return LogEnd(end, end)

    def bounds(self, start_offset: int | None, end_offset: int | None) -> tuple[int, int]:
        """Return the offsets of a read, which default to the log's; an end after that of the log counts as that.

        Raises: ValueError for an end below the start.
        """
        start = self._start(start_offset)
        _, end = self.check_in_range(start)
        if end_offset is not None:
            end = min(checked_int("end_offset", end_offset), end)
        return ordered(start, end=end)

    def held_offsets(
        self, start_offset: int | None, end_offset: int | None, *, since_ms: int | None, isolation: Isolation
    ) -> tuple[int, int]:
        """Return start and end of the offsets of [start_offset, end_offset) that the log holds for readers with this
        isolation; they are equal if there are none. No offset is out of range.

        Args: since_ms: not before the first record with this timestamp or a later one; negative ones are no bound.
        Cost: a lookup by time; with "read_committed" that of transactions().
        """
        log_end, end = self._all_bounds(isolation)
        start = max(start_offset or 0, self.source.log_start_offset)
        if start > log_end:
            return start, start
        end = end if end_offset is None else min(end_offset, end)
        # Negative timestamps are special values of a lookup.
        if since_ms is not None and since_ms >= 0 and log_end == self.source.log_end_offset:
            with suppress(*((CorruptionError,) if self.skips_damage else ())):
                record = Reads.offset_for_timestamp(self, since_ms)
                start = end if record is None else max(start, record.offset)
        return start, max(start, end)

    def _all_bounds(self, isolation: Isolation) -> tuple[int, int]:
        """Return the end of the log, and up to where records of it are read."""
        log_end = self.source.log_end_offset
        return log_end, min(log_end, self.end(isolation).offset)

    def check_in_range(self, offset: int, *, log_end_offset: int | None = None) -> tuple[int, int]:
        """Return the start and the end of the log; raise OffsetOutOfRangeError for an offset outside of them."""
        self.check_open()
        source = self.source
        start, end = source.log_start_offset, source.log_end_offset if log_end_offset is None else log_end_offset
        if not start <= offset <= end:
            where = f"{source.context.topic_partition} in {source.context.directory}"
            message = f"offset {offset} is out of range of {where}: expected {start} to {end}"
            raise out_of_range(source, offset, message)
        return start, end

    def below_segments(self, offset: int, *, first_base_offset: int) -> OffsetOutOfRangeError:
        """Return the error for an offset that only tiered storage can have."""
        source = self.source
        where = f"{source.context.topic_partition} in {source.context.directory}"
        return out_of_range(
            source,
            offset,
            f"offset {offset} is below the first segment of {where}: expected {first_base_offset} to "
            f"{source.log_end_offset}; tiered storage may have it",
        )

    def check_open(self) -> None:
        """Raise LogClosedError if the log was closed."""
        if self.source.is_closed:
            raise closed_error(self.source.context)

    def segments_from(self, offset: int) -> tuple[LogSegment, ...]:
        """Return the segments that may hold an offset or a later one."""
        segments = self.source.segments
        return segments[max(bisect_right(segments, offset, key=_base_offset) - 1, 0) :]

    def settled(self, isolation: Isolation) -> SettledLog | None:
        """Return the transactions that a read has to know, None for uncommitted records."""
        return self.source.settled() if is_committed(isolation) else None

    def _start(self, start_offset: int | None) -> int:
        if start_offset is None or start_offset == EARLIEST:
            return self.source.log_start_offset
        return self.source.log_end_offset if start_offset == LATEST else checked_index("start_offset", start_offset)

    # Batches and records

    def batches(
        self,
        start_offset: int | None,
        end_offset: int | None,
        *,
        isolation: Isolation,
        max_bytes: int | None = None,
        passing: Passing | None = None,
    ) -> Iterator[RecordBatch]:
        """Iterate the batches that hold offsets of [start_offset, end_offset), with checked CRC; see Log.batches.

        Args: passing: what leaves out batches without a match, whose CRC it checks; None for all batches.
        """
        batches, part = self._watched(
            start_offset, end_offset, isolation, checks_crc=False, checks_control=True, passing=passing
        )
        return self._record_batches(batches, part, max_bytes=max_bytes)

    def records(
        self, start_offset: int | None, end_offset: int | None, *, isolation: Isolation, checks_crc: bool
    ) -> Iterator[Record]:
        """Iterate the records of [start_offset, end_offset); see Log.read."""
        batches, part = self._watched(start_offset, end_offset, isolation, checks_crc=checks_crc, checks_control=False)
        return self._records(batches, part, checks_crc=checks_crc)

    def record_at(self, offset: int, *, isolation: Isolation) -> Record | None:
        """Return the record at an offset; see Log.get."""
        record = self.source.answer(partial(self._proven_record, offset, isolation))
        if record is not _UNPROVEN:
            return record
        return next(self.records(offset, offset + 1, isolation=isolation, checks_crc=True), None)

    def _proven_record(self, offset: int, isolation: Isolation) -> Record | None:
        """Return the record at an offset, None if there is none; _UNPROVEN where the index and one batch do not show
        which.
        """
        source = self.source
        if source.is_closed:
            raise closed_error(source.context)
        settled = None if isolation == "read_uncommitted" else self.settled(isolation)
        if settled is None:
            end, last, is_left_out = source.log_end_offset, source.last_batch(), None
        else:
            end, last = settled.transactions.last_stable_offset, settled.last_batch
            is_left_out = settled.transactions.aborted_filter()
        if not source.log_start_offset <= offset < end:
            return None
        segments = source.segments
        segment = segments[-1]
        if offset < segment.base_offset:
            segment = segments[max(bisect_right(segments, offset, key=_base_offset) - 1, 0)]
        check = None if last is None else partial(segment.records.check_anchor, last)
        return segment.record_of_offset(offset, _UNPROVEN, check, is_left_out)

    def _watched(
        self,
        start_offset: int | None,
        end_offset: int | None,
        isolation: Isolation,
        *,
        checks_crc: bool,
        checks_control: bool,
        passing: Passing | None = None,
    ) -> tuple[Iterator[RawBatch], SourcePart]:
        watch = self.source.watch()
        part = SourcePart(self.source, lambda: self._part(start_offset, end_offset, isolation))
        batches = watch(
            lambda: self._raw_batches(part, checks_crc=checks_crc, checks_control=checks_control, passing=passing),
            part.start_offset,
            lambda raw: raw[1].last_offset,
        )
        return batches, part

    def _part(
        self, start_offset: int | None, end_offset: int | None, isolation: Isolation
    ) -> tuple[int, int, BatchPlace | None, SettledLog | None, tuple[SkippedRange, ...]]:
        """Return what a SourcePart needs of the current listing."""
        last = self.source.last_batch()
        return *self.bounds(start_offset, end_offset), last, self.settled(isolation), ()

    def _raw_batches(
        self,
        part: SourcePart,
        *,
        checks_crc: bool,
        checks_control: bool,  # noqa: ARG002 - only damage makes a difference
        passing: Passing | None,
    ) -> Iterator[RawBatch]:
        """Iterate the batches of the current segments.

        Args: checks_control: whether the records of control batches are decoded, so that damage of them is damage.
        """

        def find() -> Iterator[Extent]:
            part.look()
            return extents(
                self.source.segments,
                start_offset=part.start_offset,
                end_offset=part.end_offset,
                log_end_offset=self.source.log_end_offset,
            )

        found = self.source.answer(find)
        if passing is not None:
            return unpassed_batches(found, passing, anchor=part.last_batch, config=self.source.context.config)
        return batches_of(found, checks_crc=checks_crc, anchor=part.last_batch)

    def _record_batches(
        self, batches: Iterator[RawBatch], part: SourcePart, *, max_bytes: int | None
    ) -> Iterator[RecordBatch]:
        context = self.source.context
        size_in_bytes = 0
        try:
            for segment, header, data in batches:
                is_aborted = part.is_aborted is not None and part.is_aborted(header)
                size_in_bytes += 0 if is_aborted else header.size_in_bytes
                if max_bytes is not None and header.size_in_bytes < size_in_bytes > max_bytes:
                    return
                batch = RecordBatch(
                    data,
                    position=header.position,
                    path=segment.path,
                    topic_partition=context.topic_partition,
                    config=context.config,
                    allows_low_last_offset=self.skips_damage,
                )
                batch.verify()
                if not is_aborted:
                    yield batch
        except KStoreError as error:
            self.source.raise_change(error)
            raise

    def _records(self, batches: Iterator[RawBatch], part: SourcePart, *, checks_crc: bool) -> Iterator[Record]:
        read_segment, least_offset = None, 0
        try:
            for batch in batches:
                segment, header, _ = batch
                first_least = segment.base_offset if segment is not read_segment else least_offset
                read_segment, least_offset = segment, header.last_offset + 1
                if header.is_control or (part.is_aborted is not None and part.is_aborted(header)):
                    continue
                for record in self._records_of(batch, checks_crc=checks_crc, least_offset=first_least):
                    # A record after the last offset of its batch is where that is.
                    if part.start_offset <= record.offset and (
                        record.offset < part.end_offset or header.last_offset < part.end_offset
                    ):
                        yield record
        except KStoreError as error:
            self.source.raise_change(error)
            raise

    def _records_of(self, batch: RawBatch, *, checks_crc: bool, least_offset: int) -> RecordIterator:
        """Iterate the records of a batch, whose own CRC is not checked.

        Args: checks_crc: whether those inside of a wrapper are; least_offset: of its records, for magic 0 and 1.
        """
        segment, header, data = batch
        context = self.source.context
        return iterate_records(
            data,
            position=header.position,
            path=segment.path,
            topic_partition=context.topic_partition,
            decompress=decompress,
            max_decompressed_bytes=context.config.max_decompressed_bytes,
            verify_crc=checks_crc,
            least_offset=least_offset,
            allows_low_last_offset=self.skips_damage,
        )

    # Lookups by time

    def offset_for_timestamp(self, timestamp_ms: int) -> OffsetAndTimestamp | None:
        """Return the first record in offset order with this timestamp or a later one; see Log.offset_for_timestamp."""
        return self.source.answer(lambda: self._by_timestamp(timestamp_ms))

    def _by_timestamp(self, timestamp_ms: int) -> OffsetAndTimestamp | None:
        start = self.source.log_start_offset
        if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
            return OffsetAndTimestamp(start, NO_TIMESTAMP)
        if timestamp_ms == LATEST:
            return OffsetAndTimestamp(self.source.log_end_offset, NO_TIMESTAMP)
        segments = self.segments_from(start)
        # The log end that a damaged batch hides may be above the start.
        is_empty = start >= self.source.log_end_offset and not (segments and segments[-1].tail.status == "corrupt")
        if timestamp_ms == LATEST_TIERED or is_empty:
            return None
        if timestamp_ms == MAX_TIMESTAMP:
            return first_with_largest_timestamp(segments, start_offset=start, config=self.source.context.config)
        return first_from_time(segments, timestamp_ms, start_offset=start)

    # Ranges

    def ranges(
        self,
        sizes: RangeSizes,
        start_offset: int | None,
        end_offset: int | None,
        *,
        isolation: Isolation,
        part_of: tuple[int, int | None] | None = None,  # noqa: ARG002 - only damage is reported by one of several parts
    ) -> Iterator[ScanRange]:
        """Check the offsets of Log.plan, and return its ranges, which are computed lazily."""
        start, end = self.bounds(start_offset, end_offset)
        settled, last = self.settled(isolation), self.source.last_batch()
        if settled is not None:
            last = settled.last_batch
            end = max(start, min(end, settled.transactions.last_stable_offset))
        planned = self._planned(start, end_offset=end, sizes=sizes, last_batch=last)
        return planned if settled is None else settled_ranges(planned, settled)

    def scan_bounds(self, start_offset: int | None, end_offset: int | None, *, isolation: Isolation) -> tuple[int, int]:
        """Return the offsets of a scan by one reader; the end is MAX_OFFSET if the scan finds the end of the log, which
        saves a header walk.
        """
        start = self._start(start_offset)
        if end_offset is None and not is_committed(isolation) and self.source.answer(lambda: self.finds_end(start)):
            return start, MAX_OFFSET
        return self.bounds(start, end_offset)

    def scan_ranges(
        self, bounds: tuple[int, int], *, sizes: RangeSizes | None, isolation: Isolation
    ) -> Iterator[ScanRange]:
        """Return the ranges of a scan. Args: bounds: of scan_bounds; sizes: None for those that suit."""
        start_offset, end_offset = bounds
        if end_offset == MAX_OFFSET and not self.skips_damage:
            return self._planned(start_offset, end_offset=MAX_OFFSET, sizes=sizes, finds_end=True)
        return self.ranges(sizes or RangeSizes(DEFAULT_PLAN_BYTES), start_offset, end_offset, isolation=isolation)

    def scanned(
        self,
        start_offset: int | None,
        end_offset: int | None,
        decode: Callable[[Iterator[ScanRange]], Iterator[Item]],
        *,
        isolation: Isolation,
        sizes: RangeSizes | None,
    ) -> Iterator[Item]:
        """Iterate what `decode` makes of the ranges with the records of [start_offset, end_offset)."""
        source = self.source
        watch = source.watch()

        def find_bounds() -> tuple[int, tuple[int, int]]:
            return source.listing_number, self.scan_bounds(start_offset, end_offset, isolation=isolation)

        found_in, (start, end) = source.answer(find_bounds)

        def ranges() -> Iterator[ScanRange]:
            # Found again if the log was listed again.
            bounds = (start, end) if source.listing_number == found_in else find_bounds()[1]
            planned = self.scan_ranges(bounds, sizes=sizes, isolation=isolation)
            if sizes is None or self.skips_damage:
                return planned
            # What threads can begin with while the first range is planned.
            return chain(self._by(started_ranges, start_offset=bounds[0], max_bytes=sizes.max_bytes), planned)

        def decoded() -> Iterator[Item]:
            held = source.segments  # so that a writer that replaces them keeps their files
            yield from decode(source.answer(ranges))
            del held

        return watch(decoded, start, lambda _: end - 1)

    def finds_end(self, start: int) -> bool:
        """Whether a scan from an offset finds the end of the log, so that no header walk is needed for it."""
        self.check_open()
        source = self.source
        segments = source.segments
        if not segments or not source.log_start_offset <= start <= segments[-1].base_offset:
            return False
        return not source.knows_its_end

    def _planned(
        self,
        start_offset: int,
        *,
        end_offset: int,
        sizes: RangeSizes | None,
        finds_end: bool = False,
        last_batch: BatchPlace | None = None,
    ) -> Iterator[ScanRange]:
        return self._by(
            plan_ranges,
            start_offset=start_offset,
            end_offset=end_offset,
            log_end_offset=None if finds_end else self.source.log_end_offset,
            sizes=sizes,
            last_batch=last_batch,
        )

    def _by(
        self, plan: Callable[..., Iterator[ScanRange]], **options: int | RangeSizes | BatchPlace | None
    ) -> Iterator[ScanRange]:
        """Return the ranges of the log by a way to plan them."""
        context = self.source.context
        return plan(self.source.segments, context.topic_partition, path=context.directory, **options)


def settled_ranges(ranges: Iterable[ScanRange], settled: SettledLog) -> Iterator[ScanRange]:
    """Yield ranges with the transactions that their readers leave out."""
    for scan_range in ranges:
        bounds = {"start_offset": scan_range.start_offset, "end_offset": scan_range.end_offset}
        yield replace(scan_range, aborted=settled.transactions.aborted_between(**bounds))


def ordered(start: int, *, end: int) -> tuple[int, int]:
    """Return both offsets.  Raises: ValueError if the end is below the start."""
    if end < start:
        raise ValueError(f"end_offset must not be below start_offset {start}, got {end}")
    return start, end


def is_committed(isolation: Isolation) -> bool:
    """Whether only committed records are read.  Raises: ValueError for a value that does not exist."""
    if isolation not in ("read_uncommitted", "read_committed"):
        raise ValueError(f'isolation must be "read_uncommitted" or "read_committed", got {isolation!r}')
    return isolation == "read_committed"
