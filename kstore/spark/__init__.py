"""Apache Spark on Kafka's files: the data source behind format("kstore"), and settings for it."""

from kstore.spark.settings import configure
from kstore.spark.source import KStoreDataSource

__all__ = ["KStoreDataSource", "configure"]
