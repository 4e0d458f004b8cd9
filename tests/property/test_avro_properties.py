"""Goal: Avro values of any schema become the columns that fastavro's values stand for, and damage becomes nulls.
Method: random schemas and values, encoded by fastavro; damaged bytes."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.values.avro.columns import columns_of
from kstore.values.avro.reader import AvroReader
from kstore.values.avro.schema import parse_avro_schema
from kstore.values.decoded import BadValue, Framing
from tests.making.avro_values import Typed, encoded, typed_values

MOST_BYTES = 1 << 24


def read(
    values: Sequence[bytes | None],
    schema: Any,
    *,
    writer: Any = None,
    framing: Framing = "none",
    most_bytes: int = MOST_BYTES,
) -> tuple[list[Any], list[BadValue]]:
    """Return what a column holds of values, and the bad ones."""
    reader_schema = parse_avro_schema(json.dumps(schema))
    writer_schema = reader_schema if writer is None else parse_avro_schema(json.dumps(writer))
    reader = AvroReader(columns_of(reader_schema), lambda _: writer_schema, framing=framing, most_bytes=most_bytes)
    shown: list[Any] = []
    bad: list[BadValue] = []
    for part in reader.decode(pa.array(values, pa.binary())):
        assert part.start == len(shown)
        part.values.validate(full=True)
        bad += [each._replace(row=each.row + len(shown)) for each in part.bad]
        shown += part.values.to_pylist()
    return shown, bad


@given(typed_values(), st.data())
def test_values_are_those_that_were_written(typed: Typed, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | typed.values, max_size=6))
    written = [None if value is None else encoded(typed.schema, value) for value in values]
    shown, bad = read(written, typed.schema)
    assert bad == []
    assert shown == [None if value is None else typed.shown(value) for value in values]


@given(typed_values(), st.data())
def test_a_value_that_is_not_whole_is_null_and_changes_no_other(typed: Typed, data: st.DataObject) -> None:
    good, other = data.draw(typed.values), data.draw(typed.values)
    written = encoded(typed.schema, good)
    if not written:
        return
    torn = written[: data.draw(st.integers(min_value=0, max_value=len(written) - 1))]
    shown, bad = read([written, torn, encoded(typed.schema, other)], typed.schema)
    assert [each.row for each in bad] == [1]
    assert shown == [typed.shown(good), None, typed.shown(other)]


@given(typed_values(), st.data())
def test_damaged_values_give_rows_and_no_more(typed: Typed, data: st.DataObject) -> None:
    damaged = data.draw(st.lists(st.binary(max_size=40), max_size=8))
    good = data.draw(typed.values)
    shown, bad = read([*damaged, encoded(typed.schema, good)], typed.schema)
    assert len(shown) == len(damaged) + 1
    assert shown[-1] == typed.shown(good)
    assert all(shown[each.row] is None for each in bad)


@given(typed_values(), st.data())
def test_little_memory_gives_the_same_rows_in_parts(typed: Typed, data: st.DataObject) -> None:
    values = data.draw(st.lists(typed.values, min_size=1, max_size=40))
    written = [encoded(typed.schema, value) for value in values] * 5
    shown, bad = read(written, typed.schema, most_bytes=1 << 15)
    assert [each for each in bad if "memory" not in each.reason] == []
    if not bad:
        assert shown == [typed.shown(value) for value in values] * 5


@given(typed_values(), st.data())
def test_fields_that_nobody_wants_are_passed_over(typed: Typed, data: st.DataObject) -> None:
    names = [each["name"] for each in typed.schema["fields"]]
    chosen = [name for name in names if data.draw(st.booleans())]
    values = data.draw(st.lists(typed.values, max_size=4))
    written = pa.array([encoded(typed.schema, value) for value in values], pa.binary())
    schema = parse_avro_schema(json.dumps(typed.schema))
    reader = AvroReader(
        columns_of(schema, dict.fromkeys(chosen)), lambda _: schema, framing="none", most_bytes=MOST_BYTES
    )
    (part,) = reader.decode(written)
    assert part.bad == []
    assert part.values.to_pylist() == [
        {name: typed.shown(value)[name] for name in names if name in chosen} for value in values
    ]


@pytest.mark.parametrize("framing", ["confluent", "apicurio"])
@given(typed_values(), st.data())
def test_frames_are_passed_over(framing: Framing, typed: Typed, data: st.DataObject) -> None:
    value = data.draw(typed.values)
    frame = b"\0" + data.draw(st.integers(min_value=0, max_value=2**31 - 1)).to_bytes(
        4 if framing == "confluent" else 8, "big"
    )
    shown, bad = read([frame + encoded(typed.schema, value), b"", b"\1" + frame], typed.schema, framing=framing)
    assert shown == [typed.shown(value), None, None]
    assert [each.row for each in bad] == [1, 2]


PROMOTED = {"int": ["int", "long", "double"], "long": ["long", "double"], "float": ["float", "double"]}


@st.composite
def resolved_fields(draw: st.DrawFn) -> tuple[Any, Any, st.SearchStrategy[Any]]:
    """A type as it was written, as it is read, and a strategy for values, in fastavro's form."""
    kind = draw(st.sampled_from(["int", "long", "float", "string", "array", "map", "nullable", "became nullable"]))
    if kind in PROMOTED:
        values = {
            "int": st.integers(-(2**31), 2**31 - 1),
            "long": st.integers(-(2**53), 2**53),
            "float": st.floats(width=32, allow_nan=False),
        }[kind]
        return kind, draw(st.sampled_from(PROMOTED[kind])), values
    if kind == "string":
        return kind, kind, st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
    written, wanted, inner = draw(resolved_fields().filter(lambda field: not isinstance(field[1], list)))
    if kind == "array":
        return {"type": kind, "items": written}, {"type": kind, "items": wanted}, st.lists(inner, max_size=3)
    if kind == "map":
        keys = st.text("abc", max_size=2)
        return (
            {"type": kind, "values": written},
            {"type": kind, "values": wanted},
            st.dictionaries(keys, inner, max_size=2),
        )
    if kind == "nullable":
        return ["null", written], draw(st.permutations(["null", wanted])), st.none() | inner
    return written, ["null", wanted], inner


