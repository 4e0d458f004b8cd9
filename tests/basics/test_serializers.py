"""Goal: values become the bytes that Kafka's serializers give, come back from them, and nothing else is taken.
Method: vectors printed by the classes of kafka-clients 4.1.1; tables of wrong sizes, texts, types and counts."""

from __future__ import annotations

import math
import struct
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.errors import SerializationError
from kstore.serializers import (
    NAMES,
    BooleanSerializer,
    ListDeserializer,
    ListSerializer,
    StringDeserializer,
    StringSerializer,
    deserializer,
    serializer,
)

UUID_1_2 = UUID(int=(1 << 64) | 2)
UUID_1_2_HEX = b"00000000-0000-0001-0000-000000000002".hex()

VECTORS = [
    pytest.param("string", "hé😀", "68c3a9f09f9880", id="string"),
    pytest.param("string", "", "", id="string-empty"),
    pytest.param("bytes", b"\0\xff", "00ff", id="bytes"),
    pytest.param("bytearray", b"\0\xff", "00ff", id="bytearray"),
    pytest.param("bytebuffer", b"\0\xff", "00ff", id="bytebuffer"),
    pytest.param("short", -2, "fffe", id="short"),
    pytest.param("short", 2**15 - 1, "7fff", id="short-largest"),
    pytest.param("integer", -2, "fffffffe", id="integer"),
    pytest.param("integer", -(2**31), "80000000", id="integer-least"),
    pytest.param("long", 1 << 40, "0000010000000000", id="long"),
    pytest.param("long", -1, "ffffffffffffffff", id="long-negative"),
    pytest.param("float", 1.5, "3fc00000", id="float"),
    pytest.param("double", -0.0, "8000000000000000", id="double-negative-zero"),
    pytest.param("uuid", UUID_1_2, UUID_1_2_HEX, id="uuid"),
    pytest.param("boolean", True, "01", id="true"),
    pytest.param("boolean", False, "00", id="false"),
    pytest.param("json", {"a": [1, None, "é"]}, b'{"a":[1,null,"\xc3\xa9"]}'.hex(), id="json"),
    pytest.param("list<integer>", [1, None, 3], "000000000100000001000000030000000100000003", id="list-integer"),
    pytest.param("list<string>", ["a", None, ""], "01000000030000000161ffffffff00000000", id="list-string"),
    pytest.param("list<long>", [], "000000000000000000", id="list-empty"),
    pytest.param("list<uuid>", [UUID_1_2, None], "00000000010000000100000002" + UUID_1_2_HEX, id="list-uuid"),
    pytest.param("list<boolean>", [True, None], "01000000020000000101ffffffff", id="list-boolean"),
    pytest.param("list<list<short>>", [[1], None], "01000000020000000b00000000000000000100" + "01ffffffff", id="lists"),
]


@pytest.mark.parametrize(("name", "value", "expected"), VECTORS)
def test_bytes_are_those_of_kafka_and_come_back(name: str, value: Any, expected: str) -> None:
    data = bytes.fromhex(expected)
    assert serializer(name)(value) == data
    found = deserializer(name)(data)
    assert found == value
    if isinstance(value, float):
        assert math.copysign(1, found) == math.copysign(1, value)


@pytest.mark.parametrize("name", [*NAMES[:-1], "list<string>"])
def test_null_stays_null(name: str) -> None:
    assert serializer(name)(None) is None
    decode: Any = deserializer(name)
    assert decode(None) is None


def test_null_of_json_is_no_null_of_kafka() -> None:
    assert deserializer("json")(b"null") is None
    assert serializer("json")([None]) == b"[null]"


