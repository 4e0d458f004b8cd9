"""View: a file that a TieredEnv shows; FileWindow: a part of an open file as a file of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

from kstore.env.base import FileStatus, Identity, ReadFile, is_same_file
from kstore.env.cache import SharedCache
from kstore.env.env import Env
from kstore.errors import StorageError

if TYPE_CHECKING:
    from kstore._core import MappedBytes


class Kept(Protocol):
    """A value that views keep. weight: about an eighth of its bytes."""

    @property
    def weight(self) -> int: ...


class SeesObjects(Protocol):
    """What views read from, a TieredEnv: the Env of the bytes, and what views keep of it."""

    remote: Env
    kept: SharedCache[Kept]


class View(ABC):
    """A file that is shown under another path than its bytes have. It can be pickled.

    Raises: StorageError, CorruptionError and TierKeyError from every method.
    """

    @abstractmethod
    def status(self, env: SeesObjects) -> FileStatus:
        """Return the status that the file is shown with."""

    @abstractmethod
    def open(self, env: SeesObjects, path: str) -> ReadFile:
        """Open the file.  Args: path: under which it is shown."""


class ViewFile(ReadFile):
    """An open file that is a view of other bytes, which never change: identified by size and a name of its content."""

    def __init__(self, path: str, identity: Identity) -> None:
        self.path = path
        self._identity = identity

    def pread(self, size: int, *, position: int) -> bytes:
        size = min(size, self.size() - position)
        if size <= 0:
            return b""
        buffer = bytearray(size)
        return bytes(buffer[: self.pread_into(buffer, position=position)])

    def identity(self) -> Identity:
        return self._identity

    def is_listed(self, listed: Identity) -> bool:
        return is_same_file(listed, self._identity)

    def holds(self, data: bytes, *, position: int) -> bool:  # noqa: ARG002
        """Return True: the bytes of a view never change."""
        return True

    def map(self, size: int) -> MappedBytes:  # noqa: ARG002
        raise StorageError(f"cannot map {self.path}: it is not a local file", path=self.path)


class FileWindow(ViewFile):
    """The bytes [start, end) of an open file, which is closed with this one.

    Threads: as ReadFile.
    """

    def __init__(self, file: ReadFile, *, path: str, identity: Identity, start: int, end: int) -> None:
        super().__init__(path, identity)
        self._file = file
        self._start = start
        self._end = end

    def size(self) -> int:
        return max(min(self._end, self._file.size()) - self._start, 0)

    def pread(self, size: int, *, position: int) -> bytes:
        size = min(size, self._end - self._start - position)
        return self._file.pread(size, position=self._start + position) if size > 0 else b""

    def pread_into(self, buffer: bytearray | memoryview, *, position: int) -> int:
        view = memoryview(buffer).cast("B")
        size = min(len(view), self._end - self._start - position)
        return self._file.pread_into(view[:size], position=self._start + position) if size > 0 else 0

    @property
    def has_parts(self) -> bool:
        return self._file.has_parts

    def part_at(self, position: int) -> memoryview | None:
        part = self._file.part_at(self._start + position)
        return None if part is None else part[: max(self._end - self._start - position, 0)]

    def will_read(self, *, position: int, end_position: int) -> None:
        self._file.will_read(position=self._start + position, end_position=min(self._start + end_position, self._end))

    def split_target(self, target: int, *, position: int) -> int:
        return self._file.split_target(self._start + target, position=self._start + position) - self._start

    def around_damage(self) -> ReadFile:
        return FileWindow(
            self._file.around_damage(), path=self.path, identity=self._identity, start=self._start, end=self._end
        )

    def why_missing(self, position: int, *, end_position: int) -> str | None:
        end = min(self._start + end_position, self._end)
        return self._file.why_missing(self._start + position, end_position=end)

    def close(self) -> None:
        self._file.close()
