"""WritableSegment: the files of the segment that takes appends, and the view of them for readers.

The records are authoritative: an index that cannot be written slows lookups down, but fails no append.
"""

from __future__ import annotations

import struct
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

from kstore._core import (
    MAGIC_POSITION,
    MAX_TIMESTAMP_POSITION,
    MESSAGE_TIMESTAMP_POSITION,
    AppendSurvey,
    SegmentAppender,
)
from kstore._lazy import lazy_logger
from kstore.config import LogConfig
from kstore.env import Env
from kstore.errors import CorruptIndexError, StorageError
from kstore.log.files.indexes import OffsetIndex, OffsetIndexFile, TimeIndex, TimeIndexFile
from kstore.log.files.names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_path,
)
from kstore.log.files.transaction_index import TransactionIndexFile
from kstore.log.segment.file_records import FileRecords
from kstore.log.segment.segment import FileUse, LogContext, LogSegment, SegmentTail
from kstore.types import NO_TIMESTAMP, TimestampOffset

if TYPE_CHECKING:
    from typing_extensions import Self


NO_TIMESTAMP_OFFSET = TimestampOffset(NO_TIMESTAMP, -1)
_MAX_TIMESTAMP = struct.Struct(">q")
_logger = lazy_logger("kstore.log")
_Index = TypeVar("_Index", OffsetIndexFile, TimeIndexFile)


