"""Commands that show records and files: ls, cat, dump, offsets."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from kstore.cli.app import command
from kstore.cli.arguments import WrongUseError, parse_offset, parse_timestamp_ms
from kstore.cli.commands.options import (
    Directories,
    EndOffset,
    Isolated,
    Isolation,
    Json,
    KeyEquals,
    KeyName,
    KeyRegex,
    MaxDecryptedBytes,
    MessageName,
    Mode,
    Partitions,
    ProducerId,
    RecordFormatName,
    Reverse,
    SchemaFile,
    SchemaId,
    SchemasPlace,
    Since,
    SkipDamaged,
    TierEpoch,
    TierKeys,
    TierPlace,
    Topics,
    Until,
    ValueMode,
    ValueName,
    ValueRegex,
    Watch,
    WithHeaders,
    search_of,
    selection_of,
)
from kstore.cli.output import Output
from kstore.types import MAX_OFFSET

Limit = Annotated[int | None, typer.Option(metavar="N", min=0, max=MAX_OFFSET, help="Show at most N records.")]


class ListOrder(str, Enum):
    """What `ls` sorts by."""

    NAME = "name"
    SIZE = "size"
    OFFSET = "offset"
    SEGMENTS = "segments"
    TIME = "time"


@command("ls")
def list_partitions(
    out: Output,
    directory: Directories,
    topic: Topics = None,
    partition: Partitions = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Read every batch for magics and codecs, not just the start of each file.")
    ] = False,
    human: Annotated[bool, typer.Option("--human", "-H", help="Sizes in kB, MB, GB.")] = False,
    topics: Annotated[bool, typer.Option("--topics", help="Only the total of each topic.")] = False,
    sort: Annotated[ListOrder | None, typer.Option(help="Sort by this; offset: the log end; time: the last.")] = None,
    reverse: Reverse = False,
    watch: Watch = None,
    tier: TierPlace = None,
    tier_key: TierKeys = None,
    tier_epoch: TierEpoch = None,
    max_decrypted_bytes: MaxDecryptedBytes = None,
    json: Json = False,
) -> int:
    """List partitions: offsets, size, times, codecs."""
    from kstore.cli import ls
    from kstore.cli.printing.watching import watched

    wanted = ls.ListOptions(
        is_json=json,
        is_exact=exact,
        is_human=human,
        by_topic=topics,
        sort=None if sort is None else sort.value,
        is_reversed=reverse,
    )
    selection = selection_of(directory, topic, partition, (tier, tier_key, tier_epoch, max_decrypted_bytes))
    return watched(lambda: ls.run(selection, wanted, out), out, interval_s=watch, is_json=json)


@command("cat")
def print_records(
    out: Output,
    directory: Directories,
    topic: Topics = None,
    partition: Partitions = None,
    start: Annotated[
        str, typer.Option("--from", metavar="N|-N|earliest|latest", help="First offset; -N: N before the end.")
    ] = "earliest",
    end: EndOffset = "latest",
    since: Since = None,
    until: Until = None,
    limit: Limit = None,
    control: Annotated[bool, typer.Option("--control", help="Also show control records.")] = False,
    isolation: Isolated = Isolation.READ_UNCOMMITTED,
    value: ValueName = None,
    key: KeyName = None,
    schemas: SchemasPlace = None,
    schema: SchemaFile = None,
    schema_id: SchemaId = None,
    message: MessageName = None,
    mode: Mode = ValueMode.PERMISSIVE,
    skip_damaged: SkipDamaged = False,
    key_equals: KeyEquals = None,
    key_regex: KeyRegex = None,
    value_regex: ValueRegex = None,
    header: WithHeaders = None,
    producer_id: ProducerId = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with the records that come, until Ctrl-C.")
    ] = False,
    record_format: RecordFormatName = None,
    tier: TierPlace = None,
    tier_key: TierKeys = None,
    tier_epoch: TierEpoch = None,
    max_decrypted_bytes: MaxDecryptedBytes = None,
    json: Json = False,
) -> int:
    """Print records, one partition after another, or find some."""
    from kstore.cli.printing import cat
    from kstore.cli.printing.formats import format_of
    from kstore.cli.printing.values import FormatOptions, ValueDecoding

    wanted = cat.CatOptions(
        start_offset=parse_offset(start, option="--from", counts_from_end=True),
        end_offset=parse_offset(end, option="--to"),
        since_ms=None if since is None else parse_timestamp_ms(since, option="--since"),
        until_ms=None if until is None else parse_timestamp_ms(until, option="--until"),
        limit=limit,
        with_control=control,
        only_committed=isolation is Isolation.READ_COMMITTED,
        decoding=ValueDecoding.of(FormatOptions(value, key, schemas, schema, schema_id, message), mode.value),
        skips_damaged=skip_damaged,
        search=search_of(key_equals, key_regex, value_regex, header, producer_id),
    )
    shown_as = format_of(record_format, is_json=json, with_control=control, is_decoded=wanted.decoding is not None)
    selection = selection_of(directory, topic, partition, (tier, tier_key, tier_epoch, max_decrypted_bytes))
    if not follow:
        return cat.run(selection, wanted, shown_as, out)
    from kstore.cli.printing import follow as following

    if end != "latest" or until is not None or skip_damaged:
        raise WrongUseError("--follow takes no --to, --until or --skip-damaged: it has no end, and waits at damage")
    return following.run(selection, wanted, shown_as, out)


@command("dump")
def dump_files(
    out: Output,
    path: Annotated[
        list[str],
        typer.Argument(metavar="FILE|DIR...", help="Files of a partition or of a root, or such directories."),
    ],
    topic: Topics = None,
    partition: Partitions = None,
    records: Annotated[bool, typer.Option("--records", help="Also show the records of each batch.")] = False,
    start: Annotated[
        str, typer.Option("--from", metavar="N|earliest", help="Only batches and entries with offsets from here on.")
    ] = "earliest",
    end: EndOffset = "latest",
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Show at most N batches or entries of each file.")
    ] = None,
    max_bytes: Annotated[
        int | None, typer.Option("--max-bytes", metavar="N", min=0, help="Only batches in the first N bytes of a file.")
    ] = None,
    index_only: Annotated[bool, typer.Option("--index-only", help="Only the entries of indexes.")] = False,
    offsets: Annotated[
        bool, typer.Option("--offsets-decoder", help="Show records, decoded as __consumer_offsets records.")
    ] = False,
    transactions: Annotated[
        bool, typer.Option("--transaction-log-decoder", help="Show records, decoded as __transaction_state records.")
    ] = False,
    share_state: Annotated[
        bool, typer.Option("--share-group-state-decoder", help="Show records, decoded as __share_group_state records.")
    ] = False,
    metadata: Annotated[
        bool, typer.Option("--cluster-metadata-decoder", help="Show records, decoded as __cluster_metadata records.")
    ] = False,
    remote_log: Annotated[
        bool,
        typer.Option("--remote-log-metadata-decoder", help="Show records, decoded as __remote_log_metadata records."),
    ] = False,
    json: Json = False,
) -> int:
    """Show each batch or index entry of a file, even if damaged."""
    from kstore.cli import dump
    from kstore.cli.decoders import Decoder

    options = (offsets, transactions, share_state, metadata, remote_log)
    wanted = [kind for kind, is_set in zip(Decoder, options, strict=True) if is_set]
    if len(wanted) > 1:
        raise WrongUseError(f"only one decoder at a time, got {' and '.join(kind.value for kind in wanted)}")
    decoder = wanted[0] if wanted else None
    wanted_range = dump.DumpRange(
        start_offset=parse_offset(start, option="--from"),
        end_offset=parse_offset(end, option="--to"),
        limit=limit,
        max_bytes=max_bytes,
        indexes_only=index_only,
    )
    style = dump.Style(is_json=json, with_records=records or decoder is not None, decoder=decoder, wanted=wanted_range)
    return dump.run(selection_of(path, topic, partition), out, style)


@command("offsets")
def list_offsets(
    out: Output,
    directory: Directories,
    time: Annotated[
        str,
        typer.Option(
            metavar="TIME|earliest|latest|max-timestamp", help="Epoch ms, ISO-8601 (UTC by default), or a name."
        ),
    ],
    topic: Topics = None,
    partition: Partitions = None,
    isolation: Annotated[
        Isolation, typer.Option(help="read_committed: the log ends at the last stable offset.")
    ] = Isolation.READ_UNCOMMITTED,
    tier: TierPlace = None,
    tier_key: TierKeys = None,
    tier_epoch: TierEpoch = None,
    max_decrypted_bytes: MaxDecryptedBytes = None,
    json: Json = False,
) -> int:
    """Show the first offset at or after a time."""
    from kstore.cli import offsets

    wanted = offsets.OffsetQuery(offsets.parse_time(time), only_committed=isolation is Isolation.READ_COMMITTED)
    return offsets.run(
        selection_of(directory, topic, partition, (tier, tier_key, tier_epoch, max_decrypted_bytes)),
        wanted,
        out,
        is_json=json,
    )
