"""Goal: `kstore schemas` lists what a registry has, and prints schemas so that they can be used elsewhere.
Method: topics `_schemas` with versions, deletions, contexts, references and hostile text; the output compared."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kstore import Producer, open_store
from kstore.cli.describing.schemas import text_of
from kstore.values.registry import RegisteredSchema
from tests.cli.runner import Runner, runner
from tests.making.rides import registered

GUID = "0f8fad5b-d9cb-469f-a165-70867728950e"
NAME = '{"type": "record", "name": "Name", "fields": []}'
RIDE = '{"type": "record", "name": "Ride", "fields": [{"name": "name", "type": "Name"}]}'
REFERENCE = {"name": "Name", "subject": "name", "version": 1}
# A soft hyphen, a right-to-left override and a tag character, which JSON takes as they are.
HIDDEN = '{"type": "enum", "name": "E",\n\t"doc": "a\u00adb\u202ec\U000e0041", "symbols": []}'
MESSAGE = 'syntax = "proto3";\n\tmessage M {} // \x1b[31m\r\n'


def config(subject: str, level: str) -> tuple[bytes, bytes]:
    key = {"keytype": "CONFIG", "subject": subject or None, "magic": 0}
    return json.dumps(key).encode(), json.dumps({"compatibilityLevel": level}).encode()


def deletion(subject: str, version: int) -> tuple[bytes, bytes]:
    key = {"keytype": "DELETE_SUBJECT", "subject": subject, "magic": 0}
    return json.dumps(key).encode(), json.dumps({"subject": subject, "version": version}).encode()


RECORDS = [
    config("", "FULL"),
    config("name", "NONE"),
    registered("name", 1, 1, schema=NAME),
    registered("rides-value", 1, 2, schema='"int"'),
    registered("rides-value", 1, 2, schema='"int"', deleted=True),
    registered("rides-value", 2, 3, schema=RIDE, references=[REFERENCE], guid=GUID),
    registered(":.lab:name", 1, 1, schema=HIDDEN),
    registered(":.lab:m", 1, 2, schema=MESSAGE, schemaType="PROTOBUF"),
    registered("old", 1, 9, schema='"long"'),
    deletion("old", 1),
]


def write(root: Path, records: Iterable[tuple[bytes, bytes | None]]) -> Path:
    with open_store(root, "a") as store:
        store.create_topic("_schemas", partitions=1)
        with Producer(store) as producer:
            for key, value in records:
                producer.send("_schemas", value, key=key)
    return root


@pytest.fixture
def kstore(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Runner:
    return runner(monkeypatch, capsysbinary)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write(tmp_path / "root", RECORDS)


def rows(out: str) -> list[list[str]]:
    return [line.split() for line in out.splitlines()]


def test_schemas_are_a_table_of_all_versions(kstore: Runner, root: Path) -> None:
    run = kstore("schemas", root)
    assert (run.status, run.err) == (0, "")
    assert rows(run.out) == [
        ["subject", "version", "id", "type", "compatibility", "deleted", "references", "guid"],
        [":.lab:m", "1", "2", "PROTOBUF", "-", "-", "-", "-"],
        [":.lab:name", "1", "1", "AVRO", "-", "-", "-", "-"],
        ["name", "1", "1", "AVRO", "NONE", "-", "-", "-"],
        ["old", "1", "9", "AVRO", "FULL", "yes", "-", "-"],
        ["rides-value", "1", "2", "AVRO", "FULL", "yes", "-", "-"],
        ["rides-value", "2", "3", "AVRO", "FULL", "-", "Name", "=", "name", "1", GUID],
    ]


def test_schemas_are_json_objects_for_programs(kstore: Runner, root: Path) -> None:
    run = kstore("schemas", root, "--json", "--subject", "rides-value")
    assert [each["version"] for each in run.objects()] == [1, 2]
    assert run.objects()[1] == {
        "subject": "rides-value",
        "version": 2,
        "schema_id": 3,
        "schema_type": "AVRO",
        "compatibility": "FULL",
        "is_deleted": False,
        "references": [REFERENCE],
        "guid": GUID,
    }
    assert "text" not in run.out


def test_a_topic_that_was_compacted_has_the_same_schemas(kstore: Runner, root: Path) -> None:
    before = kstore("schemas", root, "--json").out
    assert kstore("compact", root, "--topic", "_schemas", "--roll").status == 0
    sizes = kstore("cat", root, "--topic", "_schemas", "--json").objects()
    assert len(sizes) == len(RECORDS) - 1
    assert kstore("schemas", root / "_schemas-0", "--json").out == before


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--get", 1], NAME),
        (["--get", 9], '"long"'),
        (["--get", GUID], RIDE),
        (["--get", GUID.upper()], RIDE),
        (["--subject", "rides-value", "--version", 1], '"int"'),
        (["--subject", "rides-value", "--version", "latest"], RIDE),
        (["--get", 3, "--references"], f"{NAME}\n{RIDE}"),
    ],
    ids=str,
)
def test_the_text_of_a_schema_is_that_which_was_registered(
    kstore: Runner, root: Path, options: list[Any], text: str
) -> None:
    run = kstore("schemas", root, *options)
    assert (run.status, run.out, run.err) == (0, f"{text}\n", "")


def test_an_id_is_looked_up_in_the_context_of_the_subject(kstore: Runner, root: Path) -> None:
    for subject in (":.lab:name", ":.lab:new", ":.lab:"):
        (shown,) = kstore("schemas", root, "--get", 1, "--subject", subject, "--json").objects()
        assert (shown["subject"], shown["text"]) == (":.lab:name", HIDDEN)


def test_text_cannot_control_a_terminal_and_stays_the_same_schema(kstore: Runner, root: Path) -> None:
    hidden = kstore("schemas", root, "--get", 1, "--subject", ":.lab:name").out
    assert all(character.isprintable() or character in "\n\t" for character in hidden)
    assert json.loads(hidden) == json.loads(HIDDEN)
    message = kstore("schemas", root, "--get", 2, "--subject", ":.lab:m").out
    assert message == 'syntax = "proto3";\n\tmessage M {} // \\x1b[31m\n\n'
    table = kstore("schemas", write(root.parent / "hostile", [registered("a\x1b[2J", 1, 1)])).out
    assert "a\\x1b[2J" in table


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{\r"type":\r"string"}', '{ "type": "string"}'),
        ('{\r\n\t"type":"string"}', '{\n\t"type":"string"}'),
        ('"a\u2028\\"\x7f\\\\"\r', '"a\\u2028\\"\\u007f\\\\" '),
        ('{"doc":"\u202e","type":\r"int"}', '{"doc":"\\u202e","type": "int"}'),
    ],
)
def test_control_characters_are_escaped_in_strings_of_json_and_blanks_outside_of_them(text: str, shown: str) -> None:
    result = text_of(RegisteredSchema(1, "s", 1, "AVRO", text))
    assert result == shown
    assert json.loads(result) == json.loads(text)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--get", 77], "the registry has no schema of id 77"),
        (["--get", "x"], "--get must be an id or a GUID, got 'x'"),
        (["--get", GUID.replace("0", "1")], "no schema of GUID"),
        (["--subject", "none"], "no subject 'none'"),
        (["--subject", "name", "--version", 2], "no version 2 of the subject 'name'"),
        (["--subject", "name", "--version", "-1"], "--version must be a number or latest"),
        (["--version", 1], "--version needs --subject"),
        (["--get", 1, "--subject", "name", "--version", 1], "got both"),
        (["--references"], "--references needs"),
    ],
    ids=str,
)
def test_what_is_not_there_is_wrong_use(kstore: Runner, root: Path, options: list[Any], reason: str) -> None:
    run = kstore("schemas", root, *options)
    assert (run.status, run.out) == (2, "")
    assert reason in run.err


def test_a_root_without_schemas_is_wrong_use(kstore: Runner, root: Path) -> None:
    empty = write(root.parent / "empty", [])
    assert kstore("schemas", empty) == (0, "", "")
    open_store(root.parent / "other", "a").close()
    run = kstore("schemas", root.parent / "other")
    assert (run.status, run.out) == (2, "")
    assert "has no topic _schemas" in run.err


def test_damage_of_the_topic_is_an_error(kstore: Runner, root: Path) -> None:
    log = root / "_schemas-0" / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    run = kstore("schemas", root)
    assert (run.status, run.out) == (1, "")
    assert "CRC mismatch" in run.err
