"""Goal: one pass, by hand or in a thread, does what a broker does in the background, and one bad log stops no other.
Method: small roots with short settings, and logs that fail or are damaged."""

from __future__ import annotations

import faulthandler
import gc
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kstore.config import LogConfig
from kstore.env import LocalEnv, WriteFile
from kstore.errors import CorruptRecordError, LogClosedError, StorageError, TopicSettingsError
from kstore.log.segment.file_records import FileRecords
from kstore.log.write.local_log import LocalLog
from kstore.log.write.open_writers import WriterSlot
from kstore.log.write.writable_log import WritableLog
from kstore.record import Record
from kstore.store.store import WritableStore, open_store
from kstore.store.upkeep.maintenance import MaintenanceIntervals
from kstore.store.upkeep.prometheus import StoreCollector, prometheus_name
from kstore.types import TopicPartition
from kstore.waiting import Latch
from tests.fakes.faults import Fault, FaultyEnv
from tests.fakes.waiting import wait_until
from tests.making.batches import flip_bit

DAY_MS = 24 * 60 * 60 * 1000
NOW_MS = 100 * DAY_MS
WEEK = {"retention_ms": 7 * DAY_MS}
COMPACTED = LogConfig(cleanup_policy="compact", segment_bytes=300, min_cleanable_dirty_ratio=0.01)
A, B, C = (TopicPartition(name, 0) for name in "abc")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def put(store: WritableStore, topic_partition: TopicPartition, count: int, *, timestamp_ms: int = NOW_MS) -> None:
    log = store.log(*topic_partition)
    for number in range(count):
        log.append([Record(offset=0, timestamp_ms=timestamp_ms, key=b"k%d" % (number % 2), value=b"v" * 100)])


def test_pass_deletes_compacts_flushes_and_writes_checkpoints(root: Path) -> None:
    with open_store(root, "a", LogConfig(segment_bytes=300, **WEEK)) as store:
        store.create_topic("a")
        store.create_topic("b", config=COMPACTED)
        store.create_topic("c", config=LogConfig(flush_ms=0, segment_bytes=10_000))
        put(store, A, 6, timestamp_ms=NOW_MS - 30 * DAY_MS)
        put(store, B, 10)
        put(store, C, 1)
        store.log("a").close()
        report = store.run_maintenance(NOW_MS)
        assert list(report.deleted_segments) == [A]
        assert store.log("a").log_start_offset == 6
        assert list(report.compactions) == [B]
        assert len(list(store.log("b").read())) < 10
        assert {one.key for one in store.log("b").read()} == {b"k0", b"k1"}
        assert not report.failures
        assert not report.is_stopped
        assert "a 0 6" in (root / "log-start-offset-checkpoint").read_text().splitlines()
        again = store.run_maintenance(NOW_MS)
        assert (again.deleted_segments, again.compactions) == ({}, {})


def test_pass_flushes_what_flush_ms_makes_due(root: Path) -> None:
    with open_store(root, "a", LogConfig(flush_ms=1)) as store:
        store.create_topic("a")
        put(store, A, 1)
        store.log("a").update_config(LogConfig(flush_ms=10**9))
        put(store, A, 1)
        assert store.log("a").flushed_offset < 2
        assert store.run_maintenance(NOW_MS).flushed == ()
        store.log("a").update_config(LogConfig(flush_ms=0))
        assert store.run_maintenance(NOW_MS).flushed == (A,)
        assert store.log("a").flushed_offset == 2


def test_dirtiest_log_is_compacted_first(root: Path) -> None:
    with open_store(root, "a", COMPACTED) as store:
        for topic_partition, count in ((A, 8), (B, 8), (C, 8)):
            store.create_topic(topic_partition.topic)
            put(store, topic_partition, count)
        store.log("a").compact(now_ms=NOW_MS, is_forced=True)
        store.log("c").compact(now_ms=NOW_MS, is_forced=True)
        put(store, A, 3)
        put(store, C, 9)
        ratios = {one: store.log(*one).cleanable(NOW_MS).dirty_ratio for one in store.partitions}
        report = store.run_maintenance(NOW_MS)
        assert list(report.compactions) == sorted(ratios, key=ratios.__getitem__, reverse=True)
        assert list(report.compactions) == [B, C, A]
        assert store.metrics()["max-dirty-percent"] == 100


