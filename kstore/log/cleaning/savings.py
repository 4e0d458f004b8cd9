"""compaction_savings: what one round of compaction over a whole log would leave, without writing anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import NamedTuple

from kstore.config import LogConfig
from kstore.log.cleaning.cleanable import CleanableLog
from kstore.log.cleaning.cleaner import Cleaner, CleanerInput, CleanerTotals
from kstore.log.env import Env
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
    ends = [*(one.base_offset for one in segments[1:]), None]
    cleaned = [one for one, end in zip(segments, ends, strict=True) if end is None or end <= end_offset]
    if cleaned and cleaned[-1].is_last and not _is_decided(cleaned[-1], end_offset):
        cleaned.pop()
    size = sum(one.valid_end_position for one in cleaned)
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
        ),
        CleanerTotals(),
    )
    with closing(cleaner):
        cleaner.build_map()
        is_whole = cleaner.end_offset >= limit
        groups = cleaner.groups()
        rest = sum(one.valid_end_position for one in cleaned[sum(map(len, groups)) :])
        after = sum(map(cleaner.measure, groups)) + rest
    totals = cleaner.totals
    return CompactionSavings(
        totals.records_read, totals.records_kept, size, after, cleaner.key_count, is_whole=is_whole
    )


def _is_decided(segment: LogSegment, end_offset: int) -> bool:
    """Whether all batches of the last segment are below an offset."""
    return segment.tail.last_offset < end_offset
