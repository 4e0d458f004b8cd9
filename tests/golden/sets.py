"""The packed sets: which partitions they hold, and unpacking each set once into a cache shared by test processes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.making.extracting import extract

PACKED_DIRECTORY = Path(__file__).resolve().parent
CACHE_DIRECTORY = PACKED_DIRECTORY.parent / ".work" / "golden"

MAIN_SETS = ("main-1.1.1", "main-2.8.2", "main-3.9.2", "main-4.4.0")
REALDATA_SET = "realdata-4.4.0"
EPOCHS_SET = "epochs-4.4.0"
SIGKILL_SET = "sigkill-4.4.0"
V2_SETS = (*MAIN_SETS, REALDATA_SET, EPOCHS_SET, SIGKILL_SET)
V0_SET, V1_SET = "v0-0.8.2.2", "v1-0.10.0.1"
OLD_FORMAT_SETS = (V0_SET, V1_SET)
MIXED_SET = "mixed-2.8.2"
ALL_SETS = (*V2_SETS, *OLD_FORMAT_SETS, MIXED_SET)

# Topics that the cleaner rewrote: what it removed no replay can bring back.
CLEANED_TOPICS = frozenset(
    {
        "compact-keep",
        "compact-lz4",
        "compact-lat",
        "compact-drop",
        "compact-txn",
        "compact-txndrop",
        "ret-compactdelete",
    }
)


class GoldenPartition(NamedTuple):
    """One partition directory of one tree of one set; str() is the test id."""

    set_name: str
    tree: str
    name: str

    def __str__(self) -> str:
        return f"{self.set_name}/{self.tree}/{self.name}"

    @property
    def topic(self) -> str:
        return self.name.rpartition("-")[0]

    @property
    def partition(self) -> int:
        return int(self.name.rpartition("-")[2])

    @property
    def root(self) -> Path:
        """The tree as a broker's log.dirs root, unpacked on first use."""
        return unpack(self.set_name, "trees") / self.tree

    @property
    def directory(self) -> Path:
        return self.root / self.name


@cache
def partition_names() -> dict[str, dict[str, list[str]]]:
    """Return set -> tree -> partition directory names from partitions.json, so that collecting unpacks nothing."""
    names: dict[str, dict[str, list[str]]] = json.loads((PACKED_DIRECTORY / "partitions.json").read_text())
    return names


def golden_partitions(*set_names: str, trees: tuple[str, ...] | None = None) -> list[GoldenPartition]:
    return [
        GoldenPartition(set_name, tree, name)
        for set_name in set_names
        for tree, names in partition_names()[set_name].items()
        if trees is None or tree in trees
        for name in names
    ]


@cache
def unpack(set_name: str, archive: str) -> Path:
    """Unpack SET/ARCHIVE.tar.xz and return the directory that holds its content; tests must not write there.

    The cache is keyed by the archive's sha256. Processes may race: each unpacks beside the target,
    the first rename wins and the others drop their copy.
    """
    packed = PACKED_DIRECTORY / set_name / f"{archive}.tar.xz"
    digest = hashlib.sha256(packed.read_bytes()).hexdigest()
    target = CACHE_DIRECTORY / f"{set_name}-{archive}-{digest[:16]}"
    if target.is_dir():
        return target
    CACHE_DIRECTORY.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=CACHE_DIRECTORY))
    try:
        extract(packed, scratch)
        try:
            os.rename(scratch, target)
        except OSError:
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def read_offset_checkpoint(path: Path) -> dict[str, int]:
    """Read a root's "topic partition offset" checkpoint, independently of kstore, into partition name -> offset."""
    lines = path.read_text().splitlines()[2:]
    return {f"{topic}-{number}": int(offset) for topic, number, offset in (line.split() for line in lines)}
