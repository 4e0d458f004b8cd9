"""A writer to be killed: appends to a log and reports each step, step by step. Run by tests/crash/test_kill.py."""

from __future__ import annotations

import random
from dataclasses import replace

from kstore.config import LogConfig
from kstore.record import Record
from kstore.store.opening import open_log
from kstore.types import TimestampType
from tests.crash.nursery import report, serve

# Kinds of a report, with the log end or where a truncation goes, and how many truncations there were.
APPENDED, TRUNCATING, TRUNCATED = range(2, 5)
CONFIG = LogConfig(segment_bytes=16 * 1024, segment_index_bytes=4096, index_interval_bytes=512)
TIMESTAMP_MS = 1_700_000_000_000


def payload(offset: int, generation: int) -> bytes:
    """Return the value of the record at an offset, written after so many truncations."""
    size = random.Random(offset * 1000 + generation).choice([10, 100, 1000, 3500])
    return f"{offset}/{generation}/".encode().ljust(size, b"%d" % (offset % 10))


def write_until_killed(path: str, generation: int, seed: int, is_honest: bool) -> None:
    """Not honest, a planted fault: an append is reported before it is made."""
    rng = random.Random(seed)
    with open_log(path, "a", replace(CONFIG, preallocate=rng.random() < 0.5)) as log:
        # Where batches end: a truncation elsewhere leaves a gap of offsets.
        ends = [log.log_end_offset]
        while True:
            end = log.log_end_offset
            step = rng.random()
            if step < 0.02:
                target = rng.choice(ends[-10:])
                ends = [one for one in ends if one <= target]
                generation += 1
                report(TRUNCATING, target, generation)
                log.truncate_to(target)
                report(TRUNCATED, target, generation)
                continue
            if step < 0.05:
                log.roll()
            records = [
                Record(
                    offset=0,
                    timestamp_ms=TIMESTAMP_MS + offset,
                    value=payload(offset, generation),
                    timestamp_type=TimestampType.CREATE_TIME,
                )
                for offset in range(end, end + rng.randint(1, 4))
            ]
            if not is_honest:
                report(APPENDED, end + len(records), generation)
            log.append(records, ack=rng.choice(["written", "written", "flushed"]))
            ends.append(log.log_end_offset)
            report(APPENDED, log.log_end_offset, generation)


if __name__ == "__main__":
    serve(write_until_killed)
