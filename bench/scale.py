"""What a scan of many segments asks of a cluster: `python -m bench.scale` measures, and writes docs/scale.md's figures.

Plans are made in processes of their own over bench/listed_store.py; the model multiplies what they took. The prices are
those of AWS in us-east-1. `python -m bench.scale report` only writes the page from the last measurement.
"""

from __future__ import annotations

import gc
import json
import pickle
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import NamedTuple

from bench.common import BENCH_DIRECTORY, machine
from bench.listed_store import SUFFIXES, URL, ListedStore
from kstore.log.files.names import name_partitions
from kstore.spark.jobs.scanning import PARTITIONS_PER_TASK
from kstore.spark.options import parse_read_options
from kstore.spark.planning import plan_directories
from kstore.spark.pushdown import Constraint

RESULTS = BENCH_DIRECTORY / "scale.json"
PAGE = BENCH_DIRECTORY.parent / "docs" / "scale.md"
BEGIN, END = "<!-- scale figures: begin -->", "<!-- scale figures: end -->"
SEGMENTS = (10_000, 100_000, 1_000_000)
PER_PARTITION = 1000
TASK_BYTES = 1 << 30
LISTED_AT_ONCE = 1000
READ_BYTES = 8 << 20
LOOK_BYTES = 32 << 20
# Of AWS in us-east-1, in US dollars: per 1000 requests, and per hour of a virtual core (a 16th of an m7i.4xlarge).
LIST_DOLLARS, GET_DOLLARS = 0.005, 0.0004
CORE_HOUR_DOLLARS = 0.8064 / 16
# Assumptions of the model: a listing request takes so long, and a core reads, decodes and hands on so much.
LIST_S = 0.1
CORE_BYTES_PER_S = 200e6
COLUMNS = (
    "segments",
    "partitions",
    "tasks",
    "requests",
    "listing, µs a segment",
    "planning, µs a segment",
    "peak memory, bytes a segment",
    "pickled tasks, bytes a segment",
    "compressed",
)


class Planned(NamedTuple):
    """One plan of a root: per segment, CPU time of the listing and the plan, peak of memory above that before the
    listing, and bytes of the pickled tasks; and how many requests and tasks there were.
    """

    segments: int
    partitions: int
    tasks: int
    requests: int
    listing_us: float
    planning_us: float
    peak_bytes: float
    task_bytes: float
    packed_bytes: float


class Wanted(NamedTuple):
    """What the model is asked: a scan of so many bytes in segments and partitions, by so many cores."""

    total_bytes: int
    segments: int
    partitions: int
    cores: int


ONE_PETABYTE = Wanted(10**15, 10_000_000, 10_000, 1000)


def plan_here(segments: int, *, per_partition: int) -> Planned:
    """Plan a listed store in this process, which must not have planned before: memory is the process's peak."""
    store = ListedStore(segments, per_partition=per_partition)
    env = store.env()
    options = parse_read_options({"path": "/listed"})
    gc.collect()
    before, began = peak_bytes(), time.process_time()
    directories = name_partitions([URL], env)
    listed = time.process_time()
    tasks = plan_directories(directories, options, Constraint(), max_partition_bytes=TASK_BYTES)
    planned, after = time.process_time(), peak_bytes()
    pickles = [pickle.dumps(task) for task in tasks]
    return Planned(
        segments,
        store.partitions,
        len(tasks),
        sum(store.calls.values()),
        round((listed - began) / segments * 1e6, 2),
        round((planned - listed) / segments * 1e6, 2),
        round((after - before) / segments, 1),
        round(sum(map(len, pickles)) / segments, 1),
        round(sum(len(zlib.compress(one, 1)) for one in pickles) / segments, 1),
    )


