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
    InvalidPidMappingError,
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
from kstore.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, ControlRecordType, TopicPartition
from kstore.wire.schema import TAGGED_FIELDS


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


# The transaction.version in which a producer's epoch rises with each transaction (KIP-890).
EPOCH_BUMP_VERSION = 2
# The version of a record from which on it has tagged fields; two of these are carried along alone.
_TAGGED_VERSION = 1
_NEXT_PRODUCER_EPOCH = "nextProducerEpoch"
_CARRIED = (_NEXT_PRODUCER_EPOCH, TAGGED_FIELDS)
# Producers get no epoch above it; the one that is left is for the marker of what ends their transaction.
_LAST_PRODUCER_EPOCH = MAX_PRODUCER_EPOCH - 1
_PREPARED = (TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT)
_COMPLETE = (TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState:
    """The state of one transactional id: its producer and its current transaction, or the last one if none is open.

    Times are milliseconds since 1970, -1 for none; timeout_ms limits how long a transaction may stay open.
    client_version: the transaction.version of the request that led here; with 2, a decided transaction has the epoch
    after that of its data. previous_producer_id: of the state before; next_producer_id: that the producer goes on with
    once a decided transaction is complete, since its epochs are used up; both -1 for none. last_epoch: that of the
    producer before its last request, which no record has. record_version: of the value of its record; tagged: fields
    of version 1 that are kept as they were read.
    Source: Kafka TransactionMetadata.
    """

    transactional_id: str
    producer: ProducerIdAndEpoch
    timeout_ms: int
    status: TransactionStatus = TransactionStatus.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    last_update_ms: int = NO_TIMESTAMP
    start_ms: int = NO_TIMESTAMP
    client_version: int = 0
    previous_producer_id: int = field(default=NO_PRODUCER_ID, compare=False)
    next_producer_id: int = NO_PRODUCER_ID
    last_epoch: int = field(default=NO_PRODUCER_EPOCH, compare=False)
    record_version: int = 0
    tagged: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def first(cls, transactional_id: str, *, timeout_ms: int, now_ms: int) -> TransactionState:
        """Return the state of an id that is used for the first time."""
        producer_id = random_producer_id()
        return cls(
            transactional_id=transactional_id,
            producer=ProducerIdAndEpoch(producer_id, 0),
            timeout_ms=timeout_ms,
            last_update_ms=now_ms,
            previous_producer_id=producer_id,
        )

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

    def is_unused(self, now_ms: int, *, for_ms: int) -> bool:
        """Return whether no transaction is open, and nothing was heard of the id for so long."""
        is_idle = self.status is TransactionStatus.EMPTY or self.status in _COMPLETE
        return is_idle and now_ms - self.last_update_ms >= for_ms

    def check_producer(self, producer: ProducerIdAndEpoch) -> None:
        """Raise ProducerFencedError unless this is the current producer of the id: InvalidPidMappingError for another
        producer id.
        """
        if self.producer.producer_id != producer.producer_id:
            raise unknown_producer_error(self.transactional_id, producer)
        if self.producer != producer:
            raise fenced_error(self.transactional_id, producer)

    def was_ended_by(self, producer: ProducerIdAndEpoch) -> bool:
        """Return whether this is what a request of the producer made that ended a transaction and raised its epoch."""
        if self.client_version < EPOCH_BUMP_VERSION or not (self.is_prepared or self.status in _COMPLETE):
            return False
        if producer == self.producer._replace(epoch=self.producer.epoch - 1):
            return True
        return self.producer.epoch == 0 and producer == (self.previous_producer_id, _LAST_PRODUCER_EPOCH)

    def is_next_of(self, producer: ProducerIdAndEpoch) -> bool:
        """Return whether the producer's own last request made this, with its next epoch or id."""
        if self.is_ongoing or self.last_epoch == NO_PRODUCER_EPOCH or producer.epoch != self.last_epoch:
            return False
        return producer.producer_id in (self.producer.producer_id, self.previous_producer_id)

    def check_append(self, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]) -> None:
        """Check that the producer may append to partitions now.

        Raises: InvalidProducerEpochError if the producer was fenced; InvalidTxnStateError if it has no open transaction
            with these partitions.
        """
        if self.producer.producer_id != producer.producer_id:
            raise unknown_producer_error(self.transactional_id, producer)
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

    def initialized(
        self, now_ms: int, *, timeout_ms: int, current: ProducerIdAndEpoch = NO_PRODUCER
    ) -> TransactionState:
        """Return the state for the next producer, no transaction being open: with the next epoch, or with a new id if
        the epochs are used up.

        Args: current: of the producer that asks for them, if it is the one of the id; it may ask again.
        """
        epoch = self.producer.epoch
        is_used_up = epoch >= _LAST_PRODUCER_EPOCH
        return replace(
            self._changed(now_ms, client_version=self.client_version),
            producer=ProducerIdAndEpoch(random_producer_id(), 0)
            if is_used_up
            else self.producer._replace(epoch=epoch + 1),
            timeout_ms=timeout_ms,
            status=TransactionStatus.EMPTY,
            partitions=frozenset(),
            start_ms=NO_TIMESTAMP,
            previous_producer_id=current.producer_id if current.is_valid else self.producer.producer_id,
            last_epoch=current.epoch,
        )

    def with_partitions(
        self, partitions: Iterable[TopicPartition], now_ms: int, *, client_version: int = 0
    ) -> TransactionState:
        """Return the state with partitions added to the transaction, which begins with the first ones; self if it has
        them all.
        """
        added = self.partitions.union(partitions)
        if self.is_ongoing and added == self.partitions:
            return self
        return replace(
            self._changed(now_ms, client_version=client_version),
            status=TransactionStatus.ONGOING,
            partitions=added,
            start_ms=self.start_ms if self.is_ongoing else now_ms,
        )

    def fenced(self) -> TransactionState:
        """Return the state with the next epoch, in which the coordinator itself ends a transaction.

        Logs then refuse later data of the producer.
        """
        epoch = min(self.producer.epoch + 1, MAX_PRODUCER_EPOCH)
        return replace(self, producer=self.producer._replace(epoch=epoch), last_epoch=NO_PRODUCER_EPOCH)

    def prepared(self, now_ms: int, *, is_commit: bool, client_version: int = 0) -> TransactionState:
        """Return the state with the outcome decided.

        From version 2 on it has the next epoch, and an abort needs no open transaction.
        Raises: TransactionStateError if no transaction is open.
        """
        bumps_epoch = client_version >= EPOCH_BUMP_VERSION
        if not self.is_ongoing and (is_commit or self.is_prepared or not bumps_epoch):
            raise self.not_open_error()
        prepared = replace(
            self._changed(now_ms, client_version=client_version),
            status=TransactionStatus.PREPARE_COMMIT if is_commit else TransactionStatus.PREPARE_ABORT,
            start_ms=self.start_ms if self.is_ongoing else now_ms,
        )
        if not bumps_epoch:
            return prepared
        epoch = self.producer.epoch
        return replace(
            prepared,
            producer=self.producer._replace(epoch=min(epoch + 1, MAX_PRODUCER_EPOCH)),
            last_epoch=epoch,
            next_producer_id=random_producer_id() if epoch >= _LAST_PRODUCER_EPOCH else NO_PRODUCER_ID,
        )

    def given_up(self, now_ms: int) -> TransactionState:
        """Return the state in which the coordinator itself aborts an open transaction: with the next epoch.

        A producer of version 2 that aborts it too goes on with that epoch; one of version 1 is fenced.
        """
        if self.client_version >= EPOCH_BUMP_VERSION:
            return self.prepared(now_ms, is_commit=False, client_version=self.client_version)
        return self.fenced().prepared(now_ms, is_commit=False)

    def completed(self, now_ms: int) -> TransactionState:
        """Return the state after all markers of a decided transaction were written.

        A producer whose epochs are used up goes on with the id that it was promised.
        """
        is_commit = self.status is TransactionStatus.PREPARE_COMMIT
        has_next_id = self.next_producer_id != NO_PRODUCER_ID
        return replace(
            self._changed(now_ms, client_version=self.client_version),
            producer=ProducerIdAndEpoch(self.next_producer_id, 0) if has_next_id else self.producer,
            next_producer_id=NO_PRODUCER_ID,
            tagged={name: value for name, value in self.tagged.items() if name != _NEXT_PRODUCER_EPOCH},
            status=TransactionStatus.COMPLETE_COMMIT if is_commit else TransactionStatus.COMPLETE_ABORT,
            partitions=frozenset(),
        )

    def not_open_error(self) -> TransactionStateError:
        """Return the error for a request that needs an open transaction."""
        return TransactionStateError(
            f"transaction of {self.transactional_id!r}: expected an open one, found {self.status.name}"
        )

    def _changed(self, now_ms: int, *, client_version: int) -> TransactionState:
        """Return the state as each request that is stored changes it."""
        return replace(
            self,
            previous_producer_id=self.producer.producer_id,
            last_update_ms=now_ms,
            client_version=client_version,
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
        """Return key and value of the record for this state, in the given version, that in which it was read, or that
        which can say the client's version.
        """
        fields = {
            "producerId": self.producer.producer_id,
            "producerEpoch": self.producer.epoch,
            "transactionTimeoutMs": self.timeout_ms,
            "transactionStatus": int(self.status),
            "transactionPartitions": self._partitions_by_topic(),
            "transactionLastUpdateTimestampMs": self.last_update_ms,
            "transactionStartTimestampMs": self.start_ms,
        }
        written = max(version, self.record_version, min(self.client_version, _TAGGED_VERSION))
        if written >= _TAGGED_VERSION:
            tags = (
                ("previousProducerId", self.previous_producer_id, NO_PRODUCER_ID),
                ("nextProducerId", self.next_producer_id, NO_PRODUCER_ID),
                ("clientTransactionVersion", self.client_version, 0),
            )
            fields |= {name: value for name, value, default in tags if value != default}
            fields |= self.tagged
        return encode_transaction_record(self.transactional_id, fields, version=written)

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
        client_version=fields.get("clientTransactionVersion", 0),
        previous_producer_id=fields.get("previousProducerId", NO_PRODUCER_ID),
        next_producer_id=fields.get("nextProducerId", NO_PRODUCER_ID),
        record_version=record.value.version,
        tagged={name: fields[name] for name in _CARRIED if name in fields},
    )


def fenced_error(transactional_id: str, producer: ProducerIdAndEpoch) -> ProducerFencedError:
    """Return the error for a producer that is not the current one of its transactional id."""
    return ProducerFencedError(
        f"transactional id {transactional_id!r}: producer {producer.producer_id} with epoch {producer.epoch} was "
        "fenced: another one has started with the same id, or its transaction took too long"
    )


def unknown_producer_error(transactional_id: str, producer: ProducerIdAndEpoch) -> InvalidPidMappingError:
    """Return the error for a transactional id that is not known, or not with this producer id."""
    return InvalidPidMappingError(
        f"transactional id {transactional_id!r}: producer {producer.producer_id} is not its producer: init_producer_id "
        "comes first, or another one has started with the same id"
    )


def invalid_state_error(producer: ProducerIdAndEpoch, expected: str, found: str) -> InvalidTxnStateError:
    """Return the error for data of a producer whose transaction does not take it."""
    return InvalidTxnStateError(
        f"transaction of producer {producer.producer_id}: expected {expected}, found {found}",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
    )
