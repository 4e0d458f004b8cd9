"""Registers format("kstore"): Spark looks into every top-level pyspark_* module for its DefaultSource.

This import must be cheap and must not fail, since a failure would break the look-up for every Python
data source; so the source itself is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from kstore.spark.source import KStoreDataSource

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Stands for kstore.spark.KStoreDataSource until it is used."""

    @classmethod
    def name(cls) -> str:
        """The word for format()."""
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

    def _source(self) -> KStoreDataSource:
        from kstore.spark.source import KStoreDataSource

        return KStoreDataSource(self.options)
