"""AbortedIndex: the aborted transactions of a log that this process writes, by its .txnindex files.

A segment in which no transaction was aborted has no such file, so a file that was lost does not show. Where one is
missing or damaged, the headers of what is asked for are walked. The writer itself knows which transactions it aborted.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from kstore.config import LogConfig
from kstore.env import Env
from kstore.errors import CorruptIndexError, StorageError
from kstore.log.files.indexes import MAX_INDEX_BYTES
from kstore.log.files.names import TRANSACTION_INDEX_SUFFIX, segment_path
from kstore.log.files.transaction_index import AbortedTxn, StatedAborted, decode_aborted_txns
from kstore.log.segment.segment import LogContext, LogSegment
from kstore.log.state.transactions import AbortedTransaction, find_aborted
from kstore.types import MAX_OFFSET

UNKNOWN = StatedAborted((), MAX_OFFSET)
MOST_WALKED_RANGES = 64


class _Looked(NamedTuple):
    """The segments at one time, and those of them that a search has to look at: with entries, or not complete."""

    segments: tuple[LogSegment, ...]
    relevant: tuple[LogSegment, ...]


class AbortedIndex:
    """What the transaction indexes of a log state, read when it is first asked for.

    Threads: thread-safe; of what two threads read at once one is kept.
    """

    def __init__(self, context: LogContext, env: Env) -> None:
        self._context = context
        self._env = env
        self._looked = _Looked((), ())
        # Of what the log had when it was opened; what is appended since has its entries, so that they stay right.
        self._walked = WalkedRanges()

    def search(self, segments: tuple[LogSegment, ...]) -> AbortedSearch:
        """Return a search in the log as it is now.

        Args: segments: of the log, sealed ones and the active one.
        Cost: the first time, and after segments were replaced, a listing and a read of each new index.
        """
        relevant = (*self._relevant(segments[:-1]), segments[-1])
        return AbortedSearch(segments, relevant, self._walked, self._context.config)

    def _relevant(self, sealed: tuple[LogSegment, ...]) -> tuple[LogSegment, ...]:
        looked = self._looked
        if len(looked.segments) == len(sealed) and all(map(_is, looked.segments, sealed)):
            return looked.relevant
        unread = [segment for segment in sealed if segment.stated_aborted is None]
        names = set(self._env.listdir(self._context.directory)) if unread else set()
        for segment in unread:
            segment.stated_aborted = self._read(segment, names)
        relevant = tuple(
            segment
            for segment in sealed
            if (stated := segment.stated_aborted or UNKNOWN).entries or stated.complete_from > segment.base_offset
        )
        self._looked = _Looked(sealed, relevant)
        return relevant

    def _read(self, segment: LogSegment, names: set[str]) -> StatedAborted:
        path = segment_path(self._context.directory, segment.base_offset, suffix=TRANSACTION_INDEX_SUFFIX)
        if path.rpartition("/")[2] not in names:
            return UNKNOWN
        try:
            content = self._env.read_file(path, max_bytes=MAX_INDEX_BYTES)
            entries = decode_aborted_txns(content, base_offset=segment.base_offset, path=path)
        except (CorruptIndexError, StorageError):
            return UNKNOWN
        if not entries or any(not 0 <= one.first_offset <= one.last_offset for one in entries):
            return UNKNOWN
        if segment.next_base_offset is not None and entries[-1].last_offset >= segment.next_base_offset:
            return UNKNOWN
        return StatedAborted(entries, segment.base_offset)


class AbortedSearch(NamedTuple):
    """Finds the aborted transactions that overlap a range of offsets.

    segments: of the log; relevant: those that have entries, or whose index is not complete, and the active one; walked:
    ranges without aborted transactions.
    """

    segments: tuple[LogSegment, ...]
    relevant: tuple[LogSegment, ...]
    walked: WalkedRanges
    config: LogConfig

    def may_find(self, start_offset: int, *, end_offset: int) -> bool:
        """Whether between may return any.  Cost: O(log entries) for each relevant segment."""
        found, is_complete = self._stated(start_offset, end_offset=end_offset, most=1)
        return bool(found) or not is_complete

    def between(self, start_offset: int, *, end_offset: int) -> tuple[AbortedTransaction, ...]:
        """Return the aborted transactions with data below end_offset and their markers at start_offset or above, by
        marker.

        Where an index is missing or damaged, those with data in [start_offset, end_offset), whose first_offset is then
        that of this data. Requires: all transactions with data there are decided.
        Raises: where headers are walked, as find_aborted.
        Cost: O(log entries) for each relevant segment, and the transactions returned; where an index is missing, a
            header walk over the range, and on until its transactions are decided.
        Source: Kafka LocalLog.collectAbortedTransactions.
        """
        found, is_complete = self._stated(start_offset, end_offset=end_offset)
        stated = [AbortedTransaction(*one[:3]) for one in found]
        if is_complete or self.walked.hold(start_offset, end_offset=end_offset):
            return tuple(stated)
        first = max((n for n, segment in enumerate(self.segments) if segment.base_offset <= start_offset), default=0)
        found_by_walk = find_aborted(self.segments[first:], start_offset, end_offset=end_offset, config=self.config)
        if not found_by_walk:
            self.walked.add(start_offset, end_offset=end_offset)
        known = {(one.producer_id, one.last_offset) for one in stated}
        unstated = [one for one in found_by_walk if (one.producer_id, one.last_offset) not in known]
        return tuple(sorted([*stated, *unstated], key=lambda one: one.last_offset))

    def _stated(self, start_offset: int, *, end_offset: int, most: int = MAX_OFFSET) -> tuple[list[AbortedTxn], bool]:
        """Return the entries that overlap a range, up to `most`, and whether these are all aborted transactions."""
        found: list[AbortedTxn] = []
        is_complete = True
        for segment in self.relevant:
            if segment.next_base_offset is not None and segment.next_base_offset <= start_offset:
                continue
            stated = segment.stated_aborted or UNKNOWN
            is_complete = is_complete and stated.complete_from <= max(start_offset, segment.base_offset)
            entries = stated.entries
            for slot in range(bisect_left(entries, start_offset, key=lambda one: one.last_offset), len(entries)):
                entry = entries[slot]
                if entry.first_offset < end_offset:
                    found.append(entry)
                if entry.last_stable_offset >= end_offset or len(found) >= most:
                    return found, is_complete
        return found, is_complete


class WalkedRanges:
    """Disjoint ranges of offsets that were walked and have no data of aborted transactions; the latest ones are kept.

    Threads: thread-safe: the list is replaced, not changed.
    """

    def __init__(self) -> None:
        self._ranges: tuple[tuple[int, int], ...] = ()

    def hold(self, start_offset: int, *, end_offset: int) -> bool:
        """Whether one of them holds [start_offset, end_offset)."""
        return any(start <= start_offset and end_offset <= end for start, end in self._ranges)

    def add(self, start_offset: int, *, end_offset: int) -> None:
        """Add a range, joined with those that it touches."""
        touched = [one for one in self._ranges if one[0] <= end_offset and start_offset <= one[1]]
        others = [one for one in self._ranges if one not in touched]
        joined = min([start_offset, *(start for start, _ in touched)]), max([end_offset, *(end for _, end in touched)])
        self._ranges = (*others[-MOST_WALKED_RANGES + 1 :], joined)


def _is(one: LogSegment, other: LogSegment) -> bool:
    return one is other
