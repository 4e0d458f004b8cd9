"""`kstore recover`: repair partitions so that they can be appended to, and report what was changed.

A module of its own, as all commands are: app.py imports only the command that runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kstore.cli import EXIT_DAMAGE, EXIT_FINE
from kstore.cli.output import LOG_COLUMNS, Column
from kstore.cli.render import DAMAGE_COLUMNS, JSON_TEXT, damage_objects, damage_rows
from kstore.log.files.names import CLUSTER_METADATA_TOPIC
from kstore.log.recovery.load import DAMAGE_LOGGER
from kstore.log.store import recover_partitions

if TYPE_CHECKING:
    from kstore.cli.arguments import PartitionSelection
    from kstore.cli.output import Output
    from kstore.log.recovery.context import RecoveryMode, RecoveryReport
    from kstore.types import TopicPartition

COLUMNS = (
    *LOG_COLUMNS,
    Column("truncated bytes", is_number=True),
    Column("deleted segments", is_number=True),
    Column("rebuilt files", is_number=True),
    Column("damaged ranges", is_number=True),
)


@dataclass(frozen=True, kw_only=True)
class RecoverOptions:
    """The options of a recovery."""

    mode: RecoveryMode
    dry_run: bool
    keeps_copies: bool
    trusts_recovery_point: bool


def run(selection: PartitionSelection, wanted: RecoverOptions, out: Output, *, is_json: bool) -> int:
    """Recover the selected partitions and return the exit status: 1 if one was truncated, damaged or refused.

    If an error ends the command, the partitions recovered before it are still shown. __cluster_metadata is left alone.
    """
    status = EXIT_FINE
    out.hidden_loggers.add(DAMAGE_LOGGER)
    reports: list[tuple[TopicPartition, RecoveryReport]] = []
    directories = [one for one in selection.find() if one.topic_partition.topic != CLUSTER_METADATA_TOPIC]
    recovered = recover_partitions(
        directories,
        wanted.mode,
        dry_run=wanted.dry_run,
        keeps_copies=wanted.keeps_copies,
        trusts_recovery_point=wanted.trusts_recovery_point,
    )
    try:
        for directory, report, refusal in recovered:
            if report is None:
                if refusal is not None:
                    status = max(status, out.failure(refusal))
                continue
            if not report.is_unharmed:
                status = EXIT_DAMAGE
            if is_json:
                out.line(json_of(directory.topic_partition, report))
            else:
                reports.append((directory.topic_partition, report))
    finally:
        if reports:
            show(reports, out)
    return status


def show(reports: list[tuple[TopicPartition, RecoveryReport]], out: Output) -> None:
    """Write one table of the partitions, and one of their damage."""
    out.table(COLUMNS, [row_of(topic_partition, report) for topic_partition, report in reports])
    damaged = [row for topic_partition, report in reports for row in damage_rows(topic_partition, report.damage)]
    if damaged:
        out.line("")
        out.table(DAMAGE_COLUMNS, damaged)


def json_of(topic_partition: TopicPartition, report: RecoveryReport) -> str:
    """Return the JSON object of one partition."""
    return JSON_TEXT(
        {
            "topic": topic_partition.topic,
            "partition": topic_partition.partition,
            "log_start_offset": report.log_start_offset,
            "log_end_offset": report.log_end_offset,
            "truncated_bytes": report.truncated_bytes,
            "deleted_segments": list(report.deleted_segments),
            "rebuilt": list(report.rebuilt),
            "damage": damage_objects(report.damage),
            "quarantined": list(report.quarantined),
        }
    )


def row_of(topic_partition: TopicPartition, report: RecoveryReport) -> list[str]:
    """Return the table cells, in the order of COLUMNS."""
    numbers = (
        topic_partition.partition,
        report.log_start_offset,
        report.log_end_offset,
        report.truncated_bytes,
        len(report.deleted_segments),
        len(report.rebuilt),
        len(report.damage),
    )
    return [topic_partition.topic, *map(str, numbers)]
