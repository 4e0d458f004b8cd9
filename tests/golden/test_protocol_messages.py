"""Goal: every request and answer of Kafka's protocol, in every version, is decoded and encoded as by Kafka's classes.
Method: golden/messages/protocol.tsv.xz, which Messages.java wrote with the classes of Kafka 4.1.1, bytes and JSON, by
the interpreter and by the compiled functions."""

from __future__ import annotations

import json
import lzma
from collections import defaultdict
from typing import NamedTuple

from kstore.cli.render import JSON_TEXT, plain_value
from kstore.wire.classes import Message
from kstore.wire.compiler import codec
from kstore.wire.messages import message_named, tables
from kstore.wire.schema import STRUCT, Field, decode_message, encode_message
from tests.golden.sets import PACKED_DIRECTORY
from tests.making.collecting import over
from tests.reference.wire import as_dict

RECORDS = "records"
FILLINGS = 4


class Written(NamedTuple):
    """A message as Kafka wrote it and as Kafka's JSON converter shows it.

    filling: of Messages.java, 0 for defaults; reset: the fields that Kafka refused to write in this version.
    """

    version: int
    filling: int
    data: bytes
    shown: object
    reset: frozenset[str]


def written() -> dict[str, list[Written]]:
    text = lzma.decompress((PACKED_DIRECTORY / "messages" / "protocol.tsv.xz").read_bytes()).decode()
    found: dict[str, list[Written]] = defaultdict(list)
    for line in text.splitlines():
        name, version, data, shown, reset = line.split("\t")
        filling = len(found[name]) % FILLINGS
        names = frozenset(filter(None, reset.split(",")))
        found[name].append(Written(int(version), filling, bytes.fromhex(data), json.loads(shown), names))
    return found


WRITTEN = written()


def as_shown(fields: object) -> object:
    """Return what Kafka's JSON has of fields: nothing of the content of records."""
    if isinstance(fields, list):
        return [as_shown(each) for each in fields]
    if not isinstance(fields, dict):
        return fields
    is_records = {key: key == RECORDS and value is not None for key, value in fields.items()}
    return {key: "" if is_records[key] else as_shown(value) for key, value in fields.items()}


def test_every_version_of_every_message_is_there() -> None:
    assert WRITTEN.keys() == tables().keys()
    for name, messages in WRITTEN.items():
        versions = message_named(name).schema.versions
        assert [message.version for message in messages] == [each for each in versions for _ in range(FILLINGS)]


@over("name", list(tables()), by=lambda name: "requests" if "Request" in name else "responses")
def test_message_is_decoded_and_encoded_as_kafka_does(name: str) -> None:
    cls = message_named(name)
    for version, filling, data, shown, _ in WRITTEN[name]:
        fields = decode_message(cls.schema, data, version=version)
        assert json.loads(JSON_TEXT(plain_value(as_shown(fields)))) == shown, version
        assert encode_message(cls.schema, fields, version=version) == data, version
        message, position = codec(cls, version=version).decode(data)
        assert position == len(data)
        assert as_dict(message, version=version) == fields, version
        assert b"".join(codec(cls, version=version).encode(message)) == data, version
        if filling == 0:
            assert b"".join(codec(cls, version=version).encode(cls())) == data, version


def refused(cls: type[Message], version: int) -> set[str]:
    """Return the fields that must have their default where this version is written."""
    names: set[str] = set()
    for field in cls.fields:
        if version not in field.versions:
            names |= set() if field.is_ignorable else {field.name}
        elif field.kind == STRUCT:
            names |= refused(cls.structs[field.name], version)
    return names


def named(fields: tuple[Field, ...]) -> set[str]:
    return {name for field in fields for name in (field.name, *named(field.fields))}


@over("name", list(tables()), by=lambda name: "requests" if "Request" in name else "responses")
def test_fields_that_kafka_refuses_to_drop_are_refused(name: str) -> None:
    cls = message_named(name)
    by_version: dict[int, set[str]] = defaultdict(set)
    for message in WRITTEN[name]:
        # Fields of later versions that no broker offers are in no table.
        by_version[message.version] |= message.reset & named(cls.fields)
    assert by_version == {version: refused(cls, version) for version in cls.schema.versions}
