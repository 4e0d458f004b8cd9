"""Sender: the thread that passes batches from the accumulator to a sink and handles the answers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kstore._core import Bell, DirectSend, begin_sends, end_sends
from kstore.config import MAX_INT32
from kstore.env.process import SYSTEM_CLOCK, Clock, after_fork_in_child, at_exit
from kstore.errors import KStoreError, ProducerClosedError, TransactionAbortedError
from kstore.producer.batches.batch import FinalState
from kstore.producer.batches.futures import failures_among
from kstore.producer.cluster import Cluster, Node
from kstore.producer.sending.completion import BatchCompletion, SenderHooks
from kstore.producer.sink import Sink, answers_of, as_kstore_error, cluster_of
from kstore.producer.store import is_retriable
from kstore.types import SinkAck
from kstore.waiting import Latch

if TYPE_CHECKING:
    from kstore.coordinator.transaction.coordinator import TransactionCoordinator
    from kstore.producer.batches.accumulator import RecordAccumulator
    from kstore.producer.batches.batch import ProducerBatch
    from kstore.producer.transactions import TransactionManager

# The longest wait without a wakeup, and the interval of checks for expired transactions.
_MAX_WAIT_MS = 10_000
# The shortest wait before the sink is asked for its cluster again.
_LEAST_WAIT_MS = 1
_MS_PER_S = 1000
# Seconds to wait for a sink call to return after a forced close.
_FORCED_CLOSE_S = 1.0

_logger = logging.getLogger("kstore.producer")


class Sender:
    """Drains batches, passes them to a sink, and completes, retries, splits or fails them.

    Each run drains up to max_in_flight times, one batch per partition each time, and passes everything to the sink in
    one call per node. If the sink's batches_per_partition is larger than max_in_flight, one drain takes up to that many
    instead, unless max_in_flight is 1. The order of a partition is kept if max_in_flight is 1 or there is a transaction
    manager. An exception from the sink's send() fails the batches of the call, one from its cluster() fails all
    batches.
    Args:
        ack: what must have happened before a future is done. "buffered": the batch was passed to the sink; its offset
            is -1 and an error is only logged. "written" and "flushed": see docs/durability.md.
        max_request_size: bytes of batches for one node in one drain.
        retries: of one batch.
        retry_backoff_ms: the wait after an error of the sink's cluster() or of the coordinator.
        coordinator: the Sender aborts its expired transactions every 10 seconds.
    An interpreter that exits ends all Senders first, as WritableStore.close does those of the store: end_work().
    Attributes: wakeup: wakes the thread to check the accumulator; a single step that no interrupt can split.
    Threads: run and run_once for one thread; the other methods are thread-safe.
    Source: Kafka Sender.
    """

    def __init__(
        self,
        accumulator: RecordAccumulator,
        sink: Sink,
        *,
        ack: SinkAck = "written",
        max_in_flight: int = 5,
        max_request_size: int = 1024 * 1024,
        retries: int = MAX_INT32,
        retry_backoff_ms: int = 100,
        delivery_timeout_ms: int = 120_000,
        transaction_manager: TransactionManager | None = None,
        coordinator: TransactionCoordinator | None = None,
        hooks: SenderHooks | None = None,
        clock: Clock = SYSTEM_CLOCK,
        name: str = "kstore-producer",
    ) -> None:
        if max_in_flight < 1:
            raise ValueError(f"max_in_flight must be at least 1, got {max_in_flight}")
        self._accumulator = accumulator
        self._sink = sink
        self._ack: SinkAck = ack
        most = _batches_per_partition(sink) if max_in_flight > 1 else 1
        self._drains_per_run, self._batches_per_drain = (1, most) if most > max_in_flight else (max_in_flight, 1)
        self._max_request_size = max_request_size
        self._retry_backoff_ms = max(retry_backoff_ms, _LEAST_WAIT_MS)
        self._delivery_timeout_ms = delivery_timeout_ms
        self._transaction_manager = transaction_manager
        self._coordinator = coordinator
        self._coordinator_ms = self._next_request_ms = clock.monotonic_ms()
        self._hooks = SenderHooks() if hooks is None else hooks
        self._clock = clock
        self._completion = BatchCompletion(
            accumulator,
            transaction_manager=transaction_manager,
            retries=retries,
            delivery_timeout_ms=delivery_timeout_ms,
            hooks=self._hooks,
        )
        self._is_open = True
        self._is_forced = False
        self._is_given_up = False
        self._bell = Bell(threading.Lock(), patience_s=accumulator.linger_ms / _MS_PER_S, work=accumulator.active)
        self.wakeup: Callable[[], None] = self._bell.ring
        self.call: Callable[[], None] = self._bell.call
        self.direct = self._direct_send(transaction_manager)
        self._end_latch = Latch()
        self._thread = threading.Thread(target=self.run, name=name, daemon=True)

    def _direct_send(self, manager: TransactionManager | None) -> DirectSend:
        """Return what lets waiting threads send; it is closed unless the sink and the settings allow that."""
        append = getattr(self._sink, "append_alone", None)
        is_possible = append is not None and manager is not None and not manager.is_transactional
        direct = DirectSend(
            threading.Lock(),
            wake_sender=self.wakeup,
            sequences_of=_no_sequences if manager is None else manager.settled_sequences,
            append=partial(_no_sequences if append is None else append, ack=self._ack),
            incomplete=self._accumulator.incomplete.batches,
            state=FinalState.SUCCEEDED,
            delivery_timeout_ms=self._delivery_timeout_ms,
            clock=None if self._clock is SYSTEM_CLOCK else self._clock,
        )
        if not is_possible or self._ack == "buffered":
            direct.close()
        return direct

    # From any thread

    def start(self) -> None:
        """Start the thread."""
        at_exit(_end_all)
        _running[self] = None
        try:
            self._thread.start()
        except BaseException:
            _running.pop(self, None)
            raise

    @property
    def is_open(self) -> bool:
        """Whether it accepts records: nothing has begun to close it."""
        return self._is_open

    @property
    def is_running(self) -> bool:
        """Whether the thread was started and has not ended."""
        return self._thread.ident is not None and not self._end_latch.is_open

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller runs in the Sender's thread, as callbacks do."""
        return threading.current_thread() is self._thread

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the thread to end; return whether it has ended or was never started.

        Args: timeout_s: in seconds, None to wait without limit.
        """
        # Not Thread.join(): interrupted by a signal, it may report a running thread as ended, or wait for itself.
        return self._thread.ident is None or self._end_latch.wait(timeout_s)

    @property
    def is_held_here(self) -> bool:
        """Whether the calling thread holds a lock that the Sender's thread needs, as in a signal handler."""
        manager = self._transaction_manager
        is_held = self._accumulator.is_held_here or self._hooks.is_held_here() or self.direct.is_held_here
        return is_held or (manager is not None and manager.is_held_here)

    @property
    def unsent_count(self) -> int:
        """The number of records that are not done yet."""
        return sum(batch.record_count for batch in self._accumulator.incomplete.copy_all() if not batch.is_done)

    def close(self, timeout_s: float | None = None) -> None:
        """Send the queued records, abort an open transaction and end; after the timeout, fail what was not sent.

        A sink call that does not return fails the records, too; their callbacks run in the calling thread. In a
        callback it does not wait: records not sent yet fail.
        Args: timeout_s: in seconds, None to wait without limit.
        """
        if self._is_given_up:
            return
        if self.is_own_thread:
            self.force_close()
            return
        self.initiate_close()
        if self.join(timeout_s):
            return
        self.force_close()
        if self.join(_FORCED_CLOSE_S):
            return
        # First: a callback may close the producer, which must not wait.
        self._is_given_up = True
        try:
            self._fail_unsent()
        except BaseException:
            self._is_given_up = False
            raise

    def end_work(self) -> tuple[int, KStoreError | None]:
        """Do as close(), with the delivery timeout as the limit; return how many records failed, and the first error.

        Raises: RuntimeError, with nothing done, in a signal handler that interrupted a call whose lock the thread
            needs.
        """
        if not self.is_own_thread and self.is_held_here:
            raise RuntimeError(
                f"closing {self._thread.name} in a signal handler would wait for the call of the producer that the "
                "signal interrupted: let the handler only set a flag"
            )
        incomplete = self._accumulator.incomplete
        batches = dict.fromkeys(incomplete.copy_all())
        self.initiate_close()
        batches |= dict.fromkeys(incomplete.copy_all())
        self.close(self._delivery_timeout_ms / _MS_PER_S)
        return failures_among((batch.result, batch.record_count) for batch in batches)

    def initiate_close(self) -> None:
        """Refuse new records; send the queued ones, abort an open transaction, and end the thread."""
        self.direct.close()
        self._accumulator.close()
        self._is_open = False
        self.wakeup()

    def force_close(self) -> None:
        """Do as initiate_close(), but fail the batches that are not sent yet."""
        self._is_forced = True
        self.initiate_close()

    def note_direct_sends(self) -> None:
        """Pass what waiting threads sent since the last call to the hooks."""
        sums = self.direct.take_sums()
        if sums is not None:
            self._hooks.on_direct_sends(sums)

    # The thread

    def run(self) -> None:
        """Send until the Sender is closed."""
        try:
            while self._is_open:
                self._wait(self._guarded_run())
            self._run_while(self._has_work)
            self._run_while(self._has_transaction_to_end)
        finally:
            try:
                self._end()
            finally:
                _running.pop(self, None)
                self._end_latch.open()

    def run_once(self) -> int:
        """Do the outstanding work; return the milliseconds until there may be more, 0 if it must run again at once."""
        self._settle_direct_sends()
        manager = self._transaction_manager
        if manager is not None:
            manager.maybe_resolve_sequences()
            if manager.has_fatal_error:
                self._abort_batches(manager.last_error or KStoreError("the producer failed"))
                return _MAX_WAIT_MS
            manager.ensure_producer_id()
            if self._run_transactional_request(manager):
                return 0
        self._maybe_abort_expired()
        return min(self._send_batches(), self._until_request_ms)

    @property
    def _until_request_ms(self) -> int:
        """Milliseconds until the next request to the coordinator, or the longest wait if none is known."""
        manager = self._transaction_manager
        left_ms = max(self._next_request_ms - self._clock.monotonic_ms(), 0)
        return left_ms if left_ms or (manager is not None and manager.has_new_partitions) else _MAX_WAIT_MS

    def _settle_direct_sends(self) -> None:
        """Do what threads that sent have left to this one."""
        direct = self.direct
        while direct.returned:
            self._accumulator.take_back(direct.returned.pop(0))
        while direct.ended:
            result, watchers = direct.ended.pop(0)
            try:
                result.notify(watchers)
            except KeyboardInterrupt as error:
                self._completion.keep_interrupt(error)
        self.note_direct_sends()

    def _guarded_run(self) -> int:
        with self.direct:
            return self._guarded_run_in_turn()

    def _guarded_run_in_turn(self) -> int:
        try:
            return self.run_once()
        except Exception as error:
            _logger.exception("%s continues after an unexpected error", self._thread.name)
            self._completion.abandon(as_kstore_error(error))
            self._expire(self._clock.monotonic_ms())
            return self._retry_backoff_ms

    def _run_while(self, is_needed: Callable[[], bool]) -> None:
        while is_needed() and not self._is_forced:
            delay_ms = self._guarded_run()
            if is_needed():
                self._wait(delay_ms)

    def _wait(self, delay_ms: int) -> None:
        self._bell.wait(max(min(delay_ms, _MAX_WAIT_MS), 0) / _MS_PER_S)

    def _has_work(self) -> bool:
        manager = self._transaction_manager
        has_work = self._accumulator.has_undrained or self.direct.has_work
        return has_work or (manager is not None and manager.has_pending_requests)

    def _has_transaction_to_end(self) -> bool:
        """Return whether a transaction is still open; begin to abort it unless it is being ended."""
        manager = self._transaction_manager
        if manager is None or not manager.has_ongoing_transaction or self._is_forced:
            return False
        if not manager.is_completing:
            _logger.warning("%s aborts a transaction that was open when it was closed", self._thread.name)
            try:
                manager.begin_abort()
            except KStoreError as error:
                manager.close(error)
        return manager.has_ongoing_transaction

    def _end(self) -> None:
        error = ProducerClosedError("the producer was closed before this was done")
        # A thread that sends ends first.
        with self.direct:
            self._settle_direct_sends()
            if self._transaction_manager is not None:
                self._transaction_manager.close(error)
            self._fail_unsent()

    def _fail_unsent(self) -> None:
        count = self._accumulator.abort_incomplete_batches()
        if count:
            _logger.warning("%s was closed before %d records were sent: they failed", self._thread.name, count)

    # Transactions

    def _run_transactional_request(self, manager: TransactionManager) -> bool:
        if not manager.is_transactional:
            return False
        if (manager.has_abortable_error or manager.is_aborting) and self._accumulator.has_incomplete:
            error = manager.last_error or TransactionAbortedError("the transaction was aborted")
            self._accumulator.abort_undrained_batches(error)
        if self._is_open and self._clock.monotonic_ms() < self._next_request_ms:
            return False
        try:
            return manager.run_request(is_done=self._accumulator.is_done_with_transaction)
        except Exception as error:
            if self._is_open and is_retriable(error):
                _logger.debug("retrying the request to the coordinator: %s", error)
                self._next_request_ms = self._clock.monotonic_ms() + self._retry_backoff_ms
                return False
            _logger.exception("the coordinator failed")
            manager.close(as_kstore_error(error, "the transaction can't continue"))
            return True

    def _abort_batches(self, error: KStoreError) -> None:
        if not self._accumulator.has_incomplete:
            return
        if self._transaction_manager is not None:
            self._transaction_manager.handle_aborted_batches(error)
        self._accumulator.abort_batches(error)

    def _maybe_abort_expired(self) -> None:
        if self._coordinator is None:
            return
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._coordinator_ms < _MAX_WAIT_MS:
            return
        self._coordinator_ms = now_ms
        try:
            self._coordinator.abort_expired()
        except KStoreError as error:
            _logger.warning("expired transactions could not be aborted: %s", error)

    # Batches

    def _send_batches(self) -> int:
        accumulator = self._accumulator
        now_ms = self._clock.monotonic_ms()
        try:
            cluster = cluster_of(self._sink)
        except BaseException as error:
            _logger.exception("the sink's cluster() failed")
            self._abort_batches(as_kstore_error(error, "the sink's cluster() failed"))
            self._completion.keep_interrupt(error)
            self._completion.raise_interrupt()
            return self._retry_backoff_ms
        drained, delay_ms = self._drain(cluster, now_ms)
        self._expire(now_ms)
        for node, batches in drained.items():
            self._send(node, batches)
        self._completion.put_back(now_ms=self._clock.monotonic_ms())
        self._completion.raise_interrupt()
        if drained:
            return 0
        return min(delay_ms, max(accumulator.next_expiry_time_ms - now_ms, 0))

    def _expire(self, now_ms: int) -> None:
        self._accumulator.reset_next_batch_expiry_time()
        for batch in self._accumulator.expired_batches(now_ms):
            self._completion.expire(batch, now_ms=now_ms)

    def _drain(self, cluster: Cluster, now_ms: int) -> tuple[dict[Node, list[ProducerBatch]], int]:
        """Return batches by node, those of a partition in order, and the milliseconds until more may be ready."""
        accumulator = self._accumulator
        nodes = {node.id: node for node in cluster.nodes}
        drained: dict[Node, list[ProducerBatch]] = {}
        delay_ms = 0
        for _ in range(self._drains_per_run):
            check = accumulator.ready(cluster, now_ms)
            delay_ms = check.next_ready_check_delay_ms
            if check.unknown_leader_topics:
                delay_ms = min(delay_ms, self._retry_backoff_ms)
            if not check.ready_nodes:
                break
            has_batches = False
            by_node = accumulator.drain(
                cluster,
                check.ready_nodes,
                self._max_request_size,
                now_ms=now_ms,
                batches_per_partition=self._batches_per_drain,
            )
            for node_id, batches in by_node.items():
                accumulator.update_node_latency_stats(node_id, now_ms=now_ms, can_drain=bool(batches))
                if batches:
                    has_batches = True
                    drained.setdefault(nodes[node_id], []).extend(batches)
            if not has_batches:
                break
        return drained, delay_ms

    def _send(self, node: Node, drained: list[ProducerBatch]) -> None:
        started_ms = self._clock.monotonic_ms()
        batches, expired = begin_sends(drained, started_ms - self._delivery_timeout_ms)
        try:
            for batch in expired:
                self._completion.expire(batch, now_ms=started_ms)
            self._hooks.on_send(node, batches)
            answers, failure = self._ask_sink(node, batches) if batches else ([], None)
        finally:
            end_sends(batches)
        now_ms = self._clock.monotonic_ms()
        self._hooks.on_response(node, batches, now_ms - started_ms)
        if failure is not None:
            self._completion.fail_all(batches, failure, fails_futures=self._ack != "buffered")
        elif self._ack == "buffered":
            self._completion.release_all(batches, answers)
        else:
            self._completion.take_all(batches, answers, now_ms=now_ms)

    def _ask_sink(self, node: Node, batches: list[ProducerBatch]) -> tuple[list[object], KStoreError | None]:
        """Return an answer for each batch, or the error if the sink failed and the outcome is unknown."""
        try:
            # A tuple, because the sink could change a list.
            return answers_of(self._sink.send(node, tuple(batches), ack=self._ack), count=len(batches)), None
        except BaseException as error:
            _logger.exception("the sink failed with %s batches", len(batches))
            self._completion.keep_interrupt(error)
            return [], as_kstore_error(error)


# The Senders of this process with running threads.
_running: dict[Sender, None] = {}


def _end_all() -> None:
    """Have the records sent that are still in memory when the interpreter exits."""
    senders = list(_running)
    for sender in senders:
        sender.initiate_close()
    for sender in senders:
        try:
            count, error = sender.end_work()
        except Exception:
            _logger.exception("records may not have been sent before the program ended")
            continue
        if count:
            _logger.error("%d records were not sent before the program ended: %s", count, error)


def _forget_in_child() -> None:
    """Have no thread of a child process made by fork() send: the child has only copies."""
    for sender in list(_running):
        sender.direct.close()
    _running.clear()


def _no_sequences(*_: object, **__: object) -> None:
    """Return None: every batch is left to the Sender's thread."""


after_fork_in_child(_forget_in_child)


def _batches_per_partition(sink: Sink) -> int:
    most = getattr(sink, "batches_per_partition", 1)
    if not isinstance(most, int) or most < 1:
        raise ValueError(f"batches_per_partition of the sink must be an int of at least 1, got {most!r}")
    return most
