"""Exports beside what they are made of: Parquet beside pyarrow writing ready-made tables, verbatim copies beside cp,
Parquet in an S3 store on the loopback beside the same in a directory and an upload of the same files, and exports in
Spark tasks beside write.parquet from kstore's own source and from Spark's Kafka connector.

Measured: `kstore.export` to Parquet and verbatim, on one machine; `kstore.spark.export`.
Compared with: pyarrow writing ready-made tables with the same settings; Parquet into an S3 store on the loopback
(moto's server): the same into a directory, and pyarrow uploading the same files; `cp`, with and without `sync` of the
files; `write.parquet` from the kstore source (targets by processor time).
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import kstore
from bench.bench_spark import MOST_ROUNDS, Topic, process_tree_cpu_seconds, session, topic_of
from bench.common import Case, Contestant, Settings, cpu_seconds, interleaved, require_equal
from bench.object_store import BUCKET, FreshKeys, parquet_below, put_files, running_store
from bench.spark_connector import TOPIC as CONNECTOR_TOPIC
from bench.spark_connector import TUNED_OPTIONS, RunningBroker, connector_jars, running_broker
from kstore.archive import export, read_manifest
from kstore.archive.files import parquet_settings
from kstore.archive.options import COLUMNS, export_options
from kstore.spark import configure
from kstore.spark import export as export_in_tasks

VALUE_BYTES = 100
PARQUET = "kstore export, 2 threads"
PARQUET_ALONE = "kstore export, 1 thread"
READY_MADE = "pyarrow, ready-made tables"
COPY = "kstore export, verbatim, 2 threads"
COPY_ALONE = "kstore export, verbatim, 1 thread"
CP = "cp"
CP_AND_SYNC = "cp, then sync of the files"
INTO_STORE = "kstore export to S3 on the loopback, 2 threads"
INTO_DIRECTORY = "the same into a directory"
UPLOAD = "pyarrow, upload of the same files"
IN_TASKS = "kstore.spark.export"
WRITE_PARQUET = "write.parquet from kstore"
CONNECTOR = "write.parquet from Spark's Kafka connector"
# Each writes hundreds of MB.
MOST_LOCAL_ROUNDS = 7
TARGETS = {"snappy": 2.0, "zstd": 2.3}
TARGET_TO_CONNECTOR = 3.0
# For one machine.
LOCAL_PARTITIONS = 2


def root_of(topic: Topic, parent: Path, *, partitions: int | None = None) -> Path:
    """Return a root with the partitions of a topic, as links."""
    root = Path(tempfile.mkdtemp(dir=parent))
    for directory in topic.directories[:partitions]:
        (root / directory.name).symlink_to(directory)
    return root


def into_empty(target: Path, run: Callable[[], object]) -> None:
    """Run something that makes a directory, without what the last run made."""
    shutil.rmtree(target, ignore_errors=True)
    run()


def ready_made(tables: list[pa.Table], target: Path, codec: str) -> None:
    """Write tables with pyarrow, with the settings of an export."""
    options = export_options("parquet", codec=codec)
    target.mkdir()
    for number, table in enumerate(tables):
        with pq.ParquetWriter(target / f"{number}.parquet", table.schema, **parquet_settings(options)) as writer:
            writer.write_table(table, row_group_size=options.row_group_rows)


def rows_of(paths: Iterator[Path]) -> tuple[int, int]:
    """Return the number of rows of Parquet files and the sum of their offsets."""
    table = pa.concat_tables([pq.read_table(path, columns=["offset"], partitioning=None) for path in paths])
    return table.num_rows, pa.compute.sum(table.column("offset")).as_py()


def to_parquet(root: Path, parent: Path, settings: Settings, *, codec: str) -> Case:
    """Time exports to Parquet on one machine."""
    tables = [kstore.scan(directory, columns=COLUMNS).to_table() for directory in sorted(root.iterdir())]
    ours, theirs = parent / "ours", parent / "theirs"
    runs = {
        PARQUET: partial(into_empty, ours, partial(export, root, ours, codec=codec)),
        PARQUET_ALONE: partial(into_empty, ours, partial(export, root, ours, codec=codec, threads=1)),
        READY_MADE: partial(into_empty, theirs, partial(ready_made, tables, theirs, codec)),
    }
    runs[PARQUET]()
    runs[READY_MADE]()
    require_equal("rows", {PARQUET: rows_of(ours.rglob("*.parquet")), READY_MADE: rows_of(theirs.glob("*.parquet"))})
    rows = sum(table.num_rows for table in tables)
    case = Case(title=f"Export to Parquet, {codec}, {rows} records", unit="row", bytes_per_unit=VALUE_BYTES)
    case.samples = sampled(runs, rows, settings, removed=(ours, theirs))
    case.add_ratio(PARQUET, READY_MADE, target=0.9)
    case.add_ratio(PARQUET_ALONE, READY_MADE)
    return case


def verbatim(root: Path, parent: Path, settings: Settings) -> Case:
    """Time copies of batches, with every CRC checked, and of files."""
    ours, theirs = parent / "ours", parent / "theirs"
    copy = partial(subprocess.run, ["cp", "-rL", root, theirs], check=True)

    def copy_and_sync() -> None:
        copy()
        subprocess.run(["sync", *sorted(theirs.rglob("*.log"))], check=True)

    runs = {
        COPY: partial(into_empty, ours, partial(export, root, ours, "kstore")),
        COPY_ALONE: partial(into_empty, ours, partial(export, root, ours, "kstore", threads=1)),
        CP: partial(into_empty, theirs, copy),
        CP_AND_SYNC: partial(into_empty, theirs, copy_and_sync),
    }
    runs[COPY]()
    runs[CP]()
    files = {path.relative_to(ours): path.read_bytes() for path in ours.rglob("*.log")}
    others = {path.relative_to(theirs): path.read_bytes() for path in theirs.rglob("*.log")}
    require_equal("bytes of the segments", {COPY: files, CP: others})
    size = sum(map(len, files.values()))
    case = Case(title=f"Verbatim copy of {size >> 20} MiB", unit="B", bytes_per_unit=1)
    case.samples = sampled(runs, size, settings, removed=(ours, theirs))
    case.add_ratio(COPY, CP, target=0.7)
    case.add_ratio(COPY_ALONE, CP)
    case.add_ratio(COPY, CP_AND_SYNC)
    return case


def into_store(root: Path, parent: Path, settings: Settings, *, codec: str) -> Case:
    """Time exports to Parquet into an S3 store, into a directory, and an upload of what is in the directory."""
    ours = parent / "ours"
    with running_store() as store:
        exports, uploads = FreshKeys(store, "ours"), FreshKeys(store, "theirs")

        def exported() -> None:
            export(root, f"s3://{BUCKET}/{exports.following()}", codec=codec)

        def uploaded() -> None:
            put_files(store, ours, uploads.following())

        runs = {
            INTO_STORE: exported,
            INTO_DIRECTORY: partial(into_empty, ours, partial(export, root, ours, codec=codec)),
            UPLOAD: uploaded,
        }
        for name in (INTO_DIRECTORY, INTO_STORE, UPLOAD):
            runs[name]()
        rows, total = rows_of(ours.rglob("*.parquet"))
        for name, key in ((INTO_STORE, exports.current), (UPLOAD, uploads.current)):
            table = pq.ParquetDataset(parquet_below(store, key), filesystem=store, partitioning=None).read(["offset"])
            found = table.num_rows, pa.compute.sum(table.column("offset")).as_py()
            require_equal("rows", {INTO_DIRECTORY: (rows, total), name: found})
        case = Case(title=f"Export to an object store, {codec}, {rows} records", unit="row", bytes_per_unit=VALUE_BYTES)
        case.samples = sampled(runs, rows, settings)
    size = sum(path.stat().st_size for path in ours.rglob("*.parquet"))
    case.add_ratio(INTO_STORE, INTO_DIRECTORY)
    case.add_ratio(INTO_STORE, UPLOAD)
    case.notes.append(
        f"MB/s are of values; the files have {size / rows:.1f} bytes a row, and the store is moto's server"
    )
    return case


def in_tasks(
    spark: SparkSession,
    root: Path,
    parent: Path,
    settings: Settings,
    *,
    codec: str,
    broker: RunningBroker | None,
) -> Case:
    """Time exports in Spark tasks, and Spark's own writer of the same rows from kstore and from a broker."""
    ours = parent / "ours"
    frames = {WRITE_PARQUET: spark.read.format("kstore").load(str(root)).drop("topic")}
    if broker is not None:
        frames[CONNECTOR] = broker.read(spark).drop("topic")
    written = {name: parent / f"theirs-{number}" for number, name in enumerate(frames)}
    runs = {IN_TASKS: partial(into_empty, ours, partial(export_in_tasks, spark, root, ours, codec=codec))}
    for name, frame in frames.items():
        writer = frame.write.mode("overwrite").option("compression", codec)
        runs[name] = partial(writer.parquet, str(written[name]))
    for run in runs.values():
        run()
    manifest = read_manifest(ours)
    rows = 0 if manifest is None else manifest.record_count
    found = {name: rows_of(directory.glob("*.parquet")) for name, directory in written.items()}
    require_equal("rows", {IN_TASKS: rows_of(ours.rglob("*.parquet")), **found})
    case = Case(title=f"Export in Spark tasks, {codec}, {rows} records", unit="row", bytes_per_unit=VALUE_BYTES)
    case.samples = interleaved(
        [Contestant(name, run, rows) for name, run in runs.items()],
        replace(settings, rounds=min(settings.rounds, MOST_ROUNDS)),
        cpu_seconds=process_tree_cpu_seconds,
        one_run_per_sample=True,
    )
    case.add_ratio(IN_TASKS, WRITE_PARQUET, target=TARGETS[codec], by="cpu")
    if broker is not None:
        case.add_ratio(IN_TASKS, CONNECTOR, target=TARGET_TO_CONNECTOR, by="cpu")
    return case


