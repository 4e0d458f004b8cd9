"""Goal: batch reads cover the right files, in tasks of the right size, and fail clearly.
Method: directories of brokers and of the test builders, read through Spark, damaged and changed on copies."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.conf import RuntimeConfig
from pyspark.sql.functions import spark_partition_id

from kstore.spark import configure
from kstore.spark.planning import PACK_ABOVE
from tests.making.batches import batch, batches, flip_bit, write_partition, write_root

pytestmark = pytest.mark.spark

FILTER_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
ARROW = "spark.sql.execution.arrow"


@pytest.fixture
def restored_conf(spark: SparkSession) -> Iterator[RuntimeConfig]:
    """The session's settings; those a test changes are put back."""
    names = (FILTER_PUSHDOWN, f"{ARROW}.maxBytesPerBatch", f"{ARROW}.maxRecordsPerBatch")
    before = {name: spark.conf.get(name) for name in names}
    yield spark.conf
    for name, value in before.items():
        spark.conf.set(name, value)


def load(spark: SparkSession, path: Path | list[Path], **options: str) -> DataFrame:
    paths = [str(item) for item in path] if isinstance(path, list) else str(path)
    return spark.read.format("kstore").options(**options).load(paths)


def counts(frame: DataFrame) -> dict[str, int]:
    rows = frame.groupBy("topic", "partition").count().collect()
    return {f"{topic}-{partition}": count for topic, partition, count in rows}


def refuse(spark: SparkSession, frame_of: Callable[[], DataFrame], message: str) -> None:
    """The read fails before any job starts, and says why."""
    spark.sparkContext.setJobGroup(message, message)
    with pytest.raises(PySparkException, match=message):
        frame_of().collect()
    assert list(spark.sparkContext.statusTracker().getJobIdsForGroup(message)) == []


def test_partition_directory_is_a_path(spark: SparkSession, connector_directory: Path) -> None:
    assert counts(load(spark, connector_directory / "f.skew-1")) == {"f.skew-1": 100}


def test_paths_are_read_together(spark: SparkSession, connector_directory: Path) -> None:
    paths = [connector_directory / "f.skew-1", connector_directory / "f.small-0"]
    assert counts(load(spark, paths)) == {"f.skew-1": 100, "f.small-0": 100}
    assert counts(load(spark, paths, subscribe="f.small")) == {"f.small-0": 100}


def test_internal_topics_are_read_only_by_name(spark: SparkSession, connector_directory: Path) -> None:
    assert not [name for name in counts(load(spark, connector_directory)) if name.startswith("__")]
    state = {"__transaction_state-1": 23}
    assert counts(load(spark, connector_directory, subscribe="__transaction_state")) == state
    assert counts(load(spark, connector_directory, assign='{"__transaction_state":[1]}')) == state
    assert counts(load(spark, connector_directory / "__transaction_state-1")) == state


@pytest.mark.parametrize(
    ("path", "message"),
    [
        pytest.param("missing", "no such directory: .*/missing", id="missing"),
        pytest.param("f.small-0/partition.metadata", "not a directory: .*/partition.metadata", id="file"),
        pytest.param("", "path must not be empty", id="empty"),
        pytest.param("nothing://namenode/data", "cannot read nothing://namenode", id="no-file-system"),
    ],
)
def test_bad_path_is_refused(spark: SparkSession, connector_directory: Path, path: str, message: str) -> None:
    full = path if "://" in path or not path else str(connector_directory / path)
    refuse(spark, lambda: spark.read.format("kstore").option("path", full).load(), message)


def test_no_path_is_refused(spark: SparkSession) -> None:
    refuse(spark, lambda: spark.read.format("kstore").load(), "path must be given")


def test_replica_in_two_directories_is_refused(spark: SparkSession, connector_directory: Path, tmp_path: Path) -> None:
    shutil.copytree(connector_directory / "f.small-0", tmp_path / "f.small-0")
    refuse(spark, lambda: load(spark, [connector_directory, tmp_path]), "f.small-0 found twice")


