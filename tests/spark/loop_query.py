"""A streaming query from a topic to a topic, to be killed; for test_loop_kills.py.

`python -m tests.spark.loop_query FLIGHTS ROOT CHECKPOINT` counts flights and delays by day and carrier, and ends when
all flights have been read.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from tests.making.staging import TOPIC
from tests.spark.conftest import SETTINGS

SOURCE_TOPIC = "flights-lz4"
WATERMARK_DAYS = 10
# Partitions advance by offsets, not by time; this keeps them nearer to each other than the watermark's delay.
MAX_OFFSETS = 3000


def delays_by_day(raw: DataFrame) -> DataFrame:
    """The rows to write: per day and carrier one record, when the watermark has passed the end of that day."""
    flight = fn.from_json(fn.col("value").cast("string"), "carrier STRING, dep_delay STRING").alias("flight")
    typed = raw.select("timestamp", flight).select(
        "timestamp", "flight.carrier", fn.expr("try_cast(flight.dep_delay AS INT)").alias("delay")
    )
    days = typed.withWatermark("timestamp", f"{WATERMARK_DAYS} days").groupBy(
        fn.window("timestamp", "1 day").alias("day"), "carrier"
    )
    counted = days.agg(fn.count("*").alias("flights"), fn.sum("delay").alias("delay"))
    day = fn.date_format("day.start", "yyyy-MM-dd").alias("day")
    return counted.select(
        fn.col("carrier").alias("key"), fn.to_json(fn.struct(day, "carrier", "flights", "delay")).alias("value")
    )


def main(flights: str, root: str, checkpoint: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.driver.extraJavaOptions", "-Xss8m")
    for name, value in SETTINGS.items():
        builder.config(name, value)
    spark = builder.getOrCreate()
    source = spark.readStream.format("kstore").option("subscribe", SOURCE_TOPIC)
    raw = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", MAX_OFFSETS).load(flights)
    writer = delays_by_day(raw).writeStream.format("kstore").outputMode("append").option("path", root)
    writer = writer.option("topic", TOPIC).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
