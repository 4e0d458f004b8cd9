"""What mode PERMISSIVE leaves out: in the log of the task, and as a DataFrame."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from kstore.env import StrPath, path_list
from kstore.log.damage import SkippedRange

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

DAMAGE_SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("file", StringType()),
        StructField("position", LongType()),
        StructField("size", LongType()),
        StructField("firstMissingOffset", LongType()),
        StructField("lastMissingOffset", LongType()),
        StructField("reason", StringType()),
    ]
)
# All that is decoded per record.
RECORD_COLUMNS = ("key", "value", "timestamp", "headers")

_logger = logging.getLogger("kstore.spark")


def warn_of(skipped: SkippedRange) -> None:
    """Log a range that was left out."""
    _logger.warning("%s", skipped)


def damage_batch(skipped: Sequence[SkippedRange]) -> pa.RecordBatch:
    """Return the rows of DAMAGE_SCHEMA for ranges that were left out."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    rows = [(*skipped_range.topic_partition, *skipped_range[1:]) for skipped_range in skipped]
    schema = to_arrow_schema(DAMAGE_SCHEMA, timezone="UTC")
    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)], schema=schema
    )


def damage(spark: SparkSession, path: StrPath | Sequence[StrPath], **options: Any) -> DataFrame:
    """Return the damage that a read with mode=PERMISSIVE and the same options leaves out, one row for each range.

    The columns are topic, partition, file (its path), position and size (in bytes), firstMissingOffset and
    lastMissingOffset (firstMissingOffset - 1 if no offset is missing, null if the damage reaches the end of the log, so
    that nothing shows how many records it held), and reason. A range across the bounds of tasks is one row. A row is
    that of kstore.SkippedRange.
    Args: path: a partition directory or a log.dirs root, or several; options: those of spark.read.format("kstore").
    Raises: as a read, when an action runs.
    Cost: tasks read and decode all columns of the selected records, and return only these rows.
    """
    paths = [str(item) for item in path_list(path)]
    return spark.read.format("kstore").options(**options).option("rows", "damage").load(paths)
