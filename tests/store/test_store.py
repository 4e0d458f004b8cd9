"""Goal: a root that kstore writes has Kafka's files, is marked clean only when it is, and loses nothing when it is not.
Method: real roots in temporary folders; a crash is a copy of the root taken while the store is open."""

from __future__ import annotations

import os
import shutil
import threading
import uuid
from math import inf
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import Record, TimestampType, open_log
from kstore.config import LogConfig
from kstore.env import LocalEnv, WriteFile
from kstore.errors import (
    CorruptCheckpointError,
    CorruptLogError,
    LogClosedError,
    LogFailedError,
    LogLockedError,
    LogNotFoundError,
    StorageError,
)
from kstore.log.files.durable_point import DurablePoint, DurablePointFile
from kstore.log.files.root_files import MetaProperties, id_text, read_meta_properties, write_meta_properties
from kstore.store.store import WritableStore, open_store
from kstore.types import TopicPartition
from tests.making.batches import flip_bit

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
CLEAN = ".kafka_cleanshutdown"
TOPIC_ID = uuid.UUID("4c4af588-d5fc-410b-8b6b-61f367f82e62")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def record(value: bytes) -> Record:
    return Record(offset=0, timestamp_ms=1000, timestamp_type=TimestampType.CREATE_TIME, key=None, value=value)


def put(store: WritableStore, topic_partition: TopicPartition, count: int = 1) -> None:
    for number in range(count):
        store.log(*topic_partition).append([record(b"%d" % number)])


def values(root: Path, topic_partition: TopicPartition) -> list[bytes | None]:
    with open_store(root) as store:
        return [one.value for one in store.log(*topic_partition).read()]


def checkpoint(root: Path, name: str) -> list[str]:
    lines = (root / name).read_text().splitlines()
    assert lines[:2] == ["0", str(len(lines) - 2)]
    return sorted(lines[2:])


@pytest.fixture
def two_topics(root: Path) -> Path:
    """t with 2 partitions and u; 3 records in t-1, closed."""
    with open_store(root, "a") as store:
        store.create_topic("t", 2)
        store.create_topic("u")
        put(store, T1, 3)
    return root


def crashed(store: WritableStore, to: Path) -> Path:
    """The root as the end of the process would leave it now."""
    shutil.copytree(store.root, to)
    return to


def test_new_topic_has_a_directory_for_each_partition(root: Path) -> None:
    with open_store(root, "a") as store:
        topic_id = store.create_topic("t", 2)
        assert (store.topics, store.partitions) == (("t",), (T0, T1))
        assert store.topic_id("t") == topic_id
    for name in ("t-0", "t-1"):
        metadata = (root / name / "partition.metadata").read_text()
        assert metadata == f"version: 0\ntopic_id: {id_text(topic_id)}"
        assert (root / name / "00000000000000000000.log").stat().st_size == 0


@pytest.mark.parametrize("given", [TOPIC_ID, id_text(TOPIC_ID)], ids=["uuid", "text"])
def test_topic_takes_the_id_that_a_cluster_knows_it_by(root: Path, given: uuid.UUID | str) -> None:
    with open_store(root, "a") as store:
        assert store.create_topic("t", topic_id=given) == TOPIC_ID
    with open_store(root) as reader:
        assert reader.topic_id("t") == TOPIC_ID


REFUSED_TOPICS = [
    pytest.param({"name": "t"}, "already exists", id="existing"),
    pytest.param({"name": "a/b"}, "a topic name", id="slash"),
    pytest.param({"name": ".."}, "a topic name", id="dots"),
    pytest.param({"name": "x" * 250}, "a topic name", id="long"),
    pytest.param({"name": "__cluster_metadata"}, "a topic name", id="krafts-own"),
    pytest.param({"name": "x", "partitions": 0}, "partitions", id="no-partition"),
    pytest.param({"name": "x", "topic_id": "short"}, "22 characters", id="no-id"),
]


@pytest.mark.parametrize(("arguments", "reason"), REFUSED_TOPICS)
def test_impossible_topic_is_refused_and_nothing_is_made(root: Path, arguments: dict[str, object], reason: str) -> None:
    with open_store(root, "a") as store:
        store.create_topic("t")
        before = sorted(os.listdir(root))
        with pytest.raises(ValueError, match=reason):
            store.create_topic(**arguments)  # type: ignore[arg-type]
        assert sorted(os.listdir(root)) == before


