"""Results of batches and the futures over them.

ProduceRequestResult is the outcome of one batch, FutureRecordMetadata the future of one record, ColumnsFuture that of
all batches of one append of columns; RecordMetadata is where a record was written.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from kstore._core import FutureRecordMetadataCore, ProduceRequestResultCore
from kstore.env.process import SYSTEM_CLOCK
from kstore.errors import KStoreError, ProducerTimeoutError
from kstore.producer.batches.waiting import ProducerFuture
from kstore.types import NO_OFFSET, NO_TIMESTAMP, TopicPartition
from kstore.waiting import Latch

_MS_PER_S = 1000


class RecordMetadata(NamedTuple):
    """Where a record was written (Kafka: RecordMetadata).

    topic and partition say where. offset and timestamp_ms are -1 if unknown; serialized_key_size and
    serialized_value_size are in bytes, -1 for null.
    """

    topic: str
    partition: int
    offset: int = NO_OFFSET
    timestamp_ms: int = NO_TIMESTAMP
    serialized_key_size: int = -1
    serialized_value_size: int = -1

    @property
    def has_offset(self) -> bool:
        """Whether the offset is known."""
        return self.offset != NO_OFFSET

    @property
    def has_timestamp(self) -> bool:
        """Whether the timestamp is known."""
        return self.timestamp_ms != NO_TIMESTAMP


def record_metadata(
    result: ProduceRequestResult,
    *,
    index: int,
    timestamp_ms: int,
    serialized_key_size: int,
    serialized_value_size: int,
) -> RecordMetadata:
    """Return the metadata of one record, from the result of its batch."""
    return RecordMetadata(
        result.topic_partition.topic,
        result.topic_partition.partition,
        NO_OFFSET if result.base_offset == NO_OFFSET else result.base_offset + index,
        timestamp_ms if result.log_append_time_ms == NO_TIMESTAMP else result.log_append_time_ms,
        serialized_key_size,
        serialized_value_size,
    )


class FutureRecordMetadata(FutureRecordMetadataCore, ProducerFuture[RecordMetadata]):
    """The future RecordMetadata of one record; it can be awaited, and as_concurrent() makes a standard future of it.

    It is done when the batch is, after all callbacks of the batch. It can't be cancelled.
    Threads: safe.  Source: Kafka FutureRecordMetadata.
    """

    __slots__ = ("__weakref__",)

    def __repr__(self) -> str:
        state = "done" if self.done() else "pending"
        return f"FutureRecordMetadata({self.produce_result.topic_partition}, index={self.index}, {state})"

    def settle(self) -> None:
        """Run the callbacks; called by the batch's result."""
        self.run_callbacks(self.callbacks)

    def _listen(self) -> list[Callable[[Any], object]]:
        if self.callbacks is None:
            # First: if an interrupt came between these calls in the other order, callbacks would never run.
            self.produce_result.watch(self)
        return self.made_callbacks()

    def outcome(self) -> RecordMetadata | KStoreError:
        """Return the metadata, or the error, of a record that is done."""
        return self._error() or self._metadata()

    def hurry(self) -> None:
        """Let the record's batch go without lingering."""
        self._place()[0].hurry()

    def _place(self) -> tuple[ProduceRequestResult, int]:
        whole: ProduceRequestResult = self.produce_result
        return whole.place_of(self.index)

    def _error(self) -> KStoreError | None:
        result, index = self._place()
        return result.error_of(index)

    def _metadata(self) -> RecordMetadata:
        result, index = self._place()
        return record_metadata(
            result,
            index=index,
            timestamp_ms=self.timestamp_ms,
            serialized_key_size=self.serialized_key_size,
            serialized_value_size=self.serialized_value_size,
        )

    def _wait(self, timeout: float | None) -> None:
        if timeout is None and self.produce_result.send_now() and not self.produce_result.pieces:
            return
        if not self.produce_result.await_record(self.index, timeout):
            raise timed_out(timeout)

    def done(self) -> bool:
        return self._place()[0].is_done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Return the record's metadata or raise its error; wait at most `timeout` seconds, None for no limit.

        Without a timeout the calling thread may send the record's batch itself.
        Raises: ProducerTimeoutError if the timeout expires; the future can still complete later; RuntimeError without a
            timeout in a callback, and in a signal handler that interrupted the thread that sends.
        """
        metadata: RecordMetadata | None = self.metadata_now(RecordMetadata, waits=timeout is None)
        if metadata is not None:
            return metadata
        self._wait(timeout)
        error = self._error()
        if error is not None:
            # Many records may share one error: without this each raise would extend its traceback.
            raise error.with_traceback(None)
        return self._metadata()

    def exception(self, timeout: float | None = None) -> KStoreError | None:
        """Return the record's error, None if it succeeded; wait and raise as result() does for a timeout."""
        self._wait(timeout)
        return self._error()


