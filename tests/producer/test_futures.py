"""Goal: the future of a record is a concurrent.futures.Future, made when it is needed (FutureRecordMetadataTest).
Method: futures of batches that a test ends, handed to concurrent.futures, asyncio and plain waits."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, ThreadPoolExecutor, as_completed, wait
from typing import Any

import pytest

from kstore.errors import KStoreError, ProducerTimeoutError
from kstore.producer import FutureRecordMetadata, ProducerBatch, RecordMetadata
from tests.fakes.pooling import PATIENCE_S, open_batch


def appended(count: int) -> tuple[ProducerBatch, list[Any]]:
    batch = open_batch()
    return batch, [batch.try_append(n, None, b"v", (), None, 0) for n in range(count)]


def test_future_is_pending_until_its_batch_is_done() -> None:
    batch, (future,) = appended(1)
    assert isinstance(future, Future)
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


def test_plain_wait_makes_nothing_of_a_future() -> None:
    batch, (future,) = appended(1)
    with ThreadPoolExecutor(1) as executor:
        waiting = executor.submit(future.result, PATIENCE_S)
        batch.complete(8)
        assert waiting.result(PATIENCE_S).offset == 8
    assert vars(future) == {}


@pytest.mark.parametrize("is_done_before", [False, True])
def test_wait_for_several_sees_all(is_done_before: bool) -> None:
    batch, futures = appended(3)
    if is_done_before:
        batch.complete(1)
    else:
        assert wait(futures, timeout=0).not_done == set(futures)
        batch.complete(1)
    assert wait(futures, timeout=PATIENCE_S).done == set(futures)
    assert sorted(future.result().offset for future in as_completed(futures, PATIENCE_S)) == [1, 2, 3]


def test_wait_for_the_first_of_two_batches() -> None:
    (first, (one,)), (_, (other,)) = appended(1), appended(1)
    with ThreadPoolExecutor(1) as executor:
        waiting = executor.submit(wait, [one, other], PATIENCE_S, FIRST_COMPLETED)
        first.complete(1)
        assert waiting.result(PATIENCE_S).done == {one}


@pytest.mark.parametrize("fails", [False, True])
def test_asyncio_awaits_it(fails: bool) -> None:
    batch, futures = appended(2)
    error = KStoreError("no")

    async def main() -> list[Any]:
        wrapped = [asyncio.wrap_future(future) for future in futures]
        thread = threading.Thread(target=lambda: batch.complete_exceptionally(error) if fails else batch.complete(4))
        thread.start()
        outcomes = await asyncio.wait_for(asyncio.gather(*wrapped, return_exceptions=True), PATIENCE_S)
        thread.join()
        return outcomes

    outcomes = asyncio.run(main())
    assert outcomes == [error, error] if fails else [outcome.offset for outcome in outcomes] == [4, 5]


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


def test_only_the_batch_completes_a_future() -> None:
    _, (future,) = appended(1)
    for call, argument in ((future.set_result, None), (future.set_exception, KStoreError("no"))):
        with pytest.raises(InvalidStateError, match="by its batch"):
            call(argument)
    with pytest.raises(InvalidStateError, match="by its batch"):
        future.set_running_or_notify_cancel()
    with pytest.raises(AttributeError, match="nothing"):
        _ = future.nothing


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
