"""Decoding of a segment in memory into offset, timestamp, key and value by the compiled core: one thread, CRC checked.

bench_scan.py measures what a user gets from a file.

Measured: the core over memory: the same columns (of 1 MiB, the default) by the compiled decoder.
Compared with: aiokafka's compiled reader touching the same four fields; `limit.c`; Java and Rust; for lz4, zstd, snappy
and gzip Java, and the codec package alone followed by the uncompressed decode.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
from aiokafka.record._crecords import MemoryRecords
from numpy.typing import NDArray

from bench.codec_alone import codec_calls, require_content
from bench.common import MIB, Case, Contestant, Settings, exhausting, interleaved, require_equal
from bench.core_decode import Binary, columns_of, record_batch_of
from bench.data import PartitionData, PartitionSpec, partition
from bench.digest import ColumnDigest, digest_of_arrow, from_ends, from_views
from bench.limit import VIEW_BYTES, Columns, Limit, compile_limit, padded
from bench.other_languages import JAVA, RUST, Rivals
from kstore.arrow import DEFAULT_BATCH_BYTES

AIOKAFKA = "aiokafka, four fields read"
LIMIT = {"copy": "limit.c, copied", "view": "limit.c, views"}
LIMIT_FUNCTIONS = {"copy": "limit_copied", "view": "limit_views"}
LARGE_LIMIT = "limit.c, copied, columns of 4 MiB"
CORE = {"copy": "kstore core, copied", "view": "kstore core, views"}
BINARIES: tuple[Binary, ...] = ("copy", "view")
COLUMNS = ["offset", "timestamp", "key", "value"]
VALUE_BYTES = (100, 1000)
TARGETS_OF_AIOKAFKA = {100: {"copy": 8.0, "view": 10.0}, 1000: {"copy": 5.0, "view": 9.0}}
TARGET_OF_LIMIT = 0.6
CODEC_LIMIT = "codec package alone, then the uncompressed decode"
TARGET_OF_CODEC_LIMIT = 0.85
TARGET_OF_COMPRESSED_JAVA = 1.0
MODES = {"copy": "copies", "view": "views"}
COMPRESSED = ("lz4", "zstd", "snappy", "gzip")


def read_with_aiokafka(segment: bytes) -> None:
    """Read the four fields of each record, after checking the CRC of its batch."""
    records = MemoryRecords(segment)
    while (batch := records.next_batch()) is not None:
        if not batch.validate_crc():
            raise ValueError("aiokafka found a wrong CRC")
        for record in batch:
            _ = record.offset
            _ = record.timestamp
            _ = record.key
            _ = record.value


def digest_of_aiokafka(segment: bytes) -> ColumnDigest:
    """Return the digest of the records that aiokafka reads."""
    digest = ColumnDigest()
    records = MemoryRecords(segment)
    while (batch := records.next_batch()) is not None:
        rows = list(batch)
        keys, values = [row.key for row in rows], [row.value for row in rows]
        digest.add(
            offsets=np.array([row.offset for row in rows], np.int64),
            timestamps_us=np.array([row.timestamp for row in rows], np.int64) * 1000,
            keys=(np.array([len(key) for key in keys], np.int32), np.frombuffer(b"".join(keys), np.uint8)),
            values=(np.array([len(value) for value in values], np.int32), np.frombuffer(b"".join(values), np.uint8)),
        )
    return digest


def sum_of_fields(segment: bytes) -> int:
    """Return the sum that the programs in other languages compute, from the records that aiokafka reads."""
    total = 0
    records = MemoryRecords(segment)
    while (batch := records.next_batch()) is not None:
        total += sum(row.offset + row.timestamp + len(row.key) + row.value[0] for row in batch)
    return total


def digest_of_limit(limit: Limit, binary: str, function: str | None = None) -> ColumnDigest:
    """Return the digest of the columns of limit.c after each fill, by its function for V2 or the given one."""
    return digest_of_columns(limit.fills(function or LIMIT_FUNCTIONS[binary]), limit.columns, limit.segment, binary)


def digest_of_columns(fills: Iterator[int], columns: Columns, segment: NDArray[np.uint8], binary: str) -> ColumnDigest:
    """Return the digest of columns that are filled repeatedly; views point into a segment."""
    digest = ColumnDigest()
    for rows in fills:
        if binary == "copy":
            keys = from_ends(columns.key_end[: rows + 1], columns.keys)
            values = from_ends(columns.value_end[: rows + 1], columns.values)
        else:
            keys = from_views(columns.key_view[: rows * VIEW_BYTES], segment)
            values = from_views(columns.value_view[: rows * VIEW_BYTES], segment)
        digest.add(offsets=columns.offset[:rows], timestamps_us=columns.timestamp_us[:rows], keys=keys, values=values)
    return digest


def limit_side(
    segment: NDArray[np.uint8], data: PartitionData, settings: Settings
) -> tuple[dict[str, ColumnDigest], list[Contestant]]:
    """Return the digests and contestants of limit.c, with columns as large as kstore's and of 4 MiB."""
    digests: dict[str, ColumnDigest] = {}
    contestants: list[Contestant] = []
    library = compile_limit(settings)
    if library is None:
        return digests, contestants
    same, large = (Limit(library, segment, column_bytes=size) for size in (DEFAULT_BATCH_BYTES, 4 * MIB))
    runs = ((LIMIT["copy"], same, "copy"), (LIMIT["view"], same, "view"), (LARGE_LIMIT, large, "copy"))
    for name, limit, binary in runs:
        digests[name] = digest_of_limit(limit, binary)
        run = exhausting(partial(limit.fills, LIMIT_FUNCTIONS[binary]))
        contestants.append(Contestant(name, run, data.record_count))
    return digests, contestants


