"""Goal: records gather in batches, nodes become ready and are drained, flushed and aborted as with Kafka's accumulator.
Method: the scenarios of RecordAccumulatorTest as claims, on a clock that is set, with sizes counted by hand."""

from __future__ import annotations

import threading
from random import Random
from typing import Any

import pytest

from kstore._core import PartitionQueue
from kstore.errors import BufferExhaustedError, ProducerClosedError, UnsupportedCompressionTypeError
from kstore.producer.batches.accumulator import BufferPool
from kstore.producer.batches.batch import FinalState
from kstore.producer.batches.drain import NO_READY_CHECK_MS
from kstore.producer.cluster import Cluster, PartitionInfo
from kstore.types import TopicPartition
from tests.making.producing import (
    BATCH_BYTES,
    CLUSTER,
    FAR_MS,
    KEY,
    NODE_1,
    NODE_2,
    RECORDS_PER_BATCH,
    TOPIC,
    TP_1,
    TP_2,
    TP_3,
    VALUE,
    SetClock,
    drain,
    finish,
    new_accumulator,
    partitions,
    put,
    ready_nodes,
    values_of,
)


def test_node_is_ready_when_a_batch_is_full_and_not_before() -> None:
    accumulator = new_accumulator()
    for _ in range(RECORDS_PER_BATCH):
        put(accumulator)
        assert len(accumulator.queue_of(TP_1)) == 1
        assert ready_nodes(accumulator, 0) == set()
    put(accumulator)
    assert len(accumulator.queue_of(TP_1)) == 2
    assert ready_nodes(accumulator, 0) == {NODE_1}
    (batch,) = drain(accumulator)
    assert values_of(batch) == [VALUE] * RECORDS_PER_BATCH


def test_result_tells_of_full_and_new_batches() -> None:
    accumulator = new_accumulator()
    results = put(accumulator, count=RECORDS_PER_BATCH + 1)
    assert [result.new_batch_created for result in results] == [True, *[False] * (RECORDS_PER_BATCH - 1), True]
    assert [result.batch_is_full for result in results] == [*[False] * RECORDS_PER_BATCH, True]
    assert {result.partition for result in results} == {0}
    assert results[0].appended_bytes == 61 + 15
    assert results[1].appended_bytes == 15
    assert not any(result.abort_for_new_batch for result in results)


def test_batch_that_is_exactly_full_is_ready() -> None:
    accumulator = new_accumulator(batch_size=61 + 4 * 15)
    assert [result.batch_is_full for result in put(accumulator, count=4)] == [False, False, False, True]
    assert len(accumulator.queue_of(TP_1)) == 1
    assert ready_nodes(accumulator, 0) == {NODE_1}


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_record_above_the_batch_size_has_a_batch_of_its_own(compression: str) -> None:
    accumulator = new_accumulator(compression=compression, linger_ms=0)
    value = bytes(2 * BATCH_BYTES)
    put(accumulator, value=value)
    assert ready_nodes(accumulator, 0) == {NODE_1}
    (batch,) = drain(accumulator)
    (record,) = batch.records()
    assert (record.key, record.value, record.offset, record.timestamp_ms) == (KEY, value, 0, 0)
    finish(accumulator, [batch])
    assert accumulator.pool.available_memory == accumulator.pool.memory


def test_batch_waits_for_the_linger_time() -> None:
    accumulator = new_accumulator(linger_ms=10)
    put(accumulator, now_ms=5)
    assert ready_nodes(accumulator, 14) == set()
    assert ready_nodes(accumulator, 15) == {NODE_1}
    (batch,) = drain(accumulator, 15)
    assert values_of(batch) == [VALUE]
    assert batch.drained_ms - batch.created_ms == 10


def test_next_check_is_when_the_first_batch_has_lingered() -> None:
    accumulator = new_accumulator(linger_ms=10)
    assert accumulator.ready(CLUSTER, 0).next_ready_check_delay_ms == NO_READY_CHECK_MS
    put(accumulator, 0, now_ms=0)
    assert accumulator.ready(CLUSTER, 0) == (set(), 10, set())
    put(accumulator, 2, now_ms=5)
    assert accumulator.ready(CLUSTER, 5) == (set(), 5, set())
    put(accumulator, 1, count=RECORDS_PER_BATCH + 1, now_ms=5)
    result = accumulator.ready(CLUSTER, 5)
    assert result.ready_nodes == {NODE_1}
    assert result.next_ready_check_delay_ms <= 10


