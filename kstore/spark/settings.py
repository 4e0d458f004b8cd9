"""Spark session settings for fast record exchange between Spark and Python."""

from __future__ import annotations

from pyspark.sql import SparkSession

from kstore.config import MAX_INT32, MIB

_TARGET_BATCH_BYTES = 4 * MIB
_MOST_RECORDS = 10_000
_FEWEST_RECORDS = 1_000


def configure(spark: SparkSession, *, record_size_bytes: int = 0) -> None:
    """Set the sizes of the Arrow batches that Spark sends to Python (mapInArrow, arrow_udf, Python sinks).

    Disables spark.sql.execution.arrow.maxBytesPerBatch: with it Spark measures the batch after every row, in time
    quadratic in the rows if a list column is null, as headers usually is. Instead, sets
    spark.sql.execution.arrow.maxRecordsPerBatch to 1,000 to 10,000 records, for batches of about 4 MiB.
    Reading does not need these settings: the source limits the size of its batches itself.

    Args: record_size_bytes: the typical size of a record; 0 for small records.
    Raises: ValueError for a negative size.
    """
    if record_size_bytes < 0:
        raise ValueError(f"record_size_bytes must not be negative, got {record_size_bytes}")
    records = _TARGET_BATCH_BYTES // max(record_size_bytes, 1)
    spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(MAX_INT32))
    spark.conf.set(
        "spark.sql.execution.arrow.maxRecordsPerBatch", str(min(max(records, _FEWEST_RECORDS), _MOST_RECORDS))
    )
