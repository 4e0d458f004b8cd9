"""Goal: a search for batches in a damaged file that is truncated during the search ends, with what is left or with
LogReplacedError.
Method: an Env that truncates the file right before the n-th call of the system, for every n, at the start of a batch,
in one and to nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from kstore.config import LogConfig
from kstore.errors import LogReplacedError, StorageError
from kstore.log.files.names import PartitionDirectory
from kstore.log.log import Log
from kstore.log.recovery.load import load_log
from kstore.log.verify import verify
from kstore.store.checks import recover
from kstore.store.opening import open_log
from kstore.types import TopicPartition
from tests.fakes.changing_files import COUNT, ChangingEnv, history, log_file
from tests.making.batches import batches, zero

VALUE_BYTES = 3000
BATCHES = batches(20, 10, value_bytes=VALUE_BYTES)
# Small, so that the files are read in many calls.
CONFIG = LogConfig(read_chunk_bytes=4096)


def verified(log: Log) -> object:
    return list(verify(log, env=log._env))


def read_skipping(log: Log) -> list[int]:
    return [record.offset for record in log.read(on_error="skip")]


def columns_skipping(log: Log) -> list[int]:
    tables = log.to_arrow_batches(columns=["offset"], on_error="skip")
    return [offset for table in tables for offset in table["offset"].to_pylist()]


def damaged_history(root: Path, *, value_bytes: int = VALUE_BYTES) -> Path:
    """A partition whose last segment has lost the headers of its third and its seventh batch, and its indexes."""
    directory = history(root, value_bytes=value_bytes)
    log = log_file(directory, 20)
    for number in (2, 6):
        zero(log, sum(map(len, BATCHES[:number])) + 8, size=22)
    for suffix in (".index", ".timeindex"):
        log.with_suffix(suffix).write_bytes(b"")
    return directory


MIDDLE = sum(map(len, BATCHES[:4])) + 30


@pytest.mark.parametrize(
    ("use", "left"),
    [(verified, 0), (verified, MIDDLE), (read_skipping, 0), (read_skipping, MIDDLE), (columns_skipping, 0)],
)
def test_search_for_batches_ends_in_a_file_that_is_truncated_meanwhile(
    tmp_path: Path, use: Callable[[Log], object], left: int
) -> None:
    at, is_changed = 0, True
    while is_changed:
        directory = damaged_history(tmp_path / str(at))
        path = log_file(directory, 20)
        env = ChangingEnv(lambda path=path: os.truncate(path, left), at=at)
        try:
            with open_log(directory, config=CONFIG, env=env) as log:
                found = use(log)
            assert use is verified or set(range(20)) <= set(found) <= set(range(COUNT))
        except LogReplacedError:
            pass
        is_changed = env.calls > at
        at += 1
    assert at > 20


def loaded_clean(root: Path, env: ChangingEnv) -> None:
    directory = PartitionDirectory(TopicPartition("t", 0), str(root / "t-0"), str(root))
    load_log(directory, is_clean=True, config=CONFIG, env=env)


def salvaged(root: Path, env: ChangingEnv) -> None:
    (root / "t-0" / f"{10:020d}.log").write_bytes(b"")
    recover(root, "salvage", dry_run=True, config=CONFIG, env=env)


@pytest.mark.parametrize(("use", "made"), [(loaded_clean, history), (salvaged, damaged_history)])
def test_recovery_ends_in_a_file_that_is_truncated_meanwhile(
    tmp_path: Path, use: Callable[[Path, ChangingEnv], None], made: Callable[..., Path]
) -> None:
    at, is_changed = 0, True
    while is_changed:
        directory = made(tmp_path / str(at), value_bytes=VALUE_BYTES)
        path = log_file(directory, 20)
        env = ChangingEnv(lambda path=path: os.truncate(path, 0), at=at)
        with suppress(StorageError, LogReplacedError):
            use(directory.parent, env)
        is_changed = env.calls > at
        at += 1
    assert at > 5