def test_drain_stops_at_the_size_but_takes_one_batch() -> None:
    accumulator = new_accumulator()
    for partition in (0, 1):
        put(accumulator, partition, count=RECORDS_PER_BATCH + 1)
    assert partitions(drain(accumulator, max_size=BATCH_BYTES)) == [0]
    assert partitions(drain(accumulator, max_size=1)) == [1]


def test_drain_takes_one_batch_of_a_partition() -> None:
    accumulator = new_accumulator()
    put(accumulator, 0, count=3 * RECORDS_PER_BATCH)
    assert partitions(drain(accumulator)) == [0]
    assert len(accumulator.queue_of(TP_1)) == 2


def test_drain_goes_on_where_the_size_ended_it() -> None:
    cluster = Cluster([PartitionInfo(TOPIC, number, NODE_1) for number in range(4)])
    accumulator = new_accumulator()
    for partition in range(4):
        put(accumulator, partition, count=4 * RECORDS_PER_BATCH)
    turns = [partitions(drain(accumulator, max_size=2 * BATCH_BYTES, cluster=cluster)) for _ in range(4)]
    assert turns == [[0, 1], [2, 3], [0, 1], [2, 3]]


def test_full_circles_begin_at_another_partition_each_time() -> None:
    cluster = Cluster([PartitionInfo(TOPIC, number, NODE_1) for number in range(3)])
    accumulator = new_accumulator()
    for partition in range(3):
        put(accumulator, partition, count=4 * RECORDS_PER_BATCH)
    turns = [partitions(drain(accumulator, cluster=cluster)) for _ in range(3)]
    assert turns == [[0, 1, 2], [1, 2, 0], [2, 0, 1]]


def test_each_node_has_its_own_place_to_go_on() -> None:
    cluster = Cluster([PartitionInfo(TOPIC, number, (NODE_1, NODE_2)[number % 2]) for number in range(6)])
    accumulator = new_accumulator()
    for partition in range(6):
        put(accumulator, partition, count=4 * RECORDS_PER_BATCH)
    one = {"cluster": cluster, "max_size": BATCH_BYTES}
    assert partitions(drain(accumulator, nodes=[NODE_1], **one)) == [0]
    assert partitions(drain(accumulator, nodes=[NODE_2], **one)) == [1]
    assert partitions(drain(accumulator, nodes=[NODE_1], **one)) == [2]
    assert partitions(drain(accumulator, nodes=[NODE_1, NODE_2], **one)) == [4, 3]


def test_no_partition_starves_when_one_is_always_full() -> None:
    cluster = Cluster([PartitionInfo(TOPIC, number, NODE_1) for number in range(3)])
    accumulator = new_accumulator()
    seen: set[int] = set()
    for partition in (1, 2):
        put(accumulator, partition)
    for _ in range(3):
        put(accumulator, 0, count=2 * RECORDS_PER_BATCH)
        batches = drain(accumulator, max_size=BATCH_BYTES, cluster=cluster)
        seen |= set(partitions(batches))
        finish(accumulator, batches)
    assert seen == {0, 1, 2}


def test_node_without_partitions_drains_nothing() -> None:
    accumulator = new_accumulator()
    put(accumulator)
    assert accumulator.drain(Cluster(nodes=[NODE_1]), [NODE_1], 100, now_ms=0) == {1: []}
    assert accumulator.drain(CLUSTER, [], 100, now_ms=0) == {}


def test_partition_without_a_leader_names_its_topic() -> None:
    cluster = Cluster([PartitionInfo(TOPIC, 0, None), PartitionInfo(TOPIC, 1, NODE_1)])
    accumulator = new_accumulator(linger_ms=0)
    put(accumulator, 0, cluster=cluster)
    assert accumulator.ready(cluster, 0) == (set(), NO_READY_CHECK_MS, {TOPIC})
    put(accumulator, 1, cluster=cluster)
    assert accumulator.ready(cluster, 0)[::2] == ({NODE_1}, {TOPIC})
    assert partitions(drain(accumulator, cluster=cluster)) == [1]


def test_muted_partition_is_neither_ready_nor_drained() -> None:
    accumulator = new_accumulator(linger_ms=0)
    put(accumulator)
    accumulator.mute_partition(TP_1)
    assert accumulator.is_muted(TP_1)
    assert ready_nodes(accumulator, 2000) == set()
    assert drain(accumulator, 2000) == []
    accumulator.unmute_partition(TP_1)
    assert ready_nodes(accumulator, 2000) == {NODE_1}
    assert partitions(drain(accumulator, 2000)) == [0]


