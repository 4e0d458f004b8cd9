"""Goal: whatever a user's sink answers, raises or does, futures are told, memory comes back and the producer goes on.
Method: sinks that break each promise of Sink once, over a log in memory; step by step, and below a whole Producer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest

from kstore.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KStoreError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    ProducerTimeoutError,
    RecordTooLargeError,
    SinkResponseError,
    StorageError,
)
from kstore.producer import Cluster, PartitionInfo, ProducerBatch, ProduceResponse
from tests.fakes.sending import NODE, OTHER_NODE, T0, T1, Producing, fails
from tests.fakes.sinks import DISK, IDEMPOTENCE, OK, ForeignSink, each, failed, raising

pytestmark = pytest.mark.usefixtures("quiet_producer")


class Unreadable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class ShortSequence(list[Any]):
    """Says that it has one more than it has."""

    def __len__(self) -> int:
        return super().__len__() + 1


class BrokenSequence(list[Any]):
    def __iter__(self) -> Iterator[Any]:
        raise OSError("broken sequence")


class BrokenResponse(ProduceResponse):
    @property
    def error(self) -> Any:
        raise OSError("broken response")


UNUSABLE = {
    "none": (lambda _: None, "sequence of 2, found NoneType"),
    "number": (lambda _: 7, "found int"),
    "generator": (lambda batches: (OK for _ in batches), "found generator"),
    "one response": (lambda _: OK, "expected 2, one a batch, found 5"),
    "too few": (lambda _: [OK], "expected 2, one a batch, found 1"),
    "too many": (lambda _: [OK] * 3, "expected 2, one a batch, found 3"),
    "wrong length": (lambda _: ShortSequence([OK]), "expected 2"),
    "broken sequence": (lambda _: BrokenSequence([OK, OK]), "OSError: broken sequence"),
    "nothings": (each(None), "expected a ProduceResponse, found NoneType"),
    "text": (lambda _: "ok", "expected a ProduceResponse, found str"),
    "tuples": (each((0, -1, None, False, {})), "expected a ProduceResponse, found tuple"),
    "class": (each(ProduceResponse), "expected a ProduceResponse, found type"),
    "broken response": (each(BrokenResponse(0)), "BrokenResponse can't be read: OSError: broken response"),
    "no offset": (each(ProduceResponse(None)), "base_offset of a response: expected an int, found NoneType"),
    "offset that is a text": (each(ProduceResponse("0")), "expected an int, found str"),
    "fraction": (each(ProduceResponse(0.5)), "expected an int, found float"),
    "offset below -1": (each(ProduceResponse(-2)), "base_offset of a response: expected -1 to"),
    "offset without room": (each(ProduceResponse(2**63 - 1)), f"found {2**63 - 1}"),
    "offset above 64 bits": (each(ProduceResponse(2**64)), f"found {2**64}"),
    "time below -1": (each(ProduceResponse(0, -2)), "log_append_time_ms of a response: expected -1"),
    "time that is none": (each(ProduceResponse(0, None)), "log_append_time_ms of a response: expected an int"),
    "error that is a text": (failed("refused"), "error of a response: expected a KStoreError, found str"),
    "error that is a class": (failed(KStoreError), "error of a response: expected a KStoreError, found type"),
    "error that ends threads": (failed(SystemExit()), "expected a KStoreError, found SystemExit"),
    "record errors in a list": (failed(DISK, record_errors=[DISK]), "expected a mapping, found list"),
    "record errors as texts": (failed(DISK, record_errors={0: "no"}), "record_errors of a response: .* found str"),
    "record errors by name": (failed(DISK, record_errors={"0": DISK}), "can't be read: TypeError"),
}
BREAKS_OFF = {"broken sequence"}


@IDEMPOTENCE
@pytest.mark.parametrize("name", UNUSABLE)
def test_answer_that_is_of_no_use_fails_its_batches_by_an_error_that_says_why(name: str, is_idempotent: bool) -> None:
    answer, message = UNUSABLE[name]
    parts = Producing(ForeignSink(), is_idempotent=is_idempotent)
    parts.sink.answer = answer
    lost = parts.append_batch(b"0", b"1") + parts.append_batch(b"2", to=T1)
    parts.run()
    for future in lost:
        expected = KStoreError if name in BREAKS_OFF else SinkResponseError
        with pytest.raises(expected, match=message):
            future.result(0)
    later = parts.append_batch(b"3") + parts.append_batch(b"4", to=T1)
    parts.run(2)
    assert [future.result(0).offset for future in later] == [0, 0]
    parts.check_at_rest()


@IDEMPOTENCE
def test_answer_of_no_use_is_that_of_its_own_batch_alone(is_idempotent: bool) -> None:
    parts = Producing(ForeignSink(), is_idempotent=is_idempotent)
    parts.sink.answer = lambda batches: [ProduceResponse(7) if one.topic_partition == T0 else None for one in batches]
    (kept,), (lost,) = parts.append_batch(b"0"), parts.append_batch(b"1", to=T1)
    parts.run()
    assert kept.result(0).offset == 7
    assert isinstance(lost.exception(0), SinkResponseError)
    parts.check_at_rest()


def test_node_whose_sink_answers_nonsense_takes_no_other_nodes_batches_along() -> None:
    sink = ForeignSink(Cluster([PartitionInfo("t", 0, NODE), PartitionInfo("t", 1, OTHER_NODE)]))
    parts = Producing(sink)
    futures = [parts.append(b"0", to=T0), parts.append(b"1", to=T1)]
    sink.answer = lambda _: None
    parts.run()
    assert sorted(isinstance(future.exception(0), SinkResponseError) for future in futures) == [False, True]
    parts.check_at_rest()


@pytest.mark.parametrize("offset", [True, type("Offset", (), {"__index__": lambda _: 1})()], ids=["bool", "index"])
def test_number_that_is_as_good_as_an_int_is_taken(offset: Any) -> None:
    parts = Producing(ForeignSink())
    parts.sink.answer = each(ProduceResponse(offset))
    future = parts.append()
    parts.run()
    assert future.result(0).offset == 1


def test_error_that_is_none_of_kstores_is_the_cause_of_one() -> None:
    parts = Producing(ForeignSink())
    other = ConnectionError("reset")
    parts.sink.answer = failed(other, record_errors={1: other})
    futures = parts.append_batch(b"0", b"1")
    parts.run()
    for future, told in zip(futures, ("record is valid", "ConnectionError: reset"), strict=True):
        with pytest.raises(KStoreError, match=told):
            future.result(0)
    assert futures[1].exception(0).__cause__ is other
    parts.check_at_rest()


def test_retriable_error_that_is_none_of_kstores_is_retried() -> None:
    parts = Producing(ForeignSink(), is_idempotent=True)
    parts.sink.answer = failed(ConnectionError("reset"), is_retriable=True)
    future = parts.append()
    parts.run_until_done(future)
    assert future.result(0).offset == 0


# What a sink raises


RAISED = {
    "error": OSError("disk"),
    "memory": MemoryError(),
    "exit": SystemExit(3),
    "generator": GeneratorExit(),
    "no text": Unreadable(),
    "kstore": StorageError("disk"),
    "stop": StopIteration(),
}


@IDEMPOTENCE
@pytest.mark.parametrize("keeps", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("name", RAISED)
def test_whatever_the_sink_raises_fails_its_batches_and_the_sender_goes_on(
    name: str, keeps: bool, is_idempotent: bool
) -> None:
    parts = Producing(ForeignSink(), is_idempotent=is_idempotent)
    parts.sink.answer, parts.sink.keeps = raising(RAISED[name]), keeps
    (lost,) = parts.append_batch(b"0")
    parts.run()
    error = lost.exception(0)
    assert isinstance(error, KStoreError)
    assert error is RAISED[name] or error.__cause__ is RAISED[name]
    (later,) = parts.append_batch(b"1")
    parts.run(2)
    assert later.result(0).offset == int(keeps)
    parts.check_at_rest()


@IDEMPOTENCE
@pytest.mark.parametrize("name", RAISED)
def test_whatever_cluster_raises_fails_what_waits_and_the_sender_goes_on(
    monkeypatch: pytest.MonkeyPatch, name: str, is_idempotent: bool
) -> None:
    parts = Producing(ForeignSink(), is_idempotent=is_idempotent)
    lost = parts.append()
    with monkeypatch.context() as patch:
        patch.setattr(parts.sink, "cluster", lambda: raising(RAISED[name])(None))
        assert parts.sender.run_once() > 0
    assert isinstance(lost.exception(0), KStoreError)
    later = parts.append()
    parts.run(2)
    assert later.result(0).offset == 0
    parts.check_at_rest()


@pytest.mark.parametrize("method", ["send", "cluster"])
def test_interrupt_that_the_sink_raises_ends_the_sender_when_all_are_told(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    parts = Producing(ForeignSink(), is_idempotent=True)
    lost = parts.append_batch(b"0") + parts.append_batch(b"1", to=T1)
    raise_interrupt = raising(KeyboardInterrupt())
    with monkeypatch.context() as patch:
        patch.setattr(parts.sink, method, lambda *_, **__: raise_interrupt(None))
        with pytest.raises(KeyboardInterrupt):
            parts.run()
    assert all("KeyboardInterrupt" in str(future.exception(0)) for future in lost)
    parts.check_at_rest()


# Answers that are right in form


def sequence_error(batch: ProducerBatch) -> OutOfOrderSequenceError:
    return OutOfOrderSequenceError("order", producer_id=batch.producer_id, producer_epoch=batch.producer_epoch)


def test_batch_out_of_order_is_sent_again_from_the_beginning_of_a_new_epoch() -> None:
    parts = Producing(ForeignSink(), is_idempotent=True)
    (first,) = parts.append_batch(b"0")
    parts.run()
    parts.sink.answer = lambda batches: [ProduceResponse(-1, error=sequence_error(one)) for one in batches]
    later = parts.append_batch(b"1") + parts.append_batch(b"2")
    parts.run_until_done(*later)
    assert [future.result(0).offset for future in [first, *later]] == [0, 1, 2]
    epochs = [(one.producer_epoch, one.base_sequence) for one in parts.sink.sent]
    assert epochs == [(0, 0), (1, 0), (1, 1)]
    parts.check_at_rest()


FOREVER = {
    "retriable": lambda _: ProduceResponse(-1, error=DISK, is_retriable=True),
    "out of order": lambda batch: ProduceResponse(-1, error=sequence_error(batch)),
    "out of order and retriable": lambda batch: ProduceResponse(-1, error=sequence_error(batch), is_retriable=True),
}


@IDEMPOTENCE
@pytest.mark.parametrize("name", FOREVER)
def test_error_that_comes_for_ever_ends_with_the_delivery_timeout(
    monkeypatch: pytest.MonkeyPatch, name: str, is_idempotent: bool
) -> None:
    parts = Producing(ForeignSink(), is_idempotent=is_idempotent, delivery_timeout_ms=1000)
    lost = parts.append_batch(b"0") + parts.append_batch(b"1") + parts.append_batch(b"2", to=T1)
    with monkeypatch.context() as patch:
        patch.setattr(parts.sink, "send", lambda _, batches, **__: [FOREVER[name](one) for one in batches])
        parts.run_until_done(*lost)
    for future in lost:
        assert isinstance(future.exception(0), ProducerTimeoutError | StorageError | OutOfOrderSequenceError)
    (later,) = parts.append_batch(b"3")
    parts.run(3)
    assert later.result(0).offset == 0
    parts.check_at_rest()


REFUSED = {
    "fenced": ProducerFencedError("fenced"),
    "epoch": InvalidProducerEpochError("epoch", producer_id=1, producer_epoch=0),
    "transaction": InvalidTxnStateError("state", producer_id=1, producer_epoch=0),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_producer_fails_its_batch_and_goes_on_unless_it_is_fenced(name: str) -> None:
    parts = Producing(ForeignSink(), is_idempotent=True)
    parts.sink.answer = failed(REFUSED[name])
    (lost,) = parts.append_batch(b"0")
    parts.run()
    assert lost.exception(0) is REFUSED[name]
    (later,) = parts.append_batch(b"1")
    parts.run(2)
    if name == "fenced":
        assert isinstance(later.exception(0), ProducerFencedError)
    else:
        assert later.result(0).offset == 0
    parts.check_at_rest()


@IDEMPOTENCE
@pytest.mark.parametrize("keeps", [False, True], ids=["refused", "kept"])
def test_batch_that_is_too_large_comes_in_pieces_even_if_the_sink_has_it(keeps: bool, is_idempotent: bool) -> None:
    parts = Producing(ForeignSink(), is_idempotent=is_idempotent)
    parts.sink.answer, parts.sink.keeps = failed(RecordTooLargeError("too large")), keeps
    futures = parts.append_batch(b"0", b"1", b"2")
    parts.run_until_done(*futures)
    assert all(future.exception(0) is None for future in futures)
    parts.check_at_rest()


def test_piece_of_a_batch_that_may_be_in_the_log_gives_its_sequences_to_no_other() -> None:
    parts = Producing(ForeignSink(), is_idempotent=True)
    parts.sink.answer = failed(DISK, is_retriable=True)
    lost, other = parts.append_batch(b"0" * 400, b"1" * 400), parts.append_batch(b"2")
    parts.run()
    too_large = fails(RecordTooLargeError("too large"))
    parts.sink.answers += [too_large, too_large, fails(KStoreError("refused"))]
    parts.run_until_done(*lost, *other)
    assert [type(future.exception(0)) for future in [*lost, *other]] == [KStoreError, type(None), type(None)]
    assert [(one.values, one.producer_epoch, one.base_sequence) for one in parts.sink.sent[-2:]] == [
        ([b"1" * 400], 0, 1),
        ([b"2"], 0, 2),
    ]
    parts.check_at_rest()


def test_one_record_that_is_too_large_for_ever_fails() -> None:
    parts = Producing(ForeignSink(), is_idempotent=True)
    parts.sink.answer = failed(RecordTooLargeError("too large"), is_retriable=True)
    parts.sink.send = lambda _, batches, **__: failed(RecordTooLargeError("too large"))(batches)
    futures = parts.append_batch(*[b"%d" % number for number in range(5)])
    parts.run_until_done(*futures)
    assert all(isinstance(future.exception(0), RecordTooLargeError) for future in futures)
    parts.check_at_rest()


@IDEMPOTENCE
def test_errors_that_flip_between_partitions_lose_and_double_nothing(
    monkeypatch: pytest.MonkeyPatch, is_idempotent: bool
) -> None:
    parts = Producing(ForeignSink(), is_idempotent=is_idempotent, max_in_flight=1, delivery_timeout_ms=60_000)
    send, random = parts.sink.send, Random(1)

    def flipping(node: Any, batches: Sequence[ProducerBatch], *, ack: str) -> Any:
        unlucky, answers = random.randrange(2), []
        for batch in batches:
            if batch.topic_partition.partition == unlucky:
                answers.append(ProduceResponse(-1, error=DISK, is_retriable=True))
            else:
                answers += send(node, [batch], ack=ack)
        return answers

    monkeypatch.setattr(parts.sink, "send", flipping)
    futures = [parts.append_batch(b"%d" % number, to=to)[0] for number in range(5) for to in (T0, T1)]
    parts.run_until_done(*futures, limit=1000)
    assert [future.result(0).offset for future in futures] == [number for number in range(5) for _ in "ab"]
    assert parts.sink.values == {one: [b"%d" % number for number in range(5)] for one in (T0, T1)}
    parts.check_at_rest()
