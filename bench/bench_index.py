"""Lookups in indexes and segments, the sequential read of batches, and the recovery of a segment."""

from __future__ import annotations

import os
import random
import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

import kstore
from bench.common import MIB, Bound, Case, Contestant, Samples, Settings, interleaved, require_equal, without_result
from bench.data import BASE_TIMESTAMP_MS, RECORDS_PER_MS, PartitionSpec, partition
from kstore._core import OffsetIndexEntries, RecoveryWalk, TimeIndexEntries, crc32c
from kstore.config import LogConfig
from kstore.log.env import DEFAULT_ENV
from kstore.log.file_records import FileRecords
from kstore.log.index import OffsetIndex
from kstore.log.segment import LogSegment
from kstore.log.segment_walk import walk_headers

# What Kafka's own classes reached on the machine of bench/results: lookups or bytes a second.
JAVA_OFFSET_LOOKUP = 2.3e6
JAVA_TRANSLATE = 0.33e6
JAVA_TIME_SEARCH = 0.1e6
JAVA_RECOVERY = 2.0e9
SEGMENTS_IN_ONE = 8
INDEX_BYTES_PER_SEGMENT_BYTE = 10 * MIB / (64 * MIB)
LOOKUPS = 20_000

ONE = "OffsetIndex.slot_of_offset, one by one"
MANY = "OffsetIndex.slots_of_offsets, an array"
SEARCHSORTED = "numpy.searchsorted, an array of int32"
BISECT = "bisect over a list"
TRANSLATE = "LogSegment.translate_offset"
TIME_SEARCH = "LogSegment.search_timestamp"
BARE = "preads of 1 MiB and one CRC-32C over each"
BATCHES = "FileRecords.batches, each checked"
CHECKED = "recovery walk, every batch checked"
RECOVERED = "recovery walk, every batch checked, both indexes made"


def offsets_of(count: int, *, end: int) -> list[int]:
    """Give random offsets below `end`, the same in every run."""
    draw = random.Random(42).randrange
    return [draw(end) for _ in range(count)]


def one_by_one(call: Callable[[int], object], targets: Sequence[int]) -> None:
    """Look each target up."""
    for target in targets:
        call(target)


def at_most(samples: Samples, rate: float, *, what: str, times: float) -> Bound:
    """Bound the nanoseconds of a lookup by those of Java at a rate, over the number of times we have to be as fast."""
    return Bound(
        name=f"{samples.contestant}: median of a lookup, {times:g} times Java's {what}",
        unit="ns",
        values=[1e9 / samples.median],
        at_most=1e9 / (rate * times),
    )


def lookup_case(settings: Settings) -> Case:
    """Look random offsets up in a full index."""
    count = int(settings.segment_bytes * INDEX_BYTES_PER_SEGMENT_BYTE) // 8
    keys = [7 * (slot + 1) for slot in range(count)]
    content = b"".join(struct.pack(">ii", key, 600 * slot) for slot, key in enumerate(keys))
    index = OffsetIndex(content, base_offset=0, path="full.index")
    targets = offsets_of(LOOKUPS, end=7 * count)
    wanted, native = array("q", targets), np.array(keys, np.int32)
    ways: dict[str, Callable[[], Sequence[int]]] = {
        ONE: lambda: [index.slot_of_offset(target) for target in targets],
        MANY: lambda: list(index.slots_of_offsets(wanted)),
        SEARCHSORTED: lambda: [int(slot) - 1 for slot in np.searchsorted(native, targets, side="right")],
        BISECT: lambda: [bisect_right(keys, target) - 1 for target in targets],
    }
    require_equal("slots", {name: list(way()) for name, way in ways.items()})
    runs: dict[str, Callable[[], object]] = {
        ONE: partial(one_by_one, index.slot_of_offset, targets),
        MANY: partial(index.slots_of_offsets, wanted),
        SEARCHSORTED: partial(np.searchsorted, native, np.array(targets, np.int32), side="right"),
        BISECT: partial(one_by_one, partial(bisect_right, keys), targets),
    }
    case = Case(title=f"Offset lookup, random, {count} entries", unit="lookup", bytes_per_unit=0)
    case.samples = interleaved([Contestant(name, without_result(run), LOOKUPS) for name, run in runs.items()], settings)
    by_name = {samples.contestant: samples for samples in case.samples}
    case.bounds = [
        at_most(by_name[ONE], JAVA_OFFSET_LOOKUP, what="OffsetIndex.lookup", times=1.3),
        at_most(by_name[MANY], JAVA_OFFSET_LOOKUP, what="OffsetIndex.lookup", times=2),
    ]
    case.add_ratio(ONE, BISECT)
    case.add_ratio(MANY, SEARCHSORTED)
    return case


