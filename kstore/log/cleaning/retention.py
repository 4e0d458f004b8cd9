"""What retention removes: plan_retention decides by sizes and batch headers, and changes nothing.

Segments go oldest first, up to the first that has to stay. No index decides: the largest timestamp of a segment is that
of its batch headers, each with a right CRC before the segment is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kstore._lazy import lazy_logger
from kstore.config import LogConfig
from kstore.env import Env
from kstore.errors import CorruptionError, UnsupportedError
from kstore.log.recovery.walk import walk_segment
from kstore.log.segment.segment import LogSegment
from kstore.types import NO_TIMESTAMP

_logger = lazy_logger("kstore.log")


class DueSegment(NamedTuple):
    """A segment that retention removes, and the first reason for it: "log start offset", "size" or "time".

    base_offset, size_in_bytes: of its .log.
    end_offset: the base offset of the next segment, or the log end offset. max_timestamp_ms: the timestamp by which it
    was decided, for "time"; else None.
    """

    base_offset: int
    end_offset: int
    size_in_bytes: int
    reason: str
    max_timestamp_ms: int | None = None


class RetentionBounds(NamedTuple):
    """log_start_offset, log_end_offset: of the log. least_needed_offset: no segment with this offset or a later one may
    go: the last stable offset, or what a follower has yet to read.
    """

    log_start_offset: int
    log_end_offset: int
    least_needed_offset: int


def plan_retention(
    segments: Sequence[LogSegment], bounds: RetentionBounds, *, now_ms: int, config: LogConfig, env: Env
) -> list[DueSegment]:
    """Return the segments to remove, oldest first.

    Kafka's order: those below the log start offset, then by size, then by time; the last two only if cleanup_policy
    includes delete.
    Raises: StorageError.  Cost: a read or two of the first segment that stays; of each segment that goes by time, all
        of it.
    Source: Kafka UnifiedLog.deleteOldSegments.
    """
    return _Plan(segments, bounds, now_ms=now_ms, config=config, env=env).made()


class _Plan:
    def __init__(
        self, segments: Sequence[LogSegment], bounds: RetentionBounds, *, now_ms: int, config: LogConfig, env: Env
    ) -> None:
        self._segments = segments
        self._bounds = bounds
        self._now_ms = now_ms
        self._config = config
        self._env = env
        self._due: list[DueSegment] = []

    def made(self) -> list[DueSegment]:
        self._take(lambda segment: self._next_base(segment) <= self._bounds.log_start_offset, "log start offset")
        if "delete" in self._config.cleanup_policy:
            if self._config.retention_bytes >= 0:
                self._take_by_size()
            if self._config.retention_ms >= 0:
                self._take_by_time()
        return self._due

    @property
    def _left(self) -> Sequence[LogSegment]:
        return self._segments[len(self._due) :]

    def _next_base(self, segment: LogSegment) -> int:
        """Return the base offset of the next segment; the last one has none, so that no log start is above it."""
        return self._bounds.log_start_offset + 1 if segment.next_base_offset is None else segment.next_base_offset

    def _end_of(self, segment: LogSegment) -> int:
        return self._bounds.log_end_offset if segment.next_base_offset is None else segment.next_base_offset

    def _may_go(self, segment: LogSegment) -> bool:
        is_empty_end = segment.next_base_offset is None and segment.size_in_bytes == 0
        return not is_empty_end and self._end_of(segment) <= self._bounds.least_needed_offset

    def _take(self, is_due: Callable[[LogSegment], bool], reason: str) -> None:
        for segment in self._left:
            if not (self._may_go(segment) and is_due(segment)):
                return
            self._note(segment, reason)

    def _note(self, segment: LogSegment, reason: str, max_timestamp_ms: int | None = None) -> None:
        place = segment.base_offset, self._end_of(segment), segment.size_in_bytes
        self._due.append(DueSegment(*place, reason, max_timestamp_ms))

    def _take_by_size(self) -> None:
        excess = sum(segment.size_in_bytes for segment in self._left) - self._config.retention_bytes

        def is_due(segment: LogSegment) -> bool:
            nonlocal excess
            excess -= segment.size_in_bytes
            return excess >= 0

        self._take(is_due, "size")

    def _take_by_time(self) -> None:
        for segment in self._left:
            if not self._may_go(segment) or (segment.size_in_bytes == 0 and segment.next_base_offset is None):
                return
            timestamp_ms = self._timestamp_of(segment)
            if timestamp_ms is None or not self._is_old(timestamp_ms) or not self._is_proven_old(segment):
                return
            self._note(segment, "time", timestamp_ms)

    def _is_old(self, timestamp_ms: int) -> bool:
        return self._now_ms - timestamp_ms > self._config.retention_ms

    def _timestamp_of(self, segment: LogSegment) -> int | None:
        """Return the timestamp by which the age of a segment counts, None if nothing tells it.

        Without a timestamp of its own (magic 0, or records that have none) that is the one of the first later segment
        that has any: what was appended before it is at least as old. The time of a file never counts.
        """
        at = self._segments.index(segment)
        for later in self._segments[at:]:
            try:
                timestamp_ms = self._largest_of(later)
            except (CorruptionError, UnsupportedError) as error:
                _logger.warning("%s stays: its timestamps cannot be read: %s", segment.path, error)
                return None
            if timestamp_ms != NO_TIMESTAMP:
                return timestamp_ms
        return None

    def _largest_of(self, segment: LogSegment) -> int:
        """Return the largest timestamp in the headers of a segment; a recent one is enough."""
        first = segment.first_timestamp_ms()
        return first if first > NO_TIMESTAMP and not self._is_old(first) else segment.largest_timestamp_ms()

    def _is_proven_old(self, segment: LogSegment) -> bool:
        """Whether every batch of a segment has a right CRC and no timestamp that keeps it; logs why not."""
        walk = walk_segment(
            segment.path,
            base_offset=segment.base_offset,
            next_base_offset=segment.next_base_offset,
            config=self._config,
            env=self._env,
        )
        if walk.status not in ("end", "zeros", "torn") or (walk.status == "torn" and not segment.is_last):
            _logger.warning("%s stays: it is damaged at position %d: %s", segment.path, walk.end_position, walk.reason)
            return False
        return walk.max_timestamp_ms == NO_TIMESTAMP or self._is_old(walk.max_timestamp_ms)
