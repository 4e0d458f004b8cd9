"""`kstore move`: partitions from one log directory of a broker to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.cli import EXIT_FINE
from kstore.cli.arguments import WrongUseError
from kstore.cli.output import Column
from kstore.cli.render import JSON_TEXT
from kstore.log.files.names import CLUSTER_METADATA_TOPIC
from kstore.store.upkeep.moving import move_partition, plan_move

if TYPE_CHECKING:
    from kstore.cli.arguments import PartitionSelection
    from kstore.cli.output import Output
    from kstore.store.upkeep.moving import PlannedMove

COLUMNS = (
    Column("topic"),
    Column("partition", is_number=True),
    Column("files", is_number=True),
    Column("bytes", is_number=True),
    Column("from"),
    Column("to"),
)


def run(selection: PartitionSelection, target: str, out: Output, *, is_dry: bool, is_json: bool) -> int:
    """Move the selected partitions, which are named, to another root, and return the exit status.

    All of them are looked at before the first is moved.
    """
    directories = [directory for directory in selection.find() if selection.names(directory)]
    if not directories:
        raise WrongUseError("name what to move: --topic TOPIC, or pass the directory of a partition")
    if any(directory.topic_partition.topic == CLUSTER_METADATA_TOPIC for directory in directories):
        raise WrongUseError(f"{CLUSTER_METADATA_TOPIC} is where metadata.log.dir says: it cannot be moved")
    try:
        plans = [plan_move(directory, target) for directory in directories]
        done = plans if is_dry else [move_partition(directory, target) for directory in directories]
    except ValueError as error:
        raise WrongUseError(str(error)) from error
    if is_json:
        for plan in done:
            out.line(JSON_TEXT(json_of(plan, is_dry=is_dry)))
    else:
        out.table(COLUMNS, [_row(plan) for plan in done])
    if is_dry:
        out.notice("dry run: nothing was changed")
    return EXIT_FINE


def json_of(plan: PlannedMove, *, is_dry: bool) -> dict[str, object]:
    """Return the JSON object of a move."""
    return {
        "topic": plan.directory.topic_partition.topic,
        "partition": plan.directory.topic_partition.partition,
        "from": plan.directory.path,
        "to": plan.target,
        "files": plan.file_count,
        "size_in_bytes": plan.size_in_bytes,
        "dry_run": is_dry,
    }


def _row(plan: PlannedMove) -> list[str]:
    topic, partition = plan.directory.topic_partition
    return [
        topic,
        str(partition),
        str(plan.file_count),
        str(plan.size_in_bytes),
        plan.directory.root,
        plan.target_root,
    ]
