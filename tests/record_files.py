"""What the tests of FileRecords share: six batches at their positions, and a system call that fails."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from kstore.config import LogConfig
from kstore.log.file_records import FileRecordsSlice
from tests.builders import batches

BATCHES = batches(100, 6, records_per_batch=3, value_bytes=700)
POSITIONS = [sum(map(len, BATCHES[:number])) for number in range(len(BATCHES) + 1)]
SIZE = POSITIONS[-1]
DATA = b"".join(BATCHES)
SMALL_CHUNKS = LogConfig(read_chunk_bytes=4096)


def content(records: FileRecordsSlice) -> bytes:
    return bytes(records.read())


def failing(code: int) -> Callable[..., Any]:
    """A system call that raises an OSError of that code."""

    def fail(*_: Any) -> Any:
        raise OSError(code, os.strerror(code))

    return fail
