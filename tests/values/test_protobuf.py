"""Goal: Protobuf values are columns by schemas of the disk or given ones; what has no place in a column is a bad value.
Method: roots with a registry's topic, made by a producer; versions of messages that are written and read in turns."""

from __future__ import annotations

import importlib.util
import pickle
from base64 import b64decode, b64encode
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

import kstore
from kstore.env import DEFAULT_ENV
from kstore.errors import InvalidSchemaError, RecordDeserializationError
from kstore.values.conversion import ConvertedFormat, common_type
from kstore.values.formats import Partitions, ValueFormat, format_for
from kstore.values.protobuf import reader as protobuf_reader
from kstore.values.protobuf import schema as protobuf_schema
from kstore.values.protobuf.provider import ProtobufProvider
from kstore.values.protobuf.schema import portable_texts, schema_of
from kstore.values.protobuf.texts import text_of_files
from kstore.values.providers import NamedSchema, SchemaText
from tests.making.protobuf_rides import ROWS, V1, V2, framed, message, register, write_protobuf_rides
from tests.making.rides import registered


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with rides of two schema versions, a tombstone, and bad values."""
    return write_protobuf_rides(tmp_path / "root")


def read(
    schema: str, *values: bytes | None, writer: str | None = None, most_bytes: int = 1 << 24, wanted: Any = None
) -> tuple[list[Any], list[str]]:
    """Return what a column holds of values, and the reasons of bad ones."""
    provider = ProtobufProvider()
    written = SchemaText(writer or schema)
    reader = provider.reader(
        SchemaText(schema), wanted, lambda _: written, framing="none", most_bytes=most_bytes, header_ids=None
    )
    if writer is not None:
        reader = provider.reader(
            SchemaText(schema), wanted, lambda _: written, framing="confluent", most_bytes=most_bytes, header_ids=None
        )
        values = tuple(None if value is None else b"\0\0\0\0\1\0" + value for value in values)
    rows: list[Any] = []
    reasons: list[str] = []
    for part in reader.decode(pa.array(values, pa.binary())):
        part.values.validate(full=True)
        rows += part.values.to_pylist()
        reasons += [each.reason for each in part.bad]
    return rows, reasons


def proto3(body: str, *imports: str) -> str:
    """Return the text of a schema with a message M."""
    lines = "".join(f'import "{each}";\n' for each in imports)
    return f'syntax = "proto3";\npackage p;\n{lines}message M {{ {body} }}\n'


def test_values_are_read_as_the_newest_version_and_each_record_has_a_row(root: Path) -> None:
    table = kstore.scan(root, topics="rides", value="protobuf").to_table()
    assert table["value"].to_pylist() == ROWS
    assert table["offset"].to_pylist() == list(range(len(ROWS)))
    reasons = table["_corrupt_value"].to_pylist()
    assert reasons[:3] == [None] * 3
    assert reasons[3].startswith("of schema id 2, it is no com.x.Ride: ")
    assert reasons[4] == "of schema id 9, the registry has no schema of id 9"
    assert reasons[5] == "of schema id 2, it is a com.x.Stop, expected com.x.Ride"
    assert reasons[6] == "of schema id 2, the schema has no message of these indexes"
    assert reasons[7] == "of schema id 5, version 1 of 'other' is a schema of type AVRO, expected PROTOBUF"
    assert reasons[8] == "it does not begin with the magic byte, the id of a schema and the indexes of a message"
    assert reasons[9] is None


def test_keys_and_fields_are_read(root: Path) -> None:
    columns = ["value.carrier", "value.stops", "key.k"]
    table = kstore.scan(root, topics="rides", value="protobuf", key="protobuf", columns=columns).to_table()
    assert table["key.k"].to_pylist() == list(range(len(ROWS)))
    assert table["value.carrier"].to_pylist()[:2] == ["AA", "UA"]
    assert table["value.stops"].to_pylist()[1] == [{"name": "x"}, {"name": ""}]


def test_another_message_is_read_by_its_name(root: Path) -> None:
    for name in ("com.x.Stop", "Stop"):
        chosen = kstore.ValueFormat("protobuf", message_name=name)
        assert kstore.scan(root, topics="rides", value=chosen).to_table()["value"].to_pylist()[5] == {"name": "s"}
    with pytest.raises(InvalidSchemaError, match=r"no message 'Stops'; it has com.x.Ride, com.x.Ride.Leg, com.x.Stop"):
        kstore.scan(root, topics="rides", value=kstore.ValueFormat("protobuf", message_name="Stops"))


def test_modes_do_as_they_say(root: Path) -> None:
    kept = kstore.scan(root, topics="rides", value="protobuf", mode="DROPMALFORMED", flatten=True).to_table()
    assert kept["carrier"].to_pylist() == ["AA", "UA", None, "DL"]
    batches = iter(kstore.scan(root, topics="rides", value="protobuf", mode="FAILFAST"))
    assert next(batches).num_rows == 3
    with pytest.raises(
        RecordDeserializationError, match="value of the record at offset 3 of rides-0 cannot be decoded"
    ):
        next(batches)


def test_a_log_gives_the_same_columns(root: Path) -> None:
    with kstore.open_log(root / "rides-0") as log:
        table = pa.Table.from_batches(log.to_arrow_batches(value="protobuf", flatten=True))
    assert table["carrier"].to_pylist()[:2] == ["AA", "UA"]


def test_a_schema_may_be_given_in_each_form(tmp_path: Path) -> None:
    with kstore.open_store(tmp_path / "root", "a") as store:
        store.create_topic("t", partitions=1)
        with kstore.Producer(store) as producer:
            producer.send("t", message(V1, "com.x.Ride", id=7, carrier="AA").SerializeToString())
    (tmp_path / "ride.proto").write_text(V1)
    files = schema_of(SchemaText(V1))
    descriptors = FileDescriptorSet.FromString(
        _bytes_of(ProtobufProvider().reader_schema(SchemaText(V1)).text)
    ).SerializeToString()
    (tmp_path / "ride.pb").write_bytes(descriptors)
    assert files.named(None).full_name == "com.x.Ride"
    given: list[Any] = [V1, tmp_path / "ride.proto", str(tmp_path / "ride.pb"), descriptors]
    for schema in given:
        table = kstore.scan(tmp_path / "root", value="protobuf", schema=schema).to_table()
        assert table["value"].to_pylist() == [{"id": 7, "carrier": "AA"}], schema


def _bytes_of(text: str) -> bytes:
    return b64decode(text.partition(",")[2])


def test_wrong_options_are_refused(root: Path) -> None:
    with pytest.raises(ValueError, match='must be "none" or "confluent"'):
        kstore.ValueFormat("protobuf", framing="apicurio")
    with pytest.raises(ValueError, match="the format 'avro' takes no message_name"):
        kstore.ValueFormat("avro", message_name="x")
    with pytest.raises(InvalidSchemaError, match="a schema of Protobuf is text, a descriptor set or the path"):
        kstore.scan(root, topics="rides", value="protobuf", schema={})
    with pytest.raises(InvalidSchemaError, match="expected PROTOBUF"):
        kstore.scan(root, topics="rides", value=kstore.ValueFormat("protobuf", schema_id=5))


def test_a_pickled_format_needs_no_compiler(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = Partitions(("rides",), str(root), DEFAULT_ENV, lambda *_: None)
    pickled = pickle.dumps(format_for(ValueFormat("protobuf"), "value", places))

    def no_process(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr("kstore.values.protobuf.compiling.run_in_new_directory", no_process)
    schema_of.cache_clear()
    reader = pickle.loads(pickled).reader(None, most_bytes=1 << 20)
    values = [framed(1, V1, id=1, carrier="AA"), framed(2, V2, id=2, carrier="UA")]
    (part,) = reader.decode(pa.array(values))
    assert [row["carrier"] for row in part.values.to_pylist()] == ["AA", "UA"]


def test_schemas_are_compiled_once_however_often_a_format_is_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[int] = []

    def count(schemas: list[SchemaText]) -> list[Any]:
        compiled.append(len(schemas))
        return compile_all(schemas)

    compile_all = protobuf_schema._compiled
    monkeypatch.setattr(protobuf_schema, "_compiled", count)
    monkeypatch.setattr(protobuf_schema, "_portable", {})
    monkeypatch.setattr(protobuf_schema, "_KEPT_SCHEMAS", 3)
    schemas = [SchemaText(proto3(f"int32 once{number} = 1;")) for number in range(3)]
    malformed = SchemaText("message {")
    first = portable_texts([*schemas, malformed, schemas[0]])
    assert first[3] is None
    assert first[0] == first[4]
    assert portable_texts([*schemas, malformed]) == first[:4]
    assert compiled == [4]
    # Another one takes the place of those that are not asked for with it.
    other = SchemaText(proto3("int32 other = 1;"))
    portable_texts([other, schemas[2]])
    assert set(protobuf_schema._portable) == {other, schemas[2]}
    assert portable_texts([schemas[2], schemas[0]]) == [first[2], first[0]]
    assert compiled == [4, 1, 1]


def test_what_spark_and_tables_have_no_type_for_is_converted() -> None:
    schema = proto3("uint32 a = 1; uint64 b = 2; google.protobuf.Duration c = 3;", "google/protobuf/duration.proto")
    places = Partitions(("t",), None, DEFAULT_ENV, lambda *_: None)
    inner = format_for(ValueFormat("protobuf", schema=schema), "value", places)
    target = common_type(inner.type(None))
    reader = ConvertedFormat(inner, None, target).reader(None, most_bytes=1 << 20)
    value = message(schema, "p.M", a=2**32 - 1, b=2**64 - 1, c={"seconds": 1, "nanos": 5000}).SerializeToString()
    (part,) = reader.decode(pa.array([value]))
    assert part.values.to_pylist() == [{"a": 2**32 - 1, "b": 2**64 - 1, "c": 1_000_005}]


def test_ids_in_headers_have_the_indexes_of_the_message(tmp_path: Path) -> None:
    guid = "00000000-0000-0000-0000-000000000007"
    value = message(V2, "com.x.Ride", id=7, carrier="AA").SerializeToString()
    places: list[tuple[bytes, int | None]] = [
        (b"\1" + bytes(15) + b"\7\0", 7),
        (b"\1" + bytes(15) + b"\7\2\0", 7),
        (b"\1" + bytes(15) + b"\7", 7),
        (b"\0\0\0\0\2\0", 7),
        (b"\1" + bytes(15) + b"\7\2\2", None),
        (b"\1" + bytes(16) + b"\0", None),
        (b"\1", None),
    ]
    with kstore.open_store(tmp_path / "root", "a") as store:
        store.create_topic("_schemas", partitions=1)
        store.create_topic("t", partitions=1)
        with kstore.Producer(store) as producer:
            register(producer, "t-value", 1, 2, V2, guid=guid)
            for header, _ in places:
                producer.send("t", value, headers=[("__value_schema_id", header)])
    table = kstore.scan(tmp_path / "root", topics="t", value="protobuf").to_table()
    assert [row and row["id"] for row in table["value"].to_pylist()] == [expected for _, expected in places]
    reasons = table["_corrupt_value"].to_pylist()
    assert reasons[4:] == [
        "it is a com.x.Stop, expected com.x.Ride",
        "the registry has no schema of GUID 00000000-0000-0000-0000-000000000000",
        "the header __value_schema_id has neither the GUID nor the id of a schema",
    ]


# Schemas


def test_references_are_imported_by_their_names(tmp_path: Path) -> None:
    common = 'syntax = "proto3"; package c; message Place { string name = 1; }'
    first = proto3("c.Place at = 1;", "sub/common.proto")
    with kstore.open_store(tmp_path / "root", "a") as store:
        store.create_topic("_schemas", partitions=1)
        store.create_topic("t", partitions=1)
        with kstore.Producer(store) as producer:
            for number, text in enumerate((common, _base64(common))):
                key, value = registered(f"c{number}", 1, 10 + number, schema=text, schemaType="PROTOBUF")
                producer.send("_schemas", value, key=key)
                reference = {"name": "sub/common.proto", "subject": f"c{number}", "version": 1}
                for version, main in enumerate((first, _base64(first, sub=common))):
                    more = {"schema": main, "schemaType": "PROTOBUF", "references": [reference]}
                    place = 2 * number + version + 1
                    key, value = registered("t-value", place, place, **more)
                    producer.send("_schemas", value, key=key)
            for schema_id in (1, 2, 3, 4):
                producer.send("t", b"\0\0\0\0" + bytes((schema_id, 0)) + b"\x0a\x03\x0a\x01x")
    table = kstore.scan(tmp_path / "root", topics="t", value="protobuf").to_table()
    assert table["_corrupt_value"].to_pylist() == [None] * 4
    assert table["value"].to_pylist() == [{"at": {"name": "x"}}] * 4


def _base64(text: str, sub: str | None = None) -> str:
    """Return a schema as Confluent's client in Python registers it."""
    references = () if sub is None else (NamedSchema("sub/common.proto", sub),)
    made = ProtobufProvider().reader_schema(SchemaText(text, references)).text
    return b64encode(FileDescriptorSet.FromString(_bytes_of(made)).file[-1].SerializeToString()).decode()


