"""`kstore recover`: brings partitions to a state that can be appended to, and says what that took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kstore.cli import EXIT_DAMAGE, EXIT_FINE
from kstore.cli.output import Column
from kstore.cli.render import JSON_TEXT
from kstore.log.env import split_path
from kstore.log.filenames import CLUSTER_METADATA_TOPIC
from kstore.log.recovering import recover_partitions

if TYPE_CHECKING:
    from kstore.cli.arguments import Selection
    from kstore.cli.output import Output
    from kstore.log.recovery_report import RecoveryMode, RecoveryReport
    from kstore.types import TopicPartition

COLUMNS = (
    Column("topic"),
    Column("partition", is_number=True),
    Column("log start", is_number=True),
    Column("log end", is_number=True),
    Column("cut bytes", is_number=True),
    Column("deleted segments", is_number=True),
    Column("rebuilt files", is_number=True),
    Column("damaged ranges", is_number=True),
)
DAMAGE_COLUMNS = (
    Column("partition"),
    Column("file"),
    Column("position", is_number=True),
    Column("size", is_number=True),
    Column("reason"),
)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """How to recover."""

    mode: RecoveryMode
    dry_run: bool
    keeps_copies: bool


def run(selection: Selection, wanted: Wanted, out: Output, *, is_json: bool) -> int:
    """Recover the selected partitions and return the exit status: 1 if anything was cut, damaged or refused."""
    status = EXIT_FINE
    rows: list[list[str]] = []
    damage_rows: list[list[str]] = []
    directories = [one for one in selection.find() if one.topic_partition.topic != CLUSTER_METADATA_TOPIC]
    for directory, report, refusal in recover_partitions(
        directories, wanted.mode, dry_run=wanted.dry_run, keeps_copies=wanted.keeps_copies
    ):
        if report is None:
            if refusal is not None:
                status = max(status, out.failure(refusal))
            continue
        if not report.is_unharmed:
            status = EXIT_DAMAGE
        if is_json:
            out.line(json_of(directory.topic_partition, report))
        else:
            rows.append(row_of(directory.topic_partition, report))
            damage_rows += damage_rows_of(directory.topic_partition, report)
    if rows:
        out.table(COLUMNS, rows)
    if damage_rows:
        out.line("")
        out.table(DAMAGE_COLUMNS, damage_rows)
    return status


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
            "damage": [
                {"file": split_path(path)[1], "position": position, "size": size_in_bytes, "reason": reason}
                for path, position, size_in_bytes, reason in report.damage
            ],
            "quarantined": list(report.quarantined),
        }
    )


def row_of(topic_partition: TopicPartition, report: RecoveryReport) -> list[str]:
    """Return the table cells, as COLUMNS."""
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


def damage_rows_of(topic_partition: TopicPartition, report: RecoveryReport) -> list[list[str]]:
    """Return the table cells of each damage, as DAMAGE_COLUMNS."""
    return [
        [str(topic_partition), split_path(path)[1], str(position), str(size_in_bytes), reason]
        for path, position, size_in_bytes, reason in report.damage
    ]
