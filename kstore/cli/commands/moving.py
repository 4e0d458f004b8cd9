"""Commands that take records in and out: import, export, restore, replay."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from kstore.cli.app import command
from kstore.cli.commands.options import (
    Directory,
    EndOffset,
    Isolated,
    Isolation,
    Json,
    KeyName,
    MaxDecryptedBytes,
    MessageName,
    Mode,
    Partitions,
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
    selection_of,
)
from kstore.cli.output import Output
from kstore.config import CodecName


class Format(str, Enum):
    """The formats of `export`."""

    PARQUET = "parquet"
    ARROW = "arrow"
    KSTORE = "kstore"


class ImportFormat(str, Enum):
    """The formats of `import`."""

    JSON = "json"
    KCAT = "kcat"
    CSV = "csv"
    LINES = "lines"
    PARQUET = "parquet"
    ARROW = "arrow"


class LastBatch(str, Enum):
    """What `export --format kstore` does with a batch that spans the end."""

    KEEP = "keep"
    DROP = "drop"


class OpenTransactions(str, Enum):
    """Where `export --format kstore` and `restore` end in a log with open transactions."""

    WAIT = "wait"
    KEEP = "keep"


FirstOffset = Annotated[str, typer.Option("--from", metavar="N|earliest|latest", help="First offset.")]
Flatten = Annotated[
    bool, typer.Option("--flatten", help="Make columns of the fields of values and keys that are records.")
]
TopicIds = Annotated[
    list[str] | None, typer.Option("--topic-id", metavar="TOPIC=ID", help="Format kstore: an id for a topic.")
]
Table = Annotated[
    str | None,
    typer.Option(
        "--to-table",
        metavar="TABLE",
        help="delta:URI or iceberg:CATALOG.NAMESPACE.TABLE; with {topic} in it, a table of each topic.",
    ),
]
TableColumns = Annotated[
    list[str] | None, typer.Option(metavar="A,B,...", help="Columns that partition a table; the date by default.")
]


@command("import")
def import_records(
    out: Output,
    path: Annotated[
        str,
        typer.Argument(
            metavar="IN",
            help="JSON of `kstore cat --json` or kcat -J, CSV, lines (- for standard input), Parquet, Arrow; a root.",
        ),
    ],
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="A log.dirs root, created if missing, or a partition.")
    ],
    topic: Annotated[str | None, typer.Option(metavar="TOPIC", help="Overrides the topics of the records.")] = None,
    partition: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Overrides the partitions of the records.")
    ] = None,
    compression: Annotated[CodecName, typer.Option(help="Codec of the batches.")] = "none",
    batch_bytes: Annotated[
        int, typer.Option(metavar="N", min=1, max=1 << 30, help="Uncompressed size of a batch in bytes.")
    ] = 1 << 16,
    keep_offsets: Annotated[
        bool, typer.Option("--keep-offsets", help="Keep the records' own offsets, which must increase.")
    ] = False,
    format: Annotated[
        ImportFormat | None,
        typer.Option(help="Default: by the suffix, .csv, .tsv, .txt, .parquet, .arrow, ...; else JSON."),
    ] = None,
    key_column: Annotated[str | None, typer.Option(metavar="NAME", help="CSV: the column of keys.")] = None,
    value_column: Annotated[str | None, typer.Option(metavar="NAME", help="CSV: of values.")] = None,
    timestamp_column: Annotated[str | None, typer.Option(metavar="NAME", help="CSV: of times, in ms.")] = None,
    topic_column: Annotated[str | None, typer.Option(metavar="NAME", help="CSV: of topics.")] = None,
    partition_column: Annotated[str | None, typer.Option(metavar="NAME", help="CSV: of partitions.")] = None,
    offset_column: Annotated[str | None, typer.Option(metavar="NAME", help="CSV: of offsets.")] = None,
    delimiter: Annotated[str | None, typer.Option(metavar="C", help="CSV: between fields; default: comma.")] = None,
    no_header: Annotated[
        bool, typer.Option("--no-header", help="CSV: no line of names; columns are numbers from 1.")
    ] = False,
    lines: Annotated[bool, typer.Option("--lines", help="As --format lines: each line is a value.")] = False,
    key_separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Lines: what is between key and value; no keys without it.")
    ] = None,
    null: Annotated[str | None, typer.Option(metavar="TEXT", help="CSV, lines: what stands for null.")] = None,
    from_line: Annotated[int, typer.Option(metavar="N", min=1, help="Begin at this line of the file.")] = 1,
    json: Json = False,
) -> int:
    """Append the records of a file, or a whole root as it is."""
    from kstore.cli.importing import command as importing
    from kstore.cli.importing.rows import TextOptions

    columns = key_column, value_column, timestamp_column, topic_column, partition_column, offset_column
    wanted = importing.ImportOptions(
        path=path,
        directory=directory,
        topic=topic,
        partition=partition,
        compression=compression,
        batch_bytes=batch_bytes,
        keeps_offsets=keep_offsets,
        format="lines" if lines else format and format.value,
        text=TextOptions(*columns, delimiter, no_header, key_separator, null),
        from_line=from_line,
    )
    return importing.run(wanted, out, is_json=json)


@command("export")
def export_records(
    out: Output,
    directory: Directory,
    target: Annotated[
        str | None, typer.Argument(metavar="OUT", help="A directory: new, empty, or that of an earlier run.")
    ] = None,
    format: Annotated[
        Format, typer.Option(help="kstore: batches as they are, in segments that a broker loads.")
    ] = Format.PARQUET,
    topic: Topics = None,
    partition: Partitions = None,
    start: FirstOffset = "earliest",
    end: EndOffset = "latest",
    since: Since = None,
    until: Until = None,
    isolation: Isolated = Isolation.READ_UNCOMMITTED,
    columns: Annotated[list[str] | None, typer.Option(metavar="A,B,...", help="Columns, as of kstore.scan.")] = None,
    strings: Annotated[list[str] | None, typer.Option(metavar="key,value", help="Columns that are text.")] = None,
    value: ValueName = None,
    key: KeyName = None,
    schemas: SchemasPlace = None,
    schema: SchemaFile = None,
    message: MessageName = None,
    schema_id: SchemaId = None,
    mode: Mode = ValueMode.PERMISSIVE,
    flatten: Flatten = False,
    codec: Annotated[
        str | None, typer.Option(metavar="NAME", help="Codec of Parquet (snappy) or Arrow (none).")
    ] = None,
    row_group_rows: Annotated[int | None, typer.Option(metavar="N", min=1, help="Rows of a row group.")] = None,
    file_bytes: Annotated[int | None, typer.Option(metavar="N", min=4096, help="Size of a file, about.")] = None,
    last_batch: Annotated[
        LastBatch, typer.Option(help="Format kstore: whether a batch that spans the end is kept whole.")
    ] = LastBatch.KEEP,
    open_transactions: Annotated[
        OpenTransactions, typer.Option(help="Format kstore: end at the last stable offset (wait) or at the log end.")
    ] = OpenTransactions.WAIT,
    topic_id: TopicIds = None,
    to_table: Table = None,
    partition_by: TableColumns = None,
    threads: Annotated[int, typer.Option(metavar="N", min=1, help="Parts that are exported at a time.")] = 2,
    skip_damaged: SkipDamaged = False,
    skip_lost: Annotated[
        bool, typer.Option("--skip-lost", help="Go on where records were deleted before they were exported.")
    ] = False,
    tier: TierPlace = None,
    tier_key: TierKeys = None,
    tier_epoch: TierEpoch = None,
    max_decrypted_bytes: MaxDecryptedBytes = None,
    json: Json = False,
) -> int:
    """Export what is new to Parquet, Arrow, segments or a table."""
    from kstore.cli.exporting import command as exporting
    from kstore.cli.printing.values import FormatOptions

    what = (format.value, topic, partition, start, end, since, until, isolation.value, columns, strings, codec)
    verbatim = (last_batch.value, open_transactions.value, topic_id)
    formats = FormatOptions(value, key, schemas, schema, schema_id, message)
    given = exporting.TypedOptions(
        *what, row_group_rows, file_bytes, *verbatim, skip_damaged, formats, mode.value, flatten
    )
    env = selection_of(directory, None, None, (tier, tier_key, tier_epoch, max_decrypted_bytes)).env
    wanted = exporting.ExportWanted(directory, target, to_table, partition_by, given, threads, skip_lost, env)
    return exporting.run(wanted, out, is_json=json)


@command("restore")
def restore_partitions(
    out: Output,
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="A root, a partition, an export of format kstore, or a URL of one."),
    ],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A log.dirs root, created if missing.")],
    topic: Topics = None,
    partition: Partitions = None,
    to: Annotated[
        list[str] | None,
        typer.Option(metavar="[TOPIC-N=]OFFSET", help="Only offsets below this one, of all or of one partition."),
    ] = None,
    until: Annotated[
        list[str] | None,
        typer.Option(metavar="[TOPIC-N=]TIME", help="Only what is before the first record at or after this time."),
    ] = None,
    rename: Annotated[
        list[str] | None, typer.Option(metavar="OLD=NEW", help="Another name for a topic; repeatable.")
    ] = None,
    topic_as: Annotated[
        str | None,
        typer.Option(metavar="TOPIC", help="The name of the only topic, also of a folder of segments."),
    ] = None,
    open_transactions: Annotated[
        OpenTransactions, typer.Option(help="Keep transactions that are open at the end, or end where none is (wait).")
    ] = OpenTransactions.KEEP,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be restored.")] = False,
    json: Json = False,
) -> int:
    """Restore partitions up to an offset or a time."""
    from kstore.cli import restoring

    typed = restoring.TypedOptions(
        source, target, topic, partition, to, until, rename, topic_as, open_transactions.value
    )
    return restoring.run(typed, out, is_dry_run=dry_run, is_json=json)


@command("replay")
def replay_records(
    out: Output,
    directory: Directory,
    bootstrap: Annotated[
        str,
        typer.Option("--bootstrap", metavar="HOST:PORT[,...]", help="Brokers of the cluster that gets records."),
    ],
    topic: Topics = None,
    partition: Partitions = None,
    start: FirstOffset = "earliest",
    end: EndOffset = "latest",
    since: Since = None,
    until: Until = None,
    isolation: Isolated = Isolation.READ_COMMITTED,
    rename: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD=NEW|RULE", help="Other names: one by one, repeatable, or 'old.{topic}' for all."),
    ] = None,
    create_topics: Annotated[
        bool, typer.Option("--create-topics", help="Create what the cluster lacks, as it is in DIR.")
    ] = False,
    offsets: Annotated[
        bool, typer.Option("--offsets", help="Translate the offsets of groups, and commit them at the end.")
    ] = False,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="GROUP", help="--offsets of this group or pattern; repeatable."),
    ] = None,
    state: Annotated[
        str | None, typer.Option(metavar="FILE", help="Keeps how far it came; the same command goes on there.")
    ] = None,
    rate: Annotated[float | None, typer.Option(metavar="N", min=0.001, help="At most N records a second.")] = None,
    byte_rate: Annotated[
        float | None,
        typer.Option("--byte-rate", metavar="N", min=1, help="At most N bytes a second, of keys and values."),
    ] = None,
    producer_config: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE|NAME=VALUE", help="Settings of librdkafka, as those of security; repeatable."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.001, help="Give up if the cluster says nothing for so long.")
    ] = 60,
    skip_damaged: SkipDamaged = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be sent and committed.")] = False,
    json: Json = False,
) -> int:
    """Send records to a cluster that runs."""
    from kstore.cli.exporting import replaying

    what = directory, bootstrap, topic, partition, start, end, since, until, isolation.value, rename
    typed = replaying.TypedOptions(*what, rate, byte_rate, create_topics, offsets, group, state, producer_config)
    how = replaying.Handling(timeout, skip_damaged, dry_run, json)
    return replaying.run(typed, how, out)
