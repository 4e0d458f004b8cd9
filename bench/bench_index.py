"""Lookups in indexes and segments, sequential reads of batches, and recovery and dump of a segment.

Measured: random lookups in a full offset index, one by one and an array at a time; the first and later lookups in 20
sealed segments of a log that is open for writing, their indexes mapped or read whole; `LogSegment.translate_offset` and
`search_timestamp` in a 512 MiB segment; its walk with every CRC checked, without and with building its indexes.
Compared with: bisect; `numpy.searchsorted`; a pread of the batch of a record up to it, which a search by time has to
read since the sizes of records are varints; 1 MiB preads with one CRC over each; the rates of Kafka's own classes on
the machine of `results/`, as bounds.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

import kstore
from bench.common import MIB, Case, Contestant, Settings, interleaved, require_equal, without_result
from bench.data import BASE_TIMESTAMP_MS, RECORDS_PER_MS, PartitionSpec, partition
from bench.other_languages import JAVA_INDEX, Rivals, programs
from kstore._core import OffsetIndexEntries, RecoveryWalk, TimeIndexEntries, crc32c
from kstore.config import LogConfig
from kstore.env import DEFAULT_ENV
from kstore.log.files.indexes import OffsetIndex
from kstore.log.recovery.walk import walk_headers
from kstore.log.segment.file_records import FileRecords
from kstore.log.segment.segment import LogSegment
from kstore.record import MemoryRecords, Record
from kstore.record.batches import set_last_offset
from kstore.record.builder import with_records

SEGMENTS_IN_ONE = 8
INDEX_BYTES_PER_SEGMENT_BYTE = 10 * MIB / (64 * MIB)
LOOKUPS = 20_000
DUMP_TOOL = "org.apache.kafka.tools.DumpLogSegments"
BASE_NAME = f"{0:020d}"
DUMP_ROUNDS = 5

ONE = "OffsetIndex.slot_of_offset, one by one"
MANY = "OffsetIndex.slots_of_offsets, an array"
SEARCHSORTED = "numpy.searchsorted, an array of int32"
BISECT = "bisect over a list"
TRANSLATE = "LogSegment.translate_offset"
TIME_SEARCH = "LogSegment.search_timestamp"
PREAD = "os.pread of the record's batch up to it"
BARE = "preads of 1 MiB and one CRC-32C over each"
BATCHES = "FileRecords.batches, each checked"
CHECKED = "recovery walk, every batch checked"
RECOVERED = "recovery walk, every batch checked, both indexes made"
JAVA_LOOKUP, JAVA_TRANSLATE, JAVA_TIME, JAVA_RECOVER = (
    f"{JAVA_INDEX}, {mode}" for mode in ("lookup", "translate", "time", "recover")
)
DUMPED, JAVA_DUMPED = "kstore dump --records --json", "Java, DumpLogSegments --print-data-log"


def offsets_of(count: int, *, end: int) -> list[int]:
    """Return random offsets below `end`, the same in every run."""
    draw = random.Random(42).randrange
    return [draw(end) for _ in range(count)]


def one_by_one(call: Callable[[int], object], targets: Sequence[int]) -> None:
    """Look up each target."""
    for target in targets:
        call(target)


def search_each(segment: LogSegment, times: Sequence[int]) -> None:
    """Find the first record at or after each timestamp."""
    for timestamp_ms in times:
        segment.search_timestamp(timestamp_ms, start_offset=0)


def write_targets(path: Path, targets: Sequence[int]) -> None:
    """Write the targets that a Java program looks up."""
    path.write_bytes(np.array(targets, ">i8").tobytes())


def beside(segment: Path, scratch: Path) -> Path:
    """Return a link to a .log next to copies of its indexes, which a broker's classes may write to."""
    scratch.mkdir()
    for suffix in (".index", ".timeindex"):
        shutil.copy(segment.with_suffix(suffix), scratch)
    link = scratch / segment.name
    link.symlink_to(segment.resolve())
    return link


def lookup_case(settings: Settings, *, scratch: Path) -> Case:
    """Look up random offsets in a full index."""
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
    contestants = [Contestant(name, without_result(run), LOOKUPS) for name, run in runs.items()]
    file = scratch / f"{BASE_NAME}.index"
    file.write_bytes(content)
    write_targets(file.with_suffix(".index.offsets"), targets)
    positions = sum(index.lookup(target).position for target in targets)
    with Rivals(settings, file, ("lookup",), names=(JAVA_INDEX,)) as rivals:
        contestants += rivals.contestants(LOOKUPS, expected_sum=positions)
        case.samples = interleaved(contestants, settings, cpu_seconds=rivals.cpu_seconds)
    case.add_ratio(ONE, BISECT)
    case.add_ratio(MANY, SEARCHSORTED)
    case.add_ratio(ONE, JAVA_LOOKUP, target=1.3)
    case.add_ratio(MANY, JAVA_LOOKUP, target=2)
    return case


