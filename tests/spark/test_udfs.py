"""Goal: the UDFs of kstore.spark.udfs do in Spark what their functions do, in a classic session and under Connect.
Method: the same frames in the session of all tests, and in a process of its own with a Connect server on loopback."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import arrays_zip, col

from kstore.spark.udfs import batch_info, crc_ok, pack_batch, unpack_batches
from tests.spark import udf_frames
from tests.spark.conftest import REPOSITORY

pytestmark = pytest.mark.spark

RESULTS = {
    "unpacked": udf_frames.UNPACKED,
    "checked": udf_frames.CHECKED,
    "looked_at": udf_frames.LOOKED_AT,
    "repacked": [],
    "packed_rows": udf_frames.PACKED_ROWS,
    "old_unpacked": udf_frames.OLD_UNPACKED,
    "old_checked": udf_frames.OLD_CHECKED,
    "old_looked_at": udf_frames.OLD_LOOKED_AT,
    "old_repacked": [],
}


@pytest.mark.parametrize("name", RESULTS)
def test_udf_gives_what_its_values_hold(spark: SparkSession, name: str) -> None:
    assert getattr(udf_frames, name)(spark) == RESULTS[name]


def test_damaged_value_fails_the_query_with_the_typed_error(spark: SparkSession) -> None:
    assert udf_frames.failure(spark).startswith(udf_frames.FAILURE)


def test_result_is_named_by_the_function_and_typed_as_documented(spark: SparkSession) -> None:
    frame = udf_frames.frame_of(spark)
    calls = [unpack_batches("data"), crc_ok("data"), batch_info("data"), unpack_batches("data", mode="PERMISSIVE")]
    fields = frame.select(*calls).schema.fields
    names = [field.name.partition("(")[0] for field in fields]
    assert names == ["unpack_batches", "crc_ok", "batch_info", "unpack_batches"]
    record = "struct<key:binary,value:binary,offset:bigint,timestamp:timestamp,timestampType:int,"
    record += "headers:array<struct<key:string,value:binary>>>"
    assert fields[0].dataType.simpleString() == f"array<{record}>"
    assert fields[3].dataType.simpleString() == f"struct<records:array<{record}>,error:string>"


def test_columns_of_arrays_are_zipped_into_the_records_of_a_batch(spark: SparkSession) -> None:
    table = spark.createDataFrame([(["a", "b"], [b"1", None])], "key array<string>, value array<binary>")
    packed = table.select(pack_batch(arrays_zip(col("key"), col("value")), base_offset=40).alias("batch"))
    rows = packed.select(unpack_batches("batch", fields=("key", "value", "offset")).alias("r")).selectExpr("inline(r)")
    assert [(bytes(row.key), row.value, row.offset) for row in rows.collect()] == [(b"a", b"1", 40), (b"b", None, 41)]


def test_segment_files_as_binary_values_give_the_rows_of_the_source(
    spark: SparkSession, connector_directory: Path
) -> None:
    """Each .log of a topic is a value of many batches."""
    logs = spark.read.format("binaryFile").option("pathGlobFilter", "*.log").load(f"{connector_directory}/f.small-*")
    unpacked = logs.select(unpack_batches("content").alias("records")).selectExpr("inline(records)")
    source = spark.read.format("kstore").option("subscribe", "f.small").option("includeHeaders", "true")
    expected = source.load(str(connector_directory)).select(unpacked.columns)
    assert unpacked.count() > 0
    assert unpacked.exceptAll(expected).count() == expected.exceptAll(unpacked).count() == 0


CONNECT_SCRIPT = """
import pickle, sys
from pyspark.sql import SparkSession
from tests.spark import udf_frames
builder = SparkSession.builder.remote("local[2]")
for name, value in {settings}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
try:
    results = {{name: getattr(udf_frames, name)(spark) for name in {names}}}
    results["session"] = type(spark).__module__
finally:
    spark.stop()
with open(sys.argv[1], "wb") as file:
    pickle.dump(results, file)
"""
CONNECT_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
}


@pytest.fixture(scope="module")
def connect_results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the frames give in a process that has a Connect server started and stopped."""
    directory = tmp_path_factory.mktemp("connect")
    script = CONNECT_SCRIPT.format(settings=CONNECT_SETTINGS, names=[*RESULTS, "failure"])
    python_path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    # SPARK_TESTING: the server takes a free port.
    environment = os.environ | {"PYTHONPATH": python_path, "PYSPARK_PYTHON": sys.executable, "SPARK_TESTING": "1"}
    command = [sys.executable, "-c", script, str(directory / "results")]
    done = subprocess.run(
        command, env=environment, cwd=directory, capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stderr[-2000:]
    results: dict[str, Any] = pickle.loads((directory / "results").read_bytes())
    return results


needs_connect = pytest.mark.skipif(
    find_spec("grpc") is None or find_spec("grpc_status") is None, reason="pyspark[connect] is not installed"
)


@needs_connect
@pytest.mark.parametrize("name", RESULTS)
def test_udf_gives_the_same_under_connect(connect_results: dict[str, Any], name: str) -> None:
    assert connect_results["session"] == "pyspark.sql.connect.session"
    assert connect_results[name] == RESULTS[name]


@needs_connect
def test_damaged_value_fails_the_query_under_connect(connect_results: dict[str, Any]) -> None:
    assert connect_results["failure"].startswith(udf_frames.FAILURE)
