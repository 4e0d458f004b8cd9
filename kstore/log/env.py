"""All access to the operating system: files, directories, locks and path arithmetic.

No other module of kstore touches os (except environment.py, for clocks and forks), fcntl or mmap; each gets an Env, so
that a test can pass one that fails, returns wrong answers or counts calls. Files are opened non-blocking and without
following a symbolic link in the last component, and only regular files are accepted. System calls interrupted by a
signal are retried (PEP 475).
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import select
import socket
import stat
import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from enum import Enum
from functools import cache, partial
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, TextIO

from kstore._core import PositionedFile, PositionedWriteFile
from kstore.environment import SystemClock
from kstore.errors import LogClosedError, LogReplacedError, StorageError
from kstore.log.cache import Loan, SharedCache

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self

StrPath = str | os.PathLike[str]

ENOENT = 2
# The errno if the process, or the machine, has reached its limit of open files.
NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})
OPEN_FILES_LIMIT = 64
REWRITTEN_FILES_LIMIT = 32
_OPEN_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_NEW_FILE_MODE = 0o666
_NEW_DIRECTORY_MODE = 0o777
_CHUNK_BYTES = 1 << 20
# The limit of Linux and macOS for one call (IOV_MAX).
_MOST_PARTS = 1024
# The errno if sendfile does not support this pair of files, before anything is sent.
_NO_SENDFILE = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSOCK})

_SYNC_FILE_RANGE_WRITE = 2
# The errno if the file or system does not support the hint.
_NO_WRITE_BACK = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.ESPIPE})
_PAGE_BYTES = 4096
# The errno of a file system that cannot lock a directory.
_NO_DIRECTORY_LOCK = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})

# Of struct statx: mask, inode, seconds and nanoseconds of the birth time.
_STATX = struct.Struct("=I28xQ40xqI")
_STATX_BYTES = 256
_STATX_BTIME = 0x800
_AT_FDCWD = -100
_AT_SYMLINK_NOFOLLOW = 0x100
_AT_EMPTY_PATH = 0x1000


class FileKind(Enum):
    """What a path refers to; OTHER is a symbolic link (if links are not followed), FIFO, socket or device."""

    FILE = "file"
    DIRECTORY = "directory"
    OTHER = "other"


class FileIdentity(NamedTuple):
    """Distinguishes files that had the same name: device, inode and birth time in ns; see is_same_file.

    The birth time, 0 if unknown, distinguishes a file from a later one with the same inode number, since ext4 reuses
    them immediately.
    """

    device: int
    inode: int
    born_ns: int


# `found` of a LogReplacedError for a file that was removed.
NO_FILE = "no file"

# For a file system that reports no birth times and is not on a disk: its inode numbers may not be stable.
UNKNOWN_FILE = FileIdentity(0, 0, 0)


def is_same_file(one: FileIdentity, other: FileIdentity) -> bool:
    """Whether two identities may be of the same file; an unknown one matches any."""
    return one == other or UNKNOWN_FILE in (one, other)


class FileStatus(NamedTuple):
    """What a path refers to; identity (device, inode, modification time in ns) changes if the file is replaced or
    written.
    """

    kind: FileKind
    size_in_bytes: int
    identity: tuple[int, int, int]
    file: FileIdentity = UNKNOWN_FILE


class Closing(ABC):
    """A context manager that closes itself."""

    @abstractmethod
    def close(self) -> None:
        """Release what is held; a second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class ReadFile(PositionedFile, Closing):
    """A regular file opened for positioned reads; a context manager that closes it.

    Threads: any number may read. close() may be called while pread calls run, and takes effect after the last of them;
        no other method may run concurrently with it.
    """

    def __init__(self, fd: int, *, path: str) -> None:
        super().__init__(fd, path=path, system=os, to_error=_storage_error)
        self._known: FileIdentity | None = None

    def size(self) -> int:
        """Return the current size in bytes; a broker may be appending to the file or truncating it."""
        with storage_errors("stat", self.path):
            return os.fstat(self._open_fd()).st_size

    def identity(self) -> FileIdentity:
        """Return the identity of the file."""
        with storage_errors("stat", self.path):
            return _identity(os.fstat(self._open_fd()), self._fd)

    def is_listed(self, listed: FileIdentity) -> bool:
        """Whether this is the file that a listing found. Cost: a stat for an identity that was not confirmed by the
        last call.
        """
        if self._known is not listed:
            if not is_same_file(listed, self.identity()):
                return False
            self._known = listed
        return True

    def pread_into(self, buffer: bytearray | memoryview, *, position: int) -> int:
        """Fill `buffer` from `position` and return the number of bytes read; fewer only at the end of the file."""
        view = memoryview(buffer)
        done = 0
        with storage_errors("read", self.path):
            while done < len(view):
                count = os.preadv(self._open_fd(), [view[done:]], position + done)
                if count == 0:
                    break
                done += count
        return done

    def skip_hole(self, position: int) -> int:
        """Return the first position >= `position` that may hold a nonzero byte; the file's size if there is none.

        This is `position` itself if the file system does not distinguish holes and preallocated space from data.
        """
        fd = self._open_fd()
        try:
            return os.lseek(fd, position, os.SEEK_DATA)
        except (OSError, AttributeError) as error:
            # ENXIO: no data follows.
            return self.size() if getattr(error, "errno", None) == errno.ENXIO else position

    def chunks(self, size: int, *, position: int) -> Iterator[bytes]:
        """Yield `size` bytes from `position`, 1 MiB at a time; fewer at the end of the file."""
        end = position + size
        while position < end and (chunk := self.pread(min(_CHUNK_BYTES, end - position), position=position)):
            yield chunk
            position += len(chunk)

    def send_to(self, target: socket.socket, *, position: int, size: int) -> int:
        """Send `size` bytes from `position` to a stream socket, with sendfile if possible; return how many were sent.

        Fewer only at the end of the file, or when a non-blocking socket accepts no more.
        Raises: TimeoutError after the timeout of the socket; OSError as the socket's own send().
        """
        use_sendfile = hasattr(os, "sendfile") and type(target).sendfile is socket.socket.sendfile
        done = 0
        while done < size:
            try:
                if use_sendfile:
                    count = os.sendfile(target.fileno(), self._open_fd(), position + done, size - done)
                else:
                    chunk = self.pread(min(size - done, _CHUNK_BYTES), position=position + done)
                    count = target.send(chunk) if chunk else 0
            except BlockingIOError:
                if target.gettimeout() == 0:
                    return done
                _wait_until_writable(target)
                continue
            except OSError as error:
                if not use_sendfile or done or error.errno not in _NO_SENDFILE:
                    raise
                use_sendfile = False
                continue
            if count == 0:
                break
            done += count
        return done

    def _open_fd(self) -> int:
        if self._fd < 0:
            raise LogClosedError(f"{self.path} was closed before the call", path=self.path)
        return self._fd


