"""Goal: read_groups says of a root what the broker that wrote it would say of its groups.
Method: records of every kind that coordinators write, appended to a root's `__consumer_offsets`."""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64encode

import pytest

from kstore import OffsetAndMetadata, TopicPartition, open_store, read_groups
from kstore.errors import (
    CorruptCheckpointError,
    CorruptRecordError,
    InvalidRecordError,
    LogNotFoundError,
    UnsupportedError,
)
from kstore.record import (
    AppendOrigin,
    ControlRecordType,
    EndTransactionMarker,
    MemoryRecordsBuilder,
    Record,
    with_end_transaction_marker,
)
from kstore.record.schemas.coordinator import CONSUMER_PROTOCOL
from kstore.record.schemas.topics import encode_group_record, encode_offset_commit
from kstore.wire.schema import encode_message, parse_schemas
from tests.making.batches import flip_bit

OFFSETS = "__consumer_offsets"
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TOPIC_ID, OTHER_ID = uuid.UUID(int=7), uuid.UUID(int=8)
PROTOCOL = parse_schemas(CONSUMER_PROTOCOL)


@pytest.fixture
def root(tmp_path):
    with open_store(tmp_path / "root", "a") as store:
        store.create_topic("t", 2, topic_id=TOPIC_ID)
        store.create_topic(OFFSETS, 1)
        for number in range(10):
            store.log("t", 0).append(Record(timestamp_ms=number, value=b"v"))
    return tmp_path / "root"


def write(root, *records, producer_id=None):
    """Append records, of a transaction if there is a producer id."""
    with open_store(root, "a") as store:
        of_producer = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
        builder = MemoryRecordsBuilder(**of_producer if producer_id is not None else {})
        for key, value in records:
            builder.append(timestamp_ms=1000, key=key, value=value)
        store.log(OFFSETS).append(builder.build(), origin=AppendOrigin.COORDINATOR)


def end(root, producer_id, kind):
    marker = EndTransactionMarker(control_type=kind, coordinator_epoch=0)
    with open_store(root, "a") as store:
        records = with_end_transaction_marker(marker, timestamp_ms=1, producer_id=producer_id, producer_epoch=0)
        store.log(OFFSETS).append(records, origin=AppendOrigin.COORDINATOR)


def commit(offset, *, group="g", to=T0, version=3, **fields):
    return encode_offset_commit(group, to, OffsetAndMetadata(offset, **fields), version=version)


def group_of(root, name="g"):
    (found,) = read_groups(root, groups=[name])
    return found


def committed(root, name="g"):
    return {one: offset.committed.offset for one, offset in group_of(root, name).offsets.items()}


# Offsets


def test_a_group_that_only_commits_is_an_empty_classic_one(root):
    write(root, commit(3, leader_epoch=2, metadata="m", commit_timestamp_ms=5), commit(4, to=TopicPartition("gone", 1)))
    group = group_of(root)
    assert (group.type, group.state, group.epoch, group.members, group.pending) == ("Classic", "Empty", None, (), {})
    one = group.offsets[T0]
    assert one.committed == OffsetAndMetadata(3, "m", leader_epoch=2, commit_timestamp_ms=5)
    assert (one.log_end_offset, one.lag) == (10, 7)
    gone = group.offsets[TopicPartition("gone", 1)]
    assert (gone.log_end_offset, gone.lag) == (None, None)


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_a_commit_is_read(root, version):
    given = {"leader_epoch": 3, "commit_timestamp_ms": 5, "expire_timestamp_ms": 9, "topic_id": TOPIC_ID}
    if version < 4:
        del given["topic_id"]
    write(root, commit(1, version=version, **given))
    found = group_of(root).offsets[T0].committed
    assert found.expire_timestamp_ms == (9 if version == 1 else None)
    assert found.leader_epoch == (3 if version >= 3 else None)
    assert found.topic_id == (TOPIC_ID if version == 4 else None)
    assert (found.offset, found.commit_timestamp_ms) == (1, 5)


