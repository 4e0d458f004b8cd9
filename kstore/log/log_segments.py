"""LogSegments: the files of a log that is written, segment by segment.

Layer 5. Every step leaves files that load as a log without a gap, wherever it is cut off.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack

from kstore.log.env import Env
from kstore.log.filenames import SEGMENT_SUFFIXES, segment_path
from kstore.log.recovery_report import LoadedSegment
from kstore.log.segment import LogContext, LogSegment
from kstore.log.writable_segment import NO_TIMESTAMP_OFFSET, WritableSegment
from kstore.types import TimestampOffset


class LogSegments:
    """The segments of one log: those that take no more, and the last, which does.

    Attributes: sealed (as readers see them, by base offset), active, unflushed (sealed since the last flush, with their
    files still open).
    Threads: the caller's lock guards every method.  Source: Kafka LocalLog, LogSegments.
    """

    def __init__(self, context: LogContext, loaded: Sequence[LoadedSegment], *, env: Env) -> None:
        self._context = context
        self._env = env
        *sealed, last = loaded
        self.sealed = tuple(
            LogSegment(
                context,
                base_offset=segment.base_offset,
                next_base_offset=following.base_offset,
                size_in_bytes=segment.size_in_bytes,
            )
            for segment, following in zip(sealed, loaded[1:], strict=True)
        )
        self.unflushed: tuple[WritableSegment, ...] = ()
        timestamp = TimestampOffset(last.max_timestamp_ms, last.offset_of_max_timestamp)
        self.active = self._opened(last.base_offset, timestamp=timestamp)
        self.active.drop_entries_from(last.next_offset)

    @property
    def first_base_offset(self) -> int:
        return self.sealed[0].base_offset if self.sealed else self.active.base_offset

    def roll(self, base_offset: int) -> None:
        """Put a new segment behind the active one, which stays open until it is flushed.

        Raises: StorageError, with the segments as before.
        """
        old = self.active
        active = self._opened(base_offset, is_new=True)
        try:
            old.seal()
        except BaseException:
            active.close_handlers()
            remove_segment_files(self._context.directory, [base_offset], env=self._env)
            raise
        sealed = LogSegment(
            self._context,
            base_offset=old.base_offset,
            next_base_offset=base_offset,
            size_in_bytes=old.size_in_bytes,
        )
        self.sealed = (*self.sealed, sealed)
        self.unflushed = (*self.unflushed, old)
        self.active = active

    def cut(self, last: LogSegment, *, offset: int, position: int, timestamp: TimestampOffset) -> None:
        """Remove what lies behind `position` of a segment, where `offset` stands; it becomes the active one. Durable.

        Args: timestamp: the largest of what stays.
        Raises: StorageError, with a part perhaps removed.
        """
        self._remove_behind(last.base_offset)
        if self.active.base_offset != last.base_offset:
            self._close_unflushed([last.base_offset])
            self._forget(last.base_offset)
            self.active = self._opened(last.base_offset)
        self.sealed = tuple(segment for segment in self.sealed if segment.base_offset < last.base_offset)
        self.active.truncate_to(offset, position=position, timestamp=timestamp)

    def restart(self, base_offset: int) -> None:
        """Remove all segments and begin one, durably.

        Raises: StorageError, with a part perhaps removed.
        """
        self._remove_behind(None)
        self.sealed = ()
        self.active = self._opened(base_offset, is_new=True)
        self.active.flush()

    def ends_below(self, offset: int) -> bool:
        """Whether there are sealed segments that end below an offset."""
        return bool(self.sealed) and (self.sealed[0].next_base_offset or 0) <= offset

    def seal_below(self, offset: int) -> list[int]:
        """Let go of the sealed segments that end below an offset, and return their base offsets for removal."""
        gone = [one for one in self.sealed if one.next_base_offset is not None and one.next_base_offset <= offset]
        self.sealed = self.sealed[len(gone) :]
        base_offsets = [segment.base_offset for segment in gone]
        self._close_unflushed(base_offsets)
        return base_offsets

    def remove(self, base_offsets: Iterable[int]) -> None:
        """Remove the files of segments, in this order, durably; who has them open reads on.

        Raises: StorageError, with some perhaps removed.
        """
        gone = list(base_offsets)
        remove_segment_files(self._context.directory, gone, env=self._env)
        for base_offset in gone:
            self._forget(base_offset)

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
            self.remove([self.active.base_offset])
        behind = [one.base_offset for one in self.sealed if base_offset is None or one.base_offset > base_offset]
        self._close_unflushed(behind)
        for removed in reversed(behind):
            self.remove([removed])

    def _close_unflushed(self, base_offsets: Sequence[int]) -> None:
        """Close the files of sealed segments that are about to go, or to be opened anew."""
        closed = [segment for segment in self.unflushed if segment.base_offset in base_offsets]
        self.drop_flushed(closed)
        for segment in closed:
            segment.close_handlers()

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


def remove_segment_files(directory: str, base_offsets: Iterable[int], *, env: Env) -> None:
    """Remove the files of segments, in this order, durably.

    Raises: StorageError, with some perhaps removed.
    """
    for base_offset in base_offsets:
        for suffix in SEGMENT_SUFFIXES:
            env.unlink(segment_path(directory, base_offset, suffix=suffix))
    env.sync_directory(directory)
