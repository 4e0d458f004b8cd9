"""Write with kstore what reference.write_batch writes of the same records and options, and the cases of the matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from kstore.compression import CompressionType
from kstore.record import MemoryRecordsBuilder, MessageWriter, Record, write_entry
from kstore.types import TimestampType
from tests.making import strategies
from tests.making.matrix import Case
from tests.reference import codec as reference

# What each way of writing can write.
WRITTEN_MAGICS = {"builder": (0, 1, 2), "message writer": (0, 1)}


def builder_of(records: Sequence[reference.Record], **options: Any) -> MemoryRecordsBuilder:
    """A builder that holds the records; options are those of reference.write_batch."""
    names = dict(options)
    names["compression"] = CompressionType(names.pop("codec", 0))
    if "log_append_time_ms" in names:
        names["timestamp_type"] = TimestampType.LOG_APPEND_TIME
    builder = MemoryRecordsBuilder(base_offset=names.pop("base_offset", records[0].offset), **names)
    for record in records:
        append(builder, record)
    return builder


def append(builder: MemoryRecordsBuilder, record: reference.Record) -> None:
    if record.is_control:
        kstore_record = Record(
            offset=record.offset, timestamp_ms=record.timestamp_ms, key=record.key, value=record.value, is_control=True
        )
        builder.append(kstore_record)
        return
    builder.append(
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        key=record.key,
        value=record.value,
        headers=tuple((key.decode("utf-8", "surrogateescape"), value) for key, value in record.headers),
    )


def writable(timestamp_ms: int) -> int:
    """The timestamp itself, or -1 for one that no producer may send."""
    return max(timestamp_ms, -1)


@st.composite
def writable_records(draw: st.DrawFn, *, base_offset: int = 0) -> list[reference.Record]:
    records = draw(strategies.record_lists(base_offset=base_offset))
    return [record._replace(timestamp_ms=writable(record.timestamp_ms)) for record in records]


@st.composite
def writable_options(draw: st.DrawFn, **fixed: Any) -> dict[str, Any]:
    """Options of reference.write_batch that Kafka's builder takes too."""
    options = draw(strategies.batch_options()) | {"record_attributes": 0} | fixed
    del options["record_attributes"]
    if "log_append_time_ms" in options:
        options["log_append_time_ms"] = writable(options["log_append_time_ms"])
    if "producer_id" not in options:
        options["is_transactional"] = False
    return options


def write_case(writer: str, case: Case) -> bytes:
    """A case of the matrix, written by one of WRITTEN_MAGICS."""
    return _built_case(case) if writer == "builder" else _messages_of(case)


def _built_case(case: Case) -> bytes:
    options = {"codec": case.codec, "base_offset": case.base_offset, "magic": case.magic} | case.options
    return bytes(builder_of(case.records, **options).build())


def _messages_of(case: Case) -> bytes:
    """Plain messages, or one wrapper around them."""
    writer = MessageWriter(4096)
    if case.codec == CompressionType.NONE:
        _write_messages(writer, case, first_offset=0)
        return bytes(writer)
    writer.write_entry(
        lambda output: _write_messages(output, case, first_offset=case.base_offset if case.magic else 0),
        offset=case.records[-1].offset,
        magic=case.magic,
        timestamp_ms=max(record.timestamp_ms for record in case.expected),
        timestamp_type=_message_timestamp_type(case),
        compression=CompressionType(case.codec),
    )
    return bytes(writer)


def _write_messages(output: Any, case: Case, *, first_offset: int) -> None:
    for record in case.expected:
        write_entry(
            output,
            record.value,
            offset=record.offset - first_offset,
            magic=case.magic,
            timestamp_ms=record.timestamp_ms,
            timestamp_type=_message_timestamp_type(case),
            key=record.key,
        )


def _message_timestamp_type(case: Case) -> TimestampType:
    """V0 has neither, which a writer does not look at."""
    return TimestampType(max(case.timestamp_type, TimestampType.CREATE_TIME))
