"""RecordFuture: the future of a record that was sent in an event loop; one of asyncio as soon as that is needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any, ClassVar

from kstore.errors import KStoreError
from kstore.producer import RecordMetadata
from kstore.producer.batches.futures import FutureRecordMetadata


class RecordFuture(FutureRecordMetadata):
    """The future metadata of a record; it can be awaited, and passed to all that takes a future of asyncio.

    It makes a future of the loop when it is first awaited or gets a callback, so that a record whose outcome nobody
    asks for costs none. result() and exception() never wait, as those of asyncio: InvalidStateError before the end. A
    cancelled one raises CancelledError, and its record is sent all the same.
    Threads: that of its loop.
    """

    __slots__ = ("_made",)
    _made: asyncio.Future[RecordMetadata]

    # What asyncio asks for; it is the loop's future that a task waits for.
    _asyncio_future_blocking: ClassVar[bool] = False
    # Makes the loop's future of a record; set in a subclass of each producer.
    make: ClassVar[Callable[[FutureRecordMetadata], asyncio.Future[RecordMetadata]]]

    def _known(self) -> asyncio.Future[RecordMetadata] | None:
        return getattr(self, "_made", None)

    def _loop_future(self) -> asyncio.Future[RecordMetadata]:
        made = self._known()
        if made is None:
            made = self._made = type(self).make(self)
        return made

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop."""
        return self._loop_future().get_loop()

    def done(self) -> bool:
        return self.cancelled() or super().done()

    def cancelled(self) -> bool:
        """Return whether it was cancelled."""
        made = self._known()
        return made is not None and made.cancelled()

    def cancel(self, msg: Any = None) -> bool:
        """Cancel the future, not the record; return False if it is done."""
        return not self.done() and self._loop_future().cancel(msg)

    def result(self, timeout: float | None = None) -> RecordMetadata:  # noqa: ARG002 - it never waits
        """Return the record's metadata or raise its error.

        Args: timeout: of no effect.
        Raises: asyncio.InvalidStateError before the end; asyncio.CancelledError.
        """
        return super().result(self._checked())

    def exception(self, timeout: float | None = None) -> KStoreError | None:  # noqa: ARG002 - it never waits
        """Return the record's error, None if it succeeded; raise as result()."""
        return super().exception(self._checked())

    def _checked(self) -> int:
        """Return 0, the time to wait, of a future that has an outcome.  Raises: as result()."""
        if self.cancelled():
            self._loop_future().result()
        if not super().done():
            raise asyncio.InvalidStateError("the record is not written yet: await it")
        return 0

    def add_done_callback(self, fn: Callable[[Any], object], *, context: Context | None = None) -> None:
        """Have the loop call `fn` with this future, in `context`, soon after it is done."""
        self._loop_future().add_done_callback(_Callback(fn, self), context=context)

    def remove_done_callback(self, fn: Callable[[Any], object]) -> int:
        """Remove all callbacks that are this function, and return how many."""
        made = self._known()
        return 0 if made is None else made.remove_done_callback(_Callback(fn, self))

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self.done():
            yield from self._loop_future().__await__()
        return self.result()

    __iter__ = __await__


class _Callback:
    """A callback that gets the RecordFuture in place of the loop's; equal to another one of the same function."""

    __slots__ = ("_fn", "_future")

    def __init__(self, fn: Callable[[Any], object], future: RecordFuture) -> None:
        self._fn = fn
        self._future = future

    def __call__(self, _: object) -> None:
        self._fn(self._future)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Callback) and self._fn == other._fn

    def __hash__(self) -> int:
        return hash(self._fn)
