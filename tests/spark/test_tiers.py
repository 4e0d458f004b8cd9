"""Goal: Spark reads what brokers moved to tiered storage, and its tasks carry no key.
Method: the golden root of a broker with Aiven's plugin and its tier, planned and read in this process, and by Spark."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql import SparkSession

import kstore.spark
from kstore import scan
from kstore.config import MIB
from kstore.errors import MemoryLimitError
from kstore.spark.jobs import scanning
from kstore.spark.options import parse_read_options
from kstore.spark.planning import plan_partitions
from kstore.spark.pushdown import Constraint
from tests.golden.test_tiers import AIVEN, EPOCHS, consumed, digest_of, keys_of, tier_set

pytestmark = pytest.mark.spark


def options_of(**others: str) -> dict[str, str]:
    keys = {f"tierKey.{key_id}": str(path) for key_id, path in (keys_of(AIVEN) or {}).items()}
    return {"tier": str(tier_set(AIVEN) / "tier"), **keys, **others}


def test_a_plan_that_another_process_gets_reads_the_whole_log_and_has_no_key() -> None:
    options = parse_read_options({"path": str(tier_set(AIVEN) / "broker"), **options_of(subscribe="ta-txn")})
    data = pickle.dumps(plan_partitions(options, Constraint(), max_partition_bytes=MIB))
    assert b"PRIVATE KEY" not in data
    ranges = [found for task in pickle.loads(data) for found in task.ranges]
    table = scan(ranges).to_table()
    expected = consumed(AIVEN, "read_uncommitted")["ta-txn-0"]
    assert sorted(table.column("offset").to_pylist()) == [record["offset"] for record in expected]


def partitions_planned_apart(spark: SparkSession, root: str, **options: str) -> dict[tuple[str, str, int], str | None]:
    """The digest of each record of a read that tasks plan, by topic, partition and offset."""
    rows = kstore.spark.scan(spark, root, **options).collect()
    assert len({(row.topic, row.partition, row.offset) for row in rows}) == len(rows)
    return {
        (row.topic, str(row.partition), row.offset): digest_of(None if row.value is None else bytes(row.value))
        for row in rows
    }


def consumed_of(prefixes: tuple[str, ...]) -> dict[tuple[str, str, int], str | None]:
    return {
        (*name.rpartition("-")[::2], record["offset"]): record["value_sha256"]
        for name, records in consumed(AIVEN, "read_committed").items()
        if name.startswith(prefixes)
        for record in records
    }


def test_tasks_keep_to_the_memory_for_an_encrypted_chunk() -> None:
    given = {"path": str(tier_set(AIVEN) / "broker"), **options_of(subscribe="ta-txn")}
    for limit, fits in ((10, False), (MIB, True)):
        options = parse_read_options({**given, "maxDecryptedBytes": str(limit)})
        planned = plan_partitions(options, Constraint(), max_partition_bytes=MIB)
        parts = [pickle.loads(pickle.dumps(part)) for part in scanning._parts(scanning._selected(options))]
        apart = [
            task for part in parts for task in scanning._plan_part(part, options, Constraint(), max_partition_bytes=MIB)
        ]
        for tasks in (planned, apart):
            ranges = [found for task in pickle.loads(pickle.dumps(tasks)) for found in task.ranges]
            if fits:
                assert len(scan(ranges).to_table()) == len(consumed(AIVEN, "read_uncommitted")["ta-txn-0"])
                continue
            with pytest.raises(MemoryLimitError) as caught:
                scan(ranges).to_table()
            assert (caught.value.option, caught.value.limit) == ("max_decrypted_bytes", limit)


def test_tasks_plan_a_root_with_its_tier(spark: SparkSession) -> None:
    options = options_of(subscribe="ta-mixed,ta-txn", **{"kafka.isolation.level": "read_committed"})
    found = partitions_planned_apart(spark, str(tier_set(AIVEN) / "broker"), **options)
    assert found == consumed_of(("ta-mixed", "ta-txn"))


def test_tasks_plan_a_tier_alone(spark: SparkSession) -> None:
    options = options_of(subscribe="ta-mixed,ta-txn")
    loaded = spark.read.format("kstore").options(**options).load(options["tier"]).collect()
    found = partitions_planned_apart(spark, options["tier"], **options)
    assert sorted(found) == sorted((row.topic, str(row.partition), row.offset) for row in loaded)
    assert found
    tier = str(tier_set(EPOCHS) / "tier")
    rows = partitions_planned_apart(spark, tier, tier=tier, tierEpoch="0", subscribe="te-div")
    assert sorted(offset for _, _, offset in rows) == list(range(33, 63))


def test_what_a_task_gets_to_plan_has_no_key_and_no_other_partition() -> None:
    options = parse_read_options({"path": str(tier_set(AIVEN) / "broker"), **options_of()})
    selected = scanning._selected(options)
    parts = [pickle.dumps(scanning._part([directory])) for directory in selected]
    assert all(b"PRIVATE KEY" not in part for part in parts)
    for directory, part in zip(selected, parts, strict=True):
        name = str(directory.topic_partition)
        others = [str(other.topic_partition) for other in selected if other.topic_partition.topic not in name]
        assert name.encode() in part
        assert not any(other.encode() in part for other in others), name


def test_parts_are_planned_as_the_driver_plans_them() -> None:
    for root in ("broker", "tier"):
        options = parse_read_options({"path": str(tier_set(AIVEN) / root), **options_of()})
        planned = plan_partitions(options, Constraint(), max_partition_bytes=MIB)
        parts = [pickle.loads(pickle.dumps(part)) for part in scanning._parts(scanning._selected(options))]
        tasks = [scanning._plan_part(part, options, Constraint(), max_partition_bytes=MIB) for part in parts]
        found = [one for of_part in tasks for task in of_part for one in task.ranges]
        assert found == [one for task in planned for one in task.ranges]
        assert found


def test_spark_reads_a_root_with_its_tier(spark: SparkSession) -> None:
    options = options_of(subscribe="ta-mixed,ta-txn", **{"kafka.isolation.level": "read_committed"})
    rows = spark.read.format("kstore").options(**options).load(str(tier_set(AIVEN) / "broker")).collect()
    found = {
        (row.topic, str(row.partition), row.offset): digest_of(None if row.value is None else bytes(row.value))
        for row in rows
    }
    expected = {
        (*name.rpartition("-")[::2], record["offset"]): record["value_sha256"]
        for name, records in consumed(AIVEN, "read_committed").items()
        if name.startswith(("ta-mixed", "ta-txn"))
        for record in records
    }
    assert found == expected


def test_a_tier_alone_is_read_by_the_epoch_that_is_given() -> None:
    tier = str(tier_set(EPOCHS) / "tier")
    for epoch, expected in (({}, range(58, 66)), ({"tierEpoch": "0"}, range(33, 63))):
        options = parse_read_options({"path": tier, "tier": tier, "subscribe": "te-div", **epoch})
        data = pickle.dumps(plan_partitions(options, Constraint(), max_partition_bytes=MIB))
        ranges = [found for task in pickle.loads(data) for found in task.ranges]
        assert sorted(scan(ranges).to_table().column("offset").to_pylist())[: len(expected)] == list(expected)
