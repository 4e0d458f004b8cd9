"""Goal: a transactional producer goes from state to state as Kafka's does, and readers see whole transactions only.
Method: real store, coordinator, accumulator and Sender, run step by step; errors from the sink and the coordinator."""

from __future__ import annotations

import pytest

from kstore.coordinator.transaction.coordinator import TransactionCoordinator
from kstore.errors import (
    InvalidProducerEpochError,
    KStoreError,
    LogFailedError,
    ProducerClosedError,
    ProducerFencedError,
    ProducerTimeoutError,
    StorageError,
    TransactionAbortedError,
    TransactionStateError,
)
from kstore.producer.transactions import TransactionManager, TransactionManagerState
from kstore.store.store import open_store
from kstore.types import TRANSACTION_STATE_TOPIC
from tests.fakes.sending import T0, T1, ManualClock, again, fails
from tests.fakes.transacting import Transactional

STATE = TransactionManagerState


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path / "root", "a") as opened:
        opened.create_topic("t", 4)
        yield opened


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def coordinator(store, clock):
    return TransactionCoordinator(store, partition_count=3, clock=clock)


@pytest.fixture
def parts(store, coordinator, clock):
    return Transactional(store, coordinator, clock=clock)


# What a reader sees


def test_committed_records_are_seen_in_all_partitions(parts):
    parts.init().begin()
    futures = [parts.send(b"%d" % number, to=to) for number in range(3) for to in (T0, T1)]
    parts.run(3)
    assert parts.committed() == []
    parts.commit()
    assert [future.result().offset for future in futures] == [0, 0, 1, 1, 2, 2]
    assert parts.committed(T0) == parts.committed(T1) == [b"0", b"1", b"2"]
    assert parts.is_decided(T0)
    parts.check_at_rest()


def test_aborted_records_are_not_seen(parts):
    parts.init().begin()
    future = parts.send()
    parts.run(3)
    parts.abort()
    assert future.result().offset == 0
    assert parts.committed() == []
    assert parts.is_decided()


def test_commit_waits_for_every_batch(parts):
    parts.init().begin()
    parts.sink.answers += [again(), again()]
    future = parts.send()
    result = parts.manager.begin_commit()
    for _ in range(3):
        parts.run(5)
        assert result.is_completed == future.done()
        parts.clock.now_ms += 130
    parts.run(5)
    result.wait(0)
    assert parts.committed() == [b"v"]


def test_transactions_follow_each_other(parts):
    parts.init()
    for number in range(6):
        parts.begin().send(b"%d" % number)
        if number % 3 == 2:
            parts.run(3)
            parts.abort()
        else:
            parts.commit()
    assert parts.committed() == [b"0", b"1", b"3", b"4"]
    assert parts.manager.producer_id_and_epoch.epoch == 0


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_transaction_without_a_record_leaves_no_trace(parts, store, end):
    parts.init().begin()
    logs = [store.log(TRANSACTION_STATE_TOPIC, number) for number in range(3)]
    before = [log.log_end_offset for log in logs]
    getattr(parts, end)()
    assert parts.manager.state is STATE.READY
    assert [log.log_end_offset for log in logs] == before
    assert store.log(*T0).log_end_offset == 0


@pytest.mark.parametrize(("end", "committed"), [("begin_commit", [b"late"]), ("begin_abort", [])])
def test_transaction_that_ends_as_the_sender_begins_to_look_takes_its_records_with_it(
    parts, monkeypatch, end, committed
):
    parts.init().begin()
    look = parts.manager.run_request
    results = []

    def send_and_end_before(**options):
        monkeypatch.undo()
        parts.send(b"late")
        results.append(getattr(parts.manager, end)())
        return look(**options)

    monkeypatch.setattr(parts.manager, "run_request", send_and_end_before)
    parts.run(10)
    results[0].wait(0)
    assert parts.committed() == committed
    parts.begin().send(b"next")
    parts.commit()
    assert parts.committed() == [*committed, b"next"]


def test_batch_waits_until_its_partition_is_made_part_of_the_transaction_by_the_sender_at_last(parts, store):
    parts.init().begin()
    future = parts.append()
    parts.run()
    assert store.log(*T0).log_end_offset == 0
    parts.run(2)
    assert future.result(0).offset == 0


def test_records_need_no_look_at_the_manager_also_where_the_sender_added_their_partition_first(parts):
    parts.init().begin()
    parts.append()
    parts.run(2)
    parts.manager.maybe_add_partition(T0)
    assert parts.manager.open_transaction.partitions == {T0}
    assert not parts.manager.has_new_partitions


def test_abort_fails_what_was_not_sent(parts, store):
    parts.init().begin()
    future = parts.send()
    parts.abort()
    with pytest.raises(TransactionAbortedError):
        future.result()
    assert store.log(*T0).log_end_offset == 0
    assert parts.manager.state is STATE.READY
    parts.check_at_rest()


