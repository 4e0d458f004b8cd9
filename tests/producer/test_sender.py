"""Goal: the Sender gives every batch the end that the sink's answer asks for, and every byte of memory back.
Method: real accumulator and pool, a clock that stands still, a sink that answers by a script; run step by step."""

from __future__ import annotations

import pytest

from kstore.config import MAX_INT32
from kstore.errors import (
    AppendError,
    InvalidRecordError,
    KStoreError,
    ProducerClosedError,
    ProducerTimeoutError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
    StorageError,
)
from kstore.producer.batches.futures import RecordMetadata
from kstore.producer.cluster import Cluster, PartitionInfo
from kstore.producer.sending.completion import SenderHooks
from kstore.producer.sink import ProduceResponse
from kstore.producer.transactions import TransactionManager
from kstore.types import TopicPartition
from tests.fakes.sending import BATCH_SIZE, CLUSTER, NODE, OTHER_NODE, T0, T1, Producing, ScriptedSink, again, fails, ok

ANY = TopicPartition("t", None)


def too_large(limit: int):
    def answer(batch):
        if batch.record_count > limit:
            return ProduceResponse(-1, error=RecordTooLargeError("too large"))
        return None

    return answer


# Sending


def test_record_is_done_with_the_offset_that_the_sink_gave():
    parts = Producing()
    parts.sink.answers.append(ok(17))
    first, second = parts.append(), parts.append()
    assert not first.done()
    parts.run()
    assert (first.result().offset, second.result().offset) == (17, 18)
    parts.check_at_rest()


def test_one_run_hands_over_as_many_batches_of_a_partition_as_may_be_in_flight():
    parts = Producing(is_idempotent=True, max_in_flight=3)
    futures = [parts.append_batch(b"%d" % number)[0] for number in range(5)]
    futures += parts.append_batch(b"x", to=T1)
    parts.run()
    (call,) = parts.sink.calls
    assert [one.values for one in call if one.topic_partition == T0] == [[b"0"], [b"1"], [b"2"]]
    assert [one.values for one in call if one.topic_partition == T1] == [[b"x"]]
    parts.run()
    assert [one.values for one in parts.sink.calls[1]] == [[b"3"], [b"4"]]
    assert [future.result().offset for future in futures] == [0, 1, 2, 3, 4, 0]
    parts.check_at_rest()


def many_taking_sink(count):
    sink = ScriptedSink()
    sink.batches_per_partition = count
    return sink


def test_sink_that_takes_many_batches_of_a_partition_gets_the_full_ones_by_turns():
    parts = Producing(many_taking_sink(7), is_idempotent=True, max_in_flight=2, linger_ms=50)
    futures = [parts.append_batch(b"%d" % number)[0] for number in range(9)]
    futures += [parts.append_batch(b"x", to=T1)[0], parts.append(b"y", to=T1)]
    parts.run()
    (call,) = parts.sink.calls
    assert [one.values for one in call[:2]] == [[b"0"], [b"x"]]
    assert [one.values for one in call if one.topic_partition == T0] == [[b"%d" % number] for number in range(7)]
    assert [one.values for one in call if one.topic_partition == T1] == [[b"x"]]
    parts.run()
    assert [one.values for one in parts.sink.calls[1]] == [[b"y"], [b"7"], [b"8"]]
    assert [future.result().offset for future in futures] == [*range(9), 0, 1]
    parts.check_at_rest()


def test_call_to_a_sink_that_takes_many_ends_at_the_request_size():
    parts = Producing(many_taking_sink(100), max_request_size=3 * BATCH_SIZE)
    futures = [parts.append(b"x" * (BATCH_SIZE - 100)) for _ in range(8)]
    parts.run(3)
    assert [len(call) for call in parts.sink.calls] == [3, 3, 2]
    assert [future.result().offset for future in futures] == list(range(8))
    parts.check_at_rest()


def test_one_in_flight_is_one_batch_of_a_partition_for_any_sink():
    parts = Producing(many_taking_sink(100), max_in_flight=1)
    for number in range(3):
        parts.append_batch(b"%d" % number)
    parts.run(3)
    assert [[one.values for one in call] for call in parts.sink.calls] == [[[b"0"]], [[b"1"]], [[b"2"]]]
    parts.check_at_rest()


