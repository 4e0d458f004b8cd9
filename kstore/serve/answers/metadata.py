"""What the cluster is: its versions, its one node, its topics."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from kstore.errors import InvalidRequestError, InvalidTopicError, UnknownTopicOrPartitionError, UnsupportedVersionError
from kstore.serve.broker import Broker
from kstore.serve.calls import Call
from kstore.serve.codes import UNKNOWN_TOPIC_ID, code_of
from kstore.serve.config import GROUP_VERSION, METADATA_VERSION, TRANSACTION_VERSION
from kstore.types import INTERNAL_TOPICS, ZERO_UUID
from kstore.wire.frames import apis
from kstore.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)

_NO_OPERATIONS = -(2**31)
_NAMELESS_VERSION = 12
_API_VERSIONS = 18
# A broker offers versions of Produce that it refuses, which old librdkafka looks for (KAFKA-18659).
_LEAST_VERSIONS = {0: 0}
_FEATURES = {"metadata.version": (7, METADATA_VERSION), "group.version": (0, 1), "transaction.version": (0, 2)}
_FINALIZED = {
    "metadata.version": METADATA_VERSION,
    "group.version": GROUP_VERSION,
    "transaction.version": TRANSACTION_VERSION,
}


def api_versions(served: Iterable[int], call: Call[ApiVersionsRequest]) -> ApiVersionsResponse:
    """Return the versions of the served apis, and the features of the cluster."""
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
        for name, level in _FINALIZED.items()
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

    Raises: InvalidRequestError for a topic without a name in a version that has no place for that.
    Cost: opens the logs of the topics that are not open; makes topics.
    """
    request = call.body
    if call.version < _NAMELESS_VERSION and any(asked.name is None for asked in request.topics or ()):
        text = f"Metadata {call.version} names topics, found an id"
        raise InvalidRequestError(text, field="MetadataRequest.topics.name")
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


def _make_missing(broker: Broker, request: MetadataRequest) -> None:
    is_wanted = request.allow_auto_topic_creation and broker.config.creates_topics and broker.may_change_topics
    if not is_wanted or broker.writer is None:
        return
    for name in [asked.name for asked in request.topics or ()]:
        if name is not None and name not in INTERNAL_TOPICS and name not in broker.store:
            # A name that Kafka does not allow is answered as one that is not there.
            with suppress(InvalidTopicError):
                broker.writer.create_topic(name, broker.config.partitions, exist_ok=True)


def _asked(
    broker: Broker, asked: MetadataRequest.MetadataRequestTopic, there: dict[str, list[int]]
) -> MetadataResponse.MetadataResponseTopic:
    name = asked.name
    if name is None:
        name = broker.topic_named(asked.topic_id)
        if name is None:
            return MetadataResponse.MetadataResponseTopic(
                error_code=UNKNOWN_TOPIC_ID,
                name=None,
                topic_id=asked.topic_id,
                topic_authorized_operations=_NO_OPERATIONS,
            )
    numbers = there.get(name)
    if numbers is None:
        return MetadataResponse.MetadataResponseTopic(
            error_code=code_of(UnknownTopicOrPartitionError),
            name=name,
            topic_id=ZERO_UUID,
            topic_authorized_operations=_NO_OPERATIONS,
        )
    return _topic(broker, name, numbers)


def _topic(broker: Broker, name: str, numbers: list[int]) -> MetadataResponse.MetadataResponseTopic:
    node = broker.node_id
    partitions = [
        MetadataResponse.MetadataResponsePartition(
            partition_index=number,
            leader_id=node,
            leader_epoch=broker.leader_epoch(name, number),
            replica_nodes=[node],
            isr_nodes=[node],
        )
        for number in numbers
    ]
    return MetadataResponse.MetadataResponseTopic(
        name=name,
        topic_id=broker.topic_id(name),
        is_internal=name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=_NO_OPERATIONS,
    )
