"""Goal: of the rows of batches that a search finds in damaged bytes, those count that the order of the log allows."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from kstore.log.damaged.order import Row, WholeBatch, dense_rows, rows_in_order, rows_of
from tests.making.collecting import over

SIZE = 100


def row(position: int, first_offset: int, count: int = 1) -> Row:
    """A row of batches of SIZE bytes and one record each."""
    slots = range(count)
    return Row(tuple(WholeBatch(position + SIZE * slot, SIZE, first_offset + slot, 0) for slot in slots))


def test_row_ends_where_a_byte_or_the_order_of_offsets_is_missing() -> None:
    batches = [*row(0, 5, 2).batches, *row(200, 9).batches, *row(300, 9).batches, *row(401, 10).batches]
    assert [(one.position, one.first_offset, len(one.batches)) for one in rows_of(batches)] == [
        (0, 5, 3),
        (300, 9, 1),
        (401, 10, 1),
    ]


@pytest.mark.parametrize(("first_offset", "is_kept"), [(3, False), (4, False), (5, True), (8, True), (9, False)])
def test_row_leaves_an_offset_for_the_damage_before_it_and_ends_below_the_end(first_offset: int, is_kept: bool) -> None:
    only = row(0, first_offset, 2)
    assert rows_in_order([only], least_offset=4, end_offset=10) == ([only] if is_kept else [])


def test_rows_with_the_most_batches_are_kept() -> None:
    rows = [row(0, 5, 2), row(300, 50), row(500, 9, 3), row(900, 8), row(1100, 20)]
    assert rows_in_order(rows, least_offset=0, end_offset=100) == [rows[0], rows[2], rows[4]]


def best_by_trying(rows: list[Row], *, least_offset: int, end_offset: int) -> int:
    """The most batches of any rows in order, by trying all."""
    best = 0
    for count in range(len(rows) + 1):
        for chosen in combinations(rows, count):
            last, is_in_order = least_offset - 1, True
            for one in chosen:
                is_in_order &= one.first_offset > last + 1 and one.last_offset < end_offset
                last = one.last_offset
            best = max(best, sum(len(one.batches) for one in chosen)) if is_in_order else best
    return best


@over("seed", range(200), by=lambda _: "seeds")
def test_no_other_rows_in_order_have_more_batches(seed: int) -> None:
    rng = random.Random(seed)
    rows = [row(1000 * slot, rng.randrange(20), rng.randint(1, 4)) for slot in range(rng.randint(0, 8))]
    bounds = {"least_offset": rng.randrange(4), "end_offset": rng.randint(10, 25)}
    kept = rows_in_order(rows, **bounds)
    assert sum(len(one.batches) for one in kept) == best_by_trying(rows, **bounds)
    assert best_by_trying(kept, **bounds) == sum(len(one.batches) for one in kept)


@pytest.mark.parametrize(("count", "is_dense"), [(10, False), (11, True)])
def test_row_is_dense_with_more_batches_than_the_bytes_around_it_can_have_records(count: int, is_dense: bool) -> None:
    only = row(30, 5, count)
    assert dense_rows([only], start=0, end_position=only.end_position + 40) == ([only] if is_dense else [])


@over("seed", range(100), by=lambda _: "seeds")
def test_row_is_dense_only_if_no_batch_over_any_rows_beside_it_can_hold_it(seed: int) -> None:
    rng = random.Random(seed)
    rows, position = [], 0
    gaps = []
    for slot in range(rng.randint(1, 6)):
        gaps.append(rng.randrange(1, 120))
        rows.append(row(position + gaps[-1], slot * 100, rng.randint(1, 20)))
        position = rows[-1].end_position
    gaps.append(rng.randrange(120))
    counts = [len(one.batches) for one in rows]
    expected = [
        rows[slot]
        for slot in range(len(rows))
        if all(
            7 * sum(counts[first : last + 1]) > sum(gaps[first : last + 2])
            for first in range(slot + 1)
            for last in range(slot, len(rows))
        )
    ]
    assert dense_rows(rows, start=0, end_position=position + gaps[-1]) == expected
