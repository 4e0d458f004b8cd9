"""`python -m tests.golden.values.make CLASSPATH`: write the golden values again.

Values, frames and headers are written by Confluent's own serializers (confluent-kafka, with its mock of a registry),
and answered by Apache Avro's Java library: CLASSPATH has the jars of org.apache.avro:avro 1.12.0 and what it needs.
"""

from __future__ import annotations

import json
import lzma
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

import kstore
from tests.golden.values.schemas import ADDRESS, KINDS, PERSON, Kind, values, versions

HERE = Path(__file__).parent
KEY = {"type": "record", "name": "Key", "fields": [{"name": "k", "type": "long"}]}
LATER_KEY = {
    "type": "record",
    "name": "Key",
    "fields": [{"name": "k", "type": "long"}, {"name": "n", "type": "int", "default": 4}],
}
VALUES_OF_VERSION = 3
SHARED = {"org.place.Address": (ADDRESS, ()), "org.people.Person": (PERSON, ("org.place.Address",))}


class Registered(NamedTuple):
    text: str
    schema: Schema
    schema_id: int


class Registry:
    """A registry whose topic is written as it is filled."""

    def __init__(self, producer: kstore.Producer) -> None:
        self.client = SchemaRegistryClient.new_client({"url": "mock://golden"})
        self._producer = producer
        self._counts: dict[str, int] = {}

    def register(self, subject: str, schema: Any, references: tuple[str, ...] = ()) -> Registered:
        text = json.dumps(schema)
        targets = [SchemaReference(name, name, 1) for name in references]
        made = Schema(text, "AVRO", targets)
        registered = self.client.register_schema_full_response(subject, made)
        version = self._counts[subject] = self._counts.get(subject, 0) + 1
        value = {"subject": subject, "version": version, "id": registered.schema_id, "guid": registered.guid}
        if references:
            value["references"] = [{"name": name, "subject": name, "version": 1} for name in references]
        self.write("SCHEMA", subject, {**value, "schema": text, "deleted": False}, version=version)
        return Registered(text, made, registered.schema_id)

    def write(self, kind: str, subject: str | None, value: Any, **more: Any) -> None:
        """Write a record as Confluent's registry does."""
        key = {"keytype": kind, "subject": subject, **more, "magic": 1 if kind == "SCHEMA" else 0}
        data = None if value is None else json.dumps(value).encode()
        self._producer.send("_schemas", data, key=json.dumps(key).encode())

    def serialized(
        self, topic: str, registered: Registered, value: Any, headers: list[Any] | None = None, *, field: str = "value"
    ) -> bytes:
        conf: dict[str, Any] = {"auto.register.schemas": False}
        if headers is not None:
            conf["schema.id.serializer"] = header_schema_id_serializer
        context = SerializationContext(topic, MessageField.VALUE if field == "value" else MessageField.KEY, headers)
        data: bytes = AvroSerializer(self.client, registered.schema, conf=conf)(value, context)
        return data


def write_topic(store: Any, registry: Registry, producer: kstore.Producer, kind: Kind) -> Iterator[dict[str, Any]]:
    """Write the values of a topic; yield the cases for Java."""
    random = Random(kind.name)
    store.create_topic(kind.name, partitions=1)
    registered = [registry.register(f"{kind.name}-value", each, kind.references) for each in versions(kind)]
    references = [json.dumps(SHARED[name][0]) for name in kind.references]
    offset = 0
    for version, written in enumerate(registered):
        for number in range(VALUES_OF_VERSION):
            value = values(kind, version, random, number)
            data = registry.serialized(kind.name, written, value)
            producer.send(kind.name, data, timestamp_ms=1000 + offset)
            yield case(kind.name, offset, data[5:], written.text, registered[-1].text, references)
            offset += 1
        producer.send(kind.name, None, key=b"k", timestamp_ms=1000 + offset)
        offset += 1


