"""Goal: no record of `__consumer_offsets`, however malformed, ends in anything but a group or a typed error.
Method: records that coordinators write, with bytes changed, removed and added, and keys and values at random."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore import LogConfig, OffsetAndMetadata, TopicPartition, open_store, read_groups
from kstore.cli.coordinating.groups import json_of, rows_of
from kstore.errors import KStoreError
from kstore.record import MemoryRecordsBuilder
from kstore.record.schemas.topics import encode_group_record, encode_offset_commit
from tests.making.strategies import examples

T0 = TopicPartition("t", 0)
MEMBER = {
    "memberId": "m",
    "groupInstanceId": None,
    "clientId": "c",
    "clientHost": "/h",
    "rebalanceTimeout": 1,
    "sessionTimeout": 1,
    "subscription": b"\0\0\0\0\0\1\0\1t\0\0\0\0",
    "assignment": b"\0\0\0\0\0\1\0\1t\0\0\0\1\0\0\0\0\0\0\0\0",
}
CLASSIC = {
    "protocolType": "consumer",
    "generation": 1,
    "protocol": "range",
    "leader": "m",
    "currentStateTimestamp": 1,
    "members": [MEMBER, MEMBER | {"groupInstanceId": "i"}],
}
CURRENT = {
    "memberEpoch": 1,
    "previousMemberEpoch": 0,
    "state": 0,
    "assignedPartitions": [],
    "partitionsPendingRevocation": [],
}
VALID = [
    encode_offset_commit("g", T0, OffsetAndMetadata(3, "m")),
    encode_offset_commit("g", TopicPartition("t", -1), OffsetAndMetadata(3, "m"), version=4),
    encode_group_record({"group": "g"}, CLASSIC, type_id=2, version=3),
    encode_group_record({"groupId": "g"}, {"epoch": 1}, type_id=3, version=0),
    encode_group_record({"groupId": "g", "memberId": "m"}, CURRENT, type_id=8, version=0),
    encode_group_record({"groupId": "g"}, {"assignmentEpoch": 1}, type_id=6, version=0),
]
CHANGES = st.lists(st.tuples(st.booleans(), st.integers(0, 300), st.integers(0, 255)), max_size=3)
CHANGED = st.tuples(st.sampled_from(VALID), CHANGES).map(lambda one: changed(*one))
RANDOM = st.tuples(st.none() | st.binary(max_size=30), st.none() | st.binary(max_size=30))


def changed(record, changes):
    parts = [bytearray(part) for part in record]
    for is_value, at, byte in changes:
        part = parts[is_value]
        if byte == 0:
            del part[at % (len(part) + 1) :]
        elif part:
            part[at % len(part)] = byte
    return tuple(map(bytes, parts))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with open_store(tmp_path_factory.mktemp("hostile") / "root", "a") as opened:
        opened.create_topic("t")
        # A compacted one takes no records without a key.
        opened.create_topic("__consumer_offsets", config=LogConfig())
        yield opened


@given(records=st.lists(CHANGED | RANDOM, min_size=1, max_size=4))
@examples(60)
def test_malformed_records_are_typed_errors(store, records):
    log = store.log("__consumer_offsets")
    log.delete_records(log.log_end_offset)
    builder = MemoryRecordsBuilder()
    for key, value in records:
        builder.append(timestamp_ms=1, key=key, value=value)
    log.append(builder.build())
    try:
        groups = read_groups(store)
    except KStoreError:
        return
    for group in groups:
        assert json_of(group)
        assert rows_of(group)


def test_valid_records_are_groups(store):
    log = store.log("__consumer_offsets")
    log.delete_records(log.log_end_offset)
    for key, value in VALID:
        builder = MemoryRecordsBuilder()
        builder.append(timestamp_ms=1, key=key, value=value)
        log.append(builder.build())
    (group,) = read_groups(store)
    assert {place: one.log_end_offset for place, one in group.offsets.items()} == {T0: 0, TopicPartition("t", -1): None}
