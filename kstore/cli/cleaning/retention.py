"""`kstore retention`: remove old segments by time, size and log start offset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kstore.cli import EXIT_FINE
from kstore.cli.cleaning.topics import PassedOver, SelectedTopics
from kstore.cli.output import Column
from kstore.cli.render import JSON_TEXT
from kstore.env import DEFAULT_ENV
from kstore.errors import CorruptionError, KStoreError, StorageError, TopicSettingsError
from kstore.log.cleaning.retention import RetentionBounds, plan_retention
from kstore.log.write.writable_log import WritableLog
from kstore.store.opening import open_log
from kstore.store.upkeep.recovering import recoverable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kstore.cli.arguments import PartitionSelection
    from kstore.cli.output import Output
    from kstore.config import LogConfig
    from kstore.log.cleaning.retention import DueSegment
    from kstore.log.files.names import PartitionDirectory
    from kstore.types import TopicPartition

COLUMNS = (
    Column("topic"),
    Column("partition", is_number=True),
    Column("segment", is_number=True),
    Column("end offset", is_number=True),
    Column("bytes", is_number=True),
    Column("reason", wraps=True),
)
LIMITS = frozenset({"retention_ms", "retention_bytes"})


def run(selection: PartitionSelection, options: Mapping[str, Any], out: Output, *, is_dry: bool, is_json: bool) -> int:
    """Remove the segments that are due and return the exit status: 1 if a partition could not be checked.

    Topics whose cleanup policy the root has are cleaned by its limits, and those that are named, by the given limits
    first. Others are skipped, and so is __cluster_metadata. A dry run takes no lock and changes nothing.
    Args: options: the limits that were given, by names of LogConfig.
    """
    status = EXIT_FINE
    rows: list[list[str]] = []
    directories = recoverable(selection.find())
    topics = SelectedTopics(selection, directories, options=options)
    passed_over = PassedOver(out, is_json=is_json)
    try:
        for directory in directories:
            reason = _reason_to_skip(topics, directory, options)
            if reason is not None:
                passed_over.add(directory.topic_partition, reason)
                continue
            try:
                config = topics.config(directory, forced={"cleanup_policy": "delete"} if options else {})
                due = planned(directory, config) if is_dry else removed(directory, config)
            except (CorruptionError, TopicSettingsError) as error:
                status = max(status, out.failure(error))
                continue
            except StorageError as error:
                if not directory.is_place_of(error):
                    raise
                status = max(status, out.partition_failure(error, directory))
                continue
            for segment in due:
                if is_json:
                    out.line(json_of(directory.topic_partition, segment))
                else:
                    rows.append(row_of(directory.topic_partition, segment))
    except KStoreError:
        _show(rows, out)
        raise
    _show(rows, out)
    passed_over.show()
    if not is_json:
        if not rows:
            out.notice("no segment is due")
        if is_dry:
            out.notice("dry run: nothing was changed")
    return status


def _reason_to_skip(topics: SelectedTopics, directory: PartitionDirectory, options: Mapping[str, Any]) -> str | None:
    """Return why no segment of a topic may be removed, None if segments may be."""
    topic, known = directory.topic_partition.topic, topics.known(directory)
    if topics.is_named(directory) and (options or known.is_deleted_from is not None):
        return None
    advice = f"; to remove by the given limits: --topic {topic}" if options and not topics.is_named(directory) else ""
    if not known.is_deleted_from:
        return known.policy + advice
    if not known.settings.keys() & LIMITS:
        return f"no limit of its age or size is known: {known.doubt}{advice}"
    return None


def _show(rows: list[list[str]], out: Output) -> None:
    if rows:
        out.table(COLUMNS, rows)


def removed(directory: PartitionDirectory, config: LogConfig) -> list[DueSegment]:
    """Remove the segments that are due, and return them."""
    with WritableLog.open(directory, config=config, env=directory.env) as log:
        return log.delete_old_segments()


def planned(directory: PartitionDirectory, config: LogConfig) -> list[DueSegment]:
    """Return the segments that are due, below the high watermark and the last stable offset, without taking a lock."""
    with open_log(directory.path, config=config) as log:
        high_watermark = log.high_watermark
        needed = log.transactions().last_stable_offset
        needed = needed if high_watermark is None else min(needed, high_watermark)
        bounds = RetentionBounds(log.log_start_offset, log.log_end_offset, needed)
        now_ms = DEFAULT_ENV.wall_clock_ms()
        return plan_retention(log.segments, bounds, now_ms=now_ms, config=config, env=DEFAULT_ENV)


def row_of(topic_partition: TopicPartition, due: DueSegment) -> list[str]:
    """Return the table cells, in the order of COLUMNS."""
    topic, partition = topic_partition
    return [topic, *map(str, (partition, due.base_offset, due.end_offset, due.size_in_bytes)), due.reason]


def json_of(topic_partition: TopicPartition, due: DueSegment) -> str:
    """Return the JSON object of one segment."""
    return JSON_TEXT(
        {
            "topic": topic_partition.topic,
            "partition": topic_partition.partition,
            "base_offset": due.base_offset,
            "end_offset": due.end_offset,
            "size_in_bytes": due.size_in_bytes,
            "reason": due.reason,
            "max_timestamp": due.max_timestamp_ms,
        }
    )
