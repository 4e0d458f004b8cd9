"""Crash states of a log on the simulated disk, each opened and held to its history.

Two parts. `histories`: random operations, cut off at random calls, also while the log is opened after the cut before.
`pairs`: every pair of operations after a short history, cut off before every call that changes something; of what was
not synced then, every selection persists, up to a bound (SimulatedDisk.states_after_cut).
"""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

from kstore.log.files.names import CLEAN_SHUTDOWN_FILE, TRANSACTION_INDEX_SUFFIX
from kstore.log.files.transaction_index import AbortedTxn, decode_aborted_txns
from kstore.log.write.writable_log import WritableLog
from tests.crash.crash_history import ALL_OPERATIONS, WEIGHTS, CrashEnv, CrashHistory, abandon, check_files
from tests.fakes.disk import Inode, PowerCut, SimulatedDisk, WatchedDisk
from tests.making.compacting import encoded, stored
from tests.reference.compaction import ModelBatch

STEPS = 40
CUTS = 4
LONGEST_LIFE = 250
PAIRS = tuple(product(ALL_OPERATIONS, repeat=2))
MOST_UNITS = 5
_FIRST_STEPS = 14
CLEAN_SHUTDOWN = f"/root/{CLEAN_SHUTDOWN_FILE}"


def new_disk(disk_class: type[SimulatedDisk] = SimulatedDisk) -> SimulatedDisk:
    disk = disk_class({})
    disk.directories |= {"/", "/root"}
    return disk


def as_durable(names: dict[str, Inode], directories: set[str], disk_class: type[SimulatedDisk]) -> SimulatedDisk:
    """Return a disk with copies of files, all durable."""
    disk = disk_class({path: Inode(bytes(inode.content)) for path, inode in names.items()})
    disk.directories |= directories
    return disk


def check_state(history: CrashHistory, disk: SimulatedDisk) -> None:
    """Open what a crash left: it is of the history, every file is right, and another opening changes nothing."""
    is_clean = CLEAN_SHUTDOWN in disk.names
    log = history.opened_by(disk)
    history.settle(log)
    found = stored(log)
    abandon(log)
    if is_clean:
        # It was not recovered, as nothing had to be.
        abandon(history.opened_by(disk))
    files = disk.files()
    check_files(history, disk)
    again = history.opened_by(disk)
    assert stored(again) == found
    history.check_committed(again, found, history.appended)
    assert (again.log_start_offset, again.log_end_offset) == (log.log_start_offset, log.log_end_offset)
    check_same_files(files, disk.files(), found)
    history.append_flushed(again)
    history.check_history(again, stored(again))
    abandon(again)


def check_same_files(before: dict[str, bytes], after: dict[str, bytes], found: list[ModelBatch]) -> None:
    """Another opening changed no file, except that a .txnindex may have lost or got an aborted transaction whose data
    is gone, or have it begin elsewhere where data is gone: it may know of other snapshots."""
    for path in [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]:
        assert path.endswith(TRANSACTION_INDEX_SUFFIX), path
        base_offset = int(path.rpartition("/")[2].partition(".")[0])
        old, new = (
            {one.last_offset: one for one in entries(data.get(path, b""), base_offset)} for data in (before, after)
        )
        for at in old.keys() | new.keys():
            one, other = old.get(at) or new[at], new.get(at) or old[at]
            assert one.producer_id == other.producer_id, path
            begins = one.first_offset, other.first_offset
            gone = range(min(begins), max(begins) if at in old and at in new else at)
            left = [
                record.offset for batch in found if batch.producer_id == one.producer_id for record in batch.records
            ]
            assert not [offset for offset in left if offset in gone], (path, one, other)


def entries(content: bytes, base_offset: int) -> tuple[AbortedTxn, ...]:
    return tuple(decode_aborted_txns(content, base_offset=base_offset, path=""))


def live(history: CrashHistory, disk: CrashEnv, *, steps: int = STEPS) -> None:
    """Open the log, and operate it until the power fails."""
    log: WritableLog | None = None
    names, weights = [*WEIGHTS], [*WEIGHTS.values()]
    try:
        log = history.opened_by(disk)
        history.settle(log)
        for _ in range(steps):
            history.pass_time(disk)
            log = history.operate(history.rng.choices(names, weights)[0], log, disk)
        history.close(log)
    except PowerCut:
        if log is not None:
            abandon(log)


def states_of_history(seed: int | str, *, disk_class: type[SimulatedDisk] = SimulatedDisk) -> int:
    """Cut a random history off several times; return how many states were looked at."""
    rng = random.Random(seed)
    history, disk = CrashHistory(rng), new_disk(disk_class)
    for _ in range(CUTS):
        disk.cut_at = disk.calls + rng.randint(1, LONGEST_LIFE)
        live(history, disk)
        left = disk.after_cut(rng)
        disk = as_durable(left.names, left.directories, disk_class)
        check_state(history.copy(), as_durable(disk.names, disk.directories, SimulatedDisk))
    return CUTS


def begun(seed: int | str) -> tuple[CrashHistory, SimulatedDisk]:
    """Return a short history that has something for each operation: segments, old keys, a clock that went on."""
    history, disk = CrashHistory(random.Random(seed), has_retention=True), new_disk()
    history.key_count = 3
    history.config = replace(
        history.config, cleanup_policy="compact,delete", retention_bytes=2000, min_compaction_lag_ms=0
    )
    log = history.opened_by(disk)
    for number in range(_FIRST_STEPS):
        history.pass_time(disk)
        history.append(log)
        if number % 5 == 4:
            log.roll()
    while history.open:
        ending = history.marker(log.log_end_offset)
        history.appended.append(ending)
        log.append_as_follower(encoded(ending, leader_epoch=history.leader_epoch))
    log.roll()
    history.flush(log)
    abandon(log)
    return history, disk


def states_of_pair(seed: int | str, first: str, second: str, *, most_units: int = MOST_UNITS) -> int:
    """Cut two operations off before each call, in every way; return how many states were looked at."""
    history, before = begun(seed)
    disk = as_durable(before.names, before.directories, WatchedDisk)
    assert isinstance(disk, WatchedDisk)
    seen: set[int] = set()
    count = 0
    log = history.opened_by(disk)

    def look() -> None:
        nonlocal count
        choice = random.Random(f"{seed}-{first}-{second}-{disk.calls}")
        for left in disk.states_after_cut(choice, most_units=most_units):
            state = hash((frozenset(left.files().items()), history.told()))
            if state not in seen:
                seen.add(state)
                check_state(history.copy(), left)
                count += 1

    disk.before_call = look
    for name in (first, second):
        log = history.operate(name, log, disk)
    look()
    disk.before_call = None
    abandon(log)
    return count
