"""Consumer: reads the partitions of a store from the tasks of an event loop, which it does not block."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Generic, TypeVar

from kstore.consumer import Consumer as BlockingConsumer
from kstore.errors import ConsumerClosedError, WakeupError
from kstore.serializers import Key, Value
from kstore.waiting import Call, Workers, ended

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from kstore._core import Record
    from kstore.consumer.config import UntypedSettings
    from kstore.store.store import Store, WritableStore
    from kstore.types import Ack, OffsetAndMetadata, TopicPartition

_Result = TypeVar("_Result")


class Consumer(Generic[Key, Value]):
    """Reads the partitions of topics from the tasks of an event loop of asyncio, and commits its positions.

    `async for record in consumer` waits for further records until the consumer is closed; after each record the
    positions are those after it, so that commit() commits what the loop has got. Records that a cancelled call had read
    come with the next call. As an asynchronous context manager it closes itself; the store stays open.
    Args: store, settings: as of kstore.Consumer; the deserializers run in the consumer's thread.
    Raises: as kstore.Consumer.
    Threads: that of one event loop, one task at a time, except aclose().  Cost: reads run in a thread of the consumer;
        an iteration reads up to max_poll_records at once.
    """

    def __init__(
        self,
        store: Store | WritableStore,
        *,
        key_deserializer: Callable[[bytes], Key] | str | None = None,
        value_deserializer: Callable[[bytes], Value] | str | None = None,
        **settings: Unpack[UntypedSettings],
    ) -> None:
        self._consumer: BlockingConsumer[Key, Value] = BlockingConsumer(
            store, key_deserializer=key_deserializer, value_deserializer=value_deserializer, **settings
        )
        self._workers = Workers(1, name="kstore-aio-consumer")
        # Read, and not returned.
        self._unread: deque[Record[Key, Value]] = deque()
        self._cancelled: list[Call[list[Record[Key, Value]]]] = []
        self._is_closed = False

    def __repr__(self) -> str:
        return f"kstore.aio.{self._consumer!r}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Drop the assignment and end the thread; a poll() that runs returns, and an iteration ends."""
        if not self._is_closed:
            self._is_closed = True
            self._consumer.close()
            # After the calls that wait, which have an error each.
            await ended(self._workers.submit(self._consumer.close))
        await asyncio.to_thread(self._workers.close)

    @property
    def group(self) -> str | None:
        """The group, None to commit nothing."""
        return self._consumer.group

    # Records

    async def poll(self, timeout: float | None = 0.0) -> list[Record[Key, Value]]:
        """Return the next records, at most max_poll_records; wait for the first one up to `timeout` seconds.

        See kstore.Consumer.poll; wait_for() and other cancellation end the wait and lose no record.
        """
        await self._take_back()
        if self._unread:
            records = list(self._unread)
            self._unread.clear()
            return records
        return await self._polled(timeout)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record[Key, Value]:
        await self._take_back()
        while not self._unread:
            try:
                self._unread.extend(await self._polled(None))
            except ConsumerClosedError:
                raise StopAsyncIteration from None
        return self._unread.popleft()

    async def _polled(self, timeout: float | None) -> list[Record[Key, Value]]:
        poll = _Poll(self._consumer, timeout)
        call: Call[list[Record[Key, Value]]] = self._submitted(poll.run)
        try:
            await ended(call)
        except asyncio.CancelledError:
            poll.cancel()
            self._cancelled.append(call)
            raise
        return call.result()

    async def _take_back(self) -> None:
        """Take the records that cancelled polls had read, once these have ended."""
        while self._cancelled:
            call = self._cancelled[0]
            await ended(call)
            del self._cancelled[0]
            self._unread.extend(call.result())

    # Assignment and positions

    async def assignment(self) -> tuple[TopicPartition, ...]:
        """Return the assigned partitions, sorted."""
        return await self._called(self._consumer.assignment)

    async def assign(self, *, topics: Collection[str] = (), partitions: Iterable[tuple[str, int]] = ()) -> None:
        """Read these topics and partitions, and no others; see kstore.Consumer.assign."""
        await self._give_back()
        await self._called(partial(self._consumer.assign, topics=topics, partitions=partitions))

    async def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Set the position of a partition; see kstore.Consumer.seek."""
        await self._give_back()
        await self._called(partial(self._consumer.seek, partition, offset))

    async def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Set the position of partitions, by default all assigned ones, to their log start offset."""
        await self._give_back()
        await self._called(partial(self._consumer.seek_to_beginning, *partitions))

    async def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Set the position of partitions, by default all assigned ones, to their present end."""
        await self._give_back()
        await self._called(partial(self._consumer.seek_to_end, *partitions))

    async def position(self, partition: tuple[str, int]) -> int:
        """Return the offset of the next record that is returned; see kstore.Consumer.position."""
        await self._take_back()
        for record in self._unread:
            if record.topic_partition == tuple(partition):
                return record.offset
        return await self._called(partial(self._consumer.position, partition))

    async def positions(self) -> dict[TopicPartition, int]:
        """Return the offset of the next record of each assigned partition that has one: what commit() commits."""
        await self._take_back()
        positions = await self._called(self._consumer.positions)
        for record in reversed(self._unread):
            if record.topic_partition is not None:
                positions[record.topic_partition] = record.offset
        return positions

    # Committed offsets

    async def committed(
        self, partitions: Iterable[tuple[str, int]] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offset in each partition, None for none; see kstore.Consumer.committed."""
        return await self._called(partial(self._consumer.committed, partitions))

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None, *, ack: Ack = "written"
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Commit offsets, by default the positions after what was returned; see kstore.Consumer.commit."""
        if offsets is None:
            offsets = await self.positions()
        return await self._called(partial(self._consumer.commit, offsets, ack=ack))

    async def _give_back(self) -> None:
        """Have the records that were read and not returned be read again."""
        positions = await self.positions() if self._unread else {}
        for partition in {record.topic_partition for record in self._unread if record.topic_partition is not None}:
            await self._called(partial(self._consumer.seek, partition, positions[partition]))
        self._unread.clear()

    async def _called(self, function: Callable[[], _Result]) -> _Result:
        call = self._submitted(function)
        await ended(call)
        return call.result()

    def _submitted(self, function: Callable[[], _Result]) -> Call[_Result]:
        if self._is_closed:
            raise ConsumerClosedError("the consumer was closed")
        return self._workers.submit(function)


class _Poll:
    """A poll in the consumer's thread, and its cancellation."""

    def __init__(self, consumer: BlockingConsumer, timeout: float | None) -> None:
        self._consumer = consumer
        self._timeout = timeout
        self._is_cancelled = False

    def run(self) -> list[Record]:
        while True:
            try:
                return self._consumer.poll(self._timeout)
            except WakeupError:
                if self._is_cancelled:
                    return []
                # It was for a poll that had its records already.

    def cancel(self) -> None:
        self._is_cancelled = True
        self._consumer.wakeup()
