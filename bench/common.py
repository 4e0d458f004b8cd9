"""Measurement: interleaved rounds, medians with their spread, ratios with targets, tables and JSON."""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Literal, TypeAlias

from bench.neighbours import Neighbours
from kstore._core import BUILD

Clock: TypeAlias = Literal["wall", "cpu"]

BENCH_DIRECTORY = Path(__file__).parent
MIB = 1024 * 1024
VERSIONED_PACKAGES = (
    "numpy",
    "pyarrow",
    "pyspark",
    "aiokafka",
    "crc32c",
    "google-crc32c",
    "lz4",
    "zstandard",
    "cramjam",
    "isal",
)


# Files that a run or a report writes; changes to them do not make the tree dirty.
GENERATED = (
    "bench/results",
    "README.md",
    "bench/README.md",
    "docs/pictures/speed.svg",
    "docs/pictures/codecs.svg",
)


class DirtyTreeError(Exception):
    """The measured files differ from the commit, so that the measurement could not be repeated."""


class SlowBuildError(Exception):
    """The extension was compiled for developers; the users of a wheel have a faster one."""


class OutputsDifferError(Exception):
    """Two contestants returned different results for one input, so timing them would be meaningless."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Sizes and repetitions of a run. `tiny` runs the same code on little data, for tests.

    neighbours: of the workload that runs: what looks for others that use the machine.
    """

    data_directory: Path = BENCH_DIRECTORY / "data"
    build_directory: Path = BENCH_DIRECTORY / ".rivals"
    results_directory: Path = BENCH_DIRECTORY / "results"
    segment_bytes: int = 64 * MIB
    spark_segment_bytes: int = 128 * MIB
    spark_value_bytes: tuple[int, ...] = (100, 1024)
    log_bytes: int = 1024 * MIB
    rounds: int = 15
    sample_seconds: float = 0.12
    warm_up_seconds: float = 0.5
    other_languages: bool = False
    allows_dirty: bool = False
    neighbours: Neighbours = field(default_factory=Neighbours)

    @classmethod
    def tiny(cls, scratch: Path) -> Settings:
        """Return settings with which each workload takes about a second and writes below `scratch`."""
        return cls(
            data_directory=scratch / "data",
            build_directory=scratch / "build",
            results_directory=scratch / "results",
            segment_bytes=64 * 1024,
            spark_segment_bytes=64 * 1024,
            spark_value_bytes=(100,),
            log_bytes=512 * 1024,
            rounds=1,
            sample_seconds=0.0,
            warm_up_seconds=0.0,
        )


@dataclass(frozen=True)
class Contestant:
    """One way to do the work. run: does it once; units: the number of units (records, bytes) per run; prepare: called
    before each run, and not timed.
    """

    name: str
    run: Callable[[], None]
    units: float
    prepare: Callable[[], None] | None = None


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Rates of one contestant, one per round: units per second of wall time, and per second of CPU time."""

    contestant: str
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.wall)


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """Ratio of two medians, with the median, least and greatest ratio of the rounds.

    by: what the target is held against, "wall" for the ratio, "cpu" for that of the CPU times.
    """

    of: str
    to: str
    ratio: float
    round_median: float
    least: float
    greatest: float
    cpu_ratio: float
    target: float | None = None
    by: Clock = "wall"

    @property
    def is_met(self) -> bool | None:
        return None if self.target is None else (self.cpu_ratio if self.by == "cpu" else self.ratio) >= self.target


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A measured quantity with an upper bound, such as memory.

    bare, bare_values: what the machine itself took in the same rounds, without what is measured.
    """

    name: str
    unit: str
    values: list[float]
    at_most: float
    bare: str = ""
    bare_values: list[float] = field(default_factory=list)

    @property
    def is_met(self) -> bool:
        return max(self.values) <= self.at_most

    @property
    def told(self) -> str:
        """The greatest value, that of the machine alone, and whether the bound is met."""
        bare = f", {self.bare} {max(self.bare_values):.3g}" if self.bare_values else ""
        return f"{max(self.values):.3g} {self.unit}{bare}, at most {self.at_most:g}"


@dataclass(kw_only=True)
class Case:
    """Figures of one workload on one input. unit: what a rate counts; bytes_per_unit: converts a rate to MB/s."""

    title: str
    unit: str
    bytes_per_unit: float
    samples: list[Samples] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)
    bounds: list[Bound] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_met(self) -> bool:
        return all(r.is_met is not False for r in self.ratios) and all(b.is_met for b in self.bounds)

    def add_ratio(self, of: str, to: str, *, target: float | None = None, by: Clock = "wall") -> None:
        """Add the ratio of two contestants by name, unless one of them did not run."""
        by_name = {samples.contestant: samples for samples in self.samples}
        if of in by_name and to in by_name:
            self.ratios.append(ratio_of(by_name[of], by_name[to], target=target, by=by))


