"""Child process of bench_index.py: prints by how many KiB its own memory grows by a first lookup in each segment."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import kstore
from kstore.config import LogConfig


def own_memory() -> int:
    """Return the anonymous memory of this process in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def main(path: str, access: Any) -> None:
    """Open the log for writing, and look up an offset in the middle of each sealed segment."""
    with kstore.open_log(path, "a", LogConfig(index_access=access)) as log:
        segments = log.segments
        before = own_memory()
        for segment, following in pairwise(segments):
            segment.translate_offset((segment.base_offset + following.base_offset) // 2)
        print(own_memory() - before)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
