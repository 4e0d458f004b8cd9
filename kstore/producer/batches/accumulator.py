"""RecordAccumulator and its BufferPool: records are gathered in batches by partition until they are sent."""

from __future__ import annotations

import random as random_module
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kstore._core import (
    BufferPoolCore,
    PartitionQueue,
    RecordAccumulatorCore,
    RecordAppendResult,
    TopicQueues,
    estimate_size_in_bytes_upper_bound,
    push_batches,
)
from kstore.compression import CompressionType, compress
from kstore.env.process import SYSTEM_CLOCK, Clock
from kstore.errors import KStoreError, ProducerClosedError, TransactionStateError
from kstore.producer.batches.batch import CompressionRatioEstimator, ProducerBatch
from kstore.producer.batches.drain import (
    NO_READY_CHECK_MS,
    Drain,
    ReadyCheck,
    ReadyCheckResult,
    RetryBackoff,
    SequenceManager,
)
from kstore.producer.batches.futures import ProduceRequestResult
from kstore.producer.batches.incomplete import Flushes, IncompleteBatches
from kstore.producer.batches.sequences import is_sequence_after
from kstore.producer.cluster import Cluster, Node
from kstore.producer.partitioner import BuiltInPartitioner
from kstore.record.builder import MemoryRecordsBuilder
from kstore.types import MAGIC_V2, TopicPartition

if TYPE_CHECKING:
    from kstore._core import ColumnBuffer, DirectSend, StickyPartitionInfo


