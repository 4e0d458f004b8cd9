"""`kstore compact`: remove the records that have a newer one with the same key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kstore.cli import EXIT_DAMAGE, EXIT_FINE
from kstore.cli.cleaning.topics import PassedOver, SelectedTopics
from kstore.cli.output import LOG_COLUMNS, Column
from kstore.cli.render import JSON_TEXT
from kstore.errors import CorruptionError, KeylessRecordsError, KStoreError, StorageError, TopicSettingsError
from kstore.log.cleaning.cleanable import LogBounds
from kstore.log.cleaning.savings import plan_compaction
from kstore.log.files.checkpoints import read_checkpoint
from kstore.log.files.names import CLEANER_CHECKPOINT
from kstore.log.write.compaction import CompactionReport
from kstore.log.write.writable_log import WritableLog
from kstore.store.opening import open_found
from kstore.store.upkeep.recovering import recoverable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kstore.cli.arguments import PartitionSelection
    from kstore.cli.output import Output
    from kstore.config import LogConfig
    from kstore.log.cleaning.savings import PlannedCompaction
    from kstore.log.files.names import PartitionDirectory
    from kstore.types import TopicPartition

COLUMNS = (
    *LOG_COLUMNS,
    Column("clean to", is_number=True, rank=1),
    Column("records read", is_number=True, rank=3),
    Column("records kept", is_number=True, rank=2),
    Column("bytes before", is_number=True),
    Column("bytes after", is_number=True),
)


@dataclass(frozen=True, kw_only=True)
class CompactOptions:
    """The options of a compaction; options: the given settings, by names of LogConfig."""

    options: Mapping[str, Any]
    rolls: bool
    heeds_ratio: bool
    max_bytes_per_second: int | None
    drops_keyless: bool
    is_dry: bool


def run(selection: PartitionSelection, wanted: CompactOptions, out: Output, *, is_json: bool) -> int:
    """Compact the selected partitions, one after another, and return the exit status: 1 if one could not be compacted.

    Only topics that are known to be compacted, or are named, are compacted. Records without a key are removed only if
    the topic is named and the options allow it. __cluster_metadata is skipped. A dry run takes no lock and changes
    nothing.
    """
    status = EXIT_FINE
    rows: list[list[str]] = []
    directories = recoverable(selection.find())
    topics = SelectedTopics(selection, directories, options=wanted.options)
    passed_over = PassedOver(out, is_json=is_json)
    for directory in directories:
        topic_partition = directory.topic_partition
        is_named, known = topics.is_named(directory), topics.known(directory)
        if not is_named and not known.is_compacted:
            passed_over.add(topic_partition, f"{known.policy}; to compact it: --topic {topic_partition.topic}")
            continue
        try:
            config = topics.config(directory, forced={"cleanup_policy": "compact"})
            run_one = _planned if wanted.is_dry else _compacted
            shown = run_one(directory, config, wanted, drops_keyless=is_named and wanted.drops_keyless)
        except KeylessRecordsError as error:
            status = EXIT_DAMAGE
            advice = f"to remove them: --topic {topic_partition.topic} --drop-keyless"
            out.notice(f"{error}; {advice}")
            if is_json:
                out.line(json_of_refusal(topic_partition, error))
            continue
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
            out.line(json_of(topic_partition, *shown))
        else:
            rows.append(row_of(topic_partition, *shown))
    _show(rows, out)
    passed_over.show()
    if wanted.is_dry:
        out.notice("dry run: nothing was changed")
    return status


def _compacted(
    directory: PartitionDirectory, config: LogConfig, wanted: CompactOptions, *, drops_keyless: bool
) -> tuple[tuple[int, int], CompactionReport]:
    """Compact a partition; return the start and end offset of its log, and the report."""
    with WritableLog.open(directory, config=config, env=directory.env) as log:
        if wanted.rolls:
            log.roll()
        report = log.compact(
            is_forced=not wanted.heeds_ratio,
            drops_keyless=drops_keyless,
            max_bytes_per_second=wanted.max_bytes_per_second,
        )
        return (log.log_start_offset, log.log_end_offset), report


def _planned(
    directory: PartitionDirectory, config: LogConfig, wanted: CompactOptions, *, drops_keyless: bool
) -> tuple[tuple[int, int], CompactionReport]:
    """Return what _compacted would, without changing files or taking a lock."""
    with open_found(directory, config) as log:
        transactions = log.transactions()
        checkpoint = read_checkpoint(directory.root, CLEANER_CHECKPOINT, directory.env)
        bounds = LogBounds(
            log.log_start_offset,
            log.log_end_offset,
            transactions.last_stable_offset,
            checkpoint.get(directory.topic_partition),
        )
        planned = plan_compaction(
            log.segments,
            bounds,
            aborted=transactions.aborted,
            now_ms=directory.env.wall_clock_ms(),
            rolls=wanted.rolls,
            is_forced=not wanted.heeds_ratio,
            drops_keyless=drops_keyless,
            config=config,
            env=directory.env,
        )
        return (log.log_start_offset, log.log_end_offset), _report(planned, log.size_in_bytes)


def _report(planned: PlannedCompaction, size: int) -> CompactionReport:
    start, end = planned.first_dirty_offset, planned.end_offset
    before, after = size, size - planned.saved_bytes
    read, kept = planned.records_read, planned.records_kept
    return CompactionReport(start, end, planned.rounds, before, after, 0, 0, 0, read, kept, planned.segments, False)


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


def json_of_refusal(topic_partition: TopicPartition, error: KeylessRecordsError) -> str:
    """Return the JSON object of a partition that was refused."""
    refusal = {"type": type(error).__name__, "message": str(error), "records_without_key": error.record_count}
    return JSON_TEXT({"topic": topic_partition.topic, "partition": topic_partition.partition, "error": refusal})


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
