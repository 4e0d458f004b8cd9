"""Goal: flushed appends of threads that wait become one write, and each thread gets what its own append would have got.
Method: a real log whose syncs stop until the test lets them go, so that the threads of a group are known."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstore.config import LogConfig
from kstore.errors import CorruptRecordError, KStoreError, LogClosedError, LogFailedError, StorageError
from kstore.log.write.rules import LogAppendInfo
from kstore.log.write.writable_log import WritableLog
from kstore.record import MemoryRecords
from kstore.store.opening import open_log
from tests.fakes.full_disk import FullEnv
from tests.log.write.test_group_commit import Ending, until, until_waiting
from tests.making.batches import record
from tests.reference.codec import write_batch
from tests.reference.codecs import GZIP


class GatedEnv(FullEnv):
    """Syncs of records wait until the test lets them go; writes of records are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.is_gated = False
        self.started = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)
        self.writes = 0

    def check(self, call: str, path: str) -> None:
        if path.endswith(".log"):
            self.writes += call == "write"
            if call == "sync" and self.is_gated:
                self.started.release()
                assert self.gate.acquire(timeout=60)
        if self.full:
            super().check(call, path)


class Appender(Ending):
    """Appends one record, flushed, in a thread; result is what the call returned or raised."""

    def __init__(self, log: WritableLog, value: bytes, *, data: bytes | None = None) -> None:
        super().__init__(daemon=True)
        self.log = log
        self.value = value
        self.records = MemoryRecords(plain(value) if data is None else data)
        self.start()

    def run(self) -> None:
        try:
            self.result = self.log.append(self.records, ack="flushed")
        except KStoreError as error:
            self.result = error


def plain(value: bytes, **options: int) -> bytes:
    return write_batch([record(0, value)], **options)


def values(log: WritableLog) -> list[bytes | None]:
    return [None if one.value is None else bytes(one.value) for one in log.read()]


def acknowledged(appenders: list[Appender]) -> dict[int, bytes]:
    return {
        appender.result.base_offset: appender.value
        for appender in appenders
        if isinstance(appender.result, LogAppendInfo)
    }


@pytest.fixture
def env() -> GatedEnv:
    return GatedEnv()


@pytest.fixture
def log(env: GatedEnv, tmp_path: Path) -> Iterator[WritableLog]:
    log = open_log(tmp_path / "t-0", "a", env=env)
    log.append(MemoryRecords(plain(b"first")))
    env.is_gated = True
    yield log
    env.is_gated = False
    env.gate.release(1000)
    log.close()


def waiting_appenders(log: WritableLog, env: GatedEnv, *data: bytes) -> list[Appender]:
    """Return a thread whose flush runs, and one for each batch that waits for the next flush."""
    appenders = [Appender(log, b"leads")]
    assert env.started.acquire(timeout=60)
    for number, one in enumerate(data or [plain(b"v%d" % number) for number in range(4)]):
        appenders.append(Appender(log, b"v%d" % number, data=one))
        until_waiting(log._durability._group, number + 1)
    return appenders


def go_on(env: GatedEnv) -> None:
    env.is_gated = False
    env.gate.release(1000)


def test_appends_of_threads_that_wait_are_one_write_and_each_thread_gets_its_own_offset(
    log: WritableLog, env: GatedEnv
) -> None:
    appenders = waiting_appenders(log, env)
    writes = env.writes
    assert log.log_end_offset == 2
    go_on(env)
    infos = [appender.ended() for appender in appenders]
    assert env.writes == writes + 1
    assert [info.base_offset for info in infos if isinstance(info, LogAppendInfo)] == [1, 2, 3, 4, 5]
    assert values(log) == [b"first", b"leads", b"v0", b"v1", b"v2", b"v3"]
    assert log._durability.flushed_offset == 6


def test_refused_batch_of_a_group_is_refused_in_its_own_thread(log: WritableLog, env: GatedEnv) -> None:
    damaged = bytearray(plain(b"v1"))
    damaged[-1] ^= 1
    appenders = waiting_appenders(log, env, plain(b"v0"), bytes(damaged), plain(b"v2"))
    go_on(env)
    results = [appender.ended() for appender in appenders]
    assert [type(result) for result in results] == [LogAppendInfo, LogAppendInfo, CorruptRecordError, LogAppendInfo]
    assert dict(enumerate(values(log))) == {0: b"first"} | acknowledged(appenders)


