"""Goal: a follower gives nothing of a log that changes between its look at it and its read.
Method: a change is made at that moment, by a History, or an Env, that calls it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kstore import Record, open_log
from kstore.config import LogConfig
from kstore.errors import LogReplacedError
from kstore.log.following.follower import Follower
from kstore.log.following.tail import LogTail
from kstore.log.write.truncations import LiveHistory, Truncations
from kstore.log.write.writable_log import WritableLog
from tests.fakes.changing_files import (
    Change,
    ChangingEnv,
    compact,
    history,
    truncate,
    truncate_and_append,
    truncate_and_append_to_first_segment,
)
from tests.making.batches import batches, grow

CONFIG = LogConfig(segment_bytes=4000, index_interval_bytes=200)
LEAST_CALLS = 20


def append_each(log: WritableLog, count: int, tag: str = "") -> None:
    for _ in range(count):
        log.append([Record(offset=0, timestamp_ms=1, key=None, value=f"{log.log_end_offset}{tag}".encode())])


def values(follower: Follower[Record]) -> list[str]:
    return [(record.value or b"").decode() for record in follower]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WritableLog]:
    with open_log(tmp_path / "t-0", "a", CONFIG) as opened:
        yield opened


def once(tail: type[LogTail], name: str, change: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a change after the first call of a method."""
    method, is_due = getattr(tail, name), [True]

    def changed(self: LogTail) -> object:
        found = method(self)
        if is_due:
            is_due.clear()
            change()
        return found

    monkeypatch.setattr(tail, name, changed)


@pytest.mark.parametrize("place", ["_look", "_end", "_begin"])
@pytest.mark.parametrize("is_live", [True, False])
def test_truncation_between_a_look_and_a_read_is_noticed(
    log: WritableLog, monkeypatch: pytest.MonkeyPatch, place: str, is_live: bool
) -> None:
    append_each(log, 5)
    with open_log(log.path) as reader:
        follower = (log if is_live else reader).follow(timeout=0, auto_offset_reset="earliest")
        assert values(follower) == ["0", "1", "2", "3", "4"]
        append_each(log, 2)

        def change() -> None:
            log.truncate_to(3)
            append_each(log, 6, "new")

        once(LogTail, place, change, monkeypatch)
        assert values(follower) == [f"{offset}new" for offset in range(3, 9)]


def test_a_log_that_is_being_truncated_is_looked_at_later() -> None:
    truncations = Truncations()
    history = LiveHistory(truncations)
    history.start(10)
    with truncations.running(5):
        assert history.look(10) is None
        assert not history.is_current
    found = history.look(10)
    assert found is not None
    assert (found.is_truncated, found.truncated_to) == (True, 5)
    assert history.is_current


def pairs(follower: Follower[Record]) -> list[tuple[int, bytes]]:
    return [(record.offset, record.value or b"") for record in follower]


class RearmedEnv(ChangingEnv):
    def change_at(self, call: int, change: Callable[[], object]) -> None:
        """Count the calls from here on, and change the files before one of them."""
        self.calls, self._at, self._change = 0, call, change


def append_others(directory: Path) -> None:
    """Truncate the active segment in place to nothing, and append fewer and larger batches."""
    truncate(directory)
    grow(directory / f"{20:020d}.log", b"".join(batches(20, 5, value_bytes=400)))


def replace_last_batch(directory: Path) -> None:
    """Truncate the last batch, and append a larger one in its place."""
    log = directory / f"{20:020d}.log"
    os.truncate(log, log.stat().st_size - len(b"".join(batches(34, 1, value_bytes=70))))
    grow(log, b"".join(batches(34, 2, value_bytes=400)))


def append_to_the_end(directory: Path) -> None:
    grow(directory / f"{20:020d}.log", b"".join(batches(30, 5, value_bytes=70)))


@pytest.mark.parametrize(
    "change",
    [truncate_and_append, append_others, replace_last_batch, truncate, truncate_and_append_to_first_segment, compact],
)
@pytest.mark.parametrize("looks_before", [False, True])
def test_a_change_at_any_moment_of_a_look_is_followed(tmp_path: Path, change: Change, looks_before: bool) -> None:
    changed = history(tmp_path / "changed")
    append_to_the_end(changed)
    change(changed)
    with open_log(changed) as log:
        left = {record.offset: record.value or b"" for record in log.read()}
    for at in itertools.count():
        directory = history(tmp_path / f"at-{at}")
        env = RearmedEnv()
        with open_log(directory, env=env) as log:
            follower = log.follow(timeout=0, auto_offset_reset="earliest")
            given = pairs(follower)
            append_to_the_end(directory)
            given += pairs(follower) if looks_before else []
            env.change_at(at, lambda directory=directory: change(directory))
            given += pairs(follower)
            if env.calls <= at:
                break
            given += pairs(follower)
        view: dict[int, bytes] = {}
        for offset, value in given:
            view = {one: held for one, held in view.items() if one < offset} | {offset: value}
        assert len(given) == len(set(given)), at
        assert {one: held for one, held in view.items() if one in left} == left, at
    assert at > LEAST_CALLS


def test_a_batch_that_was_replaced_is_no_start_of_the_walk_to_the_end(tmp_path: Path) -> None:
    directory = history(tmp_path)
    append_to_the_end(directory)
    with open_log(directory) as log:
        *_, last = log.batches()
    with open_log(directory) as log:
        segment = log.segments[-1]
        segment.continue_from(last.header)
        replace_last_batch(directory)
        with pytest.raises(LogReplacedError, match="another"):
            _ = segment.tail
