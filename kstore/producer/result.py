"""ProduceRequestResult: what became of a batch, and the latch on which all its records wait. Layer 5."""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Protocol

from kstore.errors import KStoreError
from kstore.producer.environment import SYSTEM_CLOCK
from kstore.types import TopicPartition

LOGGER = logging.getLogger("kstore.producer")
NO_OFFSET = -1
_ErrorOf = Callable[[int], KStoreError]
_MS_PER_S = 1000


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


class ProduceRequestResult:
    """What became of a batch: set() says it, done() lets go those who wait; behind a split, what became of the pieces.

    Attributes: base_offset (-1 before set(), after an error and in a result that was split), log_append_time_ms (-1 for
        none), is_done (whether done() was called, or split(), which leaves the rest to `pieces`).
    Threads: safe.  Source: Kafka ProduceRequestResult.
    """

    __slots__ = (
        "_condition",
        "_error_of",
        "_first_indexes",
        "_is_set",
        "_watchers",
        "base_offset",
        "is_done",
        "log_append_time_ms",
        "pieces",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.base_offset = NO_OFFSET
        self.log_append_time_ms = -1
        self.pieces: tuple[ProduceRequestResult, ...] = ()
        self._first_indexes: tuple[int, ...] = ()
        self._error_of: _ErrorOf | None = None
        self._is_set = self.is_done = False
        self._condition = threading.Condition(threading.Lock())
        self._watchers: list[Watcher] = []

    def __repr__(self) -> str:
        state = "split" if self.pieces else "done" if self.is_done else "pending"
        return f"ProduceRequestResult({self.topic_partition}, {state}, base_offset={self.base_offset})"

    @property
    def first_indexes(self) -> tuple[int, ...]:
        """The index of the first record of each piece here, none if the batch was not split."""
        return self._first_indexes

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

    def set(self, base_offset: int, *, log_append_time_ms: int = -1, error_of: _ErrorOf | None = None) -> None:
        """Say what became of the batch: an offset, or the error of each record by its index.

        Raises: ValueError if it was said before.
        """
        if self._is_set:
            raise ValueError(f"the result of a batch of {self.topic_partition} was set before")
        self._is_set = True
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self._error_of = error_of

    def split(self, pieces: Sequence[tuple[int, ProduceRequestResult]]) -> None:
        """Point on to the pieces of the batch, each with the index of its first record here, the first one 0.

        Raises: ValueError if the result was set before.
        """
        self.set(NO_OFFSET)
        with self._condition:
            self._first_indexes = tuple(first for first, _ in pieces)
            self.pieces = tuple(piece for _, piece in pieces)
        self.done()

    def done(self) -> None:
        """Let go all who wait, and tell the futures that asked for it; those of a split batch go on to wait.

        Raises: ValueError if the result was not set. KeyboardInterrupt of a callback, when all are told.
        """
        if not self._is_set:
            raise ValueError(f"the result of a batch of {self.topic_partition} is not set")
        with self._condition:
            self.is_done = True
            watchers, self._watchers = self._watchers, []
            self._condition.notify_all()
        interrupt = None
        for watcher in watchers:
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
        with self._condition:
            return self._condition.wait_for(lambda: self.is_done, deadline.left_s())

    def place_of(self, index: int) -> tuple[ProduceRequestResult, int]:
        """Return where the record of an index is now: in which piece, and its index there."""
        result = self
        while result.pieces:
            piece = bisect_right(result._first_indexes, index) - 1
            index -= result._first_indexes[piece]
            result = result.pieces[piece]
        return result, index

    def error_of(self, index: int) -> KStoreError | None:
        """Return why the record of an index failed, None if it did not; place_of() says whom to ask after a split."""
        return None if self._error_of is None else self._error_of(index)

    def watch(self, watcher: Watcher) -> bool:
        """Have a future told when its record is done; return False if it is."""
        while True:
            result, _ = self.place_of(watcher.index)
            if result.add_watcher(watcher):
                return True
            if not result.pieces:
                return False

    def add_watcher(self, watcher: Watcher) -> bool:
        """Have a future told by this result, whatever its index; return False if it is done."""
        with self._condition:
            if not self.is_done:
                self._watchers.append(watcher)
            return not self.is_done
