"""A log whose files somebody else removes, replaces, truncates or writes, and an Env that does so before the n-th call
of the system. No second process."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

from kstore.env import FileStatus, LocalEnv, LocalFile
from tests.making.batches import batch, batches, grow, write_partition

Change = Callable[[Path], object]
Item = TypeVar("Item")
COUNT = 30
SEGMENTS = (0, 10, 20)
# Far more than any use of this log has.
MOST_CALLS = 20_000


def log_file(directory: Path, base_offset: int) -> Path:
    return directory / f"{base_offset:020d}.log"


@cache
def content(value_bytes: int) -> dict[str, bytes]:
    """The files of thirty records in three segments."""
    with tempfile.TemporaryDirectory() as root:
        segments = [batches(first, 10, value_bytes=value_bytes) for first in SEGMENTS]
        return {file.name: file.read_bytes() for file in write_partition(Path(root), segments).iterdir()}


def history(root: Path, *, value_bytes: int = 50) -> Path:
    """A partition of thirty records; values of another size make another history."""
    directory = root / "t-0"
    directory.mkdir(parents=True)
    for name, data in content(value_bytes).items():
        (directory / name).write_bytes(data)
    return directory


def recreate(directory: Path) -> None:
    """Delete the topic, as a broker does, and make it again with other records."""
    directory.rename(directory.with_name(f"{directory.name}.0123456789abcdef-delete"))
    history(directory.parent, value_bytes=90)


def remove_and_recreate(directory: Path) -> None:
    shutil.rmtree(directory)
    history(directory.parent, value_bytes=90)


def delete_first_segment(directory: Path) -> None:
    for file in directory.glob(f"{0:020d}.*"):
        file.rename(f"{file}.deleted")


def remove_first_segment(directory: Path) -> None:
    for file in directory.glob(f"{0:020d}.*"):
        file.unlink()


def compact(directory: Path) -> None:
    """Put one segment with every other batch in place of the first two, as the cleaner does at the end of a round."""
    kept = b"".join([*batches(0, 10, value_bytes=50)[::2], *batches(10, 10, value_bytes=50)[::2]])
    swap = directory / f"{0:020d}.log.swap"
    swap.write_bytes(kept)
    for base_offset in (10, 0):
        for file in directory.glob(f"{base_offset:020d}.*[gx]"):
            file.rename(f"{file}.deleted")
    swap.rename(log_file(directory, 0))


def truncate_and_append(directory: Path) -> None:
    """Truncate the active segment in place, as a follower does, and append other batches."""
    log = log_file(directory, 20)
    kept = log.read_bytes()[: len(b"".join(batches(20, 4, value_bytes=50)))]
    os.truncate(log, len(kept))
    grow(log, b"".join(batches(24, 12, value_bytes=77)))
    for suffix in (".index", ".timeindex"):
        log.with_suffix(suffix).write_bytes(b"")


def truncate(directory: Path) -> None:
    for suffix in (".index", ".timeindex", ".log"):
        os.truncate(log_file(directory, 20).with_suffix(suffix), 0)


def remove_directory(directory: Path) -> None:
    """Delete the topic, and don't make it again."""
    directory.rename(directory.with_name(f"{directory.name}.0123456789abcdef-delete"))


def remove_segments(directory: Path) -> None:
    """As in the middle of a truncation of everything, before the new segment is made."""
    for file in directory.glob("*.*[gx]"):
        file.unlink()


def begin_again(directory: Path) -> None:
    """Truncate everything, and go on at an offset above the old end."""
    remove_segments(directory)
    log_file(directory, 40).write_bytes(b"".join(batches(40, 12, value_bytes=77)))


def truncate_and_append_to_first_segment(directory: Path) -> None:
    """Truncate into the first segment, and append there what reaches into the offsets of those that are gone."""
    log = log_file(directory, 0)
    kept = len(b"".join(batches(0, 9, value_bytes=50)))
    for base_offset in SEGMENTS[1:]:
        for file in directory.glob(f"{base_offset:020d}.*"):
            file.unlink()
    os.truncate(log, kept)
    for suffix in (".index", ".timeindex"):
        log.with_suffix(suffix).write_bytes(b"")
    grow(log, batch(9, 4, value_bytes=50) + b"".join(batches(13, 20, value_bytes=50)))


CHANGES: dict[str, Change] = {
    change.__name__: change
    for change in (
        remove_directory,
        remove_segments,
        begin_again,
        truncate_and_append_to_first_segment,
        recreate,
        remove_and_recreate,
        delete_first_segment,
        remove_first_segment,
        compact,
        truncate_and_append,
        truncate,
    )
}


# The directory is another one then, or none.
GONE = ("recreate", "remove_and_recreate", "remove_directory")


class ChangingEnv(LocalEnv):
    """Changes the files before the call with a number; calls counts them."""

    def __init__(self, change: Callable[[], object] | None = None, *, at: int = -1) -> None:
        self.calls = 0
        self._change = change
        self._at = at
        self._stepping = threading.Lock()

    def step(self) -> None:
        with self._stepping:
            if self.calls == self._at and self._change is not None:
                self._change()
            self.calls += 1
            assert self.calls < MOST_CALLS, "a reader does not end"

    def open_read(self, path: str) -> LocalFile:
        self.step()
        file = super().open_read(path)
        return SteppingFile(file, self)

    def stat(self, path: str, *, follow_symlinks: bool = True) -> FileStatus | None:
        self.step()
        return super().stat(path, follow_symlinks=follow_symlinks)

    def listdir(self, path: str) -> list[str]:
        self.step()
        return super().listdir(path)


class SteppingFile(LocalFile):
    def __init__(self, file: LocalFile, env: ChangingEnv) -> None:
        super().__init__(file._fd, path=file.path)
        self._env = env

    def pread(self, size: int, *, position: int) -> bytes:
        self._env.step()
        return super().pread(size, position=position)

    def pread_into(self, buffer: bytearray | memoryview, *, position: int) -> int:
        self._env.step()
        return super().pread_into(buffer, position=position)