@pytest.mark.parametrize(
    "text",
    [
        'syntax = "proto3"; import "/etc/hosts"; message M {}',
        'syntax = "proto3"; import "../../../../../../../etc/hosts"; message M {}',
        'syntax = "proto3"; import "other.proto"; message M {}',
        'syntax = "proto3"; message M {',
        "message M { string s = 1; }\n\0",
        "M { {" * 1000,
        'syntax = "proto3"; ' + "message M { " * 50_000,
        "x;" * (1 << 20),
        'syntax = "proto3"; message M { N n = 1; }',
        'syntax = "proto3";',
        "data:application/x-protobuf;base64,AAAA",
    ],
    ids=range(11),
)
def test_malformed_schemas_are_refused(text: str) -> None:
    with pytest.raises(InvalidSchemaError) as caught:
        ProtobufProvider().reader_schema(SchemaText(text))
    assert len(str(caught.value)) < 700
    assert "127.0.0.1" not in str(caught.value)


@pytest.mark.parametrize("name", ["../x.proto", "/x.proto", "a//b.proto", "", "a\\b", "x\n.proto", "a" * 300, "y/z"])
def test_a_reference_names_a_file_below_the_schema(name: str) -> None:
    references = NamedSchema(name, 'syntax = "proto3";'), NamedSchema("y", 'syntax = "proto3";')
    with pytest.raises(InvalidSchemaError, match=r"no name of a file|too long for a name"):
        ProtobufProvider().reader_schema(SchemaText(proto3("int32 a = 1;"), references))


