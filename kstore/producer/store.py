"""Protocols of the store and logs that a producer uses; kstore.log's WritableStore and WritableLog implement them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Protocol

from kstore.config import LogConfig
from kstore.errors import KStoreError, StorageError
from kstore.record import MemoryRecords, Record
from kstore.record.validation import AppendOrigin
from kstore.types import Ack, TopicPartition


class AppendInfo(Protocol):
    """The result of an append; see kstore.log.LogAppendInfo."""

    @property
    def base_offset(self) -> int: ...

    @property
    def log_append_time_ms(self) -> int: ...


class LeaderEpochs(Protocol):
    """The leader epochs of a log."""

    @property
    def latest_epoch(self) -> int: ...


class ProducerLog(Protocol):
    """A log that accepts appends as the leader; see kstore.log.WritableLog."""

    @property
    def is_closed(self) -> bool: ...

    @property
    def leader_epochs(self) -> LeaderEpochs: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    def append(
        self, records: MemoryRecords, *, ack: Ack = "written", origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> AppendInfo: ...

    def append_batches(self, batches: Sequence[MemoryRecords]) -> Sequence[AppendInfo | KStoreError]: ...

    def flush(self) -> int: ...

    def delete_records(self, before_offset: int) -> int: ...

    def read(self) -> Iterator[Record]: ...


class Dependent(Protocol):
    """What holds records for a store in memory; see kstore.store.upkeep.dependents."""

    def end_work(self) -> tuple[int, KStoreError | None]: ...


class ProducerStore(Protocol):
    """A store opened for writing; see kstore.store.WritableStore."""

    @property
    def partitions(self) -> tuple[TopicPartition, ...]: ...

    def log(self, topic: str, partition: int = 0) -> ProducerLog: ...

    def add_dependent(self, dependent: Dependent) -> None: ...

    def create_topic(self, name: str, partitions: int = 1, *, config: LogConfig | None = None) -> uuid.UUID: ...


def is_retriable(error: BaseException) -> bool:
    """Return whether a call failed for lack of space and left its log usable, so that a retry may succeed."""
    return isinstance(error, StorageError) and error.is_retriable
