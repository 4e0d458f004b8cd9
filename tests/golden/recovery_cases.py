"""The recovery sets: one stated damage per partition, what a broker was given and what it left, and how to compare."""

from __future__ import annotations

import json
import shutil
import struct
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from kstore.config import LogConfig
from kstore.env import LocalEnv
from kstore.log.files.names import PartitionDirectory
from kstore.log.recovery.context import LoadedLog
from kstore.log.recovery.load import load_log
from kstore.log.recovery.modes import RecoveryMode
from kstore.types import TopicPartition
from tests.golden.sets import PACKED_DIRECTORY, unpack
from tests.reference import codec as reference
from tests.reference.walk import header_at

NEW_SETS = ("recovery-2.8.2", "recovery-3.9.2", "recovery-4.4.0")
OLD_SETS = ("recovery-0.8.2.2", "recovery-0.9.0.1", "recovery-0.10.2.2")
CLEAN_SET = "cleanload-4.4.0"
RECOVERY_SETS = (*OLD_SETS, *NEW_SETS, CLEAN_SET)

# The topic settings of these sets.
CONFIG = LogConfig(segment_bytes=6000, segment_index_bytes=4096, index_interval_bytes=256)
SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
DAY_MS = 24 * 60 * 60 * 1000

State = dict[str, bytes]


class Case(NamedTuple):
    """One partition of a set; str() is the test id. log_end_offset: Kafka's, None if it refused to start."""

    set_name: str
    name: str
    damage: str
    clean_log_end_offset: int
    recovery_point: int | None
    log_start_offset: int | None
    log_end_offset: int | None

    def __str__(self) -> str:
        return f"{self.set_name}/{self.name}"

    @property
    def is_clean(self) -> bool:
        return self.set_name == CLEAN_SET

    @property
    def has_states(self) -> bool:
        """Whether the broker kept producer snapshots and leader epochs, and last offsets in its offset indexes."""
        return self.set_name not in OLD_SETS

    def directory(self, tree: str) -> Path:
        return unpack(self.set_name, "trees") / tree / f"rec-{self.name}-0"

    def after(self) -> State:
        return read_state(self.directory("after-stopped"))


@cache
def cases(*set_names: str) -> list[Case]:
    """Return the cases of some sets, from cases.json, so that collecting unpacks nothing."""
    found = []
    for set_name in set_names:
        for name, case in _content(set_name)["cases"].items():
            found.append(Case(set_name, name, **case))
    return found


@cache
def _content(set_name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((PACKED_DIRECTORY / set_name / "cases.json").read_text())
    return content


class BrokerTimeEnv(LocalEnv):
    """The machine at the time when the broker of a set was started again."""

    def __init__(self, set_name: str) -> None:
        self._now_ms: int = _content(set_name)["restarted_at_ms"]

    def wall_clock_ms(self) -> int:
        return self._now_ms


def copied(case: Case, target: Path) -> PartitionDirectory:
    """Copy the partition as the broker found it below a directory."""
    path = target / f"rec-{case.name}-0"
    shutil.copytree(case.directory("before"), path)
    return PartitionDirectory(TopicPartition(f"rec-{case.name}", 0), str(path), str(target))


def load(case: Case, directory: PartitionDirectory, *, mode: RecoveryMode, dry_run: bool = False) -> LoadedLog:
    """Load a copy as the broker was told to: with its checkpoints and its clean-shutdown marker, or without."""
    return load_log(
        directory,
        config=CONFIG,
        env=BrokerTimeEnv(case.set_name),
        mode=mode,
        recovery_point=case.recovery_point,
        log_start_offset=case.log_start_offset,
        is_clean=case.is_clean,
        dry_run=dry_run,
    )


def read_state(directory: Path) -> State:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.is_file()}


class Batch(NamedTuple):
    """A whole entry of a .log with a right CRC, found without kstore."""

    position: int
    data: bytes
    base_offset: int
    last_offset: int
    max_timestamp_ms: int


def batches(content: bytes) -> list[Batch]:
    """Walk a .log from its start to the first entry that is not whole or has a wrong CRC."""
    found, position = [], 0
    while (batch := batch_at(content, position)) is not None:
        found.append(batch)
        position += len(batch.data)
    return found


def batch_at(content: bytes, position: int) -> Batch | None:
    if len(content) - position < 26:
        return None
    size = 12 + int.from_bytes(content[position + 8 : position + 12], "big", signed=True)
    magic = content[position + 16]
    if magic > 2 or not (61 if magic == 2 else 26) <= size <= len(content) - position:
        return None
    data = content[position : position + size]
    if not _has_right_crc(data, magic):
        return None
    header = header_at(content, position)
    return Batch(position, data, header.base_offset, header.last_offset, header.max_timestamp_ms)


