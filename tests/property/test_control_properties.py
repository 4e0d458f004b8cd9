"""Goal: every control record value survives writing and reading, and any bytes are read or refused, never worse.
Method: Hypothesis builds values of every type from the dataclasses' fields, and bytes without any plan."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore import InvalidRecordError
from kstore.record.control import EndTransactionMarker, control_record_key, decode_control_record
from kstore.record.kraft import (
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    Voter,
    VoterEndpoint,
    VotersRecord,
)
from kstore.types import ControlRecordType
from kstore.wire.protocol import TaggedField

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
tags = st.dictionaries(st.integers(0, 2**32 - 1), st.binary(max_size=200), max_size=3).map(
    lambda fields: tuple(TaggedField(tag, fields[tag]) for tag in sorted(fields))
)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


def tuples(strategy):
    return st.lists(strategy, max_size=3).map(tuple)


def leader_changes(version):
    directory = st.uuids() if version else st.none()
    voter = st.builds(LeaderChangeVoter, voter_id=INT32, voter_directory_id=directory, tagged_fields=tags)
    return st.builds(
        LeaderChangeMessage,
        version=st.just(version),
        leader_id=INT32,
        voters=tuples(voter),
        granting_voters=tuples(voter),
        tagged_fields=tags,
    )


endpoint = st.builds(VoterEndpoint, name=names, host=names, port=st.integers(0, 65535), tagged_fields=tags)
feature = st.builds(KRaftVersionFeature, min_supported_version=INT16, max_supported_version=INT16, tagged_fields=tags)
voter = st.builds(
    Voter,
    voter_id=INT32,
    voter_directory_id=st.uuids(),
    endpoints=tuples(endpoint),
    kraft_version_feature=feature,
    tagged_fields=tags,
)
VALUES = {
    "marker": st.builds(
        EndTransactionMarker,
        control_type=st.sampled_from([ControlRecordType.ABORT, ControlRecordType.COMMIT]),
        coordinator_epoch=st.integers(-1, 2**31 - 1),
        version=st.integers(1, 2**15 - 1),
        rest=st.binary(max_size=20),
    ),
    "leader-change-v0": leader_changes(0),
    "leader-change-v1": leader_changes(1),
    "snapshot-header": st.builds(
        SnapshotHeaderRecord, last_contained_log_timestamp_ms=st.integers(-(2**63), 2**63 - 1), tagged_fields=tags
    ),
    "snapshot-footer": st.builds(SnapshotFooterRecord, tagged_fields=tags),
    "kraft-version": st.builds(KRaftVersionRecord, kraft_version=INT16, tagged_fields=tags),
    "voters": st.builds(VotersRecord, voters=tuples(voter), tagged_fields=tags),
}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
@given(data=st.data())
def test_value_that_was_written_is_read_again(values, data):
    value = data.draw(values)
    assert decode_control_record(control_record_key(value.control_type), value.to_bytes()) == value


@given(type_id=st.integers(-2, 8), version=st.integers(-1, 2), rest=st.binary(max_size=60))
def test_any_bytes_are_read_or_refused_by_a_typed_error(type_id, version, rest):
    key = struct.pack(">hh", 0, type_id)
    try:
        value = decode_control_record(key, struct.pack(">h", version) + rest)
    except InvalidRecordError:
        return
    assert decode_control_record(key, value.to_bytes()) == value
