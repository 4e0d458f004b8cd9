"""FullEnv: the operating system with no space for some files, by the end of their paths, as long as they are named."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection

from kstore.env import LocalEnv, WriteFile
from kstore.errors import StorageError
from tests.fakes.short_writes import ShortWrites

CALLS = ("write", "allocate", "sync", "write back")


class FullEnv(LocalEnv):
    """Finds no space in calls on files whose paths end with one of `full`.

    Attributes: full, calls (which of CALLS fail: all unless told otherwise).
    """

    def __init__(self) -> None:
        self.full: tuple[str, ...] = ()
        self.calls: Collection[str] = CALLS

    def check(self, call: str, path: str) -> None:
        if call in self.calls and path.endswith(self.full):
            raise StorageError(f"no space to {call} {path}", path=path, errno=errno.ENOSPC)

    def open_write(self, path: str) -> WriteFile:
        file = super().open_write(path)
        full = _FullFile(os.dup(file.fileno()), path=path, is_new=file.is_new)
        file.close()
        full.env = self
        return full


class _FullFile(ShortWrites):
    env: FullEnv

    def pwrite(self, data: bytes | bytearray | memoryview, *, position: int) -> None:
        self.env.check("write", self.path)
        super().pwrite(data, position=position)

    def allocate(self, size: int, *, position: int = 0) -> None:
        self.env.check("allocate", self.path)
        super().allocate(size, position=position)

    def start_write_back(self, size: int, *, position: int) -> None:
        self.env.check("write back", self.path)
        super().start_write_back(size, position=position)

    def sync(self) -> None:
        self.env.check("sync", self.path)
        super().sync()
