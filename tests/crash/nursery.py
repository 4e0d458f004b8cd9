"""Processes to be killed: a nursery that forks them, and the parent's handle of it.

A module that runs serve() forks a child for each line "PATH GENERATION SEED HONESTY" of its standard input. What the
child reports through its standard output are records of three int64, a kind first.
"""

from __future__ import annotations

import os
import random
import select
import signal
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REPORT = struct.Struct(">qqq")
# Kinds of a report that every child has: with its process id; and when it is gone.
STARTED, ENDED = range(2)
LONGEST_LIFE_SECONDS = 0.08
# However busy the machine is.
LIFE_LIMIT_SECONDS = 10.0


def report(kind: int, first: int = 0, second: int = 0) -> None:
    os.write(1, REPORT.pack(kind, first, second))


def serve(live: Callable[[str, int, int, bool], None]) -> None:
    """Fork a child for each line, which lives until it is killed."""
    for line in sys.stdin:
        path, generation, seed, honesty = line.split()
        child = os.fork()
        if child == 0:
            report(STARTED, os.getpid())
            try:
                live(path, int(generation), int(seed), honesty == "honest")
            finally:
                traceback.print_exc()
                os._exit(3)
        os.waitpid(child, 0)
        report(ENDED)


class Nursery:
    """The process that forks writers, of a module that runs serve()."""

    def __init__(
        self, module: str, honesty: str = "honest", *, longest_life_seconds: float = LONGEST_LIFE_SECONDS
    ) -> None:
        self._honesty = honesty
        self._longest_life_seconds = longest_life_seconds
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def run_and_kill(self, path: Path, *, generation: int, rng: random.Random) -> list[tuple[int, int, int]]:
        """Let a writer live for a random time; return its reports.

        After a writer that had no time to report anything the next ones may live longer, so that some do on a machine
        that is busy.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(f"{path} {generation} {rng.randrange(1 << 30)} {self._honesty}\n".encode())
        self._process.stdin.flush()
        kind, process_id, _ = self._read()
        assert kind == STARTED
        reports = []
        deadline = time.monotonic() + rng.uniform(0, self._longest_life_seconds)
        is_killed = False
        while True:
            left = deadline - time.monotonic()
            if not is_killed and (left <= 0 or not self._is_readable(left)):
                os.kill(process_id, signal.SIGKILL)
                is_killed = True
            one = self._read()
            if one[0] == ENDED:
                assert is_killed, "the writer ended by itself"
                if not reports:
                    self._longest_life_seconds = min(self._longest_life_seconds * 1.25, LIFE_LIMIT_SECONDS)
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
        kind, first, second = REPORT.unpack(data)
        return kind, first, second
