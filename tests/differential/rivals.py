"""The other Python readers of all magics and builders of magic 2 batches, under one small interface."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from aiokafka.record import default_records as aiokafka_batches
from aiokafka.record import memory_records as aiokafka_memory

from tests.reference import codec as reference
from tests.reference import codecs as codecs
from tests.reference.codec import Record

# kafka-python reads its protocol files by a deprecated call while it is imported.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import codec as kafka_python_codec
    from kafka.record import default_records as kafka_python_batches
    from kafka.record import memory_records as kafka_python_memory


class Seen(NamedTuple):
    """What every reader tells of a record."""

    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Rival(NamedTuple):
    """memory_records: class that iterates a buffer; builder: class that makes one batch; codecs: those it knows."""

    memory_records: Callable[[bytes], Any]
    builder: Callable[..., Any]
    codecs: tuple[int, ...]


ALL_CODECS = (codecs.NONE, codecs.GZIP, codecs.SNAPPY, codecs.LZ4, codecs.ZSTD)
KAFKA_PYTHON_CODECS = tuple(codec for codec in ALL_CODECS if codec != codecs.SNAPPY or kafka_python_codec.has_snappy())
RIVALS = {
    "aiokafka compiled": Rival(
        aiokafka_memory._MemoryRecordsCython, aiokafka_batches._DefaultRecordBatchBuilderCython, ALL_CODECS
    ),
    "aiokafka pure": Rival(aiokafka_memory._MemoryRecordsPy, aiokafka_batches._DefaultRecordBatchBuilderPy, ALL_CODECS),
    "kafka-python": Rival(
        kafka_python_memory.MemoryRecords, kafka_python_batches.DefaultRecordBatchBuilder, KAFKA_PYTHON_CODECS
    ),
}


def read(rival: Rival, data: bytes) -> list[Seen]:
    """All records of a run of batches; every CRC must be right. V0 has no timestamps, which some tell by None."""
    out = []
    memory = rival.memory_records(data)
    while (batch := memory.next_batch()) is not None:
        assert batch.validate_crc()
        for r in batch:
            stamp, kind = (-1 if field is None else field for field in (r.timestamp, r.timestamp_type))
            out.append(Seen(r.offset, stamp, kind, r.key, r.value, tuple(map(tuple, r.headers))))
    return out


class XxHash:
    """The part of the xxhash package that kafka-python uses."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def digest(self) -> bytes:
        return codecs.xxh32(self.data).to_bytes(4, "big")


class Snappy:
    """The part of the snappy package that kafka-python uses."""

    @staticmethod
    def decompress(data: bytes) -> bytes:
        return codecs.snappy_decompress_raw(data, 1 << 24)


class Xxhash:
    xxh32 = XxHash


def stand_in_for_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give kafka-python the reference codec where it asks for packages that are not installed."""
    monkeypatch.setattr(kafka_python_codec, "snappy", Snappy)
    monkeypatch.setattr(kafka_python_codec, "xxhash", Xxhash)


def seen(record: Record) -> Seen:
    """A reference record as a rival shows it; header keys must be UTF-8."""
    headers = tuple((key.decode(), value) for key, value in record.headers)
    return Seen(record.offset, record.timestamp_ms, record.timestamp_type, record.key, record.value, headers)


def build(rival: Rival, records: Sequence[Record], *, codec: int, producer_id: int = -1) -> bytes:
    """One batch as a producer sends it: base offset 0, so the offsets of records are its deltas."""
    is_idempotent = producer_id >= 0
    builder = rival.builder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=producer_id,
        producer_epoch=0 if is_idempotent else -1,
        base_sequence=5 if is_idempotent else -1,
        batch_size=1 << 24,
    )
    for record in records:
        headers = [(key.decode(), value) for key, value in record.headers]
        added = builder.append(record.offset, record.timestamp_ms, record.key, record.value, headers)
        assert added is not None
    return bytes(builder.build())


def with_base_offset(data: bytes, base_offset: int) -> bytes:
    """What a broker does to a batch on append: offset and leader epoch, outside the CRC."""
    header = reference.Header.unpack(data)
    assert header.base_offset == 0
    return base_offset.to_bytes(8, "big") + data[8:]
