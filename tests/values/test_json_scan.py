"""Goal: a JSON topic is read by a type, a JSON Schema, the registry's or an inferred one, a row for each record.
Method: roots that a producer made; each way to a schema, mode and engine over the same records."""

from __future__ import annotations

import json
import logging
import pickle
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import kstore
from kstore.errors import InvalidSchemaError, RecordDeserializationError, SchemaNotFoundError
from kstore.values.formats import SAMPLED_RECORDS_OF_PARTITION
from kstore.values.json_format.columns import TEXT
from tests.making.rides import registered

VALUES: list[bytes | None] = [
    b'{"id":1,"carrier":"AA","legs":[{"gate":"A1"}]}',
    b'{"id":2,"carrier":"UA","delay":7}',
    None,
    b'{"id":3,',
    b"null",
    b'{"id":4,"extra":{"x":[1]}}',
]
TYPE = pa.struct(
    [
        ("id", pa.int64()),
        ("carrier", pa.string()),
        ("legs", pa.list_(pa.field("element", pa.struct([("gate", pa.string())])))),
        ("delay", pa.int64()),
    ]
)
SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "carrier": {"type": "string"},
        "legs": {"type": "array", "items": {"$ref": "#/$defs/leg"}},
        "delay": {"oneOf": [{"type": "null"}, {"type": "integer"}]},
    },
    "$defs": {"leg": {"type": "object", "properties": {"gate": {"type": "string"}}}},
}
ROWS = [
    {"id": 1, "carrier": "AA", "legs": [{"gate": "A1"}], "delay": None},
    {"id": 2, "carrier": "UA", "legs": None, "delay": 7},
    None,
    None,
    None,
    {"id": 4, "carrier": None, "legs": None, "delay": None},
]


def write(
    root: Path, values: list[bytes | None], *, schemas: dict[int, Any] | None = None, partitions: int = 1
) -> Path:
    """Write the topic `rides`, with keys that are numbers, and a registry with schemas by id, each a version."""
    with kstore.open_store(root, "a") as store:
        store.create_topic("rides", partitions=partitions)
        with kstore.Producer(store) as producer:
            for number, value in enumerate(values):
                producer.send("rides", value, key=str(number).encode(), partition=number % partitions)
            if schemas is not None:
                store.create_topic("_schemas", partitions=1)
                for version, (schema_id, more) in enumerate(schemas.items(), 1):
                    subject = more.pop("subject", "rides-value")
                    key, record = registered(subject, version, schema_id, **{"schemaType": "JSON", **more})
                    producer.send("_schemas", record, key=key)
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write(tmp_path / "root", VALUES)


