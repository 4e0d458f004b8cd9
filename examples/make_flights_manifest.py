"""Write examples/flights/MANIFEST.json, against which the demo checks its result.

The values are decoded by kafka-python, which shares no code with kstore. The values of a batch enter the checksum only
if its records have the records_sha256 computed by Kafka's own classes
(tests/golden/realdata-4.4.0/manifests.tar.xz).

    python examples/make_flights_manifest.py
"""

from __future__ import annotations

import hashlib
import json
import struct
import tarfile
from pathlib import Path
from typing import Any

from kafka.record import MemoryRecords

EXAMPLES = Path(__file__).resolve().parent
FLIGHTS = EXAMPLES / "flights"
KAFKA_MANIFESTS = EXAMPLES.parent / "tests" / "golden" / "realdata-4.4.0" / "manifests.tar.xz"
VALUES_SHA256 = "sha256 over the sha256 in hex of each value, in offset order; a null value is the word null"


def length_prefixed(data: bytes | None) -> bytes:
    """Return the data with its length as an int32 before it, or only the length -1 for null."""
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def canonical_record(record: Any) -> bytes:
    """Return the bytes of one record that are hashed for Kafka's manifests."""
    parts = [struct.pack(">qq", record.offset, record.timestamp)]
    parts += [length_prefixed(record.key), length_prefixed(record.value), struct.pack(">i", len(record.headers))]
    for key, value in record.headers:
        parts += [length_prefixed(key.encode()), length_prefixed(value)]
    return b"".join(parts)


def verified_batches(log: bytes, expected: list[dict[str, Any]], where: str) -> list[list[Any]]:
    """Return the records of each batch, after checking that Kafka's classes read the same ones."""
    batches = []
    reader = MemoryRecords(log)
    for entry in expected:
        batch = reader.next_batch()
        place = f"{where} position {entry['position']}"
        if batch is None or not batch.validate_crc():
            raise SystemExit(f"{place}: no batch, or its CRC is wrong")
        records = list(batch)
        found = hashlib.sha256(b"".join(map(canonical_record, records))).hexdigest()
        if found != entry["records_sha256"]:
            raise SystemExit(f"{place}: records have sha256 {found}, Kafka's manifest says {entry['records_sha256']}")
        batches.append(records)
    if reader.has_next():
        raise SystemExit(f"{where}: batches beyond the {len(expected)} that Kafka's manifest lists")
    return batches


def value_digest(value: bytes | None) -> bytes:
    """Return the bytes that one value adds to the checksum."""
    return b"null" if value is None else hashlib.sha256(value).hexdigest().encode()


def describe_partition(directory: Path, kafka: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest entry of one partition."""
    digest = hashlib.sha256()
    records = log_bytes = value_bytes = 0
    next_offset = 0
    for file in kafka["files"]:
        if file["kind"] != "log":
            continue
        log = (directory / file["name"]).read_bytes()
        log_bytes += len(log)
        for batch in verified_batches(log, file["batches"], f"{directory.name}/{file['name']}"):
            for record in batch:
                digest.update(value_digest(record.value))
                value_bytes += len(record.value or b"")
                records += 1
                next_offset = record.offset + 1
    return {
        "partition": int(directory.name.rpartition("-")[2]),
        "records": records,
        "log_end_offset": next_offset,
        "log_bytes": log_bytes,
        "value_bytes": value_bytes,
        "values_sha256": digest.hexdigest(),
    }


def main() -> None:
    """Check all batches against Kafka's manifests and write the manifest of the demo."""
    with tarfile.open(KAFKA_MANIFESTS) as archive:
        members = {Path(member.name).stem: archive.extractfile(member) for member in archive if member.isfile()}
        kafka = {name: json.load(file) for name, file in members.items() if file and name.startswith("flights-lz4-")}
    partitions = [describe_partition(FLIGHTS / name, kafka[name]) for name in sorted(kafka)]
    manifest = {
        "topic": "flights-lz4",
        "written_by": "Apache Kafka 4.4.0",
        "values_sha256": VALUES_SHA256,
        "records": sum(entry["records"] for entry in partitions),
        "partitions": partitions,
    }
    (FLIGHTS / "MANIFEST.json").write_text(json.dumps(manifest, indent=2) + "\n")


if __name__ == "__main__":
    main()
