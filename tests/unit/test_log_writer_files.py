"""Goal: what a writer holds on the disk is its own, given back in order, and missed in time: space, files, locks.
Method: real directories in which files, directories and locks are taken away or refused under an open log."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kstore.config import LogConfig
from kstore.errors import StorageError
from kstore.log import open_log
from kstore.log.durable_point import DurablePoint, DurablePointFile
from kstore.log.env import Env, WriteFile
from kstore.log.filenames import RECOVERY_POINT_CHECKPOINT
from kstore.log.root_checkpoints import read_checkpoint
from kstore.log.verify import verify
from kstore.log.writable_log import WritableLog
from kstore.record import MemoryRecords
from kstore.types import TopicPartition
from tests.builders import batch
from tests.record_files import failing
from tests.simulated_disk import SimulatedDisk


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "t-0"


def sent(count: int) -> MemoryRecords:
    """A batch as a producer sends it: offsets from 0."""
    return MemoryRecords(batch(0, count))


def offsets(log: WritableLog) -> list[int]:
    return [record.offset for record in log.read()]


# Preallocated space


def test_first_segment_of_a_log_is_preallocated_too(directory: Path) -> None:
    config = LogConfig(preallocate=True, segment_bytes=100_000)
    path = directory / "00000000000000000000.log"
    for _ in range(2):
        # The second time it is there, and empty.
        with open_log(directory, "a", config) as log:
            assert (path.stat().st_size, log.size_in_bytes) == (100_000, 0)
        assert path.stat().st_size == 0
    with open_log(directory, "a", config) as log:
        log.append(sent(1))
        assert path.stat().st_size == 100_000
    size = path.stat().st_size
    with open_log(directory, "a", config) as log:
        assert offsets(log) == [0]
        assert path.stat().st_size == size < 1000


def test_empty_segment_without_space_for_its_preallocation_stays_empty(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_log(directory, "a").close()

    def take_a_part(fd: int, position: int, size: int) -> None:
        os.ftruncate(fd, position + size // 2)
        raise OSError(errno.ENOSPC, "planted")

    monkeypatch.setattr(os, "posix_fallocate", take_a_part)
    with pytest.raises(StorageError) as caught:
        open_log(directory, "a", LogConfig(preallocate=True, segment_bytes=100_000))
    assert caught.value.errno == errno.ENOSPC
    assert (directory / "00000000000000000000.log").stat().st_size == 0


class SizesDisk(SimulatedDisk):
    """Notes, when a file is made, what would be left of the first segment if the power failed now."""

    def __init__(self) -> None:
        super().__init__()
        self.directories |= {"/", "/root"}
        self.left: dict[str, int] = {}

    def open_write(self, path: str) -> WriteFile:
        first = self.names.get(f"/root/t-0/{0:020d}.log")
        if first is not None and path not in self.names:
            self.left[path.rpartition("/")[2]] = len(first.durable)
        return super().open_write(path)


def test_roll_trims_a_segment_durably_before_it_makes_a_file_of_the_next() -> None:
    disk = SizesDisk()
    with open_log("/root/t-0", "a", LogConfig(preallocate=True, segment_bytes=100_000), env=disk) as log:
        log.append(sent(2), ack="flushed")
        log.append(sent(2))
        size = log.segments[0].size_in_bytes
        log.roll()
        made = {name: left for name, left in disk.left.items() if name.startswith(f"{4:020d}")}
        assert made.keys() >= {f"{4:020d}.log", f"{4:020d}.index", f"{4:020d}.timeindex"}
        assert set(made.values()) == {size}


def test_segment_that_could_not_be_rolled_goes_on(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was trimmed, and has the last entry of its time index."""
    with open_log(directory, "a", LogConfig(preallocate=True, segment_bytes=100_000)) as log:
        log.append(sent(2))
        with monkeypatch.context() as patched:
            patched.setattr(os, "posix_fallocate", failing(errno.ENOSPC))
            with pytest.raises(StorageError):
                log.roll()
        assert not log.has_failed
        log.append(sent(2))
        assert offsets(log) == list(range(4))
        assert log.roll() == 4
        log.append(sent(1))
    with open_log(directory) as reader:
        assert [segment.base_offset for segment in reader.segments] == [0, 4]
        assert list(verify(reader)) == []


# Checkpoints


@pytest.mark.parametrize("offset", [4, 3, 0], ids=["by-one", "by-two", "wholly"])
def test_checkpoint_never_calls_durable_what_a_truncation_took(directory: Path, offset: int) -> None:
    with open_log(directory, "a") as log:
        for _ in range(5):
            log.append(sent(1))
    with open_log(directory, "a") as log:
        assert checkpointed(directory) == 5
        log.truncate_to(offset)
        assert checkpointed(directory) == offset
        assert DurablePointFile(str(directory)).read() in (None, DurablePoint(offset, 0, log.size_in_bytes))


def checkpointed(directory: Path) -> int:
    return read_checkpoint(str(directory.parent), RECOVERY_POINT_CHECKPOINT, Env())[TopicPartition("t", 0)]
