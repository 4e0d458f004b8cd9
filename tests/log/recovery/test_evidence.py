"""Goal: records that are gone without damage are found by the files beside the log, and the same by every command.
Method: small roots from which something was taken, with the checkpoints that prove it or only make it likely."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import kstore
from kstore.log.damage import LostOffsets, SuspectedLoss, joined_ranges
from kstore.log.files.durable_point import DurablePoint, DurablePointFile
from kstore.log.recovery.context import RecoveryReport
from kstore.log.recovery.modes import RecoveryMode
from tests.cli.runner import runner
from tests.making.batches import batch, batches, flip_bit, patch_header, write_offset_checkpoint, write_root

POINTS = "recovery-point-offset-checkpoint"
WATERMARKS = "replication-offset-checkpoint"
CLEANED = "cleaner-offset-checkpoint"
CLEAN = ".kafka_cleanshutdown"
END = 30

Seen = tuple[int, int | None, str, bool]


def name(base_offset: int, suffix: str = ".log") -> str:
    return f"{base_offset:020d}{suffix}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """t-0: offsets 0 to 29 in three segments; the checkpoints name its end; not closed."""
    root = write_root(tmp_path / "logs", {"t-0": [batches(n * 10, 10) for n in range(3)]})
    for checkpoint in (POINTS, WATERMARKS):
        write_offset_checkpoint(root / checkpoint, {"t-0": END})
    (root / CLEAN).unlink(missing_ok=True)
    return root


def closed(root: Path) -> Path:
    (root / CLEAN).write_text("{}")
    return root


def remove(root: Path, base_offset: int, *suffixes: str) -> None:
    for suffix in suffixes:
        (root / "t-0" / name(base_offset, suffix)).unlink(missing_ok=True)


def remove_all(root: Path, base_offset: int) -> None:
    remove(root, base_offset, ".log", ".index", ".timeindex", ".snapshot")


def seen(losses: tuple[SuspectedLoss, ...]) -> list[Seen]:
    return [(loss.first_offset, loss.last_offset, Path(loss.path).name, loss.is_proven) for loss in losses]


def verified(root: Path) -> list[Seen]:
    return seen(kstore.verify(root).losses)


def report_of(root: Path, mode: RecoveryMode) -> RecoveryReport:
    (partition,) = kstore.recover(root, mode, dry_run=True)
    assert partition.report is not None
    return partition.report


def is_refused(root: Path) -> bool:
    (partition,) = kstore.recover(root, "strict", dry_run=True)
    return partition.refusal is not None


def without_log_of_middle(root: Path) -> Seen:
    (root / "t-0" / name(10, ".snapshot")).unlink(missing_ok=True)
    remove(root, 10, ".log")
    return 10, 19, name(10, ".timeindex"), True


def with_snapshot_of_middle(root: Path) -> Seen:
    remove_all(root, 10)
    (root / "t-0" / name(10, ".snapshot")).write_bytes(b"")
    return 10, 19, name(10, ".snapshot"), True


def without_last_of_closed(root: Path) -> Seen:
    remove_all(closed(root), 20)
    remove(root, END, ".snapshot")
    return 20, 29, POINTS, True


def without_log_of_last(root: Path) -> Seen:
    remove(root, 20, ".log", ".snapshot")
    remove(root, END, ".snapshot")
    return 20, 29, name(20, ".timeindex"), True


def without_any_file(root: Path) -> Seen:
    shutil.rmtree(root / "t-0")
    (root / "t-0").mkdir()
    return 0, 29, POINTS, True


def with_last_batch_torn(root: Path) -> Seen:
    log = closed(root) / "t-0" / name(20)
    log.write_bytes(log.read_bytes()[:-1])
    return 29, 29, name(20, ".timeindex"), True


def with_last_segment_torn_in_its_first_batch(root: Path) -> Seen:
    log = closed(root) / "t-0" / name(20)
    log.write_bytes(log.read_bytes()[:70])
    return 20, 29, name(20, ".timeindex"), True


def without_middle(root: Path) -> Seen:
    remove_all(root, 10)
    return 10, 19, name(0), False


def killed_without_last(root: Path) -> Seen:
    remove_all(root, 20)
    remove(root, END, ".snapshot")
    return 20, 29, POINTS, False


def epoch_above_the_end(root: Path) -> Seen:
    (root / "t-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n7 40\n")
    return END, 39, "leader-epoch-checkpoint", False


def one_checkpoint_above_the_end(root: Path) -> Seen:
    write_offset_checkpoint(closed(root) / POINTS, {"t-0": 99})
    return END, 98, POINTS, False


TAKEN = [
    without_log_of_middle,
    with_snapshot_of_middle,
    without_last_of_closed,
    without_log_of_last,
    without_any_file,
    with_last_batch_torn,
    with_last_segment_torn_in_its_first_batch,
    without_middle,
    killed_without_last,
    epoch_above_the_end,
    one_checkpoint_above_the_end,
]


@pytest.mark.parametrize("take", TAKEN)
def test_loss_is_told_alike_by_verify_recover_ls_and_the_refusal_of_strict(
    root: Path,
    take: Callable[[Path], Seen],
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    expected = take(root)
    assert verified(root) == [expected]
    first, last, _, is_proven = expected
    run = runner(monkeypatch, capsysbinary)
    for command, status in (("verify", int(is_proven)), ("ls", 0)):
        shown = run(command, root, "--json")
        (told,) = (one for partition in shown.objects() for one in partition["suspected_losses"])
        assert (told["first_offset"], told["last_offset"], told["file"], told["is_proven"]) == expected
        if take is not epoch_above_the_end:
            assert shown.status == status
    assert is_refused(root) == is_proven
    modes: tuple[RecoveryMode, ...] = ("point_in_time", "salvage")
    for mode in modes:
        report = report_of(root, mode)
        assert seen(report.losses) == [expected]
        assert report.lost == ((LostOffsets(first, None if last is None else last + 1),) if is_proven else ())
        assert report.is_unharmed != is_proven


def test_last_batch_with_a_wrong_crc_is_lost_up_to_where_the_log_is_proven_to_end(root: Path) -> None:
    log = closed(root) / "t-0" / name(20)
    flip_bit(log, log.stat().st_size - 1, bit=0)
    assert verified(root) == [(29, 29, name(20, ".timeindex"), True)]
    for mode in ("point_in_time", "salvage"):
        assert report_of(root, mode).lost == (LostOffsets(29, END),)


def test_damage_before_the_proven_end_adds_no_loss(root: Path) -> None:
    flip_bit(closed(root) / "t-0" / name(20), 64, bit=0)
    assert verified(root) == []
    assert report_of(root, "salvage").lost == (LostOffsets(20, 21),)


@pytest.mark.parametrize("is_closed", [True, False])
def test_whole_root_has_no_loss(root: Path, is_closed: bool) -> None:
    if is_closed:
        closed(root)
    assert kstore.verify(root).is_unharmed
    assert verified(root) == []
    assert report_of(root, "strict").losses == ()


def test_durable_point_that_a_broker_left_behind_proves_nothing_after_a_clean_shutdown(root: Path) -> None:
    with DurablePointFile(str(root / "t-0")) as file:
        file.advance(DurablePoint(99, 20, 1))
    assert verified(root) == [(END, 98, "kstore-durable-point", True)]
    closed(root)
    assert verified(root) == []
    assert not is_refused(root)


# The batches of the segments before and after a gap; a cleaner leaves the offsets of a batch and takes records from it.
COMPACTED = {
    "between batches": ([batch(0), batch(4)], [batch(20), batch(21)]),
    "inside of a batch before": ([batch(0), patch_header(batch(1), last_offset_delta=3)], batches(20, 2)),
    "inside of a batch after": (batches(0, 5), [patch_header(batch(20), last_offset_delta=1)]),
}


@pytest.mark.parametrize("segments", COMPACTED.values(), ids=COMPACTED)
def test_gap_between_segments_of_a_compacted_log_is_no_loss(
    tmp_path: Path, segments: tuple[list[bytes], list[bytes]]
) -> None:
    """Offsets are missing inside of the segments too."""
    root = write_root(tmp_path / "logs", {"t-0": [*segments]})
    write_offset_checkpoint(root / POINTS, {"t-0": 22})
    assert verified(root) == []


def test_gap_below_the_checkpoint_of_a_cleaner_is_no_loss(root: Path) -> None:
    with_snapshot_of_middle(root)
    write_offset_checkpoint(root / CLEANED, {"t-0": 20})
    assert verified(root) == []
    assert not is_refused(root)


def test_gap_below_the_log_start_is_no_loss(root: Path) -> None:
    with_snapshot_of_middle(root)
    write_offset_checkpoint(root / "log-start-offset-checkpoint", {"t-0": 20})
    assert verified(root) == []


def test_offsets_below_the_log_start_are_not_lost_at_the_end(tmp_path: Path) -> None:
    root = closed(write_root(tmp_path / "logs", {"t-0": [[]]}))
    for checkpoint in (POINTS, WATERMARKS):
        write_offset_checkpoint(root / checkpoint, {"t-0": 20})
    write_offset_checkpoint(root / "log-start-offset-checkpoint", {"t-0": 20})
    assert verified(root) == []


def test_interrupted_removal_of_all_segments_is_no_loss(root: Path) -> None:
    without_any_file(root)
    (root / "t-0" / f"{name(0)}.deleted").write_bytes(b"")
    assert verified(root) == []
    assert not is_refused(root)


def test_partition_that_only_checkpoints_know_is_likely_lost(root: Path) -> None:
    write_offset_checkpoint(root / POINTS, {"t-0": END, "u-3": 7, "v-0": 0})
    assert [(str(loss.topic_partition), *seen((loss,))[0]) for loss in kstore.verify(root).losses] == [
        ("u-3", 0, 6, POINTS, False)
    ]
    assert kstore.verify(root, topics="t").losses == ()
    assert kstore.verify(root / "t-0").losses == ()


def test_partition_that_is_a_link_to_nothing_is_lost_for_verify_and_ls(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    (root / "u-0").symlink_to(root / "nowhere")
    (loss,) = kstore.verify(root).losses
    assert (loss.path, loss.is_proven, loss.last_offset) == (str(root / "u-0"), True, None)
    run = runner(monkeypatch, capsysbinary)
    listed = run("ls", root, "--json")
    assert [(one["topic"], one["log_end_offset"]) for one in listed.objects()] == [("t", END), ("u", None)]
    assert "u-0: the directory of the partition is a link to nothing" in run("ls", root).err
    assert run("verify", root).status == 1


def test_losses_are_a_table_of_verify_and_likely_ones_one_line(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    without_middle(root)
    run = runner(monkeypatch, capsysbinary)("verify", root)
    assert run.status == 0
    assert "suspected loss" in run.out
    (line,) = run.err.splitlines()
    assert line.startswith("kstore: likely loss of offsets 10-19 of t-0, by ")


def test_log_that_lost_its_end_after_a_clean_shutdown_is_not_opened_as_if_nothing_was(root: Path) -> None:
    without_last_of_closed(root)
    with pytest.raises(kstore.CorruptLogError, match="the recovery point was 30, but the log ends at 20 and the high"):
        kstore.open_log(root / "t-0", "a")


def test_verify_says_yes_after_a_recovery_of_what_was_lost(root: Path) -> None:
    with_snapshot_of_middle(root)
    kstore.recover(root, "point_in_time")
    report = kstore.verify(root)
    assert report.is_unharmed
    assert [loss.is_proven for loss in report.losses] == [False]
    kstore.open_log(root / "t-0", "a").close()


def test_high_watermark_above_a_recovered_end_refuses_no_log_that_was_closed(root: Path) -> None:
    killed_without_last(root)
    (partition,) = kstore.recover(root, "strict")
    assert partition.refusal is None
    with kstore.open_log(root / "t-0", "a") as log:
        assert log.log_end_offset == 20


@pytest.mark.parametrize(
    ("ranges", "joined"),
    [
        ([(5, 9), (0, 3)], [(0, 3), (5, 9)]),
        ([(0, 3), (3, 5)], [(0, 5)]),
        ([(0, 9), (2, 4)], [(0, 9)]),
        ([(2, None), (0, 1), (5, 9)], [(0, 1), (2, None)]),
        ([(0, 5), (3, None)], [(0, None)]),
        ([(4, 4), (7, 6)], []),
    ],
)
def test_lost_ranges_are_joined_in_rising_order(
    ranges: list[tuple[int, int | None]], joined: list[tuple[int, int | None]]
) -> None:
    assert list(joined_ranges(LostOffsets(*one) for one in ranges)) == joined
