"""Goal: recovery that fails or is cut off anywhere ends, the next time, with the very same files.
Method: each call to the system fails in turn, in every way and for good; then the machine is well and loads again."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from kstore.env import LocalEnv
from kstore.errors import StorageError
from kstore.log.files.names import PartitionDirectory
from kstore.log.recovery.context import LoadedLog
from kstore.log.recovery.load import load_log
from kstore.log.recovery.modes import RecoveryMode
from kstore.log.verify import verify
from kstore.store.opening import open_log
from tests.fakes.faults import FAULT_KINDS, Fault, FaultyEnv
from tests.golden.recovery_cases import CONFIG, BrokerTimeEnv, Case, State, cases, copied, read_state

# name -> (set, case, mode): what recovery has to do differs from one to the other.
SCENARIOS: dict[str, tuple[str, str, RecoveryMode]] = {
    "nothing": ("recovery-4.4.0", "none-rpkeep", "strict"),
    "torn-tail": ("recovery-4.4.0", "trunc-header", "point_in_time"),
    "later-segments-go": ("recovery-4.4.0", "flip-old-rp0", "point_in_time"),
    "swap": ("recovery-4.4.0", "swap-copy", "strict"),
    "split": ("recovery-4.4.0", "offset-2g", "point_in_time"),
    "damage-inside": ("recovery-4.4.0", "flip-mid", "salvage"),
    "anew-at-log-start": ("recovery-4.4.0", "logstart-beyond", "point_in_time"),
    "lower-log-start": ("recovery-4.4.0", "logstart-beyond", "salvage"),
    "clean-with-zeros": ("cleanload-4.4.0", "zero-tail", "strict"),
    "zeros-between-segments": ("recovery-4.4.0", "none-rpkeep", "strict"),
}
# The bytes of preallocated space after the first segment.
PADDED = {"zeros-between-segments": 5000}
DEFAULT_STEP = 5


class FaultyBrokerTimeEnv(FaultyEnv):
    """Fails as the fault says, at the time at which the broker of a set started again: producers expire."""

    def __init__(self, set_name: str, fault: Fault | None = None) -> None:
        super().__init__(fault)
        self._now_ms = BrokerTimeEnv(set_name).wall_clock_ms()

    def wall_clock_ms(self) -> int:
        return self._now_ms


def the_case(set_name: str, name: str) -> Case:
    return next(case for case in cases(set_name) if case.name == name)


def load(case: Case, directory: PartitionDirectory, *, mode: RecoveryMode, env: LocalEnv) -> LoadedLog:
    return load_log(
        directory,
        config=CONFIG,
        env=env,
        mode=mode,
        recovery_point=case.recovery_point,
        log_start_offset=case.log_start_offset,
        is_clean=case.is_clean,
    )


def padded(directory: PartitionDirectory, size: int) -> PartitionDirectory:
    """Let the first segment end in so many zeros."""
    first = min(Path(directory.path).glob("*.log"))
    with first.open("ab") as file:
        file.write(bytes(size))
    return directory


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_recovery_after_a_failed_call_ends_with_the_same_files(scenario: str, tmp_path: Path) -> None:
    check_faults(scenario, tmp_path, step=DEFAULT_STEP)


@pytest.mark.long
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_recovery_after_any_failed_call_ends_with_the_same_files(scenario: str, tmp_path: Path) -> None:
    check_faults(scenario, tmp_path, step=1)


def check_faults(scenario: str, tmp_path: Path, *, step: int) -> None:
    set_name, name, mode = SCENARIOS[scenario]
    case = the_case(set_name, name)
    env = FaultyBrokerTimeEnv(case.set_name)
    padding = PADDED.get(scenario, 0)
    directory = padded(copied(case, tmp_path / "whole"), padding)
    end = load(case, directory, mode=mode, env=env).log_end_offset
    expected = read_state(Path(directory.path))
    with open_log(directory.path) as log:
        assert list(verify(log)) == []
    kinds = [(kind, is_for_good) for kind in FAULT_KINDS for is_for_good in (False, True)]
    failed = 0
    turns = count()
    for call_number in range(1, env.calls + 1, step):
        for kind, is_for_good in kinds if step == 1 else [kinds[next(turns) % len(kinds)]]:
            fault = Fault(call_number, kind, is_for_good)
            directory = padded(copied(case, tmp_path / str(fault)), padding)
            failed += run_with(fault, case, directory, mode=mode, end=end, expected=expected)
    assert failed


def run_with(
    fault: Fault, case: Case, directory: PartitionDirectory, *, mode: RecoveryMode, end: int, expected: State
) -> bool:
    env = FaultyBrokerTimeEnv(case.set_name, fault)
    try:
        found_end = load(case, directory, mode=mode, env=env).log_end_offset
    except StorageError:
        found_end = None
    assert found_end == end or (found_end is None and env.has_failed), fault
    again = load(case, directory, mode=mode, env=BrokerTimeEnv(case.set_name))
    assert again.log_end_offset == end, fault
    state = read_state(Path(directory.path))
    assert state.keys() == expected.keys(), fault
    assert [name for name in state if state[name] != expected[name]] == [], fault
    return env.has_failed
