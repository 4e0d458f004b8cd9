"""LocalLog: the segments of a log that is written, its bounds, and what readers see of both.

Layer 5. Every step leaves files that load as a log without a gap, wherever it is cut off; readers see none of it before
it is published.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TypeAlias

from kstore._core import LogAppender
from kstore.log.env import Env
from kstore.log.files.names import SEGMENT_SUFFIXES, segment_path
from kstore.log.recovery.context import LoadedLog
from kstore.log.segment.segment import LogContext, LogSegment
from kstore.log.segment.writable_segment import NO_TIMESTAMP_OFFSET, WritableSegment
from kstore.log.state.leader_epochs import LeaderEpochCache
from kstore.log.write.rules import LeaderRules, LogAppendInfo
from kstore.types import TimestampOffset


class Cuts:
    """The cuts of a log since it was opened, each counted twice: before its files change, and behind.

    Attributes: made (how many there were), lowest ((number, offset) of each that no later one went below).
    Threads: one that cuts, beside any number that ask.
    """

    def __init__(self) -> None:
        self.made = 0
        self.lowest: tuple[tuple[int, int], ...] = ()
        self._is_under_way = False

    @contextmanager
    def under_way(self, offset: int) -> Iterator[None]:
        """Tell readers that what lies at an offset and behind it goes."""
        self._is_under_way = True
        self.note(offset)
        try:
            yield
        finally:
            # Once more, for who began to read meanwhile.
            self.note(offset)
            self._is_under_way = False

    def note(self, offset: int) -> None:
        """Count a cut."""
        below = tuple(one for one in self.lowest if one[1] < offset)
        # In this order: who sees the number finds the offset.
        self.lowest = (*below, (self.made, offset))
        self.made += 1

    def lowest_since(self, known: int) -> int | None:
        """Return from where on the log was cut since there were `known` cuts, None if it was not."""
        return min((offset for number, offset in self.lowest if number >= known), default=None)

    def may_have_changed(self, known: int) -> bool:
        """Tell whether files changed, or change now, under who read when there were `known` cuts."""
        return self._is_under_way or self.made != known


# The segments that take no more; the one that does, its size, and the log's end.
Published: TypeAlias = tuple[tuple[LogSegment, ...], WritableSegment, int, int]
_NO_CUT = (-1, -1)


class LocalLog:
    """The segments of one log: those that take no more, and the last, which does; and from where to where it goes.

    Attributes: sealed (as readers see them, by base offset), active, unflushed (sealed since the last flush, with their
    files still open), appender (the compiled end, which has the bounds and the leader epoch of the last append).
    Threads: the append lock guards every method; published, segments and the bounds may be read without it.
    Source: Kafka LocalLog.
    """

    def __init__(self, context: LogContext, loaded: LoadedLog, *, rules: LeaderRules, env: Env) -> None:
        self._context = context
        self._env = env
        *sealed, last = loaded.segments
        self.sealed = tuple(
            LogSegment(
                context,
                base_offset=segment.base_offset,
                next_base_offset=following.base_offset,
                size_in_bytes=segment.size_in_bytes,
            )
            for segment, following in zip(sealed, loaded.segments[1:], strict=True)
        )
        self.unflushed: tuple[WritableSegment, ...] = ()
        timestamp = TimestampOffset(last.max_timestamp_ms, last.offset_of_max_timestamp)
        self.active = self._opened(last.base_offset, timestamp=timestamp)
        self.active.drop_entries_from(last.next_offset)
        producers, verifications = loaded.producer_state.tables()
        self.appender = LogAppender(
            LogAppendInfo,
            assigner=rules.assigner,
            max_batch_bytes=context.config.max_batch_bytes,
            log_start_offset=loaded.log_start_offset,
            leader_epoch=loaded.leader_epochs.latest_epoch,
            producers=producers,
            verifications=verifications,
        )
        # To which offset the log was cut last, and where its last batch ended then.
        self._cut = _NO_CUT
        # None while it is the log's end.
        self._high_watermark: int | None = None
        self._viewed: tuple[Published, tuple[LogSegment, ...]] | None = None
        self.publish(loaded.log_end_offset)

    # Bounds, and what readers see

    @property
    def log_start_offset(self) -> int:
        return self.appender.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.appender.log_end_offset

    @property
    def written_end_offset(self) -> int:
        """The offset behind the last batch: the log's end, unless a cut inside a batch was the last change."""
        end, written_end = self._cut
        return written_end if end == self.log_end_offset else self.log_end_offset

    @property
    def high_watermark(self) -> int:
        """The log's end, unless update_high_watermark manages it."""
        mark = self._high_watermark
        return max(self.appender.log_end_offset if mark is None else mark, self.appender.log_start_offset)

    def update_high_watermark(self, offset: int) -> int:
        """Take over the high watermark from now on and return what it is, within the bounds."""
        self._high_watermark = mark = max(min(offset, self.log_end_offset), self.log_start_offset)
        return mark

    def move_start(self, offset: int) -> None:
        """Let the log start at an offset."""
        self.appender.log_start_offset = offset

    def follow(self, epochs: LeaderEpochCache) -> None:
        """Take over what leader epoch the log ends with, so that an append knows whether it begins another."""
        self.appender.leader_epoch = epochs.latest_epoch

    def publish(self, log_end_offset: int) -> None:
        """Let readers see the segments as they are now."""
        if self._high_watermark is not None:
            self._high_watermark = min(self._high_watermark, log_end_offset)
        self.appender.publish(self.sealed, self.active, self.active.appender, log_end_offset=log_end_offset)

    @property
    def published(self) -> Published:
        """What readers see, replaced in one step."""
        found: Published = self.appender.published
        return found

    @property
    def is_published(self) -> bool:
        """Whether readers see all that was written to the active segment."""
        _, active, size, end = self.published
        return self.active is active and active.size_in_bytes == size and active.base_offset <= end

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """The segments by base offset as readers see them."""
        published, viewed = self.published, self._viewed
        if viewed is None or viewed[0] is not published:
            sealed, active, size, end = published
            view = active.view(self._context, size_in_bytes=size, last_offset=end - 1 if size else -1)
            viewed = self._viewed = published, (*sealed, view)
        return viewed[1]

    # Changes

    @property
    def first_base_offset(self) -> int:
        return self.sealed[0].base_offset if self.sealed else self.active.base_offset

    def roll(self, base_offset: int) -> None:
        """Put a new segment after the active one, which stays open until its indexes are flushed.

        The old one is trimmed, durably, before the new one is made: zeros that a crash left between two segments would
        end the log for a broker.
        Raises: StorageError, with the segments as before.  Source: Kafka LocalLog.roll.
        """
        old = self.active
        old.seal()
        old.records.flush()
        active = self._opened(base_offset, is_new=True)
        sealed = LogSegment(
            self._context,
            base_offset=old.base_offset,
            next_base_offset=base_offset,
            size_in_bytes=old.size_in_bytes,
        )
        self.sealed = (*self.sealed, sealed)
        self.unflushed = (*self.unflushed, old)
        self.active = active
        self._cut = _NO_CUT

    def cut(
        self, last: LogSegment, *, offset: int, position: int, timestamp: TimestampOffset, written_end_offset: int
    ) -> None:
        """Remove what lies behind `position` of a segment, where `offset` stands; it becomes the active one. Durable.

        Args: timestamp: the largest of what stays; written_end_offset: behind the last batch that stays.
        Raises: StorageError, with a part perhaps removed.
        """
        self._remove_behind(last.base_offset)
        if self.active.base_offset != last.base_offset:
            self._close_unflushed([last.base_offset])
            self._forget(last.base_offset)
            self.active = self._opened(last.base_offset)
        self.sealed = tuple(segment for segment in self.sealed if segment.base_offset < last.base_offset)
        self.active.truncate_to(offset, position=position, timestamp=timestamp)
        self._cut = offset, written_end_offset

    def restart(self, base_offset: int, *, log_start_offset: int) -> None:
        """Remove all segments and begin one, durably; a high watermark that is managed goes to the new end.

        Raises: StorageError, with a part perhaps removed.
        """
        self._remove_behind(None)
        self.sealed = ()
        self.active = self._opened(base_offset, is_new=True)
        self.active.flush()
        self._cut = _NO_CUT
        self.move_start(log_start_offset)
        if self._high_watermark is not None:
            self._high_watermark = base_offset

    def ends_below(self, offset: int) -> bool:
        """Whether there are sealed segments that end below an offset."""
        return bool(self.sealed) and (self.sealed[0].next_base_offset or 0) <= offset

    def remove_below(self, offset: int) -> list[int]:
        """Remove the sealed segments that end below an offset, durably, and return their base offsets.

        Readers that have them open read on.
        Raises: StorageError, with some perhaps removed.
        """
        gone = [one.base_offset for one in self.sealed if one.next_base_offset and one.next_base_offset <= offset]
        self.sealed = self.sealed[len(gone) :]
        self._close_unflushed(gone)
        self.publish(self.log_end_offset)
        self._remove(gone)
        return gone

    def drop_flushed(self, flushed: Sequence[WritableSegment]) -> None:
        """Forget sealed segments that were flushed and closed."""
        self.unflushed = tuple(segment for segment in self.unflushed if segment not in flushed)

    def close_handlers(self) -> None:
        """Close the files, and nothing else."""
        with ExitStack() as files:
            for segment in (*self.unflushed, self.active):
                files.callback(segment.close_handlers)

    def _remove_behind(self, base_offset: int | None) -> None:
        """Remove the segments behind one, all if None, the last first."""
        if base_offset is None or self.active.base_offset > base_offset:
            self.active.close_handlers()
            self._remove([self.active.base_offset])
        behind = [one.base_offset for one in self.sealed if base_offset is None or one.base_offset > base_offset]
        self._close_unflushed(behind)
        for removed in reversed(behind):
            self._remove([removed])

    def _close_unflushed(self, base_offsets: Sequence[int]) -> None:
        """Close the files of sealed segments that are about to go, or to be opened anew."""
        closed = [segment for segment in self.unflushed if segment.base_offset in base_offsets]
        self.drop_flushed(closed)
        for segment in closed:
            segment.close_handlers()

    def _remove(self, base_offsets: Sequence[int]) -> None:
        """Remove the files of segments, in this order, durably."""
        for base_offset in base_offsets:
            for suffix in SEGMENT_SUFFIXES:
                self._env.unlink(segment_path(self._context.directory, base_offset, suffix=suffix))
        self._env.sync_directory(self._context.directory)
        for base_offset in base_offsets:
            self._forget(base_offset)

    def _forget(self, base_offset: int) -> None:
        """Let go of what readers keep of the files of a segment, which are removed or changed."""
        for suffix in SEGMENT_SUFFIXES:
            path = segment_path(self._context.directory, base_offset, suffix=suffix)
            self._context.files.forget(path)
            self._context.indexes.forget(path)

    def _opened(
        self, base_offset: int, *, is_new: bool = False, timestamp: TimestampOffset = NO_TIMESTAMP_OFFSET
    ) -> WritableSegment:
        return WritableSegment.open(
            self._context.directory,
            base_offset=base_offset,
            is_new=is_new,
            timestamp=timestamp,
            config=self._context.config,
            env=self._env,
        )
