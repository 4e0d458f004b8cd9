"""Goal: a partition directory of any batches gives its records, rows, ranges and times as the reference has them.

Method: Hypothesis lays batches out in segments with true indexes; every way of reading is compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import kstore
from tests.making import strategies
from tests.making.batches import Layout, write_partition
from tests.making.columns import MOST_TIMESTAMP_MS
from tests.reference import codec as reference
from tests.reference.codec import Batch, Record
from tests.reference.codecs import CODEC_NAMES
from tests.reference.verdicts import as_reference

DEFAULT_COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
BATCH_COLUMNS = [
    *("magic", "codec", "leaderEpoch", "producerId", "producerEpoch", "sequence", "isTransactional", "isControl"),
    "position",
]


@st.composite
def segment_lists(draw: st.DrawFn) -> list[list[bytes]]:
    """Batches cut into one to three segments, none of them empty."""
    batches = draw(strategies.batch_lists(max_batches=7, most_ms=MOST_TIMESTAMP_MS).filter(bool))
    cuts = sorted(draw(st.lists(st.integers(1, len(batches)), max_size=2, unique=True)))
    bounds = [0, *cuts, len(batches)]
    return [batches[a:b] for a, b in pairwise(bounds) if a < b]


@contextmanager
def partition_of(segments: Sequence[Sequence[bytes]], *, index_interval_bytes: int = 300) -> Iterator[kstore.Log]:
    with TemporaryDirectory() as root:
        path = write_partition(Path(root), segments, layout=Layout(index_interval_bytes=index_interval_bytes))
        with kstore.open_log(path) as log:
            yield log


def batches_of(segments: Sequence[Sequence[bytes]]) -> list[Batch]:
    """Positions count in each segment."""
    return [batch for segment in segments for batch in reference.read_batches(b"".join(segment))]


def data_records(segments: Sequence[Sequence[bytes]]) -> list[Record]:
    return [record for batch in batches_of(segments) for record in batch.records if not record.is_control]


def row_of(record: Record) -> dict[str, Any]:
    headers = [{"key": key.decode("utf-8", "replace"), "value": value} for key, value in record.headers]
    return {
        "key": record.key,
        "value": record.value,
        "topic": "t",
        "partition": 0,
        "offset": record.offset,
        "timestamp": None if record.timestamp_ms == -1 else record.timestamp_ms * 1000,
        "timestampType": record.timestamp_type,
        "headers": headers or None,
    }


def batch_row_of(batch: Batch, record: Record) -> dict[str, Any]:
    header = batch.header
    return {
        "magic": 2,
        "codec": CODEC_NAMES[header.codec],
        "leaderEpoch": header.partition_leader_epoch,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "sequence": record.sequence,
        "isTransactional": bool(header.attributes & reference.TRANSACTIONAL_BIT),
        "isControl": False,
        "position": batch.position,
    }


def rows_of(batches: Sequence[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Rows with timestamps as microseconds; each batch must be valid Arrow throughout."""
    rows: list[dict[str, Any]] = []
    for batch in batches:
        batch.validate(full=True)
        if "timestamp" in batch.schema.names:
            at = batch.schema.get_field_index("timestamp")
            batch = batch.set_column(at, "timestamp", batch.column(at).cast(pa.int64()))
        rows += batch.to_pylist()
    return rows


@given(segments=segment_lists())
def test_read_and_batches_give_everything_in_order(segments: list[list[bytes]]) -> None:
    with partition_of(segments) as log:
        assert [as_reference(record) for record in log.read()] == data_records(segments)
        assert b"".join(map(bytes, log.batches())) == b"".join(b"".join(segment) for segment in segments)
        assert log.log_end_offset == batches_of(segments)[-1].header.last_offset + 1


@given(
    segments=segment_lists(),
    binary=st.sampled_from(["copy", "view"]),
    batch_bytes=st.sampled_from([1, 100, 5000]),
    threads=st.integers(1, 2),
)
def test_arrow_rows_equal_the_reference(
    segments: list[list[bytes]], binary: Any, batch_bytes: int, threads: int
) -> None:
    with partition_of(segments) as log:
        found = list(log.to_arrow_batches(binary=binary, batch_bytes=batch_bytes, threads=threads))
    assert rows_of(found) == [row_of(record) for record in data_records(segments)]
    assert all(batch.schema.names == DEFAULT_COLUMNS for batch in found)


@given(
    segments=segment_lists(),
    columns=st.lists(st.sampled_from(DEFAULT_COLUMNS + BATCH_COLUMNS), min_size=1, unique=True),
)
def test_any_choice_of_columns_has_the_values_of_all(segments: list[list[bytes]], columns: list[str]) -> None:
    expected = [
        row_of(record) | batch_row_of(batch, record)
        for batch in batches_of(segments)
        for record in batch.records
        if not record.is_control
    ]
    with partition_of(segments) as log:
        found = rows_of(list(log.to_arrow_batches(columns=columns)))
    assert found == [{name: row[name] for name in columns} for row in expected]


@given(segments=segment_lists(), max_bytes=st.integers(1, 3000))
def test_planned_ranges_cover_every_record_once(segments: list[list[bytes]], max_bytes: int) -> None:
    with partition_of(segments) as log:
        rows = rows_of(list(kstore.scan(log.plan(max_bytes=max_bytes), columns=["offset"])))
    assert [row["offset"] for row in rows] == [record.offset for record in data_records(segments)]


@given(segments=segment_lists(), bounds=st.tuples(st.integers(0, 40), st.integers(0, 40)))
def test_offset_range_gives_exactly_its_records(segments: list[list[bytes]], bounds: tuple[int, int]) -> None:
    with partition_of(segments) as log:
        start = min(log.log_start_offset + bounds[0], log.log_end_offset)
        end = min(start + bounds[1], log.log_end_offset)
        expected = [record.offset for record in data_records(segments) if start <= record.offset < end]
        assert [record.offset for record in log.read(start, end)] == expected
        assert [row["offset"] for row in rows_of(list(log.to_arrow_batches(start, end)))] == expected


@given(segments=segment_lists(), data=st.data())
def test_time_lookup_gives_the_first_record_as_late(segments: list[list[bytes]], data: st.DataObject) -> None:
    records = [record for batch in batches_of(segments) for record in batch.records]
    known = [record.timestamp_ms for record in records] or [0]
    target = data.draw(
        st.one_of(st.sampled_from(known), strategies.timestamps(), st.sampled_from(known).map(lambda t: t + 1))
    )
    target = max(0, min(target, 2**63 - 1))
    first = next((record for record in records if record.timestamp_ms >= target), None)
    with partition_of(segments, index_interval_bytes=0) as log:
        found = log.offset_for_timestamp(target)
    assert found == (None if first is None else (first.offset, first.timestamp_ms))
