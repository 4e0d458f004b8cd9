"""Filter pushdown (option pushFilters=true): filters that the reader evaluates itself.

Only comparisons of topic, partition, offset and timestamp are pushed down; Spark evaluates all other filters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, TypeVar

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

Value = TypeVar("Value")

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_NEVER_NULL = frozenset({"topic", "partition", "offset", "timestamptype"})
_LEAST, _MOST = -(2**63), 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Integers with least <= n <= most."""

    least: int = _LEAST
    most: int = _MOST

    def narrowed(self, item: Filter, value: int) -> Interval:
        """Return the intersection with the integers for which a comparison with value is true."""
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


@dataclass(frozen=True, kw_only=True)
class Constraint:
    """The conjunction of the pushed filters. topics and partitions: None allows all."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    partition: Interval = Interval()
    offset: Interval = Interval()
    timestamp_us: Interval = Interval()

    def narrowed(self, item: Filter) -> Constraint | None:
        """Return the conjunction with a filter, or None if it can't be evaluated exactly and Spark must keep it."""
        if not isinstance(item, _ANSWERED) or len(item.attribute) != 1:
            return None
        name = item.attribute[0].lower()
        if isinstance(item, IsNotNull):
            return self if name in _NEVER_NULL else None
        if isinstance(item, In):
            return self._narrowed_to_any(name, item)
        if name == "topic" and isinstance(item, EqualTo | EqualNullSafe) and isinstance(item.value, str):
            return replace(self, topics=_intersection(self.topics, {item.value}))
        if name in ("partition", "offset") and isinstance(item.value, int):
            return replace(self, **{name: getattr(self, name).narrowed(item, item.value)})
        if name == "timestamp" and isinstance(item.value, datetime):
            microseconds = (item.value - _EPOCH) // timedelta(microseconds=1)
            return replace(self, timestamp_us=self.timestamp_us.narrowed(item, microseconds))
        return None

    def _narrowed_to_any(self, name: str, item: In) -> Constraint | None:
        values = {value for value in item.value if value is not None}
        if name == "topic" and all(isinstance(value, str) for value in values):
            return replace(self, topics=_intersection(self.topics, values))
        if name == "partition" and all(isinstance(value, int) for value in values):
            return replace(self, partitions=_intersection(self.partitions, values))
        return None

    def admits(self, topic_partition: TopicPartition) -> bool:
        """True if records of the partition can match."""
        topic, partition = topic_partition
        return (
            (self.topics is None or topic in self.topics)
            and (self.partitions is None or partition in self.partitions)
            and self.partition.least <= partition <= self.partition.most
        )

    def rows_in_time(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Remove the rows outside the requested times. If there is a time filter, the batch has a timestamp column."""
        if self.timestamp_us == Interval():
            return batch
        import pyarrow as pa
        import pyarrow.compute as pc

        timestamps = batch.column("timestamp").cast(pa.int64())
        is_late_enough = pc.greater_equal(timestamps, self.timestamp_us.least)
        return batch.filter(pc.and_(is_late_enough, pc.less_equal(timestamps, self.timestamp_us.most)))


_ANSWERED = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual, In, IsNotNull)


def _intersection(known: frozenset[Value] | None, values: set[Value]) -> frozenset[Value]:
    return frozenset(values) if known is None else known & values


def constraint_of(filters: list[Filter]) -> tuple[Constraint, list[Filter]]:
    """Split filters into a Constraint, which the reader evaluates, and the filters left to Spark."""
    constraint, left = Constraint(), []
    for item in filters:
        narrowed = constraint.narrowed(item)
        if narrowed is None:
            left.append(item)
        else:
            constraint = narrowed
    return constraint, left
