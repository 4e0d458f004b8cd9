"""ProducerBatch: the records of one partition that are sent together, and what becomes of them. Layer 5."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

from kstore._core import (
    BatchAppender,
    ColumnBuffer,
    PoolMemory,
    Record,
    RecordAppendResult,
    estimate_size_in_bytes_upper_bound,
)
from kstore.compression import CompressionType
from kstore.errors import KStoreError
from kstore.producer.batches.futures import FutureRecordMetadata, ProduceRequestResult, RecordMetadata, record_metadata
from kstore.producer.batches.ids import add_to_sequence
from kstore.record import MemoryRecords, MemoryRecordsBuilder
from kstore.types import NO_OFFSET, TopicPartition

_FIRST_RATIO = 1.0
_WORSE_STEP = 0.05
_BETTER_STEP = 0.005


class CompressionRatioEstimator:
    """Size behind by size before compression, for each topic and codec; 1.0 until a batch was seen.

    It rises fast and falls slowly: too low an estimate makes batches that the broker refuses. Unlike Kafka's it is no
    global, so that producers do not mix what they know.

    Threads: safe.  Source: Kafka CompressionRatioEstimator.
    """

    def __init__(self) -> None:
        self._ratios: dict[tuple[str, CompressionType], float] = {}
        self._lock = threading.Lock()

    def estimation(self, topic: str, compression: CompressionType) -> float:
        """Return the ratio to expect."""
        return self._ratios.get((topic, compression), _FIRST_RATIO)

    def update_estimation(self, topic: str, compression: CompressionType, observed: float) -> float:
        """Take the ratio of a batch into account and return the new estimate."""
        with self._lock:
            estimate = self.estimation(topic, compression)
            if observed > estimate:
                estimate = max(estimate + _WORSE_STEP, observed)
            elif observed < estimate:
                estimate = max(estimate - _BETTER_STEP, observed)
            self._ratios[topic, compression] = estimate
        return estimate

    def set_estimation(self, topic: str, compression: CompressionType, ratio: float) -> None:
        """Replace the estimate, for a batch that proved too large."""
        with self._lock:
            self._ratios[topic, compression] = ratio


_ErrorOf: TypeAlias = Callable[[int], KStoreError]
LOGGER = logging.getLogger("kstore.producer")
_MAGIC_V2 = 2


class FinalState(Enum):
    """How a batch ended."""

    ABORTED = "aborted"
    FAILED = "failed"
    SUCCEEDED = "succeeded"


class ProducerBatch(BatchAppender):
    """A batch that is being filled, waits, is sent, and at last succeeds, fails or is aborted.

    A record is appended by try_append(), which returns its future, or append_record(), which makes none until it is
    asked for one. Callbacks run in the order of the appends, in the thread that ends the batch, before any future is
    done; what they raise is logged. A KeyboardInterrupt is raised again when the batch has ended as a whole.

    Attributes: topic_partition, result (ProduceRequestResult), final_state (None while there is none), created_ms,
        last_append_ms, last_attempt_ms, drained_ms (all monotonic), attempts, in_retry (it, or what it was split from,
        was sent before), is_in_doubt (an attempt of it, or of what it was split from, had no certain answer: it may be
        in the log), is_inflight, send_count, record_count, max_record_size (most bytes that a batch of the largest
        record takes), is_split_batch.
    Args: builder: without a record; its buffer, if it was given one, is counted by `pool`. open() makes both.
    Threads: of two that end a batch one comes first; appends need the caller's order.
    Source: Kafka ProducerBatch, with KAFKA-19012.
    """

    __slots__ = ()
    future_type = FutureRecordMetadata

    def __init__(
        self,
        topic_partition: TopicPartition,
        builder: MemoryRecordsBuilder,
        created_ms: int,
        *,
        pool: PoolMemory | None = None,
        estimator: CompressionRatioEstimator | None = None,
        is_split_batch: bool = False,
    ) -> None:
        result = ProduceRequestResult(topic_partition)
        super().__init__(
            topic_partition,
            builder,
            created_ms,
            result=result,
            pool=pool,
            estimator=estimator,
            is_split_batch=is_split_batch,
        )
        if estimator is not None and self.is_compressed:
            ratio = estimator.estimation(topic_partition.topic, builder.compression)
            builder.estimated_compression_ratio = ratio

    @classmethod
    def open(
        cls,
        topic_partition: TopicPartition,
        pool: PoolMemory | None,
        buffer: ColumnBuffer,
        *,
        now_ms: int,
        magic: int = _MAGIC_V2,
        compression: str | int = "none",
        level: int | None = None,
        is_transactional: bool = False,
        estimator: CompressionRatioEstimator | None = None,
        is_split_batch: bool = False,
    ) -> ProducerBatch:
        """Begin a batch in a buffer of the pool, which is full where the buffer ends."""
        builder = MemoryRecordsBuilder(
            magic=magic,
            compression=compression,
            level=level,
            is_transactional=is_transactional,
            write_limit_bytes=len(buffer),
            buffer=buffer,
        )
        return cls(topic_partition, builder, now_ms, pool=pool, estimator=estimator, is_split_batch=is_split_batch)

    def __repr__(self) -> str:
        return f"ProducerBatch({self.topic_partition}, record_count={self.record_count}, attempts={self.attempts})"

    @property
    def size_in_bytes(self) -> int:
        """The bytes of the closed batch."""
        return self.records().size_in_bytes

    def waited_ms(self, now_ms: int) -> int:
        """Return how long the batch has waited since it was created or put back."""
        return max(0, now_ms - self.last_attempt_ms)

    def has_reached_delivery_timeout(self, delivery_timeout_ms: int, *, now_ms: int) -> bool:
        """Say whether the batch is as old as it may become."""
        return delivery_timeout_ms <= now_ms - self.created_ms

    def records(self) -> MemoryRecords:
        """Close the batch if it is open, and return it: a view of the buffer, the same until the batch is reset.

        Raises: ValueError if it was aborted or deallocated, or its producer state contradicts itself.
        Lifetime: as long as it is kept the buffer is not used again.
        """
        if not self.is_closed:
            self.close()
        records: MemoryRecords = self.seal()
        return records

    def close(self) -> None:
        """Compress the records, write the header, and tell the estimator how well they compressed."""
        if self.is_closed:
            return
        self.seal()
        if self.estimator is not None and self.is_compressed and self.record_count:
            compression = self.builder.compression
            self.estimator.update_estimation(self.topic_partition.topic, compression, self.compression_ratio)

    def complete(self, base_offset: int, *, log_append_time_ms: int = -1) -> bool:
        """End the batch as sent; return False if it had ended otherwise before, which stays so.

        Raises: ValueError if it had succeeded before.
        """
        return self._end(FinalState.SUCCEEDED, base_offset, None, log_append_time_ms=log_append_time_ms)

    def complete_exceptionally(self, error: KStoreError, record_errors: _ErrorOf | None = None) -> bool:
        """End the batch as failed, each record with its own error if they differ; return as complete().

        Raises: ValueError if it had succeeded before.
        """
        return self._end(FinalState.FAILED, NO_OFFSET, record_errors or (lambda _: error))

    def abort(self, error: KStoreError) -> None:
        """End a batch that was not sent, or whose answer is not waited for any more.

        Raises: ValueError if it had ended before.
        """
        if not self.abort_unless_done(error):
            raise ValueError(f"{self} had ended before: {self.final_state.value}")

    def abort_unless_done(self, error: KStoreError) -> bool:
        """Do as abort(), but leave a batch alone that has ended; return whether it had not."""
        if not self.set_final_state(FinalState.ABORTED):
            return False
        self._finish(NO_OFFSET, lambda _: error)
        return True

    def _end(
        self, state: FinalState, base_offset: int, error_of: _ErrorOf | None, *, log_append_time_ms: int = -1
    ) -> bool:
        if self.set_final_state(state):
            self._finish(base_offset, error_of, log_append_time_ms=log_append_time_ms)
            return True
        if self.final_state is FinalState.SUCCEEDED:
            raise ValueError(f"{self} had succeeded before: it can't become {state.value}")
        LOGGER.debug("%s had %s before and stays so: ignored that it has %s", self, self.final_state.value, state.value)
        return False

    def _finish(self, base_offset: int, error_of: _ErrorOf | None, *, log_append_time_ms: int = -1) -> None:
        self.result.set(base_offset, log_append_time_ms=log_append_time_ms, error_of=error_of)
        try:
            self._run_callbacks(error_of)
        finally:
            self.result.done()

    def _run_callbacks(self, error_of: _ErrorOf | None) -> None:
        taken = self.take_thunks()
        if not taken:
            return
        thunks = iter(taken)
        interrupt: KeyboardInterrupt | None = None
        while True:
            try:
                for thunk in thunks:
                    self._run_callback(thunk, error_of)
                break
            except KeyboardInterrupt as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def _run_callback(self, thunk: RecordAppendResult, error_of: _ErrorOf | None) -> None:
        try:
            if error_of is None:
                thunk.callback(self._metadata_of(thunk), None)
            else:
                thunk.callback(RecordMetadata(*self.topic_partition), error_of(thunk.index))
        except KeyboardInterrupt:
            raise
        except BaseException:
            LOGGER.exception("the callback of record %d of a batch of %s failed", thunk.index, self.topic_partition)

    def _metadata_of(self, thunk: RecordAppendResult) -> RecordMetadata:
        return record_metadata(
            self.result,
            index=thunk.index,
            timestamp_ms=thunk.timestamp_ms,
            serialized_key_size=thunk.serialized_key_size,
            serialized_value_size=thunk.serialized_value_size,
        )

    def split(self, split_batch_size: int) -> deque[ProducerBatch]:
        """Share the records out to batches of at most that size, or of one record, and end this one.

        What was split off before becomes at least two pieces, if it has two records, so that splitting comes to an end.
        Futures and callbacks go with their records, created_ms stays, and sequences go on from this batch's. The pieces
        are closed for appends. Their memory counts, whether there is any or not: this batch's is to be deallocated.
        Raises: ValueError for a batch that has ended or has no records, or for uncompressed ones of magic 0 or 1.
        """
        if self.magic < _MAGIC_V2 and not self.is_compressed:
            raise ValueError(f"an uncompressed batch of magic {self.magic} can't be split")
        if self.record_count == 0:
            raise ValueError("an empty batch can't be split")
        if self.is_done:
            raise ValueError(f"{self} has ended: {self.final_state.value}")
        pieces = self._pieces(split_batch_size, most_records=self.record_count)
        if len(pieces) == 1 < self.record_count and self.is_split_batch:
            pieces.pop().deallocate()
            pieces = self._pieces(split_batch_size, most_records=(self.record_count + 1) // 2)
        if not self.set_final_state(FinalState.FAILED):
            for piece in pieces:
                piece.deallocate()
            raise ValueError(f"{self} has ended: {self.final_state.value}")
        self._move_thunks(pieces)
        first, chain = 0, []
        for piece in pieces:
            piece.in_retry, piece.is_in_doubt = self.in_retry, self.is_in_doubt
            if self.has_sequence:
                piece.set_producer_state(
                    producer_id=self.producer_id,
                    producer_epoch=self.producer_epoch,
                    base_sequence=add_to_sequence(self.base_sequence, count=first),
                    is_transactional=self.is_transactional,
                )
            chain.append((first, piece.result))
            first += piece.record_count
        self.result.split(chain)
        return pieces

    def _pieces(self, split_batch_size: int, *, most_records: int) -> deque[ProducerBatch]:
        pieces: deque[ProducerBatch] = deque()
        try:
            for record in self.records():
                if not pieces or pieces[-1].record_count == most_records or not append_again(pieces[-1], record):
                    pieces.append(self._piece_for(record, split_batch_size))
                    append_again(pieces[-1], record)
        except BaseException:
            for piece in pieces:
                piece.deallocate()
            raise
        for piece in pieces:
            piece.close_for_record_appends()
        return pieces

    def _piece_for(self, record: Record, split_batch_size: int) -> ProducerBatch:
        least = estimate_size_in_bytes_upper_bound(
            magic=self.magic,
            compression=self.builder.compression,
            key=record.key,
            value=record.value,
            headers=record.headers,
        )
        size = max(least, split_batch_size)
        buffer = ColumnBuffer(size) if self.pool is None else self.pool.allocate_anyway(size)
        return self.open(
            self.topic_partition,
            self.pool,
            buffer,
            now_ms=self.created_ms,
            magic=self.magic,
            compression=self.builder.compression,
            level=self.builder.level,
            is_transactional=self.is_transactional,
            estimator=self.estimator,
            is_split_batch=True,
        )

    def _move_thunks(self, pieces: deque[ProducerBatch]) -> None:
        first, rest = 0, iter(pieces)
        piece = next(rest)
        for thunk in self.take_thunks():
            while thunk.index >= first + piece.record_count:
                first += piece.record_count
                piece = next(rest)
            piece.adopt(thunk, index=thunk.index - first)


def append_again(piece: ProducerBatch, record: Record) -> bool:
    """Append a record of a batch that is split, whose callback is moved later; say whether there was room."""
    key, value, headers = record.key, record.value, record.headers
    return piece.append_record(record.timestamp_ms, key, value, headers, None, piece.created_ms) is not None