WRONG_BYTES = [
    *(
        pytest.param(name, b"\0" * size, f"expected {right} bytes, found {size}", id=f"{name}-of-{size}")
        for name, right in (("short", 2), ("integer", 4), ("long", 8), ("float", 4), ("double", 8))
        for size in (0, right - 1, right + 1)
    ),
    pytest.param("string", b"a\xff", "invalid start byte at position 1", id="string-ff"),
    pytest.param("string", b"\xc0\x80", "invalid start byte", id="string-overlong"),
    pytest.param("string", b"\xed\xa0\x80", "invalid continuation byte", id="string-surrogate"),
    pytest.param("string", b"\xc3", "unexpected end of data", id="string-cut"),
    pytest.param("boolean", b"", "found none", id="boolean-empty"),
    pytest.param("boolean", b"\x02", "found 02", id="boolean-2"),
    pytest.param("boolean", b"\x01\x01", "found 01 01", id="boolean-of-2"),
    pytest.param("void", b"", "expected null, found 0 bytes", id="void-empty"),
    pytest.param("void", b"x", "expected null, found 1 bytes", id="void"),
    pytest.param("uuid", b"", "36 characters", id="uuid-empty"),
    pytest.param("uuid", b"0-0-0-0-0", "36 characters", id="uuid-short-groups"),
    pytest.param("uuid", b"00000000-0000-0001-0000-00000000000g", "36 characters", id="uuid-no-digit"),
    pytest.param("uuid", b"\xff" * 36, "36 characters", id="uuid-no-text"),
    pytest.param("json", b"", "something else at character 0", id="json-empty"),
    pytest.param("json", b'{"a":1} x', "something else at character 8", id="json-with-a-rest"),
    pytest.param("json", b"\xff", "an invalid byte at position 0", id="json-no-text"),
    pytest.param("json", b"[" * 100_000, "too many levels", id="json-deep"),
    pytest.param("list<string>", b"", "strategy at position 0", id="list-empty"),
    pytest.param("list<string>", b"\x02", "expected 0 or 1, found 2", id="list-strategy"),
    pytest.param("list<string>", b"\x00" + bytes(8), "expected 1 ", id="list-without-sizes"),
    pytest.param("list<string>", b"\x01\0\0\0", "count of entries", id="list-count-cut"),
    pytest.param("list<string>", b"\x01\x7f\xff\xff\xff", "expected 0 to 0, found 2147483647", id="list-of-2g"),
    pytest.param("list<string>", b"\x01\xff\xff\xff\xff", "found -1", id="list-of-minus-1"),
    pytest.param("list<string>", b"\x01\0\0\0\1\xff\xff\xff\xfe", "at least -1", id="list-entry-of-minus-2"),
    pytest.param("list<string>", b"\x01\0\0\0\1\0\0\0\2a", "expected 2 bytes, found 1", id="list-entry-cut"),
    pytest.param("list<string>", b"\x01\0\0\0\1\0\0\0\1\xff", "StringDeserializer", id="list-entry-wrong"),
    pytest.param("list<string>", b"\x01\0\0\0\0\0", "end of the list", id="list-bytes-behind"),
    pytest.param("list<long>", b"\x00\x7f\xff\xff\xff" + bytes(4), "count of nulls", id="list-of-2g-nulls"),
    pytest.param("list<long>", b"\x00" + bytes(4) + b"\x7f\xff\xff\xff", "count of entries", id="list-of-2g-longs"),
    pytest.param("list<long>", b"\x00" + bytes(4) + b"\0\0\0\1" + bytes(7), "count of entries", id="list-long-cut"),
]


@pytest.mark.parametrize(("name", "data", "reason"), WRONG_BYTES)
def test_other_bytes_are_refused(name: str, data: bytes, reason: str) -> None:
    with pytest.raises(SerializationError, match=reason):
        deserializer(name)(data)


WRONG_VALUES = [
    pytest.param("string", b"a", id="string-of-bytes"),
    pytest.param("string", "\ud800", id="string-lone-surrogate"),
    pytest.param("bytes", "a", id="bytes-of-str"),
    pytest.param("bytes", 5, id="bytes-of-int"),
    pytest.param("short", 2**15, id="short-too-large"),
    pytest.param("integer", -(2**31) - 1, id="integer-too-small"),
    pytest.param("long", 2**63, id="long-too-large"),
    pytest.param("long", 10**5000, id="long-of-5000-digits"),
    pytest.param("double", 10**5000, id="double-of-5000-digits"),
    pytest.param("long", 1.0, id="long-of-float"),
    pytest.param("long", True, id="long-of-bool"),
    pytest.param("float", 1e300, id="float-too-large"),
    pytest.param("double", 10**400, id="double-too-large"),
    pytest.param("double", "1", id="double-of-str"),
    pytest.param("uuid", str(UUID_1_2), id="uuid-of-str"),
    pytest.param("boolean", 1, id="boolean-of-int"),
    pytest.param("void", 0, id="void-of-int"),
    pytest.param("json", b"a", id="json-of-bytes"),
    pytest.param("json", float("nan"), id="json-of-nan"),
    pytest.param("list<long>", "abc", id="list-of-str"),
    pytest.param("list<long>", ["abc"], id="list-entry-of-str"),
]


