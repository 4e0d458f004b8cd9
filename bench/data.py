"""Input data of the workloads: deterministic segments, written by aiokafka's builder and kept in bench/data/.

Key: 8 bytes, big-endian record number. Value: words of 8 letters from a dictionary of 1024, chosen by splitmix64.
Timestamp: +1 ms every 10 records. No headers, no producer id. A batch is closed before its uncompressed size exceeds
16384 bytes, so batch boundaries and records are the same for every codec. This module does not use kstore.
"""

from __future__ import annotations

import gzip
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import crc32c
import lz4.frame
import numpy as np
import zstandard
from aiokafka.record._crecords import DefaultRecordBatchBuilder
from cramjam import snappy
from numpy.typing import NDArray

BASE_TIMESTAMP_MS = 1_700_000_000_000
RECORDS_PER_MS = 10
BATCH_BYTES = 16384
BATCH_OVERHEAD = 61
INDEX_INTERVAL_BYTES = 4096
WORD_BYTES = 8
WORD_COUNT = 1024
WORDS_PER_DRAW = 6
RECORDS_PER_BLOCK = 8192
SNAPPY_BLOCK_BYTES = 32 * 1024
ALPHABET = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz012345", np.uint8)
CODEC_IDS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@dataclass(frozen=True, kw_only=True)
class PartitionSpec:
    """The content of one partition directory. Equal specs produce equal bytes."""

    name: str
    value_bytes: int
    segment_bytes: int
    segment_count: int = 1
    codec: str = "none"
    seed: int = 42

    @property
    def directory_name(self) -> str:
        size = f"{self.value_bytes}B-{self.segment_count}x{self.segment_bytes}-{self.codec}-{self.seed}"
        return f"{size}/{self.name}"


@dataclass(frozen=True)
class PartitionData:
    """A partition directory on disk and its number of records."""

    path: Path
    record_count: int

    @property
    def log_files(self) -> list[Path]:
        return sorted(self.path.glob("*.log"))

    @property
    def size_in_bytes(self) -> int:
        return sum(file.stat().st_size for file in self.log_files)