def test_each_node_gets_a_call_with_its_partitions():
    cluster = Cluster([PartitionInfo("t", 0, NODE), PartitionInfo("t", 1, OTHER_NODE)])
    parts = Producing(ScriptedSink(cluster))
    futures = [parts.append(to=T0), parts.append(to=T1)]
    parts.run()
    by_node = {
        node: {one.topic_partition for one in call}
        for (node, _), call in zip(parts.sink.acks, parts.sink.calls, strict=True)
    }
    assert by_node == {NODE: {T0}, OTHER_NODE: {T1}}
    assert all(future.done() for future in futures)


def test_records_without_a_leader_wait_for_one():
    parts = Producing()
    future = parts.append()
    parts.sink.now = Cluster([PartitionInfo("t", 0, None)])
    assert 0 < parts.sender.run_once() <= 100
    assert (parts.sink.calls, future.done()) == ([], False)
    parts.sink.now = CLUSTER
    parts.run()
    assert future.result().offset == 0


def test_run_says_when_there_is_more_to_do():
    parts = Producing(linger_ms=40)
    parts.append()
    assert parts.sender.run_once() == 40
    parts.clock.now_ms += 40
    assert parts.sender.run_once() == 0
    assert len(parts.sink.calls) == 1


def test_callbacks_run_before_futures_and_a_failing_one_is_in_nobodys_way():
    parts, seen = Producing(), []

    def failing(metadata, error):
        seen.append("failing")
        raise ValueError("callback")

    first = parts.append(callback=failing)
    second = parts.append(callback=lambda metadata, error: seen.append((metadata.offset, error, second.done())))
    parts.run()
    assert seen == ["failing", (1, None, False)]
    assert (first.result().offset, second.result().offset) == (0, 1)


def test_buffered_batch_is_done_without_an_offset_and_nobody_hears_of_a_failure():
    parts, seen = Producing(ack="buffered"), []
    parts.sink.answers.append(fails(StorageError("lost")))
    future = parts.append(callback=lambda metadata, error: seen.append((metadata.offset, error)))
    parts.run()
    assert seen == [(-1, None)]
    assert (future.result().offset, future.result().has_offset) == (-1, False)
    parts.check_at_rest()


def test_buffered_batch_is_done_when_the_sink_has_it_and_not_before(monkeypatch):
    parts = Producing(ack="buffered")
    seen = []
    send = parts.sink.send

    def look(*arguments, **how):
        seen.append(future.done())
        return send(*arguments, **how)

    monkeypatch.setattr(parts.sink, "send", look)
    future = parts.append()
    parts.run()
    assert seen == [False]
    assert future.result(0).offset == -1
    parts.check_at_rest()


def test_sender_that_may_ask_again_at_once_waits_for_a_millisecond_where_nobody_leads():
    parts = Producing(retry_backoff_ms=0)
    parts.sink.now = Cluster([PartitionInfo("t", 0, None)])
    parts.append()
    assert parts.sender.run_once() == 1


def test_hooks_are_told_of_sends_retries_errors_and_splits():
    told = []
    hooks = SenderHooks(
        on_send=lambda node, batches: told.append(("send", node.id, len(batches))),
        on_response=lambda _, batches, took_ms: told.append(("response", len(batches), took_ms)),
        on_retry=lambda topic, count: told.append(("retry", topic, count)),
        on_error=lambda topic, count: told.append(("error", topic, count)),
        on_split=lambda topic: told.append(("split", topic)),
    )
    parts = Producing(hooks=hooks)
    parts.sink.answers += [again(), fails(RecordTooLargeError("too large")), fails(KStoreError("no")), None]
    futures = parts.append_batch(b"a" * 300, b"b" * 300, b"c" * 300)
    parts.run_until_done(*futures)
    kinds = [one[0] for one in told]
    assert kinds[:6] == ["send", "response", "retry", "send", "response", "split"]
    assert ("retry", "t", 3) in told
    assert kinds.count("error") == 1


# Errors


def test_retriable_error_is_tried_again_after_the_backoff():
    parts = Producing()
    parts.sink.answers += [again(), again()]
    future = parts.append()
    parts.run(3)
    assert len(parts.sink.calls) == 1
    parts.clock.now_ms += 130
    parts.run(2)
    assert (len(parts.sink.calls), future.done()) == (2, False)
    parts.clock.now_ms += 130
    parts.run()
    assert future.result().offset == 0
    parts.check_at_rest()


@pytest.mark.parametrize("is_idempotent", [False, True], ids=["plain", "idempotent"])
def test_batches_of_a_partition_that_are_tried_again_keep_their_order(is_idempotent):
    parts = Producing(is_idempotent=is_idempotent, max_in_flight=3)
    futures = [parts.append_batch(b"%d" % number)[0] for number in range(3)]
    parts.sink.answers += [again(), again(), again()]
    parts.run()
    parts.clock.now_ms += 200
    parts.run(3)
    assert parts.sink.values[T0] == [b"0", b"1", b"2"]
    assert [future.result().offset for future in futures] == [0, 1, 2]
    parts.check_at_rest()


