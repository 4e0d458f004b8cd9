"""Kafka Streams counts words exactly once (exactly_once_v2) on `kstore serve` and on a broker.

The application is killed twice while it counts, and the server stopped and started again under it. Afterwards each word
has the counts 1 to the number of times that it was written, once each and in this order; both servers have the same
topics of the application, with the same settings, and the same offsets of its group.
Each step gives problems, one line each; none means that it went as promised.
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

import kstore
from tests.interop.broker import SMALL_JVM, VERSION
from tests.interop.clients.served import Served
from tests.interop.programs import BUILD, SOURCES, Unavailable, fetch_jars, run
from tests.interop.serving import Restartable, compared, new_broker
from tests.interop.store import Problems

DIRECTORY = BUILD / f"streams-{VERSION}"
LINES, WORDS_OF_A_LINE, WORDS = 900, 4, 40
PARTITIONS = 3
SECONDS, PAUSE_S = 300, 0.1
QUIET = {"log_level": 0}
SETTINGS = "auto.create.topics.enable=false\ngroup.initial.rebalance.delay.ms=0\n"


def steps(work: Path) -> Iterator[tuple[str, Problems]]:
    build()
    for side in ("broker", "kstore"):
        (work / side).mkdir()
    broker = new_broker(work / "broker", SETTINGS)
    served = Served(work / "kstore" / "root", work / "kstore", SETTINGS)
    found: dict[str, dict[str, Any]] = {}
    for name, server in (("broker", broker), ("kstore", served)):
        written: Counter[str] = Counter()
        server.start()
        try:
            yield f"Kafka Streams counts on {name} while it is killed", counted(server, work / name, written)
            yield f"{name} has each count once", in_order(counts_of(server.address), written)
            found[name] = left(server.address)
        finally:
            server.stop()
        if server is served:
            yield "kstore's own reader finds the same", in_order(own_counts(served.root), written)
    yield "topics, settings and offsets of the application are those on a broker", compared(*found.values())
    yield "the server has no fault", served.trouble()


def build() -> None:
    """Fetch the jars, once, and compile the application."""
    fetch_jars(SOURCES / "streams" / "pom.xml", VERSION, DIRECTORY)
    run("javac", "-nowarn", "-cp", "lib/*", "-d", "classes", str(SOURCES / "streams" / "WordCount.java"), cwd=DIRECTORY)


@contextmanager
def application(address: str, state: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the application until it counts; kill it at the end, unless it ended before."""
    classes = f"{DIRECTORY}/classes:{DIRECTORY}/lib/*"
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
    command = ("java", *SMALL_JVM, quiet, "-cp", classes, "WordCount", address, str(state))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout is None or "RUNNING" not in (line.strip() for line in process.stdout):
                raise Unavailable("the application did not start")
            yield process
        finally:
            process.kill()


def counted(server: Restartable, work: Path, written: Counter[str]) -> Problems:
    """Write lines while the application counts them: a third before each kill, and one after the last start."""
    admin = AdminClient({"bootstrap.servers": server.address, **QUIET})
    for topic in ("lines", "word-counts"):
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
    draw = random.Random(7)
    for number in range(3):
        with application(server.address, work / "state") as process:
            write(server.address, draw, written)
            if number == 0:
                wait_until(server.address, written.total() // 4)
            elif number == 1:
                server.stop()
                server.start()
                wait_until(server.address, written.total() // 2)
            else:
                wait_until(server.address, written.total())
                process.send_signal(signal.SIGTERM)
                if process.wait(60) not in (0, 143):
                    yield f"the application ended with {process.returncode}"


def write(address: str, draw: random.Random, written: Counter[str]) -> None:
    producer = Producer({"bootstrap.servers": address, **QUIET, "enable.idempotence": True, "linger.ms": 2})
    for _ in range(LINES // 3):
        words = [f"word-{min(draw.randrange(WORDS), draw.randrange(WORDS))}" for _ in range(WORDS_OF_A_LINE)]
        written.update(words)
        producer.produce("lines", " ".join(words))
    if producer.flush(SECONDS):
        raise Unavailable("lines were not written")


def wait_until(address: str, count: int) -> None:
    """Wait until so many counts are committed.  Raises: Unavailable."""
    found = 0
    for _ in range(int(SECONDS / PAUSE_S)):
        found = sum(len(one) for one in counts_of(address).values())
        if found >= count:
            return
        time.sleep(PAUSE_S)
    raise Unavailable(f"{found} of {count} counts after {SECONDS} s")


def counts_of(address: str) -> dict[str, list[int]]:
    """Return the committed counts of each word in their order, as a client of librdkafka reads them."""
    settings = {"bootstrap.servers": address, "group.id": "counts", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, **QUIET, "enable.partition.eof": True})
    counts = defaultdict(list)
    consumer.assign([TopicPartition("word-counts", number, 0) for number in range(PARTITIONS)])
    ended = 0
    while ended < PARTITIONS:
        message = consumer.poll(SECONDS)
        if message is None:
            raise Unavailable(f"no end of the counts after {SECONDS} s")
        if message.error() is None:
            counts[message.key().decode()].append(int.from_bytes(message.value(), "big"))
        else:
            ended += 1
    consumer.close()
    return counts


def own_counts(root: Path) -> dict[str, list[int]]:
    """Return the committed counts that kstore reads in the directory."""
    counts = defaultdict(list)
    with kstore.open_store(root) as store:
        for number in range(PARTITIONS):
            for record in store.log("word-counts", number).read(isolation="read_committed"):
                counts[bytes(record.key or b"").decode()].append(int.from_bytes(record.value or b"", "big"))
    return counts


def in_order(counts: dict[str, list[int]], written: Counter[str]) -> Problems:
    for word in sorted(counts.keys() | written.keys()):
        if counts.get(word, []) != list(range(1, written[word] + 1)):
            yield f"{word}: written {written[word]} times, counted {counts.get(word)}"


def left(address: str) -> dict[str, Any]:
    """Return the topics of the application, their settings, and the group's offsets."""
    admin = AdminClient({"bootstrap.servers": address, **QUIET})
    found: dict[str, Any] = {}
    topics = {name: topic for name, topic in admin.list_topics(timeout=30).topics.items() if name.startswith("word-")}
    for name, topic in topics.items():
        found[f"partitions of {name}"] = len(topic.partitions)
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        settings = admin.describe_configs([resource])[resource].result()
        # 1 is DYNAMIC_TOPIC_CONFIG.
        found[f"settings of {name}"] = {one.name: one.value for one in settings.values() if one.source == 1}
    consumer = Consumer({"bootstrap.servers": address, "group.id": "word-count", **QUIET})
    places = [
        TopicPartition(name, number) for name in ("lines", "word-count-counts-repartition") for number in range(3)
    ]
    committed = consumer.committed(places, timeout=30)
    # Which partition a line went to is the client's choice, and markers of transactions have offsets too.
    found["partitions with an offset"] = [(one.topic, one.partition) for one in committed if one.offset > 0]
    consumer.close()
    return found
