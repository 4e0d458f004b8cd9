"""Goal: segments deleted between plan and task fail a read, or with failOnDataLoss=false cost it no other rows.
Method: the calls of Spark's driver and workers made in this process, files taken away between them; no JVM."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import LongType, StructField, StructType

from kstore.errors import LogReplacedError, OffsetOutOfRangeError, StorageError
from kstore.log import PartitionDirectory
from kstore.spark import KStoreDataSource, planning, retention
from kstore.spark.retention import Looks
from kstore.spark.source import KStoreReader
from kstore.types import TopicPartition
from tests.making.batches import batches, write_partition

OFFSETS = StructType([StructField("offset", LongType())])
LOSS = "Some data may have been lost"
ENOENT = 2


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Three segments of ten records each, in batches of two."""
    return write_partition(tmp_path, [batches(first, 5, records_per_batch=2) for first in (0, 10, 20)])


def reader(directory: Path, *, fails: bool, **options: str) -> KStoreReader:
    options |= {"path": str(directory), "failOnDataLoss": str(fails).lower()}
    return KStoreDataSource(CaseInsensitiveDict(options)).reader(OFFSETS)


def partition(directory: Path) -> PartitionDirectory:
    return PartitionDirectory(TopicPartition("t", 0), str(directory), str(directory.parent))


def delete(directory: Path, *base_offsets: int) -> None:
    for base_offset in base_offsets:
        for file in directory.glob(f"{base_offset:020}.*"):
            file.unlink()


def rows(reader: KStoreReader, meanwhile: Callable[[], object]) -> list[int]:
    tasks = reader.partitions()
    meanwhile()
    return [offset for task in tasks for item in reader.read(task) for offset in item.column("offset").to_pylist()]


@pytest.mark.parametrize(
    ("deleted", "left"),
    [
        pytest.param([0], range(10, 30), id="first"),
        pytest.param([0, 10], range(20, 30), id="first-two"),
        pytest.param([10], [*range(10), *range(20, 30)], id="middle"),
        pytest.param([20], range(20), id="last"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"maxPartitionBytes": "1"}, {"minPartitions": "7"}], ids=["one", "cut", "min"])
def test_what_is_left_is_read_once_where_loss_is_taken(directory, deleted, left, options, caplog):
    with caplog.at_level(logging.WARNING, "kstore.spark"):
        assert rows(reader(directory, fails=False, **options), lambda: delete(directory, *deleted)) == list(left)
    assert str(directory / f"{deleted[0]:020}.log") in caplog.text


def test_deleted_segment_fails_the_task_and_names_the_option(directory):
    with pytest.raises(OffsetOutOfRangeError, match=rf"{LOSS}.*\[0, 30\).*deleted since.*failOnDataLoss"):
        rows(reader(directory, fails=True), lambda: delete(directory, 0))


def test_records_that_a_cleaner_moved_to_an_earlier_segment_are_read_there(directory):
    def merge() -> None:
        first, second = (directory / f"{base_offset:020}.log" for base_offset in (0, 10))
        first.write_bytes(first.read_bytes() + second.read_bytes())
        delete(directory, 10)

    assert rows(reader(directory, fails=False, maxPartitionBytes="1"), merge) == list(range(30))


@pytest.mark.parametrize("fails", [False, True])
def test_partition_that_is_gone_fails_the_task(directory, fails):
    with pytest.raises((LogNotFoundError, OffsetOutOfRangeError)):
        rows(reader(directory, fails=fails), lambda: directory.rename(directory.parent / "t-0.0123-delete"))


@pytest.fixture
def deleting_between_looks(directory, monkeypatch):
    """The first segment goes when the driver has resolved the offsets, before it looks for their files."""
    resolve = planning.resolve_offset_range

    def resolve_and_delete(topic_partition, log, options):
        found = resolve(topic_partition, log, options)
        delete(directory, 0)
        return found

    monkeypatch.setattr(planning, "resolve_offset_range", resolve_and_delete)


@pytest.mark.usefixtures("deleting_between_looks")
def test_segment_deleted_between_the_looks_of_the_driver_is_left_out(directory):
    assert rows(reader(directory, fails=False), list) == list(range(10, 30))


@pytest.mark.usefixtures("deleting_between_looks")
def test_segment_deleted_between_the_looks_of_the_driver_fails_it_with_loss(directory):
    with pytest.raises(OffsetOutOfRangeError, match=rf"{LOSS}.*\[0, 30\).*the log holds \[10, 30\)"):
        reader(directory, fails=True).partitions()


def test_segments_that_go_faster_than_they_are_found_fail_the_task_by_name(directory, monkeypatch):
    tasks = reader(directory, fails=False).partitions()
    monkeypatch.setattr(retention, "_planned_anew", lambda scan, _start_offset, _options, *, fate: [scan])
    delete(directory, 0)
    with pytest.raises(LogReplacedError, match=f"{0:020}.log was removed"):
        [list(reader(directory, fails=False).read(task)) for task in tasks]


def test_log_is_looked_at_anew_while_segments_are_deleted_under_the_look(directory):
    failures = [StorageError("gone", errno=ENOENT)] * 3

    def use(log):
        if failures:
            raise failures.pop()
        return log.log_end_offset

    assert Looks().look_at(partition(directory), use) == 30


@pytest.mark.parametrize("error", [StorageError("gone", errno=ENOENT), StorageError("broken", errno=5)], ids=str)
def test_log_that_can_not_be_looked_at_raises_why(directory, error):
    def use(_log):
        raise error

    with pytest.raises(StorageError, match=str(error)):
        Looks().look_at(partition(directory), use)
