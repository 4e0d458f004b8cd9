"""ColumnsFuture: what became of all batches that one call made of columns. Layer 5."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from kstore.errors import KStoreError
from kstore.producer.futures import timed_out
from kstore.producer.latch import Latch
from kstore.producer.result import ProduceRequestResult
from kstore.producer.safe_future import SafeFuture

if TYPE_CHECKING:
    from kstore.producer.batch import ProducerBatch


class AppendedBatch(NamedTuple):
    """Where record_count rows went: base_offset is that of the first one, -1 if it is not known."""

    partition: int
    base_offset: int
    record_count: int


class ColumnsFuture(SafeFuture[list[AppendedBatch]]):
    """The batches of one append_columns(), in the order of their making; a split one is as many as its pieces.

    result() raises the first error; outcomes() shows what became of each batch. cancel() returns False.
    Threads: safe; callbacks run in the thread that completes the last batch.
    """

    def __init__(self) -> None:
        super().__init__()
        self._batches: list[tuple[int, ProduceRequestResult, int]] = []
        self._pending_count = 0
        self._error: KStoreError | ValueError | None = None
        self._latch = Latch()
        self._found: list[AppendedBatch] = []

    @property
    def appended_rows(self) -> int:
        """How many rows batches were made of; all of them unless the append itself failed."""
        return sum(record_count for _, _, record_count in self._batches)

    @property
    def append_error(self) -> KStoreError | ValueError | None:
        """Why not all rows came into batches, None if they did."""
        return self._error

    def add(self, partition: int, batches: Iterable[ProducerBatch]) -> None:
        """Count batches in, before wait() is called."""
        self._batches += [(partition, batch.result, batch.record_count) for batch in batches]

    def join(self, other: ColumnsFuture) -> None:
        """Count the batches of another append in, and its error if it failed, before wait() is called."""
        self._batches += other._batches
        if self._error is None:
            self._error = other._error

    def wait(self, error: KStoreError | ValueError | None = None) -> None:
        """Be done when all batches are, with this error if there is one."""
        if self._error is None:
            self._error = error
        self._pending_count = len(self._batches)
        self.settle()

    def result(self, timeout: float | None = None) -> list[AppendedBatch]:
        """Return the batches, or raise the first error; wait at most `timeout` seconds.

        Raises: ProducerTimeoutError, also when they are done later.
        """
        self._await(timeout)
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self._found

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the first error, None if there is none; wait as result()."""
        self._await(timeout)
        return self._error

    def _await(self, timeout: float | None) -> None:
        if not self._latch.wait(timeout):
            raise timed_out(timeout)

    def done(self) -> bool:
        return self._latch.is_open

    @property
    def index(self) -> int:
        """The record of a result that settle() is called for."""
        return 0

    def settle(self) -> None:
        """Wait for the last batch that is not done, or be done."""
        while self._pending_count:
            last = self._batches[self._pending_count - 1][1]
            pending = None if last.is_done and not last.pieces else _first_pending(last)
            if pending is None:
                self._pending_count -= 1
            elif pending.watch(self):
                return
        if self._error is None and not any(result.pieces or result.error_of(0) for _, result, _ in self._batches):
            self._found = [AppendedBatch(one, result.base_offset, count) for one, result, count in self._batches]
        else:
            outcomes = self.outcomes()
            self._error = next((error for _, error in outcomes if error is not None), self._error)
            self._found = [batch for batch, _ in outcomes]
        self._latch.open()
        self.tell()

    def outcomes(self) -> list[tuple[AppendedBatch, KStoreError | None]]:
        """Return each batch with its error, None if there is none or the batch is not done."""
        found = []
        for partition, result, record_count in self._batches:
            leaves = _leaves(result, record_count) if result.pieces else ((result, record_count),)
            for leaf, count in leaves:
                found.append((AppendedBatch(partition, leaf.base_offset, count), leaf.error_of(0)))
        return found


def _leaves(result: ProduceRequestResult, record_count: int) -> Iterator[tuple[ProduceRequestResult, int]]:
    """Yield the pieces that were not split again, each with its records, in order."""
    stack = [(result, record_count)]
    while stack:
        result, record_count = stack.pop()
        pieces = result.pieces
        if not pieces:
            yield result, record_count
            continue
        ends = [*result.first_indexes[1:], record_count]
        counts = [end - first for first, end in zip(result.first_indexes, ends, strict=True)]
        stack += reversed(list(zip(pieces, counts, strict=True)))


def _first_pending(result: ProduceRequestResult) -> ProduceRequestResult | None:
    stack = [result]
    while stack:
        result = stack.pop()
        if not result.is_completed and not result.pieces:
            return result
        stack += reversed(result.pieces)
    return None
