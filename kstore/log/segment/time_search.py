"""Searches by time over the segments of a log: the first record from a time on, and the first with the largest one.

Batch headers lead to the records. Each call takes the segments from the one that holds the start offset on, and raises
what LogSegment.search_timestamp raises.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kstore.config import LogConfig
from kstore.log.segment.segment import LogSegment
from kstore.record.batches import RecordBatch
from kstore.types import NO_TIMESTAMP, OffsetAndTimestamp


def first_from_time(
    segments: Sequence[LogSegment], timestamp_ms: int, *, start_offset: int
) -> OffsetAndTimestamp | None:
    """Return the first record in offset order whose timestamp is >= timestamp_ms, None if there is none.

    Before None is returned, the CRC of the last batch is checked: its timestamp, by which the answer is None, may be
    damaged.
    """
    for segment in segments:
        answer = segment.search_timestamp(timestamp_ms, start_offset=start_offset)
        if answer is not None:
            return answer
    _check_last_batch(segments)
    return None


def _check_last_batch(segments: Sequence[LogSegment]) -> None:
    any(segment.check_last_batch() for segment in reversed(segments))


def first_with_largest_timestamp(
    segments: Sequence[LogSegment], *, start_offset: int, config: LogConfig
) -> OffsetAndTimestamp | None:
    """Return the first record with the largest timestamp, None if no record has one.

    Cost: a header walk, and a read of the last batch, whose CRC is checked; a read of all batches if the largest
        timestamp is that of records which a cleaner removed.
    """
    largest = NO_TIMESTAMP
    for segment in segments:
        first = segment.translate_offset(start_offset)
        if first is None:
            continue
        position = first.position
        if segment.base_offset < start_offset and segment.records.first_offset(first) < start_offset:
            position += first.size_in_bytes
            within = _batches(segment, position=first.position, end_position=position, config=config)
            times = (record.timestamp_ms for batch in within for record in batch if record.offset >= start_offset)
            largest = max(times, default=largest)
        scan = segment.records.walk(position=position, end_position=segment.scan_end_position)
        segment.records.stopped_at(scan)
        largest = max(largest, scan.max_timestamp_ms)
    _check_last_batch(segments)
    if largest == NO_TIMESTAMP:
        return None
    found = first_from_time(segments, largest, start_offset=start_offset)
    return _first_with_largest_of_records(segments, start_offset, config) if found is None else found


def _first_with_largest_of_records(
    segments: Sequence[LogSegment], start_offset: int, config: LogConfig
) -> OffsetAndTimestamp | None:
    largest, first = NO_TIMESTAMP, None
    for segment in segments:
        for batch in _batches(segment, position=0, end_position=segment.scan_end_position, config=config):
            if batch.last_offset < start_offset or batch.max_timestamp_ms <= largest:
                continue
            for record in batch:
                if record.offset >= start_offset and record.timestamp_ms > largest:
                    largest, first = record.timestamp_ms, OffsetAndTimestamp(record.offset, record.timestamp_ms)
    return first


def _batches(segment: LogSegment, *, position: int, end_position: int, config: LogConfig) -> Iterator[RecordBatch]:
    for header, data in segment.records.read_batches(position=position, end_position=end_position):
        yield RecordBatch(data, position=header.position, path=segment.path, config=config)
