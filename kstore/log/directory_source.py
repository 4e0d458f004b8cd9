"""DirectorySource: the LogSource of a directory as it was listed, for a log that this process does not write."""

from __future__ import annotations

import errno
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kstore._core import BatchHeader, read_header
from kstore._lazy import lazy_logger
from kstore.config import MAX_INT64, LogConfig
from kstore.env import ENOENT, Arrivals, FileStatus, Listeners, OpenFiles, is_same_file, is_settled, join_path
from kstore.errors import (
    CorruptCheckpointError,
    CorruptionError,
    KStoreError,
    LogNotFoundError,
    LogReplacedError,
    StorageError,
    UnsupportedError,
)
from kstore.log.files.checkpoints import OffsetCheckpoints, checkpoints_of
from kstore.log.files.indexes import IndexCache
from kstore.log.files.names import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOCK_FILE,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    PartitionDirectory,
)
from kstore.log.files.records import BatchPlace
from kstore.log.segment.listing import changes_too_often, open_segments
from kstore.log.segment.replaced import ERRORS_OF_A_CHANGE, MOST_LOOKS, change_that_caused
from kstore.log.segment.segment import LogContext, LogSegment
from kstore.log.source import CommittedLog, Followed, Found, SettledLog, Watch, closed_error, last_batch
from kstore.log.state.transactions import NOTHING_SETTLED, settle_transactions

_logger = lazy_logger("kstore.log")


class _Listing:
    """The segments of a directory at one moment, and what readers have found in them since; None: not found yet.

    directory: the status of the directory before it was listed; is_settled: no change of it can have gone unnoticed
    since; walked: the end of the walk over the transactions of an earlier listing, from where this log has only grown.
    """

    def __init__(
        self, segments: tuple[LogSegment, ...], number: int, *, directory: FileStatus | None, is_settled: bool
    ) -> None:
        self.segments = segments
        self.number = number
        self.directory = directory
        self.is_settled = is_settled
        self.walked = NOTHING_SETTLED
        self.checkpointed: dict[str, int | None] = {}
        self.log_start_offset: int | None = None
        self.log_end_offset: int | None = None
        self.settled: SettledLog | None = None
        self.last_batch: BatchPlace | None = None
        self.knows_last_batch = False


class _RootOffsets:
    """What the checkpoints of a root say about one partition."""

    def __init__(self, directory: PartitionDirectory, checkpoints: OffsetCheckpoints) -> None:
        self._directory = directory
        self._checkpoints = checkpoints

    def offset(self, name: str) -> int | None:
        """Return the partition's offset in a checkpoint, None if it has no entry or the file cannot be read."""
        try:
            offsets = self._checkpoints.offsets(join_path(self._directory.root, name)) or {}
        except (CorruptCheckpointError, StorageError) as error:
            # A store that does not answer, or refuses to, tells nothing of the file.
            if isinstance(error, StorageError) and self._directory.env.is_high_latency:
                raise
            _logger.warning("%s is read without the checkpoint %s: %s", self._directory.path, name, error)
            return None
        return offsets.get(self._directory.topic_partition)

    def cleaned_below(self) -> int:
        """Return the offset below which a cleaner has cleaned the log."""
        return self.offset(CLEANER_CHECKPOINT) or 0


def _cleaned_by_configuration() -> int:
    """Return the offset below which a cleaner may have cleaned a log that is compacted: the largest."""
    return MAX_INT64


