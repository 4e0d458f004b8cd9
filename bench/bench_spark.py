"""format("kstore"), compared with the fastest possible Python data source and with mapInArrow code written by hand.

Measured: `format("kstore")` on `local[2]`: all columns, value only, count through an offset-only schema, to the noop
sink.
Compared with: for all columns `mapInArrow` over file paths with aiokafka's compiled reader, for the value and for the
count the same, written only for that; a data source that yields ready-made Arrow batches (the ceiling of any source in
Python), in as many tasks (of the run in `results/`: in 12, where kstore counts in 4).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import bit_xor, count, length, xxhash64
from pyspark.sql.functions import sum as sum_of

from bench.common import BENCH_DIRECTORY, Case, Contestant, Settings, interleaved, require_equal
from bench.data import PartitionSpec, partition
from bench.spark_rivals import (
    ALL_COLUMNS,
    ReadyMadeSource,
    count_records,
    decode_files,
    decode_values,
    write_ready_made,
)

TOPIC = "bench"
PARTITION_COUNT = 4
SEGMENT_COUNT = 2
FILE_SCHEMA = "path string, topic string, partition int"
KSTORE = "kstore"
CEILING = "ready-made Arrow batches"
BY_HAND = "mapInArrow with aiokafka"
BY_HAND_VALUES = "mapInArrow with aiokafka, written for value only"
BY_HAND_COUNT = "mapInArrow with aiokafka, written for count"
TARGETS_OF_CEILING = {100: 0.75, 1024: 0.85}
TARGET_OF_BY_HAND = 1.25
MOST_ROUNDS = 7
WARM_UP_TIMES = 30
CHECKED_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


@dataclass(frozen=True)
class Topic:
    """Partition directories of one topic, in the form that each contestant needs."""

    directories: list[Path]
    log_files: list[tuple[str, str, int]]
    ready_made: list[Path]
    record_count: int


def topic_of(value_bytes: int, settings: Settings) -> Topic:
    """Write the topic and its ready-made batches, unless they exist."""
    directories, log_files, ready_made, record_count = [], [], [], 0
    for number in range(PARTITION_COUNT):
        spec = PartitionSpec(
            name=f"{TOPIC}-{number}",
            value_bytes=value_bytes,
            segment_bytes=settings.spark_segment_bytes,
            segment_count=SEGMENT_COUNT,
            seed=42 + number,
        )
        data = partition(spec, settings.data_directory)
        arrow_file = data.path.parent / f"{data.path.name}.arrow"
        if not arrow_file.exists():
            write_ready_made(data.log_files, arrow_file, topic=TOPIC, partition=number)
        directories.append(data.path)
        log_files += [(str(file), TOPIC, number) for file in data.log_files]
        ready_made.append(arrow_file)
        record_count += data.record_count
    return Topic(directories, log_files, ready_made, record_count)


@contextmanager
def session(jars: Sequence[str] = ()) -> Iterator[SparkSession]:
    """Start Spark with two threads. Its workers run this interpreter and find this package through PYTHONPATH."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(BENCH_DIRECTORY.parent), os.environ.get("PYTHONPATH", "")])
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("kstore bench")
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.jars", ",".join(jars))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(ReadyMadeSource)
    try:
        yield spark
    finally:
        spark.stop()


def kstore_frame(
    spark: SparkSession, topic: Topic, schema: str | None = None, options: Mapping[str, str] | None = None
) -> DataFrame:
    """Return the topic read with kstore; a schema selects columns."""
    paths = json.dumps([str(path) for path in topic.directories])
    reader = spark.read.format("kstore").options(paths=paths, **(options or {}))
    return (reader if schema is None else reader.schema(schema)).load()


def ceiling_frame(spark: SparkSession, topic: Topic, schema: str = ALL_COLUMNS, *, task_count: int) -> DataFrame:
    """Return the ready-made batches, read in about as many tasks as kstore has."""
    paths = json.dumps([str(path) for path in topic.ready_made])
    tasks_per_path = max(1, round(task_count / PARTITION_COUNT))
    options = {"paths": paths, "tasksPerPath": str(tasks_per_path)}
    return spark.read.format("ready_made").options(**options).schema(schema).load()