# States

CALLS = {
    "init": lambda manager: manager.init_transactions(),
    "begin": lambda manager: manager.begin_transaction(),
    "commit": lambda manager: manager.begin_commit(),
    "abort": lambda manager: manager.begin_abort(),
    "send": lambda manager: manager.check_send(),
}
ALLOWED = {
    "fresh": {"init"},
    "ready": {"begin"},
    "in transaction": {"commit", "abort", "send"},
    "failed transaction": {"abort"},
    "fenced": set(),
}


def brought_to(parts, state):
    if state != "fresh":
        parts.init()
    if state in ("in transaction", "failed transaction"):
        parts.begin()
    if state == "failed transaction":
        parts.sink.answers.append(fails(KStoreError("no")))
        parts.send()
        parts.run(3)
    if state == "fenced":
        parts.sink.answers.append(fails(ProducerFencedError("fenced")))
        parts.begin().send()
        parts.run(3)
    return parts.manager


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("state", ALLOWED)
def test_call_is_taken_in_its_states_only(parts, state, call):
    manager = brought_to(parts, state)
    before = manager.state
    if call in ALLOWED[state]:
        CALLS[call](manager)
        return
    with pytest.raises(KStoreError):
        CALLS[call](manager)
    assert manager.state is before


def test_producer_without_transactional_id_has_no_transactions():
    manager = TransactionManager()
    for name in ("init", "begin", "commit", "abort"):
        with pytest.raises(TransactionStateError, match="no transactional_id"):
            CALLS[name](manager)
    manager.check_send()
    manager.maybe_add_partition(T0)
    assert not manager.has_new_partitions


def test_transactional_id_needs_a_coordinator():
    with pytest.raises(ValueError, match="coordinator"):
        TransactionManager(transactional_id="id")


def test_outcome_that_was_not_awaited_is_asked_for_by_the_same_call_again(parts):
    parts.init().begin().send()
    result = parts.manager.begin_commit()
    with pytest.raises(ProducerTimeoutError, match="commit_transaction"):
        result.wait(0)
    assert parts.manager.begin_commit() is result
    for call in ("abort", "begin", "send", "init"):
        with pytest.raises(TransactionStateError):
            CALLS[call](parts.manager)
    parts.run(5)
    assert parts.manager.begin_commit() is result
    with pytest.raises(TransactionStateError, match="not awaited"):
        parts.manager.begin_transaction()
    result.wait(0)
    parts.manager.begin_transaction()


# Errors


def test_batch_that_fails_leaves_nothing_but_an_abort_and_a_new_epoch_behind_it(parts):
    parts.init().begin()
    first = parts.send(b"first")
    parts.run(3)
    parts.sink.answers.append(fails(StorageError("broken")))
    failed = parts.send(b"failed")
    parts.run(3)
    assert (first.result().offset, type(failed.exception())) == (0, StorageError)
    assert parts.manager.state is STATE.ABORTABLE_ERROR
    with pytest.raises(KStoreError, match="broken"):
        parts.manager.begin_commit()
    with pytest.raises(KStoreError, match="broken"):
        parts.manager.check_send()
    parts.abort()
    assert parts.manager.state is STATE.READY
    assert parts.manager.producer_id_and_epoch.epoch == 1
    parts.begin().send(b"later")
    parts.commit()
    assert parts.committed() == [b"later"]
    parts.check_at_rest()


def test_batch_that_fails_while_it_is_committed_fails_the_commit(parts):
    parts.init().begin()
    parts.sink.answers.append(fails(StorageError("broken")))
    parts.send()
    result = parts.manager.begin_commit()
    parts.run(5)
    with pytest.raises(StorageError, match="broken"):
        result.wait(0)
    parts.abort()
    assert parts.manager.state is STATE.READY
    assert parts.is_decided()


def test_batch_that_fails_while_it_is_aborted_leaves_the_next_transaction_an_epoch_of_its_own(parts):
    parts.init().begin()
    results = []

    def break_off(batch):
        results.append(parts.manager.begin_abort())
        raise OSError("broken")

    parts.sink.answers.append(break_off)
    parts.send()
    parts.run(3)
    assert not results[0].is_completed
    parts.end(results[0])
    assert parts.manager.state is STATE.READY
    assert parts.manager.producer_id_and_epoch.epoch == 1
    parts.begin().send(b"later")
    parts.commit()
    assert parts.committed() == [b"later"]


def test_batch_that_expires_fails_the_transaction(parts):
    parts.init().begin()
    parts.sink.answers += [again()] * 100
    future = parts.send()
    parts.run_until_done(future, limit=200)
    parts.sink.answers.clear()
    assert parts.manager.has_abortable_error
    parts.run(2)
    parts.abort()
    parts.begin().send(b"later")
    parts.commit()
    assert parts.committed() == [b"later"]


