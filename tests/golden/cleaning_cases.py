"""The cleaning sets: partitions before and after a real cleaner or retention, and kstore's work on the former."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from kstore.compression import decompress
from kstore.config import LogConfig
from kstore.env import LocalEnv
from kstore.record import RecordBatch
from kstore.store.opening import open_log
from tests.golden.sets import PACKED_DIRECTORY, read_offset_checkpoint, unpack

NEW_SET, OLD_SET = "cleaning-4.4.0", "cleaning-2.8.2"
CLEANING_SETS = (NEW_SET, OLD_SET)
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
# (tree before, tree after, phase in which the broker worked).
ROUNDS = (("before", "after", "clean"), ("before2", "after2", "clean2"), ("before3", "after3", "clean3"))
HORIZON_BIT, CODEC_BITS, CONTROL_BIT = 0x40, 0x07, 0x20
# log.cleaner.dedupe.buffer.size of these brokers.
MAP_BYTES = 2 * 1024 * 1024

_SETTINGS = {"internal.segment.bytes": "segment_bytes"}
_RATIOS = {"min.cleanable.dirty.ratio"}
_TEXTS = {"cleanup.policy", "compression.type", "message.timestamp.type"}


class CleaningCase(NamedTuple):
    """One partition in one round; str() is the test id."""

    set_name: str
    topic: str
    partition: int
    before: str
    after: str
    phase: str

    def __str__(self) -> str:
        return f"{self.set_name}/{self.after}/{self.name}"

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def is_compacted(self) -> bool:
        return self.config.is_compacted

    @property
    def config(self) -> LogConfig:
        """The settings that held while the broker worked."""
        settings = _content(self.set_name)["cases"][self.topic]["config"]
        return LogConfig(**dict(map(_setting, settings.items())), cleaner_dedupe_buffer_bytes=MAP_BYTES)

    @property
    def expected(self) -> dict[str, Any]:
        """What the broker left: checkpoints, log end, segment bases."""
        found: dict[str, Any] = _content(self.set_name)["cases"][self.topic]["trees"][self.after][str(self.partition)]
        return found

    def root(self, tree: str) -> Path:
        return unpack(self.set_name, "trees") / tree

    def now_ms(self) -> int:
        """Return when the broker's cleaner began, by the horizons that it set; else when the broker was up."""
        started, is_up, _, stopped = _content(self.set_name)["phase_times"][self.phase]
        old = {one.base_offset for one in batches_of(self.root(self.before) / self.name) if one.has_horizon}
        new = [
            one.base_timestamp_ms - self.config.delete_retention_ms
            for one in batches_of(self.root(self.after) / self.name)
            if one.has_horizon and one.base_offset not in old
        ]
        assert len(set(new)) <= 1
        assert all(started <= one <= stopped for one in new)
        return new[0] if new else is_up


def _setting(item: tuple[str, str]) -> tuple[str, object]:
    name, text = item
    value = text if name in _TEXTS else float(text) if name in _RATIOS else int(text)
    return _SETTINGS.get(name, name.replace(".", "_")), value


@cache
def cases(*set_names: str) -> list[CleaningCase]:
    """Return the cases of some sets, from cases.json, so that collecting unpacks nothing."""
    return [
        CleaningCase(set_name, topic, partition, *one)
        for set_name in set_names
        for topic, case in _content(set_name)["cases"].items()
        for one in ROUNDS
        if one[0] in case["trees"]
        for partition in range(case["partitions"])
    ]


@cache
def _content(set_name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((PACKED_DIRECTORY / set_name / "cases.json").read_text())
    return content


class Clock(LocalEnv):
    """The operating system at a fixed time of day."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def wall_clock_ms(self) -> int:
        return self._now_ms


def worked_on(case: CleaningCase, root: Path) -> Path:
    """Copy the partition before the round, let kstore do what the broker's threads did, and return its directory.

    A broker's cleaner removes old segments after it has cleaned. Its retention has a thread of its own, which in the
    old set first ran when the cleaner was done.
    """
    root.mkdir(parents=True)
    for path in case.root(case.before).iterdir():
        if path.is_file():
            shutil.copy2(path, root / path.name)
    (root / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    directory = Path(shutil.copytree(case.root(case.before) / case.name, root / case.name))
    now_ms = case.now_ms()
    with open_log(directory, "a", case.config, env=Clock(now_ms)) as log:
        if case.set_name != OLD_SET:
            log.delete_old_segments(now_ms)
        if case.is_compacted:
            log.compact(now_ms=now_ms, drops_keyless=True)
        log.delete_old_segments(now_ms)
    return directory


def checkpointed(directory: Path, name: str) -> int | None:
    path = directory.parent / name
    return read_offset_checkpoint(path).get(directory.name) if path.exists() else None


class StoredBatch(NamedTuple):
    """A batch as it is in a file, and what is compared of it."""

    segment: int
    data: bytes
    batch: RecordBatch

    @property
    def base_offset(self) -> int:
        return self.batch.header.base_offset

    @property
    def base_timestamp_ms(self) -> int:
        return self.batch.header.base_timestamp_ms

    @property
    def has_horizon(self) -> bool:
        return bool(self.batch.header.attributes & HORIZON_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.batch.header.attributes & CONTROL_BIT)

    @property
    def content(self) -> tuple[bytes, ...]:
        """The fields and records as bytes, whatever a compressor makes of the records; without size and CRC."""
        codec = self.batch.header.attributes & CODEC_BITS
        records = bytes(decompress(codec, self.data[61:], 2**30)) if codec else self.data[61:]
        return self.data[:8], self.data[12:17], self.data[21:61], records


def batches_of(directory: Path) -> list[StoredBatch]:
    found = []
    for path in sorted(directory.glob("*.log")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            size = int.from_bytes(data[at + 8 : at + 12], "big") + 12
            found.append(StoredBatch(int(path.stem), data[at : at + size], RecordBatch(data[at : at + size])))
            at += size
    return found


def segment_bases(directory: Path) -> list[int]:
    return [int(path.stem) for path in sorted(directory.glob("*.log"))]


def side_files(directory: Path, suffix: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob(f"*{suffix}")}


def aspects(case: CleaningCase, directory: Path) -> dict[str, object]:
    """Return what is compared of a partition; the names are those of the table in docs/durability.md."""
    batches = batches_of(directory)
    records = [record for one in batches if not one.is_control for record in one.batch.records()]
    was = {one.base_offset: one.data for one in batches_of(case.root(case.before) / case.name)}
    return {
        "segments": segment_bases(directory),
        "checkpoint": checkpointed(directory, CLEANER_CHECKPOINT),
        "values": [
            (one.offset, one.timestamp_ms, one.key, one.value, one.headers) for one in records if one.value is not None
        ],
        "tombstones": [(one.offset, one.timestamp_ms, one.key) for one in records if one.value is None],
        "markers": [one.base_offset for one in batches if one.is_control],
        "horizons": [(one.base_offset, one.base_timestamp_ms) for one in batches if one.has_horizon],
        "empty batches": [one.base_offset for one in batches if one.batch.header.record_count == 0],
        "batches": [one.content for one in batches],
        "untouched": [one.base_offset for one in batches if was.get(one.base_offset) == one.data],
        "txnindex": side_files(directory, ".txnindex"),
        "snapshot": side_files(directory, ".snapshot"),
    }
