"""RecordAccumulator: records gather in batches by partition until they are sent. Layer 5."""

from __future__ import annotations

import random as random_module
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kstore._core import (
    AppendPath,
    PartitionQueue,
    PoolMemory,
    RecordAppendResult,
    TopicQueues,
    estimate_size_in_bytes_upper_bound,
    push_batches,
)
from kstore.compression import CompressionType, compress
from kstore.environment import SYSTEM_CLOCK, Clock
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
from kstore.producer.batches.sequences import is_sequence_behind
from kstore.producer.cluster import Cluster, Node
from kstore.producer.partitioner import BuiltInPartitioner, StickyPartitionInfo
from kstore.record import MemoryRecordsBuilder
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore._core import ColumnBuffer


class BufferPool(PoolMemory):
    """Buffers out of a bounded memory: those of `poolable_size` bytes are used again, others are made and dropped.

    Who waits gets memory in the order of asking, piece by piece, and whoever comes meanwhile waits behind; Kafka's pool
    lets a newcomer pass. All that is held counts, also what a batch grew by: available_memory and what is held are
    always `memory` together. The free buffer that came back last is the next one out, since it is in the cache.

    Raises: ValueError if memory is negative or poolable_size below 1.
    Threads: safe; code without the GIL may take and give buffers.  Source: Kafka BufferPool.
    """

    def __init__(self, memory: int, poolable_size: int, *, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(memory, poolable_size, clock=clock)


_MAGIC = 2


class RecordAccumulator(AppendPath):
    """Gather records in batches by partition; a sender asks which are ready, drains them and completes them.

    Args:
        batch_size: bytes of a batch; a larger record has a batch of its own. pool: where batches get their memory.
        linger_ms: how long a batch waits for more records.
        delivery_timeout_ms: how long after its creation a batch counts as expired.
        transaction_manager: gives sequence numbers; None without idempotence.
        adaptive_partitioning: whether partitions with short queues are chosen more often (KIP-794).
        partition_availability_timeout_ms: how long a node may take nothing until it is not chosen, 0: for ever.
        random: draws partitions and waiting times.
    Every now_ms is of one time line that never goes back. A batch that is muted, backing off or blocked is passed over.
    Threads: append, append_batches and flushes from any number; the rest from one at a time, the sender's.
    Lifetime: the buffer of a batch is used again after deallocate(), and not before a writer has let go of it.
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
        # a codec that is not installed is better missed here than by the sender
        compress(self.compression, b"", compression_level)
        self.delivery_timeout_ms = delivery_timeout_ms
        self.incomplete = IncompleteBatches()
        self.compression_ratios = CompressionRatioEstimator()
        self._transaction_manager = manager = transaction_manager
        super().__init__(
            pool=pool,
            batch_size=batch_size,
            model=MemoryRecordsBuilder(magic=_MAGIC, compression=self.compression, level=compression_level),
            batch_type=self.batch_type,
            result_type=ProduceRequestResult,
            estimator=self.compression_ratios,
            incomplete=self.incomplete.batches,
            append_slowly=self._append_slowly,
            open_transaction=manager.open_transaction if manager is not None and manager.is_transactional else None,
        )
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
        """Append with the queue's lock held; a new batch gets its memory before that."""
        record = (timestamp_ms, key, value, headers, callback)
        held: list[ColumnBuffer] = []
        try:
            # Inside: an interrupt at the end of a loop with which a try begins would pass its finally by.
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
                    magic=_MAGIC, compression=self.compression, key=key, value=value, headers=headers
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
        """Take the first batches out of a list, which take no more records, and put them behind the others.

        Args: info: where BuiltInPartitioner chose the partition.
        Raises: ProducerClosedError, TransactionStateError, with the list as it was.
        """
        appended_bytes = sum(batch.estimated_size_in_bytes for batch in batches[:count])
        with queue:
            self._require_open()
            push_batches(queue, batches, count, self.incomplete.batches)
            queues = self.queues_of(queue.topic_partition.topic)
            if info is not None and not queues.partitioner.is_partition_changed(info):
                self._count_sticky(queues, queue, info, appended_bytes, cluster)

    def queues_of(self, topic: str) -> TopicQueues:
        """Return the queues of a topic, which are made when it is first used."""
        queues = self.topics.get(topic)
        if queues is None:
            partitioner = BuiltInPartitioner(topic, sticky_batch_size=max(self.batch_size, 1), random=self._random)
            queues = self.topics.setdefault(topic, TopicQueues(partitioner))
        return queues

    def queue_of(self, topic_partition: TopicPartition) -> PartitionQueue:
        """Return the queue of a partition, which is made when it is first used.

        Raises: ValueError for a negative partition.
        """
        topic, partition = topic_partition
        return self._queue_in(self.queues_of(topic), topic, partition)

    def _queue_in(self, queues: TopicQueues, topic: str, partition: int) -> PartitionQueue:
        queue = queues.queues.get(partition)
        if queue is None:
            queue = PartitionQueue(TopicPartition(topic, partition), lock=threading.Lock(), active=self.active)
            queue = queues.add(queue)
        return queue

    def _require_open(self) -> None:
        if self.is_closed:
            raise ProducerClosedError("the producer was closed while a record was appended")
        if self.open_transaction is not None and not self.open_transaction.is_open:
            raise TransactionStateError("no transaction is open: a record came before it began, or while it ended")

    def _is_partition_changed(
        self, queues: TopicQueues, queue: PartitionQueue, info: StickyPartitionInfo, cluster: Cluster
    ) -> bool:
        """Say whether another partition was chosen meanwhile, or is now, by a change that was put off."""
        partitioner: BuiltInPartitioner = queues.partitioner
        if partitioner.is_partition_changed(info):
            return True
        if not queue.is_full:
            return False
        partitioner.update_partition_info(info, queues.unstick(info), cluster)
        return partitioner.is_partition_changed(info)

    def _count_sticky(
        self,
        queues: TopicQueues,
        queue: PartitionQueue,
        info: StickyPartitionInfo,
        appended_bytes: int,
        cluster: Cluster,
    ) -> None:
        """Tell the partitioner what its partition got; it changes when the last batch is full. The queue is held."""
        appended_bytes += queues.unstick(info)
        partitioner = queues.partitioner
        partitioner.update_partition_info(info, appended_bytes, cluster, enable_switch=queue.is_full)
        if not partitioner.is_partition_changed(info):
            size: int = partitioner.sticky_batch_size
            queues.stick(info, queue, size=size, room=size - info.produced_bytes)

    # sending

    def ready(self, cluster: Cluster, now_ms: int) -> ReadyCheckResult:
        """Say which nodes have something to be sent, and when to ask again.

        A node is ready when the first batch of one of its partitions is full, has lingered, or must not wait: memory is
        exhausted, the accumulator is closed, a flush is under way, a transaction ends.
        Cost: O(partitions that have batches).
        """
        return self._ready_check.run(cluster, now_ms, is_urgent=self._is_urgent)

    @property
    def _is_urgent(self) -> bool:
        """Whether no batch is to wait for more records."""
        manager = self._transaction_manager
        if self.is_closed or self._flushes.in_progress or self.pool.queued > 0:
            return True
        return manager is not None and manager.is_completing

    def drain(
        self, cluster: Cluster, nodes: Iterable[Node], max_size: int, *, now_ms: int, batches_per_partition: int = 1
    ) -> dict[int, list[ProducerBatch]]:
        """Take out, close and return batches for each node by its id, those of a partition in their order.

        Args: max_size: bytes of one node's batches; a single larger one goes alone. batches_per_partition: at most so
            many; behind the first only those that are ready.
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
        """Let no batch of a partition be drained until it is unmuted."""
        self.queue_of(topic_partition).is_muted = True

    def unmute_partition(self, topic_partition: TopicPartition) -> None:
        self.queue_of(topic_partition).is_muted = False

    def is_muted(self, topic_partition: TopicPartition) -> bool:
        return self.queue_of(topic_partition).is_muted

    def update_node_latency_stats(self, node_id: int, *, now_ms: int, can_drain: bool) -> None:
        """Note that a node had something to be sent, and whether any of it could go."""
        self._ready_check.update_node_latency_stats(node_id, now_ms=now_ms, can_drain=can_drain)

    def reenqueue(self, batch: ProducerBatch, now_ms: int) -> None:
        """Put a batch that failed back: before all others, or where its sequence belongs.

        Raises: ValueError if there is a transaction manager and the batch has no sequence, or is not in flight for it.
        """
        queue = self.queue_of(batch.topic_partition)
        with queue:
            batch.reenqueued(now_ms)
            if not batch.is_done:
                self._put_back(queue, batch)
            batch.is_inflight = False

    def split_and_reenqueue(self, batch: ProducerBatch) -> int:
        """Split a batch that was too large for the sink, put the pieces back, and return how many there are.

        A piece that is too large again is split in half. The caller then deallocates the batch itself.
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
            # who aborts what is incomplete takes it out of the queue, and must not come between
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
            if not other.has_sequence or not is_sequence_behind(batch.base_sequence, other=other.base_sequence):
                break
            place += 1
        queue.insert(place, batch)

    # expiry

    def reset_next_batch_expiry_time(self) -> None:
        """Forget when the next batch expires, before expired_batches() finds it anew."""
        self.next_expiry_time_ms = NO_READY_CHECK_MS

    def maybe_update_next_batch_expiry_time(self, batch: ProducerBatch) -> None:
        """Let next_expiry_time_ms be no later than the end of this batch."""
        expiry_ms = batch.created_ms + self.delivery_timeout_ms
        self.next_expiry_time_ms = min(self.next_expiry_time_ms, max(expiry_ms, 0))

    def expired_batches(self, now_ms: int) -> list[ProducerBatch]:
        """Take out the batches that were not delivered in time; the caller ends and deallocates them."""
        expired = []
        for queue in list(self.active):
            with queue:
                while (batch := queue.first) is not None:
                    if not batch.has_reached_delivery_timeout(self.delivery_timeout_ms, now_ms=now_ms):
                        self.maybe_update_next_batch_expiry_time(batch)
                        break
                    queue.pop_first()
                    if not batch.has_sequence:
                        # One that was sent may get another sequence before its turn to be ended comes.
                        batch.abort_record_appends()
                    self._backoff.forget(batch)
                    expired.append(batch)
        return expired

    # flushing, completing, aborting

    def flush(self, timeout_s: float | None = None, *, wake: Callable[[], object]) -> bool:
        """Wait until what is incomplete now is done, the pieces of split batches too; say whether it is.

        Everything is sent meanwhile without waiting for more.
        Args: wake: called once that is so, for who sends.
        """
        return self._flushes.run(timeout_s, wake=wake)

    @property
    def flush_in_progress(self) -> bool:
        return self._flushes.in_progress

    @property
    def has_undrained(self) -> bool:
        return bool(self.active)

    @property
    def has_incomplete(self) -> bool:
        return len(self.incomplete) > 0

    def deallocate(self, batch: ProducerBatch) -> None:
        """Forget a batch, and give its memory back as soon as no writer holds it; a second call does nothing."""
        self.incomplete.discard(batch)
        self._backoff.forget(batch)
        batch.deallocate_once()

    def abort_incomplete_batches(self) -> None:
        """Refuse appends, and fail everything that is not done, what is being appended just now too."""
        self.is_closed = True
        self._await_appends()
        self.abort_batches(ProducerClosedError("the producer was closed forcefully"))

    def is_done_with_transaction(self) -> bool:
        """Tell whether every batch of a transaction that is no longer open is done."""
        if self.has_incomplete:
            return False
        self._await_appends()
        return not self.has_incomplete

    def _await_appends(self) -> None:
        """Wait for who looked whether appends are refused, as they are now, before they were."""
        for queues in list(self.topics.values()):
            for queue in list(queues.queues.values()):
                with queue:
                    pass

    def abort_batches(self, error: KStoreError) -> None:
        """Fail everything that is not done; memory of what is in flight comes back when its send returns."""
        self._abort_all(self.incomplete.copy_all(), error)

    def abort_undrained_batches(self, error: KStoreError) -> None:
        """Fail what was never sent, after the batches of its partition that were."""
        manager = self._transaction_manager
        batches = [
            one
            for one in self.incomplete.copy_all()
            if not (one.is_closed if manager is None else one.has_sequence or self.incomplete.is_held(one))
        ]
        self._abort_all([one for one in batches if not self._abort_after_earlier(one, error)], error)

    def _abort_after_earlier(self, batch: ProducerBatch, error: KStoreError) -> bool:
        """Abort a batch as soon as the last one in flight of its partition has ended; return whether there is one."""
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
        """Abort batches, those of a partition in their order; a KeyboardInterrupt of a callback is raised at the end.

        A batch that is held ends as it is to end, right after the one that it waits for.
        """
        interrupt: KeyboardInterrupt | None = None
        for batch in self._in_order(batches):
            if self.incomplete.is_held(batch):
                continue
            try:
                self._abort(batch, error)
            except KeyboardInterrupt as raised:
                interrupt = raised
            for one, end in self.incomplete.released_by(batch):
                try:
                    end()
                except KeyboardInterrupt as raised:
                    interrupt = raised
                self.deallocate(one)
        if interrupt is not None:
            raise interrupt

    def _in_order(self, batches: list[ProducerBatch]) -> list[ProducerBatch]:
        """Return batches with those in queues last, as they lie there: the pieces of a split one are not the newest."""
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
        # who closes it just now looks behind that whether it is done, and gives it back
        is_being_closed = batch.is_inflight and not batch.is_closed
        with queue:
            # it may have been put back before it was done
            queue.remove(batch)
        self.incomplete.discard(batch)
        if not is_being_closed:
            self.deallocate(batch)

    def close(self) -> None:
        """Refuse appends from now on; what is there is sent without waiting for more."""
        self.is_closed = True
        self.pool.close()
