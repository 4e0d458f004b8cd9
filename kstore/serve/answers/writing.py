"""Produce and InitProducerId: records that clients write."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from kstore.config import KIB
from kstore.coordinator.group.codes import GroupCode
from kstore.coordinator.producer_ids import random_producer_id
from kstore.errors import InvalidRecordError, KStoreError
from kstore.record.batches import MemoryRecords
from kstore.serve.broker import Broker
from kstore.serve.calls import Call, NoAnswerError
from kstore.serve.codes import (
    INVALID_REQUIRED_ACKS,
    POLICY_VIOLATION,
    UNKNOWN_TOPIC_ID,
    code_of,
)
from kstore.types import Ack
from kstore.wire.messages import InitProducerIdRequest, InitProducerIdResponse, ProduceRequest, ProduceResponse

_PRODUCE_BY_ID = 13
_NO_ACKS, _ALL = 0, -1
# More than this is appended in a thread: the write may have to wait for the disk.
_MOST_INLINE_BYTES = 64 * KIB


def produce(broker: Broker, call: Call[ProduceRequest]) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    """Append the records of a request, a batch for each partition; return None if no answer is wanted."""
    request = call.body
    ack: Ack = broker.config.ack_of_all if request.acks == _ALL else "written"
    size = sum(len(part.records or b"") for topic in request.topic_data for part in topic.partition_data)
    if ack != "written" or size > _MOST_INLINE_BYTES:
        return asyncio.to_thread(_answer, broker, call, ack)
    return _answer(broker, call, ack)


def _answer(broker: Broker, call: Call[ProduceRequest], ack: Ack) -> ProduceResponse | None:
    answer = _produced(broker, call.body, version=call.version, ack=ack)
    if call.body.acks != _NO_ACKS:
        return answer
    codes = {part.error_code for topic in answer.responses for part in topic.partition_responses} - {0}
    if codes:
        raise NoAnswerError(f"records that were sent with acks=0 were refused: codes {sorted(codes)}")
    return None


def _produced(broker: Broker, request: ProduceRequest, *, version: int, ack: Ack) -> ProduceResponse:
    responses = []
    for topic in request.topic_data:
        name = broker.topic_named(topic.topic_id) if version >= _PRODUCE_BY_ID else topic.name
        partitions = [
            _appended(broker, name, part, ack=ack, are_acks_valid=request.acks in (_NO_ACKS, 1, _ALL))
            for part in topic.partition_data
        ]
        responses.append(
            ProduceResponse.TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=partitions
            )
        )
    return ProduceResponse(responses=responses)


def _appended(
    broker: Broker, topic: str | None, part: ProduceRequest.PartitionProduceData, *, ack: Ack, are_acks_valid: bool
) -> ProduceResponse.PartitionProduceResponse:
    if not are_acks_valid:
        return _refused(part.index, code=INVALID_REQUIRED_ACKS)
    if topic is None:
        return _refused(part.index, code=UNKNOWN_TOPIC_ID)
    if broker.writer is None:
        return _refused(part.index, code=POLICY_VIOLATION, message="this server only reads")
    if part.records is None:
        return _refused(part.index, code=code_of(InvalidRecordError), message="no records")
    try:
        broker.log(topic, part.index)
        log = broker.writer.log(topic, part.index)
        done = log.append(MemoryRecords(part.records), ack=ack)
    except KStoreError as error:
        return _refused(part.index, code=code_of(error), message=str(error))
    return ProduceResponse.PartitionProduceResponse(
        index=part.index,
        base_offset=done.base_offset,
        log_append_time_ms=done.log_append_time_ms,
        log_start_offset=done.log_start_offset,
    )


def _refused(number: int, *, code: int, message: str | None = None) -> ProduceResponse.PartitionProduceResponse:
    return ProduceResponse.PartitionProduceResponse(
        index=number, error_code=code, base_offset=-1, error_message=message
    )


def init_producer_id(broker: Broker, call: Call[InitProducerIdRequest]) -> InitProducerIdResponse:
    """Return a new producer id for an idempotent producer."""
    if call.body.transactional_id is not None or broker.writer is None:
        return InitProducerIdResponse(error_code=GroupCode.COORDINATOR_NOT_AVAILABLE, producer_id=-1, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=random_producer_id(), producer_epoch=0)
