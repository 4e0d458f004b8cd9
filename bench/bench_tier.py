"""Tiered storage: planning by the metadata topic, reading encrypted segments, what a lookup requests; and adoption.

Measured: a root and its tier (Aiven's layout, local files) of 10,000 segments, planned by the metadata topic; a segment
of 64 MiB in chunks of 4 MiB, zstd and AES-256-GCM, by one thread and by two, and one that is stored as it is; the
objects requested by `log.get` in a root that was just opened; `kstore.adopt` of 1,000 partitions.
Compared with: a local root of 10,000 segments (target by processor time); `cryptography` and `zstandard` over the
chunks, and the decoder over the segment, all in memory, by one thread and by two, each with a half; the same segment as
a local file; bounds.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import zstandard
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import kstore
from bench.bench_store import write_root as write_partitions
from bench.common import (
    MIB,
    Bound,
    Case,
    Contestant,
    Settings,
    exhausting,
    interleaved,
    require_equal,
    without_result,
)
from bench.core_decode import columns_of, record_batch_of
from bench.data import PartitionSpec, batch_positions, partition
from bench.digest import digest_of_arrow
from kstore.config import LogConfig
from kstore.env import DEFAULT_ENV, LocalEnv, LocalFile
from kstore.tier.chunks import ChunkIndex
from kstore.tier.files import TierFiles
from kstore.tier.keys import KeyRing
from kstore.tier.manifest import parse_manifest
from tests.making.batches import batches, write_root
from tests.making.tiers import AAD, DATA_KEY, FINISHED, STARTED, Tier, key, text_of, write_epochs, write_events

COLUMNS = ["offset", "timestamp", "key", "value"]
SEGMENTS, PARTITIONS = 10_000, 10
EPOCHS = ((0, 0),)
CHUNK_BYTES = 4 * MIB
IV_BYTES = 12
LOCAL, BY_EVENTS = "a local root", "a root and its tier, by the metadata topic"
TARGET_OF_PLANNING = 0.5
ONE_THREAD, TWO_THREADS = "kstore, one thread", "kstore, two threads"
PARTS = "decrypt, decompress and decode alone, over memory"
PARTS_IN_TWO = "the same parts, by two threads"
TARGET_OF_PARTS, TARGET_OF_TWO_THREADS = 0.8, 1.6
PLAIN, FILES = "kstore, a plain tier", "kstore, local files"
TARGET_OF_PLAIN = 0.9
LOOKUPS = 200
ADOPTED, ADOPT_SECONDS, ADOPT_ROUNDS = 1_000, 2.0, 5


def planned_roots(segments: int, settings: Settings) -> Path:
    """Return a directory with a local root, and a root whose older segments are in a tier; written if need be."""
    path = settings.data_directory / f"tier-plan-{segments}"
    if (path / "done").exists():
        return path
    shutil.rmtree(path, ignore_errors=True)
    local: dict[str, Sequence[Sequence[bytes]]] = {}
    events: list[bytes] = []
    for number in range(PARTITIONS):
        made = [batches(start * 2, 1, records_per_batch=2) for start in range(segments // PARTITIONS)]
        local[f"t-{number}"] = made
        tier = Tier(path=path / "tier", partition=number)
        for at, segment in enumerate(made[:-1]):
            uploaded = tier.upload(segment, EPOCHS, segment_id=text_of((number << 64) + at))
            events += [tier.event(uploaded, STARTED), tier.event(uploaded, FINISHED)]
    write_root(path / "local", local)
    rest = {name: made[-1:] for name, made in local.items()}
    write_root(path / "root", rest, log_start_offsets=dict.fromkeys(local, 0))
    for root in ("local", "root"):
        for name in local:
            write_epochs(path / root / name, EPOCHS)
    write_events(path / "root", events)
    (path / "done").touch()
    return path


def planned(root: Path, **options: Any) -> list[tuple[int, int, int]]:
    """Plan all partitions of a root; return partition, offsets and files of each range."""
    with kstore.open_store(root, **options) as store:
        ranges = [each for one in store.partitions if one.topic == "t" for each in store.log(*one).plan()]
    return [(each.partition, each.start_offset, len(each.files)) for each in ranges]


def planning(settings: Settings) -> Case:
    """Plan 10,000 segments that are local, and as many that are in a tier."""
    segments = SEGMENTS if settings.rounds > 1 else 100
    path = planned_roots(segments, settings)
    ways = {LOCAL: partial(planned, path / "local"), BY_EVENTS: partial(planned, path / "root", tier=path / "tier")}
    require_equal("ranges", {name: way() for name, way in ways.items()})
    case = Case(title=f"Plan {segments} segments of {PARTITIONS} partitions", unit="segment", bytes_per_unit=0)
    contestants = [Contestant(name, without_result(way), segments) for name, way in ways.items()]
    case.samples = interleaved(contestants, settings, one_run_per_sample=True)
    case.add_ratio(BY_EVENTS, LOCAL, target=TARGET_OF_PLANNING, by="cpu")
    return case


class Segment:
    """A segment of the benches' data in a tier, of this form, which is written if need be."""

    def __init__(self, name: str, settings: Settings, *, is_encrypted: bool, chunk_bytes: int) -> None:
        spec = PartitionSpec(name="bench-0", value_bytes=100, segment_bytes=settings.segment_bytes)
        self.local = partition(spec, settings.data_directory)
        self.plain = self.local.log_files[0].read_bytes()
        self.path = settings.data_directory / f"tier-{name}-{settings.segment_bytes}"
        if not (self.path / "key1.pem").exists():
            shutil.rmtree(self.path, ignore_errors=True)
            options = {"is_compressed": True, "key": key()} if is_encrypted else {}
            tier = Tier(path=self.path / "tier", topic="bench", chunk_bytes=chunk_bytes, **options)
            tier.upload(list(batches_of(self.plain)), EPOCHS, segment_id=text_of(1))
            key().write(self.path)
        self.tier = self.path / "tier"
        self.keys = {"key1": self.path / "key1.pem"}
        (manifest,) = self.tier.rglob("*.rsm-manifest")
        self.chunks: ChunkIndex = parse_manifest(manifest.read_bytes(), path=str(manifest)).chunks

    def read(self, *, threads: int = 1) -> Iterator[pa.RecordBatch]:
        """Read the tier alone through the public interface."""
        with kstore.open_log(self.tier / "bench-0", tier=self.tier, tier_keys=self.keys) as log:
            yield from log.to_arrow_batches(columns=COLUMNS, threads=threads)

    def stored(self) -> list[memoryview]:
        """Return the chunks as they are in the object."""
        (path,) = self.tier.rglob("*.log")
        content = memoryview(path.read_bytes())
        chunks = map(self.chunks.chunk, range(len(self.chunks)))
        return [content[one.stored_position : one.stored_position + one.stored_bytes] for one in chunks]


