"""ObjectEnv: the objects below a URL as the files of an export, which are written as a whole."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping
from typing import Any

from kstore.env.base import FileKind, FileStatus, ObjectIdentity, ReadFile, StrPath
from kstore.env.env import Env
from kstore.env.files import NewFile
from kstore.env.filesystems import OpenObject, RemoteFileSystem, without_secrets
from kstore.env.objects.store import ObjectStore, ObjectTag, StoredObject, bucket_key
from kstore.env.remote import RemoteFile
from kstore.errors import LogClosedError, StorageError

# A part of an upload. A store takes 10,000 parts.
PART_BYTES = 8 * 1024 * 1024
_PARTS_AT_A_TIME = 2


class UploadedFile(NewFile):
    """An object under construction. It exists once sync() has returned; close() before that drops it.

    Cost: a request for 8 MiB, or one for an object that is smaller; memory for 3 times as much.
    """

    def __init__(self, store: ObjectStore, key: str, *, path: str) -> None:
        self.path = path
        self._store = store
        self._writer: Any = store.upload(key, part_bytes=PART_BYTES, parts_at_a_time=_PARTS_AT_A_TIME, path=path)

    def append(self, data: memoryview) -> None:
        if self._writer is None:
            raise LogClosedError(f"{self.path} was closed before the call", path=self.path)
        with self._store.errors("write", self.path):
            self._writer.write(bytes(data))

    def sync(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            with self._store.errors("write", self.path):
                writer.close()

    def close(self) -> None:
        # A writer that is not closed uploads nothing more.
        self._writer = None


class _StoreFiles(RemoteFileSystem):
    """The objects of a store, as RemoteFile reads them."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(None)
        self._store = store

    def open(self, key: str, *, path: str) -> OpenObject:
        facts = self._store.head(key, path=path)
        return OpenObject(key, _identity(facts))

    def read(self, opened: OpenObject, size: int, *, position: int, path: str) -> bytearray:
        data = self._store.read(opened.handle, size, position=position, path=path)
        if len(data) != size:
            reason = f"asked for {size} bytes at position {position}, the answer had {len(data)}"
            raise StorageError(f"cannot read {path}: {reason}", path=path, errno=errno.EIO)
        return data


def _identity(facts: Mapping[str, Any]) -> ObjectIdentity:
    return ObjectIdentity(facts["size"], int(facts["last_modified"].timestamp()), facts.get("e_tag") or "")


class ObjectEnv(Env):
    """The objects below a URL. Paths are that URL and what is below it. Nothing is cached. Picklable, with its options.

    Args: url, options: as of ObjectStore.
    Raises: as ObjectStore.
    Threads: thread-safe.
    """

    is_mutable = False
    is_high_latency = True

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self._url = url.rstrip("/")
        # As messages show it: of abfs without the container, which stands where others have a user.
        self._root = without_secrets(self._url)
        self._options = dict(options)
        self._store = ObjectStore(url, options)
        self._prefix = bucket_key(url)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._url, self._options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._root!r})"

    def absolute_path(self, path: StrPath) -> str:
        return without_secrets(str(path)).rstrip("/")

    def process_id(self) -> int:
        from kstore.env.local import DEFAULT_ENV

        return DEFAULT_ENV.process_id()

    def check_writable(self, path: str) -> None:
        """Return: objects can be written as a whole."""

    def open_read(self, path: str) -> ReadFile:
        return RemoteFile(_StoreFiles(self._store), self._key(path), path=path)

    def create_file(self, path: str) -> NewFile:
        return UploadedFile(self._store, self._key(path), path=path)

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, none if it does not exist."""
        return self._store.names(self._key(path), path=path)

    def stat(self, path: str, *, follow_symlinks: bool = True) -> FileStatus | None:  # noqa: ARG002
        """Return the status of an object, None for a directory."""
        try:
            identity = _identity(self._store.head(self._key(path), path=path))
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            return None
        size = identity.size_in_bytes
        return FileStatus(FileKind.FILE, size, (size, 0, identity.modified_s), identity)

    def unlink(self, path: str) -> bool:
        """Remove an object, and return True."""
        self.remove([path])
        return True

    def remove(self, paths: Iterable[str]) -> None:
        """Remove objects that there may be."""
        self._store.delete(map(self._key, paths), path=self._root)

    def copy(self, source: str, target: str) -> None:
        """Copy an object, without its bytes passing here."""
        self._store.copy(self._key(source), self._key(target), path=target)

    def read_tagged(self, path: str) -> StoredObject | None:
        """Return an object and its tag, None if there is none."""
        return self._store.get(self._key(path), path=path)

    def write(self, path: str, content: bytes) -> None:
        """Write an object in place of one that there may be."""
        self._store.put(self._key(path), content, path=path)

    def write_if(self, path: str, content: bytes, *, expected: ObjectTag | None) -> bool:
        """Write an object if it is still that of a tag, None for no object; see ObjectStore.put_if."""
        return self._store.put_if(self._key(path), content, expected=expected, path=path)

    def below(self, path: str) -> list[str]:
        """Return the paths of all objects below a directory, relative to it."""
        start = len(self._key(path)) + 1
        return [key[start:] for key in self._store.below(self._key(path), path=path)]

    def _key(self, path: str) -> str:
        root = next((each for each in (self._root, self._url) if f"{path}/".startswith(f"{each}/")), None)
        if root is None:
            raise ValueError(f"expected a path below {self._root}, got {without_secrets(path)}")
        below = path[len(root) :].strip("/")
        return "/".join(filter(None, (self._prefix, below)))
