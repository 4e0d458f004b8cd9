"""kstore.spark.export: kstore.export with its parts, or its tables, as Spark tasks."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from pyspark.sql.types import BinaryType

from kstore.archive.options import ExportArguments, Format, export_options
from kstore.archive.parts import PartResult, Work
from kstore.archive.plan import Source
from kstore.archive.run import ExportSummary, run_export
from kstore.archive.tables.appending import TableResult, TableSummary, TableWork, result_of, run_tables
from kstore.archive.tables.naming import absolute, check_destination, check_no_storage_options
from kstore.archive.tasks import Job, run_part
from kstore.config import LogConfig, config_or_default
from kstore.env import Env, StrPath
from kstore.errors import ExportConflictError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from typing_extensions import Unpack

# Another attempt of a task may write the same table.
_MOST_CONFLICTS = 3


class SparkTasks:
    """Runs the parts of an export as the tasks of one Spark job, one part each."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __call__(self, todo: Sequence[Work], job: Job) -> Iterator[PartResult]:
        """Run the tasks. A task that is repeated, or runs twice, writes other files than its other attempts."""
        parts = list(todo)
        for result in _results(self._spark, len(parts), lambda number: run_part(parts[number], job).encoded()):
            yield PartResult.decoded(result, path="the result of a task")


class SparkTables:
    """Exports tables as the tasks of one Spark job, one table each."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __call__(self, todo: Sequence[TableWork]) -> Iterator[TableResult]:
        """Run the tasks. Of two attempts that write a table at the same time, one appends each record."""
        tables = list(todo)
        yield from map(pickle.loads, _results(self._spark, len(tables), lambda number: _table_result(tables[number])))


def _table_result(work: TableWork) -> bytes:
    for _ in range(_MOST_CONFLICTS):
        result = result_of(work)
        if not isinstance(result.error, ExportConflictError):
            break
    return pickle.dumps(result)


def _results(spark: SparkSession, count: int, task: Callable[[int], bytes]) -> Iterator[bytes]:
    """Yield what tasks return.

    What a task needs is in its closure, and not in rows, so that each is one row of a range: nothing else decides where
    it runs.
    """
    from pyspark.sql.functions import udf

    def run(number: int) -> bytes:
        from kstore.env.process import exclude_from_collection

        exclude_from_collection()
        return task(number)

    # Without Arrow, for which Spark asks for pandas. Not deterministic, so that no plan evaluates it twice.
    run_one = udf(run, BinaryType(), useArrow=False).asNondeterministic()
    rows = spark.range(0, count, 1, max(count, 1))
    for row in rows.select(run_one(rows["id"]).alias("result")).collect():
        yield bytes(row["result"])


@overload
def export(
    spark: SparkSession,
    source: StrPath,
    target: StrPath,
    format: Format = ...,
    *,
    table: None = ...,
    partition_by: None = ...,
    storage_options: Mapping[str, str] | None = ...,
    fail_on_data_loss: bool = ...,
    config: LogConfig | None = ...,
    env: Env | None = ...,
    **options: Unpack[ExportArguments],
) -> ExportSummary: ...


@overload
def export(
    spark: SparkSession,
    source: StrPath,
    target: None = ...,
    format: Format = ...,
    *,
    table: str,
    partition_by: Iterable[str] | str | None = ...,
    storage_options: None = ...,
    fail_on_data_loss: bool = ...,
    config: LogConfig | None = ...,
    env: Env | None = ...,
    **options: Unpack[ExportArguments],
) -> TableSummary: ...


def export(
    spark: SparkSession,
    source: StrPath,
    target: StrPath | None = None,
    format: Format = "parquet",
    *,
    table: str | None = None,
    partition_by: Iterable[str] | str | None = None,
    storage_options: Mapping[str, str] | None = None,
    fail_on_data_loss: bool = True,
    config: LogConfig | None = None,
    env: Env | None = None,
    **options: Unpack[ExportArguments],
) -> ExportSummary | TableSummary:
    """Export as kstore.export does, with a Spark task for each part; no row passes through the JVM.

    The driver plans and commits, and the tasks write files into the target's staging directory: source and target must
    be paths that the driver and all executors see, or URLs. For a target that is a URL, executors need obstore, and
    credentials in their environment, or in storage_options, which tasks then carry. With table=, a task plans and
    commits each table, so that {topic} in its name is what makes several tasks; the executors need the package of the
    table, and its configuration. A run can be started with Spark and resumed without it, or the other way round.
    Retries and speculation are safe.
    Args: as kstore.export; spark: a session, also of Spark Connect.
    Raises: as kstore.export on the driver; pyspark's errors for a task that failed too often, whose message has the
        error of kstore. The same call then resumes the run.
    Returns: what the target holds, and what this run added; of tables, without what an attempt of a task appended that
        did not end.
    """
    check_destination(target, table, partition_by)
    checked = export_options(format, **options)
    opened = Source(source, config_or_default(config), env, fail_on_data_loss)
    if target is not None:
        tasks = SparkTasks(spark)
        return run_export(opened, target, checked, tasks, tasks=_slots(spark), storage_options=storage_options)
    check_no_storage_options(storage_options)
    return run_tables(opened, absolute(table or ""), checked, SparkTables(spark), partition_by=partition_by)


def _slots(spark: SparkSession) -> int:
    """Return how many tasks run at a time; 1 in Spark Connect, where that is unknown."""
    try:
        context: Any = spark.sparkContext
    except Exception as error:  # Spark Connect has no context and raises an error with its own class
        if "sparkContext" not in str(error) and "JVM_ATTRIBUTE_NOT_SUPPORTED" not in str(error):
            raise
        return 1
    return int(context.defaultParallelism)
