"""Goal: columns of values grow past every first capacity, stay under their limit, and lose no row at a division.
Method: more rows, bytes, items, schemas and bad values than a first table holds; limits that a value just fits."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from kstore.errors import MemoryLimitError, SchemaNotFoundError
from kstore.values.avro.columns import columns_of
from kstore.values.avro.reader import AvroReader
from kstore.values.avro.schema import AvroType, parse_avro_schema
from kstore.values.decoded import DecodedValues, Framing
from kstore.values.header_ids import HeaderIds
from kstore.values.reading import _MOST_UNREADABLE
from tests.making.avro_values import encoded
from tests.values.test_resolution import record

MANY = 5000
TEXTS = record(("text", "string"), ("items", {"type": "array", "items": ["null", "string"]}), ("flag", "boolean"))


def reader_of(
    schema: Any, *, most_bytes: int = 1 << 24, writer_of: Callable[[int], AvroType] | None = None
) -> AvroReader:
    parsed = parse_avro_schema(json.dumps(schema))
    if writer_of is None:
        return AvroReader(columns_of(parsed), lambda _: parsed, framing="none", most_bytes=most_bytes)
    return AvroReader(columns_of(parsed), writer_of, framing="confluent", most_bytes=most_bytes)


def decode(reader: AvroReader, values: Sequence[bytes | None]) -> list[DecodedValues]:
    parts = list(reader.decode(pa.array(values, pa.binary())))
    for part in parts:
        part.values.validate(full=True)
    return parts


def rows_of(parts: Sequence[DecodedValues]) -> list[Any]:
    return [row for part in parts for row in part.values.to_pylist()]


def test_rows_bytes_and_items_go_past_their_first_memory() -> None:
    rows = [
        {"text": "x" * (number % 50), "items": [None, "y" * (number % 7)] * (number % 5), "flag": number % 3 == 0}
        for number in range(MANY)
    ]
    (part,) = decode(reader_of(TEXTS), [encoded(TEXTS, row) for row in rows])
    assert part.values.to_pylist() == rows
    assert part.bad == []


def test_a_second_table_has_none_of_the_rows_of_the_first() -> None:
    reader = reader_of(TEXTS)
    for count in (MANY, 10, MANY * 2, 0, 3):
        rows = [{"text": str(number), "items": [None], "flag": number % 2 == 0} for number in range(count)]
        assert rows_of(decode(reader, [encoded(TEXTS, row) for row in rows])) == rows


def test_more_bad_values_than_a_first_list_of_them_are_each_named() -> None:
    good = encoded(TEXTS, {"text": "a", "items": [], "flag": True})
    values = [good if number % 3 == 0 else b"\x02" for number in range(100)]
    (part,) = decode(reader_of(TEXTS), values)
    assert [each.row for each in part.bad] == [number for number in range(100) if number % 3]
    assert [row is None for row in part.values.to_pylist()] == [number % 3 > 0 for number in range(100)]


def test_more_schemas_than_a_first_table_of_them_are_each_found() -> None:
    asked: list[int] = []
    schema = record(("number", "long"))

    def writer_of(schema_id: int) -> AvroType:
        asked.append(schema_id)
        if schema_id % 7 == 3:
            raise SchemaNotFoundError(f"no schema {schema_id}")
        return parse_avro_schema(
            json.dumps(record(*((f"f{i}", "long") for i in range(schema_id % 3)), ("number", "int")))
        )

    # Upwards, downwards and again; a new cluster gives out id 0, or 1, first.
    ids = [*range(40, 90), *range(39, -1, -1), *range(90)]
    values = [b"\0" + each.to_bytes(4, "big") + b"\x02" * (each % 3) + encoded("int", each) for each in ids]
    reader = reader_of(schema, writer_of=writer_of)
    (part,) = decode(reader, values)
    assert part.values.to_pylist() == [None if each % 7 == 3 else {"number": each} for each in ids]
    assert sorted(asked) == list(range(90))


@pytest.mark.parametrize("most_bytes", [20_000, 50_000, 200_000])
def test_rows_that_do_not_fit_one_table_come_in_the_next(most_bytes: int) -> None:
    rows = [{"text": "x" * 900, "items": ["y"] * (number % 4), "flag": True} for number in range(300)]
    values: list[bytes | None] = [encoded(TEXTS, row) for row in rows]
    values[::50] = [None] * 6
    values[7::50] = [b"\x02"] * 6
    parts = decode(reader_of(TEXTS, most_bytes=most_bytes), values)
    assert len(parts) > 1
    assert [part.start for part in parts] == [sum(len(each.values) for each in parts[:i]) for i in range(len(parts))]
    assert [part.start + each.row for part in parts for each in part.bad] == list(range(7, 300, 50))
    assert rows_of(parts) == [None if number % 50 in (0, 7) else row for number, row in enumerate(rows)]


def test_a_value_that_no_table_holds_is_bad_and_those_around_it_are_not() -> None:
    small, large = ({"text": "x" * size, "items": [], "flag": True} for size in (10, 100_000))
    values = [encoded(TEXTS, row) for row in (small, large, small)]
    parts = decode(reader_of(TEXTS, most_bytes=60_000), values)
    assert rows_of(parts) == [small, None, small]
    assert ["memory" in each.reason for part in parts for each in part.bad] == [True]


def test_a_value_that_fits_alone_is_read_whatever_was_read_before() -> None:
    two = record(("a", "string"), ("b", "string"))
    reader = reader_of(two, most_bytes=60_000)
    first = {"a": "x" * 40_000, "b": ""}
    second = {"a": "", "b": "y" * 50_000}
    for row in (first, second, first, second):
        assert rows_of(decode(reader, [encoded(two, row)])) == [row]


def test_memory_that_cannot_be_doubled_is_still_used() -> None:
    lists = {"type": "array", "items": "string"}
    value = ["x" * 1000] * 45
    assert rows_of(decode(reader_of(lists, most_bytes=50_000), [encoded(lists, value)])) == [value]


def test_nulls_after_a_bad_value_are_null_and_have_no_reason() -> None:
    good = {"text": "a", "items": ["b"], "flag": False}
    values = [b"\x02a\x04\x02\x02b", None, encoded(TEXTS, good), None]
    (part,) = decode(reader_of(TEXTS), values)
    assert part.values.to_pylist() == [None, None, good, None]
    assert [each.row for each in part.bad] == [0]


@pytest.mark.parametrize("branches", [["null", "string"], ["string", "null"]], ids="-".join)
def test_a_branch_in_more_bytes_than_it_needs_is_one_whether_its_field_is_read_or_not(branches: list[str]) -> None:
    schema = record(("skipped", branches), ("kept", "int"))
    parsed = parse_avro_schema(json.dumps(schema))
    number = {"null": branches.index("null"), "string": branches.index("string")}
    values = [
        bytes([2 * number["string"] | 0x80, 0]) + b"\x02a" + b"\x06",
        bytes([2 * number["null"] | 0x80, 0]) + b"\x06",
        b"\x04\x06",
    ]
    for wanted in (None, {"kept": None}):
        reader = AvroReader(columns_of(parsed, wanted), lambda _: parsed, framing="none", most_bytes=1 << 20)
        (part,) = decode(reader, values)
        kept = [None if row is None else row["kept"] for row in part.values.to_pylist()]
        assert kept == [3, 3, None]


PASSED_OVER = record(
    ("kept", "int"),
    ("number", "long"),
    ("double", "double"),
    ("text", "string"),
    ("flag", "boolean"),
    ("single", "float"),
    ("maybe_number", ["null", "long"]),
    ("hash", {"type": "fixed", "name": "Hash", "size": 5}),
    ("text_or_null", ["string", "null"]),
    ("half", "float"),
    ("hash_or_null", ["Hash", "null"]),
    ("whole", "double"),
    ("maybe_double", ["null", "double"]),
    ("last", "int"),
)
NUMBERS_AND_SIZES = [
    *((0, 0), (-64, 1), (64, 63), (1 << 40, 64), (-(1 << 55), 65)),
    *((3, 130), (1 << 62, 200), (-(1 << 63), 9000)),
]
PASSED_OVER_ROWS = [
    {
        "kept": 1,
        "number": number,
        "double": 0.5,
        "text": "x" * size,
        "flag": True,
        "single": 0.5,
        "maybe_number": None if is_null else number,
        "hash": b"12345",
        "text_or_null": None if is_null else "y" * size,
        "half": 0.25,
        "hash_or_null": None if is_null else b"54321",
        "whole": 2.0,
        "maybe_double": None if is_null else 4.0,
        "last": 7,
    }
    for number, size in NUMBERS_AND_SIZES
    for is_null in (False, True)
]


def reader_of_fields(schema: dict[str, Any], *names: str, framing: Framing = "none") -> AvroReader:
    parsed = parse_avro_schema(json.dumps(schema))
    wanted = columns_of(parsed, dict.fromkeys(names))
    return AvroReader(wanted, lambda _: parsed, framing=framing, most_bytes=1 << 20)


@pytest.mark.parametrize(
    "wanted",
    [("last",), ("kept", "last"), ("text", "last"), ("maybe_number", "last"), ("half",), ("whole",), ("hash",)],
    ids=str,
)
def test_a_field_is_the_same_whatever_fields_before_it_are_passed_over(wanted: tuple[str, ...]) -> None:
    reader = reader_of_fields(PASSED_OVER, *wanted)
    values = [encoded(PASSED_OVER, row) for row in PASSED_OVER_ROWS]
    names = [each["name"] for each in PASSED_OVER["fields"] if each["name"] in wanted]
    assert rows_of(decode(reader, values)) == [{name: row[name] for name in names} for row in PASSED_OVER_ROWS]


@pytest.mark.parametrize("framing", ["none", "confluent"])
@pytest.mark.parametrize("row", PASSED_OVER_ROWS[:-2], ids=lambda row: f"{row['number']}-{row['maybe_double']}")
def test_a_value_that_is_cut_off_in_fields_that_nobody_reads_is_bad(row: dict[str, Any], framing: Framing) -> None:
    reader = reader_of_fields(PASSED_OVER, "kept", framing=framing)
    frame = b"" if framing == "none" else bytes(5)
    whole = frame + encoded(PASSED_OVER, row)
    cut = [whole[:size] for size in range(len(frame), len(whole))]
    # Bytes of another value follow each, but for the last one.
    (part,) = decode(reader, [*cut, whole, *reversed(cut)])
    assert part.values.to_pylist() == [None] * len(cut) + [{"kept": 1}] + [None] * len(cut)
    assert {each.reason.partition(", ")[2].rpartition(", ")[2] or each.reason for each in part.bad} == {
        "it ends inside of a field"
    }


@pytest.mark.parametrize("size", range(1, 20))
def test_a_byte_that_is_no_text_is_replaced_wherever_it_is(size: int) -> None:
    schema = record(("text", "string"), ("bytes", "bytes"))
    texts = [b"a" * place + b"\xff" + b"b" * (size - place - 1) for place in range(size)]
    # Such bytes after a text are not in it.
    values = [bytes([2 * size]) + text + b"\x08\xff\xff\xff\xff" for text in (*texts, b"a" * size)]
    shown = [text.decode(errors="replace") for text in texts] + ["a" * size]
    assert rows_of(decode(reader_of(schema), values)) == [{"text": each, "bytes": b"\xff" * 4} for each in shown]


def test_bad_sizes_and_branches_of_fields_that_nobody_reads_are_bad() -> None:
    number, optional = record(("a", "long"), ("kept", "int")), record(("a", ["null", "string"]), ("kept", "int"))
    for schema, value, reason in (
        (number, b"\xff" * 10 + b"\x01" + bytes(20), "a varint has more than 10 bytes"),
        (record(("a", "bytes"), ("kept", "int")), b"\x01" + bytes(20), "a size is negative"),
        (optional, b"\x04" + bytes(20), "the branch of a union is not in the schema"),
        (optional, b"\x02\x01" + bytes(20), "a size is negative"),
    ):
        (part,) = decode(reader_of_fields(schema, "kept"), [value])
        assert [each.reason.rpartition(", ")[2] for each in part.bad] == [reason]


def test_id_zero_of_a_header_is_an_id() -> None:
    parsed = parse_avro_schema('"int"')
    headers = pa.array(
        [[{"key": "id", "value": bytes(5)}]] * 2, pa.list_(pa.struct({"key": "string", "value": "binary"}))
    )
    reader = AvroReader(
        columns_of(parsed), lambda _: parsed, framing="confluent", most_bytes=1 << 20, header_ids=HeaderIds("id")
    )
    assert rows_of(list(reader.decode(pa.array([b"\x06", b"\x08"], pa.binary()), headers))) == [3, 4]


@pytest.mark.parametrize("is_wanted", [True, False])
def test_blocks_with_a_size_in_bytes_have_the_items_of_blocks_without_one(is_wanted: bool) -> None:
    schema = record(("items", {"type": "array", "items": "int"}), ("last", "int"))
    parsed = parse_avro_schema(json.dumps(schema))
    # Two items in a block of 3 bytes, one in a block without a size, three in a block of 3 bytes.
    value = b"\x03\x06\x02\x80\x01" + b"\x02\x08" + b"\x05\x06\x0a\x0c\x0e" + b"\x00" + b"\x06"
    wanted = {"items": None, "last": None} if is_wanted else {"last": None}
    reader = AvroReader(columns_of(parsed, wanted), lambda _: parsed, framing="none", most_bytes=1 << 20)
    row = {"items": [1, 64, 4, 5, 6, 7], "last": 3}
    assert rows_of(decode(reader, [value])) == [{name: row[name] for name in wanted}]


@pytest.mark.parametrize("width", [1, 2, 3, 5, 8, 9, 10])
def test_numbers_of_every_width_are_read_and_passed_over(width: int) -> None:
    schema = record(("a", "long"), ("b", "long"))
    parsed = parse_avro_schema(json.dumps(schema))
    least = 0 if width == 1 else 1 << (7 * (width - 1) - 1)
    rows = [{"a": sign * least - (sign < 0), "b": least} for sign in (1, -1) if least < 1 << 63]
    values = [encoded(schema, row) for row in rows]
    for wanted in ({"a": None, "b": None}, {"b": None}):
        reader = AvroReader(columns_of(parsed, wanted), lambda _: parsed, framing="none", most_bytes=1 << 20)
        assert rows_of(decode(reader, values)) == [{name: row[name] for name in wanted} for row in rows]


def test_a_value_without_a_frame_does_not_name_the_schema_of_the_one_before() -> None:
    parsed = parse_avro_schema('"int"')
    reader = AvroReader(columns_of(parsed), lambda _: parsed, framing="confluent", most_bytes=1 << 20)
    (part,) = decode(reader, [b"\0\0\0\0\1\2", b"\2", b"\0\0\0\0\1\4"])
    assert part.values.to_pylist() == [1, None, 2]
    assert [(each.schema_id, "of schema id" in each.reason) for each in part.bad] == [(-1, False)]


def test_a_topic_of_unknown_ids_costs_memory_for_a_part_of_them() -> None:
    schema = parse_avro_schema('"int"')

    def writer_of(schema_id: int) -> AvroType:
        if schema_id % 100:
            raise SchemaNotFoundError(f"no schema {schema_id}")
        return schema

    reader = AvroReader(columns_of(schema), writer_of, framing="confluent", most_bytes=1 << 24)
    values = [b"\0" + (number * 7919 % MANY).to_bytes(4, "big") + b"\2" for number in range(2 * MANY)]
    parts = decode(reader, values)
    assert [part.start for part in parts] == [sum(len(each.values) for each in parts[:at]) for at in range(len(parts))]
    assert rows_of(parts) == [None if number * 7919 % MANY % 100 else 1 for number in range(2 * MANY)]
    reasons = {part.start + each.row: each.reason for part in parts for each in part.bad}
    for number in range(2 * MANY):
        schema_id = number * 7919 % MANY
        assert (f"(no schema {schema_id})" in reasons.get(number, "")) == (schema_id % 100 > 0)
    assert len(reader._unreadable) <= _MOST_UNREADABLE
    assert len(reader._problems) == MANY // 100


def test_a_limit_that_no_row_fits_is_named() -> None:
    many = record(*((f"f{number}", "string") for number in range(40)))
    value = encoded(many, {f"f{number}": "x" for number in range(40)})
    with pytest.raises(MemoryLimitError, match="max_decompressed_bytes is 8192, and a row of 41 columns") as caught:
        reader_of(many, most_bytes=8192)
    assert (caught.value.option, caught.value.limit) == ("max_decompressed_bytes", 8192)
    least = caught.value.found
    for values in ([value], [None, value, b""], [b"", value, None]):
        assert rows_of(decode(reader_of(many, most_bytes=least), values)) == [None] * len(values)
    reader = reader_of(many, most_bytes=4 * least)
    for _ in range(3):
        assert rows_of(decode(reader, [b"", *[None] * 500, b""])) == [None] * 502