def by_hand_frame(spark: SparkSession, topic: Topic) -> DataFrame:
    """Return what users write without kstore: file paths through mapInArrow."""
    return spark.createDataFrame(topic.log_files, FILE_SCHEMA).mapInArrow(decode_files, ALL_COLUMNS)


def by_hand_values_frame(spark: SparkSession, topic: Topic) -> DataFrame:
    """Return the same, written for one column only."""
    return spark.createDataFrame(topic.log_files, FILE_SCHEMA).mapInArrow(decode_values, "value binary")


def by_hand_count_frame(spark: SparkSession, topic: Topic) -> DataFrame:
    """Return the same, written for a count: one number per file."""
    return spark.createDataFrame(topic.log_files, FILE_SCHEMA).mapInArrow(count_records, "count long")


def checksum(frame: DataFrame) -> tuple[object, ...]:
    """Return rows, sum of offsets, sum of value lengths, and a hash of all columns that is independent of order."""
    row = frame.select(
        count("*"),
        sum_of("offset"),
        sum_of(length("value")),
        bit_xor(xxhash64(*CHECKED_COLUMNS)),
    ).first()
    return tuple(row) if row is not None else ()


def checksum_of_values(frame: DataFrame) -> tuple[object, ...]:
    """Return the same for a frame that has values only."""
    row = frame.select(count("*"), sum_of(length("value")), bit_xor(xxhash64("value"))).first()
    return tuple(row) if row is not None else ()


def to_noop(frame: DataFrame) -> None:
    """Compute a frame and discard the rows."""
    frame.write.format("noop").mode("overwrite").save()


def counted(frame: DataFrame, *, expected: int) -> None:
    """Count a frame; raise ValueError if the count is wrong."""
    found = frame.count()
    if found != expected:
        raise ValueError(f"expected {expected} rows, found {found}")


def summed(frame: DataFrame, *, expected: int) -> None:
    """Sum the counts of a frame; raise ValueError if the sum is wrong."""
    row = frame.agg(sum_of("count")).first()
    if row is None or row[0] != expected:
        raise ValueError(f"expected {expected} rows, found {row}")


