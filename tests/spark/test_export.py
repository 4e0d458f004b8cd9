"""Goal: an export in Spark tasks is the export of one machine, and either goes on after the other.
Method: real Spark on small roots; the files and the manifest compared, failing tasks, options, damage."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import kstore
from kstore.archive import read_manifest
from kstore.errors import ExportOptionsError
from kstore.spark import export
from tests.making.exporting import TOPIC, checked_manifest, grow, rows_of_export, rows_of_source

pytestmark = pytest.mark.spark
FORMATS = ("parquet", "arrow", "kstore")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    grow(root, 100)
    return root


@pytest.mark.parametrize("format", FORMATS)
def test_tasks_export_what_one_machine_exports(spark: SparkSession, source: Path, tmp_path: Path, format: str) -> None:
    summary = export(spark, source, tmp_path / "tasks", format, file_bytes=4096)
    assert (summary.new_records, summary.format, summary.was_resumed) == (200, format, False)
    kstore.export(source, tmp_path / "local", format, file_bytes=4096)
    found, expected = (checked_manifest(tmp_path / name) for name in ("tasks", "local"))
    assert found._replace(run_id="") == expected._replace(run_id="")
    assert rows_of_export(tmp_path / "tasks") == rows_of_source(source)
    for file in found.files:
        assert (tmp_path / "tasks" / file.path).read_bytes() == (tmp_path / "local" / file.path).read_bytes()


@pytest.mark.parametrize("format", FORMATS)
def test_runs_in_spark_and_without_take_turns(spark: SparkSession, source: Path, tmp_path: Path, format: str) -> None:
    target = tmp_path / "out"
    for number in range(4):
        grow(source, 20)
        run = kstore.export(source, target, format) if number % 2 else export(spark, source, target, format)
        assert run.new_records == (40 if number else 240)
        assert rows_of_export(target) == rows_of_source(source)


def test_spark_reads_the_directory_with_topic_and_date(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    export(spark, source, tmp_path / "out")
    frame = spark.read.parquet(str(tmp_path / "out"))
    expected = spark.read.format("kstore").option("includeHeaders", "true").load(str(source)).drop("topic")
    names = expected.columns
    assert sorted(frame.columns) == sorted([*names, "topic", "date"])
    assert frame.select(names).exceptAll(expected).count() == expected.exceptAll(frame.select(names)).count() == 0
    assert (
        frame.where("date = to_date(timestamp) AND topic = 'orders'").count() == frame.where("date IS NOT NULL").count()
    )


def test_task_that_fails_leaves_what_the_same_call_goes_on_with(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    target = tmp_path / "out"
    path = sorted((source / f"{TOPIC}-1").glob("*.log"))[-1]
    whole = path.read_bytes()
    path.write_bytes(whole[:-20] + bytes([whole[-20] ^ 1]) + whole[-19:])
    with pytest.raises(PySparkException, match="CRC mismatch"):
        export(spark, source, target, file_bytes=4096)
    assert read_manifest(target) is None
    path.write_bytes(whole)
    assert export(spark, source, target, file_bytes=4096).was_resumed
    assert rows_of_export(target) == rows_of_source(source)


def test_damage_that_tasks_leave_out_is_told(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    path = sorted((source / f"{TOPIC}-0").glob("*.log"))[0]
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    summary = export(spark, source, tmp_path / "out", on_error="skip")
    assert [(one["topic"], one["partition"], one["first_missing_offset"]) for one in summary.damage] == [(TOPIC, 0, 0)]
    assert summary.record_count == 190


def test_options_are_checked_on_the_driver(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="format must be one of"):
        export(spark, source, tmp_path / "out", "csv")
    export(spark, source, tmp_path / "out", topics=[TOPIC])
    with pytest.raises(ExportOptionsError, match="topics: "):
        export(spark, source, tmp_path / "out")
