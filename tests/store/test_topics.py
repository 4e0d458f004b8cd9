"""Goal: topics are deleted, grown and set up while their store is open, and stay so whatever happens after a call.
Method: real roots in temporary folders; a crash is a copy of the root taken while the store is open."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import shutil
import threading
from pathlib import Path

import pytest

from kstore.config import LogConfig
from kstore.env import LocalEnv
from kstore.errors import (
    CorruptCheckpointError,
    InvalidTopicError,
    LogClosedError,
    LogNotFoundError,
    RecordTooLargeError,
    StorageError,
    TopicExistsError,
)
from kstore.log.files.names import deleted_directory_name, retired_state
from kstore.log.files.root_files import random_id
from kstore.record import Record
from kstore.store.settings.file import SettingsFile, write_settings
from kstore.store.store import WritableStore, open_store
from kstore.types import TopicPartition
from kstore.wire.protocol import ZERO_UUID
from tests.fakes.faults import Fault, FaultKind, FaultyEnv, calls_of_a_deletion

SETTINGS = "kstore-topic-settings"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with open_store(tmp_path / "root", "a") as store:
        store.create_topic("gone", 2)
        store.create_topic("kept")
        for topic_partition in store.partitions:
            put(store, topic_partition, 3)
    return tmp_path / "root"


def put(store: WritableStore, topic_partition: TopicPartition, count: int) -> None:
    for number in range(count):
        store.log(*topic_partition).append([Record(offset=0, timestamp_ms=1000, key=b"k", value=b"%d" % number)])


def retired(root: Path) -> list[str]:
    return [name for name in os.listdir(root) if retired_state(name) == "delete"]


def checkpointed(root: Path) -> str:
    return (root / "recovery-point-offset-checkpoint").read_text()


def test_deleted_topic_is_gone_and_its_directories_have_brokers_names(root: Path) -> None:
    with open_store(root, "a") as store:
        store.log("gone")
        store.delete_topic("gone")
        assert store.topics == ("kept",)
        names = sorted(retired(root))
        assert [name.split(".")[0] for name in names] == ["gone-0", "gone-1"]
        assert all(re.fullmatch(r"gone-[01]\.[0-9a-f]{32}-delete", name) for name in names)
        assert "gone" not in checkpointed(root)
        with pytest.raises(LogNotFoundError):
            store.log("gone")
        with pytest.raises(LogNotFoundError):
            store.delete_topic("gone")


def test_deleted_directories_wait_for_the_delay_and_go_when_the_store_is_closed(root: Path) -> None:
    with open_store(root, "a", LogConfig(file_delete_delay_ms=3_600_000)) as store:
        store.delete_topic("gone")
        assert store.run_maintenance().removed_directories == ()
        assert len(retired(root)) == 2
    assert retired(root) == []
    with open_store(root) as store:
        assert store.topics == ("kept",)


def test_deleted_directories_go_with_maintenance_once_they_are_due(root: Path) -> None:
    with open_store(root, "a", LogConfig(file_delete_delay_ms=0)) as store:
        store.delete_topic("gone")
        (root / retired(root)[0] / "kstore-quarantine").mkdir()
        assert len(store.run_maintenance().removed_directories) == 2
        assert retired(root) == []


def test_directories_that_an_earlier_opening_deleted_wait_for_the_delay_too(root: Path, tmp_path: Path) -> None:
    class Clock(FaultyEnv):
        now_ms = 0

        def monotonic_ms(self) -> int:
            return self.now_ms

    env = Clock()
    with open_store(root, "a") as store:
        store.delete_topic("gone")
        crashed = Path(shutil.copytree(root, tmp_path / "crashed"))
    with open_store(crashed, "a", LogConfig(file_delete_delay_ms=1000), env=env) as store:
        for now_ms, removed in ((0, 0), (999, 0), (1000, 2)):
            env.now_ms = now_ms
            assert len(store.remove_deleted()) == removed


def test_what_a_crash_left_of_a_removal_goes_after_the_next_opening(root: Path, tmp_path: Path) -> None:
    with open_store(root, "a") as store:
        store.delete_topic("gone")
        shutil.copytree(root, tmp_path / "crashed")
    shutil.rmtree(tmp_path / "crashed" / retired(tmp_path / "crashed")[0], ignore_errors=True)
    with open_store(tmp_path / "crashed", "a", LogConfig(file_delete_delay_ms=0)) as store:
        assert store.topics == ("kept",)
        assert len(store.run_maintenance().removed_directories) == 1


def test_topic_made_again_under_the_name_of_a_deleted_one_starts_at_0(root: Path) -> None:
    with open_store(root, "a") as store:
        store.change_topic_config("gone", {"retention_ms": 5})
        earlier = store.topic_id("gone")
        store.delete_topic("gone")
        assert store.create_topic("gone") != earlier
        assert store.log("gone").log_end_offset == 0
        assert store.topic_config("gone") == LogConfig()
    with open_store(root) as store:
        assert store.partitions == (("gone", 0), ("kept", 0))


def test_reader_of_a_deleted_log_is_told(root: Path) -> None:
    with open_store(root, "a") as store:
        log = store.log("gone")
        store.delete_topic("gone")
        with pytest.raises(LogClosedError):
            list(log.read())


@pytest.mark.parametrize("kind", ["EIO", "EMFILE"])
def test_deletion_under_an_nth_call_that_fails_is_all_or_completed_later(
    root: Path, tmp_path: Path, kind: FaultKind
) -> None:
    """Whatever call fails, the other topic is whole, and the topic either has all its records or goes completely."""
    failures = 0
    was_met = True
    for number in calls_of_a_deletion(root, tmp_path / "watched", kind, opens_log=True):
        assert was_met, number
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(root, copy)
        env = FaultyEnv()
        store = open_store(copy, "a", env=env)
        store.log("gone")
        first = env.calls
        env.arm(Fault(number, kind, is_for_good=False))
        has_begun = False
        try:
            store.delete_topic("gone")
        except StorageError:
            failures += 1
            has_begun = "gone" not in store.topics
        else:
            has_begun = True
        was_met = env.calls >= first + number
        env.heal()
        crashed = tmp_path / "crashed"
        shutil.rmtree(crashed, ignore_errors=True)
        shutil.copytree(copy, crashed)
        if has_begun:
            store.create_topic("gone")
        store.close()
        for place, is_remade in ((copy, has_begun), (crashed, False)):
            with open_store(place, "a") as again:
                assert again.log("kept").log_end_offset == 3
                ends = [again.log(*one).log_end_offset for one in again.partitions if one.topic == "gone"]
                assert ends == ([0] if is_remade else [3, 3]) or (place is crashed and ends == [])
                assert has_begun or ends == [3, 3] or place is crashed
    assert failures
    assert not was_met


def test_begun_deletion_is_completed_by_the_next_opening(root: Path) -> None:
    write_settings(str(root), SettingsFile({"gone": {"retention_ms": 1}}, ("gone",)), FaultyEnv())
    with open_store(root, "a") as store:
        assert store.topics == ("kept",)
        assert store.create_topic("gone")
        assert store.topic_config("gone").retention_ms == LogConfig().retention_ms


def test_name_of_a_deleted_directory_is_cut_to_what_file_systems_allow() -> None:
    unique = random_id()
    name = deleted_directory_name(TopicPartition("x" * 249, 12), unique)
    assert len(name) == 255
    assert name.endswith(f"x-12.{unique.hex}-delete")
    assert retired_state(name) == "delete"


# Settings


def test_changed_settings_hold_for_open_logs_and_for_later_openings(root: Path) -> None:
    with open_store(root, "a") as store:
        log = store.log("kept")
        store.change_topic_config("kept", {"max_message_bytes": 100, "segment_bytes": 1000})
        assert log.config.max_message_bytes == 100
        with pytest.raises(RecordTooLargeError):
            log.append([Record(offset=0, timestamp_ms=1, value=b"x" * 200)])
        store.change_topic_config("kept", {}, reset=["max_message_bytes"])
        for _ in range(3):
            log.append([Record(offset=0, timestamp_ms=1, value=b"x" * 600)])
        assert len(log.segments) == 3
        assert [one.offset for one in log.read()] == list(range(6))
    with open_store(root, "a") as store:
        assert store.topic_config("kept") == LogConfig(segment_bytes=1000)
        assert store.log("kept").config.segment_bytes == 1000
        assert store.topic_config("gone") == LogConfig()


def test_settings_given_to_create_topic_and_to_open_store(root: Path) -> None:
    with open_store(root, "a") as store:
        store.create_topic("new", config=LogConfig(retention_ms=5))
    with open_store(root, "a", topic_configs={"kept": LogConfig(flush_messages=1)}) as store:
        assert store.topic_config("new").retention_ms == 5
        assert store.change_topic_config("kept", {"retention_ms": 7}) == LogConfig(flush_messages=1, retention_ms=7)
    with open_store(root, "a", LogConfig(segment_ms=9)) as store:
        assert store.topic_config("kept") == LogConfig(flush_messages=1, retention_ms=7, segment_ms=9)


class FullDisk(FaultyEnv):
    """Fails to make directories while it is full."""

    is_full = False

    def make_directory(self, path: str) -> bool:
        if self.is_full:
            raise StorageError(f"no space for {path}", path=path, errno=errno.ENOSPC)
        return super().make_directory(path)


def test_settings_of_a_creation_that_failed_do_not_govern_the_next_topic_of_its_name(root: Path) -> None:
    env = FullDisk()
    with open_store(root, "a", env=env) as store:
        env.is_full = True
        with pytest.raises(StorageError, match="no space"):
            store.create_topic("new", config=LogConfig(retention_ms=1000, segment_bytes=500))
        assert "retention_ms" not in json.loads((root / SETTINGS).read_text())["topics"].get("new", {})
        env.is_full = False
        store.create_topic("new")
        assert store.topic_config("new") == LogConfig()
        for _ in range(20):
            put(store, TopicPartition("new", 0), 1)
        assert not store.run_maintenance().deleted_segments
    with open_store(root, "a") as store:
        assert store.topic_config("new") == LogConfig()


@pytest.mark.parametrize("given", [None, LogConfig(segment_bytes=700)])
def test_settings_that_a_crash_left_of_a_creation_do_not_govern_the_next_topic(
    root: Path, given: LogConfig | None
) -> None:
    write_settings(str(root), SettingsFile({"new": {"retention_ms": 1, "segment_bytes": 500}}), FaultyEnv())
    with open_store(root, "a", topic_configs={} if given is None else {"new": given}) as store:
        store.create_topic("new")
        assert store.topic_config("new") == (given or LogConfig())
    with open_store(root, "a") as store:
        assert store.topic_config("new") == LogConfig()


@pytest.mark.parametrize("kind", ["EIO", "ENOSPC"])
def test_creation_under_an_nth_call_that_fails_leaves_no_settings_behind(tmp_path: Path, kind: FaultKind) -> None:
    asked = {"retention_ms": 1000, "segment_bytes": 500}
    failures = 0
    for number in range(1, 100):
        root, crashed = tmp_path / f"root{number}", tmp_path / f"crashed{number}"
        env = FaultyEnv()
        with open_store(root, "a", env=env) as store:
            first = env.calls
            env.arm(Fault(number, kind, is_for_good=False))
            try:
                store.create_topic("t", config=asked)
            except StorageError:
                failures += 1
            was_met = env.calls >= first + number
            env.heal()
            shutil.copytree(root, crashed)
            if "t" not in store.topics:
                store.create_topic("t")
                assert store.topic_config("t") == LogConfig()
            else:
                assert store.topic_config("t").segment_bytes == 500
        with open_store(crashed, "a") as store:
            if "t" not in store.topics:
                store.create_topic("t")
                assert store.topic_config("t") == LogConfig()
        if not was_met:
            break
    assert failures > 5


@pytest.mark.parametrize("fails", ["rename", "sync"])
def test_a_change_of_settings_that_failed_does_not_hold_after_the_next_opening(root: Path, fails: str) -> None:
    class FailingEnv(FaultyEnv):
        is_armed = False

        def sync_directory(self, path: str) -> None:
            if self.is_armed and fails == "sync":
                self.is_armed = False
                raise StorageError("cannot sync", path=path, errno=errno.EIO)
            super().sync_directory(path)

        def rename(self, source: str, target: str) -> None:
            if self.is_armed and fails == "rename":
                self.is_armed = False
                raise StorageError("cannot rename", path=source, errno=errno.EIO)
            super().rename(source, target)

    env = FailingEnv()
    with open_store(root, "a", env=env) as store:
        env.is_armed = True
        with pytest.raises(StorageError, match="cannot"):
            store.change_topic_config("kept", {"retention_ms": 1})
        assert store.topic_config("kept") == LogConfig()
    with open_store(root, "a") as store:
        assert store.topic_config("kept") == LogConfig()


def test_a_topic_that_exists_and_a_name_that_is_not_allowed_have_errors_of_their_own(root: Path) -> None:
    with open_store(root, "a") as store:
        with pytest.raises(TopicExistsError, match="'kept' already exists"):
            store.create_topic("kept")
        assert store.create_topic("kept", 5, config={"retention_ms": 1}, exist_ok=True) == store.topic_id("kept")
        assert store.topic_config("kept") == LogConfig()
        assert [one.partition for one in store.partitions if one.topic == "kept"] == [0]
        (root / "kept-0" / "partition.metadata").unlink()
        assert store.create_topic("kept", exist_ok=True) == ZERO_UUID
        for name in ("", ".", "a/b", "x" * 250, "__cluster_metadata"):
            with pytest.raises(InvalidTopicError, match="a topic name has"):
                store.create_topic(name, exist_ok=True)
        assert issubclass(TopicExistsError, ValueError)
        assert issubclass(InvalidTopicError, ValueError)


def test_settings_of_a_new_topic_may_be_a_mapping_and_others_are_refused(root: Path) -> None:
    with open_store(root, "a", LogConfig(segment_ms=9)) as store:
        store.create_topic("new", config={"retention_ms": 5})
        assert store.topic_config("new") == LogConfig(segment_ms=9, retention_ms=5)
        with pytest.raises(
            ValueError, match=r"'retention.ms' is not a setting of LogConfig; did you mean retention_ms\?"
        ):
            store.create_topic("other", config={"retention.ms": 5})
        with pytest.raises(ValueError, match=r"did you mean cleanup_policy\?"):
            store.change_topic_config("new", {"cleanup.policy": "compact"})
        with pytest.raises(TypeError, match="settings must be a LogConfig or a mapping by its names, got 5"):
            store.create_topic("other", config=5)  # type: ignore[arg-type]
        assert store.topics == ("gone", "kept", "new")


@pytest.mark.parametrize(
    ("changes", "reset", "error"),
    [
        ({"retention.ms": 1}, (), ValueError),
        ({"retention_ms": -2}, (), ValueError),
        ({"retention_ms": "1"}, (), TypeError),
        ({}, ("nothing",), ValueError),
        ({"min_compaction_lag_ms": 2, "max_compaction_lag_ms": 1}, (), ValueError),
    ],
)
def test_impossible_settings_change_nothing(
    root: Path, changes: dict[str, object], reset: tuple[str, ...], error: type[Exception]
) -> None:
    before = (root / SETTINGS).read_bytes()
    with open_store(root, "a") as store:
        with pytest.raises(error):
            store.change_topic_config("kept", changes, reset=reset)
        assert store.topic_config("kept") == LogConfig()
        with pytest.raises(LogNotFoundError):
            store.change_topic_config("none", {"retention_ms": 1})
    assert (root / SETTINGS).read_bytes() == before


def damaged(text: str) -> list[str]:
    content = json.loads(text)
    flipped = [text[:at] + chr(ord(text[at]) ^ 1) + text[at + 1 :] for at in range(0, len(text), 3)]
    other = json.dumps({**content, "topics": {"kept": {"retention_ms": 1}}})
    kinds = {"", "\0" * len(text), "[1]", "{}", other, *flipped}
    return [one for one in kinds if not is_the_same(one, content)]


def is_the_same(text: str, content: object) -> bool:
    try:
        return bool(json.loads(text) == content)
    except ValueError:
        return False


def test_damaged_settings_delete_nothing_and_are_not_overwritten(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_store(root, "a") as store:
        store.change_topic_config("kept", {"retention_ms": 2**62})
    path, caplog_level = root / SETTINGS, logging.CRITICAL
    text = path.read_text()
    caplog.set_level(caplog_level)
    for content in damaged(text):
        path.write_text(content)
        with open_store(root, "a") as store:
            report = store.run_maintenance()
            assert not report.deleted_segments
            assert set(report.failures) == set(store.partitions)
            assert store.log("kept").log_end_offset == 3
            for change in (
                lambda one=store: one.change_topic_config("kept", {"retention_ms": 1}),
                lambda one=store: one.delete_topic("gone"),
            ):
                with pytest.raises(CorruptCheckpointError):
                    change()
            assert store.topics == ("gone", "kept")
        assert path.read_text() == content
    path.write_text(text)
    with open_store(root, "a") as store:
        assert store.topic_config("kept").retention_ms == 2**62


def test_partitions_are_added_to_a_topic_with_settings(root: Path) -> None:
    with open_store(root, "a") as store:
        store.change_topic_config("gone", {"cleanup_policy": "compact"})
        store.create_partitions("gone", 4)
        put(store, TopicPartition("gone", 3), 2)
        assert store.log("gone", 3).config.is_compacted
        assert store.topic_id("gone") == store.topic_id("gone")
        store.delete_topic("gone")
        assert len(retired(root)) == 4


def test_renames_are_durable_before_the_note_of_the_deletion_goes(tmp_path: Path) -> None:
    class RecordingEnv(FaultyEnv):
        def __init__(self) -> None:
            super().__init__()
            self.calls_made: list[tuple[str, str]] = []

        def rename(self, source: str, target: str) -> None:
            self.calls_made.append(("rename", Path(target).name))
            super().rename(source, target)

        def sync_directory(self, path: str) -> None:
            self.calls_made.append(("sync", Path(path).name))
            super().sync_directory(path)

    env = RecordingEnv()
    with open_store(tmp_path / "root", "a", env=env) as store:
        store.create_topic("new", 2)
        env.calls_made.clear()
        store.delete_topic("new")
        made = env.calls_made[:]
    last_rename = max(at for at, (call, name) in enumerate(made) if call == "rename" and name.endswith("-delete"))
    note_goes = max(at for at, (call, name) in enumerate(made) if call == "rename" and name == SETTINGS)
    assert ("sync", "root") in made[last_rename:note_goes]


def test_topics_of_brokers_and_of_the_sink_are_kept_as_they_need_unless_they_are_configured(root: Path) -> None:
    short = LogConfig(retention_ms=1, segment_bytes=1000)
    internal = ("__consumer_offsets", "__transaction_state", "__share_group_state", "__kstore_sink")
    with open_store(root, "a", short, topic_configs={"__transaction_state": short}) as store:
        for topic in internal:
            store.create_topic(topic)
        configs = [store.topic_config(topic) for topic in internal]
        assert [(one.cleanup_policy, one.retention_ms) for one in configs] == [
            ("compact", 1),
            ("delete", 1),
            ("delete", -1),
            ("delete", -1),
        ]
        assert {one.segment_bytes for one in configs} == {1000}
        store.change_topic_config("__consumer_offsets", {"cleanup_policy": "delete"})
        assert store.topic_config("__consumer_offsets").cleanup_policy == "delete"
    with open_store(root, "a", short) as store:
        assert store.topic_config("__consumer_offsets").cleanup_policy == "delete"
        assert store.change_topic_config("__consumer_offsets", {}, reset=["cleanup_policy"]).cleanup_policy == "compact"


def test_logs_are_opened_while_the_directories_of_deleted_topics_are_removed(root: Path) -> None:
    class RemovingEnv(LocalEnv):
        store: WritableStore | None = None

        def unlink(self, path: str) -> bool:
            if "-delete/" in path and self.store is not None:
                opening = threading.Thread(target=self.store.log, args=("kept",))
                opening.start()
                opening.join(30 if all(met) else 0)
                met.append(not opening.is_alive())
            return super().unlink(path)

    met: list[bool] = []
    env = RemovingEnv()
    with open_store(root, "a", LogConfig(file_delete_delay_ms=0), env=env) as store:
        store.delete_topic("gone")
        env.store = store
        assert len(store.run_maintenance().removed_directories) == 2
        env.store = None
    assert met
    assert all(met)


class ThreadsOfSyncs(LocalEnv):
    """Notes which threads sync directories."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[int] = set()

    def sync_directory(self, path: str) -> None:
        self.threads.add(threading.get_ident())
        super().sync_directory(path)


