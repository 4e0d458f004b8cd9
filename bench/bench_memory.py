"""Peak memory of scanning a directory of 1 GiB in a new process, above that of the interpreter with its imports.

Measured: peak resident memory of a fresh process that scans 1 GiB, above what it had after its imports.
Compared with: 300 MiB.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.common import BENCH_DIRECTORY, Bound, Case, Settings, require_equal
from bench.data import PartitionSpec, repeated

AT_MOST_MIB = 300.0
VALUE_BYTES = (100, 1000)
WAYS = (("copy", 1), ("view", 1), ("copy", 2))
PROCESSES = 7


def scan(directory: Path, binary: str, threads: int) -> tuple[int, float]:
    """Scan in a new process; return the rows and the peak memory in MiB above that before the scan."""
    command = [sys.executable, "-m", "bench.scan_process", str(directory), binary, str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=BENCH_DIRECTORY.parent)
    found = json.loads(done.stdout)
    return int(found["rows"]), float(found["peak_mib"] - found["before_mib"])


def case_of(value_bytes: int, settings: Settings) -> Case:
    """Scan one directory in each way, several times."""
    spec = PartitionSpec(
        name="bench-0",
        value_bytes=value_bytes,
        segment_bytes=settings.segment_bytes,
        segment_count=max(1, settings.log_bytes // settings.segment_bytes),
    )
    data = repeated(spec, settings.data_directory)
    size_mib = data.size_in_bytes / 2**20
    case = Case(title=f"Memory, {size_mib:.0f} MiB of {value_bytes}-byte values", unit="MiB", bytes_per_unit=2**20)
    for binary, threads in WAYS:
        peaks = []
        for _ in range(min(PROCESSES, settings.rounds)):
            rows, peak = scan(data.path, binary, threads)
            require_equal("rows of the scan", {"data": data.record_count, "kstore": rows})
            peaks.append(peak)
        name = f"kstore, binary={binary}, threads={threads}"
        case.bounds.append(Bound(name=name, unit="MiB", values=peaks, at_most=AT_MOST_MIB))
    return case


def run(settings: Settings) -> Iterator[Case]:
    """Measure both value sizes."""
    for value_bytes in VALUE_BYTES:
        yield case_of(value_bytes, settings)
