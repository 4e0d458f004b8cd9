"""SafeFuture: a concurrent.futures.Future without a lock that an interrupted thread could leave locked. Layer 5."""

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
    """Closed until open() is called.

    Each thread that waits has a lock of its own, so that one which is interrupted leaves nothing locked, as
    threading.Event and Condition may.
    Attribute: is_open.  Threads: safe.
    """

    __slots__ = ("_waiters", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        self._waiters: dict[threading.Lock, None] = {}

    def open(self) -> None:
        """Let all go on that wait, and all that come."""
        self.is_open = True
        while self._waiters:
            try:
                lock, _ = self._waiters.popitem()
            except KeyError:
                return
            lock.release()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is open; return whether it is. None waits without end."""
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
# How long a lock that protects a few instructions may be held before its thread counts as interrupted.
_PATIENCE_S = 1.0


class SafeFuture(Future[_Result]):
    """A future that is done when something else is, that can't be cancelled, and that no waiter holds up.

    concurrent.futures.wait() and as_completed() hold the lock of each future while they look at its state and note
    themselves; an interrupt there would leave it held, and who completes the future would wait for ever. Here holding
    is no lock: the thread goes on to see the state that it saw when it began. A waiter is told once, either by tell()
    or, if it noted itself too late for that, by itself. Only its event and its lock are replaced by ones that an
    interrupt can't break.
    What is kept for waiters and callbacks is made when it is first needed.
    Subclasses say done(), result() and exception(), and call tell() behind done().
    Threads: safe, by steps that are whole under the GIL.
    """

    def __init__(self) -> None:
        """Make nothing of what Future.__init__ does."""

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
            # First, since an interrupt behind it may leave nothing that waits to be told.
            self._ask_to_be_told()
            made = vars(self).setdefault("_kept", _Made())
        return made

    def _ask_to_be_told(self) -> None:
        """Have tell() called when it is done, if nobody does so anyway; perhaps more than once."""

    @abstractmethod
    def done(self) -> bool:
        """Say whether there is an outcome."""

    def tell(self) -> None:
        """Tell those who wait, and run the callbacks; for who has completed it.

        Raises: KeyboardInterrupt of a callback, when all are told.
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
        """Have a function called with the future when it is done, at once if it is; what it raises is logged."""
        callbacks = self._made().callbacks
        callbacks.append(fn)
        if self.done() and _take_out(callbacks, fn):
            self._call(fn)

    def running(self) -> bool:
        return not self.done()

    def cancel(self) -> bool:
        """Return False: what was appended can't be taken back."""
        return False

    def cancelled(self) -> bool:
        return False

    def set_result(self, result: _Result) -> None:
        """Raise InvalidStateError: only its batch completes it."""
        raise InvalidStateError(f"{self} is completed by its batch, not by {result!r}")

    def set_exception(self, exception: BaseException | None) -> None:
        """Raise InvalidStateError: only its batch completes it."""
        raise InvalidStateError(f"{self} is completed by its batch, not by {exception!r}")

    def set_running_or_notify_cancel(self) -> bool:
        """Raise InvalidStateError: only its batch completes it."""
        raise InvalidStateError(f"{self} is completed by its batch")


class _Made:
    """What a future keeps for those who wait; seen: whether it was done, for each thread that holds it."""

    __slots__ = ("callbacks", "seen", "waiters")

    def __init__(self) -> None:
        self.callbacks: list[Callable[[Any], object]] = []
        self.waiters: list[Any] = []
        self.seen: dict[int, bool] = {}


class _Holding:
    """Stands for a future's condition: who holds it sees a state that does not change."""

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
    """Stands for a future's list of waiters."""

    __slots__ = ("_future", "_made")

    def __init__(self, future: SafeFuture[Any], made: _Made) -> None:
        self._future = future
        self._made = made

    def append(self, waiter: Any) -> None:
        """Note a waiter, which counts on being told unless its thread sees the future as done."""
        future, waiters = self._future, self._made.waiters
        _make_safe(waiter)
        if self._made.seen.get(threading.get_ident()):
            return
        waiters.append(waiter)
        if future.done() and _take_out(waiters, waiter):
            _tell(waiter, future)

    def remove(self, waiter: Any) -> None:
        """Forget a waiter, if it was not told."""
        _take_out(self._made.waiters, waiter)


class _SafeEvent:
    """A threading.Event of whose wait an interrupt leaves nothing locked."""

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
    """A lock that is passed by once it was held for far longer than what it protects takes."""

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
    """Give a waiter of concurrent.futures an event and a lock that an interrupt can't break, before it is told."""
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
    """Take out the first one; None if there is none."""
    try:
        return ones.pop(0)
    except IndexError:
        return None


def _take_out(ones: list[Any], one: object) -> bool:
    """Take one out; return whether it was there."""
    try:
        ones.remove(one)
    except ValueError:
        return False
    return True


class TransactionalResult:
    """The outcome of one transactional operation (Kafka: TransactionalRequestResult).

    Attributes: operation (its name), is_acked (whether somebody waited until it was there), last_failure (why it takes
        so long: what the last try failed by).
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
        return self._latch.is_open

    @property
    def error(self) -> KStoreError | None:
        """Why the operation failed, None if it did not or is not done."""
        return self._error

    def complete(self, error: KStoreError | None = None) -> None:
        """Let those that wait go on, with an error or without; only the first call counts."""
        if not self._latch.is_open:
            self._error = error
            self._latch.open()

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait for the outcome.

        Raises: the operation's error; ProducerTimeoutError if it takes longer: the operation goes on, and the same call
            made again waits for it.
        """
        if not self._latch.wait(timeout_s):
            why = "" if self.last_failure is None else f": {self.last_failure}"
            message = f"{self.operation} took longer than {timeout_s} s{why}"
            raise ProducerTimeoutError(message) from self.last_failure
        self.is_acked = True
        if self._error is not None:
            error = copy.copy(self._error)
            raise error from self._error
