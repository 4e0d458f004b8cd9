"""Goal: streams from and to kstore work where the driver, its tasks and the user's program are not one process.
Method: the same copy of a topic in a local cluster, from a Spark Connect client and as a declarative pipeline, each in
a process of its own; what it wrote is held against the source."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from kstore.store.store import open_store
from tests.making.staging import TOPIC, committed_values, make_root
from tests.spark.conftest import REPOSITORY
from tests.spark.loop_query import SOURCE_TOPIC

pytestmark = [pytest.mark.spark, pytest.mark.long]

FLIGHTS = REPOSITORY / "examples" / "flights"
LIMIT_SECONDS = 300

SPECIFICATION = """\
name: copy
storage: file://{storage}
libraries:
  - glob:
      include: flows/**
"""
FLOW = """\
from pyspark import pipelines
from pyspark.sql import SparkSession

spark = SparkSession.active()
pipelines.create_sink("copied", "kstore", {{"path": "{root}", "topic": "{topic}"}})


@pipelines.append_flow(target="copied")
def copy():
    source = spark.readStream.format("kstore").option("startingOffsets", "earliest").option("subscribe", "{source}")
    return source.load("{flights}").selectExpr("key", "value")
"""


def run(command: list[str], directory: Path) -> None:
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, **python, "PATH": path, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


def values_of_flights() -> Counter[bytes | None]:
    with open_store(FLIGHTS) as store:
        logs = [store.log(*one) for one in store.partitions if one.topic == SOURCE_TOPIC]
        return Counter(record.value for log in logs for record in log.read())


def written(root: Path) -> Counter[bytes | None]:
    return Counter(value for values in committed_values(root, topic=TOPIC) for value in values)


@pytest.mark.parametrize("mode", ["cluster", "connect"])
def test_topic_is_copied_from_another_process(tmp_path: Path, mode: str) -> None:
    root = make_root(tmp_path / "root")
    arguments = [mode, str(FLIGHTS), str(root), str(tmp_path / "checkpoint")]
    run([sys.executable, "-m", "tests.spark.copy_query", *arguments], REPOSITORY)
    assert written(root) == values_of_flights()


def test_topic_is_copied_by_a_declarative_pipeline(tmp_path: Path) -> None:
    root = make_root(tmp_path / "root")
    (tmp_path / "flows").mkdir()
    (tmp_path / "spark-pipeline.yml").write_text(SPECIFICATION.format(storage=tmp_path / "storage"))
    flow = FLOW.format(root=root, topic=TOPIC, source=SOURCE_TOPIC, flights=FLIGHTS)
    (tmp_path / "flows" / "copy.py").write_text(flow)
    run(["spark-pipelines", "run", "--spec", str(tmp_path / "spark-pipeline.yml")], tmp_path)
    assert written(root) == values_of_flights()
