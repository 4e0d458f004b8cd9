"""kstore.spark.scan: a read whose logs Spark tasks list and plan, for roots that are too large for one driver.

A Python data source cannot do this: Spark asks it for its partitions in a process without a session.
"""

from __future__ import annotations

import json
import pickle
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.types import StructField, StructType

from kstore.env import EnvMaker, StrPath, locate, path_list
from kstore.env.process import exclude_from_collection
from kstore.log.files.names import PartitionDirectory, name_partitions
from kstore.spark.jobs.selecting import Condition, constraint_where, projected
from kstore.spark.offsets import check_partitions_listed
from kstore.spark.options import Assign, Bound, EveryTopic, ReadOptions, parse_read_options
from kstore.spark.planning import PACK_ABOVE, ScanPartition, packed, plan_directories, select_partitions
from kstore.spark.pushdown import Constraint, Interval
from kstore.spark.readers import read_rows, task_bytes, with_values
from kstore.spark.schema import COLUMN_TYPES, UserSchema, source_schema
from kstore.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

# Partitions that one task lists and plans, if there are more than there can be tasks at a time.
PARTITIONS_PER_TASK = 16
_PLAN_COLUMNS = "number BIGINT, size BIGINT, plan BINARY"


def scan(
    spark: SparkSession,
    path: StrPath | Sequence[StrPath],
    *,
    schema: StructType | str | None = None,
    columns: Iterable[str] | None = None,
    where: Iterable[Condition] = (),
    **options: Any,
) -> DataFrame:
    """Return what spark.read.format("kstore").schema(schema).options(**options).load(path) returns, planned by a job.

    The driver lists the names of the partitions. Tasks list each partition by itself, resolve its offsets and plan it;
    the driver gets the compressed plans, about 60 bytes for each segment, and hands each task its own. Unlike with
    load(), the plan is made by this call, and its errors are those of a Spark job. All actions on the DataFrame read
    the same offsets.
    Args: schema: a projection, as for load(); options: as for load(), without minPartitions, pushFilters, rows.
        columns: names of columns in place of a schema; "value.NAME" gives a struct that has this field of a value with
        a format, and only such fields are decoded. where: conditions such as ("offset", ">=", 100), of which all have
        to be met, of topic, partition, offset and timestamp; a datetime without a zone is UTC. Only the segments that
        can hold such records are read.
    Raises: ValueError, LogNotFoundError, StorageError before the job; pyspark's errors for a task that cannot plan,
        whose message has the error of kstore.
    Cost: a listing of the root's names; in tasks one recursive listing of each partition, and per task 4 requests for
        the root's checkpoint. With a tier the driver also lists that, reads the metadata topic, and of each partition
        the id of its topic; tasks list the objects of their partitions and read manifests. They get paths of keys.
    """
    paths = [str(item) for item in path_list(path)]
    texts = {name: str(value) for name, value in options.items()}
    read_options = parse_read_options({**texts, "paths": json.dumps(paths)})
    _check_plannable_apart(read_options)
    constraint = constraint_where(where)
    shown = _schema_of(read_options, schema, columns)
    names = shown.names
    if constraint.timestamp_us != Interval() and "timestamp" not in [name.lower() for name in names]:
        # The reader compares it.
        shown = StructType([*shown.fields, StructField("timestamp", COLUMN_TYPES["timestamp"])])
    user_schema = UserSchema.of(shown, read_options.values)
    plans = _planned(spark, read_options, constraint, max_partition_bytes=task_bytes(read_options, user_schema))
    (with_all,) = with_values([ScanPartition(())], read_options, user_schema)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for joined in batch.column("plan").to_pylist():
                for plan in pickle.loads(joined):
                    planned: ScanPartition = pickle.loads(zlib.decompress(plan))
                    partition = replace(planned, values=with_all.values)
                    yield from read_rows(partition, read_options, user_schema, constraint)

    frame = _one_task_each(spark, plans).select("plan").mapInArrow(read, shown)
    return frame if shown.names == names else frame.select(*names)


