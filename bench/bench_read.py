"""Reading a file: preads of 1 MiB into a reused buffer or one read() of all, with and without decoding, by threads.

Measured: preads of 1 MiB into a reused buffer, alone and with the decode; two threads against one, and two processes
that decode a half each; without codec over 256 MiB, since 64 MiB take two threads 15 ms, a tenth of which is their
start; views into the contents of compressed batches.
Compared with: `read()` of the whole file; mmap.
"""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Literal

import pyarrow as pa

import kstore
from bench.common import (
    BENCH_DIRECTORY,
    MIB,
    Case,
    Contestant,
    Settings,
    exhausting,
    interleaved,
    require_equal,
    without_result,
)
from bench.core_decode import columns_of, record_batch_of
from bench.data import PartitionData, PartitionSpec, partition
from bench.digest import digest_of_arrow
from kstore.arrow import record_batches
from kstore.log.plan import ScanRange

COLUMNS = ["offset", "timestamp", "key", "value"]
KEPT = "preads of 1 MiB into a kept buffer"
WHOLE = "read() of the whole file"
MAPPED = "mmap, one byte of each page"
KSTORE = "kstore Log: preads of 1 MiB and decode"
WHOLE_DECODED = "read() of the whole file, then kstore's decoder"
PAGE_BYTES = 4096
CODECS = ("none", "lz4", "zstd", "snappy", "gzip")
ONE_THREAD = "kstore Log, one thread"
TWO_THREADS = "kstore Log, two threads"
TWO_PROCESSES = "kstore Log, two processes, a half each"
TWO_HALVES = "kstore Log, two threads, a half each, no order between them"
TARGET_OF_TWO_THREADS = 1.7
TARGET_OF_TWO_WITH_CODEC = 1.8
# Measured without a target.
WITHOUT_TARGET = frozenset({"zstd"})
# Two threads decode one uncompressed segment in 15 ms, a tenth of which is starting the thread and opening the log.
SEGMENTS_FOR_THREADS = 4
VIEWS, VIEWS_BY_TWO = "kstore Log, views", "kstore Log, views, two threads"
CODECS_OF_VIEWS = ("lz4", "snappy")
TARGET_OF_VIEWS = 0.95
RANGES_OF_HALVES = 8


def read_kept(path: Path) -> int:
    """Read a file in chunks into one buffer; return the number of bytes read."""
    buffer, position = bytearray(MIB), 0
    file = os.open(path, os.O_RDONLY)
    try:
        while got := os.preadv(file, [buffer], position):
            position += got
    finally:
        os.close(file)
    return position


def read_whole(path: Path) -> int:
    """Read a whole file at once; return the number of bytes read."""
    return len(path.read_bytes())


def touch_mapped(path: Path) -> int:
    """Touch each page of a mapped file; return its size in bytes."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        sum(mapped[::PAGE_BYTES])
        return len(mapped)


def decode_by_log(
    directory: Path, *, threads: int = 1, binary: Literal["copy", "view"] = "copy"
) -> Iterator[pa.RecordBatch]:
    """Decode a partition directory through the public interface."""
    with kstore.open_log(directory) as log:
        yield from log.to_arrow_batches(columns=COLUMNS, threads=threads, binary=binary)


def decode_halves(halves: tuple[list[ScanRange], list[ScanRange]]) -> None:
    """Decode one half of the ranges in a new thread and the other in this one, without passing data between them."""

    def decode(ranges: list[ScanRange]) -> None:
        for _ in record_batches(ranges, columns=COLUMNS):
            pass

    thread = threading.Thread(target=decode, args=(halves[1],))
    thread.start()
    decode(halves[0])
    thread.join()


def decode_whole(path: Path) -> Iterator[pa.RecordBatch]:
    """Read a whole file at once and decode it."""
    for columns in columns_of(memoryview(path.read_bytes()), "copy"):
        yield record_batch_of(columns, "copy")


def run(settings: Settings) -> Iterator[Case]:
    """Time the ways to read, then the ways to read and decode."""
    spec = PartitionSpec(name="bench-0", value_bytes=100, segment_bytes=settings.segment_bytes)
    data = partition(spec, settings.data_directory)
    path = data.log_files[0]
    ways = {KEPT: read_kept, WHOLE: read_whole, MAPPED: touch_mapped}
    require_equal("bytes read", {name: way(path) for name, way in ways.items()})
    reading = Case(title=f"Read {data.size_in_bytes} bytes from the page cache", unit="B", bytes_per_unit=1)
    contestants = [
        Contestant(name, without_result(partial(way, path)), data.size_in_bytes) for name, way in ways.items()
    ]
    reading.samples = interleaved(contestants, settings)
    reading.add_ratio(KEPT, WHOLE)
    yield reading

    digests = {KSTORE: digest_of_arrow(decode_by_log(data.path)), WHOLE_DECODED: digest_of_arrow(decode_whole(path))}
    require_equal("columns", dict(digests))
    decoding = Case(
        title="Read and decode, 100-byte values, copied",
        unit="rec",
        bytes_per_unit=data.size_in_bytes / data.record_count,
    )
    decoding.samples = interleaved(
        [
            Contestant(KSTORE, exhausting(partial(decode_by_log, data.path)), data.record_count),
            Contestant(WHOLE_DECODED, exhausting(partial(decode_whole, path)), data.record_count),
        ],
        settings,
    )
    decoding.add_ratio(KSTORE, WHOLE_DECODED)
    yield decoding

    for codec in CODECS:
        yield threads_case(codec, settings)
    for codec in CODECS_OF_VIEWS:
        yield views_case(codec, settings)


class Halves:
    """Two processes that each decode one half of a partition on request: the most that two cores can do."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._children = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "bench.half_process", str(directory), str(half)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    cwd=BENCH_DIRECTORY.parent,
                    text=True,
                )
            )
            for half in (0, 1)
        ]

    def rows(self) -> int:
        """Let both processes decode and return their total number of rows."""
        for child in self._children:
            if child.stdin is not None:
                child.stdin.write("\n")
                child.stdin.flush()
        return sum(int(child.stdout.readline()) for child in self._children if child.stdout is not None)


