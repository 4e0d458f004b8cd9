"""Goal: an interrupted wait for futures of the producer holds nobody up, and loses nobody else's completion.
Method: a signal at each place of concurrent.futures that looks for one; waits that race with the end of a batch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, FIRST_EXCEPTION, Future, ThreadPoolExecutor, as_completed, wait
from functools import partial
from typing import Any

import pytest

from kstore.errors import KStoreError
from kstore.producer import ColumnsFuture, ProducerBatch
from kstore.producer.batches import waiting
from tests.fakes.interrupts import Interrupted, Tracer, bounded, first_visits, traced
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


def standard(futures: list[Any]) -> list[Future[Any]]:
    return [future.as_concurrent() for future in futures]


def take_as_they_come(futures: list[Any]) -> None:
    try:
        for _ in as_completed(standard(futures), timeout=0.001):
            raise AssertionError("nothing is done")
    except TimeoutError:
        return


def ask_to_be_told(futures: list[Any], told: list[object]) -> None:
    for future in futures:
        future.add_done_callback(told.append)


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a hanging completion up soon: many of these tests make one hang."""
    monkeypatch.setattr(waiting, "_PATIENCE_S", 0.05)


WAITS: dict[str, Callable[[list[Any]], object]] = {
    "all": lambda futures: wait(standard(futures), timeout=0.001),
    "first": lambda futures: wait(standard(futures), timeout=0.001, return_when=FIRST_COMPLETED),
    "first failed": lambda futures: wait(standard(futures), timeout=0.001, return_when=FIRST_EXCEPTION),
    "as completed": take_as_they_come,
    "with another's": lambda futures: wait([*standard(futures), Future()], timeout=0.001),
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
            others = standard(futures)
            other = executor.submit(wait, others, PATIENCE_S)

            def scenario() -> None:
                try:
                    WAITS[name](futures)
                except KStoreError:
                    return
                except RuntimeError as error:
                    # A condition of the standard library raises this if its wait was interrupted.
                    if not isinstance(error.__context__, Interrupted):
                        raise

            traced(scenario, tracer)
            assert bounded(lambda: batch.complete(7), seconds=PATIENCE_S) is None
            assert other.result(PATIENCE_S).done == set(others)
        ask_to_be_told(futures, told)
        assert told == futures
        assert all(future.done() for future in standard(futures))

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
        lambda futures: len(wait(standard(futures), PATIENCE_S).done),
        lambda futures: len(list(as_completed(standard(futures), PATIENCE_S))),
        lambda futures: bool(wait(standard(futures), PATIENCE_S, FIRST_COMPLETED).done) * len(futures),
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
            assert found[:3] == [len(futures)] * 3
            assert sorted(map(id, told)) == sorted(map(id, futures))


def test_interrupted_wait_that_keeps_a_standard_future_locked_delays_no_other_and_not_the_end() -> None:
    batch, futures = records()
    locked, *others = standard(futures)
    # As an interrupt at the wrong instruction of concurrent.futures.wait() does.
    locked._condition.acquire()
    assert bounded(lambda: batch.complete(7), seconds=PATIENCE_S) is None
    assert [future.result(PATIENCE_S).offset for future in others] == [8, 9]
    batch, futures = records()
    more = standard(futures)
    assert bounded(lambda: batch.complete(7), seconds=PATIENCE_S) is None
    assert [future.result(PATIENCE_S).offset for future in more] == [7, 8, 9]
    locked._condition.release()
    assert locked.result(PATIENCE_S).offset == 7


def test_standard_futures_are_completed_in_a_child_process_whose_parent_was_completing_some() -> None:
    copies = waiting._CopyThreads()
    copies._supervisor = threading.Thread()  # as fork() leaves it: not alive
    made: Future[int] = Future()
    copies.add(lambda: made.set_result(1))
    assert made.result(PATIENCE_S) == 1


def test_future_says_in_words_what_it_is() -> None:
    batch, (future,) = columns()
    assert repr(future) == "ColumnsFuture(1 batches, pending)"
    batch.complete(1)
    assert repr(future) == "ColumnsFuture(1 batches, done)"
