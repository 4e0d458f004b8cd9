"""A Python worker of Spark that commits micro-batches, without the JVM: `python -m bench.commit_process ROOT TOPIC`.

Reads the staged files of each micro-batch as JSON from standard input, and prints as JSON how many milliseconds of CPU
time the imports and the making of the writer took, and each commit.
"""

from __future__ import annotations

import json
import sys
import time

# What Spark's own worker has imported.
import pyspark.logger.worker_io
import pyspark.sql.worker.utils
import pyspark.worker_util  # noqa: F401
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_kstore import DefaultSource

QUERY = "bench"


def cpu_ms() -> float:
    """Return the CPU time of this process in milliseconds."""
    return time.process_time() * 1000


def main() -> None:
    """Commit each micro-batch."""
    root, topic = sys.argv[1:]
    batches = json.load(sys.stdin)
    start = cpu_ms()
    schema = StructType([StructField("value", BinaryType())])
    writer = DefaultSource(CaseInsensitiveDict({"path": root, "topic": topic})).streamWriter(schema, overwrite=False)
    from kstore.spark.sink.writers import StagedMessage
    from kstore.staging import AppVersion, StagedFile

    taken = [cpu_ms() - start]
    for version, staged in enumerate(batches):
        message = StagedMessage(tuple(StagedFile(*file) for file in staged), AppVersion(QUERY, version))
        start = cpu_ms()
        writer.commit([message], version)
        taken.append(cpu_ms() - start)
    print(json.dumps(taken))


if __name__ == "__main__":
    main()
