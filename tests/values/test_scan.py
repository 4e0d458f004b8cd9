"""Goal: a scan has keys and values as columns, by the schemas of the disk, one row for each record.
Method: roots with a registry's topic, made by a producer; modes, projections and engines over the same records."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any, Literal

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import kstore
from kstore.errors import InvalidSchemaError, RecordDeserializationError, SchemaNotFoundError
from tests.making.avro_values import encoded
from tests.making.batches import record as record_at
from tests.making.batches import write_partition
from tests.making.rides import KEY, ROWS, V1, V2, framed, registered, write_rides
from tests.reference.codec import write_batch
from tests.values.test_resolution import record


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with rides of two schema versions, a tombstone, a bad value and a schema id that nobody registered."""
    return write_rides(tmp_path / "root")


def test_values_are_read_as_the_newest_version_and_each_record_has_a_row(root: Path) -> None:
    table = kstore.scan(root, topics="rides", value="avro").to_table()
    assert table["value"].to_pylist() == ROWS
    assert table["offset"].to_pylist() == list(range(6))
    reasons = table["_corrupt_value"].to_pylist()
    assert [reason is None for reason in reasons] == [True, True, True, False, False, True]
    assert reasons[3] == "at byte 6, of schema id 2, it ends inside of a field"
    assert "of schema id 9" in reasons[4]
    assert "the registry has no schema of id 9" in reasons[4]


def test_keys_have_a_schema_of_their_own(root: Path) -> None:
    table = kstore.scan(root, topics="rides", key="avro").to_table()
    assert table["key"].to_pylist() == [{"k": number} for number in range(6)]
    assert table.schema.field("value").type == pa.binary()
    both = kstore.scan(root, topics="rides", key="avro", value="avro", columns=["value.id", "key.k"]).to_table()
    assert both.to_pydict() == {"value.id": [1, 2, None, None, None, 4], "key.k": list(range(6))}


def test_a_schema_id_chooses_an_older_version(root: Path) -> None:
    scan = kstore.scan(root, topics="rides", value=kstore.ValueFormat("avro", schema_id=1))
    assert scan.to_table()["value"].to_pylist()[1] == {"id": 2, "carrier": "UA"}


def test_a_schema_that_is_given_reads_framed_values_by_those_of_the_disk(root: Path, tmp_path: Path) -> None:
    wanted = record(("delay", "long", -1), ("id", "long"))
    file = tmp_path / "wanted.avsc"
    file.write_text(json.dumps(wanted))
    for given in (wanted, json.dumps(wanted), file, str(file)):
        table = kstore.scan(root, topics="rides", value="avro", schema=given, schemas=root).to_table()
        assert table["value"].to_pylist()[:2] == [{"delay": -1, "id": 1}, {"delay": 7, "id": 2}]


def test_schemas_may_be_of_another_root(root: Path, tmp_path: Path) -> None:
    partition = tmp_path / "elsewhere" / "rides-0"
    partition.parent.mkdir()
    (root / "rides-0").rename(partition)
    with pytest.raises(SchemaNotFoundError, match="has no topic _schemas"):
        kstore.scan(partition, value="avro")
    for schemas in (root, kstore.read_schemas(root)):
        assert kstore.scan(partition, value="avro", schemas=schemas).to_table()["value"].to_pylist() == ROWS


@pytest.mark.parametrize("binary", ["copy", "view"])
def test_numbers_are_read_whether_bytes_are_copies_or_views(tmp_path: Path, binary: Literal["copy", "view"]) -> None:
    numbers = [7, None, -1, 2**62]
    records = [
        record_at(at, None if one is None else one.to_bytes(8, "big", signed=True)) for at, one in enumerate(numbers)
    ]
    directory = write_partition(tmp_path, [[write_batch(records)]])
    scan = kstore.scan(directory, value="long", columns=["value", "key"], binary=binary)
    assert scan.to_table()["value"].to_pylist() == numbers


def test_failfast_ends_with_an_error_after_the_rows_before_it(root: Path) -> None:
    batches = iter(kstore.scan(root, topics="rides", value="avro", mode="FAILFAST"))
    assert next(batches).column("value").to_pylist() == ROWS[:3]
    with pytest.raises(RecordDeserializationError, match="value of the record at offset 3 of rides-0") as caught:
        next(batches)
    assert (caught.value.topic, caught.value.partition, caught.value.offset, caught.value.origin) == (
        "rides",
        0,
        3,
        "value",
    )


