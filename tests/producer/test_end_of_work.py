"""Goal: records that a producer accepted are written when what they are for ends, or it is said how many were not.
Method: stores, sinks, processes and producers that end while batches linger; sinks that wait or fail; what was written
is read."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kstore
from kstore.errors import KStoreError, LogClosedError, ProducerClosedError, UnsentRecordsError
from kstore.producer import Node, Producer, ProduceResponse, StoreSink
from kstore.producer.batches.batch import ProducerBatch
from kstore.producer.sending import sender as sender_module
from kstore.staging import StagingSink, partitions_by_topic, prepare_root
from kstore.store.store import WritableStore, open_store
from tests.fakes.faults import Fault, FaultyEnv

WAIT_S = 60
LINGER = {"linger_ms": 60_000}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with open_store(tmp_path / "root", "a") as store:
        store.create_topic("t", partitions=2)
    return tmp_path / "root"


def give_up_soon(monkeypatch: pytest.MonkeyPatch, producer: Producer) -> None:
    """Let a close that waits for a batch in its sink wait 1 ms, not the delivery timeout and a second."""
    monkeypatch.setattr(producer._sender, "_delivery_timeout_ms", 1)
    monkeypatch.setattr(sender_module, "_FORCED_CLOSE_S", 0.001)


class GatedStoreSink(StoreSink):
    """A sink of a store that takes nothing until the gate opens."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.arrived, self.gate = threading.Event(), threading.Event()

    def send(self, node: Node, batches: Sequence[ProducerBatch], *, ack: Any) -> Sequence[ProduceResponse]:
        self.arrived.set()
        assert self.gate.wait(WAIT_S)
        return super().send(node, batches, ack=ack)


def values_in(root: Path) -> list[bytes | None]:
    with open_store(root) as store:
        return sorted(record.value or b"" for number in (0, 1) for record in store.log("t", number).read())


def test_close_of_a_store_writes_what_its_producers_hold(root: Path) -> None:
    with open_store(root, "a") as store:
        one, other = Producer(store, **LINGER), Producer(StoreSink(store), **LINGER)
        futures = [one.send("t", b"%04d" % number) for number in range(500)]
        futures += [other.send("t", b"%04d" % number) for number in range(500, 900)]
        rows = other.send_columns("t", pa.table({"value": [b"%04d" % number for number in range(900, 1000)]}))
    assert values_in(root) == [b"%04d" % number for number in range(1000)]
    assert all(future.done() and future.exception() is None for future in [*futures, rows])


def test_closed_store_leaves_a_clean_root_and_producers_that_say_so(root: Path) -> None:
    with open_store(root, "a") as store:
        producer = Producer(store, **LINGER)
        producer.send("t", b"v")
    with pytest.raises(ProducerClosedError, match="its store was closed"):
        producer.send("t", b"w")
    with pytest.raises(ProducerClosedError, match="its store was closed"):
        producer.flush()
    producer.close()
    with pytest.raises(LogClosedError):
        Producer(store)
    with open_store(root, "a") as store:
        assert store.recovery_reports == {}


