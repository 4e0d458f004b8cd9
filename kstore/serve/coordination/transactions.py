"""Transactions: those of a server, whose rules are TransactionCoordinator's: their data, codes and timer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from kstore._core import read_header
from kstore.coordinator.producer_ids import ProducerIdAndEpoch
from kstore.coordinator.transaction.coordinator import coordinator_of
from kstore.coordinator.transaction.state import EPOCH_BUMP_VERSION
from kstore.errors import (
    CorruptionError,
    InvalidPidMappingError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KStoreError,
    ProducerFencedError,
    TransactionStateError,
    UnsupportedError,
)
from kstore.serve.refusals import code_of
from kstore.store.store import WritableStore
from kstore.types import TRANSACTION_STATE_TOPIC, Ack, TopicPartition
from kstore.wire.codes import ErrorCode

# Kafka's transaction.abort.timed.out.transaction.cleanup.interval.ms; a broker looks for unused ids each hour.
_INTERVAL_S = 10.0
_OF_STATE = (ProducerFencedError, TransactionStateError, InvalidTxnStateError, InvalidProducerEpochError)


class Transactions:
    """The transactions of a store that is open for writing.

    Attributes: coordinator (of the store: producers in this process have it too; its calls wait for the disk and for
        each other, so that a server makes them in threads), ack (of what it appends), max_timeout_ms (of transactions).
    """

    def __init__(self, store: WritableStore, *, ack: Ack, expiration_ms: int, max_timeout_ms: int) -> None:
        self.coordinator = coordinator_of(store)
        self.ack: Ack = ack
        self.max_timeout_ms = max_timeout_ms
        self._store = store
        self._expiration_ms = expiration_ms
        self._timer: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Complete what is decided, and look after the transactions from now on."""
        self._timer = asyncio.ensure_future(self._look_after_again_and_again())

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def _look_after_again_and_again(self) -> None:
        while True:
            if any(topic == TRANSACTION_STATE_TOPIC for topic, _ in self._store.partitions):
                await asyncio.to_thread(self.look_after)
            await asyncio.sleep(_INTERVAL_S)

    def look_after(self) -> None:
        """Complete what is decided, abort what is open for too long, and forget the ids that nobody uses."""
        self.coordinator.abort_expired()
        self.coordinator.remove_unused(self._expiration_ms)

    def begin(self, transactional_id: str, data: Iterable[tuple[TopicPartition, ProducerIdAndEpoch]]) -> None:
        """Add the partitions of data to the transactions of its producers: clients of version 2 leave it to the broker.

        Raises: as TransactionCoordinator.add_partitions.
        Source: Kafka AddPartitionsToTxnManager.
        """
        places: dict[ProducerIdAndEpoch, list[TopicPartition]] = {}
        for place, producer in data:
            places.setdefault(producer, []).append(place)
        for producer, of_producer in places.items():
            self.coordinator.add_partitions(
                transactional_id, producer, of_producer, client_version=EPOCH_BUMP_VERSION, ack=self.ack
            )


def transactional_producer(records: bytes | memoryview | None) -> ProducerIdAndEpoch | None:
    """Return the producer of a transactional batch; None for another one, and for bytes that are none."""
    if not records:
        return None
    try:
        header = read_header(records, position=0)
    except (CorruptionError, UnsupportedError):
        return None
    return ProducerIdAndEpoch(header.producer_id, header.producer_epoch) if header.is_transactional else None


def code_of_request(error: KStoreError, *, knows_fenced: bool = True) -> int:
    """Return the code of a request to the coordinator.

    Args: knows_fenced: old clients know a producer that was fenced by the code of its epoch.
    """
    if not isinstance(error, _OF_STATE):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code_of(error) if knows_fenced else code_of_data(error)


def code_of_data(error: KStoreError, *, knows_abortable: bool = False) -> int:
    """Return the code of data that is not appended.

    Args: knows_abortable: whether the client aborts when it hears that data is not in its transaction.
    Source: Kafka AddPartitionsToTxnManager; KIP-890.
    """
    if isinstance(error, InvalidTxnStateError) and knows_abortable:
        return ErrorCode.TRANSACTION_ABORTABLE
    if isinstance(error, ProducerFencedError) and not isinstance(error, InvalidPidMappingError):
        return code_of(InvalidProducerEpochError)
    return code_of(error)
