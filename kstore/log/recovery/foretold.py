"""ForetoldFiles: the files of a partition as the steps of a recovery leave them, for a dry run that makes no step."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from kstore.env import ENOENT, Env, FileKind, FileStatus, Identity, ReadFile, StrPath, split_path
from kstore.errors import StorageError

if TYPE_CHECKING:
    from kstore._core import MappedBytes

_NO_IDENTITY = (0, 0, 0)


class ForetoldFiles(Env):
    """An Env of one partition: what is renamed, removed or rewritten is so for later reads, and stays as it is on disk.

    Threads: not thread-safe.
    """

    def __init__(self, env: Env) -> None:
        self._env = env
        # Path -> the path of its bytes on disk; None if it is removed.
        self._places: dict[str, str | None] = {}
        # Path -> what makes the rewritten file of the present one, and its size in bytes.
        self._rewritten: dict[str, tuple[Callable[[ReadFile], ReadFile], int]] = {}
        self._made: set[str] = set()

    def rewrite(self, path: str, rewritten: Callable[[ReadFile], ReadFile], *, size_in_bytes: int) -> None:
        """Replace a file: `rewritten` returns the new one for the old one, and closes that with it."""
        self._rewritten[path] = rewritten, size_in_bytes

    def absolute_path(self, path: StrPath) -> str:
        return self._env.absolute_path(path)

    def open_read(self, path: str) -> ReadFile:
        place = self._places.get(path, path)
        if place is None:
            raise StorageError(f"cannot open {path}: it would be removed", path=path, errno=ENOENT)
        file = self._env.open_read(place)
        return self._rewritten[path][0](file) if path in self._rewritten else file

    def listdir(self, path: str) -> list[str]:
        inside = {split_path(item)[1]: place for item, place in self._places.items() if split_path(item)[0] == path}
        names = {name for name in self._env.listdir(path) if name not in inside}
        return sorted(names | {name for name, place in inside.items() if place is not None})

    def stat(self, path: str, *, follow_symlinks: bool = True) -> FileStatus | None:
        place = self._places.get(path, path)
        if path in self._made:
            return FileStatus(FileKind.DIRECTORY, 0, _NO_IDENTITY)
        status = None if place is None else self._env.stat(place, follow_symlinks=follow_symlinks)
        if status is not None and path in self._rewritten:
            return status._replace(size_in_bytes=self._rewritten[path][1])
        return status

    def process_id(self) -> int:
        return self._env.process_id()

    def wall_clock_ms(self) -> int:
        return self._env.wall_clock_ms()

    def is_locked(self, path: str) -> bool:
        return self._env.is_locked(path)

    def rename(self, source: str, target: str) -> None:
        self._places[target] = self._places.get(source, source)
        self._places[source] = None
        rewritten = self._rewritten.pop(source, None)
        if rewritten is not None:
            self._rewritten[target] = rewritten

    def unlink(self, path: str) -> bool:
        is_there = self.stat(path, follow_symlinks=False) is not None
        self._places[path] = None
        return is_there

    def make_directory(self, path: str) -> bool:
        is_new = self.stat(path) is None
        if is_new:
            self._made.add(path)
        return is_new

    def sync_directory(self, path: str) -> None:
        pass


class FilePart(NamedTuple):
    """A part of a JoinedFile. read: called with a position in it and size_in_bytes, returns so
    many bytes from there."""

    size_in_bytes: int
    read: Callable[..., bytes]


class JoinedFile(ReadFile):
    """Parts of another file, one after the other.

    Args: source: the other file, which is closed with this one.
    """

    def __init__(self, source: ReadFile, parts: Sequence[FilePart]) -> None:
        self.path = source.path
        self._source = source
        self._parts = parts
        self._starts = list(accumulate((part.size_in_bytes for part in parts), initial=0))

    def pread(self, size: int, *, position: int) -> bytes:
        read: list[bytes] = []
        end = min(position + size, self._starts[-1])
        while position < end:
            slot = bisect_right(self._starts, position) - 1
            at = position - self._starts[slot]
            part = self._parts[slot]
            data = part.read(at, size_in_bytes=min(end - position, part.size_in_bytes - at))
            if not data:
                raise StorageError(f"cannot read {self.path}: it was truncated while it was read", path=self.path)
            read.append(data)
            position += len(data)
        return b"".join(read)

    def pread_into(self, buffer: bytearray | memoryview, *, position: int) -> int:
        content = self.pread(len(buffer), position=position)
        buffer[: len(content)] = content
        return len(content)

    def size(self) -> int:
        return self._starts[-1]

    def close(self) -> None:
        self._source.close()

    def holds(self, data: bytes, *, position: int) -> bool:
        return self.pread(len(data), position=position) == data

    def identity(self) -> Identity:
        return self._source.identity()

    def is_listed(self, listed: Identity) -> bool:
        return self._source.is_listed(listed)

    def map(self, size: int) -> MappedBytes:  # noqa: ARG002
        raise StorageError(f"cannot map {self.path}: it would be rewritten", path=self.path)
