"""LogSource: the interface between a Log and its files; SourcePart: what one iterator reads of them.

DirectorySource is a directory as it was listed, LiveSource in kstore.log.write a log that this process writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from kstore._core import BatchHeader, FetchRangeCore
from kstore.env import Arrivals, Closing, Env, ReadFile, positioned
from kstore.errors import KStoreError, LogClosedError, OffsetOutOfRangeError, checked_int
from kstore.log.damage import SkippedRange
from kstore.log.files.records import BatchPlace, read_exactly, truncated_since_listed
from kstore.log.segment.segment import LogContext, LogSegment
from kstore.log.state.transactions import AbortedTransaction, Transactions
from kstore.record.batches import RecordBatch

if TYPE_CHECKING:
    import socket

Found = TypeVar("Found")


class FetchData(NamedTuple):
    """The result of a fetch, as a broker's: record bytes, whose last batch may be incomplete, and the log's bounds.

    log_start_offset, high_watermark, last_stable_offset, log_end_offset: the bounds when it was read.
    base_offset is that of the first batch, None if there are no records. With isolation "read_committed" aborted holds
    the transactions whose data in these records a reader must leave out.
    """

    records: bytes
    high_watermark: int | None
    log_start_offset: int
    log_end_offset: int
    base_offset: int | None
    last_stable_offset: int | None = None
    aborted: tuple[AbortedTransaction, ...] = ()


class FetchRange(FetchRangeCore, Closing):
    """The result of a fetch as a part of a file, which is lent until close(): for sendfile, or reads in pieces.

    A cleaner or retention may replace or remove the segment meanwhile, and the log may be closed: the part does not
    change. Only a truncation of the log, which a leader never makes, ends it early, or puts other bytes there.
    Attributes: file (a ReadFile, whose fileno() is a descriptor if it is local; None if there are no records), position
        and size_in_bytes of the part, size 0 without records; the others are those of FetchData. len() is its size too.
    Threads: thread-safe; close() in one thread, once the others do not use it.
    """

    __slots__ = ()
    bounds: Callable[[], FetchData]
    file: ReadFile | None

    @property
    def high_watermark(self) -> int | None:
        """The offset below which records are settled, None if the root does not say it (Kafka: high watermark)."""
        return self.bounds().high_watermark

    @property
    def log_start_offset(self) -> int:
        """The log's start offset at the time of the fetch."""
        return self.bounds().log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The log's end offset at the time of the fetch."""
        return self.bounds().log_end_offset

    @property
    def base_offset(self) -> int | None:
        """The first offset of the first batch, None without records."""
        return self.bounds().base_offset

    @property
    def last_stable_offset(self) -> int | None:
        """The offset below which all transactions are decided, None if it is not known."""
        return self.bounds().last_stable_offset

    @property
    def aborted(self) -> tuple[AbortedTransaction, ...]:
        """The aborted transactions with data in the records, with "read_committed"."""
        return self.bounds().aborted

    def read(self, *, start: int = 0, size: int | None = None) -> bytes:
        """Return bytes of the part, from `start` in it, at most `size` of them.

        Raises: ValueError outside of the part; LogReplacedError if the log was truncated; LogClosedError after close().
        """
        wanted = self._checked(start, size)
        if not wanted:
            return b""
        return read_exactly(self._lent(), wanted, position=self.position + start)

    def data(self) -> FetchData:
        """Return the result of the fetch with the bytes of the records.  Raises: as read."""
        return self.bounds()._replace(records=self.read())

    def data_at_once(self) -> FetchData | None:
        """Return the result of data() without waiting for a disk; None if it would wait.

        Where the file system cannot say whether it would, the call waits.
        Raises: as read, but None takes the place of a LogReplacedError.
        """
        if not self.size_in_bytes:
            return self.data()
        records = self._lent().pread_cached(self.size_in_bytes, position=self.position)
        return None if records is None else self.bounds()._replace(records=records)

    def is_sent_at_once(self) -> bool:
        """Whether the system can send the part itself (sendfile) without waiting for a disk.

        True also where the file system cannot say whether it would wait.
        """
        return self.file is not None and positioned(self.file) is not None and self.is_cached()

    def is_cached(self) -> bool:
        """Whether data() would not have to wait for a disk, as far as that can be told."""
        return self.file is None or self.file.is_cached(position=self.position, size=self.size_in_bytes)

    def send_to(self, target: socket.socket, *, start: int = 0, size: int | None = None) -> int:
        """Send bytes of the part, from `start` in it, to a stream socket, with sendfile if possible; return how many.

        Returns: fewer only if a non-blocking socket accepts no more.
        Raises: as read; errors of the socket.
        """
        wanted = self._checked(start, size)
        if not wanted:
            return 0
        file, position = self._lent(), self.position + start
        sent = file.send_to(target, position=position, size=wanted)
        if sent < wanted and file.size() < position + wanted:
            raise truncated_since_listed(file.path, position, expected=wanted, found=sent)
        return sent

    def _lent(self) -> ReadFile:
        if self.file is None or self._loan is None:
            raise LogClosedError("the range of the fetch was closed before the call")
        return self.file

    def _checked(self, start: int, size: int | None) -> int:
        start = checked_int("start", start, least=0, greatest=self.size_in_bytes)
        left = self.size_in_bytes - start
        return left if size is None else min(left, checked_int("size", size, least=0))