def test_damaged_log_is_uncleanable_until_its_settings_change_and_stops_no_other(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_store(root, "a", COMPACTED) as store:
        for topic_partition in (A, B):
            store.create_topic(topic_partition.topic)
            put(store, topic_partition, 8)
            store.log(*topic_partition).flush()
        flip_bit(root / "a-0" / "00000000000000000000.log", 100, bit=3)
        with caplog.at_level(logging.ERROR):
            report = store.run_maintenance(NOW_MS)
        assert list(report.compactions) == [B]
        assert isinstance(report.failures[A], CorruptRecordError)
        assert any("a-0" in message for message in caplog.messages)
        assert store.metrics()["uncleanable-partitions-count"] == 1
        assert not store.run_maintenance(NOW_MS).failures
        store.change_topic_config("a", {"min_cleanable_dirty_ratio": 0.02})
        assert store.metrics()["uncleanable-partitions-count"] == 0
        assert list(store.run_maintenance(NOW_MS).failures) == [A]


def test_topic_of_an_interrupted_deletion_is_cleaned_once_it_is_created_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close_and_interrupt(log: WritableLog) -> None:
        close(log)
        raise KeyboardInterrupt

    close = WritableLog.close
    with open_store(root, "a", COMPACTED) as store:
        store.create_topic(A.topic)
        put(store, A, 8)
        store.log(*A).flush()
        flip_bit(root / "a-0" / "00000000000000000000.log", 100, bit=3)
        assert list(store.run_maintenance(NOW_MS).failures) == [A]
        monkeypatch.setattr(WritableLog, "close", close_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            store.delete_topic(A.topic)
        monkeypatch.undo()
        store.delete_topic(A.topic)
        assert store.metrics()["uncleanable-partitions-count"] == 0
        store.create_topic(A.topic)
        put(store, A, 8)
        assert list(store.run_maintenance(NOW_MS).compactions) == [A]


def test_failed_log_is_reported_and_the_others_go_on(root: Path) -> None:
    env = FaultyEnv()
    with open_store(root, "a", LogConfig(segment_bytes=300, **WEEK), env=env) as store:
        for topic_partition in (A, B):
            store.create_topic(topic_partition.topic)
            put(store, topic_partition, 6, timestamp_ms=NOW_MS - 30 * DAY_MS)
        store.log("a")._gate.fail(OSError("a call failed"))
        report = store.run_maintenance(NOW_MS)
        assert list(report.failures) == [A]
        assert list(report.deleted_segments) == [B]
        assert store.metrics()["OfflineReplicaCount"] == 1


def test_pass_under_an_nth_call_that_fails_loses_nothing_that_is_not_due(root: Path, tmp_path: Path) -> None:
    """Retention and compaction with one call that fails: the next opening finds what is due gone or there, no more."""
    config = LogConfig(segment_bytes=300, file_delete_delay_ms=0, **WEEK)
    number, step = 1, 31
    while True:
        place = tmp_path / f"root-{number}"
        env = FaultyEnv()
        store = open_store(place, "a", config, env=env)
        store.create_topic("a")
        store.create_topic("b", config=COMPACTED)
        put(store, A, 4, timestamp_ms=NOW_MS - 30 * DAY_MS)
        put(store, A, 2)
        put(store, B, 6)
        first = env.calls
        env.arm(Fault(number, "EIO", is_for_good=False))
        report = store.run_maintenance(NOW_MS)
        was_met = env.calls >= first + number
        env.heal()
        store.close()
        with open_store(place, "a", config) as again:
            assert not again.refused
            kept = [one.offset for one in again.log("a").read()]
            assert kept[-2:] == [4, 5]
            assert kept == list(range(kept[0], 6))
            newest = {one.key: one.offset for one in again.log("b").read()}
            assert newest == {b"k0": 4, b"k1": 5}
            after = again.run_maintenance(NOW_MS)
            assert not after.failures
            assert again.log("a").log_start_offset == 4
        if not was_met:
            assert not report.failures
            break
        number += step


def test_closed_store_runs_nothing(root: Path) -> None:
    store = open_store(root, "a")
    store.start_maintenance()
    store.close()
    with pytest.raises(LogClosedError):
        store.run_maintenance()
    with pytest.raises(LogClosedError):
        store.metrics()
    assert not [one for one in threading.enumerate() if one.name == "kstore-upkeep"]


def test_thread_does_the_tasks_at_their_intervals_until_it_is_stopped(root: Path) -> None:
    soon = MaintenanceIntervals(*[1] * len(MaintenanceIntervals._fields))
    with open_store(root, "a", LogConfig(segment_bytes=300, file_delete_delay_ms=0, **WEEK)) as store:
        store.create_topic("a")
        put(store, A, 6, timestamp_ms=1000)
        store.create_topic("b")
        store.start_maintenance(soon)
        with pytest.raises(ValueError, match="already"):
            store.start_maintenance()
        wait_until(lambda: store.log("a").log_start_offset == 6)
        store.delete_topic("b")
        wait_until(lambda: not list(root.glob("*-delete")))
        store.stop_maintenance()
        assert not [thread for thread in threading.enumerate() if thread.name == "kstore-upkeep"]
        put(store, A, 3, timestamp_ms=1000)
        assert store.log("a").log_start_offset == 6
        assert store.run_maintenance().deleted_segments
        with pytest.raises(ValueError, match="at least 1"):
            store.start_maintenance(MaintenanceIntervals(flush_ms=0))


class SleepNotingEnv(LocalEnv):
    """Notes that a throttled compaction sleeps."""

    def __init__(self) -> None:
        self.sleeps = threading.Event()

    def sleep_ms(self, duration_ms: float) -> None:
        self.sleeps.set()
        super().sleep_ms(duration_ms)


def test_close_stops_a_compaction_that_is_throttled(root: Path) -> None:
    env = SleepNotingEnv()
    store = open_store(root, "a", COMPACTED, env=env)
    store.create_topic("a")
    put(store, A, 30)
    # It would take hours.
    store.start_maintenance(MaintenanceIntervals(compact_ms=1), max_bytes_per_second=1)
    with ending(60):
        assert env.sleeps.wait(30)
        store.close()
    with open_store(root) as reader:
        assert len(list(reader.log("a").read())) == 30


def test_checkpoint_of_the_cleaner_above_the_log_end_is_reset_when_a_log_is_opened(root: Path) -> None:
    with open_store(root, "a", COMPACTED) as store:
        store.create_topic("a")
        put(store, A, 4)
    (root / "cleaner-offset-checkpoint").write_text("0\n1\na 0 400\n")
    with open_store(root, "a", COMPACTED) as store:
        store.log("a")
        assert (root / "cleaner-offset-checkpoint").read_text() == "0\n1\na 0 0\n"
        put(store, A, 8)
        assert store.log("a").cleanable(NOW_MS).first_dirty_offset == 0


# Metrics


def test_metrics_count_what_was_appended_and_flushed(root: Path) -> None:
    with open_store(root, "a", LogConfig(segment_bytes=400)) as store:
        store.create_topic("a")
        store.create_topic("b")
        put(store, A, 6)
        log = store.log("a")
        flushes = store.metrics()["LogFlushRateAndTimeMs.Count"]
        log.flush()
        found = store.metrics()
        assert found["LogEndOffset"] == {A: 6}
        assert found["NumLogSegments"] == {A: len(log.segments)}
        assert found["Size"] == {A: log.size_in_bytes}
        assert found["MessagesInPerSec.Count"] == 6
        assert found["BytesInPerSec.Count"] == log.size_in_bytes
        assert found["LogFlushRateAndTimeMs.Count"] == flushes + 1
        assert found["PartitionCount"] == 2
        size = log.size_in_bytes
        log.truncate_to(3)
        log.close()
        put(store, A, 1)
        assert store.metrics()["MessagesInPerSec.Count"] == 7
        assert store.metrics()["BytesInPerSec.Count"] > size
        store.delete_topic("a")
        assert store.metrics()["MessagesInPerSec.Count"] == 7
        assert store.metrics()["LogEndOffset"] == {}


def test_metrics_are_exported_to_prometheus(root: Path) -> None:
    prometheus = pytest.importorskip("prometheus_client")
    registry = prometheus.CollectorRegistry()
    with open_store(root, "a") as store:
        store.create_topic("a")
        put(store, A, 3)
        registry.register(StoreCollector(store))
        text = prometheus.generate_latest(registry).decode()
        assert 'kstore_log_end_offset{partition="0",topic="a"} 3.0' in text
        assert "kstore_messages_in_per_sec_total 3.0" in text
        assert "kstore_uncleanable_partitions_count 0.0" in text
    assert prometheus.generate_latest(registry) == b""


def test_names_in_prometheus() -> None:
    names = ["LogFlushRateAndTimeMs.Max", "max-dirty-percent", "BytesInPerSec.Count"]
    assert [prometheus_name(name) for name in names] == [
        "kstore_log_flush_rate_and_time_ms_max",
        "kstore_max_dirty_percent",
        "kstore_bytes_in_per_sec",
    ]


# Descriptors


def test_topics_that_were_created_and_deleted_leave_nothing_in_memory(root: Path) -> None:
    def counts() -> list[int]:
        gc.collect()
        there = gc.get_objects()
        return [sum(type(one) is kind for one in there) for kind in (WritableLog, LocalLog, WriterSlot)]

    with open_store(root, "a", LogConfig(file_delete_delay_ms=0)) as store:
        store.create_topic("kept", 3)
        logs_before, locals_before, slots_before = counts()
        for number in range(60):
            store.create_topic(f"t{number}")
            put(store, TopicPartition(f"t{number}", 0), 1)
            store.delete_topic(f"t{number}")
        logs, locals_, slots = counts()
        assert (logs, locals_) == (logs_before, locals_before)
        assert slots - slots_before <= 16


def test_logs_beyond_the_limit_give_their_descriptors_up_and_go_on(root: Path) -> None:
    with open_store(root, "a", LogConfig(segment_bytes=2000), max_open_files=2) as store:
        store.create_topic("a", 6)
        logs = [store.log("a", number) for number in range(6)]
        for turn in range(8):
            for log in logs:
                log.append([Record(offset=0, timestamp_ms=NOW_MS, key=b"k", value=b"v" * 200)])
                assert log.log_end_offset == turn + 1
            assert sum(log._local.active.records._writer is not None for log in logs) <= 2
        logs[0].truncate_to(5)
        assert [len(list(log.read())) for log in logs] == [5, 8, 8, 8, 8, 8]
    with open_store(root) as reader:
        assert [reader.log("a", number).log_end_offset for number in range(6)] == [5, 8, 8, 8, 8, 8]


def test_parked_log_whose_file_was_replaced_takes_no_append(root: Path) -> None:
    with open_store(root, "a", max_open_files=1) as store:
        store.create_topic("a", 2)
        put(store, A, 1)
        first, second = store.log("a"), store.log("a", 1)
        second.append([Record(offset=0, timestamp_ms=1, value=b"v")])
        path = Path(first.segments[-1].path)
        content = path.read_bytes()
        path.rename(path.with_suffix(".away"))
        path.write_bytes(content)
        with pytest.raises(Exception, match="removed or replaced"):
            first.append([Record(offset=0, timestamp_ms=1, value=b"v")])
        assert path.read_bytes() == content
        path.with_suffix(".away").rename(path)


def test_parked_file_that_a_flush_and_an_append_open_at_once_is_opened_once(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(root, "a", max_open_files=1) as store:
        store.create_topic("a", 2)
        put(store, A, 1)
        log = store.log("a")
        store.log("a", 1).append([Record(offset=0, timestamp_ms=1, value=b"v")])
        records = log._local.active.records
        assert records._writer is None
        open_again = type(records)._reopened
        appends = [threading.Thread(target=put, args=(store, A, 1))]

        def reopened(self: FileRecords) -> WriteFile:
            for thread in appends[:]:
                appends.clear()
                thread.start()
                thread.join()
            return open_again(self)

        monkeypatch.setattr(FileRecords, "_reopened", reopened)
        assert log.flush() >= 1
        put(store, A, 1)
        assert (log.log_end_offset, log.has_failed) == (3, False)


def test_log_is_flushed_before_its_descriptor_is_given_up(root: Path) -> None:
    class SyncNotingEnv(FaultyEnv):
        def __init__(self) -> None:
            super().__init__()
            self.synced: list[str] = []

        def check(self, call: str, path: str) -> bool:
            if call == "sync" and path.endswith(".log"):
                self.synced.append(path)
            return super().check(call, path)

    env = SyncNotingEnv()
    with open_store(root, "a", max_open_files=1, env=env) as store:
        store.create_topic("a", 2)
        put(store, A, 1)
        env.synced.clear()
        store.log("a", 1).append([Record(offset=0, timestamp_ms=1, value=b"v")])
        assert [Path(path).parent.name for path in env.synced] == ["a-0"]


class UnwritableEnv(LocalEnv):
    """No checkpoint can be replaced."""

    is_armed = False

    def rename(self, source: str, target: str) -> None:
        if self.is_armed and target.endswith("recovery-point-offset-checkpoint"):
            raise StorageError(f"cannot rename {source}", path=source, errno=5)
        super().rename(source, target)


def test_checkpoints_that_cannot_be_written_are_reported_as_the_failure_of_no_partition(root: Path) -> None:
    env = UnwritableEnv()
    with open_store(root, "a", env=env) as store:
        store.create_topic("a")
        assert store.run_maintenance(NOW_MS).checkpoint_failure is None
        put(store, A, 1)
        store.log("a").flush()
        env.is_armed = True
        report = store.run_maintenance(NOW_MS)
        assert "cannot rename" in str(report.checkpoint_failure)
        assert report.failures == {}
        env.is_armed = False


def test_settings_that_do_not_fit_the_store_stop_only_their_log(root: Path) -> None:
    with open_store(root, "a") as store:
        for name in "ab":
            store.create_topic(name)
        store.change_topic_config("a", {"min_compaction_lag_ms": 1000})
        store.change_topic_config("b", {"retention_ms": 1})
        for one in (A, B):
            put(store, one, 1, timestamp_ms=1)
    (root / ".kafka_cleanshutdown").unlink()
    with open_store(root, "a", LogConfig(max_compaction_lag_ms=500)) as store:
        assert list(store.recovery_reports) == [B]
        report = store.run_maintenance()
        assert list(report.failures) == [A]
        assert isinstance(report.failures[A], TopicSettingsError)
        assert list(report.deleted_segments) == [B]
        with pytest.raises(TopicSettingsError, match="settings of topic 'a': min_compaction_lag_ms"):
            store.log("a")
        store.change_topic_config("a", {}, reset=["min_compaction_lag_ms"])
        assert store.log("a").recovery_report is not None
        assert store.log("a").log_end_offset == 1


def test_an_error_of_another_kind_stops_only_its_log(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_store(root, "a") as store:
        for name in "ab":
            store.create_topic(name, config=COMPACTED)
            put(store, TopicPartition(name, 0), 10)
        store.change_topic_config("a", {"cleaner_dedupe_buffer_bytes": 2**40})
        report = store.run_maintenance(NOW_MS)
    assert list(report.compactions) == [B]
    assert isinstance(report.failures[A], MemoryError)
    assert "compaction of a-0 failed: MemoryError" in caplog.text


def test_an_error_of_the_callers_own_function_ends_the_pass(root: Path) -> None:
    def ask() -> bool:
        calls.append(1)
        if len(calls) > 3:
            raise RuntimeError("of the caller")
        return False

    calls: list[int] = []
    with open_store(root, "a") as store:
        store.create_topic("a", config=COMPACTED)
        put(store, A, 10)
        with pytest.raises(RuntimeError, match="of the caller"):
            store.run_maintenance(NOW_MS, should_stop=ask)
        assert list(store.run_maintenance(NOW_MS).compactions) == [A]


@pytest.mark.parametrize("rate", [0, -1, float("nan")])
def test_a_rate_that_is_not_above_0_is_refused_at_once(root: Path, rate: float) -> None:
    with open_store(root, "a") as store:
        for start in (store.run_maintenance, store.start_maintenance):
            with pytest.raises(ValueError, match="max_bytes_per_second must be above 0"):
                start(max_bytes_per_second=rate)


def test_a_map_without_room_for_a_key_is_refused() -> None:
    LogConfig(cleaner_dedupe_buffer_bytes=1024, cleaner_dedupe_buffer_load_factor=0.03)
    with pytest.raises(ValueError, match="has room for no key"):
        LogConfig(cleaner_dedupe_buffer_bytes=1024, cleaner_dedupe_buffer_load_factor=0.01)


@pytest.mark.parametrize("close", [WritableStore.close, WritableStore.stop_maintenance, WritableStore.run_maintenance])
def test_a_call_from_within_a_pass_does_not_wait_for_itself(
    root: Path, close: Callable[[WritableStore], object]
) -> None:
    """As a signal handler makes it, in the thread that runs the pass."""

    def ask() -> bool:
        calls.append(1)
        if len(calls) == 4:
            close(store)
            assert not store.is_closed
        return False

    calls: list[int] = []
    store = open_store(root, "a")
    store.create_topic("a", config=COMPACTED)
    put(store, A, 10)
    with ending(10):
        report = store.run_maintenance(NOW_MS, should_stop=ask)
    assert report.is_stopped is (close is not WritableStore.run_maintenance)
    assert store.is_closed is (close is WritableStore.close)
    store.close()
    assert (root / ".kafka_cleanshutdown").exists()


def test_a_handler_of_log_messages_closes_the_store_from_the_thread(root: Path) -> None:
    class Closing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "failed" in record.getMessage():
                store.close()

    store = open_store(root, "a")
    store.create_topic("a", config=COMPACTED)
    put(store, A, 10)
    store.change_topic_config("a", {"cleaner_dedupe_buffer_bytes": 2**40})
    handler, logger = Closing(), logging.getLogger("kstore.log")
    logger.addHandler(handler)
    try:
        store.start_maintenance(MaintenanceIntervals(compact_ms=1))
        wait_until(lambda: store.is_closed)
    finally:
        logger.removeHandler(handler)
    assert store.is_closed


def test_several_threads_stop_the_maintenance(root: Path) -> None:
    with open_store(root, "a") as store, ending(30):
        for _ in range(50):
            store.start_maintenance(MaintenanceIntervals(flush_ms=1))
            threads = [threading.Thread(target=store.stop_maintenance) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()


def test_an_interrupt_of_a_stop_leaves_passes_by_hand_as_they_are(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_wait = Latch.wait

    def interrupted(latch: Latch, timeout_s: float | None = None) -> bool:
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        return real_wait(latch, timeout_s)

    with open_store(root, "a", LogConfig(**WEEK)) as store:
        store.create_topic("a")
        put(store, A, 1, timestamp_ms=1)
        store.start_maintenance()
        with monkeypatch.context() as patched:
            patched.setattr(Latch, "wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                store.stop_maintenance()
        report = store.run_maintenance()
        assert (list(report.deleted_segments), report.is_stopped) == ([A], False)
        store.stop_maintenance()
        store.start_maintenance()


@contextmanager
def ending(seconds: float) -> Iterator[None]:
    """End the process with the stacks of all threads if the body does not end."""
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
