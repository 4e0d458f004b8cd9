"""A store whose appends fail from a chosen one on, as those of a process that dies."""

from __future__ import annotations

from typing import Any

from kstore.errors import LogFailedError
from kstore.store.store import WritableStore


class FailingStore:
    """A store that fails the nth append from now on, and all that come behind it."""

    def __init__(self, store: WritableStore) -> None:
        self._store = store
        self.left = 10**9

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def log(self, topic: str, partition: int = 0) -> Any:
        return FailingLog(self._store.log(topic, partition), self)


class FailingLog:
    def __init__(self, log: Any, store: FailingStore) -> None:
        self._log = log
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def append(self, *args: Any, **options: Any) -> Any:
        if self._store.left <= 0:
            raise LogFailedError("crashed")
        self._store.left -= 1
        return self._log.append(*args, **options)
