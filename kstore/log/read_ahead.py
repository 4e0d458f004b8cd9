"""read_ahead: decodes the parts of some work in several threads, and yields their items in order.

The thread that iterates decodes too, so that exactly as many threads run as requested. To find the next part may take
as long as to decode some of it: one thread at a time does it, before all that can be decoded has been begun.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Generic, TypeVar

from kstore._core import Bell
from kstore.waiting import Workers

Item = TypeVar("Item")
Part = TypeVar("Part")

# Of the items that wait, so many are given to the reader at a time.
_MOST_AT_ONCE = 4


class _Work(Generic[Item]):
    """One part: its generator, and the items, with their sizes, that were decoded before the reader got to them.

    Threads: `items` belongs to the thread that took the work; the rest is guarded by the lock of the _ReadAhead.
    """

    def __init__(self, items: Generator[Item, None, None]) -> None:
        self.items = items
        self.unread: deque[tuple[Item, int]] = deque()
        self.is_taken = False
        self.is_done = False
        self.error: BaseException | None = None

    @property
    def is_free(self) -> bool:
        return not (self.is_taken or self.is_done)

    def next_item(self) -> Item | None:
        """Decode the next item; None at the end of the part, or for an error, which the reader gets in its place."""
        try:
            return next(self.items, None)
        except BaseException as error:
            self.error = error
            if not isinstance(error, Exception):
                raise
            return None


def _works_of(parts: Iterable[Part], decode: Callable[[Part], Generator[Item, None, None]]) -> Iterator[_Work[Item]]:
    """Yield the work of each part; if the parts themselves raise an error, a finished work that holds it."""
    works = _Work(_Work(decode(part)) for part in parts)
    while (work := works.next_item()) is not None:
        yield work
    if works.error is not None:
        failed: _Work[Item] = _Work(_no_items())
        failed.is_done, failed.error = True, works.error
        yield failed


def _no_items() -> Generator[Item, None, None]:
    yield from ()


class _ReadAhead(Generic[Part, Item]):
    """The open parts, in order: the one that is being read, and two more for each thread.

    With one more, a thread whose parts are decoded and wait for the reader would stop each time, and be woken again.
    """

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
        self._most_open = 2 * threads + 1
        self._size_of = size_of
        self._most_bytes_ahead = most_bytes_ahead
        self._bytes_ahead = self._bytes_at_reader = 0
        self._lock = threading.Lock()
        self._changed = Bell(threading.Lock())
        self._is_stopped = False
        self._is_opening = False
        self._has_more = True
        self._idle_helpers = threads - 1
        self._helpers = Workers(threads - 1, name="kstore-scan")

    def items(self) -> Iterator[Item]:
        """Iterate the items of all parts in order."""
        while (first := self._first()) is not None:
            unread, work = self._unread_or_work(first)
            yield from unread
            if work is first:
                yield from self._decode_first(first)
            elif work is not None:
                self._decode_one(work)
            elif not unread:
                if first.error is not None:
                    raise first.error
                with self._lock:
                    self._open.popleft()

    def _first(self) -> _Work[Item] | None:
        """Return the first open part, which is opened now if there is none; None after the last one."""
        while not self._open:
            with self._lock:
                if self._open:
                    break
                if not self._has_more:
                    return None
                is_mine = self._claim_opening()
            self._open_next() if is_mine else self._changed.wait(-1)
        return self._open[0]

    def _open_next(self) -> None:
        """Open the next part.  Requires: the claim."""
        work = next(self._works, None)
        with self._lock:
            self._is_opening, self._has_more = False, work is not None
            if work is not None:
                self._open.append(work)
                self._call_helpers()

    def close(self) -> None:
        """Stop the helpers, each after its current item, and close the generators."""
        # Without the lock: at interpreter exit a thread that no longer runs may have it.
        self._is_stopped = True
        self._helpers.close()
        for work in self._open:
            work.unread.clear()
            # The garbage collector may call this in a helper, beside another one that is in a part, and drops it.
            with suppress(ValueError):
                work.items.close()

    def _unread_or_work(self, first: _Work[Item]) -> tuple[list[Item], _Work[Item] | None]:
        """Return the next items, or work that was taken for the reader to do; neither at the end of the first part."""
        while True:
            with self._lock:
                self._bytes_ahead -= self._bytes_at_reader
                self._bytes_at_reader = 0
                self._call_helpers()
                if first.unread:
                    return self._next_unread(first), None
                if first.is_done:
                    return [], None
                work = self._take(self._open if self._has_room() else [first])
                if work is not None:
                    return [], work
                is_mine = self._has_room() and self._claim_opening()
            self._open_next() if is_mine else self._changed.wait(-1)

    def _decode_first(self, first: _Work[Item]) -> Iterator[Item]:
        """Decode the first part, which was taken, and yield its items, until a helper takes it while one is read."""
        while True:
            item = first.next_item()
            with self._lock:
                first.is_taken, first.is_done = False, item is None
                self._call_helpers()
            if item is None:
                return
            yield item
            with self._lock:
                if first.unread or not first.is_free:
                    return
                first.is_taken = True

    def _decode_one(self, work: _Work[Item]) -> None:
        """Decode and keep an item of a later part."""
        item = work.next_item()
        with self._lock:
            work.is_taken, work.is_done = False, item is None
            if item is not None:
                self._keep(work, item)

    def _help(self) -> None:
        """Decode while there is room. A helper never waits, so a reader that stops iterating blocks no thread."""
        while True:
            with self._lock:
                work, is_mine = self._task_of_helper() if self._may_help() else (None, False)
                if work is None and not is_mine:
                    self._idle_helpers += 1
                    return
            if work is not None:
                self._decode_some(work)
            else:
                self._open_next()
                self._changed.ring()

    def _decode_some(self, work: _Work[Item]) -> None:
        """Decode and keep items to the end of the part, or of the room."""
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
        if not self._idle_helpers or self._is_stopped or self._bytes_ahead > self._most_bytes_ahead // 2:
            return
        free = sum(work.is_free for work in islice(self._open, 1, None)) + self._may_open()
        while self._idle_helpers and free > 0:
            free -= 1
            self._idle_helpers -= 1
            self._helpers.submit(self._help)

    def _task_of_helper(self) -> tuple[_Work[Item] | None, bool]:
        """Return a part that was taken to be decoded, or whether the next one is to be opened.

        That comes before all while at most one waits, since it may take long. The first part comes last: the reader
        works on it.
        """
        waiting = sum(work.is_free for work in islice(self._open, 1, None))
        if waiting <= 1 and self._claim_opening():
            return None, True
        return self._take(islice(self._open, 1, None)) or self._take(islice(self._open, 1)), False

    def _may_open(self) -> bool:
        return self._has_more and not self._is_opening and len(self._open) < self._most_open

    def _claim_opening(self) -> bool:
        """Return whether the caller is to open the next part."""
        if not self._may_open():
            return False
        self._is_opening = True
        return True

    def _take(self, works: Iterable[_Work[Item]]) -> _Work[Item] | None:
        work = next((work for work in works if work.is_free), None)
        if work is not None:
            work.is_taken = True
        return work

    def _keep(self, work: _Work[Item], item: Item) -> None:
        size = self._size_of(item)
        work.unread.append((item, size))
        self._bytes_ahead += size

    def _next_unread(self, work: _Work[Item]) -> list[Item]:
        """Return the next items of a part. They count as ahead of the reader until it asks for more."""
        items: list[Item] = []
        while work.unread and len(items) < _MOST_AT_ONCE:
            item, size = work.unread.popleft()
            items.append(item)
            self._bytes_at_reader += size
        return items

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

    An error of a part is raised after the items before it. `parts` is iterated by these threads, one at a time.
    Args: threads: at least 2; size_of: returns the bytes of an item; most_bytes_ahead: limit on decoded bytes that wait
        for the reader.
    Cost: two parts per thread and one more are open; items ahead of the reader: most_bytes_ahead and one per thread.
    """
    ahead = _ReadAhead(parts, decode, threads=threads, size_of=size_of, most_bytes_ahead=most_bytes_ahead)
    try:
        yield from ahead.items()
    finally:
        ahead.close()
