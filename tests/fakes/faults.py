"""FaultyEnv: the operating system with one call that fails, once or from then on; every call is counted."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Literal, NamedTuple

from kstore.env import FileStatus, LocalEnv, LocalFile, LockFile, WriteFile
from kstore.errors import StorageError
from kstore.store.store import open_store
from tests.fakes.short_writes import ShortWrites

FaultKind = Literal["EIO", "ENOSPC", "short", "EMFILE"]
FAULT_KINDS: tuple[FaultKind, ...] = ("EIO", "ENOSPC", "short", "EMFILE")

# Which calls can fail in that way.
_CALLS = {
    "EIO": {"open", "read", "write", "sync", "truncate", "rename", "unlink", "list", "stat", "make"},
    "ENOSPC": {"write", "allocate", "sync", "rename", "make", "open_write"},
    "short": {"write"},
    "EMFILE": {"open", "open_write", "list", "sync_directory"},
}
_NEVER = 1 << 60
_NUMBERS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "short": errno.ENOSPC, "EMFILE": errno.EMFILE}


class Fault(NamedTuple):
    """The call_number-th call (from 1) fails, if it can in that way; for good: so do all behind it."""

    call_number: int
    kind: FaultKind
    is_for_good: bool

    def __str__(self) -> str:
        return f"{self.kind}-{'for-good' if self.is_for_good else 'once'}-{self.call_number}"


class FaultyEnv(LocalEnv):
    """Fails as the fault says; has_failed tells whether it came to that, calls how many calls there were."""

    def __init__(self, fault: Fault | None = None) -> None:
        self.calls = 0
        self.has_failed = False
        self._fault = fault
        self._watched: list[str] = []
        self._watched_paths: list[str] = []

    def watch(self, kind: FaultKind) -> None:
        """Let nothing fail, and note which calls there are, for fault_numbers()."""
        self.arm(Fault(_NEVER, kind, is_for_good=False))
        self._watched, self._watched_paths = [], []

    def watched(self, call: str) -> list[str]:
        """Return the names of the files of such calls since watch(), in order."""
        pairs = zip(self._watched, self._watched_paths, strict=True)
        return [Path(path).name for watched, path in pairs if watched == call]

    def fault_numbers(self, kind: FaultKind) -> list[int]:
        """Return the numbers, from 1 since watch(), of the calls that can fail in that way, and one past the last."""
        return [number for number, call in enumerate([*self._watched, None], 1) if call is None or call in _CALLS[kind]]

    def heal(self) -> None:
        """Let nothing fail from now on."""
        self._fault = None

    def arm(self, fault: Fault) -> None:
        """Let a call fail whose number counts from now."""
        self._fault = fault._replace(call_number=self.calls + fault.call_number)

    def check(self, call: str, path: str) -> bool:
        """Count a call and raise if it is to fail; return whether a write is to be cut short."""
        self.calls += 1
        self._watched.append(call)
        self._watched_paths.append(path)
        fault = self._fault
        if fault is None or self.calls < fault.call_number or call not in _CALLS[fault.kind]:
            return False
        if self.calls > fault.call_number and not fault.is_for_good:
            return False
        self.has_failed = True
        if fault.kind == "short":
            return True
        raise StorageError(f"cannot {call} {path}: {fault}", path=path, errno=_NUMBERS[fault.kind])

    def open_read(self, path: str) -> LocalFile:
        self.check("open", path)
        return _FaultyReadFile(super().open_read(path), self)

    def open_write(self, path: str) -> WriteFile:
        self.check("open_write", path)
        return _FaultyWriteFile(super().open_write(path), self)

    def lock_file(self, path: str) -> LockFile | None:
        self.check("open", path)
        return super().lock_file(path)

    def rename(self, source: str, target: str) -> None:
        self.check("rename", source)
        super().rename(source, target)

    def unlink(self, path: str) -> bool:
        self.check("unlink", path)
        return super().unlink(path)

    def make_directory(self, path: str) -> bool:
        self.check("make", path)
        return super().make_directory(path)

    def sync_directory(self, path: str) -> None:
        self.check("sync_directory" if self._fails_by("EMFILE") else "sync", path)
        super().sync_directory(path)

    def listdir(self, path: str) -> list[str]:
        self.check("list", path)
        return super().listdir(path)

    def stat(self, path: str, *, follow_symlinks: bool = True) -> FileStatus | None:
        self.check("stat", path)
        return super().stat(path, follow_symlinks=follow_symlinks)

    def _fails_by(self, kind: FaultKind) -> bool:
        return self._fault is not None and self._fault.kind == kind


class ClockedEnv(FaultyEnv):
    """A FaultyEnv whose clock stands still."""

    def __init__(self) -> None:
        super().__init__()
        self._now_ms = 0

    def wall_clock_ms(self) -> int:
        return self._now_ms


class _FaultyReads(LocalFile):
    _env: FaultyEnv

    def size(self) -> int:
        self._env.check("stat", self.path)
        return super().size()

    def pread(self, size: int, *, position: int) -> bytes:
        self._env.check("read", self.path)
        return super().pread(size, position=position)

    def pread_into(self, buffer: bytearray | memoryview, *, position: int) -> int:
        self._env.check("read", self.path)
        return super().pread_into(buffer, position=position)


class _FaultyReadFile(_FaultyReads):
    def __init__(self, file: LocalFile, env: FaultyEnv) -> None:
        super().__init__(file._fd, path=file.path)
        self._env = env


class _FaultyWriteFile(_FaultyReads, ShortWrites):
    def __init__(self, file: WriteFile, env: FaultyEnv) -> None:
        super().__init__(file._fd, path=file.path, is_new=file.is_new)
        self._env = env

    def pwrite(self, data: bytes | bytearray | memoryview, *, position: int) -> None:
        if self._env.check("write", self.path):
            super().pwrite(bytes(data)[: len(bytes(data)) // 2], position=position)
            raise StorageError(f"cannot write {self.path}: a part only", path=self.path, errno=errno.ENOSPC)
        super().pwrite(data, position=position)

    def start_write_back(self, size: int, *, position: int) -> None:
        self._env.check("sync", self.path)
        super().start_write_back(size, position=position)

    def truncate(self, size: int) -> None:
        self._env.check("truncate", self.path)
        super().truncate(size)

    def allocate(self, size: int, *, position: int = 0) -> None:
        self._env.check("allocate", self.path)
        super().allocate(size, position=position)

    def sync(self) -> None:
        self._env.check("sync", self.path)
        super().sync()


def calls_of_a_deletion(root: Path, copy: Path, kind: FaultKind, *, opens_log: bool = False) -> list[int]:
    """Return the numbers of the calls of deleting the topic `gone` that can fail in this way, and one past the last.

    Args: opens_log: whether its log is open then.
    """
    env = FaultyEnv()
    with open_store(shutil.copytree(root, copy), "a", env=env) as store:
        if opens_log:
            store.log("gone")
        env.watch(kind)
        store.delete_topic("gone")
        return env.fault_numbers(kind)
