"""Goal: values of an older or newer schema are read by Avro's rules of resolution, and what has no answer is bad.
Method: each rule as a writer's and a reader's schema; the answers are those of fastavro, where it has the rule."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from kstore.errors import InvalidSchemaError
from kstore.values.avro.columns import columns_of
from kstore.values.avro.defaults import encoded_default
from kstore.values.avro.reader import AvroReader
from kstore.values.avro.schema import ArrayType, Fixed, Primitive, parse_avro_schema
from tests.making.avro_values import encoded
from tests.property.test_avro_properties import read


def record(*fields: tuple[str, Any] | tuple[str, Any, Any], name: str = "R", **more: Any) -> dict[str, Any]:
    """Return the schema of a record with fields, given as name, type and maybe default."""
    described = [
        {"name": each[0], "type": each[1], **({"default": each[2]} if len(each) > 2 else {})} for each in fields
    ]
    return {"type": "record", "name": name, "fields": described, **more}


NUMBERS = ("int", "long", "float", "double")


@pytest.mark.parametrize(
    ("written", "wanted"), [(a, b) for i, a in enumerate(NUMBERS) for b in NUMBERS[i:]], ids="-".join
)
def test_a_number_is_read_as_a_wider_one(written: str, wanted: str) -> None:
    value = encoded(record(("a", written)), {"a": 77})
    assert read([value], record(("a", wanted)), writer=record(("a", written))) == ([{"a": 77}], [])


@pytest.mark.parametrize(("written", "wanted"), [("long", "int"), ("double", "float"), ("string", "int")])
def test_a_value_is_not_read_as_a_narrower_one(written: str, wanted: str) -> None:
    value = encoded(record(("a", written)), {"a": "x" if written == "string" else 1})
    shown, (bad,) = read([value], record(("a", wanted)), writer=record(("a", written)))
    assert shown == [None]
    assert f"a was written as {written}, and is read as {wanted}" in bad.reason


def test_bytes_are_read_as_text_and_text_as_bytes() -> None:
    assert read([b"\x04hi"], "bytes", writer="string") == ([b"hi"], [])
    assert read([b"\x04hi"], "string", writer="bytes") == (["hi"], [])


def test_fields_are_found_by_name_in_any_order_and_others_are_passed_over() -> None:
    writer = record(("a", "int"), ("b", {"type": "array", "items": "string"}), ("c", "string"))
    value = encoded(writer, {"a": 1, "b": ["x", "yy"], "c": "z"})
    assert read([value], record(("c", "string"), ("a", "long")), writer=writer) == ([{"c": "z", "a": 1}], [])


def test_fields_are_found_by_the_aliases_of_the_reader() -> None:
    reader = record(("new", "int"))
    reader["fields"][0]["aliases"] = ["old"]
    assert read([b"\x02"], reader, writer=record(("old", "int"))) == ([{"new": 1}], [])


DEFAULTS: list[tuple[Any, Any, Any]] = [
    ("int", -7, -7),
    ("long", 1 << 40, 1 << 40),
    ("double", 1, 1.0),
    ("boolean", True, True),
    ("string", "ä", "ä"),
    ("bytes", "\u00ff", b"\xff"),
    (["null", "int"], None, None),
    (["int", "null"], 3, 3),
    ({"type": "array", "items": "int"}, [1, 2], [1, 2]),
    ({"type": "array", "items": "int"}, [], []),
    ({"type": "map", "values": "int"}, {"k": 1}, [("k", 1)]),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
    ({"type": "fixed", "name": "F", "size": 2}, "\u0000\u00ff", b"\0\xff"),
    (record(("x", "int", 5), ("y", "string"), name="Inner"), {"y": "z"}, {"x": 5, "y": "z"}),
]


@pytest.mark.parametrize(("kind", "default", "shown"), DEFAULTS, ids=str)
def test_a_field_that_was_not_written_has_its_default(kind: Any, default: Any, shown: Any) -> None:
    writer = record(("a", "int"))
    values = [encoded(writer, {"a": number}) for number in range(3)]
    rows, bad = read(values, record(("a", "int"), ("b", kind, default)), writer=writer)
    assert (rows, bad) == ([{"a": number, "b": shown} for number in range(3)], [])


def test_a_field_that_was_not_written_and_has_no_default_makes_the_value_bad() -> None:
    shown, (bad,) = read([b"\x02"], record(("a", "int"), ("b", "int")), writer=record(("a", "int")))
    assert shown == [None]
    assert "field 'b' of record R was not written" in bad.reason


def test_a_default_that_is_no_value_of_its_type_makes_the_value_bad() -> None:
    shown, (bad,) = read([b"\x02"], record(("a", "int"), ("b", "int", "x")), writer=record(("a", "int")))
    assert shown == [None]
    assert "the default of a field of type int is 'x'" in bad.reason


def test_a_symbol_that_the_reader_does_not_have_is_its_default_or_bad() -> None:
    writer = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
    reader = {"type": "enum", "name": "E", "symbols": ["B", "C"]}
    shown, (bad,) = read([b"\x00", b"\x02"], reader, writer=writer)
    assert shown == [None, "B"]
    assert bad.row == 0
    assert read([b"\x00", b"\x02"], {**reader, "default": "C"}, writer=writer) == (["C", "B"], [])


def test_each_branch_of_a_union_is_read_by_the_rules() -> None:
    writer = ["null", "int", "string"]
    values = [encoded(record(("a", writer)), {"a": value}) for value in (None, 5, "x")]
    shown, bad = read(values, record(("a", ["null", "long"])), writer=record(("a", writer)))
    assert shown == [{"a": None}, {"a": 5}, None]
    assert [each.row for each in bad] == [2]


def test_a_union_of_several_types_is_a_struct_of_which_one_member_is_not_null() -> None:
    union = ["string", "null", "int", {"type": "array", "items": "int"}]
    values = [encoded(record(("a", union)), {"a": value}) for value in ("x", None, 5, [1])]
    members = ("member0", "member1", "member2")
    assert read(values, record(("a", union))) == (
        [
            {"a": dict(zip(members, ("x", None, None), strict=True))},
            {"a": None},
            {"a": dict(zip(members, (None, 5, None), strict=True))},
            {"a": dict(zip(members, (None, None, [1]), strict=True))},
        ],
        [],
    )


def test_a_value_that_was_no_union_is_read_as_the_branch_that_fits() -> None:
    assert read([b"\x0a"], ["null", "long"], writer="int") == ([5], [])
    assert read([b"\x0a"], ["string", "double", "boolean"], writer="int")[0] == [
        {"member0": None, "member1": 5.0, "member2": None}
    ]


@pytest.mark.parametrize(("wide", "narrow"), [("long", "int"), ("double", "float")])
def test_a_union_of_two_sizes_of_a_number_is_the_wider_one(wide: str, narrow: str) -> None:
    union = ["null", narrow, wide]
    values = [b"\x00", b"\x02" + encoded(narrow, 3), b"\x04" + encoded(wide, 4)]
    assert read(values, union) == ([None, 3, 4], [])


def test_times_of_another_unit_are_not_read_as_if_they_had_the_readers() -> None:
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    micros = {"type": "long", "logicalType": "timestamp-micros"}
    shown, (bad,) = read([b"\x02"], micros, writer=millis)
    assert shown == [None]
    assert "written as long (timestamp-millis), and is read as long (timestamp-micros)" in bad.reason


@pytest.mark.parametrize("digits", [1, 18, 38, 39, 76])
def test_a_decimal_has_at_most_the_digits_of_its_precision(digits: int) -> None:
    schema = {"type": "bytes", "logicalType": "decimal", "precision": digits, "scale": 1}
    most = 10**digits - 1
    sizes = [most, -most, most + 1, -most - 1]
    values = [encoded("bytes", number.to_bytes(40, "big", signed=True)) for number in sizes]
    shown, bad = read(values, schema)
    assert [None if value is None else value.as_tuple().digits for value in shown] == [
        Decimal(most).as_tuple().digits,
        Decimal(most).as_tuple().digits,
        None,
        None,
    ]
    assert [each.row for each in bad] == [2, 3]


def test_a_decimal_wider_than_any_column_stays_bytes() -> None:
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 77}
    assert read([b"\x02\x05"], schema) == ([b"\x05"], [])


LIST = record(("v", "int"), ("next", ["null", "List"]), name="List")


def test_a_record_inside_of_itself_is_refused_where_it_is_read() -> None:
    with pytest.raises(InvalidSchemaError, match="'next' of the Avro schema has the type record List, which contains"):
        columns_of(parse_avro_schema(json.dumps(LIST)))


def test_a_record_inside_of_itself_is_passed_over_to_any_depth_that_a_stack_has() -> None:
    def nested(depth: int) -> bytes:
        return b"\x02\x02" * depth + b"\x02\x00" + b"\x0e"

    writer = record(("list", LIST), ("a", "int"))
    reader = record(("a", "int"))
    shown, bad = read([nested(3), nested(300), nested(100_000)], reader, writer=writer)
    assert shown == [{"a": 7}, {"a": 7}, None]
    assert "nested more than 1000 deep" in bad[0].reason


@pytest.mark.parametrize("items", ["null", record(name="Empty"), {"type": "fixed", "name": "F", "size": 0}], ids=str)
def test_items_that_take_no_bytes_are_bounded(items: Any) -> None:
    schema = {"type": "array", "items": items}
    many = encoded("long", 1 << 60) + b"\x00"
    split = (encoded("long", 1000) * 5) + b"\x00"
    shown, bad = read([encoded("long", 1000) + b"\x00", many, split], schema)
    assert len(shown[0]) == 1000
    assert [each.row for each in bad] == [1, 2]


def test_blocks_of_items_may_tell_their_size() -> None:
    schema = {"type": "array", "items": "int"}
    value = b"\x03\x04\x02\x04" + b"\x02\x06" + b"\x00"
    assert read([value], schema) == ([[1, 2, 3]], [])
    writer = record(("b", schema), ("a", "int"))
    assert read([value + b"\x08"], record(("a", "int")), writer=writer) == ([{"a": 4}], [])


@pytest.mark.parametrize(
    ("value", "schema", "reason"),
    [
        (b"", "int", "it ends inside of a field"),
        (b"\x80", "int", "it ends inside of a field"),
        (b"\xff" * 11, "long", "a varint has more than 10 bytes"),
        (b"\xff\xff\xff\xff\xff\x01", "int", "an int does not fit 32 bits"),
        (b"\x01", "string", "a size is negative"),
        (b"\x06ab", "string", "it ends inside of a field"),
        (b"\x02", "boolean", "a boolean is neither 0 nor 1"),
        (b"\x04", ["null", "int"], "the branch of a union is not in the schema"),
        (b"\x01", ["null", "int"], "the branch of a union is not in the schema"),
        (b"\x04", {"type": "enum", "name": "E", "symbols": ["A"]}, "the symbol of an enum is not in the schema"),
        (b"\x7e\x02", {"type": "array", "items": "int"}, "more items than can follow"),
        (b"\x02\x02\x00x", {"type": "array", "items": "int"}, "bytes follow the value"),
    ],
    ids=str,
)
def test_a_bad_value_is_null_and_says_why(value: bytes, schema: Any, reason: str) -> None:
    shown, (bad,) = read([value], schema)
    assert shown == [None]
    assert reason in bad.reason


def test_text_that_is_not_utf8_has_replacement_characters() -> None:
    assert read([b"\x06a\xffb"], "string") == (["a\N{REPLACEMENT CHARACTER}b"], [])


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '["int", "int"]',
        '["null", ["int"]]',
        '"Unknown"',
        '{"type": "record", "name": "R"}',
        '{"type": "record", "fields": []}',
        '{"type": "record", "name": "R", "fields": [{"name": "a"}]}',
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}]}',
        '{"type": "fixed", "name": "F", "size": -1}',
        '{"type": "enum", "name": "E", "symbols": "A"}',
        '{"type": 5}',
        "5",
        '{"type": "array", "items": ' * 100 + '"int"' + "}" * 100,
    ],
)
def test_a_malformed_schema_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchemaError):
        parse_avro_schema(text)


def test_names_are_found_in_their_namespace_and_in_references() -> None:
    address = '{"type": "record", "name": "Address", "namespace": "com.x", "fields": [{"name": "s", "type": "string"}]}'
    person = '{"type": "record", "name": "com.x.P", "fields": [{"name": "a", "type": "Address"}]}'
    assert str(columns_of(parse_avro_schema(person, [address])).arrow_type) == "struct<a: struct<s: string>>"


def test_resolution_answers_as_fastavro_does() -> None:
    writer = record(("a", "int"), ("gone", {"type": "map", "values": "long"}), ("c", ["null", "string"]))
    reader = record(("c", ["null", "string", "int"], None), ("a", "double"), ("d", "string", "new"))
    rows = [{"a": number, "gone": {"k": number}, "c": None} for number in range(4)]
    values = [encoded(writer, row) for row in rows]
    parsed = fastavro.parse_schema(writer), fastavro.parse_schema(reader)
    expected = [fastavro.schemaless_reader(io.BytesIO(value), *parsed) for value in values]
    shown, bad = read(values, reader, writer=writer)
    assert bad == []
    assert [{**row, "c": None} for row in shown] == expected


def test_a_field_is_found_by_its_name_before_another_one_has_it_by_an_alias() -> None:
    reader = record(("a", "int"), ("b", "int", 7))
    reader["fields"][0]["aliases"] = ["b"]
    writer = record(("b", "int"), ("a", "int"))
    assert read([b"\x02\x04"], reader, writer=writer) == ([{"a": 2, "b": 1}], [])
    reader["fields"][0]["default"] = 5
    assert read([b"\x02"], reader, writer=record(("b", "int"))) == ([{"a": 5, "b": 1}], [])


CIRCLE = record(("radius", "double"), name="Circle")
SQUARE = record(("side", "int"), name="Square")


@pytest.mark.parametrize(
    ("branches", "number"),
    [
        ([CIRCLE, SQUARE], 1),
        ([record(("side", "long"), name="Other"), {**SQUARE, "name": "x.Square"}], 1),
        ([CIRCLE, record(("side", "long"), name="Other")], 1),
        ([CIRCLE, record(("edge", "int"), name="Other", aliases=["Square"])], None),
        ([record(("side", "string"), name="Other"), CIRCLE], None),
        ([record(("side", "int"), ("deep", "int"), name="Other"), CIRCLE], None),
        ([record(("side", "int"), ("deep", "int", 1), name="Other"), CIRCLE], 0),
    ],
    ids=["name", "short name", "fields", "alias with other fields", "other type", "without default", "default"],
)
def test_a_record_is_read_as_the_branch_of_its_name_or_else_of_its_fields(branches: Any, number: int | None) -> None:
    (row,), bad = read([b"\x04"], branches, writer=SQUARE)
    assert (row is None) == (number is None) == bool(bad)
    if row is not None:
        assert [name for name, value in row.items() if value is not None] == [f"member{number}"]


def test_the_branch_of_the_same_type_comes_before_one_that_is_wider() -> None:
    assert read([b"\x0a"], ["double", "int", "boolean"], writer="int")[0] == [
        {"member0": None, "member1": 5, "member2": None}
    ]


def exploding(depth: int, width: int = 10) -> Any:
    """Return a record of records of records: short as a schema, `width ** depth` columns."""
    inner: Any = "int"
    for level in range(depth):
        name = f"R{level}"
        fields = [{"name": "f0", "type": inner}]
        named = inner["name"] if isinstance(inner, dict) else inner
        fields += [{"name": f"f{number}", "type": named} for number in range(1, width)]
        inner = {"type": "record", "name": name, "fields": fields}
    return inner


def chained(depth: int, wrapped: Any = None) -> tuple[str, list[str]]:
    """Return a schema that is nested by names, and the texts of those that it names."""
    texts = [json.dumps(record(("f", "int"), name="R0"))]
    for level in range(1, depth):
        named: Any = f"R{level - 1}"
        texts.append(json.dumps(record(("f", wrapped(named) if wrapped else named), name=f"R{level}")))
    return texts[-1], texts[:-1]


@pytest.mark.parametrize("depth", [5, 8, 30])
def test_a_schema_of_more_columns_than_there_may_be_is_refused(depth: int) -> None:
    with pytest.raises(InvalidSchemaError, match="more than 16384 columns"):
        columns_of(parse_avro_schema(json.dumps(exploding(depth))))


@pytest.mark.parametrize("depth", [59, 61, 3000])
def test_columns_are_nested_as_deep_as_arrow_takes_them(depth: int) -> None:
    text, references = chained(depth)
    schema = parse_avro_schema(text, references)
    if depth > 60:
        with pytest.raises(InvalidSchemaError, match="nested 60 deep"):
            columns_of(schema)
        return
    reader = AvroReader(columns_of(schema), lambda _: schema, framing="none", most_bytes=1 << 24)
    (part,) = reader.decode(pa.array([b"\x0e"], pa.binary()))
    value = part.values.to_pylist()[0]
    while isinstance(value, dict):
        value = value["f"]
    assert (value, part.bad) == (7, [])


def test_a_deep_map_is_as_deep_as_arrow_takes_it() -> None:
    text, references = chained(19, lambda name: {"type": "map", "values": name})
    schema = parse_avro_schema(text, references)
    reader = AvroReader(columns_of(schema), lambda _: schema, framing="none", most_bytes=1 << 24)
    (part,) = reader.decode(pa.array([b"\x00"], pa.binary()))
    assert part.bad == []


def test_a_writer_whose_types_are_nested_by_names_gives_bad_values_and_no_error() -> None:
    text, references = chained(5000)
    writer = parse_avro_schema(text, references)
    reader = parse_avro_schema(json.dumps(record(("other", "int", 1))))
    avro = AvroReader(columns_of(reader), lambda _: writer, framing="none", most_bytes=1 << 24)
    (part,) = avro.decode(pa.array([b"\x0e", None], pa.binary()))
    assert [each.row for each in part.bad] == [0]


def test_fields_that_multiply_are_passed_over() -> None:
    writer = record(("wide", exploding(30)), ("a", "int"))
    assert read([b"\x00" * 100], record(("a", "int")), writer=writer)[0] == [None]


def test_ten_thousand_fields_are_columns() -> None:
    schema = record(*((f"f{number}", "int") for number in range(10_000)))
    (row, *_), bad = read([b"\x02" * 10_000] * 2, schema, most_bytes=1 << 27)
    assert (len(row), set(row.values()), bad) == (10_000, {1}, [])


def test_the_reason_of_a_bad_value_is_short() -> None:
    writer = record(*((f"f{number}" * 50, "string") for number in range(2000)))
    reader = record(*((f"f{number}" * 50, "int") for number in range(2000)))
    _, (bad,) = read([b"\x00" * 2000], reader, writer=writer)
    assert len(bad.reason) < 2000


def test_a_fixed_that_is_larger_than_a_column_takes_is_refused() -> None:
    schema = {"type": "fixed", "name": "F", "size": 1 << 30}
    with pytest.raises(InvalidSchemaError, match="at most 65536"):
        columns_of(parse_avro_schema(json.dumps(schema)))
    assert read([b"\x02"], record(("a", "int")), writer=record(("a", "int"), ("b", schema)))[0] == [None]


@pytest.mark.parametrize("size", [0, 1, 33, 34, 5000, 1 << 30])
def test_a_decimal_of_any_size_is_parsed(size: int) -> None:
    schema = {"type": "fixed", "name": "F", "size": size, "logicalType": "decimal", "precision": 2}
    parsed = parse_avro_schema(json.dumps(schema))
    assert isinstance(parsed, Fixed)
    assert (parsed.logical is not None) == (size > 0)


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("float", 1e300),
        ("double", 10**400),
        ("int", 1 << 31),
        ("long", True),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B"),
    ],
    ids=["float", "double", "int", "long", "enum"],
)
def test_a_default_that_no_value_can_have_makes_the_value_bad(kind: Any, default: Any) -> None:
    shown, bad = read([b"\x02"], record(("a", "int"), ("b", kind, default)), writer=record(("a", "int")))
    assert (shown, len(bad)) == ([None], 1)


def test_a_default_of_more_parts_than_a_value_should_have_is_refused() -> None:
    with pytest.raises(InvalidSchemaError, match="more than 1048576 parts"):
        encoded_default(ArrayType(Primitive("null")), [None] * ((1 << 20) + 1))


def test_names_that_are_no_text_are_refused_and_aliases_that_are_no_list_are_ignored() -> None:
    for name in ("", "\ud800", 5, None):
        with pytest.raises(InvalidSchemaError):
            parse_avro_schema(json.dumps(record((name, "int"))))  # type: ignore[arg-type]
        with pytest.raises(InvalidSchemaError):
            parse_avro_schema(json.dumps(record(name=name)))  # type: ignore[arg-type]
    schema = record(("a b.c", "int"), name="no name", aliases=5)
    schema["fields"][0]["aliases"] = 5
    assert read([b"\x02"], schema) == ([{"a b.c": 1}], [])


@pytest.mark.parametrize(("unit", "base", "most"), [("millis", "int", 86_400_000), ("micros", "long", 86_400_000_000)])
def test_a_time_is_within_a_day(unit: str, base: str, most: int) -> None:
    schema = {"type": base, "logicalType": f"time-{unit}"}
    numbers = [0, most - 1, most, -1, (1 << 31) - 1 if base == "int" else 1 << 60]
    shown, bad = read([encoded(base, number) for number in numbers], schema)
    assert [value is None for value in shown] == [False, False, True, True, True]
    assert all("a time is not within a day" in each.reason for each in bad)
    assert read([encoded("int", 5)], schema, writer="int")[1] == []