class Watch(Protocol):
    """Iterates what find() finds from start_offset on, and detects changes of the files while it does.

    reached_by returns the last offset that an item holds, or may hold.
    """

    def __call__(
        self, find: Callable[[], Iterator[Found]], start_offset: int, reached_by: Callable[[Found], int], /
    ) -> Iterator[Found]: ...


class Comparison(NamedTuple):
    """What a look at a log found.

    position: the offset to continue from; not below what is still in the log and was given; is_truncated: records that
    were given were removed from the end of the log since: others may have their offsets; truncated_to: from which
    offset on, None if that is not known.
    """

    position: int
    is_truncated: bool = False
    truncated_to: int | None = None


class History(Protocol):
    """Compares a log with what a follower was given.  Threads: not thread-safe."""

    def start(self, position: int) -> None:
        """Take everything below an offset for given."""
        ...

    def look(self, position: int) -> Comparison | None:
        """See what was appended, and compare; None if the log is being truncated now, and will report that.

        Args: position: the offset that would be read next.
        Raises: LogReplacedError if the log was removed; StorageError.
        """
        ...

    @property
    def is_current(self) -> bool:
        """Whether what is read now is of the log that the last look compared."""
        ...

    def note(self, batch: RecordBatch) -> None:
        """Remember a batch that is being given.  Requires: is_current since it was read."""
        ...


class Followed(NamedTuple):
    """What a follower reads: a source of its own, or one that is always current; its history, and what wakes it."""

    source: LogSource
    history: History
    arrivals: Arrivals


class SettledLog(NamedTuple):
    """The transactions of a log, and its last batch when they were found: while that is in its file, no record before
    it has changed. None if the log had no batch, or announces truncations itself. transactional_from: no batch of a
    transaction starts below this offset, and no marker; 0 where that was not looked for.
    """

    transactions: Transactions
    last_batch: BatchPlace | None = None
    transactional_from: int = 0


class Committed(Protocol):
    """What a committed fetch has to know: the last stable offset, and the aborted transactions of what it returns."""

    @property
    def last_stable_offset(self) -> int: ...

    def may_have_aborted(self, *, start_offset: int, end_offset: int) -> bool:
        """Whether aborted_between may return any.  Cost: no walk over headers beyond that of settled()."""
        ...

    def aborted_between(self, *, start_offset: int, end_offset: int) -> tuple[AbortedTransaction, ...]:
        """Return the aborted transactions with data below end_offset and their markers at start_offset or above.

        Source: Kafka TransactionIndex.collectAbortedTxns.
        """
        ...


class CommittedLog(NamedTuple):
    """What SettledLog is for a scan, for a fetch."""

    committed: Committed
    last_batch: BatchPlace | None = None


