"""Goal: Spark reads URLs: the driver plans, and workers in other processes open the objects themselves.
Method: the flights in an S3 server on loopback, beside the same files on disk."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.fakes.s3 import S3Server
from tests.spark.comparing import sorted_rows
from tests.urls.conftest import FLIGHTS, running_server, server

__all__ = ["running_server", "server"]

pytestmark = pytest.mark.spark

COLUMNS = ("topic", "partition", "offset", "key", "value")


def rows_of(spark: SparkSession, path: str, **options: str) -> pa.Table:
    return sorted_rows(spark.read.format("kstore").options(**options).load(path).select(*COLUMNS))


def test_batch_read_of_a_url_gives_the_rows_of_the_files(spark: SparkSession, server: S3Server) -> None:
    options = {"maxPartitionBytes": "1000000"}
    assert rows_of(spark, server.url("flights"), **options) == rows_of(spark, str(FLIGHTS), **options)


def test_plan_of_whole_logs_asks_for_no_partition(spark: SparkSession, server: S3Server) -> None:
    frame = spark.read.format("kstore").load(server.url("flights"))
    server.requests.clear()
    assert frame.rdd.getNumPartitions() > 1
    assert server.count("LIST") == 1
    assert server.count() == 4


def test_bounded_plan_asks_at_most_thrice_for_a_partition(spark: SparkSession, server: S3Server) -> None:
    bounds = {"startingOffsets": '{"flights-lz4":{"0":-2,"1":-2,"2":-2}}'}
    frame = spark.read.format("kstore").options(subscribe="flights-lz4", **bounds).load(server.url("flights"))
    server.requests.clear()
    assert frame.rdd.getNumPartitions() == 3
    assert server.count() <= 4 + 3 * 3


def test_stream_of_a_url_gives_the_rows_of_the_files(spark: SparkSession, server: S3Server, tmp_path: object) -> None:
    stream = spark.readStream.format("kstore").option("startingOffsets", "earliest").load(server.url("flights"))
    query = (
        stream.writeStream.format("memory")
        .queryName("from_url")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert sorted_rows(spark.table("from_url").select(*COLUMNS)) == rows_of(spark, str(FLIGHTS))


def test_url_that_has_no_log_is_told_without_secrets(spark: SparkSession, server: S3Server) -> None:
    with pytest.raises(Exception, match="no such directory: s3://backups/nothing") as caught:
        spark.read.format("kstore").load(server.url("nothing")).count()
    assert "very" not in str(caught.value)
