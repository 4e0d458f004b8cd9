"""What the UDFs of kstore.spark.udfs do with an Arrow array in a worker, beside Python functions over aiokafka."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
from aiokafka.record._crecords import MemoryRecords

from bench.bench_builder import aiokafka_builder, moved
from bench.codec_alone import payloads
from bench.common import MIB, Case, Contestant, Settings, interleaved, require_equal, without_result
from bench.data import PartitionSpec, partition
from kstore.spark import batch_arrays

KSTORE = {"unpack": "kstore, unpack_batches", "pack": "kstore, pack_batch"}
AIOKAFKA = {"unpack": "aiokafka in a Python UDF, unpack", "pack": "aiokafka in a Python UDF, pack"}
FIELDS = ("key", "value", "offset", "timestamp")
BATCH_OVERHEAD = 61
# Spark gives a worker at most 10,000 values at once; so many bytes are more usual than so many batches of 16 KiB.
MOST_ARRAY_BYTES = 8 * MIB
RECORD_TYPE = pa.list_(
    pa.struct(
        [("key", pa.binary()), ("value", pa.binary()), ("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC"))]
    )
)


def unpack_with_kstore(values: pa.Array) -> pa.Array:
    """Return the records of each value by kstore."""
    return batch_arrays.unpack(values, FIELDS, is_permissive=False)


def unpack_with_aiokafka(values: pa.Array) -> pa.Array:
    """Return the records of each value by aiokafka, CRC checked."""
    lists: list[list[dict[str, Any]]] = []
    for value in values.to_pylist():
        rows: list[dict[str, Any]] = []
        records = MemoryRecords(value)
        while (batch := records.next_batch()) is not None:
            if not batch.validate_crc():
                raise ValueError("aiokafka found a wrong CRC")
            rows += [
                {"key": row.key, "value": row.value, "offset": row.offset, "timestamp": row.timestamp * 1000}
                for row in batch
            ]
        lists.append(rows)
    return pa.array(lists, RECORD_TYPE)


def pack_with_kstore(lists: pa.Array) -> pa.Array:
    """Return one batch for each list by kstore."""
    return batch_arrays.pack(lists, base_offset=0)


def pack_with_aiokafka(lists: pa.Array) -> pa.Array:
    """Return one batch for each list by aiokafka's compiled builder, leader epoch -1 as kstore writes it."""
    batches: list[bytes] = []
    for rows in lists.to_pylist():
        builder = aiokafka_builder(MIB)
        for number, row in enumerate(rows):
            builder.append(number, row["timestamp"], row["key"], row["value"], [])
        batches.append(moved(builder.build(), base_offset=0))
    return pa.array(batches, pa.binary())


def values_of(segment: memoryview) -> pa.Array:
    """Give the batches of a segment as the values of an array, one in each."""
    values: list[bytes] = []
    position = 0
    for payload in payloads(segment):
        end = position + BATCH_OVERHEAD + len(payload)
        values.append(bytes(segment[position:end]))
        position = end
        if position > MOST_ARRAY_BYTES:
            break
    return pa.array(values, pa.binary())


def lists_to_pack(records: pa.ListArray) -> pa.ListArray:
    """Give the same records with timestamps in ms and without offsets, as pack_batch takes them too."""
    rows = records.values
    timestamps = rows.field("timestamp").cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    columns = {"key": rows.field("key"), "value": rows.field("value"), "timestamp": timestamps}
    structs = pa.StructArray.from_arrays(list(columns.values()), names=list(columns))
    return pa.ListArray.from_arrays(records.offsets, structs)


def cases_of(value_bytes: int, settings: Settings) -> Iterator[Case]:
    """Check that both give the same arrays, then time them in turn."""
    spec = PartitionSpec(name="bench-0", value_bytes=value_bytes, segment_bytes=settings.segment_bytes)
    values = values_of(memoryview(partition(spec, settings.data_directory).log_files[0].read_bytes()))
    records = unpack_with_kstore(values)
    lists = lists_to_pack(records)
    for name, array, by_kstore, by_aiokafka in (
        ("unpack", values, unpack_with_kstore, unpack_with_aiokafka),
        ("pack", lists, pack_with_kstore, pack_with_aiokafka),
    ):
        outputs = {KSTORE[name]: by_kstore(array).to_pylist(), AIOKAFKA[name]: by_aiokafka(array).to_pylist()}
        same = {who: output == outputs[AIOKAFKA[name]] for who, output in outputs.items()}
        require_equal(f"{name} of {value_bytes}-byte values", dict(same))
        count = len(records.values)
        title = f"UDFs, {name}, {value_bytes}-byte values: {count} records in {len(values)} batches"
        case = Case(title=title, unit="rec", bytes_per_unit=values.nbytes / count)
        case.samples = interleaved(
            [
                Contestant(AIOKAFKA[name], without_result(partial(by_aiokafka, array)), count),
                Contestant(KSTORE[name], without_result(partial(by_kstore, array)), count),
            ],
            settings,
        )
        case.add_ratio(KSTORE[name], AIOKAFKA[name])
        yield case


def run(settings: Settings) -> Iterator[Case]:
    """Time both functions at both value sizes; nothing is promised for them."""
    for value_bytes in (100, 1000):
        yield from cases_of(value_bytes, settings)
