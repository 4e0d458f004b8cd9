"""The sequence numbers of a producer: SequenceTracker and the sequences of one partition.

SequenceTracker assigns the sequence numbers of every partition and tracks the batches in flight.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kstore._core import increment_sequence, number_batches
from kstore.coordinator.producer_ids import NO_PRODUCER, ProducerIdAndEpoch
from kstore.types import NO_SEQUENCE, TopicPartition

if TYPE_CHECKING:
    from kstore.producer.batches.batch import ProducerBatch

_HALF = 2**30


def is_sequence_after(sequence: int, *, other: int) -> bool:
    """Return True if `sequence` comes after `other`, by less than half of the sequence space (2^30).

    Any sequence comes after NO_SEQUENCE.
    """
    return other == NO_SEQUENCE or 0 < increment_sequence(sequence, count=-other) < _HALF


class PartitionSequences:
    """The sequence numbers of one partition (Kafka: TxnPartitionEntry).

    Attributes: producer (the producer id and epoch that the numbers belong to), next_sequence, last_acked_sequence,
    in_flight (batches that have a sequence and are not done, in rising order; includes batches that wait for a retry).
    """

    __slots__ = ("in_flight", "last_acked_sequence", "next_sequence", "producer")

    def __init__(self) -> None:
        self.producer = NO_PRODUCER
        self.next_sequence = 0
        self.last_acked_sequence = NO_SEQUENCE
        self.in_flight: list[ProducerBatch] = []

    def add(self, batch: ProducerBatch) -> None:
        """Insert a batch into those in flight, in sequence order."""
        batches = self.in_flight
        at = len(batches)
        while at and _comes_before(batch, batches[at - 1]):
            at -= 1
        batches.insert(at, batch)

    def remove(self, batch: ProducerBatch) -> bool:
        """Remove a batch from those in flight; return whether it was there."""
        for at, in_flight in enumerate(self.in_flight):
            if in_flight is batch:
                del self.in_flight[at]
                return True
        return False

    def ack(self, last_sequence: int) -> None:
        """Record the last sequence of a batch that is in the log."""
        if is_sequence_after(last_sequence, other=self.last_acked_sequence):
            self.last_acked_sequence = last_sequence

    def is_next(self, sequence: int) -> bool:
        """Return whether `sequence` directly follows the last acknowledged one."""
        return sequence == increment_sequence(self.last_acked_sequence, count=1)

    def has_acked(self, batch: ProducerBatch) -> bool:
        """Return whether a batch must be in the log because a later one of the same epoch is.

        The log accepts the sequences of an epoch only without a gap.
        """
        if (batch.producer_id, batch.producer_epoch) != self.producer or self.last_acked_sequence == NO_SEQUENCE:
            return False
        return not is_sequence_after(batch.last_sequence, other=self.last_acked_sequence)

    def batch_before(self, batch: ProducerBatch) -> ProducerBatch | None:
        """Return the batch in flight just before `batch`, or None if there is none.

        For a batch that was never sent, this is the last one in flight.
        """
        before = None
        for in_flight in self.in_flight:
            if in_flight is batch:
                break
            before = in_flight
        return before

    def has_any_before(self, batch: ProducerBatch) -> bool:
        """Return whether a batch with an earlier sequence is in flight."""
        return any(_comes_before(in_flight, batch) for in_flight in self.in_flight if in_flight is not batch)

    def start_at_beginning(self, producer: ProducerIdAndEpoch, *, is_transactional: bool) -> None:
        """Switch to `producer`: number the batches in flight from 0, and continue after them."""
        sequence = 0
        for batch in self.in_flight:
            _renumber(batch, producer, sequence, is_transactional=is_transactional)
            sequence = increment_sequence(sequence, count=batch.record_count)
        self.producer = producer
        self.next_sequence = sequence
        self.last_acked_sequence = NO_SEQUENCE


def _comes_before(batch: ProducerBatch, other: ProducerBatch) -> bool:
    if batch.producer_id == other.producer_id and batch.producer_epoch != other.producer_epoch:
        return batch.producer_epoch < other.producer_epoch
    return is_sequence_after(other.base_sequence, other=batch.base_sequence)


def _renumber(batch: ProducerBatch, producer: ProducerIdAndEpoch, sequence: int, *, is_transactional: bool) -> None:
    batch.reset_producer_state(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


class SequenceTracker:
    """Assigns the sequence numbers of a producer in all its partitions and tracks its batches in flight.

    Attributes: producer_id_and_epoch (used for batches that get a sequence from now on), renumbers (partitions whose
    batches in flight are renumbered in the next epoch).
    Threads: not safe; used by the Sender's thread only.
    Source: Kafka TransactionManager, TxnPartitionMap.
    """

    def __init__(self, *, is_transactional: bool) -> None:
        self.is_transactional = is_transactional
        self.producer_id_and_epoch = NO_PRODUCER
        self.renumbers: set[TopicPartition] = set()
        self._entries: dict[TopicPartition, PartitionSequences] = {}
        # Partitions of which it is unknown which batches are in the log.
        self._unresolved: set[TopicPartition] = set()

    def sequences_of(self, topic_partition: TopicPartition) -> PartitionSequences:
        """Return the sequences of a partition, created on first use."""
        entry = self._entries.get(topic_partition)
        if entry is None:
            entry = self._entries[topic_partition] = PartitionSequences()
        return entry

    def restart(self, producer: ProducerIdAndEpoch) -> None:
        """Forget all partitions and continue with this producer id and epoch."""
        self.producer_id_and_epoch = producer
        self._entries.clear()
        self._unresolved.clear()
        self.renumbers.clear()

    def renumber_in_flight_batches(self) -> None:
        """Number the batches in flight of the partitions in `renumbers` from 0, as the current producer."""
        for topic_partition in self.renumbers:
            self._start_at_beginning(topic_partition)
        self.renumbers.clear()

    def _start_at_beginning(self, topic_partition: TopicPartition) -> None:
        entry = self.sequences_of(topic_partition)
        entry.start_at_beginning(self.producer_id_and_epoch, is_transactional=self.is_transactional)
        self._unresolved.discard(topic_partition)

    def assign_sequences(self, batches: list[ProducerBatch]) -> None:
        """Give new batches of one partition the current producer's next sequences, and add them to those in flight.

        Raises: ValueError if one of them is closed.
        """
        topic_partition = batches[0].topic_partition
        self.maybe_update_producer_id_and_epoch(topic_partition)
        entry = self.sequences_of(topic_partition)
        producer_id, producer_epoch = self.producer_id_and_epoch
        entry.next_sequence = number_batches(
            batches,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=entry.next_sequence,
            is_transactional=self.is_transactional,
        )
        # Every batch already in flight has an earlier sequence.
        entry.in_flight += batches

    def maybe_update_producer_id_and_epoch(self, topic_partition: TopicPartition) -> None:
        """Restart a partition at sequence 0 as the current producer, if its sequences belong to an earlier one.

        Does nothing while batches of the earlier producer are in flight.
        """
        if self.has_stale_producer_id_and_epoch(topic_partition) and not self.has_in_flight_batches(topic_partition):
            self._start_at_beginning(topic_partition)

    def has_stale_producer_id_and_epoch(self, topic_partition: TopicPartition) -> bool:
        """Return whether a partition's sequences belong to an earlier producer id or epoch."""
        return self.sequences_of(topic_partition).producer != self.producer_id_and_epoch

    def has_in_flight_batches(self, topic_partition: TopicPartition) -> bool:
        entry = self._entries.get(topic_partition)
        return entry is not None and bool(entry.in_flight)

    def next_batch_by_sequence(self, topic_partition: TopicPartition) -> ProducerBatch | None:
        """Return the batch in flight with the lowest sequence, None if there is none."""
        entry = self._entries.get(topic_partition)
        return entry.in_flight[0] if entry is not None and entry.in_flight else None

    def first_in_flight_sequence(self, topic_partition: TopicPartition) -> int:
        """Return the lowest base sequence in flight, NO_SEQUENCE if there is none."""
        batch = self.next_batch_by_sequence(topic_partition)
        return NO_SEQUENCE if batch is None else batch.base_sequence

    def is_retrying(self, topic_partition: TopicPartition) -> bool:
        """Return whether a batch that was sent before is in flight; no new batch may be sent until it is done."""
        batch = self.next_batch_by_sequence(topic_partition)
        return batch is not None and batch.in_retry

    def batch_before(self, batch: ProducerBatch) -> ProducerBatch | None:
        """Return the batch in flight just before `batch` in its partition, None if there is none."""
        entry = self._entries.get(batch.topic_partition)
        return None if entry is None else entry.batch_before(batch)

    def add_in_flight_batch(self, batch: ProducerBatch) -> None:
        """Add a batch to those in flight in its partition, in sequence order.

        Raises: ValueError if it has no sequence.
        """
        if not batch.has_sequence:
            raise ValueError(f"a batch of {batch.topic_partition} in flight has no sequence")
        self.sequences_of(batch.topic_partition).add(batch)

    def remove_in_flight_batch(self, batch: ProducerBatch) -> None:
        entry = self._entries.get(batch.topic_partition)
        if entry is not None:
            entry.remove(batch)

    def has_unresolved_sequence(self, topic_partition: TopicPartition) -> bool:
        """Return whether it is unknown which of the partition's batches are in the log."""
        return topic_partition in self._unresolved

    def mark_sequence_unresolved(self, batch: ProducerBatch) -> None:
        """Record that a batch may or may not be in the log: it expired or was abandoned after it was sent."""
        self._unresolved.add(batch.topic_partition)

    def forget_in_flight_batches(self) -> None:
        """Drop all batches in flight and mark their partitions unresolved: their outcome is unknown."""
        for topic_partition, entry in self._entries.items():
            if entry.in_flight:
                self._unresolved.add(topic_partition)
                entry.in_flight.clear()

    def settle_unresolved_sequences(self) -> Iterator[TopicPartition]:
        """Resolve the partitions without batches in flight; yield those that can't continue their sequences.

        A partition can continue if a batch after the lost one was acknowledged: its next sequence then follows the last
        acknowledged one.
        """
        for topic_partition in list(self._unresolved):
            entry = self.sequences_of(topic_partition)
            if not entry.in_flight:
                self._unresolved.discard(topic_partition)
                if not entry.is_next(entry.next_sequence):
                    yield topic_partition
