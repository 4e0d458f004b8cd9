"""FindCoordinator, and the requests of members of a group and of those who commit to one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from kstore.coordinator.group.coordinator import FetchedOffset
from kstore.errors import KStoreError, UnknownTopicOrPartitionError
from kstore.serve.broker import Broker
from kstore.serve.calls import Call
from kstore.serve.coordination.groups import Groups
from kstore.serve.refusals import code_of
from kstore.types import TopicPartition
from kstore.wire.classes import Message
from kstore.wire.codes import ErrorCode
from kstore.wire.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

_Topic = OffsetCommitRequest.OffsetCommitRequestTopic
# Of groups and of transactional ids (Kafka: CoordinatorType).
_GROUP_KEY, _ID_KEY = 0, 1
# From these versions on several groups are asked for at once.
_FIND_SEVERAL_VERSION, _FETCH_SEVERAL_VERSION = 4, 8


def find_coordinator(broker: Broker, call: Call[FindCoordinatorRequest]) -> FindCoordinatorResponse:
    """Name this node as the coordinator of all groups and transactional ids."""
    request = call.body
    is_known = request.key_type == _GROUP_KEY or (request.key_type == _ID_KEY and broker.transactions is not None)
    code = 0 if is_known else ErrorCode.COORDINATOR_NOT_AVAILABLE
    node_id, host, port = (-1, "", -1) if code else (broker.node_id, call.peer.host, call.peer.port)
    if call.version < _FIND_SEVERAL_VERSION:
        return FindCoordinatorResponse(error_code=code, node_id=node_id, host=host, port=port)
    found = [
        FindCoordinatorResponse.Coordinator(key=key, error_code=code, node_id=node_id, host=host, port=port)
        for key in request.coordinator_keys
    ]
    return FindCoordinatorResponse(coordinators=found)


def join_group(broker: Broker, call: Call[JoinGroupRequest]) -> Awaitable[Message]:
    """Let a client become a member of a group."""
    return _asked(broker, lambda groups: groups.join(call), JoinGroupResponse)


def sync_group(broker: Broker, call: Call[SyncGroupRequest]) -> Awaitable[Message]:
    """Tell a member its part, which the leader gave."""
    return _asked(broker, lambda groups: groups.sync(call), SyncGroupResponse)


def heartbeat(broker: Broker, call: Call[HeartbeatRequest]) -> Awaitable[Message]:
    """Keep a member's session."""
    return _asked(broker, lambda groups: groups.heartbeat(call), HeartbeatResponse)


def leave_group(broker: Broker, call: Call[LeaveGroupRequest]) -> Awaitable[Message]:
    """Let members go."""
    return _asked(broker, lambda groups: groups.leave(call), LeaveGroupResponse)


def consumer_group_heartbeat(broker: Broker, call: Call[ConsumerGroupHeartbeatRequest]) -> Awaitable[Message]:
    """Let a member of a group of KIP-848 join, stay or leave, and tell it its part."""
    return _asked(broker, lambda groups: groups.consumer_heartbeat(call), ConsumerGroupHeartbeatResponse)


async def _asked(
    broker: Broker, ask: Callable[[Groups], Awaitable[Message]], answer: Callable[..., Message]
) -> Message:
    """Ask the groups; a client whose groups cannot be read asks again later."""
    try:
        return await ask(broker.groups)
    except KStoreError:
        return answer(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)


async def offset_commit(broker: Broker, call: Call[OffsetCommitRequest]) -> OffsetCommitResponse:
    """Commit offsets, of those partitions that there are."""
    request = call.body
    known: list[_Topic] = []
    unknown: list[_Topic] = []
    for topic in request.topics:
        numbers = {one.partition_index for one in topic.partitions if (topic.name, one.partition_index) in broker.store}
        for topics, is_known in ((known, True), (unknown, False)):
            partitions = [one for one in topic.partitions if (one.partition_index in numbers) is is_known]
            if partitions:
                topics.append(_Topic(name=topic.name, partitions=partitions))
    request.topics = known
    refused = _refused(unknown, code_of(UnknownTopicOrPartitionError))
    try:
        answer = await broker.groups.commit(call)
    except KStoreError:
        return OffsetCommitResponse(topics=[*_refused(known, ErrorCode.COORDINATOR_NOT_AVAILABLE), *refused])
    answer.topics += refused
    return answer


def _refused(topics: list[_Topic], code: int) -> list[OffsetCommitResponse.OffsetCommitResponseTopic]:
    kinds = OffsetCommitResponse
    return [
        kinds.OffsetCommitResponseTopic(
            name=topic.name,
            partitions=[
                kinds.OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
                for one in topic.partitions
            ],
        )
        for topic in topics
    ]


async def offset_fetch(broker: Broker, call: Call[OffsetFetchRequest]) -> OffsetFetchResponse:
    """Return committed offsets."""
    request, kinds = call.body, OffsetFetchResponse
    if call.version < _FETCH_SEVERAL_VERSION:
        code, found = await _committed(broker, request.group_id, request.topics, require_stable=request.require_stable)
        topics = [
            kinds.OffsetFetchResponseTopic(
                name=name, partitions=[_partition(kinds.OffsetFetchResponsePartition, *one) for one in partitions]
            )
            for name, partitions in found.items()
        ]
        return OffsetFetchResponse(error_code=code, topics=topics)
    groups = []
    for asked in request.groups:
        code, found = await _committed(
            broker,
            asked.group_id,
            asked.topics,
            require_stable=request.require_stable,
            member_id=asked.member_id,
            member_epoch=asked.member_epoch,
        )
        of_group = [
            kinds.OffsetFetchResponseTopics(
                name=name, partitions=[_partition(kinds.OffsetFetchResponsePartitions, *one) for one in partitions]
            )
            for name, partitions in found.items()
        ]
        groups.append(kinds.OffsetFetchResponseGroup(group_id=asked.group_id, error_code=code, topics=of_group))
    return OffsetFetchResponse(groups=groups)


async def _committed(
    broker: Broker,
    group_id: str,
    topics: list[Any] | None,
    *,
    require_stable: bool,
    member_id: str | None = None,
    member_epoch: int = -1,
) -> tuple[int, dict[str, list[tuple[int, FetchedOffset]]]]:
    """Return a code, and of each topic the partitions with their offsets."""
    wanted = (
        None
        if topics is None
        else [TopicPartition(topic.name, number) for topic in topics for number in topic.partition_indexes]
    )
    try:
        await broker.groups.ready()
        code = broker.groups.coordinator.fetch_code(group_id, member_id, epoch=member_epoch)
        if code:
            return code, {}
        fetched = await broker.groups.fetched(group_id, wanted, require_stable=require_stable)
    except KStoreError as error:
        return code_of(error), {}
    found: dict[str, list[tuple[int, FetchedOffset]]] = {}
    for place, one in fetched:
        found.setdefault(place.topic, []).append((place.partition, one))
    return 0, found


def _partition(kind: Callable[..., Any], number: int, found: FetchedOffset) -> Any:
    return kind(
        partition_index=number,
        committed_offset=found.offset,
        committed_leader_epoch=found.leader_epoch,
        metadata=found.metadata,
        error_code=found.code,
    )
