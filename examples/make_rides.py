"""Write examples/rides: flights of examples/flights as Avro values of two schema versions, with a registry's topic.

python examples/make_rides.py
"""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import fastavro

import kstore

EXAMPLES = Path(__file__).resolve().parent
RIDES = EXAMPLES / "rides"
V1 = {
    "type": "record",
    "name": "Ride",
    "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "flight", "type": "int"},
        {"name": "time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
V2 = {**V1, "fields": [*V1["fields"], {"name": "delay", "type": ["null", "int"], "default": None}]}
OF_VERSION_1, RECORDS = 50, 200


def framed(schema_id: int, schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    """Return an Avro value as Confluent's serializer writes it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return b"\0" + schema_id.to_bytes(4, "big") + out.getvalue()


def register(producer: kstore.Producer, version: int, schema: dict[str, Any]) -> None:
    """Append what a registry writes for a version of the subject, whose id is that of the version."""
    key = {"keytype": "SCHEMA", "subject": "rides-value", "version": version, "magic": 1}
    value = {
        "subject": "rides-value",
        "version": version,
        "id": version,
        "schema": json.dumps(schema),
        "deleted": False,
    }
    producer.send("_schemas", json.dumps(value).encode(), key=json.dumps(key).encode(), timestamp_ms=0)


def main() -> None:
    """Write the root."""
    shutil.rmtree(RIDES, ignore_errors=True)
    with kstore.open_log(EXAMPLES / "flights" / "flights-lz4-0") as log:
        flights = list(log.read(0, RECORDS))
    with kstore.open_store(RIDES, "a") as store:
        store.create_topic("_schemas", partitions=1)
        store.create_topic("rides", partitions=1)
        with kstore.Producer(store, linger_ms=1000) as producer:
            register(producer, 1, V1)
            register(producer, 2, V2)
            for number, record in enumerate(flights):
                version, schema = (1, V1) if number < OF_VERSION_1 else (2, V2)
                flight = json.loads(record.value or b"{}")
                ride = {
                    "carrier": flight["carrier"],
                    "flight": int(flight["flight"]),
                    "time": record.timestamp_ms,
                    "delay": int(flight["dep_delay"]) if flight["dep_delay"].lstrip("-").isdigit() else None,
                }
                producer.send("rides", framed(version, schema, ride), key=record.key, timestamp_ms=record.timestamp_ms)
            producer.send("rides", None, key=flights[0].key, timestamp_ms=flights[-1].timestamp_ms)


if __name__ == "__main__":
    main()
