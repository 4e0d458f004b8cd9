"""BatchCompletion: acts on the answer to each batch. It completes the batch, retries it, splits it, or fails it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kstore._core import answered_from, complete_batches
from kstore.config import MAX_INT32
from kstore.errors import (
    AppendError,
    KStoreError,
    OutOfOrderSequenceError,
    ProducerTimeoutError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
    SinkResponseError,
)
from kstore.producer.batches.batch import FinalState
from kstore.producer.sink import ProduceResponse, checked_response
from kstore.types import MAGIC_V2, NO_OFFSET

if TYPE_CHECKING:
    from kstore._core import RequestSums
    from kstore.producer.batches.accumulator import RecordAccumulator
    from kstore.producer.batches.batch import ProducerBatch
    from kstore.producer.cluster import Node
    from kstore.producer.transactions import TransactionManager


_logger = logging.getLogger("kstore.producer")


def _ignore(*_: object) -> None:
    """Do nothing: the default hook."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderHooks:
    """Callbacks of a Sender for metrics; they run in its thread and must not raise an exception.

    on_send: node and batches. on_response: node, batches, and the milliseconds that the sink took. on_direct_sends:
    what waiting threads sent. on_retry, on_error: topic and number of records. on_split: topic. is_held_here: whether
    the calling thread holds a lock that they need.
    """

    on_send: Callable[[Node, list[ProducerBatch]], None] = _ignore
    on_response: Callable[[Node, list[ProducerBatch], int], None] = _ignore
    on_direct_sends: Callable[[RequestSums], None] = _ignore
    on_retry: Callable[[str, int], None] = _ignore
    on_error: Callable[[str, int], None] = _ignore
    on_split: Callable[[str], None] = _ignore
    is_held_here: Callable[[], bool] = bool


