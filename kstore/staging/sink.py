"""StagingSink: takes the batches of a Producer and appends them to files of the staging area, one a partition."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING

from kstore._core import records_of_batches
from kstore.coordinator.store import Dependent
from kstore.env import DEFAULT_ENV, Env, WriteFile, join_path
from kstore.errors import KStoreError, StorageError
from kstore.producer.cluster import Cluster, Node, PartitionInfo
from kstore.producer.sink import ProduceResponse
from kstore.staging.area import StagedFile, StagingArea, unknown_topic_error
from kstore.store.upkeep.dependents import Dependents
from kstore.types import (
    INTERNAL_TOPICS,
    NO_OFFSET,
    SinkAck,
    TopicPartition,
    is_topic_name,
)

if TYPE_CHECKING:
    from kstore.producer.batches.batch import ProducerBatch

_NODE = Node(0)
_MOST_OPEN_FILES = 32


class StagingSink:
    """A producer's sink that stages batches for commit_staged, which gives them a producer id and offsets.

    The producer must have no id (enable_idempotence=False), since the commit stamps its own. After a failed write all
    batches fail, and the caller discards the attempt.
    Args: area: that of the root; job: as in StagedFile, see job_name; partitions: as partitions_by_topic;
        new_topic_partitions: how many partitions a topic that is missing there gets at the commit, None to refuse it.
    Attributes: failure: the first error of a write.
    Threads: send() by one thread at a time; finish() and discard() by another one, which closes the producer first.
    """

    batches_per_partition = 256

    def __init__(
        self,
        area: StagingArea,
        job: str,
        *,
        partitions: Mapping[str, Collection[int]],
        new_topic_partitions: int | None = None,
        env: Env = DEFAULT_ENV,
    ) -> None:
        self.failure: KStoreError | None = None
        self._area = area
        self._job = job
        self._env = env
        self._attempt = uuid.uuid4().hex
        self._new_topic_partitions = new_topic_partitions
        self._partitions = {topic: list(numbers) for topic, numbers in partitions.items()}
        self._cluster = self._made_cluster()
        self._staged: dict[TopicPartition, _Staged] = {}
        self._open: dict[TopicPartition, WriteFile] = {}
        self._dependents = Dependents(area.root)

    def add_dependent(self, dependent: Dependent) -> None:
        """Register a producer that finish() and discard() close first."""
        self._dependents.add(dependent)

    def cluster(self) -> Cluster:
        """Return the partitions that were passed, and those of new topics; one node leads them all."""
        return self._cluster

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions of a topic; a missing one is added if the sink may create topics.

        Raises: UnknownTopicOrPartitionError; ValueError for a topic that brokers or kstore use internally.
        """
        if topic in INTERNAL_TOPICS:
            raise ValueError(f"topic {topic!r} is internal: records can't be written to it")
        if topic not in self._partitions:
            if self._new_topic_partitions is None:
                raise unknown_topic_error(topic, self._area.root, self._partitions)
            if not is_topic_name(topic):
                raise ValueError(f"a topic name has up to 249 of a-z A-Z 0-9 . _ -, got {topic!r}")
            self._partitions[topic] = list(range(self._new_topic_partitions))
            self._cluster = self._made_cluster()
        return len(self._partitions[topic])

    def send(self, node: Node, batches: Sequence[ProducerBatch], *, ack: SinkAck) -> list[ProduceResponse]:
        """Append each batch to the file of its partition; see Sink.send."""
        del node, ack
        responses: list[ProduceResponse] = []
        for topic_partition, run in groupby(batches, lambda batch: batch.topic_partition):
            group = list(run)
            error: KStoreError | None = self.failure
            if error is None:
                try:
                    self._append(topic_partition, group)
                except KStoreError as failure:
                    error = self.failure = failure
            responses += [ProduceResponse(NO_OFFSET, error=error)] * len(group)
        return responses

    def finish(self) -> tuple[StagedFile, ...]:
        """Make the files durable and return them; the sink takes no more batches.

        First the producers of the sink are closed, each within its delivery_timeout_ms.
        Raises: the failure of an earlier write; UnsentRecordsError if records could not be written; StorageError.
        """
        unsent = self._dependents.end()
        if self.failure is not None:
            raise self.failure
        if unsent is not None:
            raise unsent
        for topic_partition, staged in self._staged.items():
            self._file_of(topic_partition, staged).sync()
        self._close_files()
        if self._staged:
            self._env.sync_directory(self._area.make_job(self._job))
        return self._files()

    def discard(self) -> None:
        """Close and remove the files; what cannot be removed is left to StagingArea.collect.

        The producers of the sink are closed first.
        """
        self._dependents.end()
        with suppress(StorageError):
            self._close_files()
        with suppress(StorageError):
            self._area.remove(self._files())

    def _files(self) -> tuple[StagedFile, ...]:
        return tuple(
            StagedFile(*topic_partition, self._job, staged.name, staged.size_in_bytes, staged.record_count)
            for topic_partition, staged in self._staged.items()
        )

    def _append(self, topic_partition: TopicPartition, batches: list[ProducerBatch]) -> None:
        staged = self._staged.get(topic_partition)
        if staged is None:
            staged = self._staged[topic_partition] = _Staged(f"{self._attempt}-{len(self._staged)}")
        parts = [records.buffer for records in records_of_batches(batches)]
        size = sum(len(part) for part in parts)
        self._file_of(topic_partition, staged).pwritev(list(parts), position=staged.size_in_bytes, size=size)
        staged.size_in_bytes += size
        staged.record_count += sum(batch.record_count for batch in batches)

    def _file_of(self, topic_partition: TopicPartition, staged: _Staged) -> WriteFile:
        file = self._open.pop(topic_partition, None)
        if file is None:
            if len(self._open) >= _MOST_OPEN_FILES:
                self._open.pop(next(iter(self._open))).close()
            file = self._env.open_write(join_path(self._area.make_job(self._job), staged.name))
        self._open[topic_partition] = file
        return file

    def _close_files(self) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def _made_cluster(self) -> Cluster:
        infos: Iterable[PartitionInfo] = (
            PartitionInfo(topic, number, _NODE) for topic, numbers in self._partitions.items() for number in numbers
        )
        return Cluster(infos, nodes=[_NODE])


class _Staged:
    __slots__ = ("name", "record_count", "size_in_bytes")

    def __init__(self, name: str) -> None:
        self.name = name
        self.size_in_bytes = 0
        self.record_count = 0
