"""Goal: offsets are committed by whom they may be, as records that restore them, and fetched as Kafka tells them.
Method: calls on a coordinator whose log is a dict; the codes of each partition and the records."""

from __future__ import annotations

import pytest

from kstore import OffsetAndMetadata, TopicPartition
from kstore.coordinator.group.coordinator import fetched_offset
from kstore.coordinator.group.records import GroupRecord, committed_offsets, decoded
from kstore.wire.codes import ErrorCode
from kstore.wire.messages import OffsetCommitRequest, TxnOffsetCommitRequest
from tests.making.group_calls import SESSION_MS, GroupServer

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def server():
    return GroupServer()


def commit(server, member_id="", generation=-1, *, version=9, metadata="", instance=None, **fields):
    """Commit an offset in two partitions of t; returns their codes."""
    partition = OffsetCommitRequest.OffsetCommitRequestPartition
    partitions = [
        partition(partition_index=0, committed_offset=0, committed_leader_epoch=0, committed_metadata=metadata),
        partition(partition_index=1, committed_offset=7, committed_metadata=None),
    ]
    request = OffsetCommitRequest(
        group_id=fields.pop("group", "g"),
        member_id=member_id,
        generation_id_or_member_epoch=generation,
        group_instance_id=instance,
        topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=partitions)],
        **fields,
    )
    records, response = server.coordinator.commit(request, version=version, now_ms=server.now_ms)
    server.append(records)
    [topic] = response.topics
    assert topic.name == "t"
    assert [one.partition_index for one in topic.partitions] == [0, 1]
    return [one.error_code for one in topic.partitions]


def offsets_in(server):
    newest = [GroupRecord(offset, key, value) for offset, (key, value) in enumerate(server.log.items())]
    return committed_offsets(decoded(newest, None))


def txn_code(server, member_id="", generation=-1, **fields):
    request = TxnOffsetCommitRequest(
        group_id=fields.pop("group", "g"), member_id=member_id, generation_id=generation, **fields
    )
    return server.coordinator.transactional_commit_code(request, server.now_ms)


def test_commit_without_a_group_makes_one_that_is_empty(server):
    assert commit(server) == [0, 0]
    assert offsets_in(server) == {
        T0: OffsetAndMetadata(0, "", leader_epoch=0, commit_timestamp_ms=1000),
        T1: OffsetAndMetadata(7, "", commit_timestamp_ms=1000),
    }
    assert server.state() == "Empty"
    server.start()
    assert server.state() == "Empty"
    assert server.coordinator.delete_code("g") == 0


def test_commit_of_a_member_of_a_group_that_is_not_there_is_refused_by_version(server):
    assert commit(server, "a", 1) == [ErrorCode.GROUP_ID_NOT_FOUND] * 2
    assert commit(server, "a", 1, version=8) == [ErrorCode.ILLEGAL_GENERATION] * 2
    assert not server.coordinator.groups
    assert not server.log


def test_commit_of_a_stranger_to_a_group_with_members_is_refused(server):
    [a] = server.stable(1)
    assert commit(server) == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert commit(server, "nobody", 1) == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert commit(server, a, 0) == [ErrorCode.ILLEGAL_GENERATION] * 2
    assert commit(server, a, -1) == [ErrorCode.ILLEGAL_GENERATION] * 2
    assert commit(server, a, 1) == [0, 0]
    server.leave(a)
    assert commit(server, a, 1) == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert commit(server) == [0, 0]


def test_commit_is_taken_while_members_join_and_not_while_the_leader_assigns(server):
    a, b = server.stable(2)
    server.join(a)
    assert commit(server, b, 2) == [0, 0]
    server.join(b)
    assert commit(server, b, 2) == [ErrorCode.ILLEGAL_GENERATION] * 2
    assert commit(server, b, 3) == [ErrorCode.REBALANCE_IN_PROGRESS] * 2


def test_commit_of_a_static_member_that_was_replaced_is_fenced(server):
    old_id = server.answers[server.join(instance="x")].member_id
    server.sync(old_id, 1)
    new_id = server.answers[server.join(instance="x")].member_id
    assert commit(server, old_id, 1, instance="x") == [ErrorCode.FENCED_INSTANCE_ID] * 2
    assert commit(server, new_id, 1, instance="x") == [0, 0]


def test_commit_renews_the_session(server):
    [a] = server.stable(1)
    server.pass_time(SESSION_MS - 1)
    commit(server, a, 1)
    server.pass_time(SESSION_MS - 1)
    assert server.heartbeat(a, 1) == 0


def test_metadata_above_the_limit_refuses_its_partition_alone(server):
    assert commit(server, metadata="ä" * 2048) == [0, 0]
    assert commit(server, metadata="ä" * 2048 + "a") == [ErrorCode.OFFSET_METADATA_TOO_LARGE, 0]
    assert offsets_in(server)[T0].metadata == "ä" * 2048


def test_retention_that_a_client_asks_for_is_in_the_record(server):
    commit(server, version=4, retention_time_ms=500)
    assert offsets_in(server)[T0].expire_timestamp_ms == 1500


def test_transaction_commits_for_its_member_or_without_one(server):
    assert txn_code(server, "a", 1) == ErrorCode.ILLEGAL_GENERATION
    assert txn_code(server) == 0
    a, b = server.stable(2)
    assert txn_code(server) == 0, "older producers do not tell the member"
    assert txn_code(server, a, 1) == ErrorCode.ILLEGAL_GENERATION
    assert txn_code(server, "nobody", 2) == ErrorCode.UNKNOWN_MEMBER_ID
    server.join(a), server.join(b)
    assert txn_code(server, a, 3) == 0


def test_offset_of_an_undecided_transaction_is_not_told_as_stable():
    current, pending = {T0: OffsetAndMetadata(0, "m", leader_epoch=0), T1: OffsetAndMetadata(1)}, {T0: None}
    assert fetched_offset(T0, current, pending, require_stable=False) == (0, 0, "m", 0)
    assert fetched_offset(T0, current, pending, require_stable=True) == (-1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert fetched_offset(T1, current, pending, require_stable=True) == (1, -1, "", 0)
    assert fetched_offset(TopicPartition("t", 2), current, pending, require_stable=True) == (-1, -1, "", 0)


def test_a_transaction_that_commits_to_no_group_makes_one_that_is_empty(server):
    assert txn_code(server, "nobody", 1, group="other") == ErrorCode.ILLEGAL_GENERATION
    assert txn_code(server) == 0
    assert {name: group.state.name for name, group in server.coordinator.groups.items()} == {"g": "EMPTY"}
