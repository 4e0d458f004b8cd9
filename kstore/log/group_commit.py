"""GroupCommit: threads that wait for a flush share one. Layer 5."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable

from kstore.errors import KStoreError


class GroupCommit:
    """One flush at a time for all threads that wait; who comes while one runs waits for the next.

    flush: makes the log durable and returns the offset up to which it is; called without a lock held.
    Threads: safe.
    """

    def __init__(self, flush: Callable[[], int]) -> None:
        self._flush = flush
        self._condition = threading.Condition()
        self._is_flushing = False
        self._flushed_offset = 0
        self._cuts = 0
        self._error: KStoreError | None = None

    def wait_until(self, offset: int) -> int:
        """Return once every record below `offset` is durable, with the offset up to which they are.

        That is less than `offset` only if the log was cut below it meanwhile.
        Raises: what the flush raised, in each thread that waited for it.
        """
        if self._flushed_offset >= offset:
            return self._flushed_offset
        with self._condition:
            earlier_error = self._error
            while self._is_flushing:
                self._condition.wait()
                if self._error is not None and self._error is not earlier_error:
                    raise _copy_of(self._error)
                if self._flushed_offset >= offset:
                    return self._flushed_offset
            self._is_flushing = True
            cuts = self._cuts
        return self._lead(cuts)

    def lower(self, offset: int) -> None:
        """Take back that records from `offset` on are durable, before offsets of a log that was cut are used again."""
        with self._condition:
            self._flushed_offset = min(self._flushed_offset, offset)
            self._cuts += 1

    def _lead(self, cuts: int) -> int:
        flushed_offset = None
        error = None
        try:
            flushed_offset = self._flush()
        except KStoreError as failure:
            error = failure
            raise
        finally:
            with self._condition:
                self._is_flushing = False
                if error is not None:
                    self._error = error
                elif flushed_offset is not None and cuts == self._cuts:
                    self._flushed_offset = max(self._flushed_offset, flushed_offset)
                self._condition.notify_all()
        return flushed_offset


def _copy_of(error: KStoreError) -> KStoreError:
    """Return one object for each thread, since raising one adds a traceback to it."""
    copied = copy.copy(error)
    copied.__cause__ = error
    return copied
