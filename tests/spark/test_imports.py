"""Goal: each of Spark's Python processes of a write imports only what its step needs, since each is a new interpreter.
Method: the calls that Spark makes in such a process, made in a new one; no JVM."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import kstore
from kstore.spark.sink.options import parse_write_options
from kstore.spark.sink.writers import stage
from kstore.staging import AppVersion, job_name, prepare_root
from tests.making.importing import imported_by

READS = {"kstore.spark.readers", "kstore.spark.planning", "kstore.spark.options", "kstore.archive", "kstore.values"}
STORES = {"kstore.store.store", "kstore.log.log", "kstore.log.write", "kstore.adoption"}
PRODUCERS = {"kstore.producer.producer", "kstore.producer.sending", "kstore.producer.batches"}
ARROW = {"numpy", "pandas", "pyarrow", "kstore.arrow"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "root"
    with kstore.open_store(path, "a") as store:
        store.create_topic("t", 2)
    prepare_root(path)
    return path


def writer_of(root: Path) -> str:
    """Return code that makes `writer` as Spark does, for the plan of a micro-batch and for its commit."""
    return (
        "from pyspark.sql.datasource import CaseInsensitiveDict\n"
        "from pyspark.sql.types import BinaryType, StructField, StructType\n"
        "from pyspark_kstore import DefaultSource\n"
        f"source = DefaultSource(CaseInsensitiveDict({{'path': {str(root)!r}, 'topic': 't'}}))\n"
        "schema = StructType([StructField('value', BinaryType())])\n"
        "writer = source.streamWriter(schema, False)\n"
    )


def test_planning_of_a_write_imports_no_store_no_producer_and_nothing_of_arrow(root):
    assert imported_by(writer_of(root)) & (READS | STORES | PRODUCERS | ARROW) == set()


def test_commit_imports_no_producer_no_reads_and_nothing_of_arrow(root):
    options = parse_write_options({"path": str(root), "topic": "t"}, is_stream=True)
    app = AppVersion("query", 0)
    staged = stage(options, job_name(*app), [pa.RecordBatch.from_pydict({"value": pa.array([b"v"], pa.binary())})])
    code = (
        writer_of(root)
        + "from kstore.staging import AppVersion, StagedFile\n"
        + "from kstore.spark.sink.streaming import StagedMessage\n"
        + f"files = tuple(StagedFile(*one) for one in {[tuple(one) for one in staged]!r})\n"
        + "writer.commit([StagedMessage(files, AppVersion('query', 0))], 0)"
    )
    assert imported_by(code) & (READS | PRODUCERS | ARROW | {"kstore.adoption"}) == set()
    with kstore.open_store(root) as store:
        assert sum(len(list(store.log("t", number).read())) for number in (0, 1)) == 1


def test_task_of_a_write_imports_no_store_no_reads_and_no_pandas(root):
    code = (
        "import pyarrow as pa\n"
        "from kstore.spark.sink.options import parse_write_options\n"
        "from kstore.spark.sink.writers import stage\n"
        f"options = parse_write_options({{'path': {str(root)!r}, 'topic': 't'}}, is_stream=True)\n"
        "offsets, data = pa.py_buffer(bytes(4) + (1).to_bytes(4, 'little')), pa.py_buffer(b'v')\n"
        "values = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, data])\n"
        "assert len(stage(options, 'query.0', [pa.RecordBatch.from_arrays([values], ['value'])])) == 1"
    )
    assert imported_by(code) & (READS | STORES | {"pandas", "kstore.arrow.decoding"}) == set()