def batches_of(log: bytes) -> Iterator[bytes]:
    """Yield the batches of a segment."""
    position = 0
    while position < len(log):
        end = position + 12 + int.from_bytes(log[position + 8 : position + 12], "big")
        yield log[position:end]
        position = end


def local_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Read a partition directory through the public interface."""
    with kstore.open_log(path) as log:
        yield from log.to_arrow_batches(columns=COLUMNS)


def by_parts(stored: Iterable[memoryview], plain: memoryview) -> Iterator[pa.RecordBatch]:
    """Decrypt and decompress each chunk, and decode what they are, which is in memory."""
    cipher, frames = AESGCM(DATA_KEY), zstandard.ZstdDecompressor()
    content = bytearray(CHUNK_BYTES)
    for chunk in stored:
        frame = cipher.decrypt(bytes(chunk[:IV_BYTES]), chunk[IV_BYTES:], AAD)
        frames.stream_reader(frame).readinto(content)
    for columns in columns_of(plain, "copy"):
        yield record_batch_of(columns, "copy")


def by_parts_in_two(stored: Sequence[memoryview], plain: memoryview, middle: int) -> Iterator[pa.RecordBatch]:
    """As by_parts, one half by another thread: of the chunks, and of the batches, which `middle` is between."""
    half = len(stored) // 2
    with ThreadPoolExecutor(1) as other:
        second = other.submit(lambda: list(by_parts(stored[half:], plain[middle:])))
        yield from by_parts(stored[:half], plain[:middle])
        yield from second.result()


def reading(encrypted: Segment, settings: Settings) -> Case:
    """Read a compressed and encrypted segment with one thread and with two."""
    stored, plain = encrypted.stored(), memoryview(encrypted.plain)
    positions = batch_positions(np.frombuffer(plain, np.uint8))
    middle = int(positions[len(positions) // 2])
    ways = {
        ONE_THREAD: encrypted.read,
        TWO_THREADS: partial(encrypted.read, threads=2),
        PARTS: partial(by_parts, stored, plain),
        PARTS_IN_TWO: partial(by_parts_in_two, stored, plain, middle),
    }
    require_equal("columns", {name: digest_of_arrow(way()) for name, way in ways.items()})
    case = Case(
        title=f"Read a segment of {len(plain)} bytes, zstd and AES-256-GCM in chunks of {encrypted.chunks.chunk_bytes}",
        unit="rec",
        bytes_per_unit=len(plain) / encrypted.local.record_count,
    )
    contestants = [Contestant(name, exhausting(way), encrypted.local.record_count) for name, way in ways.items()]
    case.samples = interleaved(contestants, settings)
    case.add_ratio(ONE_THREAD, PARTS, target=TARGET_OF_PARTS)
    case.add_ratio(TWO_THREADS, ONE_THREAD, target=TARGET_OF_TWO_THREADS)
    case.add_ratio(PARTS_IN_TWO, PARTS)
    case.add_ratio(TWO_THREADS, PARTS_IN_TWO, target=TARGET_OF_PARTS)
    return case


def reading_plain(plain: Segment, settings: Settings) -> Case:
    """Read a segment that is stored as it is, and the same as a broker's file."""
    ways = {PLAIN: plain.read, FILES: partial(local_batches, plain.local.path)}
    require_equal("columns", {name: digest_of_arrow(way()) for name, way in ways.items()})
    case = Case(
        title=f"Read a segment of {len(plain.plain)} bytes, neither compressed nor encrypted",
        unit="rec",
        bytes_per_unit=len(plain.plain) / plain.local.record_count,
    )
    contestants = [Contestant(name, exhausting(way), plain.local.record_count) for name, way in ways.items()]
    case.samples = interleaved(contestants, settings)
    case.add_ratio(PLAIN, FILES, target=TARGET_OF_PLAIN)
    return case


