"""Goal: the cache shared by all logs keeps to its limit, makes each value once and drops each once.
Method: values that count; owners and paths in small numbers, threads at a barrier."""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable

import pytest

from kstore.env.cache import SharedCache

WAIT_S = 5


class Ledger:
    """A cache of strings weighed by length, with a count of what was made and dropped."""

    def __init__(self, limit: int) -> None:
        self.made: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.cache: SharedCache[str] = SharedCache(limit=limit, weigh=len, drop=self.drop)

    def drop(self, value: str) -> None:
        self.dropped[value] += 1

    def use(self, value: str, *, owner: object = None) -> None:
        with self.cache.lend(owner, value, self.maker(value)) as found:
            assert found == value

    def maker(self, value: str) -> Callable[[], str]:
        def make() -> str:
            self.made[value] += 1
            return value

        return make


def test_value_is_made_once_while_it_is_kept() -> None:
    ledger = Ledger(limit=10)
    for _ in range(3):
        ledger.use("aaa")
    assert ledger.made == {"aaa": 1}
    assert not ledger.dropped


def test_least_recently_used_values_leave_when_the_weight_is_too_much() -> None:
    ledger = Ledger(limit=10)
    for value in ("aaaa", "bbbb", "aaaa", "cc", "ddd"):
        ledger.use(value)
    assert ledger.dropped == {"bbbb": 1}
    ledger.use("aaaa")
    assert ledger.made["aaaa"] == 1


def test_value_heavier_than_the_limit_is_given_but_not_kept() -> None:
    ledger = Ledger(limit=3)
    ledger.use("aaaa")
    ledger.use("aaaa")
    assert ledger.made == ledger.dropped == {"aaaa": 2}


@pytest.mark.parametrize("by_path", [True, False], ids=["of its path", "of its owner"])
def test_value_that_was_being_made_during_a_release_is_made_anew(by_path: bool) -> None:
    """Else a reader slower than a truncation would keep the old file for all who come later."""
    ledger = Ledger(limit=10)
    contents = iter(["old", "new"])

    def make() -> str:
        content = next(contents)
        if content == "old":
            if by_path:
                ledger.cache.release_one(1, "path")
            else:
                ledger.cache.release(1)
        return content

    for _ in range(2):
        with ledger.cache.lend(1, "path", make) as found:
            assert found == "new"
    assert ledger.dropped == {"old": 1}


def test_release_drops_the_values_of_one_owner_only() -> None:
    ledger = Ledger(limit=10)
    ledger.use("a", owner=1)
    ledger.use("b", owner=2)
    ledger.cache.release(1)
    assert ledger.dropped == {"a": 1}
    ledger.use("b", owner=2)
    assert ledger.made["b"] == 1


@pytest.mark.parametrize("by_path", [False, True], ids=["owner", "path"])
def test_value_in_use_is_dropped_once_its_user_gave_it_back(by_path: bool) -> None:
    ledger, owner = Ledger(limit=10), object()
    with ledger.cache.lend(owner, "aaa", ledger.maker("aaa")):
        if by_path:
            ledger.cache.release_one(owner, "aaa")
        else:
            ledger.cache.release(owner)
        assert not ledger.dropped
    assert ledger.dropped == {"aaa": 1}


def test_failed_make_leaves_nothing_behind() -> None:
    ledger = Ledger(limit=10)

    def fail() -> str:
        raise OSError("no")

    with pytest.raises(OSError, match="no"), ledger.cache.lend(None, "a", fail):
        pass
    ledger.use("a")
    assert ledger.made == {"a": 1}


def test_each_value_made_by_racing_threads_is_dropped_once() -> None:
    ledger = Ledger(limit=4)
    barrier = threading.Barrier(4)

    def work(number: int) -> None:
        barrier.wait()
        for turn in range(200):
            ledger.use("abcdefgh"[(turn * 3 + number) % 8])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ledger.cache.release(None)
    assert ledger.made == ledger.dropped


def test_owner_released_by_a_finalizer_is_released_at_once() -> None:
    ledger = Ledger(limit=10)
    ledger.use("aa", owner=1)
    ledger.use("bb", owner=2)
    ledger.cache.release_soon(1)
    assert ledger.dropped == {"aa": 1}


def test_finalizer_that_runs_inside_a_call_of_the_cache_does_not_wait_for_it() -> None:
    ledger = Ledger(limit=10)
    ledger.use("aa", owner=1)
    finalizer = threading.Thread(target=ledger.cache.release_soon, args=(1,), daemon=True)
    with ledger.cache._lock:
        finalizer.start()
        finalizer.join(WAIT_S)
        assert not finalizer.is_alive()
    assert not ledger.dropped
    ledger.use("bb", owner=2)
    assert ledger.dropped == {"aa": 1}
    assert ledger.made == {"aa": 1, "bb": 1}


def test_loan_given_back_by_a_finalizer_inside_a_call_of_the_cache_is_given_back_with_the_next_value() -> None:
    ledger = Ledger(limit=10)
    loan = ledger.cache.lend(1, "aa", lambda: "aa")
    ledger.cache.release(1)
    finalizer = threading.Thread(target=loan.give_back_soon, daemon=True)
    with ledger.cache._lock:
        finalizer.start()
        finalizer.join(WAIT_S)
        assert not finalizer.is_alive()
    assert not ledger.dropped
    ledger.use("bb", owner=2)
    assert ledger.dropped == {"aa": 1}


@pytest.mark.parametrize("way", ["release", "release_one", "drop_idle", "evicted"])
def test_owner_of_values_that_have_left_is_not_kept(way: str) -> None:
    class Owner:
        pass

    ledger, owner = Ledger(limit=10), Owner()
    for value in ("aa", "bb"):
        ledger.use(value, owner=owner)
    if way == "release":
        ledger.cache.release(owner)
    elif way == "release_one":
        for value in ("aa", "bb"):
            ledger.cache.release_one(owner, value)
    elif way == "drop_idle":
        ledger.cache.drop_idle()
    else:
        ledger.use("cccccccccc")
    assert ledger.dropped == {"aa": 1, "bb": 1}
    kept = weakref.ref(owner)
    del owner
    assert kept() is None


def test_release_drops_each_value_of_an_owner_and_none_of_another() -> None:
    ledger = Ledger(limit=100)
    for value in ("aa", "bb", "cc"):
        ledger.use(value, owner="mine")
    ledger.use("dd", owner="theirs")
    ledger.cache.release_one("mine", "bb")
    ledger.use("bb", owner="mine")
    ledger.cache.release("mine")
    assert ledger.dropped == {"aa": 1, "bb": 2, "cc": 1}
    ledger.cache.release("theirs")
    assert ledger.dropped["dd"] == 1
