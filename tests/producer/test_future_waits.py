"""Goal: an interrupted wait for futures of the producer holds nobody up, and loses nobody else's completion.
Method: a signal at each place of concurrent.futures that looks for one; waits that race with the end of a batch."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, FIRST_EXCEPTION, Future, ThreadPoolExecutor, as_completed, wait
from functools import partial
from typing import Any

import pytest

from kstore.errors import KStoreError
from kstore.producer import ColumnsFuture, ProducerBatch
from kstore.producer.batches.waiting import SafeFuture
from tests.fakes.interrupts import Tracer, bounded, first_visits, traced
from tests.fakes.pooling import PATIENCE_S, open_batch

Ended = tuple[ProducerBatch, list[Any]]


def records() -> Ended:
    batch = open_batch()
    return batch, [batch.try_append(n, None, b"v", (), None, 0) for n in range(3)]


def columns() -> Ended:
    batch = open_batch()
    batch.try_append(0, None, b"v", (), None, 0)
    future = ColumnsFuture()
    future.add(3, [(batch.result, batch.record_count)])
    future.wait()
    return batch, [future]


def take_as_they_come(futures: list[Any]) -> None:
    try:
        for _ in as_completed(futures, timeout=0.001):
            raise AssertionError("nothing is done")
    except TimeoutError:
        return


def ask_to_be_told(futures: list[Any], told: list[object]) -> None:
    for future in futures:
        future.add_done_callback(told.append)


async def wrap(futures: list[Any]) -> None:
    for future in futures:
        asyncio.wrap_future(future)


WAITS: dict[str, Callable[[list[Any]], object]] = {
    "all": lambda futures: wait(futures, timeout=0.001),
    "first": lambda futures: wait(futures, timeout=0.001, return_when=FIRST_COMPLETED),
    "first failed": lambda futures: wait(futures, timeout=0.001, return_when=FIRST_EXCEPTION),
    "as completed": take_as_they_come,
    "with another's": lambda futures: wait([*futures, Future()], timeout=0.001),
    "callback": lambda futures: [future.add_done_callback(lambda _: None) for future in futures],
    "result": lambda futures: [future.exception(0.001) for future in futures],
}


@pytest.mark.parametrize("made", [records, columns], ids=["records", "columns"])
@pytest.mark.parametrize("name", WAITS)
def test_interrupt_anywhere_in_a_wait_keeps_neither_the_end_nor_other_waiters(
    name: str, made: Callable[[], Ended]
) -> None:
    def run(tracer: Tracer) -> None:
        batch, futures = made()
        told: list[object] = []
        with ThreadPoolExecutor(1) as executor:
            other = executor.submit(wait, futures, PATIENCE_S)

            def scenario() -> None:
                try:
                    WAITS[name](futures)
                except KStoreError:
                    return

            traced(scenario, tracer)
            assert bounded(lambda: batch.complete(7), seconds=PATIENCE_S) is None
            assert other.result(PATIENCE_S).done == set(futures)
        ask_to_be_told(futures, told)
        assert told == futures
        assert wait(futures, timeout=0).done == set(futures)
        assert set(as_completed(futures, timeout=0)) == set(futures)

    tracer = Tracer()
    run(tracer)
    for place in first_visits(tracer):
        run(Tracer(place))


@pytest.mark.parametrize("fails", [False, True], ids=["ok", "failed"])
@pytest.mark.parametrize("made", [records, columns], ids=["records", "columns"])
def test_waits_and_callbacks_that_race_with_the_end_are_told_once(made: Callable[[], Ended], fails: bool) -> None:
    def end(batch: ProducerBatch) -> None:
        batch.complete_exceptionally(KStoreError("no")) if fails else batch.complete(1)

    waits = [
        lambda futures: wait(futures, PATIENCE_S).done,
        lambda futures: set(as_completed(futures, PATIENCE_S)),
        lambda futures: wait(futures, PATIENCE_S, FIRST_COMPLETED).done and set(futures),
    ]
    with ThreadPoolExecutor(8) as executor:
        for _ in range(60):
            batch, futures = made()
            told: list[object] = []
            gate = threading.Barrier(5)

            def run(step: Callable[[], object], gate: threading.Barrier = gate) -> object:
                gate.wait(PATIENCE_S)
                return step()

            steps: list[Callable[[], object]] = [partial(one, futures) for one in waits]
            steps.append(partial(end, batch))
            steps.append(partial(ask_to_be_told, futures, told))
            found = [one.result(PATIENCE_S) for one in [executor.submit(run, step) for step in steps]]
            assert found[:3] == [set(futures)] * 3
            assert sorted(map(id, told)) == sorted(map(id, futures))


def test_lock_of_a_thread_that_was_interrupted_in_as_completed_is_passed_by() -> None:
    batch, futures = records()
    waiting = as_completed(futures)
    with ThreadPoolExecutor(1) as executor:
        first = executor.submit(next, waiting)
        while not all(vars(future).get("_kept") and future._kept.waiters for future in futures):
            threading.Event().wait(0.001)
        (waiter,) = futures[0]._kept.waiters
        waiter.lock.__enter__()
        assert bounded(lambda: batch.complete(7), seconds=PATIENCE_S) is None
        assert first.result(PATIENCE_S) in futures


def test_future_that_knows_nothing_says_so_in_words() -> None:
    batch, (future,) = columns()
    assert isinstance(future, SafeFuture)
    assert repr(future) == "<ColumnsFuture pending>"
    batch.complete(1)
    assert repr(future) == "<ColumnsFuture done>"
    with pytest.raises(AttributeError, match="nothing"):
        _ = future.nothing
