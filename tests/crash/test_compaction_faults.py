"""Goal: whatever call of a compaction or of retention fails, no record is lost that has to stay, and the next run ends
with the records that a run without a fault leaves. Method: each call fails in turn, in every way, once and for good."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from kstore.errors import LogFailedError, StorageError
from kstore.log.write.writable_log import WritableLog
from tests.crash.crash_history import CrashHistory, abandon, check_files
from tests.crash.crash_states import begun
from tests.fakes.disk import SimulatedDisk
from tests.fakes.faults import FAULT_KINDS, ClockedEnv, Fault
from tests.making.compacting import stored

DEFAULT_STEP = 9
KINDS = [(kind, is_for_good) for kind in FAULT_KINDS for is_for_good in (False, True)]
Records = list[tuple[int, bytes | None, bytes | None]]


def compact(log: WritableLog) -> None:
    log.compact(is_forced=True, drops_keyless=True)


def retain(log: WritableLog) -> None:
    log.delete_old_segments()


OPERATIONS = {"compaction": compact, "retention": retain}


def placed(seed: str, directory: Path) -> CrashHistory:
    """Return a history with its log on real files."""
    history, disk = begun(seed)
    assert isinstance(disk, SimulatedDisk)
    (directory / "t-0").mkdir(parents=True)
    for path, data in disk.files().items():
        (directory / path.removeprefix("/root/")).write_bytes(data)
    history.path = str(directory / "t-0")
    return history


def expect(history: CrashHistory, operation: str, log: WritableLog) -> None:
    """Let the history know what the operation may remove."""
    if operation == "compaction":
        history.cleaned_end, history.settled_end = log.segments[-1].base_offset, log.log_end_offset
    else:
        due = log.plan_retention()
        assert due
        history.most_start = due[-1].end_offset


def records_of(log: WritableLog) -> Records:
    return [(one.offset, one.key, one.value) for batch in stored(log) for one in batch.records]


def run_with(fault: Fault | None, operation: str, seed: str, directory: Path) -> tuple[Records, int, bool]:
    """Return the records that are left in the end, the calls of the first run, and whether one of them failed."""
    history, env = placed(seed, directory), ClockedEnv()
    log = history.opened_by(env)
    expect(history, operation, log)
    before = env.calls
    if fault is not None:
        env.arm(fault)
    try:
        OPERATIONS[operation](log)
    except StorageError:
        assert env.has_failed, fault
    calls = env.calls - before
    env.heal()
    # Readers go on, and so does the next run, if the log did not fail.
    assert history.start <= log.log_start_offset <= max(history.start, history.most_start), fault
    history.check_history(log, stored(log))
    try:
        OPERATIONS[operation](log)
    except LogFailedError:
        assert env.has_failed, fault
    abandon(log)
    again = history.opened_by(env)
    history.settle(again)
    history.most_start = max(history.most_start, again.log_end_offset)
    OPERATIONS[operation](again)
    found = records_of(again)
    abandon(again)
    check_files(history, env)
    return found, calls, env.has_failed


def check_faults(operation: str, directory: Path, *, seed: str, step: int) -> None:
    expected, calls, _ = run_with(None, operation, seed, directory / "whole")
    turns, failed = count(), 0
    for call_number in range(1, calls + 1, step):
        for kind, is_for_good in KINDS if step == 1 else [KINDS[next(turns) % len(KINDS)]]:
            fault = Fault(call_number, kind, is_for_good)
            found, _, has_failed = run_with(fault, operation, seed, directory / str(fault))
            assert found == expected, fault
            failed += has_failed
    assert failed


@pytest.mark.parametrize("operation", OPERATIONS)
def test_nothing_is_lost_by_a_failed_call_and_the_next_run_finishes(operation: str, tmp_path: Path) -> None:
    check_faults(operation, tmp_path, seed="faults", step=DEFAULT_STEP)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", ["faults", "more", "others"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_nothing_is_lost_by_any_failed_call_and_the_next_run_finishes(
    operation: str, seed: str, tmp_path: Path
) -> None:
    check_faults(operation, tmp_path, seed=seed, step=1)
