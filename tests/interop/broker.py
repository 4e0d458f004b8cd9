"""A real broker, KRaft, on the loopback, over one log.dirs root; and a client of it that answers in JSON lines."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.interop.programs import BUILD, SOURCES, Unavailable, fetch_jars, run

VERSION = "4.1.1"
DIRECTORY = BUILD / f"broker-{VERSION}"
NODE_ID = 1
START_SECONDS = 120
STOP_SECONDS = 60
STARTED = "Kafka Server started"
# These start sooner than Java's own choice, and take less.
SMALL_JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
BROKER_JVM = ("-Xmx512m", *SMALL_JVM[1:])
LOGGING = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
    "-Dorg.slf4j.simpleLogger.showThreadName=false",
    "-Dorg.slf4j.simpleLogger.logFile=System.err",
)
SETTINGS = """
process.roles=broker,controller
node.id={node_id}
controller.quorum.voters={node_id}@127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
log.dirs={root}
metadata.log.dir={metadata}
num.network.threads=1
num.io.threads=2
auto.create.topics.enable=false
log.cleaner.dedupe.buffer.size=2097152
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
log.initial.task.delay.ms=3600000
log.retention.ms=-1
"""


def build() -> None:
    """Fetch the jars, once, and compile our programs."""
    fetch_jars(SOURCES / "broker" / "pom.xml", VERSION, DIRECTORY)
    sources = (SOURCES / "Report.java", *(SOURCES / "broker").glob("*.java"), *(SOURCES / "clients").glob("*.java"))
    run("javac", "-nowarn", "-cp", "lib/*", "-d", "classes", *map(str, sources), cwd=DIRECTORY)


def java(main_class: str, *arguments: str, jvm: tuple[str, ...] = SMALL_JVM, jars: Path = DIRECTORY) -> tuple[str, ...]:
    """The command that runs a class of Kafka's, or of ours, on its jars."""
    return ("java", *jvm, *LOGGING, "-cp", f"{jars}/classes:{jars}/lib/*", main_class, *arguments)


def tool(main_class: str, *arguments: str) -> str:
    """Run one of Kafka's tools and return what it printed."""
    done = subprocess.run(java(main_class, *arguments), capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"{main_class} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


class Broker:
    """Settings of one broker, its pid while it runs, and the lines of its log since it was started last."""

    def __init__(self, root: Path, work: Path, settings: str = "", *, jvm: tuple[str, ...] = BROKER_JVM) -> None:
        self.root = root
        self.pid = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._jvm = jvm
        self._jars = DIRECTORY
        self.work = work
        self.port, self.controller_port = free_ports(2)
        self.lines: list[str] = []
        (work / "metadata").mkdir(exist_ok=True)
        self.settings = work / "server.properties"
        self.settings.write_text(
            SETTINGS.format(
                node_id=NODE_ID,
                port=self.port,
                controller_port=self.controller_port,
                root=root,
                metadata=work / "metadata",
            )
            + settings
        )

    def format(self, cluster_id: str, *, features: Mapping[str, int] | None = None) -> None:
        """Make what the broker needs beside the root, which may have its meta.properties.

        Args: features: levels other than those of its release.
        """
        levels = [word for name, level in (features or {}).items() for word in ("--feature", f"{name}={level}")]
        options = ("-c", str(self.settings), "--ignore-formatted", *levels)
        tool("kafka.tools.StorageTool", "format", "-t", cluster_id, *options)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @contextmanager
    def running(self) -> Iterator[Client]:
        """Start the broker, give a client of it, and stop it as an operator does."""
        try:
            self.start()
            with Client.connected(self.address) as client:
                yield client
        finally:
            self.stop()

    def start(self) -> None:
        """Raises: Unavailable."""
        log = self.work / "broker.log"
        with log.open("w") as output:
            self._process = subprocess.Popen(
                java("kafka.Kafka", str(self.settings), jvm=self._jvm, jars=self._jars),
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.pid = self._process.pid
        self._wait_until_started(self._process, log)

    def stop(self) -> None:
        """Stop the broker as an operator does, and read its log."""
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._process = None
        self.lines = (self.work / "broker.log").read_text(errors="replace").splitlines()

    def _wait_until_started(self, process: subprocess.Popen[bytes], log: Path) -> None:
        for _ in range(START_SECONDS * 10):
            text = log.read_text(errors="replace")
            if STARTED in text:
                return
            try:
                process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
            raise Unavailable(f"the broker did not start: {text[-2000:]}")
        raise Unavailable(f"the broker did not start within {START_SECONDS} s")


class Client:
    """Asks the running broker through BrokerClient.java."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @classmethod
    @contextmanager
    def connected(cls, address: str) -> Iterator[Client]:
        command = java("BrokerClient", address)
        quiet = tuple(part.replace("LogLevel=info", "LogLevel=error") for part in command)
        with subprocess.Popen(quiet, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield cls(process)
            finally:
                if process.stdin is not None:
                    process.stdin.close()

    def ask(self, *fields: object) -> list[dict[str, Any]]:
        """Send one command; return the lines of the answer."""
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise Unavailable("java has no pipes")
        stdin.write("\t".join(map(str, fields)) + "\n")
        stdin.flush()
        lines, refusal = [], None
        for text in stdout:
            line = json.loads(text)
            if line["case"] == "error":
                refusal = Refusal(f"{' '.join(map(str, fields))}: {line['error']}")
            elif line["case"] != "done":
                lines.append(line)
            elif refusal is None:
                return lines
            else:
                # Not before the end of the answer: the rest would be taken for the answer to the next command.
                raise refusal
        raise Unavailable("the client ended before its answer")


class Refusal(Exception):
    """The broker, or its client, answered with an error."""


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
