"""Goal: exported keys and values are columns by the schema of each topic; later runs add fields, and change none.
Method: roots with a registry's topic that grow between runs; the files are read back."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import kstore
from kstore.archive import export, read_manifest
from kstore.archive.manifest import MANIFEST_FILE
from kstore.archive.options import export_options
from kstore.archive.typed.topics import merged_type
from kstore.errors import (
    ExportOptionsError,
    KStoreError,
    RecordDeserializationError,
    SchemaNotFoundError,
)
from tests.making.protobuf_rides import ROWS as PROTOBUF_ROWS
from tests.making.protobuf_rides import V2 as PROTOBUF
from tests.making.protobuf_rides import write_protobuf_rides
from tests.making.rides import KEY, ROWS, V2, framed, register, write_rides
from tests.values.test_resolution import record

V3 = record(("gate", ["null", "string"], None), ("id", "long"), ("carrier", "string"), ("delay", ["null", "int"], None))
NARROW = record(("id", "long"), ("delay", ["null", "int"], None))
OTHER = record(("id", "string"), ("carrier", "string"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_rides(tmp_path / "root")


def send(root: Path, *changes: Callable[[kstore.Producer], Any]) -> None:
    with kstore.open_store(root, "a") as store, kstore.Producer(store) as producer:
        for change in changes:
            change(producer)


def version(number: int, schema_id: int, schema: Any) -> Callable[[kstore.Producer], Any]:
    return lambda producer: register(producer, "rides-value", number, schema_id, schema)


def ride(schema_id: int, schema: Any, **fields: Any) -> Callable[[kstore.Producer], Any]:
    return lambda producer: producer.send("rides", framed(schema_id, schema, fields), timestamp_ms=2000)


def rows_of(target: Path, column: str = "value", format: str = "parquet") -> list[Any]:
    manifest = read_manifest(target)
    assert manifest is not None
    newest = max(manifest.files, key=lambda file: file.first_offset)
    schema = ds.dataset(target / newest.path, format=format).schema
    table = ds.dataset([str(target / file.path) for file in manifest.files], schema=schema, format=format).to_table()
    rows: list[Any] = table.sort_by("offset")[column].to_pylist()
    return rows


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_values_are_columns_of_the_files_and_each_record_has_a_row(root: Path, tmp_path: Path, format: Any) -> None:
    export(root, tmp_path / "out", format, topics=["rides"], value="avro", key="avro")
    assert rows_of(tmp_path / "out", format=format) == ROWS
    assert rows_of(tmp_path / "out", "key", format=format) == [{"k": number} for number in range(6)]
    reasons = rows_of(tmp_path / "out", "_corrupt_value", format=format)
    assert [reason is not None for reason in reasons] == [False, False, False, True, True, False]


def test_values_of_protobuf_are_columns_of_the_files(tmp_path: Path) -> None:
    root = write_protobuf_rides(tmp_path / "rides")
    for _ in range(2):
        export(root, tmp_path / "out", topics=["rides"], value="protobuf")
    assert rows_of(tmp_path / "out") == PROTOBUF_ROWS
    given = kstore.ValueFormat("protobuf", schema=PROTOBUF, message_name="com.x.Ride", schemas=root)
    for _ in range(2):
        export(root, tmp_path / "two", topics=["rides"], value=given)
    assert rows_of(tmp_path / "two") == PROTOBUF_ROWS


def test_an_inferred_type_stays_that_of_the_first_run(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with kstore.open_store(root, "a") as store:
        store.create_topic("rides", partitions=1)
        with kstore.Producer(store) as producer:
            producer.send("rides", b'{"id":1,"mixed":[1]}')
            producer.send("rides", b'{"mixed":"x"}')
    export(root, tmp_path / "out", value="json", schema="infer")
    rows = [{"id": 1, "mixed": "[1]"}, {"id": None, "mixed": '"x"'}]
    assert rows_of(tmp_path / "out") == rows
    # A sample that is taken now would give other types.
    send(root, lambda producer: [producer.send("rides", each) for each in (b'{"id":"x"}', b'{"id":2}')])
    export(root, tmp_path / "out", value="json", schema="infer")
    assert rows_of(tmp_path / "out") == [*rows, None, {"id": 2, "mixed": None}]
    with pytest.raises(ExportOptionsError):
        export(root, tmp_path / "out", value="json", schema=pa.struct([("id", pa.string())]))


@pytest.mark.parametrize("columns", [["value.id", "offset"], ["_corrupt_value", "offset"]])
def test_columns_of_a_schema_are_refused_for_the_topic_of_schemas_by_its_name(
    root: Path, tmp_path: Path, columns: list[str]
) -> None:
    with pytest.raises(SchemaNotFoundError, match=r"the topic _schemas has no schema, .*: name the topics"):
        export(root, tmp_path / "out", value="avro", columns=columns)
    assert read_manifest(tmp_path / "out") is None
    assert export(root, tmp_path / "two", value="avro", columns=["value", "offset"]).new_records == 9


def test_fields_may_be_columns_of_their_own(root: Path, tmp_path: Path) -> None:
    export(root, tmp_path / "out", topics=["rides"], value="avro", flatten=True, mode="DROPMALFORMED")
    assert rows_of(tmp_path / "out", "carrier") == ["AA", "UA", None, "DL"]
    export(root, tmp_path / "two", topics=["rides"], value="avro", columns=["value.id", "offset"])
    assert rows_of(tmp_path / "two", "value.id") == [1, 2, None, None, None, 4]


def test_a_field_has_not_the_name_of_a_directory(root: Path, tmp_path: Path) -> None:
    schema = record(("id", "long"), ("date", "string"), ("topic", "string"))
    send(root, version(3, 20, schema), ride(20, schema, id=7, date="today", topic="x"))
    export(root, tmp_path / "out", topics=["rides"], value="avro", flatten=True)
    assert rows_of(tmp_path / "out", "value_date")[-1] == "today"
    assert rows_of(tmp_path / "out", "value_topic")[-1] == "x"


def test_each_topic_has_the_columns_of_its_own_schema(root: Path, tmp_path: Path) -> None:
    with kstore.open_store(root, "a") as store:
        store.create_topic("others", partitions=1)
    send(
        root,
        lambda producer: register(producer, "others-value", 1, 30, KEY),
        lambda producer: producer.send("others", framed(30, KEY, {"k": 5})),
    )
    export(root, tmp_path / "out", value="avro")
    manifest = read_manifest(tmp_path / "out")
    assert manifest is not None
    types = {
        topic: pa.ipc.read_schema(pa.BufferReader(base64.b64decode(text))).field("value").type
        for topic, text in manifest.types.items()
    }
    assert [field.name for field in types["rides"]] == ["id", "carrier", "delay"]
    assert types["others"] == pa.struct([("k", pa.int32())])
    send(root, ride(2, V2, id=8, carrier="DL", delay=1))
    export(root, tmp_path / "out", value="avro")
    later = read_manifest(tmp_path / "out")
    assert later is not None
    assert later.types == manifest.types


def test_a_later_run_adds_the_fields_of_a_newer_schema_also_to_files_that_it_joins(root: Path, tmp_path: Path) -> None:
    export(root, tmp_path / "out", topics=["rides"], value="avro")
    rides = [ride(20, V3, id=7, carrier=f"{number * 12345678901}", delay=1, gate="A1") for number in range(200)]
    send(root, version(3, 20, V3), *rides)
    export(root, tmp_path / "out", topics=["rides"], value="avro")
    assert export(root, tmp_path / "out", topics=["rides"], value="avro").joined_files == 2
    rows = rows_of(tmp_path / "out")
    assert rows[-1] == {"id": 7, "carrier": f"{199 * 12345678901}", "delay": 1, "gate": "A1"}
    assert rows[:6] == [row and {**row, "gate": None} for row in ROWS]
    assert list(rows[-1]) == ["id", "carrier", "delay", "gate"]


def test_a_field_that_a_newer_schema_left_out_stays_a_column(root: Path, tmp_path: Path) -> None:
    export(root, tmp_path / "out", topics=["rides"], value="avro")
    send(root, version(3, 20, NARROW), ride(20, NARROW, id=7, delay=1))
    export(root, tmp_path / "out", topics=["rides"], value="avro")
    assert rows_of(tmp_path / "out")[-1] == {"id": 7, "carrier": None, "delay": 1}


def test_a_type_that_changed_is_refused_with_both(root: Path, tmp_path: Path) -> None:
    export(root, tmp_path / "out", topics=["rides"], value="avro")
    before = (tmp_path / "out" / MANIFEST_FILE).read_bytes()
    send(root, version(3, 20, OTHER), ride(20, OTHER, id="x", carrier="AA"))
    with pytest.raises(ExportOptionsError, match=r"rides: value\.id has another type now: int64 there, string by"):
        export(root, tmp_path / "out", topics=["rides"], value="avro")
    assert (tmp_path / "out" / MANIFEST_FILE).read_bytes() == before
    with pytest.raises(ExportOptionsError, match=r"other options: value: .*avro.* there"):
        export(root, tmp_path / "out", topics=["rides"], value=kstore.ValueFormat("avro", schema_id=2))


def test_an_export_with_a_schema_keeps_its_text(root: Path, tmp_path: Path) -> None:
    wanted = record(("id", "long"))
    (tmp_path / "wanted.avsc").write_text(json.dumps(wanted))
    asked: dict[str, Any] = {"topics": ["rides"], "value": "avro", "schemas": root}
    export(root, tmp_path / "out", schema=tmp_path / "wanted.avsc", **asked)
    export(root, tmp_path / "out", schema=json.dumps(wanted), **asked)
    with pytest.raises(ExportOptionsError, match="other options: value"):
        export(root, tmp_path / "out", schema=json.dumps(record(("id", "int"))), **asked)


def test_failfast_ends_a_run_which_adds_nothing(root: Path, tmp_path: Path) -> None:
    with pytest.raises(RecordDeserializationError, match="offset 3 of rides-0"):
        export(root, tmp_path / "out", topics=["rides"], value="avro", mode="FAILFAST")
    assert read_manifest(tmp_path / "out") is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "kstore", "value": "avro"}, "value cannot be chosen"),
        ({"mode": "FAILFAST"}, "mode and flatten are for"),
        ({"flatten": True}, "mode and flatten are for"),
        ({"value": "avro", "columns": ["nope"]}, "columns must be some of"),
    ],
)
def test_options_without_a_meaning_are_refused(root: Path, tmp_path: Path, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        export(root, tmp_path / "out", topics=["rides"], **options)


def test_types_of_a_manifest_that_are_none_are_damage(root: Path, tmp_path: Path) -> None:
    export(root, tmp_path / "out", topics=["rides"], value="avro")
    manifest = read_manifest(tmp_path / "out")
    assert manifest is not None
    broken = manifest._replace(types={"rides": "AAAA"})
    (tmp_path / "out" / MANIFEST_FILE).write_bytes(broken.encoded())
    send(root, ride(2, V2, id=7, carrier="DL", delay=1))
    with pytest.raises(KStoreError, match="the types of the columns are no schema of Arrow"):
        export(root, tmp_path / "out", topics=["rides"], value="avro")


def test_types_are_merged_at_any_depth() -> None:
    before = pa.struct([("a", pa.list_(pa.struct([("x", pa.int32())]))), ("m", pa.map_(pa.string(), pa.struct([])))])
    now = pa.struct(
        [("m", pa.map_(pa.string(), pa.struct([("n", pa.int8())]))), ("a", pa.list_(pa.struct([("y", pa.int64())])))]
    )
    assert merged_type(before, now, "value") == pa.struct(
        [
            ("a", pa.list_(pa.field("element", pa.struct([("x", pa.int32()), ("y", pa.int64())])))),
            ("m", pa.map_(pa.string(), pa.struct([("n", pa.int8())]))),
        ]
    )
    with pytest.raises(ExportOptionsError, match=r"value\.element has another type now: int32 there, int64"):
        merged_type(pa.list_(pa.int32()), pa.list_(pa.int64()), "value")


def test_secrets_of_the_place_of_schemas_are_in_no_manifest_error_or_repr(root: Path, tmp_path: Path) -> None:
    place = "s3://AKIA:sekret@bucket/root?secret_key=abc"
    options = export_options("parquet", value="avro", schemas=place)
    assert options.described()["value"]["schemas"] == "s3://bucket/root"
    assert options.formats[0][1].schemas == place
    export(root, tmp_path / "out", value="avro")
    with pytest.raises(ExportOptionsError) as refused:
        export(root, tmp_path / "out", value="avro", schemas=place)
    shown = [str(refused.value), repr(refused.value), repr(refused.value.differences), repr(options.formats)]
    assert [text for text in shown if "sekret" in text or "abc" in text] == []
