"""Registers format("kstore"): Spark searches every top-level pyspark_* module for a DefaultSource.

Importing this module must be cheap and must not fail, since a failure would break the lookup of every Python data
source. The source itself is therefore imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from kstore.spark.source import KStoreDataSource

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """A proxy that imports kstore.spark.KStoreDataSource when it is first used."""

    @classmethod
    def name(cls) -> str:
        """Return the name for format()."""
        return "kstore"

    def schema(self) -> StructType:
        """See KStoreDataSource.schema."""
        return self._source().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """See KStoreDataSource.reader."""
        return self._source().reader(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """See KStoreDataSource.streamReader."""
        return self._source().streamReader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """See KStoreDataSource.writer."""
        return self._source().writer(schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """See KStoreDataSource.streamWriter."""
        return self._source().streamWriter(schema, overwrite)

    def _source(self) -> KStoreDataSource:
        from kstore.spark.source import KStoreDataSource

        return KStoreDataSource(self.options)
