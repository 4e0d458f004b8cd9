"""Goal: JSON values of many schemas and versions, with ids in frames or headers, are what Confluent's client reads.
Method: golden/values: Confluent's serializer wrote values and ids; its deserializer's answers, by the newest schema."""

from __future__ import annotations

import json
import lzma
from collections import defaultdict
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

import kstore
from kstore.values.json_format.columns import TEXT
from tests.golden.sets import PACKED_DIRECTORY, unpack

ANSWERS = PACKED_DIRECTORY / "values" / "json-answers.jsonl.xz"


@cache
def answers() -> dict[str, list[Any]]:
    """Return what was read, by topic; a tombstone is null."""
    by_topic: defaultdict[str, list[Any]] = defaultdict(list)
    with lzma.open(ANSWERS, "rt") as lines:
        for line in lines:
            answer = json.loads(line)
            by_topic[answer["topic"]].append(answer["value"])
    return dict(by_topic)


def held(value: Any, arrow_type: pa.DataType) -> Any:
    """Return what a column of a type holds of a value."""
    kinds = pa.types
    if value is None:
        return None
    if kinds.is_struct(arrow_type):
        return {field.name: held(value.get(field.name), field.type) for field in arrow_type}
    if kinds.is_map(arrow_type):
        return [(key, held(each, arrow_type.item_type)) for key, each in value.items()]
    if kinds.is_list(arrow_type):
        return [held(each, arrow_type.value_type) for each in value]
    return float(value) if kinds.is_floating(arrow_type) else value


def shown(scalar: pa.Scalar) -> Any:
    """Return what a column holds, with the text of JSON parsed, and dates as numbers."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if kind == TEXT:
        return json.loads(scalar.as_py())
    if pa.types.is_struct(kind):
        return {field.name: shown(scalar[field.name]) for field in kind}
    if pa.types.is_map(kind):
        return [(pair["key"].as_py(), shown(pair["value"])) for pair in scalar.values]
    if pa.types.is_list(kind):
        return [shown(item) for item in scalar.values]
    return scalar.value if pa.types.is_date(kind) else scalar.as_py()


@pytest.mark.parametrize("topic", sorted(answers()))
def test_values_are_what_confluents_client_reads(topic: str) -> None:
    table = kstore.scan(unpack("values", "json") / "root", topics=topic, value="json", key="json").to_table()
    arrow_type = table.schema.field("value").type
    assert [shown(scalar) for scalar in table["value"]] == [held(value, arrow_type) for value in answers()[topic]]
    assert table["_corrupt_value"].null_count == table["_corrupt_key"].null_count == table.num_rows
    keys = table["key"].to_pylist()
    assert [key for key in keys if key is not None] == [row for row, key in enumerate(keys) if key is not None]
    assert [field.name for field in arrow_type] == ["id", "x", "count", "note"]


@pytest.mark.parametrize(
    ("topic", "shown_type"),
    [
        ("connect", "int16"),
        ("date", "date32[day]"),
        ("array", "list<element: list<element: double>>"),
        ("map", "map<string, int64>"),
        ("union", "extension<arrow.json>"),
        ("recursive", "struct<name: string, children: list<element: extension<arrow.json>>>"),
        ("reference", "struct<street: string, country: string>"),
        (
            "references",
            "list<element: struct<name: string, home: struct<street: string, country: string>>>",
        ),
    ],
)
def test_types_are_those_of_the_newest_schema(topic: str, shown_type: str) -> None:
    scan = kstore.scan(unpack("values", "json") / "root", topics=topic, value="json")
    assert str(scan.schema.field("value").type.field("x").type) == shown_type


@pytest.mark.parametrize("topic", ["number", "array", "map", "string"])
def test_an_inferred_type_reads_the_same_values(topic: str) -> None:
    root = unpack("values", "json") / "root"
    table = kstore.scan(root, topics=topic, value="json", schema="infer", schemas=root).to_table()
    found = [value and value["id"] for value in table["value"].to_pylist()]
    assert found == [value and value["id"] for value in answers()[topic]]
    assert table["_corrupt_value"].null_count == table.num_rows
