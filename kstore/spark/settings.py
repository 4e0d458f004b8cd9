"""Session settings that make Python and Spark exchange records fast. Layer: spark."""

from __future__ import annotations

from pyspark.sql import SparkSession

from kstore.config import MAX_INT32, MIB

_TARGET_BATCH_BYTES = 4 * MIB
_MOST_RECORDS = 10_000
_FEWEST_RECORDS = 1_000


def configure(spark: SparkSession, *, record_size_bytes: int = 0) -> None:
    """Set the sizes of the Arrow batches that Spark sends to Python (mapInArrow, arrow_udf, Python sinks).

    spark.sql.execution.arrow.maxBytesPerBatch is switched off, since with it Spark measures a batch
    after every row, in time quadratic in its rows where a column of lists is null (headers mostly is).
    In its place spark.sql.execution.arrow.maxRecordsPerBatch holds batches near 4 MiB: from 1,000 to
    10,000 records by record_size_bytes, the usual size of a record (0: small). Reading needs
    none of this: the source cuts its batches itself.

    Raises: ValueError for a negative size.
    """
    if record_size_bytes < 0:
        raise ValueError(f"record_size_bytes must not be negative, got {record_size_bytes}")
    records = _TARGET_BATCH_BYTES // max(record_size_bytes, 1)
    spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(MAX_INT32))
    spark.conf.set(
        "spark.sql.execution.arrow.maxRecordsPerBatch", str(min(max(records, _FEWEST_RECORDS), _MOST_RECORDS))
    )
