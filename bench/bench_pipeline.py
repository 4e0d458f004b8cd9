"""The Spark pipeline beside bounds: writes beside a sink that only counts, what a micro-batch costs more than one of
Spark's own rate source, its commit alone, mode PERMISSIVE on clean data, and the planning of many partitions.

Measured: `df.write.format("kstore")` of rows in the JVM's memory, into a new root and into one that exists; the commit
of a micro-batch of 10,000 rows in a new Python, the first and later ones; reads with `mode=PERMISSIVE` of files without
damage; micro-batches of 60 rows, from kstore to noop and from the rate source to kstore; the planning of 10,000
partitions with 20,000 segments, and of a micro-batch of a stream over them where nothing is new.
Compared with: a Python Arrow sink that only counts; with `--rivals` Spark's Kafka connector before a broker;
`mode=FAILFAST`; the same micro-batches of the rate source to noop; bounds in CPU seconds.
The bound of writes is a sink that stages the bytes of the columns as they are and joins the files in its commit, as one
has to do whose tasks can't append to one file; it encodes nothing and keeps no log. Its own ratios to the sink that
counts and to the connector stand beside those of kstore: where they are below a target, kstore can't reach it, and has
to reach 0.8 of this sink. What a run wrote is removed within the run, by the broker too: pages that the system has not
used yet cost several times as much CPU time, so a sink that kept its files would pay for more than its work.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import kstore
from bench.bench_spark import (
    CEILING,
    KSTORE,
    MOST_ROUNDS,
    PARTITION_COUNT,
    ceiling_frame,
    checksum,
    kstore_frame,
    process_tree_cpu_seconds,
    session,
    to_noop,
    topic_of,
)
from bench.commit_process import QUERY
from bench.common import BENCH_DIRECTORY, Bound, Case, Contestant, Settings, interleaved, require_equal, without_result
from bench.spark_connector import DEFAULT as CONNECTOR
from bench.spark_connector import OPTIONS as CONNECTOR_OPTIONS
from bench.spark_connector import TOPIC as CONNECTOR_TOPIC
from bench.spark_connector import TUNED, RunningBroker, connector_jars, running_broker
from bench.spark_rivals import CountingSink, StagingByHand
from kstore.spark.options import configure, parse_read_options
from kstore.spark.planning import plan_partitions
from kstore.spark.pushdown import Constraint
from kstore.spark.sink.options import parse_write_options
from kstore.spark.sink.writers import stage
from kstore.spark.stream.logs import StreamLogs
from kstore.spark.stream.options import parse_stream_options
from kstore.staging import job_name, prepare_root

VALUE_BYTES = 100
OUT, OUT_PARTITIONS = "out", 3
PERMISSIVE = "kstore, mode PERMISSIVE"
AGAIN = "kstore, into a root that exists"
COUNTING = "an Arrow sink that only counts"
BY_HAND = "a sink that stages and joins files of the same bytes"
TARGETS_OF_CONNECTOR = {CONNECTOR: 2.5, TUNED: 2.0}
# What a broker can be given some dozens of times.
MOST_ROWS_PER_TASK = 500_000
MICRO_BATCHES, WARM_UP_MICRO_BATCHES = 9, 3
ROWS_PER_MICRO_BATCH = 60
COMMITTED_BATCHES, COMMITTED_ROWS = 6, 10_000
MANY_PARTITIONS, SEGMENTS_EACH = 10_000, 2
# Targets, in ms, CPU seconds and CPU milliseconds.
MOST_SOURCE_MS, MOST_SINK_MS, MOST_PLAN_SECONDS = 200.0, 150.0, 3.0
MOST_FIRST_COMMIT_MS, MOST_COMMIT_MS = 150.0, 40.0


def new_root(parent: Path) -> Path:
    """Return a new root with an empty topic."""
    root = Path(tempfile.mkdtemp(dir=parent))
    with kstore.open_store(root, "a") as store:
        store.create_topic(OUT, OUT_PARTITIONS)
    return root


def write_rows(frame: DataFrame, parent: Path) -> int:
    """Write a frame to a new root with kstore, and remove it; return the number of rows that its logs held."""
    root = new_root(parent)
    append_rows(frame, root)
    with kstore.open_store(root) as store:
        ends = [store.log(*one).log_end_offset for one in store.partitions if one.topic == OUT]
    shutil.rmtree(root)
    # Each log ends with the marker of the transaction.
    return sum(ends) - len(ends)


def append_rows(frame: DataFrame, root: Path) -> None:
    """Write a frame to a root with kstore."""
    frame.write.format("kstore").option("topic", OUT).mode("append").save(str(root))


def append_to_copy(frame: DataFrame, existing: Path) -> None:
    """Write a frame to a copy of a root with kstore, and remove it."""
    with tempfile.TemporaryDirectory(dir=existing.parent) as directory:
        append_rows(frame, shutil.copytree(existing, Path(directory) / existing.name))


def count_rows(frame: DataFrame) -> None:
    """Write a frame to the sink that only counts."""
    frame.write.format(CountingSink.name()).mode("append").save()


def stage_by_hand(frame: DataFrame, parent: Path) -> None:
    """Write the bytes of a frame to files, joined by a commit."""
    with tempfile.TemporaryDirectory(dir=parent) as directory:
        frame.write.format(StagingByHand.name()).option("directory", directory).mode("append").save()


def write_to_broker(frame: DataFrame, broker: RunningBroker, options: Mapping[str, str]) -> int:
    """Write a frame to a new topic through the connector, and delete it; return the number of rows that it held."""
    topic = f"{CONNECTOR_TOPIC}-{uuid.uuid4().hex}"
    broker.create(topic, OUT_PARTITIONS)
    broker.write(frame, options, topic)
    count = broker.record_count(topic, OUT_PARTITIONS)
    broker.delete(topic)
    return count


def writing(spark: SparkSession, settings: Settings, parent: Path) -> Case:
    """Time writes of rows that the JVM has in memory."""
    topic = topic_of(VALUE_BYTES, settings)
    rows = ceiling_frame(spark, topic, task_count=PARTITION_COUNT).where(f"offset < {MOST_ROWS_PER_TASK}")
    rows = rows.select("key", "value").cache()
    count = rows.count()
    require_equal("rows written", {"given": count, KSTORE: write_rows(rows, parent)})
    existing = new_root(parent)
    append_rows(rows.limit(1), existing)
    runs = {
        KSTORE: without_result(partial(write_rows, rows, parent)),
        AGAIN: partial(append_to_copy, rows, existing),
        COUNTING: partial(count_rows, rows),
        BY_HAND: partial(stage_by_hand, rows, parent),
    }
    case = Case(title=f"Spark, write {count} rows of {VALUE_BYTES} bytes", unit="row", bytes_per_unit=VALUE_BYTES)
    with ExitStack() as stack:
        broker, written = None, list[int]()
        if spark.conf.get("spark.jars", ""):
            broker = stack.enter_context(running_broker(settings))

            def write_through_connector(options: Mapping[str, str]) -> None:
                written.append(write_to_broker(rows, broker, options))

            require_equal("rows in the broker", {"given": count, CONNECTOR: write_to_broker(rows, broker, {})})
            runs |= {name: partial(write_through_connector, options) for name, options in CONNECTOR_OPTIONS.items()}
            cpu_before = process_tree_cpu_seconds(of=broker.pid)
        case.samples = interleaved(
            [Contestant(name, run, count) for name, run in runs.items()],
            replace(settings, rounds=min(settings.rounds, MOST_ROUNDS)),
            cpu_seconds=process_tree_cpu_seconds,
            one_run_per_sample=True,
        )
        if broker is not None:
            seconds = (process_tree_cpu_seconds(of=broker.pid) - cpu_before) / sum(written) * 1e6
            case.notes.append(f"CPU time of the connector includes {seconds:.2f} s of the broker for each million rows")
    case.add_ratio(KSTORE, COUNTING, target=0.55, by="cpu")
    case.add_ratio(AGAIN, COUNTING, target=0.55, by="cpu")
    case.add_ratio(BY_HAND, COUNTING, by="cpu")
    case.add_ratio(KSTORE, BY_HAND, target=0.8, by="cpu")
    for name, target in TARGETS_OF_CONNECTOR.items():
        case.add_ratio(KSTORE, name, target=target, by="cpu")
        case.add_ratio(BY_HAND, name, by="cpu")
    rows.unpersist()
    return case


def permissive(spark: SparkSession, settings: Settings) -> Case:
    """Time reads in both modes."""
    topic = topic_of(VALUE_BYTES, settings)
    frames = {
        KSTORE: kstore_frame(spark, topic),
        PERMISSIVE: kstore_frame(spark, topic, options={"mode": "PERMISSIVE"}),
        CEILING: ceiling_frame(spark, topic, task_count=4),
    }
    require_equal("rows", {name: checksum(frame) for name, frame in frames.items()})
    count = topic.record_count
    title = f"Spark, {VALUE_BYTES}-byte values, {count} records, by mode"
    case = Case(title=title, unit="row", bytes_per_unit=VALUE_BYTES)
    case.samples = interleaved(
        [Contestant(name, partial(to_noop, frame), count) for name, frame in frames.items()],
        replace(settings, rounds=min(settings.rounds, MOST_ROUNDS)),
        cpu_seconds=process_tree_cpu_seconds,
        one_run_per_sample=True,
    )
    case.add_ratio(PERMISSIVE, KSTORE, target=0.95)
    return case


def micro_batch_ms(stream: DataFrame, sink: str, parent: Path, count: int, **options: str) -> float:
    """Run a query for some micro-batches and return the median of the milliseconds that the last `count` took."""
    writer = stream.writeStream.format(sink).options(**options)
    writer = writer.option("checkpointLocation", tempfile.mkdtemp(dir=parent))
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        while len(taken_ms(query)) < WARM_UP_MICRO_BATCHES + count:
            error = query.exception()
            if error is not None:
                raise error
            time.sleep(0.05)
        return median(taken_ms(query)[WARM_UP_MICRO_BATCHES:][:count])
    finally:
        query.stop()


def taken_ms(query: Any) -> list[float]:
    """Return the milliseconds of each micro-batch with rows so far."""
    return [one["durationMs"]["triggerExecution"] for one in query.recentProgress if one["numInputRows"]]


def micro_batches(spark: SparkSession, settings: Settings, parent: Path) -> Case:
    """Time small micro-batches: of Spark's own source, of kstore's, and into kstore's sink."""
    topic = topic_of(VALUE_BYTES, settings)

    def rate() -> DataFrame:
        found = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS_PER_MICRO_BATCH)
        return found.option("numPartitions", 3).load().selectExpr("cast(value AS STRING) AS value")

    def logs() -> DataFrame:
        found = spark.readStream.format("kstore").option("startingOffsets", "earliest")
        return found.option("maxOffsetsPerTrigger", ROWS_PER_MICRO_BATCH).load(str(topic.directories[0]))

    source, sink = [], []
    count = MICRO_BATCHES if settings.rounds > 1 else 1
    for _ in range(min(settings.rounds, 5)):
        own = micro_batch_ms(rate(), "noop", parent, count)
        source.append(micro_batch_ms(logs(), "noop", parent, count) - own)
        sink.append(micro_batch_ms(rate(), "kstore", parent, count, path=str(new_root(parent)), topic=OUT) - own)
    case = Case(title="Spark, small micro-batches, above those of the rate source to noop", unit="", bytes_per_unit=0)
    case.bounds.append(Bound(name="kstore to noop", unit="ms", values=source, at_most=MOST_SOURCE_MS))
    case.bounds.append(Bound(name="rate source to kstore", unit="ms", values=sink, at_most=MOST_SINK_MS))
    return case


