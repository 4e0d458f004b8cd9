"""Goal: a JSON Schema, or a sample of values, becomes the Arrow type that all such values fit.
Method: schemas as users, Confluent's and Connect's serializers write them; references, circles, hostile ones."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from kstore.errors import InvalidSchemaError, SchemaNotFoundError
from kstore.values.json_format.columns import TEXT, nodes_of
from kstore.values.json_format.inference import inferred_type, json_schema_of
from kstore.values.json_format.json_schema import type_of_json_schema
from kstore.values.providers import NamedSchema


def type_of(schema: Any, **references: Any) -> pa.DataType:
    named = [NamedSchema(name, json.dumps(each)) for name, each in references.items()]
    return type_of_json_schema(json.dumps(schema), named)


def objects(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def listed(arrow_type: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", arrow_type))


@pytest.mark.parametrize(
    ("schema", "arrow_type"),
    [
        ({"type": "string"}, pa.string()),
        ({"type": "string", "format": "date-time"}, pa.string()),
        ({"type": "integer"}, pa.int64()),
        ({"type": "number"}, pa.float64()),
        ({"type": "boolean"}, pa.bool_()),
        ({"type": "null"}, pa.null()),
        ({"type": ["string", "null"]}, pa.string()),
        ({"type": ["integer", "number"]}, pa.float64()),
        ({"type": ["integer", "string"]}, TEXT),
        ({"type": "array", "items": {"type": "integer"}}, listed(pa.int64())),
        ({"type": "array"}, listed(TEXT)),
        ({"type": "array", "items": [{"type": "integer"}]}, listed(TEXT)),
        ({"type": "array", "prefixItems": [{}], "items": {"type": "integer"}}, listed(TEXT)),
        ({"items": {"type": "string"}}, listed(pa.string())),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            pa.map_(pa.string(), pa.field("value", pa.int64())),
        ),
        ({"type": "object", "additionalProperties": True}, TEXT),
        ({"type": "object"}, TEXT),
        ({"type": "object", "properties": {}}, TEXT),
        (objects(b={"type": "string"}, a={"type": "integer"}), pa.struct([("b", pa.string()), ("a", pa.int64())])),
        ({"properties": {"a": {}}}, pa.struct([("a", TEXT)])),
        ({"properties": {"a": True, "b": False}}, pa.struct([("a", TEXT), ("b", TEXT)])),
        ({"oneOf": [{"type": "null"}, {"type": "integer"}]}, pa.int64()),
        ({"anyOf": [objects(a={"type": "string"}), {"type": "null"}]}, pa.struct([("a", pa.string())])),
        ({"oneOf": [objects(a={"type": "string"}), objects(b={"type": "string"})]}, TEXT),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, pa.float64()),
        ({"oneOf": [{"type": "null"}]}, pa.null()),
        ({"oneOf": []}, TEXT),
        ({"enum": ["a", "b"]}, pa.string()),
        ({"enum": ["a", None]}, pa.string()),
        ({"enum": [1, "a"]}, TEXT),
        ({"const": 3}, pa.int64()),
        ({}, TEXT),
        (True, TEXT),
        ({"type": "integer", "connect.type": "int8"}, pa.int8()),
        ({"type": "number", "connect.type": "float32"}, pa.float32()),
        ({"type": "integer", "title": "org.apache.kafka.connect.data.Date", "connect.type": "int32"}, pa.date32()),
        ({"type": "integer", "title": "org.apache.kafka.connect.data.Timestamp"}, pa.timestamp("ms", "UTC")),
        ({"type": "number", "title": "org.apache.kafka.connect.data.Decimal"}, TEXT),
        (
            {"allOf": [objects(a={"type": "string"}), objects(b={"type": "integer"}), {"required": ["a"]}]},
            pa.struct([("a", pa.string()), ("b", pa.int64())]),
        ),
        (
            {**objects(a={}), "allOf": [objects(a={"type": "string"}, c={"type": "boolean"})]},
            pa.struct([("a", pa.string()), ("c", pa.bool_())]),
        ),
        ({"allOf": [{"type": "string"}, {"type": "integer"}]}, TEXT),
        ({**objects(a={"type": "string"}), "oneOf": [{"required": ["a"]}]}, pa.struct([("a", pa.string())])),
    ],
)
def test_a_schema_becomes_a_type(schema: Any, arrow_type: pa.DataType) -> None:
    assert type_of(schema) == arrow_type
    nodes_of(arrow_type)


def test_references_are_those_of_the_schema_and_of_others() -> None:
    address = {
        "$id": "http://example.com/schemas/address.json",
        **objects(street={"type": "string"}, country={"$ref": "#/$defs/country"}),
        "$defs": {"country": {"enum": ["DE", "FR"]}},
    }
    person = {
        "$id": "http://example.com/schemas/person.json",
        **objects(
            home={"$ref": "address.json"},
            work={"$ref": "http://example.com/schemas/address.json"},
            land={"$ref": "address.json#/$defs/country"},
            ids={"type": "array", "items": {"$ref": "#/definitions/a~1b/oneOf/1"}},
        ),
        "definitions": {"a/b": {"oneOf": [{"type": "null"}, {"type": "integer"}]}},
    }
    there = pa.struct([("street", pa.string()), ("country", pa.string())])
    expected = pa.struct([("home", there), ("work", there), ("land", pa.string()), ("ids", listed(pa.int64()))])
    assert type_of(person, **{"address.json": address}) == expected
    assert type_of(person, **{"http://example.com/schemas/address.json": address}) == expected
    named = {"properties": {"x": {"$ref": "other"}}}
    assert type_of(named, other={"type": "string"}) == pa.struct([("x", pa.string())])


@pytest.mark.parametrize("reference", ["other.json", "#/definitions/y", "#/properties/x/0", "#anchor"])
def test_a_reference_to_what_is_not_there_is_refused(reference: str) -> None:
    with pytest.raises(SchemaNotFoundError, match="refers to"):
        type_of(objects(x={"$ref": reference}))


def test_a_type_inside_of_itself_is_text_there() -> None:
    tree = {**objects(name={"type": "string"}, children={"type": "array", "items": {"$ref": "#"}})}
    children = listed(pa.struct([("name", pa.string()), ("children", listed(TEXT))]))
    assert type_of(tree) == pa.struct([("name", pa.string()), ("children", children)])
    assert type_of({"$ref": "#"}) == TEXT
    circle = {
        "$ref": "#/definitions/a",
        "definitions": {"a": {"$ref": "#/definitions/b"}, "b": {"$ref": "#/definitions/a"}},
    }
    assert type_of(circle) == TEXT


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ("[1]", "neither an object nor a boolean"),
        ("[" * 100_000, "no JSON"),
        ('{"type": "text"}', "has a type 'text'"),
        ('{"type": []}', "has a type"),
        ('{"properties": {"\\ud800": {}}}', "a name that is no text"),
    ],
)
def test_what_is_no_schema_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidSchemaError, match=problem):
        type_of_json_schema(text)


def test_hostile_schemas_are_refused_at_a_bound() -> None:
    wide = {f"f{number}": {"type": "integer"} for number in range(17_000)}
    with pytest.raises(InvalidSchemaError, match="more than 16384 columns"):
        type_of(objects(**wide))
    deep: Any = {"type": "integer"}
    for _ in range(70):
        deep = {"type": "array", "items": deep}
    with pytest.raises(InvalidSchemaError, match="nested more than 60 deep"):
        type_of(deep)
    names = {
        f"n{number}": objects(**{f"x{i}": {"$ref": f"#/d/n{number + 1}"} for i in range(10)}) for number in range(20)
    }
    with pytest.raises(InvalidSchemaError, match="more than 16384 columns"):
        type_of({"$ref": "#/d/n0", "d": {**names, "n20": {"type": "integer"}}})
    unions = {f"n{number}": {"anyOf": [{"$ref": f"#/d/n{number + 1}"}] * 10} for number in range(20)}
    with pytest.raises(InvalidSchemaError, match="more than 65536 parts"):
        type_of({"$ref": "#/d/n0", "d": {**unions, "n20": {"type": "integer"}}})
    chain = {f"n{number}": {"$ref": f"#/d/n{number + 1}"} for number in range(1000)}
    with pytest.raises(InvalidSchemaError, match="parts nested more than 250 deep"):
        type_of({"$ref": "#/d/n0", "d": {**chain, "n1000": {"type": "integer"}}})


@pytest.mark.parametrize(
    ("values", "arrow_type"),
    [
        (['{"a":1}', '{"b":"","c":true}'], pa.struct([("a", pa.int64()), ("b", pa.string()), ("c", pa.bool_())])),
        (["1", "2.5"], pa.float64()),
        (["1", '"x"'], TEXT),
        (['{"a":null}', '{"a":null}'], pa.struct([("a", TEXT)])),
        (['{"a":null}', '{"a":1}'], pa.struct([("a", pa.int64())])),
        (['{"a":[]}', '{"a":[{"b":1}]}', '{"a":[{"c":2}]}'],
         pa.struct([("a", listed(pa.struct([("b", pa.int64()), ("c", pa.int64())])))])),
        (["[]"], listed(TEXT)),
        (["{}"], TEXT),
        (['{"a":[1]}', '{"a":{"b":1}}'], pa.struct([("a", TEXT)])),
        (['{"a":9223372036854775808}'], pa.struct([("a", TEXT)])),
        (["no JSON", "NaN", "", '{"a":1}'], pa.struct([("a", pa.int64())])),
        (["null", "no JSON", "[" * 100_000], None),
        ([], None),
        (['{"a":1,"a":"x"}'], pa.struct([("a", TEXT)])),
        (['{"\\ud800":1}'], pa.struct([("\ufffd", pa.int64())])),
        (["{" + ",".join(f'"k{number}":{number}' for number in range(1001)) + "}"],
         pa.map_(pa.string(), pa.field("value", pa.int64()))),
    ],
)  # fmt: skip
def test_a_sample_becomes_a_type(values: list[str], arrow_type: pa.DataType | None) -> None:
    assert inferred_type(value.encode() for value in values) == arrow_type
    assert arrow_type is None or type_of(json_schema_of(arrow_type)) == arrow_type


def test_what_a_sample_nests_too_deep_is_text() -> None:
    arrow_type = inferred_type([b"[" * 200 + b"1" + b"]" * 200])
    nodes_of(arrow_type)
    assert "extension<arrow.json>" in str(arrow_type)
