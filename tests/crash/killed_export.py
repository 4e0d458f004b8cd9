"""Exports to be killed, in a process that forks one child for each; for test_kill_export.py.

For each line "SOURCE TARGET FORMAT THREADS KILL_AT" of standard input, a child exports. It kills itself before the
KILL_AT-th call that changes a file of the target, unless that is 0. The answer is a line with its exit status and the
number of such calls.
"""

from __future__ import annotations

import os
import sys
import traceback

# Once, before the forks: what an export imports.
import pandas  # noqa: F401
import pyarrow.compute
import pyarrow.pandas_compat  # noqa: F401

import kstore.archive.batches
import kstore.arrow.scans  # noqa: F401
from kstore.archive.options import export_options
from kstore.archive.run import local_export
from tests.crash.killed_committer import KillingEnv

FILE_BYTES = 8192


def live(source: str, target: str, format: str, *, threads: int, kill_at: int) -> int:
    """Return the number of calls that change a file."""
    env = KillingEnv(kill_at)
    local_export(source, target, export_options(format, file_bytes=FILE_BYTES), threads=threads, target_env=env)
    return env.changes


def serve() -> None:
    for line in sys.stdin:
        source, target, format, threads, kill_at = line.split()
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            status = 3
            try:
                os.write(writing, b"%d" % live(source, target, format, threads=int(threads), kill_at=int(kill_at)))
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
