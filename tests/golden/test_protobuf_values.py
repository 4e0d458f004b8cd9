"""Goal: Protobuf values of many schemas and versions, framed or not, are read as Confluent's deserializer reads them.
Method: golden/values: Confluent's serializer wrote values, ids and what messages import; its deserializer's answers."""

from __future__ import annotations

import json
import lzma
import pickle
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kstore
from kstore.env import DEFAULT_ENV
from kstore.values.formats import Partitions, ValueFormat, format_for
from tests.golden.sets import PACKED_DIRECTORY, unpack
from tests.golden.values.protobuf_schemas import KINDS
from tests.making.protobuf_values import encoded, plain

ANSWERS = PACKED_DIRECTORY / "values" / "protobuf-answers.jsonl.xz"
MESSAGES = {kind.topic: kind.message for kind in KINDS}


@cache
def answers() -> dict[str, dict[int, Any]]:
    """Return what was read, by topic and offset."""
    by_topic: defaultdict[str, dict[int, Any]] = defaultdict(dict)
    with lzma.open(ANSWERS, "rt") as lines:
        for line in lines:
            answer = json.loads(line)
            by_topic[answer["topic"]][answer["offset"]] = answer["value"]
    return dict(by_topic)


def root() -> Path:
    return unpack("values", "protobuf") / "root"


@pytest.mark.parametrize("topic", list(MESSAGES))
def test_values_are_what_confluent_reads(topic: str) -> None:
    chosen = kstore.ValueFormat("protobuf", message_name=MESSAGES[topic])
    table = kstore.scan(root(), topics=topic, value=chosen).to_table()
    assert table["_corrupt_value"].to_pylist() == [None] * table.num_rows
    expected = answers()[topic]
    assert table.num_rows > len(expected) > 0
    for row, scalar in enumerate(table["value"]):
        assert shown(scalar, expected.get(row)) == expected.get(row), (topic, row)


def shown(scalar: pa.Scalar, answer: Any) -> Any:
    return _parsed(encoded(plain(scalar)), answer)


def _parsed(found: Any, answer: Any) -> Any:
    """Return a value with JSON parsed where the answer has an object or a list."""
    if isinstance(found, str) and found != answer:
        return encoded(json.loads(found))
    if isinstance(found, dict) and isinstance(answer, dict) and "fields" in found:
        fields = answer.get("fields", {})
        return {"fields": {name: _parsed(each, fields.get(name)) for name, each in found["fields"].items()}}
    if isinstance(found, list) and isinstance(answer, list) and len(found) == len(answer):
        return [_parsed(each, other) for each, other in zip(found, answer, strict=True)]
    return found


@pytest.mark.parametrize("topic", ["scalars", "known", "wrappers", "maps"])
@pytest.mark.parametrize("engine", ["polars", "duckdb", "delta"])
def test_engines_and_tables_have_the_values_of_a_scan(tmp_path: Path, engine: str, topic: str) -> None:
    chosen = kstore.ValueFormat("protobuf", message_name=MESSAGES[topic])
    # DuckDB's intervals have months, which nothing casts to.
    columns = ["offset", "value.s", "value.ts"] if (engine, topic) == ("duckdb", "known") else ["offset", "value"]
    scan = kstore.scan(root(), topics=topic, value=chosen, columns=columns)
    if engine == "delta":
        deltalake = pytest.importorskip("deltalake")
        kstore.export(root(), table=f"delta:{tmp_path}/t", topics=[topic], value=chosen, columns=columns)
        found = deltalake.DeltaTable(f"{tmp_path}/t").to_pyarrow_table()
    elif engine == "polars":
        pytest.importorskip("polars")
        found = scan.to_polars().to_arrow()
    else:
        found = scan.to_duckdb(pytest.importorskip("duckdb").connect(), "t").to_arrow_table()
    expected, found = scan.to_table().sort_by("offset"), found.sort_by("offset")
    for name in columns:
        options = pc.CastOptions(found[name].type, allow_time_truncate=True)
        assert pc.cast(expected[name], options=options).equals(found[name]), name


def test_a_pickled_format_reads_all_schemas_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    places = Partitions(("references-of-text",), str(root()), DEFAULT_ENV, lambda *_: None)
    pickled = pickle.dumps(format_for(ValueFormat("protobuf"), "value", places))
    monkeypatch.setattr("kstore.values.protobuf.compiling.run_in_new_directory", None)
    values = kstore.scan(root(), topics="references-of-text", columns=["value"]).to_table()["value"].combine_chunks()
    (part,) = pickle.loads(pickled).reader(None, most_bytes=1 << 20).decode(values)
    assert part.bad == []
    expected = answers()["references-of-text"]
    assert [shown(scalar, expected.get(row)) for row, scalar in enumerate(part.values)] == [
        expected.get(row) for row in range(len(values))
    ]
