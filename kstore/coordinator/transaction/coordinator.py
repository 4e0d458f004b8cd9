"""TransactionCoordinator: transactional ids, their producers and transactions, stored in `__transaction_state`.

TransactionState is the state of one transactional id, with its encoding as a record of that topic.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import groupby
from typing import Any
from weakref import WeakValueDictionary

from kstore.config import MIB, LogConfig
from kstore.coordinator.group.offsets import GroupOffsets
from kstore.coordinator.places import CoordinatorPlaces
from kstore.coordinator.producer_ids import MAX_PRODUCER_EPOCH, NO_PRODUCER, ProducerIdAndEpoch, random_producer_id
from kstore.coordinator.store import CoordinatorLog, CoordinatorStore
from kstore.env.process import SYSTEM_CLOCK, Clock
from kstore.errors import (
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    KStoreError,
    LogNotFoundError,
    ProducerFencedError,
    TransactionStateError,
)
from kstore.record import (
    ControlRecordType,
    EndTransactionMarker,
    MemoryRecords,
    MemoryRecordsBuilder,
    with_end_transaction_marker,
)
from kstore.record.schemas.topics import (
    DecodedMessage,
    decode_transaction_record,
    encode_transaction_record,
)
from kstore.record.validation import AppendOrigin
from kstore.types import NO_TIMESTAMP, Ack, OffsetAndMetadata, TopicPartition

TRANSACTION_STATE_TOPIC = "__transaction_state"
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


_PREPARED = (TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState:
    """The state of one transactional id: its producer and its current transaction, or the last one if none is open.

    Times are milliseconds since 1970, -1 for none; timeout_ms limits how long a transaction may stay open.
    """

    transactional_id: str
    producer: ProducerIdAndEpoch
    timeout_ms: int
    status: TransactionStatus = TransactionStatus.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    last_update_ms: int = NO_TIMESTAMP
    start_ms: int = NO_TIMESTAMP

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided and its markers may not all be written yet."""
        return self.status in _PREPARED

    def to_record(self) -> tuple[bytes, bytes | None]:
        """Return key and value of the record for this state, version 0."""
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


# Kafka's defaults of transaction.state.log.num.partitions and transaction.state.log.segment.bytes.
PARTITION_COUNT = 50
TRANSACTION_STATE_CONFIG = LogConfig(cleanup_policy="compact", compression_type="uncompressed", segment_bytes=100 * MIB)
# A partition of `__transaction_state` is condensed if it has more records than both of these allow.
_MOST_RECORDS = 512
_MOST_RECORDS_PER_ID = 4

_logger = logging.getLogger("kstore.producer")


class _TransactionalId:
    """One transactional id; its lock is held while its state changes and while transactional data is appended.

    Attributes: marked (partitions that already have the marker of the decided outcome).
    """

    __slots__ = ("lock", "marked", "state")

    def __init__(self, state: TransactionState | None) -> None:
        self.lock = threading.Lock()
        self.state = state
        self.marked: set[TopicPartition] = set()


