"""`--watch`: what a command shows, again and again; `--sort`: in which order."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kstore.env.process import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from enum import Enum
    from typing import Any

    from kstore.cli.output import Output

_Shown = TypeVar("_Shown")


class Order(NamedTuple):
    """In which order a command shows what it lists. key: a name that the command knows, None for its own order."""

    key: str | None = None
    is_reversed: bool = False

    @classmethod
    def of(cls, sort: Enum | None, *, is_reversed: bool) -> Order:
        """Return the order that the options ask for."""
        return cls(None if sort is None else str(sort.value), is_reversed)

    def apply(self, shown: Iterable[_Shown], keys: Mapping[str, Callable[[_Shown], Any]]) -> list[_Shown]:
        """Return what is shown in this order; equal ones stay as they are, and an unknown value is the least."""
        rows = list(shown)
        if self.key is not None:
            key = keys[self.key]
            known = [(key(row), row) for row in rows]
            rows = [row for value, row in known if value is None]
            rows += [row for _, row in sorted((one for one in known if one[0] is not None), key=lambda one: one[0])]
        return rows[::-1] if self.is_reversed else rows

    @property
    def is_given(self) -> bool:
        """Whether all has to be known before anything is shown."""
        return self.key is not None or self.is_reversed


def watched(show: Callable[[], int], out: Output, *, interval_s: float | None, is_json: bool) -> int:
    """Call `show` once, or every interval until an interrupt, and return its exit status.

    On a terminal a table takes the place of the one before; elsewhere an empty line is between them. JSON goes on line
    by line.
    """
    status = show()
    while interval_s is not None:
        out.flush()
        SYSTEM_CLOCK.sleep_ms(interval_s * 1000)
        if not is_json:
            out.next_block()
        status = show()
    return status
