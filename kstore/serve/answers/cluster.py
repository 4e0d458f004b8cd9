"""DescribeCluster and DescribeLogDirs, and the requests about ACLs, of which there are none."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress

from kstore.errors import KStoreError
from kstore.serve.broker import Broker
from kstore.serve.calls import Call
from kstore.serve.refusals import code_of
from kstore.types import TopicPartition
from kstore.wire.codes import ErrorCode
from kstore.wire.messages import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

_BROKERS, _CONTROLLERS = 1, 2
_NO_ACLS = "No Authorizer is configured."
_LogDir = DescribeLogDirsResponse.DescribeLogDirsResult


def describe_cluster(broker: Broker, call: Call[DescribeClusterRequest]) -> DescribeClusterResponse:
    """Return the one node."""
    kind = call.body.endpoint_type
    if kind != _BROKERS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if kind == _CONTROLLERS else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        return DescribeClusterResponse(error_code=code, error_message=f"this node is a broker, and not of type {kind}")
    node = DescribeClusterResponse.DescribeClusterBroker(
        broker_id=broker.node_id, host=call.peer.host, port=call.peer.port
    )
    return DescribeClusterResponse(
        cluster_id=broker.cluster_id or "", controller_id=broker.node_id, brokers=[node], endpoint_type=kind
    )


def describe_log_dirs(broker: Broker, call: Call[DescribeLogDirsRequest]) -> DescribeLogDirsResponse:
    """Return the one directory, with the sizes of partitions and of its disk.

    Cost: opens the logs that are not open.
    """
    root, wanted = str(broker.store.root), call.body.topics
    places = list(broker.store.partitions)
    if wanted is not None:
        named = {TopicPartition(topic.topic, number) for topic in wanted for number in topic.partitions}
        places = [place for place in places if place in named]
    try:
        space = broker.disk_space()
    except KStoreError as error:
        return DescribeLogDirsResponse(results=[_LogDir(log_dir=root, error_code=code_of(error))])
    by_topic = defaultdict(list)
    for place in places:
        # A log that cannot be opened is left out, as one that is offline.
        with suppress(KStoreError):
            size = broker.log(*place).size_in_bytes
            found = DescribeLogDirsResponse.DescribeLogDirsPartition(
                partition_index=place.partition, partition_size=size
            )
            by_topic[place.topic].append(found)
    result = _LogDir(log_dir=root)
    if space is not None:
        result.total_bytes, result.usable_bytes = space
    result.topics = [
        DescribeLogDirsResponse.DescribeLogDirsTopic(name=topic, partitions=partitions)
        for topic, partitions in by_topic.items()
    ]
    return DescribeLogDirsResponse(results=[result])


def describe_acls(_: Broker, call: Call[DescribeAclsRequest]) -> DescribeAclsResponse:  # noqa: ARG001
    """Say that there are no ACLs."""
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_ACLS)


def create_acls(_: Broker, call: Call[CreateAclsRequest]) -> CreateAclsResponse:
    """Refuse each ACL."""
    refused = CreateAclsResponse.AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_ACLS)
    return CreateAclsResponse(results=[refused] * len(call.body.creations))


def delete_acls(_: Broker, call: Call[DeleteAclsRequest]) -> DeleteAclsResponse:
    """Refuse each deletion."""
    refused = DeleteAclsResponse.DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_ACLS)
    return DeleteAclsResponse(filter_results=[refused] * len(call.body.filters))
