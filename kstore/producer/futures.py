"""RecordMetadata, and the future of it that each record has. Layer 5."""

from __future__ import annotations

from typing import NamedTuple

from kstore._core import RecordFuture
from kstore.errors import KStoreError, ProducerTimeoutError
from kstore.producer.result import ProduceRequestResult
from kstore.producer.safe_future import SafeFuture
from kstore.types import NO_OFFSET, NO_TIMESTAMP, TopicPartition

_MS_PER_S = 1000


class RecordMetadata(NamedTuple):
    """Where a record lies (Kafka: RecordMetadata). offset and timestamp_ms are -1 if unknown, sizes -1 for null."""

    topic: str
    partition: int
    offset: int = NO_OFFSET
    timestamp_ms: int = NO_TIMESTAMP
    serialized_key_size: int = -1
    serialized_value_size: int = -1

    @property
    def has_offset(self) -> bool:
        return self.offset != NO_OFFSET

    @property
    def has_timestamp(self) -> bool:
        return self.timestamp_ms != NO_TIMESTAMP


def record_metadata(
    result: ProduceRequestResult,
    *,
    index: int,
    timestamp_ms: int,
    serialized_key_size: int,
    serialized_value_size: int,
) -> RecordMetadata:
    """Return what a batch's result says of one of its records."""
    return RecordMetadata(
        result.topic_partition.topic,
        result.topic_partition.partition,
        NO_OFFSET if result.base_offset == NO_OFFSET else result.base_offset + index,
        timestamp_ms if result.log_append_time_ms == NO_TIMESTAMP else result.log_append_time_ms,
        serialized_key_size,
        serialized_value_size,
    )


class FutureRecordMetadata(RecordFuture, SafeFuture[RecordMetadata]):
    """The future RecordMetadata of one record: a concurrent.futures.Future that can't be cancelled.

    It is done when the batch is, after all callbacks of the batch.
    Threads: safe.  Source: Kafka FutureRecordMetadata.
    """

    def __repr__(self) -> str:
        state = "done" if self.done() else "pending"
        return f"FutureRecordMetadata({self.produce_result.topic_partition}, index={self.index}, {state})"

    def settle(self) -> None:
        """Tell those who wait for the future, and run its callbacks; for the result of its batch."""
        self.tell()

    def _ask_to_be_told(self) -> None:
        self.produce_result.watch(self)

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
        if not self.produce_result.await_record(self.index, timeout):
            raise timed_out(timeout)

    def done(self) -> bool:
        return self._place()[0].is_done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Return where the record lies, or raise why it failed; wait for it at most `timeout` seconds.

        Raises: ProducerTimeoutError, also when the batch is done later.
        """
        self._wait(timeout)
        error = self._error()
        if error is not None:
            # One error may stand for many records: without this each raise would add to its traceback.
            raise error.with_traceback(None)
        return self._metadata()

    def exception(self, timeout: float | None = None) -> KStoreError | None:
        """Return why the record failed, None if it did not; wait as result()."""
        self._wait(timeout)
        return self._error()


def timed_out(timeout: float | None) -> ProducerTimeoutError:
    """Return the error of a wait for a future that was over before it was done; the timeout is in seconds."""
    return ProducerTimeoutError(f"Timeout after waiting for {int((timeout or 0) * _MS_PER_S)} ms.")


def failed_future(topic_partition: TopicPartition, error: KStoreError) -> FutureRecordMetadata:
    """Return the future of a record that came into no batch."""
    result = ProduceRequestResult(topic_partition)
    result.set(NO_OFFSET, error_of=lambda _: error)
    result.done()
    return FutureRecordMetadata(
        result, index=0, timestamp_ms=NO_TIMESTAMP, serialized_key_size=-1, serialized_value_size=-1
    )
