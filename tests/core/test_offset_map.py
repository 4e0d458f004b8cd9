"""Goal: the map of keys answers as a dict does, whatever is put, removed and counted, and however it grows.
Method: random calls on maps with few slots, where all entries collide, and on wide ones, beside a dict."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore._core import OffsetMap, count_keys
from tests.making.strategies import examples

SECRET = bytes(range(16))
SLOT_BYTES = 24


def made(slots: int, *, most: int = 900, secret: bytes = SECRET) -> OffsetMap:
    return OffsetMap(memory_bytes=slots * SLOT_BYTES, load_factor=most / slots, secret=secret)


def check(offset_map: OffsetMap, expected: dict[bytes, int], keys: list[bytes]) -> None:
    assert offset_map.entry_count == len(expected)
    assert [offset_map.get(key) for key in keys] == [expected.get(key, -1) for key in keys]


def run(rng: random.Random, *, slots: int, steps: int, key_count: int) -> None:
    offset_map, expected = made(slots), dict[bytes, int]()
    keys = [b"k%d" % number for number in range(key_count)]
    for offset in range(steps):
        key, choice = rng.choice(keys), rng.random()
        if choice < 0.5:
            assert offset_map.put(key, offset)
            expected[key] = offset
        elif choice < 0.9:
            assert offset_map.remove(key) == (expected.pop(key, None) is not None)
        elif choice < 0.95:
            least = offset - rng.choice([0, 10, 1000])
            offset_map.remove_below(least)
            expected = {kept: at for kept, at in expected.items() if at >= least}
        elif slots < 4096:
            slots += rng.randint(0, slots)
            offset_map.grow(memory_bytes=slots * SLOT_BYTES, load_factor=900 / slots)
            assert offset_map.memory_bytes == slots * SLOT_BYTES
        if rng.random() < 0.2:
            check(offset_map, expected, keys)
    check(offset_map, expected, keys)


@examples(60)
@given(seed=st.integers(0, 2**32), slots=st.sampled_from([1, 2, 7, 64, 2000]))
def test_a_map_answers_as_a_dict(seed: int, slots: int) -> None:
    rng = random.Random(seed)
    run(rng, slots=slots, steps=300, key_count=rng.choice([3, 40, 400]))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(200))
def test_a_map_answers_as_a_dict_after_many_calls(seed: int) -> None:
    rng = random.Random(seed)
    run(rng, slots=rng.choice([1, 3, 100, 1000]), steps=20_000, key_count=rng.choice([10, 300, 850]))


def test_what_follows_a_removed_key_is_found_though_all_keys_collide() -> None:
    keys = [b"%d" % number for number in range(50)]
    for gone in keys:
        offset_map = made(1)
        for offset, key in enumerate(keys):
            offset_map.put(key, offset)
        assert offset_map.remove(gone)
        assert not offset_map.remove(gone)
        check(offset_map, {key: offset for offset, key in enumerate(keys) if key != gone}, keys)


def test_an_entry_at_its_own_slot_stays_there_when_one_before_it_goes() -> None:
    keys = [b"%d" % number for number in range(500)]
    offset_map, expected = made(1000), {}
    for offset, key in enumerate(keys):
        offset_map.put(key, offset)
        expected[key] = offset
    for key in keys[::2]:
        offset_map.remove(key)
        del expected[key]
    check(offset_map, expected, keys)


def test_a_map_grows_past_its_first_slots_and_answers_as_before() -> None:
    keys = [b"%d" % number for number in range(20_000)]
    offset_map = made(100, most=75)
    for offset, key in enumerate(keys):
        while not offset_map.put(key, offset):
            check(offset_map, {key: at for at, key in enumerate(keys[:offset])}, keys[: offset + 1])
            offset_map.grow(memory_bytes=2 * offset_map.memory_bytes, load_factor=0.75)
            check(offset_map, {key: at for at, key in enumerate(keys[:offset])}, keys[: offset + 1])
    check(offset_map, {key: at for at, key in enumerate(keys)}, keys)
    assert offset_map.size_in_bytes == offset_map.memory_bytes + 1024 * SLOT_BYTES


def test_a_map_whose_slots_are_all_used_up_to_the_last_grows() -> None:
    offset_map = made(1, most=5000)
    count = 0
    while offset_map.put(b"%d" % count, count):
        count += 1
    assert count == 1024
    offset_map.grow(memory_bytes=3000 * SLOT_BYTES, load_factor=0.9)
    check(offset_map, {b"%d" % number: number for number in range(count)}, [b"%d" % number for number in range(count)])
    assert offset_map.put(b"new", 0)


def test_a_map_does_not_shrink() -> None:
    with pytest.raises(ValueError, match="expected at least 240 bytes"):
        made(10).grow(memory_bytes=239, load_factor=0.5)


@pytest.mark.parametrize("map_count", [0, 1, 2, 5])
def test_keys_of_several_maps_are_counted_once(map_count: int) -> None:
    rng = random.Random(map_count)
    for slots in (1, 50, 1500):
        maps, keys = [made(slots) for _ in range(map_count)], set[bytes]()
        for offset_map in maps:
            for number in rng.sample(range(600), rng.choice([0, 1, 300])):
                offset_map.put(b"%d" % number, number)
                keys.add(b"%d" % number)
        assert count_keys(maps) == len(keys)


def test_keys_under_different_secrets_are_not_counted() -> None:
    with pytest.raises(ValueError, match="different secrets"):
        count_keys([made(5), made(5, secret=bytes(16))])