@pytest.mark.parametrize(("partitions", "is_shared"), [(1, False), (3, False), (4, True), (30, True)])
def test_many_partitions_are_created_by_several_threads_and_few_by_the_caller(
    tmp_path: Path, partitions: int, is_shared: bool
) -> None:
    env = ThreadsOfSyncs()
    with open_store(tmp_path / "root", "a", env=env) as store:
        env.threads.clear()
        store.create_topic("t", partitions)
        assert (env.threads != {threading.get_ident()}) == is_shared
        assert [store.log("t", number).log_end_offset for number in range(partitions)] == [0] * partitions


@pytest.mark.parametrize(("partitions", "is_shared"), [(1, False), (3, False), (4, True), (30, True)])
def test_many_logs_are_closed_by_several_threads_and_few_by_the_caller(
    tmp_path: Path, partitions: int, is_shared: bool
) -> None:
    env = ThreadsOfSyncs()
    store = open_store(tmp_path / "root", "a", env=env)
    store.create_topic("t", partitions)
    for number in range(partitions):
        put(store, TopicPartition("t", number), 1)
    env.threads.clear()
    store.close()
    assert (env.threads != {threading.get_ident()}) == is_shared
    with open_store(tmp_path / "root", "a") as again:
        assert not again.recovery_reports
        assert [again.log("t", number).log_end_offset for number in range(partitions)] == [1] * partitions


