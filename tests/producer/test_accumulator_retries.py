"""Goal: batches that failed are tried again in order, split, expired and numbered as with Kafka's accumulator.
Method: the scenarios of RecordAccumulatorTest on retries, expiry and idempotence as claims, on a clock that is set."""

from __future__ import annotations

from random import Random
from threading import Thread
from typing import Any

import pytest

from kstore.errors import KStoreError
from kstore.producer.batches.batch import ProducerBatch
from kstore.producer.batches.drain import NO_READY_CHECK_MS, RetryBackoff
from kstore.producer.cluster import Cluster, PartitionInfo
from kstore.types import TopicPartition
from tests.making.producing import (
    CLUSTER,
    FAR_MS,
    NODE_1,
    RECORDS_PER_BATCH,
    TOPIC,
    TP_1,
    TP_2,
    drain,
    finish,
    new_accumulator,
    partitions,
    put,
    ready_nodes,
    values_of,
)

BACKOFF_MS = 100


class FakeTransactionManager:
    """Sequences by partition, without a coordinator."""

    def __init__(self) -> None:
        self.is_transactional = self.is_completing = False
        self.is_valid = True
        self.blocked: set[TopicPartition] = set()
        self.unresolved: set[TopicPartition] = set()
        self.stale: set[TopicPartition] = set()
        self.sequences: dict[TopicPartition, int] = {}
        self.in_flight: dict[TopicPartition, list[ProducerBatch]] = {}

    @property
    def producer_id_and_epoch(self) -> Any:
        manager = self

        class Pair(tuple[int, int]):
            is_valid = manager.is_valid

        return Pair((7, 1))

    def is_send_to_partition_allowed(self, topic_partition: TopicPartition) -> bool:
        return topic_partition not in self.blocked

    def has_unresolved_sequence(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self.unresolved

    def has_stale_producer_id_and_epoch(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self.stale

    def has_in_flight_batches(self, topic_partition: TopicPartition) -> bool:
        return bool(self.in_flight.get(topic_partition))

    def first_in_flight_sequence(self, topic_partition: TopicPartition) -> int:
        batches = self.in_flight.get(topic_partition)
        return min(batch.base_sequence for batch in batches) if batches else -1

    def is_retrying(self, topic_partition: TopicPartition) -> bool:
        return any(batch.in_retry for batch in self.in_flight.get(topic_partition, ()))

    def batch_before(self, batch: ProducerBatch) -> ProducerBatch | None:
        earlier = [one for one in self.in_flight.get(batch.topic_partition, ()) if one is not batch]
        return earlier[-1] if earlier else None

    def assign_sequences(self, batches: list[ProducerBatch]) -> None:
        for batch in batches:
            sequence = self.sequences.setdefault(batch.topic_partition, 0)
            batch.set_producer_state(
                producer_id=7, producer_epoch=1, base_sequence=sequence, is_transactional=self.is_transactional
            )
            self.sequences[batch.topic_partition] = (sequence + batch.record_count) % 2**31
            self.add_in_flight_batch(batch)

    def add_in_flight_batch(self, batch: ProducerBatch) -> None:
        self.in_flight.setdefault(batch.topic_partition, []).append(batch)

    def remove_in_flight_batch(self, batch: ProducerBatch) -> None:
        self.in_flight[batch.topic_partition].remove(batch)


def idempotent(**settings: Any) -> tuple[Any, FakeTransactionManager]:
    manager = FakeTransactionManager()
    return new_accumulator(transaction_manager=manager, linger_ms=0, **settings), manager


def in_order(count: int, **settings: Any) -> tuple[Any, FakeTransactionManager, list[ProducerBatch]]:
    """Return what has `count` full batches of one partition in flight."""
    accumulator, manager = idempotent(**settings)
    put(accumulator, count=count * RECORDS_PER_BATCH)
    return accumulator, manager, [drain(accumulator)[0] for _ in range(count)]


def test_retried_batch_waits_for_its_backoff_while_others_go() -> None:
    accumulator = new_accumulator(retry_backoff_ms=BACKOFF_MS, retry_backoff_max_ms=BACKOFF_MS)
    put(accumulator, 0)
    (batch,) = drain(accumulator, 10)
    accumulator.reenqueue(batch, 10)
    put(accumulator, 1, now_ms=10)
    assert ready_nodes(accumulator, 20) == {NODE_1}
    assert partitions(drain(accumulator, 20)) == [1]
    assert accumulator.ready(CLUSTER, 20).next_ready_check_delay_ms == 10 + BACKOFF_MS - 20
    assert ready_nodes(accumulator, 10 + BACKOFF_MS - 1) == set()
    assert ready_nodes(accumulator, 10 + BACKOFF_MS) == {NODE_1}
    assert drain(accumulator, 10 + BACKOFF_MS) == [batch]


def test_backoff_doubles_up_to_its_bound_and_is_spread_by_a_fifth() -> None:
    backoff = RetryBackoff(initial_ms=100, max_ms=1000, random=Random(1))
    for failures, term in enumerate([100, 200, 400, 800, 1000, 1000]):
        drawn = [backoff.draw_ms(failures) for _ in range(200)]
        assert min(drawn) >= 0.8 * term - 1
        assert max(drawn) <= min(1.2 * term, 1000)
        assert len(set(drawn)) > 10


@pytest.mark.parametrize(("initial_ms", "max_ms"), [(0, 1000), (100, 100), (500, 100)])
def test_backoff_without_room_is_constant(initial_ms: int, max_ms: int) -> None:
    backoff = RetryBackoff(initial_ms=initial_ms, max_ms=max_ms, random=Random(1))
    assert {backoff.draw_ms(failures) for failures in range(10)} == {min(initial_ms, max_ms)}


def test_waiting_time_is_drawn_once_for_an_attempt() -> None:
    accumulator = new_accumulator(retry_backoff_ms=BACKOFF_MS, random=Random(3))
    put(accumulator)
    (batch,) = drain(accumulator)
    accumulator.reenqueue(batch, 0)
    delays = {accumulator.ready(CLUSTER, 0).next_ready_check_delay_ms for _ in range(50)}
    assert len(delays) == 1
    (delay_ms,) = delays
    assert 80 <= delay_ms <= 120
    assert ready_nodes(accumulator, delay_ms) == {NODE_1}


def test_new_leader_is_tried_at_once() -> None:
    def cluster(epoch: int) -> Cluster:
        return Cluster([PartitionInfo(TOPIC, 0, NODE_1, leader_epoch=epoch)])

    accumulator = new_accumulator(retry_backoff_ms=BACKOFF_MS)
    put(accumulator)
    (batch,) = drain(accumulator, cluster=cluster(1))
    accumulator.reenqueue(batch, 0)
    assert ready_nodes(accumulator, 20, cluster(1)) == set()
    assert ready_nodes(accumulator, 20, cluster(2)) == {NODE_1}
    assert drain(accumulator, 20, cluster=cluster(2)) == [batch]


def test_batches_expire_when_they_are_not_delivered_in_time() -> None:
    accumulator = new_accumulator(delivery_timeout_ms=60, linger_ms=FAR_MS)
    put(accumulator, 0, count=RECORDS_PER_BATCH + 1, now_ms=0)
    put(accumulator, 1, now_ms=30)
    accumulator.reset_next_batch_expiry_time()
    assert accumulator.expired_batches(59) == []
    assert accumulator.next_expiry_time_ms == 60
    expired = accumulator.expired_batches(60)
    assert partitions(expired) == [0, 0]
    assert put(accumulator, 0, now_ms=60)[0].new_batch_created
    accumulator.reset_next_batch_expiry_time()
    assert accumulator.expired_batches(60) == []
    assert accumulator.next_expiry_time_ms == 90
    assert [batch.topic_partition for batch in accumulator.expired_batches(90)] == [TP_2]
    for batch in expired:
        accumulator.deallocate(batch)


def test_retried_batch_expires_by_its_creation() -> None:
    accumulator = new_accumulator(delivery_timeout_ms=60)
    put(accumulator, now_ms=0)
    (batch,) = drain(accumulator, 50)
    accumulator.reenqueue(batch, 50)
    assert accumulator.expired_batches(59) == []
    assert accumulator.expired_batches(60) == [batch]
    assert not accumulator.has_undrained
    accumulator.deallocate(batch)
    assert accumulator.pool.available_memory == accumulator.pool.memory


@pytest.mark.parametrize("now_ms", [0, -(2**62), 2**62], ids=["zero", "far below zero", "far above zero"])
def test_expiry_of_any_time_line_does_not_overflow(now_ms: int) -> None:
    accumulator = new_accumulator(delivery_timeout_ms=2**62, linger_ms=FAR_MS)
    put(accumulator, now_ms=now_ms)
    assert accumulator.expired_batches(now_ms) == []
    assert accumulator.next_expiry_time_ms == max(min(now_ms + 2**62, NO_READY_CHECK_MS), 0)


def test_reenqueued_batch_is_the_first_again() -> None:
    accumulator = new_accumulator(linger_ms=0, retry_backoff_ms=0)
    put(accumulator, count=2 * RECORDS_PER_BATCH)
    (first,) = drain(accumulator)
    accumulator.reenqueue(first, 0)
    assert accumulator.queue_of(TP_1).first is first
    assert first.attempts == 1
    assert drain(accumulator) == [first]


def test_too_large_batch_is_split_and_its_pieces_keep_order_and_futures() -> None:
    accumulator = new_accumulator(batch_size=1024, compression="gzip", linger_ms=0, memory=10 * 1024)
    accumulator.compression_ratios.set_estimation(TOPIC, accumulator.compression, 0.1)
    heard: list[tuple[bytes, int]] = []
    random = Random(5)
    values = [random.randbytes(100) for _ in range(20)]
    results = [
        put(accumulator, value=value, callback=lambda metadata, _, value=value: heard.append((value, metadata.offset)))[
            0
        ]
        for value in values
    ]
    (batch,) = drain(accumulator)
    assert batch.record_count == len(values)
    pieces = accumulator.split_and_reenqueue(batch)
    assert pieces > 1
    accumulator.deallocate(batch)
    assert not accumulator.flush(0.0, wake=lambda: None)
    assert accumulator.compression_ratios.estimation(TOPIC, accumulator.compression) >= 1.0
    offset = 0
    for _ in range(pieces):
        (piece,) = drain(accumulator)
        assert piece.is_split_batch
        offset = finish(accumulator, [piece], offset)
    assert heard == list(zip(values, range(len(values)), strict=True))
    assert [result.future.result(0).offset for result in results] == list(range(len(values)))
    assert accumulator.pool.available_memory == accumulator.pool.memory
    assert not accumulator.has_incomplete


def test_flush_waits_for_the_pieces_of_a_split_batch() -> None:
    accumulator = new_accumulator(linger_ms=0)
    put(accumulator, count=RECORDS_PER_BATCH)
    (batch,) = drain(accumulator)
    results = [one.result for one in accumulator.incomplete.copy_all()]
    assert accumulator.split_and_reenqueue(batch) == 1
    accumulator.deallocate(batch)
    assert not results[0].is_completed
    assert not accumulator.flush(0.0, wake=lambda: None)
    finish(accumulator, drain(accumulator))
    assert results[0].is_completed


def test_abort_that_comes_while_a_batch_is_split_finds_the_pieces_in_their_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accumulator = new_accumulator(linger_ms=0)
    results = put(accumulator, count=RECORDS_PER_BATCH)
    (batch,) = drain(accumulator)
    error = KStoreError("aborted")
    aborting = Thread(target=lambda: accumulator.abort_batches(error))
    add = accumulator.incomplete.add

    def add_and_abort(piece: ProducerBatch) -> None:
        add(piece)
        aborting.start()
        aborting.join(0.2)

    monkeypatch.setattr(accumulator.incomplete, "add", add_and_abort)
    assert accumulator.split_and_reenqueue(batch) == 1
    accumulator.deallocate(batch)
    aborting.join(60)
    assert not accumulator.has_undrained
    assert [one.future.exception(0) for one in results] == [error] * RECORDS_PER_BATCH
    assert accumulator.pool.available_memory == accumulator.pool.memory


def test_piece_that_is_too_large_again_is_halved() -> None:
    accumulator = new_accumulator(batch_size=2048, linger_ms=0)
    put(accumulator, count=100)
    (batch,) = drain(accumulator)
    assert accumulator.split_and_reenqueue(batch) == 1
    accumulator.deallocate(batch)
    (piece,) = drain(accumulator)
    assert accumulator.split_and_reenqueue(piece) in {2, 3}
    accumulator.deallocate(piece)


def test_wrong_estimates_split_few_batches() -> None:
    random = Random(2)
    accumulator = new_accumulator(batch_size=1024, compression="gzip", linger_ms=0, memory=8 * 1024)
    splits = batches = 0
    for _ in range(1500):
        good = random.random() < 0.5
        value = bytes(random.choices(b"abcd", k=100)) if good else random.randbytes(100)
        put(accumulator, value=value, key=None)
        while len(accumulator.queue_of(TP_1)) > 1:
            (batch,) = drain(accumulator)
            batches += 1
            if batch.estimated_size_in_bytes > 1024 + 61:
                splits += accumulator.split_and_reenqueue(batch) > 0
            else:
                batch.complete(0)
            accumulator.deallocate(batch)
    assert batches > 50
    assert splits / batches < 0.1


def test_batches_get_sequences_when_they_are_drained() -> None:
    _, manager, batches = in_order(3)
    assert [batch.base_sequence for batch in batches] == [0, 10, 20]
    assert {(batch.producer_id, batch.producer_epoch) for batch in batches} == {(7, 1)}
    assert manager.in_flight[TP_1] == batches


def test_reenqueued_batches_are_in_sequence_order_however_they_come_back() -> None:
    accumulator, manager, batches = in_order(4, retry_backoff_ms=0)
    put(accumulator)
    for place in (2, 0, 3, 1):
        accumulator.reenqueue(batches[place], 0)
    assert accumulator.queue_of(TP_1).copy()[:4] == batches
    for batch in batches:
        assert drain(accumulator) == [batch]
        manager.remove_in_flight_batch(batch)


def test_order_of_sequences_goes_on_behind_the_last_one() -> None:
    accumulator, manager = idempotent(retry_backoff_ms=0)
    manager.sequences[TP_1] = 2**31 - RECORDS_PER_BATCH
    put(accumulator, count=2 * RECORDS_PER_BATCH)
    first, second = (drain(accumulator)[0] for _ in range(2))
    assert (first.base_sequence, second.base_sequence) == (2**31 - RECORDS_PER_BATCH, 0)
    accumulator.reenqueue(first, 0)
    accumulator.reenqueue(second, 0)
    assert accumulator.queue_of(TP_1).copy() == [first, second]


def test_retried_batch_waits_until_it_is_the_first_in_flight() -> None:
    accumulator, manager, (first, second) = in_order(2, retry_backoff_ms=0)
    accumulator.reenqueue(second, 0)
    assert drain(accumulator) == []
    manager.remove_in_flight_batch(first)
    assert drain(accumulator) == [second]


def test_batch_without_a_sequence_can_not_be_sent_again() -> None:
    accumulator, _ = idempotent()
    put(accumulator)
    (batch,) = accumulator.incomplete.copy_all()
    with pytest.raises(ValueError, match="without a sequence"):
        accumulator.reenqueue(batch, 0)
    with pytest.raises(ValueError, match="not tracked"):
        accumulator.reenqueue(in_order(1)[2][0], 0)


@pytest.mark.parametrize("cause", ["blocked", "unresolved", "stale"])
def test_blocked_partition_does_not_keep_the_others_of_its_node(cause: str) -> None:
    accumulator, manager = idempotent()
    put(accumulator, 0, count=2 * RECORDS_PER_BATCH)
    put(accumulator, 1, count=RECORDS_PER_BATCH)
    if cause == "stale":
        assert partitions(drain(accumulator, max_size=1)) == [0]
    getattr(manager, cause).add(TP_1)
    assert partitions(drain(accumulator)) == [1]
    getattr(manager, cause).clear()
    assert partitions(drain(accumulator)) == [0]


def test_nothing_is_sent_without_a_producer_id() -> None:
    accumulator, manager = idempotent()
    put(accumulator)
    manager.is_valid = False
    assert drain(accumulator) == []
    manager.is_valid = True
    assert partitions(drain(accumulator)) == [0]


def test_nothing_lingers_when_a_transaction_ends() -> None:
    manager = FakeTransactionManager()
    accumulator = new_accumulator(transaction_manager=manager, linger_ms=FAR_MS)
    put(accumulator)
    assert ready_nodes(accumulator, 0) == set()
    manager.is_completing = True
    assert ready_nodes(accumulator, 0) == {NODE_1}


def test_aborting_undrained_batches_leaves_those_with_a_sequence() -> None:
    accumulator, _, (batch,) = in_order(1)
    accumulator.reenqueue(batch, 0)
    put(accumulator, 1)
    accumulator.abort_undrained_batches(KStoreError("because"))
    assert accumulator.incomplete.copy_all() == [batch]
    assert values_of(batch)


@pytest.mark.parametrize("what", ["stale", "unresolved"])
def test_new_batches_do_not_follow_one_that_an_older_producer_sends_again(what: str) -> None:
    accumulator, manager, (batch,) = in_order(1)
    put(accumulator, count=3 * RECORDS_PER_BATCH)
    accumulator.reenqueue(batch, 0)
    getattr(manager, what).add(TP_1)
    runs = [accumulator.drain(CLUSTER, [NODE_1], 2**31 - 1, now_ms=FAR_MS, batches_per_partition=9) for _ in range(2)]
    assert [run[NODE_1.id] for run in runs] == [[batch], []]
    assert manager.sequences[TP_1] == RECORDS_PER_BATCH


def test_new_batches_wait_until_one_that_is_sent_again_is_done() -> None:
    accumulator, manager, (batch,) = in_order(1)
    put(accumulator, count=3 * RECORDS_PER_BATCH)
    accumulator.reenqueue(batch, 0)

    def drained() -> Any:
        return accumulator.drain(CLUSTER, [NODE_1], 2**31 - 1, now_ms=FAR_MS, batches_per_partition=9)[NODE_1.id]

    assert [drained(), drained()] == [[batch], []]
    manager.in_flight[TP_1].remove(batch)
    run = drained()
    assert [one.base_sequence for one in run] == [number * RECORDS_PER_BATCH for number in (1, 2, 3)]
    assert manager.in_flight[TP_1] == run
