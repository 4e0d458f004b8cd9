"""Export to tables: rows appended to a Delta Lake or an Iceberg table, each exactly once.

How far each partition was exported is in the table itself, and changes in the same commit that appends the rows: in
Delta Lake as the version of an application transaction for each partition, in Iceberg as a property of the table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from kstore.archive.columns import described
from kstore.archive.manifest import ExportedPartition, Manifest
from kstore.archive.options import ExportOptions
from kstore.archive.parts import Part, Work
from kstore.archive.plan import Source, make_plan, works
from kstore.config import LogConfig
from kstore.errors import ExportError
from kstore.log.env import Env, StrPath
from kstore.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

DELTA, ICEBERG = "delta:", "iceberg:"
# Of an application transaction, and of a property, before the name of the partition.
_APPLICATION, _PROPERTY = "kstore/", "kstore.end-offset."
_RETRIES = "commit.retry.num-retries"
_BATCH_BYTES = 4 << 20


class TablePartition(NamedTuple):
    """Up to where a partition is in a table. missing: [first, end) offsets that the source lost before this run."""

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


class _Table(ABC):
    """A table that rows are appended to."""

    @abstractmethod
    def end_offset(self, topic_partition: TopicPartition) -> int | None:
        """Return up to where a partition is in the table, None if it is not."""

    @abstractmethod
    def append(self, rows: pyarrow.RecordBatchReader, ends: Mapping[TopicPartition, int]) -> None:
        """Append rows and note the end offsets, in one commit.

        Raises: ExportError if another writer committed since the offsets were read.
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
        found: int | None = self._table.transaction_version(_APPLICATION + str(topic_partition))
        return found

    def append(self, rows: pyarrow.RecordBatchReader, ends: Mapping[TopicPartition, int]) -> None:
        marks = [self._deltalake.Transaction(_APPLICATION + str(one), end) for one, end in ends.items()]
        # Without retries: they would append after a commit of another run, which may have appended the same rows.
        properties = self._deltalake.CommitProperties(app_transactions=marks, max_commit_retries=0)
        try:
            self._deltalake.write_deltalake(self._table, rows, mode="append", commit_properties=properties)
        except self._deltalake.exceptions.CommitFailedError as error:
            raise _overtaken(self._uri, error) from error
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
        found = self._table.properties.get(_PROPERTY + str(topic_partition))
        return None if found is None else int(found)

    def append(self, rows: pyarrow.RecordBatchReader, ends: Mapping[TopicPartition, int]) -> None:
        properties = {_PROPERTY + str(one): str(end) for one, end in ends.items()}
        self._forbid_retries()
        try:
            with self._table.transaction() as transaction:
                transaction.append(rows)
                transaction.set_properties(properties)
        except self._failures as error:
            raise _overtaken(self._name, error) from error

    def _forbid_retries(self) -> None:
        """Let this process commit only to the version of the table that it read. Nothing of it is stored.

        A retry would append after a commit of another run, which may have appended the same rows.
        """
        metadata = self._table.metadata
        properties = {**metadata.properties, _RETRIES: "0"}
        self._table.metadata = metadata.model_copy(update={"properties": properties})


def _overtaken(name: str, error: Exception) -> ExportError:
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

    Rows go in commits of about options.file_bytes of the source. The run that follows one that ended early, however it
    did, goes on after its last commit.
    Args: table: "delta:URI", or "iceberg:CATALOG.NAMESPACE.TABLE" with a catalog of pyiceberg's configuration.
    Raises: ValueError for another form of `table` or format "kstore"; ModuleNotFoundError without the package;
        ExportError if another writer commits first; ExportSourceError; as kstore.scan; errors of the package.
    Cost: one pass; memory for two decoded batches for each thread, and what the package holds.
    """
    from kstore.arrow import schema

    check_table(table, options)
    columns = (*(() if "topic" in options.columns else ("topic",)), *options.columns)
    opened = _opened(table, schema(columns, strings=options.strings))
    found = Source(source, LogConfig.or_default(config), env, fail_on_data_loss)
    before = _known(opened, found, options)
    plan = make_plan(found, options, before, tasks=1)
    on_plan(sum(part.size_in_bytes for part in plan.parts))
    rows = _Rows(columns, options, found, threads=threads, on_bytes=on_bytes)
    commits = 0
    for group in _commits(plan.parts, options.file_bytes):
        ends = {part.topic_partition: part.end_offset for part in group}
        opened.append(rows.reader(list(works(group, found, options, before))), ends)
        commits += 1
    partitions = (TablePartition(*one.topic_partition, one.end_offset, one.missing) for one in plan.partitions)
    return TableSummary(table, rows.count, commits, tuple(partitions), tuple(rows.damage))


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


def _known(table: _Table, source: Source, options: ExportOptions) -> Manifest:
    """Return what the table holds, in the form in which a directory says it."""
    ends = {one.topic_partition: table.end_offset(one.topic_partition) for one in source.selected(options)}
    partitions = (ExportedPartition(*place, 0, end) for place, end in ends.items() if end is not None)
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
    """The rows of parts as streams. Attributes: count (so far), damage."""

    def __init__(
        self,
        columns: Sequence[str],
        options: ExportOptions,
        source: Source,
        *,
        threads: int,
        on_bytes: Callable[[int], None],
    ) -> None:
        self.count = 0
        self.damage: list[dict[str, Any]] = []
        self._columns = columns
        self._options = options
        self._source = source
        self._threads = threads
        self._on_bytes = on_bytes

    def reader(self, todo: Sequence[Work]) -> pyarrow.RecordBatchReader:
        """Return the rows of some parts, which are read as the stream is."""
        import pyarrow as pa

        from kstore.arrow import schema

        arrow_schema = schema(self._columns, strings=self._options.strings)
        return pa.RecordBatchReader.from_batches(arrow_schema, self._batches(todo))

    def _batches(self, todo: Sequence[Work]) -> Iterator[pyarrow.RecordBatch]:
        from kstore.arrow import Scan

        options = self._options
        for work in todo:
            scan = Scan(
                work.ranges,
                since_ms=options.since_ms,
                until_ms=options.until_ms,
                columns=self._columns,
                strings=options.strings,
                batch_bytes=_BATCH_BYTES,
                threads=self._threads,
                config=self._source.config,
                env=self._source.env,
                on_error=options.on_error,
                on_skip=lambda skipped: self.damage.append({**skipped.topic_partition._asdict(), **described(skipped)}),
            )
            for batch in scan:
                self.count += batch.num_rows
                yield batch
            self._on_bytes(work.part.size_in_bytes)
