"""Goal: after a power cut at any call of a compaction or of retention, a log opens without a loss, and nothing that was
replaced or deleted is back. Method: random histories on a simulated disk that stops at a call; what may be left is
opened and held to everything that was appended."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kstore.config import LogConfig
from kstore.errors import KStoreError
from kstore.log.verify import verify
from kstore.log.write.writable_log import WritableLog
from kstore.record import Record
from kstore.store.opening import open_log
from tests.fakes.disk import DiskThatForgetsFiles, DiskThatForgetsNames, Inode, PowerCut, SimulatedDisk
from tests.making.compacting import NOW_MS, PATH, History, encoded

STEPS = 40
RETENTION_BYTES = 3000


def new_disk(disk_class: type[SimulatedDisk]) -> SimulatedDisk:
    disk = disk_class({})
    disk.directories |= {"/", "/root"}
    return disk


def run(history: History, disk: SimulatedDisk) -> None:
    """Go on with a history until the power fails."""
    log = None
    try:
        log = history.opened(disk)
        assert log.recovery_report.is_unharmed or log.log_end_offset >= history.flushed_end
        history.resume(log)
        check_files(history, disk)
        for _ in range(STEPS):
            history.pass_time(disk)
            history.step(log)
        history.compact(log)
        log.close()
    except PowerCut:
        if log is not None:
            abandon(log)


def abandon(log: WritableLog) -> None:
    """Let go of a log as a process does that dies."""
    log._dropping()


def check_files(history: History, disk: SimulatedDisk) -> None:
    with open_log(PATH, config=history.config, env=disk) as log:
        found = list(verify(log, env=disk))
        assert not found, found


def left_after(disk: SimulatedDisk, rng: random.Random) -> SimulatedDisk:
    left = disk.after_cut(rng)
    planted = type(disk)(left.names)
    planted.directories |= left.directories
    return planted


def cut_and_check(seed: int, *, disk_class: type[SimulatedDisk] = SimulatedDisk, cuts: int = 3) -> None:
    rng = random.Random(seed)
    history = History(rng, has_retention=rng.random() < 0.5)
    disk = new_disk(disk_class)
    for _ in range(cuts):
        disk.cut_at = disk.calls + rng.randint(1, 400)
        run(history, disk)
        disk = left_after(disk, rng)
    if rng.random() < 0.5:
        # Nobody needs to say that the log is compacted.
        history.config = replace(history.config, cleanup_policy="delete")
    with history.opened(disk) as log:
        history.resume(log)
    check_files(history, disk)


def states_of_one_compaction(seed: int) -> int:
    """Cut the power at each call of one compaction in turn; return how many states were looked at."""
    rng = random.Random(seed)
    history, disk = History(rng), new_disk(SimulatedDisk)
    history.config = replace(history.config, min_compaction_lag_ms=0)
    log = history.opened(disk)
    for _ in range(60):
        history.pass_time(disk)
        if rng.random() < 0.9:
            history.append(log)
        else:
            history.compact(log)
    while history.open:
        ending = history.marker(log.log_end_offset)
        history.appended.append(ending)
        log.append_as_follower(encoded(ending))
    log.roll()
    history.flushed_end = log.flush()
    names, directories = dict(disk.names), set(disk.directories)
    abandon(log)
    states = 0
    for cut in range(1, 10_000):
        copy = copied(names, directories)
        opened = history.opened(copy)
        copy.cut_at = copy.calls + cut
        is_cut = is_cut_while_compacting(opened)
        abandon(opened)
        for _ in range(2):
            left = left_after(copy, rng)
            again = History(random.Random(seed))
            again.config, again.appended, again.flushed_end = (
                history.config,
                list(history.appended),
                history.flushed_end,
            )
            with again.opened(left) as log:
                again.resume(log)
            check_files(again, left)
            states += 1
        if not is_cut:
            break
    return states


def copied(names: dict[str, Inode], directories: set[str]) -> SimulatedDisk:
    """Return a disk with copies of files, all durable."""
    disk = SimulatedDisk({path: Inode(bytes(inode.content)) for path, inode in names.items()})
    disk.directories |= directories
    return disk


def is_cut_while_compacting(log: WritableLog) -> bool:
    try:
        log.compact(drops_keyless=True)
    except PowerCut:
        return True
    return False


@pytest.mark.parametrize("seed", range(60))
def test_power_cuts_lose_and_bring_back_nothing(seed: int) -> None:
    cut_and_check(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 4000))
def test_many_power_cuts_lose_and_bring_back_nothing(seed: int) -> None:
    cut_and_check(seed)


@pytest.mark.parametrize("seed", range(2))
def test_every_call_of_a_compaction_may_be_the_last(seed: int) -> None:
    assert states_of_one_compaction(seed) > 20


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 60))
def test_every_call_of_many_compactions_may_be_the_last(seed: int) -> None:
    assert states_of_one_compaction(seed) > 20


def log_with_more_than_retention_bytes(disk: SimulatedDisk) -> WritableLog:
    """Open a log of three durable segments, whose size is due to a batch that is not durable yet."""
    config = LogConfig(segment_bytes=10_000, retention_bytes=RETENTION_BYTES, retention_ms=-1, file_delete_delay_ms=0)
    log = open_log(PATH, "a", config, env=disk)
    for _ in range(3):
        log.append(Record(timestamp_ms=NOW_MS, value=bytes(500)))
        log.roll()
    log.flush()
    log.append(Record(timestamp_ms=NOW_MS, value=bytes(RETENTION_BYTES)))
    return log


def test_what_a_deletion_is_decided_by_is_durable_before_it() -> None:
    is_cut, cut = True, 0
    while is_cut:
        disk, cut, is_cut = new_disk(SimulatedDisk), cut + 1, False
        log = log_with_more_than_retention_bytes(disk)
        disk.cut_at = disk.calls + cut
        try:
            assert [one.base_offset for one in log.delete_old_segments(NOW_MS)] == [0, 1, 2]
        except PowerCut:
            is_cut = True
        abandon(log)
        for left in disk.states_after_cut(random.Random(cut), most_units=5):
            with open_log(PATH, "a", log.config, env=left) as found:
                assert found.log_start_offset == 0 or found.size_in_bytes > RETENTION_BYTES
    assert cut > 5


@pytest.mark.parametrize("disk_class", [DiskThatForgetsFiles, DiskThatForgetsNames])
def test_a_compaction_that_does_not_sync_is_noticed(disk_class: type[SimulatedDisk]) -> None:
    found = 0
    for seed in range(30):
        try:
            cut_and_check(seed, disk_class=disk_class)
        except (AssertionError, KStoreError):
            found += 1
    assert found
