"""Goal: no call of kstore.aio.Producer blocks the event loop, and each record has the outcome that its task is told.
Method: gathered, cancelled and waiting sends; a full buffer, a store that does not answer, batches that split."""

from __future__ import annotations

import asyncio
import threading

import pytest

import kstore
from kstore import aio
from kstore.aio.producer import _set
from kstore.errors import (
    BufferExhaustedError,
    ProducerClosedError,
    RecordTooLargeError,
    SerializationError,
    StorageError,
    TransactionStateError,
    UnknownTopicOrPartitionError,
)
from kstore.producer.batches.futures import FutureRecordMetadata, ProduceRequestResult
from kstore.producer.sending.store_sink import StoreSink

PATIENCE_S = 60
FULL_BUFFER = {"buffer_memory": 32 * 1024, "batch_size": 16 * 1024}


def run(main):
    """Run a coroutine, which may take PATIENCE_S."""

    async def bounded():
        return await asyncio.wait_for(main, PATIENCE_S)

    return asyncio.run(bounded())


@pytest.fixture
def store(tmp_path):
    with kstore.open_store(tmp_path, "a") as opened:
        opened.create_topic("t")
        yield opened


def values(store, **options):
    log = store.log("t")
    log.refresh()
    return [record.value for record in log.read(0, **options)]


class Gate:
    """Lets no batch reach the store until it is opened."""

    def __init__(self, monkeypatch):
        self.is_reached = threading.Event()
        self._may_go = threading.Event()
        send = StoreSink.send

        def held(sink, *arguments, **options):
            self.is_reached.set()
            assert self._may_go.wait(PATIENCE_S)
            return send(sink, *arguments, **options)

        monkeypatch.setattr(StoreSink, "send", held)

    def open(self):
        self._may_go.set()


@pytest.fixture
def gate(monkeypatch):
    made = Gate(monkeypatch)
    yield made
    made.open()


def test_a_send_returns_where_the_record_is(store):
    async def main():
        async with aio.Producer(store) as producer:
            assert (await producer.send("t", b"a")).offset == 0
            return await producer.send("t", b"b", key=b"k", headers=[("h", b"1")], timestamp_ms=7)

    metadata = run(main())
    assert (metadata.topic, metadata.partition, metadata.offset, metadata.timestamp_ms) == ("t", 0, 1, 7)
    assert values(store) == [b"a", b"b"]


def test_gathered_sends_keep_the_order_of_their_calls(store):
    async def main():
        async with aio.Producer(store, batch_size=512) as producer:
            return await asyncio.gather(*(producer.send("t", b"%d" % n) for n in range(3000)))

    assert [metadata.offset for metadata in run(main())] == list(range(3000))
    assert values(store) == [b"%d" % n for n in range(3000)]


def test_sends_work_in_what_asyncio_has_for_tasks(store):
    async def main():
        async with aio.Producer(store) as producer:
            done, waiting = await asyncio.wait([asyncio.create_task(producer.send("t", b"0"))])
            assert not waiting
            assert [task.result().offset for task in done] == [0]
            done, waiting = await asyncio.wait([producer.send_nowait("t", b"1")])
            assert not waiting
            assert (await asyncio.wait_for(producer.send("t", b"2"), PATIENCE_S)).offset == 2
            assert [(await each).offset for each in asyncio.as_completed([producer.send("t", b"3")])] == [3]

    run(main())


def test_a_full_buffer_makes_tasks_wait_in_their_order_while_the_loop_runs(store, gate):
    async def main():
        async with aio.Producer(store, **FULL_BUFFER) as producer:
            await producer.partitions_for("t")
            sends = [asyncio.create_task(producer.send("t", b"%06d" % n + bytes(1000))) for n in range(200)]
            await asyncio.to_thread(gate.is_reached.wait, PATIENCE_S)
            for _ in range(1000):
                await asyncio.sleep(0)
            assert not any(send.done() for send in sends)
            with pytest.raises(BufferExhaustedError):
                producer.send_nowait("t", b"small")
            gate.open()
            return await asyncio.gather(*sends)

    assert [metadata.offset for metadata in run(main())] == list(range(200))
    assert [int(value[:6]) for value in values(store)] == list(range(200))


