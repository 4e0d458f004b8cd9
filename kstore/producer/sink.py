"""The Sink protocol, and the checks on everything a sink returns.

A sink may be foreign code, so every response is checked before it is used. Metadata caches the cluster that a sink
reports.
"""

from __future__ import annotations

import logging
import operator
import traceback
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol, SupportsIndex

from kstore.config import MAX_INT64
from kstore.env.process import Clock
from kstore.errors import KStoreError, SinkResponseError, UnknownTopicOrPartitionError
from kstore.producer.cluster import Cluster, Node, PartitionInfo
from kstore.types import NO_OFFSET, NO_TIMESTAMP, SinkAck

if TYPE_CHECKING:
    from kstore.producer.batches.batch import ProducerBatch

_NO_ERRORS: Mapping[int, KStoreError] = MappingProxyType({})


class ProduceResponse(NamedTuple):
    """The outcome of one batch (Kafka: ProduceResponse.PartitionResponse).

    base_offset: -1 if unknown, when the batch is in the log from an earlier attempt. is_retriable: no part of the batch
    is in the log, or the sink will recognize it as a duplicate, so the Sender may send it again. record_errors: by
    index in the batch, the errors of the records for which the batch was refused.
    """

    base_offset: int
    log_append_time_ms: int = -1
    error: KStoreError | None = None
    is_retriable: bool = False
    record_errors: Mapping[int, KStoreError] = _NO_ERRORS


class Sink(Protocol):
    """Takes the batches of a Sender and returns the outcome of each.

    Threads: one Sender calls send() from one thread; cluster() is also called by every thread that sends records. A
        sink shared by several producers must be thread-safe.
    """

    def cluster(self) -> Cluster:
        """Return the current partitions and their leaders; called before every send, so it should be cheap."""

    def send(self, node: Node, batches: Sequence[ProducerBatch], *, ack: SinkAck) -> Sequence[ProduceResponse]:
        """Take batches for partitions that `node` leads; return one response for each, in order.

        Several batches may be of one partition; they are in order and must be written in that order. There are at most
        max_in_flight_requests_per_connection of them, or, if that is above 1, as many as an optional attribute
        batches_per_partition of the sink allows. An exception fails all batches, and so does a wrong number of
        responses.
        Args: ack: "written" or "flushed", what must have happened before this returns (docs/durability.md); with
            "buffered" nobody waits for the responses.
        Lifetime: batch.records() is the closed batch; its bytes may be used until this returns.
        """


_logger = logging.getLogger("kstore.producer")


def cluster_of(sink: Sink) -> Cluster:
    """Return the cluster of a sink.  Raises: SinkResponseError; what the sink raises."""
    cluster: object = sink.cluster()
    if not isinstance(cluster, Cluster):
        raise SinkResponseError(f"cluster() of {_name_of(sink)}: expected a Cluster, found {_name_of(cluster)}")
    return cluster


def answers_of(answers: object, *, count: int) -> list[object]:
    """Return the answers of a sink as a list of `count`; their contents are not checked.

    Raises: SinkResponseError if there is not one per batch; what the sink's own sequence type raises.
    """
    if not isinstance(answers, Sequence):
        raise SinkResponseError(f"responses of the sink: expected a sequence of {count}, found {_name_of(answers)}")
    taken = list(islice(answers, count + 1))
    if len(taken) != count or len(answers) != count:
        raise SinkResponseError(f"responses of the sink: expected {count}, one a batch, found {len(answers)}")
    return taken


def checked_response(answer: object, *, record_count: int) -> ProduceResponse:
    """Return the response to a batch of record_count records, checked.

    An invalid response is replaced by one with a SinkResponseError; errors that are not kstore's are wrapped.
    """
    try:
        return _checked(answer, record_count)
    except SinkResponseError as error:
        return ProduceResponse(NO_OFFSET, error=error)
    except Exception as error:
        _logger.exception("a response of the sink can't be read")
        wrong = SinkResponseError(f"response of the sink: {_name_of(answer)} can't be read: {_text_of(error)}")
        wrong.__cause__ = error
        return ProduceResponse(NO_OFFSET, error=wrong)


