"""SharedCache: values shared by all open logs of a process, within one limit."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

from kstore._core import TriedLock

T = TypeVar("T")


class Loan(Generic[T]):
    """A cached value; users: how many callers are using it.

    Each of them gives it back once. A context manager, which yields the value, does so at its end.
    """

    __slots__ = ("_cache", "is_released", "users", "value", "weight")

    def __init__(self, cache: SharedCache[T], value: T, weight: int) -> None:
        self._cache = cache
        self.value = value
        self.weight = weight
        self.users = 0
        self.is_released = False

    def __enter__(self) -> T:
        return self.value

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._cache.take_back(self)

    def give_back(self) -> None:
        self._cache.take_back(self)

    def give_back_soon(self) -> None:
        """Give the value back as SharedCache.release_soon does; for finalizers."""
        self._cache.take_back_soon(self)


class SharedCache(Generic[T]):
    """Values by owner and path; when their total weight exceeds the limit, the least recently used idle ones are
    dropped.

    Args: limit: in the unit of weigh; weigh: returns the weight of a value; drop: called once with each value that is
        removed.
    Threads: thread-safe. A value that is in use is never dropped.
    Cost: what an owner's release takes grows with its own values, not with those of others.
    """

    def __init__(self, *, limit: int, weigh: Callable[[T], int], drop: Callable[[T], None]) -> None:
        self._limit = limit
        self._weigh = weigh
        self._drop = drop
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[object, str], Loan[T]] = OrderedDict()
        # An interrupt may leave a path here that has no entry, never an entry that has no path here.
        self._paths: dict[object, set[str]] = {}
        self._weight = 0
        self._releases = 0
        self._released_soon: deque[object] = deque()
        self._returned_soon: deque[Loan[T]] = deque()

    def lend(self, owner: object, path: str, make: Callable[[], T]) -> Loan[T]:
        """Return the owner's value for `path`, made if it is not cached, for use until it is given back."""
        key = owner, path
        while True:
            with self._lock:
                loan = self._entries.get(key)
                if loan is not None:
                    self._entries.move_to_end(key)
                    loan.users += 1
                    return loan
                releases = self._releases
            loan = self._added(key, make(), releases=releases)
            if loan is not None:
                return loan

    def take_back(self, loan: Loan[T]) -> None:
        """Count a user of a loan less."""
        with self._lock:
            loan.users -= 1
            leaving = self._left_by(loan) if loan.is_released or self._weight > self._limit else ()
        for entry in leaving:
            self._drop(entry.value)

    def _left_by(self, loan: Loan[T]) -> list[Loan[T]]:
        """Return the values to drop after a user of a loan is gone.  Requires: the lock."""
        leaving = self._evicted()
        if loan.is_released and loan.users == 0:
            leaving.append(loan)
        return leaving

    def take_back_soon(self, loan: Loan[T]) -> None:
        """Do what take_back does, as release_soon; for finalizers."""
        self._returned_soon.append(loan)
        self._release_waiting()

    def release(self, owner: object) -> None:
        """Drop all values of an owner; those in use are dropped when they are given back."""
        with self._lock:
            leaving = self._released(owner)
        for entry in leaving:
            self._drop(entry.value)

    def release_soon(self, owner: object) -> None:
        """Release an owner now, or, while a thread is in this cache, with the next value that is added.

        For finalizers, which may run in the thread that has the lock.
        """
        self._released_soon.append(owner)
        self._release_waiting()

    def _release_waiting(self) -> None:
        while self._released_soon or self._returned_soon:
            with TriedLock(self._lock) as is_free:
                if not is_free:
                    return
                leaving: list[Loan[T]] = []
                if self._returned_soon:
                    loan = self._returned_soon.popleft()
                    loan.users -= 1
                    leaving += self._left_by(loan)
                leaving += self._released(self._released_soon.popleft()) if self._released_soon else []
            for entry in leaving:
                self._drop(entry.value)

    def release_one(self, owner: object, path: str) -> None:
        """Drop one value of an owner, if it is cached, as soon as it is not in use."""
        with self._lock:
            self._releases += 1
            if (owner, path) not in self._entries:
                return
            loan = self._remove((owner, path))
            loan.is_released = True
            is_idle = loan.users == 0
        if is_idle:
            self._drop(loan.value)

    def drop_idle(self) -> bool:
        """Drop every value that is not in use; return whether there was any."""
        with self._lock:
            leaving = [self._remove(key) for key, entry in list(self._entries.items()) if entry.users == 0]
        for entry in leaving:
            self._drop(entry.value)
        return bool(leaving)

    def _added(self, key: tuple[object, str], value: T, *, releases: int) -> Loan[T] | None:
        """Cache a value, or use the one that another thread cached first; None if there was a release since `releases`.

        After a release the value may belong to a file that had the path before.
        """
        entry = Loan(self, value, self._weigh(value))
        with self._lock:
            kept = self._entries.get(key)
            if kept is None and self._releases == releases:
                self._paths.setdefault(key[0], set()).add(key[1])
                kept = self._entries[key] = entry
                self._weight += entry.weight
            if kept is not None:
                kept.users += 1
        if kept is not entry:
            self._drop(value)
        if self._released_soon or self._returned_soon:
            self._release_waiting()
        return kept

    def _released(self, owner: object) -> list[Loan[T]]:
        """Remove the values of an owner; return those that are not in use."""
        self._releases += 1
        idle: list[Loan[T]] = []
        for path in list(self._paths.get(owner, ())):
            if (owner, path) in self._entries:
                entry = self._remove((owner, path))
                entry.is_released = True
                if entry.users == 0:
                    idle.append(entry)
        self._paths.pop(owner, None)
        return idle

    def _evicted(self) -> list[Loan[T]]:
        """Remove idle entries, least recently used first, until the limit is met."""
        surplus = self._weight - self._limit
        leaving: list[tuple[object, str]] = []
        for key, entry in self._entries.items():
            if surplus <= 0:
                break
            if entry.users == 0:
                leaving.append(key)
                surplus -= entry.weight
        return [self._remove(key) for key in leaving]

    def _remove(self, key: tuple[object, str]) -> Loan[T]:
        entry = self._entries.pop(key)
        self._weight -= entry.weight
        owner, path = key
        paths = self._paths.get(owner, set())
        paths.discard(path)
        if not paths:
            self._paths.pop(owner, None)
        return entry
