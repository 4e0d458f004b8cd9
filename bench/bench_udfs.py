"""kstore.spark.udfs in Spark, compared with the same functions written as arrow_udf with aiokafka and flat lists.

A frame of raw batches, one per row, is cached in Spark before the measurement. A run applies the function to it and
discards the result. A function that returns its argument shows the cost of passing the rows to Python and back.

Measured: `unpack_batches` and `pack_batch` on a cached frame of 64 MiB of batches, `local[2]`, to the noop sink.
Compared with: the same functions as `arrow_udf` with aiokafka, which build one flat list for each field; a function
that returns its column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import bit_xor, expr, xxhash64
from pyspark.sql.pandas.functions import arrow_udf

from bench.bench_spark import MOST_ROUNDS, process_tree_cpu_seconds, session, to_noop
from bench.codec_alone import payloads
from bench.common import Case, Contestant, Settings, interleaved, require_equal
from bench.data import PartitionSpec, partition
from bench.spark_rivals import pack_flat, unpack_flat
from kstore.spark.udfs import pack_batch, unpack_batches

KSTORE = {"unpack": "kstore, unpack_batches", "pack": "kstore, pack_batch"}
AIOKAFKA = {"unpack": "aiokafka by flat lists, unpack", "pack": "aiokafka by flat lists, pack"}
NOTHING = "a function that gives back its column"
FIELDS = ("key", "value", "offset", "timestamp")
BATCH_OVERHEAD = 61
RECORDS = "array<struct<key:binary,value:binary,offset:bigint,timestamp:timestamp>>"
WITHOUT_OFFSETS = "transform(records, r -> struct(r.key, r.value, unix_millis(r.timestamp) as timestamp)) as records"
TASKS = 2


def frame_of(spark: SparkSession, value_bytes: int, settings: Settings) -> tuple[DataFrame, int, int]:
    """Return a cached frame of the batches of a segment, their number, and the number of records."""
    spec = PartitionSpec(name="bench-0", value_bytes=value_bytes, segment_bytes=settings.segment_bytes)
    data = partition(spec, settings.data_directory)
    segment = memoryview(data.log_files[0].read_bytes())
    values: list[bytes] = []
    position = 0
    for payload in payloads(segment):
        end = position + BATCH_OVERHEAD + len(payload)
        values.append(bytes(segment[position:end]))
        position = end
    frame = spark.createDataFrame(pa.table({"data": pa.array(values, pa.binary())})).repartition(TASKS)
    return cached(frame), len(values), data.record_count


def cached(frame: DataFrame) -> DataFrame:
    """Compute a frame and cache it in memory."""
    frame = frame.cache()
    frame.count()
    return frame


def by_arrow(name: str, function: Callable[[pa.Array], pa.Array], result: str, column: str) -> Column:
    """Apply a function of Arrow arrays to a column."""

    def named(values: pa.Array) -> pa.Array:
        return function(values)

    named.__name__ = name
    # Spark infers the kind of UDF from the annotations, and can't resolve them as strings in a local function.
    named.__annotations__ = {"values": pa.Array, "return": pa.Array}
    make: Callable[..., Any] = arrow_udf
    called: Column = make(named, result)(column)
    return called


def same(values: pa.Array) -> pa.Array:
    """Return the argument."""
    return values


def checksum(frame: DataFrame) -> int:
    """Return a hash of all rows that is independent of their order."""
    row = frame.select(bit_xor(xxhash64(*frame.columns))).first()
    return 0 if row is None else int(row[0])


def timed(name: str, frames: dict[str, DataFrame], title: str, *, count: int, size: float, settings: Settings) -> Case:
    """Check that kstore and the rival return the same rows, then time all in interleaved rounds."""
    outputs = {who: checksum(frames[who]) for who in (KSTORE[name], AIOKAFKA[name])}
    require_equal(title, dict(outputs))
    case = Case(title=title, unit="rec", bytes_per_unit=size / count)
    case.samples = interleaved(
        [Contestant(who, partial(to_noop, frame), count) for who, frame in frames.items()],
        replace(settings, rounds=min(settings.rounds, MOST_ROUNDS), warm_up_seconds=settings.warm_up_seconds * 10),
        cpu_seconds=process_tree_cpu_seconds,
        one_run_per_sample=True,
    )
    case.add_ratio(KSTORE[name], AIOKAFKA[name])
    case.add_ratio(KSTORE[name], NOTHING)
    return case


def cases_of(spark: SparkSession, value_bytes: int, settings: Settings) -> Iterator[Case]:
    """Time both functions at one value size."""
    frame, batch_count, count = frame_of(spark, value_bytes, settings)
    size = float(count * value_bytes)
    about = f"{value_bytes}-byte values: {count} records in {batch_count} batches"
    records = frame.select(unpack_batches("data", fields=FIELDS).alias("records"))
    unpacked = {
        KSTORE["unpack"]: records,
        AIOKAFKA["unpack"]: frame.select(by_arrow("unpack", unpack_flat, RECORDS, "data").alias("records")),
        NOTHING: frame.select(by_arrow("same", same, "binary", "data")),
    }
    yield timed("unpack", unpacked, f"UDFs in Spark, unpack, {about}", count=count, size=size, settings=settings)
    lists = cached(records.select(expr(WITHOUT_OFFSETS)))
    packed = {
        KSTORE["pack"]: lists.select(pack_batch("records").alias("data")),
        AIOKAFKA["pack"]: lists.select(by_arrow("pack", pack_flat, "binary", "records").alias("data")),
        NOTHING: lists.select(by_arrow("same", same, lists.schema["records"].dataType.simpleString(), "records")),
    }
    yield timed("pack", packed, f"UDFs in Spark, pack, {about}", count=count, size=size, settings=settings)
    for one in (frame, lists):
        one.unpersist()


def run(settings: Settings) -> Iterator[Case]:
    """Time both functions at both value sizes. They have no targets."""
    with session() as spark:
        for value_bytes in (100, 1000):
            yield from cases_of(spark, value_bytes, settings)
