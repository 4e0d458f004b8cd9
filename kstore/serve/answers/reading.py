"""Fetch and ListOffsets: records and offsets that clients read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sized

from kstore._core import RecoveryWalk
from kstore.config import KIB
from kstore.errors import CorruptionError, KStoreError, OffsetOutOfRangeError
from kstore.log.log import FetchIsolation, Log
from kstore.log.source import FetchData, FetchRange
from kstore.log.state.transactions import AbortedTransaction
from kstore.serve.broker import Broker
from kstore.serve.calls import Call
from kstore.serve.refusals import code_of
from kstore.types import EARLIEST, LATEST, NO_PARTITION_LEADER_EPOCH, TopicPartition
from kstore.wire.codes import ErrorCode
from kstore.wire.messages import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

_READ_COMMITTED = 1
# From this version on topics are named by their ids.
_FETCH_BY_ID = 13
# Fewer bytes are read and written sooner than sent from their file.
_LEAST_SENT_BYTES = 64 * KIB
_OFFSETS_WITH_EPOCHS = 4
# Of a walk. A batch that is cut off at the end is sent as it is, as by a broker: a client asks for it again.
_DAMAGED = ("corrupt", "zeros")


class _NotCachedError(Exception):
    """Records would have to be waited for, and may not be."""


class Fetch:
    """One fetch: what there is for it, as often as it is asked for."""

    def __init__(self, broker: Broker, call: Call[FetchRequest]) -> None:
        self._broker = broker
        self._request = request = call.body
        self._is_by_id = call.version >= _FETCH_BY_ID
        is_committed = request.isolation_level == _READ_COMMITTED
        self._isolation: FetchIsolation = "read_committed" if is_committed else "high_watermark"

    def logs(self) -> Iterator[tuple[str, Log]]:
        """Yield the directory and the log of each partition that is there."""
        for topic in self._request.topics:
            name = self._name_of(topic)
            for partition in topic.partitions:
                directory = None if name is None else self._broker.store.incarnation(name, partition.partition)
                if name is not None and directory is not None:
                    yield directory.path, self._broker.log(name, partition.partition)

    def look_again(self) -> None:
        """See what another process has appended, in a store that is only read."""
        if self._broker.writer is None:
            for _, log in self.logs():
                log.refresh()

    def _name_of(self, topic: FetchRequest.FetchTopic) -> str | None:
        return self._broker.topic_named(topic.topic_id) if self._is_by_id else topic.topic

    async def answer(self) -> tuple[FetchResponse, bool]:
        """Return what answer_at_once does, of records that are not in memory too, which a thread reads."""
        try:
            return self.answer_at_once()
        except _NotCachedError:
            return await asyncio.to_thread(self.answer_at_once, may_wait=True)

    def answer_at_once(self, *, may_wait: bool = False) -> tuple[FetchResponse, bool]:
        """Return what there is now, and whether that is all that the request waits for: enough bytes, or an error.

        Args: may_wait: for the disk.
        Raises: _NotCachedError for records that have to be waited for.
        """
        left = min(self._request.max_bytes, self._broker.config.most_fetch_bytes)
        size, has_error = 0, False
        responses = []
        for topic in self._request.topics:
            name = self._name_of(topic)
            partitions = []
            for asked in topic.partitions:
                most_bytes = max(min(asked.partition_max_bytes, left), 0)
                found = self._partition(name, asked, most_bytes=most_bytes, min_one_batch=not size, may_wait=may_wait)
                read = 0 if found.records is None else len(found.records)
                size, left = size + read, max(left - read, 0)
                has_error |= found.error_code != 0
                partitions.append(found)
            responses.append(
                FetchResponse.FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=partitions)
            )
        is_enough = size >= self._request.min_bytes or has_error or not responses
        return FetchResponse(responses=responses), is_enough

    def _partition(
        self,
        name: str | None,
        asked: FetchRequest.FetchPartition,
        *,
        most_bytes: int,
        min_one_batch: bool,
        may_wait: bool,
    ) -> FetchResponse.PartitionData:
        number = asked.partition
        if name is None:
            return _failed(number, code=ErrorCode.UNKNOWN_TOPIC_ID)
        try:
            log = self._broker.log(name, number)
            refused = self._checked_epochs(name, asked)
            if refused is not None:
                return refused
            found = self._read(
                log, asked.fetch_offset, most_bytes=most_bytes, min_one_batch=min_one_batch, may_wait=may_wait
            )
            if isinstance(found, FetchRange):
                return _data(number, found.bounds(), found)
            if self._broker.writer is None:
                found = _undamaged(log, found, asked.fetch_offset)
        except KStoreError as error:
            if isinstance(error, CorruptionError):
                self._broker.note_damage(TopicPartition(name, number), error)
            return _failed(number, code=code_of(error))
        return _data(number, found, found.records)

    def _read(
        self, log: Log, offset: int, *, most_bytes: int, min_one_batch: bool, may_wait: bool
    ) -> FetchData | FetchRange:
        """Return the records with the bounds of the log, or many of them as a part of their file, which is not closed.

        Raises: the errors of Log.fetch; _NotCachedError.
        """
        if may_wait:
            return log.fetch(offset, most_bytes, min_one_batch=min_one_batch, isolation=self._isolation)
        part = log.fetch_range(offset, most_bytes, min_one_batch=min_one_batch, isolation=self._isolation)
        is_lent = self._broker.writer is not None and part.size_in_bytes >= _LEAST_SENT_BYTES
        if is_lent and part.is_sent_at_once():
            return part
        with part:
            found = part.data_at_once()
        if found is None:
            # Also after a truncation during the read: Log.fetch reads the log as it is then.
            raise _NotCachedError
        return found

    def _checked_epochs(self, name: str, asked: FetchRequest.FetchPartition) -> FetchResponse.PartitionData | None:
        """Return the answer to a client whose epoch is not the leader's, or whose records are not those of the log."""
        number, writer = asked.partition, self._broker.writer
        if asked.current_leader_epoch >= 0:
            code = _epoch_code(asked.current_leader_epoch, epoch=self._broker.leader_epoch(name, number))
            if code:
                return _failed(number, code=code)
        if asked.last_fetched_epoch < 0 or writer is None:
            return None
        log = writer.log(name, number)
        end = self._broker.end_of_epoch(name, number, epoch=asked.last_fetched_epoch)
        if end.epoch < 0:
            return _failed(number, code=code_of(OffsetOutOfRangeError))
        if end.epoch == asked.last_fetched_epoch and asked.fetch_offset <= end.end_offset:
            return None
        bounds = (log.high_watermark, log.log_start_offset, log.log_end_offset, None, log.last_stable_offset)
        answer = _data(number, FetchData(b"", *bounds), b"")
        answer.diverging_epoch = FetchResponse.EpochEndOffset(epoch=end.epoch, end_offset=end.end_offset)
        return answer


