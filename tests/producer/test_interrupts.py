"""Goal: an interrupt leaves a Producer that goes on and can be closed; all memory comes back, futures tell the truth.
Method: each scenario is run once for each place where the interpreter looks for signals, with a signal just there."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from struct import pack
from typing import Any

import pytest

from kstore.errors import ProducerClosedError, TransactionStateError
from kstore.producer import Cluster, Node, Producer
from kstore.producer.cluster import PartitionInfo
from kstore.producer.sink import ProduceResponse
from kstore.record.packing import BinaryColumn, RecordColumns
from kstore.store.store import WritableStore
from kstore.types import TopicPartition
from tests.fakes.interrupts import Tracer, bounded, first_visits, raise_interrupted, traced

pytestmark = pytest.mark.traces

TOPIC = "topic"
NODE = Node(0)
BATCH_BYTES = 100
PATIENCE_S = 20.0
RECORDS = 5

Sent = list[tuple[bytes, Any]]
Scenario = Callable[[Producer, Sent], None]


class MemorySink:
    """A log in memory that knows the batches of an idempotent producer again."""

    def __init__(self) -> None:
        self.now = Cluster([PartitionInfo(TOPIC, number, NODE) for number in range(2)], nodes=[NODE])
        self.values: dict[TopicPartition, list[bytes]] = {TopicPartition(TOPIC, number): [] for number in range(2)}
        self._known: dict[tuple[Any, ...], int] = {}

    def cluster(self) -> Cluster:
        return self.now

    def send(self, _node: Node, batches: Sequence[Any], **_ack: str) -> list[ProduceResponse]:
        return [ProduceResponse(self._append(batch)) for batch in batches]

    def _append(self, batch: Any) -> int:
        values = self.values[batch.topic_partition]
        key = batch.topic_partition, batch.producer_id, batch.producer_epoch, batch.base_sequence
        base_offset = self._known.setdefault(key, len(values))
        if base_offset == len(values):
            values += [bytes(record.value) for record in batch.records()]
        return base_offset


def new_producer(target: Any = None, **settings: Any) -> Producer:
    settings = {"batch_size": BATCH_BYTES, "linger_ms": 0} | settings
    return Producer(MemorySink() if target is None else target, **settings)


def send_some(producer: Producer, sent: Sent, **arguments: Any) -> None:
    for number in range(RECORDS):
        value = b"%d" % number
        sent.append((value, producer.send(TOPIC, value, **arguments)))


def send_and_close(producer: Producer, sent: Sent) -> None:
    send_some(producer, sent)
    producer.flush(PATIENCE_S)
    producer.close(PATIENCE_S)


def send_columns_and_wait(producer: Producer, _sent: Sent) -> None:
    values = [b"%d" % number for number in range(30)]
    ends = [0]
    for value in values:
        ends.append(ends[-1] + len(value))
    column = BinaryColumn(pack(f"<{len(ends)}i", *ends), b"".join(values))
    future = producer.send_columns(TOPIC, RecordColumns(len(values), 0, key=column, value=column))
    future.result(PATIENCE_S)


def check_end(producer: Producer, sent: Sent) -> None:
    """Close it, and look whether something is left, or was told wrongly."""
    assert bounded(lambda: producer.close(PATIENCE_S), seconds=2 * PATIENCE_S) is None
    accumulator = producer._accumulator
    assert not producer._sender.is_running
    assert accumulator.pool.available_memory == accumulator.pool.memory
    assert accumulator.pool.queued == 0
    assert not accumulator.has_incomplete
    assert not accumulator.has_undrained
    assert not accumulator.flush_in_progress
    assert all(future.done() for _, future in sent)


def check_values(sink: MemorySink, sent: Sent) -> None:
    """What is acknowledged lies where it is said to, once and in its order; what failed is not there."""
    found = Counter(value for values in sink.values.values() for value in values)
    assert set(found.values()) <= {1}
    for value, future in sent:
        if future.exception(0) is not None:
            assert value not in found
            continue
        metadata = future.result(0)
        assert sink.values[TopicPartition(metadata.topic, metadata.partition)][metadata.offset] == value
    for values in sink.values.values():
        assert values == sorted(values, key=int)


def skips_damage(producer: Producer) -> None:
    if producer._closed_why is None:
        assert producer.send(TOPIC, b"%d" % 1000, partition=0).result(PATIENCE_S).has_offset
        producer.flush(PATIENCE_S)


SCENARIOS: dict[str, tuple[dict[str, Any], Scenario]] = {
    "send": ({}, send_and_close),
    "memory": ({"buffer_memory": 250}, lambda producer, sent: send_some(producer, sent, partition=1)),
    "compressed": ({"compression_type": "gzip"}, lambda producer, sent: send_some(producer, sent, key=b"k")),
    "columns": ({}, send_columns_and_wait),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_interrupt_anywhere_leaves_a_producer_that_goes_on_and_tells_the_truth(name: str) -> None:
    settings, scenario = SCENARIOS[name]

    def run(tracer: Tracer) -> bool:
        sent: Sent = []
        sink = MemorySink()
        producer = new_producer(sink, **settings)
        was_interrupted = traced(lambda: scenario(producer, sent), tracer)
        assert bounded(lambda: skips_damage(producer)) is None
        check_end(producer, sent)
        check_values(sink, sent)
        return was_interrupted

    tracer = Tracer()
    assert not run(tracer)
    assert sum(run(Tracer(place)) for place in first_visits(tracer)) > len(first_visits(tracer)) // 2


def end_transaction(producer: Producer) -> None:
    manager = producer._transactions
    if producer._closed_why is None and manager is not None and manager.has_ongoing_transaction:
        producer.commit_transaction()


TRANSACTION_IDS = count()


def transactions(producer: Producer, sent: Sent) -> None:
    producer.init_transactions()
    producer.begin_transaction()
    send_some(producer, sent)
    producer.commit_transaction()
    producer.begin_transaction()
    send_some(producer, sent, partition=1)
    producer.abort_transaction()


def test_interrupt_anywhere_in_a_transaction_leaves_one_that_can_be_ended(store: WritableStore) -> None:
    def run(tracer: Tracer) -> None:
        sent: Sent = []
        producer = new_producer(store, transactional_id=f"id-{next(TRANSACTION_IDS)}", max_block_ms=5000)
        traced(lambda: transactions(producer, sent), tracer)
        error = bounded(lambda: end_transaction(producer))
        assert error is None or isinstance(error, TransactionStateError)
        check_end(producer, sent)

    tracer = Tracer()
    run(tracer)
    for place in first_visits(tracer):
        run(Tracer(place))


@pytest.mark.parametrize("call", ["close", "flush", "send"])
def test_signal_handler_that_calls_the_producer_it_interrupted_is_served_or_refused(call: str) -> None:
    def run(tracer: Tracer) -> None:
        sent: Sent = []
        producer = new_producer()

        def handler() -> None:
            try:
                producer.send(TOPIC, b"%d" % 1000, partition=0) if call == "send" else getattr(producer, call)()
            except (RuntimeError, ProducerClosedError):
                raise_interrupted()

        def scenario() -> None:
            try:
                send_and_close(producer, sent)
            except ProducerClosedError:
                return

        traced(scenario, tracer, handler=handler)
        check_end(producer, sent)

    tracer = Tracer()
    run(tracer)
    for place in first_visits(tracer):
        run(Tracer(place))


def test_close_in_a_handler_that_interrupted_what_the_sender_waits_for_is_a_typed_error(store: WritableStore) -> None:
    with new_producer(store, transactional_id="id") as producer:
        producer.init_transactions()
        manager = producer._transactions
        assert manager is not None
        for held in (manager._lock, producer._accumulator.queue_of(TopicPartition(TOPIC, 0)), producer._metrics._lock):
            with held:
                for call in (producer.close, producer.flush, producer.commit_transaction):
                    with pytest.raises(RuntimeError, match="signal handler would wait for the call"):
                        call()
        producer.begin_transaction()
        future = producer.send(TOPIC, b"0")
        producer.commit_transaction()
        assert future.result(0).offset == 0


def test_send_in_the_midst_of_an_append_does_not_wait_for_the_end_of_the_transaction_that_waits_for_it(
    store: WritableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_producer(store, transactional_id="id") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        is_awaited = threading.Event()
        await_appends = producer._accumulator._await_appends

        def await_and_say() -> None:
            is_awaited.set()
            await_appends()

        monkeypatch.setattr(producer._accumulator, "_await_appends", await_and_say)
        committing = threading.Thread(target=producer.commit_transaction)
        # As where a signal handler sends that interrupted who holds the queue.
        with producer._accumulator.queue_of(TopicPartition(TOPIC, 0)):
            committing.start()
            assert is_awaited.wait(PATIENCE_S)
            error = bounded(lambda: producer.send(TOPIC, b"0", partition=0), seconds=PATIENCE_S)
        committing.join(PATIENCE_S)
        assert isinstance(error, TransactionStateError)
