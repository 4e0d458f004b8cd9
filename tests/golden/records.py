"""Records of kstore in the forms of the manifests: field by field, and the canonical hash."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from kstore.record import Record
from tests.golden.manifests import CanonicalRecord, ExpectedRecord, Header, canonical_sha256, digest_if_long

CONTROL_TYPES = {0: "ABORT", 1: "COMMIT", 2: "LEADER_CHANGE", 3: "SNAPSHOT_HEADER", 4: "SNAPSHOT_FOOTER"}


def header_bytes(record: Record) -> tuple[Header, ...]:
    return tuple((key.encode("utf-8", "surrogateescape"), value) for key, value in record.headers)


def control_type(record: Record) -> str | None:
    """Return Kafka's name of a control record's type (int16 version, int16 type in its key), None for data."""
    if not record.is_control:
        return None
    return CONTROL_TYPES[struct.unpack(">hh", record.key or b"")[1]]


def as_listed(record: Record) -> ExpectedRecord:
    return ExpectedRecord(
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        sequence=record.sequence,
        key=digest_if_long(record.key),
        value=digest_if_long(record.value),
        headers=header_bytes(record),
        control_type=control_type(record),
    )


def canonical(record: Record) -> CanonicalRecord:
    return record.offset, record.timestamp_ms, record.key, record.value, header_bytes(record)


def records_sha256(records: Iterable[Record]) -> str:
    return canonical_sha256(canonical(record) for record in records)
