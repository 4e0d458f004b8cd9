"""Goal: format("kstore") gives keys and values as columns of Spark's types, as kstore.scan does; tasks read no schema.
Method: Spark itself for a batch and a stream; the calls that it makes, in this process, for the rest."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

import kstore
import kstore.spark
from kstore.errors import InvalidSchemaError, RecordDeserializationError, SchemaNotFoundError
from kstore.spark import KStoreDataSource
from kstore.spark.options import parse_read_options
from kstore.spark.planning import ScanPartition
from kstore.spark.pushdown import Constraint, Interval
from kstore.spark.readers import read_rows
from kstore.spark.schema import UserSchema
from tests.fakes.stream_query import StreamQuery
from tests.making.avro_values import encoded
from tests.making.protobuf_rides import ROWS as PROTOBUF_ROWS
from tests.making.protobuf_rides import write_protobuf_rides
from tests.making.rides import ROWS, V2, framed, register, write_rides
from tests.values.test_resolution import record

V3 = record(("id", "long"), ("carrier", "string"), ("delay", ["null", "int"], None), ("gate", ["null", "string"], None))
V4 = record(("id", "string"), ("carrier", "string"))
PLACE = "topic string, partition int, offset bigint, "


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_rides(tmp_path / "root")


def source_of(root: Path, **options: str) -> KStoreDataSource:
    given = {"path": str(root), "subscribe": "rides", "valueFormat": "avro", **options}
    return KStoreDataSource(CaseInsensitiveDict(given))


def table_of(root: Path, schema: str | None = None, **options: str) -> pa.Table:
    """Return what Spark would get; each task is read as in a process of its own."""
    source = source_of(root, **options)
    reader = source.reader(source.schema() if schema is None else StructType.fromDDL(schema))
    tasks = pickle.loads(pickle.dumps(reader.partitions()))
    return pa.Table.from_batches([batch for task in tasks for batch in reader.read(task)])


def send(root: Path, *changes: Callable[[kstore.Producer], Any]) -> None:
    with kstore.open_store(root, "a") as store, kstore.Producer(store) as producer:
        for change in changes:
            change(producer)


def ride(schema_id: int, schema: Any, **fields: Any) -> Callable[[kstore.Producer], Any]:
    return lambda producer: producer.send("rides", framed(schema_id, schema, fields))


def version(number: int, schema_id: int, schema: Any) -> Callable[[kstore.Producer], Any]:
    return lambda producer: register(producer, "rides-value", number, schema_id, schema)


def test_spark_reads_what_a_scan_reads(spark: SparkSession, root: Path) -> None:
    options = {"subscribe": "rides", "valueFormat": "avro", "keyFormat": "avro"}
    frame = spark.read.format("kstore").options(**options).load(str(root))
    assert frame.schema["value"].dataType.simpleString() == "struct<id:bigint,carrier:string,delay:int>"
    table = frame.orderBy("offset").toArrow()
    scan = kstore.scan(root, topics="rides", value="avro", key="avro", columns=[*table.column_names]).to_table()
    assert table.cast(scan.schema) == scan
    assert table["value"].to_pylist() == ROWS
    planned = kstore.spark.scan(spark, root, schema="value struct<carrier: string>, offset bigint", **options)
    names = [row and row["carrier"] for row in ROWS]
    assert [row and row["carrier"] for row in planned.toArrow()["value"].to_pylist()] == names


def test_a_stream_reads_values_of_versions_that_are_registered_while_it_runs(
    spark: SparkSession, root: Path, tmp_path: Path
) -> None:
    rows: list[Any] = []

    def keep(frame: DataFrame, number: int) -> None:
        del number
        rows.extend(row.value and row.value.asDict() for row in frame.orderBy("offset").collect())

    def run() -> None:
        options = {"subscribe": "rides", "valueFormat": "avro", "startingOffsets": "earliest"}
        stream = spark.readStream.format("kstore").options(**options).load(str(root)).select("offset", "value")
        writer = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        query.stop()

    run()
    assert rows == ROWS
    send(root, ride(2, V2, id=5, carrier="AA", delay=None))
    run()
    assert rows == [*ROWS, {"id": 5, "carrier": "AA", "delay": None}]


def test_spark_reads_protobuf_in_batches_and_streams(spark: SparkSession, tmp_path: Path) -> None:
    root = write_protobuf_rides(tmp_path / "protobuf")
    options = {"subscribe": "rides", "valueFormat": "protobuf", "keyFormat": "protobuf", "valueMessageName": "Ride"}
    frame = spark.read.format("kstore").options(**options).load(str(root))
    expected = "struct<id:bigint,carrier:string,delay:int,stops:array<struct<name:string>>>"
    assert frame.schema["value"].dataType.simpleString() == expected
    assert frame.orderBy("offset").toArrow()["value"].to_pylist() == PROTOBUF_ROWS
    stream = spark.readStream.format("kstore").options(**options, startingOffsets="earliest").load(str(root))
    rows: list[Any] = []
    writer = stream.select("offset", "value.carrier").writeStream.foreachBatch(
        lambda batch, _: rows.extend(row.carrier for row in batch.orderBy("offset").collect())
    )
    writer.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination()
    assert rows == [row and row["carrier"] for row in PROTOBUF_ROWS]


def test_tasks_read_no_schema(root: Path) -> None:
    source = source_of(root)
    reader = source.reader(source.schema())
    tasks = reader.partitions()
    (root / "_schemas-0").rename(root / "elsewhere")
    assert [row for task in tasks for batch in reader.read(task) for row in batch["value"].to_pylist()] == ROWS


def test_the_schemas_of_a_plan_are_those_of_all_its_records(root: Path) -> None:
    source = source_of(root)
    reader = source.reader(source.schema())
    send(root, version(3, 20, V3), ride(20, V3, id=7, carrier="DL", delay=1, gate="A1"))
    rows = [row for task in reader.partitions() for batch in reader.read(task) for row in batch["value"].to_pylist()]
    assert rows == [*ROWS, {"id": 7, "carrier": "DL", "delay": 1}]


def test_only_fields_of_the_schema_are_decoded(root: Path) -> None:
    table = table_of(root, "OFFSET bigint, value struct<delay: int, id: bigint>")
    assert table.column_names == ["OFFSET", "value"]
    wanted = [row and {"delay": row["delay"], "id": row["id"]} for row in ROWS]
    assert table["value"].to_pylist() == wanted
    reasons = table_of(root, "_corrupt_value string")["_corrupt_value"].to_pylist()
    assert [reason is not None for reason in reasons] == [False, False, False, True, True, False]


@pytest.mark.parametrize(
    ("schema", "error", "message"),
    [
        ("value string", ValueError, "value is of type struct<id:bigint,.*>, not string"),
        ("value binary", ValueError, "value is of type struct<id:bigint,.*>, not binary"),
        ("value struct<x: int>", InvalidSchemaError, "no field 'x'; it has id, carrier, delay"),
        ("value struct<id: int>", ValueError, "value.id is of type bigint, not int"),
        ("value struct<id: bigint not null>", ValueError, "value.id is NOT NULL"),
        (
            "_corrupt_key string",
            ValueError,
            "no column _corrupt_key .* value of its format, .*, _corrupt_value string$",
        ),
    ],
)
def test_other_types_than_those_of_the_values_are_refused(
    root: Path, schema: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        table_of(root, schema)


def test_modes_are_those_of_a_scan(root: Path) -> None:
    assert table_of(root, valueMode="DROPMALFORMED")["offset"].to_pylist() == [0, 1, 2, 5]
    assert table_of(root, "offset bigint", valueMode="DROPMALFORMED")["offset"].to_pylist() == [0, 1, 2, 5]
    source = source_of(root, valueMode="FAILFAST")
    reader = source.reader(source.schema())
    (task,) = reader.partitions()
    batches = reader.read(task)
    assert next(batches)["value"].to_pylist() == ROWS[:3]
    with pytest.raises(RecordDeserializationError, match="offset 3 of rides-0"):
        next(batches)


def test_filters_on_time_leave_bad_values_outside_of_it_alone(root: Path) -> None:

    source = source_of(root, valueMode="FAILFAST")
    reader = source.reader(source.schema())
    (task,) = reader.partitions()
    assert isinstance(task, ScanPartition)
    options = parse_read_options(source.options)
    constraint = Constraint(timestamp_us=Interval(least=1_005_000))
    (batch,) = read_rows(task, options, UserSchema.of(source.schema(), options.values), constraint)
    assert batch["value"].to_pylist() == ROWS[5:]


MICROS = 1_700_000_000_123_456
LOGICAL: list[tuple[Any, Any, str, Any]] = [
    ({"type": "long", "logicalType": "timestamp-millis"}, 1_700_000_000_123, "timestamp", None),
    ({"type": "long", "logicalType": "timestamp-nanos"}, MICROS * 1000 + 789, "timestamp", None),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, 1_700_000_000_123, "timestamp_ntz", None),
    ({"type": "int", "logicalType": "time-millis"}, 86_399_999, "int", 86_399_999),
    ({"type": "long", "logicalType": "time-micros"}, 86_399_999_999, "bigint", 86_399_999_999),
    ({"type": "fixed", "name": "F", "size": 3}, b"abc", "binary", b"abc"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 2}, b"\x01\x00", "string", "2.56"),
    (
        {"type": "map", "values": {"type": "array", "items": {"type": "int", "logicalType": "time-millis"}}},
        {"a": [1]},
        "map<string,array<int>>",
        [("a", [1])],
    ),
    ("null", None, "string", None),
    (["null", "int", "string"], "x", "struct<member0:int,member1:string>", {"member0": None, "member1": "x"}),
]


@pytest.fixture
def typed_root(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    schema = record(*((f"f{number}", each[0]) for number, each in enumerate(LOGICAL)))
    plain = _without_logical(schema)
    values = {f"f{number}": each[1] for number, each in enumerate(LOGICAL)}
    with kstore.open_store(tmp_path / "root", "a") as store:
        store.create_topic("rides", partitions=1)
        with kstore.Producer(store) as producer:
            producer.send("rides", encoded(plain, values))
            producer.send("rides", encoded(plain, values | {"f0": 1 << 62}))
    return tmp_path / "root", {"valueSchema": json.dumps(schema)}


def _without_logical(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {name: _without_logical(each) for name, each in schema.items() if name != "logicalType"}
    return [_without_logical(each) for each in schema] if isinstance(schema, list) else schema


def test_types_that_spark_lacks_are_those_nearest_to_them(
    spark: SparkSession, typed_root: tuple[Path, dict[str, str]]
) -> None:
    root, options = typed_root
    frame = spark.read.format("kstore").options(valueFormat="avro", **options).load(str(root))
    fields = frame.schema["value"].dataType
    assert isinstance(fields, StructType)
    assert [field.dataType.simpleString() for field in fields.fields] == [each[2] for each in LOGICAL]
    first, second = frame.orderBy("offset").select("value", "_corrupt_value").toArrow().to_pylist()
    for number, (_, _, _, shown) in enumerate(LOGICAL[3:], 3):
        assert first["value"][f"f{number}"] == shown
    assert [first["value"][f"f{number}"].isoformat() for number in range(3)] == [
        "2023-11-14T22:13:20.123000+00:00",
        "2023-11-14T22:13:20.123456+00:00",
        "2023-11-14T22:13:20.123000",
    ]
    assert second["value"] is None
    assert "out of bounds timestamp" in second["_corrupt_value"]


def typed_query(
    root: Path, value: str = "struct<id: bigint, carrier: string, delay: int>", **options: str
) -> StreamQuery:
    given = {"subscribe": "rides", "valueFormat": "avro", "startingOffsets": "earliest", **options}
    return StreamQuery(root, schema=StructType.fromDDL(f"{PLACE} value {value}"), **given)


def test_offsets_of_a_stream_say_by_which_schemas_it_reads(root: Path) -> None:
    query = typed_query(root)
    query.micro_batch()
    assert [row[3] for row in query.rows()] == ROWS
    assert query.position()["kstore:schemas"] == {"value": 2}
    send(root, version(3, 20, V3), ride(20, V3, id=7, carrier="DL", delay=1, gate="A1"))
    query.micro_batch()
    assert [row[3] for row in query.batches[-1].rows] == [{"id": 7, "carrier": "DL", "delay": 1}]
    assert query.position()["kstore:schemas"] == {"value": 2}


def test_a_stream_that_is_started_again_reads_by_the_schemas_that_it_began_with(root: Path) -> None:
    query = typed_query(root)
    query.run()
    send(root, version(3, 30, V4), ride(2, V2, id=8, carrier="DL", delay=1))
    query.start()
    assert [row[3] for row in query.run()[0].rows] == [{"id": 8, "carrier": "DL", "delay": 1}]


def test_a_stream_that_is_started_again_with_columns_of_a_newer_schema_says_how_to_go_on(root: Path) -> None:
    query = typed_query(root)
    query.run()
    send(root, version(3, 20, V3), ride(20, V3, id=7, carrier="DL", delay=1, gate="A1"))
    wider = StructType.fromDDL(f"{PLACE} value struct<id: bigint, gate: string>")
    query.schema = wider
    query.start()
    with pytest.raises(
        ValueError, match=r"no field 'gate'.* began with, valueSchemaId=2, .* set these options to keep"
    ):
        query.run()
    query.options["valueSchemaId"] = "20"
    query.start()
    assert [row[3] for row in query.run()[0].rows] == [{"id": 7, "gate": "A1"}]


def test_a_topic_without_schemas_is_refused_when_it_is_loaded(root: Path) -> None:
    (root / "_schemas-0").rename(root / "elsewhere")
    with pytest.raises(SchemaNotFoundError, match="has no topic _schemas"):
        source_of(root).schema()
    other = write_rides(root.parent / "other")
    assert table_of(root, schemas=str(other))["value"].to_pylist() == ROWS


def test_primitives_are_columns_too(root: Path) -> None:
    send(root, lambda producer: producer.send("rides", b"\0" * 8, key=b"\xff"))
    table = table_of(root, "key string, value bigint, _corrupt_value string", valueFormat="long", keyFormat="string")
    assert table["value"].to_pylist()[-1] == 0
    assert table["key"].to_pylist()[-1] == "\N{REPLACEMENT CHARACTER}"


JSON: list[bytes | None] = [b'{"id":1,"tags":{"a":[1]}}', None, b'{"id":2,"mixed":1}', b'{"id":', b'{"mixed":"x"}']
JSON_TYPE = "struct<id:bigint,tags:struct<a:array<bigint>>,mixed:string>"
JSON_ROWS = [
    {"id": 1, "tags": {"a": [1]}, "mixed": None},
    None,
    {"id": 2, "tags": None, "mixed": "1"},
    None,
    {"id": None, "tags": None, "mixed": '"x"'},
]


@pytest.fixture
def json_root(tmp_path: Path) -> Path:
    root = tmp_path / "json"
    with kstore.open_store(root, "a") as store:
        store.create_topic("rides", partitions=1)
        with kstore.Producer(store) as producer:
            for value in JSON:
                producer.send("rides", value)
    return root


def test_spark_reads_json_in_batches_and_streams(spark: SparkSession, json_root: Path, tmp_path: Path) -> None:
    options = {"subscribe": "rides", "valueFormat": "json", "valueSchema": "infer"}
    frame = spark.read.format("kstore").options(**options).load(str(json_root))
    assert frame.schema["value"].dataType.simpleString() == JSON_TYPE
    assert frame.orderBy("offset").toArrow()["value"].to_pylist() == JSON_ROWS
    stream = spark.readStream.format("kstore").options(**options, startingOffsets="earliest").load(str(json_root))
    rows: list[Any] = []
    writer = stream.select("offset", "value.id").writeStream.foreachBatch(
        lambda batch, _: rows.extend(row.id for row in batch.orderBy("offset").collect())
    )
    writer.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination()
    assert rows == [row and row["id"] for row in JSON_ROWS]


def test_a_json_schema_gives_the_columns(json_root: Path) -> None:
    schema = '{"type": "object", "properties": {"id": {"type": "integer"}, "big": {"type": "number"}}}'
    table = table_of(json_root, valueFormat="json", valueSchema=schema, valueMode="DROPMALFORMED")
    assert table["value"].to_pylist() == [
        {"id": 1, "big": None},
        None,
        {"id": 2, "big": None},
        {"id": None, "big": None},
    ]
    with pytest.raises(SchemaNotFoundError, match='schema="infer"'):
        source_of(json_root, valueFormat="json").schema()


@pytest.mark.usefixtures("spark")
def test_an_inferred_schema_stays_that_of_the_stream(json_root: Path) -> None:
    query = typed_query(json_root, JSON_TYPE, valueFormat="json", valueSchema="infer")
    query.run()
    pinned = query.position()["kstore:schemas"]
    assert pinned["value"].startswith("arrow:")
    # A sample that is taken now would give other types.
    with kstore.open_store(json_root, "a") as store, kstore.Producer(store) as producer:
        producer.send("rides", b'{"id":"x"}')
        producer.send("rides", b'{"id":3,"later":1}')
    query.start()
    (batch,) = query.run()
    assert [row[3] for row in batch.rows] == [None, {"id": 3, "tags": None, "mixed": None}]
    assert query.position()["kstore:schemas"] == pinned
    query.schema = StructType.fromDDL(f"{PLACE} value struct<later: bigint>")
    with kstore.open_store(json_root, "a") as store, kstore.Producer(store) as producer:
        producer.send("rides", b'{"id":4}')
    query.start()
    with pytest.raises(ValueError, match=r"no field 'later'.* began with, valueSchema=arrow:.* set these options"):
        query.run()
