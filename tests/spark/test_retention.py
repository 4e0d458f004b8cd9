"""Goal: files deleted or shortened between plan and task fail a read as lost data, never as damage, or with
failOnDataLoss=false cost it no other rows, and the warning is true.
Method: the calls of Spark's driver and workers made in this process, files taken away between them; no JVM."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import LongType, StructField, StructType

from kstore.errors import LogReplacedError, OffsetOutOfRangeError, StorageError
from kstore.log.files.names import PartitionDirectory
from kstore.spark import KStoreDataSource, planning, readers, retention
from kstore.spark.readers import KStoreReader
from kstore.spark.retention import LogPool
from kstore.spark.schema import record_type
from kstore.types import TopicPartition
from tests.making.batches import batches, write_partition

OFFSETS = StructType([StructField("offset", LongType())])
LOSS = "Some data may have been lost"
ENOENT = 2


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Three segments of ten records each, in batches of two."""
    return write_partition(tmp_path, [batches(first, 5, records_per_batch=2) for first in (0, 10, 20)])


def reader(directory: Path, *, fails: bool, schema: StructType = OFFSETS, **options: str) -> KStoreReader:
    options |= {"path": str(directory), "failOnDataLoss": str(fails).lower()}
    found = KStoreDataSource(CaseInsensitiveDict(options)).reader(schema)
    assert isinstance(found, KStoreReader)
    return found


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


@pytest.fixture
def gone(directory: Path) -> Callable[[], object]:
    return lambda: directory.rename(directory.parent / f"t-0.{'0' * 32}-delete")


@pytest.mark.parametrize("options", [{}, {"minPartitions": "7"}], ids=["one", "min"])
def test_partition_that_is_gone_fails_the_task_as_loss(directory, gone, options):
    with pytest.raises(OffsetOutOfRangeError, match=rf"{LOSS}.*the directory {directory} was deleted or renamed since"):
        rows(reader(directory, fails=True, **options), gone)


def test_partition_that_is_gone_has_no_rows_where_loss_is_taken_and_the_warning_says_so(directory, gone, caplog):
    with caplog.at_level(logging.WARNING, "kstore.spark"):
        assert rows(reader(directory, fails=False), gone) == []
    (message,) = caplog.messages
    assert message == (
        f"t-0: the directory {directory} was deleted or renamed since the read was planned; "
        "offsets [0, 30) were still to be read, the log holds no offset any more"
    )


def test_topic_that_was_made_again_is_read_at_the_offsets_that_were_planned(directory, caplog):
    def make_again() -> None:
        directory.rename(directory.parent / "old")
        write_partition(directory.parent, [batches(0, 3, records_per_batch=2)])

    assert rows(reader(directory, fails=False), make_again) == list(range(6))
    assert "was replaced since" in caplog.text
    assert "the log holds [0, 6) of these" in caplog.text


def shorten(directory: Path, slot: int, *, to_bytes: int) -> Path:
    log = sorted(directory.glob("*.log"))[slot]
    os.truncate(log, to_bytes)
    return log


def size_of(slot: int, *, whole_batches: int) -> int:
    return sum(map(len, batches(slot * 10, whole_batches, records_per_batch=2)))


@pytest.mark.parametrize(
    ("slot", "to_bytes", "left"),
    [
        pytest.param(2, 0, range(20), id="last-to-nothing"),
        pytest.param(2, size_of(2, whole_batches=2), range(24), id="last-between-batches"),
        pytest.param(2, size_of(2, whole_batches=2) + 1, range(24), id="last-inside-a-batch"),
        pytest.param(1, 0, [*range(10), *range(20, 30)], id="middle-to-nothing"),
        pytest.param(1, size_of(1, whole_batches=2), [*range(14), *range(20, 30)], id="middle-between-batches"),
        pytest.param(1, size_of(1, whole_batches=2) + 70, [*range(14), *range(20, 30)], id="middle-inside-a-batch"),
    ],
)
@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE"])
def test_file_that_a_broker_shortened_is_lost_data_and_no_damage(tmp_path, slot, to_bytes, left, mode, caplog):
    segments = [batches(first, 5, records_per_batch=2) for first in (0, 10, 20)]
    for fails in (True, False):
        directory = write_partition(tmp_path / str(fails), segments)
        planned = reader(directory, fails=fails, mode=mode)

        def meanwhile(directory=directory) -> None:
            shorten(directory, slot, to_bytes=to_bytes)

        if fails:
            with pytest.raises(OffsetOutOfRangeError, match=rf"{LOSS}.*\.log was truncated to {to_bytes} bytes since"):
                rows(planned, meanwhile)
        else:
            with caplog.at_level(logging.WARNING, "kstore.spark"):
                assert rows(planned, meanwhile) == list(left)
            (message,) = caplog.messages
            assert f"was truncated to {to_bytes} bytes since the read was planned" in message


@pytest.mark.parametrize(("whole_batches", "extra", "first"), [(2, 70, 14), (2, 0, 14), (0, 0, 10)])
def test_warning_names_the_offsets_that_a_shortened_file_lost(directory, whole_batches, extra, first, caplog):
    to_bytes = size_of(1, whole_batches=whole_batches) + extra
    with caplog.at_level(logging.WARNING, "kstore.spark"):
        rows(reader(directory, fails=False), lambda: shorten(directory, 1, to_bytes=to_bytes))
    (message,) = caplog.messages
    held = f"the log holds [10, 30) of these, without [{first}, 20)"
    assert message.endswith(f"offsets [10, 30) were still to be read, {held}")


@pytest.mark.parametrize("columns", [("offset",), ("value",), ("key", "value")], ids="-".join)
def test_file_that_is_shortened_under_the_read_gives_each_row_that_is_left_once(tmp_path, monkeypatch, columns):
    """Small batches stand for rows that were handed to Spark before the file changed."""
    monkeypatch.setattr(readers, "_BATCH_BYTES", 2000)
    data = batches(0, 4000, records_per_batch=10, value_bytes=100)
    directory = write_partition(tmp_path, [data])
    planned = reader(directory, fails=False, schema=record_type(columns))
    (task,) = planned.partitions()
    half = sum(map(len, data[:2000]))
    assert half > 2 << 20
    found = []
    for item in planned.read(task):
        if not found:
            shorten(directory, 0, to_bytes=half + 5)
        assert item.schema.names == list(columns)
        found += item.column(0).to_pylist()
    assert len(found) == len(set(found)) == 20_000


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
    monkeypatch.setattr(retention, "_planned_again", lambda scan, *_, **__: [scan])
    delete(directory, 0)
    with pytest.raises(LogReplacedError, match=f"{0:020}.log was removed"):
        [list(reader(directory, fails=False).read(task)) for task in tasks]


def test_log_is_looked_at_anew_while_segments_are_deleted_under_the_look(directory):
    failures = [StorageError("gone", errno=ENOENT)] * 3

    def use(log):
        if failures:
            raise failures.pop()
        return log.log_end_offset

    assert LogPool().use_log(partition(directory), use) == 30


@pytest.mark.parametrize("error", [StorageError("gone", errno=ENOENT), StorageError("broken", errno=5)], ids=str)
def test_log_that_can_not_be_looked_at_raises_why(directory, error):
    def use(_log):
        raise error

    with pytest.raises(StorageError, match=str(error)):
        LogPool().use_log(partition(directory), use)
