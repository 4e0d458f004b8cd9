"""Goal: Spark reads what brokers moved to tiered storage, and its tasks carry no key.
Method: the golden root of a broker with Aiven's plugin and its tier, planned and read in this process, and by Spark."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql import SparkSession

from kstore import scan
from kstore.config import MIB
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