def test_retries_are_counted_and_the_last_error_is_the_records():
    parts = Producing(retries=2)
    parts.sink.answers += [again(), again(), fails(StorageError("the last"), is_retriable=True)]
    future = parts.append()
    parts.run_until_done(future)
    assert len(parts.sink.calls) == 3
    with pytest.raises(StorageError, match="the last"):
        future.result()
    parts.check_at_rest()


def test_error_that_no_retry_cures_fails_the_records_at_once():
    parts, seen = Producing(), []
    parts.sink.answers.append(fails(StorageError("broken")))
    future = parts.append(callback=lambda metadata, error: seen.append((metadata, str(error))))
    parts.run()
    with pytest.raises(StorageError, match="broken"):
        future.result()
    assert seen == [(RecordMetadata(*T0), "broken")]
    parts.check_at_rest()


def test_records_are_told_apart_where_only_some_were_refused():
    parts = Producing()
    refused = {1: InvalidRecordError("bad value")}
    error = AppendError("refused")
    parts.sink.answers.append(lambda _: ProduceResponse(-1, error=error, record_errors=refused))
    futures = [parts.append() for _ in range(3)]
    parts.run()
    with pytest.raises(InvalidRecordError, match="bad value"):
        futures[1].result()
    for future in (futures[0], futures[2]):
        with pytest.raises(AppendError, match="another record of its batch"):
            future.result()
    parts.check_at_rest()


@pytest.mark.parametrize(
    "error", [StorageError("disk"), OSError("socket"), ValueError("bug")], ids=["ours", "os", "bug"]
)
def test_sink_that_raises_fails_its_batches_and_the_sender_goes_on(error):
    parts = Producing()
    parts.sink.error = error
    future = parts.append()
    parts.run()
    with pytest.raises(KStoreError, match=str(error)) as raised:
        future.result()
    assert isinstance(raised.value, StorageError) == isinstance(error, StorageError)
    parts.check_at_rest()
    parts.sink.error = None
    future = parts.append()
    parts.run()
    assert future.result().offset == 0


def test_sink_without_an_answer_to_each_batch_fails_them_all(monkeypatch):
    parts = Producing()
    monkeypatch.setattr(parts.sink, "send", lambda *_, **__: [])
    future = parts.append()
    parts.run()
    with pytest.raises(KStoreError, match="expected 1, one a batch, found 0"):
        future.result()
    parts.check_at_rest()


def test_sink_that_does_not_know_its_cluster_fails_everything(monkeypatch):
    parts = Producing()
    future = parts.append()

    def cluster():
        raise OSError("gone")

    monkeypatch.setattr(parts.sink, "cluster", cluster)
    parts.run()
    with pytest.raises(KStoreError, match="gone"):
        future.result()
    parts.check_at_rest()


# Splits


@pytest.mark.parametrize("error_type", [RecordTooLargeError, RecordBatchTooLargeError])
@pytest.mark.parametrize("is_idempotent", [False, True], ids=["plain", "idempotent"])
def test_batch_that_is_too_large_is_split_without_a_counted_retry(error_type, is_idempotent):
    parts = Producing(is_idempotent=is_idempotent, batch_size=4096, retries=0)
    parts.sink.answers.append(fails(error_type("too large")))
    futures = [parts.append(b"%d" % number * 900) for number in range(4)]
    parts.accumulator.batch_size = 1024
    parts.run_until_done(*futures)
    assert [future.result().offset for future in futures] == [0, 1, 2, 3]
    assert parts.sink.values[T0] == [b"%d" % number * 900 for number in range(4)]
    if is_idempotent:
        assert [one.base_sequence for one in parts.sink.sent[1:]] == [0, 1, 2, 3]
    parts.check_at_rest()


def test_batch_no_larger_than_batch_size_is_split_until_its_pieces_fit():
    parts = Producing(is_idempotent=True)
    parts.sink.answers += [too_large(1)] * 20
    futures = [parts.append(b"%d" % number * 100) for number in range(8)]
    parts.run_until_done(*futures)
    assert [future.result().offset for future in futures] == list(range(8))
    assert [one.base_sequence for one in parts.sink.sent if len(one.values) == 1] == list(range(8))
    parts.check_at_rest()