class RequestEnv(LocalEnv):
    """An Env that counts the reads of objects by suffix, as a store would get requests."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()

    def open_read(self, path: str) -> LocalFile:
        file: Any = super().open_read(path)
        pread, pread_into = file.pread, file.pread_into

        def counted(size: int, *, position: int) -> bytes:
            self.requests[Path(path).suffix] += 1
            data: bytes = pread(size, position=position)
            return data

        def counted_into(buffer: bytearray | memoryview, *, position: int) -> int:
            self.requests[Path(path).suffix] += 1
            done: int = pread_into(buffer, position=position)
            return done

        file.pread, file.pread_into = counted, counted_into
        opened: LocalFile = file
        return opened

    def read_file(self, path: str, *, max_bytes: int) -> bytes:
        self.requests[Path(path).suffix] += 1
        return DEFAULT_ENV.read_file(path, max_bytes=max_bytes)


def lookups(encrypted: Segment, scratch: Path) -> Case:
    """Get records by offsets, each in a root that was just opened, from batches that lie in a chunk with the batch
    before them, to which the offset index leads.
    """
    plain = encrypted.plain
    starts = batch_positions(np.frombuffer(plain, np.uint8)).tolist()
    size = encrypted.chunks.chunk_bytes
    ends = [*starts[1:], len(plain)]
    whole = [
        at for at, before, end in zip(starts[1:], starts, ends[1:], strict=False) if before // size == (end - 1) // size
    ]
    chosen = random.Random(42).sample(whole, min(LOOKUPS, len(whole)))
    root = scratch / "root"
    write_root(root, {"bench-0": [batches(encrypted.local.record_count, 1)]}, log_start_offsets={"bench-0": 0})
    write_epochs(root / "bench-0", EPOCHS)
    case = Case(title="A record by its offset, of a segment that is in the tier", unit="lookup", bytes_per_unit=0)
    found: dict[str, list[float]] = {".log": [], ".rsm-manifest": [], ".indexes": []}
    keys = KeyRing.of(encrypted.keys)
    for start in chosen:
        offset = int.from_bytes(plain[start : start + 8], "big")
        remote = RequestEnv()
        files = TierFiles(
            DEFAULT_ENV, remote, tier=str(encrypted.tier), roots=[str(root)], keys=keys, config=LogConfig()
        )
        with kstore.open_log(root / "bench-0", env=files.env) as log:
            record = log.get(offset)
        require_equal("offset", {"wanted": offset, "kstore": None if record is None else record.offset})
        for suffix, values in found.items():
            values.append(float(remote.requests[suffix]))
    for what, suffix, most in (("chunks", ".log", 1), ("manifests", ".rsm-manifest", 1)):
        case.bounds.append(Bound(name=f"{what} requested", unit=what, values=found[suffix], at_most=most))
    case.notes.append(f"slices of indexes requested: {max(found['.indexes']):.0f}")
    return case


def adopting(scratch: Path, settings: Settings) -> Case:
    """Adopt a root of 1,000 partitions."""
    partitions = ADOPTED if settings.rounds > 1 else 10
    write_partitions(scratch / "before", partitions, settings)
    case = Case(title=f"Adopt a root of {partitions} partitions", unit="adoption", bytes_per_unit=0)
    seconds = []
    for number in range(min(settings.rounds, ADOPT_ROUNDS)):
        root = scratch / f"adopted-{number}"
        shutil.copytree(scratch / "before", root)
        start = time.process_time()
        report = kstore.adopt(root, keep_forever=True)
        seconds.append(time.process_time() - start)
        require_equal("partitions", {"there": partitions, "kstore": report.partition_count})
        shutil.rmtree(root)
    case.bounds.append(Bound(name="kstore.adopt", unit="CPU s", values=seconds, at_most=ADOPT_SECONDS))
    return case


def segments_of(settings: Settings) -> tuple[Segment, Segment]:
    """Return the compressed and encrypted segment, and the plain one."""
    chunk_bytes = min(CHUNK_BYTES, settings.segment_bytes)
    encrypted = Segment("encrypted", settings, is_encrypted=True, chunk_bytes=chunk_bytes)
    return encrypted, Segment("plain", settings, is_encrypted=False, chunk_bytes=chunk_bytes)


def prepare(settings: Settings) -> None:
    """Write the data."""
    planned_roots(SEGMENTS, settings)
    segments_of(settings)


def run(settings: Settings) -> Iterator[Case]:
    """Plan, read and look up what is in a tier, and adopt a root."""
    yield planning(settings)
    encrypted, plain = segments_of(settings)
    yield reading(encrypted, settings)
    yield reading_plain(plain, settings)
    with tempfile.TemporaryDirectory() as scratch:
        yield lookups(encrypted, Path(scratch))
        yield adopting(Path(scratch), settings)
