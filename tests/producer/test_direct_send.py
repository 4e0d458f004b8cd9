"""Goal: a thread that waits for a record sends its batch itself; order, sequences, callbacks and the end are as ever.
Method: a Sender whose thread does not run, so that each step is the test's; appends that stop at an event; interrupts
at each place where the interpreter looks for signals; random histories of many threads."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

import kstore
from kstore._core import Bell, DirectSend
from kstore.errors import KStoreError, ProducerClosedError, StorageError
from kstore.log.write.writable_log import WritableLog
from kstore.producer import Producer
from kstore.producer.batches.batch import FinalState
from kstore.producer.sending.sender import Sender
from kstore.producer.sending.store_sink import StoreSink
from kstore.store.store import WritableStore, open_store
from tests.fakes.interrupts import Tracer, bounded, first_visits, traced
from tests.fakes.pooling import PATIENCE_S
from tests.fakes.sending import T0, T1, Producing

HOUR_MS = 3_600_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[WritableStore]:
    with open_store(tmp_path, "a") as store:
        store.create_topic("t", partitions=2)
        yield store


@pytest.fixture
def producer(store: WritableStore) -> Iterator[Producer]:
    """A producer that has sent a record to each partition, with an hour of linger."""
    with kstore.Producer(store, linger_ms=HOUR_MS) as producer:
        for number in (0, 1):
            producer.send("t", b"first", partition=number).result()
        let_sender_rest(producer)
        yield producer


def let_sender_rest(producer: Producer) -> None:
    """Return once the Sender's thread waits for work: the turn to send is free then."""
    sender = producer._sender
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        frame = sys._current_frames().get(sender._thread.ident or 0)
        waits = frame is not None and frame.f_code is Sender._wait.__code__ and frame.f_locals["delay_ms"] > 0
        if waits and not sender._bell.is_rung:
            return
        time.sleep(0)
    raise AssertionError("the Sender's thread does not come to rest")


@contextmanager
def in_thread(call: Callable[[], Any]) -> Iterator[Future[Any]]:
    """Make a call in a thread, which ends before this does."""
    with ThreadPoolExecutor(1) as executor:
        yield executor.submit(call)


