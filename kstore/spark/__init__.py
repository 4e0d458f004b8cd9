"""Apache Spark data source format("kstore"), which reads Kafka's log files, and Spark settings for it."""

from kstore.spark.options import configure
from kstore.spark.skipped import damage
from kstore.spark.source import KStoreDataSource

__all__ = ["KStoreDataSource", "configure", "damage"]
