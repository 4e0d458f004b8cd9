"""What wakes a follower: Arrivals, the interface, and LiveArrivals, for logs that this process writes.

The other implementation is DirectoryWatch of env, for directories that others write.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Protocol

from kstore._core import Bell


class Arrivals(Protocol):
    """Tells in which partition directories something may have changed since it was asked before.

    Threads: wake and close from any thread, the rest from one at a time.
    """

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that become readable when take() has something to return, for an event loop."""
        ...

    def add(self, directory: str) -> None: ...

    def remove(self, directory: str) -> None: ...

    def poll_s(self, idle_s: float) -> float | None:
        """Return after how many seconds to ask take() although nothing was reported; None for never."""
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
        """Call this too, from the thread that reports, when take() has something to return that no descriptor shows;
        None for nothing.
        """
        ...

    def close(self) -> None: ...


class LiveArrivals:
    """What logs that this process writes report after each change: their directories."""

    descriptors: tuple[int, ...] = ()

    def __init__(self) -> None:
        self._wake: Callable[[], object] | None = None
        self._bell = Bell(threading.Lock())
        # Without a lock: each change of it is one step.
        self._changed: set[str] = set()

    def add(self, directory: str) -> None:
        """Does nothing: logs report by themselves."""

    def remove(self, directory: str) -> None:
        """Does nothing, see add."""

    def poll_s(self, idle_s: float) -> None:  # noqa: ARG002
        return None

    def wait(self, timeout_s: float | None, *, idle_s: float) -> frozenset[str]:  # noqa: ARG002
        self._bell.wait(-1 if timeout_s is None else min(max(timeout_s, 0), threading.TIMEOUT_MAX))
        return self.take()

    def take(self) -> frozenset[str]:
        # Before the look: what is reported after it rings again.
        if self._bell.is_rung:
            self._bell.wait(0)
        changed = frozenset(self._changed)
        # What is reported again between the two is looked at after this call.
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

    def add(self, one: Arrivals) -> None:
        with self._lock:
            self._all = (*self._all, weakref.ref(one))
            self.any = True

    def report(self, directory: str) -> None:
        """Tell each follower that something changed in a directory."""
        is_gone = False
        for one in self._all:
            arrivals = one()
            if arrivals is None:
                is_gone = True
            else:
                arrivals.report(directory)
        if is_gone:
            with self._lock:
                self._all = tuple(one for one in self._all if one() is not None)
                self.any = bool(self._all)
