"""Open transactions of a root, which of them hang, and their end.

A transaction is looked up in two places that a crash or a lost request can set apart: the log of a partition, which has
its data, and `__transaction_state`, by which a coordinator ends it. One that only the log knows hangs: nothing will
write its marker (KIP-664).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kstore.config import MAX_TRANSACTION_TIMEOUT_MS
from kstore.coordinator.places import KAFKAS_PARTITION_COUNT
from kstore.coordinator.store import ClusterFacts
from kstore.coordinator.transaction.coordinator import coordinator_of
from kstore.coordinator.transaction.log import states_in
from kstore.coordinator.transaction.state import TransactionState, TransactionStatus
from kstore.env import DEFAULT_ENV, Env, StrPath, join_path
from kstore.errors import KStoreError, TransactionStateError
from kstore.log.files.checkpoints import read_leader_epoch_checkpoint
from kstore.log.files.names import LEADER_EPOCH_CHECKPOINT
from kstore.log.log import Log
from kstore.log.state.transactions import OpenTransaction
from kstore.record.builder import with_end_transaction_marker
from kstore.record.control import EndTransactionMarker
from kstore.record.schemas.topics import coordinator_partition
from kstore.record.validation import AppendOrigin
from kstore.store.store import Store, WritableStore, open_store
from kstore.types import TRANSACTION_STATE_TOPIC, ControlRecordType, Time, TopicPartition, time_ms

# What a coordinator knows of a transaction.
KNOWN, UNKNOWN, NOT_HERE = "known", "unknown", "not here"


class UndecidedTransaction(NamedTuple):
    """An open transaction of a partition, and what its coordinator knows of it.

    topic_partition, last_stable_offset, log_end_offset: of the log; transaction: as the log has it; state: that of the
    transactional id whose producer it is, None if the root has none; coordinator: whether that has this transaction,
    "known", "unknown" or "not here" (the part of `__transaction_state` that would tell is not in the root, or damaged);
    start_ms: when the coordinator began it, or else the time of its first batch, which the producer chose, -1 for none;
    age_ms: since then; idle_ms: since the time of its last batch, -1 without one; hanging: why it hangs, None if it
    does not, or that is not known.
    """

    topic_partition: TopicPartition
    last_stable_offset: int
    log_end_offset: int
    transaction: OpenTransaction
    state: TransactionState | None
    coordinator: str
    start_ms: int
    age_ms: int
    idle_ms: int
    hanging: str | None

    @property
    def holds_last_stable_offset(self) -> bool:
        """Whether the last stable offset of the partition is where this transaction starts."""
        return self.transaction.first_offset <= self.last_stable_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsReport:
    """The transactions of a root.

    undecided: by partition and first offset; states: of all transactional ids, by id; has_all_states: whether the root
    has all of `__transaction_state`, as far as its partitions show; as_of_ms: the time from which ages count.
    """

    undecided: tuple[UndecidedTransaction, ...]
    states: tuple[TransactionState, ...]
    has_all_states: bool
    as_of_ms: int


class PlannedMarker(NamedTuple):
    """An ABORT marker: where it goes, or is; of the producer with this epoch; by a coordinator of this epoch.

    topic_partition: the partition; producer_id, producer_epoch, coordinator_epoch: what the marker has.
    transactional_id: whose state is changed too; None if only the marker is written. first_offset: where the
    transaction starts in the partition, None if the partition has no open data of it. offset: of the marker.
    """

    topic_partition: TopicPartition
    offset: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    transactional_id: str | None
    first_offset: int | None


def read_transactions(
    root: StrPath | Store | WritableStore,
    *,
    partitions: Collection[TopicPartition] | None = None,
    now_ms: Time | None = None,
    max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
    on_error: Callable[[KStoreError], object] | None = None,
    env: Env | None = None,
) -> TransactionsReport:
    """Return the open transactions of a root, who has them, and the states of all transactional ids.

    A transaction hangs if its last batch is older than any transaction may become, and the coordinator has no
    transaction with its producer and partition.
    Args: root: a log.dirs root, by path, URL or as a store; partitions: whose logs are read, None for all; now_ms: the
        time from which ages count, None for the clock; max_transaction_timeout_ms: the brokers'
        transaction.max.timeout.ms; on_error: called with the error of a partition that can't be read, which is then
        left out; None to raise it.
    Raises: LogNotFoundError without a root; CorruptRecordError and the other errors of a read.
    Cost: a header walk over each log, twice, and a read of `__transaction_state`.
    Source: Kafka TransactionsCommand (KIP-664).
    """
    if not isinstance(root, Store | WritableStore):
        with open_store(root, env=env) as store:
            return read_transactions(
                store,
                partitions=partitions,
                now_ms=now_ms,
                max_transaction_timeout_ms=max_transaction_timeout_ms,
                on_error=on_error,
            )
    as_of_ms = DEFAULT_ENV.wall_clock_ms() if now_ms is None else time_ms("now_ms", now_ms)
    coordinators = _Coordinators(root, on_error)
    chosen = root.partitions if partitions is None else tuple(sorted(set(partitions)))
    undecided: list[UndecidedTransaction] = []
    for topic_partition in chosen:
        try:
            log = root.log(*topic_partition)
            undecided += _undecided_in(log, coordinators, as_of_ms=as_of_ms, max_timeout_ms=max_transaction_timeout_ms)
        except KStoreError as error:
            if on_error is None:
                raise
            on_error(error)
    return TransactionsReport(
        undecided=tuple(undecided),
        states=tuple(state for _, state in sorted(coordinators.states.items())),
        has_all_states=coordinators.has_all,
        as_of_ms=as_of_ms,
    )


def planned_markers(
    store: Store | WritableStore, found: UndecidedTransaction, *, trusts_caller: bool = False
) -> tuple[PlannedMarker, ...]:
    """Return the markers that abort_transaction would write, and change nothing.

    A transaction that its coordinator has is aborted in all its partitions. One that the coordinator does not have gets
    a marker in its partition alone.
    Args: trusts_caller: also end a transaction of which the root does not show whether a coordinator has it.
    Raises: TransactionStateError for a transaction that is decided as COMMIT, that has partitions which are not in the
        root, or of which the root has not the coordinator's state.
    """
    state, transaction = found.state, found.transaction
    if found.coordinator == NOT_HERE and not trusts_caller:
        raise TransactionStateError(
            f"the transaction of producer {transaction.producer_id} at offset {transaction.first_offset} of "
            f"{found.topic_partition}: the root does not have all of {TRANSACTION_STATE_TOPIC}, so that a coordinator "
            "may still commit it"
        )
    if state is None or found.coordinator != KNOWN:
        epochs = transaction.producer_epoch, max(transaction.coordinator_epoch, 0)
        return (
            PlannedMarker(
                found.topic_partition,
                found.log_end_offset,
                transaction.producer_id,
                *epochs,
                None,
                transaction.first_offset,
            ),
        )
    _check_abortable(store, state)
    return tuple(_markers_of(store, state))


def abort_transaction(
    store: WritableStore, found: UndecidedTransaction, *, trusts_caller: bool = False
) -> tuple[PlannedMarker, ...]:
    """Abort an open transaction as a broker does, durably, and return the markers that were written.

    If its coordinator has it, the coordinator of the store aborts it in all its partitions, with the next epoch of the
    producer, which is fenced by that; its state becomes COMPLETE_ABORT. Otherwise only the partition gets a marker,
    with the producer's own epoch, as from kafka-transactions.sh abort. A broker that starts later reads both from the
    files; of a transaction that its state still calls ONGOING it would write the markers once more when the timeout is
    over, which changes nothing.
    Args: found: from read_transactions of this store; trusts_caller: as in planned_markers.
    Raises: as planned_markers, with nothing written; TransactionStateError if the log no longer has the transaction;
        StorageError and the other errors of an append.
    """
    now_open = store.log(*found.topic_partition).open_transactions()
    if not any(
        (one.producer_id, one.first_offset) == (found.transaction.producer_id, found.transaction.first_offset)
        for one in now_open
    ):
        raise TransactionStateError(
            f"the transaction of producer {found.transaction.producer_id} in {found.topic_partition}: expected it open "
            f"from offset {found.transaction.first_offset} on, found none"
        )
    planned = planned_markers(store, found, trusts_caller=trusts_caller)
    written = []
    for marker in planned:
        log = store.log(*marker.topic_partition)
        written.append(marker._replace(offset=log.log_end_offset))
        if marker.transactional_id is None:
            records = with_end_transaction_marker(
                EndTransactionMarker(control_type=ControlRecordType.ABORT, coordinator_epoch=marker.coordinator_epoch),
                timestamp_ms=DEFAULT_ENV.wall_clock_ms(),
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
            )
            log.append(records, ack="flushed", origin=AppendOrigin.COORDINATOR)
    if planned and planned[0].transactional_id is not None:
        coordinator_of(store).abort(planned[0].transactional_id, ack="flushed")
    return tuple(written)


class _Coordinators:
    """What `__transaction_state` says, as far as the root has it.

    Attributes: states (by transactional id), has_all (whether no producer can be in a part that is missing).
    """

    def __init__(self, store: Store | WritableStore, on_error: Callable[[KStoreError], object] | None) -> None:
        self.states: dict[str, TransactionState] = {}
        numbers = [number for topic, number in store.partitions if topic == TRANSACTION_STATE_TOPIC]
        homes: dict[str, int] = {}
        is_whole = True
        for number in numbers:
            try:
                found = states_in(store.log(TRANSACTION_STATE_TOPIC, number))
            except KStoreError as error:
                if on_error is None:
                    raise
                on_error(error)
                is_whole = False
                continue
            self.states |= found
            homes |= dict.fromkeys(found, number)
        self.has_all = is_whole and _are_all(numbers, homes, store.cluster_facts())
        self._by_producer = {state.producer.producer_id: state for state in self.states.values()}

    def view_of(
        self, transaction: OpenTransaction, topic_partition: TopicPartition
    ) -> tuple[TransactionState | None, str, str]:
        """Return the state of a transaction's producer, what that says of it, and why it does not have it."""
        state = self._by_producer.get(transaction.producer_id)
        if state is None:
            why = f"no transactional id has producer {transaction.producer_id}"
            return None, UNKNOWN if self.has_all else NOT_HERE, why
        name = f"transactional id {state.transactional_id!r} is {state.status.name}"
        if topic_partition not in state.partitions:
            return state, UNKNOWN, f"{name}, without this partition"
        # Of whatever epoch the data is: the marker that the coordinator will write ends it.
        return state, KNOWN, ""


