"""Truncations: by which readers and followers of a log that this process writes notice that it was truncated under
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kstore.log.source import Comparison
from kstore.record.batches import RecordBatch


class Truncations:
    """A counter of truncations since the log was opened. Each one is counted twice, before and after the files change,
    so that a reader that overlaps it always sees the counter move.

    Attributes: count, lowest ((count, offset) of each truncation that no later one undercut), is_running.
    Threads: one writer, any number of readers.
    """

    def __init__(self) -> None:
        self.count = 0
        self.lowest: tuple[tuple[int, int], ...] = ()
        self.is_running = False

    @contextmanager
    def running(self, offset: int) -> Iterator[None]:
        """Announce that records from `offset` on are being removed."""
        self.is_running = True
        try:
            self.note(offset)
            yield
        finally:
            try:
                # Count again for readers that started during the truncation.
                self.note(offset)
            finally:
                self.is_running = False

    def note(self, offset: int) -> None:
        """Count a truncation to `offset`."""
        below = tuple(truncation for truncation in self.lowest if truncation[1] < offset)
        # Publish the offset before the counter: a reader that sees the counter must find the offset.
        self.lowest = (*below, (self.count, offset))
        self.count += 1

    def lowest_since(self, known: int) -> int | None:
        """Return the lowest offset truncated to since `count` was `known`, or None."""
        return min((offset for number, offset in self.lowest if number >= known), default=None)

    def may_have_changed(self, known: int) -> bool:
        """True if a truncation started, or is running, since `count` was `known`."""
        return self.is_running or self.count != known


class LiveHistory:
    """The History of a log that this process writes.  Cost: of a look, that of reading a counter."""

    def __init__(self, truncations: Truncations) -> None:
        self._truncations = truncations
        self._known = truncations.count
        self._given_end = 0

    def start(self, position: int) -> None:
        self._known = self._truncations.count
        self._given_end = position

    def look(self, position: int) -> Comparison | None:
        truncations = self._truncations
        count = truncations.count
        if truncations.is_running:
            return None
        lowest = truncations.lowest_since(self._known)
        if truncations.count != count:
            return None
        self._known = count
        if lowest is None or lowest >= position:
            return Comparison(position)
        if lowest >= self._given_end:
            return Comparison(lowest)
        self._given_end = lowest
        return Comparison(position, is_truncated=True, truncated_to=lowest)

    @property
    def is_current(self) -> bool:
        return not self._truncations.may_have_changed(self._known)

    def note(self, batch: RecordBatch) -> None:
        self._given_end = batch.next_offset
