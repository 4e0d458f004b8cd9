"""Consumer: reads the partitions of a store from the positions of its group, and commits them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from math import inf
from typing import Generic, NoReturn
from weakref import WeakSet

from kstore._core import Record, record_size, take_records
from kstore.config import MAX_INT32, MIB
from kstore.consumer.config import check_settings
from kstore.coordinator.group.offsets import (
    CommittedOffsets,
    GroupOffsets,
    checked_group,
    checked_offsets,
)
from kstore.env import ENOENT, Arrivals, Closing, StrPath
from kstore.env.process import SYSTEM_CLOCK, Clock
from kstore.errors import (
    ConsumerClosedError,
    KStoreError,
    LogClosedError,
    LogNotFoundError,
    LogReplacedError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    StorageError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
    WakeupError,
    checked_int,
)
from kstore.log.following.tail import AutoOffsetReset, FollowOptions
from kstore.log.log import Log
from kstore.log.reads import Isolation
from kstore.record.decoding import decoded_records, deserializer_of
from kstore.serializers import Key, Value
from kstore.store.store import Store, WritableStore, open_store
from kstore.types import EARLIEST, LATEST, MAX_OFFSET, Ack, OffsetAndMetadata, TopicPartition
from kstore.waiting import checked_timeout

_MS_PER_S = 1000
# How many partitions keep a read open between polls: each has a chunk of its file and a decompressed batch in memory.
_MOST_OPEN_READS = 16

_logger = logging.getLogger("kstore.consumer")


class _Partition:
    """The position of the consumer in one partition, and the read that is open there.

    Attributes: incarnation (the identity token that the store gave the partition), position (the offset to read next,
        None until it is looked up), failure (why it could not be looked up; next() raises it), held (a record that was
        read and not returned yet).
    """

    __slots__ = (
        "_end_offset",
        "_isolation",
        "_records",
        "_store",
        "failure",
        "held",
        "incarnation",
        "name",
        "position",
    )

    def __init__(self, name: TopicPartition, store: Store | WritableStore, isolation: Isolation) -> None:
        self.name = name
        self.incarnation = store.incarnation(*name)
        self.position: int | None = None
        self.failure: KStoreError | None = None
        self.held: Record | None = None
        self._store = store
        self._isolation: Isolation = isolation
        self._records: Iterator[Record] | None = None
        self._end_offset = 0

    @property
    def log(self) -> Log:
        """The open log, which the store may have closed and opened again.

        Raises: LogNotFoundError; LogReplacedError if the partition was deleted and created again.
        """
        log = self._store.log(*self.name)
        if self._store.incarnation(*self.name) is not self.incarnation:
            raise LogReplacedError(f"{self.name} was deleted and created again", path=log.path)
        return log

    def seek(self, offset: int | None) -> None:
        self.position, self.failure, self.held, self._records = offset, None, None, None

    @property
    def has_open_read(self) -> bool:
        return self._records is not None

    def close_read(self) -> None:
        """Free the memory of the read; next() opens another one at the position."""
        self.held = self._records = None

    def has_news(self) -> bool:
        """Whether next() has a record to return, or a position outside the log to report."""
        log = self.log
        log.refresh()
        position = self.position
        return position is not None and (
            self.end_offset() > position or not log.log_start_offset <= position <= log.log_end_offset
        )

    def end_offset(self) -> int:
        """Return the offset after the last record that the isolation lets the consumer read."""
        return self.log._readable_end(isolation=self._isolation).offset

    def next(self) -> Record | None:
        """Return the next record without moving the position, None if there is none yet.

        Raises: as Log.read; the next call starts at the position again.
        """
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        if self.held is not None or self.position is None:
            return self.held
        while True:
            try:
                records = self._records
                if records is None:
                    if self.end_offset() <= self.position and not self.has_news():
                        return None
                    self._end_offset = self.end_offset()
                    records = self._records = self.log.read(self.position, isolation=self._isolation)
                for record in records:
                    if record.offset >= self.position:
                        self.held = record
                        return record
            except BaseException:
                self._records = None
                raise
            self._records = None
            # Between the last record and the end are only markers, aborted records and gaps.
            self.position = max(self.position, self._end_offset)

    def passed(self, record: Record) -> None:
        """Move the position past a record that next() returned."""
        self.position, self.held = record.offset + 1, None

    def take_more(self, records: list[Record], *, most_records: int, most_bytes: int) -> int:
        """Append the records after the last one that was passed, as far as the open read has them; return their bytes.

        Ends when `records` has most_records, or with the record that brings the bytes to most_bytes. If the files
        change it ends too, and next() says so.
        Raises: as next(), with the position past what was appended.
        """
        source, position, count = self._records, self.position, len(records)
        if source is None or position is None or count >= most_records:
            return 0
        taken_bytes, least = 0, position
        try:
            taken_bytes, has_ended = take_records(
                source, records, least_offset=position, most_records=most_records, most_bytes=most_bytes
            )
            if has_ended:
                self._records, least = None, max(least, self._end_offset)
        except BaseException as error:
            self._records = None
            if not isinstance(error, LogReplacedError | LogClosedError | OffsetOutOfRangeError):
                raise
            taken_bytes = sum(map(record_size, records[count:]))
        finally:
            # Not before: after an interrupt in the loop, the caller resets the position, as there are records.
            self.position = max(least, records[-1].offset + 1) if len(records) > count else least
        return taken_bytes


class Consumer(Closing, Generic[Key, Value]):
    """Reads the partitions of topics in a store, as a Kafka consumer to which all of them are assigned.

    Consumer[K, V] names the types of keys and values, which type checkers know by deserializers that are callables;
    null is None in any case. There is no group membership: two consumers of one group both read everything. A group
    keeps their progress: commit() writes the offsets to the store's `__consumer_offsets` as a broker does, and
    committed() reads them, those of a broker's consumers too. There is no auto-commit. As a context manager it closes
    itself; the store stays open.
    Args: store: from kstore.open_store, in mode "a" to commit; group: Kafka's group.id, None to commit nothing; topics:
        all of their partitions, also those that are added later; partitions: these. auto_offset_reset: where to start
        without a committed offset, or with one outside the log, with a warning: "none" raises instead. isolation: as in
        Log.read. offsets: a root of its own, or an open store, that has the group's offsets in place of `store`, so
        that a process that only reads the store can commit; a path is created if it does not exist, and locked until
        close(). timeout: how long to wait for the lock of that path while another consumer has it, in seconds, None
        without limit. key_deserializer, value_deserializer: callables or names, as in Log.read. max_poll_records,
        fetch_max_bytes, max_partition_fetch_bytes: after so many records, bytes of records, or bytes of one partition a
        poll() takes no further record; the bytes are those of decompressed keys, values and headers.
    Raises: TypeError, ValueError for other arguments; UnknownTopicOrPartitionError; LogLockedError. All methods but
        close() and wakeup() raise ConsumerClosedError once it is closed.
    Threads: one at a time, except close() and wakeup().  Source: Kafka KafkaConsumer.
    """

    def __init__(
        self,
        store: Store | WritableStore,
        *,
        group: str | None = None,
        topics: Collection[str] = (),
        partitions: Iterable[tuple[str, int]] = (),
        auto_offset_reset: AutoOffsetReset = "latest",
        isolation: Isolation = "read_uncommitted",
        offsets: StrPath | WritableStore | None = None,
        timeout: float | None = 0.0,
        key_deserializer: Callable[[bytes], Key] | str | None = None,
        value_deserializer: Callable[[bytes], Value] | str | None = None,
        max_poll_records: int = 500,
        fetch_max_bytes: int = 50 * MIB,
        max_partition_fetch_bytes: int = MIB,
        clock: Clock = SYSTEM_CLOCK,
        **unknown: NoReturn,
    ) -> None:
        check_settings(unknown)
        if not isinstance(store, Store | WritableStore):
            raise TypeError(f"a consumer needs a store from kstore.open_store, got {store!r}")
        FollowOptions(isolation, auto_offset_reset=auto_offset_reset).check()
        self.group = None if group is None else checked_group(group)
        self._store = store
        self._reset = auto_offset_reset
        self._isolation: Isolation = isolation
        self._deserializers = deserializer_of(key_deserializer), deserializer_of(value_deserializer)
        self._max_poll_records = checked_int("max_poll_records", max_poll_records, least=1)
        self._fetch_max_bytes = checked_int("fetch_max_bytes", fetch_max_bytes, least=0, greatest=MAX_INT32)
        self._max_partition_fetch_bytes = checked_int(
            "max_partition_fetch_bytes", max_partition_fetch_bytes, least=0, greatest=MAX_INT32
        )
        self._clock = clock
        self._own_offsets_store: WritableStore | None = None
        self._offsets_store = self._offsets_store_of(offsets, timeout)
        self._committed = None if self.group is None else CommittedOffsets(self._offsets_store, self.group)
        self._offsets = (
            GroupOffsets(self._offsets_store, committed=store, clock=clock)
            if isinstance(self._offsets_store, WritableStore)
            else None
        )
        self._is_closed = False
        self._is_polling = False
        self._is_woken = False
        self._topics: tuple[str, ...] = ()
        self._named: set[TopicPartition] = set()
        self._known: tuple[TopicPartition, ...] = ()
        self._partitions: dict[TopicPartition, _Partition] = {}
        # In the order of their last use.
        self._open_reads: dict[_Partition, None] = {}
        # Wakes a waiting poll, and the logs that are subscribed to do so.
        self._arrivals: Arrivals | None = None
        self._subscribed: WeakSet[Log] = WeakSet()
        try:
            self.assign(topics=topics, partitions=partitions)
        except BaseException:
            self._close_own_store()
            raise

    def _offsets_store_of(
        self, offsets: StrPath | WritableStore | None, timeout: float | None
    ) -> Store | WritableStore:
        """Return the store with the offsets of the group, opened if it was given as a path."""
        if timeout != 0 and (offsets is None or isinstance(offsets, WritableStore)):
            raise ValueError(
                f"timeout={timeout!r} of a consumer is how long it waits for the lock of offsets=DIR, of which there "
                "is none; poll() has its own timeout"
            )
        if offsets is None:
            return self._store
        if self.group is None:
            raise self._no_group()
        if isinstance(offsets, WritableStore):
            return offsets
        self._own_offsets_store = open_store(offsets, "a", timeout=timeout)
        return self._own_offsets_store

    def _close_own_store(self) -> None:
        if self._own_offsets_store is not None:
            self._own_offsets_store.close()

    def __repr__(self) -> str:
        return f"Consumer(group={self.group!r}, partitions={len(self._partitions)})"

    def close(self) -> None:
        """Drop the assignment; a second call does nothing.

        A running poll(), in another thread or under the signal handler that calls this, returns the records that it
        has, or an empty list.
        """
        self._is_closed = True
        arrivals = self._arrivals
        if arrivals is not None:
            arrivals.wake()
        if not self._is_polling:
            self._release()

    def wakeup(self) -> None:
        """Make the running poll(), or else the next one, raise WakeupError without taking records.

        Threads: safe, and from signal handlers.  Source: Kafka KafkaConsumer.wakeup.
        """
        self._is_woken = True
        arrivals = self._arrivals
        if arrivals is not None:
            arrivals.wake()

    def _release(self) -> None:
        self._partitions = {}
        self._open_reads = {}
        if self._arrivals is not None:
            self._arrivals.close()
        self._close_own_store()

    # Assignment and positions

    def assign(self, *, topics: Collection[str] = (), partitions: Iterable[tuple[str, int]] = ()) -> None:
        """Read these topics and partitions, and no others; partitions that stay assigned keep their positions.

        Raises: UnknownTopicOrPartitionError, with nothing changed.
        """
        self._check_open()
        if isinstance(topics, str):
            raise TypeError(f"topics must be a collection of names, got the str {topics!r}")
        topics = tuple(topics)
        wanted = set(map(_named, partitions))
        unknown = wanted - set(self._store.partitions)
        missing = set(topics) - set(self._store.topics)
        if unknown or missing:
            name = f"partition {min(unknown)}" if unknown else f"topic {min(missing)!r}"
            raise UnknownTopicOrPartitionError(f"the store has no {name}")
        self._topics, self._named = topics, wanted
        self._known = ()
        kept = {name: self._partitions[name] for name in wanted & self._partitions.keys()}
        kept |= {name: self._partitions[name] for name in self._partitions if name.topic in self._topics}
        self._partitions = kept
        self._open_reads = {partition: None for partition in self._open_reads if partition in kept.values()}
        for added in sorted(wanted - kept.keys()):
            self._add(added)
        self._take_new_partitions()

    def assignment(self) -> tuple[TopicPartition, ...]:
        """Return the assigned partitions, sorted."""
        self._check_open()
        self._take_new_partitions()
        return tuple(sorted(self._partitions))

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Set the position of a partition; auto_offset_reset applies if the offset is outside the log.

        Args: offset: kstore.EARLIEST and LATEST stand for the log start and the present end.
        Raises: ValueError for another negative number, or one above 2**63 - 1.
        """
        assigned = self._assigned(partition)
        if offset == EARLIEST:
            self.seek_to_beginning(partition)
        elif offset == LATEST:
            self.seek_to_end(partition)
        else:
            assigned.seek(checked_int("offset", offset, least=0, greatest=MAX_OFFSET))

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Set the position of partitions, by default all assigned ones, to their log start offset."""
        for partition in self._several(partitions):
            partition.log.refresh()
            partition.seek(partition.log.log_start_offset)

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Set the position of partitions, by default all assigned ones, to their present end."""
        for partition in self._several(partitions):
            partition.log.refresh()
            partition.seek(partition.end_offset())

    def position(self, partition: tuple[str, int]) -> int:
        """Return the offset of the next record: after the last one returned, else as committed, else by
        auto_offset_reset.

        Raises: NoOffsetForPartitionError; UnstableOffsetCommitError; as committed().
        """
        assigned = self._assigned(partition)
        if assigned.position is None:
            self._look_up({_named(partition): assigned})
        if assigned.failure is not None:
            raise assigned.failure
        if assigned.position is None:
            raise UnstableOffsetCommitError(
                f"group {self.group!r} has an offset of {TopicPartition(*partition)} in a transaction that is not "
                "decided"
            )
        return assigned.position

    def positions(self) -> dict[TopicPartition, int]:
        """Return the offset of the next record of each assigned partition that has one: what commit() commits.

        Those that no poll() has come to have none, so that this is empty before the first one; position() looks it up.
        """
        self._check_open()
        self._take_new_partitions()
        return {
            name: partition.position for name, partition in self._partitions.items() if partition.position is not None
        }

    # Records

    def poll(self, timeout: float | None = 0.0) -> list[Record[Key, Value]]:
        """Return the next records, at most max_poll_records; wait for the first one up to `timeout` seconds.

        Records of one partition are in the order of their offsets. After an error the positions are as they were: once
        the other partitions have had their turn, a later call raises it again, unless seek() skips the record. A
        partition that is deleted is dropped, with a warning.
        Args: timeout: in seconds, 0 not to wait, None to wait without limit.
        Returns: an empty list after the timeout, and when close() ends the call.
        Raises: ValueError, TypeError for another timeout; RecordDeserializationError; OffsetOutOfRangeError,
            NoOffsetForPartitionError with auto_offset_reset "none"; CorruptRecordError and the other errors of
            Log.read; WakeupError after wakeup().
        Cost: memory for at most fetch_max_bytes and one more record, and for the reads that are open, of at most 16
            partitions: of each a chunk of the file and a decompressed batch.
        """
        timeout_s = checked_timeout(timeout)
        try:
            # First, so that close() leaves the rest to the finally.
            self._is_polling = True
            self._check_open()
            deadline_ms = inf if timeout_s is None else self._clock.monotonic_ms() + timeout_s * _MS_PER_S
            while True:
                if self._is_woken:
                    self._is_woken = False
                    raise WakeupError("wakeup() was called")
                if self._is_closed:
                    return []
                # Nothing comes between the records and their return: the positions are past them.
                if records := self._take_records():
                    return records
                if deadline_ms <= self._clock.monotonic_ms() or not self._wait(deadline_ms):
                    return []
        finally:
            self._is_polling = False
            if self._is_closed:
                self._release()

    def _wait(self, deadline_ms: float) -> bool:
        """Wait for something to return or to raise; return False if the deadline passes first."""
        start_ms = self._clock.monotonic_ms()
        if self._arrivals is None:
            self._arrivals = self._store._new_arrivals()
        while True:
            try:
                has_new = self._take_new_partitions()
                # Before the check, so that no record arrives unnoticed between the two.
                self._subscribe(self._arrivals)
                if has_new or self._has_news():
                    return True
            except KStoreError as error:
                if not _may_be_gone(error):
                    raise
                # _take_records drops the partition, or raises the error again.
                return True
            if self._is_closed or self._is_woken:
                return True
            now_ms = self._clock.monotonic_ms()
            if now_ms >= deadline_ms:
                return False
            left_s = None if deadline_ms == inf else (deadline_ms - now_ms) / _MS_PER_S
            self._arrivals.wait(left_s, idle_s=(now_ms - start_ms) / _MS_PER_S)

    def _subscribe(self, arrivals: Arrivals) -> None:
        """Have the assigned logs, and the one with the group's offsets, wake `arrivals` when they get new data."""
        logs = [partition.log for partition in self._partitions.values()]
        offsets_partition = None if self._committed is None else self._committed.partition
        if offsets_partition is not None:
            logs.append(self._offsets_store.log(*offsets_partition))
        for log in logs:
            if log not in self._subscribed:
                log._notify(arrivals)
                self._subscribed.add(log)

    def _take_records(self) -> list[Record]:
        self._take_new_partitions()
        self._look_up({name: partition for name, partition in self._partitions.items() if partition.position is None})
        records: list[Record] = []
        left_bytes = self._fetch_max_bytes
        before: list[tuple[_Partition, int | None]] = []
        try:
            for name, partition in list(self._partitions.items()):
                if self._was_dropped_or_recreated(partition):
                    continue
                before.append((partition, partition.position))
                try:
                    taken_bytes = self._take_from(partition, records, left_bytes)
                except KStoreError as error:
                    if _may_be_gone(error):
                        self._take_new_partitions()
                        if self._was_dropped_or_recreated(partition):
                            continue
                    # The next call raises the error, and the one after that begins with the others.
                    failed = {name: self._partitions.pop(name)}
                    self._partitions = {**failed, **self._partitions} if records else {**self._partitions, **failed}
                    if records:
                        break
                    raise
                left_bytes -= taken_bytes
                is_full = len(records) >= self._max_poll_records or left_bytes <= 0
                if records and (is_full or taken_bytes >= self._max_partition_fetch_bytes):
                    # The others come first in the next poll.
                    self._partitions[name] = self._partitions.pop(name)
                self._limit_open_reads(partition)
                if records and is_full:
                    break
        except BaseException:
            # After an interrupt, a later commit must not skip records that poll() did not return.
            for partition, position in before if records else ():
                partition.seek(position)
            raise
        return records

    def _limit_open_reads(self, partition: _Partition) -> None:
        """Mark a partition as used last, and close the least recently used read if too many are open."""
        self._open_reads.pop(partition, None)
        if partition.has_open_read:
            self._open_reads[partition] = None
            if len(self._open_reads) > _MOST_OPEN_READS:
                oldest = next(iter(self._open_reads))
                del self._open_reads[oldest]
                oldest.close_read()

    def _take_from(self, partition: _Partition, records: list[Record], left_bytes: int) -> int:
        """Append the next records of a partition to `records` up to the limits; return their size in bytes."""
        key_deserializer, value_deserializer = self._deserializers
        most_bytes = min(left_bytes, self._max_partition_fetch_bytes)
        taken_bytes = 0
        while len(records) < self._max_poll_records:
            record = self._next(partition)
            if record is None:
                break
            decoded = record
            if key_deserializer is not None or value_deserializer is not None:
                (decoded,) = decoded_records(
                    (record,),
                    topic_partition=partition.name,
                    key_deserializer=key_deserializer,
                    value_deserializer=value_deserializer,
                )
            # In this order: after an interrupt between the two, the caller resets the position, as there is a record.
            records.append(decoded)
            partition.passed(record)
            taken_bytes += record_size(record)
            if taken_bytes >= most_bytes:
                break
            if key_deserializer is None and value_deserializer is None:
                taken_bytes += partition.take_more(
                    records, most_records=self._max_poll_records, most_bytes=most_bytes - taken_bytes
                )
                if taken_bytes >= most_bytes:
                    break
        return taken_bytes

    def _next(self, partition: _Partition) -> Record | None:
        try:
            return partition.next()
        except (LogReplacedError, LogClosedError):
            # Files were removed under the iterator, or the store reopened the log: read on from the position.
            partition.log.refresh()
        except OffsetOutOfRangeError as error:
            self._reset_after(partition, error)
        try:
            return partition.next()
        except OffsetOutOfRangeError as error:
            self._reset_after(partition, error)
            return partition.next()

    def _reset_after(self, partition: _Partition, error: OffsetOutOfRangeError) -> None:
        """Set the position by auto_offset_reset, unless the refreshed log holds the present one."""
        partition.log.refresh()
        position = partition.position
        if position is not None and partition.log.log_start_offset <= position <= partition.log.log_end_offset:
            return
        if self._reset == "none":
            raise error
        offset = self._reset_offset(partition)
        partition.seek(offset)
        _logger.warning("%s; reading goes on at offset %d (auto_offset_reset %r)", error, offset, self._reset)

    def _has_news(self) -> bool:
        """Whether a partition was added, or one has records at its position, or an error to report."""
        if self._take_new_partitions():
            return True
        waiting = {name for name, partition in self._partitions.items() if partition.position is None}
        if waiting and waiting - self._unstable():
            return True
        return any(partition.has_news() for partition in self._partitions.values())

    # Committed offsets

    def committed(
        self, partitions: Iterable[tuple[str, int]] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offset in each partition, None for none; open transactions do not count.

        Args: partitions: several, by default those that are assigned.
        Raises: ValueError without a group; TypeError for what is no partition; CorruptRecordError and the other errors
            of a read.
        Cost: reads what was written to the group's partition of `__consumer_offsets` since the last call.
        """
        self._check_open()
        wanted = self.assignment() if partitions is None else list(map(_named, partitions))
        if self._committed is None:
            raise self._no_group()
        committed = self._committed.current()
        return {topic_partition: committed.get(topic_partition) for topic_partition in wanted}

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None, *, ack: Ack = "written"
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Commit offsets, by default the positions of all partitions that have one, and return them.

        In a transaction, use Producer.send_offsets_to_transaction. The topic `__consumer_offsets` is created if it does
        not exist, with one partition in a root that kstore made, as a broker does in another one.
        Args: ack: as in WritableLog.append.
        Raises: ValueError without a group, for a store that is only read, and for an invalid offset;
            UnknownTopicOrPartitionError; StorageError and the other errors of an append.
        """
        self._check_open()
        if self.group is None:
            raise self._no_group()
        if self._offsets is None:
            raise ValueError(
                'commit needs a store that is open for writing, by kstore.open_store(root, "a"), or a root for the '
                "offsets, offsets=DIR"
            )
        if offsets is None:
            offsets = self.positions()
        made = checked_offsets(offsets)
        if made:
            self._offsets.commit(self.group, made, ack=ack)
        return made

    def _unstable(self) -> set[TopicPartition]:
        """Return the partitions whose committed offset an open transaction may change; none unless read_committed."""
        if self._committed is None or self._isolation != "read_committed":
            return set()
        return set(self._committed.pending())

    @staticmethod
    def _no_group() -> ValueError:
        return ValueError("committed offsets belong to a group: create the consumer with group=...")

    # Inside

    def _look_up(self, partitions: Mapping[TopicPartition, _Partition]) -> None:
        """Set the position of partitions without one: as committed, else by auto_offset_reset.

        It stays None while an open transaction may commit another one.
        """
        if not partitions:
            return
        committed = {} if self._committed is None else self._committed.current()
        unstable = self._unstable()
        for name, partition in partitions.items():
            offset = committed.get(name)
            if name in unstable:
                continue
            if offset is not None:
                partition.seek(offset.offset)
                continue
            try:
                self._begin(partition)
            except KStoreError as error:
                # Raised by next(), so that the other partitions are read.
                partition.failure = error

    def _begin(self, partition: _Partition) -> None:
        """Set the first position of a partition without a committed offset, by auto_offset_reset."""
        if self._reset == "none":
            raise NoOffsetForPartitionError(
                f'group {self.group!r} has no offset of {partition.name}, and auto_offset_reset is "none"',
                topic=partition.name.topic,
                partition=partition.name.partition,
            )
        partition.log.refresh()
        partition.seek(self._reset_offset(partition))
        if self.group is not None:
            _logger.info(
                "group %r has no offset of %s: reading begins at offset %d (auto_offset_reset %r)",
                self.group,
                partition.name,
                partition.position,
                self._reset,
            )

    def _reset_offset(self, partition: _Partition) -> int:
        return partition.log.log_start_offset if self._reset == "earliest" else partition.end_offset()

    def _take_new_partitions(self) -> bool:
        """Add new partitions of the topics, and drop deleted ones; return whether any were added.

        A re-created partition is a new one: it has no position.
        """
        if isinstance(self._store, Store):
            self._store.look_again()
        known = self._store.partitions
        if known is self._known:
            return False
        self._known, there = known, set(known)
        for name, partition in list(self._partitions.items()):
            if name not in there:
                _logger.warning(
                    "%s was deleted, and is not read any more; its position was %s", name, partition.position
                )
            elif self._store.incarnation(*name) is not partition.incarnation:
                _logger.warning(
                    "%s was deleted and created again: its position, %s, is dropped (auto_offset_reset %r)",
                    name,
                    partition.position,
                    self._reset,
                )
            else:
                continue
            del self._partitions[name]
            self._open_reads.pop(partition, None)
        new = [name for name in known if self._is_wanted(name) and name not in self._partitions]
        for name in new:
            self._add(name)
        return bool(new)

    def _is_wanted(self, name: TopicPartition) -> bool:
        return name.topic in self._topics or name in self._named

    def _was_dropped_or_recreated(self, partition: _Partition) -> bool:
        """Whether the consumer dropped this partition, or replaced it by a re-created one."""
        return self._partitions.get(partition.name) is not partition

    def _add(self, name: TopicPartition) -> None:
        self._partitions[name] = _Partition(name, self._store, self._isolation)

    def _several(self, partitions: Iterable[tuple[str, int]]) -> list[_Partition]:
        self._check_open()
        self._take_new_partitions()
        return [self._assigned(partition) for partition in partitions] or list(self._partitions.values())

    def _assigned(self, partition: tuple[str, int]) -> _Partition:
        self._check_open()
        self._take_new_partitions()
        assigned = self._partitions.get(_named(partition))
        if assigned is None:
            raise ValueError(f"partition {_named(partition)} is not assigned to this consumer")
        return assigned

    def _check_open(self) -> None:
        if self._is_closed:
            raise ConsumerClosedError("the consumer was closed")


def _named(partition: object) -> TopicPartition:
    """Return a partition that a caller names.  Raises: TypeError for what is no topic and number."""
    if isinstance(partition, tuple | list) and len(partition) == 2 and isinstance(partition[0], str):
        return TopicPartition(partition[0], checked_int("partition", partition[1]))
    raise TypeError(
        f"a partition must be a topic and a number, ('t', 0), and several a collection of these, got {partition!r}"
    )


def _may_be_gone(error: KStoreError) -> bool:
    """Whether a read fails like this after its partition was deleted, or re-created."""
    is_missing = isinstance(error, StorageError) and error.errno == ENOENT
    return is_missing or isinstance(error, LogClosedError | LogNotFoundError | LogReplacedError)