class Stop:
    """Stops appends of waiting threads: `begun` is set when one has come, which goes on when `may_go` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, after: bool = False) -> None:
        self.begun, self.may_go = threading.Event(), threading.Event()
        self.threads: list[str] = []
        self.do: Callable[[], object] = lambda: None
        append_alone = WritableLog.append_alone

        def stopped(log: WritableLog, *args: Any, **options: Any) -> Any:
            info = append_alone(log, *args, **options) if after else None
            self.threads.append(threading.current_thread().name)
            self.begun.set()
            self.may_go.wait(PATIENCE_S)
            self.do()
            return info if after else append_alone(log, *args, **options)

        monkeypatch.setattr(WritableLog, "append_alone", stopped)


class Parts(Producing):
    """A Sender over a store whose thread does not run; one record is in each partition."""

    def __init__(self, store: WritableStore, **options: Any) -> None:
        super().__init__(StoreSink(store), is_idempotent=True, linger_ms=HOUR_MS, **options)
        self.accumulator.direct = self.sender.direct
        for partition in (T0, T1):
            future = self.append(b"first", to=partition)
            future.hurry()
            self.run()
            assert future.done()

    def send_now(self, future: Any) -> bool:
        sent: bool = future.produce_result.send_now()
        return sent


def values_of(store: WritableStore, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in store.log("t", partition).read()][1:]


# Who sends


def test_thread_that_waits_sends_its_batch_itself(store: WritableStore, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Stop(monkeypatch)
    stop.may_go.set()
    with kstore.Producer(store, linger_ms=HOUR_MS) as producer:
        producer.send("t", b"first", partition=0).result()
        let_sender_rest(producer)
        for number in range(5):
            assert producer.send("t", b"%d" % number, partition=0).result().offset == number + 1
    assert stop.threads == [threading.current_thread().name] * 5


@pytest.mark.parametrize("settings", [{"acks": "buffered"}, {"enable_idempotence": False}, {"transactional_id": "x"}])
def test_only_an_idempotent_producer_without_transactions_lets_waiters_send(
    store: WritableStore, settings: dict[str, Any]
) -> None:
    with kstore.Producer(store, **settings) as producer:
        assert producer._sender.direct.is_closed


def test_wait_with_a_timeout_leaves_the_sending_to_the_producers_thread(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sends: list[object] = []
    monkeypatch.setattr(WritableLog, "append_alone", lambda *args, **_: sends.append(args))
    assert producer.send("t", b"v", partition=0).result(PATIENCE_S).offset == 1
    assert not sends


def test_other_waiters_of_the_batch_get_its_outcome(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Stop(monkeypatch, after=True)
    first, second = (producer.send("t", b"v", partition=0) for _ in range(2))
    with in_thread(first.result) as sending:
        assert stop.begun.wait(PATIENCE_S)
        with in_thread(second.result) as waiting:
            stop.may_go.set()
            assert (sending.result(PATIENCE_S).offset, waiting.result(PATIENCE_S).offset) == (1, 2)


# What is left to the Sender's thread


def test_second_batch_of_a_queue_waits_for_the_first(store: WritableStore) -> None:
    parts = Parts(store)
    (first,) = parts.append_batch(b"1")
    (second,) = parts.append_batch(b"2")
    assert not parts.send_now(second)
    assert values_of(store) == []
    assert parts.send_now(first)
    assert parts.send_now(second)
    assert values_of(store) == [b"1", b"2"]
    parts.check_at_rest()


def test_batch_with_a_callback_is_left(store: WritableStore) -> None:
    parts = Parts(store)
    told: list[object] = []
    future = parts.append(b"1", callback=lambda metadata, _: told.append(metadata.offset))
    assert not parts.send_now(future)
    future.hurry()
    parts.run()
    assert told == [1]


def test_batch_whose_future_has_a_callback_is_left(store: WritableStore) -> None:
    parts = Parts(store)
    future = parts.append(b"1")
    future.add_done_callback(lambda _: None)
    assert not parts.send_now(future)


def test_batch_of_a_queue_that_another_thread_changes_is_left(store: WritableStore) -> None:
    parts = Parts(store)
    future = parts.append(b"1")
    with parts.accumulator.queue_of(T0):
        assert not parts.send_now(future)
    assert parts.send_now(future)


def test_batch_of_a_muted_partition_is_left(store: WritableStore) -> None:
    parts = Parts(store)
    future = parts.append(b"1")
    parts.accumulator.mute_partition(T0)
    assert not parts.send_now(future)


def test_batch_older_than_the_delivery_timeout_is_left(store: WritableStore) -> None:
    parts = Parts(store, delivery_timeout_ms=5000)
    future = parts.append(b"1")
    parts.clock.now_ms += 5000
    assert not parts.send_now(future)
    parts.run()
    assert future.exception(0) is not None


def test_compressed_batch_is_left(store: WritableStore) -> None:
    parts = Parts(store, compression="gzip")
    assert not parts.send_now(parts.append(b"1"))


@pytest.mark.parametrize("state", ["epoch", "unresolved", "other"])
def test_batch_whose_sequence_is_to_be_decided_is_left(store: WritableStore, state: str) -> None:
    parts = Parts(store)
    manager = parts.manager
    assert manager is not None
    future = parts.append(b"1")
    if state == "epoch":
        manager._needs_epoch_bump = True
    elif state == "unresolved":
        manager._unresolved.add(T1)
    else:
        manager.producer_id_and_epoch = manager.producer_id_and_epoch._replace(epoch=1)
    assert not parts.send_now(future)
    future.hurry()
    parts.run()
    parts.run()
    assert future.result(0).offset == 1


def test_nobody_sends_while_the_senders_thread_does(store: WritableStore) -> None:
    parts = Parts(store)
    future = parts.append(b"1")
    with parts.sender.direct, in_thread(lambda: parts.send_now(future)) as other:
        assert other.result(PATIENCE_S) is False
    assert parts.send_now(future)


def test_append_that_rolls_the_log_is_left(tmp_path: Path) -> None:
    with open_store(tmp_path, "a") as store:
        store.create_topic("t", partitions=2, config={"segment_bytes": 400})
        parts = Parts(store)
        futures = []
        for number in range(10):
            (future,) = parts.append_batch(b"%d" % number * 50)
            if not parts.send_now(future):
                parts.run()
            futures.append(future)
        assert [future.result(0).offset for future in futures] == list(range(1, 11))
        assert len(store.log("t", 0).segments) > 1
        parts.check_at_rest()


# What can't be ended


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), StorageError("no"), ValueError("no")], ids=repr)
def test_batch_whose_append_ended_with_an_error_is_sent_again_and_is_in_the_log_once(
    store: WritableStore, monkeypatch: pytest.MonkeyPatch, is_written: bool, error: BaseException
) -> None:
    parts = Parts(store)
    stop = Stop(monkeypatch, after=is_written)
    stop.may_go.set()

    def fail() -> None:
        raise error

    stop.do = fail
    (future,) = parts.append_batch(b"1")
    if isinstance(error, Exception):
        assert not parts.send_now(future)
    else:
        with pytest.raises(KeyboardInterrupt):
            parts.send_now(future)
    stop.do = lambda: None
    (later,) = parts.append_batch(b"2")
    # The one before comes first.
    assert not parts.send_now(later)
    assert not future.done()
    parts.run_until_done(future, later)
    assert values_of(store) == [b"1", b"2"]
    assert (future.result(0).offset, later.result(0).offset) == (1, 2)
    parts.check_at_rest()


def test_batch_that_is_aborted_while_it_is_written_keeps_its_error(
    store: WritableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts(store)
    stop = Stop(monkeypatch)
    stop.may_go.set()
    error = KStoreError("aborted")
    stop.do = lambda: parts.accumulator.abort_batches(error)
    future = parts.append(b"1")
    (batch,) = parts.accumulator.incomplete.batches
    assert parts.send_now(future)
    assert future.exception(0) is error
    assert batch.final_state is FinalState.ABORTED
    parts.check_at_rest()
    # The sequences go on after the batch that is in the log.
    stop.do = lambda: None
    assert parts.send_now(parts.append(b"2"))
    assert values_of(store) == [b"1", b"2"]


def test_aborted_batch_that_was_given_back_frees_its_memory(
    store: WritableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts(store)

    def abort_and_fail(*_: object, **__: object) -> None:
        parts.accumulator.abort_batches(KStoreError("aborted"))

    monkeypatch.setattr(WritableLog, "append_alone", abort_and_fail)
    parts = Parts(store)
    future = parts.append(b"1")
    assert parts.send_now(future)
    parts.run()
    parts.check_at_rest()


def test_wait_for_a_split_batch_is_one_for_the_piece(store: WritableStore) -> None:
    parts = Parts(store)
    futures = parts.append_batch(b"1" * 100, b"2" * 100)
    queue = parts.accumulator.queue_of(T0)
    with queue:
        batch = queue.pop_first()
    first, second = batch.split(1)
    with in_thread(futures[1].exception) as waiting:
        while not second.result.is_awaited:
            assert not waiting.done()
        second.complete(7)
        assert waiting.result(PATIENCE_S) is None
    assert futures[1].result().offset == 7
    assert not futures[0].done()
    assert not first.result.is_awaited


# Callbacks


def test_callback_that_is_added_while_the_batch_is_written_runs_in_the_producers_thread(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = Stop(monkeypatch)
    threads: list[str] = []
    told = threading.Event()
    future = producer.send("t", b"v", partition=0)
    with in_thread(future.result) as sending:
        assert stop.begun.wait(PATIENCE_S)
        future.add_done_callback(lambda _: (threads.append(threading.current_thread().name), told.set()))
        stop.may_go.set()
        assert sending.result(PATIENCE_S).offset == 1
    assert told.wait(PATIENCE_S)
    assert threads == ["kstore-producer"]


def test_wait_in_a_callback_without_a_timeout_is_refused(store: WritableStore) -> None:
    errors: list[BaseException] = []
    with kstore.Producer(store, linger_ms=0) as producer:

        def wait(*_: object) -> None:
            try:
                producer.send("t", b"2", partition=1).result()
            except RuntimeError as error:
                errors.append(error)

        producer.send("t", b"1", partition=0, on_delivery=wait).result(PATIENCE_S)
    assert len(errors) == 1
    assert len(list(store.log("t", 1).read())) == 1


@pytest.mark.timeout(30)
def test_calls_in_a_handler_that_interrupted_the_sending_thread_are_refused(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = Stop(monkeypatch)
    stop.may_go.set()
    refused: list[str] = []

    def handle() -> None:
        calls = {
            "result": lambda: producer.send("t", b"other", partition=1).result(),
            "flush": producer.flush,
            "close": producer.close,
        }
        for name, call in calls.items():
            with pytest.raises(RuntimeError):
                call()
            refused.append(name)

    stop.do = handle
    assert producer.send("t", b"v", partition=0).result().offset == 1
    stop.do = lambda: None
    assert refused == ["result", "flush", "close"]
    producer.flush()
    assert producer.send("t", b"v", partition=0).result().offset == 2


# Two threads, and the end


def test_senders_thread_comes_before_a_thread_that_sends_again_and_again(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = Stop(monkeypatch)
    first = producer.send("t", b"1", partition=0)
    with in_thread(first.result) as sending:
        assert stop.begun.wait(PATIENCE_S)
        other = producer.send("t", b"2", partition=1)
        with in_thread(other.result) as waiting:
            # The Sender's thread was woken by the other one, and waits for the turn.
            while not producer._sender.direct.is_wanted:
                assert not waiting.done()
            assert not other.produce_result.send_now()
            stop.may_go.set()
            assert waiting.result(PATIENCE_S).offset == 1
        assert sending.result(PATIENCE_S).offset == 1
    assert len(stop.threads) == 1


def test_turn_that_the_senders_thread_waits_for_is_not_taken(store: WritableStore) -> None:
    parts = Parts(store)
    future = parts.append(b"1")
    tried: list[bool] = []

    class Lock:
        """Has a waiter try to send just as the Sender's thread waits for the turn."""

        def acquire(self, blocking: bool = True) -> bool:
            if blocking:
                direct.send(parts.accumulator.queue_of(T0), future.produce_result)
            else:
                tried.append(blocking)
            return blocking

        def release(self) -> None:
            pass

    direct = DirectSend(
        Lock(),
        wake_sender=lambda: None,
        sequences_of=lambda _: None,
        append=lambda *_: None,
        incomplete={},
        state=object(),
        delivery_timeout_ms=1000,
    )
    with direct:
        assert direct.is_held_here
    assert not tried


