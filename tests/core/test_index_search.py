"""Goal: index entries are counted, read and searched as Kafka does, whatever the file holds.

Method: files of the reference codec around the sizes where the search changes its plan; every slot and gap
against bisect, and of large files keys of several spreads, before and after the search has learned that its guesses are
wrong; entries out of order for bounds and for keys that are not above the target.
"""

from __future__ import annotations

import bisect
import random
from array import array
from collections.abc import Callable, Iterator
from itertools import accumulate

import pytest

from kstore import _core
from tests.reference import codec as reference

WARM_OFFSET_ENTRIES, WARM_TIME_ENTRIES = 1024, 682
COUNTS = [0, 1, 2, 3, 681, 682, 683, 684, 1023, 1024, 1025, 1026, 3000]


def search_offset_index(data: bytes, count: int, target: int) -> int:
    return _core.OffsetIndexSearch(data[: 8 * count], base_offset=0).slot_of_offset(target)


def search_time_index(data: bytes, count: int, target: int) -> int:
    return _core.TimeIndexSearch(data[: 12 * count], base_offset=0).slot_of_timestamp(target)


@pytest.mark.parametrize("count", COUNTS)
def test_offset_search_finds_the_floor_of_every_entry_and_gap(count: int) -> None:
    keys = [3 + 2 * n for n in range(count)]
    data = reference.write_offset_index([(key, 10 * key) for key in keys])
    for target in range(2, 2 * count + 6):
        slot = search_offset_index(data, count, target)
        assert slot == bisect.bisect_right(keys, target) - 1, target
        if slot >= 0:
            assert _core.offset_index_entry(data, slot) == (keys[slot], 10 * keys[slot])


@pytest.mark.parametrize("count", COUNTS)
def test_time_search_finds_the_floor_of_every_entry_and_gap(count: int) -> None:
    keys = [10**12 + 2 * n for n in range(count)]
    data = reference.write_time_index([(key, n) for n, key in enumerate(keys)])
    for target in range(10**12 - 1, 10**12 + 2 * count + 2):
        slot = search_time_index(data, count, target)
        assert slot == bisect.bisect_right(keys, target) - 1, target
        if slot >= 0:
            assert _core.time_index_entry(data, slot) == (keys[slot], slot)


