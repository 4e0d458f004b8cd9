"""Outcomes that threads wait for: ProducerFuture, the base class of futures, and TransactionalResult."""

from __future__ import annotations

import copy
import logging
import sys
import threading
from abc import abstractmethod
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeAlias, TypeVar

from kstore.errors import KStoreError, ProducerTimeoutError
from kstore.waiting import Latch

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_Result = TypeVar("_Result")
_Callbacks: TypeAlias = list[Callable[[Any], object]]
LOGGER = logging.getLogger("kstore.producer")
# Seconds after which a call that only sets the outcome of a future counts as hanging.
_PATIENCE_S = 1.0


class ProducerFuture(Generic[_Result]):
    """A future that another object completes; it can't be cancelled, and a waiter can't block its completion.

    An interrupt (Ctrl-C) in a call of concurrent.futures can leave the lock of a future held, and the thread that
    completes that future then waits for ever. So this class has no lock, and is no concurrent.futures.Future;
    as_concurrent() makes one, which a separate thread completes. In any event loop of asyncio it can be awaited, and
    passed to wait(), wait_for(), gather(), shield(), as_completed() and ensure_future(); create_task() takes coroutines
    only.
    Subclasses implement done(), result(), exception() and _listen(), and call run_callbacks() once done() is true.
    Threads: safe; relies on single operations being atomic under the GIL.  Source: java.util.concurrent.Future.
    """

    __slots__ = ()

    @abstractmethod
    def done(self) -> bool:
        """Return whether there is an outcome."""

    @abstractmethod
    def result(self, timeout: float | None = None) -> _Result:
        """Return the result or raise the error; wait at most `timeout` seconds, None for no limit.

        Raises: ProducerTimeoutError if the timeout expires; the future can still complete later.
        """

    @abstractmethod
    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error, None if there is none; wait and raise as result() does for a timeout."""

    @abstractmethod
    def _listen(self) -> _Callbacks:
        """Return the list of callbacks, always the same, after arranging for run_callbacks() to be called."""

    def hurry(self) -> None:
        """Let what completes this future go on without lingering: somebody waits."""

    def running(self) -> bool:
        """Return whether there is no outcome yet."""
        return not self.done()

    def cancel(self) -> bool:
        """Return False: an append can't be undone."""
        return False

    def cancelled(self) -> bool:
        """Return False."""
        return False

    def add_done_callback(self, fn: Callable[[Any], object], *, context: Context | None = None) -> None:
        """Call `fn` with the future when it is done, or at once if it is done already.

        The thread that completes the future calls it. Exceptions from `fn` are logged; KeyboardInterrupt is raised.
        If it was added in an event loop of asyncio, that loop calls it soon, in `context`, as that of its own futures;
        a loop that is closed by then does not, and the completing thread does.
        """
        loop = _running_loop()
        self._call_when_done(fn if loop is None else _LoopCallback(fn, loop, context or copy_context()))

    def remove_done_callback(self, fn: Callable[[Any], object]) -> int:
        """Remove all callbacks that are this function, and return how many; those that were called are not there."""
        callbacks = self._listen()
        own = [callback for callback in list(callbacks) if callback == fn]
        return sum(_remove_item(callbacks, callback) for callback in own)

    @property
    def _condition(self) -> NoReturn:
        # What wait() and as_completed() of concurrent.futures ask for first.
        raise TypeError(
            f"concurrent.futures takes only its own futures: expected future.as_concurrent(), found {self!r}"
        )

    def _call_when_done(self, fn: Callable[[Any], object]) -> None:
        callbacks = self._listen()
        callbacks.append(fn)
        if self.done() and _remove_item(callbacks, fn):
            self._call(fn)

    def run_callbacks(self, callbacks: _Callbacks | None) -> None:
        """Remove the callbacks from their list and call them; called by the thread that completed the future.

        Raises: KeyboardInterrupt from a callback, after all of them were called.
        """
        interrupt = None
        while callbacks and (callback := _first_of(callbacks)) is not None:
            try:
                self._call(callback)
            except KeyboardInterrupt as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def _call(self, callback: Callable[[Any], object]) -> None:
        try:
            callback(self)
        except KeyboardInterrupt:
            raise
        except BaseException:
            LOGGER.exception("a callback of %r failed", self)

    def __await__(self) -> Generator[Any, None, _Result]:
        """Wait in the running event loop of asyncio; a cancelled wait changes nothing here."""
        if not self.done():
            import asyncio

            loop = asyncio.get_running_loop()
            waiter = loop.create_future()

            def wake(_: object) -> None:
                if not (waiter.done() or loop.is_closed()):
                    waiter.set_result(None)

            self.add_done_callback(wake)
            try:
                self.hurry()
                yield from waiter
            finally:
                self.remove_done_callback(wake)
        return self.result(0)

    def as_concurrent(self) -> Future[_Result]:
        """Return a new concurrent.futures.Future with the outcome of this one; it can't be cancelled.

        It is for concurrent.futures.wait() and as_completed(), and for libraries that take only such futures.
        Cost: a thread completes it soon after this future is done, so that an interrupted wait delays only itself.
        """
        made: Future[_Result] = Future()
        made.set_running_or_notify_cancel()
        if self.done():
            self._copy_to(made)
        else:
            self._call_when_done(lambda _: _COPIES.add(partial(self._copy_to, made)))
        return made

    def _copy_to(self, made: Future[_Result]) -> None:
        error = self.exception(0)
        if error is None:
            made.set_result(self.result(0))
        else:
            made.set_exception(error)


