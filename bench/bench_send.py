"""A Producer through to the files of a store, record by record and by columns, beside its accumulator alone, beside
confluent-kafka's producer before its mock cluster, and beside the bare write loop.

A run sends all records and flushes; each record's future is made. Stores are made, their logs opened, and read back
outside of the time, as the connections of confluent-kafka are.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Producer as ConfluentProducer

from bench.bench_append import rated
from bench.bench_producer import Drained
from bench.common import Case, Settings, require_equal
from kstore.log import WritableStore, open_store
from kstore.producer import Producer
from kstore.record.packing import BinaryColumn, RecordColumns

TOPIC = "t"
KEY_BYTES, VALUE_BYTES = 8, 100
ROW_BYTES = KEY_BYTES + VALUE_BYTES
BODY_COUNT = 4096
SEND, ACCUMULATOR, CONFLUENT = "Producer.send, written", "RecordAccumulator.append", "confluent-kafka, mock cluster"
COLUMNS = "Producer.send_columns, written"
SEND_ANYWHERE = "Producer.send without key and partition, written"
FLUSHED_LZ4 = "Producer.send_columns, lz4, flushed"
BARE = "os.write of the values, fdatasync"
WRITE_BYTES = 16 * 1024
TARGET_OF_ACCUMULATOR, TARGET_OF_CONFLUENT, TARGET_OF_SEND = 0.7, 3.0, 10.0
CONFLUENT_SETTINGS = {
    "bootstrap.servers": "",
    "test.mock.num.brokers": 1,
    "acks": 1,
    "linger.ms": 5,
    "batch.size": 16384,
    "queue.buffering.max.messages": 10_000_000,
    "queue.buffering.max.kbytes": 2_000_000,
    "log_level": 0,
}


def bodies() -> tuple[list[bytes], list[bytes]]:
    """Make keys and values, the same in each run."""
    source = np.random.default_rng(1)
    words = source.integers(0, 1024, (BODY_COUNT, VALUE_BYTES // 4), dtype=np.uint32)
    return [b"%08d" % number for number in range(BODY_COUNT)], [row.tobytes() for row in words]


def columns_of(keys: list[bytes], values: list[bytes], count: int) -> RecordColumns:
    """Make columns of the same records."""

    def column(parts: list[bytes], size: int) -> BinaryColumn:
        data = b"".join(parts[number % BODY_COUNT] for number in range(count))
        return BinaryColumn(np.arange(0, (count + 1) * size, size, dtype=np.int64), data, offset_bytes=8)

    return RecordColumns(count, 0, key=column(keys, KEY_BYTES), value=column(values, VALUE_BYTES))


def in_fresh_store(scratch: Path, send: Callable[[Producer], object], count: int, **settings: Any) -> float:
    """Send to an empty store; return the seconds until all is flushed, after a look at what is in the log."""
    shutil.rmtree(scratch / "root", ignore_errors=True)
    with open_store(scratch / "root", "a") as store:
        store.create_topic(TOPIC)
        store.log(TOPIC)
        with Producer(store, **settings) as producer:
            start = time.perf_counter()
            send(producer)
            producer.flush()
            seconds = time.perf_counter() - start
        require_equal("records in the log", {"sent": count, "log": written(store)})
    return seconds


def written(store: WritableStore) -> int:
    return store.log(TOPIC).log_end_offset


def send_each(producer: Producer, keys: list[bytes], values: list[bytes], count: int) -> None:
    send = producer.send
    for number in range(count):
        at = number % BODY_COUNT
        send(TOPIC, values[at], key=keys[at], partition=0)


def send_anywhere(producer: Producer, values: list[bytes], count: int) -> None:
    send = producer.send
    for number in range(count):
        send(TOPIC, values[number % BODY_COUNT])


def confluent(producer: ConfluentProducer, keys: list[bytes], values: list[bytes], count: int) -> float:
    start = time.perf_counter()
    produce = producer.produce
    for number in range(count):
        at = number % BODY_COUNT
        produce(TOPIC, values[at], key=keys[at], partition=0)
    left = producer.flush()
    seconds = time.perf_counter() - start
    require_equal("records that are not delivered", {"expected": 0, CONFLUENT: left})
    return seconds


def appended(drained: Drained, count: int) -> float:
    start = time.perf_counter()
    drained.append(count)
    return time.perf_counter() - start


def bare(scratch: Path, data: bytes) -> float:
    view = memoryview(data)
    fd = os.open(scratch / "bare", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    start = time.perf_counter()
    for at in range(0, len(data), WRITE_BYTES):
        os.write(fd, view[at : at + WRITE_BYTES])
    os.fdatasync(fd)
    seconds = time.perf_counter() - start
    os.close(fd)
    return seconds


def run(settings: Settings) -> Iterator[Case]:
    """Measure records that are written, then columns that are compressed and flushed."""
    keys, values = bodies()
    count = max(settings.segment_bytes // (2 * ROW_BYTES), 2)
    with tempfile.TemporaryDirectory() as scratch:
        yield written_case(settings, keys, values, count, scratch=Path(scratch))
        yield flushed_case(settings, columns_of(keys, values, count), count, scratch=Path(scratch))


def written_case(settings: Settings, keys: list[bytes], values: list[bytes], count: int, *, scratch: Path) -> Case:
    """Measure records of 100-byte values through to the log, and the rivals."""
    columns = columns_of(keys, values, count)
    other = ConfluentProducer(CONFLUENT_SETTINGS)
    case = Case(title=f"Producer, values of {VALUE_BYTES} bytes, one partition", unit="rec", bytes_per_unit=ROW_BYTES)
    with Drained(values) as drained:
        runs = {
            SEND: partial(in_fresh_store, scratch, lambda one: send_each(one, keys, values, count), count),
            SEND_ANYWHERE: partial(in_fresh_store, scratch, lambda one: send_anywhere(one, values, count), count),
            ACCUMULATOR: partial(appended, drained, count),
            CONFLUENT: partial(confluent, other, keys, values, count),
            COLUMNS: partial(in_fresh_store, scratch, lambda one: one.send_columns(TOPIC, columns, partition=0), count),
        }
        case.samples = rated(runs, settings, units=count)
    case.add_ratio(SEND, ACCUMULATOR, target=TARGET_OF_ACCUMULATOR)
    case.add_ratio(SEND, CONFLUENT, target=TARGET_OF_CONFLUENT)
    case.add_ratio(SEND_ANYWHERE, SEND)
    case.add_ratio(COLUMNS, SEND, target=TARGET_OF_SEND)
    return case


def flushed_case(settings: Settings, columns: RecordColumns, count: int, *, scratch: Path) -> Case:
    """Measure columns to flushed files with lz4, by the bytes of keys and values."""
    data = bytes(ROW_BYTES * count)
    case = Case(title="Columns to flushed files, lz4", unit="B", bytes_per_unit=1.0)

    def send(producer: Producer) -> None:
        producer.send_columns(TOPIC, columns, partition=0)

    runs = {
        FLUSHED_LZ4: partial(in_fresh_store, scratch, send, count, acks="flushed", compression_type="lz4"),
        BARE: partial(bare, scratch, data),
    }
    case.samples = rated(runs, settings, units=len(data))
    case.add_ratio(FLUSHED_LZ4, BARE)
    return case
