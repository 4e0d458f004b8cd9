"""Names that were meant: what to say if a topic, a group or a column that was asked for is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def did_you_mean(asked: Iterable[str], known: Iterable[str]) -> str:
    """Return `; did you mean orders?` for names of which similar ones are known, or an empty text."""
    from difflib import get_close_matches

    names = sorted(set(known))
    close: dict[str, None] = {}
    for name in asked:
        if name not in names:
            close.update(dict.fromkeys(get_close_matches(name, names, n=3)))
    return f"; did you mean {' or '.join(close)}?" if close else ""