def test_later_producer_of_the_id_fences_the_earlier_one(parts, store, coordinator, clock):
    parts.init().begin().send(b"old")
    parts.run(3)
    later = Transactional(store, coordinator, clock=clock).init()
    later.begin().send(b"new")
    later.commit()
    result = parts.manager.begin_commit()
    parts.run(3)
    with pytest.raises(ProducerFencedError):
        result.wait(0)
    assert parts.manager.has_fatal_error
    for call in ("begin", "abort", "send"):
        with pytest.raises(ProducerFencedError):
            CALLS[call](parts.manager)
    assert later.committed() == [b"new"]


def test_fencing_error_of_a_class_of_the_sinks_own_is_told_as_what_it_is(parts):
    class Fenced(ProducerFencedError):
        def __init__(self, *, by):
            super().__init__(f"fenced by {by}")

    parts.init().begin()
    parts.sink.answers.append(fails(Fenced(by="another")))
    future = parts.send()
    parts.run(3)
    assert isinstance(future.exception(), Fenced)
    with pytest.raises(ProducerFencedError, match="fenced by another"):
        parts.manager.begin_commit()


def test_data_of_a_fenced_producer_fails(parts, coordinator):
    parts.init().begin().send(b"old")
    parts.run(3)
    coordinator.init_producer_id("id")
    future = parts.send(b"too late")
    parts.run(3)
    assert isinstance(future.exception(), InvalidProducerEpochError)
    with pytest.raises(ProducerFencedError):
        parts.abort()
    assert parts.committed() == []
    parts.check_at_rest()


def test_fatal_error_fails_everything_that_waits(parts, coordinator):
    parts.init().begin().send()
    parts.run(3)
    coordinator.init_producer_id("id")
    waiting = parts.send(to=T1)
    parts.run(3)
    assert isinstance(waiting.exception(), ProducerFencedError)
    parts.check_at_rest()


def test_transaction_that_took_too_long_is_aborted_by_the_sender(parts, coordinator):
    other = TransactionManager(transactional_id="other", coordinator=coordinator, timeout_ms=100)
    other.init_transactions()
    other.run_request(is_done=lambda: True)
    coordinator.add_partitions("other", other.producer_id_and_epoch, [T0])
    parts.sender._coordinator = coordinator
    parts.clock.now_ms += 10_001
    parts.run()
    assert coordinator.state("other").status.name == "COMPLETE_ABORT"


def test_commit_whose_coordinator_fails_is_fatal_and_its_end_is_the_next_producers(parts, store, coordinator, clock):
    parts.init().begin().send()
    parts.run(3)
    log, failing = store.log(*T0), [True]
    append = log.append

    def troubled(records, **options):
        if failing:
            raise LogFailedError("disk")
        return append(records, **options)

    log.append = troubled
    result = parts.manager.begin_commit()
    parts.run(3)
    with pytest.raises(LogFailedError):
        result.wait(0)
    assert parts.manager.has_fatal_error
    failing.clear()
    Transactional(store, coordinator, clock=clock).init()
    assert parts.committed() == [b"v"]


# Closing


def test_close_aborts_the_open_transaction(parts):
    parts.init().begin()
    future = parts.send()
    parts.sender.initiate_close()
    parts.sender.run()
    assert future.result().offset == 0
    assert parts.committed() == []
    assert parts.is_decided()
    parts.check_at_rest()


def test_close_ends_a_commit_that_was_begun(parts):
    parts.init().begin().send()
    result = parts.manager.begin_commit()
    parts.sender.initiate_close()
    parts.sender.run()
    result.wait(0)
    assert parts.committed() == [b"v"]


def test_close_behind_a_failed_commit_that_nobody_awaited_ends(parts):
    parts.init().begin()
    parts.sink.answers.append(fails(StorageError("broken")))
    parts.send()
    parts.manager.begin_commit()
    parts.sender.initiate_close()
    parts.sender.run()
    parts.check_at_rest()


def test_forced_close_fails_what_waits_for_the_coordinator(parts):
    parts.init().begin().send()
    result = parts.manager.begin_commit()
    parts.sender.force_close()
    parts.sender.run()
    with pytest.raises(ProducerClosedError):
        result.wait(0)
    parts.check_at_rest()


def test_transaction_left_open_by_a_forced_close_is_aborted_by_the_next_producer(parts, store, coordinator, clock):
    parts.init().begin().send()
    parts.run(3)
    parts.sender.force_close()
    parts.sender.run()
    assert not parts.is_decided()
    Transactional(store, coordinator, clock=clock).init()
    assert parts.is_decided()
    assert parts.committed() == []
