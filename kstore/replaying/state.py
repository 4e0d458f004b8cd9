"""The state file of a replay: what the cluster has acknowledged of each partition, so that the next run goes on there.

JSON with a checksum, replaced whole. Each field is checked when it is read; docs/replay.md describes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, cast

from kstore.env import DEFAULT_ENV, ENOENT, Env
from kstore.errors import ReplayStateError, StorageError
from kstore.log.files.checkpoints import replace_file
from kstore.log.files.json_state import FieldError, check_checksum, check_number, json_object, value_as, with_checksum
from kstore.log.reads import Isolation
from kstore.replaying.wanted import Filter
from kstore.types import MAX_OFFSET, MAX_PARTITION, TopicPartition

FORMAT_VERSION = 1
_LOCK_SUFFIX = ".lock"
_MOST_STATE_BYTES = 256 << 20
MOST_SYNCS = 64


class Sync(NamedTuple):
    """Two offsets that have the same records before them, in the source and in the cluster (MirrorMaker 2: OffsetSync,
    which has those of one record).
    """

    source_offset: int
    target_offset: int


class PartitionState(NamedTuple):
    """How far the replay of one partition has come.

    topic, partition, topic_id: of the source, the id as Kafka writes it, None if it has none; source_path: its
    directory; target_topic, target_topic_id: of the cluster. next_offset: all records below it that are sent at all
    were acknowledged; target_offset: where the cluster's partition goes on after them; base_target_offset: where it
    ended before the first of them. is_settled: whether no other record may have arrived. since_ms, until_ms, isolation:
    the Filter of the run that wrote this; record_count: all that were acknowledged; syncs: by offset.
    """

    topic: str
    partition: int
    topic_id: str | None
    source_path: str
    target_topic: str
    target_topic_id: str | None
    next_offset: int
    target_offset: int
    base_target_offset: int
    is_settled: bool
    since_ms: int | None
    until_ms: int | None
    isolation: str
    record_count: int
    syncs: tuple[Sync, ...] = ()

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def filter(self) -> Filter:
        return Filter(since_ms=self.since_ms, until_ms=self.until_ms, isolation=cast("Isolation", self.isolation))


class ReplayState(NamedTuple):
    """What a state file holds. source_cluster_id: None if the source does not say it."""

    source_cluster_id: str | None
    target_cluster_id: str | None
    partitions: tuple[PartitionState, ...] = ()

    def encoded(self) -> bytes:
        """Return the content of the file."""
        fields = {
            "format_version": FORMAT_VERSION,
            **self._asdict(),
            "partitions": [
                {**partition._asdict(), "syncs": [list(sync) for sync in partition.syncs]}
                for partition in self.partitions
            ],
        }
        return f"{json.dumps(with_checksum(fields), indent=1)}\n".encode()

    @classmethod
    def decoded(cls, content: bytes, *, path: str) -> ReplayState:
        """Return the state with this content.  Raises: ReplayStateError."""
        try:
            fields = json_object(content)
            if not check_checksum(fields):
                raise FieldError("crc32c", "a checksum", None)
            if fields.get("format_version") != FORMAT_VERSION:
                raise FieldError("format_version", FORMAT_VERSION, fields.get("format_version"))
            known = {name: value for name, value in fields.items() if name not in ("format_version", "crc32c")}
            state: ReplayState = value_as(cls, known, field="")
            for number, partition in enumerate(state.partitions):
                _check(partition, field=f"partitions[{number}]")
            places = [partition.place for partition in state.partitions]
            if len(set(places)) < len(places):
                raise FieldError("partitions", "each partition once", "one twice")
        except ValueError as error:
            raise ReplayStateError(
                f"{path} is no state of a replay: {error}; without the file a replay begins from the start", path=path
            ) from error
        return state


def _check(partition: PartitionState, *, field: str) -> None:
    check_number(f"{field}.partition", partition.partition, least=0, most=MAX_PARTITION)
    for name in ("next_offset", "target_offset", "base_target_offset", "record_count"):
        check_number(f"{field}.{name}", getattr(partition, name), least=0, most=MAX_OFFSET)
    if partition.isolation not in ("read_committed", "read_uncommitted"):
        raise FieldError(f"{field}.isolation", "read_committed or read_uncommitted", partition.isolation)
    syncs = partition.syncs
    if any(number < 0 for sync in syncs for number in sync) or list(syncs) != sorted(syncs):
        raise FieldError(f"{field}.syncs", "offsets that rise", list(syncs[:3]))


class StateFile:
    """The state file of a run, or none: then nothing is kept.

    Raises: ReplayStateError for a malformed one.  Threads: not thread-safe.
    """

    def __init__(self, path: str | None, *, env: Env = DEFAULT_ENV) -> None:
        self.path = path
        self._env = env
        self._others: Mapping[TopicPartition, PartitionState] = {}
        self.state: ReplayState | None = None
        if path is None:
            return
        try:
            content = env.read_file(path, max_bytes=_MOST_STATE_BYTES)
        except StorageError as error:
            if error.errno != ENOENT:
                raise
            return
        self.state = ReplayState.decoded(content, path=path)
        self._others = {partition.place: partition for partition in self.state.partitions}

    @classmethod
    @contextmanager
    def opened(cls, path: str | None, *, env: Env = DEFAULT_ENV, is_read_only: bool = False) -> Iterator[StateFile]:
        """Context manager: the state file, which no other run uses until it is closed, unless it is only read.

        Raises: ReplayStateError if one does; StorageError.
        """
        if path is None or is_read_only:
            yield cls(path, env=env)
            return
        lock = env.lock_file(f"{path}{_LOCK_SUFFIX}")
        if lock is None:
            raise ReplayStateError(f"{path} is in use by another replay", path=path)
        try:
            yield cls(path, env=env)
        finally:
            lock.close()

    def partition(self, place: TopicPartition) -> PartitionState | None:
        """Return what was kept of a partition of the source, None if nothing was."""
        return self._others.get(place)

    def check_clusters(self, *, source_cluster_id: str | None, target_cluster_id: str | None) -> None:
        """Raise ReplayStateError unless the state is of these clusters."""
        if self.state is None:
            return
        known = self.state
        for side, before, now in (
            ("from the cluster", known.source_cluster_id, source_cluster_id),
            ("to the cluster", known.target_cluster_id, target_cluster_id),
        ):
            if before != now:
                raise self.refused(f"of a replay {side} {before}, and this one is {side} {now}")

    def refused(self, reason: str) -> ReplayStateError:
        """Return the error for a state that is of something else."""
        return ReplayStateError(f"{self.path} is {reason}; name another file by --state", path=self.path)

    def write(
        self, partitions: Iterable[PartitionState], *, source_cluster_id: str | None, target_cluster_id: str | None
    ) -> None:
        """Replace the file; what it has of other partitions stays.  Raises: StorageError."""
        if self.path is None:
            return
        kept = {**self._others, **{partition.place: partition for partition in partitions}}
        state = ReplayState(source_cluster_id, target_cluster_id, tuple(kept[place] for place in sorted(kept)))
        replace_file(self.path, state.encoded(), self._env)


def thinned(syncs: Iterable[Sync]) -> tuple[Sync, ...]:
    """Return at most MOST_SYNCS of some syncs: the newest ones, and fewer the older they are."""
    kept = list(syncs)
    while len(kept) > MOST_SYNCS:
        older, newer = kept[: -MOST_SYNCS // 2], kept[-MOST_SYNCS // 2 :]
        kept = [*older[::2], *newer]
    return tuple(kept)