def test_a_compiler_that_ends_or_hangs_makes_one_schema_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    from kstore.values.protobuf import compiling

    ends = "    if 'abort' in open(line.split('=')[1].split(chr(0))[0] + '/kstore-schema.proto').read(): os.abort()\n"
    program = compiling._COMPILER.replace("    protoc.main", f"{ends}    protoc.main")
    monkeypatch.setattr(compiling, "_COMPILER", program)
    good = SchemaText(proto3("int32 a = 1;"))
    first, bad, last = compiling.compiled([good, SchemaText("abort;"), good])
    assert isinstance(first, bytes)
    assert first == last
    assert "the compiler ended with -6" in str(bad)
    monkeypatch.setattr(compiling, "_COMPILER", "import time; time.sleep(60)")
    monkeypatch.setattr(compiling, "_SECONDS", 0)
    assert "the compiler took too long" in str(compiling.compiled([good])[0])


def test_texts_need_a_compiler_and_descriptors_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "grpc_tools" else find(name))
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'kstore\[protobuf\]'"):
        ProtobufProvider().reader_schema(SchemaText(proto3("int32 only_here = 1;")))
    file = FileDescriptorProto(name="a.proto")
    file.message_type.add(name="A")
    text = ProtobufProvider().text_of(FileDescriptorSet(file=[file]).SerializeToString())
    assert ProtobufProvider().reader_schema(SchemaText(text)).message_name == "A"


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ({"a.proto": ["b.proto"]}, "'b.proto' is imported, and is missing"),
        ({"a.proto": ["b.proto"], "b.proto": ["a.proto"]}, "imports itself"),
        ({"a.proto": ["a.proto"]}, "imports itself"),
    ],
)
def test_files_import_files_that_are_there_and_not_themselves(names: dict[str, list[str]], problem: str) -> None:
    files = [FileDescriptorProto(name=name, dependency=imports) for name, imports in names.items()]
    text = ProtobufProvider().text_of(FileDescriptorSet(file=files).SerializeToString())
    with pytest.raises(InvalidSchemaError, match=problem):
        ProtobufProvider().reader_schema(SchemaText(text))


