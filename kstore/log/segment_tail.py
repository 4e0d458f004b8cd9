"""find_tail: where the last segment of a log ends, from its index entries and a look at the headers behind them.

Layer 5. For logs that were closed cleanly: no CRC is checked. Source: Kafka LogSegment.readNextOffset.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kstore._core import HeaderScan
from kstore.config import LogConfig
from kstore.log.env import Env
from kstore.log.filenames import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX
from kstore.log.index import OffsetIndex, TimeIndex

HEADER_CHUNK_BYTES = 64 * 1024


class Tail(NamedTuple):
    """The offset behind the last batch, and the largest timestamp with the last offset of its batch (-1: none)."""

    next_offset: int
    max_timestamp_ms: int
    offset_of_max_timestamp: int


def find_tail(
    path: str,
    *,
    base_offset: int,
    size_in_bytes: int,
    indexes: Mapping[str, bytes | None],
    noted: tuple[int, int, int] | None,
    config: LogConfig,
    env: Env,
) -> Tail | None:
    """Return where the segment ends, None if its last batches are not whole and in order up to the end of the file.

    Args: indexes: the content of both, by suffix; noted: (base offset, position, offset) of the log end as the shutdown
        noted it. Where that is the end of the file, nothing of the log is read.
    """
    timestamp_ms, offset_of_timestamp = _last_timestamp(indexes.get(TIME_INDEX_SUFFIX), base_offset=base_offset)
    if noted is not None and noted[:2] == (base_offset, size_in_bytes) and noted[2] > offset_of_timestamp:
        return Tail(noted[2], timestamp_ms, offset_of_timestamp)
    start, least = _last_position(indexes.get(OFFSET_INDEX_SUFFIX), base_offset=base_offset)
    scan = None
    if 0 < start < size_in_bytes:
        scan = _walk(path, start, base_offset=base_offset, size_in_bytes=size_in_bytes, config=config, env=env)
        if scan.status != "end" or scan.last_offset < least:
            scan = None
    if scan is None:
        timestamp_ms = offset_of_timestamp = -1
        scan = _walk(path, 0, base_offset=base_offset, size_in_bytes=size_in_bytes, config=config, env=env)
        if scan.status != "end":
            return None
    if scan.max_timestamp_ms > timestamp_ms:
        timestamp_ms, offset_of_timestamp = scan.max_timestamp_ms, scan.offset_of_max_timestamp
    next_offset = base_offset if scan.batch_count == 0 else scan.last_offset + 1
    return Tail(next_offset, timestamp_ms, offset_of_timestamp)


def _last_position(content: bytes | None, *, base_offset: int) -> tuple[int, int]:
    index = OffsetIndex(content or b"", base_offset=base_offset, path="")
    if index.entry_count == 0:
        return 0, base_offset
    last = index.entry(index.entry_count - 1)
    return last.position, last.offset


def _last_timestamp(content: bytes | None, *, base_offset: int) -> tuple[int, int]:
    index = TimeIndex(content or b"", base_offset=base_offset, path="")
    if index.entry_count == 0 or not index.is_increasing():
        return -1, -1
    last = index.entry(index.entry_count - 1)
    return last.timestamp_ms, last.offset


def _walk(path: str, position: int, *, base_offset: int, size_in_bytes: int, config: LogConfig, env: Env) -> HeaderScan:
    scan = HeaderScan(
        position=position,
        end_position=size_in_bytes,
        base_offset=base_offset,
        max_batch_bytes=config.max_batch_bytes,
        path=path,
    )
    with env.open_read(path) as file:
        while scan.status == "more":
            chunk = file.pread(min(HEADER_CHUNK_BYTES, size_in_bytes - position), position=position)
            position = scan.feed(chunk, position)
    return scan
