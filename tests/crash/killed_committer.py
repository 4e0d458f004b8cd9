"""Commits of staged batches to be killed, in a process that forks one child for each; for test_kill_committer.py.

For each line "ROOT QUERY VERSION ROWS SEED KILL_AT" of standard input, a child stages the rows of that version, in an
order and in a split of its own, and commits them. It kills itself before the KILL_AT-th call in the commit that changes
a file, unless that is 0. The answer is a line with its exit status and the number of such calls.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import traceback
from pathlib import Path

from kstore.staging import AppVersion, StagedFile
from tests.fakes.faults import FaultyEnv
from tests.making.staging import PARTITIONS, commit, stage


class KillingEnv(FaultyEnv):
    """The operating system, with SIGKILL before one of the calls that change a file; changes counts these."""

    def __init__(self, kill_at: int) -> None:
        super().__init__()
        self.changes = 0
        self._kill_at = kill_at

    def check(self, call: str, path: str) -> bool:
        if call not in ("stat", "read", "open", "list"):
            self.changes += 1
            if self.changes == self._kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().check(call, path)


def values_of(query: str, version: int, *, rows: int) -> list[bytes]:
    """The records of a version; each says how many there are."""
    return [b"%s/%d/%d/%d" % (query.encode(), version, at, rows) for at in range(rows)]


def stage_tasks(root: Path, app: AppVersion, *, rows: int, rng: random.Random) -> list[StagedFile]:
    """Stage a version as two tasks would, in an order and in partitions that the generator chooses."""
    records = [(rng.randrange(PARTITIONS), value) for value in values_of(*app, rows=rows)]
    rng.shuffle(records)
    cut = rng.randrange(len(records) + 1)
    codec = rng.choice(["none", "lz4"])
    parts = [stage(root, app, part, batch_size=512, compression_type=codec) for part in (records[:cut], records[cut:])]
    return parts[0] + parts[1]


def live(root: str, query: str, version: int, *, rows: int, seed: int, kill_at: int) -> int:
    """Return the number of calls in the commit that change a file."""
    app = AppVersion(query, version)
    staged = stage_tasks(Path(root), app, rows=rows, rng=random.Random(seed))
    env = KillingEnv(kill_at)
    commit(Path(root), app, staged, env=env)
    return env.changes


def serve() -> None:
    for line in sys.stdin:
        root, query, *numbers = line.split()
        version, rows, seed, kill_at = map(int, numbers)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            status = 3
            try:
                calls = live(root, query, version, rows=rows, seed=seed, kill_at=kill_at)
                os.write(writing, b"%d" % calls)
                status = 0
            finally:
                if status:
                    traceback.print_exc()
                os._exit(status)
        os.close(writing)
        calls_made = os.read(reading, 100)
        os.close(reading)
        _, ended = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(ended)} {int(calls_made or b'0')}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
