"""The programs of examples/programs, as processes that a test talks to by lines and kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.examples.gate import Gate

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "examples" / "programs"


class Program:
    """A running program: `say` writes a line to it, `hear` returns the next one that it prints, "" at its end."""

    def __init__(self, *command: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        )

    def say(self, line: str) -> None:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        return self.process.stdout.readline().strip()

    def kill(self) -> list[str]:
        """Kill it, and return the lines that it had printed."""
        self.process.kill()
        return self.end()

    def terminate(self) -> list[str]:
        self.process.send_signal(signal.SIGTERM)
        return self.end()

    def end(self) -> list[str]:
        """Close its standard input, wait for its end, and return the lines that it printed."""
        with self.process, suppress(BrokenPipeError):
            self.process.stdin.close()
            return self.process.stdout.read().splitlines()


@pytest.fixture
def start() -> Iterator[Callable[..., Program]]:
    """Starts programs by their names and arguments, and kills those that a failed test leaves."""
    programs = []

    def started(name: str, *arguments: object, **environment: str) -> Program:
        programs.append(Program(str(PROGRAMS / f"{name}.py"), *map(str, arguments), **environment))
        assert programs[-1].hear() == "ready"
        return programs[-1]

    yield started
    for program in programs:
        if program.process.poll() is None:
            program.kill()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate(monkeypatch)
    yield made
    made.open()
