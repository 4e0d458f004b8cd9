"""TransactionManager: who a producer is, its sequences, and the state of its transaction. Layer 5."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from kstore._core import OpenTransaction, OwnedLock
from kstore.errors import (
    InvalidProducerEpochError,
    KStoreError,
    OutOfOrderSequenceError,
    ProducerClosedError,
    ProducerFencedError,
    TransactionStateError,
)
from kstore.producer.batches.ids import MAX_PRODUCER_EPOCH, NO_PRODUCER, ProducerIdAndEpoch, random_producer_id
from kstore.producer.batches.sequences import SequenceTracker, is_sequence_behind
from kstore.producer.batches.waiting import TransactionalResult
from kstore.producer.sink import ProduceResponse
from kstore.producer.store import Ack, is_retriable
from kstore.types import NO_SEQUENCE, TopicPartition

if TYPE_CHECKING:
    from kstore.producer.batches.batch import ProducerBatch


class TransactionManagerState(Enum):
    """Where a transactional producer is (Kafka: TransactionManager.State)."""

    UNINITIALIZED = "UNINITIALIZED"
    INITIALIZING = "INITIALIZING"
    READY = "READY"
    IN_TRANSACTION = "IN_TRANSACTION"
    COMMITTING_TRANSACTION = "COMMITTING_TRANSACTION"
    ABORTING_TRANSACTION = "ABORTING_TRANSACTION"
    ABORTABLE_ERROR = "ABORTABLE_ERROR"
    FATAL_ERROR = "FATAL_ERROR"

    def may_follow(self, before: TransactionManagerState) -> bool:
        """Tell whether this state can be entered from another one."""
        return before in _BEFORE[self]

    @property
    def names_before(self) -> list[str]:
        """The names of the states from which it can be entered."""
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


class Coordinator(Protocol):
    """What a TransactionManager asks of a coordinator; see TransactionCoordinator."""

    def init_producer_id(
        self,
        transactional_id: str | None,
        *,
        timeout_ms: int,
        current: ProducerIdAndEpoch,
        ack: Ack,
    ) -> ProducerIdAndEpoch: ...

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
        *,
        ack: Ack,
    ) -> None: ...

    def end_transaction(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, is_commit: bool, ack: Ack
    ) -> None: ...


class TransactionManager(SequenceTracker):
    """Gives batches their sequences, and takes a transactional producer from one state to the next.

    Idempotent without a transactional id: it has sequences then and no transactions. The calls of a user only note what
    is wanted; the Sender asks the coordinator for it (run_request) and completes the TransactionalResult.
    An error is fatal (ProducerFencedError and what the coordinator fails by: only close() is left) or abortable
    (anything else in a transaction: begin_abort is left, behind which comes a new epoch). Without transactions an error
    of a batch leads to a new epoch, in which its partition counts from 0; but first those are done that came before the
    batch, which the log may have and would not know again with other sequences.
    Args: timeout_ms: transaction.timeout.ms; ack: of the coordinator's own records and markers.
    Threads: safe; what begins with sequences and batches is for the Sender's thread.
    Source: Kafka TransactionManager, of which it has no FindCoordinator and no consumer offsets.
    """

    def __init__(
        self,
        *,
        transactional_id: str | None = None,
        coordinator: Coordinator | None = None,
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
        # Whether no record is left that could fail, and the decision may be written.
        self._is_ending = False
        self._needs_epoch_bump = False
        # Has both kinds of partitions that follow.
        self.open_transaction = OpenTransaction()
        self._partitions: set[TopicPartition] = set()
        self._new_partitions: set[TopicPartition] = set()
        # What a user's call waits for, until one has seen the outcome.
        self._pending: TransactionalResult | None = None
        self._init: TransactionalResult | None = None
        self._end: TransactionalResult | None = None

    def __repr__(self) -> str:
        return (
            f"TransactionManager(transactional_id={self.transactional_id!r}, state={self._state.name}, "
            f"{self.producer_id_and_epoch})"
        )

    # What a user calls

    def init_transactions(self) -> TransactionalResult:
        """Begin to get a producer id, which fences earlier producers of the transactional id and ends what they left.

        Raises: TransactionStateError unless it is the first call, or one again for an outcome that was not awaited.
        """

        def start() -> TransactionalResult:
            result = TransactionalResult("init_transactions")
            self._enter(_S.INITIALIZING)
            self._init = result
            return result

        return self._begin("init_transactions", start)

    def begin_transaction(self) -> None:
        """Begin a transaction.

        Raises: TransactionStateError in another state than READY; the error that the producer is in.
        """
        with self._lock:
            self._check_transactional("begin_transaction")
            self._check_not_pending("begin_transaction")
            self._pending = None
            self.raise_error()
            self._enter(_S.IN_TRANSACTION)

    def begin_commit(self) -> TransactionalResult:
        """Begin to commit; done when all batches are in the log and every partition has its marker.

        Raises: TransactionStateError without a transaction; the error that the producer is in.
        """

        def start() -> TransactionalResult:
            self.raise_error()
            return self._begin_end("commit_transaction", _S.COMMITTING_TRANSACTION)

        return self._begin("commit_transaction", start)

    def begin_abort(self) -> TransactionalResult:
        """Begin to abort; batches that were not handed to the sink fail.

        Raises: TransactionStateError without a transaction; the error that the producer is in, if it is fatal.
        """

        def start() -> TransactionalResult:
            if self._state is not _S.ABORTABLE_ERROR:
                self.raise_error()
            result = self._begin_end("abort_transaction", _S.ABORTING_TRANSACTION)
            self._new_partitions.clear()
            return result

        return self._begin("abort_transaction", start)

    def maybe_add_partition(self, topic_partition: TopicPartition) -> None:
        """Make a partition to which a record was appended part of the transaction, unless that is aborted.

        Cost: a lookup, if the partition is part of it.
        """
        if topic_partition in self.open_transaction.partitions:
            return
        with self._lock:
            if self._state in (_S.IN_TRANSACTION, _S.COMMITTING_TRANSACTION):
                # The Sender may have added it.
                if topic_partition not in self._partitions:
                    self._new_partitions.add(topic_partition)
                self.open_transaction.partitions.add(topic_partition)

    def check_send(self) -> None:
        """Raise what keeps a record from being sent now, if anything does."""
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
        """Raise the error that the producer is in, if it is in one."""
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
        """Whether the coordinator is still to be asked for something."""
        return self._init is not None or self._end is not None or bool(self._new_partitions)

    @property
    def has_new_partitions(self) -> bool:
        """Whether partitions are still to be made part of the transaction."""
        return bool(self._new_partitions)

    @property
    def is_held_here(self) -> bool:
        """Whether the calling thread is in the midst of a call that the Sender has to wait for."""
        return self._lock.is_held_here

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id_and_epoch.is_valid

    def _begin(self, operation: str, start: Callable[[], TransactionalResult]) -> TransactionalResult:
        """Start an operation, or go on with the one that the same call began and nobody has seen the outcome of."""
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
        # No call from here on, so that no interrupt comes between.
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
                f"{operation}: the outcome of {pending.operation} was not awaited; that has to be called again"
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
        # In between, and behind an interrupt there, records go to the calls that take the lock.
        self.open_transaction.is_open = False
        self._state = state
        self.open_transaction.is_open = is_open

    def _fail(self, error: KStoreError) -> None:
        """Take no more: the error is fatal."""
        if self._state is not _S.FATAL_ERROR:
            _logger.error("%s can only be closed: %s", self, error)
        self.close(error)

    def _fail_transaction(self, error: KStoreError) -> None:
        """Let nothing but an abort be left to do."""
        with self._lock:
            if self._is_ending:
                _logger.debug("an error that comes too late for its transaction: %s", error)
            elif self._state is _S.ABORTING_TRANSACTION:
                _logger.debug("an error of a transaction that is aborted: %s", error)
                self._needs_epoch_bump = True
            elif _S.ABORTABLE_ERROR.may_follow(self._state):
                self._change_to(_S.ABORTABLE_ERROR)
                self._last_error = error
                self._needs_epoch_bump = True

    def note_failed_send(self, error: KStoreError | ValueError) -> None:
        """Let nothing but an abort be left of a transaction one of whose records came into no batch."""
        if self.is_transactional:
            self._fail_transaction(error if isinstance(error, KStoreError) else KStoreError(str(error)))

    def _fail_requests(self, error: KStoreError) -> None:
        for result in (self._init, self._end, self._pending):
            if result is not None:
                result.complete(error)
        self._init = self._end = None
        self._new_partitions.clear()

    # What the Sender calls

    def run_request(self, *, is_done: Callable[[], bool]) -> bool:
        """Ask the coordinator for the next thing that is wanted of it; return whether there was one.

        Args: is_done: whether all batches are, before which a transaction is not ended; asked only once its end is
            wanted, since until then records may still come into it (Kafka asks before).
        Raises: what is_retriable(), with everything as before: the request is to be run again a little later.
        """
        # Without the lock: it waits for who appends, and a signal handler in the midst of that may send, too.
        is_over = self._end is not None and is_done()
        with self._lock:
            if self.has_error:
                self._fail_requests(self._last_error or KStoreError("the producer failed"))
                return False
            if self._init is not None and self._end is None:
                return self._run_init(self._init)
            if self._new_partitions:
                return self._run_add(frozenset(self._new_partitions))
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
        """Fail everything that is waited for, and take no more."""
        with self._lock:
            if self._state is not _S.FATAL_ERROR:
                self._change_to(_S.FATAL_ERROR)
                self._last_error = error
                self._fail_requests(error)

    def ensure_producer_id(self) -> None:
        """Get an id, or the next epoch, for an idempotent producer without transactions."""
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

    # What became of batches

    def is_send_to_partition_allowed(self, topic_partition: TopicPartition) -> bool:
        """Tell whether batches may go there; a partition of the transaction that it was not told of is added."""
        if self._state is _S.FATAL_ERROR:
            return False
        if not self.is_transactional or topic_partition in self._partitions:
            return True
        # Whoever appended did not come to maybe_add_partition() yet.
        if self._state in (_S.IN_TRANSACTION, _S.COMMITTING_TRANSACTION):
            self._new_partitions.add(topic_partition)
        return False

    def _request_epoch(self, topic_partition: TopicPartition) -> None:
        self._needs_epoch_bump = True
        self.renumbers.add(topic_partition)

    def maybe_resolve_sequences(self) -> None:
        """Settle partitions without batches in flight: by a later batch that got through, else by a new epoch."""
        for topic_partition in self.settle_unresolved_sequences():
            if self.is_transactional:
                self._fail_transaction(
                    KStoreError(f"{topic_partition}: it is not known whether earlier batches are in the log")
                )
            else:
                self._request_epoch(topic_partition)

    def can_retry(self, response: ProduceResponse, batch: ProducerBatch) -> bool:
        """Tell whether a batch that was answered by an error should be sent again, perhaps in a new epoch."""
        if isinstance(response.error, OutOfOrderSequenceError):
            if self.is_transactional:
                return self._is_out_of_order_for_a_while(batch) or response.is_retriable
            if self.next_batch_by_sequence(batch.topic_partition) is batch:
                if batch.is_in_doubt:
                    # With other sequences the log would not know it again. Kafka sends it all the same.
                    return False
                self._request_epoch(batch.topic_partition)
            return True
        return response.is_retriable

    def is_in_log(self, batch: ProducerBatch, error: OutOfOrderSequenceError) -> bool:
        """Tell whether a batch that the log refused as out of order is a duplicate of what it has.

        So it is if a later batch was acknowledged, or if the error says that the log has later sequences.
        Source: Kafka TransactionManager.isNextSequence, Errors.DUPLICATE_SEQUENCE_NUMBER.
        """
        if self.sequences_of(batch.topic_partition).has_acked(batch):
            return True
        if (error.producer_id, error.producer_epoch) != (batch.producer_id, batch.producer_epoch):
            return False
        return error.last_sequence != NO_SEQUENCE and not is_sequence_behind(
            batch.last_sequence, other=error.last_sequence
        )

    def _is_out_of_order_for_a_while(self, batch: ProducerBatch) -> bool:
        topic_partition = batch.topic_partition
        return not self.has_unresolved_sequence(topic_partition) and (
            self.next_batch_by_sequence(topic_partition) is not batch
        )

    def complete_next_batches(self, batches: list[ProducerBatch]) -> bool:
        """Do as handle_completed_batches() if nothing is in flight before these batches; return whether that is so."""
        if self.sequences_of(batches[0].topic_partition).in_flight[: len(batches)] != batches:
            return False
        self.handle_completed_batches(batches)
        return True

    def handle_completed_batches(self, batches: list[ProducerBatch]) -> None:
        """Note that batches of one partition are in the log, in their order."""
        entry = self.sequences_of(batches[0].topic_partition)
        if entry.in_flight[: len(batches)] == batches:
            # Sequences rise among those in flight, unless two producers' are mixed.
            first, last = batches[0], batches[-1]
            if (first.producer_id, first.producer_epoch) == (last.producer_id, last.producer_epoch):
                del entry.in_flight[: len(batches)]
                batches = batches[-1:]
        for batch in batches:
            if (batch.producer_id, batch.producer_epoch) == entry.producer:
                entry.ack(batch.last_sequence)
            entry.remove(batch)

    def handle_aborted_batches(self, error: KStoreError) -> None:
        """Note that all batches are given up, whether they are in the log or not."""
        self.forget_in_flight_batches()
        if self.is_transactional:
            self._fail_transaction(error)

    def handle_failed_batch(self, batch: ProducerBatch, error: KStoreError, *, closes_gap: bool) -> None:
        """Note that a batch failed for good.

        Batches in flight after it get no other sequences in the same epoch. In a transaction Kafka moves them up
        (adjustSequencesDueToFailedBatch), and a copy of one that arrives late is then taken as well.
        Args: closes_gap: whether later batches can go on in a new epoch, since it is certain not to be in the log.
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
