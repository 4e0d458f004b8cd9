"""Goal: an index file of any content gives entries and slots without harm, and is read when needed, once.
Method: entries packed by struct, orders right and wrong, and an Env that counts reads."""

from __future__ import annotations

import logging
import struct
from bisect import bisect_right
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.env import DEFAULT_ENV, LocalEnv
from kstore.errors import StorageError
from kstore.log.files import indexes as index_module
from kstore.log.files.indexes import IndexCache, OffsetIndex, TimeIndex
from tests.fakes.counting import CountingEnv

BASE = 1000
OFFSETS = [(5, 4100), (9, 8300), (20, 13000)]
TIMES = [(1_600_000_000_000, 4), (1_600_000_000_500, 9), (1_600_000_002_000, 20)]


def offset_bytes(entries: list[tuple[int, int]]) -> bytes:
    return b"".join(struct.pack(">ii", *entry) for entry in entries)


def time_bytes(entries: list[tuple[int, int]]) -> bytes:
    return b"".join(struct.pack(">qi", *entry) for entry in entries)


def offset_index(content: bytes) -> OffsetIndex:
    return OffsetIndex(content, base_offset=BASE, path="00000000000000001000.index")


def time_index(content: bytes) -> TimeIndex:
    return TimeIndex(content, base_offset=BASE, path="00000000000000001000.timeindex")


TAILS = [
    pytest.param(b"", id="nothing"),
    pytest.param(bytes(8 * 12), id="preallocated-zeros"),
    pytest.param(bytes(5), id="part-of-a-zero-entry"),
    pytest.param(b"\x01\x02\x03", id="part-of-an-entry"),
]


@pytest.mark.parametrize("tail", TAILS)
def test_entries_end_before_zeros_and_parts(tail: bytes) -> None:
    offsets = offset_index(offset_bytes(OFFSETS) + tail)
    assert list(offsets.entries()) == [(1005, 4100), (1009, 8300), (1020, 13000)]
    assert (offsets.entry_count, offsets.size_in_bytes) == (3, 24)
    times = time_index(time_bytes(TIMES) + tail)
    assert list(times.entries()) == [(TIMES[0][0], 1004), (TIMES[1][0], 1009), (TIMES[2][0], 1020)]
    assert (times.entry_count, times.size_in_bytes) == (3, 36)


OFFSET_SLOTS = [(0, -1), (1004, -1), (1005, 0), (1006, 0), (1009, 1), (1019, 1), (1020, 2), (2**63 - 1, 2)]


@pytest.mark.parametrize(("offset", "slot"), OFFSET_SLOTS)
def test_slot_of_offset_is_the_floor(offset: int, slot: int) -> None:
    assert offset_index(offset_bytes(OFFSETS)).slot_of_offset(offset) == slot


@pytest.mark.parametrize(("position", "slot"), [(0, -1), (4099, -1), (4100, 0), (8299, 0), (8300, 1), (2**31 - 1, 2)])
def test_slot_of_position_is_the_floor(position: int, slot: int) -> None:
    assert offset_index(offset_bytes(OFFSETS)).slot_of_position(position) == slot


@given(st.lists(st.integers(0, 40) | st.just(2**31 - 1), max_size=40), st.integers(-1, 42))
def test_slot_of_position_is_the_floor_of_any_positions(positions: list[int], wanted: int) -> None:
    index = offset_index(offset_bytes([(number + 1, position) for number, position in enumerate(positions)]))
    slot = index.slot_of_position(wanted)
    assert slot == bisect_right(positions, wanted) - 1
    assert slot == -1 or positions[slot] <= wanted
    assert slot == len(positions) - 1 or positions[slot + 1] > wanted


def test_lookup_without_a_floor_is_the_segment_s_start() -> None:
    assert offset_index(offset_bytes(OFFSETS)).lookup(1004) == (BASE, 0)
    assert offset_index(b"").lookup(5000) == (BASE, 0)
    assert time_index(time_bytes(TIMES)).lookup(TIMES[0][0] - 1) == (-1, BASE)
    assert time_index(b"").lookup(2**62) == (-1, BASE)


