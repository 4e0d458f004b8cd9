"""Goal: drain takes the batches that Kafka's rule takes, in its order, however many of them one compiled call takes.
Method: random queues with retries, backoff, muted partitions, sequences and lingering, drained beside a plain model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.coordinator.producer_ids import ProducerIdAndEpoch
from kstore.producer.batches.accumulator import RecordAccumulator
from kstore.producer.batches.batch import ProducerBatch
from kstore.producer.batches.sequences import SequenceTracker
from kstore.producer.cluster import Cluster, Node, PartitionInfo
from kstore.types import NO_SEQUENCE, TopicPartition
from tests.making.producing import ALL_BYTES, TOPIC, SetClock, new_accumulator
from tests.reference.drain import ModelDrain, WaitingBatch, WaitingQueue

BATCH_BYTES = 300
LINGER_MS, BACKOFF_MS = 10, 40
NODE_1, NODE_2 = Node(1), Node(2)
LEADERS = {0: NODE_1, 1: NODE_1, 2: NODE_1, 3: NODE_2, 4: None}
PARTITIONS = {number: TopicPartition(TOPIC, number) for number in LEADERS}

partitions = st.sampled_from(list(LEADERS))
flags = st.booleans()
# Up to a batch of its own; most leave a batch half full.
value_sizes = st.one_of(st.integers(0, 60), st.integers(150, 260), st.integers(0, 2 * BATCH_BYTES))
puts = st.tuples(st.just("put"), partitions, value_sizes, st.integers(1, 12))
drains = st.tuples(
    st.just("drain"),
    st.sampled_from([[NODE_1], [NODE_2], [NODE_1, NODE_2]]),
    st.one_of(st.just(ALL_BYTES), st.integers(0, 6 * BATCH_BYTES)),
    st.integers(1, 8),
    flags,
)
steps = st.one_of(
    puts,
    puts,
    drains,
    st.tuples(st.just("wait"), st.sampled_from([1, LINGER_MS - 1, LINGER_MS, BACKOFF_MS, 3 * BACKOFF_MS])),
    st.tuples(st.just("mute"), partitions, flags),
    st.tuples(st.just("fail"), st.integers(0, 20)),
    st.tuples(st.just("succeed"), st.integers(0, 20)),
    st.tuples(st.just("elect")),
    st.tuples(st.just("forbid"), partitions, flags),
    st.tuples(st.just("lose track"), partitions),
    st.tuples(st.just("new epoch")),
)
histories = st.lists(steps, min_size=1, max_size=60)


class Sequences(SequenceTracker):
    """The tracker of an idempotent producer, with partitions to which nothing may be sent for now."""

    open_transaction: Any = None
    is_completing = False

    def __init__(self) -> None:
        super().__init__(is_transactional=False)
        self.producer_id_and_epoch = ProducerIdAndEpoch(7, 0)
        self.forbidden: set[TopicPartition] = set()

    def is_send_to_partition_allowed(self, topic_partition: TopicPartition) -> bool:
        return topic_partition not in self.forbidden


@dataclass
class History:
    """An accumulator with batches in flight, and a model of its drains."""

    manager: Sequences | None
    accumulator: RecordAccumulator
    clock: SetClock
    model: ModelDrain = field(default_factory=ModelDrain)
    in_flight: list[ProducerBatch] = field(default_factory=list)
    leader_epoch: int = 0
    drained: list[list[int]] = field(default_factory=list)

    @classmethod
    def start(cls, *, is_idempotent: bool, codec: str) -> History:
        clock, manager = SetClock(), Sequences() if is_idempotent else None
        accumulator = new_accumulator(
            batch_size=BATCH_BYTES,
            memory=1 << 22,
            clock=clock,
            linger_ms=LINGER_MS,
            # Equal, so that no backoff is random.
            retry_backoff_ms=BACKOFF_MS,
            retry_backoff_max_ms=BACKOFF_MS,
            transaction_manager=manager,
            compression=codec,
        )
        return cls(manager, accumulator, clock)

    @property
    def cluster(self) -> Cluster:
        infos = [PartitionInfo(TOPIC, number, leader, self.leader_epoch) for number, leader in LEADERS.items()]
        return Cluster(infos, nodes=[NODE_1, NODE_2])

    def do(self, step: tuple[Any, ...]) -> None:
        getattr(self, f"do_{step[0].replace(' ', '_')}")(*step[1:])

    def do_put(self, partition: int, size: int, count: int) -> None:
        for _ in range(count):
            self.accumulator.append(
                TOPIC,
                partition,
                0,
                None,
                b"v" * size,
                max_time_to_block_ms=0,
                now_ms=self.clock.now_ms,
                cluster=self.cluster,
            )

    def do_wait(self, milliseconds: int) -> None:
        self.clock.now_ms += milliseconds

    def do_mute(self, partition: int, is_muted: bool) -> None:
        self.accumulator.queue_of(PARTITIONS[partition]).is_muted = is_muted

    def do_elect(self) -> None:
        self.leader_epoch += 1

    def do_fail(self, number: int) -> None:
        if self.in_flight:
            self.accumulator.reenqueue(self.in_flight.pop(number % len(self.in_flight)), self.clock.now_ms)

    def do_succeed(self, number: int) -> None:
        if self.in_flight:
            batch = self.in_flight.pop(number % len(self.in_flight))
            batch.complete(0)
            if self.manager is not None:
                self.manager.remove_in_flight_batch(batch)
            self.accumulator.deallocate(batch)

    def do_forbid(self, partition: int, is_forbidden: bool) -> None:
        if self.manager is not None:
            forbidden = self.manager.forbidden
            (forbidden.add if is_forbidden else forbidden.discard)(PARTITIONS[partition])

    def do_lose_track(self, partition: int) -> None:
        if self.manager is not None:
            self.manager._unresolved ^= {PARTITIONS[partition]}

    def do_new_epoch(self) -> None:
        if self.manager is not None:
            producer_id, epoch = self.manager.producer_id_and_epoch
            self.manager.producer_id_and_epoch = ProducerIdAndEpoch(producer_id, epoch + 1)

    def do_drain(self, nodes: list[Node], max_size: int, most_rounds: int, is_urgent: bool) -> None:
        """Drain, and compare the batches of each node with those of the model."""
        queues_of = {node.id: self.snapshot(node) for node in nodes}
        found: dict[int, list[ProducerBatch]] = {}

        def run() -> None:
            found.update(
                self.accumulator.drain(
                    self.cluster, nodes, max_size, now_ms=self.clock.now_ms, batches_per_partition=most_rounds
                )
            )

        if is_urgent and self.accumulator.has_incomplete:
            self.accumulator.flush(0, wake=run)
            linger_ms = 0
        else:
            run()
            linger_ms = LINGER_MS
        for node_id, queues in queues_of.items():
            expected = self.model.run(node_id, queues, max_size=max_size, most_rounds=most_rounds, linger_ms=linger_ms)
            assert found[node_id] == expected
            for queue in queues:
                assert self.accumulator.queue_of(TopicPartition(*queue.place)).copy() == [
                    one.name for one in queue.batches
                ]
            self.check_taken(found[node_id])
            self.in_flight += found[node_id]

    def check_taken(self, batches: list[ProducerBatch]) -> None:
        self.drained.append([partition_of(batch) for batch in batches])
        assert all(batch.is_closed and batch.is_inflight and not batch.is_done for batch in batches)
        assert {batch.drained_ms for batch in batches} <= {self.clock.now_ms}
        assert all(batch.has_sequence == (self.manager is not None) for batch in batches)

    def snapshot(self, node: Node) -> list[WaitingQueue]:
        """Return the queues of a node as the model sees them, before the drain changes them."""
        queues = []
        for partition, leader in LEADERS.items():
            if leader == node:
                queue = self.accumulator.queue_of(PARTITIONS[partition])
                waiting = [self.waiting(batch) for batch in queue.copy()]
                queues.append(WaitingQueue((TOPIC, partition), waiting, queue.is_muted))
        return queues

    def waiting(self, batch: ProducerBatch) -> WaitingBatch:
        can_go = not self.is_backing_off(batch) and self.is_allowed(batch)
        return WaitingBatch(
            name=batch,
            size=batch.estimated_size_in_bytes,
            closed_size=lambda: batch.size_in_bytes,
            is_full=batch.is_full,
            waited_ms=self.clock.now_ms - batch.last_attempt_ms,
            can_go=lambda: can_go,
        )

    def is_backing_off(self, batch: ProducerBatch) -> bool:
        known = batch.current_leader_epoch
        is_new_leader = known is None or known < self.leader_epoch or batch.has_leader_changed_for_the_ongoing_retry
        return batch.attempts > 0 and not is_new_leader and self.clock.now_ms - batch.last_attempt_ms < BACKOFF_MS

    def is_allowed(self, batch: ProducerBatch) -> bool:
        """Return whether the producer's state allows a batch once it is the first of its queue."""
        manager, topic_partition = self.manager, batch.topic_partition
        if manager is None:
            return True
        if topic_partition in manager.forbidden:
            return False
        in_flight = manager.sequences_of(topic_partition).in_flight
        if batch.base_sequence != NO_SEQUENCE:
            return not in_flight or in_flight[0].base_sequence == batch.base_sequence
        if topic_partition in manager._unresolved:
            return False
        is_old_epoch = manager.sequences_of(topic_partition).producer != manager.producer_id_and_epoch
        return not in_flight or not (is_old_epoch or in_flight[0].in_retry)


