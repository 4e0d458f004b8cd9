"""Goal: schemes that pyarrow does not know are read through fsspec.
Method: the flights in fsspec's memory."""

from __future__ import annotations

from collections.abc import Iterator

import fsspec
import pytest

import kstore
from kstore import open_log
from kstore.errors import LogNotFoundError
from tests.urls.conftest import FLIGHTS


@pytest.fixture
def in_memory() -> Iterator[str]:
    memory = fsspec.filesystem("memory")
    for path in sorted(FLIGHTS.rglob("*")):
        if path.is_file():
            memory.pipe(f"/flights/{path.relative_to(FLIGHTS).as_posix()}", path.read_bytes())
    yield "memory://flights"
    memory.rm("/flights", recursive=True)


def test_files_of_fsspec_read_as_local_ones(in_memory: str) -> None:
    assert kstore.scan(in_memory).to_table() == kstore.scan(FLIGHTS).to_table()
    with open_log(f"{in_memory}/flights-lz4-1") as log, open_log(FLIGHTS / "flights-lz4-1") as local:
        assert log.log_end_offset == local.log_end_offset
        assert [one.value for one in log.read()] == [one.value for one in local.read()]
    assert kstore.verify(in_memory).is_unharmed


def test_missing_directory_of_fsspec_is_no_log() -> None:
    with pytest.raises(LogNotFoundError):
        open_log("memory://nowhere/t-0")
