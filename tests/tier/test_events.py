"""Goal: the metadata topic's events give the states that a broker has, and one that its states do not allow is left
out. Method: events encoded by this test's own writer, replayed from a root."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kstore import CorruptionError, InvalidRecordError, LogConfig
from kstore.log.files.names import find_partitions
from kstore.log.files.root_files import parse_id
from kstore.record.schemas.topics import (
    DecodedMessage,
    RemoteLogObject,
    decode_remote_log_object,
    decode_remote_log_record,
)
from kstore.tier.events import PartitionEvents, SegmentState, replay_events
from kstore.tier.listing import TieredPartition
from kstore.wire.classes import Message, attribute
from tests.making.batches import batches
from tests.making.tiers import DELETED, DELETING, FINISHED, OTHER_TOPIC_ID, STARTED, TOPIC_ID, Tier, write_events

ID = parse_id(TOPIC_ID)


def replayed(root: Path, events: Sequence[bytes]) -> dict[TieredPartition, PartitionEvents]:
    return dict(replay_events(find_partitions(write_events(root, events)), LogConfig()))


def test_a_segment_is_readable_once_its_copy_has_finished(tmp_path: Path) -> None:
    tier = Tier(path=tmp_path / "tier")
    made = tier.upload(batches(0, 3), ((0, 0), (2, 1)))
    for states, expected in (
        ([STARTED], []),
        ([STARTED, FINISHED], [made.segment_id]),
        ([STARTED, FINISHED, FINISHED], [made.segment_id]),
        ([STARTED, FINISHED, DELETING], []),
        ([STARTED, DELETING], []),
    ):
        found = replayed(tmp_path / "root", [tier.event(made, state) for state in states])
        events = found[TieredPartition(ID, 0)]
        assert [segment.segment_id for segment in events.finished] == expected, states
        assert events.state_of(made.segment_id) is SegmentState(states[-1])


def test_what_an_event_says_of_a_segment_is_read(tmp_path: Path) -> None:
    tier = Tier(path=tmp_path / "tier")
    made = tier.upload(batches(5, 3), ((0, 0), (2, 6)))
    found = replayed(tmp_path / "root", [tier.event(made, STARTED), tier.event(made, FINISHED)])
    (segment,) = found[TieredPartition(ID, 0)].finished
    assert (segment.start_offset, segment.end_offset, segment.size_in_bytes) == (5, 7, made.size)
    assert [tuple(entry) for entry in segment.epochs] == [(0, 5), (2, 6)]
    assert segment.max_timestamp_ms == made.max_timestamp_ms


def test_a_segment_whose_deletion_has_finished_is_forgotten(tmp_path: Path) -> None:
    tier = Tier(path=tmp_path / "tier")
    made = tier.upload(batches(0, 3))
    states = [STARTED, FINISHED, DELETING, DELETED]
    events = replayed(tmp_path / "root", [tier.event(made, state) for state in states])[TieredPartition(ID, 0)]
    assert events.state_of(made.segment_id) is None
    assert [segment for state in SegmentState for segment in events.in_state(state)] == []


@pytest.mark.parametrize(
    "states",
    [
        pytest.param([FINISHED], id="finished and never started"),
        pytest.param([STARTED, STARTED], id="started twice"),
        pytest.param([STARTED, FINISHED, STARTED], id="started again"),
        pytest.param([STARTED, DELETED], id="deleted at once"),
        pytest.param([STARTED, FINISHED, DELETED], id="deleted without a start"),
        pytest.param([STARTED, DELETING, FINISHED], id="finished after the deletion began"),
        pytest.param([STARTED, 9], id="a state that is none"),
    ],
)
def test_an_event_that_the_states_do_not_allow_changes_nothing(
    states: list[int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tier = Tier(path=tmp_path / "tier")
    made = tier.upload(batches(0, 3))
    with caplog.at_level(logging.WARNING, "kstore.log"):
        found = replayed(tmp_path / "root", [tier.event(made, state) for state in states])
    last = None if len(states) == 1 else SegmentState(states[-2])
    assert found[TieredPartition(ID, 0)].state_of(made.segment_id) is last
    assert "an event is left out" in caplog.text


def test_events_are_told_apart_by_topic_id_and_not_by_name(tmp_path: Path) -> None:
    old = Tier(path=tmp_path / "tier", topic_id=OTHER_TOPIC_ID)
    new = Tier(path=tmp_path / "tier")
    one, other = old.upload(batches(0, 3)), new.upload(batches(0, 3))
    events = [old.event(one, STARTED), new.event(other, STARTED), old.event(one, FINISHED), new.event(other, FINISHED)]
    found = replayed(tmp_path / "root", events)
    assert {str(partition.topic_id) for partition in found} == {
        str(parse_id(OTHER_TOPIC_ID)),
        str(uuid.UUID(int=1)),
    }
    assert [segment.segment_id for segment in found[TieredPartition(ID, 0)].finished] == [other.segment_id]


def test_an_object_has_the_fields_of_the_record_and_refuses_what_that_refuses(tmp_path: Path) -> None:
    tier = Tier(path=tmp_path / "tier")
    made = tier.upload(batches(5, 3), ((0, 0), (2, 6)))
    for state in (STARTED, FINISHED):
        value = tier.event(made, state)
        record, found = decode_remote_log_record(value), decode_remote_log_object(value)
        assert isinstance(record, DecodedMessage)
        assert isinstance(found, RemoteLogObject)
        assert found.type_id == record.type_id
        assert fields_of(found.message) == record.fields
        # The type in a varint of two bytes.
        assert fields_of(decode_remote_log_object(b"\x01" + bytes((0x80 | value[1], 0)) + value[2:]).message) == (
            record.fields
        )
        for damaged in (value[:-1], value + b"\0", value[:3]):
            for decode in (decode_remote_log_record, decode_remote_log_object):
                with pytest.raises(InvalidRecordError):
                    decode(damaged)
    for unknown in (None, b"\x01\x63\x00", b"\x09\x00\x00", b"\x01\x00\x09"):
        assert decode_remote_log_object(unknown) == decode_remote_log_record(unknown)


def fields_of(message: Any) -> dict[str, Any]:
    """A message by Kafka's names; what has its default and was not written is left out."""
    found: dict[str, Any] = {}
    for field in message.fields:
        value = getattr(message, attribute(field.name))
        if field.tag is None:
            found[field.name] = (
                [fields_of(one) for one in value]
                if field.is_array
                else fields_of(value)
                if isinstance(value, Message)
                else value
            )
    return found


def test_records_of_other_types_are_left_out_and_damaged_ones_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "kstore.log"):
        assert replayed(tmp_path / "root", [b"\x01\x63\x00", b"\x09\x00\x00"]) == {}
    assert "unknown type 99" in caplog.text
    tier = Tier(path=tmp_path / "tier")
    event = tier.event(tier.upload(batches(0, 3)), STARTED)
    with pytest.raises(CorruptionError, match="offset 1"):
        replayed(tmp_path / "root", [event, event[:40]])
