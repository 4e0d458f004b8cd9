"""What `recover` says yes to, `verify` says yes to: random damages of the side files of a root that a broker wrote, and
every recovery case.

A recovery says yes to a partition with a report that leaves no damage in place; to a root if it raises nothing.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple, get_args

from kstore.errors import KStoreError
from kstore.log.files.names import (
    CLEAN_SHUTDOWN_FILE,
    LOCK_FILE,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    QUARANTINE_DIRECTORY,
    RECOVERY_POINT_CHECKPOINT,
)
from kstore.log.recovery.context import LEFT_IN_PLACE
from kstore.log.recovery.modes import RecoveryMode
from kstore.store.checks import recover, verify
from kstore.store.opening import open_log
from kstore.store.upkeep.recovering import RecoveredPartition
from tests.golden.recovery_cases import NEW_SETS, Case, cases, copied
from tests.golden.sets import unpack
from tests.making.batches import write_offset_checkpoint

MODES: tuple[RecoveryMode, ...] = get_args(RecoveryMode)
DAMAGED_AT_ONCE = 16
Records = list[tuple[int, int, bytes | None, bytes | None]]


class Damage(NamedTuple):
    """A file of a root, relative to it, and what was done to it."""

    path: str
    kind: str


def _flip(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 4))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _digit(content: bytes, rng: random.Random) -> bytes:
    places = [at for at, byte in enumerate(content) if chr(byte).isdigit()]
    if not places:
        return _flip(content, rng)
    at = rng.choice(places)
    return content[:at] + rng.choice((b"0", b"9", b"77", b"x", b"")) + content[at + 1 :]


KINDS: dict[str, Callable[[bytes, random.Random], bytes | None]] = {
    "flipped": _flip,
    "digit changed": _digit,
    "emptied": lambda _, __: b"",
    "zeroed": lambda content, _: bytes(len(content)),
    "cut off": lambda content, rng: content[: rng.randrange(len(content) + 1)],
    "longer": lambda content, rng: content + rng.randbytes(rng.randrange(1, 40)),
    "doubled": lambda content, _: content * 2,
    "random": lambda content, rng: rng.randbytes(len(content) or 8),
    "removed": lambda _, __: None,
}
# Files that a crash may leave, by what they are copies of.
STRAYS = (".cleaned", ".swap", ".deleted", ".tmp")


def side_files(directory: Path) -> list[Path]:
    """Return the files of a partition that are no .log, and can be damaged."""
    return sorted(one for one in directory.iterdir() if one.is_file() and not one.name.endswith(LOG_SUFFIX))


def damage_one(root: Path, file: Path, rng: random.Random) -> Damage:
    """Damage a side file, or leave a stray copy of it."""
    name = str(file.relative_to(root))
    if rng.random() < 0.1 and file.name[:20].isdigit():
        kind = rng.choice(STRAYS)
        file.with_name(file.name + kind).write_bytes(_flip(file.read_bytes(), rng))
        return Damage(name, kind)
    kind = rng.choice([*KINDS])
    content = KINDS[kind](file.read_bytes(), rng)
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    return Damage(name, kind)


def damage_root(root: Path, rng: random.Random, *, count: int) -> list[Damage]:
    """Damage side files of so many partitions, one of each, and now and then one of the root's own files."""
    partitions = sorted(one for one in root.iterdir() if one.is_dir())
    damages = [damage_one(root, rng.choice(side_files(one)), rng) for one in rng.sample(partitions, count)]
    own = [one for one in side_files(root) if one.name not in (LOCK_FILE, CLEAN_SHUTDOWN_FILE)]
    if rng.random() < 0.5:
        damages.append(damage_one(root, rng.choice(own), rng))
    return damages


def is_yes(recovered: RecoveredPartition) -> bool:
    """Whether a recovery says that a partition is sound now."""
    report = recovered.report
    return report is not None and all(one.action != LEFT_IN_PLACE for one in report.outcomes)