def forged(**fields: Any) -> str:
    """Return a schema of a message with one field."""
    file = FileDescriptorProto(name="a.proto", syntax="proto3")
    file.message_type.add(name="M").field.add(name="f", number=1, label=1, **fields)
    entry = file.message_type.add(name="Entry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=5, label=1, type=9)
    google = FileDescriptorProto(name="x.proto", package="google.protobuf")
    google.message_type.add(name="Timestamp").field.add(name="other", number=1, label=1, type=5)
    if fields.get("type_name") == ".Entry":
        return text_of_files([file])
    del file.message_type[1]
    file.dependency.append("x.proto")
    return text_of_files([google, file])


def test_descriptors_that_no_compiler_makes_are_refused_or_read_as_they_are() -> None:
    with pytest.raises(InvalidSchemaError, match="'Entry' is no entry of a map"):
        ProtobufProvider().reader_schema(SchemaText(forged(type=11, type_name=".Entry")))
    timestamp = forged(type=11, type_name=".google.protobuf.Timestamp")
    assert read(timestamp, b"\x0a\x02\x08\x05") == ([{"f": {"other": 5}}], [])
    nameless = FileDescriptorProto.FromString(b"\x0a\x02\xff\xfe")
    with pytest.raises(InvalidSchemaError, match="the name of a file is not UTF-8"):
        ProtobufProvider().reader_schema(SchemaText(text_of_files([nameless])))


def test_a_message_inside_of_itself_is_refused_where_it_is_wanted() -> None:
    schema = proto3("int32 a = 1; M m = 2; repeated M more = 3;")
    with pytest.raises(
        InvalidSchemaError, match=r"'m' of the Protobuf schema has the type p\.M, which contains itself"
    ):
        ProtobufProvider().type(SchemaText(schema), None)
    assert read(schema, b"\x08\x05\x12\x02\x08\x06", wanted={"a": None}) == ([{"a": 5}], [])


def test_columns_are_bounded_in_number_and_depth() -> None:
    ten = " ".join(f"LEVEL f{number} = {number};" for number in range(1, 11))
    levels = "".join(f"message L{n} {{ {ten.replace('LEVEL', f'L{n + 1}')} }} " for n in range(9))
    wide = proto3("L0 l = 1;") + levels + "message L9 { int32 a = 1; }"
    with pytest.raises(InvalidSchemaError, match="more than 16384 columns"):
        ProtobufProvider().type(SchemaText(wide), None)
    deep = proto3("L0 l = 1;") + "".join(f"message L{n} {{ L{n + 1} l = 1; }} " for n in range(70))
    with pytest.raises(InvalidSchemaError, match="nested 60 deep"):
        ProtobufProvider().type(SchemaText(deep + "message L70 { int32 a = 1; }"), None)


# Types


def test_messages_of_google_are_values() -> None:
    names = ("timestamp", "duration", "wrappers", "struct", "any", "empty")
    schema = proto3(
        "google.protobuf.Timestamp t = 1; google.protobuf.Duration d = 2; google.protobuf.Int32Value i = 3;"
        "google.protobuf.StringValue s = 4; google.protobuf.Struct j = 5; google.protobuf.Value v = 6;"
        "google.protobuf.ListValue l = 7; google.protobuf.Any a = 8; google.protobuf.Empty e = 9;"
        "google.type.Date date = 10; google.protobuf.BoolValue none = 11;",
        *(f"google/protobuf/{name}.proto" for name in names),
        "google/type/date.proto",
    )
    made = message(
        schema,
        "p.M",
        t={"seconds": -1, "nanos": 999_999_999},
        d={"seconds": -1, "nanos": -1_500},
        i={},
        s={"value": "x"},
        a={"type_url": "u", "value": b"v"},
        e={},
        date={"year": 2024, "month": 2},
    )
    made.j.update({"b": [1, None], "a": "\N{SNOWMAN}"})  # type: ignore[attr-defined]
    made.v.string_value = "x"  # type: ignore[attr-defined]
    made.l.SetInParent()  # type: ignore[attr-defined]
    (row,), reasons = read(schema, made.SerializeToString())
    assert reasons == []
    assert row["t"].isoformat() == "1969-12-31T23:59:59.999999+00:00"
    assert row["d"].total_seconds() == -1.000001
    assert (row["i"], row["s"], row["none"], row["e"]) == (0, "x", None, True)
    assert (row["j"], row["v"], row["l"]) == ('{"a": "\N{SNOWMAN}", "b": [1.0, null]}', '"x"', "[]")
    assert row["a"] == {"type_url": "u", "value": b"v"}
    assert row["date"] == {"year": 2024, "month": 2, "day": 0}


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_json_of_google_has_no_nan_and_no_infinity(number: str) -> None:
    schema = proto3("google.protobuf.Value v = 1; double d = 2;", "google/protobuf/struct.proto")
    made = message(schema, "p.M", v={"number_value": float(number)})
    rows, reasons = read(schema, made.SerializeToString(), message(schema, "p.M", d=float(number)).SerializeToString())
    assert rows[0] is None
    assert "which would parse as string_value" in reasons[0]
    assert len(reasons) == 1
    assert repr(rows[1]["d"]) == number


def test_decimals_of_confluent_have_the_scale_of_each_value() -> None:
    schema = proto3("confluent.type.Decimal d = 1;", "confluent/type/decimal.proto")
    written = [
        message(schema, "p.M", d={"value": unscaled.to_bytes(2, "big", signed=True), "precision": 4, "scale": scale})
        for unscaled, scale in ((-200, 2), (12345, 3))
    ]
    rows, reasons = read(schema, *(each.SerializeToString() for each in written))
    assert reasons == []
    found = [row["d"] for row in rows]
    numbers = [Decimal(int.from_bytes(d["value"], "big", signed=True)).scaleb(-d["scale"]) for d in found]
    assert numbers == [Decimal("-2.00"), Decimal("12.345")]
    assert [d["precision"] for d in found] == [4, 4]


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("google.protobuf.Timestamp", b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "is not in the years 1 to 9999"),
        ("google.protobuf.Timestamp", b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "is not in the years 1 to 9999"),
        ("google.protobuf.Duration", b"\x08\x01\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "different signs"),
        ("google.protobuf.Value", b"\x11\0\0\0\0\0\0\xf8\x7f", "field f"),
        ("string", b"\xff", "it is no p.M: "),
    ],
)
def test_values_that_no_column_can_hold_are_bad(field: str, value: bytes, reason: str) -> None:
    names = [f"google/protobuf/{name}.proto" for name in ("timestamp", "duration", "struct")]
    schema = proto3(f"{field} f = 1; int32 n = 2;", *names)
    rows, reasons = read(schema, b"\x10\1", b"\x0a" + bytes((len(value),)) + value, b"\x10\2")
    assert [row and row["n"] for row in rows] == [1, None, 2]
    (found,) = reasons
    assert reason in found


