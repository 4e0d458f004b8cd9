"""The topic `__transaction_state`: its states read (states_in) and appended (TransactionLog).

A module of its own, because states are read without a coordinator too, from a root that is only read.
"""

from __future__ import annotations

from functools import cached_property

from kstore.config import MIB, LogConfig
from kstore.coordinator.places import CoordinatorTopic
from kstore.coordinator.store import CoordinatorLog, CoordinatorStore, ReadableLog
from kstore.coordinator.transaction.state import TransactionState, read_transaction_state
from kstore.record.builder import MemoryRecordsBuilder
from kstore.record.schemas.topics import encode_transaction_record
from kstore.record.validation import AppendOrigin
from kstore.types import NO_TIMESTAMP, TRANSACTION_STATE_TOPIC, Ack

# Kafka's default of transaction.state.log.segment.bytes.
TRANSACTION_STATE_CONFIG = LogConfig(cleanup_policy="compact", compression_type="uncompressed", segment_bytes=100 * MIB)


def states_in(log: ReadableLog) -> dict[str, TransactionState]:
    """Return the last state of each transactional id in a partition, in the order in which they were appended.

    Raises: InvalidRecordError for a malformed record; CorruptRecordError and the other errors of a read.
    Cost: reads the whole partition.
    """
    states: dict[str, TransactionState] = {}
    for record in log.read():
        transactional_id, state = read_transaction_state(record.key, record.value)
        if transactional_id is not None:
            states.pop(transactional_id, None)
            if state is not None:
                states[transactional_id] = state
    return states


class TransactionLog(CoordinatorTopic):
    """The topic for states of transactional ids, in the format of Kafka's brokers.

    It is created with Kafka's settings when the first id is placed in it.
    Args: partition_count: as for a CoordinatorTopic.
    Threads: safe; of the appends of one id, the last one counts.
    Source: Kafka TransactionLog, TransactionStateManager.
    """

    def __init__(self, store: CoordinatorStore, *, partition_count: int | None = None) -> None:
        super().__init__(
            store, TRANSACTION_STATE_TOPIC, config=TRANSACTION_STATE_CONFIG, partition_count=partition_count
        )

    @cached_property
    def _version(self) -> int:
        """The least version of a record's value: 1 in a cluster with transaction.version 1 or more (KIP-890)."""
        return min(self._store.cluster_facts().features.get("transaction.version", 0), 1)

    def number_of(self, transactional_id: str) -> int:
        """Return the number of the partition for an id.  Raises: as partition_of()."""
        return self.partition_of(transactional_id).partition

    def log(self, number: int) -> CoordinatorLog:
        """Return a partition of the topic."""
        return self._store.log(TRANSACTION_STATE_TOPIC, number)

    def append(self, state: TransactionState, *, ack: Ack) -> None:
        """Append the state of an id.  Raises: StorageError and the other errors of an append."""
        record = state.to_record(version=self._version)
        self._append(state.transactional_id, record, max(state.last_update_ms, NO_TIMESTAMP), ack=ack)

    def remove(self, transactional_id: str, now_ms: int) -> None:
        """Append a tombstone for an id.  Raises: as append()."""
        self._append(transactional_id, encode_transaction_record(transactional_id, None), now_ms, ack="written")

    def _append(
        self, transactional_id: str, record: tuple[bytes, bytes | None], timestamp_ms: int, *, ack: Ack
    ) -> None:
        key, value = record
        builder = MemoryRecordsBuilder()
        builder.append(timestamp_ms=timestamp_ms, key=key, value=value)
        log = self.log(self.number_of(transactional_id))
        log.append(builder.build(), ack=ack, origin=AppendOrigin.COORDINATOR)

    def coordinator_epoch(self, transactional_id: str) -> int:
        """Return the epoch of the coordinator of an id: the leader epoch of its partition, 0 if it has none."""
        return max(self.log(self.number_of(transactional_id)).leader_epochs.latest_epoch, 0)
