"""Goal: a dry run of `kstore recover` writes to standard output what the run writes, and ends with its exit status.
Method: every recovery case in every mode, as JSON, in roots of one partition with the checkpoints of the case."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.runner import runner
from tests.golden.recovery_cases import CLEAN_SET, RECOVERY_SETS, Case, cases, copied, read_state
from tests.making.batches import write_offset_checkpoint
from tests.making.collecting import over

MODES = ("strict", "point_in_time", "salvage")
DEFAULT_SETS = ("recovery-4.4.0", CLEAN_SET)
LONG_SETS = tuple(name for name in RECOVERY_SETS if name not in DEFAULT_SETS)


@pytest.fixture
def kstore(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Callable[..., object]:
    return runner(monkeypatch, capsysbinary)


def root_of(case: Case, target: Path) -> Path:
    """Copy the partition of a case into a root with the checkpoints that the broker was given."""
    name = Path(copied(case, target).path).name
    for checkpoint, offset in (
        ("recovery-point-offset-checkpoint", case.recovery_point),
        ("log-start-offset-checkpoint", case.log_start_offset),
    ):
        if offset is not None:
            write_offset_checkpoint(target / checkpoint, {name: offset})
    if case.is_clean:
        (target / ".kafka_cleanshutdown").write_text("{}")
    return target


@pytest.mark.parametrize("mode", MODES)
@over("case", cases(*RECOVERY_SETS), long=LONG_SETS)
def test_dry_run_says_what_the_run_does(case: Case, mode: str, kstore, tmp_path: Path) -> None:
    root = root_of(case, tmp_path / mode)
    path = root / f"rec-{case.name}-0"
    before = read_state(path)
    dry = kstore("recover", root, "--mode", mode, "--dry-run", "--json")
    assert read_state(path) == before
    assert [one for one in path.iterdir() if one.is_dir()] == []
    done = kstore("recover", root, "--mode", mode, "--json")
    assert [json.loads(line) for line in dry.out.splitlines()] == [json.loads(line) for line in done.out.splitlines()]
    assert dry.status == done.status
