"""Columns -> batches of an accumulator: rows are placed by their keys, packed into pooled memory, queued. Layer 5."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kstore._core import RecordBatchPacker, give_up, pack_rows_into
from kstore.errors import KStoreError, RecordTooLargeError, UnknownTopicOrPartitionError
from kstore.producer.batches.futures import ColumnsFuture
from kstore.producer.cluster import Cluster
from kstore.record.packing import RecordColumns
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore._core import ColumnBuffer, PartitionQueue
    from kstore.producer.batches.accumulator import RecordAccumulator
    from kstore.producer.batches.batch import ProducerBatch
    from kstore.producer.partitioner import StickyPartitionInfo


def record_columns_of(columns: Any, *, timestamp_ms: int) -> Iterable[RecordColumns]:
    """Return RecordColumns as they are, or those of each record batch of Arrow data.

    Args: timestamp_ms: of all rows where there is no timestamp column.
    Raises: TypeError for anything else; ValueError as kstore.arrow.record_columns.
    """
    if isinstance(columns, RecordColumns):
        return (columns,)
    from kstore.arrow import record_columns, to_record_batches

    return (record_columns(batch, timestamp_ms=timestamp_ms) for batch in to_record_batches(columns))


def append_columns(
    accumulator: RecordAccumulator,
    topic: str,
    columns: RecordColumns,
    *,
    partition: int | None = None,
    max_time_to_block_ms: int,
    cluster: Cluster,
    now_ms: int | None = None,
    max_record_bytes: int | None = None,
    on_new_batch: Callable[[int], object] | None = None,
) -> ColumnsFuture:
    """Append all rows as batches that take no other records, behind what waits already.

    Args: partition: None to place each row by its key, as Kafka's producer does, and rows without a key in the
        partition of records that name none; columns: without offsets; max_time_to_block_ms: how long to wait for
        memory, for each batch; now_ms: None for the clock's; max_record_bytes: what a record may take in a batch of
        its own; on_new_batch: called with the partition behind each batch, or some, to wake who sends them.
    Returns: a future of (partition, base_offset, record_count) for each batch, in the order of their making. What
        fails when batches wait already, such as memory that comes too late, fails the future.
    Raises: ProducerClosedError; TransactionStateError; BufferExhaustedError; UnknownTopicOrPartitionError;
        RecordTooLargeError; ValueError with the row, for columns that no record can be made of. Then nothing was
        appended.
    Threads: safe; rows are packed without the GIL.  Cost: one pass to check, one to pack, one to place keys; memory
        of the pool, and 12 bytes for each row where keys are placed.
    """
    append = ColumnsAppend(
        accumulator,
        topic,
        columns,
        max_time_to_block_ms=max_time_to_block_ms,
        max_record_bytes=max_record_bytes,
        now_ms=accumulator.clock.monotonic_ms() if now_ms is None else now_ms,
        cluster=cluster,
        on_new_batch=on_new_batch,
    )
    return append.run(partition)


# Batches that are packed by one call, without the GIL: taking it back costs more than packing one.
_MOST_AT_ONCE = 32


class ColumnsAppend:
    """One call of append_columns().

    Args: max_record_bytes: None for no bound but the memory of the pool; on_new_batch: as of
        append_columns.
    Raises: ValueError, with the row, for columns of which no record can be made; RecordTooLargeError.
    Threads: the one that calls; the GIL is released while rows are checked, placed and packed.
    """

    def __init__(
        self,
        accumulator: RecordAccumulator,
        topic: str,
        columns: RecordColumns,
        *,
        max_time_to_block_ms: int,
        max_record_bytes: int | None,
        now_ms: int,
        cluster: Cluster,
        on_new_batch: Callable[[int], object] | None,
    ) -> None:
        if columns.offset is not None:
            raise ValueError("columns of a producer have no offsets: the log gives them")
        self._accumulator = accumulator
        self._topic = topic
        self._has_keys = columns.key is not None
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
        """Append all rows and return their future; see RecordAccumulator.append_columns."""
        future = self._future
        try:
            if partition is not None:
                self._append_to(partition)
            elif self._has_keys:
                self._append_by_key()
            else:
                self._append_sticky()
        except (KStoreError, ValueError) as error:
            if future.appended_rows == 0:
                raise
            future.wait(error)
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
        """Append to the partition of records that name none, which may change behind each batch."""
        partitioner = self._accumulator.queues_of(self._topic).partitioner
        while self._packer.rows_left:
            info = partitioner.peek_current_partition_info(self._cluster)
            queue = self._queue_of(info.partition)
            self._append_run(queue, most=1, info=info)

    def _queue_of(self, partition: int) -> PartitionQueue:
        return self._accumulator.queue_of(TopicPartition(self._topic, partition))

    def _append_run(self, queue: PartitionQueue, *, most: int, info: StickyPartitionInfo | None = None) -> None:
        """Append the next rows: one batch, whose memory is waited for, and as many more as there is memory for."""
        accumulator, partition = self._accumulator, queue.topic_partition.partition
        held: list[ColumnBuffer] = []
        batches: list[ProducerBatch] = []
        try:
            count = self._pack_batches(batches, held, queue.topic_partition, most=most)
            packed = batches[:count]
            accumulator.append_batches(queue, batches, count=count, info=info, cluster=self._cluster)
            self._future.add(partition, ((batch.result, batch.record_count) for batch in packed))
        finally:
            # What is in no queue, and where an interrupt came before it was in a batch.
            give_up(accumulator.pool, held, batches)
        if self._on_new_batch is not None:
            self._on_new_batch(partition)

    def _pack_batches(
        self, batches: list[ProducerBatch], held: list[ColumnBuffer], topic_partition: TopicPartition, *, most: int
    ) -> int:
        """Make batches of the next rows, in memory that `held` has on its way; return how many got rows."""
        accumulator = self._accumulator
        pool, size = accumulator.pool, accumulator.batch_size
        if self._largest_bytes > size:
            size, most = max(size, self._packer.next_record_bytes), 1
        left = self._packer.rows_left * self._largest_bytes // size + 1
        now_ms = self._clock.monotonic_ms() + self._clock_offset_ms
        pool.allocate_into(held, size, max_time_to_block_ms=self._max_time_to_block_ms)
        accumulator.open_batches(batches, topic_partition, held, now_ms, most=min(most, left))
        count = pack_rows_into(batches, self._packer)
        # Here, while the Sender is busy with earlier ones; the last batch may have room left.
        for batch in batches[: count - 1]:
            if batch.is_compressed:
                batch.compress_records()
        return count
