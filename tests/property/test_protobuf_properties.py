"""Goal: Protobuf values of any schema become the columns that Google's library reads in them, and damage becomes nulls.
Method: random schemas and messages, written by Google's library and read by its ListFields; damaged bytes."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from kstore.errors import InvalidSchemaError
from kstore.values.decoded import BadValue, Framing, Wanted
from kstore.values.formats import ProtobufProvider
from kstore.values.protobuf.texts import text_of_files
from kstore.values.providers import SchemaText
from tests.making.protobuf_values import Made, like, plain, schemas, shown

MOST_BYTES = 1 << 24


def read(
    values: Sequence[bytes | None],
    file: FileDescriptorProto,
    *,
    writer: FileDescriptorProto | None = None,
    wanted: Wanted = None,
    framing: Framing = "none",
    most_bytes: int = MOST_BYTES,
) -> tuple[list[Any], list[BadValue]]:
    """Return what a column holds of values, and the bad ones."""
    provider = ProtobufProvider()
    written = SchemaText(text_of_files([file if writer is None else writer]))
    reader = provider.reader(
        SchemaText(text_of_files([file])),
        wanted,
        lambda _: written,
        framing=framing,
        most_bytes=most_bytes,
        header_ids=None,
    )
    found: list[Any] = []
    bad: list[BadValue] = []
    for part in reader.decode(pa.array(values, pa.binary())):
        assert part.start == len(found)
        part.values.validate(full=True)
        bad += [each._replace(row=each.row + len(found)) for each in part.bad]
        found += [plain(scalar) for scalar in part.values]
    return found, bad


def as_read(found: Any, made: Message, names: Any = None) -> Any:
    """Return a row with JSON parsed where the message has some."""
    expected = shown(made, names)
    return like(found, expected), expected


@given(schemas(), st.data())
def test_values_are_those_that_were_written(made: Made, data: st.DataObject) -> None:
    messages = data.draw(st.lists(st.none() | made.values, max_size=5))
    values = [None if message is None else message.SerializeToString() for message in messages]
    found, bad = read(values, made.file)
    assert bad == []
    assert len(found) == len(messages)
    for row, message in zip(found, messages, strict=True):
        if message is None:
            assert row is None
        else:
            got, expected = as_read(row, message)
            assert got == expected


@given(schemas(), st.data())
def test_fields_that_nobody_wants_are_passed_over(made: Made, data: st.DataObject) -> None:
    names = {field.name: None for field in made.descriptor.fields if data.draw(st.booleans())}
    message = data.draw(made.values)
    (row,), bad = read([message.SerializeToString()], made.file, wanted=names)
    assert bad == []
    got, expected = as_read(row, message, names)
    assert got == expected


@given(schemas(), st.data())
def test_frames_name_the_message(made: Made, data: st.DataObject) -> None:
    message = data.draw(made.values)
    written = message.SerializeToString()
    frames = [b"\0\0\0\0\1\0", b"\0\0\0\0\1\x02\0"]
    wrong = [b"", b"\0\0\0\0\1", b"\1\0\0\0\1\0" + written, b"\0\0\0\0\1\x02\x08" + written, b"\0\0\0\0\1\x01"]
    found, bad = read([frame + written for frame in frames] + wrong, made.file, framing="confluent")
    assert [each.row for each in bad] == [2, 3, 4, 5, 6]
    for row in found[:2]:
        got, expected = as_read(row, message)
        assert got == expected
    assert found[2:] == [None] * 5


@given(schemas(), st.data())
def test_damaged_values_give_rows_and_change_no_other(made: Made, data: st.DataObject) -> None:
    good = data.draw(made.values)
    damaged = data.draw(st.lists(st.binary(max_size=40), max_size=6))
    found, bad = read([*damaged, good.SerializeToString()], made.file)
    assert len(found) == len(damaged) + 1
    got, expected = as_read(found[-1], good)
    assert got == expected
    assert all(found[each.row] is None and each.reason for each in bad)


@given(schemas(), st.data())
def test_little_memory_gives_the_same_rows_in_parts(made: Made, data: st.DataObject) -> None:
    messages = data.draw(st.lists(made.values, min_size=1, max_size=10)) * 5
    found, bad = read([message.SerializeToString() for message in messages], made.file, most_bytes=1 << 11)
    assert [each for each in bad if "memory" not in each.reason] == []
    assert len(found) == len(messages)
    for number, message in enumerate(messages):
        if number not in {each.row for each in bad}:
            got, expected = as_read(found[number], message)
            assert got == expected


@given(schemas(), st.data())
def test_damaged_schemas_are_refused_or_have_columns(made: Made, data: st.DataObject) -> None:
    content = bytearray(made.file.SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    value = data.draw(made.values).SerializeToString()
    provider = ProtobufProvider()
    text = "data:application/x-protobuf;base64," + b64encode(content).decode()
    try:
        schema = provider.reader_schema(SchemaText(text))
        reader = provider.reader(schema, None, lambda _: schema, framing="none", most_bytes=MOST_BYTES, header_ids=None)
    except InvalidSchemaError:
        return
    (part,) = reader.decode(pa.array([value]))
    part.values.validate(full=True)
