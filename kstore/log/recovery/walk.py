"""walk_segment, one pass over a .log that checks every batch and collects what recovery needs; find_intact_end, which
finds the end of a segment after a clean shutdown.

A walk stops before the first bad batch and says why; nothing after that is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol

from kstore._core import (
    RECORD_BATCH_OVERHEAD,
    BatchHeader,
    HeaderScan,
    OffsetIndexEntries,
    RecoveryWalk,
    TimeIndexEntries,
    check_crc,
    read_header,
)
from kstore._lazy import lazy_logger
from kstore.config import MAX_INT32, LogConfig
from kstore.env import Env, ReadFile
from kstore.errors import (
    CorruptionError,
    CorruptRecordError,
    InvalidRecordError,
    StorageError,
    UnsupportedCompressionTypeError,
    UnsupportedError,
    UnsupportedMagicError,
)
from kstore.log.files.checkpoints import EpochEntry
from kstore.log.files.durable_point import DurablePoint
from kstore.log.files.indexes import OffsetIndex, TimeIndex
from kstore.log.files.names import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX
from kstore.log.files.records import HEADER_CHUNK_BYTES, first_offset_in, read_exactly, scan_headers
from kstore.log.state.producer_append import ProducerStateBatch, TransactionMarker, batch_of_header, read_marker
from kstore.record.batches import RecordBatch
from kstore.types import NO_PRODUCER_ID


class IntactEnd(NamedTuple):
    """The end of a .log whose last batch is whole.

    next_offset: the one after that batch. max_timestamp_ms, offset_of_max_timestamp: -1 without timestamps; the latter
    is the last offset of its batch.
    """

    next_offset: int
    max_timestamp_ms: int
    offset_of_max_timestamp: int


def find_intact_end(
    path: str,
    *,
    base_offset: int,
    size_in_bytes: int,
    indexes: Mapping[str, bytes | None],
    noted: DurablePoint | None,
    config: LogConfig,
    env: Env,
) -> IntactEnd | None:
    """Return the end of a segment, None if the file does not end with a whole batch that is its last one.

    A batch before the end whose offsets do not fit is skipped, since it does not move the end.
    Args: indexes: the content of both indexes, by suffix; noted: the last durable point; if it is the end of the file,
        nothing of the .log is read.
    """
    timestamp_ms, offset_of_timestamp = _last_timestamp(indexes.get(TIME_INDEX_SUFFIX), base_offset=base_offset)
    if noted is not None and noted[1:] == (base_offset, size_in_bytes) and noted.offset > offset_of_timestamp:
        return IntactEnd(noted.offset, timestamp_ms, offset_of_timestamp)
    before_last, (start, least) = _last_positions(indexes.get(OFFSET_INDEX_SUFFIX), base_offset=base_offset)
    with env.open_read(path) as file:
        headers = _Headers(file, base_offset=base_offset, size_in_bytes=size_in_bytes, config=config)
        end = None
        if headers.may_start_at(start, position=before_last):
            end = headers.end_from(start, IntactEnd(base_offset, timestamp_ms, offset_of_timestamp))
        if end is None or end.next_offset <= max(least, end.offset_of_max_timestamp):
            end = headers.end_from(0, IntactEnd(base_offset, -1, -1))
    return end if end is None or end.next_offset - base_offset <= MAX_INT32 + 1 else None


def _last_positions(content: bytes | None, *, base_offset: int) -> tuple[int, tuple[int, int]]:
    """Return the position of the second to last entry, then position and offset of the last one; 0 and base_offset for
    missing ones.
    """
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
        """True if a batch may start at `target`: it is in the file, and no batch that headers lead to from an earlier
        position spans it. Without that check, a batch stored in a record's value would look like one of the log.
        """
        if not 0 <= position < target < self._size:
            return False
        scan = self._scan_of(position, end_position=target)
        wanted = RECORD_BATCH_OVERHEAD
        while scan.status == "more":
            chunk = read_exactly(self._file, min(wanted, target - position), position=position)
            following = scan.feed(chunk, position)
            # Read one header at a time while batches are large, more while they are small.
            is_small = following - position <= 2 * wanted
            wanted = min(2 * wanted, HEADER_CHUNK_BYTES) if is_small else RECORD_BATCH_OVERHEAD
            position = following
        # Damage before the target says nothing about it; a sound batch that spans it does.
        return bool(scan.status != "torn")

    def end_from(self, position: int, before: IntactEnd) -> IntactEnd | None:
        """Walk from a batch to the end of the file. Args: before: what is known of the batches up to there."""
        end, ends_well = before, True
        while position < self._size:
            scan = self._scan(position, previous_last_offset=end.next_offset - 1)
            end = _after(end, scan)
            position, ends_well = scan.position, True
            if scan.status == "corrupt":
                size = self._misplaced_size(position)
                position, ends_well = position + size, False
                if size == 0:
                    break
            elif scan.status != "end":
                ends_well = False
                break
        return end if ends_well else None

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
        """Return the size in bytes of a batch that is whole but has offsets that do not fit, else 0."""
        head = self._file.pread(RECORD_BATCH_OVERHEAD, position=position)
        try:
            header: BatchHeader = read_header(
                head, position=position, max_batch_bytes=self._max_batch_bytes, end_position=self._size
            )
        except (CorruptRecordError, UnsupportedMagicError):
            return 0
        return header.size_in_bytes


def _after(end: IntactEnd, scan: HeaderScan) -> IntactEnd:
    if scan.batch_count == 0:
        return end
    if scan.max_timestamp_ms > end.max_timestamp_ms:
        return IntactEnd(scan.last_offset + 1, scan.max_timestamp_ms, scan.offset_of_max_timestamp)
    return end._replace(next_offset=scan.last_offset + 1)


# Fits the L2 cache, so that the CRC finds the data there that was just read.
WALK_CHUNK_BYTES = 1024 * 1024

_RECORD_COUNT_AT = RECORD_BATCH_OVERHEAD - 4
_ONE_RECORD = (1).to_bytes(4, "big")

_logger = lazy_logger("kstore.log")


class SegmentWalk(NamedTuple):
    """The good batches at the start of a .log, and why the walk ended.

    status: "end" of the file; "torn" in an incomplete batch; "zeros"; "corrupt"; "overlap" at a batch that reaches into
    the next segment; "overflow" at one whose offset the segment's index cannot hold.
        `reason` has the details.
    end_position, next_offset: where the good batches end (the segment's base offset if there are none).
    overflow_base_offset: with status "overflow" the first offset of the batch that the walk stopped at, else -1.
    max_timestamp_ms, offset_of_max_timestamp: -1 without timestamps; the latter is its batch's last offset.
    offset_entries, time_entries: the index contents for these batches, as Kafka's LogSegment.recover writes them.
    producers: the batches with a producer id; epochs: each leader epoch with its first offset, as in the batches.
    """

    status: str
    reason: str
    end_position: int
    next_offset: int
    batch_count: int
    overflow_base_offset: int
    max_timestamp_ms: int
    offset_of_max_timestamp: int
    offset_entries: bytes
    time_entries: bytes
    producers: tuple[ProducerStateBatch, ...]
    epochs: tuple[EpochEntry, ...]


def walk_segment(
    path: str,
    *,
    base_offset: int,
    next_base_offset: int | None,
    config: LogConfig,
    env: Env,
    start_position: int = 0,
    on_read: Callable[[int], None] | None = None,
) -> SegmentWalk:
    """Walk a .log from start_position on, as the segment that starts there with base_offset.

    Args: next_base_offset: of the next segment; no batch may reach it. Positions are relative to start_position.
        on_read: called with the size in bytes of each chunk that was read.
    Raises: StorageError.  Cost: reads the file once.
    """
    size = config.segment_index_bytes
    offset_entries = OffsetIndexEntries(b"", base_offset=base_offset, max_bytes=size)
    time_entries = TimeIndexEntries(b"", base_offset=base_offset, max_bytes=size)
    producers: list[ProducerStateBatch] = []
    epochs: list[EpochEntry] = []
    with env.open_read(path) as file:
        walk = RecoveryWalk(
            end_position=file.size() - start_position,
            base_offset=base_offset,
            next_base_offset=next_base_offset,
            max_batch_bytes=config.max_batch_bytes,
            path=path,
            index_interval_bytes=config.index_interval_bytes,
            offset_entries=offset_entries,
            time_entries=time_entries,
        )
        notes = _Notes(file, start_position=start_position, config=config)
        for headers in walk_headers(file, walk, start_position=start_position, on_read=on_read):
            producers += notes.producers_of(headers)
            epochs += notes.epochs_of(headers)
        status, reason, stopped_at = notes.end_of(walk, next_base_offset=next_base_offset)
    if walk.max_timestamp_ms > time_entries.last_entry[0]:
        time_entries.maybe_append(
            timestamp_ms=walk.max_timestamp_ms, offset=walk.offset_of_max_timestamp, skip_full_check=True
        )
    return SegmentWalk(
        status=status,
        reason=reason,
        end_position=walk.position,
        next_offset=base_offset if walk.batch_count == 0 else walk.last_offset + 1,
        batch_count=walk.batch_count,
        overflow_base_offset=stopped_at,
        max_timestamp_ms=walk.max_timestamp_ms,
        offset_of_max_timestamp=walk.offset_of_max_timestamp,
        offset_entries=bytes(offset_entries.content),
        time_entries=bytes(time_entries.content),
        producers=tuple(producers),
        epochs=tuple(epochs),
    )


class WalkedFile(Protocol):
    """What walk_headers reads: a .log, or what stands for one."""

    path: str

    def pread_into(self, buffer: memoryview, *, position: int) -> int:
        """Fill `buffer` from `position` and return the number of bytes read."""


def walk_headers(
    file: WalkedFile, walk: RecoveryWalk, *, start_position: int = 0, on_read: Callable[[int], None] | None = None
) -> Iterator[list[BatchHeader]]:
    """Drive a walk whose positions are relative to start_position of its .log; yield the headers that it collects.

    Callers iterate to the end; damage is reported in the walk's status.
    Raises: StorageError.  Cost: reads the file once; holds one chunk.
    """
    buffer = memoryview(bytearray(min(WALK_CHUNK_BYTES, walk.end_position)))
    while walk.status == "more":
        position = walk.next_position
        wanted = buffer[: min(len(buffer), walk.end_position - position)]
        if file.pread_into(wanted, position=start_position + position) < len(wanted):
            raise StorageError(f"cannot read {file.path}: it was truncated while it was read", path=file.path)
        walk.feed(wanted, position)
        if on_read is not None:
            on_read(len(wanted))
        yield walk.take_headers()


class _Notes:
    """Reads parts of the file a second time: the markers of control batches, and the batch that a walk stopped at."""

    def __init__(self, file: ReadFile, *, start_position: int, config: LogConfig) -> None:
        self._file = file
        self._start_position = start_position
        self._config = config
        self._epoch = -1

    def producers_of(self, headers: list[BatchHeader]) -> Iterator[ProducerStateBatch]:
        """Yield the batches with a producer id."""
        for header in headers:
            if header.producer_id <= NO_PRODUCER_ID:
                continue
            yield batch_of_header(header, self._marker(header) if header.is_control else None)

    def epochs_of(self, headers: list[BatchHeader]) -> Iterator[EpochEntry]:
        """Yield an entry where the leader epoch differs from that of the batch before."""
        for header in headers:
            if header.magic >= 2 and header.partition_leader_epoch != self._epoch:
                self._epoch = header.partition_leader_epoch
                yield EpochEntry(self._epoch, header.base_offset)

    def end_of(self, walk: RecoveryWalk, *, next_base_offset: int | None) -> tuple[str, str, int]:
        """Return the status of the walk, the reason, and the base offset of a segment to split off (-1 if none)."""
        if walk.status == "end":
            return "end", "", -1
        reason = str(getattr(walk.error, "reason", walk.error))
        stopped_at = self._whole_batch_at(walk) if walk.status in ("corrupt", "overflow") else None
        if stopped_at is None:
            return "corrupt" if walk.status == "overflow" else walk.status, reason, -1
        if next_base_offset is not None and next_base_offset <= stopped_at.last_offset:
            return "overlap", reason, -1
        return walk.status, reason, self._first_offset(stopped_at, walk) if walk.status == "overflow" else -1

    def _whole_batch_at(self, walk: RecoveryWalk) -> BatchHeader | None:
        """Return the batch at the end of a walk if its CRC is valid and its offsets do not go back, else None."""
        position = self._start_position + walk.position
        head = self._file.pread(RECORD_BATCH_OVERHEAD, position=position)
        try:
            header: BatchHeader = read_header(head, position=position, max_batch_bytes=self._config.max_batch_bytes)
            check_crc(self._file.pread(header.size_in_bytes, position=position), position=position)
        except (CorruptRecordError, UnsupportedMagicError):
            return None
        return header if header.base_offset > walk.last_offset else None

    def _first_offset(self, header: BatchHeader, walk: RecoveryWalk) -> int:
        """Return the first offset of a batch; for a V0 or V1 wrapper with invalid content, its last offset."""
        data = self._file.pread(header.size_in_bytes, position=header.position)
        try:
            first_offset = first_offset_in(data, header, path=self._file.path, config=self._config)
        except (CorruptionError, UnsupportedError):
            return header.base_offset
        least = max(walk.last_offset + 1, header.last_offset - MAX_INT32)
        return first_offset if least <= first_offset <= header.last_offset else header.base_offset

    def _marker(self, header: BatchHeader) -> TransactionMarker | None:
        """Return the transaction marker in the first record of a control batch, or None.

        If the record count is too large, the first record is still read, as Kafka does. A marker that cannot be
        decoded, although its CRC is valid, ends no transaction.
        """
        if header.record_count == 0:
            return None
        position = self._start_position + header.position
        data = self._file.pread(header.size_in_bytes, position=position)
        with_one_record = b"".join([data[:_RECORD_COUNT_AT], _ONE_RECORD, data[RECORD_BATCH_OVERHEAD:]])
        for content in (data, with_one_record) if (header.record_count or 0) > 1 else (data,):
            try:
                return read_marker(RecordBatch(content, position=position, path=self._file.path, config=self._config))
            except (CorruptRecordError, InvalidRecordError, UnsupportedCompressionTypeError) as error:
                _logger.warning("cannot read the marker of a transaction: %s", error)
        return None
