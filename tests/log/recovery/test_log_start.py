"""Goal: a log start offset above the log end removes no record without a word, and none at all unless asked for.
Method: small roots whose checkpoint says so, with others that agree or not; reports and files before and after."""

from __future__ import annotations

import itertools
import random
import shutil
from pathlib import Path

import pytest

import kstore
from kstore.errors import CorruptLogError
from kstore.log.files.checkpoints import read_offset_checkpoint
from kstore.log.recovery.context import DamageOutcome, RecoveryReport
from kstore.log.recovery.modes import RecoveryMode
from kstore.store.opening import open_log
from kstore.types import TopicPartition
from tests.crash.crash_history import abandon
from tests.crash.crash_states import as_durable, new_disk
from tests.fakes.disk import PowerCut, SimulatedDisk
from tests.making.batches import batch, batches, write_offset_checkpoint, write_root
from tests.making.compacting import PATH

T0 = TopicPartition("t", 0)
END = 20
BEYOND = 500
REASON = f"log start offset {BEYOND} of t-0 is above the log end offset {END}"
START_FILE = "log-start-offset-checkpoint"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """t-0 has the offsets 0 to 19, which its recovery point proves, in two segments, and a log start of 500."""
    root = write_root(tmp_path / "logs", {"t-0": [batches(0, 10), batches(10, 10)]})
    write_offset_checkpoint(root / "recovery-point-offset-checkpoint", {"t-0": END})
    write_offset_checkpoint(root / START_FILE, {"t-0": BEYOND})
    return root


def logs_of(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "t-0").glob("*.log")}


def start_of(root: Path) -> int | None:
    return (read_offset_checkpoint(str(root / START_FILE)) or {}).get(T0)


def recovered(root: Path, mode: RecoveryMode, *, dry_run: bool = False) -> RecoveryReport:
    (partition,) = kstore.recover(root, mode, dry_run=dry_run)
    assert partition.report is not None
    return partition.report


def test_strict_refuses_a_log_start_above_the_log_end_and_changes_nothing(root: Path) -> None:
    before = logs_of(root)
    (partition,) = kstore.recover(root, "strict")
    assert partition.refusal is not None
    assert (partition.refusal.reason, partition.refusal.path) == (REASON, str(root / START_FILE))
    with pytest.raises(CorruptLogError, match=REASON):
        kstore.open_log(root / "t-0", "a")
    assert (logs_of(root), start_of(root)) == (before, BEYOND)


def test_strict_refuses_it_after_a_clean_shutdown_too(root: Path) -> None:
    (root / ".kafka_cleanshutdown").write_text("{}")
    with pytest.raises(CorruptLogError, match=REASON):
        kstore.open_log(root / "t-0", "a")


def test_salvage_keeps_the_records_and_lowers_the_log_start(root: Path) -> None:
    before = logs_of(root)
    foretold = recovered(root, "salvage", dry_run=True)
    assert start_of(root) == BEYOND
    report = recovered(root, "salvage")
    assert logs_of(root) == before
    assert (report.log_start_offset, report.log_end_offset, start_of(root)) == (0, END, 0)
    assert [(damage.path, damage.reason) for damage in report.damage] == [(str(root / START_FILE), REASON)]
    assert report.outcomes == (DamageOutcome("mended", 0, 0),)
    assert (foretold.damage, foretold.log_start_offset) == (report.damage, 0)
    with kstore.open_log(root / "t-0", "a") as log:
        assert [record.offset for record in log.read()] == list(range(END))


def test_point_in_time_removes_what_a_broker_removes_and_says_which_offsets_go(root: Path) -> None:
    report = recovered(root, "point_in_time")
    assert (report.log_start_offset, report.log_end_offset) == (BEYOND, BEYOND)
    assert report.deleted_segments == (0, 10)
    assert [damage.reason for damage in report.damage] == [REASON]
    assert report.outcomes == (DamageOutcome("removed", 0, END),)


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "replication-offset-checkpoint"])
def test_salvage_brings_back_no_deleted_record_where_another_checkpoint_reached_the_log_start(
    root: Path, name: str
) -> None:
    write_offset_checkpoint(root / name, {"t-0": BEYOND})
    report = recovered(root, "salvage")
    assert (report.log_start_offset, report.log_end_offset) == (BEYOND, BEYOND)
    assert report.outcomes == (DamageOutcome("removed", 0, END),)


