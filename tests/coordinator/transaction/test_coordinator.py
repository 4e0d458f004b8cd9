"""Goal: the coordinator gives out producers, fences them, and ends each transaction whole, also after a crash.
Method: stores in temporary folders; a crash is a store that fails at a chosen append, and is then opened anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kstore.coordinator.producer_ids import MAX_PRODUCER_EPOCH, NO_PRODUCER, ProducerIdAndEpoch
from kstore.coordinator.transaction import coordinator as coordinator_module
from kstore.coordinator.transaction.coordinator import TransactionCoordinator, coordinator_of
from kstore.coordinator.transaction.state import TransactionState, TransactionStatus, read_transaction_state
from kstore.errors import (
    InvalidPidMappingError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    LogFailedError,
    ProducerFencedError,
    StorageError,
    TransactionStateError,
)
from kstore.log.files.names import TOPIC_SETTINGS
from kstore.record.schemas.topics import coordinator_partition
from kstore.store.store import WritableStore, open_store
from kstore.types import TRANSACTION_STATE_TOPIC, TopicPartition
from tests.fakes.failing_store import FailingStore
from tests.fakes.sending import ManualClock
from tests.making.transactions import data

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
STATUS = TransactionStatus


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with open_store(tmp_path / "root", "a") as store:
        store.create_topic("t", 3)
    return tmp_path / "root"


@pytest.fixture
def store(root: Path) -> Iterator[WritableStore]:
    with open_store(root, "a") as opened:
        yield opened


@pytest.fixture
def coordinator(store: WritableStore, clock: ManualClock) -> TransactionCoordinator:
    return TransactionCoordinator(store, partition_count=3, clock=clock)


def put(coordinator, store, producer, *partitions: TopicPartition, sequence: int = 0, of: str = "id") -> None:
    coordinator.add_partitions(of, producer, partitions)
    with coordinator.appending(producer, partitions):
        for one in partitions:
            store.log(*one).append(data(producer, sequence=sequence))


def committed(store: WritableStore, topic_partition: TopicPartition) -> list[int]:
    return [one.offset for one in store.log(*topic_partition).read(isolation="read_committed")]


def is_decided(store: WritableStore, topic_partition: TopicPartition) -> bool:
    log = store.log(*topic_partition)
    return log.last_stable_offset == log.log_end_offset


def test_first_producer_of_an_id_has_epoch_0_and_later_ones_the_next(coordinator):
    producers = [coordinator.init_producer_id("id") for _ in range(3)]
    assert [one.epoch for one in producers] == [0, 1, 2]
    assert len({one.producer_id for one in producers}) == 1
    assert coordinator.init_producer_id("other").producer_id != producers[0].producer_id


def test_producer_without_transactional_id_gets_an_id_of_its_own_and_leaves_no_trace(coordinator, store):
    first, second = coordinator.init_producer_id(None), coordinator.init_producer_id(None)
    assert first.producer_id != second.producer_id
    assert (first.epoch, second.epoch) == (0, 0)
    assert TRANSACTION_STATE_TOPIC not in store.topics


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_transaction_ends_in_all_its_partitions_as_it_was_decided(coordinator, store, is_commit):
    producer = coordinator.init_producer_id("id")
    put(coordinator, store, producer, T0, T2)
    assert not is_decided(store, T0)
    coordinator.end_transaction("id", producer, is_commit=is_commit)
    for one in (T0, T2):
        assert is_decided(store, one)
        assert committed(store, one) == ([0, 1] if is_commit else [])
    assert store.log(*T1).log_end_offset == 0
    status = STATUS.COMPLETE_COMMIT if is_commit else STATUS.COMPLETE_ABORT
    assert coordinator.state("id").status is status


def test_next_transaction_of_a_producer_is_another_one(coordinator, store):
    producer = coordinator.init_producer_id("id")
    put(coordinator, store, producer, T0)
    coordinator.end_transaction("id", producer, is_commit=False)
    put(coordinator, store, producer, T0, sequence=2)
    coordinator.end_transaction("id", producer, is_commit=True)
    assert committed(store, T0) == [3, 4]


def test_end_called_again_with_the_same_decision_does_nothing(coordinator, store):
    producer = coordinator.init_producer_id("id")
    put(coordinator, store, producer, T0)
    coordinator.end_transaction("id", producer, is_commit=True)
    end = store.log(*T0).log_end_offset
    coordinator.end_transaction("id", producer, is_commit=True)
    assert store.log(*T0).log_end_offset == end


def test_end_called_again_with_the_other_decision_is_refused(coordinator, store):
    producer = coordinator.init_producer_id("id")
    put(coordinator, store, producer, T0)
    coordinator.end_transaction("id", producer, is_commit=True)
    with pytest.raises(TransactionStateError, match="COMPLETE_COMMIT"):
        coordinator.end_transaction("id", producer, is_commit=False)


def test_new_producer_of_an_id_fences_the_old_one_everywhere(coordinator, store):
    old = coordinator.init_producer_id("id")
    put(coordinator, store, old, T0)
    new = coordinator.init_producer_id("id")
    with pytest.raises(ProducerFencedError):
        coordinator.add_partitions("id", old, [T1])
    with pytest.raises(ProducerFencedError):
        coordinator.end_transaction("id", old, is_commit=True)
    with pytest.raises(ProducerFencedError):
        coordinator.init_producer_id("id", current=old)
    with pytest.raises(InvalidProducerEpochError), coordinator.appending(old, [T0]):
        pass
    with pytest.raises(InvalidProducerEpochError):
        store.log(*T0).append(data(old, sequence=2))
    assert committed(store, T0) == []
    assert is_decided(store, T0)
    put(coordinator, store, new, T0)
    coordinator.end_transaction("id", new, is_commit=True)
    assert committed(store, T0) == [3, 4]


def test_current_producer_gets_the_next_epoch(coordinator):
    producer = coordinator.init_producer_id("id")
    assert coordinator.init_producer_id("id", current=producer) == producer._replace(epoch=1)


def test_exhausted_epochs_lead_to_a_new_producer_id(coordinator, store):
    producer = coordinator.init_producer_id("id")
    last = ProducerIdAndEpoch(producer.producer_id, MAX_PRODUCER_EPOCH - 1)
    state = TransactionState(transactional_id="id", producer=last, timeout_ms=1000, last_update_ms=0)
    coordinator._save(coordinator._entry("id"), state, ack="written")
    put(coordinator, store, last, T0)
    new = coordinator.init_producer_id("id")
    assert new.producer_id != producer.producer_id
    assert new.epoch == 0
    assert is_decided(store, T0)


@pytest.mark.parametrize("epoch", [MAX_PRODUCER_EPOCH - 2, MAX_PRODUCER_EPOCH - 1, MAX_PRODUCER_EPOCH], ids=str)
def test_producer_id_is_used_up_to_the_epoch_before_the_last(coordinator, epoch):
    """The last epoch is kept for the markers of a transaction that must be fenced."""
    producer = coordinator.init_producer_id("id")._replace(epoch=epoch)
    state = TransactionState(transactional_id="id", producer=producer, timeout_ms=1000, last_update_ms=0)
    coordinator._save(coordinator._entry("id"), state, ack="written")
    new = coordinator.init_producer_id("id")
    if epoch == MAX_PRODUCER_EPOCH - 2:
        assert new == producer._replace(epoch=MAX_PRODUCER_EPOCH - 1)
    else:
        assert new.producer_id != producer.producer_id
        assert new.epoch == 0


def test_data_is_taken_only_for_an_open_transaction_with_its_partition(coordinator):
    producer = coordinator.init_producer_id("id")
    with pytest.raises(InvalidTxnStateError, match="EMPTY"), coordinator.appending(producer, [T0]):
        pass
    coordinator.add_partitions("id", producer, [T0])
    with pytest.raises(InvalidTxnStateError, match="without t-1"), coordinator.appending(producer, [T0, T1]):
        pass
    coordinator.end_transaction("id", producer, is_commit=True)
    with pytest.raises(InvalidTxnStateError, match="COMPLETE_COMMIT"), coordinator.appending(producer, [T0]):
        pass
    with pytest.raises(InvalidTxnStateError, match="found none"), coordinator.appending(NO_PRODUCER, [T0]):
        pass


def test_id_that_was_never_begun_with_can_do_nothing(coordinator):
    with pytest.raises(InvalidPidMappingError, match="comes first"):
        coordinator.add_partitions("id", ProducerIdAndEpoch(1, 0), [T0])


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_timeout_out_of_bounds_is_refused(coordinator, timeout_ms):
    with pytest.raises(ValueError, match="timeout_ms"):
        coordinator.init_producer_id("id", timeout_ms=timeout_ms)


def test_empty_transactional_id_is_refused(coordinator):
    with pytest.raises(ValueError, match="empty"):
        coordinator.init_producer_id("")


def test_transaction_open_for_longer_than_its_timeout_is_aborted_and_its_producer_fenced(coordinator, store, clock):
    producer = coordinator.init_producer_id("id", timeout_ms=500)
    put(coordinator, store, producer, T0)
    clock.now_ms += 500
    assert coordinator.abort_expired() == 0
    clock.now_ms += 1
    assert coordinator.abort_expired() == 1
    assert is_decided(store, T0)
    assert committed(store, T0) == []
    with pytest.raises(ProducerFencedError):
        coordinator.end_transaction("id", producer, is_commit=True)
    assert coordinator.abort_expired() == 0


def test_transaction_that_keeps_adding_partitions_expires_by_its_start(coordinator, store, clock):
    producer = coordinator.init_producer_id("id", timeout_ms=500)
    for number, topic_partition in enumerate((T0, T1, T2)):
        clock.now_ms += 200 if number else 0
        put(coordinator, store, producer, topic_partition)
    clock.now_ms += 100
    assert coordinator.abort_expired() == 0
    clock.now_ms += 1
    assert coordinator.abort_expired() == 1
    assert all(is_decided(store, one) and committed(store, one) == [] for one in (T0, T1, T2))
    with pytest.raises(ProducerFencedError):
        coordinator.add_partitions("id", producer, [T0])


def test_state_that_could_not_be_written_is_not_the_coordinators(coordinator, store, monkeypatch):
    producer = coordinator.init_producer_id("id")
    before = coordinator.state("id")

    def refuse(*_: object, **__: object) -> None:
        raise StorageError("full")

    with monkeypatch.context() as patched:
        for name, number in store.partitions:
            if name == TRANSACTION_STATE_TOPIC:
                patched.setattr(store.log(name, number), "append", refuse)
        with pytest.raises(StorageError, match="full"):
            coordinator.add_partitions("id", producer, [T0])
    assert coordinator.state("id") == before
    coordinator.add_partitions("id", producer, [T0])
    assert coordinator.state("id").partitions == {T0}


def test_transactions_that_a_process_left_behind_expire_without_their_producers(root, clock):
    with open_store(root, "a") as store:
        failing = FailingStore(store)
        coordinator = TransactionCoordinator(failing, partition_count=3, clock=clock)
        put(coordinator, failing, coordinator.init_producer_id("open", timeout_ms=500), T0, of="open")
        decided = coordinator.init_producer_id("decided")
        put(coordinator, failing, decided, T1, of="decided")
        failing.left = 1
        with pytest.raises(LogFailedError):
            coordinator.end_transaction("decided", decided, is_commit=True)
    clock.now_ms += 501
    with open_store(root, "a") as store:
        coordinator = TransactionCoordinator(store, clock=clock)
        assert coordinator.abort_expired() == 1
        assert is_decided(store, T0)
        assert committed(store, T0) == []
        assert is_decided(store, T1)
        assert committed(store, T1) == [0, 1]


def test_transaction_that_can_not_be_ended_keeps_no_other_open(store, clock, monkeypatch):
    coordinator = TransactionCoordinator(store, partition_count=3, clock=clock)
    put(coordinator, store, coordinator.init_producer_id("first", timeout_ms=500), T0, of="first")
    put(coordinator, store, coordinator.init_producer_id("second", timeout_ms=500), T1, of="second")
    clock.now_ms += 501

    def refuse(*_, **__):
        raise LogFailedError("failed")

    monkeypatch.setattr(store.log(*T0), "append", refuse)
    assert coordinator.abort_expired() == 1
    assert is_decided(store, T1)
    assert not is_decided(store, T0)


def test_partition_that_is_gone_does_not_keep_a_transaction_open(coordinator, store):
    producer = coordinator.init_producer_id("id")
    put(coordinator, store, producer, T0)
    coordinator.add_partitions("id", producer, [TopicPartition("gone", 0)])
    coordinator.end_transaction("id", producer, is_commit=True)
    assert committed(store, T0) == [0, 1]


@pytest.mark.parametrize("partitions", [1, 50])
def test_topic_of_states_is_made_as_a_broker_makes_it(store, root, partitions):
    """In a root of another origin than kstore, with the number of partitions that brokers have by default."""
    if partitions == 50:
        (root / TOPIC_SETTINGS).unlink()
    coordinator_of(store).init_producer_id("id")
    numbers = [number for topic, number in store.partitions if topic == TRANSACTION_STATE_TOPIC]
    assert numbers == list(range(partitions))
    assert store.topic_id(TRANSACTION_STATE_TOPIC) is not None
    log = store.log(TRANSACTION_STATE_TOPIC, coordinator_partition("id", partition_count=partitions))
    assert log.config.is_compacted
    states = [read_transaction_state(one.key, one.value) for one in log.read()]
    assert [(transactional_id, state.status) for transactional_id, state in states] == [("id", STATUS.EMPTY)]


def test_states_of_a_transaction_are_recorded_in_the_order_of_a_broker(coordinator, store):
    producer = coordinator.init_producer_id("id")
    put(coordinator, store, producer, T0)
    coordinator.add_partitions("id", producer, [T1])
    coordinator.add_partitions("id", producer, [T1])
    coordinator.end_transaction("id", producer, is_commit=True)
    log = store.log(TRANSACTION_STATE_TOPIC, coordinator_partition("id", partition_count=3))
    states = [read_transaction_state(one.key, one.value)[1] for one in log.read()]
    assert [state.status.name for state in states] == [
        "EMPTY",
        "ONGOING",
        "ONGOING",
        "PREPARE_COMMIT",
        "COMPLETE_COMMIT",
    ]
    assert [sorted(state.partitions) for state in states] == [[], [T0], [T0, T1], [T0, T1], []]
    assert {state.producer for state in states} == {producer}


# Hashes as java.lang.String documents them: s[0] * 31^(n-1) + ... over UTF-16 units, in an int.
JAVA_HASHES = {
    "empty": ("", 0),
    "one letter": ("a", 97),
    "two letters": ("Aa", 65 * 31 + 97),
    "surrogates": ("\U0001f600", 0xD83D * 31 + 0xDE00),
    "negative": ("zzzzzz", sum(122 * 31**power for power in range(6)) - 2**32),
    "least int": ("polygenelubricants", -(2**31)),
}


@pytest.mark.parametrize(("text", "java_hash"), JAVA_HASHES.values(), ids=JAVA_HASHES)
def test_partition_of_an_id_is_javas_hash_of_it_without_its_sign(text, java_hash):
    expected = 0 if java_hash == -(2**31) else abs(java_hash) % 50
    assert coordinator_partition(text, partition_count=50) == expected


def test_one_coordinator_serves_all_producers_of_a_store(store, root):
    first = coordinator_of(store)
    assert coordinator_of(store) is first


@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_topic_that_is_there_keeps_its_partitions(store, partitions):
    """A broker counts the partitions of the topic too."""
    store.create_topic(TRANSACTION_STATE_TOPIC, partitions)
    TransactionCoordinator(store).init_producer_id("id")
    assert sum(topic == TRANSACTION_STATE_TOPIC for topic, _ in store.partitions) == partitions
    log = store.log(TRANSACTION_STATE_TOPIC, coordinator_partition("id", partition_count=partitions))
    assert log.log_end_offset == 1


# Appends that end_transaction of two partitions makes: the decision, two markers, the end.
@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("appends", range(5))
def test_transaction_cut_off_by_a_crash_is_ended_by_the_next_producer_of_its_id(root, clock, appends, is_commit):
    with open_store(root, "a") as store:
        failing = FailingStore(store)
        coordinator = TransactionCoordinator(failing, partition_count=3, clock=clock)
        producer = coordinator.init_producer_id("id")
        put(coordinator, failing, producer, T0, T1)
        failing.left = appends
        if appends < 4:
            with pytest.raises(LogFailedError):
                coordinator.end_transaction("id", producer, is_commit=is_commit)
        else:
            coordinator.end_transaction("id", producer, is_commit=is_commit)
    with open_store(root, "a") as store:
        coordinator = TransactionCoordinator(store, clock=clock)
        new = coordinator.init_producer_id("id")
        assert new.epoch == (2 if appends == 0 else 1)
        for one in (T0, T1):
            assert is_decided(store, one)
            assert committed(store, one) == ([0, 1] if is_commit and appends > 0 else [])
        with pytest.raises(ProducerFencedError):
            coordinator.add_partitions("id", producer, [T0])


def test_what_a_crash_left_decided_is_completed_when_all_ids_are_looked_at(root, clock):
    with open_store(root, "a") as store:
        failing = FailingStore(store)
        coordinator = TransactionCoordinator(failing, partition_count=3, clock=clock)
        producer = coordinator.init_producer_id("id")
        put(coordinator, failing, producer, T0)
        failing.left = 1
        with pytest.raises(LogFailedError):
            coordinator.end_transaction("id", producer, is_commit=True)
    with open_store(root, "a") as store:
        coordinator = TransactionCoordinator(store, clock=clock)
        coordinator.load()
        assert committed(store, T0) == [0, 1]
        assert coordinator.state("id").status is STATUS.COMPLETE_COMMIT


def test_end_that_failed_on_the_way_is_completed_by_the_same_call(store, clock):
    failing = FailingStore(store)
    coordinator = TransactionCoordinator(failing, partition_count=3, clock=clock)
    producer = coordinator.init_producer_id("id")
    put(coordinator, failing, producer, T0, T1)
    failing.left = 2
    with pytest.raises(LogFailedError):
        coordinator.end_transaction("id", producer, is_commit=True)
    failing.left = 10
    coordinator.end_transaction("id", producer, is_commit=True)
    assert (committed(store, T0), committed(store, T1)) == ([0, 1], [0, 1])
    assert is_decided(store, T1)


def test_open_transaction_of_a_store_that_was_closed_goes_on_with_the_same_producer(root, clock):
    with open_store(root, "a") as store:
        coordinator = TransactionCoordinator(store, partition_count=3, clock=clock)
        producer = coordinator.init_producer_id("id")
        put(coordinator, store, producer, T0)
    with open_store(root, "a") as store:
        coordinator = TransactionCoordinator(store, clock=clock)
        coordinator.end_transaction("id", producer, is_commit=True)
        assert committed(store, T0) == [0, 1]


def begun(
    coordinator: TransactionCoordinator, transactional_id: str, *partitions: TopicPartition
) -> ProducerIdAndEpoch:
    producer = coordinator.init_producer_id(transactional_id)
    coordinator.add_partitions(transactional_id, producer, partitions)
    return producer


def test_transactions_in_a_partition_are_ended_and_others_are_not(root: Path) -> None:
    with open_store(root, "a") as store:
        coordinator = TransactionCoordinator(store)
        mine, other = begun(coordinator, "mine", T0, T1), begun(coordinator, "other", T1)
        done = begun(coordinator, "done", T0)
        coordinator.end_transaction("done", done, is_commit=True)
    with open_store(root, "a") as store:
        coordinator = TransactionCoordinator(store)
        assert coordinator.end_transactions_in(T0) == 1
        assert coordinator.end_transactions_in(T0) == 0
        states = {name: coordinator.state(name) for name in ("mine", "other", "done")}
        statuses = {name: state.status for name, state in states.items() if state is not None}
        assert statuses == {"mine": STATUS.COMPLETE_ABORT, "other": STATUS.ONGOING, "done": STATUS.COMPLETE_COMMIT}
        with pytest.raises(ProducerFencedError):
            coordinator.end_transaction("mine", mine, is_commit=True)
        coordinator.end_transaction("other", other, is_commit=True)


def test_condensed_partition_has_the_last_state_of_each_id(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_module, "_MOST_RECORDS", 20)
    with open_store(root, "a") as store:
        coordinator = TransactionCoordinator(store, partition_count=1)
        open_one = begun(coordinator, "open", T2)
        lengths = []
        for _ in range(30):
            producer = begun(coordinator, "busy", T0)
            coordinator.end_transaction("busy", producer, is_commit=True)
            coordinator.condense("busy")
            log = store.log(TRANSACTION_STATE_TOPIC)
            lengths.append(log.log_end_offset - log.log_start_offset)
        assert max(lengths) <= 20
        assert min(lengths[10:]) <= 6
        expected = [coordinator.state("busy"), coordinator.state("open")]
    with open_store(root, "a") as store:
        coordinator = TransactionCoordinator(store)
        assert [coordinator.state("busy"), coordinator.state("open")] == expected
        coordinator.end_transaction("open", open_one, is_commit=True)
        assert not coordinator.condense("open")


def test_crash_while_a_partition_is_condensed_loses_no_state(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_module, "_MOST_RECORDS", 0)
    monkeypatch.setattr(coordinator_module, "_MOST_RECORDS_PER_ID", 0)
    with open_store(root, "a") as store:
        coordinator = TransactionCoordinator(store, partition_count=1)
        for name in ("a", "b"):
            begun(coordinator, name, T0)
        expected = [coordinator.state(name) for name in ("a", "b")]
        log = store.log(TRANSACTION_STATE_TOPIC)

        def die(_: int) -> int:
            raise StorageError("died")

        with monkeypatch.context() as patch:
            patch.setattr(log, "delete_records", die)
            with pytest.raises(StorageError, match="died"):
                coordinator.condense("a")
    with open_store(root, "a") as store:
        coordinator = TransactionCoordinator(store)
        assert [coordinator.state(name) for name in ("a", "b")] == expected
        assert coordinator.condense("a")
        assert [coordinator.state(name) for name in ("a", "b")] == expected


def test_each_transaction_of_version_2_ends_with_the_next_epoch_which_its_markers_have(coordinator, store):
    producer = coordinator.init_producer_id("id")
    for count in range(1, 4):
        coordinator.add_partitions("id", producer, [T0], client_version=2)
        with coordinator.appending(producer, [T0], transactional_id="id"):
            store.log(*T0).append(data(producer))
        following = coordinator.end_transaction("id", producer, is_commit=True, client_version=2)
        assert following == producer._replace(epoch=count)
        marker = list(store.log(*T0).batches())[-1].header
        assert (marker.is_control, marker.producer_epoch) == (True, count)
        with pytest.raises(InvalidProducerEpochError), coordinator.appending(producer, [T0], transactional_id="id"):
            pass
        producer = following
    assert committed(store, T0) == [0, 1, 3, 4, 6, 7]


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_end_of_version_2_called_again_is_told_the_same_epoch(coordinator, store, is_commit):
    producer = coordinator.init_producer_id("id")
    put(coordinator, store, producer, T0)
    following = coordinator.end_transaction("id", producer, is_commit=is_commit, client_version=2)
    end = store.log(*T0).log_end_offset
    assert coordinator.end_transaction("id", producer, is_commit=is_commit, client_version=2) == following
    with pytest.raises(TransactionStateError):
        coordinator.end_transaction("id", producer, is_commit=not is_commit, client_version=2)
    with pytest.raises(ProducerFencedError):
        coordinator.end_transaction("id", producer, is_commit=is_commit)
    with pytest.raises(ProducerFencedError):
        coordinator.add_partitions("id", producer, [T0], client_version=2)
    assert store.log(*T0).log_end_offset == end


def test_epochs_of_version_2_that_are_used_up_lead_to_a_new_producer_id(coordinator, store):
    producer = coordinator.init_producer_id("id")
    last = ProducerIdAndEpoch(producer.producer_id, MAX_PRODUCER_EPOCH - 1)
    state = TransactionState(transactional_id="id", producer=last, timeout_ms=1000, last_update_ms=0)
    coordinator._save(coordinator._entry("id"), state, ack="written")
    put(coordinator, store, last, T0)
    new = coordinator.end_transaction("id", last, is_commit=True, client_version=2)
    assert new.producer_id != last.producer_id
    assert new.epoch == 0
    assert coordinator.end_transaction("id", last, is_commit=True, client_version=2) == new
    put(coordinator, store, new, T0)
    coordinator.end_transaction("id", new, is_commit=True, client_version=2)
    assert committed(store, T0) == [0, 1, 3, 4]


@pytest.mark.parametrize("appends", [1, 2, 3])
def test_decision_of_version_2_that_a_crash_left_is_completed_and_the_producer_goes_on(root, clock, appends):
    with open_store(root, "a") as store:
        failing = FailingStore(store)
        coordinator = TransactionCoordinator(failing, partition_count=3, clock=clock)
        producer = coordinator.init_producer_id("id")
        put(coordinator, failing, producer, T0, T1)
        failing.left = appends
        with pytest.raises(LogFailedError):
            coordinator.end_transaction("id", producer, is_commit=True, client_version=2)
    with open_store(root, "a") as store:
        coordinator = TransactionCoordinator(store, clock=clock)
        coordinator.load()
        assert coordinator.state("id").status is STATUS.COMPLETE_COMMIT
        following = coordinator.end_transaction("id", producer, is_commit=True, client_version=2)
        assert following == producer._replace(epoch=1)
        assert (committed(store, T0), committed(store, T1)) == ([0, 1], [0, 1])


def test_producer_whose_transaction_took_too_long_goes_on_in_version_2_if_it_aborts_too(coordinator, store, clock):
    for version in (0, 2):
        producer = coordinator.init_producer_id("id", timeout_ms=500)
        coordinator.add_partitions("id", producer, [T0], client_version=version)
        clock.now_ms += 501
        assert coordinator.abort_expired() == 1
        with pytest.raises(ProducerFencedError):
            coordinator.add_partitions("id", producer, [T0], client_version=version)
        with pytest.raises(TransactionStateError if version else ProducerFencedError):
            coordinator.end_transaction("id", producer, is_commit=True, client_version=version)
        if version:
            following = coordinator.end_transaction("id", producer, is_commit=False, client_version=version)
            assert following == producer._replace(epoch=producer.epoch + 1)
            coordinator.add_partitions("id", following, [T0], client_version=version)
        else:
            with pytest.raises(ProducerFencedError):
                coordinator.end_transaction("id", producer, is_commit=False, client_version=version)


def test_lost_answer_of_the_next_epoch_is_given_again_and_not_to_others(coordinator):
    producer = coordinator.init_producer_id("id")
    following = coordinator.init_producer_id("id", current=producer)
    assert coordinator.init_producer_id("id", current=producer) == following
    other = coordinator.init_producer_id("id")
    for one in (producer, following):
        with pytest.raises(ProducerFencedError):
            coordinator.init_producer_id("id", current=one)
    assert other.epoch == 2


def test_lost_answer_of_the_next_epoch_is_given_again_after_an_open_transaction_was_aborted(coordinator):
    producer = coordinator.init_producer_id("id")
    coordinator.add_partitions("id", producer, [T0])
    following = coordinator.init_producer_id("id", current=producer)
    assert coordinator.init_producer_id("id", current=producer) == following == producer._replace(epoch=2)


def test_id_that_is_not_known_gives_its_producer_a_new_id(coordinator):
    producer = coordinator.init_producer_id("id", current=ProducerIdAndEpoch(7, 3))
    assert producer.producer_id != 7
    assert producer.epoch == 0


def test_ids_that_nothing_was_heard_of_are_deleted_and_those_with_a_transaction_are_not(root, clock):
    with open_store(root, "a") as store:
        coordinator = TransactionCoordinator(store, partition_count=3, clock=clock)
        for name in ("idle", "open", "late"):
            coordinator.init_producer_id(name)
        put(coordinator, store, coordinator.init_producer_id("open"), T0, of="open")
        clock.now_ms += 50
        late = coordinator.init_producer_id("late")
        clock.now_ms += 50
        assert coordinator.remove_unused(100) == 1
        assert coordinator.remove_unused(100) == 0
        assert {state.transactional_id for state in coordinator.states()} == {"open", "late"}
        coordinator.add_partitions("late", late, [T1])
    with open_store(root, "a") as store:
        coordinator = TransactionCoordinator(store, clock=clock)
        assert coordinator.state("idle") is None
        assert {state.transactional_id for state in coordinator.states()} == {"open", "late"}
        assert coordinator.init_producer_id("idle").epoch == 0


def test_abort_of_version_2_without_a_transaction_is_answered_with_the_next_epoch_each_time(coordinator):
    producer = coordinator.init_producer_id("id")
    for epoch in (1, 2):
        producer = coordinator.end_transaction("id", producer, is_commit=False, client_version=2)
        assert producer.epoch == epoch
    with pytest.raises(TransactionStateError):
        coordinator.end_transaction("id", producer, is_commit=True, client_version=2)


class NotingStore(FailingStore):
    """Notes appends and flushes of its logs, in order; a flush of what is in `refusing` fails."""

    def __init__(self, store: WritableStore) -> None:
        super().__init__(store)
        self.calls: list[tuple[str, str]] = []
        self.refusing: set[TopicPartition] = set()

    def log(self, topic: str, partition: int = 0) -> Any:
        return NotingLog(super().log(topic, partition), self)


class NotingLog:
    def __init__(self, log: Any, store: NotingStore) -> None:
        self._log = log
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def append(self, *args: Any, ack: str = "written", **options: Any) -> Any:
        self._store.calls.append((f"append {ack}", str(self._log.topic_partition)))
        return self._log.append(*args, ack=ack, **options)

    def flush(self) -> int:
        if self._log.topic_partition in self._store.refusing:
            raise StorageError(f"no sync of {self._log.topic_partition}", path=self._log.path)
        self._store.calls.append(("flush", str(self._log.topic_partition)))
        flushed: int = self._log.flush()
        return flushed


def noted_transaction(store):
    """Return a store that has noted nothing, its coordinator, and a producer with records in three partitions."""
    noting = NotingStore(store)
    coordinator = TransactionCoordinator(noting, partition_count=1)
    producer = coordinator.init_producer_id("id")
    put(coordinator, store, producer, T0, T1, T2)
    noting.calls.clear()
    return noting, coordinator, producer


def test_flushed_decision_has_flushed_markers_before_its_end_which_is_written_only(store):
    noting, coordinator, producer = noted_transaction(store)
    coordinator.end_transaction("id", producer, is_commit=True, ack="flushed")
    decision, *markers, end = noting.calls
    assert (decision[0], end[0]) == ("append flushed", "append written")
    assert [one for one, _ in markers] == ["append written"] * 3 + ["flush"] * 3
    assert {name for _, name in markers[3:]} == {str(one) for one in (T0, T1, T2)}


def test_marker_that_is_not_durable_keeps_the_end_of_its_transaction_back(store):
    noting, coordinator, producer = noted_transaction(store)
    noting.refusing = {T0, T1}
    with pytest.raises(StorageError, match="no sync of t-0"):
        coordinator.end_transaction("id", producer, is_commit=True, ack="flushed")
    assert ("flush", "t-2") in noting.calls
    state = coordinator.state("id")
    assert state is not None
    assert state.status is STATUS.PREPARE_COMMIT
    noting.refusing.clear()
    coordinator.end_transaction("id", producer, is_commit=True, ack="flushed")
    assert all(is_decided(store, one) for one in (T0, T1, T2))