def commits(settings: Settings, parent: Path) -> Case:
    """Time the commits of a stream's micro-batches in a new Python, without the JVM: the first one, and later ones."""
    first, later = [], []
    rows = COMMITTED_ROWS // OUT_PARTITIONS
    value = pa.array([b"v" * VALUE_BYTES] * rows, pa.binary())
    # The first process compiles the modules.
    for number in range(1 + min(settings.rounds, 5)):
        root = new_root(parent)
        prepare_root(root)
        options = parse_write_options({"path": str(root), "topic": OUT}, is_stream=True)
        batches = [
            [
                tuple(file)
                for _ in range(OUT_PARTITIONS)
                for file in stage(options, job_name(QUERY, version), [pa.RecordBatch.from_pydict({"value": value})])
            ]
            for version in range(COMMITTED_BATCHES)
        ]
        command = [sys.executable, "-m", "bench.commit_process", str(root), OUT]
        done = subprocess.run(
            command, cwd=BENCH_DIRECTORY.parent, input=json.dumps(batches), check=True, capture_output=True, text=True
        )
        made, *taken = json.loads(done.stdout)
        if number:
            first.append(made + taken[0])
            later.append(median(taken[1:]))
    title = f"Commit of a micro-batch of {COMMITTED_ROWS} rows into {OUT_PARTITIONS} partitions"
    case = Case(title=title, unit="", bytes_per_unit=0)
    case.bounds.append(
        Bound(name="the first of a process, with imports", unit="CPU ms", values=first, at_most=MOST_FIRST_COMMIT_MS)
    )
    case.bounds.append(
        Bound(name="the second and later ones of a stream", unit="CPU ms", values=later, at_most=MOST_COMMIT_MS)
    )
    return case