def peak_bytes() -> int:
    """Return the largest resident size that this process had."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def plan_apart(segments: int, *, per_partition: int = PER_PARTITION) -> Planned:
    """Plan a listed store in a process of its own."""
    command = [sys.executable, "-m", "bench.scale", "plan", str(segments), str(per_partition)]
    done = subprocess.run(command, cwd=BENCH_DIRECTORY.parent, capture_output=True, text=True, check=True)
    return Planned(**json.loads(done.stdout))


def rows_of(wanted: Wanted, planned: Planned) -> list[tuple[str, str, str]]:
    """Return the model's rows: what is asked, of a driver that plans, and of tasks that plan."""
    lists = -(-wanted.segments * len(SUFFIXES) // LISTED_AT_ONCE)
    tasks = -(-wanted.total_bytes // TASK_BYTES)
    gets = wanted.segments * -(-wanted.total_bytes // wanted.segments // READ_BYTES)
    looks = wanted.segments * (1 + -(-wanted.total_bytes // wanted.segments // LOOK_BYTES))
    cpu_s = wanted.segments * (planned.listing_us + planned.planning_us) / 1e6
    lists_apart = wanted.partitions * -(-lists // wanted.partitions) + -(-wanted.partitions // LISTED_AT_ONCE)
    # Each task lists and plans its partitions one after the other.
    planners = -(-wanted.partitions // PARTITIONS_PER_TASK)
    rounds = -(-planners // wanted.cores)
    apart_s = rounds * (lists_apart * LIST_S + cpu_s) / planners
    core_hours = wanted.total_bytes / CORE_BYTES_PER_S / 3600
    cost = [
        one * LIST_DOLLARS / 1000 + (gets + looks) * GET_DOLLARS / 1000 + core_hours * CORE_HOUR_DOLLARS
        for one in (lists, lists_apart)
    ]
    gib = 1 << 30
    seconds = (f"{one:,.0f}" for one in (lists * LIST_S + cpu_s, apart_s))
    return [
        (
            "requests to list",
            f"{lists:,}, one after the other",
            f"{lists_apart:,}, {min(wanted.cores, planners):,} at a time",
        ),
        ("seconds to list and plan", *seconds),
        (
            "driver memory for the plan, GiB",
            f"{wanted.segments * planned.peak_bytes / gib:.1f}",
            f"{wanted.segments * planned.packed_bytes / gib:.1f}",
        ),
        ("bytes of plan in a task", *[f"{round(wanted.segments * one / tasks):,}" for one in planned[-2:]]),
        ("tasks of at most 1 GiB", f"{tasks:,}", f"{tasks:,}"),
        ("requests to read", f"{gets + looks:,}", f"{gets + looks:,}"),
        ("core hours to read and decode", f"{core_hours:,.0f}", f"{core_hours:,.0f}"),
        ("US dollars", *[f"{one:,.0f}" for one in cost]),
    ]


def figures(measured: list[Planned], where: str) -> str:
    """Return the generated part of the page."""
    lines = [
        f"Measured on {where}.",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|" + "---:|" * len(COLUMNS),
    ]
    for one in measured:
        lines.append(
            f"| {one.segments:,} | {one.partitions:,} | {one.tasks:,} | {one.requests:,} | {one.listing_us:.1f} | "
            f"{one.planning_us:.1f} | {one.peak_bytes:,.0f} | {one.task_bytes:,.0f} | {one.packed_bytes:,.0f} |"
        )
    asked = ONE_PETABYTE
    lines += [
        "",
        f"A scan of {asked.total_bytes // 10**15} PB in {asked.segments:,} segments",
        f"and {asked.partitions:,} partitions, on {asked.cores:,} cores, by these figures:",
        "",
        '| | the driver plans: `format("kstore")` | tasks plan: `kstore.spark.scan` |',
        "|---|---:|---:|",
        *(f"| {' | '.join(row)} |" for row in rows_of(asked, measured[-1])),
    ]
    return "\n".join(lines)


def page_with(text: str, generated: str) -> str:
    """Return the page with its generated part replaced."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{generated}\n{END}{after}"


def saved() -> tuple[list[Planned], str]:
    """Return the last measurement, and the machine that it was made on."""
    found = json.loads(RESULTS.read_text())
    return [Planned(**one) for one in found["planned"]], found["machine"]


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["plan"]:
        print(json.dumps(plan_here(int(arguments[1]), per_partition=int(arguments[2]))._asdict()))
        return
    if arguments != ["report"]:
        measured = [plan_apart(segments) for segments in SEGMENTS]
        about = machine()
        where = f"{about['processors']} cores of {about['processor']}"
        found = {"machine": where, "planned": [one._asdict() for one in measured]}
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    PAGE.write_text(page_with(PAGE.read_text(), figures(*saved())))


if __name__ == "__main__":
    main(sys.argv[1:])
