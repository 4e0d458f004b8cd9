"""Operations: which ones a client may do with a topic, a group or the cluster, as answers tell them (KIP-430)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kstore.serve.security.rules import Access, Operation, Resource

# Kafka: AclOperation.
_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = 3, 4, 5, 6, 7, 8
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = 9, 10, 11, 12
# Kafka: AclEntry.supportedOperations, by the operation of the rules that each belongs to.
_SUPPORTED: dict[Resource, Mapping[Operation, tuple[int, ...]]] = {
    Resource.TOPIC: {
        Operation.READ: (_READ,),
        Operation.WRITE: (_WRITE,),
        Operation.DESCRIBE: (_DESCRIBE,),
        Operation.ADMIN: (_CREATE, _DELETE, _ALTER, _DESCRIBE_CONFIGS, _ALTER_CONFIGS),
    },
    Resource.GROUP: {
        Operation.READ: (_READ,),
        Operation.DESCRIBE: (_DESCRIBE,),
        Operation.ADMIN: (_DELETE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS),
    },
    Resource.CLUSTER: {
        Operation.ADMIN: (
            _CREATE,
            _ALTER,
            _DESCRIBE,
            _CLUSTER_ACTION,
            _DESCRIBE_CONFIGS,
            _ALTER_CONFIGS,
            _IDEMPOTENT_WRITE,
        ),
    },
}
_METADATA, _DESCRIBE_GROUPS, _DESCRIBE_CLUSTER, _CONSUMER_GROUP_DESCRIBE, _DESCRIBE_TOPIC_PARTITIONS = 3, 15, 60, 69, 75
# The apis whose requests may ask for operations.
WITH_OPERATIONS = frozenset(
    {_METADATA, _DESCRIBE_GROUPS, _DESCRIBE_CLUSTER, _CONSUMER_GROUP_DESCRIBE, _DESCRIBE_TOPIC_PARTITIONS}
)


def operations(access: Access, resource: Resource, name: str) -> int:
    """Return the operations that are allowed, as the bits of their codes.  Source: Kafka AuthHelper."""
    return sum(
        1 << code
        for operation, codes in _SUPPORTED[resource].items()
        if access.may(operation, resource, name)
        for code in codes
    )


def tell_operations(api_key: int, asked: Any, answer: Any, *, access: Access) -> None:
    """Put the operations into an answer whose request asks for them."""
    if api_key in (_METADATA, _DESCRIBE_CLUSTER) and asked.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = operations(access, Resource.CLUSTER, "")
    if api_key == _DESCRIBE_TOPIC_PARTITIONS or (api_key == _METADATA and asked.include_topic_authorized_operations):
        for topic in answer.topics:
            if not topic.error_code:
                topic.topic_authorized_operations = operations(access, Resource.TOPIC, topic.name)
    if api_key in (_DESCRIBE_GROUPS, _CONSUMER_GROUP_DESCRIBE) and asked.include_authorized_operations:
        for group in answer.groups:
            if not group.error_code:
                group.authorized_operations = operations(access, Resource.GROUP, group.group_id)
