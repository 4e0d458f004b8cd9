"""Followers of a log: how long after its append a record is there, in the writer's process and in another one, and the
CPU time of one that waits.

Measured: a follower of a log that gets a record every 2 ms, in another process and in the writer's own: how long after
its append a record is there; the CPU time of a follower that waits for 10 s.
Compared with: in one process, the same by hand: a thread that takes the offset of each append from a
`queue.SimpleQueue` and reads the record with `log.get`.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.common import Bound, Case, Settings, require_equal
from kstore import LATEST, Record, open_log
from kstore.log.write.writable_log import WritableLog

RECORDS = 1000
PAUSE_SECONDS = 0.002
MOST_ROUNDS = 5
IDLE_SECONDS = 10.0
AT_MOST_MS_OF_PROCESS, AT_MOST_MS_OF_THREAD = 5.0, 1.0
# Of one that looks at nothing: starting and ending the wait takes less than this.
AT_MOST_IDLE_MS = 5.0


def send(log: WritableLog, value: bytes) -> int:
    return log.append(Record(offset=0, timestamp_ms=1000, key=None, value=value)).last_offset


def send_all(log: WritableLog, count: int) -> None:
    """Append records one by one, each with the time of its append."""
    for _ in range(count):
        send(log, b"%.9f" % time.monotonic())
        time.sleep(PAUSE_SECONDS)


def own_latencies(log: WritableLog, count: int) -> list[float]:
    """Return the latencies of a follower in another thread."""
    follower, found = log.follow(LATEST), list[float]()

    def follow() -> None:
        for record in follower:
            now = time.monotonic()
            if record.value == b"end":
                return
            found.append(now - float(bytes(record.value or b"")))

    thread = threading.Thread(target=follow)
    thread.start()
    send_all(log, count)
    send(log, b"end")
    thread.join()
    follower.close()
    return found


def latencies_by_hand(log: WritableLog, count: int) -> list[float]:
    """Return the latencies of a thread that is given each offset and reads its record: what waking a thread costs."""
    given, found = queue.SimpleQueue[int](), list[float]()

    def take() -> None:
        for offset in iter(given.get, -1):
            value = log[offset].value
            found.append(time.monotonic() - float(bytes(value or b"")))

    thread = threading.Thread(target=take)
    thread.start()
    for _ in range(count):
        given.put(send(log, b"%.9f" % time.monotonic()))
        time.sleep(PAUSE_SECONDS)
    send(log, b"end")
    given.put(-1)
    thread.join()
    return found


def answer_of(process: subprocess.Popen[str]) -> list[float]:
    """Return what the other process says after "end" or "idle"."""
    assert process.stdout is not None
    found: list[float] = json.loads(process.stdout.readline())
    return found


def percentile_ms(latencies: Sequence[float], percent: float) -> float:
    return 1000 * sorted(latencies)[min(int(len(latencies) * percent / 100), len(latencies) - 1)]


def bounds_of(
    name: str, rounds: Sequence[Sequence[float]], *, at_most_ms: float, bare: Sequence[Sequence[float]] = ()
) -> Iterator[Bound]:
    for percent in (50, 99):
        yield Bound(
            name=f"{name}, {percent} % of records within",
            unit="ms",
            values=[percentile_ms(one, percent) for one in rounds],
            at_most=at_most_ms,
            bare="a queue.SimpleQueue and log.get" if bare else "",
            bare_values=[percentile_ms(one, percent) for one in bare],
        )


def run(settings: Settings) -> Iterator[Case]:
    """Append to a followed log, 500 records a second."""
    is_tiny = settings.rounds < MOST_ROUNDS
    count, idle_seconds = (20, 0.1) if is_tiny else (RECORDS, IDLE_SECONDS)
    case = Case(
        title=f"A follower of a log that gets a record every {PAUSE_SECONDS * 1000:.0f} ms",
        unit="record",
        bytes_per_unit=0,
    )
    own, others, bare, idle = list[list[float]](), list[list[float]](), list[list[float]](), list[float]()
    with tempfile.TemporaryDirectory() as directory, open_log(Path(directory) / "t-0", "a") as log:
        command = [sys.executable, "-m", "bench.follow_process", log.path, str(idle_seconds)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            require_equal("begin", {"expected": "ready", "follower": process.stdout.readline().strip()})
            for _ in range(min(settings.rounds, MOST_ROUNDS)):
                send_all(log, count)
                send(log, b"end")
                others.append(answer_of(process))
                own.append(own_latencies(log, count))
                bare.append(latencies_by_hand(log, count))
                given = {"own": len(own[-1]), "other process": len(others[-1]), "by hand": len(bare[-1])}
                # The other process was given both of these too.
                given |= {f"other process, {which}": len(answer_of(process)) for which in ("own", "by hand")}
                require_equal("records", {"sent": count} | given)
            send(log, b"idle")
            idle += answer_of(process)
            send(log, b"stop")
    # A tiny run shows that all of this works; nothing about its times is a claim.
    slack = 10_000 if is_tiny else 1
    case.bounds += bounds_of("kstore, in another process", others, at_most_ms=AT_MOST_MS_OF_PROCESS * slack)
    case.bounds += bounds_of("kstore, in the writer's process", own, at_most_ms=AT_MOST_MS_OF_THREAD * slack, bare=bare)
    case.bounds.append(
        Bound(
            name=f"kstore, CPU time of a follower that waits for {idle_seconds:.0f} s",
            unit="ms",
            values=[one * 1000 for one in idle],
            at_most=AT_MOST_IDLE_MS * slack,
        )
    )
    yield case
