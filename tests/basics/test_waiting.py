"""Goal: waits of kstore end as soon as they may, lose no wake-up in any order of two threads, and leave nothing locked
after an interrupt. Method: each order is forced at each line (`each_window`); signals at each place (`Tracer`)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

import pytest

from kstore.env import Listeners, LiveArrivals
from kstore.waiting import CALLS_AHEAD, Call, Latch, Workers, results_in_threads
from tests.fakes.interrupts import Tracer, bounded, first_visits, traced
from tests.fakes.windows import each_window

PATIENCE_S = 20.0
Calls = tuple[Callable[[], object], Callable[[], object]]


@pytest.mark.traces
@pytest.mark.parametrize("first", ["nothing", "the same", "another"])
def test_report_at_any_line_of_a_follower_s_wait_is_returned_by_it_or_by_the_next_one(first: str) -> None:
    found: list[frozenset[str]] = []
    made: list[LiveArrivals] = []

    def make() -> Calls:
        arrivals = LiveArrivals()
        made.append(arrivals)
        arrivals.report({"the same": "a", "another": "b"}.get(first, "b"))
        return lambda: found.append(arrivals.wait(PATIENCE_S, idle_s=0)), lambda: arrivals.report("a")

    for _ in each_window((LiveArrivals.wait, LiveArrivals.take), make):
        arrivals, taken = made[-1], found[-1]
        # The bell is what ends the next wait: without it, "a" would lie there unseen.
        assert "a" in taken or arrivals._bell.is_rung
        if "a" not in taken:
            assert "a" in arrivals.wait(0, idle_s=0)


@pytest.mark.traces
def test_report_reaches_a_follower_that_waits_at_any_line_of_the_report() -> None:
    found: list[frozenset[str]] = []
    made: list[LiveArrivals] = []

    def make() -> Calls:
        arrivals = LiveArrivals()
        made.append(arrivals)
        return lambda: arrivals.report("a"), lambda: found.append(arrivals.wait(0, idle_s=0))

    for _ in each_window((LiveArrivals.report, LiveArrivals.wake), make):
        assert "a" in found[-1] or made[-1]._bell.is_rung
        assert "a" in found[-1] or "a" in made[-1].wait(0, idle_s=0)


def test_follower_that_is_added_again_is_told_once():
    listeners, arrivals, told = Listeners(), LiveArrivals(), []
    arrivals.call_on_news(lambda: told.append("news"))
    for _ in range(3):
        listeners.add(arrivals)
    listeners.report("a")
    assert told == ["news"]


@pytest.mark.traces
def test_follower_that_is_added_at_any_line_of_a_report_hears_the_next_one() -> None:
    kept: list[LiveArrivals] = []
    made: list[Listeners] = []

    def make() -> Calls:
        listeners, arrivals = Listeners(), LiveArrivals()
        kept.append(arrivals)
        made.append(listeners)
        listeners.add(LiveArrivals())
        return lambda: listeners.report("a"), lambda: listeners.add(arrivals)

    for _ in each_window((Listeners.report,), make, is_excluded=lambda: made[-1]._lock.locked()):
        made[-1].report("b")
        assert "b" in kept[-1].take()


@pytest.mark.traces
def test_interrupt_anywhere_in_a_follower_s_wait_blocks_no_writer_and_loses_no_report() -> None:
    def run(target: object = None) -> tuple[Tracer, LiveArrivals, list[frozenset[str]]]:
        arrivals, found = LiveArrivals(), []
        arrivals.report("a")
        tracer = Tracer(target)  # type: ignore[arg-type]
        traced(lambda: (arrivals.wait(0.001, idle_s=0), found.append(arrivals.wait(0.001, idle_s=0))), tracer)
        return tracer, arrivals, found

    for place in first_visits(run()[0]):
        _, arrivals, _ = run(place)
        assert bounded(lambda arrivals=arrivals: arrivals.report("b")) is None, place  # type: ignore[misc]
        assert "b" in arrivals.wait(PATIENCE_S, idle_s=0), place


@pytest.mark.traces
def test_call_that_is_cancelled_at_any_line_is_made_and_waited_for_or_not_made() -> None:
    for _ in each_window((Call.run,), _cancelled_call):
        pass


def _cancelled_call() -> Calls:
    made: list[str] = []
    call = Call(lambda: made.append("made"))

    def run() -> None:
        call.run()
        assert call.has_ended
        call.wait_if_begun()

    return run, call.cancel


def test_results_come_in_order_from_several_threads_and_the_first_error_ends_them() -> None:
    assert list(results_in_threads(lambda number: number * 2, range(300), threads=4, name="kstore-test")) == [
        number * 2 for number in range(300)
    ]
    begun: list[int] = []

    def fail_at_3(number: int) -> int:
        begun.append(number)
        if number == 3:
            raise ValueError(number)
        return number

    with pytest.raises(ValueError, match="3"):
        list(results_in_threads(fail_at_3, range(1000), threads=2, name="kstore-test"))
    # The calls ahead of the first, and one more for each result before the error.
    assert 3 < len(begun) <= 2 * CALLS_AHEAD + 3
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("kstore-test")]


def test_workers_that_are_closed_make_no_call_that_has_not_begun() -> None:
    go, begun, made = Latch(), Latch(), []

    def first() -> None:
        begun.open()
        go.wait(PATIENCE_S)
        made.append(1)

    workers, done = Workers(1, name="kstore-test"), SimpleQueue()
    calls = [workers.submit(first, done), workers.submit(lambda: made.append(2), done)]
    begun.wait(PATIENCE_S)
    workers.close(waits=False)
    assert made == []
    go.open()
    workers.close()
    assert (made, done.get(timeout=PATIENCE_S)) == ([1], calls[0])


def test_listener_is_called_once_before_and_after_the_end_of_a_call() -> None:
    heard: list[str] = []
    call = Call(lambda: None)
    call.when_ended(lambda: heard.append("before"))
    call.run()
    call.when_ended(lambda: heard.append("after"))
    assert heard == ["before", "after"]


def test_a_thread_that_is_started_after_the_others_were_told_to_end_ends_too() -> None:
    """As if another thread submitted while this one closed them."""
    workers = Workers(3, name="kstore-test-late")
    workers.submit(int)
    workers.close()
    workers.submit(int)
    workers.submit(int)
    late = workers._threads[1:]
    assert len(late) == 2
    for thread in late:
        thread.join(timeout=PATIENCE_S)
        assert not thread.is_alive()
