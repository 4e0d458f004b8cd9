"""Rebuild the indexes of a segment from its .log by one compiled walk, which recovery shares.

Layer 5. The walk checks every CRC and every offset; the entries are those that a broker's recovery makes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kstore._core import BatchHeader, RecoveryWalk
from kstore.config import LogConfig
from kstore.errors import CorruptRecordError
from kstore.log.env import DEFAULT_ENV, Env, ReadFile
from kstore.log.filenames import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX
from kstore.log.index_files import OffsetIndexFile, TimeIndexFile
from kstore.types import TimestampOffset

# Fits the second-level cache, so that the CRC finds there what was just read.
WALK_CHUNK_BYTES = 1024 * 1024


class RebuiltIndexes(NamedTuple):
    """Two index files, open, and the walk that made them: its status tells how the .log ends."""

    offset_index: OffsetIndexFile
    time_index: TimeIndexFile
    walk: RecoveryWalk


def walk_log(file: ReadFile, walk: RecoveryWalk, *, chunk_bytes: int = WALK_CHUNK_BYTES) -> Iterator[list[BatchHeader]]:
    """Drive a walk over its .log, yielding the headers that it notes chunk by chunk; iterate it to the end.

    Raises: StorageError; CorruptRecordError if the file ends before the walk's end_position. Damage is in the walk's
        status.
    Cost: reads the file once; holds one chunk.
    """
    buffer = memoryview(bytearray(min(chunk_bytes, walk.end_position)))
    while walk.status == "more":
        position = walk.next_position
        wanted = min(len(buffer), walk.end_position - position)
        found = file.pread_into(buffer[:wanted], position=position)
        if found < wanted:
            raise _cut_off(file.path, position, expected=wanted, found=found)
        walk.feed(buffer[:wanted], position)
        headers = walk.take_headers()
        if headers:
            yield headers


def append_closing_entry(time_index: TimeIndexFile, largest: TimestampOffset) -> bool:
    """Add the largest timestamp of a segment, and the last offset of its batch, if the index does not hold it yet.

    Returns: whether an entry was added.
    """
    if largest.timestamp_ms <= time_index.last_entry.timestamp_ms:
        return False
    return time_index.maybe_append(timestamp_ms=largest.timestamp_ms, offset=largest.offset, skip_full_check=True)


def rebuild_indexes(
    log: ReadFile,
    *,
    base_offset: int,
    size_in_bytes: int,
    next_base_offset: int | None = None,
    config: LogConfig,
    env: Env = DEFAULT_ENV,
) -> RebuiltIndexes:
    """Write .index and .timeindex anew beside a .log, for its batches up to the first one that is not right.

    Args: size_in_bytes: how much of the .log is looked at. next_base_offset: of the segment behind.
    Returns: both files open and not flushed; the caller closes them.
    Raises: StorageError.  Cost: reads the .log once.
    """
    stem = log.path.removesuffix(LOG_SUFFIX)
    offset_index = OffsetIndexFile.create(
        stem + OFFSET_INDEX_SUFFIX, base_offset=base_offset, max_bytes=config.segment_index_bytes, env=env
    )
    try:
        time_index = TimeIndexFile.create(
            stem + TIME_INDEX_SUFFIX, base_offset=base_offset, max_bytes=config.segment_index_bytes, env=env
        )
    except BaseException:
        offset_index.close_handlers()
        raise
    try:
        walk = RecoveryWalk(
            end_position=size_in_bytes,
            base_offset=base_offset,
            next_base_offset=next_base_offset,
            max_batch_bytes=config.max_batch_bytes,
            path=log.path,
            index_interval_bytes=config.index_interval_bytes,
            offset_entries=offset_index.entries,
            time_entries=time_index.entries,
        )
        for _ in walk_log(log, walk):
            pass
        append_closing_entry(time_index, TimestampOffset(walk.max_timestamp_ms, walk.offset_of_max_timestamp))
    except BaseException:
        offset_index.close_handlers()
        time_index.close_handlers()
        raise
    return RebuiltIndexes(offset_index, time_index, walk)


def _cut_off(path: str, position: int, *, expected: int, found: int) -> CorruptRecordError:
    reason = f"file ends early: expected {expected} bytes, found {found}"
    return CorruptRecordError(
        f"{reason} at position {position} of {path}",
        path=path,
        position=position,
        reason=reason,
        expected=expected,
        found=found,
    )
