"""JSON values as columns in Spark: the option valueFormat, and kstore.scan, against from_json on the same values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import kstore
from bench.bench_spark import MOST_ROUNDS, process_tree_cpu_seconds, session, to_noop
from bench.bench_values import JSON_RECORD_BYTES, JSON_RIDE, drain, log_of, rides
from bench.common import Case, Contestant, Settings, interleaved, require_equal

SCHEMA = (
    "id long, carrier string, origin string, delay long, distance double, departed long, note string, is_late boolean"
)
TYPES = {
    "id": "integer",
    "carrier": "string",
    "origin": "string",
    "delay": "integer",
    "distance": "number",
    "departed": "integer",
    "note": "string",
    "is_late": "boolean",
}
JSON_SCHEMA = json.dumps({"type": "object", "properties": {name: {"type": kind} for name, kind in TYPES.items()}})
SCAN, FROM_JSON = "kstore.scan, value=json", "from_json, text that the JVM has in memory"
COLUMNS, IN_BYTES = "kstore, valueFormat=json", "kstore, value as bytes, from_json"
TARGET = 2.0


def run(settings: Settings) -> Iterator[Case]:
    """Check that all give the same rows, then time them without a result."""
    count = max(500, settings.segment_bytes // JSON_RECORD_BYTES * 2)
    values = (json.dumps(row, separators=(",", ":")).encode() for row in rides(count))
    partition = log_of("text", values, settings.data_directory / f"json-spark-{count}")
    scan = partial(kstore.scan, partition, value="json", schema=JSON_RIDE, mode="FAILFAST", columns=["value"])
    with session() as spark:
        reader = spark.read.format("kstore").option("path", str(partition))
        typed = reader.options(valueFormat="json", valueSchema=JSON_SCHEMA, valueMode="FAILFAST").load()
        text = spark.read.format("kstore").load(str(partition)).selectExpr("CAST(value AS STRING) AS value").cache()
        parse = f"from_json(value, '{SCHEMA}') AS value"
        frames = {
            COLUMNS: typed.select("value"),
            IN_BYTES: spark.read.format("kstore")
            .load(str(partition))
            .selectExpr("CAST(value AS STRING) AS value")
            .selectExpr(parse),
            FROM_JSON: text.selectExpr(parse),
        }
        answers = {name: frame.select("value.*").toArrow().sort_by("id").to_pylist() for name, frame in frames.items()}
        require_equal("rows of JSON", {**answers, SCAN: scan().to_table()["value"].to_pylist()})
        case = Case(title=f"JSON in Spark, eight fields: {count} records", unit="row", bytes_per_unit=JSON_RECORD_BYTES)
        case.samples = interleaved(
            [
                Contestant(SCAN, lambda: drain(scan()), count),
                *(Contestant(name, partial(to_noop, frame), count) for name, frame in frames.items()),
            ],
            replace(settings, rounds=min(settings.rounds, MOST_ROUNDS), warm_up_seconds=settings.warm_up_seconds * 6),
            cpu_seconds=process_tree_cpu_seconds,
            one_run_per_sample=True,
        )
        text.unpersist()
    case.add_ratio(SCAN, FROM_JSON, target=TARGET, by="cpu")
    case.add_ratio(COLUMNS, IN_BYTES, target=TARGET, by="cpu")
    yield case
