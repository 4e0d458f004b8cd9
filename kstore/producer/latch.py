"""Latch: what threads wait for once, and an interrupt can't break. Layer 5."""

from __future__ import annotations

import threading


class Latch:
    """Closed until open() is called.

    Each thread that waits has a lock of its own, so that one which is interrupted leaves nothing locked, as
    threading.Event and Condition may.
    Attribute: is_open.  Threads: safe.
    """

    __slots__ = ("_waiters", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        self._waiters: dict[threading.Lock, None] = {}

    def open(self) -> None:
        """Let all go on that wait, and all that come."""
        self.is_open = True
        while self._waiters:
            try:
                lock, _ = self._waiters.popitem()
            except KeyError:
                return
            lock.release()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is open; return whether it is. None waits without end."""
        lock = threading.Lock()
        lock.acquire()
        self._waiters[lock] = None
        try:
            if not self.is_open:
                lock.acquire(timeout=-1 if timeout_s is None else min(timeout_s, threading.TIMEOUT_MAX))
        finally:
            self._waiters.pop(lock, None)
        return self.is_open