def case(
    topic: str,
    offset: int,
    data: bytes,
    writer: str,
    reader: str,
    references: list[str] | None = None,
    *,
    origin: str = "value",
) -> dict[str, Any]:
    return {
        "topic": topic,
        "offset": offset,
        "origin": origin,
        "data": data.hex(),
        "writer": writer,
        "reader": reader,
        "references": references or [],
    }


def write_framings(store: Any, registry: Registry, producer: kstore.Producer) -> Iterator[dict[str, Any]]:
    """Write a topic with keys, and ids in frames and headers by turns, and one without any."""
    kind = next(each for each in KINDS if each.name == "record")
    random = Random(1)
    for topic in ("headers", "unframed"):
        store.create_topic(topic, partitions=1)
    registered = [registry.register("headers-value", each) for each in versions(kind)]
    keys = [registry.register("headers-key", each) for each in (KEY, LATER_KEY)]
    for number in range(24):
        version = number % 3
        value = values(kind, version, random, number)
        headers: list[Any] | None = [("other", b"x")] if number % 4 else None
        data = registry.serialized("headers", registered[version], value, headers)
        key = registry.serialized("headers", keys[number % 2], {"k": number, "n": 1}, headers, field="key")
        producer.send("headers", data, key=key, headers=headers or (), timestamp_ms=number)
        bare = 0 if headers else 5
        yield case("headers", number, data[bare:], registered[version].text, registered[-1].text)
        yield case("headers", number, key[bare:], keys[number % 2].text, keys[-1].text, origin="key")
        last = values(kind, 2, random, number)
        data = registry.serialized("headers", registered[2], last)[5:]
        producer.send("unframed", data)
        yield case("unframed", number, data, registered[2].text, registered[2].text)


def write_rest(registry: Registry) -> None:
    """Write the other records that a registry's topic has."""
    registry.write("NOOP", None, None)
    registry.write("CONFIG", None, {"compatibilityLevel": "FULL"})
    registry.write("CONFIG", "int-value", {"subject": "int-value", "compatibilityLevel": "NONE"})
    text = json.dumps(KEY)
    for subject, schema_id in ((":.lab:int-value", 1), ("gone-value", 5001), ("cleared-value", 5002)):
        for version in (1, 2):
            value = {"subject": subject, "version": version, "id": schema_id, "schema": text, "deleted": False}
            registry.write("SCHEMA", subject, value, version=version)
    soft = {"subject": "gone-value", "version": 2, "id": 5001, "schema": text, "deleted": True}
    registry.write("SCHEMA", "gone-value", soft, version=2)
    registry.write("DELETE_SUBJECT", "gone-value", {"subject": "gone-value", "version": 1})
    registry.write("DELETE_SUBJECT", "cleared-value", {"subject": "cleared-value", "version": 2})
    for version in (1, 2):
        registry.write("SCHEMA", "cleared-value", None, version=version)


def main() -> None:
    with tempfile.TemporaryDirectory() as work:
        root = Path(work) / "root"
        cases: list[dict[str, Any]] = []
        with kstore.open_store(root, "a") as store:
            store.create_topic("_schemas", partitions=1)
            with kstore.Producer(store) as producer:
                registry = Registry(producer)
                for name, (schema, references) in SHARED.items():
                    registry.register(name, schema, references)
                for kind in KINDS:
                    cases += write_topic(store, registry, producer, kind)
                cases += write_framings(store, registry, producer)
                write_rest(registry)
        file = Path(work) / "cases.jsonl"
        file.write_text("".join(json.dumps(each) + "\n" for each in cases))
        command = ["java", "-cp", sys.argv[1], str(HERE / "Answers.java"), str(file)]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        answers = [
            {"topic": each["topic"], "offset": each["offset"], "origin": each["origin"], **json.loads(line)}
            for each, line in zip(cases, lines, strict=True)
        ]
        with lzma.open(HERE / "answers.jsonl.xz", "wt") as target:
            target.writelines(json.dumps(each) + "\n" for each in answers)
        with tarfile.open(HERE / "trees.tar.xz", "w:xz") as archive:
            archive.add(root, "root")


if __name__ == "__main__":
    main()
