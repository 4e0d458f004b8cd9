"""`kstore delete-records`: raise the log start offset of partitions, as a broker's DeleteRecords does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from kstore.cli import EXIT_FINE
from kstore.cli.arguments import WrongUseError
from kstore.cli.output import Column
from kstore.cli.render import JSON_TEXT
from kstore.config import MIB, LogConfig
from kstore.env import locate, shown_path
from kstore.errors import CorruptionError, OffsetOutOfRangeError, StorageError
from kstore.log.files.names import CLUSTER_METADATA_TOPIC, find_partitions
from kstore.log.write.writable_log import WritableLog
from kstore.store.opening import open_found
from kstore.store.settings.known import KnownSettings
from kstore.types import MAX_OFFSET, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kstore.cli.output import Output
    from kstore.log.files.names import PartitionDirectory

COLUMNS = (
    Column("topic"),
    Column("partition", is_number=True),
    Column("log start before", is_number=True, rank=1),
    Column("log start", is_number=True),
    Column("log end", is_number=True),
    Column("segments removed", is_number=True),
    Column("bytes removed", is_number=True),
)
HIGH_WATERMARK = -1
_MOST_BYTES = 64 * MIB


class Deleted(NamedTuple):
    """What a deletion did to a partition: offsets, and the segments that are gone with their bytes."""

    topic: str
    partition: int
    earlier_log_start_offset: int
    log_start_offset: int
    log_end_offset: int
    segments: int
    size_in_bytes: int


def run(
    directory: str, wanted: Sequence[tuple[TopicPartition, int]], out: Output, *, is_dry: bool, is_json: bool
) -> int:
    """Delete the records of partitions below an offset of each, and return the exit status: 1 if one was damaged.

    All partitions and offsets are looked at before the first is changed.
    """
    directories = {found.topic_partition: found for found in find_partitions(directory)}
    for partition, _ in wanted:
        if partition not in directories or partition.topic == CLUSTER_METADATA_TOPIC:
            raise WrongUseError(f"no partition {partition} in {shown_path(directory)} whose records can be deleted")
        _check_policy(directories[partition])
    planned = [_planned(directories[partition], offset) for partition, offset in wanted]
    status, done = EXIT_FINE, []
    for (partition, _), plan in zip(wanted, planned, strict=True):
        try:
            done.append(plan if is_dry else _deleted(directories[partition], plan))
        except (CorruptionError, StorageError) as error:
            status = max(status, out.failure(error))
    if is_json:
        for deleted in done:
            out.line(JSON_TEXT({**deleted._asdict(), "dry_run": is_dry}))
    elif done:
        out.table(COLUMNS, [list(map(str, deleted)) for deleted in done])
    if is_dry:
        out.notice("dry run: nothing was changed")
    return status


def read_file(path: str) -> list[tuple[TopicPartition, int]]:
    """Return the partitions and offsets of a file as kafka-delete-records takes it.  Raises: WrongUseError."""
    env, absolute = locate(path, None)
    text = env.read_file(absolute, max_bytes=_MOST_BYTES)
    try:
        content = json.loads(text)
        if content.get("version", 1) != 1:
            raise WrongUseError(f"{path}: expected version 1, found {content['version']!r}")
        wanted = [_entry(entry) for entry in content["partitions"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise WrongUseError(
            f'{path}: expected {{"partitions": [{{"topic": "t", "partition": 0, "offset": 5}}, ...], "version": 1}}'
        ) from None
    twice = {partition for partition, _ in wanted if [other for other, _ in wanted].count(partition) > 1}
    if twice:
        raise WrongUseError(f"{path}: partition {min(twice)} is there twice")
    return wanted


def _entry(entry: dict[str, Any]) -> tuple[TopicPartition, int]:
    topic, partition, offset = entry["topic"], entry["partition"], entry["offset"]
    numbers = [number for number in (partition, offset) if isinstance(number, int) and not isinstance(number, bool)]
    if not isinstance(topic, str) or len(numbers) != len((partition, offset)):
        raise TypeError
    if partition < 0 or not HIGH_WATERMARK <= offset <= MAX_OFFSET:
        raise ValueError
    return TopicPartition(topic, partition), offset


def _check_policy(directory: PartitionDirectory) -> None:
    """Raise WrongUseError for a topic that is known to be compacted only, which brokers refuse too: its old records are
    the newest of their keys, such as the offsets of groups.
    """
    known = KnownSettings(directory.root, directory.env).of(directory.topic_partition.topic)
    if known.is_deleted_from is False:
        raise WrongUseError(f"records of {directory.topic_partition} cannot be deleted: {known.policy}")


def _planned(directory: PartitionDirectory, offset: int) -> Deleted:
    """Return what a deletion would do.  Raises: OffsetOutOfRangeError above the high watermark."""
    with open_found(directory) as log:
        known = log.high_watermark
        most = log.log_end_offset if known is None else known
        before = most if offset == HIGH_WATERMARK else offset
        if before > most:
            raise OffsetOutOfRangeError(
                f"records of {directory.topic_partition} can be deleted below the high watermark {most}, got {before}",
                path=directory.path,
            )
        start = max(before, log.log_start_offset)
        gone = [
            segment
            for segment in log.segments
            if segment.next_base_offset is not None and segment.next_base_offset <= start
        ]
        topic, partition = directory.topic_partition
        size = sum(segment.size_in_bytes for segment in gone)
        return Deleted(topic, partition, log.log_start_offset, start, log.log_end_offset, len(gone), size)


def _deleted(directory: PartitionDirectory, plan: Deleted) -> Deleted:
    with WritableLog.open(directory, config=LogConfig(), env=directory.env) as log:
        earlier, segments, size = log.log_start_offset, len(log.segments), log.size_in_bytes
        start = log.delete_records(plan.log_start_offset)
        return plan._replace(
            earlier_log_start_offset=earlier,
            log_start_offset=start,
            log_end_offset=log.log_end_offset,
            segments=segments - len(log.segments),
            size_in_bytes=size - log.size_in_bytes,
        )
