"""`python -m tests.crash.soak --minutes N`: a store under load for a long time, with a kill or a fault each 30 s.

A writer process (soak_writer.py) appends in every way, compacts, truncates and lets retention remove; a follower
(soak_reader.py) reads all of it. Each time the writer was killed, or a call of it failed, everything is held to what it
had reported. Ends with 1 if something was wrong, or if memory or descriptors grew; the root is kept then.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy

from kstore.env import LocalEnv
from kstore.log.log import Log
from kstore.log.verify import verify
from kstore.store.store import WritableStore
from tests.crash import soak_reader, soak_writer
from tests.crash.nursery import REPORT, ROOT
from tests.crash.soak_records import (
    KEYED,
    KEYS,
    PARTITIONS,
    TOMBSTONES,
    TRANSACTIONAL,
    TRUNCATED,
    opened,
    read_whole,
    transactions_in,
)

MOST_GROWTH_BYTES = 64 << 20
MOST_NEW_DESCRIPTORS = 16
MOST_FAILURES_OF_A_WRITER = 3
# The others may be killed while they open the store.
LIVES_THAT_WRITE = 0.8
LONGEST_START_SECONDS = 120
# What is measured before is not compared: caches are filled.
WARM_UP = 0.25
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Model:
    """What the writer reported, and so what has to be there."""

    def __init__(self) -> None:
        self.ends = [0] * len(PARTITIONS)
        self.starts = [0] * len(PARTITIONS)
        self.generation = 0
        # Of the truncated topic: from which offset on a generation wrote.
        self.generations: list[tuple[int, int]] = [(0, 0)]
        self.committed: dict[int, int] = {}
        self.aborted: set[int] = set()
        self.records = 0
        self.failures = 0

    @property
    def next_transaction(self) -> int:
        """Return a number above those that a writer may have committed, or not, before it could report it."""
        return max([-1, *self.committed, *self.aborted]) + 2 + MOST_FAILURES_OF_A_WRITER

    def take(self, kind: int, first: int, second: int) -> None:
        number = PARTITIONS.index((TRUNCATED, 0))
        if kind == soak_writer.APPENDED:
            self.records += max(second - self.ends[first], 0)
            self.ends[first] = second
        elif kind == soak_writer.TRUNCATING:
            self.generation = first
            self.ends[number] = second
        elif kind == soak_writer.TRUNCATION_DONE:
            self._cut(second)
        elif kind == soak_writer.COMMITTED:
            self.committed[first] = second
            self.records += 2 * second
        elif kind == soak_writer.ABORTED:
            self.aborted.add(first)
            self.records += 2 * second
        elif kind == soak_writer.FAILED:
            self.failures += 1

    def _cut(self, end: int) -> None:
        self.generations = [one for one in self.generations if one[0] < end] + [(end, self.generation)]

    def check(self, store: WritableStore) -> None:
        """Hold every partition to the reports, and go on from what it has.

        Raises: AssertionError.
        """
        for number, (topic, partition) in enumerate(PARTITIONS):
            log = store.log(topic, partition)
            start, end = log.log_start_offset, log.log_end_offset
            assert self.starts[number] <= start <= end, f"{topic}-{partition}: starts at {start}"
            if topic != TRANSACTIONAL:
                assert end >= self.ends[number], f"{topic}-{partition} ends at {end}, was told {self.ends[number]}"
            self.starts[number], self.ends[number] = start, end
            {KEYED: self._check_keyed, TRANSACTIONAL: self._check_transactions}.get(topic, self._check_each)(log)
            damage = list(verify(log))
            assert not damage, f"{topic}-{partition}: {damage[:3]}"

    def _check_each(self, log: Log) -> None:
        start, end = log.log_start_offset, log.log_end_offset
        found = read_whole(log)
        assert (found.offsets == numpy.arange(start, end)).all(), f"{log.topic_partition}: not every offset"
        assert (found.numbers[:, 0] == found.offsets).all(), f"{log.topic_partition}: records of other offsets"
        if log.topic_partition.topic == TRUNCATED:
            starts = numpy.array([one for one, _ in self.generations])
            of = numpy.array([one for _, one in self.generations])
            expected = of[numpy.searchsorted(starts, found.offsets, side="right") - 1]
            assert (found.numbers[:, 1] == expected).all(), f"{log.topic_partition}: records that were truncated"
            self._cut(end)

    def _check_keyed(self, log: Log) -> None:
        found, end = read_whole(log), log.log_end_offset
        assert (numpy.diff(found.offsets) > 0).all(), f"{log.topic_partition}: not in order"
        assert (found.numbers[:, 0] == found.offsets[found.has_value]).all(), f"{log.topic_partition}: other records"
        newest = numpy.arange(max(end - KEYS, 0), end)
        stays = newest[newest % TOMBSTONES != 0]
        assert numpy.isin(stays, found.offsets).all(), f"{log.topic_partition}: the newest value of a key is gone"
        gone = newest[newest % TOMBSTONES == 0] % KEYS
        later = found.offsets[found.has_value & (found.offsets >= end - KEYS)]
        assert not numpy.isin(gone, later % KEYS).any(), f"{log.topic_partition}: a deleted key is back"

    def _check_transactions(self, log: Log) -> None:
        found = transactions_in(read_whole(log, is_committed=True))
        numbers = [number for number, _, _ in found]
        assert numbers == sorted(set(numbers)), f"{log.topic_partition}: transactions not in order"
        # Retention may have removed a part of the first one.
        broken = [one for one in found[1:] if one[1] != one[2]]
        assert not broken, f"{log.topic_partition}: parts of transactions: {broken[:3]}"
        assert not self.aborted.intersection(numbers), f"{log.topic_partition}: aborted transactions"
        told = {number for number in self.committed if number > (numbers[0] if numbers else number)}
        assert told <= set(numbers), f"{log.topic_partition}: lacks {sorted(told - set(numbers))[:3]}"


class Child:
    """A process that reports; killed and waited for by its own id."""

    def __init__(self, module: str, *arguments: object) -> None:
        command = [sys.executable, "-m", module, *map(str, arguments)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self._data = b""

    def reports(self, seconds: float) -> Iterator[tuple[int, int, int]]:
        """Yield reports as they come for some time, or until there are no more."""
        assert self.process.stdout is not None
        end = time.monotonic() + seconds
        while True:
            left = max(end - time.monotonic(), 0)
            if not select.select([self.process.stdout], [], [], left)[0]:
                return
            chunk = os.read(self.process.stdout.fileno(), 1 << 16)
            self._data += chunk
            whole = len(self._data) // REPORT.size * REPORT.size
            found, self._data = self._data[:whole], self._data[whole:]
            yield from REPORT.iter_unpack(found)
            if not chunk or time.monotonic() > end:
                return

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def kill(self) -> list[tuple[int, int, int]]:
        """Kill the process; return what it had reported."""
        self.process.send_signal(signal.SIGKILL)
        left = [*self.reports(60)]
        self.process.wait(60)
        self._close()
        return left

    def end(self) -> int:
        """Close its input and wait for its end; return its status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        for _ in self.reports(60):
            pass
        status = self.process.wait(60)
        self._close()
        return status

    def _close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class Use(NamedTuple):
    """Memory and descriptors of a process."""

    memory_bytes: int
    descriptors: int


