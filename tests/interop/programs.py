"""The Java program, compiled against each generation of kafka-clients and run."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

SOURCES = Path(__file__).parent / "java"
BUILD = Path(__file__).parents[2] / "build" / "interop"
TOOLS = ("mvn", "javac", "java")


class Unavailable(Exception):
    """Maven, Java or the jars can't be had; the message is one line that says what is missing."""


class Missing(Unavailable):
    """A tool of the system that one part alone needs is not there; the part ends with 77 where only it is wanted."""


class Writes(NamedTuple):
    """Formats that a client writes; a producer knows neither LogAppendTime nor offsets that do not count from 0."""

    magics: tuple[int, ...]
    is_producer: bool = False


@dataclass(frozen=True, kw_only=True)
class Client:
    """One version of kafka-clients and the KafkaClient.java that fits it."""

    version: str
    source: str
    reads: tuple[int, ...]
    writes: Writes

    @property
    def name(self) -> str:
        return f"kafka-clients {self.version}"

    @property
    def directory(self) -> Path:
        return BUILD / self.version


CLIENTS = (
    Client(version="4.1.1", source="records", reads=(0, 1, 2), writes=Writes((0, 1, 2))),
    Client(version="3.9.1", source="records", reads=(0, 1, 2), writes=Writes((0, 1, 2))),
    Client(version="0.10.0.1", source="message_v1", reads=(0, 1), writes=Writes((1,), is_producer=True)),
    Client(version="0.9.0.1", source="message_v0", reads=(0,), writes=Writes((0,), is_producer=True)),
)


def require_tools() -> None:
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        hint = "install Maven and a JDK (apt-get install maven openjdk-17-jdk-headless, brew install maven)"
        raise Unavailable(f"make interop needs {', '.join(missing)}: {hint}")


def run(*command: str, cwd: Path) -> None:
    try:
        subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        lines = [line for line in (error.stdout + error.stderr).splitlines() if line.strip()]
        raise Unavailable(f"{command[0]} failed: {lines[0] if lines else error}") from error


def fetch_jars(pom: Path, version: str, directory: Path) -> None:
    """Put the jars of one version of Kafka under directory/lib, once."""
    directory.mkdir(parents=True, exist_ok=True)
    jars = directory / "lib"
    if not jars.exists():
        part = directory / "part"
        wanted = ("-f", str(pom), f"-Dkafka.version={version}")
        run("mvn", "-q", "-B", *wanted, "dependency:copy-dependencies", f"-DoutputDirectory={part}", cwd=directory)
        part.rename(jars)


def build(client: Client) -> None:
    """Fetch the jars, once, and compile."""
    fetch_jars(SOURCES / "pom.xml", client.version, client.directory)
    sources = sorted(map(str, [*SOURCES.glob("*.java"), *(SOURCES / client.source).glob("*.java")]))
    run("javac", "-nowarn", "-cp", "lib/*", "-d", "classes", *sources, cwd=client.directory)


def reports(client: Client, mode: str, directory: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Run the program; give the lines of each case."""
    command = ("java", "-Xmx2g", "-cp", "classes:lib/*", "Interop", mode, str(directory))
    with subprocess.Popen(command, cwd=client.directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        if process.stdout is None or process.stderr is None:
            raise Unavailable("java has no pipes")
        for name, lines in groupby(map(json.loads, process.stdout), key=lambda line: line["case"]):
            yield name, list(lines)
        errors = process.stderr.read().decode(errors="replace")
    if process.returncode:
        lines = [line for line in errors.splitlines() if not line.startswith(("SLF4J", "\tat "))]
        raise Unavailable(f"java ended with {process.returncode}: {' '.join(lines[:2])}")
