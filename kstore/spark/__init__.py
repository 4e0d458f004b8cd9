"""Apache Spark data source format("kstore"), which reads Kafka's log files, and Spark settings for it.

Each public name is imported when it is first used: Spark starts a Python for each step of a query, and most need few.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore._lazy import lazy_names

try:
    import pyspark  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "pyspark":
        raise
    raise ModuleNotFoundError(
        "this part of kstore needs the package pyspark: pip install 'kstore[spark]'", name=error.name
    ) from error

if TYPE_CHECKING:
    from kstore.spark.jobs.exporting import export as export
    from kstore.spark.jobs.scanning import scan as scan
    from kstore.spark.options import configure as configure
    from kstore.spark.skipped import damage as damage
    from kstore.spark.source import KStoreDataSource as KStoreDataSource
    from kstore.spark.stream.progress import PartitionProgress as PartitionProgress
    from kstore.spark.stream.progress import ProgressListener as ProgressListener
    from kstore.spark.stream.progress import StreamProgress as StreamProgress
    from kstore.spark.stream.progress import progress as progress

_MODULES = {
    "kstore.spark.jobs.exporting": ("export",),
    "kstore.spark.jobs.scanning": ("scan",),
    "kstore.spark.options": ("configure",),
    "kstore.spark.skipped": ("damage",),
    "kstore.spark.source": ("KStoreDataSource",),
    "kstore.spark.stream.progress": ("PartitionProgress", "ProgressListener", "StreamProgress", "progress"),
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _MODULES)