def test_frame_is_a_snapshot_of_its_first_action(
    spark: SparkSession, connector_directory: Path, tmp_path: Path
) -> None:
    """The connector counted 40, then 45 with the same frame; a Python data source is planned once."""
    for name in ("f.grow-0", "f.grow-1"):
        shutil.copytree(connector_directory / name, tmp_path / name)
    log = tmp_path / "f.grow-0" / "00000000000000000000.log"
    whole = log.read_bytes()
    log.write_bytes(whole[:251])
    frame = load(spark, tmp_path)
    assert frame.count() == 40
    log.write_bytes(whole[:367])
    assert (frame.count(), load(spark, tmp_path).count()) == (40, 45)
    log.write_bytes(whole)
    assert (frame.count(), load(spark, tmp_path).count()) == (40, 50)


def test_damaged_batch_fails_the_task_with_its_place(spark: SparkSession, tmp_path: Path) -> None:
    segment = batches(0, 3, records_per_batch=10, value_bytes=100)
    directory = write_partition(tmp_path, [segment], topic="flights", partition=3)
    log = directory / "00000000000000000000.log"
    position = len(segment[0])
    flip_bit(log, position + len(segment[1]) - 1, bit=0)
    with pytest.raises(PySparkException) as caught:
        load(spark, tmp_path).collect()
    message = str(caught.value)
    stored = int.from_bytes(segment[1][17:21], "big")
    assert "CorruptRecordError" in message
    assert f"flights-3/{log.name}" in message
    assert f"position {position}" in message
    assert f"{stored:08x}" in message
    assert "stored" in message
    assert "computed" in message
    assert load(spark, tmp_path, endingOffsets='{"flights":{"3":10}}').count() == 10


def test_large_partition_is_cut_by_size_and_read_once(spark: SparkSession, tmp_path: Path) -> None:
    segments = [batches(first, 100, records_per_batch=10, value_bytes=100) for first in (0, 1000)]
    size = sum(len(data) for segment in segments for data in segment)
    write_partition(tmp_path, segments)
    frame = load(spark, tmp_path, maxPartitionBytes="32k").select(spark_partition_id().alias("task"), "offset")
    assert frame.rdd.getNumPartitions() >= size // 2**15
    rows = frame.collect()
    assert [row.offset for row in rows] == list(range(2000))
    assert max(Counter(row.task for row in rows).values()) <= 2**15 // 100


def test_many_small_partitions_share_tasks(spark: SparkSession, tmp_path: Path) -> None:
    count = PACK_ABOVE + 20
    write_root(tmp_path, {f"t-{number}": [[batch(0, 2)]] for number in range(count)})
    frame = load(spark, tmp_path)
    assert frame.rdd.getNumPartitions() <= PACK_ABOVE
    assert counts(frame) == {f"t-{number}": 2 for number in range(count)}
    assert load(spark, tmp_path, minPartitions=str(count)).rdd.getNumPartitions() == count


@pytest.mark.parametrize("is_on", ["true", "false"])
def test_filters_are_spark_s_own_unless_pushed(
    spark: SparkSession, restored_conf: RuntimeConfig, connector_directory: Path, is_on: str
) -> None:
    restored_conf.set(FILTER_PUSHDOWN, is_on)
    frame = load(spark, connector_directory, subscribe="f.small")
    assert (frame.where("partition = 0 AND offset > 5").count(), frame.count()) == (94, 200)


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        pytest.param("partition = 0 AND offset > 5", 94, id="partition-offset"),
        pytest.param("topic = 'f.small' AND partition IN (1, 2) AND offset <= 9", 10, id="topic-in"),
        pytest.param("topic = 'f.back'", 0, id="no-partition"),
        pytest.param("offset > 99", 0, id="no-offset"),
        pytest.param("timestamp >= timestamp_millis(1700000050000)", 100, id="from-time"),
        pytest.param("timestamp < timestamp_millis(1700000010001)", 22, id="to-time"),
        pytest.param("timestamp > timestamp_millis(1700000099000)", 0, id="after-all"),
        pytest.param("offset = 7 AND value IS NULL", 2, id="left-to-spark"),
        pytest.param("key = X'6B35' OR offset = 9", 4, id="or"),
    ],
)
def test_pushed_filters_give_the_same_rows(
    spark: SparkSession, restored_conf: RuntimeConfig, connector_directory: Path, condition: str, count: int
) -> None:
    unpushed = load(spark, connector_directory, subscribe="f.small").where(condition)
    restored_conf.set(FILTER_PUSHDOWN, "true")
    pushed = load(spark, connector_directory, subscribe="f.small", pushFilters="true").where(condition)
    assert pushed.count() == unpushed.count() == count


