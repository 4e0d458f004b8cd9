"""Goal: batches in an Arrow array are unpacked value by value, damage costs its own value alone, and packing undoes it.
Method: batches of the reference codec in arrays, whole, put together, cut and flipped; no JVM."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kstore.errors import CorruptRecordError, DecompressionError, UnsupportedMagicError
from kstore.spark.schema import record_type
from kstore.spark.udfs import batch_arrays, batch_info, pack_batch, unpack_batches
from tests.golden.sets import OLD_FORMAT_SETS, golden_partitions
from tests.making.batches import batch, patch_header, record, records
from tests.making.messages import packed_entry
from tests.reference import codecs as codecs
from tests.reference.codec import write_batch, write_empty_batch, write_end_transaction_marker
from tests.reference.messages import read_all

FIELDS = ("key", "value", "offset", "timestamp", "timestampType", "headers")
CODECS = pytest.mark.parametrize("codec", range(5), ids=["none", "gzip", "snappy", "lz4", "zstd"])
MARKER = write_end_transaction_marker(7, timestamp_ms=1, producer_id=1, producer_epoch=0, commit=True)


def unpack(*values, fields=FIELDS, permissive=False):
    return batch_arrays.unpack(pa.array(values, pa.binary()), fields, is_permissive=permissive)


def offsets(*values):
    """The offsets of each value's records, None for a damaged value, and why it is damaged."""
    done = unpack(*values, fields=("value", "offset"), permissive=True)
    lists = [None if item is None else [row["offset"] for row in item] for item in done.field("records").to_pylist()]
    return lists, done.field("error").to_pylist()


def expected(part):
    return {
        "key": part.key,
        "value": part.value,
        "offset": part.offset,
        "timestamp_ms": part.timestamp_ms,
        "timestampType": part.timestamp_type,
        "headers": [{"key": key.decode(), "value": value} for key, value in part.headers] or None,
    }


def as_expected(row):
    timestamp = row.pop("timestamp")
    return row | {"timestamp_ms": -1 if timestamp is None else round(timestamp.timestamp() * 1000)}


@CODECS
def test_every_record_of_every_batch_of_a_value_is_there_with_its_fields(codec):
    parts = [records(0, 3), records(5, 40, value_bytes=100), [record(99, None, b"", headers=[(b"a", None)])]]
    done = unpack(b"".join(write_batch(part, codec=codec) for part in parts))
    (rows,) = done.to_pylist()
    assert list(map(as_expected, rows)) == [expected(item) for part in parts for item in part]


def test_type_is_that_which_spark_makes_of_the_records():
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import ArrayType

    fields = (*FIELDS, "magic", "codec", "leaderEpoch", "producerId", "producerEpoch", "sequence")
    fields += ("isTransactional", "isControl", "position")
    for values in ([batch(0)], [None], []):
        done = unpack(*values, fields=fields)
        assert done.type == to_arrow_type(ArrayType(record_type(fields)), timezone="UTC")


def test_null_empty_and_batches_without_records_stay_apart():
    emptied = write_empty_batch(3, last_offset=9, max_timestamp_ms=5)
    assert offsets(None, b"", emptied, MARKER, batch(1)) == ([None, [], [], [], [1]], [None] * 5)


def test_sliced_array_gives_the_records_of_its_own_values():
    values = pa.array([batch(0), batch(1), None, batch(3)], pa.binary()).slice(1, 2)
    done = batch_arrays.unpack(values, ("offset",), is_permissive=False)
    assert done.to_pylist() == [[{"offset": 1}], None]


@pytest.mark.parametrize("kind", [pa.large_binary(), pa.binary_view()], ids=str)
def test_values_of_other_binary_layouts_are_unpacked_alike(kind):
    values = pa.array([batch(0, 3), None, b"", batch(7) + batch(2)], pa.binary())
    assert batch_arrays.unpack(values.cast(kind), FIELDS, is_permissive=False) == unpack(*values.to_pylist())


