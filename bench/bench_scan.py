"""The scan as a user runs it: Log.to_arrow_batches from a file, one thread, compared with other readers of that file.

The cost of a pread depends on how the page cache holds the file, so each file is written again before it is read: in
one piece, like a copy or a restored backup, or by appends of 16 KiB, as a broker does. The bound is a C program that
preads the file and computes the CRC of each batch, which is a lower limit for any reader. Every contestant reads the
file in each pass.

Measured: the user's path: `Log.to_arrow_batches` from a file, offset, timestamp, key, value of a 64 MiB segment of 16
KiB batches, CRC checked, one thread, values copied and as views, with the indexes of the segment and without any; the
file is rewritten in one piece, and in steps of 16 KiB. Also of a file of 256 MiB, in which to open a log weighs less.
Compared with: the bound: preads and the CRC of each batch in C (`limit.c`); `limit.c` filling the same columns from the
file; aiokafka's compiled reader, Java and Rust reading the same file in chunks of 1 MiB, the latter two in each form;
for lz4, zstd, snappy and gzip aiokafka and Java.
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pyarrow as pa
from aiokafka.record._crecords import MemoryRecords

import kstore
from bench.bench_decode import (
    BINARIES,
    COLUMNS,
    COMPRESSED,
    MODES,
    VALUE_BYTES,
    digest_of_aiokafka,
    digest_of_columns,
    sum_of_fields,
)
from bench.common import Case, Contestant, Settings, exhausting, interleaved, require_equal, without_result
from bench.core_decode import Binary
from bench.data import PartitionData, PartitionSpec, partition
from bench.digest import ColumnDigest, digest_of_arrow
from bench.limit import FileLimit, compile_limit
from bench.other_languages import JAVA, RUST, Rivals

LOG = {"copy": "kstore Log, copied", "view": "kstore Log, views"}
UNINDEXED = {"copy": "kstore Log without indexes, copied", "view": "kstore Log without indexes, views"}
BOUND = "pread and CRC in C"
LIMIT = {"copy": "limit.c from the file, copied", "view": "limit.c from the file, views"}
LIMIT_FUNCTIONS = {"copy": "limit_file_copied", "view": "limit_file_views"}
AIOKAFKA = "aiokafka from the file"
FILE_MODES = {binary: f"file {mode}" for binary, mode in MODES.items()}
ONE_PIECE, STEPS = "in one piece", "in steps of 16 KiB"
STEP_BYTES = 16 * 1024
# No size from 128 KiB to 2 MiB is faster.
LIMIT_CHUNK_BYTES = 256 * 1024
AIOKAFKA_CHUNK_BYTES = 1024 * 1024
TARGET_WITHOUT_INDEXES = 0.8
TARGET_OF_RUST = 1.0
TARGETS_OF_LIMIT = {100: 0.75, 1000: 0.8}
# To open a log and to plan a scan of it takes 0.6 ms, a twelfth of a scan of 64 MiB of values of 1000 bytes.
SEGMENTS_IN_ONE = 4
OVERHEAD, LENGTH = 12, struct.Struct(">i")


def written(data: PartitionData, target: Path, *, way: str) -> Path:
    """Write the files of a partition again to a new directory, in one of the two ways, and return the directory."""
    target.mkdir(parents=True)
    for source in sorted(data.path.iterdir()):
        content = source.read_bytes()
        step = STEP_BYTES if way == STEPS else max(len(content), 1)
        with (target / source.name).open("wb", buffering=0) as file:
            for at in range(0, len(content), step):
                file.write(content[at : at + step])
    return target


def without_indexes(directory: Path, target: Path) -> Path:
    """Link the .log files of a directory into another one, so that both use the same pages of the page cache."""
    target.mkdir(parents=True)
    for log in directory.glob("*.log"):
        os.link(log, target / log.name)
    return target


def log_batches(directory: Path, binary: Binary) -> Iterator[pa.RecordBatch]:
    """Read a partition directory through the public interface."""
    with kstore.open_log(directory) as log:
        yield from log.to_arrow_batches(columns=COLUMNS, binary=binary)


def runs_of_batches(path: Path) -> Iterator[memoryview]:
    """Read a file in chunks into one buffer; yield the whole batches of each chunk."""
    buffer = bytearray(AIOKAFKA_CHUNK_BYTES)
    view, position = memoryview(buffer), 0
    with path.open("rb", buffering=0) as file:
        while got := os.preadv(file.fileno(), [buffer], position):
            whole = 0
            while whole + OVERHEAD <= got:
                end = whole + OVERHEAD + LENGTH.unpack_from(buffer, whole + 8)[0]
                if end > got:
                    break
                whole = end
            if whole == 0:
                raise ValueError(f"{path}: no whole batch at {position}")
            yield view[:whole]
            position += whole


def read_with_aiokafka(path: Path) -> None:
    """Read the four fields of each record of a file, after checking the CRC of its batch."""
    for run_of_batches in runs_of_batches(path):
        records = MemoryRecords(bytes(run_of_batches))
        while (batch := records.next_batch()) is not None:
            if not batch.validate_crc():
                raise ValueError("aiokafka found a wrong CRC")
            for record in batch:
                _ = record.offset
                _ = record.timestamp
                _ = record.key
                _ = record.value


def limit_side(
    path: Path, record_count: int, settings: Settings, stack: ExitStack
) -> tuple[dict[str, ColumnDigest], list[Contestant]]:
    """Return the digests and contestants of limit.c over a file; empty if it can't run."""
    library = compile_limit(settings)
    if library is None:
        return {}, []
    size = path.stat().st_size
    limit = FileLimit(library, path, chunk_bytes=LIMIT_CHUNK_BYTES, stack=stack)
    require_equal("bytes with a right CRC", {"file": size, BOUND: limit.check_crcs()})
    contestants = [Contestant(BOUND, without_result(limit.check_crcs), record_count)]
    digests = {}
    for binary in BINARIES:
        rows = limit.fills(LIMIT_FUNCTIONS[binary])
        digests[LIMIT[binary]] = digest_of_columns(rows, limit.columns, limit.segment, binary)
        run = exhausting(partial(limit.fills, LIMIT_FUNCTIONS[binary]))
        contestants.append(Contestant(LIMIT[binary], run, record_count))
    return digests, contestants


