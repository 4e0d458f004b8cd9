"""Goal: every message of Kafka's internal topics, in every version, is decoded and encoded as by Kafka's classes.
Method: golden/messages/messages.tsv.xz, which Messages.java wrote with the classes of Kafka 4.4.0, bytes and JSON."""

from __future__ import annotations

import json
import lzma
from typing import NamedTuple

import pytest

from kstore.cli.render import JSON_TEXT, plain_value
from kstore.record.schemas.coordinator import (
    CONSUMER_PROTOCOL,
    GROUP_KEYS,
    GROUP_VALUES,
    SHARE_STATE_KEYS,
    SHARE_STATE_VALUES,
    TRANSACTION_KEYS,
    TRANSACTION_VALUES,
)
from kstore.record.schemas.metadata import METADATA_RECORDS, REMOTE_LOG_METADATA_RECORDS
from kstore.wire.classes import message_class
from kstore.wire.compiler import codec
from kstore.wire.schema import Schema, decode_message, encode_message, parse_schemas
from tests.golden.sets import PACKED_DIRECTORY

TABLES = {
    "group": (GROUP_KEYS, GROUP_VALUES),
    "transaction": (TRANSACTION_KEYS, TRANSACTION_VALUES),
    "share-state": (SHARE_STATE_KEYS, SHARE_STATE_VALUES),
    "consumer-protocol": (CONSUMER_PROTOCOL,),
    "metadata": (METADATA_RECORDS,),
    "remote-log-metadata": (REMOTE_LOG_METADATA_RECORDS,),
}
# Kafka has a name of its own for the oldest version of these.
LEGACY = "Legacy"


class Written(NamedTuple):
    """A message as Kafka wrote it and as Kafka's JSON converter shows it."""

    name: str
    version: int
    data: bytes
    shown: object


def written() -> list[Written]:
    text = lzma.decompress((PACKED_DIRECTORY / "messages" / "messages.tsv.xz").read_bytes()).decode()
    lines = [line.split("\t") for line in text.splitlines()]
    return [
        Written(name.removeprefix(LEGACY), int(version), bytes.fromhex(data), json.loads(shown))
        for name, version, data, shown in lines
    ]


def schemas(table: str) -> dict[str, Schema]:
    return {schema.name: schema for text in TABLES[table] for schema in parse_schemas(text).values()}


@pytest.mark.parametrize("table", TABLES)
def test_message_is_decoded_and_encoded_as_kafka_does(table: str) -> None:
    known = schemas(table)
    found = [message for message in written() if message.name in known]
    assert {message.name for message in found} == set(known)
    for name, version, data, shown in found:
        schema = known[name]
        # Keys are known by their type, which serves as their version.
        at = schema.versions[0] if name.endswith("Key") else version
        fields = decode_message(schema, data, version=at)
        assert json.loads(JSON_TEXT(plain_value(fields))) == shown, (name, version)
        assert encode_message(schema, fields, version=at) == data, (name, version)


@pytest.mark.parametrize("table", TABLES)
def test_compiled_functions_read_and_write_what_kafka_does(table: str) -> None:
    classes = {name: message_class(schema, module=__name__) for name, schema in schemas(table).items()}
    before: tuple[str, int] | None = None
    for name, version, data, _ in written():
        if name not in classes:
            continue
        cls = classes[name]
        of_version = codec(cls, version=cls.schema.versions[0] if name.endswith("Key") else version)
        message, position = of_version.decode(data)
        assert position == len(data)
        assert b"".join(of_version.encode(message)) == data, (name, version)
        if before != (name, version):
            # The first of each version is one of defaults.
            assert b"".join(of_version.encode(cls())) == data, (name, version)
        before = name, version


@pytest.mark.parametrize("table", TABLES)
def test_schema_has_the_versions_that_kafka_has(table: str) -> None:
    versions: dict[str, set[int]] = {}
    for message in written():
        versions.setdefault(message.name, set()).add(message.version)
    for name, schema in schemas(table).items():
        if not name.endswith("Key"):
            assert set(schema.versions) == versions[name], name


def test_no_message_of_kafka_is_without_a_schema() -> None:
    assert {message.name for message in written()} <= {name for table in TABLES for name in schemas(table)}