def use_of(process_id: int) -> Use:
    pages = int(Path(f"/proc/{process_id}/statm").read_text().split()[1])
    return Use(pages * _PAGE, len(os.listdir(f"/proc/{process_id}/fd")))


def growth(uses: list[Use]) -> Use:
    """Return how much the use at the end is above that after the warm-up."""
    settled = uses[int(len(uses) * WARM_UP) :]
    part = max(len(settled) // 4, 1)
    return Use(
        *(
            int(statistics.median(late) - statistics.median(early))
            for early, late in zip(zip(*settled[:part], strict=True), zip(*settled[-part:], strict=True), strict=True)
        )
    )


class Soak:
    """One run; see run. Attributes: model, events (kills and faults by kind), read (records of the follower)."""

    def __init__(self, root: Path, *, seed: int, period_seconds: float) -> None:
        self.model = Model()
        self.events = {"kill": 0, "fault": 0}
        self.read = 0
        self.uses: dict[str, list[Use]] = {"verifier": [], "follower": []}
        self.most_of_writers = Use(0, 0)
        self._root = root
        self._rng = random.Random(seed)
        self._period_seconds = period_seconds

    def run(self, seconds: float) -> None:
        """Run for that long, and on until the follower has started to read.

        Raises: AssertionError for what is wrong.
        """
        with opened(str(self._root), LocalEnv()):
            pass
        follower = Child(soak_reader.__name__, self._root)
        try:
            start = time.monotonic()
            while (ran := time.monotonic() - start) < seconds or (not self.read and ran < LONGEST_START_SECONDS):
                self._live_and_die(follower)
            status = follower.end()
            assert status == 0, f"the follower ended with {status}"
        finally:
            if follower.process.poll() is None:
                follower.kill()

    def _live_and_die(self, follower: Child) -> None:
        """Let a writer live, with a verification after each fault, until it is killed."""
        has_faults = self._rng.random() < 0.5
        seed = self._rng.randrange(1 << 30)
        writer = Child(
            soak_writer.__name__, self._root, seed, self.model.generation, self.model.next_transaction, int(has_faults)
        )
        try:
            if self._rng.random() < LIVES_THAT_WRITE:
                self._wait_for_records(writer)
            for _ in range(MOST_FAILURES_OF_A_WRITER if has_faults else 1):
                failures = self.model.failures
                self._wait(writer, follower, has_faults=has_faults)
                assert writer.process.poll() is None, f"the writer ended with {writer.process.poll()}"
                used = use_of(writer.process.pid)
                self.most_of_writers = Use(*map(max, self.most_of_writers, used))
                if not has_faults or self.model.failures == failures:
                    break
                self.events["fault"] += 1
                self._verify(follower)
                writer.go_on()
            self.events["kill"] += 1
        finally:
            for one in writer.kill():
                self.model.take(*one)
        self._verify(follower)

    def _wait_for_records(self, writer: Child) -> None:
        records, end = self.model.records, time.monotonic() + LONGEST_START_SECONDS
        while self.model.records == records and writer.process.poll() is None and time.monotonic() < end:
            for one in writer.reports(0.5):
                self.model.take(*one)

    def _wait(self, writer: Child, follower: Child, *, has_faults: bool) -> None:
        """Take the reports for a period; of a writer with faults until one was noticed."""
        failures = self.model.failures
        end = time.monotonic() + self._rng.uniform(0.5, 1.5) * self._period_seconds
        while True:
            for one in writer.reports(0.5):
                self.model.take(*one)
            if self.model.failures > failures:
                return
            self._take_reads(follower)
            # A call that fails may be tried again and harm nothing.
            if time.monotonic() > end + 2 * self._period_seconds * has_faults:
                return
            if writer.process.poll() is not None:
                return

    def _take_reads(self, follower: Child) -> None:
        for _, count, _ in follower.reports(0):
            self.read = max(self.read, count)
        assert follower.process.poll() is None, f"the follower ended with {follower.process.poll()}"

    def _verify(self, follower: Child) -> None:
        with opened(str(self._root), LocalEnv()) as store:
            self.model.check(store)
        self._take_reads(follower)
        self.uses["verifier"].append(use_of(os.getpid()))
        self.uses["follower"].append(use_of(follower.process.pid))

    def grown(self) -> list[str]:
        """Return which processes took more and more."""
        found = {name: growth(uses) for name, uses in self.uses.items() if len(uses) > 1}
        return [
            f"the {name} grew by {one.memory_bytes >> 20} MiB and {one.descriptors} descriptors"
            for name, one in found.items()
            if one.memory_bytes > MOST_GROWTH_BYTES or one.descriptors > MOST_NEW_DESCRIPTORS
        ]


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def tell(soak: Soak, seconds: float) -> None:
    model = soak.model
    say(
        f"{model.records} records written ({model.records / seconds:.0f}/s), {soak.read} read by the follower, "
        f"{len(model.committed)} transactions committed, {len(model.aborted)} aborted, {model.generation} truncations, "
        f"{soak.events['kill']} kills, {soak.events['fault']} faults, a verification after each, in {seconds:.0f} s"
    )
    for name, uses in soak.uses.items():
        shown = ", ".join(f"{one.memory_bytes >> 20} MiB/{one.descriptors}" for one in (*uses[:1], *uses[-1:]))
        say(f"{name}: memory/descriptors at first and at last: {shown}; grown by {growth(uses) if uses else None}")
    say(f"writers: at most {soak.most_of_writers.memory_bytes >> 20} MiB/{soak.most_of_writers.descriptors}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long to run (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn (default %(default)s)")
    parser.add_argument("--period", type=float, default=30.0, help="seconds between kills (default %(default)s)")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    root = Path(tempfile.mkdtemp(prefix="kstore-soak-"))
    say(f"seed {options.seed}, root {root}")
    soak, started = Soak(root, seed=options.seed, period_seconds=options.period), time.monotonic()
    problems = []
    try:
        soak.run(options.minutes * 60)
    except AssertionError as error:
        problems.append(str(error))
    tell(soak, time.monotonic() - started)
    problems += soak.grown()
    if problems:
        say("\n".join([*problems, f"{root} is kept; again: make soak SEED={options.seed} MINUTES={options.minutes:g}"]))
        return 1
    shutil.rmtree(root)
    say("0 errors")
    return 0


if __name__ == "__main__":
    sys.exit(main())
