"""Goal: any values, whole or damaged, are unpacked as the reference codec reads them, and what was packed is back.
Method: Hypothesis draws runs of batches, tables of few bytes and one change to some of the values."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kstore.spark.udfs import batch_arrays
from tests.making.columns import expected_microseconds
from tests.making.strategies import CODECS, MOST_TIMESTAMP_MS, examples, record_lists
from tests.reference import codec as reference

FIELDS = ("key", "value", "offset", "timestamp", "headers")


@st.composite
def values(draw):
    """Bytes of a value and its records, None for both if it is null, None for the records if they are damaged."""
    if draw(st.integers(0, 9)) == 0:
        return None, None
    base = draw(st.integers(0, 2**40))
    parts = draw(st.lists(record_lists(base_offset=base, most_ms=MOST_TIMESTAMP_MS), max_size=3))
    data = b"".join(reference.write_batch(part, codec=draw(CODECS)) for part in parts)
    if not data or draw(st.booleans()):
        return data, [item for part in parts for item in part]
    at = draw(st.integers(reference.ATTRIBUTES_AT, reference.HEADER_BYTES))
    return data[:at] + bytes([data[at] ^ 1 << draw(st.integers(0, 7))]) + data[at + 1 :], None


def rows_of(records):
    headers = [[(key.decode("utf-8", "replace"), value) for key, value in item.headers] for item in records]
    times = [expected_microseconds(item.timestamp_ms) for item in records]
    return [(r.key, r.value, r.offset, t, h or None) for r, t, h in zip(records, times, headers, strict=True)]


def unpacked(array, *, is_permissive):
    done = batch_arrays.unpack(array, FIELDS, is_permissive=is_permissive)
    lists = done.field("records") if is_permissive else done
    found = []
    for item in lists:
        rows = item.values
        if rows is None:
            found.append(None)
            continue
        headers = [
            None if pairs is None else [(pair["key"], pair["value"]) for pair in pairs]
            for pairs in rows.field("headers").to_pylist()
        ]
        columns = [rows.field(name).to_pylist() for name in ("key", "value", "offset")]
        found.append(list(zip(*columns, rows.field("timestamp").cast(pa.int64()).to_pylist(), headers, strict=True)))
    return found, done


@examples(60)
@given(drawn=st.lists(values(), max_size=6), table_bytes=st.sampled_from([1, 64, 1000, 1 << 20]))
def test_values_are_unpacked_as_the_reference_reads_them(drawn, table_bytes):
    whole_size, batch_arrays.TABLE_BYTES = batch_arrays.TABLE_BYTES, table_bytes
    try:
        array = pa.array([data for data, _ in drawn], pa.binary())
        found, done = unpacked(array, is_permissive=True)
    finally:
        batch_arrays.TABLE_BYTES = whole_size
    assert found == [None if records is None else rows_of(records) for _, records in drawn]
    is_damaged = [data is not None and records is None for data, records in drawn]
    assert [reason is not None for reason in done.field("error").to_pylist()] == is_damaged


@examples(40)
@given(records=record_lists(base_offset=0, most_ms=2**50), codec=st.sampled_from(["none", "gzip", "lz4", "zstd"]))
def test_packed_records_are_there_again(records, codec):
    records = [item._replace(timestamp_ms=abs(item.timestamp_ms)) for item in records]
    value = pa.array([reference.write_batch(records)], pa.binary())
    first, lists = unpacked(value, is_permissive=False)
    packed = batch_arrays.pack(lists, compression=codec)
    assert unpacked(packed, is_permissive=False)[0] == first == [rows_of(records)]
