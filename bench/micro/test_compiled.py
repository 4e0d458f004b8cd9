"""Goal: the time of each compiled call alone, so that a change that slows one is seen.
Method: pytest-benchmark on data of a fixed seed in memory, or in files of the page cache; the result is checked once
before it is timed."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import crc32c
import numpy as np
import pytest

from bench.core_decode import columns_of
from kstore import _core
from kstore.log.files.indexes import OffsetIndex
from kstore.log.write.writable_log import WritableLog
from kstore.producer import BufferPool
from kstore.record import MemoryRecords, MemoryRecordsBuilder
from kstore.store.opening import open_log

VALUE_BYTES = 100
RECORDS_PER_BATCH = 100
BATCHES = 100
ENTRIES = 100_000
TARGETS = 10_000
POOLED_BYTES = 16 * 1024


def batch_of(base_offset: int) -> bytes:
    """A batch of 100 records with keys of 10 bytes and values of 100."""
    draw = random.Random(base_offset)
    builder = MemoryRecordsBuilder(base_offset=base_offset)
    for number in range(RECORDS_PER_BATCH):
        builder.append(
            value=draw.randbytes(VALUE_BYTES), key=b"%010d" % number, timestamp_ms=1_700_000_000_000 + number
        )
    return bytes(builder.build().buffer)


@pytest.fixture(scope="module")
def batch() -> bytes:
    return batch_of(0)


@pytest.fixture(scope="module")
def segment() -> memoryview:
    return memoryview(b"".join(batch_of(number * RECORDS_PER_BATCH) for number in range(BATCHES)))


@pytest.fixture(scope="module")
def varints() -> tuple[bytes, list[int], list[int]]:
    """The varints of a thousand numbers of all sizes, where each starts, and the numbers."""
    draw = random.Random(42)
    numbers = [draw.randrange(-(2 ** draw.randrange(1, 32)), 2 ** draw.randrange(1, 31)) for _ in range(1000)]
    numbers = [min(max(number, -(2**31)), 2**31 - 1) for number in numbers]
    encoded = [_core.encode_varint(number) for number in numbers]
    return b"".join(encoded), [0, *accumulate(map(len, encoded))][:-1], numbers


@pytest.fixture(scope="module")
def offset_index() -> OffsetIndex:
    entries = np.empty((ENTRIES, 2), ">i4")
    entries[:, 0] = np.arange(1, ENTRIES + 1) * 10
    entries[:, 1] = np.arange(ENTRIES) * 4096
    return OffsetIndex(entries.tobytes(), base_offset=0, path="")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WritableLog]:
    with open_log(tmp_path / "micro-0", "a") as opened:
        yield opened


@pytest.mark.parametrize("count", [1000])
def test_decode_varint(benchmark: Any, varints: tuple[bytes, list[int], list[int]], count: int) -> None:
    data, positions, numbers = varints
    assert len(positions) == count

    def decode_each() -> list[int]:
        return [_core.decode_varint(data, position)[0] for position in positions]

    assert decode_each() == numbers
    benchmark(decode_each)


@pytest.mark.parametrize("count", [1000])
def test_encode_varint(benchmark: Any, varints: tuple[bytes, list[int], list[int]], count: int) -> None:
    data, _, numbers = varints
    assert len(numbers) == count

    def encode_each() -> list[bytes]:
        return [_core.encode_varint(number) for number in numbers]

    assert b"".join(encode_each()) == data
    benchmark(encode_each)


@pytest.mark.parametrize("size", [64, 16 * 1024])
def test_crc32c(benchmark: Any, size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert _core.crc32c(data) == crc32c.crc32c(data)
    benchmark(_core.crc32c, data)


def test_read_header(benchmark: Any, batch: bytes) -> None:
    header = _core.read_header(batch, position=0)
    assert (header.base_offset, header.last_offset, header.size_in_bytes) == (0, RECORDS_PER_BATCH - 1, len(batch))
    benchmark(_core.read_header, batch, position=0)


@pytest.mark.parametrize("binary", ["copy", "view"])
def test_decode_plain_rows(benchmark: Any, segment: memoryview, binary: Any) -> None:
    def decode() -> int:
        return sum(columns.row_count for columns in columns_of(segment, binary))

    assert decode() == BATCHES * RECORDS_PER_BATCH
    benchmark(decode)


def test_iterate_records(benchmark: Any, segment: memoryview) -> None:
    records = MemoryRecords(segment)

    def count_bytes() -> int:
        return sum(len(record.value or b"") for record in records)

    assert count_bytes() == BATCHES * RECORDS_PER_BATCH * VALUE_BYTES
    benchmark(count_bytes)


def test_search_offset_index_one_by_one(benchmark: Any, offset_index: OffsetIndex) -> None:
    targets = [random.Random(7).randrange(10 * ENTRIES) for _ in range(TARGETS)]

    def search() -> list[int]:
        return list(map(offset_index.slot_of_offset, targets))

    assert search() == [target // 10 - 1 for target in targets]
    benchmark(search)


def test_search_offset_index_by_an_array(benchmark: Any, offset_index: OffsetIndex) -> None:
    draw = random.Random(7)
    targets = array("q", (draw.randrange(10 * ENTRIES) for _ in range(TARGETS)))
    assert offset_index.slots_of_offsets(targets).tolist() == [target // 10 - 1 for target in targets]
    benchmark(offset_index.slots_of_offsets, targets)


def test_append_as_leader(benchmark: Any, log: WritableLog, batch: bytes) -> None:
    records = MemoryRecords(batch)
    assert log.append(records).last_offset == RECORDS_PER_BATCH - 1
    benchmark(log.append, records)


def test_append_as_follower(benchmark: Any, log: WritableLog) -> None:
    # A batch for each round, since its offsets must go on.
    coming = map(MemoryRecords, map(batch_of, range(0, 10**9, RECORDS_PER_BATCH)))
    assert log.append_as_follower(next(coming)).last_offset == RECORDS_PER_BATCH - 1
    benchmark.pedantic(log.append_as_follower, setup=lambda: ((next(coming),), {}), rounds=2000)


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_build_batch(benchmark: Any, compression: Any) -> None:
    values = [random.Random(number).randbytes(VALUE_BYTES) for number in range(RECORDS_PER_BATCH)]

    def build() -> MemoryRecords:
        builder = MemoryRecordsBuilder(compression=compression)
        for number, value in enumerate(values):
            builder.append(value=value, key=b"key", timestamp_ms=number)
        return builder.build()

    assert [record.value for record in build()] == values
    benchmark(build)


def test_allocate_and_deallocate(benchmark: Any) -> None:
    pool = BufferPool(1024 * 1024, POOLED_BYTES)
    allocate, deallocate = pool.allocate, pool.deallocate

    def cycle() -> None:
        deallocate(allocate(POOLED_BYTES, max_time_to_block_ms=0))

    cycle()
    assert pool.available_memory == pool.memory
    benchmark(cycle)
