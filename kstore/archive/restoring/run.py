"""restore: partitions of a root appended to those of another, batch by batch as they are, up to an offset or a time.

Each log is written as a follower of its leader writes it, so that segments, indexes, leader epochs, producers and
transactions are those of a log that ends there, and a restore that was interrupted goes on where its logs end.
"""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from kstore._core import BatchHeader, check_crc, crc32c, next_header
from kstore._progress import Progress, ProgressBar
from kstore.adoption.changes import keep_topics_in_metadata
from kstore.archive.restoring.plan import (
    OpenTransactions,
    PartitionPlan,
    RestoreWanted,
    Times,
    continues_at,
    plan_partition,
)
from kstore.config import MIB, LogConfig, config_or_default
from kstore.env import Env, StrPath, join_path, locate, shown_path
from kstore.errors import CorruptionError, CorruptRecordError, KStoreError, RestoreError
from kstore.log.files.checkpoints import EpochEntry, read_leader_epoch_checkpoint
from kstore.log.files.names import LEADER_EPOCH_CHECKPOINT, partitions_of_root
from kstore.log.files.root_files import read_partition_metadata
from kstore.log.files.selection import Offsets, Selection
from kstore.log.log import Log
from kstore.log.state.leader_epochs import LeaderEpochCache
from kstore.log.write.writable_log import WritableLog
from kstore.record.batches import MemoryRecords, RecordBatch
from kstore.store.opening import open_found, open_log
from kstore.store.settings.known import KnownSettings
from kstore.store.store import WritableStore, open_store
from kstore.store.topics import check_no_collision, check_topic_name
from kstore.types import TopicPartition

_CHUNK_BYTES = 4 * MIB


class RestoredPartition(NamedTuple):
    """What a restore did to one partition of its target.

    topic, partition: of the target; source: the directory that was read, as a path or URL; start_offset, end_offset: of
    the target's log now, or for a dry run as it will be; from_offset: the first offset that was appended; record_count,
    size_in_bytes: appended by this call; asked_offset: the end that was asked for, None for all; is_cut: whether the
    last batch was rebuilt to end there; open_transactions: (producer id, first offset) of those that are open at the
    end; waited_from: where the restore would have ended if these had not been left out, None if none were.
    """

    topic: str
    partition: int
    source: str
    start_offset: int
    end_offset: int
    from_offset: int
    record_count: int
    size_in_bytes: int
    asked_offset: int | None
    is_cut: bool
    open_transactions: tuple[tuple[int, int], ...]
    waited_from: int | None


class RestoreSummary(NamedTuple):
    """partitions: by topic and number; is_dry_run: whether nothing was changed; is_complete: whether all of them end
    where they should.
    """

    partitions: tuple[RestoredPartition, ...]
    is_dry_run: bool
    is_complete: bool


