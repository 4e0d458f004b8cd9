"""Table: the newest value of each key of a topic, as a read-only mapping. Only hashes of the keys are in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence, ValuesView
from itertools import chain
from typing import Any, NamedTuple

from kstore._core import OffsetMap, Record, count_keys
from kstore._html import fields_html
from kstore.env import ENOENT, Closing, Env, LiveArrivals, join_path
from kstore.env.process import random_bytes
from kstore.errors import (
    LogClosedError,
    LogNotFoundError,
    LogReplacedError,
    MemoryLimitError,
    SerializationError,
    StorageError,
    checked_int,
)
from kstore.log.files.names import PartitionDirectory
from kstore.log.following.newest import LEAST_MAP_BYTES, MapMemory, NewestOffsets
from kstore.log.following.tail import FollowOptions, LogTail, ReadRound
from kstore.log.log import Log
from kstore.log.reads import Isolation, is_committed
from kstore.record.decoding import decode, decoded_records, deserializer_of
from kstore.serializers import Deserializer, Serializer, serializer
from kstore.types import TopicPartition

_SECRET_BYTES = 16
# After this, a change that a state did not show, since it was in the tick of a clock, shows.
_SETTLED_MS = 1000
_MOST_LOOKS = 10


class TopicLogs(NamedTuple):
    """The partitions of one topic, as a table sees them.

    find: returns the directory of each partition as they are now, the same object as long as it is the same log;
    open: opens a log; state: returns what is not equal to an earlier one if there may be other partitions. All of them
    raise LogClosedError after the store was closed.
    """

    root: str
    topic: str
    find: Callable[[], dict[TopicPartition, PartitionDirectory]]
    open: Callable[[PartitionDirectory], Log]
    state: Callable[[], object]
    env: Env


class _Place(NamedTuple):
    """Where the newest record of a key is, if its partition is the only one that has the key."""

    part: _Part
    offset: int

    def record(self) -> Record | None:
        return self.part.log.get(self.offset)


class _Part:
    """One partition: the map of its keys, and the log that the records are read from.

    Attributes: directory, newest.
    """

    def __init__(
        self, directory: PartitionDirectory, logs: TopicLogs, memory: MapMemory, *, isolation: Isolation
    ) -> None:
        self.directory = directory
        self._logs = logs
        self._isolation: Isolation = isolation
        # Equal to no state.
        self._state: object = object()
        self._look_again_ms: float | None = None
        self.newest = NewestOffsets(self._open_tail, memory, isolation=isolation)

    def _open_tail(self, read: ReadRound) -> LogTail:
        # Nothing waits for the log.
        options, arrivals = FollowOptions(self._isolation), LiveArrivals()
        tail, _ = self._logs.open(self.directory)._tail(None, options=options, arrivals=arrivals, read=read)
        self.log = Log(tail.source)
        return tail

    @property
    def name(self) -> TopicPartition:
        return self.directory.topic_partition

    def follow(self, *, is_forced: bool) -> bool:
        """Map what is new, if the log may have changed; return whether the map may have."""
        state = self.newest.source.state()
        is_new = state != self._state
        if not (is_forced or is_new or _is_due(self._look_again_ms, self._logs.env)):
            return False
        has_changed = self.newest.follow()
        self._state, self._look_again_ms = state, _look_again_ms(self._logs.env) if is_new else None
        return has_changed

    def has_changed(self) -> bool:
        """Whether the log is another one than when it was mapped, as after a compaction since."""
        return bool(self.newest.source.state() != self._state)

    def newest_from(self, offset: int, key: bytes) -> Record | None:
        """Return the newest record of a key among those from an offset on, None if there is none."""
        found = None
        for record in self.log.read(offset, isolation=self._isolation):
            if record.key == key:
                found = record
        return found

    def records(self) -> Iterator[Record]:
        """Iterate the newest record of each key in the order of the log, as the map has them now.

        Raises: LogReplacedError if some are not in the log any more.
        """
        newest, log = self.newest, self.log
        unseen = newest.key_count
        for record in log.read(None, max(newest.position, log.log_start_offset)):
            if record.key is not None and newest.offset_of(record.key) == record.offset:
                unseen -= 1
                yield record
        if newest.map is None:
            raise LogClosedError(f"the table of {self.name.topic!r} was closed", path=log.path)
        if unseen:
            raise LogReplacedError(
                f"{self.name} in {log.path} changed while a table of it was iterated: {unseen} of its records are "
                "gone; begin again",
                path=log.path,
            )


class Table(Mapping[Any, Any], Closing):
    """The newest value of each key of a topic, followed as the topic changes: a read-only mapping, and a context
    manager that closes it. See RootLogs.table.

    A key whose newest value is null is not in it; records without a key are left out. If a key is in several
    partitions, the record with the greatest timestamp counts, and with equal ones that of the greatest partition.
    Each call first takes up what is new, as far as at most three stats show it for a partition; in an object store only
    refresh() does. While an iteration runs, the table stays as it was when that began: until the iterator ends, or is
    closed or dropped. A lookup of a record that the log has no more by then gives the newer one that replaced it.
    Attributes: topic, max_bytes, isolation_level.
    Raises: LogNotFoundError if there is no such topic any more; LogClosedError after close(), or that of the store;
        MemoryLimitError from every call once the keys take more than max_bytes, until refresh(), which reads the topic
        again; LogReplacedError from an iterator if its records are gone, as after a compaction by another process; as
        Log.read; SerializationError for a key that can't be serialized; RecordDeserializationError.
    Threads: thread-safe; each iterator belongs to one thread.
    Cost: 32 to 64 bytes a key; of a lookup, that of Log.get; keys(), values() and items() read the whole log. `in` and
        len() read nothing; with several partitions len() looks at all keys after a change.
    Source: Kafka Streams KTable.
    """

    def __init__(
        self,
        logs: TopicLogs,
        *,
        key_deserializer: Deserializer | str | None,
        value_deserializer: Deserializer | str | None,
        key_serializer: Serializer | str | None,
        isolation_level: Isolation,
        max_bytes: int,
    ) -> None:
        is_committed(isolation_level)
        self.topic = logs.topic
        self.isolation_level: Isolation = isolation_level
        self.max_bytes = checked_int("max_bytes", max_bytes, least=LEAST_MAP_BYTES)
        self._logs = logs
        self._key_deserializer = deserializer_of(key_deserializer)
        self._value_deserializer = deserializer_of(value_deserializer)
        self._key_serializer = _key_serializer(key_serializer, key_deserializer)
        self._memory = MapMemory(self.max_bytes, secret=random_bytes(_SECRET_BYTES))
        self._lock = threading.RLock()
        # A token of each iteration. Without the lock: an iterator may be dropped anywhere.
        self._running: set[object] = set()
        self._parts: dict[TopicPartition, _Part] = {}
        self._root_state: object = None
        self._look_again_ms: float | None = None
        self._is_stale = True
        self._counted: tuple[tuple[int, ...], int] | None = None
        self.is_closed = False
        try:
            with self._lock:
                self._follow(is_forced=True)
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"Table({', '.join(f'{name}={value!r}' for name, value in self._shown().items())})"

    def _shown(self) -> dict[str, object]:
        """Return what repr() shows; nothing is read."""
        parts = self._parts.values()
        shown: dict[str, object] = {
            "topic": self.topic,
            "root": self._logs.root,
            "isolation_level": self.isolation_level,
            "partitions": len(parts),
            "keys": sum(part.newest.key_count for part in parts),
            "used_bytes": self._memory.used_bytes,
        }
        return shown | ({"is_closed": True} if self.is_closed else {})

    def _repr_html_(self) -> str:
        """Return the table's fields, for notebooks; nothing is read."""
        return fields_html(f"Table {self.topic}", self._shown().items())

    def close(self) -> None:
        """Free the memory, and close the files that only the table reads; a second call does nothing."""
        self.is_closed = True
        with self._lock:
            for part in self._parts.values():
                part.newest.close()

    @property
    def keyless_count(self) -> int:
        """The number of records without a key that were met; they are not in the table."""
        return sum(part.newest.keyless_count for part in self._parts.values())

    @property
    def used_bytes(self) -> int:
        """The bytes of the key maps."""
        return self._memory.used_bytes

    def refresh(self) -> bool:
        """Take up what is new; return whether anything may be. While an iteration runs, it does nothing.

        Raises: as every call.
        """
        with self._lock:
            for part in self._parts.values():
                if part.newest.is_full and not self._running:
                    part.newest.restart()
            return self._follow(is_forced=True)

    # Lookups

    def __getitem__(self, key: Any) -> Any:
        """Return the newest value of a key.  Raises: KeyError."""
        found = self._find(self._serialized(key))
        if found is None:
            raise KeyError(key)
        part, record = found
        value, deserialize = record.value, self._value_deserializer
        if value is None or deserialize is None:
            return value
        return decode(value, deserialize, record, topic_partition=part.name, origin="value")

    def record(self, key: Any) -> Record | None:
        """Return the newest record of a key, with its key and value decoded; None if the key is not in the table."""
        found = self._find(self._serialized(key))
        return None if found is None else next(self._decoded(iter((found,))))

    def __contains__(self, key: object) -> bool:
        data = self._serialized(key)
        with self._lock:
            self._follow()
            return bool(self._places(data))

    def __len__(self) -> int:
        """Return the number of keys."""
        with self._lock:
            self._follow()
            newest = [part.newest for part in self._parts.values()]
            versions = tuple(each.version for each in newest)
            if self._counted is None or self._counted[0] != versions:
                maps: list[OffsetMap] = [each.map for each in newest if each.map is not None]
                self._counted = versions, count_keys(maps)
            return self._counted[1]

    def _places(self, key: bytes) -> list[_Place]:
        """Return where each partition has a key. Requires the lock."""
        places = [_Place(part, part.newest.offset_of(key)) for part in self._parts.values()]
        return [place for place in places if place.offset >= 0]

    def _find(self, key: bytes) -> tuple[_Part, Record] | None:
        missing: _Place | None = None
        for look in range(_MOST_LOOKS):
            with self._lock:
                self._follow(is_forced=look > 0)
                places = self._places(key)
                if missing is not None and look > 1 and missing in places and not self._running:
                    # The log has no such record, though it did not say that it changed. Mapped before the lock is given
                    # back: an iteration that another thread begins keeps the map as it is.
                    missing.part.newest.restart()
                    self._follow(is_forced=True)
                    places = self._places(key)
                mapped_ends = [place.part.newest.position for place in places]
            records = self._read(places, key)
            missing = next((place for place, record in records if record is None), None)
            if missing is not None and self._running:
                missing = self._replaced(records, key, mapped_ends)
            if missing is None:
                return self._newest((place.part, record) for place, record in records if record is not None)
        path = "" if missing is None else missing.part.directory.path
        raise LogReplacedError(
            f"the newest record of a key is not in {path} any more, which changes too often", path=path
        )

    def _replaced(
        self, records: list[tuple[_Place, Record | None]], key: bytes, mapped_ends: Sequence[int]
    ) -> _Place | None:
        """Read what a log has now in the place of each record that is gone, while the map stays as it was: a newer one,
        which is not below the offset up to which the log was mapped then, or nothing. Return the place where that can't
        be read, None if there is none.
        """
        for at, ((place, record), mapped_end) in enumerate(zip(records, mapped_ends, strict=True)):
            if record is None:
                try:
                    records[at] = place, place.part.newest_from(mapped_end, key)
                except (LogClosedError, LogReplacedError):
                    return place
        return None

    def _read(self, places: list[_Place], key: bytes) -> list[tuple[_Place, Record | None]]:
        """Return the record at each place, None if it is not there, or of another key."""
        records = []
        for place in places:
            try:
                record = place.record()
            except (LogClosedError, LogReplacedError):
                # Deleted, or closed: the next look says which.
                record = None
            records.append((place, record if record is not None and record.key == key else None))
        return records

    @staticmethod
    def _newest(records: Iterator[tuple[_Part, Record]]) -> tuple[_Part, Record] | None:
        """Return the record that counts of those of one key, in the order of partitions."""
        newest: tuple[_Part, Record] | None = None
        for part, record in records:
            if newest is None or record.timestamp_ms >= newest[1].timestamp_ms:
                newest = part, record
        return newest

    def _serialized(self, key: Any) -> bytes:
        serialize = self._key_serializer
        if serialize is None and isinstance(key, bytes):
            return key
        try:
            data: Any = key if serialize is None else serialize(key)
            return bytes(memoryview(data))
        except Exception as error:
            advice = "" if serialize is not None else ', or a table with key_deserializer="string" or another one'
            raise SerializationError(
                f"key of a lookup in the table of {self.topic!r}: expected bytes{advice}, got {key!r} "
                f"({type(key).__name__}): {error}"
            ) from error

    # Iteration

    def __iter__(self) -> Iterator[Any]:
        """Iterate the keys, in the order of their newest records in each partition."""
        deserialize = self._key_deserializer
        for part, record in self._scan():
            key = record.key
            if key is None or deserialize is None:
                yield key
            else:
                yield decode(key, deserialize, record, topic_partition=part.name, origin="key")

    def items(self) -> ItemsView[Any, Any]:
        """Return a view of the keys and values, which reads the log once for each iteration."""
        return _Items(self)

    def values(self) -> ValuesView[Any]:
        """Return a view of the values, which reads the log once for each iteration."""
        return _Values(self)

    def records(self) -> Iterator[Record]:
        """Iterate the newest record of each key, with keys and values decoded."""
        return self._decoded(self._scan())

    def _decoded(self, found: Iterator[tuple[_Part, Record]]) -> Iterator[Record]:
        for part, record in found:
            yield from decoded_records(
                (record,),
                topic_partition=part.name,
                key_deserializer=self._key_deserializer,
                value_deserializer=self._value_deserializer,
            )

    def _scan(self) -> Iterator[tuple[_Part, Record]]:
        token = object()
        try:
            begun = self._begin(token)
            for part, records, first in begun:
                for record in chain(() if first is None else (first,), records):
                    self._check_open()
                    if len(begun) == 1 or self._is_newest(record, part):
                        yield part, record
        finally:
            self._running.discard(token)

    def _begin(self, token: object) -> list[tuple[_Part, Iterator[Record], Record | None]]:
        """Keep the table as it is now for an iteration; return each partition with its records, and the first of them,
        so that the files of all are those of now.
        """
        looks = 0
        while True:
            with self._lock:
                self._running.discard(token)
                self._follow()
                parts = list(self._parts.values())
                self._running.add(token)
            looks += 1
            # Beside others the table stays as it was when the first of them began.
            is_last = looks > _MOST_LOOKS or len(self._running) > 1
            try:
                begun = [(part, records, next(records, None)) for part in parts for records in (part.records(),)]
                if is_last or not any(part.has_changed() for part in parts):
                    return begun
            except (LogClosedError, LogReplacedError):
                if is_last:
                    raise

    def _is_newest(self, record: Record, part: _Part) -> bool:
        """Whether no other partition has a record of the same key that counts instead."""
        key = record.key or b""
        places = self._places(key)
        if len(places) == 1:
            return True
        records = self._read(places, key)
        newest = self._newest((place.part, other) for place, other in records if other is not None)
        return newest is None or newest[0] is part

    # Following

    def _check_open(self) -> None:
        if self.is_closed:
            raise LogClosedError(f"the table of {self.topic!r} was closed", path=self._logs.root)

    def _follow(self, *, is_forced: bool = False) -> bool:
        """Take up what is new; return whether anything may be. Requires the lock."""
        self._check_open()
        if self._running:
            return False
        has_changed = False
        for looks_left in range(_MOST_LOOKS, -1, -1):
            try:
                before = self._parts
                # The root holds the checkpoints with the log start offsets.
                looks = self._follow_root(is_forced=is_forced)
                has_changed |= self._parts is not before
                for part in self._parts.values():
                    has_changed |= part.follow(is_forced=looks)
                break
            except (LogReplacedError, StorageError) as error:
                if not looks_left or not _may_be_gone(error):
                    raise
                # Closed, deleted or created again: the next look says which, or that the store was closed.
                self._drop()
                has_changed = True
        if not self._parts:
            root = self._logs.root
            raise LogNotFoundError(f"no topic {self.topic!r} in {root}", path=join_path(root, self.topic), errno=ENOENT)
        self._check_memory()
        return has_changed

    def _follow_root(self, *, is_forced: bool) -> bool:
        """See which partitions there are, if there may be others; return whether that was so."""
        state = self._logs.state()
        is_new = self._is_stale or state != self._root_state
        if not (is_forced or is_new or _is_due(self._look_again_ms, self._logs.env)):
            return False
        directories = self._logs.find()
        kept = {name: part for name, part in self._parts.items() if directories.get(name) is part.directory}
        added = sorted(directories.keys() - kept.keys())
        for name, part in self._parts.items():
            if name not in kept:
                part.newest.close()
        if added or len(kept) < len(self._parts):
            self._parts = kept
        for name in added:
            made = _Part(directories[name], self._logs, self._memory, isolation=self.isolation_level)
            self._parts = dict(sorted((self._parts | {name: made}).items()))
        self._root_state, self._look_again_ms = state, _look_again_ms(self._logs.env) if is_new else None
        self._is_stale = False
        return True

    def _drop(self) -> None:
        """Forget all partitions, so that the next look opens them again."""
        for part in self._parts.values():
            part.newest.close()
        self._parts, self._is_stale = {}, True

    def _check_memory(self) -> None:
        parts = self._parts.values()
        full = next((part for part in parts if part.newest.is_full), None)
        if full is None:
            return
        keys = sum(part.newest.key_count for part in parts)
        raise MemoryLimitError(
            f"the keys of {self.topic!r} in {self._logs.root} do not fit max_bytes={self.max_bytes}: {keys} keys of "
            f"{len(parts)} partitions do, up to offset {full.newest.position} of {full.name}; set max_bytes to "
            f"{2 * self.max_bytes} or more",
            path=full.directory.path,
            option="max_bytes",
            limit=self.max_bytes,
            found=2 * self.max_bytes,
        )


