"""`python -m tests.golden.values.make_json`: write the golden values of JSON again.

Values, frames, headers and schemas are registered and written by Confluent's own serializer
(confluent-kafka[json,schemaregistry], with its mock of a registry), which checks each value by its schema; the answers
are what its deserializer reads.
"""

from __future__ import annotations

import json
import lzma
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

import kstore

HERE = Path(__file__).parent
VALUES_OF_VERSION = 4
_DRAFT = "http://json-schema.org/draft-07/schema#"
ADDRESS = {
    "$schema": _DRAFT,
    "$id": "http://golden.org/address.json",
    "type": "object",
    "properties": {"street": {"type": "string"}, "country": {"enum": ["DE", "FR"]}},
}
PERSON = {
    "$schema": _DRAFT,
    "$id": "http://golden.org/person.json",
    "type": "object",
    "properties": {"name": {"type": "string"}, "home": {"$ref": "address.json"}},
}
# By subject: the schema, and the names by which it refers to others.
SHARED: dict[str, tuple[Any, tuple[str, ...]]] = {
    "address.json": (ADDRESS, ()),
    "person.json": (PERSON, ("address.json",)),
}
_TEXTS = ("", "a", 'quote " and \\', "line\nbreak", "\N{SNOWMAN}\N{GRINNING FACE}", "x" * 40)


class Kind(NamedTuple):
    """A topic. x: the schema of its field `x`; value: returns one."""

    topic: str
    x: Any
    value: Callable[[Random], Any]
    references: tuple[str, ...] = ()
    definitions: Any = None
    has_headers: bool = False


def address(random: Random) -> Any:
    return {"street": random.choice(_TEXTS), "country": random.choice(["DE", "FR"])}


def tree(random: Random, depth: int = 3) -> Any:
    return {
        "name": random.choice(_TEXTS),
        "children": [tree(random, depth - 1) for _ in range(random.randrange(depth))],
    }


KINDS = [
    Kind("string", {"type": "string"}, lambda random: random.choice(_TEXTS)),
    Kind("integer", {"type": "integer"}, lambda random: random.choice([0, -1, 2**63 - 1, -(2**63), 3.0])),
    Kind("number", {"type": "number"}, lambda random: random.choice([0, 0.1, 1e300, -5e-324, 2**70, random.random()])),
    Kind("boolean", {"type": "boolean"}, lambda random: random.random() < 0.5),
    Kind("nullable", {"type": ["string", "null"]}, lambda random: random.choice([None, "x"])),
    Kind(
        "connect",
        {"oneOf": [{"type": "null"}, {"type": "integer", "connect.type": "int16"}]},
        lambda random: random.choice([None, 7, -(2**15)]),
    ),
    Kind(
        "date",
        {"type": "integer", "title": "org.apache.kafka.connect.data.Date", "connect.type": "int32"},
        lambda random: random.randrange(30_000),
    ),
    Kind(
        "array",
        {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
        lambda random: [[random.random()] * random.randrange(3) for _ in range(random.randrange(4))],
    ),
    Kind(
        "map",
        {"type": "object", "additionalProperties": {"type": "integer"}},
        lambda random: {name: random.randrange(99) for name in random.sample(_TEXTS, random.randrange(4))},
    ),
    Kind(
        "union",
        {"oneOf": [{"type": "string"}, {"type": "integer"}, {"type": "object", "properties": {"a": {}}}]},
        lambda random: random.choice(["x", 5, {"a": [1, {"b": None}]}]),
    ),
    Kind(
        "recursive",
        {"$ref": "#/definitions/tree"},
        tree,
        definitions={
            "tree": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "children": {"type": "array", "items": {"$ref": "#/definitions/tree"}},
                },
            }
        },
    ),
    Kind("reference", {"$ref": "http://golden.org/address.json"}, address, ("address.json",)),
    Kind(
        "references",
        {"type": "array", "items": {"$ref": "person.json"}},
        lambda random: [{"name": "n", "home": address(random)} for _ in range(random.randrange(3))],
        ("person.json", "address.json"),
    ),
    Kind("headers", {"type": "string"}, lambda random: random.choice(_TEXTS), has_headers=True),
]


