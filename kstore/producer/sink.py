"""Sink: where a Sender's batches go, an interface of two calls. Layer 5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kstore.errors import KStoreError
from kstore.producer.cluster import Cluster, Node
from kstore.producer.producer_store import Ack

if TYPE_CHECKING:
    from kstore.producer.batch import ProducerBatch

_NO_ERRORS: Mapping[int, KStoreError] = MappingProxyType({})


class ProduceResponse(NamedTuple):
    """What became of one batch (Kafka: ProduceResponse.PartitionResponse).

    base_offset is -1 where it is not known: the batch is in the log since an earlier try. is_retriable: nothing of the
    batch is in the log, or if it is the sink will know the batch again, so that the Sender may hand it over once more.
    record_errors: by place in the batch, of the records that are why the batch was refused.
    """

    base_offset: int
    log_append_time_ms: int = -1
    error: KStoreError | None = None
    is_retriable: bool = False
    record_errors: Mapping[int, KStoreError] = _NO_ERRORS


class Sink(Protocol):
    """Takes the batches of a Sender and says what became of each.

    Threads: one Sender calls send(), always in the same thread; cluster() is called by all that send records, too. A
        sink for several producers has to be safe.
    """

    def cluster(self) -> Cluster:
        """Return what partitions there are now, and who leads them; called before every send, so it should be cheap."""

    def send(self, node: Node, batches: Sequence[ProducerBatch], *, ack: Ack) -> Sequence[ProduceResponse]:
        """Take batches for partitions that a node leads, and return one response for each, in order.

        Several may be of one partition, in their order, in which they have to get there: at most
        max_in_flight_requests_per_connection, or, if that is above 1, as many as an attribute batches_per_partition of
        the sink says, should it have one. batch.records() is the closed batch; its bytes may be used until this
        returns. What is raised here fails all batches, and so does an answer that is not one a batch.
        Args: ack: "written" or "flushed", what has to have happened (docs/durability.md); with "buffered" nobody waits
            for the responses.
        """
