"""Goal: each row becomes a record of its topic and partition, in order, with Kafka's types; wrong rows are named.
Method: Arrow batches as Spark sends them, staged by the calls of Spark's workers in this process; no JVM."""

from __future__ import annotations

import gc
import pickle
import sys
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import datasource
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceArrowWriter
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

import kstore
from kstore.errors import RecordTooLargeError, StorageError, UnknownTopicOrPartitionError, UnsupportedError
from kstore.producer import ColumnsFuture, Producer, ProducerConfig, partition_for_key
from kstore.spark.sink import rows as rows_module
from kstore.spark.sink.writers import settle_worker
from kstore.staging import StagingArea, StagingSink
from kstore.store.store import open_store
from pyspark_kstore import DefaultSource
from tests.making.staging import PARTITIONS, TOPIC, make_root

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Found = dict[tuple[str, int], list[tuple[Any, Any]]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = make_root(tmp_path / "root")
    with open_store(root, "a") as store:
        store.create_topic("other", 2)
    return root


TYPES = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "array<string>": ArrayType(StringType()),
    "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}


def schema_of(text: str) -> StructType:
    """The schema of "NAME TYPE, ..."; Spark's own parser needs a JVM."""
    fields = (field.split() for field in text.split(", "))
    return StructType([StructField(name, TYPES[kind]) for name, kind in fields])


def writer_of(root: Path, schema: str, **options: str) -> DataSourceArrowWriter:
    """A writer as it arrives in a worker."""
    given = CaseInsensitiveDict(
        {"path": str(root), **{name.replace("__", "."): text for name, text in options.items()}}
    )
    writer = DefaultSource(given).writer(schema_of(schema), False)
    assert isinstance(writer, DataSourceArrowWriter)
    found: DataSourceArrowWriter = pickle.loads(pickle.dumps(writer))
    return found


def write(root: Path, schema: str, *batches: pa.RecordBatch, **options: str) -> Found:
    """Write batches as one task would, commit them, and return (key, value) of each partition's records."""
    writer = writer_of(root, schema, **options)
    message = pickle.loads(pickle.dumps(writer.write(iter(batches))))
    writer_of(root, schema, **options).commit([message])
    found: Found = {}
    with open_store(root) as store:
        for one in store.partitions:
            if not one.topic.startswith("__"):
                records = [(record.key, record.value) for record in store.log(*one).read(isolation="read_committed")]
                if records:
                    found[tuple(one)] = records
    return found


def texts(*values: Any) -> pa.Array:
    return pa.array(values, pa.string())


def test_rows_are_placed_by_key_as_kafkas_producer_does(root: Path) -> None:
    keys = [b"%d" % number for number in range(100)]
    batch = pa.record_batch({"key": pa.array(keys), "value": pa.array(keys)})
    found = write(root, "key binary, value binary", batch, topic=TOPIC)
    assert found == {
        (TOPIC, number): [(key, key) for key in keys if partition_for_key(key, PARTITIONS) == number]
        for number in range(PARTITIONS)
    }


@pytest.mark.parametrize("partitions", [[None] * 100, [2] + [None] * 99], ids=["no partition", "some"])
def test_keys_do_not_place_rows_if_they_are_to_be_ignored(root: Path, partitions: list[int | None]) -> None:
    keys = [b"%d" % number for number in range(100)]
    columns = {"key": pa.array(keys), "value": pa.array(keys), "partition": pa.array(partitions, pa.int32())}
    options = {"topic": TOPIC, "kafka.partitioner.ignore.keys": "true"}
    found = write(root, "key binary, value binary, partition int", pa.record_batch(columns), **options)
    named = [(keys[at], keys[at]) for at, given in enumerate(partitions) if given == 2]
    assert found.get((TOPIC, 2), [])[: len(named)] == named
    # The sticky partition, and the one that the column names.
    assert len(found) <= 1 + len(named)
    assert sum(map(len, found.values())) == 100


def test_strings_are_written_as_utf8_and_nulls_as_null(root: Path) -> None:
    batch = pa.record_batch({"key": texts("é", None), "value": texts(None, "ü")})
    found = write(root, "key string, value string", batch, topic=TOPIC)
    assert sorted(record for records in found.values() for record in records if record[0]) == [("é".encode(), None)]
    assert [record for records in found.values() for record in records if not record[0]] == [(None, "ü".encode())]


def test_each_row_goes_to_its_topic(root: Path) -> None:
    batch = pa.record_batch(
        {
            "topic": texts("other", TOPIC, "other", TOPIC),
            "value": texts("a", "b", "c", "d"),
            "partition": pa.array([1, 0, 1, 0], pa.int32()),
        }
    )
    found = write(root, "topic string, value string, partition int", batch)
    assert found == {("other", 1): [(None, b"a"), (None, b"c")], (TOPIC, 0): [(None, b"b"), (None, b"d")]}


def test_option_topic_is_that_of_all_rows_as_in_sparks_kafka_sink(root: Path) -> None:
    batch = pa.record_batch({"topic": texts("other", None), "value": texts("a", "b")})
    found = write(root, "topic string, value string", batch, topic=TOPIC)
    assert {topic for topic, _ in found} == {TOPIC}


def test_rows_of_a_partition_stay_in_order_whether_named_or_by_key(root: Path) -> None:
    keys = [b"k%d" % (number % 7) for number in range(300)]
    named = [number % PARTITIONS if number % 2 else None for number in range(300)]
    values = [b"%d" % number for number in range(300)]
    batch = pa.record_batch(
        {"key": pa.array(keys), "value": pa.array(values), "partition": pa.array(named, pa.int32())}
    )
    found = write(root, "key binary, value binary, partition int", batch.slice(0, 100), batch.slice(100), topic=TOPIC)
    expected: Found = {}
    for key, value, partition in zip(keys, values, named, strict=True):
        place = partition_for_key(key, PARTITIONS) if partition is None else partition
        expected.setdefault((TOPIC, place), []).append((key, value))
    assert found == expected


def test_order_is_kept_over_batches_that_are_sent_apart(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "_JOINED_BYTES", 500)
    values = [b"%05d" % number for number in range(5000)]
    table = pa.table({"value": pa.array(values), "partition": pa.array([1] * 5000, pa.int32())})
    found = write(root, "value binary, partition int", *table.to_batches(max_chunksize=37), topic=TOPIC)
    assert [value for _, value in found[TOPIC, 1]] == values


class FailsOnce:
    """A producer of which the n-th send of columns fails, and no other."""

    def __init__(self, failing: int) -> None:
        self.sent = 0
        self._failing = failing
        self.config = ProducerConfig()

    def send_columns(self, topic: str, columns: pa.RecordBatch, *, partition: int | None = None) -> ColumnsFuture:
        del topic, columns, partition
        self.sent += 1
        future = Future[None]()
        if self.sent == self._failing:
            future.set_exception(StorageError(f"send {self.sent} failed"))
        else:
            future.set_result(None)
        return cast("ColumnsFuture", future)

    def flush(self) -> None:
        pass


class AnySink:
    def partition_count(self, topic: str) -> int:
        return len(topic[:1])


@pytest.mark.parametrize("failing", [1, 4, 5, 9, 12])
def test_an_error_of_one_of_many_sends_fails_the_task(failing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "_JOINED_BYTES", 1)
    monkeypatch.setattr(rows_module, "_MOST_FUTURES", 4)
    producer = FailsOnce(failing)
    sender = rows_module.RowSender(cast("Producer", producer), cast("StagingSink", AnySink()), topic=TOPIC)

    def write_all() -> None:
        for _ in range(12):
            sender.write(pa.record_batch({"value": texts("a")}))
        sender.finish()

    with pytest.raises(StorageError, match=f"send {failing} failed"):
        write_all()
    assert producer.sent == min(12, -(-failing // 4) * 4)


def test_headers_and_timestamps_are_those_of_the_row(root: Path) -> None:
    batch = pa.record_batch(
        {
            "value": texts("a", "b", "c"),
            "headers": pa.array([[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], [], None], HEADERS),
            "timestamp": pa.array([1_700_000_000_123_999, 0, None], pa.timestamp("us", "UTC")),
            "partition": pa.array([0, 0, 0], pa.int32()),
        }
    )
    before_ms = kstore.producer.SYSTEM_CLOCK.wall_clock_ms()
    schema = "value string, headers headers, timestamp timestamp, partition int"
    write(root, schema, batch, topic=TOPIC)
    with open_store(root) as store:
        records = list(store.log(TOPIC, 0).read())
    assert [list(record.headers) for record in records] == [[("h", b"1"), ("h", None)], [], []]
    assert [record.timestamp_ms for record in records[:2]] == [1_700_000_000_123, 0]
    assert before_ms <= records[2].timestamp_ms <= kstore.producer.SYSTEM_CLOCK.wall_clock_ms()


def test_columns_that_the_sink_does_not_know_are_ignored(root: Path) -> None:
    batch = pa.record_batch({"id": pa.array([1]), "Value": pa.array([2]), "value": texts("a"), "offset": pa.array([9])})
    found = write(root, "id bigint, Value bigint, value string, offset bigint", batch, topic=TOPIC)
    assert list(found.values()) == [[(None, b"a")]]


def test_missing_topics_are_created_if_the_option_says_how_large(root: Path) -> None:
    batch = pa.record_batch({"topic": texts("new", TOPIC), "key": texts("k", "k"), "value": texts("a", "b")})
    with pytest.raises(UnknownTopicOrPartitionError, match=r"'new' is not in .* which has: other, t\. .*createTopics"):
        write(root, "topic string, key string, value string", batch)
    found = write(root, "topic string, key string, value string", batch, createTopics="7")
    assert found["new", partition_for_key(b"k", 7)] == [(b"k", b"a")]
    writer_of(root, "value string", topic="option", createTopics="2")
    with open_store(root) as store:
        assert [one.topic for one in store.partitions].count("new") == 7
        assert [one.topic for one in store.partitions].count("option") == 2


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("value bigint", r"value attribute unsupported type bigint. value must be a\(n\) string or binary"),
        ("key bigint, value string", r"key attribute unsupported type bigint. key must be a\(n\) string or binary"),
        ("key string", "Required attribute 'value' not found"),
        ("value string, headers array<string>", "headers attribute unsupported type array<string>. headers must be"),
        (
            "value string, partition bigint",
            r"partition attribute unsupported type bigint. partition must be a\(n\) int",
        ),
        ("value string, timestamp bigint", "timestamp attribute unsupported type bigint"),
        ("value string, topic binary", "topic attribute unsupported type binary"),
        ("value string, value binary", "column value is there 2 times"),
    ],
)
def test_column_of_another_type_is_refused_as_in_sparks_kafka_sink(root: Path, schema: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        writer_of(root, schema, topic=TOPIC)


def test_write_without_a_topic_is_refused_before_any_task(root: Path) -> None:
    with pytest.raises(ValueError, match="topic option required when no 'topic' attribute is present"):
        writer_of(root, "value string")
    with pytest.raises(UnknownTopicOrPartitionError, match=r"'nope' is not in .*createTopics"):
        writer_of(root, "value string", topic="nope")
    with pytest.raises(ValueError, match=r"appends only: use mode\(\"append\"\)"):
        DefaultSource(CaseInsensitiveDict({"path": str(root), "topic": TOPIC})).writer(schema_of("value string"), True)


PARTITION = pa.array([0], pa.int32())


@pytest.mark.parametrize(
    ("columns", "kind", "message"),
    [
        ({"topic": texts(None), "value": texts("a")}, ValueError, "contains a null topic"),
        (
            {"topic": texts(TOPIC), "value": texts("a"), "partition": pa.array([7], pa.int32())},
            UnknownTopicOrPartitionError,
            "partition 7 of topic 't' is not among its 3 partitions",
        ),
        (
            {"topic": texts(TOPIC), "value": texts("a"), "partition": pa.array([-1], pa.int32())},
            ValueError,
            "partition must be from 0",
        ),
        ({"topic": texts("__kstore_sink"), "value": texts("a")}, ValueError, "internal"),
        ({"topic": texts(TOPIC), "value": texts("x" * 1_100_000)}, RecordTooLargeError, "expected at most 1048576"),
        (
            {"topic": texts(TOPIC), "value": texts("a"), "timestamp": pa.array([-5000], pa.timestamp("us", "UTC"))},
            ValueError,
            "timestamp",
        ),
        (
            {"topic": texts(TOPIC), "value": texts("a"), "headers": pa.array([[{"key": None, "value": b""}]], HEADERS)},
            ValueError,
            "key",
        ),
    ],
    ids=["null-topic", "partition-too-high", "partition-below-0", "internal", "too-large", "timestamp", "header-key"],
)
def test_wrong_row_fails_its_task_and_leaves_no_file(
    root: Path, columns: dict[str, pa.Array], kind: type[Exception], message: str
) -> None:
    types = {
        "topic": "string",
        "value": "string",
        "partition": "int",
        "timestamp": "timestamp",
        "headers": "headers",
    }
    writer = writer_of(root, ", ".join(f"{name} {types[name]}" for name in columns))
    good = pa.record_batch({"topic": texts("other"), "value": texts("good")})
    missing = {name: pa.nulls(1, column.type) for name, column in columns.items() if name not in ("topic", "value")}
    first = pa.record_batch({**{name: good[name] for name in ("topic", "value")}, **missing})
    with pytest.raises(kind, match=message):
        writer.write(iter([first, pa.record_batch(columns)]))
    assert [path for path in Path(StagingArea(root).path).rglob("*") if path.is_file()] == []


def test_spark_without_the_class_of_arrow_writers_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module, call in (
        ("DataSourceArrowWriter", "kstore.spark.sink.writers", "writer"),
        ("DataSourceStreamArrowWriter", "kstore.spark.sink.streaming", "streamWriter"),
    ):
        monkeypatch.delitem(sys.modules, module, raising=False)
        with monkeypatch.context() as patch:
            patch.delattr(datasource, name)
            source = DefaultSource(CaseInsensitiveDict({"path": str(root), "topic": TOPIC}))
            with pytest.raises(UnsupportedError, match=r'to format\("kstore"\) need Spark 4\.[01] or later'):
                getattr(source, call)(schema_of("value string"), False)


def froze() -> bool:
    """Whether objects were taken out of garbage collection since the last call."""
    found = gc.get_freeze_count() > 0
    gc.unfreeze()
    return found


@pytest.mark.usefixtures("nothing_frozen")
@pytest.mark.parametrize("main", ["pyspark.daemon", "pytest"])
def test_each_step_of_a_write_takes_its_imports_out_of_the_collections_of_sparks_workers(
    root: Path, monkeypatch: pytest.MonkeyPatch, main: str
) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", SimpleNamespace(name=main))
    is_worker = main == "pyspark.daemon"
    writer = writer_of(root, "value binary", topic=TOPIC)
    assert froze() == is_worker
    message = writer.write(iter([pa.RecordBatch.from_pydict({"value": pa.array([b"v"], pa.binary())})]))
    assert froze() == is_worker
    writer.commit([message])
    assert froze() == is_worker


@pytest.mark.usefixtures("nothing_frozen")
def test_what_is_imported_after_a_step_is_left_out_of_collections_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", SimpleNamespace(name="pyspark.daemon"))
    settle_worker()
    first = gc.get_freeze_count()
    many: list[list[int]] = [[] for _ in range(10_000)]
    settle_worker()
    assert gc.get_freeze_count() > first + len(many) // 2
    few: list[list[int]] = [[] for _ in range(1_000)]
    settle_worker()
    assert len(gc.get_objects()) >= len(few)
