"""ProducerBatch: the records of one partition that are sent together; CompressionRatioEstimator, which predicts their
size.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

from kstore._core import (
    BufferPoolCore,
    ColumnBuffer,
    ProducerBatchCore,
    Record,
    RecordAppendResult,
    estimate_size_in_bytes_upper_bound,
    increment_sequence,
)
from kstore.compression import CompressionType
from kstore.errors import KStoreError
from kstore.producer.batches.futures import FutureRecordMetadata, ProduceRequestResult, RecordMetadata, record_metadata
from kstore.record.batches import MemoryRecords
from kstore.record.builder import MemoryRecordsBuilder
from kstore.types import MAGIC_V2, NO_OFFSET, TopicPartition

_FIRST_RATIO = 1.0
_WORSE_STEP = 0.05
_BETTER_STEP = 0.005


class CompressionRatioEstimator:
    """Expected compressed size / uncompressed size by topic and codec; 1.0 until a batch was measured.

    The estimate rises fast and falls slowly, because too low an estimate makes batches that the broker refuses as too
    large. Kafka's is global; here each accumulator has its own, so that producers do not affect each other.
    Threads: safe.  Source: Kafka CompressionRatioEstimator.
    """

    def __init__(self) -> None:
        self._ratios: dict[tuple[str, CompressionType], float] = {}
        self._lock = threading.Lock()

    def estimation(self, topic: str, compression: CompressionType) -> float:
        """Return the expected ratio."""
        return self._ratios.get((topic, compression), _FIRST_RATIO)

    def update_estimation(self, topic: str, compression: CompressionType, observed: float) -> float:
        """Adjust the estimate by the ratio of one batch and return the new estimate."""
        with self._lock:
            estimate = self.estimation(topic, compression)
            if observed > estimate:
                estimate = max(estimate + _WORSE_STEP, observed)
            elif observed < estimate:
                estimate = max(estimate - _BETTER_STEP, observed)
            self._ratios[topic, compression] = estimate
        return estimate

    def set_estimation(self, topic: str, compression: CompressionType, ratio: float) -> None:
        """Replace the estimate, after a batch proved too large."""
        with self._lock:
            self._ratios[topic, compression] = ratio


_ErrorOf: TypeAlias = Callable[[int], KStoreError]
LOGGER = logging.getLogger("kstore.producer")


class FinalState(Enum):
    """How a batch completed."""

    ABORTED = "aborted"
    FAILED = "failed"
    SUCCEEDED = "succeeded"


class ProducerBatch(ProducerBatchCore):
    """A batch through its life: filled, queued, sent, and finally succeeded, failed or aborted.

    try_append() appends a record and returns its future; append_record() creates the future only on demand. Callbacks
    run in append order, in the thread that completes the batch, before any future is done; their exceptions are logged.
    A KeyboardInterrupt is raised again once the whole batch is completed.
    Args: builder: without records; its buffer, if given, is accounted for by `pool`. open() creates both.
    Attributes: topic_partition; result (ProduceRequestResult); final_state (None until completed); created_ms,
        last_append_ms, last_attempt_ms, drained_ms (monotonic milliseconds); attempts (how often it was enqueued
        again); in_retry (it, or the batch it was split from, was sent before); is_in_doubt (an attempt to send it, or
        the batch it was split from, had no definite answer, so it may be in the log); is_inflight; send_count;
        record_count; max_record_size (upper bound, in bytes, of a batch with only the largest record); is_split_batch.
        Of its builder: magic, producer_id, producer_epoch, base_sequence, is_transactional, is_compressed, is_full,
        compression_ratio, estimated_size_in_bytes; estimator (of compression ratios, by topic). has_sequence;
        sequence_has_been_reset (for another epoch); is_writable (records may be added); is_closed (its bytes are
        final); is_done (it has an outcome); is_deallocated (its buffer was given back); current_leader_epoch (of the
        partition's leader, as the sink said); future_type (what try_append() makes).
    Threads: if two threads complete a batch the first one wins; the caller must serialize appends.
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
        pool: BufferPoolCore | None = None,
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
        pool: BufferPoolCore | None,
        buffer: ColumnBuffer,
        *,
        now_ms: int,
        magic: int = MAGIC_V2,
        compression: str | int = "none",
        level: int | None = None,
        is_transactional: bool = False,
        estimator: CompressionRatioEstimator | None = None,
        is_split_batch: bool = False,
    ) -> ProducerBatch:
        """Create a batch in a buffer of the pool; the size of the buffer limits the batch."""
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
        """Size of the closed batch in bytes; closes it if it is open."""
        return self.records().size_in_bytes

    def waited_ms(self, now_ms: int) -> int:
        """Return the milliseconds since the batch was created or last enqueued again."""
        return max(0, now_ms - self.last_attempt_ms)

    def has_reached_delivery_timeout(self, delivery_timeout_ms: int, *, now_ms: int) -> bool:
        """Return whether the batch is at least delivery_timeout_ms old."""
        return delivery_timeout_ms <= now_ms - self.created_ms

    def records(self) -> MemoryRecords:
        """Close the batch if it is open, and return it: a view of the buffer.

        Returns: the same object each time, until the producer state is reset.
        Raises: ValueError if it was aborted or deallocated, or if its producer state is inconsistent.
        Lifetime: the buffer is not reused while the result is referenced.
        """
        if not self.is_closed:
            self.close()
        records: MemoryRecords = self.seal()
        return records

    def close(self) -> None:
        """Compress the records, write the header and report the compression ratio to the estimator."""
        if self.is_closed:
            return
        self.seal()
        if self.estimator is not None and self.is_compressed and self.record_count:
            compression = self.builder.compression
            self.estimator.update_estimation(self.topic_partition.topic, compression, self.compression_ratio)

    def complete(self, base_offset: int, *, log_append_time_ms: int = -1) -> bool:
        """Complete the batch as succeeded; return False, and change nothing, if it has failed or was aborted.

        Raises: ValueError if it has succeeded already.
        """
        return self._end(FinalState.SUCCEEDED, base_offset, None, log_append_time_ms=log_append_time_ms)

    def complete_exceptionally(self, error: KStoreError, record_errors: _ErrorOf | None = None) -> bool:
        """Complete the batch as failed; return False, and change nothing, if it has failed or was aborted.

        Args: error: of all records; record_errors: returns the error of each record by its index instead.
        Raises: ValueError if it has succeeded already.
        """
        return self._end(FinalState.FAILED, NO_OFFSET, record_errors or (lambda _: error))

    def abort(self, error: KStoreError) -> None:
        """Abort a batch that was not sent, or whose answer is no longer awaited.

        Raises: ValueError if it is completed already.
        """
        if not self.abort_unless_done(error):
            raise ValueError(f"{self} is completed already: {self.final_state.value}")

    def abort_unless_done(self, error: KStoreError) -> bool:
        """Abort the batch unless it is completed already; return whether it was aborted."""
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
            raise ValueError(f"{self} has succeeded already: it can't become {state.value}")
        LOGGER.debug("%s has the final state %s: ignored %s", self, self.final_state.value, state.value)
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
        """Move the records to new batches of at most split_batch_size bytes, or of one record, and complete this one.

        A batch that came from a split is divided into at least two pieces if it has two records, so that splitting
        terminates. Futures and callbacks move with their records, created_ms is kept, and sequences continue from this
        batch's. The pieces take no more records. Their memory is counted but not waited for, even if the pool has none
        left; the caller deallocates this batch.
        Raises: ValueError for a batch that is completed or has no records, or is uncompressed and of magic 0 or 1.
        """
        if self.magic < MAGIC_V2 and not self.is_compressed:
            raise ValueError(f"an uncompressed batch of magic {self.magic} can't be split")
        if self.record_count == 0:
            raise ValueError("an empty batch can't be split")
        if self.is_done:
            raise ValueError(f"{self} is completed: {self.final_state.value}")
        pieces = self._pieces(split_batch_size, most_records=self.record_count)
        if len(pieces) == 1 < self.record_count and self.is_split_batch:
            pieces.pop().deallocate()
            pieces = self._pieces(split_batch_size, most_records=(self.record_count + 1) // 2)
        if not self.set_final_state(FinalState.FAILED):
            for piece in pieces:
                piece.deallocate()
            raise ValueError(f"{self} is completed: {self.final_state.value}")
        self._move_thunks(pieces)
        first, chain = 0, []
        for piece in pieces:
            piece.in_retry, piece.is_in_doubt = self.in_retry, self.is_in_doubt
            if self.has_sequence:
                piece.set_producer_state(
                    producer_id=self.producer_id,
                    producer_epoch=self.producer_epoch,
                    base_sequence=increment_sequence(self.base_sequence, count=first),
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
    """Append a record of a batch being split, without its callback, which moves later; return whether it fits."""
    key, value, headers = record.key, record.value, record.headers
    return piece.append_record(record.timestamp_ms, key, value, headers, None, piece.created_ms) is not None
