"""DescribeProducers, DescribeTransactions and ListTransactions: who has transactions, and of what age."""

from __future__ import annotations

from collections import defaultdict

from kstore.coordinator.group.consumer.patterns import Pattern, PatternError
from kstore.coordinator.transaction.state import TransactionState, TransactionStatus
from kstore.env.process import SYSTEM_CLOCK
from kstore.errors import InvalidRequestError, KStoreError, UnknownTopicOrPartitionError
from kstore.log.files.snapshots import ProducerSnapshotEntry
from kstore.log.state.producers import active_producers
from kstore.serve.broker import Broker
from kstore.serve.calls import Call
from kstore.serve.refusals import code_of
from kstore.types import TopicPartition
from kstore.wire.codes import ErrorCode
from kstore.wire.messages import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)


def describe_producers(broker: Broker, call: Call[DescribeProducersRequest]) -> DescribeProducersResponse:
    """Show the producers that logs know of.  Cost: as active_producers."""
    kinds = DescribeProducersResponse
    topics = [
        kinds.TopicResponse(
            name=topic.name, partitions=[_producers(broker, topic.name, number) for number in topic.partition_indexes]
        )
        for topic in call.body.topics
    ]
    return DescribeProducersResponse(topics=topics)


def _producers(broker: Broker, topic: str, number: int) -> DescribeProducersResponse.PartitionResponse:
    kinds = DescribeProducersResponse
    try:
        found = _known_producers(broker, topic, number)
    except KStoreError as error:
        return kinds.PartitionResponse(partition_index=number, error_code=code_of(error))
    producers = [
        kinds.ProducerState(
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            last_sequence=one.last_sequence,
            last_timestamp=one.timestamp_ms,
            coordinator_epoch=one.coordinator_epoch,
            current_txn_start_offset=one.current_txn_first_offset,
        )
        for one in found
    ]
    return kinds.PartitionResponse(partition_index=number, active_producers=producers)


def _known_producers(broker: Broker, topic: str, number: int) -> list[ProducerSnapshotEntry]:
    """Return the producers of a partition: those of its writer, else those that one would load."""
    log = broker.log(topic, number)
    if broker.writer is not None:
        return broker.writer.log(topic, number).producers()
    directory = broker.store.incarnation(topic, number)
    if directory is None:
        raise UnknownTopicOrPartitionError(f"the partition {TopicPartition(topic, number)} was deleted")
    return active_producers(
        directory,
        log.segments,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        now_ms=SYSTEM_CLOCK.wall_clock_ms(),
        config=log.config,
        env=directory.env,
    )


def describe_transactions(broker: Broker, call: Call[DescribeTransactionsRequest]) -> DescribeTransactionsResponse:
    """Show the transactions of transactional ids."""
    states = [_described(broker, transactional_id) for transactional_id in call.body.transactional_ids]
    return DescribeTransactionsResponse(transaction_states=states)


def _described(broker: Broker, transactional_id: str) -> DescribeTransactionsResponse.TransactionState:
    kinds = DescribeTransactionsResponse
    state = None
    code: int = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    if broker.transactions is None:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    elif not transactional_id:
        code = code_of(InvalidRequestError)
    else:
        try:
            state = broker.transactions.coordinator.state(transactional_id)
        except KStoreError:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if state is None:
        return kinds.TransactionState(error_code=code, transactional_id=transactional_id)
    numbers: dict[str, list[int]] = defaultdict(list)
    for topic, number in sorted(state.partitions):
        numbers[topic].append(number)
    return kinds.TransactionState(
        transactional_id=transactional_id,
        transaction_state=_state_name(state.status),
        transaction_timeout_ms=state.timeout_ms,
        transaction_start_time_ms=state.start_ms,
        producer_id=state.producer.producer_id,
        producer_epoch=state.producer.epoch,
        topics=[kinds.TopicData(topic=topic, partitions=found) for topic, found in numbers.items()],
    )


def list_transactions(broker: Broker, call: Call[ListTransactionsRequest]) -> ListTransactionsResponse:
    """List the transactional ids, of some states, producers and names, and with transactions of some age."""
    request = call.body
    if broker.transactions is None:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    names = {_state_name(status): status for status in TransactionStatus}
    unknown = [name for name in request.state_filters if name not in names]
    wanted = {names[name] for name in request.state_filters if name in names}
    try:
        pattern = Pattern(request.transactional_id_pattern) if request.transactional_id_pattern else None
        states = broker.transactions.coordinator.states()
    except PatternError:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    except KStoreError:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    now_ms = SYSTEM_CLOCK.wall_clock_ms()

    def is_listed(state: TransactionState) -> bool:
        if request.producer_id_filters and state.producer.producer_id not in request.producer_id_filters:
            return False
        if request.state_filters and state.status not in wanted:
            return False
        if request.duration_filter >= 0 and now_ms - state.start_ms <= request.duration_filter:
            return False
        return pattern is None or pattern.matches(state.transactional_id)

    listed = [
        ListTransactionsResponse.TransactionState(
            transactional_id=state.transactional_id,
            producer_id=state.producer.producer_id,
            transaction_state=_state_name(state.status),
        )
        for state in states
        if is_listed(state)
    ]
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=listed)


def _state_name(status: TransactionStatus) -> str:
    """Return Kafka's name of a state, such as PrepareCommit."""
    return "".join(word.capitalize() for word in status.name.split("_"))
