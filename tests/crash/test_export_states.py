"""Goal: wherever the power fails during an export, the manifest names no file that is gone, and the next run ends with
the batches of the source, or with its rows. Method: a few cases of the lane `exports` of `python -m tests.crash`,
and the same with a disk that is not honest, which must be noticed."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from kstore.archive.options import export_options
from kstore.archive.run import local_export
from kstore.errors import KStoreError
from tests.crash.crash_states import new_disk
from tests.crash.export_states import FORMATS, TARGET, check_files, check_held, export_to, states_of_exports
from tests.fakes.disk import DiskThatForgetsFiles, DiskThatForgetsNames, Inode, PowerCut, SimulatedDisk
from tests.making.exporting import grow

pytestmark = pytest.mark.filterwarnings("ignore:unclosed")


def settled(disk: SimulatedDisk) -> SimulatedDisk:
    """Return a copy of a disk, on which all is durable."""
    copy = SimulatedDisk({path: Inode(bytes(inode.content)) for path, inode in disk.names.items()})
    copy.directories |= disk.directories
    return copy


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("seed", [f"suite-{number}" for number in range(6)])
def test_the_manifest_of_an_export_names_no_file_that_a_power_cut_takes(seed: str, format: str) -> None:
    assert states_of_exports(seed, format=format) > 0


@pytest.mark.parametrize("format", FORMATS)
def test_a_run_after_one_that_joined_files_ends_wherever_the_power_failed_at_its_end(
    tmp_path: Path, format: str
) -> None:
    options, rng, disk = export_options(format), random.Random(1), new_disk()
    for count in (10, 30):
        grow(tmp_path, count)
        export_to(disk, tmp_path, options)
    grow(tmp_path, 10)
    whole = settled(disk)
    assert local_export(tmp_path, TARGET, options, threads=1, target_env=whole).joined_files > 0
    for cut_at in range(whole.calls - 8, whole.calls + 2):
        cut = settled(disk)
        cut.cut_at = cut_at
        with suppress(PowerCut):
            export_to(cut, tmp_path, options)
        for left in cut.states_after_cut(rng, most_units=4):
            check_files(left)
            export_to(left, tmp_path, options)
            check_held(left, tmp_path, options)


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


class NotingResults(SimulatedDisk):
    """results: the calls by which results of parts got their names."""

    results: tuple[int, ...] = ()

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        if target.rpartition("/")[2].startswith("part-"):
            self.results += (self.calls,)


@pytest.mark.parametrize("format", FORMATS)
def test_a_result_that_a_power_cut_leaves_lists_no_file_that_it_takes(tmp_path: Path, format: str) -> None:
    grow(tmp_path, 10)
    options, rng, whole = export_options(format), random.Random(1), new_disk(NotingResults)
    export_to(whole, tmp_path, options)
    assert isinstance(whole, NotingResults)
    assert whole.results
    for result in whole.results:
        disk = new_disk()
        disk.cut_at = result + 1
        with suppress(PowerCut):
            export_to(disk, tmp_path, options)
        for left in disk.states_after_cut(rng, most_units=4):
            export_to(left, tmp_path, options)
            check_held(left, tmp_path, options)


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
