"""What several unit tests begin with: files of records, and the core as Cython translates it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kstore.log import WritableStore, open_store
from tests.record_files import DATA
from tests.source_tree import copy_sources


class Translation(NamedTuple):
    """A copy of the sources with the C that Cython made of the core in it, and what it printed on the way."""

    tree: Path
    log: str


@pytest.fixture(scope="session")
def translation(tmp_path_factory: pytest.TempPathFactory) -> Translation:
    """Made once for all that look at it or build of it; they run on one worker."""
    tree = copy_sources(tmp_path_factory.mktemp("core") / "tree")
    command = [sys.executable, "setup.py", "--quiet", "--name"]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return Translation(tree, done.stdout + done.stderr)


@pytest.fixture
def log_path(tmp_path: Path) -> Path:
    """Where a file of records may be made."""
    return tmp_path / "00000000000000000100.log"


@pytest.fixture
def written_log(log_path: Path) -> Path:
    """A file of the batches of record_files."""
    log_path.write_bytes(DATA)
    return log_path


@pytest.fixture
def store(tmp_path: Path) -> Iterator[WritableStore]:
    """A Store for a producer: the topic "topic" of three partitions, and the states of transactions."""
    with open_store(tmp_path / "root", "a") as opened:
        opened.create_topic("topic", partitions=3)
        opened.create_topic("__transaction_state", partitions=1)
        yield opened