class _Items(ItemsView[Any, Any]):
    """The items of a table, by one pass over its logs."""

    _mapping: Table

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return ((record.key, record.value) for record in self._mapping.records())


class _Values(ValuesView[Any]):
    """The values of a table, by one pass over its logs."""

    _mapping: Table

    def __iter__(self) -> Iterator[Any]:
        return (record.value for record in self._mapping.records())

    def __contains__(self, value: object) -> bool:
        return any(each is value or each == value for each in self)


def _key_serializer(given: Serializer | str | None, key_deserializer: Deserializer | str | None) -> Serializer | None:
    """Return the serializer of lookups: the one that is given, or that which belongs to a built-in deserializer."""
    named = key_deserializer if given is None and isinstance(key_deserializer, str) else given
    if isinstance(named, str):
        return serializer(named)
    if named is not None and not callable(named):
        raise TypeError(f"key_serializer must be a name or a callable, got {named!r}")
    return named


def _look_again_ms(env: Env) -> float | None:
    """Return when to look again after a change; None for a store where each look is a request."""
    return None if env.is_high_latency else env.monotonic_ms() + _SETTLED_MS


def _is_due(at_ms: float | None, env: Env) -> bool:
    return at_ms is not None and env.monotonic_ms() >= at_ms


def _may_be_gone(error: LogReplacedError | StorageError) -> bool:
    """Whether the log of a partition may have been closed, or its directory removed or created again."""
    return isinstance(error, LogReplacedError | LogClosedError) or error.errno == ENOENT
