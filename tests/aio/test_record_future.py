"""Goal: the future of send_nowait() works wherever asyncio takes one of its own, and costs no future that nobody wants.
Method: an hour of linger, so that a record is written when the test says so; each function of asyncio that takes
futures; errors, cancellation, callbacks."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import weakref

import pytest

import kstore
from kstore import aio
from kstore.aio.futures import RecordFuture
from kstore.errors import KStoreError, RecordTooLargeError

PATIENCE_S = 20
HOUR_MS = 3_600_000


@pytest.fixture
def store(tmp_path):
    with kstore.open_store(tmp_path, "a") as opened:
        opened.create_topic("t")
        yield opened


def run(store, main, **settings):
    """Run a coroutine function with a producer that knows the topic."""

    async def bounded():
        async with aio.Producer(store, linger_ms=HOUR_MS, **settings) as producer:
            await producer.partitions_for("t")
            return await asyncio.wait_for(main(producer), PATIENCE_S)

    return asyncio.run(bounded())


@pytest.fixture
def made(monkeypatch):
    """Count the futures that asyncio makes for producers."""
    counts = []
    future = asyncio.Future

    class Counted(future):
        def __init__(self, **options):
            counts.append(None)
            super().__init__(**options)

    monkeypatch.setattr(asyncio, "Future", Counted)
    return counts


def test_outcome_comes_without_a_wait_and_not_before_the_end(store, made):
    async def main(producer):
        future = producer.send_nowait("t", b"v")
        assert isinstance(future, RecordFuture)
        assert not future.done()
        for call in (future.result, future.exception):
            with pytest.raises(asyncio.InvalidStateError):
                call()
        await producer.flush()
        assert future.done()
        assert not future.cancelled()
        assert future.result().offset == 0
        assert future.exception() is None
        assert (await future).offset == 0

    run(store, main)
    assert made == []


def test_awaited_futures_have_their_outcomes(store, made):
    async def main(producer):
        futures = [producer.send_nowait("t", b"%d" % number) for number in range(500)]
        flush = asyncio.create_task(producer.flush())
        awaited = [(await future).offset for future in futures]
        gathered = [metadata.offset for metadata in await asyncio.gather(*futures)]
        await flush
        return awaited, gathered

    assert run(store, main, batch_size=512) == (list(range(500)), list(range(500)))


async def waited(future):
    done, waiting = await asyncio.wait([future])
    assert (done, waiting) == ({future}, set())
    return future.result()


async def first_completed(future):
    (each,) = asyncio.as_completed([future])
    return await each


TAKERS = {
    "await": lambda future: future,
    "gather": lambda future: asyncio.gather(future),
    "wait": waited,
    "wait_for": lambda future: asyncio.wait_for(future, PATIENCE_S),
    "shield": asyncio.shield,
    "as_completed": first_completed,
    "ensure_future": asyncio.ensure_future,
}


@pytest.mark.parametrize("name", TAKERS)
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_functions_of_asyncio_take_it(store, name, is_done):
    async def main(producer):
        future = producer.send_nowait("t", b"v")
        if is_done:
            await producer.flush()
        flush = asyncio.create_task(producer.flush())
        found = await TAKERS[name](future)
        await flush
        return found[0] if isinstance(found, list) else found

    assert run(store, main).offset == 0


def test_future_is_one_of_asyncio_and_is_made_once(store, made):
    async def main(producer):
        future = producer.send_nowait("t", b"v")
        assert asyncio.isfuture(future)
        assert asyncio.ensure_future(future) is future
        assert future.get_loop() is asyncio.get_running_loop()
        future.add_done_callback(lambda _: None)
        await asyncio.gather(producer.flush(), asyncio.shield(future))
        return len(made)

    assert run(store, main) == 1


def test_callbacks_run_in_the_loop_with_this_future_and_its_context(store):
    variable = contextvars.ContextVar("variable")

    async def main(producer):
        told = []

        def tell(future):
            told.append((future, variable.get(None), asyncio.get_running_loop()))

        def removed(_):
            raise AssertionError("it was removed")

        future = producer.send_nowait("t", b"v")
        context = contextvars.copy_context()
        context.run(variable.set, 7)
        future.add_done_callback(tell, context=context)
        future.add_done_callback(removed)
        assert future.remove_done_callback(removed) == 1
        assert future.remove_done_callback(removed) == 0
        await producer.flush()
        await future
        await asyncio.sleep(0)
        return told == [(future, 7, asyncio.get_running_loop())]

    assert run(store, main)


def test_cancelled_future_is_done_and_its_record_is_written(store):
    async def main(producer):
        future = producer.send_nowait("t", b"v")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(future, 0.001)
        assert future.cancelled()
        assert future.done()
        assert not future.cancel()
        for call in (future.result, future.exception):
            with pytest.raises(asyncio.CancelledError):
                call()
        with pytest.raises(asyncio.CancelledError):
            await future
        other = producer.send_nowait("t", b"w")
        assert other.cancel()
        await producer.flush()
        assert not producer.send_nowait("t", b"x").cancelled()

    run(store, main)
    assert [record.value for record in store.log("t").read()] == [b"v", b"w", b"x"]


def test_errors_are_raised_where_the_outcome_is_asked_for(store):
    async def main(producer):
        future = producer.send_nowait("t", b"v")
        error = KStoreError("no")
        producer._producer._accumulator.abort_batches(error)
        assert future.exception() is error
        with pytest.raises(KStoreError):
            await future
        large = producer.send_nowait("t", bytes(2000))
        with pytest.raises(RecordTooLargeError):
            await large

    run(store, main, max_request_size=1000)


def test_future_outlives_its_producer_and_keeps_it_not_alive(store):
    async def main():
        producer = aio.Producer(store, linger_ms=HOUR_MS)
        await producer.partitions_for("t")
        future = producer.send_nowait("t", b"v")
        await producer.aclose()
        alive = weakref.ref(producer)
        del producer
        gc.collect()
        assert alive() is None
        return (await future).offset, (await asyncio.shield(future)).offset

    assert asyncio.run(main()) == (0, 0)


def test_batches_that_end_together_are_set_by_turns(store):
    async def main(producer):
        sends = [asyncio.ensure_future(producer.send_nowait("t", b"%d" % number)) for number in range(3000)]
        for future in sends:
            future.add_done_callback(lambda _: None)
        await producer.flush()
        return [metadata.offset for metadata in await asyncio.gather(*sends)]

    assert run(store, main) == list(range(3000))
