"""Goal: after a power cut at any call a log opens, with every flushed record and no other than what was appended next.
Method: a script runs on a simulated disk that stops at a call; what may be left of it is opened and held to a list."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from kstore.errors import KStoreError, LogFailedError
from kstore.log.files.names import base_offset_file_name
from kstore.log.verify import verify
from kstore.log.write.writable_log import WritableLog
from kstore.record import MemoryRecords, Record
from kstore.store.opening import open_log
from kstore.types import TimestampType
from tests.crash.test_writer_faults import CONFIG, TIMESTAMP_MS
from tests.fakes.disk import DiskThatForgetsFiles, DiskThatForgetsNames, PowerCut, SimulatedDisk
from tests.making.batches import batch

PATH = "/root/t-0"
STEPS = 40


class Script:
    """Random steps on one log; flushed: values that must be there, values: those that may be there behind them.

    cut_to: while a truncation runs, where it goes.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.config = replace(CONFIG, preallocate=rng.random() < 0.5)
        self.values: list[bytes] = []
        self.flushed = 0
        self.cut_to: int | None = None
        self.serial = 0

    def run(self, disk: SimulatedDisk) -> None:
        # Not closed when the power fails: nobody is left to do it.
        try:
            log = open_log(PATH, "a", self.config, env=disk)
            self.check(log)
            self.verify(disk)
            for _ in range(STEPS):
                self.step(log)
                self.flushed = max(self.flushed, log.flushed_offset)
            log.close()
            self.flushed = len(self.values)
        except PowerCut:
            pass

    def step(self, log: WritableLog) -> None:
        choice = self.rng.random()
        if choice < 0.6:
            self.append(log, ack="written" if choice < 0.4 else "flushed")
        elif choice < 0.7:
            log.roll()
        elif choice < 0.8:
            self.flushed = log.flush()
        elif choice < 0.9 and self.values:
            self.truncate(log, self.rng.randint(max(len(self.values) - 6, 0), len(self.values) - 1))

    def append(self, log: WritableLog, *, ack: str, sizes: Sequence[int] = (10, 300, 900)) -> None:
        self.serial += 1
        value = f"{self.serial}-".encode().ljust(self.rng.choice(sizes), b"%d" % (self.serial % 10))
        self.values.append(value)
        timestamp_ms = TIMESTAMP_MS + self.serial
        kind = TimestampType.CREATE_TIME
        done = log.append([Record(offset=0, timestamp_ms=timestamp_ms, value=value, timestamp_type=kind)], ack=ack)
        if ack == "flushed":
            self.flushed = max(self.flushed, done.last_offset + 1)

    def truncate(self, log: WritableLog, offset: int) -> None:
        self.cut_to = offset
        log.truncate_to(offset)
        self.cut_to = None
        del self.values[offset:]
        self.flushed = min(self.flushed, offset)

    def check(self, log: WritableLog) -> None:
        """Hold a log against the script so far, and go on from what it has."""
        found = [record.value for record in log.read()]
        least = self.flushed if self.cut_to is None else min(self.flushed, self.cut_to)
        assert least <= len(found) == log.log_end_offset
        assert found == self.values[: len(found)]
        self.values, self.flushed, self.cut_to = found, least, None

    def verify(self, disk: SimulatedDisk) -> None:
        """Hold every file against the log: what is left of a crash is what a broker would leave."""
        with open_log(PATH, config=self.config, env=disk) as log:
            assert list(verify(log, env=disk)) == []


class BusyDisk(SimulatedDisk):
    """Lets other threads in while a .log is synced."""

    beside: Callable[[], None] | None = None

    def while_syncing(self, path: str) -> None:
        if self.beside is not None and path.endswith(".log"):
            self.beside()


