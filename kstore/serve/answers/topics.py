"""CreateTopics and DeleteTopics."""

from __future__ import annotations

from kstore.errors import KStoreError, TopicSettingsError
from kstore.serve.broker import Broker
from kstore.serve.calls import Call
from kstore.serve.codes import INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, POLICY_VIOLATION, code_of
from kstore.store.settings.kafka_names import parse_setting
from kstore.wire.messages import CreateTopicsRequest, CreateTopicsResponse

NO_CHANGES = "topics of this root cannot be changed: it is only read, or belongs to a KRaft cluster"


def create_topics(broker: Broker, call: Call[CreateTopicsRequest]) -> CreateTopicsResponse:
    """Create topics, or with validate_only say whether they could be."""
    return CreateTopicsResponse(topics=[_created(broker, asked) for asked in call.body.topics])


def _created(broker: Broker, asked: CreateTopicsRequest.CreatableTopic) -> CreateTopicsResponse.CreatableTopicResult:
    partitions = broker.config.partitions if asked.num_partitions == -1 else asked.num_partitions
    code, message, topic_id = 0, None, None
    if broker.writer is None or not broker.may_change_topics:
        code, message = POLICY_VIOLATION, NO_CHANGES
    elif partitions < 1:
        code, message = INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
    elif asked.replication_factor not in (-1, 1):
        code, message = INVALID_REPLICATION_FACTOR, "there is one node"
    else:
        try:
            settings = dict(parse_setting(config.name, config.value or "") for config in asked.configs)
            topic_id = broker.writer.create_topic(asked.name, partitions, config=settings or None)
        except KStoreError as error:
            code, message = code_of(error), str(error)
        except (ValueError, TypeError) as error:
            code, message = code_of(TopicSettingsError), str(error)
    result = CreateTopicsResponse.CreatableTopicResult(
        name=asked.name, error_code=code, error_message=message, num_partitions=partitions, replication_factor=1
    )
    if topic_id is not None:
        result.topic_id = topic_id
    return result
