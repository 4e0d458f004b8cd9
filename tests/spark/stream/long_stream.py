"""A stream beside a writer for a long time: `python -m tests.spark.stream.long_stream --seconds 3600 --seed 1`.

One thread appends, rolls and deletes what was read, without a pause; between micro-batches what was not yet read may be
truncated. The query is started again and again, and its driver dies at random places. Each record must be read once and
in order. Memory and descriptors must not grow.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import sys
import tempfile
import threading
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kstore.config import LogConfig
from kstore.log.write.writable_log import WritableLog
from kstore.record import Record
from kstore.store.store import WritableStore, open_store
from tests.fakes.stream_query import Crash, Killed, StreamQuery

TOPIC, PARTITIONS = "t", 4
CRASHES: tuple[Crash, ...] = ("before offsets", "before read", "before commit")
# Memory is compared after this part of the time; what the process may gain from there on.
WARM_SHARE = 0.2
MOST_GROWTH_BYTES = 32 * 2**20
# Files of segments are open for a while, more of them at one time than at another.
MOST_MORE_DESCRIPTORS = 40
# The writer waits for the reader when so many records are not read yet.
MOST_AHEAD = 20_000


class Outcome(NamedTuple):
    """What a run did, and what it found: errors is empty if all was right."""

    records: int
    micro_batches: int
    crashes: int
    truncations: int
    growth_bytes: int
    descriptors: int
    errors: list[str]


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Writer:
    """Appends, rolls and deletes until it is stopped.

    Attributes: waiting (by partition, the (offset, value) of the records that are not read yet), may_truncate (held by
    the reader during a micro-batch).
    """

    def __init__(self, store: WritableStore, seed: int) -> None:
        self._rng = random.Random(seed)
        self._logs: list[WritableLog] = [store.log(TOPIC, number) for number in range(PARTITIONS)]
        self.waiting: list[deque[tuple[int, bytes]]] = [deque() for _ in range(PARTITIONS)]
        self.read_to = [0] * PARTITIONS
        # Of the last batches.
        self._starts: list[deque[int]] = [deque(maxlen=8) for _ in range(PARTITIONS)]
        self.lock = threading.Lock()
        self.may_truncate = threading.Lock()
        self.stops = threading.Event()
        self.truncations = 0
        self.number = 0

    def run(self) -> None:
        while not self.stops.is_set():
            self._step()

    def _step(self) -> None:
        partition = self._rng.randrange(PARTITIONS)
        log = self._logs[partition]
        chance = self._rng.random()
        if sum(map(len, self.waiting)) > MOST_AHEAD:
            time.sleep(0.01)
        elif chance < 0.93:
            self._append(partition, log)
        elif chance < 0.95:
            log.roll()
        elif chance < 0.98:
            log.delete_records(max(self.read_to[partition] - self._rng.randint(0, 200), log.log_start_offset))
        elif self.may_truncate.acquire(blocking=False):
            try:
                self._truncate(partition, log)
            finally:
                self.may_truncate.release()

    def _append(self, partition: int, log: WritableLog) -> None:
        values = [b"%d %s" % (self.number + at, b"." * 100) for at in range(self._rng.randint(1, 200))]
        self.number += len(values)
        with self.lock:
            first = log.log_end_offset
            starts = self._starts[partition]
            while starts and starts[-1] >= first:
                starts.pop()
            starts.append(first)
            self.waiting[partition].extend((first + at, value) for at, value in enumerate(values))
        log.append([Record(value=value) for value in values])

    def _truncate(self, partition: int, log: WritableLog) -> None:
        """Remove some of the last batches that are not read, as a whole: Kafka does not divide a batch."""
        with self.lock:
            starts = [start for start in self._starts[partition] if start >= self.read_to[partition]]
            if not starts:
                return
            end = self._rng.choice(starts[-4:])
            waiting = self.waiting[partition]
            while waiting and waiting[-1][0] >= end:
                waiting.pop()
        log.truncate_to(end)
        self.truncations += 1

    def check(self, rows: list[tuple[str, int, int, bytes | None]]) -> str | None:
        """Compare what was read with what waits for it, and return the first difference."""
        with self.lock:
            for _, partition, offset, value in rows:
                expected = self.waiting[partition].popleft() if self.waiting[partition] else None
                if (offset, value) != expected:
                    return (
                        f"partition {partition}: expected {str(expected)[:40]}, found {(offset, (value or b'')[:12])}"
                    )
                self.read_to[partition] = offset + 1
        return None


@dataclass
class Counts:
    """What the reader did, and what the process used after the first part of the time."""

    micro_batches: int = 0
    crashes: int = 0
    warm_bytes: int = 0
    warm_descriptors: int = 0


def _read_beside(
    writer: Writer, query: StreamQuery, rng: random.Random, writing: Future[None], *, seconds: float, counts: Counts
) -> list[str]:
    """Run micro-batches for some seconds; return the first difference."""
    started = time.monotonic()
    while not writing.done() and time.monotonic() - started < seconds:
        with writer.may_truncate:
            try:
                query.micro_batch(crash=rng.choice(CRASHES) if rng.random() < 0.02 else None)
            except Killed:
                counts.crashes += 1
                query.start()
                # What it planned is read before anything is truncated.
                query.micro_batch()
            counts.micro_batches += len(query.batches)
            found = [*filter(None, [writer.check(batch.rows) for batch in query.batches])]
        if found:
            return found
        # Time for a truncation.
        time.sleep(rng.choice([0, 0, 0.002]))
        query.batches.clear()
        if len(query.offsets) > 1:
            query.offsets, query.commits = query.offsets[-1:], 1
        if not counts.warm_bytes and time.monotonic() - started > WARM_SHARE * seconds:
            gc.collect()
            counts.warm_bytes, counts.warm_descriptors = resident_bytes(), len(os.listdir("/proc/self/fd"))
    return []


def run_for(seconds: float, *, seed: int, directory: Path) -> Outcome:
    """Run a stream beside its writer."""
    rng = random.Random(seed)
    errors: list[str] = []
    counts = Counts()
    config = LogConfig(segment_bytes=4 * 2**20)
    with open_store(directory, "a", config) as store, ThreadPoolExecutor(1) as pool:
        store.create_topic(TOPIC, PARTITIONS)
        writer = Writer(store, seed)
        query = StreamQuery(directory, startingOffsets="earliest", subscribe=TOPIC, maxOffsetsPerTrigger="5000")
        writing = pool.submit(writer.run)
        try:
            errors += _read_beside(writer, query, rng, writing, seconds=seconds, counts=counts)
        finally:
            writer.stops.set()
        writing.result()
        while not errors and query.micro_batch():
            errors += filter(None, [writer.check(query.batches.pop().rows)])
        errors += [f"{len(left)} records were not read" for left in writer.waiting if left and not errors]
    gc.collect()
    growth = resident_bytes() - counts.warm_bytes
    if growth > MOST_GROWTH_BYTES:
        errors.append(f"memory grew by {growth} bytes")
    descriptors = len(os.listdir("/proc/self/fd")) - counts.warm_descriptors
    if descriptors > MOST_MORE_DESCRIPTORS:
        errors.append(f"{descriptors} more descriptors are open")
    return Outcome(writer.number, counts.micro_batches, counts.crashes, writer.truncations, growth, descriptors, errors)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        outcome = run_for(arguments.seconds, seed=arguments.seed, directory=Path(directory))
    sys.stdout.write(f"{outcome}\n")
    return 1 if outcome.errors else 0


if __name__ == "__main__":
    sys.exit(main())
