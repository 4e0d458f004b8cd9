"""Goal: a watch tells of every change in its directories, whether the system reports it or not, and costs nothing else.
Method: real directories and files; a watch without notifications, too many watches, and events made by hand."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from kstore._core import add_watch, is_watchable, open_watches, remove_watch
from kstore.env import DEFAULT_ENV, DirectoryWatch, LocalEnv, PollInterval
from kstore.env import watching as module

INTERVAL = PollInterval(least_s=0.005, most_s=0.02)
WAIT = 20.0


@pytest.fixture
def directories(tmp_path: Path) -> list[str]:
    paths = [tmp_path / name for name in "abc"]
    for path in paths:
        path.mkdir()
    return [str(path) for path in paths]


@pytest.fixture
def watch(directories: list[str]) -> DirectoryWatch:
    watch = DEFAULT_ENV.watch()
    for directory in directories:
        watch.add(directory)
    if not watch.is_notified:
        pytest.skip("the file system of the temporary folder reports no changes")
    return watch


def write(directory: str, name: str = "file", data: bytes = b"x") -> None:
    with (Path(directory) / name).open("ab") as file:
        file.write(data)


def test_each_change_is_told_once_by_its_directory(watch: DirectoryWatch, directories: list[str]) -> None:
    first, second, _ = directories
    assert watch.take() == frozenset()
    write(first)
    write(second)
    assert watch.wait(WAIT, idle_s=0) == {first, second}
    assert watch.take() == frozenset()
    write(first)
    assert watch.wait(WAIT, idle_s=0) == {first}
    (Path(second) / "file").rename(Path(second) / "other")
    assert watch.wait(WAIT, idle_s=0) == {second}
    (Path(second) / "other").unlink()
    assert watch.wait(WAIT, idle_s=0) == {second}


def test_a_directory_that_goes_away_is_a_change(watch: DirectoryWatch, directories: list[str]) -> None:
    first, second, _ = directories
    Path(first).rename(f"{first}-gone")
    assert first in watch.wait(WAIT, idle_s=0)
    Path(second).rmdir()
    assert second in watch.wait(WAIT, idle_s=0)


def test_a_directory_that_is_removed_from_a_watch_is_told_no_longer(
    watch: DirectoryWatch, directories: list[str]
) -> None:
    watch.remove(directories[0])
    watch.remove(directories[0])
    write(directories[0])
    write(directories[1])
    assert watch.wait(WAIT, idle_s=0) == {directories[1]}
    watch.add(directories[0])
    write(directories[0])
    assert watch.wait(WAIT, idle_s=0) == {directories[0]}


def test_lost_notifications_are_changes_everywhere(watch: DirectoryWatch, directories: list[str]) -> None:
    lost = module._EVENT.pack(-1, module._OVERFLOW, 0, 0)
    named = module._EVENT.pack(watch._watch_of[directories[0]], 2, 0, 16) + b"name".ljust(16, b"\0")
    assert watch._directories_in(named) == {directories[0]}
    assert watch._directories_in(named + lost) == {*directories}


def test_what_cannot_be_watched_is_looked_at(directories: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[bytes] = []

    def add_one(fd: int, path: bytes) -> int:
        if watched:
            raise OSError(28, "No space left on device")
        watched.append(path)
        return add_watch(fd, path)

    monkeypatch.setattr(module, "add_watch", add_one)
    watch = LocalEnv().watch()
    for directory in directories:
        watch.add(directory)
    if not watched:
        pytest.skip("the file system of the temporary folder reports no changes")
    assert not watch.is_notified
    assert watch.wait(0, idle_s=0) == {*directories[1:]}
    write(directories[0])
    assert watch.take() == {*directories}


def test_without_notifications_looks_become_rarer(directories: list[str]) -> None:
    watch = DirectoryWatch(INTERVAL, uses_notifications=False)
    assert watch.poll_s(0) is None
    watch.add(directories[0])
    assert [watch.poll_s(idle_s) for idle_s in (0, 0.1, 60)] == [0.005, 0.01, 0.02]
    began = time.monotonic()
    assert watch.wait(None, idle_s=60) == {directories[0]}
    assert time.monotonic() - began >= 0.02


def test_wake_and_report_end_a_wait(watch: DirectoryWatch, directories: list[str]) -> None:
    watch.wake()
    assert watch.wait(None, idle_s=0) == frozenset()
    threading.Timer(0.02, lambda: watch.report("elsewhere")).start()
    assert watch.wait(WAIT, idle_s=0) == {"elsewhere"}


def test_a_closed_watch_tells_nothing(watch: DirectoryWatch, directories: list[str]) -> None:
    write(directories[0])
    watch.close()
    watch.close()
    watch.wake()
    assert watch.take() == frozenset()


def test_core_calls_raise_what_the_system_says(directories: list[str], tmp_path: Path) -> None:
    missing = str(tmp_path / "missing").encode()
    with pytest.raises(FileNotFoundError):
        is_watchable(missing)
    with pytest.raises(OSError, match="Bad file descriptor"):
        add_watch(-1, directories[0].encode())
    with pytest.raises(OSError, match="Bad file descriptor"):
        remove_watch(-1, watch=1)
    assert open_watches() >= 0