def test_fields_of_proto2_have_their_defaults_and_text_that_is_none() -> None:
    schema = (
        'syntax = "proto2"; message M { optional int32 a = 1 [default = -5]; optional int32 b = 2; '
        "optional string s = 3; optional E e = 4 [default = TWO]; optional E f = 5; repeated E g = 6; "
        "optional group H = 7 { optional int32 i = 1; } enum E { ONE = 1; TWO = 2; } }"
    )
    rows, reasons = read(schema, b"", b"\x08\x00\x10\x00\x1a\x01\xff\x20\x01\x28\x09\x30\x01\x30\x07\x3b\x08\x03\x3c")
    assert reasons == []
    assert rows[0] == {"a": -5, "b": None, "s": None, "e": "TWO", "f": None, "g": [], "h": None}
    assert rows[1] == {
        "a": 0,
        "b": 0,
        "s": "\N{REPLACEMENT CHARACTER}",
        "e": "ONE",
        "f": None,
        "g": ["ONE"],
        "h": {"i": 3},
    }


def test_fields_of_proto3_are_zero_or_null_by_their_presence() -> None:
    schema = proto3("int32 a = 1; optional int32 b = 2; M2 m = 3; oneof o { int32 c = 4; string d = 5; } E e = 6;")
    schema += "message M2 { string s = 1; } enum E { ZERO = 0; ONE = 1; }"
    rows, reasons = read(schema, b"", b"\x10\x00\x1a\x00\x20\x00\x30\x63", b"\x20\x01\x2a\x01x")
    assert reasons == []
    assert rows[0] == {"a": 0, "b": None, "m": None, "c": None, "d": None, "e": "ZERO"}
    assert rows[1] == {"a": 0, "b": 0, "m": {"s": ""}, "c": 0, "d": None, "e": "99"}
    assert (rows[2]["c"], rows[2]["d"]) == (None, "x")


