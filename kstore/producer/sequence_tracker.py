"""SequenceTracker: the sequences of a producer in all its partitions, and which batches are in flight. Layer 5."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kstore._core import number_batches
from kstore.producer.producer_ids import NO_PRODUCER, ProducerIdAndEpoch
from kstore.producer.sequences import PartitionSequences
from kstore.types import NO_SEQUENCE, TopicPartition

if TYPE_CHECKING:
    from kstore.producer.batch import ProducerBatch


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
