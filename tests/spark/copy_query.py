"""A streaming query that copies a topic, for test_elsewhere.py: `python -m tests.spark.copy_query MODE FLIGHTS ROOT
CHECKPOINT`, where MODE is cluster (executors in processes of their own) or connect (the session of a Connect client).
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from tests.making.staging import TOPIC
from tests.spark.conftest import REPOSITORY, SETTINGS
from tests.spark.loop_query import SOURCE_TOPIC

MAX_OFFSETS = 40_000


def session(mode: str) -> SparkSession:
    if mode == "connect":
        return SparkSession.builder.remote("local[2]").getOrCreate()
    builder = SparkSession.builder.master("local-cluster[2,1,1024]")
    for name, value in {**SETTINGS, "spark.executorEnv.PYTHONPATH": str(REPOSITORY)}.items():
        builder.config(name, value)
    return builder.getOrCreate()


def main(mode: str, flights: str, root: str, checkpoint: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = session(mode)
    source = spark.readStream.format("kstore").option("subscribe", SOURCE_TOPIC).option("startingOffsets", "earliest")
    rows = source.option("maxOffsetsPerTrigger", MAX_OFFSETS).load(flights).selectExpr("key", "value")
    writer = rows.writeStream.format("kstore").option("path", root).option("topic", TOPIC)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    error = query.exception()
    spark.stop()
    sys.exit(0 if error is None else str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