def test_a_later_commit_wins_and_a_tombstone_removes(root):
    write(root, commit(1), commit(2, to=T1), commit(5), encode_offset_commit("g", T1, None))
    assert committed(root) == {T0: 5}
    write(root, encode_offset_commit("g", T0, None))
    assert read_groups(root) == ()


def test_a_key_of_kafka_0_8_2_counts_as_the_same(root):
    fields = {"group": "g", "topic": "t", "partition": 0}
    value = {"offset": 7, "metadata": "", "commitTimestamp": 1}
    write(root, encode_group_record(fields, value, type_id=0, version=0), commit(8))
    assert committed(root) == {T0: 8}


def test_offsets_of_a_transaction_wait_for_its_marker(root):
    write(root, commit(1))
    write(root, commit(9), commit(4, to=T1), producer_id=5)
    assert committed(root) == {T0: 1}
    assert {one: offset.offset for one, offset in group_of(root).pending.items()} == {T0: 9, T1: 4}
    end(root, 6, ControlRecordType.COMMIT)
    assert committed(root) == {T0: 1}
    end(root, 5, ControlRecordType.COMMIT)
    assert committed(root) == {T0: 9, T1: 4}
    assert group_of(root).pending == {}


def test_offsets_of_an_aborted_transaction_are_dropped(root):
    write(root, commit(9), producer_id=5)
    end(root, 5, ControlRecordType.ABORT)
    assert read_groups(root) == ()
    write(root, commit(2), producer_id=5)
    end(root, 5, ControlRecordType.COMMIT)
    assert committed(root) == {T0: 2}


def test_a_later_plain_commit_wins_over_one_of_a_transaction_that_is_committed_after_it(root):
    write(root, commit(9), producer_id=5)
    write(root, commit(1))
    assert {one: offset.offset for one, offset in group_of(root).pending.items()} == {T0: 9}, "it is held until then"
    end(root, 5, ControlRecordType.COMMIT)
    assert committed(root) == {T0: 1}


def test_a_tombstone_wins_over_an_earlier_commit_of_a_transaction(root):
    write(root, commit(9), producer_id=5)
    write(root, encode_offset_commit("g", T0, None))
    assert read_groups(root) == (), "and it is held no more"
    end(root, 5, ControlRecordType.COMMIT)
    assert read_groups(root) == ()


def test_a_group_with_offsets_only_in_an_open_transaction_is_shown(root):
    write(root, commit(9), producer_id=5)
    group = group_of(root)
    assert (group.offsets, [*group.pending]) == ({}, [T0])


# Groups and members


def classic(members, *, generation=3, protocol_type="consumer", version=3):
    value = {
        "protocolType": protocol_type,
        "generation": generation,
        "protocol": "range" if members else None,
        "leader": members[0]["memberId"] if members else None,
        "currentStateTimestamp": 1,
        "members": members,
    }
    return encode_group_record({"group": "g"}, value, type_id=2, version=version)


def member(name, subscription=b"", assignment=b""):
    return {
        "memberId": name,
        "groupInstanceId": f"instance-{name}",
        "clientId": "client",
        "clientHost": "/127.0.0.1",
        "rebalanceTimeout": 1,
        "sessionTimeout": 1,
        "subscription": subscription,
        "assignment": assignment,
    }


def of_protocol(api_key, fields, *, version=1):
    return version.to_bytes(2, "big") + encode_message(PROTOCOL[api_key], fields, version=version)


