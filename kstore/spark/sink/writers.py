"""Writers of format("kstore") for Spark: KStoreWriter for DataFrames.

write() runs in the tasks and stages files; commit() and abort() run in a process of the driver, which gets only the
messages that write() returned. So tasks import no store, and the driver's processes no producer.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from kstore.env.process import exclude_from_collection
from kstore.errors import StorageError
from kstore.spark.sink.rows import RowSender, check_columns
from kstore.staging.area import AppVersion, StagedFile, StagingArea, partitions_by_topic, unknown_topic_error
from kstore.staging.preparing import prepare_root

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from kstore.spark.sink.options import WriteOptions

TRANSACTIONAL_ID_PREFIX = "kstore-spark-"
# Of writes without an application, of which one at a time can hold the root's lock.
_BATCH_ID = "batch"
# The main module of Spark's processes that are used again.
_WORKER = "pyspark.daemon"


@dataclass(frozen=True)
class StagedMessage(WriterCommitMessage):
    """The files that a task staged; app: the application and version of the write, None for a batch write."""

    files: tuple[StagedFile, ...]
    app: AppVersion | None = None


def settle_worker() -> None:
    """In a process of Spark, exclude what its step has imported from garbage collection.

    Spark uses the process again, for the same step of other writes, and runs a full collection after each.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name == _WORKER:
        exclude_from_collection()


def prepare_write(options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
    """Check what can be checked before any task starts, and create the staging area and a missing topic.

    Raises: ValueError for a save mode other than append, or columns that the sink does not take; as prepare_root.
    """
    if overwrite:
        raise ValueError('format("kstore") appends only: use mode("append"), or outputMode("append") for a stream')
    check_columns(schema, has_topic=options.topic is not None)
    new_topics = []
    if options.topic is not None and options.new_topic_partitions is not None:
        new_topics.append((options.topic, options.new_topic_partitions))
    prepare_root(options.root, new_topics=new_topics, max_block_ms=options.max_block_ms)
    if options.topic is not None:
        known = partitions_by_topic(options.root)
        if options.topic not in known:
            raise unknown_topic_error(options.topic, options.root, known)
    settle_worker()


def stage(options: WriteOptions, job: str, batches: Iterable[pa.RecordBatch]) -> tuple[StagedFile, ...]:
    """Encode rows into staged files and return these.

    Raises: as RowSender.write; StorageError. Nothing is left then.
    """
    from kstore.producer.producer import Producer
    from kstore.staging.sink import StagingSink

    sink = StagingSink(
        StagingArea(options.root),
        job,
        partitions=partitions_by_topic(options.root),
        new_topic_partitions=options.new_topic_partitions,
    )
    try:
        with Producer(sink, enable_idempotence=False, **options.settings) as producer:
            sender = RowSender(producer, sink, topic=options.topic)
            for batch in batches:
                sender.write(batch)
            sender.finish()
        files = sink.finish()
    except BaseException:
        sink.discard()
        raise
    settle_worker()
    return files


def commit(options: WriteOptions, messages: Iterable[WriterCommitMessage | None], app: AppVersion | None) -> None:
    """Commit what the tasks staged, in the order of the tasks.  Raises: as commit_staged."""
    from kstore.staging.commit import commit_staged

    commit_staged(
        options.root,
        [staged for message in messages if isinstance(message, StagedMessage) for staged in message.files],
        transactional_id=TRANSACTIONAL_ID_PREFIX + (_BATCH_ID if app is None else app.app_id),
        app=app,
        new_topic_partitions=options.new_topic_partitions,
        max_block_ms=options.max_block_ms,
        transaction_timeout_ms=options.transaction_timeout_ms,
    )
    settle_worker()


class KStoreWriter(DataSourceArrowWriter):
    """Writes a DataFrame: each write is one transaction.

    With txnAppId and txnVersion a version is written once, however often it is tried; without them Spark may write the
    rows again if the driver dies after the commit, or if the caller tries again.
    """

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        prepare_write(options, schema, overwrite=overwrite)
        self._options = options
        # Made once: Spark sends this very writer to the tasks and to the committing process.
        self._job = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        """Stage the rows of one task."""
        return StagedMessage(stage(self._options, self._job, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Append what the tasks staged, in one transaction."""
        commit(self._options, messages, self._options.app)
        self._clear()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the staged files. A commit that failed after its commit point stays committed."""
        del messages
        self._clear()

    def _clear(self) -> None:
        with suppress(StorageError):
            StagingArea(self._options.root).remove_job(self._job)
