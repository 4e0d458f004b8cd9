"""Goal: a sink that changes, ends, keeps or calls what is not its business harms no other batch, and no call hangs.
Method: sinks that do so once, over a log in memory; step by step, and below a whole Producer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kstore.errors import KStoreError, ProducerClosedError, ProducerTimeoutError, SinkResponseError
from kstore.producer import Cluster, PartitionInfo, Producer, ProducerBatch, ProduceResponse, Sender
from kstore.types import TopicPartition
from tests.fakes.sending import NODE, OTHER_NODE, T1, Producing
from tests.fakes.sinks import DISK, IDEMPOTENCE, OK, WAIT_S, ForeignSink, each, failed, raising

pytestmark = pytest.mark.usefixtures("quiet_producer")


def take_out(batches: Any) -> Any:
    try:
        batches.clear()
    except AttributeError:
        return [OK] * len(batches)
    return []


def test_sink_can_take_no_batch_out_of_what_it_is_given() -> None:
    parts = Producing(ForeignSink())
    parts.sink.answer = take_out
    future = parts.append()
    parts.run()
    assert future.result(0).offset == 0
    parts.check_at_rest()


ENDED = {
    "completed": (lambda batch: batch.complete(5), None),
    "failed": (lambda batch: batch.complete_exceptionally(DISK), DISK),
    "aborted": (lambda batch: batch.abort(DISK), DISK),
}


@IDEMPOTENCE
@pytest.mark.parametrize("response", [OK, ProduceResponse(-1, error=KStoreError("no")), None], ids=["ok", "no", "none"])
@pytest.mark.parametrize("name", ENDED)
def test_batch_that_the_sink_ended_by_itself_stays_so_and_gives_its_memory_back(
    name: str, response: Any, is_idempotent: bool
) -> None:
    end, error = ENDED[name]

    def answer(batches: Sequence[ProducerBatch]) -> Any:
        end(batches[0])
        return [response, OK]

    parts = Producing(ForeignSink(), is_idempotent=is_idempotent)
    parts.sink.answer = answer
    (ended,), (other,) = parts.append_batch(b"0"), parts.append_batch(b"1", to=T1)
    parts.run()
    assert ended.exception(0) is error
    assert other.result(0).offset == 0
    (later,) = parts.append_batch(b"2")
    parts.run(2)
    assert later.exception(0) is None
    parts.check_at_rest()


@IDEMPOTENCE
@pytest.mark.parametrize("now", [Cluster(), Cluster([PartitionInfo("t", 0, None)])], ids=["gone", "no leader"])
def test_partition_that_loses_its_leader_amid_a_retry_goes_on_with_the_next_one(
    now: Cluster, is_idempotent: bool
) -> None:
    parts = Producing(ForeignSink(), is_idempotent=is_idempotent)

    def lose(batches: Sequence[ProducerBatch]) -> Any:
        parts.sink.now = now
        return failed(DISK, is_retriable=True)(batches)

    parts.sink.answer = lose
    futures = [parts.append_batch(b"%d" % number)[0] for number in range(2)]
    parts.run(3)
    assert not any(future.done() for future in futures)
    parts.sink.now = Cluster([PartitionInfo("t", 0, OTHER_NODE, 7)])
    parts.run_until_done(*futures)
    assert [future.result(0).offset for future in futures] == [0, 1]
    assert parts.sink.acks[-1][0] == OTHER_NODE
    parts.check_at_rest()


@IDEMPOTENCE
def test_records_of_a_partition_that_stays_away_expire(is_idempotent: bool) -> None:
    parts = Producing(ForeignSink(), is_idempotent=is_idempotent)
    future = parts.append()
    parts.sink.now = Cluster()
    parts.run_until_done(future, limit=200)
    assert isinstance(future.exception(0), ProducerTimeoutError)
    parts.check_at_rest()


@pytest.mark.parametrize(
    "cluster", [None, {}, [PartitionInfo("t", 0, NODE)], Cluster], ids=["none", "dict", "list", "class"]
)
def test_cluster_that_is_none_is_a_typed_error_for_who_sends_and_who_waits(
    monkeypatch: pytest.MonkeyPatch, cluster: Any
) -> None:
    sink = ForeignSink()
    producer = Producer(sink, linger_ms=60_000)
    lost = producer.send("t", b"0")
    with monkeypatch.context() as patch:
        patch.setattr(sink, "now", cluster)
        with pytest.raises(SinkResponseError, match="expected a Cluster"):
            producer.send("u", b"1")
        producer.close(WAIT_S)
    assert isinstance(lost.exception(0), SinkResponseError)
    assert producer.metrics()["buffer-available-bytes"] == producer.config.buffer_memory


@pytest.mark.parametrize("most", [0, -1, None, "all", 2.5])
def test_batches_per_partition_that_is_no_number_is_refused(most: Any) -> None:
    sink = ForeignSink()
    sink.batches_per_partition = most
    with pytest.raises(ValueError, match="batches_per_partition"):
        Producer(sink)


def test_queue_that_breaks_every_run_still_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Producing(ForeignSink())
    future = parts.append()
    monkeypatch.setattr(parts.accumulator, "ready", raising(OSError("broken")))
    monkeypatch.setattr(Sender, "_drain", lambda *_: parts.accumulator.ready(None))
    parts.clock.now_ms += 10_000
    parts.sender._guarded_run()
    assert isinstance(future.exception(0), ProducerTimeoutError)
    parts.check_at_rest()


# Sinks that call the producer that calls them


class Calling(ForeignSink):
    """Calls the producer in each of its own calls of send() by a function, which is given the producer."""

    def __init__(self, call: Callable[[Producer], object]) -> None:
        super().__init__()
        self.call = call
        self.producer: Producer | None = None
        self.errors: list[BaseException] = []

    def send(self, node: Any, batches: Sequence[ProducerBatch], *, ack: str) -> Any:
        if self.producer is not None:
            try:
                self.call(self.producer)
            except (RuntimeError, KStoreError) as error:
                self.errors.append(error)
        return super().send(node, batches, ack=ack)


CALLS: dict[str, tuple[Callable[[Producer], object], type[BaseException] | None]] = {
    "flush": (lambda producer: producer.flush(), RuntimeError),
    "close": (lambda producer: producer.close(), None),
    "close at once": (lambda producer: producer.close(0), None),
    "metrics": (lambda producer: producer.metrics(), None),
    "partitions_for": (lambda producer: producer.partitions_for("t"), None),
    "init_transactions": (lambda producer: producer.init_transactions(), KStoreError),
    "send": (lambda producer: producer.send("t", b"again", partition=1), None),
}


@pytest.mark.parametrize("name", CALLS)
def test_sink_that_calls_its_producer_is_served_or_refused(name: str) -> None:
    call, error = CALLS[name]
    sink = Calling(call)
    producer = Producer(sink)
    sink.producer = producer
    future = producer.send("t", b"0", partition=0)
    assert future.result(WAIT_S).offset == 0
    sink.producer = None
    producer.close(WAIT_S)
    assert all(error is not None and isinstance(one, error) for one in sink.errors)
    assert bool(sink.errors) == (error is not None)
    assert producer.metrics()["buffer-available-bytes"] == producer.config.buffer_memory


class Gated(ForeignSink):
    """Does not come back before its gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.entered = threading.Event(), threading.Event()

    def send(self, node: Any, batches: Sequence[ProducerBatch], *, ack: str) -> Any:
        self.entered.set()
        self.gate.wait(WAIT_S)
        return super().send(node, batches, ack=ack)