def test_dropmalformed_leaves_out_the_rows_of_bad_values_only(root: Path) -> None:
    table = kstore.scan(root, topics="rides", value="avro", mode="DROPMALFORMED").to_table()
    assert table["offset"].to_pylist() == [0, 1, 2, 5]
    assert "_corrupt_value" not in table.column_names
    offsets = kstore.scan(root, topics="rides", value="avro", mode="DROPMALFORMED", columns=["offset"])
    assert offsets.to_table()["offset"].to_pylist() == [0, 1, 2, 5]


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
def test_the_first_bad_value_of_a_scan_is_logged(root: Path, caplog: pytest.LogCaptureFixture, mode: Any) -> None:
    with caplog.at_level(logging.WARNING, logger="kstore.values"):
        kstore.scan(root, topics="rides", value="avro", mode=mode).to_table()
    (message,) = caplog.messages
    assert message.startswith("the value of the record at offset 3 of rides-0 cannot be decoded: at byte 6")


def test_fields_stand_as_columns_if_that_is_asked_for(root: Path) -> None:
    scan = kstore.scan(root, topics="rides", value="avro", flatten=True)
    assert scan.schema.names[:5] == ["key", "id", "carrier", "delay", "topic"]
    assert scan.to_table()["id"].to_pylist() == [1, 2, None, None, None, 4]


def test_a_field_whose_name_is_taken_gets_the_name_of_its_column_in_front(tmp_path: Path) -> None:
    text = record(("offset", "int"), ("topic", "string"), ("own", "int"))
    with kstore.open_store(tmp_path / "root", "a") as store:
        store.create_topic("t", partitions=1)
        with kstore.Producer(store) as producer:
            producer.send("t", encoded(text, {"offset": 7, "topic": "x", "own": 1}))
    table = kstore.scan(tmp_path / "root", value="avro", schema=text, flatten=True).to_table()
    row = table.to_pylist()[0]
    assert (row["offset"], row["value_offset"], row["value_topic"], row["own"]) == (0, 7, "x", 1)


def test_columns_name_fields_at_any_depth(tmp_path: Path) -> None:
    text = record(("a", record(("b", record(("c", "int"), ("d", "int"), name="B")), name="A")), ("e", "int"))
    with kstore.open_store(tmp_path / "root", "a") as store:
        store.create_topic("t", partitions=1)
        with kstore.Producer(store) as producer:
            producer.send("t", encoded(text, {"a": {"b": {"c": 1, "d": 2}}, "e": 3}))
            producer.send("t", None)
    columns = ["value.a.b.c", "value.e", "offset"]
    table = kstore.scan(tmp_path / "root", value="avro", schema=text, columns=columns).to_table()
    assert table.to_pydict() == {"value.a.b.c": [1, None], "value.e": [3, None], "offset": [0, 1]}
    with pytest.raises(InvalidSchemaError, match="no field 'x'; it has c, d"):
        kstore.scan(tmp_path / "root", value="avro", schema=text, columns=["value.a.b.x"])
    with pytest.raises(ValueError, match=r"'value.e.x' is no field"):
        kstore.scan(tmp_path / "root", value="avro", schema=text, columns=["value.e.x"])


def test_polars_and_duckdb_ask_for_the_columns_of_a_query(root: Path) -> None:
    scan = kstore.scan(root, topics="rides", value="avro", flatten=True)
    lazy = scan.to_polars_lazy().filter(pl.col("offset") < 2).select("carrier", "delay").collect()
    assert lazy.rows() == [("AA", None), ("UA", 7)]
    with duckdb.connect() as connection:
        scan.to_duckdb(connection, "rides")
        query = 'SELECT sum(id), max(delay) FROM rides WHERE "offset" >= 1'
        assert connection.sql(query).fetchall() == [(6, 7)]
        kstore.scan(root, topics="rides", value="avro").to_duckdb(connection, "nested")
        assert connection.sql("SELECT value.carrier FROM nested WHERE value.id = 4").fetchall() == [("DL",)]


def test_a_topic_without_a_subject_is_read_as_that_of_its_first_record(tmp_path: Path) -> None:
    with kstore.open_store(tmp_path / "root", "a") as store:
        store.create_topic("_schemas", partitions=1)
        store.create_topic("t", partitions=1)
        with kstore.Producer(store) as producer:
            for version, text in ((1, V1), (2, V2)):
                key, value = registered("com.x.Ride", version, version, schema=json.dumps(text))
                producer.send("_schemas", value, key=key)
            producer.send("t", None)
            producer.send("t", framed(1, V1, {"id": 1, "carrier": "AA"}))
    table = kstore.scan(tmp_path / "root", topics="t", value="avro").to_table()
    assert table["value"].to_pylist() == [None, ROWS[0]]