def test_log_without_a_record_begins_at_the_log_start_in_every_mode(tmp_path: Path) -> None:
    root = write_root(tmp_path / "logs", {"t-0": [[]]})
    write_offset_checkpoint(root / START_FILE, {"t-0": BEYOND})
    with kstore.open_log(root / "t-0", "a") as log:
        assert (log.log_start_offset, log.log_end_offset) == (BEYOND, BEYOND)


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("rolls", [False, True], ids=["one-segment", "empty-segment"])
def test_deletion_up_to_an_end_inside_a_gap_of_offsets_leaves_a_log_that_opens_there(
    tmp_path: Path, is_closed: bool, rolls: bool
) -> None:
    root, left = tmp_path / "logs", tmp_path / "left"
    with kstore.open_store(root, "a") as store:
        store.create_topic("t")
        log = store.log("t", 0)
        log.append_as_follower(kstore.MemoryRecords(batch(0, 3)))
        if rolls:
            log.roll()
        log.append_as_follower(kstore.MemoryRecords(batch(10, 2)))
        log.truncate_to(8)
        log.update_high_watermark(8)
        assert (log.delete_records(8), log.log_end_offset) == (8, 8)
        shutil.copytree(root, left, ignore=shutil.ignore_patterns(".lock"))
    with kstore.open_store(root if is_closed else left, "a") as store:
        log = store.log("t", 0)
        assert (log.log_start_offset, log.log_end_offset) == (8, 8)
        assert log.append([kstore.Record(value=b"x")]).base_offset == 8


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
def test_truncation_inside_a_batch_below_whose_rest_all_was_deleted_leaves_a_log_that_opens_there(
    tmp_path: Path, is_closed: bool
) -> None:
    root, left = tmp_path / "logs", tmp_path / "left"
    with kstore.open_store(root, "a") as store:
        store.create_topic("t")
        log = store.log("t", 0)
        for base_offset in (0, 5):
            log.append_as_follower(kstore.MemoryRecords(batch(base_offset, 5)))
        assert log.delete_records(6) == 6
        assert log.truncate_to(8)
        assert (log.log_start_offset, log.log_end_offset, list(log.read())) == (6, 8, [])
        shutil.copytree(root, left, ignore=shutil.ignore_patterns(".lock"))
    with kstore.open_store(root if is_closed else left, "a") as store:
        log = store.log("t", 0)
        assert (log.log_start_offset, log.log_end_offset) == (6, 8)
        assert log.append([kstore.Record(value=b"x")]).base_offset == 8


@pytest.mark.parametrize(("deleted_to", "offset"), [(6, 6), (6, 8), (12, 10), (12, 5)])
def test_no_power_cut_of_a_truncation_that_leaves_only_deleted_records_leaves_a_log_that_strict_recovery_refuses(
    deleted_to: int, offset: int
) -> None:
    whole = new_disk()
    with open_log(PATH, "a", env=whole) as log:
        for base_offset in (0, 5, 10):
            log.append_as_follower(kstore.MemoryRecords(batch(base_offset, 5)), ack="flushed")
        log.delete_records(deleted_to)
    rng, states = random.Random(1), 0
    for cut_after in itertools.count(1):
        disk = as_durable(whole.names, whole.directories, SimulatedDisk)
        log = open_log(PATH, "a", env=disk)
        disk.cut_at = disk.calls + cut_after
        try:
            log.truncate_to(offset)
        except PowerCut:
            is_whole = False
        else:
            is_whole = True
            assert (log.log_start_offset, log.log_end_offset) == (min(deleted_to, offset), offset)
        abandon(log)
        for left in disk.states_after_cut(rng, most_units=4):
            with open_log(PATH, "a", env=left) as again:
                found = [record.offset for record in again.read()]
                assert found in ([], list(range(deleted_to, 15)))
                assert not (is_whole and found)
                assert not again.append([kstore.Record(value=b"x")]).base_offset < min(deleted_to, offset)
            states += 1
        if is_whole:
            break
    assert states > 10


def test_deletion_of_records_flushes_them_first_so_that_no_power_cut_leaves_the_log_end_below_the_log_start(
    tmp_path: Path,
) -> None:
    with kstore.open_store(tmp_path / "logs", "a") as store:
        store.create_topic("t")
        log = store.log("t", 0)
        log.append([kstore.Record(value=b"x") for _ in range(END)])
        assert log.flushed_offset == 0
        assert log.delete_records(5) == 5
        assert log.flushed_offset == END
