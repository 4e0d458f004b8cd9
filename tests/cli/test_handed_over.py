"""Goal: `cat`, `verify` and `dump` read segments that were handed over, under any name and alone.
Method: files and directories copied from built partitions, and directories that a broker renamed."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.cli.runner import runner
from tests.making.batches import batch, batches, flip_bit, record, write_partition
from tests.making.messages import packed_entry, write_wrapper
from tests.reference.codec import write_batch, write_end_transaction_marker

UNIQUE = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def kstore(monkeypatch, capsysbinary):
    return runner(monkeypatch, capsysbinary)


@pytest.fixture
def partition(tmp_path):
    """Offsets 6 to 17 in two segments, of base offsets 6 and 12."""
    parts = batches(6, 4, records_per_batch=3)
    return write_partition(tmp_path / "logs", [parts[:2], parts[2:]], topic="orders", partition=3)


@pytest.fixture
def segment(partition):
    return partition / f"{12:020}.log"


@pytest.fixture(autouse=True)
def nothing_changes(tmp_path):
    """Nothing is written or renamed by the command: names and bytes stay those that the test made."""
    yield
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".lock", ".swap", ".deleted", ".cleaned")]


def offsets(run):
    return [shown["offset"] for shown in run.objects()]


def places(run):
    return {(shown["topic"], shown["partition"]) for shown in run.objects()}


@pytest.mark.parametrize("name", ["segment-copy.bin", "x.log", "12.log.bak", "žluť .log"])
def test_file_of_any_name_begins_at_its_first_batch(kstore, tmp_path, segment, name):
    copy = shutil.copy(segment, tmp_path / name)
    run = kstore("cat", "--json", copy)
    assert (offsets(run), run.status, run.err) == ([*range(12, 18)], 0, "")
    assert places(run) == {(name, -1)}
    (verdict,) = kstore("verify", "--json", copy).objects()
    assert [verdict[field] for field in ("log_start_offset", "log_end_offset", "records")] == [12, 18, 6]
    assert [shown["baseOffset"] for shown in kstore("dump", "--json", copy).objects()] == [12, 15]


def test_nothing_is_appended_to_what_was_handed_over_so_that_follow_refuses_it(kstore, tmp_path, segment, partition):
    shutil.copytree(partition, tmp_path / "backup of orders")
    for place in (segment, tmp_path / "backup of orders"):
        run = kstore("cat", "--follow", place)
        assert run.status == 2
        assert "--follow goes on with a partition directory or a log.dirs root: " in run.err


def test_text_has_the_name_of_a_file_in_place_of_its_partition(kstore, tmp_path, segment):
    copy = shutil.copy(segment, tmp_path / "copy.bin")
    assert kstore("cat", copy, "--limit", 1).out.startswith("copy.bin\t12\t")


def test_file_in_its_partition_has_the_name_of_that_and_only_its_own_records(kstore, segment):
    run = kstore("cat", "--json", segment)
    assert (offsets(run), places(run)) == ([*range(12, 18)], {("orders", 3)})


def test_files_of_one_partition_are_one_log_in_order(kstore, partition, segment):
    run = kstore("cat", "--json", segment, partition / f"{6:020}.log", "--from", 8, "--limit", 6)
    assert offsets(run) == [*range(8, 14)]


def test_files_of_several_places_follow_each_other(kstore, tmp_path, partition, segment):
    first = shutil.copy(segment, tmp_path / "b.bin")
    second = shutil.copy(partition / f"{6:020}.log", tmp_path / "a.bin")
    run = kstore("cat", "--json", first, second)
    assert offsets(run) == [*range(12, 18), *range(6, 12)]
    shown = kstore("dump", "--json", first, second).objects()
    assert [one["file"] for one in shown] == [str(first)] * 2 + [str(second)] * 2


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("backup-of-orders", ("backup-of-orders", -1)),
        (f"orders-3.{UNIQUE}-delete", ("orders", 3)),
        (f"orders-3.{UNIQUE}-stray", ("orders", 3)),
        (f"orders-3.{UNIQUE}-future", ("orders", 3)),
    ],
)
def test_directory_of_any_name_is_a_partition(kstore, tmp_path, partition, name, place):
    directory = tmp_path / "logs" / name
    shutil.copytree(partition, directory)
    # What the root knows of the partition that is there now says nothing of this one.
    (tmp_path / "logs" / "log-start-offset-checkpoint").write_text("0\n1\norders 3 15\n")
    run = kstore("cat", "--json", directory)
    assert (offsets(run), places(run), run.err) == ([*range(6, 18)], {place}, "")
    (verdict,) = kstore("verify", "--json", directory).objects()
    assert (verdict["topic"], verdict["partition"]) == place
    assert (verdict["records"], verdict["damage"], verdict["suspected_losses"]) == (12, [], [])
    assert offsets(kstore("cat", "--json", partition)) == [15, 16, 17]


def test_aborted_transaction_without_its_index_is_no_damage_of_a_file_alone(kstore, tmp_path):
    marker = write_end_transaction_marker(1, timestamp_ms=1, producer_id=9, producer_epoch=0, commit=False)
    data = [batch(0, producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True), marker, batch(2)]
    directory = write_partition(tmp_path, [data])
    (segment,) = directory.glob("*.log")
    assert kstore("verify", directory).status == 1
    assert kstore("verify", segment).status == 0
    assert offsets(kstore("cat", "--json", segment, "--isolation", "read_committed")) == [2]


def test_damage_is_reported_at_its_place_in_the_file_that_was_named(kstore, tmp_path, partition, segment):
    copy = shutil.copy(segment, tmp_path / "copy.bin")
    position = len(batches(6, 4, records_per_batch=3)[2])
    flip_bit(copy, position + 80, bit=1)
    run = kstore("cat", "--json", copy)
    assert (offsets(run), run.status) == ([12, 13, 14], 1)
    assert f"CRC mismatch in batch at position {position} of {copy} (base offset 15):" in run.err
    run = kstore("verify", copy)
    assert run.status == 1
    assert "copy.bin   copy.bin" in run.out
    assert "next:" not in run.err
    (verdict,) = kstore("verify", "--json", copy).objects()
    assert [(one["file"], one["position"]) for one in verdict["damage"]] == [("copy.bin", position)]


def test_old_wrapper_alone_begins_at_its_first_message(kstore, tmp_path):
    messages = [packed_entry(b"v", None, offset=n, magic=1) for n in range(3)]
    copy = tmp_path / "old"
    copy.write_bytes(write_wrapper(messages, offset=42, magic=1, codec=1))
    assert offsets(kstore("cat", "--json", copy)) == [40, 41, 42]


@pytest.mark.parametrize("name", ["cat", "verify"])
def test_what_is_no_batch_is_refused(kstore, tmp_path, partition, name):
    (tmp_path / "notes.txt").write_text("nothing that Kafka wrote, and long enough")
    run = kstore(name, tmp_path / "notes.txt")
    assert (run.status, run.out) == (2, "")
    assert "notes.txt does not begin with a batch" in run.err
    (tmp_path / f"{0:020}.index").write_bytes(bytes(8))
    run = kstore(name, tmp_path / f"{0:020}.index")
    assert run.status == 2
    assert "has no records; to show its entries: kstore dump" in run.err
    run = kstore("dump", tmp_path / "notes.txt")
    assert run.status == 2
    assert "does not begin with a batch" in run.err


def test_topic_that_leaves_all_files_out_is_wrong_use(kstore, segment):
    assert kstore("cat", segment, "--topic", "orders", "--limit", 1).status == 0
    run = kstore("cat", segment, "--topic", "other")
    assert (run.status, run.out) == (2, "")
    assert "leave out all files and directories" in run.err


def test_partition_beside_a_file_is_read_as_usual(kstore, tmp_path, partition, segment):
    copy = shutil.copy(segment, tmp_path / "copy.bin")
    run = kstore("cat", "--format", "%t %o,", copy, partition, "--to", 13)
    assert run.out == "copy.bin 12," + "".join(f"orders {offset}," for offset in range(6, 13))


@pytest.mark.parametrize(
    ("options", "bases"),
    [
        (["--from", 9], [9, 12, 15]),
        (["--from", 11, "--to", 13], [9, 12]),
        (["--to", 9], [6]),
        (["--limit", 1], [6, 12]),
        (["--limit", 0], []),
        (["--max-bytes", 1 << 20], [6, 9, 12, 15]),
        (["--max-bytes", 150], [6, 12]),
    ],
)
def test_dump_shows_the_batches_of_a_range(kstore, partition, options, bases):
    assert len(batches(6, 1, records_per_batch=3)[0]) <= 150 < 2 * len(batches(6, 1, records_per_batch=3)[0])
    run = kstore("dump", "--json", partition, *options)
    assert [shown["baseOffset"] for shown in run.objects() if shown["file"].endswith(".log")] == bases
    assert run.status == 0


def test_dump_of_a_range_shows_a_wrapper_by_its_messages(kstore, tmp_path):
    messages = [packed_entry(b"v", None, offset=n, magic=1) for n in range(3)]
    path = write_partition(tmp_path, [[write_wrapper(messages, offset=n, magic=1, codec=1) for n in (2, 5)]])
    for options, lasts in ((["--to", 1], [2]), (["--from", 3], [5]), (["--from", 2, "--to", 4], [2, 5])):
        shown = kstore("dump", "--json", path, *options).objects()
        assert [one["lastOffset"] for one in shown if one["file"].endswith(".log")] == lasts


@pytest.fixture
def with_indexes(tmp_path):
    """A segment with entries of each index, and a snapshot of the producers."""
    directory = write_partition(tmp_path, [[batch(0), batch(1), batch(2)]])
    name = directory / f"{0:020}"
    name.with_suffix(".index").write_bytes(b"".join(n.to_bytes(4, "big") + bytes(4) for n in (1, 2)))
    entries = (n.to_bytes(8, "big") + n.to_bytes(4, "big") for n in (1, 2))
    name.with_suffix(".timeindex").write_bytes(b"".join(entries))
    fields = [(9, 0, 1, 0), (9, 2, 2, 0)]
    data = b"".join(b"\0\0" + b"".join(n.to_bytes(8, "big") for n in entry) for entry in fields)
    name.with_suffix(".txnindex").write_bytes(data)
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    return directory


def test_dump_of_a_range_selects_entries_of_indexes(kstore, with_indexes):
    shown = [
        (one["file"][20:], one.get("slot")) for one in kstore("dump", "--json", with_indexes, "--from", 2).objects()
    ]
    assert shown == [(".index", 1), (".log", None), (".timeindex", 1), (".txnindex", 1)]
    assert len(kstore("dump", "--json", with_indexes, "--from", 3).objects()) == 0


def test_dump_of_indexes_only(kstore, with_indexes):
    files = {one["file"][20:] for one in kstore("dump", "--json", with_indexes, "--index-only").objects()}
    assert files == {".index", ".timeindex", ".txnindex"}
    run = kstore("dump", with_indexes / f"{0:020}.log", "--index-only")
    assert (run.status, run.out) == (2, "")
    assert "which is no index" in run.err
    assert kstore("dump", with_indexes, "--from", 2, "--to", 1).status == 2


def test_records_of_a_handed_directory_have_its_name_escaped(kstore, tmp_path, partition):
    directory = tmp_path / 'a "b",\tc'
    shutil.copytree(partition, directory)
    (first, *_) = kstore("cat", "--json", directory).objects()
    assert first["topic"] == 'a "b",\tc'
    assert kstore("cat", directory, "--limit", 1).out.startswith('a "b",\\tc\t6\t')
    assert (
        kstore("cat", directory, "--limit", 1, "--format", "csv").out.splitlines()[1].startswith('"a ""b"",\tc",-1,6,')
    )


def test_json_of_one_by_one_names_the_place_too(kstore, tmp_path):
    directory = write_partition(tmp_path, [[write_batch([record(0, b"v", b"k")])]]).rename(tmp_path / "copy")
    line = kstore("cat", "--json", directory, "--key", "string").out
    assert json.loads(line)["topic"] == "copy"
