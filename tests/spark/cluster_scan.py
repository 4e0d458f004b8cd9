"""The flights in a local cluster, read by kstore.spark.scan and by format("kstore"); for test_planning_at_scale.py.

`python -m tests.spark.cluster_scan` ends with 0 if both give the rows of kstore.scan.
"""

from __future__ import annotations

import sys

import kstore
import kstore.spark
from tests.spark.conftest import REPOSITORY
from tests.spark.copy_query import session

FLIGHTS = REPOSITORY / "examples" / "flights"
COLUMNS = ["topic", "partition", "offset", "key", "value"]
OPTIONS = {"maxPartitionBytes": "200000"}


def main() -> None:
    spark = session("cluster")
    wanted = kstore.scan(FLIGHTS, columns=COLUMNS).to_table().to_pylist()
    rows = sorted(tuple(one.values()) for one in wanted)
    frames = [
        kstore.spark.scan(spark, FLIGHTS, **OPTIONS),
        spark.read.format("kstore").options(**OPTIONS).load(str(FLIGHTS)),
    ]
    found = [sorted(tuple(row) for row in frame.select(*COLUMNS).collect()) for frame in frames]
    spark.stop()
    sys.exit(0 if found == [rows, rows] else "the rows differ")


if __name__ == "__main__":
    main()