def test_the_last_value_of_a_field_counts_and_messages_are_merged() -> None:
    schema = proto3("int32 a = 1; M2 m = 2; repeated int32 r = 3; map<string, int32> p = 4;")
    schema += "message M2 { int32 x = 1; repeated int32 y = 2; }"
    value = b"\x08\x01\x12\x04\x08\x01\x10\x05\x08\x02\x12\x02\x10\x06\x1a\x02\x01\x02\x18\x03"
    value += b"\x22\x05\x0a\x01k\x10\x01\x22\x05\x0a\x01k\x10\x02\xf8\x7f\x01"
    rows, reasons = read(schema, value)
    assert reasons == []
    assert rows == [{"a": 2, "m": {"x": 1, "y": [5, 6]}, "r": [1, 2, 3], "p": [("k", 2)]}]


def test_a_field_of_another_wire_type_is_a_bad_value() -> None:
    schema = proto3("int32 a = 1; M2 m = 2; repeated int32 r = 3;") + "message M2 { string s = 1; }"
    rows, reasons = read(schema, b"\x0a\x01x", b"\x12\x02\x08\x01", b"\x1d\1\1\1\1", b"\x1a\x01\x07")
    assert rows[:3] == [None] * 3
    assert rows[3]["r"] == [7]
    assert reasons == [
        "field a was written as bytes, expected a varint",
        "field m.s was written as a varint, expected bytes",
        "field r was written as 4 bytes, expected a varint or bytes",
    ]


def test_a_field_may_have_any_name() -> None:
    names = ("HasField", "MergeFrom", "DESCRIPTOR", "FromString", "class", "None", "__class__", "ListFields", "self")
    fields = " ".join(f"optional int32 {name} = {number};" for number, name in enumerate(names, 1))
    schema = proto3(f"{fields} repeated N DESCRIPTOR2 = 20;") + f"message N {{ {fields}}}"
    value = bytes(each for number in range(1, len(names) + 1) for each in (number << 3, number))
    value += b"\xa2\x01" + bytes((len(value),)) + value
    (row,), reasons = read(schema, value)
    inner = dict(zip(names, range(1, len(names) + 1), strict=True))
    assert (row, reasons) == ({**inner, "DESCRIPTOR2": [inner]}, [])
    single = proto3("N one = 20;") + f"message N {{ {fields} }}"
    ((row,), reasons) = read(single, value + value[18:], writer=schema)
    assert (row, reasons) == ({"one": inner}, [])


