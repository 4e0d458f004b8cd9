"""Fixtures over the packed sets; one test per set and question, nothing unpacked while collecting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

DirectoryState = dict[str, tuple[int, int, int]]


@pytest.fixture
def unchanged() -> Iterator[Callable[[Path], None]]:
    """Give a function that notes a directory; at the end of the test each noted one must list the same files.

    Compared: names, sizes, modification times and modes of everything below it.
    """
    noted: dict[Path, DirectoryState] = {}

    def note(directory: Path) -> None:
        noted[directory] = directory_state(directory)

    yield note
    for directory, state in noted.items():
        assert directory_state(directory) == state, f"{directory} was written to"


def directory_state(directory: Path) -> DirectoryState:
    state = {}
    for path in sorted(directory.rglob("*")):
        status = path.stat()
        state[str(path.relative_to(directory))] = (status.st_size, status.st_mtime_ns, status.st_mode)
    return state
