"""Goal: values are in each engine and in each kind of table what they are in Arrow, which test_values.py holds against
Java.
Method: the golden topics through Polars, DuckDB, Delta Lake and Iceberg; columns equal to those of a scan, as far as
the engine's type holds them. tests/spark/test_golden_values.py does the same with Spark."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kstore
from kstore.archive.tables.naming import table_of
from tests.golden.sets import unpack
from tests.golden.test_values import TOPICS
from tests.making.protobuf_rides import message

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


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The catalog `local` of Iceberg, with the namespace `kafka`."""
    (tmp_path / "warehouse").mkdir()
    places = {"TYPE": "sql", "URI": f"sqlite:///{tmp_path}/catalog.db", "WAREHOUSE": f"file://{tmp_path}/warehouse"}
    for name, value in places.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LOCAL__{name}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", pytest.importorskip("pyiceberg.utils.config").Config())
    catalog = catalogs.load_catalog("local")
    catalog.create_namespace("kafka")
    return catalog


@pytest.mark.parametrize("topics", [SAMPLE, pytest.param(TOPICS, marks=pytest.mark.long)], ids=["sample", "all"])
def test_tables_of_iceberg_have_the_values_of_a_scan(local: Any, topics: list[str]) -> None:
    table = "iceberg:local.kafka.{topic}"
    kstore.export(unpack("values", "trees") / "root", table=table, value="avro", topics=topics)
    for topic in topics:
        check(local.load_table(table_of(table, topic).removeprefix("iceberg:local.")).scan().to_arrow(), topic)


JSON_TYPE = pa.struct(
    [("a", pa.int64()), ("l", pa.list_(pa.struct([("x", pa.float64())]))), ("m", pa.map_(pa.string(), pa.bool_()))]
)
MESSAGE = """syntax = "proto3"; import "google/protobuf/timestamp.proto"; import "confluent/type/decimal.proto";
message M { int64 a = 1; uint32 u = 2; E e = 3; optional string s = 4; repeated In l = 5; map<int32, string> m = 6;
google.protobuf.Timestamp t = 7; confluent.type.Decimal d = 8; }
message In { double x = 1; } enum E { Z = 0; Y = 1; }"""


def test_tables_of_iceberg_have_the_values_of_json_and_of_protobuf(local: Any, tmp_path: Path) -> None:
    fields = {"a": -1, "u": 2**32 - 1, "e": 1, "s": "x", "l": [{"x": 0.5}, {}], "m": {3: "y"}, "t": {"seconds": 1}}
    decimal = {"value": b"\xff\x38", "precision": 9, "scale": 2}
    values: dict[str, list[bytes | None]] = {
        "json": [b'{"a":1,"l":[{"x":0.5},{}],"m":{"k":true}}', b'{"l":[]}', None],
        "protobuf": [message(MESSAGE, "M", **fields, d=decimal).SerializeToString(), b"", None],
    }
    with kstore.open_store(tmp_path / "root", "a") as store, kstore.Producer(store) as producer:
        for topic, written in values.items():
            store.create_topic(topic, partitions=1)
            for value in written:
                producer.send(topic, value)
    for topic, schema in (("json", JSON_TYPE), ("protobuf", MESSAGE)):
        chosen = kstore.ValueFormat(topic, schema=schema)
        kstore.export(tmp_path / "root", table=f"iceberg:local.kafka.{topic}", value=chosen, topics=topic)
        found = local.load_table(f"kafka.{topic}").scan().to_arrow().sort_by("offset")["value"].to_pylist()
        rows = kstore.scan(tmp_path / "root", topics=topic, value=chosen).to_table().sort_by("offset")["value"]
        assert found == rows.to_pylist()
        assert found[0]["a"] == {"json": 1, "protobuf": -1}[topic]
