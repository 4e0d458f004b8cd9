"""Produce: records that clients write."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from kstore.config import KIB
from kstore.errors import InvalidRecordError, InvalidTopicError, KStoreError, RecordError, RecordValidationError
from kstore.record.batches import MemoryRecords
from kstore.serve.broker import Broker
from kstore.serve.calls import Call, NoAnswerError
from kstore.serve.coordination.transactions import code_of_data, transactional_producer
from kstore.serve.refusals import code_of, told
from kstore.types import INTERNAL_TOPICS, Ack, TopicPartition
from kstore.wire.codes import ErrorCode
from kstore.wire.messages import ProduceRequest, ProduceResponse

_PRODUCE_BY_ID = 13
# The least versions of clients that know an error which an abort cures, and of those with transactions of version 2.
_PRODUCE_KNOWS_ABORTABLE, _PRODUCE_V2 = 11, 12
_NO_ACKS, _ALL = 0, -1
# More than this is appended in a thread: the write may have to wait for the disk.
_MOST_INLINE_BYTES = 64 * KIB


def produce(broker: Broker, call: Call[ProduceRequest]) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    """Append the records of a request, a batch for each partition; return None if no answer is wanted."""
    request = call.body
    ack: Ack = broker.config.ack_of_all if request.acks == _ALL else "written"
    parts = [part.records for topic in request.topic_data for part in topic.partition_data]
    is_transactional = any(transactional_producer(records) is not None for records in parts)
    if ack != "written" or is_transactional or sum(len(records or b"") for records in parts) > _MOST_INLINE_BYTES:
        return asyncio.to_thread(_answer, broker, call, ack, is_transactional=is_transactional)
    return _answer(broker, call, ack, is_transactional=False)


def _answer(broker: Broker, call: Call[ProduceRequest], ack: Ack, *, is_transactional: bool) -> ProduceResponse | None:
    answer = _produced(broker, call, ack, is_transactional=is_transactional)
    if call.body.acks != _NO_ACKS:
        return answer
    codes = {part.error_code for topic in answer.responses for part in topic.partition_responses} - {0}
    if codes:
        raise NoAnswerError(f"records that were sent with acks=0 were refused: codes {sorted(codes)}")
    return None


def _produced(broker: Broker, call: Call[ProduceRequest], ack: Ack, *, is_transactional: bool) -> ProduceResponse:
    request, is_by_id = call.body, call.version >= _PRODUCE_BY_ID
    names = [broker.topic_named(topic.topic_id) if is_by_id else topic.name for topic in request.topic_data]
    code = 0
    if request.acks not in (_NO_ACKS, 1, _ALL):
        code = ErrorCode.INVALID_REQUIRED_ACKS
    elif is_transactional:
        code = _begun(broker, call, names)
    responses = [
        ProduceResponse.TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[
                _refused(part.index, code=code) if code else _appended(broker, call, name, part, ack=ack)
                for part in topic.partition_data
            ],
        )
        for name, topic in zip(names, request.topic_data, strict=True)
    ]
    return ProduceResponse(responses=responses)


def _begun(broker: Broker, call: Call[ProduceRequest], names: list[str | None]) -> int:
    """Add partitions to the transaction, if the client leaves it to the broker; return the code if nothing can be
    appended.
    """
    request = call.body
    if request.transactional_id is None:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if broker.transactions is None or call.version < _PRODUCE_V2:
        return 0
    data = (
        (TopicPartition(name, part.index), producer)
        for name, topic in zip(names, request.topic_data, strict=True)
        for part in topic.partition_data
        if name is not None
        and name not in INTERNAL_TOPICS
        and (name, part.index) in broker.store
        and (producer := transactional_producer(part.records)) is not None
    )
    try:
        broker.transactions.begin(request.transactional_id, data)
    except KStoreError as error:
        return code_of_data(error)
    return 0


def _appended(
    broker: Broker,
    call: Call[ProduceRequest],
    topic: str | None,
    part: ProduceRequest.PartitionProduceData,
    *,
    ack: Ack,
) -> ProduceResponse.PartitionProduceResponse:
    if topic is None:
        return _refused(part.index, code=ErrorCode.UNKNOWN_TOPIC_ID)
    if broker.writer is None or broker.transactions is None:
        return _refused(part.index, code=ErrorCode.POLICY_VIOLATION, message="this server only reads")
    if topic in INTERNAL_TOPICS:
        return _refused(part.index, code=code_of(InvalidTopicError), message="an internal topic is not for clients")
    if part.records is None:
        return _refused(part.index, code=code_of(InvalidRecordError), message="no records")
    place, producer = TopicPartition(topic, part.index), transactional_producer(part.records)
    try:
        broker.log(*place)
        log = broker.writer.log(*place)
        if producer is None:
            done = log.append(MemoryRecords(part.records), ack=ack)
        else:
            coordinator = broker.transactions.coordinator
            with coordinator.appending(producer, (place,), transactional_id=call.body.transactional_id):
                done = log.append(MemoryRecords(part.records), ack=ack)
    except KStoreError as error:
        code = code_of_data(error, knows_abortable=call.version >= _PRODUCE_KNOWS_ABORTABLE)
        refusal = _refused(part.index, code=code, message=told(error, root=broker.store.root))
        if isinstance(error, RecordValidationError):
            refusal.record_errors = [_record_error(one) for one in error.errors]
        return refusal
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


def _record_error(error: RecordError) -> ProduceResponse.BatchIndexAndErrorMessage:
    """Return which record of a batch was refused: its producer may send the others again (KIP-467)."""
    return ProduceResponse.BatchIndexAndErrorMessage(
        batch_index=error.record_index, batch_index_error_message=error.message
    )
