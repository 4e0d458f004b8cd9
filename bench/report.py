"""Writes what README.md and bench/README.md show of bench/results: `python -m bench report`.

README.md gets one chart, in docs/pictures, and how many targets are missed; bench/README.md gets it too, a second one
by codec, and for each question of tables.py the figures, each target among them. A figure is shown with its spread and,
if it has a target, with the target and whether it is met.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench import moved
from bench.chart import Bar, Group, drawn
from bench.common import BENCH_DIRECTORY, Bound
from bench.tables import CODECS, JAVA, LOG, QUESTIONS, RUST, Place, Question, Table, places_of

RESULTS = BENCH_DIRECTORY / "results"
README, BENCH_README = BENCH_DIRECTORY.parent / "README.md", BENCH_DIRECTORY / "README.md"
PICTURES = BENCH_DIRECTORY.parent / "docs" / "pictures"
CHART, CODECS_CHART = PICTURES / "speed.svg", PICTURES / "codecs.svg"
BEGIN, END = "<!-- benchmark figures: begin -->", "<!-- benchmark figures: end -->"
NOT_MEASURED = "not measured"
MISSED = "MISSED"


ABOUT = """Medians of interleaved rounds in one run, outputs compared first; in brackets the least and greatest round.
Measured on {machine}{neighbours}
One thread, CRC checked, offset, timestamp, key and value, 64 MiB of batches of 16 KiB. What a read costs depends on how
the page cache holds a file, so two are measured: one written in one piece, as a copy or a restored backup is, and one
written in steps of 16 KiB, as a broker does. All read the file.
"""
SUMMARY = """![{title}](docs/pictures/speed.svg)

64 MiB of batches of 16 KiB, no codec, in GB of the file per second. "pread and CRC in C" only reads the file and checks
its CRCs; no reader can be faster. "columns in C" also fills the same columns, but trusts its input. Bars are medians of
{rounds} interleaved rounds, lines reach from the least to the greatest. Measured on {machine}