class TransactionCoordinator:
    """Allocates producer ids, fences producers, and ends transactions by writing markers to all their partitions.

    Its whole state is in the store's `__transaction_state`, in the format of Kafka's brokers, so a broker and this
    class can take over from each other: init_producer_id completes a transaction that a crash left decided and aborts
    one that it left open. Use one coordinator per store (coordinator_of). If the store is to return to a Kafka cluster,
    the topic must already exist with the cluster's topic id: a broker treats partitions of unknown topic ids as stray.
    Args: partition_count: of the topic, if it has to be created, or the store has only some of its partitions.
    Raises: from every method that writes: StorageError and the other errors of an append. The state is then unchanged,
        except that a transaction may be decided and its markers not all written; the next call completes it.
    Threads: safe.
    Source: Kafka TransactionCoordinator, TransactionStateManager, TransactionMarkerChannelManager.
    """

    def __init__(
        self, store: CoordinatorStore, *, partition_count: int = PARTITION_COUNT, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._store = store
        self._clock = clock
        self._group_offsets = GroupOffsets(store, clock=clock)
        self._new_partition_count = partition_count
        self._places = CoordinatorPlaces(store, TRANSACTION_STATE_TOPIC, default_count=partition_count)
        self._lock = threading.Lock()
        self._loaded: set[int] = set()
        self._ids: dict[str, _TransactionalId] = {}
        self._by_producer_id: dict[int, _TransactionalId] = {}

    def init_producer_id(
        self,
        transactional_id: str | None,
        *,
        timeout_ms: int = 60_000,
        current: ProducerIdAndEpoch = NO_PRODUCER,
        ack: Ack = "written",
    ) -> ProducerIdAndEpoch:
        """Return the producer id and epoch to send with; fence the previous producer of the id and end its transaction.

        Args: transactional_id: None for an idempotent producer without transactions, of which nothing is stored;
            timeout_ms: the age at which abort_expired aborts its transactions; current: the caller's present producer
            id and epoch, if it only needs the next epoch.
        Raises: ProducerFencedError if `current` is out of date; ValueError for an empty id, or a timeout outside of 1
            to MAX_TRANSACTION_TIMEOUT_MS.
        """
        if transactional_id is None:
            return ProducerIdAndEpoch(random_producer_id(), 0)
        if not transactional_id:
            raise ValueError("a transactional id must not be empty")
        if not 1 <= timeout_ms <= MAX_TRANSACTION_TIMEOUT_MS:
            raise ValueError(f"timeout_ms must be from 1 to {MAX_TRANSACTION_TIMEOUT_MS}, got {timeout_ms}")
        entry = self._entry(transactional_id)
        with entry.lock:
            state = entry.state
            if current.is_valid and (state is None or state.producer != current):
                raise _fenced(transactional_id, current)
            if state is None:
                producer = ProducerIdAndEpoch(random_producer_id(), 0)
            else:
                producer = _next_producer(self._end_what_is_open(entry, state, ack=ack).producer)
            made = TransactionState(
                transactional_id=transactional_id,
                producer=producer,
                timeout_ms=timeout_ms,
                last_update_ms=self._clock.wall_clock_ms(),
            )
            self._save(entry, made, ack=ack)
            return producer

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
        *,
        ack: Ack = "written",
    ) -> None:
        """Add partitions to the producer's transaction; the first ones begin it.

        Raises: ProducerFencedError; TransactionStateError for an id without a call of init_producer_id.
        """
        entry = self._entry(transactional_id)
        with entry.lock:
            state = self._current(entry, transactional_id, producer, ack=ack)
            added = state.partitions.union(partitions)
            if state.status is TransactionStatus.ONGOING and added == state.partitions:
                return
            now_ms = self._clock.wall_clock_ms()
            is_going_on = state.status is TransactionStatus.ONGOING
            changed = replace(
                state,
                status=TransactionStatus.ONGOING,
                partitions=added,
                last_update_ms=now_ms,
                start_ms=state.start_ms if is_going_on else now_ms,
            )
            self._save(entry, changed, ack=ack)

    def end_transaction(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, is_commit: bool, ack: Ack = "written"
    ) -> None:
        """Commit or abort the producer's transaction and write the markers; a stored decision survives a crash.

        A second call with the same decision does nothing.
        Raises: ProducerFencedError; TransactionStateError if there is no transaction, or it ended the other way.
        """
        entry = self._entry(transactional_id)
        complete = TransactionStatus.COMPLETE_COMMIT if is_commit else TransactionStatus.COMPLETE_ABORT
        with entry.lock:
            state = self._current(entry, transactional_id, producer, ack=ack)
            if state.status is complete:
                return
            if state.status is not TransactionStatus.ONGOING:
                raise TransactionStateError(
                    f"transaction of {transactional_id!r}: expected an open one, found {state.status.name}"
                )
            self._end(entry, state, is_commit=is_commit, ack=ack)

    def offsets_partition(self, group: str) -> TopicPartition:
        """Return the partition of `__consumer_offsets` for a group; the topic is created if it does not exist.

        Raises: StorageError.
        """
        return self._group_offsets.partition_of(group)

    def commit_offsets(
        self,
        producer: ProducerIdAndEpoch,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        ack: Ack = "written",
    ) -> None:
        """Write a group's offsets as part of the producer's transaction, to which offsets_partition() was added.

        Raises: UnknownTopicOrPartitionError for an offset of an unknown partition; as appending().
        Source: Kafka's request TxnOffsetCommit.
        """
        with self.appending(producer, (self.offsets_partition(group),)):
            self._group_offsets.commit(group, offsets, producer=producer, ack=ack)

    @contextmanager
    def appending(self, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]) -> Iterator[None]:
        """Keep the producer's transaction open while its data is appended, so that none is appended after the marker.

        Raises: InvalidProducerEpochError if the producer was fenced; InvalidTxnStateError if it has no open transaction
            with these partitions.
        Source: KIP-890.
        """
        entry = self._by_producer_id.get(producer.producer_id)
        if entry is None:
            raise _invalid_state(producer, "one that this coordinator made", "none")
        with entry.lock:
            state = entry.state
            if state is None or state.producer != producer:
                raise InvalidProducerEpochError(
                    f"producer {producer.producer_id}: its epoch {producer.epoch} is no longer current",
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                )
            if state.status is not TransactionStatus.ONGOING:
                raise _invalid_state(producer, "an open one", state.status.name)
            missing = set(partitions) - state.partitions
            if missing:
                raise _invalid_state(producer, "one with its partitions", f"it without {min(missing)}")
            yield

    def abort_expired(self) -> int:
        """Abort the transactions open for longer than their timeout, fence their producers, and return their number.

        Also completes the transactions that are decided. Errors of single transactions, and of partitions that can't be
        read, are logged.
        Cost: the first call reads the transactional ids of the whole store.
        """
        for number in self._places.numbers:
            with _going_on(f"transactional ids of partition {number}"), self._lock:
                self._load(number)
        now_ms = self._clock.wall_clock_ms()
        count = 0
        for transactional_id, entry in list(self._ids.items()):
            with _going_on(f"transaction of {transactional_id!r}"), entry.lock:
                state = entry.state
                if state is None:
                    continue
                is_late = now_ms - state.start_ms > state.timeout_ms
                if state.is_prepared or (state.status is TransactionStatus.ONGOING and is_late):
                    self._end_what_is_open(entry, state, ack="written")
                    count += not state.is_prepared
        return count

    def end_transactions_in(self, topic_partition: TopicPartition, *, ack: Ack = "written") -> int:
        """End every transaction that has this partition: complete the decided ones, abort the open ones.

        For whoever alone writes transactions with this partition, so that no producer of one can be alive; their
        producers are fenced.
        Returns: the number of transactions that were ended.
        Cost: the first call reads the transactional ids of the whole store.
        """
        with self._lock:
            for number in self._places.numbers:
                self._load(number)
        count = 0
        for entry in list(self._ids.values()):
            with entry.lock:
                state = entry.state
                if state is not None and topic_partition in state.partitions:
                    self._end_what_is_open(entry, state, ack=ack)
                    count += 1
        return count

    def condense(self, transactional_id: str) -> bool:
        """Shorten the partition with the state of an id if most of its records are out of date; return whether it was.

        Every commit adds four records, and whoever opens the store next reads them all; a broker compacts them. The
        state of each id is appended once more, and when that is durable, the records before are deleted.
        """
        with self._lock:
            number = self._partition(transactional_id)
            self._load(number)
            entries = [entry for one, entry in self._ids.items() if self._partition(one) == number]
        log = self._store.log(TRANSACTION_STATE_TOPIC, number)
        first = log.log_end_offset
        if first - log.log_start_offset <= max(_MOST_RECORDS, _MOST_RECORDS_PER_ID * len(entries)):
            return False
        for entry in entries:
            with entry.lock:
                if entry.state is not None:
                    self._append(entry.state, ack="written")
        log.flush()
        log.delete_records(first)
        return True

    def load(self) -> None:
        """Read all transactional ids and complete the decided transactions, as a broker does at start."""
        with self._lock:
            for number in self._places.numbers:
                self._load(number)
        for entry in list(self._ids.values()):
            with entry.lock:
                if entry.state is not None and entry.state.is_prepared:
                    self._complete(entry, entry.state, ack="written")

    def state(self, transactional_id: str) -> TransactionState | None:
        """Return the state of a transactional id, None if it is unknown."""
        return self._entry(transactional_id).state

    # Inside

    def _entry(self, transactional_id: str) -> _TransactionalId:
        with self._lock:
            number = self._partition(transactional_id)
            self._load(number)
            return self._ids.setdefault(transactional_id, _TransactionalId(None))

    def _partition(self, transactional_id: str) -> int:
        """Return the number of the partition for an id; the topic is created if it does not exist."""
        if not self._places.numbers:
            count = self._new_partition_count
            self._store.create_topic(TRANSACTION_STATE_TOPIC, count, config=TRANSACTION_STATE_CONFIG)
        return self._places.place_of(transactional_id).partition

    def _load(self, number: int) -> None:
        if number in self._loaded:
            return
        states: dict[str, TransactionState] = {}
        for record in self._store.log(TRANSACTION_STATE_TOPIC, number).read():
            transactional_id, state = read_transaction_state(record.key, record.value)
            if transactional_id is not None:
                states.pop(transactional_id, None)
                if state is not None:
                    states[transactional_id] = state
        for transactional_id, state in states.items():
            entry = _TransactionalId(state)
            self._ids[transactional_id] = self._by_producer_id[state.producer.producer_id] = entry
        self._loaded.add(number)

    def _current(
        self, entry: _TransactionalId, transactional_id: str, producer: ProducerIdAndEpoch, *, ack: Ack
    ) -> TransactionState:
        """Return the state of an id for its current producer, after completing a transaction that is already decided.

        Raises: TransactionStateError for an id without state; ProducerFencedError for another producer.
        """
        state = entry.state
        if state is None:
            raise TransactionStateError(f"transactional id {transactional_id!r}: init_producer_id comes first")
        if state.producer != producer:
            raise _fenced(transactional_id, producer)
        return self._complete(entry, state, ack=ack) if state.is_prepared else state

    def _end_what_is_open(self, entry: _TransactionalId, state: TransactionState, *, ack: Ack) -> TransactionState:
        """Complete a decided transaction, or abort an open one.

        The abort uses the next epoch, so that logs refuse later data of the old producer.
        """
        if state.is_prepared:
            return self._complete(entry, state, ack=ack)
        if state.status is not TransactionStatus.ONGOING:
            return state
        fenced = replace(state, producer=state.producer._replace(epoch=state.producer.epoch + 1))
        return self._end(entry, fenced, is_commit=False, ack=ack)

    def _end(self, entry: _TransactionalId, state: TransactionState, *, is_commit: bool, ack: Ack) -> TransactionState:
        status = TransactionStatus.PREPARE_COMMIT if is_commit else TransactionStatus.PREPARE_ABORT
        prepared = replace(state, status=status, last_update_ms=self._clock.wall_clock_ms())
        self._save(entry, prepared, ack=ack)
        return self._complete(entry, prepared, ack=ack)

    def _complete(self, entry: _TransactionalId, state: TransactionState, *, ack: Ack) -> TransactionState:
        """Write the markers of a decided transaction, then its complete state.

        A partition whose marker fails does not stop the others; the first error is raised at the end. After a crash the
        markers are written to all partitions again; the logs ignore duplicates.
        """
        is_commit = state.status is TransactionStatus.PREPARE_COMMIT
        failure: KStoreError | None = None
        for topic_partition in sorted(state.partitions):
            try:
                self._mark(entry, topic_partition, self._marker(state, is_commit=is_commit), ack=ack)
            except KStoreError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        complete = replace(
            state,
            status=TransactionStatus.COMPLETE_COMMIT if is_commit else TransactionStatus.COMPLETE_ABORT,
            partitions=frozenset(),
            last_update_ms=self._clock.wall_clock_ms(),
        )
        self._save(entry, complete, ack=ack)
        return complete

    def _mark(
        self, entry: _TransactionalId, topic_partition: TopicPartition, marker: MemoryRecords, *, ack: Ack
    ) -> None:
        log = self._log(topic_partition)
        if log is None:
            return
        if topic_partition not in entry.marked:
            log.append(marker, origin=AppendOrigin.COORDINATOR)
            entry.marked.add(topic_partition)
        if ack == "flushed":
            log.flush()

    def _log(self, topic_partition: TopicPartition) -> CoordinatorLog | None:
        try:
            return self._store.log(*topic_partition)
        except LogNotFoundError:
            _logger.warning("completed a transaction without its partition %s, which no longer exists", topic_partition)
            return None

    def _marker(self, state: TransactionState, *, is_commit: bool) -> MemoryRecords:
        number = self._partition(state.transactional_id)
        leader_epoch = self._store.log(TRANSACTION_STATE_TOPIC, number).leader_epochs.latest_epoch
        return with_end_transaction_marker(
            EndTransactionMarker(
                control_type=ControlRecordType.COMMIT if is_commit else ControlRecordType.ABORT,
                coordinator_epoch=max(leader_epoch, 0),
            ),
            timestamp_ms=self._clock.wall_clock_ms(),
            producer_id=state.producer.producer_id,
            producer_epoch=state.producer.epoch,
        )

    def _save(self, entry: _TransactionalId, state: TransactionState, *, ack: Ack) -> None:
        self._append(state, ack=ack)
        entry.state = state
        entry.marked.clear()
        self._by_producer_id[state.producer.producer_id] = entry

    def _append(self, state: TransactionState, *, ack: Ack) -> None:
        key, value = state.to_record()
        builder = MemoryRecordsBuilder()
        builder.append(timestamp_ms=max(state.last_update_ms, NO_TIMESTAMP), key=key, value=value)
        log = self._store.log(TRANSACTION_STATE_TOPIC, self._partition(state.transactional_id))
        log.append(builder.build(), ack=ack, origin=AppendOrigin.COORDINATOR)


