# Goal: the benches run, compare equal outputs and notice when they differ, so that they can't rot unseen.
# Method: the workloads through the driver on tiny data, in one process as `python -m bench` runs them, those of Spark
# in another; the data, digest and ratios alone. No timing is asserted.

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import crc32c
import numpy as np
import pyarrow as pa
import pytest

from bench import (
    bench_command,
    bench_index,
    bench_program,
    bench_spark_values,
    bench_tier,
    bench_values,
    bench_wire,
    report,
)
from bench.__main__ import WORKLOADS as EVERY_WORKLOAD
from bench.common import Bound, Case, OutputsDifferError, Samples, Settings, require_equal
from bench.core_decode import columns_of, record_batch_of
from bench.data import PartitionSpec, partition, repeated
from bench.digest import ColumnDigest, digest_of_arrow
from bench.limit import FileLimit, Limit, compile_limit, padded
from bench.tables import QUESTIONS, Place, places_of
from kstore.store.opening import open_log

pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).parents[2]
SMALL = PartitionSpec(name="bench-0", value_bytes=100, segment_bytes=40_000, segment_count=2)
DATA_RECORDS, DATA_BYTES, DATA_CRC = 828, 97686, 0x82EE9476
# What makes many data frames takes a minute and more.
OF_SPARK_LONG = (pytest.mark.spark, pytest.mark.long)
WORKLOADS = [
    pytest.param("crc", "kstore / crc32c wheel", id="crc"),
    pytest.param("scan", "kstore Log, copied / aiokafka from the file", id="scan"),
    pytest.param("decode", "kstore core, copied / aiokafka, four fields read", id="decode"),
    pytest.param("legacy", "kstore core, copied / aiokafka, four fields read", id="legacy"),
    pytest.param("records", "kstore, key and value / aiokafka, key and value", id="records"),
    pytest.param("values", f"{bench_values.SCAN} / {bench_values.FASTAVRO}", id="values"),
    pytest.param("builder", "kstore, pack_columns / aiokafka, append", id="builder"),
    pytest.param("read", "preads of 1 MiB into a kept buffer / read() of the whole file", id="read"),
    pytest.param("index", f"{bench_index.MANY} / {bench_index.SEARCHSORTED}", id="index"),
    pytest.param("producer", "kstore append from two threads / kstore append", id="producer"),
    pytest.param("send", "Producer.send, written / confluent-kafka, mock cluster, its defaults", id="send"),
    pytest.param("program", f"{bench_program.SEND_RESULT} / {bench_program.APPEND}", id="program"),
    pytest.param("command", f"{bench_command.FIND_LITERAL} / {bench_command.SCAN}", id="command"),
    pytest.param("wire", f"{bench_wire.COMPILED} / {bench_wire.INTERPRETER}", id="wire"),
    pytest.param("append", "kstore, append as leader, written / os.write", id="append"),
    pytest.param("tier", f"{bench_tier.BY_EVENTS} / {bench_tier.LOCAL}", id="tier"),
    pytest.param("compaction", "kstore, compact / kstore, read, decode and write without a map", id="compaction"),
    pytest.param("udfs", "kstore, unpack_batches / aiokafka by flat lists, unpack", id="udfs", marks=OF_SPARK_LONG),
    pytest.param("spark", "kstore / ready-made Arrow batches", id="spark", marks=pytest.mark.spark),
    pytest.param(
        "spark_values",
        f"{bench_spark_values.COLUMNS} / {bench_spark_values.IN_BYTES}",
        id="spark_values",
        marks=pytest.mark.spark,
    ),
    pytest.param("export", "kstore export, verbatim, 2 threads / cp", id="export", marks=OF_SPARK_LONG),
]


BOUNDED = ("open", "follow", "memory", "serve")
SPARK = ("spark", "spark_values")
SPARK_LONG = ("udfs", "pipeline", "export")


class Driven(NamedTuple):
    """A run of the driver: where its results are, and how it ended."""

    results: Path
    done: subprocess.CompletedProcess[str]

    def cases(self, workload: str) -> list[dict[str, Any]]:
        assert self.done.returncode == 0, self.done.stdout + self.done.stderr
        written = json.loads((self.results / f"{workload}.json").read_text())
        assert {"commit", "machine", "versions", "load_average"} <= written.keys()
        cases: list[dict[str, Any]] = written["cases"]
        return cases


def drive(workloads: Iterable[str], results: Path) -> Driven:
    """Run workloads in one process, those with Spark in one JVM."""
    only = [word for workload in workloads for word in ("--only", workload)]
    command = [sys.executable, "-m", "bench", "--tiny", "--dirty", *only, "--results", str(results)]
    # Spark's workers must be this interpreter whatever python3 is on the PATH, and whatever ran before in this process.
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=840)
    return Driven(results, done)


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> Driven:
    """All workloads but those of Spark."""
    names = [str(case.values[0]) for case in WORKLOADS if not case.marks]
    return drive([*names, *BOUNDED], tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="module")
