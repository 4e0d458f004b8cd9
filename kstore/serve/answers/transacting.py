"""The requests of transactional producers, but Produce."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable

from kstore.coordinator.group.offsets import MAX_METADATA_BYTES
from kstore.coordinator.producer_ids import NO_PRODUCER, ProducerIdAndEpoch, random_producer_id
from kstore.coordinator.transaction.state import EPOCH_BUMP_VERSION, unknown_producer_error
from kstore.errors import InvalidRequestError, KStoreError, UnknownTopicOrPartitionError
from kstore.serve.broker import Broker
from kstore.serve.calls import Call
from kstore.serve.coordination.groups import Groups
from kstore.serve.coordination.transactions import Transactions, code_of_data, code_of_request
from kstore.serve.refusals import code_of
from kstore.types import INTERNAL_TOPICS, OffsetAndMetadata, TopicPartition
from kstore.wire.codes import ErrorCode
from kstore.wire.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

_INVALID_REQUEST = code_of(InvalidRequestError)
# From these versions on clients know what a broker says of a producer that was fenced.
_INIT_KNOWS_FENCED, _ADD_KNOWS_FENCED, _END_KNOWS_FENCED = 4, 2, 2
# From this version on a request is of several transactions, and may only ask what is in them.
_ADD_SEVERAL = 4
# The least versions of clients with transactions of version 2, and of those that know an error which an abort cures.
_END_V2, _COMMIT_V2 = 5, 5
_COMMIT_KNOWS_ABORTABLE = 4


def init_producer_id(
    broker: Broker, call: Call[InitProducerIdRequest]
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    """Return a new producer id for an idempotent producer, or that of a transactional id, with the next epoch."""
    request, transactions = call.body, broker.transactions
    current = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    if transactions is None:
        return _uninitialized(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if (current.producer_id == NO_PRODUCER.producer_id) is not (current.epoch == NO_PRODUCER.epoch):
        return _uninitialized(_INVALID_REQUEST)
    if request.transactional_id is None:
        return InitProducerIdResponse(producer_id=random_producer_id(), producer_epoch=0)
    if not request.transactional_id:
        return _uninitialized(_INVALID_REQUEST)
    if not 0 < request.transaction_timeout_ms <= transactions.max_timeout_ms:
        return _uninitialized(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    return asyncio.to_thread(_initialized, transactions, call, request.transactional_id, current)


def _initialized(
    transactions: Transactions, call: Call[InitProducerIdRequest], transactional_id: str, current: ProducerIdAndEpoch
) -> InitProducerIdResponse:
    try:
        producer = transactions.coordinator.init_producer_id(
            transactional_id,
            timeout_ms=call.body.transaction_timeout_ms,
            max_timeout_ms=transactions.max_timeout_ms,
            current=current,
            ack=transactions.ack,
        )
    except KStoreError as error:
        return _uninitialized(code_of_request(error, knows_fenced=call.version >= _INIT_KNOWS_FENCED))
    return InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)


def _uninitialized(code: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


def add_partitions_to_txn(broker: Broker, call: Call[AddPartitionsToTxnRequest]) -> AddPartitionsToTxnResponse:
    """Add partitions to transactions of version 1, or say whether they are in them: of each all of them, or none.

    From version 4 on brokers ask so for their clients, of several transactions at once; some clients do too.
    """
    request, kinds = call.body, AddPartitionsToTxnResponse
    if call.version >= _ADD_SEVERAL:
        answered = [
            kinds.AddPartitionsToTxnResult(
                transactional_id=one.transactional_id, topic_results=_results_of(broker, one, knows_fenced=True)
            )
            for one in request.transactions
        ]
        return kinds(results_by_transaction=answered)
    only = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    results = _results_of(broker, only, knows_fenced=call.version >= _ADD_KNOWS_FENCED)
    return kinds(results_by_topic_v3_and_below=results)


def _results_of(
    broker: Broker, asked: AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction, *, knows_fenced: bool
) -> list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]:
    places = [TopicPartition(topic.name, one) for topic in asked.topics for one in topic.partitions]
    codes = {place: code for place in places if (code := _code_of_place(broker, place))}
    if not codes:
        producer = ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch)
        if asked.verify_only:
            codes = _verified(broker, asked.transactional_id, producer, places)
        else:
            code = _added(broker, asked.transactional_id, producer, places, knows_fenced=knows_fenced)
            codes = dict.fromkeys(places, code)
    kinds = AddPartitionsToTxnResponse
    return [
        kinds.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                kinds.AddPartitionsToTxnPartitionResult(
                    partition_index=one,
                    partition_error_code=codes.get(TopicPartition(topic.name, one), ErrorCode.OPERATION_NOT_ATTEMPTED),
                )
                for one in topic.partitions
            ],
        )
        for topic in asked.topics
    ]


def _code_of_place(broker: Broker, place: TopicPartition) -> int:
    if place.topic in INTERNAL_TOPICS:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return 0 if place in broker.store else code_of(UnknownTopicOrPartitionError)


def _added(
    broker: Broker,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    places: Iterable[TopicPartition],
    *,
    knows_fenced: bool,
) -> int:
    if broker.transactions is None:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if not transactional_id:
        return _INVALID_REQUEST
    transactions = broker.transactions
    try:
        transactions.coordinator.add_partitions(transactional_id, producer, places, ack=transactions.ack)
    except KStoreError as error:
        return code_of_request(error, knows_fenced=knows_fenced)
    return 0


def _verified(
    broker: Broker, transactional_id: str, producer: ProducerIdAndEpoch, places: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return for each partition whether it is in the open transaction of the producer, by Kafka's codes."""
    if broker.transactions is None:
        return dict.fromkeys(places, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if not transactional_id:
        return dict.fromkeys(places, _INVALID_REQUEST)
    try:
        state = broker.transactions.coordinator.state(transactional_id)
        if state is None:
            raise unknown_producer_error(transactional_id, producer)
        state.check_producer(producer)
    except KStoreError as error:
        return dict.fromkeys(places, code_of_request(error))
    return {place: 0 if place in state.partitions else ErrorCode.TRANSACTION_ABORTABLE for place in places}


def add_offsets_to_txn(broker: Broker, call: Call[AddOffsetsToTxnRequest]) -> AddOffsetsToTxnResponse:
    """Add the partition with a group's offsets to the transaction of a client of version 1."""
    request, transactions = call.body, broker.transactions
    if transactions is None:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    try:
        place = transactions.coordinator.offsets_partition(request.group_id)
    except KStoreError:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    knows_fenced = call.version >= _ADD_KNOWS_FENCED
    code = _added(broker, request.transactional_id, producer, (place,), knows_fenced=knows_fenced)
    return AddOffsetsToTxnResponse(error_code=code)


def end_txn(broker: Broker, call: Call[EndTxnRequest]) -> EndTxnResponse:
    """Commit or abort a transaction, and write its markers; a client of version 2 gets its next epoch."""
    request, transactions = call.body, broker.transactions
    if transactions is None:
        return EndTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if not request.transactional_id:
        return EndTxnResponse(error_code=_INVALID_REQUEST)
    try:
        producer = transactions.coordinator.end_transaction(
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            is_commit=request.committed,
            client_version=EPOCH_BUMP_VERSION if call.version >= _END_V2 else 0,
            ack=transactions.ack,
        )
    except KStoreError as error:
        return EndTxnResponse(error_code=code_of_request(error, knows_fenced=call.version >= _END_KNOWS_FENCED))
    return EndTxnResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)