DEFAULTS: list[tuple[Any, Any]] = [
    ("int", 3),
    ("string", "d"),
    (["null", "int"], None),
    ({"type": "array", "items": "int"}, [1]),
]


@given(st.data())
def test_other_versions_are_read_as_fastavro_reads_them(data: st.DataObject) -> None:
    fields = data.draw(st.lists(resolved_fields(), min_size=1, max_size=4))
    writer = {
        "type": "record",
        "name": "R",
        "fields": [{"name": f"f{i}", "type": w} for i, (w, _, _) in enumerate(fields)],
    }
    wanted: list[dict[str, Any]] = []
    for number, (_, kind, _) in enumerate(fields):
        change = data.draw(st.sampled_from(["same", "drop", "alias"]))
        if change == "same":
            wanted.append({"name": f"f{number}", "type": kind})
        elif change == "alias":
            wanted.append({"name": f"new{number}", "type": kind, "aliases": [f"f{number}"]})
    for number, (kind, default) in enumerate(data.draw(st.lists(st.sampled_from(DEFAULTS), max_size=2))):
        wanted.append({"name": f"added{number}", "type": kind, "default": default})
    reader = {"type": "record", "name": "R", "fields": data.draw(st.permutations(wanted))}
    value = data.draw(st.fixed_dictionaries({f"f{i}": values for i, (_, _, values) in enumerate(fields)}))
    written = encoded(writer, value)
    parsed = fastavro.parse_schema(writer), fastavro.parse_schema(reader)
    expected = fastavro.schemaless_reader(io.BytesIO(written), *parsed)
    (row,), bad = read([written], reader, writer=writer)
    assert bad == []
    assert as_maps(row, reader) == expected


def as_maps(value: Any, schema: Any) -> Any:
    """Return what a column shows with its maps as dicts."""
    if value is None:
        return None
    if isinstance(schema, list):
        return as_maps(value, next(branch for branch in schema if branch != "null"))
    if not isinstance(schema, dict):
        return value
    if schema["type"] == "record":
        return {each["name"]: as_maps(value[each["name"]], each["type"]) for each in schema["fields"]}
    if schema["type"] == "array":
        return [as_maps(item, schema["items"]) for item in value]
    return {key: as_maps(item, schema["values"]) for key, item in value}