def records_of(directory: Path) -> Records:
    with open_log(directory) as log:
        return [(one.offset, one.timestamp_ms, one.key, one.value) for one in log.read()]


def recovered_root(root: Path, mode: RecoveryMode) -> tuple[set[str], list[str]]:
    """Recover a root; return the names of the partitions it says yes to, and what `verify` says against that."""
    try:
        recovered = recover(root, mode)
    except KStoreError:
        assert not (root / CLEAN_SHUTDOWN_FILE).exists(), "refused, and marked as closed cleanly"
        return set(), []
    yes = {str(one.topic_partition) for one in recovered if is_yes(one)}
    if any(one.report is None for one in recovered):
        assert not (root / CLEAN_SHUTDOWN_FILE).exists(), "a partition was refused, and the root marked as clean"
    verified = verify(root)
    found = [one for one in verified.partitions if str(one.topic_partition) in yes]
    problems = [f"{one.path}: {one.reason}" for partition in found for one in partition.damage]
    return yes, problems + [f"{one.path}: {one.reason}" for one in verified.root_damage]


def damaged_root(base: Path, root: Path, *, seed: str) -> list[Damage]:
    """Copy a sound root and damage the copy."""
    shutil.copytree(base, root, ignore=shutil.ignore_patterns(QUARANTINE_DIRECTORY))
    (root / CLEAN_SHUTDOWN_FILE).unlink(missing_ok=True)
    return damage_root(root, random.Random(seed), count=DAMAGED_AT_ONCE)


def try_damages(base: Path, root: Path, *, seed: str, mode: RecoveryMode) -> int:
    """Copy a sound root, damage it, recover it; return how many damages there were.

    Raises: AssertionError if verify finds anything in what recover said yes to, or a record is gone.
    """
    damages = damaged_root(base, root, seed=seed)
    _, problems = recovered_root(root, mode)
    assert problems == [], f"{mode}, seed {seed}: {damages}: {problems}"
    return len(damages)


def broker_root(target: Path, *, most: int = 1000) -> Path:
    """Copy the sound ones among (at most so many) partitions that a broker of 4.4.0 recovered, and its root's files."""
    source = unpack("recovery-4.4.0", "trees") / "after-stopped"
    beyond = sorted(one.name for one in source.iterdir() if one.is_dir())[most:]
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(*beyond))
    for partition in verify(target).partitions:
        if partition.damage:
            shutil.rmtree(partition.path)
    return target


@cache
def shared_broker_root() -> Path:
    """Return such a root for every case of this process, which must not change it."""
    return broker_root(Path(tempfile.mkdtemp(prefix="kstore-broker-root-")) / "root")


def recovery_case(case: Case, root: Path) -> None:
    """Lay out a recovery case as a root, with the offsets of its checkpoints."""
    name = f"rec-{case.name}-0"
    root.mkdir()
    copied(case, root)
    offsets = {
        RECOVERY_POINT_CHECKPOINT: case.recovery_point,
        LOG_START_OFFSET_CHECKPOINT: case.log_start_offset,
    }
    for file, offset in offsets.items():
        if offset is not None:
            write_offset_checkpoint(root / file, {name: offset})


def check_case(seed: int, number: int) -> int:
    """Try a recovery case in every mode, or, after those, a root with random damages; return how many there were."""
    tried = cases(*NEW_SETS)
    with tempfile.TemporaryDirectory() as work:
        if number >= len(tried):
            mode = MODES[number % len(MODES)]
            return try_damages(shared_broker_root(), Path(work) / "root", seed=f"{seed}-{number}", mode=mode)
        for mode in MODES:
            root = Path(work) / mode
            recovery_case(tried[number], root)
            _, problems = recovered_root(root, mode)
            assert problems == [], f"{tried[number]}: {mode}: {problems}"
    return len(MODES)
