"""How much of a log is known to be durable, stored next to it, so that a torn tail can be distinguished from
corruption.

kstore-durable-point in the partition directory has two slots of 32 bytes, big-endian:

    counter int64, offset int64, segment base offset int64, position int32, CRC-32C of these fields and a mark

The valid slot with the higher counter counts. A slot is written after the sync of the log that it describes, without a
sync of its own: what is read after a power cut may be older than the truth, but never ahead of it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kstore._core import crc32c
from kstore._lazy import lazy_logger
from kstore.config import MAX_INT32
from kstore.env import DEFAULT_ENV, ENOENT, REWRITTEN_FILES, Closing, Env, WriteFile, join_path
from kstore.errors import StorageError
from kstore.log.files.names import DURABLE_POINT
from kstore.types import MAX_OFFSET

SLOT_BYTES = 32
SLOT_COUNT = 2

_logger = lazy_logger("kstore.log")

_FIELDS = struct.Struct(">qqqi")
_CRC = struct.Struct(">I")
# Included in the CRC, so that bytes of another file or format version never form a valid slot.
_MARK = b"kstore durable point 1"


class DurablePoint(NamedTuple):
    """Every record below `offset`, and the bytes of the segment below `position`, survive a power cut."""

    offset: int
    segment_base_offset: int
    position: int


class DurablePointFile(Closing):
    """The durable point of one log; only its writer opens it.

    Threads: not thread-safe.
    """

    def __init__(self, directory: str, env: Env = DEFAULT_ENV) -> None:
        self.path = join_path(directory, DURABLE_POINT)
        self._env = env
        self._counter, self._point = self._load()

    def read(self) -> DurablePoint | None:
        """Return the point, or None if none is known; a damaged or foreign file counts as none.

        Raises: nothing; the constructor raises StorageError if the file cannot be read.
        """
        return self._point

    def advance(self, point: DurablePoint) -> None:
        """Record that more is durable, after the sync of the log succeeded; a point that is not higher is ignored.

        A failure is only logged: the log is durable all the same, and the older point remains true.
        Cost: one pwrite.
        """
        _check(point)
        if self._point is not None and point <= self._point:
            return
        try:
            self._write_slot(point)
        except StorageError as error:
            _logger.warning("continuing with an older durable point: %s", error)

    def lower(self, point: DurablePoint) -> None:
        """Lower the point before records are removed from the log; durable in both slots on return.

        A point that is not below the current one changes nothing. When a log restarts at a higher offset, only
        DurablePoint(0, 0, 0) is true both before and after.
        Raises: StorageError; the log must not be truncated then.
        """
        _check(point)
        if self._point is not None and point < self._point:
            for _ in range(SLOT_COUNT):
                self._write_slot(point)
            with REWRITTEN_FILES.lend(self, self.path, self._opened) as file:
                file.sync()

    def close(self) -> None:
        """Close the file; a second call does nothing, and writing another point reopens it."""
        REWRITTEN_FILES.release(self)

    def close_soon(self) -> None:
        """Close the file without waiting for a thread in the cache of open files; see SharedCache.release_soon."""
        REWRITTEN_FILES.release_soon(self)

    def _load(self) -> tuple[int, DurablePoint | None]:
        try:
            with self._env.open_read(self.path) as file:
                content = file.pread(SLOT_BYTES * SLOT_COUNT, position=0)
        except StorageError as error:
            if error.errno == ENOENT:
                return 0, None
            raise
        slots = [content[start : start + SLOT_BYTES] for start in range(0, len(content), SLOT_BYTES)]
        return max((decode_slot(slot) for slot in slots), default=(0, None), key=lambda counted: counted[0])

    def _write_slot(self, point: DurablePoint) -> None:
        counter = self._counter + 1
        slot = counter % SLOT_COUNT
        with REWRITTEN_FILES.lend(self, self.path, self._opened) as file:
            file.pwrite(encode_slot(point, counter=counter), position=slot * SLOT_BYTES)
        self._counter, self._point = counter, point

    def _opened(self) -> WriteFile:
        file = self._env.open_write(self.path)
        if file.is_new:
            try:
                file.allocate(SLOT_BYTES * SLOT_COUNT)
            except BaseException:
                file.close()
                raise
        return file


def remove_durable_point(directory: str, env: Env) -> None:
    """Durably remove the file, at the end of a clean shutdown: it cannot describe what a broker does to the log after
    that.

    The root's checkpoints must be durable by then, since only they say now up to where the log is.
    Raises: StorageError.
    """
    if env.unlink(join_path(directory, DURABLE_POINT)):
        env.sync_directory(directory)


def encode_slot(point: DurablePoint, *, counter: int) -> bytes:
    """Return the 32 bytes of a slot."""
    fields = _FIELDS.pack(counter, *point)
    return fields + _CRC.pack(crc32c(_MARK + fields))


def decode_slot(slot: bytes) -> tuple[int, DurablePoint | None]:
    """Return (counter, point) of a slot, or (0, None) if it is empty, short, damaged or impossible."""
    if len(slot) != SLOT_BYTES or _CRC.unpack_from(slot, _FIELDS.size)[0] != crc32c(_MARK + slot[: _FIELDS.size]):
        return 0, None
    counter, *numbers = _FIELDS.unpack_from(slot)
    point = DurablePoint(*numbers)
    return (counter, point) if counter > 0 and _is_possible(point) else (0, None)


def _is_possible(point: DurablePoint) -> bool:
    return 0 <= point.segment_base_offset <= point.offset <= MAX_OFFSET and 0 <= point.position <= MAX_INT32


def _check(point: DurablePoint) -> None:
    if not _is_possible(point):
        raise ValueError(f"a durable point must be inside a segment and its numbers must fit Kafka's: {point}")
