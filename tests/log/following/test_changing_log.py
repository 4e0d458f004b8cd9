"""Goal: a follower gives nothing of a log that changes between its look at it and its read.
Method: a change is made at that moment, by a History, or an Env, that calls it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kstore import Record, open_log
from kstore.config import LogConfig
from kstore.log import Follower, WritableLog
from kstore.log.following.tail import LogTail
from kstore.log.write.truncations import LiveHistory, Truncations

CONFIG = LogConfig(segment_bytes=4000, index_interval_bytes=200)


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
