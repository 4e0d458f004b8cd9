"""Goal: `kstore cat --value` shows keys and values as their schemas say, and their bytes where they cannot be decoded.
Method: rides with a tombstone and bad values, and values of all logical types; text and JSON of each mode compared."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import kstore as library
from kstore.errors import SchemaNotFoundError
from tests.cli.runner import Runner, runner
from tests.making.avro_values import encoded
from tests.making.rides import KEY, ROWS, V1, framed, register, write_rides
from tests.values.test_resolution import record

BAD = (
    "the value of the record at offset 3 of rides-0 cannot be decoded: at byte 6, of schema id 2, it ends inside of a "
    "field"
)
NEEDS_PACKAGE = "kstore: this needs the package pyarrow: pip install 'kstore[arrow]'\n"


@pytest.fixture
def kstore(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Runner:
    return runner(monkeypatch, capsysbinary)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_rides(tmp_path / "root")


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def one_value(root: Path, schema: Any, value: bytes, **more: Any) -> Path:
    with library.open_store(root, "a") as store:
        store.create_topic("t", partitions=1)
        with library.Producer(store) as producer:
            producer.send("t", value, **more)
    (root / "schema.avsc").write_text(json.dumps(schema))
    return root


def test_text_has_the_decoded_value_and_the_bytes_of_a_bad_one(kstore: Runner, root: Path) -> None:
    run = kstore("cat", root, "--topic", "rides", "--value", "avro", "--key", "avro")
    assert [line.split("\t")[3:] for line in run.out.splitlines()] == [
        ['{"k":0}', compact(ROWS[0])],
        ['{"k":1}', compact(ROWS[1])],
        ['{"k":2}', "<null>"],
        ['{"k":3}', r"\x00\x00\x00\x00\x02\x02"],
        ['{"k":4}', r"\x00\x00\x00\x00\t\x06\x04DL"],
        ['{"k":5}', compact(ROWS[5])],
    ]
    assert run.status == 1
    assert run.err.splitlines() == [
        f"kstore: {BAD}",
        "kstore: 1 more record with a key or value that cannot be decoded",
    ]


def test_json_has_objects_beside_the_bytes_and_the_reasons_of_bad_ones(kstore: Runner, root: Path) -> None:
    decoded = kstore("cat", root, "--topic", "rides", "--value", "avro", "--key", "avro", "--json").objects()
    plain = kstore("cat", root, "--topic", "rides", "--json").objects()
    for number, (line, bytes_only) in enumerate(zip(decoded, plain, strict=True)):
        reason = line.pop("valueError", None)
        assert (reason is not None) == (number in (3, 4))
        assert line == bytes_only | {"decodedKey": {"k": number}, "decodedValue": ROWS[number]}


@pytest.mark.parametrize("follow", [[], ["--follow"]], ids=["", "follow"])
@pytest.mark.parametrize(("limit", "offsets", "status"), [(3, [0, 1, 2], 0), (4, [0, 1, 2, 5], 1)])
def test_records_with_bad_values_are_left_out_and_the_limit_counts_the_others(
    kstore: Runner, root: Path, follow: list[str], limit: int, offsets: list[int], status: int
) -> None:
    options = ["--value", "avro", "--mode", "dropmalformed", "--json", "--limit", limit]
    run = kstore("cat", root, "--topic", "rides", *options, *follow)
    assert [each["offset"] for each in run.objects()] == offsets
    assert (run.status, len(run.err.splitlines())) == (status, 2 * status)


@pytest.mark.parametrize("follow", [[], ["--follow"]], ids=["", "follow"])
def test_failfast_ends_with_the_records_before_a_bad_value(kstore: Runner, root: Path, follow: list[str]) -> None:
    run = kstore("cat", root, "--topic", "rides", "--value", "avro", "--mode", "FAILFAST", "--json", *follow)
    assert [each["offset"] for each in run.objects()] == [0, 1, 2]
    assert run.status == 1
    assert "offset 3 of rides-0 cannot be decoded" in run.err


def test_modes_are_those_of_a_scan(kstore: Runner, root: Path) -> None:
    for mode in ("PERMISSIVE", "DROPMALFORMED"):
        table = library.scan(root, topics="rides", value="avro", mode=mode).to_table()  # type: ignore[arg-type]
        lines = kstore("cat", root, "--topic", "rides", "--value", "avro", "--mode", mode, "--json").objects()
        assert [each["decodedValue"] for each in lines] == table["value"].to_pylist()
        assert [each.get("valueError") for each in lines] == (
            table["_corrupt_value"].to_pylist() if mode == "PERMISSIVE" else [None] * 4
        )


def test_values_of_a_subject_are_read_until_it_is_deleted_for_good(kstore: Runner, root: Path) -> None:
    def write(*records: tuple[str, int | None, Any]) -> None:
        with library.open_store(root, "a") as store, library.Producer(store) as producer:
            for kind, version, value in records:
                place = {"keytype": kind, "subject": "rides-value", "magic": 1}
                key = place if version is None else {**place, "version": version}
                producer.send("_schemas", None if value is None else compact(value).encode(), key=compact(key).encode())

    def shown() -> list[Any]:
        return [each["decodedValue"] for each in kstore("cat", root, *options).objects()]

    options = ["--topic", "rides", "--value", "avro", "--json"]
    write(("DELETE_SUBJECT", None, {"subject": "rides-value", "version": 2}))
    assert shown() == ROWS
    # Registered again, the first text has its old id and the next version, which rows have from now on.
    write(("SCHEMA", 3, {"subject": "rides-value", "version": 3, "id": 1, "schema": json.dumps(V1)}))
    without_delay = [None if row is None else {"id": row["id"], "carrier": row["carrier"]} for row in ROWS]
    assert shown() == without_delay
    listed = kstore("schemas", root, "--subject", "rides-value", "--json").objects()
    versions = [(each["version"], each["schema_id"], each["is_deleted"]) for each in listed]
    assert versions == [(1, 1, True), (2, 2, True), (3, 1, False)]
    for subject in ([], ["--subject", "rides-value"]):
        (by_id,) = kstore("schemas", root, "--get", 1, *subject, "--json").objects()
        assert (by_id["version"], by_id["is_deleted"]) == (3, False)
    # A hard deletion leaves no schema for the values that were written with it.
    write(("SCHEMA", 2, None), ("SCHEMA", 1, None))
    assert shown() == [without_delay[0], None, None, None, None, without_delay[5]]
    assert "at byte 5, of schema id 2, the schema of its id is not known" in kstore("cat", root, *options).err


def test_each_topic_has_its_own_schema_and_the_schemas_are_shown_as_they_are(kstore: Runner, root: Path) -> None:
    other = record(("x", "int"))
    with library.open_store(root, "a") as store:
        store.create_topic("other", partitions=2)
        with library.Producer(store) as producer:
            register(producer, "other-value", 1, 7, other)
            for partition in (0, 1):
                producer.send("other", framed(7, other, {"x": partition}), partition=partition)
    lines = kstore("cat", root, "--value", "avro", "--json").objects()
    assert [each["decodedValue"] for each in lines if each["topic"] == "other"] == [{"x": 0}, {"x": 1}]
    assert [each["decodedValue"] for each in lines if each["topic"] == "rides"] == ROWS
    assert not any("decodedValue" in each for each in lines if each["topic"] == "_schemas")


def test_a_file_of_a_root_is_read_by_the_schemas_of_the_root(kstore: Runner, root: Path, tmp_path: Path) -> None:
    (segment,) = (root / "rides-0").glob("*.log")
    renamed = root / "rides-0.0123456789abcdef0123456789abcdef-delete"
    (root / "rides-0").rename(renamed)
    for place in (renamed / segment.name, renamed):
        lines = kstore("cat", place, "--value", "avro", "--json").objects()
        assert [each["decodedValue"] for each in lines] == ROWS
    alone = tmp_path / "segment.bin"
    (renamed / segment.name).rename(alone)
    run = kstore("cat", alone, "--value", "avro")
    assert (run.status, run.out) == (2, "")
    assert "has no topic _schemas" in run.err
    lines = kstore("cat", alone, "--value", "avro", "--json", "--schemas", root, "--schema-id", 2).objects()
    assert [each["decodedValue"] for each in lines] == ROWS


def test_a_topic_without_a_schema_is_reported_and_the_others_are_shown(kstore: Runner, root: Path) -> None:
    with library.open_store(root, "a") as store:
        store.create_topic("plain", partitions=1)
        with library.Producer(store) as producer:
            producer.send("plain", b"text")
    run = kstore("cat", root, "--value", "avro", "--json", "--limit", 11)
    assert {each["topic"] for each in run.objects()} == {"_schemas", "rides"}
    assert run.status == 2
    assert "no subject plain-value" in run.err


def test_a_schema_may_be_chosen_or_given_and_schemas_may_be_elsewhere(
    kstore: Runner, root: Path, tmp_path: Path
) -> None:
    one = ["--topic", "rides", "--limit", 1, "--json", "--value", "avro"]
    (line,) = kstore("cat", root, *one, "--schema-id", 1).objects()
    assert line["decodedValue"] == {"id": 1, "carrier": "AA"}
    partition = tmp_path / "elsewhere" / "rides-0"
    partition.parent.mkdir()
    (root / "rides-0").rename(partition)
    assert kstore("cat", partition, *one).status == 2
    (line,) = kstore("cat", partition, *one, "--schemas", root).objects()
    assert line["decodedValue"] == ROWS[0]
    file = tmp_path / "wanted.avsc"
    file.write_text(json.dumps(record(("carrier", "string"))))
    (line,) = kstore("cat", partition, *one, "--schemas", root, "--schema", file).objects()
    assert line["decodedValue"] == {"carrier": "AA"}


def test_logical_types_have_one_form_in_json(kstore: Runner, tmp_path: Path) -> None:
    def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
        return {"type": kind, "logicalType": name, **more}

    when_ms = 1714566615123
    fields: list[tuple[str, Any, Any, Any]] = [
        ("date", logical("int", "date"), 19844, "2024-05-01"),
        ("time", logical("int", "time-millis"), 3723004, "01:02:03.004"),
        ("micros", logical("long", "time-micros"), 3723000004, "01:02:03.000004"),
        ("at", logical("long", "timestamp-millis"), when_ms, "2024-05-01T12:30:15.123Z"),
        ("at_micros", logical("long", "timestamp-micros"), when_ms * 1000, "2024-05-01T12:30:15.123000Z"),
        ("local", logical("long", "local-timestamp-millis"), when_ms, "2024-05-01T12:30:15.123"),
        ("late", {"type": "long", "logicalType": "timestamp-millis"}, 253402300800000, "10000-01-01T00:00:00.000Z"),
        (
            "amount",
            logical("bytes", "decimal", precision=9, scale=2),
            (-1230).to_bytes(2, "big", signed=True),
            "-12.30",
        ),
        ("uuid", logical("string", "uuid"), str(UUID(int=5)), str(UUID(int=5))),
        ("data", "bytes", b"\xff\0", "/wA="),
        ("fixed", {"type": "fixed", "name": "F", "size": 2}, b"ab", "YWI="),
        ("nan", "double", float("nan"), "NaN"),
        ("infinite", "float", float("-inf"), "-Infinity"),
        ("kind", {"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        ("text_or_number", ["null", "string", "long"], 5, 5),
        ("number_or_text", ["null", "string", "long"], "x", "x"),
        ("neither", ["null", "string", "long"], None, None),
        ("tags", {"type": "map", "values": ["null", "bytes"]}, {"a": b"x", "b": None}, {"a": "eA==", "b": None}),
        ("list", {"type": "array", "items": logical("int", "date")}, [-1], ["1969-12-31"]),
        ("inner", {**record(("n", "long")), "name": "Inner"}, {"n": 2**62}, {"n": 2**62}),
    ]
    schema = record(*((name, kind) for name, kind, _, _ in fields))
    value = encoded(schema, {name: value for name, _, value, _ in fields})
    root = one_value(tmp_path / "root", schema, value)
    options = ["--value", "avro", "--schema", root / "schema.avsc"]
    expected = {name: shown for name, _, _, shown in fields}
    (line,) = kstore("cat", root, *options, "--json").objects()
    assert line["decodedValue"] == expected
    text = kstore("cat", root, *options).out.rstrip("\n").split("\t")[4]
    assert json.loads(text) == expected


@pytest.mark.parametrize(
    ("schema", "value", "text"),
    [
        ("string", "a\x1bb", r"a\x1bb"),
        ("string", "", '""'),
        ("bytes", b"\xff\0", r"\x04\xff\x00"),
        ("long", 5, "5"),
        ("null", None, "<empty>"),
        (["null", "long"], None, "null"),
        ({"type": "map", "values": "string"}, {"k": "\x1b"}, r'{"k":"\\u001b"}'.replace("\\\\", "\\")),
    ],
    ids=str,
)
def test_text_of_values_that_are_no_records(kstore: Runner, tmp_path: Path, schema: Any, value: Any, text: str) -> None:
    root = one_value(tmp_path / "root", schema, encoded(schema, value))
    run = kstore("cat", root, "--value", "avro", "--schema", root / "schema.avsc")
    assert (run.status, run.out.rstrip("\n").split("\t")[4]) == (0, text)


def test_a_schema_that_is_registered_while_records_are_followed_is_used(
    kstore: Runner, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kstore.cli.printing.cat import Printer

    newer = record(("id", "long"), ("carrier", "string"), ("gate", "string", "-"))
    show, shown = Printer.show, []

    def show_and_write(*args: Any, **options: Any) -> Any:
        is_shown = show(*args, **options)
        if not shown:
            shown.append(1)
            with library.open_store(root, "a") as store, library.Producer(store) as producer:
                register(producer, "rides-value", 3, 4, newer)
                producer.flush()
                producer.send(
                    "rides", framed(4, newer, {"id": 5, "carrier": "UA", "gate": "B7"}), key=framed(3, KEY, {"k": 6})
                )
        return is_shown

    monkeypatch.setattr(Printer, "show", show_and_write)
    run = kstore("cat", root, "--topic", "rides", "--value", "avro", "--json", "--follow", "--limit", 7)
    assert run.objects()[0]["decodedValue"] == ROWS[0]
    assert run.objects()[-1]["decodedValue"] == {"id": 5, "carrier": "UA", "gate": "B7"}


def test_ids_in_headers_are_used(kstore: Runner, tmp_path: Path) -> None:
    guid = UUID(int=77)
    root = tmp_path / "root"
    with library.open_store(root, "a") as store:
        store.create_topic("_schemas", partitions=1)
        store.create_topic("t", partitions=1)
        with library.Producer(store) as producer:
            register(producer, "t-value", 1, 1, V1, guid=str(guid))
            header = ("__value_schema_id", b"\1" + guid.bytes)
            producer.send("t", encoded(V1, {"id": 1, "carrier": "AA"}), headers=[("other", None), header])
            producer.send("t", framed(1, V1, {"id": 2, "carrier": "UA"}), headers=[("not utf-8 \udcff", b"")])
    lines = kstore("cat", root, "--topic", "t", "--value", "avro", "--json").objects()
    assert [each["decodedValue"]["id"] for each in lines] == [1, 2]


def test_many_records_are_decoded_in_parts(kstore: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kstore.cli.printing.values._MOST_RECORDS", 3)
    root = tmp_path / "root"
    schema = record(("n", "int"))
    bad = {1, 4, 5, 9}
    with library.open_store(root, "a") as store:
        store.create_topic("t", partitions=1)
        with library.Producer(store, linger_ms=1000) as producer:
            for number in range(10):
                producer.send("t", b"" if number in bad else encoded(schema, {"n": number}))
    file = tmp_path / "schema.avsc"
    file.write_text(json.dumps(schema))
    options = ["--value", "avro", "--schema", file, "--json"]
    lines = kstore("cat", root, *options).objects()
    assert [each["offset"] for each in lines] == list(range(10))
    assert {each["offset"] for each in lines if "valueError" in each} == bad
    assert [each["decodedValue"] and each["decodedValue"]["n"] for each in lines] == [
        None if number in bad else number for number in range(10)
    ]
    for limit, status in ((1, 0), (2, 1), (5, 1), (6, 1)):
        run = kstore("cat", root, *options, "--mode", "DROPMALFORMED", "--limit", limit)
        assert [each["decodedValue"]["n"] for each in run.objects()] == [0, 2, 3, 6, 7, 8][:limit]
        assert run.status == status


@pytest.mark.parametrize(
    "options", [["--schemas", "x"], ["--schema", "x"], ["--schema-id", 1], ["--message", "M"], ["--mode", "FAILFAST"]]
)
def test_options_of_a_format_need_one(kstore: Runner, root: Path, options: list[Any]) -> None:
    run = kstore("cat", root, *options)
    assert (run.status, run.out) == (2, "")
    assert "need --value or --key" in run.err


def test_a_schema_id_is_for_formats_with_schemas(kstore: Runner, root: Path) -> None:
    run = kstore("cat", root, "--value", "long", "--schema-id", 1)
    assert (run.status, run.out) == (2, "")
    assert "--schema-id and --message are for values of the formats avro" in run.err


def test_a_package_that_is_missing_is_named(kstore: Runner, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("kstore.values", "kstore.arrow", "kstore.archive"))]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("values", "arrow", "archive"):
        # The import of another module of the name puts that in its place.
        monkeypatch.delattr(library, name, raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert kstore("cat", root, "--value", "avro") == (2, "", NEEDS_PACKAGE)
    assert kstore("export", root, root.parent / "out", "--topic", "rides") == (2, "", NEEDS_PACKAGE)
    assert kstore("cat", root, "--topic", "rides", "--value", "string", "--limit", 1).status == 0
    assert kstore("schemas", root).status == 0


def test_what_is_wrong_with_a_schema_is_the_same_as_in_a_scan(kstore: Runner, root: Path) -> None:
    with pytest.raises(SchemaNotFoundError) as caught:
        library.scan(root, topics="rides", value=library.ValueFormat("avro", schema_id=50))
    run = kstore("cat", root, "--topic", "rides", "--value", "avro", "--schema-id", 50)
    assert (run.status, run.out, run.err) == (2, "", f"kstore: {caught.value}\n")


def test_json_is_shown_as_objects_also_where_a_column_has_its_text(kstore: Runner, tmp_path: Path) -> None:
    root = tmp_path / "root"
    with library.open_store(root, "a") as store:
        store.create_topic("t", partitions=1)
        with library.Producer(store) as producer:
            for value in (b'{"id":1,"mixed":{"a":[1]}}', b'{"id":2,"mixed":"x"}', b'{"id":'):
                producer.send("t", value)
    run = kstore("cat", root, "--value", "json", "--schema", "infer", "--json")
    shown = [json.loads(line) for line in run.out.splitlines()]
    assert [each["decodedValue"] for each in shown] == [{"id": 1, "mixed": {"a": [1]}}, {"id": 2, "mixed": "x"}, None]
    assert shown[2]["valueError"] == "at byte 6, it ends before its JSON does"
    assert 'JSON needs no registry: pass schema= (a type of Arrow or a JSON Schema), or schema="infer"' in (
        kstore("cat", root, "--value", "json").err
    )


def test_messages_of_google_and_fields_of_any_name_are_shown(kstore: Runner, tmp_path: Path) -> None:
    root = tmp_path / "root"
    with library.open_store(root, "a") as store:
        store.create_topic("t", partitions=1)
        with library.Producer(store) as producer:
            producer.send("t", b"\x08\x05\x1a\x0b\x08\xfd\xff\xff\xff\xff\xff\xff\xff\xff\x01")
    schema = tmp_path / "m.proto"
    schema.write_text(
        'syntax = "proto3"; import "google/protobuf/duration.proto"; message M { optional int32 member0 = 1; '
        "optional int32 member1 = 2; google.protobuf.Duration d = 3; N n = 4; } "
        "message N { optional int32 member0 = 1; optional int32 member1 = 2; }"
    )
    (line,) = kstore("cat", root, "--value", "protobuf", "--schema", schema, "--json").objects()
    assert line["decodedValue"] == {"member0": 5, "member1": None, "d": "-3.000000s", "n": None}
    schema.write_text('syntax = "proto3"; message M { optional int32 member0 = 1; optional int32 member1 = 2; }')
    (line,) = kstore("cat", root, "--value", "protobuf", "--schema", schema, "--json").objects()
    assert line["decodedValue"] == {"member0": 5, "member1": None}


@pytest.mark.parametrize("output", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize("limit", [2, 3, 4, 5, 6, 7])
def test_the_limit_counts_records_before_a_value_that_ends_its_partition(
    kstore: Runner, tmp_path: Path, output: list[str], limit: int
) -> None:
    root = tmp_path / "root"
    with library.open_store(root, "a") as store:
        store.create_topic("t", partitions=2)
        with library.Producer(store, linger_ms=1000) as producer:
            for partition in (0, 1):
                for value in (b"1", b"2", b"3", b"x", b"5"):
                    producer.send("t", value, partition=partition)
    schema = tmp_path / "schema.json"
    schema.write_text('{"type":"integer"}')
    options = ["--value", "json", "--schema", schema, "--mode", "FAILFAST", "--limit", limit]
    run = kstore("cat", root, *options, *output)
    assert len(run.out.splitlines()) == min(limit, 6)
    assert run.status == (limit > 3)
