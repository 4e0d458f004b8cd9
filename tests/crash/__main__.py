"""`python -m tests.crash LANE ...`: crash states, power cuts and damage by the thousand; see docs/durability.md, 9.

Each case is named LANE-SEED-NUMBER and depends on its name alone (a power cut also on the system's write-back). A case
that fails is printed with the command that runs it again. Ends with 1 if one failed, with 77 if nothing could be run.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import count, islice
from typing import NamedTuple

from tests.crash.lanes import LANES, Lane
from tests.fakes.power import MissingMeansError

SKIPPED = 77
MOST_PROBLEMS = 5
_CASE = re.compile(r"([a-z-]+[a-z])-(\d+)-(\d+)")
_REPORT_SECONDS = 20


class Result(NamedTuple):
    """What came of one case: how many states were looked at, or why it failed, or could not be run."""

    number: int
    states: int
    problem: str | None = None
    missing: str | None = None


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def run_case(name: str, seed: int, number: int) -> Result:
    # What a log says of what was cut off is what the lanes are for.
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        return Result(number, LANES[name].run(seed, number))
    except MissingMeansError as error:
        return Result(number, 0, missing=str(error))
    except Exception:  # noqa: BLE001 - whatever it is, the case has failed
        return Result(number, 0, problem=traceback.format_exc())
    finally:
        logging.disable(disabled)


def results_of(lane: Lane, numbers: Iterator[int], *, seed: int, jobs: int) -> Iterator[Result]:
    """Run cases in processes, a few ahead of what is asked for."""
    run = partial(run_case, lane.name, seed)
    if jobs == 1:
        yield from map(run, numbers)
        return
    with ProcessPoolExecutor(jobs) as pool:
        waiting = [pool.submit(run, number) for number in islice(numbers, 2 * jobs)]
        while waiting:
            yield waiting.pop(0).result()
            waiting += [pool.submit(run, number) for number in islice(numbers, 1)]


def run_lane(lane: Lane, *, seed: int, least_states: int, jobs: int) -> tuple[int, int, bool]:
    """Run the cases of a lane, for one without end until there were so many states.

    Return the states, the failures, and whether it could be run.
    """
    started = reported = time.monotonic()
    states = failures = 0
    numbers = count() if lane.case_count is None else iter(range(lane.case_count))
    for result in results_of(lane, numbers, seed=seed, jobs=1 if lane.is_alone else jobs):
        if result.missing is not None:
            say(f"{lane.name}: SKIPPED, nothing was tried: {result.missing}")
            return states, failures, False
        states += result.states
        if result.problem is not None:
            failures += 1
            say(f"{result.problem}\n{lane.name}: failed; again: {again(lane, seed, result.number)}")
        if failures >= MOST_PROBLEMS or (lane.case_count is None and states >= least_states):
            break
        if time.monotonic() - reported > _REPORT_SECONDS:
            reported = time.monotonic()
            say(f"  {lane.name}: {states} {lane.unit}, {states / (reported - started):.0f}/s")
    seconds = time.monotonic() - started
    say(f"{lane.name}: {states} {lane.unit} in {seconds:.0f} s ({states / seconds:.0f}/s), {failures} failed")
    return states, failures, True


def again(lane: Lane, seed: int, number: int) -> str:
    return f"make {lane.target} SEED={lane.name}-{seed}-{number}"


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument(
        "lanes", nargs="*", choices=[[], *LANES], help="default: all but the power cuts and the coordinators"
    )
    parser.add_argument("--states", type=int, default=40_000, help="crash states at least (default %(default)s)")
    parser.add_argument("--seed", default="1", help="a number, or LANE-SEED-NUMBER for that one case (default 1)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default %(default)s)")
    return parser.parse_args()


def main() -> int:
    options = parsed()
    one = _CASE.fullmatch(options.seed)
    if one is not None:
        result = run_case(one[1], int(one[2]), int(one[3]))
        say(result.problem or result.missing or f"{options.seed}: {result.states} {LANES[one[1]].unit}, none failed")
        return SKIPPED if result.missing else bool(result.problem)
    names = options.lanes or [name for name, lane in LANES.items() if not (lane.is_alone or lane.is_long)]
    say(f"seed {options.seed}, lanes {', '.join(names)}")
    crash_states = failures = ran = 0
    for name in names:
        left = options.states - crash_states
        states, failed, has_run = run_lane(LANES[name], seed=int(options.seed), least_states=left, jobs=options.jobs)
        crash_states += states if LANES[name].counts_as_crash else 0
        failures, ran = failures + failed, ran + has_run
    say(f"{crash_states} crash states, {failures} failures")
    return 1 if failures else 0 if ran else SKIPPED


if __name__ == "__main__":
    sys.exit(main())