def test_close_tells_the_futures_of_a_sink_that_does_not_come_back() -> None:
    sink = Gated()
    producer = Producer(sink, linger_ms=0)
    futures = [producer.send("t", b"0", partition=0)]
    assert sink.entered.wait(WAIT_S)
    futures += [producer.send("t", b"1", partition=number) for number in range(4)]
    producer.close(0)
    assert all(isinstance(future.exception(0), ProducerClosedError) for future in futures)
    sink.gate.set()
    assert producer._sender.join(WAIT_S)
    assert producer.metrics()["buffer-available-bytes"] == producer.config.buffer_memory


def test_answer_from_another_thread_is_the_one_that_counts() -> None:
    def answer(batches: Sequence[ProducerBatch]) -> Any:
        threads = [threading.Thread(target=batch.complete, args=(7,)) for batch in batches]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        return [OK] * len(batches)

    parts = Producing(ForeignSink(), is_idempotent=True)
    parts.sink.answer = answer
    futures = parts.append_batch(b"0") + parts.append_batch(b"1", to=T1)
    parts.run()
    assert [future.result(0).offset for future in futures] == [7, 7]
    parts.check_at_rest()


def test_batch_that_a_sink_kept_can_be_read_when_later_ones_were_sent() -> None:
    parts, kept = Producing(ForeignSink()), []

    def keep(batches: Sequence[ProducerBatch]) -> Any:
        kept.extend(batch.records() for batch in batches)
        return [OK] * len(batches)

    parts.sink.answer = keep
    parts.append(b"first")
    parts.run()
    for number in range(100):
        parts.append(b"later %d" % number)
        parts.run()
    assert [record.value for record in kept[0]] == [b"first"]


@pytest.mark.parametrize(
    "answer",
    [lambda _: None, each(None), raising(OSError("no")), failed(DISK)],
    ids=["none", "nothings", "raised", "failed"],
)
def test_batches_that_nobody_waits_for_are_let_go_whatever_the_answer(answer: Any) -> None:
    parts = Producing(ForeignSink(), ack="buffered")
    parts.sink.answer = answer
    futures = parts.append_batch(b"0") + parts.append_batch(b"1", to=TopicPartition("t", 2))
    parts.run()
    assert [future.result(0).offset for future in futures] == [-1, -1]
    parts.check_at_rest()
