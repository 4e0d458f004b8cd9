"""Producer: sends records from the tasks of an event loop, which it does not block."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeAlias

from kstore.errors import BufferExhaustedError, KStoreError
from kstore.producer import Producer as BlockingProducer
from kstore.producer import RecordMetadata
from kstore.producer.producer import DeliveryCallback
from kstore.serializers import Key, Value
from kstore.types import OffsetAndMetadata, Time, TopicPartition

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from kstore._core import RecordAppendResult
    from kstore.producer.batches.futures import AppendedBatch, FutureRecordMetadata, ProduceRequestResult
    from kstore.producer.cluster import PartitionInfo
    from kstore.producer.config import ProducerConfig, UntypedSettings
    from kstore.producer.interceptors import Header, ProducerRecord
    from kstore.producer.store import ProducerStore

# Futures that one callback of the loop sets, so that other tasks run in between: about half a millisecond.
_MOST_SET_AT_ONCE = 256


_Send: TypeAlias = Callable[[], "FutureRecordMetadata"]


class _WouldBlockError(Exception):
    """A record was not appended, as that would wait."""


class _LoopProducer(BlockingProducer[Key, Value]):
    """A producer whose send() raises _WouldBlockError in the thread of an event loop, in place of waiting there."""

    loop_thread: int | None = None

    def _append(
        self, record: ProducerRecord, key: bytes | None, value: bytes | None, on_delivery: DeliveryCallback | None
    ) -> RecordAppendResult:
        if get_ident() != self.loop_thread:
            return super()._append(record, key, value, on_delivery)
        pool = self._accumulator.pool
        size = max(self.config.batch_size, self._estimated_size(key, value, record.headers))
        if not self._metadata.has(record.topic, record.partition) or pool.available_memory < min(size, pool.memory):
            raise _WouldBlockError
        try:
            return super()._append(record, key, value, on_delivery)
        except BufferExhaustedError as error:
            # A batch has grown in the meantime.
            raise _WouldBlockError from error

    @property
    def _max_block_ms(self) -> int:
        return 0 if get_ident() == self.loop_thread else super()._max_block_ms


class _Batch:
    """The futures of the records of one batch, in the order in which they were sent."""

    __slots__ = ("_when_done", "futures", "result")

    # What a result's watchers have: the record whose piece they wait for.
    index = 0

    def __init__(self, result: ProduceRequestResult, when_done: Callable[[_Batch], None]) -> None:
        self.result = result
        self.futures: deque[tuple[FutureRecordMetadata, asyncio.Future[RecordMetadata]]] = deque()
        self._when_done = when_done

    def settle(self) -> None:
        """Called by the producer's thread when the batch is done."""
        self._when_done(self)

    def set_some(self, most: int) -> int:
        """Give up to `most` futures the outcomes of their records; return how many."""
        count = min(most, len(self.futures))
        outcomes = self.result.outcomes()
        for _ in range(count):
            sent, future = self.futures.popleft()
            if outcomes is None:
                _set(sent, future)
            elif not future.done():
                _set_outcome(future, outcomes(sent))
        return count


