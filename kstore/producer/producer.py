"""Producer: sends records from many threads to the partitions of a sink, in batches.

ProducerParts creates the objects of one producer and connects them.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import TIMEOUT_MAX
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, cast

from kstore._core import (
    ProducerCore,
    RecordAppendResult,
    estimate_size_in_bytes_upper_bound,
    header_pairs,
    partition_for_key,
)
from kstore.config import MAX_INT32
from kstore.coordinator.group.offsets import checked_group, checked_offsets
from kstore.coordinator.transaction.coordinator import TransactionCoordinator, coordinator_of
from kstore.env.process import SYSTEM_CLOCK, Clock, after_fork_in_child
from kstore.errors import (
    KStoreError,
    ProducerClosedError,
    ProducerTimeoutError,
    RecordTooLargeError,
    TransactionStateError,
    UnknownTopicOrPartitionError,
    checked_int,
)
from kstore.producer.append_columns import append_columns, append_error_of, record_columns_of
from kstore.producer.batches.accumulator import BufferPool, RecordAccumulator
from kstore.producer.batches.futures import ColumnsFuture, FutureRecordMetadata, RecordMetadata, failed_future
from kstore.producer.cluster import Cluster, PartitionInfo
from kstore.producer.config import ProducerConfig, serialized, serializer_of
from kstore.producer.interceptors import Header, ProducerInterceptors, ProducerRecord, placeholder_partition
from kstore.producer.metrics import ProducerMetrics
from kstore.producer.partitioner import Partitioner
from kstore.producer.sending.completion import SenderHooks
from kstore.producer.sending.sender import Sender
from kstore.producer.sending.store_sink import StoreSink
from kstore.producer.sink import Metadata
from kstore.producer.transactions import TransactionManager
from kstore.serializers import Key, Value
from kstore.types import MAGIC_V2, OffsetAndMetadata, Time, TopicPartition, time_ms

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from kstore.producer.batches.batch import ProducerBatch
    from kstore.producer.batches.waiting import TransactionalResult
    from kstore.producer.cluster import Node
    from kstore.producer.config import UntypedSettings
    from kstore.producer.sink import Sink
    from kstore.producer.store import ProducerStore


class ProducerParts:
    """The accumulator, sender and other parts of one producer.

    Raises: TypeError for a target that is neither a store nor a Sink; ValueError for transactions with a sink that has
        no coordinator.
    """

    def __init__(self, target: Sink | ProducerStore, config: ProducerConfig, *, clock: Clock) -> None:
        self.sink, coordinator = _sink_of(target)
        if config.transactional_id is not None and coordinator is None:
            raise ValueError(f"transactional_id needs a sink with a coordinator, got {self.sink!r}")
        self.metrics = ProducerMetrics(clock)
        self.metadata = Metadata(self.sink, max_age_ms=config.metadata_max_age_ms, clock=clock)
        self.pool = BufferPool(config.buffer_memory, max(config.batch_size, 1), clock=clock)
        self.transactions: TransactionManager | None = None
        if config.is_idempotent:
            self.transactions = TransactionManager(
                transactional_id=config.transactional_id,
                coordinator=coordinator,
                timeout_ms=config.transaction_timeout_ms,
                ack="flushed" if config.ack == "flushed" else "written",
            )
        self.accumulator = RecordAccumulator(
            batch_size=config.batch_size,
            pool=self.pool,
            compression=config.compression_type,
            compression_level=config.compression_level,
            linger_ms=config.linger_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            retry_backoff_max_ms=config.retry_backoff_max_ms,
            delivery_timeout_ms=config.delivery_timeout_ms,
            transaction_manager=self.transactions,
            adaptive_partitioning=config.partitioner_adaptive_partitioning_enable,
            partition_availability_timeout_ms=config.partitioner_availability_timeout_ms,
            clock=clock,
        )
        self.sender = Sender(
            self.accumulator,
            self.sink,
            ack=config.ack,
            max_in_flight=config.max_in_flight_requests_per_connection,
            max_request_size=config.max_request_size,
            retries=config.retries,
            retry_backoff_ms=config.retry_backoff_ms,
            delivery_timeout_ms=config.delivery_timeout_ms,
            transaction_manager=self.transactions,
            coordinator=coordinator,
            hooks=_hooks(self.metrics),
            clock=clock,
            name=f"kstore-producer-{config.client_id}" if config.client_id else "kstore-producer",
        )
        self.accumulator.wake_sender = self.sender.wakeup
        self.accumulator.direct = self.sender.direct
        self._add_gauges()
        add_dependent = getattr(self.sink, "add_dependent", None)
        if add_dependent is not None:
            add_dependent(self.sender)

    def _add_gauges(self) -> None:
        pool, metadata, gauge = self.pool, self.metadata, self.metrics.gauge
        gauge("buffer-total-bytes", lambda: pool.memory)
        gauge("buffer-available-bytes", lambda: pool.available_memory)
        gauge("buffer-exhausted-total", lambda: pool.buffer_exhausted_count)
        gauge("bufferpool-wait-time-ns-total", lambda: pool.wait_time_ns)
        gauge("waiting-threads", lambda: pool.queued)
        gauge("metadata-age", lambda: metadata.age_ms / 1000)


def _sink_of(target: object) -> tuple[Sink, TransactionCoordinator | None]:
    if hasattr(target, "cluster"):
        return cast("Sink", target), getattr(target, "coordinator", None)
    if not hasattr(target, "create_topic"):
        raise TypeError(f'a producer needs kstore.open_store(root, "a"), opened for writing, or a Sink: got {target!r}')
    store = cast("ProducerStore", target)
    coordinator = coordinator_of(store)
    return StoreSink(store, coordinator=coordinator), coordinator


def _hooks(metrics: ProducerMetrics) -> SenderHooks:
    def on_send(_: Node, batches: list[ProducerBatch]) -> None:
        metrics.note_request(batches)

    def on_response(_: Node, __: list[ProducerBatch], latency_ms: int) -> None:
        metrics.record("request-latency", latency_ms)

    def on_retry(_: str, count: int) -> None:
        metrics.count("record-retry", count)

    def on_error(_: str, count: int) -> None:
        metrics.count("record-error", count)

    def on_split(_: str) -> None:
        metrics.count("batch-split")

    return SenderHooks(
        on_send=on_send,
        on_response=on_response,
        on_direct_sends=metrics.note_direct_sends,
        on_retry=on_retry,
        on_error=on_error,
        on_split=on_split,
        is_held_here=lambda: metrics.is_held_here,
    )


DeliveryCallback: TypeAlias = Callable[[RecordMetadata, "KStoreError | None"], object]

# Kafka's ApiExceptions: reported by future and callback; any other error is raised by send().
_REPORTED_BY_FUTURE = (RecordTooLargeError, UnknownTopicOrPartitionError, ProducerTimeoutError)
_NS_PER_MS = 1_000_000
_MS_PER_S = 1000


class Producer(ProducerCore, Generic[Key, Value]):
    """Sends records from any number of threads to the partitions of a store, or of another sink, in batches.

    Records of one partition arrive in the order in which they were sent. As a context manager it closes itself on exit,
    which waits for the records that are not sent yet. So do the close of the store that it writes to, and the exit of
    the interpreter, each for up to delivery_timeout_ms. One that is garbage-collected without close() gives a
    ResourceWarning, and its thread ends when the records are sent. Producer[K, V] names the types of keys and values,
    which type checkers know by the serializers, given as callables.
    Args: target: a store opened for writing by kstore.open_store, or a Sink; settings: those of ProducerConfig.
    Attributes: config, transactional_id (None without transactions).
    Raises: TypeError for another target, and for an unknown setting, with the nearest name; TypeError, ValueError for
        the value of a setting. All methods except metrics() and close() raise ProducerClosedError once the producer is
        closed, and in a child process made by fork(), because the sending thread stays in the parent.
    Threads: safe; a thread of its own sends the batches and runs the callbacks.
    Source: Kafka KafkaProducer.
    """

    def __init__(
        self,
        target: Sink | ProducerStore,
        *,
        key_serializer: Callable[[Key], bytes | None] | str | None = None,
        value_serializer: Callable[[Value], bytes | None] | str | None = None,
        clock: Clock = SYSTEM_CLOCK,
        **settings: Unpack[UntypedSettings],
    ) -> None:
        serializers = {"key_serializer": key_serializer, "value_serializer": value_serializer}
        self.config = config = ProducerConfig.of({**serializers, **settings})
        self._clock = clock
        self._closed_why: str | None = None
        self._has_ended = False
        # Final calls, to be made once: by the thread that pops them.
        self._last_calls = [self._close_interceptors]
        given = config.partitioner_class
        self._partitioner: Partitioner | None = given() if isinstance(given, type) else given
        self._on_new_batch: Callable[..., None] | None = getattr(self._partitioner, "on_new_batch", None)
        self._key_serializer = serializer_of(config.key_serializer)
        self._value_serializer = serializer_of(config.value_serializer)
        self._interceptors = ProducerInterceptors(config.interceptor_classes)
        self._parts = parts = ProducerParts(target, config, clock=clock)
        self._sender = parts.sender
        self._accumulator = parts.accumulator
        self._metadata = parts.metadata
        self._metrics = parts.metrics
        self._transactions = parts.transactions
        super().__init__(
            parts.accumulator,
            serialize=serialized,
            wake_sender=self._on_full_batch,
            call_sender=parts.sender.call,
            send_slowly=self._send_slowly,
            send_serialized=self._send_serialized,
            key_serializer=self._key_serializer,
            value_serializer=self._value_serializer,
            max_record_bytes=self._max_record_bytes,
            ignores_keys=config.partitioner_ignore_keys,
            clock=None if clock is SYSTEM_CLOCK else clock,
        )
        # Nothing that the thread holds refers to the producer, so that it can be garbage-collected.
        take_counts = weakref.WeakMethod(self._take_partition_counts)
        self._metadata.on_update = lambda cluster: (take := take_counts()) and take(cluster)
        self._uses_fast_path = not (self._interceptors or self._partitioner)
        self._dropping = weakref.finalize(self, _drop, config.client_id, self._sender)
        # The interpreter's exit ends the sender.
        self._dropping.atexit = False
        try:
            self._sender.start()
            _producers.add(self)
        except BaseException:
            self._dropping.detach()
            self._sender.force_close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Producer(client_id={self.config.client_id!r}, transactional_id={self.transactional_id!r})"

    @property
    def transactional_id(self) -> str | None:
        """The transactional id, None without transactions."""
        return self.config.transactional_id

    # Sending; send() itself is compiled.

    if TYPE_CHECKING:

        def send(
            self,
            topic: str,
            value: Value | None = None,
            *,
            key: Key | None = None,
            headers: Iterable[Header] = (),
            partition: int | None = None,
            timestamp_ms: Time | None = None,
            on_delivery: DeliveryCallback | None = None,
        ) -> FutureRecordMetadata: ...

    def _send_slowly(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Iterable[Header],
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: DeliveryCallback | None,
    ) -> FutureRecordMetadata:
        """Slow path of send(): with interceptors or a partitioner, or without an open transaction."""
        self._check_usable()
        _check_callback(on_delivery)
        record = ProducerRecord(topic, value, key, header_pairs(headers), partition, timestamp_ms)
        if self._interceptors:
            record = self._interceptors.on_send(record)
            on_delivery = _Intercepted(self._interceptors, on_delivery)
        try:
            if self._transactions is not None and self._transactions.is_transactional:
                self._transactions.check_send()
            key_bytes = serialized("key", record.key, self._key_serializer, record.topic)
            value_bytes = serialized("value", record.value, self._value_serializer, record.topic)
            return self._send(
                record._replace(headers=header_pairs(record.headers)), key_bytes, value_bytes, on_delivery
            )
        except KStoreError as error:
            self._interceptors.on_acknowledgement(_metadata_of_failure(record), error)
            raise

    def _send_serialized(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[Header, ...],
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: DeliveryCallback | None,
    ) -> FutureRecordMetadata:
        """Slow path of send() after serialization.

        For a batch without room, a partition that is not in the transaction yet, an unknown topic, or an invalid
        argument.
        """
        self._check_usable()
        return self._send(ProducerRecord(topic, value, key, headers, partition, timestamp_ms), key, value, on_delivery)

    def _send(
        self, record: ProducerRecord, key: bytes | None, value: bytes | None, on_delivery: DeliveryCallback | None
    ) -> FutureRecordMetadata:
        _check_callback(on_delivery)
        record = _checked(record)
        try:
            result = self._append(record, key, value, on_delivery)
        except _REPORTED_BY_FUTURE as error:
            if self._transactions is not None:
                self._transactions.note_failed_send(error)
            if on_delivery is not None:
                on_delivery(_metadata_of_failure(record), error)
            return failed_future(placeholder_partition(record), error)
        except TransactionStateError:
            if self._transactions is not None:
                self._transactions.check_send()
            raise
        except BaseException:
            # The interrupted append may have created a batch.
            self._sender.wakeup()
            raise
        if self._transactions is not None and self._transactions.is_transactional:
            self._transactions.maybe_add_partition(TopicPartition(record.topic, result.partition))
        if result.batch_is_full:
            self._on_full_batch()
        elif result.new_batch_created:
            self._sender.call()
        future: FutureRecordMetadata = result.future
        return future

    @property
    def _on_full_batch(self) -> Callable[[], None]:
        """What is called when a batch takes no more records."""
        return self._sender.wakeup

    def _append(
        self, record: ProducerRecord, key: bytes | None, value: bytes | None, on_delivery: DeliveryCallback | None
    ) -> RecordAppendResult:
        topic, headers = record.topic, record.headers
        max_block_ms = self._max_block_ms
        before_ms = self._clock.monotonic_ms()
        cluster = self._cluster_with(topic, record.partition)
        self._check_size(self._estimated_size(key, value, headers))
        timestamp_ms = self._clock.wall_clock_ms() if record.timestamp_ms is None else record.timestamp_ms
        may_ask_again = self._on_new_batch is not None and record.partition is None
        partition = self._partition_of(record, key, value, cluster)
        while True:
            result = self._accumulator.append(
                topic,
                partition,
                timestamp_ms,
                key,
                value,
                headers,
                on_delivery,
                max_time_to_block_ms=max(before_ms + max_block_ms - self._clock.monotonic_ms(), 0),
                now_ms=self._clock.monotonic_ms(),
                cluster=cluster,
                abort_on_new_batch=may_ask_again,
            )
            if not result.abort_for_new_batch or self._on_new_batch is None:
                return result
            self._on_new_batch(topic, cluster, partition)
            partition = self._partition_of(record, key, value, cluster)
            may_ask_again = False

    def _cluster_with(self, topic: str, partition: int | None) -> Cluster:
        """Return a cluster with the partition of a record.  Raises: as Metadata.cluster_with."""
        return self._metadata.cluster_with(topic, partition)

    def _partition_of(
        self, record: ProducerRecord, key: bytes | None, value: bytes | None, cluster: Cluster
    ) -> int | None:
        """Return the partition that the record names, or that a partitioner or the key selects.

        Returns: None to leave the choice to the accumulator.
        """
        if record.partition is not None:
            return record.partition
        if self._partitioner is not None:
            chosen = self._partitioner.partition(record.topic, record.key, key, record.value, value, cluster)
            chosen = checked_int(f"the partition that {self._partitioner!r} chose", chosen, least=0, greatest=MAX_INT32)
            self._metadata.cluster_with(record.topic, chosen)
            return chosen
        if key is None or self.config.partitioner_ignore_keys:
            return None
        return partition_for_key(key, cluster.partition_count(record.topic))

    @property
    def _max_block_ms(self) -> int:
        # In a callback this thread would wait for memory that only it frees.
        return 0 if self._sender.is_own_thread else self.config.max_block_ms

    @property
    def _max_record_bytes(self) -> int:
        return min(self.config.max_request_size, self.config.buffer_memory)

    def _estimated_size(self, key: bytes | None, value: bytes | None, headers: Iterable[Header]) -> int:
        return estimate_size_in_bytes_upper_bound(
            magic=MAGIC_V2, compression=self._accumulator.compression, key=key, value=value, headers=headers
        )

    def _check_size(self, size: int) -> None:
        for name in ("max_request_size", "buffer_memory"):
            most = getattr(self.config, name)
            if size > most:
                raise RecordTooLargeError(f"record too large: expected at most {name} = {most} bytes, found {size}")

    def _take_partition_counts(self, cluster: Cluster) -> None:
        counts = {}
        for topic in cluster.topics:
            infos = cluster.partitions_for_topic(topic)
            if infos[-1].partition == len(infos) - 1:
                counts[topic] = len(infos)
        self._partition_counts = counts

    def send_columns(self, topic: str, columns: Any, *, partition: int | None = None) -> ColumnsFuture:
        """Send all rows of Arrow data or of RecordColumns, as batches that take no other records.

        Args: columns: a pyarrow RecordBatch, Table or RecordBatchReader with the columns key and value (binary or
            string), timestamp (any unit, or int64 ms; the current time if missing) and headers, each optional; or a
            kstore.record.packing.RecordColumns of Arrow or NumPy buffers. partition: None to place rows by key, or,
            with partitioner_ignore_keys, all of them in the sticky partition.
        Returns: a future of (partition, base_offset, record_count) of each batch, in the order of creation. If the
            append or the source of the columns fails after the first batch, the future fails, and of a transaction only
            abort_transaction() is possible.
        Raises: what send() raises or reports by its future, and what the source raises, if no row was appended.
        Threads: safe.  Cost: as append_columns(); interceptors, serializers and partitioner_class are not called.
        """
        self._check_usable()
        partition = _checked_partition(partition)
        manager = self._transactions
        if manager is not None:
            manager.check_send()
        max_block_ms = self._max_block_ms
        before_ms = self._clock.monotonic_ms()
        cluster = self._metadata.cluster_with(topic, partition)
        future = ColumnsFuture()
        failure: KStoreError | ValueError | None = None
        try:
            for part in record_columns_of(columns, timestamp_ms=self._clock.wall_clock_ms()):
                waited_ms = self._clock.monotonic_ms() - before_ms
                appended = append_columns(
                    self._accumulator,
                    topic,
                    part,
                    partition=partition,
                    ignores_keys=self.config.partitioner_ignore_keys,
                    max_time_to_block_ms=max(max_block_ms - waited_ms, 0),
                    max_record_bytes=self._max_record_bytes,
                    cluster=cluster,
                    on_new_batch=lambda partition: self._follow_append(TopicPartition(topic, partition)),
                )
                future.join(appended)
                failure = appended.append_error
                if failure is not None:
                    break
        except Exception as error:
            if future.appended_rows == 0:
                raise
            failure = append_error_of(error)
        # An append after the end of its transaction affects neither that transaction nor the next.
        if failure is not None and manager is not None and not isinstance(failure, TransactionStateError):
            manager.note_failed_send(failure)
        future.wait(failure)
        return future

    def _follow_append(self, topic_partition: TopicPartition) -> None:
        """Wake the sender after a new batch, and add its partition to the transaction."""
        if self._transactions is not None:
            self._transactions.maybe_add_partition(topic_partition)
        self._sender.wakeup()

    # Partitions, metrics, flush and close

    def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """Return the partitions of a topic by number.  Raises: UnknownTopicOrPartitionError."""
        self._check_usable()
        return self._metadata.partitions_for(topic)

    def metrics(self) -> dict[str, float]:
        """Return all metrics by Kafka's names; rates and averages cover the last 30 to 60 seconds."""
        self._sender.note_direct_sends()
        return self._metrics.snapshot()

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all records sent before are done, successfully or not; batches do not linger during a flush.

        Args: timeout: in seconds, None to wait without limit.
        Raises: ProducerTimeoutError if the timeout expires; RuntimeError in a callback, where it would wait for itself,
            and in a signal handler that interrupted a call whose lock the sending thread needs.
        """
        self._check_usable()
        self._check_may_wait("flush()")
        with self._timed("flush"):
            if not self._accumulator.flush(timeout, wake=self._sender.wakeup):
                raise ProducerTimeoutError(f"records were not all sent within {timeout} s")

    def close(self, timeout: float | None = None) -> None:
        """Send the remaining records, abort an open transaction and stop; after the timeout, fail what was not sent.

        A second call does nothing, or continues an interrupted first one. In a callback it does not wait: records not
        sent yet fail.
        Args: timeout: in seconds, None to wait without limit.
        Raises: ValueError for a negative timeout; RuntimeError, with nothing done, in a signal handler that interrupted
            a call whose lock the sending thread needs.
        """
        if timeout is not None and timeout < 0:
            raise ValueError(f"timeout must not be negative, got {timeout}")
        if self._has_ended:
            return
        if not self._sender.is_own_thread:
            self._check_not_reentrant("close()")
        self._refuse("it was closed")
        self._sender.close(timeout)
        self._dropping.detach()
        self._has_ended = True
        while self._last_calls:
            self._last_calls.pop()()

    def _close_interceptors(self) -> None:
        self._interceptors.close()

    # Transactions

    def init_transactions(self) -> None:
        """Fence earlier producers of the transactional id, end their transactions and get a producer id.

        Raises: TransactionStateError without a transactional id or after a successful call; ProducerTimeoutError after
            max_block_ms, and calling again continues the wait; RuntimeError in a callback. commit_transaction() and
            abort_transaction() raise RuntimeError there, too.
        """
        self._await_transaction("init_transactions", lambda manager: manager.init_transactions())

    def begin_transaction(self) -> BegunTransaction:
        """Begin a transaction: records sent from now on belong to it.

        Returns: a context manager that commits at the end of its body, and aborts if the body, or the commit, raises an
            error. Without `with`, call commit_transaction() or abort_transaction().
        Raises: TransactionStateError before init_transactions() or inside another transaction; ProducerFencedError.
        """
        manager = self._transaction_manager()
        with self._timed("txn-begin"):
            manager.begin_transaction()
        return BegunTransaction(self)

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group: str
    ) -> None:
        """Commit a group's offsets with the transaction: both become visible together, or neither.

        So a program that reads with a Consumer and writes with this producer does each record's work exactly once.
        Args: offsets: the next offset to be read of each partition, as of Consumer.position; they go to the store's
            `__consumer_offsets`, which is created if it does not exist, as by Consumer.commit.
        Raises: TransactionStateError without an open transaction; UnknownTopicOrPartitionError, with nothing changed;
            an error of the append, after which only abort_transaction() is possible; ProducerFencedError;
            ProducerTimeoutError after max_block_ms; TypeError, ValueError for invalid offsets or an empty group;
            RuntimeError in a callback.
        """
        group, made = checked_group(group), checked_offsets(offsets)
        self._transaction_manager()
        for topic, partition in made:
            self._metadata.cluster_with(topic, partition)
        if made:
            self._await_transaction(
                "send_offsets_to_transaction", lambda manager: manager.send_offsets(group, made), timed="send-offsets"
            )

    def commit_transaction(self) -> None:
        """Send the remaining records and write the markers that make the transaction's records visible together.

        Raises: the error of a failed record, after which only abort_transaction() is possible; ProducerFencedError;
            TransactionStateError; ProducerTimeoutError after max_block_ms, for instance while the disk is full, and
            calling again continues the wait; any other StorageError, after which only close() is possible.
        """
        self._await_transaction("commit_transaction", lambda manager: manager.begin_commit())

    def abort_transaction(self) -> None:
        """Drop the records that were not sent and write the markers that hide the transaction's records.

        Raises: ProducerFencedError; TransactionStateError; ProducerTimeoutError as commit_transaction().
        """
        self._await_transaction("abort_transaction", lambda manager: manager.begin_abort())

    def _transaction_manager(self) -> TransactionManager:
        self._check_usable()
        if self._transactions is None or not self._transactions.is_transactional:
            raise TransactionStateError("transactions need a transactional_id")
        return self._transactions

    def _await_transaction(
        self, call: str, begin: Callable[[TransactionManager], TransactionalResult], *, timed: str | None = None
    ) -> None:
        manager = self._transaction_manager()
        self._check_may_wait(f"{call}()")
        with self._timed(f"txn-{timed or call.partition('_')[0]}"):
            result = begin(manager)
            self._sender.wakeup()
            result.wait(min(self.config.max_block_ms / _MS_PER_S, TIMEOUT_MAX))

    # Inside

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        before_ms = self._clock.monotonic_ms()
        try:
            yield
        finally:
            self._metrics.add_time_ns(name, (self._clock.monotonic_ms() - before_ms) * _NS_PER_MS)

    def _check_usable(self) -> None:
        if self._closed_why is not None or not self._sender.is_open:
            why = self._closed_why or "its store was closed, or the program ends"
            raise ProducerClosedError(f"the producer can't be used: {why}")

    def _check_may_wait(self, call: str) -> None:
        if self._sender.is_own_thread:
            raise RuntimeError(f"{call} in a callback would wait for the thread that it runs in")
        self._check_not_reentrant(call)

    def _check_not_reentrant(self, call: str) -> None:
        if self._sender.is_held_here:
            raise RuntimeError(
                f"{call} in a signal handler would wait for the call of the producer that the signal interrupted: let "
                "the handler only set a flag"
            )

    def _refuse(self, why: str) -> None:
        self._uses_fast_path = False
        self._closed_why = why

    def _forbid_in_child(self) -> None:
        """Refuse all calls in a forked child process, which has only a copy of the producer."""
        self._refuse("it was created in the parent process, before fork()")
        self._has_ended = True
        self._dropping.detach()


class BegunTransaction:
    """A transaction of a producer as a context manager; see Producer.begin_transaction.

    An error of the abort itself is that of a transaction that can't be aborted, such as one of a fenced producer: the
    error before it is raised.
    """

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def __enter__(self) -> Producer:
        return self._producer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._producer.commit_transaction()
                return
        except BaseException:
            self._abort()
            raise
        self._abort()

    def _abort(self) -> None:
        with suppress(KStoreError):
            self._producer.abort_transaction()


class _Intercepted:
    """A delivery callback that calls the interceptors first."""

    __slots__ = ("_interceptors", "_on_delivery")

    def __init__(self, interceptors: ProducerInterceptors, on_delivery: DeliveryCallback | None) -> None:
        self._interceptors = interceptors
        self._on_delivery = on_delivery

    def __call__(self, metadata: RecordMetadata, error: KStoreError | None) -> None:
        self._interceptors.on_acknowledgement(metadata, error)
        if self._on_delivery is not None:
            self._on_delivery(metadata, error)


def _metadata_of_failure(record: ProducerRecord) -> RecordMetadata:
    return RecordMetadata(*placeholder_partition(record))


def _check_callback(on_delivery: object) -> None:
    if on_delivery is not None and not callable(on_delivery):
        raise TypeError(f"on_delivery must be callable or None, got {on_delivery!r} ({type(on_delivery).__name__})")


def _checked_partition(partition: int | None) -> int | None:
    return None if partition is None else checked_int("partition", partition, least=0, greatest=MAX_INT32)


def _checked(record: ProducerRecord) -> ProducerRecord:
    """Return a record with its numbers as plain ints.  Raises: TypeError, ValueError for invalid fields."""
    topic, timestamp_ms = record.topic, record.timestamp_ms
    if not isinstance(topic, str):
        raise TypeError(f"topic must be a str, got {topic!r} ({type(topic).__name__})")
    if timestamp_ms is not None:
        timestamp_ms = time_ms("timestamp_ms", timestamp_ms, rounds_up=False, least=0)
    return record._replace(partition=_checked_partition(record.partition), timestamp_ms=timestamp_ms)


def _drop(client_id: str, sender: Sender) -> None:
    """Let the thread of a producer that was garbage-collected without close() send the rest and end."""
    if not sender.is_open:
        return
    try:
        named = f" {client_id!r}" if client_id else ""
        message = f"unclosed producer{named} with {sender.unsent_count} records that are not sent yet"
        warnings.warn(message, ResourceWarning, stacklevel=2)
    finally:
        sender.initiate_close()


# All producers, to disable their copies in a forked child, which lacks the sending threads.
_producers: weakref.WeakSet[Producer] = weakref.WeakSet()


def _forbid_in_child() -> None:
    for producer in list(_producers):
        producer._forbid_in_child()


after_fork_in_child(_forbid_in_child)