def process_tree_cpu_seconds(*, of: int | None = None) -> float:
    """Return the CPU time of a process, by default this one, and its descendants: the JVM and its Python workers."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            fields = (directory / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(directory.name)] = int(fields[1])
        ticks[int(directory.name)] = sum(int(field) for field in fields[11:15])
    ours = {os.getpid() if of is None else of}
    while more := {pid for pid, parent in parents.items() if parent in ours and pid not in ours}:
        ours |= more
    return sum(ticks.get(pid, 0) for pid in ours) / os.sysconf("SC_CLK_TCK")


def timed(query: str, frames: Frames, runs: Mapping[str, Callable[[], None]], settings: Settings) -> Case:
    """Time one query per contestant and round."""
    rows = frames.topic.record_count
    title = f"Spark, {frames.value_bytes}-byte values, {rows} records, {query}"
    case = Case(title=title, unit="row", bytes_per_unit=frames.value_bytes)
    case.samples = interleaved(
        [Contestant(name, run, rows) for name, run in runs.items()],
        replace(settings, rounds=min(settings.rounds, MOST_ROUNDS), warm_up_seconds=settings.warm_up_seconds * 6),
        cpu_seconds=process_tree_cpu_seconds,
        one_run_per_sample=True,
    )
    return case


@dataclass(frozen=True)
class Frames:
    """The frames of one topic, checked to hold the same rows."""

    spark: SparkSession
    topic: Topic
    value_bytes: int
    task_count: int
    kstore: DataFrame
    ceiling: DataFrame
    by_hand: DataFrame

    def kstore_of(self, schema: str) -> DataFrame:
        return kstore_frame(self.spark, self.topic, schema)

    def ceiling_of(self, schema: str) -> DataFrame:
        task_count = self.kstore_of(schema).rdd.getNumPartitions()
        return ceiling_frame(self.spark, self.topic, schema, task_count=task_count)


def frames_of(spark: SparkSession, value_bytes: int, settings: Settings) -> Frames:
    """Return the frames of a topic; raise OutputsDifferError unless they hold the same rows."""
    topic = topic_of(value_bytes, settings)
    kstore = kstore_frame(spark, topic)
    task_count = kstore.rdd.getNumPartitions()
    ceiling = ceiling_frame(spark, topic, task_count=task_count)
    by_hand = by_hand_frame(spark, topic)
    found = {KSTORE: checksum(kstore), CEILING: checksum(ceiling), BY_HAND: checksum(by_hand)}
    require_equal(f"rows of {value_bytes}-byte values", dict(found))
    require_equal("row count", {"data": topic.record_count, KSTORE: found[KSTORE][0]})
    return Frames(spark, topic, value_bytes, task_count, kstore, ceiling, by_hand)


def warm_up(frames: Frames, settings: Settings) -> None:
    """Run each kind of query until the JVM has compiled the hot code, since its compiler threads would take a core."""
    for frame in (frames.kstore, frames.ceiling, frames.by_hand):
        start = time.perf_counter()
        while time.perf_counter() - start < WARM_UP_TIMES * settings.warm_up_seconds:
            to_noop(frame)


def all_columns(frames: Frames, settings: Settings) -> Case:
    """Time all columns."""
    runs = {
        KSTORE: partial(to_noop, frames.kstore),
        CEILING: partial(to_noop, frames.ceiling),
        BY_HAND: partial(to_noop, frames.by_hand),
    }
    case = timed("all columns to noop", frames, runs, settings)
    case.add_ratio(KSTORE, CEILING, target=TARGETS_OF_CEILING[frames.value_bytes])
    case.add_ratio(KSTORE, BY_HAND, target=TARGET_OF_BY_HAND)
    case.add_ratio(CEILING, BY_HAND)
    case.notes.append(f"{frames.task_count} tasks of kstore and of the ceiling; mapInArrow: 8 files in 2 tasks")
    return case


def value_only(frames: Frames, settings: Settings) -> Case:
    """Time one column: selected by a schema in kstore and the ceiling, hand-written in mapInArrow."""
    by_hand = by_hand_values_frame(frames.spark, frames.topic)
    kstore = frames.kstore_of("value binary")
    require_equal("values", {KSTORE: checksum_of_values(kstore), BY_HAND_VALUES: checksum_of_values(by_hand)})
    runs = {
        KSTORE: partial(to_noop, kstore),
        CEILING: partial(to_noop, frames.ceiling_of("value binary")),
        BY_HAND_VALUES: partial(to_noop, by_hand),
    }
    case = timed("value only to noop", frames, runs, settings)
    case.add_ratio(KSTORE, BY_HAND_VALUES)
    case.add_ratio(CEILING, BY_HAND_VALUES)
    case.add_ratio(KSTORE, CEILING)
    return case


def counting(frames: Frames, settings: Settings) -> Case:
    """Time a count: with an offset-only schema in kstore and the ceiling, hand-written in mapInArrow."""
    expected = frames.topic.record_count
    runs = {
        KSTORE: partial(counted, frames.kstore_of("offset long"), expected=expected),
        CEILING: partial(counted, frames.ceiling_of("offset long"), expected=expected),
        BY_HAND_COUNT: partial(summed, by_hand_count_frame(frames.spark, frames.topic), expected=expected),
    }
    case = timed("count through an offset-only schema", frames, runs, settings)
    case.add_ratio(KSTORE, BY_HAND_COUNT)
    case.add_ratio(CEILING, BY_HAND_COUNT)
    case.add_ratio(KSTORE, CEILING)
    return case


def prepare(settings: Settings) -> None:
    """Write the topics."""
    for value_bytes in settings.spark_value_bytes:
        topic_of(value_bytes, settings)


def run(settings: Settings) -> Iterator[Case]:
    """At each value size, check that all contestants return the same rows, then time three queries."""
    with session() as spark:
        for value_bytes in settings.spark_value_bytes:
            frames = frames_of(spark, value_bytes, settings)
            warm_up(frames, settings)
            yield all_columns(frames, settings)
            yield value_only(frames, settings)
            yield counting(frames, settings)