def ratio_of(of: Samples, to: Samples, *, target: float | None = None, by: Clock = "wall") -> Ratio:
    """Return the ratio of two contestants of the same rounds."""
    by_round = [a / b for a, b in zip(of.wall, to.wall, strict=True)]
    return Ratio(
        of=of.contestant,
        to=to.contestant,
        ratio=of.median / to.median,
        round_median=statistics.median(by_round),
        least=min(by_round),
        greatest=max(by_round),
        cpu_ratio=statistics.median(of.cpu) / statistics.median(to.cpu),
        target=target,
        by=by,
    )


def interleaved(
    contestants: Sequence[Contestant],
    settings: Settings,
    *,
    cpu_seconds: Callable[[], float] = time.process_time,
    one_run_per_sample: bool = False,
) -> list[Samples]:
    """Sample each contestant once per round, after a warm-up. The order is reversed every other round."""
    for contestant in contestants:
        _rate(contestant, settings.warm_up_seconds, cpu_seconds)
    least_seconds = 0.0 if one_run_per_sample else settings.sample_seconds
    by_name = {contestant.name: contestant for contestant in contestants}
    return in_rounds(list(by_name), lambda name: _rate(by_name[name], least_seconds, cpu_seconds), settings)


def in_rounds(
    names: Sequence[str], rates_of: Callable[[str], tuple[float, float]], settings: Settings
) -> list[Samples]:
    """Sample the rates of each name, by wall and CPU time, once per round; its order is reversed every other round."""
    all_samples = {name: Samples(contestant=name) for name in names}

    def run_round(order: Sequence[str]) -> list[tuple[float, float]]:
        return [rates_of(name) for name in order]

    for number in range(settings.rounds):
        order = names if number % 2 == 0 else names[::-1]
        rates = settings.neighbours.measured(partial(run_round, order))
        for name, (wall, cpu) in zip(order, rates, strict=True):
            all_samples[name].wall.append(wall)
            all_samples[name].cpu.append(cpu)
    return list(all_samples.values())


def _rate(contestant: Contestant, least_seconds: float, cpu_seconds: Callable[[], float]) -> tuple[float, float]:
    runs = 0
    cpu_start, start = cpu_seconds(), time.perf_counter()
    while True:
        if contestant.prepare is not None:
            cpu_before, before = cpu_seconds(), time.perf_counter()
            contestant.prepare()
            cpu_start += cpu_seconds() - cpu_before
            start += time.perf_counter() - before
        contestant.run()
        runs += 1
        elapsed = time.perf_counter() - start
        if elapsed >= least_seconds:
            break
    cpu = cpu_seconds() - cpu_start
    units = contestant.units * runs
    return units / elapsed, units / max(cpu, 1e-6)


def seconds_of(work: Callable[[], object]) -> float:
    """Return how long a call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def cpu_seconds() -> float:
    """Return the CPU time of this process and of the children that ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def without_result(function: Callable[[], object]) -> Callable[[], None]:
    """Return a function that calls `function` and ignores its result."""

    def run_once() -> None:
        function()

    return run_once


def exhausting(make: Callable[[], Iterator[object]]) -> Callable[[], None]:
    """Return a function that exhausts a new iterator, releasing each item before it takes the next."""

    def run_once() -> None:
        for _ in make():
            pass

    return run_once


def require_equal(what: str, results: dict[str, object]) -> None:
    """Raise OutputsDifferError unless every named result equals the first."""
    names = list(results)
    for name in names[1:]:
        if results[name] != results[names[0]]:
            raise OutputsDifferError(f"{what}: {names[0]} gave {results[names[0]]}, {name} gave {results[name]}")


def scaled(rate: float) -> str:
    """Format a rate with the prefix G, M, k or none."""
    for size, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= size:
            return f"{rate / size:.3g} {prefix}"
    return f"{rate:.3g} "


