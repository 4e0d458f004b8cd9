"""Goal: offsets that a producer sends to its transaction share the fate of its records, whatever fails.
Method: real store, coordinator, accumulator and Sender, run step by step; appends that fail at chosen places."""

from __future__ import annotations

import pytest

from kstore import OffsetAndMetadata, Producer, TopicPartition, read_groups
from kstore.coordinator.transaction.coordinator import TransactionCoordinator
from kstore.errors import (
    KStoreError,
    LogFailedError,
    ProducerFencedError,
    ProducerTimeoutError,
    StorageError,
    TransactionAbortedError,
    TransactionStateError,
    UnknownTopicOrPartitionError,
)
from kstore.producer.transactions import TransactionManagerState
from kstore.store.store import open_store
from tests.fakes.sending import T0, ManualClock
from tests.fakes.transacting import Transactional

STATE = TransactionManagerState
OFFSETS = "__consumer_offsets"


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path / "root", "a") as opened:
        opened.create_topic("t", 2)
        opened.create_topic(OFFSETS, 1)
        yield opened


@pytest.fixture
def coordinator(store):
    return TransactionCoordinator(store, partition_count=1, clock=ManualClock())


@pytest.fixture
def parts(store, coordinator):
    return Transactional(store, coordinator, clock=ManualClock()).init()


def offsets(offset, *, to=T0):
    return {to: OffsetAndMetadata(offset)}


def committed(store):
    return [one.committed.offset for group in read_groups(store) for one in group.offsets.values()]


def pending(store):
    return [one.offset for group in read_groups(store) for one in group.pending.values()]


def test_records_and_offsets_become_visible_together(parts, store):
    parts.begin().send()
    parts.end(parts.manager.send_offsets("g", offsets(1)))
    parts.run(3)
    assert (parts.committed(), committed(store), pending(store)) == ([], [], [1])
    parts.commit()
    assert (parts.committed(), committed(store), pending(store)) == ([b"v"], [1], [])
    assert parts.is_decided(TopicPartition(OFFSETS, 0))


def test_an_abort_drops_records_and_offsets(parts, store):
    parts.begin().send()
    parts.end(parts.manager.send_offsets("g", offsets(1)))
    parts.abort()
    assert (parts.committed(), committed(store), pending(store)) == ([], [], [])
    assert parts.is_decided(TopicPartition(OFFSETS, 0))
    parts.begin()
    parts.end(parts.manager.send_offsets("g", offsets(2)))
    parts.commit()
    assert committed(store) == [2]


def test_a_commit_waits_for_offsets_that_nobody_waited_for(parts, store):
    parts.begin()
    parts.manager.send_offsets("g", offsets(1))
    parts.manager.send_offsets("g", offsets(2))
    parts.commit()
    assert committed(store) == [2]


def test_an_abort_fails_offsets_that_were_not_written(parts, store):
    parts.begin()
    result = parts.manager.send_offsets("g", offsets(1))
    parts.abort()
    with pytest.raises(TransactionAbortedError):
        result.wait(0)
    assert store.log(OFFSETS).log_end_offset == 0


def test_offsets_need_an_open_transaction(parts):
    with pytest.raises(TransactionStateError, match="expected state IN_TRANSACTION, found READY"):
        parts.manager.send_offsets("g", offsets(1))


def test_a_failed_append_leaves_only_an_abort(parts, store, coordinator, monkeypatch):
    parts.begin()
    with monkeypatch.context() as patched:
        patched.setattr(coordinator, "commit_offsets", failing(LogFailedError("disk")))
        result = parts.manager.send_offsets("g", offsets(1))
        parts.run(2)
    with pytest.raises(LogFailedError):
        result.wait(0)
    assert parts.manager.state is STATE.ABORTABLE_ERROR
    with pytest.raises(KStoreError, match="ABORTABLE_ERROR"):
        parts.manager.send_offsets("g", offsets(1))
    parts.abort()
    assert (committed(store), pending(store)) == ([], [])
    assert parts.manager.state is STATE.READY


def failing(error):
    def fail(*_args, **_options):
        raise error

    return fail


def test_an_abort_after_a_failure_before_the_transaction_began_ends_nothing(parts, coordinator, monkeypatch):
    parts.begin()
    with monkeypatch.context() as patched:
        patched.setattr(coordinator, "offsets_partition", failing(LogFailedError("disk")))
        parts.manager.send_offsets("g", offsets(1))
        parts.run(2)
    parts.abort()
    assert parts.manager.state is STATE.READY


def test_a_full_disk_is_waited_for(parts, store, coordinator, monkeypatch):
    parts.begin()
    full = StorageError("no space", errno=28)
    with monkeypatch.context() as patched:
        patched.setattr(coordinator, "commit_offsets", failing(full))
        result = parts.manager.send_offsets("g", offsets(1))
        parts.run(3)
        with pytest.raises(ProducerTimeoutError, match="no space"):
            result.wait(0)
    parts.clock.now_ms += 1000
    parts.end(result)
    parts.commit()
    assert committed(store) == [1]


def test_a_fenced_producer_writes_no_offsets(parts, store, coordinator):
    parts.begin()
    coordinator.init_producer_id("id")
    result = parts.manager.send_offsets("g", offsets(1))
    parts.run(2)
    with pytest.raises(ProducerFencedError):
        result.wait(0)
    assert parts.manager.state is STATE.FATAL_ERROR
    assert store.log(OFFSETS).log_end_offset == 0


def test_a_transaction_that_took_too_long_takes_no_more_offsets(parts, store, coordinator):
    parts.begin()
    parts.end(parts.manager.send_offsets("g", offsets(1)))
    coordinator._clock.now_ms += 10**6
    assert coordinator.abort_expired() == 1
    result = parts.manager.send_offsets("g", offsets(2))
    parts.run(2)
    with pytest.raises(KStoreError):
        result.wait(0)
    assert (committed(store), pending(store)) == ([], [])


def test_the_next_producer_aborts_the_offsets_of_one_that_died(parts, store, coordinator):
    parts.begin()
    parts.end(parts.manager.send_offsets("g", offsets(1)))
    Transactional(store, coordinator, clock=ManualClock()).init()
    assert (committed(store), pending(store)) == ([], [])
    assert parts.is_decided(TopicPartition(OFFSETS, 0))


def test_wrong_arguments_change_nothing(store):
    with Producer(store) as plain, pytest.raises(TransactionStateError, match="transactional_id"):
        plain.send_offsets_to_transaction({T0: 1}, "g")
    store.create_topic("__transaction_state", 1)
    with Producer(store, transactional_id="id") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(UnknownTopicOrPartitionError):
            producer.send_offsets_to_transaction({TopicPartition("t", 9): 1}, "g")
        with pytest.raises(ValueError, match="group must not be empty"):
            producer.send_offsets_to_transaction({T0: 1}, "")
        with pytest.raises(TypeError):
            producer.send_offsets_to_transaction({T0: "1"}, "g")
        producer.send_offsets_to_transaction({}, "g")
        producer.send_offsets_to_transaction({T0: 3}, "g")
        producer.commit_transaction()
        assert producer.metrics()["txn-send-offsets-time-ns-total"] >= 0
    assert committed(store) == [3]