def test_bytes_under_a_null_are_not_looked_at():
    plain = pa.array([batch(0), b"no batch", batch(1)], pa.binary())
    validity = pa.array([True, False, True]).buffers()[1]
    values = pa.Array.from_buffers(pa.binary(), 3, [validity, *plain.buffers()[1:]])
    assert batch_arrays.unpack(values, FIELDS, is_permissive=False) == unpack(batch(0), None, batch(1))


def test_batch_that_two_values_share_is_damage_of_both():
    value = batch(0, 4)
    assert offsets(value[:90], value[90:], batch(9))[0] == [None, None, [9]]


@CODECS
def test_rows_that_fill_many_tables_are_put_together(monkeypatch, codec):
    monkeypatch.setattr(batch_arrays, "MOST_TABLE_BYTES", 500)
    monkeypatch.setattr(batch_arrays, "TABLE_BYTES", 500)
    lists = [batch(100 * n, 20, value_bytes=60, codec=codec) for n in range(5)]
    assert offsets(*lists) == ([list(range(100 * n, 100 * n + 20)) for n in range(5)], [None] * 5)


def test_damage_where_no_field_looks_is_not_noticed_unless_the_crc_covers_it():
    value = patch_header(batch(0, 3), attributes=1)
    assert unpack(value, fields=("offset",)).to_pylist() == [[{"offset": 0}, {"offset": 1}, {"offset": 2}]]


OLD_LOGS = [p for p in golden_partitions(*OLD_FORMAT_SETS) if not p.name.startswith("empty")]


@pytest.mark.parametrize("partition", OLD_LOGS, ids=str)
def test_segments_of_magic_0_and_1_are_values_too(partition):
    values = [path.read_bytes() for path in sorted(partition.directory.glob("*.log"))]
    assert all(batch_arrays.crc_ok(pa.array(values, pa.binary())).to_pylist())
    for value, rows in zip(values, unpack(*values).to_pylist(), strict=True):
        assert list(map(as_expected, rows)) == list(map(expected, read_all(value)))


def test_info_of_messages_says_what_they_say():
    plain = packed_entry(b"v", None, offset=5, magic=1, timestamp_ms=9)
    gzip = packed_entry(codecs.compress(codecs.GZIP, plain), None, offset=5, magic=0, attributes=1)
    first, second = batch_arrays.info(pa.array([plain + gzip, gzip], pa.binary()), is_permissive=False).to_pylist()
    names = ("magic", "baseOffset", "lastOffset", "count", "codec", "timestampType", "maxTimestamp", "batches")
    assert [first[name] for name in names] == [1, 5, 5, 1, "none", 0, 9, 2]
    assert [second[name] for name in names] == [0, None, 5, None, "gzip", -1, -1, 1]


def test_batches_of_a_value_need_not_rise_in_offset():
    assert offsets(batch(5) + batch(5) + batch(0))[0] == [[5, 5, 0]]


DAMAGED = {
    "crc": (patch_header(batch(0), crc=1, repair_crc=False), CorruptRecordError),
    "cut off": (batch(0)[:-1], CorruptRecordError),
    "cut off in its size": (batch(0)[:9], CorruptRecordError),
    "second batch": (batch(0) + batch(9)[:-1], CorruptRecordError),
    "bytes behind": (batch(0) + b"\0" * 20, CorruptRecordError),
    "payload": (patch_header(batch(0, 3), attributes=1), DecompressionError),
    "magic": (batch(0)[:16] + b"\x07" + batch(0)[17:], UnsupportedMagicError),
}


@pytest.mark.parametrize(("value", "error"), DAMAGED.values(), ids=DAMAGED)
def test_damaged_value_fails_or_gives_null_and_the_reason(value, error):
    with pytest.raises(error) as caught:
        unpack(batch(0), value)
    assert offsets(batch(1), value, batch(2)) == (
        [[1], None, [2]],
        [None, f"{error.__name__}: {caught.value}", None],
    )


