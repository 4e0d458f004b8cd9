"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

from kstore.errors import (
    InvalidRequestError,
    InvalidTopicError,
    TopicSettingsError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kstore.serve.broker import Broker
from kstore.serve.calls import Call
from kstore.serve.refusals import REFUSALS, RefusedError, code_of, refusal
from kstore.serve.settings import Shown, is_list, parsed_settings, shown_server_settings, shown_settings
from kstore.store.settings.kafka_names import TOPIC_SETTINGS_BY_NAME
from kstore.types import is_topic_name
from kstore.wire.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_Answer = TypeVar("_Answer")
_INVALID_REQUEST, _INVALID_CONFIG = code_of(InvalidRequestError), code_of(TopicSettingsError)
# Before this version of ListConfigResources it is about the metrics of clients alone.
_LIST_SEVERAL_VERSION = 1


class Resource(IntEnum):
    """The types of what has settings (Kafka: ConfigResource.Type)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Operation(IntEnum):
    """What is done to a setting (Kafka: AlterConfigOp.OpType)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def describe_configs(broker: Broker, call: Call[DescribeConfigsRequest]) -> DescribeConfigsResponse:
    """Return the settings of topics and of this node."""
    return DescribeConfigsResponse(results=[_described(broker, call.body, asked) for asked in call.body.resources])


def _described(
    broker: Broker, request: DescribeConfigsRequest, asked: DescribeConfigsRequest.DescribeConfigsResource
) -> DescribeConfigsResponse.DescribeConfigsResult:
    result = DescribeConfigsResponse.DescribeConfigsResult(
        resource_type=asked.resource_type, resource_name=asked.resource_name
    )
    try:
        shown = _shown(broker, asked.resource_type, asked.resource_name)
    except (*REFUSALS, ValueError, TypeError) as error:
        result.error_code, result.error_message = refusal(error, root=broker.store.root)
        return result
    result.configs = [
        DescribeConfigsResponse.DescribeConfigsResourceResult(
            name=one.definition.name,
            value=one.value,
            read_only=asked.resource_type == Resource.BROKER,
            config_source=one.source,
            synonyms=[
                DescribeConfigsResponse.DescribeConfigsSynonym(name=said.name, value=said.value, source=said.source)
                for said in (one.synonyms if request.include_synonyms else ())
            ],
            config_type=one.definition.type,
            documentation=one.definition.documentation if request.include_documentation else None,
        )
        for one in shown
        if not asked.configuration_keys or one.definition.name in asked.configuration_keys
    ]
    return result


def _shown(broker: Broker, resource_type: int, name: str) -> list[Shown]:
    """Return the settings of a resource.  Raises: RefusedError, and the errors of topic_config."""
    if resource_type == Resource.TOPIC:
        _check_topic(broker, name)
        config, texts = broker.topic_config(name), broker.texts_of_cluster(name)
        return shown_settings(
            config, default=broker.default_config(), given=broker.overridden_config(name), texts=texts
        )
    if resource_type in (Resource.BROKER, Resource.BROKER_LOGGER):
        # Without a name it is about settings that all brokers were given while they run.
        if resource_type == Resource.BROKER and not name:
            return []
        if name != str(broker.node_id):
            raise RefusedError(
                _INVALID_REQUEST, f"Unexpected broker id, expected {broker.node_id}, but received {name}"
            )
        if resource_type == Resource.BROKER_LOGGER:
            return []
        default = broker.default_config()
        return shown_server_settings(
            broker.config, default=default, node_id=broker.node_id, root=str(broker.store.root)
        )
    if resource_type in (Resource.CLIENT_METRICS, Resource.GROUP):
        if not name:
            raise RefusedError(_INVALID_REQUEST, "the name must not be empty")
        return []
    raise RefusedError(_INVALID_REQUEST, f"Unsupported resource type: {resource_type}")


def _check_topic(broker: Broker, name: str) -> None:
    if not name:
        raise RefusedError(_INVALID_REQUEST, "Default topic resources are not allowed.")
    if not is_topic_name(name):
        raise RefusedError(code_of(InvalidTopicError), f"Topic name is invalid: {name!r}")
    if name not in broker.store:
        raise RefusedError(code_of(UnknownTopicOrPartitionError), f"The topic {name!r} does not exist.")


class _Change(NamedTuple):
    """One change of a setting of a resource."""

    name: str
    operation: int
    value: str | None


def alter_configs(broker: Broker, call: Call[AlterConfigsRequest]) -> AlterConfigsResponse:
    """Give topics the settings of the request alone; they lose those that it does not name."""

    def altered(asked: AlterConfigsRequest.AlterConfigsResource) -> None:
        changes = [_Change(one.name, Operation.SET, one.value) for one in asked.configs]
        named = {one.name for one in asked.configs}
        changes += [_Change(name, Operation.DELETE, None) for name in TOPIC_SETTINGS_BY_NAME if name not in named]
        _alter(broker, asked.resource_type, asked.resource_name, changes, validate_only=call.body.validate_only)

    answer = AlterConfigsResponse.AlterConfigsResourceResponse
    return AlterConfigsResponse(responses=list(_each_altered(broker, call.body.resources, altered, answer)))


def incremental_alter_configs(
    broker: Broker, call: Call[IncrementalAlterConfigsRequest]
) -> IncrementalAlterConfigsResponse:
    """Change settings of topics."""

    def altered(asked: IncrementalAlterConfigsRequest.AlterConfigsResource) -> None:
        changes = [_Change(one.name, one.config_operation, one.value) for one in asked.configs]
        _alter(broker, asked.resource_type, asked.resource_name, changes, validate_only=call.body.validate_only)

    answer = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    return IncrementalAlterConfigsResponse(responses=list(_each_altered(broker, call.body.resources, altered, answer)))


def _each_altered(
    broker: Broker, resources: Iterable[Any], alter: Callable[[Any], None], answer: Callable[..., _Answer]
) -> Iterator[_Answer]:
    counts = Counter((asked.resource_type, asked.resource_name) for asked in resources)
    for asked in resources:
        code, message = 0, None
        try:
            if counts[asked.resource_type, asked.resource_name] > 1:
                raise RefusedError(_INVALID_REQUEST, "Each resource must appear at most once.")
            alter(asked)
        except (*REFUSALS, ValueError, TypeError) as error:
            code, message = refusal(error, root=broker.store.root)
        yield answer(
            error_code=code,
            error_message=message,
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
        )


def _alter(broker: Broker, resource_type: int, topic: str, changes: list[_Change], *, validate_only: bool) -> None:
    """Change settings of a topic, or check whether they can be.

    Raises: RefusedError; ValueError, TypeError for impossible settings; the errors of change_topic_config.
    Source: Kafka ConfigAdminManager.preprocess, ConfigurationControlManager.incrementalAlterConfigs.
    """
    if resource_type == Resource.BROKER:
        raise RefusedError(_INVALID_REQUEST, "This server's own settings are those that it was started with.")
    if resource_type != Resource.TOPIC:
        raise RefusedError(_INVALID_REQUEST, f"Unknown resource type {resource_type}")
    if len({one.name for one in changes}) < len(changes):
        raise RefusedError(_INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [one.name for one in changes if one.value is None and one.operation != Operation.DELETE]
    if nulls:
        raise RefusedError(_INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")
    writer = broker.changed_store()
    _check_topic(broker, topic)
    shown = shown_settings(writer.topic_config(topic), default=writer.config, given=())
    current = {one.definition.name: one.value for one in shown}
    texts = {one.name: _text(one, current) for one in changes if one.operation != Operation.DELETE}
    reset = [
        TOPIC_SETTINGS_BY_NAME[one.name]
        for one in changes
        if one.operation == Operation.DELETE and one.name in TOPIC_SETTINGS_BY_NAME
    ]
    writer.change_topic_config(topic, parsed_settings(texts), reset=reset, validate_only=validate_only)


def _text(change: _Change, current: Mapping[str, str]) -> str:
    """Return the value of a setting after a change.  Raises: RefusedError."""
    given = change.value or ""
    if change.operation == Operation.SET:
        return given
    if change.operation not in (Operation.APPEND, Operation.SUBTRACT):
        raise RefusedError(_INVALID_REQUEST, f"Unknown operation type {change.operation}")
    if not is_list(change.name):
        kind = Operation(change.operation).name
        raise RefusedError(_INVALID_CONFIG, f"Can't {kind} to key {change.name} because its type is not LIST.")
    parts = [part for part in current[change.name].split(",") if part]
    for part in given.split(","):
        if change.operation == Operation.APPEND and part not in parts:
            parts.append(part)
        elif change.operation == Operation.SUBTRACT and part in parts:
            parts.remove(part)
    return ",".join(parts)


def list_config_resources(broker: Broker, call: Call[ListConfigResourcesRequest]) -> ListConfigResourcesResponse:
    """Return what has settings: the topics and this node."""
    several = call.version >= _LIST_SEVERAL_VERSION
    served = set(Resource) if several else {Resource.CLIENT_METRICS}
    wanted = set(call.body.resource_types) or served
    if not wanted <= served:
        return ListConfigResourcesResponse(error_code=code_of(UnsupportedVersionError))
    named: dict[int, Iterable[str]] = {
        Resource.TOPIC: broker.store.topics,
        Resource.BROKER: (str(broker.node_id),),
        Resource.BROKER_LOGGER: (str(broker.node_id),),
    }
    found = [
        ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)
        for kind in sorted(wanted)
        for name in named.get(kind, ())
    ]
    return ListConfigResourcesResponse(config_resources=found)
