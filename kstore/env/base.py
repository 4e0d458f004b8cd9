"""The types that every Env uses: kinds, statuses and identities of files, files open for reading, and paths."""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import socket

    from typing_extensions import Self

    from kstore._core import HeaderScan, MappedBytes

StrPath = str | os.PathLike[str]

ENOENT = 2
_CHUNK_BYTES = 1 << 20


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


class ObjectIdentity(NamedTuple):
    """Distinguishes objects of a store that had the same name; see is_same_file.

    modified_s: in whole seconds, as some answers of a server have no more; 0 if unknown. etag: the entity tag, which
    listings do not have; empty if unknown.
    """

    size_in_bytes: int
    modified_s: int
    etag: str = ""


Identity: TypeAlias = FileIdentity | ObjectIdentity

# `found` of a LogReplacedError for a file that was removed.
NO_FILE = "no file"

# For a file system that reports no birth times and is not on a disk: its inode numbers may not be stable.
UNKNOWN_FILE = FileIdentity(0, 0, 0)


def is_same_file(identity: Identity, other: Identity) -> bool:
    """Whether two identities may be of the same file; an unknown identity, or part of one, matches any."""
    if isinstance(identity, ObjectIdentity) and isinstance(other, ObjectIdentity):
        pairs = zip(identity, other, strict=True)
        return all(first == second or not first or not second for first, second in pairs)
    return identity == other or UNKNOWN_FILE in (identity, other)


class DiskSpace(NamedTuple):
    """The bytes of a disk: of all files that it could hold, and those that may still be written."""

    total_bytes: int
    usable_bytes: int


class FileStatus(NamedTuple):
    """What a path refers to; identity (device, inode, modification time in ns) changes if the file is replaced or
    written. For an object, the first two are its size and 0; for a directory of objects, the second is a hash of its
    listing.
    """

    kind: FileKind
    size_in_bytes: int
    identity: tuple[int, int, int]
    file: Identity = UNKNOWN_FILE