class WriteFile(ReadFile, PositionedWriteFile):
    """A regular file opened for positioned reads and writes; is_new: this call created it.

    Threads: any number may read, concurrently with one writer.
    """

    def __init__(self, fd: int, *, path: str, is_new: bool) -> None:
        super().__init__(fd, path=path)
        self.is_new = is_new

    def pwritev(self, parts: list[Buffer], *, position: int, size: int) -> None:
        """Write all of several adjacent buffers, `size` bytes in total; raises as pwrite."""
        if not hasattr(os, "pwritev") or len(parts) > _MOST_PARTS:
            self.pwrite(b"".join(parts), position=position)
            return
        with storage_errors("write", self.path):
            done = os.pwritev(self._open_fd(), parts, position)
        if done < size:
            self.pwrite(b"".join(parts)[done:], position=position + done)

    def is_in_place(self) -> bool:
        """Whether the path still refers to this file."""
        return _is_named(self.path, self._open_fd())

    def truncate(self, size: int) -> None:
        """Truncate the file, or extend it with a hole of zeros."""
        with storage_errors("truncate", self.path):
            os.ftruncate(self._open_fd(), size)

    def allocate(self, size: int, *, position: int = 0) -> None:
        """Allocate disk space for the bytes [position, size) if the OS can; new bytes are zeros.

        A longer file keeps its size. If this raises, any part of the space may have been allocated.
        """
        with storage_errors("allocate", self.path):
            fd = self._open_fd()
            if size <= position:
                return
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(fd, position, size - position)
            elif size > os.fstat(fd).st_size:
                os.ftruncate(fd, size)

    def start_write_back(self, size: int, *, position: int) -> None:
        """Ask the OS to start writing the whole pages of these bytes to disk, if it can; sync waits for them."""
        call = _sync_file_range()
        if call is None:
            return
        end = (position + size) // _PAGE_BYTES * _PAGE_BYTES
        fd = self._open_fd()
        number = call(fd, position=position, size=end - position) if end > position else 0
        if number and number not in _NO_WRITE_BACK:
            raise _storage_error("begin to sync", self.path, OSError(number, os.strerror(number)))

    def sync(self) -> None:
        """Wait until the content and the size of the file survive a power cut; its name needs sync_directory."""
        fd = self._open_fd()
        try:
            if hasattr(os, "fdatasync"):
                os.fdatasync(fd)
            else:
                os.fsync(fd)
        except OSError as error:
            raise _storage_error("sync", self.path, error) from error


