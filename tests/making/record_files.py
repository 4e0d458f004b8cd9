"""What the tests of FileRecords share: six batches at their positions, parts of them, and a system call that fails."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from kstore.config import LogConfig
from kstore.log.segment.file_records import FileRecordsSlice
from tests.making.batches import batches

BATCHES = batches(100, 6, records_per_batch=3, value_bytes=700)
POSITIONS = [sum(map(len, BATCHES[:number])) for number in range(len(BATCHES) + 1)]
SIZE = POSITIONS[-1]
DATA = b"".join(BATCHES)
SMALL_CHUNKS = LogConfig(read_chunk_bytes=4096)
# Position and size of parts of DATA.
SLICES = [
    pytest.param(0, 0, id="nothing"),
    pytest.param(0, SIZE, id="whole"),
    pytest.param(0, SIZE + 1, id="one-too-many"),
    pytest.param(POSITIONS[1], len(BATCHES[1]), id="one-batch"),
    pytest.param(POSITIONS[2] + 5, 100, id="inside-a-batch"),
    pytest.param(SIZE, 10, id="at-the-end"),
    pytest.param(SIZE - 1, 2**31 - 1, id="int32-sum-overflows"),
    pytest.param(POSITIONS[1], 2**63 - 1, id="int64-sum-overflows"),
]


def content(records: FileRecordsSlice) -> bytes:
    return bytes(records.read())


def failing(code: int) -> Callable[..., Any]:
    """A system call that raises an OSError of that code."""

    def fail(*_: Any) -> Any:
        raise OSError(code, os.strerror(code))

    return fail
