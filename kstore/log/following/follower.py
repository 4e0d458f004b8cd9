"""Follower: what a caller iterates: records, batches or Arrow record batches, as they come."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from kstore._core import Record
from kstore.config import LogConfig
from kstore.env import Arrivals, Closing
from kstore.env.process import Clock
from kstore.errors import KStoreError
from kstore.log.following.tail import PendingBatch
from kstore.record.batches import RecordBatch
from kstore.record.decoding import decoded_records
from kstore.types import TopicPartition
from kstore.waiting import Call, ended

if TYPE_CHECKING:
    import pyarrow

    from kstore.serializers import Deserializer

Item = TypeVar("Item", covariant=True)


class Made(NamedTuple):
    """What was made of the first batches that were read: the items, and of how many batches they are all.

    If the next item could not be made: error says why, and resume_offset is where its batch is begun again.
    """

    items: Sequence[Any]
    part_count: int
    error: Exception | None = None
    resume_offset: int = 0


# Makes items of the first of these batches, and perhaps of more, for which it may read on.
Convert = Callable[[deque[PendingBatch]], Made]


class Partitions(Protocol):
    """The batches of one log or several, as far as there are any.

    Attributes: positions (the offset that is read next, by partition).
    """

    @property
    def positions(self) -> dict[TopicPartition, int]: ...

    def next_part(self) -> PendingBatch | None: ...

    def go_back(self, part: PendingBatch) -> None:
        """Return a batch, the last that was returned, again."""
        ...

    def look_at(self, directories: frozenset[str]) -> None:
        """Look for new batches in these directories."""
        ...

    def look_everywhere(self) -> None:
        """Look for new batches in all directories, and for new ones."""
        ...

    def close(self) -> None: ...


class Feed:
    """Waits for batches.

    Args: timeout_s: how long at most; None for any time.
    Threads: one at a time, except close().
    """

    def __init__(self, parts: Partitions, arrivals: Arrivals, *, timeout_s: float | None, clock: Clock) -> None:
        self._parts = parts
        self._arrivals = arrivals
        self._timeout_s = timeout_s
        self._clock = clock
        self._came_ms = clock.monotonic_ms()
        # Held while files are read, and by close(), which a signal handler may call in the middle of either.
        self._reads = threading.RLock()
        self._use = threading.RLock()
        self._is_reading = False
        # An object of the wait that runs.
        self._waiter: object | None = None
        # The batches that were read, and of which a follower did not make everything.
        self.unmade: deque[PendingBatch] = deque()
        # The read of a worker thread for an iteration by `async for`: it outlives a cancelled one, and its loop.
        self._reading: Call[bool] | None = None
        self._has_lost_news = False
        self.is_closed = False

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The offset of what is made next, by partition."""
        positions = self._parts.positions
        for part in reversed(self.unmade):
            if part.batch.topic_partition is not None:
                positions[part.batch.topic_partition] = part.start_offset
        return positions

    def close(self) -> None:
        """End the wait that is running, and close the log unless it was open before; a second call does nothing."""
        with self._use:
            if self.is_closed:
                return
            self.is_closed = True
            is_waiting = self._is_waiting
            self._arrivals.wake()
        with self._reads:
            # Held here and reading: this interrupts the read, which then closes.
            if not self._is_reading:
                self._parts.close()
        if not is_waiting:
            self._arrivals.close()

    def read(self) -> bool:
        """Add the next batch to `unmade`; return whether there was one: not if there is none now, and after close()."""
        with self._reads:
            has_come = not self.is_closed and self._read()
        if has_come:
            self._came_ms = self._clock.monotonic_ms()
        return has_come

    def _read(self) -> bool:
        self._is_reading = True
        try:
            part = self._parts.next_part()
            if part is None:
                return False
            # No call before this: an interrupt must not lose what the parts have passed.
            try:
                self.unmade.append(part)
            except BaseException:
                if not (self.unmade and self.unmade[-1] is part):
                    self._parts.go_back(part)
                raise
            return True
        finally:
            self._is_reading = False
            if self.is_closed:
                self._parts.close()

    def wait(self) -> None:
        """Wait until `unmade` has a batch; at most for the timeout, and until close()."""
        waiter = object()
        try:
            self._begin_wait(waiter)
            until_ms = self._until_ms()
            # If a worker thread reads, this waits for it, and what it read comes first.
            self._reading = None
            if self.unmade or self.read():
                return
            # Of what came before this call the parts know nothing yet.
            self._look_at_news()
            while not self.read() and not self.is_closed:
                left_s = self._left_s(until_ms)
                if left_s is not None and left_s <= 0:
                    return
                self._look_at_news(lambda left_s=left_s: self._arrivals.wait(left_s, idle_s=self._idle_s()))  # type: ignore[misc]
        finally:
            # Without a call before it is unset: an interrupt must not keep the next wait out.
            if self._waiter is waiter:
                self._waiter = None
                if self.is_closed:
                    self._arrivals.close()

    async def wait_async(self) -> None:
        """Do what wait() does. Files are read in a worker thread."""
        waiter = object()
        try:
            self._begin_wait(waiter)
            until_ms = self._until_ms()
            if await self._read_in_thread():
                return
            self._look_at_news()
            while not await self._read_in_thread() and not self.is_closed:
                left_s = self._left_s(until_ms)
                if left_s is not None and left_s <= 0:
                    return
                await self._arrived(left_s)
        finally:
            # Without a call before it is unset: an interrupt must not keep the next wait out.
            if self._waiter is waiter:
                self._waiter = None
                if self.is_closed:
                    self._arrivals.close()

    def _look_at_news(self, news: Callable[[], frozenset[str]] | None = None) -> None:
        """Have the parts look where something has changed. Args: news: returns the directories; None to ask now.

        What an interrupt keeps from them is looked at by the next call: everything.
        """
        if self._has_lost_news:
            self._parts.look_everywhere()
        self._has_lost_news = True
        self._parts.look_at(self._arrivals.take() if news is None else news())
        self._has_lost_news = False

    @property
    def _is_waiting(self) -> bool:
        return self._waiter is not None

    def _begin_wait(self, waiter: object) -> None:
        with self._use:
            if self._waiter is not None:
                raise RuntimeError("a follower is iterated by one thread or task at a time")
            self._waiter = None if self.is_closed else waiter

    def _until_ms(self) -> float | None:
        return None if self._timeout_s is None else self._clock.monotonic_ms() + self._timeout_s * 1000

    def _left_s(self, until_ms: float | None) -> float | None:
        return None if until_ms is None else (until_ms - self._clock.monotonic_ms()) / 1000

    def _idle_s(self) -> float:
        return (self._clock.monotonic_ms() - self._came_ms) / 1000

    async def _read_in_thread(self) -> bool:
        """Do what read() does in a worker thread; if this is cancelled, the next iteration finds what was read."""
        import asyncio

        reading = self._reading
        if reading is None:
            reading = self._reading = Call(self.read)
            asyncio.get_running_loop().run_in_executor(None, reading.run)
        await ended(reading)
        self._reading = None
        reading.result()
        return bool(self.unmade)

    async def _arrived(self, timeout_s: float | None) -> None:
        """Wait until something has changed, or for the timeout, and look at it."""
        import asyncio

        arrivals, loop, woken = self._arrivals, asyncio.get_running_loop(), asyncio.Event()
        bounds = [bound for bound in (timeout_s, arrivals.poll_s(self._idle_s())) if bound is not None]

        def wake() -> None:
            # A writer must not fail because a loop has ended.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(woken.set)

        descriptors = arrivals.descriptors
        for descriptor in descriptors:
            loop.add_reader(descriptor, woken.set)
        arrivals.call_on_news(wake)
        try:
            changed = arrivals.take()
            if changed or self.is_closed:
                self._look_at_news(lambda: changed)
                return
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(woken.wait(), min(bounds) if bounds else None)
        finally:
            arrivals.call_on_news(None)
            for descriptor in descriptors:
                loop.remove_reader(descriptor)
        self._look_at_news()


