"""Build with kstore what reference.write_batch builds of the same records and options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from kstore.compression import CompressionType
from kstore.record import MemoryRecordsBuilder
from kstore.types import TimestampType
from tests import reference
from tests.property import strategies


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