@given(todo=histories, is_idempotent=flags, codec=st.sampled_from(["none", "none", "lz4"]))
def test_drain_takes_the_batches_of_the_model_in_its_order(todo, is_idempotent, codec):
    history = History.start(is_idempotent=is_idempotent, codec=codec)
    for step in [*todo, ("drain", [NODE_1, NODE_2], ALL_BYTES, 4, True)]:
        history.do(step)


LONG = [("put", partition, 100, 8) for partition in (0, 1, 2)]
CASES = [
    pytest.param([*LONG, ("drain", [NODE_1], ALL_BYTES, 2, True)], [[0, 1, 2, 0, 1, 2]], id="rounds"),
    pytest.param(
        [*LONG, ("drain", [NODE_1], 4 * BATCH_BYTES, 3, True), ("drain", [NODE_1], 4 * BATCH_BYTES, 3, True)],
        [[0, 1, 2, 0], [1, 2, 0, 1]],
        id="a-round-without-room",
    ),
    pytest.param(
        [
            *LONG,
            ("drain", [NODE_1], ALL_BYTES, 2, True),
            *[("fail", 0)] * 6,
            ("drain", [NODE_1], ALL_BYTES, 2, True),
            ("wait", BACKOFF_MS),
            ("drain", [NODE_1], ALL_BYTES, 2, True),
        ],
        [[0, 1, 2, 0, 1, 2], [], [1, 2, 0, 1, 2, 0]],
        id="backoff",
    ),
]


