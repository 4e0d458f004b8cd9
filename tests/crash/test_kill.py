"""Goal: a writer killed at any instant loses no record that it was told is written, and brings none back.
Method: a process appends, truncates, rolls, reports each step, and is killed; then the log is opened and read."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstore.log import Log, open_log
from tests.crash.killed_writer import (
    APPENDED,
    CONFIG,
    ENDED,
    REPORT,
    STARTED,
    TRUNCATED,
    TRUNCATING,
    payload,
)

ROOT = Path(__file__).resolve().parents[2]
LONGEST_LIFE_SECONDS = 0.08
MOST_RECORDS = 1500


class Nursery:
    """The process that forks writers."""

    def __init__(self, honesty: str = "honest") -> None:
        self._honesty = honesty
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.killed_writer"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def run_and_kill(self, path: Path, *, generation: int, rng: random.Random) -> list[tuple[int, int, int]]:
        """Let a writer live for a random time; return its reports."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{path} {generation} {rng.randrange(1 << 30)} {self._honesty}\n".encode())
        self._process.stdin.flush()
        kind, process_id, _ = self._read()
        assert kind == STARTED
        reports = []
        deadline = time.monotonic() + rng.uniform(0, LONGEST_LIFE_SECONDS)
        is_killed = False
        while True:
            left = deadline - time.monotonic()
            if not is_killed and (left <= 0 or not self._is_readable(left)):
                os.kill(process_id, signal.SIGKILL)
                is_killed = True
            one = self._read()
            if one[0] == ENDED:
                assert is_killed, "the writer ended by itself"
                return reports
            reports.append(one)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(timeout=60) == 0
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _is_readable(self, seconds: float) -> bool:
        return bool(select.select([self._process.stdout], [], [], seconds)[0])

    def _read(self) -> tuple[int, int, int]:
        assert self._process.stdout is not None
        data = b""
        while len(data) < REPORT.size:
            chunk = os.read(self._process.stdout.fileno(), REPORT.size - len(data))
            assert chunk, "the nursery died"
            data += chunk
        kind, offset, generation = REPORT.unpack(data)
        return kind, offset, generation


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    found = Nursery()
    yield found
    found.close()


class Model:
    """Which generation wrote each offset, as far as it was reported."""

    def __init__(self) -> None:
        self.generations: list[int] = []
        self.generation = 0
        self.least_end = 0

    def take(self, reports: list[tuple[int, int, int]]) -> None:
        self.least_end = len(self.generations)
        for kind, offset, generation in reports:
            self.generation = generation
            if kind == APPENDED:
                self.generations += [generation] * (offset - len(self.generations))
            elif kind == TRUNCATED:
                del self.generations[offset:]
            # A truncation that was begun may have happened, or not.
            self.least_end = offset if kind == TRUNCATING else len(self.generations)

    def check(self, log: Log) -> None:
        """Hold a log against the reports; what it has beyond them was written and not reported, and counts from now."""
        found = [(record.offset, record.value) for record in log.read()]
        assert [offset for offset, _ in found] == list(range(len(found)))
        assert log.log_end_offset == len(found) >= self.least_end
        del self.generations[len(found) :]
        self.generations += [self.generation] * (len(found) - len(self.generations))
        wrong = [offset for offset, value in found if value != payload(offset, self.generations[offset])]
        assert wrong == []


def kill_again_and_again(nursery: Nursery, directory: Path, *, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    model, path = Model(), directory / "t-0"
    for number in range(kills):
        if len(model.generations) > MOST_RECORDS:
            model, path = Model(), directory / f"t-{number}"
        model.take(nursery.run_and_kill(path, generation=model.generation, rng=rng))
        if rng.random() < 0.5 and path.exists():
            with open_log(path) as log:
                model.check(log)
        else:
            with open_log(path, "a", CONFIG) as log:
                model.check(log)


def test_killed_writer_loses_nothing_that_was_written(nursery: Nursery, tmp_path: Path) -> None:
    kill_again_and_again(nursery, tmp_path, kills=20, seed=1)


@pytest.mark.long
def test_writer_killed_500_times_loses_nothing_that_was_written(nursery: Nursery, tmp_path: Path) -> None:
    kill_again_and_again(nursery, tmp_path, kills=500, seed=2)


def test_writer_that_reports_too_early_is_noticed(tmp_path: Path) -> None:
    liar = Nursery("liar")
    try:
        with pytest.raises(AssertionError):
            kill_again_and_again(liar, tmp_path, kills=100, seed=3)
    finally:
        liar.close()
