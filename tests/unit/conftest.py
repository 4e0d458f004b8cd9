"""Files that several unit tests begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.record_files import DATA


@pytest.fixture
def log_path(tmp_path: Path) -> Path:
    """Where a file of records may be made."""
    return tmp_path / "00000000000000000100.log"


@pytest.fixture
def written_log(log_path: Path) -> Path:
    """A file of the batches of record_files."""
    log_path.write_bytes(DATA)
    return log_path
