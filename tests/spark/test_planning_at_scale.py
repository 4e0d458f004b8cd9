"""Goal: a plan of many segments takes linear time, bounded memory and one listing; the page says what was measured.
Method: stores that list segments without data and answer where logs end, planned in processes of their own."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest

from bench import scale
from bench.listed_store import OFFSETS_OF_A_SEGMENT, URL, ListedStore
from kstore.log.files.names import name_partitions
from kstore.log.log import Log
from kstore.log.segment.segment import LogSegment
from kstore.spark import planning
from kstore.spark.options import parse_read_options
from kstore.spark.planning import ScanPartition, plan_directories
from kstore.spark.pushdown import Constraint
from kstore.types import MAX_OFFSET
from tests.spark.conftest import REPOSITORY

MIB = 1 << 20
MOST_BYTES = 1024


def tasks_of(store: ListedStore, max_partition_bytes: int, **options: str) -> list[ScanPartition]:
    read = parse_read_options({"path": "/listed", **options})
    directories = name_partitions([URL], store.env())
    return plan_directories(directories, read, Constraint(), max_partition_bytes=max_partition_bytes)


def test_whole_logs_are_planned_by_one_request_at_the_bounds_of_segments() -> None:
    store = ListedStore(95, per_partition=50, segment_bytes=100 * MIB + 1)
    tasks = tasks_of(store, 250 * MIB)
    assert store.calls == {"list": 1, "stat": 0, "open": 0}
    assert [len(one.ranges[0].files) for one in tasks] == [2] * 25 + [2] * 22 + [1]
    files = [(one.topic_partition, file.base_offset) for task in tasks for one in task.ranges for file in one.files]
    assert files == sorted({*files})
    assert len(files) == 95
    assert tasks[-1].ranges[0].end_offset == MAX_OFFSET


def test_whole_logs_are_planned_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[int] = []
    plan = planning._plan_by_listing

    def counted(log: Log, max_bytes: int) -> object:
        alive.append(sum(isinstance(one, LogSegment) for one in gc.get_objects()))
        return plan(log, max_bytes)

    monkeypatch.setattr(planning, "_plan_by_listing", counted)
    gc.collect()
    tasks_of(ListedStore(200, per_partition=20), 1 << 30)
    assert len(alive) == 10
    assert max(alive) == min(alive)


def test_end_of_each_log_is_asked_for_by_few_requests() -> None:
    store = ListedStore(40, per_partition=20)
    tasks = tasks_of(store, 1 << 30, startingOffsets='{"topic":{"0":-2,"1":-2}}')
    assert tasks[-1].ranges[-1].end_offset == 20 * OFFSETS_OF_A_SEGMENT
    assert store.calls["list"] == 1


@pytest.mark.parametrize("per_partition", [100, 1000])
def test_plan_of_10_thousand_segments_takes_less_than_a_kibibyte_for_each(per_partition: int) -> None:
    planned = scale.plan_apart(10_000, per_partition=per_partition)
    assert planned.requests == 1
    assert planned.peak_bytes <= MOST_BYTES


@pytest.mark.long
def test_plan_of_a_million_segments_takes_linear_time_and_less_than_a_kibibyte_for_each() -> None:
    few, some, many = (scale.plan_apart(segments) for segments in scale.SEGMENTS)
    for planned in (few, some, many):
        assert planned.requests == 1
        assert planned.peak_bytes <= MOST_BYTES
    times = [one.listing_us + one.planning_us for one in (few, some, many)]
    assert times[2] < 2 * times[1]
    assert times[1] < 2 * times[0]


def test_page_shows_what_was_measured() -> None:
    measured, where = scale.saved()
    assert [one.segments for one in measured] == list(scale.SEGMENTS)
    assert max(one.peak_bytes for one in measured) <= MOST_BYTES
    assert scale.page_with(scale.PAGE.read_text(), scale.figures(measured, where)) == scale.PAGE.read_text()


@pytest.mark.long
@pytest.mark.spark
def test_tasks_of_a_cluster_plan_and_read_what_one_process_reads() -> None:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "tests.spark.cluster_scan"]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
