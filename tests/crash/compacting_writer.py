"""A writer that appends records with keys, rolls, compacts and deletes; for test_followed_log.py.

Run as `python -m tests.crash.compacting_writer PARTITION DELIVERIES SEED SECONDS STOP`. A thread of it follows the log
in its own process. The values tell their offsets.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

from kstore.config import LogConfig
from kstore.log.log import Log
from kstore.record import Record
from kstore.store.opening import open_log
from tests.crash.following_reader import Following, records_in, write_down
from tests.crash.rewriting_writer import UnsyncedEnv

CONFIG = LogConfig(cleanup_policy="compact", segment_bytes=8 * 1024, segment_index_bytes=4096, index_interval_bytes=512)
KEYS = 40
FIRST_TIMESTAMP_MS = 1_600_000_000_000


def value_at(offset: int) -> bytes:
    return b"%d/" % offset * 4


class CompactingWriter:
    def __init__(self, directory: str, seed: int) -> None:
        self._choice = random.Random(seed)
        self.log = open_log(directory, "a", CONFIG, env=UnsyncedEnv())

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for _ in range(self._choice.randint(1, 150)):
                self._append()
            way = self._choice.random()
            if way < 0.6:
                self.log.roll()
            if way < 0.5:
                self.log.compact(is_forced=True, drops_keyless=True)
            elif way > 0.95:
                self.log.delete_records(max(self.log.log_end_offset - 500, self.log.log_start_offset))

    def _append(self) -> None:
        first = self.log.log_end_offset
        self.log.append(
            [
                Record(
                    offset=0,
                    timestamp_ms=FIRST_TIMESTAMP_MS + first + at,
                    key=b"%d" % self._choice.randrange(KEYS),
                    value=value_at(first + at),
                )
                for at in range(self._choice.randint(1, 3))
            ]
        )


def main() -> None:
    directory, deliveries, seed, seconds, stop = sys.argv[1:]
    writer = CompactingWriter(directory, int(seed))

    def opened() -> Log:
        return writer.log

    isolation: Any = "read_uncommitted"
    following = Following(
        opened, records_in, isolation=isolation, seed=int(seed), has_stopped=lambda: Path(stop).exists()
    )
    thread = threading.Thread(target=following.run)
    thread.start()
    writer.run(float(seconds))
    Path(stop).touch()
    thread.join()
    writer.log.close()
    write_down([following], deliveries)


if __name__ == "__main__":
    main()