# Versions


VERSIONS: list[tuple[str, Any, str, Any]] = [
    ("int32 f", -5, "int64 f", -5),
    ("sint32 f", -5, "int64 f", -5),
    ("int64 f", 7, "int32 f", 7),
    ("int64 f", 2**40, "int32 f", "field f: "),
    ("int32 f", -1, "uint32 f", "field f: "),
    ("bool f", True, "int32 f", 1),
    ("int32 f", 2, "bool f", True),
    ("float f", 0.5, "double f", 0.5),
    ("double f", 0.5, "float f", "was written as double, expected float"),
    ("double f", 0.0, "float f", 0.0),
    ("string f", "x", "int32 f", "field f was written as string, expected int32"),
    ("string f", "\N{SNOWMAN}", "bytes f", "\N{SNOWMAN}".encode()),
    ("bytes f", b"x", "string f", "x"),
    ("bytes f", b"\xff", "string f", "field f: bytes that are no UTF-8 from byte 0 on"),
    ("int32 other_name", 5, "int32 f", 5),
    ("E f", 1, "int32 f", 1),
    ("int32 f", 1, "E f", "ONE"),
    ("int32 f", 9, "E f", "9"),
    ("optional int32 f", 0, "int32 f", 0),
    ("int32 f", 0, "optional int32 f", None),
    ("optional int32 f", 0, "optional int32 f", 0),
    ("repeated int32 f", [1, 2], "int32 f", 2),
    ("repeated int32 f", [], "int32 f", 0),
    ("int32 f", 3, "repeated int32 f", [3]),
    ("int32 f", 0, "repeated int32 f", []),
    ("repeated S f", [{"a": 1}, {"b": 2}], "S f", {"a": 1, "b": 2}),
    ("S f", {"a": 1}, "T f", {"a": 1}),
    ("map<string, int32> f", {"k": 1}, "map<string, int64> f", [("k", 1)]),
    ("map<string, int32> f", {"k": 1}, "repeated int32 f", "was written as a map"),
    ("map<string, int32> f", {}, "repeated int32 f", []),
    ("int32 f", 1, "map<string, int32> f", "was written as int, expected map"),
    ("S f", {}, "int32 f", "was written as p.S, expected int32"),
    ("int32 f", 4, "S f", "was written as int, expected p.S"),
]
MORE = "message S { int32 a = 1; int32 b = 2; } message T { int64 a = 1; } enum E { ZERO = 0; ONE = 1; }"


@cache
def versions() -> dict[str, str]:
    """Return the schemas of VERSIONS by their fields, compiled at once."""
    fields = list(dict.fromkeys(field for before, _, now, _ in VERSIONS for field in (before, now)))
    texts = portable_texts([SchemaText(proto3(f"{field} = 3; int32 n = 4;") + MORE) for field in fields])
    return {field: text or "" for field, text in zip(fields, texts, strict=True)}


@pytest.mark.parametrize(("before", "value", "now", "expected"), VERSIONS)
def test_fields_of_other_versions_are_read_by_number(before: str, value: Any, now: str, expected: Any) -> None:
    writer, reader = versions()[before], versions()[now]
    name = before.rpartition(" ")[2]
    good = message(writer, "p.M", n=1).SerializeToString()
    (first, row, last), reasons = read(
        reader, good, message(writer, "p.M", n=2, **{name: value}).SerializeToString(), good, writer=writer
    )
    assert first["n"] == last["n"] == 1
    if isinstance(expected, str) and expected not in ("x", "ONE", "9"):
        assert row is None
        assert expected in reasons[0]
    else:
        assert (row["f"], reasons) == (expected, [])


def test_what_a_version_did_not_have_is_as_if_it_was_not_written() -> None:
    reader = proto3("int32 a = 1; optional int32 b = 2; repeated int32 c = 3; map<string, int32> d = 4; M2 m = 5;")
    reader += "message M2 { int32 a = 1; }"
    rows, reasons = read(reader, b"", b"\x32\x01x", writer=proto3("string other = 6;"))
    assert rows == [{"a": 0, "b": None, "c": [], "d": [], "m": None}] * 2
    assert reasons == []


