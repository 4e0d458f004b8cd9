"""Goal: CRC-32C and the index searches agree with independent implementations on any input.

Method: the crc32c package and bisect as oracles.
"""

from __future__ import annotations

import bisect
from functools import partial

import crc32c as crc32c_package
from hypothesis import given
from hypothesis import strategies as st

from kstore import _core
from tests.making import strategies
from tests.reference import codec as reference

# Cheap large inputs: a seed byte string repeated, so that the interleaved streams are reached.
buffers = st.builds(lambda seed, times: seed * times, st.binary(min_size=1, max_size=50), st.integers(0, 1500))


def search_offset_index(data: bytes, count: int, target: int) -> int:
    return _core.OffsetIndexSearch(data[: 8 * count], base_offset=0).slot_of_offset(target)


def search_time_index(data: bytes, count: int, target: int) -> int:
    return _core.TimeIndexSearch(data[: 12 * count], base_offset=0).slot_of_timestamp(target)


@given(data=buffers, start=st.integers(0, 70), cut=st.integers(0, 75_000), value=st.integers(0, 2**32 - 1))
def test_crc_equals_the_package_on_every_path(data: bytes, start: int, cut: int, value: int) -> None:
    piece = memoryview(data)[start:]
    expected = crc32c_package.crc32c(bytes(piece), value)
    for crc in (_core.crc32c, *(partial(_core.crc32c_by, path) for path in _core.CRC32C_PATHS)):
        assert crc(piece, value) == expected
        assert crc(piece[cut:], crc(piece[:cut], value)) == expected


@given(data=st.binary(max_size=300), value=st.integers(0, 2**32 - 1))
def test_crc_equals_the_reference(data: bytes, value: int) -> None:
    assert _core.crc32c(data, value) == reference.crc32c(data, value)


@given(
    keys=st.lists(st.integers(0, 2**31 - 1), unique=True, max_size=40).map(sorted),
    times=st.integers(1, 60),
    target=st.one_of(st.integers(-2, 2**31), strategies.INT64),
    slots=st.integers(0, 5),
)
def test_offset_index_search_equals_bisect(keys: list[int], times: int, target: int, slots: int) -> None:
    spread = sorted({min(key + n, 2**31 - 1) for key in keys for n in range(times)} - {0})
    data = reference.write_offset_index([(key, 7) for key in spread], slots=len(spread) + slots)
    count = _core.index_entry_count(data, 8)
    assert count == len(spread)
    assert search_offset_index(data, count, target) == bisect.bisect_right(spread, target) - 1


@given(keys=st.lists(strategies.INT64, unique=True, max_size=60).map(sorted), target=strategies.INT64)
def test_time_index_search_equals_bisect(keys: list[int], target: int) -> None:
    data = reference.write_time_index([(key, 1) for key in keys])
    assert _core.index_entry_count(data, 12) == len(keys)
    for wanted in (target, *keys[:3]):
        assert search_time_index(data, len(keys), wanted) == bisect.bisect_right(keys, wanted) - 1


@given(data=st.binary(max_size=120), target=strategies.INT64)
def test_search_over_any_bytes_stays_in_bounds_and_below_the_target(data: bytes, target: int) -> None:
    for search, entry, size in (
        (search_offset_index, _core.offset_index_entry, 8),
        (search_time_index, _core.time_index_entry, 12),
    ):
        count = _core.index_entry_count(data, size)
        slot = search(data, count, target)
        assert -1 <= slot < max(count, 1)
        if slot >= 0:
            assert entry(data, slot)[0] <= target