class WritableSegment:
    """One segment that is appended to: its .log, .index, .timeindex and .txnindex.

    Attributes: base_offset, path (of the .log), identity (of that file), file_use, records, transaction_index, appender
        (replaced by a truncation).
    Threads: one writer, concurrently with any number of users of its views.  Source: Kafka LogSegment.
    """

    def __init__(
        self,
        records: FileRecords,
        *,
        base_offset: int,
        indexes: tuple[OffsetIndexFile, TimeIndexFile],
        transaction_index: TransactionIndexFile,
        timestamp: TimestampOffset,
        config: LogConfig,
        env: Env,
    ) -> None:
        self.records = records
        self.identity = records.file_identity()
        self.file_use = FileUse()
        self.base_offset = base_offset
        self.transaction_index = transaction_index
        self._offset_index, self._time_index = indexes
        self._config = config
        self._env = env
        self._max_age_ms = _max_age_ms(config)
        self._created_ms = env.wall_clock_ms()
        self.appender = self._made_appender(timestamp)
        self._is_age_known = records.size_in_bytes == 0
        self._is_closed = False

    @classmethod
    def open(
        cls,
        directory: str,
        *,
        base_offset: int,
        is_new: bool,
        timestamp: TimestampOffset = NO_TIMESTAMP_OFFSET,
        config: LogConfig,
        env: Env,
    ) -> Self:
        """Open the files of a segment, creating missing ones; an index that is corrupt is emptied.

        Args: is_new: existing files of the segment are removed first; timestamp: the largest, with the last offset of
            its batch.
        Raises: StorageError; no new file is left then.
        """
        paths = {suffix: segment_path(directory, base_offset, suffix=suffix) for suffix in SEGMENT_SUFFIXES}
        if is_new:
            for path in paths.values():
                env.unlink(path)
        preallocated = config.segment_bytes if config.preallocate else 0
        with ExitStack() as undoing:
            if is_new:
                for path in paths.values():
                    undoing.callback(env.unlink, path)
            records = FileRecords.open(paths[LOG_SUFFIX], preallocate_bytes=preallocated, env=env, config=config)
            undoing.callback(records.close_handlers)
            offset_index = _open_index(OffsetIndexFile, paths[OFFSET_INDEX_SUFFIX], base_offset, config, env)
            undoing.callback(offset_index.close_handlers)
            time_index = _open_index(TimeIndexFile, paths[TIME_INDEX_SUFFIX], base_offset, config, env)
            undoing.callback(time_index.close_handlers)
            transaction_index = TransactionIndexFile.open(
                paths[TRANSACTION_INDEX_SUFFIX], base_offset=base_offset, env=env
            )
            undoing.callback(transaction_index.close_handlers)
            if is_new:
                transaction_index.continue_at(base_offset)
            opened = cls(
                records,
                base_offset=base_offset,
                indexes=(offset_index, time_index),
                transaction_index=transaction_index,
                timestamp=timestamp,
                config=config,
                env=env,
            )
            undoing.pop_all()
        return opened

    @property
    def path(self) -> str:
        return self.records.path

    @property
    def size_in_bytes(self) -> int:
        return self.records.size_in_bytes

    @property
    def max_timestamp_ms(self) -> int:
        """The largest timestamp, -1 if no record has one."""
        return self.appender.max_timestamp_ms

    @property
    def offset_index(self) -> OffsetIndex:
        """The current entries of the offset index."""
        return self._offset_index.view()

    @property
    def time_index(self) -> TimeIndex:
        """The current entries of the time index."""
        return self._time_index.view()

    def should_roll(self, survey: AppendSurvey, *, now_ms: int) -> bool:
        """Whether an append needs a new segment: because of its size, the age, a full index, or its offsets.

        Source: Kafka LogSegment.shouldRoll.
        """
        if not self._is_age_known:
            self.records.ensure_open()
            self.appender.first_timestamp_ms = self._read_first_timestamp()
            self._is_age_known = True
        return self.appender.should_roll(survey, now_ms=now_ms)

    def append(self, survey: AppendSurvey) -> None:
        """Write the batches of an append after the last ones.

        Raises: StorageError, LogFailedError, SegmentTooLargeError, with nothing appended.
        Source: Kafka LogSegment.append.
        """
        self.appender.append(survey)
        self._is_age_known = True

    def view(self, context: LogContext, *, size_in_bytes: int, last_offset: int) -> LogSegment:
        """Return the segment as a reader sees it, up to a size in bytes and its last offset (-1 if it is empty)."""
        return _AppendedSegment(context, self, size_in_bytes=size_in_bytes, last_offset=last_offset)

    def truncate_to(self, offset: int, *, position: int, timestamp: TimestampOffset) -> None:
        """Durably remove the batches from `position` on, which hold the offsets from `offset` on.

        Args: timestamp: the largest of the remaining records, with the last offset of its batch.
        Raises: StorageError, LogFailedError.  Source: Kafka LogSegment.truncateTo.
        """
        self.records.truncate_to(position)
        self._offset_index.truncate_to(offset, log_size_in_bytes=position)
        self._time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        if position == 0:
            self._created_ms = self._env.wall_clock_ms()
        self.appender = self._made_appender(timestamp)
        self._is_age_known = position == 0
        self.flush()

    def drop_entries_from(self, offset: int) -> None:
        """Remove index entries for offsets from `offset` on or positions after the records: the segment has no such
        records.

        Raises: StorageError.
        """
        index, size = self._offset_index.view(), self.size_in_bytes
        last = index.entry(index.entry_count - 1) if index.entry_count else None
        if last is not None and (last.offset >= offset or last.position >= size):
            self._offset_index.truncate_to(offset, log_size_in_bytes=size)
        if self._time_index.last_entry.offset >= offset:
            self._time_index.truncate_to(offset)

    def change_config(self, config: LogConfig) -> None:
        """Take over the settings by which a segment is rolled; the next append uses them."""
        self._config = config
        self._max_age_ms = _max_age_ms(config)
        self.appender = self._made_appender(
            TimestampOffset(self.appender.max_timestamp_ms, self.appender.offset_of_max_timestamp)
        )
        self._is_age_known = self.records.size_in_bytes == 0

    def flush(self) -> None:
        """Wait until the records and the transaction index survive a power cut.

        The other indexes need not: they are rebuilt from the records.
        Raises: StorageError, LogFailedError.
        """
        self.records.flush()
        self.transaction_index.flush()

    def seal(self) -> None:
        """Finish a segment that takes no more appends: add the closing time entry, trim records and indexes.

        Raises: StorageError, LogFailedError, if the records cannot be trimmed; errors of an index are only logged.
        """
        self.records.trim()
        self._seal_indexes()

    def _seal_indexes(self) -> None:
        try:
            self._complete_indexes()
        except StorageError as error:
            _logger.warning("continuing without part of an index: %s", error)

    def _complete_indexes(self) -> None:
        """Add the closing time entry, and write and trim both indexes.  Raises: StorageError."""
        if self.appender.max_timestamp_ms > NO_TIMESTAMP:
            self._time_index.maybe_append(
                timestamp_ms=self.appender.max_timestamp_ms,
                offset=self.appender.offset_of_max_timestamp,
                skip_full_check=True,
            )
        self._offset_index.trim()
        self._time_index.trim()

    def park(self) -> bool:
        """Flush the files that are open and give their descriptors up until they are needed; return whether none is
        open.

        Raises: StorageError, LogFailedError.
        """
        if not self.records.park():
            return False
        self.transaction_index.park()
        return True

    def close(self) -> None:
        """Finish the indexes, flush and trim everything, and close the files; a second call does nothing.

        Raises: StorageError, LogFailedError; the files are closed in any case.
        """
        if self._is_closed:
            return
        try:
            self._close_records()
            self._complete_indexes()
            self._offset_index.close()
            self._time_index.close()
        finally:
            self.close_handlers()

    def close_sealed(self) -> bool:
        """Close a sealed segment as close does, but only log it if an index cannot be written.

        Returns: whether everything is closed; if not, the indexes keep their entries in memory for the next call.
        Raises: StorageError, LogFailedError for the records or the transaction index; the files are closed then.
        """
        try:
            self._close_records()
        except BaseException:
            self.close_handlers()
            raise
        try:
            self._complete_indexes()
            self._offset_index.flush()
            self._time_index.flush()
        except StorageError as error:
            _logger.warning("the next flush tries again to write an index: %s", error)
            return False
        self.close()
        return True

    def _close_records(self) -> None:
        """Flush and close the records and the transaction index.

        Before the indexes: that closes a file, so that they find a descriptor even if the process has run out of them.
        """
        self.records.close()
        self.transaction_index.close()

    def close_handlers(self) -> None:
        """Close the files without flushing."""
        self._is_closed = True
        # The views keep theirs; the appender refers back to this segment, which so lives on for a while.
        self.file_use = FileUse()
        with ExitStack() as files:
            for file in (self.records, self._offset_index, self._time_index, self.transaction_index):
                files.callback(file.close_handlers)

    def _made_appender(self, timestamp: TimestampOffset) -> SegmentAppender:
        return SegmentAppender(
            self._offset_index.entries,
            self._time_index.entries,
            write=self.records.append_bytes,
            write_parts=self.records.append_parts,
            write_index_pages=self._write_index_pages,
            start_write_back=self.records.start_write_back,
            index_interval_bytes=self._config.index_interval_bytes,
            segment_bytes=self._config.segment_bytes,
            max_age_ms=self._max_age_ms,
            created_ms=self._created_ms,
            size_in_bytes=self.records.size_in_bytes,
            max_timestamp_ms=timestamp.timestamp_ms,
            offset_of_max_timestamp=timestamp.offset,
        )

    def _read_first_timestamp(self) -> int:
        head = bytes(self.records.read(size=MAX_TIMESTAMP_POSITION + _MAX_TIMESTAMP.size).buffer)
        magic = head[MAGIC_POSITION]
        if magic == 0:
            return NO_TIMESTAMP
        at = MESSAGE_TIMESTAMP_POSITION if magic == 1 else MAX_TIMESTAMP_POSITION
        timestamp_ms: int = _MAX_TIMESTAMP.unpack_from(head, at)[0] if len(head) >= at + 8 else NO_TIMESTAMP
        return timestamp_ms

    def _write_index_pages(self) -> None:
        try:
            self._offset_index.write_full_pages()
            self._time_index.write_full_pages()
        except StorageError as error:
            _logger.warning("an index lacks entries that could not be written yet: %s", error)