@pytest.mark.parametrize("table_bytes", [1, 200, 3000, 1 << 20])
def test_values_around_a_damaged_one_are_whole_wherever_tables_are_cut(monkeypatch, table_bytes):
    monkeypatch.setattr(batch_arrays, "TABLE_BYTES", table_bytes)
    damaged = batch(1000, 20, value_bytes=50) + patch_header(batch(1020, 20), attributes=1)
    good = [batch(100 * n, 7, value_bytes=40) for n in range(12)]
    values = [value for item in good for value in (item, damaged)]
    lists, reasons = offsets(*values)
    assert lists[::2] == [list(range(100 * n, 100 * n + 7)) for n in range(12)]
    assert lists[1::2] == [None] * 12
    assert all(reason.startswith("DecompressionError: ") for reason in reasons[1::2])


def test_rows_of_a_value_that_fills_tables_are_there_once_when_the_next_value_is_damaged(monkeypatch):
    monkeypatch.setattr(batch_arrays, "TABLE_BYTES", 1)
    assert offsets(batch(0, 3), batch(3)[:-1], batch(4, 2))[0] == [[0, 1, 2], None, [4, 5]]


@CODECS
def test_value_cut_at_any_byte_is_damaged(codec):
    value = batch(0, 4, codec=codec)
    lists, reasons = offsets(*(value[:size] for size in range(1, len(value))))
    assert set(map(type, lists)) == {type(None)}
    assert {reason.partition(":")[0] for reason in reasons} == {"CorruptRecordError"}


