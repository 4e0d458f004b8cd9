"""Goal: the reader plans and yields what Spark demands: picklable tasks, Arrow batches of its schema and a good size.
Method: the calls of Spark's workers made in this process, on directories of the test builders; no JVM."""

from __future__ import annotations

import gc
import os
import pickle
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceReader, EqualTo, GreaterThanOrEqual, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType, TimestampType

from kstore.config import MIB
from kstore.errors import CorruptRecordError, LogNotFoundError, StorageError
from kstore.spark import KStoreDataSource, readers
from kstore.spark.planning import PACK_ABOVE, ScanPartition
from kstore.spark.schema import record_type, source_schema
from pyspark_kstore import DefaultSource
from tests.making.batches import FIRST_TIMESTAMP_MS, batch, batches, flip_bit, shrink, write_partition, write_root

PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
OFFSETS = StructType([StructField("offset", LongType())])


def source(path: Path, **options: str) -> KStoreDataSource:
    return KStoreDataSource(CaseInsensitiveDict({"path": str(path), **options}))


def tasks(reader: DataSourceReader) -> list[ScanPartition]:
    """The tasks as they arrive in a worker."""
    planned = pickle.loads(pickle.dumps(reader.partitions()))
    assert all(isinstance(task, ScanPartition) for task in planned)
    return planned


def read(path: Path, schema: StructType, **options: str) -> list[pa.RecordBatch]:
    reader = pickle.loads(pickle.dumps(source(path, **options))).reader(schema)
    in_worker = pickle.loads(pickle.dumps(reader))
    return [item for task in tasks(reader) for item in in_worker.read(task)]


def offsets_of(path: Path, **options: str) -> list[int]:
    return [offset for item in read(path, OFFSETS, **options) for offset in item.column("offset").to_pylist()]


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(source_schema(include_headers=False), id="default"),
        pytest.param(source_schema(include_headers=True), id="headers"),
        pytest.param(StructType([StructField("value", StringType()), StructField("key", BinaryType())]), id="text"),
        pytest.param(StructType([StructField("Timestamp", TimestampType(), False)]), id="case-and-not-null"),
        pytest.param(StructType([StructField("topic", StringType())]), id="constant-alone"),
    ],
)
def test_batches_have_the_arrow_schema_that_spark_demands(tmp_path: Path, schema: StructType) -> None:
    found = read(write_partition(tmp_path, [batches(0, 3, records_per_batch=5)]), schema)
    assert {item.schema for item in found} == {to_arrow_schema(schema, timezone="UTC")}
    assert sum(item.num_rows for item in found) == 15


def test_batches_are_of_two_to_four_mebibytes(tmp_path: Path) -> None:
    directory = write_partition(tmp_path, [batches(0, 130, records_per_batch=10, value_bytes=10_000)])
    sizes = [item.nbytes for item in read(directory, source_schema(include_headers=True))]
    assert len(sizes) > 2
    assert all(2 * MIB <= size <= 4.5 * MIB for size in sizes[:-1])


def test_empty_log_and_empty_plan_yield_nothing(tmp_path: Path) -> None:
    directory = write_partition(tmp_path, [[]])
    assert source(directory).reader(OFFSETS).partitions() == []
    assert list(source(directory).reader(OFFSETS).read(InputPartition(None))) == []


def test_every_offset_is_read_once_whatever_the_cut(tmp_path: Path) -> None:
    segments = [batches(first, 20, records_per_batch=10, value_bytes=50) for first in (0, 200)]
    directory = write_partition(tmp_path, segments)
    for options in ({}, {"maxPartitionBytes": "1k"}, {"minPartitions": "7"}, {"maxRecordsPerPartition": "33"}):
        assert offsets_of(directory, **options) == list(range(400))


