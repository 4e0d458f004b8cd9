"""Goal: the recovery walk finds every whole batch and stops at the first bad one, with entries and headers up to there.

Method: small logs with one damage each, fed in whole and in the smallest chunks; entries are compared with the
oracle's, headers with those read one by one.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest

from kstore import _core
from kstore.errors import CorruptionError, CorruptRecordError
from tests.making import batches as builders
from tests.making.batches import FIRST_TIMESTAMP_MS
from tests.reference import codec as reference

LOG = builders.batches(0, 6, records_per_batch=5, value_bytes=100)
DATA = b"".join(LOG)
STARTS = [sum(map(len, LOG[:n])) for n in range(len(LOG) + 1)]
EPOCH = reference.Header.unpack(LOG[0]).partition_leader_epoch
MAX_BYTES = 1 << 20
CHUNKS = [61, 62, 100, 700, 1 << 20]


def recover(data: bytes, *, chunk_bytes: int = 1 << 20, **options: Any) -> tuple[_core.RecoveryWalk, list[Any]]:
    """Feed data as a file, in chunks that start where the walk asks for one."""
    walk = _core.RecoveryWalk(**{"end_position": len(data), "base_offset": 0, "path": "x.log"} | options)
    headers = []
    while walk.status == "more":
        before = walk.next_position
        wanted = walk.feed(data[before : before + chunk_bytes], before)
        assert wanted == walk.next_position
        assert wanted > before or walk.status != "more", "no progress"
        headers += walk.take_headers()
    return walk, headers


def entries(*, base_offset: int = 0, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    return {
        "offset_entries": _core.OffsetIndexEntries(b"", base_offset=base_offset, max_bytes=max_bytes),
        "time_entries": _core.TimeIndexEntries(b"", base_offset=base_offset, max_bytes=max_bytes),
    }


def unpacked(both: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    offsets = list(struct.iter_unpack(">ii", both["offset_entries"].content))
    return offsets, list(struct.iter_unpack(">qi", both["time_entries"].content))


@pytest.mark.parametrize("chunk_bytes", CHUNKS)
def test_whole_log_is_walked_to_its_end(chunk_bytes: int) -> None:
    walk, headers = recover(DATA, chunk_bytes=chunk_bytes)
    assert (walk.status, walk.position, walk.error) == ("end", len(DATA), None)
    assert (walk.batch_count, walk.record_count, walk.last_offset) == (6, 30, 29)
    assert (walk.max_timestamp_ms, walk.offset_of_max_timestamp) == (FIRST_TIMESTAMP_MS + 29, 29)
    assert [(header.base_offset, header.partition_leader_epoch) for header in headers] == [(0, EPOCH)]


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


DAMAGES = [
    pytest.param(flipped(DATA, STARTS[3] + 300), "corrupt", "CRC mismatch", id="flipped-bit"),
    pytest.param(flipped(DATA, STARTS[4] - 1), "corrupt", "CRC mismatch", id="flipped-last-bit"),
    pytest.param(DATA[: STARTS[3] + 200], "torn", "batch runs past the end", id="cut-in-the-records"),
    pytest.param(DATA[: STARTS[3] + 61], "torn", "batch runs past the end", id="cut-behind-the-header"),
    pytest.param(DATA[: STARTS[3] + 60], "torn", "batch runs past the end", id="cut-in-the-header"),
    pytest.param(DATA[: STARTS[3] + 15], "torn", "batch runs past the end", id="cut-in-the-first-bytes"),
    pytest.param(DATA[: STARTS[3]] + bytes(5000), "zeros", "zero bytes in place of a batch", id="zeros"),
    pytest.param(DATA[: STARTS[3]] + bytes(3), "zeros", "zero bytes in place of a batch", id="three-zeros"),
    pytest.param(flipped(DATA, STARTS[3] + 16), "corrupt", None, id="magic"),
    pytest.param(DATA[: STARTS[3]] + b"\xff" * 100, "corrupt", None, id="garbage"),
]


@pytest.mark.parametrize("chunk_bytes", CHUNKS)
@pytest.mark.parametrize(("data", "status", "message"), DAMAGES)
def test_walk_stops_before_the_first_bad_batch(data: bytes, status: str, message: str | None, chunk_bytes: int) -> None:
    walk, _ = recover(data, chunk_bytes=chunk_bytes)
    assert (walk.status, walk.position, walk.batch_count, walk.last_offset) == (status, STARTS[3], 3, 14)
    assert walk.error is not None
    if message is not None:
        assert isinstance(walk.error, CorruptRecordError)
        assert message in str(walk.error)
        assert (walk.error.position, walk.error.path) == (STARTS[3], "x.log")


def test_every_bit_under_the_crc_is_looked_at() -> None:
    data = LOG[0]
    for position in range(17, len(data)):
        walk, _ = recover(flipped(data, position), chunk_bytes=64)
        assert (walk.status, walk.position) == ("corrupt", 0), position


def test_offsets_that_do_not_rise_stop_the_walk() -> None:
    data = b"".join([LOG[0], LOG[2], LOG[1]])
    walk, _ = recover(data)
    assert (walk.status, walk.batch_count, walk.last_offset) == ("corrupt", 2, 14)
    assert "base offset not above the last offset before it" in str(walk.error)


@pytest.mark.parametrize(
    ("options", "count", "status"),
    [
        pytest.param({"base_offset": 1}, 0, "corrupt", id="below-the-segment"),
        pytest.param({"next_base_offset": 30}, 6, "end", id="up-to-the-next-segment"),
        pytest.param({"next_base_offset": 29}, 5, "corrupt", id="into-the-next-segment"),
        pytest.param({"max_batch_bytes": len(LOG[0]) - 1}, 0, "corrupt", id="larger-than-the-limit"),
    ],
)
def test_batches_stay_in_their_bounds(options: dict[str, Any], count: int, status: str) -> None:
    walk, _ = recover(DATA, **options)
    assert (walk.status, walk.batch_count) == (status, count)
    assert isinstance(walk.error, CorruptionError) == (status == "corrupt")


@pytest.mark.parametrize(("first", "status"), [(2**31 - 5, "end"), (2**31 - 4, "overflow")])
def test_right_batch_too_far_above_the_base_is_told_apart(first: int, status: str) -> None:
    data = LOG[0] + builders.batch(first, 5)
    walk, _ = recover(data)
    assert (walk.status, walk.position) == (status, len(data) if status == "end" else STARTS[1])
    if status == "overflow":
        assert "too far above the segment's base offset" in str(walk.error)


# Index entries


@pytest.mark.parametrize("chunk_bytes", CHUNKS)
@pytest.mark.parametrize("interval", [0, 1, 600, len(LOG[0]) - 1, len(LOG[0]), 2 * len(LOG[0]), 10**6])
def test_entries_are_those_of_the_oracle(interval: int, chunk_bytes: int) -> None:
    both = entries()
    recover(DATA, chunk_bytes=chunk_bytes, index_interval_bytes=interval, **both)
    layout = builders.Layout(index_interval_bytes=interval, is_closed=False)
    assert unpacked(both) == builders.index_entries(LOG, base_offset=0, layout=layout)


def test_small_chunk_has_room_for_the_entries_of_a_batch_that_it_ends_and_of_the_next() -> None:
    large, small = builders.batches(0, 3, value_bytes=1100), builders.batches(3, 3, value_bytes=10)
    log = [*large, *small]
    layout = builders.Layout(index_interval_bytes=1000, is_closed=False)
    for chunk_bytes in range(len(small[0]) + 1, 400):
        both = entries()
        recover(b"".join(log), chunk_bytes=chunk_bytes, index_interval_bytes=1000, **both)
        assert unpacked(both) == builders.index_entries(log, base_offset=0, layout=layout), chunk_bytes


def test_timestamp_that_goes_back_adds_no_time_entry() -> None:
    times = [50, 40, 60, 60, 10]
    log = [
        reference.write_batch([builders.record(n, b"v" * 100, timestamp_ms=timestamp_ms)])
        for n, timestamp_ms in enumerate(times)
    ]
    both = entries()
    walk, _ = recover(b"".join(log), index_interval_bytes=0, **both)
    assert unpacked(both)[1] == [(50, 0), (60, 2)]
    assert len(unpacked(both)[0]) == 4
    assert (walk.max_timestamp_ms, walk.offset_of_max_timestamp) == (60, 2)


def test_time_entry_has_the_first_offset_of_its_timestamp_though_a_later_batch_brought_it() -> None:
    times = [1, 3, 3, 2, 3]
    log = [reference.write_batch([builders.record(n, b"v", timestamp_ms=time)]) for n, time in enumerate(times)]
    both = entries()
    walk, _ = recover(b"".join(log), index_interval_bytes=len(log[0]), **both)
    offsets, timestamps = unpacked(both)
    assert ([offset for offset, _ in offsets], timestamps) == ([2, 4], [(3, 1)])
    assert (walk.max_timestamp_ms, walk.offset_of_max_timestamp) == (3, 1)


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_full_index_takes_no_more_and_the_walk_goes_on(slots: int) -> None:
    both = entries(max_bytes=12 * slots)
    walk, _ = recover(DATA, index_interval_bytes=0, **both)
    offsets, times = unpacked(both)
    assert (walk.status, len(offsets), len(times)) == ("end", 12 * slots // 8, slots - 1)


def test_both_kinds_of_entries_or_none() -> None:
    with pytest.raises(ValueError, match="both"):
        _core.RecoveryWalk(end_position=1, base_offset=0, offset_entries=entries()["offset_entries"])
    with pytest.raises(ValueError, match="end_position"):
        _core.RecoveryWalk(end_position=-1, base_offset=0)


# Headers


def test_headers_of_producers_markers_and_new_epochs_are_noted() -> None:
    log = [
        builders.batch(0, 2, partition_leader_epoch=3),
        builders.batch(2, 2, partition_leader_epoch=3),
        builders.batch(4, 2, partition_leader_epoch=5),
        builders.batch(6, 2, partition_leader_epoch=5, producer_id=9, producer_epoch=1, base_sequence=0),
        builders.batch(8, 2, partition_leader_epoch=5),
    ]
    walk, headers = recover(b"".join(log))
    assert [(h.base_offset, h.position, h.partition_leader_epoch, h.producer_id) for h in headers] == [
        (0, 0, 3, -1),
        (4, len(log[0]) + len(log[1]), 5, -1),
        (6, sum(map(len, log[:3])), 5, 9),
    ]
    assert (headers[2].producer_epoch, headers[2].base_sequence, headers[2].last_offset) == (1, 0, 7)
    assert walk.leader_epoch == 5


def test_more_headers_than_room_at_first_are_all_noted() -> None:
    log = builders.batches(0, 500, producer_id=1, producer_epoch=0, base_sequence=0)
    _, headers = recover(b"".join(log))
    assert [header.base_offset for header in headers] == list(range(500))
