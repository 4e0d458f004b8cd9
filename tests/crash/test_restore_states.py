"""Goal: wherever the power fails during a restore, the same call ends it: the target has the source's batches and
records below the end, each once, and all of its files are right.
Method: restores to the simulated disk, cut off at changes spread over the whole run, each with a state that the disk
may be in then, and again during the call that follows; a restore that ended, after which the power fails; and the same
with a disk that is not honest, which must be noticed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kstore import restore, verify
from kstore.errors import KStoreError
from kstore.store.opening import open_log
from tests.crash.crash_states import new_disk
from tests.fakes.disk import DiskThatForgetsFiles, DiskThatForgetsNames, PowerCut, SimulatedDisk
from tests.making.exporting import PARTITIONS, TOPIC, grow

pytestmark = pytest.mark.filterwarnings("ignore:unclosed")
TARGET = "/root/new"
# No batch of the source ends there: the last one is rebuilt.
END = 37
CUTS = 16


@pytest.fixture
def source(tmp_path: Path) -> Path:
    grow(tmp_path, 50)
    return tmp_path


def restore_to(disk: SimulatedDisk, source: Path) -> None:
    restore(source, TARGET, end_offset=END, target_env=disk)


def cut_runs(source: Path) -> Iterator[SimulatedDisk]:
    """Yield the disk after each of CUTS restores that were cut off, the first at the first change."""
    whole = new_disk()
    restore_to(whole, source)
    for number in range(CUTS):
        disk = new_disk()
        disk.cut_at = 1 + number * whole.calls // CUTS
        with pytest.raises(PowerCut):
            restore_to(disk, source)
        yield disk


def check_held(disk: SimulatedDisk, source: Path) -> None:
    for partition in range(PARTITIONS):
        check_partition(disk, source, f"{TOPIC}-{partition}")
    assert verify(TARGET, env=disk).damage == ()


def check_partition(disk: SimulatedDisk, source: Path, name: str) -> None:
    with open_log(source / name) as log, open_log(f"{TARGET}/{name}", env=disk) as copy:
        assert list(copy.read()) == [record for record in log.read() if record.offset < END]
        whole = [bytes(batch) for batch in log.batches() if batch.last_offset < END]
        assert [bytes(batch) for batch in copy.batches()][: len(whole)] == whole
        assert copy.log_end_offset == END


def has_batches(disk: SimulatedDisk, directory: str) -> bool:
    return any(content.strip(b"\0") for path, content in disk.state(directory).items() if path.endswith(".log"))


def check_after_cuts(disk: SimulatedDisk, source: Path) -> None:
    for seed in range(8):
        check_held(disk.after_cut(random.Random(seed)), source)


def test_a_restore_ends_with_the_source_wherever_the_power_failed(source: Path) -> None:
    rng = random.Random(1)
    for disk in cut_runs(source):
        again = disk.after_cut(rng, cut_at=rng.randint(1, 40))
        with suppress(PowerCut):
            restore_to(again, source)
        left = again.after_cut(rng)
        restore_to(left, source)
        check_held(left, source)


def test_what_a_restore_has_ended_is_durable(source: Path) -> None:
    disk = new_disk()
    restore_to(disk, source)
    check_after_cuts(disk, source)


def test_a_partition_is_durable_before_the_next_is_written(source: Path) -> None:
    disk, seen = new_disk(), set()

    def look(_done: int, _total: int) -> None:
        names = [f"{TOPIC}-{partition}" for partition in range(PARTITIONS)]
        begun = [name for name in names if has_batches(disk, f"{TARGET}/{name}")]
        for name in begun[:-1]:
            seen.add(name)
            for seed in range(4):
                check_partition(disk.after_cut(random.Random(seed)), source, name)

    restore(source, TARGET, end_offset=END, target_env=disk, progress=look)
    assert len(seen) == PARTITIONS - 1


@pytest.mark.parametrize("disk_class", [DiskThatForgetsFiles, DiskThatForgetsNames])
def test_a_disk_that_forgets_what_a_restore_wrote_is_noticed(source: Path, disk_class: type[SimulatedDisk]) -> None:
    disk = new_disk(disk_class)
    restore_to(disk, source)
    with pytest.raises((AssertionError, KStoreError)):
        check_after_cuts(disk, source)