def _undamaged(log: Log, found: FetchData, offset: int) -> FetchData:
    """Return what a fetch found up to the first damage: nobody has recovered a log that is only read.

    A broker leaves CRCs to its clients, of which not all check them.
    Raises: CorruptRecordError, UnsupportedMagicError if the damage comes first.
    """
    walk = RecoveryWalk(end_position=len(found.records), base_offset=0)
    walk.feed(found.records, 0)
    if walk.status not in _DAMAGED:
        return found
    if not walk.position:
        next(iter(log.read(start_offset=offset)), None)
    return found._replace(records=found.records[: walk.position])


def _failed(number: int, *, code: int) -> FetchResponse.PartitionData:
    return FetchResponse.PartitionData(
        partition_index=number, error_code=code, high_watermark=-1, log_start_offset=-1, records=b""
    )


def _aborted(one: AbortedTransaction) -> FetchResponse.AbortedTransaction:
    return FetchResponse.AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)


def _data(number: int, found: FetchData, records: Sized) -> FetchResponse.PartitionData:
    watermark = found.log_end_offset if found.high_watermark is None else found.high_watermark
    stable = watermark if found.last_stable_offset is None else found.last_stable_offset
    return FetchResponse.PartitionData(
        partition_index=number,
        high_watermark=watermark,
        last_stable_offset=stable,
        log_start_offset=found.log_start_offset,
        aborted_transactions=list(map(_aborted, found.aborted)),
        records=records,
    )


