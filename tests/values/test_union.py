"""Goal: schema="union" has the fields of all versions, so that no value of a field that was written is left out.
Method: pairs of schemas with what their union is; golden topics; random evolutions, each version against itself."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kstore
from kstore.env import DEFAULT_ENV
from kstore.errors import InvalidSchemaError, SchemaNotFoundError
from kstore.values.avro.schema import parse_avro_schema
from kstore.values.avro.union import Variant, union_text
from kstore.values.formats import Partitions, ValueFormat, format_for, formats_of
from kstore.values.providers import SchemaFormat
from kstore.values.registry import Reference, RegisteredSchema, SchemaRegistry
from tests.golden.sets import unpack
from tests.making.rides import V1, V2, framed, register
from tests.values.test_resolution import record

NAMES = {"namespace": "x", "name": "R"}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def registry_of(*schemas: Any, subject: str = "t-value", deleted: tuple[int, ...] = ()) -> SchemaRegistry:
    return SchemaRegistry(
        RegisteredSchema(number, subject, number, "AVRO", json.dumps(schema), is_deleted=number in deleted)
        for number, schema in enumerate(schemas, start=1)
    )


def read(registry: SchemaRegistry, values: list[bytes | None], **options: Any) -> list[Any]:
    """Decode values of topic t, all of which have to be good."""
    partitions = Partitions(("t",), None, DEFAULT_ENV, lambda *_: None)
    chosen = format_for(ValueFormat("avro", schemas=registry, **options), "value", partitions)
    rows: list[Any] = []
    for part in chosen.reader(None, most_bytes=1 << 24).decode(pa.array(values, pa.binary())):
        assert part.bad == []
        rows += part.values.to_pylist()
    return rows


RECORDS = (("x", "int", "a"), ("y", "string", "b"))


def union_of(*schemas: Any) -> Any:
    """Return the union of schemas, the oldest first."""
    texts = enumerate(map(json.dumps, schemas), start=1)
    return json.loads(
        union_text([Variant(parse_avro_schema(text), f"version {number}") for number, text in texts][::-1])
    )


def test_fields_are_those_of_the_newest_version_and_then_those_of_older_ones() -> None:
    first = record(("a", "int"), ("gone", "string"), ("b", "int"))
    second = record(("b", "int"), ("new", "long"), ("old", ["null", "int"], None))
    third = record(("new", "long"), ("a", "int"))
    rows = read(
        registry_of(first, second, third),
        [
            framed(1, first, {"a": 1, "gone": "x", "b": 2}),
            framed(2, second, {"b": 3, "new": 4, "old": 5}),
            framed(3, third, {"new": 6, "a": 7}),
            None,
        ],
        schema="union",
    )
    assert [list(row) for row in rows[:3]] == [["new", "a", "b", "old", "gone"]] * 3
    assert [list(row.values()) for row in rows[:3]] == [
        [None, 1, 2, None, "x"],
        [4, None, 3, 5, None],
        [6, 7, None, None, None],
    ]
    assert rows[3] is None


@pytest.mark.parametrize(
    ("older", "newer", "union"),
    [
        ("int", "long", "long"),
        ("long", "int", "long"),
        ("int", "float", "double"),
        ("double", "long", "double"),
        ("float", "double", "double"),
        ("bytes", "string", "bytes"),
        ("string", ["null", "string"], ["null", "string"]),
        (["null", "int"], "long", ["null", "long"]),
        (["string", "int"], ["null", "long"], ["null", "long", "string"]),
        (["null", "string", "int"], ["string", "long"], ["null", "string", "long"]),
        ("int", ["string", "double"], ["string", "double", "int"]),
        (logical("int", "date"), logical("int", "date"), logical("int", "date")),
        (logical("string", "uuid"), logical("string", "uuid"), logical("string", "uuid")),
        (logical("string", "uuid"), "string", "string"),
        ("bytes", logical("string", "uuid"), "bytes"),
        ("null", "int", ["null", "int"]),
        (
            logical("bytes", "decimal", precision=4, scale=2),
            logical("bytes", "decimal", precision=9, scale=2),
            logical("bytes", "decimal", precision=9, scale=2),
        ),
        (
            {"type": "array", "items": "int"},
            {"type": "array", "items": ["null", "long"]},
            {"type": "array", "items": ["null", "long"]},
        ),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "long"}, {"type": "map", "values": "long"}),
    ],
    ids=str,
)
def test_types_become_the_wider_one(older: Any, newer: Any, union: Any) -> None:
    def plain(schema: Any) -> Any:
        if isinstance(schema, list):
            return [plain(each) for each in schema]
        if isinstance(schema, dict):
            inner = {name: plain(each) for name, each in schema.items()}
            return inner["type"] if list(inner) == ["type"] else inner
        return schema

    (field,) = union_of(record(("f", older)), record(("f", newer)))["fields"]
    assert plain(field["type"]) == union


@pytest.mark.parametrize(
    ("older", "newer", "found"),
    [
        ("int", "string", "field 'f' is string in version 2, and int in version 1"),
        ("boolean", "int", "is int in version 2, and boolean in version 1"),
        (logical("long", "timestamp-millis"), logical("long", "timestamp-micros"), r"long \(timestamp-micros\)"),
        (
            logical("bytes", "decimal", precision=4, scale=1),
            logical("bytes", "decimal", precision=4, scale=2),
            r"bytes \(decimal\)",
        ),
        (
            "bytes",
            logical("bytes", "decimal", precision=4, scale=2),
            r"is bytes \(decimal\) in version 2, and bytes in",
        ),
        (logical("bytes", "decimal", precision=4, scale=2), "bytes", r"is bytes in version 2, and bytes \(decimal\)"),
        ("long", logical("long", "timestamp-millis"), r"is long \(timestamp-millis\) in version 2, and long in"),
        ("int", logical("int", "date"), r"is int \(date\) in version 2, and int in version 1"),
        (logical("int", "date"), "long", r"is long in version 2, and int \(date\) in version 1"),
        (["null", "int"], ["string", logical("int", "date")], r"is int \(date\) in version 2, and int in version 1"),
        ({"type": "array", "items": "int"}, {"type": "map", "values": "int"}, "is map of int .* array of int"),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "string"}, "field 'f.element' is string"),
        (record(("g", "int")), {**record(("g", "string")), **NAMES}, "field 'f.g' is string in version 2"),
        ({"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "F", "size": 3}, "fixed F of 3 bytes"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "string", "is string in version 2, and enum E"),
    ],
    ids=str,
)
def test_types_without_a_common_one_are_refused_with_both_and_their_versions(
    older: Any, newer: Any, found: str
) -> None:
    outer = {**record(("f", older)), "name": "Outer"}
    with pytest.raises(InvalidSchemaError, match=found):
        union_of(outer, {**outer, "fields": [{"name": "f", "type": newer}]})


def test_records_inside_of_fields_are_merged_whatever_their_names() -> None:
    first = {**record(("at", {**record(("street", "string")), "name": "x.Place"})), "name": "Ride"}
    second = {**record(("at", {**record(("zip", "int")), "name": "y.Where"})), "name": "Ride"}
    rows = read(
        registry_of(first, second),
        [framed(1, first, {"at": {"street": "s"}}), framed(2, second, {"at": {"zip": 5}})],
        schema="union",
    )
    assert rows == [{"at": {"zip": None, "street": "s"}}, {"at": {"zip": 5, "street": None}}]


def test_a_type_that_is_used_at_two_places_has_at_each_the_fields_that_were_written_there() -> None:
    place = {**record(("street", "string")), "name": "Place"}
    first = {**record(("from", place), ("to", "Place")), "name": "Ride"}
    wider = {**record(("street", "string"), ("zip", "int")), "name": "Wide"}
    second = {**record(("from", place), ("to", wider)), "name": "Ride"}
    values = {"from": {"street": "a"}, "to": {"street": "b"}}
    rows = read(registry_of(first, second), [framed(1, first, values)], schema="union")
    assert rows == [{"from": {"street": "a"}, "to": {"street": "b", "zip": None}}]


def test_enums_have_all_symbols_and_names_that_changed_are_aliases() -> None:
    first = record(
        ("e", {"type": "enum", "name": "a.Old", "symbols": ["A", "B"]}),
        ("n", {"type": "fixed", "name": "Old", "size": 1}),
    )
    second = record(
        ("e", {"type": "enum", "name": "New", "symbols": ["C", "A"]}),
        ("n", {"type": "fixed", "name": "b.New", "size": 1}),
    )
    rows = read(
        registry_of(first, second),
        [framed(1, first, {"e": "B", "n": b"x"}), framed(2, second, {"e": "C", "n": b"y"})],
        schema="union",
    )
    assert rows == [{"e": "B", "n": b"x"}, {"e": "C", "n": b"y"}]


def test_a_field_that_was_renamed_is_one_and_a_default_counts_as_for_the_newest_version() -> None:
    first = record(("old", "int"))
    second = record(("new", "int"), ("delay", "int", -1))
    second["fields"][0]["aliases"] = ["old"]
    values = [framed(1, first, {"old": 1}), framed(2, second, {"new": 2, "delay": 3})]
    rows = [{"new": 1, "delay": -1}, {"new": 2, "delay": 3}]
    assert read(registry_of(first, second), values, schema="union") == rows
    assert read(registry_of(first, second), values, schema="latest") == rows


@pytest.mark.parametrize("default", ["é€", "", "\xff"])
def test_the_default_of_a_string_that_becomes_bytes_is_its_bytes(default: str) -> None:
    first, second = record(("n", "int")), record(("n", "int"), ("f", "bytes"))
    third = record(("n", "int"), ("f", "string", default))
    rows = read(registry_of(first, second, third), [framed(1, first, {"n": 1})], schema="union")
    assert rows == [{"n": 1, "f": default.encode()}]


def test_defaults_inside_of_a_default_are_written_as_the_types_of_the_union() -> None:
    def inner(name: str, kind: str) -> Any:
        return {"type": "record", "name": "Inner", "fields": [{"name": name, "type": kind, "aliases": ["y"]}]}

    first = record(("n", "int"))
    second = record(
        ("n", "int"),
        ("items", {"type": "array", "items": "bytes"}),
        ("by_name", {"type": "map", "values": ["null", "bytes"]}),
        ("one", inner("y", "bytes")),
        ("two", ["null", "Inner"]),
    )
    third = record(
        ("n", "int"),
        ("items", {"type": "array", "items": "string"}, ["\u20ac"]),
        ("by_name", ["null", {"type": "map", "values": "string"}], {"a": "\xff"}),
        ("one", inner("x", "string"), {"x": "\u20ac"}),
        ("two", "Inner", {"x": "b"}),
    )
    rows = read(registry_of(first, second, third), [framed(1, first, {"n": 1})], schema="union")
    assert {name: str(each) for name, each in rows[0].items()} == {
        "n": "1",
        "items": str(["\u20ac".encode()]),
        "by_name": str([("a", "\xff".encode())]),
        "one": str({"x": "\u20ac".encode()}),
        "two": str({"x": b"b"}),
    }


def test_the_union_of_one_version_has_the_schemas_that_it_refers_to() -> None:
    color = RegisteredSchema(1, "color", 1, "AVRO", '{"type":"enum","name":"Color","symbols":["R"]}')
    text = json.dumps(record(("c", "Color")))
    one = RegisteredSchema(2, "t-value", 1, "AVRO", text, (Reference("Color", "color", 1),))
    partitions = Partitions(("t",), None, DEFAULT_ENV, lambda *_: None)
    options = ValueFormat("avro", schemas=SchemaRegistry([color, one]), schema="union")
    union = format_for(options, "value", partitions)
    assert isinstance(union, SchemaFormat)
    again = format_for(ValueFormat("avro", schema=union.reader_schema.text), "value", partitions)
    assert again.type(None) == union.type(None) == pa.struct([("c", pa.string())])


def test_versions_that_were_deleted_softly_count_and_their_fields_come_last() -> None:
    registry = registry_of(record(("a", "int")), record(("b", "int")), record(("c", "int")), deleted=(2, 3))
    (row,) = read(registry, [framed(3, record(("c", "int")), {"c": 1})], schema="union")
    assert row == {"a": None, "c": 1, "b": None}
    assert list(row) == ["a", "c", "b"]


def test_topics_with_different_schemas_are_read_together() -> None:
    other = record(("id", "int"), ("gate", "string"))
    registry = SchemaRegistry(
        [*registry_of(V1, V2).schemas, RegisteredSchema(9, "u-value", 1, "AVRO", json.dumps(other))]
    )
    partitions = Partitions(("t", "u"), None, DEFAULT_ENV, lambda *_: None)
    with pytest.raises(SchemaNotFoundError, match='schema="union"'):
        format_for(ValueFormat("avro", schemas=registry), "value", partitions)
    chosen = format_for(ValueFormat("avro", schemas=registry, schema="union"), "value", partitions)
    assert chosen.type(None) == pa.struct(
        [("id", pa.int64()), ("carrier", pa.string()), ("delay", pa.int32()), ("gate", pa.string())]
    )


def test_a_record_inside_of_itself_is_left_out_by_naming_the_others() -> None:
    node = record(("value", "int"), ("next", ["null", "R"], None))
    longer = record(("value", "long"), ("next", ["null", "R"], None), ("more", "int", 0))
    registry = registry_of(node, longer)
    partitions = Partitions(("t",), None, DEFAULT_ENV, lambda *_: None)
    chosen = format_for(ValueFormat("avro", schemas=registry, schema="union"), "value", partitions)
    assert chosen.type({"value": None, "more": None}) == pa.struct([("value", pa.int64()), ("more", pa.int32())])


def test_records_that_name_each_other_in_many_ways_are_refused() -> None:
    def ring(size: int) -> Any:
        schema: Any = "A0"
        for number in reversed(range(size)):
            schema = {"type": "record", "name": f"A{number}", "fields": [{"name": "n", "type": ["null", schema]}]}
        return schema

    with pytest.raises(InvalidSchemaError, match="more types in types"):
        union_of(*(ring(size) for size in (7, 11, 13, 17)))


def test_choices_are_checked() -> None:
    with pytest.raises(ValueError, match="got both"):
        ValueFormat("avro", schema="union", schema_id=1)
    for name, options, message in [
        ("avro", {"schema": "infer"}, 'schema="infer" is for the format json'),
        ("protobuf", {"schema": "infer"}, 'schema="infer" is for the format json'),
        ("json", {"schema": "infer", "schema_id": 3}, "got both"),
        ("avro", {"schema": '"int"', "schema_id": 3}, "got both"),
        ("string", {"schemas": "x"}, "the format 'string' takes no schemas"),
        ("long", {"schema_id": 3}, "the format 'long' takes no schema_id"),
        ("long", {"framing": "confluent"}, "the format 'long' takes no framing"),
    ]:
        with pytest.raises(ValueError, match=message):
            ValueFormat(name, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="schema and schemas are for a format"):
        formats_of(value="string", key="long", schemas="x")
    formats = formats_of(value="avro", key="string", schemas="x")
    assert [each.schemas for each in formats.values()] == ["x", None]


def two_topics(*values: bytes | None) -> tuple[SchemaRegistry, Partitions]:
    """Return a registry with a subject of the topic t, and another one; t, and u, v, ... with their first values."""
    mine, other = record(("c", "int")), record(("c", "int"), ("d", "int"))
    registry = SchemaRegistry(
        [*registry_of(mine).schemas, RegisteredSchema(9, "com.example.Y", 1, "AVRO", json.dumps(other))]
    )
    topics = dict(zip("uvwx", values, strict=False))
    return registry, Partitions(("t", *topics), None, DEFAULT_ENV, lambda _, topic: topics.get(topic))


def test_topics_without_a_subject_of_their_name_have_that_of_their_first_record() -> None:
    other = framed(9, record(("c", "int"), ("d", "int")), {"c": 1, "d": 2})
    registry, partitions = two_topics(other)
    with pytest.raises(SchemaNotFoundError, match="the topics t, u have different schemas"):
        format_for(ValueFormat("avro", schemas=registry), "value", partitions)
    chosen = format_for(ValueFormat("avro", schemas=registry, schema="union"), "value", partitions)
    assert chosen.type(None) == pa.struct([("c", pa.int32()), ("d", pa.int32())])
    alone = format_for(ValueFormat("avro", schemas=registry), "value", partitions._replace(topics=("u",)))
    assert [field.name for field in alone.type(None)] == ["c", "d"]


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"plain", "u-value, and the first value of u has no schema id in front"),
        (b"\0\0\0\0\x07\0", "u-value, and no schema of id 7, which the first value of u has"),
    ],
)
def test_a_topic_with_records_and_without_a_subject_is_refused_by_name(first: bytes, reason: str) -> None:
    registry, partitions = two_topics(first)
    for options in ({}, {"schema": "union"}):
        with pytest.raises(SchemaNotFoundError, match=reason):
            format_for(ValueFormat("avro", schemas=registry, **options), "value", partitions)


def test_topics_without_a_subject_and_without_records_are_left_out() -> None:
    registry, partitions = two_topics(None, None)
    chosen = format_for(ValueFormat("avro", schemas=registry), "value", partitions)
    assert chosen.type(None) == pa.struct([("c", pa.int32())])
    with pytest.raises(SchemaNotFoundError, match="no subject u-value or v-value, and there is no value with"):
        format_for(ValueFormat("avro", schemas=registry), "value", partitions._replace(topics=("u", "v")))


def test_a_scan_and_a_command_take_the_choice(tmp_path: Any) -> None:
    newer = record(("carrier", "string"), ("gate", "string", "-"))
    with kstore.open_store(tmp_path / "root", "a") as store:
        store.create_topic("_schemas", partitions=1)
        store.create_topic("t", partitions=1)
        with kstore.Producer(store) as producer:
            register(producer, "t-value", 1, 1, V1)
            register(producer, "t-value", 2, 2, newer)
            producer.send("t", framed(1, V1, {"id": 1, "carrier": "AA"}))
    table = kstore.scan(tmp_path / "root", topics="t", value="avro", schema="union").to_table()
    assert table["value"].to_pylist() == [{"carrier": "AA", "gate": "-", "id": 1}]
    summary = kstore.export(tmp_path / "root", tmp_path / "out", topics="t", value="avro", schema="union")
    assert summary.new_records == 1


# Topics whose newest schema has another value where the union has what was written, and why.
DIFFERENT = {
    "became-time": "refused: a long became a time",
    "enum-shrinks": "a default in place of the symbols that it lost",
    "long": "a float in place of a long, which is a double in the union",
    "records-by-fields": "one record in place of several branches",
    "union-widens": "a double in place of an int, which has a branch in the union",
}


def golden_topics() -> list[str]:
    registry = kstore.read_schemas(unpack("values", "trees") / "root")
    names = (subject.removesuffix("-value") for subject in registry.subjects if subject.endswith("-value"))
    return sorted({*names} - {":.lab:int", "gone", "recursive"} - DIFFERENT.keys())


def test_golden_topics_lose_nothing_of_what_their_newest_schema_reads() -> None:
    root = unpack("values", "trees") / "root"
    for topic in golden_topics():
        union = kstore.scan(root, topics=topic, value="avro", schema="union").to_table()
        latest = kstore.scan(root, topics=topic, value="avro").to_table()
        assert union["_corrupt_value"].null_count >= latest["_corrupt_value"].null_count, topic
        for wide, narrow in zip(union["value"].to_pylist(), latest["value"].to_pylist(), strict=True):
            assert holds(wide, narrow), topic


def holds(wide: Any, narrow: Any) -> bool:
    """Whether a value has all that another one has that is not null."""
    match wide, narrow:
        case _, None:
            return True
        case dict(), dict():
            return all(holds(wide.get(name), each) for name, each in narrow.items())
        case (list(), list()) | (tuple(), tuple()):
            return len(wide) == len(narrow) and all(map(holds, wide, narrow))
        case bytes(), str():
            return wide == narrow.encode()
    return bool(wide == narrow)


FAMILIES = (
    [
        ("int", st.integers(-(2**31), 2**31 - 1)),
        ("long", st.integers(-(2**52), 2**52)),
        ("double", st.floats(allow_nan=False)),
    ],
    [("string", st.text(max_size=3)), ("bytes", st.binary(max_size=3))],
    [({"type": "enum", "name": name, "symbols": list(name)}, st.sampled_from(name)) for name in ("AB", "BC", "X")],
    [({"type": "fixed", "name": name, "size": 2}, st.binary(min_size=2, max_size=2)) for name in ("F", "G")],
)


@st.composite
def field_types(draw: st.DrawFn, family: int, depth: int, number: list[int]) -> Any:
    """Return a type of a family with a strategy for its values; types of one family have a union."""
    if family < len(FAMILIES):
        schema, values = draw(st.sampled_from(FAMILIES[family]))
        if isinstance(schema, dict):
            number[0] += 1
            schema = {**schema, "name": f"n{number[0]}.{schema['name']}"}
    elif family == len(FAMILIES):
        schema, values = draw(records(depth + 1, number))
    else:
        inner, items = draw(field_types(family - len(FAMILIES) - 1, depth, number))
        schema, values = {"type": "array", "items": inner}, st.lists(items, max_size=2)
    if draw(st.booleans()):
        return draw(st.permutations(["null", schema])), st.none() | values
    return schema, values


@st.composite
def records(draw: st.DrawFn, depth: int, number: list[int]) -> Any:
    """Return a record whose fields, if other ones have them too, are of one family by their names."""
    families = range(2 * len(FAMILIES) + 1) if depth < 2 else range(len(FAMILIES))
    chosen = draw(st.lists(st.sampled_from(families), unique=True, max_size=4))
    fields = {f"f{family}": draw(field_types(family, depth, number)) for family in chosen}
    number[0] += 1
    schema = {
        "type": "record",
        "name": f"R{number[0]}",
        "fields": [{"name": n, "type": t} for n, (t, _) in fields.items()],
    }
    return schema, st.fixed_dictionaries({name: values for name, (_, values) in fields.items()})


@given(st.data())
def test_no_value_of_a_field_is_lost_in_any_evolution(data: st.DataObject) -> None:
    versions = [data.draw(records(0, [0])) for _ in range(data.draw(st.integers(1, 4)))]
    registry = registry_of(*(schema for schema, _ in versions))
    values = [
        (number, framed(number, schema, data.draw(written)))
        for number, (schema, written) in enumerate(versions, start=1)
        for _ in range(2)
    ]
    wide = read(registry, [value for _, value in values], schema="union")
    for (number, value), row in zip(values, wide, strict=True):
        (own,) = read(registry, [value], schema_id=number)
        assert holds(row, own)


@pytest.mark.parametrize("count", [1, 2])
def test_two_records_of_one_short_name_in_a_union_stay_two(count: int) -> None:
    one, other = ({**record((name, kind)), "name": "R", "namespace": space} for name, kind, space in RECORDS)
    schemas = [[one, other], ["null", other, one]][:count]
    rows = {"a": {"x": 3}, "b": {"y": "text"}}
    values = [
        framed(number, schema, (f"{space}.R", rows[space]))
        for number, schema in enumerate(schemas, start=1)
        for space in rows
    ]
    found = read(registry_of(*schemas), values, schema="union")
    # The newest version has the order.
    expected = [{"member0": rows["a"], "member1": None}, {"member0": None, "member1": rows["b"]}]
    swapped = [{"member0": row["member1"], "member1": row["member0"]} for row in expected]
    assert found == (expected if count == 1 else swapped * 2)
