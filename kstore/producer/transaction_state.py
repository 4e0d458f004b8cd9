"""What a coordinator keeps of a transactional id, and the record of it in `__transaction_state`. Layer 5."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby
from typing import Any

from kstore.errors import InvalidRecordError
from kstore.producer.producer_ids import ProducerIdAndEpoch
from kstore.record.internal_topics import DecodedMessage, decode_transaction_record, encode_transaction_record
from kstore.types import NO_TIMESTAMP, TopicPartition

TRANSACTION_STATE_TOPIC = "__transaction_state"


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


_PREPARED = (TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState:
    """One transactional id: its producer, and its transaction, the last one if none is open."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    timeout_ms: int
    status: TransactionStatus = TransactionStatus.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    last_update_ms: int = NO_TIMESTAMP
    start_ms: int = NO_TIMESTAMP

    @property
    def is_prepared(self) -> bool:
        """Whether it is decided how the transaction ends, and its markers may not be written yet."""
        return self.status in _PREPARED

    def to_record(self) -> tuple[bytes, bytes | None]:
        """Return key and value of its record, version 0."""
        fields = {
            "producerId": self.producer.producer_id,
            "producerEpoch": self.producer.epoch,
            "transactionTimeoutMs": self.timeout_ms,
            "transactionStatus": int(self.status),
            "transactionPartitions": self._partitions_by_topic(),
            "transactionLastUpdateTimestampMs": self.last_update_ms,
            "transactionStartTimestampMs": self.start_ms,
        }
        return encode_transaction_record(self.transactional_id, fields)

    def _partitions_by_topic(self) -> list[dict[str, Any]] | None:
        if self.status is TransactionStatus.EMPTY:
            return None
        topics = groupby(sorted(self.partitions), key=lambda topic_partition: topic_partition.topic)
        return [{"topic": topic, "partitionIds": [one.partition for one in ones]} for topic, ones in topics]


def read_transaction_state(key: bytes | None, value: bytes | None) -> tuple[str | None, TransactionState | None]:
    """Return the transactional id of a record, None for another kind, and its state, None if the id is forgotten.

    Raises: InvalidRecordError for bytes that are no such record, or a version or status that is not known.
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
    try:
        status = TransactionStatus(fields["transactionStatus"])
    except ValueError:
        found = fields["transactionStatus"]
        raise InvalidRecordError(
            f"status of transactional id {transactional_id!r}: expected 0 to 7, found {found}", found=found
        ) from None
    return transactional_id, TransactionState(
        transactional_id=transactional_id,
        producer=ProducerIdAndEpoch(fields["producerId"], fields["producerEpoch"]),
        timeout_ms=fields["transactionTimeoutMs"],
        status=status,
        partitions=frozenset(_partitions(fields["transactionPartitions"] or ())),
        last_update_ms=fields["transactionLastUpdateTimestampMs"],
        start_ms=fields["transactionStartTimestampMs"],
    )


def _partitions(topics: Iterable[dict[str, Any]]) -> Iterable[TopicPartition]:
    return (TopicPartition(one["topic"], number) for one in topics for number in one["partitionIds"])


def partition_of(transactional_id: str, *, partition_count: int) -> int:
    """Return the partition of `__transaction_state` that keeps a transactional id: Java's hash of it, without sign.

    Source: Kafka TransactionStateManager.partitionFor.
    """
    return abs(_java_hash(transactional_id)) % 2**31 % partition_count


def _java_hash(text: str) -> int:
    """String.hashCode: over UTF-16 units, in 32 bits with a sign."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(data), 2):
        value = (value * 31 + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value
