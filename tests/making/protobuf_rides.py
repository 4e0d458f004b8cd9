"""A root whose topic has Protobuf values of two schema versions, with the registry's topic, and what rows they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

import kstore
from kstore.values.protobuf.schema import schema_of
from kstore.values.providers import SchemaText
from tests.making.rides import registered

V1 = 'syntax = "proto3"; package com.x; message Ride { int64 id = 1; string carrier = 2; }'
V2 = """syntax = "proto3";
package com.x;
message Ride {
  message Leg { int32 km = 1; }
  int64 id = 1;
  string carrier = 2;
  optional int32 delay = 3;
  repeated Stop stops = 4;
}
message Stop { string name = 1; }
"""
KEY = 'syntax = "proto3"; package com.x; message Key { int32 k = 1; }'
ROWS = [
    {"id": 1, "carrier": "AA", "delay": None, "stops": []},
    {"id": 2, "carrier": "UA", "delay": 7, "stops": [{"name": "x"}, {"name": ""}]},
    None,
    None,
    None,
    None,
    None,
    None,
    None,
    {"id": 4, "carrier": "DL", "delay": None, "stops": []},
]


def message(schema: str, name: str, /, **fields: Any) -> Message:
    """Return a message of a schema; dicts are messages in it."""
    return GetMessageClass(schema_of(SchemaText(schema)).named(name))(**fields)


def framed(schema_id: int, schema: str, name: str = "com.x.Ride", /, *, indexes: bytes = b"\0", **fields: Any) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + indexes + message(schema, name, **fields).SerializeToString()


def register(producer: kstore.Producer, subject: str, version: int, schema_id: int, schema: str, **more: Any) -> None:
    key, value = registered(subject, version, schema_id, schema=schema, schemaType="PROTOBUF", **more)
    producer.send("_schemas", value, key=key)


def write_protobuf_rides(root: Path) -> Path:
    """Write the topic `rides`, with a tombstone and six bad values."""
    with kstore.open_store(root, "a") as store:
        store.create_topic("_schemas", partitions=1)
        store.create_topic("rides", partitions=1)
        with kstore.Producer(store) as producer:
            register(producer, "rides-value", 1, 1, V1)
            register(producer, "rides-value", 2, 2, V2)
            register(producer, "rides-key", 1, 3, KEY)
            key, value = registered("other", 1, 5, schema='"int"')
            producer.send("_schemas", value, key=key)
            values = [
                framed(1, V1, id=1, carrier="AA"),
                framed(2, V2, id=2, carrier="UA", delay=7, stops=[{"name": "x"}, {}]),
                None,
                b"\0\0\0\0\2\0\x08",
                framed(9, V1, id=3),
                framed(2, V2, "com.x.Stop", indexes=b"\x02\x02", name="s"),
                framed(2, V2, indexes=b"\x02\x06"),
                framed(5, V2),
                b"\0\0\0\0\2",
                framed(1, V1, id=4, carrier="DL"),
            ]
            for number, each in enumerate(values):
                producer.send("rides", each, key=framed(3, KEY, "Key", k=number), timestamp_ms=1000 + number)
    return root
