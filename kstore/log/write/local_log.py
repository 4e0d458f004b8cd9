"""LocalLog: the segments and bounds of a log that is being written.

After every step the files load as a log without a gap, wherever a crash interrupts it. Readers see a change only after
it is published.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple, TypeAlias

from kstore._core import LogAppender
from kstore.env import Env
from kstore.errors import StorageError
from kstore.log.cleaning.cleaner import CleanedSegment
from kstore.log.files.names import CLEANED_STATE, LOG_SUFFIX, SEGMENT_SUFFIXES, SWAP_STATE, segment_path
from kstore.log.recovery.context import LoadedLog
from kstore.log.segment.segment import LogContext, LogSegment
from kstore.log.segment.writable_segment import NO_TIMESTAMP_OFFSET, WritableSegment
from kstore.log.write.deleted_files import DeletedFiles
from kstore.log.write.rules import LeaderRules, LogAppendInfo
from kstore.types import NO_TIMESTAMP, TimestampOffset

# The sealed segments, the active segment, its size in bytes, and the log end offset.
Published: TypeAlias = tuple[tuple[LogSegment, ...], WritableSegment, int, int]
_NOT_TRUNCATED = (-1, -1)
# A .log is renamed after its indexes: recovery takes the .log for the sign that they are there.
_INDEXES_FIRST = (*SEGMENT_SUFFIXES[1:], LOG_SUFFIX)


class Rest(NamedTuple):
    """What a truncation leaves of the segment in which it ends: the batches below a position in bytes, the offset after
    them, and their largest timestamp.
    """

    segment: LogSegment
    position: int
    end_offset: int
    timestamp: TimestampOffset


class LocalLog:
    """The segments of one log, sealed ones and the active one, and its bounds.

    Attributes: sealed (as readers see them, by base offset), active (the segment that takes appends), unflushed (sealed
        since the last flush, or with an index that could not be written since), appender (the compiled append path,
        which holds the bounds and the leader epoch of the last append), deleted (files that are unlinked later).
    Threads: every method requires the append lock; published, segments and the bounds may be read without it.
    Source: Kafka LocalLog.
    """

    def __init__(self, context: LogContext, loaded: LoadedLog, *, rules: LeaderRules, env: Env) -> None:
        self._context = context
        self._env = env
        self.deleted = DeletedFiles(context, env)
        self._on_reopen: Callable[[], None] | None = None
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
        self.active.transaction_index.continue_at(last.next_offset)
        self._epochs = loaded.leader_epochs
        self._producers = loaded.producer_state
        self.appender = self._made_appender(rules, log_start_offset=loaded.log_start_offset)
        # The offset of the last truncation, and the offset after the last batch that it left.
        self._truncated = _NOT_TRUNCATED
        # The base offset of the segment whose files a roll creates, until they are the active segment or are gone.
        self._rolls_to: int | None = None
        # None while the high watermark is the log end offset.
        self._high_watermark: int | None = None
        self._viewed: tuple[Published, tuple[LogSegment, ...]] | None = None
        self.publish(loaded.log_end_offset)
        # What was appended since the log was opened is what there is more than at these bounds.
        self._counted_from = self.log_end_offset
        self._bytes_before = -self.active.size_in_bytes

    # Bounds, and what readers see

    @property
    def log_start_offset(self) -> int:
        return self.appender.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.appender.log_end_offset

    @property
    def written_end_offset(self) -> int:
        """The offset after the last batch: the log end offset, unless the last change truncated inside a batch."""
        end, written_end = self._truncated
        return written_end if end == self.log_end_offset else self.log_end_offset

    @property
    def high_watermark(self) -> int:
        """The high watermark: the log end offset until update_high_watermark is first called."""
        mark = self._high_watermark
        return max(self.appender.log_end_offset if mark is None else mark, self.appender.log_start_offset)

    @property
    def last_stable_offset(self) -> int:
        """The start of the first transaction that is undecided, or whose marker is not below the high watermark."""
        return self.watermarks()[1]

    def watermarks(self) -> tuple[int, int]:
        """Return the high watermark, and the last stable offset, which is not above it."""
        # The high watermark first: a transaction that starts after it was read is not below it.
        high_watermark, log_start_offset = self.high_watermark, self.appender.log_start_offset
        stable = self._producers.last_stable_offset(high_watermark=high_watermark, log_start_offset=log_start_offset)
        return high_watermark, stable

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark, clamped to the bounds, and return it; it no longer follows the log end offset."""
        self._high_watermark = mark = max(min(offset, self.log_end_offset), self.log_start_offset)
        self._producers.on_high_watermark(mark)
        return mark

    def move_start(self, offset: int) -> None:
        """Set the log start offset."""
        self.appender.log_start_offset = offset

    def publish(self, log_end_offset: int) -> None:
        """Publish the current segments and the log end offset to readers, and tell the appender the latest leader epoch
        and the producers the high watermark.
        """
        if self._high_watermark is not None:
            self._high_watermark = min(self._high_watermark, log_end_offset)
        self.appender.leader_epoch = self._epochs.latest_epoch
        self.appender.publish(self.sealed, self.active, self.active.appender, log_end_offset=log_end_offset)
        self._producers.on_high_watermark(self.high_watermark)

    @property
    def published(self) -> Published:
        """What readers see; replaced in one step."""
        published: Published = self.appender.published
        return published

    @property
    def is_published(self) -> bool:
        """Whether readers see everything that was written to the active segment, and it begins at or below the log end
        offset. After a roll over a gap of offsets, it begins above until something is appended to it.
        """
        _, active, size, end = self.published
        return self.active is active and active.size_in_bytes == size and active.base_offset <= end

    def is_undone(self, error: BaseException) -> bool:
        """Whether an append or a roll that ended with an error has left the files as readers see them.

        Of a roll the directory is asked: what memory knows says nothing of files that were just created.
        Raises: StorageError if that cannot be found out.
        """
        if not self.is_published or self.active.records.has_failed:
            return False
        if isinstance(error, StorageError) and not error.is_retriable:
            return False
        if self._rolls_to is not None:
            if any(self._env.stat(path) is not None for path in self._paths_of(self._rolls_to)):
                return False
            # A crash must not bring them back into a log that has grown past them.
            self.active.records.expect_name_sync()
            self._rolls_to = None
        return True

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """The segments as readers see them, by base offset."""
        published, viewed = self.appender.published, self._viewed
        if viewed is None or viewed[0] is not published:
            sealed, active, size, end = published
            view = active.view(self._context, size_in_bytes=size, last_offset=end - 1 if size else -1)
            viewed = self._viewed = published, (*sealed, view)
        return viewed[1]

    @property
    def appended(self) -> tuple[int, int]:
        """How many offsets and bytes were appended since the log was opened; truncations take nothing from them."""
        return self.log_end_offset - self._counted_from, self._bytes_before + self.active.size_in_bytes

    def recount(self, appended: tuple[int, int]) -> None:
        """Keep `appended` as it was before a change of the bounds that is no append."""
        self._counted_from = self.log_end_offset - appended[0]
        self._bytes_before = appended[1] - self.active.size_in_bytes

    # Changes

    def on_reopen(self, callback: Callable[[], None]) -> None:
        """Have a function called before the file of the active segment, whose descriptor was given up, is opened."""
        self._on_reopen = self.active.records.on_reopen = callback

    def park(self) -> bool:
        """Flush the active segment and give its descriptors up until they are needed; return whether none is open.

        Requires both locks.  Raises: StorageError, LogFailedError.
        """
        return not self.unflushed and self.active.park()

    def change_config(self, context: LogContext, rules: LeaderRules) -> None:
        """Take over the settings of the log for the next append, roll and deletion."""
        self._context = context
        self.deleted.change_context(context)
        self.active.change_config(context.config)
        start, end = self.log_start_offset, self.log_end_offset
        # In one step, for readers.
        appender = self._made_appender(rules, log_start_offset=start)
        appender.publish(self.sealed, self.active, self.active.appender, log_end_offset=end)
        self.appender = appender

    @property
    def first_base_offset(self) -> int:
        return self.sealed[0].base_offset if self.sealed else self.active.base_offset

    def roll(self, base_offset: int) -> None:
        """Add a new active segment; the old one stays open until its indexes are flushed.

        The old one is durably trimmed to its size before the new one is created: zeros that a crash left between two
        segments would end the log for a broker.
        Raises: StorageError, with the segments unchanged.  Source: Kafka LocalLog.roll.
        """
        old, appended = self.active, self.appended
        old.seal()
        old.records.flush()
        sealed = LogSegment(
            self._context,
            base_offset=old.base_offset,
            next_base_offset=base_offset,
            size_in_bytes=old.size_in_bytes,
            identity=old.identity,
            file_use=old.file_use,
        )
        sealed.stated_aborted = old.transaction_index.stated()
        self._rolls_to = base_offset
        active = self._opened(base_offset, is_new=True)
        self.sealed = (*self.sealed, sealed)
        self.unflushed = (*self.unflushed, old)
        self.active = active
        self._rolls_to = None
        self._truncated = _NOT_TRUNCATED
        self.recount(appended)

    def rest_below(self, offset: int) -> Rest:
        """Return what a truncation at `offset` leaves, which is not below the first segment.

        Raises: StorageError, CorruptionError.
        """
        last = [segment for segment in self.segments if segment.base_offset <= offset][-1]
        first_removed = last.translate_offset(offset)
        position = last.valid_end_position if first_removed is None else first_removed.position
        rest = last.records.walk(position=0, end_position=position)
        timestamp = NO_TIMESTAMP_OFFSET
        if rest.max_timestamp_ms > NO_TIMESTAMP:
            timestamp = TimestampOffset(rest.max_timestamp_ms, rest.offset_of_max_timestamp)
        return Rest(last, position, rest.last_offset + 1 if rest.last_offset >= 0 else last.base_offset, timestamp)

    def truncate(self, rest: Rest, *, offset: int) -> None:
        """Durably truncate a log to the rest of a segment, and make that the active one.

        Args: offset: the new log end offset.
        Raises: StorageError, with part of it possibly removed.
        """
        last = rest.segment
        self._remove_after(last.base_offset)
        if self.active.base_offset != last.base_offset:
            self._close_unflushed([last.base_offset])
            self._forget(last.base_offset)
            self.active = self._opened(last.base_offset)
            self.active.file_use = last.file_use
        self.sealed = tuple(segment for segment in self.sealed if segment.base_offset < last.base_offset)
        self.active.truncate_to(offset, position=rest.position, timestamp=rest.timestamp)
        self._truncated = offset, rest.end_offset

    def replace_all(self, base_offset: int, *, end_offset: int) -> None:
        """Durably remove all segments, the last one first, and create an empty one; end_offset: of the log then.

        Raises: StorageError, with part of it possibly removed.
        """
        self._remove_after(None)
        self.sealed = ()
        self.active = self._opened(base_offset, is_new=True)
        self.active.flush()
        self._truncated = _NOT_TRUNCATED
        if end_offset > base_offset:
            self.active.truncate_to(end_offset, position=0, timestamp=NO_TIMESTAMP_OFFSET)
            self._truncated = end_offset, base_offset

    def restart(self, base_offset: int, *, log_start_offset: int) -> None:
        """Do what replace_all does, and begin there; a high watermark that was set becomes the new log end offset."""
        self.replace_all(base_offset, end_offset=base_offset)
        self.move_start(log_start_offset)
        if self._high_watermark is not None:
            self._high_watermark = base_offset

    def ends_below(self, offset: int) -> bool:
        """Whether there are sealed segments that end at or below `offset`."""
        return bool(self.sealed) and (self.sealed[0].next_base_offset or 0) <= offset

    def remove_below(self, offset: int) -> list[int]:
        """Durably remove the sealed segments that end at or below `offset`, and return their base offsets.

        Their files are renamed to .deleted and unlinked later, so that readers can continue.
        Raises: StorageError, with some possibly removed.
        """
        gone = [segment for segment in self.sealed if segment.next_base_offset and segment.next_base_offset <= offset]
        self._note_files(gone)
        self.sealed = self.sealed[len(gone) :]
        base_offsets = [segment.base_offset for segment in gone]
        self._close_unflushed(base_offsets)
        self.publish(self.log_end_offset)
        renamed = [path for base in base_offsets for path in self.deleted.rename(self._paths_of(base))]
        self._env.sync_directory(self._context.directory)
        self._let_go(gone, renamed)
        return base_offsets

    def has_all(self, segments: Sequence[LogSegment]) -> bool:
        """Whether these segments are still sealed segments of the log, one after the other."""
        if not segments or segments[0] not in self.sealed:
            return False
        first = self.sealed.index(segments[0])
        return self.sealed[first : first + len(segments)] == tuple(segments)

    def cleaned_paths(self, base_offset: int) -> list[str]:
        """Return the paths that the files of a cleaned segment have before it is put in place."""
        return [path + CLEANED_STATE for path in self._paths_of(base_offset)]

    def replace(self, old: Sequence[LogSegment], cleaned: CleanedSegment) -> None:
        """Durably put a cleaned segment in the place of adjacent sealed ones; readers can continue with the old files.

        A crash leaves the old segments, the new one, or the new one and the last of the old ones: no record that is
        left lacks a later one that it was replaced or deleted by.
        Requires: no producer snapshot at the base offset of any but the first of the old segments.
        Raises: StorageError, with part of it possibly done; the next opening completes it.
        """
        base_offset, directory = cleaned.base_offset, self._context.directory
        self._close_unflushed([segment.base_offset for segment in old])
        self._note_files(old)
        for path in self._paths_of(base_offset, _INDEXES_FIRST):
            if self._env.stat(path + CLEANED_STATE) is not None:
                self._env.rename(path + CLEANED_STATE, path + SWAP_STATE)
        self._env.sync_directory(directory)
        renamed: list[str] = []
        # Recovery itself removes the old segments that begin below the end of the new one.
        for beyond in (segment for segment in old if segment.base_offset >= max(cleaned.next_offset, base_offset + 1)):
            for suffixes in (_INDEXES_FIRST[:-1], _INDEXES_FIRST[-1:]):
                renamed += self.deleted.rename(self._paths_of(beyond.base_offset, suffixes))
                self._env.sync_directory(directory)
        for segment in old:
            renamed += self.deleted.rename(self._paths_of(segment.base_offset, _INDEXES_FIRST))
        self._env.sync_directory(directory)
        for path in self._paths_of(base_offset, _INDEXES_FIRST):
            if self._env.stat(path + SWAP_STATE) is not None:
                self._env.rename(path + SWAP_STATE, path)
        self._env.sync_directory(directory)
        new = LogSegment(
            self._context,
            base_offset=base_offset,
            next_base_offset=old[-1].next_base_offset,
            size_in_bytes=cleaned.size_in_bytes,
        )
        first = self.sealed.index(old[0])
        self.sealed = (*self.sealed[:first], new, *self.sealed[first + len(old) :])
        self.publish(self.log_end_offset)
        self._let_go(old, renamed)

    def _paths_of(self, base_offset: int, suffixes: Sequence[str] = SEGMENT_SUFFIXES) -> list[str]:
        return [segment_path(self._context.directory, base_offset, suffix=suffix) for suffix in suffixes]

    def _note_files(self, segments: Sequence[LogSegment]) -> None:
        """Hold readers of segments to their present files, before these get other names."""
        for segment in segments:
            status = self._env.stat(segment.path, follow_symlinks=False)
            if status is not None:
                segment.note_file(status.file)

    def _let_go(self, segments: Sequence[LogSegment], renamed: Sequence[str]) -> None:
        """Forget segments whose files have other names now, and keep these for readers."""
        self._viewed = None
        for segment in segments:
            self._forget(segment.base_offset)
            segment.forget_lookup()
        self.deleted.keep(renamed, [segment.file_use for segment in segments])

    def drop_flushed(self, flushed: Sequence[WritableSegment]) -> None:
        """Forget sealed segments that were flushed and closed."""
        self.unflushed = tuple(segment for segment in self.unflushed if segment not in flushed)

    def close_handlers(self) -> None:
        """Close the files without flushing."""
        with ExitStack() as files:
            for segment in (*self.unflushed, self.active):
                files.callback(segment.close_handlers)

    def _remove_after(self, base_offset: int | None) -> None:
        """Remove the segments after `base_offset` (all of them for None), last one first."""
        if base_offset is None or self.active.base_offset > base_offset:
            self.active.close_handlers()
            self._remove([self.active.base_offset])
        sealed = [segment.base_offset for segment in self.sealed]
        later = [sealed_offset for sealed_offset in sealed if base_offset is None or sealed_offset > base_offset]
        self._close_unflushed(later)
        for removed in reversed(later):
            self._remove([removed])

    def _close_unflushed(self, base_offsets: Sequence[int]) -> None:
        """Close the files of sealed segments that are about to be removed or reopened."""
        closed = [segment for segment in self.unflushed if segment.base_offset in base_offsets]
        self.drop_flushed(closed)
        for segment in closed:
            segment.close_handlers()

    def _remove(self, base_offsets: Sequence[int]) -> None:
        """Durably remove the files of segments, in the given order."""
        for base_offset in base_offsets:
            for suffix in SEGMENT_SUFFIXES:
                self._env.unlink(segment_path(self._context.directory, base_offset, suffix=suffix))
        self._env.sync_directory(self._context.directory)
        for base_offset in base_offsets:
            self._forget(base_offset)

    def _forget(self, base_offset: int) -> None:
        """Drop the open files and index views that readers keep of a segment whose files are removed or changed."""
        for suffix in SEGMENT_SUFFIXES:
            path = segment_path(self._context.directory, base_offset, suffix=suffix)
            self._context.files.forget(path)
            self._context.indexes.forget(path)

    def _made_appender(self, rules: LeaderRules, *, log_start_offset: int) -> LogAppender:
        return LogAppender(
            LogAppendInfo,
            assigner=rules.assigner,
            max_batch_bytes=self._context.config.max_batch_bytes,
            log_start_offset=log_start_offset,
            leader_epoch=self._epochs.latest_epoch,
            producers=self._producers.table,
        )

    def _opened(
        self, base_offset: int, *, is_new: bool = False, timestamp: TimestampOffset = NO_TIMESTAMP_OFFSET
    ) -> WritableSegment:
        segment = WritableSegment.open(
            self._context.directory,
            base_offset=base_offset,
            is_new=is_new,
            timestamp=timestamp,
            config=self._context.config,
            env=self._env,
        )
        segment.records.on_reopen = self._on_reopen
        return segment
