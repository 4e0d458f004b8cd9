"""Goal: columns become values that JSON can hold, at any place of an array, and lose nothing.
Method: arrays of each kind, whole and sliced, against what they were made of."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kstore.values.plain import plain_values

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
    (MEMBERS, [{"member0": 0}, {"member1": ["a"]}, None, {}], [0, ["a"], None, None]),
    (MEMBERS, [{"member0": 0, "member1": []}], [{"member0": 0, "member1": []}]),
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