@pytest.mark.parametrize(("name", "value"), WRONG_VALUES)
def test_other_values_are_refused(name: str, value: Any) -> None:
    with pytest.raises(SerializationError):
        serializer(name)(value)


@pytest.mark.parametrize(
    "value", [b"ab", bytearray(b"ab"), memoryview(b"ab")], ids=["bytes", "bytearray", "memoryview"]
)
def test_every_buffer_is_taken_as_bytes(value: Any) -> None:
    assert serializer("bytearray")(value) == b"ab"


def test_byte_buffer_is_not_copied() -> None:
    data = bytearray(b"ab")
    view = deserializer("bytebuffer")(data)
    data[0] = 120
    assert bytes(view) == b"xb"


def test_encoding_can_be_another() -> None:
    assert StringSerializer("utf-16-be")("é") == b"\0\xe9"
    assert StringDeserializer("iso-8859-1")(b"\xe9") == "é"
    with pytest.raises(LookupError):
        StringDeserializer("no-such-encoding")


CLASS_NAMES = [
    ("org.apache.kafka.common.serialization.StringDeserializer", "string"),
    ("LongDeserializer", "long"),
    ("ByteArrayDeserializer", "bytearray"),
    ("UUIDDeserializer", "uuid"),
    ("int", "integer"),
    ("byte_array", "bytearray"),
    ("byte_buffer", "bytebuffer"),
]


@pytest.mark.parametrize(("name", "plain"), CLASS_NAMES)
def test_names_of_kafka_s_classes_are_known(name: str, plain: str) -> None:
    assert type(deserializer(name)) is type(deserializer(plain))


@pytest.mark.parametrize("name", ["", "xml", "list", "list<>", "list<xml>", "String", "x.StringDeserializer"])
def test_other_names_are_refused(name: str) -> None:
    for make in (serializer, deserializer):
        with pytest.raises(ValueError, match="expected one of string, bytes"):
            make(name)


def test_entries_of_a_list_may_have_any_serializer() -> None:
    encode = ListSerializer(lambda value: repr(value).encode())
    assert encode([1.5, "a"]) == b"\x01\0\0\0\2\0\0\0\x031.5\0\0\0\x03'a'"
    assert ListDeserializer(lambda data: data.decode())(encode([1.5, "a"]) or b"") == ["1.5", "'a'"]


def test_boolean_knows_only_the_two() -> None:
    assert [BooleanSerializer()(one) for one in (True, False, None)] == [b"\x01", b"\x00", None]


NULLABLE = {
    "list<short>": st.integers(-(2**15), 2**15 - 1),
    "list<double>": st.floats(allow_nan=False),
    "list<uuid>": st.uuids(),
    "list<string>": st.text(st.characters(exclude_categories=["Cs"])),
    "list<bytes>": st.binary(),
}


@pytest.mark.parametrize("name", NULLABLE)
@given(data=st.data())
def test_lists_come_back(name: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | NULLABLE[name], max_size=8))
    assert deserializer(name)(serializer(name)(values) or b"") == values


@given(data=st.binary(max_size=40), name=st.sampled_from([*NULLABLE, "list<list<short>>"]))
def test_damaged_lists_are_refused_or_read(data: bytes, name: str) -> None:
    try:
        values = deserializer(name)(data)
    except SerializationError:
        return
    assert len(values) <= len(data)


@given(st.floats(width=32, allow_nan=False))
def test_floats_come_back(value: float) -> None:
    data = serializer("float")(value)
    assert data == struct.pack(">f", value)
    assert deserializer("float")(data or b"") == value