def driven_spark(tmp_path_factory: pytest.TempPathFactory) -> Driven:
    return drive(SPARK, tmp_path_factory.mktemp("results-spark"))


@pytest.fixture(scope="module")
def driven_spark_long(tmp_path_factory: pytest.TempPathFactory) -> Driven:
    return drive(SPARK_LONG, tmp_path_factory.mktemp("results-spark-long"))


def test_every_workload_but_that_of_a_whole_store_is_run_here() -> None:
    names = {str(case.values[0]) for case in WORKLOADS}
    assert {*names, *BOUNDED, *SPARK, *SPARK_LONG} == {*EVERY_WORKLOAD} - {"store"}


def test_opening_is_held_against_its_bounds(driven: Driven) -> None:
    of_writer, of_reader = driven.cases("open")
    assert [(bound["unit"], len(bound["values"]), bound["at_most"]) for bound in of_writer["bounds"]] == [
        ("s", 1, 2.0),
        ("files", 1, 1),
    ]
    assert [(bound["unit"], len(bound["values"])) for bound in of_reader["bounds"]] == [("CPU ms", 1)]


def test_following_is_held_against_its_bounds(driven: Driven) -> None:
    (case,) = driven.cases("follow")
    assert [(bound["unit"], len(bound["values"])) for bound in case["bounds"]] == [("ms", 1)] * 5


@pytest.mark.spark
@pytest.mark.long
def test_pipeline_is_held_against_its_bounds(driven_spark_long: Driven) -> None:
    planning, commits, writing, permissive, micro_batches = driven_spark_long.cases("pipeline")
    bounds = [bound for case in (planning, commits, micro_batches) for bound in case["bounds"]]
    assert [bound["unit"] for bound in bounds] == ["CPU s", "CPU s", "CPU ms", "CPU ms", "ms", "ms"]
    assert [ratio["target"] for ratio in writing["ratios"] + permissive["ratios"]] == [0.55, 0.55, 0.8, 0.95]


@pytest.mark.parametrize(("workload", "ratio"), WORKLOADS)
def test_workload_compares_equal_outputs_and_writes_its_ratios(
    workload: str, ratio: str, request: pytest.FixtureRequest
) -> None:
    fixture = "driven_spark" if workload in SPARK else "driven_spark_long" if workload in SPARK_LONG else "driven"
    run: Driven = request.getfixturevalue(fixture)
    cases = run.cases(workload)
    assert all(len(samples["wall"]) == 1 and min(samples["wall"]) > 0 for c in cases for samples in c["samples"])
    assert ratio in {f"{r['of']} / {r['to']}" for r in cases[0]["ratios"]}
    results = report.Results(run.results)
    tabled = (place for question in QUESTIONS for place in places_of(question.tables))
    shown = [place for place in tabled if place.workload == workload and is_run_here(place)]
    assert [place for place in shown if results.ratio(place) is None] == []


def is_run_here(place: Place) -> bool:
    """Tell whether the tiny run without --rivals measures a ratio that README shows."""
    return not place.to.startswith(("Java", "Rust", "limit.c", "pread and CRC")) and "1024" not in place.case


def test_memory_workload_measures_each_way_to_scan(driven: Driven) -> None:
    cases = driven.cases("memory")
    names = [bound["name"] for bound in cases[0]["bounds"]]
    assert names == [
        "kstore, binary=copy, threads=1",
        "kstore, binary=view, threads=1",
        "kstore, binary=copy, threads=2",
    ]
    assert all(value > 0 for bound in cases[0]["bounds"] for value in bound["values"])


def test_every_micro_benchmark_runs_and_finds_its_result_right() -> None:
    options = ["-q", "-o", "addopts=", "-p", "no:cacheprovider", "--benchmark-disable", "bench/micro"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options], cwd=ROOT, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout


def test_results_that_differ_stop_the_bench() -> None:
    require_equal("sum", {"a": 1, "b": 1})
    with pytest.raises(OutputsDifferError, match="sum: a gave 1, b gave 2"):
        require_equal("sum", {"a": 1, "b": 2})


def test_ratio_is_of_medians_and_names_the_spread_of_rounds() -> None:
    case = Case(title="t", unit="rec", bytes_per_unit=1)
    case.samples = [
        Samples(contestant="ours", wall=[10.0, 30.0, 20.0], cpu=[5.0, 5.0, 5.0]),
        Samples(contestant="theirs", wall=[10.0, 10.0, 5.0], cpu=[1.0, 1.0, 1.0]),
    ]
    case.add_ratio("ours", "theirs", target=2.5)
    case.add_ratio("ours", "absent", target=1.0)
    (ratio,) = case.ratios
    assert (ratio.ratio, ratio.round_median, ratio.least, ratio.greatest) == (2.0, 3.0, 1.0, 4.0)
    assert (ratio.cpu_ratio, ratio.is_met, case.is_met) == (5.0, False, False)


