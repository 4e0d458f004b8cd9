"""Waiting without locks that an interrupted thread could leave held: Latch, SafeFuture, TransactionalResult.

SafeFuture is a concurrent.futures.Future; TransactionalResult is the outcome of one transactional call.
"""

from __future__ import annotations

import copy
import logging
import threading
from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any, TypeVar

from kstore.errors import KStoreError, ProducerTimeoutError


class Latch:
    """A one-shot event: closed until open() is called.

    Every waiting thread has its own lock, so an interrupted one leaves nothing locked; threading.Event and Condition
    can.
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
        """Wait at most `timeout_s` seconds, None for no limit; return whether the latch is open."""
        lock = threading.Lock()
        lock.acquire()
        self._waiters[lock] = None
        try:
            if not self.is_open:
                lock.acquire(timeout=-1 if timeout_s is None else min(timeout_s, threading.TIMEOUT_MAX))
        finally:
            self._waiters.pop(lock, None)
        return self.is_open


_Result = TypeVar("_Result")
LOGGER = logging.getLogger("kstore.producer")
_PENDING, _FINISHED = "PENDING", "FINISHED"
# Seconds a lock that protects a few instructions may be held before its thread counts as interrupted.
_PATIENCE_S = 1.0


class SafeFuture(Future[_Result]):
    """A future completed by another object; it can't be cancelled, and a waiter can't block its completion.

    concurrent.futures.wait() and as_completed() hold the lock of each future while they read its state and register; an
    interrupt there would leave the lock held and block the completing thread for ever. Here "holding" is no lock: the
    holding thread keeps seeing the state it saw when it began. Each waiter is notified once: by tell(), or by itself if
    it registered too late for tell(). A waiter's event and lock are replaced by ones that an interrupt can't leave
    locked. State for waiters and callbacks is allocated on first use. Subclasses implement done(), result() and
    exception(), and call tell() after done() has become true.
    Threads: safe; relies on single operations being atomic under the GIL.
    """

    def __init__(self) -> None:
        """Skip Future.__init__: its state is created on first use."""

    def __getattr__(self, name: str) -> Any:
        if name == "_state":
            is_done = self._made().seen.get(threading.get_ident())
            return _FINISHED if (self.done() if is_done is None else is_done) else _PENDING
        if name in ("_condition", "_waiters"):
            return (_Holding if name == "_condition" else _Waiters)(self, self._made())
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'done' if self.done() else 'pending'}>"

    def _made(self) -> _Made:
        made: _Made | None = vars(self).get("_kept")
        if made is None:
            # First: if an interrupt came between these calls in the other order, waiters would never be notified.
            self._ask_to_be_told()
            made = vars(self).setdefault("_kept", _Made())
        return made

    def _ask_to_be_told(self) -> None:
        """Arrange for tell() to be called on completion, if nothing else does. May be called more than once."""

    @abstractmethod
    def done(self) -> bool:
        """Return whether there is an outcome."""

    def tell(self) -> None:
        """Notify the waiters and run the callbacks; called by the thread that completed the future.

        Raises: KeyboardInterrupt from a callback, after everyone has been notified.
        """
        made: _Made | None = vars(self).get("_kept")
        if made is None:
            return
        while (waiter := _first_of(made.waiters)) is not None:
            _tell(waiter, self)
        interrupt = None
        while (callback := _first_of(made.callbacks)) is not None:
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

    def add_done_callback(self, fn: Callable[[Future[_Result]], object]) -> None:
        """Call `fn` with the future when it is done, or at once if it is done already.

        Exceptions from `fn` are logged; KeyboardInterrupt is raised.
        """
        callbacks = self._made().callbacks
        callbacks.append(fn)
        if self.done() and _take_out(callbacks, fn):
            self._call(fn)

    def running(self) -> bool:
        return not self.done()

    def cancel(self) -> bool:
        """Return False: an append can't be undone."""
        return False

    def cancelled(self) -> bool:
        """Return False."""
        return False

    def set_result(self, result: _Result) -> None:
        """Raise InvalidStateError: only the batch completes the future."""
        raise InvalidStateError(f"{self} is completed by its batch, not by {result!r}")

    def set_exception(self, exception: BaseException | None) -> None:
        """Raise InvalidStateError: only the batch completes the future."""
        raise InvalidStateError(f"{self} is completed by its batch, not by {exception!r}")

    def set_running_or_notify_cancel(self) -> bool:
        """Raise InvalidStateError: only the batch completes the future."""
        raise InvalidStateError(f"{self} is completed by its batch")


