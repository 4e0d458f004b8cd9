"""Goal: parts that several threads decode come in order, bounded in bytes, with errors in their place.
Method: generators of numbers that note what was decoded and closed; threads wait for events, never for time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable
from itertools import repeat
from typing import Any

import pytest

from kstore.errors import CorruptRecordError
from kstore.log.read_ahead import _ReadAhead, read_ahead
from tests.fakes.waiting import wait_until

WAIT_SECONDS = 30
Decode = Callable[[str], Generator[int, None, None]]


def start(parts: Iterable[str], decode: Decode, *, threads: int = 2, most_bytes_ahead: int = 1000) -> Any:
    """Each item has the size of its own number."""
    return read_ahead(parts, decode, threads=threads, size_of=int, most_bytes_ahead=most_bytes_ahead)


@pytest.mark.parametrize("threads", [2, 3, 5])
@pytest.mark.parametrize("most_bytes_ahead", [0, 1, 7, 10**9])
@pytest.mark.parametrize("counts", [[], [0], [100], [0, 0, 3, 0], [1] * 50, [50, 1, 0, 50]], ids=str)
def test_the_items_of_all_parts_come_in_order(threads: int, most_bytes_ahead: int, counts: list[int]) -> None:
    def decode(part: str) -> Generator[int, None, None]:
        number = int(part)
        yield from (1000 * number + at for at in range(counts[number]))

    parts = [str(number) for number in range(len(counts))]
    found = list(start(parts, decode, threads=threads, most_bytes_ahead=most_bytes_ahead))
    assert found == [1000 * number + at for number, count in enumerate(counts) for at in range(count)]


def test_a_part_is_decoded_while_the_one_before_it_is_read() -> None:
    second_is_done = threading.Event()

    def decode(part: str) -> Generator[int, None, None]:
        yield from range(8)
        if part == "second":
            second_is_done.set()

    items = start(["first", "second"], decode)
    assert next(items) == 0
    assert second_is_done.wait(timeout=WAIT_SECONDS)
    assert list(items) == [*range(1, 8), *range(8)]


def test_open_parts_are_decoded_while_the_next_one_is_looked_for() -> None:
    second_is_begun = threading.Event()

    def parts() -> Generator[str, None, None]:
        yield from ("first", "second")
        assert second_is_begun.wait(timeout=WAIT_SECONDS)
        yield "third"

    def decode(part: str) -> Generator[int, None, None]:
        if part == "second":
            second_is_begun.set()
        yield 1

    assert list(start(parts(), decode)) == [1, 1, 1]


def test_the_next_part_is_looked_for_while_the_first_one_is_decoded() -> None:
    first_is_begun, second_is_looked_for = threading.Event(), threading.Event()

    def parts() -> Generator[str, None, None]:
        yield "first"
        second_is_looked_for.set()
        assert first_is_begun.wait(timeout=WAIT_SECONDS)
        yield "second"

    def decode(part: str) -> Generator[int, None, None]:
        if part == "first":
            first_is_begun.set()
            assert second_is_looked_for.wait(timeout=WAIT_SECONDS)
        yield 1

    assert list(start(parts(), decode)) == [1, 1]


def test_the_next_part_is_looked_for_before_the_last_one_that_waits_is_decoded() -> None:
    third_is_looked_for, second_is_decoded = threading.Event(), threading.Event()

    def parts() -> Generator[str, None, None]:
        yield from ("first", "second")
        third_is_looked_for.set()
        yield "third"

    def decode(part: str) -> Generator[int, None, None]:
        if part == "first":
            assert second_is_decoded.wait(timeout=WAIT_SECONDS)
        elif part == "second":
            assert third_is_looked_for.wait(timeout=WAIT_SECONDS)
        yield 1
        if part == "second":
            second_is_decoded.set()

    assert list(start(parts(), decode)) == [1, 1, 1]


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_go_on_while_parts_that_are_decoded_wait_for_the_reader(threads: int) -> None:
    """Up to twice as many parts as there are threads wait so, whether they have items or not."""
    most = 2 * threads + 1
    looked_for: list[int] = []
    last_is_looked_for = threading.Event()

    def parts() -> Generator[str, None, None]:
        for number in range(50):
            looked_for.append(number)
            if len(looked_for) == most:
                last_is_looked_for.set()
            yield str(number)

    def decode(part: str) -> Generator[int, None, None]:
        yield from range(3 if part == "0" else int(part) % 2)

    ahead = _ReadAhead(parts(), decode, threads=threads, size_of=int, most_bytes_ahead=1000)
    items = ahead.items()
    assert next(items) == 0
    assert last_is_looked_for.wait(timeout=WAIT_SECONDS)
    wait_until(lambda: ahead._idle_helpers == threads - 1)
    assert looked_for == [*range(most)]
    assert list(items) == [1, 2] + [0] * 25
    ahead.close()


@pytest.mark.parametrize("threads", [2, 4])
def test_parts_are_looked_for_by_one_thread_at_a_time(threads: int) -> None:
    looking: list[int] = []

    def parts() -> Generator[str, None, None]:
        for number in range(200):
            looking.append(number)
            sum(range(20_000))
            assert looking == [number]
            looking.clear()
            yield str(number)

    def decode(part: str) -> Generator[int, None, None]:
        yield int(part)

    assert list(start(parts(), decode, threads=threads)) == list(range(200))


def test_the_readers_thread_decodes_what_no_other_has_begun() -> None:
    threads: dict[str, threading.Thread] = {}
    second_is_begun, first_is_done = threading.Event(), threading.Event()

    def decode(part: str) -> Generator[int, None, None]:
        threads[part] = threading.current_thread()
        if part == "second":
            second_is_begun.set()
            first_is_done.wait(timeout=WAIT_SECONDS)
        yield 1

    items = start(["first", "second", "third"], decode)
    assert next(items) == 1
    assert second_is_begun.wait(timeout=WAIT_SECONDS)
    first_is_done.set()
    assert list(items) == [1, 1]
    assert threads["second"] is not threading.main_thread()
    assert len(set(threads.values())) <= 2


def test_a_reader_whose_next_item_is_being_decoded_helps_with_another_part() -> None:
    third_is_decoded = threading.Event()

    def decode(part: str) -> Generator[int, None, None]:
        if part == "second":
            assert third_is_decoded.wait(timeout=WAIT_SECONDS)
        yield 1
        if part == "third":
            third_is_decoded.set()

    assert list(start(["first", "second", "third"], decode)) == [1, 1, 1]


@pytest.mark.parametrize("item_bytes", [1, 100, 1000], ids=lambda size: f"items of {size} bytes")
@pytest.mark.parametrize("threads", [2, 3])
def test_threads_decode_a_bounded_number_of_bytes_ahead_and_close_what_is_unread(threads: int, item_bytes: int) -> None:
    decoded: list[str] = []
    closed: list[str] = []

    def endless(part: str) -> Generator[int, None, None]:
        try:
            while True:
                decoded.append(part)
                yield item_bytes
        finally:
            closed.append(part)

    items = start([str(number) for number in range(10)], endless, threads=threads)
    for _ in range(50):
        next(items)
    items.close()
    assert len(decoded) <= 50 + 1000 // item_bytes + threads
    assert set(closed) == set(decoded)
    assert len(set(decoded)) <= threads + 1
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("kstore-scan")]


@pytest.mark.parametrize("failing", ["0", "1", "2", "5"])
def test_an_error_is_raised_after_the_items_before_it(failing: str) -> None:
    def decode(part: str) -> Generator[int, None, None]:
        yield from range(3)
        if part == failing:
            raise CorruptRecordError("damaged")

    items = start([str(number) for number in range(6)], decode)
    assert [next(items) for _ in range(3 * int(failing) + 3)] == [0, 1, 2] * (int(failing) + 1)
    with pytest.raises(CorruptRecordError, match="damaged"):
        next(items)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("kstore-scan")]


@pytest.mark.parametrize("good_count", [0, 1, 2, 5])
def test_an_error_of_getting_a_part_is_raised_after_the_items_before_it(good_count: int) -> None:
    def parts() -> Generator[str, None, None]:
        yield from ["part"] * good_count
        raise CorruptRecordError("no more parts")

    def decode(_part: str) -> Generator[int, None, None]:
        yield from range(3)

    items = start(parts(), decode)
    assert [next(items) for _ in range(3 * good_count)] == [0, 1, 2] * good_count
    with pytest.raises(CorruptRecordError, match="no more parts"):
        next(items)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("kstore-scan")]


def test_a_reader_who_stops_keeps_no_thread_running() -> None:
    paused = threading.Event()

    def decode(part: str) -> Generator[int, None, None]:
        for _ in range(10):
            yield 200
            if part == "second":
                paused.set()

    items = start(["first", "second"], decode, most_bytes_ahead=400)
    next(items)
    assert paused.wait(timeout=WAIT_SECONDS)
    assert list(items) == [200] * 19


def test_a_helper_without_other_work_decodes_the_part_whose_items_are_being_read() -> None:
    reader_has_an_item = threading.Event()
    threads: list[threading.Thread] = []

    def decode(part: str) -> Generator[int, None, None]:
        if part == "second":
            assert reader_has_an_item.wait(timeout=WAIT_SECONDS)
            yield 100
            return
        for number in range(50):
            threads.append(threading.current_thread())
            yield number

    items = start(["first", "second"], decode, most_bytes_ahead=10_000)
    assert next(items) == 0
    assert threads == [threading.main_thread()]
    reader_has_an_item.set()
    wait_until(lambda: len(threads) == 50)
    assert threading.main_thread() not in threads[1:]
    assert list(items) == [*range(1, 50), 100]


def test_items_that_the_reader_was_given_count_until_it_asks_for_more() -> None:
    ahead = _ReadAhead(["first"], lambda _: iter([100] * 8), threads=2, size_of=int, most_bytes_ahead=1000)
    (work,) = ahead._works
    work.unread.extend((item, 100) for item in range(6))
    work.is_done = True
    ahead._open.append(work)
    ahead._has_more = False
    ahead._bytes_ahead = 600
    items = ahead.items()
    left = []
    for number in range(6):
        assert next(items) == number
        left.append(ahead._bytes_ahead)
    assert left == [600] * 4 + [200] * 2
    assert list(items) == []
    assert ahead._bytes_ahead == 0
    ahead.close()


def test_closing_waits_for_no_lock_that_a_thread_has() -> None:
    """At interpreter exit, and in a finalizer, it may be a thread that does not go on."""

    def decode(_part: str) -> Generator[int, None, None]:
        yield 1

    ahead = _ReadAhead(["first"], decode, threads=2, size_of=int, most_bytes_ahead=1000)
    assert next(ahead.items()) == 1
    with ahead._lock:
        closing = threading.Thread(target=ahead.close, daemon=True)
        closing.start()
        wait_until(lambda: ahead._is_stopped)
    closing.join(timeout=WAIT_SECONDS)
    assert not closing.is_alive()


def test_closing_in_a_helper_leaves_the_part_that_another_helper_decodes() -> None:
    second_is_begun, third_is_begun, third_has_closed, second_may_end = (threading.Event() for _ in range(4))

    def decode(part: str) -> Generator[int, None, None]:
        if part == "first":
            yield from repeat(1)
        elif part == "second":
            second_is_begun.set()
            second_may_end.wait(timeout=WAIT_SECONDS)
            yield 1
        else:
            third_is_begun.set()
            third_may_close.wait(timeout=WAIT_SECONDS)
            items.close()
            third_has_closed.set()
            yield 1

    third_may_close = threading.Event()
    items = start(["first", "second", "third"], decode, threads=3)
    # Each look of the reader may call a helper.
    while not (second_is_begun.is_set() and third_is_begun.is_set()):
        next(items)
    third_may_close.set()
    is_closed = third_has_closed.wait(timeout=WAIT_SECONDS)
    second_may_end.set()
    assert is_closed