class Producer(Generic[Key, Value]):
    """Sends records to the partitions of a store, or of another sink, from the tasks of one event loop of asyncio.

    Its settings and its guarantees are those of kstore.Producer. No call blocks the loop: what may wait for the disk,
    for memory or for another thread is a coroutine. As an asynchronous context manager it closes itself.
    Args: target, settings: as of kstore.Producer; serializers run in the loop's thread, and again in
        a worker thread if the record has to wait; interceptors run in worker threads.
    Threads: that of one event loop, which runs when the producer is first used.  Cost: of send() a future of asyncio
        beside what kstore.Producer costs; futures are set once a batch.
    """

    def __init__(
        self,
        target: ProducerStore,
        *,
        key_serializer: Callable[[Key], bytes | None] | str | None = None,
        value_serializer: Callable[[Value], bytes | None] | str | None = None,
        **settings: Unpack[UntypedSettings],
    ) -> None:
        self._producer: _LoopProducer[Key, Value] = _LoopProducer(
            target, key_serializer=key_serializer, value_serializer=value_serializer, **settings
        )
        # They may wait, and are called once for a record.
        self._calls_interceptors = bool(self.config.interceptor_classes)
        self._loop: asyncio.AbstractEventLoop | None = None
        # Of the tasks that wait to append, one tries at a time, in the order of their calls.
        self._turn = asyncio.Lock()
        self._waiting_count = 0
        self._batches: dict[ProduceRequestResult, _Batch] = {}
        self._newest: _Batch | None = None
        self._done: deque[_Batch] = deque()
        self._is_setting = False
        self._to_hurry: dict[ProduceRequestResult, None] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"kstore.aio.{self._producer!r}"

    @property
    def config(self) -> ProducerConfig:
        """The settings, checked."""
        return self._producer.config

    @property
    def transactional_id(self) -> str | None:
        """The transactional id, None without transactions."""
        return self._producer.transactional_id

    # Sending

    async def send(
        self,
        topic: str,
        value: Value | None = None,
        *,
        key: Key | None = None,
        headers: Iterable[Header] = (),
        partition: int | None = None,
        timestamp_ms: Time | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> RecordMetadata:
        """Send a record, and return its metadata once it is written as `acks` says; do not linger for others.

        Tasks that call this at the same time share batches. While buffer_memory is full the task waits, up to
        max_block_ms. A task that is cancelled before others have had their turn sends nothing; after that the record is
        sent.
        Args: as of kstore.Producer.send; on_delivery: called by the producer's thread.
        Raises: what kstore.Producer.send raises, and what its future raises.
        """
        call = self._bound(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        sent = None if self._waiting_count else self._sent_now(call)
        if sent is None:
            sent = await self._sent_in_turn(call)
        self._hurry(sent.produce_result)
        return await self._future_of(sent)

    def send_nowait(
        self,
        topic: str,
        value: Value | None = None,
        *,
        key: Key | None = None,
        headers: Iterable[Header] = (),
        partition: int | None = None,
        timestamp_ms: Time | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Put a record into a batch, and return a future of its metadata; the batch lingers for up to linger_ms.

        Raises: BufferExhaustedError if that would wait: for memory, after other tasks that wait, or for the partitions
            of a topic to which nothing was sent before; use send() then. What kstore.Producer.send raises.
        """
        call = self._bound(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        sent = None if self._waiting_count else self._sent_now(call)
        if sent is None:
            raise BufferExhaustedError("the record would have to wait for memory or for the partitions of its topic")
        return self._future_of(sent)

    async def send_columns(self, topic: str, columns: Any, *, partition: int | None = None) -> list[AppendedBatch]:
        """Send all rows of Arrow data as kstore.Producer.send_columns, from a worker thread, and wait."""
        send = partial(self._producer.send_columns, topic, columns, partition=partition)
        return await (await asyncio.to_thread(send))

    def _bound(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Iterable[Header],
        partition: int | None,
        timestamp_ms: Time | None,
        on_delivery: DeliveryCallback | None,
    ) -> _Send:
        """Return the call that puts a record into a batch."""
        options: dict[str, Any] = {
            "headers": headers,
            "partition": partition,
            "timestamp_ms": timestamp_ms,
            "on_delivery": on_delivery,
        }
        return partial(self._producer.send, topic, value, key=key, **options)

    def _sent_now(self, call: _Send) -> FutureRecordMetadata | None:
        """Return the future of a record that was put into a batch, None if that would wait."""
        if self._loop is None:
            self._begin()
        if self._calls_interceptors:
            return None
        try:
            return call()
        except _WouldBlockError:
            return None

    def _begin(self) -> None:
        """Take the loop that runs as that of the producer."""
        self._loop = asyncio.get_running_loop()
        self._producer.loop_thread = get_ident()

    async def _sent_in_turn(self, call: _Send) -> FutureRecordMetadata:
        """Put a record into a batch after those of the tasks that wait already."""
        self._waiting_count += 1
        try:
            async with self._turn:
                sent = self._sent_now(call)
                return await asyncio.to_thread(call) if sent is None else sent
        finally:
            self._waiting_count -= 1

    # Futures: one callback of the loop sets those of a batch.

    def _future_of(self, sent: FutureRecordMetadata) -> asyncio.Future[RecordMetadata]:
        loop = self._loop or asyncio.get_running_loop()
        future: asyncio.Future[RecordMetadata] = loop.create_future()
        result: ProduceRequestResult = sent.produce_result
        batch = self._newest
        if batch is None or batch.result is not result:
            batch = self._batches.get(result)
            if batch is None:
                batch = self._batches[result] = _Batch(result, self._when_done)
                batch.futures.append((sent, future))
                self._newest = batch
                if not result.watch(batch):
                    self._set_soon(batch)
                return future
            self._newest = batch
        batch.futures.append((sent, future))
        return future

    def _when_done(self, batch: _Batch) -> None:
        """Called by the producer's thread."""
        try:
            (self._loop or asyncio.get_running_loop()).call_soon_threadsafe(self._set_soon, batch)
        except RuntimeError:
            # The loop was closed: nobody waits.
            return

    def _set_soon(self, batch: _Batch) -> None:
        self._batches.pop(batch.result, None)
        if self._newest is batch:
            self._newest = None
        self._done.append(batch)
        if not self._is_setting:
            self._set_futures()

    def _set_futures(self) -> None:
        """Set the futures of the batches that are done, some in each turn of the loop."""
        left = _MOST_SET_AT_ONCE
        while self._done and left > 0:
            left -= self._done[0].set_some(left)
            if not self._done[0].futures:
                self._done.popleft()
        self._is_setting = bool(self._done)
        if self._is_setting:
            asyncio.get_running_loop().call_soon(self._set_futures)

    def _hurry(self, result: ProduceRequestResult) -> None:
        """Let a batch go at the end of this turn of the loop, in which other tasks may send too."""
        if not self._to_hurry:
            asyncio.get_running_loop().call_soon(self._hurry_all)
        self._to_hurry[result] = None

    def _hurry_all(self) -> None:
        hurried, self._to_hurry = self._to_hurry, {}
        for result in hurried:
            result.hurry()

    # Transactions

    async def init_transactions(self) -> None:
        """Do as kstore.Producer.init_transactions."""
        await asyncio.to_thread(self._producer.init_transactions)

    def begin_transaction(self) -> BegunTransaction:
        """Begin a transaction; it waits for nothing.

        Returns: an asynchronous context manager that commits at the end of its body, and aborts if the body, or the
            commit, raises an error.
        Raises: as kstore.Producer.begin_transaction.
        """
        self._producer.begin_transaction()
        return BegunTransaction(self)

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group: str
    ) -> None:
        """Do as kstore.Producer.send_offsets_to_transaction."""
        await asyncio.to_thread(self._producer.send_offsets_to_transaction, offsets, group)

    async def commit_transaction(self) -> None:
        """Do as kstore.Producer.commit_transaction."""
        await asyncio.to_thread(self._producer.commit_transaction)

    async def abort_transaction(self) -> None:
        """Do as kstore.Producer.abort_transaction."""
        await asyncio.to_thread(self._producer.abort_transaction)

    # Partitions, metrics, flush and close

    async def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """Return the partitions of a topic by number.  Raises: UnknownTopicOrPartitionError."""
        return await asyncio.to_thread(self._producer.partitions_for, topic)

    def metrics(self) -> dict[str, float]:
        """Return all metrics by Kafka's names."""
        return self._producer.metrics()

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until all records that are in batches now are done; see kstore.Producer.flush."""
        await asyncio.to_thread(self._producer.flush, timeout)

    async def aclose(self, timeout: float | None = None) -> None:
        """Send the remaining records, abort an open transaction and stop; see kstore.Producer.close.

        A task that waits for memory gets ProducerClosedError.
        """
        await asyncio.to_thread(self._producer.close, timeout)


class BegunTransaction:
    """A transaction as an asynchronous context manager; see Producer.begin_transaction."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    async def __aenter__(self) -> Producer:
        return self._producer

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self._producer.commit_transaction()
                return
        except BaseException:
            await self._abort()
            raise
        await self._abort()

    async def _abort(self) -> None:
        try:
            await self._producer.abort_transaction()
        except KStoreError:
            # It can't be aborted, as that of a fenced producer: the error before this one is raised.
            return


def _set(sent: FutureRecordMetadata, future: asyncio.Future[RecordMetadata]) -> None:
    """Give a future the outcome of a record of a split batch, once its piece is done."""
    if sent.done():
        if not future.done():
            _set_outcome(future, sent.outcome())
    else:
        sent.add_done_callback(lambda _: _set(sent, future))


def _set_outcome(future: asyncio.Future[RecordMetadata], outcome: RecordMetadata | KStoreError) -> None:
    if isinstance(outcome, RecordMetadata):
        future.set_result(outcome)
    else:
        future.set_exception(outcome)
