"""Appends columns to an accumulator: places rows by key, packs them into pooled buffers and queues the batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kstore._core import RecordBatchPacker, give_up, pack_rows_into
from kstore.errors import KStoreError, RecordTooLargeError, UnknownTopicOrPartitionError
from kstore.producer.batches.futures import ColumnsFuture
from kstore.producer.cluster import Cluster
from kstore.producer.sink import as_kstore_error
from kstore.record.packing import RecordColumns
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore._core import ColumnBuffer, PartitionQueue, StickyPartitionInfo
    from kstore.producer.batches.accumulator import RecordAccumulator
    from kstore.producer.batches.batch import ProducerBatch


def record_columns_of(columns: Any, *, timestamp_ms: int) -> Iterable[RecordColumns]:
    """Return an iterable of RecordColumns: the argument itself, or one per record batch of Arrow data.

    Args: timestamp_ms: the timestamp of all rows, if there is no timestamp column.
    Raises: TypeError for anything else; ValueError as kstore.arrow.record_columns.
    """
    if isinstance(columns, RecordColumns):
        return (columns,)
    from kstore.arrow.packing import record_columns, to_record_batches

    return (record_columns(batch, timestamp_ms=timestamp_ms) for batch in to_record_batches(columns))


def append_error_of(error: Exception) -> KStoreError | ValueError:
    """Return an error of an append as a ColumnsFuture reports it: as it is, or as the cause of a KStoreError."""
    return error if isinstance(error, ValueError) else as_kstore_error(error, "not all rows were sent")


def append_columns(
    accumulator: RecordAccumulator,
    topic: str,
    columns: RecordColumns,
    *,
    partition: int | None = None,
    ignores_keys: bool = False,
    max_time_to_block_ms: int,
    cluster: Cluster,
    now_ms: int | None = None,
    max_record_bytes: int | None = None,
    on_new_batch: Callable[[int], object] | None = None,
) -> ColumnsFuture:
    """Append all rows as batches of their own, after the batches that are queued already.

    Args:
        partition: None to place each row by its key, as Kafka's producer does, and rows without a key in the sticky
            partition.
        ignores_keys: whether rows with a key go to the sticky partition too.
        columns: without offsets.
        max_time_to_block_ms: how long to wait for memory, for each batch.
        now_ms: monotonic time, None for the accumulator's clock.
        max_record_bytes: the most bytes that a record may take in a batch of its own, None for the pool's memory.
        on_new_batch: called with the partition after one or more batches are queued, to wake the sender.
    Returns: a future of (partition, base_offset, record_count) of each batch, in the order of creation. An error after
        the first batch is queued, such as a timeout of the wait for memory, fails the future.
    Raises: ProducerClosedError; TransactionStateError; BufferExhaustedError; UnknownTopicOrPartitionError;
        RecordTooLargeError; ValueError, with the row, for columns that can't be encoded as records. Nothing is appended
        then.
    Threads: safe; rows are packed without the GIL.
    Cost: one pass to check, one to pack, one to place by key; memory from the pool, plus 12 bytes per row if rows are
        placed by key.
    """
    append = ColumnsAppend(
        accumulator,
        topic,
        columns,
        ignores_keys=ignores_keys,
        max_time_to_block_ms=max_time_to_block_ms,
        max_record_bytes=max_record_bytes,
        now_ms=accumulator.clock.monotonic_ms() if now_ms is None else now_ms,
        cluster=cluster,
        on_new_batch=on_new_batch,
    )
    return append.run(partition)


# The most batches packed by one call without the GIL: reacquiring it costs more than packing one batch.
_MOST_AT_ONCE = 32


class ColumnsAppend:
    """One call of append_columns(); the arguments are the same.

    Raises: ValueError, with the row, for columns that can't be encoded as records; RecordTooLargeError.
    Threads: used by one thread; the GIL is released while rows are checked, placed and packed.
    """

    def __init__(
        self,
        accumulator: RecordAccumulator,
        topic: str,
        columns: RecordColumns,
        *,
        ignores_keys: bool,
        max_time_to_block_ms: int,
        max_record_bytes: int | None,
        now_ms: int,
        cluster: Cluster,
        on_new_batch: Callable[[int], object] | None,
    ) -> None:
        if columns.offset is not None:
            raise ValueError("columns to append must not have offsets: the log assigns them")
        self._accumulator = accumulator
        self._topic = topic
        self._places_by_key = columns.key is not None and not ignores_keys
        self._max_time_to_block_ms = max_time_to_block_ms
        self._clock = accumulator.clock
        self._clock_offset_ms = now_ms - self._clock.monotonic_ms()
        self._cluster = cluster
        self._on_new_batch = on_new_batch
        self._future = ColumnsFuture()
        batch_bytes = max(accumulator.batch_size, 1)
        self._packer = RecordBatchPacker(**columns._asdict(), batch_bytes=batch_bytes, run_bytes=batch_bytes)
        self._largest_bytes = self._packer.check_rows()
        most = accumulator.pool.memory if max_record_bytes is None else max_record_bytes
        if self._largest_bytes > min(most, accumulator.pool.memory):
            raise RecordTooLargeError(
                f"a record takes up to {self._largest_bytes} bytes: expected at most {most}, "
                f"and not more than the {accumulator.pool.memory} of the pool"
            )

    def run(self, partition: int | None) -> ColumnsFuture:
        """Append all rows and return their future; see append_columns()."""
        future = self._future
        try:
            if partition is not None:
                self._append_to(partition)
            elif self._places_by_key:
                self._append_by_key()
            else:
                self._append_sticky()
        except Exception as error:
            if future.appended_rows == 0:
                raise
            future.wait(append_error_of(error))
        else:
            future.wait()
        return future

    def _append_by_key(self) -> None:
        partition_count = self._cluster.partition_count(self._topic)
        if partition_count == 0:
            raise UnknownTopicOrPartitionError(f"topic {self._topic!r} has no partitions")
        first = 0
        for partition, count in enumerate(self._packer.sort_by_partition(partition_count)):
            if count:
                self._packer.select(first=first, count=count)
                if partition < partition_count:
                    self._append_to(partition)
                else:
                    self._append_sticky()
            first += count

    def _append_to(self, partition: int) -> None:
        queue = self._queue_of(partition)
        while self._packer.rows_left:
            self._append_run(queue, most=_MOST_AT_ONCE)

    def _append_sticky(self) -> None:
        """Append to the sticky partition, which may change after each batch."""
        partitioner = self._accumulator.queues_of(self._topic).partitioner
        while self._packer.rows_left:
            info = partitioner.peek_current_partition_info(self._cluster)
            queue = self._queue_of(info.partition)
            self._append_run(queue, most=1, info=info)

    def _queue_of(self, partition: int) -> PartitionQueue:
        return self._accumulator.queue_of(TopicPartition(self._topic, partition))

    def _append_run(self, queue: PartitionQueue, *, most: int, info: StickyPartitionInfo | None = None) -> None:
        """Append the next rows: one batch, waiting for its memory, and up to most - 1 more while there is memory."""
        accumulator, partition = self._accumulator, queue.topic_partition.partition
        held: list[ColumnBuffer] = []
        batches: list[ProducerBatch] = []
        try:
            count = self._pack_batches(batches, held, queue.topic_partition, most=most)
            packed = batches[:count]
            accumulator.append_batches(queue, batches, count=count, info=info, cluster=self._cluster)
            self._future.add(partition, ((batch.result, batch.record_count) for batch in packed))
        finally:
            # Batches that were not queued, and buffers that were not moved into a batch because of an interrupt.
            give_up(accumulator.pool, held, batches)
        if self._on_new_batch is not None:
            self._on_new_batch(partition)

    def _pack_batches(
        self, batches: list[ProducerBatch], held: list[ColumnBuffer], topic_partition: TopicPartition, *, most: int
    ) -> int:
        """Create batches of the next rows, passing their buffers through `held`; return how many got rows."""
        accumulator = self._accumulator
        pool, size = accumulator.pool, accumulator.batch_size
        if self._largest_bytes > size:
            size, most = max(size, self._packer.next_record_bytes), 1
        left = self._packer.rows_left * self._largest_bytes // size + 1
        now_ms = self._clock.monotonic_ms() + self._clock_offset_ms
        pool.allocate_into(held, size, max_time_to_block_ms=self._max_time_to_block_ms)
        accumulator.open_batches(batches, topic_partition, held, now_ms, most=min(most, left))
        count = pack_rows_into(batches, self._packer)
        # Compress here, while the Sender writes earlier batches; the last batch may still have room.
        for batch in batches[: count - 1]:
            if batch.is_compressed:
                batch.compress_records()
        return count
