"""Goal: Avro values of many schemas and versions, framed or not, are read as Avro's Java library reads them.
Method: golden/values: Confluent's serializers wrote values and ids; Java's answers, with the newest schema as reader's.

What a column holds, and what Java has, where these differ:

| Avro | column | Java |
|---|---|---|
| union of several types | struct of which one member is not null | the value |
| float, double | number | Float, Double; compared as doubles |
| decimal | decimal128, decimal256 | BigDecimal |
| date, times, timestamps | days, or the unit of the type | LocalDate, LocalTime, Instant, LocalDateTime |
| uuid, enum | string | UUID, EnumSymbol |
| duration | struct of three numbers | GenericFixed of 12 bytes |
"""

from __future__ import annotations

import json
import lzma
from collections import defaultdict
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

import kstore
from tests.golden.sets import PACKED_DIRECTORY, unpack

ANSWERS = PACKED_DIRECTORY / "values" / "answers.jsonl.xz"
_NANOS = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}
# A null that was written where the reader's schema has none: Java refuses it, a column has a null.
NULLS = "no-more-nullable"
# A record inside of itself, which no column can hold.
RECURSIVE = "recursive"


@cache
def answers() -> dict[tuple[str, str], dict[int, Any]]:
    """Return what Java read, by topic and key or value, and offset."""
    by_topic: defaultdict[tuple[str, str], dict[int, Any]] = defaultdict(dict)
    with lzma.open(ANSWERS, "rt") as lines:
        for line in lines:
            answer = json.loads(line)
            by_topic[answer["topic"], answer["origin"]][answer["offset"]] = answer
    return dict(by_topic)


def shown(scalar: pa.Scalar, name: str = "") -> Any:
    """Return what Java's answer is for a value of a column."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_struct(kind):
        names = [each.name for each in kind]
        if names[:1] == ["member0"]:
            return next(shown(scalar[each]) for each in names if scalar[each].is_valid)
        if names == ["months", "days", "milliseconds"]:
            return {"duration": [scalar[each].as_py() for each in names]}
        return {"record": {each: shown(scalar[each]) for each in names}}
    if pa.types.is_map(kind):
        return {"map": {pair["key"].as_py(): shown(pair["value"]) for pair in scalar.values}}
    if pa.types.is_list(kind):
        return [shown(item) for item in scalar.values]
    if pa.types.is_timestamp(kind):
        return {"instant" if kind.tz else "local": str(scalar.value * _NANOS[kind.unit])}
    if pa.types.is_time(kind):
        return {"time": str(scalar.value * _NANOS[kind.unit])}
    if pa.types.is_date(kind):
        return {"days": str(scalar.value)}
    if pa.types.is_decimal(kind):
        return {"decimal": format(scalar.as_py(), "f")}
    if pa.types.is_floating(kind):
        return {"double": scalar.as_py()}
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return {"bytes": scalar.as_py().hex()}
    return scalar.as_py()


def java(answer: Any) -> Any:
    """Return an answer with its doubles as numbers."""
    if isinstance(answer, list):
        return [java(each) for each in answer]
    if not isinstance(answer, dict):
        return answer
    return {
        key: float(each)
        if key == "double"
        else {name: java(inner) for name, inner in each.items()}
        if key in ("record", "map")
        else each
        for key, each in answer.items()
    }


def check(table: pa.Table, topic: str, origin: str = "value") -> None:
    """Compare each row with its answer; a row without one is a tombstone."""
    expected = answers()[topic, origin]
    assert table.num_rows >= len(expected)
    for row, offset in enumerate(table["offset"].to_pylist()):
        reason = table[f"_corrupt_{origin}"][row].as_py()
        answer = expected.get(offset, {"value": None})
        found = shown(table[origin][row])
        if "error" in answer:
            assert (found is None) == (reason is not None), (topic, offset, found)
            assert found is None or topic == NULLS, (topic, offset, found)
        else:
            assert (found, reason) == (java(answer["value"]), None), (topic, offset)


TOPICS = sorted({topic for topic, _ in answers()} - {RECURSIVE, "headers", "unframed"})


@pytest.mark.parametrize("topic", TOPICS)
def test_values_are_what_java_reads(topic: str) -> None:
    check(kstore.scan(unpack("values", "trees") / "root", topics=topic, value="avro").to_table(), topic)


def test_a_record_inside_of_itself_is_left_out_and_the_other_fields_are_what_java_reads() -> None:
    root = unpack("values", "trees") / "root"
    columns = ["offset", "value.id", "value.note", "value.name", "value.tags"]
    table = kstore.scan(root, topics=RECURSIVE, value="avro", columns=columns).to_table()
    for offset, answer in answers()[RECURSIVE, "value"].items():
        fields = java(answer["value"])["record"]
        for name in ("id", "note", "name", "tags"):
            assert shown(table[f"value.{name}"][offset]) == fields[name]


def test_ids_are_those_of_the_headers_or_of_the_frame() -> None:
    table = kstore.scan(unpack("values", "trees") / "root", topics="headers", value="avro", key="avro").to_table()
    check(table, "headers")
    check(table, "headers", "key")


def test_values_without_a_frame_are_read_by_a_schema_that_is_given() -> None:
    root = unpack("values", "trees") / "root"
    schema = kstore.read_schemas(root).latest("record-value").text
    check(kstore.scan(root, topics="unframed", value="avro", schema=schema).to_table(), "unframed")


def test_the_registry_is_what_its_records_add_up_to() -> None:
    registry = kstore.read_schemas(unpack("values", "trees") / "root")
    assert registry.compatibility == {"": "FULL", "int-value": "NONE"}
    assert [each.is_deleted for each in registry.versions("gone-value")] == [True, True]
    assert registry.versions("cleared-value") == ()
    assert registry.by_id(1, ":.lab:other").subject == ":.lab:int-value"
    assert registry.by_id(1).subject == "org.place.Address"
    person = registry.latest("org.people.Person")
    assert [each.subject for each in registry.referenced(person)] == ["org.place.Address"]
    assert person.guid is not None
    assert registry.by_guid(person.guid) == person
