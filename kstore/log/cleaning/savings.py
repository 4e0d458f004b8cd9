"""What one round of compaction would leave of a log, without writing anything: compaction_savings, of all of it;
plan_compaction, of what is due now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import NamedTuple

from kstore.config import LogConfig
from kstore.env import Env
from kstore.log.cleaning.cleanable import CleanableLog, LogBounds, find_cleanable
from kstore.log.cleaning.cleaner import Cleaner, CleanerInput, CleanerTotals
from kstore.log.segment.segment import LogSegment
from kstore.log.state.transactions import AbortedTransaction


class CompactionSavings(NamedTuple):
    """What a compaction would leave.

    records, bytes_before: of the segments that it would clean; records_kept, bytes_after: what it would leave of them.
    unique_keys: different keys of records that are not aborted. is_whole: whether all of them fitted the key map; if
    not, unique_keys is a lower bound, and more rounds would save more.
    """

    records: int
    records_kept: int
    bytes_before: int
    bytes_after: int
    unique_keys: int
    is_whole: bool


class PlannedCompaction(NamedTuple):
    """What a round of compaction that is due now would do: clean [first_dirty_offset, end_offset), and what is below.

    rounds: 0 if nothing is due, else 1. records_read, records_kept: of the segments that it would clean; segments: how
    many these are. saved_bytes: how much shorter the log would be.
    """

    first_dirty_offset: int
    end_offset: int
    rounds: int = 0
    records_read: int = 0
    records_kept: int = 0
    segments: int = 0
    saved_bytes: int = 0


def plan_compaction(
    segments: Sequence[LogSegment],
    bounds: LogBounds,
    *,
    aborted: Sequence[AbortedTransaction],
    now_ms: int,
    rolls: bool,
    is_forced: bool,
    drops_keyless: bool,
    config: LogConfig,
    env: Env,
) -> PlannedCompaction:
    """Return what WritableLog.compact would do in its first round; with `rolls`, after WritableLog.roll.

    Raises: as WritableLog.compact.
    Cost: as compaction_savings, of the part that is due.
    """
    cleanable = find_cleanable(segments, bounds, now_ms=now_ms, config=config, env=env, rolls=rolls)
    if not (cleanable.is_due(config) or (is_forced and cleanable.cleanable_bytes)):
        return PlannedCompaction(cleanable.first_dirty_offset, cleanable.first_dirty_offset)
    due = [segment for segment in segments if segment.base_offset < cleanable.first_uncleanable_offset]
    totals = CleanerTotals()
    cleaner = Cleaner(
        CleanerInput(
            directory=segments[0].directory,
            segments=due,
            cleanable=cleanable,
            high_watermark=bounds.log_end_offset,
            aborted=aborted,
            entries={},
            last_records=lambda: (),
            now_ms=now_ms,
            pause=lambda _: None,
            config=config,
            env=env,
            drops_keyless=drops_keyless,
        ),
        totals,
    )
    with closing(cleaner):
        cleaner.build_map()
        groups = cleaner.groups()
        sizes = [(sum(segment.valid_end_position for segment in group), cleaner.measure(group)) for group in groups]
    return PlannedCompaction(
        cleanable.first_dirty_offset,
        cleaner.end_offset,
        1,
        totals.records_read,
        totals.records_kept,
        sum(map(len, groups)),
        sum(before - after for before, after in sizes),
    )


def compaction_savings(
    segments: Sequence[LogSegment],
    *,
    log_start_offset: int,
    end_offset: int,
    aborted: Sequence[AbortedTransaction],
    now_ms: int,
    config: LogConfig,
    env: Env,
    on_read: Callable[[int], None] = lambda _: None,
) -> CompactionSavings:
    """Return what a compaction of a log would save if the active segment were rolled first and nothing were too young.

    Args: end_offset: of what may be cleaned, the last stable offset: the segment that holds it, and those after it, are
        left out, unless it is the log's end; config: cleaner_dedupe_buffer_bytes bounds the map, 24 bytes for a key;
        on_read: called with the size of each part that is read, twice for each byte in all.
    Raises: CorruptRecordError and other errors for damage; StorageError.
    Cost: two passes, the second of which compresses what remains of batches that lose records.
    """
    ends = [*(segment.base_offset for segment in segments[1:]), None]
    cleaned = [segment for segment, end in zip(segments, ends, strict=True) if end is None or end <= end_offset]
    if cleaned and cleaned[-1].is_last and not _is_decided(cleaned[-1], end_offset):
        cleaned.pop()
    size = sum(segment.valid_end_position for segment in cleaned)
    if not cleaned or size == 0:
        return CompactionSavings(0, 0, 0, 0, 0, is_whole=True)
    limit = end_offset if cleaned[-1].next_base_offset is None else cleaned[-1].next_base_offset
    cleaner = Cleaner(
        CleanerInput(
            directory=cleaned[0].directory,
            segments=cleaned,
            cleanable=CleanableLog(log_start_offset, limit, 0, size, is_overdue=False),
            high_watermark=max(end_offset, segments[-1].tail.last_offset + 1),
            aborted=aborted,
            entries={},
            last_records=lambda: (),
            now_ms=now_ms,
            pause=on_read,
            config=config,
            env=env,
            drops_keyless=True,
        ),
        CleanerTotals(),
    )
    with closing(cleaner):
        cleaner.build_map()
        is_whole = cleaner.end_offset >= limit
        groups = cleaner.groups()
        rest = sum(segment.valid_end_position for segment in cleaned[sum(map(len, groups)) :])
        after = sum(map(cleaner.measure, groups)) + rest
    totals = cleaner.totals
    return CompactionSavings(
        totals.records_read, totals.records_kept, size, after, cleaner.key_count, is_whole=is_whole
    )


def _is_decided(segment: LogSegment, end_offset: int) -> bool:
    """Whether all batches of the last segment are below an offset."""
    return segment.tail.last_offset < end_offset
