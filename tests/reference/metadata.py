"""The records of `__cluster_metadata` that adoption writes, decoded by hand, field by field as Kafka has them."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

from tests.reference.codec import read_batches

HEADER, FOOTER = b"\0\0\0\3", b"\0\0\0\4"


class Fields:
    """Reads the fields of one record in the flexible encoding (KIP-482)."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        assert size <= len(self.data) - self.at, (size, self.at, self.data)
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, layout: str) -> int:
        (value,) = struct.unpack(f">{layout}", self.take(struct.calcsize(f">{layout}")))
        return int(value)

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def text(self) -> str | None:
        size = self.varint()
        return None if size == 0 else self.take(size - 1).decode()

    def uuid(self) -> UUID:
        return UUID(bytes=self.take(16))

    def numbers(self) -> list[int]:
        return [self.number("i") for _ in range(self.varint() - 1)]

    def uuids(self) -> list[UUID]:
        return [self.uuid() for _ in range(self.varint() - 1)]

    def tags(self) -> dict[int, bytes]:
        return {self.varint(): self.take(self.varint()) for _ in range(self.varint())}

    def end(self) -> None:
        assert self.at == len(self.data), (self.at, self.data)


def read_record(value: bytes) -> tuple[str, dict[str, Any]]:
    """The name and fields of one of the records that adoption writes."""
    fields = Fields(value)
    frame, kind, version = fields.varint(), fields.varint(), fields.varint()
    assert frame == 1
    name, read = {
        (0, 3): ("broker", _broker),
        (2, 0): ("topic", _topic),
        (3, 1): ("partition", _partition),
        (4, 0): ("config", _config),
        (12, 0): ("feature", _feature),
        (15, 0): ("producer ids", _producer_ids),
    }[kind, version]
    found = read(fields)
    fields.end()
    return name, found


def _broker(fields: Fields) -> dict[str, Any]:
    found: dict[str, Any] = {"id": fields.number("i"), "is_migrating": fields.number("b")}
    found |= {"incarnation": fields.uuid(), "epoch": fields.number("q")}
    found |= {"endpoints": fields.varint() - 1, "features": fields.varint() - 1, "rack": fields.text()}
    found |= {"fenced": fields.number("b"), "in_shutdown": fields.number("b")}
    (tag,) = [Fields(data) for number, data in fields.tags().items() if number == 0]
    return found | {"directories": tag.uuids()}


def _topic(fields: Fields) -> dict[str, Any]:
    found = {"name": fields.text(), "id": fields.uuid()}
    assert not fields.tags()
    return found


def _partition(fields: Fields) -> dict[str, Any]:
    found: dict[str, Any] = {"number": fields.number("i"), "id": fields.uuid()}
    found |= {name: fields.numbers() for name in ("replicas", "isr", "removing", "adding")}
    found |= {name: fields.number("i") for name in ("leader", "leader_epoch", "partition_epoch")}
    found |= {"directories": fields.uuids()}
    assert not fields.tags()
    return found


def _config(fields: Fields) -> dict[str, Any]:
    found = {"resource": fields.number("b"), "of": fields.text(), "name": fields.text(), "value": fields.text()}
    assert not fields.tags()
    return found


def _feature(fields: Fields) -> dict[str, Any]:
    found = {"name": fields.text(), "level": fields.number("h")}
    assert not fields.tags()
    return found


def _producer_ids(fields: Fields) -> dict[str, Any]:
    found = {"broker": fields.number("i"), "epoch": fields.number("q"), "next": fields.number("q")}
    assert not fields.tags()
    return found


def read_snapshot(data: bytes) -> list[tuple[str, dict[str, Any]]]:
    """The records of a snapshot, whose offsets count from 0 under epoch 0, between its header and its footer."""
    records, offset, controls = [], 0, []
    for batch in read_batches(data):
        assert batch.header.partition_leader_epoch == 0
        for record in batch.records:
            assert record.offset == offset
            offset += 1
            if record.is_control:
                controls.append((offset - 1, record.key))
            else:
                assert record.key is None
                records.append(read_record(record.value or b""))
    assert controls == [(0, HEADER), (offset - 1, FOOTER)]
    return records