def restore(
    source: StrPath,
    target: StrPath,
    *,
    topics: Iterable[str] | None = None,
    partitions: Iterable[int] | int | None = None,
    end_offset: Offsets | None = None,
    until: Times | None = None,
    rename: Mapping[str, str] | None = None,
    topic_as: str | None = None,
    open_transactions: OpenTransactions = "keep",
    dry_run: bool = False,
    progress: Progress = False,
    config: LogConfig | None = None,
    env: Env | None = None,
    target_env: Env | None = None,
) -> RestoreSummary:
    """Restore partitions up to an offset or a time into a root, which is created if it does not exist.

    Batches are appended byte for byte. One that spans the end is rebuilt to end exactly there: offsets, producer
    fields, leader epoch and the records' bytes stay. Nothing that the target has is changed: a partition that exists
    there is continued if it ends with the source's batch at that offset, or ends where the source begins, else it is
    refused before anything is written. So the same call also resumes a restore that ended early. What was appended is
    durable at the end, and was read back and compared with what was read.
    Args: source: a root, a partition, a root that kstore.export wrote with format "kstore", or a URL of one; with
        topic_as also a directory of segments with any name. target: a root. topics, partitions: as in kstore.scan.
        end_offset: the offset after the last record, for all or by partition; until: the restore ends before the first
        record with this timestamp or a later one (ms or datetime). Both are by partitions of the source. rename: new
        names of topics; topic_as: the new name of the only one. open_transactions: whether a partition with
        transactions that are open at its end keeps them open ("keep"), or ends earlier, where none is ("wait").
        dry_run: change nothing, and return what would be done. progress: as of kstore.verify. config: for reading the
        source; env, target_env: as for kstore.open_store.
    Raises: ValueError, TypeError for wrong arguments; InvalidTopicError for a new topic whose name Kafka does not
        allow, alone or beside another one's; RestoreError with what was done up to then, also for a target
        that is refused; for the source CorruptionError, LogNotFoundError, LogReplacedError, UnsupportedError; for the
        target LogLockedError, StorageError, and as kstore.open_store.
    Threads: safe; the target has one writer at a time.
    Cost: reads the source once, its headers twice, and reads back what was written; a few chunks of 4 MiB of memory.
    Source: Kafka ReplicaFetcherThread, UnifiedLog.appendAsFollower.
    """
    wanted = restore_wanted(
        source,
        target,
        selection=Selection.of(topics=topics, partitions=partitions, start_offset=None, end_offset=end_offset),
        until=until,
        rename=rename,
        topic_as=topic_as,
        open_transactions=open_transactions,
        config=config,
        env=env,
        target_env=target_env,
    )
    with ProgressBar(progress, "restore") as bar:
        return carry_out(wanted, dry_run=dry_run, on_plan=bar.begin, on_bytes=bar.add)


def restore_wanted(
    source: StrPath,
    target: StrPath,
    *,
    selection: Selection,
    until: Times | None = None,
    rename: Mapping[str, str] | None = None,
    topic_as: str | None = None,
    open_transactions: OpenTransactions = "keep",
    config: LogConfig | None = None,
    env: Env | None = None,
    target_env: Env | None = None,
) -> RestoreWanted:
    """Check the arguments of a restore.  Raises: ValueError; InvalidTopicError for a new name."""
    if open_transactions not in ("keep", "wait"):
        raise ValueError(f'open_transactions must be "keep" or "wait", got {open_transactions!r}')
    if rename and topic_as is not None:
        raise ValueError("rename and topic_as contradict each other: give one of them")
    for name in (*(rename or {}).values(), *(() if topic_as is None else (topic_as,))):
        check_topic_name(name, shown_path(str(target)))
    return RestoreWanted(
        source=source,
        target=target,
        selection=selection,
        until=until,
        renames=dict(rename or {}),
        topic_as=topic_as,
        open_transactions=open_transactions,
        config=config_or_default(config),
        env=env,
        target_env=target_env,
    )


