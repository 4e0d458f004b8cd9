"""A root whose topic has Avro values of two schema versions, with the registry's topic, and what they are as rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import kstore
from tests.making.avro_values import encoded
from tests.values.test_resolution import record

V1 = record(("id", "long"), ("carrier", "string"))
V2 = record(("id", "long"), ("carrier", "string"), ("delay", ["null", "int"], None))
V3 = record(("gate", ["null", "string"], None), ("id", "long"), ("delay", ["null", "int"], None))
KEY = record(("k", "int"))
ROWS = [
    {"id": 1, "carrier": "AA", "delay": None},
    {"id": 2, "carrier": "UA", "delay": 7},
    None,
    None,
    None,
    {"id": 4, "carrier": "DL", "delay": None},
]


def framed(schema_id: int, schema: Any, value: Any) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + encoded(schema, value)


def registered(subject: str, version: int, schema_id: int, **more: Any) -> tuple[bytes, bytes]:
    """Return the key and the value of the record by which a registry keeps a version."""
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    value = {"subject": subject, "version": version, "id": schema_id, "schema": "{}", "deleted": False, **more}
    return json.dumps(key).encode(), json.dumps(value).encode()


def register(producer: kstore.Producer, subject: str, version: int, schema_id: int, schema: Any, **more: Any) -> None:
    key, value = registered(subject, version, schema_id, schema=json.dumps(schema), **more)
    producer.send("_schemas", value, key=key)


def write_rides(root: Path) -> Path:
    """Write the topic `rides`, with a tombstone, a bad value and a schema id that nobody registered."""
    with kstore.open_store(root, "a") as store:
        store.create_topic("_schemas", partitions=1)
        store.create_topic("rides", partitions=1)
        with kstore.Producer(store) as producer:
            register(producer, "rides-value", 1, 1, V1)
            register(producer, "rides-value", 2, 2, V2)
            register(producer, "rides-key", 1, 3, KEY)
            values = [
                framed(1, V1, {"id": 1, "carrier": "AA"}),
                framed(2, V2, {"id": 2, "carrier": "UA", "delay": 7}),
                None,
                b"\0\0\0\0\2\x02",
                framed(9, V1, {"id": 3, "carrier": "DL"}),
                framed(1, V1, {"id": 4, "carrier": "DL"}),
            ]
            for number, each in enumerate(values):
                producer.send("rides", each, key=framed(3, KEY, {"k": number}), timestamp_ms=1000 + number)
    return root


def append_ride(root: Path, schema_id: int, schema: Any, **fields: Any) -> None:
    """Append a ride of a newer version of the schema."""
    with kstore.open_store(root, "a") as store, kstore.Producer(store) as producer:
        register(producer, "rides-value", schema_id, schema_id, schema)
        producer.send("rides", framed(schema_id, schema, fields))