def test_a_classic_group_has_members_with_topics_and_partitions(root):
    subscription = of_protocol(0, {"topics": ["t", "u"], "userData": None, "ownedPartitions": []})
    assigned = [{"topic": "t", "partitions": [1, 0]}]
    assignment = of_protocol(1, {"assignedPartitions": assigned, "userData": None})
    write(root, classic([member("m1", subscription, assignment), member("m2", b"\0", b"own")]))
    group = group_of(root)
    assert (group.type, group.state, group.epoch) == ("Classic", "Stable", 3)
    assert (group.protocol_type, group.protocol, group.leader) == ("consumer", "range", "m1")
    one, other = group.members
    assert one == ("m1", "instance-m1", "client", "/127.0.0.1", None, ("t", "u"), (T0, T1))
    assert (other.topics, other.assignment) == ((), ())
    write(root, classic([], generation=4))
    assert (group_of(root).state, group_of(root).epoch, group_of(root).members) == ("Empty", 4, ())
    write(root, encode_group_record({"group": "g"}, None, type_id=2, version=0))
    assert read_groups(root) == ()


def test_a_group_of_a_protocol_of_its_own_keeps_its_bytes(root):
    write(root, classic([member("m", b"\0\1\2", b"\3")], protocol_type="connect"))
    group = group_of(root)
    assert (group.protocol_type, group.members[0].topics, group.members[0].assignment) == ("connect", (), ())


def consumer_group(type_id, fields, **key):
    return encode_group_record({"groupId": "g"} | key, fields, type_id=type_id, version=0)


MEMBER = {
    "instanceId": None,
    "rackId": None,
    "clientId": "client",
    "clientHost": "/127.0.0.1",
    "subscribedTopicNames": ["t"],
    "subscribedTopicRegex": None,
    "rebalanceTimeoutMs": 1,
    "serverAssignor": None,
}


def current(epoch, *, state=0, partitions=(0,), topic_id=TOPIC_ID):
    return {
        "memberEpoch": epoch,
        "previousMemberEpoch": epoch - 1,
        "state": state,
        "assignedPartitions": [{"topicId": topic_id, "partitions": list(partitions)}],
        "partitionsPendingRevocation": [],
    }


def test_a_consumer_group_goes_through_its_states(root):
    write(root, consumer_group(3, {"epoch": 1}))
    assert (group_of(root).type, group_of(root).state, group_of(root).epoch) == ("Consumer", "Empty", 1)
    write(root, consumer_group(5, MEMBER, memberId="m"))
    assert group_of(root).state == "Assigning"
    write(root, consumer_group(6, {"assignmentEpoch": 1}))
    assert group_of(root).state == "Reconciling"
    write(root, consumer_group(8, current(1, state=1), memberId="m"))
    assert group_of(root).state == "Reconciling"
    write(root, consumer_group(8, current(1, partitions=(1, 0)), memberId="m"))
    group = group_of(root)
    assert group.state == "Stable"
    assert group.members == (("m", None, "client", "/127.0.0.1", 1, ("t",), (T0, T1)),)
    write(root, consumer_group(3, {"epoch": 2}))
    assert group_of(root).state == "Assigning"
    write(root, consumer_group(6, {"assignmentEpoch": 2}))
    assert group_of(root).state == "Reconciling"
    for type_id in (8, 5):
        write(root, consumer_group(type_id, None, memberId="m"))
    assert (group_of(root).state, group_of(root).members) == ("Empty", ())
    write(root, consumer_group(3, None))
    assert read_groups(root) == ()


def test_a_topic_that_is_not_there_is_named_by_its_id(root):
    write(
        root,
        consumer_group(3, {"epoch": 1}),
        consumer_group(5, MEMBER, memberId="m"),
        consumer_group(8, current(1, topic_id=OTHER_ID), memberId="m"),
    )
    name = urlsafe_b64encode(OTHER_ID.bytes).decode().rstrip("=")
    assert group_of(root).members[0].assignment == (TopicPartition(name, 0),)


def test_a_group_that_changed_its_protocol_is_what_it_became(root):
    write(root, classic([member("m")]), commit(2))
    write(root, encode_group_record({"group": "g"}, None, type_id=2, version=0), consumer_group(3, {"epoch": 4}))
    group = group_of(root)
    assert (group.type, group.state, group.epoch) == ("Consumer", "Empty", 4)
    assert committed(root) == {T0: 2}


