"""Goal: a full disk keeps a transaction waiting and breaks nothing; every other failure of a call tells the truth.
Method: real stores whose env fails the Nth call while a transaction ends, once or until it is healed; run by steps."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kstore.coordinator.transaction.coordinator import TransactionCoordinator
from kstore.env import WriteFile
from kstore.errors import KStoreError, LogFailedError, ProducerTimeoutError, RecordTooLargeError, StorageError
from kstore.producer import Producer
from kstore.producer.transactions import TransactionManagerState
from kstore.store.store import WritableStore, open_store
from kstore.types import TRANSACTION_STATE_TOPIC
from tests.fakes.faults import Fault, FaultKind, FaultyEnv
from tests.fakes.sending import T0, T1, ManualClock
from tests.fakes.transacting import Transactional

FULL = StorageError("no space left", errno=errno.ENOSPC)
ENDS = pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
# The decision, two markers, and that it is complete.
APPENDS_OF_AN_END = 4


class FullDisk:
    """Lets so many appends of coordinators through, and no more until it is made room.

    Attribute: refused: how many found no space.
    """

    def __init__(self, store: WritableStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 10**9
        self.refused = 0
        log_of = store.log

        def log(topic: str, partition: int = 0) -> Any:
            found = log_of(topic, partition)
            return _FullLog(found, self)

        monkeypatch.setattr(store, "log", log)


class _FullLog:
    def __init__(self, log: Any, disk: FullDisk) -> None:
        self._log = log
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def append(self, *arguments: Any, **options: Any) -> Any:
        if self._disk.left <= 0:
            self._disk.refused += 1
            raise FULL
        self._disk.left -= 1
        return self._log.append(*arguments, **options)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[WritableStore]:
    with open_store(tmp_path / "root", "a") as opened:
        opened.create_topic("t", 4)
        opened.create_topic("__transaction_state", 1)
        yield opened


@pytest.fixture
def parts(store: WritableStore, clock: ManualClock) -> Transactional:
    return Transactional(store, TransactionCoordinator(store, partition_count=3, clock=clock), clock=clock)


def begin_end(parts: Transactional, *, is_commit: bool) -> Any:
    return parts.manager.begin_commit() if is_commit else parts.manager.begin_abort()


def end_without_markers(
    parts: Transactional, store: WritableStore, monkeypatch: pytest.MonkeyPatch, *, is_commit: bool
) -> tuple[FullDisk, Any]:
    """Begin to end a transaction of one record, with space for the decision and none for a marker."""
    parts.init().begin().send()
    parts.run(3)
    disk = FullDisk(store, monkeypatch)
    disk.left = 1
    return disk, begin_end(parts, is_commit=is_commit)


def markers_in(store: WritableStore) -> int:
    """How many control batches there are in both partitions."""
    return sum(batch.is_control for one in (T0, T1) for batch in store.log(*one).batches())


@ENDS
@pytest.mark.parametrize("appends", range(APPENDS_OF_AN_END))
def test_end_without_space_waits_for_it_and_the_call_may_be_made_again(
    parts: Transactional,
    store: WritableStore,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    appends: int,
    is_commit: bool,
) -> None:
    parts.init().begin()
    futures = [parts.send(to=T0), parts.send(to=T1)]
    parts.run(3)
    disk = FullDisk(store, monkeypatch)
    disk.left = appends
    result = begin_end(parts, is_commit=is_commit)
    for _ in range(20):
        parts.run()
        clock.now_ms += 50
    # One try in 100 ms, which asks both partitions where the markers are what is missing.
    assert disk.refused == (20 if appends == 1 else 10)
    with pytest.raises(ProducerTimeoutError, match="no space left") as caught:
        result.wait(0)
    assert caught.value.__cause__ is FULL
    assert not parts.manager.has_error
    disk.left = 10**9
    assert begin_end(parts, is_commit=is_commit) is result
    clock.now_ms += 100
    parts.end(result)
    assert [future.result(0).offset for future in futures] == [0, 0]
    for one in (T0, T1):
        assert parts.committed(one) == ([b"v"] if is_commit else [])
        assert parts.is_decided(one)
    assert markers_in(store) == 2
    parts.begin().send(b"later")
    parts.commit()
    assert parts.committed()[-1:] == [b"later"]
    parts.check_at_rest()


@ENDS
def test_record_that_fails_once_the_end_is_decided_changes_nothing_of_it(
    parts: Transactional, store: WritableStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, is_commit: bool
) -> None:
    disk, result = end_without_markers(parts, store, monkeypatch, is_commit=is_commit)
    parts.run()
    assert disk.refused == 1
    parts.manager.note_failed_send(RecordTooLargeError("of a thread that began to send before"))
    disk.left = 10**9
    clock.now_ms += 100
    parts.end(result)
    assert parts.manager.state is TransactionManagerState.READY
    assert parts.committed() == ([b"v"] if is_commit else [])


def test_sender_sleeps_while_it_waits_for_space(
    parts: Transactional, store: WritableStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts.init().begin().send()
    disk = FullDisk(store, monkeypatch)
    disk.left = 0
    assert parts.sender.run_once() == 100
    clock.now_ms += 30
    assert (parts.sender.run_once(), disk.refused) == (70, 1)
    clock.now_ms += 70
    assert (parts.sender.run_once(), disk.refused) == (100, 2)


def test_first_record_of_a_partition_waits_for_space_too(
    parts: Transactional, store: WritableStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts.init().begin()
    disk = FullDisk(store, monkeypatch)
    disk.left = 0
    future = parts.send()
    parts.run(3)
    assert not future.done()
    disk.left = 10**9
    clock.now_ms += 100
    parts.commit()
    assert future.result(0).offset == 0
    assert parts.committed() == [b"v"]


def test_record_that_waits_too_long_for_space_leaves_a_transaction_to_be_aborted(
    parts: Transactional, store: WritableStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts.init().begin()
    disk = FullDisk(store, monkeypatch)
    disk.left = 0
    future = parts.send()
    parts.run_until_done(future, limit=200)
    assert isinstance(future.exception(0), ProducerTimeoutError)
    assert parts.manager.state is TransactionManagerState.ABORTABLE_ERROR
    disk.left = 10**9
    clock.now_ms += 100
    parts.abort()
    parts.begin().send(b"later")
    parts.commit()
    assert parts.committed() == [b"later"]


def test_init_without_space_waits_for_it(
    parts: Transactional, store: WritableStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(store, monkeypatch)
    disk.left = 0
    result = parts.manager.init_transactions()
    parts.run(3)
    with pytest.raises(ProducerTimeoutError, match="no space left"):
        result.wait(0)
    disk.left = 10**9
    clock.now_ms += 100
    assert parts.manager.init_transactions() is result
    parts.end(result)
    assert parts.manager.state is TransactionManagerState.READY


@ENDS
def test_close_does_not_wait_for_space(
    parts: Transactional, store: WritableStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, is_commit: bool
) -> None:
    disk, result = end_without_markers(parts, store, monkeypatch, is_commit=is_commit)
    parts.run(3)
    parts.sender.initiate_close()
    parts.sender.start()
    assert parts.sender.join(60)
    with pytest.raises(StorageError, match="no space left"):
        result.wait(0)
    disk.left = 10**9
    Transactional(store, TransactionCoordinator(store, clock=clock), clock=clock).init()
    assert parts.committed() == ([b"v"] if is_commit else [])
    assert parts.is_decided()


def test_partition_that_can_not_be_marked_keeps_no_other_from_its_marker(
    parts: Transactional, store: WritableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts.init().begin()
    parts.send(to=T0)
    parts.send(to=T1)
    parts.run(3)

    def failing(*_: object, **__: object) -> None:
        raise LogFailedError("disk")

    with monkeypatch.context() as patch:
        patch.setattr(store.log(*T0), "append", failing)
        result = parts.manager.begin_commit()
        parts.run(3)
    with pytest.raises(LogFailedError):
        result.wait(0)
    assert parts.is_decided(T1)
    assert parts.committed(T1) == [b"v"]


def test_commit_of_a_producer_without_space_is_timed_out_with_the_reason_and_called_again(
    store: WritableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Producer(store, transactional_id="id", max_block_ms=5000, retry_backoff_ms=1) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        future = producer.send("t", b"v", partition=0)
        producer.flush(60)
        disk = FullDisk(store, monkeypatch)
        disk.left = 1
        object.__setattr__(producer.config, "max_block_ms", 50)
        with pytest.raises(ProducerTimeoutError, match="no space left"):
            producer.commit_transaction()
        object.__setattr__(producer.config, "max_block_ms", 60_000)
        disk.left = 10**9
        producer.commit_transaction()
        assert future.result(0).offset == 0
    assert [one.value for one in store.log(*T0).read(isolation="read_committed")] == [b"v"]


def test_marker_that_makes_its_log_fail_is_not_tried_again(
    parts: Transactional, store: WritableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds no space halfway, and what it wrote cannot be removed."""
    parts.init().begin().send()
    parts.run(3)
    pwrite = WriteFile.pwrite

    def find_no_space(file: WriteFile, data: bytes, *, position: int) -> None:
        if f"{T0}/" in file.path:
            raise StorageError("no space left", path=file.path, errno=errno.ENOSPC)
        pwrite(file, data, position=position)

    def fail(file: WriteFile, size: int) -> None:
        raise StorageError("broken", path=file.path, errno=errno.EIO)

    with monkeypatch.context() as patched:
        patched.setattr(WriteFile, "pwrite", find_no_space)
        patched.setattr(WriteFile, "truncate", fail)
        result = parts.manager.begin_commit()
        parts.run(3)
    with pytest.raises(StorageError, match="no space left") as caught:
        result.wait(0)
    assert (caught.value.is_out_of_space, caught.value.is_retriable) == (True, False)


