"""Goal: a log in S3 reads as the same files on a disk, with few requests.
Method: golden directories and the flights uploaded to a real server on loopback, which counts requests."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from typer.testing import CliRunner

import kstore
from kstore import Record, open_log, open_store
from kstore.cli.commands import whole_app
from kstore.env.remote import BLOCK_BYTES, STREAM_BYTES
from kstore.errors import LogNotFoundError, LogReplacedError, StorageError
from kstore.log.files.names import find_partitions
from kstore.log.log import Log
from tests.fakes.s3 import BUCKET, S3Server
from tests.golden.sets import ALL_SETS, MIXED_SET, V0_SET, V1_SET, GoldenPartition, golden_partitions
from tests.making.collecting import over
from tests.making.rides import write_rides
from tests.urls.conftest import FLIGHTS

FEW_SETS = (MIXED_SET, V0_SET, V1_SET)
FEW = [*golden_partitions(*FEW_SETS)]
OTHERS = [one for one in golden_partitions(*ALL_SETS) if one.set_name not in FEW_SETS]


def answers_of(log: Log) -> list[object]:
    """Return the bounds of a log, all of its records, and lookups by offset and by time."""
    records = list(log.read())
    some = records[:: max(len(records) // 10, 1)]
    return [
        log.log_start_offset,
        log.log_end_offset,
        log.high_watermark,
        log.transactions(),
        [(one.offset, one.timestamp_ms, one.key, one.value, one.headers) for one in records],
        [log.offset_for_timestamp(one.timestamp_ms) for one in some],
        [log.fetch(one.offset, 1000) for one in some],
        [(one.start_offset, one.end_offset, one.size_in_bytes) for one in log.plan(max_bytes=10_000)],
        list(log.read(isolation="read_committed"))[-1:]
        and [one.offset for one in log.read(isolation="read_committed")],
    ]


def check_equal(server: S3Server, partition: GoldenPartition) -> None:
    root = partition.directory.parent
    key = f"golden/{partition.set_name}/{partition.tree}"
    for path in root.iterdir():
        if path.is_file():
            server.put(f"{key}/{path.name}", path.read_bytes())
    server.upload(partition.directory, f"{key}/{partition.name}")
    with open_log(partition.directory) as local, open_log(server.url(f"{key}/{partition.name}")) as remote:
        for there, here in zip(answers_of(remote), answers_of(local), strict=True):
            assert there == here


@over("partition", FEW)
def test_golden_partition_in_s3_gives_the_answers_of_the_local_one(
    server: S3Server, partition: GoldenPartition
) -> None:
    check_equal(server, partition)


@pytest.mark.long
@over("partition", OTHERS)
def test_every_golden_partition_in_s3_gives_the_answers_of_the_local_one(
    server: S3Server, partition: GoldenPartition
) -> None:
    check_equal(server, partition)


def test_scan_of_a_root_is_planned_by_one_list_and_the_checkpoint(server: S3Server) -> None:
    scan = kstore.scan(server.url("flights"))
    assert server.count("LIST") == 1
    # The listing, and the root's checkpoint: opened, read, and looked at again.
    assert server.count() == 4
    server.requests.clear()
    assert scan.to_table() == kstore.scan(FLIGHTS).to_table()
    files = [file for one in scan.ranges for file in one.files]
    assert server.count("GET") == len(files)
    assert server.count() == 3 * len(files)


def test_partition_is_opened_by_one_list_and_its_end_is_found_by_one_read(server: S3Server) -> None:
    with open_log(server.url("flights/flights-lz4-1")) as log, open_log(FLIGHTS / "flights-lz4-1") as local:
        assert server.requests[:1] == [("LIST", "list-type=2&max-keys=1000&prefix=flights%2Fflights-lz4-1%2F", "")]
        assert log.log_start_offset == local.log_start_offset
        server.requests.clear()
        assert log.log_end_offset == local.log_end_offset
        assert len(log.plan()) == 1
        assert [request.kind for request in server.requests] == ["HEAD", "GET", "HEAD"]


def large_log(server: S3Server, tmp_path: Path, key: str, *, mebibytes: int) -> Path:
    """Store a partition with one segment of this size, and return its local directory."""
    directory = tmp_path / f"{key}-0"
    with open_log(directory, "a") as log:
        for number in range(mebibytes * 8):
            log.append([Record(value=bytes([number % 251]) * (128 * 1024 - 200), timestamp_ms=number)])
    server.upload(directory, f"{key}-0")
    return directory


def test_end_of_a_large_segment_takes_its_index_and_one_block(server: S3Server, tmp_path: Path) -> None:
    directory = large_log(server, tmp_path, "end", mebibytes=2)
    with open_log(server.url("end-0")) as log, open_log(directory) as local:
        server.requests.clear()
        assert log.log_start_offset == 0
        checkpoint = server.count()
        assert log.log_end_offset == local.log_end_offset
    read = server.requests[checkpoint:]
    # pyarrow asks for the size of each object that it opens; an index is a hint, which is not looked at again.
    assert [request.kind for request in read] == ["HEAD", "GET", "HEAD", "GET", "HEAD"]
    first, _, last = read[-2].range.removeprefix("bytes=").partition("-")
    assert int(last) + 1 - int(first) == BLOCK_BYTES


def test_large_segment_is_read_in_large_blocks_and_looked_at_again_once_in_a_while(
    server: S3Server, tmp_path: Path
) -> None:
    directory = large_log(server, tmp_path, "large", mebibytes=34)
    size = sum(path.stat().st_size for path in directory.glob("*.log"))
    scan = kstore.scan(server.url("large-0"))
    server.requests.clear()
    assert scan.to_table() == kstore.scan(directory).to_table()
    assert server.count("GET") == -(-size // STREAM_BYTES) == 5
    assert 2 <= server.count("HEAD") <= 6


def test_part_of_a_segment_asks_for_no_byte_after_it(server: S3Server, tmp_path: Path) -> None:
    large_log(server, tmp_path, "part", mebibytes=20)
    with open_log(server.url("part-0")) as log:
        first, *_ = log.plan(max_bytes=4 * 1024 * 1024)
    server.requests.clear()
    assert kstore.scan([first]).to_table().num_rows == first.end_offset
    assert [one.range for one in server.requests if one.kind == "GET"] == [f"bytes=0-{first.files[0].end_position - 1}"]


def test_ranges_are_pickled_with_their_options_and_show_no_secret(server: S3Server) -> None:
    scan = kstore.scan(server.url("flights/flights-lz4-0"))
    ranges = pickle.loads(pickle.dumps(scan.ranges))
    assert kstore.scan(ranges).to_table() == scan.to_table()
    assert "secret" not in f"{ranges} {scan} {find_partitions(server.url('flights'))}"


def test_store_and_verify_and_threads_read_urls(server: S3Server) -> None:
    with open_store(server.url("flights")) as store, open_store(FLIGHTS) as local:
        assert store.partitions == local.partitions
        assert store.log("flights-lz4", 2).log_end_offset == local.log("flights-lz4", 2).log_end_offset
    there, here = kstore.verify(server.url("flights")), kstore.verify(FLIGHTS)
    assert there.is_unharmed
    counts = [[(one.batch_count, one.record_count) for one in report.partitions] for report in (there, here)]
    assert counts[0] == counts[1]
    threaded = kstore.scan(server.url("flights"), threads=4).to_table()
    assert threaded == kstore.scan(FLIGHTS).to_table()


def test_bounds_and_filters_are_looked_up(server: S3Server) -> None:
    bounds = {"start_offset": 1000, "end_offset": 3000, "isolation": "read_committed"}
    there, here = (kstore.scan(path, **bounds) for path in (server.url("flights"), FLIGHTS))
    assert there.to_table() == here.to_table()
    lazy = there.to_polars_lazy()
    assert lazy.collect().height == here.to_table().num_rows


@pytest.mark.parametrize("key", ["nothing", "nothing/t-0", "flights/flights-lz4-7"])
def test_missing_prefix_or_bucket_is_no_log(server: S3Server, key: str) -> None:
    for url in (server.url(key), server.url(key, bucket="no-such-bucket")):
        with pytest.raises(LogNotFoundError, match="no such directory: s3://"):
            find_partitions(url)
        with pytest.raises(LogNotFoundError):
            open_log(url)


def test_segments_alone_are_a_partition(server: S3Server) -> None:
    """As a tiered store may keep them: <20 digits>.log objects and nothing else."""
    for path in (FLIGHTS / "flights-lz4-0").glob("*.log"):
        server.put(f"tiered/flights-lz4-0/{path.name}", path.read_bytes())
    assert kstore.scan(server.url("tiered")).to_table() == kstore.scan(FLIGHTS / "flights-lz4-0").to_table()


def test_writing_is_refused(server: S3Server) -> None:
    for call in (
        lambda: open_log(server.url("flights/flights-lz4-0"), "a"),
        lambda: open_store(server.url("flights"), "a"),
        lambda: kstore.recover(server.url("flights")),
    ):
        with pytest.raises(StorageError, match="kstore only reads there"):
            call()
    assert server.count() == 0


def test_refresh_sees_segments_that_were_uploaded_since(server: S3Server) -> None:
    first, *others = sorted((FLIGHTS / "flights-lz4-0").glob("*.log"))
    server.put(f"growing/flights-lz4-0/{first.name}", first.read_bytes())
    with open_log(server.url("growing/flights-lz4-0")) as log:
        end = log.log_end_offset
        assert not log.refresh() or log.log_end_offset == end
        server.put(f"growing/flights-lz4-0/{others[0].name}", others[0].read_bytes())
        assert log.refresh()
        assert log.log_end_offset > end
        assert next(log.read(end)).offset == end


def test_object_that_was_replaced_since_it_was_planned_is_not_read(server: S3Server) -> None:
    path = next((FLIGHTS / "flights-lz4-0").glob("*.log"))
    server.put("replaced/flights-lz4-0/" + path.name, path.read_bytes())
    scan = kstore.scan(server.url("replaced"))
    server.put("replaced/flights-lz4-0/" + path.name, path.read_bytes()[:-100])
    with pytest.raises(LogReplacedError):
        scan.to_table()


COMMANDS = [["ls"], ["cat", "--limit", "5"], ["verify"], ["dump"], ["offsets", "--time", "latest"]]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_command_prints_what_it_prints_of_local_files(server: S3Server, command: list[str]) -> None:
    printed = []
    for place in (server.url("flights/flights-lz4-0"), str(FLIGHTS / "flights-lz4-0")):
        result = CliRunner().invoke(whole_app(), [command[0], place, *command[1:], "--json"])
        assert result.exit_code == 0, result.output
        printed.append([json.loads(line) for line in result.stdout.splitlines()])
    assert printed[0] == printed[1]
    assert printed[0]


def test_command_dumps_one_object(server: S3Server) -> None:
    name = next(path.name for path in (FLIGHTS / "flights-lz4-0").glob("*.log"))
    result = CliRunner().invoke(whole_app(), ["dump", server.url(f"flights/flights-lz4-0/{name}"), "--json"])
    local = CliRunner().invoke(whole_app(), ["dump", str(FLIGHTS / "flights-lz4-0" / name), "--json"])
    assert (result.exit_code, result.stdout) == (0, local.stdout)


@pytest.mark.parametrize(
    ("command", "key"), [("ls", "nothing"), ("cat", "nothing/t-0"), ("verify", "nothing"), ("dump", "nothing")]
)
def test_command_says_in_one_line_what_is_not_there(server: S3Server, command: str, key: str) -> None:
    result = CliRunner().invoke(whole_app(), [command, server.url(key)])
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert f"s3://{BUCKET}/{key}" in result.stderr
    assert "secret" not in result.stderr


def test_command_refuses_to_recover(server: S3Server) -> None:
    result = CliRunner().invoke(whole_app(), ["recover", server.url("flights"), "--mode", "strict"])
    assert result.exit_code == 1
    assert "kstore only reads there" in result.stderr


def test_schemas_are_read_where_they_lie(server: S3Server, tmp_path: Path) -> None:
    server.upload(write_rides(tmp_path / "rides"), "rides")
    run = CliRunner().invoke(whole_app(), ["schemas", server.url("rides"), "--json"])
    assert [json.loads(line)["schema_id"] for line in run.output.splitlines()] == [3, 1, 2]
