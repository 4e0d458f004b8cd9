"""Goal: pack_columns writes the reference's batches, byte for byte, whatever the layout of its columns.

Method: Hypothesis draws records, layouts (padding, index width), batch sizes and header fields; then wild buffers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.compression import CompressionType
from kstore.record.packing import BinaryColumn, HeadersColumn, Int64Column, RecordColumns, pack_columns
from kstore.types import TimestampType
from tests.making.packing import TooShortError, columns_of, cut, expected_batches, read_columns
from tests.making.writing import writable_options, writable_records
from tests.reference import codec as reference
from tests.reference import codecs as codecs

BATCH_BYTES = st.sampled_from([1, 61, 80, 100, 200, 1000, 2**31 - 1])


@st.composite
def utf8_records(draw: st.DrawFn) -> list[reference.Record]:
    """Records whose header keys an Arrow string column can hold."""
    records = draw(writable_records())
    return [
        record._replace(
            headers=tuple((key.decode("utf-8", "replace").encode(), value) for key, value in record.headers)
        )
        for record in records
    ]


def batches_of(columns: Any, **options: Any) -> Iterator[bytes]:
    """The batches of all runs; options are those of reference.write_batch and of pack_columns."""
    names = dict(options)
    names["compression"] = CompressionType(names.pop("codec", 0))
    if "log_append_time_ms" in names:
        names["timestamp_type"] = TimestampType.LOG_APPEND_TIME
    for run in pack_columns(columns, **names):
        yield from map(bytes, run.batches())
        assert len(run) == sum(batch.size_in_bytes for batch in run.batches())


def packed(columns: Any, **options: Any) -> list[bytes]:
    return list(batches_of(columns, **options))


@given(
    records=utf8_records(),
    options=writable_options(codec=codecs.NONE, delete_horizon_ms=None, is_control=False),
    batch_bytes=BATCH_BYTES,
    run_bytes=st.sampled_from([1, 100, 2**20]),
    padding=st.sampled_from([0, 1, 9]),
    offset_bytes=st.sampled_from([4, 8]),
)
def test_uncompressed_batches_are_those_of_the_reference(
    records: list[reference.Record],
    options: dict[str, Any],
    batch_bytes: int,
    run_bytes: int,
    padding: int,
    offset_bytes: int,
) -> None:
    names = {name: value for name, value in options.items() if name not in ("delete_horizon_ms", "is_control")}
    columns = columns_of(records, padding=padding, offset_bytes=offset_bytes)
    assert packed(columns, batch_bytes=batch_bytes, run_bytes=run_bytes, **names) == expected_batches(
        records, batch_bytes=batch_bytes, **names
    )


@given(records=utf8_records(), codec=st.integers(0, 4), batch_bytes=BATCH_BYTES, base_offset=st.integers(0, 2**62))
def test_compressed_batches_hold_the_records_at_counted_offsets(
    records: list[reference.Record], codec: int, batch_bytes: int, base_offset: int
) -> None:
    counted = [record._replace(offset=base_offset + number) for number, record in enumerate(records)]
    columns = columns_of(records, has_offsets=False)
    batches = packed(columns, codec=codec, batch_bytes=batch_bytes, base_offset=base_offset)
    expected = expected_batches(counted, batch_bytes=batch_bytes)
    assert [reference.read_records(batch) for batch in batches] == [reference.read_records(b) for b in expected]
    assert {reference.Header.unpack(batch).codec for batch in batches} == {codec}


WORDS = st.sampled_from([0, 1, 2, 3, 5, 8, 2**31 - 1, -1, -(2**31)])

TIMES = st.sampled_from([0, 1, 2, 2**62, -1, -1, -2, 999, -1000, -1001, 2**63 - 1, -(2**63)])
BITS = st.none() | st.binary(min_size=1, max_size=2)


@st.composite
def wild_columns(draw: st.DrawFn) -> RecordColumns:
    """Buffers of any content, most of them long enough."""

    def binary() -> BinaryColumn:
        offsets = struct.pack("=8i", *draw(st.lists(WORDS, min_size=8, max_size=8)))
        return BinaryColumn(
            offsets=offsets[: draw(st.sampled_from([32, 32, 32, 15]))],
            data=draw(st.binary(max_size=8)),
            validity=draw(BITS),
            start=draw(st.sampled_from([0, 0, 1, 4])),
            offset_bytes=draw(st.sampled_from([4, 4, 4, 8])),
        )

    def numbers() -> Int64Column:
        stored = draw(st.lists(TIMES, min_size=5, max_size=5))
        return Int64Column(struct.pack("=5q", *stored), draw(BITS), draw(st.sampled_from([0, 1])))

    lists = binary()
    return RecordColumns(
        row_count=draw(st.integers(0, 4)),
        timestamp=draw(st.sampled_from([numbers(), draw(TIMES)])),
        offset=draw(st.sampled_from([None, None, numbers()])),
        units_per_ms=draw(st.sampled_from([1, 1, 1000])),
        key=draw(st.sampled_from([None, binary()])),
        value=draw(st.sampled_from([None, binary()])),
        headers=draw(
            st.sampled_from([None, HeadersColumn(lists.offsets, binary(), binary(), lists.validity, lists.start)])
        ),
    )


@given(columns=wild_columns(), codec=st.sampled_from([0, 0, 3]), batch_bytes=st.sampled_from([1, 100]))
def test_wild_buffers_give_the_records_before_the_first_wrong_row(
    columns: RecordColumns, codec: int, batch_bytes: int
) -> None:
    try:
        records, wrong_row = read_columns(columns)
    except TooShortError:
        with pytest.raises(ValueError, match="too short"):
            pack_columns(columns)
        return
    batches = batches_of(columns, codec=codec, batch_bytes=batch_bytes, run_bytes=1)
    for expected in whole_batches(records, batch_bytes=batch_bytes, wrong_row=wrong_row):
        assert reference.read_records(next(batches)) == expected
    if wrong_row is None:
        assert next(batches, None) is None
    else:
        with pytest.raises(ValueError, match=rf"row {wrong_row}\b"):
            next(batches)


def whole_batches(
    records: list[reference.Record], *, batch_bytes: int, wrong_row: int | None
) -> list[list[reference.Record]]:
    """The records of the batches that end before the wrong row: it may have been one of the last."""
    found = list(cut(records, batch_bytes=batch_bytes)) if records else []
    return found if wrong_row is None else found[:-1]
