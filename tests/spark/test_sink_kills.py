"""Goal: a streaming query whose Spark is killed again and again has written each record once when it ends.
Method: real Spark in a process of its own, which is killed with all its processes, or without its Python workers, at
times that follow the growth of the log; the query is started again until it has ended."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from kstore.log.maintenance import verify
from kstore.log.store import open_store
from kstore.staging import StagingArea
from tests.making.staging import PARTITIONS, TOPIC, make_root

pytestmark = [pytest.mark.spark, pytest.mark.long]

REPOSITORY = Path(__file__).resolve().parents[2]
FILES, LINES = 150, 100
KILLS = 6
LIMIT_SECONDS = 900


def children_of(process_id: int) -> list[int]:
    """The ids of all descendants of a process."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(path.name))
    found, ahead = [], [process_id]
    while ahead:
        new = children.get(ahead.pop(), [])
        found += new
        ahead += new
    return found


def kill(process: subprocess.Popen[bytes], *, spares_workers: bool) -> None:
    doomed = [process.pid, *children_of(process.pid)]
    if spares_workers:
        doomed = doomed[:2]
    for process_id in doomed:
        try:
            os.kill(process_id, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def committed_batches(root: Path) -> int:
    with open_store(root) as store:
        return store.log("__kstore_sink").log_end_offset


@pytest.mark.parametrize("seed", [1, 2])
def test_query_that_is_killed_again_and_again_writes_each_record_once(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    root, source, checkpoint = make_root(tmp_path / "root"), tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()
    for number in range(FILES):
        lines = range(number * LINES, (number + 1) * LINES)
        (source / f"{number}.txt").write_text("".join(f"{line}\n" for line in lines))
    command = [sys.executable, "-m", "tests.spark.killed_query", str(source), str(root), str(checkpoint)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    deadline = time.monotonic() + LIMIT_SECONDS
    for left in range(KILLS, -1, -1):
        process = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stderr=subprocess.DEVNULL)
        before = committed_batches(root)
        try:
            while left and process.poll() is None and committed_batches(root) < before + 6:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            if left:
                time.sleep(rng.uniform(0, 0.6))
                assert process.poll() is None, "the query ended before it was killed"
            else:
                assert process.wait(timeout=deadline - time.monotonic()) == 0
        finally:
            kill(process, spares_workers=bool(left % 2))
    with open_store(root) as store:
        found = Counter(
            int(record.value or b"-1")
            for partition in range(PARTITIONS)
            for record in store.log(TOPIC, partition).read(isolation="read_committed")
        )
    assert found == Counter(range(FILES * LINES))
    assert [one.damage for one in verify(root).partitions if one.damage] == []
    assert len([path for path in Path(StagingArea(root).path).rglob("*") if path.is_file()]) <= 12
