"""The process and its clocks: the time, hooks for fork() and for the end, environment variables."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

_NS_PER_MS = 1_000_000


class Clock(Protocol):
    """A wall clock, for record timestamps, and a monotonic clock, for everything else; in milliseconds."""

    def wall_clock_ms(self) -> int:
        """Return the milliseconds since 1970 (UTC); the clock may jump."""

    def monotonic_ms(self) -> int:
        """Return milliseconds since an arbitrary start; never decreases."""


class SystemClock:
    """The machine's clocks.  Threads: safe."""

    def wall_clock_ms(self) -> int:
        """Return the milliseconds since 1970 (UTC); the clock may jump."""
        return time.time_ns() // _NS_PER_MS

    def monotonic_ms(self) -> int:
        """Return milliseconds since an arbitrary start; never decreases."""
        return time.monotonic_ns() // _NS_PER_MS

    def sleep_ms(self, duration_ms: float) -> None:
        """Wait."""
        time.sleep(duration_ms / 1000)


SYSTEM_CLOCK = SystemClock()


def after_fork_in_child(callback: Callable[[], None]) -> None:
    """Call `callback` in every child process that Python's fork() creates, before fork() returns there."""
    os.register_at_fork(after_in_child=callback)


_called_at_exit: set[Callable[[], None]] = set()


def at_exit(callback: Callable[[], None]) -> None:
    """Call `callback` at the exit of this process, after all threads but daemon threads have ended.

    Child processes must register their own callbacks, also in multiprocessing, which skips atexit before Python 3.13.
    os._exit() and signals that end the process skip the callback.
    """
    if callback in _called_at_exit:
        return
    _called_at_exit.add(callback)
    own_process = os.getpid()

    def call() -> None:
        if os.getpid() == own_process:
            callback()

    atexit.register(call)
    multiprocessing = sys.modules.get("multiprocessing.util")
    if multiprocessing is not None:
        multiprocessing.Finalize(None, call, exitpriority=0)


after_fork_in_child(_called_at_exit.clear)


def set_default_variable(name: str, value: str) -> None:
    """Set an environment variable of this process and of those it will start, unless it is set."""
    os.environ.setdefault(name, value)


def variable(name: str) -> str | None:
    """Return an environment variable of this process, None if it is not set."""
    return os.environ.get(name)


class CommandRun(NamedTuple):
    """What a command did. status: None if it took too long and was ended; errors: its stderr; files: what it made."""

    status: int | None
    errors: bytes
    files: dict[str, bytes]


def run_in_new_directory(
    command: Sequence[str], files: Mapping[str, bytes], *, stdin: bytes, made: Iterable[str], timeout_s: float
) -> CommandRun:
    """Run a command in a directory that has these files and nothing else, and that is removed afterwards.

    Args: files: by path below the directory; made: the files, of those that the command may make, that are returned.
    Raises: OSError.
    """
    with tempfile.TemporaryDirectory(prefix="kstore-") as directory:
        for name, content in files.items():
            path = os.path.join(directory, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "xb") as file:
                file.write(content)
        try:
            ended = subprocess.run(
                command, input=stdin, cwd=directory, capture_output=True, timeout=timeout_s, check=False
            )
            status, errors = ended.returncode, ended.stderr
        except subprocess.TimeoutExpired as error:
            status, errors = None, error.stderr or b""
        contents = {}
        for name in made:
            path = os.path.join(directory, name)
            if os.path.exists(path):
                with open(path, "rb") as file:
                    contents[name] = file.read()
        return CommandRun(status, errors, contents)
