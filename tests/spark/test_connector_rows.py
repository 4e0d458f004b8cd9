"""Goal: format("kstore") answers every batch input as Spark's Kafka source did on the same directory, or better.
Method: the table of observations run through Spark; an error must come from the driver before any job starts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id

from tests.spark.connector_rows import READ_ROWS, SPLIT_ROWS, Refused, Result, Row, Split

pytestmark = pytest.mark.spark


def ids(rows: list[Row]) -> list[str]:
    return [f"{number}-{row.name}-{'-'.join(row.options.values())}"[:90] for number, row in enumerate(rows)]


def load(spark: SparkSession, directory: Path, options: dict[str, str]) -> DataFrame:
    return spark.read.format("kstore").options(**options).load(str(directory))


def result_of(frame: DataFrame) -> Result:
    offsets: dict[tuple[str, int], list[int]] = {}
    for topic, partition, offset in frame.select("topic", "partition", "offset").collect():
        offsets.setdefault((topic, partition), []).append(offset)
    return sorted((*place, len(found), min(found), max(found)) for place, found in offsets.items())


def split_of(frame: DataFrame) -> Split:
    offsets: dict[tuple[int, int], list[int]] = {}
    for task, partition, offset in frame.select(spark_partition_id(), "partition", "offset").collect():
        offsets.setdefault((task, partition), []).append(offset)
    assert all(found == list(range(found[0], found[-1] + 1)) for found in offsets.values())
    return sorted((*place, found[0], found[-1]) for place, found in offsets.items())


def refuse_without_a_job(spark: SparkSession, directory: Path, row: Row) -> None:
    assert isinstance(row.expected, Refused)
    group = f"refused: {row.name} {row.options}"
    spark.sparkContext.setJobGroup(group, group)
    with pytest.raises(PySparkException) as caught:
        load(spark, directory, row.options).collect()
    assert re.search(row.expected.pattern, str(caught.value))
    assert list(spark.sparkContext.statusTracker().getJobIdsForGroup(group)) == []


@pytest.mark.parametrize("row", READ_ROWS, ids=ids(READ_ROWS))
def test_read_answers_as_the_connector_did(spark: SparkSession, connector_directory: Path, row: Row) -> None:
    if isinstance(row.expected, Refused):
        refuse_without_a_job(spark, connector_directory, row)
    else:
        assert result_of(load(spark, connector_directory, row.options)) == row.expected


@pytest.mark.parametrize("row", SPLIT_ROWS, ids=ids(SPLIT_ROWS))
def test_tasks_are_those_of_the_connector(spark: SparkSession, connector_directory: Path, row: Row) -> None:
    options = {"subscribe": "f.skew", **row.options}
    if isinstance(row.expected, Refused):
        refuse_without_a_job(spark, connector_directory, Row(row.name, options, row.expected))
    else:
        frame = load(spark, connector_directory, options)
        assert split_of(frame) == row.expected
        assert frame.rdd.getNumPartitions() == len(row.expected)


def test_read_committed_gives_the_offsets_that_the_connector_gave(
    spark: SparkSession, connector_directory: Path
) -> None:
    committed = {"subscribe": "f.txn", "kafka.isolation.level": "read_committed"}
    whole = load(spark, connector_directory, committed).select("offset").collect()
    assert [row.offset for row in whole] == [*range(10), *range(17, 27)]
    in_tasks: dict[int, list[int]] = {}
    # The transaction open at 28 when the connector was observed was aborted before the directory was kept.
    as_observed = committed | {"minPartitions": "6", "endingOffsets": '{"f.txn":{"0":28}}'}
    parts = load(spark, connector_directory, as_observed)
    for task, offset in parts.select(spark_partition_id(), "offset").collect():
        in_tasks.setdefault(task, []).append(offset)
    counts = [(task, len(found), found[0], found[-1]) for task, found in sorted(in_tasks.items())]
    assert counts == [(0, 4, 0, 3), (1, 4, 4, 7), (2, 2, 8, 9), (3, 1, 17, 17), (4, 5, 18, 22), (5, 4, 23, 26)]