class BufferPool(BufferPoolCore):
    """Buffers from a bounded memory; those of `poolable_size` bytes are reused, others are allocated and freed.

    Waiters are served in FIFO order and gather memory piece by piece; a newcomer queues after them (Kafka's pool lets
    it overtake). All memory of batches is counted, including what they grew by: available_memory plus the held bytes
    always equals `memory`. The free list is a stack, because the buffer returned last is still in the CPU's cache.
    Attributes: memory, poolable_size (bytes, as given); buffer_exhausted_count (waits that ended without memory);
        is_closed (requests for memory are refused).
    Raises: ValueError if memory is negative or poolable_size is below 1.
    Threads: safe; code without the GIL may take and return buffers.  Source: Kafka BufferPool.
    """

    def __init__(self, memory: int, poolable_size: int, *, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(memory, poolable_size, clock=clock)


class RecordAccumulator(RecordAccumulatorCore):
    """Gathers records in batches by partition; the sender asks which are ready, drains them and completes them.

    All now_ms are times of one monotonic clock. Batches that are muted, backing off or blocked are skipped.
    Args:
        batch_size: uncompressed bytes of a batch; a larger record gets a batch of its own.
        pool: allocates the memory of batches.
        linger_ms: how long a batch waits for more records.
        delivery_timeout_ms: how long after its creation a batch expires.
        transaction_manager: assigns sequence numbers; None without idempotence.
        adaptive_partitioning: whether partitions with short queues are chosen more often (KIP-794).
        partition_availability_timeout_ms: how long a node may have batches ready and accept none before its partitions
            are no longer chosen; 0 for no limit.
        random: chooses partitions and backoff times.
    Threads: append, append_batches and flush are thread-safe; the other methods are for one thread, the sender's.
    Lifetime: the buffer of a batch is reused after deallocate(), but not while a sink still uses it.
    Source: Kafka RecordAccumulator.
    """

    batch_type = ProducerBatch

    if TYPE_CHECKING:

        def open_batches(
            self,
            batches: list[ProducerBatch],
            topic_partition: TopicPartition,
            held: list[ColumnBuffer],
            now_ms: int,
            *,
            most: int,
        ) -> None: ...

    def __init__(
        self,
        *,
        batch_size: int,
        pool: BufferPool,
        compression: str = "none",
        compression_level: int | None = None,
        linger_ms: int = 5,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 1000,
        delivery_timeout_ms: int = 120_000,
        transaction_manager: SequenceManager | None = None,
        adaptive_partitioning: bool = True,
        partition_availability_timeout_ms: int = 0,
        clock: Clock = SYSTEM_CLOCK,
        random: random_module.Random | None = None,
    ) -> None:
        self.compression = CompressionType.for_name(compression)
        self.compression_level = compression_level
        # Fail here, not in the sender, if the codec is not installed.
        compress(self.compression, b"", compression_level)
        self.delivery_timeout_ms = delivery_timeout_ms
        self.incomplete = IncompleteBatches()
        self.compression_ratios = CompressionRatioEstimator()
        self._transaction_manager = manager = transaction_manager
        super().__init__(
            pool=pool,
            batch_size=batch_size,
            model=MemoryRecordsBuilder(magic=MAGIC_V2, compression=self.compression, level=compression_level),
            batch_type=self.batch_type,
            result_type=ProduceRequestResult,
            estimator=self.compression_ratios,
            incomplete=self.incomplete.batches,
            append_slowly=self._append_slowly,
            open_transaction=manager.open_transaction if manager is not None and manager.is_transactional else None,
        )
        # Called when somebody waits for a batch that lingers; set before the first append.
        self.wake_sender: Callable[[], object] | None = None
        # Lets threads that wait send; set before the first append.
        self.direct: DirectSend | None = None
        self.linger_ms = linger_ms
        self.next_expiry_time_ms = NO_READY_CHECK_MS
        self.clock = clock
        self._random = random_module.Random() if random is None else random
        self._flushes = Flushes(self.incomplete, clock=clock)
        self._backoff = RetryBackoff(initial_ms=retry_backoff_ms, max_ms=retry_backoff_max_ms, random=self._random)
        self._drain = Drain(
            self.active,
            backoff=self._backoff,
            linger_ms=linger_ms,
            transaction_manager=transaction_manager,
            release=self.deallocate,
        )
        self._ready_check = ReadyCheck(
            self.active,
            self.topics,
            backoff=self._backoff,
            linger_ms=linger_ms,
            adaptive_partitioning=adaptive_partitioning,
            partition_availability_timeout_ms=partition_availability_timeout_ms,
        )

    # appends

    def _append_slowly(
        self,
        topic: str,
        partition: int | None,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[Any, ...],
        callback: Callable[..., object] | None,
        *,
        max_time_to_block_ms: int,
        now_ms: int,
        cluster: Cluster,
        abort_on_new_batch: bool,
    ) -> RecordAppendResult:
        """Append under the queue's lock; memory for a new batch is allocated before the lock is taken."""
        record = (timestamp_ms, key, value, headers, callback)
        held: list[ColumnBuffer] = []
        try:
            # Inside the try: if it began with the loop, an interrupt at the end of an iteration would skip the finally.
            queues = self.queues_of(topic)
            while True:
                info, chosen = None, partition
                if chosen is None:
                    info = queues.partitioner.peek_current_partition_info(cluster)
                    chosen = info.partition
                queue = self._queue_in(queues, topic, chosen)
                with queue:
                    self._require_open()
                    if info is not None and self._is_partition_changed(queues, queue, info, cluster):
                        continue
                    result = queue.append_to_last(*record, now_ms=now_ms)
                    if result is None and abort_on_new_batch:
                        return queue.stopped_before_new_batch()
                    if result is None and held:
                        result = self.append_first(queue, held, *record, now_ms=now_ms)
                    if result is not None:
                        if info is not None:
                            self._count_sticky(queues, queue, info, result.appended_bytes, cluster)
                        return result
                before_ms = self.clock.monotonic_ms()
                size = estimate_size_in_bytes_upper_bound(
                    magic=MAGIC_V2, compression=self.compression, key=key, value=value, headers=headers
                )
                self.pool.allocate_into(held, max(self.batch_size, size), max_time_to_block_ms=max_time_to_block_ms)
                now_ms += self.clock.monotonic_ms() - before_ms
        finally:
            self.pool.deallocate_all(held)

    def append_batches(
        self,
        queue: PartitionQueue,
        batches: list[ProducerBatch],
        *,
        count: int,
        info: StickyPartitionInfo | None,
        cluster: Cluster,
    ) -> None:
        """Move the first `count` batches of a list to the end of a queue; they take no more records.

        Args: info: the sticky partition, if BuiltInPartitioner chose the queue's.
        Raises: ProducerClosedError, TransactionStateError; the list is then unchanged.
        """
        appended_bytes = sum(batch.estimated_size_in_bytes for batch in batches[:count])
        with queue:
            self._require_open()
            push_batches(queue, batches, count, self.incomplete.batches)
            queues = self.queues_of(queue.topic_partition.topic)
            if info is not None and not queues.partitioner.is_partition_changed(info):
                self._count_sticky(queues, queue, info, appended_bytes, cluster)

    def queues_of(self, topic: str) -> TopicQueues:
        """Return the queues of a topic, created on first use."""
        queues = self.topics.get(topic)
        if queues is None:
            partitioner = BuiltInPartitioner(topic, sticky_batch_size=max(self.batch_size, 1), random=self._random)
            queues = self.topics.setdefault(topic, TopicQueues(partitioner))
        return queues

    def queue_of(self, topic_partition: TopicPartition) -> PartitionQueue:
        """Return the queue of a partition, created on first use.

        Raises: ValueError for a negative partition.
        """
        topic, partition = topic_partition
        return self._queue_in(self.queues_of(topic), topic, partition)

    def _queue_in(self, queues: TopicQueues, topic: str, partition: int) -> PartitionQueue:
        queue = queues.queues.get(partition)
        if queue is None:
            queue = PartitionQueue(
                TopicPartition(topic, partition),
                lock=threading.Lock(),
                active=self.active,
                wake_sender=self.wake_sender,
                direct=self.direct,
            )
            queue = queues.add(queue)
        return queue

    def _require_open(self) -> None:
        if self.is_closed:
            raise ProducerClosedError("the producer was closed while a record was appended")
        if self.open_transaction is not None and not self.open_transaction.is_open:
            raise TransactionStateError(
                "no transaction is open: the record was sent before it began, or while it was ending"
            )

    def _is_partition_changed(
        self, queues: TopicQueues, queue: PartitionQueue, info: StickyPartitionInfo, cluster: Cluster
    ) -> bool:
        """Return whether the sticky partition is no longer `info`.

        Makes a deferred switch first, if the last batch is full.
        """
        partitioner: BuiltInPartitioner = queues.partitioner
        if partitioner.is_partition_changed(info):
            return True
        if not queue.is_full:
            return False
        queues.unstick(info)
        partitioner.update_partition_info(info, 0, cluster)
        return partitioner.is_partition_changed(info)

    def _count_sticky(
        self,
        queues: TopicQueues,
        queue: PartitionQueue,
        info: StickyPartitionInfo,
        appended_bytes: int,
        cluster: Cluster,
    ) -> None:
        """Count bytes for the sticky partition, which switches once its last batch is full.

        The caller holds the queue.
        """
        queues.unstick(info)
        partitioner = queues.partitioner
        partitioner.update_partition_info(info, appended_bytes, cluster, enable_switch=queue.is_full)
        if not partitioner.is_partition_changed(info):
            queues.stick(info, queue)

    # sending

    def ready(self, cluster: Cluster, now_ms: int) -> ReadyCheckResult:
        """Return the nodes with batches to send, and when to check again.

        A node is ready when the first batch of one of its partitions is full, has another one after it, has lingered,
        is awaited, or must not wait: memory is exhausted, the accumulator is closed, a flush is in progress, or a
        transaction is ending.
        Cost: O(partitions that have batches).
        """
        return self._ready_check.run(cluster, now_ms, is_urgent=self._is_urgent)

    @property
    def _is_urgent(self) -> bool:
        """Whether batches must not wait for more records."""
        manager = self._transaction_manager
        if self.is_closed or self._flushes.in_progress or self.pool.queued > 0:
            return True
        return manager is not None and manager.is_completing

    def drain(
        self, cluster: Cluster, nodes: Iterable[Node], max_size: int, *, now_ms: int, batches_per_partition: int = 1
    ) -> dict[int, list[ProducerBatch]]:
        """Remove and close the batches to send; return them by node id, those of a partition in order.

        Args: max_size: the most bytes for one node; a single larger batch is sent alone. batches_per_partition: the
            most batches of one partition; those after the first are taken only if they are ready.
        Cost: O(partitions that have batches).
        """
        return self._drain.run(
            cluster,
            nodes,
            max_size=max_size,
            batches_per_partition=batches_per_partition,
            now_ms=now_ms,
            is_urgent=self._is_urgent,
        )

    def mute_partition(self, topic_partition: TopicPartition) -> None:
        """Drain no batch of a partition until it is unmuted."""
        self.queue_of(topic_partition).is_muted = True

    def unmute_partition(self, topic_partition: TopicPartition) -> None:
        """Let batches of a partition be drained again."""
        self.queue_of(topic_partition).is_muted = False

    def is_muted(self, topic_partition: TopicPartition) -> bool:
        """Tell whether no batch of a partition is drained."""
        return self.queue_of(topic_partition).is_muted

    def update_node_latency_stats(self, node_id: int, *, now_ms: int, can_drain: bool) -> None:
        """Record that a node had batches ready, and whether any could be drained."""
        self._ready_check.update_node_latency_stats(node_id, now_ms=now_ms, can_drain=can_drain)

    def reenqueue(self, batch: ProducerBatch, now_ms: int) -> None:
        """Return a failed batch to its queue: to the front, or in sequence order if there is a transaction manager.

        Raises: ValueError if there is a transaction manager and the batch has no sequence, or its partition has no
            batch in flight.
        """
        queue = self.queue_of(batch.topic_partition)
        with queue:
            batch.reenqueued(now_ms)
            if not batch.is_done:
                self._put_back(queue, batch)
            batch.is_inflight = False

    def take_back(self, batch: ProducerBatch) -> None:
        """Return a batch that a waiting thread took, and did not end, to its queue; it need not back off."""
        queue = self.queue_of(batch.topic_partition)
        with queue:
            batch.is_inflight = False
            if not batch.is_done:
                self._put_back(queue, batch)
        if batch.is_done:
            self.deallocate(batch)

    def split_and_reenqueue(self, batch: ProducerBatch) -> int:
        """Split a batch that was too large for the sink, enqueue the pieces and return their number.

        A piece that is again too large is split in half. The caller deallocates the batch itself.
        """
        ratio = max(1.0, batch.compression_ratio)
        self.compression_ratios.set_estimation(batch.topic_partition.topic, self.compression, ratio)
        size = self.batch_size
        if batch.is_split_batch:
            size = max(batch.max_record_size, batch.estimated_size_in_bytes // 2)
        pieces = batch.split(size)
        self.incomplete.pass_followers(batch, to=pieces[-1])
        queue = self.queue_of(batch.topic_partition)
        with queue:
            # One critical section: an aborting thread that sees a piece as incomplete must also find it in the queue.
            for piece in pieces:
                self.incomplete.add(piece)
            for piece in reversed(pieces):
                if self._transaction_manager is not None:
                    self._transaction_manager.add_in_flight_batch(piece)
                self._put_back(queue, piece)
        return len(pieces)

    def _put_back(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        manager = self._transaction_manager
        if manager is None:
            queue.push_first(batch)
            return
        if not batch.has_sequence:
            raise ValueError(f"a batch of {batch.topic_partition} without a sequence can't be sent again in order")
        if not manager.has_in_flight_batches(batch.topic_partition):
            raise ValueError(f"a batch of {batch.topic_partition} is not tracked as one of those in flight")
        place = 0
        for other in queue.copy():
            if not other.has_sequence or not is_sequence_after(batch.base_sequence, other=other.base_sequence):
                break
            place += 1
        queue.insert(place, batch)

    # expiry

    def reset_next_batch_expiry_time(self) -> None:
        """Clear next_expiry_time_ms before expired_batches() computes it again."""
        self.next_expiry_time_ms = NO_READY_CHECK_MS

    def maybe_update_next_batch_expiry_time(self, batch: ProducerBatch) -> None:
        """Lower next_expiry_time_ms to the expiry time of this batch, if earlier."""
        expiry_ms = batch.created_ms + self.delivery_timeout_ms
        self.next_expiry_time_ms = min(self.next_expiry_time_ms, max(expiry_ms, 0))

    def expired_batches(self, now_ms: int) -> list[ProducerBatch]:
        """Remove and return the queued batches that have expired; the caller fails and deallocates them."""
        expired = []
        for queue in list(self.active):
            with queue:
                while (batch := queue.first) is not None:
                    if not batch.has_reached_delivery_timeout(self.delivery_timeout_ms, now_ms=now_ms):
                        self.maybe_update_next_batch_expiry_time(batch)
                        break
                    queue.pop_first()
                    if not batch.has_sequence:
                        # A batch with a sequence may still be renumbered, which needs its records.
                        batch.abort_record_appends()
                    self._backoff.forget(batch)
                    expired.append(batch)
        return expired

    # flushing, completing, aborting

    def flush(self, timeout_s: float | None = None, *, wake: Callable[[], object]) -> bool:
        """Wait until every batch that is incomplete now, pieces of split batches included, is done.

        During a flush all batches are sent without lingering.
        Args: timeout_s: in seconds, None to wait without limit; wake: called after the flush counts as in progress, to
            wake the sender.
        Returns: False if the timeout expires first.
        """
        return self._flushes.run(timeout_s, wake=wake)

    @property
    def flush_in_progress(self) -> bool:
        """Whether a flush() waits."""
        return self._flushes.in_progress

    @property
    def has_undrained(self) -> bool:
        """Whether a batch waits to be drained."""
        return bool(self.active)

    @property
    def has_incomplete(self) -> bool:
        """Whether a batch has no outcome yet."""
        return len(self.incomplete) > 0

    def deallocate(self, batch: ProducerBatch) -> None:
        """Forget a batch and return its memory to the pool once no sink uses it; a second call does nothing."""
        self.incomplete.discard(batch)
        self._backoff.forget(batch)
        batch.deallocate_once()

    def abort_incomplete_batches(self) -> int:
        """Refuse appends and fail every batch that is not done, appends in progress included.

        Returns: how many records these batches have.
        """
        self.is_closed = True
        self._await_appends()
        count = sum(batch.record_count for batch in self.incomplete.copy_all() if not batch.is_done)
        self.abort_batches(ProducerClosedError("the producer was closed forcefully"))
        return count

    def is_done_with_transaction(self) -> bool:
        """Return whether all batches of a transaction that accepts no more records are done."""
        if self.has_incomplete:
            return False
        self._await_appends()
        return not self.has_incomplete

    def _await_appends(self) -> None:
        """Wait for the appends that have passed the check whether appends are refused.

        They hold their queue's lock, so taking each lock once waits for all of them.
        """
        for queues in list(self.topics.values()):
            for queue in list(queues.queues.values()):
                with queue:
                    pass

    def abort_batches(self, error: KStoreError) -> None:
        """Fail every batch that is not done; memory of batches in flight is returned when their send ends."""
        self._abort_all(self.incomplete.copy_all(), error)

    def abort_undrained_batches(self, error: KStoreError) -> None:
        """Fail the batches that were never sent, each after the sent ones of its partition."""
        manager = self._transaction_manager
        batches = [
            batch
            for batch in self.incomplete.copy_all()
            if not (batch.is_closed if manager is None else batch.has_sequence or self.incomplete.is_held(batch))
        ]
        self._abort_all([batch for batch in batches if not self._abort_after_earlier(batch, error)], error)

    def _abort_after_earlier(self, batch: ProducerBatch, error: KStoreError) -> bool:
        """Abort a batch once the last one in flight in its partition has completed; return False if there is none."""
        manager = self._transaction_manager
        earlier = None if manager is None else manager.batch_before(batch)
        if earlier is None or earlier.is_done:
            return False
        queue = self.queue_of(batch.topic_partition)
        with queue:
            queue.remove(batch)
            batch.abort_record_appends()
        self.incomplete.hold(batch, lambda: batch.abort_unless_done(error), after=earlier)
        return True

    def _abort_all(self, batches: list[ProducerBatch], error: KStoreError) -> None:
        """Abort batches, those of a partition in order; a KeyboardInterrupt from a callback is raised at the end.

        A held batch completes with its own outcome, right after the batch that holds it.
        """
        interrupt: KeyboardInterrupt | None = None
        for batch in self._in_order(batches):
            if self.incomplete.is_held(batch):
                continue
            try:
                self._abort(batch, error)
            except KeyboardInterrupt as raised:
                interrupt = raised
            for follower, end in self.incomplete.released_by(batch):
                try:
                    end()
                except KeyboardInterrupt as raised:
                    interrupt = raised
                self.deallocate(follower)
        if interrupt is not None:
            raise interrupt

    def _in_order(self, batches: list[ProducerBatch]) -> list[ProducerBatch]:
        """Return batches with the queued ones last, in queue order.

        Order of creation would be wrong: the pieces of a split batch are newer than the batches queued after them.
        """
        places: dict[ProducerBatch, int] = {}
        for queues in list(self.topics.values()):
            for queue in list(queues.queues.values()):
                places.update((batch, place) for place, batch in enumerate(queue.copy()))
        return sorted(batches, key=lambda batch: places.get(batch, -1))

    def _abort(self, batch: ProducerBatch, error: KStoreError) -> None:
        queue = self.queue_of(batch.topic_partition)
        with queue:
            queue.remove(batch)
            if not batch.is_inflight:
                batch.abort_record_appends()
        try:
            is_over = not batch.abort_unless_done(error)
        except KeyboardInterrupt:
            self._forget_aborted(queue, batch)
            raise
        if not is_over:
            self._forget_aborted(queue, batch)

    def _forget_aborted(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        # If another thread is closing the batch, that thread checks is_done afterwards and deallocates it.
        is_being_closed = batch.is_inflight and not batch.is_closed
        with queue:
            # It may have been enqueued again before it was done.
            queue.remove(batch)
        self.incomplete.discard(batch)
        if not is_being_closed:
            self.deallocate(batch)

    def close(self) -> None:
        """Refuse appends from now on; queued batches are sent without lingering."""
        self.is_closed = True
        self.pool.close()
