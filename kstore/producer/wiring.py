"""The parts of a producer, made of its settings and joined. Layer 5."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kstore.environment import Clock
from kstore.producer.accumulator import RecordAccumulator
from kstore.producer.buffer_pool import BufferPool
from kstore.producer.completion import SenderHooks
from kstore.producer.config import ProducerConfig
from kstore.producer.coordinator import TransactionCoordinator, coordinator_of
from kstore.producer.metadata import Metadata
from kstore.producer.metrics import ProducerMetrics
from kstore.producer.sender import Sender
from kstore.producer.store_sink import StoreSink
from kstore.producer.transaction_manager import TransactionManager

if TYPE_CHECKING:
    from kstore.producer.batch import ProducerBatch
    from kstore.producer.cluster import Node
    from kstore.producer.producer_store import ProducerStore
    from kstore.producer.sink import Sink


class ProducerParts:
    """Accumulator, sender and what they need, for one producer.

    Raises: TypeError for a target that is neither; ValueError if transactions are wanted of a sink without a
        coordinator.
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
                ack=config.ack,
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
        self._add_gauges()

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
        on_send=on_send, on_response=on_response, on_retry=on_retry, on_error=on_error, on_split=on_split
    )