def case_of(value_bytes: int, codec: str, settings: Settings) -> Case:
    """Check that all contestants read the same from one segment, then time them in interleaved rounds."""
    spec = PartitionSpec(name="bench-0", value_bytes=value_bytes, segment_bytes=settings.segment_bytes, codec=codec)
    data = partition(spec, settings.data_directory)
    segment = data.log_files[0].read_bytes()
    in_memory = padded(segment)
    digests, contestants = kstore_side(in_memory.data[: len(segment)], data)
    digests[AIOKAFKA] = digest_of_aiokafka(segment)
    contestants.append(Contestant(AIOKAFKA, partial(read_with_aiokafka, segment), data.record_count))
    if codec == "none":
        limit_digests, limit_contestants = limit_side(in_memory, data, settings)
        digests |= limit_digests
        contestants += limit_contestants
    else:
        contestants.append(codec_limit(codec, in_memory.data[: len(segment)], spec, settings))
    require_equal(f"columns of {spec.directory_name}", dict(digests))
    if digests[AIOKAFKA].rows != data.record_count:
        raise ValueError(f"expected {data.record_count} rows, found {digests[AIOKAFKA].rows}")

    plain_bytes = partition(replace(spec, codec="none"), settings.data_directory).size_in_bytes
    title = f"Decode, {value_bytes}-byte values, {codec}: {data.record_count} records, {len(segment)} bytes"
    case = Case(title=title, unit="rec", bytes_per_unit=plain_bytes / data.record_count)
    modes, programs = (tuple(MODES.values()), (JAVA, RUST)) if codec == "none" else ((MODES["copy"],), (JAVA,))
    with Rivals(settings, data.log_files[0], modes, names=programs) as rivals:
        contestants += rivals.contestants(data.record_count, expected_sum=sum_of_fields(segment))
        case.samples = interleaved(contestants, settings, cpu_seconds=rivals.cpu_seconds)
    add_ratios(case, value_bytes, codec)
    return case


def codec_limit(codec: str, segment: memoryview, spec: PartitionSpec, settings: Settings) -> Contestant:
    """Return the contestant that decompresses all payloads with the codec's package, then decodes the plain segment."""
    plain = partition(replace(spec, codec="none"), settings.data_directory)
    plain_bytes = plain.log_files[0].read_bytes()
    in_memory = padded(plain_bytes).data[: len(plain_bytes)]
    calls = codec_calls(codec, segment)
    require_content(codec, calls, in_memory)
    decode = exhausting(partial(columns_of, in_memory, "copy"))

    def run() -> None:
        calls()
        decode()

    return Contestant(CODEC_LIMIT, run, plain.record_count)


def kstore_side(segment: memoryview, data: PartitionData) -> tuple[dict[str, ColumnDigest], list[Contestant]]:
    """Return the digests and contestants of kstore."""
    digests: dict[str, ColumnDigest] = {}
    contestants: list[Contestant] = []
    for binary in BINARIES:
        from_memory = partial(columns_of, segment, binary)
        digests[CORE[binary]] = digest_of_arrow(record_batch_of(columns, binary) for columns in from_memory())
        contestants.append(Contestant(CORE[binary], exhausting(from_memory), data.record_count))
    return digests, contestants


def add_ratios(case: Case, value_bytes: int, codec: str) -> None:
    """Add the ratios that have targets, and those that are only informative."""
    case.add_ratio(CORE["copy"], LARGE_LIMIT)
    case.add_ratio(CORE["copy"], CODEC_LIMIT, target=TARGET_OF_CODEC_LIMIT)
    for binary in ("copy", "view"):
        targets = TARGETS_OF_AIOKAFKA[value_bytes] if codec == "none" else {}
        case.add_ratio(CORE[binary], AIOKAFKA, target=targets.get(binary))
        case.add_ratio(CORE[binary], LIMIT[binary], target=TARGET_OF_LIMIT)
        case.add_ratio(LIMIT[binary], AIOKAFKA)
        for language in (JAVA, RUST):
            is_bound = language == JAVA and codec != "none"
            target = TARGET_OF_COMPRESSED_JAVA if is_bound else None
            case.add_ratio(CORE[binary], f"{language}, {MODES[binary]}", target=target)
            case.add_ratio(f"{language}, {MODES[binary]}", AIOKAFKA)


def prepare(settings: Settings) -> None:
    """Write the segments, which bench_scan.py also reads."""
    for value_bytes in VALUE_BYTES:
        partition(
            PartitionSpec(name="bench-0", value_bytes=value_bytes, segment_bytes=settings.segment_bytes),
            settings.data_directory,
        )
    for codec in COMPRESSED:
        spec = PartitionSpec(name="bench-0", value_bytes=100, segment_bytes=settings.segment_bytes, codec=codec)
        partition(spec, settings.data_directory)


def run(settings: Settings) -> Iterator[Case]:
    """Time the decoders at both value sizes, then with each codec."""
    for value_bytes in VALUE_BYTES:
        yield case_of(value_bytes, "none", settings)
    for codec in COMPRESSED:
        yield case_of(100, codec, settings)
