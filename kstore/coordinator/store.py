"""The protocols through which coordinators use a store and its logs: one for reading, one for writing.

kstore.store's Store and WritableStore implement them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from operator import methodcaller
from typing import NamedTuple, Protocol

from kstore._core import Record
from kstore.config import LogConfig
from kstore.errors import KStoreError
from kstore.record.batches import MemoryRecords, RecordBatch
from kstore.record.validation import AppendOrigin
from kstore.types import Ack, TopicPartition
from kstore.waiting import try_in_threads

_FLUSHING_THREADS = 8


class ClusterFacts(NamedTuple):
    """What the root of a store says of the cluster that it belongs to.

    partition_counts: by topic, features: levels by name, both by `__cluster_metadata`, empty where the root does not
    hold it. is_own: kstore made the root and no cluster has it, so that no other root has partitions of its topics.
    """

    partition_counts: Mapping[str, int] = {}
    features: Mapping[str, int] = {}
    is_own: bool = False


class LeaderEpochs(Protocol):
    """The leader epochs of a log."""

    @property
    def latest_epoch(self) -> int: ...


class ReadableLog(Protocol):
    """A partition from which a coordinator loads its state; see kstore.Log."""

    topic_partition: TopicPartition

    @property
    def path(self) -> str: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    def read(self) -> Iterator[Record]: ...

    def batches(self, start_offset: int | None = None) -> Iterator[RecordBatch]: ...

    def refresh(self) -> bool: ...


class ReadableStore(Protocol):
    """A store from which coordinators load their state; see kstore.Store."""

    @property
    def partitions(self) -> tuple[TopicPartition, ...]: ...

    @property
    def topics(self) -> tuple[str, ...]: ...

    def topic_id(self, topic: str) -> uuid.UUID | None: ...

    def cluster_facts(self) -> ClusterFacts: ...

    def incarnation(self, topic: str, partition: int) -> object: ...

    def log(self, topic: str, partition: int = 0) -> ReadableLog: ...


class CoordinatorLog(ReadableLog, Protocol):
    """A partition to which a coordinator appends records of its state, or markers; see kstore.WritableLog."""

    @property
    def leader_epochs(self) -> LeaderEpochs: ...

    def append(
        self, records: MemoryRecords, *, ack: Ack = "written", origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> object: ...

    def flush(self) -> int: ...

    def delete_records(self, before_offset: int) -> int: ...


def flush_together(logs: Sequence[CoordinatorLog]) -> None:
    """Flush several logs at once: a disk makes the syncs of several files in about the time of one.

    Raises: the first error of a log, after all were tried.
    """
    flush = methodcaller("flush")
    try_in_threads(flush, logs, threads=_FLUSHING_THREADS, name="kstore-flush", catching=KStoreError)


class CoordinatorStore(ReadableStore, Protocol):
    """A store whose coordinators are in this process; see kstore.WritableStore."""

    def log(self, topic: str, partition: int = 0) -> CoordinatorLog: ...

    def create_topic(self, name: str, partitions: int = 1, *, config: LogConfig | None = None) -> uuid.UUID: ...


class Dependent(Protocol):
    """An object that holds records for a store in memory, and ends before the store is closed."""

    def end_work(self) -> tuple[int, KStoreError | None]:
        """Write the records and take no more; return how many could not be written, and the first error.

        A second call does nothing, or continues an interrupted first one.
        """
        ...