def test_a_schema_may_be_given_in_many_forms(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "rides.json"
    file.write_text(json.dumps(SCHEMA))
    for schema in (TYPE, pa.schema(list(TYPE)), SCHEMA, json.dumps(SCHEMA), file, str(file)):
        scan = kstore.scan(root, value="json", schema=schema)
        assert scan.schema.field("value").type == TYPE
        table = scan.to_table()
        assert table["value"].to_pylist() == ROWS
        assert [reason is None for reason in table["_corrupt_value"].to_pylist()] == [
            True,
            True,
            True,
            False,
            True,
            True,
        ]


def test_without_a_schema_an_error_names_the_choices(root: Path) -> None:
    with pytest.raises(SchemaNotFoundError, match=r'no topic _schemas.*JSON needs no registry.*schema="infer"'):
        kstore.scan(root, value="json")
    with pytest.raises(SchemaNotFoundError, match="no topic _schemas") as caught:
        kstore.scan(root, value="avro")
    assert "infer" not in str(caught.value)


def test_an_unframed_topic_beside_a_registry_needs_a_choice(tmp_path: Path) -> None:
    root = write(tmp_path / "root", VALUES, schemas={1: {"subject": "other-value", "schema": "{}"}})
    with pytest.raises(SchemaNotFoundError, match=r'no subject rides-value.*schema="infer"'):
        kstore.scan(root, topics="rides", value="json")


def test_an_inferred_schema_is_logged_and_can_be_pinned(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="kstore.values"):
        scan = kstore.scan(root, value="json", schema="infer")
    fields = {field.name: field.type for field in scan.schema.field("value").type}
    assert fields.pop("extra") == pa.struct([("x", pa.list_(pa.field("element", pa.int64())))])
    assert fields == {field.name: field.type for field in TYPE}
    (message,) = caplog.messages
    before, _, text = message.partition(": ")
    assert before == "schema of the values of rides, inferred from 5 of them"
    assert kstore.scan(root, value="json", schema=text).schema == scan.schema
    pinned = kstore.scan(root, value="json", schema=scan.schema.field("value").type)
    assert pinned.schema == scan.schema
    assert pinned.to_table() == scan.to_table()


def test_an_inferred_schema_does_not_change_in_the_middle(tmp_path: Path) -> None:
    many: list[bytes | None] = [b'{"a":1}'] * SAMPLED_RECORDS_OF_PARTITION
    root = write(tmp_path / "root", [*many, b'{"a":1.5}', b'{"a":2,"b":3}'])
    table = kstore.scan(root, value="json", schema="infer").to_table()
    assert table.schema.field("value").type == pa.struct([("a", pa.int64())])
    assert table["value"].to_pylist()[-2:] == [None, {"a": 2}]
    assert "a number is no integer" in table["_corrupt_value"][-2].as_py()


def test_a_sample_has_records_of_each_partition(tmp_path: Path) -> None:
    root = write(tmp_path / "root", [b'{"a":1}', b'{"b":"x"}', b'{"c":[]}'], partitions=3)
    scan = kstore.scan(root, value="json", schema="infer")
    assert [field.name for field in scan.schema.field("value").type] == ["a", "b", "c"]


def test_a_sample_has_a_bound_of_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kstore.values.formats.SAMPLED_BYTES", 100)
    long = b'{"a":"' + b"x" * 100 + b'"}'
    root = write(tmp_path / "root", [long, b'{"b":1}', long, b'{"c":1}', long], partitions=2)
    scan = kstore.scan(root, value="json", schema="infer")
    assert [field.name for field in scan.schema.field("value").type] == ["a"]


def test_a_sample_of_ids_in_headers_has_no_frames(tmp_path: Path) -> None:
    root = write(tmp_path / "root", [b'{"a":1}', b"\0\0\0\0\1" + b'{"b":2}'])
    framed = kstore.ValueFormat("json", schema="infer", framing="confluent")
    scan = kstore.scan(root, value=framed)
    assert [field.name for field in scan.schema.field("value").type] == ["a", "b"]


def test_keys_may_be_views_beside_values_with_a_format(root: Path) -> None:
    table = kstore.scan(root, value="json", schema=TYPE, binary="view").to_table()
    assert table["value"].to_pylist() == ROWS
    assert table.schema.field("key").type == pa.binary_view()


def test_a_field_that_is_named_as_the_column_of_reasons_stands_beside_it(tmp_path: Path) -> None:
    root = write(tmp_path / "root", [b'{"_corrupt_value":1}', b"{"])
    table = kstore.scan(root, value="json", schema="infer", flatten=True).to_table()
    assert table["value__corrupt_value"].to_pylist() == [1, None]
    assert [reason is None for reason in table["_corrupt_value"].to_pylist()] == [True, False]


def test_what_has_no_json_cannot_be_inferred(tmp_path: Path) -> None:
    root = write(tmp_path / "root", [None, b"", b"\0\0\0\0\1{}"])
    with pytest.raises(SchemaNotFoundError, match=r'none of the first 2 values of rides is JSON .* framing "none"'):
        kstore.scan(root, value="json", schema="infer")
    framed = kstore.ValueFormat("json", schema="infer", framing="confluent")
    assert kstore.scan(root, value=framed).schema.field("value").type == TEXT


def test_keys_are_json_too(root: Path) -> None:
    table = kstore.scan(root, key=kstore.ValueFormat("json", schema=pa.int64())).to_table()
    assert table["key"].to_pylist() == list(range(6))


def test_a_registry_gives_the_newest_schema_of_the_subject(tmp_path: Path) -> None:
    leg = {"type": "object", "properties": {"gate": {"type": "string"}}}
    newest = SCHEMA | {"properties": {**SCHEMA["properties"], "legs": {"type": "array", "items": {"$ref": "leg.json"}}}}
    reference = [{"name": "leg.json", "subject": "leg", "version": 1}]
    schemas = {
        1: {"subject": "leg", "schema": json.dumps(leg)},
        2: {"schema": json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}})},
        3: {"schema": json.dumps(newest), "references": reference},
        4: {"subject": "avro", "schema": '"int"', "schemaType": "AVRO"},
    }
    ids = [2, 3, 3, 2, 9, 4]
    values = [
        None if value is None else b"\0" + schema_id.to_bytes(4, "big") + value
        for schema_id, value in zip(ids, VALUES, strict=True)
    ]
    root = write(tmp_path / "root", [*values, VALUES[0]], schemas=schemas)
    scan = kstore.scan(root, topics="rides", value="json")
    assert scan.schema.field("value").type == TYPE
    table = scan.to_table()
    assert table["value"].to_pylist() == [*ROWS[:5], None, None]
    reasons = table["_corrupt_value"].to_pylist()
    assert [reason is None for reason in reasons] == [True, True, True, False, False, False, False]
    assert reasons[3] == "at byte 13, of schema id 2, it ends before its JSON does"
    assert "no schema of id 9" in reasons[4]
    assert "is a schema of type AVRO, expected JSON" in reasons[5]
    assert "does not begin with the magic byte" in reasons[6]
    older = kstore.scan(root, topics="rides", value=kstore.ValueFormat("json", schema_id=2), columns=["value"])
    assert older.to_table()["value"].to_pylist()[:2] == [{"id": 1}, {"id": 2}]
    own = kstore.scan(root, topics="rides", value="json", schema=pa.struct([("carrier", pa.string())]), schemas=root)
    assert own.to_table()["value"].to_pylist()[:2] == [{"carrier": "AA"}, {"carrier": "UA"}]
    assert (
        kstore.scan(root, topics="rides", value="json", schema="infer", schemas=root)
        .to_table()["value"]
        .to_pylist()[0]["id"]
        == 1
    )


