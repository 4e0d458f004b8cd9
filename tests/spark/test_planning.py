"""Goal: planning finds the selected partitions by their names, lists and opens each log once, and is right about
directories that are not what they are named like.
Method: the calls of Spark's driver made in this process, with the calls of the operating system counted; no JVM."""

from __future__ import annotations

import os
import shutil
import threading
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import LongType, StructField, StructType

from kstore.env import LocalEnv
from kstore.errors import LogNotFoundError, StorageError
from kstore.log.log import Log
from kstore.log.state.transactions import Transactions
from kstore.spark import KStoreDataSource, planning, retention
from kstore.spark.planning import ScanPartition
from tests.making.batches import batch, batches, write_partition, write_root

OFFSETS = StructType([StructField("offset", LongType())])


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, str]]:
    """How often each call was made for each path."""
    found: Counter[tuple[str, str]] = Counter()
    for name in ("listdir", "stat", "open_read"):
        whole = getattr(LocalEnv, name)

        def counted(env: LocalEnv, path: str, *arguments: object, name=name, whole=whole, **options: object) -> object:
            found[name, path] += 1
            return whole(env, path, *arguments, **options)

        monkeypatch.setattr(LocalEnv, name, counted)
    return found


def plan(path: Path | list[Path], **options: str) -> list[tuple[str, int, int]]:
    """The partition, start and end of each range."""
    place = (
        {"path": str(path)} if isinstance(path, Path) else {"paths": str([str(one) for one in path]).replace("'", '"')}
    )
    reader = KStoreDataSource(CaseInsensitiveDict({**place, **options})).reader(OFFSETS)
    tasks = reader.partitions()
    assert all(isinstance(task, ScanPartition) for task in tasks)
    return [(str(one.topic_partition), one.start_offset, one.end_offset) for task in tasks for one in task.ranges]


def root_of(path: Path, count: int) -> Path:
    write_partition(path, [batches(0, 2), batches(2, 2)], topic="t", partition=0)
    for number in range(1, count):
        shutil.copytree(path / "t-0", path / f"t-{number}")
    write_partition(path, [batches(0, 2)], topic="u", partition=0)
    return path


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"maxRecordsPerPartition": "1"},
        {"minPartitions": "99"},
        {"kafka.isolation.level": "read_committed"},
        {"kafka.isolation.level": "read_committed", "minPartitions": "99"},
        {"mode": "PERMISSIVE"},
        {"startingTimestamp": "1600000000001"},
    ],
    ids=str,
)
def test_each_partition_is_listed_once_and_each_log_opened_once(
    tmp_path: Path, calls: Counter[tuple[str, str]], options: dict[str, str]
) -> None:
    root = root_of(tmp_path / "root", 3)
    plan(root, **options)
    listed = {path: count for (name, path), count in calls.items() if name == "listdir"}
    assert listed == {str(root): 1} | {str(root / name): 1 for name in ("t-0", "t-1", "t-2", "u-0")}
    opened = [path for (name, path), count in calls.items() if name == "open_read" and count > 1]
    assert not opened


@pytest.mark.parametrize("options", [{}, {"minPartitions": "99"}], ids=str)
def test_large_logs_are_walked_by_several_threads_to_the_same_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: Counter[tuple[str, str]], options: dict[str, str]
) -> None:
    root = root_of(tmp_path / "root", 9)
    committed = {"kafka.isolation.level": "read_committed", **options}
    expected = plan(root, **committed)
    monkeypatch.setattr(planning, "_WALK_BYTES", 0)
    threads = set()
    whole = Log.transactions

    def transactions(log: Log) -> Transactions:
        threads.add(threading.current_thread().name)
        return whole(log)

    monkeypatch.setattr(Log, "transactions", transactions)
    calls.clear()
    assert plan(root, **committed) == expected
    assert all(name.startswith("kstore-plan") for name in threads)
    assert {count for (name, _), count in calls.items() if name == "listdir"} == {1}


@pytest.mark.parametrize("count", [2, 40])
def test_assigned_partition_costs_the_same_in_a_root_of_any_size(
    tmp_path: Path, calls: Counter[tuple[str, str]], count: int
) -> None:
    root = root_of(tmp_path / "root", count)
    assert plan(root, assign='{"t":[1]}') == [("t-1", 0, 4)]
    touched = {path for _, path in calls}
    assert {path for path in touched if "/t-" in path or "/u-" in path} == {
        path for path in touched if path.startswith(str(root / "t-1"))
    }
    assert ("listdir", str(root)) not in calls
    assert calls.total() < 30


