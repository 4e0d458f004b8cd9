"""What the UDFs of kstore.spark.udfs give in a session, classic or Connect: frames made, results as plain rows."""

from __future__ import annotations

from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import array_sort, col, collect_list, expr, struct

from kstore.spark.udfs import batch_info, crc_ok, pack_batch, unpack_batches
from tests.making.batches import batch, flip_bit
from tests.making.messages import packed_entry, write_wrapper
from tests.reference import messages as reference_messages

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


def entries(*offsets: int, magic: int) -> list[bytes]:
    values = (None if offset == 2 else f"v{offset}".encode() for offset in offsets)
    return [
        packed_entry(value, b"key", offset=offset, magic=magic, timestamp_ms=1000 + offset)
        for offset, value in zip(offsets, values, strict=True)
    ]


V0_WRAPPER = write_wrapper(entries(7, 8, 12, magic=0), magic=0, codec=3, offset=12)
V1_WRAPPER = write_wrapper(entries(0, 1, 2, magic=1), magic=1, codec=1, offset=22, timestamp_ms=1002)
APPENDED = write_wrapper(entries(0, 1, magic=1), magic=1, codec=2, offset=1, timestamp_ms=77, appended=True)
INNER_DAMAGED = [*entries(0, magic=1), entries(1, magic=1)[0][:-1] + b"?"]
OLD_VALUES = {
    "v0": b"".join(entries(1, 2, 4, magic=0)),
    "v1": b"".join(entries(1, 2, 4, magic=1)),
    "v0 lz4": V0_WRAPPER,
    "v1 gzip": V1_WRAPPER,
    "v1 snappy append time": APPENDED,
    "mixed": b"".join(entries(5, magic=0)) + V0_WRAPPER + V1_WRAPPER + batch(30, 2, codec=4),
}
# Reasons as far as they are the same for whole values and for parts of one.
OLD_DAMAGED = {
    "v0 wrong CRC": (V0_WRAPPER[:-1] + bytes([V0_WRAPPER[-1] ^ 1]), "CorruptRecordError: CRC mismatch", False),
    "v1 wrong inner CRC": (
        write_wrapper(INNER_DAMAGED, magic=1, codec=1, offset=1),
        "CorruptRecordError: CRC mismatch",
        True,
    ),
    "v1 nested": (
        write_wrapper([APPENDED], magic=1, codec=1, offset=1),
        "InvalidRecordError: compressed message inside a compressed message",
        True,
    ),
    "v1 cut": (V1_WRAPPER[:-1], "CorruptRecordError: batch runs past the end", False),
}
Row = tuple[int, int, int, bytes | None, bytes | None]


def old_frame(spark: SparkSession) -> DataFrame:
    rows = [*OLD_VALUES.items(), *((name, value) for name, (value, _, _) in OLD_DAMAGED.items())]
    return spark.createDataFrame(rows, "name string, data binary")


def old_unpacked(spark: SparkSession) -> dict[str, list[Row] | str]:
    """Of each value the rows, that is offset, ms, timestamp type, key and value, or the beginning of the reason."""
    frame = old_frame(spark).select("name", unpack_batches("data", mode="PERMISSIVE").alias("done"))
    read = frame.where("done.error is null").selectExpr("name", "posexplode(done.records) as (number, r)")
    columns = ("r.offset", "unix_millis(r.timestamp)", "r.timestampType", "r.key", "r.value")
    found: dict[str, list[Row] | str] = {name: [] for name in OLD_VALUES}
    for name, *fields, key, value in read.orderBy("name", "number").selectExpr("name", *columns).collect():
        found[name] += [(*fields, *(None if data is None else bytes(data) for data in (key, value)))]
    for name, reason in frame.where("done.error is not null").selectExpr("name", "done.error").collect():
        found[name] = reason.partition(" in ")[0]
    return found


def known(timestamp_ms: int) -> int | None:
    """No timestamp is null in columns."""
    return None if timestamp_ms == -1 else timestamp_ms


OLD_UNPACKED: dict[str, list[Row] | str] = {
    name: [
        (record.offset, known(record.timestamp_ms), record.timestamp_type, record.key, record.value)
        for record in reference_messages.read_all(value)
    ]
    for name, value in OLD_VALUES.items()
} | {name: reason for name, (_, reason, _) in OLD_DAMAGED.items()}


def old_checked(spark: SparkSession) -> dict[str, bool]:
    return dict(old_frame(spark).select("name", crc_ok("data")).collect())


OLD_CHECKED = dict.fromkeys(OLD_VALUES, True) | {name: is_ok for name, (_, _, is_ok) in OLD_DAMAGED.items()}


def old_looked_at(spark: SparkSession) -> dict[str, Any]:
    """A wrapper's header has its last offset, and neither the first one nor a count."""
    frame = old_frame(spark).select("name", batch_info("data", mode="PERMISSIVE").alias("info"))
    names = ["magic", "baseOffset", "lastOffset", "count", "codec", "timestampType", "maxTimestamp", "batches"]
    fields = frame.selectExpr("name", *(f"info.{name}" for name in names)).where(col("name").isin([*OLD_LOOKED_AT]))
    return {row[0]: tuple(row[1:]) for row in fields.collect()}


OLD_LOOKED_AT = {
    "v0": (0, 1, 1, 1, "none", -1, -1, 3),
    "v1": (1, 1, 1, 1, "none", 0, 1001, 3),
    "v0 lz4": (0, None, 12, None, "lz4", -1, -1, 1),
    "v1 gzip": (1, None, 22, None, "gzip", 0, 1002, 1),
    "v1 snappy append time": (1, None, 1, None, "snappy", 1, 77, 1),
    "mixed": (0, 5, 5, 1, "none", -1, -1, 4),
    "v1 nested": (1, None, 1, None, "gzip", 0, -1, 1),
    "v1 cut": (None,) * 8,
}


def old_repacked(spark: SparkSession) -> list[str]:
    """Names of the values whose records are not the same after they were packed into a batch and unpacked again."""
    frame = old_frame(spark).where(col("name").isin([*OLD_VALUES])).select("name", unpack_batches("data").alias("old"))
    packed = frame.withColumn("batch", pack_batch("old", codec="lz4"))
    fields = ("offset", "timestamp", "key", "value")
    again = packed.withColumn("new", unpack_batches("batch", fields=fields))
    info = again.withColumn("info", batch_info("batch"))
    kept = "transform(old, r -> named_struct(" + ", ".join(f"'{name}', r.{name}" for name in fields) + "))"
    whole = f"{kept} = new and info.magic = 2 and info.count = size(old)"
    return [row.name for row in info.where(f"not ({whole})").collect()]
