"""find_tail: where the last segment of a log ends, from its index entries and a look at the headers behind them.

Layer 5. For logs that were closed cleanly: no CRC is checked. Source: Kafka LogSegment.readNextOffset.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kstore._core import RECORD_BATCH_OVERHEAD, HeaderScan, read_header
from kstore.config import MAX_INT32, LogConfig
from kstore.errors import CorruptRecordError, UnsupportedMagicError
from kstore.log.durable_point import DurablePoint
from kstore.log.env import Env, ReadFile
from kstore.log.filenames import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX
from kstore.log.index import OffsetIndex, TimeIndex
from kstore.log.segment_records import HEADER_CHUNK_BYTES, scan_headers


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
    noted: DurablePoint | None,
    config: LogConfig,
    env: Env,
) -> Tail | None:
    """Return where the segment ends, None if the file does not end with a whole batch that is its last one.

    A batch further up whose offsets do not fit is passed over, as it does not move the end.
    Args: indexes: the content of both, by suffix; noted: the last durable point, and where that is the end of the file,
        nothing of the log is read.
    """
    timestamp_ms, offset_of_timestamp = _last_timestamp(indexes.get(TIME_INDEX_SUFFIX), base_offset=base_offset)
    if noted is not None and noted[1:] == (base_offset, size_in_bytes) and noted.offset > offset_of_timestamp:
        return Tail(noted.offset, timestamp_ms, offset_of_timestamp)
    before_last, (start, least) = _last_positions(indexes.get(OFFSET_INDEX_SUFFIX), base_offset=base_offset)
    with env.open_read(path) as file:
        headers = _Headers(file, base_offset=base_offset, size_in_bytes=size_in_bytes, config=config)
        tail = None
        if headers.may_start_at(start, position=before_last):
            tail = headers.tail_from(start, Tail(base_offset, timestamp_ms, offset_of_timestamp))
        if tail is None or tail.next_offset <= max(least, tail.offset_of_max_timestamp):
            tail = headers.tail_from(0, Tail(base_offset, -1, -1))
    return tail if tail is None or tail.next_offset - base_offset <= MAX_INT32 + 1 else None


def _last_positions(content: bytes | None, *, base_offset: int) -> tuple[int, tuple[int, int]]:
    """Return the position of the last entry but one, and position and offset of the last; 0 and base_offset if none."""
    index = OffsetIndex(content or b"", base_offset=base_offset, path="")
    if index.entry_count == 0:
        return 0, (0, base_offset)
    last = index.entry(index.entry_count - 1)
    before_last = index.entry(index.entry_count - 2).position if index.entry_count > 1 else 0
    return before_last, (last.position, last.offset)


def _last_timestamp(content: bytes | None, *, base_offset: int) -> tuple[int, int]:
    index = TimeIndex(content or b"", base_offset=base_offset, path="")
    if index.entry_count == 0 or not index.is_increasing():
        return -1, -1
    last = index.entry(index.entry_count - 1)
    return last.timestamp_ms, last.offset


class _Headers:
    """The batch headers of one .log."""

    def __init__(self, file: ReadFile, *, base_offset: int, size_in_bytes: int, config: LogConfig) -> None:
        self._file = file
        self._base_offset = base_offset
        self._size = size_in_bytes
        self._max_batch_bytes = config.max_batch_bytes

    def may_start_at(self, target: int, *, position: int) -> bool:
        """Tell whether a batch may start at a target: it is in the file, and no batch that headers lead to from
        an earlier position lies around it, since a batch that is a record's value looks like one of the log.
        """
        if not 0 <= position < target < self._size:
            return False
        scan = self._scan_of(position, end_position=target)
        wanted = RECORD_BATCH_OVERHEAD
        while scan.status == "more":
            chunk = self._file.pread(min(wanted, target - position), position=position)
            following = scan.feed(chunk, position)
            # One header at a time where batches are large, more where they are small.
            is_small = following - position <= 2 * wanted
            wanted = min(2 * wanted, HEADER_CHUNK_BYTES) if is_small else RECORD_BATCH_OVERHEAD
            position = following
        # Damage on the way says nothing about the target; a sound batch around it does.
        return bool(scan.status != "torn")

    def tail_from(self, position: int, before: Tail) -> Tail | None:
        """Walk from a batch to the end of the file; `before`: what is known of the batches up to there."""
        tail, ends_well = before, True
        while position < self._size:
            scan = self._scan(position, previous_last_offset=tail.next_offset - 1)
            tail = _behind(tail, scan)
            position, ends_well = scan.position, True
            if scan.status == "corrupt":
                size = self._misplaced_size(position)
                position, ends_well = position + size, False
                if size == 0:
                    break
            elif scan.status != "end":
                ends_well = False
                break
        return tail if ends_well else None

    def _scan(self, position: int, *, previous_last_offset: int) -> HeaderScan:
        scan = self._scan_of(position, end_position=self._size, previous_last_offset=previous_last_offset)
        return scan_headers(self._file, scan, position=position, end_position=self._size)

    def _scan_of(self, position: int, *, end_position: int, previous_last_offset: int = -1) -> HeaderScan:
        return HeaderScan(
            position=position,
            end_position=end_position,
            base_offset=self._base_offset,
            max_batch_bytes=self._max_batch_bytes,
            path=self._file.path,
            previous_last_offset=previous_last_offset,
        )

    def _misplaced_size(self, position: int) -> int:
        """Return the size of a batch that is whole, if it is only its offsets that do not fit; else 0."""
        head = self._file.pread(RECORD_BATCH_OVERHEAD, position=position)
        try:
            header = read_header(head, position=position, max_batch_bytes=self._max_batch_bytes)
        except (CorruptRecordError, UnsupportedMagicError):
            return 0
        size: int = header.size_in_bytes
        return size if size <= self._size - position else 0


def _behind(tail: Tail, scan: HeaderScan) -> Tail:
    if scan.batch_count == 0:
        return tail
    if scan.max_timestamp_ms > tail.max_timestamp_ms:
        return Tail(scan.last_offset + 1, scan.max_timestamp_ms, scan.offset_of_max_timestamp)
    return tail._replace(next_offset=scan.last_offset + 1)
