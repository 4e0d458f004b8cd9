"""Goal: wherever the power fails during an export, the manifest names no file that is gone, and the next run ends
with the batches of the source. Method: a few cases of the lane `exports` of `python -m tests.crash`, and the same with
a disk that is not honest, which must be noticed."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from kstore.archive.options import export_options
from kstore.archive.run import local_export
from kstore.errors import KStoreError
from tests.crash.crash_states import new_disk
from tests.crash.export_states import TARGET, check_files, states_of_exports
from tests.fakes.disk import DiskThatForgetsFiles, DiskThatForgetsNames, PowerCut, SimulatedDisk
from tests.making.exporting import grow

pytestmark = pytest.mark.filterwarnings("ignore:unclosed")


@pytest.mark.parametrize("seed", [*(f"suite-{number}" for number in range(10)), "1-3"])
def test_the_manifest_of_an_export_names_no_file_that_a_power_cut_takes(seed: str) -> None:
    assert states_of_exports(seed) > 0


def test_the_manifest_of_rows_names_no_file_that_a_power_cut_takes(tmp_path: Path) -> None:
    grow(tmp_path, 10)
    options, rng = export_options("parquet"), random.Random(1)
    whole = new_disk()
    local_export(tmp_path, TARGET, options, threads=1, target_env=whole)
    for cut_at in range(whole.calls - 8, whole.calls + 2):
        disk = new_disk()
        disk.cut_at = cut_at
        with suppress(PowerCut):
            local_export(tmp_path, TARGET, options, threads=1, target_env=disk)
        for left in disk.states_after_cut(rng, most_units=4):
            check_files(left, is_first_run=True)


@pytest.mark.parametrize("disk_class", [DiskThatForgetsFiles, DiskThatForgetsNames])
def test_an_export_that_does_not_sync_is_noticed(disk_class: type[SimulatedDisk]) -> None:
    found = 0
    for seed in range(20):
        try:
            states_of_exports(seed, disk_class=disk_class)
        except (AssertionError, KStoreError):
            found += 1
            break
    assert found
