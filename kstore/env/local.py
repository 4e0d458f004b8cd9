"""LocalEnv: the files of the operating system.

Files are opened non-blocking and without following a symbolic link in the last component, and only regular files are
accepted. System calls interrupted by a signal are retried (PEP 475).
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import BinaryIO, TextIO

from kstore._core import read_small_file, regular_sizes
from kstore.env.base import DiskSpace, FileIdentity, FileKind, FileStatus, StrPath, path_text
from kstore.env.env import Env
from kstore.env.files import (
    OPEN_FILES,
    REWRITTEN_FILES,
    LocalFile,
    LockFile,
    WriteFile,
    status_of,
    storage_error,
)
from kstore.env.process import LockHolder, find_lock_holder
from kstore.env.watching import DirectoryWatch
from kstore.errors import StorageError

# The errno if the process, or the machine, has reached its limit of open files.
NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})
_OPEN_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_NEW_FILE_MODE = 0o666
_NEW_DIRECTORY_MODE = 0o777
# The errno of a file system that cannot lock a directory.
_NO_DIRECTORY_LOCK = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})


class LocalEnv(Env):
    """The operating system as kstore sees it.  Threads: thread-safe; has no state."""

    def absolute_path(self, path: StrPath) -> str:
        return absolute_path(path)

    def check_writable(self, path: str) -> None:
        """Does nothing: whether a path can be written shows when it is."""

    def open_read(self, path: str) -> LocalFile:
        try:
            fd = _open_descriptor(path, _OPEN_FLAGS | os.O_RDONLY)
        except OSError as error:
            raise storage_error("open", path, error) from error
        return LocalFile(fd, path=path, identity=_identity_of_regular(fd, path))

    def open_write(self, path: str) -> WriteFile:
        try:
            fd, is_new = _open_or_create(path)
        except OSError as error:
            raise storage_error("open", path, error) from error
        return WriteFile(fd, path=path, identity=_identity_of_regular(fd, path), is_new=is_new)

    def lock_file(self, path: str) -> LockFile | None:
        try:
            fd = _open_descriptor(path, _OPEN_FLAGS | os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise storage_error("open", path, error) from error
        _identity_of_regular(fd, path)
        file = LockFile(fd, path=path, unlock=partial(_set_lock, lock_type=fcntl.F_UNLCK))
        try:
            _set_lock(fd, lock_type=fcntl.F_WRLCK)
        except OSError as error:
            _close_unlocked(file)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return None
            raise storage_error("lock", path, error) from error
        except BaseException:
            _close_unlocked(file)
            raise
        return file

    def lock_directory(self, path: str) -> LockFile | None:
        try:
            fd = _open_descriptor(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        except OSError as error:
            raise storage_error("open", path, error) from error
        file = LockFile(fd, path=path, unlock=lambda held: fcntl.flock(held, fcntl.LOCK_UN))
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _NO_DIRECTORY_LOCK:
                return file
            _close_unlocked(file)
            if error.errno == errno.EWOULDBLOCK:
                return None
            raise storage_error("lock", path, error) from error
        except BaseException:
            _close_unlocked(file)
            raise
        return file

    def is_locked(self, path: str) -> bool:
        # On other systems the lock belongs to the process, and closing the file would release one that it holds.
        if sys.platform != "linux":
            return False
        try:
            fd = os.open(path, _OPEN_FLAGS | os.O_RDONLY)
        except OSError:
            return False
        try:
            return _is_locked(fd)
        except OSError:
            return False
        finally:
            os.close(fd)

    def lock_holder(self, *paths: str) -> LockHolder | None:
        return find_lock_holder(paths)

    def rename(self, source: str, target: str) -> None:
        try:
            os.replace(source, target)
        except OSError as error:
            raise storage_error("rename", source, error) from error

    def copy_modification_time(self, source: str, target: str) -> None:
        try:
            status = os.stat(source)
            os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
        except OSError as error:
            raise storage_error("set the time of", target, error) from error

    def unlink(self, path: str) -> bool:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise storage_error("remove", path, error) from error
        return True

    def make_directory(self, path: str) -> bool:
        try:
            os.mkdir(path, _NEW_DIRECTORY_MODE)
        except OSError as error:
            if error.errno == errno.EEXIST and os.path.isdir(path):
                return False
            raise storage_error("make directory", path, error) from error
        return True

    def remove_directory(self, path: str) -> bool:
        try:
            os.rmdir(path)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise storage_error("remove directory", path, error) from error
        return True

    def sync_directory(self, path: str) -> None:
        try:
            fd = _open_descriptor(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise storage_error("sync", path, error) from error

    def listdir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except OSError as error:
            raise storage_error("list", path, error) from error

    def stat(self, path: str, *, follow_symlinks: bool = True) -> FileStatus | None:
        try:
            mode, size, changing, identity = status_of(path, follow_symlinks=follow_symlinks)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise storage_error("stat", path, error) from error
        if stat.S_ISREG(mode):
            return FileStatus(FileKind.FILE, size, changing, identity)
        return FileStatus(FileKind.DIRECTORY if stat.S_ISDIR(mode) else FileKind.OTHER, 0, changing, identity)

    def sizes_of(self, directory: str, names: Iterable[str]) -> list[int | None]:
        if type(self) is LocalEnv:
            names = list(names)
            sizes = regular_sizes(directory, names)
            if sizes is not None:
                return sizes
        return super().sizes_of(directory, names)

    def read_file(self, path: str, *, max_bytes: int) -> bytes:
        if type(self) is LocalEnv:
            try:
                content = read_small_file(os.fspath(path), max_bytes=max_bytes)
            except OSError as error:
                raise storage_error("open", path, error) from error
            if content is not None:
                return content
        return super().read_file(path, max_bytes=max_bytes)

    def disk_space(self, path: str) -> DiskSpace | None:
        try:
            found = os.statvfs(path)
        except OSError as error:
            raise storage_error("stat the disk of", path, error) from error
        return DiskSpace(total_bytes=found.f_blocks * found.f_frsize, usable_bytes=found.f_bavail * found.f_frsize)

    def watch(self) -> DirectoryWatch:
        return DirectoryWatch(self.poll_interval)

    def process_id(self) -> int:
        return os.getpid()


DEFAULT_ENV = LocalEnv()


@contextmanager
def open_foreign(path: str) -> Iterator[BinaryIO]:
    """Context manager: open a file that is not part of a log for reading; any kind of file, links are followed."""
    with ExitStack() as stack:
        try:
            file = stack.enter_context(open(path, "rb"))
        except OSError as error:
            raise storage_error("open", path, error) from error
        yield file


def size_of_open(file: BinaryIO | TextIO) -> int | None:
    """Return the size in bytes of an open regular file, None for anything else: a pipe, a terminal, a closed file."""
    try:
        status = os.fstat(file.fileno())
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def lines_of(file: BinaryIO, path: str, *, most_bytes: int = -1) -> Iterator[bytes]:
    """Yield the lines of an open file, longer ones in pieces of most_bytes.  Raises: StorageError that names `path`."""
    try:
        while line := file.readline(most_bytes):
            yield line
    except OSError as error:
        raise storage_error("read", path, error) from error


def absolute_path(path: StrPath) -> str:
    """Return the path as an absolute str without a trailing slash or "." parts; links are not resolved.

    Raises: TypeError for bytes paths, and for what is no path; StorageError for an empty one.
    """
    text = path_text(path)
    if not text:
        raise StorageError("the path is empty", path=text, errno=errno.ENOENT)
    return os.path.abspath(text)


def _open_descriptor(path: str, flags: int, *, mode: int = _NEW_FILE_MODE) -> int:
    """Open a file as os.open does; if no descriptor is left, close cached files that are not in use and retry."""
    try:
        return os.open(path, flags, mode)
    except OSError as error:
        if error.errno not in NO_DESCRIPTOR:
            raise
        dropped = [OPEN_FILES.drop_idle(), REWRITTEN_FILES.drop_idle()]
        if not any(dropped):
            raise
    return os.open(path, flags, mode)


def _open_or_create(path: str) -> tuple[int, bool]:
    """Open a file to write it; return the descriptor, and whether this call created the file.  Raises: OSError."""
    flags = _OPEN_FLAGS | os.O_RDWR
    try:
        return _open_descriptor(path, flags), False
    except FileNotFoundError:
        try:
            return _open_descriptor(path, flags | os.O_CREAT | os.O_EXCL), True
        except FileExistsError:
            # It was created since.
            return _open_descriptor(path, flags), False


def _identity_of_regular(fd: int, path: str) -> FileIdentity:
    """Return the identity of a regular file; close the descriptor and raise if it is none."""
    try:
        mode, _, _, identity = status_of(fd)
    except OSError as error:
        os.close(fd)
        raise storage_error("stat", path, error) from error
    if not stat.S_ISREG(mode):
        os.close(fd)
        raise StorageError(f"cannot open {path}: expected a regular file, found {_describe(mode)}", path=path)
    return identity


def _close_unlocked(file: LockFile) -> None:
    """Close a file that could not be locked, or was and was not handed out."""
    with suppress(StorageError):
        file.close()


def _set_lock(fd: int, *, lock_type: int) -> None:
    """Lock or unlock a whole file: l_whence and l_start 0, l_len 0 (to the end), l_pid 0, as in struct flock.

    Without open file description locks this takes a lock of the process, which any close() of the file would release.
    """
    if sys.platform == "linux":
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", lock_type, os.SEEK_SET, 0, 0, 0))
    else:
        fcntl.lockf(fd, fcntl.LOCK_UN if lock_type == fcntl.F_UNLCK else fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_locked(fd: int) -> bool:
    """Whether another opening of the file holds a lock; see _set_lock."""
    asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    lock_type: int = struct.unpack_from("h", fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked))[0]
    return lock_type != fcntl.F_UNLCK


def _describe(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a directory",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFLNK: "a link",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")
