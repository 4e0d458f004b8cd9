"""Spark's own Kafka connector (spark-sql-kafka-0-10) writes and reads `kstore serve` and a broker, batch and stream.

What it reads of kstore's server is what kstore's own source reads in the same directory, and what it reads of a broker.
A stream copies a topic while the server stops and starts again, and goes on from its checkpoint.
Each step gives problems, one line each; none means that it went as promised.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, concat, lit

import kstore.spark
from tests.interop.clients.served import TREE, Served
from tests.interop.programs import BUILD, SOURCES, Unavailable, fetch_jars
from tests.interop.serving import Restartable, compared, new_broker
from tests.interop.store import Problems

# The newest that Maven Central has; it runs with PySpark 4.3 too.
VERSION = "4.2.0"
DIRECTORY = BUILD / f"spark-connector-{VERSION}"
# The others are in Spark.
JARS = ("spark-sql-kafka", "spark-token-provider", "kafka-clients", "commons-pool2")
PARTITIONS, ROWS, STREAMED = 3, 300, 60
SECONDS, PAUSE_S = 300, 0.2
COLUMNS = ("partition", "offset", "key", "value", "timestamp", "timestampType", "headers")
SETTINGS = "auto.create.topics.enable=false\ngroup.initial.rebalance.delay.ms=0\n"
# Of Spark, as few threads and as little memory as will do.
SPARK = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "OFF",
    "spark.sql.session.timeZone": "UTC",
}
READS: dict[str, dict[str, Any]] = {
    "all": {"subscribe": "written"},
    "with headers": {"subscribe": "written", "includeHeaders": "true"},
    "from offsets": {"subscribe": "written", "startingOffsets": json.dumps({"written": {"0": 5, "1": 7, "2": -2}})},
    "to offsets": {"subscribe": "written", "endingOffsets": json.dumps({"written": {"0": 50, "1": 7, "2": -1}})},
    "from a time": {"subscribe": "written", "startingTimestamp": "1700000000100"},
    "to a time": {"subscribe": "written", "endingTimestamp": "1700000000100"},
    "after all times": {"subscribe": "written", "startingTimestamp": "4700000000000"},
    "of a pattern": {"subscribePattern": "wri.*"},
    "of partitions": {"assign": json.dumps({"written": [0, 2]})},
    "in more tasks": {"subscribe": "written", "minPartitions": 8},
    "of no topic": {"subscribe": "no-such"},
    "committed": {"subscribe": "transacted", "kafka.isolation.level": "read_committed"},
}


def steps(work: Path) -> Iterator[tuple[str, Problems]]:
    fetch_jars(SOURCES / "spark" / "pom.xml", VERSION, DIRECTORY)
    for side in ("broker", "kstore"):
        (work / side).mkdir()
    broker = new_broker(work / "broker", SETTINGS)
    served = Served(work / "kstore" / "root", work / "kstore", SETTINGS)
    found: dict[str, dict[str, Any]] = {}
    with session(work / "spark") as spark:
        for name, server in (("broker", broker), ("kstore", served)):
            server.start()
            try:
                written(spark, server.address)
                found[name] = reads(spark, server.address)
                yield f"a stream of Spark goes on when {name} does", streamed(spark, server, work / name / "checkpoint")
            finally:
                server.stop()
        yield (
            f"Spark's connector reads kstore's server as a broker, {len(READS)} times",
            compared(*map(untimed, found.values())),
        )
        own = own_reads(spark, served.root)
        yield (
            "Spark's connector reads what kstore's own source does",
            compared({name: found["kstore"][name] for name in own}, own),
        )
    yield "the server has no fault", served.trouble()


@contextmanager
def session(directory: Path) -> Iterator[SparkSession]:
    """A local session with the connector's jars, and kstore for its Python workers."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(TREE), *filter(None, [os.environ.get("PYTHONPATH")])])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    jars = [str(jar) for jar in sorted((DIRECTORY / "lib").glob("*.jar")) if jar.name.startswith(JARS)]
    builder = kstore.spark.configure(SparkSession.builder.master("local[2]").appName("interop"))
    for setting, value in {**SPARK, "spark.jars": ",".join(jars), "spark.sql.warehouse.dir": str(directory)}.items():
        builder = builder.config(setting, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def written(spark: SparkSession, address: str) -> None:
    """Let the connector write: keys, headers, null values, a codec; and two transactions by another client."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    for topic in ("written", "copied", "source", "transacted"):
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
    rows = [
        (
            n % PARTITIONS,
            f"key {n}".encode() if n % 4 else None,
            f"value {n}".encode() if n % 9 else None,
            [("h", b"%d" % n)],
        )
        for n in range(ROWS)
    ]
    schema = "partition INT, key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    # In one task, so that each partition has its records in their order.
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    save(
        frame.withColumn("topic", lit("written")), address, {"includeHeaders": "true", "kafka.compression.type": "lz4"}
    )
    transact(address)


def transact(address: str) -> None:
    producer = Producer({"bootstrap.servers": address, "transactional.id": "spark", "log_level": 0})
    producer.init_transactions()
    for commits in (True, False, True):
        producer.begin_transaction()
        for number in range(5):
            producer.produce("transacted", f"{commits} {number}", partition=0)
        producer.flush()
        (producer.commit_transaction if commits else producer.abort_transaction)()


def save(frame: DataFrame, address: str, options: dict[str, str] | None = None) -> None:
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", address)
    writer.options(**(options or {})).save()


def reads(spark: SparkSession, address: str) -> dict[str, Any]:
    return {
        name: rows_of(lambda options=options: loaded(spark, "kafka", {**options, "kafka.bootstrap.servers": address}))
        for name, options in READS.items()
    }


def own_reads(spark: SparkSession, root: Path) -> dict[str, Any]:
    """What kstore's own source reads, with the same options."""
    return {
        name: rows_of(lambda options=options: loaded(spark, "kstore", {**options, "path": root}))
        for name, options in READS.items()
        if name != "of no topic"
    }


def loaded(spark: SparkSession, source: str, options: dict[str, Any]) -> list[Any]:
    frame = spark.read.format(source).options(**{name: str(value) for name, value in options.items()}).load()
    columns = [name for name in COLUMNS if name in frame.columns]
    return [tuple(map(plain, row)) for row in frame.select(*columns).orderBy("topic", "partition", "offset").collect()]


def plain(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    return [tuple(map(plain, one)) for one in value] if isinstance(value, list) else value


def rows_of(load: Callable[[], list[Any]]) -> Any:
    """Return the rows, or that there are none, as an error of Spark's or of the client in Java says."""
    try:
        return load()
    except (PySparkException, Py4JJavaError):
        return "refused"


def untimed(found: dict[str, Any]) -> dict[str, Any]:
    """Rows without the time at which they were written."""
    place = COLUMNS.index("timestamp")
    return {
        name: rows if isinstance(rows, str) else [row[:place] + row[place + 1 :] for row in rows]
        for name, rows in found.items()
    }


def streamed(spark: SparkSession, server: Restartable, checkpoint: Path) -> Problems:
    """Copy a topic by a stream: before the server stops, after it, and after the stream itself was started again."""
    address = server.address

    def write(first: int) -> None:
        save(
            spark.range(first, first + STREAMED).select(
                concat(lit("n "), col("id")).alias("value"), lit("source").alias("topic")
            ),
            address,
        )

    def started(**trigger: Any) -> Any:
        source = (
            spark.readStream.format("kafka").option("kafka.bootstrap.servers", address).option("subscribe", "source")
        )
        copied = (
            source.option("startingOffsets", "earliest").load().select("key", "value", lit("copied").alias("topic"))
        )
        sink = copied.writeStream.format("kafka").option("kafka.bootstrap.servers", address)
        return sink.option("checkpointLocation", str(checkpoint)).trigger(**trigger).start()

    query = started(processingTime="200 milliseconds")
    write(0)
    wait_until(spark, address, STREAMED)
    server.stop()
    server.start()
    write(STREAMED)
    wait_until(spark, address, 2 * STREAMED)
    query.stop()
    write(2 * STREAMED)
    started(availableNow=True).awaitTermination(SECONDS)
    wanted = sorted(f"n {number}".encode() for number in range(3 * STREAMED))
    found = sorted(copies(spark, address))
    if found != wanted:
        yield f"copied {len(found)} records, {len(set(found))} different ones, of {len(wanted)}"


def copies(spark: SparkSession, address: str) -> list[bytes]:
    options = {"kafka.bootstrap.servers": address, "subscribe": "copied"}
    return [bytes(row.value) for row in spark.read.format("kafka").options(**options).load().select("value").collect()]


def wait_until(spark: SparkSession, address: str, count: int) -> None:
    """Wait until so many records are copied.  Raises: Unavailable."""
    for _ in range(int(SECONDS / PAUSE_S)):
        if len(copies(spark, address)) >= count:
            return
        time.sleep(PAUSE_S)
    raise Unavailable(f"{len(copies(spark, address))} of {count} records after {SECONDS} s")
