"""read_ahead: decodes the parts of some work in several threads, and yields their items in order.

The thread that iterates decodes too, so that exactly as many threads run as requested, and an item that is needed
immediately is never queued for another thread.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from types import TracebackType
from typing import Generic, TypeVar

from kstore._core import Bell
from kstore.waiting import Workers

Item = TypeVar("Item")
Part = TypeVar("Part")


class _Work(Generic[Item]):
    """One part: its generator, and the items decoded before the reader got to them.

    As a context manager it keeps an error, which the reader gets in its place in the order of items.
    Threads: `items` belongs to the thread that took the work; the rest is guarded by the lock of the _ReadAhead.
    """

    def __init__(self, items: Generator[Item, None, None]) -> None:
        self.items = items
        self.unread: deque[Item] = deque()
        self.is_taken = False
        self.is_done = False
        self.error: BaseException | None = None

    def __enter__(self) -> _Work[Item]:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> bool:
        self.error = error
        return isinstance(error, Exception)

    @property
    def is_free(self) -> bool:
        return not (self.is_taken or self.is_done)

    def next_item(self) -> Item | None:
        """Decode the next item; None at the end of the part, or when an error was kept."""
        with self:
            return next(self.items, None)
        return None


def _works_of(parts: Iterable[Part], decode: Callable[[Part], Generator[Item, None, None]]) -> Iterator[_Work[Item]]:
    """Yield the work of each part; if the parts themselves raise an error, a finished work that holds it."""
    failed = _Work[Item](_no_items())
    failed.is_done = True
    with failed:
        for part in parts:
            yield _Work(decode(part))
    if failed.error is not None:
        yield failed


def _no_items() -> Generator[Item, None, None]:
    yield from ()


class _ReadAhead(Generic[Part, Item]):
    """The open parts, in order: the one that is being read, and one more for each thread."""

    def __init__(
        self,
        parts: Iterable[Part],
        decode: Callable[[Part], Generator[Item, None, None]],
        *,
        threads: int,
        size_of: Callable[[Item], int],
        most_bytes_ahead: int,
    ) -> None:
        self._works = _works_of(parts, decode)
        self._open: deque[_Work[Item]] = deque()
        self._most_open = threads + 1
        self._size_of = size_of
        self._most_bytes_ahead = most_bytes_ahead
        self._bytes_ahead = 0
        self._lock = threading.Lock()
        self._changed = Bell(threading.Lock())
        self._is_stopped = False
        self._idle_helpers = threads - 1
        self._helpers = Workers(threads - 1, name="kstore-scan")

    def items(self) -> Iterator[Item]:
        """Iterate the items of all parts in order."""
        self._open_parts()
        while self._open:
            first = self._open[0]
            item, work = self._item_or_work(first)
            if work is not None:
                item = self._decode_one(work, is_next=work is first)
            if item is not None:
                yield item
            elif first.is_done and not first.unread:
                if first.error is not None:
                    raise first.error
                with self._lock:
                    self._open.popleft()
                self._open_parts()

    def _open_parts(self) -> None:
        """Open the next parts. Helper threads read the open ones while this finds where one ends."""
        while len(self._open) < self._most_open and (work := next(self._works, None)) is not None:
            with self._lock:
                self._open.append(work)
                self._call_helpers()

    def close(self) -> None:
        """Stop the helpers, each after its current item, and close the generators."""
        self._is_stopped = True
        self._helpers.close()
        for work in self._open:
            work.unread.clear()
            work.items.close()

    def _item_or_work(self, first: _Work[Item]) -> tuple[Item | None, _Work[Item] | None]:
        """Return the next item, or work that was taken for the reader to do; neither at the end of the first part."""
        while True:
            with self._lock:
                self._call_helpers()
                if first.unread:
                    item = first.unread.popleft()
                    self._bytes_ahead -= self._size_of(item)
                    return item, None
                if first.is_done:
                    return None, None
                work = self._take(self._open if self._has_room() else [first])
                if work is not None:
                    return None, work
            self._changed.wait(-1)

    def _decode_one(self, work: _Work[Item], *, is_next: bool) -> Item | None:
        """Decode one item; return it if it is the next one, else keep it."""
        item = work.next_item()
        with self._lock:
            work.is_taken, work.is_done = False, item is None
            if item is not None and not is_next:
                self._keep(work, item)
                return None
        return item

    def _help(self) -> None:
        """Decode while there is room. A helper never waits, so a reader that stops iterating blocks no thread."""
        while True:
            with self._lock:
                work = self._take(self._ahead()) if self._may_help() else None
                if work is None:
                    self._idle_helpers += 1
                    return
            while work.is_taken:
                item = work.next_item()
                with self._lock:
                    if item is not None:
                        self._keep(work, item)
                    work.is_done = item is None
                    work.is_taken = item is not None and self._may_help()
                self._changed.ring()

    # The methods below require the lock.

    def _call_helpers(self) -> None:
        if self._bytes_ahead > self._most_bytes_ahead // 2:
            return
        while self._idle_helpers and any(work.is_free for work in islice(self._open, 1, None)):
            self._idle_helpers -= 1
            self._helpers.submit(self._help)

    def _ahead(self) -> Iterator[_Work[Item]]:
        """Iterate the open parts in the order for a helper: the first one comes last, since the reader works on it."""
        yield from islice(self._open, 1, None)
        yield from islice(self._open, 1)

    def _take(self, works: Iterable[_Work[Item]]) -> _Work[Item] | None:
        work = next((work for work in works if work.is_free), None)
        if work is not None:
            work.is_taken = True
        return work

    def _keep(self, work: _Work[Item], item: Item) -> None:
        work.unread.append(item)
        self._bytes_ahead += self._size_of(item)

    def _has_room(self) -> bool:
        return self._bytes_ahead < self._most_bytes_ahead

    def _may_help(self) -> bool:
        return not self._is_stopped and self._has_room()


def read_ahead(
    parts: Iterable[Part],
    decode: Callable[[Part], Generator[Item, None, None]],
    *,
    threads: int,
    size_of: Callable[[Item], int],
    most_bytes_ahead: int,
) -> Generator[Item, None, None]:
    """Decode parts in `threads` threads, including the caller's, and yield their items in order.

    An error of a part is raised after the items before it.
    Args: threads: at least 2; size_of: returns the bytes of an item; most_bytes_ahead: limit on decoded bytes that wait
        for the reader.
    Cost: one more part than threads is open; items ahead of the reader: most_bytes_ahead and one per thread.
    """
    ahead = _ReadAhead(parts, decode, threads=threads, size_of=size_of, most_bytes_ahead=most_bytes_ahead)
    try:
        yield from ahead.items()
    finally:
        ahead.close()