# The Nth call of the system


class Outcome(NamedTuple):
    """What became of a transaction whose env had a fault, and what a next producer finds committed."""

    calls: int
    has_failed: bool
    error: KStoreError | None
    values: list[list[bytes | None]]


def transaction(parts: Transactional, clock: ManualClock, env: FaultyEnv, *, is_commit: bool) -> KStoreError | None:
    """Send to two partitions and end the transaction; heal the disk when the end was waited for, and wait again."""
    parts.send(b"a", to=T0)
    parts.send(b"b", to=T1)
    parts.run(5)
    try:
        result = begin_end(parts, is_commit=is_commit)
        for _ in range(2):
            for _ in range(10):
                parts.run()
                clock.now_ms += 50
            try:
                result.wait(0)
            except ProducerTimeoutError:
                env.heal()
            else:
                return None
    except KStoreError as error:
        return error
    raise AssertionError("neither done nor failed")


def run_transaction(root: Path, fault: Fault | None, *, is_commit: bool, ack: str) -> Outcome:
    env, clock = FaultyEnv(), ManualClock()
    with open_store(root, "a") as made:
        made.create_topic("t", 2)
    store = open_store(root, "a", env=env)
    coordinator = TransactionCoordinator(store, partition_count=1, clock=clock)
    parts = Transactional(store, coordinator, clock=clock, ack=ack).init().begin()
    env.calls, env._fault = 0, fault
    error = transaction(parts, clock, env, is_commit=is_commit)
    calls = env.calls
    env.heal()
    with suppress(StorageError):
        store.close()
    with open_store(root, "a") as again:
        Transactional(again, TransactionCoordinator(again, clock=clock), clock=clock).init()
        logs = [again.log(*one) for one in (T0, T1)]
        assert all(log.last_stable_offset == log.log_end_offset for log in logs)
        values = [[one.value for one in log.read(isolation="read_committed")] for log in logs]
    return Outcome(calls, env.has_failed, error, values)


