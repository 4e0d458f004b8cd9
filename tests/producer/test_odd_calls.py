"""Goal: a Producer that is used oddly says so at once, or does what was meant: no call hangs, none is half done.
Method: extreme settings, calls in callbacks, wrong targets, interrupted calls; real stores in a temporary folder."""

from __future__ import annotations

import threading
from collections.abc import Callable
from struct import pack
from typing import Any

import pytest

from kstore.config import MAX_INT32, MAX_INT64
from kstore.errors import BufferExhaustedError, ProducerClosedError
from kstore.producer import Producer, ProducerInterceptor
from kstore.record.packing import BinaryColumn, RecordColumns
from kstore.store.store import WritableStore, open_store
from kstore.types import TopicPartition
from tests.fakes.sending import Producing, ScriptedSink

TOPIC = "topic"
WAIT_S = 60
EXTREMES = {
    "max_block_ms": MAX_INT64,
    "linger_ms": MAX_INT64,
    "delivery_timeout_ms": MAX_INT32,
    "retry_backoff_ms": MAX_INT64,
    "retry_backoff_max_ms": MAX_INT64,
    "metadata_max_age_ms": MAX_INT64,
    "partitioner_availability_timeout_ms": MAX_INT64,
}


def begun(store: WritableStore, **settings: Any) -> Producer:
    producer = Producer(store, transactional_id="id", **settings)
    producer.init_transactions()
    producer.begin_transaction()
    return producer


def test_longest_times_are_no_times_that_overflow(store: WritableStore) -> None:
    with begun(store, **EXTREMES) as producer:
        future = producer.send(TOPIC, b"", partition=0)
        producer.commit_transaction()
        assert future.result(0).offset == 0


def test_transaction_timeout_that_the_coordinator_refuses_is_told_at_once(store: WritableStore) -> None:
    with pytest.raises(ValueError, match=f"transaction_timeout_ms must be from 1 to 900000, got {MAX_INT32}"):
        Producer(store, transactional_id="id", transaction_timeout_ms=MAX_INT32)


@pytest.mark.parametrize("name", ["commit_transaction", "abort_transaction", "init_transactions"])
def test_transactional_call_in_a_callback_is_refused_in_place_of_a_deadlock(store: WritableStore, name: str) -> None:
    caught: list[BaseException] = []

    def calling(*_: object) -> None:
        try:
            getattr(producer, name)()
        except RuntimeError as error:
            caught.append(error)

    with begun(store) as producer:
        producer.send(TOPIC, b"", on_delivery=calling)
        producer.flush(WAIT_S)
        assert "callback" in str(caught[0])
        producer.commit_transaction()


@pytest.mark.parametrize(
    "target_of",
    [lambda store: store.root, lambda store: store.log(TOPIC), lambda _: None],
    ids=["path", "log", "none"],
)
def test_target_that_is_neither_store_nor_sink_is_refused(
    store: WritableStore, target_of: Callable[[WritableStore], Any]
) -> None:
    before = threading.active_count()
    with pytest.raises(TypeError, match="opened for writing"):
        Producer(target_of(store))
    assert threading.active_count() == before


def test_store_that_was_opened_for_reading_is_refused(store: WritableStore) -> None:
    with open_store(store.root) as reading, pytest.raises(TypeError, match="opened for writing"):
        Producer(reading)


def test_close_that_was_interrupted_is_gone_on_with_by_the_next(
    store: WritableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer(store, linger_ms=10_000, request_timeout_ms=1)
    future = producer.send(TOPIC, b"", partition=0)

    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(producer._sender), "join", interrupted)
        with pytest.raises(KeyboardInterrupt):
            producer.close()
    producer.close()
    assert not producer._sender.is_running
    assert future.result(0).offset == 0
    with pytest.raises(ProducerClosedError):
        producer.send(TOPIC, b"")


def test_send_in_a_callback_does_not_wait_for_memory_that_only_its_own_thread_gives_back(store: WritableStore) -> None:
    caught: list[BaseException | None] = []
    told = threading.Event()
    with Producer(store, batch_size=1000, buffer_memory=1000, max_block_ms=MAX_INT64) as producer:

        def on_delivery(*_: Any) -> None:
            caught.append(producer.send(TOPIC, bytes(900), partition=1).exception(0))
            told.set()

        producer.send(TOPIC, bytes(900), partition=0, on_delivery=on_delivery)
        assert told.wait(WAIT_S)
        assert isinstance(caught[0], BufferExhaustedError)
        assert producer.send(TOPIC, bytes(900), partition=1).result(WAIT_S).offset == 0


def test_columns_sent_in_a_callback_do_not_wait_for_memory_that_only_its_own_thread_gives_back(
    store: WritableStore,
) -> None:
    caught: list[BaseException] = []
    told = threading.Event()
    column = BinaryColumn(pack("<2i", 0, 900), bytes(900))
    with Producer(store, batch_size=1000, buffer_memory=1000, max_block_ms=MAX_INT64) as producer:

        def on_delivery(*_: Any) -> None:
            try:
                producer.send_columns(TOPIC, RecordColumns(1, 0, value=column), partition=1)
            except BufferExhaustedError as error:
                caught.append(error)
            told.set()

        producer.send(TOPIC, bytes(900), partition=0, on_delivery=on_delivery)
        assert told.wait(WAIT_S)
        assert len(caught) == 1


class StuckSink(ScriptedSink):
    """Takes a batch and does not come back until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.has_batches = threading.Event()
        self.gate = threading.Event()

    def send(self, node: Any, batches: Any, *, ack: str) -> Any:
        self.has_batches.set()
        self.gate.wait(WAIT_S)
        return super().send(node, batches, ack=ack)


class Closings(ProducerInterceptor):
    """Counts how often it is closed."""

    def __init__(self) -> None:
        self.count = 0

    def close(self) -> None:
        self.count += 1


def test_callback_of_a_forced_close_that_closes_again_does_not_wait_for_a_stuck_sink() -> None:
    sink, closings = StuckSink(), Closings()
    producer = Producer(sink, interceptor_classes=[closings])
    future = producer.send("t", b"", partition=0, on_delivery=lambda *_: producer.close())
    assert sink.has_batches.wait(WAIT_S)
    closing = threading.Thread(target=lambda: producer.close(0), daemon=True)
    closing.start()
    closing.join(WAIT_S)
    is_hanging = closing.is_alive()
    sink.gate.set()
    assert not is_hanging
    assert isinstance(future.exception(0), ProducerClosedError)
    producer.close()
    assert closings.count == 1


@pytest.mark.parametrize("is_sent", [True, False], ids=["sent", "aborted"])
def test_interrupts_of_callbacks_leave_no_other_batch_untold(is_sent: bool) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    parts = Producing()
    futures = []
    for partition in range(3):
        futures.append(parts.append(b"0", to=TopicPartition("t", partition), callback=interrupted))
    end = parts.run if is_sent else lambda: parts.accumulator.abort_batches(ProducerClosedError("closed"))
    with pytest.raises(KeyboardInterrupt):
        end()
    assert [future.exception(0) is None for future in futures] == [is_sent] * 3
    parts.check_at_rest()
