"""Producer: sends records from the tasks of an event loop, which it does not block."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeAlias

from kstore._core import LoopSender
from kstore.aio.futures import RecordFuture
from kstore.errors import BufferExhaustedError, KStoreError
from kstore.producer import Producer as BlockingProducer
from kstore.producer import RecordMetadata
from kstore.producer.batches.futures import FutureRecordMetadata
from kstore.producer.producer import DeliveryCallback
from kstore.serializers import Key, Value
from kstore.types import OffsetAndMetadata, Time, TopicPartition

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from kstore._core import LoopBatch, ProduceRequestResultCore, RecordAppendResult
    from kstore.producer.batches.futures import AppendedBatch
    from kstore.producer.cluster import Cluster, PartitionInfo
    from kstore.producer.config import ProducerConfig, UntypedSettings
    from kstore.producer.interceptors import Header, ProducerRecord
    from kstore.producer.store import ProducerStore

# Futures that one callback of the loop sets, so that other tasks run in between: about half a millisecond.
_MOST_SET_AT_ONCE = 256
# Within which a sender that is called looks, at most: linger_ms.
_MOST_WAIT_OF_FULL_BATCH_MS = 5


_Fields: TypeAlias = tuple[Any, Any, Any, Any, Any, Any, Any]


class _WouldBlockError(Exception):
    """A record was not appended, as that would wait."""


class _LoopProducer(BlockingProducer[Key, Value]):
    """A producer whose send() raises _WouldBlockError in the thread of an event loop, in place of waiting there."""

    loop_thread: int | None = None

    def use_futures(self, future_type: type[RecordFuture]) -> None:
        """Have send() return futures of this class."""
        self._accumulator.future_type = future_type

    def _append(
        self, record: ProducerRecord, key: bytes | None, value: bytes | None, on_delivery: DeliveryCallback | None
    ) -> RecordAppendResult:
        if get_ident() != self.loop_thread:
            return super()._append(record, key, value, on_delivery)
        pool = self._accumulator.pool
        # No record takes more than that: what this one takes need not be estimated.
        if pool.available_memory < self._most_taken_bytes:
            size = max(self.config.batch_size, self._estimated_size(key, value, record.headers))
            if pool.available_memory < min(size, pool.memory):
                self._sender.wakeup()
                raise _WouldBlockError
        try:
            return super()._append(record, key, value, on_delivery)
        except BufferExhaustedError as error:
            # A batch has grown in the meantime.
            self._sender.wakeup()
            raise _WouldBlockError from error

    @cached_property
    def _most_taken_bytes(self) -> int:
        return max(self.config.batch_size, self.config.max_request_size)

    def _cluster_with(self, topic: str, partition: int | None) -> Cluster:
        known = self._metadata.known_with(topic, partition)
        if known is not None:
            return known
        if get_ident() == self.loop_thread:
            self._sender.wakeup()
            raise _WouldBlockError
        return super()._cluster_with(topic, partition)

    @property
    def _on_full_batch(self) -> Callable[[], None]:
        """Let the sender look soon. One that is woken would take the interpreter's lock in each turn of the loop, and
        send a few batches each time.
        """
        is_soon = self.config.linger_ms <= _MOST_WAIT_OF_FULL_BATCH_MS
        return self._sender.call if is_soon else self._sender.wakeup

    @property
    def _max_block_ms(self) -> int:
        return 0 if get_ident() == self.loop_thread else super()._max_block_ms


class Producer(LoopSender, Generic[Key, Value]):
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
        super().__init__(self._producer, would_block=_WouldBlockError)
        self._producer.use_futures(_future_type(weakref.ref(self)))
        # Interceptors may wait, and are called once for a record.
        self._may_send = not self.config.interceptor_classes
        self._loop: asyncio.AbstractEventLoop | None = None
        # Of the tasks that wait to append, one tries at a time, in the order of their calls.
        self._turn = asyncio.Lock()
        self._done: deque[LoopBatch] = deque()
        self._is_setting = False
        self._to_hurry: dict[ProduceRequestResultCore, None] = {}

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
        fields = topic, value, key, headers, partition, timestamp_ms, on_delivery
        future = None if self._waiting_count else self._sent_now(*fields)
        if future is None:
            future = await self._sent_in_turn(fields)
        else:
            self._hurry_newest()
        return await future

    # send_nowait() is compiled.

    if TYPE_CHECKING:

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
        ) -> RecordFuture: ...

    async def send_columns(self, topic: str, columns: Any, *, partition: int | None = None) -> list[AppendedBatch]:
        """Send all rows of Arrow data as kstore.Producer.send_columns, from a worker thread, and wait."""
        send = partial(self._producer.send_columns, topic, columns, partition=partition)
        return await (await asyncio.to_thread(send))

    def _begin(self) -> None:
        """Take the loop that runs as that of the producer."""
        self._loop = loop = asyncio.get_running_loop()
        self._producer.loop_thread = get_ident()
        # What create_future() of asyncio's own loops does, without a call of Python code for each record.
        is_plain = type(loop).create_future is asyncio.BaseEventLoop.create_future
        self._new_future = partial(asyncio.Future, loop=loop) if is_plain else loop.create_future

    async def _sent_in_turn(self, fields: _Fields) -> asyncio.Future[RecordMetadata]:
        """Put a record into a batch after those of the tasks that wait already, and let the batch go."""
        topic, value, key, headers, partition, timestamp_ms, on_delivery = fields
        options: dict[str, Any] = {
            "headers": headers,
            "partition": partition,
            "timestamp_ms": timestamp_ms,
            "on_delivery": on_delivery,
        }
        self._waiting_count += 1
        try:
            async with self._turn:
                future: asyncio.Future[RecordMetadata] | None = self._sent_now(*fields)
                if future is None:
                    send = partial(self._producer.send, topic, value, key=key, **options)
                    future = self._future_of(await asyncio.to_thread(send))
                self._hurry_newest()
                return future
        finally:
            self._waiting_count -= 1

    # Futures: one callback of the loop sets those of the batches that are done.

    def _when_done(self, batch: LoopBatch) -> None:
        """Called by the producer's thread."""
        loop = self._loop
        self._done.append(batch)
        if self._is_setting or loop is None:
            return
        self._is_setting = True
        try:
            loop.call_soon_threadsafe(self._set_futures)
        except RuntimeError:
            # The loop was closed: nobody waits.
            return

    def _set_soon(self, batch: LoopBatch) -> None:
        self._done.append(batch)
        if not self._is_setting:
            self._set_futures()

    def _set_futures(self) -> None:
        """Set the futures of the batches that are done, some in each turn of the loop."""
        left = _MOST_SET_AT_ONCE
        while self._done and left > 0:
            batch = self._done[0]
            self._forget(batch)
            left -= batch.set_some(left, RecordMetadata, _set)
            if not batch.left:
                self._done.popleft()
        # Before the look at what is done: a batch that is done after it has its own callback.
        self._is_setting = False
        if self._done:
            self._is_setting = True
            asyncio.get_running_loop().call_soon(self._set_futures)

    def _hurry_newest(self) -> None:
        newest = self._newest
        if newest is not None:
            self._hurry(newest.result)

    def _hurry(self, result: ProduceRequestResultCore) -> None:
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


