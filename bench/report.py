"""Writes what README.md and bench/README.md show of bench/results: `python -m bench report`.

README.md gets one chart, in docs/pictures, and how many targets are missed; bench/README.md gets it too, a second one
by codec, all figures and all targets. Each ratio is shown with its spread and, if it has a target, with the target and
whether it is met.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench import moved
from bench.bench_program import (
    APPEND,
    DISKCACHE,
    FUTURES,
    GATHERED,
    GET,
    LMDB,
    NOWAIT,
    POLL,
    QUEUE,
    READ,
    SELECT,
    SEND_RESULT,
    SQLITE,
    THREADED,
)
from bench.chart import Bar, Group, drawn
from bench.common import BENCH_DIRECTORY, Bound

RESULTS = BENCH_DIRECTORY / "results"
README, BENCH_README = BENCH_DIRECTORY.parent / "README.md", BENCH_DIRECTORY / "README.md"
PICTURES = BENCH_DIRECTORY.parent / "docs" / "pictures"
CHART, CODECS_CHART = PICTURES / "speed.svg", PICTURES / "codecs.svg"
BEGIN, END = "<!-- benchmark figures: begin -->", "<!-- benchmark figures: end -->"
NOT_MEASURED = "not measured"
MISSED = "MISSED"


ABOUT = """Medians of interleaved rounds in one run, outputs compared first; in brackets the least and greatest round.
Measured on {machine}
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


class Place(NamedTuple):
    """Identifies a ratio: the workload, parts of the title of its case, and the two contestants."""

    workload: str
    case: str
    of: str
    to: str


class Table(NamedTuple):
    """A heading and rows, each with a name and its ratios."""

    heading: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Place]]]


def _over(workload: str, cases: Sequence[str], of: str, to: str) -> list[Place]:
    return [Place(workload, case, of, to) for case in cases]


VALUES = ("100-byte values", "1000-byte values")
WAYS = ("in one piece", "in steps of 16 KiB")
FILES = tuple(f"written {way}, {values}" for way in WAYS for values in VALUES)
PLAIN = tuple(f"Decode, {values}, none" for values in VALUES)
CODECS = ("lz4", "zstd", "snappy", "gzip")
THREADS = tuple(f"by threads, 100-byte values, {codec}" for codec in ("none", *CODECS))
APPENDS = tuple(f"values of {size} bytes" for size in (100, 1000))
SPARK = ("100-byte values", "1024-byte values")
JAVA, RUST = "Java, kafka-clients", "Rust, krabka-protocol"
AIOKAFKA, CEILING = "aiokafka, four fields read", "ready-made Arrow batches"
BY_HAND = "mapInArrow with aiokafka"
LOG, CORE = "kstore Log", "kstore core"
UNINDEXED = "kstore Log without indexes"
FORMS = (("copied", "copies"), ("views", "views"))

