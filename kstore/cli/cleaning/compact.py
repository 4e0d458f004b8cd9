"""`kstore compact`: remove the records that have a newer one with the same key."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kstore.cli import EXIT_FINE
from kstore.cli.cleaning.topics import KeptConfigs
from kstore.cli.output import LOG_COLUMNS, Column
from kstore.cli.render import JSON_TEXT
from kstore.errors import CorruptionError, KStoreError, StorageError, TopicSettingsError
from kstore.log.upkeep.recovering import recoverable
from kstore.log.write.writable_log import WritableLog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kstore.cli.arguments import PartitionSelection
    from kstore.cli.output import Output
    from kstore.log.write.compaction import CompactionReport
    from kstore.types import TopicPartition

COLUMNS = (
    *LOG_COLUMNS,
    Column("clean to", is_number=True),
    Column("records read", is_number=True),
    Column("records kept", is_number=True),
    Column("bytes before", is_number=True),
    Column("bytes after", is_number=True),
)


@dataclass(frozen=True, kw_only=True)
class CompactOptions:
    """The options of a compaction; options: those of them that were given which are settings of LogConfig."""

    options: Mapping[str, Any]
    rolls: bool
    heeds_ratio: bool
    max_bytes_per_second: int | None


def run(selection: PartitionSelection, wanted: CompactOptions, out: Output, *, is_json: bool) -> int:
    """Compact the selected partitions, one after another, and return the exit status: 1 if one could not be compacted.

    __cluster_metadata is left alone, and so is a topic that is not named where the root keeps settings of topics and
    does not say that this one is compacted.
    """
    status = EXIT_FINE
    rows: list[list[str]] = []
    directories = recoverable(selection.find_topics_of_users())
    configs = KeptConfigs(
        selection, directories, defaults={}, options=wanted.options, forced={"cleanup_policy": "compact"}
    )
    others: set[str] = set()
    for directory in directories:
        try:
            config = configs.of(directory)
            if not config.is_compacted:
                if configs.keeps_any(directory):
                    others.add(directory.topic_partition.topic)
                    continue
                config = replace(config, cleanup_policy="compact")
            with WritableLog.open(directory, config=config, env=directory.env) as log:
                if wanted.rolls:
                    log.roll()
                report = log.compact(is_forced=not wanted.heeds_ratio, max_bytes_per_second=wanted.max_bytes_per_second)
                shown = directory.topic_partition, (log.log_start_offset, log.log_end_offset), report
        except (CorruptionError, TopicSettingsError) as error:
            status = max(status, out.failure(error))
            continue
        except KStoreError as error:
            if isinstance(error, StorageError) and directory.is_place_of(error):
                status = max(status, out.partition_failure(error, directory))
                continue
            _show(rows, out)
            raise
        if is_json:
            out.line(json_of(*shown))
        else:
            rows.append(row_of(*shown))
    _show(rows, out)
    for topic in sorted(others):
        out.notice(f"{topic} is not compacted by the settings in its root; to compact it all the same: --topic {topic}")
    return status


def _show(rows: list[list[str]], out: Output) -> None:
    if rows:
        out.table(COLUMNS, rows)
        rows.clear()


def row_of(topic_partition: TopicPartition, bounds: tuple[int, int], report: CompactionReport) -> list[str]:
    """Return the table cells, in the order of COLUMNS."""
    numbers = (
        topic_partition.partition,
        *bounds,
        report.end_offset,
        report.records_read,
        report.records_kept,
        report.bytes_before,
        report.bytes_after,
    )
    return [topic_partition.topic, *map(str, numbers)]


def json_of(topic_partition: TopicPartition, bounds: tuple[int, int], report: CompactionReport) -> str:
    """Return the JSON object of one partition."""
    return JSON_TEXT(
        {
            "topic": topic_partition.topic,
            "partition": topic_partition.partition,
            "log_start_offset": bounds[0],
            "log_end_offset": bounds[1],
            "first_dirty_offset": report.first_dirty_offset,
            "clean_offset": report.end_offset,
            "rounds": report.rounds,
            "records_read": report.records_read,
            "records_kept": report.records_kept,
            "bytes_before": report.bytes_before,
            "bytes_after": report.bytes_after,
            "replaced_segments": report.replaced_segments,
        }
    )
