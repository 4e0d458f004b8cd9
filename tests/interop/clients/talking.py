"""A client's program: commands go in and answers come out as lines of JSON."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.interop.programs import Unavailable

PATIENCE_S = 300


class Program:
    """A program that runs; several at once are members of a group."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._command = tuple(command)
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd=Path(__file__).parents[3],
                start_new_session=True,
            )

    def ask(self, do: str, **arguments: object) -> Any:
        """Give a command; return its answer, or ["error", Kafka's code], or a text where there is no code.

        Raises: Unavailable if there is none.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise Unavailable(f"{self._command} has no pipes")
        stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            line = stdout.readline() if selector.select(PATIENCE_S) else b""
        if not line:
            raise Unavailable(f"{self._command} does not answer {do} {arguments}: {self._log.read_text()[-2000:]}")
        told = json.loads(line)
        if "error" not in told:
            return told["answer"]
        code, text = told["error"]
        return ["error", text if code is None else code]

    def kill(self) -> None:
        """End the program, and those that it has started, as a crash does."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        """End the program, which is not expected to say good-bye to anybody."""
        if self._process.poll() is None:
            self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
