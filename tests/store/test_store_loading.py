"""Goal: several threads recover and create the logs of a root; the outcome and its order are those of one thread.
Method: an Env that lets a thread on only when another one is at work too; roots copied while they are open; a sync
that fails for one log."""

from __future__ import annotations

import os
import shutil
import threading
from collections import Counter
from pathlib import Path

import pytest

from kstore import Record
from kstore.env import FileStatus, LocalEnv, LocalFile, WriteFile
from kstore.errors import StorageError
from kstore.store.store import open_store
from kstore.types import TopicPartition
from tests.making.batches import flip_bit

PARTITIONS = [TopicPartition("t", number) for number in range(6)]


class MeetingEnv(LocalEnv):
    """The first threads that open a log wait for each other, each once."""

    def __init__(self, threads: int) -> None:
        self.names: set[str] = set()
        self._lock = threading.Lock()
        self._meeting = threading.Barrier(threads)

    def open_write(self, path: str) -> WriteFile:
        if path.endswith(".log") and self._is_to_meet():
            self._meeting.wait(30)
        return super().open_write(path)

    def _is_to_meet(self) -> bool:
        name = threading.current_thread().name
        with self._lock:
            if name in self.names or len(self.names) == self._meeting.parties:
                return False
            self.names.add(name)
            return True


class RootEnv(LocalEnv):
    """Notes the directories that are synced, and fails to write below one of them."""

    def __init__(self, failing: str = "nothing") -> None:
        self.synced: list[str] = []
        self._failing = failing

    def sync_directory(self, path: str) -> None:
        self.synced.append(path)
        if path.endswith(self._failing):
            raise StorageError(f"cannot sync {path}", path=path, errno=5)
        super().sync_directory(path)


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """A root that was not closed: number n has n + 1 flushed records, that of 2 damage below them."""
    with open_store(tmp_path / "root", "a") as store:
        store.create_topic("t", len(PARTITIONS))
        for topic, number in PARTITIONS:
            for value in range(number + 1):
                store.log(topic, number).append([Record(offset=0, timestamp_ms=1, value=b"%d" % value)], ack="flushed")
        shutil.copytree(tmp_path / "root", tmp_path / "crashed")
    flip_bit(tmp_path / "crashed" / "t-2" / "00000000000000000000.log", 100, bit=3)
    return tmp_path / "crashed"


@pytest.mark.parametrize("threads", [1, 2, 256])
def test_outcome_of_recovery_and_its_order_do_not_depend_on_the_threads(threads: int, crashed: Path) -> None:
    with open_store(crashed, "a", recovery_threads=threads) as store:
        sound = [one for one in PARTITIONS if one.partition != 2]
        assert list(store.recovery_reports) == sound
        assert list(store.refused) == [PARTITIONS[2]]
        assert [len(list(store.log(*one).read())) for one in sound] == [one.partition + 1 for one in sound]


def test_two_threads_recover_two_logs_at_a_time(crashed: Path) -> None:
    env = MeetingEnv(2)
    open_store(crashed, "a", recovery_threads=2, env=env).close()
    assert len(env.names) == 2


def test_one_thread_is_that_of_the_caller(crashed: Path) -> None:
    env = MeetingEnv(1)
    open_store(crashed, "a", recovery_threads=1, env=env).close()
    assert env.names == {threading.current_thread().name}


@pytest.mark.parametrize("threads", [1, 4])
def test_storage_error_of_one_log_leaves_the_root_to_the_next_writer(threads: int, crashed: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot sync .*/t-3"):
        open_store(crashed, "a", recovery_threads=threads, env=RootEnv("/t-3"))
    with open_store(crashed, "a") as store:
        assert len(store.recovery_reports) == len(PARTITIONS) - 1


class LookingEnv(LocalEnv):
    """Counts the looks at paths, the listings, and the files that are opened to be read, by path below the root."""

    def __init__(self, root: Path) -> None:
        self.looks, self.listings, self.reads = Counter[str](), Counter[str](), Counter[str]()
        self._root = root

    def stat(self, path: str, *, follow_symlinks: bool = True) -> FileStatus | None:
        self.looks[os.path.relpath(path, self._root)] += 1
        return super().stat(path, follow_symlinks=follow_symlinks)

    def listdir(self, path: str) -> list[str]:
        self.listings[os.path.relpath(path, self._root)] += 1
        return super().listdir(path)

    def open_read(self, path: str) -> LocalFile:
        self.reads[os.path.relpath(path, self._root)] += 1
        return super().open_read(path)


def test_recovery_of_many_logs_asks_nothing_of_the_root_for_each(crashed: Path) -> None:
    for number in range(6):
        (crashed / f"t-{number}" / "partition.metadata").unlink()
    env = LookingEnv(crashed)
    open_store(crashed, "a", env=env).close()
    of_checkpoints = {name: count for name, count in env.looks.items() if "checkpoint" in name and "/" not in name}
    assert len(of_checkpoints) == 4
    assert max(of_checkpoints.values()) < len(PARTITIONS)
    # To tell the partitions from roots, and the files.
    assert env.listings["t-0"] == 2
    assert env.reads["t-0/kstore-durable-point"] == 1


@pytest.mark.parametrize("threads", [0, 257])
def test_number_of_threads_is_checked_before_anything_is_made(threads: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"recovery_threads must be from 1 to 256, got {threads}"):
        open_store(tmp_path / "root", "a", recovery_threads=threads)
    assert not (tmp_path / "root").exists()


def test_root_is_synced_once_for_all_partitions_of_a_topic(tmp_path: Path) -> None:
    env = RootEnv()
    with open_store(tmp_path / "root", "a", env=env) as store:
        env.synced.clear()
        store.create_topic("t", 5)
        assert env.synced.count(str(tmp_path / "root")) == 1
        assert {f"{tmp_path}/root/t-{number}" for number in range(5)} < set(env.synced)


@pytest.mark.parametrize("threads", [1, 4])
def test_partitions_created_before_an_error_remain(threads: int, tmp_path: Path) -> None:
    store = open_store(tmp_path / "root", "a", recovery_threads=threads, env=RootEnv("/t-3"))
    with pytest.raises(StorageError, match=r"cannot sync .*/t-3"):
        store.create_topic("t", 6)
    store.log("t", 0).append([Record(offset=0, timestamp_ms=1, value=b"v")])
    store.close()
    with open_store(tmp_path / "root", "a") as again:
        assert again.partitions == tuple(PARTITIONS)
        assert [len(list(again.log(*one).read())) for one in PARTITIONS] == [1, 0, 0, 0, 0, 0]
