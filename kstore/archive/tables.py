"""Export to tables: rows appended to a Delta Lake or an Iceberg table, each exactly once.

How far each partition was exported, and from which source and topic id, is in the table itself, and changes in the
same commit that appends the rows: in Delta Lake as versions of application transactions for each partition, in Iceberg
as properties of the table.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from kstore.archive.manifest import ExportedPartition, Manifest
from kstore.archive.options import COLUMNS, DELTA, ICEBERG, ExportOptions
from kstore.archive.parts import Part, Work, described
from kstore.archive.plan import Source, damage_of, make_plan, topic_id_of, work_of
from kstore.config import LogConfig, config_or_default
from kstore.env import Env, StrPath
from kstore.errors import ExportError, ExportOptionsError, KStoreError
from kstore.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

    from kstore.archive.typed.topics import TypedTopic

# Before the name of the partition: of an application transaction, whose version is the end offset, and of a property.
_APPLICATION, _PROPERTY = "kstore/", "kstore."
_END, _SOURCE, _TOPIC_ID = "end-offset", "source", "topic-id"
_SOURCE_OF_COMMIT = "kstore.source"
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_RETRIES = "commit.retry.num-retries"
_BATCH_BYTES = 4 << 20


class TablePartition(NamedTuple):
    """How far a partition is in a table. missing: [first, end) offsets that the source lost before this run."""

    topic: str
    partition: int
    end_offset: int
    missing: tuple[tuple[int, int], ...] = ()


class TableSummary(NamedTuple):
    """What a run appended to a table. damage: what was left out with on_error="skip", as JSON objects."""

    table: str
    new_records: int
    commits: int
    partitions: tuple[TablePartition, ...]
    damage: tuple[dict[str, Any], ...] = ()


class _Mark(NamedTuple):
    """The progress of a partition, as it is stored in a table. topic_id: None if the source has none."""

    end_offset: int
    source: str
    topic_id: str | None

    @property
    def texts(self) -> dict[str, str]:
        """The stored texts that identify the source, by their names in the table."""
        ids = {} if self.topic_id is None else {_TOPIC_ID: self.topic_id}
        return {_SOURCE: self.source, **ids}


class _Table(ABC):
    """A table that rows are appended to."""

    @abstractmethod
    def end_offset(self, topic_partition: TopicPartition) -> int | None:
        """Return the stored end offset of a partition, None if there is none."""

    @abstractmethod
    def other(self, name: str, topic_partition: TopicPartition, text: str) -> str | None:
        """Return the text stored for a partition under `name`; None if there is none, or it equals `text`."""

    @abstractmethod
    def schema(self) -> pyarrow.Schema:
        """Return the schema of the table."""

    @abstractmethod
    def append(
        self, rows: pyarrow.RecordBatchReader, marks: Mapping[TopicPartition, _Mark], *, adds_fields: bool
    ) -> None:
        """Append rows and store the marks, in one commit.

        Args: adds_fields: whether rows may have fields that the table lacks, which are added to it.
        Raises: ExportError if another writer committed since the marks were read.
        """


class _DeltaTable(_Table):
    def __init__(self, uri: str, schema: pyarrow.Schema) -> None:
        import deltalake

        self._deltalake: Any = deltalake
        self._uri = uri
        if not deltalake.DeltaTable.is_deltatable(uri):
            deltalake.DeltaTable.create(uri, schema, mode="ignore")
        self._table: Any = deltalake.DeltaTable(uri)

    def end_offset(self, topic_partition: TopicPartition) -> int | None:
        version: int | None = self._table.transaction_version(_APPLICATION + str(topic_partition))
        return version

    def other(self, name: str, topic_partition: TopicPartition, text: str) -> str | None:
        version = self._table.transaction_version(f"{_APPLICATION}{name}/{topic_partition}")
        if version in (None, _number_of(text)):
            return None
        # The version is only a hash; commits still in the history have the name of their source.
        sources = (entry.get(_SOURCE_OF_COMMIT) for entry in self._table.history())
        named = next((source for source in sources if source is not None and _number_of(source) == version), None)
        return named or "another one"

    def schema(self) -> pyarrow.Schema:
        import pyarrow as pa

        return pa.schema(self._table.schema().to_arrow())

    def append(
        self, rows: pyarrow.RecordBatchReader, marks: Mapping[TopicPartition, _Mark], *, adds_fields: bool
    ) -> None:
        versions = {_APPLICATION + str(place): mark.end_offset for place, mark in marks.items()}
        for place, mark in marks.items():
            texts = mark.texts.items()
            versions |= {f"{_APPLICATION}{name}/{place}": _number_of(text) for name, text in texts}
        # Without retries: they would append after a commit of another run, which may have appended the same rows.
        properties = self._deltalake.CommitProperties(
            app_transactions=[self._deltalake.Transaction(*entry) for entry in versions.items()],
            custom_metadata={_SOURCE_OF_COMMIT: next(iter(marks.values())).source},
            max_commit_retries=0,
        )
        # Columns that somebody added are null in new rows.
        added = {field.name for field in self._table.schema().fields} - set(rows.schema.names)
        mode = "merge" if adds_fields or (added and not added & {"topic", *COLUMNS}) else None
        try:
            self._deltalake.write_deltalake(
                self._table, rows, mode="append", schema_mode=mode, commit_properties=properties
            )
        except self._deltalake.exceptions.CommitFailedError as error:
            raise _conflict_error(self._uri, error) from error
        self._table = self._deltalake.DeltaTable(self._uri)


class _IcebergTable(_Table):
    def __init__(self, name: str, schema: pyarrow.Schema) -> None:
        from pyiceberg import exceptions
        from pyiceberg.catalog import load_catalog

        self._failures: Any = (exceptions.CommitFailedException, exceptions.ValidationException)
        self._name = name
        catalog_name, _, identifier = name.partition(".")
        catalog = load_catalog(catalog_name)
        catalog.create_namespace_if_not_exists(identifier.rpartition(".")[0])
        self._table: Any = catalog.create_table_if_not_exists(identifier, schema)

    def end_offset(self, topic_partition: TopicPartition) -> int | None:
        offset = self._property(_END, topic_partition)
        return None if offset is None else int(offset)

    def other(self, name: str, topic_partition: TopicPartition, text: str) -> str | None:
        noted = self._property(name, topic_partition)
        return None if noted == text else noted

    def schema(self) -> pyarrow.Schema:
        return self._table.schema().as_arrow()

    def append(
        self, rows: pyarrow.RecordBatchReader, marks: Mapping[TopicPartition, _Mark], *, adds_fields: bool
    ) -> None:
        properties = {
            f"{_PROPERTY}{name}.{place}": text
            for place, mark in marks.items()
            for name, text in ((_END, str(mark.end_offset)), *mark.texts.items())
        }
        self._forbid_retries()
        try:
            with self._table.transaction() as transaction:
                if adds_fields:
                    with transaction.update_schema() as update:
                        update.union_by_name(rows.schema)
                transaction.append(rows)
                transaction.set_properties(properties)
        except self._failures as error:
            raise _conflict_error(self._name, error) from error

    def _property(self, name: str, topic_partition: TopicPartition) -> str | None:
        value: str | None = self._table.properties.get(f"{_PROPERTY}{name}.{topic_partition}")
        return value

    def _forbid_retries(self) -> None:
        """Make commits to any but the loaded version of the table fail; changes this object only, not the table.

        A retry would append after a commit of another run, which may have appended the same rows.
        """
        metadata = self._table.metadata
        properties = {**metadata.properties, _RETRIES: "0"}
        self._table.metadata = metadata.model_copy(update={"properties": properties})


def _number_of(text: str) -> int:
    """Return a 63-bit hash of a text: the version of an application transaction is a number."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