@pytest.mark.parametrize("step", [pytest.param(31, id="some"), pytest.param(1, id="every", marks=pytest.mark.long)])
@ENDS
@pytest.mark.parametrize("ack", ["written", "flushed"])
@pytest.mark.parametrize("kind", ["ENOSPC", "short", "EIO"])
def test_transaction_whose_nth_call_of_the_system_fails_is_whole_or_not_there(
    tmp_path: Path, kind: FaultKind, ack: str, is_commit: bool, step: int
) -> None:
    there, not_there = [[b"a"], [b"b"]], [[], []]
    healthy = run_transaction(tmp_path / "healthy", None, is_commit=is_commit, ack=ack)
    assert (healthy.error, healthy.values) == (None, there if is_commit else not_there)
    outlived = 0
    for number in range(step, healthy.calls + 1, step):
        fault = Fault(number, kind, is_for_good=number % 2 == 0)
        found = run_transaction(tmp_path / f"{number}", fault, is_commit=is_commit, ack=ack)
        assert found.values in ((there, not_there) if is_commit else (not_there,)), fault
        if found.error is None:
            assert found.values == healthy.values, fault
            outlived += found.has_failed
    assert outlived or kind == "EIO" or step > 1


def test_states_are_recorded_once_however_often_they_were_tried(
    parts: Transactional, store: WritableStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def steps() -> Iterator[Callable[[], None]]:
        yield lambda: parts.send()
        yield lambda: parts.manager.begin_commit()

    parts.init().begin()
    disk = FullDisk(store, monkeypatch)
    for step in steps():
        disk.left = 0
        step()
        parts.run(3)
        disk.left = 10**9
        clock.now_ms += 100
        parts.run(5)
    numbers = [number for topic, number in store.partitions if topic == TRANSACTION_STATE_TOPIC]
    states = [record for number in numbers for record in store.log(TRANSACTION_STATE_TOPIC, number).read()]
    assert len(states) == len(["empty", "ongoing", "prepared", "complete"])