@pytest.mark.parametrize("cause", ["closed", "flush", "exhausted"])
def test_nothing_lingers_when_it_must_not(cause: str) -> None:
    accumulator = new_accumulator(linger_ms=FAR_MS, memory=BATCH_BYTES)
    put(accumulator)
    assert ready_nodes(accumulator, 0) == set()

    def send() -> None:
        assert ready_nodes(accumulator, 0) == {NODE_1}
        finish(accumulator, drain(accumulator))

    if cause == "closed":
        accumulator.close()
        send()
    elif cause == "flush":
        assert accumulator.flush(wake=send)
    else:
        waiting = threading.Thread(target=put, args=(accumulator, 1), kwargs={"max_time_to_block_ms": FAR_MS})
        waiting.start()
        while accumulator.pool.queued == 0:
            pass
        send()
        waiting.join()
        finish(accumulator, drain(accumulator))
        assert not accumulator.has_undrained
    assert accumulator.pool.available_memory == accumulator.pool.memory


def test_flush_ends_when_all_that_was_appended_is_done() -> None:
    accumulator = new_accumulator(linger_ms=FAR_MS)
    for number in range(100):
        put(accumulator, number % 3)
    nodes = [NODE_1, NODE_2]
    finish(accumulator, drain(accumulator, nodes=nodes))

    def send() -> None:
        assert accumulator.flush_in_progress
        while ready := ready_nodes(accumulator, 0):
            finish(accumulator, drain(accumulator, nodes=ready))

    assert accumulator.flush(wake=send)
    assert not accumulator.flush_in_progress
    assert not accumulator.has_undrained
    assert not accumulator.has_incomplete


def test_flush_that_takes_too_long_says_so_and_is_over() -> None:
    accumulator = new_accumulator(linger_ms=FAR_MS)
    put(accumulator)
    assert not accumulator.flush(0.0, wake=lambda: None)
    assert not accumulator.flush_in_progress
    assert accumulator.has_incomplete


def test_two_flushes_end_one_by_one() -> None:
    accumulator = new_accumulator()

    def flush_meanwhile() -> None:
        assert accumulator.flush(wake=lambda: None)
        assert accumulator.flush_in_progress

    assert accumulator.flush(wake=flush_meanwhile)
    assert not accumulator.flush_in_progress


def test_aborting_fails_what_waits_and_what_is_in_flight() -> None:
    errors: list[object] = []
    accumulator = new_accumulator(linger_ms=FAR_MS)
    for number in range(100):
        put(accumulator, number % 3, callback=lambda _, error: errors.append(error))
    drained = drain(accumulator)
    for batch in drained:
        batch.begin_send()
    accumulator.abort_incomplete_batches()
    assert len(errors) == 100
    assert {type(error) for error in errors} == {ProducerClosedError}
    assert not accumulator.has_undrained
    assert not accumulator.has_incomplete
    held = sum(batch.counted_bytes for batch in drained)
    assert held == 2 * BATCH_BYTES
    assert accumulator.pool.available_memory == accumulator.pool.memory - held
    for batch in drained:
        assert len(bytes(batch.records().buffer)) > 61
        batch.end_send()
        assert not batch.complete(0)
        accumulator.deallocate(batch)
    assert accumulator.pool.available_memory == accumulator.pool.memory


def test_aborting_undrained_batches_leaves_those_in_flight() -> None:
    cause = ProducerClosedError("because")
    errors: list[object] = []
    accumulator = new_accumulator(linger_ms=FAR_MS)
    for number in range(100):
        put(accumulator, number % 3, callback=lambda _, error: errors.append(error))
    drained = drain(accumulator)
    accumulator.abort_undrained_batches(cause)
    in_flight = sum(batch.record_count for batch in drained)
    assert in_flight == 20
    assert errors == [cause] * (100 - in_flight)
    assert not accumulator.has_undrained
    assert accumulator.has_incomplete
    assert all(not batch.is_done for batch in drained)


def test_closed_accumulator_takes_nothing() -> None:
    accumulator = new_accumulator()
    put(accumulator)
    accumulator.close()
    for partition in (0, 1, None):
        with pytest.raises(ProducerClosedError):
            put(accumulator, partition)
    assert sum(batch.record_count for batch in accumulator.incomplete.copy_all()) == 1


