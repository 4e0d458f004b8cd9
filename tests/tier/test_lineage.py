"""Goal: each offset is served by a segment that has it in the epoch of the lineage, and none that has not.
Method: segments by offsets and epochs alone; every choice is compared with the rule for one offset, asked for each."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.log.files.checkpoints import EpochEntry
from kstore.log.state.leader_epochs import epoch_of_offset
from kstore.tier.lineage import (
    Piece,
    RemoteSegment,
    as_of_epoch,
    choose_pieces,
    epochs_beside,
    epochs_within,
    heads_of,
    valid_parts,
)

Epochs = Sequence[tuple[int, int]]


def entries(epochs: Epochs) -> list[EpochEntry]:
    return [EpochEntry(*entry) for entry in epochs]


def segment(start: int, end: int, epochs: Epochs | None = None, *, name: str = "") -> RemoteSegment:
    own = entries(epochs if epochs is not None else [(0, start)])
    return RemoteSegment(name or f"{start}-{end}", start, end, tuple(own), 100, 0)


def chosen(pieces: Sequence[Piece]) -> list[tuple[str | None, int, int]]:
    return [(None if piece.segment is None else piece.segment.segment_id, piece.first, piece.last) for piece in pieces]


def choose(
    segments: Sequence[RemoteSegment], lineage: Epochs = ((0, 0),), *, start: int = 0, end: int | None = None
) -> list[tuple[str | None, int, int]]:
    return chosen(choose_pieces(segments, entries(lineage), start_offset=start, end_offset=end))


def test_segments_of_one_epoch_follow_each_other() -> None:
    assert choose([segment(10, 19), segment(0, 9)]) == [("0-9", 0, 9), ("10-19", 10, 19)]


def test_of_two_finished_segments_of_one_start_offset_the_lineage_tells_which_is_right() -> None:
    """Epoch 0 was abandoned at 58: the one uploaded first goes on with what was lost."""
    abandoned = segment(33, 62, [(0, 33)])
    right = segment(33, 61, [(0, 33), (2, 58)])
    below = segment(0, 32)
    for order in ([below, abandoned, right], [right, abandoned, below]):
        assert choose(order, [(0, 0), (2, 58)]) == [("0-32", 0, 32), ("33-61", 33, 61)]
    assert choose([below, abandoned], [(0, 0), (2, 58)]) == [("0-32", 0, 32), ("33-62", 33, 57)]


def test_a_segment_that_was_uploaded_twice_is_taken_once() -> None:
    assert choose([segment(0, 9, name="a"), segment(0, 9, name="b"), segment(10, 19)]) in (
        [("a", 0, 9), ("10-19", 10, 19)],
        [("b", 0, 9), ("10-19", 10, 19)],
    )


def test_where_two_overlap_the_later_one_takes_over_from_its_first_offset_on() -> None:
    assert choose([segment(0, 50), segment(33, 80)]) == [("0-50", 0, 32), ("33-80", 33, 80)]


def test_a_segment_inside_of_another_is_left_out() -> None:
    assert choose([segment(0, 50), segment(20, 30), segment(51, 60)]) == [("0-50", 0, 50), ("51-60", 51, 60)]


def test_what_is_missing_between_two_segments_is_a_gap() -> None:
    assert choose([segment(0, 9), segment(20, 29)]) == [("0-9", 0, 9), (None, 10, 19), ("20-29", 20, 29)]


def test_what_is_missing_before_the_local_log_is_a_gap() -> None:
    assert choose([segment(0, 9)], end=30) == [("0-9", 0, 9), (None, 10, 29)]
    assert choose([segment(0, 9)], end=10) == [("0-9", 0, 9)]


def test_the_log_starts_with_the_first_segment_that_serves() -> None:
    assert choose([segment(20, 29)]) == [("20-29", 20, 29)]
    assert choose([], end=30) == []


def test_the_log_start_may_lie_inside_of_a_segment() -> None:
    assert choose([segment(0, 89), segment(90, 99)], start=61) == [("0-89", 61, 89), ("90-99", 90, 99)]
    assert choose([segment(0, 60), segment(61, 99)], start=61) == [("61-99", 61, 99)]


def test_the_local_log_may_start_inside_of_a_segment() -> None:
    assert choose([segment(0, 89)], end=40) == [("0-89", 0, 39)]
    assert choose([segment(0, 39), segment(40, 89)], end=40) == [("0-39", 0, 39)]


def test_a_lineage_that_starts_above_a_segment_leaves_its_beginning_out() -> None:
    assert choose([segment(33, 61, [(0, 33), (2, 58)])], [(2, 58)]) == [("33-61", 58, 61)]


def test_a_segment_of_an_epoch_that_the_lineage_does_not_have_is_left_out() -> None:
    assert choose([segment(0, 9, [(1, 0)]), segment(10, 19, [(3, 10)])], [(0, 0), (3, 10)]) == [("10-19", 10, 19)]


def test_parts_of_a_segment_are_those_whose_epochs_agree() -> None:
    both = segment(10, 29, [(1, 10), (2, 20)])
    assert valid_parts(both, entries([(1, 0), (2, 20)])) == [(10, 29)]
    assert valid_parts(both, entries([(1, 0), (2, 15)])) == [(10, 14), (20, 29)]
    assert valid_parts(both, entries([(1, 0), (3, 25)])) == [(10, 19)]
    assert valid_parts(both, entries([(1, 12)])) == [(12, 19)]
    assert valid_parts(both, entries([(5, 0)])) == []


def test_the_head_of_a_tier_has_the_highest_last_epoch_and_then_the_highest_end() -> None:
    first = segment(0, 9, [(4, 0)])
    longest = segment(0, 99, [(3, 0)])
    head = segment(5, 30, [(3, 5), (4, 8)])
    assert heads_of([longest, first, head, segment(0, 999, [])]) == [head, first, longest]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(0, 9, [(0, 0)]), (5, 25, [(0, 5), (2, 10), (3, 20)]), (10, 19, [(2, 10)]), (11, 20, [(2, 11), (3, 20)])],
)
def test_the_epochs_of_a_segment_are_those_of_the_log_within_it(start: int, end: int, expected: Epochs) -> None:
    lineage = entries([(0, 0), (2, 10), (3, 20)])
    assert epochs_within(lineage, start_offset=start, end_offset=end) == tuple(entries(expected))


@st.composite
def lineages(draw: st.DrawFn) -> list[EpochEntry]:
    starts = sorted(draw(st.sets(st.integers(0, 60), min_size=1, max_size=4)))
    epochs = sorted(draw(st.sets(st.integers(0, 9), min_size=len(starts), max_size=len(starts))))
    return entries(list(zip(epochs, starts, strict=True)))


@st.composite
def segments(draw: st.DrawFn) -> list[RemoteSegment]:
    made = []
    for number in range(draw(st.integers(0, 6))):
        own = draw(lineages())
        start = draw(st.integers(0, 60))
        end = draw(st.integers(start, 80))
        within = epochs_within(own, start_offset=start, end_offset=end)
        if within:
            made.append(segment(within[0].start_offset, end, within, name=str(number)))
    return made


@given(segments(), lineages(), st.integers(0, 60), st.none() | st.integers(1, 90))
def test_each_offset_is_served_by_a_segment_that_has_it_in_its_epoch(
    made: list[RemoteSegment], lineage: list[EpochEntry], start: int, end: int | None
) -> None:
    pieces = choose_pieces(made, lineage, start_offset=start, end_offset=end)
    served = {offset for one in made for first, last in valid_parts(one, lineage) for offset in range(first, last + 1)}
    wanted = {offset for offset in served if offset >= start and (end is None or offset < end)}
    found: set[int] = set()
    for piece in pieces:
        offsets = set(range(piece.first, piece.last + 1))
        assert offsets
        assert min(offsets) > max(found, default=-1)
        if piece.segment is None:
            assert not offsets & wanted
            continue
        found |= offsets
        own = piece.segment.epochs
        for offset in offsets:
            assert epoch_of_offset(own, offset) == epoch_of_offset(lineage, offset)
    assert found == wanted


def test_segments_as_of_an_epoch_end_where_the_next_one_begins() -> None:
    both, later = segment(33, 61, [(0, 33), (2, 58)]), segment(62, 70, [(2, 62)])
    (cut,) = as_of_epoch([both, later], 0)
    assert (cut.epochs, cut.start_offset, cut.end_offset) == ((EpochEntry(0, 33),), 33, 57)
    assert as_of_epoch([both, later], 2) == [both, later]
    assert as_of_epoch([both, later], 1) == []


def test_epochs_beside_a_lineage_are_those_of_segments_that_go_on_without_it() -> None:
    lineage = entries([(0, 0), (2, 58)])
    abandoned, right = segment(33, 62, [(0, 33)]), segment(33, 61, [(0, 33), (2, 58)])
    assert epochs_beside([segment(0, 32), right], lineage) == []
    assert epochs_beside([segment(0, 32), abandoned, right], lineage) == [0]
    assert epochs_beside([right, segment(60, 80, [(1, 60)]), abandoned], lineage) == [0, 1]


def test_segments_below_the_start_of_a_lineage_are_not_beside_it() -> None:
    assert epochs_beside([segment(0, 57), segment(58, 61, [(2, 58)])], entries([(2, 58)])) == []
