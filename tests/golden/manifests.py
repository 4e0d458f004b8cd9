"""What Kafka's own classes saw in each file: the manifests, typed, and the canonical hash of records."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from tests.golden.sets import GoldenPartition, unpack

LONGEST_VALUE_IN_FULL = 4096


class Digest(NamedTuple):
    """Stands for bytes too long to be listed."""

    length: int
    sha256: str


Header = tuple[bytes, bytes | None]


class ExpectedRecord(NamedTuple):
    """One record as Kafka's iterator gave it; control_type is Kafka's name, None for data."""

    offset: int
    timestamp_ms: int
    sequence: int
    key: bytes | Digest | None
    value: bytes | Digest | None
    headers: tuple[Header, ...]
    control_type: str | None


@dataclass(frozen=True)
class ExpectedBatch:
    """One batch (or one shallow entry of magic 0 and 1); records is None in per-batch manifests."""

    position: int
    size_in_bytes: int
    magic: int
    base_offset: int
    last_offset: int
    crc: int
    is_valid: bool
    codec: str
    timestamp_type: str
    base_timestamp_ms: int
    max_timestamp_ms: int
    record_count: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    is_transactional: bool
    is_control: bool
    partition_leader_epoch: int
    attributes: int
    delete_horizon_ms: int | None
    records: tuple[ExpectedRecord, ...] | None
    records_sha256: str | None


@dataclass(frozen=True)
class ExpectedLog:
    """One .log; valid_bytes is the end of the last whole entry."""

    name: str
    base_offset: int
    size_in_bytes: int
    valid_bytes: int
    batches: tuple[ExpectedBatch, ...]
    canonical_records_sha256: str


@dataclass(frozen=True)
class ExpectedIndex:
    """Entries without the trailing all-zero slots: (offset, position) or (timestamp ms, offset), offsets absolute."""

    name: str
    slots: int
    entries: tuple[tuple[int, int], ...]


class ExpectedProducer(NamedTuple):
    """One producer of a .snapshot, fields in the order of the file."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    current_txn_first_offset: int


class ExpectedAborted(NamedTuple):
    """One entry of a .txnindex."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True)
class ExpectedFile:
    """Name, size and sha256 of any file of a partition directory."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """Everything known of one partition directory."""

    files: tuple[ExpectedFile, ...]
    logs: tuple[ExpectedLog, ...]
    offset_indexes: tuple[ExpectedIndex, ...]
    time_indexes: tuple[ExpectedIndex, ...]
    snapshots: dict[str, tuple[ExpectedProducer, ...]]
    transaction_indexes: dict[str, tuple[ExpectedAborted, ...]]

    def batches(self) -> Iterator[ExpectedBatch]:
        for log in self.logs:
            yield from log.batches

    def records(self) -> Iterator[ExpectedRecord]:
        """Yield every record in log order, control records included."""
        for batch in self.batches():
            if batch.records is None:
                raise ValueError("this manifest lists no records")
            yield from batch.records

    @property
    def end_offset(self) -> int:
        """The offset after the last batch, or the last segment's base if that segment has none."""
        last = self.logs[-1]
        return last.batches[-1].last_offset + 1 if last.batches else last.base_offset


@lru_cache(maxsize=256)
def manifest(partition: GoldenPartition) -> Manifest:
    """Read one partition's manifest: manifests/[TREE/]PARTITION.json."""
    directory = unpack(partition.set_name, "manifests") / "manifests"
    path = directory / partition.tree / f"{partition.name}.json"
    if not path.exists():
        path = directory / f"{partition.name}.json"
    content = json.loads(path.read_text())
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for entry in sorted(content["files"], key=lambda entry: str(entry["name"])):
        by_kind.setdefault(entry["kind"], []).append(entry)
    return Manifest(
        files=tuple(ExpectedFile(entry["name"], entry["size"], entry["sha256"]) for entry in content["files"]),
        logs=tuple(_log(entry) for entry in by_kind["log"] if entry["name"].endswith(".log")),
        offset_indexes=tuple(_index(entry) for entry in by_kind.get("index", ())),
        time_indexes=tuple(_index(entry) for entry in by_kind.get("timeindex", ())),
        snapshots={entry["name"]: _producers(entry["producers"]) for entry in by_kind.get("snapshot", ())},
        transaction_indexes={entry["name"]: _aborted(entry["entries"]) for entry in by_kind.get("txnindex", ())},
    )


