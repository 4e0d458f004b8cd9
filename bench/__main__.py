"""The command line: `python -m bench [run|prepare|report] [--only NAME ...]`."""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench import report
from bench.common import (
    DirtyTreeError,
    Settings,
    SlowBuildError,
    commit,
    print_case,
    require_release_build,
    write_results,
)
from bench.limit import compile_limit
from bench.neighbours import Neighbours
from bench.other_languages import MAIN_CLASSES, RUST, programs

WORKLOADS = (
    "crc",
    "scan",
    "decode",
    "legacy",
    "records",
    "values",
    "read",
    "builder",
    "append",
    "index",
    "open",
    "follow",
    "store",
    "tier",
    "compaction",
    "producer",
    "send",
    "program",
    "command",
    "memory",
    "udfs",
    "spark",
    "spark_values",
    "pipeline",
    "export",
    "wire",
    "serve",
)


PATIENCE = "how much longer a workload may take, since rounds are repeated while others use the machine (default 30)"
ACTIONS = "run (the default); prepare: make programs and data, measure nothing; report: write figures and chart"


def settings_from(arguments: argparse.Namespace, scratch: Path) -> Settings:
    """Return the settings of a run from the command line arguments."""
    settings = Settings.tiny(scratch) if arguments.tiny else Settings()
    if arguments.results is not None:
        settings = replace(settings, results_directory=arguments.results)
    if arguments.rounds is not None:
        settings = replace(settings, rounds=arguments.rounds)
    return replace(settings, other_languages=arguments.rivals, allows_dirty=arguments.dirty)


def run_workload(name: str, settings: Settings, *, patience_s: float) -> bool:
    """Run one workload, print and write its figures; return whether every target was met."""
    load_before = os.getloadavg()
    print(f"\n== {name} (load average {load_before[0]:.2f})")
    settings = replace(settings, neighbours=Neighbours(patience_s))
    cases = []
    for case in importlib.import_module(f"bench.bench_{name}").run(settings):
        print_case(case)
        cases.append(case)
    print(f"\n  beside others that use the machine: {settings.neighbours.told()}")
    print(f"  written: {write_results(name, cases, settings, load_before=load_before)}")
    return all(case.is_met for case in cases)


def prepare(names: Sequence[str], settings: Settings) -> int:
    """Build the programs in C, Java and Rust and write the data, which take long and are not measured."""
    compile_limit(settings)
    if settings.other_languages:
        programs(settings, (*MAIN_CLASSES, RUST))
    for name in names:
        make = getattr(importlib.import_module(f"bench.bench_{name}"), "prepare", None)
        if make is not None:
            print(f"data of {name}", flush=True)
            make(settings)
    return 0


def run_apart(names: Sequence[str], arguments: argparse.Namespace) -> int:
    """Run workloads in a process each, and return 1 if one failed, which stops no other.

    In one process a workload would find what another left: a JVM, which keeps the jars that it was started with, and
    memory that is not given back.
    """
    options = [f"--patience={arguments.patience}"]
    if arguments.rounds is not None:
        options.append(f"--rounds={arguments.rounds}")
    if arguments.results is not None:
        options.append(f"--results={arguments.results}")
    options += [f"--{flag}" for flag in ("rivals", "tiny", "dirty", "strict") if getattr(arguments, flag)]
    failed = [name for name in names if subprocess.call([sys.executable, "-m", "bench", "--only", name, *options])]
    if failed:
        print(f"failed{' or missed a target' if arguments.strict else ''}: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def main() -> int:
    """Run the named workloads, by default all; return 1 if a target was missed and --strict was given."""
    # What is installed has its modules compiled; with this variable each process that is measured compiles them.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    parser = argparse.ArgumentParser(prog="python -m bench", description="kstore beside its rivals, on this machine.")
    parser.add_argument("action", nargs="?", choices=("run", "prepare", "report"), default="run", help=ACTIONS)
    parser.add_argument("--only", action="append", choices=WORKLOADS, metavar="NAME", help=", ".join(WORKLOADS))
    parser.add_argument("--rounds", type=int, help="samples of each contestant (default 15)")
    parser.add_argument("--patience", type=float, default=30.0, metavar="SECONDS", help=PATIENCE)
    parser.add_argument("--results", type=Path, metavar="DIRECTORY", help="where the JSON goes (default bench/results)")
    parser.add_argument("--rivals", action="store_true", help="also build and run the Java and Rust programs")
    parser.add_argument("--tiny", action="store_true", help="little data: shows that it runs, figures mean nothing")
    parser.add_argument("--dirty", action="store_true", help="measure what is not committed, and mark it so")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a target is missed")
    arguments = parser.parse_args()
    if arguments.action == "report":
        return report.write(arguments.results)
    try:
        commit(allows_dirty=arguments.dirty or arguments.action == "prepare")
        if not arguments.tiny:
            require_release_build()
    except (DirtyTreeError, SlowBuildError) as error:
        print(error, file=sys.stderr)
        return 2
    names = arguments.only or WORKLOADS
    # The smoke runs, which need no jars, save the time of further processes.
    if arguments.action == "run" and len(names) > 1 and (arguments.rivals or not arguments.tiny):
        return run_apart(names, arguments)
    with tempfile.TemporaryDirectory() as scratch:
        settings = settings_from(arguments, Path(scratch))
        if arguments.action == "prepare":
            return prepare(names, settings)
        patience_s = 0.0 if arguments.tiny else arguments.patience
        met = [run_workload(name, settings, patience_s=patience_s) for name in names]
    return 0 if all(met) or not arguments.strict else 1


if __name__ == "__main__":
    sys.exit(main())