class DirectorySource:
    """A directory as it was listed; what a broker appends later is not seen.

    Raises: LogNotFoundError if the directory is gone; as open_log.
    If files of the listing are removed or replaced, by retention, compaction or a truncation, and nothing was yielded
    yet, the directory is listed again.  Takes no lock and writes nothing.
    """

    def __init__(self, directory: PartitionDirectory, *, config: LogConfig) -> None:
        self.env = env = directory.env
        self.is_closed = False
        self._place = directory
        self._followers: weakref.WeakSet[DirectorySource] | None = None
        self._listeners = Listeners()
        self._root = directory.root
        self._checkpoints = _RootOffsets(directory, checkpoints_of(env))
        # Nothing in it refers to this object: a cycle would keep each log until a garbage collection.
        cleaned_below = _cleaned_by_configuration if config.is_compacted else self._checkpoints.cleaned_below
        self.context = LogContext(
            directory.topic_partition, directory.path, config, OpenFiles(env), IndexCache(env), cleaned_below
        )
        self._renewing = threading.Lock()
        try:
            self._listing = self._listed(0)
        except StorageError as error:
            if error.errno not in (ENOENT, errno.ENOTDIR) or isinstance(error, LogNotFoundError):
                raise
            message = f"no such directory: {directory.path}, which was removed or renamed before it was opened"
            raise LogNotFoundError(message, path=directory.path, errno=error.errno) from error
        # Of the directory that was opened: one that is made again in its place is another log.
        self._directory = self._listing.directory

    @property
    def listing_number(self) -> int:
        return self._listing.number

    def close(self) -> None:
        """Close the files; a second call does nothing. Followers end with LogClosedError."""
        self.is_closed = True
        self.context.close()
        with self._renewing:
            followers = list(self._followers or ())
        for follower in followers:
            follower.close()
        self._listeners.report(self.context.directory)

    def notify(self, arrivals: Arrivals) -> None:
        arrivals.add(self.context.directory)
        self._listeners.add(arrivals)

    def followed(self, arrivals: Arrivals | None, *, sees_root: bool) -> Followed:
        from kstore.log.following.history import DirectoryHistory

        self._check_open()
        waking = self.env.watch() if arrivals is None else arrivals
        # Before the directory is listed, so that nothing is missed.
        self.notify(waking)
        if sees_root:
            waking.add(self._root)
        with self._raising_if_gone():
            source = DirectorySource(self._place, config=self.context.config)
        source._check_directory(self._directory)
        with self._renewing:
            if self._followers is None:
                self._followers = weakref.WeakSet()
            self._followers.add(source)
        return Followed(source, DirectoryHistory(source), waking)

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        return self._listing.segments

    @property
    def log_start_offset(self) -> int:
        """The first segment's base offset, or the root's checkpoint if that is higher."""
        self._check_open()
        listing = self._listing
        start = listing.log_start_offset
        if start is None:
            first = listing.segments[0].base_offset if listing.segments else 0
            checkpointed = self._checkpoint(LOG_START_OFFSET_CHECKPOINT) or 0
            shown = self.env.first_offset(self.context.directory) if self.env.has_views else 0
            listing.log_start_offset = start = max(first, checkpointed, shown)
        return start

    @property
    def log_end_offset(self) -> int:
        """The offset after the last whole batch; log_start_offset if that is higher."""
        self._check_open()
        end = self._listing.log_end_offset
        return self.answer(self._find_end_offset) if end is None else end

    @property
    def high_watermark(self) -> int | None:
        """The root's checkpoint, clamped to the bounds; None if it has no entry."""
        checkpointed = self._checkpoint(HIGH_WATERMARK_CHECKPOINT)
        if checkpointed is None:
            return None
        return min(max(checkpointed, self.log_start_offset), self.log_end_offset)

    @property
    def recovery_point(self) -> int | None:
        """The root's checkpoint; None if it has no entry."""
        return self._checkpoint(RECOVERY_POINT_CHECKPOINT)

    @property
    def last_stable_offset(self) -> None:
        """None: finding undecided transactions takes a walk over the whole log; see settled()."""
        return None

    def watermarks(self) -> tuple[int | None, None]:
        """Return the high watermark, and None for the last stable offset."""
        return self.high_watermark, None

    def settled(self) -> SettledLog:
        """Return the transactions, by a header walk over the whole log, once."""
        self._check_open()
        settled = self._listing.settled
        return self.answer(self._find_settled) if settled is None else settled

    def committed(self) -> CommittedLog:
        """Return the transactions, as settled does."""
        return CommittedLog(*self.settled()[:2])

    def last_batch(self) -> BatchPlace | None:
        """Return the last batch of the listing, found once; None if no file can be rewritten in place."""
        self._check_open()
        if not self.env.is_mutable:
            return None
        listing = self._listing
        return listing.last_batch if listing.knows_last_batch else self.answer(self._find_last_batch)

    @property
    def knows_its_end(self) -> bool:
        self._check_open()
        listing = self._listing
        if listing.log_end_offset is not None or not listing.segments:
            return True
        return not self.env.is_high_latency and listing.segments[-1].has_known_end()

    def answer(self, read: Callable[[], Found]) -> Found:
        """Return what `read` returns, from a new listing if files were replaced or removed while it ran.

        All of it is of one listing: bounds of one and segments of another would leave out records without a word.
        Raises: what read raises; LogReplacedError if the path belongs to another log, or files change too often.
        """
        attempts_left = MOST_LOOKS
        while True:
            listing = self._listing
            attempts_left -= 1
            try:
                answer = read()
            except ERRORS_OF_A_CHANGE as error:
                self._relist_or_raise(error, listing, attempts_left=attempts_left)
                continue
            if self._listing is listing:
                return answer
            if attempts_left <= 0:
                raise changes_too_often(self.context.directory)

    def watch(self) -> Watch:
        return self._watched

    def _watched(
        self, find: Callable[[], Iterator[Found]], _start_offset: int, _reached_by: Callable[[Found], int]
    ) -> Iterator[Found]:
        """Yield what `find` finds, in a new listing if files changed before anything was yielded."""
        return self._renewed(find(), find)

    def _renewed(self, items: Iterator[Found], find_again: Callable[[], Iterator[Found]]) -> Iterator[Found]:
        attempts_left = MOST_LOOKS
        while True:
            listing = self._listing
            try:
                for item in items:
                    attempts_left = 0
                    yield item
                return
            except ERRORS_OF_A_CHANGE as error:
                attempts_left -= 1
                self._relist_or_raise(error, listing, attempts_left=attempts_left)
            items = find_again()

    def raise_change(self, error: KStoreError) -> None:
        change = self._change_that_caused(error)
        if change is not None and change is not error:
            raise change from error

    def relist_or_raise(self, error: KStoreError, *, attempts_left: int) -> None:
        self._relist_or_raise(error, self._listing, attempts_left=attempts_left)

    def _relist_or_raise(self, error: KStoreError, listing: _Listing, *, attempts_left: int) -> None:
        """List the directory again if a change of the files caused an error, else raise it.

        Args: listing: the one before the read that failed; attempts_left: how often the directory may still be listed.
        """
        if self._listing is not listing and attempts_left > 0:
            return
        change = self._change_that_caused(error)
        if change is None:
            raise error
        if attempts_left <= 0:
            raise change from error
        with self._renewing:
            if self._listing is listing:
                self._renew()

    def _change_that_caused(self, error: KStoreError) -> LogReplacedError | None:
        """Return the change of a listed file that caused an error, None if the error means what it says."""
        listed = next((segment.listed for segment in self.segments if segment.path == error.path), None)
        if listed is None and isinstance(error, CorruptionError | UnsupportedError):
            return LogReplacedError(f"{error.path} was removed while it was read: open the log again", path=error.path)
        return change_that_caused(error, listed, config=self.context.config, env=self.env)

    def state(self) -> object:
        self._check_open()
        if self.env.is_high_latency:
            return None
        segments = self._listing.segments
        last = self.env.stat(segments[-1].path, follow_symlinks=False) if segments else None
        return self.env.stat(self.context.directory), last

    def refresh(self, *, keeps_known: bool = True) -> bool:
        """List the directory again unless nothing has changed in it; return False if no .log has.

        What is known of unchanged files is kept, and of a log that only grew how far it was read. The root's
        checkpoints are read again in any case.
        Args: keeps_known: False to list it in any case, and to keep nothing.
        Raises: LogReplacedError if the directory was removed or replaced; StorageError.
        Cost: two stats if nothing was written for a second; otherwise a listing and a stat for each segment.
        """
        self._check_open()
        with self._renewing:
            before = self._listing
            if not keeps_known:
                self._renew()
                return True
            self.env.invalidate_listing(self.context.directory)
            status = self.env.stat(self.context.directory)
            self._check_directory(status)
            if before.is_settled and status == before.directory and self._is_as_listed(before):
                self._listing = now = _Listing(before.segments, before.number, directory=status, is_settled=True)
                now.last_batch, now.knows_last_batch = before.last_batch, before.knows_last_batch
                now.walked = before.walked
                return False
            self._listing = self._grown_from(before)
            return True

    def _is_as_listed(self, listing: _Listing) -> bool:
        """Whether the last segment, the only one that grows, is as it was listed."""
        if not listing.segments:
            return True
        listed = listing.segments[-1].listed
        return (
            listed is not None
            and listed.is_settled
            and self.env.stat(listed.path, follow_symlinks=False) == listed.status
        )

    def _grown_from(self, before: _Listing) -> _Listing:
        """Return a new listing that keeps of an earlier one what still holds.  Requires the lock."""
        now = self._listed_again()
        old = {segment.base_offset: segment for segment in before.segments}
        stands = before.last_batch is not None and self._keep_reached(before.last_batch, now)
        segments = []
        for segment in now.segments:
            known = old.pop(segment.base_offset, None)
            if known is not None and known.listed == segment.listed and segment.listed and segment.listed.is_settled:
                segments.append(known)
                continue
            segments.append(segment)
            if known is not None:
                is_same = _is_same(known, segment)
                stands = stands and is_same
                # What is known of the index of a segment that only grew holds, for what it covers.
                if not (stands and segment.is_last):
                    known.forget_files()
        for gone in old.values():
            gone.forget_files()
        now.segments = tuple(segments)
        if stands and not old:
            now.walked = before.walked
        return now

    def _keep_reached(self, last: BatchPlace, listing: _Listing) -> bool:
        """Let walks continue from what was the last batch, if it stands: everything before it is as it was."""
        header: BatchHeader = read_header(last.header, position=last.position, path=last.path)
        end_position = header.position + header.size_in_bytes
        for segment in listing.segments:
            if segment.path != last.path or end_position > segment.size_in_bytes:
                continue
            try:
                segment.records.check_anchor(last)
            except LogReplacedError:
                return False
            segment.continue_from(header)
            return True
        return False

    def _check_directory(self, status: FileStatus | None) -> None:
        """Raise LogReplacedError unless a status is that of the directory that was opened."""
        before = self._directory
        if before is None or status is None or not is_same_file(before.file, status.file):
            raise _removed(self.context.directory)

    @contextmanager
    def _raising_if_gone(self) -> Iterator[None]:
        """Raise LogReplacedError in place of the error that the directory is not there."""
        try:
            yield
        except StorageError as error:
            if error.errno == ENOENT:
                raise _removed(self.context.directory) from error
            raise

    def _renew(self) -> None:
        """List the directory again. Requires the lock.

        Raises: LogReplacedError if the directory was removed or replaced.
        """
        self.env.invalidate_listing(self.context.directory)
        self._check_directory(self.env.stat(self.context.directory))
        for segment in self.segments:
            segment.forget_files()
        self._listing = self._listed_again()

    def _listed_again(self) -> _Listing:
        with self._raising_if_gone():
            listing = self._listed(self._listing.number + 1)
        # It may have been made again since its status was compared.
        self._check_directory(listing.directory)
        return listing

    def _listed(self, number: int) -> _Listing:
        status, segments = open_segments(self.context, self.env, lock_path=join_path(self._root, LOCK_FILE))
        return _Listing(
            segments, number, directory=status, is_settled=status is not None and is_settled(status, self.env)
        )

    def _find_end_offset(self) -> int:
        listing, end = self._listing, 0
        if listing.segments:
            last = listing.segments[-1]
            end = last.tail.last_offset + 1 if last.tail.last_offset >= 0 else last.base_offset
        listing.log_end_offset = end = max(end, self.log_start_offset)
        return end

    def _find_last_batch(self) -> BatchPlace | None:
        listing = self._listing
        listing.last_batch = last_batch(listing.segments)
        listing.knows_last_batch = True
        return listing.last_batch

    def _find_settled(self) -> SettledLog:
        listing = self._listing
        # Found before the walk and checked after it, so that the walk is known to have read what is before it.
        last = self.last_batch()
        listing.walked = settled = settle_transactions(
            listing.segments, after=listing.walked, config=self.context.config
        )
        transactions = settled.transactions(log_start_offset=self.log_start_offset, log_end_offset=self.log_end_offset)
        if last is not None:
            listing.segments[-1].records.check_anchor(last)
        listing.settled = result = SettledLog(transactions, last, settled.transactional_from)
        return result

    def _checkpoint(self, name: str) -> int | None:
        """Return this partition's offset in one of the root's checkpoints, read once; None if it has no entry."""
        self._check_open()
        checkpointed = self._listing.checkpointed
        if name not in checkpointed:
            checkpointed[name] = self._checkpoints.offset(name)
        return checkpointed[name]

    def _check_open(self) -> None:
        if self.is_closed:
            raise closed_error(self.context)


def _is_same(one: LogSegment, other: LogSegment) -> bool:
    """Whether two segments are of the same file."""
    first, second = one.listed, other.listed
    return first is not None and second is not None and is_same_file(first.identity, second.identity)


def _removed(directory: str) -> LogReplacedError:
    return LogReplacedError(
        f"{directory} was removed or replaced: open the log again",
        path=directory,
        expected="the directory that was opened",
        found="no such directory, or another one",
    )
