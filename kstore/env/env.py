"""Env: the interface for all access to files, local ones and objects of a store."""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import NoReturn, Protocol

from kstore.env.base import DiskSpace, FileKind, FileStatus, ReadFile, StrPath, join_path
from kstore.env.files import LockFile, NewFile, NewLocalFile, WriteFile
from kstore.env.process import LockHolder, SystemClock
from kstore.env.watching import DirectoryWatch, PollInterval
from kstore.errors import StorageError

# If a file was last written this long before it was listed, any later write changes its modification time.
_SETTLED_NS = 10**9


class EnvMaker(Protocol):
    """Makes an Env in another process. Can be pickled; what it holds may be secret."""

    def env(self) -> Env:
        """Return an Env."""
        ...


class Env(SystemClock, ABC):
    """Files and directories as kstore sees them; a missing path is a StorageError with errno ENOENT unless stated
    otherwise. An Env that does not override the methods that write refuses them.

    Attributes: url (from which locate() makes an equal Env in another process, with its options; None for local paths),
        parallel_requests (how many logs to open at the same time; more than 1 if requests have a high latency),
        is_mutable (whether files can change in place), is_high_latency (whether each request is so slow that readers
        skip those that only save them work), poll_interval (between two checks for changes that are not notified),
        has_views (whether files are shown that lie elsewhere; else carried, carried_directories, is_known_partition and
        first_offset have nothing to say).
    Raises: StorageError, which keeps the errno, from every method.
    Threads: thread-safe.
    """

    url: str | None = None
    parallel_requests = 1
    is_mutable = True
    is_high_latency = False
    poll_interval = PollInterval(least_s=0.005, most_s=0.5)
    has_views = False

    @abstractmethod
    def absolute_path(self, path: StrPath) -> str:
        """Return a path in the form in which this Env takes and reports it, without a trailing slash.

        Raises: TypeError for bytes paths; StorageError for an empty one.
        """

    @abstractmethod
    def open_read(self, path: str) -> ReadFile:
        """Open a regular file; a symbolic link, FIFO, directory or device is refused without blocking."""

    @abstractmethod
    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""

    @abstractmethod
    def stat(self, path: str, *, follow_symlinks: bool = True) -> FileStatus | None:
        """Return the status of what the path refers to, None if it does not exist."""

    def sizes_of(self, directory: str, names: Iterable[str]) -> list[int | None]:
        """Return the size in bytes of each of these files of a directory, without following links.

        Returns: of each name a size, None for what is no regular file, or is not there.
        """
        found = (self.stat(join_path(directory, name), follow_symlinks=False) for name in names)
        return [None if one is None or one.kind is not FileKind.FILE else one.size_in_bytes for one in found]

    def is_directory(self, path: str) -> bool:
        """Whether the path refers to a directory."""
        status = self.stat(path)
        return status is not None and status.kind is FileKind.DIRECTORY

    def disk_space(self, path: str) -> DiskSpace | None:  # noqa: ARG002
        """Return the space of the disk that a directory is on, None where that is not known."""
        return None

    def invalidate_listing(self, path: str) -> None:
        """Drop what is cached of a directory, of everything below it, and of its siblings."""

    def watch(self) -> DirectoryWatch:
        """Return a watch, of no directory yet, that waits for changes; the caller closes it."""
        return DirectoryWatch(self.poll_interval, uses_notifications=False)

    def is_locked(self, path: str) -> bool:  # noqa: ARG002
        """Whether the lock of a file is held, without taking it; False if that cannot be determined."""
        return False

    def lock_holder(self, *paths: str) -> LockHolder | None:  # noqa: ARG002
        """Return the process that holds the lock of these files, which are locked together; None if it is unknown.

        Requires: this process holds none of them.
        """
        return None

    def read_file(self, path: str, *, max_bytes: int) -> bytes:
        """Return the whole content of a regular file of at most max_bytes."""
        with self.open_read(path) as file:
            size = file.size()
            content = file.pread(size + 1, position=0) if size <= max_bytes else b""
        if max(size, len(content)) > max_bytes:
            raise too_large(path, max_bytes=max_bytes)
        return content

    def read_untrusted(self, path: str, *, max_bytes: int) -> bytes | bytearray:
        """Return the whole content of a file whose bytes the caller checks before it uses them, such as an index.

        Unlike read_file, it may skip the request that makes sure that the file was not replaced during the read.
        """
        return self.read_file(path, max_bytes=max_bytes)

    def url_of(self, path: str) -> str:
        """Return the path or URL by which another process opens this file; its options may be secret."""
        return path

    def carried(self, paths: Iterable[str]) -> EnvMaker | None:  # noqa: ARG002
        """Return what makes an Env that opens these files in another process; None where `url` does."""
        return None

    def carried_directories(self, paths: Iterable[str]) -> EnvMaker | None:  # noqa: ARG002
        """Return what makes an Env that shows what these directories show, looked at again in another process; None
        where `url` does.
        """
        return None

    def is_known_partition(self, path: str) -> bool:  # noqa: ARG002
        """Whether a directory is known to be a partition's without a look at all that it shows; False if unknown."""
        return False

    def first_offset(self, directory: str) -> int:  # noqa: ARG002
        """Return the offset below which nothing in the files of a directory belongs to its log; 0 if it all does."""
        return 0

    def without_recursive_listing(self) -> Env:
        """Return an Env that lists one directory at a time, for callers that need names of a few directories only."""
        return self

    @abstractmethod
    def process_id(self) -> int:
        """Return the id of this process; a child made by fork() has another one."""

    def check_writable(self, path: str) -> None:
        """Raise StorageError with errno EROFS if this Env refuses to write, before anything is read."""
        self._refuse(path)

    def open_write(self, path: str) -> WriteFile:
        """Open a regular file for reading and writing, creating it if necessary; refuses what open_read refuses."""
        self._refuse(path)

    def create_file(self, path: str) -> NewFile:
        """Create a file to write it in sequence; the content of one of its name is replaced."""
        return NewLocalFile(self.open_write(path))

    def lock_file(self, path: str) -> LockFile | None:
        """Lock a regular file, creating it if necessary; None if this process, another one or a JVM locks it."""
        self._refuse(path)

    def lock_directory(self, path: str) -> LockFile | None:
        """Lock a directory; None if this or another process holds the lock. JVMs do not check it.

        Does nothing on a file system without such locks.
        """
        self._refuse(path)

    def rename(self, source: str, target: str) -> None:  # noqa: ARG002
        """Rename a file atomically, replacing one of that name; durable only after sync_directory."""
        self._refuse(source)

    def copy_modification_time(self, source: str, target: str) -> None:  # noqa: ARG002
        """Give a file the modification time of another one."""
        self._refuse(target)

    def unlink(self, path: str) -> bool:
        """Remove a file and return whether it existed."""
        self._refuse(path)

    def make_directory(self, path: str) -> bool:
        """Create a directory in an existing one; return False if it exists already."""
        self._refuse(path)

    def remove_directory(self, path: str) -> bool:
        """Remove an empty directory; return False if it does not exist, or is not empty."""
        self._refuse(path)

    def sync_directory(self, path: str) -> None:
        """Wait until the names in a directory survive a power cut."""
        self._refuse(path)

    def _refuse(self, path: str) -> NoReturn:
        raise StorageError(
            f"cannot write {path}: kstore only reads there, since no lock keeps other writers out and no file can be "
            "appended to or synced; copy the directory to a local disk and write there",
            path=path,
            errno=errno.EROFS,
        )


def too_large(path: str, *, max_bytes: int) -> StorageError:
    """Return the error for a file that is larger than the `max_bytes` of a read."""
    return StorageError(f"{path} is larger than the limit of {max_bytes} bytes", path=path)


def is_settled(status: FileStatus, env: Env) -> bool:
    """Whether a file was last written so long ago that a write from now on changes its modification time."""
    return status.identity[2] < env.wall_clock_ms() * 10**6 - _SETTLED_NS
