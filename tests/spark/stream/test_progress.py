"""Goal: the progress of a query says what is left of each partition, in offsets and in bytes.
Method: a query of real Spark over a log that grows and is deleted in part; that of other sources, in Spark's form."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import kstore
import kstore.spark
from kstore.spark import ProgressListener, StreamProgress, progress
from tests.making.exporting import TOPIC, grow

pytestmark = pytest.mark.spark
PYTHON_SOURCE = "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream@70aa8704"
HIDE_TRACEBACK = "spark.sql.execution.pyspark.udf.hideTraceback.enabled"


def told(*sources: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "id": "7",
        "name": None,
        "timestamp": "2026-01-01T00:00:00.000Z",
        "batchId": 3,
        "sources": sources,
        **fields,
    }


def source(start: Any, end: Any, latest: Any, **fields: Any) -> dict[str, Any]:
    offsets = {"startOffset": start, "endOffset": end, "latestOffset": latest}
    return {"description": PYTHON_SOURCE, **offsets, "numInputRows": 5, "processedRowsPerSecond": 2.5, **fields}


def listened(progress_of_query: dict[str, Any]) -> Any:
    return type("Event", (), {"progress": progress_of_query})


class Query:
    def __init__(self, last: Any) -> None:
        self.lastProgress = last


def test_a_query_of_spark_says_how_far_it_is(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "root"
    grow(root, 100)
    reports: list[StreamProgress] = []
    listener = ProgressListener(reports.append)
    spark.streams.addListener(listener)
    stream = spark.readStream.format("kstore").option("startingOffsets", "earliest").load(str(root))
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.queryName("copy").trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120)
        found = progress(query)
        assert found is not None
        assert (found.name, found.rows, found.lag, found.lag_bytes) == ("copy", 200, 0, None)
        assert [partition[:5] for partition in found.partitions] == [(TOPIC, 0, 0, 100, 100), (TOPIC, 1, 0, 100, 100)]
        assert found.rows_per_second > 0
        grow(root, 30)
        later = progress(query, root)
        assert later is not None
        assert [partition.lag for partition in later.partitions] == [30, 30]
        with kstore.open_log(root / f"{TOPIC}-0") as log:
            size = sum(batch.size_in_bytes for batch in log.batches(100))
        assert later.partitions[0].lag_bytes == size
        assert later.lag_bytes == 2 * size
        for directory in root.glob(f"{TOPIC}-1"):
            shutil.rmtree(directory)
        gone = progress(query, root)
        assert gone is not None
        assert [partition.lag_bytes for partition in gone.partitions] == [size, None]
    finally:
        query.stop()
        spark.streams.removeListener(listener)
    assert [report.rows for report in reports][:1] in ([], [200])


def test_there_is_no_progress_before_the_first_micro_batch() -> None:
    assert progress(Query(None)) is None


def test_lag_is_that_of_all_partitions_also_of_new_ones() -> None:
    first = {"t": {"0": 4}, "kstore:start": {"t": {"0": 2}}}
    found = progress(Query(told(source("null", first, {"t": {"0": 10, "1": 7}}))))
    assert found is not None
    assert [(each.partition, each.start_offset, each.end_offset, each.lag) for each in found.partitions] == [
        (0, 2, 4, 6),
        (1, 0, 0, 7),
    ]
    assert (found.lag, found.name) == (13, "7")
    assert str(found) == "7: micro-batch 3: 5 rows, 2/s; lag 13 offsets in 2 partitions, most in t-1: 7"


def test_offsets_may_be_texts_and_ends_may_lie_below_what_was_read() -> None:
    texts = [json.dumps({"t": {"0": offset}}) for offset in (1, 9, 5)]
    found = progress(Query(told(source(*texts), name="q")))
    assert found is not None
    assert (found.name, found.partitions[0][2:5], found.lag) == ("q", (1, 9, 5), 0)


@pytest.mark.parametrize(
    "other",
    [
        source({"t": {"0": 1}}, {"t": {"0": 2}}, None, description="KafkaV2[Subscribe[t]]"),
        source({"rowNumber": 1}, {"rowNumber": 2}, None),
        source("3", "4", None),
    ],
)
def test_other_sources_of_a_query_are_left_out(other: dict[str, Any]) -> None:
    mine = source({"t": {"0": 1}}, {"t": {"0": 2}}, None)
    found = progress(Query(told(other, mine)))
    assert found is not None
    assert [partition[:5] for partition in found.partitions] == [("t", 0, 1, 2, 2)]
    reports: list[StreamProgress] = []
    ProgressListener(reports.append).onQueryProgress(listened(told(other, sinks=1)))
    assert reports == []


def test_rows_and_rates_are_those_of_sources_with_partitions() -> None:
    mine = source({"t": {"0": 1}}, {"t": {"0": 2}}, None)
    other = source({"offset": 1}, {"offset": 1}, None, numInputRows=1000, processedRowsPerSecond=500.0)
    found = progress(Query(told(mine, other)))
    assert found is not None
    assert (found.rows, found.rows_per_second) == (5, 2.5)


def test_a_listener_logs_and_an_error_of_a_report_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    event = listened(told(source({"t": {"0": 1}}, {"t": {"0": 2}}, {"t": {"0": 4}})))
    with caplog.at_level(logging.INFO, logger="kstore.spark"):
        ProgressListener().onQueryProgress(event)
        ProgressListener(lambda _: 1 // 0).onQueryProgress(event)
    logged, failed = caplog.records
    assert "lag 2 offsets in 1 partitions, most in t-0: 2" in logged.getMessage()
    assert failed.exc_info is not None
    assert failed.exc_info[0] is ZeroDivisionError


def test_the_error_of_a_query_begins_with_that_of_kstore_if_tracebacks_are_hidden(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    grow(root, 30)
    path = sorted((root / f"{TOPIC}-0").glob("*.log"))[0]
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    spark.conf.set(HIDE_TRACEBACK, "true")
    try:
        stream = spark.readStream.format("kstore").option("startingOffsets", "earliest").load(str(root))
        writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        with pytest.raises(StreamingQueryException) as failed:
            query.awaitTermination(120)
        first = str(failed.value).splitlines()[0]
        assert "kstore.errors.CorruptRecordError: CRC mismatch in batch at position 0 of" in first
    finally:
        spark.conf.unset(HIDE_TRACEBACK)