def splitmix64(seed: int, draws: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the draws of splitmix64 with these numbers (1 is the first) for a seed."""
    with np.errstate(over="ignore"):
        mixed = np.uint64(seed) + draws * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)), np.uint64)


def dictionary(seed: int) -> NDArray[np.uint8]:
    """Return the 1024 words from the first 1024 draws. Returns: uint8[1024, 8]."""
    draws = splitmix64(seed, np.arange(1, WORD_COUNT + 1, dtype=np.uint64))
    shifts = np.arange(0, 5 * WORD_BYTES, 5, dtype=np.uint64)
    return np.asarray(ALPHABET[(draws[:, None] >> shifts) & np.uint64(31)])


def values(first: int, *, count: int, value_bytes: int, seed: int) -> NDArray[np.uint8]:
    """Return the values of `count` records from record number `first` on. Returns: uint8[count, value_bytes]."""
    words_per_value = -(-value_bytes // WORD_BYTES)
    draws_per_value = -(-words_per_value // WORDS_PER_DRAW)
    records = np.arange(first, first + count, dtype=np.uint64)[:, None]
    numbers = records * np.uint64(draws_per_value) + np.arange(1, draws_per_value + 1, dtype=np.uint64)
    draws = splitmix64(seed, numbers + np.uint64(WORD_COUNT))
    shifts = np.arange(0, 10 * WORDS_PER_DRAW, 10, dtype=np.uint64)
    words = (draws[:, :, None] >> shifts) & np.uint64(WORD_COUNT - 1)
    letters = dictionary(seed)[words.reshape(count, -1)]
    return np.ascontiguousarray(letters.reshape(count, -1)[:, :value_bytes])


def records(first: int, *, value_bytes: int, seed: int) -> Iterator[tuple[int, int, bytes, bytes]]:
    """Yield (offset, timestamp ms, key, value) endlessly, from record number `first` on."""
    while True:
        block = values(first, count=RECORDS_PER_BLOCK, value_bytes=value_bytes, seed=seed).tobytes()
        for i in range(RECORDS_PER_BLOCK):
            offset = first + i
            timestamp_ms = BASE_TIMESTAMP_MS + offset // RECORDS_PER_MS
            yield offset, timestamp_ms, struct.pack(">q", offset), block[i * value_bytes : (i + 1) * value_bytes]
        first += RECORDS_PER_BLOCK


def _new_builder() -> DefaultRecordBatchBuilder:
    return DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=BATCH_BYTES,
    )


def _finish(builder: DefaultRecordBatchBuilder, *, base_offset: int) -> bytes:
    batch = bytearray(builder.build())
    struct.pack_into(">q", batch, 0, base_offset)
    struct.pack_into(">i", batch, 12, 0)
    return bytes(batch)


def uncompressed_batches(first: int, *, value_bytes: int, seed: int) -> Iterator[tuple[int, bytes]]:
    """Yield (base offset, V2 batch) endlessly, with leader epoch 0. The CRC covers neither field."""
    builder, base_offset = _new_builder(), first
    for offset, timestamp_ms, key, value in records(first, value_bytes=value_bytes, seed=seed):
        if builder.append(offset - base_offset, timestamp_ms, key, value, []) is None:
            yield base_offset, _finish(builder, base_offset=base_offset)
            builder, base_offset = _new_builder(), offset
            builder.append(0, timestamp_ms, key, value, [])


def _compress_lz4(payload: bytes) -> bytes:
    return bytes(lz4.frame.compress(payload, block_linked=False, store_size=False))


def _compress_snappy(payload: bytes) -> bytes:
    framed = bytearray(b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1))
    for start in range(0, len(payload), SNAPPY_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(payload[start : start + SNAPPY_BLOCK_BYTES]))
        framed += struct.pack(">i", len(block)) + block
    return bytes(framed)


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda payload: gzip.compress(payload, 6, mtime=0),
    "snappy": _compress_snappy,
    "lz4": _compress_lz4,
    "zstd": zstandard.ZstdCompressor(level=3).compress,
}


def recompressed(batch: bytes, codec: str) -> bytes:
    """Return the batch with its records compressed, at the level of COMPRESSORS."""
    if codec == "none":
        return batch
    payload = COMPRESSORS[codec](batch[BATCH_OVERHEAD:])
    header = bytearray(batch[:BATCH_OVERHEAD])
    struct.pack_into(">i", header, 8, BATCH_OVERHEAD - 12 + len(payload))
    struct.pack_into(">h", header, 21, CODEC_IDS[codec])
    struct.pack_into(">I", header, 17, crc32c.crc32c(payload, crc32c.crc32c(bytes(header[21:]))))
    return bytes(header) + payload


def _write_segment(directory: Path, batches: Iterator[tuple[int, bytes]], *, spec: PartitionSpec) -> int:
    """Write one segment of spec.segment_bytes before compression, with indexes; return the offset after its end."""
    index, time_index = bytearray(), bytearray()
    plain_bytes = position = since_entry = 0
    base_offset = -1
    next_offset = 0
    with open(directory / "new.log", "wb") as log:
        while plain_bytes < spec.segment_bytes:
            first, batch = next(batches)
            plain_bytes += len(batch)
            base_offset = first if base_offset < 0 else base_offset
            next_offset = first + struct.unpack_from(">i", batch, 57)[0]
            if since_entry > INDEX_INTERVAL_BYTES:
                relative_offset = next_offset - 1 - base_offset
                index += struct.pack(">ii", relative_offset, position)
                time_index += struct.pack(">qi", struct.unpack_from(">q", batch, 35)[0], relative_offset)
                since_entry = 0
            written = log.write(recompressed(batch, spec.codec))
            position += written
            since_entry += written
    (directory / f"{base_offset:020}.index").write_bytes(index)
    (directory / f"{base_offset:020}.timeindex").write_bytes(time_index)
    (directory / "new.log").rename(directory / f"{base_offset:020}.log")
    return next_offset


def partition(spec: PartitionSpec, data_directory: Path) -> PartitionData:
    """Return the partition directory of a spec, writing it if it does not exist (some seconds per 100 MB)."""
    target = data_directory / spec.directory_name
    count_file = target.parent / f"{target.name}.count"
    if not count_file.exists():
        _replace_directory(target)
        batches = uncompressed_batches(0, value_bytes=spec.value_bytes, seed=spec.seed)
        next_offset = 0
        for _ in range(spec.segment_count):
            next_offset = _write_segment(target, batches, spec=spec)
        count_file.write_text(str(next_offset))
    return PartitionData(target, int(count_file.read_text()))


def _replace_directory(target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    os.makedirs(target)


def batch_positions(log: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the positions of the batches of a whole segment. Returns: int64[batches]."""
    data = log.tobytes()
    positions, position = [], 0
    while position < len(data):
        positions.append(position)
        position += 12 + struct.unpack_from(">i", data, position + 8)[0]
    return np.array(positions, np.int64)


def repeated(spec: PartitionSpec, data_directory: Path) -> PartitionData:
    """Do as partition(), but make all further segments by copying the first and shifting its base offsets: faster."""
    target = data_directory / "repeated" / spec.directory_name
    count_file = target.parent / f"{target.name}.count"
    if not count_file.exists():
        one = partition(replace(spec, segment_count=1), data_directory)
        log = np.fromfile(one.log_files[0], np.uint8)
        places = batch_positions(log)[:, None] + np.arange(8)
        base_offsets = log[places].copy().view(">i8").ravel()
        _replace_directory(target)
        for number in range(spec.segment_count):
            first = number * one.record_count
            log[places] = (base_offsets + first).astype(">i8").view(np.uint8).reshape(-1, 8)
            log.tofile(target / f"{first:020}.log")
            for suffix in ("index", "timeindex"):
                shutil.copyfile(one.path / f"{0:020}.{suffix}", target / f"{first:020}.{suffix}")
        count_file.write_text(str(spec.segment_count * one.record_count))
    return PartitionData(target, int(count_file.read_text()))
