"""Read three partitions that a Kafka broker wrote into Spark, with no broker, and check every value.

The job parses the JSON values, prints the delays by carrier, writes both tables as Parquet and compares the row
count and a checksum of all values with examples/flights/MANIFEST.json. It ends with 1 when they differ.

    python examples/flights_demo.py [--source DIR] [--out DIR]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import struct
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import avg, col, count, desc, expr, from_json
from pyspark.sql.functions import round as rounded

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

EXAMPLES = Path(__file__).resolve().parent
TEXT_FIELDS = ("carrier", "flight", "tailnum", "origin", "dest")
NUMBER_FIELDS = ("dep_delay", "arr_delay", "air_time", "distance")
JSON_SCHEMA = ", ".join(f"{name} STRING" for name in TEXT_FIELDS + NUMBER_FIELDS)
DIGEST_SCHEMA = "partition INT, records BIGINT, log_end_offset BIGINT, value_bytes BIGINT, values_sha256 STRING"


def start_spark() -> SparkSession:
    """Return a local session whose only output is the demo's."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    logging = f"-Dlog4j2.configurationFile={(EXAMPLES / 'log4j2.properties').as_uri()}"
    builder = SparkSession.builder.appName("kstore flights").master("local[*]")
    builder = builder.config("spark.driver.extraJavaOptions", logging).config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.sql.session.timeZone", "UTC")
    return builder.config("spark.sql.shuffle.partitions", "4").getOrCreate()


def parse_flights(raw: DataFrame) -> DataFrame:
    """Return one typed row per record; a number that is not one ("NA") is null."""
    parsed = raw.select(
        "partition", "offset", "timestamp", from_json(col("value").cast("string"), JSON_SCHEMA).alias("flight")
    )
    numbers = [expr(f"try_cast(flight.{name} AS INT)").alias(name) for name in NUMBER_FIELDS]
    return parsed.select("partition", "offset", "timestamp", *[f"flight.{name}" for name in TEXT_FIELDS], *numbers)


def delay_by_carrier(flights: DataFrame) -> DataFrame:
    """Return flights and mean delays in minutes, one row per carrier."""
    return (
        flights.groupBy("carrier")
        .agg(
            count("*").alias("flights"),
            rounded(avg("dep_delay"), 1).alias("mean_departure_delay"),
            rounded(avg("arr_delay"), 1).alias("mean_arrival_delay"),
        )
        .orderBy(desc("flights"))
    )


def digest_partition(group: pa.Table) -> pa.Table:
    """Return count, end and checksum of one partition, in the manifest's terms."""
    import pyarrow as pa

    ordered = group.sort_by("offset")
    values = ordered["value"].to_pylist()
    digest = hashlib.sha256()
    for value in values:
        digest.update(struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value)
    return pa.table(
        {
            "partition": pa.array([ordered["partition"][0].as_py()], pa.int32()),
            "records": pa.array([len(values)], pa.int64()),
            "log_end_offset": pa.array([ordered["offset"][-1].as_py() + 1], pa.int64()),
            "value_bytes": pa.array([sum(len(value or b"") for value in values)], pa.int64()),
            "values_sha256": [digest.hexdigest()],
        }
    )


def differences(found: list[dict[str, Any]], manifest: dict[str, Any]) -> list[str]:
    """Return a line for each thing in which what was read is not what the manifest says."""
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
    total = sum(entry["records"] for entry in found)
    if total != manifest["records"]:
        lines.append(f"{total} records were read, the manifest says {manifest['records']}")
    return lines


def run(spark: SparkSession, source: Path, out: Path) -> list[str]:
    """Run the job, print what it found, and return the differences from the manifest."""
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

    digests = load(str(source)).groupBy("partition").applyInArrow(digest_partition, DIGEST_SCHEMA)
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
    """Return kstore's own message out of a failed Spark job, the whole text when there is none."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if "kstore.errors." in line]
    return lines[-1] if lines else text


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