def test_share_and_streams_groups_are_shown(root):
    share = {"rackId": None, "clientId": "client", "clientHost": "/h", "subscribedTopicNames": ["t"]}
    streams = {
        "instanceId": "i",
        "rackId": None,
        "clientId": "client",
        "clientHost": "/h",
        "rebalanceTimeoutMs": 1,
        "topologyEpoch": 1,
        "processId": "p",
        "userEndpoint": None,
        "clientTags": [],
    }
    write(
        root,
        encode_group_record({"groupId": "s"}, {"epoch": 1, "metadataHash": 0}, type_id=11, version=0),
        encode_group_record({"groupId": "s", "memberId": "m"}, share, type_id=10, version=0),
        encode_group_record({"groupId": "k"}, {"epoch": 1, "metadataHash": 0}, type_id=17, version=0),
        encode_group_record({"groupId": "k", "memberId": "m"}, streams, type_id=19, version=0),
    )
    k, s = read_groups(root)
    assert (k.group_id, k.type, k.state, k.members[0].instance_id) == ("k", "Streams", "Assigning", "i")
    assert (s.group_id, s.type, s.state, s.members[0].topics) == ("s", "Share", "Stable", ("t",))


# What can't be read


def test_a_record_of_an_unknown_type_is_left_out_and_said(root, caplog):
    write(root, (b"\x03\xe7rest", b"v"), commit(1))
    assert committed(root) == {T0: 1}
    assert "unknown type 999" in caplog.text


def test_a_value_of_an_unknown_version_is_refused(root):
    key, value = commit(1)
    write(root, (key, b"\x00\x63" + value[2:]))
    with pytest.raises(UnsupportedError, match="unknown version 99 of OffsetCommitValue"):
        read_groups(root)


def test_a_malformed_record_is_named_by_its_offset(root):
    key, value = commit(1)
    write(root, commit(1, to=T1), (key, value[:-3]))
    with pytest.raises(InvalidRecordError, match="record at offset 1 of __consumer_offsets-0"):
        read_groups(root)


def test_an_error_of_a_partition_leaves_the_others(tmp_path):
    root = tmp_path / "root"
    with open_store(root, "a") as store:
        store.create_topic(OFFSETS, 2)
        for number, group in enumerate(("a", "b")):
            key, value = commit(1, group=group)
            store.log(OFFSETS, number).append(Record(timestamp_ms=1, key=key, value=value))
    flip_bit(root / f"{OFFSETS}-0" / "00000000000000000000.log", 70, bit=0)
    with pytest.raises(CorruptRecordError):
        read_groups(root)
    errors = []
    assert [group.group_id for group in read_groups(root, on_error=errors.append)] == ["b"]
    assert [type(error) for error in errors] == [CorruptRecordError]


def test_a_topic_id_that_cannot_be_read_leaves_the_groups(root):
    write(
        root,
        consumer_group(3, {"epoch": 1}),
        consumer_group(5, MEMBER, memberId="m"),
        consumer_group(6, {"assignmentEpoch": 1}),
        consumer_group(8, current(1), memberId="m"),
    )
    with open_store(root, "a") as store:
        store.create_topic("other")
    (root / "other-0" / "partition.metadata").write_text("garbage\n")
    with pytest.raises(CorruptCheckpointError):
        read_groups(root)
    errors = []
    (found,) = read_groups(root, on_error=errors.append)
    assert found.members[0].assignment == (T0,)
    assert [type(error) for error in errors] == [CorruptCheckpointError]


def test_a_root_without_groups_has_none(tmp_path):
    with open_store(tmp_path / "root", "a") as store:
        assert read_groups(store) == ()
    with pytest.raises(LogNotFoundError):
        read_groups(tmp_path / "nowhere")


def test_an_unknown_type_can_not_be_encoded():
    with pytest.raises(ValueError, match="type_id"):
        encode_group_record({}, None, type_id=99, version=0)
