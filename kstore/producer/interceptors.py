"""Interceptors: user code that sees each record before it is sent, and its outcome."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from kstore.errors import KStoreError
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.producer.batches.futures import RecordMetadata

_logger = logging.getLogger("kstore.producer")

Header = tuple[str, bytes | None]


class ProducerRecord(NamedTuple):
    """The arguments of send() (Kafka: ProducerRecord); None where the producer decides."""

    topic: str
    value: Any = None
    key: Any = None
    headers: Iterable[Header] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class ProducerInterceptor:
    """Base class of interceptors; does nothing.  Source: Kafka ProducerInterceptor (KIP-42)."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send instead of `record`; called before serializers and partitioner."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: KStoreError | None) -> None:
        """Observe a record's success or failure; called before the record's own callback."""

    def close(self) -> None:
        """Release resources; called once when the producer is closed."""


class ProducerInterceptors:
    """The interceptors of a producer, called in order. An exception from one is logged, and the next ones still run.

    Threads: as safe as the interceptors are.  Source: Kafka ProducerInterceptors.
    """

    def __init__(self, interceptors: Iterable[ProducerInterceptor | type[ProducerInterceptor]]) -> None:
        self._interceptors = tuple(given() if isinstance(given, type) else given for given in interceptors)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        for interceptor in self._interceptors:
            try:
                record = interceptor.on_send(record)
            except Exception:
                _logger.exception("%r failed on a record of %s", interceptor, record.topic)
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: KStoreError | None) -> None:
        for interceptor in self._interceptors:
            _call(interceptor, interceptor.on_acknowledgement, metadata, error)

    def close(self) -> None:
        for interceptor in self._interceptors:
            _call(interceptor, interceptor.close)


def _call(interceptor: ProducerInterceptor, method: Callable[..., None], *arguments: object) -> None:
    try:
        method(*arguments)
    except Exception:
        _logger.exception("%r failed", interceptor)


def placeholder_partition(record: ProducerRecord) -> TopicPartition:
    """Return the partition of a record that failed before one was chosen: -1 unless the record names one."""
    return TopicPartition(record.topic, -1 if record.partition is None else record.partition)
