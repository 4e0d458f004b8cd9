"""Appends to a RecordAccumulator from one and two threads, and of columns, compared with Kafka's own in the same run.

Another thread drains full batches concurrently, as the Sender does, and completes them at once.

Measured: `RecordAccumulator.append` of 100-byte values from one thread and from two, and `append_columns`, one
partition, while another thread drains as the Sender does, up to 256 batches of a partition at once; allocate and
deallocate of a pooled buffer.
Compared with: Kafka's own `RecordAccumulator`, used in the same way, whose drain returns one batch of a partition
(`--rivals`).
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from bench.common import MIB, Case, Contestant, Settings, interleaved, require_equal
from bench.other_languages import JAVA_PRODUCER, Rivals
from bench.producer_pool import pool_case
from kstore.producer.append_columns import append_columns
from kstore.producer.batches.accumulator import BufferPool, RecordAccumulator
from kstore.producer.cluster import Cluster, Node, PartitionInfo
from kstore.producer.sending.store_sink import StoreSink
from kstore.record.packing import BinaryColumn, RecordColumns

TOPIC = "t"
NODE = Node(0, "localhost", 9092)
CLUSTER = Cluster([PartitionInfo(TOPIC, 0, NODE)])
BATCH_SIZE = 16 * 1024
VALUE_BYTES = 100
VALUE_COUNT = 4096
RECORD_BYTES = VALUE_BYTES + 10
MAX_BLOCK_MS = 10_000
IDLE_S = 0.001
NS_PER_MS = 1_000_000

APPEND, APPEND_TWO = "kstore append", "kstore append from two threads"
COLUMNS, COLUMNS_BY_KEY = "kstore append_columns", "kstore append_columns, placed by key"
JAVA_MODES = ("append", "append from two threads")
JAVA_APPEND, JAVA_APPEND_TWO = (f"{JAVA_PRODUCER}, {mode}" for mode in JAVA_MODES)
TARGET_OF_JAVA, TARGET_OF_COLUMNS, TARGET_OF_TWO = 0.3, 3.0, 0.9


class Drained:
    """An accumulator and a thread that drains it. A context manager."""

    def __init__(self, values: list[bytes]) -> None:
        self._accumulator = RecordAccumulator(batch_size=BATCH_SIZE, pool=BufferPool(32 * MIB, BATCH_SIZE))
        self._values = values
        self._wake = threading.Event()
        self._is_over = False
        self._drainer = threading.Thread(target=self._drain, daemon=True)

    def __enter__(self) -> Drained:
        self._drainer.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over = True
        self._wake.set()
        self._drainer.join()

    def _drain(self) -> None:
        accumulator = self._accumulator
        while not self._is_over:
            now_ms = time.monotonic_ns() // NS_PER_MS
            ready = accumulator.ready(CLUSTER, now_ms).ready_nodes
            if not ready:
                self._wake.wait(IDLE_S)
                self._wake.clear()
                continue
            drained = accumulator.drain(
                CLUSTER, ready, MIB, now_ms=now_ms, batches_per_partition=StoreSink.batches_per_partition
            )
            for batches in drained.values():
                for batch in batches:
                    batch.complete(0)
                    accumulator.deallocate(batch)

    def append(self, count: int) -> None:
        """Append `count` records one by one."""
        append, values, wake = self._accumulator.append, self._values, self._wake.set
        for number in range(count):
            now_ms = time.monotonic_ns() // NS_PER_MS
            result = append(
                TOPIC,
                0,
                now_ms,
                None,
                values[number % VALUE_COUNT],
                (),
                None,
                max_time_to_block_ms=MAX_BLOCK_MS,
                now_ms=now_ms,
                cluster=CLUSTER,
            )
            if result.new_batch_created:
                wake()

    def append_from(self, threads: int, count: int) -> None:
        """Append `count` records from several threads."""
        running = [threading.Thread(target=self.append, args=(count // threads,)) for _ in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()

    def append_columns(self, columns: RecordColumns, partition: int | None) -> None:
        """Append all rows, to a partition or by their keys."""
        append_columns(
            self._accumulator,
            TOPIC,
            columns,
            partition=partition,
            max_time_to_block_ms=MAX_BLOCK_MS,
            cluster=CLUSTER,
            on_new_batch=lambda _: self._wake.set(),
        )


def values_of_run() -> list[bytes]:
    """Return the values, the same in each run."""
    source = random.Random(1)
    return [source.randbytes(VALUE_BYTES) for _ in range(VALUE_COUNT)]


def columns_of(values: list[bytes], row_count: int) -> tuple[RecordColumns, RecordColumns]:
    """Return columns of row_count rows, without keys and with keys of 8 bytes."""
    data = b"".join(values)
    repeated = data * (row_count * VALUE_BYTES // len(data) + 1)
    value = BinaryColumn(
        np.arange(0, (row_count + 1) * VALUE_BYTES, VALUE_BYTES, dtype=np.int64), repeated, offset_bytes=8
    )
    keys = np.arange(row_count, dtype=np.int64)
    key = BinaryColumn(np.arange(0, (row_count + 1) * 8, 8, dtype=np.int32), keys)
    return RecordColumns(row_count, 0, value=value), RecordColumns(row_count, 0, key=key, value=value)


def run(settings: Settings) -> Iterator[Case]:
    """Measure appends, record by record and by columns, and the pool alone."""
    with tempfile.TemporaryDirectory() as scratch:
        yield accumulator_case(settings, scratch=Path(scratch))
    yield pool_case(settings)


def accumulator_case(settings: Settings, *, scratch: Path) -> Case:
    """Measure the accumulator and its rival, with uncompressed batches of 16 KiB in a 32 MiB buffer."""
    values = values_of_run()
    count = max(settings.segment_bytes // (2 * RECORD_BYTES), 2)
    columns, columns_by_key = columns_of(values, count)
    case = Case(
        title=f"RecordAccumulator, values of {VALUE_BYTES} bytes, one partition, a drainer",
        unit="rec",
        bytes_per_unit=RECORD_BYTES,
    )
    file = scratch / "values"
    file.write_bytes(b"".join(values))
    arguments = (str(VALUE_BYTES), str(count))
    rivals = Rivals(settings, file, JAVA_MODES, names=(JAVA_PRODUCER,), arguments=arguments)
    with Drained(values) as drained, rivals:
        contestants = [
            contestant(APPEND, lambda: drained.append(count), count),
            contestant(APPEND_TWO, lambda: drained.append_from(2, count), count),
            contestant(COLUMNS, lambda: drained.append_columns(columns, 0), count),
            contestant(COLUMNS_BY_KEY, lambda: drained.append_columns(columns_by_key, None), count),
        ]
        for rival in rivals.running:
            require_equal("appended records", {"expected": count, rival.name: rival.sum_of(1)})
            rival.warm_up()
            contestants.append(contestant(rival.name, partial(rival.sum_of, 1), count))
        case.samples = interleaved(contestants, settings, cpu_seconds=rivals.cpu_seconds)
    case.add_ratio(APPEND, JAVA_APPEND, target=TARGET_OF_JAVA)
    case.add_ratio(COLUMNS, JAVA_APPEND, target=TARGET_OF_COLUMNS)
    case.add_ratio(COLUMNS_BY_KEY, JAVA_APPEND)
    case.add_ratio(APPEND_TWO, APPEND, target=TARGET_OF_TWO)
    case.add_ratio(JAVA_APPEND_TWO, JAVA_APPEND)
    return case


def contestant(name: str, run_once: Callable[[], object], count: int) -> Contestant:
    """Return a contestant for a function whose result is ignored."""

    def run_pass() -> None:
        run_once()

    return Contestant(name, run_pass, count)
