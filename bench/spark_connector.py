"""Spark's own Kafka connector before a broker on the loopback, the rival of writes to format("kstore")."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench.common import BENCH_DIRECTORY, Settings
from tests.interop import broker
from tests.interop.programs import Unavailable, require_tools
from tests.interop.store import CLUSTER_ID

# What the connector needs beside the jars of Spark itself.
JARS = ("spark-sql-kafka-0-10", "spark-token-provider-kafka-0-10", "kafka-clients", "commons-pool2")
TOPIC = "out"
DEFAULT, TUNED = "Spark's Kafka connector", "Spark's Kafka connector, tuned"
# Found by trying: larger requests, and time to fill them.
TUNED_OPTIONS = {"kafka.batch.size": "262144", "kafka.linger.ms": "50", "kafka.max.request.size": "8388608"}
SERVER_JVM = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC")
OPTIONS: dict[str, Mapping[str, str]] = {DEFAULT: {}, TUNED: TUNED_OPTIONS}


def connector_jars(settings: Settings) -> list[str]:
    """Return the paths of the connector's jars, fetched once; none, with the reason printed, if they can't be had."""
    if not settings.other_languages:
        return []
    target = settings.build_directory / "spark"
    try:
        require_tools()
        broker.build()
        if not (target / "lib").exists():
            shutil.copytree(BENCH_DIRECTORY / "rivals" / "spark", target, dirs_exist_ok=True)
            command = ("mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=part")
            subprocess.run(command, cwd=target, check=True, capture_output=True, text=True)
            (target / "part").rename(target / "lib")
    except (Unavailable, OSError, subprocess.CalledProcessError) as error:
        print(f"{DEFAULT} left out: {(getattr(error, 'stdout', None) or str(error)).strip().splitlines()[0]}")
        return []
    return sorted(str(jar) for jar in (target / "lib").glob("*.jar") if jar.name.startswith(JARS))


class RunningBroker:
    """A broker with topics of some partitions. Attributes: pid, address."""

    def __init__(self, client: broker.Client, *, pid: int, address: str) -> None:
        self._client = client
        self.pid = pid
        self.address = address

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic, whose files are removed as soon as it is deleted."""
        self._client.ask("create", topic, partitions, "file.delete.delay.ms=0")

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self._client.ask("delete", topic)

    def record_count(self, topic: str, partitions: int) -> int:
        """Return the sum of the ends of a topic."""
        asked = [self._client.ask("offsets", topic, number, "read_uncommitted", -1) for number in range(partitions)]
        return sum(int(answers[0]["offset"]) for answers in asked)

    def write(self, frame: DataFrame, options: Mapping[str, str], topic: str = TOPIC) -> None:
        """Write a frame through the connector."""
        writer = frame.write.format("kafka").option("kafka.bootstrap.servers", self.address).option("topic", topic)
        writer.options(**options).mode("append").save()

    def read(self, spark: SparkSession) -> DataFrame:
        """Return all rows of the topic through the connector."""
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", self.address)
        return reader.option("subscribe", TOPIC).option("startingOffsets", "earliest").load()


@contextmanager
def running_broker(settings: Settings) -> Iterator[RunningBroker]:
    """Start a broker with an empty root on the loopback, and stop it."""
    with tempfile.TemporaryDirectory(dir=settings.build_directory) as directory:
        work = Path(directory)
        root = work / "root"
        root.mkdir()
        one = broker.Broker(root, work, jvm=SERVER_JVM)
        one.format(CLUSTER_ID)
        with one.running() as client:
            yield RunningBroker(client, pid=one.pid, address=f"127.0.0.1:{one.port}")