def test_records_that_fit_where_the_larger_one_does_are_split_all_the_same():
    parts = Producing()
    parts.sink.answers += [too_large(1)] * 20
    futures = [parts.append(b"x" * 500), parts.append(b"")]
    parts.run_until_done(*futures)
    assert [len(one.values) for one in parts.sink.sent] == [2, 2, 1, 1]
    assert [future.result().offset for future in futures] == [0, 1]
    parts.check_at_rest()


def test_records_that_are_too_large_one_by_one_all_fail():
    parts = Producing()
    parts.sink.answers += [fails(RecordTooLargeError("too large"))] * 100
    futures = [parts.append(value) for value in (b"x" * 500, b"", b"y" * 200, b"z")]
    parts.run_until_done(*futures)
    for future in futures:
        with pytest.raises(RecordTooLargeError):
            future.result()
    assert len(parts.sink.sent) <= 2 * len(futures)
    parts.check_at_rest()


def test_single_record_that_is_too_large_fails_and_leaves_the_others():
    parts = Producing()
    parts.sink.answers.append(fails(RecordTooLargeError("too large")))
    (large,) = parts.append_batch(b"x" * 500)
    small = parts.append()
    parts.run_until_done(large, small)
    with pytest.raises(RecordTooLargeError):
        large.result()
    assert small.result().offset == 0
    parts.check_at_rest()


def test_batches_behind_one_that_is_split_come_behind_its_pieces():
    parts = Producing(is_idempotent=True)
    futures = parts.append_batch(b"0" * 300, b"1" * 300) + parts.append_batch(b"2") + parts.append_batch(b"3")
    parts.sink.answers += [fails(RecordTooLargeError("too large")), again(), again()]
    parts.run_until_done(*futures)
    assert [value[:1] for value in parts.sink.values[T0]] == [b"0", b"1", b"2", b"3"]
    parts.check_at_rest()


# Expiry


def test_batch_that_waits_for_longer_than_the_delivery_timeout_expires():
    parts = Producing(delivery_timeout_ms=1000)
    parts.sink.now = Cluster([PartitionInfo("t", 0, None)])
    future = parts.append()
    parts.clock.now_ms += 999
    assert parts.sender.run_once() == 1
    assert not future.done()
    parts.clock.now_ms += 1
    parts.run()
    with pytest.raises(ProducerTimeoutError, match=r"expiring 1 record\(s\) for t-0: 1000 ms have passed"):
        future.result()
    assert parts.sink.calls == []
    parts.check_at_rest()


def test_batch_that_is_tried_again_expires():
    parts = Producing(delivery_timeout_ms=1000)
    parts.sink.answers += [again()] * 100
    future = parts.append()
    parts.run_until_done(future)
    with pytest.raises((ProducerTimeoutError, StorageError)):
        future.result()
    assert parts.clock.now_ms <= 10_000 + 1000 + 100
    parts.check_at_rest()


def test_batch_that_expired_while_another_node_was_sent_to_is_not_handed_over(monkeypatch):
    cluster = Cluster([PartitionInfo("t", 0, NODE), PartitionInfo("t", 1, OTHER_NODE)])
    parts = Producing(ScriptedSink(cluster), delivery_timeout_ms=1000)
    send = parts.sink.send

    def slowly(node, batches, *, ack):
        parts.clock.now_ms += 1000
        return send(node, batches, ack=ack)

    monkeypatch.setattr(parts.sink, "send", slowly)
    futures = [parts.append(to=T0), parts.append(to=T1)]
    parts.run()
    ended = [future.exception() for future in futures]
    assert len(parts.sink.sent) == 1
    assert sum(error is None for error in ended) == 1
    assert sum(isinstance(error, ProducerTimeoutError) for error in ended) == 1
    parts.check_at_rest()


def test_record_appended_by_the_callback_of_one_that_expired_is_sent():
    parts, futures = Producing(delivery_timeout_ms=1000), []
    parts.sink.now = Cluster([PartitionInfo("t", 0, None)])
    parts.append(callback=lambda *_: futures.append(parts.append(b"again")))
    parts.clock.now_ms += 1000
    parts.run()
    parts.sink.now = CLUSTER
    parts.run()
    assert futures[0].result().offset == 0


# Order


def test_one_in_flight_keeps_the_order_over_retries():
    parts = Producing(max_in_flight=1)
    futures = [parts.append_batch(b"%d" % number)[0] for number in range(4)]
    parts.sink.answers += [None, again(), again()]
    parts.run_until_done(*futures)
    assert parts.sink.values[T0] == [b"0", b"1", b"2", b"3"]
    assert all(len(call) == 1 for call in parts.sink.calls)
    parts.check_at_rest()


