"""Goal: any Arrow library reads a scan with no adapter, and batches live, stop and fail as the docstrings say.
Method: a small root written by the builders, read through pyarrow and Polars over the C stream."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import kstore
from kstore.arrow import record_batches, schema
from kstore.arrow.assembler import Assembler, Projection
from kstore.config import LogConfig
from kstore.log.scan import scan_columns
from tests.fakes.process_reads import can_read_cached, counted_reads
from tests.making import batches as builders
from tests.reference.codec import write_batch

RECORDS_PER_BATCH = 20
BATCHES = 30
TOTAL = 2 * RECORDS_PER_BATCH * BATCHES


@pytest.fixture
def root(tmp_path: Path) -> Path:
    def log(codec: int) -> list[list[bytes]]:
        batches = builders.batches(0, BATCHES, records_per_batch=RECORDS_PER_BATCH, value_bytes=50, codec=codec)
        return [batches[:10], batches[10:25], batches[25:]]

    return builders.write_root(
        tmp_path / "root", {"plain-0": log(0), "packed-0": log(3), "__consumer_offsets-0": log(0)}
    )


def values(root: Path, **options: Any) -> list[bytes]:
    return [value for batch in kstore.scan(root, **options) for value in batch["value"].to_pylist()]


def test_pyarrow_reads_the_c_stream(root: Path) -> None:
    table = pa.table(kstore.scan(root))
    assert table.num_rows == TOTAL
    assert table.schema == schema()
    table.validate(full=True)


def test_polars_reads_the_c_stream(root: Path) -> None:
    frame = pl.DataFrame(kstore.scan(root, columns=["topic", "offset", "timestamp", "value"], strings=["value"]))
    assert frame.height == TOTAL
    assert frame.columns == ["topic", "offset", "timestamp", "value"]
    first = frame.filter(pl.col("topic") == "plain").sort("offset").row(0, named=True)
    assert first["value"].startswith("v0.")
    assert first["timestamp"].timestamp() * 1000 == builders.FIRST_TIMESTAMP_MS


def test_views_are_read_by_polars_too(root: Path) -> None:
    copied, viewed = (pl.DataFrame(kstore.scan(root, binary=binary)) for binary in ("copy", "view"))
    assert copied.equals(viewed)


def test_a_scan_can_be_read_twice(root: Path) -> None:
    scan = kstore.scan(root)
    assert scan.to_table() == scan.to_table()


def test_internal_topics_are_left_out_unless_named(root: Path) -> None:
    named = kstore.scan(root, topics=["__consumer_offsets"], columns=["topic"]).to_table()
    assert named["topic"].unique().to_pylist() == ["__consumer_offsets"]
    alone = kstore.scan(root / "__consumer_offsets-0", columns=["topic"]).to_table()
    assert alone.num_rows == TOTAL // 2


def test_a_topic_that_is_not_there_is_named(root: Path) -> None:
    with pytest.raises(ValueError, match="topics not found: gone"):
        kstore.scan(root, topics=["gone", "plain"])


def test_threads_give_the_same_batches_in_the_same_order(root: Path) -> None:
    with kstore.open_log(root / "plain-0") as log:
        ranges = log.plan(max_bytes=3000)
        assert len(ranges) > 4
        alone = list(record_batches(ranges, batch_bytes=2000))
        assert list(record_batches(ranges, batch_bytes=2000, threads=3)) == alone


def test_leaving_a_threaded_scan_early_ends_its_threads(root: Path) -> None:
    with kstore.open_log(root / "plain-0") as log:
        batches = record_batches(log.plan(max_bytes=2000), batch_bytes=500, threads=2)
        assert isinstance(batches, Generator)
        next(batches)
        batches.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("kstore-scan")]


def test_an_interpreter_with_a_threaded_scan_left_open_exits(root: Path) -> None:
    program = "import sys, kstore; batches = iter(kstore.scan(sys.argv[1], threads=2, batch_bytes=64)); next(batches)"
    subprocess.run([sys.executable, "-c", program, str(root)], check=True, timeout=60)


def test_a_column_of_one_value_per_batch_is_not_kept_per_batch(root: Path) -> None:
    with kstore.open_log(root / "plain-0") as log:
        (scan_range,) = log.plan()
    projection = Projection(schema(["position", "value"]), verify_crc=True)
    assembler = Assembler(projection)
    tables = list(scan_columns(scan_range, projection.selection, batch_bytes=200, config=LogConfig()))
    read = pa.Table.from_batches([assembler.record_batch(table) for table in tables])
    assert len(read["position"].unique()) > 20
    assert len(assembler._repeated) == 1


def test_a_column_of_one_value_is_as_long_as_each_of_the_tables(tmp_path: Path) -> None:
    data = [builders.batch(0, 2, value_bytes=1000), builders.batch(2, 200)]
    directory = builders.write_partition(tmp_path, [data], topic="long-topic-name")
    tables = list(kstore.scan(directory, columns=["topic", "partition", "offset"], batch_bytes=64))
    assert len(tables) > 1
    projection = Projection(schema(["topic", "offset"]), verify_crc=True)
    with kstore.open_log(directory) as log:
        (scan_range,) = log.plan()
    assembler = Assembler(projection, topic="long-topic-name")
    sizes = []
    for batch_bytes in (64, 1 << 20):
        for table in scan_columns(scan_range, projection.selection, batch_bytes=batch_bytes, config=LogConfig()):
            read = assembler.record_batch(table)
            read.validate(full=True)
            assert read["topic"].to_pylist() == ["long-topic-name"] * table.row_count
            sizes.append(table.row_count)
    assert sizes[-1] == 202 > max(sizes[:-1])


@pytest.mark.parametrize("columns", [["sequence"], ["sequence", "value"], ["offset", "sequence"]], ids="-".join)
def test_sequences_come_round_to_0_behind_the_largest(tmp_path: Path, columns: list[str]) -> None:
    producer = {"producer_id": 9, "producer_epoch": 0}
    data = [builders.batch(0, 4, base_sequence=2**31 - 2, **producer), builders.batch(4, 2)]
    table = kstore.scan(builders.write_partition(tmp_path, [data]), columns=columns).to_table()
    assert table["sequence"].to_pylist() == [2**31 - 2, 2**31 - 1, 0, 1, -1, -1]


def test_a_batch_between_two_alike_shows_its_own_values(tmp_path: Path) -> None:
    data = [
        builders.batch(0, 2),
        builders.batch(2, 2, codec=1, is_transactional=True, producer_id=9, producer_epoch=0, base_sequence=0),
        builders.batch(4, 2),
    ]
    columns = ["isTransactional", "producerId", "codec"]
    table = kstore.scan(builders.write_partition(tmp_path, [data]), columns=columns).to_table()
    assert table["isTransactional"].to_pylist() == [False, False, True, True, False, False]
    assert table["producerId"].to_pylist() == [-1, -1, 9, 9, -1, -1]
    assert table["codec"].to_pylist() == ["none", "none", "gzip", "gzip", "none", "none"]


@pytest.mark.parametrize("threads", [1, 2])
def test_damage_raises_where_it_is_met_with_its_place(root: Path, threads: int) -> None:
    segment = root / "plain-0" / f"{10 * RECORDS_PER_BATCH:020d}.log"
    builders.flip_bit(segment, 100, bit=0)
    with pytest.raises(kstore.CorruptRecordError, match="CRC mismatch") as caught:
        values(root, topics=["plain"], threads=threads)
    assert (caught.value.path, caught.value.position) == (str(segment), 0)
    assert caught.value.expected != caught.value.found


def test_batches_outlive_the_scan_and_reuse_nothing_that_is_held(root: Path) -> None:
    for binary in ("copy", "view"):
        held = list(kstore.scan(root, binary=binary, batch_bytes=700))
        gc.collect()
        list(kstore.scan(root, binary=binary, batch_bytes=700))
        again = list(kstore.scan(root, binary=binary, batch_bytes=700))
        assert held == again


def test_constant_columns_alone_still_come_in_bounded_batches(root: Path) -> None:
    batches = list(kstore.scan(root, columns=["partition", "topic"], batch_bytes=800))
    assert sum(batch.num_rows for batch in batches) == TOTAL
    assert max(batch.num_rows for batch in batches) <= 101


def test_text_that_is_not_utf_8_shows_the_replacement_character(tmp_path: Path) -> None:
    keys = [b"plain", b"\xff\xfe", "é".encode(), b"cut \xe2\x82", b"", None]
    record = builders.record
    batch = write_batch([record(offset, key, key) for offset, key in enumerate(keys)])
    path = builders.write_partition(tmp_path, [[batch]])
    table = kstore.scan(path, columns=["key", "value"], strings=["key"]).to_table()
    assert table["key"].to_pylist() == [None if key is None else key.decode("utf-8", "replace") for key in keys]
    assert table["value"].to_pylist() == keys


def test_nulls_before_large_headers_are_counted_once(tmp_path: Path) -> None:
    headers = [(b"h", b"x" * (2 << 20))]
    data = write_batch([builders.record(0, None, None, headers=headers), builders.record(1, b"v", b"k")])
    path = builders.write_partition(tmp_path, [[data]])
    (read,) = kstore.scan(path, columns=["key", "value", "headers"], batch_bytes=1 << 24)
    read.validate(full=True)
    assert [read[name].null_count for name in ("key", "value", "headers")] == [1, 1, 1]


def test_long_text_that_is_not_utf_8_takes_three_times_its_bytes(tmp_path: Path) -> None:
    size = 4 << 20
    path = builders.write_partition(tmp_path, [[write_batch([builders.record(0, b"\xff" * size)])]])
    table = kstore.scan(path, columns=["value"], strings=["value"]).to_table()
    assert table["value"][0].as_py() == "\ufffd" * size


@pytest.mark.parametrize("options", [{}, {"binary": "view"}, {"threads": 2}, {"batch_bytes": 1}], ids=str)
def test_a_timestamp_that_microseconds_cannot_hold_is_null_with_one_warning_a_scan(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    stamps = [5, 2**62, -(2**62), 6]
    batch = [write_batch([builders.record(offset, b"v", timestamp_ms=stamps[offset])]) for offset in range(4)]
    path = builders.write_partition(tmp_path, [batch])
    scan = kstore.scan(path, columns=["timestamp", "value"], **options)
    for count in (1, 2):
        table = scan.to_table()
        table.validate(full=True)
        assert table["timestamp"].cast(pa.int64()).to_pylist() == [5000, None, None, 6000]
        assert table["value"].to_pylist() == [b"v"] * 4
        assert len(caplog.messages) == count
    assert caplog.messages[0].startswith(f"timestamp {2**62} ms of the record at offset 1 of t-0 does not fit")
    assert kstore.scan(path, columns=["value"]).to_table().num_rows == 4
    assert len(caplog.messages) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ["offset", "nope"]}, "columns must be some of"),
        ({"columns": []}, "columns must be some of"),
        ({"columns": ["vlue"]}, r"got \['vlue'\]; did you mean value"),
        ({"columns": ["offset", "offset"]}, "each once"),
        ({"binary": "borrow"}, 'binary must be "copy" or "view"'),
        ({"strings": ["topic"]}, "strings must be some of key and value"),
    ],
    ids=["unknown column", "no column", "misspelt column", "repeated column", "binary", "strings"],
)
def test_wrong_options_are_refused_before_reading(root: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kstore.scan(root, **options)


def test_no_thread_is_no_scan(root: Path) -> None:
    with pytest.raises(ValueError, match="threads must be from 1"):
        iter(kstore.scan(root, threads=0))


BAD_SIZES = [
    pytest.param({"threads": 0}, ValueError, id="no-thread"),
    pytest.param({"threads": 2**31}, ValueError, id="threads-beyond-int32"),
    pytest.param({"threads": 2.5}, TypeError, id="threads-float"),
    pytest.param({"batch_bytes": 0}, ValueError, id="no-bytes"),
    pytest.param({"batch_bytes": 2**70}, ValueError, id="bytes-beyond-int64"),
    pytest.param({"config": 5}, TypeError, id="config-number"),
]


@pytest.mark.parametrize(("options", "kind"), BAD_SIZES)
def test_bad_option_is_refused_by_scan_itself_and_not_by_who_reads_it(
    root: Path, options: dict[str, Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        kstore.scan(root, **options)


def test_one_topic_and_one_string_column_may_be_named_alone(root: Path) -> None:
    topic = kstore.scan(root).to_table().column("topic")[0].as_py()
    alone = kstore.scan(root, topics=topic, strings="value").to_table()
    assert alone == kstore.scan(root, topics=[topic], strings=["value"]).to_table()
    assert alone.schema.field("value").type == pa.string()


def test_missing_pyarrow_is_named_with_the_way_to_install_it() -> None:
    program = "import sys; sys.modules['pyarrow'] = None; import kstore; kstore.scan"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: this part of kstore needs the package pyarrow: pip install 'kstore[arrow]'"
    )


@pytest.fixture
def unindexed(tmp_path: Path) -> Path:
    """A partition of one segment of large batches, with no index beside it."""
    batches = builders.batches(0, 200, value_bytes=20_000)
    directory = builders.write_partition(tmp_path, [batches])
    for index in directory.glob("*.*index"):
        index.unlink()
    return directory


def offsets_of(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch["offset"].to_pylist()]


@pytest.mark.parametrize("value_bytes", [500, 20_000])
def test_scan_without_indexes_reads_the_file_once(tmp_path: Path, value_bytes: int) -> None:
    """Of small batches a walk over the headers before the scan would read every byte."""
    count = 4_000_000 // value_bytes
    directory = builders.write_partition(tmp_path, [builders.batches(0, count, value_bytes=value_bytes)])
    for index in directory.glob("*.*index"):
        index.unlink()
    with kstore.open_log(directory) as log:
        size = log.size_in_bytes
        with counted_reads() as of_log:
            assert offsets_of(log.to_arrow_batches(columns=["offset"])) == [*range(count)]
    with counted_reads() as of_path:
        assert offsets_of(kstore.scan(directory, columns=["offset"])) == [*range(count)]
    assert size < of_log.size_in_bytes < 1.1 * size
    assert size < of_path.size_in_bytes < 1.1 * size


def test_scan_without_indexes_begins_at_the_log_start(root: Path) -> None:
    directory = root / "plain-0"
    for index in directory.glob("*.*index"):
        index.unlink()
    builders.write_offset_checkpoint(root / "log-start-offset-checkpoint", {"plain-0": 33})
    with kstore.open_log(directory) as log:
        assert offsets_of(log.to_arrow_batches(columns=["offset"])) == [*range(33, TOTAL // 2)]
    assert offsets_of(kstore.scan(directory, columns=["offset"])) == [*range(33, TOTAL // 2)]


def test_scan_without_indexes_by_threads_reads_little_more_than_the_file(
    unindexed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kstore.log.plan.THREAD_RANGE_BYTES", 1_000_000)
    with kstore.open_log(unindexed) as log, counted_reads() as reads:
        assert offsets_of(log.to_arrow_batches(columns=["offset"], threads=2)) == [*range(200)]
        size = log.size_in_bytes
    if can_read_cached(unindexed / f"{0:020}.log"):
        assert reads.size_in_bytes < 1.3 * size


def test_end_is_found_once_where_it_was_asked_for_before(unindexed: Path) -> None:
    with kstore.open_log(unindexed) as log:
        assert log.log_end_offset == 200
        ranges = list(log._scan_ranges())
    assert [(found.end_offset, [file.finds_end for file in found.files]) for found in ranges] == [(200, [False])]


def test_scan_that_finds_the_end_leaves_out_what_is_appended_after_opening(unindexed: Path) -> None:
    path = unindexed / f"{0:020}.log"
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with kstore.open_log(unindexed) as log:
        path.write_bytes(whole)
        assert offsets_of(log.to_arrow_batches(columns=["offset"])) == [*range(199)]


def test_ranges_of_a_scan_without_indexes_are_the_segments(root: Path) -> None:
    directory = root / "plain-0"
    for index in directory.glob("*.*index"):
        index.unlink()
    with kstore.open_log(directory) as log:
        ranges = list(log._scan_ranges())
        assert offsets_of(record_batches(ranges, columns=["offset"])) == [*range(TOTAL // 2)]
        bases = [segment.base_offset for segment in log.segments]
    assert [[file.base_offset for file in found.files] for found in ranges] == [[base] for base in bases]
    assert [found.start_offset for found in ranges] == bases


def test_a_scan_needs_no_pandas(root: Path) -> None:
    """pyarrow 25 and older import it for the NumPy type of an Arrow type."""
    columns = list(kstore.scan(root, topics="plain").schema.names)
    code = (
        "import sys; sys.modules['pandas'] = None\n"
        f"import kstore; scan = kstore.scan({str(root)!r}, topics=['plain', 'packed'], columns={columns})\n"
        "print(scan.to_table().num_rows)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == f"{TOTAL}\n"