def test_modes_are_those_of_other_formats(root: Path) -> None:
    dropped = kstore.scan(root, value="json", schema=TYPE, mode="DROPMALFORMED").to_table()
    assert dropped["offset"].to_pylist() == [0, 1, 2, 4, 5]
    batches = iter(kstore.scan(root, value="json", schema=TYPE, mode="FAILFAST"))
    assert next(batches).column("value").to_pylist() == ROWS[:3]
    with pytest.raises(RecordDeserializationError, match="value of the record at offset 3 of rides-0"):
        next(batches)


def test_a_query_reads_the_fields_that_it_asks_for(root: Path) -> None:
    scan = kstore.scan(root, value="json", schema=TYPE, flatten=True)
    assert scan.schema.names[:5] == ["key", "id", "carrier", "legs", "delay"]
    lazy = scan.to_polars_lazy().filter(pl.col("offset") < 2).select("carrier", "delay").collect()
    assert lazy.rows() == [("AA", None), ("UA", 7)]
    with duckdb.connect() as connection:
        kstore.scan(root, value="json", schema=TYPE).to_duckdb(connection, "rides")
        assert connection.sql("SELECT value.carrier, value.legs[1].gate FROM rides WHERE value.id = 1").fetchall() == [
            ("AA", "A1")
        ]
    named = kstore.scan(root, value="json", schema=TYPE, columns=["value.id", "offset"]).to_table()
    assert named["value.id"].to_pylist() == [1, 2, None, None, None, 4]
    with pytest.raises(InvalidSchemaError, match="has no field 'x'"):
        kstore.scan(root, value="json", schema=TYPE, columns=["value.x"])


def test_the_text_of_a_field_is_json_for_engines_that_have_it(root: Path) -> None:
    scan = kstore.scan(root, value="json", schema=pa.struct([("id", pa.int64()), ("extra", TEXT)]), flatten=True)
    assert scan.to_polars()["extra"].to_list()[-1] == '{"x":[1]}'
    with duckdb.connect() as connection:
        scan.to_duckdb(connection, "rides")
        assert connection.sql("SELECT extra->'x'->>0 FROM rides WHERE id = 4").fetchall() == [("1",)]


