"""Goal: a stream answers every input as Spark's Kafka source did on the same directory, or better.
Method: the table of observations, with real Spark and by the calls that Spark makes, where a row is not about Spark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.fakes.stream_query import StreamQuery
from tests.spark.connector_rows import Refused
from tests.spark.stream.rows import SPLIT_REST, SPLITS, STREAM_ROWS, Batches, StreamRow
from tests.spark.test_connector_rows import result_of

pytestmark = pytest.mark.spark

# Those with which all that Spark does with an answer is seen; the others are run by the calls alone, unless asked for.
WITH_SPARK = {
    "startingOffsets default",
    "startingOffsets partial",
    "maxOffsetsPerTrigger of 0",
    "maxTriggerDelay of foo",
}
WITH_SPARK |= {"once", "group id", "missing topic", "minOffsetsPerTrigger"}

ids = [f"{number}-{row.name}-{'-'.join(row.options.values())}"[:90] for number, row in enumerate(STREAM_ROWS)]


def batches_of(spark: SparkSession, directory: Path, row: StreamRow, checkpoint: Path) -> Batches:
    found: Batches = []

    def note(frame: DataFrame, number: int) -> None:
        assert number == len(found)
        found.append(result_of(frame))

    stream = spark.readStream.format("kstore").options(**row.options).load(str(directory))
    writer = stream.writeStream.foreachBatch(note).option("checkpointLocation", str(checkpoint))
    trigger = {"once": True} if row.trigger == "once" else {"availableNow": True}
    query = writer.trigger(**trigger).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
    error = query.exception()
    if error is not None:
        raise error
    return found


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=name, marks=() if row.name in WITH_SPARK else pytest.mark.long)
        for row, name in zip(STREAM_ROWS, ids, strict=True)
    ],
)
def test_stream_answers_as_the_connector_did(
    spark: SparkSession, connector_directory: Path, row: StreamRow, tmp_path: Path
) -> None:
    if isinstance(row.expected, Refused):
        with pytest.raises(PySparkException) as caught:
            batches_of(spark, connector_directory, row, tmp_path)
        assert re.search(row.expected.pattern, str(caught.value))
    else:
        assert batches_of(spark, connector_directory, row, tmp_path) == row.expected


@pytest.mark.parametrize("row", STREAM_ROWS, ids=ids)
def test_calls_of_the_driver_answer_as_spark_does(connector_directory: Path, row: StreamRow) -> None:
    def run() -> Batches:
        query = StreamQuery(connector_directory, **row.options)
        return [batch.offsets() for batch in query.run(row.trigger)]

    if isinstance(row.expected, Refused):
        with pytest.raises(Exception, match=row.expected.pattern):
            run()
    else:
        assert run() == row.expected


@pytest.mark.parametrize(("options", "first"), SPLITS)
def test_tasks_are_those_of_the_connector(
    connector_directory: Path, options: dict[str, str], first: list[tuple[int, int, int]]
) -> None:
    query = StreamQuery(connector_directory, subscribe="f.skew", startingOffsets="earliest", **options)
    (batch,) = query.run()
    assert sorted(batch.splits) == first + SPLIT_REST
