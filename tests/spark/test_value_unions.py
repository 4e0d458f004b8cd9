"""Goal: a stream whose values are read as the union of all versions keeps the union that it began with.
Method: plans of the driver over a root to which a version is added; no JVM."""

from __future__ import annotations

from pathlib import Path

import kstore
from kstore.log.files.names import find_partitions
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
