"""Building of 16 KiB batches, record by record and from columns: one thread, uncompressed, all outputs equal.

Measured: batches of 16 KiB without codec from the records of the same data: `MemoryRecordsBuilder`, record by record,
and `pack_columns` from columns, in runs of 256 KiB (the default).
Compared with: aiokafka's compiled builder, record by record; the encoder of `limit.c` from the same columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice

import numpy as np
from aiokafka.record._crecords import DefaultRecordBatchBuilder
from numpy.typing import NDArray

from bench.common import MIB, Case, Contestant, Settings, exhausting, interleaved, require_equal
from bench.data import BATCH_BYTES, records
from bench.limit import PADDING_BYTES, LimitEncoder, RecordArrays, compile_limit
from kstore.record import MemoryRecords, MemoryRecordsBuilder
from kstore.record.packing import DEFAULT_RUN_BYTES, BinaryColumn, Int64Column, RecordColumns, pack_columns

AIOKAFKA = "aiokafka, append"
APPEND = "kstore, append"
PACK = "kstore, pack_columns"
LIMIT = "limit.c, encode"
TARGETS_OF_APPEND = {100: 1.3, 1000: 4.0}
TARGETS_OF_PACK = {100: 6.0, 1000: 5.5}
TARGET_OF_LIMIT = 0.6
SEED = 42
RUN_BYTES = DEFAULT_RUN_BYTES

Rows = list[tuple[int, int, bytes, bytes]]


def batches_of(value_bytes: int, settings: Settings) -> list[Rows]:
    """Return the records of the data set, grouped into batches of 16 KiB."""
    count = settings.segment_bytes // (value_bytes + 18)
    rows = list(islice(records(0, value_bytes=value_bytes, seed=SEED), count))
    batches: list[Rows] = []
    builder = None
    for row in rows:
        if builder is None or builder.append(len(batches[-1]), row[1], row[2], row[3], []) is None:
            builder = aiokafka_builder(BATCH_BYTES)
            builder.append(0, row[1], row[2], row[3], [])
            batches.append([])
        batches[-1].append(row)
    return batches


def aiokafka_builder(batch_size: int) -> DefaultRecordBatchBuilder:
    """Return aiokafka's compiled builder, for an uncompressed batch without producer id."""
    return DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=batch_size,
    )


def append_with_aiokafka(batches: list[Rows]) -> Iterator[bytearray]:
    """Build each batch. aiokafka takes offset deltas and leaves base offset and leader epoch 0."""
    for rows in batches:
        builder = aiokafka_builder(MIB)
        first = rows[0][0]
        for offset, timestamp_ms, key, value in rows:
            builder.append(offset - first, timestamp_ms, key, value, [])
        yield builder.build()


def append_with_kstore(batches: list[Rows]) -> Iterator[MemoryRecords]:
    """Build each batch, with leader epoch -1."""
    for rows in batches:
        builder = MemoryRecordsBuilder(base_offset=rows[0][0])
        for _, timestamp_ms, key, value in rows:
            builder.append(timestamp_ms=timestamp_ms, key=key, value=value)
        yield builder.build()


def padded_bytes(parts: list[bytes]) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Return byte strings as Arrow offsets and data, with padding after the data."""
    ends = np.zeros(len(parts) + 1, np.int32)
    np.cumsum([len(part) for part in parts], out=ends[1:])
    return ends, np.frombuffer(b"".join([*parts, bytes(PADDING_BYTES)]), np.uint8)


def arrays_of(batches: list[Rows]) -> RecordArrays:
    """Return the records as columns."""
    rows = [row for batch in batches for row in batch]
    key_end, keys = padded_bytes([row[2] for row in rows])
    value_end, values = padded_bytes([row[3] for row in rows])
    return RecordArrays(np.array([row[1] for row in rows], np.int64), key_end, value_end, keys, values)


def columns_of(arrays: RecordArrays) -> RecordColumns:
    """Return the same columns in the form that pack_columns takes."""
    return RecordColumns(
        row_count=len(arrays.timestamp_ms),
        timestamp=Int64Column(arrays.timestamp_ms),
        key=BinaryColumn(arrays.key_end, arrays.keys),
        value=BinaryColumn(arrays.value_end, arrays.values),
    )


def moved(batch: bytearray, *, base_offset: int) -> bytes:
    """Return a batch of aiokafka with another base offset and leader epoch -1; the CRC covers neither field."""
    return base_offset.to_bytes(8, "big") + bytes(batch[8:12]) + b"\xff" * 4 + bytes(batch[16:])


def case_of(value_bytes: int, settings: Settings) -> Case:
    """Check that all contestants write the same batches, then time them in interleaved rounds."""
    batches = batches_of(value_bytes, settings)
    arrays = arrays_of(batches)
    columns, count = columns_of(arrays), len(arrays.timestamp_ms)
    pack = partial(pack_columns, columns, batch_bytes=BATCH_BYTES, run_bytes=RUN_BYTES)
    pairs = zip(batches, append_with_aiokafka(batches), strict=True)
    expected = b"".join(moved(batch, base_offset=rows[0][0]) for rows, batch in pairs)
    outputs: dict[str, object] = {
        AIOKAFKA: expected,
        APPEND: b"".join(map(bytes, append_with_kstore(batches))),
        PACK: b"".join(map(bytes, pack())),
    }
    contestants = [
        Contestant(AIOKAFKA, exhausting(partial(append_with_aiokafka, batches)), count),
        Contestant(APPEND, exhausting(partial(append_with_kstore, batches)), count),
        Contestant(PACK, exhausting(pack), count),
    ]
    library = compile_limit(settings)
    if library is not None:
        limit = LimitEncoder(library, arrays, batch_bytes=BATCH_BYTES, out_bytes=RUN_BYTES)
        outputs[LIMIT] = b"".join(limit.out[:size].tobytes() for size in limit.runs())
        contestants.append(Contestant(LIMIT, exhausting(limit.runs), count))
    same = {name: output == expected for name, output in outputs.items()}
    require_equal(f"batches of {value_bytes}-byte values", dict(same))

    title = f"Build, {value_bytes}-byte values: {count} records, {len(batches)} batches, {len(expected)} bytes"
    case = Case(title=title, unit="rec", bytes_per_unit=len(expected) / count)
    case.samples = interleaved(contestants, settings)
    case.add_ratio(APPEND, AIOKAFKA, target=TARGETS_OF_APPEND[value_bytes])
    case.add_ratio(PACK, AIOKAFKA, target=TARGETS_OF_PACK[value_bytes])
    case.add_ratio(PACK, LIMIT, target=TARGET_OF_LIMIT)
    case.add_ratio(LIMIT, AIOKAFKA)
    return case


def run(settings: Settings) -> Iterator[Case]:
    """Time the builders at both value sizes."""
    for value_bytes in TARGETS_OF_PACK:
        yield case_of(value_bytes, settings)
