"""Goal: pushed filters are answered exactly or left to Spark, never a row too few.
Method: filters of each kind against the constraint, rows against the constraint; no JVM."""

from __future__ import annotations

from datetime import datetime, timezone

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from kstore.spark.pushdown import Constraint, Interval, constraint_of
from kstore.types import TopicPartition

NOON = datetime(2023, 11, 14, 12, 0, 0, 500, tzinfo=timezone.utc)
NOON_US = 1_699_963_200_000_500
OFFSET, PARTITION, TOPIC, TIMESTAMP = ("offset",), ("partition",), ("topic",), ("timestamp",)


@pytest.mark.parametrize(
    ("item", "constraint"),
    [
        pytest.param(EqualTo(OFFSET, 5), Constraint(offset=Interval(least=5, most=5)), id="equal"),
        pytest.param(EqualNullSafe(OFFSET, 5), Constraint(offset=Interval(least=5, most=5)), id="equal-null-safe"),
        pytest.param(GreaterThan(OFFSET, 5), Constraint(offset=Interval(least=6)), id="greater"),
        pytest.param(GreaterThanOrEqual(OFFSET, 5), Constraint(offset=Interval(least=5)), id="greater-or-equal"),
        pytest.param(LessThan(OFFSET, 5), Constraint(offset=Interval(most=4)), id="less"),
        pytest.param(LessThanOrEqual(OFFSET, 5), Constraint(offset=Interval(most=5)), id="less-or-equal"),
        pytest.param(EqualTo(("OFFSET",), 5), Constraint(offset=Interval(least=5, most=5)), id="capitals"),
        pytest.param(LessThan(PARTITION, 2), Constraint(partition=Interval(most=1)), id="partition"),
        pytest.param(In(PARTITION, [1, None]), Constraint(partitions=frozenset({1})), id="partition-in"),
        pytest.param(EqualTo(TOPIC, "a"), Constraint(topics=frozenset({"a"})), id="topic"),
        pytest.param(In(TOPIC, ["a", "b"]), Constraint(topics=frozenset({"a", "b"})), id="topic-in"),
        pytest.param(In(TOPIC, [None]), Constraint(topics=frozenset()), id="topic-in-nothing"),
        pytest.param(GreaterThan(TIMESTAMP, NOON), Constraint(timestamp_us=Interval(least=NOON_US + 1)), id="time"),
        pytest.param(IsNotNull(OFFSET), Constraint(), id="never-null"),
    ],
)
def test_filters_on_place_and_time_are_answered(item: Filter, constraint: Constraint) -> None:
    assert constraint_of([item]) == (constraint, [])


@pytest.mark.parametrize(
    "item",
    [
        pytest.param(EqualTo(("key",), b"k"), id="key"),
        pytest.param(IsNotNull(("key",)), id="key-not-null"),
        pytest.param(IsNotNull(TIMESTAMP), id="timestamp-not-null"),
        pytest.param(IsNull(OFFSET), id="null"),
        pytest.param(Not(EqualTo(OFFSET, 5)), id="not"),
        pytest.param(In(OFFSET, [5, 6]), id="offset-in"),
        pytest.param(StringStartsWith(TOPIC, "a"), id="prefix"),
        pytest.param(GreaterThan(TOPIC, "a"), id="topic-order"),
        pytest.param(EqualNullSafe(TOPIC, None), id="topic-null"),
        pytest.param(EqualTo(("headers", "key"), "k"), id="nested"),
        pytest.param(EqualTo(("timestampType",), 1), id="other-column"),
    ],
)
def test_other_filters_are_left_to_spark(item: Filter) -> None:
    constraint, left = constraint_of([item])
    assert constraint == Constraint()
    assert len(left) == 1
    assert left[0] is item


def test_filters_are_intersected() -> None:
    taken = [GreaterThan(OFFSET, 5), LessThanOrEqual(OFFSET, 9), GreaterThan(OFFSET, 2), In(TOPIC, ["a", "b"])]
    constraint, left = constraint_of([*taken, EqualTo(TOPIC, "a"), Not(EqualTo(TOPIC, "a"))])
    assert constraint == Constraint(topics=frozenset({"a"}), offset=Interval(least=6, most=9))
    assert left == [Not(EqualTo(TOPIC, "a"))]


@pytest.mark.parametrize(
    ("filters", "admitted"),
    [
        pytest.param([], ["a-0", "a-1", "b-0"], id="none"),
        pytest.param([EqualTo(TOPIC, "a")], ["a-0", "a-1"], id="topic"),
        pytest.param([EqualTo(PARTITION, 0)], ["a-0", "b-0"], id="partition"),
        pytest.param([GreaterThan(PARTITION, 0), EqualTo(TOPIC, "b")], [], id="neither"),
        pytest.param([In(PARTITION, [1, 2])], ["a-1"], id="partition-in"),
    ],
)
def test_constraint_admits_the_partitions_that_can_qualify(filters: list[Filter], admitted: list[str]) -> None:
    constraint, _ = constraint_of(filters)
    partitions = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)]
    assert [str(partition) for partition in partitions if constraint.admits(partition)] == admitted


def test_rows_outside_the_time_are_dropped_wherever_they_lie() -> None:
    timestamps = pa.array([5, 1, 9, 2, 9, None], pa.timestamp("us", tz="UTC"))
    batch = pa.record_batch({"offset": pa.array(range(6), pa.int64()), "timestamp": timestamps})
    rows = Constraint(timestamp_us=Interval(least=2, most=8)).rows_in_time(batch)
    assert rows.column("offset").to_pylist() == [0, 3]
    assert rows.schema == batch.schema


def test_rows_pass_unlooked_at_when_no_time_is_asked_for() -> None:
    batch = pa.record_batch({"offset": pa.array([1], pa.int64())})
    assert Constraint().rows_in_time(batch) is batch