class LockFile:
    """A file or directory that is locked until close(), against other processes and other openings in this one.

    A child made by fork() shares the lock; its close() closes its descriptor and leaves the lock to the parent.
    """

    def __init__(self, fd: int, *, path: str, unlock: Callable[[int], None]) -> None:
        self._fd = fd
        self._unlock = unlock
        self._process_id = os.getpid()
        self.path = path

    def is_in_place(self) -> bool:
        """Whether the path still refers to the locked file: the lock of a removed file excludes no one."""
        return _is_named(self.path, self._fd)

    def identity(self) -> tuple[int, int]:
        """Return device and inode, which identify the file while it is open."""
        with storage_errors("stat", self.path):
            status = os.fstat(self._fd)
        return status.st_dev, status.st_ino

    def close(self) -> None:
        """Release the lock and close the file, which is not removed; a second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        try:
            if os.getpid() == self._process_id:
                with storage_errors("unlock", self.path):
                    self._unlock(fd)
        finally:
            with storage_errors("close", self.path):
                os.close(fd)


class Env(SystemClock):
    """The operating system as kstore sees it; a missing path is a StorageError with errno ENOENT unless stated
    otherwise.

    Raises: StorageError, which keeps the errno, from every method.
    Threads: thread-safe; has no state.
    """

    def open_read(self, path: str) -> ReadFile:
        """Open a regular file; a symbolic link, FIFO, directory or device is refused without blocking."""
        with storage_errors("open", path):
            fd = _open_descriptor(path, _OPEN_FLAGS | os.O_RDONLY)
        _check_regular(fd, path)
        return ReadFile(fd, path=path)

    def open_write(self, path: str) -> WriteFile:
        """Open a regular file for reading and writing, creating it if necessary; refuses what open_read refuses."""
        flags = _OPEN_FLAGS | os.O_RDWR
        with storage_errors("open", path):
            try:
                fd, is_new = _open_descriptor(path, flags | os.O_CREAT | os.O_EXCL), True
            except FileExistsError:
                fd, is_new = _open_descriptor(path, flags), False
        _check_regular(fd, path)
        return WriteFile(fd, path=path, is_new=is_new)

    def lock_file(self, path: str) -> LockFile | None:
        """Lock a regular file, creating it if necessary; None if another process, a JVM or another opening here holds
        it.
        """
        with storage_errors("open", path):
            fd = _open_descriptor(path, _OPEN_FLAGS | os.O_RDWR | os.O_CREAT)
        _check_regular(fd, path)
        try:
            with storage_errors("lock", path):
                _set_lock(fd, lock_type=fcntl.F_WRLCK)
        except StorageError as error:
            os.close(fd)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return None
            raise
        return LockFile(fd, path=path, unlock=partial(_set_lock, lock_type=fcntl.F_UNLCK))

    def lock_directory(self, path: str) -> LockFile | None:
        """Lock a directory; None if another opening of this or another process holds the lock. JVMs do not check it.

        If the file system has no such lock, nothing is locked.
        """
        with storage_errors("open", path):
            fd = _open_descriptor(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        try:
            with storage_errors("lock", path):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except StorageError as error:
            if error.errno not in _NO_DIRECTORY_LOCK:
                os.close(fd)
                if error.errno == errno.EWOULDBLOCK:
                    return None
                raise
        return LockFile(fd, path=path, unlock=lambda held: fcntl.flock(held, fcntl.LOCK_UN))

    def is_locked(self, path: str) -> bool:
        """Whether the lock of a file is held, without taking it; False if that cannot be determined."""
        # On other systems the lock belongs to the process, and closing the file would release one that it holds.
        if sys.platform != "linux":
            return False
        try:
            with storage_errors("open", path):
                fd = os.open(path, _OPEN_FLAGS | os.O_RDONLY)
        except StorageError:
            return False
        try:
            return _is_locked(fd)
        except OSError:
            return False
        finally:
            os.close(fd)

    def rename(self, source: str, target: str) -> None:
        """Rename a file atomically, replacing one of that name; durable only after sync_directory."""
        with storage_errors("rename", source):
            os.replace(source, target)

    def copy_modification_time(self, source: str, target: str) -> None:
        """Give a file the modification time of another one."""
        with storage_errors("set the time of", target):
            status = os.stat(source)
            os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))

    def unlink(self, path: str) -> bool:
        """Remove a file and return whether it existed."""
        try:
            with storage_errors("remove", path):
                os.unlink(path)
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return False
            raise
        return True

    def make_directory(self, path: str) -> bool:
        """Create a directory in an existing one; return False if it exists already."""
        try:
            with storage_errors("make directory", path):
                os.mkdir(path, _NEW_DIRECTORY_MODE)
        except StorageError as error:
            if error.errno == errno.EEXIST and os.path.isdir(path):
                return False
            raise
        return True

    def remove_directory(self, path: str) -> bool:
        """Remove an empty directory; return False if it does not exist, or is not empty."""
        try:
            with storage_errors("remove directory", path):
                os.rmdir(path)
        except StorageError as error:
            if error.errno in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
        return True

    def sync_directory(self, path: str) -> None:
        """Wait until the names in a directory survive a power cut."""
        with storage_errors("sync", path):
            fd = _open_descriptor(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def read_file(self, path: str, *, max_bytes: int) -> bytes:
        """Return the whole content of a regular file of at most max_bytes."""
        with self.open_read(path) as file:
            size = file.size()
            content = file.pread(size + 1, position=0) if size <= max_bytes else b""
        if max(size, len(content)) > max_bytes:
            raise StorageError(f"{path} is larger than the limit of {max_bytes} bytes", path=path)
        return content

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        with storage_errors("list", path):
            return sorted(os.listdir(path))

    def stat(self, path: str, *, follow_symlinks: bool = True) -> FileStatus | None:
        """Return the status of what the path refers to, None if it does not exist."""
        try:
            with storage_errors("stat", path):
                status = os.stat(path, follow_symlinks=follow_symlinks)
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
                return None
            raise
        identity = status.st_dev, status.st_ino, status.st_mtime_ns
        if stat.S_ISREG(status.st_mode):
            return FileStatus(FileKind.FILE, status.st_size, identity, _identity(status, path))
        kind = FileKind.DIRECTORY if stat.S_ISDIR(status.st_mode) else FileKind.OTHER
        return FileStatus(kind, 0, identity, _identity(status, path))

    def process_id(self) -> int:
        """Return the id of this process; a child made by fork() has another one."""
        return os.getpid()


DEFAULT_ENV = Env()


class OpenFiles(Closing):
    """The files of one log, opened on first read and kept open in a cache shared by all logs of the process.

    When none is in use, at most OPEN_FILES_LIMIT files are open in the process, however many logs and segments there
    are.
    Threads: thread-safe. A file that is in use is never closed.
    """

    def __init__(self, env: Env, cache: SharedCache[ReadFile] | None = None) -> None:
        self._env = env
        self._cache = _OPEN_FILES if cache is None else cache
        self._is_closed = False

    def borrow(self, path: str, listed: FileIdentity | None = None) -> _Borrowed:
        """Context manager: yield the open file.

        Args: listed: the identity that the file must have, None for any.
        Raises: LogReplacedError if it is another file, or was removed; LogClosedError after close().
        """
        return _Borrowed(self, path, listed)

    def lend(self, path: str, listed: FileIdentity | None) -> Loan[ReadFile]:
        """Return what borrow yields, for use until give_back; raises as that."""
        if self._is_closed:
            raise _closed_before(path)
        loan = self._cache.lend(self, path, lambda: self._opened(path, listed))
        if listed is None:
            return loan
        try:
            is_listed = loan.value.is_listed(listed)
        except BaseException:
            self._cache.give_back(loan)
            raise
        return loan if is_listed else self._lent_again(loan, path, listed)

    def _lent_again(self, loan: Loan[ReadFile], path: str, listed: FileIdentity) -> Loan[ReadFile]:
        """Lend the file that has the name now; the cached one was listed at another time."""
        self._cache.give_back(loan)
        self.forget(path)
        loan = self._cache.lend(self, path, lambda: self._opened(path, listed))
        try:
            check_listed(loan.value, listed)
        except BaseException:
            self._cache.give_back(loan)
            raise
        return loan

    def give_back(self, loan: Loan[ReadFile]) -> None:
        """Return a loan from lend; exactly once."""
        self._cache.give_back(loan)

    def check_in_place(self, path: str, listed: FileIdentity) -> None:
        """Raise LogReplacedError if the path does not refer to the listed file; StorageError.  Cost: a stat."""
        check_in_place(path, listed, self._env)

    def forget(self, path: str) -> None:
        """Close one file, if it is open, as soon as it is not in use: another file may get its name."""
        self._cache.release_one(self, path)

    def pread_of(self, path: str, listed: FileIdentity | None = None) -> Callable[..., bytes]:
        """Return the pread of the open file without keeping it in use: after the file is closed, it raises
        LogClosedError.

        Raises: as borrow.
        """
        with self.borrow(path, listed) as file:
            return file.pread

    def close(self) -> None:
        """Close every file; those in use are closed when they are returned."""
        self._is_closed = True
        self._cache.release(self)

    def _opened(self, path: str, listed: FileIdentity | None) -> ReadFile:
        if self._is_closed:
            raise _closed_before(path)
        return self._env.open_read(path) if listed is None else open_listed(path, listed, self._env)


class _Borrowed:
    """The context manager of OpenFiles.borrow; a generator would cost more than a short read."""

    __slots__ = ("_files", "_listed", "_loan", "_path")

    def __init__(self, files: OpenFiles, path: str, listed: FileIdentity | None) -> None:
        self._files = files
        self._path = path
        self._listed = listed

    def __enter__(self) -> ReadFile:
        self._loan = self._files.lend(self._path, self._listed)
        return self._loan.value

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._files.give_back(self._loan)


def open_listed(path: str, listed: FileIdentity, env: Env) -> ReadFile:
    """Open a file for reading that was listed before.

    Raises: LogReplacedError if another file has its name, or none; StorageError.
    """
    try:
        file = env.open_read(path)
    except StorageError as error:
        if error.errno != ENOENT:
            raise
        message = f"{path} was removed since it was listed: open the log again"
        raise LogReplacedError(message, path=path, expected="the file that was listed", found=NO_FILE) from error
    try:
        check_listed(file, listed)
    except BaseException:
        file.close()
        raise
    return file


def check_in_place(path: str, listed: FileIdentity, env: Env) -> None:
    """Raise LogReplacedError if a path does not refer to the listed file; StorageError.  Cost: a stat."""
    status = env.stat(path, follow_symlinks=False)
    if status is None or not is_same_file(listed, status.file):
        found = NO_FILE if status is None else str(status.file)
        message = f"{path} was removed or replaced since it was listed: open the log again"
        raise LogReplacedError(message, path=path, expected=str(listed), found=found)


def check_listed(file: ReadFile, listed: FileIdentity) -> None:
    """Raise LogReplacedError if an open file is not the one that was listed."""
    if not file.is_listed(listed):
        raise LogReplacedError(
            f"{file.path} was replaced since it was listed: open the log again",
            path=file.path,
            expected=str(listed),
            found=str(file.identity()),
        )


def _closed_before(path: str) -> LogClosedError:
    return LogClosedError(f"the log was closed before the call that reads {path}", path=path)


_OPEN_FILES: SharedCache[ReadFile] = SharedCache(limit=OPEN_FILES_LIMIT, weigh=lambda _: 1, drop=ReadFile.close)
# Small files of all logs that are rewritten repeatedly, kept open up to the limit.
REWRITTEN_FILES: SharedCache[WriteFile] = SharedCache(
    limit=REWRITTEN_FILES_LIMIT, weigh=lambda _: 1, drop=lambda file: file.close()
)


@contextmanager
def open_foreign(path: str) -> Iterator[BinaryIO]:
    """Context manager: open a file that is not part of a log for reading; any kind of file, links are followed."""
    with ExitStack() as stack:
        with storage_errors("open", path):
            file = stack.enter_context(open(path, "rb"))
        yield file


def size_of_open(file: BinaryIO | TextIO) -> int | None:
    """Return the size in bytes of an open regular file, None for anything else: a pipe, a terminal, a closed file."""
    try:
        status = os.fstat(file.fileno())
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def lines_of(file: BinaryIO, path: str) -> Iterator[bytes]:
    """Yield the lines of an open file; errors name `path`.  Raises: StorageError."""
    with storage_errors("read", path):
        yield from file


def path_list(paths: StrPath | Iterable[StrPath]) -> list[StrPath]:
    """Return one path or several as a list."""
    return [paths] if isinstance(paths, str | os.PathLike) else list(paths)


@cache
def _sync_file_range() -> Callable[..., int] | None:
    """Return sync_file_range, which Python does not expose: (fd, *, position, size) -> errno or 0. None if missing."""
    import ctypes

    try:
        call = ctypes.CDLL(None, use_errno=True).sync_file_range
    except (AttributeError, OSError, TypeError):
        return None
    call.argtypes = ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint

    def start(fd: int, *, position: int, size: int) -> int:
        return ctypes.get_errno() if call(fd, position, size, _SYNC_FILE_RANGE_WRITE) else 0

    return start


def _identity(status: os.stat_result, of: str | int) -> FileIdentity:
    """Return the identity of the file with this status. Args: of: its path, or a descriptor."""
    born = getattr(status, "st_birthtime_ns", None) or int(getattr(status, "st_birthtime", 0) * 10**9)
    if not born and (call := _statx()) is not None:
        inode, born = call(of)
        # The path refers to another file now; with its birth time, the identity would mix two files.
        born = born if inode in (0, status.st_ino) else -1
    if not born and os.major(status.st_dev) == 0:
        return UNKNOWN_FILE
    return FileIdentity(status.st_dev, status.st_ino, born)


@cache
def _statx() -> Callable[[str | int], tuple[int, int]] | None:
    """Return statx, which Python does not expose: (path or descriptor) -> (inode, birth time in ns). None if missing.

    Both are 0 if the file does not exist, or the birth time alone if the file system has none. Links are not followed.
    """
    import ctypes

    try:
        call = ctypes.CDLL(None, use_errno=True).statx
    except (AttributeError, OSError, TypeError):
        return None
    call.argtypes = ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p
    new_buffer = ctypes.c_char * _STATX_BYTES

    def ask(of: str | int) -> tuple[int, int]:
        buffer = new_buffer()
        if isinstance(of, int):
            failed = call(of, b"", _AT_EMPTY_PATH, _STATX_BTIME, buffer)
        else:
            failed = call(_AT_FDCWD, os.fsencode(of), _AT_SYMLINK_NOFOLLOW, _STATX_BTIME, buffer)
        if failed:
            return 0, 0
        mask, inode, seconds, nanoseconds = _STATX.unpack_from(buffer)
        return inode, seconds * 10**9 + nanoseconds if mask & _STATX_BTIME else 0

    return ask


def absolute_path(path: StrPath) -> str:
    """Return the path as an absolute str without a trailing slash or "." parts; links are not resolved.

    Raises: TypeError for bytes paths; StorageError for an empty one.
    """
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError(f"path must be str or a path of str, got {type(text).__name__}")
    if not text:
        raise StorageError("the path is empty", path=text, errno=errno.ENOENT)
    return os.path.abspath(text)


def join_path(directory: str, name: str) -> str:
    """Return the path of a name, which is not a path, in a directory."""
    return directory + name if directory.endswith("/") else f"{directory}/{name}"


def split_path(path: str) -> tuple[str, str]:
    """Return (directory, name) of an absolute path; the name of "/" is empty."""
    return os.path.split(path)


def storage_errors(action: str, path: str) -> _StorageErrors:
    """Context manager: convert an OSError to a StorageError that names the action and the path."""
    return _StorageErrors(action, path)


class _StorageErrors:
    """The context manager of storage_errors; a generator would cost more than a stat."""

    __slots__ = ("_action", "_path")

    def __init__(self, action: str, path: str) -> None:
        self._action = action
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, OSError) and not isinstance(error, StorageError):
            raise _storage_error(self._action, self._path, error) from error


def _storage_error(action: str, path: str, error: OSError) -> StorageError:
    if isinstance(error, StorageError):
        return error
    why = error.strerror or str(error)
    if error.errno == errno.EMFILE:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        why = f"{why}: the limit of this process is {limit} (RLIMIT_NOFILE)"
    return StorageError(f"cannot {action} {path}: {why}", path=path, errno=error.errno)


def _open_descriptor(path: str, flags: int, *, mode: int = _NEW_FILE_MODE) -> int:
    """Open a file as os.open does; if no descriptor is left, close cached files that are not in use and retry."""
    try:
        return os.open(path, flags, mode)
    except OSError as error:
        if error.errno not in NO_DESCRIPTOR:
            raise
        dropped = [_OPEN_FILES.drop_idle(), REWRITTEN_FILES.drop_idle()]
        if not any(dropped):
            raise
    return os.open(path, flags, mode)


def _check_regular(fd: int, path: str) -> None:
    """Close the descriptor and raise if it is not a regular file."""
    try:
        with storage_errors("stat", path):
            mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            raise StorageError(f"cannot open {path}: expected a regular file, found {_describe(mode)}", path=path)
    except StorageError:
        os.close(fd)
        raise


def _is_named(path: str, fd: int) -> bool:
    """Whether a path refers to the file of an open descriptor, whose inode number no other file can get."""
    with storage_errors("stat", path):
        held = os.fstat(fd)
        try:
            found = os.stat(path, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
    return (held.st_dev, held.st_ino) == (found.st_dev, found.st_ino)


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


def _wait_until_writable(target: socket.socket) -> None:
    timeout = target.gettimeout()
    poll = select.poll()
    poll.register(target.fileno(), select.POLLOUT)
    if not poll.poll(None if timeout is None else timeout * 1000):
        raise TimeoutError(f"the socket accepted no byte for {timeout} s")


def _describe(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a directory",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFLNK: "a link",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")
