"""KeyOffsets: the newest offset of a key in a log that this process writes, for appends that expect one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable

from kstore._core import Record
from kstore.env import LiveArrivals
from kstore.env.process import random_bytes
from kstore.errors import MemoryLimitError, UnexpectedAppendOffsetError, checked_int
from kstore.log.following.newest import LEAST_MAP_BYTES, MapMemory, NewestOffsets
from kstore.log.following.tail import FollowOptions, LogTail, ReadRound
from kstore.log.reads import Reads
from kstore.log.source import LogSource
from kstore.record.batches import MemoryRecords, RecordBatch
from kstore.record.search import RecordSearch
from kstore.types import MAX_OFFSET, NO_OFFSET

_SECRET_BYTES = 16
_OPTION = "cleaner_dedupe_buffer_bytes"


class KeyOffsets:
    """The newest offset of each key of a log; the map is made at the first call, and followed from then on.

    Records of aborted transactions have no part in it, nor has a key whose newest value is null. From the last stable
    offset on each record counts, decided or not.
    Args: source: what the writer publishes.
    Threads: thread-safe; while one makes the map, the others wait for it.
    Cost: the first call reads the log; the others what was appended since, and while a transaction is open what follows
        its first record. 32 to 64 bytes a key, at most max_bytes, or 64 KiB.
    Attributes: max_bytes (of the map, the setting cleaner_dedupe_buffer_bytes of the log; may be set).
    """

    def __init__(self, source: LogSource) -> None:
        self.max_bytes = source.context.config.cleaner_dedupe_buffer_bytes
        self._source = source
        self._reads = Reads(source)
        self._lock = threading.Lock()
        self._memory = MapMemory(LEAST_MAP_BYTES, secret=random_bytes(_SECRET_BYTES))
        self._newest: NewestOffsets | None = None
        self._state: object = None

    def close(self) -> None:
        """Free the map; a second call does nothing."""
        with self._lock:
            self._drop()

    def follow(self) -> None:
        """Take up what is new, so that a check that comes soon, under the append lock, has little to do.

        Raises: MemoryLimitError if the keys do not fit; as NewestOffsets.follow.
        """
        with self._lock:
            self._follow()

    def check(self, key: bytes, expected: int) -> None:
        """Raise UnexpectedAppendOffsetError unless the newest record of `key` has the offset `expected`.

        Requires the append lock, so that no record comes after the answer.
        """
        expected = checked_int("expected_key_offset", expected, least=NO_OFFSET)
        with self._lock:
            found = self._newest_offset(self._follow(), key)
        if found != expected:
            path = self._source.context.directory
            raise UnexpectedAppendOffsetError(
                f"newest record of the key before an append to {path}: expected {_place(expected)}, found "
                f"{_place(found)}",
                path=path,
                key=key,
                expected=expected,
                found=found,
            )

    def _follow(self) -> NewestOffsets:
        self._memory.max_bytes = max(self.max_bytes, LEAST_MAP_BYTES)
        newest = self._newest
        if newest is None:
            newest = self._newest = NewestOffsets(self._open_tail, self._memory, isolation="read_committed")
        state = self._source.state()
        if state != self._state:
            newest.follow()
            self._state = state
        if newest.is_full:
            # The next call may find fewer keys, or more memory.
            error = self._too_many(newest)
            self._drop()
            raise error
        return newest

    def _newest_offset(self, newest: NewestOffsets, key: bytes) -> int:
        start = max(newest.position, self._source.log_start_offset)
        if start >= self._source.log_end_offset:
            return newest.offset_of(key)
        batches = self._reads.batches(start, None, isolation="read_uncommitted")
        undecided = deque(RecordSearch(key=key).found_in(batches, start_offset=start, end_offset=MAX_OFFSET), maxlen=1)
        return undecided[0].offset if undecided else newest.offset_of(key)

    def _drop(self) -> None:
        newest, self._newest, self._state = self._newest, None, None
        if newest is not None:
            newest.close()

    def _open_tail(self, read: ReadRound) -> LogTail:
        # Nothing waits for the log.
        source, history, _ = self._source.followed(LiveArrivals(), sees_root=False)
        return LogTail(
            self._reads,
            history,
            None,
            options=FollowOptions("read_committed"),
            flushed_offset=lambda: source.log_start_offset,
            is_owner=False,
            read=read,
        )

    def _too_many(self, newest: NewestOffsets) -> MemoryLimitError:
        limit, path = self._memory.max_bytes, self._source.context.directory
        return MemoryLimitError(
            f"the keys of {path} do not fit {_OPTION}={limit}: those up to offset {newest.position} do; set it to "
            f"{2 * limit} or more, or expect the end of the log (expected_end_offset)",
            path=path,
            option=_OPTION,
            limit=limit,
            found=2 * limit,
        )


def one_key(records: object) -> tuple[list[Record], bytes]:
    """Return Records as a list, and the key that all of them have.

    Raises: TypeError for anything but Records; ValueError if they have no key, or more than one.
    """
    if isinstance(records, Record):
        records = (records,)
    if isinstance(records, MemoryRecords | RecordBatch | str | bytes) or not isinstance(records, Iterable):
        raise TypeError(f"expected_key_offset takes Records, got {type(records).__name__}")
    listed: list[Record] = []
    keys: set[bytes] = set()
    for record in records:
        if not isinstance(record, Record) or record.key is None:
            raise _wrong_record(record, len(listed))
        listed.append(record)
        keys.add(bytes(record.key))
    if len(keys) != 1:
        raise ValueError(f"expected_key_offset takes records of one key, got {len(keys)} keys in {len(listed)} records")
    return listed, keys.pop()


def _wrong_record(record: object, index: int) -> Exception:
    if isinstance(record, Record):
        return ValueError(f"expected_key_offset takes records with a key, record {index} has none")
    return TypeError(f"expected_key_offset takes Records, got {type(record).__name__} as record {index}")


def _place(offset: int) -> str:
    return "none" if offset == NO_OFFSET else f"offset {offset}"
