"""`python -m tests.fuzz.hostile_report`: how long each row of the hostile tables takes, and how much memory.

Each row is a .log file of its own, read by a fresh child as records and as columns under the tables' limit; the memory
is how far the child's largest resident size rose above what it began with. Ends with 1 if a row is above the goals.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from kstore.config import LogConfig
from kstore.errors import CorruptionError, UnsupportedError
from kstore.log.segment.file_records import FileRecords
from tests.fuzz.message_mutator import Fields
from tests.hostile import test_input as hostile_input
from tests.hostile import test_messages as hostile_messages
from tests.hostile.test_input import LIMIT
from tests.reference.verdicts import Refused, column_verdict

MOST_MS = 100.0
MOST_BYTES = 16 << 20
MIB = 1 << 20
SLOWEST_SHOWN = 15


class Cost(NamedTuple):
    """What the slower way of reading a row took; errors: of records and of columns, "read" where there is none.

    most_bytes: what it may take: the limit, 16 MiB, and the file twice, as it is read and as it is held.
    """

    ms: float
    grown_bytes: int
    errors: list[str]
    most_bytes: int

    @property
    def is_above(self) -> bool:
        return self.ms > MOST_MS or self.grown_bytes > self.most_bytes or self.errors == ["crashed"]


def rows() -> Iterator[tuple[str, bytes]]:
    """Every refused row of both tables, and what it is read from."""
    for name, (data, _) in hostile_input.FRAMES.items():
        yield name, data
    for name, (codec, payload) in hostile_input.PAYLOADS.items():
        yield name, hostile_input.compressed(codec, payload())
    for name, (row, _) in hostile_messages.ROWS.items():
        yield f"message {name}", hostile_messages.data_of(row)
    for name, (magic, codec, payload) in hostile_messages.MESSAGE_PAYLOADS.items():
        yield name, Fields(magic=magic, attributes=codec, value=payload()).pack()


def read_records(path: Path) -> str:
    """Name the error."""
    try:
        with FileRecords.open(path, config=LogConfig(max_decompressed_bytes=LIMIT)) as records:
            for _ in records:
                pass
    except (CorruptionError, UnsupportedError) as error:
        return type(error).__name__
    return "read"


def read_columns(path: Path) -> str:
    """Name the error."""
    columns = column_verdict(path.read_bytes(), limit=LIMIT)
    return columns.error if isinstance(columns, Refused) else "read"


def timed(read: Callable[[Path], str], path: Path) -> tuple[float, str]:
    start = time.perf_counter()
    error = read(path)
    return (time.perf_counter() - start) * 1000, error


def warm_up(path: Path) -> None:
    """Have every codec package imported before the first child."""
    for codec, payload in hostile_input.GOOD_PAYLOADS.items():
        path.write_bytes(hostile_input.compressed(codec, payload))
        read_records(path)
        read_columns(path)


def cost_of(path: Path) -> Cost:
    """Fork, read the row in the child, and return what that took."""
    most_bytes = LIMIT + MOST_BYTES + 2 * path.stat().st_size
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        times, errors = zip(*(timed(read, path) for read in (read_records, read_columns)), strict=True)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        os.write(writer, json.dumps([max(times), grown * (1 if sys.platform == "darwin" else 1024), errors]).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    ms, grown_bytes, found = json.loads(said or '[0, 0, ["crashed"]]')
    return Cost(ms, grown_bytes, found, most_bytes)


def costs(*, rounds: int) -> Iterator[tuple[str, Cost]]:
    """The rows and their costs: the median time and the most memory of some rounds."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "00000000000000000000.log"
        warm_up(path)
        for name, data in rows():
            path.write_bytes(data)
            found = [cost_of(path) for _ in range(rounds)]
            ms = statistics.median(cost.ms for cost in found)
            yield name, found[0]._replace(ms=ms, grown_bytes=max(cost.grown_bytes for cost in found))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.hostile_report", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="children per row (default 3)")
    parser.add_argument("--all", action="store_true", help="print every row, not only the slowest and those above")
    options = parser.parse_args()
    found = dict(sorted(costs(rounds=options.rounds), key=lambda row: -row[1].ms))
    above = [name for name, cost in found.items() if cost.is_above]
    for name in found if options.all else dict.fromkeys([*list(found)[:SLOWEST_SHOWN], *above]):
        cost = found[name]
        mark = "ABOVE " if cost.is_above else "      "
        say(f"{mark}{cost.ms:8.2f} ms {cost.grown_bytes / MIB:6.1f} MiB  {name}: {', '.join(cost.errors)}")
    slowest_ms = max(cost.ms for cost in found.values())
    largest = max(cost.grown_bytes for cost in found.values())
    say(f"{len(found)} rows, {len(above)} above the goals; slowest {slowest_ms:.1f} ms of {MOST_MS:.0f}, most memory")
    say(f"{largest / MIB:.1f} MiB of {MOST_BYTES / MIB:.0f} and the limit of {LIMIT / MIB:.0f}")
    return 1 if above else 0


def say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
