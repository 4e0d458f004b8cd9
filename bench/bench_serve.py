"""`kstore serve` beside a broker: records in and out by librdkafka, a bare socket, single records, start and memory.

Each server is a process of its own; what is measured by processor time is theirs alone.

Measured: `kstore serve`: records of 1 KiB in and out by librdkafka, with lz4 and without; fetches of 1 MiB by a bare
socket; single records; start; memory.
Compared with: a broker of Kafka 4.1 in its default JVM (`--rivals`), both running, in turns; by time and by the
processor time of the servers; for the fetches programs that only send a file, read or by sendfile: what they reach of
Kafka is the bound.
"""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka

from bench.bench_append import rated
from bench.common import MIB, Bound, Case, Ratio, Samples, Settings, ratio_of, require_equal, seconds_of
from kstore.testing import KafkaServer
from kstore.wire.frames import decode_response, encode_request
from kstore.wire.messages import CreateTopicsRequest, FetchRequest
from tests.interop import broker
from tests.interop.programs import Unavailable, require_tools
from tests.interop.store import CLUSTER_ID

SERVE, KAFKA = "kstore serve", "Kafka 4.1"
BARE, BARE_SENDFILE = "pread and send, nothing else", "sendfile, nothing else"
VALUE_BYTES = 1024
LARGEST_BYTES = 256 * MIB
FETCHED_BYTES = MIB
# Samples of so many fetches take a quarter of a second: in less the processors that both sides run on decide.
ROUNDS_OF_A_SAMPLE = 3
SINGLE_RECORDS = 300
BROKER_JVM = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC")
# What a broker of a production cluster has by default; the one of tests/interop is made small.
BROKER_SETTINGS = "num.network.threads=3\nnum.io.threads=8\nauto.create.topics.enable=true\n"
_TICKS = os.sysconf("SC_CLK_TCK")
_SIZE = struct.Struct(">i")
_FETCH, _CREATE_TOPICS = 1, 19


class Served(NamedTuple):
    """A server that runs: its address, its process, and how long it took to listen."""

    address: str
    pid: int
    start_seconds: float

    def cpu_seconds(self) -> float:
        """Return the processor time of the process so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def resident_mib(self) -> float:
        """Return the resident memory of the process."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / MIB


@contextmanager
def kstore_server(root: Path) -> Iterator[Served]:
    """Start the command on a free port, and stop it."""
    command = [sys.executable, "-m", "kstore", "serve", str(root), "--listen", "127.0.0.1:0"]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        if process.stdout is None:
            raise Unavailable("no pipe")
        line = process.stdout.readline()
        seconds = time.perf_counter() - start
        address = line.partition(" is served on ")[2].partition(": ")[0]
        try:
            yield Served(address, process.pid, seconds)
        finally:
            process.terminate()


@contextmanager
def kafka_server(work: Path) -> Iterator[Served]:
    """Start a broker with an empty root, and stop it."""
    root = work / "broker-root"
    root.mkdir()
    own = broker.Broker(root, work, BROKER_SETTINGS, jvm=BROKER_JVM)
    own.format(CLUSTER_ID)
    start = time.perf_counter()
    with own.running():
        yield Served(f"127.0.0.1:{own.port}", own.pid, time.perf_counter() - start)


@contextmanager
def servers(settings: Settings, work: Path) -> Iterator[dict[str, Served]]:
    """Start both servers, or kstore's alone where the other cannot be had."""
    with ExitStack() as stack:
        found = {SERVE: stack.enter_context(kstore_server(work / "root"))}
        if settings.other_languages:
            try:
                require_tools()
                broker.build()
                found[KAFKA] = stack.enter_context(kafka_server(work))
            except (Unavailable, OSError, subprocess.CalledProcessError) as error:
                print(f"{KAFKA} left out: {str(error).splitlines()[0]}")
        yield found