def _checked(answer: object, record_count: int) -> ProduceResponse:
    if not isinstance(answer, ProduceResponse):
        raise SinkResponseError(f"response of the sink: expected a ProduceResponse, found {_name_of(answer)}")
    if answer.error is None:
        return ProduceResponse(
            _number("base_offset", answer.base_offset, least=NO_OFFSET, most=MAX_INT64 - record_count),
            _number("log_append_time_ms", answer.log_append_time_ms, least=NO_TIMESTAMP, most=MAX_INT64),
        )
    record_errors: object = answer.record_errors
    if not isinstance(record_errors, Mapping):
        raise SinkResponseError(f"record_errors of a response: expected a mapping, found {_name_of(record_errors)}")
    return ProduceResponse(
        NO_OFFSET,
        error=_error("error", answer.error),
        is_retriable=bool(answer.is_retriable),
        record_errors={operator.index(at): _error("record_errors", error) for at, error in record_errors.items()},
    )


def _number(field: str, value: object, *, least: int, most: int) -> int:
    if type(value) is not int and not isinstance(value, SupportsIndex):
        raise SinkResponseError(f"{field} of a response: expected an int, found {_name_of(value)}")
    number = operator.index(value)
    if not least <= number <= most:
        raise SinkResponseError(f"{field} of a response: expected {least} to {most}, found {number}")
    return number


def _error(field: str, value: object) -> KStoreError:
    if not isinstance(value, Exception):
        raise SinkResponseError(f"{field} of a response: expected a KStoreError, found {_name_of(value)}")
    return as_kstore_error(value)


def as_kstore_error(error: BaseException, what: str = "the batch was not sent") -> KStoreError:
    """Return the error itself if it is a KStoreError, else a KStoreError with it as the cause."""
    if isinstance(error, KStoreError):
        return error
    wrapped = KStoreError(f"{what}: {_text_of(error)}")
    wrapped.__cause__ = error
    return wrapped


def _text_of(error: BaseException) -> str:
    # str() of a foreign exception may raise.
    return "".join(traceback.format_exception_only(type(error), error)).strip()


def _name_of(value: object) -> str:
    return type(value).__name__


class Metadata:
    """The cluster last reported by a sink, cached for max_age_ms.

    The sink is authoritative: a topic that it does not list is unknown at once, where a Kafka client would wait.
    Attributes: on_update: called with each new Cluster.
    Threads: safe; two threads that find the cluster too old may both ask.  Source: Kafka ProducerMetadata.
    """

    def __init__(self, sink: Sink, *, max_age_ms: int, clock: Clock) -> None:
        self._sink = sink
        self._max_age_ms = max_age_ms
        self._clock = clock
        self._cluster = Cluster()
        self._asked_ms: int | None = None
        self.on_update: Callable[[Cluster], object] | None = None

    @property
    def cluster(self) -> Cluster:
        """The cluster, at most max_age_ms old."""
        return self._cluster if self._is_fresh else self.update()

    def known_with(self, topic: str, partition: int | None = None) -> Cluster | None:
        """Return the cached cluster if it is not too old and has the topic, and the partition unless it is None."""
        cluster = self._cluster
        return cluster if self._is_fresh and _has(cluster, topic, partition) else None

    @property
    def _is_fresh(self) -> bool:
        return self._asked_ms is not None and self.age_ms < self._max_age_ms

    @property
    def age_ms(self) -> int:
        """Milliseconds since the sink was asked, 0 if it never was."""
        return 0 if self._asked_ms is None else self._clock.monotonic_ms() - self._asked_ms

    def update(self) -> Cluster:
        """Ask the sink now and return its cluster.  Raises: SinkResponseError; what the sink raises."""
        cluster = cluster_of(self._sink)
        self._cluster, self._asked_ms = cluster, self._clock.monotonic_ms()
        if self.on_update is not None:
            self.on_update(cluster)
        return cluster

    def cluster_with(self, topic: str, partition: int | None = None) -> Cluster:
        """Return a cluster that has the topic, and the partition unless it is None.

        Asks the sink again if the cached cluster does not have them.
        Raises: UnknownTopicOrPartitionError if the sink does not know them; SinkResponseError; what the sink raises.
        """
        cluster = self.cluster
        if not _has(cluster, topic, partition):
            cluster = self.update()
            if not _has(cluster, topic, partition):
                count = cluster.partition_count(topic)
                found = f"its {count} partitions" if count else f"the topics {', '.join(cluster.topics[:10]) or 'none'}"
                wanted = f"topic {topic!r}" if partition is None else f"partition {partition} of topic {topic!r}"
                raise UnknownTopicOrPartitionError(f"{wanted} is not among {found}")
        return cluster

    def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """Return the topic's partitions by number.  Raises: UnknownTopicOrPartitionError."""
        return self.cluster_with(topic).partitions_for_topic(topic)


def _has(cluster: Cluster, topic: str, partition: int | None) -> bool:
    return cluster.partition_count(topic) > 0 if partition is None else cluster.has_partition(topic, partition)