def carry_out(
    wanted: RestoreWanted,
    *,
    dry_run: bool = False,
    on_plan: Callable[[int], None] = lambda _: None,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> RestoreSummary:
    """Restore, or plan what a restore would do; see restore.

    Args: on_plan: called with the size of what is read, about; on_bytes: with that of each chunk.
    """
    plans = [plan_partition(directory, wanted) for directory in wanted.find()]
    _check_new_names(wanted, plans)
    on_plan(sum(plan.size_in_bytes for plan in plans))
    if dry_run:
        return RestoreSummary(tuple(_dry(plan, wanted) for plan in plans), is_dry_run=True, is_complete=False)
    return _Restore(wanted, plans, on_bytes).run()


def _check_new_names(wanted: RestoreWanted, plans: Iterable[PartitionPlan]) -> None:
    """Raise InvalidTopicError for a new topic whose name Kafka does not allow beside another one's."""
    env, root = locate(wanted.target, wanted.target_env)
    there = (
        {found.topic_partition.topic for found in partitions_of_root(root, env)} if env.is_directory(root) else set()
    )
    new = {plan.target.topic for plan in plans} - there
    for name in sorted(new):
        check_no_collision(name, there | new, shown_path(root))


def _dry(plan: PartitionPlan, wanted: RestoreWanted) -> RestoredPartition:
    env, root = locate(wanted.target, wanted.target_env)
    path = join_path(root, str(plan.target))
    begun = None
    start = _start_of(plan)
    if env.stat(path) is not None:
        with open_log(path, config=wanted.config, env=env) as log:
            begun = continues_at(log, plan, config=wanted.config)
            if begun is not None:
                start = log.log_start_offset
    with open_found(plan.directory, wanted.config) as source:
        facts = _Facts()
        for chunk in _chunks(source, plan, begun):
            facts.add(chunk)
    return _described(plan, facts, start=start, end=max(plan.end_offset, start), begun=begun)


class _Chunk(NamedTuple):
    """Whole batches of one segment of the source. base_offset: of the first one; segment: the segment's number."""

    content: bytes | memoryview
    base_offset: int
    next_offset: int
    record_count: int
    segment: int


class _Facts:
    """What was appended to one log: the sum over its chunks."""

    def __init__(self) -> None:
        self.record_count = self.size_in_bytes = self.crc = 0

    def add(self, chunk: _Chunk) -> None:
        self.record_count += chunk.record_count
        self.size_in_bytes += len(chunk.content)
        self.crc = crc32c(chunk.content, self.crc)


def _start_of(plan: PartitionPlan) -> int:
    return min(plan.start_offset, plan.end_offset)


def _described(plan: PartitionPlan, facts: _Facts, *, start: int, end: int, begun: int | None) -> RestoredPartition:
    return RestoredPartition(
        *plan.target,
        shown_path(plan.directory.path),
        start,
        end,
        _start_of(plan) if begun is None else begun,
        facts.record_count,
        facts.size_in_bytes,
        plan.asked_offset,
        plan.cut is not None and end == plan.end_offset,
        plan.open,
        plan.waited_from,
    )


def _chunks(log: Log, plan: PartitionPlan, begun: int | None, *, most_bytes: int = _CHUNK_BYTES) -> Iterator[_Chunk]:
    """Yield what is to be appended from an offset on, None for the start; the batch that spans the end is the last.

    Args: most_bytes: of a chunk, or one batch that is larger.
    Raises: CorruptionError, LogReplacedError, OffsetOutOfRangeError, StorageError.
    """
    bases = [segment.base_offset for segment in log.segments]
    offset = plan.start_offset if begun is None else begun
    while offset < plan.whole_end:
        # A batch with deleted records stands alone, so that a restore that ends after it still hides them.
        is_partly_deleted = plan.first_base < plan.start_offset and offset < plan.first_end
        below = plan.first_end if is_partly_deleted else plan.whole_end
        fetched = log.fetch(offset, most_bytes).records
        chunk = _whole_batches(fetched, bases, log, below=below)
        if chunk is None:
            break
        yield chunk
        offset = chunk.next_offset
    if plan.cut is not None and plan.cut.content and offset < plan.end_offset:
        segment = bisect_right(bases, plan.whole_end) - 1
        yield _Chunk(plan.cut.content, plan.whole_end, plan.end_offset, plan.cut.record_count, segment)


def _whole_batches(data: bytes, bases: Sequence[int], log: Log, *, below: int) -> _Chunk | None:
    """Return the whole batches of fetched bytes with offsets below one, up to one with damage; None if there are none.

    Raises: CorruptRecordError, with its place in the source, if the first one has damage.
    """
    at = count = 0
    view = memoryview(data)
    base_offset = next_offset = -1
    max_batch_bytes = log.config.max_batch_bytes
    while (header := next_header(data, at, position=at, path=log.path, max_batch_bytes=max_batch_bytes)) is not None:
        if header.last_offset >= below:
            break
        if not _is_sound(view[at : at + header.size_in_bytes]):
            if not at:
                _refuse_damage(log, header.last_offset)
            break
        if base_offset < 0:
            base_offset = header.base_offset
        count += _count(header, data, at, log)
        at, next_offset = at + header.size_in_bytes, header.last_offset + 1
    if not at:
        return None
    return _Chunk(view[:at], base_offset, next_offset, count, bisect_right(bases, base_offset) - 1)


def _is_sound(batch: memoryview) -> bool:
    try:
        check_crc(batch, position=0)
    except CorruptRecordError:
        return False
    return True


def _refuse_damage(log: Log, offset: int) -> None:
    """Raise the error of a damaged batch as a reader of the log does, with its file and position.

    Raises: CorruptRecordError.
    """
    for _ in log.batches(offset, offset + 1):
        pass


def _count(header: BatchHeader, data: bytes, at: int, log: Log) -> int:
    if header.record_count is not None:
        return header.record_count
    batch = RecordBatch(data[at : at + header.size_in_bytes], path=log.path, config=log.config)
    return sum(1 for _ in batch.records())


class _Restore:
    """One run: topics are made, logs are written one after the other, and at the end read back."""

    def __init__(self, wanted: RestoreWanted, plans: list[PartitionPlan], on_bytes: Callable[[int], None]) -> None:
        self._wanted = wanted
        self._plans = plans
        self._on_bytes = on_bytes
        self._env, self._root = locate(wanted.target, wanted.target_env)
        self._done: list[RestoredPartition] = []
        self._read: list[_Facts] = []

    def run(self) -> RestoreSummary:
        """Raises: RestoreError with what was done, if anything was begun; as restore."""
        store = open_store(self._root, "a", env=self._env)
        try:
            with store:
                keep_topics_in_metadata(store)
                begun = {plan.target: self._continuation(store, plan) for plan in self._plans}
                self._make_topics(store)
                for plan in self._plans:
                    self._copy(store, plan, begun[plan.target])
            for restored, facts in zip(self._done, self._read, strict=True):
                self._check(restored, facts)
        except RestoreError:
            raise
        except KStoreError as error:
            is_damage = isinstance(error, CorruptionError)
            rest = (
                "the target has what stands before it"
                if is_damage
                else "the same command goes on where each partition ends"
            )
            raise RestoreError(
                f"{error}; {rest}",
                summary=self._summary(is_complete=False),
                path=error.path,
            ) from error
        return self._summary(is_complete=True)

    def _summary(self, *, is_complete: bool) -> RestoreSummary:
        return RestoreSummary(tuple(sorted(self._done)), is_dry_run=False, is_complete=is_complete)

    def _continuation(self, store: WritableStore, plan: PartitionPlan) -> int | None:
        if plan.target not in store.partitions:
            return None
        return continues_at(store.log(*plan.target), plan, config=self._wanted.config)

    def _make_topics(self, store: WritableStore) -> None:
        """Create the topics and partitions that are missing, with the settings that the source says."""
        for topic in sorted({plan.target.topic for plan in self._plans}):
            plans = [plan for plan in self._plans if plan.target.topic == topic]
            count = 1 + max(plan.target.partition for plan in plans)
            if topic not in store.topics:
                store.create_topic(topic, count, config=self._settings(plans[0]), topic_id=self._topic_id(store, plans))
            elif any(plan.target not in store.partitions for plan in plans):
                store.create_partitions(topic, max(count, 1 + max(n for name, n in store.partitions if name == topic)))

    def _settings(self, plan: PartitionPlan) -> Mapping[str, object] | None:
        settings = KnownSettings(plan.directory.root, plan.directory.env)
        return settings.of(plan.directory.topic_partition.topic).settings or None

    def _topic_id(self, store: WritableStore, plans: Sequence[PartitionPlan]) -> uuid.UUID | None:
        """Return the source's id, None for a new one: for another name, and if a topic of the target has it."""
        directory, target = plans[0].directory, plans[0].target
        if directory.topic_partition.topic != target.topic:
            return None
        topic_id = None
        with suppress(CorruptionError):
            topic_id = read_partition_metadata(directory.path, directory.env)
        return None if topic_id in {store.topic_id(topic) for topic in store.topics} else topic_id

    def _copy(self, store: WritableStore, plan: PartitionPlan, begun: int | None) -> None:
        log, facts = store.log(*plan.target), _Facts()
        epochs, epoch = log.leader_epochs.entries, log.leader_epochs.latest_epoch
        try:
            if begun is None:
                self._begin(log, plan)
            with open_found(plan.directory, self._wanted.config) as source:
                segment = self._segment_of_last(source, begun)
                # A segment takes no append that is larger.
                most_bytes = min(_CHUNK_BYTES, log.config.segment_bytes)
                for chunk in _chunks(source, plan, begun, most_bytes=most_bytes):
                    if segment is not None and chunk.segment > segment:
                        log.roll()
                    segment = chunk.segment
                    log.append_as_follower(MemoryRecords(chunk.content))
                    facts.add(chunk)
                    self._raise_start(log, plan, begun)
                    self._on_bytes(len(chunk.content))
            self._raise_start(log, plan, begun)
            self._complete_epochs(log, plan, epochs)
            log.flush()
        finally:
            if log.leader_epochs.latest_epoch > max(epoch, 0):
                store.tell_topic_change(plan.target.topic)
            start, end = log.log_start_offset, log.log_end_offset
            self._done.append(_described(plan, facts, start=start, end=end, begun=begun))
            self._read.append(facts)

    def _begin(self, log: WritableLog, plan: PartitionPlan) -> None:
        first = plan.end_offset if plan.is_empty else min(plan.first_base, plan.start_offset)
        if first != log.log_end_offset:
            log.truncate_fully_and_start_at(first)

    def _segment_of_last(self, source: Log, begun: int | None) -> int | None:
        if begun is None:
            return None
        return bisect_right([segment.base_offset for segment in source.segments], begun - 1) - 1

    def _raise_start(self, log: WritableLog, plan: PartitionPlan, begun: int | None) -> None:
        """Hide the records of the first batch that the source has deleted, once the target has that batch; also if an
        earlier call ended before it did.
        """
        is_own = (begun is None or begun <= plan.first_end) and log.log_start_offset == plan.first_base
        if is_own and plan.first_base < plan.start_offset < plan.end_offset and log.log_end_offset >= plan.first_end:
            log.delete_records(plan.start_offset)

    def _complete_epochs(self, log: WritableLog, plan: PartitionPlan, before: Sequence[EpochEntry]) -> None:
        """Take up the leader epochs of the source that no batch shows, as those whose batches were compacted away."""
        path = join_path(plan.directory.path, LEADER_EPOCH_CHECKPOINT)
        try:
            there = read_leader_epoch_checkpoint(path, plan.directory.env)
        except CorruptionError:
            return
        cache = LeaderEpochCache(None, self._env)
        for epoch, start_offset in (*before, *(there or ())):
            if epoch > cache.latest_epoch and start_offset < log.log_end_offset:
                cache.assign(epoch, start_offset=start_offset)
        cache.truncate_from_start(log.log_start_offset)
        shown = {entry.epoch for entry in log.leader_epochs.entries}
        if shown <= {entry.epoch for entry in cache.entries} and cache.entries != log.leader_epochs.entries:
            log.leader_epochs.restore(cache.entries)

    def _check(self, restored: RestoredPartition, facts: _Facts) -> None:
        """Read what was appended, and compare it with what was read from the source.  Raises: RestoreError."""
        if not facts.size_in_bytes:
            return
        path = join_path(self._root, str(TopicPartition(restored.topic, restored.partition)))
        found = _Facts()
        with open_log(path, env=self._env) as log:
            bases = [segment.base_offset for segment in log.segments]
            offset, end = restored.from_offset, log.log_end_offset
            while offset < end:
                chunk = _whole_batches(log.fetch(offset, _CHUNK_BYTES).records, bases, log, below=end)
                if chunk is None:
                    break
                found.add(chunk)
                offset = chunk.next_offset
        if vars(found) != vars(facts) or end != restored.end_offset:
            raise RestoreError(
                f"{path} is not what was written to it: expected {facts.record_count} records in "
                f"{facts.size_in_bytes} bytes with CRC {facts.crc:#010x} from offset {restored.from_offset} on, found "
                f"{found.record_count} in {found.size_in_bytes} with CRC {found.crc:#010x}",
                summary=self._summary(is_complete=False),
                path=path,
            )
