"""Commands that describe a root: schemas, stat, report."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from kstore.cli.app import command
from kstore.cli.commands.options import (
    Directory,
    Json,
    MaxDecryptedBytes,
    Partitions,
    Reverse,
    TierEpoch,
    TierKeys,
    TierPlace,
    Topics,
    Watch,
    selection_of,
)
from kstore.cli.output import Output
from kstore.config import MIB


class StatOrder(str, Enum):
    """What `stat` sorts by."""

    NAME = "name"
    SIZE = "size"
    BATCHES = "batches"
    RECORDS = "records"
    RATE = "rate"
    SAVED = "saved"


@command("schemas")
def list_schemas(
    out: Output,
    place: Annotated[
        str, typer.Argument(metavar="DIR|URL", help="A root with _schemas, its partition, or a registry.")
    ],
    subject: Annotated[str | None, typer.Option(metavar="SUBJECT", help="Only the versions of this subject.")] = None,
    get: Annotated[
        str | None, typer.Option("--get", metavar="ID", help="Print the text of a schema, by its id or GUID.")
    ] = None,
    version: Annotated[
        str | None, typer.Option(metavar="N|latest", help="Print the text of this version of the subject.")
    ] = None,
    references: Annotated[
        bool, typer.Option("--references", help="Print the schemas that it refers to first, each with its text.")
    ] = False,
    json: Json = False,
) -> int:
    """List the schemas of a registry, or print one."""
    from kstore.cli.describing import schemas

    return schemas.run(schemas.SchemasWanted(place, subject, get, version, references), out, is_json=json)


@command("stat")
def show_statistics(
    out: Output,
    directory: Directory,
    topic: Topics = None,
    partition: Partitions = None,
    deep: Annotated[
        bool, typer.Option("--deep/--shallow", help="Also decode the records, for keys and ratios, or only headers.")
    ] = True,
    top: Annotated[int, typer.Option(metavar="N", min=0, max=1000, help="Show so many of the largest keys.")] = 3,
    rates: Annotated[bool, typer.Option("--rates", help="Also show records and bytes per second over time.")] = False,
    map_bytes: Annotated[
        int,
        typer.Option(metavar="N", min=1024, max=1 << 40, help="Memory for the map of keys, 24 bytes for each."),
    ] = 128 * MIB,
    sort: Annotated[
        StatOrder | None, typer.Option(help="Sort by this; rate: bytes/s; saved: what compaction saves.")
    ] = None,
    reverse: Reverse = False,
    watch: Watch = None,
    tier: TierPlace = None,
    tier_key: TierKeys = None,
    tier_epoch: TierEpoch = None,
    max_decrypted_bytes: MaxDecryptedBytes = None,
    json: Json = False,
) -> int:
    """Show sizes, rates, largest keys, what compaction saves."""
    from kstore.cli.describing import stat
    from kstore.cli.printing.watching import Order, watched

    wanted = stat.StatOptions(
        decodes=deep, top=top, shows_rates=rates, map_bytes=map_bytes, order=Order.of(sort, is_reversed=reverse)
    )
    selection = selection_of(directory, topic, partition, (tier, tier_key, tier_epoch, max_decrypted_bytes))
    return watched(lambda: stat.run(selection, wanted, out, is_json=json), out, interval_s=watch, is_json=json)


@command("report")
def write_report(
    out: Output,
    directory: Directory,
    topic: Topics = None,
    partition: Partitions = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="The page to write, HTML that loads nothing.")
    ] = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also read the records, for keys, ratios, what compaction saves.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the facts as one JSON object.")] = False,
) -> int:
    """Write a page to look at: contents, health, what is held."""
    from kstore.cli.describing import report

    return report.run(selection_of(directory, topic, partition), out, target=output, is_json=json, is_deep=deep)
