"""News: wakes the fetches that wait for records."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from kstore.store.store import Store, WritableStore

if TYPE_CHECKING:
    from kstore.log.log import Log


class News:
    """Wakes those that wait for records of a store.

    Attributes: is_over: whether nobody shall wait any more.
    Threads: the loop's. The threads that append tell it.
    """

    is_over = False

    def __init__(self, store: Store | WritableStore, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._arrivals = store._new_arrivals()
        self._waiting: dict[str, set[asyncio.Future[None]]] = defaultdict(set)
        self._arrivals.call_on_news(self._tell)
        for descriptor in self._arrivals.descriptors:
            loop.add_reader(descriptor, self._wake)

    def _tell(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        for directory in self._arrivals.take():
            self._end_waits(directory)

    def _end_waits(self, directory: str) -> None:
        for waiter in self._waiting.get(directory, ()):
            if not waiter.done():
                waiter.set_result(None)

    def end(self) -> None:
        """End all waits, those that begin later too."""
        self.is_over = True
        for directory in self._waiting:
            self._end_waits(directory)

    @contextmanager
    def waiter(self, logs: Iterable[tuple[str, Log]]) -> Iterator[asyncio.Future[None]]:
        """Yield a future that is done when one of the logs, given by their directories, may have more.

        Records that come after this call end the wait, so a caller that reads afterwards misses none.
        """
        waiter: asyncio.Future[None] = self._loop.create_future()
        directories = []
        try:
            for directory, log in logs:
                self._arrivals.add(directory)
                log._notify(self._arrivals)
                self._waiting[directory].add(waiter)
                directories.append(directory)
            yield waiter
        finally:
            for directory in directories:
                waiting = self._waiting[directory]
                waiting.discard(waiter)
                if not waiting:
                    del self._waiting[directory]

    def close(self) -> None:
        for descriptor in self._arrivals.descriptors:
            self._loop.remove_reader(descriptor)
        self._arrivals.call_on_news(None)
        self._arrivals.close()
