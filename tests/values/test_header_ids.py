"""Goal: ids of schemas are found in the headers of records, where newer serializers write them.
Method: columns of headers with and without ids; GUIDs of a registry in front of values without a frame."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

import kstore
from kstore.env import DEFAULT_ENV
from kstore.errors import SchemaNotFoundError
from kstore.values.formats import Partitions, format_for
from kstore.values.header_ids import HeaderIds
from kstore.values.registry import RegisteredSchema, SchemaRegistry
from tests.making.avro_values import encoded
from tests.values.test_registry import schema as registered
from tests.values.test_resolution import record

NAME = "__value_schema_id"
GUIDS = [UUID(int=number) for number in (0, 1)]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def column(*rows: Any) -> pa.ListArray:
    return pa.array(rows, HEADERS)


def header(value: bytes | None, key: str = NAME) -> dict[str, Any]:
    return {"key": key, "value": value}


def guid(number: int) -> bytes:
    return b"\x01" + GUIDS[number].bytes


def test_rows_without_an_id_have_none() -> None:
    ids = HeaderIds(NAME)
    assert ids.of(column(None, [], [header(b"x", "other")])) is None
    assert ids.of(column(None, None)) is None
    assert ids.of(column()) is None


def test_each_row_has_the_id_of_its_last_header() -> None:
    ids = HeaderIds(NAME)
    rows = column(
        None, [header(guid(1))], [header(b"x", "other"), header(guid(1)), header(guid(0))], [], [header(guid(1))]
    )
    found = ids.of(rows)
    assert found is not None
    assert [number if number < 0 else ids.schema(number) for number in found.tolist()] == [
        -1,
        str(GUIDS[1]),
        str(GUIDS[0]),
        -1,
        str(GUIDS[1]),
    ]
    part = ids.of(rows.slice(1, 2))
    assert part is not None
    assert part.tolist() == found.tolist()[1:3]


def test_a_header_may_have_the_id_of_a_frame() -> None:
    ids = HeaderIds(NAME)
    found = ids.of(column([header(b"\0\0\0\0\0")], [header(b"\0\0\0\1\2")]))
    assert found is not None
    assert found.tolist() == [0, 258]
    assert ids.schema(0) == 0


def test_what_follows_an_id_in_a_header_is_kept_for_the_format() -> None:
    ids = HeaderIds(NAME)
    found = ids.of(column([header(b"\0\0\0\0\7\2\4")], [header(guid(1) + b"\0")], [header(b"\0\0\0\0\7")]))
    assert found is not None
    numbers = found.tolist()
    assert [ids.schema(number) for number in numbers] == [7, str(GUIDS[1]), 7]
    assert [ids.rest(number) for number in numbers] == [b"\2\4", b"\0", b""]


@pytest.mark.parametrize("data", [None, b"", b"\0\0\0\0", b"\1" + bytes(15), b"\2" + bytes(16)], ids=str)
def test_a_header_without_an_id_says_so(data: bytes | None) -> None:
    ids = HeaderIds(NAME)
    found = ids.of(column([header(data)]))
    assert found is not None
    with pytest.raises(SchemaNotFoundError, match="the header __value_schema_id has neither the GUID nor the id"):
        ids.schema(int(found[0]))


def test_values_with_an_id_in_a_header_have_no_frame_and_bad_headers_make_bad_values(tmp_path: Path) -> None:
    schemas = [record(("a", "int")), record(("a", "long"), ("b", "int", 9))]
    with kstore.open_store(tmp_path / "root", "a") as store:
        store.create_topic("_schemas", partitions=1)
        store.create_topic("t", partitions=1)
        with kstore.Producer(store) as producer:
            for number, each in enumerate(schemas):
                text = json.dumps(each)
                key, value = registered("t-value", number + 1, number, schema=text, guid=str(GUIDS[number]))
                producer.send("_schemas", value, key=key)
            first, second = encoded(schemas[0], {"a": 1}), encoded(schemas[1], {"a": 2, "b": 3})
            producer.send("t", first, headers=[(NAME, guid(0))])
            producer.send("t", second, headers=[(NAME, guid(1))])
            producer.send("t", b"\0\0\0\0\0" + first)
            producer.send("t", None, headers=[(NAME, guid(1))])
            producer.send("t", first, headers=[(NAME, b"\1" + bytes([255] * 16))])
            producer.send("t", first, headers=[(NAME, b"?")])
            producer.send("t", first, headers=[("__key_schema_id", guid(0))])
    table = kstore.scan(tmp_path / "root", topics="t", value="avro", columns=["value", "_corrupt_value"]).to_table()
    assert table["value"].to_pylist() == [{"a": 1, "b": 9}, {"a": 2, "b": 3}, {"a": 1, "b": 9}, None, None, None, None]
    reasons = table["_corrupt_value"].to_pylist()
    assert reasons[:4] == [None] * 4
    assert reasons[4] == (
        "at byte 0, the schema of its id is not known (the registry has no schema of GUID "
        "ffffffff-ffff-ffff-ffff-ffffffffffff)"
    )
    assert "the header __value_schema_id has neither" in reasons[5]
    assert "it does not begin with the magic byte" in reasons[6]


@pytest.mark.parametrize(("schema_type", "text", "data"), [("AVRO", '"int"', b"\2"), ("JSON", "{}", b"1")])
def test_an_id_in_front_of_a_value_is_never_that_of_a_header(schema_type: Any, text: str, data: bytes) -> None:
    registry = SchemaRegistry([RegisteredSchema(1, "t-value", 1, schema_type, text, (), str(GUIDS[1]))])
    options = kstore.ValueFormat(schema_type.lower(), schemas=registry, framing="apicurio")
    partitions = Partitions(("t",), None, DEFAULT_ENV, lambda _: None)
    values = [data, *(b"\0" + number.to_bytes(8, "big") + data for number in (1 << 62, (1 << 62) + 1, 1 << 63, 1))]
    reader = format_for(options, "value", partitions).reader(None, most_bytes=1 << 20)
    (part,) = reader.decode(pa.array(values, pa.binary()), column([header(guid(1))], [], [], [], []))
    assert [row is None for row in part.values.to_pylist()] == [False, True, True, True, False]
    assert [each.schema_id for each in part.bad] == [-1, -1, -1]
    assert all("does not begin with the magic byte" in each.reason for each in part.bad)


@pytest.mark.parametrize("schema", ["latest", "union"])
def test_a_topic_without_a_subject_has_that_of_its_first_id_of_eight_bytes(schema: str) -> None:
    wide = (1 << 32) + 1
    ids = {"City": (wide, '"int"'), "Other": (1, '"string"')}
    registry = SchemaRegistry(RegisteredSchema(each, name, 1, "AVRO", text) for name, (each, text) in ids.items())
    first = b"\0" + wide.to_bytes(8, "big") + b"\2"
    partitions = Partitions(("t",), None, DEFAULT_ENV, lambda _origin, _topic: first)
    options = kstore.ValueFormat("avro", schema=schema, schemas=registry, framing="apicurio")
    assert format_for(options, "value", partitions).type(None) == pa.int32()


def test_a_bad_value_has_no_number_of_a_header_as_its_id() -> None:
    registry = SchemaRegistry([RegisteredSchema(1, "t-value", 1, "AVRO", '"int"', (), str(GUIDS[1]))])
    partitions = Partitions(("t",), None, DEFAULT_ENV, lambda _: None)
    options = kstore.ValueFormat("avro", schemas=registry)
    reader = format_for(options, "value", partitions).reader(None, most_bytes=1 << 20)
    (part,) = reader.decode(pa.array([b"", b"\2"], pa.binary()), column([header(guid(1))], [header(guid(0))]))
    assert [each.schema_id for each in part.bad] == [-1, -1]


@pytest.mark.parametrize(
    ("schema_type", "text"), [("AVRO", '"int"'), ("JSON", '{"type": "integer"}'), ("PROTOBUF", "")]
)
def test_a_topic_of_other_headers_in_each_record_costs_memory_for_a_part_of_them(schema_type: Any, text: str) -> None:
    known = ((1, GUIDS[0]), (2, GUIDS[1]))
    texts = {1: text, 2: text}
    data = {"AVRO": b"\2", "JSON": b"1", "PROTOBUF": b"\x08\x01"}[schema_type]
    if schema_type == "PROTOBUF":
        texts = {each: f'syntax = "proto3"; message M {{ int32 {name} = 1; }}' for each, name in ((1, "a"), (2, "b"))}
    registry = SchemaRegistry(
        [RegisteredSchema(each, "t-value", each, schema_type, texts[each], (), str(one)) for each, one in known]
    )
    options = kstore.ValueFormat(schema_type.lower(), schemas=registry)
    partitions = Partitions(("t",), None, DEFAULT_ENV, lambda *_: None)
    reader: Any = format_for(options, "value", partitions).reader(None, most_bytes=1 << 20)
    for start in range(0, 6000, 400):
        ids = [start + row for row in range(400)]
        # Each tenth record has the GUID of a schema; the numbers of the others change from array to array.
        headers = [[header(guid(row % 2) if not row % 10 else b"\1" + row.to_bytes(16, "big"))] for row in ids]
        parts = list(reader.decode(pa.array([data] * 400, pa.binary()), column(*headers)))
        rows = [row for part in parts for row in part.values.to_pylist()]
        assert [row is not None for row in rows] == [not row % 10 or row < 2 for row in ids]
    assert len(reader._header_ids._headers) < 1400
