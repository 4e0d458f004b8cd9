"""Goal: `kstore export` exports what was asked for, tells what it did, and goes on where the last run ended.
Method: small roots; the manifest, standard output and the exit status are looked at."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kstore.archive import read_manifest
from kstore.cli import EXIT_DAMAGE, EXIT_FINE, EXIT_INTERRUPTED, EXIT_WRONG_USE
from kstore.producer import Producer
from kstore.store.opening import open_log
from kstore.store.store import open_store
from tests.cli.runner import Runner, runner, start
from tests.cli.test_process import on_a_terminal
from tests.making.exporting import TOPIC, checked_manifest, grow, rows_of_export, rows_of_source
from tests.making.protobuf_rides import V2, write_protobuf_rides
from tests.making.rides import ROWS, write_rides


@pytest.fixture
def kstore(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Runner:
    return runner(monkeypatch, capsysbinary)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    grow(root, 100)
    return root


@pytest.mark.parametrize("format", ["parquet", "arrow", "kstore"])
def test_each_run_tells_what_is_new_and_what_the_target_holds(
    kstore: Runner, source: Path, tmp_path: Path, format: str
) -> None:
    target = tmp_path / "out"
    first = kstore("export", source, target, "--format", format)
    assert (first.status, first.err) == (EXIT_FINE, "")
    assert first.out.splitlines()[1].split() == [TOPIC, "0", "0", "100", "100"]
    assert first.out.splitlines()[-1].startswith("200 new records in ")
    assert rows_of_export(target) == rows_of_source(source)
    suffix = {"kstore": "log"}.get(format, format)
    assert {file.path.rpartition(".")[2] for file in checked_manifest(target).files} == {suffix}
    grow(source, 20)
    (more,) = kstore("export", source, target, "--format", format, "--json").objects()
    assert (more["new_records"], more["record_count"], more["format"]) == (40, 240, format)
    assert [one["end_offset"] for one in more["partitions"]] == [120, 120]


def test_a_schema_id_a_mode_and_the_fields_of_records_are_chosen(kstore: Runner, tmp_path: Path) -> None:
    root = write_rides(tmp_path / "root")
    asked = ["--topic", "rides", "--value", "avro", "--schema-id", 1, "--mode", "dropmalformed", "--flatten"]
    assert kstore("export", root, tmp_path / "out", *asked).status == 0
    manifest = read_manifest(tmp_path / "out")
    assert manifest is not None
    assert manifest.options["value"] == {"name": "avro", "schema_id": 1}
    rows = pq.read_table(tmp_path / "out" / manifest.files[0].path)
    assert (rows["id"].to_pylist(), rows["carrier"].to_pylist()) == ([1, 2, None, 4], ["AA", "UA", None, "DL"])
    assert "delay" not in rows.column_names
    failing = kstore("export", root, tmp_path / "other", "--topic", "rides", "--value", "avro", "--mode", "FAILFAST")
    assert failing.status == 1
    assert "offset 3 of rides-0 cannot be decoded" in failing.err
    other = kstore("export", root, tmp_path / "out", *asked[:-1])
    assert (other.status, "holds an export with other options: flatten" in other.err) == (2, True)


def test_values_are_decoded_by_the_schemas_of_the_root_or_of_another(kstore: Runner, tmp_path: Path) -> None:
    root = write_rides(tmp_path / "rides")
    (root / "_schemas-0").rename(tmp_path / "_schemas-0")
    asked = ["--topic", "rides", "--value", "avro", "--key", "avro", "--schemas", tmp_path / "_schemas-0"]
    assert kstore("export", root, tmp_path / "out", *asked).status == EXIT_FINE
    manifest = read_manifest(tmp_path / "out")
    assert manifest is not None
    assert manifest.options["value"] == {"name": "avro", "schemas": str(tmp_path / "_schemas-0")}
    rows = pq.read_table(tmp_path / "out" / manifest.files[0].path)
    assert rows["value"].to_pylist() == ROWS
    wrong = kstore("export", root, tmp_path / "out", "--topic", "rides", "--value", "arvo")
    assert (wrong.status, "expected one of the formats" in wrong.err) == (EXIT_WRONG_USE, True)


def test_values_of_protobuf_are_those_of_the_message_that_is_named(kstore: Runner, tmp_path: Path) -> None:
    root = write_protobuf_rides(tmp_path / "rides")
    (tmp_path / "ride.proto").write_text(V2)
    asked = ["--topic", "rides", "--value", "protobuf", "--message", "Stop", "--schema", tmp_path / "ride.proto"]
    for target in (tmp_path / "out", tmp_path / "out"):
        assert kstore("export", root, target, *asked, "--schemas", root).status == EXIT_FINE
    manifest = read_manifest(tmp_path / "out")
    assert manifest is not None
    rows = pq.read_table(tmp_path / "out" / manifest.files[0].path)["value"].to_pylist()
    assert [row for row in rows if row is not None] == [{"name": "s"}]
    alone = kstore("export", root, tmp_path / "two", "--topic", "rides", "--message", "Stop")
    assert (alone.status, "--schema-id and --message are for values" in alone.err) == (EXIT_WRONG_USE, True)


def test_values_of_json_are_read_by_a_json_schema_or_an_inferred_type(kstore: Runner, tmp_path: Path) -> None:
    root = tmp_path / "root"
    with open_store(root, "a") as store:
        store.create_topic("rides", partitions=1)
        with Producer(store) as producer:
            producer.send("rides", b'{"id":1,"name":"x"}')
    (tmp_path / "ride.json").write_text('{"type": "object", "properties": {"name": {"type": "string"}}}')
    for schema, row in ((tmp_path / "ride.json", {"name": "x"}), ("infer", {"id": 1, "name": "x"})):
        target = tmp_path / f"out-{len(row)}"
        assert kstore("export", root, target, "--value", "json", "--schema", schema).status == EXIT_FINE
        manifest = read_manifest(target)
        assert manifest is not None
        assert pq.read_table(target / manifest.files[0].path)["value"].to_pylist() == [row]
    without = kstore("export", root, tmp_path / "no", "--value", "json")
    assert (without.status != EXIT_FINE, 'schema="infer"' in without.err) == (True, True)


def test_selection_and_options_are_those_of_the_library(kstore: Runner, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    options = ["--partition", 1, "--from", 10, "--to", 50, "--columns", "offset,value", "--strings", "value"]
    options += ["--codec", "zstd", "--row-group-rows", 7, "--file-bytes", 8192, "--threads", 1]
    assert kstore("export", source, target, *options).status == EXIT_FINE
    manifest = read_manifest(target)
    assert manifest is not None
    assert manifest.options["columns"] == ["offset", "value"]
    assert {name: manifest.options[name] for name in ("codec", "row_group_rows", "file_bytes", "start_offset")} == {
        "codec": "zstd",
        "row_group_rows": 7,
        "file_bytes": 8192,
        "start_offset": 10,
    }
    assert [(one.partition, one.start_offset, one.end_offset) for one in manifest.partitions] == [(1, 10, 50)]


def test_lists_of_columns_may_be_given_in_several_options(kstore: Runner, source: Path, tmp_path: Path) -> None:
    options = ["--columns", "offset", "--columns", "key,value", "--strings", "value", "--strings", "key"]
    assert kstore("export", source, tmp_path / "out", *options).status == EXIT_FINE
    manifest = read_manifest(tmp_path / "out")
    assert manifest is not None
    assert manifest.options["columns"] == ["offset", "key", "value"]
    assert sorted(manifest.options["strings"]) == ["key", "value"]


def test_point_in_time_restore_ends_before_a_batch_on_request(kstore: Runner, source: Path, tmp_path: Path) -> None:
    arguments = [
        "--format",
        "kstore",
        "--to",
        55,
        "--last-batch",
        "drop",
        "--topic-id",
        f"{TOPIC}=a3N0b3JlLWludGVyb3AtMQ",
    ]
    assert kstore("export", source, tmp_path / "out", *arguments).status == EXIT_FINE
    with open_log(tmp_path / "out" / f"{TOPIC}-0") as log:
        assert log.log_end_offset == 50
    assert "a3N0b3JlLWludGVyb3AtMQ" in (tmp_path / "out" / f"{TOPIC}-0" / "partition.metadata").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected either OUT or --to-table"),
        (["OUT", "--to-table", "delta:x"], "expected either OUT or --to-table"),
        (["--to-table", "s3://x"], "a table must be delta:URI"),
        (["OUT", "--topic", "nothing"], "topics not found: nothing"),
        (["OUT", "--codec", "lzo"], "codec of format"),
        (["OUT", "--from", "-3"], "--from must be earliest, latest or an offset"),
        (["OUT", "--format", "kstore", "--topic-id", "x"], "--topic-id must have the form TOPIC=ID"),
        (["OUT", "--format", "kstore", "--topic-id", "x=" + "A" * 22], "the id of topic x must not be zero"),
        (["OUT", "--format", "kstore", "--topic-id", "x=" + "B" * 21 + "A"], "topics that are not exported: x"),
    ],
)
def test_wrong_use_is_told(kstore: Runner, source: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    found = [str(tmp_path / "out") if one == "OUT" else one for one in arguments]
    wrong = kstore("export", source, *found)
    assert (wrong.status, wrong.out) == (EXIT_WRONG_USE, "")
    assert message in wrong.err
    assert not (tmp_path / "out").exists()


def test_errors_of_tables_are_told_in_one_line(kstore: Runner, source: Path, tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    (tmp_path / "file").write_text("no directory")
    failed = kstore("export", source, "--to-table", f"delta:{tmp_path / 'file'}")
    assert (failed.status, failed.out, failed.err.count("\n")) == (EXIT_DAMAGE, "", 1)
    assert failed.err.startswith(f"kstore: cannot write delta:{tmp_path / 'file'}: OSError: ")


def test_other_options_than_those_of_the_target_are_wrong_use(kstore: Runner, source: Path, tmp_path: Path) -> None:
    kstore("export", source, tmp_path / "out")
    wrong = kstore("export", source, tmp_path / "out", "--codec", "zstd")
    assert wrong.status == EXIT_WRONG_USE
    assert "codec: 'snappy' there, 'zstd' asked for" in wrong.err


def test_damage_is_an_error_or_left_out_with_status_1(kstore: Runner, source: Path, tmp_path: Path) -> None:
    path = sorted((source / f"{TOPIC}-0").glob("*.log"))[0]
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    refused = kstore("export", source, tmp_path / "out")
    assert refused.status == EXIT_DAMAGE
    assert str(path) in refused.err
    skipped = kstore("export", source, tmp_path / "skipped", "--skip-damaged")
    assert skipped.status == EXIT_DAMAGE
    assert f"kstore: skipped offsets 0 to 9 of {TOPIC}-0" in skipped.err
    assert kstore("export", source, tmp_path / "skipped", "--skip-damaged").status == EXIT_FINE


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_bar_is_shown_on_a_terminal_and_erased(source: Path, tmp_path: Path) -> None:
    status, shown = on_a_terminal("export", source, tmp_path / "out", "--file-bytes", 4096)
    assert status == EXIT_FINE
    assert "\x1b[" in shown
    assert "bytes" in shown or "kB" in shown
    assert "200 new records" in shown


def test_interrupt_ends_with_130_and_the_same_command_goes_on(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "out"
    grow(source, 1500, days=100)
    arguments = ("export", source, target, "--row-group-rows", 10, "--file-bytes", 4096)
    for _ in range(20):
        with start(*arguments) as process:
            staging = target / "_kstore_export"
            while process.poll() is None and not list(staging.glob("part-*.json")):
                pass
            process.send_signal(signal.SIGINT)
            status = process.wait()
        if status == EXIT_INTERRUPTED:
            break
    assert status == EXIT_INTERRUPTED
    assert read_manifest(target) is None
    with start(*arguments) as process:
        assert process.wait() == EXIT_FINE
    assert rows_of_export(target) == rows_of_source(source)


def test_each_topic_has_a_table_with_the_partitions_that_are_asked_for(
    kstore: Runner, source: Path, tmp_path: Path
) -> None:
    deltalake = pytest.importorskip("deltalake")
    grow(source, 10, topic="late")
    options = ("--to-table", f"delta:{tmp_path}/tables/{{topic}}", "--partition-by", "topic,date", "--json")
    done = kstore("export", source, *options)
    assert done.status == EXIT_FINE
    summary = json.loads(done.out)
    assert {place["table"] for place in summary["partitions"]} == {
        f"delta:{tmp_path}/tables/{topic}" for topic in (TOPIC, "late")
    }
    for topic in (TOPIC, "late"):
        table = deltalake.DeltaTable(str(tmp_path / "tables" / topic))
        assert table.metadata().partition_columns == ["topic", "date"]
    wrong = kstore("export", source, "--to-table", f"delta:{tmp_path}/other", "--partition-by", "nope")
    assert wrong.status == EXIT_WRONG_USE
    assert "partition_by must be some of the columns" in wrong.err
    wrong = kstore("export", source, tmp_path / "out", "--partition-by", "date")
    assert wrong.status == EXIT_WRONG_USE
    assert "--partition-by is for --to-table" in wrong.err
