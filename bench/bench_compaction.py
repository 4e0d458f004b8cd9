"""Compaction of a log of ten million keys, by kstore and by a broker's cleaner, and the same bytes read, decoded and
written without a map."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.common import Case, Samples, Settings, require_equal
from bench.core_decode import columns_of
from bench.digest import ColumnDigest
from bench.other_languages import JAVA_CLEANER, Running, programs
from kstore import pack_record_batch
from kstore.config import LogConfig
from kstore.env import LocalEnv
from kstore.log.files.root_files import NO_BROKER_EPOCH, CleanShutdown, write_clean_shutdown
from kstore.log.write.compaction import CompactionReport
from kstore.store.opening import open_log

TARGET_TO_COPY = 0.4
TARGET_TO_JAVA = 2.0
KEY_BYTES, VALUE_BYTES, RECORD_BYTES = 16, 80, 107
# Of a hundred records, so many have a key of their own.
NEW_KEYS = 95
BATCH_BYTES = 16 * 1024
SEGMENTS = 8
LEAST_SEGMENT_BYTES = 1024 * 1024
FIRST_MS = 1_700_000_000_000
MAP_BYTES = 512 * 1024 * 1024
ROUNDS = 5
MODE = "clean"
KSTORE = "kstore, compact"
COPY = "kstore, read, decode and write without a map"


def config_of(settings: Settings) -> LogConfig:
    return LogConfig(
        segment_bytes=max(settings.log_bytes // SEGMENTS, LEAST_SEGMENT_BYTES),
        cleanup_policy="compact",
        cleaner_dedupe_buffer_bytes=MAP_BYTES,
        max_message_bytes=2**30,
        file_delete_delay_ms=0,
    )


def write_log(root: Path, settings: Settings) -> Path:
    """Write a cleanly closed log of settings.log_bytes, with an empty active segment."""
    path = root / "t-0"
    count = settings.log_bytes // RECORD_BYTES
    generator = np.random.default_rng(20)
    numbers = generator.permutation(np.arange(count, dtype=np.uint64))
    repeated = generator.random(count) * 100 >= NEW_KEYS
    numbers[repeated] = numbers[(generator.random(int(repeated.sum())) * count).astype(np.int64)]
    value = generator.integers(97, 123, VALUE_BYTES, dtype=np.uint8).tobytes()
    with open_log(path, "a", config_of(settings)) as log:
        for start in range(0, count, 100_000):
            part = numbers[start : start + 100_000]
            keys = np.char.zfill(part.astype(f"S{KEY_BYTES}"), KEY_BYTES)
            table = pa.record_batch(
                {
                    "key": pa.array(keys.tolist(), pa.binary()),
                    "value": pa.array([value] * len(part), pa.binary()),
                    "timestamp": pa.array(np.arange(start, start + len(part)) + FIRST_MS, pa.timestamp("ms", "UTC")),
                }
            )
            for run in pack_record_batch(table, base_offset=log.log_end_offset, batch_bytes=BATCH_BYTES):
                log.append_as_follower(run)
        log.roll()
    write_clean_shutdown(str(root), CleanShutdown(NO_BROKER_EPOCH), LocalEnv())
    return path


def linked(source: Path, target: Path) -> Path:
    """Return a root like that of a partition, whose .log files are links to the same ones."""
    path = target / source.name
    path.mkdir(parents=True)
    for file in source.parent.iterdir():
        if file.is_file() and file.name != ".lock":
            shutil.copy2(file, target / file.name)
    for file in source.iterdir():
        if file.suffix == ".log" and file.stat().st_size:
            os.link(file, path / file.name)
        else:
            shutil.copy2(file, path / file.name)
    return path


def compacted(path: Path, settings: Settings) -> CompactionReport:
    with open_log(path, "a", config_of(settings)) as log:
        return log.compact(is_forced=True)


def copied(path: Path) -> None:
    """Read each .log once, decode its records into columns, and write its bytes durably beside it."""
    for log in sorted(path.glob("*.log")):
        content = log.read_bytes()
        for columns in columns_of(memoryview(content), "copy"):
            del columns
        with (path / f"{log.name}.copy").open("wb") as target:
            for start in range(0, len(content), 1 << 20):
                target.write(content[start : start + (1 << 20)])
            target.flush()
            os.fdatasync(target.fileno())


class Cleaners:
    """The contestants, each of which gets a fresh root with the same log for each run. Exits with its programs."""

    def __init__(self, source: Path, scratch: Path, settings: Settings) -> None:
        self._source = source
        self._root = scratch / "root"
        self._settings = settings
        self._stack = ExitStack()
        self._size = sum(file.stat().st_size for file in source.glob("*.log"))
        self.report: CompactionReport | None = None
        self.samples: dict[str, Samples] = {}
        self._runs: dict[str, Callable[[Path], object]] = {COPY: copied, KSTORE: self._compacted}
        self._cpu_seconds: dict[str, Callable[[], float]] = {}

    def __enter__(self) -> Cleaners:
        arguments = (str(MAP_BYTES), str(config_of(self._settings).segment_bytes))
        for program in programs(self._settings, (JAVA_CLEANER,)):
            running = self._stack.enter_context(Running(program, self._root / self._source.name, MODE, *arguments))
            self._runs[running.name] = lambda _, running=running: running.sum_of(1)
            self._cpu_seconds[running.name] = running.cpu_seconds
        self.samples = {name: Samples(contestant=name) for name in self._runs}
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    @property
    def names(self) -> list[str]:
        return [*self._runs]

    def _compacted(self, path: Path) -> None:
        self.report = compacted(path, self._settings)

    def results(self) -> dict[str, ColumnDigest]:
        """Run each cleaner once, which also warms it up, and return a digest of the records that it kept."""
        return {name: self._run(name)[0] for name in self._runs if name != COPY}

    def round(self) -> None:
        """Run all in turn, and add the rates in bytes per second."""
        for name, samples in self.samples.items():
            _, seconds, cpu = self._run(name, is_digested=False)
            samples.wall.append(self._size / seconds)
            samples.cpu.append(self._size / max(cpu, 1e-9))

    def _run(self, name: str, *, is_digested: bool = True) -> tuple[ColumnDigest, float, float]:
        path = linked(self._source, self._root)
        os.sync()
        cpu_seconds = self._cpu_seconds.get(name, time.process_time)
        start, cpu = time.perf_counter(), cpu_seconds()
        self._runs[name](path)
        seconds, cpu = time.perf_counter() - start, cpu_seconds() - cpu
        digest = ColumnDigest()
        if is_digested:
            with open_log(path) as log:
                for batch in log.to_arrow_batches(columns=["offset", "timestamp", "key", "value"]):
                    digest.add_arrow(batch)
        shutil.rmtree(self._root)
        return digest, seconds, cpu


def run(settings: Settings) -> Iterator[Case]:
    """Compact the log, and copy it, several times in turn."""
    with tempfile.TemporaryDirectory(dir=_made(settings.data_directory)) as directory:
        source = write_log(_made(Path(directory) / "source"), settings)
        size = sum(file.stat().st_size for file in source.glob("*.log"))
        with Cleaners(source, Path(directory), settings) as cleaners:
            require_equal("records kept", dict(cleaners.results()))
            for _ in range(min(settings.rounds, ROUNDS)):
                cleaners.round()
            report, names = cleaners.report, cleaners.names
        if report is None:
            raise TypeError("expected a CompactionReport, found none")
        require_equal("bytes of the log", {"written": size, "compacted": report.bytes_before})
        count = settings.log_bytes // RECORD_BYTES
        case = Case(title=f"Compact {size / 2**20:.0f} MiB, {count:,} records", unit="B", bytes_per_unit=1)
        case.samples += cleaners.samples.values()
        case.add_ratio(KSTORE, COPY, target=TARGET_TO_COPY)
        for name in names[2:]:
            case.add_ratio(KSTORE, name, target=TARGET_TO_JAVA)
        case.notes.append(f"{report.records_kept:,} of {report.records_read:,} records kept, in {report.rounds} round")
        yield case


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory
