"""What tests of the producer's parts share: a cluster of two nodes, a clock that is set, an accumulator, its sender.

Written from the interfaces alone; records, batches and times are small enough to be counted by hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kstore.producer.batches.accumulator import BufferPool, RecordAccumulator
from kstore.producer.batches.batch import ProducerBatch
from kstore.producer.cluster import Cluster, Node, PartitionInfo
from kstore.record import MemoryRecords
from kstore.types import TopicPartition

TOPIC = "t"
NODE_1, NODE_2 = Node(1, "a", 1), Node(2, "b", 2)
TP_1, TP_2, TP_3 = (TopicPartition(TOPIC, number) for number in range(3))
CLUSTER = Cluster(
    [PartitionInfo(TOPIC, 0, NODE_1), PartitionInfo(TOPIC, 1, NODE_1), PartitionInfo(TOPIC, 2, NODE_2)],
    nodes=[NODE_1, NODE_2],
)
KEY, VALUE = b"key", b"value"
RECORD_BYTES = 15
HEADER_BYTES = 61
RECORDS_PER_BATCH = 10
BATCH_BYTES = HEADER_BYTES + RECORDS_PER_BATCH * RECORD_BYTES + 7
ALL_BYTES = 2**31 - 1
FAR_MS = 2**50


class SetClock:
    """A clock that stands still until it is told."""

    def __init__(self) -> None:
        self.now_ms = 0

    def wall_clock_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


def new_accumulator(*, batch_size: int = BATCH_BYTES, memory: int = 64 * 1024, **settings: Any) -> RecordAccumulator:
    """Make an accumulator with a linger of 10 ms over a pool of its own."""
    clock = settings.setdefault("clock", SetClock())
    settings.setdefault("linger_ms", 10)
    settings.setdefault("pool", BufferPool(memory, batch_size, clock=clock))
    return RecordAccumulator(batch_size=batch_size, **settings)


def put(
    accumulator: RecordAccumulator,
    partition: int | None = 0,
    *,
    count: int = 1,
    now_ms: int = 0,
    value: bytes | None = VALUE,
    max_time_to_block_ms: int = 0,
    cluster: Cluster = CLUSTER,
    **arguments: Any,
) -> list[Any]:
    """Append the same record `count` times and return the results."""
    key, headers = arguments.pop("key", KEY), arguments.pop("headers", ())
    callback = arguments.pop("callback", None)
    return [
        accumulator.append(
            TOPIC,
            partition,
            0,
            key,
            value,
            headers,
            callback,
            max_time_to_block_ms=max_time_to_block_ms,
            now_ms=now_ms,
            cluster=cluster,
            **arguments,
        )
        for _ in range(count)
    ]


def ready_nodes(accumulator: RecordAccumulator, now_ms: int, cluster: Cluster = CLUSTER) -> set[Node]:
    return set(accumulator.ready(cluster, now_ms).ready_nodes)


def drain(
    accumulator: RecordAccumulator,
    now_ms: int = 0,
    *,
    nodes: Iterable[Node] = (NODE_1,),
    max_size: int = ALL_BYTES,
    cluster: Cluster = CLUSTER,
) -> list[ProducerBatch]:
    """Drain these nodes, whether they are ready or not."""
    by_node = accumulator.drain(cluster, nodes, max_size, now_ms=now_ms)
    return [batch for batches in by_node.values() for batch in batches]


def partitions(batches: Iterable[ProducerBatch]) -> list[int]:
    return [batch.topic_partition.partition for batch in batches]


def values_of(batch: ProducerBatch) -> list[bytes | None]:
    """Return the values that the closed batch holds, read back."""
    return [record.value for record in MemoryRecords(bytes(batch.records().buffer))]


def finish(accumulator: RecordAccumulator, batches: Iterable[ProducerBatch], base_offset: int = 0) -> int:
    """Complete batches as their sender does; return the offset behind them."""
    for batch in batches:
        batch.complete(base_offset)
        base_offset += batch.record_count
        accumulator.deallocate(batch)
    return base_offset
