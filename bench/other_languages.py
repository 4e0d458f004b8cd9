"""The Java and Rust programs of rivals/, built when needed and kept running so that rounds can be interleaved."""

from __future__ import annotations

import shutil
import subprocess
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.common import BENCH_DIRECTORY, Contestant, Settings, require_equal

SOURCES = BENCH_DIRECTORY / "rivals"
JAVA, RUST = "Java, kafka-clients", "Rust, krabka-protocol"
JAVA_APPEND, JAVA_INDEX = "Java, UnifiedLog", "Java, kafka-storage"
JAVA_PRODUCER = "Java, RecordAccumulator"
JAVA_CLEANER = "Java, Cleaner"
MAIN_CLASSES = {
    JAVA: "Rival",
    JAVA_APPEND: "AppendRival",
    JAVA_INDEX: "IndexRival",
    JAVA_CLEANER: "CleanerRival",
    JAVA_PRODUCER: "org.apache.kafka.clients.producer.internals.ProducerRival",
}
HEAP = ("-Xms2g", "-Xmx2g")
WARM_UP_SECONDS = 3.0
RUN_SECONDS = 0.05


@dataclass(frozen=True)
class Program:
    """A command, to which FILE, MODE and the arguments of the mode are appended."""

    name: str
    command: tuple[str, ...]


def _run(*command: str, directory: Path) -> None:
    subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True)


def _build_java(build_directory: Path, name: str) -> Program:
    target = build_directory / "java"
    shutil.copytree(SOURCES / "java", target, dirs_exist_ok=True)
    wanted, had = (target / "pom.xml").read_bytes(), target / "lib" / "pom.xml"
    if not had.exists() or had.read_bytes() != wanted:
        shutil.rmtree(target / "lib", ignore_errors=True)
        _run("mvn", "-q", "dependency:copy-dependencies", "-DoutputDirectory=lib", directory=target)
        had.write_bytes(wanted)
    main_class = MAIN_CLASSES[name]
    source = f"src/{main_class.split('.')[-1]}.java"
    _run("javac", "-nowarn", "-cp", "lib/*", "-sourcepath", "src", "-d", "classes", source, directory=target)
    return Program(name, ("java", *HEAP, "-cp", f"{target / 'classes'}:{target / 'lib'}/*", main_class))


def _build_rust(build_directory: Path, name: str) -> Program:
    target = build_directory / "rust"
    shutil.copytree(SOURCES / "rust", target, dirs_exist_ok=True)
    # One of krabka's crates declares a newer compiler than it needs.
    _run("cargo", "build", "--release", "--ignore-rust-version", directory=target)
    return Program(name, (str(target / "target" / "release" / "rival"),))


def programs(settings: Settings, names: tuple[str, ...] = (JAVA, RUST)) -> list[Program]:
    """Build the programs. Print a line with the reason for each one that can't be built, and leave it out."""
    built: list[Program] = []
    if not settings.other_languages:
        return built
    settings.build_directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        build = _build_java if name in MAIN_CLASSES else _build_rust
        try:
            built.append(build(settings.build_directory, name))
        except (OSError, subprocess.CalledProcessError) as error:
            lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
            print(f"{name} left out: {lines[-1]}")
    return built


class Running:
    """A running program that reads a number of passes and answers with the sum of one pass. A context manager.

    Some programs also answer with the nanoseconds of the passes, without those of the preparation.
    """

    def __init__(self, program: Program, file: Path, mode: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [*program.command, str(file), mode, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.name = f"{program.name}, {mode}"
        self.passes = 1

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.communicate()

    def run(self) -> None:
        """Run `passes` passes, the number set by warm_up."""
        self.sum_of(self.passes)

    def sum_of(self, passes: int) -> int:
        """Run the passes and return the sum, converting Java's signed sum to unsigned as Rust's."""
        return int(self._answer(passes)[0]) % 2**64

    def seconds_of(self, passes: int) -> float:
        """Run the passes and return the seconds that the program measured."""
        return int(self._answer(passes)[1]) / 1e9

    def _answer(self, passes: int) -> list[str]:
        if self._process.stdin is None or self._process.stdout is None:
            raise ValueError(f"{self.name} has no pipes")
        self._process.stdin.write(f"{passes}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().split()

    def warm_up(self) -> None:
        """Run for three seconds, then set `passes` so that a run takes about 50 ms."""
        start, passes = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - start) < WARM_UP_SECONDS:
            self.sum_of(1)
            passes += 1
        self.passes = max(1, round(RUN_SECONDS * passes / elapsed))

    def cpu_seconds(self) -> float:
        """Return the CPU time of all threads of the program."""
        total = 0
        for task in Path(f"/proc/{self._process.pid}/task").glob("*/schedstat"):
            try:
                total += int(task.read_text().split()[0])
            except OSError:
                continue
        return total / 1e9


class Rivals:
    """Programs running on one file, one process per program and mode. A context manager that ends them.

    Args: arguments: further arguments of the modes.
    """

    def __init__(
        self,
        settings: Settings,
        file: Path,
        modes: tuple[str, ...],
        *,
        names: tuple[str, ...] = (JAVA, RUST),
        arguments: tuple[str, ...] = (),
    ) -> None:
        self._names = names
        self._stack = ExitStack()
        self._settings = settings
        self._file = file
        self._modes = modes
        self._arguments = arguments
        self.running: list[Running] = []

    def __enter__(self) -> Rivals:
        for program in programs(self._settings, self._names) if self._modes else ():
            for mode in self._modes:
                running = Running(program, self._file, mode, *self._arguments)
                self.running.append(self._stack.enter_context(running))
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def contestants(self, units: float, *, expected_sum: int) -> list[Contestant]:
        """Check the sum of each program, warm it up, and return it as a contestant; a pass counts as `units`."""
        found = {running.name: running.sum_of(1) for running in self.running}
        require_equal("sum over the file", {"expected": expected_sum % 2**64, **found})
        for running in self.running:
            running.warm_up()
        return [Contestant(running.name, running.run, units * running.passes) for running in self.running]

    def cpu_seconds(self) -> float:
        """Return the CPU time of this process and of the programs."""
        return time.process_time() + sum(running.cpu_seconds() for running in self.running)