def test_topics_that_are_not_subscribed_are_not_looked_into(tmp_path: Path, calls: Counter[tuple[str, str]]) -> None:
    root = root_of(tmp_path / "root", 20)
    for options in ({"subscribe": "u"}, {"subscribePattern": "^u$"}):
        calls.clear()
        assert plan(root, **options) == [("u-0", 0, 2)]
        assert not [path for _, path in calls if "/t-" in path]


def test_directories_that_are_no_partitions_are_passed_over(tmp_path: Path) -> None:
    root = root_of(tmp_path / "kafka-logs-1", 2)
    everything = [("t-0", 0, 4), ("t-1", 0, 4), ("u-0", 0, 2)]
    (root / "v-0").write_bytes(b"a file")
    (root / f"w-0.{'0' * 32}-delete").mkdir()
    write_root(root / "inner-5", {"x-0": [[batch(0)]]})
    assert plan(root) == everything
    assert plan(root, startingOffsets='{"t":{"0":1,"1":-2},"u":{"0":1}}') == [
        ("t-0", 1, 4),
        ("t-1", 0, 4),
        ("u-0", 1, 2),
    ]
    assert plan(root, subscribe="t") == everything[:2]
    assert plan(root, assign='{"u":[0]}') == everything[2:]
    for options in ({"subscribe": "inner"}, {"assign": '{"v":[0]}'}, {"assign": '{"inner":[5]}'}):
        with pytest.raises(LogNotFoundError, match="not found: "):
            plan(root, **options)


@pytest.mark.parametrize("options", [{}, {"subscribe": "disk"}, {"assign": '{"disk":[1]}'}], ids=str)
def test_directory_of_roots_is_refused_by_what_it_holds(tmp_path: Path, options: dict[str, str]) -> None:
    write_root(tmp_path / "disk-1", {"x-0": [[batch(0)]]})
    with pytest.raises(LogNotFoundError, match=r"is not a log\.dirs root but contains some: pass them instead"):
        plan(tmp_path, **options)


@pytest.mark.parametrize("name", ["../root/t", "a/b", "", ".", "t\n"])
def test_assigned_name_is_no_way_out_of_the_root(tmp_path: Path, name: str) -> None:
    root = root_of(tmp_path / "root", 1)
    with pytest.raises(LogNotFoundError, match="not found: partition"):
        plan(root, assign=str({name: [0]}).replace("'", '"'))


def test_assigned_partition_in_two_paths_is_refused(tmp_path: Path) -> None:
    one, other = root_of(tmp_path / "one", 2), root_of(tmp_path / "other", 1)
    with pytest.raises(StorageError, match="t-0 found twice"):
        plan([one, other], assign='{"t":[0]}')
    assert plan([one, other], assign='{"t":[1]}') == [("t-1", 0, 4)]


def test_partition_is_assigned_by_its_own_path(tmp_path: Path) -> None:
    root = root_of(tmp_path / "root", 2)
    assert plan(root / "t-1", assign='{"t":[1]}') == [("t-1", 0, 4)]
    with pytest.raises(LogNotFoundError, match="not found: partition t-0"):
        plan(root / "t-1", assign='{"t":[0]}')


def test_partition_that_goes_while_others_are_planned_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = root_of(tmp_path / "root", 3)
    opened = retention.open_found

    def open_and_remove(directory, *arguments):
        if directory.path.endswith("t-1") and (root / "t-2").exists():
            (root / "t-2").rename(root / f"t-2.{'0' * 32}-delete")
        return opened(directory, *arguments)

    monkeypatch.setattr(retention, "open_found", open_and_remove)
    assert plan(root) == [("t-0", 0, 4), ("t-1", 0, 4), ("u-0", 0, 2)]


def test_logs_beyond_those_kept_for_a_second_look_are_planned_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "MOST_KEPT", 2)
    root = root_of(tmp_path / "root", 4)
    before = len(os.listdir("/dev/fd"))
    found = plan(root, minPartitions="9")
    assert sum(end - start for _, start, end in found) == 18
    assert len(os.listdir("/dev/fd")) <= before + 1