def segment_case(segment: LogSegment, *, record_count: int, settings: Settings) -> Case:
    """Find the batches of random offsets, and the records of random timestamps."""
    offsets = offsets_of(min(LOOKUPS, record_count), end=record_count)
    times = [BASE_TIMESTAMP_MS + offset // RECORDS_PER_MS for offset in offsets]
    for offset, timestamp_ms in zip(offsets[:100], times, strict=False):
        batch = segment.translate_offset(offset)
        first = offset - offset % RECORDS_PER_MS
        require_equal(
            "batch", {"kstore": batch is not None and batch.base_offset <= offset <= batch.last_offset, "": True}
        )
        require_equal(
            "record", {"kstore": segment.search_timestamp(timestamp_ms, start_offset=0), "": (first, timestamp_ms)}
        )
    runs = {
        TRANSLATE: partial(one_by_one, segment.translate_offset, offsets),
        TIME_SEARCH: partial(one_by_one, partial(segment.search_timestamp, start_offset=0), times),
    }
    title = f"Lookup in a segment of {segment.size_in_bytes} bytes, random, every index entry proven once"
    case = Case(title=title, unit="lookup", bytes_per_unit=0)
    case.samples = interleaved(
        [Contestant(name, without_result(run), len(offsets)) for name, run in runs.items()], settings
    )
    case.bounds = [
        at_most(case.samples[0], JAVA_TRANSLATE, what="translateOffset", times=1),
        at_most(case.samples[1], JAVA_TIME_SEARCH, what="findOffsetByTimestamp", times=3),
    ]
    return case


def read_bare(path: Path) -> int:
    """Read a file into one buffer, chunk by chunk, with a CRC over each; give the bytes read."""
    buffer, position = memoryview(bytearray(MIB)), 0
    file = os.open(path, os.O_RDONLY)
    try:
        while got := os.preadv(file, [buffer], position):
            crc32c(buffer[:got])
            position += got
    finally:
        os.close(file)
    return position


def read_batches(path: Path) -> int:
    """Read a file batch by batch, each checked; give the bytes of all."""
    with FileRecords.open(path, is_read_only=True) as records:
        size = 0
        for batch in records.batches():
            batch.verify()
            size += batch.size_in_bytes
    return size


def walk(path: Path, *, makes_entries: bool) -> int:
    """Walk a segment as recovery does; give the bytes of its whole batches."""
    limit = LogConfig().segment_index_bytes
    with DEFAULT_ENV.open_read(str(path)) as file:
        recovery = RecoveryWalk(
            end_position=file.size(),
            base_offset=0,
            offset_entries=OffsetIndexEntries(b"", base_offset=0, max_bytes=limit) if makes_entries else None,
            time_entries=TimeIndexEntries(b"", base_offset=0, max_bytes=limit) if makes_entries else None,
        )
        for _ in walk_headers(file, recovery):
            pass
        return recovery.position


def reading_case(path: Path, *, size_in_bytes: int, settings: Settings) -> Case:
    """Read a segment from the page cache in four ways."""
    ways: dict[str, Callable[[], int]] = {
        BARE: partial(read_bare, path),
        BATCHES: partial(read_batches, path),
        CHECKED: partial(walk, path, makes_entries=False),
        RECOVERED: partial(walk, path, makes_entries=True),
    }
    require_equal("bytes read", {name: way() for name, way in ways.items()})
    title = f"Read and recover a segment of {size_in_bytes} bytes from the page cache"
    case = Case(title=title, unit="B", bytes_per_unit=1)
    case.samples = interleaved(
        [Contestant(name, without_result(way), size_in_bytes) for name, way in ways.items()], settings
    )
    case.add_ratio(CHECKED, BARE, target=0.85)
    case.add_ratio(BATCHES, BARE)
    case.add_ratio(RECOVERED, BARE, target=0.75)
    recovered = case.samples[-1]
    case.bounds = [
        Bound(
            name=f"{RECOVERED}: median, 1.8 times Java's LogSegment.recover",
            unit="ps/B",
            values=[1e12 / recovered.median],
            at_most=1e12 / (1.8 * JAVA_RECOVERY),
        )
    ]
    return case


def run(settings: Settings) -> Iterator[Case]:
    """Time lookups in memory, lookups in a segment, and the ways to read one."""
    yield lookup_case(settings)
    size = SEGMENTS_IN_ONE * settings.segment_bytes
    data = partition(PartitionSpec(name="bench-0", value_bytes=100, segment_bytes=size), settings.data_directory)
    with kstore.open_log(data.path) as log:
        (segment,) = log.segments
        yield segment_case(segment, record_count=data.record_count, settings=settings)
    yield reading_case(data.log_files[0], size_in_bytes=data.size_in_bytes, settings=settings)
