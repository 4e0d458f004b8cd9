"""Small tables as HTML, for the `_repr_html_` of public classes: what a notebook shows of them.

They have no style of their own, except that numbers are at the right: they take the look of the page, light or dark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

MOST_ROWS = 20
_MOST_CHARACTERS = 300
_NUMBER = ' style="text-align:right;font-variant-numeric:tabular-nums"'
_TEXT = ' style="text-align:left"'


def text_of(value: object) -> str:
    """Return a value as escaped text: numbers with separators, `-` for None, long texts cut.

    Bytes of names that are not UTF-8 become U+FFFD.
    """
    if value is None:
        return "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    from html import escape

    text = str(value).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return escape(text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}...")


def fields_html(title: str, fields: Iterable[tuple[str, object]]) -> str:
    """Return a table of names and values, with a title above it."""
    rows = "".join(
        f'<tr><th scope="row"{_TEXT}>{text_of(name)}</th><td{_alignment(value)}>{text_of(value)}</td></tr>'
        for name, value in fields
    )
    return f"<table>{_caption(title)}<tbody>{rows}</tbody></table>"


def table_html(title: str, names: Sequence[str], rows: Iterable[Sequence[object]], *, count: int) -> str:
    """Return a table with at most MOST_ROWS rows, and a line that says how many of the `count` there are more.

    Args: rows: only the first MOST_ROWS are taken.
    """
    shown = [tuple(row) for row in islice(rows, MOST_ROWS)]
    first = shown[0] if shown else ("",) * len(names)
    head = "".join(
        f'<th scope="col"{_alignment(value)}>{text_of(name)}</th>' for name, value in zip(names, first, strict=True)
    )
    body = "".join(
        f"<tr>{''.join(f'<td{_alignment(value)}>{text_of(value)}</td>' for value in row)}</tr>" for row in shown
    )
    more = f"<p>and {count - len(shown):,} more</p>" if count > len(shown) else ""
    return f"<table>{_caption(title)}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _caption(title: str) -> str:
    return f'<caption style="caption-side:top;text-align:left">{text_of(title)}</caption>'


def _alignment(value: object) -> str:
    return _NUMBER if isinstance(value, int) and not isinstance(value, bool) else _TEXT
