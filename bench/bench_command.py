"""The command: `ls` of many partitions, a search that finds nothing, `cat --json`, `report`, help and completion.

Each run of the command is a process of its own, whose start is part of what is measured; what the library does alone,
a search beside a scan, runs in this one.

Measured: `kstore ls` of 10,000 partitions; `Log.find` and `kstore cat --value-regex` with a literal and an expression
that no value has; `cat --json`; `report` from headers; `--help` and a completion.
Compared with: `Log.to_arrow_batches` of the same log; `kstore cat` piped into `grep`; bounds in CPU seconds or seconds.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import kstore
from bench import data
from bench.bench_append import rated
from bench.common import (
    Bound,
    Case,
    Contestant,
    Settings,
    cpu_seconds,
    exhausting,
    interleaved,
    require_equal,
    seconds_of,
    without_result,
)

PARTITIONS = 10_000
TOPICS = 10
BYTES_PER_PARTITION = 6400
RECORDS_PER_PARTITION = 20
REPORT_BYTES = 256 * 1024 * 1024
# Four million records and more, so that the start of the process is a small part.
SEARCHED_BYTES = 512 * 1024 * 1024
# No value has a capital letter, or a q before so many others of a to f.
LITERAL, EXPRESSION, BUSY_EXPRESSION = "ORDER", "[A-Z]{3}[0-9]+", "q[a-f]{20}"
SCAN = "Log.to_arrow_batches"
FIND_LITERAL, FIND_EXPRESSION = "Log.find, a literal", "Log.find, an expression"
FIND_BUSY = "Log.find, a busy expression"
CAT_REGEX, CAT_GREP = "kstore cat --value-regex", "kstore cat | grep"
CAT_EXPRESSION, CAT_GREP_EXPRESSION = "kstore cat --value-regex, an expression", "kstore cat | grep -E"
CAT_JSON_GREP, CAT_VALUES_GREP = "kstore cat --json | grep", "kstore cat, values alone | grep"
# A search takes at most twice the time of the scan, and a fifth of that of cat | grep.
LEAST_OF_SCAN, LEAST_OF_GREP = 0.5, 5
AT_MOST_CPU_SECONDS_OF_LS = 4
AT_MOST_SECONDS_OF_REPORT = 20
AT_MOST_SECONDS_OF_HELP = 0.15
AT_MOST_SECONDS_PER_MILLION_OF_JSON = 1.25


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "kstore", *map(str, words)]


def output_of(words: list[str], **environment: str) -> bytes:
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, env={**os.environ, **environment}).stdout


def run_quietly(words: list[str], **environment: str) -> None:
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(words, check=True, env={**os.environ, **environment}, **streams)


def grepped(cat: list[str], expression: str) -> bytes:
    """Return what grep finds in the output of a command."""
    with subprocess.Popen(cat, stdout=subprocess.PIPE) as running:
        grep = ["grep", "-a", "-E", expression]
        found = subprocess.run(grep, stdin=running.stdout, stdout=subprocess.PIPE, env={**os.environ, "LC_ALL": "C"})
    require_equal("exit statuses", {"expected": (0, True), "found": (running.returncode, found.returncode <= 1)})
    return found.stdout


def cpu_seconds_of(work: Callable[[], object]) -> float:
    start = cpu_seconds()
    work()
    return cpu_seconds() - start


def bound(
    name: str, unit: str, at_most: float, settings: Settings, measure: Callable[[], float], *, scale: float = 1
) -> Bound:
    """Measure as many values as there are rounds; the check of the outputs was the warm-up."""
    values = [measure() / scale for _ in range(settings.rounds)]
    return Bound(name=name, unit=unit, values=values, at_most=at_most)


def write_root(root: Path, partitions: int) -> None:
    """Write a root of partitions of one small segment, as a store leaves them that was closed."""
    model = root.parent / "model"
    topics = [f"topic-{number}" for number in range(min(TOPICS, partitions))]
    with kstore.open_store(model, "a") as store:
        for topic in topics:
            store.create_topic(topic)
            store.log(topic).append([kstore.Record(value=b"v%d" % n * 10) for n in range(RECORDS_PER_PARTITION)])
    root.mkdir()
    for path in model.iterdir():
        if path.is_file():
            shutil.copy(path, root)
    names = [(topics[number % len(topics)], number // len(topics)) for number in range(partitions)]
    for topic, number in names:
        shutil.copytree(model / f"{topic}-0", root / f"{topic}-{number}")
    entries = "".join(f"{topic} {number} {RECORDS_PER_PARTITION}\n" for topic, number in names)
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (root / name).write_text(f"0\n{partitions}\n{entries}")


def listing(settings: Settings, scratch: Path) -> Case:
    """Measure `kstore ls` of a root of many partitions."""
    count = min(PARTITIONS, settings.segment_bytes // BYTES_PER_PARTITION)
    root = scratch / "root"
    write_root(root, count)
    words = command("ls", "--json", root)
    ends = [line.count(b'"log_end_offset":%d,' % RECORDS_PER_PARTITION) for line in output_of(words).splitlines()]
    require_equal("partitions listed", {"written": count, "kstore ls": sum(ends)})
    case = Case(title=f"kstore ls of {count} partitions", unit="run", bytes_per_unit=0)
    measure = partial(cpu_seconds_of, partial(run_quietly, words))
    case.bounds.append(bound("kstore ls", "CPU s", AT_MOST_CPU_SECONDS_OF_LS, settings, measure))
    return case


def partition_of(settings: Settings) -> data.PartitionData:
    spec = data.PartitionSpec(name="bench-0", value_bytes=100, segment_bytes=settings.segment_bytes)
    return data.partition(spec, settings.data_directory)


def offsets_found(log: kstore.Log, expression: str) -> list[int]:
    return [record.offset for record in log.find(kstore.RecordSearch(value_regex=expression))]


def searching(settings: Settings, partition: data.PartitionData) -> Case:
    """Measure searches that find nothing beside a scan, in this process."""
    case = Case(title="A search of values of 100 bytes that finds nothing", unit="rec", bytes_per_unit=100)
    with kstore.open_log(partition.path) as log:
        first = next(log.read())
        held = re.escape(bytes(first.value or b"")[:12].decode())
        for expression in (held, f"{held[:6]}[a-z0-5]+", LITERAL, EXPRESSION, BUSY_EXPRESSION):
            search = re.compile(expression.encode()).search
            expected = [record.offset for record in log.read() if search(record.value or b"")]
            require_equal(f"offsets of {expression}", {"re": expected, "kstore": offsets_found(log, expression)})
        scan = exhausting(lambda: iter(log.to_arrow_batches()))
        contestants = [Contestant(SCAN, scan, partition.record_count)]
        for name, expression in ((FIND_LITERAL, LITERAL), (FIND_EXPRESSION, EXPRESSION), (FIND_BUSY, BUSY_EXPRESSION)):
            find = without_result(partial(offsets_found, log, expression))
            contestants.append(Contestant(name, find, partition.record_count))
        case.samples = interleaved(contestants, settings)
    case.add_ratio(FIND_LITERAL, SCAN, target=LEAST_OF_SCAN)
    case.add_ratio(FIND_EXPRESSION, SCAN, target=LEAST_OF_SCAN)
    case.add_ratio(FIND_BUSY, SCAN)
    return case


def repeated(settings: Settings, most_bytes: int) -> data.PartitionData:
    """Return a partition of several segments, of most_bytes or what the settings allow."""
    size = min(most_bytes, settings.log_bytes)
    segment_bytes = min(settings.segment_bytes, size // 4)
    spec = data.PartitionSpec(
        name="bench-0", value_bytes=100, segment_bytes=segment_bytes, segment_count=size // segment_bytes
    )
    return data.repeated(spec, settings.data_directory)


def searching_by_command(settings: Settings) -> Case:
    """Measure `cat` with a search that finds nothing beside `cat | grep`, as it prints by default, JSON, and values.

    `cat | grep` has two processes, which a machine of two cores runs at the same time.
    """
    partition = repeated(settings, SEARCHED_BYTES)
    cat = command("cat", partition.path)
    values = [*cat, "--format", "%s\\n"]
    with kstore.open_log(partition.path) as log:
        held = bytes(next(log.read()).value or b"")[:8].decode()
    both = {CAT_REGEX: output_of([*values, "--value-regex", held]), CAT_GREP: grepped(values, held)}
    require_equal("lines found", dict(both))
    runs: dict[str, Callable[[], float]] = {
        CAT_REGEX: partial(seconds_of, partial(run_quietly, [*cat, "--value-regex", LITERAL])),
        CAT_GREP: partial(seconds_of, partial(grepped, cat, LITERAL)),
        CAT_JSON_GREP: partial(seconds_of, partial(grepped, [*cat, "--json"], LITERAL)),
        CAT_VALUES_GREP: partial(seconds_of, partial(grepped, values, LITERAL)),
        CAT_EXPRESSION: partial(seconds_of, partial(run_quietly, [*cat, "--value-regex", EXPRESSION])),
        CAT_GREP_EXPRESSION: partial(seconds_of, partial(grepped, cat, EXPRESSION)),
    }
    title = f"kstore cat of {partition.record_count} records with a search that finds nothing"
    case = Case(title=title, unit="rec", bytes_per_unit=100)
    case.samples = rated(runs, settings, units=partition.record_count, cpu_seconds=cpu_seconds)
    for grep in (CAT_GREP, CAT_JSON_GREP, CAT_VALUES_GREP):
        case.add_ratio(CAT_REGEX, grep, target=LEAST_OF_GREP)
    case.add_ratio(CAT_EXPRESSION, CAT_GREP_EXPRESSION, target=LEAST_OF_GREP)
    return case


def printing(settings: Settings, partition: data.PartitionData) -> Case:
    """Measure `cat --json` of all records."""
    words = command("cat", "--json", partition.path)
    require_equal("lines", {"records": partition.record_count, "kstore cat": output_of(words).count(b"\n")})
    case = Case(title="kstore cat --json of values of 100 bytes", unit="rec", bytes_per_unit=100)
    measure = partial(seconds_of, partial(run_quietly, words))
    million = partition.record_count / 1e6
    name, at_most = "kstore cat --json, 1 M records", AT_MOST_SECONDS_PER_MILLION_OF_JSON
    case.bounds.append(bound(name, "s", at_most, settings, measure, scale=million))
    return case


def reporting(settings: Settings, scratch: Path) -> Case:
    """Measure a report from headers."""
    partition = repeated(settings, REPORT_BYTES)
    size = min(REPORT_BYTES, settings.log_bytes)
    page = scratch / "report.html"
    words = command("report", partition.path, "-o", page)
    run_quietly(words)
    shown = f"{partition.record_count:,}".encode() in page.read_bytes()
    require_equal("records on the page", {"expected": True, "kstore report": shown})
    case = Case(title=f"kstore report of {size >> 20} MiB, from headers", unit="run", bytes_per_unit=0)
    measure = partial(seconds_of, partial(run_quietly, words))
    case.bounds.append(bound("kstore report", "s", AT_MOST_SECONDS_OF_REPORT, settings, measure))
    return case


def starting(settings: Settings) -> Case:
    """Measure the help and a completion, which a person waits for."""
    completion = {"_KSTORE_COMPLETE": "complete_bash", "COMP_WORDS": "kstore ls --so", "COMP_CWORD": "2"}
    require_equal("completion", {"expected": b"--sort", "kstore": output_of(command(), **completion).strip()})
    case = Case(title="Help and completion", unit="run", bytes_per_unit=0)
    for name, work in (
        ("kstore --help", partial(run_quietly, command("--help"))),
        ("a completion", partial(run_quietly, command(), **completion)),
    ):
        case.bounds.append(bound(name, "s", AT_MOST_SECONDS_OF_HELP, settings, partial(seconds_of, work)))
    return case


def run(settings: Settings) -> Iterator[Case]:
    """Measure what a person waits for."""
    partition = partition_of(settings)
    yield searching(settings, partition)
    yield searching_by_command(settings)
    yield printing(settings, partition)
    with tempfile.TemporaryDirectory() as scratch:
        yield listing(settings, Path(scratch))
        yield reporting(settings, Path(scratch))
    yield starting(settings)
