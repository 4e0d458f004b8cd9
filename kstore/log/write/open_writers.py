"""OpenWriters: how many files of active segments the logs of a store may have open, and which give theirs up.

A log that is open for writing keeps the descriptor of one file, that of its active segment. Beyond the limit the logs
that took no appends since the last look give theirs up; the next append, flush or roll opens the file again.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING

from kstore._core import TriedLock
from kstore._lazy import lazy_logger
from kstore.errors import KStoreError
from kstore.log.files.lock import disown_in_child

if TYPE_CHECKING:
    from kstore.log.write.local_log import LocalLog
    from kstore.log.write.ownership import WriteGate

_logger = lazy_logger("kstore.log")
# So many slots of closed logs may stay beside those of open ones, until they are looked for.
_MOST_GONE = 16


class WriterSlot:
    """The open file of one log, as OpenWriters sees it. It does not keep the log alive."""

    def __init__(self, local: LocalLog, gate: WriteGate, writers: OpenWriters) -> None:
        self._local = weakref.ref(local)
        self._gate = gate
        self._writers = writers
        self._seen_offset = -1

    def reopening(self) -> None:
        """Make room, before the file is opened again. Requires the append lock or the flush lock of the log."""
        self._writers.add(self)

    @property
    def is_gone(self) -> bool:
        """Whether the log is closed, or was garbage-collected."""
        return self._local() is None or not self._gate.is_open

    def was_used(self) -> bool:
        """Whether the log took appends since the last call."""
        local = self._local()
        end = -1 if local is None else local.log_end_offset
        seen, self._seen_offset = self._seen_offset, end
        return seen != end

    def try_park(self) -> bool:
        """Flush the file and close its descriptor, unless the log is in use now; return whether it has none."""
        gate = self._gate
        with TriedLock(gate.flush_lock) as has_flush_lock, TriedLock(gate.append_lock) as has_append_lock:
            if not (has_flush_lock and has_append_lock):
                return False
            try:
                local = self._local()
                return local is None or not gate.is_open or local.park()
            except KStoreError as error:
                gate.fail(error)
                return False


class OpenWriters:
    """The logs of a store that have the file of their active segment open, within a limit.

    The limit may be exceeded while all logs are in use at once.
    Args: limit: at least 1.
    Threads: thread-safe.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._slots: deque[WriterSlot] = deque()
        self._forgets_at = _MOST_GONE
        self._mutex = threading.Lock()
        disown_in_child(self)

    def watch(self, local: LocalLog, gate: WriteGate) -> None:
        """Count the file of a log that was just opened, and make room each time that it is opened again."""
        slot = WriterSlot(local, gate, self)
        local.on_reopen(slot.reopening)
        self.add(slot)

    def add(self, slot: WriterSlot) -> None:
        """Note that a log opens its file, after others made room for it."""
        with self._mutex:
            self._make_room()
            if len(self._slots) >= self._forgets_at:
                self._slots = deque(slot for slot in self._slots if not slot.is_gone)
                self._forgets_at = 2 * len(self._slots) + _MOST_GONE
            self._slots.append(slot)

    def _make_room(self) -> None:
        # Each slot twice: what was used since the last look gets a second chance.
        for _ in range(2 * len(self._slots)):
            if len(self._slots) < self.limit:
                return
            slot = self._slots.popleft()
            if slot.is_gone:
                continue
            if slot.was_used() or not slot.try_park():
                self._slots.append(slot)
        if len(self._slots) >= self.limit:
            _logger.debug("%d logs have a file open, the limit is %d: all are in use", len(self._slots), self.limit)

    def _disown(self) -> None:
        self._mutex = threading.Lock()
        self._slots.clear()