def test_close_of_a_store_says_how_many_records_could_not_be_written(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = FaultyEnv()
    store = open_store(root, "a", env=env)
    one, other = Producer(store, **LINGER), Producer(store, **LINGER)
    good = other.send("t", b"good", partition=0)
    other.flush()
    bad = [one.send("t", b"v", partition=0) for _ in range(7)] + [other.send("t", b"v", partition=0) for _ in range(5)]
    env.arm(Fault(1, "EIO", is_for_good=False))
    with pytest.raises(UnsentRecordsError, match="12 records of producers could not be written before") as caught:
        store.close()
    assert caught.value.record_count == 12
    assert caught.value.__cause__ is bad[0].exception() or caught.value.__cause__ is bad[-1].exception()
    assert good.exception() is None
    assert store.is_closed
    assert sum("records failed" in text for text in caplog.messages) >= 2
    # All is unlocked, and a second close does nothing.
    env.heal()
    store.close()
    assert values_in(root) == [b"good"]


def test_close_of_a_store_does_not_wait_longer_than_the_delivery_timeout(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(root, "a")
    sink = GatedStoreSink(store)
    producer = Producer(sink, linger_ms=0)
    first = producer.send("t", b"in the sink", partition=0)
    assert sink.arrived.wait(WAIT_S)
    give_up_soon(monkeypatch, producer)
    second = producer.send("t", b"behind it", partition=0)
    with pytest.raises(UnsentRecordsError, match="2 records"):
        store.close()
    assert {type(future.exception()) for future in (first, second)} == {ProducerClosedError}
    # Neither waits again for a sink that does not return.
    store.close()
    producer.close()
    sink.gate.set()


def test_collected_producer_says_how_many_records_it_had_and_sends_them(root: Path) -> None:
    with open_store(root, "a") as store:
        producer = Producer(store, client_id="lost", **LINGER)
        futures = [producer.send("t", b"%d" % number) for number in range(3)]
        sender, gone = producer._sender, weakref.ref(producer)
        del producer
        with pytest.warns(ResourceWarning, match="unclosed producer 'lost' with 3 records that are not sent yet"):
            gc.collect()
        assert gone() is None
        assert [future.result(WAIT_S).has_offset for future in futures] == [True] * 3
        assert sender.join(WAIT_S)
    assert values_in(root) == [b"0", b"1", b"2"]


def test_close_of_a_store_waits_for_a_producer_that_was_collected(root: Path) -> None:
    store = open_store(root, "a")
    sink = GatedStoreSink(store)
    producer = Producer(sink)
    producer.send("t", b"v")
    assert sink.arrived.wait(WAIT_S)
    del producer
    with pytest.warns(ResourceWarning, match="with 1 records"):
        gc.collect()
    closing = threading.Thread(target=store.close)
    closing.start()
    sink.gate.set()
    closing.join(WAIT_S)
    assert values_in(root) == [b"v"]


def test_closed_producer_warns_of_nothing(root: Path, recwarn: pytest.WarningsRecorder) -> None:
    with open_store(root, "a") as store:
        with Producer(store) as producer:
            producer.send("t", b"v")
        del producer
        gc.collect()
    assert not recwarn.list


def test_store_can_be_closed_in_a_callback(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = open_store(root, "a")
    sink = GatedStoreSink(store)
    producer = Producer(sink)
    done: list[bool] = []

    def close(_: object, __: object) -> None:
        store.close()
        done.append(store.is_closed)

    producer.send("t", b"first", partition=0, on_delivery=close)
    assert sink.arrived.wait(WAIT_S)
    last = producer.send("t", b"last", partition=1)
    sink.gate.set()
    assert isinstance(last.exception(WAIT_S), KStoreError)
    producer.close()
    assert done == [True]
    assert any("was closed before 1 records were sent: they failed" in text for text in caplog.messages)


def test_signal_handler_that_interrupted_a_send_closes_no_store(root: Path) -> None:
    with open_store(root, "a") as store:
        producer = Producer(store, **LINGER)
        producer.send("t", b"v", partition=0)
        queue = producer._accumulator.queue_of(kstore.TopicPartition("t", 0))
        with queue, pytest.raises(RuntimeError, match="in a signal handler would wait"):
            store.close()
        assert not store.is_closed
    assert values_in(root) == [b"v"]


def test_open_transaction_is_aborted_with_a_word(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_store(root, "a") as store:
        producer = Producer(store, transactional_id="x", client_id="open")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"v").result(WAIT_S)
    assert "kstore-producer-open aborts a transaction that was open when it was closed" in caplog.messages
    with open_store(root) as store:
        assert not [one for number in (0, 1) for one in store.log("t", number).read(isolation="read_committed")]


def test_staged_files_have_all_records_of_their_producer(root: Path) -> None:
    sink = StagingSink(prepare_root(root), "job", partitions=partitions_by_topic(root))
    producer = Producer(sink, enable_idempotence=False, **LINGER)
    for number in range(100):
        producer.send("t", b"%d" % number)
    assert sum(file.record_count for file in sink.finish()) == 100
    with pytest.raises(ProducerClosedError):
        producer.send("t", b"late")


def test_sink_does_not_finish_without_records_that_it_was_sent(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(StagingSink):
        def send(self, node: Node, batches: Sequence[ProducerBatch], *, ack: Any) -> list[ProduceResponse]:
            arrived.set()
            assert gate.wait(WAIT_S)
            return super().send(node, batches, ack=ack)

    arrived, gate = threading.Event(), threading.Event()
    sink = Slow(prepare_root(root), "job", partitions=partitions_by_topic(root))
    producer = Producer(sink, enable_idempotence=False)
    producer.send("t", b"v")
    assert arrived.wait(WAIT_S)
    give_up_soon(monkeypatch, producer)
    try:
        with pytest.raises(UnsentRecordsError, match="1 records"):
            sink.finish()
    finally:
        gate.set()
        producer.close()


@pytest.fixture
def forked(root: Path) -> Iterator[tuple[WritableStore, Producer]]:
    with open_store(root, "a") as store, Producer(store, **LINGER) as producer:
        producer.send("t", b"of the parent")
        yield store, producer
    assert values_in(root) == [b"of the parent"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_child_of_a_fork_neither_writes_nor_waits_for_what_its_parent_holds(
    forked: tuple[WritableStore, Producer],
) -> None:
    store, producer = forked
    child = os.fork()
    if not child:
        code = 1
        # A wait for a thread of the parent would not end.
        sender_module.Sender.join = lambda *_: os._exit(2)  # type: ignore[assignment,method-assign]
        try:
            producer.close()
            sender_module._end_all()
            try:
                store.close()
            except kstore.LogLockedError:
                code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


ENDS = {
    "returns": "",
    "exits": "sys.exit(3)",
    "fails": "raise LookupError",
    "leaves a thread that sends": "threading.Thread(target=late).start()",
    "forks": "child = os.fork()\nif not child: sys.exit()\nassert os.waitpid(child, 0)[1] == 0",
    "drops it": "del producer; gc.collect()",
}
PROGRAM = """
import gc, multiprocessing, os, sys, threading, time, kstore

def run(root):
    global producer
    store = kstore.open_store(root, "a")
    producer = kstore.Producer(store, linger_ms=60_000)
    for number in range(10):
        producer.send("t", b"%d" % number, partition=0)
"""


def ended(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], check=False, capture_output=True, text=True, timeout=WAIT_S
    )


@pytest.mark.parametrize("end", ENDS)
def test_program_that_ends_without_close_has_sent_its_records(root: Path, end: str) -> None:
    late = "late = lambda: producer.send('t', b'late', partition=1)"
    done = ended(f"{PROGRAM}\nrun(sys.argv[1])\n{late}\n{ENDS[end]}", str(root))
    expected = [b"%d" % number for number in range(10)] + ([b"late"] if "thread" in end else [])
    assert values_in(root) == expected, done.stderr
    assert done.returncode == {"exits": 3, "fails": 1}.get(end, 0)


def test_process_of_multiprocessing_that_ends_without_close_has_sent_its_records(root: Path) -> None:
    start = """
    process = multiprocessing.get_context("fork").Process(target=run, args=sys.argv[1:])
    process.start()
    process.join()
    assert process.exitcode == 0
    """
    done = ended(PROGRAM + textwrap.dedent(start), str(root))
    assert values_in(root) == [b"%d" % number for number in range(10)], done.stderr


def test_program_says_how_many_records_it_could_not_send(root: Path) -> None:
    done = ended(f"{PROGRAM}\nrun(sys.argv[1])\nkstore.producer.StoreSink.send = None", str(root))
    assert "10 records were not sent before the program ended" in done.stderr


def test_dropped_handlers_of_a_program_find_a_closed_producer(root: Path) -> None:
    program = f"import atexit\n{PROGRAM}\nrun_last = lambda: producer.send('t', b'too late')\natexit.register(run_last)"
    done = ended(f"{program}\nrun(sys.argv[1])", str(root))
    assert "ProducerClosedError" in done.stderr
    assert values_in(root) == [b"%d" % number for number in range(10)]


def test_sender_that_ended_is_not_kept(root: Path) -> None:
    with open_store(root, "a") as store, Producer(store) as producer:
        assert producer._sender in sender_module._running
    assert producer._sender not in sender_module._running
