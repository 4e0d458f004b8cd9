"""TransactionState: a transactional id with its producer and its transaction, and what each request makes of it.

Nothing here reads, appends or waits: a coordinator appends a state before it acts on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import groupby
from typing import Any

from kstore.coordinator.producer_ids import (
    MAX_PRODUCER_EPOCH,
    NO_PRODUCER,
    ProducerIdAndEpoch,
    random_producer_id,
)
from kstore.errors import (
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionStateError,
)
from kstore.record.batches import MemoryRecords
from kstore.record.builder import with_end_transaction_marker
from kstore.record.control import EndTransactionMarker
from kstore.record.schemas.topics import DecodedMessage, decode_transaction_record, encode_transaction_record
from kstore.types import NO_TIMESTAMP, ControlRecordType, TopicPartition
from kstore.wire.schema import TAGGED_FIELDS

# The default of a broker's transaction.max.timeout.ms.
MAX_TRANSACTION_TIMEOUT_MS = 15 * 60 * 1000


class TransactionStatus(IntEnum):
    """States of a transaction, by their numbers in its record (Kafka: TransactionState)."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


# Fields of a record of version 1 that have tags (KIP-890).
_NEXT_PRODUCER_ID, _PREVIOUS_PRODUCER_ID = "nextProducerId", "previousProducerId"
_NEXT_PRODUCER_EPOCH, _CLIENT_VERSION = "nextProducerEpoch", "clientTransactionVersion"
_TAGGED = (_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID, _NEXT_PRODUCER_EPOCH, _CLIENT_VERSION, TAGGED_FIELDS)
_PREPARED = (TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState:
    """The state of one transactional id: its producer and its current transaction, or the last one if none is open.

    Times are milliseconds since 1970, -1 for none; timeout_ms limits how long a transaction may stay open.
    record_version: of the value of its record; tagged: the fields that only version 1 has, as they were read.
    Source: Kafka TransactionMetadata.
    """

    transactional_id: str
    producer: ProducerIdAndEpoch
    timeout_ms: int
    status: TransactionStatus = TransactionStatus.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    last_update_ms: int = NO_TIMESTAMP
    start_ms: int = NO_TIMESTAMP
    record_version: int = 0
    tagged: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_ongoing(self) -> bool:
        """Whether a transaction is open."""
        return self.status is TransactionStatus.ONGOING

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided and its markers may not all be written yet."""
        return self.status in _PREPARED

    def is_expired(self, now_ms: int) -> bool:
        """Return whether a transaction is open for longer than its timeout."""
        return self.is_ongoing and now_ms - self.start_ms > self.timeout_ms

    def check_producer(self, producer: ProducerIdAndEpoch) -> None:
        """Raise ProducerFencedError unless this is the current producer of the id."""
        if self.producer != producer:
            raise fenced_error(self.transactional_id, producer)

    def check_append(self, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]) -> None:
        """Check that the producer may append to partitions now.

        Raises: InvalidProducerEpochError if the producer was fenced; InvalidTxnStateError if it has no open transaction
            with these partitions.
        """
        if self.producer != producer:
            raise InvalidProducerEpochError(
                f"producer {producer.producer_id}: its epoch {producer.epoch} is no longer current",
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
            )
        if not self.is_ongoing:
            raise invalid_state_error(producer, "an open one", self.status.name)
        missing = set(partitions) - self.partitions
        if missing:
            raise invalid_state_error(producer, "one with its partitions", f"it without {min(missing)}")

    def next_producer(self) -> ProducerIdAndEpoch:
        """Return the next epoch, or a new producer id with epoch 0 if there is none."""
        # The last epoch is reserved for the markers of a transaction that must be fenced.
        if self.producer.epoch >= MAX_PRODUCER_EPOCH - 1:
            return ProducerIdAndEpoch(random_producer_id(), 0)
        return self.producer._replace(epoch=self.producer.epoch + 1)

    def with_partitions(self, partitions: Iterable[TopicPartition], now_ms: int) -> TransactionState:
        """Return the state with partitions added to the transaction, which begins with the first ones; self if it has
        them all.
        """
        added = self.partitions.union(partitions)
        if self.is_ongoing and added == self.partitions:
            return self
        return replace(
            self,
            status=TransactionStatus.ONGOING,
            partitions=added,
            last_update_ms=now_ms,
            start_ms=self.start_ms if self.is_ongoing else now_ms,
            # The producers of this coordinator keep their epoch from one transaction to the next.
            tagged={name: value for name, value in self.tagged.items() if name != _CLIENT_VERSION},
        )

    def fenced(self) -> TransactionState:
        """Return the state with the next epoch, in which the coordinator itself ends a transaction.

        Logs then refuse later data of the producer.
        """
        return replace(self, producer=self.producer._replace(epoch=self.producer.epoch + 1))

    def prepared(self, now_ms: int, *, is_commit: bool) -> TransactionState:
        """Return the state with the outcome decided.

        Raises: TransactionStateError if no transaction is open.
        """
        if not self.is_ongoing:
            raise TransactionStateError(
                f"transaction of {self.transactional_id!r}: expected an open one, found {self.status.name}"
            )
        status = TransactionStatus.PREPARE_COMMIT if is_commit else TransactionStatus.PREPARE_ABORT
        return replace(self, status=status, last_update_ms=now_ms)

    def completed(self, now_ms: int) -> TransactionState:
        """Return the state after all markers of a decided transaction were written.

        A producer whose epochs are used up goes on with the id that it was promised.
        """
        is_commit = self.status is TransactionStatus.PREPARE_COMMIT
        producer, tagged = self.producer, dict(self.tagged)
        next_id = tagged.pop(_NEXT_PRODUCER_ID, NO_PRODUCER.producer_id)
        tagged.pop(_NEXT_PRODUCER_EPOCH, None)
        if next_id != NO_PRODUCER.producer_id:
            tagged[_PREVIOUS_PRODUCER_ID] = producer.producer_id
            producer = ProducerIdAndEpoch(next_id, 0)
        return replace(
            self,
            producer=producer,
            tagged=tagged,
            status=TransactionStatus.COMPLETE_COMMIT if is_commit else TransactionStatus.COMPLETE_ABORT,
            partitions=frozenset(),
            last_update_ms=now_ms,
        )

    def marker(self, now_ms: int, *, coordinator_epoch: int) -> MemoryRecords:
        """Return the marker of a decided transaction, which each of its partitions gets."""
        is_commit = self.status is TransactionStatus.PREPARE_COMMIT
        return with_end_transaction_marker(
            EndTransactionMarker(
                control_type=ControlRecordType.COMMIT if is_commit else ControlRecordType.ABORT,
                coordinator_epoch=coordinator_epoch,
            ),
            timestamp_ms=now_ms,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
        )

    def to_record(self, *, version: int = 0) -> tuple[bytes, bytes | None]:
        """Return key and value of the record for this state, in the given version or that in which it was read."""
        fields = {
            "producerId": self.producer.producer_id,
            "producerEpoch": self.producer.epoch,
            "transactionTimeoutMs": self.timeout_ms,
            "transactionStatus": int(self.status),
            "transactionPartitions": self._partitions_by_topic(),
            "transactionLastUpdateTimestampMs": self.last_update_ms,
            "transactionStartTimestampMs": self.start_ms,
            **self.tagged,
        }
        return encode_transaction_record(self.transactional_id, fields, version=max(version, self.record_version))

    def _partitions_by_topic(self) -> list[dict[str, Any]] | None:
        if self.status is TransactionStatus.EMPTY:
            return None
        by_topic = groupby(sorted(self.partitions), key=lambda topic_partition: topic_partition.topic)
        return [{"topic": topic, "partitionIds": [number for _, number in group]} for topic, group in by_topic]


def read_transaction_state(key: bytes | None, value: bytes | None) -> tuple[str | None, TransactionState | None]:
    """Decode a record of `__transaction_state`.

    Returns: the transactional id, None for a record of another kind; its state, None if the record deletes the id.
    Raises: InvalidRecordError for malformed bytes, or an unknown version or status.
    """
    record = decode_transaction_record(key, value)
    if not isinstance(record.key, DecodedMessage):
        return None, None
    transactional_id = record.key.fields["transactionalId"]
    if record.value is None:
        return transactional_id, None
    if not isinstance(record.value, DecodedMessage):
        raise InvalidRecordError(f"state of transactional id {transactional_id!r}: {record.value.reason}")
    fields = record.value.fields
    number = fields["transactionStatus"]
    try:
        status = TransactionStatus(number)
    except ValueError:
        raise InvalidRecordError(
            f"status of transactional id {transactional_id!r}: expected 0 to 7, found {number}", found=number
        ) from None
    return transactional_id, TransactionState(
        transactional_id=transactional_id,
        producer=ProducerIdAndEpoch(fields["producerId"], fields["producerEpoch"]),
        timeout_ms=fields["transactionTimeoutMs"],
        status=status,
        partitions=frozenset(
            TopicPartition(topic["topic"], partition)
            for topic in fields["transactionPartitions"] or ()
            for partition in topic["partitionIds"]
        ),
        last_update_ms=fields["transactionLastUpdateTimestampMs"],
        start_ms=fields["transactionStartTimestampMs"],
        record_version=record.value.version,
        tagged={name: fields[name] for name in _TAGGED if name in fields},
    )


def fenced_error(transactional_id: str, producer: ProducerIdAndEpoch) -> ProducerFencedError:
    """Return the error for a producer that is not the current one of its transactional id."""
    return ProducerFencedError(
        f"transactional id {transactional_id!r}: producer {producer.producer_id} with epoch {producer.epoch} was "
        "fenced: another one has started with the same id, or its transaction took too long"
    )


def invalid_state_error(producer: ProducerIdAndEpoch, expected: str, found: str) -> InvalidTxnStateError:
    """Return the error for data of a producer whose transaction does not take it."""
    return InvalidTxnStateError(
        f"transaction of producer {producer.producer_id}: expected {expected}, found {found}",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
    )
