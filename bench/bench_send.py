"""A Producer that writes to the files of a store, record by record and by columns.

Rivals: confluent-kafka's producer with its mock cluster, with its defaults and with kstore's settings; a plain write
loop. A run sends all records and flushes; each record gets a future. Not measured: creating the store, opening its logs
and reading them back, and connecting confluent-kafka.

Measured: `Producer.send` (to a partition, and to any) and `send_columns` to an empty store until everything is written,
with each future created; columns to flushed files with lz4, in bytes of keys and values.
Compared with: confluent-kafka's `produce()` and `flush()` before its mock cluster, with its own defaults and with
kstore's batch size, linger and acks; `os.write` of the batches that `send_columns` writes; the bare write loop with one
fdatasync.
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
from bench.common import Case, Settings, require_equal
from kstore.producer import Producer
from kstore.record.packing import BinaryColumn, RecordColumns
from kstore.store.store import WritableStore, open_store

TOPIC = "t"
KEY_BYTES, VALUE_BYTES = 8, 100
ROW_BYTES = KEY_BYTES + VALUE_BYTES
BODY_COUNT = 4096
SEND = "Producer.send, written"
CONFLUENT = "confluent-kafka, mock cluster, its defaults"
CONFLUENT_ALIKE = "confluent-kafka, mock cluster, set as kstore"
COLUMNS = "Producer.send_columns, written"
SEND_ANYWHERE = "Producer.send without key and partition, written"
FLUSHED_LZ4 = "Producer.send_columns, lz4, flushed"
BARE = "os.write of keys and values, fdatasync"
BARE_BATCHES = "os.write of the same batches"
WRITE_BYTES = 16 * 1024
TARGET_OF_CONFLUENT, TARGET_OF_BARE = 3.0, 0.5
# Required here: a cluster, and a queue for all records, since produce() fails when the queue is full.
CONFLUENT_DEFAULTS = {
    "bootstrap.servers": "",
    "test.mock.num.brokers": 1,
    "queue.buffering.max.messages": 10_000_000,
    "queue.buffering.max.kbytes": 2_000_000,
    "log_level": 0,
}
CONFLUENT_AS_KSTORE = CONFLUENT_DEFAULTS | {
    "acks": 1,
    "linger.ms": 5,
    "batch.size": 16384,
}


def bodies() -> tuple[list[bytes], list[bytes]]:
    """Return keys and values, the same in each run."""
    source = np.random.default_rng(1)
    words = source.integers(0, 1024, (BODY_COUNT, VALUE_BYTES // 4), dtype=np.uint32)
    return [b"%08d" % number for number in range(BODY_COUNT)], [row.tobytes() for row in words]


def columns_of(keys: list[bytes], values: list[bytes], count: int) -> RecordColumns:
    """Return columns of the same records."""

    def column(parts: list[bytes], size: int) -> BinaryColumn:
        data = b"".join(parts[number % BODY_COUNT] for number in range(count))
        return BinaryColumn(np.arange(0, (count + 1) * size, size, dtype=np.int64), data, offset_bytes=8)

    return RecordColumns(count, 0, key=column(keys, KEY_BYTES), value=column(values, VALUE_BYTES))


def in_fresh_store(scratch: Path, send: Callable[[Producer], object], count: int, **settings: Any) -> float:
    """Send to an empty store, check the number of records in the log, and return the seconds until the flush ended."""
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


def batches_of(scratch: Path, send: Callable[[Producer], object], count: int) -> bytes:
    """Return the bytes that a run of `send` writes to the log."""
    in_fresh_store(scratch, send, count)
    (segment,) = (scratch / "root").glob(f"{TOPIC}-0/*.log")
    return segment.read_bytes()


def bare(scratch: Path, data: bytes, *, syncs: bool) -> float:
    view = memoryview(data)
    fd = os.open(scratch / "bare", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    start = time.perf_counter()
    for at in range(0, len(data), WRITE_BYTES):
        os.write(fd, view[at : at + WRITE_BYTES])
    if syncs:
        os.fdatasync(fd)
    seconds = time.perf_counter() - start
    os.close(fd)
    return seconds


def run(settings: Settings) -> Iterator[Case]:
    """Measure records that are only written, then columns that are compressed and flushed."""
    keys, values = bodies()
    count = max(settings.segment_bytes // (2 * ROW_BYTES), 2)
    with tempfile.TemporaryDirectory() as scratch:
        yield written_case(settings, keys, values, count, scratch=Path(scratch))
        yield flushed_case(settings, columns_of(keys, values, count), count, scratch=Path(scratch))


def written_case(settings: Settings, keys: list[bytes], values: list[bytes], count: int, *, scratch: Path) -> Case:
    """Measure writing records of 100-byte values to the log, and the rivals."""
    columns = columns_of(keys, values, count)
    others = {
        name: ConfluentProducer(options)
        for name, options in ((CONFLUENT, CONFLUENT_DEFAULTS), (CONFLUENT_ALIKE, CONFLUENT_AS_KSTORE))
    }
    case = Case(title=f"Producer, values of {VALUE_BYTES} bytes, one partition", unit="rec", bytes_per_unit=ROW_BYTES)

    def send_columns(producer: Producer) -> None:
        producer.send_columns(TOPIC, columns, partition=0)

    data = batches_of(scratch, send_columns, count)
    runs: dict[str, Callable[[], float]] = {
        SEND: partial(in_fresh_store, scratch, lambda one: send_each(one, keys, values, count), count),
        SEND_ANYWHERE: partial(in_fresh_store, scratch, lambda one: send_anywhere(one, values, count), count),
        COLUMNS: partial(in_fresh_store, scratch, send_columns, count),
        BARE_BATCHES: partial(bare, scratch, data, syncs=False),
    }
    runs |= {name: partial(confluent, other, keys, values, count) for name, other in others.items()}
    case.samples = rated(runs, settings, units=count)
    for name in others:
        case.add_ratio(SEND, name, target=TARGET_OF_CONFLUENT)
    case.add_ratio(SEND_ANYWHERE, SEND)
    case.add_ratio(COLUMNS, SEND)
    case.add_ratio(COLUMNS, BARE_BATCHES, target=TARGET_OF_BARE)
    return case


def flushed_case(settings: Settings, columns: RecordColumns, count: int, *, scratch: Path) -> Case:
    """Measure writing columns to flushed files with lz4, in bytes of keys and values."""
    data = bytes(ROW_BYTES * count)
    case = Case(title="Columns to flushed files, lz4", unit="B", bytes_per_unit=1.0)

    def send(producer: Producer) -> None:
        producer.send_columns(TOPIC, columns, partition=0)

    runs = {
        FLUSHED_LZ4: partial(in_fresh_store, scratch, send, count, acks="flushed", compression_type="lz4"),
        BARE: partial(bare, scratch, data, syncs=True),
    }
    case.samples = rated(runs, settings, units=len(data))
    case.add_ratio(FLUSHED_LZ4, BARE)
    return case
