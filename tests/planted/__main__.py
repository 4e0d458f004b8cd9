"""`python -m tests.planted`: plant each bug of the lists in a copy of the tree and see that a test catches it.

First the tests of a room run in a copy without a bug, where they must pass. Then each bug in turn: planted, the core
built where the bug is in it, its tests run. A bug that no test catches, or that keeps its tests from running, is a
failure. The lists are room.diff beside this file; see bugs.py for their form.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from tests.planted.bugs import PACKAGES, PlantedBug, Sources, bugs_of, parsed, rooms

ROOT = Path(__file__).resolve().parents[2]
BUILD_SECONDS = 900
TEST_SECONDS = 600
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+\.py::.*?)(?: - |$)", re.MULTILINE)


def verdict_of(status: int | None, output: str) -> tuple[str, str]:
    """Return the verdict on a bug, and by what, from how pytest ended and what it printed."""
    failed = FAILED.search(output)
    if status is None:
        return "caught", "its tests never ended"
    if status == 0:
        return "survived", ""
    if status < 0:
        return "caught", f"the interpreter died of signal {-status}"
    if status == 1 and failed is not None:
        return "caught", failed[1]
    return "unusable", f"its tests did not run: {output[-2000:]}"


class Verdict(NamedTuple):
    """What became of a bug; by: the test that failed first, or what went wrong."""

    bug: PlantedBug
    word: str
    by: str
    seconds: float


class Copy:
    """A copy of the tree's own files and its built core, in which one bug at a time is planted."""

    def __init__(self, parent: Path) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="tree-", dir=parent))
        # Runs of pytest that share a directory remove each other's files.
        self.pytest = (*PYTEST, f"--basetemp={self.path}-tmp")
        listed = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
        built = [path.relative_to(ROOT).as_posix() for name in PACKAGES for path in (ROOT / name).glob("*.so")]
        for name in (*filter(None, names), *built):
            if (ROOT / name).is_file():
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.path / name)

    def run(self, *arguments: str, seconds: float) -> tuple[int | None, str]:
        """Run Python in the copy; return its exit status, None if it took too long, and what it printed."""
        environment = {**os.environ, "PYTHONPATH": str(self.path), "KSTORE_FAST": "1"}
        command = [sys.executable, *arguments]
        with tempfile.TemporaryFile("w+", errors="backslashreplace") as output:
            process = subprocess.Popen(
                command, cwd=self.path, env=environment, stdout=output, stderr=output, start_new_session=True
            )
            try:
                status = process.wait(seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()
                status = None
            output.seek(0)
            return status, output.read()

    def try_bug(self, bug: PlantedBug) -> tuple[str, str]:
        """Plant a bug, run its tests and take it out again; return the verdict and by what."""
        planting = bug.place_in(Sources(self.path))
        target = self.path / planting.path
        original = target.read_bytes()
        built = (
            {path: path.read_bytes() for path in (self.path / "kstore").glob("*.so")} if planting.is_compiled else {}
        )
        try:
            self._write(target, planting.text.encode())
            if planting.is_compiled:
                build = ("setup.py", "-q", "build_ext", "--inplace", "--force")
                status, output = self.run(*build, seconds=BUILD_SECONDS)
                if status != 0:
                    return "unusable", f"does not build: {output[-2000:]}"
            return verdict_of(*self.run(*self.pytest, "-x", *bug.tests, seconds=TEST_SECONDS))
        finally:
            self._write(target, original)
            for path, content in built.items():
                path.unlink(missing_ok=True)
                path.write_bytes(content)

    def _write(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        # The next run may find the time and the size of before.
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()


def options_given() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__)
    parser.add_argument("--room", choices=rooms(), action="append", help="default: all")
    parser.add_argument("--only", default="", help="bugs whose name contains this")
    parser.add_argument("--since", metavar="COMMIT", help="bugs that the lists did not have in this commit")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (default 2)")
    parser.add_argument("--no-baseline", action="store_true", help="don't run the tests without a bug first")
    return parser.parse_args()


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def bugs_before(commit: str, room: str) -> list[PlantedBug]:
    """Return the list of a room as it was in a commit, empty if there was none."""
    shown = subprocess.run(
        ("git", "show", f"{commit}:tests/planted/{room}.diff"), cwd=ROOT, capture_output=True, check=False, text=True
    )
    return parsed(room, shown.stdout)


def wanted_bugs(room: str, options: argparse.Namespace) -> list[PlantedBug]:
    before = bugs_before(options.since, room) if options.since else []
    return [bug for bug in bugs_of(room) if options.only in bug.name and bug not in before]


def without_bug(copy: Copy, room: str, bugs: list[PlantedBug]) -> bool:
    """Run the tests of a room as they are; return whether they pass."""
    tests = dict.fromkeys(test for bug in bugs for test in bug.tests)
    status, output = copy.run(*copy.pytest, *tests, seconds=TEST_SECONDS * 4)
    if status != 0:
        say(f"{room}: the tests fail without a bug, so that nothing can be caught\n{output[-4000:]}")
    return status == 0


def try_all(options: argparse.Namespace, scratch: Path) -> list[Verdict]:
    copies: SimpleQueue[Copy] = SimpleQueue()
    for _ in range(options.jobs):
        copies.put(Copy(scratch))

    def tried(bug: PlantedBug) -> Verdict:
        copy = copies.get()
        started = time.monotonic()
        try:
            word, by = copy.try_bug(bug)
        except LookupError as error:
            word, by = "unusable", str(error)
        finally:
            copies.put(copy)
        seconds = time.monotonic() - started
        say(f"{word:9}{bug.room}: {bug.name}{' by ' if word == 'caught' else ' '}{by} ({seconds:.0f} s)")
        return Verdict(bug, word, by, seconds)

    def baseline(entry: tuple[str, list[PlantedBug]]) -> bool:
        copy = copies.get()
        try:
            return options.no_baseline or without_bug(copy, *entry)
        finally:
            copies.put(copy)

    lists = {room: wanted_bugs(room, options) for room in options.room or rooms()}
    lists = {room: bugs for room, bugs in lists.items() if bugs}
    with ThreadPoolExecutor(options.jobs) as threads:
        if not all(threads.map(baseline, lists.items())):
            sys.exit(1)
        return list(threads.map(tried, [bug for bugs in lists.values() for bug in bugs]))


def main() -> int:
    options = options_given()
    # A shell lets its background jobs ignore SIGINT, and a test of the command interrupts one.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="kstore-planted-") as scratch:
        verdicts = try_all(options, Path(scratch))
    missed = [verdict for verdict in verdicts if verdict.word != "caught"]
    say(f"{len(verdicts)} planted, {len(verdicts) - len(missed)} caught")
    return 1 if missed or not verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
