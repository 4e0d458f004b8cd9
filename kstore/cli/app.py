"""The Typer application: options and their help. Each command's module is imported only when that command runs."""

from __future__ import annotations

import inspect
import sys
from enum import Enum
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Concatenate, ParamSpec

import typer

from kstore.cli import EXIT_BROKEN_PIPE, EXIT_DAMAGE, EXIT_INTERRUPTED, EXIT_WRONG_USE
from kstore.cli.arguments import PartitionSelection, WrongUseError, parse_offset, parse_timestamp_ms
from kstore.cli.output import Output
from kstore.config import MAX_INT32, MIB, CodecName
from kstore.errors import KStoreError

if TYPE_CHECKING:
    from collections.abc import Callable


class ValueMode(str, Enum):
    """What becomes of keys and values that cannot be decoded."""

    PERMISSIVE = "PERMISSIVE"
    DROPMALFORMED = "DROPMALFORMED"
    FAILFAST = "FAILFAST"


class Recovery(str, Enum):
    """How `recover` treats damage."""

    STRICT = "strict"
    POINT_IN_TIME = "point_in_time"
    SALVAGE = "salvage"


class Isolation(str, Enum):
    """Whether records of aborted and open transactions are shown (Kafka: isolation.level)."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class Format(str, Enum):
    """The formats of `export`."""

    PARQUET = "parquet"
    ARROW = "arrow"
    KSTORE = "kstore"


class LastBatch(str, Enum):
    """What `export --format kstore` does with a batch that spans the end."""

    KEEP = "keep"
    DROP = "drop"


class OpenTransactions(str, Enum):
    """Where `export --format kstore` ends in a log with open transactions."""

    WAIT = "wait"
    KEEP = "keep"


# What commands need besides the extra `cli`, and which extra has it.
EXTRAS = {"pyarrow": "arrow", "numpy": "arrow"}
Arguments = ParamSpec("Arguments")
IS_TERMINAL = sys.stdout is not None and sys.stdout.isatty()

app = typer.Typer(
    name="kstore",
    help="Read and write the files of an Apache Kafka broker, without the broker.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich" if IS_TERMINAL else None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 success, 1 damage, a disk error or an unsupported format, 2 wrong use.",
)

Directory = Annotated[str, typer.Argument(metavar="DIR", help="A partition directory or a log.dirs root.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
Topics = Annotated[list[str] | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic; repeatable.")]
Partitions = Annotated[
    list[int] | None, typer.Option("--partition", metavar="N", min=0, help="Only this partition; repeatable.")
]
FirstOffset = Annotated[str, typer.Option("--from", metavar="N|earliest|latest", help="First offset.")]
EndOffset = Annotated[str, typer.Option("--to", metavar="N|earliest|latest", help="Only offsets below this one.")]
Since = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only records at or after: epoch ms or ISO-8601, UTC by default.")
]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Only records before this time.")]
Isolated = Annotated[
    Isolation, typer.Option(help="read_committed omits aborted records and stops at the last stable offset.")
]
ValueName = Annotated[
    str | None, typer.Option("--value", metavar="FORMAT", help="Decode values: avro, json, protobuf, string, ...")
]
KeyName = Annotated[str | None, typer.Option("--key", metavar="FORMAT", help="Decode keys.")]
SchemasPlace = Annotated[
    str | None,
    typer.Option("--schemas", metavar="DIR|URL", help="A root with _schemas, or a registry; default: DIR."),
]
SchemaFile = Annotated[
    str | None, typer.Option("--schema", metavar="FILE", help="The schema of values: a file, latest, union or infer.")
]
MessageName = Annotated[
    str | None,
    typer.Option("--message", metavar="NAME", help="Protobuf: the message; default: the first of the schema."),
]
SchemaId = Annotated[
    int | None, typer.Option("--schema-id", metavar="ID", min=0, help="The id of the schema that values are read as.")
]
Mode = Annotated[
    ValueMode,
    typer.Option(
        "--mode",
        case_sensitive=False,
        help="Keys and values that cannot be decoded: null, with the reason; left out with the record; or an error.",
    ),
]
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
SkipDamaged = Annotated[
    bool, typer.Option("--skip-damaged", help="Leave out damaged batches, report them, and read on.")
]


def run() -> int:
    """Run the application with the arguments of the process and return its exit status."""
    try:
        app(prog_name="kstore")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    except OSError as error:  # Typer itself writes the help and the version, outside of execute()
        return unwritable(Output(), error)
    return 0


def unwritable(out: Output, error: OSError) -> int:
    """Report that standard output can't be written and return the exit status."""
    out.abandon()
    out.notice(f"cannot write standard output: {error.strerror or error}")
    return EXIT_WRONG_USE


