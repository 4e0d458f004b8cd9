"""TransactionCoordinator: transactional ids, their producers and transactions, kept in the store itself. Layer 5."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import groupby
from typing import Any
from weakref import WeakValueDictionary

from kstore.config import MIB, LogConfig
from kstore.environment import SYSTEM_CLOCK, Clock
from kstore.errors import (
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    KStoreError,
    LogNotFoundError,
    ProducerFencedError,
    TransactionStateError,
)
from kstore.producer.batches.ids import MAX_PRODUCER_EPOCH, NO_PRODUCER, ProducerIdAndEpoch, random_producer_id
from kstore.producer.store import Ack, PartitionLog, ProducerStore
from kstore.record import (
    ControlRecordType,
    EndTransactionMarker,
    MemoryRecords,
    MemoryRecordsBuilder,
    with_end_transaction_marker,
)
from kstore.record.schemas.topics import DecodedMessage, decode_transaction_record, encode_transaction_record
from kstore.record.validation import AppendOrigin
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


# As transaction.state.log.num.partitions, transaction.state.log.segment.bytes, transaction.max.timeout.ms.
PARTITION_COUNT = 50
TRANSACTION_STATE_CONFIG = LogConfig(cleanup_policy="compact", compression_type="uncompressed", segment_bytes=100 * MIB)
MAX_TRANSACTION_TIMEOUT_MS = 15 * 60 * 1000

_logger = logging.getLogger("kstore.producer")


class _TransactionalId:
    """One transactional id; its lock is held while its state changes, and while its transactional data is appended.

    Attribute: marked (partitions that have the marker of what the state decides).
    """

    __slots__ = ("lock", "marked", "state")

    def __init__(self, state: TransactionState | None) -> None:
        self.lock = threading.Lock()
        self.state = state
        self.marked: set[TopicPartition] = set()


class TransactionCoordinator:
    """Gives out producer ids, fences, and ends transactions by markers in each of their partitions.

    All it knows lies in `__transaction_state` of the store, as brokers write it, so that either goes on where the other
    ended: by init_producer_id what a crash left decided is completed, and what it left open is aborted. Of a store
    there should be one (coordinator_of). For a store that goes back to a cluster that topic has to be there already,
    with the cluster's id of it: a broker puts away what it does not know.
    Args: partition_count: of the topic, if it has to be made.
    Raises: from every method that writes: StorageError and what else an append raises; the state is then as before,
        but for a transaction that was decided and whose end is not written everywhere: that is done by the next call.
    Threads: safe.
    Source: Kafka TransactionCoordinator, TransactionStateManager, TransactionMarkerChannelManager.
    """

    def __init__(
        self, store: ProducerStore, *, partition_count: int = PARTITION_COUNT, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._store = store
        self._clock = clock
        self._new_partition_count = partition_count
        self._partition_count: int | None = None
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
        """Return the producer to send as; who sent with this transactional id before is fenced, its data aborted.

        Args: transactional_id: None for an idempotent producer without transactions, of which nothing is kept;
            timeout_ms: after which abort_expired ends its transactions; current: what the caller got before, if it asks
            only for the next epoch.
        Raises: ProducerFencedError if `current` is not current any more; ValueError for an empty id or a timeout that
            is not from 1 to MAX_TRANSACTION_TIMEOUT_MS.
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
        """Make partitions part of the producer's transaction, which begins with the first ones.

        Raises: ProducerFencedError; TransactionStateError for an id that init_producer_id was not called for.
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
        """Decide the producer's transaction and write the markers; once that is noted, it survives a crash.

        A second call with the same decision does nothing.
        Raises: ProducerFencedError; TransactionStateError if there is no transaction, or it was ended the other way.
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

    @contextmanager
    def appending(self, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]) -> Iterator[None]:
        """Hold the producer's transaction open while its data is appended, so that none comes behind its marker.

        Raises: InvalidProducerEpochError if the producer was fenced; InvalidTxnStateError if it has no open transaction
            with these partitions.  Source: KIP-890.
        """
        entry = self._by_producer_id.get(producer.producer_id)
        if entry is None:
            raise _invalid_state(producer, "one that this coordinator made", "none")
        with entry.lock:
            state = entry.state
            if state is None or state.producer != producer:
                raise InvalidProducerEpochError(
                    f"producer {producer.producer_id}: its epoch {producer.epoch} is not current any more",
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
        """Abort the transactions open for longer than their timeout, fence their producers, and return how many.

        What is decided and not complete is completed. One that can't be ended, or not be read, is logged.
        Cost: the first call reads the transactional ids of the whole store.
        """
        for number in self._partition_numbers():
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

    def load(self) -> None:
        """Look at all transactional ids of the store, and complete what is decided, as a broker does when it starts."""
        with self._lock:
            for number in self._partition_numbers():
                self._load(number)
        for entry in list(self._ids.values()):
            with entry.lock:
                if entry.state is not None and entry.state.is_prepared:
                    self._complete(entry, entry.state, ack="written")

    def state(self, transactional_id: str) -> TransactionState | None:
        """Return what is known of a transactional id."""
        return self._entry(transactional_id).state

    # Inside

    def _entry(self, transactional_id: str) -> _TransactionalId:
        with self._lock:
            number = self._partition(transactional_id)
            self._load(number)
            return self._ids.setdefault(transactional_id, _TransactionalId(None))

    def _partition_numbers(self) -> list[int]:
        return [number for topic, number in self._store.partitions if topic == TRANSACTION_STATE_TOPIC]

    def _partition(self, transactional_id: str) -> int:
        if self._partition_count is None:
            self._partition_count = self._found_partition_count()
        return partition_of(transactional_id, partition_count=self._partition_count)

    def _found_partition_count(self) -> int:
        """Return how many partitions the topic has; it is made if there is none. Later ones would move ids about."""
        if not self._partition_numbers():
            count = self._new_partition_count
            self._store.create_topic(TRANSACTION_STATE_TOPIC, count, config=TRANSACTION_STATE_CONFIG)
        return max(self._partition_numbers()) + 1

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
        """Return the state of the id, completed if that was left to be done, for its current producer."""
        state = entry.state
        if state is None:
            raise TransactionStateError(f"transactional id {transactional_id!r}: init_producer_id comes first")
        if state.producer != producer:
            raise _fenced(transactional_id, producer)
        return self._complete(entry, state, ack=ack) if state.is_prepared else state

    def _end_what_is_open(self, entry: _TransactionalId, state: TransactionState, *, ack: Ack) -> TransactionState:
        """Complete what is decided; abort what is open, in an epoch that no log takes the old producer's data after."""
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
        """Write the markers of a transaction that is decided, then that it is complete.

        A partition that can't be marked keeps no other from it. Markers that a crash cut off are written to all
        partitions again; the logs pass over a second one.
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

    def _log(self, topic_partition: TopicPartition) -> PartitionLog | None:
        try:
            return self._store.log(*topic_partition)
        except LogNotFoundError:
            _logger.warning("a transaction ends without its partition %s, which is gone", topic_partition)
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
        key, value = state.to_record()
        builder = MemoryRecordsBuilder()
        builder.append(timestamp_ms=max(state.last_update_ms, NO_TIMESTAMP), key=key, value=value)
        log = self._store.log(TRANSACTION_STATE_TOPIC, self._partition(state.transactional_id))
        log.append(builder.build(), ack=ack, origin=AppendOrigin.COORDINATOR)
        entry.state = state
        entry.marked.clear()
        self._by_producer_id[state.producer.producer_id] = entry


# By the store's id, which is not given out again while the coordinator holds the store.
_coordinators: WeakValueDictionary[int, TransactionCoordinator] = WeakValueDictionary()
_coordinators_lock = threading.Lock()


def coordinator_of(store: ProducerStore) -> TransactionCoordinator:
    """Return the coordinator of a store, the same one for every caller as long as one holds it."""
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
    # The last epoch is left for the markers of a transaction that has to be fenced.
    if producer.epoch >= MAX_PRODUCER_EPOCH - 1:
        return ProducerIdAndEpoch(random_producer_id(), 0)
    return producer._replace(epoch=producer.epoch + 1)


def _fenced(transactional_id: str, producer: ProducerIdAndEpoch) -> ProducerFencedError:
    return ProducerFencedError(
        f"transactional id {transactional_id!r}: producer {producer.producer_id} with epoch {producer.epoch} was "
        "fenced, another one has begun with the same id or its transaction took too long"
    )


def _invalid_state(producer: ProducerIdAndEpoch, expected: str, found: str) -> InvalidTxnStateError:
    return InvalidTxnStateError(
        f"transaction of producer {producer.producer_id}: expected {expected}, found {found}",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
    )
