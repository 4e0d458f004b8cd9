"""SequenceTracker: the sequences of a producer in all its partitions, and which batches are in flight. Layer 5."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kstore._core import number_batches
from kstore.config import MAX_INT32
from kstore.producer.batches.ids import NO_PRODUCER, ProducerIdAndEpoch, add_to_sequence
from kstore.types import NO_SEQUENCE, TopicPartition

if TYPE_CHECKING:
    from kstore.producer.batches.batch import ProducerBatch

_HALF = 2**30


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


class SequenceTracker:
    """Counts the records of a producer, partition by partition.

    Attributes: producer_id_and_epoch (as whom batches are sent that get a sequence from now on), renumbers (partitions
        whose batches in flight get new sequences in the next epoch).
    Threads: for the Sender's.
    Source: Kafka TransactionManager, TxnPartitionMap.
    """

    def __init__(self, *, is_transactional: bool) -> None:
        self.is_transactional = is_transactional
        self.producer_id_and_epoch = NO_PRODUCER
        self.renumbers: set[TopicPartition] = set()
        self._entries: dict[TopicPartition, PartitionSequences] = {}
        # Partitions of which it is not known what is in the log.
        self._unresolved: set[TopicPartition] = set()

    def sequences_of(self, topic_partition: TopicPartition) -> PartitionSequences:
        """Return what is known of a partition."""
        entry = self._entries.get(topic_partition)
        if entry is None:
            entry = self._entries[topic_partition] = PartitionSequences()
        return entry

    def restart(self, producer: ProducerIdAndEpoch) -> None:
        """Forget everything and go on as this producer."""
        self.producer_id_and_epoch = producer
        self._entries.clear()
        self._unresolved.clear()
        self.renumbers.clear()

    def renumber_in_flight_batches(self) -> None:
        """Give the batches in flight of the partitions that asked for it sequences as the current producer."""
        for topic_partition in self.renumbers:
            self._start_at_beginning(topic_partition)
        self.renumbers.clear()

    def _start_at_beginning(self, topic_partition: TopicPartition) -> None:
        entry = self.sequences_of(topic_partition)
        entry.start_at_beginning(self.producer_id_and_epoch, is_transactional=self.is_transactional)
        self._unresolved.discard(topic_partition)

    def give_sequences(self, batches: list[ProducerBatch]) -> None:
        """Make batches of one partition that were never sent the current producer's next ones, and note them in flight.

        Raises: ValueError for one that is closed.
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
        # Whatever else is in flight came before them.
        entry.in_flight += batches

    def maybe_update_producer_id_and_epoch(self, topic_partition: TopicPartition) -> None:
        """Let a partition count from 0 as the current producer, if it has no batch in flight as the one before."""
        if self.has_stale_producer_id_and_epoch(topic_partition) and not self.has_in_flight_batches(topic_partition):
            self._start_at_beginning(topic_partition)

    def has_stale_producer_id_and_epoch(self, topic_partition: TopicPartition) -> bool:
        return self.sequences_of(topic_partition).producer != self.producer_id_and_epoch

    def has_in_flight_batches(self, topic_partition: TopicPartition) -> bool:
        entry = self._entries.get(topic_partition)
        return entry is not None and bool(entry.in_flight)

    def next_batch_by_sequence(self, topic_partition: TopicPartition) -> ProducerBatch | None:
        """Return the batch in flight with the lowest sequence."""
        entry = self._entries.get(topic_partition)
        return entry.in_flight[0] if entry is not None and entry.in_flight else None

    def first_in_flight_sequence(self, topic_partition: TopicPartition) -> int:
        batch = self.next_batch_by_sequence(topic_partition)
        return NO_SEQUENCE if batch is None else batch.base_sequence

    def is_retrying(self, topic_partition: TopicPartition) -> bool:
        """Tell whether a batch that was sent before is in flight: until it is done no new one may be sent."""
        batch = self.next_batch_by_sequence(topic_partition)
        return batch is not None and batch.in_retry

    def batch_before(self, batch: ProducerBatch) -> ProducerBatch | None:
        """Return the batch in flight of the same partition that comes just before another one, if there is one."""
        entry = self._entries.get(batch.topic_partition)
        return None if entry is None else entry.batch_before(batch)

    def add_in_flight_batch(self, batch: ProducerBatch) -> None:
        """Note a batch that has a sequence, in its place among those of its partition.

        Raises: ValueError for one without a sequence.
        """
        if not batch.has_sequence:
            raise ValueError(f"a batch of {batch.topic_partition} in flight has no sequence")
        self.sequences_of(batch.topic_partition).add(batch)

    def remove_in_flight_batch(self, batch: ProducerBatch) -> None:
        entry = self._entries.get(batch.topic_partition)
        if entry is not None:
            entry.remove(batch)

    def has_unresolved_sequence(self, topic_partition: TopicPartition) -> bool:
        """Tell whether it is not known which of the partition's batches are in the log."""
        return topic_partition in self._unresolved

    def mark_sequence_unresolved(self, batch: ProducerBatch) -> None:
        """Note that nobody will know whether a batch is in the log: it expired, or was given up, after it was sent."""
        self._unresolved.add(batch.topic_partition)

    def forget_in_flight_batches(self) -> None:
        """Drop all batches in flight, of which nobody will know whether they are in the log."""
        for topic_partition, entry in self._entries.items():
            if entry.in_flight:
                self._unresolved.add(topic_partition)
                entry.in_flight.clear()

    def settle_unresolved_sequences(self) -> Iterator[TopicPartition]:
        """Forget what is not known of partitions with nothing in flight; name those that can't go on counting.

        The others can: a later batch than the lost one is in the log.
        """
        for topic_partition in list(self._unresolved):
            entry = self.sequences_of(topic_partition)
            if not entry.in_flight:
                self._unresolved.discard(topic_partition)
                if not entry.is_next(entry.next_sequence):
                    yield topic_partition
