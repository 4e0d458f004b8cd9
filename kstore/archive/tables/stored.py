"""StoredTable: a table of Delta Lake or Iceberg that rows are appended to, with the marks of how far each partition is.

Marks change in the commit that appends the rows: in Delta Lake as versions of application transactions for each
partition, in Iceberg as properties of the table.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from kstore.archive.options import COLUMNS, DATE, DELTA, ICEBERG
from kstore.archive.tables.rows import TableRows, with_date
from kstore.errors import ExportConflictError, ExportError, ExportOptionsError, KStoreError
from kstore.types import TopicPartition, parse_partition_directory_name

if TYPE_CHECKING:
    import pyarrow

# Before the name of the partition: of an application transaction, whose version is the end offset, and of a property.
_APPLICATION, _PROPERTY = "kstore/", "kstore."
_END = "end-offset"
SOURCE, TOPIC_ID = "source", "topic-id"
_SOURCE_OF_COMMIT = "kstore.source"
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_TABLE_BYTES = 256 << 20
# Writers of Delta Lake shorten the bounds of texts, to this length or more; the last character may be another one.
_SHORTENED = 32
_RETRIES = "commit.retry.num-retries"


class Mark(NamedTuple):
    """The progress of a partition, as it is stored in a table. topic_id: None if the source has none."""

    end_offset: int
    source: str
    topic_id: str | None

    @property
    def texts(self) -> dict[str, str]:
        """The stored texts that identify the source, by their names in the table."""
        ids = {} if self.topic_id is None else {TOPIC_ID: self.topic_id}
        return {SOURCE: self.source, **ids}


class StoredTable(ABC):
    """A table that rows are appended to."""

    @abstractmethod
    def end_offset(self, topic_partition: TopicPartition) -> int | None:
        """Return the stored end offset of a partition, None if there is none."""

    @abstractmethod
    def other(self, name: str, topic_partition: TopicPartition, text: str) -> str | None:
        """Return the text stored for a partition under `name`; None if there is none, or it equals `text`."""

    @abstractmethod
    def other_topics(self, topic: str) -> set[str]:
        """Return topics but this one that the table has rows or marks of: some of them, if there are any.

        Cost: in Delta Lake, the list of all files.
        """

    @abstractmethod
    def schema(self) -> pyarrow.Schema:
        """Return the schema of the table."""

    @abstractmethod
    def partition_columns(self) -> list[str]:
        """Return what the table is partitioned by."""

    @abstractmethod
    def append(
        self, rows: pyarrow.RecordBatchReader, marks: Mapping[TopicPartition, Mark], *, adds_fields: bool
    ) -> None:
        """Append rows and store the marks, in one commit.

        Args: adds_fields: whether rows may have fields that the table lacks, which are added to it.
        Raises: ExportConflictError if another writer committed since the marks were read.
        """


class _DeltaTable(StoredTable):
    def __init__(self, uri: str, schema: pyarrow.Schema, partition_by: Sequence[str]) -> None:
        import deltalake

        self._deltalake: Any = deltalake
        self._uri = uri
        if not deltalake.DeltaTable.is_deltatable(uri):
            deltalake.DeltaTable.create(uri, schema, mode="ignore", partition_by=list(partition_by))
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

    def other_topics(self, topic: str) -> set[str]:
        # Application transactions cannot be listed, but files have the least and the greatest topic of their rows.
        files = self._table.get_add_actions(flatten=True)
        bounds = {
            name: {bound.as_py() for bound in files.column(name)}
            for name in ("partition.topic", "min.topic", "max.topic")
            if name in files.schema.names
        }
        return {bound for bounds_of in bounds.values() for bound in bounds_of if not _is_bound_of(bound, topic)}

    def schema(self) -> pyarrow.Schema:
        import pyarrow as pa

        return pa.schema(self._table.schema().to_arrow())

    def partition_columns(self) -> list[str]:
        return list(self._table.metadata().partition_columns)

    def append(
        self, rows: pyarrow.RecordBatchReader, marks: Mapping[TopicPartition, Mark], *, adds_fields: bool
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
        committed = self._table.version() + 1
        try:
            self._deltalake.write_deltalake(
                self._table, rows, mode="append", schema_mode=mode, commit_properties=properties
            )
        except self._deltalake.exceptions.CommitFailedError as error:
            raise _conflict_error(self._uri, error) from error
        # Not the newest version: the commit of another run in between would be no conflict of the next one.
        if self._table.version() != committed:
            self._table.load_as_version(committed)


class _IcebergTable(StoredTable):
    def __init__(self, name: str, schema: pyarrow.Schema, partition_by: Sequence[str]) -> None:
        from pyiceberg import exceptions
        from pyiceberg.catalog import load_catalog

        self._failures: Any = (exceptions.CommitFailedException, exceptions.ValidationException)
        self._name = name
        catalog_name, _, identifier = name.partition(".")
        catalog: Any = load_catalog(catalog_name)
        catalog.create_namespace_if_not_exists(identifier.rpartition(".")[0])
        if not catalog.table_exists(identifier):
            try:
                with catalog.create_table_transaction(identifier, schema) as created, created.update_spec() as spec:
                    for column in partition_by:
                        spec.add_identity(column)
            except (exceptions.TableAlreadyExistsError, *self._failures):
                # Another run created it.
                if not catalog.table_exists(identifier):
                    raise
        self._table: Any = catalog.load_table(identifier)

    def end_offset(self, topic_partition: TopicPartition) -> int | None:
        offset = self._property(_END, topic_partition)
        return None if offset is None else int(offset)

    def other(self, name: str, topic_partition: TopicPartition, text: str) -> str | None:
        noted = self._property(name, topic_partition)
        return None if noted == text else noted

    def other_topics(self, topic: str) -> set[str]:
        prefix = f"{_PROPERTY}{_END}."
        names = (name.removeprefix(prefix) for name in self._table.properties if name.startswith(prefix))
        return {place.topic for place in map(parse_partition_directory_name, names) if place is not None} - {topic}

    def schema(self) -> pyarrow.Schema:
        return self._table.schema().as_arrow()

    def partition_columns(self) -> list[str]:
        schema = self._table.schema()
        names = ((field.transform, schema.find_column_name(field.source_id)) for field in self._table.spec().fields)
        return [name if str(transform) == "identity" else f"{transform}({name})" for transform, name in names]

    def append(
        self, rows: pyarrow.RecordBatchReader, marks: Mapping[TopicPartition, Mark], *, adds_fields: bool
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
                # A stream is taken only by a table without partitions.
                for part in _tables(rows) if self._table.spec().fields else [rows]:
                    transaction.append(part)
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


def _tables(rows: pyarrow.RecordBatchReader) -> Iterator[pyarrow.Table]:
    """Yield the rows as tables of bounded size; at least one, which may be empty."""
    import pyarrow as pa

    batches: list[pyarrow.RecordBatch] = []
    size, count = 0, 0
    for batch in rows:
        batches.append(batch)
        size += batch.nbytes
        if size >= _TABLE_BYTES:
            yield pa.Table.from_batches(batches)
            batches, size, count = [], 0, count + 1
    if batches or not count:
        yield pa.Table.from_batches(batches, rows.schema)


def _is_bound_of(bound: str | None, topic: str) -> bool:
    """Whether a least or greatest topic of a file may be this one; None: the file has none."""
    if bound is None or bound == topic:
        return True
    return len(bound) >= _SHORTENED and topic.startswith(bound[:-1])


def _number_of(text: str) -> int:
    """Return a 63-bit hash of a text: the version of an application transaction is a number."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def opened_table(table: str, schema: pyarrow.Schema, partition_by: Sequence[str] | None) -> StoredTable:
    """Return a table, which is created if it does not exist.

    Args: schema: of the rows without the date; partition_by: the columns by which the table is partitioned, None for
        those that it has, and for the date if it is created.
    Raises: ValueError for a column that rows do not have; ExportOptionsError if the table is partitioned by others.
    """
    columns = [DATE] if partition_by is None else list(partition_by)
    unknown = [name for name in columns if name not in (*schema.names, DATE)]
    if unknown or len(set(columns)) < len(columns):
        known = ", ".join((*schema.names, DATE))
        raise ValueError(f"partition_by must be some of the columns {known}, each once; got {', '.join(columns)}")
    created = with_date(schema) if DATE in columns else schema
    kind, colon, name = table.partition(":")
    with failures_of(table):
        opened: StoredTable = {DELTA: _DeltaTable, ICEBERG: _IcebergTable}[kind + colon](name, created, columns)
        there = opened.partition_columns()
    if partition_by is not None and there != columns:
        message = f"{table} is partitioned by other columns: {there} there, {columns} asked for"
        raise ExportOptionsError(message, differences={"partition_by": (there, columns)}, path=table)
    return opened


@contextmanager
def failures_of(table: str, rows: TableRows | None = None) -> Iterator[None]:
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


def _conflict_error(name: str, error: Exception) -> ExportConflictError:
    return ExportConflictError(
        f"another writer committed to {name} first, nothing was appended: run it again: {error}", path=name
    )
