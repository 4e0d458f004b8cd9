"""What a restore copies of each partition, and where in the target it goes on: whole batches, and one that is cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from kstore.archive.restoring.cutting import CutBatch, batch_below
from kstore.config import LogConfig
from kstore.env import Env, StrPath, locate, split_path
from kstore.errors import LogNotFoundError, RestoreError
from kstore.log.files.names import LOG_SUFFIX, PartitionDirectory, parse_segment_name
from kstore.log.files.selection import Selection
from kstore.log.log import Log
from kstore.log.state.transactions import open_transactions_at
from kstore.record.batches import RecordBatch
from kstore.store.opening import open_found
from kstore.types import Time, TopicPartition, time_ms

OpenTransactions: TypeAlias = Literal["wait", "keep"]
Times: TypeAlias = "Time | Mapping[TopicPartition, Time]"


@dataclass(frozen=True, kw_only=True)
class RestoreWanted:
    """The arguments of a restore, checked; see kstore.restore."""

    source: StrPath
    target: StrPath
    selection: Selection
    until: Times | None
    renames: Mapping[str, str]
    topic_as: str | None
    open_transactions: OpenTransactions
    config: LogConfig
    env: Env | None
    target_env: Env | None

    def find(self) -> list[PartitionDirectory]:
        """Return the partitions of the source, and of a folder of segments with any name the partition 0 of topic_as.

        Raises: as Selection.find; RestoreError for times or names of partitions that are not restored.
        """
        try:
            found = self.selection.find(self.source, self.env)
        except LogNotFoundError:
            folder = self._folder_of_segments()
            if folder is None:
                raise
            return [folder]
        topics = {directory.topic_partition.topic for directory in found}
        if self.topic_as is not None and len(topics) > 1:
            listed = ", ".join(sorted(topics))
            raise RestoreError(f"topic_as names one topic, and the source has {len(topics)}: {listed}; choose one")
        if unknown := sorted(set(self.renames) - topics):
            raise RestoreError(f"rename names topics that are not restored: {', '.join(unknown)}")
        targets: dict[str, str] = {}
        for topic in sorted(topics):
            other = targets.setdefault(self._name_of(topic), topic)
            if other != topic:
                raise RestoreError(f"two topics would become {self._name_of(topic)}: {other} and {topic}")
        if isinstance(self.until, Mapping):
            others = set(self.until) - {directory.topic_partition for directory in found}
            if others:
                raise RestoreError(f"until names partitions that are not restored: {', '.join(map(str, others))}")
        return found

    def target_of(self, topic_partition: TopicPartition) -> TopicPartition:
        """Return the partition of the target that a partition of the source is restored to."""
        return TopicPartition(self._name_of(topic_partition.topic), topic_partition.partition)

    def until_ms(self, topic_partition: TopicPartition) -> int | None:
        """Return the time, ms since the epoch, of the end of a partition of the source, None for no bound."""
        until = self.until.get(topic_partition) if isinstance(self.until, Mapping) else self.until
        return time_ms("until", until)

    def _name_of(self, topic: str) -> str:
        return self.topic_as if self.topic_as is not None else self.renames.get(topic, topic)

    def _folder_of_segments(self) -> PartitionDirectory | None:
        if self.topic_as is None:
            return None
        env, path = locate(self.source, self.env)
        segments = (parse_segment_name(name) for name in env.listdir(path))
        if not any(segment is not None and segment.suffix == LOG_SUFFIX for segment in segments):
            return None
        return PartitionDirectory(TopicPartition(self.topic_as, 0), path, split_path(path)[0], env)


class PartitionPlan(NamedTuple):
    """What is restored of one partition: the offsets [start_offset, end_offset) of its log.

    target: the partition that they go to; asked_offset: the end that was asked for, None for that of the log;
    first_base and first_end: the first batch's base offset and the offset after it; whole_end: batches below this
    offset are copied as they are; cut: what is left of the batch that spans the end, None if none does; open:
    (producer id, first offset) of the transactions that are open at the end; waited_from: the end without the wait for
    these; size_in_bytes: of the segments, about.
    """

    directory: PartitionDirectory
    target: TopicPartition
    start_offset: int
    end_offset: int
    asked_offset: int | None
    first_base: int
    first_end: int
    whole_end: int
    cut: CutBatch | None
    open: tuple[tuple[int, int], ...]
    waited_from: int | None
    size_in_bytes: int

    @property
    def is_empty(self) -> bool:
        """Whether the source has nothing below the end."""
        return self.end_offset <= self.start_offset


def plan_partition(directory: PartitionDirectory, wanted: RestoreWanted) -> PartitionPlan:
    """Return what is restored of a partition, from its log as it is now.

    Raises: CorruptionError for damage that is met, LogReplacedError, StorageError, UnsupportedError.
    Cost: a header walk up to the end; a lookup by time.
    """
    with open_found(directory, wanted.config) as log:
        start, end = log.log_start_offset, log.log_end_offset
        asked = wanted.selection.bounds_of(directory.topic_partition)[1]
        until_ms = wanted.until_ms(directory.topic_partition)
        if until_ms is not None:
            found = log.offset_for_timestamp(until_ms)
            if found is not None:
                asked = found.offset if asked is None else min(asked, found.offset)
        end = end if asked is None else min(asked, end)
        transactions = open_transactions_at(log.segments, end, config=wanted.config)
        open_there, waited_from = transactions.open, None
        if open_there and wanted.open_transactions == "wait":
            waited_from, end = end, transactions.settled_offset
        first_base, first_end, whole_end, cut = end, end, end, None
        if end > start:
            first = next(log.batches(start, end), None)
            if first is not None:
                first_base, first_end = first.base_offset, min(first.next_offset, end)
            last = batch_at(log, end - 1)
            if last is not None and last.next_offset > end:
                whole_end, cut = last.base_offset, batch_below(end, last, config=wanted.config)
        size = sum(segment.size_in_bytes for segment in log.segments if segment.base_offset < end)
    return PartitionPlan(
        directory,
        wanted.target_of(directory.topic_partition),
        start,
        end,
        asked,
        first_base,
        first_end,
        whole_end,
        cut,
        open_there if waited_from is None else (),
        waited_from,
        size,
    )


def batch_at(log: Log, offset: int) -> RecordBatch | None:
    """Return the batch that holds an offset, None if there is none.  Raises: CorruptionError."""
    if not log.log_start_offset <= offset < log.log_end_offset:
        return None
    return next(log.batches(offset, offset + 1), None)


def continues_at(target: Log, plan: PartitionPlan, *, config: LogConfig) -> int | None:
    """Return the offset from which a restore adds to a log that exists; None for a log that nobody has written to, or
    that a restore has only placed at the base of the source's first batch.

    Raises: RestoreError unless the log ends with a batch of the source, or where the source begins; CorruptionError.
    """
    at = target.log_end_offset
    has_records = any(segment.size_in_bytes for segment in target.segments)
    if not has_records and (at == 0 or (at == plan.first_base and not plan.is_empty)):
        return None
    if at > plan.end_offset:
        reason = f"it has records up to offset {at - 1}, above the end of the restore at {plan.end_offset}"
        raise _refused(target, plan, reason)
    if plan.is_empty and at == plan.end_offset:
        return at
    if at < plan.start_offset:
        reason = f"it ends at offset {at}, and the source begins at {plan.start_offset}"
        raise _refused(target, plan, reason)
    own = batch_at(target, at - 1) if has_records else None
    with open_found(plan.directory, config) as log:
        next_batch = batch_at(log, at)
        known = batch_at(log, at - 1)
    content = b"" if known is None else bytes(known)
    if plan.cut is not None and known is not None and known.base_offset == plan.whole_end and at == plan.end_offset:
        content, next_batch = plan.cut.content, None
    if next_batch is not None and next_batch.base_offset < at:
        span = f"{next_batch.base_offset} to {next_batch.last_offset}"
        raise _refused(target, plan, f"it ends at offset {at}, inside of the source's batch with offsets {span}")
    if own is not None and known is not None and bytes(own) != content:
        reason = f"its last batch, with offsets {own.base_offset} to {own.last_offset}, is not the source's"
        raise _refused(target, plan, reason)
    if own is not None and known is None and at != plan.start_offset:
        raise _refused(target, plan, f"its last offset, {at - 1}, is in no batch of the source")
    return at


def _refused(target: Log, plan: PartitionPlan, reason: str) -> RestoreError:
    message = (
        f"{target.path} does not continue with {plan.directory.path}: {reason}; nothing was changed. "
        "To restore beside it, give the topic another name"
    )
    return RestoreError(message, path=target.path)