class LogSource(Protocol):
    """Segments and bounds of one partition, and what a reader does when they change while it reads.

    Attributes: context (what the segments share), env.
    Raises: LogClosedError from every method after close(), unless it can answer without a file.
    Threads: thread-safe.
    """

    @property
    def context(self) -> LogContext: ...

    @property
    def env(self) -> Env: ...

    @property
    def is_closed(self) -> bool: ...

    @property
    def listing_number(self) -> int:
        """How often the segments were listed again: what was found before belongs to other segments. 0 for a log that
        this process writes.
        """
        ...

    def close(self) -> None: ...

    @property
    def segments(self) -> tuple[LogSegment, ...]: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int | None: ...

    @property
    def last_stable_offset(self) -> int | None: ...

    def watermarks(self) -> tuple[int | None, int | None]:
        """Return the high watermark, and the last stable offset, which is not above it."""
        ...

    @property
    def recovery_point(self) -> int | None:
        """The root's checkpoint of the offset below which all is flushed; None if it has no entry, or the log is
        written by this process.
        """
        ...

    def settled(self) -> SettledLog: ...

    def committed(self) -> CommittedLog:
        """Return what a fetch of committed records has to know."""
        ...

    def last_batch(self) -> BatchPlace | None:
        """Return the last batch, which must be in its file while the log is read; None if the log announces
        truncations itself, or no file of it can be rewritten in place.
        """
        ...

    @property
    def knows_its_end(self) -> bool:
        """Whether log_end_offset costs less than the header walk that a scan to the end makes anyway."""
        ...

    def answer(self, read: Callable[[], Found]) -> Found:
        """Return what `read` returns, all of it from the same segments; repeat it if files changed while it ran.

        Raises: what `read` raises; LogReplacedError.
        """
        ...

    def watch(self) -> Watch:
        """Return the iterator for what is found, and read, from now on."""
        ...

    def raise_change(self, error: KStoreError) -> None:
        """Raise LogReplacedError if a change of the files caused an error of a read, else do nothing."""
        ...

    def state(self) -> object:
        """Return what is not equal to an earlier state if the log may have changed since.

        Of a directory, that leaves out what removes as many bytes as it adds, or files, within the tick of its clock,
        and the root's checkpoints. Always None for one in a store where each look is a request.
        Cost: two stats; none for a log that this process writes.
        """
        ...

    def refresh(self, *, keeps_known: bool) -> bool:
        """See what was appended, removed or written again; return whether it may be anything.

        Args: keeps_known: whether to keep what is known of files that did not change, also their indexes.
        """
        ...

    def relist_or_raise(self, error: KStoreError, *, attempts_left: int) -> None:
        """Look at the files again if a change of them caused an error of a read, else raise it."""
        ...

    def notify(self, arrivals: Arrivals) -> None:
        """Notify `arrivals` when new data may be available."""
        ...

    def followed(self, arrivals: Arrivals | None, *, sees_root: bool) -> Followed:
        """Return what a follower reads.

        Args: arrivals: what wakes the follower of several logs; None for arrivals of its own; sees_root: whether it
            waits for changes of the root's checkpoints too.
        Raises: LogReplacedError if the directory was removed or replaced.
        """
        ...


def out_of_range(source: LogSource, offset: int, message: str) -> OffsetOutOfRangeError:
    """Return the error for an offset outside the bounds of a source."""
    return OffsetOutOfRangeError(
        message,
        path=source.context.directory,
        offset=offset,
        log_start_offset=source.log_start_offset,
        log_end_offset=source.log_end_offset,
    )


class SourcePart:
    """What an iterator reads: the records of [start_offset, end_offset) of the current listing.

    Args: find: returns the bounds of the current listing, its last batch, for committed records only its transactions,
        and what a read around damage leaves out because of them.
    Attributes: is_aborted (whether a batch is left out, None for none), last_batch (the one that must be in its file
        after each read), skipped.
    """

    is_aborted: Callable[[BatchHeader], bool] | None = None

    def __init__(
        self,
        source: LogSource,
        find: Callable[[], tuple[int, int, BatchPlace | None, SettledLog | None, tuple[SkippedRange, ...]]],
    ) -> None:
        self._source = source
        self._find = find
        self._found_in = -1
        self.look()

    def look(self) -> None:
        """Find the bounds, unless they were found in the current listing."""
        if self._found_in == self._source.listing_number:
            return
        self._found_in, values = self._source.answer(lambda: (self._source.listing_number, self._find()))
        self.start_offset, self.end_offset, self.last_batch, settled, self.skipped = values
        if settled is not None:
            self.end_offset = min(self.end_offset, settled.transactions.last_stable_offset)
            self.is_aborted, self.last_batch = settled.transactions.aborted_filter(), settled.last_batch


def last_batch(segments: Sequence[LogSegment]) -> BatchPlace | None:
    """Return the place of the last batch of a log, None if there is none."""
    return next(filter(None, (segment.last_batch() for segment in reversed(segments))), None)


def closed_error(context: LogContext) -> LogClosedError:
    """Return the error of a log that was closed."""
    path = context.directory
    return LogClosedError(f"the log of {context.topic_partition} in {path} was closed", path=path)