def test_full_disk_reaches_each_thread_of_a_group_and_nothing_is_left(log: WritableLog, env: GatedEnv) -> None:
    appenders = waiting_appenders(log, env)
    env.calls, env.full = {"write"}, (".log",)
    go_on(env)
    first, *others = [appender.ended() for appender in appenders]
    assert isinstance(first, LogAppendInfo)
    assert all(isinstance(error, StorageError) and error.is_retriable for error in others)
    assert len(set(map(id, others))) == 4
    assert values(log) == [b"first", b"leads"]
    env.full = ()
    assert log.append(MemoryRecords(plain(b"later")), ack="flushed").base_offset == 2


def test_failure_that_may_leave_batches_of_a_group_in_the_log_is_final_in_each_thread(
    log: WritableLog, env: GatedEnv
) -> None:
    appenders = waiting_appenders(log, env, *[plain(b"v" * 60_000)] * 9)
    env.calls, env.full = {"write back"}, (".log",)
    go_on(env)
    first, *others = [appender.ended() for appender in appenders]
    assert isinstance(first, LogAppendInfo)
    assert all(type(error) is StorageError and error.is_final for error in others)
    assert log.has_failed
    env.full = ()


def test_failed_sync_of_a_group_reaches_each_thread_and_the_log_fails(log: WritableLog, env: GatedEnv) -> None:
    appenders = waiting_appenders(log, env)
    env.calls, env.full = {"sync"}, (".log",)
    env.gate.release(1000)
    results = [appender.ended() for appender in appenders]
    assert all(isinstance(error, StorageError) and error.is_final for error in results)
    with pytest.raises(LogFailedError):
        log.append(MemoryRecords(plain(b"later")), ack="flushed")
    env.full = ()


def test_roll_inside_of_a_group_leaves_all_its_records_in_order(env: GatedEnv, tmp_path: Path) -> None:
    size = len(plain(b"first"))
    with open_log(tmp_path / "t-0", "a", LogConfig(segment_bytes=4 * size), env=env) as log:
        env.is_gated = True
        appenders = waiting_appenders(log, env, *[plain(b"value") for _ in range(6)])
        go_on(env)
        for appender in appenders:
            appender.ended()
        assert sorted(acknowledged(appenders)) == list(range(7))
        assert len(values(log)) == 7
        assert len(list((tmp_path / "t-0").glob("*.log"))) > 1


@pytest.mark.parametrize("data", [plain(b"l" * 70_000), plain(b"c", codec=GZIP)], ids=["large", "compressed"])
def test_batch_that_is_not_small_and_plain_is_written_while_a_flush_runs(
    log: WritableLog, env: GatedEnv, data: bytes
) -> None:
    leads = Appender(log, b"leads")
    assert env.started.acquire(timeout=60)
    other = Appender(log, b"", data=data)
    until(lambda: log.log_end_offset == 3)
    go_on(env)
    assert [isinstance(appender.ended(), LogAppendInfo) for appender in (leads, other)] == [True, True]


def test_written_append_waits_for_no_flush(log: WritableLog, env: GatedEnv) -> None:
    leads, waits = waiting_appenders(log, env, plain(b"v0"))
    assert log.append(MemoryRecords(plain(b"written"))).base_offset == 2
    go_on(env)
    assert [isinstance(appender.ended(), LogAppendInfo) for appender in (leads, waits)] == [True, True]
    assert values(log) == [b"first", b"leads", b"written", b"v0"]


def test_closing_while_threads_wait_loses_no_acknowledged_record(env: GatedEnv, tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", "a", env=env)
    env.is_gated = True
    appenders = waiting_appenders(log, env)
    closing = threading.Thread(target=log.close)
    closing.start()
    go_on(env)
    closing.join(timeout=60)
    results = [appender.ended() for appender in appenders]
    assert all(isinstance(result, LogAppendInfo | LogClosedError) for result in results)
    with open_log(tmp_path / "t-0", "a") as log:
        assert dict(enumerate(values(log))) == acknowledged(appenders)