def planning(settings: Settings, parent: Path) -> Case:
    """Time the driver's part of a batch read, and of a micro-batch without news, of many partitions."""
    count = MANY_PARTITIONS if settings.rounds > 1 else 20
    root = Path(tempfile.mkdtemp(dir=parent))
    batch = bytes(kstore.MemoryRecordsBuilder().append(timestamp_ms=0, value=b"v").build())
    second = bytes(kstore.MemoryRecordsBuilder(base_offset=1).append(timestamp_ms=0, value=b"v").build())
    for number in range(count):
        directory = root / f"t-{number}"
        directory.mkdir()
        for offset, content in enumerate((batch, second)):
            (directory / f"{offset:020d}.log").write_bytes(content)
    plans, looks, rounds = [], [], range(min(settings.rounds, 5))
    options, stream = parse_read_options({"path": str(root)}), parse_stream_options({"path": str(root)})
    for _ in rounds:
        start = cpu_seconds()
        tasks = plan_partitions(options, Constraint(), max_partition_bytes=128 * 2**20)
        plans.append(cpu_seconds() - start)
    logs = StreamLogs(stream)
    found = logs.bounds()
    require_equal("partitions", {"read": sum(len(task.ranges) for task in tasks), "stream": len(found)})
    # Long enough ago for their modification times to show every change.
    time.sleep(1.5)
    logs.bounds()
    for _ in rounds:
        start = cpu_seconds()
        logs.bounds()
        looks.append(cpu_seconds() - start)
    logs.close()
    title = f"Planning of {count} partitions with {count * SEGMENTS_EACH} segments on the driver"
    case = Case(title=title, unit="", bytes_per_unit=0)
    case.bounds.append(Bound(name="a batch read", unit="CPU s", values=plans, at_most=MOST_PLAN_SECONDS))
    case.bounds.append(
        Bound(name="a micro-batch where nothing is new", unit="CPU s", values=looks, at_most=MOST_PLAN_SECONDS)
    )
    return case


def cpu_seconds() -> float:
    """Return the CPU time of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def prepare(settings: Settings) -> None:
    """Write the topic."""
    topic_of(VALUE_BYTES, settings)


def run(settings: Settings) -> Iterator[Case]:
    """Yield one case after the other."""
    with tempfile.TemporaryDirectory() as directory:
        parent = Path(directory)
        yield planning(settings, parent)
        yield commits(settings, parent)
        with session(jars=connector_jars(settings)) as spark:
            spark.dataSource.register(CountingSink)
            spark.dataSource.register(StagingByHand)
            configure(spark)
            yield writing(spark, settings, parent)
            yield permissive(spark, settings)
            yield micro_batches(spark, settings, parent)
