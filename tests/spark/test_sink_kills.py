"""Goal: a streaming query whose Spark is killed again and again has written each record once when it ends.
Method: real Spark in a process of its own; its processes, its JVM or its Python workers are killed at times that follow
the growth of the log, and the query is started again until it has ended."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from kstore.staging import StagingArea
from kstore.store.checks import verify
from kstore.store.store import open_store
from tests.making.staging import PARTITIONS, TOPIC, make_root
from tests.spark.killing import run_with_kills

pytestmark = [pytest.mark.spark, pytest.mark.long]

FILES, LINES = 150, 100
LIMIT_SECONDS = 900


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
    run_with_kills(
        "tests.spark.killed_query",
        [source, root, checkpoint],
        ["all", "jvm", "workers"] * 2,
        steps=lambda: committed_batches(root),
        steps_between=6,
        pause=lambda: rng.uniform(0, 0.6),
        limit_seconds=LIMIT_SECONDS,
    )
    with open_store(root) as store:
        found = Counter(
            int(record.value or b"-1")
            for partition in range(PARTITIONS)
            for record in store.log(TOPIC, partition).read(isolation="read_committed")
        )
    assert found == Counter(range(FILES * LINES))
    assert [one.damage for one in verify(root).partitions if one.damage] == []
    assert len([path for path in Path(StagingArea(root).path).rglob("*") if path.is_file()]) <= 12
