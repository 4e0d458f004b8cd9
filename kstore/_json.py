"""What JSON has no form for, in the form that Protobuf's JSON gives it."""

from __future__ import annotations

import math


def plain_number(value: float) -> float | str:
    """Return a number as JSON can hold it: NaN and infinities are the texts "NaN", "Infinity" and "-Infinity"."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