def test_record_that_waits_for_memory_in_vain_leaves_no_trace() -> None:
    accumulator = new_accumulator(memory=BATCH_BYTES)
    put(accumulator)
    with pytest.raises(BufferExhaustedError):
        put(accumulator, 1)
    assert len(accumulator.queue_of(TP_2)) == 0
    finish(accumulator, drain(accumulator))
    assert accumulator.pool.available_memory == accumulator.pool.memory


def test_stop_before_a_new_batch_takes_no_memory() -> None:
    accumulator = new_accumulator()
    (result,) = put(accumulator, abort_on_new_batch=True)
    assert result.abort_for_new_batch
    assert result.partition == 0
    assert result.future is None
    assert accumulator.pool.available_memory == accumulator.pool.memory
    put(accumulator)
    assert not put(accumulator, abort_on_new_batch=True)[0].abort_for_new_batch


@pytest.mark.parametrize("bad", [-1, 2**31], ids=["negative", "above int32"])
def test_bad_partition_is_refused_before_memory_is_taken(bad: int) -> None:
    accumulator = new_accumulator()
    with pytest.raises(ValueError, match="partition must be from 0"):
        put(accumulator, bad)
    assert accumulator.pool.available_memory == accumulator.pool.memory


@pytest.mark.parametrize(
    "bad",
    [{"value": "text"}, {"headers": [(1, b"")]}, {"headers": [("k", "text")]}],
    ids=["value that is no bytes", "header key that is no str", "header value that is no bytes"],
)
def test_record_that_can_not_be_written_is_refused_and_costs_nothing(bad: dict[str, object]) -> None:
    accumulator = new_accumulator()
    for _ in range(2):
        with pytest.raises(TypeError):
            put(accumulator, **bad)
        put(accumulator)
    assert sum(batch.record_count for batch in accumulator.incomplete.copy_all()) == 2


def test_timestamp_below_minus_one_is_refused_and_costs_nothing() -> None:
    accumulator = new_accumulator()
    with pytest.raises(ValueError, match="timestamp_ms must be -1 or not negative"):
        accumulator.append(TOPIC, 0, -2, None, None, max_time_to_block_ms=0, now_ms=0, cluster=CLUSTER)
    assert accumulator.pool.available_memory == accumulator.pool.memory
    assert not accumulator.has_undrained
    assert not accumulator.has_incomplete