def timed_out(timeout: float | None) -> ProducerTimeoutError:
    """Return the error for a wait that expired before a future was done.  Args: timeout: in seconds."""
    return ProducerTimeoutError(f"Timeout after waiting for {int((timeout or 0) * _MS_PER_S)} ms.")


def failed_future(topic_partition: TopicPartition, error: KStoreError) -> FutureRecordMetadata:
    """Return the future of a record that was not appended to any batch."""
    result = ProduceRequestResult(topic_partition)
    result.set(NO_OFFSET, error_of=lambda _: error)
    result.done()
    return FutureRecordMetadata(
        result, index=0, timestamp_ms=NO_TIMESTAMP, serialized_key_size=-1, serialized_value_size=-1
    )


class AppendedBatch(NamedTuple):
    """Where record_count rows were written; base_offset is the offset of the first, -1 if unknown."""

    partition: int
    base_offset: int
    record_count: int


class ColumnsFuture(ProducerFuture[list[AppendedBatch]]):
    """The batches of one append of columns, in the order of creation; a split batch is listed as its pieces.

    result() raises the first error; outcomes() gives the outcome of each batch. cancel() returns False.
    Threads: safe; callbacks run in the thread that completes the last batch.
    """

    def __init__(self) -> None:
        self._callbacks: list[Callable[[Any], object]] = []
        self._batches: list[tuple[int, ProduceRequestResult, int]] = []
        self._pending_count = 0
        self._error: KStoreError | ValueError | None = None
        self._latch = Latch()
        self._found: list[AppendedBatch] = []

    @property
    def appended_rows(self) -> int:
        """The number of rows that were put into batches: all of them, unless the append itself failed."""
        return sum(record_count for _, _, record_count in self._batches)

    @property
    def append_error(self) -> KStoreError | ValueError | None:
        """Why not all rows were put into batches, None if they were."""
        return self._error

    def add(self, partition: int, batches: Iterable[tuple[ProduceRequestResult, int]]) -> None:
        """Add batches of a partition, each as its result and record count; must come before wait()."""
        self._batches += [(partition, result, record_count) for result, record_count in batches]

    def join(self, other: ColumnsFuture) -> None:
        """Add the batches of another append, and its error if it failed; must come before wait()."""
        self._batches += other._batches
        if self._error is None:
            self._error = other._error

    def wait(self, error: KStoreError | ValueError | None = None) -> None:
        """Start to complete when all batches are done, with `error` if it is given.  Does not block."""
        if self._error is None:
            self._error = error
        self._pending_count = len(self._batches)
        self.settle()

    def result(self, timeout: float | None = None) -> list[AppendedBatch]:
        """Return the batches or raise the first error; wait at most `timeout` seconds, None for no limit.

        Raises: ProducerTimeoutError if the timeout expires; the future can still complete later.
        """
        self._await(timeout)
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self._found

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the first error, None if there is none; wait and raise as result() does for a timeout."""
        self._await(timeout)
        return self._error

    def _await(self, timeout: float | None) -> None:
        if not self._latch.wait(timeout):
            raise timed_out(timeout)

    def done(self) -> bool:
        return self._latch.is_open

    def __repr__(self) -> str:
        return f"ColumnsFuture({len(self._batches)} batches, {'done' if self.done() else 'pending'})"

    def _listen(self) -> list[Callable[[Any], object]]:
        return self._callbacks

    @property
    def index(self) -> int:
        """The index to watch in a batch's result: the first record."""
        return 0

    def settle(self) -> None:
        """Watch the last batch that is not done; if all are done, complete the future."""
        while self._pending_count:
            last = self._batches[self._pending_count - 1][1]
            pending = None if last.is_done and not last.pieces else _first_pending(last)
            if pending is None:
                self._pending_count -= 1
            elif pending.watch(self):
                return
        if self._error is None and not any(result.pieces or result.error_of(0) for _, result, _ in self._batches):
            self._found = [
                AppendedBatch(partition, result.base_offset, count) for partition, result, count in self._batches
            ]
        else:
            outcomes = self.outcomes()
            self._error = next((error for _, error in outcomes if error is not None), self._error)
            self._found = [batch for batch, _ in outcomes]
        self._latch.open()
        self.run_callbacks(self._callbacks)

    def outcomes(self) -> list[tuple[AppendedBatch, KStoreError | None]]:
        """Return each batch with its error, None if it succeeded or is not done."""
        outcomes = []
        for partition, result, record_count in self._batches:
            leaves = _leaves(result, record_count) if result.pieces else ((result, record_count),)
            for leaf, count in leaves:
                outcomes.append((AppendedBatch(partition, leaf.base_offset, count), leaf.error_of(0)))
        return outcomes


def _leaves(result: ProduceRequestResult, record_count: int) -> Iterator[tuple[ProduceRequestResult, int]]:
    """Yield the pieces that were not split again, in order, each with its record count."""
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


