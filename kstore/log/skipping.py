"""Reads that go on after damage: where they end, which transactions they may trust, and the batches that are left.

What is damage and what is sound is decided in damaged/sound.py. Here are the parts of a Log that use it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from kstore._core import BatchHeader, iterate_records, survey_records
from kstore.compression import decompress
from kstore.config import LogConfig
from kstore.errors import CorruptionError
from kstore.log.damage import OnError, OnSkip, SkippedRange
from kstore.log.damaged.sound import DamagedPart, SoundRun, skipped_batch
from kstore.log.files.records import BatchPlace
from kstore.log.plan import RawBatch, extents_around_damage
from kstore.log.segment.segment import LogSegment
from kstore.log.source import LogSource, SettledLog
from kstore.log.state.transactions import Transactions, settle_around_damage
from kstore.types import MAGIC_V2, MAX_OFFSET

_logger = logging.getLogger("kstore.log")


def goes_on(on_error: OnError) -> bool:
    """Whether a read goes on after damage.

    Raises: ValueError for a value that does not exist.
    """
    if on_error not in ("raise", "skip"):
        raise ValueError(f'on_error must be "raise" or "skip", got {on_error!r}')
    return on_error == "skip"


class SkipReport:
    """Calls a caller's function with each range that a read leaves out, once; without a function it logs a warning.

    Threads: for the thread that reads.
    """

    def __init__(self, on_skip: OnSkip | None) -> None:
        if on_skip is not None and not callable(on_skip):
            raise TypeError(f"on_skip must be callable, got {on_skip!r}")
        self._on_skip = on_skip
        # A read that has to start again meets the same damage again.
        self._reported: set[SkippedRange] = set()

    def __call__(self, skipped: SkippedRange | None) -> None:
        if skipped is None or skipped in self._reported:
            return
        self._reported.add(skipped)
        if self._on_skip is None:
            _logger.warning("%s", skipped)
        else:
            self._on_skip(skipped)


class LogEnd(NamedTuple):
    """Where a log ends for a read that goes on after damage: after its last sound batch.

    read_end_offset: the same, or MAX_OFFSET if damage follows, of which nothing shows how many records it held.
    """

    offset: int
    read_end_offset: int


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
    """The transactions for a read that goes on after damage; skipped: what it leaves out because their end is lost."""

    settled: SettledLog
    skipped: tuple[SkippedRange, ...]


def settled_around(source: LogSource) -> SettledAround:
    """Return the transactions of a log, as settle_around_damage finds them."""
    # Both before the walk: so that it finds every transaction decided below this offset, and so that a batch that is in
    # its file after the walk shows that the walk read what is before it.
    last_stable_offset, last = source.last_stable_offset, source.last_batch()
    context = source.context
    found = settle_around_damage(
        source.segments,
        topic_partition=context.topic_partition,
        check_unchanged=source.raise_change,
        config=context.config,
    )
    if last is not None:
        source.segments[-1].records.check_standing(last)
    if last_stable_offset is None:
        first_open = min((first_offset for _, first_offset in found.open), default=end_of(source).read_end_offset)
        last_stable_offset = max(first_open, source.log_start_offset)
    return SettledAround(SettledLog(Transactions(found.aborted, last_stable_offset), last), found.doubtful)


def sound_batches(
    source: LogSource,
    segments: Sequence[LogSegment],
    *,
    start_offset: int,
    end_offset: int,
    is_decoded: Callable[[BatchHeader], bool],
    standing: BatchPlace | None,
    report: SkipReport,
) -> Iterator[RawBatch]:
    """Yield the sound batches with offsets of [start_offset, end_offset), and report what is left out.

    Args: is_decoded: whether a batch is left out too if its records cannot be decoded; standing: as in read_batches.
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
                position=part.position, end_position=part.end_position, standing=standing
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
