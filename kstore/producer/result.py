"""ProduceRequestResult: what became of a batch, and the latch on which all its records wait. Layer 5."""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from collections.abc import Sequence
from typing import Protocol

from kstore._core import BatchResult
from kstore.environment import SYSTEM_CLOCK
from kstore.types import NO_OFFSET

LOGGER = logging.getLogger("kstore.producer")
_MS_PER_S = 1000
_LONGEST_WAIT_S = threading.TIMEOUT_MAX


class Watcher(Protocol):
    """A future that wants to be told when its record is done."""

    @property
    def index(self) -> int: ...

    def settle(self) -> None: ...


class Deadline:
    """The end of a wait that may take several steps."""

    def __init__(self, timeout_s: float | None) -> None:
        self._timeout_s = timeout_s
        self._start_ms = SYSTEM_CLOCK.monotonic_ms()

    def left_s(self) -> float | None:
        if self._timeout_s is None:
            return None
        return max(self._timeout_s - (SYSTEM_CLOCK.monotonic_ms() - self._start_ms) / _MS_PER_S, 0)


class ProduceRequestResult(BatchResult):
    """What became of a batch: set() says it, done() lets go those who wait; behind a split, what became of the pieces.

    Attributes: topic_partition, base_offset (-1 before set(), after an error and in a result that was split),
        log_append_time_ms (-1 for none), is_done (whether done() was called, or split(), which leaves the rest to
        `pieces`), first_indexes (the index of the first record of each piece here, none if the batch was not split).
    Threads: safe.  Source: Kafka ProduceRequestResult.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        state = "split" if self.pieces else "done" if self.is_done else "pending"
        return f"ProduceRequestResult({self.topic_partition}, {state}, base_offset={self.base_offset})"

    @property
    def is_completed(self) -> bool:
        """Whether the batch, or every piece of it, is done."""
        pending = [self]
        while pending:
            result = pending.pop()
            if not result.is_done:
                return False
            pending += result.pieces
        return True

    def split(self, pieces: Sequence[tuple[int, ProduceRequestResult]]) -> None:
        """Point on to the pieces of the batch, each with the index of its first record here, the first one 0.

        Raises: ValueError if the result was set before.
        """
        self.set(NO_OFFSET)
        self.point_to(tuple(piece for _, piece in pieces), tuple(first for first, _ in pieces))
        self.done()

    def done(self) -> None:
        """Let go all who wait, and tell the futures that asked for it; those of a split batch go on to wait.

        Raises: ValueError if the result was not set. KeyboardInterrupt of a callback, when all are told.
        """
        interrupt = None
        for watcher in self.end():
            try:
                if not self.pieces or not self.watch(watcher):
                    watcher.settle()
            except KeyboardInterrupt as error:
                interrupt = error
            except BaseException:
                LOGGER.exception("a callback of a future of %s failed", self.topic_partition)
        if interrupt is not None:
            raise interrupt

    def await_(self, timeout_s: float | None = None) -> bool:
        """Wait until the batch, or every piece of it, is done; return whether it is. None waits without end."""
        deadline = Deadline(timeout_s)
        pending = [self]
        while pending:
            result = pending.pop()
            if not result.wait(deadline):
                return False
            pending += result.pieces
        return True

    def await_record(self, index: int, timeout_s: float | None = None) -> bool:
        """Wait as await_() for the record of an index, which other pieces of a split batch do not hold up."""
        deadline = Deadline(timeout_s)
        while True:
            result, _ = self.place_of(index)
            if not result.wait(deadline):
                return False
            if not result.pieces:
                return True

    def wait(self, deadline: Deadline) -> bool:
        """Wait for done() or split(), but for no piece."""
        if self.is_done:
            return True
        lock = threading.Lock()
        lock.acquire()
        if not self.add_waiter(lock):
            return True
        left_s = deadline.left_s()
        try:
            lock.acquire(timeout=-1 if left_s is None else min(left_s, _LONGEST_WAIT_S))
        finally:
            self.remove_waiter(lock)
        return self.is_done

    def place_of(self, index: int) -> tuple[ProduceRequestResult, int]:
        """Return where the record of an index is now: in which piece, and its index there."""
        result = self
        while result.pieces:
            piece = bisect_right(result.first_indexes, index) - 1
            index -= result.first_indexes[piece]
            result = result.pieces[piece]
        return result, index

    def watch(self, watcher: Watcher) -> bool:
        """Have a future told when its record is done; return False if it is."""
        while True:
            result, _ = self.place_of(watcher.index)
            if result.add_watcher(watcher):
                return True
            if not result.pieces:
                return False
