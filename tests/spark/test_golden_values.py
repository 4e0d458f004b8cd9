"""Goal: values are in Spark what they are in Arrow, which tests/golden/test_values.py holds against Java.
Method: the golden topics read by Spark; columns equal to those of a scan, as far as Spark's types hold them."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.golden.sets import unpack
from tests.golden.test_values import TOPICS
from tests.golden.test_values_in_engines import SAMPLE, check

REST = [pytest.param(topic, marks=pytest.mark.long) for topic in TOPICS if topic not in SAMPLE]


@pytest.mark.parametrize("topic", [*SAMPLE, *REST])
def test_spark_has_the_values_of_a_scan(spark: SparkSession, topic: str) -> None:
    options = {"subscribe": topic, "valueFormat": "avro"}
    frame = spark.read.format("kstore").options(**options).load(str(unpack("values", "trees") / "root"))
    check(frame.select("offset", "value").toArrow(), topic)
