"""Steps of cutting a log: what stays of a segment, producers replayed.

Layer 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kstore.log.env import Env
from kstore.log.producer_append import producer_batch
from kstore.log.producer_state import ProducerStateManager
from kstore.log.segment import LogSegment
from kstore.record import RecordBatch
from kstore.types import NO_PRODUCER_ID, NO_TIMESTAMP, TimestampOffset


class Remainder(NamedTuple):
    """What stays of a segment: its largest timestamp with the last offset of its batch, and the offset behind it."""

    timestamp: TimestampOffset
    next_offset: int


def remainder_below(segment: LogSegment, *, position: int) -> Remainder:
    """Return what stays of a segment that is cut at `position`; the timestamp is (-1, -1) if no batch has one.

    Cost: a header walk.
    """
    walk = segment.records.walk(position=0, end_position=position)
    timestamp = TimestampOffset(NO_TIMESTAMP, -1)
    if walk.max_timestamp_ms > NO_TIMESTAMP:
        timestamp = TimestampOffset(walk.max_timestamp_ms, walk.offset_of_max_timestamp)
    return Remainder(timestamp, walk.last_offset + 1 if walk.last_offset >= 0 else segment.base_offset)


def replay_producers(
    producer_state: ProducerStateManager,
    segments: Sequence[LogSegment],
    *,
    log_start_offset: int,
    log_end_offset: int,
    env: Env,
) -> None:
    """Set the producer state back to `log_end_offset`: the last snapshot below it, and the log behind that.

    Raises: CorruptRecordError and the like for damage on the way; StorageError.
    """
    producer_state.truncate_and_reload(
        log_start_offset=log_start_offset, log_end_offset=log_end_offset, now_ms=env.wall_clock_ms()
    )
    start_offset = producer_state.map_end_offset
    for segment in segments:
        if segment.next_base_offset is not None and segment.next_base_offset <= start_offset:
            continue
        first = segment.translate_offset(start_offset)
        if first is None:
            continue
        batches = segment.records.read_batches(position=first.position, end_position=segment.scan_end_position)
        for header, data in batches:
            if header.producer_id > NO_PRODUCER_ID:
                producer_state.replay(producer_batch(RecordBatch(data, position=header.position, path=segment.path)))
    producer_state.update_map_end_offset(log_end_offset)