def print_case(case: Case) -> None:
    """Print one table of rates and one of ratios."""
    print(f"\n{case.title}")
    for samples in case.samples:
        spread = f"{scaled(min(samples.wall))} - {scaled(max(samples.wall))}"
        megabytes = samples.median * case.bytes_per_unit / 1e6
        print(f"  {samples.contestant:52} {scaled(samples.median):>8}{case.unit}/s  ({spread})  {megabytes:8.0f} MB/s")
    for ratio in case.ratios:
        clock = " by processor time" if ratio.by == "cpu" else ""
        met = "met" if ratio.is_met else "MISSED"
        verdict = "" if ratio.target is None else f"  target {ratio.target:g}{clock}: {met}"
        spread = f"by round {ratio.round_median:.2f}, {ratio.least:.2f} - {ratio.greatest:.2f}; by processor time "
        spread += f"{ratio.cpu_ratio:.2f}"
        print(f"    {ratio.of} / {ratio.to} = {ratio.ratio:.2f}  ({spread}){verdict}")
    for bound in case.bounds:
        spread = f"{min(bound.values):.0f} - {max(bound.values):.0f}"
        verdict = f"{bound.told}: {'met' if bound.is_met else 'MISSED'}"
        print(f"  {bound.name:52} {statistics.median(bound.values):8.0f} {bound.unit}  ({spread})  {verdict}")
    for note in case.notes:
        print(f"    {note}")
    sys.stdout.flush()


def _proc_line(path: str, key: str) -> str:
    try:
        for line in Path(path).read_text().splitlines():
            if line.startswith(key):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return "unknown"


def _command_output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=BENCH_DIRECTORY)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return (done.stdout or done.stderr).strip()


def _installed_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def machine() -> dict[str, object]:
    """Return a description of the machine: processor, caches, memory, kernel."""
    caches = {
        f"L{(index / 'level').read_text().strip()} {(index / 'type').read_text().strip()}": (
            (index / "size").read_text().strip()
        )
        for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"))
        if (index / "size").exists()
    }
    return {
        "processor": _proc_line("/proc/cpuinfo", "model name"),
        "processors": os.cpu_count(),
        "caches": caches,
        "memory": _proc_line("/proc/meminfo", "MemTotal"),
        "kernel": platform.release(),
    }


def versions() -> dict[str, str]:
    """Return the versions of Python, the C compiler, Java and the packages."""
    found = {"python": platform.python_version(), "cc": _command_output("cc", "--version").split("\n")[0]}
    found["java"] = _command_output("java", "--version").split("\n")[0]
    for package in VERSIONED_PACKAGES:
        version = _installed_version(package)
        if version is not None:
            found[package] = version
    return found


def require_release_build() -> None:
    """Raise SlowBuildError if the extension was compiled with KSTORE_FAST=1 or KSTORE_DEBUG=1."""
    if BUILD != "release":
        raise SlowBuildError(
            f"the extension is a {BUILD} build, whose figures are not those of a wheel; build it as a wheel is built: "
            "python setup.py build_ext --inplace --force"
        )


def commit(*, allows_dirty: bool) -> str:
    """Return the commit that is measured, with "-dirty" if files differ from it or it is unknown.

    Changes to GENERATED files are ignored.
    Raises: DirtyTreeError if the tree is dirty and that is not allowed.
    """
    found = _command_output("git", "describe", "--always", "--abbrev=12", "--exclude=*")
    left_out = [f":(top,exclude){path}" for path in GENERATED]
    changed = _command_output("git", "status", "--porcelain", "--", ":(top)", *left_out)
    if not changed and found != "unknown":
        return found
    if not allows_dirty:
        raise DirtyTreeError(f"commit what is to be measured, or give --dirty; at {found}, changed:\n{changed}")
    return f"{found}-dirty"


def write_results(workload: str, cases: Sequence[Case], settings: Settings, *, load_before: tuple[float, ...]) -> Path:
    """Write the figures of one workload as JSON, replacing those of the last run; return the path."""
    settings.results_directory.mkdir(parents=True, exist_ok=True)
    path = settings.results_directory / f"{workload}.json"
    written = [asdict(case) for case in cases]
    for case, as_dict in zip(cases, written, strict=True):
        for ratio, ratio_as_dict in zip(case.ratios, as_dict["ratios"], strict=True):
            ratio_as_dict["met"] = ratio.is_met
        for bound, bound_as_dict in zip(case.bounds, as_dict["bounds"], strict=True):
            bound_as_dict["met"] = bound.is_met
    content = {
        "workload": workload,
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(allows_dirty=settings.allows_dirty),
        "machine": machine(),
        "versions": versions(),
        "load_average": {"before": load_before, "after": os.getloadavg()},
        "settings": {
            "segment_bytes": settings.segment_bytes,
            "rounds": settings.rounds,
            "sample_seconds": settings.sample_seconds,
        },
        "neighbours": settings.neighbours.told(),
        "cases": written,
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path
