"""Real file systems whose power fails: an image behind a loop device, shut down by an ioctl, and an Env that does it.

The ioctl (EXT4_IOC_SHUTDOWN, XFS_IOC_GOINGDOWN) with "no log flush" leaves what the device got so far; nothing that is
still in memory follows. Needs root, loop devices, mkfs and mount.
"""

from __future__ import annotations

import fcntl
import gc
import os
import random
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.fakes.disk import PowerCut
from tests.fakes.faults import FaultyEnv
from tests.making.in_memory import IN_MEMORY

_GOING_DOWN = 0x8004587D
_NO_LOG_FLUSH = struct.pack("I", 2)
_PAGE_BYTES = 4096


class FileSystem(NamedTuple):
    """A kind of file system: its mkfs, the size of an image, and the options of mount."""

    name: str
    make: tuple[str, ...]
    size_bytes: int
    mount_options: str = ""


FILE_SYSTEMS = {
    one.name: one
    for one in (
        FileSystem("ext4", ("mkfs.ext4", "-q", "-F"), 64 << 20),
        FileSystem("ext4-writeback", ("mkfs.ext4", "-q", "-F"), 64 << 20, "data=writeback"),
        FileSystem("ext4-nodelalloc", ("mkfs.ext4", "-q", "-F"), 64 << 20, "nodelalloc"),
        FileSystem("xfs", ("mkfs.xfs", "-q", "-f"), 320 << 20),
    )
}


class MissingMeansError(Exception):
    """This machine has no way to cut the power of that file system."""


class LoopImage:
    """A file system in an image, mounted; a context manager that takes it all away."""

    def __init__(self, kind: FileSystem) -> None:
        self._kind = kind
        self._directory = Path(tempfile.mkdtemp(prefix="kstore-power-", dir=IN_MEMORY))
        self._image = self._directory / "image"
        self.path = self._directory / "mount"
        self._is_mounted = False

    def __enter__(self) -> LoopImage:
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.unmount()
        self._remove()

    def _make(self) -> None:
        if os.geteuid() != 0:
            raise MissingMeansError("only root may mount a file system")
        for program in (self._kind.make[0], "mount", "umount"):
            if shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None:
                raise MissingMeansError(f"no {program}")
        with self._image.open("wb") as file:
            file.truncate(self._kind.size_bytes)
        self.path.mkdir()
        self._run(*self._kind.make, str(self._image))
        self.mount()

    def _remove(self) -> None:
        shutil.rmtree(self._directory)

    def mount(self) -> None:
        options = ",".join(filter(None, ("loop", self._kind.mount_options)))
        self._run("mount", "-o", options, str(self._image), str(self.path))
        self._is_mounted = True

    def unmount(self) -> None:
        if self._is_mounted:
            # What an interrupted call left open goes with its frames.
            gc.collect()
            self._run("umount", str(self.path))
            self._is_mounted = False

    def cut(self) -> None:
        """Shut the file system down; every call on it fails from now on."""
        directory = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(directory, _GOING_DOWN, _NO_LOG_FLUSH)
        finally:
            os.close(directory)

    def _run(self, *command: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise MissingMeansError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")


class CuttingEnv(FaultyEnv):
    """The files of an image whose power fails at a call; now and then some of their pages are written back before.

    Attributes: cut_at (the call, None for never).
    """

    def __init__(self, image: LoopImage, rng: random.Random, *, cut_at: int | None = None) -> None:
        super().__init__()
        self.cut_at = cut_at
        self._image = image
        self._rng = rng
        self._now_ms = 0
        self._is_cut = False

    def check(self, call: str, path: str) -> bool:
        del call, path
        self.calls += 1
        if self.cut_at is not None and self.calls >= self.cut_at:
            if not self._is_cut:
                self._is_cut = True
                self._stir()
                self._image.cut()
            raise PowerCut
        if self._rng.random() < 0.05:
            self._stir()
        return False

    def wall_clock_ms(self) -> int:
        return self._now_ms

    def _stir(self) -> None:
        """Begin to write some pages of some files back, or let another file's sync commit what the journal has."""
        if self._rng.random() < 0.3:
            with (self._image.path / "another").open("wb") as file:
                file.write(b"x" * self._rng.randint(1, 3 * _PAGE_BYTES))
                file.flush()
                os.fsync(file.fileno())
        for path in sorted(self._image.path.glob("root/*/*")):
            if self._rng.random() < 0.3 and path.is_file():
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    pages = max(os.fstat(descriptor).st_size // _PAGE_BYTES, 0) + 1
                    first = self._rng.randrange(pages) * _PAGE_BYTES
                    length = self._rng.randint(1, pages) * _PAGE_BYTES
                    os.posix_fadvise(descriptor, first, length, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(descriptor)