def plain_case(
    value_bytes: int, way: str, settings: Settings, *, scratch: Path, stack: ExitStack, segments_in_one: int = 1
) -> Case:
    """Check that all contestants read the same from one file, then time them in interleaved rounds."""
    segment_bytes = segments_in_one * settings.segment_bytes
    spec = PartitionSpec(name="bench-0", value_bytes=value_bytes, segment_bytes=segment_bytes)
    data = partition(spec, settings.data_directory)
    directory = written(data, scratch / "indexed" / "bench-0", way=way)
    unindexed = without_indexes(directory, scratch / "unindexed" / "bench-0")
    path = directory / data.log_files[0].name
    digests, contestants = {}, []
    for names, where in ((LOG, directory), (UNINDEXED, unindexed)):
        for binary in BINARIES:
            digests[names[binary]] = digest_of_arrow(log_batches(where, binary))
            run = exhausting(partial(log_batches, where, binary))
            contestants.append(Contestant(names[binary], run, data.record_count))
    of_limit = limit_side(path, data.record_count, settings, stack)
    segment = path.read_bytes()
    digests |= of_limit[0] | {AIOKAFKA: digest_of_aiokafka(segment)}
    require_equal(f"columns of {value_bytes}-byte values, written {way}", dict(digests))
    contestants += [*of_limit[1], Contestant(AIOKAFKA, partial(read_with_aiokafka, path), data.record_count)]
    kind = "a file written" if segments_in_one == 1 else "a long file"
    title = f"Scan from {kind} {way}, {value_bytes}-byte values: {data.record_count} records, {len(segment)} bytes"
    case = Case(title=title, unit="rec", bytes_per_unit=len(segment) / data.record_count)
    with Rivals(settings, path, tuple(FILE_MODES.values())) as rivals:
        contestants += rivals.contestants(data.record_count, expected_sum=sum_of_fields(segment))
        case.samples = interleaved(contestants, settings, cpu_seconds=rivals.cpu_seconds)
    for binary in BINARIES:
        case.add_ratio(LOG[binary], BOUND)
        case.add_ratio(LOG[binary], LIMIT[binary], target=TARGETS_OF_LIMIT[value_bytes])
        case.add_ratio(LOG[binary], AIOKAFKA)
        case.add_ratio(LOG[binary], f"{JAVA}, {FILE_MODES[binary]}")
        case.add_ratio(LOG[binary], f"{RUST}, {FILE_MODES[binary]}", target=TARGET_OF_RUST)
        case.add_ratio(UNINDEXED[binary], LOG[binary], target=TARGET_WITHOUT_INDEXES)
    return case


def compressed_case(codec: str, settings: Settings, *, scratch: Path) -> Case:
    """Do the same for compressed batches in a file written in steps, with copied columns."""
    spec = PartitionSpec(name="bench-0", value_bytes=100, segment_bytes=settings.segment_bytes, codec=codec)
    data = partition(spec, settings.data_directory)
    directory = written(data, scratch / codec / "bench-0", way=STEPS)
    path = directory / data.log_files[0].name
    segment = path.read_bytes()
    digests = {LOG["copy"]: digest_of_arrow(log_batches(directory, "copy")), AIOKAFKA: digest_of_aiokafka(segment)}
    require_equal(f"columns with {codec}", dict(digests))
    contestants = [
        Contestant(LOG["copy"], exhausting(partial(log_batches, directory, "copy")), data.record_count),
        Contestant(AIOKAFKA, partial(read_with_aiokafka, path), data.record_count),
    ]
    plain_bytes = digests[AIOKAFKA].rows * (100 + 8)
    title = f"Scan from a file written {STEPS}, 100-byte values, {codec}: {len(segment)} bytes"
    case = Case(title=title, unit="rec", bytes_per_unit=plain_bytes / data.record_count)
    with Rivals(settings, path, (FILE_MODES["copy"],), names=(JAVA,)) as rivals:
        contestants += rivals.contestants(data.record_count, expected_sum=sum_of_fields(segment))
        case.samples = interleaved(contestants, settings, cpu_seconds=rivals.cpu_seconds)
    case.add_ratio(LOG["copy"], AIOKAFKA)
    case.add_ratio(LOG["copy"], f"{JAVA}, {FILE_MODES['copy']}")
    return case


def run(settings: Settings) -> Iterator[Case]:
    """Time the scan at both value sizes for both kinds of file, then of a long file, and with each codec."""
    settings.data_directory.mkdir(parents=True, exist_ok=True)
    for value_bytes in VALUE_BYTES:
        for way in (ONE_PIECE, STEPS):
            with tempfile.TemporaryDirectory(dir=settings.data_directory) as scratch, ExitStack() as stack:
                yield plain_case(value_bytes, way, settings, scratch=Path(scratch), stack=stack)
    with tempfile.TemporaryDirectory(dir=settings.data_directory) as scratch, ExitStack() as stack:
        yield plain_case(1000, ONE_PIECE, settings, scratch=Path(scratch), stack=stack, segments_in_one=SEGMENTS_IN_ONE)
    for codec in COMPRESSED:
        with tempfile.TemporaryDirectory(dir=settings.data_directory) as scratch:
            yield compressed_case(codec, settings, scratch=Path(scratch))
