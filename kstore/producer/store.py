"""The protocols through which a producer uses a store and its logs, besides those of coordinators.

kstore.store's WritableStore and kstore.log's WritableLog implement them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kstore.coordinator.store import CoordinatorLog, CoordinatorStore, Dependent
from kstore.errors import KStoreError, StorageError
from kstore.record.batches import MemoryRecords
from kstore.types import Ack


class AppendInfo(Protocol):
    """The result of an append; see kstore.LogAppendInfo."""

    @property
    def base_offset(self) -> int: ...

    @property
    def log_append_time_ms(self) -> int: ...


class ProducerLog(CoordinatorLog, Protocol):
    """A log that accepts appends as the leader; see kstore.WritableLog."""

    @property
    def is_closed(self) -> bool: ...

    def append_batches(self, batches: Sequence[MemoryRecords]) -> Sequence[AppendInfo | KStoreError]: ...

    def append_alone(self, batch: MemoryRecords, *, ack: Ack) -> AppendInfo | None: ...


class ProducerStore(CoordinatorStore, Protocol):
    """A store opened for writing; see kstore.WritableStore."""

    def log(self, topic: str, partition: int = 0) -> ProducerLog: ...

    def add_dependent(self, dependent: Dependent) -> None: ...


def is_retriable(error: BaseException) -> bool:
    """Return whether a call failed for lack of space and left its log usable, so that a retry may succeed."""
    return isinstance(error, StorageError) and error.is_retriable