def _has_right_crc(data: bytes, magic: int) -> bool:
    if magic == 2:
        return reference.crc32c(data[21:]) == int.from_bytes(data[17:21], "big")
    return zlib.crc32(data[16:]) == int.from_bytes(data[12:16], "big")


def index_entries(content: bytes, form: str) -> list[tuple[int, int]]:
    """Return the whole entries of an index without the zero entries at its end."""
    entry = struct.Struct(form)
    entries = list(entry.iter_unpack(content[: len(content) // entry.size * entry.size]))
    while entries and not any(entries[-1]):
        entries.pop()
    return entries


def producers(content: bytes) -> dict[int, tuple[int, ...]]:
    """Return the entries of a snapshot by producer id."""
    return {entry[0]: entry[1:] for entry in SNAPSHOT_ENTRY.iter_unpack(content[10:])}


def epoch_entries(content: bytes) -> list[tuple[int, int]]:
    lines = content.decode().splitlines()[2:]
    return [(int(epoch), int(start)) for epoch, start in (line.split() for line in lines)]


def differences(case: Case, loaded: LoadedLog, ours: State) -> set[str]:
    """Return in what kstore's result differs from what the broker left; names of the table in docs/durability.md."""
    if case.log_end_offset is None:
        return {"refused"}
    theirs = case.after()
    found = set()
    if loaded.log_end_offset != case.log_end_offset:
        found.add("log end")
    start = loaded.log_start_offset
    bases = sorted(base_of(name) for name in {*theirs, *ours} if name.endswith(".log"))
    # Segments below the log start are removed by the broker's retention, after it has loaded them.
    retained = [
        base for base, following in zip(bases, [*bases[1:], None], strict=True) if not following or following > start
    ]
    comparisons: dict[str, Callable[[bytes | None, bytes | None], bool]] = {".log": lambda one, two: one == two}
    if case.has_states:
        comparisons |= {
            ".index": lambda one, two: _same_index(one, two, ">ii"),
            ".timeindex": lambda one, two: _same_index(one, two, ">qi"),
            ".txnindex": lambda one, two: (one or b"") == (two or b""),
        }
    for suffix, are_same in comparisons.items():
        for base in retained:
            name = f"{base:020d}{suffix}"
            one, two = theirs.get(name), ours.get(name)
            if (one is None or two is None) and suffix != ".txnindex":
                if one is not two:
                    found.add(suffix[1:])
            elif not are_same(one, two):
                found.add(suffix[1:])
    if case.has_states:
        found |= _state_differences(case, loaded, theirs, ours)
    return found


def base_of(name: str) -> int:
    return int(name.partition(".")[0])


def _same_index(one: bytes | None, two: bytes | None, form: str) -> bool:
    return index_entries(one or b"", form) == index_entries(two or b"", form)


def _state_differences(case: Case, loaded: LoadedLog, theirs: State, ours: State) -> set[str]:
    found = set()
    oldest_ms = _content(case.set_name)["restarted_at_ms"] - DAY_MS
    names = {
        name for name in {*theirs, *ours} if name.endswith(".snapshot") and base_of(name) > loaded.log_start_offset
    }
    for name in names:
        if name not in theirs or name not in ours:
            found.add("snapshot")
            continue
        kept, expected = producers(ours[name]), producers(theirs[name])
        # A broker leaves out at each loading who has expired by then, one loading for each segment.
        forgotten = {one: entry for one, entry in kept.items() if one not in expected}
        if {one: kept.get(one) for one in expected} != expected or any(
            one[4] >= oldest_ms for one in forgotten.values()
        ):
            found.add("snapshot")
    if _epochs_once_leading(case, ours, theirs) != epoch_entries(theirs["leader-epoch-checkpoint"]):
        found.add("epochs")
    return found


def _epochs_once_leading(case: Case, ours: State, theirs: State) -> list[tuple[int, int]]:
    """Return kstore's leader epochs and the one that the broker itself began at its log end, when it became leader."""
    entries = epoch_entries(ours.get("leader-epoch-checkpoint", b"0\n0\n"))
    for epoch, start in epoch_entries(theirs["leader-epoch-checkpoint"]):
        if start == case.log_end_offset:
            entries = [one for one in entries if one[0] < epoch and one[1] < start]
            entries.append((epoch, start))
    return entries
