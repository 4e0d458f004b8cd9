"""Dependents: what holds records for a store in memory, such as producers, and is to end before the store closes."""

from __future__ import annotations

import logging
from weakref import WeakValueDictionary

from kstore.coordinator.store import Dependent
from kstore.errors import LogClosedError, UnsentRecordsError

_logger = logging.getLogger("kstore.log")


class Dependents:
    """Weak references to what writes to a store, or to a sink.

    Args: path: of the store, for errors.
    Threads: thread-safe.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._all: WeakValueDictionary[int, Dependent] = WeakValueDictionary()
        self._are_ended = False

    def add(self, dependent: Dependent) -> None:
        """Have it ended by end(), as long as it is alive.  Raises: LogClosedError once end() was called."""
        self._all[id(dependent)] = dependent
        # Afterwards, so that end() sees it or this raises.
        if self._are_ended:
            raise LogClosedError(f"{self._path} was closed, and takes no records", path=self._path)

    def end(self) -> UnsentRecordsError | None:
        """End all; return the error that says how many records could not be written, None if all were."""
        self._are_ended = True
        lost_count, first = 0, None
        for reference in self._all.valuerefs():
            dependent = reference()
            if dependent is not None:
                count, error = dependent.end_work()
                lost_count, first = lost_count + count, first or error
        if not lost_count:
            return None
        message = f"{lost_count} records of producers could not be written before {self._path} was closed: {first}"
        unsent = UnsentRecordsError(message, record_count=lost_count, path=self._path)
        unsent.__cause__ = first
        _logger.error("%s", unsent)
        return unsent
