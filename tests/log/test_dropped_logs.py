"""Goal: the files of a log that nobody reads any more are closed though its close() was not called, and no others.
Method: logs, followers and iterators that are dropped; the open files of the process under the log's directory."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kstore.env.files import OPEN_FILES, REWRITTEN_FILES
from kstore.log.log import Log
from kstore.record import Record
from kstore.store.opening import open_log
from kstore.store.store import open_store
from tests.making.batches import batches, write_root

SEGMENTS = [batches(10 * number, 2, records_per_batch=5) for number in range(3)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_root(tmp_path / "data", {"t-0": SEGMENTS, "t-1": SEGMENTS})


def open_files(root: Path) -> int:
    """Return how many files under a directory this process has open, after a collection of garbage."""
    gc.collect()
    found = 0
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{descriptor}").startswith(f"{root}/")
        except FileNotFoundError:
            continue
    return found


def with_first(reader: Any) -> Any:
    found = iter(reader)
    next(found)
    return found


READERS: dict[str, Callable[[Log], Iterator[Any]]] = {
    "read": lambda log: log.read(),
    "batches": lambda log: log.batches(),
    "arrow": lambda log: log.to_arrow_batches(batch_bytes=1),
    "follow": lambda log: log.follow(0, timeout=0),
}


@pytest.mark.parametrize("name", READERS)
def test_dropped_reader_of_a_dropped_log_closes_its_files_and_not_before(root: Path, name: str) -> None:
    reader = with_first(READERS[name](open_log(root / "t-0")))
    assert open_files(root) > 0
    del reader
    assert open_files(root) == 0


@pytest.mark.parametrize("name", READERS)
def test_reader_of_a_dropped_log_reads_to_the_end(root: Path, name: str) -> None:
    reader = READERS[name](open_log(root / "t-0"))
    gc.collect()
    rows = 0
    for one in reader:
        gc.collect()
        rows += getattr(one, "num_rows", getattr(one, "record_count", 1))
    assert rows == 30


def test_dropped_follower_of_an_open_log_closes_its_files(root: Path) -> None:
    with open_log(root / "t-0") as log:
        for _ in range(3):
            with_first(log.follow(0, timeout=0))
        assert open_files(root) == 0
        with_first(log.read())
        assert open_files(root) > 0
    assert open_files(root) == 0


def test_dropped_store_and_its_follower_close_their_files(root: Path) -> None:
    with_first(open_store(root).follow(["t"], auto_offset_reset="earliest", timeout=0))
    assert open_files(root) == 0


def test_one_of_two_logs_keeps_its_files(root: Path) -> None:
    kept = open_log(root / "t-0")
    with_first(kept.read())
    before = open_files(root)
    with_first(open_log(root / "t-0").read())
    assert open_files(root) == before
    assert len(list(kept.read())) == 30
    kept.close()
    assert open_files(root) == 0


def drop(logs: list[Any]) -> None:
    logs.clear()
    gc.collect()


class LockOfOneThread:
    """A lock of one thread, for which it would wait for ever if it took it twice: that is an error here."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def acquire(self, blocking: bool = True) -> bool:
        assert not blocking or not self._lock.locked(), "the thread waits for itself"
        return self._lock.acquire(blocking)

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def test_a_writer_that_is_collected_while_its_thread_opens_a_file_does_not_wait_for_that_thread(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = LockOfOneThread()
    for cache in (OPEN_FILES, REWRITTEN_FILES):
        monkeypatch.setattr(cache, "_lock", lock)
    with open_store(root, "a") as store:
        store.create_topic("u")
    logs = [open_log(root / "u-0", "a")]
    logs[0].append([Record(value=b"x")], ack="flushed")
    assert open_files(root / "u-0") > 0
    with lock, pytest.warns(ResourceWarning, match="unclosed log"):
        drop(logs)
    open_log(root / "t-0", "a").close()
    assert open_files(root / "u-0") == 0