def test_a_log_gives_the_same_batches(root: Path) -> None:
    with kstore.open_log(root / "rides-0") as log:
        table = pa.Table.from_batches(log.to_arrow_batches(value="json", schema=TYPE))
    assert table["value"].to_pylist() == ROWS


def test_a_format_that_was_pickled_needs_no_file(tmp_path: Path) -> None:
    schemas = {7: {"schema": json.dumps(SCHEMA)}}
    root = write(tmp_path / "root", [b"\0\0\0\0\x07" + VALUES[0]], schemas=schemas)  # type: ignore[operator]
    typed = kstore.scan(root, topics="rides", value="json")._typed
    copy = pickle.loads(pickle.dumps(typed))
    (root / "_schemas-0" / "00000000000000000000.log").unlink()
    batches = kstore.scan(root, topics="rides", columns=copy.base_columns)
    assert next(copy.batches(batches, most_bytes=1 << 20)).column("value").to_pylist() == ROWS[:1]


def test_a_schema_that_is_no_type_of_json_is_refused(root: Path) -> None:
    for schema, problem in (
        (pa.struct([("x", pa.binary())]), "of type binary"),
        ('{"type": "text"}', "has a type 'text'"),
        ("arrow:nonsense", "damaged"),
    ):
        with pytest.raises(InvalidSchemaError, match=problem):
            kstore.scan(root, value="json", schema=schema)


def test_a_value_is_read_though_a_schema_that_its_own_refers_to_is_missing(tmp_path: Path) -> None:
    broken = {"type": "object", "properties": {"id": {"$ref": "x.json"}}}
    schemas = {
        1: {"schema": json.dumps(broken), "references": [{"name": "x.json", "subject": "x", "version": 1}]},
        2: {"schema": json.dumps(SCHEMA)},
        3: {"subject": "avro", "schema": '"int"', "schemaType": "AVRO"},
    }
    values = [b"\0\0\0\0" + bytes([schema_id]) + b'{"id":5}' for schema_id in (1, 2, 3, 4)]
    root = write(tmp_path / "root", list(values), schemas=schemas)
    scan = kstore.scan(root, topics="rides", value="json")
    typed = pickle.loads(pickle.dumps(scan._typed))
    local = scan.to_table()
    bytes_of = kstore.scan(root, topics="rides", columns=typed.base_columns)
    pickled = pa.Table.from_batches(typed.batches(bytes_of, most_bytes=1 << 20))
    assert local["value"].to_pylist() == pickled["value"].to_pylist()
    for table in (local, pickled):
        assert [reason is None for reason in table["_corrupt_value"].to_pylist()] == [True, True, False, False]


def test_nulls_do_not_use_up_a_sample(tmp_path: Path) -> None:
    root = write(tmp_path / "root", [*[None] * (SAMPLED_RECORDS_OF_PARTITION + 1), b'{"a":1}'])
    assert kstore.scan(root, value="json", schema="infer").schema.field("value").type == pa.struct([("a", pa.int64())])


def test_a_topic_of_nulls_is_sampled_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kstore.values.formats.SAMPLED_RECORDS_OF_PARTITION", 1)
    monkeypatch.setattr("kstore.values.formats._PASSED_FOR_EACH_SAMPLED", 10)
    last = write(tmp_path / "last", [*[None] * 9, b'{"a":1}'])
    assert kstore.scan(last, value="json", schema="infer").schema.field("value").type == pa.struct([("a", pa.int64())])
    root = write(tmp_path / "root", [*[None] * 10, b'{"a":1}'])
    with pytest.raises(SchemaNotFoundError, match="no value among the first records of rides"):
        kstore.scan(root, value="json", schema="infer")


def test_json_says_which_pyarrow_it_needs(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(pa, "json_")
    for schema in (TYPE, "infer", SCHEMA):
        with pytest.raises(ModuleNotFoundError, match="the format json needs pyarrow 19 or newer, found"):
            kstore.scan(root, value="json", schema=schema)