def test_lookup_gives_the_floor_entry() -> None:
    assert offset_index(offset_bytes(OFFSETS)).lookup(1019) == (1009, 8300)
    assert time_index(time_bytes(TIMES)).lookup(TIMES[1][0] + 1) == (TIMES[1][0], 1009)


INCREASING = [
    pytest.param([], True, id="empty"),
    pytest.param(TIMES[:1], True, id="one"),
    pytest.param(TIMES, True, id="three"),
    pytest.param([TIMES[0], TIMES[0]], False, id="twice-the-same"),
    pytest.param([(10, 4), (10, 5)], False, id="equal-timestamps"),
    pytest.param([(10, 4), (11, 4)], False, id="equal-offsets"),
    pytest.param([(10, 4), (9, 5)], False, id="timestamps-fall"),
    pytest.param([(10, 4), (11, 3)], False, id="offsets-fall"),
    pytest.param([(10, -1), (11, 3)], False, id="offset-below-the-base"),
    pytest.param([(10, 4), (0, 0), (11, 5)], False, id="zeros-between"),
]


@pytest.mark.parametrize(("entries", "expected"), INCREASING)
def test_time_index_knows_whether_it_increases(entries: list[tuple[int, int]], expected: bool) -> None:
    index = time_index(time_bytes(entries))
    assert index.is_increasing() is expected
    assert index.is_increasing() is expected


@pytest.mark.parametrize("slot", [-1, 3])
def test_slot_without_an_entry_is_an_index_error(slot: int) -> None:
    with pytest.raises(IndexError):
        offset_index(offset_bytes(OFFSETS)).entry(slot)
    with pytest.raises(IndexError):
        time_index(time_bytes(TIMES)).entry(slot)


def test_index_is_read_once_while_it_is_kept(tmp_path: Path) -> None:
    (tmp_path / "a.index").write_bytes(offset_bytes(OFFSETS))
    (tmp_path / "a.timeindex").write_bytes(time_bytes(TIMES))
    env = CountingEnv()
    cache = IndexCache(env)
    for _ in range(3):
        offsets = cache.offset_index(str(tmp_path / "a.index"), base_offset=BASE)
        times = cache.time_index(str(tmp_path / "a.timeindex"), base_offset=BASE)
        assert offsets is not None
        assert times is not None
        assert (offsets.entry_count, times.entry_count) == (3, 3)
    assert env.read_names == ["a.index", "a.timeindex"]
    cache.close()
    cache.offset_index(str(tmp_path / "a.index"), base_offset=BASE)
    assert env.read_names == ["a.index", "a.timeindex", "a.index"]


def test_missing_index_is_none_without_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = IndexCache(DEFAULT_ENV)
    assert cache.offset_index(str(tmp_path / "a.index"), base_offset=BASE) is None
    assert cache.time_index(str(tmp_path / "a.timeindex"), base_offset=BASE) is None
    assert not caplog.records


def make_link(path: Path) -> None:
    path.symlink_to("/etc/hostname")


def make_large(path: Path) -> None:
    path.write_bytes(bytes(101))


@pytest.mark.parametrize("make", [make_link, make_large, Path.mkdir])
def test_index_that_cannot_be_read_is_none_with_a_warning(
    tmp_path: Path, make: object, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "MAX_INDEX_BYTES", 100)
    path = tmp_path / "a.index"
    make(path)
    with caplog.at_level(logging.WARNING, logger="kstore.log"):
        assert IndexCache(DEFAULT_ENV).offset_index(str(path), base_offset=BASE) is None
    assert str(path) in caplog.text


def test_read_error_of_an_index_is_no_error_of_the_lookup(tmp_path: Path) -> None:
    class FailingEnv(LocalEnv):
        def read_file(self, path: str, *, max_bytes: int) -> bytes:
            raise StorageError(f"cannot read {max_bytes} bytes of {path}: Input/output error", path=path, errno=5)

    assert IndexCache(FailingEnv()).time_index(str(tmp_path / "a.timeindex"), base_offset=BASE) is None