@contextmanager
def _failures_of(table: str, rows: _Rows | None = None) -> Iterator[None]:
    """Context manager: turn an error of the package into an ExportError, or into the error of the source or the
    interrupt that caused it.
    """
    try:
        yield
    except KStoreError:
        raise
    # A panic of deltalake is no Exception.
    except BaseException as error:
        if rows is not None and rows.failure is not None and rows.failure is not error:
            raise rows.failure from error
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = " ".join(_ESCAPE.sub("", str(error)).split())
        raise ExportError(f"cannot write {table}: {type(error).__name__}: {reason}", path=table) from error


def _conflict_error(name: str, error: Exception) -> ExportError:
    return ExportError(f"another writer committed to {name} first, nothing was appended: run it again: {error}")


def export_to_table(
    source: StrPath,
    table: str,
    options: ExportOptions,
    *,
    threads: int = 2,
    fail_on_data_loss: bool = True,
    config: LogConfig | None = None,
    env: Env | None = None,
    on_plan: Callable[[int], None] = lambda _: None,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> TableSummary:
    """Append what is new in the source to a table, which is created if it does not exist.

    Each commit has the rows of about options.file_bytes of the source. The run after an interrupted one continues after
    its last commit.
    Args: table: "delta:URI", or "iceberg:CATALOG.NAMESPACE.TABLE" with a catalog of pyiceberg's configuration.
    Raises: ValueError for another form of `table` or format "kstore"; ModuleNotFoundError without the package;
        ExportError if another writer commits first, or for an error of the package; ExportOptionsError if the table
        has a partition from another source; ExportSourceError; as kstore.scan.
    Cost: one pass; memory for two decoded batches for each thread, and what the package holds.
    """
    from kstore.arrow import schema

    check_table(table, options)
    columns = (*(() if "topic" in options.columns else ("topic",)), *options.columns)
    opened_source = Source(source, config_or_default(config), env, fail_on_data_loss)
    typed = _typed(opened_source, options)
    arrow_schema = schema(columns, strings=options.strings) if typed is None else typed.schema
    with _failures_of(table):
        opened = _opened(table, arrow_schema)
    before = _known(opened, opened_source, options, table=table)
    plan = make_plan(opened_source, options, before, tasks=1)
    on_plan(sum(part.size_in_bytes for part in plan.parts))
    # Again, so that the schemas of all planned records are known.
    typed = _typed(opened_source, options)
    if typed is not None:
        typed = typed.merged_with(opened.schema(), table)
        arrow_schema = typed.schema
    rows = _Rows(arrow_schema, options, opened_source, typed=typed, threads=threads, on_bytes=on_bytes)
    commits = 0
    planned = {partition.topic_partition: partition for partition in plan.partitions}
    # The start of a partition without records is stored too: a later run continues there.
    ends = {place: planned[place].end_offset for place in planned if before.partition(place) is None}
    for part in plan.parts:
        ends.pop(part.topic_partition, None)
    for group in _commits(plan.parts, options.file_bytes) if plan.parts or not ends else [[]]:
        ends |= {part.topic_partition: part.end_offset for part in group}
        marks = {place: _Mark(end, opened_source.name, planned[place].topic_id) for place, end in ends.items()}
        todo = list(work_of(group, opened_source, options, before, planned=plan.partitions))
        with _failures_of(table, rows):
            opened.append(rows.reader(todo), marks, adds_fields=typed is not None)
        ends = {}
        commits += 1
    partitions = (
        TablePartition(*partition.topic_partition, partition.end_offset, partition.missing)
        for partition in plan.partitions
    )
    damage = (*damage_of(plan, before), *rows.damage)
    return TableSummary(table, rows.count, commits, tuple(partitions), damage)


def _typed(source: Source, options: ExportOptions) -> TypedTopic | None:
    """Return the columns by the schemas that there are now, None for keys and values as bytes."""
    directories = source.selected(options)
    if not options.formats:
        return None
    from kstore.archive.typed.topics import typed_table

    return typed_table(options, directories)


def check_table(table: str, options: ExportOptions) -> None:
    """Check the name of a table, and that rows are exported.

    Raises: ValueError; ModuleNotFoundError without the package that the table needs.
    """
    if options.is_verbatim:
        raise ValueError('format "kstore" cannot be written to a table')
    kind, colon, name = table.partition(":")
    package = {DELTA: "deltalake", ICEBERG: "pyiceberg"}.get(kind + colon)
    if package is None or not name or (kind + colon == ICEBERG and name.count(".") < 2):
        raise ValueError(f"a table must be {DELTA}URI or {ICEBERG}CATALOG.NAMESPACE.TABLE, got {table!r}")
    try:
        import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        message = f"this table needs the package {package}: pip install 'kstore[{kind}]'"
        raise ModuleNotFoundError(message, name=package) from error


def _opened(table: str, arrow_schema: pyarrow.Schema) -> _Table:
    if table.startswith(DELTA):
        return _DeltaTable(table.removeprefix(DELTA), arrow_schema)
    return _IcebergTable(table.removeprefix(ICEBERG), arrow_schema)


def _known(opened: _Table, source: Source, options: ExportOptions, *, table: str) -> Manifest:
    """Return the partitions of the table as a manifest, as a directory has one.

    Raises: ExportOptionsError for a partition from another source.
    """
    partitions = []
    for directory in source.selected(options):
        place = directory.topic_partition
        end = opened.end_offset(place)
        if end is None:
            continue
        other = opened.other(_SOURCE, place, source.name)
        if other is not None:
            message = f"{table} holds {place} of another source: {other!r} there, {source.name!r} asked for"
            raise ExportOptionsError(message, differences={"source": (other, source.name)}, path=table)
        topic_id = topic_id_of(directory, source.located.env)
        if topic_id is not None:
            topic_id = opened.other(_TOPIC_ID, place, topic_id) or topic_id
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


class _Rows:
    """The rows of parts as streams. Attributes: count (so far), damage, failure (the error that ended a stream)."""

    def __init__(
        self,
        schema: pyarrow.Schema,
        options: ExportOptions,
        source: Source,
        *,
        typed: TypedTopic | None,
        threads: int,
        on_bytes: Callable[[int], None],
    ) -> None:
        self.count = 0
        self.damage: list[dict[str, Any]] = []
        self.failure: BaseException | None = None
        self._schema = schema
        self._typed = typed
        self._options = options
        self._source = source
        self._threads = threads
        self._on_bytes = on_bytes

    def reader(self, todo: Sequence[Work]) -> pyarrow.RecordBatchReader:
        """Return the rows of some parts as a stream that reads them on demand."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self._schema, self._kept(todo))

    def _kept(self, todo: Sequence[Work]) -> Iterator[pyarrow.RecordBatch]:
        """Yield the rows, and keep an error in `failure`: the packages report only its text."""
        try:
            yield from self._batches(todo)
        except GeneratorExit:
            raise
        except BaseException as error:
            self.failure = error
            raise

    def _batches(self, todo: Sequence[Work]) -> Iterator[pyarrow.RecordBatch]:
        from kstore.arrow import Scan

        options, typed = self._options, self._typed
        for work in todo:
            scan = Scan(
                work.ranges,
                since_ms=options.since_ms,
                until_ms=options.until_ms,
                columns=self._schema.names,
                strings=options.strings if typed is None else typed.strings,
                typed=None if typed is None else typed.rows,
                batch_bytes=_BATCH_BYTES,
                threads=self._threads,
                config=self._source.config,
                env=self._source.env,
                on_error=options.on_error,
                on_skip=lambda skipped: self.damage.append({**skipped.topic_partition._asdict(), **described(skipped)}),
            )
            for batch in scan:
                self.count += batch.num_rows
                yield batch if typed is None else typed.conformed(batch)
            self._on_bytes(work.part.size_in_bytes)
