"""`python -m tests.fuzz --minutes N`: mutate batches and values until the time is up or the core and the reference
disagree; with --cases N, until N cases of each target were run.

The input of a case depends on target, seed and number alone; before each case these three are noted in a file, so that
a crash or a hang of the interpreter can be run again with --target, --seed and --number.
"""

from __future__ import annotations

import argparse
import faulthandler
import math
import os
import resource
import sys
import time
from collections.abc import Iterable
from itertools import count
from pathlib import Path

from tests.fuzz.agreement import COUNTS, Disagreement
from tests.fuzz.targets import TARGETS, run_case

WORK = Path(__file__).parents[1] / ".work" / "fuzz"
MOST_ADDRESS_SPACE_BYTES = 4 << 30
HANG_SECONDS = 60
REPORT_SECONDS = 10


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long to run (default 1)")
    parser.add_argument("--cases", type=int, default=None, help="of each target, however long they take")
    parser.add_argument("--seed", type=int, default=None, help="default: the time of day; printed")
    parser.add_argument(
        "--target", choices=sorted(TARGETS), action="append", help="several times for several; default: all in turn"
    )
    parser.add_argument("--number", type=int, default=None, help="run this one case and stop")
    parser.add_argument("--no-memory-limit", action="store_true", help="for builds with AddressSanitizer")
    return parser.parse_args()


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def note(descriptor: int, text: str) -> None:
    os.pwrite(descriptor, text.encode().ljust(80), 0)


def run(names: list[str], *, seed: int, numbers: Iterable[int], deadline: float) -> int:
    """Run cases of these numbers until the deadline, but one of each target at least; return how many."""
    WORK.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(WORK / "last-case", os.O_RDWR | os.O_CREAT, 0o644)
    done, reported = 0, time.monotonic()
    try:
        for number in numbers:
            faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
            for name in names:
                note(descriptor, f"--target {name} --seed {seed} --number {number}")
                run_case(name, seed=seed, number=number)
            done += len(names)
            if time.monotonic() >= deadline:
                break
            if time.monotonic() - reported >= REPORT_SECONDS:
                reported = time.monotonic()
                say(f"{done} cases")
    finally:
        faulthandler.cancel_dump_traceback_later()
        os.close(descriptor)
    return done


def main() -> int:
    options = parsed()
    faulthandler.enable()
    if not options.no_memory_limit:
        resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESS_SPACE_BYTES, MOST_ADDRESS_SPACE_BYTES))
    seed = time.time_ns() & 0xFFFFFFFF if options.seed is None else options.seed
    names: list[str] = options.target or list(TARGETS)
    numbers: Iterable[int] = count() if options.cases is None else range(options.cases)
    if options.number is not None:
        numbers = (options.number,)
    seconds = options.minutes * 60 if options.cases is None else math.inf
    say(f"seed {seed}, targets {', '.join(names)}")
    try:
        run_cases = run(names, seed=seed, numbers=numbers, deadline=time.monotonic() + seconds)
    except Disagreement as problem:
        saved = WORK / f"{problem.target.replace(' ', '-')}-{seed}.hex"
        saved.write_text(problem.data.hex() + "\n")
        say(f"{problem}\nagain: python -m tests.fuzz {(WORK / 'last-case').read_text().strip()}\nsaved: {saved}")
        return 1
    for what, number in sorted(COUNTS.items()):
        say(f"{number:8} {what}")
    say(f"{run_cases} cases, no disagreement")
    return 0


if __name__ == "__main__":
    sys.exit(main())