def test_one_in_flight_lets_other_partitions_go_on():
    parts = Producing(max_in_flight=1)
    blocked, other = parts.append(to=T0), parts.append(to=T1)
    parts.sink.answers += [again() if one == T0 else None for one in (T0, T1)]
    parts.run()
    assert sorted([blocked.done(), other.done()]) == [False, True]


@pytest.mark.parametrize("max_in_flight", [0, -1])
def test_fewer_than_one_in_flight_is_refused(max_in_flight):
    with pytest.raises(ValueError, match="max_in_flight"):
        Producing(max_in_flight=max_in_flight)


# Its thread


def test_thread_sends_when_it_is_woken_and_ends_when_it_is_closed():
    parts = Producing()
    parts.sender.start()
    future = parts.append()
    parts.sender.wakeup()
    assert future.result(timeout=60).offset == 0
    assert parts.sender.is_running
    parts.sender.initiate_close()
    assert parts.sender.join(60)
    assert not parts.sender.is_running
    parts.check_at_rest()


def test_close_sends_what_there_is():
    parts = Producing(linger_ms=MAX_INT32)
    futures = [parts.append(b"%d" % number * 500) for number in range(8)]
    parts.sender.initiate_close()
    parts.sender.run()
    assert [future.result().offset for future in futures] == list(range(8))
    with pytest.raises(ProducerClosedError):
        parts.append()
    parts.check_at_rest()


def test_forced_close_fails_what_was_not_sent():
    parts = Producing(linger_ms=MAX_INT32)
    future = parts.append()
    parts.sender.force_close()
    parts.sender.run()
    with pytest.raises(ProducerClosedError):
        future.result()
    assert parts.sink.calls == []
    parts.check_at_rest()


class TickingClock:
    """A clock on which every look costs 20 ms."""

    def __init__(self) -> None:
        self.now_ms = 0

    def wall_clock_ms(self) -> int:
        return self.monotonic_ms()

    def monotonic_ms(self) -> int:
        self.now_ms += 20
        return self.now_ms


@pytest.mark.parametrize("is_idempotent", [False, True], ids=["plain", "idempotent"])
def test_close_ends_although_the_sink_never_takes_anything(is_idempotent):
    parts = Producing(clock=TickingClock(), is_idempotent=is_idempotent, delivery_timeout_ms=1000)
    parts.sink.answers += [again()] * 1000
    futures = [parts.append_batch(b"%d" % number)[0] for number in range(3)]
    parts.sender.initiate_close()
    parts.sender.run()
    for future in futures:
        assert future.exception() is not None
    parts.check_at_rest()


def test_error_of_the_senders_own_fails_what_it_had_in_hand_and_does_not_end_it():
    def broken(*_):
        hooks_left.pop()()

    def raising():
        raise ValueError("a hook broke")

    hooks_left = [lambda: None, raising]
    parts = Producing(retry_backoff_ms=1, hooks=SenderHooks(on_response=broken))
    first = parts.append()
    parts.sender.start()
    with pytest.raises(KStoreError, match="a hook broke"):
        first.result(timeout=60)
    assert parts.append().result(timeout=60).offset == 1
    parts.sender.initiate_close()
    assert parts.sender.join(60)
    parts.check_at_rest()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_thread_that_is_made_to_exit_leaves_no_future_behind():
    def leaving(*_):
        raise SystemExit

    parts = Producing(hooks=SenderHooks(on_send=leaving))
    parts.sender.start()
    with pytest.raises(ProducerClosedError):
        parts.append().result(timeout=60)
    assert parts.sender.join(60)
    # which ends a little later, with a word of why
    parts.sender._thread.join(60)


def test_partition_of_which_nothing_can_go_for_long_is_not_chosen():
    class HoldsOne(TransactionManager):
        def is_send_to_partition_allowed(self, topic_partition):
            return topic_partition != T0

    cluster = Cluster([PartitionInfo("t", 0, NODE), PartitionInfo("t", 1, OTHER_NODE)])
    parts = Producing(ScriptedSink(cluster), manager=HoldsOne(), partition_availability_timeout_ms=50)
    for to in (T0, T1, ANY, ANY):
        parts.append(to=to)
        parts.run()
        parts.clock.now_ms += 30
    for _ in range(2):
        parts.append(b"x" * 900, to=ANY)
    parts.run()
    chosen = [parts.append(b"x" * 900, to=ANY) for _ in range(20)]
    assert {future.produce_result.topic_partition for future in chosen} == {T1}
