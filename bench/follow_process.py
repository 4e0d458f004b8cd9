"""Child process of bench_follow.py: follows a partition directory.

It prints a line when it has begun, then, for each record whose value is "end" or "idle", one line of JSON: the
latencies in seconds of the records before it, by the time in their values, or the CPU time in which it waited.
"""

from __future__ import annotations

import json
import sys
import time

from kstore import LATEST, Follower, Record, open_log


def main(directory: str, idle_seconds: float) -> None:
    with open_log(directory) as log:
        follower = log.follow(LATEST)
        print("ready", flush=True)
        latencies: list[float] = []
        for record in follower:
            now = time.monotonic()
            value = bytes(record.value or b"")
            if value == b"end":
                print(json.dumps(latencies), flush=True)
                latencies = []
            elif value == b"idle":
                print(json.dumps([idle(log.follow(LATEST, timeout=idle_seconds))]), flush=True)
            elif value == b"stop":
                return
            else:
                latencies.append(now - float(value))


def idle(follower: Follower[Record]) -> float:
    """Return the CPU seconds of a follower that gets nothing until its timeout."""
    began = time.process_time()
    assert list(follower) == []
    return time.process_time() - began


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