SCAN = Table(
    ("`Log.to_arrow_batches` from a file", *(f"{way}, {size} bytes" for way in WAYS for size in (100, 1000))),
    [
        *(
            (f"{form} / pread and CRC in C, the bound", _over("scan", FILES, f"{LOG}, {form}", "pread and CRC in C"))
            for form, _ in FORMS
        ),
        *(
            (
                f"{form} / a C program that fills the same columns",
                _over("scan", FILES, f"{LOG}, {form}", f"limit.c from the file, {form}"),
            )
            for form, _ in FORMS
        ),
        *(
            (f"{form} / aiokafka's compiled reader", _over("scan", FILES, f"{LOG}, {form}", "aiokafka from the file"))
            for form, _ in FORMS
        ),
        *(
            (f"{form} / {name}, {mode}", _over("scan", FILES, f"{LOG}, {form}", f"{language}, file {mode}"))
            for name, language in (("Kafka's Java client", JAVA), ("Rust's krabka-protocol", RUST))
            for form, mode in FORMS
        ),
        *(
            (
                f"{form}, without indexes / with them",
                _over("scan", FILES, f"{UNINDEXED}, {form}", f"{LOG}, {form}"),
            )
            for form, _ in FORMS
        ),
    ],
)
COMPRESSED = Table(
    ("from a file written in steps, 100-byte values, copied", *CODECS),
    [
        (
            "`Log.to_arrow_batches` / aiokafka's compiled reader",
            [Place("scan", f"values, {codec}", f"{LOG}, copied", "aiokafka from the file") for codec in CODECS],
        ),
        (
            "the same / Kafka's Java client",
            [Place("scan", f"values, {codec}", f"{LOG}, copied", f"{JAVA}, file copies") for codec in CODECS],
        ),
        (
            "the core over memory / the codec's package alone, then the uncompressed decode",
            [
                Place(
                    "decode", f"values, {codec}", f"{CORE}, copied", "codec package alone, then the uncompressed decode"
                )
                for codec in CODECS
            ],
        ),
    ],
)
MEMORY = Table(
    ("the compiled core over memory, a 64 MiB segment of 16 KiB batches", *VALUES),
    [
        *(
            (f"{form} / aiokafka's compiled reader", _over("decode", PLAIN, f"{CORE}, {form}", AIOKAFKA))
            for form, _ in FORMS
        ),
        *(
            (
                f"{form} / a C program without safety checks",
                _over("decode", PLAIN, f"{CORE}, {form}", f"limit.c, {form}"),
            )
            for form, _ in FORMS
        ),
        *(
            (f"{form} / {name}, {mode}", _over("decode", PLAIN, f"{CORE}, {form}", f"{language}, {mode}"))
            for name, language in (("Kafka's Java client", JAVA), ("Rust's krabka-protocol", RUST))
            for form, mode in FORMS
        ),
    ],
)
TWO = Table(
    ("of one thread, 100-byte values", "none", *CODECS),
    [
        (name, _over("read", THREADS, of, "kstore Log, one thread"))
        for name, of in (
            ("two threads of one scan, rows in order", "kstore Log, two threads"),
            ("two threads, a half each", "kstore Log, two threads, a half each, no order between them"),
            ("two processes, a half each", "kstore Log, two processes, a half each"),
        )
    ],
)
RECORDS = Table(
    ("one record at a time, from Python", *VALUES),
    [
        (
            "`Record` objects by iteration, key and value touched / aiokafka's compiled reader",
            _over(
                "records", [f"magic 2, {size}" for size in VALUES], "kstore, key and value", "aiokafka, key and value"
            ),
        ),
        (
            "`MemoryRecordsBuilder.append` / aiokafka's compiled builder",
            _over("builder", VALUES, "kstore, append", "aiokafka, append"),
        ),
        (
            "`pack_columns`, from columns / the same",
            _over("builder", VALUES, "kstore, pack_columns", "aiokafka, append"),
        ),
    ],
)
WRITING = Table(
    ("writing, plain batches of 16 KiB", *VALUES),
    [
        (
            "`WritableLog.append_as_follower` / `os.write` of the same bytes",
            _over("append", APPENDS, "kstore, append_as_follower, written", "os.write"),
        ),
        (
            "`WritableLog.append`, each record checked / the same",
            _over("append", APPENDS, "kstore, append as leader, written", "os.write"),
        ),
        (
            "the same, flushed each MiB / `os.write` with fdatasync each MiB",
            _over("append", APPENDS, "kstore, append as leader, flush each MiB", "os.write, fdatasync each MiB"),
        ),
        (
            "`WritableLog.append` / Kafka's `UnifiedLog.appendAsLeader`",
            _over("append", APPENDS, "kstore, append as leader, written", "Java, UnifiedLog, leader"),
        ),
    ],
)
LOOKUP, RECOVER = "Lookup in a segment", "Read and recover"
WALK = "recovery walk, every batch checked, both indexes made"
OTHERS = Table(
    ("beside the bound, or Kafka's own classes, in the same run", "ratio"),
    [
        (name, [Place(*place)])
        for name, *place in (
            ("CRC-32C over 16 KiB chunks / the crc32c wheel", "crc", "CRC-32C", "kstore", "crc32c wheel"),
            (
                "16 threads that each wait for a flush / 16 threads of C that share each fdatasync",
                "append",
                "flushed before it returns",
                "kstore, flushed, 16 threads",
                "C, 16 threads that share fdatasync",
            ),
            (
                "one offset in a full index",
                "index",
                "Offset lookup",
                "OffsetIndex.slot_of_offset, one by one",
                "Java, kafka-storage, lookup",
            ),
            (
                "an array of offsets",
                "index",
                "Offset lookup",
                "OffsetIndex.slots_of_offsets, an array",
                "Java, kafka-storage, lookup",
            ),
            (
                "offset to batch position",
                "index",
                LOOKUP,
                "LogSegment.translate_offset",
                "Java, kafka-storage, translate",
            ),
            ("search by time", "index", LOOKUP, "LogSegment.search_timestamp", "Java, kafka-storage, time"),
            ("recovery of a 512 MiB segment", "index", RECOVER, WALK, "Java, kafka-storage, recover"),
            (
                "the same / reading it and checking CRCs alone",
                "index",
                RECOVER,
                WALK,
                "preads of 1 MiB and one CRC-32C over each",
            ),
            (
                "`kstore dump --records --json`, whole process",
                "index",
                "Dump",
                "kstore dump --records --json",
                "Java, DumpLogSegments --print-data-log",
            ),
            (
                "`RecordAccumulator.append` (100-byte values)",
                "producer",
                "RecordAccumulator",
                "kstore append",
                "Java, RecordAccumulator, append",
            ),
            (
                "`append_columns`",
                "producer",
                "RecordAccumulator",
                "kstore append_columns",
                "Java, RecordAccumulator, append",
            ),
            (
                "two threads on one partition / one",
                "producer",
                "RecordAccumulator",
                "kstore append from two threads",
                "kstore append",
            ),
        )
    ],
)
SENDING = "Producer, values of 100 bytes"
SEND, COLUMNS = "Producer.send, written", "Producer.send_columns, written"
PRODUCING = Table(
    ("through to a store's files, 100-byte values", "ratio"),
    [
        (name, [Place("send", SENDING, of, to)])
        for name, of, to in (
            (
                "`Producer.send` / confluent-kafka's `produce()` before its mock cluster, its defaults",
                SEND,
                "confluent-kafka, mock cluster, its defaults",
            ),
            ("the same / with kstore's settings", SEND, "confluent-kafka, mock cluster, set as kstore"),
            ("`send` to any partition / to one", "Producer.send without key and partition, written", SEND),
            ("`send_columns` / `send`", COLUMNS, SEND),
            ("`send_columns` / `os.write` of the same batches", COLUMNS, "os.write of the same batches"),
        )
    ],
)
PROGRAM = Table(
    ("inside a program, 100-byte values", "ratio"),
    [
        (name, [Place("program", case, of, to)])
        for name, case, of, to in (
            ("`send().result()` / `log.append`, one at a time", "written", SEND_RESULT, APPEND),
            ("`log.append` / sqlite3's INSERT, each committed, no sync", "written", APPEND, SQLITE),
            ("the same / lmdb's put, each in a transaction, no sync", "written", APPEND, LMDB),
            ("the same / diskcache's set, no sync", "written", APPEND, DISKCACHE),
            ("the same / persist-queue's put", "written", APPEND, QUEUE),
            ("`send_nowait` of `kstore.aio` / `Producer.send`", "sent together", NOWAIT, THREADED),
            ("gathered sends of `kstore.aio` / bare futures of asyncio", "gathered in", GATHERED, FUTURES),
            ("`log.get(offset)` / sqlite3's SELECT by rowid", "by its offset", GET, SELECT),
            ("`Consumer.poll` / `log.read`", "as objects", POLL, READ),
        )
    ],
)
SPARK_TABLE = Table(
    ("Spark, local[2]", "100-byte values", "1 KiB values"),
    [
        (name, [Place("spark", f"{size}, ", of, to)._replace(case=f"{size}|{query}") for size in SPARK])
        for name, query, of, to in (
            (
                "all columns / ready-made Arrow batches, the ceiling of a Python source",
                "all columns",
                "kstore",
                CEILING,
            ),
            ("all columns / thirty lines of mapInArrow with aiokafka", "all columns", "kstore", BY_HAND),
            ("value only / the ceiling", "value only", "kstore", CEILING),
            ("value only / mapInArrow written for it", "value only", "kstore", f"{BY_HAND}, written for value only"),
            ("count / the ceiling", "count", "kstore", CEILING),
            ("count / mapInArrow written for it", "count", "kstore", f"{BY_HAND}, written for count"),
        )
    ],
)
UDFS = Table(
    ("UDFs in Spark, local[2]", *VALUES),
    [
        (
            f"`{function}` / an arrow_udf with aiokafka that builds flat lists",
            [
                Place("udfs", f"{name}, {size}", f"kstore, {function}", f"aiokafka by flat lists, {name}")
                for size in VALUES
            ],
        )
        for name, function in (("unpack", "unpack_batches"), ("pack", "pack_batch"))
    ],
)


