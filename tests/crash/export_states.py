"""Exports to the simulated disk, cut off at random calls: the manifest names no file that is gone, and the next run
ends with the batches of the source, or with its rows."""

from __future__ import annotations

import random
import tempfile
from contextlib import suppress
from pathlib import Path

from kstore.archive.files import crc_of, read_rows
from kstore.archive.manifest import read_manifest
from kstore.archive.options import ExportOptions, export_options
from kstore.archive.run import local_export
from kstore.store.opening import open_log
from tests.crash.crash_states import new_disk
from tests.fakes.disk import PowerCut, SimulatedDisk
from tests.making.exporting import PARTITIONS, TOPIC, grow

TARGET = "/root/out"
COMMIT = f"{TARGET}/_kstore_export/commit.json"
FORMATS = ("kstore", "parquet", "arrow")
RUNS = 3
# A run makes 66 to 155 changes.
LONGEST_LIFE = 160


def export_to(disk: SimulatedDisk, source: Path, options: ExportOptions) -> None:
    local_export(source, TARGET, options, threads=1, target_env=disk)


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


def check_rows(disk: SimulatedDisk, source: Path, options: ExportOptions) -> None:
    """Check that the files have each record of the source once, and that there are none but those of the manifest."""
    manifest = read_manifest(TARGET, env=disk)
    assert manifest is not None
    paths = {f"{TARGET}/{file.path}" for file in manifest.files}
    assert {path for path in disk.names if path.startswith(f"{TARGET}/topic=")} == paths
    columns = ["partition", "offset", "value"]
    batches = [batch.select(columns) for path in paths for batch in read_rows(path, options, disk)]
    rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    expected = []
    for partition in range(PARTITIONS):
        with open_log(source / f"{TOPIC}-{partition}") as log:
            expected += [(partition, record.offset, bytes(record.value or b"")) for record in log.read()]
    assert sorted(rows) == expected


def check_held(disk: SimulatedDisk, source: Path, options: ExportOptions) -> None:
    check_files(disk)
    if options.is_verbatim:
        check_batches(disk, source)
    else:
        check_rows(disk, source, options)


def states_of_exports(
    seed: int | str, *, format: str = "kstore", disk_class: type[SimulatedDisk] = SimulatedDisk
) -> int:
    """Export a root that grows several times, each run cut off at first; return how many states were looked at."""
    rng, disk, options = random.Random(seed), new_disk(disk_class), export_options(format)
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory)
        for _ in range(RUNS):
            grow(source, rng.choice([10, 30]))
            disk.cut_at = disk.calls + rng.randint(1, LONGEST_LIFE)
            with suppress(PowerCut):
                export_to(disk, source, options)
            left = disk.after_cut(rng)
            disk = disk_class(left.names)
            disk.directories |= left.directories
            check_files(disk)
            export_to(disk, source, options)
            check_held(disk, source, options)
    return RUNS
