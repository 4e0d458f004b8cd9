"""What there is to clean in a log: find_cleanable, by the cleaner's checkpoint, the lags and the dirty ratio; and how
its segments are grouped (group_segments).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kstore._lazy import lazy_logger
from kstore.config import MAX_INT32, MAX_INT64, LogConfig
from kstore.env import Env
from kstore.log.files.names import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_path
from kstore.log.segment.segment import LogSegment
from kstore.types import NO_TIMESTAMP

_logger = lazy_logger("kstore.log")


class LogBounds(NamedTuple):
    """Offsets of a log. cleaned_offset: of the cleaner's checkpoint, None if it has no entry."""

    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    cleaned_offset: int | None


class CleanableLog(NamedTuple):
    """The dirty part of a log that may be cleaned: the offsets [first_dirty_offset, first_uncleanable_offset).

    clean_bytes, cleanable_bytes: the sizes of the segments before and in it. is_overdue: max_compaction_lag_ms has
    passed for a record in it.  Source: Kafka LogToClean.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool

    @property
    def dirty_ratio(self) -> float:
        """The part of the bytes that is dirty, 0 for none."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        """Whether Kafka's cleaner would clean the log now."""
        if self.cleanable_bytes == 0:
            return False
        return self.is_overdue or self.dirty_ratio > config.min_cleanable_dirty_ratio


def find_cleanable(
    segments: Sequence[LogSegment], bounds: LogBounds, *, now_ms: int, config: LogConfig, env: Env, rolls: bool = False
) -> CleanableLog:
    """Return what may be cleaned: neither the last segment, nor from the last stable offset on, nor what is younger
    than min_compaction_lag_ms.

    Args: segments: all of the log, the active one last; rolls: as if a new one had been started after it.
    Raises: StorageError; CorruptRecordError and other errors for damage, with a lag.
    Cost: with a lag, header walks over the dirty segments.
    Source: Kafka LogCleanerManager.cleanableOffsets.
    """
    dirty = first_dirty_offset(bounds)
    active = bounds.log_end_offset if rolls else segments[-1].base_offset
    limit = min(bounds.last_stable_offset, active)
    dirty_segments = _between(segments, start_offset=dirty, end_offset=active)
    if config.min_compaction_lag_ms > 0:
        limit = min([limit, *_young_offsets(dirty_segments, env, youngest_ms=now_ms - config.min_compaction_lag_ms)])
    limit = max(dirty, limit)
    uncleanable = next(
        (dirty_segment.base_offset for dirty_segment in _between(segments, start_offset=limit, end_offset=active)),
        active,
    )
    cleanable = _between(segments, start_offset=min(dirty, uncleanable), end_offset=uncleanable)
    return CleanableLog(
        dirty,
        uncleanable,
        sum(segment.size_in_bytes for segment in segments if segment.base_offset < dirty),
        sum(segment.size_in_bytes for segment in cleanable),
        _is_overdue(dirty_segments, now_ms, config),
    )


def first_dirty_offset(bounds: LogBounds) -> int:
    """Return where a log is dirty from: the cleaner's checkpoint, or the log start if that is outside of the log."""
    cleaned = bounds.cleaned_offset
    if cleaned is None or cleaned < bounds.log_start_offset:
        return bounds.log_start_offset
    if cleaned > bounds.log_end_offset:
        _logger.warning("the cleaner's checkpoint %d is above the log end: all of the log counts as dirty", cleaned)
        return bounds.log_start_offset
    return cleaned


def _between(segments: Sequence[LogSegment], *, start_offset: int, end_offset: int) -> list[LogSegment]:
    """Return the segments from the one that holds start_offset on, with base offsets below end_offset."""
    if start_offset >= end_offset:
        return []
    first = max((slot for slot, segment in enumerate(segments) if segment.base_offset <= start_offset), default=0)
    return [segment for segment in segments[first:] if segment.base_offset < end_offset]


def _young_offsets(segments: Sequence[LogSegment], env: Env, *, youngest_ms: int) -> Iterator[int]:
    """Yield the base offset of the first segment with a timestamp above youngest_ms, if there is one."""
    for segment in segments:
        timestamp_ms = segment.largest_timestamp_ms()
        if timestamp_ms == NO_TIMESTAMP:
            timestamp_ms = modified_ms(segment, env)
        if timestamp_ms > youngest_ms:
            yield segment.base_offset
            return


def modified_ms(segment: LogSegment, env: Env) -> int:
    """Return the modification time of a segment's .log, the present for none."""
    status = env.stat(segment.path)
    return env.wall_clock_ms() if status is None else status.identity[2] // 10**6


def _is_overdue(segments: Sequence[LogSegment], now_ms: int, config: LogConfig) -> bool:
    if config.max_compaction_lag_ms == MAX_INT64:
        return False
    firsts = (segment.first_timestamp_ms() for segment in segments if segment.size_in_bytes)
    earliest = min((first_ms for first_ms in firsts if first_ms > 0), default=MAX_INT64)
    return earliest < now_ms - config.max_compaction_lag_ms


def group_segments(
    segments: Sequence[LogSegment], *, first_uncleanable_offset: int, config: LogConfig, env: Env
) -> list[list[LogSegment]]:
    """Return the segments in groups, each of which becomes one segment: their sizes before cleaning, also those of
    their indexes, fit one.

    Source: Kafka Cleaner.groupSegmentsBySize.
    """
    groups: list[list[LogSegment]] = []
    sizes: tuple[int, ...] = ()
    limits = config.segment_bytes, config.segment_index_bytes, config.segment_index_bytes
    for slot, segment in enumerate(segments):
        added = (segment.size_in_bytes, *_index_sizes(segment, env))
        following = segments[slot + 1].base_offset if slot + 1 < len(segments) else first_uncleanable_offset
        joined = tuple(before + more for before, more in zip(sizes or (0, 0, 0), added, strict=True))
        fits = all(size <= limit for size, limit in zip(joined, limits, strict=True))
        spans = segment.size_in_bytes > 0 and bool(groups) and following - 1 - groups[-1][0].base_offset > MAX_INT32
        if groups and fits and not spans:
            groups[-1].append(segment)
            sizes = joined
        else:
            groups.append([segment])
            sizes = added
    return groups


def _index_sizes(segment: LogSegment, env: Env) -> tuple[int, int]:
    def size_of(suffix: str) -> int:
        status = env.stat(segment_path(segment.directory, segment.base_offset, suffix=suffix))
        return 0 if status is None else status.size_in_bytes

    return size_of(OFFSET_INDEX_SUFFIX), size_of(TIME_INDEX_SUFFIX)
