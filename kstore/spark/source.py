"""format("kstore") for Spark: the data source, which makes the readers and writers.

What reads and what writes is imported by the method that makes it: each of Spark's processes needs one of the two.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from kstore.errors import UnsupportedError

if TYPE_CHECKING:
    from kstore.spark.options import ReadOptions
    from kstore.spark.readers import DamageReader, KStoreReader

_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class KStoreDataSource(DataSource):
    """Reads Kafka log directories as DataFrames.

    Columns and options are those of Spark's Kafka source, with `path` in place of kafka.bootstrap.servers.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for format()."""
        return "kstore"

    def schema(self) -> StructType:
        """Return the schema of a read without a user schema.

        Raises: ValueError, when load() is called, for options that are valid neither for a batch nor for a stream; with
            a format of keys or values SchemaNotFoundError, InvalidSchemaError, LogNotFoundError, StorageError.
        """
        from kstore.spark.schema import source_schema
        from kstore.spark.skipped import DAMAGE_SCHEMA

        options = self._options()
        if options.gives_damage:
            return DAMAGE_SCHEMA
        if options.values is None:
            return source_schema(include_headers=options.include_headers)
        from kstore.spark.values.plans import inferred_schema

        return inferred_schema(options)

    def _options(self) -> ReadOptions:
        """Return the options of a batch, or those that a stream has too: Spark does not say which of the two it is."""
        from kstore.spark.options import parse_read_options
        from kstore.spark.stream.options import parse_stream_options

        try:
            return parse_read_options(self.options)
        except ValueError:
            with suppress(ValueError):
                return parse_stream_options(self.options).read
            raise

    def reader(self, schema: StructType) -> KStoreReader | DamageReader:
        """Check the options and the schema and return a reader.

        Raises: ValueError for an invalid option or an unknown column.
        """
        from kstore.spark.options import parse_read_options
        from kstore.spark.readers import DamageReader, FilteringReader, KStoreReader
        from kstore.spark.schema import UserSchema
        from kstore.spark.skipped import DAMAGE_SCHEMA

        options = parse_read_options(self.options)
        if options.gives_damage:
            if schema != DAMAGE_SCHEMA:
                raise ValueError(f"schema: rows=damage has its own, {DAMAGE_SCHEMA.simpleString()}; leave it out")
            return DamageReader(options)
        user_schema = UserSchema.of(schema, options.values)
        # Only this worker process of Spark calls pushFilters; in others Spark refuses a reader that has it.
        if options.push_filters and _PUSHDOWN_WORKER in sys.modules:
            return FilteringReader(options, user_schema)
        return KStoreReader(options, user_schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Check the options and the schema and return a reader of micro-batches.

        Each method of the reader raises ValueError for an invalid option or an unknown column, and UnsupportedError
        with a Spark before 4.2: Spark would hide an error that is raised here.
        """
        from kstore.spark.schema import UserSchema
        from kstore.spark.stream.options import parse_stream_options

        try:
            options = parse_stream_options(self.options)
            user_schema = UserSchema.of(schema, options.read.values)
            with _spark_with("streaming.datasource", "4.2", use="streams that read"):
                from kstore.spark.stream.reader import KStoreStreamReader
        except (ValueError, UnsupportedError) as error:
            return _RefusedStream(error)
        return KStoreStreamReader(options, user_schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Check the options and the columns and return a writer.

        Raises: ValueError for an invalid option, a wrong column or a save mode other than append;
            UnknownTopicOrPartitionError; LogLockedError if a broker or another writer holds the root; StorageError;
            UnsupportedError with a Spark that has no DataSourceArrowWriter.
        """
        from kstore.spark.sink.options import parse_write_options

        options = parse_write_options(self.options, is_stream=False)
        with _spark_with("DataSourceArrowWriter", "4.0", use="writes to"):
            from kstore.spark.sink.writers import KStoreWriter
        return KStoreWriter(options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Check the options and the columns and return a writer of micro-batches.

        Raises: as writer; UnsupportedError with a Spark that has no DataSourceStreamArrowWriter.
        """
        from kstore.spark.sink.options import parse_write_options

        options = parse_write_options(self.options, is_stream=True)
        with _spark_with("DataSourceStreamArrowWriter", "4.1", use="streams that write to"):
            from kstore.spark.sink.streaming import KStoreStreamWriter
        return KStoreStreamWriter(options, schema, overwrite=overwrite)


@contextmanager
def _spark_with(name: str, version: str, *, use: str) -> Iterator[None]:
    """Context manager: turn the ImportError of a name that this Spark does not have into an UnsupportedError."""
    try:
        yield
    except ImportError as error:
        if name not in str(error):
            raise
        found = sys.modules["pyspark"].__version__
        raise UnsupportedError(f'{use} format("kstore") need Spark {version} or later, found {found}') from error


class _RefusedStream(DataSourceStreamReader):
    """A stream reader whose methods raise an error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def _refuse(self) -> NoReturn:
        raise self._error

    def initialOffset(self) -> dict[str, int]:
        self._refuse()

    def latestOffset(self, *_: Any) -> dict[str, int]:
        self._refuse()

    def partitions(self, *_: Any) -> list[InputPartition]:
        self._refuse()

    def read(self, *_: Any) -> Iterator[tuple[object, ...]]:
        self._refuse()