def test_sequences_go_on_after_those_of_waiters(store: WritableStore) -> None:
    parts = Parts(store)
    assert parts.manager is not None
    assert parts.send_now(parts.append_batch(b"1", b"2")[0])
    sequences = parts.manager.sequences_of(T0)
    assert (sequences.last_acked_sequence, sequences.next_sequence, sequences.in_flight) == (2, 3, [])


@pytest.mark.parametrize("timeout", [None, 0])
def test_close_waits_for_a_thread_that_sends(
    producer: Producer, monkeypatch: pytest.MonkeyPatch, timeout: float | None
) -> None:
    stop = Stop(monkeypatch)
    future = producer.send("t", b"v", partition=0)
    with in_thread(future.result) as sending:
        assert stop.begun.wait(PATIENCE_S)
        with in_thread(lambda: producer.close(timeout)) as closing:
            while not producer._sender.direct.is_closed:
                assert not closing.done()
            stop.may_go.set()
            closing.result(PATIENCE_S)
        assert sending.result(PATIENCE_S).offset == 1
    assert producer._accumulator.pool.available_memory == producer._accumulator.pool.memory


def test_close_gives_up_on_a_thread_that_hangs(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kstore.producer.sending.sender._FORCED_CLOSE_S", 0.01)
    stop = Stop(monkeypatch)
    future = producer.send("t", b"v", partition=0)
    with in_thread(future.exception) as sending:
        assert stop.begun.wait(PATIENCE_S)
        producer.close(0)
        assert isinstance(future.exception(0), ProducerClosedError)
        stop.may_go.set()
        assert isinstance(sending.result(PATIENCE_S), ProducerClosedError)
    assert producer._accumulator.pool.available_memory == producer._accumulator.pool.memory


def test_batch_that_is_given_back_as_the_producer_closes_is_sent(
    producer: Producer, store: WritableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = Stop(monkeypatch)

    def fail() -> None:
        raise StorageError("no")

    stop.do = fail
    future = producer.send("t", b"v", partition=0)
    with in_thread(future.result) as sending:
        assert stop.begun.wait(PATIENCE_S)
        with in_thread(producer.close) as closing:
            while not producer._sender.direct.is_closed:
                assert not closing.done()
            stop.may_go.set()
            closing.result(PATIENCE_S)
        assert sending.result(PATIENCE_S).offset == 1
    assert values_of(store) == [b"v"]


def test_no_thread_of_a_forked_child_sends(producer: Producer, store: WritableStore) -> None:
    future = producer.send("t", b"v", partition=0)
    child = os.fork()
    if child == 0:
        os._exit(int(future.produce_result.send_now() or not producer._sender.direct.is_closed))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert values_of(store) == []
    assert future.result().offset == 1


def test_batches_that_waiters_send_are_counted(producer: Producer) -> None:
    before = producer.metrics()
    for _ in range(3):
        producer.send("t", b"v" * 10, partition=0).result()
    after = producer.metrics()
    assert after["record-send-total"] - before["record-send-total"] == 3
    assert after["outgoing-byte-total"] > before["outgoing-byte-total"]
    assert after["records-per-request-avg"] == 1
    assert after["request-latency-max"] >= 0


# Interrupts and histories


@pytest.mark.traces
def test_interrupt_anywhere_in_a_wait_leaves_each_record_in_the_log_once(tmp_path: Path) -> None:
    def run(tracer: Tracer, root: Path) -> bool:
        with open_store(root, "a") as store:
            store.create_topic("t", partitions=1)
            with kstore.Producer(store, linger_ms=HOUR_MS) as producer:
                producer.send("t", b"first").result()
                let_sender_rest(producer)
                futures: list[Any] = []

                def scenario() -> None:
                    for number in range(2):
                        futures.append(producer.send("t", b"%d" % number))
                        futures[-1].result()

                was_interrupted = traced(scenario, tracer)
                assert bounded(lambda: producer.flush(PATIENCE_S)) is None
                last = producer.send("t", b"last")
                assert bounded(last.result) is None
            values = [record.value for record in store.log("t").read()]
            for number, future in enumerate(futures):
                assert values[future.result(0).offset] == b"%d" % number
            assert values == [b"first", *(b"%d" % number for number in range(len(values) - 2)), b"last"]
            return was_interrupted

    tracer = Tracer()
    assert not run(tracer, tmp_path / "whole")
    places = first_visits(tracer)
    assert any(place.code.co_name == "append_alone" for place in places)
    for number, place in enumerate(places):
        assert run(Tracer(place), tmp_path / str(number)) or not place


@pytest.mark.parametrize("acks", ["all", "flushed"])
@pytest.mark.parametrize("seed", range(3))
def test_random_histories_of_threads_keep_order_and_lose_nothing(store: WritableStore, seed: int, acks: Any) -> None:
    sent: list[list[tuple[bytes, Any]]] = [[] for _ in range(6)]
    with kstore.Producer(store, linger_ms=1, acks=acks, batch_size=300) as producer:

        def work(number: int) -> None:
            random = Random(f"{seed} {number}")
            for count in range(60 if acks == "all" else 15):
                value = b"%d %d" % (number, count)
                future = producer.send("t", value, partition=random.randrange(2))
                sent[number].append((value, future))
                act = random.randrange(6)
                if act < 3:
                    future.result()
                elif act == 3:
                    future.result(PATIENCE_S)
                elif act == 4:
                    producer.flush(PATIENCE_S)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    logs = [[record.value for record in store.log("t", partition).read()] for partition in (0, 1)]
    for own in sent:
        for partition in (0, 1):
            offsets = [future.result(0).offset for _, future in own if future.result(0).partition == partition]
            assert offsets == sorted(offsets)
        assert all(logs[future.result(0).partition][future.result(0).offset] == value for value, future in own)
    assert sorted(logs[0] + logs[1]) == sorted(value for own in sent for value, _ in own)


# The bell


class RecordingLock:
    """A lock whose waits end at once by their timeouts, which it keeps."""

    def __init__(self) -> None:
        self.timeouts: list[float] = []
        self.do: Callable[[], object] = lambda: None

    def acquire(self, _blocking: bool = True, timeout: float | None = None) -> bool:
        if timeout is not None:
            self.timeouts.append(timeout)
            self.do()
        return timeout is None

    def release(self) -> None:
        pass


def test_call_shortens_the_next_wait_and_ends_it_only_for_work_that_stays() -> None:
    lock, work = RecordingLock(), dict[str, None]()
    bell = Bell(lock, patience_s=2, work=work)
    bell.call()
    bell.wait(10)
    # Half of the patience, and as there was nothing to do, the rest.
    assert lock.timeouts == [1, 9]
    lock.timeouts.clear()
    bell.call()
    work["batch"] = None
    bell.wait(10)
    assert lock.timeouts == [1, 1]
    lock.timeouts.clear()
    bell.wait(10)
    assert lock.timeouts == [10]


def test_calls_during_a_short_wait_make_the_next_one_short_and_wake_nobody() -> None:
    lock = RecordingLock()
    bell = Bell(lock, patience_s=2, work={})
    bell.call()
    calls = iter([bell.call, bell.call])
    lock.do = lambda: next(calls, lambda: None)()
    bell.wait(10)
    assert lock.timeouts == [1, 1, 1, 7]


def test_call_ends_a_wait_that_is_longer_than_the_patience() -> None:
    lock = RecordingLock()
    bell = Bell(lock, patience_s=2, work={})
    lock.do = bell.call
    bell.wait(10)
    assert lock.timeouts == [10]
    lock.do = lambda: None
    bell.wait(10)
    assert lock.timeouts == [10, 1, 9]


def test_call_without_patience_rings() -> None:
    bell = Bell(RecordingLock())
    bell.call()
    assert bell.is_rung


def test_record_that_nobody_waits_for_goes_when_it_has_lingered(store: WritableStore) -> None:
    with kstore.Producer(store, linger_ms=20) as producer:
        producer.send("t", b"first", partition=0).result()
        told = threading.Event()
        for _ in range(3):
            told.clear()
            producer.send("t", b"v", partition=0, on_delivery=lambda *_: told.set())
            assert told.wait(PATIENCE_S)
