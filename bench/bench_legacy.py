"""Verified decode of magic 1 into offset, timestamp, key and value: plain messages, and wrappers of 16 KiB.

Measured: the same four columns of a 16 MiB segment of magic 1, plain messages and wrappers of 16 KiB in gzip and lz4:
the compiled decoder over memory, values copied and as views.
Compared with: aiokafka's compiled reader touching the same four fields.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import partial

from aiokafka.record._crecords import LegacyRecordBatchBuilder

from bench.bench_decode import AIOKAFKA, BINARIES, CORE, digest_of_aiokafka, digest_of_limit, read_with_aiokafka
from bench.common import Case, Contestant, Settings, exhausting, interleaved, require_equal
from bench.core_decode import columns_of, record_batch_of
from bench.data import BATCH_BYTES, CODEC_IDS, records
from bench.digest import digest_of_arrow
from bench.limit import Limit, compile_limit, padded
from kstore.arrow import DEFAULT_BATCH_BYTES

SEED = 42
MAGIC = 1
# Bytes of a message of magic 1 without its key and value.
MESSAGE_OVERHEAD = 34
TARGET_OF_AIOKAFKA = 8.0
LIMIT = "limit.c, messages, copied"
LIMIT_FUNCTION = "limit_messages"
CASES = ((100, "none"), (1000, "none"), (100, "gzip"), (100, "lz4"))


def message_set(first: int, *, count: int, value_bytes: int, codec: str) -> bytes:
    """Build `count` messages, or one wrapper around them, by aiokafka."""
    builder = LegacyRecordBatchBuilder(MAGIC, CODEC_IDS[codec], count * (MESSAGE_OVERHEAD + 8 + value_bytes) + 1)
    base = 0 if codec == "none" else first
    rows = records(first, value_bytes=value_bytes, seed=SEED)
    for _ in range(count):
        offset, timestamp_ms, key, value = next(rows)
        if builder.append(offset - base, timestamp_ms, key, value) is None:
            raise ValueError("aiokafka's builder is full before its last message")
    data = bytearray(builder.build())
    if codec != "none":
        struct.pack_into(">q", data, 0, first + count - 1)
    return bytes(data)


def segment_of(value_bytes: int, codec: str, segment_bytes: int) -> tuple[bytes, int]:
    """Return messages of about segment_bytes before compression, and their number."""
    size = MESSAGE_OVERHEAD + 8 + value_bytes
    per_set = max(1, BATCH_BYTES // size)
    sets = max(1, segment_bytes // (size * per_set))
    parts = [
        message_set(number * per_set, count=per_set, value_bytes=value_bytes, codec=codec) for number in range(sets)
    ]
    return b"".join(parts), sets * per_set


def case_of(value_bytes: int, codec: str, settings: Settings) -> Case:
    """Check that all contestants read the same from one segment, then time them in interleaved rounds."""
    segment, count = segment_of(value_bytes, codec, settings.segment_bytes // 4)
    in_memory = padded(segment)
    digests = {AIOKAFKA: digest_of_aiokafka(segment)}
    contestants = [Contestant(AIOKAFKA, partial(read_with_aiokafka, segment), count)]
    for binary in BINARIES:
        decode = partial(columns_of, in_memory.data[: len(segment)], binary)
        digests[CORE[binary]] = digest_of_arrow(record_batch_of(columns, binary) for columns in decode())
        contestants.append(Contestant(CORE[binary], exhausting(decode), count))
    library = compile_limit(settings) if codec == "none" else None
    if library is not None:
        limit = Limit(library, in_memory, column_bytes=DEFAULT_BATCH_BYTES)
        digests[LIMIT] = digest_of_limit(limit, "copy", LIMIT_FUNCTION)
        contestants.append(Contestant(LIMIT, exhausting(partial(limit.fills, LIMIT_FUNCTION)), count))
    require_equal(f"columns of {value_bytes}-byte values, {codec}", dict(digests))
    if digests[AIOKAFKA].rows != count:
        raise ValueError(f"expected {count} rows, found {digests[AIOKAFKA].rows}")
    title = f"Magic 1, {value_bytes}-byte values, {codec}: {count} records, {len(segment)} bytes"
    case = Case(title=title, unit="rec", bytes_per_unit=MESSAGE_OVERHEAD + 8 + value_bytes)
    case.samples = interleaved(contestants, settings)
    for binary in BINARIES:
        case.add_ratio(CORE[binary], AIOKAFKA, target=TARGET_OF_AIOKAFKA if codec == "none" else None)
    case.add_ratio(CORE["copy"], LIMIT)
    case.add_ratio(LIMIT, AIOKAFKA)
    return case


def run(settings: Settings) -> Iterator[Case]:
    """Time plain messages at both value sizes, then wrappers."""
    for value_bytes, codec in CASES:
        yield case_of(value_bytes, codec, settings)
