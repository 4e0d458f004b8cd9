"""TransactionCoordinator: gives out producer ids, and begins and ends the transactions of a store."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from weakref import WeakValueDictionary

from kstore.config import MAX_TRANSACTION_TIMEOUT_MS
from kstore.coordinator.group.offsets import GroupOffsets
from kstore.coordinator.producer_ids import NO_PRODUCER, ProducerIdAndEpoch, random_producer_id
from kstore.coordinator.store import CoordinatorLog, CoordinatorStore, flush_together
from kstore.coordinator.transaction.log import TransactionLog, states_in
from kstore.coordinator.transaction.state import (
    EPOCH_BUMP_VERSION,
    TransactionState,
    TransactionStatus,
    fenced_error,
    invalid_state_error,
    unknown_producer_error,
)
from kstore.env.process import SYSTEM_CLOCK, Clock
from kstore.errors import KStoreError, LogNotFoundError
from kstore.record.batches import MemoryRecords
from kstore.record.validation import AppendOrigin
from kstore.types import Ack, OffsetAndMetadata, TopicPartition

# A partition of `__transaction_state` is condensed if it has more records than both of these allow.
_MOST_RECORDS = 512
_MOST_RECORDS_PER_ID = 4

_logger = logging.getLogger("kstore.producer")


class _TransactionalId:
    """One transactional id; its lock is held while its state changes and while transactional data is appended.

    Attributes: state (None before init_producer_id), marked (partitions that have the marker of the decided outcome).
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
    Args: partition_count: of `__transaction_state`, as for a CoordinatorTopic.
    Raises: from every method that writes: StorageError and the other errors of an append. The state is then unchanged,
        except that a transaction may be decided and its markers not all written; the next call completes it.
    Threads: safe.
    Source: Kafka TransactionCoordinator, TransactionStateManager, TransactionMarkerChannelManager.
    """

    def __init__(
        self, store: CoordinatorStore, *, partition_count: int | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._store = store
        self._clock = clock
        self._group_offsets = GroupOffsets(store, clock=clock)
        self._log = TransactionLog(store, partition_count=partition_count)
        self._lock = threading.Lock()
        self._loaded: set[int] = set()
        self._ids: dict[str, _TransactionalId] = {}
        self._by_producer_id: dict[int, _TransactionalId] = {}

    def init_producer_id(
        self,
        transactional_id: str | None,
        *,
        timeout_ms: int = 60_000,
        max_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
        current: ProducerIdAndEpoch = NO_PRODUCER,
        ack: Ack = "written",
    ) -> ProducerIdAndEpoch:
        """Return the producer id and epoch to send with; fence the previous producer of the id and end its transaction.

        Args: transactional_id: None for an idempotent producer without transactions, of which nothing is stored;
            timeout_ms: the age at which abort_expired aborts its transactions; max_timeout_ms: the greatest one;
            current: the caller's present producer id and epoch, if it only needs the next epoch.
        A second call with the same `current` returns what the first one did, unless something came between, or the
        store was opened anew.
        Raises: ProducerFencedError if `current` is out of date; ValueError for an empty id, or a timeout outside of 1
            to max_timeout_ms.
        """
        if transactional_id is None:
            return ProducerIdAndEpoch(random_producer_id(), 0)
        if not transactional_id:
            raise ValueError("a transactional id must not be empty")
        if not 1 <= timeout_ms <= max_timeout_ms:
            raise ValueError(f"timeout_ms must be from 1 to {max_timeout_ms}, got {timeout_ms}")
        entry = self._entry(transactional_id)
        with entry.lock:
            state, now_ms = entry.state, self._clock.wall_clock_ms()
            if state is None:
                changed = TransactionState.first(transactional_id, timeout_ms=timeout_ms, now_ms=now_ms)
            else:
                if state.is_prepared:
                    state = self._complete(entry, state, ack=ack)
                if current.is_valid and state.is_next_of(current):
                    return state.producer
                if current.is_valid and state.producer != current:
                    raise fenced_error(transactional_id, current)
                ended = self._end_open_transaction(entry, state, ack=ack)
                changed = ended.initialized(now_ms, timeout_ms=timeout_ms, current=current)
            self._save(entry, changed, ack=ack)
            return changed.producer

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
        *,
        client_version: int = 0,
        ack: Ack = "written",
    ) -> None:
        """Add partitions to the producer's transaction; the first ones begin it.

        Args: client_version: the transaction.version of the producer.
        Raises: ProducerFencedError; InvalidPidMappingError for an id without a call of init_producer_id.
        """
        with self._current(transactional_id, producer, ack=ack) as (entry, state):
            changed = state.with_partitions(partitions, self._clock.wall_clock_ms(), client_version=client_version)
            if changed is not state:
                self._save(entry, changed, ack=ack)

    def end_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        *,
        is_commit: bool,
        client_version: int = 0,
        ack: Ack = "written",
    ) -> ProducerIdAndEpoch:
        """Commit or abort the producer's transaction and write the markers; a stored decision survives a crash.

        A second call with the same decision does nothing. From version 2 on each transaction ends with another epoch,
        and an abort needs no transaction.
        Args: client_version: the transaction.version of the producer.
        Returns: the producer that goes on.
        Raises: ProducerFencedError; InvalidPidMappingError as add_partitions; TransactionStateError if there is no
            transaction, or it ended the other way.
        Source: KIP-890.
        """
        complete = TransactionStatus.COMPLETE_COMMIT if is_commit else TransactionStatus.COMPLETE_ABORT
        bumps_epoch = client_version >= EPOCH_BUMP_VERSION
        with self._current(transactional_id, producer, may_be_repeated=bumps_epoch, ack=ack) as (entry, state):
            is_repeated = bumps_epoch and state.was_ended_by(producer)
            if state.status is complete and (is_repeated or not bumps_epoch):
                return state.producer
            if is_repeated:
                raise state.not_open_error()
            prepared = state.prepared(self._clock.wall_clock_ms(), is_commit=is_commit, client_version=client_version)
            return self._decide(entry, prepared, ack=ack).producer

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
        transactional_id: str | None = None,
        ack: Ack = "written",
    ) -> None:
        """Write a group's offsets as part of the producer's transaction, to which offsets_partition() was added.

        Args: transactional_id: as for appending().
        Raises: UnknownTopicOrPartitionError for an offset of an unknown partition; as appending().
        Source: Kafka's request TxnOffsetCommit.
        """
        with self.appending(producer, (self.offsets_partition(group),), transactional_id=transactional_id):
            self._group_offsets.commit(group, offsets, producer=producer, ack=ack)

    @contextmanager
    def appending(
        self,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        *,
        transactional_id: str | None = None,
    ) -> Iterator[None]:
        """Keep the producer's transaction open while its data is appended, so that none is appended after the marker.

        Args: transactional_id: None for a producer whose id was used since the store was opened.
        Raises: InvalidProducerEpochError if the producer was fenced; InvalidTxnStateError if it has no open transaction
            with these partitions; InvalidPidMappingError if the transactional id has another producer id.
        Source: KIP-890.
        """
        if transactional_id is None:
            entry = self._by_producer_id.get(producer.producer_id)
        else:
            entry = self._known(transactional_id)
        if entry is None or entry.state is None:
            if transactional_id is not None:
                raise unknown_producer_error(transactional_id, producer)
            raise invalid_state_error(producer, "one that this coordinator made", "none")
        with entry.lock:
            entry.state.check_append(producer, partitions)
            yield

    def abort_expired(self) -> int:
        """Abort the transactions open for longer than their timeout, fence their producers, and return their number.

        Also completes the transactions that are decided. Errors of single transactions, and of partitions that can't be
        read, are logged.
        Cost: the first call reads the transactional ids of the whole store.
        """
        now_ms, count = self._clock.wall_clock_ms(), 0
        for transactional_id, entry in self._readable():
            with _logged(f"transaction of {transactional_id!r}"), entry.lock:
                state = entry.state
                if state is not None and (state.is_prepared or state.is_expired(now_ms)):
                    self._end_open_transaction(entry, state, ack="written")
                    count += not state.is_prepared
        return count

    def remove_unused(self, for_ms: int) -> int:
        """Delete the ids without a transaction of which nothing was heard for so long, and return their number.

        A producer that still uses one is fenced. Errors are logged.
        Cost: the first call reads the transactional ids of the whole store.
        Source: Kafka TransactionStateManager.removeExpiredTransactionalIds.
        """
        now_ms, count = self._clock.wall_clock_ms(), 0
        for transactional_id, entry in self._readable():
            with _logged(f"transactional id {transactional_id!r}"), entry.lock:
                if entry.state is not None and entry.state.is_unused(now_ms, for_ms=for_ms):
                    self._log.remove(transactional_id, now_ms)
                    entry.state = None
                    count += 1
        return count

    def abort(self, transactional_id: str, *, ack: Ack = "written") -> TransactionState | None:
        """Abort the transaction of an id if one is open, and fence its producer; complete one that is decided.

        Returns: the state after it, None for an unknown id.
        Source: Kafka TransactionCoordinator, of a transaction that exceeds its timeout.
        """
        entry = self._known(transactional_id)
        if entry is None:
            return None
        with entry.lock:
            return None if entry.state is None else self._end_open_transaction(entry, entry.state, ack=ack)

    def end_transactions_in(self, topic_partition: TopicPartition, *, ack: Ack = "written") -> int:
        """End every transaction that has this partition: complete the decided ones, abort the open ones.

        Requires: the caller is the only one that writes transactions with this partition, so that no producer of one
        is alive. Their producers are fenced.
        Returns: the number of transactions that were ended.
        Cost: the first call reads the transactional ids of the whole store.
        """
        self._load_all()
        count = 0
        for entry in list(self._ids.values()):
            with entry.lock:
                state = entry.state
                if state is not None and topic_partition in state.partitions:
                    self._end_open_transaction(entry, state, ack=ack)
                    count += 1
        return count

    def condense(self, transactional_id: str) -> bool:
        """Shorten the partition with the state of an id if most of its records are out of date; return whether it was.

        Each commit adds four records, and the next coordinator of the store reads them all; a broker compacts them. The
        state of each id is appended once more, and when that is durable, the records before are deleted.
        """
        with self._lock:
            number = self._log.number_of(transactional_id)
            self._load(number)
            entries = [entry for name, entry in self._ids.items() if self._log.number_of(name) == number]
        log = self._log.log(number)
        first = log.log_end_offset
        if first - log.log_start_offset <= max(_MOST_RECORDS, _MOST_RECORDS_PER_ID * len(entries)):
            return False
        for entry in entries:
            with entry.lock:
                if entry.state is not None:
                    self._log.append(entry.state, ack="written")
        log.flush()
        log.delete_records(first)
        return True

    def load(self) -> None:
        """Read all transactional ids and complete the decided transactions, as a broker does at start."""
        self._load_all()
        for entry in list(self._ids.values()):
            with entry.lock:
                if entry.state is not None and entry.state.is_prepared:
                    self._complete(entry, entry.state, ack="written")

    def state(self, transactional_id: str) -> TransactionState | None:
        """Return the state of a transactional id, None if it is unknown."""
        entry = self._known(transactional_id)
        return None if entry is None else entry.state

    def states(self) -> list[TransactionState]:
        """Return the states of all transactional ids of the store."""
        self._load_all()
        return [entry.state for entry in list(self._ids.values()) if entry.state is not None]

    # Inside

    def _known(self, transactional_id: str) -> _TransactionalId | None:
        with self._lock:
            self._load(self._log.number_of(transactional_id))
            return self._ids.get(transactional_id)

    def _entry(self, transactional_id: str) -> _TransactionalId:
        with self._lock:
            self._load(self._log.number_of(transactional_id))
            return self._ids.setdefault(transactional_id, _TransactionalId(None))

    def _load_all(self) -> None:
        with self._lock:
            for number in self._log.numbers:
                self._load(number)

    def _readable(self) -> list[tuple[str, _TransactionalId]]:
        """Return the transactional ids of the partitions that can be read; errors of others are logged."""
        for number in self._log.numbers:
            with _logged(f"transactional ids of partition {number}"), self._lock:
                self._load(number)
        return list(self._ids.items())

    def _load(self, number: int) -> None:
        if number in self._loaded:
            return
        for transactional_id, state in states_in(self._log.log(number)).items():
            entry = _TransactionalId(state)
            self._ids[transactional_id] = self._by_producer_id[state.producer.producer_id] = entry
        self._loaded.add(number)

    @contextmanager
    def _current(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, may_be_repeated: bool = False, ack: Ack
    ) -> Iterator[tuple[_TransactionalId, TransactionState]]:
        """Hold an id for a request of its producer, and yield its state, in which no transaction is left decided.

        Args: may_be_repeated: a producer may also ask whose transaction ended with another epoch.
        Raises: ProducerFencedError for another producer.
        """
        entry = self._known(transactional_id)
        if entry is None:
            raise unknown_producer_error(transactional_id, producer)
        with entry.lock:
            state = entry.state
            if state is None:
                raise unknown_producer_error(transactional_id, producer)
            if not (may_be_repeated and state.was_ended_by(producer)):
                state.check_producer(producer)
            yield entry, self._complete(entry, state, ack=ack) if state.is_prepared else state

    def _end_open_transaction(self, entry: _TransactionalId, state: TransactionState, *, ack: Ack) -> TransactionState:
        """Complete a decided transaction, or abort an open one and fence its producer."""
        if state.is_prepared:
            return self._complete(entry, state, ack=ack)
        if not state.is_ongoing:
            return state
        return self._decide(entry, state.given_up(self._clock.wall_clock_ms()), ack=ack)

    def _decide(self, entry: _TransactionalId, prepared: TransactionState, *, ack: Ack) -> TransactionState:
        """Write a decision, and complete it."""
        self._save(entry, prepared, ack=ack)
        return self._complete(entry, prepared, ack=ack)

    def _complete(self, entry: _TransactionalId, state: TransactionState, *, ack: Ack) -> TransactionState:
        """Write the markers of a decided transaction, then its complete state.

        A partition whose marker fails does not stop the others; the first error is raised at the end. After a crash the
        markers are written to all partitions again; the logs ignore duplicates. The complete state is not flushed: if
        it is lost, the decision is there, and is completed again.
        """
        failure: KStoreError | None = None
        marked = []
        for topic_partition in sorted(state.partitions):
            try:
                log = self._mark(entry, topic_partition, self._marker(state))
            except KStoreError as error:
                failure = failure or error
            else:
                marked += [] if log is None else [log]
        if ack == "flushed":
            try:
                flush_together(marked)
            except KStoreError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        completed = state.completed(self._clock.wall_clock_ms())
        self._save(entry, completed, ack="written")
        return completed

    def _mark(
        self, entry: _TransactionalId, topic_partition: TopicPartition, marker: MemoryRecords
    ) -> CoordinatorLog | None:
        """Write the marker of a partition unless it has it, and return its log, None if the partition is gone."""
        log = self._log_to_mark(topic_partition)
        if log is not None and topic_partition not in entry.marked:
            log.append(marker, origin=AppendOrigin.COORDINATOR)
            entry.marked.add(topic_partition)
        return log

    def _log_to_mark(self, topic_partition: TopicPartition) -> CoordinatorLog | None:
        try:
            return self._store.log(*topic_partition)
        except LogNotFoundError:
            _logger.warning("completed a transaction without its partition %s, which no longer exists", topic_partition)
            return None

    def _marker(self, state: TransactionState) -> MemoryRecords:
        epoch = self._log.coordinator_epoch(state.transactional_id)
        return state.marker(self._clock.wall_clock_ms(), coordinator_epoch=epoch)

    def _save(self, entry: _TransactionalId, state: TransactionState, *, ack: Ack) -> None:
        self._log.append(state, ack=ack)
        entry.state = state
        entry.marked.clear()
        self._by_producer_id[state.producer.producer_id] = entry


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
def _logged(what: str) -> Iterator[None]:
    """Log an error of the block in place of raising it."""
    try:
        yield
    except KStoreError as error:
        _logger.warning("%s: %s", what, error)