def _future_type(owner: weakref.ref[Producer[Any, Any]]) -> type[RecordFuture]:
    """Return the class of the futures of a producer, which they do not keep alive."""

    def make(sent: FutureRecordMetadata) -> asyncio.Future[RecordMetadata]:
        producer = owner()
        if producer is not None:
            future: asyncio.Future[RecordMetadata] = LoopSender._future_of(producer, sent)  # noqa: SLF001 - its own
        else:
            future = asyncio.get_running_loop().create_future()
            _set(sent, future)
        return future

    return type("RecordFuture", (RecordFuture,), {"__slots__": (), "make": staticmethod(make)})


def _set(sent: FutureRecordMetadata, future: asyncio.Future[RecordMetadata]) -> None:
    """Give a future the outcome of a record of a split batch, once its piece is done."""
    # Those of a RecordFuture are of this very future.
    if FutureRecordMetadata.done(sent):
        if not future.done():
            _set_outcome(future, sent.outcome())
    else:
        FutureRecordMetadata.add_done_callback(sent, lambda _: _set(sent, future))


def _set_outcome(future: asyncio.Future[RecordMetadata], outcome: RecordMetadata | KStoreError) -> None:
    if isinstance(outcome, RecordMetadata):
        future.set_result(outcome)
    else:
        future.set_exception(outcome)
