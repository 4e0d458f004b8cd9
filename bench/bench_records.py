"""Iteration over Record objects, reading key and value: one thread, CRC checked, 16 KiB batches and plain messages.

Measured: `Record` objects by iteration of `MemoryRecords`, key and value touched, CRC checked: a 64 MiB segment of 16
KiB batches, and 16 MiB of plain messages of magic 1.
Compared with: aiokafka's compiled reader in the simplest loop, the same two fields touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Protocol

from aiokafka.record._crecords import MemoryRecords as AiokafkaRecords

from bench.bench_legacy import segment_of
from bench.common import Case, Contestant, Settings, interleaved, require_equal
from bench.data import PartitionSpec, partition
from kstore.record import MemoryRecords

AIOKAFKA = "aiokafka, key and value"
KSTORE = "kstore, key and value"
SEED = 42
TARGETS = {100: 1.5, 1000: 3.0}


class _Record(Protocol):
    @property
    def offset(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...


def records_of_aiokafka(segment: bytes) -> Iterable[_Record]:
    """Yield the records of each batch, after checking its CRC."""
    records = AiokafkaRecords(segment)
    while (batch := records.next_batch()) is not None:
        if not batch.validate_crc():
            raise ValueError("aiokafka found a wrong CRC")
        yield from batch


def touch_with_aiokafka(segment: bytes) -> None:
    """Read key and value of each record, in the simplest loop that aiokafka's reader allows."""
    records = AiokafkaRecords(segment)
    while (batch := records.next_batch()) is not None:
        if not batch.validate_crc():
            raise ValueError("aiokafka found a wrong CRC")
        for record in batch:
            _ = record.key
            _ = record.value


def touch_with_kstore(segment: bytes) -> None:
    """Read key and value of each record."""
    for record in MemoryRecords(segment):
        _ = record.key
        _ = record.value


def fields_of(records: Iterable[_Record]) -> tuple[int, int]:
    """Return the number of records and a hash of their offsets, keys and values."""
    count = fields = 0
    for record in records:
        count += 1
        fields = hash((fields, record.offset, record.key, record.value))
    return count, fields


def case_of(name: str, segment: bytes, settings: Settings, *, value_bytes: int, target: float | None) -> Case:
    """Check that both read the same from one segment, then time them in interleaved rounds."""
    results = {AIOKAFKA: fields_of(records_of_aiokafka(segment)), KSTORE: fields_of(MemoryRecords(segment))}
    require_equal(f"records of {name}, {value_bytes}-byte values", dict(results))
    count = results[KSTORE][0]
    contestants = [
        Contestant(AIOKAFKA, partial(touch_with_aiokafka, segment), count),
        Contestant(KSTORE, partial(touch_with_kstore, segment), count),
    ]
    title = f"Record objects, {name}, {value_bytes}-byte values: {count} records, {len(segment)} bytes"
    case = Case(title=title, unit="rec", bytes_per_unit=len(segment) / count)
    case.samples = interleaved(contestants, settings)
    case.add_ratio(KSTORE, AIOKAFKA, target=target)
    return case


def run(settings: Settings) -> Iterator[Case]:
    """Time batches at both value sizes, then messages of magic 1, which have no target."""
    for value_bytes, target in TARGETS.items():
        spec = PartitionSpec(name="bench-0", value_bytes=value_bytes, segment_bytes=settings.segment_bytes, seed=SEED)
        segment = partition(spec, settings.data_directory).log_files[0].read_bytes()
        yield case_of("magic 2", segment, settings, value_bytes=value_bytes, target=target)
    for value_bytes in TARGETS:
        segment, _ = segment_of(value_bytes, "none", settings.segment_bytes // 4)
        yield case_of("magic 1", segment, settings, value_bytes=value_bytes, target=None)
