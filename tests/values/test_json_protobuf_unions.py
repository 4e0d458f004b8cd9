"""Goal: schema="union" of JSON Schema and Protobuf has the fields of all versions, or says which two types differ.
Method: pairs of versions with what their union is; values that each of them wrote."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from kstore.env import DEFAULT_ENV
from kstore.errors import InvalidSchemaError
from kstore.values.formats import Partitions, ValueFormat, format_for
from kstore.values.providers import SchemaFormat
from kstore.values.registry import RegisteredSchema, SchemaRegistry, SchemaType
from tests.making.protobuf_rides import framed


def union(name: str, texts: tuple[str, ...], **options: Any) -> SchemaFormat:
    """Return the format of values of the topic t whose subject has these versions, the oldest first."""
    kind: SchemaType = "JSON" if name == "json" else "PROTOBUF"
    registry = SchemaRegistry(
        RegisteredSchema(number, "t-value", number, kind, text, is_deleted=number == 1)
        for number, text in enumerate(texts, 1)
    )
    partitions = Partitions(("t",), None, DEFAULT_ENV, lambda *_: None)
    chosen = format_for(ValueFormat(name, schema="union", schemas=registry, **options), "value", partitions)
    assert isinstance(chosen, SchemaFormat)
    return chosen


def rows_of(chosen: SchemaFormat, *values: bytes) -> list[Any]:
    """Decode values, all of which have to be good."""
    rows: list[Any] = []
    for part in chosen.reader(None, most_bytes=1 << 24).decode(pa.array(values, pa.binary())):
        assert part.bad == []
        rows += part.values.to_pylist()
    return rows


def field_names(chosen: SchemaFormat) -> list[str]:
    return [each.name for each in chosen.type(None)]


def json_union(*fields: dict[str, Any]) -> pa.DataType:
    return union("json", tuple(json.dumps({"type": "object", "properties": each}) for each in fields)).type(None)


INTEGER, NUMBER, TEXT = {"type": "integer"}, {"type": "number"}, {"type": "string"}
SMALL = {"type": "integer", "connect.type": "int16"}


def test_json_of_all_versions_has_the_fields_of_the_newest_and_then_older_ones() -> None:
    versions = [
        {"a": INTEGER, "gone": TEXT},
        {"b": {"type": "array", "items": {"type": "object", "properties": {"x": TEXT}}}},
    ]
    versions.append({"b": {"type": "array", "items": {"type": "object", "properties": {"y": NUMBER}}}, "a": NUMBER})
    texts = tuple(json.dumps({"type": "object", "properties": each}) for each in versions)
    chosen = union("json", texts)
    item = pa.struct([("y", pa.float64()), ("x", pa.string())])
    assert chosen.type(None) == pa.struct(
        [("b", pa.list_(pa.field("element", item))), ("a", pa.float64()), ("gone", pa.string())]
    )
    values = (b'\0\0\0\0\1{"a":1,"gone":"x"}', b'\0\0\0\0\2{"b":[{"x":"z"}]}', b'\0\0\0\0\3{"b":[{"y":2}],"a":0.5}')
    assert rows_of(chosen, *values) == [
        {"b": None, "a": 1.0, "gone": "x"},
        {"b": [{"y": None, "x": "z"}], "a": None, "gone": None},
        {"b": [{"y": 2.0, "x": None}], "a": 0.5, "gone": None},
    ]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (SMALL, INTEGER, pa.int64()),
        (INTEGER, SMALL, pa.int64()),
        (INTEGER, {"type": "number", "connect.type": "float32"}, pa.float64()),
        ({"type": "null"}, TEXT, pa.string()),
        ({"type": "object", "additionalProperties": INTEGER}, {"type": "object", "additionalProperties": NUMBER}, None),
    ],
)
def test_types_of_json_become_the_wider_one(one: Any, other: Any, expected: pa.DataType | None) -> None:
    found = json_union({"f": one}, {"f": other}).field("f").type
    assert found == (expected or pa.map_(pa.string(), pa.field("value", pa.float64())))


def test_json_that_one_version_has_as_text_all_have() -> None:
    assert json_union({"f": {"type": ["string", "integer"]}}, {"f": TEXT}).field("f").type == pa.json_()


@pytest.mark.parametrize(
    ("one", "other", "shown"),
    [
        (TEXT, INTEGER, r"field 'f' is int64 in .*2.*, and string in .*1"),
        ({"type": "array", "items": TEXT}, TEXT, r"field 'f' is string in .*2.*, and an array in .*1"),
        ({"type": "array", "items": TEXT}, {"type": "array", "items": INTEGER}, r"field 'f.element' is int64"),
        ({"type": "boolean"}, NUMBER, r"double in .*, and bool in"),
    ],
)
def test_types_of_json_without_a_common_one_are_refused_with_both(one: Any, other: Any, shown: str) -> None:
    with pytest.raises(InvalidSchemaError, match=shown):
        json_union({"f": one}, {"f": other})


def proto(fields: str, more: str = "") -> str:
    return f'syntax = "proto3"; package p; message M {{ {fields} }} {more}'


def test_messages_of_all_versions_have_their_fields_by_number() -> None:
    first = proto("int32 old_name = 1; string gone = 2; repeated Leg legs = 4;", "message Leg { int32 km = 1; }")
    second = proto(
        "int64 id = 1; optional int32 delay = 3; repeated Leg legs = 4; map<string, Leg> by = 5; K k = 6;",
        "message Leg { string gate = 2; } enum K { A = 0; B = 1; }",
    )
    chosen = union("protobuf", (first, second))
    leg = {"gate": "", "km": 0}
    values = (
        framed(1, first, "p.M", old_name=7, gone="x", legs=[{"km": 3}]),
        framed(2, second, "p.M", id=1 << 40, delay=5, legs=[{"gate": "A1"}], by={"z": {"gate": "B"}}, k=1),
    )
    assert rows_of(chosen, *values) == [
        {"id": 7, "delay": None, "legs": [leg | {"km": 3}], "by": [], "k": "A", "gone": "x"},
        {"id": 1 << 40, "delay": 5, "legs": [leg | {"gate": "A1"}], "by": [("z", {"gate": "B"})], "k": "B"}
        | {"gone": ""},
    ]
    assert field_names(chosen) == ["id", "delay", "legs", "by", "k", "gone"]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("int32", "int64", pa.int64()),
        ("uint32", "int32", pa.int64()),
        ("uint32", "uint64", pa.uint64()),
        ("uint64", "sint64", pa.int64()),
        ("bool", "int32", pa.int32()),
        ("E", "int32", pa.int32()),
        ("bool", "bool", pa.bool_()),
        ("bool", "fixed32", pa.uint32()),
        ("float", "double", pa.float64()),
        ("string", "bytes", pa.binary()),
        ("int32", "repeated int32", pa.list_(pa.field("element", pa.int32()))),
    ],
)
@pytest.mark.parametrize("is_turned", [False, True])
def test_types_of_protobuf_become_one_that_holds_both(
    one: str, other: str, expected: pa.DataType, is_turned: bool
) -> None:
    fields = [other, one] if is_turned else [one, other]
    chosen = union("protobuf", tuple(proto(f"{each} f = 1;", "enum E { Z = 0; }") for each in fields))
    assert chosen.type(None).field("f").type == expected


def test_a_uint64_that_fits_no_int64_is_a_bad_value_of_their_union() -> None:
    first = proto("uint64 f = 1;")
    chosen = union("protobuf", (first, proto("int64 f = 1;")))
    assert rows_of(chosen, framed(1, first, "p.M", f=2**63 - 1)) == [{"f": 2**63 - 1}]
    values = pa.array([framed(1, first, "p.M", f=1 << 63)], pa.binary())
    (part,) = chosen.reader(None, most_bytes=1 << 24).decode(values)
    assert part.values.to_pylist() == [None]
    assert [each.reason for each in part.bad] == ["of schema id 1, field f: a number does not fit int64"]


def test_a_number_that_is_used_again_with_another_type_is_refused_with_both() -> None:
    leg = "message Leg { int32 km = 1; }"
    for one, other, shown in (
        ("string f = 1;", "int32 g = 1;", r"'g' of number 1 is int in .*2.*, and string in .*1"),
        ("map<string, int32> f = 1;", "string f = 1;", r"'f' of number 1 is a map of p.M.FEntry in .*1"),
        ("Leg f = 1;", "string f = 1;", r"'f' of number 1 is string in .*2.*, and p.Leg in .*1"),
        ("double f = 1;", "int64 f = 1;", r"'f' of number 1 is int in .*2.*, and double in .*1"),
    ):
        with pytest.raises(InvalidSchemaError, match=shown):
            union("protobuf", (proto(one, leg), proto(other, leg)))


def test_a_field_whose_name_another_number_has_keeps_its_number() -> None:
    first, second = proto("int32 f = 1;"), proto("string f = 2;")
    chosen = union("protobuf", (first, second))
    assert rows_of(chosen, framed(1, first, "p.M", f=3), framed(2, second, "p.M", f="x")) == [
        {"f": "", "f_1": 3},
        {"f": "x", "f_1": 0},
    ]


def test_defaults_and_symbols_are_those_of_the_newest_version_that_has_them() -> None:
    first = 'syntax = "proto2"; package p; message M { optional int32 n = 1 [default = 4]; optional E e = 2; '
    first += 'enum E { A = 3; OLD = 4; } optional string s = 3 [default = "\\303\\251\\n"]; }'
    second = first.replace("default = 4", "default = -5").replace("OLD = 4", "B = 5").replace("string s", "bytes s")
    chosen = union("protobuf", (first, second))
    assert rows_of(chosen, framed(1, first, "p.M", e=4), framed(2, second, "p.M", e=5)) == [
        {"n": -5, "e": "OLD", "s": "é\n".encode()},
        {"n": -5, "e": "B", "s": "é\n".encode()},
    ]


def test_a_symbol_belongs_to_the_number_that_the_newest_version_gives_it() -> None:
    first = proto("E e = 1;", "enum E { Z = 0; A = 1; }")
    second = proto("E e = 1;", "enum E { Z = 0; A = 2; }")
    chosen = union("protobuf", (first, second))
    assert rows_of(chosen, framed(1, first, "p.M", e=1), framed(2, second, "p.M", e=2)) == [{"e": "A_1"}, {"e": "A"}]


def test_an_enum_may_have_a_symbol_of_its_own_name() -> None:
    first = proto("Old e = 1;", "enum Old { Y = 0; E = 3; }")
    chosen = union("protobuf", (first, proto("E e = 1;", "enum E { Z = 0; }")))
    assert rows_of(chosen, framed(1, first, "p.M", e=3)) == [{"e": "E"}]


def test_maps_of_two_versions_have_entries_of_their_own() -> None:
    first, second = proto("map<string, int32> foo_bar = 1;"), proto("map<string, int32> fooBar = 2;")
    chosen = union("protobuf", (first, second))
    values = framed(1, first, "p.M", foo_bar={"a": 1}), framed(2, second, "p.M", fooBar={"b": 2})
    assert rows_of(chosen, *values) == [
        {"fooBar": [], "foo_bar_1": [("a", 1)]},
        {"fooBar": [("b", 2)], "foo_bar_1": []},
    ]


def test_a_message_that_a_version_does_not_have_is_refused_unless_it_is_named() -> None:
    first, second = proto("int32 a = 1;").replace("message M", "message Old"), proto("int32 b = 2;")
    with pytest.raises(InvalidSchemaError, match=r"the value is p.M in version 2 .*, which version 1 .* does not have"):
        union("protobuf", (first, second))
    assert field_names(union("protobuf", (first, second), message_name="M")) == ["b"]


def test_messages_in_themselves_and_in_others_are_merged_where_they_can_be_read() -> None:
    first = proto("Node next = 1; Inner i = 2;", "message Node { int32 x = 1; Node next = 2; } message Inner { }")
    second = proto(
        "Node next = 1; Inner i = 2;", "message Node { int64 x = 1; Node next = 2; } message Inner { int32 a = 7; }"
    )
    chosen = union("protobuf", (first, second))
    wanted = {"next": {"x": None}, "i": None}
    assert chosen.type(wanted) == pa.struct(
        [("next", pa.struct([("x", pa.int64())])), ("i", pa.struct([("a", pa.int32())]))]
    )
    with pytest.raises(InvalidSchemaError, match="contains itself"):
        chosen.type(None)


def test_times_and_wrappers_stay_values() -> None:
    imports = 'import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto"; '
    text = proto("google.protobuf.Timestamp t = 1; google.protobuf.Int64Value w = 2;").replace(
        "package", f"{imports}package"
    )
    chosen = union("protobuf", (text, text))
    assert chosen.type(None) == pa.struct([("t", pa.timestamp("us", "UTC")), ("w", pa.int64())])
    with pytest.raises(InvalidSchemaError, match=r"Int64Value in .*, and google.protobuf.Timestamp in"):
        union("protobuf", (text, text.replace("google.protobuf.Timestamp t", "google.protobuf.Int64Value t")))
