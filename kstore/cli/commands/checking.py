"""Commands that check logs and repair them: verify, recover."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from kstore.cli.app import command
from kstore.cli.arguments import WrongUseError
from kstore.cli.commands.options import (
    Directories,
    Directory,
    Json,
    MaxDecryptedBytes,
    Partitions,
    TierEpoch,
    TierKeys,
    TierPlace,
    Topics,
    selection_of,
)
from kstore.cli.output import Output


class Recovery(str, Enum):
    """How `recover` treats damage."""

    STRICT = "strict"
    POINT_IN_TIME = "point_in_time"
    SALVAGE = "salvage"


@command("verify")
def verify_partitions(
    out: Output,
    directory: Directories,
    topic: Topics = None,
    partition: Partitions = None,
    deep: Annotated[
        bool,
        typer.Option("--deep/--shallow", help="Also decode records and check side files, or only headers and CRCs."),
    ] = True,
    tier: TierPlace = None,
    tier_key: TierKeys = None,
    tier_epoch: TierEpoch = None,
    max_decrypted_bytes: MaxDecryptedBytes = None,
    json: Json = False,
) -> int:
    """Check every batch and index entry and list damaged ranges."""
    from kstore.cli import verify

    return verify.run(
        selection_of(directory, topic, partition, (tier, tier_key, tier_epoch, max_decrypted_bytes)),
        out,
        is_json=json,
        is_deep=deep,
    )


@command("recover")
def recover_partitions(
    out: Output,
    directory: Directory,
    topic: Topics = None,
    partition: Partitions = None,
    mode: Annotated[
        Recovery,
        typer.Option(
            help="What to do about damage of durable records. strict: refuse, leave the log as it is. "
            "point_in_time: as Kafka, end the log before the first damage from the segment of the recovery point on; "
            "older damage is left in place. salvage: remove damage anywhere, keep all other whole batches."
        ),
    ] = Recovery.STRICT,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing, report what would be done.")] = False,
    copies: Annotated[
        bool,
        typer.Option(
            "--copies/--no-copies", help="Keep a copy of removed bytes, in kstore-quarantine/ of the partition."
        ),
    ] = True,
    trust_recovery_point: Annotated[
        bool,
        typer.Option("--trust-recovery-point", help="Skip segments below the recovery point, as Kafka does."),
    ] = False,
    json: Json = False,
) -> int:
    """Recover logs after a crash and report what was changed."""
    from kstore.cli import recover

    if trust_recovery_point and mode is Recovery.SALVAGE:
        raise WrongUseError("--trust-recovery-point can't be used with --mode salvage, which reads every segment")
    wanted = recover.RecoverOptions(
        mode=mode.value, dry_run=dry_run, keeps_copies=copies, trusts_recovery_point=trust_recovery_point
    )
    return recover.run(selection_of(directory, topic, partition), wanted, out, is_json=json)