def versions(kind: Kind) -> list[dict[str, Any]]:
    """Return the schemas of a topic, each with more fields than the one before."""
    more: list[dict[str, Any]] = [
        {},
        {"count": {"type": "integer"}},
        {"count": {"type": "integer"}, "note": {"type": ["null", "string"]}},
    ]
    definitions = {} if kind.definitions is None else {"definitions": kind.definitions}
    return [
        {
            "$schema": _DRAFT,
            "$id": f"http://golden.org/{kind.topic}.json",
            "title": kind.topic,
            "type": "object",
            "properties": {"id": {"type": "integer"}, "x": kind.x, **added},
            **definitions,
        }
        for added in more
    ]


def references_of(names: tuple[str, ...]) -> list[SchemaReference]:
    listed = []
    for name in names:
        listed.append(SchemaReference(name, name, 1))
        listed.append(SchemaReference(f"http://golden.org/{name}", name, 1))
    return listed


class Registry:
    """A registry whose topic is written as it is filled."""

    def __init__(self, producer: kstore.Producer) -> None:
        self.client = SchemaRegistryClient.new_client({"url": "mock://golden-json"})
        self._producer = producer
        self._counts: dict[str, int] = {}

    def register(self, subject: str, schema: Any, names: tuple[str, ...] = ()) -> Schema:
        made = Schema(json.dumps(schema), "JSON", references_of(names))
        registered = self.client.register_schema_full_response(subject, made)
        version = self._counts[subject] = self._counts.get(subject, 0) + 1
        value = {
            "subject": subject,
            "version": version,
            "id": registered.schema_id,
            "guid": registered.guid,
            "schemaType": "JSON",
            "references": [
                {"name": each.name, "subject": each.subject, "version": each.version} for each in made.references
            ],
            "schema": made.schema_str,
            "deleted": False,
        }
        key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
        self._producer.send("_schemas", json.dumps(value).encode(), key=json.dumps(key).encode())
        return made


def write_topic(store: Any, registry: Registry, producer: kstore.Producer, kind: Kind) -> Iterator[dict[str, Any]]:
    """Write the values and keys of a topic; yield the answers."""
    random = Random(kind.topic)
    store.create_topic(kind.topic, partitions=1)
    conf: dict[str, Any] = {"auto.register.schemas": False}
    if kind.has_headers:
        conf["schema.id.serializer"] = header_schema_id_serializer
    schemas = [registry.register(f"{kind.topic}-value", each, kind.references) for each in versions(kind)]
    key_schema = registry.register(f"{kind.topic}-key", {"$schema": _DRAFT, "type": "integer"})
    offset = 0
    for version, schema in enumerate(schemas):
        serialize = JSONSerializer(schema, registry.client, lambda value, _: value, conf)
        deserialize = JSONDeserializer(schema, schema_registry_client=registry.client)
        serialize_key = JSONSerializer(key_schema, registry.client, lambda value, _: value, conf)
        for number in range(VALUES_OF_VERSION):
            value = {"id": number, "x": kind.value(random)}
            value |= {"count": -number} if version else {}
            value |= {"note": random.choice([None, "note"])} if version > 1 else {}
            headers: list[Any] = []
            context = SerializationContext(kind.topic, MessageField.VALUE, headers)
            data = serialize(value, context)
            key = serialize_key(offset, SerializationContext(kind.topic, MessageField.KEY, headers))
            producer.send(kind.topic, data, key=key, headers=headers, timestamp_ms=1000 + offset)
            yield {"topic": kind.topic, "offset": offset, "value": deserialize(data, context)}
            offset += 1
        producer.send(kind.topic, None, timestamp_ms=1000 + offset)
        yield {"topic": kind.topic, "offset": offset, "value": None}
        offset += 1


def main() -> None:
    with tempfile.TemporaryDirectory() as work:
        root = Path(work) / "root"
        answers: list[dict[str, Any]] = []
        with kstore.open_store(root, "a") as store:
            store.create_topic("_schemas", partitions=1)
            with kstore.Producer(store) as producer:
                registry = Registry(producer)
                for name, (schema, names) in SHARED.items():
                    registry.register(name, schema, names)
                for kind in KINDS:
                    answers += write_topic(store, registry, producer, kind)
        with lzma.open(HERE / "json-answers.jsonl.xz", "wt") as target:
            target.writelines(json.dumps(each) + "\n" for each in answers)
        with tarfile.open(HERE / "json.tar.xz", "w:xz") as archive:
            archive.add(root, "root")


if __name__ == "__main__":
    main()
