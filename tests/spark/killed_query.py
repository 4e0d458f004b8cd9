"""A streaming query to be killed: `python -m tests.spark.killed_query SOURCE ROOT CHECKPOINT`; for test_sink_kills.py.

Writes the files of SOURCE, three a micro-batch, and ends when all are written.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from tests.making.staging import TOPIC
from tests.spark.conftest import SETTINGS


def main(source: str, root: str, checkpoint: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.driver.extraJavaOptions", "-Xss8m")
    for name, value in SETTINGS.items():
        builder.config(name, value)
    spark = builder.getOrCreate()
    frame = spark.readStream.format("text").option("maxFilesPerTrigger", 3).load(source).repartition(2)
    writer = frame.writeStream.format("kstore").option("path", root).option("topic", TOPIC)
    writer = writer.option("checkpointLocation", checkpoint).option("kafka.compression.type", "lz4")
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
