"""Goal: a reader that goes on after damage gives the records of batches whose last offset is below theirs, as Kafka's
classes do: base offset plus delta, each once, whatever the ranges; other readers refuse such batches.
Method: logs as brokers before 1.1 stored what Sarama before 1.16 sent: each batch at the offset of its last record."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import pytest

import kstore
from kstore import SkippedRange
from kstore.arrow import record_batches
from kstore.errors import InvalidRecordError
from kstore.log.log import Log
from kstore.record import RecordBatch
from kstore.store.opening import open_log
from tests.making import batches as builders
from tests.making.batches import Layout, patch_header, write_partition
from tests.reference import codecs
from tests.reference.codec import write_batch

COUNTS = (20, 1, 5, 5)
ENDS = [*accumulate(COUNTS)]
# What MemoryRecords of kafka-clients 4.1.1 gives of these bytes, in this order.
OFFSETS = [end - 1 + delta for end, count in zip(ENDS, COUNTS, strict=True) for delta in range(count)]
ALL = {"on_error": "skip", "on_skip": pytest.fail}


def low_batch(end: int, count: int, codec: int, *, header: bool = False) -> bytes:
    headers = [(b"h", b"1")] if header else []
    records = [builders.record(end - 1 + delta, b"%d" % delta, headers=headers) for delta in range(count)]
    return patch_header(write_batch(records, codec=codec), last_offset_delta=0)


@pytest.fixture(params=[codecs.NONE, codecs.LZ4, codecs.ZSTD], ids=["none", "lz4", "zstd"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    data = [low_batch(end, count, request.param, header=count == 5) for end, count in zip(ENDS, COUNTS, strict=True)]
    return write_partition(tmp_path, [data[:2], data[2:]], layout=Layout(index_interval_bytes=1))


def test_records_have_the_offsets_that_kafka_gives_them(path: Path) -> None:
    with open_log(path) as log:
        assert log.log_end_offset == ENDS[-1]
        assert [one.offset for one in log.read(**ALL)] == OFFSETS
        assert [one.offset for batch in log.batches(**ALL) for one in batch] == OFFSETS
        batch = next(iter(log.batches(**ALL)))
        assert len(list(pickle.loads(pickle.dumps(batch)))) == COUNTS[0]
        for options in ({}, {"threads": 2}, {"batch_bytes": 1}, {"binary": "view"}, {"columns": ["offset"]}):
            tables = log.to_arrow_batches(**options, **ALL)
            assert [offset for table in tables for offset in table["offset"].to_pylist()] == OFFSETS
    table = kstore.scan(path, **ALL).to_table()
    assert table["offset"].to_pylist() == OFFSETS
    assert table["value"].to_pylist() == [b"%d" % delta for count in COUNTS for delta in range(count)]


def test_each_record_is_in_one_range_wherever_the_ranges_meet(path: Path) -> None:
    with open_log(path) as log:
        for middle in range(OFFSETS[0], ENDS[-1] + 1):
            found = [one.offset for one in log.read(None, middle, **ALL)]
            assert found + [one.offset for one in log.read(middle, **ALL)] == OFFSETS, middle
            tables = [*log.to_arrow_batches(None, middle, **ALL), *log.to_arrow_batches(middle, **ALL)]
            assert [offset for table in tables for offset in table["offset"].to_pylist()] == OFFSETS, middle
        for ranges in (log.plan(max_bytes=1, on_error="skip"), log.plan(max_bytes=10**6, on_error="skip")):
            parts = [list(record_batches([one], **ALL)) for one in ranges]
            assert [offset for part in parts for table in part for offset in table["offset"].to_pylist()] == OFFSETS


STRICT: dict[str, Callable[[Log], object]] = {
    "read": lambda log: list(log.read()),
    "batches": lambda log: [list(batch) for batch in log.batches()],
    "columns": lambda log: list(log.to_arrow_batches()),
    "scan": lambda log: kstore.scan(log.path).to_table(),
}


@pytest.mark.parametrize("way", STRICT)
def test_reader_that_stops_at_damage_refuses_them(path: Path, way: str) -> None:
    with open_log(path) as log, pytest.raises(InvalidRecordError) as caught:
        STRICT[way](log)
    assert caught.value.position == 0


def test_salvage_keeps_them(path: Path) -> None:
    before = {one.name: one.read_bytes() for one in path.glob("*.log")}
    [recovered] = kstore.recover(path, "salvage", dry_run=False)
    assert recovered.report.truncated_bytes == 0
    assert {one.name: one.read_bytes() for one in path.glob("*.log")} == before


def test_delta_at_the_record_count_is_damage(tmp_path: Path) -> None:
    gap = patch_header(write_batch([builders.record(40, b"v"), builders.record(42, b"v")]), last_offset_delta=0)
    path = write_partition(tmp_path, [[low_batch(20, 20, codecs.NONE), gap]])
    skipped: list[SkippedRange] = []
    with open_log(path) as log:
        assert len(list(log.read(on_error="skip", on_skip=skipped.append))) == 20
    table = kstore.scan(path, on_error="skip", on_skip=skipped.append).to_table()
    assert (table.num_rows, len(skipped)) == (20, 2)


@pytest.mark.parametrize(("base_offset", "is_read"), [(2**63 - 7, True), (2**63 - 6, False)])
def test_offsets_stay_below_the_largest_one(base_offset: int, is_read: bool) -> None:
    data = patch_header(builders.batch(40, 5), base_offset=base_offset, last_offset_delta=0)
    records = RecordBatch(data, allows_low_last_offset=True)
    if is_read:
        assert [one.offset for one in records] == [*range(base_offset, base_offset + 5)]
    else:
        with pytest.raises(InvalidRecordError):
            list(records)