@pytest.mark.parametrize(("todo", "expected"), CASES)
def test_model_and_drain_agree_on_requests_counted_by_hand(todo, expected):
    history = History.start(is_idempotent=False, codec="none")
    for step in todo:
        history.do(step)
    assert history.drained == expected


def random_step(draw: Random) -> tuple[Any, ...]:
    partition = draw.randrange(5)
    kind = draw.choice(["put"] * 6 + ["drain"] * 3 + ["fail", "fail", "succeed", "succeed", "wait", "wait", "rare"])
    if kind == "put":
        return kind, partition, draw.choice([20, 100, 200, draw.randrange(2 * BATCH_BYTES)]), draw.randint(1, 8)
    if kind == "drain":
        max_size = draw.choice([ALL_BYTES, draw.randrange(10 * BATCH_BYTES)])
        return kind, [NODE_1, NODE_2], max_size, draw.randint(1, 6), draw.random() < 0.3
    if kind == "wait":
        return kind, draw.choice([1, LINGER_MS, BACKOFF_MS])
    if kind == "rare":
        rare = draw.choice(["mute", "forbid", "lose track", "elect", "new epoch"])
        own = (partition, draw.random() < 0.5) if rare in ("mute", "forbid") else (partition,)
        return (rare, *own[: {"elect": 0, "new epoch": 0}.get(rare, 2)])
    return kind, draw.randrange(20)


@pytest.mark.parametrize("is_idempotent", [False, True], ids=["plain", "idempotent"])
def test_long_histories_drain_as_the_model_and_reach_every_kind_of_batch(is_idempotent):
    kinds: Counter[str] = Counter()
    for seed in range(30):
        draw = Random(seed)
        history = History.start(is_idempotent=is_idempotent, codec="none")
        for _ in range(150):
            step = random_step(draw)
            before = len(history.in_flight)
            history.do(step)
            if step[0] == "drain":
                taken = history.in_flight[before:]
                kinds["retried"] += any(batch.attempts for batch in taken)
                kinds["retried and new"] += len({batch.attempts > 0 for batch in taken}) == 2
                kinds["several rounds"] += max(Counter(map(partition_of, taken)).values(), default=0) > 1
                kinds["some left"] += bool(taken) and history.accumulator.has_undrained
    assert min(kinds[kind] for kind in ("retried", "retried and new", "several rounds", "some left")) > 20, kinds


def partition_of(batch: ProducerBatch) -> int:
    return batch.topic_partition.partition
