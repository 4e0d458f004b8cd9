"""`__cluster_metadata` of a root, written record by record."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kstore.record import MemoryRecordsBuilder, Record
from kstore.record.builder import with_kraft_control_record
from kstore.record.kraft import SnapshotFooterRecord
from kstore.record.schemas.metadata import METADATA_RECORDS
from kstore.wire.schema import encode_message, parse_schemas

TOPIC, CONFIG, REMOVE, BEGIN, END, ABORT = 2, 4, 9, 23, 24, 25
_SCHEMAS = parse_schemas(METADATA_RECORDS)


def metadata(type_id: int, version: int = 0, **fields: Any) -> bytes:
    """Return the value of a metadata record."""
    return bytes((1, type_id, version)) + encode_message(_SCHEMAS[type_id], fields, version=version)


def topic(name: str, topic_id: uuid.UUID) -> bytes:
    return metadata(TOPIC, name=name, topicId=topic_id)


def config(name: str, setting: str, value: str | None) -> bytes:
    return metadata(CONFIG, resourceType=2, resourceName=name, name=setting, value=value)


def batch_of(values: Iterable[bytes], *, base_offset: int = 0) -> bytes:
    builder = MemoryRecordsBuilder(base_offset=base_offset)
    for at, value in enumerate(values):
        builder.append(Record(offset=base_offset + at, timestamp_ms=1, value=value))
    return bytes(builder.build())


def write_metadata(root: Path, values: Iterable[bytes], *, base_offset: int = 0) -> Path:
    """Write the log of the metadata, and return its directory."""
    directory = root / "__cluster_metadata-0"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{base_offset:020d}.log").write_bytes(batch_of(values, base_offset=base_offset))
    return directory


def write_snapshot(directory: Path, values: Iterable[bytes], *, end_offset: int, has_footer: bool = True) -> Path:
    """Write a snapshot of the metadata up to an offset, and return its path."""
    path = directory / f"{end_offset:020d}-0000000001.checkpoint"
    values = list(values)
    content = batch_of(values)
    if has_footer:
        content += bytes(
            with_kraft_control_record(
                SnapshotFooterRecord(), timestamp_ms=1, partition_leader_epoch=1, offset=len(values)
            )
        )
    path.write_bytes(content)
    return path
