"""Goal: columns become batches of the accumulator: all rows, in order, each in its partition, within the pool's memory.
Method: rows made of Python values, batches read back, partitions against the hash of each key alone."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Sequence
from itertools import accumulate
from random import Random
from typing import Any

import numpy as np
import pytest

from kstore._core import partition_for_key
from kstore.errors import (
    BufferExhaustedError,
    KStoreError,
    ProducerClosedError,
    ProducerTimeoutError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from kstore.producer.append_columns import append_columns
from kstore.producer.batches.accumulator import RecordAccumulator
from kstore.producer.batches.batch import ProducerBatch
from kstore.producer.batches.futures import AppendedBatch, ColumnsFuture
from kstore.producer.cluster import Cluster
from kstore.record.packing import BinaryColumn, HeadersColumn, Int64Column, RecordColumns
from tests.making.producing import (
    BATCH_BYTES,
    CLUSTER,
    NODE_1,
    NODE_2,
    TOPIC,
    TP_1,
    drain,
    finish,
    new_accumulator,
    put,
)

NODES = (NODE_1, NODE_2)


def column(values: Sequence[bytes | None]) -> BinaryColumn:
    """Make a column of Python values."""
    offsets = np.array([0, *accumulate(len(value or b"") for value in values)], dtype=np.int32)
    bits = np.packbits(np.array([value is not None for value in values], dtype=bool), bitorder="little")
    return BinaryColumn(offsets, b"".join(value or b"" for value in values), bits)


def rows(values: Sequence[bytes | None], keys: Sequence[bytes | None] | None = None, **columns: Any) -> RecordColumns:
    return RecordColumns(len(values), 5, key=None if keys is None else column(keys), value=column(values), **columns)


def append(
    accumulator: RecordAccumulator, columns: RecordColumns, partition: int | None = 0, **arguments: Any
) -> ColumnsFuture:
    arguments = {"cluster": CLUSTER, "max_time_to_block_ms": 0, "now_ms": 0, **arguments}
    return append_columns(accumulator, TOPIC, columns, partition=partition, **arguments)


def drain_all(accumulator: RecordAccumulator) -> list[ProducerBatch]:
    """Drain until nothing is left, and complete nothing."""
    batches = []
    while accumulator.has_undrained:
        batches += drain(accumulator, nodes=NODES)
    return batches


def records_by_partition(batches: Sequence[ProducerBatch]) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
    found: dict[int, list[tuple[bytes | None, bytes | None]]] = {}
    for batch in batches:
        found.setdefault(batch.topic_partition.partition, []).extend((r.key, r.value) for r in batch.records())
    return found


VALUES = [b"value %04d" % number for number in range(200)]


def test_rows_are_batches_of_the_given_partition_in_order() -> None:
    accumulator = new_accumulator()
    future = append(accumulator, rows(VALUES))
    batches = drain_all(accumulator)
    assert [value for _, value in records_by_partition(batches)[0]] == VALUES
    assert all(batch.estimated_size_in_bytes <= BATCH_BYTES for batch in batches)
    assert all(batch.estimated_size_in_bytes > BATCH_BYTES - 25 for batch in batches[:-1])
    assert not future.done()
    finish(accumulator, batches)
    ends = [0, *accumulate(batch.record_count for batch in batches)]
    assert future.result(0) == [
        AppendedBatch(0, first, batch.record_count) for first, batch in zip(ends, batches, strict=False)
    ]
    assert accumulator.pool.available_memory == accumulator.pool.memory


def test_rows_follow_what_waits_and_take_no_other_records() -> None:
    accumulator = new_accumulator()
    put(accumulator, value=b"before")
    append(accumulator, rows(VALUES[:1]))
    (result,) = put(accumulator, value=b"behind")
    assert result.new_batch_created
    assert [value for _, value in records_by_partition(drain_all(accumulator))[0]] == [b"before", VALUES[0], b"behind"]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_batches_are_compressed_when_they_are_drained(codec: str) -> None:
    accumulator = new_accumulator(compression=codec, batch_size=1024)
    future = append(accumulator, rows([b"again " * 5] * 100))
    batches = drain_all(accumulator)
    assert all(batch.is_compressed and batch.estimated_size_in_bytes < 400 for batch in batches)
    assert records_by_partition(batches)[0] == [(None, b"again " * 5)] * 100
    finish(accumulator, batches)
    assert sum(batch.record_count for batch in future.result(0)) == 100
    assert accumulator.pool.available_memory == accumulator.pool.memory


def test_full_batches_are_compressed_before_they_wait_for_the_sender() -> None:
    accumulator = new_accumulator(compression="lz4", batch_size=1024)
    append(accumulator, rows([b"again " * 5] * 100))
    *full, last = accumulator.queue_of(TP_1).copy()
    assert full
    assert not any(batch.builder.is_open for batch in full)
    assert last.builder.is_open
    batches = drain_all(accumulator)
    assert records_by_partition(batches)[0] == [(None, b"again " * 5)] * 100
    finish(accumulator, batches)
    assert accumulator.pool.available_memory == accumulator.pool.memory


def test_everything_of_a_row_is_kept() -> None:
    headers = HeadersColumn(
        np.array([0, 2, 2, 3], dtype=np.int32), column([b"a", b"b", b"c"]), column([b"1", None, b""])
    )
    timestamps = Int64Column(np.array([7000, 8000, 9000]))
    columns = RecordColumns(
        3,
        timestamps,
        key=column([None, b"", b"k"]),
        value=column([b"v", None, b""]),
        headers=headers,
        units_per_ms=1000,
    )
    accumulator = new_accumulator()
    append(accumulator, columns)
    (batch,) = drain_all(accumulator)
    assert [(r.timestamp_ms, r.key, r.value, tuple(r.headers)) for r in batch.records()] == [
        (7, None, b"v", (("a", b"1"), ("b", None))),
        (8, b"", None, ()),
        (9, b"k", b"", (("c", b""),)),
    ]


@pytest.mark.parametrize("seed", range(5))
def test_rows_go_where_their_keys_go_and_keep_their_order_there(seed: int) -> None:
    random = Random(seed)
    keys = [random.choice([None, b"", random.randbytes(random.randrange(9))]) for _ in VALUES]
    accumulator = new_accumulator()
    future = append(accumulator, rows(VALUES, keys), None)
    found = records_by_partition(drain_all(accumulator))
    expected: dict[int, list[tuple[bytes, bytes]]] = {}
    for key, value in zip(keys, VALUES, strict=True):
        if key is not None:
            expected.setdefault(partition_for_key(key, 3), []).append((key, value))
    assert {number: [row for row in got if row[0] is not None] for number, got in found.items()} == expected
    without = [value for key, value in zip(keys, VALUES, strict=True) if key is None]
    assert sorted(value for got in found.values() for key, value in got if key is None) == without
    assert future.appended_rows == len(VALUES)


def test_rows_without_keys_change_the_partition_between_batches() -> None:
    accumulator = new_accumulator(random=Random(1), memory=2**20)
    append(accumulator, rows(VALUES * 5), None)
    found = records_by_partition(drain_all(accumulator))
    assert set(found) == {0, 1, 2}
    assert sorted(value for got in found.values() for _, value in got) == sorted(VALUES * 5)


def test_no_rows_are_no_batches() -> None:
    accumulator = new_accumulator()
    for partition in (0, None):
        assert append(accumulator, rows([]), partition).result(0) == []
    assert not accumulator.has_incomplete


def test_row_above_the_batch_size_has_a_batch_of_its_own() -> None:
    accumulator = new_accumulator()
    values = [b"small", bytes(3 * BATCH_BYTES), b"small too"]
    append(accumulator, rows(values))
    batches = drain_all(accumulator)
    assert [value for _, value in records_by_partition(batches)[0]] == values
    finish(accumulator, batches)
    assert accumulator.pool.available_memory == accumulator.pool.memory


def test_rows_wait_for_memory_that_others_give_back() -> None:
    accumulator = new_accumulator(memory=2 * BATCH_BYTES)
    results: list[ColumnsFuture] = []
    woken = threading.Semaphore(0)
    appending = threading.Thread(
        target=lambda: results.append(
            append(accumulator, rows(VALUES), max_time_to_block_ms=60_000, on_new_batch=lambda _: woken.release())
        )
    )
    appending.start()
    done = 0
    while done < len(VALUES):
        woken.acquire()
        batches = drain_all(accumulator)
        assert accumulator.pool.available_memory >= 0
        done = finish(accumulator, batches, done)
    appending.join()
    assert sum(batch.record_count for batch in results[0].result(0)) == len(VALUES)
    assert accumulator.pool.available_memory == accumulator.pool.memory


def test_memory_that_comes_too_late_fails_the_future_of_what_waits() -> None:
    accumulator = new_accumulator(memory=2 * BATCH_BYTES)
    future = append(accumulator, rows(VALUES))
    assert 0 < future.appended_rows < len(VALUES)
    assert not future.done()
    finish(accumulator, drain_all(accumulator))
    assert isinstance(future.exception(0), BufferExhaustedError)
    assert sum(batch.record_count for batch, _ in future.outcomes()) == future.appended_rows
    assert accumulator.pool.available_memory == accumulator.pool.memory


def test_memory_that_is_not_there_at_all_is_an_error_at_once() -> None:
    accumulator = new_accumulator(memory=BATCH_BYTES)
    put(accumulator)
    with pytest.raises(BufferExhaustedError):
        append(accumulator, rows(VALUES))
    assert len(accumulator.queue_of(TP_1)) == 1


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (rows(VALUES)._replace(timestamp=-2), "timestamps must be -1 ms or not negative, got -2 at row 0"),
        (rows(VALUES)._replace(timestamp=Int64Column(np.array([0] * 150 + [-2] * 50))), "got -2 at row 150"),
        (rows(VALUES)._replace(value=BinaryColumn(np.arange(201, dtype=np.int32), b"x" * 180)), "at row 180"),
        (rows(VALUES, VALUES)._replace(key=BinaryColumn(np.arange(201, dtype=np.int32), b"x" * 180)), "at row 180"),
        (rows(VALUES)._replace(offset=Int64Column(np.arange(200))), "must not have offsets"),
    ],
    ids=["timestamp", "timestamp of a later row", "value beyond its data", "key beyond its data", "offsets"],
)
def test_bad_columns_are_refused_as_a_whole(columns: RecordColumns, message: str) -> None:
    accumulator = new_accumulator()
    for partition in (0, None):
        with pytest.raises(ValueError, match=message):
            append(accumulator, columns, partition)
    assert not accumulator.has_incomplete
    assert accumulator.pool.available_memory == accumulator.pool.memory


@pytest.mark.parametrize("max_record_bytes", [None, 500])
def test_row_that_is_too_large_is_refused_before_memory_is_taken(max_record_bytes: int | None) -> None:
    accumulator = new_accumulator(memory=2048)
    with pytest.raises(RecordTooLargeError, match="a record takes up to"):
        append(accumulator, rows([b"", bytes(max_record_bytes or 2048)]), max_record_bytes=max_record_bytes)
    assert not accumulator.has_incomplete


def test_topic_without_partitions_has_none_for_keys() -> None:
    accumulator = new_accumulator()
    for columns in (rows(VALUES, VALUES), rows(VALUES)):
        with pytest.raises(UnknownTopicOrPartitionError):
            append(accumulator, columns, None, cluster=Cluster())
    assert accumulator.pool.available_memory == accumulator.pool.memory


def test_closed_accumulator_takes_no_columns() -> None:
    accumulator = new_accumulator()
    accumulator.is_closed = True
    with pytest.raises(ProducerClosedError):
        append(accumulator, rows(VALUES))
    assert accumulator.pool.available_memory == accumulator.pool.memory


def test_future_has_the_first_error_and_shows_all_outcomes() -> None:
    accumulator = new_accumulator()
    future = append(accumulator, rows(VALUES[:30]))
    first, *others = drain_all(accumulator)
    error = KStoreError("not this one")
    finish(accumulator, others, 100)
    assert not future.done()
    first.complete_exceptionally(error)
    assert future.exception(0) is error
    assert [batch.base_offset for batch, _ in future.outcomes()][:2] == [-1, 100]
    assert [failed for _, failed in future.outcomes()] == [error, *[None] * len(others)]


def test_future_can_not_be_cancelled_and_tells_its_callbacks() -> None:
    accumulator = new_accumulator()
    future = append(accumulator, rows(VALUES[:1]))
    told: list[Any] = []
    future.add_done_callback(told.append)
    assert not future.cancel()
    finish(accumulator, drain_all(accumulator), 9)
    assert told == [future]
    assert future.result() == [(0, 9, 1)]


@pytest.mark.parametrize("method", ["result", "exception"])
def test_wait_that_is_over_too_early_is_a_timeout_by_each_of_its_names(method: str) -> None:
    future = append(new_accumulator(), rows(VALUES[:1]))
    with pytest.raises(ProducerTimeoutError, match="waiting for 0 ms") as raised:
        getattr(future, method)(timeout=0)
    assert isinstance(raised.value, TimeoutError)
    assert isinstance(raised.value, concurrent.futures.TimeoutError)


def test_pieces_of_a_split_batch_are_batches_of_the_future() -> None:
    accumulator = new_accumulator(batch_size=1024)
    future = append(accumulator, rows(VALUES[:40]))
    (batch,) = drain_all(accumulator)
    accumulator.batch_size = BATCH_BYTES
    pieces = accumulator.split_and_reenqueue(batch)
    accumulator.deallocate(batch)
    assert pieces > 3
    assert not future.done()
    offset = 0
    while accumulator.has_undrained:
        assert not future.done()
        offset = finish(accumulator, drain(accumulator), offset)
    batches = future.result(0)
    assert len(batches) == pieces
    assert [one.base_offset for one in batches] == [0, *accumulate(one.record_count for one in batches)][:-1]
    assert sum(one.record_count for one in batches) == 40