@pytest.mark.parametrize(
    ("share", "count"),
    [
        pytest.param(10, 1, id="more-than-all"),
        pytest.param(1, 1, id="all"),
        pytest.param(0.99, 2, id="not-quite-all"),
        pytest.param(0.51, 2, id="half"),
        pytest.param(0.49, 3, id="not-quite-half"),
        pytest.param(0.1, 11, id="a-tenth"),
    ],
)
def test_tasks_are_few_of_one_size_and_within_the_limit(tmp_path: Path, share: float, count: int) -> None:
    segment = batches(0, 1000, value_bytes=20)
    max_bytes = int(share * sum(map(len, segment)))
    directory = write_partition(tmp_path, [segment])
    planned = tasks(source(directory, maxPartitionBytes=str(max_bytes)).reader(OFFSETS))
    sizes = [sum(scan.size_in_bytes for scan in task.ranges) for task in planned]
    assert (len(sizes), sum(sizes)) == (count, sum(map(len, segment)))
    assert max(sizes) <= max_bytes
    assert min(sizes) >= 0.85 * max(sizes)


@pytest.mark.parametrize(
    ("columns", "options", "count"),
    [
        (("offset", "isControl"), {}, 1),
        (("offset", "timestamp"), {}, 4),
        (("value",), {}, 4),
        (("offset",), {"maxPartitionBytes": "20k"}, 4),
    ],
    ids=["headers-of-batches", "timestamps", "values", "size-given"],
)
def test_tasks_are_larger_where_headers_of_batches_tell_all_unless_their_size_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: tuple[str, ...], options: dict[str, str], count: int
) -> None:
    segment = batches(0, 700, value_bytes=20)
    size = sum(map(len, segment))
    monkeypatch.setattr(readers, "_TASK_BYTES", 20 * 1024)
    monkeypatch.setattr(readers, "_LIGHT_TASK_BYTES", 80 * 1024)
    assert 60 * 1024 < size < 78 * 1024
    directory = write_partition(tmp_path, [segment])
    assert len(tasks(source(directory, **options).reader(record_type(columns)))) == count


def test_each_partition_is_a_task_up_to_a_number_then_neighbours_share(tmp_path: Path) -> None:
    names = [f"t-{number}" for number in range(PACK_ABOVE + 1)]
    write_root(tmp_path, {name: [[batch(0, 2)]] for name in names})
    assert len(tasks(source(tmp_path).reader(OFFSETS))) == (PACK_ABOVE + 2) // 2
    assert sorted(offsets_of(tmp_path)) == [0] * len(names) + [1] * len(names)
    (tmp_path / names[0]).rename(tmp_path / "t-0.0-delete")
    assert len(tasks(source(tmp_path).reader(OFFSETS))) == PACK_ABOVE


def test_shared_tasks_keep_to_the_size_asked_for(tmp_path: Path) -> None:
    write_root(tmp_path, {f"t-{number}": [[batch(0, 2)]] for number in range(PACK_ABOVE + 1)})
    planned = tasks(source(tmp_path, maxPartitionBytes=str(len(batch(0, 2)))).reader(OFFSETS))
    assert len(planned) == PACK_ABOVE + 1


def test_damaged_batch_raises_in_the_task_after_the_good_ones(tmp_path: Path) -> None:
    segment = batches(0, 2, records_per_batch=5)
    directory = write_partition(tmp_path, [segment])
    flip_bit(directory / f"{0:020d}.log", len(segment[0]) + 70, bit=3)
    with pytest.raises(CorruptRecordError) as caught:
        offsets_of(directory)
    assert (caught.value.position, caught.value.path) == (len(segment[0]), str(directory / f"{0:020d}.log"))


def test_torn_last_batch_is_the_end_of_the_log(tmp_path: Path) -> None:
    directory = write_partition(tmp_path, [batches(0, 3, records_per_batch=5)])
    shrink(directory / f"{0:020d}.log", by_bytes=1)
    assert offsets_of(directory) == list(range(10))


def test_missing_directory_is_named_while_planning(tmp_path: Path) -> None:
    with pytest.raises(LogNotFoundError, match=f"no such directory: {tmp_path}/missing"):
        source(tmp_path / "missing").reader(OFFSETS).partitions()


def test_files_with_other_names_are_passed_over(tmp_path: Path) -> None:
    directory = write_partition(tmp_path, [batches(0, 2, records_per_batch=5)])
    for name in ("000000000000000000010.log", "-0000000000000000010.log", f"{10:020d}.log.deleted", f"{10:020d}.swap"):
        (directory / name).write_bytes(b"not a log")
    assert offsets_of(directory) == list(range(10))


