"""Numbers, sizes, spans and times as the page writes them: SI units, UTC."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_SPANS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


def number_text(number: float | None) -> str:
    """Return a number with separators, a fraction with three digits, `-` for None."""
    if number is None:
        return "-"
    return f"{number:,}" if isinstance(number, int) else f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"


def size_text(size: float | None) -> str:
    """Return bytes as B, kB, MB, ...; 1 kB is 1,000 bytes."""
    if size is None:
        return "-"
    shown = float(size)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(shown) < 999.5 or unit == "TB":
            break
        shown /= 1000
    return f"{size:,.0f} B" if unit == "B" else f"{shown:.3g} {unit}"


def span_text(span_ms: float | None) -> str:
    """Return a length of time in its largest unit that fits, `-` for None."""
    if span_ms is None:
        return "-"
    for length, unit in _SPANS:
        if span_ms >= length:
            return f"{span_ms / length:,.3g} {unit}" if span_ms < 999 * length else f"{span_ms // length:,} {unit}"
    return f"{span_ms:,.0f} ms"


def time_text(timestamp_ms: int | None) -> str:
    """Return the UTC time to the second, the number of ms outside of the years 1 to 9999, or `-` for None."""
    if timestamp_ms is None:
        return "-"
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return f"{timestamp_ms} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S") if moment.year >= 1000 else f"{timestamp_ms} ms"
