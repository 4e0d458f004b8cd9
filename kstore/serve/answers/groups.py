"""DescribeGroups, ConsumerGroupDescribe, ListGroups, DeleteGroups and OffsetDelete."""

from __future__ import annotations

from kstore.coordinator.group.classic import GroupState
from kstore.errors import KStoreError, UnknownTopicOrPartitionError
from kstore.serve.broker import Broker
from kstore.serve.calls import Call
from kstore.serve.refusals import code_of
from kstore.types import TopicPartition
from kstore.wire.codes import ErrorCode
from kstore.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
)

_Described = DescribeGroupsResponse.DescribedGroup
# DescribeGroups says from this version on that a group does not exist.
_GROUP_NOT_FOUND_VERSION = 6


async def describe_groups(broker: Broker, call: Call[DescribeGroupsRequest]) -> DescribeGroupsResponse:
    """Return groups with their members."""
    try:
        await broker.groups.ready()
    except KStoreError:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return DescribeGroupsResponse(groups=[_Described(error_code=code, group_id=name) for name in call.body.groups])
    says_missing = call.version >= _GROUP_NOT_FOUND_VERSION
    return DescribeGroupsResponse(
        groups=[_described(broker, name, says_missing=says_missing) for name in call.body.groups]
    )


def _described(broker: Broker, group_id: str, *, says_missing: bool) -> _Described:
    if not group_id:
        return _Described(error_code=ErrorCode.INVALID_GROUP_ID)
    found = broker.groups.coordinator.described(group_id)
    if found is not None:
        return found
    missing = _Described(group_id=group_id, group_state=GroupState.DEAD.value)
    if says_missing:
        is_other = group_id in broker.groups.coordinator.consumer_groups
        what = "is not a classic group" if is_other else "not found"
        missing.error_code, missing.error_message = ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}."
    return missing


async def consumer_group_describe(
    broker: Broker, call: Call[ConsumerGroupDescribeRequest]
) -> ConsumerGroupDescribeResponse:
    """Return groups of KIP-848 with their members."""
    described = ConsumerGroupDescribeResponse.DescribedGroup
    try:
        await broker.groups.ready()
    except KStoreError:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        refused = [described(error_code=code, group_id=group_id) for group_id in call.body.group_ids]
        return ConsumerGroupDescribeResponse(groups=refused)
    coordinator = broker.groups.coordinator
    groups = []
    for group_id in call.body.group_ids:
        found = coordinator.described_consumers(group_id)
        if found is None:
            code = ErrorCode.GROUP_ID_NOT_FOUND if group_id else ErrorCode.INVALID_GROUP_ID
            is_other = group_id in coordinator.groups or group_id in coordinator.other_groups
            what = "is not a consumer group" if is_other else "not found"
            message = f"Group {group_id} {what}." if group_id else None
            found = described(group_id=group_id, error_code=code, error_message=message)
        groups.append(found)
    return ConsumerGroupDescribeResponse(groups=groups)


async def list_groups(broker: Broker, call: Call[ListGroupsRequest]) -> ListGroupsResponse:
    """Return the groups of some states and types, or all."""
    try:
        await broker.groups.ready()
    except KStoreError:
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    request = call.body
    return ListGroupsResponse(
        groups=broker.groups.coordinator.listed(states=request.states_filter, types=request.types_filter)
    )


async def delete_groups(broker: Broker, call: Call[DeleteGroupsRequest]) -> DeleteGroupsResponse:
    """Delete groups without members, with their offsets."""
    results = []
    for group_id in call.body.groups_names:
        try:
            await broker.groups.ready()
            removal = broker.groups.removal
            code = ErrorCode.POLICY_VIOLATION if removal is None else await removal.delete_group(group_id)
        except KStoreError:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        results.append(DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=code))
    return DeleteGroupsResponse(results=results)


async def offset_delete(broker: Broker, call: Call[OffsetDeleteRequest]) -> OffsetDeleteResponse:
    """Delete offsets of a group, of topics to which no member is subscribed."""
    request = call.body
    places = {TopicPartition(topic.name, one.partition_index) for topic in request.topics for one in topic.partitions}
    known = {place for place in places if place in broker.store}
    try:
        await broker.groups.ready()
        removal = broker.groups.removal
        code = ErrorCode.POLICY_VIOLATION if removal is None else await removal.delete_offsets(request.group_id, known)
    except KStoreError:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code:
        return OffsetDeleteResponse(error_code=code)

    def code_for(place: TopicPartition) -> int:
        if place not in known:
            return code_of(UnknownTopicOrPartitionError)
        is_used = broker.groups.coordinator.subscribes_to(request.group_id, place.topic)
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_used else 0

    kinds = OffsetDeleteResponse
    topics = [
        kinds.OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                kinds.OffsetDeleteResponsePartition(
                    partition_index=one.partition_index,
                    error_code=code_for(TopicPartition(topic.name, one.partition_index)),
                )
                for one in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return OffsetDeleteResponse(topics=topics)
