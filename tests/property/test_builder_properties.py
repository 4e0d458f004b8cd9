"""Goal: the builder's batches are the reference's, byte for byte, and hold what was appended.

Method: Hypothesis draws records and header fields; both write the batch, and kstore reads it by rows and by columns.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kstore import _core
from kstore.record import MemoryRecordsBuilder
from tests.making import columns
from tests.making.writing import append, builder_of, writable_options, writable_records
from tests.reference import codec as reference
from tests.reference import codecs as codecs
from tests.reference.verdicts import as_reference

BASE_OFFSETS = st.sampled_from([0, 0, 7, 2**40])


@st.composite
def builds(draw: st.DrawFn, **fixed: Any) -> tuple[list[reference.Record], dict[str, Any]]:
    """Records and options; the base offset is at or below the first record's."""
    base_offset = draw(BASE_OFFSETS)
    options = draw(writable_options(**fixed)) | {"base_offset": base_offset}
    return draw(writable_records(base_offset=base_offset)), options


@given(build=builds(codec=codecs.NONE))
def test_uncompressed_batch_is_that_of_the_reference(build: tuple[list[reference.Record], dict[str, Any]]) -> None:
    records, options = build
    assert bytes(builder_of(records, **options).build()) == reference.write_batch(records, **options)


@given(build=builds())
def test_compressed_batch_differs_in_nothing_but_size_crc_and_payload(
    build: tuple[list[reference.Record], dict[str, Any]],
) -> None:
    records, options = build
    data = bytes(builder_of(records, **options).build())
    expected = reference.write_batch(records, **options)
    payloads = [codecs.decompress(options["codec"], batch[61:], limit=1 << 24) for batch in (data, expected)]
    assert payloads[0] == payloads[1]
    assert data[:8] + data[12:17] + data[21:61] == expected[:8] + expected[12:17] + expected[21:61]
    assert reference.read_records(data) == reference.read_records(expected)


@given(build=builds())
def test_rows_and_columns_hold_what_was_appended(build: tuple[list[reference.Record], dict[str, Any]]) -> None:
    records, options = build
    memory = builder_of(records, **options).build()
    read = [as_reference(record) for record in memory]
    assert [(r.offset, r.key, r.value, r.headers) for r in read] == [
        (r.offset, r.key, r.value, r.headers) for r in records
    ]
    append_time = options.get("log_append_time_ms")
    times = [r.timestamp_ms if append_time is None else append_time for r in records]
    assert [r.timestamp_ms for r in read] == times
    if max(times) <= columns.MOST_TIMESTAMP_MS:
        rows = columns.decode_table(bytes(memory)).rows
        assert [(row.offset, row.timestamp_us, row.key, row.value) for row in rows] == [
            (r.offset, columns.expected_microseconds(time), r.key, r.value)
            for r, time in zip(records, times, strict=True)
        ]


@given(records=writable_records())
def test_appending_what_was_read_makes_the_same_batch(records: list[reference.Record]) -> None:
    first = builder_of(records, base_offset=0).build()
    again = MemoryRecordsBuilder()
    for record in first:
        again.append(record)
    assert bytes(again.build()) == bytes(first)


@given(records=writable_records(), base_offset=st.integers(0, 2**62), leader_epoch=st.integers(-1, 2**31 - 1))
def test_patched_header_is_that_of_a_batch_written_so(
    records: list[reference.Record], base_offset: int, leader_epoch: int
) -> None:
    data = bytearray(bytes(builder_of(records, base_offset=0).build()))
    _core.patch_batch_header(data, base_offset=base_offset, partition_leader_epoch=leader_epoch)
    moved = [record._replace(offset=base_offset + record.offset) for record in records]
    assert data == reference.write_batch(moved, base_offset=base_offset, partition_leader_epoch=leader_epoch)


@given(records=writable_records())
def test_record_size_is_what_append_adds(records: list[reference.Record]) -> None:
    builder = MemoryRecordsBuilder()
    for record in records:
        next_record = record._replace(offset=builder.next_offset)
        headers = tuple((key.decode("utf-8", "surrogateescape"), value) for key, value in record.headers)
        size = builder.record_size(
            timestamp_ms=record.timestamp_ms, key=record.key, value=record.value, headers=headers
        )
        before = builder.records_size_in_bytes
        append(builder, next_record)
        assert builder.records_size_in_bytes - before == size