def test_checkpoints_say_how_far_logs_are_flushed_and_where_they_start(root: Path) -> None:
    with open_store(root, "a") as store:
        store.create_topic("t", 2)
        put(store, T1, 3)
        store.checkpoint()
        assert checkpoint(root, "recovery-point-offset-checkpoint") == ["t 0 0", "t 1 0"]
        store.log(*T1).flush()
        store.log(*T1).delete_records(2)
        store.checkpoint()
        assert checkpoint(root, "recovery-point-offset-checkpoint") == ["t 0 0", "t 1 3"]
        assert checkpoint(root, "replication-offset-checkpoint") == ["t 0 0", "t 1 3"]
        assert checkpoint(root, "log-start-offset-checkpoint") == ["t 1 2"]
    assert values(root, T1) == [b"2"]


def test_checkpoint_keeps_what_it_says_of_logs_that_were_not_opened_and_forgets_those_that_are_gone(
    two_topics: Path,
) -> None:
    shutil.rmtree(two_topics / "u-0")
    with open_store(two_topics, "a") as store:
        put(store, T0)
    assert checkpoint(two_topics, "recovery-point-offset-checkpoint") == ["t 0 1", "t 1 3"]
    assert checkpoint(two_topics, "replication-offset-checkpoint") == ["t 0 1", "t 1 3"]


def left_marks_behind(root: Path) -> None:
    """Remove t-0 when the checkpoints say that it starts at 2 and is flushed up to 3."""
    with open_store(root, "a") as store:
        store.create_topic("t")
        put(store, T0, 3)
        store.log(*T0).delete_records(2)
    shutil.rmtree(root / "t-0")


def test_new_topic_starts_at_0_where_one_of_its_name_was_removed(root: Path, tmp_path: Path) -> None:
    left_marks_behind(root)
    with open_store(root, "a") as store:
        store.create_topic("t")
        log = store.log(*T0)
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, 0, 0)
        put(store, T0)
        copy = crashed(store, tmp_path / "copy")
    with open_store(copy, "a") as again:
        assert not again.refused
    assert values(root, T0) == values(copy, T0) == [b"0"]


def test_log_made_in_place_of_a_removed_one_starts_at_0(root: Path) -> None:
    left_marks_behind(root)
    with open_log(root / "t-0", "a") as log:
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, 0, 0)


def test_malformed_checkpoint_is_written_anew(two_topics: Path) -> None:
    (two_topics / "recovery-point-offset-checkpoint").write_bytes(bytes(64))
    with open_store(two_topics, "a") as store:
        put(store, T0)
    assert checkpoint(two_topics, "recovery-point-offset-checkpoint") == ["t 0 1"]
    assert values(two_topics, T1) == [b"0", b"1", b"2"]


def test_root_is_marked_clean_only_while_no_writer_has_it(two_topics: Path) -> None:
    assert (two_topics / CLEAN).read_bytes() == b'{"version":0,"brokerEpoch":-1}'
    store = open_store(two_topics, "a")
    assert not (two_topics / CLEAN).exists()
    put(store, T0)
    assert not (two_topics / CLEAN).exists()
    store.close()
    assert (two_topics / CLEAN).exists()
    with open_store(two_topics):
        assert (two_topics / CLEAN).exists()


def test_store_waits_for_the_one_that_has_its_root(two_topics: Path) -> None:
    class ClosingEnv(LocalEnv):
        def sleep_ms(self, duration_ms: float) -> None:  # noqa: ARG002
            store.close()

    store = open_store(two_topics, "a")
    with pytest.raises(LogLockedError, match="another log or store of this process") as caught:
        open_store(two_topics, "a", env=ClosingEnv())
    assert caught.value.holder_pid is None
    with open_store(two_topics, "a", timeout=60, env=ClosingEnv()) as waited:
        assert store.is_closed
        assert not waited.is_closed


