"""Goal: an export in Spark tasks is the export of one machine, and either goes on after the other.
Method: real Spark on small roots; the files and the manifest compared, failing tasks, options, damage."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyarrow import fs
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import kstore
from kstore.archive import read_manifest
from kstore.archive.options import export_options
from kstore.archive.plan import Source
from kstore.archive.tables import stored
from kstore.archive.tables.appending import TableWork
from kstore.archive.target import STAGING_DIRECTORY
from kstore.config import LogConfig
from kstore.errors import CorruptRecordError, ExportOptionsError, ExportTablesError
from kstore.spark import export
from kstore.spark.jobs import exporting
from tests.fakes.s3 import BUCKET, S3Server
from tests.making.exporting import TOPIC, Row, checked_manifest, grow, rows_of_export, rows_of_source
from tests.making.rides import ROWS, V3, append_ride, write_rides
from tests.repo.snippets import ROOT, snippets_of

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


def test_tasks_write_into_an_object_store_with_the_options_that_they_carry(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    server = S3Server()
    url = f"s3://{BUCKET}/out"
    options = {
        "endpoint_url": f"http://{server.address}",
        "access_key_id": "x",
        "secret_access_key": "never/shown+secret",
    }
    try:
        summary = export(spark, source, url, storage_options=options)
        grow(source, 20)
        more = kstore.export(source, url, storage_options=options)
        manifest = read_manifest(url, storage_options=options)
        assert manifest is not None
        paths = [f"{BUCKET}/out/{file.path}" for file in manifest.files]
        rows = ds.dataset(paths, filesystem=server.store).to_table(columns=["partition", "offset"])
        names = [info.path for info in server.store.get_file_info(fs.FileSelector(f"{BUCKET}/out", recursive=True))]
    finally:
        server.stop()
    assert (summary.target, summary.new_records, more.new_records) == (url, 200, 40)
    expected = kstore.scan(source, columns=["partition", "offset"]).to_table()
    assert sorted(map(tuple, zip(*(each.to_pylist() for each in rows.columns), strict=True))) == sorted(
        zip(*(each.to_pylist() for each in expected.columns), strict=True)
    )
    assert not [name for name in names if STAGING_DIRECTORY in name]


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


TOPICS = (TOPIC, "pay.ments")


@pytest.fixture
def deltalake() -> Any:
    return pytest.importorskip("deltalake")


def rows_of_table(deltalake: Any, path: Path) -> list[Row]:
    columns = deltalake.DeltaTable(str(path)).to_pyarrow_table().select(["topic", "partition", "offset", "value"])
    return sorted(Row(**row) for row in columns.to_pylist())


def test_tasks_append_each_record_once_to_the_table_of_its_topic(
    spark: SparkSession, source: Path, tmp_path: Path, deltalake: Any
) -> None:
    grow(source, 30, topic="pay.ments")
    table = f"delta:{tmp_path}/tables/{{topic}}"
    assert export(spark, source, table=table, partition_by="topic").new_records == 260
    grow(source, 20, topic="pay.ments")
    for new in (40, 0):
        assert export(spark, source, table=table).new_records == new
    grow(source, 20)
    assert kstore.export(source, table=table).new_records == 40
    for topic in TOPICS:
        assert rows_of_table(deltalake, tmp_path / "tables" / topic) == rows_of_source(source, topic=topic)


def test_a_table_that_fails_in_a_task_leaves_the_others_written(
    spark: SparkSession, source: Path, tmp_path: Path, deltalake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(source, 30, topic="pay.ments")
    path = sorted((source / "orders-0").glob("*.log"))[0]
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ExportTablesError) as told:
        export(spark, source, table="delta:tables/{topic}")
    assert isinstance(told.value.failures["orders"], CorruptRecordError)
    assert rows_of_table(deltalake, tmp_path / "tables" / "pay.ments") == rows_of_source(source, topic="pay.ments")


def test_an_attempt_that_another_one_overtakes_appends_nothing_twice(
    source: Path, tmp_path: Path, deltalake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, others = stored._DeltaTable.append, 0
    table = f"delta:{tmp_path}/table"

    def append(self: Any, *arguments: Any, **options: Any) -> None:
        nonlocal others
        others += 1
        if others == 1:
            kstore.export(source, table=table)
        kept(self, *arguments, **options)

    monkeypatch.setattr(stored._DeltaTable, "append", append)
    work = TableWork(table, None, Source(source, LogConfig(), None), export_options("parquet"), None)
    result = pickle.loads(exporting._table_result(work))
    assert (result.error, result.summary.new_records) == (None, 0)
    assert rows_of_table(deltalake, tmp_path / "table") == rows_of_source(source)


@pytest.mark.parametrize("is_table", [False, True])
def test_values_are_columns_of_what_tasks_export(spark: SparkSession, tmp_path: Path, is_table: bool) -> None:
    root = write_rides(tmp_path / "rides")
    if is_table:
        deltalake = pytest.importorskip("deltalake")
        export(spark, root, table=f"delta:{tmp_path}/out", topics=["rides"], value="avro", key="avro")
        rows = deltalake.DeltaTable(str(tmp_path / "out")).to_pyarrow_table().sort_by("offset")["value"].to_pylist()
    else:
        export(spark, root, tmp_path / "out", topics=["rides"], value="avro", key="avro")
        frame = spark.read.parquet(str(tmp_path / "out")).orderBy("offset")
        rows = [row.value and row.value.asDict() for row in frame.select("value").collect()]
        assert [row.key.k for row in frame.select("key").collect()] == list(range(6))
    assert rows == ROWS


@pytest.mark.parametrize("topic", ["1234", "007", "2024-01-01"])
def test_spark_reads_topic_and_date_as_text_if_it_does_not_guess_types(
    spark: SparkSession, tmp_path: Path, topic: str
) -> None:
    grow(tmp_path / "source", 20, topic=topic)
    kstore.export(tmp_path / "source", tmp_path / "out")
    setting = "spark.sql.sources.partitionColumnTypeInference.enabled"
    spark.conf.set(setting, "false")
    try:
        frame = spark.read.parquet(str(tmp_path / "out"))
        assert [row.topic for row in frame.select("topic").distinct().collect()] == [topic]
        assert (frame.where("date = '2022-01-08'").count(), frame.where("date IS NULL").count()) == (14, 2)
    finally:
        spark.conf.unset(setting)


@pytest.mark.parametrize("is_flat", [False, True])
def test_spark_joins_the_schemas_of_all_files(
    spark: SparkSession, tmp_path: Path, is_flat: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_rides(tmp_path / "root")
    options: dict[str, Any] = {"topics": ["rides"], "value": "avro", "flatten": is_flat}
    kstore.export(root, tmp_path / "rides", **options)
    append_ride(root, 20, V3, id=7, delay=1, gate="A1")
    kstore.export(root, tmp_path / "rides", **options)
    (code,) = [each.code for each in snippets_of(ROOT / "docs/export.md") if each.code.startswith("rides = spark")]
    names: dict[str, Any] = {"spark": spark}
    exec(code.replace("rides/topic=rides", f"{tmp_path}/rides/topic=rides"), names)
    column = "gate" if is_flat else "value.gate"
    assert [row[0] for row in names["rides"].orderBy("offset").select(column).collect()] == [None] * 6 + ["A1"]
