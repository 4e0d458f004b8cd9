"""Sequence numbers of a producer, partition by partition, and the batches that have them and are not done. Layer 5."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.config import MAX_INT32
from kstore.producer.producer_ids import NO_PRODUCER, ProducerIdAndEpoch
from kstore.types import NO_SEQUENCE

if TYPE_CHECKING:
    from kstore.producer.batch import ProducerBatch

_HALF = 2**30


def add_to_sequence(sequence: int, *, count: int) -> int:
    """Return the sequence so many records behind another; 0 follows 2^31 - 1."""
    return (sequence + count) & MAX_INT32


def is_sequence_behind(sequence: int, *, other: int) -> bool:
    """Tell whether a sequence comes after another, which may be NO_SEQUENCE, by less than half of all there are."""
    return other == NO_SEQUENCE or 0 < (sequence - other) & MAX_INT32 < _HALF


class PartitionSequences:
    """The sequences of one partition (Kafka: TxnPartitionEntry).

    Attributes: producer (whose sequences they are), next_sequence, last_acked_sequence, in_flight (batches with a
    sequence that are not done, by rising sequence; also those that wait to be sent again).
    """

    __slots__ = ("in_flight", "last_acked_sequence", "next_sequence", "producer")

    def __init__(self) -> None:
        self.producer = NO_PRODUCER
        self.next_sequence = 0
        self.last_acked_sequence = NO_SEQUENCE
        self.in_flight: list[ProducerBatch] = []

    def add(self, batch: ProducerBatch) -> None:
        """Take a batch into those in flight, where its sequence belongs."""
        batches = self.in_flight
        at = len(batches)
        while at and _comes_before(batch, batches[at - 1]):
            at -= 1
        batches.insert(at, batch)

    def remove(self, batch: ProducerBatch) -> bool:
        """Take a batch out of those in flight; return whether it was there."""
        for at, one in enumerate(self.in_flight):
            if one is batch:
                del self.in_flight[at]
                return True
        return False

    def ack(self, last_sequence: int) -> None:
        """Note the last sequence of a batch that is in the log."""
        if is_sequence_behind(last_sequence, other=self.last_acked_sequence):
            self.last_acked_sequence = last_sequence

    def is_next(self, sequence: int) -> bool:
        """Tell whether a sequence follows the last one that is known to be in the log."""
        return sequence == add_to_sequence(self.last_acked_sequence, count=1)

    def has_acked(self, batch: ProducerBatch) -> bool:
        """Tell whether a batch is in the log because a later one is: the log takes sequences without a gap."""
        if (batch.producer_id, batch.producer_epoch) != self.producer or self.last_acked_sequence == NO_SEQUENCE:
            return False
        return not is_sequence_behind(batch.last_sequence, other=self.last_acked_sequence)

    def batch_before(self, batch: ProducerBatch) -> ProducerBatch | None:
        """Return the batch in flight that was sent just before another one; the last one, for a batch never sent."""
        before = None
        for one in self.in_flight:
            if one is batch:
                break
            before = one
        return before

    def has_any_before(self, batch: ProducerBatch) -> bool:
        """Tell whether a batch with an earlier sequence is in flight."""
        return any(_comes_before(one, batch) for one in self.in_flight if one is not batch)

    def start_at_beginning(self, producer: ProducerIdAndEpoch, *, is_transactional: bool) -> None:
        """Count from 0 for a producer; batches in flight get sequences anew."""
        sequence = 0
        for batch in self.in_flight:
            _renumber(batch, producer, sequence, is_transactional=is_transactional)
            sequence = add_to_sequence(sequence, count=batch.record_count)
        self.producer = producer
        self.next_sequence = sequence
        self.last_acked_sequence = NO_SEQUENCE


def _comes_before(batch: ProducerBatch, other: ProducerBatch) -> bool:
    if batch.producer_id == other.producer_id and batch.producer_epoch != other.producer_epoch:
        return batch.producer_epoch < other.producer_epoch
    return is_sequence_behind(other.base_sequence, other=batch.base_sequence)


def _renumber(batch: ProducerBatch, producer: ProducerIdAndEpoch, sequence: int, *, is_transactional: bool) -> None:
    batch.reset_producer_state(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
