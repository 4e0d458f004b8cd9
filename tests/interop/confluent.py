"""Topics whose values Confluent's serializers for Python wrote, with the schemas that its client registered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

import kstore

CITY = {"type": "record", "name": "City", "namespace": "x", "fields": [{"name": "name", "type": "string"}]}
RIDE_1 = {"type": "record", "name": "Ride", "namespace": "x", "fields": [{"name": "from", "type": "x.City"}]}
RIDE_2 = RIDE_1 | {"fields": [*RIDE_1["fields"], {"name": "delay", "type": ["null", "int"], "default": None}]}
JSON_CITY = {"type": "object", "properties": {"name": {"type": "string"}}}
JSON_RIDE = {
    "title": "Ride",
    "type": "object",
    "properties": {"from": {"$ref": "city.json"}, "id": {"type": "integer"}},
}
PROTO_CITY = 'syntax = "proto3"; package x; message City { string name = 1; }'
PROTO_RIDE = 'syntax = "proto3"; package x; import "city.proto"; message Ride { City from = 1; int64 id = 2; }'
# A City of "AMS" as field 1, and 7 as field 2.
PROTO_VALUE = b"\x0a\x05\x0a\x03AMS\x10\x07"


class Topics:
    """Registers schemas with a registry, and writes values.

    Attributes: url: of the registry; registered: the id, the type, whether it is deleted and the number of references
    of each version; rows: by topic, which is named after its format.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.registered: dict[tuple[str, int], tuple[int, str, bool, int]] = {}
        self.rows: dict[str, list[Any]] = {}
        self._client = SchemaRegistryClient({"url": url})

    def _register(self, subject: str, version: int, schema: Any, schema_type: str, *names: tuple[str, str]) -> int:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        references = [SchemaReference(name, target, 1) for name, target in names]
        schema_id: int = self._client.register_schema(subject, Schema(text, schema_type, references))
        self.registered[subject, version] = schema_id, schema_type, False, len(references)
        return schema_id

    def _delete(self, subject: str, version: int) -> None:
        self._client.delete_version(subject, version)
        schema_id, schema_type, _, references = self.registered[subject, version]
        self.registered[subject, version] = schema_id, schema_type, True, references

    def _delete_subject(self, subject: str) -> None:
        for version in self._client.delete_subject(subject):
            schema_id, schema_type, _, references = self.registered[subject, version]
            self.registered[subject, version] = schema_id, schema_type, True, references

    def write(self, root: Path) -> None:
        """Register all, and write a root with a topic of each format."""
        self._register("city", 1, CITY, "AVRO")
        self._register("city.json", 1, JSON_CITY, "JSON")
        self._register("city.proto", 1, PROTO_CITY, "PROTOBUF")
        values: dict[str, list[bytes]] = {"avro-rides": [], "avro-old": [], "json-rides": [], "protobuf-rides": []}
        for version, schema in ((1, RIDE_1), (2, RIDE_2)):
            self._register("avro-rides-value", version, schema, "AVRO", ("x.City", "city"))
            serializer = AvroSerializer(
                self._client,
                Schema(json.dumps(schema), "AVRO", [SchemaReference("x.City", "city", 1)]),
                conf={"auto.register.schemas": False},
            )
            ride = {"from": {"name": f"AMS {version}"}} | ({"delay": 7} if version == 2 else {})
            values["avro-rides"].append(serializer(ride, SerializationContext("avro-rides", MessageField.VALUE)))
        self._delete("avro-rides-value", 1)
        self._register("avro-rides-key", 1, {"type": "long"}, "AVRO")
        # A record of a subject that is deleted softly is read still.
        self._register("avro-old-value", 1, CITY | {"name": "Town"}, "AVRO")
        old = AvroSerializer(self._client, json.dumps(CITY | {"name": "Town"}), conf={"auto.register.schemas": False})
        values["avro-old"].append(old({"name": "AMS"}, SerializationContext("avro-old", MessageField.VALUE)))
        self._delete_subject("avro-old-value")
        self._register("json-rides-value", 1, JSON_RIDE, "JSON", ("city.json", "city.json"))
        json_serializer = JSONSerializer(
            Schema(json.dumps(JSON_RIDE), "JSON", [SchemaReference("city.json", "city.json", 1)]),
            self._client,
            conf={"auto.register.schemas": False},
        )
        ride = {"from": {"name": "AMS"}, "id": 7}
        values["json-rides"].append(json_serializer(ride, SerializationContext("json-rides", MessageField.VALUE)))
        schema_id = self._register("protobuf-rides-value", 1, PROTO_RIDE, "PROTOBUF", ("city.proto", "city.proto"))
        # Its serializer would register the texts that it makes of compiled classes.
        values["protobuf-rides"].append(b"\0" + schema_id.to_bytes(4, "big") + b"\0" + PROTO_VALUE)
        self.rows["avro-rides"] = [
            {"from": {"name": "AMS 1"}, "delay": None},
            {"from": {"name": "AMS 2"}, "delay": 7},
        ]
        self.rows["avro-old"] = [{"name": "AMS"}]
        self.rows["json-rides"] = self.rows["protobuf-rides"] = [ride]
        with kstore.open_store(root, "a") as store, kstore.Producer(store) as producer:
            for topic, written in values.items():
                store.create_topic(topic, partitions=1)
                for each in written:
                    producer.send(topic, each)
