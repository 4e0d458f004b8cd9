"""Goal: a lookup reads little, and what it remembers of an index never makes an answer wrong.
Method: reads counted at the door to the system; batches whose intervals hold one or several; the oracle's answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstore import _core
from kstore.config import LogConfig
from kstore.errors import CorruptRecordError, InvalidRecordError
from kstore.log import Log, open_log
from kstore.log.env import ReadFile
from tests.builders import FIRST_TIMESTAMP_MS, Layout, batch, batches, patch_header, write_partition
from tests.reference import Header, read_records

CONFIG = LogConfig(time_index_proof_bytes=4096)
LARGE = batches(0, 12, records_per_batch=5, value_bytes=400)
SMALL = batches(0, 60, records_per_batch=3, value_bytes=20)
SEGMENTS = [
    pytest.param(LARGE, Layout(index_interval_bytes=1000), id="one-batch-an-interval"),
    pytest.param(SMALL, Layout(index_interval_bytes=1000), id="several-batches-an-interval"),
    pytest.param(SMALL, Layout(index_interval_bytes=1000, first_offset_keys=True), id="first-offset-keys"),
    pytest.param(LARGE, Layout(index_interval_bytes=10**6), id="no-entry"),
]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of all preads of .log files so far."""
    sizes: list[int] = []
    pread = ReadFile.pread

    def counted(file: ReadFile, size: int, *, position: int) -> bytes:
        if file.path.endswith(".log"):
            sizes.append(size)
        return pread(file, size, position=position)

    monkeypatch.setattr(ReadFile, "pread", counted)
    return sizes


def opened(tmp_path: Path, segment: list[bytes], layout: Layout) -> Log:
    """A log whose first segment is the one of interest, a second one behind it."""
    end = Header.unpack(segment[-1]).last_offset + 1
    return open_log(write_partition(tmp_path, [segment, [batch(end)]], layout=layout), config=CONFIG)


@pytest.mark.parametrize(("segment", "layout"), SEGMENTS)
def test_every_offset_is_found_before_and_after_the_proof(tmp_path: Path, segment: list[bytes], layout: Layout) -> None:
    headers = [Header.unpack(data) for data in segment]
    with opened(tmp_path, segment, layout) as log:
        for order in (1, -1, 1):
            for header in headers[::order]:
                for offset in range(header.base_offset, header.last_offset + 1):
                    found = log.segments[0].translate_offset(offset)
                    assert found is not None
                    assert (found.base_offset, found.crc) == (header.base_offset, header.crc)
        assert log.segments[0].translate_offset(headers[-1].last_offset + 1) is None


@pytest.mark.parametrize(("segment", "layout"), SEGMENTS[:3])
def test_offset_costs_one_read(tmp_path: Path, reads: list[int], segment: list[bytes], layout: Layout) -> None:
    with opened(tmp_path, segment, layout) as log:
        for offset in (20, 21, 22, 40):
            log.segments[0].translate_offset(offset)
            assert (len(reads), reads.pop() <= 2 * 1000 + len(segment[0]) + 61 * 2) == (1, True), offset


def test_proven_entry_costs_the_read_of_one_header(tmp_path: Path, reads: list[int]) -> None:
    with opened(tmp_path, LARGE, Layout(index_interval_bytes=1000)) as log:
        log.segments[0].translate_offset(23)
        log.segments[0].translate_offset(22)
        assert reads == [len(LARGE[3]) + 61, 61]


def test_batch_that_no_longer_fits_its_place_is_not_believed() -> None:
    entries = b"".join(n.to_bytes(4, "big") + (100 * n).to_bytes(4, "big") for n in (1, 2, 3))
    search = _core.OffsetIndexSearch(entries, base_offset=0)
    plan = search.plan_read(2, end_position=1000)
    assert plan == (1, 200, 161)
    assert search.batch_of_offset(bytes(161), 2, slot=1, position=200, end_position=1000) is None
    assert search.batch_of_offset(b"", 2, slot=1, position=200, end_position=1000) is None
    assert search.batch_of_offset(LARGE[0][:161], 2, slot=1, position=200, end_position=1000) is None