class _AppendedSegment(LogSegment):
    """A reader's view of a WritableSegment: its records up to a size, its index entries in memory."""

    def __init__(self, context: LogContext, segment: WritableSegment, *, size_in_bytes: int, last_offset: int) -> None:
        super().__init__(
            context,
            base_offset=segment.base_offset,
            next_base_offset=None,
            size_in_bytes=size_in_bytes,
            identity=segment.identity,
            file_use=segment.file_use,
        )
        # Without the last batch: the log may end after offsets that no batch has, as a truncation or a roll leaves it.
        self._tail = SegmentTail("end", size_in_bytes, last_offset)
        self.stated_aborted = segment.transaction_index.stated()
        self._segment = segment

    @property
    def offset_index(self) -> OffsetIndex:
        return self._segment.offset_index

    @property
    def time_index(self) -> TimeIndex:
        return self._segment.time_index


def _max_age_ms(config: LogConfig) -> int:
    jitter = min(config.segment_jitter_ms, config.max_segment_ms)
    if not jitter:
        return config.max_segment_ms
    import random

    return config.max_segment_ms - random.randrange(jitter)


def _open_index(kind: type[_Index], path: str, base_offset: int, config: LogConfig, env: Env) -> _Index:
    try:
        return kind.open(path, base_offset=base_offset, max_bytes=config.segment_index_bytes, env=env)
    except CorruptIndexError as error:
        _logger.warning("starting an empty index in place of a corrupt one: %s", error)
        return kind.create(path, base_offset=base_offset, max_bytes=config.segment_index_bytes, env=env)
