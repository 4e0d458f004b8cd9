"""Streaming queries in processes of their own, which are killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

REPOSITORY = Path(__file__).resolve().parents[2]
# all: Spark's driver, its JVM and all Python workers; jvm: it alone; workers: all Python processes of the JVM.
Victims: TypeAlias = Literal["all", "jvm", "workers"]


def children_of(process_id: int) -> list[int]:
    """The ids of all descendants of a process, children before grandchildren."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(path.name))
    found, ahead = [], [process_id]
    while ahead:
        new = children.get(ahead.pop(0), [])
        found += new
        ahead += new
    return found


def is_java(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/comm").read_text().strip() == "java"
    except OSError:
        return False


def kill(process: subprocess.Popen[bytes], victims: Victims) -> None:
    """Kill a query's processes, and 20 seconds later those of them that are left."""
    every = [process.pid, *children_of(process.pid)]
    virtual_machines = [one for one in every if is_java(one)]
    doomed = {
        "all": every,
        "jvm": virtual_machines,
        "workers": [one for machine in virtual_machines for one in children_of(machine)],
    }[victims]
    for process_id in doomed:
        _kill_one(process_id)
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=20)
    for process_id in every:
        _kill_one(process_id)
    process.wait()


def _kill_one(process_id: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process_id, signal.SIGKILL)


def run_with_kills(
    module: str,
    arguments: Sequence[Path],
    kills: Sequence[Victims],
    *,
    steps: Callable[[], int],
    steps_between: int,
    pause: Callable[[], float],
    limit_seconds: float,
) -> None:
    """Run a query until it ends by itself; kill it first as often as there are kills.

    Args: steps: returns how far the query has come; steps_between: how many of them come before a kill; pause: seconds
        to wait after them.
    """
    command = [sys.executable, "-m", module, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    deadline = time.monotonic() + limit_seconds
    for victims in [*kills, None]:
        process = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stderr=subprocess.DEVNULL)
        before = steps()
        try:
            if victims is None:
                assert process.wait(timeout=deadline - time.monotonic()) == 0
                return
            while process.poll() is None and steps() < before + steps_between:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            time.sleep(pause())
            assert process.poll() is None, "the query ended before it was killed"
        finally:
            kill(process, victims or "all")