REST = (TWO, RECORDS, WRITING, OTHERS, PRODUCING, PROGRAM, SPARK_TABLE, UDFS)


def places() -> list[Place]:
    """Return every ratio of the tables of figures."""
    tables = (SCAN, COMPRESSED, MEMORY, *REST)
    return [place for table in tables for _, found in table.rows for place in found]


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


def rates(results: Results) -> list[str]:
    """Return the table of the scan's throughput in GB of the file per second."""
    rows = []
    for name in (f"{LOG}, copied", f"{LOG}, views", "pread and CRC in C", "aiokafka from the file"):
        found = [results.rates("scan", title, name) for title in FILES]
        rows.append((name, *(f"{median(rates) / 1e9:.2f}" if rates else NOT_MEASURED for rates in found)))
    return markdown(("GB of the file in a second", *SCAN.heading[1:]), rows)


def scan_memory(results: Results) -> str:
    """Return a sentence on the memory of a scan of 1 GiB above that of the interpreter."""
    peaks = {bound["name"]: max(bound["values"]) for case in results.cases("memory", "") for bound in case["bounds"]}
    told = [f"{peak:.0f} MiB ({name.removeprefix('kstore, ')})" for name, peak in peaks.items()]
    return f"Scanning a 1 GiB directory takes above the interpreter at most {', '.join(told) or NOT_MEASURED}."


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
    rows = target_rows(results)
    missed = missed_of(rows)
    workloads = ", ".join(sorted({workload for workload, *_ in missed}))
    scan = results.workloads.get("scan")
    return SUMMARY.format(
        title=TITLE,
        rounds=scan["settings"]["rounds"] if scan else NOT_MEASURED,
        machine=of_machine([scan] if scan else []),
        missed=MISSED_TARGETS.format(missed=len(missed), all=len(rows), workloads=workloads) if missed else "\n",
    )


