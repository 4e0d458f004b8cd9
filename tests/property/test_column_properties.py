"""Goal: the columnar decoder gives the same records as the reference, however the bytes arrive and tables are cut.

Method: Hypothesis writes any log and chooses columns, modes, chunk and table sizes and an offset range; the raw
buffers are taken apart by tests/making/columns.py.
"""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from tests.making import strategies
from tests.making.columns import MOST_TIMESTAMP_MS, Row, Wanted, decode_table, expected_batch_line, expected_rows
from tests.reference import codec as reference

modes = st.sampled_from([None, "copy", "view", "string"])
sizes = st.one_of(st.integers(1, 200), st.sampled_from([1000, 1 << 16]))
wishes = st.builds(
    Wanted,
    offset=st.booleans(),
    timestamp=st.booleans(),
    key=modes,
    value=modes,
    headers=st.booleans(),
    batch_bytes=sizes,
    chunk_bytes=sizes,
)
logs = strategies.logs(most_ms=MOST_TIMESTAMP_MS)


@given(data=logs, wanted=wishes)
def test_any_columns_of_any_log_equal_the_reference(data: bytes, wanted: Wanted) -> None:
    records = reference.read_records(data)
    assert decode_table(data, wanted).rows == expected_rows(records, wanted)


@given(data=logs, wanted=wishes, bounds=st.tuples(st.integers(0, 60), st.integers(0, 60)))
def test_offset_range_keeps_exactly_its_records(data: bytes, wanted: Wanted, bounds: tuple[int, int]) -> None:
    records = reference.read_records(data)
    first = records[0].offset if records else 0
    wanted = dataclasses.replace(wanted, start_offset=first + bounds[0], end_offset=first + sum(bounds))
    assert decode_table(data, wanted).rows == expected_rows(records, wanted)


@given(data=logs, wanted=wishes)
def test_each_row_knows_its_batch(data: bytes, wanted: Wanted) -> None:
    lines = [
        expected_batch_line(batch)
        for batch in reference.read_batches(data)
        for _ in batch.records
        if not batch.header.is_control
    ]
    assert decode_table(data, wanted).batches == lines


@given(data=logs, batch_bytes=st.integers(1, 4000))
def test_tables_are_passed_by_at_most_one_record(data: bytes, batch_bytes: int) -> None:
    wanted = Wanted(batch_bytes=batch_bytes)
    table = decode_table(data, wanted)
    row_width = 8 + 8 + 4 + 4 + 4
    start = 0
    for size in table.table_sizes:
        rows = table.rows[start : start + size]
        start += size
        assert sum(row_width + payload_bytes(row) for row in rows[:-1]) <= batch_bytes


def payload_bytes(row: Row) -> int:
    return len(row.key or b"") + len(row.value or b"")