def test_log_waits_for_the_one_that_has_its_directory(two_topics: Path) -> None:
    class ClosingEnv(LocalEnv):
        def sleep_ms(self, duration_ms: float) -> None:  # noqa: ARG002
            holder.close()

    for path in (two_topics / "new-0", two_topics / str(T0)):
        holder: Any = kstore.open_log(path, "a") if path.exists() else open_store(two_topics, "a")
        with pytest.raises(LogLockedError):
            kstore.open_log(path, "a", env=ClosingEnv())
        with kstore.open_log(path, "a", timeout=60, env=ClosingEnv()) as waited:
            assert not waited.is_closed
    with pytest.raises(ValueError, match="timeout must be"):
        kstore.open_log(two_topics / "other-0", "a", timeout=-1)
    assert not (two_topics / "other-0").exists()


@pytest.mark.parametrize(("timeout", "error"), [(-1, ValueError), (inf, ValueError), ("5", TypeError)])
def test_impossible_timeout_of_an_opening_is_refused(tmp_path: Path, timeout: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="timeout must be"):
        open_store(tmp_path / "root", "a", timeout=timeout)
    assert not (tmp_path / "root").exists()


def test_epoch_of_the_broker_before_is_kept(two_topics: Path) -> None:
    (two_topics / CLEAN).write_text('{"version":0,"brokerEpoch":12}')
    open_store(two_topics, "a").close()
    assert (two_topics / CLEAN).read_text() == '{"version":0,"brokerEpoch":12}'


def test_log_opened_after_a_clean_shutdown_is_not_recovered(two_topics: Path) -> None:
    with open_store(two_topics, "a") as store:
        assert store.recovery_reports == {}
        assert store.log(*T1).log_end_offset == 3


def test_every_log_of_a_crashed_root_is_recovered_and_no_written_record_is_lost(root: Path, tmp_path: Path) -> None:
    with open_store(root, "a") as store:
        store.create_topic("t", 2)
        put(store, T0, 2)
        put(store, T1, 3)
        image = crashed(store, tmp_path / "image")
    with (image / "t-1" / "00000000000000000000.log").open("ab") as log:
        log.write(b"\0\0\0torn")
    with open_store(image, "a") as store:
        assert sorted(store.recovery_reports) == [T0, T1]
        assert [store.recovery_reports[one].truncated_bytes for one in (T0, T1)] == [0, 7]
        put(store, T1)
    assert values(image, T0) == [b"0", b"1"]
    assert values(image, T1) == [b"0", b"1", b"2", b"0"]
    assert (image / CLEAN).exists()


@pytest.fixture
def damaged(root: Path, tmp_path: Path) -> Path:
    """A crashed root; in t-1, a byte is wrong that was flushed."""
    with open_store(root, "a") as store:
        store.create_topic("t", 2)
        put(store, T1, 5)
        store.log(*T1).flush()
        store.checkpoint()
        image = crashed(store, tmp_path / "image")
    flip_bit(image / "t-1" / "00000000000000000000.log", 100, bit=3)
    return image


def test_log_that_strict_recovery_refuses_stays_as_it_is_and_the_others_are_written(damaged: Path) -> None:
    before = (damaged / "t-1" / "00000000000000000000.log").read_bytes()
    with open_store(damaged, "a") as store:
        assert list(store.refused) == [T1]
        with pytest.raises(CorruptLogError, match="t-1"):
            store.log(*T1)
        put(store, T0)
    assert (damaged / "t-1" / "00000000000000000000.log").read_bytes() == before
    assert not (damaged / CLEAN).exists()
    assert values(damaged, T0) == [b"0"]
    assert checkpoint(damaged, "recovery-point-offset-checkpoint") == ["t 0 1", "t 1 5"]


def test_recovery_to_a_point_in_time_cuts_where_kafka_does(damaged: Path) -> None:
    with open_store(damaged, "a", recovery="point_in_time") as store:
        assert store.refused == {}
        assert store.log(*T1).log_end_offset < 5
        put(store, T1)
    assert (damaged / CLEAN).exists()