def read_parts(file: int, parts: Sequence[tuple[int, int]]) -> None:
    """Read parts of a file, each (size, position)."""
    for size, position in parts:
        os.pread(file, size, position)


def segment_case(segment: LogSegment, *, record_count: int, settings: Settings, scratch: Path) -> Case:
    """Find the batches of random offsets, and the records of random timestamps."""
    offsets = offsets_of(min(LOOKUPS, record_count), end=record_count)
    times = [BASE_TIMESTAMP_MS + offset // RECORDS_PER_MS for offset in offsets]
    positions = firsts = 0
    parts: list[tuple[int, int]] = []
    for offset, timestamp_ms in zip(offsets, times, strict=True):
        batch = segment.translate_offset(offset)
        is_found = batch is not None and batch.base_offset <= offset <= batch.last_offset
        found = segment.search_timestamp(timestamp_ms, start_offset=0)
        require_equal(
            "batch and record",
            {"kstore": (is_found, found), "": (True, (offset - offset % RECORDS_PER_MS, timestamp_ms))},
        )
        positions += 0 if batch is None else batch.position
        first = offset - offset % RECORDS_PER_MS
        firsts += first
        holding = segment.translate_offset(first)
        assert holding is not None
        records = holding.last_offset - holding.base_offset + 1
        parts.append((holding.size_in_bytes * (first - holding.base_offset + 1) // records, holding.position))
    log_file = os.open(segment.path, os.O_RDONLY)
    runs = {
        TRANSLATE: partial(one_by_one, segment.translate_offset, offsets),
        TIME_SEARCH: partial(search_each, segment, times),
        PREAD: partial(read_parts, log_file, parts),
    }
    title = f"Lookup in a segment of {segment.size_in_bytes} bytes, random, every index entry proven before"
    case = Case(title=title, unit="lookup", bytes_per_unit=0)
    contestants = [Contestant(name, without_result(run), len(offsets)) for name, run in runs.items()]
    file = beside(Path(segment.path), scratch / "lookup")
    write_targets(file.with_suffix(".log.offsets"), offsets)
    write_targets(file.with_suffix(".log.times"), times)
    with (
        Rivals(settings, file, ("translate",), names=(JAVA_INDEX,)) as translating,
        Rivals(settings, file, ("time",), names=(JAVA_INDEX,)) as searching,
    ):
        contestants += translating.contestants(len(offsets), expected_sum=positions)
        contestants += searching.contestants(len(offsets), expected_sum=firsts)
        case.samples = interleaved(contestants, settings)
    os.close(log_file)
    case.add_ratio(TRANSLATE, JAVA_TRANSLATE, target=1)
    case.add_ratio(TIME_SEARCH, JAVA_TIME, target=3)
    case.add_ratio(TIME_SEARCH, PREAD)
    return case


def write_sealed(path: Path, *, segments: int, batches: int) -> None:
    """Write a log of sealed segments with an index entry for nearly every batch, and an empty active segment."""
    sent = bytearray(with_records([Record(value=b"value", timestamp_ms=BASE_TIMESTAMP_MS)]).buffer)
    with kstore.open_log(path, "a", LogConfig(index_interval_bytes=0)) as log:
        for segment in range(segments):
            run = bytearray()
            for number in range(batches):
                set_last_offset(sent, last_offset=segment * batches + number)
                run += sent
            log.append_as_follower(MemoryRecords(run))
            log.roll()


def look_up_first(segments: Sequence[LogSegment], batches: int) -> None:
    """Look up an offset in each segment as if none had been looked at before."""
    for segment in segments:
        segment.forget_files()
        segment.translate_offset(segment.base_offset + batches // 2)


def look_up_each(segments: Sequence[LogSegment], batches: int, offsets: Sequence[int]) -> None:
    """Look up offsets, each in its segment."""
    for offset in offsets:
        segments[offset // batches].translate_offset(offset)


def own_memory(path: Path, access: str) -> int:
    """Return by how many KiB the memory of a process of its own grows by a first lookup in each segment."""
    command = (sys.executable, "-m", "bench.index_process", str(path), access)
    return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def access_case(settings: Settings, *, scratch: Path) -> Case:
    """Look up offsets in sealed segments whose indexes are mapped, or read whole."""
    count, batches = 20, max(settings.segment_bytes // 4096, 700)
    path = scratch / "sealed-0"
    write_sealed(path, segments=count, batches=batches)
    offsets = offsets_of(LOOKUPS, end=count * batches)
    title = f"Lookup in {count} sealed segments, {8 * batches} bytes of index each"
    case = Case(title=title, unit="lookup", bytes_per_unit=0)
    # One after the other: a log has one writer.
    for access in ("map", "read"):
        with kstore.open_log(path, "a", LogConfig(index_access=access)) as log:
            sealed = log.segments[:-1]
            runs = {
                f"first, index_access={access}": (partial(look_up_first, sealed, batches), count),
                f"later, index_access={access}": (
                    partial(look_up_each, sealed, batches, offsets),
                    len(offsets),
                ),
            }
            contestants = [Contestant(name, without_result(run), units) for name, (run, units) in runs.items()]
            case.samples += interleaved(contestants, settings)
    for which in ("first", "later"):
        case.add_ratio(f"{which}, index_access=map", f"{which}, index_access=read")
    grown = ", ".join(f"{own_memory(path, access)} KiB with {access}" for access in ("map", "read"))
    case.notes.append(f"memory of the process's own that a first lookup in each segment takes: {grown}")
    return case


def read_bare(path: Path) -> int:
    """Read a file into one buffer in chunks and compute a CRC of each; return the number of bytes read."""
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
    """Read and verify a file batch by batch; return the total size of the batches in bytes."""
    with FileRecords.open(path, is_read_only=True) as records:
        size = 0
        for batch in records.batches():
            batch.verify()
            size += batch.size_in_bytes
    return size


def walk(path: Path, *, makes_entries: bool) -> int:
    """Walk a segment as recovery does; return the total size of its whole batches in bytes."""
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


def reading_case(path: Path, *, size_in_bytes: int, settings: Settings, scratch: Path) -> Case:
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
    contestants = [Contestant(name, without_result(way), size_in_bytes) for name, way in ways.items()]
    with Rivals(settings, beside(path, scratch / "recovery"), ("recover",), names=(JAVA_INDEX,)) as rivals:
        contestants += rivals.contestants(size_in_bytes, expected_sum=size_in_bytes)
        case.samples = interleaved(contestants, settings, cpu_seconds=rivals.cpu_seconds)
    case.add_ratio(CHECKED, BARE, target=0.85)
    case.add_ratio(BATCHES, BARE)
    case.add_ratio(RECOVERED, BARE, target=0.75)
    case.add_ratio(RECOVERED, JAVA_RECOVER, target=1.8)
    return case


def lines_written(command: Sequence[str]) -> int:
    """Run a command to its end and return the number of bytes that it writes to standard output."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    written = 0
    with process:
        while process.stdout is not None and (chunk := process.stdout.read(MIB)):
            written += len(chunk)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return written


def dump_case(path: Path, *, size_in_bytes: int, settings: Settings) -> Case:
    """Dump a segment with its records, including the start of the process."""
    commands: dict[str, tuple[str, ...]] = {
        DUMPED: (sys.executable, "-m", "kstore", "dump", "--records", "--json", str(path))
    }
    for program in programs(settings, (JAVA_INDEX,)):
        java = program.command[: program.command.index("-cp") + 2]
        commands[JAVA_DUMPED] = (*java, DUMP_TOOL, "--files", str(path), "--print-data-log")
    for name, command in commands.items():
        require_equal("whether more is written than read", {name: lines_written(command) > size_in_bytes, "": True})
    case = Case(title=f"Dump of a segment of {size_in_bytes} bytes, a process each", unit="B", bytes_per_unit=1)
    rounds = replace(settings, rounds=min(settings.rounds, DUMP_ROUNDS), warm_up_seconds=0)
    case.samples = interleaved(
        [
            Contestant(name, without_result(partial(lines_written, one)), size_in_bytes)
            for name, one in commands.items()
        ],
        rounds,
    )
    case.add_ratio(DUMPED, JAVA_DUMPED, target=4)
    return case


def run(settings: Settings) -> Iterator[Case]:
    """Time lookups in memory, lookups in a segment, the ways to read a segment, and its dump."""
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        yield lookup_case(settings, scratch=scratch)
        yield access_case(settings, scratch=scratch)
        size = SEGMENTS_IN_ONE * settings.segment_bytes
        data = partition(PartitionSpec(name="bench-0", value_bytes=100, segment_bytes=size), settings.data_directory)
        with kstore.open_log(data.path) as log:
            (segment,) = log.segments
            yield segment_case(segment, record_count=data.record_count, settings=settings, scratch=scratch)
        (path,) = data.log_files
        yield reading_case(path, size_in_bytes=data.size_in_bytes, settings=settings, scratch=scratch)
        spec = PartitionSpec(name="bench-0", value_bytes=100, segment_bytes=settings.segment_bytes)
        data = partition(spec, settings.data_directory)
        (path,) = data.log_files
        yield dump_case(path, size_in_bytes=data.size_in_bytes, settings=settings)
