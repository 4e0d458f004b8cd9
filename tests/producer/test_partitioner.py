"""Goal: records go to the partitions that Kafka's producer would choose, and follow the load as it does.
Method: vectors of the Java classes, fixed draws in place of random ones, and counts over many draws."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kstore.errors import UnknownTopicOrPartitionError
from kstore.producer import (
    BuiltInPartitioner,
    Cluster,
    Node,
    PartitionInfo,
    RoundRobinPartitioner,
    murmur2,
    partition_for_key,
)
from kstore.types import TopicPartition

VECTORS = Path(__file__).resolve().parents[1] / "golden" / "murmur" / "vectors.bin"
VECTOR = struct.Struct(">iH")
MASK = 2**64 - 1
TOPIC = "topic"
NODES = [Node(number, host=f"host-{number}") for number in range(3)]


def cluster_of(leaders: Sequence[int | None], topic: str = TOPIC) -> Cluster:
    """A topic with a partition for each leader, the number of a node or None."""
    return Cluster(
        PartitionInfo(topic, number, None if leader is None else NODES[leader]) for number, leader in enumerate(leaders)
    )


class Draws(random.Random):
    """Gives the numbers it was made with, modulo what is asked for."""

    def __init__(self, *numbers: int) -> None:
        super().__init__()
        self.numbers = list(numbers)

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        assert stop is None
        assert step == 1
        return self.numbers.pop(0) % start


def random_words() -> Iterator[int]:
    """splitmix64, seed 42, as in golden/murmur/Vectors.java."""
    state = 42
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        word = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
        yield word ^ (word >> 31)


def vector_keys() -> Iterator[bytes]:
    words = random_words()
    for number in range(100_000):
        size = next(words) % (5001 if number % 1000 == 999 else 65)
        count = (size + 7) // 8
        yield struct.pack(f"<{count}Q", *(next(words) for _ in range(count)))[:size]


def test_murmur2_and_partition_are_those_of_the_java_classes_for_100_000_keys() -> None:
    answers = list(VECTOR.iter_unpack(VECTORS.read_bytes()))
    found = [(murmur2(key), partition_for_key(key, 1 + n % 1000)) for n, key in enumerate(vector_keys())]
    assert len(answers) == 100_000
    assert found == answers


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize(
    ("key", "expected"),
    [
        pytest.param(b"21", -973932308, id="2-bytes"),
        pytest.param(b"foobar", -790332482, id="6-bytes"),
        pytest.param(b"a-little-bit-long-string", -985981536, id="24-bytes"),
        pytest.param(b"a-little-bit-longer-string", -1486304829, id="26-bytes"),
        pytest.param(b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971, id="48-bytes"),
        pytest.param(b"abc", 479470107, id="3-bytes"),
    ],
)
def test_murmur2_takes_any_buffer(key: bytes, expected: int, kind: type) -> None:
    assert murmur2(kind(key)) == expected


def test_murmur2_refuses_what_is_no_buffer() -> None:
    with pytest.raises(TypeError):
        murmur2("text")  # type: ignore[arg-type]


@pytest.mark.parametrize("partition_count", [0, -1])
def test_partition_for_key_refuses_a_topic_without_partitions(partition_count: int) -> None:
    with pytest.raises(ValueError, match=f"at least 1, got {partition_count}"):
        partition_for_key(b"key", partition_count)


@pytest.mark.parametrize("size", [0, -1])
def test_sticky_batch_size_below_1_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="sticky_batch_size"):
        BuiltInPartitioner(TOPIC, sticky_batch_size=size)


def test_partition_is_drawn_from_those_with_a_leader() -> None:
    partitioner = BuiltInPartitioner(TOPIC, sticky_batch_size=1)
    drawn = {partitioner.next_partition(cluster_of([0, None, 2, None])) for _ in range(100)}
    assert drawn == {0, 2}


def test_partition_is_drawn_from_all_if_none_has_a_leader() -> None:
    partitioner = BuiltInPartitioner(TOPIC, sticky_batch_size=1)
    assert {partitioner.next_partition(cluster_of([None, None])) for _ in range(100)} == {0, 1}


def test_unknown_topic_is_an_error() -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="'topic'"):
        BuiltInPartitioner(TOPIC, sticky_batch_size=1).next_partition(Cluster())
    with pytest.raises(UnknownTopicOrPartitionError, match="'topic'"):
        RoundRobinPartitioner().partition(TOPIC, None, None, None, None, Cluster())


def test_partition_stays_until_a_batch_is_full_of_bytes() -> None:
    cluster = cluster_of([0, 1, 2])
    partitioner = BuiltInPartitioner(TOPIC, sticky_batch_size=100, random=Draws(1, 2))
    first = partitioner.peek_current_partition_info(cluster)
    partitioner.update_partition_info(first, 99, cluster)
    assert first.partition == 1
    assert partitioner.peek_current_partition_info(cluster) is first
    assert not partitioner.is_partition_changed(first)
    partitioner.update_partition_info(first, 1, cluster)
    assert partitioner.is_partition_changed(first)
    assert partitioner.peek_current_partition_info(cluster).partition == 2


def test_partition_with_room_in_its_last_batch_stays_until_twice_the_bytes() -> None:
    cluster = cluster_of([0, 1, 2])
    partitioner = BuiltInPartitioner(TOPIC, sticky_batch_size=100, random=Draws(1, 2))
    first = partitioner.peek_current_partition_info(cluster)
    partitioner.update_partition_info(first, 199, cluster, enable_switch=False)
    assert not partitioner.is_partition_changed(first)
    partitioner.update_partition_info(first, 1, cluster, enable_switch=False)
    assert partitioner.is_partition_changed(first)


def test_partition_that_the_caller_chose_changes_nothing() -> None:
    partitioner = BuiltInPartitioner(TOPIC, sticky_batch_size=1)
    partitioner.update_partition_info(None, 1000, Cluster())
    assert not partitioner.is_partition_changed(None)


def test_next_choices_are_even_until_there_are_load_stats() -> None:
    cluster = cluster_of([0, 1, 2])
    partitioner = BuiltInPartitioner(TOPIC, sticky_batch_size=1, random=random.Random(7))
    drawn = Counter(partitioner.next_partition(cluster) for _ in range(3000))
    assert set(drawn) == {0, 1, 2}
    assert max(drawn.values()) - min(drawn.values()) < 200


# Weights: the longest queue and 1, less the own queue.
@pytest.mark.parametrize(
    ("queue_sizes", "partition_count", "weights"),
    [
        pytest.param({0: 0, 1: 3, 2: 1}, 3, {0: 4, 1: 1, 2: 3}, id="shorter-queues-more-often"),
        pytest.param({2: 5, 0: 5}, 3, {2: 1, 0: 1}, id="equal-queues-but-one-partition-left-out"),
        pytest.param({1: 9}, 2, {1: 1}, id="one-available"),
    ],
)
def test_every_draw_follows_the_weights(
    queue_sizes: dict[int, int], partition_count: int, weights: dict[int, int]
) -> None:
    total = sum(weights.values())
    partitioner = BuiltInPartitioner(TOPIC, sticky_batch_size=1, random=Draws(*range(total)))
    partitioner.update_partition_load_stats(queue_sizes, partition_count=partition_count)
    assert partitioner.load_stats_range_end == total
    assert Counter(partitioner.next_partition(Cluster()) for _ in range(total)) == weights


@pytest.mark.parametrize(
    ("queue_sizes", "partition_count"),
    [
        pytest.param(None, 3, id="none-known"),
        pytest.param({}, 3, id="none-available"),
        pytest.param({0: 4}, 1, id="one-partition"),
        pytest.param({0: 2, 1: 2, 2: 2}, 3, id="all-equal"),
    ],
)
def test_load_that_says_nothing_makes_the_draw_even_again(
    queue_sizes: dict[int, int] | None, partition_count: int
) -> None:
    partitioner = BuiltInPartitioner(TOPIC, sticky_batch_size=1)
    partitioner.update_partition_load_stats({0: 0, 1: 1}, partition_count=2)
    partitioner.update_partition_load_stats(queue_sizes, partition_count=partition_count)
    assert partitioner.load_stats_range_end == 0


def test_round_robin_takes_partitions_with_a_leader_in_turn_for_each_topic() -> None:
    partitioner = RoundRobinPartitioner()
    cluster = cluster_of([0, None, 2])
    taken = [partitioner.partition(TOPIC, "key", b"key", None, None, cluster) for _ in range(4)]
    other = partitioner.partition("other", None, None, None, None, cluster_of([None, None], "other"))
    assert (taken, other) == ([0, 2, 0, 2], 0)


def test_cluster_answers_by_topic_node_and_partition() -> None:
    infos = [
        PartitionInfo("b", 1, NODES[1], 7),
        PartitionInfo("b", 0, None),
        PartitionInfo("a", 0, NODES[1], 3),
    ]
    cluster = Cluster(infos, nodes=[NODES[0]])
    assert cluster.nodes == (NODES[0], NODES[1])
    assert cluster.topics == ("a", "b")
    assert cluster.partitions_for_topic("b") == (infos[1], infos[0])
    assert cluster.available_partitions_for_topic("b") == (infos[0],)
    assert [cluster.has_partition("b", number) for number in range(-1, 3)] == [False, True, True, False]
    assert (cluster.partition_count("b"), cluster.partition_count("c")) == (2, 0)
    assert cluster.leader_for(TopicPartition("b", 1)) == NODES[1]
    assert cluster.leader_for(TopicPartition("b", 0)) is None
    assert cluster.leader_epoch_for(TopicPartition("b", 1)) == 7
    assert cluster.leader_epoch_for(TopicPartition("c", 0)) is None


def test_cluster_refuses_a_partition_named_twice() -> None:
    with pytest.raises(ValueError, match="a-0 is listed twice"):
        Cluster([PartitionInfo("a", 0, None), PartitionInfo("a", 0, NODES[0])])