@pytest.mark.parametrize(("values", "is_met"), [([299.0, 300.0], True), ([1.0, 300.5], False)])
def test_bound_holds_for_the_worst_value(values: list[float], is_met: bool) -> None:
    assert Bound(name="peak", unit="MiB", values=values, at_most=300.0).is_met is is_met


def test_data_is_the_same_on_every_machine(tmp_path: Path) -> None:
    data = partition(SMALL, tmp_path)
    content = b"".join(file.read_bytes() for file in data.log_files)
    assert (data.record_count, len(content), crc32c.crc32c(content)) == (DATA_RECORDS, DATA_BYTES, DATA_CRC)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_data_holds_the_records_it_says(codec: str, tmp_path: Path) -> None:
    spec = PartitionSpec(name="bench-0", value_bytes=100, segment_bytes=40_000, segment_count=2, codec=codec)
    data = partition(spec, tmp_path)
    with open_log(data.path) as log:
        records = list(log.read())
        assert len(log.segments) == 2
    assert [record.offset for record in records] == list(range(data.record_count))
    assert [record.key for record in records] == [i.to_bytes(8, "big") for i in range(data.record_count)]
    assert {len(record.value) for record in records} == {100}
    assert records[-1].timestamp_ms == 1_700_000_000_000 + (data.record_count - 1) // 10


def test_repeated_data_goes_on_where_the_last_segment_ended(tmp_path: Path) -> None:
    data = repeated(SMALL, tmp_path)
    with open_log(data.path) as log:
        assert [record.offset for record in log.read()] == list(range(data.record_count))
        assert len(log.segments) == 2


def test_digest_sees_a_changed_byte_but_not_where_columns_are_cut() -> None:
    def batch(values: list[bytes]) -> pa.RecordBatch:
        count = len(values)
        timestamps = pa.array([0] * count, pa.int64()).cast(pa.timestamp("us", "UTC"))
        return pa.RecordBatch.from_pydict(
            {
                "offset": pa.array(range(count), pa.int64()),
                "timestamp": timestamps,
                "key": pa.array([b"k"] * count, pa.binary()),
                "value": pa.array(values, pa.binary()),
            }
        )

    whole = batch([b"ab", b"", b"c"])
    digest = digest_of_arrow(iter([whole]))
    assert digest == digest_of_arrow(iter([whole.slice(0, 1), whole.slice(1, 2)]))
    assert digest != digest_of_arrow(iter([batch([b"ab", b"", b"d"])]))
    assert digest != digest_of_arrow(iter([batch([b"a", b"b", b"c"])]))
    assert digest != ColumnDigest()


def test_limit_program_refuses_a_wrong_crc(tmp_path: Path) -> None:
    library = compile_limit(Settings.tiny(tmp_path))
    if library is None:
        pytest.skip("limit.c does not run on this machine")
    segment = padded(partition(SMALL, tmp_path).log_files[0].read_bytes())
    limit = Limit(library, segment, column_bytes=20_000)
    rows = sum(limit.fills("limit_copied"))
    assert rows == sum(limit.fills("limit_views"))
    segment[200] ^= np.uint8(1)
    with pytest.raises(ValueError, match="batch at position 0 has a wrong CRC"):
        list(limit.fills("limit_copied"))
    path = partition(SMALL, tmp_path).log_files[0]
    with ExitStack() as stack:
        of_file = FileLimit(library, path, chunk_bytes=32_768, stack=stack)
        assert rows == sum(of_file.fills("limit_file_copied")) == sum(of_file.fills("limit_file_views"))
        assert of_file.check_crcs() == path.stat().st_size
        path.write_bytes(segment[: path.stat().st_size].tobytes())
        assert of_file.check_crcs() < path.stat().st_size
        with pytest.raises(ValueError, match="has a wrong CRC"):
            list(of_file.fills("limit_file_copied"))


@pytest.mark.parametrize("binary", ["copy", "view"])
def test_columns_of_the_core_are_valid_arrow(binary: str, tmp_path: Path) -> None:
    data = partition(SMALL, tmp_path)
    segment = memoryview(data.log_files[0].read_bytes())
    batches = [record_batch_of(columns, binary) for columns in columns_of(segment, binary)]
    for batch in batches:
        batch.validate(full=True)
    assert sum(batch.num_rows for batch in batches) > 0