class Closing(ABC):
    """A context manager that closes itself, also an asynchronous one of asyncio."""

    @abstractmethod
    def close(self) -> None:
        """Release files, locks and memory; a second call does nothing."""

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError(
            f"{type(self).__name__} holds open files and locks: it can't be pickled or copied; open it again"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def aclose(self) -> None:
        """Do what close() does in a worker thread; if this is cancelled, the thread goes on."""
        import asyncio

        await asyncio.to_thread(self.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


class ReadFile(Closing):
    """A regular file, or an object, opened for positioned reads; a context manager that closes it.

    Threads: any number may read. close() may be called while pread calls run, and takes effect after the last of them;
        no other method may run concurrently with it.
    """

    path: str

    @property
    def has_parts(self) -> bool:
        """Whether part_at returns parts, each of which takes long to decode."""
        return False

    @abstractmethod
    def pread(self, size: int, *, position: int) -> bytes:
        """Return up to `size` bytes from `position`; fewer only at the end of the file.

        Raises: StorageError; LogClosedError after close().
        """

    @abstractmethod
    def pread_into(self, buffer: bytearray | memoryview, *, position: int) -> int:
        """Fill `buffer` from `position` and return the number of bytes read; fewer only at the end of the file."""

    def part_at(self, position: int) -> memoryview | None:  # noqa: ARG002
        """Return the bytes from `position` on that the file has in memory once it has one of them, to be read without
        a copy; none at the end of the file. None for a file that has none, which is read into a buffer.

        Raises: as pread.  Lifetime: a view keeps its bytes, which do not change.
        """
        return None

    @abstractmethod
    def size(self) -> int:
        """Return the current size in bytes; a broker may be appending to the file or truncating it."""

    @abstractmethod
    def identity(self) -> Identity:
        """Return the identity of the file."""

    @abstractmethod
    def is_listed(self, listed: Identity) -> bool:
        """Whether this is the file that had this identity in a listing."""

    @abstractmethod
    def holds(self, data: bytes, *, position: int) -> bool:
        """Whether the file still has `data` at `position`; False if it was overwritten in place since it was read."""

    @abstractmethod
    def map(self, size: int) -> MappedBytes:
        """Return the first `size` bytes as MappedBytes; see there what this requires.

        Raises: StorageError, also where a file can't be mapped; LogClosedError after close(); ValueError.
        """

    def will_read(self, *, position: int, end_position: int) -> None:
        """Announce that [position, end_position) will be read in order; it may be read ahead, of a local file its first
        16 MiB.
        """

    def split_target(self, target: int, *, position: int) -> int:  # noqa: ARG002
        """Return where to look for a place to split [position, ...) near `target`, so that two readers of the parts
        have little work in common; at or after the end of the file if there is no such place after `position`.
        """
        return target

    def is_cached(self, *, position: int, size: int) -> bool:  # noqa: ARG002
        """Whether a read would not have to wait, as far as a few of its pages tell; never where it is a request."""
        return False

    def pread_cached(self, size: int, *, position: int) -> bytes | None:  # noqa: ARG002
        """Return `size` bytes from `position` if that takes no wait for a disk, or the file system cannot say it.

        Returns: None if they are not in memory, the file ends before, or a read is a request.
        Raises: as pread.
        """
        return None

    def walk_cached(self, scan: HeaderScan) -> None:
        """Continue a scan of this file by small reads if its pages are cached; the caller feeds it the rest."""

    def skip_hole(self, position: int) -> int:
        """Return the first position >= `position` that may hold a nonzero byte; the file's size if there is none.

        This is `position` itself if the file system does not distinguish holes and preallocated space from data.
        """
        return position

    def around_damage(self) -> ReadFile:
        """Return this file for a search of sound batches: where its bytes cannot be had because they are damaged, it
        has others, of which no batch can be made, instead of raising CorruptRecordError.

        Lifetime: until close() of this file.
        """
        return self

    def why_missing(self, position: int, *, end_position: int) -> str | None:  # noqa: ARG002
        """Return why bytes of [position, end_position) cannot be had, None if all can: a file on a disk has them."""
        return None

    def chunks(self, size: int, *, position: int) -> Iterator[bytes]:
        """Yield `size` bytes from `position`, 1 MiB at a time; fewer at the end of the file."""
        end = position + size
        while position < end and (chunk := self.pread(min(_CHUNK_BYTES, end - position), position=position)):
            yield chunk
            position += len(chunk)

    def fileno(self) -> int:
        """Return the descriptor of a local file, for a sendfile of the caller's, valid until close().

        Raises: io.UnsupportedOperation for a file without one; LogClosedError after close().
        """
        raise io.UnsupportedOperation(f"{self.path} has no descriptor: it is no local file")

    def send_to(self, target: socket.socket, *, position: int, size: int) -> int:
        """Send `size` bytes from `position` to a stream socket; return how many were sent.

        Fewer only at the end of the file, or when a non-blocking socket accepts no more.
        Raises: TimeoutError after the timeout of the socket; OSError as the socket's own send().
        """
        sent = 0
        for chunk in self.chunks(size, position=position):
            target.sendall(chunk)
            sent += len(chunk)
        return sent


def path_list(paths: StrPath | Iterable[StrPath]) -> list[StrPath]:
    """Return one path or several as a list.  Raises: TypeError for bytes and other types."""
    if isinstance(paths, str | os.PathLike):
        return [paths]
    return [*_several(paths)]


def _several(paths: Any) -> Iterable[StrPath]:
    return (path_text(paths),) if isinstance(paths, bytes) or not isinstance(paths, Iterable) else paths


def path_text(path: object) -> str:
    """Return a path as a str.  Raises: TypeError for a path of bytes and other types."""
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise TypeError(f"path must be str or a path of str, got {type(text).__name__}")
    return text


def join_path(directory: str, name: str) -> str:
    """Return the path of a name (without slashes) in a directory."""
    return directory + name if directory.endswith("/") else f"{directory}/{name}"


def split_path(path: str) -> tuple[str, str]:
    """Return (directory, name) of an absolute path; the name of "/" is empty."""
    directory, _, name = path.rpartition("/")
    # A path in a directory, as nearly all are, in an eighth of the time.
    return (directory, name) if directory and directory[-1] != "/" else os.path.split(path)
