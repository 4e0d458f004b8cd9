"""`kstore recover`: repair partitions so that they can be appended to, and report what was changed.

A module of its own, as all commands are: app.py imports only the command that runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kstore.cli import EXIT_DAMAGE, EXIT_FINE
from kstore.cli.output import LOG_COLUMNS, Column, Progress, salvage_command
from kstore.cli.render import (
    DAMAGE_COLUMNS,
    JSON_TEXT,
    damage_objects,
    damage_rows,
    loss_objects,
    loss_text,
    range_text,
)
from kstore.env import split_path
from kstore.log.damage import LostOffsets, joined_ranges
from kstore.log.recovery.context import LEFT_IN_PLACE
from kstore.log.recovery.load import DAMAGE_LOGGER
from kstore.store.opening import log_size_in_bytes
from kstore.store.upkeep.recovering import passes_of, recover_partitions, recoverable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kstore.cli.arguments import PartitionSelection
    from kstore.cli.output import Output
    from kstore.errors import KStoreError
    from kstore.log.files.names import PartitionDirectory
    from kstore.log.recovery.context import RecoveryReport
    from kstore.log.recovery.modes import RecoveryMode
    from kstore.store.upkeep.recovering import RecoveredPartition
    from kstore.types import TopicPartition

COLUMNS = (
    *LOG_COLUMNS,
    Column("truncated bytes", is_number=True),
    Column("deleted segments", is_number=True, rank=2),
    Column("rebuilt files", is_number=True, rank=3),
    Column("damaged ranges", is_number=True, rank=1),
)
# The columns of the damaged ranges: those of `verify`, with what recovery did before the reason.
RECOVERED_COLUMNS = (
    *DAMAGE_COLUMNS[:-1],
    Column("lost offsets"),
    Column("outcome", wraps=True),
    DAMAGE_COLUMNS[-1],
)
COPIES_COLUMNS = (Column("partition"), Column("copies", is_number=True), Column("copied to"))


@dataclass(frozen=True, kw_only=True)
class RecoverOptions:
    """The options of a recovery."""

    mode: RecoveryMode
    dry_run: bool
    keeps_copies: bool
    trusts_recovery_point: bool


def run(selection: PartitionSelection, wanted: RecoverOptions, out: Output, *, is_json: bool) -> int:
    """Recover the selected partitions and return the exit status: 1 if one was truncated, damaged or refused.

    If an error ends the command, the partitions recovered before it are still shown. __cluster_metadata is skipped.
    """
    directories = recoverable(selection.find())
    out.hidden_loggers.add(DAMAGE_LOGGER)
    progress = Progress()
    reports: list[RecoveredPartition] = []
    try:
        with out.progress(progress, total_bytes=lambda: passes_of(wanted.mode) * log_size_in_bytes(directories)):
            return recover_all(directories, wanted, out, progress, reports if not is_json else None)
    finally:
        show(reports, out, is_dry=wanted.dry_run)


def recover_all(
    directories: list[PartitionDirectory],
    wanted: RecoverOptions,
    out: Output,
    progress: Progress,
    reports: list[RecoveredPartition] | None,
) -> int:
    """Recover the partitions and return the exit status. Outcomes go to `reports`, or out as JSON if that is None."""

    def count(read_bytes: int) -> None:
        progress.done_bytes += read_bytes

    recovered = recover_partitions(
        directories,
        wanted.mode,
        dry_run=wanted.dry_run,
        keeps_copies=wanted.keeps_copies,
        trusts_recovery_point=wanted.trusts_recovery_point,
        on_read=count,
    )
    status = EXIT_FINE
    for partition in recovered:
        progress.label = f"{partition.directory.topic_partition} recovered"
        if partition.report is None:
            if partition.refusal is not None:
                status = max(status, out.failure(partition.refusal))
                if reports is None:
                    out.line(json_of_refusal(partition.directory.topic_partition, partition.refusal))
            continue
        if not partition.report.is_unharmed:
            status = EXIT_DAMAGE
        for loss in partition.report.losses:
            out.notice(loss_text(loss))
        if reports is None:
            out.line(json_of(partition.directory.topic_partition, partition.report))
        else:
            reports.append(partition)
    return status


def show(recovered: list[RecoveredPartition], out: Output, *, is_dry: bool) -> None:
    """Write one table of the partitions, one of their damage and one of the copies, and what can be done next."""
    reports = [(partition.directory, partition.report) for partition in recovered if partition.report is not None]
    if not reports:
        return
    out.table(COLUMNS, [row_of(directory.topic_partition, report) for directory, report in reports])
    damaged = [row for directory, report in reports for row in outcome_rows(directory.topic_partition, report)]
    copies = [
        [str(directory.topic_partition), str(len(report.quarantined)), split_path(report.quarantined[0])[0]]
        for directory, report in reports
        if report.quarantined
    ]
    for columns, rows in ((RECOVERED_COLUMNS, damaged), (COPIES_COLUMNS, copies)):
        if rows:
            out.line("")
            out.table(columns, rows)
    if is_dry:
        out.notice("dry run: nothing was changed")
    for directory, report in reports:
        if report.preallocated_bytes:
            out.notice(
                f"{directory.topic_partition}: {report.preallocated_bytes} zero bytes after the last batch are no "
                "damage: space that a writer reserves, or batches that were never flushed"
            )
        count = sum(outcome.action == LEFT_IN_PLACE for outcome in report.outcomes)
        if count:
            segments = "1 older segment" if count == 1 else f"{count} older segments"
            out.notice(
                f"{directory.topic_partition}: damage was left in place in {segments}, and reads of the lost offsets "
                f"fail; next: {salvage_command(directory.path)}"
            )


def outcome_rows(topic_partition: TopicPartition, report: RecoveryReport) -> list[list[str]]:
    """Return the table cells of each damaged range, in the order of RECOVERED_COLUMNS."""
    rows = damage_rows(topic_partition, report.damage)
    return [
        [*row[:-1], range_text(outcome.lost_start_offset, outcome.lost_end_offset), outcome.action, row[-1]]
        for row, outcome in zip(rows, report.outcomes, strict=True)
    ]


def outcome_objects(report: RecoveryReport) -> list[dict[str, object]]:
    """Return the JSON object of each damaged range: that of `verify`, and what recovery did with it."""
    return [
        {**shown, "action": action, "lost_start_offset": start, "lost_end_offset": end}
        for shown, (action, start, end) in zip(damage_objects(report.damage), report.outcomes, strict=True)
    ]


def json_of(topic_partition: TopicPartition, report: RecoveryReport) -> str:
    """Return the JSON object of one partition."""
    return JSON_TEXT(
        {
            "topic": topic_partition.topic,
            "partition": topic_partition.partition,
            "log_start_offset": report.log_start_offset,
            "log_end_offset": report.log_end_offset,
            "truncated_bytes": report.truncated_bytes,
            "preallocated_bytes": report.preallocated_bytes,
            "deleted_segments": list(report.deleted_segments),
            "rebuilt": list(report.rebuilt),
            "damage": outcome_objects(report),
            "quarantined": list(report.quarantined),
            "lost": lost_objects(report.lost),
            "suspected_losses": loss_objects(report.losses),
        }
    )


def lost_objects(lost: Iterable[LostOffsets]) -> list[dict[str, object]]:
    """Return the JSON object of each range of lost offsets; the last one is null if it is not known."""
    return [{"first_offset": start, "last_offset": None if end is None else end - 1} for start, end in lost]


def json_of_refusal(topic_partition: TopicPartition, error: KStoreError) -> str:
    """Return the JSON object of a partition that was not recovered: its files are as they were."""
    start, end = getattr(error, "base_offset", None), getattr(error, "lost_end_offset", None)
    shown = {
        "type": type(error).__name__,
        "message": str(error),
        "path": error.path,
        "position": getattr(error, "position", None),
        "lost_start_offset": start,
        "lost_end_offset": end,
    }
    lost = () if start is None else joined_ranges([LostOffsets(start, end)])
    return JSON_TEXT(
        {
            "topic": topic_partition.topic,
            "partition": topic_partition.partition,
            "error": shown,
            "lost": lost_objects(lost),
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