class Follower(Closing, Generic[Item]):
    """The records of a log, or of several, as they come: an iterator, also for `async for`, and a context manager.

    An iteration waits for what comes next; it ends after the timeout, and after close(). The next iteration goes on
    where it ended. batches() and to_arrow_batches() return followers of the same log that give something else; use one
    of them at a time.
    Raises: while iterating OffsetOutOfRangeError, LogTruncationError for records that are gone, see kstore.Log.follow;
        LogReplacedError if the directory was removed or replaced; LogClosedError after the log was closed; otherwise as
        Log.read.
    Threads: one at a time, except close().  Cost: nothing while nothing comes, where the system tells of changes.
    """

    def __init__(self, feed: Feed, convert: Convert, *, config: LogConfig) -> None:
        self._feed = feed
        self._convert = convert
        self._config = config
        self._ready: deque[Any] = deque()
        self._error: Exception | None = None
        self._before: dict[TopicPartition, int] = {}

    @property
    def is_closed(self) -> bool:
        """Whether close() was called."""
        return self._feed.is_closed

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The offset after the last item, by partition: where another follower would go on.

        Of several Arrow record batches that were made at once, those before the first until the last was returned.
        """
        positions = self._feed.positions
        if self._ready:
            positions |= self._before
            first = self._ready[0]
            if isinstance(first, Record) and first.topic_partition is not None:
                positions[first.topic_partition] = first.offset
        return positions

    @property
    def position(self) -> int:
        """The offset after the last item of a follower of one log.  Raises: ValueError if there are several logs."""
        (position,) = self.positions.values()
        return position

    def close(self) -> None:
        """End the iteration that is running, also in another thread; a second call does nothing."""
        self._feed.close()

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        while not self._ready:
            if not self._feed.unmade:
                self._feed.wait()
            if self.is_closed or not self._feed.unmade:
                raise StopIteration
            self._make()
        # No call here: an interrupt after it would lose the item, and one for each record costs time.
        item: Item = self._ready[0]
        del self._ready[0]
        return item

    def __aiter__(self) -> Follower[Item]:
        return self

    async def __anext__(self) -> Item:
        while not self._ready:
            if not self._feed.unmade:
                await self._feed.wait_async()
            if self.is_closed or not self._feed.unmade:
                raise StopAsyncIteration
            self._make()
        return self._next_item()

    def _next_item(self) -> Item:
        """Do as __next__ with what is ready."""
        item: Item = self._ready[0]
        del self._ready[0]
        return item

    def _make(self) -> None:
        """Make items of what was read. What could not be made is tried again by the next iteration."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        feed = self._feed
        made = self._convert(feed.unmade)
        self._before = feed.positions
        left = deque(islice(feed.unmade, made.part_count, None))
        if made.error is not None:
            left[0] = left[0]._replace(start_offset=made.resume_offset)
        ready = deque(made.items)
        # No call between these: an interrupt must neither lose items nor have them made twice.
        self._ready, feed.unmade, self._error = ready, left, made.error

    def batches(self) -> Follower[RecordBatch]:
        """Return a follower that gives whole batches, control batches too, as Log.batches.

        The first one may begin below the offset from which the log is followed.
        Raises: ValueError if some of the records of a batch were returned.
        """
        return self._giving(lambda parts: Made([parts[0].batch], 1))

    def to_arrow_batches(
        self,
        *,
        columns: Sequence[str] | None = None,
        binary: Literal["copy", "view"] = "copy",
        batch_bytes: int = 1024 * 1024,
    ) -> Follower[pyarrow.RecordBatch]:
        """Return a follower that gives Arrow record batches, as Log.to_arrow_batches: of what there is, up to about
        batch_bytes, each of one partition.

        Raises: ImportError without pyarrow; ValueError as kstore.scan, and as batches().
        """
        from kstore.arrow import PartDecoder

        decoder = PartDecoder(columns=columns, binary=binary, batch_bytes=batch_bytes, config=self._config)

        def convert(parts: deque[PendingBatch]) -> Made:
            size = sum(part.batch.size_in_bytes for part in parts)
            # What is wrong is raised by the next read, after the batches before it.
            with suppress(KStoreError):
                while size < batch_bytes and self._feed.read():
                    size += parts[-1].batch.size_in_bytes
            try:
                return Made(decoder.record_batches(parts), len(parts))
            except KStoreError:
                if len(parts) == 1:
                    raise
                return Made(decoder.record_batches([parts[0]]), 1)

        return self._giving(convert)

    def _giving(self, convert: Convert) -> Follower[Any]:
        if self._ready:
            raise ValueError("some records of a batch were returned, and the others were not: take them first")
        return Follower(self._feed, convert, config=self._config)


def records_of(key_deserializer: Deserializer | None, value_deserializer: Deserializer | None) -> Convert:
    """Return the function that makes records of a batch, up to the first that cannot be made."""
    is_decoded = key_deserializer is not None or value_deserializer is not None

    def records_from(part: PendingBatch) -> Iterator[Record]:
        batch, start = part
        records = iter(batch) if batch.base_offset >= start else (record for record in batch if record.offset >= start)
        if not is_decoded or batch.topic_partition is None:
            return records
        return decoded_records(
            records,
            topic_partition=batch.topic_partition,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
        )

    def convert(parts: deque[PendingBatch]) -> Made:
        part = parts[0]
        if part.batch.is_control:
            return Made((), 1)
        records: list[Record] = []
        try:
            records.extend(records_from(part))
        except Exception as error:  # noqa: BLE001 - a deserializer of the user raises what it likes
            return Made(records, 0, error, records[-1].offset + 1 if records else part.start_offset)
        return Made(records, 1)

    return convert