# By id(store), which stays unique because the coordinator references the store.
_coordinators: WeakValueDictionary[int, TransactionCoordinator] = WeakValueDictionary()
_coordinators_lock = threading.Lock()


def coordinator_of(store: CoordinatorStore) -> TransactionCoordinator:
    """Return the coordinator of a store: the same object for all callers, while any of them references it."""
    with _coordinators_lock:
        coordinator = _coordinators.get(id(store))
        if coordinator is None:
            coordinator = _coordinators[id(store)] = TransactionCoordinator(store)
        return coordinator


@contextmanager
def _going_on(what: str) -> Iterator[None]:
    try:
        yield
    except KStoreError as error:
        _logger.warning("%s: %s", what, error)


def _next_producer(producer: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
    # The last epoch is reserved for the markers of a transaction that must be fenced.
    if producer.epoch >= MAX_PRODUCER_EPOCH - 1:
        return ProducerIdAndEpoch(random_producer_id(), 0)
    return producer._replace(epoch=producer.epoch + 1)


def _fenced(transactional_id: str, producer: ProducerIdAndEpoch) -> ProducerFencedError:
    return ProducerFencedError(
        f"transactional id {transactional_id!r}: producer {producer.producer_id} with epoch {producer.epoch} was "
        "fenced: another one has started with the same id, or its transaction took too long"
    )


def _invalid_state(producer: ProducerIdAndEpoch, expected: str, found: str) -> InvalidTxnStateError:
    return InvalidTxnStateError(
        f"transaction of producer {producer.producer_id}: expected {expected}, found {found}",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
    )