@pytest.mark.parametrize("kind", ["fifo", "symlink", "directory"])
def test_segment_that_is_no_file_is_refused_while_planning(tmp_path: Path, kind: str) -> None:
    directory = write_partition(tmp_path, [batches(0, 2, records_per_batch=5)])
    segment = directory / f"{10:020d}.log"
    if kind == "fifo":
        os.mkfifo(segment)
    elif kind == "symlink":
        segment.symlink_to("/etc/passwd")
    else:
        segment.mkdir()
    with pytest.raises(StorageError, match=f"cannot read {segment}: expected a regular file"):
        source(directory).reader(OFFSETS).partitions()


def test_wrong_option_is_refused_by_schema_and_by_reader(tmp_path: Path) -> None:
    wrong = source(tmp_path, minPartitions="0")
    with pytest.raises(ValueError, match="minPartitions must be positive"):
        wrong.schema()
    with pytest.raises(ValueError, match="minPartitions must be positive"):
        wrong.reader(OFFSETS)


def test_only_the_pushdown_worker_gets_a_reader_with_push_filters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere Spark takes the mere presence of pushFilters for an error."""
    plain = DataSourceReader.pushFilters
    monkeypatch.delitem(sys.modules, PUSHDOWN_WORKER, raising=False)
    assert type(source(tmp_path, pushFilters="true").reader(OFFSETS)).pushFilters is plain
    monkeypatch.setitem(sys.modules, PUSHDOWN_WORKER, sys)
    assert type(source(tmp_path).reader(OFFSETS)).pushFilters is plain
    assert type(source(tmp_path, pushFilters="true").reader(OFFSETS)).pushFilters is not plain


def test_pushed_filter_narrows_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, PUSHDOWN_WORKER, sys)
    write_root(tmp_path, {f"t-{number}": [batches(0, 10, records_per_batch=10)] for number in range(2)})
    reader = source(tmp_path, pushFilters="true").reader(OFFSETS)
    left = reader.pushFilters([EqualTo(("offset",), 42), EqualTo(("value",), b"v42")])
    assert left == [EqualTo(("value",), b"v42")]
    assert [(scan.partition, scan.start_offset, scan.end_offset) for task in tasks(reader) for scan in task.ranges] == [
        (0, 42, 43),
        (1, 42, 43),
    ]


@pytest.mark.parametrize(
    ("microseconds", "first"), [(-1, 42), (0, 42), (1, 43)], ids=["just-before", "the-very-time", "just-after"]
)
def test_pushed_time_reads_from_the_first_record_that_is_as_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, microseconds: int, first: int
) -> None:
    monkeypatch.setitem(sys.modules, PUSHDOWN_WORKER, sys)
    write_root(tmp_path, {"t-0": [batches(0, 10, records_per_batch=10)]})
    reader = source(tmp_path, pushFilters="true").reader(OFFSETS)
    time = datetime.fromtimestamp((FIRST_TIMESTAMP_MS + 42) // 1000, timezone.utc)
    time += timedelta(milliseconds=(FIRST_TIMESTAMP_MS + 42) % 1000, microseconds=microseconds)
    assert not list(reader.pushFilters([GreaterThanOrEqual(("timestamp",), time)]))
    assert [(scan.start_offset, scan.end_offset) for task in tasks(reader) for scan in task.ranges] == [(first, 100)]


def test_registered_source_stands_for_the_real_one(tmp_path: Path) -> None:
    registered = DefaultSource(CaseInsensitiveDict({"path": str(tmp_path), "includeHeaders": "true"}))
    assert registered.name() == KStoreDataSource.name() == "kstore"
    assert registered.schema() == source_schema(include_headers=True)
    assert type(registered.reader(OFFSETS)) is type(source(tmp_path).reader(OFFSETS))


@pytest.mark.usefixtures("nothing_frozen")
@pytest.mark.parametrize("in_task", [True, False], ids=["in-a-task", "elsewhere"])
def test_only_a_task_takes_what_is_imported_out_of_garbage_collections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_task: bool
) -> None:
    # TaskContext() sets it too.
    monkeypatch.setattr(TaskContext, "_taskContext", None)
    if in_task:
        TaskContext()
    assert offsets_of(write_partition(tmp_path, [[batch(0)]])) == [0]
    assert (gc.get_freeze_count() > 0) == in_task