class BatchCompletion:
    """Applies the answers to batches to the accumulator, the transaction manager and the batches' futures.

    With a transaction manager the batches of a partition complete in the order in which they were sent: a batch that is
    answered while an earlier one is being retried is held until that one completes.
    Threads: not safe; used by the Sender's thread.
    Source: Kafka Sender.completeBatch, failBatch, canRetry; there a later batch does not wait for an earlier one.
    """

    def __init__(
        self,
        accumulator: RecordAccumulator,
        *,
        transaction_manager: TransactionManager | None,
        retries: int = MAX_INT32,
        delivery_timeout_ms: int,
        hooks: SenderHooks,
    ) -> None:
        self._accumulator = accumulator
        self._transaction_manager = transaction_manager
        self._retries = retries
        self._delivery_timeout_ms = delivery_timeout_ms
        self._hooks = hooks
        self._to_split: set[ProducerBatch] = set()
        self._to_put_back: list[ProducerBatch] = []
        # Batches refused as out of order; the other answers of the call decide how they complete.
        self._out_of_order: list[tuple[ProducerBatch, ProduceResponse, OutOfOrderSequenceError]] = []
        # Raised by a callback or the sink.
        self._interrupt: KeyboardInterrupt | None = None

    def keep_interrupt(self, error: BaseException) -> None:
        """Store a KeyboardInterrupt for raise_interrupt(); ignore other exceptions."""
        if isinstance(error, KeyboardInterrupt):
            self._interrupt = error

    def raise_interrupt(self) -> None:
        """Raise the stored KeyboardInterrupt of a callback or the sink, after all batches were handled."""
        interrupt, self._interrupt = self._interrupt, None
        if interrupt is not None:
            raise interrupt

    def take_all(self, batches: list[ProducerBatch], answers: list[object], *, now_ms: int) -> None:
        """Handle the answers to batches in order, as take() does; runs of plain successes complete in one call."""
        at = 0
        while at < len(batches):
            end = answered_from(batches, answers, at, ProduceResponse)
            if end == at or not self._can_end_together(batches[at:end]):
                self.take(batches[at], answers[at], now_ms=now_ms)
                at += 1
                continue
            complete_batches(
                batches,
                answers,
                start=at,
                end=end,
                state=FinalState.SUCCEEDED,
                incomplete=self._accumulator.incomplete.batches,
                complete=self._end_as_sent,
            )
            at = end
        self._settle_out_of_order(now_ms=now_ms)

    def _can_end_together(self, batches: list[ProducerBatch]) -> bool:
        """Return whether these successful batches can complete together: no other one comes before or between them.

        If so, the transaction manager has recorded that they are in the log.
        """
        manager = self._transaction_manager
        if manager is None:
            return True
        return not self._accumulator.incomplete.has_held and manager.complete_next_batches(batches)

    def take(self, batch: ProducerBatch, answer: object, *, now_ms: int) -> None:
        """Handle the answer to one batch; a batch to send again waits for put_back()."""
        response = checked_response(answer, record_count=batch.record_count)
        error = response.error
        if error is None:
            self._complete(batch, response)
        elif self._should_split(batch, error):
            self._to_split.add(batch)
            self._to_put_back.append(batch)
        elif isinstance(error, OutOfOrderSequenceError) and self._transaction_manager is not None:
            self._out_of_order.append((batch, response, error))
        else:
            # A retriable or malformed answer leaves the outcome of the batch unknown; any other error does not.
            batch.is_in_doubt |= response.is_retriable or isinstance(error, SinkResponseError)
            self._retry_or_fail(batch, response, error, now_ms=now_ms)

    def _settle_out_of_order(self, *, now_ms: int) -> None:
        """Complete, retry or fail the batches that were refused as out of order.

        This comes after all answers of a call, because the answers to later batches can prove that these are in the
        log.
        """
        refused, self._out_of_order = self._out_of_order, []
        manager = self._transaction_manager
        for batch, response, error in refused:
            if manager is not None and manager.is_in_log(batch, error):
                self._complete(batch, ProduceResponse(NO_OFFSET))
            else:
                self._retry_or_fail(batch, response, error, now_ms=now_ms)

    def _retry_or_fail(
        self, batch: ProducerBatch, response: ProduceResponse, error: KStoreError, *, now_ms: int
    ) -> None:
        if self._can_retry(batch, response, now_ms=now_ms):
            _logger.debug("%s: sending %s records again: %s", batch.topic_partition, batch.record_count, error)
            self._to_put_back.append(batch)
            self._hooks.on_retry(batch.topic_partition.topic, batch.record_count)
        else:
            self.fail(batch, error, record_errors=response.record_errors, may_be_in_log=batch.is_in_doubt)

    def release_all(self, batches: list[ProducerBatch], answers: list[object]) -> None:
        """Complete batches whose outcome no one waits for (ack "buffered"), and free their memory."""
        for batch, answer in zip(batches, answers, strict=True):
            self._release(batch, checked_response(answer, record_count=batch.record_count).error)

    def fail_all(self, batches: list[ProducerBatch], failure: KStoreError, *, fails_futures: bool) -> None:
        """Fail batches whose outcome is unknown.

        Args: fails_futures: if False, the error is only logged.
        """
        for batch in batches:
            if fails_futures:
                self.fail(batch, failure, may_be_in_log=True)
            else:
                self._release(batch, failure)

    def put_back(self, *, now_ms: int) -> None:
        """Enqueue the batches to send again before all others of their partitions, in their original order."""
        while self._to_put_back:
            batch = self._to_put_back.pop()
            if batch in self._to_split:
                self._to_split.discard(batch)
                self._split(batch)
            else:
                self._accumulator.reenqueue(batch, now_ms)
        # A sink or another thread may have completed a batch that holds others.
        for batch in self._accumulator.incomplete.completed_with_followers():
            self._release_followers(batch)

    def abandon(self, error: KStoreError) -> None:
        """Fail the drained batches that are not done, after the run that drained them failed."""
        self._to_put_back.clear()
        self._to_split.clear()
        self._out_of_order.clear()
        for batch in self._accumulator.incomplete.copy_all():
            if not batch.is_inflight or self._accumulator.incomplete.is_held(batch):
                continue
            if batch.is_done:
                self._accumulator.deallocate(batch)
                self._release_followers(batch)
                continue
            self.fail(batch, error, may_be_in_log=True)

    def fail(
        self,
        batch: ProducerBatch,
        error: KStoreError,
        *,
        record_errors: Mapping[int, KStoreError] | None = None,
        may_be_in_log: bool,
    ) -> None:
        """Fail a batch permanently and free its memory.

        Args: record_errors: the errors of single records by their index in the batch; may_be_in_log: whether the batch
            may be in the log all the same.
        """
        manager = self._transaction_manager
        earlier = None if manager is None else manager.batch_before(batch)
        if manager is not None:
            manager.handle_failed_batch(batch, error, closes_gap=batch.has_sequence and not may_be_in_log)
            if batch.has_sequence and may_be_in_log:
                manager.mark_sequence_unresolved(batch)
        self._note_failed(batch, error)
        error_of = _errors_of_records(record_errors) if record_errors else None
        self._end(batch, lambda: batch.complete_exceptionally(error, error_of), after=earlier)

    def expire(self, batch: ProducerBatch, *, now_ms: int) -> None:
        """Fail a batch that is older than the delivery timeout."""
        passed_ms = now_ms - batch.created_ms
        error = ProducerTimeoutError(
            f"expiring {batch.record_count} record(s) for {batch.topic_partition}: {passed_ms} ms have passed since "
            "the batch was made"
        )
        self.fail(batch, error, may_be_in_log=batch.is_in_doubt)

    def _complete(self, batch: ProducerBatch, response: ProduceResponse) -> None:
        earlier = None
        if self._transaction_manager is not None:
            earlier = self._transaction_manager.batch_before(batch)
            self._transaction_manager.handle_completed_batches([batch])
        self._end_as_sent(batch, response, after=earlier)

    def _end_as_sent(
        self, batch: ProducerBatch, response: ProduceResponse, *, after: ProducerBatch | None = None
    ) -> None:
        offset, log_append_time_ms = response.base_offset, response.log_append_time_ms
        self._end(batch, lambda: batch.complete(offset, log_append_time_ms=log_append_time_ms), after=after)

    def _release(self, batch: ProducerBatch, error: KStoreError | None) -> None:
        if error is not None:
            self._note_failed(batch, error)
        self._end(batch, lambda: batch.complete(NO_OFFSET))

    def _note_failed(self, batch: ProducerBatch, error: KStoreError) -> None:
        _logger.warning("%s: %s records failed: %s", batch.topic_partition, batch.record_count, error)
        self._hooks.on_error(batch.topic_partition.topic, batch.record_count)

    def _end(self, batch: ProducerBatch, complete: Callable[[], object], *, after: ProducerBatch | None = None) -> None:
        """Complete a batch and those that it holds; if the batch `after` is not done, hold this one instead."""
        if after is not None and not after.is_done:
            self._accumulator.incomplete.hold(batch, complete, after=after)
            return
        self._end_now(batch, complete)
        self._release_followers(batch)

    def _release_followers(self, batch: ProducerBatch) -> None:
        """Complete the batches held by `batch`."""
        for follower, complete in self._accumulator.incomplete.released_by(batch):
            self._end_now(follower, complete)

    def _end_now(self, batch: ProducerBatch, complete: Callable[[], object]) -> None:
        """Complete a batch, unless another thread or the sink already has, and free its memory."""
        try:
            if not batch.is_done:
                complete()
        except KeyboardInterrupt as interrupt:
            self._interrupt = interrupt
        self._accumulator.deallocate(batch)

    def _should_split(self, batch: ProducerBatch, error: KStoreError) -> bool:
        return (
            isinstance(error, RecordTooLargeError | RecordBatchTooLargeError)
            and batch.record_count > 1
            and not batch.is_done
            and (batch.magic >= MAGIC_V2 or batch.is_compressed)
        )

    def _split(self, batch: ProducerBatch) -> None:
        _logger.info("%s: a batch of %s records is too large, and split", batch.topic_partition, batch.record_count)
        if self._transaction_manager is not None:
            self._transaction_manager.remove_in_flight_batch(batch)
        self._accumulator.split_and_reenqueue(batch)
        self._accumulator.deallocate(batch)
        self._hooks.on_split(batch.topic_partition.topic)

    def _can_retry(self, batch: ProducerBatch, response: ProduceResponse, *, now_ms: int) -> bool:
        if batch.is_done or batch.attempts >= self._retries:
            return False
        if batch.has_reached_delivery_timeout(self._delivery_timeout_ms, now_ms=now_ms):
            return False
        if self._transaction_manager is None:
            return response.is_retriable
        return self._transaction_manager.can_retry(response, batch)


def _errors_of_records(record_errors: Mapping[int, KStoreError]) -> Callable[[int], KStoreError]:
    others = AppendError("the record is valid, but the sink refused another record of its batch")

    def error_of(index: int) -> KStoreError:
        return record_errors.get(index, others)

    return error_of
