"""Goal: a column of JSON values has one row for each: what Python's json reads of it, or null and the reason.
Method: values one by one and in columns, the rows of the table in docs/values.md; tests/making/json_values.py."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from kstore._core import JSON_NODES, VALUE_LAYOUTS, JsonProgram, ValueColumns
from kstore.errors import InvalidSchemaError
from kstore.values.json_format.columns import TEXT, nodes_of, text_of_type, type_of_text
from tests.making.json_values import BAD, expected_row, read

TYPE = pa.struct(
    [
        ("a", pa.int64()),
        ("b", pa.string()),
        ("c", pa.list_(pa.float64())),
        ("d", pa.struct([("e", pa.bool_()), ("f", pa.int8())])),
        ("m", pa.map_(pa.string(), pa.int32())),
        ("t", TEXT),
        ("n", pa.null()),
    ]
)
GOOD = b'{"a":7,"b":"x","c":[1,2.5],"d":{"e":true,"f":-1},"m":{"k":1},"t":{"y":[1, 2]},"n":null}'
ROW = {
    "a": 7,
    "b": "x",
    "c": [1.0, 2.5],
    "d": {"e": True, "f": -1},
    "m": [("k", 1)],
    "t": '{"y":[1, 2]}',
    "n": None,
}

# Values that are refused, and a part of the reason.
REFUSED: list[tuple[bytes, str]] = [
    (b"", "at byte 0, it ends before its JSON does"),
    (b" \n\t ", "at byte 4, it ends before its JSON does"),
    (b'{"a":1', "it ends before its JSON does"),
    (b'{"b":"x', "it ends before its JSON does"),
    (b'{"b":"x\\', "it ends before its JSON does"),
    (b'{"b":"\\u12', "it ends before its JSON does"),
    (b'{"a":1}{"a":2}', "at byte 7, bytes follow the value"),
    (b'{"a":1}\n{"a":2}', "at byte 8, bytes follow the value"),
    (b'{"a":1},{"a":2}', "bytes follow the value"),
    (b'{"a":1}}', "bytes follow the value"),
    (b'{"a":1},"a":2', "bytes follow the value"),
    (b'{"b":"\xff"}', "at byte 6, what follows is not UTF-8"),
    (b'{"z":"\xc3\x28"}', "what follows is not UTF-8"),
    (b'{"\xff":1}', "what follows is not UTF-8"),
    (b'\xff\xfe{\x00"\x00a\x00"\x00', "what follows is no JSON"),
    (b'{"b":"a\nb"}', "at byte 7, what follows is no JSON"),
    (b'{"b":"\\x"}', "what follows is no JSON"),
    (b'{"b":"\\u12g4"}', "what follows is no JSON"),
    (b'{"z":NaN}', "what follows is no JSON"),
    (b'{"c":[Infinity]}', "what follows is no JSON"),
    (b'{"z":01}', "what follows is no JSON"),
    (b'{"z":+1}', "what follows is no JSON"),
    (b'{"z":1.}', "what follows is no JSON"),
    (b'{"z":.5}', "what follows is no JSON"),
    (b'{"z":1e}', "what follows is no JSON"),
    (b'{"z":-}', "what follows is no JSON"),
    (b'{"z":nul}', "what follows is no JSON"),
    (b'{"z":[1,]}', "what follows is no JSON"),
    (b'{"z":{"y":1,}}', "what follows is no JSON"),
    (b'{"z":[1}', "what follows is no JSON"),
    (b'{"z":{"y":1]', "what follows is no JSON"),
    (b'{"z":{1:2}}', "what follows is no JSON"),
    (b'{"z" 1}', "what follows is no JSON"),
    (b"{a:1}", "what follows is no JSON"),
    (b"{'a':1}", "what follows is no JSON"),
    (b'{"c":[1,]}', "what follows is no JSON"),
    (b'{"m":{"k":1,}}', "what follows is no JSON"),
    (b"[1]", "at byte 0, a field has another type (the value is an object, found b'[1]')"),
    (b"3", "a field has another type"),
    (b'"x"', "a field has another type"),
    (b'{"a":"1"}', "at byte 5, a field has another type (a is int64, found b'\"1\"}')"),
    (b'{"a":true}', "(a is int64, found b'true}')"),
    (b'{"b":1}', "(b is string, found b'1}')"),
    (b'{"c":{}}', "(c is an array, found b'{}}')"),
    (b'{"c":[[]]}', "(c is double"),
    (b'{"d":{"e":1}}', "(d.e is bool, found b'1}}')"),
    (b'{"m":[]}', "(m is an object"),
    (b'{"n":0}', "(n is null"),
    (b'{"a":1.5}', "a number is no integer (a is int64, found b'1.5}')"),
    (b'{"a":9223372036854775808}', "a number does not fit (a is int64"),
    (b'{"a":-9223372036854775809}', "a number does not fit"),
    (b'{"a":1e19}', "a number does not fit"),
    (b'{"a":99999999999999999999999999}', "a number does not fit"),
    (b'{"d":{"f":128}}', "a number does not fit (d.f is int8"),
    (b'{"c":[1e400]}', "a number does not fit (c is double"),
    (b'{"c":[-1e400]}', "a number does not fit"),
    (b'{"c":[0.' + b"1" * 5000 + b"e310]}", "a number does not fit"),
]
# Values that are read, and the fields of their rows that are not null.
READ: list[tuple[bytes, dict[str, Any]]] = [
    (b"{}", {}),
    (b' \r\n{ "a" :\t1 , "b" : "x" }\n', {"a": 1, "b": "x"}),
    (b'\xef\xbb\xbf{"a":1}', {"a": 1}),
    (b'{"a":null,"c":[null,1]}', {"c": [None, 1.0]}),
    (b'{"a":1,"z":{"a":[{"a":2}]},"b":"]}"}', {"a": 1, "b": "]}"}),
    (b'{"b":"x","a":1}', {"a": 1, "b": "x"}),
    (b'{"\\u0061":5,"\\u0062":"\\u0000"}', {"a": 5, "b": "\0"}),
    (b'{"b":"\\"\\\\\\/\\b\\f\\n\\r\\t"}', {"b": '"\\/\b\f\n\r\t'}),
    ('{"b":"ä€😀"}'.encode(), {"b": "ä€😀"}),
    (b'{"b":"\\ud83d\\ude00"}', {"b": "😀"}),
    (b'{"b":"\\ud83d\\ude00\\ud83dx\\ude00"}', {"b": "😀\ufffdx\ufffd"}),
    (b'{"a":1,"a":2,"a":3}', {"a": 3}),
    (b'{"c":[1,2,3],"c":[4],"d":{"e":true},"d":{"f":1}}', {"c": [4.0], "d": {"e": None, "f": 1}}),
    (b'{"m":{"k":1,"k":2}}', {"m": [("k", 1), ("k", 2)]}),
    (b'{"a":1.0,"d":{"f":-12.0e0}}', {"a": 1, "d": {"e": None, "f": -12}}),
    (b'{"a":-9223372036854775808}', {"a": -(2**63)}),
    (b'{"a":-0}', {"a": 0}),
    (b'{"z":1e400,"a":1}', {"a": 1}),
    (b'{"c":[1e-400,5e-324,1.7976931348623157e308,12345678901234567890123,0.1]}',
     {"c": [0.0, 5e-324, 1.7976931348623157e308, 12345678901234567890123.0, 0.1]}),
    (b'{"t": [1, {"a":"}"}] }', {"t": '[1, {"a":"}"}]'}),
    (b'{"t":"x"}', {"t": '"x"'}),
    (b'{"t":1e400}', {"t": "1e400"}),
]  # fmt: skip


def test_a_value_becomes_a_row_of_its_fields() -> None:
    assert read([GOOD, None, b"null"], TYPE) == ([ROW, None, None], [])


@pytest.mark.parametrize(("value", "reason"), REFUSED)
def test_what_is_no_value_of_the_type_is_a_null_row_with_a_reason(value: bytes, reason: str) -> None:
    rows, bad = read([GOOD, value, GOOD], TYPE)
    assert rows == [ROW, None, ROW]
    assert [each.row for each in bad] == [1]
    assert reason in bad[0].reason
    assert expected_row(value, TYPE) == BAD or b"1" * 5000 in value


@pytest.mark.parametrize(("value", "fields"), READ)
def test_what_json_allows_is_read(value: bytes, fields: dict[str, Any]) -> None:
    rows, bad = read([GOOD, value, GOOD], TYPE)
    assert bad == []
    assert rows == [ROW, dict.fromkeys(ROW) | fields, ROW]
    assert expected_row(value, TYPE) == rows[1]


@pytest.mark.parametrize("value", [b'1,"x":2', b'1}\n{"v":2', b'1},{"v":2', b'1,"v":2', b"1 2", b"1\n2"])
def test_a_value_cannot_add_another_one(value: bytes) -> None:
    rows, bad = read([b"7", value, b"8"], pa.int64())
    assert rows == [7, None, 8]
    assert ["bytes follow the value" in each.reason for each in bad] == [True]


def test_two_values_never_make_up_for_each_other() -> None:
    rows, bad = read([b'{"a":', b"1}", b'{"a":1}{"a":2}', b'{"a":3}'], TYPE, {"a": None})
    assert rows == [None, None, None, {"a": 3}]
    assert [each.row for each in bad] == [0, 1, 2]


def test_top_level_values_may_be_of_any_type() -> None:
    assert read([b"1", b" -2 "], pa.int64()) == ([1, -2], [])
    assert read([b'"x"'], pa.string()) == (["x"], [])
    assert read([b"[[1],[]]"], pa.list_(pa.list_(pa.int64()))) == ([[[1], []]], [])
    assert read([b'{"a":{"b":1}}'], pa.map_(pa.string(), TEXT)) == ([[("a", '{"b":1}')]], [])
    assert read([b' {"a": 1} ', b"3"], TEXT) == (['{"a": 1}', "3"], [])
    assert read([b"null", b"1"], pa.null())[0] == [None, None]


def test_integers_fit_their_columns_to_the_last_one() -> None:
    for name, least, most in (
        ("int8", -(2**7), 2**7 - 1),
        ("int16", -(2**15), 2**15 - 1),
        ("int32", -(2**31), 2**31 - 1),
        ("int64", -(2**63), 2**63 - 1),
        ("uint8", 0, 2**8 - 1),
        ("uint16", 0, 2**16 - 1),
        ("uint32", 0, 2**32 - 1),
        ("uint64", 0, 2**64 - 1),
    ):
        values: list[bytes | None] = [str(each).encode() for each in (least - 1, least, most, most + 1)]
        rows, bad = read(values, getattr(pa, name)())
        assert rows == [None, least, most, None], name
        assert [each.row for each in bad] == [0, 3]


def integers() -> Iterator[str]:
    """Yield numbers with fractions and exponents, of which many are integers near a limit."""
    random = Random(5)
    yield from ("9007199254740993.0", "1.00000000000000000001", "9007199254740994.0", "0e99", "-0.0", "0.0e-400")
    yield from ("1e-1", "10e-1", "18446744073709551615.0", "18446744073709551616e0", "18446744073709551615.5", "1e99")
    yield from ("0e99999999999999999999", "1e99999999999999999999", "1e-99999999999999999999")
    for _ in range(5000):
        digits = str(random.choice([random.randrange(10**5), 2**63 - random.randrange(3), random.randrange(10**22)]))
        digits += "0" * random.randrange(4)
        point = random.randrange(1, len(digits) + 1)
        whole, fraction = digits[:point].lstrip("0") or "0", digits[point:] + "0" * random.randrange(3)
        exponent = random.choice(["", f"e{len(digits) - point}", f"e{random.randrange(-25, 25)}"])
        yield f"{random.choice(['', '-'])}{whole}{'.' if fraction else ''}{fraction}{exponent}"


@pytest.mark.parametrize("arrow_type", [pa.int64(), pa.uint64(), pa.int8(), pa.uint16()], ids=str)
def test_an_integer_with_a_fraction_or_an_exponent_is_all_of_its_digits_or_is_refused(arrow_type: pa.DataType) -> None:
    texts = list(integers())
    rows, bad = read([text.encode() for text in texts], arrow_type)
    assert {each.row for each in bad} == {row for row, number in enumerate(rows) if number is None}
    for row, text in zip(rows, texts, strict=True):
        expected = expected_row(text.encode(), arrow_type)
        assert row == (None if expected == BAD else expected), text
        assert row is None or text[:2] == "0e" or Decimal(text) == row, text


def test_a_float_is_the_nearest_one_though_the_nearest_double_lies_between_two() -> None:
    texts, expected = [], []
    random = Random(7)
    for _ in range(2000):
        bits = random.choice([random.randrange(1, 0x7F7FFFFF), random.randrange(1, 0x800000), 0x3F800000])
        least, most = struct.unpack("<2f", struct.pack("<2I", bits, bits + 1))
        with localcontext() as context:
            context.prec = 400
            middle = (Decimal(least) + Decimal(most)) / 2
            above, below = middle * (1 + Decimal(10) ** -30), middle * (1 - Decimal(10) ** -30)
        texts += [str(middle), str(above), f"-{below}"]
        expected += [most if bits & 1 else least, most, -least]
    rows, bad = read([text.encode() for text in texts], pa.float32())
    assert bad == []
    assert rows == expected
    # In the middle between the largest float and the next power of two, and a little below it.
    middle = 2**128 - 2**103
    rows, bad = read([f"{middle}".encode(), f"{middle - 1}.9".encode()], pa.float32())
    assert rows == [None, float(2**128 - 2**104)]


def test_a_number_may_have_more_digits_than_any_limit() -> None:
    middle = "9007199254740993"
    for more, nearest in (("0", 2.0**53), ("1", 2.0**53 + 2)):
        for text in (
            f"{middle}.{'0' * 9000}{more}",
            f"{middle}{'0' * 9000}{more}e-9001",
            f"0.{'0' * 9000}{middle}{'0' * 9000}{more}E+9016",
        ):
            assert read([text.encode(), f"-{text}".encode()], pa.float64()) == ([nearest, -nearest], []), len(text)
    assert read([b"1." + b"0" * 5000 + b"1e400"], pa.float64())[0] == [None]
    assert read([b"1.0000000596046447753906250" + b"0" * 5000 + b"1"], pa.float32())[0] == [1 + 2.0**-23]


def numbers() -> Iterator[str]:
    """Yield numbers whose nearest double is hard to find."""
    random = Random(3)
    for _ in range(1000):
        yield repr(struct.unpack("<d", random.randbytes(8))[0])
        yield f"{random.randrange(1, 10)}.{random.randrange(10**30):030}e{random.randrange(-330, 310)}"
        yield str(random.randrange(10 ** random.randrange(15, 40)))
        yield f"0.{'0' * random.randrange(330)}{random.randrange(1, 10**18)}"
        # In the middle between two doubles, and a little off it.
        middle = Fraction(2 * random.randrange(2**52, 2**53) + 1) * Fraction(2) ** random.randrange(-80, 80)
        with localcontext() as context:
            context.prec = 400
            digits = format(Decimal(middle.numerator) / Decimal(middle.denominator), "f")
        yield digits
        yield (digits if "." in digits else f"{digits}.") + "0" * random.randrange(30) + "1"


def test_a_double_is_the_nearest_one() -> None:
    texts = [text for text in numbers() if "n" not in text]
    rows, bad = read([text.encode() for text in texts], pa.float64())
    refused = {each.row for each in bad}
    for row, text in enumerate(texts):
        expected = float(text)
        assert (rows[row] is None) == (row in refused) == (abs(expected) == float("inf")), text
        assert rows[row] is None or struct.pack("d", rows[row]) == struct.pack("d", expected), text


def test_digits_after_one_for_which_there_is_no_room_are_left_out() -> None:
    texts = [
        "184467440737095516163e22",
        "1.84467440737095516164e145",
        "-18446744073709551619300000000000000000000000e0",
    ]
    assert read([text.encode() for text in texts], pa.float64()) == ([float(text) for text in texts], [])


def test_names_that_json_has_to_escape_are_found_by_their_escapes() -> None:
    names = ['a"b', "c\\d", "e\nf", "ä", ""]
    arrow_type = pa.struct([(name, pa.int64()) for name in names])
    value = json.dumps(dict.fromkeys(names, 1)).encode()
    rows, bad = read([value, b'{"a"b":1}', b'{"c\\d":1}', b'{"e\nf":1}', '{"ä":1}'.encode(), b'{"":1}'], arrow_type)
    assert rows[0] == dict.fromkeys(names, 1)
    assert [each.row for each in bad] == [1, 2, 3]
    assert (rows[4]["ä"], rows[5][""]) == (1, 1)


@pytest.mark.parametrize("size", [0, 1, 6, 7, 8, 9, 15, 16, 17, 300])
def test_names_of_any_length_are_compared_to_their_end(size: int) -> None:
    name = ("common_x" * 40)[:size]
    others = [name + "y", name + "\\u0079", ("z" + name)[: size + 1], name + "_" * 8]
    others += [name[:place] + "Z" + name[place + 1 :] for place in (8, size // 2, size - 9) if 0 <= place < size]
    arrow_type = pa.struct([(name, pa.int64()), (name + "yy", pa.int64()), ("zz", pa.string())])
    escaped = "".join(f"\\u{ord(each):04x}" for each in name)
    values = [f'{{"{name}":1}}', f'{{"{name}yy":2}}', f'{{"{escaped}":3,"{name}":4}}', f'{{"{name}":5,"{escaped}":6}}']
    values += [f'{{"{other}":7}}' for other in others] + [f'{{"{name[:-1]}":8}}'] * (size > 0)
    rows, bad = read([each.encode() for each in values], arrow_type)
    assert bad == []
    assert [row[name] for row in rows] == [1, None, 4, 6] + [None] * (len(values) - 4)
    assert [row[name + "yy"] for row in rows] == [None, 2] + [None] * (len(values) - 2)
    for cut in range(len(values[0])):
        assert read([values[0][:cut].encode()], arrow_type)[0] == [None]


def test_a_float_that_is_too_large_for_its_column_is_a_bad_value() -> None:
    rows, bad = read([b"1e39", b"0.5", b"-3.5e38"], pa.float32())
    assert (rows, len(bad)) == ([None, 0.5, None], 2)


def test_dates_and_timestamps_are_the_numbers_that_connect_writes() -> None:
    dated = pa.struct([("d", pa.date32()), ("t", pa.timestamp("ms", "UTC"))])
    rows, bad = read([b'{"d":1,"t":1000}', b'{"d":"1970-01-02"}'], dated)
    assert (str(rows[0]["d"]), rows[0]["t"].timestamp()) == ("1970-01-02", 1.0)
    assert "d is date32" in bad[0].reason


def test_nesting_has_a_bound_and_no_value_overflows_the_stack() -> None:
    for opening, closing in ((b"[", b"]"), (b'{"z":', b"}")):
        for depth, is_read in ((999, True), (1000, True), (1001, False), (1_000_000, False)):
            inner = opening * depth + b"1" + closing * depth
            rows, bad = read([b'{"z":' + inner + b',"a":1}', b'{"t":' + inner + b"}", opening * depth], TYPE)
            assert [row is not None for row in rows] == [is_read, is_read, False]
            assert not is_read or rows[1]["t"] == inner.decode()
            assert is_read or "nested more than 1000 deep" in bad[0].reason


def test_only_wanted_fields_are_stored_and_all_are_checked() -> None:
    wanted = {"d": {"f": None}, "a": None}
    rows, bad = read([GOOD, b'{"b":1,"a":2}', b'{"c":[1e400]}', b'{"a":3}'], TYPE, wanted)
    assert rows == [{"a": 7, "d": {"f": -1}}, None, None, {"a": 3, "d": None}]
    assert [each.row for each in bad] == [1, 2]
    assert str(nodes_of(TYPE, wanted).arrow_type) == "struct<a: int64, d: struct<f: int8>>"
    assert read([GOOD, b"{", b"{}"], TYPE, {})[0] == [{}, None, {}]


SCALARS = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]
TEXTS_OF_SCALARS = (
    *(sign + digits for sign in ("", "-") for digits in ("0", "00", "01", "7", "127", "128", "255", "256", "32767")),
    *(
        "32768",
        "65535",
        "65536",
        "9" * 9,
        "2147483648",
        "4294967296",
        "9" * 18,
        "9223372036854775808",
        "9" * 20,
        "1" * 38,
    ),
    *(
        "9" * 39,
        "9" * 308,
        "9" * 309,
        "1.5",
        "1.",
        ".5",
        "-.5",
        "-",
        "1.0",
        "1e2",
        "1E400",
        "1.5e",
        "1.5.5",
        "1x",
        "+1",
    ),
    *(
        '"a"',
        '"12345678"',
        '"a\\n"',
        '"a\n"',
        '"a',
        '"a\\q"',
        '"é"',
        '"1234567é"',
        "null",
        "nul",
        "true",
        "{}",
        "[1]",
        "",
    ),
)


@pytest.mark.parametrize("arrow_type", [*SCALARS, pa.float32(), pa.float64(), pa.string(), pa.bool_()], ids=str)
def test_a_field_is_as_bad_where_it_is_not_wanted_as_where_it_is(arrow_type: pa.DataType) -> None:
    fields = pa.struct([("a_long_name", arrow_type), ("b", pa.int64())])
    texts = [text.encode() for text in TEXTS_OF_SCALARS] + [b'"\xff"', b'"1234567\xff"']
    values: list[bytes | None] = []
    for text in texts:
        values += (
            b'{"a_long_name":' + text + b',"b":1}',
            b'{"b":1,"a_long_name": ' + text + b" }",
            b'{"a_long_name":' + text,
        )
    rows, bad = read(values, fields)
    others, as_bad = read(values, fields, {"b": None})
    assert [row is None for row in others] == [row is None for row in rows]
    assert as_bad == bad
    for value in values[::5]:
        assert read([value], fields, {"b": None})[1] == read([value], fields)[1]


def test_wanted_fields_of_items_are_those_of_each_item() -> None:
    items = pa.struct([("x", pa.int64()), ("y", pa.string())])
    listed = pa.struct([("l", pa.list_(items)), ("m", pa.map_(pa.string(), items))])
    value = b'{"l":[{"x":1,"y":"a"},null,{"y":"b"}],"m":{"k":{"y":"c","x":2}}}'
    rows, _ = read([value], listed, {"l": {"x": None}, "m": {"y": None}})
    assert rows == [{"l": [{"x": 1}, None, {"x": None}], "m": [("k", {"y": "c"})]}]


def test_a_repeated_field_costs_no_more_than_others() -> None:
    wide = pa.struct([("w", pa.struct([(f"f{number}", pa.string()) for number in range(10_000)]))])
    value = b"{" + b",".join([b'"w":{}'] * 200_000) + b"}"
    rows, bad = read([value, b'{"w":{"f1":"x"}}'], wide, most_bytes=1 << 28)
    assert "repeats the names of fields" in bad[0].reason
    assert rows[1]["w"]["f1"] == "x"


def test_columns_that_outgrow_their_memory_are_handed_over_in_parts() -> None:
    values: list[bytes | None] = [b'{"b":"' + bytes([97 + number % 26]) * 300 + b'"}' for number in range(200)]
    rows, bad = read([*values, b'{"b":"' + b"x" * 20_000 + b'"}', b'{"a":1}'], TYPE, {"b": None}, most_bytes=12_000)
    assert [row and row["b"] for row in rows[:200]] == [chr(97 + number % 26) * 300 for number in range(200)]
    assert rows[200:] == [None, {"b": None}]
    assert [(each.row, "takes too much memory" in each.reason) for each in bad] == [(200, True)]


def test_ids_only_decide_the_frame() -> None:
    frame = b"\0\0\0\0\1"
    values = [frame + b'{"a":1}', b"\0\0\0\0\2" + b'{"a":2}', b'{"a":3}', None, frame]
    rows, bad = read(values, TYPE, {"a": None}, framing="confluent", known_ids={1})
    assert rows == [{"a": 1}, None, None, None, None]
    assert [each.row for each in bad] == [1, 2, 4]
    assert "of schema id 2" in bad[0].reason
    assert "no schema of id 2" in bad[0].reason
    assert "does not begin with the magic byte" in bad[1].reason
    wide = [b"\0" + (7).to_bytes(8, "big") + b'{"a":1}']
    assert read(wide, TYPE, {"a": None}, framing="apicurio") == ([{"a": 1}], [])


def test_a_topic_of_bad_values_takes_no_longer_than_one_of_good_ones() -> None:
    good = list[bytes | None]([GOOD] * 20_000)
    bad = list[bytes | None]([GOOD[:-1]] * 20_000)
    rows, faults = read([*good, *bad], TYPE)
    assert rows == [ROW] * 20_000 + [None] * 20_000
    assert [each.row for each in faults] == list(range(20_000, 40_000))


def test_a_reason_shows_a_part_of_a_long_value_only() -> None:
    _, bad = read([b'{"a":"' + b"x" * 100_000 + b'"}'], TYPE)
    assert bad[0].reason.endswith("(a is int64, found b'\"xxxxxxxxxxxxxxxxxxx'...)")


@pytest.mark.parametrize(
    ("arrow_type", "problem"),
    [
        (pa.struct([("x", pa.binary())]), "field 'x' of the schema of JSON is of type binary"),
        (pa.map_(pa.int64(), pa.string()), "field 'value' of the schema of JSON is of type map"),
        (pa.struct([("x", pa.int64()), ("x", pa.int64())]), "has a name twice"),
        (pa.struct([(f"f{number}", pa.int64()) for number in range(16_384)]), "there may be 16384 columns"),
    ],
)
def test_types_that_json_does_not_become_are_refused(arrow_type: pa.DataType, problem: str) -> None:
    with pytest.raises(InvalidSchemaError, match=problem):
        nodes_of(arrow_type)


def test_deep_types_are_refused() -> None:
    arrow_type = pa.int64()
    for _ in range(59):
        arrow_type = pa.list_(arrow_type)
    assert read([b"[" * 59 + b"1" + b"]" * 59], arrow_type)[1] == []
    with pytest.raises(InvalidSchemaError, match="nested 60 deep"):
        nodes_of(pa.list_(arrow_type))


def test_a_type_is_the_same_after_it_was_text() -> None:
    assert type_of_text(text_of_type(TYPE)) == TYPE
    for damaged in ("arrow:", "arrow:????", "arrow:" + "A" * 40):
        with pytest.raises(InvalidSchemaError, match="damaged"):
            type_of_text(damaged)


def test_nodes_that_do_not_fit_their_columns_are_refused() -> None:
    columns = ValueColumns([(VALUE_LAYOUTS["fixed"], 8, 0, 0)], most_bytes=1 << 20)
    number, struct = JSON_NODES["int"], JSON_NODES["struct"]
    JsonProgram(columns, [(number, 0, 1, 0, 8, 0, 0)], b"")
    for nodes in (
        [],
        [(99, 0, 1, 0, 8, 0, 0)],
        [(number, 0, 1, 0, 4, 0, 0)],
        [(number, 1, 1, 0, 8, 0, 0)],
        [(number, 0, 1, 0, 3, 0, 0)],
        [(number, 0, 1, 1, 8, 0, 0), (number, -1, 2, 0, 8, 0, 0)],
        [(struct, 0, 1, 0, 0, 0, 0)],
        [(struct, -1, 2, 1, 0, 0, 0), (number, 0, 2, 0, 8, 0, 0)],
        [(struct, -1, 1, 2, 0, 0, 0), (number, 0, 2, 0, 8, 0, 0)],
        [(struct, -1, 1, 1, 0, 0, 0), (number, 0, 2, 0, 8, 0, 1)],
        [(JSON_NODES["list"], -1, 1, 0, 0, 0, 0)],
    ):
        with pytest.raises(ValueError, match=r"is invalid|there are"):
            JsonProgram(columns, nodes, b"")