def test_topics_of_different_schemas_are_not_read_as_one(root: Path) -> None:
    with kstore.open_store(root, "a") as store:
        store.create_topic("others", partitions=1)
        with kstore.Producer(store) as producer:
            key, value = registered("others-value", 1, 30, schema=json.dumps(KEY))
            producer.send("_schemas", value, key=key)
    with pytest.raises(SchemaNotFoundError, match="the topics others, rides have different schemas"):
        kstore.scan(root, topics=["rides", "others"], value="avro")


PRIMITIVES: list[tuple[str, list[bytes | None], list[Any], list[int]]] = [
    ("string", [b"a", None, b"", b"\xff"], ["a", None, "", "\N{REPLACEMENT CHARACTER}"], []),
    ("bytes", [b"a", None], [b"a", None], []),
    ("short", [b"\xff\xfe", None, b"1"], [-2, None, None], [2]),
    ("integer", [None, b"\0\0\1\0", b"", b"12345"], [None, 256, None, None], [2, 3]),
    ("long", [b"\xff" * 8, b"\0" * 7], [-1, None], [1]),
    ("float", [b"\x3f\x80\0\0"], [1.0], []),
    ("double", [b"\x3f\xf0" + b"\0" * 6, None], [1.0, None], []),
    ("boolean", [b"\0", b"\1", b"\2", None], [False, True, None, None], [2]),
    (
        "uuid",
        [b"00000000-0000-0000-0000-00000000000A", b"x", None],
        ["00000000-0000-0000-0000-00000000000a"] + [None] * 2,
        [1],
    ),
]


@pytest.mark.parametrize(("name", "values", "shown", "bad"), PRIMITIVES, ids=[each[0] for each in PRIMITIVES])
def test_what_kafkas_serializers_wrote_is_read(
    tmp_path: Path, name: str, values: list[bytes | None], shown: list[Any], bad: list[int]
) -> None:
    with kstore.open_store(tmp_path / "root", "a") as store:
        store.create_topic("t", partitions=1)
        with kstore.Producer(store) as producer:
            for value in values:
                producer.send("t", value)
    table = kstore.scan(tmp_path / "root", value=name).to_table()
    assert table["value"].to_pylist() == shown
    assert [row for row, reason in enumerate(table["_corrupt_value"].to_pylist()) if reason is not None] == bad


def test_wrong_options_are_refused(root: Path) -> None:
    with pytest.raises(ValueError, match="expected one of the formats avro, json, protobuf, bytes, string"):
        kstore.scan(root, topics="rides", value="arvo")
    with pytest.raises(ValueError, match="the format 'long' takes no schema"):
        kstore.scan(root, topics="rides", value="long", schema="{}")
    with pytest.raises(ValueError, match="framing must be"):
        kstore.ValueFormat("avro", framing="x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="mode must be one of FAILFAST"):
        kstore.scan(root, topics="rides", value="avro", mode="failfast")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="schema and schemas are for a format"):
        kstore.scan(root, topics="rides", schema="{}")
    with pytest.raises(ValueError, match="columns"):
        kstore.scan(root, topics="rides", value="avro", columns=["nope"])


def test_a_scan_with_times_and_offsets_types_only_its_rows(root: Path) -> None:
    scan = kstore.scan(root, topics="rides", value="avro", end_offset=3, since=1001, mode="FAILFAST")
    assert scan.to_table()["value"].to_pylist() == ROWS[1:3]


@pytest.mark.parametrize("mode", ["r", "a"])
def test_a_log_gives_the_same_columns(root: Path, mode: Any) -> None:
    with kstore.open_log(root / "rides-0", mode) as log:
        table = pa.Table.from_batches(log.to_arrow_batches(value="avro", key="avro", threads=2))
        assert table["value"].to_pylist() == ROWS
        assert table["key"].to_pylist() == [{"k": number} for number in range(6)]
        fields = pa.Table.from_batches(log.to_arrow_batches(1, 3, value="avro", columns=["value.id", "offset"]))
        assert fields.to_pydict() == {"value.id": [2, None], "offset": [1, 2]}
        flat = pa.Table.from_batches(log.to_arrow_batches(value="avro", flatten=True, mode="DROPMALFORMED"))
        assert flat["carrier"].to_pylist() == ["AA", "UA", None, "DL"]


def test_planned_ranges_are_read_by_the_schemas_of_their_root(root: Path) -> None:
    with kstore.open_log(root / "rides-0") as log:
        ranges = log.plan()
    assert kstore.scan(ranges, value="avro").to_table()["value"].to_pylist() == ROWS
