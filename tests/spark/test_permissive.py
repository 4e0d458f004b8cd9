"""Goal: mode=PERMISSIVE reads what kstore.scan(on_error="skip") reads, in any number of tasks, and tells each damage
once.
Method: damaged partitions of the test builders read by the calls of Spark's workers in this process; Spark itself for
kstore.spark.damage."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

import kstore
import kstore.spark
from kstore.errors import CorruptRecordError
from kstore.log import sound_scan
from kstore.spark import KStoreDataSource
from kstore.spark.schema import record_type
from kstore.spark.skipped import DAMAGE_SCHEMA
from tests.making.batches import Layout, batches, patch_header, write_partition

BATCHES, PER_BATCH = 40, 5
TOTAL = BATCHES * PER_BATCH
DENSE = Layout(index_interval_bytes=1)
RECORDS = record_type(("key", "value", "offset", "timestamp", "headers"))
SPLITS = [
    {},
    {"maxPartitionBytes": "1k"},
    {"minPartitions": "7"},
    {"minPartitions": "39"},
    {"maxRecordsPerPartition": "13"},
    {"maxRecordsPerPartition": "13", "maxPartitionBytes": "500"},
]


def write(root: Path, *, damage: dict[int, int], **options: object) -> Path:
    """Write two segments. Args: damage: a byte of a batch whose lowest bit is wrong, by the number of the batch."""
    data = batches(0, BATCHES, records_per_batch=PER_BATCH, value_bytes=30, **options)
    for number, position in damage.items():
        changed = bytearray(data[number])
        changed[position] ^= 1
        data[number] = bytes(changed)
    half = BATCHES // 2
    intact = batches(0, BATCHES, records_per_batch=PER_BATCH, value_bytes=30, **options)
    directory = write_partition(root, [intact[:half], intact[half:]], layout=DENSE)
    for number, segment in enumerate((data[:half], data[half:])):
        (directory / f"{number * half * PER_BATCH:020}.log").write_bytes(b"".join(segment))
    return directory


def read(path: Path, schema: StructType = RECORDS, **options: str) -> list[pa.RecordBatch]:
    source = KStoreDataSource(CaseInsensitiveDict({"path": str(path), "mode": "permissive", **options}))
    reader = pickle.loads(pickle.dumps(source.reader(schema)))
    tasks = pickle.loads(pickle.dumps(reader.partitions()))
    return [found for task in tasks for found in reader.read(task)]


def offsets(found: list[pa.RecordBatch]) -> list[int]:
    return [offset for one in found for offset in one.column("offset").to_pylist()]


def damage_rows(path: Path, **options: str) -> list[tuple[object, ...]]:
    found = read(path, DAMAGE_SCHEMA, rows="damage", **options)
    return [tuple(row.values()) for one in found for row in one.to_pylist()]


def expected(path: Path) -> tuple[list[int], list[tuple[object, ...]]]:
    """What kstore.Log.read gives and reports."""
    skipped: list[kstore.SkippedRange] = []
    with kstore.open_log(path) as log:
        rows = [record.offset for record in log.read(on_error="skip", on_skip=skipped.append)]
    return rows, [(*one.topic_partition, *one[1:]) for one in skipped]


DAMAGE = {
    "crc": {3: 70, 25: 75},
    "adjacent": {3: 70, 4: 70, 5: 70},
    "size": {3: 11, 30: 10},
    "magic": {7: 16},
    "base-offset": {6: 6, 31: 5},
    "first-and-last": {0: 70, 19: 70, 20: 70, 39: 70},
    "end": {38: 70, 39: 11},
    "segment": dict.fromkeys(range(20), 70),
    "all": dict.fromkeys(range(40), 70),
    "none": {},
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_each_row_and_each_damage_is_there_once_however_the_read_is_split(
    tmp_path: Path, damage: dict[int, int]
) -> None:
    directory = write(tmp_path, damage=damage)
    rows, reports = expected(directory)
    assert bool(reports) == bool(damage)
    for split in SPLITS:
        assert offsets(read(directory, **split)) == rows, split
        assert damage_rows(directory, **split) == reports, split


def test_damage_is_in_the_log_of_the_task_once_for_each_range(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = write(tmp_path, damage=DAMAGE["adjacent"])
    _, reports = expected(directory)
    for split in SPLITS:
        caplog.clear()
        with caplog.at_level(logging.WARNING, "kstore.spark"):
            read(directory, **split)
        assert [(one.name, one.levelname) for one in caplog.records] == [("kstore.spark", "WARNING")]
        assert caplog.messages[0].startswith("skipped offsets 15 to 29 of t-0: "), split
        assert str(reports[0][2]) in caplog.messages[0]
        assert f"position {reports[0][3]} of" in caplog.messages[0]


def test_starting_and_ending_offsets_bound_what_is_reported(tmp_path: Path) -> None:
    directory = write(tmp_path, damage=DAMAGE["adjacent"])
    bounds = {"startingOffsets": '{"t":{"0":17}}', "endingOffsets": '{"t":{"0":28}}'}
    for split in SPLITS:
        assert offsets(read(directory, **bounds, **split)) == [], split
        ((*_, first, last, _),) = damage_rows(directory, **bounds, **split)
        assert (first, last) == (17, 27), split


def test_time_is_looked_up_among_the_sound_records(tmp_path: Path) -> None:
    directory = write(tmp_path, damage={3: 70})
    for name in directory.glob("*index"):
        name.unlink()
    time = str(1_600_000_000_000 + 17)
    assert offsets(read(directory, startingTimestamp=time)) == list(range(20, TOTAL))
    with pytest.raises(CorruptRecordError):
        read(directory, startingTimestamp=time, mode="FAILFAST")


def test_committed_read_is_that_of_kstore(tmp_path: Path) -> None:
    directory = write(tmp_path, damage=DAMAGE["crc"])
    rows, reports = expected(directory)
    for split in SPLITS:
        committed = {"kafka.isolation.level": "read_committed", **split}
        assert offsets(read(directory, **committed)) == rows
        assert damage_rows(directory, **committed) == reports


def test_clean_file_is_decoded_in_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = write(tmp_path, damage={})
    monkeypatch.setattr(sound_scan, "sound_parts", pytest.fail)
    assert offsets(read(directory)) == list(range(TOTAL))


def test_rows_before_damage_are_given_before_the_error(tmp_path: Path) -> None:
    directory = write(tmp_path, damage={25: 70})
    reader = KStoreDataSource(CaseInsensitiveDict({"path": str(directory)})).reader(RECORDS)
    (task,) = reader.partitions()
    batches_of_task = reader.read(task)
    found = [next(batches_of_task)]
    with pytest.raises(CorruptRecordError):
        next(batches_of_task)
    assert offsets(found) == list(range(25 * PER_BATCH))


def write_with_wrong_offsets(root: Path) -> Path:
    """Four batches in a row claim offsets that are too high by 100."""
    data = batches(0, BATCHES, records_per_batch=PER_BATCH, value_bytes=30)
    for number in range(10, 14):
        data[number] = patch_header(data[number], repair_crc=False, base_offset=number * PER_BATCH + 100)
    return write_partition(root, [data])


def test_wrong_offsets_that_later_batches_contradict_are_left_out(tmp_path: Path) -> None:
    directory = write_with_wrong_offsets(tmp_path)
    rows, reports = expected(directory)
    assert rows == [*range(50), *range(70, TOTAL)]
    assert offsets(read(directory)) == rows
    assert damage_rows(directory) == reports


def test_rows_returned_before_their_offsets_proved_wrong_fail_the_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = write_with_wrong_offsets(tmp_path)
    monkeypatch.setattr(sound_scan, "HELD_BYTES", 0)
    with pytest.raises(CorruptRecordError, match="rows were returned before later batches contradicted their offsets"):
        list(kstore.scan(directory, columns=["offset"], batch_bytes=1, on_error="skip", on_skip=lambda _: None))


@pytest.mark.parametrize("held_bytes", [0, 100, 500, 3000])
@pytest.mark.parametrize("damage", [{25: 70}, {3: 11, 30: 70}, {39: 70}], ids=str)
def test_damage_after_rows_that_were_returned_leaves_no_row_out_and_none_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_bytes: int, damage: dict[int, int]
) -> None:
    directory = write(tmp_path, damage=damage)
    rows, reports = expected(directory)
    monkeypatch.setattr(sound_scan, "HELD_BYTES", held_bytes)
    for batch_bytes in (1, 100, 1000):
        skipped: list[kstore.SkippedRange] = []
        found = kstore.scan(directory, batch_bytes=batch_bytes, on_error="skip", on_skip=skipped.append)
        assert offsets(list(found)) == rows
        assert [(*one.topic_partition, *one[1:]) for one in skipped] == reports


def test_schema_of_the_damage_is_fixed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="schema: rows=damage has its own, struct<topic:string,"):
        read(tmp_path, rows="damage")


@pytest.mark.spark
def test_damage_is_a_frame_of_its_own_type_and_the_limit_before_damage_is_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    directory = write(tmp_path, damage=DAMAGE["crc"])
    rows, reports = expected(directory)
    frame = spark.read.format("kstore").option("mode", "Permissive").load(str(directory))
    assert [row.offset for row in frame.select("offset").collect()] == rows
    found = kstore.spark.damage(spark, directory, subscribe="t", maxPartitionBytes="1k")
    assert found.schema == DAMAGE_SCHEMA
    assert found.rdd.getNumPartitions() > 1
    assert [tuple(row) for row in found.collect()] == reports
    assert kstore.spark.damage(spark, [str(directory)], assign='{"t":[0]}').count() == len(reports)
    failing = spark.read.format("kstore").load(str(directory))
    assert failing.limit(3).count() == 3
    with pytest.raises(PySparkException, match="CorruptRecordError"):
        failing.count()