def figures(results: Results) -> str:
    """Return the tables of bench/README.md."""
    parts = [
        ABOUT.format(machine=of_machine(results.workloads.values())),
        f"![{TITLE}](../docs/pictures/{CHART.name})",
        "",
        *lines_of(SCAN, results),
        *rates(results),
        f"![The same by codec, values of 100 bytes](../docs/pictures/{CODECS_CHART.name})",
        "",
        *lines_of(COMPRESSED, results),
        *lines_of(MEMORY, results),
        scan_memory(results),
        "",
    ]
    for table in REST:
        parts += lines_of(table, results)
    return "\n".join(parts)


TARGET_HEADING = ("workload", "case", "figure", "with its spread and target")


def target_rows(results: Results) -> list[tuple[str, str, str, str]]:
    """Return the rows of the table of all targets."""
    rows = []
    for workload, content in results.workloads.items():
        for case in content["cases"]:
            title = case["title"].split(":")[0]
            for ratio in case["ratios"]:
                if ratio["target"] is not None:
                    rows.append((workload, title, f"{ratio['of']} / {ratio['to']}", figure(ratio)))
            for bound in case["bounds"]:
                found = Bound(**{name: it for name, it in bound.items() if name != "met"})
                rows.append((workload, title, found.name, f"{found.told}: {'met' if found.is_met else MISSED}"))
    return rows


def missed_of(rows: Iterable[tuple[str, str, str, str]]) -> list[tuple[str, str, str, str]]:
    """Return the rows of missed targets."""
    return [row for row in rows if MISSED in row[-1]]


def targets(results: Results) -> str:
    """Return the tables of the missed targets and of all, each with its figure."""
    rows = target_rows(results)
    missed = missed_of(rows)
    parts = [f"{len(rows)} targets, {len(missed)} of them {MISSED}.", ""]
    if missed:
        parts += ["### Missed targets", "", *markdown(TARGET_HEADING, missed), "### All targets", ""]
    return "\n".join([*parts, *markdown(TARGET_HEADING, rows)])


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
        BENCH_README: with_section(BENCH_README.read_text(), f"{figures(results)}\n{targets(results)}"),
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
