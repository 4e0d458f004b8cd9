"""Goal: a stream's place is kept in the JSON of Spark's Kafka source, equal places in equal texts, and what is no such
place is refused. Method: texts against values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kstore.spark.stream.positions import StreamPosition, named
from kstore.types import TopicPartition

HERE = {TopicPartition("b", 10): 5, TopicPartition("b", 9): 2**63 - 1, TopicPartition("a", 0): 0}


def test_json_is_that_of_the_kafka_source_sorted_by_topic_and_number() -> None:
    text = json.dumps(StreamPosition(HERE).to_json())
    assert text == '{"a": {"0": 0}, "b": {"9": 9223372036854775807, "10": 5}}'
    assert StreamPosition.of(json.loads(text)) == StreamPosition(HERE)


def test_first_micro_batch_says_where_the_stream_started() -> None:
    start = {TopicPartition("a", 0): 0}
    found = StreamPosition(HERE, start).to_json()
    assert found["kstore:start"] == {"a": {"0": 0}}
    assert StreamPosition.of(found) == StreamPosition(HERE, start)
    assert not StreamPosition.of(found).is_start
    assert StreamPosition(start, start).is_start
    assert not StreamPosition(start).is_start


def test_stream_without_partitions_has_a_place_too() -> None:
    empty = StreamPosition({}, {})
    assert empty.to_json() == {"kstore:start": {}}
    assert StreamPosition.of(empty.to_json()) == empty
    assert StreamPosition.of({}) == StreamPosition({})


@pytest.mark.parametrize(
    "found",
    [
        {"a": 5},
        {"a": {"x": 5}},
        {"a": {"0": -1}},
        {"a": {"0": 2**63}},
        {"a": {"0": 1.5}},
        {"a": {"0": True}},
        {"a": {"0": None}},
        {"a": {"2147483648": 0}},
        {"a": {"-1": 0}},
        {"a": {"0": 1}, "kstore:start": {"a": 1}},
        {"kstore:start": 7},
    ],
)
def test_checkpoint_of_another_source_is_refused(found: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"offsets in the checkpoint: expected the form of .* another source"):
        StreamPosition.of(found)


def test_partitions_are_named_in_order() -> None:
    assert named(HERE) == "a-0, b-9, b-10"
