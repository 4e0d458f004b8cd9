"""CreateTopics, CreatePartitions, DeleteTopics and DeleteRecords."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

from kstore.errors import InvalidRequestError, InvalidTopicError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from kstore.serve.broker import Broker
from kstore.serve.calls import Call
from kstore.serve.refusals import REFUSALS, RefusedError, code_of, refusal
from kstore.serve.settings import parsed_settings, shown_settings
from kstore.types import INTERNAL_TOPICS
from kstore.wire.codes import ErrorCode
from kstore.wire.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kstore.wire.protocol import ZERO_UUID

_Answer = TypeVar("_Answer")
_INVALID_REQUEST = code_of(InvalidRequestError)
_UNKNOWN_TOPIC = code_of(UnknownTopicOrPartitionError)
# As many partitions a broker makes for one request.
_MOST_PARTITIONS = 10_000
_SERVERS_CHOICE = -1
_HIGH_WATERMARK = -1
_NO_LOW_WATERMARK = -1


def create_topics(broker: Broker, call: Call[CreateTopicsRequest]) -> CreateTopicsResponse:
    """Create topics, or with validate_only say whether they could be."""

    def created(asked: CreateTopicsRequest.CreatableTopic) -> CreateTopicsResponse.CreatableTopicResult:
        return _created(broker, asked, validate_only=call.body.validate_only)

    refused = CreateTopicsResponse.CreatableTopicResult
    return CreateTopicsResponse(topics=_each_once(call.body.topics, created, refused))


def _each_once(
    topics: Iterable[Any], answer: Callable[[Any], _Answer], refused: Callable[..., _Answer]
) -> list[_Answer]:
    """Return the answers to the topics of a request; those that it names more than once are refused."""
    counts = Counter(asked.name for asked in topics)
    answers = []
    for asked in topics:
        if counts[asked.name] == 1:
            answers.append(answer(asked))
        elif counts.pop(asked.name, 0):
            message = "Duplicate topic name."
            answers.append(refused(name=asked.name, error_code=_INVALID_REQUEST, error_message=message))
    return answers


def _created(
    broker: Broker, asked: CreateTopicsRequest.CreatableTopic, *, validate_only: bool
) -> CreateTopicsResponse.CreatableTopicResult:
    try:
        writer = broker.changed_store()
        settings = parsed_settings(_texts_of(asked))
        writer.create_topic(asked.name, config=settings, validate_only=True)
        count = _partition_count(broker, asked)
        topic_id = writer.create_topic(asked.name, count, config=settings or None, validate_only=validate_only)
        config = replace(writer.config, **settings) if validate_only else writer.topic_config(asked.name)
    except (*REFUSALS, ValueError, TypeError) as error:
        code, message = refusal(error, root=broker.store.root)
        return CreateTopicsResponse.CreatableTopicResult(
            name=asked.name, error_code=code, error_message=message, num_partitions=-1, replication_factor=-1
        )
    configs = [
        CreateTopicsResponse.CreatableTopicConfigs(
            name=one.definition.name, value=one.value, read_only=False, config_source=one.source, is_sensitive=False
        )
        for one in shown_settings(config, default=writer.config, given=settings)
    ]
    return CreateTopicsResponse.CreatableTopicResult(
        name=asked.name, topic_id=topic_id, num_partitions=count, replication_factor=1, configs=configs
    )


def _texts_of(asked: CreateTopicsRequest.CreatableTopic) -> Mapping[str, str]:
    texts = {config.name: config.value for config in asked.configs if config.value is not None}
    if len(texts) < len(asked.configs):
        nulls = ",".join(config.name for config in asked.configs if config.value is None)
        raise ValueError(f"Null value not supported for topic configs: {nulls}")
    return texts


def _partition_count(broker: Broker, asked: CreateTopicsRequest.CreatableTopic) -> int:
    """Return how many partitions a new topic has.  Raises: RefusedError."""
    count, replicas = asked.num_partitions, asked.replication_factor
    if asked.assignments:
        for name, value in (("replication factor", replicas), ("numPartitions", count)):
            if value != _SERVERS_CHOICE:
                message = f"A manual partition assignment was specified, but {name} was not set to -1."
                raise RefusedError(_INVALID_REQUEST, message)
        numbers = [one.partition_index for one in asked.assignments]
        _check_assigned(broker, (one.broker_ids for one in asked.assignments))
        count = len(numbers)
        if sorted(numbers) != list(range(count)):
            message = "partitions should be a consecutive 0-based integer sequence, each once"
            raise RefusedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    elif replicas not in (_SERVERS_CHOICE, 1):
        raise RefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"Unable to replicate {replicas} times: there is one node."
        )
    elif count < _SERVERS_CHOICE or count == 0:
        raise RefusedError(
            ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
        )
    count = broker.config.partitions if count == _SERVERS_CHOICE else count
    _check_not_excessive(count)
    return count


def _check_assigned(broker: Broker, assigned: Iterable[list[int]]) -> None:
    """Check that partitions are assigned to the one node."""
    for nodes in assigned:
        if nodes != [broker.node_id]:
            message = f"A partition is assigned to {nodes}; the one node is {broker.node_id}."
            raise RefusedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _check_not_excessive(count: int) -> None:
    if count > _MOST_PARTITIONS:
        raise RefusedError(
            ErrorCode.POLICY_VIOLATION, f"Unable to make {count} partitions: at most {_MOST_PARTITIONS} at once."
        )


def create_partitions(broker: Broker, call: Call[CreatePartitionsRequest]) -> CreatePartitionsResponse:
    """Add partitions to topics, or with validate_only say whether they could be."""

    def grown(
        asked: CreatePartitionsRequest.CreatePartitionsTopic,
    ) -> CreatePartitionsResponse.CreatePartitionsTopicResult:
        code, message = 0, None
        try:
            _grow(broker, asked, validate_only=call.body.validate_only)
        except REFUSALS as error:
            code, message = refusal(error, root=broker.store.root)
        return CreatePartitionsResponse.CreatePartitionsTopicResult(
            name=asked.name, error_code=code, error_message=message
        )

    refused = CreatePartitionsResponse.CreatePartitionsTopicResult
    return CreatePartitionsResponse(results=_each_once(call.body.topics, grown, refused))


def _grow(broker: Broker, asked: CreatePartitionsRequest.CreatePartitionsTopic, *, validate_only: bool) -> None:
    writer = broker.changed_store()
    numbers = broker.topics().get(asked.name)
    if numbers is None:
        raise RefusedError(_UNKNOWN_TOPIC, None)
    count = 1 + max(numbers)
    if asked.count == count:
        raise RefusedError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {count} partition(s).")
    if asked.count < count:
        message = f"The topic {asked.name} has {count} partition(s); {asked.count} would not be an increase."
        raise RefusedError(ErrorCode.INVALID_PARTITIONS, message)
    added = asked.count - count
    if asked.assignments is not None:
        if len(asked.assignments) != added:
            message = f"{added} partition(s) would be added, and {len(asked.assignments)} are assigned."
            raise RefusedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        _check_assigned(broker, (one.broker_ids for one in asked.assignments))
    _check_not_excessive(added)
    if not validate_only:
        writer.create_partitions(asked.name, asked.count)


def delete_topics(broker: Broker, call: Call[DeleteTopicsRequest]) -> DeleteTopicsResponse:
    """Delete topics, by their names or ids."""
    request = call.body
    asked = [(one.name, one.topic_id) for one in request.topics] + [(name, ZERO_UUID) for name in request.topic_names]
    counts = Counter(asked)
    by_id = {broker.topic_named(topic_id) for name, topic_id in counts if name is None}
    by_name = {name for name, _ in counts}
    responses = []
    for (name, topic_id), count in counts.items():
        code, message = 0, None
        topic, known_id = name, topic_id
        try:
            if (name is None) == (topic_id == ZERO_UUID):
                raise RefusedError(_INVALID_REQUEST, "A topic has either a name or an id.")
            if count > 1:
                raise RefusedError(_INVALID_REQUEST, f"Duplicate topic {'id' if name is None else 'name'}.")
            topic, known_id = _named(broker, name, topic_id)
            if topic in by_id and topic in by_name:
                raise RefusedError(_INVALID_REQUEST, "The topic is named by its name and by its id.")
            _delete(broker, topic)
        except REFUSALS as error:
            code, message = refusal(error, root=broker.store.root)
        responses.append(
            DeleteTopicsResponse.DeletableTopicResult(
                name=topic, topic_id=known_id, error_code=code, error_message=message
            )
        )
    return DeleteTopicsResponse(responses=responses)


def _named(broker: Broker, name: str | None, topic_id: UUID) -> tuple[str, UUID]:
    """Return name and id of a topic by one of them.  Raises: RefusedError."""
    found = broker.topic_named(topic_id) if name is None else name
    if found is None:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    if found not in broker.store:
        raise RefusedError(_UNKNOWN_TOPIC, "This server does not host this topic-partition.")
    return found, broker.topic_id(found)


def _delete(broker: Broker, topic: str) -> None:
    writer = broker.changed_store()
    if topic in INTERNAL_TOPICS:
        raise RefusedError(code_of(InvalidTopicError), f"{topic} is internal: it is not deleted while it is used.")
    writer.delete_topic(topic)


def delete_records(broker: Broker, call: Call[DeleteRecordsRequest]) -> DeleteRecordsResponse:
    """Raise the log start offsets of partitions."""

    def deleted(
        topic: str, asked: DeleteRecordsRequest.DeleteRecordsPartition
    ) -> DeleteRecordsResponse.DeleteRecordsPartitionResult:
        code, low_watermark = 0, _NO_LOW_WATERMARK
        try:
            low_watermark = _delete_records(broker, topic, asked.partition_index, before_offset=asked.offset)
        except REFUSALS as error:
            code, _ = refusal(error, root=broker.store.root)
        return DeleteRecordsResponse.DeleteRecordsPartitionResult(
            partition_index=asked.partition_index, low_watermark=low_watermark, error_code=code
        )

    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponse.DeleteRecordsTopicResult(
                name=topic.name, partitions=[deleted(topic.name, asked) for asked in topic.partitions]
            )
            for topic in call.body.topics
        ]
    )


def _delete_records(broker: Broker, topic: str, number: int, *, before_offset: int) -> int:
    """Delete records of one partition; return its log start offset."""
    broker.log(topic, number)
    writer = broker.written_store()
    if topic in INTERNAL_TOPICS:
        raise RefusedError(code_of(InvalidTopicError), f"Cannot delete records of internal topic {topic}")
    log = writer.log(topic, number)
    if "delete" not in log.config.cleanup_policy:
        message = f"Records of partition {topic}-{number} can not be deleted due to the configured policy"
        raise RefusedError(ErrorCode.POLICY_VIOLATION, message)
    before_offset = log.high_watermark if before_offset == _HIGH_WATERMARK else before_offset
    if before_offset < 0:
        raise RefusedError(code_of(OffsetOutOfRangeError), f"The offset {before_offset} is not valid")
    return log.delete_records(before_offset)
