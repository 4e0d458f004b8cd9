"""Open files of the operating system: LocalFile, WriteFile and LockFile, the caches of open ones, and OSErrors."""

from __future__ import annotations

import errno
import os
import resource
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from operator import methodcaller
from typing import TYPE_CHECKING

from kstore._core import WRITE_BYTES, PositionedFile, PositionedWriteFile, are_cached, file_status
from kstore.env.base import UNKNOWN_FILE, Closing, FileIdentity, Identity, ReadFile, is_same_file
from kstore.env.cache import SharedCache
from kstore.errors import StorageError

if TYPE_CHECKING:
    import socket

    from typing_extensions import Buffer

OPEN_FILES_LIMIT = 64
REWRITTEN_FILES_LIMIT = 32
_MOST_WRITERS = 65536
_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)
_WILL_NEED: int | None = getattr(os, "POSIX_FADV_WILLNEED", None)
_MOST_AHEAD_BYTES = 16 << 20
# What Linux reads ahead of a file that is read in order.
_READ_AHEAD_BYTES = 128 << 10
_CHUNK_BYTES = 1 << 20
_WRITE_BACK_BYTES = 8 << 20
# The limit of Linux and macOS for one call (IOV_MAX).
_MOST_PARTS = 1024
# The errno if sendfile does not support this pair of files, before anything is sent.
_NO_SENDFILE = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSOCK})

_SYNC_FILE_RANGE_WRITE = 2
# The errno if the file or system does not support the hint.
_NO_WRITE_BACK = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.ESPIPE})
_PAGE_BYTES = 4096
_OWNER_ONLY = 0o600