@contextmanager
def bare_server(how: str, file: Path, size: int) -> Iterator[Served]:
    """Start what answers each request with the first bytes of a file, which it reads, or sends by sendfile."""
    command = [sys.executable, "-m", "bench.serve_process", how, str(file), str(size)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        if process.stdout is None:
            raise Unavailable("no pipe")
        try:
            yield Served(f"127.0.0.1:{int(process.stdout.readline())}", process.pid, 0)
        finally:
            process.terminate()


class RawConnection:
    """A connection that sends requests and receives answers, and does nothing else with them."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._received = memoryview(bytearray(2 * FETCHED_BYTES))

    def ask(self, request: Any, *, api_key: int, version: int) -> Any:
        """Return the decoded answer."""
        self._send(b"".join(bytes(part) for part in encode_request(request, version=version, correlation_id=1)))
        return decode_response(bytearray(self._receive()), api_key=api_key, version=version)[1]

    def exchange(self, data: bytes) -> int:
        """Send a request and receive its answer; return how many bytes that has."""
        self._send(data)
        return len(self._receive())

    def _send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def _receive(self) -> memoryview:
        filled = self._exactly(_SIZE.size)
        (size,) = _SIZE.unpack(filled)
        return self._exactly(size)

    def _exactly(self, size: int) -> memoryview:
        filled = 0
        while filled < size:
            filled += self._socket.recv_into(self._received[filled:size])
        return self._received[:size]

    def close(self) -> None:
        self._socket.close()


def create_topic(address: str, topic: str) -> None:
    connection = RawConnection(address)
    asked = CreateTopicsRequest.CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
    answer = connection.ask(CreateTopicsRequest(topics=[asked], timeout_ms=30_000), api_key=_CREATE_TOPICS, version=5)
    connection.close()
    require_equal("code of CreateTopics", {"expected": 0, address: answer.topics[0].error_code})


def values(count: int) -> list[bytes]:
    """Return values that a codec makes a half of."""
    halves = (b"%08d" % number + zlib.compress(b"%d" % (number * 7919)) * 32 for number in range(count))
    return [half[: VALUE_BYTES // 2].ljust(VALUE_BYTES, b".") for half in halves]


def produce(address: str, topic: str, made: list[bytes], codec: str) -> None:
    """Send values by librdkafka, and wait until they are acknowledged."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": address,
            "compression.type": codec,
            "acks": "1",
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    for value in made:
        producer.produce(topic, value, partition=0)
        producer.poll(0)
    require_equal("records that were not acknowledged", {"expected": 0, address: producer.flush(120)})


def consume(address: str, topic: str, count: int) -> int:
    """Read records from the start by librdkafka; return the CRC of their values."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "bench",
            "enable.auto.commit": False,
            "check.crcs": False,
            # By default it fetches nothing for a second whenever its queue is full: one such pause doubles the time.
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    crc = done = 0
    while done < count:
        for message in consumer.consume(min(count - done, 10_000), 1.0):
            crc = zlib.crc32(message.value() or b"", crc)
            done += 1
    consumer.close()
    return crc


def with_ratios(case: Case, *, wall: float, cpu: float) -> Case:
    """Add the ratios to the broker, by time and by the processor time of the server."""
    case.add_ratio(SERVE, KAFKA, target=wall)
    case.add_ratio(SERVE, KAFKA, target=cpu, by="cpu")
    return case


def both(found: dict[str, Served], settings: Settings, units: int, work: Callable[[Served], float]) -> list[Samples]:
    """Sample the work before each server; processor time is that of all servers, of which one works at a time."""
    runs: dict[str, Callable[[], float]] = {name: partial(work, served) for name, served in found.items()}

    def cpu_seconds() -> float:
        return sum(served.cpu_seconds() for served in found.values())

    return rated(runs, settings, units=units, cpu_seconds=cpu_seconds)


def producing(found: dict[str, Served], settings: Settings, made: list[bytes], codec: str) -> Case:
    title = f"{len(made)} records of 1 KiB into a topic by librdkafka, {codec}, acks=1"
    case = Case(title=title, unit="rec", bytes_per_unit=VALUE_BYTES)
    topic = f"in-{codec}"
    for served in found.values():
        create_topic(served.address, topic)
    case.samples = both(
        found, settings, len(made), lambda served: seconds_of(lambda: produce(served.address, topic, made, codec))
    )
    if codec == "lz4":
        return with_ratios(case, wall=1.0, cpu=3.0)
    case.add_ratio(SERVE, KAFKA)
    return case


def consuming(found: dict[str, Served], settings: Settings, made: list[bytes]) -> Case:
    case = Case(
        title=f"{len(made)} records of 1 KiB out of a topic by librdkafka", unit="rec", bytes_per_unit=VALUE_BYTES
    )
    for served in found.values():
        create_topic(served.address, "out")
        produce(served.address, "out", made, "none")
    crcs: dict[str, object] = {name: consume(served.address, "out", len(made)) for name, served in found.items()}
    require_equal("CRC of the values", {"sent": zlib.crc32(b"".join(made)), **crcs})
    case.samples = both(
        found, settings, len(made), lambda served: seconds_of(lambda: consume(served.address, "out", len(made)))
    )
    case.notes.append("librdkafka takes most of the time, whichever server it reads from")
    return with_ratios(case, wall=0.9, cpu=1.2)


def fetching(found: dict[str, Served], settings: Settings, size: int, root: Path) -> Case:
    """Measure fetches of 1 MiB by one connection that only receives."""
    case = Case(title="Fetches of 1 MiB by a bare socket", unit="B", bytes_per_unit=1)
    part = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=FETCHED_BYTES)
    topic = FetchRequest.FetchTopic(topic="out", partitions=[part])
    request = FetchRequest(replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=FETCHED_BYTES, topics=[topic])
    data = b"".join(bytes(one) for one in encode_request(request, version=11, correlation_id=1))
    count = max(ROUNDS_OF_A_SAMPLE * size // FETCHED_BYTES, 1)
    with ExitStack() as stack:
        connections = {name: stack.enter_context(closing(RawConnection(one.address))) for name, one in found.items()}
        sizes = {name: connection.exchange(data) for name, connection in connections.items()}
        contestants = found.copy()
        for name, how in ((BARE, "read"), (BARE_SENDFILE, "sendfile")):
            bare = stack.enter_context(bare_server(how, next(root.glob("out-0/*.log")), sizes[SERVE]))
            contestants[name] = bare
            connections[name] = stack.enter_context(closing(RawConnection(bare.address)))
            # Servers differ in whether they send the part of a batch that fits.
            sizes[name] = connections[name].exchange(data)
        names = {served.pid: name for name, served in contestants.items()}

        def run(served: Served) -> float:
            name = names[served.pid]
            return seconds_of(lambda: [connections[name].exchange(data) for _ in range(count)]) / sizes[name]

        case.samples = both(contestants, settings, count, run)
    case.add_ratio(SERVE, KAFKA, target=2.0)
    case.add_ratio(SERVE, BARE, target=0.8)
    case.add_ratio(SERVE, BARE_SENDFILE)
    case.add_ratio(BARE, KAFKA)
    case.add_ratio(BARE_SENDFILE, KAFKA)
    control = congestion_control()
    case.notes.append(f"congestion control of the system: {control}; kstore and the bare programs take reno here")
    return case


def congestion_control() -> str:
    """Return what connections have by default: BBR makes pauses between segments, on the loopback too."""
    path = Path("/proc/sys/net/ipv4/tcp_congestion_control")
    return path.read_text().strip() if path.exists() else "unknown"


def waiting(found: dict[str, Served], settings: Settings) -> Case:
    """Measure, for records one at a time, the 99th percentile until the acknowledgement and until a reader has it."""
    title = "Single records by librdkafka, one after the other: the 99th percentile, as a rate"
    case = Case(title=title, unit="rec", bytes_per_unit=0)
    acks = {name: Samples(contestant=f"{name}, acknowledged") for name in found}
    ends = {name: Samples(contestant=f"{name}, end to end") for name in found}
    for served in found.values():
        create_topic(served.address, "single")
    for number in range(settings.rounds):
        for name in found if number % 2 else reversed(found):
            acknowledged, received = single_records(found[name].address)
            for samples, seconds in ((acks[name], acknowledged), (ends[name], received)):
                rate = 1 / sorted(seconds)[len(seconds) * 99 // 100]
                samples.wall.append(rate)
                samples.cpu.append(rate)
    case.samples = [*acks.values(), *ends.values()]
    ratios: list[Ratio] = []
    if KAFKA in found:
        ratios = [ratio_of(each[SERVE], each[KAFKA], target=1.0) for each in (acks, ends)]
    case.ratios += ratios
    return case


def single_records(address: str) -> tuple[list[float], list[float]]:
    """Send records one at a time; return the seconds until each was acknowledged, and until a consumer had it."""
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "linger.ms": 0, "acks": "1"})
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": "single", "enable.auto.commit": False, "fetch.wait.max.ms": 500}
    )
    _, end = consumer.get_watermark_offsets(confluent_kafka.TopicPartition("single", 0), timeout=30)
    consumer.assign([confluent_kafka.TopicPartition("single", 0, end)])
    acknowledged: list[float] = []
    received: list[float] = []
    end_times: list[float] = []
    for number in range(SINGLE_RECORDS + 20):
        start = time.perf_counter()
        end_times.clear()
        producer.produce("single", b"v", partition=0, on_delivery=lambda *_: end_times.append(time.perf_counter()))
        while not end_times:
            producer.poll(1)
        message = None
        while message is None:
            message = consumer.poll(1)
        # The first ones wait for connections.
        if number >= 20:
            acknowledged.append(end_times[0] - start)
            received.append(time.perf_counter() - start)
    consumer.close()
    return acknowledged, received


def starting(found: dict[str, Served], settings: Settings, scratch: Path) -> Case:
    """Measure the time from exec to listening, and that of a server inside of this process."""
    case = Case(title="Starts, and memory", unit="start", bytes_per_unit=0)
    started = []
    for number in range(settings.rounds):
        with kstore_server(scratch / f"start-{number}") as served:
            started.append(served.start_seconds)
    case.bounds.append(Bound(name="kstore serve listens", unit="s", values=started, at_most=0.25))
    rates = [1 / seconds for seconds in started]
    case.samples.append(Samples(contestant=SERVE, wall=rates, cpu=rates))
    if KAFKA in found:
        # It is started once.
        rates = [1 / found[KAFKA].start_seconds] * len(started)
        case.samples.append(Samples(contestant=KAFKA, wall=rates, cpu=rates))
        case.add_ratio(SERVE, KAFKA, target=15)
    inside = []
    for _ in range(settings.rounds + 1):
        start = time.perf_counter()
        with KafkaServer():
            inside.append((time.perf_counter() - start) * 1000)
    case.bounds.append(
        Bound(name="KafkaServer in a process that has imported it", unit="ms", values=inside[1:], at_most=25)
    )
    return case


def run(settings: Settings) -> Iterator[Case]:
    """Time both servers in turns; the broker runs with --rivals."""
    size = min(settings.segment_bytes * 4, LARGEST_BYTES)
    made = values(max(size // VALUE_BYTES, 100))
    settings.build_directory.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=settings.build_directory))
    try:
        with servers(settings, scratch) as found:
            idle = {name: served.resident_mib() for name, served in found.items()}
            yield producing(found, settings, made, "lz4")
            yield producing(found, settings, made, "none")
            yield consuming(found, settings, made)
            yield fetching(found, settings, size, scratch / "root")
            yield waiting(found, settings)
            case = starting(found, settings, scratch)
            loaded = {name: served.resident_mib() for name, served in found.items()}
            for name, values_of, at_most in (("idle", idle, 60), ("after the load", loaded, 120)):
                case.bounds.append(
                    Bound(
                        name=f"resident memory of kstore serve, {name}",
                        unit="MiB",
                        values=[values_of[SERVE]],
                        at_most=at_most,
                        bare=KAFKA if KAFKA in found else "",
                        bare_values=[values_of[KAFKA]] if KAFKA in found else [],
                    )
                )
            yield case
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
