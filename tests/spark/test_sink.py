"""Goal: format("kstore") writes what Spark's Kafka sink writes, and each micro-batch exactly once.
Method: real Spark on stores in temporary folders; the rows of the connector's observations, each a test; queries that
are restarted as after a crash, by taking from their checkpoint that a batch was committed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql.streaming import StreamingQuery

from kstore.producer import partition_for_key
from kstore.staging import StagingArea
from kstore.staging.area import CONTROL_PARTITION
from kstore.staging.committed import CommittedVersions
from kstore.store.checks import verify
from kstore.store.store import open_store
from kstore.types import SINK_TOPIC
from tests.making.collecting import over
from tests.making.staging import PARTITIONS, TOPIC, make_root

pytestmark = pytest.mark.spark

ONE = "f.other"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = make_root(tmp_path / "root")
    with open_store(root, "a") as store:
        store.create_topic(ONE)
    return root


def records(root: Path, topic: str = TOPIC) -> list[tuple[Any, Any]]:
    """(key, value) of the committed records of a topic, by partition and offset."""
    with open_store(root) as store:
        return [
            (record.key, record.value)
            for one in store.partitions
            if one.topic == topic
            for record in store.log(*one).read(isolation="read_committed")
        ]


def check_settled(root: Path) -> None:
    """Check that nothing is staged, no transaction is open, and every byte is as it should be."""
    assert [path for path in Path(StagingArea(root).path).rglob("*") if path.is_file()] == []
    with open_store(root) as store:
        for one in store.partitions:
            log = store.log(*one)
            assert log.transactions().last_stable_offset == log.log_end_offset
    assert [one.damage for one in verify(root).partitions if one.damage] == []


def to(root: Path, frame: DataFrame, **options: str) -> DataFrameWriter:
    writer = frame.write.format("kstore").option("path", str(root))
    for name, value in options.items():
        writer = writer.option(name.replace("__", "."), value)
    return writer.mode("append")


# Batch writes: each row of the observations of Spark's Kafka sink.


WRITTEN: dict[str, tuple[Callable[[SparkSession], DataFrame], dict[str, str], list[tuple[Any, Any, Any]]]] = {
    "a range of values": (
        lambda spark: spark.range(5).selectExpr("cast(id as string) value"),
        {"topic": ONE},
        [(None, b"%d" % number, ()) for number in range(5)],
    ),
    "topic column and option": (
        lambda spark: spark.sql("select 'f.nope' topic, 'a' value"),
        {"topic": ONE},
        [(None, b"a", ())],
    ),
    "extra column": (lambda spark: spark.sql("select 'a' value, 1 other"), {"topic": ONE}, [(None, b"a", ())]),
    "timestamp column": (
        lambda spark: spark.sql("select 'a' value, timestamp'2024-01-01 00:00:00' timestamp"),
        {"topic": ONE},
        [(None, b"a", ())],
    ),
    "headers": (
        lambda spark: spark.sql("select 'a' value, array(named_struct('key', 'k', 'value', binary('v'))) headers"),
        {"topic": ONE},
        [(None, b"a", (("k", b"v"),))],
    ),
    "value null": (lambda spark: spark.sql("select cast(null as string) value"), {"topic": ONE}, [(None, None, ())]),
    "binary key and value": (
        lambda spark: spark.sql("select binary('k') key, binary('v') value"),
        {"topic": ONE},
        [(b"k", b"v", ())],
    ),
    "topic column": (lambda spark: spark.sql(f"select '{ONE}' topic, 'a' value"), {}, [(None, b"a", ())]),
}


@over("name", list(WRITTEN), by=lambda _: "rows")
def test_sink_writes_what_sparks_kafka_sink_writes(spark: SparkSession, tmp_path: Path, name: str) -> None:
    root = make_root(tmp_path / "root")
    with open_store(root, "a") as store:
        store.create_topic(ONE)
    frame, options, expected = WRITTEN[name]
    to(root, frame(spark), **options).save()
    with open_store(root) as store:
        found = [(one.key, one.value, tuple(one.headers)) for one in store.log(ONE).read(isolation="read_committed")]
    assert found == expected
    check_settled(root)


REFUSED = {
    "no topic": ("select 'a' value", {}, "topic option required when no 'topic' attribute is present"),
    "no value column": ("select 'a' key", {"topic": ONE}, "Required attribute 'value' not found"),
    "value int": (
        "select 1L value",
        {"topic": ONE},
        "value attribute unsupported type bigint. value must be a(n) string",
    ),
    "key int": ("select 1L key, 'a' value", {"topic": ONE}, "key attribute unsupported type bigint. key must be a(n)"),
    "headers wrong type": (
        "select 'a' value, array('x') headers",
        {"topic": ONE},
        "headers attribute unsupported type array<string>. headers must be a(n) array<struct<key:string,value:binary>>",
    ),
    "topic column null": (
        "select cast(null as string) topic, 'a' value",
        {},
        "The Kafka message data sent to the producer contains a null topic. Use the `topic` option",
    ),
    "partition column out of range": (
        "select 'a' value, 7 partition",
        {"topic": ONE},
        f"partition 7 of topic '{ONE}' is not among its 1 partitions",
    ),
    "missing topic": ("select 'a' value", {"topic": "f.nope"}, "topic 'f.nope' is not in"),
    "missing topic in the column": ("select 'f.nope' topic, 'a' value", {}, "topic 'f.nope' is not in"),
    "misspelt option": ("select 'a' value", {"topik": ONE}, "unknown option topik; did you mean topic?"),
    "misspelt setting": (
        "select 'a' value",
        {"topic": ONE, "kafka.batch.sise": "1"},
        "a producer has no setting kafka.batch.sise; did you mean kafka.batch.size?",
    ),
}


@over("name", list(REFUSED), by=lambda _: "rows")
def test_sink_refuses_what_sparks_kafka_sink_refuses(spark: SparkSession, tmp_path: Path, name: str) -> None:
    root = make_root(tmp_path / "root")
    with open_store(root, "a") as store:
        store.create_topic(ONE)
    query, options, message = REFUSED[name]
    with pytest.raises(PySparkException, match=re.escape(message)):
        to(root, spark.sql(query), **options).save()
    assert records(root, ONE) == []
    check_settled(root)


@pytest.mark.parametrize("mode", ["overwrite", "ignore", "errorifexists"])
def test_other_save_modes_than_append_are_refused(spark: SparkSession, root: Path, mode: str) -> None:
    writer = to(root, spark.sql("select 'a' value"), topic=ONE).mode(mode)
    with pytest.raises(AnalysisException, match=r'use mode\("append"\)|Please use either the "Append"'):
        writer.save()
    assert records(root, ONE) == []


def test_rows_of_all_tasks_are_written_by_key_and_read_back(spark: SparkSession, root: Path) -> None:
    frame = spark.range(0, 10_000, 1, 4).selectExpr("cast(id as string) key", "repeat(cast(id as string), 5) value")
    to(root, frame, topic=TOPIC, kafka__compression__type="lz4", kafka__batch__size="4096").save()
    found = spark.read.format("kstore").load(str(root))
    assert found.count() == 10_000
    rows = found.select("partition", "key", "value").collect()
    assert {(bytes(row.key), bytes(row.value)) for row in rows} == {
        (b"%d" % number, b"%d" % number * 5) for number in range(10_000)
    }
    assert all(row.partition == partition_for_key(bytes(row.key), PARTITIONS) for row in rows)
    with open_store(root) as store:
        assert {batch.header.codec for batch in store.log(TOPIC).batches() if not batch.header.is_control} == {3}
    check_settled(root)


def test_version_of_an_application_is_written_once(spark: SparkSession, root: Path) -> None:
    frame = spark.range(100).selectExpr("cast(id as string) value")
    for version in ("1", "1", "0", "2"):
        to(root, frame, topic=TOPIC, txnAppId="jobs/daily", txnVersion=version).save()
    assert Counter(value for _, value in records(root)) == {b"%d" % number: 2 for number in range(100)}
    for _ in range(2):
        to(root, frame, topic=TOPIC).save()
    assert len(records(root)) == 400
    check_settled(root)


def test_write_while_another_writer_has_the_root_fails_after_a_wait(spark: SparkSession, root: Path) -> None:
    frame = spark.sql("select 'a' value")
    with open_store(root, "a"), pytest.raises(PySparkException, match="waited 50 ms"):
        to(root, frame, topic=TOPIC, kafka__max__block__ms="50").save()
    assert records(root) == []
    to(root, frame, topic=TOPIC).save()
    assert records(root) == [(None, b"a")]
    check_settled(root)


def test_task_that_fails_leaves_nothing(spark: SparkSession, root: Path) -> None:
    frame = spark.range(0, 1000, 1, 1).selectExpr("if(id = 999, raise_error('broken row'), cast(id as string)) value")
    with pytest.raises(PySparkException, match="broken row"):
        to(root, frame, topic=TOPIC).save()
    assert records(root) == []
    check_settled(root)


# Streams.


class Stream:
    """A query that reads files of numbers, one file a micro-batch, and writes them to a root."""

    def __init__(self, spark: SparkSession, root: Path, path: Path) -> None:
        self._spark = spark
        self._root = root
        self._source = path / "source"
        self._source.mkdir(parents=True)
        self.checkpoint = path / "checkpoint"
        self._files = 0

    def add(self, *numbers: int) -> None:
        hidden = self._source / f"_{self._files}.txt"
        hidden.write_text("".join(f"{number}\n" for number in numbers))
        hidden.rename(self._source / f"{self._files}.txt")
        self._files += 1

    def run(self, change: Callable[[DataFrame], DataFrame] = lambda frame: frame, **options: str) -> StreamingQuery:
        frame = self._spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(self._source))
        writer = change(frame).writeStream.format("kstore").option("checkpointLocation", str(self.checkpoint))
        for name, value in {"path": str(self._root), "topic": TOPIC, **options}.items():
            writer = writer.option(name, value)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    def forget_commit(self, batch_id: int) -> None:
        """Make the checkpoint that of a driver that died after the sink had committed and before Spark noted it."""
        for path in (self.checkpoint / "commits").glob(f"*{batch_id}*"):
            if path.name.strip(".").split(".")[0] == str(batch_id):
                path.unlink()


def numbers_in(root: Path) -> list[int]:
    return sorted(int(value) for _, value in records(root))


def test_each_micro_batch_is_one_transaction(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    stream = Stream(spark, root, tmp_path)
    for first in (0, 10, 20):
        stream.add(*range(first, first + 10))
    query = stream.run()
    assert numbers_in(root) == list(range(30))
    with open_store(root) as store:
        assert CommittedVersions.read(store.log(*CONTROL_PARTITION)).version_of(query.id) == 2
        transactions = {
            (batch.header.producer_id, batch.header.producer_epoch)
            for partition in range(PARTITIONS)
            for batch in store.log(TOPIC, partition).batches()
            if not batch.header.is_control
        }
    assert len(transactions) == 3
    check_settled(root)


def test_micro_batch_that_is_run_again_changes_nothing(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    stream = Stream(spark, root, tmp_path)
    stream.add(*range(10))
    stream.add(*range(10, 20))
    stream.run()
    stream.forget_commit(1)
    stream.add(*range(20, 30))
    stream.run()
    stream.forget_commit(2)
    query = stream.run(lambda frame: frame.repartition(3))
    assert numbers_in(root) == list(range(30))
    with open_store(root) as store:
        assert CommittedVersions.read(store.log(*CONTROL_PARTITION)).version_of(query.id) == 2
    check_settled(root)


def test_micro_batch_that_failed_is_written_once_when_the_query_is_started_again(
    spark: SparkSession, root: Path, tmp_path: Path
) -> None:
    stream = Stream(spark, root, tmp_path)
    stream.add(1, 2, 3)
    stream.run()
    stream.add(4, 5, 6)
    broken = "if(value = '6', raise_error('broken row'), value) value"
    with pytest.raises(StreamingQueryException, match="broken row"):
        stream.run(lambda frame: frame.selectExpr(broken))
    assert numbers_in(root) == [1, 2, 3]
    with open_store(root, "a"), pytest.raises(StreamingQueryException, match="waited 20 ms"):
        stream.run(**{"kafka.max.block.ms": "20"})
    stream.run()
    assert numbers_in(root) == [1, 2, 3, 4, 5, 6]
    check_settled(root)


def test_two_queries_write_one_root_and_one_topic(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    streams = [Stream(spark, root, tmp_path / name) for name in ("a", "b")]
    for turn in range(3):
        for number, stream in enumerate(streams):
            stream.add(*range(100 * number + 10 * turn, 100 * number + 10 * turn + 10))
            stream.run()
    streams[0].forget_commit(2)
    streams[0].run()
    assert numbers_in(root) == [*range(30), *range(100, 130)]
    check_settled(root)


def test_empty_micro_batch_needs_no_transaction(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    stream = Stream(spark, root, tmp_path)
    stream.add(1)
    stream.run(lambda frame: frame.where("value <> '1'"))
    with open_store(root) as store:
        assert store.log(SINK_TOPIC).log_end_offset == 0
    stream.add(2)
    stream.run()
    assert numbers_in(root) == [2]


def test_foreach_batch_with_an_application_is_written_once(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "0.txt").write_text("1\n2\n")
    checkpoint = tmp_path / "checkpoint"

    def write(frame: DataFrame, batch_id: int) -> None:
        to(root, frame, topic=TOPIC, txnAppId="feeder", txnVersion=str(batch_id)).save()

    def run() -> None:
        frame = spark.readStream.format("text").load(str(source))
        writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    run()
    for path in (checkpoint / "commits").glob("*0*"):
        path.unlink()
    run()
    assert numbers_in(root) == [1, 2]
    check_settled(root)


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_stream_in_another_mode_than_append_is_refused(
    spark: SparkSession, root: Path, tmp_path: Path, mode: str
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "0.txt").write_text("1\n")
    frame = spark.readStream.format("text").load(str(source)).groupBy("value").count().select("value")
    writer = frame.writeStream.format("kstore").outputMode(mode).option("path", str(root)).option("topic", TOPIC)
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match=r"does not support Update mode|appends only"):
        query.awaitTermination()
    assert records(root) == []


def test_mistake_in_a_stream_is_named(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    stream = Stream(spark, root, tmp_path)
    stream.add(1)
    for options, message in (
        ({"topik": "x"}, "unknown option topik; did you mean topic?"),
        ({"txnAppId": "x", "txnVersion": "1"}, "txnAppId and txnVersion are for batch writes"),
        ({"topic": "nope"}, "topic 'nope' is not in"),
    ):
        with pytest.raises(StreamingQueryException) as found:
            stream.run(**options)
        assert message in str(found.value)
