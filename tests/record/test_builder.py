"""Goal: MemoryRecordsBuilder takes and refuses what Kafka's builder does, in every state it can be in.

Method: tables of calls with the error or the batch that follows; the bytes are compared with the reference codec.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
import pytest

import kstore
from kstore.compression import compress
from kstore.record import MemoryRecords, MemoryRecordsBuilder, Record, RecordBatch, RecordsInfo
from kstore.types import ControlRecordType, TimestampType
from tests.making import batches as builders
from tests.making.batches import FIRST_TIMESTAMP_MS
from tests.making.writing import append, builder_of
from tests.reference import codec as reference
from tests.reference import codecs as codecs
from tests.reference.verdicts import as_reference

PRODUCER = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 5}
STATE = PRODUCER | {"is_transactional": False}
codec_parameter = pytest.mark.parametrize("codec", codecs.CODEC_NAMES)


def only_batch(memory: MemoryRecords) -> RecordBatch:
    [batch] = memory.batches()
    batch.verify()
    return batch


def test_builder_is_a_public_name() -> None:
    assert kstore.MemoryRecordsBuilder is MemoryRecordsBuilder


def test_appends_can_be_chained() -> None:
    memory = MemoryRecordsBuilder().append(timestamp_ms=1, value=b"a").append(timestamp_ms=2, key=b"k").build()
    assert [(r.offset, r.timestamp_ms, r.key, r.value) for r in memory] == [(0, 1, None, b"a"), (1, 2, b"k", None)]


Call = Callable[[MemoryRecordsBuilder], object]
CALLS: dict[str, Call] = {
    "names in another order": lambda builder: builder.append(value=b"v", key=b"k", timestamp_ms=5),
    "names made at run time": lambda builder: builder.append(
        **{bytes(name).decode(): item for name, item in ((b"timestamp_ms", 5), (b"key", b"k"), (b"value", b"v"))}
    ),
    "all arguments": lambda builder: builder.append(timestamp_ms=5, key=b"k", value=b"v", headers=(), offset=0),
    "buffers": lambda builder: builder.append(timestamp_ms=5, key=bytearray(b"k"), value=memoryview(b"v")),
    "number of another type": lambda builder: builder.append(timestamp_ms=np.int32(5), key=b"k", value=b"v"),
    "function of the class": lambda builder: MemoryRecordsBuilder.append(builder, timestamp_ms=5, key=b"k", value=b"v"),
    "bound method": lambda builder: partial(builder.append, timestamp_ms=5)(key=b"k", value=b"v"),
    "record": lambda builder: builder.append(Record(offset=0, timestamp_ms=5, key=b"k", value=b"v")),
}


FIELDS: dict[str, Any] = {"timestamp_ms": 5, "key": b"k", "value": b"v", "headers": (), "offset": 3}


@pytest.mark.parametrize("count", range(1, len(FIELDS) + 1))
def test_fields_may_come_in_any_order_and_may_be_left_out(count: int) -> None:
    for names in permutations(FIELDS, count):
        builder = MemoryRecordsBuilder()
        fields = {name: FIELDS[name] for name in names}
        if "timestamp_ms" not in names:
            with pytest.raises(TypeError, match="timestamp_ms"):
                builder.append(**fields)
            continue
        [record] = builder.append(**fields).build()
        found = (record.offset, record.timestamp_ms, record.key, record.value)
        assert found == (fields.get("offset", 0), 5, fields.get("key"), fields.get("value"))


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_however_append_is_called_the_same_record_is_written(call: Call) -> None:
    builder, other = MemoryRecordsBuilder(), MemoryRecordsBuilder()
    assert call(builder) is builder
    other.append(timestamp_ms=5, key=b"k", value=b"v")
    assert bytes(builder.build()) == bytes(other.build())


BAD_CALLS: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    "timestamp beyond int64": ({"timestamp_ms": 2**63, "key": None, "value": None}, ValueError),
    "timestamp that is a bool": ({"timestamp_ms": True, "key": None, "value": None}, TypeError),
    "timestamp that is a float": ({"timestamp_ms": 1.0, "key": None, "value": None}, TypeError),
    "no timestamp": ({"timestamp_ms": None, "key": b"", "value": b""}, TypeError),
    "key that is text": ({"timestamp_ms": 1, "key": "k", "value": None}, TypeError),
    "value that is a number": ({"timestamp_ms": 1, "key": None, "value": 7}, TypeError),
    "unknown name": ({"timestamp": 1, "key": None, "value": None}, TypeError),
    "negative timestamp": ({"timestamp_ms": -2, "key": None, "value": None}, ValueError),
    "negative timestamp alone": ({"timestamp_ms": -2}, ValueError),
    "offset beyond int64": ({"value": b"", "offset": 2**63, "timestamp_ms": 1}, ValueError),
    "offset that is text": ({"timestamp_ms": 1, "offset": "0"}, TypeError),
    "headers that are none": ({"timestamp_ms": 1, "headers": None}, TypeError),
    "nothing": ({}, TypeError),
}


@pytest.mark.parametrize(("fields", "error"), BAD_CALLS.values(), ids=BAD_CALLS)
def test_bad_call_of_append_adds_nothing(fields: dict[str, Any], error: type[Exception]) -> None:
    builder = MemoryRecordsBuilder()
    with pytest.raises(error):
        builder.append(**fields)
    assert builder.record_count == 0


@codec_parameter
def test_large_batch_is_read_over_all_its_blocks(codec: str) -> None:
    records = builders.records(0, 300, value_bytes=1000)
    builder = MemoryRecordsBuilder(compression=codec)
    for record in records:
        append(builder, record)
    batch = only_batch(builder.build())
    assert batch.compression.label == codec
    assert [as_reference(record) for record in batch] == records


def test_ten_thousand_records_outgrow_every_buffer() -> None:
    records = builders.records(0, 10_000)
    assert bytes(builder_of(records).build()) == reference.write_batch(records, partition_leader_epoch=-1)


@pytest.mark.parametrize("size", [0, 1, 3, 4, 7, 8, 9, 15, 16, 17])
def test_short_keys_and_values_are_written_whole(size: int) -> None:
    data = bytes(range(1, size + 1))
    builder = MemoryRecordsBuilder().append(timestamp_ms=1, key=data, value=data).append(timestamp_ms=1, key=data)
    written = reference.read_records(bytes(builder.build()))
    assert [(record.key, record.value) for record in written] == [(data, data), (data, None)]


def test_constructor_of_the_records_that_a_subclass_makes_is_called() -> None:
    class Measured(MemoryRecords):
        def __init__(self, buffer: memoryview) -> None:
            super().__init__(buffer, position=len(buffer))

    class Builder(MemoryRecordsBuilder):
        records_type = Measured

    memory = Builder().append(timestamp_ms=1, value=b"v").build()
    assert isinstance(memory, Measured)
    assert [batch.position for batch in memory.batches()] == [len(memory)]


KINDS: dict[str, Callable[[bytes], Any]] = {
    "bytearray": bytearray,
    "memoryview": memoryview,
    "part of a memoryview": lambda data: memoryview(b"x" + data + b"y")[1:-1],
    "every other byte": lambda data: memoryview(bytes(byte for pair in zip(data, data, strict=True) for byte in pair))[
        ::2
    ],
    "subclass of bytes": type("Data", (bytes,), {}),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_any_buffer_is_taken_as_its_bytes(kind: Callable[[bytes], Any]) -> None:
    expected = MemoryRecordsBuilder().append(timestamp_ms=1, key=b"k1", value=b"v1", headers=[("h", b"x1")])
    builder = MemoryRecordsBuilder()
    builder.append(timestamp_ms=1, key=kind(b"k1"), value=kind(b"v1"), headers=[("h", kind(b"x1"))])
    assert bytes(builder.build()) == bytes(expected.build())


HEADERS: dict[str, tuple[str, bytes]] = {
    "ASCII": ("trace", b"trace"),
    "empty": ("", b""),
    "Latin": ("é", b"\xc3\xa9"),
    "outside the first plane": ("😀", b"\xf0\x9f\x98\x80"),
    "NUL": ("a\0b", b"a\0b"),
    "escaped bytes": ("a\udcff\udc80", b"a\xff\x80"),
    "escaped bytes that are UTF-8 together": ("\udcc3\udca9", b"\xc3\xa9"),
}


@pytest.mark.parametrize(("key", "written"), HEADERS.values(), ids=HEADERS)
def test_header_key_is_written_with_the_length_of_its_bytes(key: str, written: bytes) -> None:
    memory = MemoryRecordsBuilder().append(timestamp_ms=1, headers=[(key, b"v"), (key, None)]).build()
    [record] = reference.read_records(bytes(memory))
    assert record.headers == ((written, b"v"), (written, None))


BAD_HEADERS: dict[str, tuple[object, type[Exception]]] = {
    "high surrogate": ([("\ud800", b"v")], ValueError),
    "low surrogate that stands for no byte": ([("\udc7f", b"v")], ValueError),
    "surrogate after good headers": ([("a", b"v"), ("b\udfff", None)], ValueError),
    "null key": ([(None, b"v")], TypeError),
    "bytes for a key": ([(b"k", b"v")], TypeError),
    "text for a value": ([("k", "v")], TypeError),
    "no pair": ([("k",)], ValueError),
    "null headers": (None, TypeError),
}


@pytest.mark.parametrize(("headers", "error"), BAD_HEADERS.values(), ids=BAD_HEADERS)
def test_bad_headers_are_refused_and_nothing_is_appended(headers: Any, error: type[Exception]) -> None:
    builder = MemoryRecordsBuilder().append(timestamp_ms=1, value=b"a")
    with pytest.raises(error):
        builder.append(timestamp_ms=2, key=b"k", headers=headers)
    assert builder.record_count == 1
    assert bytes(builder.build()) == bytes(MemoryRecordsBuilder().append(timestamp_ms=1, value=b"a").build())


RECORD = Record(offset=3, timestamp_ms=1)
BAD_APPENDS: dict[str, tuple[dict[str, Any], dict[str, Any], type[Exception], str]] = {
    "timestamp below -1": ({}, {"timestamp_ms": -2}, ValueError, "timestamp_ms must be -1 or not negative, got -2"),
    "offset of the record before": ({}, {"timestamp_ms": 1, "offset": 9}, ValueError, "expected at least 10, got 9"),
    "offset below the one before": ({}, {"timestamp_ms": 1, "offset": 8}, ValueError, "expected at least 10, got 8"),
    "negative offset": ({}, {"timestamp_ms": 1, "offset": -1}, ValueError, "expected at least 10, got -1"),
    "offset delta of 2^31": ({}, {"timestamp_ms": 1, "offset": 2**31}, ValueError, f"expected at most {2**31 - 1}"),
    "largest int64 as offset": (
        {"base_offset": 2**63 - 10},
        {"timestamp_ms": 1, "offset": 2**63 - 1},
        ValueError,
        f"expected at most {2**63 - 2}",
    ),
    "offset beyond int64": ({}, {"timestamp_ms": 1, "offset": 2**63}, ValueError, "offset must be from"),
    "offset that is a bool": ({}, {"timestamp_ms": 1, "offset": True}, TypeError, "offset must be an int"),
    "timestamp beyond int64": ({}, {"timestamp_ms": 2**63}, ValueError, "timestamp_ms must be from"),
    "timestamp that is a bool": ({}, {"timestamp_ms": True}, TypeError, "timestamp_ms must be an int"),
    "no timestamp": ({}, {"value": b"a"}, TypeError, "needs a Record or timestamp_ms"),
    "timestamp with a fraction": ({}, {"timestamp_ms": 1.5}, TypeError, "timestamp_ms must be an int, got 1.5"),
    "offset with a fraction": ({}, {"timestamp_ms": 1, "offset": 10.0}, TypeError, "offset must be an int"),
    "text for a value": (
        {},
        {"timestamp_ms": 1, "value": "a"},
        TypeError,
        "value must be bytes or None, got str: encode",
    ),
    "number for a key": ({}, {"timestamp_ms": 1, "key": 5}, TypeError, "key must be bytes or None, got int"),
}


@pytest.mark.parametrize(("options", "fields", "error", "match"), BAD_APPENDS.values(), ids=BAD_APPENDS)
def test_append_refuses_and_leaves_the_batch_as_it_was(
    options: dict[str, Any], fields: dict[str, Any], error: type[Exception], match: str
) -> None:
    base_offset = options.get("base_offset", 0)
    first_offset = base_offset if base_offset else 9
    builder = MemoryRecordsBuilder(base_offset=base_offset).append(timestamp_ms=5, value=b"a", offset=first_offset)
    before = (builder.record_count, builder.next_offset, builder.records_size_in_bytes, builder.info)
    with pytest.raises(error, match=match):
        builder.append(**fields)
    assert (builder.record_count, builder.next_offset, builder.records_size_in_bytes, builder.info) == before
    assert [r.offset for r in builder.append(timestamp_ms=6).build()] == [first_offset, first_offset + 1]


def test_offset_below_the_base_offset_is_refused() -> None:
    with pytest.raises(ValueError, match="expected at least 10, got 9"):
        MemoryRecordsBuilder(base_offset=10).append(timestamp_ms=1, offset=9)


def test_largest_offset_delta_is_written() -> None:
    builder = MemoryRecordsBuilder(base_offset=5).append(timestamp_ms=1, offset=5 + 2**31 - 1)
    assert only_batch(builder.build()).last_offset == 5 + 2**31 - 1
    with pytest.raises(ValueError, match="closed"):
        builder.append(timestamp_ms=1)


@pytest.mark.parametrize(
    "fields", [{"timestamp_ms": 0}, {"key": b""}, {"value": b"x"}, {"headers": [("h", b"")]}], ids=str
)
def test_record_and_fields_together_are_refused(fields: dict[str, Any]) -> None:
    builder = MemoryRecordsBuilder()
    for call in (builder.append, builder.record_size, builder.has_room_for):
        with pytest.raises(TypeError, match="not both"):
            call(RECORD, **fields)


def test_record_keeps_its_offset_unless_another_is_given() -> None:
    memory = MemoryRecordsBuilder().append(RECORD).append(RECORD, offset=8).build()
    assert [r.offset for r in memory] == [3, 8]


MARKER = Record(offset=0, timestamp_ms=1, key=b"\0\0\0\0", value=b"\0" * 6, is_control=True)


@pytest.mark.parametrize("is_control", [False, True])
def test_control_records_and_control_batches_belong_together(is_control: bool) -> None:
    builder = MemoryRecordsBuilder(is_control=is_control)
    with pytest.raises(ValueError, match="control"):
        builder.append(RECORD if is_control else MARKER)
    if is_control:
        with pytest.raises(ValueError, match="control"):
            builder.append(timestamp_ms=1)
    builder.append(MARKER if is_control else RECORD)
    assert only_batch(builder.build()).is_control == is_control


@pytest.mark.parametrize(
    "control_type", [ControlRecordType.ABORT, ControlRecordType.COMMIT], ids=lambda kind: kind.name
)
def test_end_transaction_marker_is_that_of_the_reference(control_type: ControlRecordType) -> None:
    producer = {"producer_id": 1000, "producer_epoch": 2, "is_transactional": True}
    builder = MemoryRecordsBuilder(base_offset=44, partition_leader_epoch=0, is_control=True, **producer)
    builder.append_end_transaction_marker(control_type, timestamp_ms=9, coordinator_epoch=7)
    expected = reference.write_end_transaction_marker(
        44,
        timestamp_ms=9,
        producer_id=1000,
        producer_epoch=2,
        commit=control_type == ControlRecordType.COMMIT,
        coordinator_epoch=7,
    )
    assert reference.Header.unpack(expected).partition_leader_epoch == 0
    assert bytes(builder.build()) == expected
    assert len(expected) == 78


TRANSACTIONAL = {"producer_id": 1, "producer_epoch": 0, "is_transactional": True, "is_control": True}
BAD_MARKERS: dict[str, tuple[dict[str, Any], ControlRecordType, int, str]] = {
    "no producer id": (TRANSACTIONAL | {"producer_id": -1}, ControlRecordType.ABORT, 0, "producer id"),
    "not transactional": (TRANSACTIONAL | {"is_transactional": False}, ControlRecordType.ABORT, 0, "transactional"),
    "not a control batch": (TRANSACTIONAL | {"is_control": False}, ControlRecordType.COMMIT, 0, "control batches"),
    "leader change": (TRANSACTIONAL, ControlRecordType.LEADER_CHANGE, 0, "ABORT or COMMIT, got LEADER_CHANGE"),
    "unknown type": (TRANSACTIONAL, ControlRecordType.UNKNOWN, 0, "ABORT or COMMIT, got UNKNOWN"),
    "epoch beyond int32": (TRANSACTIONAL, ControlRecordType.ABORT, 2**31, "coordinator_epoch"),
    "negative epoch": (TRANSACTIONAL, ControlRecordType.ABORT, -2, "coordinator_epoch"),
}


@pytest.mark.parametrize(("options", "control_type", "epoch", "match"), BAD_MARKERS.values(), ids=BAD_MARKERS)
def test_marker_that_kafka_would_not_write_is_refused(
    options: dict[str, Any], control_type: ControlRecordType, epoch: int, match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        MemoryRecordsBuilder(**options).append_end_transaction_marker(
            control_type, timestamp_ms=1, coordinator_epoch=epoch
        )


def test_control_record_of_any_known_type_is_written() -> None:
    builder = MemoryRecordsBuilder(is_control=True)
    builder.append_control_record(ControlRecordType.SNAPSHOT_FOOTER, b"\0\0\0", timestamp_ms=1)
    [record] = builder.build()
    assert (record.key, record.value, record.is_control) == (b"\0\0\0\4", b"\0\0\0", True)
    with pytest.raises(ValueError, match="UNKNOWN"):
        MemoryRecordsBuilder(is_control=True).append_control_record(ControlRecordType.UNKNOWN, b"", timestamp_ms=1)


BAD_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "magic 3": ({"magic": 3}, "magic must be from 0 to 2, got 3"),
    "negative magic": ({"magic": -1}, "magic must be from 0 to 2, got -1"),
    "no timestamp type": ({"timestamp_type": TimestampType.NO_TIMESTAMP_TYPE}, "timestamp_type must be"),
    "unknown timestamp type": ({"timestamp_type": 2}, "timestamp_type must be"),
    "unknown codec": ({"compression": "brotli"}, "unknown compression type"),
    "level of no codec": ({"level": 1}, "none has no compression levels"),
    "level out of range": ({"compression": "gzip", "level": 10}, "gzip level"),
    "negative base offset": ({"base_offset": -1}, "base_offset must be from 0"),
    "no offset is left": ({"base_offset": 2**63 - 1}, "base_offset must be from 0"),
    "append time": ({"log_append_time_ms": -2}, "log_append_time_ms"),
    "negative horizon": ({"delete_horizon_ms": -1}, "delete_horizon_ms"),
    "producer id": ({"producer_id": -2}, "producer_id"),
    "producer epoch": ({"producer_epoch": 2**15}, "producer_epoch"),
    "base sequence": ({"base_sequence": 2**31}, "base_sequence"),
    "leader epoch": ({"partition_leader_epoch": -2}, "partition_leader_epoch"),
    "write limit": ({"write_limit_bytes": -1}, "write_limit_bytes"),
}


@pytest.mark.parametrize(("options", "match"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_contradicting_options_are_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        MemoryRecordsBuilder(**options)


BAD_STATES: dict[str, tuple[dict[str, Any], str]] = {
    "transactional without a producer id": (STATE | {"producer_id": -1, "is_transactional": True}, "transactional"),
    "producer without an epoch": (STATE | {"producer_epoch": -1}, "needs a producer epoch"),
    "producer without a sequence": (STATE | {"base_sequence": -1}, "needs a base sequence"),
}


@pytest.mark.parametrize(("state", "match"), BAD_STATES.values(), ids=BAD_STATES)
def test_contradicting_producer_state_is_refused_at_close_and_can_be_mended(state: dict[str, Any], match: str) -> None:
    builder = MemoryRecordsBuilder(**state).append(timestamp_ms=1)
    with pytest.raises(ValueError, match=match):
        builder.close()
    assert not builder.is_closed
    builder.set_producer_state(**STATE)
    assert [r.sequence for r in builder.append(timestamp_ms=2).build()] == [5, 6]


def test_control_batch_needs_no_sequence() -> None:
    options = {"producer_id": 7, "producer_epoch": 1, "is_control": True}
    batch = only_batch(MemoryRecordsBuilder(**options).append(MARKER).build())
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 1, -1)


def test_sequence_wraps() -> None:
    builder = MemoryRecordsBuilder(**PRODUCER | {"base_sequence": 2**31 - 1})
    assert [r.sequence for r in builder.append(timestamp_ms=1).append(timestamp_ms=1).build()] == [2**31 - 1, 0]


@codec_parameter
def test_reopened_batch_has_the_new_producer_state_and_the_old_one_keeps_its_bytes(codec: str) -> None:
    builder = builder_of(builders.records(0, 3), codec=codecs.CODEC_NAMES.index(codec), **PRODUCER)
    first = builder.build()
    before = bytes(first)
    builder.reopen_and_rewrite_producer_state(producer_id=8, producer_epoch=2, base_sequence=0, is_transactional=True)
    assert not builder.is_closed
    with pytest.raises(ValueError, match="closed"):
        builder.append(timestamp_ms=1)
    second = builder.build()
    assert bytes(first) == before
    batch = only_batch(second)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (8, 2, 0)
    assert batch.is_transactional
    assert bytes(second)[61:] == before[61:]
    assert [as_reference(r) for r in second] == [
        record._replace(sequence=n) for n, record in enumerate(builders.records(0, 3))
    ]


def test_batch_reopened_before_it_was_closed_still_takes_records() -> None:
    builder = MemoryRecordsBuilder().append(timestamp_ms=1)
    builder.reopen_and_rewrite_producer_state(**STATE)
    assert [r.sequence for r in builder.append(timestamp_ms=2).build()] == [5, 6]


def test_closed_batch_takes_neither_records_nor_producer_state() -> None:
    builder = MemoryRecordsBuilder().append(timestamp_ms=1)
    memory = builder.build()
    assert builder.build() is memory
    assert builder.is_closed
    builder.close()
    with pytest.raises(ValueError, match="closed"):
        builder.append(timestamp_ms=1)
    with pytest.raises(ValueError, match="closed"):
        builder.set_producer_state(**STATE)


@codec_parameter
def test_batch_closed_for_appends_still_takes_producer_state(codec: str) -> None:
    builder = MemoryRecordsBuilder(compression=codec).append(timestamp_ms=1)
    builder.close_for_record_appends()
    builder.close_for_record_appends()
    assert builder.is_full
    assert not builder.is_closed
    with pytest.raises(ValueError, match="closed"):
        builder.append(timestamp_ms=1)
    builder.set_producer_state(**STATE)
    assert [r.sequence for r in builder.build()] == [5]


ABORTED_CALLS: dict[str, Callable[[MemoryRecordsBuilder], object]] = {
    "append": lambda builder: builder.append(timestamp_ms=1),
    "close": lambda builder: builder.close(),
    "build": lambda builder: builder.build(),
    "reopen": lambda builder: builder.reopen_and_rewrite_producer_state(**STATE),
}


@pytest.mark.parametrize("call", ABORTED_CALLS.values(), ids=ABORTED_CALLS)
@pytest.mark.parametrize("is_built", [False, True], ids=["open", "built"])
def test_aborted_batch_is_of_no_use(call: Callable[[MemoryRecordsBuilder], object], is_built: bool) -> None:
    builder = MemoryRecordsBuilder().append(timestamp_ms=1)
    memory = builder.build() if is_built else None
    builder.abort()
    builder.abort()
    assert builder.is_full
    with pytest.raises(ValueError, match=r"aborted|closed"):
        call(builder)
    if memory is not None:
        assert [r.offset for r in memory] == [0]


@codec_parameter
def test_batch_without_a_record_has_no_bytes(codec: str) -> None:
    builder = MemoryRecordsBuilder(compression=codec)
    assert bytes(builder.build()) == b""
    assert builder.compression_ratio == 1.0
    assert builder.estimated_size_in_bytes == 0
    assert builder.last_offset is None
    builder.reopen_and_rewrite_producer_state(**STATE)
    assert bytes(builder.build()) == b""


INFOS: dict[str, tuple[dict[str, Any], list[int], RecordsInfo]] = {
    "largest in the middle": ({}, [5, 9, 7], RecordsInfo(9, 12)),
    "no timestamps": ({}, [-1, -1], RecordsInfo(-1, -1)),
    "timestamp 0": ({}, [0], RecordsInfo(0, 10)),
    "append time": (
        {"timestamp_type": TimestampType.LOG_APPEND_TIME, "log_append_time_ms": 3},
        [5, 9],
        RecordsInfo(3, 11),
    ),
    "no record": ({}, [], RecordsInfo(-1, -1)),
    "horizon": ({"delete_horizon_ms": 100}, [5, 9], RecordsInfo(9, 11)),
}


@pytest.mark.parametrize(("options", "timestamps", "expected"), INFOS.values(), ids=INFOS)
def test_info_names_the_largest_timestamp_and_the_last_offset(
    options: dict[str, Any], timestamps: list[int], expected: RecordsInfo
) -> None:
    builder = MemoryRecordsBuilder(base_offset=10, **options)
    for timestamp_ms in timestamps:
        builder.append(timestamp_ms=timestamp_ms)
    assert builder.info == expected
    memory = builder.build()
    assert builder.info == expected
    assert [batch.max_timestamp_ms for batch in memory.batches()] == [expected.max_timestamp_ms] * bool(timestamps)


def test_log_append_time_keeps_the_deltas_and_is_every_records_timestamp() -> None:
    records = builders.records(0, 3)
    append_time_ms = FIRST_TIMESTAMP_MS + 100
    data = bytes(builder_of(records, log_append_time_ms=append_time_ms, partition_leader_epoch=3).build())
    assert data == reference.write_batch(records, log_append_time_ms=append_time_ms, partition_leader_epoch=3)
    assert [(r.timestamp_ms, r.timestamp_type) for r in MemoryRecords(data)] == [
        (append_time_ms, TimestampType.LOG_APPEND_TIME)
    ] * 3


def test_uncompressed_estimate_is_the_size() -> None:
    builder = builder_of(builders.records(0, 5))
    estimate = builder.estimated_size_in_bytes
    assert estimate == builder.uncompressed_size_in_bytes == builder.build().size_in_bytes
    assert builder.estimated_size_in_bytes == estimate
    assert builder.compression_ratio == 1.0


def test_compressed_estimate_follows_the_ratio_and_becomes_the_size() -> None:
    builder = builder_of(builders.records(0, 50, value_bytes=200), codec=codecs.LZ4)
    size = builder.records_size_in_bytes
    assert builder.estimated_size_in_bytes == 61 + int(size * 1.05)
    builder.estimated_compression_ratio = 0.5
    assert builder.estimated_size_in_bytes == 61 + int(size * 0.5 * 1.05)
    memory = builder.build()
    assert builder.estimated_size_in_bytes == memory.size_in_bytes
    assert builder.compression_ratio == (memory.size_in_bytes - 61) / size
    assert builder.compression_ratio < 0.5


def test_first_record_always_has_room_and_later_ones_up_to_the_limit() -> None:
    builder = MemoryRecordsBuilder(write_limit_bytes=61 + 7 + 7 + 7)
    assert builder.has_room_for(timestamp_ms=1, value=bytes(1000))
    builder.append(timestamp_ms=1).append(timestamp_ms=1)
    assert not builder.is_full
    assert builder.has_room_for(timestamp_ms=1)
    assert builder.has_room_for(Record(offset=0, timestamp_ms=1))
    assert not builder.has_room_for(timestamp_ms=1, value=b"v")
    builder.append(timestamp_ms=1)
    assert builder.is_full
    assert not builder.has_room_for(timestamp_ms=1)
    assert only_batch(builder.build()).size_in_bytes == builder.write_limit_bytes


def test_room_is_judged_with_the_ratio_but_new_records_uncompressed() -> None:
    builder = MemoryRecordsBuilder(compression="gzip", write_limit_bytes=1000)
    builder.append(timestamp_ms=1, value=bytes(1000))
    assert builder.is_full
    builder.estimated_compression_ratio = 0.5
    assert not builder.is_full
    assert builder.has_room_for(timestamp_ms=1, value=bytes(300))
    assert not builder.has_room_for(timestamp_ms=1, value=bytes(500))


@pytest.mark.parametrize("ratio", [1e300, float("inf"), float("nan"), -1.0], ids=str)
def test_ratio_that_says_nothing_makes_the_batch_full(ratio: float) -> None:
    builder = MemoryRecordsBuilder(compression="gzip").append(timestamp_ms=1)
    builder.estimated_compression_ratio = ratio
    assert builder.estimated_size_in_bytes == 61 + 2**31 - 1
    assert builder.is_full


def test_empty_batch_is_not_full_whatever_the_limit() -> None:
    builder = MemoryRecordsBuilder(write_limit_bytes=0)
    assert not builder.is_full
    assert builder.append(timestamp_ms=1).is_full


def test_append_is_not_bound_by_the_write_limit() -> None:
    records = builders.records(0, 100)
    builder = MemoryRecordsBuilder(write_limit_bytes=100)
    for record in records:
        append(builder, record)
    assert [as_reference(record) for record in builder.build()] == records


def test_level_is_the_codecs() -> None:
    records = builders.records(0, 200, value_bytes=100)
    content = reference.write_batch(records)[61:]
    payloads = [bytes(builder_of(records, codec=codecs.GZIP, level=level).build())[61:] for level in (1, 9)]
    assert payloads == [compress(codecs.GZIP, content, level) for level in (1, 9)]
    assert len(payloads[1]) < len(payloads[0])


NOT_INTS = {
    "float": (1.9, TypeError, "must be an int, got 1.9"),
    "bool": (True, TypeError, "must be an int, got True"),
    "text": ("1", TypeError, "must be an int, got '1'"),
    "beyond 64 bits": (2**70, ValueError, "must be from "),
}


@pytest.mark.parametrize(("value", "error", "reason"), NOT_INTS.values(), ids=NOT_INTS)
@pytest.mark.parametrize("name", ["offset", "timestamp_ms", "sequence"])
def test_number_of_a_record_that_is_no_int_of_64_bits_is_refused(
    name: str, value: Any, error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=f"^{name} {reason}"):
        Record(**{name: value})
    with pytest.raises(error, match=f"^base_offset {reason}"):
        MemoryRecordsBuilder(base_offset=value)


def test_numbers_of_numpy_are_ints() -> None:
    record = Record(offset=np.int64(3), timestamp_ms=np.int32(4), sequence=np.int16(5))
    assert (record.offset, record.timestamp_ms, record.sequence) == (3, 4, 5)
    builder = MemoryRecordsBuilder(base_offset=np.int64(3)).append(timestamp_ms=np.int64(4), offset=np.int64(7))
    assert [(one.offset, one.timestamp_ms) for one in builder.build()] == [(7, 4)]
