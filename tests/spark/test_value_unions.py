"""Goal: a stream whose values are read as the union of all versions keeps the union that it began with.
Method: plans of the driver over a root to which a version is added; no JVM."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql.streaming.datasource import ReadAllAvailable

import kstore
from kstore.log.files.names import find_partitions
from kstore.spark import KStoreDataSource
from kstore.spark.options import parse_read_options
from kstore.spark.values.plans import ValuePlans
from tests.making.rides import register, write_rides
from tests.values.test_resolution import record


def test_the_union_that_a_stream_began_with_is_kept(tmp_path: Path) -> None:
    root = write_rides(tmp_path / "root")
    read = parse_read_options({"path": str(root), "subscribe": "rides", "valueFormat": "avro", "valueSchema": "union"})
    directories = find_partitions(str(root), is_wanted=lambda partition: partition.topic == "rides")
    with ValuePlans(read) as plans:
        pinned = plans.schema_ids(directories, {})
        before = plans.schema(directories)["value"].dataType
        assert [field.name for field in before.fields] == ["id", "carrier", "delay"]  # type: ignore[attr-defined]
    with kstore.open_store(root, "a") as store, kstore.Producer(store) as producer:
        register(producer, "rides-value", 3, 4, record(("gate", "string", "-")))
    with ValuePlans(read) as plans:
        now = plans.schema(directories)["value"].dataType
        assert [field.name for field in now.fields] == ["gate", "id", "carrier", "delay"]  # type: ignore[attr-defined]
    with ValuePlans(read) as plans:
        assert plans.schema_ids(directories, pinned) == pinned
        assert plans.schema(directories)["value"].dataType == before


def test_a_stream_of_unions_reads_from_what_its_checkpoint_has(tmp_path: Path) -> None:
    root = write_rides(tmp_path / "root")
    options = {"path": str(root), "subscribe": "rides", "valueFormat": "avro", "keyFormat": "avro"}
    options |= {"valueSchema": "union", "keySchema": "union", "startingOffsets": "earliest"}
    source = KStoreDataSource(options)
    first = source.streamReader(source.schema())
    start = json.loads(json.dumps(first.initialOffset()))
    end = json.loads(json.dumps(first.latestOffset(start, ReadAllAvailable())))
    assert end["kstore:schemas"] == start["kstore:schemas"]
    second = source.streamReader(source.schema())
    rows = [batch for task in second.partitions(start, end) for batch in second.read(task)]
    ids = [value and value["id"] for batch in rows for value in batch.column("value").to_pylist()]
    assert ids == [1, 2, None, None, None, 4]
