"""Goal: MemoryRecordsBuilder writes magics 0 and 1 as Kafka's builder does, and refuses what these have no room for.

Method: the bytes of messages and wrappers by their fields (making/messages.py); tables of calls with their errors.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.record import MemoryRecords, MemoryRecordsBuilder, RecordsInfo
from kstore.types import ControlRecordType, TimestampType
from tests.making import batches as builders
from tests.making.messages import decompressed, packed, packed_entry
from tests.making.writing import append, writable_records
from tests.reference import codec as reference
from tests.reference import codecs as codecs

APPEND_TIME = {"timestamp_type": TimestampType.LOG_APPEND_TIME, "log_append_time_ms": 77}
APPEND_TIME_BIT = 8
LEGACY_CODECS = (codecs.GZIP, codecs.SNAPPY, codecs.LZ4)
magics = pytest.mark.parametrize("magic", [0, 1], ids=["v0", "v1"])
codec_parameter = pytest.mark.parametrize("codec", LEGACY_CODECS, ids=[codecs.CODEC_NAMES[c] for c in LEGACY_CODECS])
kinds = pytest.mark.parametrize("options", [{}, APPEND_TIME], ids=["create time", "append time"])


def messages(first_offset: int, count: int, *, value_bytes: int = 0) -> list[reference.Record]:
    return without_headers(builders.records(first_offset, count, value_bytes=value_bytes))


def without_headers(records: list[reference.Record]) -> list[reference.Record]:
    return [record._replace(headers=()) for record in records]


def build(records: list[reference.Record], **options: Any) -> bytes:
    if "codec" in options:
        options["compression"] = codecs.CODEC_NAMES[options.pop("codec")]
    builder = MemoryRecordsBuilder(**options)
    for record in records:
        append(builder, record)
    return bytes(builder.build())


def fields_of(record: reference.Record, *, magic: int, append_time_ms: int | None) -> dict[str, int]:
    if magic == 0:
        return {"magic": 0}
    if append_time_ms is None:
        return {"magic": 1, "timestamp_ms": record.timestamp_ms}
    return {"magic": 1, "timestamp_ms": append_time_ms, "attributes": APPEND_TIME_BIT}


def message_set(
    records: list[reference.Record], *, magic: int, append_time_ms: int | None, first_offset: int = 0
) -> bytes:
    """The entries of the records at offsets counted from first_offset."""
    return b"".join(
        packed_entry(
            record.value,
            record.key,
            offset=record.offset - first_offset,
            **fields_of(record, magic=magic, append_time_ms=append_time_ms),
        )
        for record in records
    )


@magics
@kinds
@given(records=writable_records(base_offset=5))
def test_plain_messages_are_those_of_the_reference(
    magic: int, options: dict[str, Any], records: list[reference.Record]
) -> None:
    records = without_headers(records)
    append_time_ms = options.get("log_append_time_ms")
    expected = message_set(records, magic=magic, append_time_ms=append_time_ms)
    assert build(records, magic=magic, base_offset=5, **options) == expected


@magics
@codec_parameter
@kinds
@given(records=writable_records(base_offset=5), base_offset=st.integers(0, 5))
def test_wrapper_holds_the_messages_of_the_reference(
    magic: int, codec: int, options: dict[str, Any], records: list[reference.Record], base_offset: int
) -> None:
    records = without_headers(records)
    append_time_ms = options.get("log_append_time_ms")
    data = build(records, magic=magic, codec=codec, base_offset=base_offset, **options)
    value = data[26 + 8 * magic :]
    content = decompressed(value, magic=magic, codec=codec)
    first_offset = base_offset if magic else 0
    expected = message_set(records, magic=magic, append_time_ms=append_time_ms, first_offset=first_offset)
    assert content == expected
    fields = {"magic": magic, "attributes": codec}
    if magic:
        largest_ms = max(record.timestamp_ms for record in records)
        fields["timestamp_ms"] = largest_ms if append_time_ms is None else append_time_ms
        fields["attributes"] |= 0 if append_time_ms is None else APPEND_TIME_BIT
    assert data == packed_entry(value, None, offset=records[-1].offset, **fields)


@magics
@codec_parameter
def test_large_wrapper_is_compressed_over_all_its_blocks(magic: int, codec: int) -> None:
    records = messages(0, 300, value_bytes=1000)
    data = build(records, magic=magic, codec=codec)
    content = decompressed(data[26 + 8 * magic :], magic=magic, codec=codec)
    assert content == message_set(records, magic=magic, append_time_ms=None)


@magics
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_no_record_gives_no_bytes(magic: int, compression: str) -> None:
    builder = MemoryRecordsBuilder(magic=magic, compression=compression)
    assert bytes(builder.build()) == b""
    assert builder.estimated_size_in_bytes == 0


BAD_OPTIONS: dict[str, dict[str, Any]] = {
    "transactional": {"is_transactional": True},
    "control": {"is_control": True},
    "delete horizon": {"delete_horizon_ms": 1},
    "zstd": {"compression": "zstd"},
}


@magics
@pytest.mark.parametrize("options", BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_options_of_magic_2_are_refused(magic: int, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"a batch of magic {magic} can't have"):
        MemoryRecordsBuilder(magic=magic, **options)


@pytest.mark.parametrize("magic", [-1, 3, 2**31, 2**70], ids=str)
def test_unknown_magic_is_refused(magic: int) -> None:
    with pytest.raises(ValueError, match=f"magic must be from 0 to 2, got {magic}"):
        MemoryRecordsBuilder(magic=magic)


def test_timestamp_type_is_asked_of_magic_1_and_means_nothing_in_magic_0() -> None:
    with pytest.raises(ValueError, match="timestamp_type must be"):
        MemoryRecordsBuilder(magic=1, timestamp_type=TimestampType.NO_TIMESTAMP_TYPE)
    for timestamp_type in TimestampType:
        builder = MemoryRecordsBuilder(magic=0, timestamp_type=timestamp_type, log_append_time_ms=5)
        assert builder.timestamp_type == TimestampType.NO_TIMESTAMP_TYPE
        assert bytes(builder.append(timestamp_ms=9).build()) == packed_entry(None, None, offset=0, magic=0)


@magics
def test_records_with_headers_or_of_control_batches_are_refused(magic: int) -> None:
    builder = MemoryRecordsBuilder(magic=magic)
    with pytest.raises(ValueError, match=f"magic {magic} can't have headers"):
        builder.append(timestamp_ms=1, headers=[("h", b"")])
    with pytest.raises(ValueError, match="control"):
        builder.append_control_record(ControlRecordType.COMMIT, b"", timestamp_ms=1)
    assert builder.append(timestamp_ms=1, headers=[]).record_count == 1


@magics
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_producer_state_is_refused_at_the_end(magic: int, compression: str) -> None:
    producer = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
    builder = MemoryRecordsBuilder(magic=magic, compression=compression, **producer).append(timestamp_ms=1)
    with pytest.raises(ValueError, match=f"a batch of magic {magic} has no producer id, got 1"):
        builder.build()
    builder.set_producer_state(producer_id=-1, producer_epoch=-1, base_sequence=-1, is_transactional=False)
    assert len(builder.build()) > 0


@magics
@pytest.mark.parametrize("fields", [{"timestamp_ms": -2}, {"timestamp_ms": 1, "offset": 8}], ids=["time", "offset"])
def test_append_refuses_and_leaves_the_messages_as_they_were(magic: int, fields: dict[str, int]) -> None:
    builder = MemoryRecordsBuilder(magic=magic).append(timestamp_ms=5, offset=8)
    with pytest.raises(ValueError, match="must"):
        builder.append(**fields)
    expected = message_set([builders.record(8, None, timestamp_ms=5)], magic=magic, append_time_ms=None)
    assert bytes(builder.build()) == expected


TIMES = (5, 9, 9, 7)
INFOS: dict[str, tuple[dict[str, Any], RecordsInfo]] = {
    "V0": ({"magic": 0}, RecordsInfo(-1, -1)),
    "V0 compressed": ({"magic": 0, "compression": "gzip"}, RecordsInfo(-1, -1)),
    "V0 append time": ({"magic": 0} | APPEND_TIME, RecordsInfo(-1, -1)),
    "V1": ({"magic": 1}, RecordsInfo(9, 4)),
    "V1 compressed": ({"magic": 1, "compression": "gzip"}, RecordsInfo(9, 6)),
    "V1 append time": ({"magic": 1} | APPEND_TIME, RecordsInfo(77, 2)),
    "V1 append time, compressed": ({"magic": 1, "compression": "gzip"} | APPEND_TIME, RecordsInfo(77, 6)),
    "V2": ({}, RecordsInfo(9, 6)),
    "V2 append time": (APPEND_TIME, RecordsInfo(77, 6)),
}


@pytest.mark.parametrize(("options", "info"), INFOS.values(), ids=INFOS)
def test_info_gives_the_offset_that_kafka_indexes(options: dict[str, Any], info: RecordsInfo) -> None:
    builder = MemoryRecordsBuilder(base_offset=2, **options)
    for number, timestamp_ms in enumerate(TIMES):
        builder.append(timestamp_ms=timestamp_ms, offset=3 + number)
    assert builder.info == info


@magics
def test_messages_without_timestamps_have_none_to_index(magic: int) -> None:
    builder = MemoryRecordsBuilder(magic=magic).append(timestamp_ms=-1)
    assert builder.info == RecordsInfo(-1, -1)


@magics
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_sizes_count_the_header_of_a_wrapper_alone(magic: int, compression: str) -> None:
    builder = MemoryRecordsBuilder(magic=magic, compression=compression)
    record = {"timestamp_ms": 1, "key": b"k", "value": b"v" * 100}
    size = 12 + len(packed(b"v" * 100, b"k", magic=magic))
    header_size = 0 if compression == "none" else 26 + 8 * magic
    assert builder.record_size(**record) == size
    builder.append(**record)
    assert builder.records_size_in_bytes == size
    assert builder.uncompressed_size_in_bytes == header_size + size
    ratio = 1.0 if compression == "none" else 1.05
    assert builder.estimated_size_in_bytes == header_size + int(size * ratio)
    built = builder.build()
    assert builder.estimated_size_in_bytes == len(built)
    assert builder.compression_ratio == (len(built) - header_size) / size


@magics
def test_room_is_measured_in_whole_entries(magic: int) -> None:
    size = 12 + len(packed(b"v", b"k", magic=magic))
    builder = MemoryRecordsBuilder(magic=magic, write_limit_bytes=2 * size).append(timestamp_ms=1, key=b"k", value=b"v")
    assert builder.has_room_for(timestamp_ms=1, key=b"k", value=b"v")
    assert not builder.has_room_for(timestamp_ms=1, key=b"k", value=b"vv")
    assert builder.append(timestamp_ms=1, key=b"k", value=b"v").is_full


def test_lz4_of_v0_has_the_header_checksum_that_old_readers_want() -> None:
    checksums = [build(messages(0, 3), magic=magic, codec=codecs.LZ4)[26 + 8 * magic :][6] for magic in (0, 1)]
    assert checksums == [0x1A, 0x82]


@magics
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4"])
def test_kstore_reads_what_it_built(magic: int, compression: str) -> None:
    records = messages(3, 20)
    builder = MemoryRecordsBuilder(magic=magic, compression=compression, base_offset=3)
    for record in records:
        append(builder, record)
    read = list(MemoryRecords(bytes(builder.build())))
    times = [record.timestamp_ms if magic else -1 for record in records]
    assert [(r.offset, r.timestamp_ms, r.key, r.value) for r in read] == [
        (r.offset, time, r.key, r.value) for r, time in zip(records, times, strict=True)
    ]