def test_a_full_buffer_is_sent_though_its_batches_would_linger(store):
    async def main():
        async with aio.Producer(store, linger_ms=3_600_000, **FULL_BUFFER) as producer:
            await producer.partitions_for("t")
            futures = []
            while True:
                try:
                    futures.append(producer.send_nowait("t", bytes(1000)))
                except BufferExhaustedError:
                    break
            await producer.send("t", b"last")
            await producer.flush()
            return await asyncio.gather(*futures)

    assert len(run(main())) + 1 == len(values(store))


def test_a_full_buffer_ends_a_wait_after_max_block_ms(store, gate):
    async def main():
        async with aio.Producer(store, max_block_ms=50, **FULL_BUFFER) as producer:
            await producer.partitions_for("t")
            sends = [asyncio.create_task(producer.send("t", bytes(1000))) for _ in range(200)]
            done, _ = await asyncio.wait(sends, return_when=asyncio.FIRST_EXCEPTION)
            errors = [send.exception() for send in done]
            gate.open()
            await asyncio.wait(sends)
            return errors

    assert any(isinstance(error, BufferExhaustedError) for error in run(main()))


def test_a_cancelled_task_sends_nothing_if_others_are_before_it(store, gate):
    async def main():
        async with aio.Producer(store, **FULL_BUFFER) as producer:
            await producer.partitions_for("t")
            sends = [asyncio.create_task(producer.send("t", b"%06d" % n + bytes(1000))) for n in range(100)]
            await asyncio.to_thread(gate.is_reached.wait, PATIENCE_S)
            sends[99].cancel()
            await asyncio.sleep(0)
            gate.open()
            await asyncio.gather(*sends, return_exceptions=True)

    run(main())
    assert [int(value[:6]) for value in values(store)] == list(range(99))


def test_a_cancelled_wait_for_the_outcome_does_not_take_the_record_back(store, gate):
    async def main():
        async with aio.Producer(store) as producer:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(producer.send("t", b"a"), 0.05)
            gate.open()

    run(main())
    assert values(store) == [b"a"]


def test_a_loop_runs_while_the_partitions_are_looked_up(store, monkeypatch):
    threads = set()
    cluster = StoreSink.cluster

    def noted(sink):
        threads.add(threading.current_thread())
        return cluster(sink)

    monkeypatch.setattr(StoreSink, "cluster", noted)

    async def main():
        async with aio.Producer(store) as producer:
            await producer.send("t", b"a")

    run(main())
    assert threads
    assert threading.current_thread() not in threads


def test_a_full_batch_is_sent_soon_however_long_batches_linger(store):
    """Nobody waits for a record: that would let its batch go."""

    async def main(linger_ms):
        producer = aio.Producer(store, batch_size=512, linger_ms=linger_ms)
        await producer.partitions_for("t")
        sent = [producer.send_nowait("t", bytes(200)) for _ in range(10)]
        while not sent[0].done():
            await asyncio.sleep(0)
        await producer.aclose()

    for linger_ms in (0, 5, 100 * PATIENCE_S * 1000):
        run(main(linger_ms))
    assert len(values(store)) == 30


@pytest.mark.parametrize(("linger_ms", "is_woken"), [(5, False), (6, True), (60_000, True)])
def test_a_full_batch_of_a_loop_wakes_the_sender_only_if_it_would_not_look_soon(store, linger_ms, is_woken):
    """A sender that is awake takes the interpreter's lock whenever the loop waits, for a batch or two each time."""

    async def main():
        async with aio.Producer(store, batch_size=512, linger_ms=linger_ms) as producer:
            await producer.send("t", b"first")
            sender = producer._producer._sender
            rung = []
            wakeup, sender.wakeup = sender.wakeup, lambda: rung.append(1)
            for _ in range(50):
                producer.send_nowait("t", bytes(200))
            sender.wakeup = wakeup
            return bool(rung)

    assert run(main()) == is_woken
    assert len(values(store)) == 51


def test_an_error_is_raised_where_its_record_is_awaited(store):
    async def main():
        async with aio.Producer(store) as producer:
            with pytest.raises(UnknownTopicOrPartitionError):
                await producer.send("none", b"a")
            with pytest.raises(RecordTooLargeError):
                await producer.send("t", bytes(2_000_000))
            with pytest.raises(SerializationError):
                await producer.send("t", 7)
            assert (await producer.send("t", b"good")).offset == 0

    run(main())


