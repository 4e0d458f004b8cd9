"""Goal: offset ranges are cut into the tasks that Spark's Kafka source makes of them, in its order.
Method: splits observed on the connector (topic f.skew: 1000, 100, 10 and 1 records), and coverage of any input."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.spark.offsets import OffsetRange
from kstore.spark.splitting import split_ranges
from kstore.types import TopicPartition

SKEWED = [(0, 0, 1000), (1, 0, 100), (2, 0, 10), (3, 0, 1)]


def ranges(items: list[tuple[int, int, int]], topic: str = "f.skew") -> list[OffsetRange]:
    return [OffsetRange(TopicPartition(topic, partition), start, end) for partition, start, end in items]


def pieces(
    items: list[OffsetRange], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[tuple[int, int, int]]:
    split = split_ranges(items, min_partitions=min_partitions, max_records_per_partition=max_records)
    return [(item.topic_partition.partition, item.start_offset, item.end_offset) for item in split]


def even(partition: int, size: int, step: int) -> list[tuple[int, int, int]]:
    return [(partition, start, start + step) for start in range(0, size, step)]


SMALL_FIRST = [(2, 0, 10), (1, 0, 100), (3, 0, 1)]


@pytest.mark.parametrize(
    ("min_partitions", "max_records", "expected"),
    [
        pytest.param(None, None, SKEWED, id="none"),
        pytest.param(1, None, SKEWED, id="fewer-than-there-are"),
        pytest.param(4, None, SKEWED, id="as-many-as-there-are"),
        pytest.param(5, None, SMALL_FIRST + even(0, 1000, 500), id="one-more"),
        pytest.param(8, None, SMALL_FIRST + even(0, 1000, 200), id="twice-as-many"),
        pytest.param(12, 300, SMALL_FIRST + even(0, 1000, 125), id="both-options"),
        pytest.param(None, 300, even(0, 1000, 250) + SKEWED[1:], id="at-most-300"),
        pytest.param(4, 300, even(0, 1000, 250) + SKEWED[1:], id="at-most-300-and-enough"),
        pytest.param(None, 1000, SKEWED, id="at-most-what-there-is"),
    ],
)
def test_skewed_topic_is_split_as_the_connector_splits_it(
    min_partitions: int | None, max_records: int | None, expected: list[tuple[int, int, int]]
) -> None:
    assert pieces(ranges(SKEWED), min_partitions=min_partitions, max_records=max_records) == expected


def test_rest_goes_to_the_last_pieces() -> None:
    assert pieces(ranges([(0, 0, 28)]), min_partitions=6) == [
        (0, 0, 4),
        (0, 4, 8),
        (0, 8, 13),
        (0, 13, 18),
        (0, 18, 23),
        (0, 23, 28),
    ]


def test_half_a_share_counts_as_a_whole_one_as_java_rounds() -> None:
    split = pieces(ranges([(0, 0, 6), (1, 0, 10)]), min_partitions=4)
    assert sorted(split) == [(0, 0, 3), (0, 3, 6), (1, 0, 3), (1, 3, 6), (1, 6, 10)]


def test_more_partitions_than_offsets_gives_one_offset_each() -> None:
    assert pieces(ranges([(0, 5, 8)]), min_partitions=100) == [(0, 5, 6), (0, 6, 7), (0, 7, 8)]


@pytest.mark.parametrize("min_partitions", [None, 1, 2, 9])
def test_empty_ranges_make_no_task(min_partitions: int | None) -> None:
    assert pieces(ranges([(0, 7, 7), (1, 3, 4)]), min_partitions=min_partitions) == [(1, 3, 4)]
    assert pieces(ranges([(0, 7, 7)]), min_partitions=min_partitions) == []


ANY_RANGES = st.lists(
    st.tuples(st.sampled_from(["a", "b.c"]), st.integers(0, 40), st.integers(0, 50), st.integers(0, 3000)),
    unique_by=lambda item: (item[0], item[1]),
    max_size=40,
)


@given(ANY_RANGES, st.none() | st.integers(1, 60), st.none() | st.integers(1, 500))
def test_pieces_cover_every_offset_once_and_keep_to_the_limit(
    items: list[tuple[str, int, int, int]], min_partitions: int | None, max_records: int | None
) -> None:
    whole = [OffsetRange(TopicPartition(topic, number), start, start + size) for topic, number, start, size in items]
    split = split_ranges(whole, min_partitions=min_partitions, max_records_per_partition=max_records)
    joined: dict[TopicPartition, OffsetRange] = {}
    for piece in split:
        assert 0 < piece.size <= (max_records or piece.size)
        before = joined.setdefault(piece.topic_partition, OffsetRange(*piece[:2], piece.start_offset))
        assert before.end_offset == piece.start_offset
        joined[piece.topic_partition] = before._replace(end_offset=piece.end_offset)
    assert joined == {item.topic_partition: item for item in whole if item.size}
