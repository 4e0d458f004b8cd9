"""Goal: the bounds of a scan select what those of `kstore cat` select, in each partition.
Method: small roots with timestamps out of order and without timestamps; each bound against the rows of cat's groups."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kstore
from kstore.cli.printing import cat
from kstore.types import TopicPartition
from tests.making import batches as builders
from tests.making.batches import record, write_partition, write_root
from tests.making.cat_groups import groups
from tests.making.messages import packed_entry
from tests.reference.codec import write_batch, write_end_transaction_marker

TIMES = [50, 10, 40, 20, 60, 30, 70, 70]


@pytest.fixture
def disordered(tmp_path: Path) -> Path:
    """Eight records in four batches, each batch a segment, with TIMES."""
    data = [
        [write_batch([record(n, b"v%d" % n, timestamp_ms=TIMES[n]) for n in (first, first + 1)])]
        for first in range(0, 8, 2)
    ]
    return write_partition(tmp_path, data)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    def log(first_offset: int) -> list[list[bytes]]:
        return [builders.batches(first_offset, 4, records_per_batch=5)]

    return write_root(tmp_path / "root", {"a-0": log(0), "a-1": log(100), "b-0": log(0)})


def offsets(source: Any, **options: Any) -> list[int]:
    return [offset for row in rows(source, **options) for offset in row[2:]]


def rows(source: Any, **options: Any) -> list[tuple[str, int, int]]:
    table = kstore.scan(source, columns=["topic", "partition", "offset"], **options).to_table()
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def by_cat(path: Path, **bounds: Any) -> Iterator[int]:
    defaults = {"start_offset": 0, "end_offset": 2**63 - 1}
    with kstore.open_log(path) as log:
        for group in groups(log, cat.CatOptions(**(defaults | bounds))):
            yield from (one.offset for one in group.records)


@pytest.mark.parametrize("options", [{}, {"threads": 2}, {"batch_bytes": 1}, {"binary": "view"}], ids=str)
def test_offsets_and_times_select_what_cat_selects(disordered: Path, options: dict[str, Any]) -> None:
    bounds = [None, 20, 41, 71]
    for since, until in itertools.product(bounds, bounds):
        if since is not None and until is not None and since > until:
            continue
        for start, end in ((0, 8), (1, 7), (9, 12)):
            expected = list(by_cat(disordered, start_offset=start, end_offset=end, since_ms=since, until_ms=until))
            bound = {"start_offset": start, "end_offset": end, "since": since, "until": until}
            assert offsets(disordered, **bound, **options) == expected, bound
            scan = kstore.scan(disordered, columns=["value"], **bound, **options)
            assert scan.schema.names == ["value"]
            assert scan.to_table()["value"].to_pylist() == [b"v%d" % offset for offset in expected]


def test_a_record_without_a_timestamp_is_null_and_counts_as_one_ms_before_the_epoch(tmp_path: Path) -> None:
    data = [packed_entry(b"v", None, offset=0, magic=1, timestamp_ms=4), packed_entry(b"v", None, offset=1, magic=0)]
    data += [packed_entry(b"v", None, offset=2, magic=1, timestamp_ms=-1)]
    data += [write_batch([record(3, timestamp_ms=-1), record(4, timestamp_ms=5)])]
    path = write_partition(tmp_path, [[write_batch([record(0)])]])
    (path / f"{0:020}.log").write_bytes(b"".join(data))
    for name in path.glob("*index"):
        name.unlink()
    table = kstore.scan(path, columns=["timestamp", "timestampType"]).to_table()
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [4000, None, None, None, 5000]
    assert table["timestampType"].to_pylist() == [0, -1, 0, 0, 0]
    assert offsets(path, until=5) == list(by_cat(path, until_ms=5)) == [0, 1, 2, 3]
    assert offsets(path, since=0) == list(by_cat(path, since_ms=0)) == [0, 4]
    assert offsets(path, since=-1) == list(by_cat(path, since_ms=-1)) == [0, 1, 2, 3, 4]


def test_times_may_be_datetimes_of_any_zone(disordered: Path) -> None:
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    since, until = epoch + timedelta(microseconds=19_001), epoch + timedelta(milliseconds=41)
    assert offsets(disordered, since=since, until=until) == [2, 3, 5]
    east = timezone(timedelta(hours=2))
    aware = [time.astimezone(east) for time in (since, until)]
    assert offsets(disordered, since=aware[0], until=aware[1]) == [2, 3, 5]
    with pytest.raises(ValueError, match="until must have a time zone"):
        offsets(disordered, until=until.replace(tzinfo=None))


def test_times_beyond_what_columns_hold_are_bounds_as_well(disordered: Path) -> None:
    assert offsets(disordered, since=2**63 - 1) == []
    assert offsets(disordered, since=-(2**63), until=2**63 - 1) == [*range(8)]
    assert offsets(disordered, until=-(2**63)) == []


def test_partitions_are_selected_by_number(root: Path) -> None:
    assert {row[:2] for row in rows(root, partitions=0)} == {("a", 0), ("b", 0)}
    assert {row[:2] for row in rows(root, partitions=[0, 1], topics="a")} == {("a", 0), ("a", 1)}
    with pytest.raises(ValueError, match="partitions not found: 1"):
        kstore.scan(root, partitions=[0, 1], topics="b")


def test_one_offset_bounds_all_partitions_and_leaves_out_what_a_log_does_not_hold(root: Path) -> None:
    assert rows(root, start_offset=18, end_offset=102) == [
        ("a", 0, 18),
        ("a", 0, 19),
        ("a", 1, 100),
        ("a", 1, 101),
        ("b", 0, 18),
        ("b", 0, 19),
    ]


def test_offsets_by_partition_leave_the_others_without_a_bound(root: Path) -> None:
    bounds = {"start_offset": {TopicPartition("a", 0): 19}, "end_offset": {("a", 1): 101}}
    found = rows(root, **bounds)
    assert [row for row in found if row[0] == "a"] == [("a", 0, 19), ("a", 1, 100)]
    assert len([row for row in found if row[0] == "b"]) == 20
    with pytest.raises(ValueError, match="start_offset names partitions that are not scanned: a-0"):
        kstore.scan(root, topics="b", **bounds)


def test_read_committed_leaves_out_what_was_rolled_back_and_all_from_the_first_undecided_on(tmp_path: Path) -> None:
    def data(offset: int, producer_id: int) -> bytes:
        return builders.batch(
            offset, 2, is_transactional=True, producer_id=producer_id, producer_epoch=0, base_sequence=offset
        )

    def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
        return write_end_transaction_marker(
            offset, timestamp_ms=1, producer_id=producer_id, producer_epoch=0, commit=commit
        )

    batches = [data(0, 1), marker(2, 1, commit=False), data(3, 2), marker(5, 2, commit=True), data(6, 3)]
    path = write_partition(tmp_path, [batches])
    assert offsets(path) == [0, 1, 3, 4, 6, 7]
    assert offsets(path, isolation="read_committed") == [3, 4]
    assert offsets(path, isolation="read_committed", start_offset=4, end_offset=9) == [4]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start_offset": 5, "end_offset": 4}, "end_offset must not be below start_offset 5, got 4"),
        ({"start_offset": -1}, "start_offset must be from 0"),
        ({"end_offset": {("a", 0): -2}}, r"end_offset of \('a', 0\) must be from 0"),
        ({"since": 5, "until": 4}, "since must not be after until"),
        ({"isolation": "serializable"}, "isolation must be"),
        ({"partitions": -1}, "partitions must be from 0"),
    ],
    ids=str,
)
def test_bounds_that_make_no_sense_are_refused_at_once(root: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kstore.scan(root, **options)


@pytest.mark.parametrize("options", [{"start_offset": 1}, {"end_offset": 5}, {"partitions": 0}], ids=str)
def test_planned_ranges_take_no_other_bounds_but_times(disordered: Path, options: dict[str, Any]) -> None:
    with kstore.open_log(disordered) as log:
        ranges = log.plan()
    with pytest.raises(ValueError, match="planned ranges have their offsets"):
        kstore.scan(ranges, **options)
    assert offsets(ranges, since=60) == [4, 6, 7]
