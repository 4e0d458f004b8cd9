"""Latch: how a thread waits for another one without a lock that an interrupt could leave held."""

from __future__ import annotations

import threading


class Latch:
    """A one-shot event: closed until open() is called.

    Every waiting thread has its own lock, so an interrupted one leaves nothing locked; threading.Event and Condition
    can.
    Attributes: is_open.  Threads: safe.
    """

    __slots__ = ("_waiters", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        self._waiters: dict[threading.Lock, None] = {}

    def open(self) -> None:
        """Release all threads that wait now or will wait later."""
        self.is_open = True
        while self._waiters:
            try:
                lock, _ = self._waiters.popitem()
            except KeyError:
                return
            lock.release()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait at most `timeout_s` seconds, not at all if negative, None for no limit; return whether it is open."""
        lock = threading.Lock()
        lock.acquire()
        self._waiters[lock] = None
        try:
            if not self.is_open:
                lock.acquire(timeout=-1 if timeout_s is None else min(max(timeout_s, 0), threading.TIMEOUT_MAX))
        finally:
            self._waiters.pop(lock, None)
        return self.is_open
