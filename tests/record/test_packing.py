"""Goal: pack_columns takes any well-formed column and refuses, with the row, every other; it never reads outside one.

Method: tables of columns made by struct, damaged field by field; the bytes are compared with the reference codec.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kstore import _core
from kstore.compression import compress
from kstore.record import MemoryRecords
from kstore.record.packing import BinaryColumn, Int64Column, RecordColumns, pack_columns, pack_groups
from kstore.types import TimestampType
from tests.making import batches as builders
from tests.making.packing import (
    binary_column,
    bits,
    columns_of,
    expected_batches,
    headers_column,
    int64_column,
    with_key,
)
from tests.reference import codec as reference

RECORDS = builders.records(0, 10)
EPOCH = {"partition_leader_epoch": 0}
MAX_INT64 = 2**63 - 1


def packed(columns: RecordColumns, **options: Any) -> bytes:
    return b"".join(map(bytes, pack_columns(columns, **(EPOCH | options))))


def test_one_batch_of_all_rows() -> None:
    assert packed(columns_of(RECORDS), batch_bytes=2**31 - 1) == reference.write_batch(RECORDS)


def test_no_rows_give_no_batch() -> None:
    assert packed(columns_of([])) == b""
    assert packed(RecordColumns(row_count=0, timestamp=Int64Column(b""), key=BinaryColumn(b"", b""))) == b""


def test_numpy_arrays_are_taken_as_they_are() -> None:
    values = np.frombuffer(b"abcdef", np.uint8)
    columns = RecordColumns(
        row_count=2,
        timestamp=Int64Column(np.array([5, 6], np.int64)),
        value=BinaryColumn(np.array([0, 2, 6], np.int32), values),
    )
    expected = [builders.record(0, b"ab", timestamp_ms=5), builders.record(1, b"cdef", timestamp_ms=6)]
    assert packed(columns) == reference.write_batch(expected)


def test_absent_columns_are_null_and_one_timestamp_is_for_all() -> None:
    expected = [builders.record(number, None, timestamp_ms=7) for number in range(3)]
    assert packed(RecordColumns(row_count=3, timestamp=7)) == reference.write_batch(expected)


TIMES: dict[str, tuple[int | None, int, int]] = {
    "ms": (1234, 1, 1234),
    "us": (1_234_999, 1000, 1234),
    "ns": (1_234_999_999, 1_000_000, 1234),
    "no timestamp in us": (-1000, 1000, -1),
    "part of a ms before 1970": (-1, 1000, -1),
    "largest in us": (MAX_INT64, 1000, MAX_INT64 // 1000),
    "null": (None, 1000, -1),
}


@pytest.mark.parametrize(("stored", "units_per_ms", "expected_ms"), TIMES.values(), ids=TIMES)
def test_timestamps_are_rounded_down_to_ms(stored: int | None, units_per_ms: int, expected_ms: int) -> None:
    columns = RecordColumns(row_count=1, timestamp=int64_column([stored]), units_per_ms=units_per_ms)
    assert packed(columns) == reference.write_batch([builders.record(0, None, timestamp_ms=expected_ms)])


ONE_TIME = {"no timestamp in us": (-1000, -1), "part of a ms before 1970": (-1, -1), "us": (1_999, 1)}


@pytest.mark.parametrize(("stored", "expected_ms"), ONE_TIME.values(), ids=ONE_TIME)
def test_one_timestamp_for_all_is_counted_in_the_units_of_a_column(stored: int, expected_ms: int) -> None:
    columns = RecordColumns(row_count=1, timestamp=stored, units_per_ms=1000)
    assert packed(columns) == reference.write_batch([builders.record(0, None, timestamp_ms=expected_ms)])


def test_batch_ends_before_the_record_that_would_pass_batch_bytes() -> None:
    size = len(reference.write_batch(RECORDS[:4]))
    sizes = [len(b) for b in expected_batches(RECORDS, batch_bytes=size)]
    assert sizes[0] == size
    for batch_bytes in (size - 1, size, size + 1):
        expected = expected_batches(RECORDS, batch_bytes=batch_bytes)
        assert packed(columns_of(RECORDS), batch_bytes=batch_bytes) == b"".join(expected)


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_record_above_batch_bytes_has_a_batch_of_its_own(codec: str) -> None:
    records = [builders.record(number, bytes(3_000_000 * (number == 1)), timestamp_ms=1) for number in range(3)]
    columns = columns_of(records)
    batches = [batch for run in pack_columns(columns, compression=codec) for batch in run.batches()]
    assert [batch.record_count for batch in batches] == [1, 1, 1]
    assert [record.value for batch in batches for record in batch] == [record.value for record in records]


def test_offsets_that_are_far_apart_end_a_batch() -> None:
    records = [builders.record(offset, b"v", timestamp_ms=1) for offset in (5, 5 + 2**31 - 1, 5 + 2**31)]
    assert packed(columns_of(records)) == b"".join(expected_batches(records, batch_bytes=16384))
    assert len(expected_batches(records, batch_bytes=16384)) == 2


def test_sequences_go_on_from_batch_to_batch_and_wrap() -> None:
    producer = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 2**31 - 4, "is_transactional": True}
    expected = expected_batches(RECORDS, batch_bytes=1, **producer)
    assert [reference.Header.unpack(b).base_sequence for b in expected][:6] == [*range(2**31 - 4, 2**31), 0, 1]
    assert packed(columns_of(RECORDS), batch_bytes=1, **producer) == b"".join(expected)


def test_append_time_stands_in_the_header() -> None:
    options = {"log_append_time_ms": 99, "timestamp_type": TimestampType.LOG_APPEND_TIME}
    assert packed(columns_of(RECORDS), **options) == reference.write_batch(RECORDS, log_append_time_ms=99)


def test_runs_are_some_whole_batches_each() -> None:
    records = builders.records(0, 100, value_bytes=100)
    runs = [bytes(run) for run in pack_columns(columns_of(records), batch_bytes=500, run_bytes=1000, **EPOCH)]
    assert b"".join(runs) == b"".join(expected_batches(records, batch_bytes=500))
    assert len(runs) > 5
    assert all(1000 <= len(run) < 1500 for run in runs[:-1])


def test_runs_own_their_bytes() -> None:
    values = bytearray(b"v" * 1000)
    column = BinaryColumn(struct.pack("=11i", *range(0, 1100, 100)), values)
    runs = pack_columns(RecordColumns(row_count=10, timestamp=1, value=column), run_bytes=1, batch_bytes=300)
    first = next(runs)
    before = bytes(first)
    with pytest.raises(BufferError):
        values.clear()
    values[:] = bytes(1000)
    assert bytes(first) == before
    assert [record.value for record in next(runs)] == [bytes(100)] * 2


def index(*numbers: int) -> bytes:
    return struct.pack(f"={len(numbers)}i", *numbers)


ROWS = columns_of(RECORDS[:3])
GOOD = BinaryColumn(index(0, 1, 2, 3), b"abc")
BAD_INDEXES: dict[str, tuple[BinaryColumn, int]] = {
    "negative": (GOOD._replace(offsets=index(-1, 1, 2, 3)), 0),
    "least int32": (GOOD._replace(offsets=index(-(2**31), 1, 2, 3)), 0),
    "backwards": (GOOD._replace(offsets=index(0, 2, 1, 3)), 1),
    "beyond the data": (GOOD._replace(offsets=index(0, 1, 2, 4)), 2),
    "all beyond the data": (GOOD._replace(offsets=index(2**31 - 2, 2**31 - 1, 2**31 - 1, 2**31 - 1)), 0),
    "no data": (GOOD._replace(data=b""), 0),
    "int64 beyond the data": (
        BinaryColumn(struct.pack("=4q", 0, MAX_INT64, 2, 3), b"abc", offset_bytes=8),
        0,
    ),
    "least int64": (BinaryColumn(struct.pack("=4q", -(2**63), 1, 2, 3), b"abc", offset_bytes=8), 0),
}


@pytest.mark.parametrize("name", ["key", "value"])
@pytest.mark.parametrize(("column", "row"), BAD_INDEXES.values(), ids=BAD_INDEXES)
def test_indexes_outside_the_data_are_refused(name: str, column: BinaryColumn, row: int) -> None:
    with pytest.raises(ValueError, match=f"run backwards or beyond its data at row {row}"):
        packed(ROWS._replace(**{name: column}))


def test_indexes_of_null_elements_are_not_looked_at() -> None:
    column = GOOD._replace(offsets=index(7, 5, -1, 2**31 - 1), validity=bits([False] * 3))
    assert [r.key for r in reference.read_records(packed(ROWS._replace(key=column)))] == [None] * 3


HEADERS = headers_column([[(b"a", b"1")], [(b"b", None), (b"c", b"")], None])
BAD_HEADERS: dict[str, tuple[Any, str]] = {
    "list beyond the keys": (HEADERS._replace(offsets=index(0, 1, 4, 4)), "beyond its data at row 1"),
    "list of 2^31 - 1": (HEADERS._replace(offsets=index(0, 2**31 - 1, 3, 3)), "beyond its data at row 0"),
    "list backwards": (HEADERS._replace(offsets=index(1, 0, 3, 3)), "beyond its data at row 0"),
    "fewer values than keys": (HEADERS._replace(values=binary_column([b"1", None])), "beyond its data at row 1"),
    "fewer keys than values": (HEADERS._replace(keys=binary_column([b"a"])), "beyond its data at row 1"),
    "key beyond its data": (HEADERS._replace(keys=GOOD._replace(data=b"ab")), "beyond its data at row 1"),
    "value beyond its data": (HEADERS._replace(values=GOOD._replace(data=b"ab")), "beyond its data at row 1"),
    "null key": (HEADERS._replace(keys=binary_column([b"a", None, b"c"])), "key is null at row 1"),
    "key that is no UTF-8": (HEADERS._replace(keys=binary_column([b"a", b"b", b"\xff"])), "not valid UTF-8 at row 1"),
    "surrogate as UTF-8": (HEADERS._replace(keys=binary_column([b"\xed\xa0\x80", b"b", b"c"])), "UTF-8 at row 0"),
}


@pytest.mark.parametrize(("headers", "match"), BAD_HEADERS.values(), ids=BAD_HEADERS)
def test_bad_headers_are_refused_with_their_row(headers: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        packed(ROWS._replace(headers=headers))


SHORT: dict[str, RecordColumns] = {
    "no indexes": with_key(ROWS, offsets=b""),
    "an index too few": with_key(ROWS, offsets=bytes(15)),
    "start behind the end": with_key(ROWS, start=1),
    "negative start": with_key(ROWS, start=-1),
    "largest start": with_key(ROWS, start=MAX_INT64),
    "indexes of 3 bytes": with_key(ROWS, offset_bytes=3),
    "validity too short": with_key(ROWS, validity=b""),
    "validity too short from its start on": ROWS._replace(
        key=binary_column([b""] * 3, padding=6)._replace(validity=b"\xff")
    ),
    "timestamps too short": ROWS._replace(timestamp=Int64Column(bytes(23))),
    "timestamps too short from their start on": ROWS._replace(timestamp=Int64Column(bytes(24), None, 1)),
    "negative start of timestamps": ROWS._replace(timestamp=Int64Column(bytes(24), None, -1)),
    "largest start of offsets": ROWS._replace(offset=Int64Column(bytes(24), None, MAX_INT64)),
    "validity of timestamps too short": ROWS._replace(timestamp=Int64Column(bytes(24), b"")),
    "lists too short": ROWS._replace(headers=HEADERS._replace(start=1)),
    "negative row count": ROWS._replace(row_count=-1),
    "more rows than the columns": ROWS._replace(row_count=4),
    "largest row count": ROWS._replace(row_count=MAX_INT64),
    "no unit": ROWS._replace(units_per_ms=0),
}


@pytest.mark.parametrize("columns", SHORT.values(), ids=SHORT)
def test_buffers_that_are_too_short_are_refused_at_once(columns: RecordColumns) -> None:
    with pytest.raises(ValueError, match=r"too short|offset_bytes|must not be negative"):
        pack_columns(columns)


OTHER_ITEMS: dict[str, RecordColumns] = {
    "foreign byte order": ROWS._replace(timestamp=Int64Column(np.array([1, 2, 3], ">i8"))),
    "int32 timestamps": ROWS._replace(timestamp=Int64Column(np.arange(6, dtype=np.int32))),
    "float64 offsets": ROWS._replace(offset=Int64Column(np.array([1.0, 2.0, 3.0]))),
    "int64 indexes for int32": with_key(ROWS, offsets=np.zeros(4, np.int64)),
    "foreign indexes": with_key(ROWS, offsets=np.zeros(4, ">i4")),
    "flags for validity": with_key(ROWS, validity=np.ones(3, np.bool_)),
    "gaps between timestamps": ROWS._replace(timestamp=Int64Column(np.arange(6)[::2])),
    "timestamps backwards": ROWS._replace(timestamp=Int64Column(np.arange(3)[::-1])),
}


@pytest.mark.parametrize("columns", OTHER_ITEMS.values(), ids=OTHER_ITEMS)
def test_items_that_would_be_read_as_other_numbers_are_refused_at_once(columns: RecordColumns) -> None:
    with pytest.raises(ValueError, match=r"expected bytes or native integers|not C-contiguous"):
        pack_columns(columns)


def test_one_timestamp_may_be_a_number_of_numpy() -> None:
    assert packed(ROWS._replace(timestamp=np.int64(5))) == packed(ROWS._replace(timestamp=5))


def test_indexes_of_header_values_may_go_on_behind_their_validity() -> None:
    headers = headers_column([[(b"a", b"1")], [(b"b", None)], []])
    longer = headers.values._replace(offsets=bytes(headers.values.offsets) + bytes(4 * 100))
    columns = ROWS._replace(headers=headers)
    assert packed(columns._replace(headers=headers._replace(values=longer))) == packed(columns)


def test_timestamps_of_one_batch_may_lie_more_than_int64_apart() -> None:
    records = [builders.record(number, None, timestamp_ms=stamp) for number, stamp in enumerate([-1, MAX_INT64, 0])]
    assert packed(columns_of(records)) == reference.write_batch(records)


BAD_NUMBERS: dict[str, tuple[RecordColumns, str]] = {
    "timestamp below -1": (ROWS._replace(timestamp=int64_column([1, -2, 3])), "got -2 at row 1"),
    "least timestamp": (ROWS._replace(timestamp=int64_column([1, 2, -(2**63)])), f"got -{2**63} at row 2"),
    "one timestamp below -1": (ROWS._replace(timestamp=-2), "got -2 at row 0"),
    "one timestamp whose product with the unit wraps": (
        ROWS._replace(timestamp=-(2**63), units_per_ms=1000),
        f"got {-(2**63) // 1000} at row 0",
    ),
    "timestamp of the year 1969 in us": (
        ROWS._replace(timestamp=int64_column([-1001, 2, 3]), units_per_ms=1000),
        "got -2 at row 0",
    ),
    "offset twice": (ROWS._replace(offset=int64_column([1, 1, 2])), "got 1 at row 1"),
    "offset falls": (ROWS._replace(offset=int64_column([1, 2, 0])), "got 0 at row 2"),
    "negative offset": (ROWS._replace(offset=int64_column([-1, 1, 2])), "got -1 at row 0"),
    "null offset": (ROWS._replace(offset=int64_column([0, None, 2])), "got -1 at row 1"),
    "largest int64 as offset": (ROWS._replace(offset=int64_column([1, 2, MAX_INT64])), f"got {MAX_INT64} at row 2"),
}


@pytest.mark.parametrize(("columns", "match"), BAD_NUMBERS.values(), ids=BAD_NUMBERS)
def test_bad_numbers_are_refused_with_their_row(columns: RecordColumns, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        packed(columns)
    with pytest.raises(ValueError, match=match):
        packed(columns, compression="gzip")


def test_counted_offsets_end_with_int64() -> None:
    columns = RecordColumns(row_count=3, timestamp=1)
    assert len(packed(columns, base_offset=MAX_INT64 - 3)) > 0
    with pytest.raises(ValueError, match=f"got {MAX_INT64} at row 2"):
        packed(columns, base_offset=MAX_INT64 - 2)


def test_offset_below_base_offset_is_refused() -> None:
    with pytest.raises(ValueError, match="got 0 at row 0"):
        packed(ROWS, base_offset=1)


BAD_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "negative base offset": ({"base_offset": -1}, "base_offset"),
    "no batch bytes": ({"batch_bytes": 0}, "batch_bytes"),
    "batch bytes above int32": ({"batch_bytes": 2**31}, "batch_bytes"),
    "no run bytes": ({"run_bytes": 0}, "run_bytes"),
    "unknown codec": ({"compression": "lzma"}, "unknown compression type"),
    "level out of range": ({"compression": "gzip", "level": 10}, "gzip level"),
    "level without a codec": ({"level": 1}, "no compression levels"),
    "no timestamp type": ({"timestamp_type": TimestampType.NO_TIMESTAMP_TYPE}, "timestamp_type"),
    "transactional without a producer": ({"is_transactional": True}, "needs a producer id"),
    "producer without an epoch": ({"producer_id": 1}, "needs a producer epoch"),
    "producer without a sequence": ({"producer_id": 1, "producer_epoch": 0}, "needs a base sequence"),
    "leader epoch above int32": ({"partition_leader_epoch": 2**31}, "partition_leader_epoch"),
}


@pytest.mark.parametrize(("options", "match"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_bad_options_are_refused_at_once(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        pack_columns(ROWS, **options)


@pytest.mark.parametrize("bad", [None, "text", 5, [1, 2]], ids=str)
def test_what_is_no_buffer_is_refused(bad: Any) -> None:
    with pytest.raises(TypeError):
        pack_columns(with_key(ROWS, data=bad))


def test_columns_are_packed_by_one_thread_at_a_time() -> None:
    packer = _core.RecordBatchPacker(row_count=2, timestamp=1, batch_bytes=100, run_bytes=100, codec_id=1)

    def meddle(*arguments: Any) -> Any:
        with pytest.raises(ValueError, match="packed by another thread"):
            packer.next_run(compress)
        with pytest.raises(ValueError, match="packed by another thread"):
            packer.__init__(row_count=0, timestamp=1, batch_bytes=1, run_bytes=1)
        return compress(*arguments)

    run = packer.next_run(meddle)
    assert run is not None
    assert [record.offset for record in reference.read_records(bytes(run))] == [0, 1]
    assert packer.next_run(compress) is None


FAILURES: dict[str, tuple[Callable[..., Any], type[Exception]]] = {
    "raises": (lambda *_: 1 // 0, ZeroDivisionError),
    "gives no buffer": (lambda *_: "text", TypeError),
}


@pytest.mark.parametrize(("fail", "error"), FAILURES.values(), ids=FAILURES)
def test_run_whose_compression_failed_can_be_asked_for_again(fail: Callable[..., Any], error: type[Exception]) -> None:
    packer = _core.RecordBatchPacker(row_count=2, timestamp=1, batch_bytes=1, run_bytes=100, codec_id=1)
    with pytest.raises(error):
        packer.next_run(fail)
    run = packer.next_run(compress)
    assert run is not None
    assert [record.offset for record in reference.read_records(bytes(run))] == [0, 1]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_groups_of_rows_are_batches_of_their_own_whose_offsets_start_anew(codec: str) -> None:
    rows = builders.records(0, 6)
    counts = [2, 0, 3, 1]
    batches = list(pack_groups(columns_of(rows)._replace(offset=None), counts, base_offset=7, compression=codec))
    got = [[(r.offset, r.value) for r in MemoryRecords(batch)] for batch in batches]
    values = iter([row.value for row in rows])
    assert got == [[(7 + number, next(values)) for number in range(count)] for count in counts]
    assert batches[1] == b""


def test_row_of_an_error_counts_from_the_start_of_its_group() -> None:
    columns = RecordColumns(row_count=5, timestamp=int64_column([1, 2, 3, -9, 5]))
    with pytest.raises(ValueError, match="got -9 at row 1"):
        list(pack_groups(columns, [2, 3]))


@pytest.mark.parametrize("counts", [[6], [3, 3], [-1]], ids=str)
def test_group_of_rows_that_there_are_not_is_refused(counts: list[int]) -> None:
    with pytest.raises(ValueError, match="expected some of 5 rows"):
        list(pack_groups(RecordColumns(row_count=5, timestamp=1), counts))


def test_group_that_no_single_batch_can_hold_is_refused() -> None:
    columns = RecordColumns(row_count=2, timestamp=1, offset=int64_column([0, 2**31]))
    with pytest.raises(ValueError, match="2 records are more than one record batch can hold"):
        list(pack_groups(columns, [2]))


def packer_of(keys: list[bytes | None]) -> _core.RecordBatchPacker:
    return _core.RecordBatchPacker(
        row_count=len(keys), timestamp=1, key=binary_column(keys), batch_bytes=2**31 - 1, run_bytes=1000
    )


def test_all_rows_are_sorted_whatever_was_selected_before() -> None:
    packer = packer_of([b"a", b"b", None])
    counts = packer.sort_by_partition(1)
    assert counts == [2, 1]
    packer.select(first=2, count=1)
    assert packer.sort_by_partition(1) == counts
    run = packer.next_run(compress)
    assert run is not None
    assert [record.key for record in MemoryRecords(bytes(run))] == [b"a", b"b", None]


def test_rows_that_other_columns_had_can_not_be_selected() -> None:
    packer = packer_of([b"key"] * 1000)
    packer.sort_by_partition(1)
    _core.RecordBatchPacker.__init__(packer, row_count=1, timestamp=1, batch_bytes=100, run_bytes=100)
    with pytest.raises(ValueError, match="expected rows of the 0 that are sorted, got 1 from 999 on"):
        packer.select(first=999, count=1)
