"""The round-trip matrix: format x codec x timestamp type x shape, and what every right reader finds in each case.

A case says what to write, never how; it does not import kstore. Each kind of batch stands once in a table.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tests.making.batches import FIRST_TIMESTAMP_MS, record
from tests.reference import codec as reference
from tests.reference import codecs as codecs
from tests.reference.codec import CREATE_TIME, LOG_APPEND_TIME, Record

NO_TIMESTAMP_TYPE = -1
BASE_OFFSET = 1000
LOG_APPEND_TIME_MS = FIRST_TIMESTAMP_MS + 86_400_000
TYPE_NAMES = {NO_TIMESTAMP_TYPE: "none", CREATE_TIME: "create", LOG_APPEND_TIME: "append"}
CODECS = {
    0: (codecs.NONE, codecs.GZIP, codecs.SNAPPY, codecs.LZ4),
    1: (codecs.NONE, codecs.GZIP, codecs.SNAPPY, codecs.LZ4),
    2: (codecs.NONE, codecs.GZIP, codecs.SNAPPY, codecs.LZ4, codecs.ZSTD),
}
TIMESTAMP_TYPES = {0: (NO_TIMESTAMP_TYPE,), 1: (CREATE_TIME, LOG_APPEND_TIME), 2: (CREATE_TIME, LOG_APPEND_TIME)}
Rows = list[Record]


def _plain(first: int) -> Rows:
    return [record(first + n, b"value %d" % n, b"key %d" % n) for n in range(5)]


def _null_keys(first: int) -> Rows:
    return [record(first + n, b"value %d" % n) for n in range(3)]


def _null_values(first: int) -> Rows:
    return [record(first + n, None, b"key %d" % n) for n in range(3)]


def _empty(first: int) -> Rows:
    pairs = ((b"", b""), (None, b""), (b"", None), (None, None))
    return [record(first + n, value, key) for n, (key, value) in enumerate(pairs)]


def _large(first: int) -> Rows:
    half = random.Random(1).randbytes(1 << 19)
    return [record(first, half + bytes(1 << 19), b"large"), record(first + 1, b"small", half[: 1 << 16])]


def _many(first: int) -> Rows:
    return [record(first + n, b"value %d " % n * (n % 9), b"key %d" % (n % 97)) for n in range(10_000)]


def _gaps(first: int) -> Rows:
    return [record(first + gap, b"value %d" % gap) for gap in (0, 1, 63, 64, 8191, 8192, 2**20, 2**31 - 1)]


def _timestamps(first: int) -> Rows:
    stamps = (FIRST_TIMESTAMP_MS, -1, 0, FIRST_TIMESTAMP_MS - 1, 2**53, 1)
    return [record(first + n, b"v", timestamp_ms=stamp) for n, stamp in enumerate(stamps)]


def _headers(first: int) -> Rows:
    """UTF-8 of one to four bytes, repeated and empty keys, null and empty values, 200 headers on one record."""
    sets = (
        [(b"k", b"v")],
        [("Ω€😀".encode(), b"\xff\xfe\x00"), (b"", None), (b"", b""), (b"k", b"1"), (b"k", b"2")],
        [],
        [(b"h%d" % n, bytes(n)) for n in range(200)],
        [("\u007f\u0080\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff".encode(), b"edges of UTF-8")],
    )
    return [record(first + n, b"value", b"key", headers=headers) for n, headers in enumerate(sets)]


def _marker(control_type: int) -> Callable[[int], Rows]:
    key, value = struct.pack(">hh", 0, control_type), struct.pack(">hi", 0, 7)
    return lambda first: [record(first, value, key)._replace(is_control=True)]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Records that start at an offset; least_magic is the first format that can hold them."""

    rows: Callable[[int], Rows]
    least_magic: int = 0
    options: tuple[tuple[str, Any], ...] = ()


def _since_v2(rows: Callable[[int], Rows], **options: Any) -> Shape:
    return Shape(rows=rows, least_magic=2, options=tuple(options.items()))


PRODUCER = {"producer_id": 4_000_000_007, "producer_epoch": 3, "base_sequence": 0}
SHAPES = {
    "plain": Shape(rows=_plain),
    "null-key": Shape(rows=_null_keys),
    "null-value": Shape(rows=_null_values),
    "empty": Shape(rows=_empty),
    "1-mib": Shape(rows=_large),
    "10000-records": Shape(rows=_many),
    "gaps": Shape(rows=_gaps),
    "timestamps": Shape(rows=_timestamps, least_magic=1),
    "headers": _since_v2(_headers),
    "idempotent": _since_v2(_plain, **PRODUCER),
    "sequence-wrap": _since_v2(_plain, **PRODUCER | {"base_sequence": 2**31 - 3}),
    "transactional": _since_v2(_plain, **PRODUCER, is_transactional=True),
    "leader-epoch": _since_v2(_plain, partition_leader_epoch=2**31 - 1),
    "delete-horizon": _since_v2(_null_values, delete_horizon_ms=FIRST_TIMESTAMP_MS + 10**9),
    "abort": _since_v2(_marker(0), **PRODUCER | {"base_sequence": -1}, is_transactional=True, is_control=True),
    "commit": _since_v2(_marker(1), **PRODUCER | {"base_sequence": -1}, is_transactional=True, is_control=True),
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One batch, or in V0 and V1 without a codec a run of messages."""

    magic: int
    codec: int
    timestamp_type: int
    shape: str
    base_offset: int = BASE_OFFSET

    @property
    def name(self) -> str:
        parts = (f"v{self.magic}", codecs.CODEC_NAMES[self.codec], TYPE_NAMES[self.timestamp_type], self.shape)
        return "-".join(parts)

    @cached_property
    def records(self) -> Rows:
        """What is written: CreateTime records."""
        return SHAPES[self.shape].rows(self.base_offset)

    @property
    def options(self) -> dict[str, Any]:
        """Options of reference.write_batch beside codec and base offset."""
        options = dict(SHAPES[self.shape].options)
        if self.timestamp_type == LOG_APPEND_TIME:
            options["log_append_time_ms"] = LOG_APPEND_TIME_MS
        return options

    @cached_property
    def expected(self) -> Rows:
        """What is read back."""
        return [self._as_read(row) for row in self.records]

    def _as_read(self, row: Record) -> Record:
        stamp = {NO_TIMESTAMP_TYPE: -1, LOG_APPEND_TIME: LOG_APPEND_TIME_MS}.get(self.timestamp_type, row.timestamp_ms)
        sequence = self.options.get("base_sequence", -1)
        if sequence >= 0:
            sequence = (sequence + row.offset - self.base_offset) % (reference.MAX_INT32 + 1)
        return row._replace(timestamp_ms=stamp, timestamp_type=self.timestamp_type, sequence=sequence)

    def at(self, base_offset: int) -> Case:
        return replace(self, base_offset=base_offset)


def cases(*magics: int) -> Iterator[Case]:
    """All cases of these formats."""
    for magic in magics:
        for codec in CODECS[magic]:
            for timestamp_type in TIMESTAMP_TYPES[magic]:
                for shape, row in SHAPES.items():
                    if magic >= row.least_magic:
                        yield Case(magic=magic, codec=codec, timestamp_type=timestamp_type, shape=shape)
