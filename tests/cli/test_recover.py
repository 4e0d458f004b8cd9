"""Goal: `kstore recover` says what it did to each partition, does what its mode says, and leaves the root as closed.
Method: built roots with torn tails, damage and lost indexes; JSON compared whole, files compared before and after."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kstore import open_log, open_store
from tests.cli.runner import runner
from tests.making.batches import batch, flip_bit, grow, write_offset_checkpoint, write_root, zero

FIELDS = [
    "topic", "partition", "log_start_offset", "log_end_offset", "truncated_bytes", "preallocated_bytes",
    "deleted_segments", "rebuilt",
    "damage", "quarantined", "lost", "suspected_losses",
]  # fmt: skip
HOLDER = """
import sys
from kstore.log.files.lock import PartitionLock
lock = PartitionLock.acquire(sys.argv[1], None)
print(1, flush=True)
sys.stdin.read()
"""
SEGMENT_0 = "00000000000000000000.log"
CLEAN = ".kafka_cleanshutdown"


@pytest.fixture
def kstore(monkeypatch, capsysbinary):
    return runner(monkeypatch, capsysbinary)


@pytest.fixture
def root(tmp_path):
    """t-0 ends in 5 torn bytes, t-1 is whole, u-0 has a wrong byte in its first of two batches, above the point."""
    parts = {"t-0": [[batch(0, 4)], [batch(4, 6)]], "t-1": [[batch(0, 3)]], "u-0": [[batch(0, 3), batch(3, 3)]]}
    root = write_root(tmp_path / "logs", parts)
    grow(root / "t-0" / "00000000000000000004.log", b"torn!")
    flip_bit(root / "u-0" / SEGMENT_0, 70, bit=0)
    write_offset_checkpoint(root / "recovery-point-offset-checkpoint", {"t-0": 0, "t-1": 0, "u-0": 0})
    return root


def tree(root):
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != ".lock"}


def test_json_is_what_became_of_each_partition(kstore, root):
    run = kstore("recover", root, "--mode", "point_in_time", "--json")
    assert (run.status, run.err) == (1, "")
    shown = run.objects()
    assert [list(one) for one in shown] == [FIELDS] * 3
    assert [(one["topic"], one["partition"]) for one in shown] == [("t", 0), ("t", 1), ("u", 0)]
    assert [one["log_end_offset"] for one in shown] == [10, 3, 0]
    assert [one["truncated_bytes"] for one in shown] == [5, 0, 2 * len(batch(0, 3))]
    torn, whole, cut = (one["damage"] for one in shown)
    assert whole == []
    assert [(one["file"], one["position"], one["size"]) for one in torn] == [
        ("00000000000000000004.log", len(batch(4, 6)), 5)
    ]
    assert [(one["file"], one["position"]) for one in cut] == [(SEGMENT_0, 0)]
    assert (root / "u-0" / SEGMENT_0).stat().st_size == 0


def test_recovered_root_is_closed_cleanly_and_recovering_it_again_changes_nothing(kstore, root):
    kstore("recover", root, "--mode", "point_in_time")
    assert (root / CLEAN).exists()
    checkpointed = (root / "recovery-point-offset-checkpoint").read_text().splitlines()[2:]
    assert sorted(checkpointed) == ["t 0 10", "t 1 3", "u 0 0"]
    before = tree(root)
    run = kstore("recover", root, "--mode", "point_in_time", "--json")
    assert run.status == 0
    assert [one["truncated_bytes"] for one in run.objects()] == [0, 0, 0]
    assert tree(root) == before
    with open_store(root, "a") as store:
        assert store.recovery_reports == {}


def test_dry_run_says_the_same_and_changes_nothing(kstore, root):
    before = tree(root)
    dry = kstore("recover", root, "--mode", "point_in_time", "--dry-run", "--json")
    assert tree(root) == before
    assert not (root / ".lock").exists()
    done = kstore("recover", root, "--mode", "point_in_time", "--json")
    for said, happened in zip(dry.objects(), done.objects(), strict=True):
        for name in ("log_end_offset", "truncated_bytes", "deleted_segments", "damage"):
            assert said[name] == happened[name]
    assert dry.status == done.status == 1


@pytest.fixture
def flushed(root):
    """The same root, whose checkpoint says that all was flushed."""
    write_offset_checkpoint(root / "recovery-point-offset-checkpoint", {"t-0": 10, "t-1": 3, "u-0": 6})
    return root


def test_refused_partition_is_an_object_and_one_line_and_the_others_are_recovered(kstore, flushed):
    before = (flushed / "u-0" / SEGMENT_0).read_bytes()
    run = kstore("recover", flushed, "--json")
    assert run.status == 1
    assert [(one["topic"], one["partition"]) for one in run.objects()] == [("t", 0), ("t", 1), ("u", 0)]
    refused = run.objects()[2]
    assert list(refused) == ["topic", "partition", "error", "lost"]
    assert "CRC" in refused["error"].pop("message")
    assert refused["error"] == {
        "type": "CorruptLogError",
        "path": str(flushed / "u-0" / SEGMENT_0),
        "position": 0,
        "lost_start_offset": 0,
        "lost_end_offset": 3,
    }
    assert refused["lost"] == [{"first_offset": 0, "last_offset": 2}]
    (line,) = run.err.splitlines()
    assert "u-0" in line
    assert (flushed / "u-0" / SEGMENT_0).read_bytes() == before
    assert not (flushed / CLEAN).exists()


@pytest.mark.parametrize("mode", ["strict", "point_in_time", "salvage"])
def test_partition_whose_topic_id_nothing_tells_is_refused(kstore, flushed, mode):
    paths = [flushed / name / "partition.metadata" for name in ("t-0", "t-1")]
    for path in paths:
        path.write_bytes(b"")
    run = kstore("recover", flushed, "--mode", mode)
    assert run.status == 1
    for path in paths:
        (line,) = (one for one in run.err.splitlines() if str(path) in one)
        assert "neither the cluster's metadata" in line
        assert path.read_bytes() == b""
    assert not (flushed / CLEAN).exists()


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["table", "json"])
def test_what_was_recovered_is_shown_though_an_error_ends_it(kstore, root, options):
    (root / "t-1" / SEGMENT_0).unlink()
    (root / "t-1" / SEGMENT_0).mkdir()
    run = kstore("recover", root, *options)
    assert run.status == 1
    assert "expected a regular file" in run.err
    assert "00000000000000000004.log" in run.out, "the damage of the partition before"


@pytest.mark.parametrize("option", ["--copies", "--no-copies"])
def test_what_is_cut_is_kept_unless_told_not_to(kstore, root, option):
    (shown,) = kstore("recover", root / "t-0", "--mode", "point_in_time", option, "--json").objects()
    kept = shown["quarantined"]
    assert bool(kept) == (option == "--copies") or kept == []
    with open_log(root / "t-0") as log:
        assert log.log_end_offset == 10


def test_copy_has_the_bytes_that_were_cut(kstore, root):
    lost = (root / "u-0" / SEGMENT_0).read_bytes()
    (shown,) = kstore("recover", root / "u-0", "--mode", "point_in_time", "--json").objects()
    (kept,) = shown["quarantined"]
    with open(kept, "rb") as copy:
        assert copy.read() == lost


def test_part_of_a_root_is_recovered_without_marking_all_of_it_clean(kstore, root):
    run = kstore("recover", root, "--topic", "t", "--mode", "point_in_time")
    assert run.status == 1
    assert "truncated bytes" in run.out
    assert not (root / CLEAN).exists()
    checkpointed = (root / "recovery-point-offset-checkpoint").read_text().splitlines()[2:]
    assert sorted(checkpointed) == ["t 0 10", "t 1 3", "u 0 0"]


def test_marker_of_a_clean_shutdown_does_not_spare_the_look(kstore, root):
    (root / CLEAN).write_text("{}")
    (shown,) = kstore("recover", root / "t-0", "--mode", "point_in_time", "--json").objects()
    assert shown["truncated_bytes"] == 5
    assert not (root / CLEAN).exists()


def test_root_in_use_is_refused_but_for_a_dry_run(kstore, root):
    command = (sys.executable, "-c", HOLDER, str(root))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"1\n"
        before = tree(root)
        run = kstore("recover", root, "--json")
        assert (run.status, run.out) == (1, "")
        assert "holds" in run.err
        assert kstore("recover", root, "--dry-run", "--json").out
        assert tree(root) == before
        process.stdin.close()


def test_json_lines_are_plain_json(kstore, root):
    for line in kstore("recover", root, "--dry-run", "--json").out.splitlines():
        assert json.loads(line)


def test_segments_below_the_recovery_point_are_trusted_if_asked_for(kstore, root):
    write_offset_checkpoint(root / "recovery-point-offset-checkpoint", {"t-0": 7, "t-1": 0, "u-0": 0})
    flip_bit(root / "t-0" / SEGMENT_0, 70, bit=0)
    assert kstore("recover", root, "--topic", "t", "--dry-run").status != 0
    run = kstore("recover", root, "--topic", "t", "--trust-recovery-point", "--json")
    assert run.err == ""
    assert [(one["log_end_offset"], one["truncated_bytes"]) for one in run.objects()] == [(10, 5), (3, 0)]
    refused = kstore("recover", root, "--mode", "salvage", "--trust-recovery-point")
    assert refused.status == 2
    assert "salvage" in refused.err


@pytest.mark.parametrize("mode", ["strict", "point_in_time", "salvage"])
@pytest.mark.parametrize("has_marker", [False, True], ids=["crashed", "closed"])
def test_preallocated_space_after_the_last_batch_is_space_and_no_lost_offset(kstore, root, mode, has_marker):
    path = root / "t-1" / SEGMENT_0
    grow(path, bytes(1 << 20))
    write_offset_checkpoint(root / "recovery-point-offset-checkpoint", {"t-0": 10, "t-1": 3, "u-0": 6})
    if has_marker:
        (root / CLEAN).write_text("{}")
    dry = kstore("recover", root / "t-1", "--mode", mode, "--dry-run", "--json")
    run = kstore("recover", root / "t-1", "--mode", mode, "--json")
    (shown,) = run.objects()
    assert dry.objects() == [shown]
    assert (dry.status, run.status) == (0, 0)
    assert (shown["log_end_offset"], shown["truncated_bytes"], shown["preallocated_bytes"]) == (3, 0, 1 << 20)
    assert (shown["damage"], shown["lost"], shown["suspected_losses"], shown["quarantined"]) == ([], [], [], [])
    assert path.read_bytes() == batch(0, 3)
    assert kstore("recover", root / "t-1", "--mode", mode).err == ""


def test_preallocated_space_is_a_line_beside_the_tables(kstore, root):
    grow(root / "t-1" / SEGMENT_0, bytes(300))
    run = kstore("recover", root / "t-1")
    assert run.status == 0
    (line,) = run.err.splitlines()
    assert "t-1: 300 zero bytes after the last batch are no damage" in line


@pytest.mark.parametrize("mode", ["strict", "point_in_time", "salvage"])
def test_zeros_where_the_log_was_durable_are_damage_and_lost_offsets(kstore, root, mode):
    grow(root / "t-1" / SEGMENT_0, bytes(300))
    write_offset_checkpoint(root / "recovery-point-offset-checkpoint", {"t-0": 10, "t-1": 9, "u-0": 6})
    run = kstore("recover", root / "t-1", "--mode", mode, "--json")
    (shown,) = run.objects()
    assert run.status == 1
    assert shown["lost"][0]["first_offset"] == 3
    assert shown.get("preallocated_bytes", 0) == 0
    if mode != "strict":
        (damage,) = shown["damage"]
        assert (damage["position"], damage["size"]) == (len(batch(0, 3)), 300)
        assert damage["action"] == ("removed" if mode == "salvage" else "truncated")


# Where a segment of four batches is damaged: (batch, byte in it), or bytes that are added at its end.
DAMAGES = {
    "first": (0, 70),
    "middle": (1, 70),
    "last": (3, 70),
    "tail": b"\5" * 40,
    "zeros": range(1, 3),
    "next-segment": b"".join([batch(12, 2), batch(14, 2)]),
}


@pytest.mark.parametrize("mode", ["point_in_time", "salvage"])
@pytest.mark.parametrize(
    ("name", "slot"),
    [*((name, 0) for name in DAMAGES), ("first", 1), ("middle", 1), ("last", 1), ("tail", 1), ("zeros", 1)],
)
def test_sizes_are_those_of_verify_and_of_what_changed(kstore, tmp_path, name, slot, mode):
    damage = DAMAGES[name]
    segments = [[batch(12 * n + 3 * at, 3) for at in range(4)] for n in range(2)]
    root = write_root(tmp_path / "logs", {"t-0": segments})
    write_offset_checkpoint(root / "recovery-point-offset-checkpoint", {"t-0": 0})
    names = sorted((root / "t-0").glob("*.log"))
    if isinstance(damage, bytes):
        grow(names[slot], damage)
    elif isinstance(damage, range):
        start, end = (sum(map(len, segments[slot][:number])) for number in (damage.start, damage.stop))
        zero(names[slot], start + 70, size=end - start)
    else:
        number, at = damage
        flip_bit(names[slot], sum(map(len, segments[slot][:number])) + at, bit=0)
    verified = [line for line in kstore("verify", root, "--json").objects() if "damage" in line]
    expected = [(one["file"], one["position"], one["size"]) for line in verified for one in line["damage"]]
    expected = [one for one in expected if one[0].endswith(".log")]
    sizes = {name: name.stat().st_size for name in names}
    (dry,) = kstore("recover", root, "--mode", mode, "--dry-run", "--json").objects()
    (shown,) = kstore("recover", root, "--mode", mode, "--json").objects()
    assert dry == shown
    found = [(one["file"], one["position"], one["size"]) for one in shown["damage"]]
    assert found == (expected if mode == "salvage" else expected[: len(found)])
    kept = [name for name in names if name.exists()]
    assert shown["truncated_bytes"] == sum(sizes[name] - name.stat().st_size for name in kept)
    copies = [path for path in shown["quarantined"] if not path.endswith((".log", "index"))]
    assert shown["truncated_bytes"] == sum(Path(path).stat().st_size for path in copies)


@pytest.fixture
def damaged(tmp_path):
    """t-0: three segments of two batches; the second batch of the first one is damaged, all was flushed."""
    segments = [[batch(6 * n, 3), batch(6 * n + 3, 3)] for n in range(3)]
    root = write_root(tmp_path / "logs", {"t-0": segments})
    write_offset_checkpoint(root / "recovery-point-offset-checkpoint", {"t-0": 18})
    flip_bit(root / "t-0" / SEGMENT_0, len(batch(0, 3)) + 70, bit=0)
    return root


def outcomes(run):
    (shown,) = run.objects()
    return [(one["action"], one["lost_start_offset"], one["lost_end_offset"]) for one in shown["damage"]]


def test_older_damage_is_left_in_place_and_named_so(kstore, damaged):
    before = tree(damaged)[damaged / "t-0" / SEGMENT_0]
    run = kstore("recover", damaged, "--mode", "point_in_time")
    assert run.status == 1
    heading, damage = run.out.splitlines()[3:5]
    assert heading.split("  ")[0] == "partition"
    assert "lost offsets" in heading
    assert damage.split()[:8] == ["t-0", SEGMENT_0, *map(str, [len(batch(0, 3))] * 2), "3-5", "left", "in", "place"]
    (line,) = run.err.splitlines()
    assert line.startswith("kstore: t-0: damage was left in place in 1 older segment")
    assert line.endswith(f"next: kstore recover {damaged / 't-0'} --mode salvage --dry-run")
    assert (damaged / "t-0" / SEGMENT_0).read_bytes() == before
    assert outcomes(kstore("recover", damaged, "--mode", "point_in_time", "--json")) == [("left in place", 3, 6)]


@pytest.mark.parametrize("option", ["--dry-run", "--copies"])
@pytest.mark.parametrize(
    ("mode", "slot", "at", "expected"),
    [
        ("point_in_time", 2, 0, ("truncated", 12, 18)),
        ("point_in_time", 2, 1, ("truncated", 15, 18)),
        ("salvage", 0, 1, ("removed", 3, 6)),
        ("salvage", 2, 0, ("removed", 12, 15)),
        ("salvage", 2, 1, ("removed", 15, 18)),
    ],
)
def test_lost_offsets_are_those_between_whole_batches(kstore, damaged, option, mode, slot, at, expected):
    flip_bit(damaged / "t-0" / SEGMENT_0, len(batch(0, 3)) + 70, bit=0)
    log = sorted((damaged / "t-0").glob("*.log"))[slot]
    flip_bit(log, at * len(batch(0, 3)) + 70, bit=0)
    assert outcomes(kstore("recover", damaged, "--mode", mode, option, "--json")) == [expected]


def test_truncation_that_removes_segments_loses_their_offsets_too(kstore, damaged):
    write_offset_checkpoint(damaged / "recovery-point-offset-checkpoint", {"t-0": 0})
    run = kstore("recover", damaged, "--json")
    assert outcomes(run) == [("truncated", 3, 18)]
    assert run.objects()[0]["deleted_segments"] == [6, 12]


def test_batch_with_a_wrong_size_field_is_mended_and_loses_nothing(kstore, damaged):
    log = damaged / "t-0" / SEGMENT_0
    flip_bit(log, len(batch(0, 3)) + 70, bit=0)
    flip_bit(log, 11, bit=2)
    assert outcomes(kstore("recover", damaged, "--mode", "salvage", "--json")) == [("mended", 0, 0)]


@pytest.mark.parametrize("command", ["recover", "import"])
def test_refusal_names_the_lost_offsets_the_quarantine_and_the_next_command(kstore, damaged, tmp_path, command):
    (damaged / CLEAN).unlink(missing_ok=True)
    records = tmp_path / "in"
    records.write_text('{"topic":"t","timestamp":1}\n')
    run = kstore("recover", damaged) if command == "recover" else kstore("import", records, damaged / "t-0")
    assert run.status == 1
    (line,) = run.err.splitlines()
    assert line.startswith("kstore: damage at position")
    assert "offsets 3 to 5 cannot be read; the log was not changed" in line
    assert f"next: kstore recover {damaged / 't-0'} --mode salvage --dry-run" in line
    assert str(damaged / "t-0" / "kstore-quarantine") in line


@pytest.mark.parametrize("mode", ["point_in_time", "salvage"])
def test_missing_segment_is_told_in_modes_that_go_on(tmp_path, mode):
    root = write_root(tmp_path / "logs", {"t-0": [[batch(3 * n, 3)] for n in range(3)]})
    write_offset_checkpoint(root / "recovery-point-offset-checkpoint", {"t-0": 9})
    (root / "t-0" / "00000000000000000003.log").unlink()
    command = [sys.executable, "-m", "kstore", "recover", str(root), "--mode", mode, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    (line,) = done.stderr.splitlines()
    assert line.startswith("kstore: proven loss of offsets 3-5 of t-0, by ")
    assert "segment 3 is missing" in line
    assert done.returncode == 1
    shown = json.loads(done.stdout)
    assert shown["lost"] == [{"first_offset": 3, "last_offset": 5}]
    assert [(one["action"], one["lost_start_offset"], one["lost_end_offset"]) for one in shown["damage"]] == [
        ("missing", 3, 6)
    ]
    assert [one["is_proven"] for one in shown["suspected_losses"]] == [True]


def test_path_that_is_not_utf_8_is_named_as_python_and_the_shell_know_it(kstore, flushed, caplog):
    # What pytest keeps of a test must be UTF-8.
    caplog.set_level(logging.CRITICAL, logger="kstore")
    moved = flushed.with_name(os.fsdecode(b"it's \\ \xff\n"))
    flushed.rename(moved)
    refused = kstore("recover", moved / "u-0", "--json")
    assert refused.status == 1
    shown = kstore("recover", moved / "u-0", "--mode", "point_in_time", "--json").objects()
    (copy,) = shown[0]["quarantined"]
    assert Path(copy).is_relative_to(moved)
    assert Path(copy).exists()
    command = re.search(r"next: kstore recover (.*) --mode salvage --dry-run", refused.err)[1]
    named = subprocess.run(["bash", "-c", f"printf %s {command}"], capture_output=True, check=True).stdout
    assert os.fsdecode(named) == str(moved / "u-0")


def test_copies_are_listed_with_their_directory(kstore, damaged):
    run = kstore("recover", damaged, "--mode", "salvage")
    assert run.out.splitlines()[-2].split() == ["partition", "copies", "copied", "to"]
    assert run.out.splitlines()[-1].split() == ["t-0", "1", str(damaged / "t-0" / "kstore-quarantine")]


def test_dry_run_as_text_says_that_nothing_was_changed(kstore, damaged):
    run = kstore("recover", damaged, "--mode", "salvage", "--dry-run")
    assert run.err == "kstore: dry run: nothing was changed\n"
    assert "copied to" in run.out
    assert kstore("recover", damaged, "--mode", "salvage").out == run.out
