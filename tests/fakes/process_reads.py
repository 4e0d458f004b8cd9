"""What this process has read by system calls: bytes and calls, of compiled code too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Reads:
    """The bytes that were read, and by how many calls."""

    size_in_bytes: int = 0
    calls: int = 0


def _so_far() -> tuple[int, int]:
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counts["rchar"]), int(counts["syscr"])


@contextmanager
def counted_reads() -> Iterator[Reads]:
    """Count what is read in a with block, and the few hundred bytes of counting."""
    reads = Reads()
    before = _so_far()
    yield reads
    after = _so_far()
    reads.size_in_bytes, reads.calls = after[0] - before[0], after[1] - before[1]


def can_read_cached(path: Path) -> bool:
    """Tell whether the system reads this file without waiting for a disk when asked for that."""
    with path.open("rb") as file:
        try:
            return os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT) == 1
        except (AttributeError, OSError):
            return False
