"""Goal: the shortcuts that rely on the interpreter hold on this Python: members of Record, and append by names.
Method: the kind of each attribute, which differs where a shortcut is lost, and its behaviour beside the plain way."""

from __future__ import annotations

import gc
import inspect
import sys
import types
from typing import Any

import pytest

from kstore import _core
from kstore.record import MemoryRecordsBuilder, Record
from kstore.types import TimestampType, TopicPartition

VALUES: dict[str, Any] = {
    "timestamp_type": TimestampType.LOG_APPEND_TIME,
    "key": b"key",
    "value": bytearray(b"value"),
    "headers": (("h", b""),),
    "topic_partition": TopicPartition("orders", 3),
}
CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {"timestamp_ms": 5}),
    ((), {"timestamp_ms": 5, "key": b"k", "value": b"v", "offset": 7}),
    ((), {"timestamp_ms": 5, "key": bytearray(b"k"), "value": memoryview(b"v")}),
    ((), {"timestamp_ms": 5, "headers": [("a", b"1"), ("b", None)]}),
    ((), {"timestamp_ms": 5, "headers": (("a", b"1"),), "offset": None}),
    ((), {"".join(["time", "stamp_ms"]): 5, "".join(["va", "lue"]): b"v"}),
    ((Record(offset=4, timestamp_ms=9, key=b"k", value=None, headers=(("h", b""),)),), {}),
    ((Record(offset=4, timestamp_ms=9),), {"offset": 6}),
    ((None,), {"timestamp_ms": 5}),
]
REFUSED: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((), {"key": b"k"}),
    ((), {"timestamp_ms": "5"}),
    ((), {"timestamp_ms": 2**70}),
    ((), {"timestamp_ms": -2}),
    ((), {"timestamp_ms": 5, "key": "text"}),
    ((), {"timestamp_ms": 5, "headers": 3}),
    ((), {"timestamp_ms": 5, "offset": -1}),
    ((), {"timestamp_ms": 5, "other": 1}),
    ((5,), {}),
    ((Record(offset=4, timestamp_ms=9), 5), {}),
    ((Record(offset=4, timestamp_ms=9),), {"timestamp_ms": 5}),
]


@pytest.mark.parametrize("name", VALUES)
def test_objects_of_a_record_are_members_that_the_interpreter_reads_without_a_call(name: str) -> None:
    assert type(vars(Record)[name]) is types.MemberDescriptorType
    record = Record(offset=1, timestamp_ms=2, **VALUES)
    assert getattr(record, name) == VALUES[name]
    assert getattr(record, name) is getattr(record, name)
    with pytest.raises(AttributeError):
        setattr(record, name, None)
    with pytest.raises(AttributeError):
        delattr(record, name)


def test_members_of_a_record_keep_their_counts() -> None:
    value = bytearray(b"an object of its own")
    before = sys.getrefcount(value)
    records = [Record(offset=n, timestamp_ms=2, value=value) for n in range(300)]
    for _ in range(50):
        assert all(record.value is value and record.key is None for record in records)
    del records
    gc.collect()
    assert sys.getrefcount(value) == before


def outcome(append: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    builder = MemoryRecordsBuilder()
    try:
        assert append(builder, *args, **named) is builder
    except (TypeError, ValueError, OverflowError) as error:
        assert builder.record_count == 0
        return type(error), str(error)
    return bytes(builder.build().buffer)


def test_append_of_a_builder_is_a_method_in_c() -> None:
    assert type(MemoryRecordsBuilder.append) is types.MethodDescriptorType
    assert inspect.signature(MemoryRecordsBuilder.append) == inspect.signature(_core.MemoryRecordsBuilderCore.append)
    assert (MemoryRecordsBuilder.append.__doc__ or "").startswith("Append one record")


@pytest.mark.parametrize(("args", "named"), CALLS + REFUSED)
def test_append_by_names_is_the_append_of_the_encoder(args: tuple[Any, ...], named: dict[str, Any]) -> None:
    found = outcome(MemoryRecordsBuilder.append, args, named)
    assert found == outcome(_core.MemoryRecordsBuilderCore.append, args, named)
    assert isinstance(found, bytes) == ((args, named) in CALLS)


def test_append_refuses_an_object_that_is_no_encoder() -> None:
    with pytest.raises(TypeError):
        MemoryRecordsBuilder.append(object(), timestamp_ms=5)  # type: ignore[arg-type, type-var]
    with pytest.raises(TypeError):
        MemoryRecordsBuilder.append()  # type: ignore[call-arg]
