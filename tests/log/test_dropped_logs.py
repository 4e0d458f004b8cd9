"""Goal: the files of a log that nobody reads any more are closed though its close() was not called, and no others.
Method: logs, followers and iterators that are dropped; the open files of the process under the log's directory."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kstore.log import Log
from kstore.store import open_log, open_store
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