def test_flushed_segments_are_taken_as_they_are_if_the_recovery_point_is_trusted(root: Path, tmp_path: Path) -> None:
    with open_store(root, "a") as store:
        store.create_topic("t")
        put(store, T0, 3)
        store.log(*T0).roll()
        put(store, T0, 2)
        store.checkpoint()
        image = crashed(store, tmp_path / "image")
    flip_bit(image / "t-0" / "00000000000000000000.log", 100, bit=3)
    with open_store(image, "a") as store:
        assert list(store.refused) == [T0]
    with open_store(image, "a", trusts_recovery_point=True) as store:
        assert store.refused == {}
        assert [record.offset for record in store.log(*T0).read(3)] == [3, 4]


class FailingEnv(LocalEnv):
    """Syncs of a file fail once a part of its path is here."""

    def __init__(self) -> None:
        self.failing: tuple[str, ...] = ()

    def open_write(self, path: str) -> WriteFile:
        file = super().open_write(path)
        return FailingFile(file, self)


class FailingFile(WriteFile):
    def __init__(self, file: WriteFile, env: FailingEnv) -> None:
        super().__init__(os.dup(file.fileno()), path=file.path, is_new=file.is_new)
        file.close()
        self._env = env

    def sync(self) -> None:
        if any(part in self.path for part in self._env.failing):
            raise StorageError(f"cannot sync {self.path}", path=self.path, errno=5)
        super().sync()


def test_failed_log_keeps_the_root_from_being_marked_clean(root: Path) -> None:
    env = FailingEnv()
    store = open_store(root, "a", env=env)
    store.create_topic("t", 2)
    put(store, T0)
    put(store, T1)
    env.failing = ("t-1/00000000000000000000.log",)
    with pytest.raises(StorageError):
        store.log(*T1).flush()
    with pytest.raises(LogFailedError):
        put(store, T1)
    put(store, T0)
    store.close()
    assert not (root / CLEAN).exists()
    assert checkpoint(root, "recovery-point-offset-checkpoint") == ["t 0 2", "t 1 0"]
    env.failing = ()
    with open_store(root, "a", env=env) as again:
        assert sorted(again.recovery_reports) == [T0, T1]
    assert values(root, T1) == [b"0"]


def test_failed_log_that_is_asked_for_again_is_recovered(root: Path) -> None:
    env = FailingEnv()
    store = open_store(root, "a", LogConfig(), recovery="point_in_time", env=env)
    store.create_topic("t")
    put(store, T0, 2)
    env.failing = ("t-0/00000000000000000000.log",)
    with pytest.raises(StorageError):
        store.log(*T0).flush()
    store.log(*T0).close()
    env.failing = ()
    # What the failed sync has dropped.
    data = root / "t-0" / "00000000000000000000.log"
    flip_bit(data, data.stat().st_size - 1, bit=0)
    assert [one.value for one in store.log(*T0).read()] == [b"0"]
    store.close()
    assert (root / CLEAN).exists()


def test_log_that_fails_while_it_is_closed_does_so_too_and_all_are_closed(root: Path) -> None:
    env = FailingEnv()
    store = open_store(root, "a", env=env)
    store.create_topic("t", 2)
    put(store, T0)
    put(store, T1)
    logs = [store.log(*one) for one in (T0, T1)]
    env.failing = ("t-0/00000000000000000000.log",)
    with pytest.raises(StorageError, match="cannot sync"):
        store.close()
    assert [log.is_closed for log in logs] == [True, True]
    assert not (root / CLEAN).exists()
    open_store(root, "a").close()


def test_error_of_closing_a_log_is_not_lost_if_the_checkpoints_fail_too(root: Path) -> None:
    env = FailingEnv()
    store = open_store(root, "a", env=env)
    store.create_topic("t", 2)
    put(store, T0)
    env.failing = ("t-0/00000000000000000000.log", "checkpoint.tmp")
    with pytest.raises(StorageError, match=r"cannot sync .*checkpoint\.tmp") as caught:
        store.close()
    assert "cannot sync" in str(caught.value.__context__)
    assert "t-0/00000000000000000000.log" in str(caught.value.__context__)
    assert not (root / CLEAN).exists()
    open_store(root, "a").close()


