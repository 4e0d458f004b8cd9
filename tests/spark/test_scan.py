"""Goal: a read that tasks plan gives the rows of one that the driver plans, and asks a store for each partition once.
Method: the flights and golden directories, on disk and in an S3 server on loopback, read in both ways."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

import kstore
import kstore.spark
from kstore.errors import LogNotFoundError
from kstore.spark.jobs.scanning import PACK_ABOVE
from kstore.spark.jobs.selecting import constraint_where, projected
from tests.fakes.s3 import S3Server
from tests.making.batches import batch, write_root
from tests.making.rides import ROWS, write_rides
from tests.spark.comparing import sorted_rows
from tests.urls.conftest import FLIGHTS, running_server, server

__all__ = ["running_server", "server"]

pytestmark = pytest.mark.spark

TOPIC = "flights-lz4"


def both(spark: SparkSession, path: str, **options: str) -> tuple[pa.Table, pa.Table]:
    loaded = spark.read.format("kstore").options(**options).load(path)
    scanned = kstore.spark.scan(spark, path, **options)
    assert scanned.schema == loaded.schema
    return sorted_rows(scanned), sorted_rows(loaded)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"subscribe": TOPIC, "maxPartitionBytes": "1500000"},
        {"assign": f'{{"{TOPIC}":[1]}}', "startingOffsets": f'{{"{TOPIC}":{{"1":1000}}}}'},
        {"maxRecordsPerPartition": "9000", "includeHeaders": "true", "kafka.isolation.level": "read_committed"},
    ],
)
def test_rows_are_those_of_a_read_that_the_driver_plans(spark: SparkSession, options: dict[str, str]) -> None:
    found, wanted = both(spark, str(FLIGHTS), **options)
    assert found == wanted
    assert found.num_rows


def test_rows_of_a_url_are_those_of_the_files(spark: SparkSession, server: S3Server) -> None:
    found = sorted_rows(kstore.spark.scan(spark, server.url("flights")))
    assert found == sorted_rows(spark.read.format("kstore").load(str(FLIGHTS)))


def test_driver_lists_the_names_and_a_task_lists_each_partition_once(spark: SparkSession, server: S3Server) -> None:
    frame = kstore.spark.scan(spark, server.url("flights"))
    # In this process and in the workers: the names, then each of 3 partitions, and per task the root's checkpoint.
    listed = sorted(parse_qs(one.key)["prefix"][0] for one in server.requests if one.kind == "LIST")
    assert listed == ["flights/", *(f"flights/flights-lz4-{number}/" for number in range(3))]
    assert server.count() <= 1 + 3 + 3 * 4
    server.requests.clear()
    assert frame.count() == 110_000
    assert server.count("LIST") == 0


def test_each_task_gets_its_own_plan(spark: SparkSession) -> None:
    frame = kstore.spark.scan(spark, FLIGHTS, schema="offset BIGINT", maxPartitionBytes="300000")
    tasks = frame.rdd.getNumPartitions()
    assert (
        tasks
        == spark.read.format("kstore").option("maxPartitionBytes", "300000").load(str(FLIGHTS)).rdd.getNumPartitions()
    )
    counts = frame.rdd.mapPartitions(lambda rows: [sum(1 for _ in rows)]).collect()
    assert len(counts) == tasks > 3
    assert all(counts)


def test_small_partitions_are_read_by_few_tasks(spark: SparkSession, tmp_path: Path) -> None:
    write_root(tmp_path, {f"t-{number}": [[batch(0, 3)]] for number in range(2 * PACK_ABOVE)})
    frame = kstore.spark.scan(spark, tmp_path)
    assert frame.count() == 3 * 2 * PACK_ABOVE
    assert frame.rdd.getNumPartitions() == PACK_ABOVE


def test_schema_is_a_projection(spark: SparkSession) -> None:
    frame = kstore.spark.scan(spark, FLIGHTS, schema="offset BIGINT, value STRING")
    wanted = spark.read.format("kstore").schema("offset BIGINT, value STRING").load(str(FLIGHTS))
    assert sorted_rows(frame) == sorted_rows(wanted)


def test_offsets_are_those_of_the_call(spark: SparkSession, tmp_path: Path) -> None:
    with kstore.open_log(tmp_path / "t-0", "a") as log:
        log.append([kstore.Record(value=b"1")])
    frame = kstore.spark.scan(spark, tmp_path)
    with kstore.open_log(tmp_path / "t-0", "a") as log:
        log.append([kstore.Record(value=b"2")])
    assert frame.count() == 1


def test_empty_root_has_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    with kstore.open_log(tmp_path / "t-0", "a"):
        pass
    assert kstore.spark.scan(spark, tmp_path).collect() == []


@pytest.mark.parametrize("option", ["minPartitions", "pushFilters", "rows"])
def test_options_that_need_all_partitions_are_refused(spark: SparkSession, option: str) -> None:
    value = {"minPartitions": "4", "pushFilters": "true", "rows": "damage"}[option]
    with pytest.raises(ValueError, match=f"{option}: not possible"):
        kstore.spark.scan(spark, FLIGHTS, **{option: value})


def test_missing_topic_is_told_before_the_job_and_a_missing_offset_by_it(spark: SparkSession) -> None:
    with pytest.raises(LogNotFoundError, match="topic nothing"):
        kstore.spark.scan(spark, FLIGHTS, subscribe="nothing")
    bounds = f'{{"{TOPIC}":{{"0":99999999,"1":-2,"2":-2}}}}'
    with pytest.raises(PySparkException, match="OffsetOutOfRange"):
        kstore.spark.scan(spark, FLIGHTS, subscribe=TOPIC, startingOffsets=bounds)


FIRST_DAY = datetime(2013, 1, 1, 5, tzinfo=timezone.utc), datetime(2013, 1, 1, 15)


@pytest.mark.parametrize(
    ("where", "condition"),
    [
        (
            [("topic", "=", TOPIC), ("partition", "in", [0, 2]), ("offset", ">=", 1000), ("offset", "<", 1010)],
            "partition IN (0, 2) AND offset >= 1000 AND offset < 1010",
        ),
        (
            [("timestamp", ">", FIRST_DAY[0]), ("timestamp", "<=", FIRST_DAY[1]), ("partition", "==", 1)],
            "partition = 1 AND timestamp > '2013-01-01 05:00:00' AND timestamp <= '2013-01-01 15:00:00'",
        ),
    ],
)
def test_rows_are_those_that_meet_the_conditions(spark: SparkSession, where: Any, condition: str) -> None:
    found = kstore.spark.scan(spark, FLIGHTS, columns=["value", "offset", "partition"], where=where)
    assert found.columns == ["value", "offset", "partition"]
    rows = sorted(map(tuple, found.collect()))
    loaded = spark.read.format("kstore").load(str(FLIGHTS)).where(condition)
    assert rows == sorted(map(tuple, loaded.select("value", "offset", "partition").collect()))
    assert rows


def test_only_the_fields_that_are_named_are_decoded(spark: SparkSession, tmp_path: Path) -> None:
    root = write_rides(tmp_path / "rides")
    columns = ["offset", "value.carrier", "_corrupt_value"]
    found = kstore.spark.scan(spark, root, columns=columns, subscribe="rides", valueFormat="avro")
    kinds = "struct<offset:bigint,value:struct<carrier:string>,_corrupt_value:string>"
    assert found.schema.simpleString() == kinds
    rows = sorted(found.collect())
    assert [row.value and row.value.carrier for row in rows] == [row and row["carrier"] for row in ROWS]
    assert [row.offset for row in rows if row._corrupt_value] == [3, 4]
    with pytest.raises(ValueError, match="value has no field 'nope', but id, carrier, delay"):
        kstore.spark.scan(spark, root, columns=["value.nope"], subscribe="rides", valueFormat="avro")


def test_a_column_and_its_field_are_the_column() -> None:
    inner = StructType([StructField("a", LongType()), StructField("b", StructType([StructField("c", LongType())]))])
    source = StructType([StructField("value", inner)])
    assert projected(["value.b.c", "value", "offset"], source)["value"].dataType == inner
    narrowed = projected(["value.b.c", "offset"], source)
    assert narrowed.simpleString() == "struct<value:struct<b:struct<c:bigint>>,offset:bigint>"
    for wrong in ([], ["offset", "offset"], ["nope"], ["value.a.x"], ["offset.x"]):
        with pytest.raises(ValueError, match="columns"):
            projected(wrong, source)


@pytest.mark.parametrize(
    "condition",
    [
        ("value", "=", b"x"),
        ("offset", "~", 1),
        ("offset", "=", True),
        ("offset", "=", "1"),
        ("offset", "in", [1]),
        ("topic", "<", "a"),
        ("topic", "in", "orders"),
        ("timestamp", "=", 5),
        ("partition", "in", 3),
        ("partition", "in"),
    ],
)
def test_conditions_that_the_reader_cannot_answer_are_refused(condition: Any) -> None:
    with pytest.raises(ValueError, match="where must be a list of conditions such as"):
        constraint_where([condition])


def test_one_condition_that_is_not_in_a_list_is_refused() -> None:
    with pytest.raises(ValueError, match="where must be a list of conditions such as"):
        constraint_where(("offset", ">=", 100))  # type: ignore[arg-type]


@pytest.mark.parametrize("collected", [list, set, iter])
def test_values_of_a_condition_may_be_an_iterator(collected: Any) -> None:
    constraint = constraint_where([("partition", "in", collected([0, 1]))])
    assert [constraint.admits(kstore.TopicPartition("t", number)) for number in range(3)] == [True, True, False]


def test_a_schema_and_columns_are_not_given_together(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="only one of schema and columns"):
        kstore.spark.scan(spark, FLIGHTS, schema="offset BIGINT", columns=["offset"])