def fetch(broker: Broker, call: Call[FetchRequest]) -> FetchResponse | Awaitable[FetchResponse]:
    """Return the records of a fetch, after a wait for up to max_wait_ms until there are min_bytes of them."""
    asked, most_seconds = Fetch(broker, call), max(call.body.max_wait_ms, 0) / 1000
    try:
        answer, is_enough = asked.answer_at_once()
        if is_enough or not most_seconds:
            return answer
    except _NotCachedError:
        pass
    return _waited(broker, asked, most_seconds)


async def _waited(broker: Broker, asked: Fetch, most_seconds: float) -> FetchResponse:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + most_seconds
    while True:
        with broker.news.waiter(asked.logs()) as waiter:
            asked.look_again()
            answer, is_enough = await asked.answer()
            left = deadline - loop.time()
            if is_enough or left <= 0 or broker.news.is_over:
                return answer
            await asyncio.wait((waiter,), timeout=left)


def offset_for_leader_epoch(broker: Broker, call: Call[OffsetForLeaderEpochRequest]) -> OffsetForLeaderEpochResponse:
    """Return where epochs of leaders end, -1 where that is not known."""
    kinds = OffsetForLeaderEpochResponse
    topics = [
        kinds.OffsetForLeaderTopicResult(
            topic=topic.topic, partitions=[_epoch_end(broker, topic.topic, asked) for asked in topic.partitions]
        )
        for topic in call.body.topics
    ]
    return OffsetForLeaderEpochResponse(topics=topics)


def _epoch_end(
    broker: Broker, topic: str, asked: OffsetForLeaderEpochRequest.OffsetForLeaderPartition
) -> OffsetForLeaderEpochResponse.EpochEndOffset:
    number, kind = asked.partition, OffsetForLeaderEpochResponse.EpochEndOffset
    try:
        code = _epoch_code(asked.current_leader_epoch, epoch=broker.leader_epoch(topic, number))
        if code:
            return kind(partition=number, error_code=code)
        end = broker.end_of_epoch(topic, number, epoch=asked.leader_epoch)
    except KStoreError as error:
        return kind(partition=number, error_code=code_of(error))
    return kind(partition=number, leader_epoch=end.epoch, end_offset=end.end_offset)


def _epoch_code(known: int, *, epoch: int) -> int:
    """Return the code for a client that knows an epoch of the leader, -1 if it does not; 0 if it is the leader's."""
    if known in (epoch, NO_PARTITION_LEADER_EPOCH):
        return 0
    return ErrorCode.FENCED_LEADER_EPOCH if known < epoch else ErrorCode.UNKNOWN_LEADER_EPOCH


def list_offsets(broker: Broker, call: Call[ListOffsetsRequest]) -> ListOffsetsResponse:
    """Return the offsets for times and for Kafka's special timestamps."""
    request, says_epoch = call.body, call.version >= _OFFSETS_WITH_EPOCHS
    is_committed = request.isolation_level == _READ_COMMITTED
    topics = [
        ListOffsetsResponse.ListOffsetsTopicResponse(
            name=topic.name,
            partitions=[
                _offset(broker, topic.name, asked, is_committed=is_committed, says_epoch=says_epoch)
                for asked in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return ListOffsetsResponse(topics=topics)


def _offset(
    broker: Broker, topic: str, asked: ListOffsetsRequest.ListOffsetsPartition, *, is_committed: bool, says_epoch: bool
) -> ListOffsetsResponse.ListOffsetsPartitionResponse:
    timestamp, offset = -1, -1
    try:
        log = broker.log(topic, asked.partition_index)
        if asked.timestamp == LATEST:
            stable = log.last_stable_offset if is_committed else log.high_watermark
            offset = log.log_end_offset if stable is None else stable
        elif asked.timestamp == EARLIEST:
            offset = log.log_start_offset
        else:
            found = log.offset_for_timestamp(asked.timestamp)
            if found is not None:
                timestamp, offset = found.timestamp_ms, found.offset
        epoch = broker.leader_epoch(topic, asked.partition_index) if says_epoch and offset >= 0 else -1
    except KStoreError as error:
        return ListOffsetsResponse.ListOffsetsPartitionResponse(
            partition_index=asked.partition_index, error_code=code_of(error), timestamp=-1, offset=-1, leader_epoch=-1
        )
    return ListOffsetsResponse.ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, timestamp=timestamp, offset=offset, leader_epoch=epoch
    )
