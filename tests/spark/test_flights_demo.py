"""Goal: the demo tells right data from wrong: rows, values and damage.
Method: its job on the shipped partitions and on spoilt copies; its whole command once, on a damaged one."""

from __future__ import annotations

import copy
import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from pyspark.sql import SparkSession

from tests.making.batches import flip_bit

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "examples" / "flights_demo.py"
FLIGHTS = ROOT / "examples" / "flights"
MANIFEST: dict[str, Any] = json.loads((FLIGHTS / "MANIFEST.json").read_text())
SEGMENT = "00000000000000000000.log"


@pytest.fixture(scope="module")
def demo() -> dict[str, Any]:
    """The names of the demo's module."""
    return runpy.run_path(str(DEMO))


@pytest.fixture
def first_segment_only(tmp_path: Path) -> Path:
    """A copy of the flights in which only the first segment of the first partition is left."""
    target = tmp_path / "flights" / "flights-lz4-0"
    target.mkdir(parents=True)
    shutil.copy(FLIGHTS / "MANIFEST.json", target.parent)
    shutil.copy(FLIGHTS / target.name / SEGMENT, target)
    return target.parent


def read_entries() -> list[dict[str, Any]]:
    """Return what a right read of the flights finds."""
    names = ("partition", "records", "log_end_offset", "value_bytes", "values_sha256")
    return [{name: entry[name] for name in names} for entry in MANIFEST["partitions"]]


def test_demo_reads_every_record_with_the_values_that_were_written(
    demo: dict[str, Any], spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo["run"](spark, FLIGHTS, tmp_path / "out") == []
    written = pyarrow.dataset.dataset(tmp_path / "out" / "flights.parquet")
    carriers = pyarrow.dataset.dataset(tmp_path / "out" / "delay_by_carrier.parquet").to_table().to_pylist()
    assert written.count_rows() == MANIFEST["records"]
    assert sum(row["flights"] for row in carriers) == MANIFEST["records"]
    printed = capsys.readouterr().out
    assert "rows read            110,000 from 3 partitions" in printed
    assert "rows/s" in printed


def test_missing_records_are_differences(demo: dict[str, Any], spark: SparkSession, first_segment_only: Path) -> None:
    wrong = demo["run"](spark, first_segment_only, first_segment_only.parent / "out")
    assert "partition 0: records is 2054, the manifest says 36097" in wrong
    assert "partition 0: log_end_offset is 2054, the manifest says 36097" in wrong
    assert "partition 1 in the manifest but was not read" in wrong
    assert "2054 records were read, the manifest says 110000" in wrong


def test_manifest_values_are_no_difference(demo: dict[str, Any]) -> None:
    assert demo["differences"](read_entries(), MANIFEST) == []


@pytest.mark.parametrize("name", ["records", "log_end_offset", "value_bytes", "values_sha256"])
def test_each_wrong_figure_is_a_difference(demo: dict[str, Any], name: str) -> None:
    manifest = copy.deepcopy(MANIFEST)
    manifest["partitions"][1][name] = "other"
    (line,) = demo["differences"](read_entries(), manifest)
    assert line.startswith(f"partition 1: {name} is ")


def test_partition_that_the_manifest_lacks_is_a_difference(demo: dict[str, Any]) -> None:
    manifest = {**MANIFEST, "partitions": MANIFEST["partitions"][:2]}
    assert demo["differences"](read_entries(), manifest) == ["partition 2 was read but is not in the manifest"]


def test_damaged_copy_ends_the_command_with_one_line_that_names_the_place(first_segment_only: Path) -> None:
    log = first_segment_only / "flights-lz4-0" / SEGMENT
    flip_bit(log, 1000, bit=0)
    command = [sys.executable, str(DEMO), "--source", str(first_segment_only), "--out", str(first_segment_only / "out")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)
    assert done.returncode == 1, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("demo FAILED")]
    assert "CorruptRecordError" in line
    assert str(log) in line
    assert "position 0" in line