def test_each_of_many_logs_is_closed_though_one_of_them_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise StorageError("the disk is gone")

    store = open_store(tmp_path / "root", "a")
    store.create_topic("t", 60)
    logs = [store.log("t", number) for number in range(60)]
    monkeypatch.setattr(logs[0], "close", fail)
    with pytest.raises(StorageError, match="the disk is gone"):
        store.close()
    assert [log.is_closed for log in logs[1:]] == [True] * 59


def test_each_change_of_a_topic_is_told_and_what_is_only_tried_is_not(tmp_path):
    told: list[str] = []
    settings: list[object] = []

    def note(topic: str, changed: object) -> None:
        told.append(topic)
        settings.append(changed)

    with open_store(tmp_path / "root", "a") as store:
        store.on_topic_change = note
        store.create_topic("a", validate_only=True)
        store.create_topic("a")
        store.create_topic("a", exist_ok=True)
        store.create_partitions("a", 2)
        store.change_topic_config("a", {"retention_ms": 5}, validate_only=True)
        assert told == ["a", "a"]
        store.change_topic_config("a", {"retention_ms": 5})
        store.create_topic("b")
        store.delete_topic("a")
        store.change_topic_config("b", {"retention_bytes": 7}, reset=["retention_ms"])
        store.tell_topic_change("b")
    assert told == ["a", "a", "a", "b", "a", "b", "b"]
    assert settings == [{}, {}, {"retention_ms": 5}, {}, {}, {"retention_bytes": 7, "retention_ms": None}, {}]