POSITIONS = [
    pytest.param([(1, 100), (2, 100)], id="same-position"),
    pytest.param([(1, 100), (2, 50)], id="going-back"),
    pytest.param([(1, -100)], id="negative"),
    pytest.param([(1, 1000)], id="at-the-end"),
    pytest.param([(1, 5000)], id="behind-the-end"),
]


@pytest.mark.parametrize("entries", POSITIONS)
def test_positions_that_can_not_be_plan_no_read(entries: list[tuple[int, int]]) -> None:
    content = b"".join(key.to_bytes(4, "big") + place.to_bytes(4, "big", signed=True) for key, place in entries)
    assert _core.OffsetIndexSearch(content, base_offset=0).plan_read(1, end_position=1000) is None


@pytest.mark.parametrize("slot", [-2, 3, 2**40])
def test_slot_outside_the_index_is_refused(slot: int) -> None:
    search = _core.OffsetIndexSearch(bytes(24), base_offset=0)
    with pytest.raises(IndexError):
        search.batch_of_offset(bytes(100), 0, slot=slot, position=0, end_position=1000)


# By time


def test_timestamp_costs_one_read_once_its_entry_is_confirmed(tmp_path: Path, reads: list[int]) -> None:
    with opened(tmp_path, LARGE, Layout(index_interval_bytes=1000)) as log:
        segment = log.segments[0]
        for _ in range(2):
            reads.clear()
            assert segment.search_timestamp(FIRST_TIMESTAMP_MS + 43, start_offset=0) == (43, FIRST_TIMESTAMP_MS + 43)
        assert reads == [len(LARGE[8])]


def test_first_part_of_a_segment_is_proven_once(tmp_path: Path, reads: list[int]) -> None:
    with opened(tmp_path, LARGE, Layout(index_interval_bytes=1000)) as log:
        for _ in range(2):
            log.segments[0].search_timestamp(FIRST_TIMESTAMP_MS + 13, start_offset=0)
        reads.clear()
        for offset in (13, 11, 14):
            found = log.segments[0].search_timestamp(FIRST_TIMESTAMP_MS + offset, start_offset=0)
            assert found == (offset, FIRST_TIMESTAMP_MS + offset)
        assert reads == [len(LARGE[2])] * 3


PLAIN = batch(7, 5)
PLAIN_RECORDS = read_records(PLAIN)


@pytest.mark.parametrize("start_offset", [0, 7, 9, 11, 12])
def test_record_of_a_batch_is_found_by_time(start_offset: int) -> None:
    for timestamp_ms in range(FIRST_TIMESTAMP_MS + 5, FIRST_TIMESTAMP_MS + 14):
        expected = next(
            (
                (r.offset, r.timestamp_ms)
                for r in PLAIN_RECORDS
                if r.timestamp_ms >= timestamp_ms and r.offset >= start_offset
            ),
            None,
        )
        found = _core.search_timestamp_in_batch(PLAIN, position=0, timestamp_ms=timestamp_ms, start_offset=start_offset)
        assert found == expected


DAMAGED = [
    pytest.param(PLAIN[:-1], CorruptRecordError, id="cut"),
    pytest.param(PLAIN[:60], CorruptRecordError, id="cut-in-the-header"),
    pytest.param(PLAIN[:-1] + bytes([PLAIN[-1] ^ 1]), CorruptRecordError, id="flipped-bit"),
    pytest.param(patch_header(PLAIN, last_offset_delta=-1), InvalidRecordError, id="last-offset-delta"),
    pytest.param(patch_header(PLAIN, record_count=6), InvalidRecordError, id="record-count"),
]


@pytest.mark.parametrize(("data", "error"), DAMAGED)
def test_damaged_batch_is_not_searched(data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        _core.search_timestamp_in_batch(data, position=0, timestamp_ms=2**62, start_offset=0)


def test_batch_with_codec_is_left_to_the_records() -> None:
    data = patch_header(PLAIN, attributes=1)
    with pytest.raises(ValueError, match="codec"):
        _core.search_timestamp_in_batch(data, position=0, timestamp_ms=0, start_offset=0)
