"""KStoreDataSource, the implementation of format("kstore")."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from kstore.errors import UnsupportedError
from kstore.spark.options import parse_read_options
from kstore.spark.reader import FilteringReader, KStoreReader
from kstore.spark.schema import Projection, source_schema

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

        Raises: ValueError for an invalid option, when load() is called.
        """
        return source_schema(include_headers=parse_read_options(self.options).include_headers)

    def reader(self, schema: StructType) -> KStoreReader:
        """Check the options and the schema and return a reader.

        Raises: ValueError for an invalid option or an unknown column.
        """
        options = parse_read_options(self.options)
        projection = Projection.of(schema)
        # Only this worker process of Spark calls pushFilters; in others Spark refuses a reader that has it.
        if options.push_filters and _PUSHDOWN_WORKER in sys.modules:
            return FilteringReader(options, projection)
        return KStoreReader(options, projection)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader whose methods raise UnsupportedError, since only batch reads are supported."""
        return _NoStreamReader(schema)


class _NoStreamReader(DataSourceStreamReader):
    """A stream reader that raises UnsupportedError.

    Spark shows an error of this class's methods, but would hide one raised by streamReader() itself.
    """

    def __init__(self, schema: StructType) -> None:
        self._columns = ", ".join(schema.names)

    def initialOffset(self) -> dict[str, int]:
        raise UnsupportedError(
            f'no stream of {self._columns}: format("kstore") has batch reads only, use spark.read, not spark.readStream'
        )

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        raise UnsupportedError(f"no stream of {self._columns}: {partition} can't be read")
