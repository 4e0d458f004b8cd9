"""KStoreDataSource: what Spark calls behind format("kstore"). Layer: spark."""

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
    """Kafka log directories as DataFrames; columns and options of Spark's Kafka source, `path` for the broker."""

    @classmethod
    def name(cls) -> str:
        """The word for format()."""
        return "kstore"

    def schema(self) -> StructType:
        """The columns of a read without a user schema.

        Raises: ValueError for a wrong option, as load() is called.
        """
        return source_schema(include_headers=parse_read_options(self.options).include_headers)

    def reader(self, schema: StructType) -> KStoreReader:
        """Check options and schema.

        Raises: ValueError for a wrong option or a column that a log does not have.
        """
        options = parse_read_options(self.options)
        projection = Projection.of(schema)
        # Only this worker of Spark calls pushFilters; elsewhere its presence is an error.
        if options.push_filters and _PUSHDOWN_WORKER in sys.modules:
            return FilteringReader(options, projection)
        return KStoreReader(options, projection)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader whose first call raises UnsupportedError: there are batch reads only."""
        return _NoStreamReader(schema)


class _NoStreamReader(DataSourceStreamReader):
    """Spark buries what streamReader() itself raises under an error of its own; this one's it shows."""

    def __init__(self, schema: StructType) -> None:
        self._columns = ", ".join(schema.names)

    def initialOffset(self) -> dict[str, int]:
        raise UnsupportedError(
            f'no stream of {self._columns}: format("kstore") has batch reads only, use spark.read, not spark.readStream'
        )

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        raise UnsupportedError(f"no stream of {self._columns}: {partition} can't be read")
