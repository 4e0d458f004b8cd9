"""PublishedLog: what readers in the writer's process see of a log that is being written.

The writer publishes one tuple, replaced in one step after each append; readers take it without a lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from kstore.config import LogConfig
from kstore.errors import KStoreError, LogReplacedError, OffsetOutOfRangeError
from kstore.log.env import Env
from kstore.log.files.names import PartitionDirectory
from kstore.log.log import Found, Log, Watch
from kstore.log.recovery.context import LoadedLog, RecoveryContext
from kstore.log.segment.replaced import ERRORS_OF_A_CHANGE
from kstore.log.segment.segment import LogSegment
from kstore.log.state.transactions import (
    NOTHING_SETTLED,
    AbortedTransaction,
    Settled,
    Transactions,
    settle_transactions,
)
from kstore.log.write.local_log import Cuts, LocalLog, Published
from kstore.log.write.rules import LeaderRules


class PublishedLog(Log):
    """The reading half of WritableLog: a Log whose segments and bounds are those that the writer last published.

    What was published stays valid while the log grows. The writer announces a truncation first: a reader that continues
    either gets its records or OffsetOutOfRangeError, but never bytes from before and after it.
    Attributes: producer_state (read-only for callers; the log changes it).
    """

    def __init__(
        self, directory: PartitionDirectory, *, config: LogConfig, loaded: LoadedLog, rules: LeaderRules, env: Env
    ) -> None:
        super().__init__(directory, config=config, env=env)
        # Nothing that the log holds refers back to it, so that dropping its last reference releases it at once.
        self._context = self._context._replace(cleaned_below=RecoveryContext(directory, config, env, 0).cleaned_below)
        self.producer_state = loaded.producer_state
        self._local = LocalLog(self._context, loaded, rules=rules, env=env)
        self._cuts = Cuts()
        self._aborted_state: tuple[Published, tuple[AbortedTransaction, ...]] | None = None
        # The result of the last walk over transactions, and the truncation counter at that time.
        self._walked: tuple[int, Settled] = (0, NOTHING_SETTLED)

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        return self._local.segments

    @property
    def log_start_offset(self) -> int:
        return self._local.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record of a leader gets."""
        return self._local.log_end_offset

    @property
    def high_watermark(self) -> int:
        """The high watermark: the log end offset until update_high_watermark is first called."""
        return self._local.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Where the first transaction starts that is undecided or whose marker is not below the high watermark.

        The high watermark if there is none below it; the log start offset if that is higher.
        Source: Kafka UnifiedLog.lastStableOffset, ProducerStateManager.firstUnstableOffset.
        """
        # The high watermark first: a transaction that starts after it was read is not below it.
        high_watermark = self.high_watermark
        return self.producer_state.last_stable_offset(
            high_watermark=high_watermark, log_start_offset=self.log_start_offset
        )

    def transactions(self) -> Transactions:
        """Return the current aborted transactions and last stable offset; see Log.transactions.

        The last stable offset comes from producer state, not from the walk: only producer state knows which markers the
        high watermark has passed and, as in Kafka, which open transactions a truncation forgot.
        Cost: a header walk over what was appended since the last call; over the whole log the first time and after a
            truncation.
        """
        self._check_open()

        def find() -> Transactions:
            # Before the walk, so that it finds every transaction decided below this offset.
            last_stable_offset = self.last_stable_offset
            return Transactions(self._find_aborted(), last_stable_offset)

        return self._unchanged(find)

    def _find_aborted(self) -> tuple[AbortedTransaction, ...]:
        """Return the aborted transactions of the published log, or of a later state of it."""
        state = self._local.published
        found = self._aborted_state
        if found is not None and found[0] is state:
            return found[1]
        known = self._cuts.made
        walked_cuts, behind = self._walked
        if walked_cuts != known:
            behind = NOTHING_SETTLED
        settled = settle_transactions(self.segments, behind=behind, config=self.config)
        if not self._cuts.may_have_changed(known):
            self._walked = known, settled
            self._aborted_state = state, settled.aborted
        return settled.aborted

    def _find_segments(self) -> tuple[LogSegment, ...]:
        """Find none: the writer opens them once they are loaded."""
        return ()

    def _watch(self) -> Watch:
        return partial(self._watched, known=self._cuts.made)

    def _watched(
        self, found: Iterator[Found], start_offset: int, reached_by: Callable[[Found], int], *, known: int
    ) -> Iterator[Found]:
        """Yield the items of `found` until a truncation since `known` has reached one of them.

        Raises: OffsetOutOfRangeError then.
        """
        reached = start_offset
        try:
            for one in found:
                reached = reached_by(one)
                cuts = self._cuts
                if cuts.made > known and reached >= (cuts.lowest_since(known) or 0):
                    raise self._cut_under(reached)
                yield one
        except ERRORS_OF_A_CHANGE as error:
            if self._is_closed or not self._cuts.may_have_changed(known):
                raise
            raise self._cut_under(reached) from error

    def _cut_under(self, offset: int) -> OffsetOutOfRangeError:
        return self._out_of_range(
            offset,
            f"the log of {self.topic_partition} in {self.path} was cut while offset {offset} was read: "
            f"expected {self.log_start_offset} to {self.log_end_offset}",
        )

    def _renewed(self, found: Iterator[Found], _find_again: Callable[[], Iterator[Found]]) -> Iterator[Found]:
        return found

    def _change_behind(self, error: KStoreError) -> LogReplacedError | None:
        """Return the error if a file is gone or shorter, else None: _watched reports the log's own changes."""
        return error if isinstance(error, LogReplacedError) else None

    def _renew(self, change: LogReplacedError) -> None:
        """Do nothing: what is published is always current."""

    def _unchanged(self, read: Callable[[], Found]) -> Found:
        """Return what `read` returns; repeat it if the log was truncated while it ran."""
        while True:
            known = self._cuts.made
            try:
                found = read()
            except ERRORS_OF_A_CHANGE:
                if self._is_closed or not self._cuts.may_have_changed(known):
                    raise
                continue
            # A truncation that was running all the time has only shortened files. Other bytes can follow only after it,
            # when the counter moves again.
            if self._cuts.made == known:
                return found
