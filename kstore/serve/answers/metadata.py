"""What the cluster is: its versions, its one node, its topics."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from kstore.errors import (
    InvalidRequestError,
    InvalidTopicError,
    KStoreError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kstore.serve.broker import Broker
from kstore.serve.calls import Call
from kstore.serve.config import GROUP_VERSION, METADATA_VERSION
from kstore.serve.refusals import code_of
from kstore.types import INTERNAL_TOPICS, is_topic_name
from kstore.wire.codes import ErrorCode
from kstore.wire.frames import apis
from kstore.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from kstore.wire.protocol import ZERO_UUID

_NO_OPERATIONS = -(2**31)
_NO_NODE = -1
# Kafka: max.request.partition.size.limit.
_MOST_DESCRIBED = 2000
_BY_ID_VERSION = 12
_API_VERSIONS = 18
# A broker offers versions of Produce that it refuses, which old librdkafka looks for (KAFKA-18659).
_LEAST_VERSIONS = {0: 0}
_FEATURES = {"metadata.version": (7, METADATA_VERSION), "group.version": (0, 1), "transaction.version": (0, 2)}
_FINALIZED = {"metadata.version": METADATA_VERSION, "group.version": GROUP_VERSION}


def api_versions(
    served: Iterable[int], call: Call[ApiVersionsRequest], *, transaction_version: int
) -> ApiVersionsResponse:
    """Return the versions of the served apis, and the features of the cluster, without those that are at 0."""
    keys = [
        ApiVersionsResponse.ApiVersion(
            api_key=key,
            min_version=_LEAST_VERSIONS.get(key, apis()[key].versions[0]),
            max_version=apis()[key].versions[-1],
        )
        for key in sorted(served)
    ]
    # Before version 4 clients do not know features that may be 0 (KIP-584).
    features = [
        ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=least, max_version=most)
        for name, (least, most) in _FEATURES.items()
        if least > 0 or call.version >= 4
    ]
    finalized = [
        ApiVersionsResponse.FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
        for name, level in (*_FINALIZED.items(), ("transaction.version", transaction_version))
        if level
    ]
    return ApiVersionsResponse(
        api_keys=keys, supported_features=features, finalized_features_epoch=0, finalized_features=finalized
    )


def unknown_api_versions() -> ApiVersionsResponse:
    """Return the answer, in version 0, to an ApiVersions request of a version that is not served."""
    versions = apis()[_API_VERSIONS].versions
    known = ApiVersionsResponse.ApiVersion(api_key=_API_VERSIONS, min_version=versions[0], max_version=versions[-1])
    return ApiVersionsResponse(error_code=code_of(UnsupportedVersionError), api_keys=[known])


def metadata(broker: Broker, call: Call[MetadataRequest]) -> MetadataResponse:
    """Return the node and the topics that were asked for, which are made where the settings say so.

    Topics are asked for by their ids from version 12 on.
    Cost: opens the logs of the topics that are not open; makes topics.
    """
    request = call.body
    if call.version < _BY_ID_VERSION and any(
        asked.name is None or asked.topic_id != ZERO_UUID for asked in request.topics or ()
    ):
        return _refused(request)
    _make_missing(broker, request)
    there = broker.topics()
    topics: list[MetadataResponse.MetadataResponseTopic] = []
    if request.topics is None:
        topics = [_topic(broker, name, numbers) for name, numbers in there.items()]
    else:
        topics = [_asked(broker, asked, there) for asked in request.topics]
    node = MetadataResponse.MetadataResponseBroker(node_id=broker.node_id, host=call.peer.host, port=call.peer.port)
    return MetadataResponse(
        brokers=[node],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=topics,
        cluster_authorized_operations=_NO_OPERATIONS,
    )


def _refused(request: MetadataRequest) -> MetadataResponse:
    """Return the answer to a request that a broker does not look into: only the topics that were asked for.

    Source: Kafka MetadataRequest.getErrorResponse.
    """
    topics = [
        MetadataResponse.MetadataResponseTopic(
            error_code=ErrorCode.INVALID_REQUEST,
            name=asked.name or "",
            topic_id=asked.topic_id,
            topic_authorized_operations=_NO_OPERATIONS,
        )
        for asked in request.topics or ()
    ]
    return MetadataResponse(controller_id=_NO_NODE, topics=topics, cluster_authorized_operations=_NO_OPERATIONS)


def _make_missing(broker: Broker, request: MetadataRequest) -> None:
    is_wanted = request.allow_auto_topic_creation and broker.config.creates_topics and broker.may_change_topics
    if not is_wanted or broker.writer is None:
        return
    for name in [asked.name for asked in request.topics or () if asked.topic_id == ZERO_UUID]:
        if name is not None and name not in INTERNAL_TOPICS and name not in broker.store:
            # A name that cannot be beside another one is answered as one that is not there.
            with suppress(InvalidTopicError):
                broker.writer.create_topic(name, broker.config.partitions, exist_ok=True)


def _asked(
    broker: Broker, asked: MetadataRequest.MetadataRequestTopic, there: dict[str, list[int]]
) -> MetadataResponse.MetadataResponseTopic:
    name = asked.name
    # Java's admin client has the name "" beside an id.
    if name is None or asked.topic_id != ZERO_UUID:
        name = broker.topic_named(asked.topic_id)
        if name is None:
            return MetadataResponse.MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                name=None,
                topic_id=asked.topic_id,
                topic_authorized_operations=_NO_OPERATIONS,
            )
    return _topic(broker, name, there.get(name))


def _topic(broker: Broker, name: str, numbers: list[int] | None) -> MetadataResponse.MetadataResponseTopic:
    topic_id = broker.known_topic_id(name)
    if numbers is None or topic_id is None:
        return MetadataResponse.MetadataResponseTopic(
            error_code=_code_of_missing(name),
            name=name,
            topic_id=ZERO_UUID,
            topic_authorized_operations=_NO_OPERATIONS,
        )
    partitions = [
        MetadataResponse.MetadataResponsePartition(partition_index=number, **_led(broker, name, number))
        for number in numbers
    ]
    return MetadataResponse.MetadataResponseTopic(
        name=name,
        topic_id=topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=_NO_OPERATIONS,
    )


def _code_of_missing(topic: str) -> int:
    return code_of(UnknownTopicOrPartitionError if is_topic_name(topic) else InvalidTopicError)


def _led(broker: Broker, topic: str, number: int) -> dict[str, Any]:
    """Return who leads a partition and has it: this node, unless its log cannot be opened."""
    node = broker.node_id
    try:
        epoch = max(broker.leader_epochs(topic, number).latest_epoch, 0)
    except KStoreError:
        return {
            "error_code": ErrorCode.LEADER_NOT_AVAILABLE,
            "leader_id": _NO_NODE,
            "replica_nodes": [node],
            "offline_replicas": [node],
        }
    return {"leader_id": node, "leader_epoch": epoch, "replica_nodes": [node], "isr_nodes": [node]}


def describe_topic_partitions(
    broker: Broker, call: Call[DescribeTopicPartitionsRequest]
) -> DescribeTopicPartitionsResponse:
    """Return topics with their partitions, by name, from a cursor on and up to a number of partitions.

    Source: Kafka DescribeTopicPartitionsRequestHandler.
    """
    request, there, kinds = call.body, broker.topics(), DescribeTopicPartitionsResponse
    cursor_topic, cursor_number = ("", 0)
    if request.cursor is not None:
        cursor_topic, cursor_number = request.cursor.topic_name, request.cursor.partition_index
    asked = {one.name for one in request.topics}
    if cursor_number < 0 or (asked and cursor_topic and cursor_topic not in asked):
        code = code_of(InvalidRequestError)
        return kinds(
            topics=[kinds.DescribeTopicPartitionsResponseTopic(error_code=code, name=one) for one in sorted(asked)]
        )
    left = max(min(request.response_partition_limit, _MOST_DESCRIBED), 1)
    answer = kinds()
    for name in sorted(one for one in asked or there if one >= cursor_topic):
        if not left:
            answer.next_cursor = kinds.Cursor(topic_name=name, partition_index=0)
            break
        least = cursor_number if name == cursor_topic else 0
        numbers = [number for number in there.get(name, ()) if number >= least]
        answer.topics.append(_described(broker, name, numbers[:left], is_there=name in there))
        if len(numbers) > left:
            answer.next_cursor = kinds.Cursor(topic_name=name, partition_index=numbers[left])
            break
        left -= len(numbers)
    return answer


def _described(
    broker: Broker, name: str, numbers: list[int], *, is_there: bool
) -> DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic:
    kinds = DescribeTopicPartitionsResponse
    topic_id = broker.known_topic_id(name) if is_there else None
    if topic_id is None:
        return kinds.DescribeTopicPartitionsResponseTopic(
            error_code=_code_of_missing(name), name=name, topic_authorized_operations=_NO_OPERATIONS
        )
    # Java's clients fail on null in place of the empty lists.
    partitions = [
        kinds.DescribeTopicPartitionsResponsePartition(
            partition_index=number, eligible_leader_replicas=[], last_known_elr=[], **_led(broker, name, number)
        )
        for number in numbers
    ]
    return kinds.DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=_NO_OPERATIONS,
    )
