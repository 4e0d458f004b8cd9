"""replay_events: the segments of a tier and their states, by the records of `__remote_log_metadata`.

Source: Kafka RemoteLogMetadataCache, RemoteLogSegmentState, TopicBasedRemoteLogMetadataManager.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any

from kstore.config import LogConfig
from kstore.errors import CorruptionError, InvalidRecordError
from kstore.log.directory_source import DirectorySource
from kstore.log.files.checkpoints import EpochEntry
from kstore.log.files.names import PartitionDirectory
from kstore.log.files.root_files import id_text
from kstore.log.log import Log
from kstore.record import Record
from kstore.record.schemas.topics import RemoteLogObject, UndecodedMessage, decode_remote_log_object
from kstore.tier.lineage import RemoteSegment
from kstore.tier.listing import TieredPartition
from kstore.types import MAX_OFFSET

_logger = logging.getLogger("kstore.log")
_SEGMENT, _UPDATE = 0, 1


class SegmentState(IntEnum):
    """The state of a remote segment; only that of a finished copy is readable."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


_NEXT = {
    SegmentState.COPY_SEGMENT_STARTED: {SegmentState.COPY_SEGMENT_FINISHED, SegmentState.DELETE_SEGMENT_STARTED},
    SegmentState.COPY_SEGMENT_FINISHED: {SegmentState.DELETE_SEGMENT_STARTED},
    SegmentState.DELETE_SEGMENT_STARTED: {SegmentState.DELETE_SEGMENT_FINISHED},
    SegmentState.DELETE_SEGMENT_FINISHED: set(),
}


class PartitionEvents:
    """The segments of one partition by the events that were replayed: by id, those whose deletion has finished left
    out.

    Threads: not thread-safe.
    """

    def __init__(self) -> None:
        self._segments: dict[str, RemoteSegment] = {}
        self._states: dict[str, SegmentState] = {}

    @property
    def finished(self) -> list[RemoteSegment]:
        """The segments that can be read, in the order of their first events."""
        return self.in_state(SegmentState.COPY_SEGMENT_FINISHED)

    def in_state(self, state: SegmentState) -> list[RemoteSegment]:
        """Return the segments in a state."""
        return [segment for segment_id, segment in self._segments.items() if self._states[segment_id] is state]

    def state_of(self, segment_id: str) -> SegmentState | None:
        """Return the state of a segment, None if there is none of this id, or its deletion has finished."""
        return self._states.get(segment_id)

    def note(self, event: RemoteLogObject) -> str | None:
        """Take up an event; return what is wrong with it, None for nothing. A wrong one changes nothing."""
        message = event.message
        segment_id = id_text(message.remote_log_segment_id.id)
        try:
            state = SegmentState(message.remote_log_segment_state)
        except ValueError:
            return f"segment {segment_id}: no state {message.remote_log_segment_state} is known"
        before = self._states.get(segment_id)
        if event.type_id == _SEGMENT:
            if before is not None or state is not SegmentState.COPY_SEGMENT_STARTED:
                return f"segment {segment_id}: {state.name} does not start it, which is {_name(before)}"
            segment = _segment_of(message, segment_id)
            if isinstance(segment, str):
                return segment
            self._segments[segment_id] = segment
        elif before is None or (state is not before and state not in _NEXT[before]):
            return f"segment {segment_id}: {state.name} does not follow {_name(before)}"
        if state is SegmentState.DELETE_SEGMENT_FINISHED:
            del self._segments[segment_id], self._states[segment_id]
        else:
            self._states[segment_id] = state
            custom = message.custom_metadata
            if custom is not None:
                self._segments[segment_id] = self._segments[segment_id]._replace(custom_metadata=custom)
        return None


def replay_events(
    directories: Iterable[PartitionDirectory], config: LogConfig
) -> Mapping[TieredPartition, PartitionEvents]:
    """Return what the given partitions of `__remote_log_metadata` say of each tiered partition that they name.

    An event that Kafka's states do not allow is logged and left out; so is a record of a type that is not known.
    Raises: CorruptionError if the topic is damaged; as open_log.
    Cost: reads these partitions.
    """
    found: dict[TieredPartition, PartitionEvents] = {}
    for directory in directories:
        with Log(DirectorySource(directory, config=config)) as log:
            for record in log.read():
                event = _decoded(record, directory)
                if event is None:
                    continue
                named = event.message.remote_log_segment_id.topic_id_partition
                partition = TieredPartition(named.id, named.partition)
                problem = found.setdefault(partition, PartitionEvents()).note(event)
                if problem is not None:
                    _logger.warning("%s: an event is left out: %s", _place(record, directory), problem)
    return found


def _decoded(record: Record, directory: PartitionDirectory) -> RemoteLogObject | None:
    """Return the event of a segment in a record, None for another record."""
    try:
        event = decode_remote_log_object(record.value)
    except InvalidRecordError as error:
        message = f"{_place(record, directory)}: {error}"
        raise CorruptionError(message, path=error.path, reason=error.reason) from error
    if isinstance(event, UndecodedMessage):
        _logger.warning("%s: a record is left out: %s", _place(record, directory), event.reason)
        return None
    return event if event.type_id in (_SEGMENT, _UPDATE) else None


def _place(record: Record, directory: PartitionDirectory) -> str:
    return f"{directory.path}, offset {record.offset}"


def _segment_of(first: Any, segment_id: str) -> RemoteSegment | str:
    """Return the segment of its first event, or what is wrong with that."""
    start, end, size = first.start_offset, first.end_offset, first.segment_size_in_bytes
    epochs = tuple(sorted(EpochEntry(one.leader_epoch, one.offset) for one in first.segment_leader_epochs))
    if not 0 <= start <= end < MAX_OFFSET or size < 0 or not epochs or any(min(entry) < 0 for entry in epochs):
        return f"segment {segment_id}: offsets {start} to {end}, {size} bytes and epochs {epochs} are not those of one"
    return RemoteSegment(segment_id, start, end, epochs, size, first.max_timestamp_ms)


def _name(state: SegmentState | None) -> str:
    return "not known" if state is None else state.name