def test_time_filter_holds_where_times_go_back(
    spark: SparkSession, restored_conf: RuntimeConfig, connector_directory: Path
) -> None:
    restored_conf.set(FILTER_PUSHDOWN, "true")
    frame = load(spark, connector_directory, subscribe="f.back", pushFilters="true")
    late = frame.where("timestamp >= timestamp_millis(1700000002000) AND timestamp < timestamp_millis(1700000009000)")
    assert [row.offset for row in late.select("offset").collect()] == [0, 3]


def test_pushed_offsets_reach_the_plan(
    spark: SparkSession, restored_conf: RuntimeConfig, connector_directory: Path
) -> None:
    restored_conf.set(FILTER_PUSHDOWN, "true")
    frame = load(spark, connector_directory, subscribe="f.skew", pushFilters="true", maxRecordsPerPartition="10")
    assert frame.where("partition = 0 AND offset < 20").rdd.getNumPartitions() == 2


def test_push_filters_without_spark_s_setting_changes_nothing(
    spark: SparkSession, restored_conf: RuntimeConfig, connector_directory: Path
) -> None:
    restored_conf.set(FILTER_PUSHDOWN, "false")
    frame = load(spark, connector_directory, subscribe="f.small", pushFilters="true")
    assert (frame.where("partition = 0").count(), frame.count()) == (100, 200)


@pytest.mark.parametrize(("record_size_bytes", "records"), [(0, "10000"), (1024, "4096"), (10**6, "1000")])
def test_configure_sets_the_sizes_of_batches(
    spark: SparkSession, restored_conf: RuntimeConfig, record_size_bytes: int, records: str
) -> None:
    assert configure(spark, record_size_bytes=record_size_bytes) is spark
    assert restored_conf.get(f"{ARROW}.maxBytesPerBatch") == "2147483647"
    assert restored_conf.get(f"{ARROW}.maxRecordsPerBatch") == records


@pytest.mark.parametrize(("variable", "python"), [(None, sys.executable), ("/other/python", "/other/python")])
def test_configure_of_a_builder_chooses_this_python_unless_one_is_chosen(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, python: str
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", variable or "")
    if variable is None:
        monkeypatch.delenv("PYSPARK_PYTHON")
    builder = SparkSession.Builder()
    assert configure(builder, record_size_bytes=1024) is builder
    assert os.environ["PYSPARK_PYTHON"] == python
    assert builder._options[f"{ARROW}.maxRecordsPerBatch"] == "4096"


def test_configure_refuses_a_negative_size(spark: SparkSession, restored_conf: RuntimeConfig) -> None:
    with pytest.raises(ValueError, match="record_size_bytes must not be negative, got -1"):
        configure(spark, record_size_bytes=-1)


def test_registration_imports_neither_kstore_nor_pyarrow_and_survives_their_absence() -> None:
    """Spark imports pyspark_kstore in every session with Python data sources, ours or not."""
    script = (
        "import sys; sys.modules['kstore'] = sys.modules['pyarrow'] = None; import pyspark_kstore; "
        "print(pyspark_kstore.DefaultSource.name())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("kstore\n", 0), done.stderr


def test_misspelt_option_is_refused_before_any_job(spark: SparkSession, connector_directory: Path) -> None:
    message = r"unknown option subscibe; did you mean subscribe\?"
    refuse(spark, lambda: load(spark, connector_directory, subscibe="f.small"), message)


def test_options_that_spark_adds_of_itself_are_known(spark: SparkSession, connector_directory: Path) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW small (offset BIGINT) USING kstore "
        f"OPTIONS (path '{connector_directory}', subscribe 'f.small')"
    )
    assert spark.sql("SELECT offset FROM small").count() == 200
    spark.sql(f"CREATE TABLE created USING kstore OPTIONS (path '{connector_directory}', subscribe 'f.small')")
    spark.sql("DROP TABLE created")
