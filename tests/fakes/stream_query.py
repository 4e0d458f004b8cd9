"""StreamQuery: a streaming query without a JVM, which calls a reader as Spark's MicroBatchExecution does.

Offsets pass through JSON text, readers and tasks through pickle. The checkpoint stays when the query is started again.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from kstore.spark import KStoreDataSource
from kstore.spark.schema import record_type, source_schema
from kstore.spark.stream.reader import KStoreStreamReader

# Where the driver dies: before a micro-batch's offsets are in the checkpoint, before it is read, before its commit.
Crash: TypeAlias = Literal["before offsets", "before read", "before commit"]
Trigger: TypeAlias = Literal["processing time", "available now", "once"]
Row: TypeAlias = tuple[str, int, int, Any]
SCHEMA = StructType([*source_schema(include_headers=False).fields[2:4], *record_type(["offset", "value"]).fields])


class Killed(Exception):
    """The driver of the query died."""


class MicroBatch(NamedTuple):
    """A micro-batch that was committed; splits: the (partition, first offset, last offset) of each of its tasks."""

    number: int
    rows: list[Row]
    splits: list[tuple[int, int, int]]

    def offsets(self) -> list[tuple[str, int, int, int, int]]:
        """(topic, partition, rows, first offset, last offset) of each partition with rows."""
        found: dict[tuple[str, int], list[int]] = {}
        for topic, partition, offset, _ in self.rows:
            found.setdefault((topic, partition), []).append(offset)
        return sorted((*place, len(offsets), min(offsets), max(offsets)) for place, offsets in found.items())


class StreamQuery:
    """Attributes: offsets, commits (the checkpoint), batches (what was committed), reader (of the run).

    schema, options are those of the next start; the schema has the columns of SCHEMA.
    """

    def __init__(self, path: Path, *, schema: StructType = SCHEMA, **options: str) -> None:
        self.schema = schema
        self.offsets: list[str] = []
        self.commits = 0
        self.batches: list[MicroBatch] = []
        self.options = {"path": str(path), **{name.replace("__", "."): text for name, text in options.items()}}
        self.start()

    def start(self) -> None:
        """Start the query, again if it ran before."""
        source = pickle.loads(pickle.dumps(KStoreDataSource(CaseInsensitiveDict(self.options))))
        self.reader: KStoreStreamReader = source.streamReader(self.schema)
        self._in_tasks = pickle.loads(pickle.dumps(source.streamReader(self.schema)))
        self._is_constructed = len(self.offsets) > self.commits

    def run(self, trigger: Trigger = "available now", *, crash: Crash | None = None) -> list[MicroBatch]:
        """Run micro-batches until there is nothing new, as Trigger.AvailableNow and Trigger.Once do.

        Raises: Killed at a crash; what the reader raises.
        """
        before = len(self.batches)
        if trigger == "available now" and isinstance(self.reader, SupportsTriggerAvailableNow):
            self.reader.prepareForTriggerAvailableNow()
        while self.micro_batch(trigger, crash=crash) and trigger == "available now":
            pass
        return self.batches[before:]

    def micro_batch(self, trigger: Trigger = "processing time", *, crash: Crash | None = None) -> bool:
        """Run one micro-batch if there is one, and return whether there was."""
        start = self._committed()
        if not self._is_constructed:
            limit = ReadAllAvailable() if trigger == "once" else self.reader.getDefaultReadLimit()
            end = _through_json(self.reader.latestOffset(json.loads(start or self._initial()), limit))
            _through_json(self.reader.reportLatestOffset() or {})
            if end == start:
                return False
            self._die(crash, "before offsets")
            self.offsets.append(end)
            if start is not None:
                self.reader.commit(json.loads(start))
            self._is_constructed = True
        self._die(crash, "before read")
        end = self.offsets[-1]
        tasks = self.reader.partitions(json.loads(start or self._initial()), json.loads(end))
        rows, splits = self._read(pickle.loads(pickle.dumps(tasks)))
        self._die(crash, "before commit")
        self.commits = len(self.offsets)
        self.batches.append(MicroBatch(self.commits - 1, rows, splits))
        self._is_constructed = False
        return True

    def position(self) -> Mapping[str, Any]:
        """The offsets of the last micro-batch in the checkpoint."""
        found: Mapping[str, Any] = json.loads(self.offsets[-1])
        return found

    def rows(self) -> list[Row]:
        """The rows of all micro-batches that were committed."""
        return [row for batch in self.batches for row in batch.rows]

    def _committed(self) -> str | None:
        return self.offsets[self.commits - 1] if self.commits else None

    def _initial(self) -> str:
        return _through_json(self.reader.initialOffset())

    def _read(self, tasks: list[InputPartition]) -> tuple[list[Row], list[tuple[int, int, int]]]:
        rows: list[Row] = []
        splits = []
        for task in tasks:
            found = [
                (row["topic"], row["partition"], row["offset"], row["value"])
                for batch in self._in_tasks.read(task)
                for row in batch.to_pylist()
            ]
            rows += found
            if found:
                splits.append((found[0][1], found[0][2], found[-1][2]))
        return rows, splits

    def _die(self, crash: Crash | None, where: Crash) -> None:
        if crash == where:
            raise Killed(where)


def _through_json(offsets: Mapping[str, Any]) -> str:
    return json.dumps(offsets)
