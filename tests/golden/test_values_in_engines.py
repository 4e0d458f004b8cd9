"""Goal: values are in each engine and in each kind of table what they are in Arrow, which test_values.py holds against
Java.
Method: the golden topics through Polars, DuckDB, Delta Lake and Iceberg; columns equal to those of a scan, as far as
the engine's type holds them. tests/spark/test_golden_values.py does the same with Spark."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kstore
from kstore.archive.tables.naming import table_of
from tests.golden.sets import unpack
from tests.golden.test_values import TOPICS

deltalake = pytest.importorskip("deltalake")
duckdb = pytest.importorskip("duckdb")
pytest.importorskip("polars")
catalogs = pytest.importorskip("pyiceberg.catalog")

# Of more digits than a decimal of Polars or DuckDB has.
WIDE = "decimal-60"
# Topics that show each way in which a table's type differs from Arrow's; all topics take minutes.
SAMPLE = ["array", WIDE, "duration", "map", "timestamp-nanos", "union", "uuid-fixed"]


@cache
def scanned(topic: str) -> pa.Table:
    scan = kstore.scan(unpack("values", "trees") / "root", topics=topic, value="avro", columns=["offset", "value"])
    return scan.to_table().sort_by("offset")


def check(engine: pa.Table, topic: str) -> None:
    """Compare an engine's column with that of a scan."""
    found, expected = engine.sort_by("offset")["value"], scanned(topic)["value"]
    kept = pc.cast(expected, options=pc.CastOptions(found.type, allow_time_truncate=True))
    assert kept.equals(found), (kept, found)
    assert expected.null_count == found.null_count < len(expected)


@pytest.mark.parametrize("topic", [topic for topic in TOPICS if topic != WIDE])
@pytest.mark.parametrize("engine", ["polars", "lazy polars", "duckdb"])
def test_engines_have_the_values_of_a_scan(topic: str, engine: str) -> None:
    root = unpack("values", "trees") / "root"
    scan = kstore.scan(root, topics=topic, value="avro", columns=["offset", "value"])
    calls: dict[str, Callable[[], pa.Table]] = {
        "polars": lambda: scan.to_polars().to_arrow(),
        "lazy polars": lambda: scan.to_polars_lazy().collect().to_arrow(),
        "duckdb": lambda: scan.to_duckdb(duckdb.connect(), "t").to_arrow_table(),
    }
    check(calls[engine](), topic)


@pytest.mark.parametrize("topics", [SAMPLE, pytest.param(TOPICS, marks=pytest.mark.long)], ids=["sample", "all"])
def test_tables_of_delta_lake_have_the_values_of_a_scan(tmp_path: Path, topics: list[str]) -> None:
    table = f"delta:{tmp_path}/{{topic}}"
    kstore.export(unpack("values", "trees") / "root", table=table, value="avro", topics=topics)
    for topic in topics:
        check(deltalake.DeltaTable(f"{tmp_path}/{topic}").to_pyarrow_table(), topic)


@pytest.mark.parametrize("topics", [SAMPLE, pytest.param(TOPICS, marks=pytest.mark.long)], ids=["sample", "all"])
def test_tables_of_iceberg_have_the_values_of_a_scan(
    tmp_path: Path, topics: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "warehouse").mkdir()
    places = {"TYPE": "sql", "URI": f"sqlite:///{tmp_path}/catalog.db", "WAREHOUSE": f"file://{tmp_path}/warehouse"}
    for name, value in places.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LOCAL__{name}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", pytest.importorskip("pyiceberg.utils.config").Config())
    catalogs.load_catalog("local").create_namespace("kafka")
    table = "iceberg:local.kafka.{topic}"
    kstore.export(unpack("values", "trees") / "root", table=table, value="avro", topics=topics)
    for topic in topics:
        name = table_of(table, topic).removeprefix("iceberg:local.")
        check(catalogs.load_catalog("local").load_table(name).scan().to_arrow(), topic)