def execute(command: Callable[[Output], int]) -> None:
    """Call the command and exit with its status. Each failure is reported as one line on standard error."""
    out = Output()
    try:
        try:
            with out.log_messages():
                status = command(out)
            out.flush()
        except (KStoreError, WrongUseError) as error:
            status = out.failure(error)
        except OSError as error:
            if not out.can_write:
                raise
            out.notice(error)
            status = EXIT_DAMAGE
        except ModuleNotFoundError as error:
            out.notice(missing_package(error))
            status = EXIT_WRONG_USE
    except BrokenPipeError:
        out.abandon()
        status = EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        status = EXIT_INTERRUPTED
    except OSError as error:
        status = unwritable(out, error)
    raise typer.Exit(status)


def missing_package(error: ModuleNotFoundError) -> str:
    """Return which package is missing, and which extra has it.  Raises: the error itself if no extra has."""
    if error.name is None:  # raised by kstore, which names the extra
        return str(error)
    package = error.name.partition(".")[0]
    if package not in EXTRAS:
        raise error
    return f"this needs the package {package}: pip install 'kstore[{EXTRAS[package]}]'"


def command(name: str) -> Callable[[Callable[Concatenate[Output, Arguments], int]], Callable[Arguments, None]]:
    """Return a decorator that registers a function as the command `name`.

    The function takes the Output and the command's options, and returns the exit status.
    """

    def register(function: Callable[Concatenate[Output, Arguments], int]) -> Callable[Arguments, None]:
        @wraps(function)
        def run_command(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
            execute(lambda out: function(out, *args, **kwargs))

        signature = inspect.signature(function, eval_str=True)
        _, *options = signature.parameters.values()
        vars(run_command)["__signature__"] = signature.replace(parameters=options)
        return app.command(name)(run_command)

    return register


def selection_of(directory: str, topics: list[str] | None, partitions: list[int] | None) -> PartitionSelection:
    """Return the partitions that DIR, --topic and --partition select."""
    return PartitionSelection(directory=directory, topics=tuple(topics or ()), partitions=tuple(partitions or ()))


def _given(**options: float | None) -> dict[str, float]:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def show_version(is_wanted: bool) -> None:
    """Print the version and exit, if is_wanted."""
    if is_wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"kstore {version('kstore')}")
        except PackageNotFoundError:
            typer.echo("kstore (not installed)")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Read and write the files of an Apache Kafka broker, without the broker."""


@command("ls")
def list_partitions(
    out: Output,
    directory: Directory,
    topic: Topics = None,
    partition: Partitions = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Read every batch for magics and codecs, not just the start of each file.")
    ] = False,
    json: Json = False,
) -> int:
    """List partitions: offsets, size, times, codecs."""
    from kstore.cli import ls

    return ls.run(selection_of(directory, topic, partition), out, is_json=json, is_exact=exact)


@command("cat")
def print_records(
    out: Output,
    directory: Directory,
    topic: Topics = None,
    partition: Partitions = None,
    start: Annotated[
        str, typer.Option("--from", metavar="N|-N|earliest|latest", help="First offset; -N: N before the end.")
    ] = "earliest",
    end: EndOffset = "latest",
    since: Since = None,
    until: Until = None,
    limit: Annotated[int | None, typer.Option(metavar="N", min=0, help="Show at most N records.")] = None,
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
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with the records that come, until Ctrl-C.")
    ] = False,
    json: Json = False,
) -> int:
    """Print records in offset order, one partition after another."""
    from kstore.cli.printing import cat
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
    )
    selection = selection_of(directory, topic, partition)
    if not follow:
        return cat.run(selection, wanted, out, is_json=json)
    from kstore.cli.printing import follow as following

    if end != "latest" or until is not None or skip_damaged:
        raise WrongUseError("--follow takes no --to, --until or --skip-damaged: it has no end, and waits at damage")
    return following.run(selection, wanted, out, is_json=json)


@command("dump")
def dump_files(
    out: Output,
    path: Annotated[
        str, typer.Argument(metavar="FILE|DIR", help="A file of a partition or of a root, or such a directory.")
    ],
    topic: Topics = None,
    partition: Partitions = None,
    records: Annotated[bool, typer.Option("--records", help="Also show the records of each batch.")] = False,
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
    selection = selection_of(path, topic, partition)
    return dump.run(selection, out, is_json=json, with_records=records, decoder=decoder)


@command("verify")
def verify_partitions(
    out: Output,
    directory: Directory,
    topic: Topics = None,
    partition: Partitions = None,
    deep: Annotated[
        bool,
        typer.Option("--deep/--shallow", help="Also decode records and check side files, or only headers and CRCs."),
    ] = True,
    json: Json = False,
) -> int:
    """Check every batch and index entry and list damaged ranges."""
    from kstore.cli import verify

    return verify.run(selection_of(directory, topic, partition), out, is_json=json, is_deep=deep)


@command("offsets")
def list_offsets(
    out: Output,
    directory: Directory,
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
    json: Json = False,
) -> int:
    """Show the first offset at or after a time, as ListOffsets does."""
    from kstore.cli import offsets

    wanted = offsets.OffsetQuery(offsets.parse_time(time), only_committed=isolation is Isolation.READ_COMMITTED)
    return offsets.run(selection_of(directory, topic, partition), wanted, out, is_json=json)


@command("recover")
def recover_partitions(
    out: Output,
    directory: Directory,
    topic: Topics = None,
    partition: Partitions = None,
    mode: Annotated[
        Recovery,
        typer.Option(
            help="What to do about damage of durable records. strict: refuse, change nothing. point_in_time: as Kafka, "
            "end the log before the first damage from the segment of the recovery point on; older damage is left in "
            "place. salvage: remove damage anywhere, keep all other whole batches."
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


@command("compact")
def compact_logs(
    out: Output,
    directory: Directory,
    topic: Topics = None,
    partition: Partitions = None,
    roll: Annotated[
        bool, typer.Option("--roll", help="Start a new segment first: the last one of a log is never compacted.")
    ] = False,
    min_dirty_ratio: Annotated[
        float | None,
        typer.Option(metavar="R", min=0.0, max=1.0, help="Only logs of which a larger part is dirty; else all."),
    ] = None,
    delete_retention_ms: Annotated[
        int | None,
        typer.Option(metavar="MS", min=0, help="How long tombstones stay after they were first compacted (a day)."),
    ] = None,
    min_compaction_lag_ms: Annotated[
        int | None, typer.Option(metavar="MS", min=0, help="Leave records that are younger as they are.")
    ] = None,
    segment_bytes: Annotated[
        int | None, typer.Option(metavar="N", min=14, max=MAX_INT32, help="Merge segments up to this size (1 GiB).")
    ] = None,
    map_bytes: Annotated[
        int | None,
        typer.Option(metavar="N", min=1024, help="Memory for the map of keys, 24 bytes for each (128 MiB)."),
    ] = None,
    max_bytes_per_second: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Read and write at most so many bytes per second.")
    ] = None,
    drop_keyless: Annotated[
        bool, typer.Option("--drop-keyless", help="Also remove records without a key, of topics that --topic names.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing, report what would be removed.")] = False,
    json: Json = False,
) -> int:
    """Remove records of compacted topics that have a newer one."""
    from kstore.cli.cleaning import compact

    wanted = compact.CompactOptions(
        options=_given(
            min_cleanable_dirty_ratio=min_dirty_ratio,
            delete_retention_ms=delete_retention_ms,
            min_compaction_lag_ms=min_compaction_lag_ms,
            segment_bytes=segment_bytes,
            cleaner_dedupe_buffer_bytes=map_bytes,
        ),
        rolls=roll,
        heeds_ratio=min_dirty_ratio is not None,
        max_bytes_per_second=max_bytes_per_second,
        drops_keyless=drop_keyless,
        is_dry=dry_run,
    )
    return compact.run(selection_of(directory, topic, partition), wanted, out, is_json=json)


@command("retention")
def remove_old_segments(
    out: Output,
    directory: Directory,
    topic: Topics = None,
    partition: Partitions = None,
    retention_ms: Annotated[
        int | None,
        typer.Option(metavar="MS", min=-1, help="Remove segments all of whose records are older; -1 for none."),
    ] = None,
    retention_bytes: Annotated[
        int | None, typer.Option(metavar="N", min=-1, help="Remove the oldest segments above this size; -1 for none.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing, report what would be removed.")] = False,
    json: Json = False,
) -> int:
    """Remove old segments of topics whose limits are known or given."""
    from kstore.cli.cleaning import retention

    options = _given(retention_ms=retention_ms, retention_bytes=retention_bytes)
    return retention.run(selection_of(directory, topic, partition), options, out, is_dry=dry_run, is_json=json)


@command("groups")
def describe_groups(
    out: Output,
    directory: Annotated[str, typer.Argument(metavar="DIR", help="A log.dirs root.")],
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="GROUP", help="Only this group; repeatable.")
    ] = None,
    json: Json = False,
) -> int:
    """Show consumer groups: members, committed offsets, lag."""
    from kstore.cli.describing import groups

    return groups.run(directory, group or [], out, is_json=json)


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
        int, typer.Option(metavar="N", min=1024, help="Memory for the map of keys, 24 bytes for each.")
    ] = 128 * MIB,
    json: Json = False,
) -> int:
    """Show sizes, rates, largest keys, what compaction saves."""
    from kstore.cli.describing import stat

    wanted = stat.StatOptions(decodes=deep, top=top, shows_rates=rates, map_bytes=map_bytes)
    return stat.run(selection_of(directory, topic, partition), wanted, out, is_json=json)


@command("import")
def import_records(
    out: Output,
    path: Annotated[
        str,
        typer.Argument(
            metavar="IN", help="JSON lines as `kstore cat --json` writes them (- for standard input), Parquet or Arrow."
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
    json: Json = False,
) -> int:
    """Append the records of a file to a root or a partition."""
    from kstore.cli import importing

    wanted = importing.ImportOptions(
        path=path,
        directory=directory,
        topic=topic,
        partition=partition,
        compression=compression,
        batch_bytes=batch_bytes,
        keeps_offsets=keep_offsets,
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
    wanted = exporting.ExportWanted(directory, target, to_table, partition_by, given, threads, skip_lost)
    return exporting.run(wanted, out, is_json=json)
