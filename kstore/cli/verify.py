"""`kstore verify`: every damaged range of the selected partitions, by file and position.

A module of its own, as all commands are: app.py imports only the command that runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from kstore.cli import EXIT_DAMAGE, EXIT_FINE
from kstore.cli.arguments import shell_word
from kstore.cli.handed import is_handed_over, partitions_of, place_text
from kstore.cli.output import LOG_COLUMNS, Column, Progress, salvage_command
from kstore.cli.render import (
    DAMAGE_COLUMNS,
    JSON_TEXT,
    LOSS_COLUMNS,
    damage_objects,
    damage_rows,
    likely_text,
    loss_objects,
    loss_rows,
)
from kstore.env import split_path
from kstore.errors import KStoreError
from kstore.log.files.names import SEGMENT_INDEX_SUFFIXES
from kstore.log.verify import Verification, verify, verify_checkpoints
from kstore.store.opening import log_size_in_bytes, open_found
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.cli.arguments import PartitionSelection
    from kstore.cli.output import Output
    from kstore.log.damage import Damage, SuspectedLoss
    from kstore.log.files.names import PartitionDirectory

COLUMNS = (
    *LOG_COLUMNS,
    Column("segments", is_number=True, rank=2),
    Column("batches", is_number=True, rank=1),
    Column("records", is_number=True),
    Column("damaged ranges", is_number=True),
)


@dataclass
class Verdict:
    """The result of verifying one partition. Counts exclude damaged batches."""

    topic: str
    partition: int
    log_start_offset: int
    log_end_offset: int
    segments: int
    batches: int
    records: int
    damage: list[Damage] = field(default_factory=list)
    losses: list[SuspectedLoss] = field(default_factory=list)

    def json(self) -> str:
        """Return the JSON object."""
        shown = {name: value for name, value in vars(self).items() if name not in ("damage", "losses")}
        return JSON_TEXT(
            {**shown, "damage": damage_objects(self.damage), "suspected_losses": loss_objects(self.losses)}
        )

    def row(self) -> list[str]:
        """Return the table cells, in the order of COLUMNS."""
        return [self.topic, *(str(value) for value in list(vars(self).values())[1:-2]), str(len(self.damage))]

    def damage_rows(self) -> list[list[str]]:
        """Return the table cells of each damaged range, in the order of DAMAGE_COLUMNS."""
        topic_partition = TopicPartition(self.topic, self.partition)
        return [[place_text(topic_partition), *cells] for _, *cells in damage_rows(topic_partition, self.damage)]


@dataclass
class VerifyProgress(Progress):
    """The current partition, its batches so far, and the bytes of it that were verified.

    before_bytes: the size of the partitions before.
    """

    partition: str = ""
    verification: Verification | None = None
    before_bytes: int = 0

    def update(self) -> None:
        """Read the progress of the verification."""
        verification = self.verification
        if verification is not None:
            self.label = f"{self.partition}: {verification.batch_count} batches"
            self.done_bytes = self.before_bytes + verification.verified_bytes

    def begin(self, partition: str, verification: Verification) -> None:
        """Continue with the next partition."""
        if self.verification is not None:
            self.before_bytes += self.verification.verified_bytes
        self.partition, self.verification = partition, verification


def run(selection: PartitionSelection, out: Output, *, is_json: bool, is_deep: bool) -> int:
    """Verify the selected partitions and the checkpoints of their roots; return the exit status."""
    status = EXIT_FINE
    partitions = partitions_of(selection, out)
    verdicts: list[Verdict] = []
    losses: list[SuspectedLoss] = []
    not_ours: set[str] = set()
    progress = VerifyProgress()
    with out.progress(progress, total_bytes=partial(log_size_in_bytes, partitions)):
        for partition in partitions:
            try:
                with open_found(partition) as log:
                    verification = verify(log, deep=is_deep, env=partition.env)
                    progress.begin(str(partition.topic_partition), verification)
                    verdict = verdict_of(verification)
                if selection.tier is not None:
                    add_tier(verdict, partition, out)
                if is_handed_over(partition):
                    keep_what_is_there(verdict, partition, out)
                    not_ours.update(fault.path for fault in verdict.damage)
            except KStoreError as error:
                status = max(status, out.partition_failure(error, partition))
                continue
            if verdict.damage:
                status = EXIT_DAMAGE
            losses += verdict.losses
            if is_json:
                out.line(verdict.json())
            else:
                verdicts.append(verdict)
    if verdicts:
        out.table(COLUMNS, [verdict.row() for verdict in verdicts])
        damaged = [row for verdict in verdicts for row in verdict.damage_rows()]
        if damaged:
            out.line("")
            out.table(DAMAGE_COLUMNS, damaged)
            faults = [damage for verdict in verdicts for damage in verdict.damage]
            mendable = [fault for fault in faults if fault.path not in not_ours]
            if mendable and selection.tier is None:
                out.notice(next_step(mendable, selection.directory_of(mendable[0].path)))
    partitions = [partition for partition in partitions if not is_handed_over(partition)]
    roots = {partition.root: partition.env for partition in partitions}
    for root in sorted(roots):
        for path, position, size_in_bytes, reason in verify_checkpoints(root, roots[root]):
            out.notice(f"damage at position {position} of {path} ({size_in_bytes} bytes): {reason}")
            status = EXIT_DAMAGE
    without_directory = selection.losses_of_roots(partitions)
    if is_json:
        for loss in without_directory:
            out.line(json_without_directory(loss))
    return max(status, show_losses([*losses, *without_directory], out, is_json=is_json))


def add_tier(verdict: Verdict, partition: PartitionDirectory, out: Output) -> None:
    """Add what is wrong with the objects of a partition in its tier, and say which of them nothing needs."""
    from kstore.tier.verify import verify_tier

    report = verify_tier(partition)
    verdict.damage += report.damage
    for orphan in report.orphans:
        out.notice(f"{orphan.size_in_bytes} bytes of {orphan.stem} are of no use: {orphan.reason}")


def keep_what_is_there(verdict: Verdict, partition: PartitionDirectory, out: Output) -> None:
    """Leave out that an index is missing, since segments may be alone, and name files as they were given."""
    verdict.damage = [
        fault._replace(path=out.shown_paths.get(fault.path, fault.path))
        for fault in verdict.damage
        if partition.env.stat(fault.path) is not None
    ]


def show_losses(losses: list[SuspectedLoss], out: Output, *, is_json: bool) -> int:
    """Write the table of suspected losses, unless the output is JSON, and a line of those that are likely; return the
    exit status: 1 if one is proven.
    """
    if losses and not is_json:
        out.line("")
        out.table(LOSS_COLUMNS, loss_rows(losses))
    likely = [loss for loss in losses if not loss.is_proven]
    if likely:
        out.notice(likely_text(likely))
    return EXIT_DAMAGE if len(likely) < len(losses) else EXIT_FINE


def json_without_directory(loss: SuspectedLoss) -> str:
    """Return the JSON object of a partition that has no directory."""
    topic, partition = loss.topic_partition
    shown = {name: None for name in Verdict.__annotations__ if name not in ("damage", "losses")}
    return JSON_TEXT(
        {**shown, "topic": topic, "partition": partition, "damage": [], "suspected_losses": loss_objects([loss])}
    )


def next_step(damage: list[Damage], directory: str) -> str:
    """Return the command that repairs the damage: indexes alone are rebuilt by recovery in every mode."""
    if all(split_path(fault.path)[1].endswith(SEGMENT_INDEX_SUFFIXES) for fault in damage):
        return f"next: kstore recover {shell_word(directory)} rebuilds the indexes"
    return f"next: {salvage_command(directory)} shows what can be kept, and changes nothing"


def verdict_of(verification: Verification) -> Verdict:
    """Run the verification to its end and return the result."""
    verified = verification.result()
    topic, partition = verified.topic_partition
    return Verdict(
        topic,
        partition,
        log_start_offset=verified.log_start_offset,
        log_end_offset=verified.log_end_offset,
        segments=verified.segment_count,
        batches=verified.batch_count,
        records=verified.record_count,
        damage=list(verified.damage),
        losses=list(verified.losses),
    )
