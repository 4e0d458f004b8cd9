"""Writer of format("kstore") for streaming queries: KStoreStreamWriter, which commits each micro-batch exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from kstore.errors import StorageError, UnsupportedError
from kstore.spark.sink.writers import StagedMessage, commit, prepare_write, stage
from kstore.staging.area import AppVersion, StagingArea, job_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from kstore.spark.sink.options import WriteOptions

# Local properties of Spark's StreamExecution and MicroBatchExecution.
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


class KStoreStreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query: each is one transaction, and is committed once, however often it is run.

    The query's id, which is in its checkpoint, comes from the tasks: the process that commits does not know it.
    """

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        prepare_write(options, schema, overwrite=overwrite)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        """Stage the rows of one task of a micro-batch."""
        app = _running_batch()
        return StagedMessage(stage(self._options, job_name(*app), iterator), app)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Append what the tasks staged, in one transaction, unless the batch was committed before."""
        app = _batch_of(messages, batchId)
        if app is not None:
            commit(self._options, messages, app)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove the staged files. A commit that failed after its commit point stays committed."""
        app = _batch_of(messages, batchId)
        if app is not None:
            with suppress(StorageError):
                StagingArea(self._options.root).remove_job(job_name(*app))


def _running_batch() -> AppVersion:
    """Return the id of the query and of the micro-batch that this task belongs to."""
    context = TaskContext.get()
    query_id = None if context is None else context.getLocalProperty(_QUERY_ID)
    batch_id = None if context is None else context.getLocalProperty(_BATCH_ID)
    if query_id is None or batch_id is None:
        raise UnsupportedError(
            f"the task does not know its micro-batch: expected the local properties {_QUERY_ID} and {_BATCH_ID}, found "
            f"{query_id} and {batch_id}"
        )
    return AppVersion(query_id, int(batch_id))


def _batch_of(messages: list[WriterCommitMessage | None], batch_id: int) -> AppVersion | None:
    """Return the version in the messages of the tasks, None if no task wrote anything.

    Raises: ValueError if it is not this batch, of one query.
    """
    apps = {message.app for message in messages if isinstance(message, StagedMessage) and message.app is not None}
    if not apps:
        return None
    app = apps.pop()
    if apps or app.version != batch_id:
        found = ", ".join(f"{message.version} of query {message.app_id}" for message in sorted({app, *apps}))
        raise ValueError(f"messages to commit: expected those of batch {batch_id} of one query, found {found}")
    return app
