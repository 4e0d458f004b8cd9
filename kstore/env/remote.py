"""RemoteEnv and RemoteFile: objects in a store, read as the files of directories, with few requests.

An object is never changed in place, but another one may replace it. Each answer about directories comes from one
recursive listing. The bytes of an object are returned after a request for its identity found the same object as before.
"""

from __future__ import annotations

import errno
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, NoReturn
from urllib.parse import urlsplit

from kstore.env.base import (
    NO_FILE,
    FileKind,
    FileStatus,
    Identity,
    ObjectIdentity,
    ReadFile,
    StrPath,
    is_same_file,
    split_path,
)
from kstore.env.cache import SharedCache
from kstore.env.env import Env, too_large
from kstore.env.filesystems import ListedObject, Listing, OpenObject, RemoteFileSystem, url_text
from kstore.env.watching import PollInterval
from kstore.errors import LogClosedError, LogReplacedError, StorageError
from kstore.waiting import Call, Workers

if TYPE_CHECKING:
    from kstore._core import MappedBytes

# One request of a lookup. Blocks are counted from the end of the object, where most lookups read.
BLOCK_BYTES = 256 * 1024
_BLOCKS_KEPT = 8
# One request of a sequential reader, and how many requests it has under way ahead of the block it reads.
STREAM_BYTES = 8 * 1024 * 1024
REQUESTS_AHEAD = 3
# The first request of a reader without will_read(); each is twice as large as the one before.
_FIRST_BYTES = 1024 * 1024
# How many sequential readers keep blocks read ahead, 32 MiB each.
STREAMS_LIMIT = 16
PARALLEL_REQUESTS = 32


class _Block(NamedTuple):
    """Bytes of an object; number: how many requests for its bytes had been answered, this one included."""

    start: int
    data: bytearray
    number: int

    @property
    def end(self) -> int:
        return self.start + len(self.data)


class _Stream:
    """The blocks of an object from a position on; threads request the next few ahead.

    Memory: at most REQUESTS_AHEAD + 1 blocks of STREAM_BYTES.  Threads: for one thread at a time.
    """

    def __init__(self, fetch: Callable[..., _Block], *, position: int, end_position: int, is_announced: bool) -> None:
        self._fetch = fetch
        self._next = position
        self._end = end_position
        self._bytes = STREAM_BYTES if is_announced else _FIRST_BYTES
        self._blocks: deque[tuple[int, int, Call[_Block] | _Block]] = deque()
        self._workers: Workers | None = None
        self.start = position

    def covers(self, position: int) -> bool:
        """Whether a position is in a block that is kept, or the next to be requested."""
        return self.start <= position <= self._next and position < self._end

    def blocks(self, position: int, *, size: int) -> list[_Block]:
        """Return the blocks with [position, position + size), and drop those before."""
        while self._blocks and sum(self._blocks[0][:2]) <= position:
            self._blocks.popleft()
        end = min(position + size, self._end)
        blocks = []
        at = 0
        while position < end:
            if at == len(self._blocks):
                self._request(is_needed=True)
            start, length, block = self._blocks[at]
            self._request_ahead()
            if isinstance(block, Call):
                block = block.result()
                self._blocks[at] = start, length, block
            blocks.append(block)
            position = start + length
            at += 1
        self.start = self._blocks[0][0] if self._blocks else self._next
        return blocks

    def close(self) -> None:
        """Drop all blocks; a request that is under way ends by itself."""
        self._blocks.clear()
        self.start = self._end
        if self._workers is not None:
            self._workers.close(waits=False)
            self._workers = None

    def _request_ahead(self) -> None:
        most = REQUESTS_AHEAD if self._bytes == STREAM_BYTES else 1
        while self._next < self._end and len(self._blocks) <= most:
            self._request(is_needed=False)

    def _request(self, *, is_needed: bool) -> None:
        start, size = self._next, min(self._bytes, self._end - self._next)
        self._next += size
        self._bytes = min(2 * self._bytes, STREAM_BYTES)
        if is_needed and self._next >= self._end:
            self._blocks.append((start, size, self._fetch(start, size=size)))
            return
        if self._workers is None:
            self._workers = Workers(REQUESTS_AHEAD, name="kstore-fetch")
        self._blocks.append((start, size, self._workers.submit(partial(self._fetch, start, size=size))))