def test_indexes_count_messages_in_messages_as_java_or_python_does(tmp_path: Path) -> None:
    schema = schema_of(SchemaText(proto3("map<string, int32> e = 1; message A {} message B {}")))
    assert schema.at([0, 1], "M.A").full_name == "p.M.A"
    assert schema.at([0, 0], "M.A").full_name == "p.M.A"
    assert schema.at([0, 1], "M").full_name == "p.M.B"
    assert schema.at([0, 2], "M.A").full_name == "p.M.B"
    with pytest.raises(InvalidSchemaError, match="no message of these indexes"):
        schema.at([0, 3], "M")


# Memory


@pytest.mark.parametrize("start", [0, 3])
def test_parts_of_an_array_end_at_their_bytes(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf_reader, "_BYTES_AT_ONCE", 100)
    monkeypatch.setattr(protobuf_reader, "_ROWS_AT_ONCE", 5)
    sizes = [30, None, 40, 1, 50, 50, 0, None, 101, 127, None, 0, 0, 0, 0, 0, 3]
    values = [None if size is None else b"\x0a" + bytes([size]) + b"x" * size for size in sizes]
    schema = SchemaText(proto3("string s = 1;"))
    # Null rows that have bytes, as those of other writers may.
    buffers = pa.array([value or b"hidden" * 30 for value in values], pa.binary()).buffers()
    validity = pa.array([value is not None for value in values]).buffers()[1]
    for array in (
        pa.array(values, pa.binary()),
        pa.Array.from_buffers(pa.binary(), len(values), [validity, *buffers[1:]]),
    ):
        reader = ProtobufProvider().reader(
            schema, None, lambda _: schema, framing="none", most_bytes=1 << 20, header_ids=None
        )
        parts = list(reader.decode(array.slice(start)))
        rows = [row for part in parts for row in part.values.to_pylist()]
        assert [row and len(row["s"]) for row in rows] == sizes[start:]
        assert [part.start for part in parts] == [
            sum(len(each.values) for each in parts[:n]) for n in range(len(parts))
        ]
        for part in parts:
            data = [value for value in array.slice(start + part.start, len(part.values)).to_pylist() if value]
            assert len(part.values) <= 5
            assert len(data) <= 1 or sum(map(len, data)) <= 100


def test_what_is_made_of_an_array_is_not_more_than_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf_reader, "_BYTES_AT_ONCE", 1000)
    schema = SchemaText(proto3("string s = 1;"))
    asked: list[int] = []

    class Rows:
        """An array that counts the rows of which values are made."""

        def __init__(self, array: pa.BinaryArray) -> None:
            self._array = array

        def __len__(self) -> int:
            return len(self._array)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._array, name)

        def slice(self, *where: int) -> Rows:
            return Rows(self._array.slice(*where))

        def to_pylist(self) -> list[Any]:
            asked.append(len(self._array))
            return self._array.to_pylist()

    reader = ProtobufProvider().reader(
        schema, None, lambda _: schema, framing="none", most_bytes=1 << 20, header_ids=None
    )
    array = Rows(pa.array([b"\x0a\x62" + b"x" * 98] * 200, pa.binary()))
    assert sum(len(part.values) for part in reader.decode(array)) == 200
    assert asked == [10] * 20


@pytest.mark.parametrize("as_group", [False, True])
def test_small_values_that_are_many_messages_are_not_parsed(as_group: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = " ".join(f"optional int64 f{n} = {n};" for n in range(1, 50))
    field = f"repeated group W = 1 {{ {fields} }}" if as_group else "repeated W w = 1;"
    schema = f'syntax = "proto2"; message M {{ {field} repeated string s = 2; }} '
    schema += "" if as_group else f"message W {{ {fields} }}"
    item = b"\x0b\x08\x05\x0c" if as_group else b"\x0a\x02\x08\x05"
    few, many, text = item * 10, item * 2000, b"\x12\x7e" + b"x" * 126
    rows, reasons = read(schema, few, many, text * 600, few, most_bytes=1 << 20, wanted={"s": None})
    assert [None if row is None else len(row["s"]) for row in rows] == [0, None, 600, 0]
    assert reasons == ["it takes too much memory as columns"]


def test_a_value_whose_columns_take_too_much_memory_is_bad_and_others_are_read() -> None:
    schema = proto3("repeated int64 n = 1;")
    packed = b"\x0a\xc0\x9a\x0c" + b"\5" * 200_000
    rows, reasons = read(schema, packed, b"\x0a\1\5", most_bytes=1 << 20)
    assert rows == [None, {"n": [5]}]
    assert reasons == ["it takes too much memory as columns"]
    ((row,), reasons) = read(schema, packed, most_bytes=1 << 21)
    assert (len(row["n"]), reasons) == (200_000, [])