def test_value_with_any_bit_flipped_is_damaged_unless_the_crc_does_not_cover_it():
    value = batch(0, 2)
    size = len(value)
    number = int.from_bytes(value, "big")
    flipped = [(number ^ 1 << bit).to_bytes(size, "big") for bit in range(size * 8)]
    lists, reasons = offsets(*flipped)
    assert all((item is None) == (reason is not None) for item, reason in zip(lists, reasons, strict=True))
    base_offset_and_leader_epoch = {*range(8), *range(12, 16)}
    assert {size - 1 - bit // 8 for bit, item in enumerate(lists) if item is not None} == base_offset_and_leader_epoch


def test_more_records_than_an_arrow_list_holds_are_refused_with_the_setting_to_lower(monkeypatch):
    monkeypatch.setattr(batch_arrays, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match="maxRecordsPerBatch"):
        unpack(batch(0, 20, value_bytes=100))


def test_more_bytes_of_batches_than_an_arrow_array_holds_are_refused_with_the_setting_to_lower(monkeypatch):
    monkeypatch.setattr(batch_arrays, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match="maxRecordsPerBatch"):
        batch_arrays.pack(pa.array([[{"value": b"x" * 500}]] * 2))


def test_crc_is_right_wrong_or_unknown():
    values = [batch(0), batch(0) + batch(1), b"", MARKER, None, *(value for value, _ in DAMAGED.values())]
    found = dict(zip(DAMAGED, batch_arrays.crc_ok(pa.array(values, pa.binary())).to_pylist()[5:], strict=True))
    assert batch_arrays.crc_ok(pa.array(values, pa.binary())).to_pylist()[:5] == [True, True, True, True, None]
    assert found == dict.fromkeys(DAMAGED, False) | {"payload": True}


def test_info_says_what_the_header_of_the_first_batch_says():
    value = batch(7, 3, codec=3, producer_id=9, producer_epoch=2, base_sequence=5, is_transactional=True)
    done = batch_arrays.info(pa.array([value + MARKER, None, b""], pa.binary()), is_permissive=False)
    shown, *others = done.to_pylist()
    assert shown.pop("crc") == int.from_bytes(value[17:21], "big")
    assert shown == {
        "magic": 2,
        "size": len(value),
        "baseOffset": 7,
        "lastOffset": 9,
        "count": 3,
        "codec": "lz4",
        "timestampType": 0,
        "baseTimestamp": 1_600_000_000_007,
        "maxTimestamp": 1_600_000_000_009,
        "producerId": 9,
        "producerEpoch": 2,
        "baseSequence": 5,
        "isTransactional": True,
        "isControl": False,
        "leaderEpoch": 0,
        "batches": 2,
    }
    assert others == [None, None]


def test_info_of_a_damaged_frame_fails_or_says_why():
    values = pa.array([batch(0)[:-1], patch_header(batch(0), attributes=7)], pa.binary())
    with pytest.raises(CorruptRecordError):
        batch_arrays.info(values, is_permissive=False)
    damaged, unknown = batch_arrays.info(values, is_permissive=True).to_pylist()
    assert damaged["error"].startswith("CorruptRecordError: ")
    assert {item for name, item in damaged.items() if name != "error"} == {None}
    assert (unknown["codec"], unknown["error"]) == ("UNKNOWN(7)", None)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_packed_records_are_unpacked_again(codec):
    parts = [records(3, 5), [record(0, None)], [record(4, b"", b"", headers=[(b"", None), (b"a", b"")])]]
    lists = unpack(*(write_batch(part) for part in parts), None, b"")
    packed = batch_arrays.pack(lists, compression=codec, level=None, base_offset=0)
    assert unpack(*packed.to_pylist()) == lists
    assert packed.to_pylist()[3:] == [None, b""]
    assert batch_arrays.info(packed, is_permissive=False).field("codec").to_pylist()[:3] == [codec] * 3


def test_sliced_lists_with_rows_under_a_null_are_packed_as_if_those_were_not_there():
    rows = pa.array([[{"value": "a"}], [{"value": "b"}, {"value": "c"}], None, [{"value": "d"}]])
    validity = pa.array([True, False, True, True]).buffers()[1]
    lists = pa.Array.from_buffers(rows.type, 4, [validity, rows.buffers()[1]], children=[rows.values]).slice(1)
    packed = unpack(*batch_arrays.pack(lists).to_pylist(), fields=("value",)).to_pylist()
    assert packed == [None, [], [{"value": b"d"}]]


def test_records_without_offset_and_timestamp_are_counted_and_have_none():
    packed = batch_arrays.pack(pa.array([[{"value": "a"}, {"value": None}]]), base_offset=7)
    (rows,) = unpack(*packed.to_pylist(), fields=("key", "value", "offset")).to_pylist()
    assert rows == [{"key": None, "value": b"a", "offset": 7}, {"key": None, "value": None, "offset": 8}]
    assert batch_arrays.info(packed, is_permissive=False).field("maxTimestamp").to_pylist() == [-1]


UNPACKABLE = {
    "null record": [{"value": "a"}, None],
    "offset that falls": [{"offset": 3}, {"offset": 2}],
    "null offset": [{"offset": 1}, {"offset": None}],
    "null header": [{"headers": [{"key": "a", "value": b""}, None]}],
    "null header key": [{"headers": [{"key": None, "value": b""}]}],
    "key of another type": [{"key": 5}],
    "timestamp of another type": [{"timestamp": "now"}],
}


@pytest.mark.parametrize("rows", UNPACKABLE.values(), ids=UNPACKABLE)
def test_records_that_a_batch_cannot_hold_are_refused(rows):
    with pytest.raises(ValueError, match=r"null|offset|header|column|UTF-8"):
        batch_arrays.pack(pa.array([rows]))


@pytest.mark.parametrize(
    ("call", "match"),
    [
        pytest.param(lambda: unpack_batches("c", mode="DROPMALFORMED"), "mode must be FAILFAST", id="unpack-mode"),
        pytest.param(lambda: batch_info("c", mode="failfast"), "mode must be FAILFAST", id="info-mode"),
        pytest.param(lambda: unpack_batches("c", fields=["topic"]), "fields must be some of", id="place"),
        pytest.param(lambda: unpack_batches("c", fields=[]), "fields must be some of", id="no-field"),
        pytest.param(lambda: unpack_batches("c", fields=["key", "key"]), "each once", id="twice"),
        pytest.param(lambda: pack_batch("c", codec="brotli"), "brotli", id="codec"),
        pytest.param(lambda: pack_batch("c", codec="gzip", level=99), "99", id="level"),
    ],
)
def test_wrong_argument_fails_where_the_column_is_made(call, match):
    with pytest.raises(ValueError, match=match):
        call()