def _are_all(numbers: list[int], homes: dict[str, int], facts: ClusterFacts) -> bool:
    """Return whether these are all partitions of `__transaction_state`: as many as it has in its cluster; where that is
    not known, numbered without a gap, with each id where its hash puts it, and as many as is usual, or in a root of
    kstore's own.

    The hashes alone do not show it: ids of the partitions 0 to 9 of 50 are where they would be among 10.
    """
    count = len(numbers)
    known = facts.partition_counts.get(TRANSACTION_STATE_TOPIC)
    if known is not None:
        return numbers == list(range(known))
    if not count or numbers != list(range(count)) or not (facts.is_own or count >= KAFKAS_PARTITION_COUNT):
        return False
    return all(coordinator_partition(name, partition_count=count) == number for name, number in homes.items())


def _undecided_in(
    log: Log, coordinators: _Coordinators, *, as_of_ms: int, max_timeout_ms: int
) -> Iterator[UndecidedTransaction]:
    open_now = log.open_transactions()
    if not open_now:
        return
    last_stable_offset = max(open_now[0].first_offset, log.log_start_offset)
    for transaction in open_now:
        state, coordinator, why = coordinators.view_of(transaction, log.topic_partition)
        begun = state is not None and coordinator == KNOWN and state.start_ms >= 0
        start_ms = state.start_ms if state is not None and begun else transaction.first_timestamp_ms
        idle_ms = _age_ms(transaction.last_timestamp_ms, as_of_ms=as_of_ms)
        yield UndecidedTransaction(
            log.topic_partition,
            last_stable_offset,
            log.log_end_offset,
            transaction,
            state,
            coordinator,
            start_ms,
            _age_ms(start_ms, as_of_ms=as_of_ms),
            idle_ms,
            why if coordinator == UNKNOWN and idle_ms > max_timeout_ms else None,
        )


