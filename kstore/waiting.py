"""How a thread waits for others so that an interrupt (Ctrl-C) leaves nothing locked: Latch, Call, Workers.

The methods of threading.Event, Condition, Semaphore and concurrent.futures are Python code that takes a lock: an
exception from a signal handler can arrive after the lock is taken and before it would be released, and every other
thread then waits for ever. A plain threading.Lock or RLock in a `with` statement has no such place.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from queue import SimpleQueue
from sys import is_finalizing
from typing import Any, Generic, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
CALLS_AHEAD = 64
# How many calls are remembered before those that have ended are forgotten.
_FIRST_SUBMITTED = 64
# What a lock can wait.
_MOST_SECONDS = 4_000_000


def checked_timeout(timeout: float | None) -> float | None:
    """Return a timeout in seconds, None for none.  Raises: ValueError, TypeError."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"timeout must be a number of seconds or None, got {timeout!r}")
    if not 0 <= timeout < _MOST_SECONDS:
        raise ValueError(f"timeout must be from 0 to {_MOST_SECONDS} seconds, or None, got {timeout}")
    return float(timeout)


class Latch:
    """A one-shot event: closed until open() is called.

    Every waiting thread has its own lock, so an interrupted one leaves nothing locked.
    Attributes: is_open.  Threads: safe.
    """

    __slots__ = ("_waiters", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        self._waiters: dict[threading.Lock, None] = {}

    def open(self) -> None:
        """Release all threads that wait now or will wait later."""
        self.is_open = True
        while self._waiters:
            try:
                lock, _ = self._waiters.popitem()
            except KeyError:
                return
            lock.release()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait at most `timeout_s` seconds, not at all if negative, None for no limit; return whether it is open."""
        lock = threading.Lock()
        lock.acquire()
        self._waiters[lock] = None
        try:
            if not self.is_open:
                lock.acquire(timeout=-1 if timeout_s is None else min(max(timeout_s, 0), threading.TIMEOUT_MAX))
        finally:
            self._waiters.pop(lock, None)
        return self.is_open


class Call(Generic[_Result]):
    """A function call that one thread makes and others wait for (as concurrent.futures.Future).

    Args: done: a queue that gets this object when the call has ended.
    Threads: safe.
    """

    def __init__(self, function: Callable[[], _Result], done: SimpleQueue[Any] | None = None) -> None:
        self._function = function
        self._done = done
        self._ended = Latch()
        self._has_begun = False
        self._is_cancelled = False
        self._result: Any = None
        self._error: BaseException | None = None
        self._listeners: list[Callable[[], object]] = []

    @property
    def has_ended(self) -> bool:
        return self._ended.is_open

    def run(self) -> None:
        """Make the call, unless it was cancelled; its error is kept for result()."""
        # Set before _is_cancelled is read, and read by wait_if_begun() after cancel(): no call runs unawaited.
        self._has_begun = True
        try:
            if not self._is_cancelled:
                self._result = self._function()
        except BaseException as error:  # noqa: BLE001 - raised in the thread that asks for the result
            self._error = error
        finally:
            self._ended.open()
            if self._done is not None:
                self._done.put(self)
            self._call_listeners()

    def cancel(self) -> None:
        """Do not make the call, if it has not begun."""
        self._is_cancelled = True

    def wait_if_begun(self) -> None:
        """Wait for the end of a cancelled call that had begun before."""
        if self._has_begun:
            self._ended.wait()

    def result(self) -> _Result:
        """Wait for the end of the call, and return its result or raise its error."""
        self._ended.wait()
        if self._error is not None:
            raise self._error
        result: _Result = self._result
        return result

    def when_ended(self, listener: Callable[[], object]) -> None:
        """Call `listener` when the call has ended, from the thread that made it; at once if it has."""
        self._listeners.append(listener)
        if self.has_ended:
            self._call_listeners()

    def _call_listeners(self) -> None:
        while self._listeners:
            try:
                listener = self._listeners.pop()
            except IndexError:
                return
            listener()


async def ended(call: Call[Any]) -> None:
    """Wait in the running event loop of asyncio until a call has ended that another thread makes.

    The outcome is in the call's result(). If this is cancelled, the call goes on.
    """
    import asyncio

    loop, has_ended = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        # The loop may have ended.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(has_ended.set)

    call.when_ended(wake)
    await has_ended.wait()


class Workers:
    """Daemon threads that make calls in the order in which they were submitted; they are started when needed.

    Threads: one at a time submits; close() may be called by any, also while one submits.
    """

    def __init__(self, count: int, *, name: str) -> None:
        self._count = count
        self._name = name
        self._queue: SimpleQueue[Call[Any] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._submitted: list[Call[Any]] = []
        self._most_submitted = _FIRST_SUBMITTED

    def submit(self, function: Callable[[], _Result], done: SimpleQueue[Any] | None = None) -> Call[_Result]:
        """Have a thread make a call; see Call."""
        call = Call(function, done)
        self._submitted.append(call)
        if len(self._submitted) > self._most_submitted:
            self._submitted = [submitted for submitted in self._submitted if not submitted.has_ended]
            # So that a call costs the same however many wait.
            self._most_submitted = max(_FIRST_SUBMITTED, 2 * len(self._submitted))
        self._queue.put(call)
        if len(self._threads) < self._count:
            name = f"{self._name}_{len(self._threads)}"
            thread = threading.Thread(target=_work, args=(self._queue,), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        return call

    def close(self, *, waits: bool = True) -> None:
        """Cancel the calls that have not begun and end the threads; wait for the calls that run, unless told not to.

        A call from one of the threads, as by the garbage collector, does not wait; nor does one at interpreter exit,
        when the threads no longer run.
        """
        for call in self._submitted:
            call.cancel()
        self._queue.put(None)
        if waits and not is_finalizing() and threading.current_thread() not in self._threads:
            for call in self._submitted:
                call.wait_if_begun()
            for thread in self._threads:
                # Not if an interrupt came before the start.
                if thread.ident is not None:
                    thread.join()


def _work(queue: SimpleQueue[Call[Any] | None]) -> None:
    while (call := queue.get()) is not None:
        call.run()
        del call
    # For the next thread; a call that was submitted during close() may have started one more.
    queue.put(None)


def results_in_threads(
    function: Callable[[_Item], _Result], items: Sequence[_Item], *, threads: int, name: str
) -> Iterator[_Result]:
    """Yield function(item) of each item in order, from at most `threads` threads.

    At most CALLS_AHEAD calls per thread are submitted ahead of the next result, so that few calls are made after an
    error, while a slow call does not stop the others at once.
    With one thread, or one item, the caller's thread makes the calls. When this ends no call is running.
    """
    count = min(threads, len(items))
    if count <= 1:
        yield from map(function, items)
        return
    workers = Workers(count, name=name)
    try:
        todo = iter(items)
        calls = deque(workers.submit(partial(function, item)) for item in islice(todo, CALLS_AHEAD * count))
        while calls:
            yield calls.popleft().result()
            calls.extend(workers.submit(partial(function, item)) for item in islice(todo, 1))
    finally:
        workers.close()


def try_in_threads(
    function: Callable[[_Item], object],
    items: Sequence[_Item],
    *,
    threads: int,
    name: str,
    catching: type[Exception],
) -> None:
    """Call function(item) of each item, from at most `threads` threads.

    Raises: the first error of the kind `catching`, by the order of the items, after all calls; others as they come.
    """

    def tried(item: _Item) -> Exception | None:
        try:
            function(item)
        except catching as error:
            return error
        return None

    errors = list(results_in_threads(tried, items, threads=threads, name=name))
    first = next(filter(None, errors), None)
    if first is not None:
        raise first