[bench/README.md](bench/README.md#figures-and-targets) has all figures: codecs, threads, single records, writing, the
producer, Spark. `make bench` measures them on your machine. {missed}"""
MISSED_TARGETS = """**{missed} of {all} targets are MISSED**, in
{workloads}: [which, and by how much](bench/README.md#missed-targets).
"""


class Results:
    """The JSON files of a directory, by workload."""

    def __init__(self, directory: Path) -> None:
        self._by_workload = {path.stem: json.loads(path.read_text()) for path in sorted(directory.glob("*.json"))}

    @property
    def workloads(self) -> dict[str, dict[str, Any]]:
        return self._by_workload

    def cases(self, workload: str, title: str) -> list[dict[str, Any]]:
        """Return the cases whose title contains all parts of `title`, which are separated by "|"."""
        cases = self._by_workload.get(workload, {"cases": []})["cases"]
        return [case for case in cases if all(part in case["title"] for part in title.split("|"))]

    def ratio(self, place: Place) -> dict[str, Any] | None:
        for case in self.cases(place.workload, place.case):
            for ratio in case["ratios"]:
                if (ratio["of"], ratio["to"]) == (place.of, place.to):
                    found: dict[str, Any] = ratio
                    return found
        return None

    def rates(self, workload: str, title: str, contestant: str) -> list[float]:
        """Return the samples of a contestant in bytes of the file per second; an empty list if there are none."""
        for case in self.cases(workload, title):
            for samples in case["samples"]:
                if samples["contestant"] == contestant:
                    return [rate * float(case["bytes_per_unit"]) for rate in samples["wall"]]
        return []


def number(value: float) -> str:
    """Format a ratio with two decimals below 2, one below 20, and none above."""
    return f"{value:.2f}" if value < 2 else f"{value:.1f}" if value < 20 else f"{value:.0f}"


def figure(ratio: dict[str, Any] | None) -> str:
    """Format a ratio with its spread, and with its target if it has one."""
    if ratio is None:
        return NOT_MEASURED
    text = f"{number(ratio['ratio'])} [{number(ratio['least'])}-{number(ratio['greatest'])}]"
    if ratio.get("by") == "cpu":
        text = f"{number(ratio['cpu_ratio'])} by CPU time, {text} by time"
    if ratio["target"] is None:
        return text
    return f"{text}, target {ratio['target']:g}: {'met' if ratio['met'] else MISSED}"


def lines_of(table: Table, results: Results) -> list[str]:
    """Return the lines of a table in Markdown."""
    rows = [(name, *(figure(results.ratio(place)) for place in places)) for name, places in table.rows]
    return markdown(table.heading, rows)


def markdown(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [heading, ["---"] * len(heading), *rows]
    return [f"| {' | '.join(line)} |" for line in lines] + [""]


def of_machine(workloads: Iterable[dict[str, Any]]) -> str:
    """Return the machine, commit and date of the measurements as a sentence."""
    machines, commits, days = set(), set(), set()
    for content in workloads:
        about = content["machine"]
        cache = about["caches"].get("L2 Unified", "unknown")
        machines.add(f"{about['processors']} cores of {about['processor']}, {cache} of L2")
        commits.add(content["commit"])
        days.add(content["time"][:10])
    return f"{' and '.join(sorted(machines))}; commit {', '.join(sorted(commits))}; {', '.join(sorted(days))}."


def beside_neighbours(workloads: Iterable[dict[str, Any]]) -> str:
    """Return how many rounds were measured beside others on the machine, as a sentence; nothing if none was watched."""
    rounds = disturbed = 0
    for content in workloads:
        watched = content.get("neighbours", {"rounds": 0, "disturbed_rounds": 0})
        rounds += watched["rounds"]
        disturbed += watched["disturbed_rounds"]
    return f" Others used the processors at the start or the end of {disturbed} of {rounds} rounds." if rounds else ""


TITLE = "Reading a file, written as a broker writes it, into columns; one thread, CRC checked"
# The contestants of the chart, from the top, and how it names them.
CHARTED = {
    "pread and CRC in C": "pread and CRC in C",
    "limit.c from the file, copied": "columns in C",
    f"{LOG}, copied": "kstore",
    f"{JAVA}, file copies": "Kafka's Java client",
    f"{RUST}, file copies": "Rust, krabka-protocol",
    "aiokafka from the file": "aiokafka",
}
# The groups of a chart: how it names them, and the case of each.
CHARTED_FILES = [(f"values of {size} bytes", f"written in steps of 16 KiB, {size}-byte values") for size in (100, 1000)]
CHARTED_CODECS = [(codec, f"written in steps of 16 KiB, 100-byte values, {codec}:") for codec in CODECS]


def chart(results: Results, cases: Sequence[tuple[str, str]] = CHARTED_FILES) -> str:
    """Return the SVG of README.md, or one of other groups."""
    groups = []
    for heading, title in cases:
        bars = []
        for contestant, name in CHARTED.items():
            found = [rate / 1e9 for rate in results.rates("scan", title, contestant)]
            if found:
                bars.append(Bar(name, median(found), min(found), max(found), is_own=name == "kstore"))
        groups.append(Group(heading, bars))
    return drawn(groups, title=TITLE, unit="GB/s")


def summary(results: Results) -> str:
    """Return the section of README.md: the chart, where it was measured, and in which workloads targets are missed."""
    rows = targets(results)
    missed = [target for target in rows if target.is_missed]
    workloads = ", ".join(sorted({target.workload for target in missed}))
    scan = results.workloads.get("scan")
    return SUMMARY.format(
        title=TITLE,
        rounds=scan["settings"]["rounds"] if scan else NOT_MEASURED,
        machine=of_machine([scan] if scan else []),
        missed=MISSED_TARGETS.format(missed=len(missed), all=len(rows), workloads=workloads) if missed else "\n",
    )


TARGET_HEADING = ("case", "figures with their spreads and targets")


class Target(NamedTuple):
    """A target: where it is, which figure it is for, and the figure with its target and whether that is met."""

    workload: str
    case: str
    name: str
    told: str

    @property
    def is_missed(self) -> bool:
        return MISSED in self.told


def targets(results: Results) -> list[Target]:
    """Return every target, in the order of the results."""
    found = []
    for workload, content in results.workloads.items():
        for case in content["cases"]:
            title = case["title"].split(":")[0]
            for ratio in case["ratios"]:
                if ratio["target"] is not None:
                    found.append(Target(workload, title, f"{ratio['of']} / {ratio['to']}", figure(ratio)))
            for raw in case["bounds"]:
                bound = Bound(**{name: it for name, it in raw.items() if name != "met"})
                verdict = "met" if bound.is_met else MISSED
                found.append(Target(workload, title, bound.name, f"{bound.told}: {verdict}"))
    return found


def by_case(found: Iterable[Target]) -> list[str]:
    """Return the lines of a table of targets, a row for each case."""
    rows: dict[tuple[str, str], list[str]] = {}
    for target in found:
        rows.setdefault((target.workload, target.case), []).append(f"{target.name}: {target.told}")
    return markdown(TARGET_HEADING, [(case, "<br>".join(told)) for (_, case), told in rows.items()]) if rows else []


def answer(question: Question, results: Results, found: Sequence[Target]) -> list[str]:
    """Return the lines of a question: its tables, and the targets of its workloads that no table has."""
    shown = {(p.workload, f"{p.of} / {p.to}", figure(results.ratio(p))) for p in places_of(question.tables)}
    others = [
        target
        for target in found
        if target.workload in question.workloads and (target.workload, target.name, target.told) not in shown
    ]
    tables = [line for table in question.tables for line in lines_of(table, results)]
    return [f"### {question.asked}", "", *tables, *by_case(others)]


def figures(results: Results) -> str:
    """Return the generated part of bench/README.md: a table or two for each question, and the missed targets."""
    found = targets(results)
    missed = [target for target in found if target.is_missed]
    parts = [
        ABOUT.format(
            machine=of_machine(results.workloads.values()), neighbours=beside_neighbours(results.workloads.values())
        ),
        f"![{TITLE}](../docs/pictures/{CHART.name})",
        "",
        f"![The same by codec, values of 100 bytes](../docs/pictures/{CODECS_CHART.name})",
        "",
    ]
    for question in QUESTIONS:
        parts += answer(question, results, found)
    parts += ["### Missed targets", "", f"{len(found)} targets, {len(missed)} of them {MISSED}.", "", *by_case(missed)]
    return "\n".join(parts)


def with_section(text: str, section: str) -> str:
    """Return the text with the section between its two markers replaced."""
    before, begin, rest = text.partition(f"{BEGIN}\n")
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"expected a line {BEGIN} and a line {END}")
    return f"{before}{begin}{section}{end}{after}"


def rendered(directory: Path = RESULTS) -> dict[Path, str]:
    """Return the new content of the four files."""
    results = Results(directory)
    return {
        README: with_section(README.read_text(), summary(results)),
        BENCH_README: with_section(BENCH_README.read_text(), figures(results)),
        CHART: chart(results),
        CODECS_CHART: chart(results, CHARTED_CODECS),
    }


def write(directory: Path | None) -> int:
    """Write the files, print which figures moved and how many were not measured; return 1 if any were not."""
    texts = rendered(directory or RESULTS)
    for path, text in texts.items():
        path.write_text(text)
    print("\n".join(moved.report(directory or RESULTS)))
    missing = texts[BENCH_README].count(NOT_MEASURED)
    names = ", ".join(path.relative_to(BENCH_DIRECTORY.parent).as_posix() for path in texts)
    print(f"written: {names}; {missing} figures were not measured")
    return 1 if missing else 0
