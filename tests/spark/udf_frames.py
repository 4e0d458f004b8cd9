"""What the UDFs of kstore.spark.udfs give in a session, classic or Connect: frames made, results as plain rows."""

from __future__ import annotations

from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import array_sort, col, collect_list, expr, struct

from kstore.spark.udfs import batch_info, crc_ok, pack_batch, unpack_batches
from tests.builders import batch, flip_bit

DAMAGED = bytearray(batch(20, 2))
flip_bit(DAMAGED, len(DAMAGED) - 1, bit=0)
VALUES = {
    "one": batch(0, 3, codec=4),
    "several": batch(5, 2) + batch(9, 1, codec=1),
    "null": None,
    "empty": b"",
    "damaged": bytes(DAMAGED),
    "cut": batch(30, 2)[:-1],
}


def frame_of(spark: SparkSession, *names: str) -> DataFrame:
    rows = [(name, VALUES[name]) for name in names or VALUES]
    return spark.createDataFrame(rows, "name string, data binary")


def unpacked(spark: SparkSession) -> dict[str, Any]:
    """Offset and value of each record, None for null, and the beginning of the reason."""
    frame = frame_of(spark).select("name", unpack_batches("data", mode="PERMISSIVE").alias("done"))
    return {
        name: (
            None if done.records is None else [(row.offset, bytes(row.value)) for row in done.records],
            None if done.error is None else done.error.partition(" in batch")[0],
        )
        for name, done in frame.collect()
    }


UNPACKED = {
    "one": ([(0, b"v0"), (1, b"v1"), (2, b"v2")], None),
    "several": ([(5, b"v5"), (6, b"v6"), (9, b"v9")], None),
    "null": (None, None),
    "empty": ([], None),
    "damaged": (None, "CorruptRecordError: CRC mismatch"),
    "cut": (None, "CorruptRecordError: batch runs past the end"),
}


def checked(spark: SparkSession) -> dict[str, bool | None]:
    return dict(frame_of(spark).select("name", crc_ok(col("data"))).collect())


CHECKED = {"one": True, "several": True, "null": None, "empty": True, "damaged": False, "cut": False}


def looked_at(spark: SparkSession) -> dict[str, Any]:
    frame = frame_of(spark).select("name", batch_info("data", mode="PERMISSIVE").alias("info"))
    names = ["info.baseOffset", "info.count", "info.codec", "info.batches", "info.error is not null"]
    fields = frame.selectExpr("name", *names)
    return {row[0]: tuple(row[1:]) for row in fields.collect()}


LOOKED_AT = {
    "one": (0, 3, "zstd", 1, False),
    "several": (5, 2, "none", 2, False),
    "null": (None, None, None, None, False),
    "empty": (None, None, None, None, False),
    "damaged": (20, 2, "none", 1, False),
    "cut": (None, None, None, None, True),
}


def repacked(spark: SparkSession) -> list[str]:
    """Names of the values whose records are not the same after they were packed and unpacked again."""
    frame = frame_of(spark, "one", "several", "empty").select("name", unpack_batches("data").alias("records"))
    again = frame.withColumn("again", unpack_batches(pack_batch("records", codec="zstd", level=5)))
    return [row.name for row in again.where(expr("records <> again")).collect()]


def packed_rows(spark: SparkSession) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """Rows of a table packed into a batch per group, and unpacked again: group, offset, key, value."""
    rows = [(n % 2, n, None if n == 4 else f"k{n}", None if n == 3 else f"v{n}") for n in range(6)]
    table = spark.createDataFrame(rows, "group int, n long, key string, value string")
    records = array_sort(collect_list(struct(col("n"), col("key"), col("value"))))
    packed = table.groupBy("group").agg(pack_batch(records, codec="lz4").alias("batch"))
    unpacked = packed.select("group", unpack_batches("batch", fields=("key", "value", "offset")).alias("records"))
    shown = unpacked.selectExpr("group", "inline(records)").orderBy("group", "offset")
    return [
        (row.group, row.offset, *(None if data is None else bytes(data) for data in (row.key, row.value)))
        for row in shown.collect()
    ]


PACKED_ROWS = [
    (0, 0, b"k0", b"v0"),
    (0, 1, b"k2", b"v2"),
    (0, 2, None, b"v4"),
    (1, 0, b"k1", b"v1"),
    (1, 1, b"k3", None),
    (1, 2, b"k5", b"v5"),
]


def failure(spark: SparkSession) -> str:
    """The last line that matters of what Spark says where damage fails a query."""
    try:
        frame_of(spark, "one", "damaged").select(unpack_batches("data")).collect()
    except PySparkException as error:
        return next(line for line in str(error).splitlines() if line.startswith("kstore.errors."))
    return "no failure"


FAILURE = "kstore.errors.CorruptRecordError: CRC mismatch in batch at position 0 of memory (base offset 20): "