def scans_case(
    title: str, data: PartitionData, ways: Mapping[str, Callable[[], Iterator[pa.RecordBatch]]]
) -> tuple[Case, list[Contestant]]:
    """Check that all ways to scan a partition give the same columns; return a case, and the ways as contestants."""
    require_equal("columns", {name: digest_of_arrow(way()) for name, way in ways.items()})
    case = Case(title=title, unit="rec", bytes_per_unit=data.size_in_bytes / data.record_count)
    return case, [Contestant(name, exhausting(way), data.record_count) for name, way in ways.items()]


def threads_case(codec: str, settings: Settings) -> Case:
    """Time the same scan with one thread, with two threads, and with two processes, which share nothing."""
    segment_count = SEGMENTS_FOR_THREADS if codec == "none" else 1
    spec = PartitionSpec(
        name="bench-0",
        value_bytes=100,
        segment_bytes=settings.segment_bytes,
        segment_count=segment_count,
        codec=codec,
    )
    data = partition(spec, settings.data_directory)
    ways = {ONE_THREAD: partial(decode_by_log, data.path), TWO_THREADS: partial(decode_by_log, data.path, threads=2)}
    case, contestants = scans_case(f"Read and decode by threads, 100-byte values, {codec}", data, ways)
    with kstore.open_log(data.path) as log:
        ranges = log.plan(max_bytes=data.size_in_bytes // RANGES_OF_HALVES)
    parts = (ranges[: len(ranges) // 2], ranges[len(ranges) // 2 :])
    contestants.append(Contestant(TWO_HALVES, partial(decode_halves, parts), data.record_count))
    with ExitStack() as stack:
        halves = Halves(data.path, stack)
        require_equal("rows", {TWO_PROCESSES: halves.rows(), ONE_THREAD: data.record_count})
        contestants.append(Contestant(TWO_PROCESSES, without_result(halves.rows), data.record_count))
        case.samples = interleaved(contestants, settings)
    target = TARGET_OF_TWO_THREADS if codec == "none" else TARGET_OF_TWO_WITH_CODEC
    case.add_ratio(TWO_THREADS, ONE_THREAD, target=None if codec in WITHOUT_TARGET else target)
    case.add_ratio(TWO_HALVES, ONE_THREAD)
    case.add_ratio(TWO_PROCESSES, ONE_THREAD)
    return case


def views_case(codec: str, settings: Settings) -> Case:
    """Time copies, and views into the contents of compressed batches, by one thread and by two."""
    spec = PartitionSpec(name="bench-0", value_bytes=100, segment_bytes=settings.segment_bytes, codec=codec)
    data = partition(spec, settings.data_directory)
    ways = {
        ONE_THREAD: partial(decode_by_log, data.path),
        VIEWS: partial(decode_by_log, data.path, binary="view"),
        VIEWS_BY_TWO: partial(decode_by_log, data.path, binary="view", threads=2),
    }
    case, contestants = scans_case(f"Read and decode views of 100-byte values, {codec}", data, ways)
    case.samples = interleaved(contestants, settings)
    case.add_ratio(VIEWS, ONE_THREAD, target=TARGET_OF_VIEWS)
    case.add_ratio(VIEWS_BY_TWO, VIEWS)
    return case
