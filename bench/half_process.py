"""Child process of bench_read.py: decodes one half of a partition directory for each line on standard input."""

from __future__ import annotations

import sys

import kstore.arrow
from kstore.store.opening import open_log

RANGE_BYTES = 1024 * 1024
COLUMNS = ["offset", "timestamp", "key", "value"]


def main(directory: str, half: int) -> None:
    """Print the number of rows decoded for each line read, until end of file."""
    with open_log(directory) as log:
        ranges = list(log.plan(max_bytes=RANGE_BYTES))
    middle = len(ranges) // 2
    mine = ranges[middle:] if half else ranges[:middle]
    for _ in sys.stdin:
        rows = sum(batch.num_rows for batch in kstore.arrow.record_batches(mine, columns=COLUMNS))
        print(rows, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
