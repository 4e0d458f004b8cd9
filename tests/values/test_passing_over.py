"""Goal: fields that nobody reads are passed over wherever a value before had them in the same form, or in another one.
Method: many values of few and of many shapes in one array, against each value alone; cut and damaged values between."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

import pyarrow as pa
import pytest

from kstore._core import (
    AVRO_STEPS,
    VALUE_LAYOUTS,
    VALUE_STOPS,
    AvroProgram,
    ValueColumns,
    ValueDecoder,
    has_bits,
    short_text,
    text_classes,
)
from kstore.values.avro.columns import columns_of
from kstore.values.avro.reader import AvroReader
from kstore.values.avro.schema import parse_avro_schema
from tests.making.avro_values import encoded
from tests.making.json_values import read as read_json
from tests.values.test_decoding import PASSED_OVER, PASSED_OVER_ROWS
from tests.values.test_resolution import record

READINGS = [("last",), ("kept",), ("text", "last"), ("kept", "hash_or_null"), ("half", "whole"), ()]


def read(schema: dict[str, Any], names: tuple[str, ...], values: list[bytes]) -> list[Any]:
    """Return the rows of values, the reason in the place of a bad one."""
    parsed = parse_avro_schema(json.dumps(schema))
    wanted = columns_of(parsed, dict.fromkeys(names))
    reader = AvroReader(wanted, lambda _: parsed, framing="none", most_bytes=1 << 22)
    rows: list[Any] = []
    for part in reader.decode(pa.array(values, pa.binary())):
        part.values.validate(full=True)
        shown = part.values.to_pylist()
        for each in part.bad:
            shown[each.row] = each.reason
        rows += shown
    return rows


def mutants(values: list[bytes], count: int) -> list[bytes]:
    source = random.Random(1)
    damaged = []
    for _ in range(count):
        value = bytearray(source.choice(values))
        for _ in range(source.randrange(1, 3)):
            value[source.randrange(len(value))] = source.choice((0, 1, 2, 4, 0x7F, 0x80, 0xFF, source.randrange(256)))
        damaged.append(bytes(value[: source.choice((len(value), source.randrange(len(value) + 1)))]))
    return damaged


@pytest.mark.parametrize("names", READINGS, ids=str)
def test_a_value_is_read_as_if_it_were_alone_whatever_values_are_before_it(names: tuple[str, ...]) -> None:
    source = random.Random(0)
    whole = [encoded(PASSED_OVER, row) for row in PASSED_OVER_ROWS[:-2]]
    others = mutants(whole, 60) + [value[:-1] for value in whole]
    # One shape for long, others among them, all in turns, and one again.
    values = whole[:1] * 300
    values += [whole[2] if source.random() < 0.9 else source.choice(whole + others) for _ in range(900)]
    values += [source.choice(whole + others) for _ in range(900)] + whole[3:4] * 600 + others
    alone = {value: read(PASSED_OVER, names, [value])[0] for value in dict.fromkeys(values)}
    assert read(PASSED_OVER, names, values) == [alone[value] for value in values]


@pytest.mark.parametrize("names", READINGS, ids=str)
def test_a_value_of_a_known_shape_that_is_cut_off_is_bad(names: tuple[str, ...]) -> None:
    for row in PASSED_OVER_ROWS[:-2]:
        whole = encoded(PASSED_OVER, row)
        cut = [whole[:size] for size in range(len(whole))]
        rows = read(PASSED_OVER, names, [whole, whole, *cut, whole])
        assert [isinstance(each, str) for each in rows] == [False, False, *[True] * len(cut), False]


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 200, 5000])
def test_any_number_of_numbers_is_passed_over(count: int) -> None:
    schema = record(*((f"n{number}", "long") for number in range(count)), ("last", "int"))
    rows = [{**{f"n{number}": size for number in range(count)}, "last": 7} for size in (1, 1, 1 << 40, 1, 1 << 40)]
    # Numbers of which one is longer than in the values before.
    rows += [{**rows[0], f"n{place}": 1 << 40} for place in (0, 7, 8, 15, count - 1) if place < count]
    values = [encoded(schema, row) for row in rows]
    assert read(schema, ("last",), values) == [{"last": 7}] * len(rows)
    bad = bytearray(values[0])
    bad[count // 2] = 0x80
    assert isinstance(read(schema, ("last",), [*values, bytes(bad), values[0]])[-2], str)


def test_fields_of_a_shape_that_no_value_has_any_more_are_passed_over_from_the_first_one_on() -> None:
    numbers = [(f"n{number}", "long") for number in range(6)]
    schema = record(("f", {"type": "fixed", "name": "F", "size": 4}), *numbers, ("last", "int"))
    schema["fields"] += record(*((f"m{number}", "int") for number in range(8)))["fields"]
    small = {"f": b"\x02" * 4, **{field["name"]: 1 for field in schema["fields"][1:]}}
    rows = [small, *({**small, "n3": 1 << 20, "last": number} for number in range(200))]
    assert read(schema, ("last",), [encoded(schema, row) for row in rows]) == [{"last": row["last"]} for row in rows]


@pytest.mark.parametrize("size", [0, 1, 44, 45, 46, 47, 48, 60, 61, 62, 63, 64, 65, 200])
def test_fields_of_any_fixed_size_are_passed_over(size: int) -> None:
    fixed = {"type": "fixed", "name": "F", "size": size}
    schema = record(("a", "long"), ("b", fixed), ("c", ["null", "int"]), ("d", "F"), ("text", "string"), ("e", "F"))
    schema["fields"] += record(("g", ["F", "null"]), ("last", "int"))["fields"]
    given = bytes(size)
    row = {"a": 300, "b": given, "c": 5, "d": given, "text": "x" * 70, "e": given, "g": given, "last": 9}
    values = [encoded(schema, each) for each in (row, row, {**row, "c": None}, {**row, "g": None, "text": "y"}, row)]
    assert read(schema, ("last",), [*values, values[0][:-2], *values]) == [
        *[{"last": 9}] * 5,
        read(schema, ("last",), [values[0][:-2]])[0],
        *[{"last": 9}] * 5,
    ]


@pytest.mark.parametrize("size", [0, 1, 8, 61, 62, 63, 64, 200, 5000])
def test_a_first_field_of_any_fixed_size_is_passed_over(size: int) -> None:
    fixed = {"type": "fixed", "name": "F", "size": size}
    schema = record(("first", fixed), ("a", "long"), ("b", ["null", "int"]), ("text", "string"), ("last", "int"))
    plain = {"first": bytes(size), "a": 300, "b": 5, "text": "x", "last": 9}
    values = [
        encoded(schema, row) for row in (plain, {**plain, "b": None}, {**plain, "a": 1}, {**plain, "text": "x" * 70})
    ]
    cut = [values[0][:end] for end in (size // 2, size, size + 1, len(values[0]) - 1)]
    # The shape of the first one, which the others end, and one of the others.
    several = values[:1] * 300 + values[1:3] * 600 + cut + values * 3
    rows = read(schema, ("last",), several)
    assert [row for row in rows if isinstance(row, dict)] == [{"last": 9}] * (len(several) - len(cut))
    assert [row for row in rows if isinstance(row, str)] == [read(schema, ("last",), [value])[0] for value in cut]


def test_texts_of_any_size_are_kept_and_repaired_wherever_they_begin() -> None:
    schema = record(("text", "string"), ("more", "string"), ("number", "long"))
    texts = ["", "", *("x" * size + end for size in range(20) for end in ("", "ä", "€", "y"))]
    rows = [{"text": text, "more": text[::-1], "number": 7} for text in texts]
    values = [encoded(schema, row) for row in rows]
    assert read(schema, ("text", "more", "number"), values) == rows
    assert read(schema, ("text", "more", "number"), values[:2]) == rows[:2]
    bad = [value.replace("ä".encode(), b"\xff\xfe") for value in values]
    repaired = [
        {**row, **{name: str(row[name]).replace("ä", "\ufffd\ufffd") for name in ("text", "more")}} for row in rows
    ]
    assert read(schema, ("text", "more", "number"), bad) == repaired


@pytest.mark.parametrize("is_portable", [False, True])
def test_sixteen_bytes_are_compared_and_copied_alike_by_every_way(is_portable: bool) -> None:
    source = random.Random(3)
    for size in range(17):
        for place in range(16):
            text = bytearray(source.randrange(128) for _ in range(16))
            assert short_text(bytes(text), size=size, is_portable=is_portable) == (True, bytes(text))
            text[place] |= 0x80
            assert short_text(bytes(text), size=size, is_portable=is_portable) == (place >= size, bytes(text))
    for place in range(16):
        mask, data = bytes(source.randrange(256) for _ in range(16)), bytearray(source.randbytes(16))
        bits = bytes(each & other for each, other in zip(mask, data, strict=True))
        assert has_bits(bytes(data), mask, bits, is_portable=is_portable)
        for bit in range(8):
            data[place] ^= 1 << bit
            assert has_bits(bytes(data), mask, bits, is_portable=is_portable) == (not mask[place] >> bit & 1)
            data[place] ^= 1 << bit


def json_texts(name: str) -> list[bytes]:
    """Return objects with fields that are no longer than they say, in several forms, and what is wrong in others."""
    fields = {name: 'a"' if name == "q" else "text", "f": 1.5, "n": -7, "u": 8, "b": True, "z": None, "last": 3}
    forms = [
        json.dumps(fields, separators=separators).encode()
        for separators in ((",", ":"), (", ", ": "), (" ,", " :"), ("\n,\t", ":\r "))
    ]
    shuffled = json.dumps(dict(sorted(fields.items())))
    numbers = "0 -0 00 -01 1. .5 1.5. 1e5 1E-2 -  - 1x 123456789012345678901234567890 0.1234567890123456789012345678901"
    texts = [f'{{"{name}":"t","f":{number},"n":{number},"u":{number},"last":3}}' for number in numbers.split(" ")]
    words = ["tru", "falsey", "nul", "true", "false", "null", '"true"', "[1]", "{}"]
    words += ['"\\u00e4"', '"\\x"', '"\x01"', '"ä"']
    texts += [f'{{"{name}":{word},"f":1,"b":{word},"z":{word},"last":3}}' for word in words]
    texts += [f'{{"{name}"{colon}"t","f"{colon}1,"last":3}}' for colon in (";", "", "x", "::")]
    texts += [f'{{"{name}":"t"{comma}"f":1{comma}"last":3}}' for comma in (";", "", ",,", ", ,")]
    return forms + [each.encode() for each in (shuffled, *texts)]


@pytest.mark.parametrize("size", [1, 5, 7, 8, 9, 15, 16, 17, 24, 40])
def test_json_that_nobody_reads_is_as_bad_as_where_it_is_read(size: int) -> None:
    name = ("a_name_of_a_field_" * 3)[:size]
    kinds = [(name, pa.string()), ("f", pa.float64()), ("n", pa.int32()), ("u", pa.uint8()), ("b", pa.bool_())]
    arrow_type = pa.struct([*kinds, ("z", pa.string()), ("last", pa.int64())])
    texts = json_texts(name)
    # A value that is cut off has the rest of it behind, which is another value.
    values: list[bytes | None] = list(texts)
    values += [part for text in texts for end in range(1, len(text)) for part in (text[:end], text[end:])]
    padded = [*values, b" " * 64 + b"null"]
    rows, bad = read_json(padded, arrow_type)
    for names in ((), ("last",), ("n", "last"), (name, "b"), ("z",)):
        others, as_bad = read_json(padded, arrow_type, dict.fromkeys(names))
        assert as_bad == bad
        assert others == [None if row is None else {each: row[each] for each in row if each in names} for row in rows]


def test_bytes_are_of_one_class_by_all_ways_to_find_it() -> None:
    source = random.Random(2)
    texts = [bytes(place) + bytes([byte]) + bytes(31 - place) for place in range(32) for byte in range(256)]
    texts += [bytes([byte]) * place + b'"' + b"0" * (31 - place) for place in range(32) for byte in range(32, 256)]
    texts += [source.randbytes(32) for _ in range(2000)]
    for text in texts:
        digits = sum(1 << place for place, byte in enumerate(text) if 0x30 <= byte <= 0x39)
        stop = next(place for place, byte in enumerate(text + b'"') if byte < 0x20 or byte in b'"\\' or byte > 0x7F)
        for is_portable in (False, True):
            assert text_classes(text + b'"' + bytes(31), is_portable=is_portable) == (digits, stop)


@pytest.mark.parametrize("size", [0, 1, 12, 13, 40])
def test_views_are_read_as_arrays_with_offsets_are(size: int) -> None:
    schema = record(("a", "long"), ("text", "string"), ("b", "long"))
    values = [None, *(encoded(schema, {"a": 1, "text": "x" * size, "b": number << 40}) for number in range(3)), b"\x02"]
    parsed = parse_avro_schema(json.dumps(schema))
    rows, types = [], (pa.binary(), pa.binary_view())
    for arrow_type in types:
        reader = AvroReader(columns_of(parsed), lambda _: parsed, framing="none", most_bytes=1 << 20)
        for array in (pa.array(values, arrow_type), pa.array([b"y" * 100, *values, b""], arrow_type).slice(1, 5)):
            (part,) = reader.decode(array)
            rows.append((part.values.to_pylist(), part.bad))
    assert rows[1:] == rows[:1] * 3
    assert [row is None for row in rows[0][0]] == [True, False, False, False, True]


@pytest.mark.parametrize(
    "view",
    [(-1, 0, 0, 0), (13, 0, 2, 0), (13, 0, -1, 0), (13, 0, 0, 8), (13, 0, 1, 8), (13, 0, 0, -1), (1 << 30, 0, 0, 0)],
    ids=str,
)
def test_a_view_that_is_not_within_the_data_is_refused(view: tuple[int, ...]) -> None:
    columns = ValueColumns([(VALUE_LAYOUTS["variable"], 0, 0, 0)], most_bytes=1 << 16)
    decoder = ValueDecoder(columns, framing="none", allows_trailing=True)
    program = AvroProgram(columns, [(AVRO_STEPS["bytes"], 0, 0, 0, 0, 0, 0)], [], b"", root=0)
    decoder.add(-1, program)
    views = struct.pack("<iiii", 13, 0, 1, 7) + struct.pack("<iiii", *view)
    given = {"first": 0, "ids": None}
    parts = [bytes(20), b"\x06" * 20]
    assert decoder.decode(None, views, parts, row_count=1, **given) == (1, VALUE_STOPS["end"])
    with pytest.raises(ValueError, match="row 1 is not within the data"):
        decoder.decode(None, views, parts, row_count=2, row=1, **given)
    with pytest.raises(ValueError, match="too short"):
        decoder.decode(None, views[:-1], parts, row_count=2, **given)
