"""Goal: after a power cut at any call a log opens, with every flushed record and no other than what was appended next.
Method: a script runs on a simulated disk that stops at a call; what may be left of it is opened and held to a list."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kstore.errors import KStoreError
from kstore.log import open_log
from kstore.log.filenames import base_offset_file_name
from kstore.log.verify import verify
from kstore.log.writable_log import WritableLog
from kstore.record import Record
from kstore.types import TimestampType
from tests.builders import batch
from tests.crash.test_writer_faults import CONFIG, TIMESTAMP_MS
from tests.simulated_disk import DiskThatForgetsFiles, DiskThatForgetsNames, PowerCut, SimulatedDisk

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
            log.flush()
            self.flushed = len(self.values)
        elif choice < 0.9 and self.values:
            self.truncate(log, self.rng.randint(max(len(self.values) - 6, 0), len(self.values) - 1))

    def append(self, log: WritableLog, *, ack: str) -> None:
        self.serial += 1
        value = f"{self.serial}-".encode().ljust(self.rng.choice([10, 300, 900]), b"%d" % (self.serial % 10))
        self.values.append(value)
        timestamp_ms = TIMESTAMP_MS + self.serial
        kind = TimestampType.CREATE_TIME
        log.append([Record(offset=0, timestamp_ms=timestamp_ms, value=value, timestamp_type=kind)], ack=ack)
        if ack == "flushed":
            self.flushed = len(self.values)

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


def cut_and_check(seed: int, *, disk_class: type[SimulatedDisk] = SimulatedDisk, cuts: int = 3) -> None:
    rng = random.Random(seed)
    script = Script(rng)
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


@pytest.mark.parametrize("disk_class", [DiskThatForgetsFiles, DiskThatForgetsNames])
def test_a_writer_that_does_not_sync_is_noticed(disk_class: type[SimulatedDisk]) -> None:
    found = 0
    for seed in range(30):
        try:
            cut_and_check(seed, disk_class=disk_class)
        except (AssertionError, KStoreError):
            found += 1
    assert found
