"""TransactionManager: a producer's id and epoch, its sequences, and the state of its transaction."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from kstore._core import OpenTransaction, OwnedLock
from kstore.coordinator.producer_ids import MAX_PRODUCER_EPOCH, NO_PRODUCER, ProducerIdAndEpoch, random_producer_id
from kstore.errors import (
    InvalidProducerEpochError,
    KStoreError,
    OutOfOrderSequenceError,
    ProducerClosedError,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionStateError,
)
from kstore.producer.batches.sequences import PartitionSequences, SequenceTracker, is_sequence_after
from kstore.producer.batches.waiting import TransactionalResult
from kstore.producer.sink import ProduceResponse
from kstore.producer.store import is_retriable
from kstore.types import NO_SEQUENCE, Ack, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kstore.coordinator.transaction.coordinator import TransactionCoordinator
    from kstore.producer.batches.batch import ProducerBatch


class TransactionManagerState(Enum):
    """States of a producer (Kafka: TransactionManager.State)."""

    UNINITIALIZED = "UNINITIALIZED"
    INITIALIZING = "INITIALIZING"
    READY = "READY"
    IN_TRANSACTION = "IN_TRANSACTION"
    COMMITTING_TRANSACTION = "COMMITTING_TRANSACTION"
    ABORTING_TRANSACTION = "ABORTING_TRANSACTION"
    ABORTABLE_ERROR = "ABORTABLE_ERROR"
    FATAL_ERROR = "FATAL_ERROR"

    def may_follow(self, before: TransactionManagerState) -> bool:
        """Return whether this state can be entered from `before`."""
        return before in _BEFORE[self]

    @property
    def names_before(self) -> list[str]:
        """The sorted names of the states from which this one can be entered."""
        return sorted(state.name for state in _BEFORE[self])


_S = TransactionManagerState
_BEFORE: dict[TransactionManagerState, set[TransactionManagerState]] = {
    _S.UNINITIALIZED: set(),
    _S.INITIALIZING: {_S.UNINITIALIZED, _S.COMMITTING_TRANSACTION, _S.ABORTING_TRANSACTION},
    _S.READY: {_S.INITIALIZING, _S.COMMITTING_TRANSACTION, _S.ABORTING_TRANSACTION},
    _S.IN_TRANSACTION: {_S.READY},
    _S.COMMITTING_TRANSACTION: {_S.IN_TRANSACTION},
    _S.ABORTING_TRANSACTION: {_S.IN_TRANSACTION, _S.ABORTABLE_ERROR},
    _S.ABORTABLE_ERROR: {_S.IN_TRANSACTION, _S.COMMITTING_TRANSACTION, _S.ABORTABLE_ERROR},
    _S.FATAL_ERROR: set(_S),
}


_logger = logging.getLogger("kstore.producer")


class _OffsetCommit(NamedTuple):
    """Offsets to be committed with the transaction, and the outcome of writing them."""

    group: str
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    result: TransactionalResult


class TransactionManager(SequenceTracker):
    """Assigns sequences to batches and drives a transactional producer through its states.

    Without a transactional id the producer is idempotent: it has sequences and no transactions. User calls only record
    what is requested; the Sender makes the request to the coordinator (run_request) and completes the
    TransactionalResult. An error is fatal (ProducerFencedError, or an error of the coordinator: only close() is
    possible afterwards) or abortable (any other error in a transaction: only begin_abort is possible, and a new epoch
    follows). Without transactions, an error of a batch starts a new epoch in which its partition counts from 0, but
    only after the batches sent before it are done: the log may have them, and could not recognize them with other
    sequences.
    Args: timeout_ms: Kafka's transaction.timeout.ms; ack: for the coordinator's own records and markers.
    Threads: the user's calls, the state properties and close() are thread-safe; methods about sequences and batches are
        for the Sender's thread.
    Source: Kafka TransactionManager, without FindCoordinator.
    """

    def __init__(
        self,
        *,
        transactional_id: str | None = None,
        coordinator: TransactionCoordinator | None = None,
        timeout_ms: int = 60_000,
        ack: Ack = "written",
    ) -> None:
        if transactional_id is not None and coordinator is None:
            raise ValueError("transactions need a coordinator")
        self.transactional_id = transactional_id
        super().__init__(is_transactional=transactional_id is not None)
        self._coordinator = coordinator
        self._timeout_ms = timeout_ms
        self._ack: Ack = ack
        self._lock = OwnedLock(threading.Lock())
        self._state = _S.UNINITIALIZED
        self._last_error: KStoreError | None = None
        self._is_started = False
        # Whether no record can fail any more and the decision may be written.
        self._is_ending = False
        self._needs_epoch_bump = False
        # Its partitions are those of both sets below.
        self.open_transaction = OpenTransaction()
        self._partitions: set[TopicPartition] = set()
        self._new_partitions: set[TopicPartition] = set()
        self._offset_commits: deque[_OffsetCommit] = deque()
        # The operation of a user's call, until a caller has seen its outcome.
        self._pending: TransactionalResult | None = None
        self._init: TransactionalResult | None = None
        self._end: TransactionalResult | None = None

    def __repr__(self) -> str:
        return (
            f"TransactionManager(transactional_id={self.transactional_id!r}, state={self._state.name}, "
            f"{self.producer_id_and_epoch})"
        )

    # Calls of users

    def init_transactions(self) -> TransactionalResult:
        """Request a producer id; this fences earlier producers of the transactional id and ends their transactions.

        Raises: TransactionStateError, except for the first call or a repeated one whose outcome nobody has seen yet.
        """

        def start() -> TransactionalResult:
            result = TransactionalResult("init_transactions")
            self._enter(_S.INITIALIZING)
            self._init = result
            return result

        return self._begin("init_transactions", start)

    def begin_transaction(self) -> None:
        """Begin a transaction.

        Raises: TransactionStateError in any state but READY; the error that the producer is in.
        """
        with self._lock:
            self._check_transactional("begin_transaction")
            self._check_not_pending("begin_transaction")
            self._pending = None
            self.raise_error()
            self._enter(_S.IN_TRANSACTION)

    def begin_commit(self) -> TransactionalResult:
        """Request a commit; it is complete when all batches are in the log and every partition has its marker.

        Raises: TransactionStateError without a transaction; the error that the producer is in.
        """

        def start() -> TransactionalResult:
            self.raise_error()
            return self._begin_end("commit_transaction", _S.COMMITTING_TRANSACTION)

        return self._begin("commit_transaction", start)

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> TransactionalResult:
        """Request that the group's offsets are committed with the transaction.

        Raises: TransactionStateError without an open transaction; the error that the producer is in.
        """
        operation = "send_offsets_to_transaction"
        with self._lock:
            self._check_transactional(operation)
            self._check_not_pending(operation)
            self.raise_error()
            if self._state is not _S.IN_TRANSACTION:
                raise TransactionStateError(f"{operation}: expected state IN_TRANSACTION, found {self._state.name}")
            result = TransactionalResult(operation)
            self._offset_commits.append(_OffsetCommit(group, offsets, result))
            return result

    def begin_abort(self) -> TransactionalResult:
        """Request an abort; batches that were not passed to the sink fail.

        Raises: TransactionStateError without a transaction; the error that the producer is in, if it is fatal.
        """

        def start() -> TransactionalResult:
            if self._state is not _S.ABORTABLE_ERROR:
                self.raise_error()
            result = self._begin_end("abort_transaction", _S.ABORTING_TRANSACTION)
            self._new_partitions.clear()
            self._drop_offset_commits(TransactionAbortedError("the transaction of these offsets was aborted"))
            return result

        return self._begin("abort_transaction", start)

    def maybe_add_partition(self, topic_partition: TopicPartition) -> None:
        """Add the partition of an appended record to the transaction, unless the transaction is being aborted.

        Cost: one lookup if the partition is already part of it.
        """
        if topic_partition in self.open_transaction.partitions:
            return
        with self._lock:
            if self._state in (_S.IN_TRANSACTION, _S.COMMITTING_TRANSACTION):
                # The Sender may already have added it.
                if topic_partition not in self._partitions:
                    self._new_partitions.add(topic_partition)
                self.open_transaction.partitions.add(topic_partition)

    def check_send(self) -> None:
        """Raise the error that prevents a record from being sent now, if there is one."""
        with self._lock:
            self.raise_error()
            if not self.is_transactional:
                return
            self._check_not_pending("send")
            if self._state is not _S.IN_TRANSACTION:
                raise TransactionStateError(
                    f"send of a transactional producer: expected state IN_TRANSACTION, found {self._state.name}"
                )

    def raise_error(self) -> None:
        """Raise the error that the producer is in, if any."""
        error = self._last_error
        if error is None or not self.has_error:
            return
        message = f"the producer is in state {self._state.name}: {error}"
        for kind in (ProducerFencedError, ProducerClosedError):
            if isinstance(error, kind):
                raise kind(message) from error
        if isinstance(error, InvalidProducerEpochError):
            raise InvalidProducerEpochError(
                message, producer_id=error.producer_id, producer_epoch=error.producer_epoch
            ) from error
        raise KStoreError(message) from error

    # States

    @property
    def state(self) -> TransactionManagerState:
        return self._state

    @property
    def last_error(self) -> KStoreError | None:
        return self._last_error

    @property
    def has_fatal_error(self) -> bool:
        return self._state is _S.FATAL_ERROR

    @property
    def has_abortable_error(self) -> bool:
        return self._state is _S.ABORTABLE_ERROR

    @property
    def has_error(self) -> bool:
        return self._state in (_S.FATAL_ERROR, _S.ABORTABLE_ERROR)

    @property
    def is_completing(self) -> bool:
        return self._state in (_S.COMMITTING_TRANSACTION, _S.ABORTING_TRANSACTION)

    @property
    def is_aborting(self) -> bool:
        return self._state is _S.ABORTING_TRANSACTION

    @property
    def has_ongoing_transaction(self) -> bool:
        return self._state is _S.IN_TRANSACTION or self.is_completing or self.has_abortable_error

    @property
    def has_pending_requests(self) -> bool:
        """Whether any request to the coordinator is outstanding."""
        return bool(self._init or self._end or self._new_partitions or self._offset_commits)

    @property
    def has_new_partitions(self) -> bool:
        """Whether partitions, or offsets of a group, still have to be added to the transaction."""
        return bool(self._new_partitions or self._offset_commits)

    @property
    def is_held_here(self) -> bool:
        """Whether the calling thread holds the lock that the Sender needs."""
        return self._lock.is_held_here

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id_and_epoch.is_valid

    def _begin(self, operation: str, start: Callable[[], TransactionalResult]) -> TransactionalResult:
        """Start an operation, or continue the same one if it was begun before and nobody has seen its outcome."""
        with self._lock:
            self._check_transactional(operation)
            pending = self._pending
            if pending is not None and not pending.is_acked:
                self._check_not_pending(operation, but=operation)
                return pending
            self._pending = None
            result = start()
            result.operation = operation
            self._pending = result
            return result

    def _begin_end(self, operation: str, state: TransactionManagerState) -> TransactionalResult:
        end, init = TransactionalResult(operation), TransactionalResult(operation)
        self._enter(state)
        # No calls from here on: an interrupt must not separate these assignments.
        self._end = end
        if not self._needs_epoch_bump:
            return end
        self._init = init
        return init

    def _check_transactional(self, operation: str) -> None:
        if not self.is_transactional:
            raise TransactionStateError(f"{operation}: the producer has no transactional_id")

    def _check_not_pending(self, operation: str, *, but: str | None = None) -> None:
        pending = self._pending
        if pending is not None and not pending.is_acked and pending.operation != but:
            raise TransactionStateError(
                f"{operation}: call {pending.operation} again first, because its outcome was not awaited"
            )

    def _enter(self, state: TransactionManagerState) -> None:
        if not state.may_follow(self._state):
            expected = ", ".join(state.names_before)
            raise TransactionStateError(
                f"{self.transactional_id!r} to {state.name}: expected state {expected}, found {self._state.name}"
            )
        self._change_to(state)

    def _change_to(self, state: TransactionManagerState) -> None:
        is_open = state is _S.IN_TRANSACTION
        # Closed in between: after an interrupt here, records take the slow path, which takes the lock.
        self.open_transaction.is_open = False
        self._state = state
        self.open_transaction.is_open = is_open

    def _fail(self, error: KStoreError) -> None:
        """Enter FATAL_ERROR."""
        if self._state is not _S.FATAL_ERROR:
            _logger.error("%s can only be closed: %s", self, error)
        self.close(error)

    def _fail_transaction(self, error: KStoreError) -> None:
        """Enter ABORTABLE_ERROR: only an abort is possible then.

        If the transaction is already being aborted, only request a new epoch; if its end is being written, ignore the
        error.
        """
        with self._lock:
            if self._is_ending:
                _logger.debug("ignored an error of a transaction that is ending: %s", error)
            elif self._state is _S.ABORTING_TRANSACTION:
                _logger.debug("ignored an error of a transaction that is being aborted: %s", error)
                self._needs_epoch_bump = True
            elif _S.ABORTABLE_ERROR.may_follow(self._state):
                self._change_to(_S.ABORTABLE_ERROR)
                self._last_error = error
                self._needs_epoch_bump = True

    def note_failed_send(self, error: KStoreError | ValueError) -> None:
        """Fail the transaction of a record that was not appended to any batch: only an abort is possible now."""
        if self.is_transactional:
            self._fail_transaction(error if isinstance(error, KStoreError) else KStoreError(str(error)))

    def _fail_requests(self, error: KStoreError) -> None:
        for result in (self._init, self._end, self._pending):
            if result is not None:
                result.complete(error)
        self._init = self._end = None
        self._new_partitions.clear()
        self._drop_offset_commits(error)

    def _drop_offset_commits(self, error: KStoreError) -> None:
        while self._offset_commits:
            self._offset_commits.popleft().result.complete(error)

    # Calls of the Sender

    def run_request(self, *, is_done: Callable[[], bool]) -> bool:
        """Make the next outstanding request to the coordinator; return whether there was one.

        Args: is_done: returns whether all batches are done; only then is a transaction ended. It is called only once an
            end was requested, because records may be appended until then (Kafka calls it earlier).
        Raises: an error that is_retriable(), with the state unchanged: run the request again later.
        """
        # Without the lock: is_done() waits for appends, and a signal handler that interrupts one may itself send.
        is_over = self._end is not None and is_done()
        with self._lock:
            if self.has_error:
                self._fail_requests(self._last_error or KStoreError("the producer failed"))
                return False
            if self._init is not None and self._end is None:
                return self._run_init(self._init)
            if self._new_partitions:
                return self._run_add(frozenset(self._new_partitions))
            if self._offset_commits:
                return self._run_offset_commit(self._offset_commits[0])
            if self._end is not None and is_over:
                return self._run_end(self._end)
        return False

    def _run_init(self, result: TransactionalResult) -> bool:
        if self._coordinator is None:
            return False
        try:
            producer = self._coordinator.init_producer_id(
                self.transactional_id,
                timeout_ms=self._timeout_ms,
                current=self.producer_id_and_epoch,
                ack=self._ack,
            )
        except KStoreError as error:
            _raise_if_retriable(error, of=result)
            self._fail(error)
            return True
        self.restart(producer)
        self._init = None
        self._enter(_S.READY)
        self._last_error = None
        self._needs_epoch_bump = False
        result.complete()
        return True

    def _run_add(self, partitions: frozenset[TopicPartition]) -> bool:
        if self._coordinator is None or self.transactional_id is None:
            return False
        try:
            self._coordinator.add_partitions(
                self.transactional_id, self.producer_id_and_epoch, partitions, ack=self._ack
            )
        except (ProducerFencedError, TransactionStateError) as error:
            self._fail(error)
        except KStoreError as error:
            _raise_if_retriable(error, of=self._end)
            self._fail_transaction(error)
            self._new_partitions -= partitions
        else:
            self._partitions |= partitions
            self._new_partitions -= partitions
            self._is_started = True
        return True

    def _run_offset_commit(self, commit: _OffsetCommit) -> bool:
        group, offsets, result = commit
        failure: KStoreError | None = None
        try:
            self._write_offsets(group, offsets)
        except KStoreError as error:
            _raise_if_retriable(error, of=result)
            failure = error
        self._offset_commits.popleft()
        if isinstance(failure, ProducerFencedError | TransactionStateError):
            self._fail(failure)
        elif failure is not None:
            self._fail_transaction(failure)
        result.complete(failure)
        return True

    def _write_offsets(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        coordinator, transactional_id, producer = self._coordinator, self.transactional_id, self.producer_id_and_epoch
        if coordinator is None or transactional_id is None:
            raise TransactionStateError("offsets of a transaction need a coordinator")
        partition = coordinator.offsets_partition(group)
        if partition not in self._partitions:
            coordinator.add_partitions(transactional_id, producer, (partition,), ack=self._ack)
            self._partitions.add(partition)
            self._is_started = True
        coordinator.commit_offsets(producer, group, offsets, ack=self._ack)

    def _run_end(self, result: TransactionalResult) -> bool:
        is_commit = self._state is _S.COMMITTING_TRANSACTION
        self._is_ending = True
        if self._is_started and self._coordinator is not None and self.transactional_id is not None:
            try:
                self._coordinator.end_transaction(
                    self.transactional_id, self.producer_id_and_epoch, is_commit=is_commit, ack=self._ack
                )
            except KStoreError as error:
                _raise_if_retriable(error, of=result)
                self._fail(error)
                return True
        self._end = None
        self._is_started = self._is_ending = False
        self._partitions.clear()
        self._new_partitions.clear()
        self.open_transaction.partitions.clear()
        self._last_error = None
        if self._init is None and self._needs_epoch_bump:
            self._init = result
        self._enter(_S.READY if self._init is None else _S.INITIALIZING)
        if self._init is not result:
            result.complete()
        return True

    def close(self, error: KStoreError) -> None:
        """Fail all outstanding operations and refuse new ones."""
        with self._lock:
            if self._state is not _S.FATAL_ERROR:
                self._change_to(_S.FATAL_ERROR)
                self._last_error = error
                self._fail_requests(error)

    def ensure_producer_id(self) -> None:
        """Get a producer id, or the next epoch, for an idempotent producer without transactions."""
        if self.is_transactional or self.has_fatal_error:
            return
        if self._needs_epoch_bump:
            self._needs_epoch_bump = False
            self._next_epoch()
        elif not self.has_producer_id:
            self.producer_id_and_epoch = self._new_producer()

    def _new_producer(self) -> ProducerIdAndEpoch:
        if self._coordinator is None:
            return ProducerIdAndEpoch(random_producer_id(), 0)
        return self._coordinator.init_producer_id(None, timeout_ms=1, current=NO_PRODUCER, ack=self._ack)

    def _next_epoch(self) -> None:
        producer_id, epoch = self.producer_id_and_epoch
        if epoch >= MAX_PRODUCER_EPOCH:
            self.producer_id_and_epoch = self._new_producer()
        else:
            self.producer_id_and_epoch = ProducerIdAndEpoch(producer_id, epoch + 1)
        self.renumber_in_flight_batches()

    def settled_sequences(self, topic_partition: TopicPartition) -> PartitionSequences | None:
        """Return the sequences of a partition if its next batch takes the next one without a decision, else None."""
        entry = self._entries.get(topic_partition)
        if entry is None or entry.in_flight or self._unresolved or entry.producer != self.producer_id_and_epoch:
            return None
        if self._state is _S.FATAL_ERROR or self._needs_epoch_bump or self.is_transactional:
            return None
        return entry

    # Outcomes of batches

    def is_send_to_partition_allowed(self, topic_partition: TopicPartition) -> bool:
        """Return whether batches of the partition may be sent now.

        Adds a partition that is missing from the open transaction; it may be sent to once the coordinator has it.
        """
        if self._state is _S.FATAL_ERROR:
            return False
        if not self.is_transactional or topic_partition in self._partitions:
            return True
        # The appending thread has not reached maybe_add_partition() yet.
        if self._state in (_S.IN_TRANSACTION, _S.COMMITTING_TRANSACTION):
            self._new_partitions.add(topic_partition)
        return False

    def _request_epoch(self, topic_partition: TopicPartition) -> None:
        self._needs_epoch_bump = True
        self.renumbers.add(topic_partition)

    def maybe_resolve_sequences(self) -> None:
        """Resolve partitions with unknown outcomes and no batches in flight.

        They continue if a later batch was acknowledged. Otherwise a new epoch starts, or the transaction fails.
        """
        for topic_partition in self.settle_unresolved_sequences():
            if self.is_transactional:
                self._fail_transaction(
                    KStoreError(f"{topic_partition}: it is not known whether earlier batches are in the log")
                )
            else:
                self._request_epoch(topic_partition)

    def can_retry(self, response: ProduceResponse, batch: ProducerBatch) -> bool:
        """Return whether a batch with this response should be sent again, maybe in a new epoch."""
        if isinstance(response.error, OutOfOrderSequenceError):
            if self.is_transactional:
                return self._is_temporarily_out_of_order(batch) or response.is_retriable
            if self.next_batch_by_sequence(batch.topic_partition) is batch:
                if batch.is_in_doubt:
                    # With other sequences the log would not recognize it as a duplicate. Kafka sends it anyway.
                    return False
                self._request_epoch(batch.topic_partition)
            return True
        return response.is_retriable

    def is_in_log(self, batch: ProducerBatch, error: OutOfOrderSequenceError) -> bool:
        """Return whether a batch that was refused as out of order is a duplicate of one in the log.

        It is if a later batch was acknowledged, or if the error says that the log has a later sequence.
        Source: Kafka TransactionManager.isNextSequence, Errors.DUPLICATE_SEQUENCE_NUMBER.
        """
        if self.sequences_of(batch.topic_partition).has_acked(batch):
            return True
        if (error.producer_id, error.producer_epoch) != (batch.producer_id, batch.producer_epoch):
            return False
        return error.last_sequence != NO_SEQUENCE and not is_sequence_after(
            batch.last_sequence, other=error.last_sequence
        )

    def _is_temporarily_out_of_order(self, batch: ProducerBatch) -> bool:
        topic_partition = batch.topic_partition
        return not self.has_unresolved_sequence(topic_partition) and (
            self.next_batch_by_sequence(topic_partition) is not batch
        )

    def complete_next_batches(self, batches: list[ProducerBatch]) -> bool:
        """Do as handle_completed_batches() if these batches are the first in flight; return whether they are."""
        if self.sequences_of(batches[0].topic_partition).in_flight[: len(batches)] != batches:
            return False
        self.handle_completed_batches(batches)
        return True

    def handle_completed_batches(self, batches: list[ProducerBatch]) -> None:
        """Record that batches of one partition, in order, are in the log."""
        entry = self.sequences_of(batches[0].topic_partition)
        if entry.in_flight[: len(batches)] == batches:
            # Batches in flight are in rising order, unless two producers' sequences are mixed.
            first, last = batches[0], batches[-1]
            if (first.producer_id, first.producer_epoch) == (last.producer_id, last.producer_epoch):
                del entry.in_flight[: len(batches)]
                batches = batches[-1:]
        for batch in batches:
            if (batch.producer_id, batch.producer_epoch) == entry.producer:
                entry.ack(batch.last_sequence)
            entry.remove(batch)

    def handle_aborted_batches(self, error: KStoreError) -> None:
        """Record that all batches were abandoned, whether they are in the log or not."""
        self.forget_in_flight_batches()
        if self.is_transactional:
            self._fail_transaction(error)

    def handle_failed_batch(self, batch: ProducerBatch, error: KStoreError, *, closes_gap: bool) -> None:
        """Record that a batch failed permanently.

        Batches in flight after it keep their sequences within the epoch. In a transaction Kafka decreases them
        (adjustSequencesDueToFailedBatch), and a delayed copy of one would then be accepted as well.
        Args: closes_gap: whether the batch is certainly not in the log, so that later batches can continue in a new
        epoch.
        """
        if isinstance(error, ProducerFencedError):
            self._fail(error)
        elif self.is_transactional:
            self._fail_transaction(error)
        topic_partition = batch.topic_partition
        entry = self.sequences_of(topic_partition)
        entry.remove(batch)
        if self.has_fatal_error:
            return
        if not self.is_transactional:
            if entry.has_any_before(batch):
                self.mark_sequence_unresolved(batch)
            elif closes_gap:
                self._request_epoch(topic_partition)


def _raise_if_retriable(error: KStoreError, *, of: TransactionalResult | None) -> None:
    if is_retriable(error):
        if of is not None:
            of.last_failure = error
        raise error
