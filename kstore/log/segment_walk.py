"""walk_segment: one pass over a .log that checks every batch and gathers what recovery needs of them.

Layer 5. Stops before the first batch that is not good and says why; nothing behind that is looked at.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kstore._core import BatchHeader, HeaderScan, check_crc
from kstore.config import LogConfig
from kstore.errors import CorruptRecordError, UnsupportedMagicError
from kstore.log.checkpoints import EpochEntry
from kstore.log.env import Env, ReadFile
from kstore.log.producer_append import ProducerBatch, producer_batch
from kstore.record import RecordBatch
from kstore.types import NO_PRODUCER_ID

MAX_RELATIVE_OFFSET = 2**31 - 1
HEADER_CHUNK_BYTES = 64 * 1024

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")


class SegmentWalk(NamedTuple):
    """The good batches at the start of a .log, and why the walk ended.

    status: "end" of the file; "torn" in an incomplete batch; "zeros"; "corrupt"; "overlap" at a batch that reaches into
        the next segment; "overflow" at one whose offset the segment's index can't hold. reason says more of it.
    end_position, next_offset: where the good batches end (the segment's base offset if there are none).
    overflow_base_offset: of the batch that the walk stopped at for that.
    max_timestamp_ms, offset_of_max_timestamp: -1 without timestamps; the latter is its batch's last offset.
    offset_entries, time_entries: what the indexes of these batches hold, as Kafka's LogSegment.recover writes them.
    producers: the batches with a producer id; epochs: each leader epoch where it begins, as the batches have it.
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
    producers: tuple[ProducerBatch, ...]
    epochs: tuple[EpochEntry, ...]


class _Entries:
    """The index entries of the batches so far, by the rule of Kafka's LogSegment.recover."""

    def __init__(self, base_offset: int, config: LogConfig) -> None:
        self._base_offset = base_offset
        self._interval_bytes = config.index_interval_bytes
        self._most_offsets = config.segment_index_bytes // _OFFSET_ENTRY.size
        self._most_times = config.segment_index_bytes // _TIME_ENTRY.size
        self._last_position = 0
        self._last_timestamp_ms = -1
        self.max_timestamp_ms = self.offset_of_max_timestamp = -1
        self.offsets: list[bytes] = []
        self.times: list[bytes] = []

    def add(self, batch: BatchHeader, *, position: int) -> None:
        if batch.max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms, self.offset_of_max_timestamp = batch.max_timestamp_ms, batch.last_offset
        if position - self._last_position > self._interval_bytes and len(self.offsets) < self._most_offsets:
            self.offsets.append(_OFFSET_ENTRY.pack(batch.last_offset - self._base_offset, position))
            self._last_position = position
            # The last slot is kept for the entry that closes the segment.
            if len(self.times) < self._most_times - 1:
                self.add_time()

    def add_time(self) -> None:
        if self.max_timestamp_ms > self._last_timestamp_ms:
            relative = self.offset_of_max_timestamp - self._base_offset
            self.times.append(_TIME_ENTRY.pack(self.max_timestamp_ms, relative))
            self._last_timestamp_ms = self.max_timestamp_ms


def walk_segment(
    path: str,
    *,
    base_offset: int,
    next_base_offset: int | None,
    config: LogConfig,
    env: Env,
    start_position: int = 0,
) -> SegmentWalk:
    """Walk the .log at a path from start_position on, as the segment that begins there with base_offset.

    next_base_offset: of the segment behind it; no batch may reach that. Positions count from start_position.
    Raises: StorageError.  Cost: reads the file once.
    """
    entries = _Entries(base_offset, config)
    producers: list[ProducerBatch] = []
    epochs: list[EpochEntry] = []
    status, reason, overflow_base_offset = "end", "", -1
    position, last_offset, batch_count, epoch = start_position, -1, 0, -1
    with env.open_read(path) as file:
        size = file.size()
        while position < size:
            scan = HeaderScan(
                position=position,
                end_position=size,
                base_offset=base_offset,
                max_batch_bytes=config.max_batch_bytes,
                path=path,
                previous_last_offset=last_offset,
                stop_offset=0,
            )
            scan.feed(file.pread(min(HEADER_CHUNK_BYTES, size - position), position=position), position)
            batch = scan.found
            if batch is None:
                status, reason = scan.status, _reason(scan)
                break
            data, reason = _checked(file, batch)
            if reason:
                status = "corrupt"
                break
            status, reason = _place(batch, base_offset=base_offset, next_base_offset=next_base_offset)
            if status != "end":
                overflow_base_offset = batch.base_offset
                break
            entries.add(batch, position=position - start_position)
            if batch.producer_id != NO_PRODUCER_ID:
                producers.append(producer_batch(RecordBatch(data, position=position, path=path, config=config)))
            if batch.magic >= 2 and batch.partition_leader_epoch != epoch:
                epoch = batch.partition_leader_epoch
                epochs.append(EpochEntry(epoch, batch.base_offset))
            position, last_offset, batch_count = position + batch.size_in_bytes, batch.last_offset, batch_count + 1
    entries.add_time()
    return SegmentWalk(
        status=status,
        reason=reason,
        end_position=position - start_position,
        next_offset=base_offset if batch_count == 0 else last_offset + 1,
        batch_count=batch_count,
        overflow_base_offset=overflow_base_offset,
        max_timestamp_ms=entries.max_timestamp_ms,
        offset_of_max_timestamp=entries.offset_of_max_timestamp,
        offset_entries=b"".join(entries.offsets),
        time_entries=b"".join(entries.times),
        producers=tuple(producers),
        epochs=tuple(epochs),
    )


def _checked(file: ReadFile, batch: BatchHeader) -> tuple[bytes, str]:
    data = file.pread(batch.size_in_bytes, position=batch.position)
    try:
        check_crc(data, position=batch.position, path=file.path)
    except CorruptRecordError as error:
        return data, error.reason
    except UnsupportedMagicError as error:
        return data, f"magic: expected 0 to 2, found {error.magic}"
    return data, ""


def _place(batch: BatchHeader, *, base_offset: int, next_base_offset: int | None) -> tuple[str, str]:
    if next_base_offset is not None and batch.last_offset >= next_base_offset:
        reason = f"offsets run into the next segment: expected less than {next_base_offset}, found {batch.last_offset}"
        return "overlap", reason
    if batch.last_offset - base_offset > MAX_RELATIVE_OFFSET:
        return "overflow", f"offset {batch.last_offset} is too far from the segment's base offset {base_offset}"
    return "end", ""


def _reason(scan: HeaderScan) -> str:
    error = scan.error
    if error is not None:
        return getattr(error, "reason", str(error))
    if scan.status == "zeros":
        return "expected a whole batch, found zero bytes"
    return "expected a whole batch, found an incomplete one"