class _Made:
    """A future's state for waiters and callbacks; `seen`: for each thread that holds it, whether it was done."""

    __slots__ = ("callbacks", "seen", "waiters")

    def __init__(self) -> None:
        self.callbacks: list[Callable[[Any], object]] = []
        self.waiters: list[Any] = []
        self.seen: dict[int, bool] = {}


class _Holding:
    """Replaces a future's condition: a thread that holds it sees an unchanging state."""

    __slots__ = ("_future", "_made")

    def __init__(self, future: SafeFuture[Any], made: _Made) -> None:
        self._future = future
        self._made = made

    def acquire(self) -> bool:
        self._made.seen[threading.get_ident()] = self._future.done()
        return True

    def release(self) -> None:
        self._made.seen.pop(threading.get_ident(), None)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class _Waiters:
    """Replaces a future's list of waiters."""

    __slots__ = ("_future", "_made")

    def __init__(self, future: SafeFuture[Any], made: _Made) -> None:
        self._future = future
        self._made = made

    def append(self, waiter: Any) -> None:
        """Register a waiter, to be notified unless its thread already sees the future as done."""
        future, waiters = self._future, self._made.waiters
        _make_safe(waiter)
        if self._made.seen.get(threading.get_ident()):
            return
        waiters.append(waiter)
        if future.done() and _take_out(waiters, waiter):
            _tell(waiter, future)

    def remove(self, waiter: Any) -> None:
        """Remove a waiter that was not notified yet."""
        _take_out(self._made.waiters, waiter)


class _SafeEvent:
    """A replacement for threading.Event whose wait() leaves nothing locked when it is interrupted."""

    __slots__ = ("_latch",)

    def __init__(self) -> None:
        self._latch = Latch()

    def is_set(self) -> bool:
        return self._latch.is_open

    def set(self) -> None:
        self._latch.open()

    def clear(self) -> None:
        self._latch = Latch()

    def wait(self, timeout: float | None = None) -> bool:
        return self._latch.wait(None if timeout is None else max(timeout, 0.0))


class _PatientLock:
    """A lock that is ignored once it was held for far longer than the few instructions it protects take."""

    __slots__ = ("_is_abandoned", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_abandoned = False

    def __enter__(self) -> None:
        if not self._is_abandoned and not self._lock.acquire(timeout=_PATIENCE_S):
            self._is_abandoned = True

    def __exit__(self, *_: object) -> None:
        if not self._is_abandoned:
            self._lock.release()


def _make_safe(waiter: Any) -> None:
    """Replace the event and lock of a concurrent.futures waiter by interrupt-safe ones, before it is notified."""
    if not isinstance(waiter.event, _SafeEvent):
        if hasattr(waiter, "lock"):
            waiter.lock = _PatientLock()
        waiter.event = _SafeEvent()


def _tell(waiter: Any, future: SafeFuture[Any]) -> None:
    if future.exception(0) is None:
        waiter.add_result(future)
    else:
        waiter.add_exception(future)


def _first_of(ones: list[Any]) -> Any | None:
    """Remove and return the first item, or return None if there is none."""
    try:
        return ones.pop(0)
    except IndexError:
        return None


def _take_out(ones: list[Any], one: object) -> bool:
    """Remove one item; return whether it was there."""
    try:
        ones.remove(one)
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