class BusyScript(Script):
    """While the first thread waits for a sync, others append: some end before the sync does, one waits for the next."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.first = threading.current_thread()
        self.waiting: list[threading.Thread] = []
        self.is_cut = False

    def step(self, log: WritableLog) -> None:
        disk = log._env
        assert isinstance(disk, BusyDisk)
        disk.beside = lambda: self.append_beside(log)
        try:
            super().step(log)
        finally:
            disk.beside = None
            for thread in self.waiting:
                thread.join()
            self.waiting = []
        if self.is_cut:
            raise PowerCut

    def append_beside(self, log: WritableLog) -> None:
        # Not while the log is rolled or cut, and nothing that rolls, since that waits for the next sync itself.
        is_free = not log._gate.append_lock.locked() and log.segments[-1].size_in_bytes <= CONFIG.segment_bytes // 2
        if threading.current_thread() is not self.first or not is_free:
            return
        for ack in self.rng.choice([[], ["written"], ["written", "written"], ["flushed"], ["written", "flushed"]]):
            written = threading.Event()
            thread = threading.Thread(target=self.append_in_thread, args=(log, ack, written))
            thread.start()
            written.wait()
            if ack == "written":
                thread.join()
            else:
                self.waiting.append(thread)
            if self.is_cut:
                raise PowerCut

    def append_in_thread(self, log: WritableLog, ack: str, written: threading.Event) -> None:
        """An append that is to be flushed is written once it has come to wait for the flush that runs."""
        group = log._durability._group
        try:
            if ack == "flushed":
                self.append(log, ack="written", sizes=(10,))
                end = len(self.values)
                written.set()
                self.flushed = max(self.flushed, group.wait_until(end))
            else:
                self.append(log, ack=ack, sizes=(10,))
        except PowerCut:
            self.is_cut = True
        except LogFailedError:
            # The power failed in another thread.
            assert self.is_cut or log.has_failed
        finally:
            written.set()


def cut_and_check(
    seed: int,
    *,
    disk_class: type[SimulatedDisk] = SimulatedDisk,
    script_class: type[Script] = Script,
    cuts: int = 3,
) -> None:
    rng = random.Random(seed)
    script = script_class(rng)
    disk = disk_class({})
    disk.directories |= {"/", "/root"}
    for _ in range(cuts):
        disk.cut_at = disk.calls + rng.randint(1, 150)
        script.run(disk)
        left = disk.after_cut(rng)
        planted = disk_class(left.names)
        planted.directories |= left.directories
        disk = planted
    with open_log(PATH, "a", script.config, env=disk) as log:
        script.check(log)
        script.append(log, ack="flushed")
    script.verify(disk)
    with open_log(PATH, "a", script.config, env=disk) as log:
        script.check(log)


@pytest.mark.parametrize("seed", range(60))
def test_flushed_records_survive_power_cuts(seed: int) -> None:
    cut_and_check(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 3000))
def test_flushed_records_survive_many_power_cuts(seed: int) -> None:
    cut_and_check(seed)


@pytest.mark.parametrize("seed", range(60))
def test_records_flushed_while_other_threads_append_survive_power_cuts(seed: int) -> None:
    cut_and_check(seed, disk_class=BusyDisk, script_class=BusyScript)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 3000))
def test_records_flushed_while_other_threads_append_survive_many_power_cuts(seed: int) -> None:
    cut_and_check(seed, disk_class=BusyDisk, script_class=BusyScript)


def test_append_that_comes_while_a_sync_runs_is_not_durable_by_it() -> None:
    disk = BusyDisk()
    disk.directories |= {"/", "/root"}
    log = open_log(PATH, "a", CONFIG, env=disk)
    log.append(MemoryRecords(batch(0, 2)))

    def append_once() -> None:
        disk.beside = None
        log.append(MemoryRecords(batch(0, 3)))

    disk.beside = append_once
    assert (log.flush(), log.log_end_offset, log.flushed_offset) == (2, 5, 2)
    assert log.append(MemoryRecords(batch(0, 1)), ack="flushed").last_offset == 5
    assert log.flushed_offset == 6


@pytest.mark.parametrize("is_rolled", [False, True], ids=["one segment", "two segments"])
def test_flush_covers_what_a_killed_broker_had_not_synced(is_rolled: bool) -> None:
    disk = SimulatedDisk({})
    disk.directories |= {"/", "/root", PATH}
    for first in (0, 2):
        name = base_offset_file_name(first if is_rolled else 0, suffix=".log")
        with disk.open_write(f"{PATH}/{name}") as file:
            file.pwrite(batch(first, 2), position=file.size())
    log = open_log(PATH, "a", env=disk)
    assert log.flush() == 4
    for seed in range(30):
        with open_log(PATH, "a", env=disk.after_cut(random.Random(seed))) as again:
            assert [record.offset for record in again.read()] == [0, 1, 2, 3]


def test_truncation_is_durable_when_it_returns() -> None:
    disk = SimulatedDisk()
    disk.directories |= {"/", "/root"}
    log = open_log(PATH, "a", CONFIG, env=disk)
    for _ in range(3):
        log.append(MemoryRecords(batch(0, 2)), ack="flushed")
    log.truncate_to(2)
    for seed in range(30):
        with open_log(PATH, "a", env=disk.after_cut(random.Random(seed))) as again:
            assert [record.offset for record in again.read()] == [0, 1]


@pytest.mark.parametrize("disk_class", [DiskThatForgetsFiles, DiskThatForgetsNames])
def test_a_writer_that_does_not_sync_is_noticed(disk_class: type[SimulatedDisk]) -> None:
    found = 0
    for seed in range(30):
        try:
            cut_and_check(seed, disk_class=disk_class)
        except (AssertionError, KStoreError):
            found += 1
    assert found
