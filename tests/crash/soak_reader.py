"""A follower of the soak: reads every partition as it grows, beside the writer and beside its death.

Run as `python -m tests.crash.soak_reader ROOT`, until its standard input is closed. It reports how many it read.
Each record of a partition has to come once and in order; only what retention removed may be missing.
"""

from __future__ import annotations

import logging
import select
import sys
from pathlib import Path

from kstore.errors import CorruptionError, LogNotFoundError, LogReplacedError, OffsetOutOfRangeError
from kstore.log.log import Log
from kstore.store.opening import open_log
from tests.crash.nursery import STARTED, report
from tests.crash.soak_records import IDEMPOTENT, PARTITIONS, PLAIN, TRANSACTIONAL, TRUNCATED, Read, read

# Kind of a report, with the records read so far.
READ = 2
PAUSE_SECONDS = 0.05
MOVED_ON = (LogReplacedError, LogNotFoundError, OffsetOutOfRangeError)
MOST_DAMAGED = 20


class Follower:
    """Reads one partition on and on; position: the offset after the last record, None before the first."""

    def __init__(self, root: str, topic: str, partition: int) -> None:
        self._path = Path(root) / f"{topic}-{partition}"
        self._topic = topic
        self._log: Log | None = None
        self._position: int | None = None
        self._last_number = -1
        self._damaged = 0

    def follow(self) -> int:
        """Read what is new; return how many records."""
        count = 0
        try:
            if self._log is None:
                self._log = open_log(self._path)
            self._log.refresh()
            start, end = self._log.log_start_offset, self._log.log_end_offset
            if self._position is None or self._position < start:
                self._position = start
            if self._position < end:
                for part in read(self._log, self._position, is_committed=self._topic == TRANSACTIONAL):
                    self._take(part)
                    count += len(part.offsets)
            self._damaged = 0
        except MOVED_ON:
            self._forget()
        except CorruptionError:
            # What a killed writer left, until the next one recovers it.
            self._damaged += 1
            self._forget()
            if self._damaged > MOST_DAMAGED:
                raise
        return count

    def _take(self, part: Read) -> None:
        if not len(part.offsets):
            return
        assert self._position is not None
        first, last = int(part.offsets[0]), int(part.offsets[-1])
        assert first >= self._position, f"{self._path}: {first} after {self._position}"
        if self._topic in (PLAIN, IDEMPOTENT):
            assert first == self._position, f"{self._path}: {first} after {self._position}, nothing in between"
            assert last - first + 1 == len(part.offsets), f"{self._path}: a gap between {first} and {last}"
        if self._topic == TRANSACTIONAL:
            assert int(part.numbers[0, 0]) > self._last_number, f"{self._path}: {part.numbers[0]} again"
            assert (part.numbers[1:, 0] > part.numbers[:-1, 0]).all(), f"{self._path}: not in order"
            self._last_number = int(part.numbers[-1, 0])
        else:
            assert (part.numbers[:, 0] == part.offsets[part.has_value]).all(), f"{self._path}: not its records"
        self._position = last + 1

    def _forget(self) -> None:
        if self._log is not None:
            self._log.close()
        self._log = None


def main() -> None:
    logging.disable(logging.CRITICAL)
    followers = [Follower(sys.argv[1], topic, partition) for topic, partition in PARTITIONS if topic != TRUNCATED]
    report(STARTED)
    count = 0
    while not select.select([sys.stdin], [], [], PAUSE_SECONDS)[0]:
        found = sum(one.follow() for one in followers)
        count += found
        if found:
            report(READ, count)


if __name__ == "__main__":
    main()
