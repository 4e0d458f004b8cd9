"""Goal: `kstore verify` names each damaged range by file, position and size, and its exit status tells of any.
Method: built roots with one damage each, run through the command; JSON compared whole."""

from __future__ import annotations

import pytest

from tests.cli.runner import runner
from tests.making.batches import batch, batches, fix_crc, flip_bit, grow, set_byte, shrink, write_partition, write_root
from tests.reference.codec import HEADER_BYTES

FIELDS = [
    "topic",
    "partition",
    "log_start_offset",
    "log_end_offset",
    "segments",
    "batches",
    "records",
    "damage",
    "suspected_losses",
]
SEGMENT_0 = "00000000000000000000.log"


@pytest.fixture
def kstore(monkeypatch, capsysbinary):
    return runner(monkeypatch, capsysbinary)


@pytest.fixture
def root(tmp_path):
    """flights-0: offsets 0 to 5 in two segments; flights-1: one record."""
    parts = batches(0, 3, records_per_batch=2)
    return write_root(tmp_path / "logs", {"flights-0": [parts[:2], parts[2:]], "flights-1": [[batch(0)]]})


def test_whole_partitions_have_no_damage(kstore, root):
    run = kstore("verify", "--json", root)
    assert [list(shown.items()) for shown in run.objects()] == [
        list(zip(FIELDS, values, strict=True))
        for values in (["flights", 0, 0, 6, 2, 3, 6, [], []], ["flights", 1, 0, 1, 1, 1, 1, [], []])
    ]
    assert (run.status, run.err) == (0, "")


def test_damaged_batch_is_named_by_file_position_and_size(kstore, root):
    position = len(batch(0, 2))
    flip_bit(root / "flights-0" / SEGMENT_0, position + 70, bit=0)
    run = kstore("verify", "--json", root)
    damaged, whole = run.objects()
    assert [(entry["file"], entry["position"], entry["size"]) for entry in damaged["damage"]] == [
        (SEGMENT_0, position, len(batch(2, 2)))
    ]
    assert list(damaged["damage"][0]) == ["file", "position", "size", "reason"]
    assert damaged["damage"][0]["reason"].startswith("CRC mismatch")
    assert (damaged["batches"], damaged["records"]) == (2, 4)
    assert whole["damage"] == []
    assert (run.status, run.err) == (1, "")


def test_cut_off_last_batch_is_damage(kstore, root):
    log = root / "flights-1" / SEGMENT_0
    size = log.stat().st_size
    shrink(log, by_bytes=3)
    (shown,) = kstore("verify", "--json", root / "flights-1").objects()
    assert (SEGMENT_0, 0, size - 3) in {(entry["file"], entry["position"], entry["size"]) for entry in shown["damage"]}


def test_preallocated_space_is_no_damage(kstore, root):
    grow(root / "flights-1" / SEGMENT_0, bytes(5000))
    assert kstore("verify", root).status == 0


def test_index_that_contradicts_the_log_is_damage(kstore, tmp_path):
    directory = write_partition(tmp_path, [batches(0, 6, value_bytes=3000)])
    set_byte(directory / "00000000000000000000.index", 7, value=0x01)
    (shown,) = kstore("verify", "--json", directory).objects()
    assert {entry["file"] for entry in shown["damage"]} == {"00000000000000000000.index"}


def test_records_that_contradict_a_right_crc_are_found_unless_shallow(kstore, root):
    log = root / "flights-1" / SEGMENT_0
    set_byte(log, HEADER_BYTES, value=2)
    fix_crc(log)
    assert kstore("verify", root).status == 1
    assert kstore("verify", "--deep", root).status == 1
    assert kstore("verify", "--shallow", root).status == 0


def test_damaged_checkpoint_of_the_root_is_one_line_and_1(kstore, root):
    checkpoint = root / "recovery-point-offset-checkpoint"
    checkpoint.write_text("0\n1\nflights zero 0\n")
    run = kstore("verify", "--json", root)
    assert [shown["damage"] for shown in run.objects()] == [[], []]
    assert run.status == 1
    assert f"damage at position 0 of {checkpoint}" in run.err
    assert run.err.count("\n") == 1


def test_topic_and_partition_narrow_what_is_read(kstore, root):
    flip_bit(root / "flights-0" / SEGMENT_0, 70, bit=0)
    run = kstore("verify", "--json", root, "--partition", 1)
    assert [shown["partition"] for shown in run.objects()] == [1]
    assert run.status == 0


def test_text_is_a_table_and_a_list_of_the_damage(kstore, root):
    flip_bit(root / "flights-0" / SEGMENT_0, 70, bit=0)
    run = kstore("verify", root)
    heading, first, second, gap, damage_heading, damage = run.out.splitlines()
    assert heading.split()[:2] == ["topic", "partition"]
    assert first.split() == ["flights", "0", "0", "6", "2", "2", "4", "1"]
    assert second.split() == ["flights", "1", "0", "1", "1", "1", "1", "0"]
    assert gap == ""
    assert damage_heading.split() == ["partition", "file", "position", "size", "reason"]
    assert damage.split()[:3] == ["flights-0", SEGMENT_0, "0"]
    assert run.status == 1


def test_text_without_damage_has_no_list(kstore, root):
    assert len(kstore("verify", root).out.splitlines()) == 3
