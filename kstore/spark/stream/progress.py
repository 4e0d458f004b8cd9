"""How far a streaming query is: the lag of each partition, by Spark's progress and, if a path is given, by the logs."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pyspark.sql.streaming.listener import StreamingQueryListener

from kstore.env import Env, StrPath
from kstore.errors import KStoreError, LogNotFoundError
from kstore.log.files.names import find_partitions
from kstore.spark.stream.positions import StreamPosition
from kstore.store.opening import open_found
from kstore.types import TopicPartition

# Spark describes a source by its class in the JVM, and that of each source in Python is one of these.
_PYTHON_SOURCES = ".v2.python."

_logger = logging.getLogger("kstore.spark")


class PartitionProgress(NamedTuple):
    """How far a partition is.

    topic, partition: of the log.
    start_offset, end_offset: of the micro-batch; both 0 for a partition that was not read yet. latest_offset: the end
    of the log, when the micro-batch was planned or, with a path, now. lag_bytes: of the log from end_offset on, None
    without a path, or if the partition is gone.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    latest_offset: int
    lag_bytes: int | None = None

    @property
    def lag(self) -> int:
        """How many offsets are still to be read."""
        return max(self.latest_offset - self.end_offset, 0)


class StreamProgress(NamedTuple):
    """What the last micro-batch of a query did, and what is left. Rates are of all sources in format("kstore").

    name: of the query, else its id. timestamp: of the trigger, in ISO 8601. batch_id: of the micro-batch.
    rows, rows_per_second: that it read. partitions: of all topics that the query reads.
    """

    name: str
    batch_id: int
    timestamp: str
    rows: int
    rows_per_second: float
    partitions: tuple[PartitionProgress, ...]

    @property
    def lag(self) -> int:
        """How many offsets of all partitions are still to be read."""
        return sum(partition.lag for partition in self.partitions)

    @property
    def lag_bytes(self) -> int | None:
        """The bytes that are still to be read, None without a path."""
        sizes = [partition.lag_bytes for partition in self.partitions if partition.lag_bytes is not None]
        return sum(sizes) if sizes else None

    def __str__(self) -> str:
        size = "" if self.lag_bytes is None else f" ({self.lag_bytes} bytes)"
        most = max(self.partitions, key=lambda partition: partition.lag, default=None)
        largest = f", most in {most.topic}-{most.partition}: {most.lag}" if most is not None and most.lag else ""
        return (
            f"{self.name}: micro-batch {self.batch_id}: {self.rows} rows, {self.rows_per_second:.0f}/s; lag {self.lag} "
            f"offsets{size} in {len(self.partitions)} partitions{largest}"
        )


def progress(
    query: Any, path: StrPath | Sequence[StrPath] | None = None, *, env: Env | None = None
) -> StreamProgress | None:
    """Return how far a streaming query is that reads format("kstore"); None before its first micro-batch.

    Args: query: a StreamingQuery, or the progress of one, as listeners get it; path: of the logs, to look at their ends
        now and to say what is left in bytes; without it the ends are those that the query saw last.
    Raises: with a path LogNotFoundError, StorageError, CorruptionError.
    Cost: with a path opens the log of each partition.
    """
    last = query.lastProgress if hasattr(query, "lastProgress") else query
    if last is None:
        return None
    # In every version of Spark, and with Spark Connect.
    fields = last if isinstance(last, dict) else json.loads(last.json)
    described = (source for source in fields["sources"] if _PYTHON_SOURCES in source["description"])
    # Only those of kstore have partitions.
    by_source = [(source, found) for source in described if (found := _partitions_of(source))]
    sources = [source for source, _ in by_source]
    partitions = [partition for _, found in by_source for partition in found]
    if path is not None:
        partitions = _as_of_now(partitions, path, env)
    return StreamProgress(
        name=fields.get("name") or fields["id"],
        batch_id=fields["batchId"],
        timestamp=fields["timestamp"],
        rows=sum(source["numInputRows"] for source in sources),
        rows_per_second=sum(source.get("processedRowsPerSecond") or 0.0 for source in sources),
        partitions=tuple(partitions),
    )


class ProgressListener(StreamingQueryListener):
    """Reports the progress of the queries that read format("kstore"): spark.streams.addListener(ProgressListener()).

    Args: report: called with the progress of each micro-batch, and of idle triggers as often as Spark tells of them;
        None logs it at level INFO as "kstore.spark". path, env: as of progress.
    An error of `report`, or of a log, is logged, and ends no query.
    Threads: Spark calls it in a thread of its own.
    """

    def __init__(
        self,
        report: Callable[[StreamProgress], object] | None = None,
        path: StrPath | Sequence[StrPath] | None = None,
        *,
        env: Env | None = None,
    ) -> None:
        self._report = report
        self._path = path
        self._env = env

    def onQueryStarted(self, event: Any) -> None:
        """Do nothing."""

    def onQueryProgress(self, event: Any) -> None:
        """Report the progress, if a source of the query is one of kstore's."""
        try:
            found = progress(event.progress, self._path, env=self._env)
        except (KStoreError, OSError, ValueError):
            _logger.exception("the progress of a query could not be read")
            return
        if found is None or not found.partitions:
            return
        if self._report is None:
            _logger.info("%s", found)
            return
        try:
            self._report(found)
        # Whatever a function of the user raises.
        except Exception:
            _logger.exception("the progress of a query could not be reported")

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing."""

    def onQueryTerminated(self, event: Any) -> None:
        """Do nothing: the query has its exception."""


def _partitions_of(source: dict[str, Any]) -> list[PartitionProgress]:
    """Return the partitions of a source, none if its offsets have another form than those of kstore."""
    try:
        first, last, newest = (_position_of(source.get(name)) for name in ("startOffset", "endOffset", "latestOffset"))
    except ValueError:
        return []
    # The first micro-batch says itself where the stream started.
    start, end = last.start or first.offsets, last.offsets
    return [
        PartitionProgress(*place, start.get(place, 0), end.get(place, 0), newest.offsets.get(place, end.get(place, 0)))
        for place in sorted(end | newest.offsets)
    ]


def _position_of(fields: Any) -> StreamPosition:
    parsed = json.loads(fields) if isinstance(fields, str) else fields
    if not isinstance(parsed, dict | None):
        raise ValueError(f"expected offsets by topic, found {parsed!r}")
    return StreamPosition.of(parsed or {})


def _as_of_now(
    partitions: Sequence[PartitionProgress], path: StrPath | Sequence[StrPath], env: Env | None
) -> list[PartitionProgress]:
    wanted = {TopicPartition(partition.topic, partition.partition) for partition in partitions}
    directories = {
        directory.topic_partition: directory
        for directory in find_partitions(path, env, is_wanted=lambda place: place in wanted)
    }
    updated = []
    for partition in partitions:
        directory = directories.get(TopicPartition(partition.topic, partition.partition))
        try:
            if directory is None:
                raise LogNotFoundError("gone")
            with open_found(directory) as log:
                start = min(max(partition.end_offset, log.log_start_offset), log.log_end_offset)
                ranges = log.plan(start_offset=start) if start < log.log_end_offset else []
                size = sum(scan.size_in_bytes for scan in ranges)
                updated.append(partition._replace(latest_offset=log.log_end_offset, lag_bytes=size))
        except LogNotFoundError:
            updated.append(partition)
    return updated
