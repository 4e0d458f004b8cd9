"""Goal: JSON values of any type become the rows that Python's json gives, and damage moves none of them.
Method: random types with values of them, written in many ways; damaged bytes; tests/making/json_values.py as oracle."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kstore.values.json_format.columns import TEXT
from kstore.values.json_format.inference import inferred_type
from tests.making.json_values import BAD, expected_row, read


def _plain(texts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return texts.filter(lambda text: not any("\ud800" <= each <= "\udfff" for each in text))


_NAMES = st.sampled_from(["a", "b", "ä", 'q"', "back\\", "\n", "long name of a field", ""]) | st.text(max_size=5)
_LEAVES = st.sampled_from(
    [
        pa.int8(),
        pa.int32(),
        pa.int64(),
        pa.uint16(),
        pa.uint64(),
        pa.float32(),
        pa.float64(),
        pa.bool_(),
        pa.string(),
        pa.null(),
        TEXT,
    ]
)
TYPES = st.recursive(
    _LEAVES,
    lambda inner: (
        inner.map(pa.list_)
        | inner.map(lambda each: pa.map_(pa.string(), each))
        | st.dictionaries(_plain(_NAMES), inner, max_size=4).map(lambda fields: pa.struct(list(fields.items())))
    ),
    max_leaves=5,
)
_SHARP = """
    0 -0 1.0 -1.50 1e2 2E-3 127 128 -129 65536 9223372036854775807 9223372036854775808 18446744073709551615
    18446744073709551616 1e400 -1e39 0.1 5e-324 2.2250738585072011e-308 123456789012345678901234567890
    0.30000000000000004 9007199254740993.0 1e-400 1.0000000000000001e23
"""
_NUMBERS = st.sampled_from(_SHARP.split()) | st.floats(allow_nan=False, allow_infinity=False).map(repr)
_BLANKS = st.sampled_from(["", "", "", " ", "\n", "\t \r\n"])


@st.composite
def documents(draw: st.DrawFn, arrow_type: pa.DataType | None) -> str:
    """Return the text of a value, mostly of a type."""
    if arrow_type is None or arrow_type == TEXT or draw(st.integers(min_value=0, max_value=15)) == 0:
        arrow_type = draw(TYPES.filter(lambda each: each != TEXT))
    blank = draw(_BLANKS)
    kinds = pa.types
    if draw(st.integers(min_value=0, max_value=8)) == 0 or kinds.is_null(arrow_type) or arrow_type == TEXT:
        return blank + "null"
    if kinds.is_struct(arrow_type):
        fields = [(field.name, field.type) for field in arrow_type]
        chosen = draw(st.lists(st.sampled_from(fields), max_size=5)) if fields and draw(st.booleans()) else fields
        others = draw(st.lists(st.tuples(_NAMES, st.none()), max_size=2))
        return _object(draw, [*chosen, *others])
    if kinds.is_map(arrow_type):
        return _object(draw, [(name, arrow_type.item_type) for name in draw(st.lists(_NAMES, max_size=3))])
    if kinds.is_list(arrow_type):
        items = [draw(documents(arrow_type.value_type)) for _ in range(draw(st.integers(min_value=0, max_value=3)))]
        return f"{blank}[{','.join(items)}{draw(_BLANKS)}]"
    if kinds.is_boolean(arrow_type):
        return blank + draw(st.sampled_from(["true", "false"]))
    if kinds.is_string(arrow_type):
        return blank + _string(draw, draw(st.text(max_size=20)))
    return blank + draw(_NUMBERS) + draw(_BLANKS)


def _object(draw: st.DrawFn, fields: list[tuple[str, Any]]) -> str:
    blank = draw(_BLANKS)
    pairs = [f"{blank}{_string(draw, name)}{blank}:{draw(documents(each))}{blank}" for name, each in fields]
    return "{" + ",".join(pairs) + blank + "}"


def _string(draw: st.DrawFn, text: str) -> str:
    return json.dumps(text, ensure_ascii=draw(st.booleans()) or any("\ud800" <= each <= "\udfff" for each in text))


def check(values: list[bytes | None], arrow_type: pa.DataType, *, most_bytes: int = 1 << 24) -> None:
    rows, bad = read(values, arrow_type, most_bytes=most_bytes)
    refused = {each.row for each in bad}
    expected = [expected_row(value, arrow_type) for value in values]
    assert [BAD if number in refused else row for number, row in enumerate(rows)] == expected
    assert all(rows[number] is None for number in refused)


@given(TYPES, st.data())
def test_rows_are_those_of_pythons_json(arrow_type: pa.DataType, data: st.DataObject) -> None:
    texts = data.draw(st.lists(st.none() | documents(arrow_type), max_size=5))
    check([None if text is None else text.encode() for text in texts], arrow_type)


@given(TYPES, st.data())
def test_damage_moves_no_row(arrow_type: pa.DataType, data: st.DataObject) -> None:
    texts = data.draw(st.lists(documents(arrow_type), min_size=1, max_size=4))
    values: list[bytes | None] = []
    for text in texts:
        value = bytearray(text.encode())
        for _ in range(data.draw(st.integers(min_value=0, max_value=3))):
            at = data.draw(st.integers(min_value=0, max_value=len(value)))
            removed = data.draw(st.integers(min_value=0, max_value=2))
            put = data.draw(
                st.sampled_from([b"", b"{", b"}", b"[", b"]", b'"', b",", b"\\", b"1", b"\xff", b"\n", b":"])
            )
            value[at : at + removed] = put
        values.append(bytes(value))
    check([*values, texts[0].encode()], arrow_type)


@given(st.lists(documents(None), min_size=1, max_size=4))
def test_a_sample_is_read_by_the_type_that_is_inferred_from_it(texts: list[str]) -> None:
    values: list[bytes | None] = [text.encode() for text in texts]
    arrow_type = inferred_type(each for each in values if each is not None)
    if arrow_type is None:
        return
    rows, bad = read(values, arrow_type)
    # What the sample has as a double may be too large for one.
    assert all("does not fit" in each.reason for each in bad)
    assert [row is None for row in rows] == [
        each.strip() == "null" or number in {one.row for one in bad} for number, each in enumerate(texts)
    ]
