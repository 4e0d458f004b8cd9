"""Export to tables: rows appended to a Delta Lake or an Iceberg table, or to one of each topic, each exactly once.

How far each partition was exported, and from which source and topic id, is in the table itself, and changes in the
same commit that appends the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from kstore.archive.manifest import ExportedPartition, Manifest
from kstore.archive.options import DATE, ExportOptions
from kstore.archive.parts import Part
from kstore.archive.plan import Source, damage_of, make_plan, topic_id_of, with_log, work_of
from kstore.archive.tables.naming import TOPIC, check_table, table_of, tables_of
from kstore.archive.tables.rows import TableRows, with_date
from kstore.archive.tables.stored import SOURCE, TOPIC_ID, Mark, StoredTable, failures_of, opened_table
from kstore.config import LogConfig, config_or_default
from kstore.env import Env, StrPath
from kstore.errors import ExportOptionsError, ExportTablesError, KStoreError
from kstore.log.files.names import PartitionDirectory
from kstore.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

    from kstore.archive.typed.topics import TypedTopic


class TablePartition(NamedTuple):
    """How far a partition is in a table. missing: [first, end) offsets that the source lost before this run."""

    topic: str
    partition: int
    end_offset: int
    missing: tuple[tuple[int, int], ...] = ()
    table: str = ""


class TableSummary(NamedTuple):
    """What a run appended to a table, or to the tables of the topics.

    new_records: how many; partitions: of how many logs; commits: how many of the table.
    damage: what was left out with on_error="skip", as JSON objects.
    """

    table: str
    new_records: int
    commits: int
    partitions: tuple[TablePartition, ...]
    damage: tuple[dict[str, Any], ...] = ()


class TableWork(NamedTuple):
    """One table, and what is exported to it. Picklable.

    source: with the partitions that it has; topic: None for all of them; partition_by: None for what the table has.
    """

    table: str
    topic: str | None
    source: Source
    options: ExportOptions
    partition_by: tuple[str, ...] | None


class TableResult(NamedTuple):
    """What became of a table: a summary, or an error. Picklable."""

    topic: str | None
    summary: TableSummary | None
    error: Exception | None


# What one table fails with, and others may not: an error of kstore, options or values that the table does not take, a
# package that is not installed, what one does not implement, and a schema that needs too much memory.
_FAILURES = (KStoreError, ValueError, ModuleNotFoundError, NotImplementedError, MemoryError)

TableExecutor: TypeAlias = Callable[[Sequence[TableWork]], Iterator[TableResult]]


def export_to_table(
    source: StrPath,
    table: str,
    options: ExportOptions,
    *,
    partition_by: Iterable[str] | str | None = None,
    threads: int = 2,
    fail_on_data_loss: bool = True,
    config: LogConfig | None = None,
    env: Env | None = None,
    on_plan: Callable[[int], None] = lambda _: None,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> TableSummary:
    """Append what is new in the source to a table in this process; see kstore.export.

    Each commit has the rows of about options.file_bytes of the source. The run after an interrupted one continues after
    its last commit.
    Cost: one pass; memory for two decoded batches for each thread, and what the package holds.
    """

    def execute(todo: Sequence[TableWork]) -> Iterator[TableResult]:
        for work in todo:
            yield result_of(work, threads=threads, on_plan=on_plan, on_bytes=on_bytes)

    opened = Source(source, config_or_default(config), env, fail_on_data_loss)
    return run_tables(opened, table, options, execute, partition_by=partition_by)


def run_tables(
    source: Source,
    table: str,
    options: ExportOptions,
    execute: TableExecutor,
    *,
    partition_by: Iterable[str] | str | None,
) -> TableSummary:
    """Append what is new to a table, or with {topic} in its name to one of each topic.

    Raises: as kstore.export; with {topic} ExportTablesError after all tables, if some of them failed.
    """
    check_table(table, options)
    columns = (partition_by,) if isinstance(partition_by, str) else partition_by
    chosen = None if columns is None else tuple(columns)
    directories = source.selected(options)
    source = source._replace(found=tuple(directories))
    if TOPIC not in table:
        todo = [TableWork(table, None, source, _settled(source, options, directories), chosen)]
    else:
        groups = groupby(directories, key=lambda directory: directory.topic_partition.topic)
        by_topic = {topic: tuple(of_topic) for topic, of_topic in groups}
        names = tables_of(table, by_topic)
        typed = [each for each in directories if not _stays_bytes(each.topic_partition.topic)]
        settled = _settled(source, options, typed)
        todo = [
            TableWork(
                names[topic],
                topic,
                source._replace(found=found),
                replace(options, formats=()) if _stays_bytes(topic) else settled,
                chosen,
            )
            for topic, found in by_topic.items()
        ]
    results = list(execute(todo))
    if TOPIC not in table and results[0].error is not None:
        raise results[0].error
    summaries = [result.summary for result in results if result.summary is not None]
    whole = TableSummary(
        table,
        sum(summary.new_records for summary in summaries),
        sum(summary.commits for summary in summaries),
        tuple(partition for summary in summaries for partition in summary.partitions),
        tuple(damage for summary in summaries for damage in summary.damage),
    )
    failures = {result.topic or "": result.error for result in results if result.error is not None}
    if failures:
        listed = "; ".join(f"{table_of(table, topic)}: {error}" for topic, error in failures.items())
        message = f"{len(failures)} of {len(todo)} tables could not be written, the others were: {listed}"
        raise ExportTablesError(message, failures=failures, summary=whole, path=table)
    return whole


def result_of(
    work: TableWork,
    *,
    threads: int = 1,
    on_plan: Callable[[int], None] = lambda _: None,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> TableResult:
    """Append what is new to one table, and return what became of it."""
    try:
        return TableResult(work.topic, _appended(work, threads, on_plan, on_bytes), None)
    except _FAILURES as error:
        return TableResult(work.topic, None, error)


def _appended(
    work: TableWork, threads: int, on_plan: Callable[[int], None], on_bytes: Callable[[int], None]
) -> TableSummary:
    table, source, options = work.table, work.source, work.options
    schema, typed = _columns(source, options)
    opened = _opened(work, schema)
    before = _known(opened, work, options)
    plan = make_plan(source, options, before, tasks=1)
    on_plan(sum(part.size_in_bytes for part in plan.parts))
    if DATE in opened.partition_columns():
        schema = with_date(schema)
    if typed is not None:
        typed = typed._replace(schema=schema).merged_with(opened.schema(), table)
        schema = typed.schema
    rows = TableRows(schema, options, source, typed=typed, threads=threads, on_bytes=on_bytes)
    commits = 0
    planned = {partition.topic_partition: partition for partition in plan.partitions}
    # The start of a partition without records is stored too: a later run continues there.
    ends = {place: planned[place].end_offset for place in planned if before.partition(place) is None}
    for part in plan.parts:
        ends.pop(part.topic_partition, None)
    for group in _commits(plan.parts, options.file_bytes) if plan.parts or not ends else [[]]:
        ends |= {part.topic_partition: part.end_offset for part in group}
        marks = {place: Mark(end, source.name, planned[place].topic_id) for place, end in ends.items()}
        todo = list(work_of(group, source, options, before, planned=plan.partitions))
        with failures_of(table, rows):
            opened.append(rows.reader(todo), marks, adds_fields=typed is not None)
        ends = {}
        commits += 1
    partitions = (
        TablePartition(*partition.topic_partition, partition.end_offset, partition.missing, table)
        for partition in plan.partitions
    )
    damage = (*damage_of(plan, before), *rows.damage)
    return TableSummary(table, rows.count, commits, tuple(partitions), damage)


def _stays_bytes(topic: str) -> bool:
    """Whether a table of a topic alone has its records as they are: those of schemas."""
    from kstore.values.registry import SCHEMAS_TOPIC

    return topic == SCHEMAS_TOPIC


def _settled(source: Source, options: ExportOptions, directories: Sequence[PartitionDirectory]) -> ExportOptions:
    """Return options with the schemas that there are now, in place of where they are; a run asks once.

    The logs end where they ended before that: a later record may have a schema that is not among them.
    Raises: what reading the schemas raises.
    """
    if not options.formats or not directories:
        return options
    from kstore.values.formats import Partitions, SchemaTopics

    ends: dict[TopicPartition, int] = {}
    for directory in directories:
        place = directory.topic_partition
        _, last = options.selection.bounds_of(place)
        # What is wrong with a log is an error of its table.
        with suppress(KStoreError):
            end = with_log(source, directory, lambda log: log._readable_end(on_error=options.on_error).offset)
            last = end if last is None else min(last, end)
        if last is not None:
            ends[place] = last
    partitions = Partitions.of(directories, on_error=options.on_error)
    with SchemaTopics() as schemas:
        formats = tuple((origin, schemas.known(chosen, partitions)) for origin, chosen in options.formats)
    return replace(options, formats=formats, selection=replace(options.selection, end=ends))


def _columns(source: Source, options: ExportOptions) -> tuple[pyarrow.Schema, TypedTopic | None]:
    """Return the columns of the rows, and how they are made by the schemas that there are now, None for bytes."""
    directories = source.selected(options)
    if options.formats:
        from kstore.archive.typed.topics import typed_table

        typed = typed_table(options, directories)
        return typed.schema, typed
    from kstore.arrow import schema

    topic = () if "topic" in options.columns else ("topic",)
    return schema((*topic, *options.columns), strings=options.strings), None


def _opened(work: TableWork, schema: pyarrow.Schema) -> StoredTable:
    """Return the table, created if it does not exist.

    Raises: ExportOptionsError if one of a topic has rows of another topic.
    """
    opened = opened_table(work.table, schema, work.partition_by)
    if work.topic is None:
        return opened
    others = opened.other_topics(work.topic)
    if others:
        there = ", ".join(sorted(others))
        raise ExportOptionsError(
            f"{work.table} holds other topics than {work.topic}: {there}",
            differences={"topics": (there, work.topic)},
            path=work.table,
        )
    return opened


def _known(opened: StoredTable, work: TableWork, options: ExportOptions) -> Manifest:
    """Return the partitions of the table as a manifest, as a directory has one.

    Raises: ExportOptionsError for a partition from another source.
    """
    source, table = work.source, work.table
    partitions = []
    for directory in source.selected(options):
        place = directory.topic_partition
        end = opened.end_offset(place)
        if end is None:
            continue
        other = opened.other(SOURCE, place, source.name)
        if other is not None:
            message = f"{table} holds {place} of another source: {other!r} there, {source.name!r} asked for"
            raise ExportOptionsError(message, differences={"source": (other, source.name)}, path=table)
        topic_id = topic_id_of(directory, source.located.env)
        if topic_id is not None:
            topic_id = opened.other(TOPIC_ID, place, topic_id) or topic_id
        partitions.append(ExportedPartition(*place, 0, end, topic_id=topic_id))
    return Manifest("parquet", source.name, {}, "", tuple(partitions))


def _commits(parts: Sequence[Part], most_bytes: int) -> Iterator[list[Part]]:
    """Yield the parts of each commit, in the order of their offsets."""
    group: list[Part] = []
    size = 0
    for part in parts:
        if group and size + part.size_in_bytes > most_bytes:
            yield group
            group, size = [], 0
        group.append(part)
        size += part.size_in_bytes
    if group:
        yield group
