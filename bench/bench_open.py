"""Opening a log: of many segments for appends after a clean close, and for reading in a process that has just begun.

Measured: `open_log` for appends of a log of 10,000 segments that was closed cleanly: the time, and the number of `.log`
files of which anything is read (only the end of the last one); `from kstore import open_log` and `open_log` of a small
log for reading in a process of its own, by its CPU time.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.bench_append import sent_batches
from bench.common import MIB, Bound, Case, Settings, require_equal
from kstore.env import LocalEnv, LocalFile
from kstore.log.files.root_files import NO_BROKER_EPOCH, CleanShutdown, write_clean_shutdown
from kstore.record import MemoryRecords
from kstore.record.batches import set_last_offset
from kstore.store.opening import open_log

SEGMENTS = 10_000
BYTES_PER_SEGMENT = 4096
AT_MOST_SECONDS = 2.0
AT_MOST_MS_OF_START = 50.0
START = """
import sys, time
before = time.process_time()
from kstore import open_log
open_log(sys.argv[1])
print(time.process_time() - before)
"""


class ReadingEnv(LocalEnv):
    """An Env that records the .log files opened for reading."""

    def __init__(self) -> None:
        self.read_logs: list[str] = []

    def open_read(self, path: str) -> LocalFile:
        if path.endswith(".log"):
            self.read_logs.append(path)
        return super().open_read(path)


def write_segments(root: Path, count: int, settings: Settings) -> Path:
    """Write a cleanly closed partition of `count` segments of one batch each."""
    path = root / "t-0"
    path.mkdir()
    sent = bytearray(sent_batches(100, settings)[0])
    record_count = len(next(MemoryRecords(sent).batches()))
    for number in range(count):
        set_last_offset(sent, last_offset=(number + 1) * record_count - 1)
        name = f"{number * record_count:020d}"
        (path / f"{name}.log").write_bytes(sent)
        (path / f"{name}.index").touch()
        (path / f"{name}.timeindex").touch()
    write_clean_shutdown(str(root), CleanShutdown(NO_BROKER_EPOCH), LocalEnv())
    with open_log(path, "a") as log:
        require_equal("end offset", {"written": count * record_count, "kstore": log.log_end_offset})
    return path


def start_case(path: Path, settings: Settings) -> Case:
    """Open a log in processes that have imported nothing before; the first one writes the compiled modules."""
    case = Case(title="A process that opens a log for reading", unit="process", bytes_per_unit=0)
    command = (sys.executable, "-c", START, path)
    found = [float(subprocess.check_output(command)) * 1000 for _ in range(1 + settings.rounds)]
    # A tiny run shows that this works.
    slack = 100 if settings.segment_bytes < MIB else 1
    name = "kstore, import of open_log and a call"
    case.bounds.append(Bound(name=name, unit="CPU ms", values=found[1:], at_most=AT_MOST_MS_OF_START * slack))
    return case


def run(settings: Settings) -> Iterator[Case]:
    """Open a log of 10,000 segments several times, and a small one in new processes."""
    count = min(SEGMENTS, settings.segment_bytes // BYTES_PER_SEGMENT)
    case = Case(title=f"Open a log of {count} segments after a clean close", unit="opening", bytes_per_unit=0)
    seconds, reads = [], []
    with tempfile.TemporaryDirectory() as directory:
        path = write_segments(Path(directory), count, settings)
        for _ in range(settings.rounds):
            env = ReadingEnv()
            start = time.perf_counter()
            log = open_log(path, "a", env=env)
            seconds.append(time.perf_counter() - start)
            reads.append(float(len(env.read_logs)))
            log.close()
    case.bounds.append(Bound(name="kstore, open_log for appends", unit="s", values=seconds, at_most=AT_MOST_SECONDS))
    case.bounds.append(Bound(name="kstore, .log files read of", unit="files", values=reads, at_most=1))
    yield case
    with tempfile.TemporaryDirectory() as directory:
        yield start_case(write_segments(Path(directory), 1, settings), settings)