def test_each_record_of_a_failed_batch_has_its_error(store, monkeypatch):
    def full(*_, **__):
        raise StorageError("no space", path="t-0", errno=28)

    async def main():
        async with aio.Producer(store, retries=0) as producer:
            await producer.send("t", b"a")
            monkeypatch.setattr(StoreSink, "send", full)
            outcomes = await asyncio.gather(*(producer.send("t", b"b") for _ in range(5)), return_exceptions=True)
            monkeypatch.undo()
            return outcomes

    assert [type(outcome) for outcome in run(main())] == [StorageError] * 5


def test_records_of_a_split_batch_have_their_own_offsets(tmp_path):
    with kstore.open_store(tmp_path, "a") as store:
        store.create_topic("t", config={"max_message_bytes": 2000})

        async def main():
            async with aio.Producer(store, batch_size=16_000, compression_type="none") as producer:
                return await asyncio.gather(*(producer.send("t", bytes(500)) for _ in range(30)))

        assert [metadata.offset for metadata in run(main())] == list(range(30))


def test_a_record_of_a_later_piece_of_a_split_batch_waits_for_that_piece():
    place = kstore.TopicPartition("t", 0)
    whole, *pieces = (ProduceRequestResult(place) for _ in range(3))
    sizes = {"timestamp_ms": 0, "serialized_key_size": -1, "serialized_value_size": 1}
    sent = FutureRecordMetadata(whole, index=1, **sizes)
    whole.split([(0, pieces[0]), (1, pieces[1])])

    async def main():
        future = asyncio.get_running_loop().create_future()
        pieces[0].set(0)
        pieces[0].done()
        _set(sent, future)
        assert not future.done()
        pieces[1].set(7)
        pieces[1].done()
        return await future

    assert run(main()).offset == 7


def test_a_closed_producer_refuses_and_has_sent_the_rest(store):
    async def main():
        producer = aio.Producer(store, linger_ms=3_600_000)
        await producer.partitions_for("t")
        future = producer.send_nowait("t", b"a")
        await producer.aclose()
        with pytest.raises(ProducerClosedError):
            await producer.send("t", b"b")
        return await future

    assert run(main()).offset == 0


def test_interceptors_are_called_once_and_not_in_the_loop(store):
    seen = []

    class Seeing:
        def on_send(self, record):
            seen.append(threading.current_thread())
            return record

        def on_acknowledgement(self, metadata, error): ...

        def close(self): ...

    async def main():
        async with aio.Producer(store, interceptor_classes=[Seeing()]) as producer:
            await producer.send("t", b"a")

    run(main())
    assert len(seen) == 1
    assert threading.current_thread() not in seen


def test_columns_are_sent_from_a_task(store):
    pa = pytest.importorskip("pyarrow")

    async def main():
        async with aio.Producer(store) as producer:
            return await producer.send_columns("t", pa.table({"value": [b"a", b"b"]}))

    (batch,) = run(main())
    assert (batch.base_offset, batch.record_count) == (0, 2)


# Transactions


async def fail_in_a_transaction(producer):
    async with producer.begin_transaction():
        await producer.send("t", b"aborted")
        raise ZeroDivisionError


def test_a_transaction_commits_at_the_end_of_its_body_and_aborts_after_an_error(store):
    async def main():
        async with aio.Producer(store, transactional_id="x") as producer:
            await producer.init_transactions()
            async with producer.begin_transaction():
                await producer.send("t", b"committed")
            with pytest.raises(ZeroDivisionError):
                await fail_in_a_transaction(producer)
            with pytest.raises(TransactionStateError):
                await producer.commit_transaction()

    run(main())
    assert values(store, isolation="read_committed") == [b"committed"]


def test_a_full_buffer_does_not_fail_a_transaction(store, gate):
    async def main():
        async with aio.Producer(store, transactional_id="x", **FULL_BUFFER) as producer:
            await producer.init_transactions()
            await producer.partitions_for("t")
            async with producer.begin_transaction():
                sends = [asyncio.create_task(producer.send("t", bytes(1000))) for _ in range(100)]
                await asyncio.to_thread(gate.is_reached.wait, PATIENCE_S)
                gate.open()
                await asyncio.gather(*sends)

    run(main())
    assert len(values(store, isolation="read_committed")) == 100
