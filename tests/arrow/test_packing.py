"""Goal: Arrow record batches of any layout become the batches that hold their rows, sliced ones too.

Method: the same rows as several Arrow types, read back by the reference codec; tables of refused schemas.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import kstore
from kstore.arrow import pack_record_batch, record_batches, record_columns
from kstore.store.opening import open_log
from tests.making import batches as builders
from tests.reference import codec as reference

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
LARGE_HEADERS = pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.binary_view())]))
ROWS: dict[str, list[Any]] = {
    "timestamp": [1000, 2000, None, 3000, 4000],
    "key": [b"a", None, b"", b"zz", b"long enough not to be inline"],
    "value": [None, b"x", b"y" * 300, b"", b"z"],
    "headers": [
        [{"key": "h", "value": b"1"}, {"key": "i", "value": None}],
        None,
        [],
        [{"key": "é", "value": b""}],
        [{"key": "", "value": b"v"}],
    ],
    "offset": [3, 4, 9, 10, 2**40],
}
TYPES: dict[str, dict[str, pa.DataType]] = {
    "plain": {
        "timestamp": pa.timestamp("ms"),
        "key": pa.binary(),
        "value": pa.string(),
        "headers": HEADERS,
        "offset": pa.int64(),
    },
    "large": {
        "timestamp": pa.int64(),
        "key": pa.large_binary(),
        "value": pa.large_string(),
        "headers": LARGE_HEADERS,
        "offset": pa.uint64(),
    },
    "views": {
        "timestamp": pa.timestamp("ms", "UTC"),
        "key": pa.binary_view(),
        "value": pa.string_view(),
        "headers": HEADERS,
        "offset": pa.int64(),
    },
}


def arrow_batch(types: dict[str, pa.DataType], rows: dict[str, list[Any]] = ROWS) -> pa.RecordBatch:
    return pa.record_batch([pa.array(rows[name], kind) for name, kind in types.items()], names=list(types))


def packed(batch: pa.RecordBatch, **options: Any) -> list[reference.Record]:
    return reference.read_records(b"".join(map(bytes, pack_record_batch(batch, **options))))


def expected(start: int, stop: int) -> list[tuple[Any, ...]]:
    out = []
    for number in range(start, stop):
        headers = tuple((h["key"].encode(), h["value"]) for h in ROWS["headers"][number] or ())
        time = ROWS["timestamp"][number]
        row = (ROWS["offset"][number], -1 if time is None else time, ROWS["key"][number], ROWS["value"][number])
        out.append((*row, headers))
    return out


def fields(records: list[reference.Record]) -> list[tuple[Any, ...]]:
    return [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in records]


@pytest.mark.parametrize("types", TYPES.values(), ids=TYPES)
@pytest.mark.parametrize(("start", "stop"), [(0, 5), (1, 5), (0, 4), (2, 3), (4, 5), (5, 5)])
def test_rows_of_a_slice_are_written(types: dict[str, pa.DataType], start: int, stop: int) -> None:
    assert fields(packed(arrow_batch(types).slice(start, stop - start))) == expected(start, stop)


def test_slice_of_more_than_a_byte_of_validity_is_written() -> None:
    values = [None if number % 3 else b"%d" % number for number in range(40)]
    batch = pa.record_batch({"timestamp": pa.array(range(40), pa.int64()), "value": pa.array(values, pa.binary())})
    assert [r.value for r in packed(batch.slice(11, 20))] == values[11:31]


@pytest.mark.parametrize(("unit", "per_second"), [("s", 1), ("ms", 1000), ("us", 10**6), ("ns", 10**9)])
def test_timestamps_of_every_unit_become_ms(unit: str, per_second: int) -> None:
    batch = pa.record_batch({"timestamp": pa.array([1_600_000_000 * per_second], pa.timestamp(unit, "UTC"))})
    assert [r.timestamp_ms for r in packed(batch)] == [1_600_000_000_000]


@pytest.mark.parametrize(
    "kind", [pa.binary(1), pa.dictionary(pa.int8(), pa.binary())], ids=["fixed size", "dictionary"]
)
def test_other_binary_layouts_are_cast(kind: pa.DataType) -> None:
    batch = pa.record_batch([pa.array([1, 2], pa.int64()), pa.array([b"a", None], kind)], names=["timestamp", "key"])
    assert [r.key for r in packed(batch)] == [b"a", None]


def test_offsets_are_counted_without_a_column() -> None:
    batch = arrow_batch({"timestamp": pa.int64()})
    assert [r.offset for r in packed(batch, base_offset=7)] == [7, 8, 9, 10, 11]


def test_what_a_scan_reads_is_packed_as_it_was(tmp_path: Any) -> None:
    records = builders.records(0, 500, value_bytes=50)
    path = builders.write_partition(tmp_path, [[reference.write_batch(records)]])
    columns = ["offset", "timestamp", "key", "value", "headers"]
    with open_log(path) as log:
        batches = list(record_batches(log.plan(), columns=columns, batch_bytes=4096))
    assert len(batches) > 2
    assert [r for batch in batches for r in packed(batch)] == records


VALUE_FIRST = pa.list_(pa.struct([("value", pa.binary()), ("key", pa.binary())]))
REFUSED: dict[str, dict[str, pa.Array]] = {
    "no timestamp": {"key": pa.array([b"a"])},
    "unknown column": {"timestamp": pa.array([1]), "topic": pa.array(["t"])},
    "timestamp as text": {"timestamp": pa.array(["1"])},
    "timestamp as float": {"timestamp": pa.array([1.5])},
    "value as number": {"timestamp": pa.array([1]), "value": pa.array([5])},
    "headers as a map": {"timestamp": pa.array([1]), "headers": pa.array([[("k", b"v")]], pa.map_("string", "binary"))},
    "headers of other names": {"timestamp": pa.array([1]), "headers": pa.array([[{"name": "k", "value": b"v"}]])},
    "headers with the value first": {
        "timestamp": pa.array([1]),
        "headers": pa.array(
            [[{"value": b"v", "key": b"k"}]], pa.list_(pa.struct([("value", "binary"), ("key", "binary")]))
        ),
    },
    "headers with a third field": {
        "timestamp": pa.array([1]),
        "headers": pa.array([[{"key": "k", "value": b"v", "more": 1}]]),
    },
    "headers of numbers": {"timestamp": pa.array([1]), "headers": pa.array([[1]])},
    "null header": {"timestamp": pa.array([1]), "headers": pa.array([[None]], HEADERS)},
    "null header key": {"timestamp": pa.array([1]), "headers": pa.array([[{"key": None, "value": b""}]], HEADERS)},
    "offset as text": {"timestamp": pa.array([1]), "offset": pa.array(["1"])},
    "offset as float": {"timestamp": pa.array([1]), "offset": pa.array([1.0])},
    "offset beyond int64": {"timestamp": pa.array([1]), "offset": pa.array([2**63], pa.uint64())},
    "null offset": {"timestamp": pa.array([1]), "offset": pa.array([None], pa.int64())},
}


@pytest.mark.parametrize("columns", REFUSED.values(), ids=REFUSED)
def test_other_columns_are_refused(columns: dict[str, pa.Array]) -> None:
    with pytest.raises(ValueError, match=r"expected|must be|null|got|not in range"):
        packed(pa.record_batch(columns))


def test_headers_outside_the_slice_are_not_cast_with_it() -> None:
    kind = pa.list_(pa.struct([("key", pa.dictionary(pa.int32(), pa.string())), ("value", pa.binary())]))
    headers = pa.array([[{"key": "k", "value": b"%d" % number}] for number in range(1000)], kind)
    batch = pa.record_batch({"timestamp": pa.array(range(1000)), "headers": headers}).slice(500, 3)
    assert [r.headers for r in packed(batch)] == [((b"k", b"%d" % number),) for number in (500, 501, 502)]
    taken = record_columns(batch).headers
    assert taken is not None
    assert len(memoryview(taken.keys.data)) == 3


def test_null_header_outside_the_slice_does_no_harm() -> None:
    headers = pa.array([[None], [{"key": "k", "value": b"v"}]], HEADERS)
    batch = pa.record_batch({"timestamp": pa.array([1, 2]), "headers": headers})
    assert [r.headers for r in packed(batch.slice(1))] == [((b"k", b"v"),)]


def test_pack_columns_is_a_public_name() -> None:
    assert kstore.pack_record_batch is pack_record_batch


@pytest.mark.parametrize(
    "rows", [None, pa.table({"timestamp": [1]}), {"timestamp": [1]}], ids=["none", "table", "dict"]
)
def test_only_a_record_batch_is_packed(rows: Any) -> None:
    with pytest.raises(TypeError, match=r"expected a pyarrow\.RecordBatch, got"):
        list(pack_record_batch(rows))
