"""Exports to the simulated disk, cut off at random calls: the manifest names no file that is gone, and the next run
ends with the batches of the source."""

from __future__ import annotations

import random
import tempfile
from contextlib import suppress
from pathlib import Path

from kstore.archive.files import crc_of
from kstore.archive.manifest import read_manifest
from kstore.archive.options import export_options
from kstore.archive.run import local_export
from kstore.store.opening import open_log
from tests.crash.crash_states import new_disk
from tests.fakes.disk import PowerCut, SimulatedDisk
from tests.making.exporting import PARTITIONS, TOPIC, grow

TARGET = "/root/out"
COMMIT = f"{TARGET}/_kstore_export/commit.json"
RUNS = 3
# A run makes about 60 changes.
LONGEST_LIFE = 80


def export_to(disk: SimulatedDisk, source: Path) -> None:
    local_export(source, TARGET, export_options("kstore"), threads=1, target_env=disk)


def check_files(disk: SimulatedDisk, *, is_first_run: bool = False) -> None:
    """Check that all files that the manifest names are whole; later, unless a commit is noted that joins some."""
    manifest = read_manifest(TARGET, env=disk)
    if manifest is None or (COMMIT in disk.names and not is_first_run):
        return
    for file in manifest.files:
        path = f"{TARGET}/{file.path}"
        assert path in disk.names, f"the manifest names {path}, which is gone"
        assert crc_of(path, disk) == (file.size_in_bytes, file.crc32c), path


def check_batches(disk: SimulatedDisk, source: Path) -> None:
    for partition in range(PARTITIONS):
        name = f"{TOPIC}-{partition}"
        with open_log(source / name) as log, open_log(f"{TARGET}/{name}", env=disk) as copy:
            assert [bytes(batch) for batch in copy.batches()] == [bytes(batch) for batch in log.batches()]


def states_of_exports(seed: int | str, *, disk_class: type[SimulatedDisk] = SimulatedDisk) -> int:
    """Export a root that grows several times, each run cut off at first; return how many states were looked at."""
    rng, disk = random.Random(seed), new_disk(disk_class)
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory)
        for _ in range(RUNS):
            grow(source, rng.choice([10, 30]))
            disk.cut_at = disk.calls + rng.randint(1, LONGEST_LIFE)
            with suppress(PowerCut):
                export_to(disk, source)
            left = disk.after_cut(rng)
            disk = disk_class(left.names)
            disk.directories |= left.directories
            check_files(disk)
            export_to(disk, source)
            check_files(disk)
            check_batches(disk, source)
    return RUNS
