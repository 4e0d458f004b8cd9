"""Apache Spark data source format("kstore"), which reads Kafka's log files, and Spark settings for it."""

try:
    import pyspark  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "pyspark":
        raise
    raise ModuleNotFoundError(
        "this part of kstore needs the package pyspark: pip install 'kstore[spark]'", name=error.name
    ) from error

from kstore.spark.jobs.exporting import export
from kstore.spark.jobs.scanning import scan
from kstore.spark.options import configure
from kstore.spark.skipped import damage
from kstore.spark.source import KStoreDataSource
from kstore.spark.stream.progress import PartitionProgress, ProgressListener, StreamProgress, progress

__all__ = [
    "KStoreDataSource",
    "PartitionProgress",
    "ProgressListener",
    "StreamProgress",
    "configure",
    "damage",
    "export",
    "progress",
    "scan",
]
