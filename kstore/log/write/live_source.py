"""LiveSource: what readers in the writer's process see of a log that is being written; CleanedBelow, for them.

The writer publishes one tuple, replaced in one step after each append; readers take it without a lock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from kstore.config import LogConfig
from kstore.env import Arrivals, Env, Listeners, LiveArrivals
from kstore.errors import KStoreError, LogReplacedError, OffsetOutOfRangeError
from kstore.log.recovery.context import RecoveryContext
from kstore.log.segment.replaced import ERRORS_OF_A_CHANGE
from kstore.log.segment.segment import LogContext, LogSegment
from kstore.log.source import CommittedLog, Followed, Found, SettledLog, Watch, closed_error, out_of_range
from kstore.log.state.aborted import AbortedIndex, AbortedSearch
from kstore.log.state.transactions import (
    NOTHING_SETTLED,
    AbortedTransaction,
    Settled,
    Transactions,
    settle_transactions,
)
from kstore.log.write.local_log import LocalLog, Published
from kstore.log.write.truncations import LiveHistory, Truncations


class CleanedBelow:
    """Returns the offset below which a cleaner has cleaned a log that is open, or may have by its configuration."""

    def __init__(self, context: RecoveryContext) -> None:
        self._context = context

    def note(self, config: LogConfig) -> None:
        """Heed a change of cleanup_policy. What was compacted once may have gaps as long as the log is open."""
        if config.is_compacted:
            self._context = replace(self._context, config=config)

    def __call__(self) -> int:
        return self._context.cleaned_below()


class _LiveCommitted(NamedTuple):
    last_stable_offset: int
    search: Callable[[], AbortedSearch]

    def may_have_aborted(self, *, start_offset: int, end_offset: int) -> bool:
        return self.search().may_find(start_offset, end_offset=end_offset)

    def aborted_between(self, *, start_offset: int, end_offset: int) -> tuple[AbortedTransaction, ...]:
        return self.search().between(start_offset, end_offset=end_offset)


class LiveSource:
    """The segments and bounds that the writer last published; a LogSource.

    What was published stays valid while the log grows. The writer announces a truncation first: a reader that continues
    either gets its records or OffsetOutOfRangeError, but never bytes from before and after it.
    Attributes: truncations (the writer announces each one there), listeners (its followers), replaced_count (how often
        segments were replaced by cleaned ones: what was found of them is found again).
    """

    def __init__(self, local: LocalLog, *, context: LogContext, env: Env) -> None:
        self.context = context
        self.env = env
        self.is_closed = False
        self.listing_number = 0
        self.truncations = Truncations()
        self.listeners = Listeners()
        self.replaced_count = 0
        self._local = local
        self._aborted_state: tuple[Published, tuple[AbortedTransaction, ...]] | None = None
        # The result of the last walk over transactions, and the truncation counter at that time.
        self._walked: tuple[int, Settled] = (0, NOTHING_SETTLED)
        self._aborted_index = AbortedIndex(context, env)

    @contextmanager
    def truncating(self, offset: int) -> Iterator[None]:
        """Announce that records from `offset` on are being removed; MAX_INT64 for segments that stay readable."""
        appended = self._local.appended
        try:
            with self.truncations.running(offset):
                yield
            self._local.recount(appended)
        finally:
            self.tell()

    def note_replaced(self, base_offsets: Collection[int]) -> None:
        """Count that segments were replaced; a walk over transactions that stopped in one of them starts again."""
        if self._walked[1].base_offset in base_offsets:
            self._walked = (0, NOTHING_SETTLED)
        self._aborted_state = None
        self.replaced_count += 1

    def close(self) -> None:
        """Close the files that readers have open. Followers end with LogClosedError."""
        self.is_closed = True
        self.context.close()
        self.tell()

    def tell(self) -> None:
        """Wake the followers of the log: there may be something new."""
        if self.listeners.any:
            self.listeners.report(self.context.directory)

    def notify(self, arrivals: Arrivals) -> None:
        self.listeners.add(arrivals)

    def followed(self, arrivals: Arrivals | None, *, sees_root: bool) -> Followed:
        del sees_root
        waking = LiveArrivals() if arrivals is None else arrivals
        self.notify(waking)
        return Followed(self, LiveHistory(self.truncations), waking)

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        return self._local.segments

    @property
    def log_start_offset(self) -> int:
        return self._local.appender.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._local.appender.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self._local.high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self._local.last_stable_offset

    def watermarks(self) -> tuple[int, int]:
        return self._local.watermarks()

    @property
    def recovery_point(self) -> None:
        """None: the writer itself knows what it has flushed."""
        return

    @property
    def knows_its_end(self) -> bool:
        return True

    def state(self) -> object:
        if self.is_closed:
            raise closed_error(self.context)
        counts = self.truncations.count, self.replaced_count
        return self._local.published, self.log_start_offset, self.last_stable_offset, *counts

    def refresh(self, *, keeps_known: bool) -> bool:
        """Return False: what is published is always current."""
        del keeps_known
        return False

    def settled(self) -> SettledLog:
        """Return the current aborted transactions and last stable offset.

        The last stable offset comes from producer state, not from the walk: only producer state knows which markers the
        high watermark has passed and, as in Kafka, which open transactions a truncation forgot.
        Cost: a header walk over what was appended since the last call; over the whole log the first time and after a
            truncation.
        """
        if self.is_closed:
            raise closed_error(self.context)

        def find() -> SettledLog:
            # Before the walk, so that it finds every transaction decided below this offset.
            last_stable_offset = self.last_stable_offset
            return SettledLog(Transactions(self._find_aborted(), last_stable_offset))

        return self.answer(find)

    def committed(self) -> CommittedLog:
        """Return the last stable offset, and the aborted transactions by the transaction indexes.

        Cost: that of AbortedSearch for what is asked.
        """
        if self.is_closed:
            raise closed_error(self.context)
        return CommittedLog(_LiveCommitted(self.last_stable_offset, self._search_aborted))

    def _search_aborted(self) -> AbortedSearch:
        return self._aborted_index.search(self.segments)

    def last_batch(self) -> None:
        """None: watch() and answer() detect truncations."""
        return

    def _find_aborted(self) -> tuple[AbortedTransaction, ...]:
        """Return the aborted transactions of the published log, or of a later state of it."""
        state = self._local.published
        earlier = self._aborted_state
        if earlier is not None and earlier[0] is state:
            return earlier[1]
        known, replaced = self.truncations.count, self.replaced_count
        walked_count, walked = self._walked
        if walked_count != known:
            walked = NOTHING_SETTLED
        settled = settle_transactions(self.segments, after=walked, config=self.context.config)
        if not self.truncations.may_have_changed(known) and self.replaced_count == replaced:
            self._walked = known, settled
            self._aborted_state = state, settled.aborted
        return settled.aborted

    def answer(self, read: Callable[[], Found]) -> Found:
        """Return what `read` returns; repeat it if the log was truncated while it ran."""
        while True:
            known, replaced = self.truncations.count, self.replaced_count
            try:
                answer = read()
            except ERRORS_OF_A_CHANGE:
                has_changed = self.truncations.may_have_changed(known) or self.replaced_count != replaced
                if self.is_closed or not has_changed:
                    raise
                continue
            if self.replaced_count != replaced:
                continue
            # A truncation that was running all the time has only shortened files. Other bytes can follow only after it,
            # when the counter moves again.
            if self.truncations.count == known:
                return answer

    def watch(self) -> Watch:
        return partial(self._watched, known=self.truncations.count)

    def _watched(
        self,
        find: Callable[[], Iterator[Found]],
        start_offset: int,
        reached_by: Callable[[Found], int],
        *,
        known: int,
    ) -> Iterator[Found]:
        """Yield what `find` finds until a truncation since `known` has reached one of the items.

        Raises: OffsetOutOfRangeError then.
        """
        return self._until_truncated(find(), start_offset, reached_by, known=known)

    def _until_truncated(
        self, items: Iterator[Found], start_offset: int, reached_by: Callable[[Found], int], *, known: int
    ) -> Iterator[Found]:
        reached = start_offset
        try:
            for item in items:
                reached = reached_by(item)
                truncations = self.truncations
                if truncations.count > known and reached >= (truncations.lowest_since(known) or 0):
                    raise self._truncated_under(reached)
                yield item
        except ERRORS_OF_A_CHANGE as error:
            if self.is_closed or not self.truncations.may_have_changed(known):
                raise
            raise self._truncated_under(reached) from error

    def _truncated_under(self, offset: int) -> OffsetOutOfRangeError:
        return out_of_range(
            self,
            offset,
            f"the log of {self.context.topic_partition} in {self.context.directory} was truncated while offset "
            f"{offset} was read: expected {self.log_start_offset} to {self.log_end_offset}",
        )

    def raise_change(self, error: KStoreError) -> None:
        """Do nothing: the iterators of watch() report the log's own truncations, and no other file can replace one."""

    def relist_or_raise(self, error: KStoreError, *, attempts_left: int) -> None:
        """Raise the error unless a file was gone or shorter and may be looked at again."""
        if not isinstance(error, LogReplacedError) or attempts_left <= 0:
            raise error
