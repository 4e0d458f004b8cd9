"""Child process of the memory workload: scans one partition directory and reports its memory.

`python -m bench.scan_process DIRECTORY BINARY THREADS` prints rows, and resident MiB before the scan and at the peak.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Literal, cast

import kstore
import kstore.arrow


def resident_mib(field: str) -> float:
    """Return VmRSS (current) or VmHWM (peak) of this process in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"/proc/self/status has no {field}")


def main(directory: str, binary: Literal["copy", "view"], threads: int) -> None:
    """Scan all default columns, discard each batch, and print rows and memory."""
    before = resident_mib("VmRSS")
    rows = 0
    with kstore.open_log(directory) as log:
        for batch in log.to_arrow_batches(binary=binary, threads=threads):
            rows += batch.num_rows
    print(json.dumps({"rows": rows, "before_mib": before, "peak_mib": resident_mib("VmHWM")}))


if __name__ == "__main__":
    main(sys.argv[1], cast(Literal["copy", "view"], sys.argv[2]), int(sys.argv[3]))