def writers_limit() -> int:
    """Return how many files for appending a store keeps open by default: half of RLIMIT_NOFILE."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_WRITERS if limit == resource.RLIM_INFINITY else min(max(limit // 2, 1), _MOST_WRITERS)


def _are_cached(fd: int, positions: Iterable[int]) -> bool | None:
    """Whether the bytes at some positions of a file are in memory; None if the system or the file system cannot say."""
    if _NOWAIT is None:
        return None
    byte = [bytearray(1)]
    try:
        for position in positions:
            os.preadv(fd, byte, position, _NOWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def send_parts(fd: int, parts: Sequence[Buffer]) -> int:
    """Hand several buffers in their order to a socket that does not block; return how many bytes it takes at once.

    Raises: OSError as the socket's own send(), BlockingIOError if it takes none.
    """
    return os.writev(fd, parts[:_MOST_PARTS])


def send_file(fd: int, file: ReadFile, *, position: int, size: int) -> int:
    """Hand a part of a local file to a socket that does not block, by sendfile; return how many bytes it takes at once.

    Raises: OSError as send_parts, and if the system cannot send this file; LogClosedError.
    """
    return os.sendfile(fd, file.fileno(), position, size)


class LocalFile(PositionedFile, ReadFile):
    """A regular file opened for positioned reads; a context manager that closes it.

    Args: identity: of the file, None to look when it is asked for.
    Threads: as ReadFile.
    """

    def __init__(self, fd: int, *, path: str, identity: FileIdentity | None = None) -> None:
        super().__init__(fd, path=path, system=os, to_error=storage_error)
        self._identity = identity
        self._known: Identity | None = None

    def size(self) -> int:
        """Return the current size in bytes; a broker may be appending to the file or truncating it."""
        fd = self.fileno()
        try:
            return os.fstat(fd).st_size
        except OSError as error:
            raise storage_error("stat", self.path, error) from error

    def identity(self) -> FileIdentity:
        """Return the identity of the file, which is the same as long as it is open."""
        fd = self.fileno()
        if self._identity is None:
            try:
                *_, self._identity = status_of(fd)
            except OSError as error:
                raise storage_error("stat", self.path, error) from error
        return self._identity

    def is_listed(self, listed: Identity) -> bool:
        """Whether this is the file that had this identity in a listing."""
        if self._known is not listed:
            if not is_same_file(listed, self.identity()):
                return False
            self._known = listed
        return True

    def holds(self, data: bytes, *, position: int) -> bool:
        """Whether the file still has `data` at `position`.  Cost: a pread."""
        return self.pread(len(data), position=position) == data

    def pread_into(self, buffer: bytearray | memoryview, *, position: int) -> int:
        """Fill `buffer` from `position` and return the number of bytes read; fewer only at the end of the file."""
        view = memoryview(buffer)
        done = 0
        while done < len(view):
            fd = self.fileno()
            try:
                count = os.preadv(fd, [view[done:]], position + done)
            except OSError as error:
                raise storage_error("read", self.path, error) from error
            if count == 0:
                break
            done += count
        return done

    def will_read(self, *, position: int, end_position: int) -> None:
        size = min(end_position - position, _MOST_AHEAD_BYTES)
        if size <= _READ_AHEAD_BYTES or _WILL_NEED is None:
            # The first read of so few bytes reads them all.
            return
        fd = self.fileno()
        # The system looks at each page that it is to read, which takes as long as to copy some of them.
        if not _are_cached(fd, (position, position + size - 1)):
            # A hint: the read itself says what is wrong.
            with suppress(OSError):
                os.posix_fadvise(fd, position, size, _WILL_NEED)

    def is_cached(self, *, position: int, size: int) -> bool:
        if not size:
            return True
        fd = self.fileno()
        known = are_cached(fd, position=position, size=size)
        if known is not None:
            return known
        return _are_cached(fd, (*range(position, position + size, _READ_AHEAD_BYTES), position + size - 1)) is not False

    def skip_hole(self, position: int) -> int:
        """Return the first position >= `position` that may hold a nonzero byte; the file's size if there is none.

        This is `position` itself if the file system does not distinguish holes and preallocated space from data.
        """
        fd = self.fileno()
        try:
            return os.lseek(fd, position, os.SEEK_DATA)
        except (OSError, AttributeError) as error:
            # ENXIO: no data follows.
            return self.size() if getattr(error, "errno", None) == errno.ENXIO else position

    def send_to(self, target: socket.socket, *, position: int, size: int) -> int:
        """Send `size` bytes from `position` to a stream socket, with sendfile if possible; return how many were sent.

        Fewer only at the end of the file, or when a non-blocking socket accepts no more.
        Raises: TimeoutError after the timeout of the socket; OSError as the socket's own send().
        """
        import socket

        use_sendfile = hasattr(os, "sendfile") and type(target).sendfile is socket.socket.sendfile
        done = 0
        while done < size:
            try:
                if use_sendfile:
                    count = send_file(target.fileno(), self, position=position + done, size=size - done)
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


def positioned(file: ReadFile) -> LocalFile | None:
    """Return a file whose descriptor may be read without its methods; None for any other, and for a subclass."""
    return file if type(file) is LocalFile else None


class WriteFile(LocalFile, PositionedWriteFile):
    """A regular file opened for positioned reads and writes; is_new: this call created it.

    Threads: any number may read, concurrently with one writer.
    """

    def __init__(self, fd: int, *, path: str, is_new: bool, identity: FileIdentity | None = None) -> None:
        super().__init__(fd, path=path, identity=identity)
        self.is_new = is_new
        self._inode: tuple[int, int] | None = None

    def pwritev(self, parts: list[Buffer], *, position: int, size: int) -> None:
        """Write all of several adjacent buffers, `size` bytes in total; raises as pwrite.

        One system call takes WRITE_BYTES at most.
        """
        if size > WRITE_BYTES:
            self._write_in_pieces(parts, position=position, size=size)
            return
        done = self._write_parts(parts, position=position)
        if done < size:
            self.pwrite(b"".join(parts)[done:], position=position + done)

    def _write_in_pieces(self, parts: list[Buffer], *, position: int, size: int) -> None:
        """Write more than one call should; see WRITE_BYTES."""
        if len(parts) == 1:
            self.pwrite(memoryview(parts[0]).cast("B"), position=position)
            return
        half = len(parts) // 2
        first = sum(memoryview(part).nbytes for part in parts[:half])
        self.pwritev(parts[:half], position=position, size=first)
        self.pwritev(parts[half:], position=position + first, size=size - first)

    def _write_parts(self, parts: list[Buffer], *, position: int) -> int:
        """Write what one system call takes of several adjacent buffers, and return its size in bytes."""
        if not hasattr(os, "pwritev") or len(parts) > _MOST_PARTS:
            return 0
        fd = self.fileno()
        try:
            return os.pwritev(fd, parts, position)
        except OSError as error:
            raise storage_error("write", self.path, error) from error

    def is_in_place(self) -> bool:
        """Whether the path still refers to this file.  Cost: one stat call after the first time."""
        fd = self.fileno()
        if self._inode is None:
            self._inode = _inode_of(fd, self.path)
        return _is_named(self.path, self._inode)

    def truncate(self, size: int) -> None:
        """Truncate the file, or extend it with a hole of zeros."""
        fd = self.fileno()
        try:
            os.ftruncate(fd, size)
        except OSError as error:
            raise storage_error("truncate", self.path, error) from error

    def make_private(self) -> None:
        """Let only the owner of the file read and write it."""
        fd = self.fileno()
        try:
            os.fchmod(fd, _OWNER_ONLY)
        except OSError as error:
            raise storage_error("change the mode of", self.path, error) from error

    def allocate(self, size: int, *, position: int = 0) -> None:
        """Allocate disk space for the bytes [position, size) if the OS can; new bytes are zeros.

        A longer file keeps its size. If this raises, any part of the space may have been allocated.
        """
        fd = self.fileno()
        if size <= position:
            return
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(fd, position, size - position)
            elif size > os.fstat(fd).st_size:
                os.ftruncate(fd, size)
        except OSError as error:
            raise storage_error("allocate", self.path, error) from error

    def start_write_back(self, size: int, *, position: int) -> None:
        """Ask the OS to start writing the whole pages of these bytes to disk, if it can; sync waits for them."""
        call = _sync_file_range()
        if call is None:
            return
        end = (position + size) // _PAGE_BYTES * _PAGE_BYTES
        fd = self.fileno()
        number = call(fd, position=position, size=end - position) if end > position else 0
        if number and number not in _NO_WRITE_BACK:
            raise storage_error("begin to sync", self.path, OSError(number, os.strerror(number)))

    def sync(self) -> None:
        """Wait until the content and the size of the file survive a power cut; its name needs sync_directory."""
        fd = self.fileno()
        try:
            if hasattr(os, "fdatasync"):
                os.fdatasync(fd)
            else:
                os.fsync(fd)
        except OSError as error:
            raise storage_error("sync", self.path, error) from error


def plain_writer(file: WriteFile | None) -> WriteFile | None:
    """Return a file whose descriptor may be written without its methods; None for any other, and for a subclass."""
    return file if type(file) is WriteFile else None


class NewFile(Closing):
    """A new file that is written in sequence: durable once sync() has returned. Not thread-safe."""

    @abstractmethod
    def append(self, data: memoryview) -> None:
        """Write bytes after the others."""

    @abstractmethod
    def sync(self) -> None:
        """Wait until the content survives a power cut; nothing is appended after that."""


class NewLocalFile(NewFile):
    """A file of the operating system, whose pages are written back early. Replaces the content of one of its name."""

    def __init__(self, file: WriteFile) -> None:
        self._file = file
        if not file.is_new:
            file.truncate(0)
        self._end = 0
        self._started = 0

    def append(self, data: memoryview) -> None:
        self._file.pwrite(data, position=self._end)
        self._end += len(data)
        if self._end - self._started >= _WRITE_BACK_BYTES:
            self._file.start_write_back(self._end - self._started, position=self._started)
            self._started = self._end

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()


class LockFile:
    """A file or directory that is locked until close(), against other processes and other openings in this one.

    A child made by fork() shares the lock; its close() closes its descriptor and leaves the lock to the parent.
    Args: fd: open, and not locked yet: the lock is taken once there is an object that releases it.
    """

    _fd = _process_id = -1

    def __init__(self, fd: int, *, path: str, unlock: Callable[[int], None]) -> None:
        self._fd = fd
        self._unlock = unlock
        self.path = path
        self._process_id = os.getpid()
        self._inode: tuple[int, int] | None = None

    def is_in_place(self) -> bool:
        """Whether the path still refers to the locked file: the lock of a removed file excludes no one."""
        return _is_named(self.path, self.identity())

    def identity(self) -> tuple[int, int]:
        """Return device and inode, which identify the file while it is open."""
        if self._inode is None:
            self._inode = _inode_of(self._fd, self.path)
        return self._inode

    def close(self) -> None:
        """Release the lock and close the file, which is not removed; a second call does nothing.

        A call that was interrupted may be made again.
        """
        fd = self._fd
        if fd < 0:
            return
        try:
            if os.getpid() == self._process_id:
                self._unlock(fd)
        except OSError as error:
            raise storage_error("unlock", self.path, error) from error
        finally:
            try:
                # No call between these: an interrupt must neither leave the file open nor have it closed twice.
                self._fd = -1
                os.close(fd)
            except OSError as error:
                raise storage_error("close", self.path, error) from error

    def __del__(self) -> None:
        if self._fd >= 0:
            self.close()


OPEN_FILES: SharedCache[ReadFile] = SharedCache(limit=OPEN_FILES_LIMIT, weigh=lambda _: 1, drop=methodcaller("close"))
# Small files of all logs that are rewritten repeatedly, kept open up to the limit.
REWRITTEN_FILES: SharedCache[WriteFile] = SharedCache(
    limit=REWRITTEN_FILES_LIMIT, weigh=lambda _: 1, drop=methodcaller("close")
)


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


def status_of(of: str | int, *, follow_symlinks: bool = True) -> tuple[int, int, tuple[int, int, int], FileIdentity]:
    """Return mode, size in bytes, what a write changes (device, inode, time of the last write in ns) and identity of
    the file at a path or of an open descriptor.  Raises: OSError.
    """
    fields = file_status(of, follow_symlinks=follow_symlinks)
    if fields is None:
        status = os.stat(of, follow_symlinks=follow_symlinks or isinstance(of, int))
        born = getattr(status, "st_birthtime_ns", None) or int(getattr(status, "st_birthtime", 0) * 10**9)
        fields = status.st_mode, status.st_size, status.st_dev, status.st_ino, status.st_mtime_ns, born
    mode, size, device, inode, modified_ns, born_ns = fields
    # 0 if the file system does not keep the time of birth.
    identity = FileIdentity(device, inode, born_ns) if born_ns or os.major(device) else UNKNOWN_FILE
    return mode, size, (device, inode, modified_ns), identity


def storage_error(action: str, path: str, error: OSError) -> StorageError:
    """Return the StorageError of an OSError, which is itself if it is one."""
    if isinstance(error, StorageError):
        return error
    why = error.strerror or str(error)
    if error.errno == errno.EMFILE:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        why = f"{why}: the limit of this process is {limit} (RLIMIT_NOFILE)"
    return StorageError(f"cannot {action} {path}: {why}", path=path, errno=error.errno)


def _inode_of(fd: int, path: str) -> tuple[int, int]:
    """Return device and inode of an open file, which no other file can get while it is open."""
    try:
        status = os.fstat(fd)
    except OSError as error:
        raise storage_error("stat", path, error) from error
    return status.st_dev, status.st_ino


def _is_named(path: str, inode: tuple[int, int]) -> bool:
    """Whether a path refers to the file with this device and inode."""
    try:
        named = os.stat(path, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise storage_error("stat", path, error) from error
    return inode == (named.st_dev, named.st_ino)


def _wait_until_writable(target: socket.socket) -> None:
    import select

    timeout = target.gettimeout()
    poll = select.poll()
    poll.register(target.fileno(), select.POLLOUT)
    if not poll.poll(None if timeout is None else timeout * 1000):
        raise TimeoutError(f"the socket accepted no byte for {timeout} s")
