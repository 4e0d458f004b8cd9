"""What the producer's side asks of a store and its logs, as WritableStore and WritableLog have it. Layer 5."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Literal, Protocol, TypeAlias

from kstore.config import LogConfig
from kstore.errors import KStoreError, LogFailedError, StorageError
from kstore.record import MemoryRecords, Record
from kstore.record.validation import AppendOrigin
from kstore.types import TopicPartition

Ack: TypeAlias = Literal["buffered", "written", "flushed"]


class AppendInfo(Protocol):
    """What an append did; see kstore.log.LogAppendInfo."""

    @property
    def base_offset(self) -> int: ...

    @property
    def log_append_time_ms(self) -> int: ...


class LeaderEpochs(Protocol):
    """The leader epochs of a log."""

    @property
    def latest_epoch(self) -> int: ...


class PartitionLog(Protocol):
    """A log that is appended to as its leader does; see kstore.log.WritableLog."""

    @property
    def is_closed(self) -> bool: ...

    @property
    def has_failed(self) -> bool: ...

    @property
    def leader_epochs(self) -> LeaderEpochs: ...

    def append(
        self, records: MemoryRecords, *, ack: Ack = "written", origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> AppendInfo: ...

    def append_batches(self, batches: Sequence[MemoryRecords]) -> Sequence[AppendInfo | KStoreError]: ...

    def flush(self) -> int: ...

    def read(self) -> Iterator[Record]: ...


class ProducerStore(Protocol):
    """The topics of a root and its only writer; see kstore.log.WritableStore."""

    @property
    def partitions(self) -> tuple[TopicPartition, ...]: ...

    def log(self, topic: str, partition: int = 0) -> PartitionLog: ...

    def create_topic(self, name: str, partitions: int = 1, *, config: LogConfig | None = None) -> uuid.UUID: ...


def is_retriable(error: BaseException) -> bool:
    """Tell whether an append found no space, so that nothing of it is there and the next one may find some."""
    return isinstance(error, StorageError) and error.is_out_of_space and not isinstance(error, LogFailedError)
