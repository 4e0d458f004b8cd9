"""Goal: whatever a crash leaves of any operation of a writer, the log opens with every flushed record, none is
invented, doubled, reordered or back, and opening it again changes nothing. Method: a few cases of each lane of
`python -m tests.crash`, and the same with a disk, a file system or a log that is not honest, which must be noticed."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from kstore.config import LogConfig
from kstore.errors import KStoreError
from kstore.store.opening import open_log
from tests.crash.__main__ import SKIPPED, Result, run_case
from tests.crash.commit_states import states_of_commits
from tests.crash.crash_history import CrashHistory, abandon
from tests.crash.crash_states import check_state, new_disk, states_of_history, states_of_pair
from tests.crash.lanes import LANES
from tests.crash.nursery import ROOT
from tests.fakes.disk import DiskThatForgetsFiles, DiskThatForgetsNames, SimulatedDisk
from tests.fakes.power import FILE_SYSTEMS, LoopImage, MissingMeansError
from tests.making.compacting import NOW_MS, PATH, encoded
from tests.reference.compaction import ModelBatch, ModelRecord


@pytest.mark.parametrize("number", range(30))
def test_crashes_of_random_histories_lose_and_bring_back_nothing(number: int) -> None:
    assert states_of_history(f"suite-{number}") > 0


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("append", "append flushed"),
        ("roll", "truncate"),
        ("delete records", "restart"),
        ("retention", "reopen"),
        ("truncate", "append"),
        ("append", "compaction"),
    ],
)
def test_every_crash_of_two_operations_leaves_a_log_that_opens(first: str, second: str) -> None:
    assert states_of_pair("suite", first, second, most_units=3) > 4


@pytest.mark.parametrize("number", range(3))
def test_crashes_of_staged_commits_leave_each_version_once(number: int) -> None:
    assert states_of_commits(f"suite-{number}") > 0


@pytest.mark.parametrize("disk_class", [DiskThatForgetsFiles, DiskThatForgetsNames])
def test_a_commit_that_does_not_sync_is_noticed(disk_class: type[SimulatedDisk]) -> None:
    found = 0
    for seed in range(10):
        try:
            states_of_commits(seed, disk_class=disk_class)
        except (AssertionError, KStoreError):
            found += 1
            break
    assert found


def test_marker_that_a_compaction_decides_by_is_durable_before_it() -> None:
    disk, config = new_disk(), LogConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0)
    record = ModelRecord(0, NOW_MS, b"key", b"value")
    begun = ModelBatch(0, 0, (record,), producer_id=3, producer_epoch=0, base_sequence=0, is_transactional=True)
    log = open_log(PATH, "a", config, env=disk)
    log.append_as_follower(encoded(begun))
    log.roll()
    marker = ModelBatch(1, 1, (), producer_id=3, producer_epoch=0, is_transactional=True, ends="abort")
    log.append_as_follower(encoded(marker))
    assert log.compact(now_ms=NOW_MS, is_forced=True).records_kept == 0
    abandon(log)
    for left in disk.states_after_cut(random.Random(1), most_units=5):
        with open_log(PATH, "a", config, env=left) as again:
            assert (again.log_end_offset, again.last_stable_offset) == (2, 2)


@pytest.mark.parametrize("disk_class", [DiskThatForgetsFiles, DiskThatForgetsNames])
def test_a_writer_that_does_not_sync_is_noticed(disk_class: type[SimulatedDisk]) -> None:
    found = 0
    for seed in range(20):
        try:
            states_of_history(seed, disk_class=disk_class)
        except (AssertionError, KStoreError):
            found += 1
    assert found


def test_selections_are_all_that_there_are_up_to_the_bound() -> None:
    disk = new_disk()
    with disk.open_write("/root/a") as file:
        file.pwrite(b"1" * 600, position=0)
    with disk.open_write("/root/b") as file:
        file.pwrite(b"2", position=0)
    # Two names; of a two pages and the size, of b a page and the size: without a size nothing of its pages counts.
    left = {tuple(one.files().items()) for one in disk.states_after_cut(random.Random(1), most_units=7)}
    assert len(left) == (1 + 1 + 4) * (1 + 1 + 2)
    some = {tuple(one.files().items()) for one in disk.states_after_cut(random.Random(1), most_units=6)}
    assert some < left


def test_a_case_that_fails_is_reported_with_the_command_that_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(seed: int, number: int) -> int:
        raise AssertionError(f"record {seed * number} is lost")

    monkeypatch.setitem(LANES, "pairs", LANES["pairs"]._replace(run=fail))
    result = run_case("pairs", 3, 4)
    assert (result.number, result.states) == (4, 0)
    assert "record 12 is lost" in (result.problem or "")


def test_one_case_is_run_again_by_its_name() -> None:
    command = [sys.executable, "-m", "tests.crash", "--seed", "pairs-1-1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("pairs-1-1: ")
    assert done.stdout.endswith(" states, none failed\n")


def test_without_the_means_power_cuts_are_skipped_and_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(MissingMeansError, match="only root"), LoopImage(FILE_SYSTEMS["ext4"]):
        pass
    assert run_case("ext4", 1, 0) == Result(0, 0, missing="only root may mount a file system")
    assert SKIPPED == 77


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("lane", [name for name, lane in LANES.items() if lane.is_alone])
def test_power_cuts_of_real_file_systems_lose_nothing(lane: str) -> None:
    result = run_case(lane, 1, 0)
    if result.missing is not None:
        pytest.skip(result.missing)
    assert result.problem is None


def test_a_disk_with_nothing_on_it_is_a_state() -> None:
    check_state(CrashHistory(random.Random(1)), new_disk())
