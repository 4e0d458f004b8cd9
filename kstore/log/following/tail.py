"""LogTail: the batches of one log as they come, each once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, TypeAlias

from kstore._lazy import lazy_logger
from kstore.env import ENOENT
from kstore.errors import (
    CorruptionError,
    KStoreError,
    LogReplacedError,
    LogTruncationError,
    OffsetOutOfRangeError,
    StorageError,
    UnsupportedError,
    checked_index,
)
from kstore.log.reads import Isolation, Reads
from kstore.log.segment.replaced import MOST_LOOKS
from kstore.log.source import History, closed_error, out_of_range
from kstore.record.batches import RecordBatch
from kstore.types import EARLIEST, LATEST, TopicPartition

EndOffsets: TypeAlias = Literal["written", "flushed", "high_watermark"]
AutoOffsetReset: TypeAlias = Literal["none", "earliest", "latest"]

# An append in another process may be half visible: so often, and so long, damage at the end may be one.
_PATIENCE_MS = (1, 10, 50, 100, 250, 500)
# After looks at a log that changed too often during them.
_PAUSES_MS = (1, 10, 50)
_MOST_CHANGES = 1000

_logger = lazy_logger("kstore.log")


class FollowOptions(NamedTuple):
    """How a log is followed; see kstore.Log.follow."""

    isolation: Isolation = "read_uncommitted"
    end_offsets: EndOffsets = "written"
    auto_offset_reset: AutoOffsetReset = "none"

    def check(self) -> None:
        """Raise ValueError for a value that is not one of those."""
        for name, allowed in _ALLOWED.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")


_ALLOWED = {
    "isolation": ("read_uncommitted", "read_committed"),
    "end_offsets": ("written", "flushed", "high_watermark"),
    "auto_offset_reset": ("none", "earliest", "latest"),
}


class PendingBatch(NamedTuple):
    """A batch and the first offset in it not yet returned."""

    batch: RecordBatch
    start_offset: int


# Reads [start, end) of a log, given as a pair.
ReadRound: TypeAlias = Callable[[Reads, tuple[int, int]], Iterator[RecordBatch]]


class LogTail:
    """Reads the batches of a log from an offset on, as far as there are any, each once.

    Args: flushed_offset: returns that of the log; is_owner: whether close() closes the log; read: reads
        [start, end) of the log in its own way, and yields batches of it in their order, also that which only begins
        below the end; None for every batch.
    Attributes: topic_partition, path, source (what it reads), position (the offset that is read next).
    Raises: from the constructor and next_part OffsetOutOfRangeError, LogTruncationError unless the options say where to
        go on; LogReplacedError if the directory was removed or replaced; otherwise as Log.batches.
    Threads: not thread-safe.
    """

    def __init__(
        self,
        reads: Reads,
        history: History,
        from_offset: int | None,
        *,
        options: FollowOptions,
        flushed_offset: Callable[[], int],
        is_owner: bool,
        read: ReadRound | None = None,
    ) -> None:
        self._reads = reads
        self._read_round = self._all_batches if read is None else read
        self.source = self._source = source = reads.source
        self.topic_partition: TopicPartition = source.context.topic_partition
        self.path: str = source.context.directory
        self._history = history
        self._options = options
        self._flushed_offset = flushed_offset
        self._env = source.env
        self._is_owner = is_owner
        self._round: Iterator[RecordBatch] | None = None
        self._round_end = 0
        # The last offset of a batch that is given only when all of it may be read.
        self._withheld_offset = -1
        self._error: OffsetOutOfRangeError | None = None
        self.position = self._start_of(from_offset)
        history.start(self.position)

    def next_part(self) -> PendingBatch | None:
        """Return the next batch; None if there is none now."""
        failures = 0
        while True:
            if self._round is None and not self._look_patiently():
                return None
            try:
                if self._round is None and not self._begin():
                    return None
                part = self._read()
            except (CorruptionError, UnsupportedError, StorageError, LogReplacedError, OffsetOutOfRangeError) as error:
                self._round = None
                self._endure(error, failures)
                failures += 1
                continue
            except BaseException:
                # An interrupted read says nothing of what is there.
                self._round = None
                raise
            if part is not None or self._history.is_current:
                # What came after the look will be reported.
                return part

    def go_back(self, part: PendingBatch) -> None:
        """Have next_part return a batch, the last that it returned, again."""
        self.position, self._round = part.start_offset, None

    def close(self) -> None:
        """Close the log if it was opened for this."""
        self._round = None
        if self._is_owner:
            self._source.close()

    def _look_patiently(self) -> bool:
        """Do what _look does; again if the log changed too often while it was looked at, which a removed directory
        does not show.
        """
        for pause_ms in _PAUSES_MS:
            try:
                return self._look()
            except LogReplacedError:
                self._env.sleep_ms(pause_ms)
        return self._look()

    def _look(self) -> bool:
        """Compare the log with what was given, and go to where it goes on; False if it is being truncated now."""
        if self._error is not None:
            raise self._error
        if self._source.is_closed:
            raise closed_error(self._source.context)
        look = self._history.look(self.position)
        if look is None:
            return False
        if look.position != self.position or look.is_truncated:
            self._withheld_offset = -1
        self.position = look.position
        log = self._source
        start = log.log_start_offset
        if look.is_truncated:
            end = log.log_end_offset
            message = (
                f"{self.topic_partition} in {self.path} was truncated below offset {self.position}, up to which it was "
                f"followed: expected at least that end, found the records of [{start}, {end}); to go on with what is "
                "in their place, set auto_offset_reset"
            )
            bounds = {"log_start_offset": start, "log_end_offset": end}
            error = LogTruncationError(
                message, path=self.path, offset=self.position, truncated_to=look.truncated_to, **bounds
            )
            self._move(error, None if look.truncated_to is None else max(look.truncated_to, start))
        elif self.position < start:
            is_latest = self._options.auto_offset_reset == "latest"
            self._move(self._out_of_range(self.position), None if is_latest else start)
        elif self.position > log.log_end_offset and self._history.is_current:
            self._move(self._out_of_range(self.position), None)
        return True

    def _begin(self) -> bool:
        """Begin to read what is new; return whether there may be something."""
        self._round_end = end = self._end()
        if max(self.position, self._withheld_offset) >= end:
            self._check_end()
            return not self._history.is_current
        self._round = self._read_round(self._reads, (self.position, end))
        return True

    def _all_batches(self, reads: Reads, bounds: tuple[int, int]) -> Iterator[RecordBatch]:
        return reads.batches(*bounds, isolation=self._options.isolation)

    def _check_end(self) -> None:
        """Raise the error of the damage at which the log seems to end; the next look then reads that place again."""
        log = self._source
        tail = log.segments[-1].tail if log.segments else None
        if tail is not None and tail.error is not None and self.position >= log.log_end_offset:
            log.refresh(keeps_known=False)
            raise tail.error

    def _read(self) -> PendingBatch | None:
        """Return the next batch of what was begun; None if that is read, or if the log has changed."""
        batch = None if self._round is None else next(self._round, None)
        is_current = self._history.is_current
        if batch is not None and is_current and batch.last_offset < self._round_end:
            part = PendingBatch(batch, self.position)
            self._history.note(batch)
            self.position = batch.next_offset
            return part
        if batch is not None and is_current:
            self._withheld_offset = batch.last_offset
        elif is_current:
            self.position = max(self.position, self._round_end)
        self._round = None
        return None

    def _endure(self, error: KStoreError, failures: int) -> None:
        """Return if a look at the log may show that it has changed, or that an append was half visible, else raise."""
        is_gone = isinstance(error, StorageError) and error.errno == ENOENT
        is_change = is_gone or isinstance(error, LogReplacedError | OffsetOutOfRangeError)
        if isinstance(error, StorageError) and not is_gone:
            raise error
        if failures >= (_MOST_CHANGES if is_change else len(_PATIENCE_MS)):
            raise error
        if not is_change:
            self._env.sleep_ms(_PATIENCE_MS[failures])
        elif failures >= MOST_LOOKS:
            # A writer that changes the log faster than it can be read must pause some time.
            self._env.sleep_ms(_PAUSES_MS[-1])

    def _start_of(self, from_offset: int | None) -> int:
        log = self._source
        if from_offset is None or from_offset == EARLIEST:
            return log.log_start_offset
        if from_offset == LATEST:
            return self._end()
        from_offset = checked_index("from_offset", from_offset)
        self.position = from_offset
        if not log.log_start_offset <= from_offset <= log.log_end_offset:
            self._move(self._out_of_range(from_offset), None)
        return self.position

    def _end(self) -> int:
        """Return the offset before which records may be given now."""
        log, end_offsets = self._source, self._options.end_offsets
        end = self._reads.end(self._options.isolation).offset
        if end_offsets == "flushed":
            end = min(end, self._flushed_offset())
        elif end_offsets == "high_watermark":
            mark = log.high_watermark
            end = end if mark is None else min(end, mark)
        return max(end, log.log_start_offset)

    def _move(self, error: OffsetOutOfRangeError, offset: int | None) -> None:
        """Go on at an offset, None for where auto_offset_reset says; raise the error if that is "none"."""
        reset = self._options.auto_offset_reset
        if reset == "none":
            self._error = error
            raise error
        self.position = offset if offset is not None else self._reset_offset()
        _logger.warning("%s; following goes on at offset %d", error, self.position)
        if offset is None:
            self._history.start(self.position)

    def _reset_offset(self) -> int:
        return self._source.log_start_offset if self._options.auto_offset_reset == "earliest" else self._end()

    def _out_of_range(self, offset: int) -> OffsetOutOfRangeError:
        source = self._source
        start, end = source.log_start_offset, source.log_end_offset
        where = f"{self.topic_partition} in {self.path}"
        return out_of_range(source, offset, f"offset {offset} is out of range of {where}: expected {start} to {end}")
