"""Read three partitions written by a Kafka broker into Spark, without a broker, and check every value.

The job parses the JSON values, prints the mean delays by carrier, writes both tables as Parquet and compares the row
count and a checksum of all values with examples/flights/MANIFEST.json. The exit status is 1 if they differ.

    python examples/flights_demo.py [--source DIR] [--out DIR]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from kstore.spark import configure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EXAMPLES = Path(__file__).resolve().parent
TEXT_FIELDS = ("carrier", "flight", "tailnum", "origin", "dest")
NUMBER_FIELDS = ("dep_delay", "arr_delay", "air_time", "distance")
JSON_SCHEMA = ", ".join(f"{name} STRING" for name in TEXT_FIELDS + NUMBER_FIELDS)


def start_spark() -> SparkSession:
    """Return a local session that logs nothing, so that only the demo's output is shown."""
    logging = f"-Dlog4j2.configurationFile={(EXAMPLES / 'log4j2.properties').as_uri()}"
    builder = SparkSession.builder.appName("kstore flights").master("local[*]")
    builder = builder.config("spark.driver.extraJavaOptions", logging).config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.sql.session.timeZone", "UTC")
    return configure(builder.config("spark.sql.shuffle.partitions", "4")).getOrCreate()


def parse_flights(raw: DataFrame) -> DataFrame:
    """Return one typed row per record. Numbers given as "NA" become null."""
    parsed = raw.select(
        "partition", "offset", "timestamp", fn.from_json(fn.col("value").cast("string"), JSON_SCHEMA).alias("flight")
    )
    numbers = [fn.expr(f"try_cast(flight.{name} AS INT)").alias(name) for name in NUMBER_FIELDS]
    return parsed.select("partition", "offset", "timestamp", *[f"flight.{name}" for name in TEXT_FIELDS], *numbers)


def delay_by_carrier(flights: DataFrame) -> DataFrame:
    """Return flights and mean delays in minutes, one row per carrier."""
    return (
        flights.groupBy("carrier")
        .agg(
            fn.count("*").alias("flights"),
            fn.round(fn.avg("dep_delay"), 1).alias("mean_departure_delay"),
            fn.round(fn.avg("arr_delay"), 1).alias("mean_arrival_delay"),
        )
        .orderBy(fn.desc("flights"))
    )


def partition_digests(raw: DataFrame) -> DataFrame:
    """Return record count, log end offset, bytes and checksum of each partition, named as in the manifest."""
    value_sha256 = fn.coalesce(fn.sha2("value", 256), fn.lit("null")).alias("sha256")
    in_order = fn.array_sort(fn.collect_list(fn.struct("offset", value_sha256))).getField("sha256")
    return raw.groupBy("partition").agg(
        fn.count("*").alias("records"),
        (fn.max("offset") + 1).alias("log_end_offset"),
        fn.sum(fn.length("value")).alias("value_bytes"),
        fn.sha2(fn.array_join(in_order, ""), 256).alias("values_sha256"),
    )


def differences(found: list[dict[str, Any]], manifest: dict[str, Any]) -> list[str]:
    """Return one line for each difference between the records read and the manifest."""
    lines = []
    read = {entry["partition"]: entry for entry in found}
    said = {entry["partition"]: entry for entry in manifest["partitions"]}
    for partition in sorted(read.keys() | said.keys()):
        if partition not in read or partition not in said:
            which = "in the manifest but was not read" if partition in said else "was read but is not in the manifest"
            lines.append(f"partition {partition} {which}")
            continue
        for name, value in read[partition].items():
            if value != said[partition][name]:
                lines.append(f"partition {partition}: {name} is {value}, the manifest says {said[partition][name]}")
    records = sum(entry["records"] for entry in found)
    if records != manifest["records"]:
        lines.append(f"{records} records were read, the manifest says {manifest['records']}")
    return lines


def run(spark: SparkSession, source: Path, out: Path) -> list[str]:
    """Run the job, print its results, and return the differences from the manifest."""
    manifest = json.loads((source / "MANIFEST.json").read_text())
    load = spark.read.format("kstore").option("subscribe", manifest["topic"]).load

    started = time.perf_counter()
    flights_path = str(out / "flights.parquet")
    parse_flights(load(str(source))).write.mode("overwrite").parquet(flights_path)
    job_seconds = time.perf_counter() - started

    flights = spark.read.parquet(flights_path)
    carriers = delay_by_carrier(flights).cache()
    carriers.show(truncate=False)
    carriers.coalesce(1).write.mode("overwrite").parquet(str(out / "delay_by_carrier.parquet"))

    digests = partition_digests(load(str(source)))
    found = sorted((row.asDict() for row in digests.collect()), key=lambda entry: entry["partition"])

    started = time.perf_counter()
    load(str(source)).write.format("noop").mode("overwrite").save()
    read_seconds = time.perf_counter() - started

    rows = flights.count()
    log_bytes = sum(path.stat().st_size for path in source.rglob("*.log"))
    value_bytes = sum(entry["value_bytes"] for entry in found)
    print(f"rows read            {rows:,} from {len(found)} partitions")
    print(f"bytes read           {log_bytes:,} of log files, {value_bytes:,} of values")
    print(f"read, parse, write   {job_seconds:.2f} s, {rows / job_seconds:,.0f} rows/s (the first job of a cold JVM)")
    print(f"read alone           {read_seconds:.2f} s, {rows / read_seconds:,.0f} rows/s (all columns)")
    print(f"written              {out}/flights.parquet, {out}/delay_by_carrier.parquet")
    wrong = differences(found, manifest)
    if rows != manifest["records"]:
        wrong.append(f"{rows} rows were written as Parquet, the manifest says {manifest['records']} records")
    if not wrong:
        print(f"checked              {rows:,} rows and the sha256 of all values are as the manifest says")
    return wrong


def failure_text(error: PySparkException) -> str:
    """Return the line with the Python error of a failed Spark job, or the whole text if there is none."""
    lines = re.findall(r"^[\w.]+(?:Error|Exception): .+$", str(error), re.MULTILINE)
    return lines[-1] if lines else str(error)


def main() -> int:
    """Run the demo and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--source", type=Path, default=EXAMPLES / "flights", help="log.dirs root with a MANIFEST.json")
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help="where the Parquet tables go")
    arguments = parser.parse_args()
    spark = start_spark()
    try:
        wrong = run(spark, arguments.source, arguments.out)
    except PySparkException as error:
        wrong = [failure_text(error)]
    finally:
        spark.stop()
    for line in wrong:
        print(f"demo FAILED: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