def sampled(
    runs: dict[str, Callable[[], None]], units: int, settings: Settings, *, removed: tuple[Path, ...] = ()
) -> list:
    """Time runs of this process and of its children.

    Args: removed: directories that are removed before each run, in time that is not measured: files that are on disk
        take three times as long as those that were never written there.
    """

    def remove() -> None:
        for directory in removed:
            shutil.rmtree(directory, ignore_errors=True)

    return interleaved(
        [Contestant(name, run, units, remove) for name, run in runs.items()],
        replace(settings, rounds=min(settings.rounds, MOST_LOCAL_ROUNDS)),
        cpu_seconds=cpu_seconds,
        one_run_per_sample=True,
    )


def prepare(settings: Settings) -> None:
    """Write the topic."""
    topic_of(VALUE_BYTES, settings)


def run(settings: Settings) -> Iterator[Case]:
    """Yield one case after the other."""
    topic = topic_of(VALUE_BYTES, settings)
    with tempfile.TemporaryDirectory(dir=settings.data_directory) as directory:
        parent = Path(directory)
        root = root_of(topic, parent, partitions=LOCAL_PARTITIONS)
        yield verbatim(root, parent, settings)
        for codec in TARGETS:
            yield to_parquet(root, parent, settings, codec=codec)
        yield into_store(root, parent, settings, codec="snappy")
        whole = root_of(topic, parent)
        jars = connector_jars(settings)
        with session(jars=jars) as spark, ExitStack() as stack:
            configure(spark)
            broker = stack.enter_context(running_broker(settings)) if jars else None
            if broker is not None:
                broker.create(CONNECTOR_TOPIC, len(topic.directories))
                rows = spark.read.format("kstore").load(str(whole)).select("partition", "key", "value")
                broker.write(rows, TUNED_OPTIONS)
            for codec in TARGETS:
                yield in_tasks(spark, whole, parent, settings, codec=codec, broker=broker)
