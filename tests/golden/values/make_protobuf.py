"""`python -m tests.golden.values.make_protobuf`: write the golden values of Protobuf again.

Values, frames, headers, and the schemas that messages import are registered and written by Confluent's own serializer
(confluent-kafka[protobuf,schemaregistry], with its mock of a registry); its deserializer reads each value as the newest
version of its message, and what Google's library lists of that is the answer.
"""

from __future__ import annotations

import json
import lzma
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

import kstore
from kstore.values.protobuf.compiling import compiled
from kstore.values.protobuf.texts import MAIN_FILE
from kstore.values.providers import NamedSchema, SchemaText
from tests.golden.values.protobuf_schemas import KINDS, SHARED, Kind
from tests.making.protobuf_values import encoded, is_map, shown

HERE = Path(__file__).parent
VALUES_OF_VERSION = 4
_INT32, _INT64 = (-(2**31), 2**31 - 1), (-(2**63), 2**63 - 1)
_RANGES = {
    "int32": _INT32,
    "sint32": _INT32,
    "sfixed32": _INT32,
    "int64": _INT64,
    "sint64": _INT64,
    "sfixed64": _INT64,
    "uint32": (0, 2**32 - 1),
    "fixed32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
    "fixed64": (0, 2**64 - 1),
}
_NAMES = {getattr(FieldDescriptor, f"TYPE_{name.upper()}"): name for name in _RANGES}


def class_of(kind: Kind, version: int) -> Any:
    """Return the class of a kind's message in a version."""
    references = tuple(NamedSchema(name, text) for name, text in SHARED.items())
    (result,) = compiled([SchemaText(kind.versions[version], references)])
    if not isinstance(result, bytes):
        raise result
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(result).file:
        file.name = f"{kind.topic}.proto" if file.name == MAIN_FILE else file.name
        pool.Add(FileDescriptorProto.FromString(file.SerializeToString()))
    return GetMessageClass(pool.FindMessageTypeByName(kind.message))


def fill(message: Message, random: Random) -> Message:
    for field in message.DESCRIPTOR.fields:
        if random.random() < 0.25:
            continue
        if is_map(field):
            key, value = (field.message_type.fields_by_number[number] for number in (1, 2))
            entries = getattr(message, field.name)
            for _ in range(random.randrange(4)):
                if value.message_type is not None:
                    fill(entries[scalar(key, random)], random)
                else:
                    entries[scalar(key, random)] = scalar(value, random)
        elif field.is_repeated:
            items = getattr(message, field.name)
            for _ in range(random.randrange(4)):
                if field.message_type is not None:
                    fill_message(items.add(), random)
                else:
                    items.append(scalar(field, random))
        elif field.message_type is not None:
            inner = getattr(message, field.name)
            inner.SetInParent()
            fill_message(inner, random)
        else:
            setattr(message, field.name, scalar(field, random))
    return message


def fill_message(message: Any, random: Random) -> None:
    match message.DESCRIPTOR.full_name:
        case "google.protobuf.Timestamp" | "google.protobuf.Duration":
            message.seconds = random.randrange(2 * 10**9)
            message.nanos = random.randrange(10**9)
        case "google.protobuf.Struct":
            message.update({"a": random.random(), "b": [None, True, "x"], "c": {"d": "e"}})
        case "google.protobuf.Value":
            message.string_value = "value"
        case "google.protobuf.ListValue":
            message.extend(["a", 1.5, None])
        case _:
            fill(message, random)


def scalar(field: FieldDescriptor, random: Random) -> Any:
    if field.enum_type is not None:
        return random.choice(field.enum_type.values).number
    name = _NAMES.get(field.type)
    if name is not None:
        return random.choice([0, 1, *_RANGES[name], random.randint(*_RANGES[name])])
    match field.type:
        case FieldDescriptor.TYPE_BOOL:
            return random.random() < 0.5
        case FieldDescriptor.TYPE_STRING:
            return random.choice(["", "a", "\N{SNOWMAN}\N{GRINNING FACE}", "x" * random.randrange(40)])
        case FieldDescriptor.TYPE_BYTES:
            return random.randbytes(random.randrange(6))
    return random.choice([0.0, 0.5, -1.25, float(random.randrange(-1000, 1000))])


def write_topic(store: Any, client: Any, producer: kstore.Producer, kind: Kind) -> Iterator[dict[str, Any]]:
    """Write the values of a topic; yield the answers."""
    random = Random(kind.topic)
    store.create_topic(kind.topic, partitions=1)
    classes = [class_of(kind, version) for version in range(len(kind.versions))]
    deserializer = ProtobufDeserializer(classes[-1], {"use.deprecated.format": False}, client)
    offset = 0
    for written in classes:
        conf: dict[str, Any] = {"use.deprecated.format": False}
        if kind.has_headers:
            conf["schema.id.serializer"] = header_schema_id_serializer
        serializer = ProtobufSerializer(written, client, conf)
        for _ in range(VALUES_OF_VERSION):
            headers: list[Any] = []
            context = SerializationContext(kind.topic, MessageField.VALUE, headers)
            data = serializer(fill(written(), random), context)
            producer.send(kind.topic, data, headers=headers, timestamp_ms=1000 + offset)
            yield {"topic": kind.topic, "offset": offset, "value": encoded(shown(deserializer(data, context)))}
            offset += 1
        producer.send(kind.topic, None, key=b"k", timestamp_ms=1000 + offset)
        offset += 1


def write_registry(client: Any, producer: kstore.Producer) -> None:
    """Write what was registered as Confluent's registry does: by turns as text, as clients in Java register it."""
    texts = {f"{kind.topic}-value": kind for kind in KINDS if kind.is_text}
    registered = [
        client.get_version(subject, version)
        for subject in client.get_subjects()
        for version in client.get_versions(subject)
    ]
    for each in sorted(registered, key=lambda each: each.schema_id):
        kind = texts.get(each.subject)
        value = {
            "subject": each.subject,
            "version": each.version,
            "id": each.schema_id,
            "guid": each.guid,
            "schemaType": "PROTOBUF",
            "references": [
                {"name": one.name, "subject": one.subject, "version": one.version}
                for one in each.schema.references or ()
            ],
            "schema": each.schema.schema_str if kind is None else kind.versions[each.version - 1],
            "deleted": False,
        }
        key = {"keytype": "SCHEMA", "subject": each.subject, "version": each.version, "magic": 1}
        producer.send("_schemas", json.dumps(value).encode(), key=json.dumps(key).encode())


def main() -> None:
    client = SchemaRegistryClient.new_client({"url": "mock://golden-protobuf"})
    with tempfile.TemporaryDirectory() as work:
        root = Path(work) / "root"
        answers: list[dict[str, Any]] = []
        with kstore.open_store(root, "a") as store:
            store.create_topic("_schemas", partitions=1)
            with kstore.Producer(store) as producer:
                for kind in KINDS:
                    answers += write_topic(store, client, producer, kind)
                write_registry(client, producer)
        with lzma.open(HERE / "protobuf-answers.jsonl.xz", "wt") as target:
            target.writelines(json.dumps(each) + "\n" for each in answers)
        with tarfile.open(HERE / "protobuf.tar.xz", "w:xz") as archive:
            archive.add(root, "root")


if __name__ == "__main__":
    main()
