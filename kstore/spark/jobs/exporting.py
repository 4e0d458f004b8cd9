"""kstore.spark.export: kstore.export with its parts as Spark tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import BinaryType

from kstore.archive.options import ExportArguments, Format, export_options
from kstore.archive.parts import PartResult, Work
from kstore.archive.plan import Source
from kstore.archive.run import ExportSummary, run_export
from kstore.archive.tasks import Job, run_part
from kstore.config import LogConfig, config_or_default
from kstore.env import Env, StrPath

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from typing_extensions import Unpack


class SparkTasks:
    """Runs the parts of an export as the tasks of one Spark job, one part each."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __call__(self, todo: Sequence[Work], job: Job) -> Iterator[PartResult]:
        """Run the tasks. A task that is repeated, or runs twice, writes other files than its other attempts."""
        from pyspark.sql.functions import udf

        # In the closure, and not in rows, so that each task is one row of a range: nothing else decides where it runs.
        parts = list(todo)

        def run(number: int) -> bytes:
            from kstore.spark.readers import settle_worker

            settle_worker()
            return run_part(parts[number], job).encoded()

        # Without Arrow, for which Spark asks for pandas. Not deterministic, so that no plan evaluates it twice.
        run_one = udf(run, BinaryType(), useArrow=False).asNondeterministic()
        rows = self._spark.range(0, len(parts), 1, len(parts))
        for row in rows.select(run_one(rows["id"]).alias("result")).collect():
            yield PartResult.decoded(bytes(row["result"]), path="the result of a task")


def export(
    spark: SparkSession,
    source: StrPath,
    target: StrPath,
    format: Format = "parquet",
    *,
    fail_on_data_loss: bool = True,
    config: LogConfig | None = None,
    env: Env | None = None,
    **options: Unpack[ExportArguments],
) -> ExportSummary:
    """Export as kstore.export does, with a Spark task for each part; no row passes through the JVM.

    The driver plans and commits, and the tasks write files into the target's staging directory: source and target must
    be paths that the driver and all executors see. A run can be started with Spark and resumed without it, or the other
    way round. Retries and speculation are safe.
    Args: as kstore.export; spark: a session, also of Spark Connect.
    Raises: as kstore.export on the driver; pyspark's errors for a task that failed too often, whose message has the
        error of kstore. The same call then resumes the run.
    Returns: what the target holds, and what this run added.
    """
    opened = Source(source, config_or_default(config), env, fail_on_data_loss)
    return run_export(opened, target, export_options(format, **options), SparkTasks(spark), tasks=_slots(spark))


def _slots(spark: SparkSession) -> int:
    """Return how many tasks run at a time; 1 in Spark Connect, where that is unknown."""
    try:
        context: Any = spark.sparkContext
    except Exception as error:  # Spark Connect has no context and raises an error with its own class
        if "sparkContext" not in str(error) and "JVM_ATTRIBUTE_NOT_SUPPORTED" not in str(error):
            raise
        return 1
    return int(context.defaultParallelism)
