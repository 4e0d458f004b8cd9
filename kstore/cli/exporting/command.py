"""`kstore export`: the selected partitions as files, or as rows of a table; each run continues after the last one."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from kstore.archive.options import ExportOptions, export_options
from kstore.archive.parts import Waiting
from kstore.archive.run import ExportSummary, local_export
from kstore.cli import EXIT_DAMAGE, EXIT_FINE
from kstore.cli.arguments import WrongUseError, parse_offset, parse_timestamp_ms
from kstore.cli.output import Column, Progress
from kstore.cli.render import JSON_TEXT
from kstore.errors import ExportTablesError
from kstore.types import MAX_OFFSET

if TYPE_CHECKING:
    from kstore.archive.tables.appending import TableSummary
    from kstore.cli.output import Output
    from kstore.cli.printing.values import FormatOptions
    from kstore.env import Env
    from kstore.values.typed import ValueMode

COLUMNS = (
    Column("topic"),
    Column("partition", is_number=True),
    Column("start", is_number=True),
    Column("end", is_number=True),
    Column("records", is_number=True),
)


TABLE_COLUMNS = (Column("topic"), Column("partition", is_number=True), Column("end", is_number=True))


class TypedOptions(NamedTuple):
    """The options as they were typed."""

    format: str
    topic: list[str] | None
    partition: list[int] | None
    start: str
    end: str
    since: str | None
    until: str | None
    isolation: str
    columns: list[str] | None
    strings: list[str] | None
    codec: str | None
    row_group_rows: int | None
    file_bytes: int | None
    last_batch: str
    open_transactions: str
    topic_id: list[str] | None
    skip_damaged: bool
    formats: FormatOptions
    mode: str
    flatten: bool

    def checked(self) -> ExportOptions:
        """Return the options.  Raises: WrongUseError."""
        start, end = parse_offset(self.start, option="--from"), parse_offset(self.end, option="--to")
        try:
            formats = self.formats.made()
            return export_options(
                self.format,
                topics=self.topic,
                partitions=self.partition,
                start_offset=start or None,
                end_offset=None if end == MAX_OFFSET else end,
                since=None if self.since is None else parse_timestamp_ms(self.since, option="--since"),
                until=None if self.until is None else parse_timestamp_ms(self.until, option="--until"),
                isolation="read_committed" if self.isolation == "read_committed" else "read_uncommitted",
                columns=_names(self.columns),
                strings=_names(self.strings) or (),
                codec=self.codec,
                row_group_rows=self.row_group_rows,
                file_bytes=self.file_bytes,
                last_batch="drop" if self.last_batch == "drop" else "keep",
                open_transactions="keep" if self.open_transactions == "keep" else "wait",
                on_error="skip" if self.skip_damaged else "raise",
                topic_ids=dict(_topic_and_id(text) for text in self.topic_id or ()),
                value=formats.get("value"),
                key=formats.get("key"),
                mode=cast("ValueMode", self.mode),
                flatten=self.flatten,
            )
        except ValueError as error:
            raise WrongUseError(str(error)) from error


def _names(texts: list[str] | None) -> list[str] | None:
    """Return the names in all uses of an option, None if there is none."""
    return [name for text in texts for name in text.split(",")] if texts else None


def _topic_and_id(text: str) -> tuple[str, str]:
    topic, equals, topic_id = text.partition("=")
    if not equals:
        raise WrongUseError(f"--topic-id must have the form TOPIC=ID, got {text!r}")
    return topic, topic_id


class ExportWanted(NamedTuple):
    """What to export, and where: to a directory, or to a table. env: of the directory with its tier, None without."""

    directory: str
    target: str | None
    table: str | None
    partition_by: list[str] | None
    options: TypedOptions
    threads: int
    skips_lost: bool
    env: Env | None = None


class Bar:
    """The progress bar of a run, begun again for each plan."""

    def __init__(self, out: Output, label: str) -> None:
        self._out = out
        self._stack = ExitStack()
        self._progress = Progress(label=label)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def begin(self, total_bytes: int) -> None:
        """Start a bar for a number of bytes."""
        self._stack.close()
        self._progress.done_bytes = 0
        self._stack.enter_context(self._out.progress(self._progress, total_bytes=lambda: total_bytes))

    def add(self, size: int) -> None:
        """Advance the bar by a number of bytes."""
        self._progress.done_bytes += size


def run(wanted: ExportWanted, out: Output, *, is_json: bool) -> int:
    """Export, print what the target holds, and return the exit status: 1 if damage was left out."""
    options = wanted.options.checked()
    if (wanted.target is None) == (wanted.table is None):
        raise WrongUseError("expected either OUT or --to-table")
    if wanted.table is None and wanted.partition_by is not None:
        raise WrongUseError("--partition-by is for --to-table")
    try:
        selected = options.selection.find(wanted.directory, wanted.env)
        options.check_topic_ids(partition.topic_partition for partition in selected)
    except ValueError as error:
        raise WrongUseError(str(error)) from error
    with Bar(out, wanted.table or wanted.target or "") as bar:
        try:
            summary = _exported(wanted, options, bar)
        except ExportTablesError as error:
            written: TableSummary = error.summary
            _show(written, wanted, out, is_json=is_json)
            raise
        # Columns are known once the schemas and the table are read.
        except (ValueError, ModuleNotFoundError) as error:
            raise WrongUseError(str(error)) from error
    _show(summary, wanted, out, is_json=is_json)
    return EXIT_DAMAGE if summary.damage else EXIT_FINE


def _show(summary: ExportSummary | TableSummary, wanted: ExportWanted, out: Output, *, is_json: bool) -> None:
    """Print what was written, and what was left out."""
    for left_out in summary.damage:
        out.notice(_skipped_text(left_out))
    if isinstance(summary, ExportSummary):
        for waiting in summary.waiting:
            out.notice(_waiting_text(waiting))
    if is_json:
        fields = summary._asdict()
        fields["partitions"] = [partition._asdict() for partition in summary.partitions]
        if isinstance(summary, ExportSummary):
            fields["waiting"] = [waiting._asdict() for waiting in summary.waiting]
        out.line(JSON_TEXT(fields))
    elif isinstance(summary, ExportSummary):
        out.table(COLUMNS, [[partition.topic, *map(str, partition[1:5])] for partition in summary.partitions])
        new = f"{summary.new_records} new records in {_counted(summary.new_files, 'file')}"
        out.line(f"{new}; {_holds(summary, wanted.target)}")
    else:
        out.table(TABLE_COLUMNS, [[partition.topic, *map(str, partition[1:3])] for partition in summary.partitions])
        out.line(f"{summary.new_records} new records in {_counted(summary.commits, 'commit')}")


def _exported(wanted: ExportWanted, options: ExportOptions, bar: Bar) -> ExportSummary | TableSummary:
    shared: dict[str, Any] = {
        "threads": wanted.threads,
        "fail_on_data_loss": not wanted.skips_lost,
        "on_plan": bar.begin,
        "on_bytes": bar.add,
        "env": wanted.env,
    }
    if wanted.table is None:
        return local_export(wanted.directory, wanted.target or "", options, **shared)
    from kstore.archive.tables.appending import export_to_table

    partition_by = _names(wanted.partition_by)
    return export_to_table(wanted.directory, wanted.table, options, partition_by=partition_by, **shared)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _holds(summary: ExportSummary, target: str | None) -> str:
    joined = f"{summary.joined_files} files were joined; " if summary.joined_files else ""
    return f"{joined}{target} holds {summary.record_count} in {_counted(summary.file_count, 'file')}"


def _waiting_text(waiting: Waiting) -> str:
    offsets = f"offsets {waiting.start_offset} to {waiting.end_offset - 1}"
    return f"{offsets} of {waiting.topic}-{waiting.partition} are not exported yet: a transaction is open from there on"


def _skipped_text(left_out: dict[str, Any]) -> str:
    first, last = left_out["first_missing_offset"], left_out["last_missing_offset"]
    offsets = f"offsets from {first} on" if last is None else f"offsets {first} to {last}"
    where = f"{left_out['topic']}-{left_out['partition']}"
    place = f"{left_out['size_in_bytes']} bytes at position {left_out['position']} of {left_out['path']}"
    return f"skipped {offsets} of {where}: {place}: {left_out['reason']}"
