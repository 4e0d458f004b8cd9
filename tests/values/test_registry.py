"""Goal: a registry's topic adds up to what the registry answers.
Method: the kinds of records that Confluent's registry writes, in the orders in which it does."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kstore
from kstore.env import DEFAULT_ENV
from kstore.errors import SchemaNotFoundError
from kstore.values.avro.provider import AvroProvider
from kstore.values.formats import Partitions, ValueFormat, format_for
from kstore.values.providers import SchemaFormat, registered_text
from kstore.values.registry import RegisteredSchema, SchemaRegistry, SchemaTopic, registry_of

TEXT = '{"type": "record", "name": "R", "fields": []}'


def key(kind: str, subject: str, **more: Any) -> bytes:
    return json.dumps({"keytype": kind, "subject": subject, "magic": 1, **more}).encode()


def schema(subject: str, version: int, schema_id: int, **more: Any) -> tuple[bytes, bytes]:
    value = {"subject": subject, "version": version, "id": schema_id, "schema": TEXT, "deleted": False, **more}
    return key("SCHEMA", subject, version=version), json.dumps(value).encode()


def soft(subject: str, version: int) -> tuple[bytes, bytes]:
    """Return the record of a soft deletion of the versions of a subject up to one."""
    return key("DELETE_SUBJECT", subject), json.dumps({"subject": subject, "version": version}).encode()


def ids(registry: SchemaRegistry, subject: str) -> list[tuple[int, int, bool]]:
    return [(each.version, each.schema_id, each.is_deleted) for each in registry.versions(subject)]


def test_versions_are_those_registered_and_the_newest_is_the_latest() -> None:
    registry = registry_of([schema("a-value", 1, 10), schema("a-value", 2, 11), schema("b-value", 1, 10)])
    assert registry.subjects == ("a-value", "b-value")
    assert registry.latest("a-value").schema_id == 11
    assert registry.by_id(10).subject == "a-value"


def test_a_version_that_was_deleted_softly_is_no_latest_and_keeps_its_id() -> None:
    registry = registry_of([schema("a", 1, 1), schema("a", 2, 2), schema("a", 2, 2, deleted=True)])
    assert ids(registry, "a") == [(1, 1, False), (2, 2, True)]
    assert registry.latest("a").version == 1
    assert registry.by_id(2).is_deleted


def test_a_subject_of_deleted_versions_has_its_newest_as_the_latest() -> None:
    registry = registry_of([schema("a", 1, 1), schema("a", 2, 2), soft("a", 2)])
    assert ids(registry, "a") == [(1, 1, True), (2, 2, True)]
    assert registry.latest("a").version == 2


def test_a_deletion_of_a_subject_leaves_later_versions() -> None:
    registry = registry_of([schema("a", 1, 1), soft("a", 1), schema("a", 2, 2)])
    assert ids(registry, "a") == [(1, 1, True), (2, 2, False)]


def test_a_version_without_a_value_is_gone() -> None:
    gone = key("SCHEMA", "a", version=1), None
    assert ids(registry_of([schema("a", 1, 1), schema("a", 2, 2), gone]), "a") == [(2, 2, False)]


@pytest.mark.parametrize(
    ("subject", "left"),
    [
        ("a", ["b", ":.c:a"]),
        ("", [":.c:a"]),
        (":.c:", ["a", "b"]),
        (None, []),
        (":.__GLOBAL:", []),
        (":.c:a", ["a", "b"]),
        ("x", None),
    ],
)
def test_clearing_removes_the_deleted_versions_of_a_subject_or_a_context(subject: Any, left: list[str] | None) -> None:
    names = ["a", "b", ":.c:a"]
    records = [schema(name, 1, 1, deleted=True) for name in names] + [schema(name, 2, 2) for name in names]
    registry = registry_of([*records, (key("CLEAR_SUBJECT", subject), json.dumps({"subject": subject}).encode())])
    assert [each.subject for each in registry.schemas if each.version == 2] == sorted(names)
    kept = sorted(names if left is None else left)
    assert [each.subject for each in registry.schemas if each.version == 1] == kept


def test_clearing_without_a_value_is_passed_over() -> None:
    registry = registry_of([schema("a", 1, 1, deleted=True), (key("CLEAR_SUBJECT", "a"), None)])
    assert ids(registry, "a") == [(1, 1, True)]


def test_versions_go_on_after_a_soft_deletion_and_start_again_after_a_hard_one() -> None:
    records: list[tuple[bytes, bytes | None]] = [schema("a", 1, 1), schema("a", 2, 2, schema='"int"'), soft("a", 2)]
    # The registry finds the text among the deleted ones, and gives it its old id and the next version.
    records.append(schema("a", 3, 1))
    registry = registry_of(records)
    assert ids(registry, "a") == [(1, 1, True), (2, 2, True), (3, 1, False)]
    assert (registry.latest("a").version, registry.by_id(1).version) == (3, 3)
    assert (registry.by_id(2).version, registry.by_id(2).is_deleted) == (2, True)

    records += [soft("a", 3), *((key("SCHEMA", "a", version=version), None) for version in (3, 2, 1))]
    gone = registry_of(records)
    assert (gone.schemas, gone.subjects) == ((), ())
    with pytest.raises(SchemaNotFoundError, match="no schema of id 1"):
        gone.by_id(1)
    again = registry_of([*records, schema("a", 1, 4)])
    assert ids(again, "a") == [(1, 4, False)]


def test_an_id_lasts_as_long_as_one_version_has_it() -> None:
    versions = [schema("a", 1, 1), schema("b", 1, 1)]
    gone = [(key("SCHEMA", name, version=1), None) for name in ("a", "b")]
    for order in (gone, gone[::-1]):
        assert registry_of([*versions, order[0]]).by_id(1).text == TEXT
        with pytest.raises(SchemaNotFoundError):
            registry_of([*versions, *order]).by_id(1)
        # Then the id may have another text.
        assert registry_of([*versions, *order, schema("c", 1, 1, schema='"int"')]).by_id(1).text == '"int"'


@pytest.mark.parametrize("subject", ["b", "a", ":.lab:a"])
def test_an_id_that_two_leaders_gave_is_that_of_the_first_text(subject: str) -> None:
    registry = registry_of([schema("b", 1, 1), schema(subject, 2, 1, schema='"int"')])
    if subject == ":.lab:a":
        assert registry.by_id(1, subject).text == '"int"'
    else:
        assert ids(registry, subject) == ids(registry_of([schema("b", 1, 1)]), subject)
    assert registry.by_id(1).text == TEXT


def test_a_version_may_be_deleted_with_its_text_in_another_form() -> None:
    other_form = TEXT.replace(" ", "")
    registry = registry_of([schema("a", 1, 1), schema("b", 1, 1), schema("b", 1, 1, schema=other_form, deleted=True)])
    assert (ids(registry, "a"), ids(registry, "b")) == ([(1, 1, False)], [(1, 1, True)])
    assert registry.by_id(1).text == TEXT


def test_the_level_of_a_subject_is_its_own_or_that_of_its_context() -> None:
    levels = {"": "FULL", ":.lab:": "NONE", "a": "BACKWARD", ":.lab:a": "FORWARD"}
    registry = SchemaRegistry([], levels)
    subjects = ("a", "b", ":.lab:a", ":.lab:b", ":.new:a")
    assert [registry.compatibility_of(each) for each in subjects] == ["BACKWARD", "FULL", "FORWARD", "NONE", None]
    overall = SchemaRegistry([], {":.__GLOBAL:": "FULL_TRANSITIVE", ":.lab:": "NONE"})
    assert [overall.compatibility_of(each) for each in ("a", ":.lab:a", ":.new:a")] == [
        "FULL_TRANSITIVE",
        "NONE",
        "FULL_TRANSITIVE",
    ]


def test_a_reference_without_a_context_is_one_of_the_context_of_its_schema() -> None:
    refers = [{"name": "x", "subject": "base", "version": 1}]
    registry = registry_of(
        [
            schema(":.lab:top", 1, 1, references=refers),
            schema("base", 1, 2),
            schema(":.lab:base", 1, 3),
            schema("top", 1, 4, references=[{"name": "x", "subject": ":.lab:base", "version": 1}]),
        ]
    )
    for subject in (":.lab:top", "top"):
        assert [each.schema_id for each in registry.referenced(registry.latest(subject))] == [3]


def test_a_reference_to_version_minus_one_is_to_the_latest() -> None:
    refers = [{"name": "x", "subject": "base", "version": -1}]
    registry = registry_of([schema("top", 1, 1, references=refers), schema("base", 1, 2), schema("base", 2, 3)])
    assert [each.schema_id for each in registry.referenced(registry.latest("top"))] == [3]
    missing = registry_of([schema("top", 1, 1, references=refers)])
    with pytest.raises(SchemaNotFoundError, match="does not have"):
        missing.referenced(missing.latest("top"))


def test_the_compatibility_of_a_subject_is_the_last_that_was_set() -> None:
    def level(subject: str, value: str | None) -> tuple[bytes, bytes | None]:
        return key("CONFIG", subject), None if value is None else json.dumps({"compatibilityLevel": value}).encode()

    registry = registry_of([level("", "FULL"), level("a", "NONE"), level("a", None), level("b", "BACKWARD")])
    assert registry.compatibility == {"": "FULL", "b": "BACKWARD"}


def test_references_come_after_those_that_they_refer_to() -> None:
    def refers(*subjects: str) -> list[dict[str, Any]]:
        return [{"name": subject, "subject": subject, "version": 1} for subject in subjects]

    registry = registry_of(
        [
            schema("top", 1, 1, references=refers("left", "right")),
            schema("left", 1, 2, references=refers("base")),
            schema("right", 1, 3, references=refers("base")),
            schema("base", 1, 4),
        ]
    )
    assert [each.subject for each in registry.referenced(registry.latest("top"))] == ["base", "left", "right"]


@pytest.mark.parametrize("to", ["itself", "nothing"])
def test_a_reference_to_itself_or_to_nothing_is_refused(to: str) -> None:
    subject = "a" if to == "itself" else "b"
    registry = registry_of([schema("a", 1, 1, references=[{"name": "x", "subject": subject, "version": 1}])])
    with pytest.raises(SchemaNotFoundError, match=to if to == "itself" else "does not have"):
        registry.referenced(registry.latest("a"))


def test_ids_are_those_of_the_context_of_a_subject() -> None:
    registry = registry_of([schema("a", 1, 1), schema(":.lab:a", 1, 1, schema='"int"')])
    assert registry.by_id(1, ":.lab:b").text == '"int"'
    assert registry.by_id(1).text == TEXT


@pytest.mark.parametrize(
    "record",
    [
        (None, b"{}"),
        (b"\xff", b"{}"),
        (b"[]", b"{}"),
        (b"{" * 100_000, b"{}"),
        (key("NOOP", ""), None),
        (key("SCHEMA", "a"), b"{}"),
        (key("SCHEMA", "a", version="1"), b"{}"),
        (key("SCHEMA", "a", version=1), b"{}"),
        (key("SCHEMA", "a", version=1), b'{"id": "1", "schema": "x"}'),
        (key("SCHEMA", "a", version=1), b'{"id": 1, "schema": "x", "schemaType": "XML"}'),
        (key("SCHEMA", "a", version=1), b'{"id": 1, "schema": 5}'),
        (key("DELETE_SUBJECT", "a"), b"{}"),
        (key("CONFIG", "a"), b'{"compatibilityLevel": 5}'),
    ],
    ids=str,
)
def test_records_that_no_registry_writes_are_passed_over(record: tuple[bytes | None, bytes | None]) -> None:
    assert ids(registry_of([schema("b", 1, 1), record]), "b") == [(1, 1, False)]
    assert ids(registry_of([schema("b", 1, 1), record]), "a") == []


def test_schemas_are_read_from_a_root_or_from_the_partition(tmp_path: Path) -> None:
    with kstore.open_store(tmp_path / "root", "a") as store:
        store.create_topic("_schemas", partitions=1)
        with kstore.Producer(store) as producer:
            record_key, value = schema("a", 1, 1, references=[{"name": "x", "subject": "b", "version": 2}], guid="g")
            producer.send("_schemas", value, key=record_key)
    for place in (tmp_path / "root", tmp_path / "root" / "_schemas-0"):
        registry = kstore.read_schemas(place)
        assert registry.schemas == (
            RegisteredSchema(1, "a", 1, "AVRO", TEXT, (("x", "b", 2),), "g"),  # type: ignore[arg-type]
        )
        assert registry.by_guid("g").schema_id == 1


def test_a_root_without_schemas_says_what_was_expected(tmp_path: Path) -> None:
    kstore.open_store(tmp_path / "root", "a").close()
    with pytest.raises(SchemaNotFoundError, match="has no topic _schemas"):
        kstore.read_schemas(tmp_path / "root")


def test_a_topic_is_read_again_only_after_it_grew(tmp_path: Path) -> None:
    with kstore.open_store(tmp_path / "root", "a") as store:
        store.create_topic("_schemas", partitions=1)
        with kstore.Producer(store) as producer:
            name, value = schema("a-value", 1, 1)
            producer.send("_schemas", value, key=name)
            producer.flush()
            with SchemaTopic(tmp_path / "root") as topic:
                first = topic.read()
                assert topic.read() is first
                name, value = schema("a-value", 2, 2)
                producer.send("_schemas", value, key=name)
                producer.flush()
                assert topic.read().latest("a-value").schema_id == 2
                assert first.latest("a-value").schema_id == 1


@pytest.mark.parametrize(("subject", "version"), [("name", 1), (":.lab:name", 1), ("name", -1)])
def test_a_schema_is_read_with_those_that_it_refers_to(subject: str, version: int) -> None:
    refers = [{"name": "Name", "subject": subject, "version": version}]
    top = '{"type": "record", "name": "Top", "fields": [{"name": "n", "type": "Name"}]}'
    name = '{"type": "record", "name": "Name", "fields": [{"name": "x", "type": "int"}]}'
    registry = registry_of(
        [schema(":.lab:name", 1, 1, schema=name), schema(":.lab:t-value", 1, 2, schema=top, references=refers)]
    )
    chosen = registry.latest(":.lab:t-value")
    text = registered_text(chosen, registry, "AVRO")
    assert text.references == (("Name", name),)
    assert AvroProvider().type(text, None) == pa.struct([("n", pa.struct([("x", pa.int32())]))])


def test_a_pickled_format_has_the_schemas_of_its_context_and_what_they_refer_to(tmp_path: Path) -> None:
    name = [{"name": "Name", "subject": "name", "version": 1}]
    registry = registry_of(
        [
            schema("name", 1, 1, schema=TEXT.replace('"R"', '"Name"')),
            schema("t-value", 1, 2, references=name),
            schema("t-value", 2, 3, references=[{"name": "X", "subject": ":.far:x", "version": 1}]),
            schema(":.far:x", 1, 1, schema=TEXT.replace('"R"', '"X"')),
            schema(":.far:y", 1, 9),
            schema("other", 1, 4, schemaType="JSON"),
        ]
    )
    partitions = Partitions(("t",), None, DEFAULT_ENV, lambda *_: None)
    chosen = format_for(ValueFormat("avro", schemas=registry), "value", partitions)
    assert isinstance(chosen, SchemaFormat)
    assert chosen.schema_id == 3
    copy = pickle.loads(pickle.dumps(chosen))
    kept = {(each.subject, each.version) for each in copy.registry.schemas}
    assert kept == {("name", 1), ("t-value", 1), ("t-value", 2), (":.far:x", 1)}
    assert copy.type(None) == chosen.type(None)
