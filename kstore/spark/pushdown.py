"""Filters that the reader answers itself, with the option pushFilters=true. Layer: spark.

Topic, partition, offset and timestamp only, by comparison; Spark keeps every other filter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from kstore.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_NEVER_NULL = frozenset({"topic", "partition", "offset", "timestamp", "timestamptype"})
_LEAST, _MOST = -(2**63), 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Integers with least <= n <= most."""

    least: int = _LEAST
    most: int = _MOST

    def narrowed(self, item: Filter, value: int) -> Interval:
        """Intersect with what a comparison to value admits."""
        least, most = self.least, self.most
        if isinstance(item, EqualTo | EqualNullSafe | GreaterThanOrEqual):
            least = max(least, value)
        if isinstance(item, EqualTo | EqualNullSafe | LessThanOrEqual):
            most = min(most, value)
        if isinstance(item, GreaterThan):
            least = max(least, value + 1)
        if isinstance(item, LessThan):
            most = min(most, value - 1)
        return Interval(least=least, most=most)