def _producers(entries: list[dict[str, int]]) -> tuple[ExpectedProducer, ...]:
    names = [name.removesuffix("_ms") for name in ExpectedProducer._fields]
    return tuple(ExpectedProducer(*(entry[name] for name in names)) for entry in entries)


def _aborted(entries: list[dict[str, int]]) -> tuple[ExpectedAborted, ...]:
    fields = ExpectedAborted._fields
    return tuple(ExpectedAborted(*(entry[name] for name in fields)) for entry in entries)


def _log(entry: dict[str, Any]) -> ExpectedLog:
    return ExpectedLog(
        name=entry["name"],
        base_offset=entry["base"],
        size_in_bytes=entry["size"],
        valid_bytes=entry["iterated_bytes"],
        batches=tuple(_batch(batch) for batch in entry["batches"]),
        canonical_records_sha256=entry["canonical_records_sha256"],
    )


def _index(entry: dict[str, Any]) -> ExpectedIndex:
    return ExpectedIndex(
        name=entry["name"],
        slots=entry["slots"],
        entries=tuple((first, second) for first, second in entry["entries"]),
    )


def _batch(entry: dict[str, Any]) -> ExpectedBatch:
    records = entry.get("records")
    return ExpectedBatch(
        position=entry["position"],
        size_in_bytes=entry["size"],
        magic=entry["magic"],
        base_offset=entry["base_offset"],
        last_offset=entry["last_offset"],
        crc=int(entry["crc"], 16),
        is_valid=entry["valid"],
        codec=entry["codec"],
        timestamp_type=entry["timestamp_type"],
        base_timestamp_ms=entry.get("base_timestamp_field", -1),
        max_timestamp_ms=entry["max_timestamp"],
        record_count=entry["count"],
        producer_id=entry.get("producer_id", -1),
        producer_epoch=entry.get("producer_epoch", -1),
        base_sequence=entry.get("base_sequence", -1),
        last_sequence=entry.get("last_sequence", -1),
        is_transactional=entry.get("transactional", False),
        is_control=entry.get("control", False),
        partition_leader_epoch=entry.get("leader_epoch", -1),
        attributes=int(entry.get("attributes_raw", "0"), 16),
        delete_horizon_ms=entry.get("delete_horizon_ms"),
        records=None if records is None else tuple(_record(record) for record in records),
        records_sha256=entry.get("records_sha256"),
    )


def _record(entry: dict[str, Any]) -> ExpectedRecord:
    return ExpectedRecord(
        offset=entry["offset"],
        timestamp_ms=entry["timestamp"],
        sequence=entry.get("sequence", -1),
        key=_bytes(entry["key"]),
        value=_bytes(entry["value"]),
        headers=tuple(_header(key, value) for key, value in entry.get("headers", ())),
        control_type=entry.get("control_type"),
    )


def _header(key: str, value: str | None) -> Header:
    return base64.b64decode(key), None if value is None else base64.b64decode(value)


def _bytes(entry: Any) -> bytes | Digest | None:
    if entry is None:
        return None
    if isinstance(entry, str):
        return base64.b64decode(entry)
    return Digest(entry["length"], entry["sha256"])


def digest_if_long(data: bytes | None) -> bytes | Digest | None:
    """Give bytes the form in which a manifest lists them."""
    if data is None or len(data) <= LONGEST_VALUE_IN_FULL:
        return data
    return Digest(len(data), hashlib.sha256(data).hexdigest())


CanonicalRecord = tuple[int, int, bytes | None, bytes | None, Iterable[Header]]


def canonical_sha256(records: Iterable[CanonicalRecord]) -> str:
    """Hash (offset, timestamp ms, key, value, headers) in the canonical form of the manifests.

    Per record: int64 offset, int64 timestamp, key, value, int32 header count, then each header's key and
    value; byte strings as int32 length and bytes, null as int32 -1; big-endian.
    """
    digest = hashlib.sha256()
    for offset, timestamp_ms, key, value, headers in records:
        header_list = list(headers)
        parts = [struct.pack(">qq", offset, timestamp_ms), _sized(key), _sized(value)]
        parts.append(struct.pack(">i", len(header_list)))
        parts.extend(_sized(part) for header in header_list for part in header)
        digest.update(b"".join(parts))
    return digest.hexdigest()


def _sized(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
