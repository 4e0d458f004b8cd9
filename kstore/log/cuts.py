"""Cuts: how who cuts a log tells those who read it meanwhile. Layer 5."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Cuts:
    """The cuts of a log since it was opened, each counted twice: before its files change, and behind.

    Attributes: made (how many there were), lowest ((number, offset) of each that no later one went below).
    Threads: one that cuts, beside any number that ask.
    """

    def __init__(self) -> None:
        self.made = 0
        self.lowest: tuple[tuple[int, int], ...] = ()
        self._is_under_way = False

    @contextmanager
    def under_way(self, offset: int) -> Iterator[None]:
        """Tell readers that what lies at an offset and behind it goes."""
        self._is_under_way = True
        self.note(offset)
        try:
            yield
        finally:
            # Once more, for who began to read meanwhile.
            self.note(offset)
            self._is_under_way = False

    def note(self, offset: int) -> None:
        """Count a cut."""
        below = tuple(one for one in self.lowest if one[1] < offset)
        # In this order: who sees the number finds the offset.
        self.lowest = (*below, (self.made, offset))
        self.made += 1

    def lowest_since(self, known: int) -> int | None:
        """Return from where on the log was cut since there were `known` cuts, None if it was not."""
        return min((offset for number, offset in self.lowest if number >= known), default=None)

    def may_have_changed(self, known: int) -> bool:
        """Tell whether files changed, or change now, under who read when there were `known` cuts."""
        return self._is_under_way or self.made != known
