"""Goal: the leader epoch cache answers, grows and is cut as Kafka's, and its file says the same after every step.
Method: tables of entries and calls; the checkpoint is read back by hand; an Env that fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kstore.env import DEFAULT_ENV, LocalEnv
from kstore.errors import CorruptCheckpointError, StorageError
from kstore.log.state.leader_epochs import LeaderEpochCache

Entries = list[tuple[int, int]]


class FullDisk(LocalEnv):
    """An Env that renames nothing."""

    def rename(self, source: str, target: str) -> None:
        raise StorageError(f"cannot rename {source} to {target}: no space", path=source)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "leader-epoch-checkpoint"


def cache_of(path: Path, entries: Entries, env: LocalEnv = DEFAULT_ENV) -> LeaderEpochCache:
    path.write_text(text_of(entries))
    return LeaderEpochCache(str(path), env)


def text_of(entries: Entries) -> str:
    return "".join(f"{line}\n" for line in ("0", len(entries), *(f"{epoch} {start}" for epoch, start in entries)))


ASSIGNMENTS = [
    pytest.param([], 0, 0, [(0, 0)], id="first"),
    pytest.param([], 7, 100, [(7, 100)], id="first-is-not-0"),
    pytest.param([(1, 10)], 2, 20, [(1, 10), (2, 20)], id="newer"),
    pytest.param([(1, 10)], 5, 11, [(1, 10), (5, 11)], id="epochs-are-left-out"),
    pytest.param([(1, 10)], 1, 20, None, id="same-epoch-later"),
    pytest.param([(1, 10)], 1, 10, None, id="same-entry"),
    pytest.param([(1, 10)], 1, 5, [(1, 5)], id="same-epoch-earlier"),
    pytest.param([(1, 10), (2, 20)], 3, 20, [(1, 10), (3, 20)], id="epoch-without-records"),
    pytest.param([(1, 10), (2, 20), (3, 30)], 4, 15, [(1, 10), (4, 15)], id="starts-below-others"),
    pytest.param([(1, 10), (2, 20), (3, 30)], 2, 40, [(1, 10), (2, 40)], id="older-epoch-wins"),
    pytest.param([(1, 10), (2, 20)], 0, 5, [(0, 5)], id="older-than-all"),
]


@pytest.mark.parametrize(("before", "epoch", "start_offset", "after"), ASSIGNMENTS)
def test_new_epoch_takes_the_place_of_what_contradicts_it(
    path: Path, before: Entries, epoch: int, start_offset: int, after: Entries | None
) -> None:
    cache = cache_of(path, before)
    assert cache.assign(epoch, start_offset=start_offset) is (after is not None)
    expected = before if after is None else after
    assert list(cache.entries) == expected
    assert path.read_text() == text_of(expected)
    assert LeaderEpochCache(str(path)).entries == cache.entries


@pytest.mark.parametrize(("epoch", "start_offset"), [(-1, 0), (0, -1)])
def test_negative_numbers_are_refused(path: Path, epoch: int, start_offset: int) -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        LeaderEpochCache(str(path)).assign(epoch, start_offset=start_offset)


THREE = [(2, 10), (4, 20), (7, 30)]
END_OFFSETS = [
    pytest.param([], 0, (-1, -1), id="nothing-is-known"),
    pytest.param(THREE, -1, (-1, -1), id="undefined"),
    pytest.param(THREE, 0, (0, 10), id="below-all"),
    pytest.param(THREE, 1, (1, 10), id="just-below-all"),
    pytest.param(THREE, 2, (2, 20), id="first"),
    pytest.param(THREE, 3, (2, 20), id="left-out"),
    pytest.param(THREE, 4, (4, 30), id="second"),
    pytest.param(THREE, 6, (4, 30), id="just-below-the-last"),
    pytest.param(THREE, 7, (7, 55), id="last-ends-at-the-log-end"),
    pytest.param(THREE, 8, (-1, -1), id="above-all"),
]


@pytest.mark.parametrize(("entries", "epoch", "expected"), END_OFFSETS)
def test_end_of_an_epoch_is_the_start_of_the_next(
    path: Path, entries: Entries, epoch: int, expected: tuple[int, int]
) -> None:
    assert cache_of(path, entries).end_offset_for(epoch, log_end_offset=55) == expected


@pytest.mark.parametrize(("offset", "epoch"), [(9, None), (10, 2), (19, 2), (20, 4), (30, 7), (2**62, 7)])
def test_epoch_of_an_offset(path: Path, offset: int, epoch: int | None) -> None:
    assert cache_of(path, THREE).epoch_for_offset(offset) == epoch


CUTS: list[object] = [
    pytest.param("truncate_from_end", 31, THREE, id="end-above-all"),
    pytest.param("truncate_from_end", 30, THREE[:2], id="end-at-a-start"),
    pytest.param("truncate_from_end", 21, THREE[:2], id="end-inside"),
    pytest.param("truncate_from_end", 0, [], id="end-at-0"),
    pytest.param("truncate_from_start", 9, THREE, id="start-below-all"),
    pytest.param("truncate_from_start", 10, THREE, id="start-at-the-first"),
    pytest.param("truncate_from_start", 15, [(2, 15), (4, 20), (7, 30)], id="start-inside-the-first"),
    pytest.param("truncate_from_start", 20, [(4, 20), (7, 30)], id="start-at-the-second"),
    pytest.param("truncate_from_start", 29, [(4, 29), (7, 30)], id="start-just-below-the-third"),
    pytest.param("truncate_from_start", 99, [(7, 99)], id="start-above-all"),
]


@pytest.mark.parametrize(("cut", "offset", "expected"), CUTS)
def test_cut_log_has_the_epochs_of_what_is_left(path: Path, cut: str, offset: int, expected: Entries) -> None:
    cache = cache_of(path, THREE)
    method: Callable[[int], None] = getattr(cache, cut)
    method(offset)
    assert list(cache.entries) == expected
    assert path.read_text() == text_of(expected)


def test_empty_cache_can_be_cut_and_cleared(path: Path) -> None:
    cache = LeaderEpochCache(str(path))
    cache.truncate_from_end(0)
    cache.truncate_from_start(5)
    cache.clear()
    assert cache.entries == ()
    assert cache.latest_epoch == -1
    assert not path.exists()


def test_cleared_cache_leaves_an_empty_checkpoint(path: Path) -> None:
    cache = cache_of(path, THREE)
    assert cache.latest_entry == (7, 30)
    cache.clear()
    assert path.read_text() == "0\n0\n"
    assert cache.entries == ()


def test_without_a_path_nothing_is_written(tmp_path: Path) -> None:
    cache = LeaderEpochCache(None)
    assert cache.assign(3, start_offset=5)
    assert cache.latest_epoch == 3
    assert not list(tmp_path.iterdir())


def test_file_whose_entries_fall_is_read_as_if_they_came_one_by_one(path: Path) -> None:
    assert list(cache_of(path, [(1, 10), (3, 30), (2, 20), (4, 40)]).entries) == [(1, 10), (2, 20), (4, 40)]


def test_malformed_file_is_an_error(path: Path) -> None:
    path.write_text("0\n1\nx 0\n")
    with pytest.raises(CorruptCheckpointError, match="line 3"):
        LeaderEpochCache(str(path))


CHANGES: list[object] = [
    pytest.param(lambda cache: cache.assign(9, start_offset=90), id="assign"),
    pytest.param(lambda cache: cache.truncate_from_end(20), id="truncate-from-end"),
    pytest.param(lambda cache: cache.truncate_from_start(20), id="truncate-from-start"),
    pytest.param(lambda cache: cache.clear(), id="clear"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_change_that_can_not_be_written_is_none(path: Path, change: Callable[[LeaderEpochCache], object]) -> None:
    cache = cache_of(path, THREE, FullDisk())
    with pytest.raises(StorageError, match="no space"):
        change(cache)
    assert list(cache.entries) == THREE
    assert path.read_text() == text_of(THREE)
