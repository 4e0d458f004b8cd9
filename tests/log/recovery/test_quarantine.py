"""Goal: what recovery takes out of a partition is kept, durably, before it is gone from its place.
Method: a disk in memory that may lose what was not synced; its calls are listed in their order."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kstore.env import LocalEnv
from kstore.log.recovery.files import Quarantine
from tests.fakes.disk import SimulatedDisk

LOG = "00000000000000000000.log"


class NotingEnv(LocalEnv):
    """Notes the directories that are made and synced."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def make_directory(self, path: str) -> bool:
        self.calls.append(("make", Path(path).name))
        return super().make_directory(path)

    def sync_directory(self, path: str) -> None:
        self.calls.append(("sync", Path(path).name))
        super().sync_directory(path)


def disk_with(content: bytes) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("/t-0")
    with disk.open_write(f"/t-0/{LOG}") as file:
        file.pwrite(content, position=0)
        file.sync()
    disk.sync_directory("/t-0")
    return disk


@pytest.mark.parametrize("seed", range(20))
def test_copy_of_a_range_survives_a_power_cut(seed: int) -> None:
    disk = disk_with(b"0123456789" * 100)
    quarantine = Quarantine("/t-0", env=disk, is_on=True)
    quarantine.keep_range(f"/t-0/{LOG}", position=5, size_in_bytes=700)
    (kept,) = quarantine.kept
    directory, _, name = kept.rpartition("/")
    left = disk.after_cut(random.Random(seed)).state(directory)
    assert left == {name: (b"0123456789" * 100)[5:705]}


def test_directory_of_copies_is_durable_before_anything_is_in_it(tmp_path: Path) -> None:
    partition = tmp_path / "t-0"
    partition.mkdir()
    (partition / LOG).write_bytes(b"lost")
    env = NotingEnv()
    quarantine = Quarantine(str(partition), env=env, is_on=True)
    quarantine.keep_range(str(partition / LOG), position=0, size_in_bytes=4)
    name = Path(quarantine.kept[0]).parent.name
    assert env.calls == [("make", name), ("sync", "t-0"), ("sync", name)]


def test_copies_of_one_place_stand_beside_each_other() -> None:
    disk = disk_with(b"lost")
    for content in (b"lost", b"gone", b"left"):
        with disk.open_write(f"/t-0/{LOG}") as file:
            file.pwrite(content, position=0)
        Quarantine("/t-0", env=disk, is_on=True).keep_range(f"/t-0/{LOG}", position=0, size_in_bytes=4)
    (directory,) = disk.directories - {"/t-0", "/"}
    assert set(disk.state(directory).values()) == {b"lost", b"gone", b"left"}