class CountingLock:
    """Notes what is asked of it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def acquire(self) -> None:
        self.calls.append("acquire")

    def release(self) -> None:
        self.calls.append("release")


def test_queue_is_held_until_its_holder_has_left_it_as_often_as_entered() -> None:
    lock = CountingLock()
    queue = PartitionQueue(TP_1, lock=lock, active={})
    with queue:
        with queue:
            assert lock.calls == ["acquire"]
        assert lock.calls == ["acquire"]
    assert lock.calls == ["acquire", "release"]


def test_append_of_a_finalizer_or_signal_handler_in_the_midst_of_another_is_no_deadlock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accumulator = new_accumulator()
    (nested,) = put(accumulator)
    append_first = accumulator.append_first

    def interrupted(*arguments: Any, **how: Any) -> Any:
        monkeypatch.undo()
        put(accumulator, value=b"inner")
        return append_first(*arguments, **how)

    monkeypatch.setattr(accumulator, "append_first", interrupted)
    large = bytes(2 * BATCH_BYTES)
    appending = threading.Thread(target=lambda: put(accumulator, value=large), daemon=True)
    appending.start()
    appending.join(10)
    assert not appending.is_alive()
    batches = [batch for _ in range(3) for batch in drain(accumulator, nodes=[NODE_1])]
    assert sorted(value or b"" for batch in batches for value in values_of(batch)) == sorted([VALUE, b"inner", large])
    finish(accumulator, batches)
    assert nested.future.done()
    assert accumulator.pool.available_memory == accumulator.pool.memory


def test_codec_that_is_unknown_is_refused_at_once() -> None:
    with pytest.raises((ValueError, UnsupportedCompressionTypeError)):
        new_accumulator(compression="brotli")


def test_sticky_partition_is_kept_until_its_batch_is_full() -> None:
    accumulator = new_accumulator(random=Random(7))
    results = put(accumulator, None, count=10 * RECORDS_PER_BATCH)
    runs = [result.partition for result in results]
    changes = [place for place in range(1, len(runs)) if runs[place] != runs[place - 1]]
    assert changes
    assert all(place % RECORDS_PER_BATCH == 0 for place in changes)
    for number in range(3):
        sizes = [batch.record_count for batch in accumulator.queue_of(TopicPartition(TOPIC, number)).copy()]
        assert set(sizes) <= {RECORDS_PER_BATCH}


def test_sticky_choice_reaches_every_partition_evenly() -> None:
    accumulator = new_accumulator(memory=2**24, random=Random(1), adaptive_partitioning=False)
    results = put(accumulator, None, count=300 * RECORDS_PER_BATCH)
    for number in range(3):
        share = sum(result.partition == number for result in results) / len(results)
        assert 0.25 < share < 0.42


def test_partitions_with_short_queues_are_chosen_more_often() -> None:
    accumulator = new_accumulator(memory=2**24, random=Random(1), linger_ms=0)
    put(accumulator, None)
    put(accumulator, 0, count=9 * RECORDS_PER_BATCH)
    for number in (1, 2):
        put(accumulator, number, count=RECORDS_PER_BATCH)
    accumulator.ready(CLUSTER, 0)
    shares = [0, 0, 0]
    for _ in range(300):
        shares[put(accumulator, None, count=RECORDS_PER_BATCH)[-1].partition] += 1
    assert shares[0] < shares[1] / 3
    assert shares[0] < shares[2] / 3


def test_partitions_of_a_node_that_takes_nothing_are_not_chosen() -> None:
    accumulator = new_accumulator(memory=2**24, random=Random(1), linger_ms=0, partition_availability_timeout_ms=50)
    for number in (None, 0, 1, 2):
        put(accumulator, number)
    accumulator.update_node_latency_stats(NODE_1.id, now_ms=0, can_drain=True)
    accumulator.update_node_latency_stats(NODE_1.id, now_ms=51, can_drain=False)
    accumulator.ready(CLUSTER, 51)
    put(accumulator, None, count=2 * RECORDS_PER_BATCH)
    assert {result.partition for result in put(accumulator, None, count=50 * RECORDS_PER_BATCH)} == {2}


def test_ready_looks_only_at_queues_that_are_not_empty() -> None:
    accumulator = new_accumulator()
    for number in range(500):
        accumulator.queue_of(TopicPartition(TOPIC, number))
    put(accumulator, 2)
    assert [queue.topic_partition for queue in accumulator.active] == [TP_3]
    finish(accumulator, drain(accumulator, nodes=[NODE_2]))
    assert not accumulator.active


def test_time_spent_waiting_for_memory_counts_for_the_batch() -> None:
    class PoolThatWaits(BufferPool):
        """A pool whose answer takes 30 ms."""

        def allocate_into(self, held: list[Any], size: int, *, max_time_to_block_ms: int) -> None:
            clock.now_ms += 30
            super().allocate_into(held, size, max_time_to_block_ms=max_time_to_block_ms)

    clock = SetClock()
    pool = PoolThatWaits(4 * BATCH_BYTES, BATCH_BYTES, clock=clock)
    accumulator = new_accumulator(pool=pool, clock=clock)
    put(accumulator, now_ms=1000)
    assert accumulator.queue_of(TP_1).first.created_ms == 1030


def test_memory_of_a_batch_comes_back_once() -> None:
    accumulator = new_accumulator()
    put(accumulator)
    (batch,) = drain(accumulator)
    finish(accumulator, [batch])
    accumulator.deallocate(batch)
    assert batch.final_state is FinalState.SUCCEEDED
    assert accumulator.pool.available_memory == accumulator.pool.memory


def test_thread_that_waits_while_more_is_held_than_there_is_gets_its_turn() -> None:
    pool = BufferPool(3 * BATCH_BYTES, BATCH_BYTES)
    buffers = [pool.allocate(BATCH_BYTES, max_time_to_block_ms=0) for _ in range(3)]
    pool.deallocate(buffers.pop())
    buffers.append(pool.allocate_anyway(3 * BATCH_BYTES))
    assert pool.available_memory == -2 * BATCH_BYTES
    got: list[object] = []
    waiting = threading.Thread(target=lambda: got.append(pool.allocate(2 * BATCH_BYTES, max_time_to_block_ms=FAR_MS)))
    waiting.start()
    while pool.queued == 0:
        pass
    for buffer in buffers:
        pool.deallocate(buffer)
    waiting.join()
    assert pool.available_memory == BATCH_BYTES
    assert pool.gathered_memory == 0
