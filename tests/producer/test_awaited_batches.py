"""Goal: who waits for a record does not wait for its batch to linger; later batches linger again.
Method: an hour of linger, so that a batch that lingers does not come; parts with a clock that is set."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import kstore
from kstore.producer import Producer
from kstore.store.store import WritableStore, open_store
from tests.fakes.pooling import PATIENCE_S
from tests.making.producing import ALL_BYTES, CLUSTER, NODE_1, new_accumulator, put

HOUR_MS = 3_600_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[WritableStore]:
    with open_store(tmp_path, "a") as store:
        store.create_topic("t", partitions=2)
        yield store


@pytest.fixture
def producer(store: WritableStore) -> Iterator[Producer]:
    with kstore.Producer(store, linger_ms=HOUR_MS) as producer:
        yield producer


@pytest.mark.parametrize("call", ["result", "exception"])
def test_waiting_for_a_record_sends_its_batch_at_once(producer: Producer, call: str) -> None:
    for _ in range(3):
        future = producer.send("t", b"v", partition=0)
        getattr(future, call)(PATIENCE_S)
        assert future.done()


def test_awaiting_a_record_sends_its_batch_at_once(producer: Producer) -> None:
    async def send() -> list[int]:
        offsets = [(await producer.send("t", b"v", partition=0)).offset for _ in range(3)]
        several = await asyncio.gather(*[producer.send("t", b"v", partition=0) for _ in range(3)])
        return [*offsets, *(metadata.offset for metadata in several)]

    assert asyncio.run(asyncio.wait_for(send(), PATIENCE_S)) == [0, 1, 2, 3, 4, 5]


def test_records_of_an_awaited_batch_go_with_it_and_those_after_it_linger(producer: Producer) -> None:
    first, waited = (producer.send("t", b"v", partition=0) for _ in range(2))
    waited.result(PATIENCE_S)
    assert first.done()
    later = [producer.send("t", b"v", partition=number) for number in (0, 1)]
    time.sleep(0.02)
    assert not any(future.done() for future in later)


def test_callback_is_no_wait(producer: Producer) -> None:
    told = threading.Event()
    future = producer.send("t", b"v", partition=0)
    future.add_done_callback(lambda _: told.set())
    assert not told.wait(0.05)
    producer.flush()
    assert told.wait(PATIENCE_S)


def test_many_threads_that_wait_share_batches(store: WritableStore) -> None:
    with kstore.Producer(store, linger_ms=HOUR_MS) as producer:

        def send_all() -> None:
            for _ in range(20):
                producer.send("t", b"v", partition=0).result(PATIENCE_S)

        threads = [threading.Thread(target=send_all) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert store.log("t", 0).log_end_offset == 160


def test_batch_that_somebody_waits_for_is_ready_before_it_lingered() -> None:
    accumulator = new_accumulator(linger_ms=HOUR_MS)
    rings: list[None] = []
    accumulator.wake_sender = lambda: rings.append(None)
    (appended,) = put(accumulator)
    assert not accumulator.ready(CLUSTER, 0).ready_nodes
    for _ in range(2):
        assert not appended.future.produce_result.await_record(0, timeout_s=0)
    assert len(rings) == 1
    assert accumulator.ready(CLUSTER, 0).ready_nodes == {NODE_1}
    (batch,) = accumulator.drain(CLUSTER, [NODE_1], ALL_BYTES, now_ms=0)[NODE_1.id]
    assert batch.result is appended.future.produce_result


def test_second_batch_of_a_request_goes_when_somebody_waits_for_it() -> None:
    accumulator = new_accumulator(linger_ms=HOUR_MS)
    first, *_, last = put(accumulator, count=11)
    assert first.future.produce_result is not last.future.produce_result

    def drained() -> int:
        drained = accumulator.drain(CLUSTER, [NODE_1], ALL_BYTES, now_ms=0, batches_per_partition=2)
        return len(drained[NODE_1.id])

    last.future.produce_result.await_record(0, timeout_s=0)
    assert drained() == 2