def _age_ms(timestamp_ms: int, *, as_of_ms: int) -> int:
    return -1 if timestamp_ms < 0 else max(as_of_ms - timestamp_ms, 0)


def _check_abortable(store: Store | WritableStore, state: TransactionState) -> None:
    what = f"the transaction of transactional id {state.transactional_id!r}"
    if not state.is_ongoing and state.status is not TransactionStatus.PREPARE_ABORT:
        raise TransactionStateError(
            f"{what}: expected ONGOING or PREPARE_ABORT, found {state.status.name}: its coordinator completes it"
        )
    missing = sorted(state.partitions - set(store.partitions))
    if missing:
        raise TransactionStateError(
            f"{what}: expected all its partitions in the root, which has not {', '.join(map(str, missing))}: a broker "
            "that starts with this root aborts it when its timeout is over"
        )


def _markers_of(store: Store | WritableStore, state: TransactionState) -> Iterator[PlannedMarker]:
    producer_id = state.producer.producer_id
    epoch = state.fenced().producer.epoch if state.is_ongoing else state.producer.epoch
    coordinator_epoch = _coordinator_epoch(store, state.transactional_id)
    for topic_partition in sorted(state.partitions):
        log = store.log(*topic_partition)
        first = next((one.first_offset for one in log.open_transactions() if one.producer_id == producer_id), None)
        place = topic_partition, log.log_end_offset
        yield PlannedMarker(*place, producer_id, epoch, coordinator_epoch, state.transactional_id, first)


def _coordinator_epoch(store: Store | WritableStore, transactional_id: str) -> int:
    """Return the epoch of the coordinator of an id: the leader epoch of its partition, 0 if it has none.

    An epoch that begins at the log end, in which nothing was written, does not count: who opens the log forgets it.
    """
    for topic, number in store.partitions:
        if topic == TRANSACTION_STATE_TOPIC and transactional_id in states_in(store.log(topic, number)):
            directory = store.incarnation(topic, number)
            if directory is not None:
                path = join_path(directory.path, LEADER_EPOCH_CHECKPOINT)
                end = store.log(topic, number).log_end_offset
                entries = read_leader_epoch_checkpoint(path, directory.env) or ()
                return max((entry.epoch for entry in entries if entry.start_offset < end), default=0)
    return 0