def test_first_of_several_errors_of_closing_is_raised_and_the_others_are_logged(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = FailingEnv()
    store = open_store(root, "a", env=env)
    store.create_topic("t", 2)
    put(store, T0)
    put(store, T1)
    env.failing = ("00000000000000000000.log",)
    with pytest.raises(StorageError, match=r"cannot sync .*t-0/"):
        store.close()
    assert all(f"cannot sync {root}/{one}/" in caplog.text for one in (T0, T1))
    open_store(root, "a").close()


def test_store_that_cannot_write_its_checkpoints_leaves_what_strict_recovery_needs(root: Path) -> None:
    env = FailingEnv()
    store = open_store(root, "a", env=env)
    store.create_topic("t")
    put(store, T0)
    store.log(*T0).flush()
    env.failing = ("checkpoint.tmp",)
    with pytest.raises(StorageError, match="cannot sync"):
        store.close()
    flip_bit(root / "t-0" / "00000000000000000000.log", -1, bit=0)
    with open_store(root, "a") as again:
        assert list(again.refused) == [T0]


def test_clean_root_has_no_durable_point(two_topics: Path) -> None:
    """It would not describe what a broker does to the logs after that."""
    with open_store(two_topics, "a") as store:
        put(store, T1)
        store.log(*T1).flush()
        assert (two_topics / "t-1" / "kstore-durable-point").exists()
        store.log(*T1).close()
        assert (two_topics / "t-1" / "kstore-durable-point").exists()
    assert list(two_topics.rglob("kstore-durable-point")) == []


def test_second_writer_of_a_root_is_refused(two_topics: Path) -> None:
    with open_store(two_topics, "a"):
        with pytest.raises(LogLockedError):
            open_store(two_topics, "a")
        with pytest.raises(LogLockedError):
            open_log(two_topics / "t-0", "a")
        assert values(two_topics, T1) == [b"0", b"1", b"2"]
    with open_log(two_topics / "t-0", "a"), pytest.raises(LogLockedError):
        open_store(two_topics, "a")
    open_store(two_topics, "a").close()


def test_child_of_fork_writes_nothing(two_topics: Path) -> None:
    store = open_store(two_topics, "a")
    pid = os.fork()
    if pid == 0:
        refusals = 0
        for call in (lambda: store.create_topic("x"), store.checkpoint, store.close):
            try:
                call()
            except LogLockedError:
                refusals += 1
        os._exit(refusals)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    assert not (two_topics / "x-0").exists()
    put(store, T0)
    store.close()
    assert (two_topics / CLEAN).exists()


def test_log_is_one_for_all_until_it_is_closed(two_topics: Path) -> None:
    with open_store(two_topics, "a") as store:
        found: list[object] = []
        threads = [threading.Thread(target=lambda: found.append(store.log(*T0))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(map(id, found))) == 1
        store.log(*T0).close()
        put(store, T0)
        assert store.log(*T0) is not found[0]
    assert values(two_topics, T0) == [b"0"]
    assert (two_topics / CLEAN).exists()


def test_settings_are_those_given_for_the_topic(two_topics: Path) -> None:
    of_t, of_others = LogConfig(segment_bytes=1000), LogConfig(segment_bytes=2000)
    for mode in ("r", "a"):
        with open_store(two_topics, mode, of_others, topic_configs={"t": of_t}) as store:
            assert store.log(*T0).config == of_t
            assert store.log(*U0).config == of_others
            if isinstance(store, WritableStore):
                store.create_topic("v", config=of_t)
                assert store.log("v").config == of_t


@pytest.mark.parametrize("mode", ["r", "a"])
def test_missing_topics_and_partitions_are_not_found(two_topics: Path, mode: str) -> None:
    with open_store(two_topics, mode) as store:
        for call in (lambda: store.log("x"), lambda: store.log("t", 2), lambda: store.topic_id("x")):
            with pytest.raises(LogNotFoundError):
                call()


@pytest.mark.parametrize("mode", ["r", "a"])
def test_closed_store_says_so(two_topics: Path, mode: str) -> None:
    store = open_store(two_topics, mode)
    log = store.log(*T1)
    store.close()
    store.close()
    for call in (lambda: store.log(*T1), log.read):
        with pytest.raises(LogClosedError):
            call()


def test_root_of_a_reader_has_to_be_there_and_that_of_a_writer_is_made(root: Path) -> None:
    with pytest.raises(LogNotFoundError):
        open_store(root)
    open_store(root, "a").close()
    with open_store(root) as store:
        assert (store.topics, store.partitions) == ((), ())
    with pytest.raises(StorageError, match="cannot make"):
        open_store(root / "x" / "y", "a")
    with pytest.raises(ValueError, match="mode"):
        open_store(root, "w")


def test_partition_directory_is_no_root(two_topics: Path) -> None:
    for mode in ("r", "a"):
        with pytest.raises(LogNotFoundError, match="holds segments"):
            open_store(two_topics / "t-0", mode)
    open_store(two_topics, "a").close()


def test_roots_inside_a_directory_are_no_partitions_of_it(two_topics: Path, tmp_path: Path) -> None:
    shutil.copytree(two_topics, tmp_path / "all" / "kafka-logs-1")
    for mode in ("r", "a"):
        with pytest.raises(LogNotFoundError, match="pass one of them"):
            open_store(tmp_path / "all", mode)
    shutil.copytree(two_topics / "t-1", tmp_path / "all" / "t-1")
    with open_store(tmp_path / "all") as store:
        assert store.partitions == (T1,)


def test_kraft_log_is_read_and_never_written(two_topics: Path) -> None:
    shutil.copytree(two_topics / "t-1", two_topics / "__cluster_metadata-0")
    with open_store(two_topics) as reader:
        assert reader.log("__cluster_metadata").log_end_offset == 3
    with open_store(two_topics, "a") as store:
        assert "__cluster_metadata" not in store.topics
        with pytest.raises(LogNotFoundError):
            store.log("__cluster_metadata")


def test_new_root_gets_meta_properties_and_keeps_them(root: Path) -> None:
    with open_store(root, "a", cluster_id="of-mine", node_id=7) as store:
        made = store.meta_properties
    assert made[:3] == (1, "of-mine", 7)
    assert made.directory_id is not None
    assert read_meta_properties(str(root)) == made
    for options in ({}, {"cluster_id": "of-mine"}, {"node_id": 7}):
        with open_store(root, "a", **options) as store:
            assert store.meta_properties == made
    with open_store(root) as reader:
        assert reader.meta_properties == made


@pytest.mark.parametrize("options", [{"cluster_id": "another"}, {"node_id": 2}])
def test_root_of_another_cluster_or_node_is_refused(root: Path, options: dict[str, object]) -> None:
    root.mkdir()
    write_meta_properties(str(root), MetaProperties(0, "of-mine", 1))
    with pytest.raises(ValueError, match="belongs to another cluster or node"):
        open_store(root, "a", **options)
    open_store(root, "a", cluster_id="of-mine", node_id=1).close()


def test_malformed_meta_properties_are_refused_and_the_root_is_free_again(two_topics: Path) -> None:
    (two_topics / "meta.properties").write_text("version=9\n")
    with pytest.raises(CorruptCheckpointError):
        open_store(two_topics, "a")
    (two_topics / "meta.properties").unlink()
    open_store(two_topics, "a").close()


def test_checkpoint_beside_a_truncation_leaves_no_recovery_point_above_the_cut(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(root, "a") as store:
        store.create_topic("t")
        put(store, T0, 3)
        store.log(*T0).flush()
        store.checkpoint()
        assert checkpoint(root, "recovery-point-offset-checkpoint") == ["t 0 3"]
        lower = DurablePointFile.lower

        def lower_beside_a_checkpoint(self: DurablePointFile, point: DurablePoint) -> None:
            store.checkpoint()
            lower(self, point)

        monkeypatch.setattr(DurablePointFile, "lower", lower_beside_a_checkpoint)
        store.log(*T0).truncate_to(1)
        assert checkpoint(root, "recovery-point-offset-checkpoint") == ["t 0 1"]
        store.log(*T0).truncate_fully_and_start_at(7)
        assert checkpoint(root, "recovery-point-offset-checkpoint") == ["t 0 0"]
        store.checkpoint()
        assert checkpoint(root, "recovery-point-offset-checkpoint") == ["t 0 7"]
