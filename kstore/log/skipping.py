"""ReadsAroundDamage: how a log answers reads that leave damage out and continue after it.

What is damage and what is sound is decided in damaged/sound.py. A read may trust only what damage before it can't have
changed: bounds come from the last sound batch, transactions from settle_around_damage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from kstore._core import BatchHeader, iterate_records, survey_records
from kstore.compression import decompress
from kstore.config import LogConfig
from kstore.errors import CorruptionError, checked_int
from kstore.log.damage import SkippedRange, SkipReport
from kstore.log.damaged.sound import DamagedPart, SoundRun, skipped_batch
from kstore.log.files.records import BatchPlace
from kstore.log.plan import RangeSizes, RawBatch, ScanRange, Share, extents_around_damage, plan_ranges_around_damage
from kstore.log.reads import Isolation, LogEnd, Reads, is_committed, ordered
from kstore.log.segment.segment import LogSegment
from kstore.log.source import LogSource, SettledLog, SourcePart
from kstore.log.state.transactions import Transactions, settle_around_damage
from kstore.types import MAGIC_V2, MAX_OFFSET, OffsetAndTimestamp

if TYPE_CHECKING:
    from kstore.record.search import Passing


class KeptTransactions:
    """The transactions that reads around damage found, kept while the log does not change.

    Threads: thread-safe; two that ask at the same time may both find them.
    """

    def __init__(self) -> None:
        self._kept: tuple[tuple[int, int, int | None], SettledAround] | None = None

    def of(self, source: LogSource) -> SettledAround:
        """Return the transactions of the log as it is now."""
        state = source.listing_number, source.log_end_offset, source.last_stable_offset
        kept = self._kept
        if kept is None or kept[0] != state:
            self._kept = kept = state, settled_around(source)
        return kept[1]


class ReadsAroundDamage(Reads):
    """The reads of a log that leave damage out; see Reads.

    Args: report: called with what is left out, before the records after it; kept: shared by the reads of one log;
        keeps: as of Reads.
    Raises: as Reads, but no CorruptionError.
    """

    skips_damage = True

    def __init__(self, source: LogSource, report: SkipReport, kept: KeptTransactions, *, keeps: object = None) -> None:
        super().__init__(source, keeps=keeps)
        self._report = report
        self._kept = kept

    def end(self, isolation: Isolation) -> LogEnd:
        """Return where the records end.  Cost: with committed records, a read of the log, once."""
        self.check_open()
        end = self.source.answer(lambda: end_of(self.source))
        around = self._around(isolation)
        if around is None:
            return end
        limit = around.settled.transactions.last_stable_offset
        return LogEnd(min(end.offset, limit), min(end.read_end_offset, limit))

    def bounds(self, start_offset: int | None, end_offset: int | None) -> tuple[int, int]:
        """Return the offsets of a read; the end is MAX_OFFSET for the end of a log that ends in damage."""
        log_end, end = self.source.answer(lambda: end_of(self.source))
        start = self._start(start_offset)
        self.check_in_range(start, log_end_offset=log_end)
        if end_offset is not None and checked_int("end_offset", end_offset) <= log_end:
            end = checked_int("end_offset", end_offset)
        return ordered(start, end=end)

    def _all_bounds(self, isolation: Isolation) -> tuple[int, int]:
        log_end, end = self.source.answer(lambda: end_of(self.source))
        around = self._around(isolation)
        return log_end, end if around is None else min(end, around.settled.transactions.last_stable_offset)

    def _around(self, isolation: Isolation) -> SettledAround | None:
        """Return the transactions that a read has to know, None for uncommitted records."""
        return self.source.answer(lambda: self._kept.of(self.source)) if is_committed(isolation) else None

    def offset_for_timestamp(self, timestamp_ms: int) -> OffsetAndTimestamp | None:
        if self.end("read_uncommitted").read_end_offset == self.source.log_end_offset:
            with suppress(CorruptionError):
                return super().offset_for_timestamp(timestamp_ms)
        start = self.source.log_start_offset
        for batch in self.batches(None, None, isolation="read_uncommitted"):
            if batch.header.max_timestamp_ms >= timestamp_ms:
                for record in batch:
                    if record.offset >= start and record.timestamp_ms >= timestamp_ms:
                        return OffsetAndTimestamp(record.offset, record.timestamp_ms)
        return None

    def _part(
        self, start_offset: int | None, end_offset: int | None, isolation: Isolation
    ) -> tuple[int, int, BatchPlace | None, SettledLog | None, tuple[SkippedRange, ...]]:
        last = self.source.last_batch()
        around = self._around(isolation)
        settled, skipped = (None, ()) if around is None else around
        return *self.bounds(start_offset, end_offset), last, settled, skipped

    def _raw_batches(
        self,
        part: SourcePart,
        *,
        checks_crc: bool,  # noqa: ARG002 - what is sound has a right CRC
        checks_control: bool,
        passing: Passing | None,  # noqa: ARG002 - the records of every batch are decoded, to leave out damaged ones
    ) -> Iterator[RawBatch]:
        def find() -> tuple[LogSegment, ...]:
            part.look()
            return self.source.segments

        def is_decoded(header: BatchHeader) -> bool:
            is_aborted = part.is_aborted is not None and part.is_aborted(header)
            return not is_aborted and (checks_control or not header.is_control)

        segments = self.source.answer(find)
        bounds = {"start_offset": part.start_offset, "end_offset": part.end_offset}
        for skipped in part.skipped:
            self._report(skipped.within(**bounds))
        yield from sound_batches(
            self.source, segments, **bounds, is_decoded=is_decoded, anchor=part.last_batch, report=self._report
        )

    def scan_bounds(self, start_offset: int | None, end_offset: int | None, *, isolation: Isolation) -> tuple[int, int]:
        del isolation
        return self.bounds(start_offset, end_offset)

    def ranges(
        self,
        sizes: RangeSizes,
        start_offset: int | None,
        end_offset: int | None,
        *,
        isolation: Isolation,
        part_of: tuple[int, int | None] | None = None,
    ) -> Iterator[ScanRange]:
        start, end = self.bounds(start_offset, end_offset)
        last, around = self.source.last_batch(), self._around(isolation)
        limit = MAX_OFFSET
        if around is not None:
            last, limit = around.settled.last_batch, around.settled.transactions.last_stable_offset
        end = max(start, min(end, limit))
        share = Share(start, end, start, end)
        if part_of is not None:
            read_start, read_end = self.bounds(*part_of)
            share = Share(start, end, read_start, max(read_start, min(read_end, limit)))
        context = self.source.context
        for planned in plan_ranges_around_damage(
            self.source.segments,
            context.topic_partition,
            path=context.directory,
            start_offset=start,
            end_offset=end,
            sizes=sizes,
        ):
            bounds = {"start_offset": planned.start_offset, "end_offset": planned.end_offset}
            owner = share._replace(**bounds)
            doubtful = () if around is None else map(owner.owned, around.skipped)
            yield replace(
                planned,
                aborted=() if around is None else around.settled.transactions.aborted_between(**bounds),
                last_batch=last,
                skipped=tuple(skipped for skipped in doubtful if skipped is not None),
                share=None if part_of is None else share,
            )


def end_of(source: LogSource) -> LogEnd:
    """Return where a log ends.

    Raises: LogReplacedError, StorageError.
    Cost: that of log_end_offset; if the log seems to end in a fault, a read from the last proven index entry on.
    """
    end, segments = source.log_end_offset, source.segments
    if not segments or segments[-1].tail.status != "corrupt":
        return LogEnd(end, end)
    last = segments[-1]
    end_position = last.scan_end_position
    start = last.floor_position(MAX_OFFSET, end_position=end_position)
    parts, fault = last.sound_parts(last.file_range(position=start, end_position=end_position))
    if fault is not None:
        source.raise_change(fault)
    for part in parts:
        if isinstance(part, SoundRun):
            walk = last.records.walk(position=part.position, end_position=part.end_position)
            end = max(end, walk.last_offset + 1)
    is_damaged = bool(parts) and isinstance(parts[-1], DamagedPart)
    return LogEnd(end, MAX_OFFSET if is_damaged else end)


class SettledAround(NamedTuple):
    """The transactions for a read that skips damage; skipped: what it leaves out because their end is lost."""

    settled: SettledLog
    skipped: tuple[SkippedRange, ...]


def settled_around(source: LogSource) -> SettledAround:
    """Return the transactions of a log, as settle_around_damage finds them."""
    # Both before the walk: so that it finds every transaction decided below this offset, and so that a batch that is in
    # its file after the walk shows that the walk read what is before it.
    last_stable_offset, last = source.last_stable_offset, source.last_batch()
    context = source.context
    around = settle_around_damage(
        source.segments,
        topic_partition=context.topic_partition,
        check_unchanged=source.raise_change,
        config=context.config,
    )
    if last is not None:
        source.segments[-1].records.check_anchor(last)
    if last_stable_offset is None:
        first_open = min((first_offset for _, first_offset in around.open), default=end_of(source).read_end_offset)
        last_stable_offset = max(first_open, source.log_start_offset)
    return SettledAround(SettledLog(Transactions(around.aborted, last_stable_offset), last), around.doubtful)


def sound_batches(
    source: LogSource,
    segments: Sequence[LogSegment],
    *,
    start_offset: int,
    end_offset: int,
    is_decoded: Callable[[BatchHeader], bool],
    anchor: BatchPlace | None,
    report: SkipReport,
) -> Iterator[RawBatch]:
    """Yield the sound batches with offsets of [start_offset, end_offset), and report what is left out.

    Args: is_decoded: whether a batch is left out too if its records cannot be decoded; anchor: as in read_batches.
    """

    def report_clipped(skipped: SkippedRange) -> None:
        report(skipped.within(start_offset=start_offset, end_offset=end_offset))

    context = source.context
    for extent in extents_around_damage(segments, start_offset=start_offset, end_offset=end_offset):
        segment, start, end, _, following_offset = extent
        piece = segment.file_range(position=start, end_position=end, following_offset=following_offset)
        parts, fault = segment.sound_parts(piece)
        if fault is not None:
            source.raise_change(fault)
        for part in parts:
            if isinstance(part, DamagedPart):
                report_clipped(part.skipped(piece, context.topic_partition, end_offset=end_offset))
                continue
            following = part.least_offset
            for header, data in segment.records.read_batches(
                position=part.position, end_position=part.end_position, anchor=anchor
            ):
                least_offset, following = following, header.last_offset + 1
                if max(header.base_offset if header.has_base_offset else 0, least_offset) >= end_offset:
                    return
                if header.last_offset < start_offset:
                    continue
                error = None
                if is_decoded(header):
                    error = _fault_of_records(data, header, segment, least_offset=least_offset, config=context.config)
                if error is None:
                    yield segment, header, data
                else:
                    place = (header, context.topic_partition, segment.path)
                    report_clipped(skipped_batch(*place, least_offset=least_offset, reason=error.reason))


def _fault_of_records(
    data: bytes, header: BatchHeader, segment: LogSegment, *, least_offset: int, config: LogConfig
) -> CorruptionError | None:
    """Return the error of decoding the records of a batch, None if there is none.  Cost: decompresses the batch."""
    try:
        records = iterate_records(
            data,
            position=header.position,
            path=segment.path,
            decompress=decompress,
            max_decompressed_bytes=config.max_decompressed_bytes,
            least_offset=least_offset,
            allows_low_last_offset=True,
        )
        if header.magic == MAGIC_V2:
            survey_records(records)
        else:
            for _ in records:
                pass
    except CorruptionError as error:
        return error
    return None
