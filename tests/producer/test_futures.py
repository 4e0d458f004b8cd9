"""Goal: the future of a record can be waited for, awaited, and made a standard one (FutureRecordMetadataTest).
Method: futures of batches that a test ends; plain waits, asyncio, and standard futures in concurrent.futures."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, as_completed, wait
from typing import Any

import pytest

from kstore.errors import KStoreError, ProducerTimeoutError
from kstore.producer import ColumnsFuture, FutureRecordMetadata, ProducerBatch, RecordMetadata
from tests.fakes.pooling import PATIENCE_S, open_batch


def appended(count: int) -> tuple[ProducerBatch, list[Any]]:
    batch = open_batch()
    return batch, [batch.try_append(n, None, b"v", (), None, 0) for n in range(count)]


def test_future_is_pending_until_its_batch_is_done() -> None:
    batch, (future,) = appended(1)
    assert isinstance(future, FutureRecordMetadata)
    assert (future.done(), future.running(), future.cancelled(), future.cancel()) == (False, True, False, False)
    assert "pending" in repr(future)
    batch.complete(3)
    assert (future.done(), future.running(), future.cancelled(), future.cancel()) == (True, False, False, False)
    assert future.result() == RecordMetadata("orders", 3, 3, 0, -1, 1)
    assert "done" in repr(future)


@pytest.mark.parametrize(("timeout", "text"), [(0, "0 ms"), (0.005, "5 ms")])
@pytest.mark.parametrize("is_split", [False, True])
def test_wait_ends_when_its_time_is_over(timeout: float, text: str, is_split: bool) -> None:
    batch, (future,) = appended(1)
    if is_split:
        batch.split(100)
    for call in (future.result, future.exception):
        with pytest.raises(ProducerTimeoutError, match=f"Timeout after waiting for {text}"):
            call(timeout)


@pytest.mark.parametrize("timeout", [-2, -1, -0.001])
def test_wait_for_less_than_no_time_ends_at_once(timeout: float) -> None:
    batch, (one,) = appended(1)
    many = ColumnsFuture()
    many.add(0, [(batch.result, 1)])
    many.wait()
    for call in (one.result, one.exception, many.result, many.exception):
        with pytest.raises(ProducerTimeoutError):
            call(timeout)


def test_plain_wait_makes_nothing_of_a_future() -> None:
    batch, (future,) = appended(1)
    with ThreadPoolExecutor(1) as executor:
        waiting = executor.submit(future.result, PATIENCE_S)
        batch.complete(8)
        assert waiting.result(PATIENCE_S).offset == 8
    assert future.callbacks is None
    assert not hasattr(future, "__dict__")


@pytest.mark.parametrize("is_done_before", [False, True])
def test_wait_for_several_sees_all(is_done_before: bool) -> None:
    batch, futures = appended(3)
    standard = [future.as_concurrent() for future in futures] if not is_done_before else []
    if is_done_before:
        batch.complete(1)
        standard = [future.as_concurrent() for future in futures]
    else:
        assert wait(standard, timeout=0).not_done == set(standard)
        batch.complete(1)
    assert wait(standard, timeout=PATIENCE_S).done == set(standard)
    assert sorted(future.result().offset for future in as_completed(standard, PATIENCE_S)) == [1, 2, 3]


def test_wait_for_the_first_of_two_batches() -> None:
    (first, (one,)), (_, (other,)) = appended(1), appended(1)
    standard, pending = one.as_concurrent(), other.as_concurrent()
    with ThreadPoolExecutor(1) as executor:
        waiting = executor.submit(wait, [standard, pending], PATIENCE_S, FIRST_COMPLETED)
        first.complete(1)
        assert waiting.result(PATIENCE_S).done == {standard}


@pytest.mark.parametrize("is_done_before", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_standard_future_has_the_outcome_and_cannot_be_cancelled(fails: bool, is_done_before: bool) -> None:
    error = KStoreError("no")

    def end(batch: ProducerBatch) -> None:
        batch.complete_exceptionally(error) if fails else batch.complete(4)

    batch, (future,) = appended(1)
    if is_done_before:
        end(batch)
    standard = future.as_concurrent()
    assert not standard.cancel()
    if not is_done_before:
        assert not standard.done()
        end(batch)
    assert standard.exception(PATIENCE_S) is (error if fails else None)
    if not fails:
        assert standard.result() == future.result()


async def _waited(futures: list[Any], **settings: Any) -> list[Any]:
    done, pending = await asyncio.wait(futures, **settings)
    assert not pending
    return [await one for one in done]


async def _first_completed(futures: list[Any]) -> list[Any]:
    done: set[Any] = set()
    pending: Any = futures
    while pending:
        first, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        done |= first
    return [await one for one in done]


async def _as_completed(futures: list[Any]) -> list[Any]:
    return [await one for one in asyncio.as_completed(futures)]


async def _each(futures: list[Any], wait_for: Any) -> list[Any]:
    return await asyncio.gather(*[wait_for(one) for one in futures])


async def _notified(futures: list[Any]) -> list[Any]:
    results: list[Any] = []
    everything = asyncio.Event()

    def note(future: Any) -> None:
        # In the loop, as for asyncio's own futures, so that it may use what is not thread-safe.
        assert asyncio.get_running_loop()
        results.append(future.result())
        if len(results) == len(futures):
            everything.set()

    for future in futures:
        future.add_done_callback(note)
    await everything.wait()
    return results


ASYNCIO_WAITS = {
    "wait": _waited,
    "wait with a timeout": lambda futures: _waited(futures, timeout=PATIENCE_S),
    "wait for the first error": lambda futures: _waited(futures, return_when=asyncio.FIRST_EXCEPTION),
    "wait for the first": _first_completed,
    "as_completed": _as_completed,
    "gather": lambda futures: _each(futures, lambda one: one),
    "wait_for": lambda futures: _each(futures, lambda one: asyncio.wait_for(one, PATIENCE_S)),
    "shield": lambda futures: _each(futures, asyncio.shield),
    "ensure_future": lambda futures: _each(futures, asyncio.ensure_future),
    "wrap_future": lambda futures: _each(futures, lambda one: asyncio.wrap_future(one.as_concurrent())),
    "create_task": lambda futures: _waited([asyncio.create_task(_each([one], lambda one: one)) for one in futures]),
    "callbacks": _notified,
}


@pytest.mark.parametrize("is_done_before", [False, True])
@pytest.mark.parametrize("of_columns", [False, True])
@pytest.mark.parametrize("way", ASYNCIO_WAITS)
def test_every_wait_of_asyncio_ends(way: str, of_columns: bool, is_done_before: bool) -> None:
    batch, futures = appended(3)
    if of_columns:
        columns = ColumnsFuture()
        columns.add(0, [(batch.result, 3)])
        columns.wait()
        futures = [columns]

    async def main() -> list[Any]:
        # Nothing else wakes the loop.
        complete = threading.Thread(target=batch.complete, args=[7])
        if is_done_before:
            complete.start()
            complete.join()
        waiting = asyncio.ensure_future(ASYNCIO_WAITS[way](futures))
        if not is_done_before:
            for _ in range(5):
                await asyncio.sleep(0)
            complete.start()
        return await asyncio.wait_for(waiting, PATIENCE_S)

    found = [one for result in asyncio.run(main()) for one in (result if way == "create_task" else [result])]
    results = [future.result(0) for future in futures]
    assert len(found) == len(results)
    assert all(result in found for result in results)


@pytest.mark.parametrize("call", [wait, as_completed], ids=["wait", "as_completed"])
def test_functions_for_standard_futures_say_what_to_pass(call: Any) -> None:
    batch, (future,) = appended(1)
    with pytest.raises(TypeError, match=r"expected future.as_concurrent\(\), found FutureRecordMetadata"):
        list(call([future]))
    batch.complete(0)


def test_task_of_a_future_is_refused_at_once_as_for_futures_of_asyncio() -> None:
    batch, (future,) = appended(1)

    async def main() -> None:
        with pytest.raises(TypeError, match="a coroutine was expected, got FutureRecordMetadata"):
            await asyncio.create_task(future)

    asyncio.run(main())
    batch.complete(0)


def test_wait_that_timed_out_leaves_no_callback() -> None:
    batch, (future,) = appended(1)

    async def main() -> None:
        done, pending = await asyncio.wait({future}, timeout=0)
        assert (done, pending) == (set(), {future})
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(future, 0.001)

    asyncio.run(main())
    assert future.callbacks == []
    batch.complete(0)


def test_callback_can_be_removed() -> None:
    batch, (future,) = appended(1)
    seen: list[Any] = []
    future.add_done_callback(seen.append)
    future.add_done_callback(seen.append)
    assert (future.remove_done_callback(seen.append), future.remove_done_callback(seen.append)) == (2, 0)
    batch.complete(0)
    assert seen == []


def test_callback_of_a_loop_that_is_closed_is_called_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    batch, (future,) = appended(1)
    seen: list[Any] = []

    async def main() -> None:
        future.add_done_callback(seen.append)

    asyncio.run(main())
    assert not seen
    batch.complete(0)
    assert seen == [future]
    assert not caplog.records


def test_standard_future_is_completed_while_its_loop_is_blocked() -> None:
    batch, (future,) = appended(1)

    async def main() -> int:
        standard = future.as_concurrent()
        complete = threading.Thread(target=batch.complete, args=[5])
        complete.start()
        offset: int = standard.result(PATIENCE_S).offset
        complete.join()
        return offset

    assert asyncio.run(main()) == 5


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("is_wrapped", [False, True])
def test_asyncio_awaits_it(is_wrapped: bool, fails: bool) -> None:
    batch, futures = appended(2)
    error = KStoreError("no")

    async def awaited(future: Any) -> Any:
        return await future

    async def main() -> list[Any]:
        ones = [asyncio.wrap_future(one.as_concurrent()) if is_wrapped else awaited(one) for one in futures]
        thread = threading.Thread(target=lambda: batch.complete_exceptionally(error) if fails else batch.complete(4))
        asyncio.get_running_loop().call_later(0.01, thread.start)
        outcomes = await asyncio.wait_for(asyncio.gather(*ones, return_exceptions=True), PATIENCE_S)
        thread.join()
        return outcomes

    outcomes = asyncio.run(main())
    assert outcomes == [error, error] if fails else [outcome.offset for outcome in outcomes] == [4, 5]


def test_future_that_is_done_is_awaited_without_a_turn_of_the_loop() -> None:
    batch, (future,) = appended(1)
    batch.complete(4)
    awaiting = future.__await__()
    with pytest.raises(StopIteration) as ended:
        next(awaiting)
    assert ended.value.value.offset == 4


def test_cancelled_await_leaves_the_future_and_a_closed_loop_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    batch, (future,) = appended(1)

    async def main() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.ensure_future(future), 0.01)

    asyncio.run(main())
    with caplog.at_level(logging.ERROR):
        batch.complete(4)
    assert future.result(0).offset == 4
    assert not caplog.records


def test_done_callbacks_run_when_the_batch_is_done_and_late_ones_at_once(caplog: pytest.LogCaptureFixture) -> None:
    batch, (future, other) = appended(2)
    seen: list[object] = []

    def fail(_: object) -> None:
        raise RuntimeError("broken")

    future.add_done_callback(fail)
    future.add_done_callback(seen.append)
    other.add_done_callback(seen.append)
    with caplog.at_level(logging.ERROR):
        batch.complete(1)
    assert seen == [future, other]
    future.add_done_callback(seen.append)
    assert seen == [future, other, future]
    assert "broken" in caplog.text


def test_interrupted_done_callback_keeps_no_other_future_waiting() -> None:
    batch, (future, other) = appended(2)
    seen: list[object] = []

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    future.add_done_callback(interrupt)
    other.add_done_callback(seen.append)
    with pytest.raises(KeyboardInterrupt):
        batch.complete(1)
    assert seen == [other]
    assert future.result(0).offset == 1


def test_error_of_many_records_gathers_no_traceback() -> None:
    batch, futures = appended(2)
    error = KStoreError("no")
    batch.complete_exceptionally(error)
    lengths = []
    for future in futures * 3:
        with pytest.raises(KStoreError):
            future.result()
        trace, length = error.__traceback__, 0
        while trace is not None:
            trace, length = trace.tb_next, length + 1
        lengths.append(length)
    assert len(set(lengths)) == 1


def test_lazy_future_is_made_once() -> None:
    batch = open_batch()
    result = batch.append_record(5, b"k", None, (), None, 0)
    assert result is not None
    assert result.future is result.future
    assert (result.index, result.timestamp_ms, result.serialized_key_size, result.serialized_value_size) == (
        0,
        5,
        1,
        -1,
    )