def failures_among(
    batches: Iterable[tuple[ProduceRequestResult, int]],
) -> tuple[int, KStoreError | None]:
    """Return how many records of batches failed, and the first error.

    Args: batches: the result and the record count of each; those that are not done count as successful.
    """
    failed_count, first = 0, None
    for result, record_count in batches:
        for leaf, count in _leaves(result, record_count):
            error = leaf.error_of(0)
            if error is not None:
                failed_count, first = failed_count + count, first or error
    return failed_count, first


LOGGER = logging.getLogger("kstore.producer")
_LONGEST_WAIT_S = threading.TIMEOUT_MAX


class Watcher(Protocol):
    """A future to be notified when its record is done."""

    @property
    def index(self) -> int: ...

    def settle(self) -> None: ...


class Deadline:
    """The end of a wait that may take several steps.  Args: timeout_s: in seconds, None for no limit."""

    def __init__(self, timeout_s: float | None) -> None:
        self._timeout_s = timeout_s
        self._start_ms = SYSTEM_CLOCK.monotonic_ms()

    def left_s(self) -> float | None:
        """Return the seconds left, at least 0; None for no limit."""
        if self._timeout_s is None:
            return None
        return max(self._timeout_s - (SYSTEM_CLOCK.monotonic_ms() - self._start_ms) / _MS_PER_S, 0)


class ProduceRequestResult(ProduceRequestResultCore):
    """The outcome of a batch: set() stores it, done() releases the waiters; after a split, the outcomes of the pieces.

    Attributes: topic_partition; base_offset (-1 before set(), after an error and if the batch was split);
        log_append_time_ms (-1 for none); is_done (whether done() was called, or split(), which leaves the outcome to
        `pieces`); first_indexes (for each piece the index of its first record in this batch; empty if it was not
        split).
    Threads: safe.  Source: Kafka ProduceRequestResult.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        state = "split" if self.pieces else "done" if self.is_done else "pending"
        return f"ProduceRequestResult({self.topic_partition}, {state}, base_offset={self.base_offset})"

    def outcomes(self) -> Callable[[FutureRecordMetadata], RecordMetadata | KStoreError] | None:
        """Return the function that tells the outcome of a record of this batch, which is done; None if it was split."""
        if self.pieces:
            return None
        topic, partition = self.topic_partition
        base_offset, append_time_ms, error_of = self.base_offset, self.log_append_time_ms, self.error_of

        def outcome(sent: FutureRecordMetadata) -> RecordMetadata | KStoreError:
            index = sent.index
            return error_of(index) or RecordMetadata(
                topic,
                partition,
                NO_OFFSET if base_offset == NO_OFFSET else base_offset + index,
                sent.timestamp_ms if append_time_ms == NO_TIMESTAMP else append_time_ms,
                sent.serialized_key_size,
                sent.serialized_value_size,
            )

        return outcome

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
        """Leave the outcome to the pieces of the batch.

        Args: pieces: each with the index of its first record in this batch, the first one 0.
        Raises: ValueError if the result was set before.
        """
        self.set(NO_OFFSET)
        self.point_to(tuple(piece for _, piece in pieces), tuple(first for first, _ in pieces))
        self.done()

    def done(self) -> None:
        """Release all waiters and notify the watching futures; those of a split batch then watch their pieces.

        Raises: ValueError if the result was not set; KeyboardInterrupt from a callback, after all futures are notified.
        """
        self.notify(self.end())

    def notify(self, watchers: Iterable[Watcher]) -> None:
        """Tell futures that the batch has ended: the last step of done().  Raises: KeyboardInterrupt as done()."""
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
        """Wait until the batch, or every piece of it, is done; return False if the timeout expires first.

        Args: timeout_s: in seconds, None to wait without limit.
        """
        deadline = Deadline(timeout_s)
        pending = [self]
        while pending:
            result = pending.pop()
            if not result.wait(deadline):
                return False
            pending += result.pieces
        return True

    def await_record(self, index: int, timeout_s: float | None = None) -> bool:
        """Wait as await_() does for one record by its index, whose batch then does not linger.

        After a split, wait only for the piece that has the record.
        """
        deadline = Deadline(timeout_s)
        while True:
            result, _ = self.place_of(index)
            result.hurry()
            if not result.wait(deadline):
                return False
            if not result.pieces:
                return True

    def wait(self, deadline: Deadline) -> bool:
        """Wait for done() or split(), but not for pieces; return False if the deadline passes first."""
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
        """Return the piece that has the record of an index now, and its index there."""
        result = self
        while result.pieces:
            piece = bisect_right(result.first_indexes, index) - 1
            index -= result.first_indexes[piece]
            result = result.pieces[piece]
        return result, index

    def watch(self, watcher: Watcher) -> bool:
        """Notify a future when its record is done; return False if it is done already."""
        while True:
            result, _ = self.place_of(watcher.index)
            if result.add_watcher(watcher):
                return True
            if not result.pieces:
                return False