_STREAMS: SharedCache[_Stream] = SharedCache(limit=STREAMS_LIMIT, weigh=lambda _: 1, drop=_Stream.close)


class RemoteFile(ReadFile):
    """An object that is read by ranges: lookups in cached blocks, sequential reads with read-ahead.

    Bytes are returned only after a later request has confirmed that the object is the one that was opened, by size,
    time and, where the server reports it, entity tag.
    Raises: LogReplacedError if the object was replaced or removed; StorageError.
    Cost: a request to open it, and one after each block to confirm it, unless another one was made since the block
        arrived; 2 MiB of memory for lookups, and 32 MiB during a sequential read.
    Threads: as ReadFile; reads wait for each other.
    """

    def __init__(self, filesystem: RemoteFileSystem, key: str, *, path: str) -> None:
        self.path = path
        self._filesystem = filesystem
        self._key = key
        self._opened: OpenObject | None = filesystem.open(key, path=path)
        self._identity = self._opened.identity
        self._size = self._identity.size_in_bytes
        self._lock = threading.RLock()
        self._counting = threading.Lock()
        self._answers = 0
        self._confirmed = 0
        self._kept: OrderedDict[int, _Block] = OrderedDict()
        self._next_position = -1
        self._announced_end: int | None = None

    def size(self) -> int:
        return self._size

    def identity(self) -> ObjectIdentity:
        return self._identity

    def is_listed(self, listed: Identity) -> bool:
        return is_same_file(listed, self._identity)

    def holds(self, data: bytes, *, position: int) -> bool:  # noqa: ARG002
        """Return True: an object is never changed in place, and all returned bytes are of one object."""
        return True

    def map(self, size: int) -> MappedBytes:  # noqa: ARG002
        raise StorageError(f"cannot map {self.path}: it is not a local file", path=self.path)

    def will_read(self, *, position: int, end_position: int) -> None:  # noqa: ARG002
        self._announced_end = end_position

    def pread(self, size: int, *, position: int) -> bytes:
        with self._lock:
            parts = self._parts(size, position=position)
        return b"".join(parts)

    def pread_into(self, buffer: bytearray | memoryview, *, position: int) -> int:
        view = memoryview(buffer).cast("B")
        done = 0
        with self._lock:
            for part in self._parts(len(view), position=position):
                view[done : done + len(part)] = part
                done += len(part)
        return done

    def close(self) -> None:
        self._opened = None
        # A finalizer of a log may call this.
        _STREAMS.release_soon(self)
        self._kept.clear()

    def _parts(self, size: int, *, position: int) -> list[memoryview]:
        """Return [position, position + size) in parts, fewer bytes only at the end of the object."""
        size = min(size, self._size - position)
        if size <= 0:
            self._check_open()
            return []
        blocks = self._blocks(size, position=position)
        last = max(block.number for block in blocks)
        if last > self._confirmed:
            self._confirm()
        self._next_position = position + size
        parts = []
        for block in blocks:
            start, end = max(position - block.start, 0), min(position + size, block.end) - block.start
            parts.append(memoryview(block.data)[start:end])
        return parts

    def _blocks(self, size: int, *, position: int) -> list[_Block]:
        end = position + size
        in_order = self._announced_end is not None and end <= self._announced_end
        numbers = range((self._size - end) // BLOCK_BYTES, (self._size - 1 - position) // BLOCK_BYTES + 1)
        is_kept = all(number in self._kept for number in numbers)
        continues = position == self._next_position and not is_kept
        if not is_kept and (in_order or continues or size > BLOCK_BYTES):
            return self._in_order(size, position=position)
        if not is_kept:
            # One request for adjacent blocks.
            first = max(self._size - (numbers[-1] + 1) * BLOCK_BYTES, 0)
            whole = self._fetch(first, size=self._size - numbers[0] * BLOCK_BYTES - first)
            for number in numbers:
                start = max(self._size - (number + 1) * BLOCK_BYTES, 0)
                data = whole.data[start - first : self._size - number * BLOCK_BYTES - first]
                self._kept[number] = _Block(start, data, whole.number)
        for number in numbers:
            self._kept.move_to_end(number)
        blocks = [self._kept[number] for number in reversed(numbers)]
        while len(self._kept) > max(_BLOCKS_KEPT, len(numbers)):
            self._kept.popitem(last=False)
        return blocks

    def _in_order(self, size: int, *, position: int) -> list[_Block]:
        is_announced = self._announced_end is not None and position + size <= self._announced_end
        end_position = self._announced_end if is_announced and self._announced_end is not None else self._size

        def started() -> _Stream:
            self._check_open()
            return _Stream(self._fetch, position=position, end_position=end_position, is_announced=is_announced)

        loan = _STREAMS.lend(self, self.path, started)
        if not loan.value.covers(position):
            loan.give_back()
            _STREAMS.release(self)
            loan = _STREAMS.lend(self, self.path, started)
        with loan as stream:
            blocks = stream.blocks(position, size=size)
        if position + size >= end_position:
            _STREAMS.release(self)
        return blocks

    def _fetch(self, start: int, *, size: int) -> _Block:
        """Request bytes of the object; called in several threads."""
        opened = self._check_open()
        try:
            data = self._filesystem.read(opened, size, position=start, path=self.path)
        except StorageError:
            self._confirm()
            raise
        with self._counting:
            self._answers += 1
            return _Block(start, data, self._answers)

    def _confirm(self) -> None:
        """Raise LogReplacedError unless the object is the one that was opened.  Cost: a request."""
        with self._counting:
            answers = self._answers
        try:
            identity = self._filesystem.open(self._key, path=self.path).identity
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            self._raise_replaced(NO_FILE)
        if not is_same_file(identity, self._identity):
            self._raise_replaced(str(identity))
        with self._counting:
            self._confirmed = max(self._confirmed, answers)

    def _raise_replaced(self, found: str) -> NoReturn:
        raise LogReplacedError(
            f"{self.path} was replaced while it was read: expected {self._identity}, found {found}; open the log again",
            path=self.path,
            expected=str(self._identity),
            found=found,
        )

    def _check_open(self) -> OpenObject:
        if self._opened is None:
            raise LogClosedError(f"{self.path} was closed before the call", path=self.path)
        return self._opened


class RemoteEnv(Env):
    """The objects of one store as files. The first question about a directory lists everything below it; the cached
    listing answers later ones, until invalidate_listing.

    Args: root: the URL of the directory that was opened, without options; key: its path in the file system; url: the
        URL with its options, from which another process makes an equal Env; is_recursive: whether a listing has
        everything below its directory, or only the names in it.
    Threads: thread-safe.
    """

    parallel_requests = PARALLEL_REQUESTS
    is_mutable = False
    is_high_latency = True
    # A check is a request, which may cost money.
    poll_interval = PollInterval(least_s=1, most_s=10)

    def __init__(
        self, filesystem: RemoteFileSystem, *, url: str, root: str, key: str, is_recursive: bool = True
    ) -> None:
        self.url: str = url
        self._is_recursive = is_recursive
        self._filesystem = filesystem
        self._root = root
        self._key = key
        scheme, _, rest = root.partition("://")
        place, _, below = rest.partition("/")
        self._base = f"{scheme}://{place}"
        self._base_key = key.rstrip("/").removesuffix(filesystem.key_of(below))
        self._lock = threading.RLock()
        self._listings: dict[str, Listing] = {}
        self._statuses: dict[str, ListedObject | bool] = {}
        self._left: set[str] = set()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._root!r})"

    def absolute_path(self, path: StrPath) -> str:
        text = str(path)
        if not text.startswith(self._base):
            raise StorageError(f"expected a URL that starts with {self._base}, got {text}", path=text)
        return text.partition("?")[0].rstrip("/")

    def url_of(self, path: str) -> str:
        return url_text(urlsplit(self.url)._replace(path=urlsplit(self.absolute_path(path)).path))

    def without_recursive_listing(self) -> Env:
        return RemoteEnv(self._filesystem, url=self.url, root=self._root, key=self._key, is_recursive=False)

    def process_id(self) -> int:
        from kstore.env.local import DEFAULT_ENV

        return DEFAULT_ENV.process_id()

    def open_read(self, path: str) -> ReadFile:
        key = self._key_of(path)
        status = self._listed_status(path)
        if key is None or status is False:
            raise StorageError(f"cannot open {path}: no such object", path=path, errno=errno.ENOENT)
        if status is True:
            raise StorageError(f"cannot open {path}: expected an object, found a directory", path=path)
        return RemoteFile(self._filesystem, key, path=path)

    def read_untrusted(self, path: str, *, max_bytes: int) -> bytes | bytearray:
        status = self._listed_status(path)
        key = self._key_of(path)
        if key is None or isinstance(status, bool):
            return self.read_file(path, max_bytes=max_bytes)
        opened = self._filesystem.open(key, path=path)
        size = opened.identity.size_in_bytes
        if size > max_bytes:
            raise too_large(path, max_bytes=max_bytes)
        return self._filesystem.read(opened, size, position=0, path=path) if size else b""

    def listdir(self, path: str) -> list[str]:
        listing, directory = self._listing_of(path)
        if not listing.is_directory(directory):
            raise StorageError(f"cannot list {path}: nothing is there", path=path, errno=errno.ENOENT)
        return listing.names(directory)

    def is_directory(self, path: str) -> bool:
        listing, directory = self._listing_of(path)
        return listing.is_directory(directory)

    def stat(self, path: str, *, follow_symlinks: bool = True) -> FileStatus | None:  # noqa: ARG002
        status = self._listed_status(path)
        if status is None:
            status = self._asked_status(path)
        if status is False:
            return None
        if status is True:
            listing, directory = self._listing_of(path)
            return FileStatus(FileKind.DIRECTORY, 0, (0, listing.digest(directory), 0))
        identity = (status.size_in_bytes, 0, status.modified_ns)
        return FileStatus(FileKind.FILE, status.size_in_bytes, identity, status.identity)

    def invalidate_listing(self, path: str) -> None:
        with self._lock:
            kept = [(at, listing) for at, listing in self._listings.items() if not f"{at}/".startswith(f"{path}/")]
            self._listings = dict(kept)
            self._statuses.clear()
            self._left.add(split_path(path)[0])
            self._listings[path] = self._take(path)

    def _key_of(self, path: str) -> str | None:
        """Return the path in the file system of a path or URL, None if it is outside of it."""
        if path == self._root or path.startswith(self._root + "/"):
            return self._key.rstrip("/") + path[len(self._root) :]
        if not f"{path}/".startswith(self._base + "/"):
            return None
        return self._base_key + self._filesystem.key_of(path[len(self._base) + 1 :])

    def _take(self, path: str) -> Listing:
        key = self._key_of(path)
        return Listing() if key is None else self._filesystem.list(key, path=path, is_recursive=self._is_recursive)

    def _covering(self, path: str) -> tuple[Listing, str] | None:
        """Return the cached listing that includes a path, and the path relative to that listing's directory."""
        at = path
        while at not in self._listings:
            shorter = at.rpartition("/")[0]
            if not shorter.startswith(self._base):
                return None
            at = shorter
        return self._listings[at], path[len(at) + 1 :]

    def _listing_of(self, path: str) -> tuple[Listing, str]:
        with self._lock:
            covering = self._covering(path)
            if covering is None:
                self._listings[path] = listing = self._take(path)
                covering = listing, ""
            return covering

    def _listed_status(self, path: str) -> ListedObject | bool | None:
        """Return the status of a path by the cached listings: an object, True for a directory, False if it does not
        exist, None without a listing.
        """
        directory, name = split_path(path)
        with self._lock:
            if directory in self._left and path not in self._listings:
                return None
            covering = self._covering(path)
        if covering is None:
            return None
        listing, inner = covering
        listed = listing.object(inner.rpartition("/")[0], name) if inner else None
        return listing.is_directory(inner) if listed is None else listed

    def _asked_status(self, path: str) -> ListedObject | bool:
        key = self._key_of(path)
        if key is None:
            return False
        with self._lock:
            if path in self._statuses:
                return self._statuses[path]
        status = self._filesystem.status(key, path=path)
        with self._lock:
            self._statuses[path] = status
        return status