def steps_of(spread: str, count: int) -> Iterator[int]:
    """Yield by how much each key exceeds the one before."""
    draw = random.Random(42).randrange
    pace = 1
    for number in range(count):
        pace = 1 << draw(14) if number % 400 == 0 else pace
        yield {
            "even": 7,
            "nearly even": 1 + draw(200),
            "in clusters": 1 + draw(pace),
            "rising faster and faster": 1 + number // 3,
            "rising more and more slowly": 1 + (count - number) // 3,
            "one leap at the start": 1 << 30 if number == 1 else 1,
            "one leap in the middle": 1 << 30 if number == count // 2 else 1,
            "one leap before the last ones": 1 << 30 if number == count - 1030 else 1,
            "equal in runs": draw(500) if number % 50 == 0 else 0,
            "all equal but the last ones": 1000 if number == count - 1030 else 0,
            "doubled at each thousand": 1 << (number // 1000),
        }[spread]


SPREADS = [
    "even",
    "nearly even",
    "in clusters",
    "rising faster and faster",
    "rising more and more slowly",
    "one leap at the start",
    "one leap in the middle",
    "one leap before the last ones",
    "equal in runs",
    "all equal but the last ones",
    "doubled at each thousand",
]


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("count", [1026, 2100, 5000, 9000])
def test_search_of_many_entries_finds_the_floor_whatever_their_spread(spread: str, count: int) -> None:
    keys = list(accumulate(steps_of(spread, count)))
    offsets = _core.OffsetIndexSearch(reference.write_offset_index([(key, 1) for key in keys]), base_offset=0)
    times = _core.TimeIndexSearch(reference.write_time_index([(key, 1) for key in keys]), base_offset=0)
    draw = random.Random(count).randrange
    targets = [keys[draw(count)] + step for step in (-1, 0, 1) for _ in range(400)]
    targets += [draw(keys[-1] + 10) for _ in range(400)] + [-1, 0, keys[0], keys[-1], keys[-1] + 1]
    random.Random(1).shuffle(targets)
    for target in targets:
        expected = bisect.bisect_right(keys, target) - 1
        assert offsets.slot_of_offset(target) == expected, target
        assert times.slot_of_timestamp(target) == expected, target
    assert list(memoryview(offsets.slots_of_offsets(array("q", targets))).cast("q")) == [
        bisect.bisect_right(keys, target) - 1 for target in targets
    ]


def test_search_of_timestamps_further_apart_than_an_int64_finds_the_floor() -> None:
    low, high = -(2**63), 2**63 - 1
    keys = [low + 3 * n for n in range(2000)] + [high - 3 * n for n in range(2000, 0, -1)]
    search = _core.TimeIndexSearch(reference.write_time_index([(key, 1) for key in keys]), base_offset=0)
    targets = [key + step for key in keys[::7] for step in (0, 1)]
    for target in (low, -1, 0, 1, high, *targets):
        assert search.slot_of_timestamp(target) == bisect.bisect_right(keys, target) - 1, target


@pytest.mark.parametrize("target", [-(2**63), -1, 0, 2**31 - 1, 2**31, 2**63 - 1])
def test_target_may_be_any_int64(target: int) -> None:
    offsets = reference.write_offset_index([(5, 0), (2**31 - 1, 9)])
    times = reference.write_time_index([(-7, 0), (2**63 - 1, 9)])
    assert search_offset_index(offsets, 2, target) == bisect.bisect_right([5, 2**31 - 1], target) - 1
    assert search_time_index(times, 2, target) == bisect.bisect_right([-7, 2**63 - 1], target) - 1


def test_search_stays_inside_the_counted_entries() -> None:
    data = reference.write_offset_index([(1, 0), (2, 0), (3, 0)])
    assert search_offset_index(data, 2, 99) == 1
    assert search_offset_index(data, 0, 99) == -1


COUNTED = {
    "empty file": (b"", 8, 0),
    "one entry": (reference.write_offset_index([(1, 2)]), 8, 1),
    "zero tail": (reference.write_offset_index([(1, 2), (3, 4)], slots=1024), 8, 2),
    "all zeros": (bytes(8192), 8, 0),
    "zero entry between others": (reference.write_offset_index([(1, 2), (0, 0), (3, 4)], slots=9), 8, 3),
    "last byte alone set": (bytes(15) + b"\x01", 8, 2),
    "seven bytes": (b"\x01" * 7, 8, 0),
    "odd bytes behind an entry": (reference.write_offset_index([(1, 2)]) + b"\x01" * 7, 8, 1),
    "odd bytes behind zeros": (reference.write_offset_index([(1, 2)], slots=3) + b"\x01" * 3, 8, 1),
    "time entries with a zero tail": (reference.write_time_index([(1, 2), (3, 4)], slots=873813), 12, 2),
    "time entry of timestamp 0": (reference.write_time_index([(0, 5)], slots=4), 12, 1),
}


@pytest.mark.parametrize(("data", "entry_size", "expected"), COUNTED.values(), ids=COUNTED)
def test_entries_before_the_zero_tail_are_counted(data: bytes, entry_size: int, expected: int) -> None:
    assert _core.index_entry_count(data, entry_size) == expected


def test_entries_are_signed() -> None:
    assert _core.offset_index_entry(b"\xff" * 8, 0) == (-1, -1)
    assert _core.time_index_entry(b"\xff" * 12, 0) == (-1, -1)


@pytest.mark.parametrize("entries", [2, 700, 1500])
def test_search_over_entries_out_of_order_stays_in_bounds(entries: int) -> None:
    for data, search, entry_size in (
        (reference.write_offset_index([(entries - n, 0) for n in range(entries)]), search_offset_index, 8),
        (reference.write_time_index([(entries - n, 0) for n in range(entries)]), search_time_index, 12),
        (b"\xff" * 12 * entries, search_time_index, 12),
        (b"\xff" * 8 * entries, search_offset_index, 8),
    ):
        for target in (-(2**63), -1, 0, entries // 2, 2**63 - 1):
            assert -1 <= search(data, len(data) // entry_size, target) < entries


@pytest.mark.parametrize("seed", range(30))
def test_search_over_many_entries_out_of_order_finds_none_above_the_target(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.choice([1026, 1500, 3000, 6000])
    keys = sorted(rng.randrange(2**31) for _ in range(count))
    for _ in range(rng.choice([1, 10, count])):
        keys[rng.randrange(count)] = rng.choice([0, -(2**31), 2**31 - 1, rng.randrange(2**31)])
    if seed % 3 == 0:
        keys = [-1, *(rng.randrange(3) for _ in range(count - 1))]
        keys[-1025:] = [3] * 1025
    offsets = _core.OffsetIndexSearch(reference.write_offset_index([(key, 1) for key in keys]), base_offset=0)
    times = _core.TimeIndexSearch(reference.write_time_index([(key << 32, 1) for key in keys]), base_offset=0)
    for target in (-1, 0, 1, 2, 3, *(rng.randrange(2**31) for _ in range(200)), 2**31 - 1):
        for slot in (offsets.slot_of_offset(target), times.slot_of_timestamp(target << 32)):
            assert -1 <= slot < count
            assert slot < 0 or keys[slot] <= target


@pytest.mark.parametrize(
    ("entry", "size"), [(_core.offset_index_entry, 8), (_core.time_index_entry, 12)], ids=["offset", "time"]
)
@pytest.mark.parametrize("slot", [-1, 2])
def test_slot_outside_the_buffer_is_an_index_error(
    entry: Callable[[bytes, int], tuple[int, int]], size: int, slot: int
) -> None:
    with pytest.raises(IndexError):
        entry(bytes(2 * size + 1), slot)


@pytest.mark.parametrize("entry_size", [0, -8, 7, 34])
def test_entry_size_of_no_known_index_is_misuse(entry_size: int) -> None:
    with pytest.raises(ValueError, match="entry_size"):
        _core.index_entry_count(bytes(100), entry_size)


@pytest.mark.parametrize("count", [0, 1, 2, 15, 16, 17, 1025, 3000])
@pytest.mark.parametrize("asked", [0, 1, 15, 16, 17, 100])
def test_many_offsets_are_found_as_each_alone_is(count: int, asked: int) -> None:
    keys = [3 + 2 * n for n in range(count)]
    search = _core.OffsetIndexSearch(reference.write_offset_index([(key, key) for key in keys]), base_offset=1000)
    targets = array("q", [(-5, 2**62, 1000 + 7919 * n % (2 * count + 7))[min(n, 2)] for n in range(asked)])
    slots = list(memoryview(search.slots_of_offsets(targets)).cast("q"))
    assert slots == [search.slot_of_offset(target) for target in targets]
    assert slots == [bisect.bisect_right(keys, target - 1000) - 1 for target in targets]


@pytest.mark.parametrize("entry_size", [8, 12])
def test_first_entry_that_does_not_rise_is_found(entry_size: int) -> None:
    write = reference.write_offset_index if entry_size == 8 else reference.write_time_index
    rising = [(10 * n, n) for n in range(1, 6)]
    assert _core.first_disordered_slot(write(rising), entry_size) == -1
    for slot in range(1, 5):
        key, other = rising[slot - 1]
        for entry in ((key, other + 1), (key + 1, other), (key - 1, other + 1), (key + 1, -1)):
            assert _core.first_disordered_slot(write([*rising[:slot], entry]), entry_size) == slot, entry
    assert _core.first_disordered_slot(b"", entry_size) == -1
    with pytest.raises(ValueError, match="entry_size"):
        _core.first_disordered_slot(b"", 9)
