"""Goal: the power fails anywhere in a recovery, and again in the next one; a last one ends with the very same files.
Method: a simulated disk stops at a call and keeps an allowed selection of what was not synced."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kstore.log.files.names import PartitionDirectory
from kstore.log.files.snapshots import encode_snapshot
from kstore.log.recovery.load import load_log
from kstore.log.recovery.modes import RecoveryMode
from kstore.log.verify import verify
from kstore.store.opening import open_log
from kstore.types import TopicPartition
from tests.crash.test_recovery_faults import PADDED, SCENARIOS, the_case
from tests.fakes.disk import DiskThatForgetsFiles, DiskThatForgetsNames, Inode, PowerCut, SimulatedDisk, disk_of
from tests.golden.recovery_cases import CONFIG, BrokerTimeEnv, Case

ROOT = "/root"
DEPTH = 3


def run(case: Case, disk: SimulatedDisk, mode: RecoveryMode) -> int | None:
    """Load the log on a disk; return its end, None if the power failed."""
    path = f"{ROOT}/rec-{case.name}-0"
    directory = PartitionDirectory(TopicPartition(f"rec-{case.name}", 0), path, ROOT)
    try:
        loaded = load_log(
            directory,
            config=CONFIG,
            env=disk,
            mode=mode,
            recovery_point=case.recovery_point,
            log_start_offset=case.log_start_offset,
            is_clean=case.is_clean,
        )
    except PowerCut:
        return None
    return loaded.log_end_offset


@cache
def fresh(scenario: str) -> tuple[Case, RecoveryMode, int]:
    set_name, name, mode = SCENARIOS[scenario]
    return the_case(set_name, name), mode, BrokerTimeEnv(set_name).wall_clock_ms()


def start(scenario: str) -> SimulatedDisk:
    case, _, now_ms = fresh(scenario)
    disk = disk_of(case.directory("before"), f"{ROOT}/rec-{case.name}-0", now_ms=now_ms)
    first = disk.names[min(path for path in disk.names if path.endswith(".log"))]
    first.content += bytes(PADDED.get(scenario, 0))
    first.durable = bytes(first.content)
    return disk


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_recovery_cut_by_the_power_ends_with_the_same_files(scenario: str) -> None:
    check_cuts(scenario, rounds_per_call=1)


@pytest.mark.long
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_recovery_cut_by_the_power_in_many_ways_ends_with_the_same_files(scenario: str) -> None:
    check_cuts(scenario, rounds_per_call=20)


def start_with_wrong_snapshots(scenario: str) -> SimulatedDisk:
    """As start, but above the recovery point there is a snapshot for each segment, and it says nothing of producers."""
    disk = start(scenario)
    case, mode, _ = fresh(scenario)
    run(case, whole := start(scenario), mode)
    logs = {path.replace(".log", ".snapshot") for path in disk.names if path.endswith(".log")}
    for path in logs | {path for path in whole.names if path.endswith(".snapshot")}:
        if int(Path(path).stem) > (case.recovery_point or 0):
            disk.names[path] = Inode(encode_snapshot([]))
    return SimulatedDisk(disk.names, now_ms=disk.wall_clock_ms())


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_recovery_that_replaces_snapshots_and_is_cut_by_the_power_ends_with_the_same_files(scenario: str) -> None:
    check_cuts(scenario, rounds_per_call=1, start=start_with_wrong_snapshots)


@pytest.mark.long
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_recovery_that_replaces_snapshots_and_is_cut_in_many_ways_ends_with_the_same_files(scenario: str) -> None:
    check_cuts(scenario, rounds_per_call=20, start=start_with_wrong_snapshots)


def check_cuts(scenario: str, *, rounds_per_call: int, start: Callable[[str], SimulatedDisk] = start) -> None:
    case, mode, _ = fresh(scenario)
    path = f"{ROOT}/rec-{case.name}-0"
    whole = start(scenario)
    end = run(case, whole, mode)
    expected = whole.state(path)
    assert whole.calls or scenario == "nothing"
    with open_log(path, env=whole) as log:
        assert list(verify(log, env=whole)) == []
    for call_number in range(1, whole.calls + 1):
        for round_number in range(rounds_per_call):
            rng = random.Random(f"{scenario}-{call_number}-{round_number}")
            disk = start(scenario)
            disk.cut_at = call_number
            for _ in range(DEPTH):
                if run(case, disk, mode) is not None:
                    break
                disk = disk.after_cut(rng, cut_at=rng.randint(1, whole.calls))
            disk.cut_at = None
            assert run(case, disk, mode) == end, (call_number, round_number)
            state = disk.state(path)
            assert state.keys() == expected.keys(), (call_number, round_number)
            assert [name for name in state if state[name] != expected[name]] == [], (call_number, round_number)


class TornCut(random.Random):
    """Draws that keep all that was written, and of each cut file its length with zeros where the cut was made."""

    def choice(self, seq: Any) -> Any:
        return max(seq)

    def random(self) -> float:
        return 0.0


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_recovery_whose_cuts_are_torn_ends_with_the_same_files(scenario: str) -> None:
    case, mode, _ = fresh(scenario)
    path = f"{ROOT}/rec-{case.name}-0"
    whole = start(scenario)
    end = run(case, whole, mode)
    for call_number in range(1, whole.calls + 1):
        disk = start(scenario)
        disk.cut_at = call_number
        run(case, disk, mode)
        disk = disk.after_cut(TornCut())
        assert run(case, disk, mode) == end, call_number
        assert disk.state(path) == whole.state(path), call_number


def survives_a_cut(scenario: str, disk: SimulatedDisk, *, rounds: int) -> bool:
    """Recover, cut the power at once, and tell whether every file is as recovery left it."""
    case, mode, _ = fresh(scenario)
    path = f"{ROOT}/rec-{case.name}-0"
    run(case, disk, mode)
    left = (disk.after_cut(random.Random(f"{scenario}-{number}")) for number in range(rounds))
    return all(one.state(path) == disk.state(path) for one in left)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_what_recovery_has_done_survives_a_power_cut(scenario: str) -> None:
    assert survives_a_cut(scenario, start(scenario), rounds=30)


WITH_SNAPSHOT = [one for one in SCENARIOS if one not in ("nothing", "anew-at-log-start", "clean-with-zeros")]


@pytest.mark.parametrize("scenario", WITH_SNAPSHOT)
def test_snapshot_that_stays_as_it_was_survives_a_power_cut(scenario: str) -> None:
    """A writer that was killed may have written it, and not synced."""
    disk = start(scenario)
    case, mode, _ = fresh(scenario)
    end = run(case, disk, mode)
    disk.names[f"{ROOT}/rec-{case.name}-0/{end:020d}.snapshot"].durable = b""
    assert survives_a_cut(scenario, disk, rounds=30)


@pytest.mark.parametrize("disk_class", [DiskThatForgetsFiles, DiskThatForgetsNames])
@pytest.mark.parametrize("scenario", [one for one in SCENARIOS if one != "nothing"])
def test_a_sync_that_is_left_out_is_noticed(scenario: str, disk_class: type[SimulatedDisk]) -> None:
    disk = start(scenario)
    # So that it is taken, and does not stay as it is.
    disk.names.pop(max((path for path in disk.names if path.endswith(".snapshot")), default=""), None)
    planted = disk_class(disk.names, now_ms=disk.wall_clock_ms())
    assert not survives_a_cut(scenario, planted, rounds=30)
