"""Goal: what `kstore import` appends is what the file said, wherever it came from, and a bad line is named.
Method: JSON lines from `kstore cat`, Parquet and Arrow from kstore.scan, back into new roots, records compared."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kstore as library
from kstore import open_log, open_store
from kstore.compression import codec_name
from tests.cli.runner import runner, start
from tests.making.batches import record, write_root
from tests.reference.codec import write_batch

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
def kstore(monkeypatch, capsysbinary):
    return runner(monkeypatch, capsysbinary)


def rows(first, count):
    """Records with null and empty keys and values, headers, and rising times."""
    return [
        record(
            first + number,
            [b"value %d" % number, None, b"", b"\xff\x00"][number % 4],
            [b"key", None, b""][number % 3],
            headers=[(b"h", b"1"), (b"h", None), ("é".encode(), b"")][: number % 4],
        )
        for number in range(count)
    ]


@pytest.fixture
def source(tmp_path):
    """t-0 with a gap in its offsets, t-1, and u-0."""
    parts = {
        "t-0": [[write_batch(rows(10, 7)), write_batch(rows(30, 5))]],
        "t-1": [[write_batch(rows(0, 3))]],
        "u-0": [[write_batch(rows(5, 4))]],
    }
    return write_root(tmp_path / "source", parts)


def contents(root, *, with_offsets=False):
    found = {}
    with open_store(root) as store:
        for topic, partition in store.partitions:
            found[topic, partition] = [
                (one.offset if with_offsets else None, one.timestamp_ms, one.key, one.value, one.headers)
                for one in store.log(topic, partition).read()
            ]
    return found


def exported(kstore, source, path, kind):
    """All records of the source as a file."""
    if kind == "jsonl":
        path.write_text(kstore("cat", source, "--json").out)
        return path
    table = pa.RecordBatchReader.from_stream(library.scan(source)).read_all()
    if kind == "parquet":
        pq.write_table(table, path)
    elif kind == "arrow":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    else:
        with pa.ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table)
    return path


KINDS = ["jsonl", "parquet", "arrow", "arrows"]


@pytest.mark.parametrize("kind", KINDS)
def test_records_of_a_file_are_appended_to_their_topics(kstore, source, tmp_path, kind):
    path = exported(kstore, source, tmp_path / f"in.{kind}", kind)
    run = kstore("import", path, tmp_path / "new", "--json")
    assert (run.status, run.err) == (0, "")
    assert run.objects() == [
        {"topic": "t", "partition": 0, "records": 12, "log_end_offset": 12},
        {"topic": "t", "partition": 1, "records": 3, "log_end_offset": 3},
        {"topic": "u", "partition": 0, "records": 4, "log_end_offset": 4},
    ]
    assert contents(tmp_path / "new") == contents(source)
    again = kstore("import", path, tmp_path / "new", "--json").objects()
    assert [one["log_end_offset"] for one in again] == [24, 6, 8]


@pytest.mark.parametrize("kind", KINDS)
def test_offsets_are_kept_on_demand(kstore, source, tmp_path, kind):
    path = exported(kstore, source, tmp_path / f"in.{kind}", kind)
    run = kstore("import", path, tmp_path / "new", "--keep-offsets", "--json")
    assert [one["log_end_offset"] for one in run.objects()] == [35, 3, 9]
    assert contents(tmp_path / "new", with_offsets=True) == contents(source, with_offsets=True)
    assert kstore("import", path, tmp_path / "new", "--keep-offsets").status == 2


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize("codec", CODECS)
def test_batches_have_the_codec_and_size_asked_for(kstore, source, tmp_path, kind, codec):
    path = exported(kstore, source, tmp_path / f"in.{kind}", kind)
    kstore("import", path, tmp_path / "new", "--compression", codec, "--batch-bytes", 20)
    assert contents(tmp_path / "new") == contents(source)
    with open_log(tmp_path / "new" / "t-0") as log:
        batches = list(log.batches())
    assert len(batches) > 1
    assert {codec_name(batch.header.codec) for batch in batches} == {codec}


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_topic_and_partition_named_stand_in_place_of_the_records_own(kstore, source, tmp_path, kind):
    path = exported(kstore, source / "t-1", tmp_path / f"in.{kind}", kind)
    (shown,) = kstore("import", path, tmp_path / "new", "--topic", "x", "--partition", "2", "--json").objects()
    assert shown == {"topic": "x", "partition": 2, "records": 3, "log_end_offset": 3}
    with open_store(tmp_path / "new") as store:
        assert store.partitions == (("x", 0), ("x", 1), ("x", 2))
        assert len({(tmp_path / "new" / f"x-{n}" / "partition.metadata").read_text() for n in range(3)}) == 1


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_one_partition_takes_all_records(kstore, source, tmp_path, kind):
    path = exported(kstore, source / "u-0", tmp_path / f"in.{kind}", kind)
    run = kstore("import", path, source / "t-1", "--json")
    assert run.objects() == [{"topic": "t", "partition": 1, "records": 4, "log_end_offset": 7}]
    assert len(contents(source)["t", 1]) == 7


def test_standard_input_is_read_too(kstore, source, tmp_path):
    lines = kstore("cat", source / "t-1", "--json").out.encode()
    with start("import", "-", tmp_path / "new", "--json", stdin=-1, stdout=-1) as process:
        out, _ = process.communicate(lines)
    assert (process.returncode, json.loads(out)["records"]) == (0, 3)


def test_control_records_are_left_out(kstore, tmp_path):
    line = {"topic": "t", "partition": 0, "offset": 0, "timestamp": 5, "key": None, "value": None, "headers": []}
    (tmp_path / "in.jsonl").write_text("\n".join(json.dumps(one) for one in (line, {**line, "controlType": "COMMIT"})))
    (shown,) = kstore("import", tmp_path / "in.jsonl", tmp_path / "new", "--json").objects()
    assert shown["records"] == 1


def test_least_that_a_line_needs_is_topic_and_timestamp(kstore, tmp_path):
    value = base64.b64encode(b"v").decode()
    (tmp_path / "in.jsonl").write_text(json.dumps({"topic": "t", "timestamp": -1, "value": value}) + "\n")
    assert kstore("import", tmp_path / "in.jsonl", tmp_path / "new").status == 0
    assert contents(tmp_path / "new") == {("t", 0): [(None, -1, None, b"v", ())]}


BAD_LINES = [
    pytest.param("{", "is not a record", id="no-json"),
    pytest.param("[1]", "is not a record", id="no-object"),
    pytest.param('{"topic":"t"}', "missing field 'timestamp'", id="no-timestamp"),
    pytest.param('{"topic":"t","timestamp":"now"}', "timestamp must be a number", id="timestamp"),
    pytest.param('{"topic":"t","timestamp":-2}', "timestamp must be a number from -1", id="negative-timestamp"),
    pytest.param('{"topic":"t","timestamp":1,"partition":-1}', "partition must be", id="negative-partition"),
    pytest.param('{"topic":"t","timestamp":1,"partition":true}', "partition must be", id="boolean-partition"),
    pytest.param('{"topic":"t","timestamp":1,"key":"*"}', "is not a record", id="no-base64"),
    pytest.param('{"topic":"t","timestamp":1,"headers":[["a"]]}', "is not a record", id="half-a-header"),
    pytest.param('{"topic":"t","timestamp":1,"headers":7}', "is not a record", id="no-headers"),
    pytest.param('{"topic":5,"timestamp":1}', "topic must be a string", id="topic-number"),
    pytest.param("[" * 100_000, "is not a record", id="deep"),
    pytest.param('{"topic":"t","timestamp":1,"value":5}', "base64 text or null", id="value-number"),
    pytest.param('{"topic":"t","timestamp":1,"headers":[[1,null]]}', "key must be a string", id="header-key-number"),
    pytest.param(f'{{"topic":"t","timestamp":1,"offset":{2**63 - 1}}}', "offset must be", id="last-offset"),
    pytest.param(f'{{"topic":"t","timestamp":{"9" * 5000}}}', "is not a record", id="number-of-5000-digits"),
]


@pytest.mark.parametrize(("line", "reason"), BAD_LINES)
def test_line_that_is_no_record_is_named(kstore, tmp_path, line, reason):
    good = '{"topic":"t","timestamp":1}'
    (tmp_path / "in.jsonl").write_text(f"{good}\n{line}\n{good}\n")
    run = kstore("import", tmp_path / "in.jsonl", tmp_path / "new")
    assert (run.status, run.out) == (2, "")
    *_, notice = run.err.splitlines()
    assert "line 2 of" in notice
    assert reason in notice


BAD_CALLS = [
    pytest.param('{"topic":"a/b","timestamp":1}', [], "topic name", id="topic-that-kafka-refuses"),
    pytest.param('{"timestamp":1}', [], "--topic", id="no-topic"),
    pytest.param('{"topic":"t","timestamp":1,"partition":2147483647}', [], "at most 10000", id="partition-2147483647"),
    pytest.param('{"topic":"t","timestamp":1}', ["--partition", 2**31], "at most 10000", id="partition-beyond-int32"),
]


@pytest.mark.parametrize(("line", "options", "reason"), BAD_CALLS)
def test_record_that_has_no_place_is_wrong_use(kstore, tmp_path, line, options, reason):
    (tmp_path / "in.jsonl").write_text(line)
    run = kstore("import", tmp_path / "in.jsonl", tmp_path / "new", *options)
    assert run.status == 2
    assert reason in run.err


@pytest.mark.parametrize("name", ["in.parquet", "in.arrow", "in.jsonl"])
def test_missing_file_is_wrong_use(kstore, tmp_path, name):
    run = kstore("import", tmp_path / name, tmp_path / "new")
    assert run.status == 2
    assert name in run.err
    assert not (tmp_path / "new").exists(), "nothing is made for a file that can't be read"


@pytest.mark.parametrize("name", ["in.parquet", "in.arrow"])
def test_file_of_another_kind_is_wrong_use(kstore, tmp_path, name):
    (tmp_path / name).write_bytes(b"this is neither" * 10)
    assert kstore("import", tmp_path / name, tmp_path / "new").status == 2


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file whose reads fail")
@pytest.mark.parametrize("name", ["/proc/self/mem", "-"])
def test_read_that_fails_is_told_of_what_was_read(tmp_path, name):
    with open("/proc/self/mem", "rb") as unreadable:
        process = start("import", name, tmp_path / "new", stdin=unreadable, stderr=subprocess.PIPE)
        _, err = process.communicate()
    assert err.decode() == f"kstore: cannot read {name}: Input/output error\n"
    assert process.returncode == 1
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", [os.fsdecode(b"\xff.parquet"), os.fsdecode(b"\xff.arrow"), "s3:1.parquet"])
def test_arrow_data_is_read_whatever_bytes_its_file_is_named_by(kstore, source, tmp_path, monkeypatch, name):
    exported(kstore, source, tmp_path / "in", name.rpartition(".")[2])
    (tmp_path / "in").rename(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert kstore("import", name, "new").status == 0
    assert contents(tmp_path / "new") == contents(source)


TIMES = pa.array([1, 2], pa.timestamp("ms"))
BAD_COLUMNS = [
    pytest.param([("value", [b"v", b"w"]), ("topic", ["t", "t"])], "timestamp", id="no-timestamp"),
    pytest.param([("timestamp", TIMES), ("topic", [1, 2])], "topic must hold strings", id="topic-numbers"),
    pytest.param(
        [("timestamp", TIMES), ("topic", ["t", "t"]), ("partition", ["a", "b"])],
        "partition must hold integers",
        id="partition-strings",
    ),
    pytest.param(
        [("timestamp", TIMES), ("topic", ["t", "t"]), ("partition", [-1, 0])],
        "partition must be from 0",
        id="negative-partition",
    ),
    pytest.param(
        [("timestamp", TIMES), ("topic", ["t", "t"]), ("partition", pa.array([2**63, 0], pa.uint64()))],
        "partition must be from 0 to 2147483647, found 9223372036854775808",
        id="partition-beyond-int64",
    ),
    pytest.param(
        [("timestamp", TIMES), ("topic", ["t", "t"]), ("isControl", ["a", "b"])],
        "isControl must hold booleans",
        id="control-strings",
    ),
    pytest.param([("timestamp", TIMES), ("topic", ["t", None])], "a row has no topic", id="null-topic"),
    pytest.param(
        [("timestamp", TIMES), ("topic", ["t", "t"]), ("value", [b"v", b"w"]), ("value", [1, 2])],
        "value appears 2 times",
        id="column-twice",
    ),
]


@pytest.mark.parametrize(("columns", "reason"), BAD_COLUMNS)
def test_arrow_columns_that_are_no_record_are_wrong_use(kstore, tmp_path, columns, reason):
    table = pa.Table.from_arrays([pa.array(values) for _, values in columns], [name for name, _ in columns])
    with pa.OSFile(str(tmp_path / "in.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    run = kstore("import", tmp_path / "in.arrow", tmp_path / "new")
    assert run.status == 2
    assert "in.arrow" in run.err
    assert reason in run.err


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_a_row_whose_control_flag_is_null_is_a_record(kstore, tmp_path, kind):
    table = pa.table(
        {
            "topic": ["t"] * 4,
            "timestamp": [1] * 4,
            "value": ["a", "b", "c", None],
            "isControl": [None, False, True, None],
        }
    )
    path = tmp_path / f"in.{kind}"
    if kind == "parquet":
        pq.write_table(table, path)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    assert kstore("import", path, tmp_path / "new").status == 0
    assert [record.value for record in open_log(tmp_path / "new" / "t-0").read()] == [b"a", b"b", None]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_kept_offsets_further_apart_than_a_segment_reaches_come_into_several(kstore, tmp_path, kind):
    offsets = [5, 6, 6 + 2**31, 2**62]
    path = tmp_path / f"in.{kind}"
    if kind == "jsonl":
        lines = [json.dumps({"topic": "t", "timestamp": 1, "offset": offset}) for offset in offsets]
        path.write_text("\n".join(lines))
    else:
        pq.write_table(pa.table({"topic": ["t"] * 4, "timestamp": [1] * 4, "offset": offsets}), path)
    assert kstore("import", path, tmp_path / "new", "--keep-offsets").status == 0
    with open_log(tmp_path / "new" / "t-0") as log:
        assert [one.offset for one in log.read()] == offsets


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_record_behind_the_largest_offset_is_wrong_use(kstore, tmp_path, kind):
    path, last = tmp_path / f"in.{kind}", 2**63 - 2
    if kind == "jsonl":
        path.write_text(json.dumps({"topic": "t", "timestamp": 1, "offset": last}))
    else:
        columns = {"topic": ["t"], "offset": [last], "timestamp": pa.array([1], pa.timestamp("ms"))}
        pq.write_table(pa.table(columns), path)
    assert kstore("import", path, tmp_path / "new", "--keep-offsets").status == 0
    run = kstore("import", path, tmp_path / "new")
    assert (run.status, str(last + 1) in run.err) == (2, True)


def test_closed_standard_input_is_wrong_use(tmp_path):
    command = [sys.executable, "-m", "kstore", "import", "-", str(tmp_path / "new")]
    done = subprocess.run(["sh", "-c", 'exec "$@" <&-', "sh", *command], capture_output=True)
    assert (done.returncode, done.stderr) == (2, b"kstore: standard input is closed\n")