async def txn_offset_commit(broker: Broker, call: Call[TxnOffsetCommitRequest]) -> TxnOffsetCommitResponse:
    """Commit offsets of a group in a transaction, of those partitions that there are."""
    request = call.body
    codes = {}
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    for topic in request.topics:
        for one in topic.partitions:
            place = TopicPartition(topic.name, one.partition_index)
            metadata = one.committed_metadata or ""
            if place not in broker.store:
                codes[place] = code_of(UnknownTopicOrPartitionError)
            elif len(metadata.encode("utf-8", "surrogateescape")) > MAX_METADATA_BYTES:
                codes[place] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                epoch = None if one.committed_leader_epoch < 0 else one.committed_leader_epoch
                offsets[place] = OffsetAndMetadata(one.committed_offset, metadata, leader_epoch=epoch)
    if offsets:
        code: int = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if broker.transactions is not None:
            code = await _committed(broker.groups, broker.transactions, call, offsets)
        codes |= dict.fromkeys(offsets, code)
    kinds = TxnOffsetCommitResponse
    topics = [
        kinds.TxnOffsetCommitResponseTopic(
            name=topic.name,
            partitions=[
                kinds.TxnOffsetCommitResponsePartition(
                    partition_index=one.partition_index,
                    error_code=codes[TopicPartition(topic.name, one.partition_index)],
                )
                for one in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return TxnOffsetCommitResponse(topics=topics)


async def _committed(
    groups: Groups,
    transactions: Transactions,
    call: Call[TxnOffsetCommitRequest],
    offsets: dict[TopicPartition, OffsetAndMetadata],
) -> int:
    """Ask the transaction, then the group, then append the offsets; return the code."""
    request, coordinator = call.body, transactions.coordinator
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    transactional_id, group_id = request.transactional_id, request.group_id
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)

    def check() -> None:
        place = coordinator.offsets_partition(group_id)
        if call.version >= _COMMIT_V2:
            transactions.begin(transactional_id, [(place, producer)])
        with coordinator.appending(producer, (place,), transactional_id=transactional_id):
            pass

    def commit() -> None:
        coordinator.commit_offsets(producer, group_id, offsets, transactional_id=transactional_id, ack=transactions.ack)

    try:
        await asyncio.to_thread(check)
        code = await groups.transactional_code(request)
        if code is ErrorCode.NONE:
            await asyncio.to_thread(commit)
    except KStoreError as error:
        if code_of_request(error) == ErrorCode.COORDINATOR_NOT_AVAILABLE:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return code_of_data(error, knows_abortable=call.version >= _COMMIT_KNOWS_ABORTABLE)
    return code
