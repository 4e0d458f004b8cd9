"""Goal: `kstore offsets` answers as a broker's ListOffsets, for times, for the named ones and where there is nothing.
Method: built roots, JSON and table compared whole; every answer recorded from live brokers."""

from __future__ import annotations

import pytest

from kstore import open_log
from kstore.cli.offsets import OffsetQuery, list_offset
from tests.cli.runner import runner
from tests.golden.oracle import first_qualifying_segment_has_no_such_record
from tests.golden.probes import MAX_TIMESTAMP, list_offsets_probes, probed
from tests.golden.sets import MAIN_SETS, OLD_FORMAT_SETS, golden_partitions
from tests.making.batches import FIRST_TIMESTAMP_MS, batch, patch_header, write_partition, write_root
from tests.making.collecting import over

GOLDEN = probed(golden_partitions(*MAIN_SETS, *OLD_FORMAT_SETS))


@pytest.fixture
def kstore(monkeypatch, capsysbinary):
    return runner(monkeypatch, capsysbinary)


@pytest.fixture
def root(tmp_path):
    """t-0 has records 7 to 9 of 0 to 9 with rising times, t-1 none."""
    parts = {"t-0": [[batch(0, 4)], [batch(4, 6)]], "t-1": [[]]}
    return write_root(tmp_path / "logs", parts, log_start_offsets={"t-0": 7})


ANSWERS = [
    pytest.param("earliest", (7, -1), (0, -1), id="earliest"),
    pytest.param("-2", (7, -1), (0, -1), id="number-of-earliest"),
    pytest.param("latest", (10, -1), (0, -1), id="latest"),
    pytest.param("-1", (10, -1), (0, -1), id="number-of-latest"),
    pytest.param("max-timestamp", (9, FIRST_TIMESTAMP_MS + 9), (-1, -1), id="max-timestamp"),
    pytest.param("-3", (9, FIRST_TIMESTAMP_MS + 9), (-1, -1), id="number-of-max-timestamp"),
    pytest.param("0", (7, FIRST_TIMESTAMP_MS + 7), (-1, -1), id="before-all"),
    pytest.param(str(FIRST_TIMESTAMP_MS + 8), (8, FIRST_TIMESTAMP_MS + 8), (-1, -1), id="of-a-record"),
    pytest.param(str(FIRST_TIMESTAMP_MS + 10), (-1, -1), (-1, -1), id="behind-all"),
    pytest.param("2200-01-01T00:00:00Z", (-1, -1), (-1, -1), id="iso"),
]


@pytest.mark.parametrize(("time", "first", "second"), ANSWERS)
def test_json_is_one_answer_for_each_partition(kstore, root, time, first, second):
    run = kstore("offsets", root, "--time", time, "--json")
    assert (run.status, run.err) == (0, "")
    assert run.objects() == [
        {"topic": "t", "partition": 0, "offset": first[0], "timestamp": first[1]},
        {"topic": "t", "partition": 1, "offset": second[0], "timestamp": second[1]},
    ]


def test_table_shows_a_dash_where_there_is_nothing(kstore, root):
    run = kstore("offsets", root, "--time", FIRST_TIMESTAMP_MS + 8)
    lines = [line.split() for line in run.out.splitlines()]
    assert lines[0] == ["topic", "partition", "offset", "timestamp"]
    assert lines[1][:3] == ["t", "0", "8"]
    assert lines[2] == ["t", "1", "-", "-"]


@pytest.mark.parametrize("time", ["-4", "tomorrow", ""])
def test_time_that_is_none_is_wrong_use(kstore, root, time):
    run = kstore("offsets", root, "--time", time)
    assert (run.status, run.out) == (2, "")
    assert "--time" in run.err


def test_time_has_to_be_said(kstore, root):
    assert kstore("offsets", root).status == 2


def test_partition_that_cannot_be_read_is_one_line_and_the_others_follow(kstore, root):
    (root / "t-0" / "00000000000000000000.log").unlink()
    (root / "t-0" / "00000000000000000000.log").mkdir()
    run = kstore("offsets", root, "--time", "latest", "--json")
    assert run.status == 1
    assert [shown["partition"] for shown in run.objects()] == [1]
    assert len(run.err.splitlines()) == 1


UNREADABLE = {
    "wrong crc": lambda data: data[:-1] + b"\x01",
    "damaged timestamp": lambda data: patch_header(data, repair_crc=False, max_timestamp_ms=0),
    "unknown codec": lambda data: patch_header(data, attributes=6),
    "records that are none": lambda data: patch_header(data[:-9] + bytes(9)),
    "size past the end": lambda data: patch_header(data, repair_crc=False, batch_length=len(data)),
    "zeros": lambda data: bytes(40) + data[40:],
}


@pytest.mark.parametrize("time", ["max-timestamp", str(FIRST_TIMESTAMP_MS + 9)])
@pytest.mark.parametrize("name", UNREADABLE)
def test_time_that_leads_to_an_unreadable_batch_is_an_error(kstore, tmp_path, name, time):
    root = write_root(tmp_path / "logs", {"t-0": [[batch(0, 4), batch(4, 6)]], "t-1": [[batch(0, 20)]]})
    path = root / "t-0" / f"{0:020d}.log"
    path.write_bytes(batch(0, 4) + UNREADABLE[name](batch(4, 6)))
    run = kstore("offsets", root, "--time", time, "--json")
    assert run.status == 1
    assert [answer["partition"] for answer in run.objects()] == [1]
    [line] = run.err.splitlines()
    assert "t-0" in line


@over("partition", GOLDEN)
def test_answers_are_those_of_the_broker(partition):
    with open_log(partition.directory) as log:
        for query_timestamp, offset, timestamp_ms in list_offsets_probes(partition):
            if first_qualifying_segment_has_no_such_record(partition, query_timestamp) and query_timestamp >= 0:
                continue
            # For the largest timestamp a broker names records that were deleted, too.
            is_deleted = query_timestamp == MAX_TIMESTAMP and offset < log.log_start_offset
            expected = (-1, -1) if is_deleted else (offset, timestamp_ms)
            assert list_offset(log, OffsetQuery(query_timestamp, only_committed=False)) == expected, query_timestamp


def test_committed_end_is_where_the_first_undecided_transaction_starts(kstore):
    (partition,) = (one for one in golden_partitions("main-4.4.0") if one.name == "txn-0")
    ends = [
        kstore("offsets", partition.directory, "--time", "latest", "--isolation", isolation, "--json").objects()[0]
        for isolation in ("read_uncommitted", "read_committed")
    ]
    assert ends[1]["offset"] < ends[0]["offset"]
    with open_log(partition.directory) as log:
        assert ends[1]["offset"] == log.transactions().last_stable_offset


@pytest.mark.parametrize(("time", "offset"), [(1, 1), (2, -1), (3, -1)], ids=["decided", "first-undecided", "later"])
def test_time_of_an_undecided_record_has_no_committed_offset(kstore, tmp_path, time, offset):
    opened = batch(2, 2, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    directory = write_partition(tmp_path, [[batch(0, 2), opened]])
    options = ("--time", FIRST_TIMESTAMP_MS + time, "--isolation", "read_committed", "--json")
    assert [shown["offset"] for shown in kstore("offsets", directory, *options).objects()] == [offset]
