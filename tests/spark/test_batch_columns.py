"""Goal: the columns of format("kstore") are those of Spark's Kafka source, and a schema projects them.
Method: schemas and rows through Spark on the directory that the connector was observed on."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.spark

KAFKA_FIELDS = [
    {"metadata": {}, "name": "key", "nullable": True, "type": "binary"},
    {"metadata": {}, "name": "value", "nullable": True, "type": "binary"},
    {"metadata": {}, "name": "topic", "nullable": True, "type": "string"},
    {"metadata": {}, "name": "partition", "nullable": True, "type": "integer"},
    {"metadata": {}, "name": "offset", "nullable": True, "type": "long"},
    {"metadata": {}, "name": "timestamp", "nullable": True, "type": "timestamp"},
    {"metadata": {}, "name": "timestampType", "nullable": True, "type": "integer"},
]
HEADERS_FIELD = {
    "metadata": {},
    "name": "headers",
    "nullable": True,
    "type": {
        "containsNull": True,
        "elementType": {
            "fields": [
                {"metadata": {}, "name": "key", "nullable": True, "type": "string"},
                {"metadata": {}, "name": "value", "nullable": True, "type": "binary"},
            ],
            "type": "struct",
        },
        "type": "array",
    },
}
EVERY_COLUMN = (
    "key BINARY, value STRING, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, magic TINYINT, codec STRING, leaderEpoch INT, "
    "producerId BIGINT, producerEpoch SMALLINT, sequence INT, isTransactional BOOLEAN, isControl BOOLEAN, "
    "position BIGINT"
)


def load(spark: SparkSession, directory: Path, schema: str | None = None, **options: str) -> DataFrame:
    reader = spark.read.format("kstore").options(**options)
    return (reader if schema is None else reader.schema(schema)).load(str(directory))


def second(number: int) -> datetime:
    return datetime.fromtimestamp(1_700_000_000 + number, timezone.utc).replace(tzinfo=None)


def test_schema_is_that_of_the_kafka_source(spark: SparkSession, connector_directory: Path) -> None:
    assert json.loads(load(spark, connector_directory).schema.json())["fields"] == KAFKA_FIELDS


def test_headers_are_a_column_with_include_headers(spark: SparkSession, connector_directory: Path) -> None:
    schema = load(spark, connector_directory, includeHeaders="true").schema
    assert json.loads(schema.json())["fields"] == [*KAFKA_FIELDS, HEADERS_FIELD]


def test_null_empty_and_missing_stay_apart(spark: SparkSession, connector_directory: Path) -> None:
    frame = load(spark, connector_directory, assign='{"f.small":[0]}', includeHeaders="true")
    rows = frame.where("offset between 4 and 9").orderBy("offset").collect()
    headers = [Row(key="h1", value=b"v5"), Row(key="h1", value=b"dup"), Row(key="nul", value=None)]
    headers.append(Row(key="empty", value=b""))
    place = ("f.small", 0)
    assert [tuple(row) for row in rows] == [
        (b"k4", b"v4", *place, 4, second(4), 0, None),
        (b"k5", b"v5", *place, 5, second(5), 0, headers),
        (None, b"v6", *place, 6, second(6), 0, None),
        (b"k7", None, *place, 7, second(7), 0, None),
        (b"", b"v8", *place, 8, second(8), 0, None),
        (b"k9", b"", *place, 9, second(9), 0, None),
    ]


def test_log_append_time_is_told(spark: SparkSession, connector_directory: Path) -> None:
    frame = load(spark, connector_directory, subscribe="f.logappend")
    rows = frame.selectExpr("timestampType", "timestamp > CAST('2024-01-01' AS TIMESTAMP)").distinct().collect()
    assert [tuple(row) for row in rows] == [(1, True)]


def test_empty_topic_has_one_spark_partition(spark: SparkSession, connector_directory: Path) -> None:
    assert load(spark, connector_directory, subscribe="f.empty").rdd.getNumPartitions() == 1


@pytest.mark.parametrize("options", [{}, {"kafka.isolation.level": "read_uncommitted"}], ids=["default", "named"])
def test_uncommitted_records_are_read_and_control_records_are_not(
    spark: SparkSession, connector_directory: Path, options: dict[str, str]
) -> None:
    rows = load(spark, connector_directory, subscribe="f.txn", **options).select("offset", "value").collect()
    assert (len(rows), rows[0].offset, rows[-1].offset) == (26, 0, 28)
    committed = {b"c%d" % number: 2 for number in range(10)}
    assert Counter(bytes(row.value) for row in rows) == {**committed, b"ABORT": 5, b"OPEN": 1}


def test_schema_is_a_projection(spark: SparkSession, connector_directory: Path) -> None:
    frame = load(spark, connector_directory, "value STRING, offset BIGINT, key STRING", assign='{"f.small":[0]}')
    assert frame.schema.simpleString() == "struct<value:string,offset:bigint,key:string>"
    rows = frame.where("offset in (4, 6, 7, 8, 9)").orderBy("offset").collect()
    assert [tuple(row) for row in rows] == [
        ("v4", 4, "k4"),
        ("v6", 6, None),
        (None, 7, "k7"),
        ("v8", 8, ""),
        ("", 9, "k9"),
    ]


def test_offset_column_alone_counts_every_record(spark: SparkSession, connector_directory: Path) -> None:
    assert load(spark, connector_directory, "offset BIGINT", subscribe="f.skew").count() == 1111


def test_batch_metadata_is_there_by_name(spark: SparkSession, connector_directory: Path) -> None:
    frame = load(spark, connector_directory, EVERY_COLUMN, subscribe="f.txn")
    row = frame.where("offset = 12").first()
    assert row is not None
    expected = {
        "key": None,
        "value": "ABORT",
        "topic": "f.txn",
        "partition": 0,
        "offset": 12,
        "timestampType": 0,
        "headers": None,
        "magic": 2,
        "codec": "none",
        "leaderEpoch": 0,
        "producerId": 3,
        "producerEpoch": 0,
        "sequence": 11,
        "isTransactional": True,
        "isControl": False,
        "position": 229,
    }
    assert row.asDict() == {**expected, "timestamp": row.timestamp}


def test_schema_names_are_matched_in_any_case_and_kept(spark: SparkSession, connector_directory: Path) -> None:
    frame = load(spark, connector_directory, "OFFSET BIGINT, TimestampType INT", assign='{"f.skew":[3]}')
    assert frame.columns == ["OFFSET", "TimestampType"]
    assert [tuple(row) for row in frame.collect()] == [(0, 0)]


def test_not_null_is_kept_where_it_holds(spark: SparkSession, connector_directory: Path) -> None:
    frame = load(spark, connector_directory, "offset BIGINT NOT NULL, value BINARY", subscribe="f.small")
    assert [field.nullable for field in frame.schema] == [False, True]
    assert frame.count() == 200
    assert frame.agg({"offset": "max"}).first() == (99,)


def test_null_where_the_schema_says_not_null_fails_the_read(spark: SparkSession, connector_directory: Path) -> None:
    with pytest.raises(PySparkException, match="column key is NOT NULL, but the log holds a record where it is null"):
        load(spark, connector_directory, "key BINARY NOT NULL", subscribe="f.small").collect()


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        pytest.param("offset BIGINT, valeu BINARY", "no column valeu of type binary; a schema can name", id="unknown"),
        pytest.param("offset INT", "no column offset of type int; .*offset bigint", id="type"),
    ],
)
def test_schema_that_a_log_does_not_have_is_refused(
    spark: SparkSession, connector_directory: Path, schema: str, message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        load(spark, connector_directory, schema).collect()


def test_there_is_no_metadata_column(spark: SparkSession, connector_directory: Path) -> None:
    with pytest.raises(AnalysisException, match="_metadata"):
        load(spark, connector_directory).select("_metadata")


def test_temporary_view_takes_options_and_columns(spark: SparkSession, connector_directory: Path) -> None:
    options = f"OPTIONS (path '{connector_directory}', subscribe 'f.small')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW small USING kstore {options}")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW small_values (offset BIGINT, value STRING) USING kstore {options}")
    assert spark.sql("SELECT count(*) FROM small").first() == (200,)
    values = spark.sql("SELECT value, count(*) FROM small_values WHERE offset = 8 GROUP BY value").collect()
    assert [tuple(row) for row in values] == [("v8", 2)]
