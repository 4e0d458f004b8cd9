"""Goal: Spark reads a log of magics 0, 1 and 2 as one sequence of records.
Method: the partitions that a broker wrote while message.format.version changed, row by row against the manifests."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, unix_micros

from tests.golden.columns import expected_columns
from tests.golden.manifests import digest_if_long
from tests.golden.sets import MIXED_SET, golden_partitions

pytestmark = pytest.mark.spark

SCHEMA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "magic TINYINT, codec STRING, producerId BIGINT, sequence INT, position BIGINT"
)


def test_mixed_magics_are_one_sequence_of_rows_with_the_timestamp_types_of_each(spark: SparkSession) -> None:
    """A record without a timestamp has null, where Spark's Kafka source gives -1 ms."""
    partitions = golden_partitions(MIXED_SET)
    frame = spark.read.format("kstore").schema(SCHEMA).load(str(partitions[0].root))
    names = frame.columns
    shown = [unix_micros(col(name)).alias(name) if name == "timestamp" else col(name) for name in names]
    rows = [row.asDict() for row in frame.select(*shown).orderBy("topic", "partition", "offset").collect()]
    assert {row["timestampType"] for row in rows} == {-1, 0}
    for partition in partitions:
        own = [row for row in rows if row["topic"] == partition.topic]
        found = {name: [row[name] for row in own] for name in names}
        for name in ("key", "value"):
            found[name] = [digest_if_long(None if data is None else bytes(data)) for data in found[name]]
        assert found == expected_columns(partition, names), partition