class _LoopCallback:
    """A callback that an event loop of asyncio is to call; equal to the function that was added."""

    __slots__ = ("_context", "_fn", "_loop")

    def __init__(self, fn: Callable[[Any], object], loop: AbstractEventLoop, context: Context) -> None:
        self._fn = fn
        self._loop = loop
        self._context = context

    def __call__(self, future: object) -> None:
        try:
            self._loop.call_soon_threadsafe(self._fn, future, context=self._context)
        except RuntimeError:
            if not self._loop.is_closed():
                raise
            self._context.run(self._fn, future)

    def __eq__(self, other: object) -> bool:
        return self is other or self._fn == other


def _running_loop() -> AbstractEventLoop | None:
    """Return the event loop that runs in this thread, None if there is none."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return None
    try:
        loop: AbstractEventLoop = asyncio.get_running_loop()
    except RuntimeError:
        return None
    return loop


class _CopyThreads:
    """Calls that may wait for a lock for ever, made in daemon threads: one thread calls, one replaces it if it hangs.

    Both threads end when no calls are left.  Threads: safe.
    """

    def __init__(self) -> None:
        self._calls: list[Callable[[], object]] = []
        self._done_count = 0
        self._supervisor: threading.Thread | None = None

    def add(self, call: Callable[[], object]) -> None:
        """Make a call soon, after those that were added before; its exceptions are logged.  Does not block."""
        self._calls.append(call)
        supervisor = self._supervisor
        # In a child process made by fork(), the thread of the parent is not alive.
        if supervisor is None or not supervisor.is_alive():
            self._supervisor = supervisor = threading.Thread(target=self._run, name="kstore-futures", daemon=True)
            supervisor.start()

    def _run(self) -> None:
        while self._calls:
            while self._calls:
                caller = threading.Thread(target=self._call_all, name="kstore-futures-caller", daemon=True)
                caller.start()
                while caller.is_alive():
                    done_before = self._done_count
                    caller.join(_PATIENCE_S)
                    if self._done_count == done_before:
                        break
            # Unset first: a call that is added after the check then starts a new thread.
            self._supervisor = None

    def _call_all(self) -> None:
        while (call := _first_of(self._calls)) is not None:
            try:
                call()
            except BaseException:
                LOGGER.exception("a concurrent.futures.Future could not be completed")
            self._done_count += 1


_COPIES = _CopyThreads()


def _first_of(items: list[Any]) -> Any | None:
    """Remove and return the first item, or return None if there is none."""
    try:
        return items.pop(0)
    except IndexError:
        return None


def _remove_item(items: list[Any], item: object) -> bool:
    """Remove one item; return whether it was there."""
    try:
        items.remove(item)
    except ValueError:
        return False
    return True


class TransactionalResult:
    """The outcome of one transactional operation (Kafka: TransactionalRequestResult).

    Attributes: operation (its name), is_acked (whether a caller has waited for the outcome and got it), last_failure
    (the error of the last attempt, while the operation is being retried).
    Threads: safe.
    """

    def __init__(self, operation: str) -> None:
        self.operation = operation
        self.is_acked = False
        self.last_failure: KStoreError | None = None
        self._latch = Latch()
        self._error: KStoreError | None = None

    @property
    def is_completed(self) -> bool:
        """Whether the outcome is known."""
        return self._latch.is_open

    @property
    def error(self) -> KStoreError | None:
        """The error of a failed operation; None if it succeeded or is not completed."""
        return self._error

    def complete(self, error: KStoreError | None = None) -> None:
        """Set the outcome, an error or success, and release the waiters; only the first call counts."""
        if not self._latch.is_open:
            self._error = error
            self._latch.open()

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait for the outcome, at most `timeout_s` seconds; None waits without limit.

        Raises: the operation's error; ProducerTimeoutError if the timeout expires. The operation then continues, and
            the same call made again waits for it.
        """
        if not self._latch.wait(timeout_s):
            why = "" if self.last_failure is None else f": {self.last_failure}"
            message = f"{self.operation} took longer than {timeout_s} s{why}"
            raise ProducerTimeoutError(message) from self.last_failure
        self.is_acked = True
        if self._error is not None:
            error = copy.copy(self._error)
            raise error from self._error
