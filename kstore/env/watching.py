"""Notifications for readers that follow logs: Arrivals, the interface; DirectoryWatch, for directories that other
processes write; LiveArrivals, for logs that this process writes.

Linux reports changes of local files (inotify). It does not report all changes of files that another machine may write
(NFS, CIFS, FUSE), and limits the number of watches: directories without one are polled.
"""

from __future__ import annotations

import os
import select
import struct
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from kstore._core import Bell, add_watch, is_watchable, open_watches, remove_watch
from kstore.env.base import Closing

# struct inotify_event: watch, mask, cookie, size of the name, which follows.
_EVENT = struct.Struct("iIII")
_OVERFLOW = 0x4000
_EVENT_BYTES = 64 * 1024


class PollInterval:
    """The time between two polls: a tenth of the time since the last change, within these bounds (seconds)."""

    def __init__(self, *, least_s: float, most_s: float) -> None:
        self._least_s = least_s
        self._most_s = most_s

    def after(self, idle_s: float) -> float:
        return min(max(idle_s / 10, self._least_s), self._most_s)


class Arrivals(Protocol):
    """Reports the partition directories that may have changed since the last take().

    Threads: wake and close from any thread, the rest from one at a time.
    """

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that become readable when take() has something to return, for an event loop."""
        ...

    def add(self, directory: str) -> None: ...

    def remove(self, directory: str) -> None: ...

    def poll_s(self, idle_s: float) -> float | None:
        """Return the seconds until the next take() without a notification, None if polling is not needed."""
        ...

    def wait(self, timeout_s: float | None, *, idle_s: float) -> frozenset[str]:
        """Wait for a change, a wake-up or the end of the time; return take()."""
        ...

    def take(self) -> frozenset[str]: ...

    def report(self, directory: str) -> None:
        """Let the next take() return this directory too, and end a wait."""
        ...

    def wake(self) -> None:
        """End the wait that is running, or else the next one."""
        ...

    def call_on_news(self, wake: Callable[[], object] | None) -> None:
        """Set a callback, or None, for changes that no descriptor signals; the thread that reports one calls it."""
        ...

    def close(self) -> None: ...


class DirectoryWatch(Closing):
    """Reports which of several directories may have changed since the last take().

    Args: interval: between polls of directories that are not watched; uses_notifications: False to watch none.
    Attributes: is_notified (whether every directory is watched, so that a wait costs nothing).
    Threads: add, remove, wait and take from one thread at a time; report, wake and close from any.
    """

    def __init__(self, interval: PollInterval, *, uses_notifications: bool = True) -> None:
        self._interval = interval
        self._lock = threading.Lock()
        self._watch_of: dict[str, int] = {}
        self._directory_of: dict[int, str] = {}
        self._looked_at: set[str] = set()
        self._reported: set[str] = set()
        self._is_closed = False
        self._wake_end, self._woken_end = _pipe()
        self._fd = -1
        if uses_notifications:
            with suppress(OSError):
                self._fd = open_watches()
        self._polled = select.poll()
        for fd in self.descriptors:
            self._polled.register(fd, select.POLLIN)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that become readable when take() has something to return, or wake() was called."""
        return (self._wake_end,) if self._fd < 0 else (self._wake_end, self._fd)

    @property
    def is_notified(self) -> bool:
        return not self._looked_at

    def add(self, directory: str) -> None:
        """Watch a directory too; what changed before this call is not reported."""
        if self._fd >= 0 and directory not in self._watch_of:
            with suppress(OSError):
                name = os.fsencode(directory)
                if is_watchable(name):
                    watch = add_watch(self._fd, name)
                    self._watch_of[directory] = watch
                    self._directory_of[watch] = directory
                    self._looked_at.discard(directory)
                    return
        if directory not in self._watch_of:
            self._looked_at.add(directory)

    def remove(self, directory: str) -> None:
        """Watch a directory no longer."""
        self._looked_at.discard(directory)
        watch = self._watch_of.pop(directory, None)
        if watch is not None and self._directory_of.pop(watch, None) is not None:
            with suppress(OSError):
                remove_watch(self._fd, watch=watch)

    def poll_s(self, idle_s: float) -> float | None:
        """Return the seconds until the next poll, None if all directories are watched.

        Args: idle_s: seconds since the last change.
        """
        return self._interval.after(idle_s) if self._looked_at else None

    def wait(self, timeout_s: float | None, *, idle_s: float) -> frozenset[str]:
        """Wait for a change, a wake-up or the end of the time; return take().

        Args: timeout_s: in seconds, None for any time.
        """
        poll_s = self.poll_s(idle_s)
        bounds = [bound for bound in (timeout_s, poll_s) if bound is not None]
        # One more millisecond, since poll() may return before its time.
        self._polled.poll(min(bounds) * 1000 + 1 if bounds else None)
        return self.take()

    def take(self) -> frozenset[str]:
        """Return the directories that may have changed: those with a change since the last call, and all that are not
        watched.
        """
        with self._lock:
            if self._is_closed:
                return frozenset()
            with suppress(BlockingIOError):
                os.read(self._wake_end, _EVENT_BYTES)
            reported, self._reported = self._reported, set()
            return frozenset(self._looked_at | reported | self._changed())

    def report(self, directory: str) -> None:
        """Let the next take() return this directory too, and end a wait."""
        with self._lock:
            self._reported.add(directory)
        self.wake()

    def wake(self) -> None:
        """End the wait that is running, or else the next one."""
        with self._lock:
            if not self._is_closed:
                with suppress(BlockingIOError):
                    os.write(self._woken_end, b"!")

    def call_on_news(self, wake: Callable[[], object] | None) -> None:
        """Does nothing: the descriptors signal every change."""

    def close(self) -> None:
        """End the watches; a second call does nothing. A wait that is running must be woken before."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            for fd in (*self.descriptors, self._woken_end):
                os.close(fd)

    def __del__(self) -> None:
        if getattr(self, "_fd", None) is not None:
            self.close()

    def _changed(self) -> set[str]:
        """Read the notifications. Requires the lock."""
        directories: set[str] = set()
        if self._fd < 0:
            return directories
        with suppress(BlockingIOError):
            while events := os.read(self._fd, _EVENT_BYTES):
                directories |= self._directories_in(events)
        return directories

    def _directories_in(self, events: bytes) -> set[str]:
        at, directories = 0, set()
        while at < len(events):
            watch, mask, _, name_size = _EVENT.unpack_from(events, at)
            at += _EVENT.size + name_size
            if mask & _OVERFLOW:
                # Notifications were lost.
                directories |= set(self._watch_of)
            elif watch in self._directory_of:
                directories.add(self._directory_of[watch])
        return directories


class LiveArrivals:
    """Reports the directories of logs that this process writes; the logs report each change."""

    descriptors: tuple[int, ...] = ()

    def __init__(self) -> None:
        self._wake: Callable[[], object] | None = None
        self._bell = Bell(threading.Lock())
        # Without a lock: each change of it is one step.
        self._changed: set[str] = set()

    def add(self, directory: str) -> None:
        """Does nothing: the logs report by themselves."""

    def remove(self, directory: str) -> None:
        """Does nothing, see add."""

    def poll_s(self, idle_s: float) -> None:  # noqa: ARG002
        return None

    def wait(self, timeout_s: float | None, *, idle_s: float) -> frozenset[str]:  # noqa: ARG002
        self._bell.wait(-1 if timeout_s is None else min(max(timeout_s, 0), threading.TIMEOUT_MAX))
        return self.take()

    def take(self) -> frozenset[str]:
        # First: a report after this rings again.
        if self._bell.is_rung:
            self._bell.wait(0)
        changed = frozenset(self._changed)
        # The caller reads after this call, so it sees what was reported between the two.
        self._changed.difference_update(changed)
        return changed

    def report(self, directory: str) -> None:
        # In this order: the thread that hears the bell must find the directory.
        self._changed.add(directory)
        self.wake()

    def wake(self) -> None:
        self._bell.ring()
        wake = self._wake
        if wake is not None:
            wake()

    def call_on_news(self, wake: Callable[[], object] | None) -> None:
        self._wake = wake

    def close(self) -> None:
        """Does nothing."""


class Listeners:
    """The followers that a log, or a store, reports to; it does not keep them alive.

    Attributes: any (whether there may be one: what a writer checks after each change).  Threads: thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: tuple[weakref.ref[Arrivals], ...] = ()
        self.any = False

    def add(self, follower: Arrivals) -> None:
        """Report to a follower from now on, once, however often it is added."""
        with self._lock:
            if all(reference() is not follower for reference in self._all):
                self._all = (*self._all, weakref.ref(follower))
            self.any = True

    def report(self, directory: str) -> None:
        """Report a change in a directory to each follower."""
        is_gone = False
        for reference in self._all:
            arrivals = reference()
            if arrivals is None:
                is_gone = True
            else:
                arrivals.report(directory)
        if is_gone:
            with self._lock:
                self._all = tuple(reference for reference in self._all if reference() is not None)
                self.any = bool(self._all)


def _pipe() -> tuple[int, int]:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    return reading, writing
