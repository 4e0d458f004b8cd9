"""Copies of a partition directory whose index files were all damaged in one stated way."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

from tests.golden.sets import GoldenPartition

ROOT_CHECKPOINTS = ("log-start-offset-checkpoint", "replication-offset-checkpoint", "recovery-point-offset-checkpoint")
ENTRY_FORMS = {".index": ">ii", ".timeindex": ">qi"}
PREALLOCATED_ENTRIES = 64
DONOR = GoldenPartition("main-4.4.0", "data", "idx-every-0")

Entries = list[tuple[int, int]]


def copy_partition(partition: GoldenPartition, root: Path) -> Path:
    """Copy a partition and the checkpoints of its root into a new root; return the partition directory."""
    root.mkdir(exist_ok=True)
    for name in ROOT_CHECKPOINTS:
        if (partition.root / name).exists():
            shutil.copy2(partition.root / name, root / name)
    return Path(shutil.copytree(partition.directory, root / partition.name))


def index_files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.suffix in ENTRY_FORMS)


def _read_entries(path: Path) -> Entries:
    form, data = ENTRY_FORMS[path.suffix], path.read_bytes()
    size = struct.calcsize(form)
    return list(struct.iter_unpack(form, data[: len(data) // size * size]))


def _write_entries(path: Path, entries: Entries) -> None:
    path.write_bytes(b"".join(struct.pack(ENTRY_FORMS[path.suffix], *entry) for entry in entries))


def delete(directory: Path) -> None:
    for path in index_files(directory):
        path.unlink()


def empty(directory: Path) -> None:
    for path in index_files(directory):
        path.write_bytes(b"")


def pad_with_zeros(directory: Path) -> None:
    """Add zero entries, as preallocation does; to an empty index as well."""
    for path in index_files(directory):
        padding = bytes(PREALLOCATED_ENTRIES * struct.calcsize(ENTRY_FORMS[path.suffix]))
        path.write_bytes(path.read_bytes() + padding)


def zero_the_first_half(directory: Path) -> None:
    for path in index_files(directory):
        entries = _read_entries(path)
        _write_entries(path, [(0, 0)] * (len(entries) // 2) + entries[len(entries) // 2 :])


def fill_with_garbage(directory: Path) -> None:
    """Write random bytes, of a size that is no multiple of an entry."""
    for path in index_files(directory):
        path.write_bytes(random.Random(path.name).randbytes(245))


def fill_with_ones(directory: Path) -> None:
    for path in index_files(directory):
        path.write_bytes(b"\xff" * 240)


def exchange_segments(directory: Path) -> None:
    """Give each segment the index of the one before it, and the first one that of another partition."""
    for suffix in ENTRY_FORMS:
        paths = [path for path in index_files(directory) if path.suffix == suffix]
        donor = next(path for path in index_files(DONOR.directory) if path.suffix == suffix)
        contents = [donor.read_bytes(), *(path.read_bytes() for path in paths)]
        for path, content in zip(paths, contents, strict=False):
            path.write_bytes(content)


def shift_places_ahead(directory: Path) -> None:
    """Give each key the place of the next entry: in order, true places, but too far ahead for their keys."""
    for path in index_files(directory):
        entries = _read_entries(path)
        following = [*entries[1:], *entries[-1:]]
        _write_entries(path, [(entry[0], after[1]) for entry, after in zip(entries, following, strict=True)])


def shift_places_by_one(directory: Path) -> None:
    """Add one to each position (between batches) and each indexed offset."""
    for path in index_files(directory):
        _write_entries(path, [(key, place + 1) for key, place in _read_entries(path)])


def lower_keys_by_one(directory: Path) -> None:
    """Take one from each offset and each timestamp: places a little too far ahead for their keys."""
    for path in index_files(directory):
        _write_entries(path, [(key - 1, place) for key, place in _read_entries(path)])


def reverse_entries(directory: Path) -> None:
    for path in index_files(directory):
        _write_entries(path, _read_entries(path)[::-1])


DAMAGES: tuple[Callable[[Path], None], ...] = (
    delete,
    empty,
    pad_with_zeros,
    zero_the_first_half,
    fill_with_garbage,
    fill_with_ones,
    exchange_segments,
    shift_places_ahead,
    shift_places_by_one,
    lower_keys_by_one,
    reverse_entries,
)
