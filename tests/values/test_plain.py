"""Goal: columns become values that JSON can hold, at any place of an array, and lose nothing.
Method: arrays of each kind, whole and sliced, against what they were made of."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kstore.serializers import plain_single
from kstore.values.avro.provider import AvroProvider
from kstore.values.plain import plain_values
from kstore.values.providers import SchemaText

MEMBERS = pa.struct([("member0", pa.int32()), ("member1", pa.list_(pa.string()))])
CASES: list[tuple[pa.DataType, list[Any], list[Any]]] = [
    (pa.int64(), [2**63 - 1, None, -1], [2**63 - 1, None, -1]),
    (pa.float64(), [float("inf"), 0.1, None], ["Infinity", 0.1, None]),
    (pa.bool_(), [True, None], [True, None]),
    (pa.string(), ["\u2028", None, ""], ["\u2028", None, ""]),
    (pa.null(), [None, None], [None, None]),
    (pa.binary(), [b"\xff", None, b""], ["/w==", None, ""]),
    (pa.binary(2), [b"ab", None], ["YWI=", None]),
    (pa.decimal128(38, 0), [Decimal(10**37), None], [str(10**37), None]),
    (pa.decimal256(76, 40), [Decimal("-0.5"), None], [f"-0.5{'0' * 39}", None]),
    (pa.date32(), [-1, None, 2932897], ["1969-12-31", None, "10000-01-01"]),
    (pa.time32("ms"), [86_399_999, None], ["23:59:59.999", None]),
    (pa.time64("us"), [0, None], ["00:00:00.000000", None]),
    (pa.timestamp("ns"), [1, None], ["1970-01-01T00:00:00.000000001", None]),
    (pa.timestamp("us", "UTC"), [-1, None], ["1969-12-31T23:59:59.999999Z", None]),
    (pa.timestamp("ms", "UTC"), [-(2**63), 0], [-(2**63), "1970-01-01T00:00:00.000Z"]),
    (pa.list_(pa.date32()), [[0], [], None, [1, None]], [["1970-01-01"], [], None, ["1970-01-02", None]]),
    (pa.map_(pa.string(), pa.binary()), [[("a", b"x"), ("b", None)], None, []], [{"a": "eA==", "b": None}, None, {}]),
    (pa.map_(pa.string(), pa.int32()), [[("a", 1), ("a", 2)]], [{"a": 2}]),
    (pa.struct([("x", pa.int32())]), [{"x": 1}, None, {"x": None}], [{"x": 1}, None, {"x": None}]),
    (pa.struct([]), [{}, None], [{}, None]),
    (
        pa.json_(pa.string()),
        ['{"a":[1,null]}', None, '"x"', "1e400", "[" * 900 + "]" * 900, "9" * 5000],
        [{"a": [1, None]}, None, "x", "Infinity", "[" * 900 + "]" * 900, "9" * 5000],
    ),
    (pa.duration("us"), [1, None, -1_500_000, -(2**63)], ["0.000001s", None, "-1.500000s", "-9223372036854.775808s"]),
    (pa.duration("s"), [2**63 - 1, None], ["9223372036854775807s", None]),
    (pa.duration("ns"), [-1, None], ["-0.000000001s", None]),
    (pa.list_(pa.duration("ms")), [[0, None], None], [["0.000s", None], None]),
    (pa.uint8(), [255, None], [255, None]),
    (pa.uint32(), [2**32 - 1, None], [2**32 - 1, None]),
    (pa.uint64(), [2**64 - 1, None], [2**64 - 1, None]),
    (pa.float16(), [1.5, float("nan"), None], [1.5, "NaN", None]),
    (pa.float32(), [0.1, float("-inf"), None, float("nan"), -0.0], [0.1, "-Infinity", None, "NaN", -0.0]),
    (pa.map_(pa.bool_(), pa.duration("s")), [[(True, 1)], None], [{True: "1s"}, None]),
    (MEMBERS, [{"member0": 0}, None], [{"member0": 0, "member1": None}, None]),
    (pa.struct([("member0", pa.int32())]), [{"member0": 1}], [{"member0": 1}]),
]


@pytest.mark.parametrize(
    ("kind", "values", "expected"), CASES, ids=[f"{number} {kind}" for number, (kind, *_) in enumerate(CASES)]
)
def test_values_are_those_of_the_column_at_any_place(kind: pa.DataType, values: list[Any], expected: list[Any]) -> None:
    numbers = pa.types.is_temporal(kind)
    array = (
        pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
        if numbers
        else pa.array(values, kind)
    )
    assert plain_values(array) == expected
    json.dumps(expected, allow_nan=False)
    for start in range(len(values) + 1):
        for end in range(start, len(values) + 1):
            assert plain_values(array.slice(start, end - start)) == expected[start:end]
    nested = pa.StructArray.from_arrays([array], ["inner"], mask=pa.array([True] + [False] * (len(values) - 1)))
    assert plain_values(nested) == [None, *({"inner": each} for each in expected[1:])]


@given(st.lists(st.floats(width=32), min_size=1, max_size=50))
@example([1e-45, 2.0**-126, 3.4028234663852886e38, 16777217.0, 123456.789, 8.41e21, 0.1, -0.3])
def test_a_float_has_the_digits_that_tell_it_from_others(numbers: list[float]) -> None:
    array = pa.array(numbers, pa.float32())
    plain = plain_values(array)
    assert plain == [plain_single(number) for number in array.to_pylist()]
    again = [float(str(value).replace("Infinity", "inf")) for value in plain]
    assert pa.array(again, pa.float32()).to_pylist() == pytest.approx(array.to_pylist(), abs=0, rel=0, nan_ok=True)
    shortest = [str(number) for number in np.asarray(numbers, np.float32)]
    assert [value for value in plain if isinstance(value, float)] == [
        float(text) for text in shortest if text.lstrip("-") not in ("nan", "inf")
    ]


def test_a_union_is_its_member_where_the_format_says_so() -> None:
    rows = [{"member0": 0}, {"member1": ["a"]}, None, {}, {"member0": 0, "member1": []}]
    expected = [0, ["a"], None, None, {"member0": 0, "member1": []}]
    array = pa.array(rows, MEMBERS)
    assert plain_values(array, frozenset([()])) == expected
    inner = pa.StructArray.from_arrays([array, array], ["a", "b"])
    assert [row["a"] for row in plain_values(inner, frozenset([("a",)]))] == expected
    assert [row["b"] for row in plain_values(inner, frozenset([("a",)]))] == plain_values(array)
    (listed,) = plain_values(pa.array([rows], pa.list_(MEMBERS)), frozenset([("element",)]))
    (mapped,) = plain_values(pa.array([[("k", rows[1])]], pa.map_(pa.string(), MEMBERS)), frozenset([("value",)]))
    assert (listed, mapped) == (expected, {"k": ["a"]})


def test_unions_of_avro_are_where_the_schema_has_them() -> None:
    union = ["null", "string", {"type": "array", "items": ["int", "string"]}]
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "plain", "type": ["null", "string"]},
            {"name": "union", "type": union},
            {"name": "listed", "type": {"type": "array", "items": ["null", {"type": "map", "values": union}]}},
            {"name": "wide", "type": ["int", "long"]},
            {
                "name": "alike",
                "type": {
                    "type": "record",
                    "name": "S",
                    "fields": [{"name": "member0", "type": "int"}, {"name": "member1", "type": "int"}],
                },
            },
        ],
    }
    text = SchemaText(json.dumps(schema))
    listed = ("listed", "element", "value")
    found = {("union",), ("union", "member1", "element"), listed, (*listed, "member1", "element")}
    assert AvroProvider().unions(text, None) == found
    assert AvroProvider().unions(text, {"alike": None, "plain": None}) == frozenset()
    assert AvroProvider().unions(SchemaText(json.dumps(["int", "string"])), None) == {()}