def _one_task_each(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Return rows, by their column `number`, of which each task gets one, whatever their size, and no others."""
    return spark.createDataFrame(rows).repartitionById(max(rows.num_rows, 1), "number")


def _planned(
    spark: SparkSession, options: ReadOptions, constraint: Constraint, *, max_partition_bytes: int
) -> pa.Table:
    """Return the number and the plans of each task, from a job whose tasks list and plan partitions."""
    import pyarrow as pa

    selected = [directory for directory in _selected(options) if constraint.admits(directory.topic_partition)]
    parts = [pickle.dumps(part) for part in _parts(selected)]

    def plan(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        exclude_from_collection()
        for batch in batches:
            for number, part in zip(batch.column("number").to_pylist(), batch.column("part").to_pylist(), strict=True):
                tasks = _plan_part(pickle.loads(part), options, constraint, max_partition_bytes=max_partition_bytes)
                sizes = [sum(scan.size_in_bytes for scan in task.ranges) for task in tasks]
                plans = [zlib.compress(pickle.dumps(task), 1) for task in tasks]
                columns = pa.array([number] * len(tasks), pa.int64()), pa.array(sizes, pa.int64())
                yield pa.RecordBatch.from_arrays(
                    [*columns, pa.array(plans, pa.binary())], names=["number", "size", "plan"]
                )

    rows = pa.table({"number": pa.array(range(len(parts)), pa.int32()), "part": pa.array(parts, pa.binary())})
    planned = _one_task_each(spark, rows).mapInArrow(plan, _PLAN_COLUMNS).toArrow()
    # Stable, so that the tasks of a part stay in order.
    planned = planned.sort_by("number")
    plans, sizes = planned.column("plan"), planned.column("size").to_pylist()
    runs = [range(at, at + 1) for at in range(len(sizes))]
    if options.max_records_per_partition is None:
        runs = packed(sizes, max_partition_bytes, least_count=PACK_ABOVE)
    joined = [pickle.dumps(plans[run.start : run.stop].to_pylist()) for run in runs]
    return pa.table({"number": pa.array(range(len(runs)), pa.int32()), "plan": pa.array(joined, pa.binary())})


def _check_plannable_apart(options: ReadOptions) -> None:
    refused = {
        "minPartitions": options.min_partitions is not None,
        "pushFilters": options.push_filters,
        "rows": options.gives_damage,
    }
    for name, is_given in refused.items():
        if is_given:
            raise ValueError(f'{name}: not possible where tasks plan; use spark.read.format("kstore")')


def _inferred(options: ReadOptions) -> StructType:
    if options.values is None:
        return source_schema(include_headers=options.include_headers)
    from kstore.spark.values.plans import inferred_schema

    return inferred_schema(options)


def _schema_of(options: ReadOptions, schema: StructType | str | None, columns: Iterable[str] | None) -> StructType:
    if columns is None:
        return _inferred(options) if schema is None else _struct_type(schema)
    if schema is not None:
        raise ValueError("only one of schema and columns can be given")
    return projected(columns, _inferred(options))


def _struct_type(schema: StructType | str) -> StructType:
    if not isinstance(schema, str):
        return schema
    parsed = StructType.fromDDL(schema)
    if not isinstance(parsed, StructType):
        raise ValueError(f"schema: expected columns such as offset BIGINT, got {schema}")
    return parsed


def _selected(options: ReadOptions) -> list[PartitionDirectory]:
    """Return the partitions that the options select, from the names in the roots alone."""
    assigned = options.topics.partitions if isinstance(options.topics, Assign) else None
    named = name_partitions(options.paths, options.env, among=assigned or None, lists_partitions=False)
    selected = select_partitions(named, options.topics, [locate(path).path for path in options.paths])
    check_partitions_listed(options, {directory.topic_partition for directory in selected})
    return selected


class _Part(NamedTuple):
    """What one task plans: topic, partition, path and root of each, and what makes their Env, None for that of the
    root, which is a URL then.
    """

    partitions: list[tuple[TopicPartition, str, str]]
    made: EnvMaker | None


def _parts(directories: Sequence[PartitionDirectory]) -> list[_Part]:
    size = min(PARTITIONS_PER_TASK, -(-len(directories) // PACK_ABOVE)) or 1
    return [_part(directories[at : at + size]) for at in range(0, len(directories), size)]


def _part(directories: Sequence[PartitionDirectory]) -> _Part:
    # With a tier all of them have the same Env, else that of their root.
    made = directories[0].env.carried_directories([directory.path for directory in directories])
    return _Part(
        [
            (
                directory.topic_partition,
                directory.path,
                directory.env.url_of(directory.root) if made is None else directory.root,
            )
            for directory in directories
        ],
        made,
    )


def _plan_part(
    part: _Part, options: ReadOptions, constraint: Constraint, *, max_partition_bytes: int
) -> list[ScanPartition]:
    """List some partitions, each by itself, and return the tasks that read them."""
    env_of_all = None if part.made is None else part.made.env()
    located = {root: locate(root, env_of_all) for _, _, root in part.partitions}
    directories = []
    for topic_partition, path, url in part.partitions:
        env, root = located[url]
        # First, so that its listing answers all later questions about the directory.
        env.listdir(path)
        directories.append(PartitionDirectory(topic_partition, path, root, env))
    here = {directory.topic_partition for directory in directories}
    bounded = replace(
        options,
        topics=EveryTopic(),
        starting=_bound_of(options.starting, here),
        ending=_bound_of(options.ending, here),
    )
    return plan_directories(directories, bounded, constraint, max_partition_bytes=max_partition_bytes)


def _bound_of(bound: Bound, partitions: set[TopicPartition]) -> Bound:
    if bound.by_partition is None:
        return bound
    return replace(
        bound,
        by_partition={partition: value for partition, value in bound.by_partition.items() if partition in partitions},
    )
